// SPDX-License-Identifier: GPL-2.0
//! Posting in each way of transport: flags, injected bytes, room that comes back, threads, and
//! posts that are refused. The expected results are those of fi_endpoint(3), fi_msg(3), fi_rma(3)
//! and fi_cq(3).

use crate::{
    connected::{connect_qps, open_region},
    harness::tests,
    host::{
        BOTH, Host, Options, RECEIVED, SENT, TRECEIVED, WROTE, buffer, errno, found, is_refused,
        pattern, register, until,
    },
    hosts::apart,
    threads::{Sleeper, handle_signals, signals},
    ways::Way,
    without_cq::{Bare, READ, RECV, SEND, WRITE},
};
use kfi::{
    Access, Caps, CompFlags, CqBind, Entry, EpType, Errno, FiAddr, IoVec, Op, OpFlags, Remote, Side,
};
use std::time::Duration;

tests![
    transmits_report_as_requested: [
        OneHost => 120, TwoHosts => 120, Connection => 120, Datagrams => 120,
    ],
    default_flags_are_those_of_the_time_of_the_post: [OneHost, TwoHosts, Connection, Datagrams],
    an_injected_message_that_waits_keeps_its_bytes: [OneHost, TwoHosts, Connection],
    injected_writes_that_are_sent_again_keep_their_bytes => 300,
    data_of_0_are_data: [OneHost, TwoHosts, Connection, Datagrams],
    a_completion_that_was_read_has_left_its_place: [
        OneHost, TwoHosts => 120, Connection => 120, Datagrams => 120,
    ],
    threads_that_post_at_once_find_room: [OneHost => 120, TwoHosts => 120, Connection => 120],
    signals_do_not_interrupt_posts: [OneHost => 120, TwoHosts => 120, Connection => 120],
    a_search_reports_the_data_of_its_message: [OneHost, TwoHosts],
    refused_posts_change_no_figure: [OneHost, Connection],
    operations_without_a_cq_that_are_ended_count_as_errors => 120,
];

const NONE: OpFlags = OpFlags::empty();

/// The options of a pair with this binding, and with these default flags of transmits.
fn bound(bind: CqBind, tx_op_flags: OpFlags) -> Options {
    Options {
        bind,
        tx_op_flags,
        ..Options::default()
    }
}

/// fi_endpoint(3), FI_SELECTIVE_COMPLETION and fi_msg(3), FI_COMPLETION and FI_INJECT: the flags of
/// the binding, of the endpoint and of the operation decide together. Each operation is followed by
/// one that reports: so the test sees that it did not report, without waiting.
fn transmits_report_as_requested(way: Way) {
    let defaults = [
        NONE,
        OpFlags::COMPLETION,
        OpFlags::INJECT,
        OpFlags::COMPLETION | OpFlags::INJECT,
    ];
    let from = buffer(8);
    for selective in [false, true] {
        let bind = if selective {
            BOTH | CqBind::SELECTIVE
        } else {
            BOTH
        };
        for default in defaults {
            let (a, to_b, b) = way.pair_with(&bound(bind, default));
            let theirs = buffer(8);
            let mr = way.has_rma().then(|| open_region(&b, &theirs, 1));
            for own in defaults {
                for explicit in [false, true] {
                    let mut ops = vec![Op::send(to_b, &from)];
                    if way.ep_type() == EpType::Rdm {
                        ops.push(Op::tsend(to_b, &from, 1));
                    }
                    if let Some(mr) = &mr {
                        ops.push(Op::write(to_b, &from, mr.remote(0)));
                        if !own.contains(OpFlags::INJECT) {
                            ops.push(Op::read(to_b, &from, mr.remote(0)));
                        }
                    }
                    for op in ops {
                        let case = (selective, default, own, explicit);
                        let pair = (&a, to_b, &b);
                        reports_as_requested(way, pair, op, case, false);
                        // A message that waits there for its receive completes in another way.
                        if way == Way::OneHost {
                            reports_as_requested(way, pair, op, case, true);
                        }
                    }
                }
            }
        }
    }
}

