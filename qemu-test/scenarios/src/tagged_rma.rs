// SPDX-License-Identifier: GPL-2.0
//! Tagged RMA: reads and writes of the memory of a tagged receive that the peer has posted, on one
//! host and between two.

use crate::{
    deferred::{cntr, queue, wait},
    harness::tests,
    host::{Host, Options, SOON, TRECEIVED, buffer, errno, holding, is_refused, pattern},
    hosts::{apart, sanitizing},
    ways::Way,
};
use kfi::{Buffer, Caps, CompFlags, EpType, Errno, FiAddr, Op, OpFlags, Work};

tests![
    receives_are_written_and_read: [OneHost, TwoHosts => 300],
    an_offset_selects_a_part: [OneHost, TwoHosts],
    without_a_receive_it_fails_at_once: [OneHost, TwoHosts],
    what_does_not_fit_is_reported_at_both_ends: [OneHost, TwoHosts],
    messages_and_rma_take_receives_in_order: [OneHost, TwoHosts],
    a_receive_has_its_source: [OneHost, TwoHosts],
    both_ends_need_the_capability: [OneHost, TwoHosts],
    it_is_deferred_and_triggered: [OneHost, TwoHosts],
    invalid_operations_are_refused,
    it_arrives_in_spite_of_loss => 300,
    a_cancelled_operation_ends_once,
    a_close_of_the_target_ends_operations,
    a_close_of_the_initiator_ends_receives,
];

const OUT: CompFlags = CompFlags::TAGGED
    .union(CompFlags::RMA)
    .union(CompFlags::SEND);
const IN: CompFlags = CompFlags::TAGGED
    .union(CompFlags::RMA)
    .union(CompFlags::RECV);

/// Contexts: of the operation, and of the receive.
const OP: u64 = 1;
const RX: u64 = 2;

/// READ or WRITE.
fn kind(read: bool) -> CompFlags {
    if read {
        CompFlags::READ
    } else {
        CompFlags::WRITE
    }
}

fn options() -> Options {
    let options = Options::default();
    Options {
        caps: options.caps | Caps::TAGGED_RMA | Caps::TRIGGER,
        ..options
    }
}

fn pair(way: Way) -> (Host, FiAddr, Host) {
    way.pair_with(&options())
}

fn op(read: bool, to: FiAddr, memory: &Buffer, len: usize, tag: u64, offset: u64) -> Op<'_> {
    let memory = memory.slice(..len);
    let op = if read {
        Op::tread(to, memory, tag, offset)
    } else {
        Op::twrite(to, memory, tag, offset)
    };
    op.context(OP)
}

#[track_caller]
fn post(host: &Host, op: Op<'_>) {
    host.ep.post_one(&op).expect("post");
}

#[track_caller]
fn fails(host: &Host, flags: CompFlags, context: u64, err: Errno) -> kfi::ErrEntry {
    let entry = host.failure();
    assert_eq!((entry.err, entry.op_context), (err, context), "{entry:?}");
    assert_eq!(entry.flags, flags, "{entry:?}");
    entry
}

fn receives_are_written_and_read(way: Way) {
    let (a, to_b, b) = pair(way);
    let longest = if sanitizing() { 1 << 20 } else { 5 << 20 };
    for (tag, len) in [0, 1, 256, 257, 8192, 8193, 100_000, longest]
        .into_iter()
        .enumerate()
    {
        let (tag, room) = (u64::MAX - tag as u64, len.max(1));
        let bytes = pattern(room + 8, tag);
        for read in [false, true] {
            let (ours, theirs) = (buffer(room), buffer(room + 8));
            let source = if read { &theirs } else { &ours };
            source.write_at(0, &bytes[..source.len()]);
            b.ep.trecv(&theirs, tag, 0, RX).expect("trecv");
            post(&a, op(read, to_b, &ours, len, tag, 0));
            a.expect(OUT | kind(read), OP);
            let entry = b.expect(IN | kind(read), RX);
            assert_eq!((entry.len as usize, entry.tag), (len, tag));
            assert!(ours.to_vec(..len) == bytes[..len], "{read}, length {len}");
            assert!(theirs.to_vec(..len) == bytes[..len], "{read}, length {len}");
        }
    }
    a.expect_nothing();
    b.expect_nothing();
}

