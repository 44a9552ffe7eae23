// SPDX-License-Identifier: GPL-2.0
//! Completions of deferred work: its completion counter, the CQ and the counters of its endpoint,
//! and the counters of its target; successes and failures.

use crate::{
    connected::open_region,
    deferred::{QUIET, RECEIVED, SENT, cntr, defer, queue, wait},
    harness::tests,
    host::{Host, Options, buffer, domain, until},
    hosts,
    ways::Way,
};
use kfi::{
    AtomicOp, Buffer, Caps, Cntr, CntrBind, CqBind, Datatype, Errno, FiAddr, Op, OpFlags, Work,
};

tests![
    completions_are_made_on_request: [OneHost, TwoHosts],
    deferred_work_is_silent_at_its_endpoint: [OneHost, TwoHosts, Connection, Datagrams],
    a_counter_of_the_endpoint_can_be_the_completion_counter,
    a_cancelled_receive_is_counted_and_makes_an_error_entry,
    a_receive_whose_endpoint_closes_counts_nowhere,
    a_failure_counts_at_the_endpoint_on_request,
    a_transfer_that_cannot_start_has_failed,
    deferred_work_counts_at_its_target: [OneHost, TwoHosts],
];

/// A host, and the counters of its endpoint.
type Counted<const N: usize> = (Host, [Cntr; N]);

/// A host whose endpoint has a counter for each of these kinds.
fn counted<const N: usize>(options: &Options, kinds: [CntrBind; N]) -> Counted<N> {
    let (_, domain) = domain();
    let counters = kinds.map(|_| cntr(&domain));
    let host = Host::prepared(&domain, options, None, |ep| {
        for (cntr, kind) in counters.iter().zip(kinds) {
            ep.bind_cntr(cntr, kind).expect("bind cntr");
        }
    });
    (host, counters)
}

fn counted_pair<const N: usize>(
    way: Way,
    kinds: [CntrBind; N],
) -> (Counted<N>, FiAddr, Counted<N>) {
    if way == Way::TwoHosts {
        hosts::apart();
    }
    let usual = way.options(&Options::default());
    let caps = match way {
        Way::Datagrams => usual.caps,
        _ => usual.caps | Caps::ATOMIC,
    };
    let options = Options { caps, ..usual };
    let (a, b) = (counted(&options, kinds), counted(&options, kinds));
    let to_b = way.introduce(&a.0, &b.0);
    (a, to_b, b)
}

/// With KFI_COMPLETION a transfer completes as any other, and counts on its completion counter too.
fn completions_are_made_on_request(way: Way) {
    let options = Options {
        bind: CqBind::TRANSMIT | CqBind::RECV | CqBind::SELECTIVE,
        ..Options::default()
    };
    let (a, to_b, b) = way.pair_with(&options);
    // Endpoints with counters of their own.
    let counted = |host: &Host| {
        let sends = cntr(&host.domain);
        let ep = host
            .domain
            .endpoint()
            .caps(options.caps)
            .open()
            .expect("ep");
        ep.bind_cq(&host.cq, options.bind).expect("bind cq");
        ep.bind_av(&host.av).expect("bind av");
        ep.bind_cntr(&sends, CntrBind::SEND | CntrBind::RECV)
            .expect("bind cntr");
        ep.enable().expect("enable");
        (ep, sends)
    };
    let (ep, sends) = counted(&a);
    let (go, done) = (cntr(&a.domain), cntr(&a.domain));
    let (from, into) = (buffer(8), buffer(8));
    for _ in 0..2 {
        let receive = Op::recv(&into).flags(OpFlags::COMPLETION).context(1);
        b.ep.post_one(&receive).expect("recv");
    }
    let silent = Op::send(to_b, &from).context(2);
    let told = silent.flags(OpFlags::COMPLETION).context(3);
    queue(
        &a.domain,
        Work::transfer(&go, 1, &ep, silent).completion(&done),
    );
    queue(
        &a.domain,
        Work::transfer(&go, 2, &ep, told).completion(&done),
    );
    go.add(1).expect("add");
    b.expect(RECEIVED, 1);
    wait(&done, 1);
    a.expect_nothing();
    assert_eq!(sends.value(), 0);
    go.add(1).expect("add");
    a.expect(SENT, 3);
    // A program that has seen the entry sees the counters.
    assert_eq!((done.value(), sends.value()), (2, 1));
    b.expect(RECEIVED, 1);
}

