// SPDX-License-Identifier: GPL-2.0
//! Peers on another host: they connect, are missing, close, die and come back.

use super::{LINKS, apart, exchange, next_domain, sanitizing};
use crate::{
    abi_threads::NetNs,
    harness::tests,
    host::{Host, Options, RECEIVED, SOON, buffer, domain_on, link_count, pair, pair_with, until},
    raw::ip,
};
use kfi::{Buffer, Caps, Domain, Entry, EpType, Errno, PacketCounter};
use std::time::{Duration, Instant};

tests![
    both_peers_can_connect_at_once,
    idle_connections_are_retired => 120,
    a_host_without_the_endpoint_refuses_the_connection,
    a_missing_host_times_out,
    a_peer_that_closes_and_comes_back,
    a_peer_that_is_killed_and_comes_back,
    many_endpoints_exchange_messages => 600,
    a_removed_link_fails_operations_under_way,
    closing_with_operations_under_way,
    closing_while_connecting,
    closing_ends_without_an_answer_of_the_peer,
    a_killed_process_fails_operations_of_its_peer => 120,
];

/// The roles in which a test starts this program as another process.
pub(crate) const ROLES: &[(&str, fn())] = &[("host_victim", victim)];

/// A connection that is idle for a minute is closed, and the next message makes another.
fn idle_connections_are_retired() {
    let hosts = apart();
    let (a, to_b, b, _) = pair();
    exchange(&a, to_b, &b, 100);
    // Packets of connection management: those of the link that are not the endpoint's.
    let managed_at = |index: usize, host: &Host| {
        let tx = PacketCounter::TxPackets;
        hosts.host(index).run(|| link_count(tx) - host.count(tx))
    };
    let managed = || managed_at(0, &a) + managed_at(1, &b);
    std::thread::sleep(Duration::from_secs(1));
    let connected = managed();
    assert!(connected > 0);
    std::thread::sleep(Duration::from_secs(50));
    assert_eq!(managed(), connected);
    until("the connection is retired", || managed() > connected);
    std::thread::sleep(Duration::from_secs(1));
    let retired = managed();
    exchange(&a, to_b, &b, 100);
    assert!(managed() > retired);
}

fn both_peers_can_connect_at_once() {
    apart();
    for _ in 0..20 {
        let (a, to_b, b, to_a) = pair();
        let (at_a, at_b) = (buffer(8), buffer(8));
        a.ep.recv(&at_a, 1).expect("recv");
        b.ep.recv(&at_b, 1).expect("recv");
        std::thread::scope(|scope| {
            scope.spawn(|| a.ep.inject(to_b, b"from a..").expect("inject"));
            scope.spawn(|| b.ep.inject(to_a, b"from b..").expect("inject"));
        });
        a.expect(RECEIVED, 1);
        b.expect(RECEIVED, 1);
        assert_eq!(at_a.to_vec(..), b"from b..");
        assert_eq!(at_b.to_vec(..), b"from a..");
    }
}

fn a_host_without_the_endpoint_refuses_the_connection() {
    apart();
    let (a, _, b, _) = pair();
    let mut addr = b.ep.name().expect("name");
    addr.set_port(1);
    let nobody = a.av.insert_one(addr).expect("insert");
    let from = buffer(8);
    let begin = Instant::now();
    a.ep.send(nobody, &from, 5).expect("send");
    a.fails(5, Errno::ECONNREFUSED);
    assert!(begin.elapsed() < Duration::from_secs(2));
}

fn a_missing_host_times_out() {
    apart();
    let a = Host::new();
    let addr = "10.7.0.99:4000".parse().expect("address");
    let nobody = a.av.insert_one(addr).expect("insert");
    let from = buffer(8);
    a.ep.send(nobody, &from, 5).expect("send");
    a.fails(5, Errno::ETIMEDOUT);
    // An address of this host without an endpoint.
    let mut own = a.ep.name().expect("name");
    own.set_port(1);
    let nobody = a.av.insert_one(own).expect("insert");
    let refused = a.ep.send(nobody, &from, 6).expect_err("nobody");
    assert_eq!(refused.errno(), Some(Errno::EHOSTUNREACH));
}

