// SPDX-License-Identifier: GPL-2.0
//! Waiters of several kinds on one object: threads in a call, descriptors, wait sets and poll sets.
//! An event releases those of each kind whose condition holds, and no others; a waiter that leaves
//! early takes nothing with it. Real operations make the events, in the task of the peer or in a
//! worker. See kfi_cntr(3) and fi_cq(3).

use crate::{
    alone::{Alone, until_asleep},
    counter_errors::bare_pair,
    harness::tests,
    host::{SOON, counter_of_set, errno, until},
    hosts::sanitizing,
    threads::{Sleeper, cloned, handle_signals},
    ways::Way,
    without_cq::{Bare, REMOTE_WRITE, WRITE},
};
use kfi::{Buffer, Cntr, CntrFd, Deadline, Entry, Errno, Error, FiAddr, Mr, Op, Remote, Values};
use std::time::{Duration, Instant};

tests![
    an_operation_releases_every_kind_of_waiter_that_is_due: [OneHost, TwoHosts, Connection],
    a_failure_releases_every_kind_of_waiter_of_a_counter,
    an_entry_ends_every_kind_of_wait_on_a_cq,
    a_failure_ends_every_kind_of_wait_on_a_cq,
    a_signal_ends_the_calls_and_no_other_wait,
    waiters_that_leave_a_counter_take_no_release_with_them => 120,
    waiters_that_leave_a_cq_take_no_entry_with_them => 120,
    a_wait_that_ends_at_its_threshold_or_its_deadline_says_which => 120,
    a_member_of_a_wait_set_releases_the_set_and_its_own_waiters,
];

/// There is no region with this key.
const NOWHERE: Remote = Remote::new(0, 0xdead);

/// The time in which a waiter that is released too early would end.
const LATE: Duration = Duration::from_millis(50);

/// Waiters on one counter, for two thresholds.
struct Waiters {
    cntr: Cntr,
    threads: Vec<(u64, Option<Sleeper<kfi::Result<Values>>>)>,
    descriptors: Vec<(u64, CntrFd)>,
    next_change: CntrFd,
}

impl Waiters {
    fn new(cntr: &Cntr, thresholds: [u64; 2]) -> Self {
        let each = || [0, 1, 1, 0].map(|i| thresholds[i]).into_iter();
        let threads = each()
            .map(|threshold| {
                let cntr = cntr.clone();
                let wait = move || cntr.wait(threshold, Deadline::FOREVER);
                (threshold, Some(Sleeper::asleep(wait)))
            })
            .collect();
        let descriptors = each()
            .map(|threshold| {
                let fd = cntr.wait_fd().expect("wait_fd");
                fd.arm(threshold).expect("arm");
                (threshold, fd)
            })
            .collect();
        Self {
            cntr: cntr.clone(),
            threads,
            descriptors,
            next_change: cntr.wait_fd().expect("wait_fd"),
        }
    }

    /// Exactly the waiters for at most `value` are released.
    #[track_caller]
    fn released_at(&mut self, value: u64) {
        for (threshold, thread) in &mut self.threads {
            if *threshold > value {
                continue;
            }
            if let Some(thread) = thread.take() {
                let values = thread.end().expect("the threshold is reached");
                assert!(values.value >= *threshold, "{values:?}");
            }
        }
        for (threshold, fd) in &self.descriptors {
            if *threshold <= value {
                assert!(fd.wait(SOON).expect("poll"), "threshold {threshold}");
            }
        }
        assert!(self.next_change.wait(SOON).expect("poll"));
        std::thread::sleep(LATE);
        for (threshold, thread) in &self.threads {
            let finished = thread.as_ref().is_none_or(Sleeper::is_finished);
            assert_eq!(
                finished,
                *threshold <= value,
                "threshold {threshold} at {value}"
            );
        }
        for (threshold, fd) in &self.descriptors {
            let ready = fd.wait(Duration::ZERO).expect("poll");
            assert_eq!(
                ready,
                *threshold <= value,
                "threshold {threshold} at {value}"
            );
        }
        // It waits for the next change then.
        assert_eq!(self.next_change.consume().expect("read").value, value);
        assert!(!self.next_change.wait(Duration::ZERO).expect("poll"));
    }

    /// All others end with an error.
    #[track_caller]
    fn all_fail(self) {
        for thread in self.threads.into_iter().filter_map(|(_, thread)| thread) {
            assert_eq!(errno(thread.end()), Some(Errno::KFI_EAVAIL));
        }
        for fd in self
            .descriptors
            .iter()
            .map(|(_, fd)| fd)
            .chain([&self.next_change])
        {
            assert!(fd.wait(SOON).expect("poll"));
        }
        assert_eq!(self.cntr.err(), 1);
    }
}

