// SPDX-License-Identifier: GPL-2.0
//! Two network namespaces, joined by a veth pair, and changes of interfaces and addresses under
//! endpoints of the wire: operations under way end with an error, or continue, and no object
//! remains.
//!
//! [`many`] has the addresses of many hosts, which belong to no peer.

pub(crate) mod many;

use crate::{
    abi_threads::NetNs,
    connected::connect,
    harness::tests,
    host::{
        Host, Options, RECEIVED, REMOTE, SENT, SOON, buffer, domain_on, errno, exchange,
        is_refused, register, until,
    },
    raw::{ip, ip_batch},
};
use kfi::{Buffer, Caps, Device, EpType, Errno, Error, FiAddr, LinkState, QpOption, QpState};
use std::{
    net::IpAddr,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

/// Ignored by connected endpoints.
const PEER: FiAddr = FiAddr::UNSPEC;

/// Shorter than all retries of an endpoint together.
const BLINK: Duration = Duration::from_millis(100);

tests![
    messages_pass_between_namespaces => 300,
    operations_survive_a_short_down_time => 300,
    operations_fail_if_the_interface_stays_down => 300,
    posts_fail_while_the_own_interface_is_down => 300,
    a_removed_interface_ends_its_connections => 300,
    operations_survive_a_readded_address => 300,
    operations_fail_if_the_address_stays_removed => 300,
    a_peer_with_a_new_address_is_reached_there => 300,
    an_operation_beyond_a_smaller_mtu_ends_its_connection => 300,
    a_removed_namespace_ends_its_connections => 300,
    accesses_to_a_closed_region_fail => 300,
    datagrams_continue_after_changes_of_interfaces => 300,
    datagrams_without_an_interface_are_refused => 300,
    many_endpoints_open_and_close_while_interfaces_change => 300,
    two_interfaces_may_have_one_address,
    links_are_removed_while_others_connect => 300,
];

/// Two namespaces with a link each: 192.0.2.1 and 2001:db8::1, .2 and ::2.
pub(crate) struct Wire {
    pub(crate) a: NetNs,
    pub(crate) b: NetNs,
}

impl Wire {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let wire = Self {
            a: NetNs::new(),
            b: NetNs::new(),
        };
        // The pair is made here under a unique name, and renamed after it has moved.
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let (va, vb) = (format!("wa{number}"), format!("wb{number}"));
        ip(&format!("link add {va} type veth peer name {vb}"));
        for (netns, name, number) in [(&wire.a, va, 1), (&wire.b, vb, 2)] {
            ip(&format!("link set {name} netns {}", netns.path()));
            netns.run(|| {
                ip(&format!("link set {name} name veth0"));
                ip(&format!("address add 192.0.2.{number}/24 dev veth0"));
                ip(&format!(
                    "address add 2001:db8::{number}/64 dev veth0 nodad"
                ));
                ip("link set veth0 up");
                let device = Device::open().expect("device");
                device.link_add("roce0", "veth0").expect("link_add");
            });
        }
        wire
    }

    /// A host in `netns`.
    pub(crate) fn host(netns: &NetNs, options: &Options) -> Host {
        netns.run(|| {
            let (_fabric, domain) = domain_on("roce0");
            Host::on(&domain, options)
        })
    }

    /// Adds or deletes the address of the first host (1) or the second (2).
    fn address(&self, what: &str, number: u32) {
        let netns = [&self.a, &self.b][number as usize - 1];
        netns.run(|| ip(&format!("address {what} 192.0.2.{number}/24 dev veth0")));
    }

    /// A connected endpoint in each; they give up after seven seconds.
    pub(crate) fn pair(&self) -> (Host, Host) {
        self.pair_with(16, 0)
    }

    /// The same, but they give up after two seconds.
    fn impatient(&self) -> (Host, Host) {
        self.pair_with(14, 0)
    }

    /// With this ACK timeout and this path MTU: both ends must have the same one.
    fn pair_with(&self, timeout: u64, mtu: u64) -> (Host, Host) {
        let (a, b) = (Self::host(&self.a, &msg()), Self::host(&self.b, &msg()));
        connect_with(&a, &b, timeout, mtu);
        (a, b)
    }
}

/// Connects two hosts, with this ACK timeout and this path MTU.
pub(crate) fn connect_with(a: &Host, b: &Host, timeout: u64, mtu: u64) {
    for host in [a, b] {
        for (option, value) in [(QpOption::Timeout, timeout), (QpOption::PathMtu, mtu)] {
            host.ep.set_qp_option(option, value).expect("option");
        }
    }
    connect(a, b);
}

