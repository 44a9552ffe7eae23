// SPDX-License-Identifier: GPL-2.0
//! Deferred work (fi_trigger(3), "Deferred work queues"): operations of each type, their order and
//! their completions, on one host and over the wire.

use crate::{
    alone::stat_of,
    connected::open_region,
    harness::tests,
    host::{Host, LINK, Options, SOON, buffer, domain, errno, pair, pattern},
    hosts,
    ways::Way,
};
use kfi::{
    Buffer, Cntr, CompFlags, Domain, Errno, Op, OpFlags, Remote, StatClass, StatValues, Work,
};
use std::time::Duration;

tests![
    a_message_is_sent_when_due: [OneHost, TwoHosts, Connection, Datagrams],
    a_receive_is_posted_when_due: [OneHost, TwoHosts, Connection, Datagrams],
    a_region_is_written_and_read_when_due: [OneHost, TwoHosts, Connection],
    a_tagged_message_is_deferred_at_both_ends: [OneHost, TwoHosts],
    a_counter_is_changed_when_due,
    errors_count_towards_the_threshold,
    work_that_is_due_starts_at_once,
    one_add_starts_work_in_order,
    a_threshold_that_was_reached_counts,
    a_wrap_reaches_every_threshold,
    a_chain_runs_by_itself,
    a_ring_of_counters_ends,
    a_ring_of_endpoints_runs_by_itself,
    cancelled_work_leaves_no_trace,
    work_of_one_counter_or_of_all_is_flushed,
    objects_with_work_stay_open,
    invalid_work_is_refused,
    work_is_limited => 300,
    statistics_show_work,
];

pub(crate) const SENT: CompFlags = CompFlags::MSG.union(CompFlags::SEND);
pub(crate) const RECEIVED: CompFlags = CompFlags::MSG.union(CompFlags::RECV);

/// The time during which nothing may happen.
pub(crate) const QUIET: Duration = Duration::from_millis(100);

pub(crate) fn cntr(domain: &Domain) -> Cntr {
    domain.cntr().open().expect("cntr")
}

/// Queues one work.
#[track_caller]
pub(crate) fn queue(domain: &Domain, work: Work<'_>) -> kfi::WorkId {
    domain.queue_one(&work).expect("queue_work")
}

/// Queues a transfer of `host`, which waits until `go` reaches the threshold and counts at `done`.
#[track_caller]
pub(crate) fn defer(host: &Host, go: &Cntr, threshold: u64, op: Op<'_>, done: &Cntr) {
    let work = Work::transfer(go, threshold, &host.ep, op).completion(done);
    queue(&host.domain, work);
}

/// Waits until the value is reached.
#[track_caller]
pub(crate) fn wait(cntr: &Cntr, value: u64) {
    cntr.wait(value, SOON).expect("cntr wait");
}

fn a_message_is_sent_when_due(way: Way) {
    let (a, to_b, b) = way.pair();
    let (go, sent) = (cntr(&a.domain), cntr(&a.domain));
    let (from, into) = (Buffer::from_bytes(b"deferred").expect("buffer"), buffer(8));
    b.ep.recv(&into, 5).expect("recv");
    defer(&a, &go, 2, Op::send(to_b, &from), &sent);
    go.add(1).expect("add");
    std::thread::sleep(QUIET);
    b.expect_nothing();
    assert_eq!(sent.value(), 0);
    go.add(1).expect("add");
    b.expect(RECEIVED, 5);
    assert_eq!(into.to_vec(..), b"deferred");
    wait(&sent, 1);
    // The target's CQ has an entry, that of the initiator has none.
    a.expect_nothing();
    assert_eq!((sent.err(), go.value()), (0, 2));
}

fn a_receive_is_posted_when_due(way: Way) {
    let (a, to_b, b) = way.pair();
    let (go, received) = (cntr(&b.domain), cntr(&b.domain));
    let into = buffer(8);
    defer(&b, &go, 1, Op::recv(&into).context(9), &received);
    go.add(1).expect("add");
    // The call has posted the receive: a datagram needs one when it arrives.
    a.ep.inject(to_b, b"arriving").expect("inject");
    wait(&received, 1);
    assert_eq!(into.to_vec(..), b"arriving");
    b.expect_nothing();
}

