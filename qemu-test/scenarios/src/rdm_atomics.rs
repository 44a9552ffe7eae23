// SPDX-License-Identifier: GPL-2.0
//! Atomics of reliable datagrams, on one host and between two hosts: two network namespaces, joined
//! by a veth pair. `atomics` has those of connected endpoints.

use crate::{
    connected::open_region,
    harness::tests,
    host::{Host, Options, errno, until},
    hosts,
    ways::{Way, on_ways},
};
use kfi::{
    Access, AtomicForm, AtomicOp, Buffer, Caps, CntrBind, CompFlags, CqBind, Datatype, Element,
    EpType, Errno, FiAddr, IoVec, Mr, Op, OpFlags, Remote, RmaIov,
};
use std::{
    collections::HashSet,
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    time::Duration,
};

const ADDED: CompFlags = CompFlags::ATOMIC.union(CompFlags::WRITE);
const FETCHED: CompFlags = CompFlags::ATOMIC.union(CompFlags::READ);
const NOTED: CompFlags = CompFlags::ATOMIC
    .union(CompFlags::REMOTE_WRITE)
    .union(CompFlags::REMOTE_CQ_DATA);

tests![
    every_integer_on_one_host => 120,
    every_integer_between_two_hosts => 120,
    every_float_on_one_host,
    every_float_between_two_hosts,
    complex_numbers_on_one_host,
    complex_numbers_between_two_hosts,
    pieces_on_one_host,
    pieces_between_two_hosts,
    long_operands_on_one_host,
    long_operands_between_two_hosts,
    counters_on_one_host,
    counters_between_two_hosts,
    an_injected_atomic_is_silent_on_one_host,
    an_injected_atomic_is_silent_between_two_hosts,
    cq_data_on_one_host,
    cq_data_between_two_hosts,
    forbidden_accesses_on_one_host,
    forbidden_accesses_between_two_hosts => 120,
    capabilities_on_one_host,
    capabilities_between_two_hosts,
    the_query_tells_what_endpoints_have,
    invalid_atomics_are_refused,
    writes_and_atomics_keep_their_order,
    atomics_pass_messages_without_room,
    all_ways_add_up => 180,
    each_atomic_executes_once_over_a_lossy_network => 300,
];

on_ways! {
    every_integer: every_integer_on_one_host => OneHost, every_integer_between_two_hosts => TwoHosts;
    every_float: every_float_on_one_host => OneHost, every_float_between_two_hosts => TwoHosts;
    complex_numbers: complex_numbers_on_one_host => OneHost,
        complex_numbers_between_two_hosts => TwoHosts;
    pieces: pieces_on_one_host => OneHost, pieces_between_two_hosts => TwoHosts;
    long_operands: long_operands_on_one_host => OneHost, long_operands_between_two_hosts => TwoHosts;
    counters: counters_on_one_host => OneHost, counters_between_two_hosts => TwoHosts;
    an_injected_atomic_is_silent: an_injected_atomic_is_silent_on_one_host => OneHost,
        an_injected_atomic_is_silent_between_two_hosts => TwoHosts;
    cq_data: cq_data_on_one_host => OneHost, cq_data_between_two_hosts => TwoHosts;
    forbidden_accesses: forbidden_accesses_on_one_host => OneHost,
        forbidden_accesses_between_two_hosts => TwoHosts;
    capabilities: capabilities_on_one_host => OneHost, capabilities_between_two_hosts => TwoHosts;
}

const CAPS: Caps = Caps::MSG.union(Caps::RMA).union(Caps::ATOMIC);

fn options() -> Options {
    Options {
        caps: CAPS,
        ..Options::default()
    }
}

fn pair(way: Way) -> (Host, FiAddr, Host) {
    way.pair_with(&options())
}

/// The operations, in the order of their numbers.
const OPS: [AtomicOp; 19] = [
    AtomicOp::Min,
    AtomicOp::Max,
    AtomicOp::Sum,
    AtomicOp::Prod,
    AtomicOp::Lor,
    AtomicOp::Land,
    AtomicOp::Bor,
    AtomicOp::Band,
    AtomicOp::Lxor,
    AtomicOp::Bxor,
    AtomicOp::AtomicRead,
    AtomicOp::AtomicWrite,
    AtomicOp::Cswap,
    AtomicOp::CswapNe,
    AtomicOp::CswapLe,
    AtomicOp::CswapLt,
    AtomicOp::CswapGe,
    AtomicOp::CswapGt,
    AtomicOp::Mswap,
];

/// The forms that have an operation.
fn forms(op: AtomicOp) -> &'static [AtomicForm] {
    match op {
        AtomicOp::AtomicRead => &[AtomicForm::Fetch],
        AtomicOp::Cswap
        | AtomicOp::CswapNe
        | AtomicOp::CswapLe
        | AtomicOp::CswapLt
        | AtomicOp::CswapGe
        | AtomicOp::CswapGt
        | AtomicOp::Mswap => &[AtomicForm::Compare],
        _ => &[AtomicForm::Base, AtomicForm::Fetch],
    }
}

