// SPDX-License-Identifier: GPL-2.0
//! fi_cancel (fi_endpoint(3)): "Canceling an operation causes the fabric provider to search for the
//! operation and, if it is still pending, complete it as having been canceled. An error queue entry
//! will be available in the associated error queue with error code FI_ECANCELED. On the other hand,
//! if the operation completed before the call to fi_cancel, then the completion status of that
//! operation will be available in the associated completion queue. No specific entry related to
//! fi_cancel itself will be posted."

use crate::{
    harness::tests,
    host::{Host, Options, RECEIVED, SENT, SOON, buffer, errno, is_refused, until},
    hosts::apart,
    ways::Way,
};
use kfi::{CompFlags, Errno, Error, Op, OpFlags};
use std::time::Duration;

tests![
    one_operation_of_several_with_a_context_is_cancelled: [
        OneHost, TwoHosts, Connection, Datagrams,
    ],
    a_completed_operation_keeps_its_status: [OneHost, TwoHosts, Connection, Datagrams],
    a_cancel_beside_an_arrival_tells_what_happened: [
        OneHost => 120, TwoHosts => 120, Connection => 120, Datagrams => 120,
    ],
    a_send_that_waits_is_cancelled_or_arrives: [OneHost => 120, TwoHosts => 120, Connection => 120],
    a_send_that_waits_is_cancelled_or_arrives_over_a_lossy_network => 300,
    a_receive_is_cancelled_before_a_send_of_its_context: [OneHost, TwoHosts],
    a_cancelled_multi_receive_is_released: [OneHost, TwoHosts, Datagrams],
];

#[track_caller]
fn is_cancelled(host: &Host, context: u64, flags: CompFlags) {
    let entry = host.failure();
    let found = (entry.err, entry.op_context, entry.flags, entry.len);
    assert_eq!(found, (Errno::ECANCELED, context, flags, 0));
}

/// "If multiple outstanding operations match the given context, only one will be canceled", here
/// the oldest. The others get the messages, in order.
fn one_operation_of_several_with_a_context_is_cancelled(way: Way) {
    let (a, to_b, b) = way.pair();
    let into = [(); 4].map(|()| buffer(8));
    for buffer in &into {
        b.ep.recv(buffer, 7).expect("recv");
    }
    b.ep.cancel(7).expect("cancel");
    is_cancelled(&b, 7, RECEIVED);
    b.expect_nothing();
    for bytes in [b"first...", b"second.."] {
        a.ep.inject(to_b, bytes).expect("inject");
        b.expect(RECEIVED, 7);
    }
    b.ep.cancel(7).expect("cancel");
    is_cancelled(&b, 7, RECEIVED);
    is_refused(b.ep.cancel(7), Errno::ENOENT);
    b.expect_nothing();
    let expected: [&[u8]; 4] = [&[0; 8], b"first...", b"second..", &[0; 8]];
    for (buffer, bytes) in into.iter().zip(expected) {
        assert_eq!(buffer.to_vec(..), bytes);
    }
}

/// An operation whose entry was not read yet is complete; cancelling it changes nothing.
fn a_completed_operation_keeps_its_status(way: Way) {
    let (a, to_b, b) = way.pair();
    let (from, into) = (buffer(8), buffer(4));
    b.ep.recv(&into, 1).expect("recv");
    a.ep.send(to_b, from.slice(..4), 2).expect("send");
    assert!(b.cq.wait(SOON).expect("wait") && a.cq.wait(SOON).expect("wait"));
    for _ in 0..2 {
        for (host, context) in [(&b, 1), (&a, 2)] {
            is_refused(host.ep.cancel(context), Errno::ENOENT);
        }
    }
    assert_eq!(b.expect(RECEIVED, 1).len, 4);
    a.expect(SENT, 2);
    // One that has failed is complete, too.
    if way != Way::Connection {
        b.ep.recv(&into, 3).expect("recv");
        a.ep.inject(to_b, b"too long").expect("inject");
        until("a failure", || b.cq.wait(Duration::ZERO).is_err());
        is_refused(b.ep.cancel(3), Errno::ENOENT);
        let entry = b.failure();
        let found = (entry.err, entry.op_context, entry.len, entry.olen);
        assert_eq!(found, (Errno::KFI_ETRUNC, 3, 4, 4));
    }
    for host in [&a, &b] {
        host.expect_nothing();
        assert!(host.cq.readerr().expect("readerr").is_none());
    }
}