fn a_region_is_written_and_read_when_due(way: Way) {
    let (a, to_b, b) = way.pair();
    let (go, done) = (cntr(&a.domain), cntr(&a.domain));
    let theirs = buffer(10_000);
    let mr = open_region(&b, &theirs, 1);
    let bytes = pattern(10_000, 1);
    let (from, into) = (Buffer::from_bytes(&bytes).expect("buffer"), buffer(10_000));
    let remote = Remote::new(0, mr.key());
    // The read is due when the write has completed.
    let write = Work::transfer(&go, 1, &a.ep, Op::write(to_b, &from, remote)).completion(&done);
    let read = Work::transfer(&done, 1, &a.ep, Op::read(to_b, &into, remote)).completion(&done);
    assert!(a.domain.queue_work(&[read, write]).expect("queue").all());
    go.add(1).expect("add");
    wait(&done, 2);
    assert!(theirs.to_vec(..) == bytes && into.to_vec(..) == bytes);
    a.expect_nothing();
    b.expect_nothing();
}

fn a_tagged_message_is_deferred_at_both_ends(way: Way) {
    let (a, to_b, b) = way.pair();
    let (go, sent) = (cntr(&a.domain), cntr(&a.domain));
    let (ready, received) = (cntr(&b.domain), cntr(&b.domain));
    let (from, into) = (Buffer::from_bytes(b"tagged").expect("buffer"), buffer(6));
    let send = Op::tsend(to_b, &from, 7).flags(OpFlags::DELIVERY_COMPLETE);
    defer(&a, &go, 1, send, &sent);
    let receive = Work::transfer(&ready, 1, &b.ep, Op::trecv(&into, 7, 0));
    queue(&b.domain, receive.completion(&received));
    go.add(1).expect("add");
    std::thread::sleep(QUIET);
    assert_eq!((sent.value(), received.value()), (0, 0));
    ready.add(1).expect("add");
    wait(&received, 1);
    wait(&sent, 1);
    assert_eq!(into.to_vec(..), b"tagged");
    a.expect_nothing();
    b.expect_nothing();
}

fn a_counter_is_changed_when_due() {
    let (_, domain) = domain();
    let (go, a, b) = (cntr(&domain), cntr(&domain), cntr(&domain));
    let queued = domain.queue_work(&[
        Work::add(&go, 1, &a, 3),
        Work::set(&go, 2, &a, 10),
        Work::set(&go, 3, &b, 7),
        Work::add(&go, 3, &b, 1),
    ]);
    assert!(queued.expect("queue_work").all());
    assert_eq!((a.value(), b.value()), (0, 0));
    go.add(1).expect("add");
    assert_eq!((a.value(), b.value()), (3, 0));
    go.set(2).expect("set");
    assert_eq!((a.value(), b.value()), (10, 0));
    go.add(1).expect("add");
    assert_eq!((a.value(), b.value()), (10, 8));
    // A waiter of the changed counter is woken.
    queue(&domain, Work::add(&go, 4, &a, 1));
    let waiter = {
        let a = a.clone();
        std::thread::spawn(move || a.wait(11, SOON).map(|values| values.value))
    };
    crate::host::until_asleep(&a, 1);
    go.add(1).expect("add");
    assert_eq!(waiter.join().expect("join").expect("wait"), 11);
}

fn errors_count_towards_the_threshold() {
    let (_, domain) = domain();
    let (go, done) = (cntr(&domain), cntr(&domain));
    queue(&domain, Work::add(&go, 3, &done, 1));
    go.add(1).expect("add");
    go.adderr(1).expect("adderr");
    assert_eq!(done.value(), 0);
    go.seterr(2).expect("seterr");
    assert_eq!(done.value(), 1);
    // An error value that was lowered has been reached.
    queue(&domain, Work::add(&go, 10, &done, 1));
    go.seterr(9).expect("seterr");
    go.seterr(0).expect("seterr");
    assert_eq!(done.value(), 2);
}

fn work_that_is_due_starts_at_once() {
    let (a, to_b, b, _) = pair();
    let (go, done) = (cntr(&a.domain), cntr(&a.domain));
    go.set(5).expect("set");
    let into = buffer(4);
    b.ep.recv(&into, 1).expect("recv");
    let from = Buffer::from_bytes(b"once").expect("buffer");
    let send = Work::transfer(&go, 5, &a.ep, Op::send(to_b, &from)).completion(&done);
    let queued = (a.domain).queue_work(&[send, Work::add(&go, 0, &done, 10)]);
    let queued = queued.expect("queue_work");
    assert_eq!(done.value(), 11);
    b.expect(RECEIVED, 1);
    for id in &queued.ids {
        assert_eq!(errno(a.domain.cancel_work(id)), Some(Errno::ENOENT));
    }
}