/// Posts `op` and one that reports; their receives come first, or after them.
fn reports_as_requested(
    way: Way,
    (a, to_b, b): (&Host, FiAddr, &Host),
    op: Op<'_>,
    (selective, default, own, explicit): (bool, OpFlags, OpFlags, bool),
    late: bool,
) {
    let (from, into) = (buffer(8), buffer(8));
    let receive = match op.raw().opcode {
        kfi::abi::KFABRIC_OP_SEND => Some(Op::recv(&into)),
        kfi::abi::KFABRIC_OP_TSEND => Some(Op::trecv(&into, 1, 0)),
        _ => None,
    };
    let post_receives = || {
        for receive in receive.into_iter().chain([Op::recv(&into)]) {
            b.ep.post_one(&receive.flags(OpFlags::COMPLETION))
                .expect("recv");
        }
    };
    if !late {
        post_receives();
    }
    let op = op.flags(own).context(1);
    let is_read = op.raw().opcode == kfi::abi::KFABRIC_OP_READ;
    let op = if explicit { op.explicit() } else { op };
    // Datagrams have no fence.
    let fence = if way.has_rma() { OpFlags::FENCE } else { NONE };
    let marker = Op::send(to_b, &from)
        .flags(OpFlags::COMPLETION | fence)
        .context(2);
    a.ep.post_one(&op).expect("post");
    a.ep.post_one(&marker).expect("send");
    if late {
        post_receives();
    }
    let flags = if explicit { own } else { own | default };
    let injected = flags.contains(OpFlags::INJECT) && !is_read;
    let expected = flags.contains(OpFlags::COMPLETION) || !(selective || injected);
    let mut told = vec![a.completion().op_context];
    if expected || told[0] != 2 {
        told.push(a.completion().op_context);
    }
    told.sort_unstable();
    let all: &[u64] = if expected { &[1, 2] } else { &[2] };
    assert_eq!(
        told, all,
        "selective {selective}, default {default:?}, explicit {explicit}, late {late}: {op:?}"
    );
    b.completion();
    if receive.is_some() {
        b.completion();
    }
    a.expect_nothing();
    b.expect_nothing();
}

/// fi_endpoint(3), op_flags: "the default transmit/receive operation flags", which fi_control may
/// change: an operation that was posted keeps its own.
fn default_flags_are_those_of_the_time_of_the_post(way: Way) {
    let (a, to_b, b) = way.pair_with(&bound(BOTH | CqBind::SELECTIVE, NONE));
    let (from, into) = (buffer(8), buffer(8));
    let set = |flags| b.ep.set_op_flags(Side::Recv, flags).expect("set_op_flags");
    // Receives that are told, and others, in turn.
    for context in 0..6 {
        let told = context % 2 == 0;
        set(if told { OpFlags::COMPLETION } else { NONE });
        b.ep.recv(&into, context).expect("recv");
    }
    set(NONE);
    for _ in 0..6 {
        a.ep.send(to_b, &from, 9).expect("send");
    }
    for context in [0, 2, 4] {
        b.expect(RECEIVED, context);
    }
    // Two that are told come after all of them.
    set(OpFlags::COMPLETION);
    b.ep.recv(&into, 7).expect("recv");
    a.ep.set_op_flags(Side::Transmit, OpFlags::COMPLETION)
        .expect("set_op_flags");
    a.ep.send(to_b, &from, 8).expect("send");
    b.expect(RECEIVED, 7);
    a.expect(SENT, 8);
    a.expect_nothing();
    b.expect_nothing();
}

