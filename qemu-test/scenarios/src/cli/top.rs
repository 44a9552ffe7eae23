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
use crate::{harness::tests, host::SOON};

tests![top_shows_who_waits_for_what, top_draws_on_a_terminal];

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

fn top_draws_on_a_terminal() {
    with_link();
    terminal::draws("top --interval 0.1", &["127.0.0.1"], b"jk q");
}
