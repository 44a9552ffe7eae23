// SPDX-License-Identifier: GPL-2.0
//! The command between two hosts: addresses with a scope, the choice of the link, and servers that
//! no peer and no message ends.

use std::time::Duration;

use kfi::{AvKind, Buffer, CqBind, CqFormat, Device, Endpoint, FiAddr, Wait};
use serde_json::Value;

use super::{
    command::{Server, kfi, with_link},
    trigger::{far, far_command, two_hosts},
};
use crate::{
    harness::tests,
    raw::{Netdev, ip},
};

tests![
    link_local_addresses_work_in_every_command => 180,
    the_link_is_that_of_the_address_or_the_route => 120,
    no_message_and_no_client_ends_a_server => 180,
    a_server_refuses_what_its_arguments_do_not_allow,
];

/// Two hosts whose interfaces have link-local addresses only, and different indices; gives the
/// address of this host and that of the other one.
fn link_local_hosts() -> (String, String) {
    two_hosts();
    kfi("link del roce0").succeeds();
    far("link del roce0").succeeds();
    ip("address flush dev veth0 scope global");
    ip("-n far address flush dev veth1 scope global");
    // A new interface has a higher index there, as on another machine.
    ip("-n far link add spare type dummy");
    ip("-n far link add spare2 type dummy");
    ip("link del veth0");
    ip("link add veth0 type veth peer name veth1 netns far");
    for host in ["", "-n far "] {
        let netdev = if host.is_empty() { "veth0" } else { "veth1" };
        let own = if host.is_empty() {
            "fe80::a"
        } else {
            "fe80::b"
        };
        ip(&format!("{host}link set {netdev} addrgenmode none"));
        ip(&format!("{host}address add {own}/64 dev {netdev} nodad"));
        ip(&format!("{host}link set {netdev} up"));
    }
    kfi("link add roce0 netdev veth0").succeeds();
    far("link add roce0 netdev veth1").succeeds();
    ("fe80::a".to_owned(), "fe80::b".to_owned())
}

fn link_local_addresses_work_in_every_command() {
    let (here, there) = link_local_hosts();
    let shown = kfi("link").succeeds().out;
    assert!(shown.contains(&format!("{here}%veth0")), "{shown}");
    // The server's own address is that of its link.
    for bind in [String::new(), format!("--bind {there}%veth1")] {
        let options = ["", &format!("--bind {here}%veth0"), "-m rma", "--window 4"];
        let mut server = Server::run(far_command(&format!("pingpong --json --keep {bind}")));
        for option in options {
            let line = format!("pingpong {there}%veth0 -i 20 --json {option}");
            let result = kfi(&line).succeeds().json();
            let peer = result["peer"].as_str().expect("an address");
            assert!(peer.starts_with(&format!("[{there}%")), "{peer}");
            assert_eq!(server.document()["iterations"], 20, "{line}");
        }
        // With --link the scope is known; so it is if there is one link.
        kfi(&format!("pingpong --link roce0 {there} -i 5")).succeeds();
        kfi(&format!("pingpong {there} -i 5")).succeeds();
        drop(server);
        let server = Server::run(far_command(&format!("rping --json --keep {bind}")));
        kfi(&format!("rping {there}%veth0 -i 3")).succeeds();
        kfi(&format!("rping --bind {here}%veth0 {there}%veth0 -i 3")).succeeds();
        drop(server);
        for verbs in ["rc", "ud"] {
            let line = format!("pingpong --verbs {verbs} --json --keep -i 5 {bind}");
            let server = Server::run(far_command(&line));
            kfi(&format!("pingpong --verbs {verbs} -i 5 {there}%veth0")).succeeds();
            drop(server);
        }
        let server = Server::run(far_command(&format!(
            "trigger --serve --keep --json {bind}"
        )));
        kfi(&format!("trigger {there}%veth0 -n 4 -i 2")).succeeds();
        drop(server);
    }
    let text = kfi(&format!("flow --bind {here}%veth0 --send 3 --time 0.3"));
    let text = text.succeeds().out;
    assert!(
        text.starts_with(&format!("counts datagrams to [{here}%")),
        "{text}"
    );
    kfi("pingpong fe80::b%nosuchdev0").fails("interface", "ip link");
    ip("netns del far");
}

fn the_link_is_that_of_the_address_or_the_route() {
    two_hosts();
    // Links that come first, but do not lead there.
    kfi("link del roce0").succeeds();
    kfi("link add lo netdev lo").succeeds();
    let _netdev = Netdev::dummy("dmy0", "10.9.0.1/24");
    kfi("link add other netdev dmy0").succeeds();
    kfi("link add roce0 netdev veth0").succeeds();
    ip("address add 10.7.0.1/24 dev veth0");
    ip("-n far route add 10.7.0.0/24 via 10.8.0.1");

    // A client: by the route.
    let mut server = Server::run(far_command("pingpong --json --keep"));
    let result = kfi("pingpong 10.8.0.2 -i 5 --json").succeeds().json();
    assert_eq!(result["link"], "roce0");
    server.document();
    drop(server);
    let _server = Server::run(far_command("rping --json --keep"));
    assert_eq!(
        kfi("rping 10.8.0.2 -i 2 --json").succeeds().json()["link"],
        "roce0"
    );
    let _server = Server::run(far_command("trigger --serve --keep --json"));
    kfi("trigger 10.8.0.2 -n 2 -i 1").succeeds();

    // A server: by the second address of a link; without an address not on lo.
    let server = Server::start("--bind 10.7.0.1");
    assert_eq!(server.address, "10.7.0.1:7471");
    assert_eq!(
        far("pingpong 10.7.0.1 -i 5 --json").succeeds().json()["link"],
        "roce0"
    );
    drop(server);
    let server = Server::start("");
    assert_eq!(server.address, "10.9.0.1:7471");
    drop(server);
    let server = Server::of("rping --json --keep --bind 10.7.0.1");
    far("rping 10.7.0.1 -i 2").succeeds();
    drop(server);
    // Addresses of a loopback interface that it does not list.
    let server = Server::start("--bind 127.0.0.9");
    assert_eq!(
        kfi("pingpong 127.0.0.9 -i 5 --json").succeeds().json()["link"],
        "lo"
    );
    drop(server);

    // The cause, and not the peer.
    kfi("pingpong 10.200.0.1").fails("there is no route to 10.200.0.1", "ip route get 10.200.0.1");
    kfi("link del roce0").succeeds();
    kfi("pingpong 10.8.0.2").fails("which no link that is up has", "kfi link add");
    kfi("pingpong --bind 10.7.0.1").fails("no link that is up has the address", "kfi link add");
    ip("netns del far");
}

