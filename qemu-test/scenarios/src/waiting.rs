// SPDX-License-Identifier: GPL-2.0
//! Wait sets and poll sets: one object to wait on, or to poll, for many objects.

use crate::{
    alone::Alone,
    harness::tests,
    host::{Host, LINK, Options, SOON, counter_of_set, device, domain, errno, until},
    threads::{Sleeper, cloned},
};
use kfi::{
    Access, Av, Buffer, Cq, CqBind, CqFormat, Deadline, Domain, Endpoint, Entry, Errno, EventKind,
    FiAddr, PollSet, Wait, WaitSet,
};
use std::{cell::Cell, collections::BTreeSet, time::Duration};

tests![
    every_member_signals,
    one_waiter_takes_a_signal,
    pending_signals_of_a_set_are_merged,
    a_waiter_wakes_once_for_each_signal,
    a_descriptor_is_readable_while_a_signal_is_pending,
    one_thread_serves_many_queues,
    a_poll_set_returns_ready_members,
    a_poll_set_reports_a_change_once,
    a_poll_set_serves_its_members_in_turn,
    a_poll_set_keeps_its_members_open,
];

/// Whether a signal is pending; takes it.
#[track_caller]
fn taken(set: &WaitSet) -> bool {
    set.wait(Duration::ZERO).expect("wait")
}

fn asleep(set: &WaitSet) -> Sleeper<kfi::Result<bool>> {
    let set = set.clone();
    Sleeper::asleep(move || set.wait(Deadline::FOREVER))
}

/// An endpoint whose AV has itself, with a CQ for both directions.
fn with_itself(domain: &Domain, cq: &Cq) -> (Av, Endpoint, FiAddr) {
    let av = domain.av().open().expect("av");
    let ep = domain.endpoint().open().expect("endpoint");
    ep.bind_cq(cq, CqBind::TRANSMIT | CqBind::RECV)
        .expect("bind");
    ep.bind_av(&av).expect("bind");
    ep.enable().expect("enable");
    let me = av.insert_one(ep.name().expect("name")).expect("insert");
    (av, ep, me)
}

fn every_member_signals() {
    let fabric = device().fabric().expect("fabric");
    let domain = fabric.domain(LINK).open().expect("domain");
    let set = fabric.wait_set().expect("wait set");
    let wait = || Wait::Set(set.clone());
    let cntr = domain.cntr().wait(wait()).open().expect("cntr");
    let eq = fabric.eq().wait(wait()).writable().open().expect("eq");
    let cq = domain
        .cq()
        .format(CqFormat::Tagged)
        .wait(wait())
        .open()
        .expect("cq");
    let (_av, ep, me) = with_itself(&domain, &cq);
    let buffer = Buffer::new(8).expect("buffer");
    // An error value that is there already is no change, so each one is different.
    let errors = Cell::new(100);
    let happen: [(&str, &dyn Fn()); 8] = [
        ("add", &|| cntr.add(1).expect("add")),
        ("set", &|| cntr.set(7).expect("set")),
        ("adderr", &|| cntr.adderr(1).expect("adderr")),
        ("seterr", &|| {
            errors.set(errors.get() + 1);
            cntr.seterr(errors.get()).expect("seterr");
        }),
        ("event", &|| {
            eq.write(EventKind::Notify, b"x").expect("write")
        }),
        ("entry", &|| ep.send(me, &buffer, 0).expect("send")),
        ("error", &|| {
            ep.trecv(&buffer, 0, 0, 5).expect("trecv");
            ep.cancel(5).expect("cancel");
        }),
        ("signal", &|| cq.signal().expect("signal")),
    ];
    assert!(!taken(&set));
    for (what, happens) in happen {
        happens();
        assert!(taken(&set), "{what}: with nobody asleep");
        assert!(!taken(&set), "{what}: taken twice");
        let sleeper = asleep(&set);
        happens();
        assert!(sleeper.end().expect("wait"), "{what}: with one asleep");
        assert!(!taken(&set), "{what}: taken twice");
    }
    cntr.seterr(errors.get()).expect("seterr");
    cntr.adderr(0).expect("adderr");
    assert!(!taken(&set), "the error value did not change");
    // A thread can sleep on such a counter itself, but not on such a queue.
    let sleeper = Sleeper::asleep(cloned!(cntr; move || cntr.wait(1000, SOON)));
    assert_eq!(
        errno(cq.sread(&mut [Entry::default()], SOON)),
        Some(Errno::EINVAL)
    );
    assert_eq!(errno(eq.read(SOON)), Some(Errno::EINVAL));
    cntr.set(1000).expect("set");
    sleeper.end().expect("wait");
}

