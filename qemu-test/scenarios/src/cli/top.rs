// SPDX-License-Identifier: GPL-2.0
//! `kfi top`: owners and waiters of objects, printed and drawn.

use std::{
    io::{BufRead, BufReader},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{
    command::{Server, command, kfi, parse, with_link},
    terminal,
};
use crate::{
    deferred::cntr,
    harness::tests,
    host::{SOON, domain_on},
};
use kfi::Work;

tests![
    top_shows_who_waits_for_what,
    top_shows_queued_work,
    top_draws_on_a_terminal,
];

/// Takes samples until `found` returns true.
fn top_until<T>(found: impl Fn(&Value) -> Option<T>) -> T {
    let end = Instant::now() + SOON;
    loop {
        let look = kfi("top --once --json").succeeds().json();
        if let Some(found) = found(&look) {
            return found;
        }
        assert!(Instant::now() < end, "not found: {look}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn top_shows_who_waits_for_what() {
    with_link();
    let server = Server::start("");
    let endpoint = top_until(|look| {
        let found = &look["endpoints"][0];
        (found["rx_posted"] == 1).then(|| found.clone())
    });
    assert_eq!(endpoint["address"], server.address.as_str());
    assert_eq!(endpoint["pid"], server.child.id());
    assert_eq!(endpoint["link"], "roce0");
    let cq = top_until(|look| (look["cqs"][0]["waiters"] == 1).then(|| look["cqs"][0].clone()));
    assert_eq!((&cq["reserved"], &cq["queued"]), (&1.into(), &0.into()));
    drop(server);

    let mut waiting = command("cntr --timeout 30 add=3 wait=9")
        .spawn()
        .expect("start kfi");
    let cntr =
        top_until(|look| (look["cntrs"][0]["waiters"] == 1).then(|| look["cntrs"][0].clone()));
    assert_eq!((&cntr["value"], &cntr["threshold"]), (&3.into(), &9.into()));
    let text = kfi("top --once").succeeds().out;
    assert!(
        text.contains("COUNTER") && text.contains("no endpoints"),
        "{text}"
    );
    assert!(
        text.lines().all(|line| line.chars().count() <= 100),
        "{text}"
    );
    waiting.kill().expect("kill");
    waiting.wait().expect("wait");
    top_until(|look| look["cntrs"].as_array()?.is_empty().then_some(()));

    // With repeated samples the second one has rates.
    let mut looks = command("top --json --interval 0.05")
        .spawn()
        .expect("start kfi");
    let mut lines = BufReader::new(looks.stdout.take().expect("a pipe")).lines();
    let mut next = || parse(&lines.next().expect("a line").expect("read"));
    assert!(next()["seconds"].is_null());
    let second = next();
    assert!(second["seconds"].as_f64() >= Some(0.05), "{second}");
    assert_eq!(second["links"][0]["tx_ops_per_second"], 0.0);
    looks.kill().expect("kill");
    looks.wait().expect("wait");
}

/// Work at its triggering counter: how much waits, the lowest threshold of that, and how much has
/// become due.
fn top_shows_queued_work() {
    with_link();
    let (_fabric, domain) = domain_on("roce0");
    let (go, done) = (cntr(&domain), cntr(&domain));
    // Expects these values in the row of `go`, in JSON and as text.
    let expect_row = |value: u64, work: u64, at: Option<u64>, due: u64| {
        let cntr = top_until(|look| {
            let cntrs = look["cntrs"].as_array()?;
            cntrs
                .iter()
                .find(|row| row["handle"] == go.handle())
                .cloned()
        });
        assert_eq!(cntr["pid"], std::process::id());
        assert_eq!(cntr["value"], value);
        assert_eq!(cntr["work"], work);
        assert_eq!(cntr["work_threshold"], at.map_or(Value::Null, Value::from));
        assert_eq!(cntr["work_due"], due);
        let text = kfi("top --once").succeeds().out;
        let mut lines = text.lines().skip_while(|line| !line.starts_with("COUNTER"));
        let head = lines.next().expect("counters");
        assert!(
            head.split_whitespace()
                .rev()
                .take(3)
                .eq(["WORK-DUE", "WORK-AT", "WORK"]),
            "{text}"
        );
        let id = cntr["id"].to_string();
        let row = lines.find(|line| line.split_whitespace().next() == Some(id.as_str()));
        let cells: Vec<_> = row
            .expect("a row")
            .split_whitespace()
            .rev()
            .take(3)
            .collect();
        let at = at.map_or("-".to_owned(), |at| at.to_string());
        assert_eq!(cells, [&due.to_string(), &at, &work.to_string()], "{text}");
    };
    expect_row(0, 0, None, 0);
    let at = |threshold| Work::add(&go, threshold, &done, 1);
    let works = [at(9), at(7), at(7), at(9), at(7)];
    assert!(domain.queue_work(&works).expect("queue").all());
    expect_row(0, 5, Some(7), 0);
    go.add(8).expect("add");
    expect_row(8, 2, Some(9), 3);
    assert_eq!(domain.flush_work().expect("flush"), 2);
    expect_row(8, 0, None, 3);
}

fn top_draws_on_a_terminal() {
    with_link();
    terminal::draws("top --interval 0.1", &["127.0.0.1"], b"jk q");
}
