// SPDX-License-Identifier: GPL-2.0
//! The two values of a counter: each operation of a bound endpoint changes one of them, by one,
//! when it ends. And the end of the objects that a counter counts for.
//!
//! The expected results are those of kfi_cntr(3); each test quotes its sentences.

use crate::{
    alone::{Alone, sread_one},
    connected::connect_qps,
    counting::KINDS,
    harness::tests,
    host::{LINK, buffer, device, domain, errno, until},
    hosts::apart,
    threads::{Sleeper, cloned},
    ways::Way,
    without_cq::{Bare, READ, RECV, REMOTE_READ, REMOTE_WRITE, SEND, WRITE},
};
use kfi::{
    Access, AtomicOp, Caps, Cntr, CntrBind, CqBind, CqFormat, Datatype, Deadline, EpType, Errno,
    FiAddr, Op, OpFlags, Remote, Wait,
};
use std::time::Duration;

tests![
    each_operation_changes_one_value: [OneHost, TwoHosts],
    each_operation_of_a_connection_changes_one_value,
    each_datagram_changes_one_value,
    silent_operations_of_every_kind_are_counted,
    a_failure_of_each_kind_ends_the_waits_on_its_counter,
    a_counter_stays_open_until_its_last_owner_closes,
    closing_an_endpoint_ends_no_wait,
];

/// Two endpoints without a CQ, and what the first one calls the second one.
pub(crate) fn bare_pair(way: Way) -> (Bare, FiAddr, Bare) {
    if way == Way::TwoHosts {
        apart();
    }
    let caps = match way {
        Way::OneHost | Way::TwoHosts => Caps::MSG | Caps::TAGGED | Caps::RMA,
        Way::Connection => Caps::MSG | Caps::RMA | Caps::ATOMIC,
        Way::Datagrams => Caps::MSG,
    };
    let [a, b] = [(); 2].map(|()| Bare::new(way.ep_type(), caps));
    if way == Way::Connection {
        connect_qps(&a.ep, &b.ep);
        return (a, FiAddr::UNSPEC, b);
    }
    let to_b = a.meet(&b);
    (a, to_b, b)
}

/// There is no region with this key.
const NOWHERE: Remote = Remote::new(0, 0xdead);

/// Too long to be buffered at the receiver.
const LARGE: usize = 1 << 20;

/// The time in which a count that is one too many would come.
const LATE: Duration = Duration::from_millis(100);

/// Successes and errors, in the order of [`KINDS`].
pub(crate) type Values = [(u64, u64); 6];

pub(crate) fn values(counters: &[Cntr; 6]) -> Values {
    counters.each_ref().map(|cntr| {
        let values = cntr.read().expect("read");
        (values.value, values.err)
    })
}

/// Waits until the counters have these values, and checks that they keep them.
#[track_caller]
pub(crate) fn counts(who: &Bare, expected: &Values) {
    until(&format!("{expected:?}"), || {
        let now = values(&who.counters);
        let more = now
            .iter()
            .zip(expected)
            .any(|(now, most)| now.0 > most.0 || now.1 > most.1);
        assert!(!more, "{now:?} instead of {expected:?}");
        now == *expected
    });
}

/// "Counters record the number of requested operations that have completed"; "if an operation
/// completes in error, it may increment an associated error value".
fn each_operation_changes_one_value(way: Way) {
    let (a, to_b, b) = bare_pair(way);
    let (ours, theirs, large) = (buffer(64), buffer(64), buffer(LARGE));
    let mr = b.region(&theirs);
    let (mut at_a, mut at_b) = (Values::default(), Values::default());
    for _ in 0..3 {
        b.ep.recv(&theirs, 1).expect("recv");
        a.ep.send(to_b, &ours, 2).expect("send");
        at_a[SEND].0 += 1;
        at_b[RECV].0 += 1;
        counts(&a, &at_a);
        counts(&b, &at_b);
    }
    // Truncated: the receive fails, the send does not.
    b.ep.trecv(theirs.slice(..4), 1, 0, 3).expect("trecv");
    a.ep.tinject(to_b, b"too long.", 1).expect("tinject");
    at_a[SEND].0 += 1;
    at_b[RECV].1 += 1;
    counts(&a, &at_a);
    counts(&b, &at_b);
    // Cancelled.
    b.ep.trecv(&theirs, 2, 0, 4).expect("trecv");
    b.ep.cancel(4).expect("cancel");
    at_b[RECV].1 += 1;
    a.ep.tsend(to_b, &large, 3, 5).expect("tsend");
    a.ep.cancel(5).expect("cancel");
    at_a[SEND].1 += 1;
    counts(&a, &at_a);
    counts(&b, &at_b);
    // RMA, also of no bytes.
    for len in [64, 0] {
        a.ep.write(to_b, ours.slice(..len), mr.remote(0), 6)
            .expect("write");
        a.ep.read(to_b, ours.slice(..len), mr.remote(0), 7)
            .expect("read");
        at_a[WRITE].0 += 1;
        at_b[REMOTE_WRITE].0 += 1;
        at_a[READ].0 += 1;
        at_b[REMOTE_READ].0 += 1;
        counts(&a, &at_a);
        counts(&b, &at_b);
    }
    // Refused: an operation of the initiator fails, and none of the target.
    a.ep.write(to_b, &ours, NOWHERE, 8).expect("write");
    at_a[WRITE].1 += 1;
    counts(&a, &at_a);
    a.ep.read(to_b, &ours, NOWHERE, 9).expect("read");
    at_a[READ].1 += 1;
    counts(&a, &at_a);
    // Both go on.
    b.ep.recv(&theirs, 10).expect("recv");
    a.ep.inject(to_b, b"x").expect("inject");
    at_a[SEND].0 += 1;
    at_b[RECV].0 += 1;
    counts(&a, &at_a);
    counts(&b, &at_b);
    // The peer closes while a message waits.
    a.ep.tsend(to_b, &large, 3, 11).expect("tsend");
    drop(mr);
    drop(b);
    at_a[SEND].1 += 1;
    counts(&a, &at_a);
    std::thread::sleep(LATE);
    counts(&a, &at_a);
}

