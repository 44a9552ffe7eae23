// SPDX-License-Identifier: GPL-2.0
//! `kfi pingpong`: every mode, completion and way of waiting, every size, two links, many clients,
//! and the messages when the peer is missing, silent or dies.

use std::{
    io::Read,
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

use super::command::{Server, alone, command, ended, kfi, parse, with_link};
use crate::{
    harness::tests,
    hosts::sanitizing,
    raw::{Netdev, ip},
};

tests![
    pingpong_works_in_every_mode => 180,
    pingpong_works_with_every_size => 120,
    pingpong_sweeps_sizes_and_streams => 120,
    pingpong_works_between_two_links,
    pingpong_works_over_ipv6,
    pingpong_needs_the_servers_key => 120,
    pingpong_shows_completions,
    a_server_prefers_its_own_options,
    clients_wait_for_their_turn,
    a_missing_server_is_reported,
    silence_ends_a_game,
    a_client_that_dies_ends_the_server,
    pingpong_works_as_verbs_programs_do => 120,
];

fn pingpong_works_as_verbs_programs_do() {
    with_link();
    for verbs in ["rc", "ud"] {
        let mut server = Server::start(&format!("--verbs {verbs} --keep -i 20 -s 2K"));
        // As kfi prints it, with the port of those programs.
        assert!(server.address.ends_with(":18515"), "{}", server.address);
        let line = format!("pingpong --verbs {verbs} 127.0.0.1 -i 20 -s 2K --json");
        for _ in 0..2 {
            let client = kfi(&line).succeeds().json();
            let served = server.document();
            for (side, role) in [(&client, "client"), (&served, "server")] {
                assert_eq!(side["event"], "result");
                assert_eq!(side["role"], role);
                assert_eq!(side["verbs"], verbs, "{side}");
                assert_eq!(
                    (&side["size"], &side["iterations"]),
                    (&2048.into(), &20.into())
                );
            }
            assert!(client["latency_us"]["median"].as_f64().expect("a number") > 0.0);
        }
        drop(server);
        kfi(&format!("pingpong --verbs {verbs} 127.0.0.1")).fails("over TCP", "ibv_rc_pingpong");
    }
    // Packets were counted.
    let look = kfi("link show -s --json").succeeds().json();
    let packets = &look["links"][0]["packets"];
    assert!(packets["tx_packets"].as_u64() > Some(80), "{look}");
    assert_eq!(packets["drop_icrc"], 0);
    let text = kfi("link show -s").succeeds().out;
    assert!(
        text.contains("tx_packets") && !text.contains("drop_icrc"),
        "{text}"
    );
    assert!(kfi("link show --json").succeeds().json()["links"][0]["packets"].is_null());
    let look = kfi("top --once --json").succeeds().json();
    assert_eq!(look["links"][0]["packets"]["drop_icrc"], 0, "{look}");
    kfi("pingpong --verbs rc --mtu 1000 127.0.0.1").with(2);
    kfi("pingpong --verbs rc --mode rma 127.0.0.1").with(2);
    kfi("pingpong --mtu 1024 127.0.0.1").with(2);
}

fn pingpong_works_in_every_mode() {
    with_link();
    let mut server = Server::start("--keep");
    for mode in ["msg", "tagged", "rma"] {
        for completion in ["cq", "cntr"] {
            for wait in ["spin", "sread", "fd"] {
                let line = format!(
                    "pingpong {} -m {mode} -c {completion} -w {wait} -i 50 --json",
                    server.address
                );
                let client = kfi(&line).succeeds().json();
                let served = server.document();
                for (side, role, count) in [(&client, "client", 50), (&served, "server", 50)] {
                    assert_eq!(side["event"], "result");
                    assert_eq!(side["role"], role);
                    assert_eq!(side["mode"], mode, "{side}");
                    assert_eq!(side["completion"], completion, "{side}");
                    assert_eq!(side["wait"], wait, "{side}");
                    assert_eq!(side["iterations"], count, "{side}");
                }
                let latency = &client["latency_us"];
                let counter = |name: &str| latency[name].as_f64().expect("a number");
                assert!(
                    counter("min") > 0.0 && counter("min") <= counter("median"),
                    "{latency}"
                );
                assert!(counter("median") <= counter("p99") && counter("p99") <= counter("max"));
                assert!(served["latency_us"].is_null());
            }
        }
    }
}

fn pingpong_works_with_every_size() {
    with_link();
    let mut server = Server::start("--keep");
    for mode in ["msg", "tagged", "rma"] {
        for size in [
            "0", "1", "7", "255", "257", "4K", "8193", "100000", "1M", "16M",
        ] {
            let line = format!(
                "pingpong {} -m {mode} -s {size} -i 3 --warmup 1",
                server.address
            );
            if (mode, size) == ("rma", "0") {
                kfi(&line).fails("0 bytes", "--size");
                continue;
            }
            let text = kfi(&line).succeeds().out;
            assert!(text.contains("3 messages of"), "{text}");
            assert_eq!(server.document()["event"], "result");
        }
    }
}

fn pingpong_sweeps_sizes_and_streams() {
    with_link();
    // A server without --keep stays for all sizes of a client.
    let mut server = Server::start("");
    let sizes = [8, 16, 32, 64];
    let ended = kfi(&format!(
        "pingpong {} -s 8..64 -i 20 --json",
        server.address
    ))
    .succeeds();
    let results = ended.documents();
    for (result, size) in results.iter().zip(sizes) {
        assert_eq!(
            (&result["size"], &result["window"]),
            (&size.into(), &Value::Null)
        );
        assert!(
            result["latency_us"]["median"].as_f64() > Some(0.0),
            "{result}"
        );
        assert_eq!(server.document()["size"], size);
    }
    assert_eq!(results.len(), 4);
    assert_eq!(server.end(), (Some(0), String::new()));

    let mut server = Server::start("--keep");
    for mode in ["msg", "tagged", "rma"] {
        for window in [1, 7, 256] {
            let line = format!(
                "pingpong {} -m {mode} -s 8,100000 --window {window} -i 300 --json",
                server.address
            );
            for result in kfi(&line).succeeds().documents() {
                assert_eq!(
                    (&result["mode"], &result["window"]),
                    (&mode.into(), &window.into())
                );
                assert!(
                    result["messages_per_second"].as_f64() > Some(0.0),
                    "{result}"
                );
                assert!(result["latency_us"].is_null(), "{result}");
                let served = server.document();
                assert_eq!(
                    (&served["iterations"], &served["size"]),
                    (&300.into(), &result["size"])
                );
            }
        }
    }
    let text = kfi(&format!("pingpong {} -s 8..32 --window 8", server.address));
    assert_eq!(text.succeeds().out.lines().count(), 5);
}

fn pingpong_needs_the_servers_key() {
    with_link();
    let mut server = Server::start("--keep --auth-key c0ffee");
    let client = |key: &str| format!("pingpong {} -i 5 {key} --json", server.address);
    let (same, none, other) = (
        client("--auth-key 0x00c0ffee"),
        client(""),
        client("--auth-key 1"),
    );
    kfi(&same).succeeds();
    assert_eq!(server.document()["iterations"], 5);
    for line in [none, other] {
        let refused = kfi(&line).with(1);
        assert!(refused.err.contains("ENOTCONN"), "{}", refused.err);
        assert!(refused.err.contains("authorization key"), "{}", refused.err);
    }
    // The server is still there.
    kfi(&same).succeeds();
    assert_eq!(server.document()["event"], "result");
    kfi("pingpong --auth-key 123456789").with(2);
    kfi("pingpong --auth-key 1 --verbs rc 127.0.0.1").with(2);
}

fn pingpong_works_between_two_links() {
    with_link();
    let _netdev = Netdev::dummy("dmy0", "10.9.0.1/24");
    kfi("link add roce1 netdev dmy0").succeeds();
    for (at, from) in [("roce0", "roce1"), ("roce1", "roce0"), ("roce1", "roce1")] {
        let mut server = Server::start(&format!("--link {at}"));
        let line = format!(
            "pingpong {} --link {from} -m rma -i 5 --json",
            server.address
        );
        assert_eq!(kfi(&line).succeeds().json()["link"], from);
        assert_eq!(server.document()["link"], at);
        assert_eq!(server.end(), (Some(0), String::new()));
    }
    // Without --link it is the link that has the server's address.
    let server = Server::start("--bind 10.9.0.1:99");
    assert_eq!(server.address, "10.9.0.1:99");
    assert_eq!(
        kfi("pingpong 10.9.0.1:99 -i 5 --json").succeeds().json()["link"],
        "roce1"
    );
    drop(server);
    let links = kfi("link show --json").json();
    assert!(links["links"][1]["tx_ops"].as_u64() > Some(10), "{links}");
}

fn pingpong_works_over_ipv6() {
    with_link();
    let mut server = Server::start("--bind [::1]");
    assert_eq!(server.address, "[::1]:7471");
    kfi("pingpong ::1 -i 5").succeeds();
    let peer = server.document()["peer"]
        .as_str()
        .expect("an address")
        .to_owned();
    assert!(peer.starts_with("[::1]:"), "{peer}");
}

/// Events of one kind in a trace.
fn events<'a>(documents: &'a [Value], event: &str) -> Vec<&'a Value> {
    documents
        .iter()
        .filter(|document| document["event"] == event)
        .collect()
}