/// An element whose new value this CPU computes. `None`: the type does not have the operation.
trait Number: Element + PartialEq + std::fmt::Debug {
    /// Values at the limits of the type.
    fn limits() -> Vec<Self>;
    fn new_value(op: AtomicOp, old: Self, operand: Self, compare: Self) -> Option<Self>;
    /// The bits, by which zeros differ; `None` for a NaN.
    fn bits(self) -> Option<u64>;
}

/// What integers and floating point have in common.
macro_rules! common {
    ($op:ident $a:ident $b:ident $c:ident $zero:expr, $one:expr) => {{
        let truth = |holds: bool| if holds { $one } else { $zero };
        let choose = |holds: bool| if holds { $b } else { $a };
        match $op {
            AtomicOp::Min => choose($b < $a),
            AtomicOp::Max => choose($b > $a),
            AtomicOp::Lor => truth($a != $zero || $b != $zero),
            AtomicOp::Land => truth($a != $zero && $b != $zero),
            AtomicOp::Lxor => truth(($a != $zero) != ($b != $zero)),
            AtomicOp::AtomicRead => $a,
            AtomicOp::AtomicWrite => $b,
            AtomicOp::Cswap => choose($c == $a),
            AtomicOp::CswapNe => choose($c != $a),
            AtomicOp::CswapLe => choose($c <= $a),
            AtomicOp::CswapLt => choose($c < $a),
            AtomicOp::CswapGe => choose($c >= $a),
            AtomicOp::CswapGt => choose($c > $a),
            _ => return None,
        }
    }};
}

macro_rules! integers {
    ($($type:ty),*) => {
        $(impl Number for $type {
            fn limits() -> Vec<Self> {
                let third = Self::MAX / 3;
                vec![0, 1, Self::MAX, Self::MIN, Self::MAX - 1, Self::MIN + 2, third, !third]
            }

            fn new_value(op: AtomicOp, a: Self, b: Self, c: Self) -> Option<Self> {
                Some(match op {
                    AtomicOp::Sum => a.wrapping_add(b),
                    AtomicOp::Prod => a.wrapping_mul(b),
                    AtomicOp::Bor => a | b,
                    AtomicOp::Band => a & b,
                    AtomicOp::Bxor => a ^ b,
                    AtomicOp::Mswap => (b & c) | (a & !c),
                    op => common!(op a b c 0, 1),
                })
            }

            fn bits(self) -> Option<u64> {
                Some(self as u64)
            }
        })*
    };
}

integers!(i8, u8, i16, u16, i32, u32, i64, u64);

macro_rules! floats {
    ($($type:ty),*) => {
        $(impl Number for $type {
            fn limits() -> Vec<Self> {
                let subnormal = Self::from_bits(1);
                vec![0.0, -0.0, 1.5, -2.75, Self::MAX, Self::INFINITY, Self::NAN, subnormal]
            }

            fn new_value(op: AtomicOp, a: Self, b: Self, c: Self) -> Option<Self> {
                Some(match op {
                    AtomicOp::Sum => a + b,
                    AtomicOp::Prod => a * b,
                    op => common!(op a b c 0.0, 1.0),
                })
            }

            fn bits(self) -> Option<u64> {
                (!self.is_nan()).then(|| u64::from(self.to_bits()))
            }
        })*
    };
}

floats!(f32, f64);

/// Whether elements have the same bits; all NaNs are the same.
fn same<T: Number>(some: &[T], others: &[T]) -> bool {
    let is_same = |(a, b): (&T, &T)| a.bits() == b.bits();
    some.len() == others.len() && some.iter().zip(others).all(is_same)
}

/// The completion of a form.
fn completion(form: AtomicForm) -> CompFlags {
    match form {
        AtomicForm::Base => ADDED,
        AtomicForm::Fetch | AtomicForm::Compare => FETCHED,
    }
}

/// Every operation of a type that endpoints have, on all combinations of limits.
fn every_function<T: Number>(a: &Host, to_b: FiAddr, b: &Host, key: u64) {
    let limits = T::limits();
    let mut cases = Vec::new();
    for old in &limits {
        for operand in &limits {
            cases.extend(limits.iter().map(|compare| (*old, *operand, *compare)));
        }
    }
    let all = |part: fn(&(T, T, T)) -> T| {
        let elements: Vec<T> = cases.iter().map(part).collect();
        Buffer::of(&elements).expect("buffer")
    };
    let (olds, operands, compares) = (all(|case| case.0), all(|case| case.1), all(|case| case.2));
    let theirs = Buffer::new(olds.len() + 16).expect("buffer");
    let mr = open_region(b, &theirs, key);
    for op in OPS {
        let Some(_) = T::new_value(op, limits[0], limits[0], limits[0]) else {
            continue;
        };
        for form in forms(op) {
            theirs.write_at(8, &olds.to_vec(..));
            let result = Buffer::new(olds.len()).expect("buffer");
            let remote = mr.remote(8);
            let posted = match form {
                AtomicForm::Base => Op::atomic(to_b, &operands, remote, T::DATATYPE, op),
                AtomicForm::Fetch => {
                    Op::fetch_atomic(to_b, &operands, &result, remote, T::DATATYPE, op)
                }
                AtomicForm::Compare => {
                    Op::compare_atomic(to_b, &operands, &compares, &result, remote, T::DATATYPE, op)
                }
            };
            let what = format!("{form:?} {op:?} {:?}", T::DATATYPE);
            a.ep.post_one(&posted.context(3)).expect(&what);
            a.expect(completion(*form), 3);
            let expected: Vec<T> = cases
                .iter()
                .flat_map(|(old, operand, compare)| T::new_value(op, *old, *operand, *compare))
                .collect();
            let found = Buffer::from_bytes(&theirs.to_vec(8..8 + olds.len())).expect("buffer");
            let found = found.elements::<T>();
            assert!(same(&found, &expected), "{what}: {found:?}, {expected:?}");
            if *form != AtomicForm::Base {
                assert!(result.to_vec(..) == olds.to_vec(..), "{what}: old values");
            }
            assert_eq!(theirs.to_vec(..8), [0; 8]);
            assert_eq!(theirs.to_vec(8 + olds.len()..), [0; 8]);
        }
    }
    b.expect_nothing();
}

