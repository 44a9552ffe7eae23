// SPDX-License-Identifier: GPL-2.0
//! Plain and tagged messages between two endpoints: order, sizes, flags, and waiting messages.

use crate::{
    harness::tests,
    host::{
        Host, Options, RECEIVED, SENT, TRECEIVED, TSENT, buffer, exchange, found, holding,
        is_refused, pair, pattern, until,
    },
    ways::Way,
};
use kfi::{Buffer, CompFlags, Errno, Op, OpFlags};
use std::time::Duration;

tests![
    sizes_from_nothing_to_16_mib: [
        OneHost => 300, TwoHosts => 600, Connection => 180, Datagrams,
    ],
    an_endpoint_sends_to_itself,
    a_tag_selects_its_receive,
    injected_bytes_can_be_reused_at_once: [OneHost, TwoHosts, Connection, Datagrams],
    a_closing_peer_fails_messages_that_wait_there,
    searches_find_messages: [OneHost, TwoHosts],
    multi_receive_is_released_once,
    a_buffer_without_a_slot_is_released_alone,
];

/// Those of datagrams end with the path MTU.
fn sizes_from_nothing_to_16_mib(way: Way) {
    const LENS: [usize; 20] = [
        0,
        1,
        3,
        4,
        8,
        255,
        256,
        257,
        1024,
        4095,
        4096,
        4097,
        8192,
        8193,
        10_000,
        65_536,
        1_000_003,
        1 << 20,
        1_048_577,
        16 << 20,
    ];
    let (a, to_b, b) = way.pair();
    let to_a = if way == Way::Connection {
        to_b
    } else {
        b.meet(&a)
    };
    let longest = if way == Way::Datagrams {
        4096
    } else {
        16 << 20
    };
    for len in LENS.into_iter().filter(|len| *len <= longest) {
        exchange(&a, to_b, &b, len);
        if len <= 65_536 {
            exchange(&b, to_a, &a, len);
        }
    }
}

fn an_endpoint_sends_to_itself() {
    let a = Host::new();
    let me = a.meet(&a);
    let into = buffer(8);
    a.ep.recv(&into, 1).expect("recv");
    a.ep.inject(me, b"hello me").expect("inject");
    a.expect(RECEIVED, 1);
    assert_eq!(into.to_vec(..), b"hello me");
}

fn a_tag_selects_its_receive() {
    let (a, to_b, b, _) = pair();
    let five = buffer(8);
    let any = buffer(8);
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

fn injected_bytes_can_be_reused_at_once(way: Way) {
    let (a, to_b, b) = way.pair();
    let mut bytes = vec![1u8; 256];
    let into = buffer(256);
    let receive = || b.ep.recv(&into, 3).expect("recv");
    // Datagrams do not wait for a receive.
    if way == Way::Datagrams {
        receive();
    }
    a.ep.inject(to_b, &bytes).expect("inject");
    bytes.fill(2);
    if way != Way::Datagrams {
        receive();
    }
    assert_eq!(b.expect(RECEIVED, 3).len, 256);
    assert_eq!(into.to_vec(..), vec![1u8; 256]);
    // Injected messages make no completion, and cannot be longer.
    a.expect_nothing();
    is_refused(a.ep.inject(to_b, &[0; 257]), Errno::EMSGSIZE);
}

fn a_closing_peer_fails_messages_that_wait_there() {
    let (a, to_b, b, _) = pair();
    let large = buffer(100_000);
    a.ep.send(to_b, &large, 1).expect("send");
    drop(b);
    a.fails(1, Errno::EHOSTUNREACH);
    is_refused(a.ep.send(to_b, &large, 2), Errno::EHOSTUNREACH);
}

fn searches_find_messages(way: Way) {
    for len in [5, 100_000] {
        let (a, to_b, b) = way.pair();
        let search = |tag, flags| {
            let op = Op::tpeek(tag, 0).context(tag).flags(flags);
            b.ep.post_one(&op).expect("peek");
        };
        let there = |tag| {
            search(tag, OpFlags::PEEK);
            let entry = found(&b.cq, tag);
            if let Some(entry) = &entry {
                let found = (entry.flags, entry.tag, entry.len);
                assert_eq!(found, (TRECEIVED, tag, len as u64));
            }
            entry.is_some()
        };
        assert!(!there(1), "found where there is none");
        let sent: Vec<Buffer> = (1..=3).map(|tag| holding(&pattern(len, tag))).collect();
        for (from, tag) in sent.iter().zip(1..) {
            a.ep.tsend(to_b, from, tag, tag).expect("tsend");
        }
        // When the last one has arrived, all have.
        until("the messages have come", || there(3));
        assert!(there(1));
        search(2, OpFlags::PEEK | OpFlags::DISCARD);
        assert_eq!(b.expect(TRECEIVED, 2).len as usize, len);
        a.expect(TSENT, if len == 5 { 1 } else { 2 });
        assert!(!there(2), "discarded and found");
        search(3, OpFlags::PEEK | OpFlags::CLAIM);
        b.expect(TRECEIVED, 3);
        // Only the endpoint that claimed a message finds it.
        assert!(!there(3), "claimed and found");
        let into = buffer(len);
        let claim = Op::trecv(&into, 9, 0).context(3).flags(OpFlags::CLAIM);
        b.ep.post_one(&claim).expect("claim");
        b.expect(TRECEIVED, 3);
        assert!(into.to_vec(..) == pattern(len, 3));
        is_refused(b.ep.post_one(&claim), Errno::ENOMSG);
        b.ep.trecv(&into, 0, u64::MAX, 4).expect("trecv");
        b.expect(TRECEIVED, 4);
        assert!(into.to_vec(..) == pattern(len, 1));
        a.completion();
        a.completion();
        a.expect_nothing();
    }
}

/// fi_cq(3): the release may come with a completion of its own, which has no other flag. Here a
/// buffer takes a message that waits and finds no slot afterwards, because another receive has
/// taken the last one meanwhile; that takes some rounds.
fn a_buffer_without_a_slot_is_released_alone() {
    const LEN: usize = 2 << 20;
    let a = Host::new();
    let b = Host::with(&Options::sized(0, 1, 256));
    let to_b = a.meet(&b);
    let other = Host::new();
    let stranger = b.meet(&other);
    let ours = buffer(LEN);
    let (into, small) = (buffer(2 * LEN), buffer(8));
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
    let into = buffer(100);
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
