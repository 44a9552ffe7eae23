// SPDX-License-Identifier: GPL-2.0
//! Triggered operations (fi_trigger(3)): KFI_TRIGGER on operations of each kind, as a default flag,
//! and by an alias of the endpoint.

use crate::{
    connected::open_region,
    deferred::{QUIET, RECEIVED, SENT, cntr, queue},
    harness::tests,
    host::{Host, LINK, Options, SOON, buffer, domain, errno, pattern, until},
    ways::Way,
};
use kfi::{
    AtomicOp, Buffer, Caps, CompFlags, Datatype, EpType, Errno, FiAddr, Op, OpFlags, Remote, Side,
    Work,
};

tests![
    operations_start_when_due: [OneHost, TwoHosts, Connection, Datagrams],
    triggered_operations_and_deferred_work_have_one_order,
    only_successes_trigger,
    a_triggered_operation_is_cancelled,
    an_alias_triggers,
    a_default_flag_triggers,
    an_alias_has_flags_of_its_own,
    invalid_triggers_are_refused,
    objects_of_a_trigger_stay_open,
    every_kind_is_triggered: [OneHost, TwoHosts],
    a_claim_is_triggered: [OneHost, TwoHosts],
    triggered_operations_are_limited => 300,
];

const WROTE: CompFlags = CompFlags::RMA.union(CompFlags::WRITE);
const READ: CompFlags = CompFlags::RMA.union(CompFlags::READ);

/// Two hosts whose endpoints are capable of triggers.
fn pair(way: Way) -> (Host, FiAddr, Host) {
    if way == Way::TwoHosts {
        crate::hosts::apart();
    }
    let usual = way.options(&Options::default());
    let able = Options {
        caps: usual.caps | Caps::TRIGGER,
        ..usual
    };
    let (a, b) = (Host::with(&able), Host::with(&able));
    let to_b = way.introduce(&a, &b);
    (a, to_b, b)
}

fn on_one_host() -> (Host, FiAddr, Host) {
    pair(Way::OneHost)
}

fn operations_start_when_due(way: Way) {
    let (a, to_b, b) = pair(way);
    let (go, ready) = (cntr(&a.domain), cntr(&b.domain));
    let (from, into) = (
        Buffer::from_bytes(b"by the counter..").expect("buffer"),
        buffer(16),
    );
    b.ep.post_one(&Op::recv(&into).context(1).trigger(&ready, 1))
        .expect("recv");
    a.ep.post_one(&Op::send(to_b, &from).context(2).trigger(&go, 3))
        .expect("send");
    ready.add(1).expect("add");
    go.add(2).expect("add");
    std::thread::sleep(QUIET);
    a.expect_nothing();
    b.expect_nothing();
    go.add(1).expect("add");
    // It completes as any operation.
    a.expect(SENT, 2);
    b.expect(RECEIVED, 1);
    assert_eq!(into.to_vec(..), b"by the counter..");
    if !way.has_rma() {
        return;
    }
    let theirs = buffer(5000);
    let mr = open_region(&b, &theirs, 1);
    let bytes = pattern(5000, 1);
    let (from, into) = (Buffer::from_bytes(&bytes).expect("buffer"), buffer(5000));
    let remote = Remote::new(0, mr.key());
    a.ep.post_one(&Op::read(to_b, &into, remote).context(4).trigger(&go, 5))
        .expect("read");
    a.ep.post_one(&Op::write(to_b, &from, remote).context(3).trigger(&go, 4))
        .expect("write");
    go.add(1).expect("add");
    a.expect(WROTE, 3);
    go.add(1).expect("add");
    a.expect(READ, 4);
    assert!(into.to_vec(..) == bytes);
}