fn every_integer(way: Way) {
    let (a, to_b, b) = pair(way);
    every_function::<i8>(&a, to_b, &b, 1);
    every_function::<u8>(&a, to_b, &b, 2);
    every_function::<i16>(&a, to_b, &b, 3);
    every_function::<u16>(&a, to_b, &b, 4);
    every_function::<i32>(&a, to_b, &b, 5);
    every_function::<u32>(&a, to_b, &b, 6);
    every_function::<i64>(&a, to_b, &b, 7);
    every_function::<u64>(&a, to_b, &b, 8);
}

fn every_float(way: Way) {
    let (a, to_b, b) = pair(way);
    every_function::<f32>(&a, to_b, &b, 1);
    every_function::<f64>(&a, to_b, &b, 2);
}

fn complex_numbers(way: Way) {
    fn product<T: Number>(a: &Host, to_b: FiAddr, b: &Host, datatype: Datatype, numbers: [T; 8]) {
        let [re, im, by_re, by_im, new_re, new_im, other_re, other_im] = numbers;
        let theirs = Buffer::of(&[re, im, re, im]).expect("buffer");
        let mr = open_region(b, &theirs, datatype.raw().into());
        let (by, before) = (Buffer::of(&[by_re, by_im]), Buffer::of(&[re, re]));
        let (by, before) = (by.expect("buffer"), before.expect("buffer"));
        let at = mr.remote(by.len() as u64);
        let op = Op::fetch_atomic(to_b, &by, &before, at, datatype, AtomicOp::Prod);
        a.ep.post_one(&op.context(1)).expect("fetch_atomic");
        a.expect(FETCHED, 1);
        assert_eq!(before.elements::<T>(), [re, im]);
        assert_eq!(theirs.elements::<T>(), [re, im, new_re, new_im]);
        let (other, equal) = (
            Buffer::of(&[other_re, other_im]),
            Buffer::of(&[new_re, new_im]),
        );
        let (other, equal) = (other.expect("buffer"), equal.expect("buffer"));
        let swap = AtomicOp::Cswap;
        let op = Op::compare_atomic(to_b, &other, &equal, &before, at, datatype, swap);
        a.ep.post_one(&op.context(2)).expect("compare_atomic");
        a.expect(FETCHED, 2);
        assert_eq!(theirs.elements::<T>(), [re, im, other_re, other_im]);
    }
    let (a, to_b, b) = pair(way);
    let single = [1.0f32, 2.0, 2.0, -1.0, 4.0, 3.0, 7.0, -7.0];
    product(&a, to_b, &b, Datatype::FloatComplex, single);
    let double = single.map(f64::from);
    product(&a, to_b, &b, Datatype::DoubleComplex, double);
}

fn pieces(way: Way) {
    let (a, to_b, b) = pair(way);
    let theirs = Buffer::of(&[1u16, 2, 3, 4, 5, 6]).expect("buffer");
    let (first, second) = (open_region(&b, &theirs, 1), open_region(&b, &theirs, 2));
    let all = Buffer::of(&[10u16, 20, 30, 0, 4, 6, 0, 0, 0]).expect("buffer");
    let slice = |from: usize, to: usize| IoVec::from(all.slice(from..to));
    // Pieces that do not end where elements do.
    let operands = [slice(0, 3), slice(3, 3), slice(3, 6)];
    let compares = [slice(6, 7), slice(7, 12)];
    let results = [slice(12, 15), slice(15, 18)];
    let piece = |mr: &Mr, offset: u64, len: u64| {
        let Remote { addr, key } = mr.remote(offset);
        RmaIov::new(Remote::new(addr, key), len)
    };
    // The elements 1, 4 and 6.
    let remotes = [
        piece(&first, 0, 2),
        piece(&second, 6, 2),
        piece(&first, 10, 2),
    ];
    let (uint16, swap) = (Datatype::Uint16, AtomicOp::CswapGe);
    let slices = [all.slice(..6), all.slice(6..12), all.slice(12..18)];
    let [operand, compare, result] = slices;
    let op = Op::compare_atomic(
        to_b,
        operand,
        compare,
        result,
        first.remote(0),
        uint16,
        swap,
    )
    .operand_pieces(&operands)
    .compare_pieces(&compares)
    .result_pieces(&results)
    .remote_iov(&remotes);
    a.ep.post_one(&op.context(5)).expect("compare_atomic");
    a.expect(FETCHED, 5);
    // 0 >= 1 does not hold; 4 >= 4 and 6 >= 6 do.
    assert_eq!(theirs.elements::<u16>(), [1, 2, 3, 20, 5, 30]);
    let expected = [10, 20, 30, 0, 4, 6, 1, 4, 6];
    assert_eq!(all.elements::<u16>(), expected);
}

