// SPDX-License-Identifier: GPL-2.0
//! Error entries of operations that fail: their fields, and the waiters that they wake. Neither
//! depends on whether a success would have made an entry, or on the room in the CQ.
//!
//! The expected results are those of fi_cq(3); each test quotes its sentences.

use crate::{
    abi_budget::fill,
    abi_threads::{as_user, open_to_all},
    alone::{Alone, sread_one},
    connected::connect,
    counting::KINDS,
    harness::tests,
    host::{
        ADDED, BOTH, FETCHED, Host, Options, READ as DID_READ, RECEIVED, SENT, TRECEIVED, TSENT,
        WROTE, buffer, domain, errno, failure, is_refused, until,
    },
    raw::{File, refused as refused_with},
    threads::Sleeper,
    ways::Way,
    without_cq::{READ, RECV, SEND, WRITE},
};
use kfi::{
    AtomicOp, Buffer, Caps, Cntr, CompFlags, CqBind, CqFormat, Datatype, Deadline, Entry, EpType,
    ErrEntry, Errno, FiAddr, Op, OpFlags, Remote, Wait,
    abi::{self, Call},
};
use std::time::Duration;

tests![
    an_error_entry_has_the_fields_of_its_operation,
    a_truncated_receive_reports_tag_and_data: [OneHost, TwoHosts],
    a_truncated_receive_of_a_connection_has_data_or_no_flag,
    a_failure_without_room_wakes_every_waiter,
    a_failure_without_room_ends_a_wait_for_several_entries,
    a_failure_without_room_signals_the_wait_set,
    errors_outlive_their_endpoint,
    a_silent_operation_without_memory_for_its_error_is_refused,
    each_operation_of_a_connection_that_ends_fails_once,
    a_released_buffer_is_reported_by_a_selective_cq,
];

/// There is no region with this key.
const NOWHERE: Remote = Remote::new(0, 0xdead);

/// Too long to be buffered at the receiver.
const LARGE: usize = 1 << 20;

/// An operation that fails: its kind, its errno, and the bytes of its message that were placed and
/// lost.
struct Failing {
    run: fn(&Alone, u64),
    flags: CompFlags,
    err: Errno,
    len: u64,
    olen: u64,
}

/// Posts an operation, and cancels it.
fn cancelled(alone: &Alone, op: &Op<'_>, context: u64) {
    alone.ep.post_one(&op.context(context)).expect("post");
    alone.ep.cancel(context).expect("cancel");
}

/// Posts an operation, which is refused later.
fn refused(alone: &Alone, op: &Op<'_>, context: u64) {
    alone.ep.post_one(&op.context(context)).expect("post");
}

/// All kinds of operations of a reliable datagram endpoint.
fn failing() -> Vec<Failing> {
    let cancel = |run, flags| Failing {
        run,
        flags,
        err: Errno::ECANCELED,
        len: 0,
        olen: 0,
    };
    let refuse = |run, flags| Failing {
        run,
        flags,
        err: Errno::EACCES,
        len: 0,
        olen: 0,
    };
    let truncate = |run, flags| Failing {
        run,
        flags,
        err: Errno::KFI_ETRUNC,
        len: 4,
        olen: 5,
    };
    vec![
        cancel(
            |alone, context| cancelled(alone, &Op::recv(&buffer(8)), context),
            RECEIVED,
        ),
        cancel(
            |alone, context| cancelled(alone, &Op::trecv(&buffer(8), 5, 0), context),
            TRECEIVED,
        ),
        cancel(
            |alone, context| cancelled(alone, &Op::send(alone.me, &buffer(LARGE)), context),
            SENT,
        ),
        cancel(
            |alone, context| cancelled(alone, &Op::tsend(alone.me, &buffer(LARGE), 6), context),
            TSENT,
        ),
        refuse(
            |alone, context| refused(alone, &Op::write(alone.me, &buffer(8), NOWHERE), context),
            WROTE,
        ),
        refuse(
            |alone, context| refused(alone, &Op::inject_write(alone.me, b"x", NOWHERE), context),
            WROTE,
        ),
        refuse(
            |alone, context| refused(alone, &Op::read(alone.me, &buffer(8), NOWHERE), context),
            DID_READ,
        ),
        truncate(
            |alone, context| {
                refused(alone, &Op::recv(&buffer(4)), context);
                alone.ep.inject(alone.me, b"too long.").expect("inject");
            },
            RECEIVED,
        ),
        truncate(
            |alone, context| {
                alone.ep.tinject(alone.me, b"too long.", 7).expect("inject");
                refused(alone, &Op::trecv(&buffer(4), 7, 0), context);
            },
            TRECEIVED,
        ),
    ]
}

