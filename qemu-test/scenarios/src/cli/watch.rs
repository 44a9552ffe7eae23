// SPDX-License-Identifier: GPL-2.0
//! `kfi cntr watch`: counters of another program, printed and drawn.

use std::{
    io::{BufRead, BufReader},
    process::Child,
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{
    command::{command, kfi, parse, with_link},
    terminal,
};
use crate::{harness::tests, host::SOON};

tests![
    watch_shows_values_and_rates,
    watch_has_filters,
    watch_ends_when_it_is_told_to,
    watch_draws_on_a_terminal,
];

/// A program whose counter has the value 3, then 53, then waits.
struct Counting(Child);

impl Counting {
    fn start() -> Self {
        let mut child = command("cntr --timeout 60 add=3 300ms:add=50 adderr=2 wait=1000")
            .spawn()
            .expect("start kfi");
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        while !line.contains("adderr=2") {
            line.clear();
            assert!(out.read_line(&mut line).expect("read") > 0, "it has ended");
        }
        child.stdout = Some(out.into_inner());
        Self(child)
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The counters of a sample.
fn cntrs(sample: &Value) -> &[Value] {
    sample["cntrs"].as_array().expect("a list")
}

fn watch_shows_values_and_rates() {
    with_link();
    let counting = Counting::start();
    let mut watch = command("cntr watch --json --interval 0.02")
        .spawn()
        .expect("start kfi");
    let mut lines = BufReader::new(watch.stdout.take().expect("a pipe")).lines();
    let mut next = || parse(&lines.next().expect("a line").expect("read"));
    let first = next();
    assert!(first["seconds"].is_null(), "{first}");
    assert_eq!(cntrs(&first)[0]["pid"], counting.0.id());
    assert_eq!(cntrs(&first)[0]["err"], 2);
    let end = Instant::now() + SOON;
    // One of the samples sees the addition.
    let mut rate = 0.0;
    let last = loop {
        let sample = next();
        rate = cntrs(&sample)[0]["value_per_second"]
            .as_f64()
            .expect("a rate")
            .max(rate);
        if cntrs(&sample)[0]["value"] == 53 {
            break sample;
        }
        assert!(Instant::now() < end, "{sample}");
    };
    // It may have been there before the first one.
    assert!(rate > 0.0 || cntrs(&first)[0]["value"] == 53, "{last}");
    watch.kill().expect("kill");
    watch.wait().expect("wait");
    let text = kfi("cntr watch --count 3 --interval 0.02").succeeds().out;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert!(lines[0].ends_with("ERROR  RATES"), "{text}");
    // A rate needs two samples, and nothing is added any more.
    assert!(lines[3].ends_with("2   ▁▁"), "{text}");
}

fn watch_has_filters() {
    with_link();
    let (one, other) = (Counting::start(), Counting::start());
    let found = |options: &str| {
        let sample = kfi(&format!("cntr --json watch --count 1 {options}"))
            .succeeds()
            .json();
        cntrs(&sample).to_vec()
    };
    let both = found("");
    assert_eq!(both.len(), 2);
    let of_one = found(&format!("--pid {}", one.0.id()));
    assert_eq!(of_one.len(), 1);
    assert_eq!(of_one[0]["pid"], one.0.id());
    let handle = &of_one[0]["handle"];
    assert_eq!(found(&format!("--handle {handle} --link roce0")).len(), 2);
    assert_eq!(found("--link roce1").len(), 0);
    assert_eq!(found("--handle 4000000000").len(), 0);
    drop((one, other));
    let text = kfi("cntr watch --count 3 --interval 0.02").succeeds().out;
    assert_eq!(text.matches("no counters").count(), 1, "{text}");
}

fn watch_ends_when_it_is_told_to() {
    with_link();
    let _counting = Counting::start();
    // ^C: by the signal, with whole lines before it.
    let mut watch = command("cntr watch --json --interval 0.02")
        .spawn()
        .expect("start kfi");
    let mut lines = BufReader::new(watch.stdout.take().expect("a pipe")).lines();
    lines.next().expect("a line").expect("read");
    let pid = Pid::from_child(&watch);
    kill_process(pid, Signal::INT).expect("kill");
    for line in lines {
        parse(&line.expect("read"));
    }
    watch.wait().expect("wait");
    // A reader that has left.
    let mut watch = command("cntr watch --interval 0.02")
        .spawn()
        .expect("start kfi");
    drop(watch.stdout.take());
    let end = Instant::now() + SOON;
    while watch.try_wait().expect("wait").is_none() {
        assert!(Instant::now() < end, "it does not end");
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(watch.wait().expect("wait").code(), Some(0));
}

fn watch_draws_on_a_terminal() {
    with_link();
    let _counting = Counting::start();
    let line = "cntr watch --interval 0.05";
    terminal::draws(line, &["1 counters", "HANDLE", "▁"], b"jk q");
    // ^C is a key there.
    terminal::draws(line, &["1 counters", "▁"], b"\x03");
}
