// SPDX-License-Identifier: GPL-2.0
//! Failures injected while a call changes a counter and starts the deferred work that is due.
//! Each work that has started ends once: it completes, or fails for want of memory.

use super::{MOST, prepare, with_fault};
use crate::{
    connected::open_region,
    deferred::cntr,
    host::{Options, buffer, errno, pattern, until},
    ways::Way,
};
use kfi::{AtomicOp, Buffer, Caps, Datatype, Errno, Op, Work};

/// Contexts of the works.
const SEND: u64 = 11;
const WRITE: u64 = 12;
const ATOMIC: u64 = 13;

pub(super) fn starting_work() {
    starting(Way::OneHost);
}

pub(super) fn starting_work_between_hosts() {
    starting(Way::TwoHosts);
}

pub(super) fn starting_work_of_a_connection() {
    starting(Way::Connection);
}

/// An addition starts a send, a write and, except on a connection, an atomic. Each allocation that
/// the addition makes fails in turn. On one host it makes none: the memory was taken when the work
/// was queued. A fault can still occur there before the call, in a page fault of the program.
fn starting(way: Way) {
    const LEN: usize = 5000;
    let fail_nth = prepare();
    let options = Options {
        caps: Caps::MSG | Caps::RMA | Caps::ATOMIC,
        ..Options::default()
    };
    let (a, to_b, b) = way.pair_with(&options);
    let (go, done) = (cntr(&a.domain), cntr(&a.domain));
    let (into, theirs) = (buffer(LEN), buffer(LEN));
    let mr = open_region(&b, &theirs, 7);
    let word = Buffer::of(&[1u64]).expect("buffer");
    let (mut ended, mut failures, mut sum) = (0, 0, 0);
    // The first round is without faults, and makes the connection.
    for nth in 0..=MOST {
        let bytes = pattern(LEN, u64::from(nth) + 1);
        let from = Buffer::from_bytes(&bytes).expect("buffer");
        let at = go.value() + 1;
        let transfer = |op| Work::transfer(&go, at, &a.ep, op).completion(&done);
        let mut works = vec![
            transfer(Op::send(to_b, &from).context(SEND)),
            transfer(Op::write(to_b, from.slice(8..), mr.remote(8)).context(WRITE)),
        ];
        if way != Way::Connection {
            let (uint64, add) = (Datatype::Uint64, AtomicOp::Sum);
            let op = Op::atomic(to_b, &word, mr.remote(0), uint64, add);
            works.push(transfer(op.context(ATOMIC)));
        }
        b.ep.recv(&into, 1).expect("recv");
        assert!(a.domain.queue_work(&works).expect("queue").all());
        let (result, met) = match nth {
            0 => (errno(go.add(1)), true),
            nth => with_fault(&fail_nth, nth, || errno(go.add(1))),
        };
        if let Some(errno) = result {
            assert!(met, "{errno} without a fault");
            assert!(way != Way::OneHost, "fault {nth}: {errno}");
            assert!(
                errno == Errno::ENOMEM || errno == Errno::EFAULT,
                "fault {nth}: {errno}"
            );
            // The call has changed nothing.
            assert_eq!(go.value(), at - 1);
            assert_eq!(done.value() + done.err(), ended);
            go.add(1).expect("add");
        }
        ended += works.len() as u64;
        until("each work ends", || done.value() + done.err() >= ended);
        // A start takes no memory, but a transfer over the wire may need some when it is posted.
        let failed: Vec<u64> = (failures..done.err())
            .map(|_| {
                let entry = a.failure();
                println!("fault {nth}: {entry:?}");
                assert_eq!(entry.err, Errno::ENOMEM, "fault {nth}: {entry:?}");
                entry.op_context
            })
            .collect();
        failures = done.err();
        assert_eq!(done.value() + done.err(), ended, "fault {nth}");
        assert!(way != Way::OneHost || failed.is_empty(), "fault {nth}");
        if failed.contains(&SEND) {
            b.ep.cancel(1).expect("cancel");
            assert_eq!(b.failure().err, Errno::ECANCELED);
        } else {
            assert_eq!(b.completion().op_context, 1);
            assert!(into.to_vec(..) == bytes, "fault {nth}: the message");
        }
        if !failed.contains(&WRITE) {
            let written = theirs.to_vec(8..) == bytes[8..];
            assert!(written, "fault {nth}: what was written");
        }
        if way != Way::Connection {
            sum += u64::from(!failed.contains(&ATOMIC));
            assert_eq!(theirs.elements::<u64>()[0], sum, "fault {nth}");
        }
        a.expect_nothing();
        if !met {
            assert!(nth > 1 || way == Way::OneHost, "no fault occurred");
            println!("{} faults in turn", nth - 1);
            return;
        }
    }
    panic!("more than {MOST} faults");
}
