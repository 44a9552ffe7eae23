// SPDX-License-Identifier: GPL-2.0
//! Deferred work beside other tasks: threads that add while work is queued and cancelled, and a
//! process that is killed with much work.

use crate::{
    abi_threads::NetNs,
    connected::open_region,
    deferred::{cntr, queue, wait},
    harness::tests,
    host::{Host, Options, SOON, buffer, domain, domain_on, errno, until},
    hosts::{LINKS, apart, sanitizing},
    process::{Process, line},
    threads::cloned,
    ways::Way,
};
use kfi::{
    AtomicOp, Buffer, Caps, Cntr, Datatype, Device, Domain, Errno, Op, OpFlags, Remote, StatClass,
    Work,
};
use std::{
    ops::RangeInclusive,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

tests![
    threads_add_while_work_is_queued_and_cancelled => 180,
    a_cancel_beside_an_add_tells_what_happened => 120,
    a_flush_beside_adds_loses_nothing => 120,
    a_write_is_executed_or_cancelled: [OneHost => 120, TwoHosts => 180, Connection => 180],
    works_of_a_counter_keep_their_order_with_many_adders => 120,
    one_add_starts_very_much_work_in_order => 120,
    work_that_is_due_comes_after_earlier_work => 300,
    a_flush_beside_one_add_takes_the_last_works => 300,
    a_cancel_of_a_trigger_beside_an_add_tells_what_happened => 120,
    a_killed_process_leaves_no_work => 300,
    a_busy_chain_lets_others_run => 120,
];

/// Processes of these tests.
pub(crate) const ROLES: &[(&str, fn())] = &[("queue work", queue_much_work)];

/// Each work is started or cancelled, exactly once.
fn threads_add_while_work_is_queued_and_cancelled() {
    let (_, domain) = domain();
    let (go, done) = (cntr(&domain), cntr(&domain));
    let (queued, cancelled, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    go.add(1).expect("add");
                }
            });
        }
        for number in 0..2u64 {
            let (domain, go, done) = (&domain, &go, &done);
            let (queued, cancelled) = (&queued, &cancelled);
            let rounds = if sanitizing() { 300 } else { 3000 };
            scope.spawn(move || {
                for round in 0..rounds {
                    let at = go.value() + (round * 7 + number) % 40;
                    let id = queue(domain, Work::add(go, at, done, 1));
                    queued.fetch_add(1, Relaxed);
                    if round % 3 == 0 {
                        match errno(domain.cancel_work(&id)) {
                            None => cancelled.fetch_add(1, Relaxed),
                            Some(error) => {
                                assert_eq!(error, Errno::ENOENT);
                                0
                            }
                        };
                    }
                }
            });
        }
        let begin = Instant::now();
        let target = if sanitizing() { 600 } else { 6000 };
        while queued.load(Relaxed) < target && begin.elapsed() < SOON * 6 {
            std::thread::sleep(Duration::from_millis(1));
        }
        stop.store(true, Relaxed);
    });
    go.add(100).expect("add");
    wait(&done, queued.load(Relaxed) - cancelled.load(Relaxed));
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(done.value(), queued.load(Relaxed) - cancelled.load(Relaxed));
}

fn a_cancel_beside_an_add_tells_what_happened() {
    let (_, domain) = domain();
    let (go, done) = (cntr(&domain), cntr(&domain));
    let mut both = [0u64; 2];
    for round in 1..=2000 {
        let id = queue(&domain, Work::add(&go, round, &done, 1));
        let adder = std::thread::spawn(cloned!(go; move || go.add(1).expect("add")));
        let cancelled = domain.cancel_work(&id).is_ok();
        adder.join().expect("join");
        both[usize::from(cancelled)] += 1;
        until("the rest", || done.value() == both[0]);
    }
}

fn a_flush_beside_adds_loses_nothing() {
    let (_, domain) = domain();
    let (go, done) = (cntr(&domain), cntr(&domain));
    let stop = AtomicBool::new(false);
    let (mut queued, mut flushed) = (0, 0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    go.add(1).expect("add");
                }
            });
        }
        for round in 0..200u64 {
            let works: Vec<_> = (0..50)
                .map(|n| Work::add(&go, go.value() + n * (round % 7), &done, 1))
                .collect();
            queued += domain.queue_work(&works).expect("queue").ids.len() as u64;
            flushed += domain.flush_work().expect("flush");
        }
        stop.store(true, Relaxed);
    });
    wait(&done, queued - flushed);
    assert_eq!(done.value(), queued - flushed);
}