pub(crate) fn msg() -> Options {
    Options::of(EpType::Msg, Caps::MSG | Caps::RMA)
}

pub(crate) fn dgram() -> Options {
    Options::of(EpType::Dgram, Caps::MSG)
}

/// Two connected hosts, and a buffer of `len` bytes.
fn scene(len: usize) -> (Wire, Host, Host, Buffer) {
    let wire = Wire::new();
    let (a, b) = wire.pair();
    (wire, a, b, buffer(len))
}

/// Posts a receive at `b` and a message to it at `a`.
fn begin(a: &Host, b: &Host, buffer: &Buffer) {
    b.ep.recv(buffer, 2).expect("recv");
    a.ep.send(PEER, buffer, 1).expect("send");
}

/// The message of `a` has failed, because no answer came, and so has the next.
fn given_up(a: &Host, meanwhile: Option<Errno>) {
    ended_with(a, Errno::ETIMEDOUT, meanwhile);
}

/// The message of `a` has failed with `errno`, and its connection with it. Posts may fail with
/// `meanwhile` until the endpoint knows.
fn ended_with(a: &Host, errno: Errno, meanwhile: Option<Errno>) {
    let entry = a.failure();
    assert_eq!((entry.err, entry.op_context), (errno, 1));
    until("the end", || a.ep.qp().expect("qp").state == QpState::Error);
    let buffer = Buffer::new(8).expect("buffer");
    // The QP fails a little before its endpoint knows: operations accepted meanwhile are flushed.
    let later = loop {
        match a.ep.send(PEER, &buffer, 3) {
            Err(error) if error.errno() == meanwhile => {}
            Err(error) => break error.errno(),
            Ok(()) => {
                a.fails(3, Errno::ECANCELED);
            }
        }
    };
    assert_eq!(later, Some(Errno::ESHUTDOWN));
}

fn messages_pass_between_namespaces() {
    let wire = Wire::new();
    let (a, b) = wire.pair();
    for len in [1, 1024, 1025, 100_000, 1 << 20] {
        exchange(&a, PEER, &b, len);
        exchange(&b, PEER, &a, len);
    }
    assert_eq!(a.ep.qp().expect("qp").path_mtu, Some(1024));
}

fn operations_survive_a_short_down_time() {
    let (wire, a, b, buffer) = scene(100_000);
    wire.b.run(|| ip("link set veth0 down"));
    b.ep.recv(&buffer, 2).expect("recv");
    a.ep.send(PEER, &buffer, 1).expect("send");
    std::thread::sleep(BLINK);
    assert_eq!(a.cq.read(&mut []).expect("read"), 0);
    wire.b.run(|| ip("link set veth0 up"));
    b.expect(RECEIVED, 2);
    a.expect(SENT, 1);
    exchange(&b, PEER, &a, 10);
}

fn operations_fail_if_the_interface_stays_down() {
    let wire = Wire::new();
    let (a, b) = wire.impatient();
    let buffer = Buffer::new(8).expect("buffer");
    wire.b.run(|| ip("link set veth0 down"));
    begin(&a, &b, &buffer);
    given_up(&a, None);
    // The other end was not informed.
    assert_eq!(b.ep.qp().expect("qp").state, QpState::Rts);
    is_refused(b.ep.send(PEER, &buffer, 1), Errno::ENETDOWN);
}

fn posts_fail_while_the_own_interface_is_down() {
    let (wire, a, b, buffer) = scene(8);
    // It waits for a receive when the interface goes down.
    a.ep.send(PEER, &buffer, 1).expect("send");
    wire.a.run(|| ip("link set veth0 down"));
    is_refused(a.ep.send(PEER, &buffer, 2), Errno::ENETDOWN);
    std::thread::sleep(BLINK);
    wire.a.run(|| ip("link set veth0 up"));
    b.ep.recv(&buffer, 2).expect("recv");
    b.expect(RECEIVED, 2);
    a.expect(SENT, 1);
}