/// "Threshold operations are triggered in the order of the threshold values. This is true even if
/// the counter increments by a value greater than 1." And of the same threshold: as submitted.
fn one_add_starts_work_in_order() {
    let (a, to_b, b, _) = pair();
    let go = cntr(&a.domain);
    let thresholds = [5u64, 3, 9, 3, 1, 5, 9, 2, 3, 20];
    for (number, threshold) in thresholds.iter().enumerate() {
        let bytes = [number as u8];
        let op = Op::inject(to_b, &bytes);
        queue(&a.domain, Work::transfer(&go, *threshold, &a.ep, op));
    }
    let mut due: Vec<_> = (thresholds.iter().copied().enumerate())
        .filter(|(_, threshold)| *threshold <= 10)
        .map(|(number, threshold)| (threshold, number))
        .collect();
    due.sort_unstable();
    go.add(10).expect("add");
    let into = buffer(1);
    for (_, number) in due {
        b.ep.recv(&into, 1).expect("recv");
        b.expect(RECEIVED, 1);
        assert_eq!(into.to_vec(..), [number as u8]);
    }
    b.ep.recv(&into, 1).expect("recv");
    b.expect_nothing();
}

fn a_threshold_that_was_reached_counts() {
    let (_, domain) = domain();
    let (go, done) = (cntr(&domain), cntr(&domain));
    queue(&domain, Work::add(&go, 3, &done, 1));
    go.set(3).expect("set");
    go.set(1).expect("set");
    assert_eq!(done.value(), 1);
    // Not before it was queued.
    queue(&domain, Work::add(&go, 3, &done, 1));
    assert_eq!(done.value(), 1);
    go.add(2).expect("add");
    assert_eq!(done.value(), 2);
}

fn a_wrap_reaches_every_threshold() {
    let (_, domain) = domain();
    let go = domain.cntr().max_value(9).open().expect("cntr");
    let done = cntr(&domain);
    queue(&domain, Work::add(&go, 9, &done, 1));
    queue(&domain, Work::add(&go, 10, &done, 100));
    go.add(8).expect("add");
    assert_eq!(done.value(), 0);
    go.add(4).expect("add");
    assert_eq!((go.value(), done.value()), (2, 1));
    // With the error value the sum may exceed the maximum.
    go.adderr(8).expect("adderr");
    assert_eq!(done.value(), 101);
}

fn a_chain_runs_by_itself() {
    const LINKS: usize = 1000;
    let (_, domain) = domain();
    let cntrs: Vec<_> = (0..=LINKS).map(|_| cntr(&domain)).collect();
    let works: Vec<_> = (cntrs.windows(2))
        .map(|pair| Work::add(&pair[0], 1, &pair[1], 1))
        .collect();
    assert!(domain.queue_work(&works).expect("queue_work").all());
    cntrs[0].add(1).expect("add");
    wait(&cntrs[LINKS], 1);
    assert!(cntrs.iter().all(|cntr| cntr.value() == 1));
}

/// Two counters start each other, many times; other users go on, and nothing is lost.
fn a_ring_of_counters_ends() {
    const ROUNDS: u64 = 20_000;
    let (_, domain) = domain();
    let (a, b) = (cntr(&domain), cntr(&domain));
    let works: Vec<_> = (1..=ROUNDS)
        .flat_map(|n| [Work::add(&a, n, &b, 1), Work::add(&b, n, &a, 1)])
        .collect();
    for part in works.chunks(4000) {
        assert!(domain.queue_work(part).expect("queue_work").all());
    }
    a.add(1).expect("add");
    wait(&b, ROUNDS);
    wait(&a, ROUNDS + 1);
    // One that adds to itself.
    let own: Vec<_> = (1..=3000)
        .map(|n| Work::add(&b, ROUNDS + n, &b, 1))
        .collect();
    assert!(domain.queue_work(&own).expect("queue_work").all());
    b.add(1).expect("add");
    wait(&b, ROUNDS + 3001);
}