fn long_operands(way: Way) {
    let (a, to_b, b) = pair(way);
    let start: Vec<u8> = (0..=255).cycle().take(4096).collect();
    let theirs = Buffer::from_bytes(&start).expect("buffer");
    let mr = open_region(&b, &theirs, 1);
    let (ones, before) = (Buffer::from_bytes(&[1; 4096]), Buffer::new(4096));
    let (ones, before) = (ones.expect("buffer"), before.expect("buffer"));
    let (uint8, sum) = (Datatype::Uint8, AtomicOp::Sum);
    a.ep.fetch_atomic(to_b, &ones, &before, mr.remote(0), uint8, sum, 1)
        .expect("fetch_atomic");
    a.expect(FETCHED, 1);
    assert!(before.to_vec(..) == start);
    let more: Vec<u8> = start.iter().map(|byte| byte.wrapping_add(1)).collect();
    assert!(theirs.to_vec(..) == more);
    // The largest payload: with values to compare with.
    let compares = Buffer::from_bytes(&more).expect("buffer");
    let (swap, at) = (AtomicOp::Cswap, mr.remote(0));
    a.ep.compare_atomic(to_b, &ones, &compares, &before, at, uint8, swap, 2)
        .expect("compare_atomic");
    a.expect(FETCHED, 2);
    assert!(before.to_vec(..) == more);
    assert!(theirs.to_vec(..) == [1; 4096]);
}

fn counters(way: Way) {
    if way == Way::TwoHosts {
        hosts::apart();
    }
    let kinds = [
        CntrBind::READ,
        CntrBind::WRITE,
        CntrBind::REMOTE_READ,
        CntrBind::REMOTE_WRITE,
    ];
    let host = || {
        let host = Host::with(&options());
        let ep = host.domain.endpoint().caps(CAPS).open().expect("endpoint");
        ep.bind_cq(&host.cq, CqBind::TRANSMIT | CqBind::RECV)
            .expect("bind");
        ep.bind_av(&host.av).expect("bind");
        let counters = kinds.map(|kind| {
            let cntr = host.domain.cntr().open().expect("cntr");
            ep.bind_cntr(&cntr, kind).expect("bind");
            cntr
        });
        ep.enable().expect("enable");
        (Host { ep, ..host }, counters)
    };
    let ((a, at_a), (b, at_b)) = (host(), host());
    let to_b = a.meet(&b);
    let theirs = Buffer::of(&[0u64; 2]).expect("buffer");
    let mr = open_region(&b, &theirs, 1);
    let of_region = [CntrBind::REMOTE_READ, CntrBind::REMOTE_WRITE].map(|kind| {
        let cntr = b.domain.cntr().open().expect("cntr");
        mr.bind_cntr(&cntr, kind).expect("bind");
        cntr
    });
    let (one, before) = (Buffer::of(&[1u64]), Buffer::of(&[0u64]));
    let (one, before) = (one.expect("buffer"), before.expect("buffer"));
    let word = mr.remote(8);
    let (sum, prod, read) = (AtomicOp::Sum, AtomicOp::Prod, AtomicOp::AtomicRead);
    // RC has some of them, others are in SENDs. That makes no difference.
    for op in [sum, prod] {
        a.ep.atomic(to_b, &one, word, Datatype::Uint64, op, 1)
            .expect("atomic");
        a.expect(ADDED, 1);
    }
    for op in [sum, prod, read] {
        a.ep.fetch_atomic(to_b, &one, &before, word, Datatype::Int64, op, 2)
            .expect("fetch_atomic");
        a.expect(FETCHED, 2);
    }
    for op in [AtomicOp::Cswap, AtomicOp::Mswap] {
        let (uint64, same) = (Datatype::Uint64, &one);
        a.ep.compare_atomic(to_b, same, same, &before, word, uint64, op, 3)
            .expect("compare_atomic");
        a.expect(FETCHED, 3);
    }
    let values = |counters: &[kfi::Cntr]| -> Vec<u64> {
        let value = |cntr: &kfi::Cntr| cntr.read().expect("read").value;
        counters.iter().map(value).collect()
    };
    until("the poster has counted", || values(&at_a) == [5, 2, 0, 0]);
    until("the target has counted", || values(&at_b) == [0, 0, 5, 2]);
    until("the region has counted", || values(&of_region) == [5, 2]);
}