fn a_removed_interface_ends_its_connections() {
    let (wire, a, b, buffer) = scene(8);
    let idle = Wire::host(&wire.a, &msg());
    // It waits for a receive.
    a.ep.send(PEER, &buffer, 1).expect("send");
    a.ep.recv(&buffer, 2).expect("recv");
    let to_b = b.qp();
    wire.a.run(|| ip("link del veth0"));
    for host in [&a, &b] {
        until("the end", || {
            host.ep.qp().expect("qp").state == QpState::Error
        });
        is_refused(host.ep.recv(&buffer, 3), Errno::ESHUTDOWN);
        is_refused(host.ep.send(PEER, &buffer, 3), Errno::ESHUTDOWN);
    }
    let mut ended = [a.failure(), a.failure()];
    ended.sort_by_key(|entry| entry.op_context);
    for (entry, context) in ended.iter().zip(1..) {
        assert_eq!((entry.err, entry.op_context), (Errno::ECANCELED, context));
    }
    // An endpoint that was not connected cannot connect any more, nor be enabled.
    let connect = idle.ep.connect_qp(to_b.0, to_b.1);
    is_refused(connect, Errno::ENODEV);
    wire.a.run(|| {
        let device = Device::open().expect("device");
        let links: Vec<_> = device.links().map(|link| link.expect("link")).collect();
        assert_eq!(links.len(), 1);
        assert_eq!(links[0].state, LinkState::Gone);
        drop((a, idle));
        assert_eq!(device.links().count(), 0);
    });
}

fn operations_survive_a_readded_address() {
    for number in [1, 2] {
        let (wire, a, b, buffer) = scene(8);
        exchange(&a, PEER, &b, 8);
        // It waits for its receive when the address goes.
        a.ep.send(PEER, &buffer, 1).expect("send");
        wire.address("del", number);
        b.ep.recv(&buffer, 2).expect("recv");
        std::thread::sleep(BLINK);
        wire.address("add", number);
        b.expect(RECEIVED, 2);
        a.expect(SENT, 1);
        exchange(&b, PEER, &a, 10_000);
    }
}

fn operations_fail_if_the_address_stays_removed() {
    for (number, meanwhile) in [(1, Some(Errno::EADDRNOTAVAIL)), (2, None)] {
        let wire = Wire::new();
        let (a, b) = wire.impatient();
        exchange(&a, PEER, &b, 8);
        let buffer = Buffer::new(8).expect("buffer");
        a.ep.send(PEER, &buffer, 1).expect("send");
        wire.address("del", number);
        b.ep.recv(&buffer, 2).expect("recv");
        given_up(&a, meanwhile);
    }
}

fn a_peer_with_a_new_address_is_reached_there() {
    let wire = Wire::new();
    let (a, b) = wire.impatient();
    exchange(&a, PEER, &b, 8);
    let buffer = Buffer::new(8).expect("buffer");
    wire.b.run(|| {
        ip("address del 192.0.2.2/24 dev veth0");
        ip("address add 192.0.2.3/24 dev veth0");
    });
    begin(&a, &b, &buffer);
    given_up(&a, None);
    // A new connection reaches it at its new place.
    let (a, b) = wire.pair();
    exchange(&a, PEER, &b, 8);
    let now: IpAddr = "192.0.2.3".parse().unwrap();
    assert_eq!(b.qp().0.host.ip(), now);
}

fn an_operation_beyond_a_smaller_mtu_ends_its_connection() {
    let (wire, a, b, buffer) = scene(10_000);
    wire.a.run(|| ip("link set veth0 mtu 600"));
    // Short messages continue.
    exchange(&a, PEER, &b, 400);
    // The others wait for a larger MTU.
    begin(&a, &b, &buffer);
    std::thread::sleep(BLINK);
    wire.a.run(|| ip("link set veth0 mtu 1500"));
    b.expect(RECEIVED, 2);
    a.expect(SENT, 1);
    wire.a.run(|| ip("link set veth0 mtu 600"));
    begin(&a, &b, &buffer);
    ended_with(&a, Errno::EMSGSIZE, None);
    // A new connection uses the smaller MTU.
    let (a, b) = wire.pair_with(16, 512);
    assert_eq!(a.ep.qp().expect("qp").path_mtu, Some(512));
    exchange(&a, PEER, &b, 10_000);
}

fn a_removed_namespace_ends_its_connections() {
    let wire = Wire::new();
    let (a, b) = wire.pair();
    let others = (Wire::host(&wire.a, &dgram()), Wire::host(&wire.a, &msg()));
    let buffer = Buffer::new(8).expect("buffer");
    // Both wait for a receive.
    a.ep.send(PEER, &buffer, 1).expect("send");
    b.ep.send(PEER, &buffer, 2).expect("send");
    let Wire { a: ends, b: stays } = wire;
    // The last process in the namespace ends.
    drop(ends);
    a.fails(1, Errno::ECANCELED);
    // The other end of the pair is removed with it.
    b.fails(2, Errno::ECANCELED);
    is_refused(a.ep.send(PEER, &buffer, 1), Errno::ESHUTDOWN);
    let to = others.0.av.insert_one("192.0.2.2:5".parse().unwrap());
    let to = to.expect("insert");
    is_refused(others.0.ep.send(to, &buffer, 1), Errno::ENODEV);
    drop((a, b, others));
    stays.run(|| assert_eq!(Device::open().expect("device").links().count(), 0));
}

