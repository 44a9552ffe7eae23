// SPDX-License-Identifier: GPL-2.0
//! Operations to one peer in the orders that fi_getinfo promises (fi_endpoint(3), msg_order), also
//! if some are refused for want of room and posted again, and fences.

use crate::{
    connected::open_region,
    harness::tests,
    host::{
        Host, Options, READ, RECEIVED, SENT, WROTE, buffer, device, errno, holding, pattern, until,
    },
    hosts::apart,
    ways::Way,
};
use kfi::{Buffer, Entry, EpType, Errno, Error, FiAddr, Hints, MsgOrder, Op, OpFlags, Remote};
use std::{
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::Duration,
};

tests![
    messages_of_all_lengths_keep_their_order: [OneHost, TwoHosts => 120, Connection => 120],
    messages_of_all_lengths_keep_their_order_over_a_lossy_network => 300,
    messages_and_reads_come_after_earlier_writes: [OneHost, TwoHosts => 120, Connection => 120],
    a_write_waits_behind_a_message_of_a_connection,
    only_connections_promise_writes_and_reads_after_messages,
    refused_messages_are_posted_again_in_order: [
        OneHost => 120, TwoHosts => 120, Connection => 120,
    ],
    a_fence_waits_for_reads: [TwoHosts => 120, Connection => 120],
    a_refused_fence_is_accepted_when_the_message_has_ended => 120,
];

/// fi_getinfo must promise these orders, or the test would ask too much.
fn promised(way: Way, orders: MsgOrder) {
    let infos = device()
        .getinfo(&Hints::new().ep_type(way.ep_type()))
        .expect("getinfo");
    assert!(!infos.is_empty());
    for info in infos {
        assert!(info.tx.msg_order.contains(orders), "{way:?}: {info:?}");
    }
}

/// KFI_ORDER_SAS: "Send after send. [...] Message sends, including tagged messages, are transmitted
/// in the order submitted relative to other message send." A receive gets the first message that it
/// matches, in whatever way the module carries a message of that length, and whether or not
/// KFI_MORE announces the next one.
fn messages_of_all_lengths_keep_their_order(way: Way) {
    promised(way, MsgOrder::SAS);
    let (a, to_b, b) = way.pair();
    keep_their_order(&a, to_b, &b, 6);
}

/// The same when packets are lost, and come in another order.
fn messages_of_all_lengths_keep_their_order_over_a_lossy_network() {
    let hosts = apart();
    let datagrams = Way::TwoHosts.pair();
    let connection = Way::Connection.pair();
    hosts.network("delay 1ms 1ms loss 2% reorder 10%");
    for (a, to_b, b) in [&datagrams, &connection] {
        keep_their_order(a, *to_b, b, 2);
    }
    hosts.network("loss 0%");
}

