// SPDX-License-Identifier: GPL-2.0
//! The local memory of deferred work: when buffers, operands of atomics and values to compare with
//! are read, and the memory that waiting work takes.

use crate::{
    abi_budget::fill,
    abi_threads::{as_user, open_to_all},
    connected::{connect, open_region},
    deferred::{QUIET, RECEIVED, cntr, defer, queue, wait},
    harness::tests,
    host::{Host, Options, buffer, pair, pattern, until},
    hosts,
    raw::{File, Pages, addr_of, addr_of_mut, arg, data, refused, with},
    ways::Way,
};
use kfi::{
    AtomicOp, Buffer, Caps, Datatype, EpType, Errno, FiAddr, Op, OpFlags, Remote, Work, abi,
};

tests![
    buffers_are_read_when_the_work_starts,
    injected_bytes_are_copied_when_the_work_is_queued,
    operands_are_read_when_the_work_starts: [OneHost, TwoHosts],
    operands_are_read_when_the_work_starts_of_a_connection,
    waiting_work_counts_for_its_user => 300,
];

/// "Referenced data buffers are not read or otherwise accessed" when the work is queued.
fn buffers_are_read_when_the_work_starts() {
    let (a, to_b, b, _) = pair();
    let go = cntr(&a.domain);
    for (len, key) in [(4, 1), (5_000, 2)] {
        let (from, into) = (buffer(len), buffer(len));
        let mr = open_region(&b, &into, key);
        let remote = Remote::new(0, mr.key());
        let due = go.value() + 1;
        queue(
            &a.domain,
            Work::transfer(&go, due, &a.ep, Op::write(to_b, &from, remote)),
        );
        let bytes = pattern(len, key);
        from.write_at(0, &bytes);
        go.add(1).expect("add");
        until("the bytes", || into.to_vec(..) == bytes);
    }
}

fn injected_bytes_are_copied_when_the_work_is_queued() {
    let (a, to_b, b, _) = pair();
    let go = cntr(&a.domain);
    let into = buffer(4);
    b.ep.recv(&into, 1).expect("recv");
    let mut bytes = *b"then";
    queue(
        &a.domain,
        Work::transfer(&go, 1, &a.ep, Op::inject(to_b, &bytes)),
    );
    bytes.fill(0);
    go.add(1).expect("add");
    b.expect(RECEIVED, 1);
    assert_eq!((into.to_vec(..), bytes), (b"then".to_vec(), [0; 4]));
}

/// Connected endpoints, on two hosts.
fn connected_with_atomics() -> (Host, Host) {
    let options = Options {
        ep_type: EpType::Msg,
        caps: Caps::MSG | Caps::RMA | Caps::ATOMIC,
        ..Options::default()
    };
    hosts::apart();
    let (a, b) = (Host::with(&options), Host::with(&options));
    connect(&a, &b);
    (a, b)
}

/// "Referenced data buffers are not read or otherwise accessed": operands and the values to compare
/// with, short ones and long ones, are those of the start, except with KFI_INJECT.
fn operands_of(a: &Host, to_b: FiAddr, b: &Host, counts: &[usize]) {
    const UINT64: Datatype = Datatype::Uint64;
    let (go, done) = (cntr(&a.domain), cntr(&a.domain));
    for (key, count) in (1..).zip(counts.iter().copied()) {
        let all = |value: u64| Buffer::of(&vec![value; count]).expect("buffer");
        let fill = |buffer: &Buffer, value| buffer.write_at(0, &all(value).to_vec(..));
        let is = |buffer: &Buffer, value: u64| {
            assert_eq!(
                buffer.elements::<u64>(),
                vec![value; count],
                "{count} elements"
            );
        };
        let theirs = all(5);
        let mr = open_region(b, &theirs, key);
        let at = mr.remote(0);
        let (operand, compare, result) = (all(1000), all(1000), all(1000));
        let run = |op: Op<'_>, change: &dyn Fn()| {
            let (due, finished) = (go.value() + 1, done.value() + 1);
            defer(a, &go, due, op, &done);
            change();
            go.add(1).expect("add");
            wait(&done, finished);
            assert_eq!(done.err(), 0);
        };
        run(
            Op::atomic(to_b, &operand, at, UINT64, AtomicOp::Sum),
            &|| fill(&operand, 3),
        );
        is(&theirs, 8);
        run(
            Op::fetch_atomic(to_b, &operand, &result, at, UINT64, AtomicOp::Sum),
            &|| fill(&operand, 4),
        );
        is(&result, 8);
        is(&theirs, 12);
        run(
            Op::compare_atomic(
                to_b,
                &operand,
                &compare,
                &result,
                at,
                UINT64,
                AtomicOp::Cswap,
            ),
            &|| {
                fill(&operand, 77);
                fill(&compare, 12);
            },
        );
        is(&result, 12);
        is(&theirs, 77);
        // "On FETCH_ATOMIC and COMPARE_ATOMIC [KFI_INJECT] has no effect."
        fill(&operand, 1000);
        let op = Op::fetch_atomic(to_b, &operand, &result, at, UINT64, AtomicOp::Sum);
        run(op.flags(OpFlags::INJECT), &|| fill(&operand, 1));
        is(&theirs, 78);
        // The base form is copied.
        if 8 * count <= 256 {
            fill(&operand, 2);
            let op = Op::atomic(to_b, &operand, at, UINT64, AtomicOp::Sum);
            run(op.flags(OpFlags::INJECT), &|| fill(&operand, 1000));
            is(&theirs, 80);
        }
        a.expect_nothing();
        b.expect_nothing();
    }
}