/// Writes become due while they are cancelled, one by one or by a flush. Each is executed and
/// counted once, or is cancelled and changes no memory.
fn a_write_is_executed_or_cancelled(way: Way) {
    const BATCH: u64 = 32;
    let (a, to_b, b) = way.pair();
    let (go, done) = (cntr(&a.domain), cntr(&a.domain));
    let theirs = buffer(8 * BATCH as usize);
    let mr = open_region(&b, &theirs, 1);
    let stop = AtomicBool::new(false);
    let (mut executed, mut cancelled) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                go.add(1).expect("add");
            }
        });
        for round in 0..if sanitizing() { 40 } else { 400 } {
            // No round has a value of another one.
            let values: Vec<u64> = (1..=BATCH).map(|n| round * BATCH + n).collect();
            let bytes: Vec<_> = values.iter().map(|value| value.to_ne_bytes()).collect();
            let from = Buffer::of(&values).expect("buffer");
            let now = go.value();
            let works: Vec<_> = (0..BATCH as usize)
                .map(|n| {
                    let (at, remote) = (8 * n, mr.remote(8 * n as u64));
                    let op = match n % 2 {
                        0 => Op::write(to_b, from.slice(at..at + 8), remote),
                        _ => Op::inject_write(to_b, &bytes[n], remote),
                    };
                    let threshold = now + n as u64 * (round % 8) * 16;
                    Work::transfer(&go, threshold, &a.ep, op).completion(&done)
                })
                .collect();
            let queued = a.domain.queue_work(&works).expect("queue");
            assert!(queued.all());
            let written = || -> Vec<bool> {
                let words = theirs.elements::<u64>();
                words.iter().zip(&values).map(|(a, b)| a == b).collect()
            };
            let count = |flags: &[bool]| flags.iter().filter(|flag| **flag).count() as u64;
            let (kept, flushed) = if round % 2 == 0 {
                let mut kept = vec![true; BATCH as usize];
                for (id, kept) in queued.ids.iter().zip(&mut kept).rev() {
                    *kept = match errno(a.domain.cancel_work(id)) {
                        None => false,
                        Some(error) => {
                            assert_eq!(error, Errno::ENOENT);
                            true
                        }
                    };
                }
                let flushed = BATCH - count(&kept);
                (Some(kept), flushed)
            } else {
                (None, a.domain.flush_work().expect("flush"))
            };
            executed += BATCH - flushed;
            cancelled += flushed;
            wait(&done, executed);
            until("the writes", || count(&written()) == BATCH - flushed);
            if let Some(kept) = kept {
                assert_eq!(written(), kept, "round {round}");
            }
        }
        stop.store(true, Relaxed);
    });
    assert_eq!((done.value(), done.err()), (executed, 0));
    a.expect_nothing();
    println!("{executed} writes executed, {cancelled} cancelled");
    assert!(executed != 0 && cancelled != 0);
}

/// The works set a counter to their numbers: a later one with a lower number would be seen.
fn works_of_a_counter_keep_their_order_with_many_adders() {
    let (_, domain) = domain();
    let (go, last) = (cntr(&domain), cntr(&domain));
    const WORKS: u64 = 4000;
    let works: Vec<_> = (1..=WORKS).map(|n| Work::set(&go, n, &last, n)).collect();
    assert!(domain.queue_work(&works).expect("queue").all());
    let backwards = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..WORKS / 4 {
                    go.add(1).expect("add");
                }
            });
        }
        scope.spawn(|| {
            let mut seen = 0;
            while seen < WORKS {
                let now = last.value();
                backwards.fetch_add(u64::from(now < seen), Relaxed);
                seen = now;
            }
        });
    });
    assert_eq!(backwards.load(Relaxed), 0);
}

/// Whether tasks of a test run at once.
fn parallel() -> bool {
    std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1)
}

/// Queues works that set `last` to their numbers, which are their thresholds.
fn queue_numbers(domain: &Domain, go: &Cntr, last: &Cntr, numbers: RangeInclusive<u64>) {
    let works: Vec<_> = numbers.map(|n| Work::set(go, n, last, n)).collect();
    for part in works.chunks(4000) {
        assert!(domain.queue_work(part).expect("queue").all());
    }
}

/// One add reaches many times the works that it may make due under the counter's lock; the executor
/// moves the rest. Their order stays, and each starts once.
fn one_add_starts_very_much_work_in_order() {
    const WORKS: u64 = 20_000;
    const COUNTED: u64 = 4000;
    let (_, domain) = domain();
    let (go, last, sum) = (cntr(&domain), cntr(&domain), cntr(&domain));
    queue_numbers(&domain, &go, &last, 1..=WORKS);
    let adds: Vec<_> = (1..=COUNTED).map(|n| Work::add(&go, n, &sum, 1)).collect();
    assert!(domain.queue_work(&adds).expect("queue").all());
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut seen, mut backwards) = (0, 0);
            while seen < WORKS {
                let now = last.value();
                backwards += u64::from(now < seen);
                seen = seen.max(now);
            }
            backwards
        });
        go.add(WORKS).expect("add");
        assert_eq!(reader.join().expect("join"), 0);
    });
    assert_eq!((last.value(), sum.value()), (WORKS, COUNTED));
    assert_eq!(domain.flush_work().expect("flush"), 0);
}

