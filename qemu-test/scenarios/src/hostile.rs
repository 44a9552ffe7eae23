// SPDX-License-Identifier: GPL-2.0
//! Packets that no correct peer sends, from a host on the same network that can send any packet,
//! also with the peer's source address: each is counted by its cause, and has no other effect.
//!
//! `kfi-scenarios --hostile SECONDS SEED` runs the [siege], a load test that makes all attacks in
//! turn while the good flow (legitimate traffic between two other hosts) goes on.
//!
//! | file | what |
//! |---|---|
//! | [`packet`] | packets made by hand, and the sockets that send and capture them |
//! | [`field`] | the network of a siege: its hosts, the attacker, and what the attacker knows |
//! | [`flow`] | the good flow |
//! | [`victims`] | an endpoint that accepts every peer, and a listener |
//! | [`peer`] | a connection that the attacker has made itself |
//! | [`attacks`] | the list of attacks, and those on connection management |
//! | [`blind`] | attacks on QPs, without a connection |
//! | [`datagrams`] | datagrams, good and damaged ones, to an endpoint with flows |
//! | [`atomics`] | atomics of a peer, and answers to atomics, that are invalid |
//! | [`bad_atomics`] | the list of invalid atomics |
//! | [`guessers`] | hosts that try keys of memory regions |
//! | [`half_open`] | requests that are accepted and never confirmed |
//! | [`hoard`] | connections and messages of one host that are kept |
//! | [`no_bytes`] | READs and WRITEs of no bytes |
//! | [`other_namespace`] | addresses and routes of another namespace that change |
//! | [`others_cookies`] | requests in the name of others, with cookies that are not theirs |
//! | [`greetings`] | attacks on connection management with another authorization key |
//! | [`capabilities`] | messages of a peer that an endpoint does not receive |
//! | [`overdue`] | a peer that acknowledges everything and answers nothing |
//! | [`receives`] | messages of a peer that violates the protocol when a part of them has come |
//! | [`tagged`] | tagged RMA of a peer, and answers to tagged RMA, that are invalid |
//! | [`owned`] | attacks over connections of the attacker's own |
//! | [`mutate`] | recorded packets, changed and sent again |
//! | [`evidence`] | statistics that show that packets have reached the module |
//! | [`one_peer`] | connections of one host, for tests of other files |
//! | [`siege`] | the run |
//! | [`unproven`] | the number of answers to messages of connection management that may be forged |

pub(crate) mod atomics;
mod attacks;
mod bad_atomics;
mod blind;
pub(crate) mod capabilities;
mod datagrams;
mod evidence;
mod field;
mod flow;
mod greetings;
mod guessers;
mod half_open;
mod hoard;
mod mutate;
mod no_bytes;
pub(crate) mod one_peer;
mod other_namespace;
mod others_cookies;
pub(crate) mod overdue;
mod owned;
mod packet;
mod peer;
pub(crate) mod receives;
pub(crate) mod siege;
pub(crate) mod tagged;
pub(crate) mod unproven;
mod victims;