/// "The meanings of these fields are the same for all CQ entry structure formats"; "The op_context
/// field is valid for all completions"; "Flags are set for all relevant completions".
fn an_error_entry_has_the_fields_of_its_operation() {
    // Each success makes an entry; none does; none does and the CQ is full.
    for (bind, full) in [
        (BOTH, false),
        (BOTH | CqBind::SELECTIVE, false),
        (BOTH | CqBind::SELECTIVE, true),
    ] {
        for (context, failing) in (100..).zip(failing()) {
            let entries = if full { 1 } else { 64 };
            let alone = Alone::with(|cq| cq.entries(entries), |ep| ep, bind);
            if full {
                alone.complete(1);
                is_refused(alone.try_complete(2), Errno::EAGAIN);
            }
            (failing.run)(&alone, context);
            let entry = failure(&alone.cq);
            let found = (entry.op_context, entry.flags, entry.err);
            let expected = (context, failing.flags, failing.err);
            assert_eq!(found, expected, "{bind:?}, full {full}");
            assert_eq!((entry.len, entry.olen), (failing.len, failing.olen));
            let text = alone.cq.strerror(entry.prov_errno).expect("strerror");
            assert!(!text.is_empty());
            // Once, and no entry of a success.
            assert_eq!(alone.read_error(), None);
            let left: &[u64] = if full { &[1] } else { &[] };
            assert_eq!(alone.read(4), left, "{found:?}");
        }
    }
}

/// Checks the error entry of a receive of 4 bytes that got a message of 9 with these data.
#[track_caller]
fn is_truncated(entry: &ErrEntry, context: u64, flags: CompFlags, tag: u64, data: u64) {
    assert_eq!((entry.op_context, entry.err), (context, Errno::KFI_ETRUNC));
    assert_eq!((entry.len, entry.olen), (4, 5));
    assert_eq!(entry.flags, flags | CompFlags::REMOTE_CQ_DATA);
    assert_eq!((entry.tag, entry.data), (tag, data));
}

/// tag "contains the tag that was included with the received message"; "If FI_REMOTE_CQ_DATA is
/// set, this field will contain the completion data provided by the peer".
fn a_truncated_receive_reports_tag_and_data(way: Way) {
    let (a, to_b, b) = way.pair();
    let (to_a, long, into) = (b.meet(&a), b"too long.", buffer(4));
    let data = 0x1234_5678_9abc_def0;
    // The tag is the message's, not the receive's.
    let plain = (Op::recv(&into), Op::inject(to_b, long).data(data));
    let tagged = (
        Op::trecv(&into, 0x10, 0xf),
        Op::tinject(to_b, long, 0x17).data(data + 1),
    );
    // The receive comes first, or the message.
    for early in [true, false] {
        for (context, (receive, send)) in (1..).zip([&plain, &tagged]) {
            into.fill(0);
            let receive = || b.ep.post_one(&receive.context(context)).expect("receive");
            if early {
                receive();
            }
            a.ep.post_one(send).expect("inject");
            if !early {
                std::thread::sleep(Duration::from_millis(50));
                receive();
            }
            let entry = b.failure();
            if context == 1 {
                is_truncated(&entry, 1, RECEIVED, 0, data);
            } else {
                is_truncated(&entry, 2, TRECEIVED, 0x17, data + 1);
            }
            assert_eq!(entry.src_addr, to_a);
            assert_eq!(into.to_vec(..), b"too ");
        }
        b.expect_nothing();
    }
}

/// FI_REMOTE_CQ_DATA "indicates that remote CQ data is available as part of the completion"; "The
/// data field is only valid if the FI_REMOTE_CQ_DATA completion flag is set". The message is
/// refused as a whole, so its data need not be available.
fn a_truncated_receive_of_a_connection_has_data_or_no_flag() {
    let options = Options::of(EpType::Msg, Caps::MSG);
    let (a, b) = (Host::with(&options), Host::with(&options));
    connect(&a, &b);
    let into = buffer(4);
    b.ep.recv(&into, 1).expect("recv");
    let op = Op::inject(FiAddr::UNSPEC, b"too long.").data(0x1234);
    a.ep.post_one(&op).expect("inject");
    let mut entry = b.failure();
    if !entry.flags.contains(CompFlags::REMOTE_CQ_DATA) {
        assert_eq!(entry.data, 0);
        entry.flags |= CompFlags::REMOTE_CQ_DATA;
        entry.data = 0x1234;
    }
    is_truncated(&entry, 1, RECEIVED, 0, 0x1234);
}

