// SPDX-License-Identifier: GPL-2.0
//! Atomics of reliable datagrams, on one host and between two hosts: two network namespaces, joined
//! by a veth pair. `atomics` has those of connected endpoints.
//!
//! | file | what |
//! |---|---|
//! | [`functions`] | every operation on every data type |
//! | [`shared_word`] | atomics of several endpoints and programs on one word |

pub(crate) mod functions;
pub(crate) mod shared_word;

use crate::{
    connected::open_region,
    counting::KINDS,
    harness::tests,
    host::{
        ADDED, FETCHED, Host, Options, buffer, buffer_of, domain, errno, holding, is_refused,
        register, until,
    },
    hosts,
    ways::Way,
};
use kfi::{
    Access, AtomicForm, AtomicOp, Buffer, Caps, Cntr, CntrBind, CompFlags, Datatype, EpType, Errno,
    FiAddr, IoVec, Mr, Op, OpFlags, Remote, RmaIov,
};

const NOTED: CompFlags = CompFlags::ATOMIC
    .union(CompFlags::REMOTE_WRITE)
    .union(CompFlags::REMOTE_CQ_DATA);

tests![
    pieces: [OneHost, TwoHosts],
    long_operands: [OneHost, TwoHosts],
    counters: [OneHost, TwoHosts],
    an_injected_atomic_is_silent: [OneHost, TwoHosts],
    cq_data: [OneHost, TwoHosts],
    forbidden_accesses: [OneHost, TwoHosts => 120],
    capabilities: [OneHost, TwoHosts],
    the_query_tells_what_endpoints_have,
    invalid_atomics_are_refused,
    atomics_pass_messages_without_room,
];

pub(crate) const CAPS: Caps = Caps::MSG.union(Caps::RMA).union(Caps::ATOMIC);

pub(crate) fn options() -> Options {
    Options::of(EpType::Rdm, CAPS)
}

pub(crate) fn pair(way: Way) -> (Host, FiAddr, Host) {
    way.pair_with(&options())
}

fn pieces(way: Way) {
    let (a, to_b, b) = pair(way);
    let theirs = buffer_of(&[1u16, 2, 3, 4, 5, 6]);
    let (first, second) = (open_region(&b, &theirs, 1), open_region(&b, &theirs, 2));
    let all = buffer_of(&[10u16, 20, 30, 0, 4, 6, 0, 0, 0]);
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
    let theirs = holding(&start);
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
    let compares = holding(&more);
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
    let [_, _, kinds @ ..] = KINDS;
    let [(a, at_a), (b, at_b)] = [(); 2].map(|()| Host::counting(&domain().1, &options(), kinds));
    let to_b = a.meet(&b);
    let theirs = buffer_of(&[0u64; 2]);
    let mr = open_region(&b, &theirs, 1);
    let of_region = [CntrBind::REMOTE_READ, CntrBind::REMOTE_WRITE].map(|kind| {
        let cntr = b.domain.cntr().open().expect("cntr");
        mr.bind_cntr(&cntr, kind).expect("bind");
        cntr
    });
    let (one, before) = (buffer_of(&[1u64]), buffer_of(&[0u64]));
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
    let values = |cntrs: &[Cntr]| cntrs.iter().map(Cntr::value).collect::<Vec<_>>();
    until("the poster has counted", || values(&at_a) == [5, 2, 0, 0]);
    until("the target has counted", || values(&at_b) == [0, 0, 5, 2]);
    until("the region has counted", || values(&of_region) == [5, 2]);
}

fn an_injected_atomic_is_silent(way: Way) {
    let (a, to_b, b) = pair(way);
    let theirs = buffer_of(&[5i32; 64]);
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
    is_refused(a.ep.post_one(&op), Errno::EMSGSIZE);
}

fn cq_data(way: Way) {
    let (a, to_b, b) = pair(way);
    let theirs = buffer_of(&[5u64]);
    let mr = open_region(&b, &theirs, 1);
    let two = buffer_of(&[2u64]);
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
    is_refused(a.ep.post_one(&op), Errno::EINVAL);
}