fn an_offset_selects_a_part(way: Way) {
    let (a, to_b, b) = pair(way);
    let bytes = pattern(30_000, 1);
    for read in [false, true] {
        let (ours, theirs) = (buffer(10_000), buffer(30_000));
        if read {
            theirs.write_at(0, &bytes);
        } else {
            ours.write_at(0, &bytes[19_000..29_000]);
        }
        b.ep.trecv(&theirs, 5, 0, RX).expect("trecv");
        post(&a, op(read, to_b, &ours, 10_000, 5, 19_000));
        a.expect(OUT | kind(read), OP);
        assert_eq!(b.expect(IN | kind(read), RX).len, 10_000);
        assert!(ours.to_vec(..) == bytes[19_000..29_000]);
        assert!(theirs.to_vec(19_000..29_000) == bytes[19_000..29_000]);
        assert_eq!(theirs.to_vec(29_000..29_001)[0] == 0, !read);
    }
}

fn without_a_receive_it_fails_at_once(way: Way) {
    let (a, to_b, b) = pair(way);
    let (ours, theirs) = (buffer(10_000), buffer(10_000));
    for read in [false, true] {
        for len in [8, 10_000] {
            post(&a, op(read, to_b, &ours, len, 3, 0));
            fails(&a, OUT | kind(read), OP, Errno::EREMOTEIO);
            // A plain receive, and one with another tag, are not meant.
            b.ep.recv(&theirs, RX).expect("recv");
            b.ep.trecv(&theirs, 2, 0, RX + 1).expect("trecv");
            post(&a, op(read, to_b, &ours, len, 3, 0));
            fails(&a, OUT | kind(read), OP, Errno::EREMOTEIO);
            for (context, flags) in [(RX, CompFlags::MSG), (RX + 1, CompFlags::TAGGED)] {
                b.ep.cancel(context).expect("cancel");
                fails(&b, flags | CompFlags::RECV, context, Errno::ECANCELED);
            }
            // Nothing is left there: not even a search finds it.
            b.ep.post_one(&Op::tpeek(0, u64::MAX).context(9))
                .expect("peek");
            fails(&b, TRECEIVED, 9, Errno::ENOMSG);
        }
    }
    a.expect_nothing();
}

fn what_does_not_fit_is_reported_at_both_ends(way: Way) {
    let (a, to_b, b) = pair(way);
    let bytes = pattern(20_000, 1);
    for read in [false, true] {
        // The room of the receive, the offset, and the bytes that are transferred.
        for (room, offset, moved) in [(15_000, 0, 15_000), (15_000, 5_000, 10_000), (8, 8, 0)] {
            let (ours, theirs) = (buffer(20_000), buffer(room));
            let source = if read { &theirs } else { &ours };
            source.write_at(0, &bytes[..source.len()]);
            b.ep.trecv(&theirs, 3, 0, RX).expect("trecv");
            post(&a, op(read, to_b, &ours, 20_000, 3, offset as u64));
            fails(&a, OUT | kind(read), OP, Errno::EMSGSIZE);
            let entry = fails(&b, IN | kind(read), RX, Errno::EMSGSIZE);
            assert_eq!(
                (entry.len, entry.olen, entry.tag),
                (moved, 20_000 - moved, 3)
            );
            let moved = moved as usize;
            if read {
                assert!(ours.to_vec(..moved) == bytes[offset..offset + moved]);
                assert!(ours.to_vec(moved..).iter().all(|byte| *byte == 0));
            } else {
                assert!(theirs.to_vec(offset..offset + moved) == bytes[..moved]);
            }
        }
    }
    // Other operations go on.
    let into = buffer(8);
    b.ep.trecv(&into, 3, 0, RX).expect("trecv");
    post(&a, op(false, to_b, &buffer(8), 8, 3, 0));
    a.expect(OUT | CompFlags::WRITE, OP);
    b.expect(IN | CompFlags::WRITE, RX);
}