/// A token goes round four endpoints on two hosts, by receives and sends that start each other.
fn a_ring_of_endpoints_runs_by_itself() {
    const ROUNDS: u64 = 20;
    hosts::apart();
    let hosts: Vec<_> = (0..4).map(|_| Host::new()).collect();
    let next: Vec<_> = (0..4).map(|n| hosts[n].meet(&hosts[(n + 1) % 4])).collect();
    let buffers: Vec<_> = (0..4).map(|_| buffer(8)).collect();
    let cntrs: Vec<_> = (hosts.iter()).map(|host| cntr(&host.domain)).collect();
    for (n, host) in hosts.iter().enumerate() {
        // Each receive is work that is due at once; its completion makes a send due.
        let now = cntr(&host.domain);
        for round in 1..=ROUNDS {
            let receive = Work::transfer(&now, 0, &host.ep, Op::recv(&buffers[n]));
            queue(&host.domain, receive.completion(&cntrs[n]));
            if n != 3 || round != ROUNDS {
                let send = Op::send(next[n], &buffers[n]);
                queue(
                    &host.domain,
                    Work::transfer(&cntrs[n], round, &host.ep, send),
                );
            }
        }
    }
    let token = Buffer::from_bytes(b"a token.").expect("buffer");
    hosts[3].ep.send(next[3], &token, 99).expect("send");
    for (n, cntr) in cntrs.iter().enumerate() {
        wait(cntr, ROUNDS);
        assert_eq!(buffers[n].to_vec(..), b"a token.");
    }
}

fn cancelled_work_leaves_no_trace() {
    let (a, to_b, b, _) = pair();
    let (go, done) = (cntr(&a.domain), cntr(&a.domain));
    let (from, into) = (buffer(8), buffer(8));
    b.ep.recv(&into, 1).expect("recv");
    let send = Work::transfer(&go, 1, &a.ep, Op::send(to_b, &from)).completion(&done);
    let ids = [
        queue(&a.domain, send),
        queue(&a.domain, Work::add(&go, 1, &done, 1)),
        queue(&a.domain, send),
    ];
    a.domain.cancel_work(&ids[0]).expect("cancel");
    a.domain.cancel_work(&ids[1]).expect("cancel");
    assert_eq!(errno(a.domain.cancel_work(&ids[0])), Some(Errno::ENOENT));
    // Neither another threshold nor another number.
    let wrong = kfi::WorkId {
        threshold: 2,
        ..ids[2]
    };
    assert_eq!(errno(a.domain.cancel_work(&wrong)), Some(Errno::ENOENT));
    let wrong = kfi::WorkId { id: 77, ..ids[2] };
    assert_eq!(errno(a.domain.cancel_work(&wrong)), Some(Errno::ENOENT));
    a.domain.cancel_work(&ids[2]).expect("cancel");
    go.add(5).expect("add");
    std::thread::sleep(QUIET);
    a.expect_nothing();
    b.expect_nothing();
    assert_eq!((done.value(), done.err()), (0, 0));
    // Nothing is in use any more.
    go.close().expect("close");
    done.close().expect("close");
}

fn work_of_one_counter_or_of_all_is_flushed() {
    let (fabric, domain) = domain();
    let (a, b, done) = (cntr(&domain), cntr(&domain), cntr(&domain));
    assert_eq!(domain.flush_work().expect("flush"), 0);
    for n in 1..=100 {
        queue(&domain, Work::add(&a, n, &done, 1));
        queue(&domain, Work::add(&b, n, &done, 1));
    }
    assert_eq!(domain.flush_work_of(&a).expect("flush"), 100);
    a.add(100).expect("add");
    assert_eq!(done.value(), 0);
    b.add(40).expect("add");
    assert_eq!(done.value(), 40);
    queue(&domain, Work::add(&a, 200, &done, 1));
    assert_eq!(domain.flush_work().expect("flush"), 61);
    a.add(100).expect("add");
    b.add(60).expect("add");
    assert_eq!(done.value(), 40);
    let foreign = cntr(&fabric.domain(LINK).open().expect("domain"));
    assert_eq!(errno(domain.flush_work_of(&foreign)), Some(Errno::EINVAL));
}

fn objects_with_work_stay_open() {
    let a = Host::new();
    let (go, changed, done) = (cntr(&a.domain), cntr(&a.domain), cntr(&a.domain));
    let into = buffer(8);
    let change = queue(&a.domain, Work::add(&go, 1, &changed, 1));
    for cntr in [&go, &changed] {
        assert_eq!(errno(cntr.clone().close()), Some(Errno::EBUSY));
    }
    a.domain.cancel_work(&change).expect("cancel");
    changed.close().expect("close");
    let receive = Work::transfer(&go, 1, &a.ep, Op::recv(&into).context(1)).completion(&done);
    queue(&a.domain, receive);
    assert_eq!(errno(a.ep.clone().close()), Some(Errno::EBUSY));
    assert_eq!(errno(done.clone().close()), Some(Errno::EBUSY));
    assert_eq!(errno(a.domain.clone().close()), Some(Errno::EBUSY));
    go.add(1).expect("add");
    // The receive was posted: it uses its completion counter, and no other object.
    go.close().expect("close");
    assert_eq!(errno(done.clone().close()), Some(Errno::EBUSY));
    a.ep.cancel(1).expect("cancel");
    let _ = a.failure();
    done.close().expect("close");
    a.ep.close().expect("close");
}