/// "completed operations are not written to the EP's completion queue or update the EP counter":
/// work of each kind; and with KFI_COMPLETION they are.
fn deferred_work_is_silent_at_its_endpoint(way: Way) {
    const UINT64: Datatype = Datatype::Uint64;
    let has_tags = matches!(way, Way::OneHost | Way::TwoHosts);
    let messages = 1 + usize::from(has_tags);
    let (writes, reads) = if way.has_rma() { (2, 3) } else { (0, 0) };
    let kinds = [
        CntrBind::SEND,
        CntrBind::RECV,
        CntrBind::WRITE,
        CntrBind::READ,
    ];
    let ((a, at_a), to_b, (b, at_b)) = counted_pair(way, kinds);
    let values = |counters: &[Cntr; 4]| counters.each_ref().map(|cntr| (cntr.value(), cntr.err()));
    let theirs = Buffer::of(&[0u64; 2]).expect("buffer");
    let mr = open_region(&b, &theirs, 1);
    let at = mr.remote(0);
    let (word, before, into) = (buffer(8), buffer(8), buffer(8));
    let (go, done) = (cntr(&a.domain), cntr(&a.domain));
    let (ready, received) = (cntr(&b.domain), cntr(&b.domain));
    for told in [false, true] {
        let flags = match told {
            true => OpFlags::COMPLETION,
            false => OpFlags::empty(),
        };
        // At the receiver.
        let receives = [Op::recv(&into), Op::trecv(&into, 7, 0)];
        for op in receives.into_iter().take(messages) {
            let work = Work::transfer(&ready, 0, &b.ep, op.flags(flags).context(9));
            queue(&b.domain, work.completion(&received));
        }
        let mut ops = vec![Op::send(to_b, &word)];
        if has_tags {
            ops.push(Op::tsend(to_b, &word, 7));
        }
        if way.has_rma() {
            ops.extend([
                Op::write(to_b, &word, at),
                Op::read(to_b, &before, at),
                Op::atomic(to_b, &word, at, UINT64, AtomicOp::Sum),
                Op::fetch_atomic(to_b, &word, &before, at, UINT64, AtomicOp::Sum),
                Op::compare_atomic(to_b, &word, &word, &before, at, UINT64, AtomicOp::Cswap),
            ]);
        }
        for op in ops {
            let (due, finished) = (go.value() + 1, done.value() + 1);
            let work = Work::transfer(&go, due, &a.ep, op.flags(flags).context(5));
            queue(&a.domain, work.completion(&done));
            go.add(1).expect("add");
            wait(&done, finished);
            if told {
                assert_eq!(a.completion().op_context, 5);
            }
            a.expect_nothing();
        }
        let sends = messages as u64;
        wait(&received, if told { 2 * sends } else { sends });
        if told {
            for _ in 0..sends {
                assert_eq!(b.completion().op_context, 9);
            }
            let at_target = [(0, 0), (sends, 0), (0, 0), (0, 0)];
            assert_eq!(values(&at_a), [(sends, 0), (0, 0), (writes, 0), (reads, 0)]);
            assert_eq!(values(&at_b), at_target);
        } else {
            std::thread::sleep(QUIET);
            assert_eq!(values(&at_a), [(0, 0); 4]);
            assert_eq!(values(&at_b), [(0, 0); 4]);
        }
        b.expect_nothing();
    }
    assert_eq!((done.err(), received.err()), (0, 0));
}