fn a_peer_that_closes_and_comes_back() {
    apart();
    let (a, to_b, b, _) = pair();
    exchange(&a, to_b, &b, 100);
    let addr = b.ep.name().expect("name");
    // A long message waits for its receive there.
    let long = buffer(100_000);
    a.ep.send(to_b, &long, 9).expect("send");
    std::thread::sleep(Duration::from_millis(100));
    let domain = b.domain.clone();
    drop(b);
    a.fails(9, Errno::ECONNRESET);
    let from = buffer(8);
    a.ep.send(to_b, &from, 5).expect("send");
    a.fails(5, Errno::ECONNREFUSED);
    let b = Host::at(&domain, &Options::default(), Some(addr));
    exchange(&a, to_b, &b, 100);
    exchange(&a, to_b, &b, 100_000);
}

fn a_peer_that_is_killed_and_comes_back() {
    let hosts = apart();
    let (a, to_b, b, _) = pair();
    exchange(&a, to_b, &b, 100);
    let addr = b.ep.name().expect("name");
    // The cable is cut: the process dies without a message to its peer.
    hosts.network("loss 100%");
    let from = buffer(8);
    a.ep.send(to_b, &from, 5).expect("send");
    let domain = b.domain.clone();
    let begin = Instant::now();
    drop(b);
    assert!(
        begin.elapsed() < Duration::from_secs(5),
        "closing takes long"
    );
    a.fails(5, Errno::ETIMEDOUT);
    assert!(begin.elapsed() < Duration::from_secs(10), "noticed late");
    hosts.network("loss 0%");
    let b = Host::at(&domain, &Options::default(), Some(addr));
    exchange(&a, to_b, &b, 100);
}

/// Four hundred on each host, or `KFI_MANY`; a hundred if the kernel is so slow that connections
/// time out as soon as there is something beside it.
fn many_endpoints_exchange_messages() {
    apart();
    // Few at a time: a slow machine cannot make so many connections at once.
    let (usual, at_once) = if sanitizing() { (100, 5) } else { (400, 20) };
    let many = std::env::var("KFI_MANY").map_or(usual, |many| many.parse().expect("a number"));
    let (_, at_a) = next_domain().expect("apart");
    let (_, at_b) = next_domain().expect("apart");
    let options = Options::sized(16, 16, 64);
    let open =
        |domain: &Domain| -> Vec<Host> { (0..many).map(|_| Host::on(domain, &options)).collect() };
    let (here, there) = (open(&at_a), open(&at_b));
    let into = buffer(64);
    // Each sends to three peers.
    for step in [0, 1, 7] {
        for some in (0..many).collect::<Vec<_>>().chunks(at_once) {
            for index in some {
                let (host, peer) = (&here[*index], &there[(index + step) % many]);
                peer.ep.recv(&into, 1).expect("recv");
                let to = host.meet(peer);
                host.ep
                    .inject(to, &(*index as u64).to_ne_bytes())
                    .expect("inject");
            }
            for index in some {
                there[(index + step) % many].expect(RECEIVED, 1);
            }
        }
    }
}

fn a_removed_link_fails_operations_under_way() {
    let hosts = apart();
    let (a, to_b, b, _) = pair();
    exchange(&a, to_b, &b, 8);
    let long = buffer(100_000);
    a.ep.send(to_b, &long, 9).expect("send");
    std::thread::sleep(Duration::from_millis(50));
    hosts.a.run(|| ip("link del va"));
    a.fails(9, Errno::ENODEV);
}

fn closing_with_operations_under_way() {
    apart();
    for _ in 0..10 {
        let (a, to_b, b, to_a) = pair_with(&Options::of(
            EpType::Rdm,
            Options::default().caps & !Caps::SOURCE,
        ));
        let buffers: Vec<Buffer> = (0..20)
            .map(|number| Buffer::new(1 << (number % 18)).expect("buffer"))
            .collect();
        for (number, buffer) in buffers.iter().enumerate() {
            a.ep.send(to_b, buffer, number as u64).expect("send");
            b.ep.send(to_a, buffer, number as u64).expect("send");
            if number % 3 == 0 {
                b.ep.recv(buffer, 100).expect("recv");
            }
        }
        // Operations have ended at both hosts, and some cannot end: long messages wait for
        // receives.
        let mut entries = [Entry::default(); 64];
        let mut ended = [0; 2];
        until("operations end at both hosts", || {
            for (host, ended) in [&a, &b].into_iter().zip(&mut ended) {
                *ended += match host.cq.read(&mut entries) {
                    Ok(count) => count,
                    // A message that was longer than its receive.
                    Err(_) => usize::from(host.cq.readerr().expect("readerr").is_some()),
                };
            }
            ended[0] > 0 && ended[1] > 0
        });
        assert!(ended[0] < 27, "nothing is under way at a");
        let begin = Instant::now();
        drop(a);
        drop(b);
        assert!(begin.elapsed() < SOON / 4, "closing takes long");
    }
    // The hosts have lost no resources by that.
    let (a, to_b, b, _) = pair();
    exchange(&a, to_b, &b, 100_000);
}