/// Takes the only room of a selective CQ by a receive that reports, so that the CQ is full and has
/// nothing to read.
fn take_the_room(alone: &Alone, into: &Buffer) {
    let receive = Op::trecv(into, 77, 0).flags(OpFlags::COMPLETION);
    alone.ep.post_one(&receive.context(1)).expect("trecv");
    is_refused(alone.try_complete(2), Errno::EAGAIN);
    assert!(alone.read(1).is_empty());
}

/// "Attempting to read from an CQ while an item is in the error queue results in an FI_EAVAIL
/// failure"; the blocking calls return when "an error or timeout occurs".
fn a_failure_without_room_wakes_every_waiter() {
    let alone = Alone::with(
        |cq| cq.entries(1).context(7),
        |ep| ep,
        BOTH | CqBind::SELECTIVE,
    );
    let into = buffer(8);
    take_the_room(&alone, &into);
    let polls = alone.domain.poll_set().expect("poll set");
    polls.add(&alone.cq).expect("add");
    let ring = alone.cq.ring().expect("ring");
    let fd = alone.cq.wait_fd().expect("fd");
    let readable = || fd.wait(Duration::ZERO).expect("poll");
    assert!(!readable());
    assert!(polls.poll(4).expect("poll").is_empty());
    assert_eq!(ring.errors(), 0);
    let reader = {
        let cq = alone.cq.clone();
        Sleeper::asleep(move || sread_one(&cq))
    };
    let poller = {
        let fd = alone.cq.wait_fd().expect("fd");
        Sleeper::new(move || fd.wait(Deadline::FOREVER).expect("poll"))
    };
    std::thread::sleep(Duration::from_millis(20));
    let write = Op::inject_write(alone.me, b"x", NOWHERE).context(9);
    alone.ep.post_one(&write).expect("write");
    is_refused(reader.end(), Errno::KFI_EAVAIL);
    assert!(poller.end());
    assert!(readable());
    assert_eq!(polls.poll(4).expect("poll"), [7]);
    assert_eq!(ring.errors(), 1);
    let mut entry = [Entry::default()];
    is_refused(alone.cq.read(&mut entry), Errno::KFI_EAVAIL);
    assert_eq!(alone.read_error(), Some(9));
    assert!(!readable());
    assert_eq!(ring.errors(), 0);
    // The receive kept its room.
    alone.ep.tinject(alone.me, b"x", 77).expect("tinject");
    assert_eq!(alone.read(4), [1]);
}

/// The same with FI_CQ_COND_THRESHOLD, whose condition is not met.
fn a_failure_without_room_ends_a_wait_for_several_entries() {
    let alone = Alone::with(
        |cq| cq.entries(4).threshold_cond(),
        |ep| ep,
        BOTH | CqBind::SELECTIVE,
    );
    alone.complete_all(0..2);
    let into = buffer(8);
    for context in 2..4 {
        let receive = Op::trecv(&into, 77, 0).flags(OpFlags::COMPLETION);
        alone.ep.post_one(&receive.context(context)).expect("trecv");
    }
    is_refused(alone.try_complete(4), Errno::EAGAIN);
    let reader = {
        let cq = alone.cq.clone();
        Sleeper::asleep(move || cq.sread_cond(&mut [Entry::default(); 4], 4, Deadline::FOREVER))
    };
    let write = Op::inject_write(alone.me, b"x", NOWHERE).context(9);
    alone.ep.post_one(&write).expect("write");
    is_refused(reader.end(), Errno::KFI_EAVAIL);
    assert_eq!(alone.read_error(), Some(9));
    assert_eq!(alone.read(4), [0, 1]);
}

/// "Any completions which remain on the CQ when it is closed are lost": those of an endpoint that
/// is closed are not.
fn errors_outlive_their_endpoint() {
    let alone = Alone::with(|cq| cq.entries(2), |ep| ep, BOTH | CqBind::SELECTIVE);
    let into = buffer(8);
    let receive = Op::trecv(&into, 77, 0).flags(OpFlags::COMPLETION);
    alone.ep.post_one(&receive.context(2)).expect("trecv");
    alone.complete(1);
    is_refused(alone.try_complete(3), Errno::EAGAIN);
    for context in 10..13 {
        let write = Op::inject_write(alone.me, b"x", NOWHERE).context(context);
        alone.ep.post_one(&write).expect("write");
    }
    let Alone { cq, ep, .. } = alone;
    ep.close().expect("close");
    for context in 10..13 {
        let entry = cq.readerr().expect("readerr").expect("an error");
        let found = (entry.op_context, entry.flags, entry.err);
        assert_eq!(found, (context, WROTE, Errno::EACCES));
    }
    assert!(cq.readerr().expect("readerr").is_none());
    let mut entries = [Entry::default(); 4];
    assert_eq!(cq.read(&mut entries).expect("read"), 1);
    assert_eq!(entries[0].op_context, 1);
    cq.close().expect("close");
}

