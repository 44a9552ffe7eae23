// SPDX-License-Identifier: GPL-2.0
//! Deferred work and queues: work that waits takes no room in a queue of its endpoint or in a CQ;
//! work that has started waits for the room that it needs, in its order; and work that makes no
//! entry needs none in the CQ. Work fails when it is due if its peer has gone, its connection has
//! ended, or its link is down, has lost the address or was removed.

use crate::{
    abi_threads::NetNs,
    connected::open_region,
    deferred::{QUIET, RECEIVED, SENT, cntr, defer, queue, wait},
    harness::tests,
    host::{Host, Options, buffer, domain_on, errno, until},
    raw::{Netdev, ip},
    ways::Way,
};
use kfi::{Buffer, Caps, Cntr, CntrBind, Device, Errno, FiAddr, Op, OpFlags, Remote, Work};
use std::time::Duration;

tests![
    waiting_work_takes_no_room: [OneHost, TwoHosts, Connection, Datagrams],
    waiting_triggers_take_no_room: [OneHost, TwoHosts, Connection, Datagrams],
    injected_work_waits_for_room_at_its_peer: [OneHost, TwoHosts],
    started_receives_wait_for_room: [OneHost, TwoHosts, Connection],
    work_without_an_entry_starts_beside_a_full_cq: [OneHost, TwoHosts, Connection, Datagrams],
    work_for_a_peer_that_has_closed_fails: [OneHost, TwoHosts, Connection],
    work_for_a_host_that_does_not_answer_fails,
    work_of_a_connection_that_was_shut_down_fails,
    work_of_a_lost_link_fails,
];

/// Entries of the small queues.
const ROOM: u32 = 8;

/// Works, many more than there is room for.
const WORKS: u64 = 40;

/// A host with small queues, what it calls the other one, and one with large ones.
fn small_and_large(way: Way) -> (Host, FiAddr, Host) {
    if way == Way::TwoHosts {
        crate::hosts::apart();
    }
    let usual = way.options(&Options::default());
    let large = Options {
        caps: usual.caps | Caps::TRIGGER,
        ..usual
    };
    let small = Options {
        cq_entries: ROOM,
        tx_size: ROOM,
        rx_size: ROOM,
        ..large
    };
    let (a, b) = (Host::with(&small), Host::with(&large));
    let to_b = way.introduce(&a, &b);
    (a, to_b, b)
}

