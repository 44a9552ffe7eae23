// SPDX-License-Identifier: GPL-2.0
//! The command line, from which help, shell completions and manual pages are generated.

use std::{net::SocketAddr, str::FromStr, time::Duration};

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::{cntr::Step, comp_cntr, flow::Rule, rping, text};

/// Port of a ping-pong server.
pub(crate) const PORT: u16 = 7471;

/// Port of a server of `kfi trigger`.
pub(crate) const TRIGGER_PORT: u16 = 7472;

/// Endpoints, completion queues and counters of the kfabric module
///
/// kfi shows and sets up the software RDMA device of the kfabric module, and lets two programs
/// exchange data through it. No link, no device: begin with `kfi link add roce0 netdev lo`.
#[derive(Debug, Parser)]
#[command(
    name = "kfi",
    version,
    infer_subcommands = true,
    arg_required_else_help = true
)]
pub(crate) struct Args {
    /// Write JSON, one document on each line, also for errors
    #[arg(long, global = true)]
    pub(crate) json: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Info(Info),
    Link(Link),
    Pingpong(Pingpong),
    Rping(Rping),
    Bench(Bench),
    Cntr(Cntr),
    CompCntr(CompCntr),
    Cq(Cq),
    Flow(Flow),
    Trigger(Trigger),
    Top(Top),
    /// Write a shell's completions to standard output
    ///
    /// For bash: `kfi completions bash > /etc/bash_completion.d/kfi`.
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Show the module and the available endpoints
///
/// The version and the limits of the module, and one entry for each link, endpoint type and address
/// format that matches the hints (kfi_getinfo). With hints, the command fails if nothing matches.
#[derive(Debug, Parser)]
pub(crate) struct Info {
    /// Show all attributes
    #[arg(short, long)]
    pub(crate) verbose: bool,

    /// Hint: only this link
    #[arg(short, long, value_name = "NAME")]
    pub(crate) link: Option<String>,

    /// Hint: endpoint type
    #[arg(short, long, value_name = "TYPE")]
    pub(crate) ep_type: Option<EpType>,

    /// Hint: capabilities, separated by commas: msg, tagged, rma, source, ...
    #[arg(short, long, value_name = "CAPS", value_parser = parse_caps)]
    pub(crate) caps: Option<kfi::Caps>,

    /// Hint: numeric address of the peer
    #[arg(short, long, value_name = "ADDRESS")]
    pub(crate) node: Option<String>,

    /// Hint: port of the peer
    #[arg(short = 'p', long, value_name = "PORT")]
    pub(crate) service: Option<String>,

    /// The address and port of the hints are those of this side, not of the peer
    #[arg(long)]
    pub(crate) source: bool,
}

/// Type of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EpType {
    /// Connected, reliable
    Msg,
    /// Unconnected, unreliable
    Dgram,
    /// Unconnected, reliable
    Rdm,
}

/// Add, remove and show links
///
/// A link is the software device on one network interface of this network namespace. Without a
/// link the module opens nothing to the network.
#[derive(Debug, Parser)]
#[command(arg_required_else_help = true)]
pub(crate) struct Link {
    #[command(subcommand)]
    pub(crate) command: LinkCommand,
}

/// Operations on links.
#[derive(Debug, Subcommand)]
pub(crate) enum LinkCommand {
    /// Add a link on a network interface (needs CAP_NET_ADMIN)
    ///
    /// A link on lo serves a single machine. An interface has one link at most.
    #[command(override_usage = "kfi link add [OPTIONS] <NAME> netdev <INTERFACE>")]
    Add {
        /// Name of the new link: up to 15 printable characters
        name: String,
        /// The word netdev
        #[arg(value_name = "netdev", value_parser = ["netdev"], hide_possible_values = true)]
        keyword: String,
        /// Network interface
        #[arg(value_name = "INTERFACE")]
        netdev: String,
    },
    /// Remove a link that no program has open (needs CAP_NET_ADMIN)
    Del {
        /// Name of the link
        name: String,
    },
    /// Show one link, or all of this network namespace
    Show {
        /// Name of the link
        name: Option<String>,
        /// Also show operations, bytes, and packet statistics
        #[arg(short, long)]
        stats: bool,
    },
}

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
        conflicts_with_all = ["mode", "completion", "wait", "trace"]
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