/// An operation whose failure could not be reported is refused, and counts nothing.
fn a_silent_operation_without_memory_for_its_error_is_refused() {
    File::open();
    open_to_all();
    as_user(|| {
        let file = File::open_only();
        let domain = file.domain(file.fabric());
        let (cq, av, cntr, ep) = (
            file.cq(domain),
            file.av(domain),
            file.cntr(domain),
            file.ep(domain),
        );
        let bind = abi::KFI_SEND | abi::KFI_RECV | abi::KFI_SELECTIVE_COMPLETION;
        file.bind(ep, cq, bind).expect("bind");
        file.bind(ep, av, 0).expect("bind");
        file.bind(ep, cntr, abi::KFI_RECV).expect("bind");
        file.enable(ep).expect("enable");
        let filled = fill(&file, domain);
        let receive = |context| {
            let op = abi::kfabric_op {
                opcode: abi::KFABRIC_OP_TRECV,
                context,
                peer: abi::KFI_ADDR_UNSPEC,
                ..Default::default()
            };
            file.post_one(ep, op)
        };
        // The remaining memory may be enough for some.
        let accepted = (0..200).find(|context| receive(*context).is_err());
        let accepted = accepted.expect("one that is refused");
        refused_with(receive(accepted), Errno::ENOMEM);
        // One that reports has room in the CQ.
        let reported = abi::kfabric_op {
            opcode: abi::KFABRIC_OP_TRECV,
            flags: abi::KFI_COMPLETION,
            context: accepted,
            peer: abi::KFI_ADDR_UNSPEC,
            ..Default::default()
        };
        file.post_one(ep, reported).expect("trecv");
        for context in 0..=accepted {
            let cancel = abi::kfabric_ep_cancel {
                ep,
                context,
                ..Call::sized()
            };
            file.call(cancel).expect("cancel");
            let entry = file.cq_readerr(cq).expect("readerr");
            let found = (entry.op_context, entry.err);
            assert_eq!(found, (context, Errno::ECANCELED.raw() as u32));
        }
        assert_eq!(file.cntr_read(cntr), Ok((0, accepted + 1)));
        refused_with(file.cq_readerr(cq).map(drop), Errno::EAGAIN);
        file.close_all(&filled);
        for context in 0..=accepted {
            receive(context).expect("there is memory");
        }
    });
}

/// "When an event is inserted into the completion queue, the corresponding wait set will be
/// signaled."
fn a_failure_without_room_signals_the_wait_set() {
    let (fabric, domain) = domain();
    let set = fabric.wait_set().expect("wait set");
    let cq = domain
        .cq()
        .entries(1)
        .format(CqFormat::Tagged)
        .wait(Wait::Set(set.clone()))
        .open()
        .expect("cq");
    let (av, ep) = (
        domain.av().open().expect("av"),
        domain.endpoint().open().expect("endpoint"),
    );
    ep.bind_cq(&cq, BOTH | CqBind::SELECTIVE).expect("bind");
    ep.bind_av(&av).expect("bind");
    ep.enable().expect("enable");
    let me = av.insert_one(ep.name().expect("name")).expect("insert");
    let into = buffer(8);
    let receive = Op::trecv(&into, 77, 0).flags(OpFlags::COMPLETION);
    ep.post_one(&receive).expect("trecv");
    assert!(!set.wait(Duration::ZERO).expect("wait"));
    let write = Op::inject_write(me, b"x", NOWHERE);
    ep.post_one(&write.context(9)).expect("write");
    assert!(set.wait(Duration::ZERO).expect("wait"), "not signalled");
    let sleeper = {
        let set = set.clone();
        Sleeper::asleep(move || set.wait(Deadline::FOREVER))
    };
    ep.post_one(&write.context(10)).expect("write");
    assert!(sleeper.end().expect("wait"));
    for context in [9, 10] {
        let entry = cq.readerr().expect("readerr").expect("an error");
        assert_eq!(entry.op_context, context);
    }
}