fn messages_and_rma_take_receives_in_order(way: Way) {
    let (a, to_b, b) = pair(way);
    let memory = [(); 6].map(|()| buffer(50_000));
    for (memory, context) in memory.iter().zip(10..) {
        b.ep.trecv(memory, 0, u64::MAX, context).expect("trecv");
    }
    let ours = [(); 6].map(|()| buffer(50_000));
    for (number, memory) in ours.iter().enumerate() {
        let tag = number as u64;
        memory.fill(number as u8 + 1);
        let op = match number {
            1 => Op::tsend(to_b, memory.slice(..9), tag),
            2 => Op::tsend(to_b, memory, tag),
            3 => Op::tread(to_b, memory, tag, 0),
            4 => Op::twrite(to_b, memory, tag, 0).data(0x1234_5678_9abc),
            _ => Op::twrite(to_b, memory, tag, 0),
        };
        a.ep.post_one(&op.context(tag)).expect("post");
    }
    let mut seen = [false; 6];
    for _ in 0..6 {
        let entry = b.completion();
        // A longer one may complete later, but each has its own receive.
        assert_eq!(entry.op_context, entry.tag + 10);
        let rma = CompFlags::RMA;
        let flags = TRECEIVED
            | match entry.tag {
                1 | 2 => CompFlags::empty(),
                3 => rma | CompFlags::READ,
                4 => rma | CompFlags::WRITE | CompFlags::REMOTE_CQ_DATA,
                _ => rma | CompFlags::WRITE,
            };
        assert_eq!(entry.flags, flags, "{entry:?}");
        let data = if entry.tag == 4 { 0x1234_5678_9abc } else { 0 };
        assert_eq!(entry.data, data);
        seen[entry.tag as usize] = true;
        a.completion();
    }
    assert_eq!(seen, [true; 6]);
    assert!(ours[3].to_vec(..).iter().all(|byte| *byte == 0));
    assert!(memory[5].to_vec(..).iter().all(|byte| *byte == 6));
}

fn a_receive_has_its_source(way: Way) {
    let (a, to_b, b) = pair(way);
    let (to_a, to_self) = (b.meet(&a), b.meet(&b));
    let (ours, theirs) = (buffer(8), buffer(8));
    for read in [false, true] {
        for (context, from) in [(RX, to_self), (RX + 1, to_a)] {
            b.ep.post_one(&Op::trecv(&theirs, 1, 0).from(from).context(context))
                .expect("trecv");
        }
        post(&a, op(read, to_b, &ours, 8, 1, 0));
        a.expect(OUT | kind(read), OP);
        b.expect(IN | kind(read), RX + 1);
        post(&a, op(read, to_b, &ours, 8, 1, 0));
        fails(&a, OUT | kind(read), OP, Errno::EREMOTEIO);
        b.ep.cancel(RX).expect("cancel");
        fails(&b, TRECEIVED, RX, Errno::ECANCELED);
    }
}