/// fi_msg(3), FI_INJECT: "the outgoing data buffer should be returned to user immediately after the
/// send call returns, even if the operation is handled asynchronously".
fn an_injected_message_that_waits_keeps_its_bytes(way: Way) {
    let (a, to_b, b) = way.pair();
    let ours = buffer(256);
    let region = register(&a.domain, &ours, Access::SEND, 0);
    let pieces = [
        IoVec::from(ours.slice(100..150)),
        IoVec::from(ours.slice(..0)),
        IoVec::from(ours.slice(..30)),
    ];
    let mut expected = Vec::new();
    for round in 0..20 {
        let bytes = pattern(256, round);
        ours.write_at(0, &bytes);
        let whole = [
            Op::send(to_b, &ours),
            Op::send(to_b, &pieces),
            Op::send(to_b, region.slice(7..77)),
        ];
        for op in whole {
            a.ep.post_one(&op.flags(OpFlags::INJECT)).expect("send");
            ours.fill(0xee);
            ours.write_at(0, &bytes);
        }
        ours.fill(0xee);
        expected.push(bytes.clone());
        expected.push([&bytes[100..150], &bytes[..30]].concat());
        expected.push(bytes[7..77].to_vec());
    }
    std::thread::sleep(Duration::from_millis(50));
    for (context, bytes) in (0..).zip(&expected) {
        let into = buffer(256);
        b.ep.recv(&into, context).expect("recv");
        let entry = b.expect(RECEIVED, context);
        assert!(
            into.to_vec(..entry.len as usize) == *bytes,
            "message {context}"
        );
    }
    a.expect_nothing();
}

/// fi_rma(3), FI_INJECT: as for messages, also if packets are lost and sent again.
fn injected_writes_that_are_sent_again_keep_their_bytes() {
    const COUNT: usize = 200;
    let hosts = apart();
    let datagrams = Way::TwoHosts.pair();
    let connection = Way::Connection.pair();
    for (a, to_b, b) in [&datagrams, &connection] {
        let theirs = buffer(256 * COUNT);
        let mr = open_region(b, &theirs, 1);
        // It is connected before packets are lost.
        let op = Op::inject_write(*to_b, b"first", mr.remote(0)).flags(OpFlags::COMPLETION);
        a.ep.post_one(&op).expect("write");
        a.expect(WROTE, 0);
        hosts.network("loss 10%");
        let ours = buffer(256);
        let bytes = pattern(256 * COUNT, 5);
        for (place, some) in bytes.chunks(256).enumerate() {
            ours.write_at(0, some);
            let last = place + 1 == COUNT;
            let flags = if last { OpFlags::COMPLETION } else { NONE };
            let op = Op::write(*to_b, &ours, mr.remote(256 * place as u64))
                .flags(OpFlags::INJECT | flags)
                .context(3);
            until("room", || match a.ep.post_one(&op) {
                Ok(()) => true,
                Err(error) if error.is_again() => false,
                Err(error) => panic!("{error}"),
            });
            ours.fill(0xee);
        }
        // KFI_ORDER_WAW: it is the last one.
        a.expect(WROTE, 3);
        hosts.network("loss 0%");
        assert!(theirs.to_vec(..) == bytes);
        a.expect_nothing();
    }
}

/// fi_cq(3): "data: only valid if the FI_REMOTE_CQ_DATA completion flag is set": 0 is a value like
/// others, also with a message or a write of no bytes; and without the flag of the sender there is
/// none. Data of a write take no receive. Those of reliable datagrams have 64 bits, others 32.
fn data_of_0_are_data(way: Way) {
    let (a, to_b, b) = way.pair();
    let (from, into) = (buffer(8), buffer(8));
    let is_rdm = way.ep_type() == EpType::Rdm;
    let most = if is_rdm {
        0xfeed_f00d_1234_5678
    } else {
        0xdead_beef
    };
    for (len, data) in [(8, 0), (0, 0), (0, 0xffff_ffff), (8, 1), (8, most)] {
        b.ep.recv(&into, 1).expect("recv");
        a.ep.senddata(to_b, from.slice(..len), data, 2)
            .expect("senddata");
        a.expect(SENT, 2);
        let entry = b.expect(RECEIVED | CompFlags::REMOTE_CQ_DATA, 1);
        assert_eq!((entry.data, entry.len), (data, len as u64));
        b.ep.recv(&into, 1).expect("recv");
        if way.has_rma() {
            let mr = open_region(&b, &into, 1);
            let write = Op::write(to_b, from.slice(..len), mr.remote(0)).context(3);
            a.ep.post_one(&write.data(data)).expect("write");
            a.expect(WROTE, 3);
            let flags = CompFlags::RMA | CompFlags::REMOTE_WRITE | CompFlags::REMOTE_CQ_DATA;
            let entry = b.completion();
            assert_eq!((entry.flags, entry.data, entry.len), (flags, data, 0));
            a.ep.post_one(&write).expect("write");
            a.expect(WROTE, 3);
        }
        a.ep.send(to_b, from.slice(..len), 2).expect("send");
        a.expect(SENT, 2);
        let entry = b.expect(RECEIVED, 1);
        assert_eq!((entry.data, entry.len), (0, len as u64));
    }
    if !is_rdm {
        let long = a.ep.senddata(to_b, &from, 1 << 32, 1);
        is_refused(long, Errno::EINVAL);
    }
    b.expect_nothing();
}

