// SPDX-License-Identifier: GPL-2.0
//! Threads that sleep in a read of a completion queue: the events that wake them.

use crate::{
    alone::{Alone, sread_one, until_asleep},
    harness::tests,
    host::{SOON, errno, until},
    raw::{File, arg, data},
    threads::{Sleeper, cloned, handle_signals, in_the_handler},
};
use kfi::{Buffer, Deadline, Entry, Errno, Op, Wait, abi};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

tests![
    a_sleeper_wakes_for_an_entry_an_error_a_loss,
    a_threshold_is_waited_for,
    a_wait_for_many_ends_early_for_some_events,
    sleepers_wake_at_their_number_of_entries,
    sleepers_for_more_entries_are_not_woken,
    a_signal_releases_all_sleepers,
    a_signal_without_a_sleeper_is_kept_for_one,
    a_signal_reaches_a_thread_in_a_signal_handler,
    two_wait_objects_let_threads_sleep,
];

fn a_sleeper_wakes_for_an_entry_an_error_a_loss() {
    let a = Alone::new();
    let b = Alone::with_cq(|cq| cq.entries(2));
    let asleep = || Sleeper::asleep(cloned!(cq = b.cq; move || sread_one(&cq)));
    let sleeper = asleep();
    b.complete(7);
    assert_eq!(sleeper.end().expect("sread"), Some(7));
    let sleeper = asleep();
    b.fail(8);
    assert_eq!(errno(sleeper.end()), Some(Errno::KFI_EAVAIL));
    assert_eq!(b.read_error(), Some(8));
    // A lost completion, with an empty queue: receives take its room.
    let into = Buffer::new(8).expect("buffer");
    b.ep.recv(&into, 1).expect("recv");
    b.ep.recv(&into, 2).expect("recv");
    let sleeper = asleep();
    let to_b = a.av.insert_one(b.ep.name().expect("name")).expect("insert");
    let op = Op::inject_write(to_b, b"", b.remote()).data(1);
    a.ep.post_one(&op).expect("write");
    assert_eq!(errno(sleeper.end()), Some(Errno::KFI_EOVERRUN));
}

fn a_threshold_is_waited_for() {
    let alone = Alone::with_cq(|cq| cq.threshold_cond());
    let wait_for = |count: u32| {
        let cq = alone.cq.clone();
        Sleeper::new(move || {
            let mut entries = [Entry::default(); 16];
            cq.sread_cond(&mut entries, count, Deadline::FOREVER)
                .expect("sread")
        })
    };
    let three = wait_for(3);
    until_asleep(&alone.cq, 1);
    alone.complete_all(0..2);
    until_asleep(&alone.cq, 1);
    assert!(!three.is_finished());
    alone.complete(2);
    assert_eq!(three.end(), 3);
    // The entries are there already: the call returns at once.
    alone.complete_all(0..5);
    assert_eq!(wait_for(3).end(), 5);
    // 0 and 1 are the same; a number above the size of the queue means the size.
    let zero = wait_for(0);
    until_asleep(&alone.cq, 1);
    alone.complete(0);
    assert_eq!(zero.end(), 1);
    let all = wait_for(u32::MAX);
    until_asleep(&alone.cq, 1);
    alone.complete_all(0..63);
    until_asleep(&alone.cq, 1);
    alone.complete(63);
    assert_eq!(all.end(), 16);
    // A CQ without the condition ignores the number: any entry ends the wait.
    let plain = Alone::new();
    let any = {
        let cq = plain.cq.clone();
        Sleeper::asleep(move || {
            cq.sread_cond(&mut [Entry::default(); 16], 9, Deadline::FOREVER)
                .expect("sread")
        })
    };
    plain.complete(1);
    assert_eq!(any.end(), 1);
}

fn a_wait_for_many_ends_early_for_some_events() {
    let alone = Alone::with_cq(|cq| cq.threshold_cond());
    let mut entries = [Entry::default(); 16];
    let soon = Duration::from_millis(30);
    // At the deadline the call returns the queued entries.
    assert_eq!(
        alone.cq.sread_cond(&mut entries, 5, soon).expect("sread"),
        0
    );
    alone.complete_all(0..2);
    assert_eq!(
        alone.cq.sread_cond(&mut entries, 5, soon).expect("sread"),
        2
    );
    // An error.
    let asleep = || {
        let cq = alone.cq.clone();
        Sleeper::asleep(move || cq.sread_cond(&mut [Entry::default(); 16], 5, Deadline::FOREVER))
    };
    alone.complete_all(0..2);
    let sleeper = asleep();
    alone.fail(9);
    assert_eq!(errno(sleeper.end()), Some(Errno::KFI_EAVAIL));
    assert_eq!(alone.read_error(), Some(9));
    // A signal: the call returns the queued entries.
    let sleeper = asleep();
    alone.cq.signal().expect("signal");
    assert_eq!(sleeper.end().expect("sread"), 2);
}

/// Threads that wait, without taking entries, for this number each.
fn wait_for(cq: u32, file: &Arc<File>, counts: &[u32]) -> Vec<Sleeper<Result<(), Errno>>> {
    let wait = |cond: u32| {
        let file = file.clone();
        Sleeper::asleep(move || {
            file.call(arg!(kfabric_cq_read: cq, cond, deadline: abi::KFABRIC_FOREVER))
                .map(drop)
        })
    };
    counts.iter().copied().map(wait).collect()
}