fn pingpong_shows_completions() {
    with_link();
    for (mode, completion, flags, counters) in [
        ("msg", "cq", "MSG", ["recv", "send"]),
        ("tagged", "cq", "TAGGED", ["recv", "send"]),
        ("rma", "cq", "RMA", ["remote write", "write"]),
        ("tagged", "cntr", "TAGGED", ["recv", "send"]),
        ("rma", "cntr", "RMA", ["remote write", "write"]),
    ] {
        let server = Server::start("");
        let line = format!(
            "pingpong {} -m {mode} -c {completion} -i 3 --trace --json",
            server.address
        );
        let documents = kfi(&line).succeeds().documents();
        assert_eq!(events(&documents, "posts").len(), 3);
        let entries = events(&documents, "cq_entry");
        assert_eq!(entries.len(), 6, "{documents:?}");
        for entry in entries {
            assert_eq!(entry["flags"][0], flags, "{entry}");
        }
        let ends = events(&documents, "counter");
        for (name, end) in counters.iter().zip(&ends[ends.len() - 2..]) {
            assert_eq!(end["counter"], *name);
            assert_eq!((&end["value"], &end["err"]), (&3.into(), &0.into()));
        }
        if completion == "cntr" {
            assert_eq!(ends[0]["value"], 1);
            assert_eq!(ends[0]["bytes"], "pong0000");
        }
        assert_eq!(server.end(), (Some(0), String::new()));
    }
}