fn keep_their_order(a: &Host, to_b: FiAddr, b: &Host, rounds: usize) {
    const LENS: [usize; 9] = [0, 8, 256, 257, 4096, 8192, 8193, 20_000, 100_000];
    const COUNT: usize = 4 * LENS.len();
    let lens: Vec<usize> = (0..COUNT).map(|i| LENS[i * 4 % LENS.len()]).collect();
    let into: Vec<Buffer> = lens.iter().map(|_| buffer(100_000)).collect();
    for round in 0..rounds {
        let sent: Vec<Buffer> = (0..COUNT)
            .map(|i| {
                let bytes = pattern(lens[i].max(1), (round * COUNT + i) as u64);
                holding(&bytes)
            })
            .collect();
        let injected = |i: usize| lens[i] <= 256 && i.is_multiple_of(2);
        let ops: Vec<Op<'_>> = (0..COUNT)
            .map(|i| {
                let mut flags = OpFlags::empty();
                if injected(i) {
                    flags |= OpFlags::INJECT;
                }
                if i % 3 != 2 && i + 1 < COUNT {
                    flags |= OpFlags::MORE;
                }
                Op::send(to_b, sent[i].slice(..lens[i]))
                    .flags(flags)
                    .context(i as u64)
            })
            .collect();
        let receive = |range: std::ops::Range<usize>| {
            for i in range {
                b.ep.recv(&into[i], i as u64).expect("recv");
            }
        };
        // Receives come before the messages, after them, or in their midst.
        let before = [COUNT, 0, COUNT / 2][round % 3];
        receive(0..before);
        if round < 3 {
            assert!(a.ep.post(&ops).expect("post").all());
        } else {
            for op in &ops {
                a.ep.post_one(op).expect("post");
            }
        }
        receive(before..COUNT);
        for _ in 0..COUNT {
            let entry = b.completion();
            assert_eq!(entry.flags, RECEIVED);
            let i = entry.op_context as usize;
            assert_eq!(entry.len as usize, lens[i], "round {round}, message {i}");
            assert!(
                into[i].to_vec(..lens[i]) == sent[i].to_vec(..lens[i]),
                "round {round}, message {i}"
            );
        }
        let mut told: Vec<u64> = (0..COUNT)
            .filter(|i| !injected(*i))
            .map(|_| a.completion().op_context)
            .collect();
        told.sort_unstable();
        assert!(
            told.iter()
                .copied()
                .eq((0..COUNT as u64).filter(|i| !injected(*i as usize)))
        );
        a.expect_nothing();
        b.expect_nothing();
    }
}

/// KFI_ORDER_SAW, RAW and WAW: sends, reads and writes come after earlier writes.
fn messages_and_reads_come_after_earlier_writes(way: Way) {
    const LEN: usize = 50_000;
    promised(way, MsgOrder::SAW | MsgOrder::RAW | MsgOrder::WAW);
    let (a, to_b, b) = way.pair();
    let (ours, back, theirs) = (buffer(LEN), buffer(LEN), buffer(LEN));
    let mr = open_region(&b, &theirs, 1);
    let into = buffer(1);
    for round in 0..50 {
        let mut bytes = pattern(LEN, round);
        ours.write_at(0, &bytes);
        let patch = pattern(200, 1000 + round);
        let place = 4000 + 17 * round as usize;
        b.ep.recv(&into, round).expect("recv");
        let ops = [
            Op::write(to_b, &ours, mr.remote(0)).context(1),
            Op::inject_write(to_b, &patch, mr.remote(place as u64)),
            Op::inject(to_b, b"m"),
            Op::read(to_b, &back, mr.remote(0)).context(2),
        ];
        assert!(a.ep.post(&ops).expect("post").all());
        bytes[place..place + 200].copy_from_slice(&patch);
        b.expect(RECEIVED, round);
        assert!(theirs.to_vec(..) == bytes, "round {round}: at the target");
        a.expect(WROTE, 1);
        a.expect(READ, 2);
        assert!(back.to_vec(..) == bytes, "round {round}: what was read");
    }
}

/// KFI_ORDER_WAS and RAS: a message that waits for its receive keeps later operations of its
/// connection waiting.
fn a_write_waits_behind_a_message_of_a_connection() {
    let way = Way::Connection;
    promised(way, MsgOrder::WAS | MsgOrder::RAS);
    let (a, to_b, b) = way.pair();
    let theirs = buffer(8);
    let mr = open_region(&b, &theirs, 1);
    let (into, back) = (buffer(8), buffer(8));
    a.ep.inject(to_b, b"message").expect("inject");
    a.ep.inject_write(to_b, b"written!", mr.remote(0))
        .expect("write");
    a.ep.read(to_b, &back, mr.remote(0), 3).expect("read");
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(theirs.to_vec(..), [0; 8], "it has overtaken the message");
    a.expect_nothing();
    b.ep.recv(&into, 1).expect("recv");
    b.expect(RECEIVED, 1);
    a.expect(READ, 3);
    assert_eq!(theirs.to_vec(..), b"written!");
    assert_eq!(back.to_vec(..), b"written!");
}