use crate::{
    harness::tests,
    host::{Host, Options, RECEIVED, buffer, exchange, link_count, netns_count, register, until},
    networks::{Wire, dgram},
    raw::ip,
};
use kfi::{Access, Buffer, Device, Errno, FiAddr, PacketCounter, PacketsOf, QpState, StatClass};
use kfi_core::rdm::service_id;
use kfi_roce::{
    headers::{Aeth, Bth, Deth, Headers, Qpn, Reth, SendEnd, Syndrome},
    icrc::{IPV4_LEN, UDP_LEN},
    packet::{Packet, UDP_PORT},
    psn::Psn,
};
pub(crate) use packet::RawSocket;
use packet::Way;
use std::{
    net::{Ipv4Addr, UdpSocket},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

const A: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const B: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

const PEER: FiAddr = FiAddr::UNSPEC;

tests![
    malformed_packets_are_dropped => 300,
    packets_to_unknown_qps_are_dropped => 300,
    packets_of_other_hosts_are_dropped => 300,
    packets_with_a_wrong_icrc_are_dropped => 300,
    packets_with_wrong_sequence_numbers_are_not_executed => 300,
    responses_without_a_request_are_ignored => 300,
    an_unknown_key_ends_the_connection => 300,
    a_wrong_length_is_refused => 300,
    a_datagram_with_another_qkey_is_dropped => 300,
    a_flood_of_bad_packets => 300,
    rejected_requests_leave_room => 600,
    requests_from_a_broadcast_address => 300,
    statistics_are_in_debugfs => 300,
];

/// A packet to `b` with a good ICRC.
fn whole(from: Ipv4Addr, packet: &Packet, payload: &[u8]) -> Vec<u8> {
    packet::whole(Way::new(from, B), packet, payload)
}

/// A connection between two hosts, seen from `b`, and the attacker's socket.
struct Scene {
    wire: Wire,
    a: Host,
    b: Host,
    attacker: RawSocket,
}

impl Scene {
    fn new() -> Self {
        let wire = Wire::new();
        let (a, b) = wire.pair();
        let attacker = RawSocket::new(&wire.a);
        let scene = Self {
            wire,
            a,
            b,
            attacker,
        };
        scene.is_unharmed();
        scene
    }

    /// A packet counter of `b`'s endpoint.
    fn count(&self, counter: PacketCounter) -> u64 {
        self.wire.b.run(|| self.b.count(counter))
    }

    /// A packet counter of `b`'s namespace.
    fn count_unassigned(&self, counter: PacketCounter) -> u64 {
        netns_count(&self.wire.b, counter)
    }

    /// Sends a packet, which `b` counts here, once.
    #[track_caller]
    fn counts_unassigned(&self, counter: PacketCounter, send: impl FnOnce()) {
        let before = self.count_unassigned(counter);
        send();
        until(counter.name(), || {
            self.count_unassigned(counter) == before + 1
        });
    }

    /// Sends a packet to `b`'s endpoint, which counts it here, once.
    #[track_caller]
    fn counts(&self, counter: PacketCounter, packet: &[u8]) {
        let before = self.count(counter);
        self.attacker.send(packet);
        until(counter.name(), || self.count(counter) == before + 1);
    }

    /// The number of `b`'s QP.
    fn qpn(&self) -> Qpn {
        Qpn::new(self.b.qp().0.qpn)
    }

    /// The next PSN that `b` expects.
    fn psn(&self, sent: u32) -> Psn {
        Psn::new(self.a.qp().1).add(sent)
    }

    /// A message shows that the connection works.
    #[track_caller]
    fn is_unharmed(&self) {
        exchange(&self.a, PEER, &self.b, 5000);
        exchange(&self.b, PEER, &self.a, 100);
    }
}

/// Packets of `a` with 5000 bytes.
const PACKETS: u32 = 5;

fn send_only(scene: &Scene, psn: Psn) -> Packet {
    let bth = Bth::new(scene.qpn(), psn);
    Packet::new(bth, Headers::SendOnly(SendEnd::Plain), 8)
}

fn malformed_packets_are_dropped() {
    let scene = Scene::new();
    let packet = whole(A, &send_only(&scene, Psn::new(0)), &[0; 8]);
    let good = &packet[IPV4_LEN + UDP_LEN..];
    let change = |at: usize, byte: u8| {
        let mut bytes = good.to_vec();
        bytes[at] = byte;
        bytes
    };
    let socket = scene.wire.a.run(|| UdpSocket::bind((A, 0)).expect("bind"));
    let send = |bytes: &[u8]| {
        socket.send_to(bytes, (B, UDP_PORT)).expect("send");
    };
    for (bytes, counter) in [
        (Vec::new(), PacketCounter::DropShort),
        (good[..8].to_vec(), PacketCounter::DropShort),
        (good[..good.len() - 1].to_vec(), PacketCounter::DropLength),
        (change(0, 0xc4), PacketCounter::DropOpcode),
        // An unreliable connection's.
        (change(0, 0x24), PacketCounter::DropOpcode),
        (change(1, 0x01), PacketCounter::DropVersion),
        (change(2, 0), PacketCounter::DropPkey),
        (
            vec![4, 0x30, 0xff, 0xff, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0],
            PacketCounter::DropPad,
        ),
    ] {
        scene.counts_unassigned(counter, || send(&bytes));
    }
    // Longer than any path MTU.
    let long = [&good[..12], &[0; 8000]].concat();
    for netns in [&scene.wire.a, &scene.wire.b] {
        netns.run(|| ip("link set veth0 mtu 9000"));
    }
    scene.counts_unassigned(PacketCounter::DropTooLong, || send(&long));
    scene.is_unharmed();
}

fn packets_to_unknown_qps_are_dropped() {
    let scene = Scene::new();
    let own = scene.qpn().get();
    for qpn in [0, 2, own ^ 1, own ^ (1 << 23), 0xff_ffff] {
        let bth = Bth::new(Qpn::new(qpn), Psn::new(0));
        let packet = Packet::new(bth, Headers::SendOnly(SendEnd::Plain), 8);
        let packet = whole(A, &packet, &[0; 8]);
        scene.counts_unassigned(PacketCounter::DropNoQp, || scene.attacker.send(&packet));
    }
    scene.is_unharmed();
}

fn packets_of_other_hosts_are_dropped() {
    let scene = Scene::new();
    let packet = send_only(&scene, scene.psn(PACKETS));
    let packet = whole(Ipv4Addr::new(192, 0, 2, 77), &packet, &[9; 8]);
    scene.counts(PacketCounter::DropSource, &packet);
    // Of the peer, and of another service.
    let deth = Deth {
        qkey: 0,
        src_qp: Qpn::new(5),
    };
    let bth = Bth::new(scene.qpn(), scene.psn(PACKETS));
    let packet = Packet::new(bth, Headers::Datagram(deth, None), 8);
    scene.counts(PacketCounter::DropService, &whole(A, &packet, &[9; 8]));
    scene.is_unharmed();
}

fn packets_with_a_wrong_icrc_are_dropped() {
    let scene = Scene::new();
    let good = whole(A, &send_only(&scene, scene.psn(PACKETS)), &[9; 8]);
    let (begin, end) = (IPV4_LEN + UDP_LEN, good.len());
    for at in [begin + 11, begin + 12, end - 5, end - 4, end - 1] {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        scene.counts(PacketCounter::DropIcrc, &bad);
    }
    scene.is_unharmed();
}

fn packets_with_wrong_sequence_numbers_are_not_executed() {
    let scene = Scene::new();
    // An old PSN: acknowledged again, and not executed.
    let into = buffer(8);
    scene.b.ep.recv(&into, 5).expect("recv");
    let packet = send_only(&scene, scene.psn(0));
    scene.counts(PacketCounter::Duplicates, &whole(A, &packet, &[9; 8]));
    // A PSN behind the next one.
    let before = scene.count(PacketCounter::OutOfSequence);
    for ahead in [3, 1000, 0xff00] {
        let packet = send_only(&scene, scene.psn(PACKETS + ahead));
        scene.attacker.send(&whole(A, &packet, &[9; 8]));
    }
    until("out_of_sequence", || {
        scene.count(PacketCounter::OutOfSequence) == before + 3
    });
    // Further ahead than any window: no answer.
    let naks = scene.count(PacketCounter::NakSequenceTx);
    for ahead in [0x1_0100, 0x40_0000, 0x7f_0000] {
        let packet = send_only(&scene, scene.psn(PACKETS + ahead));
        scene.attacker.send(&whole(A, &packet, &[9; 8]));
    }
    until("drop_psn", || scene.count(PacketCounter::DropPsn) == 3);
    assert_eq!(scene.count(PacketCounter::NakSequenceTx), naks);
    scene.b.expect_nothing();
    assert_eq!(into.to_vec(..), [0; 8]);
    scene.b.ep.cancel(5).expect("cancel");
    assert_eq!(scene.b.failure().err, Errno::ECANCELED);
    scene.is_unharmed();
}

fn responses_without_a_request_are_ignored() {
    let scene = Scene::new();
    let ack = Aeth {
        syndrome: Syndrome::ACK,
        msn: Psn::new(77),
    };
    // Acknowledgements of packets that were never sent.
    let bth = Bth::new(scene.qpn(), Psn::new(scene.b.qp().1).add(5000));
    for headers in [Headers::Acknowledge(ack), Headers::ReadResponseOnly(ack)] {
        let packet = whole(A, &Packet::new(bth, headers, 0), &[]);
        scene.counts(PacketCounter::Strays, &packet);
    }
    scene.is_unharmed();
}

/// Writes `len` bytes under `key` with the peer's address, and with the length `said` in the RETH.
fn write_as_peer(key: u32, claimed: u32, len: usize) -> (Scene, Buffer) {
    let scene = Scene::new();
    let memory = buffer(64);
    let region = register(&scene.b.domain, &memory, Access::REMOTE_WRITE, 0x1234);
    let into = buffer(8);
    scene.b.ep.recv(&into, 5).expect("recv");
    let reth = Reth {
        va: 0,
        rkey: key,
        len: claimed,
    };
    let bth = Bth::new(scene.qpn(), scene.psn(PACKETS));
    let packet = Packet::new(bth, Headers::WriteOnly(reth, None), len);
    scene.attacker.send(&whole(A, &packet, &vec![9; len]));
    // An attacker that knows the peer's QPN and PSN can end its connection, but not more.
    scene.b.fails(5, Errno::ECANCELED);
    assert_eq!(scene.b.ep.qp().expect("qp").state, QpState::Error);
    assert_eq!(memory.to_vec(..), [0; 64]);
    drop(region);
    (scene, memory)
}

fn an_unknown_key_ends_the_connection() {
    let (scene, _memory) = write_as_peer(0x1235, 8, 8);
    assert_eq!(scene.count(PacketCounter::NakAccessTx), 1);
    let (scene, _memory) = write_as_peer(0x1234, 65, 65);
    assert_eq!(scene.count(PacketCounter::NakAccessTx), 1);
}

fn a_wrong_length_is_refused() {
    for (claimed, len) in [(8, 12), (12, 8)] {
        let (scene, _memory) = write_as_peer(0x1234, claimed, len);
        assert_eq!(
            scene.count(PacketCounter::NakInvalidTx),
            1,
            "{claimed} {len}"
        );
    }
}

/// The default Q key of endpoints for datagrams.
pub(crate) const QKEY: u32 = 0x0123_4567;

/// A datagram of `len` bytes to the endpoint of `host`.
pub(crate) fn datagram(host: &Host, qkey: u32, len: usize) -> Vec<u8> {
    let deth = Deth {
        qkey,
        src_qp: Qpn::new(5),
    };
    let bth = Bth::new(Qpn::new(host.qp().0.qpn), Psn::new(0));
    let packet = Packet::new(bth, Headers::Datagram(deth, None), len);
    whole(A, &packet, &vec![9; len])
}

fn a_datagram_with_another_qkey_is_dropped() {
    let wire = Wire::new();
    let attacker = RawSocket::new(&wire.a);
    let host = Wire::host(&wire.b, &dgram());
    let into = buffer(8);
    host.ep.recv(&into, 5).expect("recv");
    let count = |counter| wire.b.run(|| link_count(counter));
    let send = |qkey| attacker.send(&datagram(&host, qkey, 8));
    for (number, qkey) in [0, 0x0123_4566, 0x8001_0000].into_iter().enumerate() {
        send(qkey);
        until("drop_qkey", || {
            count(PacketCounter::DropQkey) == number as u64 + 1
        });
    }
    host.expect_nothing();
    // Any sender may use the right one.
    send(QKEY);
    host.expect(RECEIVED, 5);
    send(QKEY);
    until("drop_no_receive", || {
        count(PacketCounter::DropNoReceive) == 1
    });
}

/// Messages of 4 KiB that arrive within a second, one after the other.
fn rate(a: &Host, b: &Host) -> u64 {
    let (from, into) = (buffer(4096), buffer(4096));
    let begin = Instant::now();
    let mut count = 0;
    while begin.elapsed() < Duration::from_secs(1) {
        b.ep.recv(&into, 2).expect("recv");
        a.ep.send(PEER, &from, 1).expect("send");
        assert_eq!(b.completion().op_context, 2);
        assert_eq!(a.completion().op_context, 1);
        count += 1;
    }
    count
}

/// Prints the rate of the good flow, which continues (`kfi-scenarios --one`).
fn a_flood_of_bad_packets() {
    let scene = Scene::new();
    let mut bad = whole(A, &send_only(&scene, scene.psn(0)), &[9; 8]);
    *bad.last_mut().expect("bytes") ^= 1;
    let bth = Bth::new(Qpn::new(scene.qpn().get() ^ 1), Psn::new(0));
    let nobody = Packet::new(bth, Headers::SendOnly(SendEnd::Plain), 8);
    let nobody = whole(A, &nobody, &[9; 8]);
    for (what, packet) in [("a wrong ICRC", &bad), ("no such QP", &nobody)] {
        let before = rate(&scene.a, &scene.b);
        let (over, sent) = (AtomicBool::new(false), AtomicU64::new(0));
        let during = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    scene.attacker.send(packet);
                    sent.fetch_add(1, Ordering::Relaxed);
                }
            });
            let during = rate(&scene.a, &scene.b);
            over.store(true, Ordering::Relaxed);
            during
        });
        let sent = sent.load(Ordering::Relaxed);
        println!("{what}: {before} messages/s, {during} under {sent} bad packets/s");
        assert!(during > 0 && sent > 0);
    }
    // Bad packets take no place in the inbox.
    assert!(scene.count(PacketCounter::DropIcrc) > 0);
    assert_eq!(scene.count(PacketCounter::DropInboxFull), 0);
    scene.is_unharmed();
}

