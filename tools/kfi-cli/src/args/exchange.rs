// SPDX-License-Identifier: GPL-2.0
//! Arguments of the commands that exchange messages: `kfi pingpong`, `rping`, `bench`.

use std::{str::FromStr, time::Duration};

use clap::{Parser, ValueEnum};
use kfi::AuthKey;
use serde::{Deserialize, Serialize};

use super::HostPort;
use crate::{rping, text};

/// Port of a ping-pong server.
pub(crate) const PORT: u16 = 7471;

/// Largest number of messages, and of those before them.
pub(crate) const MAX_COUNT: u64 = 10_000_000;

/// Largest number of messages under way.
pub(crate) const MAX_WINDOW: u32 = 256;

/// Exchange messages with another program
///
/// Without an address, the command is the server: it prints its own address, waits for a client,
/// and does what the client asks for. With a server's address, it is the client: it sends as many
/// messages as asked, each after the answer to the one before, and prints the latency of one way.
/// With --window it sends many at a time, without answers, and prints bandwidth and rate. With a
/// list or a range of sizes it measures each of them.
#[derive(Clone, Debug, Parser)]
pub(crate) struct Pingpong {
    /// Address or name of the server (port 7471 if none is given); without it, be the server
    #[arg(value_name = "HOST[:PORT]")]
    pub(crate) server: Option<HostPort>,

    /// Link to use; without it, the one that has the own address, or by which the routes lead to
    /// the server; else the first that is up, one on lo only if there is no other
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

    /// Bytes of a message: 8, 4K, 1M, ...; a list (8,64,4K) and a range (8..1M, by powers of two)
    /// are measured size by size (client)
    #[arg(short, long, value_name = "BYTES[,BYTES|..BYTES]", default_value = "8")]
    pub(crate) size: Sizes,

    /// Longest message that a client may ask for (server)
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = text::parse_size)]
    pub(crate) max_size: u64,

    /// Messages each way (client)
    #[arg(
        short,
        long,
        value_name = "COUNT",
        default_value_t = 1000,
        value_parser = clap::value_parser!(u64).range(1..=MAX_COUNT)
    )]
    pub(crate) iterations: u64,

    /// Messages each way before the measured ones (client)
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 10,
        value_parser = clap::value_parser!(u64).range(..=MAX_COUNT)
    )]
    pub(crate) warmup: u64,

    /// Send without answers, this many messages at a time, 1 to 256: measures bandwidth and rate
    /// (client)
    #[arg(
        long,
        value_name = "COUNT",
        conflicts_with_all = ["completion", "wait", "trace", "verbs"],
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_WINDOW))
    )]
    pub(crate) window: Option<u32>,

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

    /// Exchange messages with ibv_rc_pingpong or ibv_ud_pingpong; they need the index of a GID (-g),
    /// and both ends the same size (-s there, too), number of iterations (-n there), and with rc
    /// the same path MTU (-m there)
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
    /// Address or name of the server (port 7174 if none is given); without it, be the server
    #[arg(value_name = "HOST[:PORT]")]
    pub(crate) server: Option<HostPort>,

    /// Link to use; without it, the one that has the own address, or by which the routes lead to
    /// the server; else the first that is up, one on lo only if there is no other
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

    /// Link to use; without it, the first that is up, one on lo only if there is no other
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

/// Sizes of messages, in the order in which they are measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sizes(pub(crate) Vec<u64>);

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((first, last)) = text.split_once("..") {
            let (first, last) = (text::parse_size(first)?, text::parse_size(last)?);
            if first > last {
                return Err("the first size of a range is the smaller one".to_owned());
            }
            // The powers of two between the two, which may be other numbers.
            let between = (0..u64::BITS).map(|shift| 1 << shift);
            let between = between.filter(|size| first < *size && *size < last);
            let mut sizes = vec![first];
            sizes.extend(between);
            sizes.extend((last > first).then_some(last));
            return Ok(Self(sizes));
        }
        let sizes = text.split(',').map(text::parse_size);
        Ok(Self(sizes.collect::<Result<_, _>>()?))
    }
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
            (Some(WaitBy::Fd), Sizes(vec![4096]), 5)
        );
        assert_eq!(args.timeout, Duration::from_millis(500));
        assert_eq!(args.auth_key, None);
        let Command::Pingpong(args) = parse("kfi pingpong --auth-key 0x10203").unwrap().command
        else {
            panic!("not pingpong");
        };
        assert_eq!(args.auth_key, Some(AuthKey::new([0, 1, 2, 3])));
        for line in [
            "kfi pingpong no/body",
            "kfi pingpong -m rdma",
            "kfi pingpong --window 0",
            "kfi pingpong --window 257",
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
        for line in [
            "kfi pingpong 10.0.0.1:99 --keep",
            "kfi pingpong 10.0.0.1 --window 8 --trace",
            "kfi pingpong 10.0.0.1 --window 8 --verbs rc",
        ] {
            assert_eq!(
                parse(line).unwrap_err(),
                ErrorKind::ArgumentConflict,
                "{line}"
            );
        }
    }

    #[test]
    fn sizes_are_a_number_a_list_or_a_range() {
        let sizes = |text: &str| text.parse::<Sizes>().map(|sizes| sizes.0);
        assert_eq!(sizes("4K"), Ok(vec![4096]));
        assert_eq!(sizes("8,1,64K"), Ok(vec![8, 1, 65536]));
        assert_eq!(sizes("8..64"), Ok(vec![8, 16, 32, 64]));
        assert_eq!(sizes("0..3"), Ok(vec![0, 1, 2, 3]));
        assert_eq!(sizes("5..20"), Ok(vec![5, 8, 16, 20]));
        assert_eq!(sizes("7..7"), Ok(vec![7]));
        for wrong in ["", "8,", "8..", "..8", "64..8", "8..2G", "8...9"] {
            assert!(sizes(wrong).is_err(), "{wrong}");
        }
    }
}