/// "(unless the EP counter is explicitly referenced as the completion_cntr)". With KFI_COMPLETION
/// it counts as both.
fn a_counter_of_the_endpoint_can_be_the_completion_counter() {
    let ((a, [sends, others]), to_b, (b, _)) = counted_pair(
        Way::OneHost,
        [CntrBind::SEND, CntrBind::RECV | CntrBind::WRITE],
    );
    let go = cntr(&a.domain);
    let (from, into) = (buffer(8), buffer(8));
    for context in 1..=2 {
        b.ep.recv(&into, context).expect("recv");
    }
    let send = Op::send(to_b, &from).context(5);
    defer(&a, &go, 1, send, &sends);
    go.add(1).expect("add");
    wait(&sends, 1);
    b.expect(RECEIVED, 1);
    std::thread::sleep(QUIET);
    assert_eq!((sends.value(), others.value()), (1, 0));
    a.expect_nothing();
    let told = send.flags(OpFlags::COMPLETION);
    defer(&a, &go, 2, told, &sends);
    go.add(1).expect("add");
    a.expect(SENT, 5);
    assert_eq!((sends.value(), sends.err(), others.value()), (3, 0, 0));
}

/// A receive that is cancelled has failed. Other failures:
/// [`a_failure_counts_at_the_endpoint_on_request`].
fn a_cancelled_receive_is_counted_and_makes_an_error_entry() {
    let a = Host::new();
    let (go, done) = (cntr(&a.domain), cntr(&a.domain));
    let into = buffer(8);
    let receive = Op::recv(&into).context(12);
    defer(&a, &go, 1, receive, &done);
    go.add(1).expect("add");
    a.ep.cancel(12).expect("cancel");
    let entry = a.failure();
    assert_eq!((entry.err, entry.op_context), (Errno::ECANCELED, 12));
    assert_eq!((done.value(), done.err()), (0, 1));
    a.expect_nothing();
}

/// A receive that was posted is dropped with its endpoint, and what waits for it does not start.
fn a_receive_whose_endpoint_closes_counts_nowhere() {
    let a = Host::new();
    let (go, done, after) = (cntr(&a.domain), cntr(&a.domain), cntr(&a.domain));
    let into = buffer(8);
    defer(&a, &go, 1, Op::recv(&into).context(12), &done);
    queue(&a.domain, Work::add(&done, 1, &after, 1));
    go.add(1).expect("add");
    let Host { domain, cq, ep, .. } = a;
    drop(ep);
    std::thread::sleep(QUIET);
    assert_eq!((done.value(), done.err(), after.value()), (0, 0, 0));
    assert!(matches!(cq.readerr(), Ok(None)));
    // The work still waits.
    done.add(1).expect("add");
    wait(&after, 1);
    drop(domain);
}

/// A failure: the error value of the completion counter, and an error entry. The endpoint's counter
/// counts it only with KFI_COMPLETION. Without a CQ only the completion counter reports it.
fn a_failure_counts_at_the_endpoint_on_request() {
    let ((a, [writes]), to_b, (b, _)) = counted_pair(Way::OneHost, [CntrBind::WRITE]);
    let theirs = buffer(8);
    let mr = open_region(&b, &theirs, 1);
    let (go, done) = (cntr(&a.domain), cntr(&a.domain));
    let from = buffer(8);
    let outside = Op::write(to_b, &from, mr.remote(4));
    for (round, flags, err) in [(1, OpFlags::empty(), 0), (2, OpFlags::COMPLETION, 1)] {
        let op = outside.flags(flags).context(round);
        defer(&a, &go, round, op, &done);
        go.add(1).expect("add");
        assert_eq!(a.failure().op_context, round);
        assert_eq!((done.value(), done.err()), (0, round));
        assert_eq!((writes.value(), writes.err()), (0, err));
    }
    a.expect_nothing();
    // An endpoint without a CQ.
    let ep = a.domain.endpoint().caps(Options::default().caps).open();
    let ep = ep.expect("endpoint");
    let own = cntr(&a.domain);
    let every = CntrBind::SEND | CntrBind::RECV | CntrBind::WRITE | CntrBind::READ;
    ep.bind_av(&a.av).expect("bind av");
    ep.bind_cntr(&own, every).expect("bind cntr");
    ep.enable().expect("enable");
    for (round, flags, err) in [(3, OpFlags::empty(), 0), (4, OpFlags::COMPLETION, 1)] {
        queue(
            &a.domain,
            Work::transfer(&go, round, &ep, outside.flags(flags)).completion(&done),
        );
        go.add(1).expect("add");
        until("the failure", || done.err() == round);
        assert_eq!((own.value(), own.err()), (0, err));
    }
    assert_eq!(done.value(), 0);
    a.expect_nothing();
    // The completion counter is in use no longer.
    done.close().expect("close");
}