fn one_waiter_takes_a_signal() {
    let (_, set, cntr) = counter_of_set();
    let mut sleepers: Vec<_> = (0..4).map(|_| asleep(&set)).collect();
    while !sleepers.is_empty() {
        let before = sleepers.len();
        let runs: u64 = sleepers.iter().map(Sleeper::sleeps).sum();
        cntr.add(1).expect("add");
        until("one released", || sleepers.iter().any(Sleeper::is_finished));
        std::thread::sleep(Duration::from_millis(10));
        let (done, left): (Vec<_>, Vec<_>) = sleepers.into_iter().partition(Sleeper::is_finished);
        assert_eq!((done.len(), left.len()), (1, before - 1));
        // The other threads have not even run.
        let left_runs: u64 = left.iter().map(Sleeper::sleeps).sum();
        assert!(left_runs <= runs, "{left_runs} of {runs}");
        for sleeper in done {
            assert!(sleeper.end().expect("wait"));
        }
        sleepers = left;
    }
    assert!(!taken(&set));
}

fn pending_signals_of_a_set_are_merged() {
    let (_, set, cntr) = counter_of_set();
    for _ in 0..100 {
        cntr.add(1).expect("add");
    }
    assert!(taken(&set));
    assert!(!taken(&set));
    // An add of 0 changes no value.
    cntr.add(0).expect("add");
    assert!(!taken(&set));
}

fn a_waiter_wakes_once_for_each_signal() {
    const ROUNDS: u64 = 2000;
    let (_, set, cntr) = counter_of_set();
    // A thread that takes a signal reads the counter afterwards, so it always sees the last
    // value.
    let waiter = {
        let (cntr, set) = (cntr.clone(), set.clone());
        Sleeper::new(move || {
            while cntr.value() < ROUNDS {
                assert!(set.wait(SOON).expect("wait"), "a signal was lost");
            }
        })
    };
    for _ in 0..ROUNDS {
        cntr.add(1).expect("add");
    }
    waiter.end();
}

fn a_descriptor_is_readable_while_a_signal_is_pending() {
    let (_, set, cntr) = counter_of_set();
    let fd = set.wait_fd().expect("fd");
    let readable = || fd.wait(Duration::ZERO).expect("poll");
    assert!(!readable());
    fd.set_nonblocking(true).expect("fcntl");
    assert_eq!(errno(fd.consume()), Some(Errno::EAGAIN));
    cntr.add(1).expect("add");
    assert!(readable() && readable());
    fd.consume().expect("read");
    assert!(!readable());
    // A signal is taken once, by call or by read.
    cntr.add(1).expect("add");
    assert!(taken(&set));
    assert!(!readable());
    assert_eq!(errno(fd.consume()), Some(Errno::EAGAIN));
    // A thread that sleeps in a call gets it before those that poll.
    let sleeper = asleep(&set);
    cntr.add(1).expect("add");
    assert!(sleeper.end().expect("wait"));
    assert!(!readable());
    // A read of fewer than 8 bytes takes nothing; of more, 8 bytes.
    cntr.add(1).expect("add");
    let mut bytes = [0xee; 16];
    assert!(rustix::io::read(&fd, &mut bytes[..7]).is_err());
    assert_eq!(rustix::io::read(&fd, &mut bytes), Ok(8));
    assert_eq!(bytes[..8], 1u64.to_ne_bytes());
    assert_eq!(bytes[8..], [0xee; 8]);
    assert!(rustix::io::write(&fd, &bytes[..8]).is_err());
    // A thread that sleeps in read, one that sleeps in poll.
    fd.set_nonblocking(false).expect("fcntl");
    let reader = Sleeper::asleep(move || fd.consume());
    cntr.add(1).expect("add");
    reader.end().expect("read");
    let other = set.wait_fd().expect("fd");
    let poller = Sleeper::new(move || other.wait(Deadline::FOREVER).expect("poll"));
    std::thread::sleep(Duration::from_millis(20));
    cntr.add(1).expect("add");
    assert!(poller.end());
    assert!(taken(&set));
}

