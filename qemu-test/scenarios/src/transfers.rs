// SPDX-License-Identifier: GPL-2.0
//! Transfers: lists of buffers, the largest sizes, the completion levels of transmits, and many
//! operations in one post.

use crate::{
    harness::tests,
    host::{
        Host, Options, RECEIVED, REMOTE, SENT, WROTE, buffer, holding, is_refused, pair, pair_with,
        pattern, register,
    },
};
use kfi::{Access, Buffer, CompFlags, Errno, FiAddr, IoVec, Op, OpFlags, Remote};

tests![
    lists_of_256_pieces,
    lists_with_empty_pieces,
    lists_have_limits,
    a_message_of_1_gib_arrives => 300,
    rma_of_1_gib_arrives => 300,
    nothing_is_longer_than_1_gib,
    completion_levels_are_kept,
    a_fence_waits_for_earlier_operations,
    many_operations_in_one_post,
    a_post_stops_at_the_first_refusal,
];

/// Pieces of `buffer`, `count` of them, each `len(i)` bytes with a gap behind.
fn pieces(buffer: &Buffer, count: usize, len: impl Fn(usize) -> usize) -> Vec<IoVec<'_>> {
    let mut at = 0;
    (0..count)
        .map(|i| {
            let piece = buffer.slice(at..at + len(i));
            at += len(i) + 3;
            piece.into()
        })
        .collect()
}

/// The bytes of such pieces.
fn gather(buffer: &Buffer, count: usize, len: impl Fn(usize) -> usize) -> Vec<u8> {
    let mut at = 0;
    let mut bytes = Vec::new();
    for i in 0..count {
        bytes.extend(buffer.to_vec(at..at + len(i)));
        at += len(i) + 3;
    }
    bytes
}

fn lists_of_256_pieces() {
    let (a, to_b, b, _) = pair();
    let ours = holding(&pattern(300_000, 1));
    // Pieces on both sides with different boundaries, small and large.
    type Len<'a> = &'a dyn Fn(usize) -> usize;
    let sizes: [(usize, Len, usize, Len); 4] = [
        (256, &|i| i, 256, &|i| 255 - i),
        (256, &|i| 1 + i % 2, 1, &|_| 384),
        (3, &|i| 20_000 + i, 256, &|i| 210 + i % 70),
        (256, &|_| 1000, 256, &|i| 1000 + i % 3),
    ];
    for (count, len, their_count, their_len) in sizes {
        let theirs = buffer(300_000);
        let from = pieces(&ours, count, len);
        let into = pieces(&theirs, their_count, their_len);
        let sent = gather(&ours, count, len);
        for receive_first in [true, false] {
            theirs.fill(0);
            if receive_first {
                b.ep.recv(&into[..], 1).expect("recv");
                a.ep.send(to_b, &from[..], 2).expect("send");
            } else {
                a.ep.send(to_b, &from[..], 2).expect("send");
                b.ep.recv(&into[..], 1).expect("recv");
            }
            a.expect(SENT, 2);
            let entry = b.expect(RECEIVED, 1);
            assert_eq!(entry.len as usize, sent.len());
            let got = gather(&theirs, their_count, their_len);
            assert!(
                got[..sent.len()] == sent,
                "{count} pieces into {their_count}"
            );
            assert!(got[sent.len()..].iter().all(|byte| *byte == 0));
            // The gaps between the pieces are unchanged.
            let all: u64 = theirs.to_vec(..).iter().map(|byte| u64::from(*byte)).sum();
            let placed: u64 = sent.iter().map(|byte| u64::from(*byte)).sum();
            assert_eq!(all, placed);
        }
    }
}

fn lists_with_empty_pieces() {
    let (a, to_b, b, _) = pair();
    let ours = holding(&pattern(9000, 1));
    let theirs = buffer(9000);
    for (lens, their_lens) in [
        (vec![0, 5, 0, 0, 7, 0], vec![0, 0, 12]),
        (vec![0; 256], vec![0; 256]),
        (vec![0], vec![10]),
        (vec![0, 8000, 0], vec![1, 0, 4000, 0, 3999]),
    ] {
        let from = pieces(&ours, lens.len(), |i| lens[i]);
        let into = pieces(&theirs, their_lens.len(), |i| their_lens[i]);
        b.ep.recv(&into[..], 1).expect("recv");
        a.ep.send(to_b, &from[..], 2).expect("send");
        a.expect(SENT, 2);
        let sent = gather(&ours, lens.len(), |i| lens[i]);
        assert_eq!(b.expect(RECEIVED, 1).len as usize, sent.len());
        let got = gather(&theirs, their_lens.len(), |i| their_lens[i]);
        assert!(got[..sent.len()] == sent, "{lens:?}");
    }
    // RMA as well.
    let mr = register(&b.domain, &theirs, Access::REMOTE_WRITE, 0);
    let lens = [0, 3, 0, 300, 0];
    let from = pieces(&ours, 5, |i| lens[i]);
    a.ep.write(to_b, &from[..], mr.remote(100), 3)
        .expect("write");
    a.expect(WROTE, 3);
    assert!(theirs.to_vec(100..403) == gather(&ours, 5, |i| lens[i]));
}

