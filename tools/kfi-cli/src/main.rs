// SPDX-License-Identifier: GPL-2.0
//! The command `kfi`, which shows and uses the kfabric module.
//!
//! ```text
//! kfi info          the module, and the available endpoints (kfi_getinfo)
//! kfi link          links: the software device on a network interface
//! kfi pingpong      two programs exchange messages
//! kfi rping         rping, with that of rdma-core
//! kfi bench         short measurements between two threads
//! kfi cntr, cq      a counter or a completion queue, step by step
//! kfi cntr watch    the counters of programs, live
//! kfi comp-cntr     a completion counter of verbs, step by step
//! kfi flow          counts the packets that arrive at an endpoint
//! kfi trigger       an allreduce of deferred work
//! kfi top           live statistics
//! kfi completions   completions for a shell
//! ```
//!
//! [`args`] describes the command line; each command has a file of its own with
//! a `run` function, which writes to [`out::Out`] either text or, with
//! `--json`, documents whose keys are described in kfi(1).
//!
//! Exit status: 0; 1 the command failed ([`error::Error`]: the cause and what
//! to try, on standard error); 2 the command line is wrong. If the reader
//! closes the output, the command ends with 0 and without a message.

mod args;
mod bench;
mod cntr;
mod comp_cntr;
mod cq;
mod error;
mod flow;
mod holders;
mod info;
mod link;
#[cfg(test)]
mod man;
mod out;
mod pingpong;
mod rping;
mod screen;
mod table;
mod text;
mod top;
mod trigger;

use std::process::ExitCode;

use crate::{
    args::{Args, Command},
    error::Error,
    out::Out,
};

fn run(args: Args, out: &mut Out) -> Result<(), Error> {
    match args.command {
        Command::Info(args) => info::run(&args, out),
        Command::Link(args) => link::run(args.command.as_ref(), out),
        Command::Pingpong(args) => pingpong::run(&args, out),
        Command::Rping(args) => rping::run(&args, out),
        Command::Bench(args) => bench::run(&args, out),
        Command::Cntr(args) => cntr::run(&args, out),
        Command::CompCntr(args) => comp_cntr::run(&args, out),
        Command::Cq(args) => cq::run(&args, out),
        Command::Flow(args) => flow::run(&args, out),
        Command::Trigger(args) => trigger::run(&args, out),
        Command::Top(args) => top::run(&args, out),
        Command::Completions { shell } => out.text(&args::completions(shell)),
    }
}

fn main() -> ExitCode {
    let args = Args::of(std::env::args_os()).unwrap_or_else(|error| error.exit());
    let json = args.json;
    match run(args, &mut Out::stdout(json)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is_broken_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            error.report(json);
            ExitCode::FAILURE
        }
    }
}