fn an_injected_atomic_is_silent(way: Way) {
    let (a, to_b, b) = pair(way);
    let theirs = Buffer::of(&[5i32; 64]).expect("buffer");
    let mr = open_region(&b, &theirs, 1);
    let bytes: Vec<u8> = (0..64i32).flat_map(i32::to_ne_bytes).collect();
    let op = Op::inject_atomic(to_b, &bytes, mr.remote(0), Datatype::Int32, AtomicOp::Sum);
    a.ep.post_one(&op).expect("inject_atomic");
    let expected: Vec<i32> = (5..69).collect();
    until("it is done", || theirs.elements::<i32>() == expected);
    a.expect_nothing();
    // An error is never silent.
    let wrong = Remote::new(0, 99);
    let op = Op::inject_atomic(to_b, &bytes, wrong, Datatype::Int32, AtomicOp::Sum);
    a.ep.post_one(&op).expect("inject_atomic");
    assert_eq!(a.failure().err, Errno::EACCES);
    let long = [0; 260];
    let op = Op::inject_atomic(to_b, &long, mr.remote(0), Datatype::Int32, AtomicOp::Sum);
    assert_eq!(errno(a.ep.post_one(&op)), Some(Errno::EMSGSIZE));
}

fn cq_data(way: Way) {
    let (a, to_b, b) = pair(way);
    let theirs = Buffer::of(&[5u64]).expect("buffer");
    let mr = open_region(&b, &theirs, 1);
    let two = Buffer::of(&[2u64]).expect("buffer");
    let op = Op::atomic(to_b, &two, mr.remote(0), Datatype::Uint64, AtomicOp::Sum)
        .data(0x0102_0304_0506_0708)
        .context(4);
    a.ep.post_one(&op).expect("atomic");
    a.expect(ADDED, 4);
    let entry = b.completion();
    assert_eq!((entry.flags, entry.data), (NOTED, 0x0102_0304_0506_0708));
    assert_eq!(theirs.elements::<u64>(), [7]);
    let op = Op::fetch_atomic(
        to_b,
        &two,
        &two,
        mr.remote(0),
        Datatype::Uint64,
        AtomicOp::Sum,
    );
    let op = op.flags(OpFlags::REMOTE_CQ_DATA);
    assert_eq!(errno(a.ep.post_one(&op)), Some(Errno::EINVAL));
}

/// A region with these rights.
fn region(host: &Host, buffer: &Buffer, key: u64, access: Access) -> Mr {
    host.domain
        .mr(buffer)
        .access(access)
        .requested_key(key)
        .open()
        .expect("mr")
}

fn forbidden_accesses(way: Way) {
    let (a, to_b, b) = pair(way);
    let (read, write) = (Access::REMOTE_READ, Access::REMOTE_WRITE);
    let theirs = Buffer::of(&[7u64; 4]).expect("buffer");
    let regions = [
        region(&b, &theirs, 1, read | write),
        region(&b, &theirs, 2, read),
        region(&b, &theirs, 3, write),
    ];
    let (one, before) = (Buffer::of(&[1u64]), Buffer::of(&[0u64]));
    let (one, before) = (one.expect("buffer"), before.expect("buffer"));
    let uint64 = Datatype::Uint64;
    let base = |remote| Op::atomic(to_b, &one, remote, uint64, AtomicOp::Bxor);
    let fetch = |op, remote| Op::fetch_atomic(to_b, &one, &before, remote, uint64, op);
    let at = |key| Remote::new(0, key);
    for (op, is_allowed) in [
        (base(at(1)), true),
        (base(at(3)), true),
        (base(at(2)), false),
        (fetch(AtomicOp::AtomicRead, at(2)), true),
        (fetch(AtomicOp::AtomicRead, at(3)), false),
        (fetch(AtomicOp::Bor, at(2)), false),
        (fetch(AtomicOp::Bor, at(3)), false),
        // Those of RC.
        (fetch(AtomicOp::Sum, at(3)), false),
        (fetch(AtomicOp::Sum, at(2)), false),
        (fetch(AtomicOp::Sum, at(1)), true),
        // Outside the region; an unknown key; a key that cannot be.
        (base(Remote::new(32, 1)), false),
        (fetch(AtomicOp::Sum, Remote::new(32, 1)), false),
        (fetch(AtomicOp::Prod, at(99)), false),
        (base(at(1 << 32)), false),
    ] {
        let was = theirs.to_vec(..);
        a.ep.post_one(&op.context(6)).expect("posted");
        if is_allowed {
            assert_eq!(a.completion().op_context, 6, "{op:?}");
        } else {
            assert_eq!(a.failure().err, Errno::EACCES, "{op:?}");
            assert!(theirs.to_vec(..) == was, "{op:?}");
        }
    }
    // If one of several pieces is refused, no element is changed.
    let was = theirs.to_vec(..);
    let (two, bad) = (
        Buffer::of(&[1u64; 2]).expect("buffer"),
        regions[1].remote(0),
    );
    let remotes = [RmaIov::new(regions[0].remote(0), 8), RmaIov::new(bad, 8)];
    let op = Op::atomic(to_b, &two, regions[0].remote(0), uint64, AtomicOp::Sum);
    a.ep.post_one(&op.remote_iov(&remotes)).expect("posted");
    assert_eq!(a.failure().err, Errno::EACCES);
    assert!(theirs.to_vec(..) == was);
    // The address is aligned, but the memory behind it is not.
    let odd = Buffer::new(64).expect("buffer");
    let range = [IoVec::from(odd.slice(1..41))];
    let mr = b
        .domain
        .mr(&odd)
        .pieces(&range)
        .access(read | write)
        .requested_key(9)
        .open()
        .expect("mr");
    for op in [base(mr.remote(0)), fetch(AtomicOp::Sum, mr.remote(8))] {
        a.ep.post_one(&op).expect("posted");
        assert_eq!(a.failure().err, Errno::EACCES);
    }
    let bytes = Buffer::of(&[3u8; 5]).expect("buffer");
    let op = Op::atomic(to_b, &bytes, mr.remote(0), Datatype::Uint8, AtomicOp::Sum);
    a.ep.post_one(&op.context(7)).expect("posted");
    a.expect(ADDED, 7);
    assert_eq!(odd.to_vec(..7), [0, 3, 3, 3, 3, 3, 0]);
}