/// KFI_ORDER_WAS and RAS: a message for which the peer of a reliable datagram has no room is sent
/// again, and writes and reads do not wait for it.
fn only_connections_promise_writes_and_reads_after_messages() {
    let _host = Way::OneHost.pair();
    for order in [MsgOrder::WAS, MsgOrder::RAS] {
        let offers = |ep_type| {
            let infos = device().getinfo(&Hints::new().ep_type(ep_type));
            let infos = infos.expect("getinfo");
            assert!(!infos.is_empty());
            infos.iter().all(|info| info.tx.msg_order.contains(order))
        };
        assert!(offers(EpType::Msg));
        assert!(!offers(EpType::Rdm));
    }
}

/// Takes the completions that are there; counts each in `told`.
fn take(host: &Host, told: &mut [u32]) {
    let mut entries = [Entry::default(); 8];
    let count = host.cq.read(&mut entries).expect("read");
    for entry in &entries[..count] {
        told[entry.op_context as usize] += 1;
    }
}

/// fi_msg(3): "-FI_EAGAIN: Indicates that the underlying provider currently lacks sufficient
/// resources to initiate the requested operation. [...] the operation may be retried."
fn refused_messages_are_posted_again_in_order(way: Way) {
    const TOTAL: usize = 600;
    const LONG: usize = 9000;
    let rdm = way != Way::Connection;
    let few = Options {
        tx_size: 4,
        rx_size: 4,
        cq_entries: 8,
        buffered: if rdm { 64 } else { 0 },
        ..Options::default()
    };
    let (a, to_b, b) = way.pair_with(&few);
    let sent: Vec<Buffer> = (0..TOTAL)
        .map(|i| {
            let len = if i % 3 == 0 { LONG } else { 8 };
            holding(&pattern(len, i as u64))
        })
        .collect();
    let injected = |i: usize| i % 5 == 1 && sent[i].len() == 8;
    let ops: Vec<Op<'_>> = (0..TOTAL)
        .map(|i| {
            let op = Op::send(to_b, &sent[i]).context(i as u64);
            if injected(i) {
                op.flags(OpFlags::INJECT)
            } else {
                op
            }
        })
        .collect();
    let over = AtomicBool::new(false);
    let again = |error: &Error| error.is(Errno::EAGAIN);
    let (told, refusals) = std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let into: Vec<Buffer> = (0..4).map(|_| buffer(LONG)).collect();
            let (mut posted, mut done) = (0, 0);
            let mut arrived = [None; TOTAL];
            while done < TOTAL {
                // A buffer is used again when its message was checked.
                while posted < TOTAL && posted < done + 4 {
                    match b.ep.recv(&into[posted % 4], posted as u64) {
                        Ok(()) => posted += 1,
                        Err(error) if again(&error) => break,
                        Err(error) => panic!("{error}"),
                    }
                }
                let entry = b.completion();
                arrived[entry.op_context as usize] = Some(entry.len as usize);
                while done < TOTAL
                    && let Some(len) = arrived[done]
                {
                    assert!(
                        into[done % 4].to_vec(..len) == sent[done].to_vec(..),
                        "message {done} of {len} bytes"
                    );
                    done += 1;
                }
            }
            over.store(true, SeqCst);
        });
        let mut told = vec![0; TOTAL];
        let (mut next, mut refusals) = (0, 0);
        while next < TOTAL {
            let last = TOTAL.min(next + 7);
            match a.ep.post(&ops[next..last]) {
                Ok(posted) => {
                    assert!(matches!(posted.error, None | Some(Errno::EAGAIN)));
                    refusals += usize::from(posted.error.is_some());
                    next += posted.done;
                }
                Err(error) if again(&error) => {
                    refusals += 1;
                    assert!(!receiver.is_finished(), "the receiver has failed");
                    std::thread::yield_now();
                }
                Err(error) => panic!("{error}"),
            }
            take(&a, &mut told);
        }
        (told, refusals)
    });
    assert!(over.load(SeqCst) && refusals > 0, "{refusals} refusals");
    let mut told = told;
    let expected: Vec<u32> = (0..TOTAL).map(|i| u32::from(!injected(i))).collect();
    until("all sends have completed", || {
        take(&a, &mut told);
        told.iter().sum::<u32>() >= expected.iter().sum()
    });
    assert_eq!(told, expected);
    a.expect_nothing();
    b.expect_nothing();
}