/// An endpoint that sends to servers what no client sends.
struct Stray {
    ep: Endpoint,
    /// Completions of sends. An answer can come before that of its request.
    sent: kfi::Cq,
    received: kfi::Cq,
    av: kfi::Av,
}

impl Stray {
    fn open() -> Self {
        let fabric = Device::open().expect("open").fabric().expect("fabric");
        let domain = fabric.domain("roce0").open().expect("domain");
        let cq = || domain.cq().format(CqFormat::Msg).wait(Wait::Queue).open();
        let (sent, received) = (cq().expect("cq"), cq().expect("cq"));
        let av = domain.av().kind(AvKind::Table).open().expect("av");
        let ep = domain.endpoint().open().expect("endpoint");
        ep.bind_cq(&sent, CqBind::TRANSMIT).expect("bind");
        ep.bind_cq(&received, CqBind::RECV).expect("bind");
        ep.bind_av(&av).expect("bind");
        ep.enable().expect("enable");
        Self {
            ep,
            sent,
            received,
            av,
        }
    }

    fn peer(&self, server: &Server) -> FiAddr {
        let addr = server.address.parse().expect("an address");
        self.av.insert_one(addr).expect("insert")
    }

    /// Sends, and waits until the message was received or refused.
    fn send(&self, server: &Server, bytes: &[u8]) {
        let buffer = Buffer::from_bytes(bytes).expect("memory");
        self.ep.send(self.peer(server), &buffer, 1).expect("send");
        let _ = self.sent.next(Duration::from_secs(10));
    }

    /// The request of a client at this endpoint, with members of its own.
    fn hello(&self, change: impl FnOnce(&mut Value)) -> Vec<u8> {
        let own = self.ep.name().expect("name").to_string();
        let mut hello = serde_json::json!({
            "version": 2, "control": own, "data": own, "region": null, "mode": "msg",
            "completion": "cq", "wait": "sread", "size": 8, "count": 1, "warmup": 0,
            "window": null, "more": false, "trace": false,
        });
        change(&mut hello);
        serde_json::json!({ "hello": hello })
            .to_string()
            .into_bytes()
    }
}

fn no_message_and_no_client_ends_a_server() {
    with_link();
    for (line, client) in [
        (
            "pingpong --json --keep --timeout 1",
            "pingpong 127.0.0.1 -i 5",
        ),
        (
            "trigger --serve --json --keep --timeout 1",
            "trigger 127.0.0.1 -n 2 -i 1",
        ),
    ] {
        let server = Server::of(line);
        let stray = Stray::open();
        for bytes in [
            &[0; 100][..],
            &[b'x'; 9000],
            b"",
            b"{\"bye\":{\"answers\":1}}",
        ] {
            stray.send(&server, bytes);
        }
        // A client that has left before the answer.
        let gone = Stray::open();
        let hello = gone.hello(|_| {});
        gone.send(&server, &hello);
        drop(gone);
        // One that asks for a game, and for another one, and is silent then.
        stray.send(&server, &stray.hello(|hello| hello["more"] = true.into()));
        kfi(client).succeeds();
        stray.send(&server, &[b'x'; 9000]);
        kfi(client).succeeds();
    }
}

fn a_server_refuses_what_its_arguments_do_not_allow() {
    with_link();
    let server = Server::start("--keep --max-size 64K");
    let stray = Stray::open();
    let answer = Buffer::new(8192).expect("memory");
    let requests: [(&str, Value); 6] = [
        ("size", (8_u64 << 30).into()),
        ("size", 65_537.into()),
        ("count", 0.into()),
        ("count", u64::MAX.into()),
        ("window", 257.into()),
        ("version", 1.into()),
    ];
    for (member, value) in requests {
        stray.ep.recv(&answer, 2).expect("recv");
        let hello = stray.hello(|hello| hello[member] = value);
        stray.send(&server, &hello);
        let entry = stray.received.next(Duration::from_secs(10));
        let entry = entry.expect("an answer").expect("an answer");
        let text = answer.to_vec(..entry.len as usize);
        let text = String::from_utf8_lossy(&text);
        assert!(text.starts_with("{\"no\":"), "{member}: {text}");
    }
    kfi("pingpong 127.0.0.1 -s 1M").fails("--max-size", "smaller");
    kfi("pingpong 127.0.0.1 -s 64K -i 3").succeeds();
}