fn one_thread_serves_many_queues() {
    const OF_EACH_KIND: usize = 6;
    const EACH: u64 = 40;
    let (fabric, domain) = domain();
    let set = fabric.wait_set().expect("wait set");
    let wait = || Wait::Set(set.clone());
    let mut counters = Vec::new();
    let mut cqs = Vec::new();
    let mut eqs = Vec::new();
    let mut clients = Vec::new();
    for _ in 0..OF_EACH_KIND {
        let cntr = domain.cntr().wait(wait()).open().expect("cntr");
        let cq = domain.cq().wait(wait()).open().expect("cq");
        let eq = fabric.eq().wait(wait()).writable().open().expect("eq");
        counters.push(cntr.clone());
        cqs.push(cq.clone());
        eqs.push(eq.clone());
        let (av, ep, me) = with_itself(&domain, &cq);
        clients.push(move || {
            let _av = av;
            let buffer = Buffer::new(8).expect("buffer");
            for number in 0..EACH {
                cntr.add(1).expect("add");
                ep.send(me, &buffer, number).expect("send");
                eq.write(EventKind::Notify, &number.to_ne_bytes())
                    .expect("write");
                std::thread::yield_now();
            }
        });
    }
    // A signal does not name its member, and can be that of several.
    let server = {
        let set = set.clone();
        Sleeper::new(move || {
            let (mut completions, mut events) = ([0; OF_EACH_KIND], [0; OF_EACH_KIND]);
            let all = [EACH; OF_EACH_KIND];
            while (completions, events) != (all, all)
                || counters.iter().any(|cntr| cntr.value() < EACH)
            {
                assert!(set.wait(SOON).expect("wait"), "a signal was lost");
                for (cq, next) in cqs.iter().zip(&mut completions) {
                    let mut entry = [Entry::default()];
                    while cq.read(&mut entry).expect("read") == 1 {
                        assert_eq!(entry[0].op_context, *next);
                        *next += 1;
                    }
                }
                for (eq, next) in eqs.iter().zip(&mut events) {
                    while let Some(event) = eq.read(Duration::ZERO).expect("read") {
                        assert_eq!(event.data, next.to_ne_bytes());
                        *next += 1;
                    }
                }
            }
            counters.iter().map(|cntr| cntr.value()).sum::<u64>()
        })
    };
    let clients: Vec<_> = clients.into_iter().map(Sleeper::new).collect();
    clients.into_iter().for_each(Sleeper::join);
    assert_eq!(server.end(), OF_EACH_KIND as u64 * EACH);
}

/// The contexts of ready members.
#[track_caller]
fn ready(set: &PollSet) -> Vec<u64> {
    let mut contexts = set.poll(64).expect("poll");
    contexts.sort_unstable();
    contexts
}