/// The result of a cancel agrees with the completion of the operation: if the cancel succeeded, the
/// completion is an error entry. No message is lost with a receive that was cancelled.
fn a_cancel_beside_an_arrival_tells_what_happened(way: Way) {
    const ROUNDS: u64 = 300;
    let (a, to_b, b) = way.pair();
    let into = buffer(8);
    let (mut received, mut cancelled) = (0, 0);
    for round in 0..ROUNDS {
        b.ep.recv(&into, round).expect("recv");
        let end = std::thread::scope(|scope| {
            let sender = scope.spawn(|| a.ep.inject(to_b, &round.to_ne_bytes()).expect("inject"));
            for _ in 0..round % 40 * 50 {
                std::hint::spin_loop();
            }
            if round % 3 == 0 {
                std::thread::yield_now();
            }
            if round % 10 == 9 {
                std::thread::sleep(Duration::from_micros(20 * round));
            }
            let end = b.ep.cancel(round);
            sender.join().expect("a thread");
            end
        });
        match errno(end) {
            None => {
                is_cancelled(&b, round, RECEIVED);
                cancelled += 1;
                // Datagrams without a receive are lost; others wait for the next receive.
                if way == Way::Datagrams {
                    continue;
                }
                b.ep.recv(&into, round).expect("recv");
            }
            Some(errno) => assert_eq!(errno, Errno::ENOENT),
        }
        assert_eq!(b.expect(RECEIVED, round).len, 8);
        let mut bytes = [0; 8];
        into.read_at(0, &mut bytes);
        let number = u64::from_ne_bytes(bytes);
        // The datagram of an earlier receive, which was cancelled, may be the one that comes.
        let late = way == Way::Datagrams && number < round;
        assert!(number == round || late, "round {round}: message {number}");
        received += 1;
    }
    if way != Way::Datagrams {
        assert_eq!(received, ROUNDS);
    }
    assert!(cancelled > 0, "no receive was cancelled in time");
    b.expect_nothing();
    assert!(b.cq.readerr().expect("readerr").is_none());
}

/// For a message that waits for its receive: cancelled, its bytes arrive nowhere; else it arrives
/// and succeeds. A connection may have sent it already.
fn a_send_that_waits_is_cancelled_or_arrives(way: Way) {
    cancelled_or_arrives(way, 60);
}

/// The same when packets are lost: of the message, of the request to cancel it, and of the answers.
fn a_send_that_waits_is_cancelled_or_arrives_over_a_lossy_network() {
    let hosts = apart();
    hosts.network("delay 1ms loss 5%");
    cancelled_or_arrives(Way::TwoHosts, 60);
    hosts.network("loss 0%");
}

