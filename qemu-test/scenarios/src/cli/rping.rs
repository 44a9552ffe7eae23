// SPDX-License-Identifier: GPL-2.0
//! `kfi rping`, with itself as the peer; with that of rdma-core, see `qemu-test/interop`.

use super::command::{Server, kfi, with_link};
use crate::harness::tests;

tests![
    rping_works_with_every_size => 120,
    rping_works_over_ipv6,
    rping_shows_the_exchanged_text,
    rping_reports_a_missing_server,
    the_server_of_rping_survives_a_dead_client,
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
    let mut client = super::command::command("rping 127.0.0.4 -i 1000000")
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