/// fi_endpoint(3), FI_FENCE: "the requested operation, also known as the fenced operation, and any
/// operation posted after the fenced operation will be deferred until all previous operations
/// targeting the same peer endpoint have completed". Without the fence a message may overtake a
/// read: KFI_ORDER_SAR is not promised.
fn a_fence_waits_for_reads(way: Way) {
    const LEN: usize = 200_000;
    let (a, to_b, b) = way.pair();
    let (theirs, back, into) = (buffer(LEN), buffer(LEN), buffer(8));
    let mr = open_region(&b, &theirs, 1);
    for round in 0..30 {
        let bytes = pattern(LEN, round);
        theirs.write_at(0, &bytes);
        for context in [1, 2] {
            b.ep.recv(&into, context).expect("recv");
        }
        post_fenced(&a, to_b, &back, mr.remote(0));
        b.expect(RECEIVED, 1);
        // The message says that the read is complete; its entry may be seen a little later.
        assert!(back.to_vec(..) == bytes, "round {round}");
        a.expect(READ, 1);
        b.expect(RECEIVED, 2);
    }
    a.expect_nothing();
}

/// A read, a message with a fence, and another message.
fn post_fenced(a: &Host, to_b: FiAddr, back: &Buffer, from: Remote) {
    let ops = [
        Op::read(to_b, back, from).context(1),
        Op::inject(to_b, b"fenced").flags(OpFlags::FENCE),
        Op::inject(to_b, b"later"),
    ];
    assert!(a.ep.post(&ops).expect("post").all());
}

/// On one host a post with a fence is refused while a message waits at the peer. Each end of the
/// message ends that, and none of them before the bytes are there.
fn a_refused_fence_is_accepted_when_the_message_has_ended() {
    const LEN: usize = 32 << 20;
    let (a, to_b, b) = Way::OneHost.pair();
    let (from, into, theirs) = (buffer(LEN), buffer(LEN), buffer(8));
    let mr = open_region(&b, &theirs, 1);
    let write = Op::inject_write(to_b, b"x", mr.remote(0)).flags(OpFlags::FENCE);
    let fenced = || errno(a.ep.post_one(&write));
    // Its receive. The copy takes long, and another thread posts meanwhile.
    for round in 0..5 {
        let bytes = pattern(LEN, round);
        from.write_at(0, &bytes);
        a.ep.send(to_b, &from, 1).expect("send");
        assert_eq!(fenced(), Some(Errno::EAGAIN));
        std::thread::scope(|scope| {
            let receiver = scope.spawn(|| b.ep.recv(&into, 2).expect("recv"));
            loop {
                match fenced() {
                    None => break,
                    Some(Errno::EAGAIN) => std::thread::yield_now(),
                    other => panic!("{other:?}"),
                }
            }
            let end = LEN - 4096;
            assert!(into.to_vec(end..) == bytes[end..], "round {round}");
            receiver.join().expect("receiver");
        });
        a.expect(SENT, 1);
        b.expect(RECEIVED, 2);
    }
    // To cancel it.
    a.ep.send(to_b, &from, 3).expect("send");
    assert_eq!(fenced(), Some(Errno::EAGAIN));
    a.ep.cancel(3).expect("cancel");
    assert_eq!(fenced(), None);
    assert_eq!(a.failure().err, Errno::ECANCELED);
    // The close of the peer.
    a.ep.send(to_b, &from, 4).expect("send");
    assert_eq!(fenced(), Some(Errno::EAGAIN));
    drop(b);
    assert_eq!(a.failure().err, Errno::EHOSTUNREACH);
    assert_eq!(fenced(), Some(Errno::EHOSTUNREACH));
}