/// Posts sends directly until there is no room. Returns their number.
fn fill(a: &Host, to_b: FiAddr, from: &Buffer) -> u64 {
    let mut posted = 0;
    loop {
        match a.ep.send(to_b, from, posted) {
            Ok(()) => posted += 1,
            Err(error) if error.errno() == Some(Errno::EAGAIN) => return posted,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Waiting work takes no room; when it has started it waits for room, and none of it is lost.
fn waiting_work_takes_no_room(way: Way) {
    let (a, to_b, b) = small_and_large(way);
    let done = cntr(&a.domain);
    let queue = |go: &Cntr, op: Op<'_>| {
        defer(&a, go, 1, op, &done);
    };
    take_no_room(&a, to_b, &b, queue, || {
        let ended = done.value();
        assert!(ended <= u64::from(ROOM), "{ended} have room for an entry");
    });
    assert_eq!((done.value(), done.err()), (WORKS, 0));
}

fn waiting_triggers_take_no_room(way: Way) {
    let (a, to_b, b) = small_and_large(way);
    let post = |go: &Cntr, op: Op<'_>| a.ep.post_one(&op.trigger(go, 1)).expect("post");
    take_no_room(&a, to_b, &b, post, || ());
}

/// Sends of `a` that `wait` lets wait for a counter; `started` is called when they have started.
fn take_no_room(
    a: &Host,
    to_b: FiAddr,
    b: &Host,
    wait: impl Fn(&Cntr, Op<'_>),
    started: impl Fn(),
) {
    let go = cntr(&a.domain);
    let (from, into) = (buffer(8), buffer(8));
    for context in 0..2 * WORKS {
        b.ep.recv(&into, context).expect("recv");
    }
    for context in 0..WORKS {
        let told = Op::send(to_b, &from).flags(OpFlags::COMPLETION);
        wait(&go, told.context(100 + context));
    }
    let direct = fill(a, to_b, &from);
    assert_eq!(direct, u64::from(ROOM));
    for context in 0..direct {
        a.expect(SENT, context);
    }
    a.expect_nothing();
    go.add(1).expect("add");
    std::thread::sleep(QUIET);
    started();
    assert_eq!(errno(a.ep.send(to_b, &from, 1)), Some(Errno::EAGAIN));
    for context in 0..WORKS {
        a.expect(SENT, 100 + context);
        // There is room for one entry. A direct post does not overtake those that wait for it.
        if context + 1 + u64::from(ROOM) < WORKS {
            assert_eq!(errno(a.ep.send(to_b, &from, 1)), Some(Errno::EAGAIN));
        }
    }
    a.expect_nothing();
    for context in 0..direct + WORKS {
        b.expect(RECEIVED, context);
    }
    a.ep.send(to_b, &from, 1).expect("send");
    a.expect(SENT, 1);
    b.expect(RECEIVED, direct + WORKS);
}

/// A post of an injected message is refused while its peer has neither a receive nor room.
fn injected_work_waits_for_room_at_its_peer(way: Way) {
    const BYTES: usize = 200;
    if way == Way::TwoHosts {
        crate::hosts::apart();
    }
    let few = Options {
        buffered: 1024,
        ..Options::default()
    };
    let (a, b) = (Host::new(), Host::with(&few));
    let to_b = a.meet(&b);
    let (go, done) = (cntr(&a.domain), cntr(&a.domain));
    for number in 0..WORKS as u8 {
        let bytes = [number; BYTES];
        let work = Work::transfer(&go, 1, &a.ep, Op::inject(to_b, &bytes));
        queue(&a.domain, work.completion(&done));
    }
    go.add(1).expect("add");
    std::thread::sleep(QUIET);
    let ended = done.value();
    assert!(
        way == Way::TwoHosts || ended < WORKS,
        "{ended} have room at the peer"
    );
    let into = buffer(BYTES);
    for number in 0..WORKS as u8 {
        b.ep.recv(&into, 1).expect("recv");
        b.expect(RECEIVED, 1);
        assert_eq!(into.to_vec(..), [number; BYTES]);
    }
    wait(&done, WORKS);
    assert_eq!(done.err(), 0);
    a.expect_nothing();
}

fn started_receives_wait_for_room(way: Way) {
    let (b, to_a, a) = small_and_large(way);
    let to_b = match way {
        Way::Connection => to_a,
        _ => a.meet(&b),
    };
    let (go, received) = (cntr(&b.domain), cntr(&b.domain));
    let into: Vec<_> = (0..WORKS).map(|_| buffer(1)).collect();
    for into in &into {
        defer(&b, &go, 1, Op::recv(into), &received);
    }
    let other = buffer(1);
    b.ep.recv(&other, 1).expect("waiting work takes no room");
    b.ep.cancel(1).expect("cancel");
    assert_eq!(b.failure().err, Errno::ECANCELED);
    go.add(1).expect("add");
    assert_eq!(errno(b.ep.recv(&other, 1)), Some(Errno::EAGAIN));
    for number in 0..WORKS {
        let bytes = Buffer::from_bytes(&[number as u8]).expect("buffer");
        a.ep.send(to_b, &bytes, number).expect("send");
        a.expect(SENT, number);
        wait(&received, number + 1);
        // There is room for one receive, for which others wait.
        if number + 1 + u64::from(ROOM) < WORKS {
            assert_eq!(errno(b.ep.recv(&other, 1)), Some(Errno::EAGAIN));
        }
    }
    for (number, into) in (0..).zip(&into) {
        assert_eq!(into.to_vec(..), [number]);
    }
    b.expect_nothing();
}

/// "An operation whose success makes no entry needs no room in the CQ." A failure makes an entry
/// beyond its size.
fn work_without_an_entry_starts_beside_a_full_cq(way: Way) {
    let (a, to_b, b) = small_and_large(way);
    let (go, done) = (cntr(&a.domain), cntr(&a.domain));
    let (from, into) = (buffer(8), buffer(8));
    for context in 0..2 * WORKS {
        b.ep.recv(&into, context).expect("recv");
    }
    let direct = fill(&a, to_b, &from);
    for context in 0..direct {
        b.expect(RECEIVED, context);
    }
    let works = vec![Work::transfer(&go, 1, &a.ep, Op::send(to_b, &from)).completion(&done); 40];
    assert!(a.domain.queue_work(&works).expect("queue").all());
    go.add(1).expect("add");
    wait(&done, WORKS);
    for context in direct..direct + WORKS {
        b.expect(RECEIVED, context);
    }
    if way.has_rma() {
        let refused = Op::write(to_b, &from, Remote::new(0, 0xdead)).context(7);
        defer(&a, &go, 2, refused, &done);
        go.add(1).expect("add");
        // A completion is counted before its entry is there. The error entry overtakes the others.
        until("the count of the failure", || done.err() == 1);
        until("the failure", || a.cq.wait(Duration::ZERO).is_err());
        assert_eq!(a.failure().op_context, 7);
    }
    for context in 0..direct {
        a.expect(SENT, context);
    }
    a.expect_nothing();
}

/// Queues sends of `a` with the contexts 1 and 2, which wait for `go`.
fn queue_two(a: &Host, to_b: FiAddr, go: &Cntr, done: &Cntr) {
    let from = buffer(8);
    for number in 1..=2 {
        let op = Op::send(to_b, &from).context(number);
        defer(a, go, number, op, done);
    }
}

/// Expects error entries of the operations with the contexts 1, 2, ..., in this order, and no other
/// entry.
#[track_caller]
fn expect_failures(a: &Host, errors: &[Errno]) {
    for (context, errno) in (1..).zip(errors) {
        let entry = a.failure();
        assert_eq!((entry.err, entry.op_context), (*errno, context));
    }
    a.expect_nothing();
}

/// Work fails if its peer has closed before the work starts.
fn work_for_a_peer_that_has_closed_fails(way: Way) {
    let (a, to_b, b) = way.pair();
    let (go, done) = (cntr(&a.domain), cntr(&a.domain));
    queue_two(&a, to_b, &go, &done);
    b.ep.close().expect("close");
    go.add(2).expect("add");
    match way {
        Way::OneHost => expect_failures(&a, &[Errno::EHOSTUNREACH; 2]),
        Way::TwoHosts => expect_failures(&a, &[Errno::ECONNREFUSED; 2]),
        // The peer does not answer. The connection ends, and the operations under way with it.
        _ => expect_failures(&a, &[Errno::ETIMEDOUT, Errno::ECANCELED]),
    }
    until("the failures are counted", || done.err() == 2);
    assert_eq!(done.value(), 0);
}

/// Work fails if the host of the peer does not answer, without a connection and with one. Endpoints
/// that are opened then at the same addresses connect, although requests of the old ones wait until
/// the link-layer address of the peer is known, and arrive late.
fn work_for_a_host_that_does_not_answer_fails() {
    let hosts = crate::hosts::apart();
    for connected in [false, true] {
        let (a, to_b, b) = Way::TwoHosts.pair();
        let (go, done) = (cntr(&a.domain), cntr(&a.domain));
        if connected {
            let into = buffer(8);
            b.ep.recv(&into, 7).expect("recv");
            a.ep.inject(to_b, b"connects").expect("inject");
            b.expect(RECEIVED, 7);
        }
        queue_two(&a, to_b, &go, &done);
        hosts.network("loss 100%");
        go.add(2).expect("add");
        expect_failures(&a, &[Errno::ETIMEDOUT; 2]);
        until("the failures are counted", || done.err() == 2);
        assert_eq!(done.value(), 0);
        hosts.network("loss 0%");
    }
}

/// Work that waits when its connection ends: it fails when it is due. Work that waits for its
/// failures starts.
fn work_of_a_connection_that_was_shut_down_fails() {
    let (a, to_b, b) = Way::Connection.pair();
    let (go, done, after) = (cntr(&a.domain), cntr(&a.domain), cntr(&a.domain));
    let memory = buffer(8);
    let mr = open_region(&b, &memory, 1);
    let (from, into) = (buffer(8), buffer(8));
    let ops = [
        Op::send(to_b, &from),
        Op::write(to_b, &from, mr.remote(0)),
        Op::recv(&into),
    ];
    for (number, op) in (1..).zip(ops) {
        defer(&a, &go, number, op.context(number), &done);
    }
    queue(&a.domain, Work::add(&done, 3, &after, 1));
    a.ep.shutdown().expect("shutdown");
    std::thread::sleep(QUIET);
    a.expect_nothing();
    assert_eq!((done.value(), done.err()), (0, 0));
    go.add(3).expect("add");
    wait(&after, 1);
    assert_eq!((done.value(), done.err()), (0, 3));
    // The errors of both sides, each in its order.
    let mut ended = [(); 3].map(|()| a.failure());
    ended.sort_by_key(|entry| entry.op_context);
    for (context, entry) in (1..).zip(&ended) {
        assert_eq!((entry.err, entry.op_context), (Errno::ESHUTDOWN, context));
    }
    a.expect_nothing();
    // Work that is queued now is not refused, but fails when it is due.
    let late = Work::transfer(&go, 4, &a.ep, Op::send(to_b, &from).context(1));
    queue(&a.domain, late.completion(&done));
    a.expect_nothing();
    go.add(1).expect("add");
    expect_failures(&a, &[Errno::ESHUTDOWN]);
    assert_eq!((done.value(), done.err()), (0, 4));
}

/// Takes a link its address, its carrier or its interface, which is returned unless it is removed.
type Lose = fn(Netdev) -> Option<Netdev>;

/// Work that waits when its link loses what it needs to send: transfers fail when they are due,
/// counters go on.
fn work_of_a_lost_link_fails() {
    let rows: [(Lose, Errno); 3] = [
        (
            |netdev| {
                ip("address del 10.99.0.1/24 dev kfl0");
                Some(netdev)
            },
            Errno::EADDRNOTAVAIL,
        ),
        (
            |netdev| {
                ip("link set kfl0 down");
                Some(netdev)
            },
            Errno::ENETDOWN,
        ),
        (
            |netdev| {
                netdev.delete();
                None
            },
            Errno::ENODEV,
        ),
    ];
    for (lose, error) in rows {
        NetNs::new().run(|| work_fails_without(lose, error));
    }
}

fn work_fails_without(lose: Lose, error: Errno) {
    let netdev = Netdev::dummy("kfl0", "10.99.0.1/24");
    let device = Device::open().expect("open");
    device.link_add("gone", "kfl0").expect("link_add");
    let (_fabric, domain) = domain_on("gone");
    let sends = cntr(&domain);
    let a = Host::prepared(&domain, &Options::default(), None, |ep| {
        ep.bind_cntr(&sends, CntrBind::SEND).expect("bind");
    });
    let to_a = a.meet(&a);
    let (go, done, after) = (cntr(&domain), cntr(&domain), cntr(&domain));
    let from = buffer(8);
    let work = Work::transfer(&go, 1, &a.ep, Op::send(to_a, &from).context(5));
    let works = [work.completion(&done), Work::add(&done, 1, &after, 3)];
    assert!(domain.queue_work(&works).expect("queue").all());
    let late = queue(
        &domain,
        Work::transfer(&go, 2, &a.ep, Op::send(to_a, &from)),
    );
    let _kept = lose(netdev);
    go.add(1).expect("add");
    // The failure counts, and makes an entry; what depends on it starts.
    wait(&after, 3);
    assert_eq!((done.value(), done.err()), (0, 1), "{error}");
    assert_eq!((sends.value(), sends.err()), (0, 0));
    let entry = a.failure();
    assert_eq!((entry.err, entry.op_context), (error, 5));
    // Work that waits can be cancelled, and closes with its file.
    domain.cancel_work(&late).expect("cancel");
    queue(&domain, Work::add(&go, 9, &after, 1));
    assert_eq!(domain.flush_work().expect("flush"), 1);
}