macro_rules! by_name {
    ($($kind:ty)*) => {$(
        impl std::fmt::Display for $kind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                // All of them have a name.
                let value = self.to_possible_value();
                f.pad(value.as_ref().map_or("", |value| value.get_name()))
            }
        }
    )*};
}

by_name!(Mode Completion WaitBy Measure Verbs Unit);

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

/// Try a counter step by step
///
/// Opens a counter, does the steps in their order, and shows the counter's values after each.
/// Steps: add=N, set=N, adderr=N, seterr=N, read, wait=N (until the value reaches N), sleep=MS.
/// Another thread does a step with a time before it, such as 100ms:add=1, at that time, so that the
/// counter can change during a wait. Without steps the command does an example, with explanations.
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Cntr {
    #[command(subcommand)]
    pub(crate) command: Option<CntrCommand>,

    // A plain comment, because brackets are links in a doc comment.
    #[arg(value_name = "STEP", help = "Steps: [TIMEms:]NAME[=VALUE]")]
    pub(crate) steps: Vec<Step>,

    /// Link to use; without it, the first that is up
    #[arg(short, long, value_name = "NAME")]
    pub(crate) link: Option<String>,

    /// Largest value; the next one is 0
    #[arg(short, long, value_name = "VALUE", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_value: Option<u64>,

    /// Longest time of a wait
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = text::parse_seconds)]
    pub(crate) timeout: Duration,
}

/// Try a completion counter of verbs step by step
///
/// Creates a completion counter, attaches it to an endpoint, does the steps in their order, and
/// shows both counts after each. Steps that change the counts: set=N, set-err=N, inc=N, inc-err=N.
/// Operations of the endpoint with itself: send=BYTES, rdma-read=BYTES, rdma-write=BYTES, and fail, a
/// write that is refused. read only shows the counts. overwrite=N writes to external memory. Without
/// steps the command does an example, with explanations.
#[derive(Debug, Parser)]
pub(crate) struct CompCntr {
    // A plain comment, because brackets are links in a doc comment.
    #[arg(value_name = "STEP", help = "Steps: NAME[=VALUE]")]
    pub(crate) steps: Vec<comp_cntr::Step>,

    /// Link to use; without it, the first that is up
    #[arg(short, long, value_name = "NAME")]
    pub(crate) link: Option<String>,

    /// Unit of the completion count
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) unit: Unit,

    /// Operations to count, separated by commas: send, recv, rdma_read, remote_rdma_read,
    /// rdma_write, remote_rdma_write; without it, all
    #[arg(short, long, value_name = "OPS", value_parser = comp_cntr::parse_ops)]
    pub(crate) ops: Option<kfi::CompCntrOps>,

    /// Keep copies of the counts in memory of the command, and show them too
    #[arg(short, long)]
    pub(crate) external: bool,
}

/// Unit of a completion counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Unit {
    /// Work requests
    #[default]
    Wrs,
    /// Bytes of work requests
    Bytes,
}

/// Commands on counters of programs.
#[derive(Debug, Subcommand)]
pub(crate) enum CntrCommand {
    Watch(CntrWatch),
}

/// Watch the counters of programs
///
/// Shows value, errors, rate and the rates of the last samples as bars: for the counters of all
/// programs with CAP_NET_ADMIN, else for one's own. A sample in which the error value grew has an
/// exclamation mark. On a terminal the counters fill the screen (q quits, arrows scroll, space
/// pauses); without one, each sample adds a line for each counter.
#[derive(Debug, Parser)]
pub(crate) struct CntrWatch {
    /// Only counters of this process
    #[arg(short, long)]
    pub(crate) pid: Option<u32>,

    /// Only counters with this handle (as kfi top shows it)
    #[arg(long)]
    pub(crate) handle: Option<u32>,

    /// Only counters on this link
    #[arg(short, long, value_name = "NAME")]
    pub(crate) link: Option<String>,

    /// Time between two samples
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = text::parse_seconds)]
    pub(crate) interval: Duration,

    /// End after this number of samples
    #[arg(short, long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
}

/// Show completions in every format
///
/// Opens an endpoint, posts operations from it to itself (a message, a tagged message with remote
/// CQ data, a write, and a message that is too long for its receive), and shows the entries that a
/// completion queue of each format gives for them.
#[derive(Debug, Parser)]
pub(crate) struct Cq {
    /// Only this format
    #[arg(short, long, value_enum)]
    pub(crate) format: Vec<Format>,

