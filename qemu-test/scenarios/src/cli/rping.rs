// SPDX-License-Identifier: GPL-2.0
//! `kfi rping`, with itself as the peer; with that of rdma-core, see `qemu-test/interop`.

use super::command::{Server, command, kfi, parse, with_link};
use crate::{
    abi_threads::{USER, open_to_all},
    harness::tests,
    host::{Host, SOON, domain_on, holding},
    networks::msg,
};
use kfi::{EventKind, FiAddr, Wait};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::os::unix::process::CommandExt;

tests![
    rping_works_with_every_size => 120,
    rping_works_over_ipv6,
    rping_shows_the_exchanged_text,
    rping_reports_a_missing_server,
    the_server_of_rping_survives_a_dead_client,
    the_server_of_rping_rejects_what_it_cannot_serve,
];

fn rping_works_with_every_size() {
    with_link();
    let mut server = Server::of("rping --json --keep");
    assert!(server.address.ends_with(":7174"), "{}", server.address);
    for size in ["26", "64", "1023", "4K", "65535"] {
        let line = format!("rping {} -s {size} -i 5 --json", server.address);
        let client = kfi(&line).succeeds().json();
        let served = server.document();
        for (side, role) in [(&client, "client"), (&served, "server")] {
            assert_eq!(side["event"], "result");
            assert_eq!(side["role"], role);
            assert_eq!(side["iterations"], 5, "{side}");
            assert_eq!(side["size"], client["size"]);
        }
    }
    for size in ["25", "64K", "0"] {
        kfi(&format!("rping 127.0.0.1 -s {size}")).with(2);
    }
}

fn rping_works_over_ipv6() {
    with_link();
    let mut server = Server::of("rping --json --bind [::1]:7200");
    let line = format!("rping {} -i 3", server.address);
    let text = kfi(&line).succeeds().out;
    assert!(text.contains("3 pings of 64 B"), "{text}");
    assert_eq!(server.document()["iterations"], 3);
}

fn rping_shows_the_exchanged_text() {
    with_link();
    let _server = Server::of("rping --json --bind 127.0.0.2");
    let text = kfi("rping 127.0.0.2 -i 2 -s 30 -v").succeeds().out;
    assert!(text.contains("ping data: rdma-ping-0: ABCDEFGHIJKLMNOP\n"));
    assert!(text.contains("ping data: rdma-ping-1: BCDEFGHIJKLMNOPQ\n"));
}

fn rping_reports_a_missing_server() {
    with_link();
    kfi("rping 127.0.0.3").fails("refused", "is the server running");
}

fn the_server_of_rping_survives_a_dead_client() {
    with_link();
    let mut server = Server::of("rping --json --keep --bind 127.0.0.4");
    let mut client = command("rping 127.0.0.4 -i 1000000")
        .spawn()
        .expect("start the client");
    std::thread::sleep(std::time::Duration::from_millis(500));
    client.kill().expect("kill");
    client.wait().expect("wait");
    // The signal may have come between two pings, or in the middle of one.
    let line = "rping 127.0.0.4 -i 4 --json";
    assert_eq!(kfi(line).succeeds().json()["iterations"], 4);
    loop {
        if server.document()["iterations"] == 4 {
            break;
        }
    }
}

/// A client that is not rping connects and sends these bytes. The server ends the connection.
fn send_offer(server: &Server, bytes: &[u8]) {
    let (fabric, domain) = domain_on("roce0");
    let eq = fabric.eq().wait(Wait::Queue).open().expect("eq");
    let host = Host::prepared(&domain, &msg(), None, |ep| {
        ep.bind_eq(&eq).expect("bind eq")
    });
    let to = server.address.parse().expect("an address");
    host.ep.connect(to, b"").expect("connect");
    let next = || eq.read(SOON).expect("event").expect("in time").kind;
    assert_eq!(next(), EventKind::Connected);
    let sent = host.ep.send(FiAddr::UNSPEC, &holding(bytes), 1);
    sent.expect("send");
    assert_eq!(next(), EventKind::Shutdown);
}

/// A request without memory for its endpoint, and sizes that rping does not have. Each time the
/// client is told, and the next one is served.
fn the_server_of_rping_rejects_what_it_cannot_serve() {
    with_link();
    open_to_all();
    let mut line = command("rping --json --keep --bind 127.0.0.5");
    line.uid(USER).gid(USER);
    let mut server = Server::run(line);
    let is_served = |server: &mut Server| {
        let served = kfi("rping 127.0.0.5 -i 2 -s 30 --json").succeeds().json();
        assert_eq!(served["iterations"], 2);
        assert_eq!(server.document()["size"], 30);
    };
    is_served(&mut server);

    // A receive pins its buffer.
    let pid = Pid::from_child(&server.child);
    let may_pin = |bytes| {
        let limit = Rlimit {
            current: bytes,
            maximum: bytes,
        };
        prlimit(Some(pid), Resource::Memlock, limit).expect("prlimit");
    };
    may_pin(Some(0));
    kfi("rping 127.0.0.5 -i 1").fails("refused", "is it reachable");
    may_pin(None);
    is_served(&mut server);

    let sizes = [0, 65_536, u32::MAX];
    for size in sizes {
        let mut offer = [0; 16];
        offer[12..].copy_from_slice(&size.to_be_bytes());
        send_offer(&server, &offer);
        is_served(&mut server);
    }
    send_offer(&server, b"fifteen bytes..");
    is_served(&mut server);

    server.child.kill().expect("kill");
    let (_, err) = server.end();
    let errors: Vec<_> = err
        .lines()
        .map(|line| parse(line)["error"].clone())
        .collect();
    assert_eq!(errors.len(), 2 + sizes.len(), "{err}");
    assert_eq!(errors[0]["errno"], "ENOMEM", "{err}");
    for (error, size) in errors[1..].iter().zip(sizes) {
        let message = error["message"].as_str().expect("a message");
        let expected = format!("offers {size} bytes, and there are 1 to 65535");
        assert!(message.contains(&expected), "{err}");
    }
    let last = errors[1 + sizes.len()]["message"].as_str().expect("text");
    assert!(last.contains("sent 15 bytes instead of 16"), "{err}");
}
