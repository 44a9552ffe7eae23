// SPDX-License-Identifier: GPL-2.0
//! Arguments of the commands that exchange messages: `kfi pingpong`, `rping`, `bench`.

use std::time::Duration;

use clap::{Parser, ValueEnum};
use kfi::AuthKey;
use serde::{Deserialize, Serialize};

use super::HostPort;
use crate::{rping, text};

/// Port of a ping-pong server.
pub(crate) const PORT: u16 = 7471;

/// Exchange messages with another program
///
/// Without an address, the command is the server: it prints its own address, waits for a client,
/// and does what the client asks for. With a server's address, it is the client: it sends as many
/// messages as asked, each after the answer to the one before, and prints the latency of one way.
#[derive(Clone, Debug, Parser)]
pub(crate) struct Pingpong {
    /// Address of the server (port 7471 if none is given); without it, be the server
    #[arg(value_name = "HOST[:PORT]")]
    pub(crate) server: Option<HostPort>,

    /// Link to use; without it, the link that has the address, else the first that is up
    #[arg(short, long, value_name = "NAME")]
    pub(crate) link: Option<String>,

    /// Kind of messages to exchange (client)
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) mode: Mode,

    /// Report of arrivals; without it, a server does as its client
    #[arg(short, long, value_enum)]
    pub(crate) completion: Option<Completion>,

    /// Way of waiting for arrivals; without it, a server does as its client
    #[arg(short, long, value_enum)]
    pub(crate) wait: Option<WaitBy>,

    /// Bytes of a message: 8, 4K, 1M, ... (client)
    #[arg(short, long, value_name = "BYTES", default_value = "8", value_parser = text::parse_size)]
    pub(crate) size: u64,

    /// Messages each way (client)
    #[arg(
        short,
        long,
        value_name = "COUNT",
        default_value_t = 1000,
        value_parser = clap::value_parser!(u64).range(1..=10_000_000)
    )]
    pub(crate) iterations: u64,

    /// Messages each way before the measured ones (client)
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 10,
        value_parser = clap::value_parser!(u64).range(..=10_000_000)
    )]
    pub(crate) warmup: u64,

    /// Show every operation, CQ entry and counter; for few iterations
    #[arg(short, long)]
    pub(crate) trace: bool,

    /// Own address; the default port is 7471 for a server and any for a client
    #[arg(short, long, value_name = "HOST[:PORT]")]
    pub(crate) bind: Option<HostPort>,

    /// Authorization key of the endpoints, a hexadecimal number; client and server need the same
    #[arg(long, value_name = "KEY")]
    pub(crate) auth_key: Option<AuthKey>,

    /// Serve one client after another (server)
    #[arg(short, long, conflicts_with = "server")]
    pub(crate) keep: bool,

    /// Give up when the peer is silent for this long
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = text::parse_seconds)]
    pub(crate) timeout: Duration,

    /// Exchange messages with ibv_rc_pingpong or ibv_ud_pingpong, which need the same number of
    /// iterations and, with -g, the index of a GID
    #[arg(
        long,
        value_enum,
        value_name = "SERVICE",
        conflicts_with_all = ["mode", "completion", "wait", "trace", "auth_key"]
    )]
    pub(crate) verbs: Option<Verbs>,

    /// Path MTU of rc, equal to the peer's; without it 1024
    #[arg(long, value_name = "BYTES", requires = "verbs", value_parser = parse_mtu)]
    pub(crate) mtu: Option<u32>,
}

/// Exchange messages with rdma-core's rping or with this command
///
/// Without an address, the command is the server: it waits for a client, reads its memory and
/// writes the data back, as often as the client wants. With a server's address, it is the client,
/// which compares the data. The two connect by the RDMA CM's messages.
#[derive(Clone, Debug, Parser)]
pub(crate) struct Rping {
    /// Address of the server (port 7174 if none is given); without it, be the server
    #[arg(value_name = "HOST[:PORT]")]
    pub(crate) server: Option<HostPort>,

    /// Link to use; without it, the link that has the address, else the first that is up
    #[arg(short, long, value_name = "NAME")]
    pub(crate) link: Option<String>,

    /// Bytes of a ping, 26 to 65535 (client)
    #[arg(short, long, value_name = "BYTES", default_value = "64", value_parser = parse_rping_size)]
    pub(crate) size: u64,