fn triggered_operations_and_deferred_work_have_one_order() {
    let (a, to_b, b) = on_one_host();
    let go = cntr(&a.domain);
    let thresholds = [3u64, 1, 2, 3, 1, 2];
    for (number, threshold) in thresholds.iter().enumerate() {
        let bytes = [number as u8];
        let op = Op::inject(to_b, &bytes);
        if number % 2 == 0 {
            a.ep.post_one(&op.trigger(&go, *threshold)).expect("post");
        } else {
            queue(&a.domain, Work::transfer(&go, *threshold, &a.ep, op));
        }
    }
    go.add(9).expect("add");
    let into = buffer(1);
    for number in [1u8, 4, 2, 5, 0, 3] {
        b.ep.recv(&into, 1).expect("recv");
        b.expect(RECEIVED, 1);
        assert_eq!(into.to_vec(..), [number]);
    }
}

/// KFI_TRIGGER compares with the success value, deferred work with the sum.
fn only_successes_trigger() {
    let (a, to_b, b) = on_one_host();
    let go = cntr(&a.domain);
    let into = buffer(1);
    b.ep.recv(&into, 1).expect("recv");
    a.ep.post_one(&Op::inject(to_b, b"x").trigger(&go, 2))
        .expect("post");
    go.add(1).expect("add");
    go.adderr(5).expect("adderr");
    std::thread::sleep(QUIET);
    b.expect_nothing();
    go.add(1).expect("add");
    b.expect(RECEIVED, 1);
}

fn a_triggered_operation_is_cancelled() {
    let (a, to_b, b) = on_one_host();
    let (go, other) = (cntr(&a.domain), cntr(&a.domain));
    let from = buffer(4);
    for (context, cntr) in [(1, &go), (2, &other), (3, &go)] {
        let op = Op::send(to_b, &from).context(context);
        a.ep.post_one(&op.trigger(cntr, 1)).expect("post");
    }
    // Many others before it.
    let done = cntr(&a.domain);
    for n in 0..200 {
        queue(&a.domain, Work::add(&go, 1, &done, 1));
        let op = Op::send(to_b, &from).context(100 + n).trigger(&other, 1);
        a.ep.post_one(&op).expect("post");
    }
    for context in [3, 2, 299] {
        a.ep.cancel(context).expect("cancel");
        let entry = a.failure();
        let found = (entry.err, entry.op_context, entry.flags);
        assert_eq!(found, (Errno::ECANCELED, context, SENT));
        assert_eq!(errno(a.ep.cancel(context)), Some(Errno::ENOENT));
    }
    // Only operations of this endpoint.
    assert_eq!(errno(b.ep.cancel(1)), Some(Errno::ENOENT));
    // KFI_FLUSH_WORK cancels deferred work, and no triggered operations.
    assert_eq!(a.domain.flush_work().expect("flush"), 200);
    go.add(1).expect("add");
    a.expect(SENT, 1);
    assert_eq!(errno(a.ep.cancel(1)), Some(Errno::ENOENT));
}

fn an_alias_triggers() {
    let (a, to_b, b) = on_one_host();
    let go = cntr(&a.domain);
    let alias =
        a.ep.alias(OpFlags::TRIGGER, OpFlags::empty())
            .expect("alias");
    let into = buffer(8);
    for context in 1..=3 {
        b.ep.recv(&into, context).expect("recv");
    }
    // "All data transfer operations on a trigger-able endpoint are deferred."
    alias
        .post_one(&Op::inject(to_b, b"deferred").condition(&go, 1))
        .expect("post");
    // The endpoint itself has none of the flags of its alias.
    a.ep.inject(to_b, b"at once.").expect("inject");
    b.expect(RECEIVED, 1);
    assert_eq!(into.to_vec(..), b"at once.");
    go.add(1).expect("add");
    b.expect(RECEIVED, 2);
    assert_eq!(into.to_vec(..), b"deferred");
    assert_eq!(errno(a.ep.clone().close()), Some(Errno::EBUSY));
    alias.close().expect("close");
}