fn closing_while_connecting() {
    apart();
    for _ in 0..5 {
        let a = Host::new();
        let _ = next_domain();
        let from = buffer(100_000);
        for last in 90..100 {
            let addr = format!("10.7.0.{last}:4000").parse().expect("address");
            let nobody = a.av.insert_one(addr).expect("insert");
            a.ep.send(nobody, &from, last).expect("send");
        }
        let begin = Instant::now();
        drop(a);
        assert!(
            begin.elapsed() < Duration::from_secs(2),
            "closing takes long"
        );
    }
}

fn closing_ends_without_an_answer_of_the_peer() {
    let hosts = apart();
    let pairs: Vec<_> = (0..8).map(|_| pair()).collect();
    for (a, to_b, b, _) in &pairs {
        exchange(a, *to_b, b, 100);
    }
    // The network loses all packets: each close waits a moment for an answer.
    hosts.network("loss 100%");
    for (a, _, b, _) in pairs {
        let begin = Instant::now();
        drop((a, b));
        assert!(
            begin.elapsed() < Duration::from_secs(4),
            "closing takes long"
        );
    }
    hosts.network("loss 0%");
}

/// The host of the victim, its address and that of its peer.
const VICTIM: [&str; 3] = ["VICTIM_HOST", "VICTIM_ADDR", "VICTIM_PEER"];

/// Sends to its peer, and receives, until it is killed.
fn victim() {
    let [host, addr, peer] = VICTIM.map(|name| std::env::var(name).expect("told"));
    let (_fabric, domain) = NetNs::open(&host).run(|| domain_on(LINKS[1]));
    let options = Options::sized(0, 0, 1024);
    let me = Host::at(&domain, &options, Some(addr.parse().expect("address")));
    let peer = me
        .av
        .insert_one(peer.parse().expect("address"))
        .expect("insert");
    let buffers: Vec<Buffer> = (0..8)
        .map(|index| Buffer::new(64 << (2 * index)).expect("buffer"))
        .collect();
    let mut step = 0;
    loop {
        let buffer = &buffers[step % buffers.len()];
        // With any result.
        let _ = me.ep.send(peer, buffer, 1);
        let _ = me.ep.recv(buffer, 2);
        let _ = me.cq.next(Duration::from_millis(1));
        step += 1;
    }
}

fn a_killed_process_fails_operations_of_its_peer() {
    let hosts = apart();
    let (a, to_b, b, _) = pair();
    let addr = b.ep.name().expect("name");
    let domain = b.domain.clone();
    drop(b);
    let into = buffer(1 << 20);
    let said = [
        hosts.b.path(),
        addr.to_string(),
        a.ep.name().expect("name").to_string(),
    ];
    for round in 0..15 {
        let mut child = std::process::Command::new(std::env::current_exe().expect("own path"))
            .args(["--role", "host_victim"])
            .envs(VICTIM.iter().zip(&said))
            .spawn()
            .expect("start a process");
        // The process is ready when it has written a line.
        a.ep.recv(&into, 1).expect("recv");
        while a.cq.next(SOON).is_err() {
            a.ep.recv(&into, 1).expect("recv");
        }
        for number in 0..round {
            let len = 1 << number;
            let _ = a.ep.recv(&into, 1);
            let _ = a.ep.send(to_b, into.slice(..len), 2);
        }
        std::thread::sleep(Duration::from_millis(round * 3));
        child.kill().expect("kill");
        child.wait().expect("wait");
    }
    // Operations under way have ended, and a new process takes no messages of the old one.
    let b = Host::at(&domain, &Options::default(), Some(addr));
    drop(a);
    let a = Host::new();
    exchange(&a, a.meet(&b), &b, 100_000);
}
