// SPDX-License-Identifier: GPL-2.0
//! Plain and tagged messages between two endpoints: order, sizes, flags, and waiting messages.

use crate::{
    harness::tests,
    host::{Host, Options, pair, pair_with, pattern},
};
use kfi::{Buffer, CompFlags, Errno, Error, Op, OpFlags};
use std::time::Duration;

const SENT: CompFlags = CompFlags::MSG.union(CompFlags::SEND);
const RECEIVED: CompFlags = CompFlags::MSG.union(CompFlags::RECV);
const TSENT: CompFlags = CompFlags::TAGGED.union(CompFlags::SEND);
const TRECEIVED: CompFlags = CompFlags::TAGGED.union(CompFlags::RECV);

tests![
    a_posted_receive_gets_the_message,
    a_message_waits_for_its_receive,
    sizes_from_nothing_to_16_mib => 300,
    an_endpoint_sends_to_itself,
    a_tag_selects_its_receive,
    order_is_kept,
    injected_bytes_can_be_reused_at_once,
    remote_cq_data_arrive_with_a_message,
    truncation_reports_the_lost_length,
    a_large_message_waits_with_its_sender,
    delivery_complete_waits_for_the_receive,
    cancelled_receives_complete_with_an_error,
    a_waiting_send_can_be_cancelled,
    no_room_is_eagain_and_loses_nothing,
    a_closing_peer_fails_messages_that_wait_there,
    a_peek_can_claim_or_discard_a_message,
    multi_receive_is_released_once,
    a_buffer_without_a_slot_is_released_alone,
];

/// Sends `bytes` from `a` to `b`, receive posted first.
fn exchange(len: usize, seed: u64) {
    let (a, to_b, b, _) = pair();
    let bytes = pattern(len, seed);
    let (from, into) = (
        Buffer::from_bytes(&bytes).expect("buffer"),
        Buffer::new(len.max(1)).expect("buffer"),
    );
    b.ep.recv(&into, 1).expect("recv");
    a.ep.send(to_b, &from, 2).expect("send");
    a.expect(SENT, 2);
    let entry = b.expect(RECEIVED, 1);
    assert_eq!(entry.len, len as u64);
    assert!(into.to_vec(..len) == bytes, "bytes differ, length {len}");
}

fn a_posted_receive_gets_the_message() {
    exchange(8, 1);
}

fn a_message_waits_for_its_receive() {
    let (a, to_b, b, to_a) = pair();
    let bytes = pattern(100, 3);
    a.ep.send(to_b, &Buffer::from_bytes(&bytes).expect("buffer"), 7)
        .expect("send");
    a.expect(SENT, 7);
    b.expect_nothing();
    let into = Buffer::new(200).expect("buffer");
    b.ep.recv(&into, 8).expect("recv");
    let entry = b.expect(RECEIVED, 8);
    assert_eq!(entry.len, 100);
    assert_eq!(entry.src_addr, to_a);
    assert_eq!(into.to_vec(..100), bytes);
}

fn sizes_from_nothing_to_16_mib() {
    for (seed, len) in [
        0,
        1,
        8,
        255,
        256,
        257,
        4095,
        4096,
        4097,
        8192,
        8193,
        65536,
        1_000_003,
        16 << 20,
    ]
    .into_iter()
    .enumerate()
    {
        exchange(len, seed as u64);
    }
}

fn an_endpoint_sends_to_itself() {
    let a = Host::new();
    let me = a.meet(&a);
    let into = Buffer::new(8).expect("buffer");
    a.ep.recv(&into, 1).expect("recv");
    a.ep.inject(me, b"hello me").expect("inject");
    a.expect(RECEIVED, 1);
    assert_eq!(into.to_vec(..), b"hello me");
}

fn a_tag_selects_its_receive() {
    let (a, to_b, b, _) = pair();
    let five = Buffer::new(8).expect("buffer");
    let any = Buffer::new(8).expect("buffer");
    b.ep.trecv(&five, 5, 0, 1).expect("trecv");
    b.ep.trecv(&any, 0, u64::MAX, 2).expect("trecv");
    a.ep.tinject(to_b, b"seven...", 7).expect("tinject");
    let entry = b.expect(TRECEIVED, 2);
    assert_eq!(entry.tag, 7);
    a.ep.tinject(to_b, b"five....", 5).expect("tinject");
    let entry = b.expect(TRECEIVED, 1);
    assert_eq!(entry.tag, 5);
    assert_eq!(five.to_vec(..), b"five....");
    // Plain receives never get tagged messages, nor the reverse.
    b.ep.recv(&five, 3).expect("recv");
    a.ep.tinject(to_b, b"tagged", 5).expect("tinject");
    b.expect_nothing();
}