fn a_default_flag_triggers() {
    let (a, to_b, b) = on_one_host();
    let into = buffer(4);
    for context in 1..=2 {
        b.ep.recv(&into, context).expect("recv");
    }
    a.ep.set_op_flags(Side::Transmit, OpFlags::TRIGGER)
        .expect("opsflag");
    let plain = Op::inject(to_b, b"late");
    // The handle 0 names no counter.
    assert_eq!(errno(a.ep.post_one(&plain)), Some(Errno::EBADF));
    let go = cntr(&a.domain);
    a.ep.post_one(&plain.condition(&go, 1)).expect("post");
    std::thread::sleep(QUIET);
    b.expect_nothing();
    go.add(1).expect("add");
    b.expect(RECEIVED, 1);
    // With exactly its own flags an operation is not triggered.
    a.ep.post_one(&plain.explicit()).expect("post");
    b.expect(RECEIVED, 2);
    // A receive is of the other side.
    a.ep.recv(&into, 7).expect("recv");
    a.ep.cancel(7).expect("cancel");
    assert_eq!(a.failure().err, Errno::ECANCELED);
}

fn an_alias_has_flags_of_its_own() {
    let (a, to_b, b) = on_one_host();
    let into = buffer(4);
    let told =
        a.ep.alias(OpFlags::COMPLETION, OpFlags::empty())
            .expect("alias");
    for context in 1..=3 {
        b.ep.recv(&into, context).expect("recv");
    }
    told.post_one(&Op::inject(to_b, b"told").context(5))
        .expect("post");
    a.expect(SENT, 5);
    a.ep.inject(to_b, b"mute").expect("inject");
    told.post_one(&Op::inject(to_b, b"mute").explicit())
        .expect("post");
    for context in 1..=3 {
        b.expect(RECEIVED, context);
    }
    a.expect_nothing();
    let bad = a.ep.alias(OpFlags::MULTI_RECV, OpFlags::empty());
    assert_eq!(errno(bad), Some(Errno::EINVAL));
}

fn invalid_triggers_are_refused() {
    // Both domains belong to one open file.
    let (fabric, domain) = domain();
    let able = Options {
        caps: Options::default().caps | Caps::TRIGGER,
        ..Options::default()
    };
    let a = Host::on(&domain, &able);
    let to_b = a.meet(&a);
    let other = fabric.domain(LINK).open().expect("domain");
    let plain = Host::on(&other, &Options::default());
    let (go, its) = (cntr(&a.domain), cntr(&plain.domain));
    let op = Op::inject(to_b, b"x");
    // A counter of another domain, an endpoint without the capability.
    let foreign = op.trigger(&its, 1);
    assert_eq!(errno(a.ep.post_one(&foreign)), Some(Errno::EINVAL));
    let incapable = op.trigger(&its, 1);
    assert_eq!(
        errno(plain.ep.post_one(&incapable)),
        Some(Errno::EOPNOTSUPP)
    );
    let flags = plain.ep.set_op_flags(Side::Transmit, OpFlags::TRIGGER);
    assert_eq!(errno(flags), Some(Errno::EOPNOTSUPP));
    let alias = plain.ep.alias(OpFlags::TRIGGER, OpFlags::empty());
    assert_eq!(errno(alias), Some(Errno::EOPNOTSUPP));
    let opened = plain.domain.endpoint().tx_op_flags(OpFlags::TRIGGER).open();
    assert_eq!(errno(opened), Some(Errno::EOPNOTSUPP));
    let able = (plain.domain.endpoint())
        .ep_type(EpType::Rdm)
        .caps(Caps::MSG | Caps::TRIGGER)
        .tx_op_flags(OpFlags::TRIGGER)
        .rx_op_flags(OpFlags::TRIGGER);
    able.open().expect("open");
    // What a post refuses is refused when it is posted.
    let long = [0; 257];
    let too_long = Op::inject(to_b, &long).trigger(&go, 1);
    assert_eq!(errno(a.ep.post_one(&too_long)), Some(Errno::EMSGSIZE));
    go.add(1).expect("add");
    a.expect_nothing();
}