/// Work of a low threshold that is queued while one add starts very much work of high ones: it is
/// due at once, and comes after them.
fn work_that_is_due_comes_after_earlier_work() {
    const WORKS: u64 = 5000;
    const ROUNDS: u64 = 50;
    let (_, domain) = domain();
    let (go, last) = (cntr(&domain), cntr(&domain));
    let mut between = 0;
    for round in 0..ROUNDS {
        let (first, end) = (round * (WORKS + 1) + 1, (round + 1) * (WORKS + 1));
        queue_numbers(&domain, &go, &last, first..=end - 1);
        std::thread::scope(|scope| {
            scope.spawn(|| go.add(WORKS + 1).expect("add"));
            while last.value() < first {
                std::hint::spin_loop();
            }
            queue(&domain, Work::set(&go, 0, &last, end));
            between += u64::from(last.value() != end);
        });
        // Its number is the last one that is set.
        until("the last work", || last.value() == end);
        assert_eq!(domain.flush_work().expect("flush"), 0);
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(last.value(), end);
    }
    println!("{between} of {ROUNDS} works waited for others");
    assert!(between != 0 || !parallel());
}

/// A flush while one add starts very much work cancels the works that have not begun. These are the
/// last ones of the order.
fn a_flush_beside_one_add_takes_the_last_works() {
    const WORKS: u64 = 5000;
    const ROUNDS: u64 = 50;
    let (_, domain) = domain();
    let (go, last) = (cntr(&domain), cntr(&domain));
    let mut between = 0;
    for round in 0..ROUNDS {
        let before = round * WORKS;
        queue_numbers(&domain, &go, &last, before + 1..=before + WORKS);
        let flushed = std::thread::scope(|scope| {
            let flush = scope.spawn(|| {
                while last.value() <= before {
                    std::hint::spin_loop();
                }
                domain.flush_work().expect("flush")
            });
            go.add(WORKS).expect("add");
            flush.join().expect("join")
        });
        let reached = before + WORKS - flushed;
        until("the works before the flush", || last.value() == reached);
        between += u64::from(flushed != 0);
        // For the next round.
        last.set(before + WORKS).expect("set");
    }
    println!("{between} of {ROUNDS} flushes came between");
    assert!(between != 0 || !parallel());
}

/// An operation that is about to start may not be found: then it starts. It completes once in any
/// case.
fn a_cancel_of_a_trigger_beside_an_add_tells_what_happened() {
    let host = Host::with(&Options {
        caps: Options::default().caps | Caps::TRIGGER,
        ..Options::default()
    });
    let me = host.meet(&host);
    let theirs = buffer(8);
    let mr = open_region(&host, &theirs, 1);
    let go = cntr(&host.domain);
    let mut started = 0;
    for round in 1..=1000 {
        let op = Op::inject_write(me, b"at once.", mr.remote(0)).flags(OpFlags::COMPLETION);
        let op = op.context(round).trigger(&go, round);
        host.ep.post_one(&op).expect("post");
        let adder = std::thread::spawn(cloned!(go; move || go.add(1).expect("add")));
        let result = errno(host.ep.cancel(round));
        adder.join().expect("join");
        match result {
            None => {
                let entry = host.failure();
                assert_eq!((entry.err, entry.op_context), (Errno::ECANCELED, round));
            }
            Some(error) => {
                assert_eq!(error, Errno::ENOENT);
                assert_eq!(host.completion().op_context, round);
                started += 1;
            }
        }
        host.expect_nothing();
    }
    println!("{started} of 1000 started");
}