fn invalid_work_is_refused() {
    let (fabric, domain) = domain();
    let a = Host::on(&domain, &Options::default());
    let to_b = a.meet(&a);
    let (go, done) = (cntr(&domain), cntr(&domain));
    let small = domain.cntr().max_value(5).open().expect("cntr");
    let foreign = cntr(&fabric.domain(LINK).open().expect("domain"));
    let into = buffer(64);
    let transfer = |op| Work::transfer(&go, 1, &a.ep, op);
    let send = Op::send(to_b, &into);
    let refused = [
        (Work::add(&go, 1, &done, 1).completion(&done), Errno::EINVAL),
        (Work::add(&go, 1, &foreign, 1), Errno::EINVAL),
        (Work::add(&foreign, 1, &done, 1), Errno::EINVAL),
        (Work::set(&go, 1, &small, 6), Errno::EINVAL),
        (transfer(send).completion(&foreign), Errno::EINVAL),
        (transfer(send.trigger(&go, 1)), Errno::EINVAL),
        (transfer(Op::multi_recv(&into)), Errno::ENOSYS),
        (transfer(Op::tpeek(1, 0)), Errno::ENOSYS),
        (transfer(send.flags(OpFlags::MULTI_RECV)), Errno::EINVAL),
    ];
    for (work, error) in refused {
        assert_eq!(errno(domain.queue_one(&work)), Some(error), "{work:?}");
    }
    assert_eq!(errno(domain.queue_work(&[])), Some(Errno::EINVAL));
    // The work before a refused one is queued.
    let queued = domain.queue_work(&[
        Work::add(&go, 1, &done, 1),
        Work::add(&go, 1, &foreign, 1),
        Work::add(&go, 1, &done, 1),
    ]);
    let queued = queued.expect("queue_work");
    assert_eq!((queued.ids.len(), queued.error), (1, Some(Errno::EINVAL)));
    go.add(1).expect("add");
    assert_eq!(done.value(), 1);
    // An endpoint that is not enabled.
    let ep = domain.endpoint().open().expect("ep");
    let early = Work::transfer(&go, 1, &ep, send);
    assert_eq!(
        errno(domain.queue_one(&early)),
        Some(Errno::KFI_EOPBADSTATE)
    );
}

fn work_is_limited() {
    let (_, domain) = domain();
    let max = crate::host::device().query().expect("query").max_work;
    assert!(max >= 100_000);
    let (go, done) = (cntr(&domain), cntr(&domain));
    let works = vec![Work::add(&go, 7, &done, 1); 4096];
    let mut queued = 0;
    let error = loop {
        let call = domain.queue_work(&works);
        match call {
            Ok(call) => {
                queued += call.ids.len();
                if let Some(error) = call.error {
                    break error;
                }
            }
            Err(error) => break error.errno().expect("errno"),
        }
    };
    assert_eq!((error, queued), (Errno::ENOSPC, max as usize));
    // An add that reaches none of them, and one that reaches all.
    go.add(6).expect("add");
    assert_eq!(done.value(), 0);
    go.add(1).expect("add");
    // So many works take minutes on a sanitizing kernel that shares its CPUs.
    let long = Duration::from_secs(200);
    done.wait(queued as u64, long).expect("cntr wait");
    assert_eq!(done.value(), queued as u64);
    queue(&domain, Work::add(&go, 8, &done, 1));
    assert_eq!(domain.flush_work().expect("flush"), 1);
}

fn statistics_show_work() {
    let (_, domain) = domain();
    let (go, done) = (cntr(&domain), cntr(&domain));
    let shown = || match stat_of(StatClass::Cntr, go.handle()) {
        Some(StatValues::Cntr {
            work,
            work_threshold,
            work_due,
            ..
        }) => (work, work_threshold, work_due),
        other => panic!("{other:?}"),
    };
    assert_eq!(shown(), (0, None, 0));
    queue(&domain, Work::add(&go, 9, &done, 1));
    queue(&domain, Work::add(&go, 4, &done, 1));
    assert_eq!(shown(), (2, Some(4), 0));
    go.add(4).expect("add");
    assert_eq!(shown(), (1, Some(9), 1));
}
