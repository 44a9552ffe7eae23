// SPDX-License-Identifier: GPL-2.0
//! The programs of perftest, the usual measurements of RDMA, between two devices of one driver.
//!
//! They come from the toolchain root, which the guest has at /debian. A program runs as the server
//! on the far host and as the client on the near one, whose table has the result.

use super::hosts::{self, Driver, Host};
use crate::{Result, count::Clock};
use std::{
    process::{Child, Stdio},
    time::{Duration, Instant},
};

/// The TCP port over which the programs find each other.
const PORT: u16 = 18515;

/// Longest time until a server listens.
const SOON: Duration = Duration::from_secs(20);

/// One of the programs, and its options.
#[derive(Clone, Copy)]
pub(crate) struct Program {
    /// Whose devices it uses.
    pub(crate) driver: Driver,
    /// `ib_send_lat`
    pub(crate) name: &'static str,
    /// Options for both sides.
    pub(crate) options: &'static str,
    /// Bytes of an operation, and number of operations.
    pub(crate) size: usize,
    pub(crate) count: u64,
    /// Whether it may poll, or sleeps until completions arrive.
    pub(crate) clock: Clock,
}

impl Program {
    fn on(&self, host: Host) -> Result<std::process::Command> {
        let gid = hosts::gid_index(host.device(self.driver), host.ip())?.to_string();
        let (size, count) = (self.size.to_string(), self.count.to_string());
        let cpu = host.cpu().to_string();
        let mut words = vec![
            "chroot",
            "/debian",
            "taskset",
            "-c",
            &cpu,
            self.name,
            "-F",
            "-d",
            host.device(self.driver),
            "-x",
            &gid,
            "-s",
            &size,
            "-n",
            &count,
        ];
        words.extend(self.options.split_whitespace());
        if self.clock == Clock::Instructions {
            words.push("--events");
        }
        let far = Host::Far.ip().to_string();
        if host == Host::Near {
            words.push(&far);
        }
        let mut command = host.command(&words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(command)
    }

    /// Runs it; returns the row of the client's table.
    fn run(&self) -> Result<Vec<f64>> {
        let server = Server(self.on(Host::Far)?.spawn()?);
        server.wait_until_it_listens()?;
        let output = self.on(Host::Near)?.output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let mut lines = text
            .lines()
            .skip_while(|line| !line.trim().starts_with("#bytes"));
        let row: Option<Vec<f64>> = lines.nth(1).and_then(|line| {
            line.split_whitespace()
                .map(|word| word.parse().ok())
                .collect()
        });
        match row {
            Some(row) if output.status.success() => Ok(row),
            _ => Err(format!(
                "{}: {}\n{text}{}",
                self.name,
                output.status,
                String::from_utf8_lossy(&output.stderr)
            )
            .into()),
        }
    }

    fn column(&self, column: usize) -> Result<f64> {
        let row = self.run()?;
        let value = row.get(column).copied();
        value.ok_or_else(|| format!("{}: a row of {} columns", self.name, row.len()).into())
    }

    /// Nanoseconds one way, the mean (`t_avg[usec]`).
    pub(crate) fn latency(&self) -> Result<f64> {
        Ok(self.column(5)? * 1e3)
    }

    /// Megabytes per second (`BW average[MiB/sec]`).
    pub(crate) fn bandwidth(&self) -> Result<f64> {
        Ok(self.column(3)? * f64::from(1 << 20) / 1e6)
    }

    /// Operations per second (`MsgRate[Mpps]`).
    pub(crate) fn rate(&self) -> Result<f64> {
        Ok(self.column(4)? * 1e6)
    }
}

/// A server; ended and reaped when dropped.
struct Server(Child);

impl Server {
    fn wait_until_it_listens(&self) -> Result<()> {
        let port = format!(":{PORT:04X} ");
        let began = Instant::now();
        while began.elapsed() < SOON {
            let listens = ["tcp", "tcp6"].iter().any(|table| {
                // Its columns: slot, local address, remote address, state (0A: listening).
                std::fs::read_to_string(format!("/proc/{}/net/{table}", self.0.id()))
                    .unwrap_or_default()
                    .lines()
                    .any(|line| line.contains(&port) && line.contains(" 0A "))
            });
            if listens {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err("the server does not listen".into())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It ends by itself after its client, and must be ended without one.
        for _ in 0..200 {
            if matches!(self.0.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