fn capabilities(way: Way) {
    if way == Way::TwoHosts {
        hosts::apart();
    }
    let a = Host::with(&options());
    let remote_only = Caps::ATOMIC | Caps::REMOTE_WRITE;
    for (caps, can) in [
        (Caps::MSG | Caps::RMA, [false, false]),
        (remote_only | Caps::RECV, [true, false]),
        (CAPS, [true, true]),
    ] {
        let b = Host::with(&Options {
            caps,
            ..Options::default()
        });
        let to_b = a.meet(&b);
        let theirs = Buffer::of(&[7u32]).expect("buffer");
        let mr = open_region(&b, &theirs, 1);
        let (one, before) = (Buffer::of(&[1u32]), Buffer::of(&[0u32]));
        let (one, before) = (one.expect("buffer"), before.expect("buffer"));
        let (uint32, sum, at) = (Datatype::Uint32, AtomicOp::Sum, mr.remote(0));
        for (op, can) in [
            Op::atomic(to_b, &one, at, uint32, sum),
            Op::fetch_atomic(to_b, &one, &before, at, uint32, sum),
        ]
        .into_iter()
        .zip(can)
        {
            a.ep.post_one(&op.context(8)).expect("posted");
            if can {
                assert_eq!(a.completion().op_context, 8);
            } else {
                assert_eq!(a.failure().err, Errno::EACCES);
            }
        }
    }
}

fn the_query_tells_what_endpoints_have() {
    let (a, to_b, b) = pair(Way::OneHost);
    let theirs = Buffer::new(8192).expect("buffer");
    let mr = open_region(&b, &theirs, 1);
    let (values, result) = (Buffer::new(8192), Buffer::new(8192));
    let (values, result) = (values.expect("buffer"), result.expect("buffer"));
    let mut counts = [0; 3];
    for datatype in (0..14).map(Datatype::from_raw) {
        for op in OPS {
            for (index, form) in [AtomicForm::Base, AtomicForm::Fetch, AtomicForm::Compare]
                .into_iter()
                .enumerate()
            {
                let post = |len: usize| {
                    let (value, into) = (values.slice(..len), result.slice(..len));
                    let at = mr.remote(0);
                    errno(a.ep.post_one(&match form {
                        AtomicForm::Base => Op::atomic(to_b, value, at, datatype, op),
                        AtomicForm::Fetch => Op::fetch_atomic(to_b, value, into, at, datatype, op),
                        AtomicForm::Compare => {
                            Op::compare_atomic(to_b, value, value, into, at, datatype, op)
                        }
                    }))
                };
                match a.domain.query_atomic(EpType::Rdm, form, datatype, op) {
                    Ok(attr) => {
                        counts[index] += 1;
                        let (count, size) = (attr.count as usize, attr.size as usize);
                        assert_eq!(count * size, 4096);
                        assert_eq!(post(count * size), None);
                        a.completion();
                        assert_eq!(post((count + 1) * size), Some(Errno::EMSGSIZE));
                        assert_eq!(post(0), Some(Errno::EINVAL));
                        if size > 1 {
                            assert_eq!(post(size / 2), Some(Errno::EINVAL));
                        }
                    }
                    Err(error) => {
                        assert_eq!(error.errno(), Some(Errno::EOPNOTSUPP));
                        assert_eq!(post(16), Some(Errno::EOPNOTSUPP));
                    }
                }
                let msg = a.domain.query_atomic(EpType::Msg, form, datatype, op);
                let is_word = [Datatype::Int64, Datatype::Uint64].contains(&datatype);
                let has = is_word
                    && match form {
                        AtomicForm::Compare => op == AtomicOp::Cswap,
                        _ => op == AtomicOp::Sum,
                    };
                assert_eq!(msg.ok().map(|attr| attr.count), has.then_some(1));
                let dgram = a.domain.query_atomic(EpType::Dgram, form, datatype, op);
                assert_eq!(errno(dgram), Some(Errno::EOPNOTSUPP));
            }
        }
    }
    // Eight integers, two reals, two complex types.
    assert_eq!(
        counts,
        [
            8 * 11 + 2 * 8 + 2 * 6,
            8 * 12 + 2 * 9 + 2 * 7,
            8 * 7 + 2 * 6 + 2 * 2
        ]
    );
    let unknown = Datatype::Unknown(14);
    let unknown = a
        .domain
        .query_atomic(EpType::Rdm, AtomicForm::Base, unknown, AtomicOp::Min);
    assert_eq!(errno(unknown), Some(Errno::EINVAL));
}

