// SPDX-License-Identifier: GPL-2.0
//! Runs the command `kfi` as a script would, and checks its results.
//!
//! Tests of the command begin with [`alone`] or [`with_link`], which make a network namespace for
//! the test and the programs that it starts.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, ChildStdout, Command, Stdio},
};

use rustix::thread::UnshareFlags;
use serde_json::Value;

use crate::raw::ip;

/// A network namespace for this test, with its loopback interface up, and a link on that.
pub(crate) fn alone() {
    // SAFETY: No descriptor is unshared, and the process has one thread.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.expect("unshare");
    ip("link set lo up");
}

/// As [`alone`], with the link roce0 on lo.
pub(crate) fn with_link() {
    alone();
    kfi("link add roce0 netdev lo").succeeds();
}

/// The results of a command.
pub(crate) struct Ended {
    line: String,
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    #[track_caller]
    pub(crate) fn with(self, code: i32) -> Self {
        let Self { line, out, err, .. } = &self;
        assert_eq!(self.code, Some(code), "kfi {line}\n{out}\n{err}");
        assert!(!err.contains("panicked"), "kfi {line}\n{err}");
        self
    }

    /// The command succeeded, and printed its output only.
    #[track_caller]
    pub(crate) fn succeeds(self) -> Self {
        let ended = self.with(0);
        assert_eq!(ended.err, "", "kfi {}", ended.line);
        ended
    }

    /// The command failed, with these texts in the cause and in the advice.
    #[track_caller]
    pub(crate) fn fails(self, cause: &str, help: &str) -> Self {
        let ended = self.with(1);
        let err = &ended.err;
        let line = |start: &str| {
            err.lines()
                .find(|line| line.starts_with(start))
                .unwrap_or("")
        };
        assert!(line("error: ").contains(cause), "{cause}: {err}");
        assert!(line("help: ").contains(help), "{help}: {err}");
        ended
    }

    /// Its one document.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        let documents = self.documents();
        assert_eq!(documents.len(), 1, "{}", self.out);
        documents.into_iter().next().expect("one")
    }

    #[track_caller]
    pub(crate) fn documents(&self) -> Vec<Value> {
        self.out.lines().map(parse).collect()
    }
}

#[track_caller]
pub(crate) fn parse(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// A command that has not started yet.
pub(crate) fn command(line: &str) -> Command {
    let mut command = Command::new("/bin/kfi");
    command
        .args(line.split_whitespace())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs a command to its end.
pub(crate) fn kfi(line: &str) -> Ended {
    let output = command(line).output().expect("start kfi");
    ended(line, output)
}

pub(crate) fn ended(line: &str, output: std::process::Output) -> Ended {
    Ended {
        line: line.to_owned(),
        code: output.status.code(),
        out: String::from_utf8(output.stdout).expect("text"),
        err: String::from_utf8(output.stderr).expect("text"),
    }
}

/// A server in the background.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) out: BufReader<ChildStdout>,
    pub(crate) address: String,
}

impl Server {
    /// A ping-pong server.
    pub(crate) fn start(options: &str) -> Self {
        Self::of(&format!("pingpong --json {options}"))
    }

    /// A server with this command line, which has `--json`.
    pub(crate) fn of(line: &str) -> Self {
        Self::run(command(line))
    }

    /// This command, which has `--json` and is a server.
    pub(crate) fn run(mut command: Command) -> Self {
        let mut child = command.spawn().expect("start the server");
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        out.read_line(&mut line).expect("read");
        let listening = parse(&line);
        assert_eq!(listening["event"], "listening");
        let address = listening["address"]
            .as_str()
            .expect("an address")
            .to_owned();
        Self {
            child,
            out,
            address,
        }
    }

    /// Its next document.
    pub(crate) fn document(&mut self) -> Value {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("read");
        parse(&line)
    }

    /// Its exit status and standard error.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let mut err = String::new();
        let mut pipe = self.child.stderr.take().expect("a pipe");
        pipe.read_to_string(&mut err).expect("read");
        (self.child.wait().expect("wait").code(), err)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