fn lists_have_limits() {
    let (a, to_b, b, _) = pair();
    let buffer = Buffer::new(1000).expect("buffer");
    let list = pieces(&buffer, 257, |_| 0);
    is_refused(a.ep.send(to_b, &list[..], 0), Errno::EINVAL);
    is_refused(b.ep.recv(&list[..], 0), Errno::EINVAL);
    assert!(b.ep.recv(&list[..256], 0).is_ok());
}

/// Bytes of this machine's memory that a test may use; prints the missing amount.
fn need_memory(bytes: u64) {
    let text = std::fs::read_to_string("/proc/meminfo").expect("meminfo");
    let line = text.lines().find(|line| line.starts_with("MemAvailable:"));
    let kib: u64 = line
        .and_then(|line| line.split_whitespace().nth(1))
        .and_then(|word| word.parse().ok())
        .expect("MemAvailable");
    assert!(
        kib << 10 >= bytes,
        "{} MiB are free of {} that this needs: boot the guest with --mem 4G",
        kib >> 10,
        bytes >> 20
    );
}

const GIB: usize = 1 << 30;

/// Two buffers of 1 GiB; the first has a mark on every page, and at its ends.
fn two_gib() -> (Buffer, Buffer) {
    need_memory(5 << 29);
    let (from, into) = (buffer(GIB), buffer(GIB));
    for at in marks() {
        from.write_at(at, &(at as u64 ^ 0x5a5a_1234).to_le_bytes());
    }
    (from, into)
}

fn marks() -> impl Iterator<Item = usize> {
    (0..GIB).step_by(4096).chain([GIB - 8])
}

fn check_gib(into: &Buffer) {
    let mut word = [0; 8];
    for at in marks() {
        into.read_at(at, &mut word);
        assert_eq!(
            u64::from_le_bytes(word),
            at as u64 ^ 0x5a5a_1234,
            "at {at:#x}"
        );
    }
}

fn a_message_of_1_gib_arrives() {
    let (a, to_b, b, _) = pair();
    let (from, into) = two_gib();
    a.ep.send(to_b, &from, 1).expect("send");
    b.ep.recv(&into, 2).expect("recv");
    assert_eq!(b.expect(RECEIVED, 2).len, GIB as u64);
    a.expect(SENT, 1);
    check_gib(&into);
}

fn rma_of_1_gib_arrives() {
    let (a, to_b, b, _) = pair();
    let (from, into) = two_gib();
    let access = REMOTE;
    let mr = register(&b.domain, &into, access, 0);
    a.ep.write(to_b, &from, mr.remote(0), 1).expect("write");
    a.expect(WROTE, 1);
    check_gib(&into);
    // A byte too many, and the region is unchanged.
    a.ep.read(to_b, &from, mr.remote(1), 2).expect("read");
    let entry = a.cq.readerr().expect("readerr").expect("an error");
    assert_eq!(entry.err, Errno::EACCES);
}

fn nothing_is_longer_than_1_gib() {
    let (a, to_b, b, _) = pair();
    // Address space is enough: the memory is not accessed.
    let huge = buffer(GIB + 1);
    is_refused(a.ep.send(to_b, &huge, 0), Errno::EMSGSIZE);
    is_refused(b.ep.recv(&huge, 0), Errno::EMSGSIZE);
    let remote = Remote::new(0, 1);
    is_refused(a.ep.write(to_b, &huge, remote, 0), Errno::EMSGSIZE);
    is_refused(a.ep.read(to_b, &huge, remote, 0), Errno::EMSGSIZE);
    let list = [
        IoVec::from(huge.slice(..GIB / 2)),
        IoVec::from(huge.slice(GIB / 2 - 1..GIB)),
    ];
    is_refused(a.ep.send(to_b, &list, 0), Errno::EMSGSIZE);
    let mr = a.domain.mr(&huge).access(Access::SEND).open();
    is_refused(mr, Errno::EINVAL);
}