fn both_ends_need_the_capability(way: Way) {
    if way == Way::TwoHosts {
        apart();
    }
    let host = |caps| Host::with(&Options::of(EpType::Rdm, caps));
    let all = options().caps;
    let ours = buffer(8);
    let theirs = buffer(8);
    let (a, b) = (host(all.difference(Caps::TAGGED_RMA)), host(all));
    let to_b = a.meet(&b);
    for read in [false, true] {
        let refused = a.ep.post_one(&op(read, to_b, &ours, 8, 1, 0));
        is_refused(refused, Errno::EOPNOTSUPP);
    }
    let sends = Caps::SEND | Caps::READ | Caps::WRITE | Caps::REMOTE_READ | Caps::REMOTE_WRITE;
    for (without, read, write) in [
        (all.difference(Caps::TAGGED_RMA), false, false),
        (all | sends, false, false),
        (
            all | Caps::SEND | Caps::RECV | Caps::REMOTE_READ,
            true,
            false,
        ),
        (
            all | Caps::SEND | Caps::RECV | Caps::REMOTE_WRITE,
            false,
            true,
        ),
    ] {
        let (a, b) = (host(all), host(without));
        let to_b = a.meet(&b);
        let receives = without.contains(Caps::RECV) || !without.contains(Caps::SEND);
        for (reads, allowed) in [(true, read), (false, write)] {
            if receives {
                b.ep.trecv(&theirs, 1, 0, RX).expect("trecv");
            }
            post(&a, op(reads, to_b, &ours, 8, 1, 0));
            if allowed {
                a.expect(OUT | kind(reads), OP);
                b.expect(IN | kind(reads), RX);
                continue;
            }
            fails(&a, OUT | kind(reads), OP, Errno::EREMOTEIO);
            if receives {
                b.ep.cancel(RX).expect("cancel");
                fails(&b, TRECEIVED, RX, Errno::ECANCELED);
            }
        }
    }
}

fn it_is_deferred_and_triggered(way: Way) {
    let (a, to_b, b) = pair(way);
    let (go, done) = (cntr(&a.domain), cntr(&a.domain));
    let bytes = pattern(10_000, 1);
    let (from, into) = (holding(&bytes), buffer(10_000));
    let theirs = buffer(10_000);
    for context in [RX, RX + 1] {
        b.ep.trecv(&theirs, 1, 0, context).expect("trecv");
    }
    let write = op(false, to_b, &from, 10_000, 1, 0);
    let read = op(true, to_b, &into, 10_000, 1, 0);
    // The read is due when the write has completed.
    queue(
        &a.domain,
        Work::transfer(&done, 1, &a.ep, read).completion(&done),
    );
    queue(
        &a.domain,
        Work::transfer(&go, 1, &a.ep, write).completion(&done),
    );
    go.add(1).expect("add");
    wait(&done, 2);
    assert!(into.to_vec(..) == bytes);
    b.expect(IN | CompFlags::WRITE, RX);
    b.expect(IN | CompFlags::READ, RX + 1);
    a.expect_nothing();
    // A triggered one, which finds no receive; deferred, that is an error of the work.
    a.ep.post_one(&write.trigger(&go, 2)).expect("post");
    queue(
        &a.domain,
        Work::transfer(&go, 3, &a.ep, read).completion(&done),
    );
    go.add(1).expect("add");
    fails(&a, OUT | CompFlags::WRITE, OP, Errno::EREMOTEIO);
    go.add(1).expect("add");
    fails(&a, OUT | CompFlags::READ, OP, Errno::EREMOTEIO);
    assert_eq!(done.err(), 1);
}

fn invalid_operations_are_refused() {
    let (a, to_b, _b) = pair(Way::OneHost);
    let ours = buffer(8);
    let two = [kfi::RmaIov::new(kfi::Remote::new(0, 1), 4); 2];
    for read in [false, true] {
        let good = op(read, to_b, &ours, 8, 1, 0);
        for bad in [
            good.remote_iov(&two),
            op(read, to_b, &ours, 8, 1, (1 << 30) + 1),
            op(read, to_b, &ours, 8, 1, u64::MAX),
        ] {
            assert_eq!(errno(a.ep.post_one(&bad)), Some(Errno::EINVAL), "{bad:?}");
        }
        let nobody = op(read, FiAddr(77), &ours, 8, 1, 0);
        is_refused(a.ep.post_one(&nobody), Errno::ENOENT);
        post(&a, op(read, to_b, &ours, 8, 1, 1 << 30));
        fails(&a, OUT | kind(read), OP, Errno::EREMOTEIO);
    }
    for op in [
        Op::tsend(to_b, &ours, 1),
        Op::send(to_b, &ours),
        Op::trecv(&ours, 1, 0),
    ] {
        let refused = a.ep.post_one(&op.flags(OpFlags::TAGGED));
        is_refused(refused, Errno::EINVAL);
    }
    let read = Op::tread(to_b, &ours, 1, 0).data(1);
    is_refused(a.ep.post_one(&read), Errno::EINVAL);
    a.expect_nothing();
}