    /// Number of pings (client)
    #[arg(
        short,
        long,
        value_name = "COUNT",
        default_value_t = 10,
        value_parser = clap::value_parser!(u64).range(1..=i32::MAX as u64)
    )]
    pub(crate) iterations: u64,

    /// Show the text of each ping
    #[arg(short, long)]
    pub(crate) verbose: bool,

    /// Own address; the default port of a server is 7174
    #[arg(short, long, value_name = "HOST[:PORT]")]
    pub(crate) bind: Option<HostPort>,

    /// Serve one client after another (server)
    #[arg(short, long, conflicts_with = "server")]
    pub(crate) keep: bool,

    /// Give up when the peer is silent for this long
    #[arg(long, value_name = "SECONDS", default_value = "15", value_parser = text::parse_seconds)]
    pub(crate) timeout: Duration,
}

/// A transport service of InfiniBand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verbs {
    /// Reliable connection: a connected endpoint
    Rc,
    /// Unreliable datagrams: a datagram endpoint
    Ud,
}

/// Kind of messages that two programs exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// Messages: send and receive
    #[default]
    Msg,
    /// Tagged messages
    Tagged,
    /// Writes to the peer's memory
    Rma,
}

/// Report that an operation is complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Completion {
    /// An entry of a completion queue
    #[default]
    Cq,
    /// A counter
    Cntr,
}

/// Way of waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum WaitBy {
    /// Read mapped memory in a loop
    Spin,
    /// Sleep in a call
    #[default]
    Sread,
    /// Sleep in poll(2) on a descriptor
    Fd,
}

/// Measure latency, bandwidth and rate between two threads
///
/// The measurements are short, for a first look at a machine. `make bench` in the sources compares
/// with other interfaces.
#[derive(Debug, Parser)]
pub(crate) struct Bench {
    /// Measurement to make; without it, all of them
    #[arg(value_enum)]
    pub(crate) what: Vec<Measure>,

    /// Link to use; without it, the first that is up
    #[arg(short, long, value_name = "NAME")]
    pub(crate) link: Option<String>,

    /// Duration of each measurement
    #[arg(short, long, value_name = "SECONDS", default_value = "0.5", value_parser = text::parse_seconds)]
    pub(crate) time: Duration,
}

/// The measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Measure {
    /// A call that does nothing, reads of a counter and of an empty CQ
    Calls,
    /// One way of 8 bytes, sleeping and spinning
    Latency,
    /// Messages and writes of 1 MiB
    Bandwidth,
    /// Messages of 8 bytes, posted 64 at a time
    Rate,
}

fn parse_rping_size(text: &str) -> Result<u64, String> {
    match text::parse_size(text)? {
        size @ rping::MIN_SIZE..=rping::MAX_SIZE => Ok(size),
        _ => Err(format!("{} to {}", rping::MIN_SIZE, rping::MAX_SIZE)),
    }
}

fn parse_mtu(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(mtu @ (256 | 512 | 1024 | 2048 | 4096)) => Ok(mtu),
        _ => Err("there are 256, 512, 1024, 2048 and 4096".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::parse, *};
    use crate::args::Command;
    use clap::error::ErrorKind;

    #[test]
    fn pingpong_arguments_are_parsed() {
        let line = "kfi pingpong 10.0.0.1:99 -m rma -c cntr -w fd -s 4K -i 5 --timeout 0.5";
        let Command::Pingpong(args) = parse(line).unwrap().command else {
            panic!("not pingpong");
        };
        assert_eq!(args.server, "10.0.0.1:99".parse().ok());
        assert_eq!(
            (args.mode, args.completion),
            (Mode::Rma, Some(Completion::Cntr))
        );
        assert_eq!(
            (args.wait, args.size, args.iterations),
            (Some(WaitBy::Fd), 4096, 5)
        );
        assert_eq!(args.timeout, Duration::from_millis(500));
        assert_eq!(args.auth_key, None);
        let Command::Pingpong(args) = parse("kfi pingpong --auth-key 0x10203").unwrap().command
        else {
            panic!("not pingpong");
        };
        assert_eq!(args.auth_key, Some(AuthKey::new([0, 1, 2, 3])));
        for line in [
            "kfi pingpong nobody",
            "kfi pingpong -m rdma",
            "kfi pingpong -s 2G",
            "kfi pingpong -i 0",
            "kfi pingpong --timeout 0",
            "kfi pingpong --auth-key 123456789",
            "kfi pingpong --auth-key key",
        ] {
            assert!(
                matches!(
                    parse(line),
                    Err(ErrorKind::ValueValidation | ErrorKind::InvalidValue)
                ),
                "{line}"
            );
        }
        assert_eq!(
            parse("kfi pingpong 10.0.0.1:99 --keep").unwrap_err(),
            ErrorKind::ArgumentConflict
        );
    }
}