    /// Link to use; without it, the first that is up
    #[arg(short, long, value_name = "NAME")]
    pub(crate) link: Option<String>,
}

/// Format of the entries of a CQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// The operation's context
    Context,
    /// The context, flags and length
    Msg,
    /// The above, buffer and remote CQ data
    Data,
    /// And the tag
    Tagged,
}

/// Run an allreduce that needs no program
///
/// The endpoints of a ring add up a vector: each receives partial sums, adds its own input, sends
/// the sum on. All of these operations are queued before the start as deferred work. One addition
/// to a counter starts them, and the program sleeps until all endpoints have the sum, which it
/// checks. One more run shows what started when. Without an address all endpoints are here; with
/// the address of another host, where `kfi trigger --serve` runs, every second one is there.
#[derive(Clone, Debug, Parser)]
pub(crate) struct Trigger {
    /// Address of the other host (port 7472 if none is given)
    #[arg(value_name = "HOST[:PORT]", conflicts_with = "serve")]
    pub(crate) server: Option<HostPort>,

    /// Be the other host: wait for a client
    #[arg(long)]
    pub(crate) serve: bool,

    /// Serve one client after another (with --serve)
    #[arg(short, long, requires = "serve")]
    pub(crate) keep: bool,

    /// Link to use; without it, the link that has the address, else the first that is up
    #[arg(short, long, value_name = "NAME")]
    pub(crate) link: Option<String>,

    /// Endpoints of the ring, on both hosts together: 2 to 256
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 8)]
    pub(crate) endpoints: usize,

    /// Bytes of the vector, a multiple of 8, at most 16M: 8, 64K, 1M, ...
    #[arg(short, long, value_name = "BYTES", default_value = "8", value_parser = parse_vector)]
    pub(crate) size: u64,

    /// Measured runs
    #[arg(
        short,
        long,
        value_name = "COUNT",
        default_value_t = 10,
        value_parser = clap::value_parser!(u64).range(1..=100_000)
    )]
    pub(crate) iterations: u64,

    /// Also measure the same operations, posted by programs that read completions, and without those
    /// for the sums, which the programs do
    #[arg(short, long)]
    pub(crate) compare: bool,

    /// Show the operations and what starts them, and run nothing
    #[arg(long, conflicts_with = "serve")]
    pub(crate) show_plan: bool,

    /// Draw what started when into this file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<std::path::PathBuf>,

    /// Own address; the default port of a server is 7472
    #[arg(short, long, value_name = "HOST[:PORT]")]
    pub(crate) bind: Option<HostPort>,

    /// Give up when the other host is silent, or a run not over, for this long
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = text::parse_seconds)]
    pub(crate) timeout: Duration,
}

/// Count the packets that arrive at a datagram endpoint
///
/// Opens a datagram endpoint, makes a flow for each rule, and shows how many packets belong to each
/// flow, and their bytes from the BTH to the ICRC. The packets are only counted: nothing receives
/// them. A packet belongs to the first rule that it matches, in the order of priorities; rules of
/// equal priority are in the order of the command line. Needs CAP_NET_RAW.
///
/// A rule is a list of fields, separated by commas: src=IP[/BITS], dst=IP[/BITS], sport=N[/MASK] (UDP
/// source port), sqp=N[/MASK] (source QP), dqp=N[/MASK] (destination QP), op=N[/MASK] (opcode: 0x64,
/// and 0x65 with immediate data), ipv4, ipv6, any; prio=N (default 0; lower numbers come first);
/// continue (a packet of this rule can belong to later rules, too). Without a rule: any.
#[derive(Debug, Parser)]
pub(crate) struct Flow {
    // A plain comment, because brackets are links in a doc comment.
    #[arg(value_name = "RULE", help = "Rules: FIELD[=VALUE[/MASK]][,...]")]
    pub(crate) rules: Vec<Rule>,

    /// Link to use; without it, the link that has the address, else the first that is up
    #[arg(short, long, value_name = "NAME")]
    pub(crate) link: Option<String>,

    /// Own address; any port by default
    #[arg(short, long, value_name = "HOST[:PORT]")]
    pub(crate) bind: Option<HostPort>,