fn accesses_to_a_closed_region_fail() {
    let wire = Wire::new();
    for round in 0..20 {
        let (a, b) = wire.pair();
        let len = 1 << 20;
        let theirs = buffer(len);
        let region = register(&b.domain, &theirs, REMOTE, 9);
        let ours = buffer(len);
        let remote = region.remote(0);
        for number in 0..8 {
            match round % 2 {
                0 => a.ep.read(PEER, &ours, remote, number),
                _ => a.ep.write(PEER, &ours, remote, number),
            }
            .expect("post");
        }
        a.completion();
        drop(region);
        // The module does not access the memory any more.
        let before = theirs.to_vec(..);
        let (mut done, mut refused, mut flushed) = (1, 0, 0);
        while done + refused + flushed < 8 {
            match a.cq.next(SOON) {
                Ok(Some(_)) => done += 1,
                Err(Error::Completion(entry)) if entry.err == Errno::EACCES => refused += 1,
                Err(Error::Completion(entry)) if entry.err == Errno::ECANCELED => flushed += 1,
                other => panic!("{other:?}"),
            }
        }
        assert!(done == 8 || refused == 1, "{done} {refused} {flushed}");
        assert!(theirs.to_vec(..) == before);
    }
}

/// Datagram endpoints that have each other's address.
fn dgrams(wire: &Wire) -> (Host, FiAddr, Host) {
    let (a, b) = (Wire::host(&wire.a, &dgram()), Wire::host(&wire.b, &dgram()));
    let to_b = a.meet(&b);
    (a, to_b, b)
}

/// Sends datagrams until one arrives.
fn reaches(a: &Host, to: FiAddr, b: &Host) {
    let buffer = Buffer::new(8).expect("buffer");
    b.ep.recv(&buffer, 2).expect("recv");
    for _ in 0..100 {
        a.ep.inject(to, b"anybody?").expect("inject");
        if b.cq.next(BLINK).expect("next").is_some() {
            return;
        }
    }
    panic!("nothing has arrived");
}

fn datagrams_continue_after_changes_of_interfaces() {
    let wire = Wire::new();
    let (a, to_b, b) = dgrams(&wire);
    reaches(&a, to_b, &b);
    // The peer's interface: packets are lost.
    wire.b.run(|| ip("link set veth0 down"));
    a.ep.inject(to_b, b"x").expect("inject");
    wire.b.run(|| ip("link set veth0 up"));
    reaches(&a, to_b, &b);
    // The endpoint's own interface.
    wire.a.run(|| ip("link set veth0 down"));
    is_refused(a.ep.inject(to_b, b"x"), Errno::ENETDOWN);
    wire.a.run(|| ip("link set veth0 up"));
    reaches(&a, to_b, &b);
    // Its own address.
    wire.a.run(|| ip("address del 192.0.2.1/24 dev veth0"));
    is_refused(a.ep.inject(to_b, b"x"), Errno::EADDRNOTAVAIL);
    wire.a.run(|| ip("address add 192.0.2.1/24 dev veth0"));
    reaches(&a, to_b, &b);
    // The MTU.
    let buffer = Buffer::new(1024).expect("buffer");
    a.ep.send(to_b, &buffer, 1).expect("send");
    a.expect(SENT, 1);
    wire.a.run(|| ip("link set veth0 mtu 600"));
    assert_eq!(a.ep.qp().expect("qp").path_mtu, Some(512));
    is_refused(a.ep.send(to_b, &buffer, 1), Errno::EMSGSIZE);
    let part = buffer.slice(..512);
    a.ep.send(to_b, part, 1).expect("send");
    a.expect(SENT, 1);
}

fn datagrams_without_an_interface_are_refused() {
    let wire = Wire::new();
    let (a, to_b, b) = dgrams(&wire);
    reaches(&a, to_b, &b);
    let buffer = Buffer::new(8).expect("buffer");
    b.ep.recv(&buffer, 7).expect("recv");
    wire.a.run(|| ip("link del veth0"));
    is_refused(a.ep.inject(to_b, b"x"), Errno::ENODEV);
    is_refused(b.ep.inject(FiAddr(0), b"x"), Errno::ENODEV);
    // Receives can still be cancelled.
    b.ep.cancel(7).expect("cancel");
    assert_eq!(b.failure().err, Errno::ECANCELED);
}