fn cancelled_or_arrives(way: Way, rounds: u64) {
    const LEN: usize = 20_000;
    let (a, to_b, b) = way.pair_with(&Options::sized(4, 0, 256));
    let (from, into) = (buffer(LEN), buffer(LEN));
    for round in 0..rounds {
        from.fill(round as u8);
        a.ep.send(to_b, &from, round)
            .expect("the room of the sends before is free");
        std::thread::sleep(Duration::from_micros(100 * (round % 20)));
        let receive_first = round % 4 == 3;
        if receive_first {
            b.ep.recv(&into, round).expect("recv");
        }
        let cancelled = match errno(a.ep.cancel(round)) {
            // Between two hosts the peer may have taken the message meanwhile.
            None => match a.cq.next(SOON) {
                Err(Error::Completion(entry)) => {
                    let found = (entry.err, entry.op_context, entry.flags);
                    assert_eq!(found, (Errno::ECANCELED, round, SENT));
                    true
                }
                Ok(Some(entry)) if way == Way::TwoHosts => {
                    assert_eq!((entry.flags, entry.op_context), (SENT, round));
                    false
                }
                other => panic!("round {round}: cancelled, and {other:?}"),
            },
            Some(errno) => {
                assert_eq!(errno, Errno::ENOENT);
                if !receive_first {
                    b.ep.recv(&into, round).expect("recv");
                }
                a.expect(SENT, round);
                assert_eq!(b.expect(RECEIVED, round).len as usize, LEN);
                assert!(into.to_vec(..) == from.to_vec(..));
                continue;
            }
        };
        if cancelled {
            // The next message is the first that the peer gets.
            a.ep.inject(to_b, b"next").expect("inject");
        }
        if !receive_first {
            b.ep.recv(&into, round).expect("recv");
        }
        let len = b.expect(RECEIVED, round).len;
        assert_eq!(len, if cancelled { 4 } else { LEN as u64 }, "round {round}");
    }
    a.expect_nothing();
    b.expect_nothing();
}

/// The choice among operations of one context is the provider's: the oldest receive, else the
/// oldest transmit that waits. The peer gets the messages that are left.
fn a_receive_is_cancelled_before_a_send_of_its_context(way: Way) {
    const LEN: usize = 20_000;
    let (a, to_b, b) = way.pair();
    let (first, second) = (buffer(LEN), buffer(LEN - 1));
    for from in [&first, &second] {
        a.ep.send(to_b, from, 7).expect("send");
    }
    let into = buffer(LEN);
    a.ep.recv(&into, 7).expect("recv");
    a.ep.cancel(7).expect("cancel");
    is_cancelled(&a, 7, RECEIVED);
    a.ep.cancel(7).expect("cancel");
    is_cancelled(&a, 7, SENT);
    b.ep.recv(&into, 1).expect("recv");
    assert_eq!(b.expect(RECEIVED, 1).len as usize, LEN - 1);
    a.expect(SENT, 7);
    is_refused(a.ep.cancel(7), Errno::ENOENT);
    a.expect_nothing();
}

/// fi_cq(3), FI_MULTI_RECV: "the original receive buffer referenced by the completion has been
/// consumed and was released by the provider": the entry of a cancelled buffer has the flag. The
/// messages before stay; those after it go to the next buffer.
fn a_cancelled_multi_receive_is_released(way: Way) {
    let (a, to_b, b) = way.pair();
    let (into, next) = (buffer(1000), buffer(1000));
    for (context, buffer) in [(5, &into), (6, &next)] {
        let receive = Op::recv(buffer).flags(OpFlags::MULTI_RECV).context(context);
        b.ep.post_one(&receive).expect("recv");
    }
    for i in 0..2 {
        a.ep.inject(to_b, &[1 + i; 10]).expect("inject");
        let entry = b.expect(RECEIVED, 5);
        assert_eq!(
            (entry.buf, entry.len),
            (into.addr() + 10 * u64::from(i), 10)
        );
    }
    b.ep.cancel(5).expect("cancel");
    is_cancelled(&b, 5, RECEIVED | CompFlags::MULTI_RECV);
    is_refused(b.ep.cancel(5), Errno::ENOENT);
    a.ep.inject(to_b, &[3; 10]).expect("inject");
    let entry = b.expect(RECEIVED, 6);
    assert_eq!((entry.buf, entry.len), (next.addr(), 10));
    assert_eq!(into.to_vec(..30), [[1; 10], [2; 10], [0; 10]].concat());
    b.expect_nothing();
}
