// SPDX-License-Identifier: GPL-2.0
//! `kfi trigger`: an allreduce of deferred work, on one host and between two.

use std::fs;

use serde_json::Value;

use super::command::{Ended, Server, alone, command, ended, kfi, with_link};
use crate::{harness::tests, raw::ip};

tests![
    trigger_adds_up_on_one_host => 120,
    trigger_adds_up_on_two_hosts => 240,
    trigger_draws_what_started_when,
    trigger_shows_its_plan,
    trigger_compares_with_programs,
    trigger_leaves_nothing,
    trigger_reports_what_is_wrong,
];

/// The last document, which is the result.
fn result(ended: &Ended) -> Value {
    ended.documents().pop().expect("a result")
}

/// The changes of counters that were seen.
fn fired(ended: &Ended) -> Vec<Value> {
    let documents = ended.documents().into_iter();
    documents
        .filter(|document| document["event"] == "fired")
        .collect()
}

fn trigger_adds_up_on_one_host() {
    with_link();
    for (options, chunks) in [
        ("", 1),
        ("-n 2", 1),
        ("-n 16", 1),
        ("-n 3 -s 80", 3),
        ("-n 16 -s 64K -i 3", 16),
        ("-n 2 -s 1M -i 2", 2),
    ] {
        let ended = kfi(&format!("trigger --json {options}")).succeeds();
        let result = result(&ended);
        assert_eq!(result["chunks"], chunks, "{options}");
        assert!(result["peer"].is_null(), "{result}");
        assert!(
            result["deferred_us"]["min"].as_f64() > Some(0.0),
            "{result}"
        );
    }
}

/// The order of what was seen is that of the plan.
fn trigger_draws_what_started_when() {
    with_link();
    let ended = kfi("trigger --json -n 4 --svg /tmp/allreduce.svg").succeeds();
    let seen: Vec<String> = fired(&ended)
        .iter()
        .map(|fired| {
            format!(
                "{} {}",
                fired["rank"],
                fired["what"].as_str().expect("text")
            )
        })
        .collect();
    // The sum goes round: no endpoint has the output before the last one has added.
    let time = |rank: u64, what: &str| {
        let fired = fired(&ended).into_iter();
        let mut found = fired.filter(|fired| fired["rank"] == rank && fired["what"] == what);
        found.next().expect(what)["us"].as_f64().expect("a time")
    };
    assert!(time(1, "added") <= time(2, "received"), "{seen:?}");
    assert!(time(2, "added") <= time(3, "output"), "{seen:?}");
    assert!(time(3, "output") <= time(0, "output"), "{seen:?}");
    // The end of the run is the end of the axis.
    let observed = result(&ended)["observed_us"].as_f64().expect("a number");
    let last = fired(&ended).last().expect("the last")["us"].as_f64();
    assert!(last.expect("a number") <= observed, "{last:?} {observed}");
    let of = |rank: &str| -> Vec<&str> {
        let own = seen.iter().filter_map(|seen| seen.strip_prefix(rank));
        own.collect()
    };
    assert_eq!(of("0 "), ["output"]);
    assert_eq!(of("1 "), ["received", "added", "output"]);
    assert_eq!(of("2 "), ["received", "added", "output"]);
    assert_eq!(of("3 "), ["received", "output"]);
    let svg = fs::read_to_string("/tmp/allreduce.svg").expect("read");
    assert!(
        svg.starts_with("<svg") && svg.ends_with("</svg>\n"),
        "{svg}"
    );
    assert!(svg.len() < 20_000, "{}", svg.len());
    let text = kfi("trigger -n 4").succeeds().out;
    assert!(text.contains("every endpoint has the right sum"), "{text}");
    assert!(
        text.lines().any(|line| line.starts_with("  3       |")),
        "{text}"
    );
    kfi("trigger -n 4 --svg /nowhere/x.svg").fails("write the picture", "");
}

fn trigger_shows_its_plan() {
    // Without a link, and without a device.
    alone();
    let text = kfi("trigger --show-plan -n 3").succeeds().out;
    assert_eq!(text.lines().count(), 12, "{text}");
    let steps = kfi("trigger --show-plan --json -n 3 -s 1K").succeeds();
    let steps = steps.documents();
    assert!(steps.iter().all(|step| step["event"] == "step"));
}

fn trigger_compares_with_programs() {
    with_link();
    let ended = kfi("trigger --json -n 8 -s 4K --compare -i 3").succeeds();
    let result = result(&ended);
    for times in ["deferred_us", "driven_us", "adding_us"] {
        assert!(result[times]["median"].as_f64() > Some(0.0), "{result}");
    }
}

fn trigger_leaves_nothing() {
    with_link();
    kfi("trigger -n 8 -i 2").succeeds();
    let look = kfi("top --once --json").succeeds().json();
    for kind in ["endpoints", "cqs", "cntrs"] {
        assert_eq!(look[kind], serde_json::json!([]), "{kind}");
    }
    kfi("link del roce0").succeeds();
}

fn trigger_reports_what_is_wrong() {
    with_link();
    kfi("trigger -n 1").with(2);
    kfi("trigger 127.0.0.1 --timeout 0.2")
        .fails("cannot send to 127.0.0.1:7472", "endpoint at that address");
    kfi("trigger -s 12").with(2);
    // Fewer endpoints than hosts.
    kfi("trigger 127.0.0.1 -n 1").with(2);
}

/// Two hosts: this namespace, and another one with the address 10.8.0.2.
pub(super) fn two_hosts() {
    alone();
    ip("netns add far");
    ip("link add veth0 type veth peer name veth1 netns far");
    ip("address add 10.8.0.1/24 dev veth0");
    ip("link set veth0 up");
    ip("-n far address add 10.8.0.2/24 dev veth1");
    ip("-n far link set veth1 up");
    kfi("link add roce0 netdev veth0").succeeds();
    far("link add roce0 netdev veth1").succeeds();
}

/// Runs a command on the other host.
pub(super) fn far(line: &str) -> Ended {
    let output = far_command(line).output().expect("start kfi");
    ended(line, output)
}

pub(super) fn far_command(line: &str) -> std::process::Command {
    let here = command(line);
    let mut there = std::process::Command::new("ip");
    there
        .args(["netns", "exec", "far", "/bin/kfi"])
        .args(here.get_args())
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    there
}

fn trigger_adds_up_on_two_hosts() {
    two_hosts();
    // The first run of many endpoints makes their connections: seconds on a sanitizing kernel.
    let server = far_command("trigger --serve --keep --json --timeout 60");
    let server = Server::run(server);
    assert_eq!(server.address, "10.8.0.2:7472");
    for options in ["-n 2", "-n 5", "-n 16 -s 64K -i 3", "-n 4 --compare -i 3"] {
        let ended = kfi(&format!("trigger --json 10.8.0.2 --timeout 60 {options}")).succeeds();
        let result = result(&ended);
        assert_eq!(result["peer"], "10.8.0.2:7472");
        let hosts: Vec<Value> = fired(&ended)
            .iter()
            .map(|fired| fired["host"].clone())
            .collect();
        assert!(
            hosts.contains(&"a".into()) && hosts.contains(&"b".into()),
            "{hosts:?}"
        );
    }
    let wire = kfi("link show -s --json").succeeds().json();
    assert!(
        wire["links"][0]["packets"]["tx_packets"].as_u64() > Some(100),
        "{wire}"
    );
    drop(server);
    ip("netns del far");
}