fn order_is_kept() {
    let (a, to_b, b, _) = pair();
    let into = Buffer::new(8 * 64).expect("buffer");
    for round in 0..4u64 {
        let first_posted = round % 2 == 0;
        let post = || {
            for i in 0..64usize {
                b.ep.recv(into.slice(8 * i..8 * i + 8), i as u64)
                    .expect("recv");
            }
        };
        if first_posted {
            post();
        }
        for i in 0..64u64 {
            a.ep.inject(to_b, &(round * 100 + i).to_le_bytes())
                .expect("inject");
        }
        if !first_posted {
            post();
        }
        for i in 0..64u64 {
            b.expect(RECEIVED, i);
            let mut bytes = [0; 8];
            into.read_at(8 * i as usize, &mut bytes);
            assert_eq!(u64::from_le_bytes(bytes), round * 100 + i);
        }
    }
}

fn injected_bytes_can_be_reused_at_once() {
    let (a, to_b, b, _) = pair();
    let mut bytes = vec![1u8; 256];
    a.ep.inject(to_b, &bytes).expect("inject");
    bytes.fill(2);
    let into = Buffer::new(256).expect("buffer");
    b.ep.recv(&into, 0).expect("recv");
    b.expect(RECEIVED, 0);
    assert_eq!(into.to_vec(..), vec![1u8; 256]);
    // Injected messages make no completion, and cannot be longer.
    a.expect_nothing();
    let error =
        a.ep.inject(to_b, &[0; 257])
            .expect_err("257 bytes injected");
    assert_eq!(error.errno(), Some(Errno::EMSGSIZE));
}

fn remote_cq_data_arrive_with_a_message() {
    let (a, to_b, b, _) = pair();
    let (from, into) = (
        Buffer::from_bytes(b"x").expect("buffer"),
        Buffer::new(1).expect("buffer"),
    );
    b.ep.recv(&into, 1).expect("recv");
    a.ep.senddata(to_b, &from, 0xfeed_f00d_1234_5678, 2)
        .expect("senddata");
    a.expect(SENT, 2);
    let entry = b.expect(RECEIVED | CompFlags::REMOTE_CQ_DATA, 1);
    assert_eq!(entry.data, 0xfeed_f00d_1234_5678);
}

fn truncation_reports_the_lost_length() {
    let (a, to_b, b, to_a) = pair();
    let into = Buffer::new(10).expect("buffer");
    b.ep.trecv(&into, 1, 0, 9).expect("trecv");
    a.ep.tinject(to_b, &[7; 30], 1).expect("tinject");
    let error = b.cq.next(crate::host::SOON).expect_err("truncated");
    let Error::Completion(entry) = error else {
        panic!("{error:?}");
    };
    assert_eq!(entry.op_context, 9);
    assert_eq!((entry.len, entry.olen), (10, 20));
    assert_eq!(entry.err, Errno::KFI_ETRUNC);
    assert_eq!(entry.src_addr, to_a);
    assert_eq!(into.to_vec(..), vec![7; 10]);
}

fn a_large_message_waits_with_its_sender() {
    let (a, to_b, b, _) = pair();
    let bytes = pattern(100_000, 5);
    a.ep.tsend(to_b, &Buffer::from_bytes(&bytes).expect("buffer"), 4, 1)
        .expect("tsend");
    a.expect_nothing();
    let into = Buffer::new(100_000).expect("buffer");
    b.ep.trecv(&into, 4, 0, 2).expect("trecv");
    a.expect(TSENT, 1);
    b.expect(TRECEIVED, 2);
    assert!(into.to_vec(..) == bytes);
}

fn delivery_complete_waits_for_the_receive() {
    let (a, to_b, b, _) = pair();
    let from = Buffer::from_bytes(b"12345678").expect("buffer");
    let op = Op::send(to_b, &from)
        .context(3)
        .flags(OpFlags::DELIVERY_COMPLETE);
    a.ep.post_one(&op).expect("post");
    a.expect_nothing();
    let into = Buffer::new(8).expect("buffer");
    b.ep.recv(&into, 4).expect("recv");
    a.expect(SENT, 3);
    b.expect(RECEIVED, 4);
}