/// An endpoint, what it calls its peer, the peer, and the peer's region.
fn pair(way: Way) -> (Bare, FiAddr, Bare, Mr) {
    let (a, to_b, b) = bare_pair(way);
    let mr = b.region(&Buffer::new(8).expect("buffer"));
    (a, to_b, b, mr)
}

fn write(a: &Bare, to_b: FiAddr, to: Remote) {
    let op = Op::inject_write(to_b, b"x", to);
    a.ep.post_one(&op).expect("write");
}

/// "Wait objects allow applications to block until the wait object is signaled, indicating that a
/// counter has reached a specific threshold", at the initiator and at the target.
fn an_operation_releases_every_kind_of_waiter_that_is_due(way: Way) {
    let (a, to_b, b, mr) = pair(way);
    let mut waiters = [
        Waiters::new(&a.counters[WRITE], [2, 4]),
        Waiters::new(&b.counters[REMOTE_WRITE], [2, 4]),
    ];
    for value in 1..=4 {
        write(&a, to_b, mr.remote(0));
        for some in &mut waiters {
            until("the write is counted", || some.cntr.value() == value);
            some.released_at(value);
        }
    }
}

/// "Any change in a counter's error value will unblock any thread inside kfi_cntr_wait."
fn a_failure_releases_every_kind_of_waiter_of_a_counter() {
    let (a, to_b, _b, mr) = pair(Way::OneHost);
    let polls = a.domain.poll_set().expect("poll set");
    polls.add(&a.counters[WRITE]).expect("add");
    let mut waiters = Waiters::new(&a.counters[WRITE], [1, 3]);
    write(&a, to_b, mr.remote(0));
    waiters.released_at(1);
    assert_eq!(polls.poll(4).expect("poll").len(), 1);
    assert!(polls.poll(4).expect("poll").is_empty());
    write(&a, to_b, NOWHERE);
    waiters.all_fail();
    assert_eq!(polls.poll(4).expect("poll").len(), 1);
    assert_eq!(a.counters[WRITE].value(), 1);
}

/// A thread that sleeps until there are `count` entries.
fn waits_for(alone: &Alone, count: u32) -> Sleeper<kfi::Result<bool>> {
    let cq = alone.cq.clone();
    Sleeper::asleep(move || cq.wait_cond(count, Deadline::FOREVER))
}

/// "The threshold indicates the number of entries that are to be queued [...] before the wait is
/// satisfied."
fn an_entry_ends_every_kind_of_wait_on_a_cq() {
    let alone = Alone::with_cq(|cq| cq.threshold_cond().context(77));
    let polls = alone.domain.poll_set().expect("poll set");
    polls.add(&alone.cq).expect("add");
    let fd = alone.cq.wait_fd().expect("wait_fd");
    let is_ready = || {
        let polled = polls.poll(4).expect("poll");
        assert!(polled.is_empty() || polled == [77]);
        (fd.wait(Duration::ZERO).expect("poll"), !polled.is_empty())
    };
    for round in 0..3 {
        let (one, three) = (waits_for(&alone, 1), waits_for(&alone, 3));
        until_asleep(&alone.cq, 2);
        assert_eq!(is_ready(), (false, false));
        alone.complete(round);
        assert!(one.end().expect("wait"));
        assert_eq!(is_ready(), (true, true));
        alone.complete(round);
        std::thread::sleep(LATE);
        assert!(!three.is_finished(), "two entries are not three");
        alone.complete(round);
        assert!(three.end().expect("wait"));
        assert_eq!(is_ready(), (true, true));
        assert_eq!(alone.read(4), [round; 3]);
    }
    assert_eq!(is_ready(), (false, false));
}

/// "Attempting to read from an CQ while an item is in the error queue results in an FI_EAVAIL
/// failure", whatever the number of entries that a thread waits for.
fn a_failure_ends_every_kind_of_wait_on_a_cq() {
    let alone = Alone::with_cq(kfi::CqBuilder::threshold_cond);
    let polls = alone.domain.poll_set().expect("poll set");
    polls.add(&alone.cq).expect("add");
    let fd = alone.cq.wait_fd().expect("wait_fd");
    let takers = [2, 5].map(|count| {
        let cq = alone.cq.clone();
        Sleeper::asleep(move || cq.sread_cond(&mut [Entry::default(); 8], count, Deadline::FOREVER))
    });
    let waiters = [1, 4].map(|count| waits_for(&alone, count));
    until_asleep(&alone.cq, 4);
    alone.fail(9);
    for taker in takers {
        assert_eq!(errno(taker.end()), Some(Errno::KFI_EAVAIL));
    }
    for waiter in waiters {
        assert_eq!(errno(waiter.end()), Some(Errno::KFI_EAVAIL));
    }
    assert!(fd.wait(SOON).expect("poll"));
    assert_eq!(polls.poll(4).expect("poll").len(), 1);
    assert_eq!(alone.read_error(), Some(9));
    assert!(!fd.wait(Duration::ZERO).expect("poll"));
    assert!(polls.poll(4).expect("poll").is_empty());
}