/// fi_endpoint(3), size: "the number of operations that can be outstanding". One whose completion
/// was read is not: its place in the queue of its endpoint, and in its CQ, is free.
fn a_completion_that_was_read_has_left_its_place(way: Way) {
    let one = Options::sized(1, 1, 2);
    let (a, to_b, b) = way.pair_with(&one);
    let lens: &[usize] = if way.has_rma() {
        &[8, 20_000]
    } else {
        &[8, 900]
    };
    let (from, into) = (buffer(20_000), buffer(20_000));
    let theirs = buffer(20_000);
    let mr = way.has_rma().then(|| open_region(&b, &theirs, 1));
    for round in 0..200 {
        let len = lens[round as usize % lens.len()];
        b.ep.recv(&into, round)
            .expect("the receive before was read");
        a.ep.send(to_b, from.slice(..len), round)
            .expect("the transmit before was read");
        a.expect(SENT, round);
        if let Some(mr) = &mr {
            a.ep.write(to_b, from.slice(..len), mr.remote(0), round)
                .expect("the send was read");
            a.expect(WROTE, round);
            a.ep.read(to_b, from.slice(..len), mr.remote(0), round)
                .expect("the write was read");
            assert_eq!(a.completion().op_context, round);
        }
        b.expect(RECEIVED, round);
    }
}

/// fi_domain(3), FI_THREAD_SAFE: "a thread serialization model allows a multi-threaded application
/// to access any allocated resources through any interface without restriction". So a post is
/// refused with -FI_EAGAIN for want of room, and not because another thread posts.
fn threads_that_post_at_once_find_room(way: Way) {
    const THREADS: u64 = 4;
    const EACH: u64 = 150;
    const COUNT: u64 = THREADS * EACH;
    let much = Options::sized(4096, 4096, 8192);
    let (a, to_b, b) = way.pair_with(&much);
    let theirs = buffer(8);
    let mr = open_region(&b, &theirs, 1);
    let into = buffer(8 * COUNT as usize);
    let place = |context: u64| 8 * context as usize..8 * context as usize + 8;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (a, b, mr, into) = (&a, &b, &mr, &into);
            scope.spawn(move || {
                let (own, from) = (buffer(8), buffer(8));
                from.write_at(0, &thread.to_ne_bytes());
                for i in 0..EACH {
                    let context = thread * EACH + i;
                    let receive = b.ep.recv(into.slice(place(context)), context);
                    receive.expect("room for a receive");
                    a.ep.inject(to_b, &context.to_ne_bytes())
                        .expect("room for an injected message");
                    a.ep.write(to_b, &from, mr.remote(0), context)
                        .expect("room for a write");
                    a.ep.read(to_b, &own, mr.remote(0), COUNT + context)
                        .expect("room for a read");
                }
            });
        }
    });
    let mut told: Vec<u64> = (0..2 * COUNT).map(|_| a.completion().op_context).collect();
    told.sort_unstable();
    assert!(told.into_iter().eq(0..2 * COUNT));
    let mut received: Vec<u64> = (0..COUNT)
        .map(|_| {
            let mut bytes = [0; 8];
            into.read_at(place(b.completion().op_context).start, &mut bytes);
            u64::from_ne_bytes(bytes)
        })
        .collect();
    received.sort_unstable();
    assert!(received.into_iter().eq(0..COUNT));
    a.expect_nothing();
    b.expect_nothing();
}