fn a_poll_set_returns_ready_members() {
    let alone = Alone::with_cq(|cq| cq.context(1));
    let set = alone.domain.poll_set().expect("poll set");
    let cntr = alone.domain.cntr().context(2).open().expect("cntr");
    let quiet = alone.domain.cntr().context(3).open().expect("cntr");
    set.add(&alone.cq).expect("add");
    set.add(&cntr).expect("add");
    set.add(&quiet).expect("add");
    assert!(ready(&set).is_empty());
    alone.complete_all(0..2);
    cntr.add(1).expect("add");
    assert_eq!(ready(&set), [1, 2]);
    // A CQ is ready as long as it has an entry or an error entry.
    assert_eq!(ready(&set), [1]);
    assert_eq!(alone.read(1), [0]);
    assert_eq!(ready(&set), [1]);
    assert_eq!(alone.read(1), [1]);
    assert!(ready(&set).is_empty());
    alone.fail(5);
    assert_eq!(ready(&set), [1]);
    alone.read_error();
    assert!(ready(&set).is_empty());
    // Removed from the set it is not reported; added again it is.
    cntr.add(1).expect("add");
    set.remove(&cntr).expect("remove");
    assert!(ready(&set).is_empty());
    set.add(&cntr).expect("add");
    assert!(ready(&set).is_empty(), "what was before it was added");
    cntr.add(1).expect("add");
    assert_eq!(ready(&set), [2]);
}

fn a_poll_set_reports_a_change_once() {
    let (_, domain) = domain();
    let (one, two) = (
        domain.poll_set().expect("set"),
        domain.poll_set().expect("set"),
    );
    let cntr = domain.cntr().context(7).open().expect("cntr");
    one.add(&cntr).expect("add");
    two.add(&cntr).expect("add");
    let changes: [&dyn Fn(); 4] = [
        &|| cntr.add(3).expect("add"),
        &|| cntr.set(1).expect("set"),
        &|| cntr.adderr(1).expect("adderr"),
        &|| cntr.seterr(0).expect("seterr"),
    ];
    for change in changes {
        change();
        // Each set has its own state.
        for set in [&one, &two] {
            assert_eq!(ready(set), [7]);
            assert!(ready(set).is_empty());
        }
    }
    // A change and its reverse are a change.
    cntr.set(5).expect("set");
    cntr.set(1).expect("set");
    assert_eq!(ready(&one), [7]);
}

fn a_poll_set_serves_its_members_in_turn() {
    let (_, domain) = domain();
    let set = domain.poll_set().expect("poll set");
    let counters: Vec<_> = (0..10)
        .map(|context| {
            let cntr = domain.cntr().context(context).open().expect("cntr");
            set.add(&cntr).expect("add");
            cntr
        })
        .collect();
    // With room for three at a time, each member is reported though all are busy.
    let mut reported = BTreeSet::new();
    for _ in 0..4 {
        counters.iter().for_each(|cntr| cntr.add(1).expect("add"));
        let some = set.poll(3).expect("poll");
        assert_eq!(some.len(), 3);
        reported.extend(some);
    }
    assert!(reported.into_iter().eq(0..10));
}

fn a_poll_set_keeps_its_members_open() {
    let (_, domain) = domain();
    let set = domain.poll_set().expect("poll set");
    let (cntr, cq) = (
        domain.cntr().open().expect("cntr"),
        domain.cq().open().expect("cq"),
    );
    set.add(&cntr).expect("add");
    set.add(&cq).expect("add");
    assert_eq!(errno(cntr.clone().close()), Some(Errno::EBUSY));
    assert_eq!(errno(cq.clone().close()), Some(Errno::EBUSY));
    set.remove(&cntr).expect("remove");
    cntr.close().expect("close");
    set.close().expect("close");
    cq.close().expect("close");
    // Hosts can still be made after all that.
    let host = Host::with(&Options::default());
    let buffer = Buffer::new(8).expect("buffer");
    assert!(host.domain.mr(&buffer).access(Access::SEND).open().is_ok());
}