/// Queues receives, sends, writes, atomics and adds in a process that will be killed. Its peers are
/// on its own host and on another one. The test's first line has the network namespace, the address
/// of the other peer, and the key of its region.
fn queue_much_work() {
    let told = line();
    let mut told = told.split(' ');
    let mut next = || told.next().expect("told");
    let (_fabric, domain) = NetNs::open(next()).run(|| domain_on(LINKS[0]));
    let options = with_atomics();
    let (host, near) = (Host::on(&domain, &options), Host::on(&domain, &options));
    let far = host.av.insert_one(next().parse().expect("address"));
    let far_memory = Remote::new(0, next().parse().expect("key"));
    let near_memory = buffer(64);
    let mr = open_region(&near, &near_memory, 2);
    let peers = [
        (far.expect("insert"), far_memory),
        (host.meet(&near), mr.remote(0)),
    ];
    let (go, done) = (cntr(&domain), cntr(&domain));
    let (from, into) = (buffer(64), buffer(64));
    let mut works = vec![];
    for n in 0..10_000u64 {
        let (peer, memory) = peers[(n / 10 % 2) as usize];
        let op = match n % 10 {
            0 => Op::recv(&into),
            1 | 2 => Op::send(peer, &from),
            3 | 4 => Op::write(peer, &from, memory),
            5 => {
                let word = from.slice(..8);
                Op::atomic(peer, word, memory, Datatype::Uint64, AtomicOp::Sum)
            }
            _ => {
                works.push(Work::add(&go, 1 + n, &done, 1));
                continue;
            }
        };
        works.push(Work::transfer(&go, 1 + n, &host.ep, op).completion(&done));
    }
    for part in works.chunks(4000) {
        assert!(domain.queue_work(part).expect("queue").all());
    }
    println!("ready");
    if line() == "run" {
        // A ring that goes on and on. A sanitizing kernel takes 0.2 ms to free a work.
        let own: Vec<_> = (1..=4000).map(|n| Work::add(&done, n, &done, 1)).collect();
        let rounds = if sanitizing() { 2 } else { 20 };
        for _ in 0..rounds {
            let _ = domain.queue_work(&own);
        }
        done.add(1).expect("add");
        // Half of the works start. Transfers are under way, or wait for room.
        go.add(5000).expect("add");
        println!("running");
    }
    line();
}

/// Default options and `Caps::ATOMIC`.
fn with_atomics() -> Options {
    Options {
        caps: Options::default().caps | Caps::ATOMIC,
        ..Options::default()
    }
}

fn a_killed_process_leaves_no_work() {
    let hosts = apart();
    let counters = || {
        hosts.host(0).run(|| {
            let device = Device::open().expect("open");
            device.stats(StatClass::Cntr).count()
        })
    };
    let before = counters();
    let (_fabric, domain) = hosts.domain(1);
    let far = Host::on(&domain, &with_atomics());
    let memory = buffer(64);
    let mr = open_region(&far, &memory, 1);
    let address = far.ep.name().expect("name");
    let told = format!("{} {address} {}", hosts.host(0).path(), mr.key());
    for round in 0..6 {
        let mut process = Process::in_role("queue work");
        process.tell(&told);
        assert_eq!(process.read_line(), "ready");
        assert_ne!(counters(), before);
        process.tell(if round % 2 == 0 { "run" } else { "wait" });
        if round % 4 == 0 {
            assert_eq!(process.read_line(), "running");
        }
        let begin = Instant::now();
        process.kill();
        assert!(!process.wait().success());
        until("the counters gone", || counters() == before);
        let limit = if sanitizing() { SOON } else { SOON / 4 };
        assert!(begin.elapsed() < limit, "{:?}", begin.elapsed());
    }
}

/// While works of one user start each other all the time, a call of another file takes no longer
/// than some time slices.
fn a_busy_chain_lets_others_run() {
    let (_, domain) = domain();
    let (a, b) = (cntr(&domain), cntr(&domain));
    let stop = AtomicBool::new(false);
    let longest = std::thread::scope(|scope| {
        scope.spawn(|| busy(&domain, &a, &b, &stop));
        let (_, other) = self::domain();
        let (go, done) = (cntr(&other), cntr(&other));
        let mut longest = Duration::ZERO;
        for round in 1..=200 {
            let begin = Instant::now();
            queue(&other, Work::add(&go, round, &done, 1));
            go.add(1).expect("add");
            wait(&done, round);
            longest = longest.max(begin.elapsed());
        }
        stop.store(true, Relaxed);
        longest
    });
    let limit = if sanitizing() { SOON } else { SOON / 10 };
    assert!(longest < limit, "{longest:?}");
}

/// Has two counters start each other until `stop`.
fn busy(domain: &kfi::Domain, a: &Cntr, b: &Cntr, stop: &AtomicBool) {
    while !stop.load(Relaxed) {
        let (at_a, at_b) = (a.value(), b.value());
        let works: Vec<_> = (1..=2000)
            .flat_map(|n| [Work::add(a, at_a + n, b, 1), Work::add(b, at_b + n, a, 1)])
            .collect();
        if domain.queue_work(&works).is_err() {
            continue;
        }
        a.add(1).expect("add");
        let _ = b.wait(at_b + 2000, SOON);
    }
}