fn each_operation_of_a_connection_changes_one_value() {
    let (a, peer, b) = bare_pair(Way::Connection);
    let (ours, theirs) = (buffer(64), buffer(64));
    let (eight, compared, result) = (ours.slice(..8), ours.slice(8..16), ours.slice(16..24));
    let mr = b.region(&theirs);
    let word = mr.remote(0);
    let (uint64, sum, cswap) = (Datatype::Uint64, AtomicOp::Sum, AtomicOp::Cswap);
    for _ in 0..2 {
        b.ep.recv(&theirs, 1).expect("recv");
    }
    let ops = [
        Op::send(peer, &ours),
        Op::inject(peer, b"x"),
        Op::write(peer, &ours, word),
        Op::inject_write(peer, b"x", word),
        Op::read(peer, &ours, word),
        Op::atomic(peer, eight, word, uint64, sum),
        Op::fetch_atomic(peer, eight, result, word, uint64, sum),
        Op::compare_atomic(peer, eight, compared, result, word, uint64, cswap),
    ];
    assert!(a.ep.post(&ops).expect("post").all());
    // The base atomic counts as a write, the others as reads.
    let mut at_a = Values::default();
    (at_a[SEND].0, at_a[WRITE].0, at_a[READ].0) = (2, 3, 3);
    counts(&a, &at_a);
    // Each of them is counted once at the target. Which of the two kinds counts the base atomic is
    // left open here.
    let at_target = || {
        let now = values(&b.counters);
        let remote = now[REMOTE_READ].0 + now[REMOTE_WRITE].0;
        let errors: u64 = now.iter().map(|(_, err)| err).sum();
        (now[RECV].0, remote, errors)
    };
    until("the target has counted", || at_target() == (2, 6, 0));
    // One that is refused ends the connection, and with it the others: the send waits for a
    // receive, so none of them begins before all are posted.
    a.ep.recv(&ours, 2).expect("recv");
    let ops = [
        Op::send(peer, &ours),
        Op::write(peer, &ours, NOWHERE),
        Op::read(peer, &ours, word),
        Op::inject(peer, b"x"),
        Op::fetch_atomic(peer, eight, result, word, uint64, sum),
        Op::atomic(peer, eight, word, uint64, sum),
    ];
    assert!(a.ep.post(&ops).expect("post").all());
    let receives = [1, 2].map(|context| Op::recv(&theirs).context(context));
    let posted = b.ep.post(&receives).expect("recv").done as u64;
    at_a[SEND].0 += 1;
    at_a[SEND].1 += 1;
    at_a[WRITE].1 += 2;
    at_a[READ].1 += 2;
    at_a[RECV].1 += 1;
    counts(&a, &at_a);
    let at_target = || {
        let now = values(&b.counters);
        let remote = now[REMOTE_READ].0 + now[REMOTE_WRITE].0;
        (now[RECV], remote)
    };
    until("the target's receives have ended", || {
        at_target() == ((3, posted - 1), 6)
    });
    std::thread::sleep(LATE);
    counts(&a, &at_a);
    assert_eq!(at_target(), ((3, posted - 1), 6));
}