fn operands_are_read_when_the_work_starts(way: Way) {
    let options = Options {
        caps: Options::default().caps | Caps::ATOMIC,
        ..Options::default()
    };
    let (a, to_b, b) = way.pair_with(&options);
    // 8, 256, 264 and 4,096 bytes.
    operands_of(&a, to_b, &b, &[1, 32, 33, 512]);
}

fn operands_are_read_when_the_work_starts_of_a_connection() {
    let (a, b) = connected_with_atomics();
    operands_of(&a, FiAddr::UNSPEC, &b, &[1]);
    a_chain_of(&a, &b);
}

/// Atomics of a connection, each of which is due when the one before it has completed.
fn a_chain_of(a: &Host, b: &Host) {
    const UINT64: Datatype = Datatype::Uint64;
    let word = |value: u64| Buffer::of(&[value]).expect("buffer");
    let theirs = word(10);
    let mr = open_region(b, &theirs, 1);
    let (peer, at) = (FiAddr::UNSPEC, mr.remote(0));
    let (one, before, swap, compare, old) = (word(1), word(0), word(99), word(12), word(0));
    let (go, done) = (cntr(&a.domain), cntr(&a.domain));
    let (sum, cswap) = (AtomicOp::Sum, AtomicOp::Cswap);
    let add = Op::atomic(peer, &one, at, UINT64, sum);
    let fetch = Op::fetch_atomic(peer, &one, &before, at, UINT64, sum);
    let exchange = Op::compare_atomic(peer, &swap, &compare, &old, at, UINT64, cswap);
    defer(a, &done, 2, exchange, &done);
    defer(a, &done, 1, fetch, &done);
    defer(a, &go, 1, add, &done);
    std::thread::sleep(QUIET);
    assert_eq!(theirs.elements::<u64>(), [10]);
    go.add(1).expect("add");
    wait(&done, 3);
    assert_eq!(done.err(), 0);
    for (buffer, value) in [(&before, 11u64), (&old, 12), (&theirs, 99)] {
        assert_eq!(buffer.elements::<u64>(), [value]);
    }
    a.expect_nothing();
}

/// Queues an operation that waits for `go`, or posts it as a triggered operation.
pub(crate) fn waiting_op(
    file: &File,
    (domain, ep, go): (u32, u32, u32),
    op: abi::kfabric_op,
    triggers: bool,
) -> Result<(), Errno> {
    if triggers {
        let op = with!(op; flags: abi::KFI_TRIGGER, trigger_cntr: go, threshold: 1);
        return file.post_one(ep, op);
    }
    let mut work = data!(kfabric_work:
        threshold: 1, triggering_cntr: go, op_type: op.opcode, object: ep, op: addr_of(&op)
    );
    let arg = arg!(kfabric_queue_work:
        domain, works: addr_of_mut(&mut work), count: 1,
        work_size: size_of::<abi::kfabric_work>() as u32,
        op_size: size_of::<abi::kfabric_op>() as u32
    );
    file.call(arg).map(drop)
}

/// ENOMEM: work that waits takes memory of its user's limit, and gives it back.
fn waiting_work_counts_for_its_user() {
    File::open();
    open_to_all();
    as_user(|| {
        let file = File::open_only();
        let domain = file.domain(file.fabric());
        let party = file.party(
            domain,
            arg!(kfabric_ep_open: caps: abi::KFI_MSG | abi::KFI_TRIGGER),
        );
        let go = file.cntr(domain);
        let pages = Pages::new(1);
        let mr = file.reg(domain, pages.addr(), 8, 7).expect("mr");
        let op = data!(kfabric_op:
            opcode: abi::KFABRIC_OP_RECV, context: 3, buf: pages.addr(), len: 8, mr,
            peer: abi::KFI_ADDR_UNSPEC
        );
        let names = (domain, party.ep, go);
        let mut full = fill(&file, domain);
        full.reverse();
        // Room of some MiB.
        file.close(full.pop().expect("the first one"))
            .expect("close");
        let until_refused = |triggers| {
            for count in 0..100_000u64 {
                if let Err(error) = waiting_op(&file, names, op, triggers) {
                    assert_eq!(error, Errno::ENOMEM);
                    return count;
                }
            }
            panic!("100,000 works for nothing");
        };
        let flush = || {
            let arg = arg!(kfabric_flush_work: domain);
            file.call(arg).map(|arg| arg.flushed)
        };
        let first = until_refused(false);
        assert!(first > 1000, "{first} works in some MiB");
        // One limit for both.
        refused(waiting_op(&file, names, op, true), Errno::ENOMEM);
        assert_eq!(flush(), Ok(first));
        // The memory of flushed work can be used again, and that of triggered operations, too.
        let second = until_refused(true);
        assert!(
            second >= first / 2,
            "{second} operations after {first} works"
        );
        for _ in 0..second {
            let arg = arg!(kfabric_ep_cancel: ep: party.ep, context: 3);
            file.call(arg).expect("cancel");
            refused(file.cq_read(party.cq), Errno::KFI_EAVAIL);
            file.cq_readerr(party.cq).expect("the cancelled one");
        }
        let third = until_refused(false);
        assert!(third >= first / 2, "{third} works after {first}");
        assert_eq!(flush(), Ok(third));
        file.close_all(&full);
        file.close_all(&[go, mr]);
        file.part(&party);
    });
}