/// fi_msg(3) and fi_rma(3), return values: a post is no wait, and a signal is no reason to refuse
/// it. The memory of each operation is pinned, and is long enough for a signal to come meanwhile.
fn signals_do_not_interrupt_posts(way: Way) {
    const LEN: usize = 300_000;
    handle_signals(false);
    let (a, to_b, b) = way.pair();
    let theirs = buffer(LEN);
    let mr = open_region(&b, &theirs, 1);
    let (remote, begun) = (mr.remote(0), signals());
    let poster = Sleeper::new(move || {
        let (from, into) = (buffer(LEN), buffer(LEN));
        let mut context = 0;
        while signals() <= begun + 20 {
            context += 1;
            b.ep.recv(&into, context).expect("recv");
            a.ep.send(to_b, &from, context).expect("send");
            a.ep.write(to_b, &from, remote, context).expect("write");
            a.ep.read(to_b, &from, remote, context).expect("read");
            let mut ended = 0;
            while ended < 4 {
                for host in [&a, &b] {
                    let mut entries = [Entry::default(); 4];
                    ended += host.cq.read(&mut entries).expect("read");
                }
            }
        }
    });
    while !poster.is_finished() {
        poster.interrupt();
        std::thread::sleep(Duration::from_micros(300));
    }
    poster.join();
}

/// fi_tagged(3), FI_PEEK: "the completion data [...] will be available" of the message that was
/// found, as if it had been received; the message stays, with its data.
fn a_search_reports_the_data_of_its_message(way: Way) {
    let (a, to_b, b) = way.pair();
    let (from, into) = (buffer(20_000), buffer(20_000));
    for (tag, len, data) in [(1, 8, Some(0)), (2, 20_000, Some(u64::MAX)), (3, 0, None)] {
        let send = Op::tsend(to_b, from.slice(..len), tag);
        a.ep.post_one(&data.map_or(send, |data| send.data(data)))
            .expect("tsend");
        let flags = data.map_or(TRECEIVED, |_| TRECEIVED | CompFlags::REMOTE_CQ_DATA);
        let is_it = |entry: Entry| {
            let found = (entry.flags, entry.len, entry.tag, entry.data);
            assert_eq!(found, (flags, len as u64, tag, data.unwrap_or(0)));
        };
        for own in [NONE, OpFlags::CLAIM] {
            let search = Op::tpeek(0, u64::MAX).flags(own).context(tag);
            until("the message", || {
                b.ep.post_one(&search).expect("peek");
                found(&b.cq, tag).map(is_it).is_some()
            });
        }
        let claim = Op::trecv(&into, 0, 0).flags(OpFlags::CLAIM).context(tag);
        b.ep.post_one(&claim).expect("claim");
        is_it(b.completion());
        a.completion();
        a.expect_nothing();
        b.expect_nothing();
    }
}