    /// Send this many datagrams of 64 bytes to the endpoint, every second one with immediate data
    #[arg(
        short,
        long,
        value_name = "COUNT",
        default_value_t = 0,
        value_parser = clap::value_parser!(u64).range(..=10_000_000)
    )]
    pub(crate) send: u64,

    /// Time between two updates
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = text::parse_seconds)]
    pub(crate) interval: Duration,

    /// End after this time; without it, only a signal ends the command
    #[arg(short, long, value_name = "SECONDS", value_parser = text::parse_seconds)]
    pub(crate) time: Option<Duration>,
}

/// Watch links, endpoints, completion queues, counters of all kinds, and flows
///
/// Shows the statistics of this network namespace: of all programs with CAP_NET_ADMIN, else of
/// one's own. On a terminal it fills the screen (q quits, arrows scroll, space pauses); without
/// one, or with --once, it prints tables.
#[derive(Debug, Parser)]
pub(crate) struct Top {
    /// Print once and exit
    #[arg(short = '1', long)]
    pub(crate) once: bool,

    /// Time between two updates
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = text::parse_seconds)]
    pub(crate) interval: Duration,
}

/// An address with an optional port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostPort {
    addr: SocketAddr,
    has_port: bool,
}

impl HostPort {
    /// The same with `port` if it has none.
    pub(crate) fn or_port(self, port: u16) -> SocketAddr {
        let mut addr = self.addr;
        if !self.has_port {
            addr.set_port(port);
        }
        addr
    }
}

impl FromStr for HostPort {
    type Err = kfi::AddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self {
            addr: kfi::parse_address(text)?,
            has_port: text.parse::<SocketAddr>().is_ok(),
        })
    }
}

fn parse_rping_size(text: &str) -> Result<u64, String> {
    match text::parse_size(text)? {
        size @ rping::MIN_SIZE..=rping::MAX_SIZE => Ok(size),
        _ => Err(format!("{} to {}", rping::MIN_SIZE, rping::MAX_SIZE)),
    }
}

/// The largest vector of `kfi trigger`; each endpoint has three of them.
const MAX_VECTOR: u64 = 16 << 20;

fn parse_vector(text: &str) -> Result<u64, String> {
    let bounds = format!("a multiple of 8, at most {}", text::bytes(MAX_VECTOR));
    match text::parse_size(text) {
        Ok(size) if size % 8 == 0 && (8..=MAX_VECTOR).contains(&size) => Ok(size),
        Ok(_) => Err(bounds),
        Err(error) => Err(format!("{error}; the size is {bounds}")),
    }
}

fn parse_mtu(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(mtu @ (256 | 512 | 1024 | 2048 | 4096)) => Ok(mtu),
        _ => Err("there are 256, 512, 1024, 2048 and 4096".to_owned()),
    }
}

fn parse_caps(text: &str) -> Result<kfi::Caps, String> {
    text.split(',').try_fold(kfi::Caps::empty(), |caps, name| {
        let name = name.trim().to_uppercase();
        match kfi::Caps::from_name(name.strip_prefix("KFI_").unwrap_or(&name)) {
            Some(cap) => Ok(caps | cap),
            None => {
                let all: Vec<String> = kfi::Caps::all()
                    .iter_names()
                    .map(|(name, _)| name.to_lowercase())
                    .collect();
                Err(format!(
                    "no capability {name:?}; there are {}",
                    all.join(", ")
                ))
            }
        }
    })
}