fn invalid_atomics_are_refused() {
    for way in [Way::OneHost, Way::TwoHosts] {
        let (a, to_b, b) = pair(way);
        let theirs = Buffer::of(&[0u32; 8]).expect("buffer");
        let mr = open_region(&b, &theirs, 1);
        let values = Buffer::of(&[0u32; 8]).expect("buffer");
        let uint32 = Datatype::Uint32;
        let base = |at| {
            Op::atomic(
                to_b,
                values.slice(..8),
                mr.remote(at),
                uint32,
                AtomicOp::Min,
            )
        };
        // Addresses that are not aligned.
        for at in [1, 2, 3, 5] {
            assert_eq!(errno(a.ep.post_one(&base(at))), Some(Errno::EINVAL));
        }
        let piece = |at, len| RmaIov::new(mr.remote(at), len);
        for pieces in [
            [piece(0, 4), piece(8, 8)],
            [piece(0, 6), piece(8, 2)],
            [piece(0, 4), piece(6, 4)],
        ] {
            let op = base(0).remote_iov(&pieces);
            assert_eq!(errno(a.ep.post_one(&op)), Some(Errno::EINVAL));
        }
        // Results and values to compare with of another length.
        let (long, all) = ([IoVec::from(&values)], values.slice(..8));
        let fetch = Op::fetch_atomic(to_b, all, all, mr.remote(0), uint32, AtomicOp::Min);
        let op = fetch.result_pieces(&long);
        assert_eq!(errno(a.ep.post_one(&op)), Some(Errno::EINVAL));
        let swap = AtomicOp::Cswap;
        let compare = Op::compare_atomic(to_b, all, all, all, mr.remote(0), uint32, swap);
        let op = compare.compare_pieces(&long);
        assert_eq!(errno(a.ep.post_one(&op)), Some(Errno::EINVAL));
        a.ep.post_one(&base(0).context(9)).expect("atomic");
        a.expect(ADDED, 9);
    }
}

fn writes_and_atomics_keep_their_order() {
    const ROUNDS: u64 = 200;
    let (a, to_b, b) = pair(Way::TwoHosts);
    let theirs = Buffer::of(&[0u64; 2]).expect("buffer");
    let mr = open_region(&b, &theirs, 1);
    let (word, three) = (mr.remote(8), Buffer::of(&[3u64]).expect("buffer"));
    let numbers: Vec<u64> = (0..ROUNDS).collect();
    let (numbers, sums) = (
        Buffer::of(&numbers),
        Buffer::of(&vec![0u64; ROUNDS as usize]),
    );
    let (numbers, sums) = (numbers.expect("buffer"), sums.expect("buffer"));
    let (uint64, sum) = (Datatype::Uint64, AtomicOp::Sum);
    for round in 0..ROUNDS as usize {
        let part = round * 8..round * 8 + 8;
        // The word is set, 3 is added twice, and it is read: by RDMA, a SEND, RC, RDMA.
        a.ep.write(to_b, numbers.slice(part.clone()), word, 1)
            .expect("write");
        a.ep.atomic(to_b, &three, word, uint64, sum, 2)
            .expect("atomic");
        a.ep.fetch_atomic(to_b, &three, sums.slice(part.clone()), word, uint64, sum, 3)
            .expect("fetch_atomic");
        a.ep.read(to_b, sums.slice(part), word, 4).expect("read");
        // A write may overtake a read before it, so the next round waits.
        for _ in 0..4 {
            a.completion();
        }
    }
    let expected: Vec<u64> = (6..ROUNDS + 6).collect();
    assert_eq!(sums.elements::<u64>(), expected);
}

fn atomics_pass_messages_without_room() {
    let (a, to_b, b) = Way::TwoHosts.pair_with(&Options {
        rx_size: 1,
        buffered: 256,
        ..options()
    });
    let theirs = Buffer::of(&[0u32]).expect("buffer");
    let mr = open_region(&b, &theirs, 1);
    let message = Buffer::new(200).expect("buffer");
    let (one, before) = (Buffer::of(&[1u32]), Buffer::of(&[0u32]));
    let (one, before) = (one.expect("buffer"), before.expect("buffer"));
    for context in 0..8 {
        a.ep.send(to_b, &message, context).expect("send");
    }
    let (uint32, sum) = (Datatype::Uint32, AtomicOp::Sum);
    for number in 0..20 {
        a.ep.fetch_atomic(to_b, &one, &before, mr.remote(0), uint32, sum, 100)
            .expect("fetch_atomic");
        until("it is done", || theirs.elements::<u32>() == [number + 1]);
    }
    for _ in 0..8 {
        b.ep.recv(&message, 7).expect("recv");
        b.completion();
    }
    for _ in 0..28 {
        a.completion();
    }
}