/// Endpoints are opened, connected and closed while the interfaces go up and down.
fn many_endpoints_open_and_close_while_interfaces_change() {
    let wire = Wire::new();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                wire.b.run(|| {
                    ip("link set veth0 down");
                    ip("link set veth0 up");
                });
                std::thread::sleep(Duration::from_millis(30));
            }
        });
        let threads: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| (0..20).for_each(|round| come_and_go(&wire, round))))
            .collect();
        let ended: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        over.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok));
    });
    let (a, b) = wire.pair();
    exchange(&a, PEER, &b, 10_000);
}

/// Two endpoints that may or may not reach each other.
fn come_and_go(wire: &Wire, round: u64) {
    let (a, b) = (Wire::host(&wire.a, &msg()), Wire::host(&wire.b, &msg()));
    let ((to_a, psn_a), (to_b, psn_b)) = (a.qp(), b.qp());
    let _ = a.ep.connect_qp(to_b, psn_b);
    let _ = b.ep.connect_qp(to_a, psn_a);
    let buffer = Buffer::new(20_000).expect("buffer");
    for number in 0..8 {
        let _ = b.ep.recv(&buffer, number);
        let _ = a.ep.send(PEER, &buffer, number);
    }
    if !round.is_multiple_of(3) {
        let _ = b.cq.next(Duration::from_millis(round));
    }
    if round.is_multiple_of(2) {
        let _ = a.ep.shutdown();
    }
}

/// Sends a reliable datagram between new endpoints of both hosts, which needs a new connection.
fn first_message(wire: &Wire) {
    let [a, b] = [&wire.a, &wire.b].map(|netns| Wire::host(netns, &Options::default()));
    exchange(&a, a.meet(&b), &b, 8);
}

/// Two interfaces have the same address: first one of them has a link, then both have.
fn two_interfaces_may_have_one_address() {
    let wire = Wire::new();
    first_message(&wire);
    wire.b.run(|| {
        ip("link add twin type dummy");
        ip("link set twin up");
        ip("address add 192.0.2.2/32 dev twin");
    });
    first_message(&wire);
    // Both interfaces have a link.
    wire.b.run(|| {
        let device = Device::open().expect("device");
        device.link_add("roce1", "twin").expect("link_add");
        let links: Vec<_> = device.links().map(|link| link.expect("link")).collect();
        assert_eq!(links.len(), 2);
        device.link_del("roce1").expect("link_del");
    });
    first_message(&wire);
}

/// The number of namespaces with many links, and the number of links in each.
const SPACES: usize = 4;
const LINKS: usize = 60;

/// Many links of several namespaces are removed (by command, with their interfaces, with their
/// namespaces), while another namespace keeps making connections.
fn links_are_removed_while_others_connect() {
    let wire = Wire::new();
    let spaces: Vec<NetNs> = (0..SPACES).map(|_| NetNs::new()).collect();
    for space in &spaces {
        space.run(|| {
            let all = |words: &str| -> Vec<String> {
                let each = |number: usize| words.replace('#', &format!("d{number}"));
                (0..LINKS).map(each).collect()
            };
            ip_batch(&all("link add # type dummy"));
            ip_batch(&all("link set # up"));
            let device = Device::open().expect("device");
            for number in 0..LINKS {
                let name = format!("d{number}");
                device.link_add(&name, &name).expect("link_add");
            }
            assert_eq!(device.links().count(), LINKS);
        });
    }
    let over = AtomicBool::new(false);
    let made = AtomicU32::new(0);
    let goes_on = || {
        let before = made.load(Ordering::Relaxed);
        until("another connection", || {
            made.load(Ordering::Relaxed) > before + 1
        });
    };
    let spaces = Mutex::new(spaces);
    std::thread::scope(|scope| {
        let connects = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                first_message(&wire);
                made.fetch_add(1, Ordering::Relaxed);
            }
        });
        let go = || {
            goes_on();
            for space in &*spaces.lock().expect("lock") {
                space.run(|| {
                    let device = Device::open().expect("device");
                    for number in 0..LINKS / 3 {
                        device.link_del(&format!("d{number}")).expect("link_del");
                    }
                    assert_eq!(device.links().count(), LINKS - LINKS / 3);
                    let deletions: Vec<String> = (LINKS / 3..2 * LINKS / 3)
                        .map(|number| format!("link del d{number}"))
                        .collect();
                    ip_batch(&deletions);
                    assert_eq!(device.links().count(), LINKS - 2 * (LINKS / 3));
                });
                goes_on();
            }
            // The remaining links go with their namespaces.
            spaces.lock().expect("lock").clear();
            goes_on();
        };
        let gone = std::panic::catch_unwind(std::panic::AssertUnwindSafe(go));
        over.store(true, Ordering::Relaxed);
        connects.join().expect("connections");
        gone.expect("links");
    });
}