/// Completions for a shell.
pub(crate) fn completions(shell: clap_complete::Shell) -> String {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "kfi", &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::error::ErrorKind;

    fn parse(line: &str) -> Result<Args, ErrorKind> {
        Args::try_parse_from(line.split_whitespace()).map_err(|error| error.kind())
    }

    #[test]
    fn command_line_definition_is_valid() {
        Args::command().debug_assert();
    }

    #[test]
    fn link_add_wants_netdev() {
        let Command::Link(link) = parse("kfi link add roce0 netdev lo").unwrap().command else {
            panic!("not link");
        };
        let LinkCommand::Add { name, netdev, .. } = link.command else {
            panic!("not add");
        };
        assert_eq!((&*name, &*netdev), ("roce0", "lo"));
        assert_eq!(
            parse("kfi link add roce0 device lo").unwrap_err(),
            ErrorKind::InvalidValue
        );
        for line in ["kfi link add roce0 netdev", "kfi link add", "kfi link del"] {
            assert_eq!(
                parse(line).unwrap_err(),
                ErrorKind::MissingRequiredArgument,
                "{line}"
            );
        }
    }

    #[test]
    fn every_command_accepts_json() {
        for line in [
            "kfi --json info",
            "kfi info --json",
            "kfi link show --json",
            "kfi flow --json",
            "kfi top --json",
        ] {
            assert!(parse(line).unwrap().json, "{line}");
        }
    }

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
        for line in [
            "kfi pingpong nobody",
            "kfi pingpong -m rdma",
            "kfi pingpong -s 2G",
            "kfi pingpong -i 0",
            "kfi pingpong --timeout 0",
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

    #[test]
    fn a_missing_port_gets_the_default() {
        for (text, addr) in [
            ("10.0.0.1", "10.0.0.1:7471"),
            ("::1", "[::1]:7471"),
            ("[::1]", "[::1]:7471"),
            ("[::1]:80", "[::1]:80"),
            ("10.0.0.1:0", "10.0.0.1:0"),
            ("[fe80::1%3]", "[fe80::1%3]:7471"),
        ] {
            let address: HostPort = text.parse().unwrap();
            assert_eq!(address.or_port(PORT), addr.parse().unwrap(), "{text}");
        }
        assert!("here:1".parse::<HostPort>().is_err());
    }

    #[test]
    fn cntr_has_steps_or_a_command() {
        let cntr = |line: &str| match parse(line).unwrap().command {
            Command::Cntr(cntr) => cntr,
            _ => panic!("not cntr"),
        };
        let steps = cntr("kfi cntr wait=2 100ms:add=2");
        assert!(steps.command.is_none() && steps.steps.len() == 2);
        let watch = cntr("kfi cntr watch --pid 7 --handle 3 -l roce0 -i 0.1 -c 5");
        let Some(CntrCommand::Watch(watch)) = watch.command else {
            panic!("not watch");
        };
        assert_eq!(
            (watch.pid, watch.handle, watch.count),
            (Some(7), Some(3), Some(5))
        );
        assert_eq!(watch.interval, Duration::from_millis(100));
        for line in [
            "kfi cntr watch add=1",
            "kfi cntr add=1 watch",
            "kfi cntr watch -c 0",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn trigger_has_two_roles() {
        let trigger = |line: &str| match parse(line).unwrap().command {
            Command::Trigger(trigger) => trigger,
            _ => panic!("not trigger"),
        };
        let here = trigger("kfi trigger -n 16 -s 64K --compare --svg x.svg -i 3");
        assert_eq!((here.endpoints, here.size, here.iterations), (16, 65536, 3));
        assert!(here.compare && here.server.is_none() && !here.serve);
        let client = trigger("kfi trigger 10.0.0.1");
        let server = client.server.map(|server| server.or_port(TRIGGER_PORT));
        assert_eq!(server, "10.0.0.1:7472".parse().ok());
        assert!(trigger("kfi trigger --serve --keep").keep);
        for line in [
            "kfi trigger 10.0.0.1 --serve",
            "kfi trigger --keep",
            "kfi trigger --serve --show-plan",
            "kfi trigger -s 12",
            "kfi trigger -s 0",
            "kfi trigger -s 32M",
            "kfi trigger -i 0",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn capabilities_are_parsed() {
        use kfi::Caps;
        assert_eq!(parse_caps("msg,KFI_RMA"), Ok(Caps::MSG | Caps::RMA));
        assert!(parse_caps("msg,none").unwrap_err().contains("tagged"));
    }

    #[test]
    fn unknown_arguments_are_usage_errors() {
        for line in [
            "kfi nothing",
            "kfi info --nothing",
            "kfi cntr jump=3",
            "kfi flow jump=3",
            "kfi bench speed",
        ] {
            let error = Args::try_parse_from(line.split_whitespace()).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn shell_completions_name_the_commands() {
        use clap_complete::Shell;
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let text = completions(shell);
            for word in ["pingpong", "json", "sread", "completions"] {
                assert!(text.contains(word), "{shell}: {word}");
            }
        }
    }
}