fn it_arrives_in_spite_of_loss() {
    let hosts = apart();
    hosts.network("delay 1ms 1ms loss 1% duplicate 1% reorder 10% 50%");
    let (a, to_b, b) = pair(Way::TwoHosts);
    for len in [0, 1, 5000, 9000, 300_000] {
        let bytes = pattern(len.max(1), len as u64);
        for read in [false, true] {
            let (ours, theirs) = (buffer(len.max(1)), buffer(len.max(1)));
            let source = if read { &theirs } else { &ours };
            source.write_at(0, &bytes);
            b.ep.trecv(&theirs, 1, 0, RX).expect("trecv");
            post(&a, op(read, to_b, &ours, len, 1, 0));
            a.expect(OUT | kind(read), OP);
            b.expect(IN | kind(read), RX);
            assert!(ours.to_vec(..len) == bytes[..len]);
            assert!(theirs.to_vec(..len) == bytes[..len]);
        }
    }
    hosts.network("loss 0%");
}

/// The peer decides whether the cancel comes in time.
fn a_cancelled_operation_ends_once() {
    let hosts = apart();
    for netem in ["loss 0%", "delay 20ms"] {
        hosts.network(netem);
        let (a, to_b, b) = pair(Way::TwoHosts);
        let (ours, theirs) = (buffer(200_000), buffer(200_000));
        for round in 0..20 {
            let read = round % 2 == 0;
            b.ep.trecv(&theirs, 1, 0, RX).expect("trecv");
            post(&a, op(read, to_b, &ours, 200_000, 1, 0));
            // Too late if it has ended already.
            let _ = a.ep.cancel(OP);
            match a.cq.next(SOON) {
                Ok(Some(entry)) => {
                    assert_eq!(entry.flags, OUT | kind(read));
                    b.expect(IN | kind(read), RX);
                }
                Err(kfi::Error::Completion(entry)) => {
                    assert_eq!(entry.err, Errno::ECANCELED);
                    // The receive is still there.
                    b.ep.cancel(RX).expect("cancel");
                    fails(&b, TRECEIVED, RX, Errno::ECANCELED);
                }
                other => panic!("no completion: {other:?}"),
            }
            a.expect_nothing();
            b.expect_nothing();
        }
    }
    hosts.network("loss 0%");
}

/// Long enough to be in progress when an end closes.
const LONG: usize = 4 << 20;

/// Calls `check` with two ends between which an operation, a write and then a read, is in progress.
fn with_an_operation_in_progress(check: impl Fn(bool, Host, Host)) {
    let hosts = apart();
    for read in [false, true] {
        hosts.network("delay 20ms");
        let (a, to_b, b) = pair(Way::TwoHosts);
        let (ours, theirs) = (buffer(LONG), buffer(LONG));
        b.ep.trecv(&theirs, 1, 0, RX).expect("trecv");
        // The connection is there.
        post(&a, op(read, to_b, &ours, 8, 2, 0));
        fails(&a, OUT | kind(read), OP, Errno::EREMOTEIO);
        post(&a, op(read, to_b, &ours, LONG, 1, 0));
        std::thread::sleep(std::time::Duration::from_millis(50));
        check(read, a, b);
        hosts.network("loss 0%");
    }
}

fn a_close_of_the_target_ends_operations() {
    with_an_operation_in_progress(|read, a, b| {
        drop(b);
        fails(&a, OUT | kind(read), OP, Errno::ECONNRESET);
    });
}

fn a_close_of_the_initiator_ends_receives() {
    with_an_operation_in_progress(|read, a, b| {
        drop(a);
        let entry = fails(&b, IN | kind(read), RX, Errno::ECONNRESET);
        assert_eq!(entry.tag, 1);
    });
}