fn cancelled_receives_complete_with_an_error() {
    let b = Host::new();
    let into = Buffer::new(8).expect("buffer");
    b.ep.recv(&into, 1).expect("recv");
    b.ep.trecv(&into, 0, 0, 2).expect("trecv");
    for context in [2, 1] {
        b.ep.cancel(context).expect("cancel");
        let error = b.cq.next(crate::host::SOON).expect_err("cancelled");
        let Error::Completion(entry) = error else {
            panic!("{error:?}");
        };
        assert_eq!((entry.err, entry.op_context), (Errno::ECANCELED, context));
    }
    let error = b.ep.cancel(1).expect_err("cancelled twice");
    assert_eq!(error.errno(), Some(Errno::ENOENT));
}

fn a_waiting_send_can_be_cancelled() {
    let (a, to_b, b, _) = pair();
    let large = Buffer::new(100_000).expect("buffer");
    a.ep.send(to_b, &large, 11).expect("send");
    a.ep.cancel(11).expect("cancel");
    let Err(Error::Completion(entry)) = a.cq.next(crate::host::SOON) else {
        panic!("no error entry");
    };
    assert_eq!((entry.err, entry.op_context), (Errno::ECANCELED, 11));
    // The peer never sees it; the next message is the first.
    a.ep.inject(to_b, b"next").expect("inject");
    let into = Buffer::new(8).expect("buffer");
    b.ep.recv(&into, 1).expect("recv");
    assert_eq!(b.expect(RECEIVED, 1).len, 4);
}

fn no_room_is_eagain_and_loses_nothing() {
    let options = Options {
        rx_size: 4,
        tx_size: 2,
        cq_entries: 64,
        ..Options::default()
    };
    let (a, to_b, b, _) = pair_with(&options);
    let into = Buffer::new(8).expect("buffer");
    for i in 0..4 {
        b.ep.recv(&into, i).expect("recv");
    }
    let error = b.ep.recv(&into, 4).expect_err("fifth of four receives");
    assert_eq!(error.errno(), Some(Errno::EAGAIN));
    let large = Buffer::new(100_000).expect("buffer");
    for i in 0..2 {
        a.ep.tsend(to_b, &large, 0, i).expect("tsend");
    }
    let error =
        a.ep.tsend(to_b, &large, 0, 2)
            .expect_err("third of two sends");
    assert_eq!(error.errno(), Some(Errno::EAGAIN));
    // A CQ without room refuses operations, and accepts them again when it was read.
    let options = Options {
        cq_entries: 2,
        ..Options::default()
    };
    let (a, to_b, b, _) = pair_with(&options);
    let small = Buffer::new(8).expect("buffer");
    for i in 0..2 {
        a.ep.send(to_b, &small, i).expect("send");
    }
    let error = a.ep.send(to_b, &small, 2).expect_err("the CQ is full");
    assert_eq!(error.errno(), Some(Errno::EAGAIN));
    a.expect(SENT, 0);
    a.ep.send(to_b, &small, 2).expect("send");
    a.expect(SENT, 1);
    a.expect(SENT, 2);
    for i in 0..3 {
        b.ep.recv(&into, i).expect("recv");
        b.expect(RECEIVED, i);
    }
}

fn a_closing_peer_fails_messages_that_wait_there() {
    let (a, to_b, b, _) = pair();
    let large = Buffer::new(100_000).expect("buffer");
    a.ep.send(to_b, &large, 1).expect("send");
    drop(b);
    let Err(Error::Completion(entry)) = a.cq.next(crate::host::SOON) else {
        panic!("no error entry");
    };
    assert_eq!((entry.err, entry.op_context), (Errno::EHOSTUNREACH, 1));
    let error = a.ep.send(to_b, &large, 2).expect_err("nobody there");
    assert_eq!(error.errno(), Some(Errno::EHOSTUNREACH));
}