/// A refused operation has no effect: not on the statistics, nor on the room of its endpoint.
fn refused_posts_change_no_figure(way: Way) {
    let few = Options::sized(2, 2, 16);
    let (a, to_b, b) = way.pair_with(&few);
    let (large, small) = (buffer(100_000), buffer(8));
    // They wait for receives of their peer.
    for context in 0..2 {
        a.ep.send(to_b, &large, context).expect("send");
        a.ep.recv(&small, 10 + context).expect("recv");
    }
    let is_still = || {
        let before = a.stat().values;
        std::thread::sleep(Duration::from_millis(20));
        before == a.stat().values
    };
    until("nothing changes", is_still);
    let before = (a.stat().values, crate::alone::values(&a.cq));
    let remote = Remote::new(0, 1);
    for _ in 0..50 {
        for (op, refusal) in [
            (Op::send(to_b, &large), Errno::EAGAIN),
            (
                Op::send(to_b, &large).flags(OpFlags::INJECT),
                Errno::EMSGSIZE,
            ),
            (Op::recv(&small), Errno::EAGAIN),
            (Op::recv(&small).flags(OpFlags::PEEK), Errno::EINVAL),
            (
                Op::write(to_b, &small, remote).flags(OpFlags::MULTI_RECV),
                Errno::EINVAL,
            ),
            (
                Op::read(to_b, &small, remote).flags(OpFlags::INJECT),
                Errno::EINVAL,
            ),
        ] {
            assert_eq!(errno(a.ep.post_one(&op)), Some(refusal), "{op:?}");
        }
    }
    assert_eq!((a.stat().values, crate::alone::values(&a.cq)), before);
    // All that was accepted ends.
    for context in 0..2 {
        b.ep.recv(&large, context).expect("recv");
        b.expect(RECEIVED, context);
        a.expect(SENT, context);
    }
    a.ep.send(to_b, &small, 3).expect("send");
    b.ep.recv(&large, 3).expect("recv");
    a.expect(SENT, 3);
    b.expect(RECEIVED, 3);
    a.expect_nothing();
}

/// fi_cntr(3): "if an operation completes in error, it may increment an associated error value",
/// also if nothing else reports it: each operation that a shutdown ends, and each receive that is
/// cancelled while messages arrive, changes one of the two values, once.
fn operations_without_a_cq_that_are_ended_count_as_errors() {
    let caps = Caps::MSG | Caps::RMA;
    let (from, into) = (buffer(8), buffer(8));
    let total = |bare: &Bare, kind: usize| {
        let values = bare.counters[kind].read().expect("read");
        (values.value, values.err)
    };
    for _ in 0..10 {
        let (a, b) = (Bare::new(EpType::Msg, caps), Bare::new(EpType::Msg, caps));
        connect_qps(&a.ep, &b.ep);
        let peer = FiAddr::UNSPEC;
        let mr = b.region(&into);
        // The first one waits for a receive, and the others behind it.
        for i in 0..5 {
            a.ep.recv(&into, i).expect("recv");
            a.ep.send(peer, &from, i).expect("send");
            a.ep.write(peer, &from, mr.remote(0), i).expect("write");
            a.ep.read(peer, &from, mr.remote(0), i).expect("read");
        }
        a.ep.shutdown().expect("shutdown");
        for kind in [SEND, RECV, READ, WRITE] {
            until("all have failed", || total(&a, kind) == (0, 5));
        }
        std::thread::sleep(Duration::from_millis(10));
        for kind in [SEND, RECV, READ, WRITE] {
            assert_eq!(total(&a, kind), (0, 5));
        }
    }
    let (a, b) = (Bare::new(EpType::Rdm, caps), Bare::new(EpType::Rdm, caps));
    let to_b = a.meet(&b);
    let (sent, posted) = (400, 500);
    let mut receives = posted;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..sent {
                // EAGAIN: too many messages wait at the peer.
                until("room at the peer", || {
                    let refusal = errno(a.ep.inject(to_b, b"message"));
                    assert!(matches!(refusal, None | Some(Errno::EAGAIN)));
                    refusal.is_none()
                });
                std::thread::yield_now();
            }
        });
        for context in 0..posted {
            until("room", || b.ep.recv(&into, context).is_ok());
            if context % 2 == 0 {
                let cancelled = b.ep.cancel(context);
                assert!(matches!(errno(cancelled), None | Some(Errno::ENOENT)));
            }
        }
        // Messages that wait are received.
        while total(&b, RECV).0 < sent {
            let before = total(&b, RECV);
            b.ep.recv(&into, posted).expect("recv");
            receives += 1;
            until("one more", || total(&b, RECV) != before);
        }
    });
    // Receives that wait are cancelled.
    for context in 0..=posted {
        while b.ep.cancel(context).is_ok() {}
    }
    let all = (sent, receives - sent);
    until("all have ended", || total(&b, RECV) == all);
    std::thread::sleep(Duration::from_millis(10));
    assert_eq!(total(&b, RECV), all);
    assert_eq!(total(&a, SEND), (sent, 0));
}