fn objects_of_a_trigger_stay_open() {
    let (a, to_b, _b) = on_one_host();
    let go = cntr(&a.domain);
    a.ep.post_one(&Op::inject(to_b, b"x").context(1).trigger(&go, 1))
        .expect("post");
    assert_eq!(errno(go.clone().close()), Some(Errno::EBUSY));
    assert_eq!(errno(a.ep.clone().close()), Some(Errno::EBUSY));
    a.ep.cancel(1).expect("cancel");
    go.close().expect("close");
    a.ep.close().expect("close");
}

/// "Any data transfer operation is potentially trigger-able."
fn every_kind_is_triggered(way: Way) {
    let options = Options {
        caps: Options::default().caps | Caps::ATOMIC | Caps::TRIGGER,
        ..Options::default()
    };
    let (a, to_b, b) = way.pair_with(&options);
    let (go, ready) = (cntr(&a.domain), cntr(&b.domain));
    let nothing = || {
        std::thread::sleep(QUIET);
        a.expect_nothing();
        b.expect_nothing();
    };
    // Tagged.
    let (from, into) = (Buffer::from_bytes(b"tags").expect("buffer"), buffer(4));
    b.ep.post_one(&Op::trecv(&into, 7, 0).context(1).trigger(&ready, 1))
        .expect("trecv");
    a.ep.post_one(&Op::tsend(to_b, &from, 7).context(2).trigger(&go, 1))
        .expect("tsend");
    nothing();
    ready.add(1).expect("add");
    go.add(1).expect("add");
    assert_eq!(a.completion().op_context, 2);
    assert_eq!(b.completion().op_context, 1);
    assert_eq!(into.to_vec(..), b"tags");
    // A search, which finds nothing when it is due.
    b.ep.post_one(&Op::tpeek(9, 0).context(3).trigger(&ready, 2))
        .expect("peek");
    nothing();
    ready.add(1).expect("add");
    let entry = b.failure();
    assert_eq!((entry.err, entry.op_context), (Errno::ENOMSG, 3));
    // A multi-receive buffer.
    let many = buffer(4096);
    b.ep.post_one(&Op::multi_recv(&many).context(4).trigger(&ready, 3))
        .expect("multi_recv");
    nothing();
    ready.add(1).expect("add");
    for bytes in [b"one", b"two"] {
        a.ep.inject(to_b, bytes).expect("inject");
        assert_eq!(b.completion().op_context, 4);
    }
    assert_eq!(many.to_vec(..6), b"onetwo");
    b.ep.cancel(4).expect("cancel");
    assert_eq!(b.failure().op_context, 4);
    // Atomics of each form.
    let theirs = Buffer::of(&[10u64]).expect("buffer");
    let mr = open_region(&b, &theirs, 1);
    let (at, uint64) = (mr.remote(0), Datatype::Uint64);
    let word = |value: u64| Buffer::of(&[value]).expect("buffer");
    let (one, before, swap, compare, old) = (word(1), word(0), word(99), word(12), word(0));
    let ops = [
        Op::atomic(to_b, &one, at, uint64, AtomicOp::Sum),
        Op::fetch_atomic(to_b, &one, &before, at, uint64, AtomicOp::Sum),
        Op::compare_atomic(to_b, &swap, &compare, &old, at, uint64, AtomicOp::Cswap),
    ];
    for (number, op) in (0..).zip(ops) {
        let op = op.context(10 + number).trigger(&go, 2 + number);
        a.ep.post_one(&op).expect("atomic");
    }
    nothing();
    assert_eq!(theirs.elements::<u64>(), [10]);
    for number in 0..3 {
        go.add(1).expect("add");
        assert_eq!(a.completion().op_context, 10 + number);
    }
    assert_eq!(before.elements::<u64>(), [11]);
    assert_eq!(old.elements::<u64>(), [12]);
    assert_eq!(theirs.elements::<u64>(), [99]);
    // "If the condition is met when the request is made": at once.
    let op = Op::atomic(to_b, &one, at, uint64, AtomicOp::Sum).context(20);
    a.ep.post_one(&op.trigger(&go, 0)).expect("atomic");
    assert_eq!(a.completion().op_context, 20);
    a.ep.post_one(&op.trigger(&go, go.value())).expect("atomic");
    assert_eq!(a.completion().op_context, 20);
    assert_eq!(theirs.elements::<u64>(), [101]);
}

