// SPDX-License-Identifier: GPL-2.0
//! The command line, from which help, shell completions and manual pages are generated.
//!
//! | file | the arguments of |
//! |---|---|
//! | [`objects`] | `kfi info`, `link`, `cq`, `top` |
//! | [`exchange`] | `kfi pingpong`, `rping`, `bench` |
//! | [`counters`] | `kfi cntr`, `comp-cntr`, `flow` |
//! | [`trigger`] | `kfi trigger` |
//! | [`address`] | any command with an address |

mod address;
mod counters;
mod exchange;
mod objects;
mod trigger;

use std::ffi::OsString;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

pub(crate) use self::{
    address::HostPort,
    counters::{Cntr, CntrCommand, CntrWatch, CompCntr, Flow, Unit},
    exchange::{
        Bench, Completion, MAX_COUNT, MAX_WINDOW, Measure, Mode, PORT, Pingpong, Rping, Verbs,
        WaitBy,
    },
    objects::{Cq, EpType, Format, Info, Link, LinkCommand, Top},
    trigger::{MAX_VECTOR, TRIGGER_PORT, Trigger},
};

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

impl Args {
    /// The arguments of a command line, whose first word is the program.
    pub(crate) fn of(
        line: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    ) -> Result<Self, clap::Error> {
        let mut command = Self::command();
        let mut matches = command.try_get_matches_from_mut(line)?;
        match matches.subcommand() {
            Some(("trigger", matches)) => Trigger::check(&mut command, matches)?,
            Some(("cntr", matches)) => Cntr::check(&mut command, matches)?,
            _ => {}
        }
        Self::from_arg_matches_mut(&mut matches)
    }
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

/// Completions for a shell.
pub(crate) fn completions(shell: clap_complete::Shell) -> String {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "kfi", &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use clap::error::ErrorKind;

    pub(super) fn parse(line: &str) -> Result<Args, ErrorKind> {
        Args::of(line.split_whitespace()).map_err(|error| error.kind())
    }

    #[test]
    fn command_line_definition_is_valid() {
        Args::command().debug_assert();
    }

    #[test]
    fn every_command_accepts_json() {
        for line in [
            "kfi --json info",
            "kfi info --json",
            "kfi link show --json",
            "kfi link --json",
            "kfi cntr --json watch",
            "kfi cntr watch --json",
            "kfi flow --json",
            "kfi top --json",
        ] {
            assert!(parse(line).unwrap().json, "{line}");
        }
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
            let error = Args::of(line.split_whitespace()).unwrap_err();
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
