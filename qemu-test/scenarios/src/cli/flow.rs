// SPDX-License-Identifier: GPL-2.0
//! `kfi flow`: rules on the command line, their counters, and the flows that `kfi top` shows.

use std::{
    process::Command,
    thread,
    time::{Duration, Instant},
};

use super::command::{Ended, command, kfi, parse, with_link};
use crate::{
    abi_threads::{USER, open_to_all},
    harness::tests,
    host::SOON,
};
use std::{
    io::{BufRead, BufReader},
    os::unix::process::CommandExt,
};

tests![
    flow_counts_by_rules,
    flow_refuses_bad_rules,
    flow_needs_the_capability,
    top_shows_flows,
];

/// The values of the flows in a document: packets and bytes.
fn values(document: &serde_json::Value) -> Vec<(u64, u64)> {
    let flows = document["flows"].as_array().expect("a list");
    let value = |flow: &serde_json::Value, key: &str| flow[key].as_u64().expect("a number");
    flows
        .iter()
        .map(|flow| (value(flow, "packets"), value(flow, "bytes")))
        .collect()
}

fn flow_counts_by_rules() {
    with_link();
    let rules =
        "op=0x65,prio=1 src=127.0.0.0/8,continue,prio=0 sport=0xc000/0xc000,prio=2 any,prio=9";
    let ended = kfi(&format!(
        "--json flow {rules} --send 10 --time 1.5 --interval 1"
    ))
    .succeeds();
    let documents = ended.documents();
    assert_eq!(documents.len(), 3, "{}", ended.out);
    assert_eq!(values(&documents[0]), [(0, 0); 4]);
    assert!(documents[0]["flows"][0]["packets_per_second"].is_null());
    // Half of the datagrams have immediate data: 4 bytes more.
    let last = &documents[2];
    let expected = [(5, 5 * 92), (10, 5 * 92 + 5 * 88), (5, 5 * 88), (0, 0)];
    assert_eq!(values(last), expected);
    assert_eq!(last["flows"][0]["rule"], "op=0x65,prio=1");
    assert_eq!(last["flows"][3]["priority"], 9);
    let address = last["address"].as_str().expect("an address");
    assert!(address.starts_with("127.0.0.1:"), "{address}");

    let text = kfi("flow -b ::1 src=::1 --send 4 --time 0.3")
        .succeeds()
        .out;
    assert!(text.starts_with("counts datagrams to [::1]:"), "{text}");
    let row = text.lines().last().expect("a row");
    assert!(row.contains("src=::1") && row.contains("360"), "{text}");
}

fn flow_refuses_bad_rules() {
    with_link();
    for rule in [
        "jump=1",
        "src=10.0.0.0/33",
        "sqp=0x1000000",
        "ipv6,src=10.0.0.1",
    ] {
        let ended = kfi(&format!("flow {rule}")).with(2);
        assert!(ended.err.contains("RULE"), "{}", ended.err);
    }
    kfi("flow -l nope").fails("nope", "kfi link show");
    let many = "any ".repeat(65);
    kfi(&format!("flow {many}")).fails("(ENOSPC)", "");
}

fn flow_needs_the_capability() {
    with_link();
    open_to_all();
    let mut command: Command = command("flow --time 0.1");
    let output = command.uid(USER).gid(USER).output().expect("run kfi");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("(EPERM)") && text.contains("CAP_NET_RAW"),
        "{text}"
    );
}

fn top_shows_flows() {
    with_link();
    let mut flow = command("--json flow any,prio=3 --send 7")
        .spawn()
        .expect("start kfi");
    let mut lines = BufReader::new(flow.stdout.take().expect("a pipe")).lines();
    let first = parse(&lines.next().expect("a line").expect("read"));
    let end = Instant::now() + SOON;
    let row = loop {
        let look = kfi("top --once --json").succeeds().json();
        let row = look["flows"][0].clone();
        if row["packets"] == 7 {
            break row;
        }
        assert!(Instant::now() < end, "{look}");
        thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(row["address"], first["address"]);
    assert_eq!(
        (&row["priority"], &row["points"], &row["pid"]),
        (&3.into(), &2.into(), &flow.id().into())
    );
    let text = kfi("top --once").succeeds().out;
    assert!(text.contains("PACKETS/S"), "{text}");
    flow.kill().expect("kill");
    flow.wait().expect("wait");
    let none: Ended = kfi("top --once").succeeds();
    assert!(none.out.contains("no flows"), "{}", none.out);
}