fn completion_levels_are_kept() {
    let (a, to_b, b, _) = pair();
    let small = buffer(8);
    let large = buffer(100_000);
    // The peer's endpoint has little room for unexpected messages.
    for (context, flags) in [
        (1, OpFlags::INJECT_COMPLETE),
        (2, OpFlags::TRANSMIT_COMPLETE),
        (3, OpFlags::INJECT_COMPLETE | OpFlags::TRANSMIT_COMPLETE),
        (4, OpFlags::empty()),
    ] {
        let op = Op::send(to_b, &small).flags(flags).context(context);
        a.ep.post_one(&op).expect("send");
        a.expect(SENT, context);
    }
    // Delivered means received, or discarded, by the peer, and not before. The highest level
    // counts.
    for (context, flags) in [
        (5, OpFlags::DELIVERY_COMPLETE),
        (6, OpFlags::DELIVERY_COMPLETE | OpFlags::TRANSMIT_COMPLETE),
    ] {
        let op = Op::send(to_b, &small).flags(flags).context(context);
        a.ep.post_one(&op).expect("send");
    }
    let op = Op::tsend(to_b, &large, 9)
        .flags(OpFlags::DELIVERY_COMPLETE)
        .context(7);
    a.ep.post_one(&op).expect("send");
    a.expect_nothing();
    for context in 0..4 {
        b.ep.recv(&small, context).expect("recv");
        b.expect(RECEIVED, context);
    }
    a.expect_nothing();
    for context in [5, 6] {
        b.ep.recv(&small, context).expect("recv");
        b.expect(RECEIVED, context);
        a.expect(SENT, context);
    }
    let discard = OpFlags::PEEK | OpFlags::DISCARD;
    b.ep.post_one(&Op::tpeek(9, 0).flags(discard))
        .expect("discard");
    a.expect(CompFlags::TAGGED | CompFlags::SEND, 7);
    // RMA is in the peer's memory when it completes, at every level.
    let mr = register(&b.domain, &small, Access::REMOTE_WRITE, 0);
    let ours = holding(b"delivery");
    let op = Op::write(to_b, &ours, mr.remote(0)).flags(OpFlags::DELIVERY_COMPLETE);
    a.ep.post_one(&op).expect("write");
    a.expect(WROTE, 0);
    assert_eq!(small.to_vec(..), b"delivery");
}

fn a_fence_waits_for_earlier_operations() {
    let (a, to_b, b, _) = pair();
    let other = Host::new();
    let to_other = a.meet(&other);
    let (small, large) = (buffer(8), buffer(100_000));
    let mr = register(&b.domain, &small, Access::REMOTE_WRITE, 0);
    let fenced = |peer| {
        let op = Op::send(peer, &small).flags(OpFlags::FENCE).context(2);
        a.ep.post_one(&op)
    };
    // No earlier operation: starts at once.
    fenced(to_b).expect("send");
    a.expect(SENT, 2);
    a.ep.send(to_b, &large, 1).expect("send");
    // An earlier send waits there: refused. The fence concerns one peer only.
    is_refused(fenced(to_b), Errno::EAGAIN);
    let write = Op::inject_write(to_b, b"x", mr.remote(0)).flags(OpFlags::FENCE);
    is_refused(a.ep.post_one(&write), Errno::EAGAIN);
    fenced(to_other).expect("send");
    a.expect(SENT, 2);
    for _ in 0..2 {
        b.ep.recv(&large, 3).expect("recv");
        b.expect(RECEIVED, 3);
    }
    a.expect(SENT, 1);
    fenced(to_b).expect("send");
    a.expect(SENT, 2);
    a.ep.post_one(&write).expect("write");
}

fn many_operations_in_one_post() {
    let (a, to_b, b, _) = pair_with(&Options::sized(0, 8192, 8192));
    let into = buffer(4096 * 8);
    let receives: Vec<_> = (0..4096usize)
        .map(|i| Op::recv(into.slice(8 * i..8 * i + 8)).context(i as u64))
        .collect();
    let posted = b.ep.post(&receives).expect("post");
    assert_eq!((posted.done, posted.error), (4096, None));
    let bytes: Vec<[u8; 8]> = (0..4096u64).map(u64::to_le_bytes).collect();
    let sends: Vec<_> = bytes.iter().map(|bytes| Op::inject(to_b, bytes)).collect();
    let posted = a.ep.post(&sends).expect("post");
    assert_eq!((posted.done, posted.error), (4096, None));
    for i in 0..4096u64 {
        b.expect(RECEIVED, i);
    }
    assert!(into.to_vec(..) == bytes.concat());
    let too_many = vec![Op::inject(to_b, b""); 4097];
    is_refused(a.ep.post(&too_many), Errno::EINVAL);
    is_refused(a.ep.post(&[]), Errno::EINVAL);
}

fn a_post_stops_at_the_first_refusal() {
    let (a, to_b, b, _) = pair();
    let good = Op::inject(to_b, b"good");
    let bad = Op::inject(FiAddr(55), b"bad");
    let posted = a.ep.post(&[good, good, bad, good]).expect("post");
    assert_eq!((posted.done, posted.error), (2, Some(Errno::ENOENT)));
    assert!(!posted.all());
    is_refused(a.ep.post(&[bad, good]), Errno::ENOENT);
    // Two have arrived, and no more.
    let into = buffer(8);
    for context in 0..3 {
        b.ep.recv(&into, context).expect("recv");
    }
    b.expect(RECEIVED, 0);
    b.expect(RECEIVED, 1);
    b.expect_nothing();
}