fn each_datagram_changes_one_value() {
    let (a, to_b, b) = bare_pair(Way::Datagrams);
    let into = buffer(64);
    let (mut at_a, mut at_b) = (Values::default(), Values::default());
    b.ep.recv(&into, 1).expect("recv");
    a.ep.send(to_b, &into, 2).expect("send");
    at_a[SEND].0 += 1;
    at_b[RECV].0 += 1;
    counts(&a, &at_a);
    counts(&b, &at_b);
    b.ep.recv(into.slice(..4), 3).expect("recv");
    a.ep.inject(to_b, b"too long.").expect("inject");
    at_a[SEND].0 += 1;
    at_b[RECV].1 += 1;
    counts(&a, &at_a);
    counts(&b, &at_b);
    b.ep.recv(&into, 4).expect("recv");
    b.ep.cancel(4).expect("cancel");
    at_b[RECV].1 += 1;
    counts(&b, &at_b);
    // One for which no receive is posted is sent, and received by none.
    a.ep.inject(to_b, b"x").expect("inject");
    at_a[SEND].0 += 1;
    counts(&a, &at_a);
    std::thread::sleep(LATE);
    counts(&a, &at_a);
    counts(&b, &at_b);
}

/// "Counters increment on all successful completions, separately from whether the operation
/// generates an entry in an event queue."
fn silent_operations_of_every_kind_are_counted() {
    let (_, domain) = domain();
    let cq = domain.cq().entries(1).format(CqFormat::Tagged).open();
    let (cq, av) = (cq.expect("cq"), domain.av().open().expect("av"));
    let ep = domain.endpoint().open().expect("endpoint");
    let bind = CqBind::TRANSMIT | CqBind::RECV | CqBind::SELECTIVE;
    ep.bind_cq(&cq, bind).expect("bind cq");
    ep.bind_av(&av).expect("bind av");
    let counters = KINDS.map(|kind| {
        let cntr = domain.cntr().open().expect("cntr");
        ep.bind_cntr(&cntr, kind).expect("bind cntr");
        cntr
    });
    ep.enable().expect("enable");
    let me = av.insert_one(ep.name().expect("name")).expect("insert");
    let (ours, theirs) = (buffer(64), buffer(64));
    let mr = domain
        .mr(&theirs)
        .access(Access::REMOTE_READ | Access::REMOTE_WRITE)
        .open()
        .expect("mr");
    // It takes the only room of the CQ.
    let reported = Op::trecv(&ours, 77, 0).flags(OpFlags::COMPLETION);
    ep.post_one(&reported.context(1)).expect("trecv");
    let refused = ep.post_one(&Op::write(me, &ours, mr.remote(0)).flags(OpFlags::COMPLETION));
    assert_eq!(errno(refused), Some(Errno::EAGAIN));
    for round in 1..=20u64 {
        ep.trecv(&theirs, 1, 0, 2).expect("trecv");
        ep.recv(&theirs, 2).expect("recv");
        ep.tsend(me, &ours, 1, 3).expect("tsend");
        ep.inject(me, b"x").expect("inject");
        ep.write(me, &ours, mr.remote(0), 4).expect("write");
        ep.inject_write(me, b"x", mr.remote(0)).expect("write");
        ep.read(me, &ours, mr.remote(0), 5).expect("read");
        // And some that fail.
        ep.trecv(&theirs, 1, 0, 6).expect("trecv");
        ep.cancel(6).expect("cancel");
        ep.write(me, &ours, NOWHERE, 7).expect("write");
        ep.read(me, &ours, NOWHERE, 8).expect("read");
        let (sends, recvs) = ((2 * round, 0), (2 * round, round));
        let (reads, writes) = ((round, round), (2 * round, round));
        let expected = [sends, recvs, reads, writes, (round, 0), (2 * round, 0)];
        until("all are counted", || values(&counters) == expected);
    }
    // Only the failures have made entries.
    for _ in 0..20 {
        for context in 6..=8 {
            let entry = cq.readerr().expect("readerr").expect("an error");
            assert_eq!(entry.op_context, context);
        }
    }
    assert!(cq.readerr().expect("readerr").is_none());
    assert_eq!(cq.read(&mut [kfi::Entry::default()]).expect("read"), 0);
}