/// A REQ to `b` for the endpoint for reliable datagrams at `port`, with times as long as they can
/// be and without a greeting: it is rejected.
fn bad_request(from: Ipv4Addr, number: u32, port: u16) -> Vec<u8> {
    packet::bad_request(Way::new(from, B), number, service_id(port))
}

/// The number of requests that is more than a namespace may have without an answer (4,096), and
/// more than one source may have (1,024).
const REJECTED: u32 = 6016;

/// The number that fits in an inbox, and may wait for the neighbour's address.
const BURST: u32 = 64;

/// Rejected requests take no room from later ones. None of them waits any more when the last
/// request is made, however long the worker of QP 1 takes for each.
fn rejected_requests_leave_room() {
    let wire = Wire::new();
    let attacker = RawSocket::new(&wire.a);
    let b = Wire::host(&wire.b, &Options::default());
    let port = b.ep.name().expect("name").port();
    let rejections = || netns_count(&wire.a, PacketCounter::RxPackets);
    for first in (0..REJECTED).step_by(BURST as usize) {
        for number in first..first + BURST {
            attacker.send(&bad_request(A, number, port));
        }
        // The host of `a` has taken the answers out of its inbox, too.
        until("an answer to each request", || {
            rejections() >= u64::from(first + BURST)
        });
    }
    let a = Wire::host(&wire.a, &Options::default());
    exchange(&a, a.meet(&b), &b, 64);
    let refused = netns_count(&wire.b, PacketCounter::CmNoRoom);
    assert_eq!(refused, 0);
}

