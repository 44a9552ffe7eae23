// SPDX-License-Identifier: GPL-2.0
//! Many endpoints (newcomers) whose first operations go to the same endpoint at the same time. The
//! module makes the connections, with cookies if there are many requests. Users see only that each
//! operation completes once and in order.

use crate::{
    connected::open_region,
    harness::tests,
    host::{Host, Options, READ, SOON, TSENT, WROTE, buffer, holding, netns_count, pattern, until},
    hosts::{Hosts, apart, sanitizing},
};
use kfi::{Buffer, Entry, Errno, Error, FiAddr, Mr, Op, OpFlags, PacketCounter, Remote};
use std::time::Duration;

tests![
    first_operations_of_every_kind_complete_once => 300,
    first_operations_complete_over_ipv6 => 300,
    first_operations_complete_over_a_lossy_network => 300,
    first_operations_are_cancelled_or_complete => 300,
];

/// Bytes of a long message.
const LONG: usize = 20_000;

/// Bytes that belong to each newcomer.
const PART: usize = 64;

/// One endpoint, and many on the other host that do not know it yet.
struct Scene {
    hosts: &'static Hosts,
    b: Host,
    memory: Buffer,
    mr: Mr,
    newcomers: Vec<(Host, FiAddr)>,
}

impl Scene {
    /// With these addresses of the hosts, if they are not the usual ones.
    fn new(count: usize, addrs: Option<[&str; 2]>) -> Self {
        let hosts = apart();
        let many = Options::sized(0, 1024, 4096);
        let few = Options::sized(8, 8, 16);
        let addr = |host: usize| addrs.map(|addrs| addrs[host].parse().expect("an address"));
        let b = Host::at(&hosts.domain(1).1, &many, addr(1));
        let memory = holding(&pattern(count * PART, 1));
        let mr = open_region(&b, &memory, 1);
        let (_, domain) = hosts.domain(0);
        let newcomers = (0..count)
            .map(|_| {
                let host = Host::at(&domain, &few, addr(0));
                let to_b = host.meet(&b);
                (host, to_b)
            })
            .collect();
        Self {
            hosts,
            b,
            memory,
            mr,
            newcomers,
        }
    }

    /// The number of requests that were answered with a cookie.
    fn cookies(&self) -> u64 {
        netns_count(self.hosts.host(1), PacketCounter::CmUnproven)
    }

    fn part(&self, index: usize) -> Remote {
        self.mr.remote((index * PART) as u64)
    }
}

/// The first operation of a newcomer: a short message, an injected one, a write, a read, or a long
/// message.
fn first<'a>(scene: &Scene, index: usize, ours: &'a Buffer, bytes: &'a [u8]) -> Op<'a> {
    let (to_b, tag) = (scene.newcomers[index].1, index as u64);
    match index % 5 {
        0 => Op::tsend(to_b, ours.slice(..PART), tag),
        1 => Op::tinject(to_b, bytes, tag),
        2 => Op::write(to_b, ours.slice(..PART), scene.part(index)),
        3 => Op::read(to_b, ours.slice(..PART), scene.part(index)),
        _ => Op::tsend(to_b, ours, tag).flags(OpFlags::DELIVERY_COMPLETE),
    }
    .context(1)
}