/// "Any change in a counter's error value will unblock any thread inside kfi_cntr_wait."
fn a_failure_of_each_kind_ends_the_waits_on_its_counter() {
    let (a, to_b, _b) = bare_pair(Way::OneHost);
    let (ours, large) = (buffer(8), buffer(LARGE));
    let failures: [(usize, &dyn Fn()); 4] = [
        (SEND, &|| {
            a.ep.send(to_b, &large, 1).expect("send");
            a.ep.cancel(1).expect("cancel");
        }),
        (RECV, &|| {
            a.ep.recv(&ours, 2).expect("recv");
            a.ep.cancel(2).expect("cancel");
        }),
        (READ, &|| a.ep.read(to_b, &ours, NOWHERE, 3).expect("read")),
        (WRITE, &|| {
            a.ep.inject_write(to_b, b"x", NOWHERE).expect("write")
        }),
    ];
    for (kind, fails) in failures {
        let fds = a.counters.each_ref().map(|cntr| {
            let fd = cntr.wait_fd().expect("fd");
            fd.arm(1000).expect("arm");
            fd
        });
        let waiters: Vec<_> = [1, 1000, u64::MAX]
            .map(|threshold| {
                let cntr = a.counters[kind].clone();
                Sleeper::asleep(move || cntr.wait(threshold, Deadline::FOREVER))
            })
            .into();
        fails();
        for waiter in waiters {
            assert_eq!(errno(waiter.end()), Some(Errno::KFI_EAVAIL));
        }
        for (index, fd) in fds.iter().enumerate() {
            let readable = fd.wait(Duration::ZERO).expect("poll");
            assert_eq!(readable, index == kind, "{:?}", KINDS[index]);
        }
    }
}

/// "When closing the counter, there must be no opened endpoints, transmit contexts, receive
/// contexts or memory regions associated with the counter. If resources are still associated with
/// the counter when attempting to close, the call will return -KFI_EBUSY."
fn a_counter_stays_open_until_its_last_owner_closes() {
    let fabric = device().fabric().expect("fabric");
    let domain = fabric.domain(LINK).open().expect("domain");
    let cntr = domain.cntr().open().expect("cntr");
    let av = domain.av().open().expect("av");
    let memory = buffer(8);
    let region = || {
        let mr = domain.mr(&memory).access(Access::REMOTE_WRITE);
        mr.requested_key(1).open().expect("mr")
    };
    let busy = || {
        let closed = cntr.clone().close();
        assert_eq!(errno(closed), Some(Errno::EBUSY));
    };
    let endpoints = [(); 2].map(|()| {
        let ep = domain.endpoint().caps(Caps::MSG).open().expect("endpoint");
        ep.bind_cntr(&cntr, CntrBind::SEND | CntrBind::RECV)
            .expect("bind cntr");
        ep.bind_av(&av).expect("bind av");
        ep
    });
    let mr = region();
    mr.bind_cntr(&cntr, CntrBind::REMOTE_WRITE)
        .expect("bind cntr");
    let [first, second] = endpoints;
    first.enable().expect("enable");
    busy();
    // One that was enabled, and one that was not.
    first.close().expect("close");
    busy();
    mr.close().expect("close");
    busy();
    second.close().expect("close");
    // One more, which was the only one.
    let mr = region();
    mr.bind_cntr(&cntr, CntrBind::REMOTE_WRITE)
        .expect("bind cntr");
    busy();
    mr.close().expect("close");
    cntr.add(1).expect("it is open");
    cntr.close().expect("close");
}

/// A wait ends when "the counter reaches the specified threshold, or until an error or timeout
/// occurs", a read when "a completion has been read from the CQ or an error or timeout occurs".
/// The end of an endpoint, whose receives are dropped without completions, is none of these.
fn closing_an_endpoint_ends_no_wait() {
    let bare = Bare::new(EpType::Rdm, Caps::MSG | Caps::TAGGED | Caps::RMA);
    let into = buffer(8);
    for context in 0..3 {
        bare.ep.recv(&into, context).expect("recv");
    }
    let Bare { ep, counters, .. } = bare;
    let received = counters[RECV].clone();
    let waiter = Sleeper::asleep(cloned!(cntr = received; move || cntr.wait(1, Deadline::FOREVER)));
    ep.close().expect("close");
    std::thread::sleep(LATE);
    assert!(!waiter.is_finished());
    assert_eq!((received.value(), received.err()), (0, 0));
    received.add(1).expect("add");
    assert_eq!(waiter.end().expect("wait").value, 1);
    drop(received);
    let [_, received, ..] = counters;
    received.close().expect("close");

    let alone = Alone::with_cq(|cq| cq.wait(Wait::Queue));
    for context in 0..3 {
        alone.ep.recv(&into, context).expect("recv");
    }
    let Alone { cq, ep, .. } = alone;
    let reader = Sleeper::asleep(cloned!(cq; move || sread_one(&cq)));
    ep.close().expect("close");
    std::thread::sleep(LATE);
    assert!(!reader.is_finished());
    cq.signal().expect("signal");
    assert_eq!(reader.end().expect("sread"), None);
    cq.close().expect("close");
}