fn a_server_prefers_its_own_options() {
    with_link();
    let mut server = Server::start("--completion cntr --wait fd");
    kfi(&format!("pingpong {} -i 5", server.address)).succeeds();
    let served = server.document();
    assert_eq!(
        (&served["completion"], &served["wait"]),
        (&"cntr".into(), &"fd".into())
    );
}

fn clients_wait_for_their_turn() {
    with_link();
    let mut server = Server::start("--keep");
    // The last client must be served within 10 s.
    let count = if sanitizing() { 50 } else { 300 };
    let line = format!("pingpong {} -i {count} --json", server.address);
    let clients: Vec<Child> = (0..4)
        .map(|_| command(&line).spawn().expect("start kfi"))
        .collect();
    for client in clients {
        let output = client.wait_with_output().expect("wait");
        ended(&line, output).succeeds();
    }
    for _ in 0..4 {
        assert_eq!(server.document()["iterations"], count);
    }
}

fn a_missing_server_is_reported() {
    alone();
    kfi("pingpong 127.0.0.1").fails("there is no link", "kfi link add");
    kfi("link add roce0 netdev lo").succeeds();
    kfi("pingpong 127.0.0.1").fails("send to 127.0.0.1:7471", "is there an endpoint");
    kfi("pingpong --bind 10.1.2.3").fails("no link that is up has the address", "kfi link show");
    kfi("pingpong --link roce0 --bind 10.1.2.3").fails("(EADDRNOTAVAIL)", "kfi link show");
    let _server = Server::start("");
    kfi("pingpong").fails("(EADDRINUSE)", "port");
    ip("link set lo down");
    kfi("pingpong --link roce0 127.0.0.1").fails("", "");
}

/// An endpoint at port 7471 that never answers.
fn mute() -> (kfi::Endpoint, kfi::Cq) {
    use kfi::{CqBind, Device, Wait};
    let fabric = Device::open().expect("open").fabric().expect("fabric");
    let domain = fabric.domain("roce0").open().expect("domain");
    let cq = domain.cq().wait(Wait::Queue).open().expect("cq");
    let addr = "127.0.0.1:7471".parse().expect("an address");
    let ep = domain.endpoint().addr(addr).open().expect("endpoint");
    ep.bind_cq(&cq, CqBind::TRANSMIT | CqBind::RECV)
        .expect("bind");
    ep.bind_av(&domain.av().open().expect("av")).expect("bind");
    ep.enable().expect("enable");
    (ep, cq)
}

fn silence_ends_a_game() {
    with_link();
    let _mute = mute();
    let begin = Instant::now();
    kfi("pingpong 127.0.0.1 --timeout 0.3").fails("no answer from 127.0.0.1:7471", "pingpong");
    assert!(begin.elapsed() >= Duration::from_millis(300));
}

fn a_client_that_dies_ends_the_server() {
    with_link();
    for wait in ["spin", "sread", "fd"] {
        let mut server = Server::start("--timeout 0.5 --trace");
        let line = format!("pingpong {} -i 10000000 -w {wait}", server.address);
        let mut client = command(&line)
            .stdout(Stdio::null())
            .spawn()
            .expect("start kfi");
        for _ in 0..8 {
            server.document();
        }
        client.kill().expect("kill");
        client.wait().expect("wait");
        // A thread reads the server's output, so that the server is not blocked.
        let mut rest = String::new();
        server.out.read_to_string(&mut rest).expect("read");
        let (code, err) = server.end();
        assert_eq!(code, Some(1), "{err}");
        let error = parse(err.trim());
        let message = error["error"]["message"].as_str().expect("text");
        assert!(
            message.contains("silent") || message.contains("EHOSTUNREACH"),
            "{message}"
        );
    }
    kfi("link del roce0").succeeds();
}