/// "The fi_cq_signal call will unblock any thread waiting in fi_cq_sread or fi_cq_sreadfrom." A
/// descriptor and a poll set say that there is an entry, and there is none.
fn a_signal_ends_the_calls_and_no_other_wait() {
    let alone = Alone::with_cq(kfi::CqBuilder::threshold_cond);
    let polls = alone.domain.poll_set().expect("poll set");
    polls.add(&alone.cq).expect("add");
    let fd = alone.cq.wait_fd().expect("wait_fd");
    let poller = {
        let fd = alone.cq.wait_fd().expect("wait_fd");
        std::thread::spawn(move || fd.wait(Duration::from_secs(60)))
    };
    let reader = {
        let cq = alone.cq.clone();
        Sleeper::asleep(move || cq.sread(&mut [Entry::default()], Deadline::FOREVER))
    };
    let waiters = [1, 4].map(|count| waits_for(&alone, count));
    until_asleep(&alone.cq, 3);
    alone.cq.signal().expect("signal");
    assert_eq!(reader.end().expect("no error"), 0);
    for waiter in waiters {
        assert!(!waiter.end().expect("no error"));
    }
    std::thread::sleep(LATE);
    assert!(!poller.is_finished() && !fd.wait(Duration::ZERO).expect("poll"));
    assert!(polls.poll(4).expect("poll").is_empty());
    // It is used up: the next thread sleeps.
    let next = waits_for(&alone, 1);
    alone.complete(3);
    assert!(next.end().expect("wait"));
    assert!(poller.join().expect("a thread").expect("poll"));
}

/// Threads whose time has run out, that a signal has interrupted, and descriptors that were closed.
fn waiters_that_leave_a_counter_take_no_release_with_them() {
    handle_signals(false);
    let (a, to_b, b, mr) = pair(Way::OneHost);
    let cntr = &b.counters[REMOTE_WRITE];
    // A thread must be seen asleep before its time runs out.
    let short = Duration::from_millis(if sanitizing() { 3000 } else { 500 });
    for round in 0..3 {
        let base = cntr.value();
        let wait = |threshold: u64, deadline: Deadline| {
            let cntr = cntr.clone();
            Sleeper::asleep(move || cntr.wait(threshold, deadline))
        };
        let descriptor = |threshold: u64| {
            let fd = cntr.wait_fd().expect("wait_fd");
            fd.arm(threshold).expect("arm");
            fd
        };
        let mut stay = Vec::new();
        let (mut late, mut interrupted, mut closed, mut open) = (vec![], vec![], vec![], vec![]);
        for threshold in [base + 2, base + 1, base + 2] {
            stay.push(wait(threshold, Deadline::FOREVER));
            late.push(wait(threshold, Deadline::after(short)));
            interrupted.push(wait(threshold, Deadline::FOREVER));
            closed.push(descriptor(threshold));
            open.push((threshold, descriptor(threshold)));
        }
        for thread in interrupted {
            thread.interrupt();
            assert_eq!(errno(thread.end()), Some(Errno::EINTR));
        }
        drop(closed);
        for thread in late {
            assert_eq!(errno(thread.end()), Some(Errno::ETIMEDOUT), "round {round}");
        }
        assert!(stay.iter().all(|thread| !thread.is_finished()));
        write(&a, to_b, mr.remote(0));
        until("the first is released", || stay[1].is_finished());
        std::thread::sleep(Duration::from_millis(10));
        for (threshold, fd) in &open {
            let ready = fd.wait(Duration::ZERO).expect("poll");
            assert_eq!(ready, *threshold == base + 1);
        }
        write(&a, to_b, mr.remote(0));
        for thread in stay {
            assert!(thread.end().expect("wait").value > base);
        }
        for (_, fd) in &open {
            assert!(fd.wait(SOON).expect("poll"));
        }
    }
}