fn forbidden_accesses(way: Way) {
    let (a, to_b, b) = pair(way);
    let (read, write) = (Access::REMOTE_READ, Access::REMOTE_WRITE);
    let theirs = buffer_of(&[7u64; 4]);
    let regions = [
        register(&b.domain, &theirs, read | write, 1),
        register(&b.domain, &theirs, read, 2),
        register(&b.domain, &theirs, write, 3),
    ];
    let (one, before) = (buffer_of(&[1u64]), buffer_of(&[0u64]));
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
    let (two, bad) = (buffer_of(&[1u64; 2]), regions[1].remote(0));
    let remotes = [RmaIov::new(regions[0].remote(0), 8), RmaIov::new(bad, 8)];
    let op = Op::atomic(to_b, &two, regions[0].remote(0), uint64, AtomicOp::Sum);
    a.ep.post_one(&op.remote_iov(&remotes)).expect("posted");
    assert_eq!(a.failure().err, Errno::EACCES);
    assert!(theirs.to_vec(..) == was);
    // The address is aligned, but the memory behind it is not.
    let odd = buffer(64);
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
    let bytes = buffer_of(&[3u8; 5]);
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
        let b = Host::with(&Options::of(EpType::Rdm, caps));
        let to_b = a.meet(&b);
        let theirs = buffer_of(&[7u32]);
        let mr = open_region(&b, &theirs, 1);
        let (one, before) = (buffer_of(&[1u32]), buffer_of(&[0u32]));
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
    let theirs = buffer(8192);
    let mr = open_region(&b, &theirs, 1);
    let (values, result) = (buffer(8192), buffer(8192));
    let mut counts = [0; 3];
    for datatype in (0..14).map(Datatype::from_raw) {
        for op in functions::OPS {
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
                is_refused(dgram, Errno::EOPNOTSUPP);
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
    is_refused(unknown, Errno::EINVAL);
}

fn invalid_atomics_are_refused() {
    for way in [Way::OneHost, Way::TwoHosts] {
        let (a, to_b, b) = pair(way);
        let theirs = buffer_of(&[0u32; 8]);
        let mr = open_region(&b, &theirs, 1);
        let values = buffer_of(&[0u32; 8]);
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
            is_refused(a.ep.post_one(&base(at)), Errno::EINVAL);
        }
        let piece = |at, len| RmaIov::new(mr.remote(at), len);
        for pieces in [
            [piece(0, 4), piece(8, 8)],
            [piece(0, 6), piece(8, 2)],
            [piece(0, 4), piece(6, 4)],
        ] {
            let op = base(0).remote_iov(&pieces);
            is_refused(a.ep.post_one(&op), Errno::EINVAL);
        }
        // Results and values to compare with of another length.
        let (long, all) = ([IoVec::from(&values)], values.slice(..8));
        let fetch = Op::fetch_atomic(to_b, all, all, mr.remote(0), uint32, AtomicOp::Min);
        let op = fetch.result_pieces(&long);
        is_refused(a.ep.post_one(&op), Errno::EINVAL);
        let swap = AtomicOp::Cswap;
        let compare = Op::compare_atomic(to_b, all, all, all, mr.remote(0), uint32, swap);
        let op = compare.compare_pieces(&long);
        is_refused(a.ep.post_one(&op), Errno::EINVAL);
        a.ep.post_one(&base(0).context(9)).expect("atomic");
        a.expect(ADDED, 9);
    }
}

fn atomics_pass_messages_without_room() {
    let (a, to_b, b) = Way::TwoHosts.pair_with(&Options {
        rx_size: 1,
        buffered: 256,
        ..options()
    });
    let theirs = buffer_of(&[0u32]);
    let mr = open_region(&b, &theirs, 1);
    let message = buffer(200);
    let (one, before) = (buffer_of(&[1u32]), buffer_of(&[0u32]));
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