/// A connected endpoint with a selective CQ of one entry, and counters of its own operations.
fn counted_connection() -> (Host, [Cntr; 4]) {
    let options = Options {
        ep_type: EpType::Msg,
        caps: Caps::MSG | Caps::RMA | Caps::ATOMIC,
        bind: BOTH | CqBind::SELECTIVE,
        cq_entries: 1,
        ..Options::default()
    };
    let own = [SEND, RECV, READ, WRITE].map(|kind| KINDS[kind]);
    Host::counting(&domain().1, &options, own)
}

/// An operation that fails is reported also if its success would not have been, and "will increment
/// the error value associated with the counter" (kfi_cntr(3)).
fn each_operation_of_a_connection_that_ends_fails_once() {
    let peer = FiAddr::UNSPEC;
    let ((a, counters), (b, _)) = (counted_connection(), counted_connection());
    connect(&a, &b);
    let ours = buffer(64);
    let (eight, compared, result) = (ours.slice(..8), ours.slice(8..16), ours.slice(16..24));
    let (uint64, sum, cswap) = (Datatype::Uint64, AtomicOp::Sum, AtomicOp::Cswap);
    let mr = crate::connected::open_region(&b, &buffer(64), 1);
    let word = mr.remote(0);
    // The first one takes the only room. The send waits for a receive, and the others behind it.
    let ops = [
        (Op::recv(&ours).flags(OpFlags::COMPLETION), RECEIVED),
        (Op::recv(&ours), RECEIVED),
        (Op::send(peer, eight), SENT),
        (Op::inject(peer, b"x"), SENT),
        (Op::write(peer, eight, word), WROTE),
        (Op::inject_write(peer, b"x", word), WROTE),
        (Op::read(peer, result, word), DID_READ),
        (Op::atomic(peer, eight, word, uint64, sum), ADDED),
        (
            Op::fetch_atomic(peer, eight, result, word, uint64, sum),
            FETCHED,
        ),
        (
            Op::compare_atomic(peer, eight, compared, result, word, uint64, cswap),
            FETCHED,
        ),
        (Op::recv(&ours), RECEIVED),
    ];
    for (context, (op, _)) in (0..).zip(&ops) {
        a.ep.post_one(&op.context(context)).expect("post");
    }
    assert!(a.cq.readerr().expect("readerr").is_none());
    a.expect_nothing();
    a.ep.shutdown().expect("shutdown");
    let mut ended: Vec<_> = ops.iter().map(|_| a.failure()).collect();
    ended.sort_by_key(|entry| entry.op_context);
    for ((entry, context), (_, flags)) in ended.iter().zip(0..).zip(&ops) {
        let found = (entry.op_context, entry.flags, entry.err);
        assert_eq!(found, (context, *flags, Errno::ECANCELED));
    }
    assert!(a.cq.readerr().expect("readerr").is_none());
    a.expect_nothing();
    let values = || {
        let values = |cntr: &Cntr| (cntr.value(), cntr.err());
        counters.each_ref().map(values)
    };
    // Sends, receives; reads and fetching atomics; writes and the base atomic.
    until("each failure is counted", || {
        values() == [(0, 2), (0, 3), (0, 3), (0, 3)]
    });
}

/// The buffer's release is reported: "Providers may set this flag on the last message that is
/// received into the multi-recv buffer, or may generate a separate completion". Here the messages
/// themselves make no entries.
fn a_released_buffer_is_reported_by_a_selective_cq() {
    let alone = Alone::with(
        |cq| cq.entries(1),
        |ep| ep.caps(Options::default().caps),
        BOTH | CqBind::SELECTIVE,
    );
    alone.ep.set_min_multi_recv(16).expect("min_multi_recv");
    let into = buffer(64);
    let receive = Op::multi_recv(&into).context(5);
    for round in 0..3 {
        // A buffer whose release would find no room is refused, or keeps room for it.
        alone.complete(7);
        let posted = alone.ep.post_one(&receive);
        match errno(posted) {
            Some(refused) => {
                assert_eq!(refused, Errno::EAGAIN);
                assert_eq!(alone.read(4), [7]);
                alone.ep.post_one(&receive).expect("multi_recv");
            }
            None => assert_eq!(alone.read(4), [7]),
        }
        for _ in 0..2 {
            alone.ep.inject(alone.me, &[1; 30]).expect("inject");
        }
        let mut entries = [Entry::default(); 4];
        let count = alone.cq.read(&mut entries).expect("no loss");
        assert_eq!(count, 1, "round {round}: {entries:?}");
        let entry = entries[0];
        assert!(entry.flags.contains(CompFlags::MULTI_RECV), "{entry:?}");
        assert_eq!(entry.op_context, 5);
        assert_eq!(alone.cq.read(&mut entries).expect("no loss"), 0);
    }
}
