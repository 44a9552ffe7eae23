// SPDX-License-Identifier: GPL-2.0
//! The moment at which an operation is counted: when it is complete, so neither before its bytes
//! are in place, nor after its completion can be read.
//!
//! kfi_cntr(3): "Counters record the number of requested operations that have completed."

use crate::{
    counter_errors::{Values, bare_pair, counts, values},
    counting::Counted,
    harness::tests,
    host::{SOON, buffer, counter_of_set, pattern, until},
    threads::{Sleeper, cloned},
    ways::Way,
    without_cq::{Bare, READ, RECV, REMOTE_WRITE, SEND},
};
use kfi::{Buffer, Caps, Cntr, CntrBind, Deadline, Entry, EpType, Errno, Op, OpFlags};
use std::time::{Duration, Instant};

tests![
    bytes_are_in_place_when_an_operation_is_counted: [OneHost, TwoHosts, Connection],
    a_send_counts_when_it_is_complete: [OneHost, TwoHosts],
    multi_receives_without_a_cq_count_each_message,
    a_failure_ends_a_wait_on_a_member_of_a_wait_set,
    a_completion_that_was_read_is_counted,
];

/// Runs `run` while another thread spins until the counter has this value, and checks then, at
/// once, that `into` has these bytes.
fn has_bytes_when_counted(
    cntr: &Cntr,
    value: u64,
    into: &Buffer,
    bytes: &[u8],
    run: impl FnOnce(),
) {
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let begin = Instant::now();
            while cntr.value() < value {
                assert!(begin.elapsed() < SOON, "not counted");
                std::hint::spin_loop();
            }
            into.to_vec(..) == bytes
        });
        run();
        assert!(
            watch.join().expect("a thread"),
            "counted, without its bytes"
        );
    });
}

fn bytes_are_in_place_when_an_operation_is_counted(way: Way) {
    const LEN: usize = 50_000;
    let (a, to_b, b) = bare_pair(way);
    let (into, theirs, back) = (buffer(LEN), buffer(LEN), buffer(LEN));
    let mr = b.region(&theirs);
    for round in 1..=40 {
        let bytes = pattern(LEN, round);
        let ours = Buffer::from_bytes(&bytes).expect("buffer");
        b.ep.recv(&into, 1).expect("recv");
        has_bytes_when_counted(&b.counters[RECV], round, &into, &bytes, || {
            a.ep.send(to_b, &ours, 2).expect("send");
        });
        has_bytes_when_counted(&b.counters[REMOTE_WRITE], round, &theirs, &bytes, || {
            a.ep.write(to_b, &ours, mr.remote(0), 3).expect("write");
        });
        has_bytes_when_counted(&a.counters[READ], round, &back, &bytes, || {
            a.ep.read(to_b, &back, mr.remote(0), 4).expect("read");
        });
        until("the send is counted", || a.counters[SEND].value() == round);
    }
}

/// A send that waits for its receive is not complete, nor is one with FI_DELIVERY_COMPLETE before
/// its message was received.
fn a_send_counts_when_it_is_complete(way: Way) {
    let (a, to_b, b) = bare_pair(way);
    let (small, large) = (buffer(8), buffer(1 << 20));
    let delivered = Op::send(to_b, &small).flags(OpFlags::DELIVERY_COMPLETE);
    a.ep.post_one(&delivered).expect("send");
    a.ep.tsend(to_b, &large, 9, 1).expect("tsend");
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(values(&a.counters), Values::default());
    let mut at_a = Values::default();
    for (kind, value) in [("large", 1), ("delivered", 2)] {
        match kind {
            "large" => b.ep.trecv(&large, 9, 0, 2).expect("trecv"),
            _ => b.ep.recv(&small, 3).expect("recv"),
        }
        at_a[SEND].0 = value;
        counts(&a, &at_a);
    }
}

/// Each message is an operation of the peer's, and was received; the buffer's release is none.
fn multi_receives_without_a_cq_count_each_message() {
    for ep_type in [EpType::Rdm, EpType::Dgram] {
        let caps = Caps::MSG | Caps::MULTI_RECV;
        let (a, b) = (Bare::new(ep_type, caps), Bare::new(ep_type, caps));
        let to_b = a.meet(&b);
        b.ep.set_min_multi_recv(16).expect("min_multi_recv");
        let into = buffer(64);
        let (mut at_a, mut at_b) = (Values::default(), Values::default());
        for _ in 0..3 {
            // Two messages, after which the buffer is released.
            b.ep.post_one(&Op::multi_recv(&into)).expect("multi_recv");
            for byte in 1..=2 {
                a.ep.inject(to_b, &[byte; 30]).expect("inject");
                at_a[SEND].0 += 1;
                at_b[RECV].0 += 1;
                counts(&a, &at_a);
                counts(&b, &at_b);
            }
        }
        std::thread::sleep(Duration::from_millis(100));
        counts(&b, &at_b);
    }
}

/// "Any change in a counter's error value will unblock any thread inside kfi_cntr_wait", and an
/// event on the counter signals its wait set.
fn a_failure_ends_a_wait_on_a_member_of_a_wait_set() {
    let (domain, set, cntr) = counter_of_set();
    let (av, ep) = (
        domain.av().open().expect("av"),
        domain.endpoint().caps(Caps::MSG).open().expect("endpoint"),
    );
    ep.bind_cntr(&cntr, CntrBind::SEND | CntrBind::RECV)
        .expect("bind");
    ep.bind_av(&av).expect("bind");
    ep.enable().expect("enable");
    let waiter = Sleeper::asleep(cloned!(cntr; move || cntr.wait(1, Deadline::FOREVER)));
    let on_the_set = Sleeper::asleep(cloned!(set; move || set.wait(Deadline::FOREVER)));
    let into = buffer(8);
    ep.recv(&into, 1).expect("recv");
    ep.cancel(1).expect("cancel");
    let error = waiter.end().expect_err("the receive failed");
    assert_eq!(error.errno(), Some(Errno::KFI_EAVAIL));
    assert!(on_the_set.end().expect("wait"));
    assert_eq!((cntr.value(), cntr.err()), (0, 1));
}

/// The completion of an operation that has been read tells that it has completed, so the counter
/// has recorded it.
fn a_completion_that_was_read_is_counted() {
    const MESSAGES: u64 = 100_000;
    const POSTED: u64 = 64;
    let (a, b) = (Counted::new(), Counted::new());
    let to_b = a.meet(&b);
    let mut ring = b.cq.ring().expect("ring");
    let received = &b.counters[RECV];
    let into = buffer(8);
    for context in 0..POSTED {
        b.ep.recv(&into, context).expect("recv");
    }
    let sender = Sleeper::new(move || {
        for _ in 0..MESSAGES {
            while let Err(error) = a.ep.inject(to_b, b"x") {
                assert!(error.is_again(), "{error}");
                std::thread::yield_now();
            }
        }
        a
    });
    let begin = Instant::now();
    let (mut seen, mut late) = (0, 0u64);
    while seen < MESSAGES && begin.elapsed() < SOON {
        let mut entry = [Entry::default()];
        if ring.read(&mut entry).expect("read") == 1 {
            seen += 1;
            late += u64::from(received.value() < seen);
            b.ep.recv(&into, seen).expect("recv");
        }
    }
    assert!(seen > 1000, "{seen} messages");
    assert_eq!(
        late, 0,
        "of {seen} completions that were read were not counted yet"
    );
    drop(b);
    drop(sender);
}