/// A request with a broadcast source address is dropped: an answer would go to all hosts of the
/// subnet.
fn requests_from_a_broadcast_address() {
    let wire = Wire::new();
    let attacker = RawSocket::new(&wire.a);
    let b = Wire::host(&wire.b, &Options::default());
    let port = b.ep.name().expect("name").port();
    let dropped = || netns_count(&wire.b, PacketCounter::DropCm);
    let before = dropped();
    // To the endpoint, and to no QP.
    for (number, port) in [port, port ^ 1, port].into_iter().enumerate() {
        let all = Ipv4Addr::new(192, 0, 2, 255);
        attacker.send(&bad_request(all, number as u32, port));
        until("drop_cm", || dropped() == before + number as u64 + 1);
    }
}

/// The statistics below an object's line of a file in debugfs.
fn shown(file: &str, head: impl Fn(&str) -> bool) -> Vec<(String, u64)> {
    let path = format!("/sys/kernel/debug/kfabric/{file}");
    let text = std::fs::read_to_string(path).expect("debugfs");
    text.lines()
        .skip_while(|line| !head(line))
        .skip(1)
        .map_while(|line| line.strip_prefix("  "))
        .map(|line| {
            let (name, value) = line.split_once(' ').expect("name and value");
            (name.to_owned(), value.parse().expect("a number"))
        })
        .collect()
}

fn statistics_are_in_debugfs() {
    let scene = Scene::new();
    scene.wire.b.run(|| {
        let device = Device::open().expect("device");
        let link = device.links().next().expect("a link").expect("link");
        let stat = device
            .stats(StatClass::Endpoint)
            .map(|stat| stat.expect("stat"));
        let stat = stat.last().expect("the endpoint");
        let begin = format!("roce0 on veth0 id {} netns ", link.id);
        let at = format!("{} on roce0 at ", stat.id);
        for (of, file, head) in [
            (PacketsOf::Link(link.id), "links", begin),
            (PacketsOf::Endpoint(stat.id), "endpoints", at),
        ] {
            // Acknowledgements may still come.
            until("the same figures", || {
                let packets = device.packets(of).expect("packets");
                let reported: Vec<_> = packets
                    .iter()
                    .filter(|(_, value)| *value > 0)
                    .map(|(counter, value)| (counter.name().to_owned(), value))
                    .collect();
                !reported.is_empty() && reported == shown(file, |line| line.starts_with(&head))
            });
        }
    });
}