/// A party with a CQ that waits for numbers of entries.
fn with_threshold() -> (Arc<File>, u32, impl Fn(u64)) {
    let file = Arc::new(File::open());
    let domain = file.domain(file.fabric());
    let cq = file.make(arg!(kfabric_cq_open:
        domain, entries: 64, wait_obj: abi::KFI_WAIT_QUEUE, wait_cond: abi::KFI_CQ_COND_THRESHOLD
    ));
    let party = file.party_with(domain, cq, arg!(kfabric_ep_open));
    let complete = {
        let file = file.clone();
        move |context| {
            let op = data!(kfabric_op:
                opcode: abi::KFABRIC_OP_SEND, flags: abi::KFI_INJECT | abi::KFI_COMPLETION, context,
                peer: party.me
            );
            file.post_one(party.ep, op).expect("send");
        }
    };
    (file, cq, complete)
}

fn sleepers_wake_at_their_number_of_entries() {
    let (file, cq, complete) = with_threshold();
    let counts = [8, 2, 4, 2, 16];
    let sleepers = wait_for(cq, &file, &counts);
    for queued in 1..=16u32 {
        complete(queued.into());
        for (sleeper, count) in sleepers.iter().zip(counts) {
            if count <= queued {
                until("who is due released", || sleeper.is_finished());
            } else {
                assert!(!sleeper.is_finished(), "{count} released by {queued}");
            }
        }
    }
    for sleeper in sleepers {
        assert_eq!(sleeper.join(), Ok(()));
    }
}

fn sleepers_for_more_entries_are_not_woken() {
    let (file, cq, complete) = with_threshold();
    let mut sleepers = wait_for(cq, &file, &[40, 50]);
    let before: Vec<u64> = sleepers.iter().map(Sleeper::sleeps).collect();
    (0..39).for_each(&complete);
    let after: Vec<u64> = sleepers.iter().map(Sleeper::sleeps).collect();
    assert_eq!(before, after, "they ran for nothing");
    complete(40);
    assert_eq!(sleepers.remove(0).end(), Ok(()));
    (41..=50).for_each(&complete);
    assert_eq!(sleepers.remove(0).end(), Ok(()));
}

fn a_signal_releases_all_sleepers() {
    let alone = Alone::new();
    let sleepers: Vec<_> = (0..5)
        .map(|_| Sleeper::new(cloned!(cq = alone.cq; move || sread_one(&cq))))
        .collect();
    until_asleep(&alone.cq, 5);
    alone.cq.signal().expect("signal");
    for sleeper in sleepers {
        assert_eq!(sleeper.end().expect("sread"), None);
    }
    // Those threads took it: the next one sleeps.
    let begin = Instant::now();
    assert!(!alone.cq.wait(Duration::from_millis(20)).expect("wait"));
    assert!(begin.elapsed() >= Duration::from_millis(20));
}

fn a_signal_without_a_sleeper_is_kept_for_one() {
    let alone = Alone::new();
    let returns_at_once = || {
        let begin = Instant::now();
        let mut entry = [Entry::default()];
        let count = alone.cq.sread(&mut entry, SOON).expect("sread");
        assert!(begin.elapsed() < SOON / 2);
        (count == 1).then(|| entry[0].op_context)
    };
    // One signal is kept, however many there were.
    for _ in 0..3 {
        alone.cq.signal().expect("signal");
    }
    assert_eq!(returns_at_once(), None);
    let begin = Instant::now();
    assert!(!alone.cq.wait(Duration::from_millis(30)).expect("wait"));
    assert!(
        begin.elapsed() >= Duration::from_millis(30),
        "two were kept"
    );
    // A read that need not sleep leaves it.
    alone.cq.signal().expect("signal");
    alone.complete(1);
    assert_eq!(returns_at_once(), Some(1));
    assert!(alone.read(1).is_empty());
    assert_eq!(returns_at_once(), None);
}

/// A thread whose wait is restarted after a signal's handler is inside the read all the time.
fn a_signal_reaches_a_thread_in_a_signal_handler() {
    let alone = Alone::new();
    handle_signals(true);
    let asleep = || Sleeper::asleep(cloned!(cq = alone.cq; move || sread_one(&cq)));
    let (interrupted, other) = (asleep(), asleep());
    until_asleep(&alone.cq, 2);
    in_the_handler(&interrupted, || {
        // One thread sleeps, so the signal is not kept for the other.
        alone.cq.signal().expect("signal");
        until("the end of the other", || other.is_finished());
    });
    assert_eq!(other.end().expect("sread"), None);
    assert_eq!(interrupted.end().expect("sread"), None);
}

fn two_wait_objects_let_threads_sleep() {
    for wait in [Wait::Unspec, Wait::Queue] {
        let alone = Alone::with_cq(|cq| cq.wait(wait));
        let cq = alone.cq.clone();
        let sleeper = Sleeper::asleep(move || sread_one(&cq));
        alone.complete(3);
        assert_eq!(sleeper.end().expect("sread"), Some(3));
    }
}