/// Searches that claim or discard a message, and the receives of claimed messages.
fn a_claim_is_triggered(way: Way) {
    let (a, to_b, b) = pair(way);
    let go = cntr(&b.domain);
    let into = buffer(5);
    for tag in 1..=3 {
        a.ep.tinject(to_b, &[tag as u8; 5], tag).expect("tinject");
    }
    // The last one has come when it is found, and so have those before it.
    until("the messages have come", || {
        b.ep.post_one(&Op::tpeek(3, 0)).expect("peek");
        b.cq.next(SOON).is_ok()
    });
    let post = |op: Op<'_>, tag, flags, threshold| {
        let op = op.context(tag).flags(flags).trigger(&go, threshold);
        b.ep.post_one(&op).expect("post");
    };
    let found = |tag| {
        std::thread::sleep(QUIET);
        b.expect_nothing();
        go.add(1).expect("add");
        assert_eq!(b.completion().op_context, tag);
    };
    let (claim, discard) = (OpFlags::CLAIM, OpFlags::DISCARD);
    post(Op::tpeek(1, 0), 1, claim, 1);
    post(Op::tpeek(2, 0), 2, claim, 2);
    post(Op::tpeek(3, 0), 3, discard, 3);
    for tag in 1..=3 {
        found(tag);
    }
    post(Op::trecv(&into, 1, 0), 1, claim, 4);
    post(Op::trecv(&into, 2, 0), 2, claim | discard, 5);
    found(1);
    assert_eq!(into.to_vec(..), [1; 5]);
    found(2);
    assert_eq!(into.to_vec(..), [1; 5]);
    // That nothing was claimed is found out when it starts.
    post(Op::trecv(&into, 1, 0), 7, claim, 6);
    go.add(1).expect("add");
    let entry = b.failure();
    assert_eq!((entry.err, entry.op_context), (Errno::ENOMSG, 7));
    b.expect_nothing();
}

/// The limit of a domain is one for triggered operations and deferred work.
fn triggered_operations_are_limited() {
    let (a, to_b, _b) = on_one_host();
    let (go, other, done) = (cntr(&a.domain), cntr(&a.domain), cntr(&a.domain));
    let waiting = |context| Op::inject(to_b, b"x").context(context).trigger(&go, 1);
    a.ep.post_one(&waiting(1)).expect("post");
    let works = vec![Work::add(&other, 7, &done, 1); 4096];
    let mut queued = 0;
    while let Ok(call) = a.domain.queue_work(&works) {
        queued += call.ids.len() as u32;
        if !call.all() {
            break;
        }
    }
    let max = crate::host::device().query().expect("query").max_work;
    assert_eq!(queued, max - 1);
    assert_eq!(errno(a.ep.post_one(&waiting(2))), Some(Errno::ENOSPC));
    // The refused one has left nothing, and there is room for one when one is cancelled.
    assert_eq!(errno(a.ep.cancel(2)), Some(Errno::ENOENT));
    a.ep.cancel(1).expect("cancel");
    assert_eq!(a.failure().err, Errno::ECANCELED);
    a.ep.post_one(&waiting(3)).expect("post");
    assert_eq!(errno(a.ep.post_one(&waiting(4))), Some(Errno::ENOSPC));
    // Work that is due at once does not wait, and needs no room.
    a.domain
        .queue_one(&Work::add(&go, 0, &done, 1))
        .expect("at once");
    assert_eq!(done.value(), 1);
    assert_eq!(a.domain.flush_work().expect("flush"), u64::from(max - 1));
    a.ep.cancel(3).expect("cancel");
    assert_eq!(a.failure().err, Errno::ECANCELED);
}