fn complete_once(scene: &Scene, netem: Option<&str>) {
    let count = scene.newcomers.len();
    let b = &scene.b;
    if let Some(netem) = netem {
        scene.hosts.network(netem);
    }
    let ours: Vec<Buffer> = (0..count)
        .map(|index| holding(&pattern(LONG, 100 + index as u64)))
        .collect();
    let theirs: Vec<[Buffer; 2]> = (0..count).map(|_| [buffer(LONG), buffer(8)]).collect();
    let is_message = |index: usize| !matches!(index % 5, 2 | 3);
    for (index, [one, two]) in theirs.iter().enumerate() {
        let tag = index as u64;
        if is_message(index) {
            b.ep.trecv(one, tag, 0, 2 * tag).expect("trecv");
        }
        b.ep.trecv(two, tag, 0, 2 * tag + 1).expect("trecv");
    }
    for (index, (host, to_b)) in scene.newcomers.iter().enumerate() {
        let bytes = ours[index].to_vec(..PART);
        let ops = [
            first(scene, index, &ours[index], &bytes),
            Op::tinject(*to_b, b"second", index as u64),
        ];
        assert!(host.ep.post(&ops).expect("post").all());
    }
    for (index, (host, _)) in scene.newcomers.iter().enumerate() {
        match index % 5 {
            0 | 4 => drop(host.expect(TSENT, 1)),
            1 => {}
            2 => drop(host.expect(WROTE, 1)),
            _ => drop(host.expect(READ, 1)),
        }
    }
    let messages = count + (0..count).filter(|index| is_message(*index)).count();
    let mut lens = vec![None; 2 * count];
    for _ in 0..messages {
        let entry = b.completion();
        let place = &mut lens[entry.op_context as usize];
        assert_eq!(place.replace(entry.len as usize), None, "{entry:?}");
    }
    for (index, [one, two]) in theirs.iter().enumerate() {
        let sent = pattern(LONG, 100 + index as u64);
        let (len, [first, second]) = (
            if index % 5 == 4 { LONG } else { PART },
            [lens[2 * index], lens[2 * index + 1]],
        );
        assert_eq!(second, Some(6), "newcomer {index}");
        assert_eq!(two.to_vec(..6), b"second");
        let there = scene.memory.to_vec(index * PART..(index + 1) * PART);
        let original = pattern(count * PART, 1)[index * PART..(index + 1) * PART].to_vec();
        if is_message(index) {
            assert_eq!(first, Some(len), "newcomer {index}");
            assert!(one.to_vec(..len) == sent[..len], "newcomer {index}");
        }
        match index % 5 {
            2 => assert!(there == sent[..PART], "newcomer {index}"),
            3 => assert!(ours[index].to_vec(..PART) == original, "newcomer {index}"),
            _ => assert!(there == original, "newcomer {index}"),
        }
    }
    // There are no other completions.
    for host in scene.newcomers.iter().map(|(host, _)| host).chain([b]) {
        host.expect_nothing();
        assert!(host.cq.readerr().expect("readerr").is_none());
    }
    if netem.is_some() {
        scene.hosts.network("loss 0%");
    } else if !sanitizing() {
        // Under the sanitizing kernel the requests come so slowly that none needs a cookie.
        assert!(scene.cookies() > 0, "no request needed a cookie");
    }
}

fn first_operations_of_every_kind_complete_once() {
    let count = if sanitizing() { 20 } else { 100 };
    complete_once(&Scene::new(count, None), None);
}

fn first_operations_complete_over_ipv6() {
    let count = if sanitizing() { 20 } else { 60 };
    let scene = Scene::new(count, Some(["[fd07::1]:0", "[fd07::2]:0"]));
    assert!(scene.b.ep.name().expect("name").is_ipv6());
    complete_once(&scene, None);
}

fn first_operations_complete_over_a_lossy_network() {
    let count = if sanitizing() { 20 } else { 50 };
    complete_once(&Scene::new(count, None), Some("delay 1ms loss 3%"));
}

/// A message to an endpoint that is not connected yet may be cancelled. It arrives if and only if
/// it succeeds.
fn first_operations_are_cancelled_or_complete() {
    // All must have connected within 5 s.
    let count = if sanitizing() { 20 } else { 60 };
    let scene = Scene::new(count, None);
    let b = &scene.b;
    let theirs = buffer(LONG);
    for tag in 0..count as u64 {
        b.ep.trecv(&theirs, tag, 0, tag).expect("trecv");
    }
    let from = buffer(LONG);
    // No connection is there before the operations are cancelled.
    scene.hosts.network("delay 100ms");
    for (tag, (host, to_b)) in (0..).zip(&scene.newcomers) {
        host.ep.tsend(*to_b, &from, tag, 5).expect("tsend");
    }
    for (host, _) in scene.newcomers.iter().step_by(2) {
        let _ = host.ep.cancel(5);
    }
    let mut cancelled = 0;
    let mut arrives = vec![false; count];
    for (index, (host, _)) in scene.newcomers.iter().enumerate() {
        match host.cq.next(SOON) {
            Ok(Some(entry)) => {
                assert_eq!((entry.flags, entry.op_context), (TSENT, 5));
                arrives[index] = true;
            }
            Err(Error::Completion(entry)) => {
                let found = (entry.err, entry.op_context, entry.flags);
                assert_eq!(found, (Errno::ECANCELED, 5, TSENT));
                assert_eq!(index % 2, 0, "nobody has cancelled it");
                cancelled += 1;
            }
            other => panic!("{other:?}"),
        }
        host.expect_nothing();
    }
    assert!(cancelled > 0, "all have connected too early");
    scene.hosts.network("loss 0%");
    let mut received = vec![false; count];
    until("all messages have arrived", || {
        let mut entries = [Entry::default(); 8];
        let found = b.cq.read(&mut entries).expect("read");
        for entry in &entries[..found] {
            received[entry.op_context as usize] = true;
        }
        received.iter().filter(|there| **there).count() >= count - cancelled
    });
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(received, arrives);
    b.expect_nothing();
}