fn a_peek_can_claim_or_discard_a_message() {
    let (a, to_b, b, _) = pair();
    let search = |tag, flags| {
        let op = Op::tpeek(tag, 0).context(tag).flags(flags);
        b.ep.post_one(&op).expect("peek");
    };
    search(1, OpFlags::PEEK);
    let Err(Error::Completion(entry)) = b.cq.next(crate::host::SOON) else {
        panic!("a message was found where there is none");
    };
    assert_eq!((entry.err, entry.op_context), (Errno::ENOMSG, 1));
    for tag in 1..=3 {
        a.ep.tinject(to_b, &[tag as u8; 5], tag).expect("tinject");
    }
    search(1, OpFlags::PEEK);
    let entry = b.expect(TRECEIVED, 1);
    assert_eq!((entry.len, entry.tag), (5, 1));
    search(2, OpFlags::PEEK | OpFlags::DISCARD);
    b.expect(TRECEIVED, 2);
    search(2, OpFlags::PEEK);
    assert!(b.cq.next(crate::host::SOON).is_err(), "discarded and found");
    search(3, OpFlags::PEEK | OpFlags::CLAIM);
    b.expect(TRECEIVED, 3);
    // Only the endpoint that claimed a message finds it.
    search(3, OpFlags::PEEK);
    assert!(b.cq.next(crate::host::SOON).is_err(), "claimed and found");
    let into = Buffer::new(5).expect("buffer");
    let claim = Op::trecv(&into, 3, 0).context(3).flags(OpFlags::CLAIM);
    b.ep.post_one(&claim).expect("claim");
    b.expect(TRECEIVED, 3);
    assert_eq!(into.to_vec(..), [3; 5]);
    let error = b.ep.post_one(&claim).expect_err("claimed twice");
    assert_eq!(error.errno(), Some(Errno::ENOMSG));
}

/// fi_cq(3): the release may come with a completion of its own, which has no other flag. Here a
/// buffer takes a message that waits and finds no slot afterwards, because another receive has
/// taken the last one meanwhile; that takes some rounds.
fn a_buffer_without_a_slot_is_released_alone() {
    const LEN: usize = 2 << 20;
    let a = Host::new();
    let b = Host::with(&Options {
        rx_size: 1,
        ..Options::default()
    });
    let to_b = a.meet(&b);
    let other = Host::new();
    let stranger = b.meet(&other);
    let ours = Buffer::new(LEN).expect("buffer");
    let (into, small) = (
        Buffer::new(2 * LEN).expect("buffer"),
        Buffer::new(8).expect("buffer"),
    );
    for round in 0..2000u64 {
        // It waits with its sender, and is copied when the buffer takes it.
        a.ep.send(to_b, &ours, 1).expect("send");
        let posted = std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                std::thread::sleep(Duration::from_micros(round * 7 % 900));
                // No message comes from that peer.
                let op = Op::recv(&small).from(stranger).context(2);
                b.ep.post_one(&op).is_ok()
            });
            let multi = b.ep.post_one(&Op::multi_recv(&into).context(5)).is_ok();
            (multi, other.join().expect("a thread"))
        });
        let released = posted == (true, true);
        match posted {
            (true, _) => {
                let entry = b.expect(RECEIVED, 5);
                assert_eq!((entry.len, entry.buf), (LEN as u64, into.addr()));
            }
            // The other one was first: the message is for a receive of its own.
            (false, _) => {
                b.ep.cancel(2).expect("cancel");
                assert_eq!(b.failure().err, Errno::ECANCELED);
                b.ep.recv(&into, 6).expect("recv");
                b.expect(RECEIVED, 6);
            }
        }
        a.expect(SENT, 1);
        if released {
            let entry = b.completion();
            assert_eq!((entry.flags, entry.op_context), (CompFlags::MULTI_RECV, 5));
            assert_eq!((entry.len, entry.buf, entry.data, entry.tag), (0, 0, 0, 0));
            b.expect_nothing();
            return;
        }
        if posted.0 {
            b.ep.cancel(5).expect("cancel");
            assert_eq!(b.failure().err, Errno::ECANCELED);
        }
    }
    panic!("no buffer was without a slot");
}

fn multi_receive_is_released_once() {
    let (a, to_b, b, _) = pair();
    let into = Buffer::new(100).expect("buffer");
    b.ep.set_min_multi_recv(20).expect("min_multi_recv");
    // One message waits, the others come later.
    a.ep.inject(to_b, &[1; 30]).expect("inject");
    b.ep.post_one(&Op::multi_recv(&into).context(5))
        .expect("multi");
    a.ep.inject(to_b, &[2; 30]).expect("inject");
    a.ep.inject(to_b, &[3; 30]).expect("inject");
    for i in 0..3u64 {
        let last = i == 2;
        let flags = if last {
            RECEIVED | CompFlags::MULTI_RECV
        } else {
            RECEIVED
        };
        let entry = b.expect(flags, 5);
        assert_eq!(entry.len, 30);
        assert_eq!(entry.buf, into.addr() + 30 * i);
    }
    assert_eq!(into.to_vec(30..60), vec![2; 30]);
    // Released: the next message waits.
    a.ep.inject(to_b, &[4; 30]).expect("inject");
    b.expect_nothing();
}