/// Adds 1 to a number `count` times, several at a time, with an atomic of the way that the type has.
/// Returns the old values.
fn count_up<T: Number>(
    host: &Host,
    to: FiAddr,
    at: Remote,
    count: u64,
    one: T,
    number: fn(T) -> u64,
) -> Vec<u64> {
    const DEPTH: u64 = 8;
    let size = size_of::<T>();
    let (one, before) = (Buffer::of(&[one]), Buffer::new(size * DEPTH as usize));
    let (one, before) = (one.expect("buffer"), before.expect("buffer"));
    let mut found = Vec::new();
    let mut posted = 0;
    while (found.len() as u64) < count {
        while posted < count && posted < found.len() as u64 + DEPTH {
            let slot = (posted % DEPTH) as usize * size;
            let into = before.slice(slot..slot + size);
            host.ep
                .fetch_atomic(to, &one, into, at, T::DATATYPE, AtomicOp::Sum, posted)
                .expect("fetch_atomic");
            posted += 1;
        }
        let done = host.completion().op_context;
        found.push(number(before.elements::<T>()[(done % DEPTH) as usize]));
    }
    found
}

/// One word, changed by atomics of RC and in SENDs, from this host and from another one, by reliable
/// datagrams and over a connection, and by atomic instructions of the target's program.
fn all_ways_add_up() {
    const EACH: u64 = 500;
    /// What the program adds before each of `EACH` pauses, so that it adds while the others do.
    const BURST: u64 = 20;
    let (a, to_b, b) = pair(Way::TwoHosts);
    let theirs = Buffer::of(&[0u64]).expect("buffer");
    let mr = open_region(&b, &theirs, 1);
    let at = mr.remote(0);
    let near = Host::on(&b.domain, &options());
    let to_near = near.meet(&b);
    let (one, two) = (
        Host::on(&a.domain, &options()),
        Host::on(&b.domain, &options()),
    );
    let (one_to_b, two_to_b) = (one.meet(&b), two.meet(&b));
    let connected = Options {
        ep_type: EpType::Msg,
        ..options()
    };
    let (far, end) = (
        Host::on(&a.domain, &connected),
        Host::on(&b.domain, &connected),
    );
    crate::connected::connect(&far, &end);
    let unspec = FiAddr::UNSPEC;
    let (word, half) = (|word: u64| word, |half: u32| u64::from(half));
    let by_program = || {
        // SAFETY: the word is at the start of a page, which `theirs` keeps, and all accesses to it
        // are atomic.
        let word = unsafe { AtomicU64::from_ptr(theirs.as_ptr().cast()) };
        let mut found = Vec::new();
        for _ in 0..EACH {
            found.extend((0..BURST).map(|_| word.fetch_add(1, SeqCst)));
            std::thread::sleep(Duration::from_millis(1));
        }
        found
    };
    let mut words: Vec<u64> = Vec::new();
    std::thread::scope(|scope| {
        let threads = [
            scope.spawn(by_program),
            scope.spawn(|| count_up(&a, to_b, at, EACH, 1u64, word)),
            scope.spawn(|| count_up(&near, to_near, at, EACH, 1u64, word)),
            scope.spawn(|| count_up(&far, unspec, at, EACH, 1u64, word)),
            // In SENDs, and locally, on the low half of the word.
            scope.spawn(|| count_up(&one, one_to_b, at, EACH, 1u32, half)),
            scope.spawn(|| count_up(&two, two_to_b, at, EACH, 1u32, half)),
        ];
        for thread in threads {
            words.extend(thread.join().expect("a thread that adds"));
        }
    });
    let total = (5 + BURST) * EACH;
    assert_eq!(theirs.elements::<u64>(), [total]);
    let words: HashSet<u64> = words.into_iter().collect();
    assert!((0..total).all(|value| words.contains(&value)));
}

fn each_atomic_executes_once_over_a_lossy_network() {
    const ADDS: u64 = 300;
    let (a, to_b, b) = pair(Way::TwoHosts);
    let theirs = Buffer::of(&[0u64; 2]).expect("buffer");
    let mr = open_region(&b, &theirs, 1);
    let network = hosts::apart();
    network.network("delay 1ms 1ms loss 3% duplicate 3% reorder 10%");
    let found = count_up(&a, to_b, mr.remote(0), ADDS, 1u32, u64::from);
    assert!(found.into_iter().eq(0..ADDS));
    let found = count_up(&a, to_b, mr.remote(8), ADDS, 1u64, |word| word);
    assert!(found.into_iter().eq(0..ADDS));
    assert_eq!(theirs.elements::<u64>(), [ADDS, ADDS]);
}
