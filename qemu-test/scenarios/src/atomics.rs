// SPDX-License-Identifier: GPL-2.0
//! Atomics of connected endpoints, between two hosts: two network namespaces, joined by a veth
//! pair.

use crate::{
    connected::{connect, open_region},
    counting::KINDS,
    harness::tests,
    host::{
        ADDED, BOTH, FETCHED, Host, Options, RECEIVED, REMOTE, SENT, buffer_of, domain, register,
        until,
    },
    hosts,
    rdm_atomics::shared_word::count_up,
};
use kfi::{
    Access, AtomicOp, Buffer, Caps, Cntr, CntrBind, CqBind, Datatype, EpType, Errno, FiAddr, IoVec,
    MrMode, Op, OpFlags, Remote,
};
use std::collections::HashSet;

/// Ignored by connected endpoints.
const PEER: FiAddr = FiAddr::UNSPEC;

const UINT64: Datatype = Datatype::Uint64;
const SUM: AtomicOp = AtomicOp::Sum;
const CSWAP: AtomicOp = AtomicOp::Cswap;

/// The first of the wire's `prov_errno`.
const WIRE: u32 = 256;

tests![
    a_fetch_returns_the_old_value,
    a_swap_depends_on_the_comparison,
    a_base_atomic_returns_no_value,
    operands_are_taken_when_posted,
    operands_may_be_pieces_and_regions,
    atomics_use_virtual_addresses,
    excess_atomics_wait,
    counters_count,
    successes_are_told_on_request,
    a_forbidden_access_ends_the_connection,
    two_initiators_share_a_word => 180,
];

fn options() -> Options {
    Options::of(EpType::Msg, Caps::MSG | Caps::RMA | Caps::ATOMIC)
}

/// Two connected hosts.
fn pair() -> (Host, Host) {
    pair_with(&options())
}

/// Two connected hosts, the first with `options`.
fn pair_with(options: &Options) -> (Host, Host) {
    hosts::apart();
    let (a, b) = (Host::with(options), Host::with(&self::options()));
    connect(&a, &b);
    (a, b)
}

/// A buffer of these words.
fn words(words: &[u64]) -> Buffer {
    buffer_of(words)
}

/// All words of a buffer.
fn read(buffer: &Buffer) -> Vec<u64> {
    buffer.elements()
}

fn a_fetch_returns_the_old_value() {
    let (a, b) = pair();
    let mut value = u64::MAX - 5;
    let theirs = words(&[7, value, 9]);
    let mr = open_region(&b, &theirs, 1);
    let before = words(&[1, 2, 3]);
    for add in [1, 0x1234_5678_9abc_def0, 5, u64::MAX, 0] {
        let (operand, into) = (words(&[add]), before.slice(8..16));
        let word = mr.remote(8);
        a.ep.fetch_atomic(PEER, &operand, into, word, UINT64, SUM, 4)
            .expect("fetch_atomic");
        assert_eq!(a.expect(FETCHED, 4).len, 0);
        assert_eq!(read(&before), [1, value, 3]);
        value = value.wrapping_add(add);
        assert_eq!(read(&theirs), [7, value, 9]);
    }
    b.expect_nothing();
}

fn a_swap_depends_on_the_comparison() {
    let (a, b) = pair();
    let mut value = 7;
    let theirs = words(&[1, value, 3]);
    let mr = open_region(&b, &theirs, 1);
    let before = words(&[0]);
    for (compare, swap) in [(7, 9), (7, 11), (9, u64::MAX), (u64::MAX, 0), (1, 2)] {
        let (operand, compared) = (words(&[swap]), words(&[compare]));
        let word = mr.remote(8);
        a.ep.compare_atomic(PEER, &operand, &compared, &before, word, UINT64, CSWAP, 5)
            .expect("compare_atomic");
        a.expect(FETCHED, 5);
        assert_eq!(read(&before), [value]);
        if value == compare {
            value = swap;
        }
        assert_eq!(read(&theirs), [1, value, 3]);
    }
}

fn a_base_atomic_returns_no_value() {
    let (a, b) = pair();
    let theirs = words(&[40]);
    let mr = open_region(&b, &theirs, 1);
    a.ep.atomic(PEER, &words(&[2]), mr.remote(0), UINT64, SUM, 6)
        .expect("atomic");
    a.expect(ADDED, 6);
    assert_eq!(read(&theirs), [42]);
    // An injected one makes no entry at all.
    let eight = 8u64.to_ne_bytes();
    let inject = Op::inject_atomic(PEER, &eight, mr.remote(0), UINT64, SUM).context(7);
    a.ep.post_one(&inject).expect("inject_atomic");
    until("it is done", || read(&theirs) == [50]);
    a.expect_nothing();
    a.ep.post_one(&inject.flags(OpFlags::COMPLETION))
        .expect("inject_atomic");
    a.expect(ADDED, 7);
    assert_eq!(read(&theirs), [58]);
}

