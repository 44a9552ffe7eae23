// SPDX-License-Identifier: GPL-2.0
//! Arguments of `kfi trigger`, whose two roles have different ones.

use std::time::Duration;

use clap::{
    ArgMatches, Command, Parser,
    builder::RangedU64ValueParser,
    error::{Error, ErrorKind},
    parser::ValueSource,
};

use super::HostPort;
use crate::text;

/// Port of a server of `kfi trigger`.
pub(crate) const TRIGGER_PORT: u16 = 7472;

/// Run an allreduce that needs no program
///
/// The endpoints of a ring add up a vector: each receives partial sums, adds its own input, sends
/// the sum on. All of these operations are queued before the start as deferred work. One addition
/// to a counter starts them, and the program sleeps until all endpoints have the sum, which it
/// checks. One more run shows what started when. Without an address all endpoints are here; with
/// the address of another host, where `kfi trigger --serve` runs, every second one is there.
#[derive(Clone, Debug, Parser)]
pub(crate) struct Trigger {
    /// Address or name of the other host (port 7472 if none is given)
    #[arg(value_name = "HOST[:PORT]", conflicts_with = "serve")]
    pub(crate) server: Option<HostPort>,

    /// Be the other host: wait for a client
    #[arg(long)]
    pub(crate) serve: bool,

    /// Serve one client after another (with --serve)
    #[arg(short, long, requires = "serve")]
    pub(crate) keep: bool,

    /// Link to use; without it, the one that has the own address, or by which the routes lead to
    /// the other host; else the first that is up, one on lo only if there is no other
    #[arg(short, long, value_name = "NAME")]
    pub(crate) link: Option<String>,

    /// Endpoints of the ring, on both hosts together: 2 to 256
    #[arg(
        short = 'n',
        long,
        value_name = "COUNT",
        default_value_t = 8,
        value_parser = RangedU64ValueParser::<usize>::new().range(2..=256)
    )]
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

    /// Also measure the same operations, posted by programs that read completions, and without
    /// those for the sums, which the programs do
    #[arg(short, long)]
    pub(crate) compare: bool,

    /// Show the operations and what starts them, and run nothing
    #[arg(long)]
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

/// The arguments of a client, which a server does not use.
const OF_CLIENT: &[&str] = &[
    "endpoints",
    "size",
    "iterations",
    "compare",
    "show_plan",
    "svg",
];

impl Trigger {
    /// Refuses the arguments of a client beside `--serve`: the client chooses, and the server does
    /// what it asks for. `command` is that of the whole program.
    pub(super) fn check(command: &mut Command, matches: &ArgMatches) -> Result<(), Error> {
        let is_given = |id: &&&str| matches.value_source(id) == Some(ValueSource::CommandLine);
        if !matches.get_flag("serve") {
            return Ok(());
        }
        let Some(id) = OF_CLIENT.iter().find(is_given) else {
            return Ok(());
        };
        let option = id.replace('_', "-");
        let what = format!(
            "--{option} is an option of the client: give it to 'kfi trigger HOST[:PORT]' on the \
             other host, not to 'kfi trigger --serve'"
        );
        Err(match command.find_subcommand_mut("trigger") {
            Some(command) => command.error(ErrorKind::ArgumentConflict, what),
            None => Error::raw(ErrorKind::ArgumentConflict, what),
        })
    }
}

/// The largest vector of `kfi trigger`; each endpoint has three of them.
pub(crate) const MAX_VECTOR: u64 = 16 << 20;

fn parse_vector(text: &str) -> Result<u64, String> {
    let bounds = format!("a multiple of 8, at most {}", text::bytes(MAX_VECTOR));
    match text::parse_size(text) {
        Ok(size) if size % 8 == 0 && (8..=MAX_VECTOR).contains(&size) => Ok(size),
        Ok(_) => Err(bounds),
        Err(error) => Err(format!("{error}; the size is {bounds}")),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::parse, *};
    use crate::args::{Args, Command as Kind};

    #[test]
    fn trigger_has_two_roles() {
        let trigger = |line: &str| match parse(line).unwrap().command {
            Kind::Trigger(trigger) => trigger,
            _ => panic!("not trigger"),
        };
        let here = trigger("kfi trigger -n 16 -s 64K --compare --svg x.svg -i 3");
        assert_eq!((here.endpoints, here.size, here.iterations), (16, 65536, 3));
        assert!(here.compare && here.server.is_none() && !here.serve);
        let client = trigger("kfi trigger 10.0.0.1");
        let server = client.server.map(|server| server.or_port(TRIGGER_PORT));
        assert_eq!(server.unwrap().unwrap(), "10.0.0.1:7472".parse().unwrap());
        assert!(trigger("kfi trigger --serve --keep").keep);
        for line in [
            "kfi trigger 10.0.0.1 --serve",
            "kfi trigger --keep",
            "kfi trigger --serve --show-plan",
            "kfi trigger -s 12",
            "kfi trigger -s 0",
            "kfi trigger -s 32M",
            "kfi trigger -i 0",
            "kfi trigger -n 0",
            "kfi trigger -n 1",
            "kfi trigger -n 257",
            "kfi trigger 10.0.0.1 -n 1",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_number_of_endpoints_out_of_range_is_a_usage_error() {
        let error = Args::of(["kfi", "trigger", "-n", "1"]).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("--endpoints") && text.contains("2..=256"),
            "{text}"
        );
        assert_eq!(error.exit_code(), 2);
        for count in ["2", "256"] {
            assert!(Args::of(["kfi", "trigger", "-n", count]).is_ok());
        }
    }

    #[test]
    fn a_server_refuses_the_options_of_a_client() {
        for (given, option) in [
            ("-n 8", "--endpoints"),
            ("-s 8", "--size"),
            ("-i 10", "--iterations"),
            ("-c", "--compare"),
            ("--show-plan", "--show-plan"),
            ("--svg x.svg", "--svg"),
        ] {
            let line = format!("kfi trigger --serve {given}");
            let error = Args::of(line.split_whitespace()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ArgumentConflict, "{line}");
            assert_eq!(error.exit_code(), 2);
            let text = error.to_string();
            let what = format!("{option} is an option of the client: give it to 'kfi trigger HOST");
            assert!(
                text.contains(&what) && text.contains("Usage: kfi trigger"),
                "{text}"
            );
        }
        // Any prefix of the command is the command.
        assert!(Args::of(["kfi", "tr", "--serve", "-n", "8"]).is_err());
        let own = "kfi trigger --serve --keep -l roce0 -b 10.0.0.1 --timeout 3 --json";
        assert!(Args::of(own.split_whitespace()).is_ok());
    }
}