/// The same for a CQ: an entry is for those that are still there.
fn waiters_that_leave_a_cq_take_no_entry_with_them() {
    handle_signals(false);
    let alone = Alone::new();
    let read = |deadline: Deadline| {
        let cq = alone.cq.clone();
        Sleeper::asleep(move || {
            let mut entry = [Entry::default()];
            let count = cq.sread(&mut entry, deadline)?;
            Ok::<_, Error>((count == 1).then(|| entry[0].op_context))
        })
    };
    for round in 0..3 {
        let interrupted = read(Deadline::FOREVER);
        let late = read(Deadline::after(Duration::from_millis(300)));
        let stays = read(Deadline::FOREVER);
        let also_late = read(Deadline::after(Duration::from_millis(200)));
        interrupted.interrupt();
        assert_eq!(errno(interrupted.end()), Some(Errno::EINTR));
        for thread in [also_late, late] {
            assert_eq!(thread.end().expect("sread"), None);
        }
        until_asleep(&alone.cq, 1);
        assert!(!stays.is_finished());
        alone.complete(round);
        assert_eq!(stays.end().expect("sread"), Some(round));
        assert!(alone.read(1).is_empty());
    }
}

/// "Upon successful return from this call, the counter will be greater than or equal to the input
/// threshold value"; "if the call returns due to timeout, -KFI_ETIMEDOUT will be returned". Here
/// the threshold is reached at about the time of the deadline.
fn a_wait_that_ends_at_its_threshold_or_its_deadline_says_which() {
    const TIME: Duration = Duration::from_millis(20);
    let (a, to_b, _b, mr) = pair(Way::OneHost);
    let cntr = &a.counters[WRITE];
    let (mut reached, mut late) = (0, 0);
    for round in 0..100u32 {
        let threshold = cntr.value() + 1;
        let begin = Instant::now();
        let deadline = Deadline::after(TIME);
        let threads = [(); 3].map(|()| {
            let cntr = cntr.clone();
            Sleeper::new(move || (cntr.wait(threshold, deadline), Instant::now()))
        });
        // From 2.5 ms before the deadline to 2.5 ms after it.
        let add = TIME - Duration::from_micros(2500) + Duration::from_micros(50) * round;
        while begin.elapsed() < add {
            std::hint::spin_loop();
        }
        write(&a, to_b, mr.remote(0));
        for thread in threads {
            match thread.end() {
                (Ok(values), _) => {
                    assert!(values.value >= threshold, "{values:?}");
                    reached += 1;
                }
                (Err(error), end) => {
                    assert_eq!(error.errno(), Some(Errno::ETIMEDOUT));
                    assert!(end - begin >= TIME, "too early");
                    late += 1;
                }
            }
        }
        assert_eq!((cntr.value(), cntr.err()), (threshold, 0));
    }
    assert!(
        reached > 0 && late > 0,
        "{reached} reached, {late} too late"
    );
}

/// kfi_cntr(3), wait_set: "When an event is added to the event counter, the corresponding wait set
/// will be signaled"; threads may sleep on the counter itself at the same time.
fn a_member_of_a_wait_set_releases_the_set_and_its_own_waiters() {
    let (domain, set, cntr) = counter_of_set();
    let ep = domain.endpoint().open().expect("endpoint");
    let cq = domain.cq().open().expect("cq");
    ep.bind_cq(&cq, kfi::CqBind::TRANSMIT | kfi::CqBind::RECV)
        .expect("bind");
    ep.bind_cntr(&cntr, kfi::CntrBind::SEND).expect("bind");
    let av = domain.av().open().expect("av");
    ep.bind_av(&av).expect("bind");
    ep.enable().expect("enable");
    let me = av.insert_one(ep.name().expect("name")).expect("insert");
    let set_fd = set.wait_fd().expect("wait_fd");
    for value in 1..=5 {
        let sleepers = [value, value + 1].map(|threshold| {
            let cntr = cntr.clone();
            Sleeper::asleep(move || cntr.wait(threshold, Deadline::FOREVER))
        });
        let waiter = Sleeper::asleep(cloned!(set; move || set.wait(Deadline::FOREVER)));
        ep.inject(me, b"message").expect("inject");
        assert!(waiter.end().expect("wait"));
        let [due, other] = sleepers;
        assert_eq!(due.end().expect("wait").value, value);
        std::thread::sleep(LATE);
        assert!(!other.is_finished());
        // One waiter has taken the signal of the set.
        assert!(!set_fd.wait(Duration::ZERO).expect("poll"));
        cntr.adderr(1).expect("adderr");
        assert_eq!(errno(other.end()), Some(Errno::KFI_EAVAIL));
        assert!(set.wait(Duration::ZERO).expect("wait"));
    }
}