fn operands_are_taken_when_posted() {
    let (a, b) = pair();
    let theirs = words(&[1, 5]);
    let mr = open_region(&b, &theirs, 1);
    let (operand, compared, before) = (words(&[10]), words(&[5]), words(&[0, 0]));
    let message = words(&[0]);
    // It waits for its receive, and later operations wait for it.
    a.ep.send(PEER, &message, 1).expect("send");
    let first = before.slice(..8);
    a.ep.fetch_atomic(PEER, &operand, first, mr.remote(0), UINT64, SUM, 2)
        .expect("fetch_atomic");
    let second = before.slice(8..);
    let word = mr.remote(8);
    a.ep.compare_atomic(PEER, &operand, &compared, second, word, UINT64, CSWAP, 3)
        .expect("compare_atomic");
    operand.fill(0xff);
    compared.fill(0xff);
    b.ep.recv(&message, 4).expect("recv");
    a.expect(SENT, 1);
    a.expect(FETCHED, 2);
    a.expect(FETCHED, 3);
    b.expect(RECEIVED, 4);
    assert_eq!(read(&theirs), [11, 10]);
    assert_eq!(read(&before), [1, 5]);
}

fn operands_may_be_pieces_and_regions() {
    let (a, b) = pair();
    let theirs = words(&[100, 200]);
    let mr = open_region(&b, &theirs, 1);
    // An operand in two pieces.
    let operand = words(&[3, 4]);
    let pieces: [IoVec<'_>; 2] = [operand.slice(..3).into(), operand.slice(3..8).into()];
    a.ep.atomic(PEER, &pieces, mr.remote(8), UINT64, SUM, 1)
        .expect("atomic");
    a.expect(ADDED, 1);
    assert_eq!(read(&theirs), [100, 203]);
    // All local memory is in a region.
    let ours = words(&[203, 7, 0]);
    let local = register(&a.domain, &ours, Access::READ | Access::WRITE, 1);
    let (compared, operand) = (local.slice(..8), local.slice(8..16));
    let (result, word) = (local.slice(16..), mr.remote(8));
    a.ep.compare_atomic(PEER, operand, compared, result, word, UINT64, CSWAP, 2)
        .expect("compare_atomic");
    a.expect(FETCHED, 2);
    assert_eq!(
        (read(&theirs), read(&ours)),
        (vec![100, 7], vec![203, 7, 203])
    );
}

fn atomics_use_virtual_addresses() {
    let apart = hosts::apart();
    let (fabric, _) = apart.domain(1);
    let domain = fabric.domain("vb").mr_mode(MrMode::VIRT_ADDR).open();
    let b = Host::on(&domain.expect("domain"), &options());
    let a = Host::with(&options());
    connect(&a, &b);
    let theirs = words(&[5]);
    let mr = open_region(&b, &theirs, 1);
    assert_eq!(mr.iova(), theirs.addr());
    let (six, before) = (words(&[6]), words(&[0]));
    a.ep.fetch_atomic(PEER, &six, &before, mr.remote(0), UINT64, SUM, 1)
        .expect("fetch_atomic");
    a.expect(FETCHED, 1);
    assert_eq!((read(&theirs), read(&before)), (vec![11], vec![5]));
}

fn excess_atomics_wait() {
    const COUNT: u64 = 100;
    let (a, b) = pair();
    let theirs = words(&[0]);
    let mr = open_region(&b, &theirs, 1);
    let one = words(&[1]);
    let before = words(&[u64::MAX; COUNT as usize]);
    let ops: Vec<Op<'_>> = (0..COUNT)
        .map(|number| {
            let at = number as usize * 8;
            let into = before.slice(at..at + 8);
            let op = Op::fetch_atomic(PEER, &one, into, mr.remote(0), UINT64, SUM);
            // Some wait until those before them are complete.
            let fence = number % 7 == 0;
            let flags = if fence {
                OpFlags::FENCE
            } else {
                OpFlags::empty()
            };
            op.flags(flags).context(number)
        })
        .collect();
    assert!(a.ep.post(&ops).expect("post").all());
    for number in 0..COUNT {
        a.expect(FETCHED, number);
    }
    // They are executed in the order of posting.
    assert!(read(&before).into_iter().eq(0..COUNT));
    assert_eq!(read(&theirs), [COUNT]);
}

fn counters_count() {
    hosts::apart();
    let [_, _, kinds @ ..] = KINDS;
    let [(a, at_a), (b, at_b)] = [(); 2].map(|()| Host::counting(&domain().1, &options(), kinds));
    connect(&a, &b);
    let theirs = words(&[0]);
    let mr = open_region(&b, &theirs, 1);
    let of_region = b.domain.cntr().open().expect("cntr");
    mr.bind_cntr(&of_region, CntrBind::REMOTE_READ)
        .expect("bind");
    let (one, before, word) = (words(&[1]), words(&[0]), mr.remote(0));
    a.ep.atomic(PEER, &one, word, UINT64, SUM, 1)
        .expect("atomic");
    a.expect(ADDED, 1);
    for context in 2..4 {
        a.ep.fetch_atomic(PEER, &one, &before, word, UINT64, SUM, context)
            .expect("fetch_atomic");
        a.expect(FETCHED, context);
    }
    a.ep.compare_atomic(PEER, &one, &one, &before, word, UINT64, CSWAP, 4)
        .expect("compare_atomic");
    a.expect(FETCHED, 4);
    let values = |cntrs: &[Cntr; 4]| cntrs.each_ref().map(Cntr::value);
    until("the poster has counted", || values(&at_a) == [3, 1, 0, 0]);
    until("the target has counted", || values(&at_b) == [0, 0, 4, 0]);
    assert_eq!(of_region.value(), 4);
}

fn successes_are_told_on_request() {
    let (a, b) = pair_with(&Options {
        bind: BOTH | CqBind::SELECTIVE,
        ..options()
    });
    let theirs = words(&[0]);
    let mr = open_region(&b, &theirs, 1);
    let (one, before, word) = (words(&[1]), words(&[0]), mr.remote(0));
    let op = Op::fetch_atomic(PEER, &one, &before, word, UINT64, SUM);
    a.ep.post_one(&op.context(1)).expect("fetch_atomic");
    let reported = op.flags(OpFlags::COMPLETION).context(2);
    a.ep.post_one(&reported).expect("fetch_atomic");
    a.expect(FETCHED, 2);
    a.expect_nothing();
    assert_eq!((read(&theirs), read(&before)), (vec![2], vec![1]));
    // Failures are reported.
    let wrong = Remote::new(0, 99);
    let op = Op::fetch_atomic(PEER, &one, &before, wrong, UINT64, SUM);
    a.ep.post_one(&op.context(3)).expect("fetch_atomic");
    assert_eq!(a.failure().op_context, 3);
}

fn a_forbidden_access_ends_the_connection() {
    let both = REMOTE;
    let caps = options().caps;
    let access = (Errno::EACCES, WIRE + 10);
    let invalid = (Errno::EREMOTEIO, WIRE + 9);
    for (what, caps, rights, key, at, answer) in [
        ("key", caps, both, 2, 0, access),
        ("no read", caps, Access::REMOTE_WRITE, 1, 0, access),
        ("no write", caps, Access::REMOTE_READ, 1, 0, access),
        ("bounds", caps, both, 1, 16, access),
        ("capabilities", Caps::MSG, both, 1, 0, invalid),
    ] {
        hosts::apart();
        let (a, b) = (
            Host::with(&options()),
            Host::with(&Options { caps, ..options() }),
        );
        connect(&a, &b);
        let theirs = words(&[1, 2]);
        let region = b.domain.mr(&theirs).access(rights).requested_key(1);
        let _mr = region.open().expect("mr");
        let (one, before, word) = (words(&[1]), words(&[9]), Remote::new(at, key));
        a.ep.fetch_atomic(PEER, &one, &before, word, UINT64, SUM, 1)
            .expect("post");
        let entry = a.failure();
        assert_eq!((entry.err, entry.prov_errno), answer, "{what}");
        assert_eq!((entry.flags, entry.op_context), (FETCHED, 1), "{what}");
        assert_eq!((read(&theirs), read(&before)), (vec![1, 2], vec![9]));
        until("the connection is over", || {
            let after = a.ep.atomic(PEER, &one, word, UINT64, SUM, 2);
            after.is_err_and(|error| error.is(Errno::ESHUTDOWN))
        });
    }
}

/// Adds 1 to a word `count` times, by comparing.
fn swap_up(host: &Host, word: Remote, count: u64) -> Vec<u64> {
    let (operand, compared, before) = (words(&[1]), words(&[0]), words(&[0]));
    let mut found = Vec::new();
    while (found.len() as u64) < count {
        host.ep
            .compare_atomic(PEER, &operand, &compared, &before, word, UINT64, CSWAP, 1)
            .expect("compare_atomic");
        host.expect(FETCHED, 1);
        let (was, expected) = (read(&before)[0], read(&compared)[0]);
        let mut now = was;
        if was == expected {
            found.push(was);
            now += 1;
        }
        compared.write_at(0, &now.to_ne_bytes());
        operand.write_at(0, &(now + 1).to_ne_bytes());
    }
    found
}

fn two_initiators_share_a_word() {
    const ADDS: u64 = 2000;
    const SWAPS: u64 = 100;
    hosts::apart();
    let (one, target) = (Host::with(&options()), Host::with(&options()));
    let (two, other) = (Host::with(&options()), Host::on(&target.domain, &options()));
    connect(&one, &target);
    connect(&two, &other);
    let theirs = words(&[0]);
    let mr = open_region(&target, &theirs, 1);
    let word = mr.remote(0);
    let found = std::thread::scope(|scope| {
        let adder = scope.spawn(|| count_up(&one, PEER, word, ADDS, 1u64, |old| old));
        let second = scope.spawn(|| {
            let mut found = count_up(&two, PEER, word, ADDS, 1u64, |old| old);
            found.extend(swap_up(&two, word, SWAPS));
            found
        });
        let mut found = adder.join().expect("an initiator");
        found.extend(second.join().expect("an initiator"));
        found
    });
    // All old values differ.
    let total = 2 * ADDS + SWAPS;
    assert_eq!(read(&theirs), [total]);
    let found: HashSet<u64> = found.into_iter().collect();
    assert!((0..total).all(|value| found.contains(&value)));
}
