// SPDX-License-Identifier: GPL-2.0
//! Arguments of the commands that count: `kfi cntr`, `comp-cntr`, `flow`.

use std::time::Duration;

use clap::{
    ArgMatches, Command, Parser, Subcommand, ValueEnum,
    error::{Error, ErrorKind},
    parser::ValueSource,
};

use super::HostPort;
use crate::{cntr::Step, comp_cntr, flow::Rule, text};

/// Try a counter step by step
///
/// Opens a counter, does the steps in their order, and shows the counter's values after each.
/// Steps: add=N, set=N, adderr=N, seterr=N, read, wait=N (until the value reaches N), sleep=MS.
/// Another thread does a step with a time before it, such as 100ms:add=1, at that time, so that the
/// counter can change during a wait. Without steps the command does an example, with explanations.
#[derive(Debug, Parser)]
pub(crate) struct Cntr {
    #[command(subcommand)]
    pub(crate) command: Option<CntrCommand>,

    // A plain comment, because brackets are links in a doc comment.
    #[arg(value_name = "STEP", help = "Steps: [TIMEms:]NAME[=VALUE]")]
    pub(crate) steps: Vec<Step>,

    /// Link to use; without it, the first that is up, one on lo only if there is no other
    #[arg(short, long, value_name = "NAME")]
    pub(crate) link: Option<String>,

    /// Largest value; the next one is 0
    #[arg(short, long, value_name = "VALUE", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_value: Option<u64>,

    /// Longest time of a wait
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = text::parse_seconds)]
    pub(crate) timeout: Duration,
}

/// The arguments of `kfi cntr` itself, which `kfi cntr watch` does not use.
const OF_STEPS: &[&str] = &["steps", "link", "max_value", "timeout"];

impl Cntr {
    /// Refuses arguments of the steps before `watch`. `command` is that of the whole program.
    pub(super) fn check(command: &mut Command, matches: &ArgMatches) -> Result<(), Error> {
        let is_given = |id: &&&str| matches.value_source(id) == Some(ValueSource::CommandLine);
        if matches.subcommand().is_none() {
            return Ok(());
        }
        let Some(id) = OF_STEPS.iter().find(is_given) else {
            return Ok(());
        };
        let what = match *id {
            "steps" => "a counter that is watched has no steps".to_owned(),
            id => format!(
                "--{} is an option of the steps: write those of 'kfi cntr watch' behind it",
                id.replace('_', "-")
            ),
        };
        Err(match command.find_subcommand_mut("cntr") {
            Some(command) => command.error(ErrorKind::ArgumentConflict, what),
            None => Error::raw(ErrorKind::ArgumentConflict, what),
        })
    }
}

/// Try a completion counter of verbs step by step
///
/// Creates a completion counter, attaches it to an endpoint, does the steps in their order, and
/// shows both counts after each. Steps that change the counts: set=N, set-err=N, inc=N, inc-err=N.
/// Operations of the endpoint with itself: send=BYTES, rdma-read=BYTES, rdma-write=BYTES, and fail,
/// a write that is refused. read only shows the counts. overwrite=N writes to external memory.
/// Without steps the command does an example, with explanations.
#[derive(Debug, Parser)]
pub(crate) struct CompCntr {
    // A plain comment, because brackets are links in a doc comment.
    #[arg(value_name = "STEP", help = "Steps: NAME[=VALUE]")]
    pub(crate) steps: Vec<comp_cntr::Step>,

    /// Link to use; without it, the first that is up, one on lo only if there is no other
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

/// Count the packets that arrive at a datagram endpoint
///
/// Opens a datagram endpoint, makes a flow for each rule, and shows how many packets belong to each
/// flow, and their bytes from the BTH to the ICRC. The packets are only counted: nothing receives
/// them. A packet belongs to the first rule that it matches, in the order of priorities; rules of
/// equal priority are in the order of the command line. Needs CAP_NET_RAW.
///
/// A rule is a list of fields, separated by commas: src=IP[/BITS], dst=IP[/BITS], sport=N[/MASK]
/// (UDP source port), sqp=N[/MASK] (source QP), dqp=N[/MASK] (destination QP), op=N[/MASK] (opcode:
/// 0x64, and 0x65 with immediate data), ipv4, ipv6, any; prio=N (default 0; lower numbers come
/// first); continue (a packet of this rule can belong to later rules, too). Without a rule: any.
#[derive(Debug, Parser)]
pub(crate) struct Flow {
    // A plain comment, because brackets are links in a doc comment.
    #[arg(value_name = "RULE", help = "Rules: FIELD[=VALUE[/MASK]][,...]")]
    pub(crate) rules: Vec<Rule>,

    /// Link to use; without it, the one that has the own address; else the first that is up, one on
    /// lo only if there is no other
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

#[cfg(test)]
mod tests {
    use super::{super::tests::parse, *};
    use crate::args::Command as Kind;

    #[test]
    fn cntr_has_steps_or_a_command() {
        let cntr = |line: &str| match parse(line).unwrap().command {
            Kind::Cntr(cntr) => cntr,
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
            "kfi cntr --link roce0 watch",
            "kfi cntr --timeout 1 watch",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
        // Options of the whole program, in any place, and help.
        for line in ["kfi --json cntr watch", "kfi cntr --json watch -c 2"] {
            assert!(cntr(line).command.is_some(), "{line}");
        }
        assert_eq!(
            parse("kfi cntr --json watch -h").unwrap_err(),
            ErrorKind::DisplayHelp
        );
    }
}
