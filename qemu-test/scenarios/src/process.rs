// SPDX-License-Identifier: GPL-2.0
//! Other processes of this program, which tests start in a role. A test and its process write lines
//! to each other.

use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Pid, Signal, kill_process},
};
use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
    time::Duration,
};

/// This program again, in a role (`ROLES` of the tests' modules), with pipes.
pub(crate) fn program(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("own path"));
    command
        .args(["--role", role])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command
}

/// The next line that the test writes to its process. The process calls it.
pub(crate) fn line() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("a line");
    line.trim().to_owned()
}

/// Another process of this program. Dropping this value kills the process.
pub(crate) struct Process {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Process {
    /// Starts a process in a role.
    pub(crate) fn in_role(role: &str) -> Self {
        Self::start(&mut program(role))
    }

    /// Starts a [`program`].
    pub(crate) fn start(program: &mut Command) -> Self {
        let mut child = program.spawn().expect("start a process");
        let lines = BufReader::new(child.stdout.take().expect("stdout"));
        Self { child, lines }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Writes a line to the process, which reads it with [`line()`].
    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().expect("stdin"), "{line}").expect("tell");
    }

    /// The next line that the process writes.
    pub(crate) fn read_line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("a line");
        line.trim().to_owned()
    }

    /// The next line that the process writes; `None` if it writes none within `limit`.
    pub(crate) fn line_within(&mut self, limit: Duration) -> Option<String> {
        if self.lines.buffer().is_empty() {
            let limit = limit.try_into().expect("a time");
            let mut fds = [PollFd::new(self.lines.get_ref(), PollFlags::IN)];
            if poll(&mut fds, Some(&limit)).expect("poll") == 0 {
                return None;
            }
        }
        // A process writes whole lines.
        Some(self.read_line())
    }

    /// Sends SIGKILL. The process may still be there when this returns.
    pub(crate) fn kill(&self) {
        kill_process(Pid::from_child(&self.child), Signal::KILL).expect("kill");
    }

    /// Whether the process has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("wait").is_some()
    }

    /// Closes the process's input, and waits until the process has ended.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().expect("wait")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