/// The peer is looked up when the work starts.
fn a_transfer_that_cannot_start_has_failed() {
    let a = Host::new();
    let (go, done) = (cntr(&a.domain), cntr(&a.domain));
    let from = buffer(8);
    let nobody = Op::send(FiAddr(77), &from).context(13);
    defer(&a, &go, 1, nobody, &done);
    std::thread::sleep(QUIET);
    assert_eq!(done.err(), 0);
    go.add(1).expect("add");
    let entry = a.failure();
    assert_eq!(
        (entry.err, entry.op_context, entry.flags),
        (Errno::ENOENT, 13, SENT)
    );
    assert_eq!((done.value(), done.err()), (0, 1));
    // The error counts towards the thresholds of the completion counter.
    let next = cntr(&a.domain);
    queue(&a.domain, Work::add(&done, 1, &next, 5));
    assert_eq!(next.value(), 5);
}

/// The target's counters, of the endpoint and of the region, count operations that arrive because
/// of deferred work.
fn deferred_work_counts_at_its_target(way: Way) {
    let kinds = [
        CntrBind::RECV,
        CntrBind::REMOTE_WRITE,
        CntrBind::REMOTE_READ,
    ];
    let ((a, _), to_b, (b, at_b)) = counted_pair(way, kinds);
    let theirs = Buffer::of(&[0u64; 2]).expect("buffer");
    let mr = open_region(&b, &theirs, 1);
    let of_region = [CntrBind::REMOTE_WRITE, CntrBind::REMOTE_READ].map(|kind| {
        let counter = cntr(&b.domain);
        mr.bind_cntr(&counter, kind).expect("bind");
        counter
    });
    let (go, done) = (cntr(&a.domain), cntr(&a.domain));
    let (word, before, into) = (buffer(8), buffer(8), buffer(8));
    b.ep.recv(&into, 1).expect("recv");
    let (uint64, sum, at) = (Datatype::Uint64, AtomicOp::Sum, mr.remote(0));
    let ops = [
        Op::send(to_b, &word),
        Op::write(to_b, &word, at),
        Op::atomic(to_b, &word, at, uint64, sum),
        Op::read(to_b, &before, at),
        Op::fetch_atomic(to_b, &word, &before, at, uint64, sum),
    ];
    let works = ops.map(|op| Work::transfer(&go, 1, &a.ep, op).completion(&done));
    assert!(a.domain.queue_work(&works).expect("queue").all());
    std::thread::sleep(QUIET);
    assert_eq!(at_b.each_ref().map(Cntr::value), [0; 3]);
    go.add(1).expect("add");
    wait(&done, 5);
    until("the target has counted", || {
        at_b.each_ref().map(Cntr::value) == [1, 2, 2]
            && of_region.each_ref().map(Cntr::value) == [2, 2]
    });
    b.expect(RECEIVED, 1);
    a.expect_nothing();
}
