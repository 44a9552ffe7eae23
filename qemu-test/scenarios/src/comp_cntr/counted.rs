// SPDX-License-Identifier: GPL-2.0
//! What operations add to completion counters, at both ends, in every way to reach a peer.

use super::{ALL, counts};
use crate::{
    connected::connect,
    deferred::{cntr, queue},
    harness::tests,
    host::{Host, Options, buffer, domain, until},
    hosts::apart,
    ways::Way,
};
use kfi::{
    Access, AtomicOp, Buffer, Caps, CompCntr, CompCntrOps, CompCntrType, CqBind, Datatype, Domain,
    EpType, Errno, FiAddr, Mr, Op, OpFlags, Remote, Work,
};

tests![
    work_requests_count_on_one_host,
    work_requests_count_between_hosts,
    work_requests_count_on_a_connection,
    work_requests_count_on_a_connection_between_hosts,
    work_requests_count_as_datagrams,
    work_requests_count_as_datagrams_between_hosts,
    bytes_count_on_one_host,
    bytes_count_between_hosts,
    bytes_count_on_a_connection,
    bytes_count_on_a_connection_between_hosts,
    bytes_count_as_datagrams,
    bytes_count_as_datagrams_between_hosts,
    immediate_data_count_as_a_receive: [OneHost, TwoHosts, Connection],
    immediate_data_count_without_a_cq,
    atomics_count_nowhere,
    unsignalled_work_requests_count,
    deferred_work_counts_on_request,
    failures_count_as_errors: [OneHost, TwoHosts],
    flushed_work_requests_count_as_errors,
    cancelled_receives_count_as_errors,
    searches_count_when_they_receive,
    messages_in_one_buffer_count_one_by_one,
    one_counter_of_two_endpoints,
    a_counter_of_one_operation_counts_no_other,
];

/// A host with a counter for each operation, in the order of their bits.
struct Counted {
    host: Host,
    counters: Vec<CompCntr>,
}

impl Counted {
    fn new(domain: &Domain, options: &Options, unit: CompCntrType, ops: CompCntrOps) -> Self {
        let mut counters = Vec::new();
        let host = Host::prepared(domain, options, None, |ep| {
            for op in ALL.iter() {
                let cntr = domain.comp_cntr().unit(unit).create().expect("create");
                if ops.contains(op) {
                    ep.attach_comp_cntr(&cntr, op).expect("attach");
                }
                counters.push(cntr);
            }
        });
        Self { host, counters }
    }

    /// The completion counts.
    fn comps(&self) -> [u64; 6] {
        self.each(|cntr| counts(cntr).0)
    }

    /// The error counts.
    fn errs(&self) -> [u64; 6] {
        self.each(|cntr| counts(cntr).1)
    }

    fn each(&self, read: impl Fn(&CompCntr) -> u64) -> [u64; 6] {
        let values: Vec<u64> = self.counters.iter().map(read).collect();
        values.try_into().expect("six")
    }

    /// Waits until the counts are these. The end of an operation at its target, and the end of a
    /// send, may be seen late.
    #[track_caller]
    fn reaches(&self, comps: [u64; 6], errs: [u64; 6]) {
        let mut seen = ([0; 6], [0; 6]);
        let reached = crate::host::within(crate::host::SOON, || {
            seen = (self.comps(), self.errs());
            seen == (comps, errs)
        });
        assert!(reached, "{seen:?} instead of {:?}", (comps, errs));
        // What the program sees with a load is the same.
        assert_eq!(self.each(|cntr| cntr.comp_count().expect("mapped")), comps);
    }
}

/// Two counted hosts with these options, and what the first one calls the second one.
fn pair_with(way: Way, options: &Options, unit: CompCntrType) -> (Counted, FiAddr, Counted) {
    if way == Way::TwoHosts {
        apart();
    }
    let ops = match way {
        Way::Datagrams => CompCntrOps::SEND | CompCntrOps::RECV,
        _ => ALL,
    };
    let options = way.options(options);
    let make = || Counted::new(&domain().1, &options, unit, ops);
    let (a, b) = (make(), make());
    let to_b = way.introduce(&a.host, &b.host);
    (a, to_b, b)
}

fn pair(way: Way, unit: CompCntrType) -> (Counted, FiAddr, Counted) {
    pair_with(way, &Options::default(), unit)
}

/// A region of the host that its peer can read and write.
fn region(of: &Counted, buffer: &Buffer) -> Mr {
    of.host
        .domain
        .mr(buffer)
        .access(Access::REMOTE_READ | Access::REMOTE_WRITE)
        .requested_key(1)
        .open()
        .expect("mr")
}

/// One operation of each kind and several lengths, with the sums of what they must add.
fn operations(way: Way, unit: CompCntrType) {
    let (a, to_b, b) = pair(way, unit);
    let lengths: &[usize] = match way {
        Way::Datagrams => &[0, 1, 256, 257, 1000],
        _ => &[0, 1, 256, 257, 5000, 100_000],
    };
    let (ours, theirs) = (buffer(1 << 17), buffer(1 << 17));
    let mr = way.has_rma().then(|| region(&b, &theirs));
    let (mut at_a, mut at_b) = ([0; 6], [0; 6]);
    for len in lengths {
        let amount = match unit {
            CompCntrType::Bytes => *len as u64,
            _ => 1,
        };
        let part = ours.slice(..*len);
        b.host.ep.recv(&theirs, 1).expect("recv");
        a.host.ep.send(to_b, part, 2).expect("send");
        at_a[0] += amount;
        at_b[1] += amount;
        a.reaches(at_a, [0; 6]);
        b.reaches(at_b, [0; 6]);
        if matches!(way, Way::OneHost | Way::TwoHosts) {
            // It waits for its receive, and counts there when it is received.
            a.host.ep.tsend(to_b, part, 7, 2).expect("tsend");
            b.host.ep.trecv(&theirs, 7, 0, 1).expect("trecv");
            at_a[0] += amount;
            at_b[1] += amount;
            a.reaches(at_a, [0; 6]);
            b.reaches(at_b, [0; 6]);
        }
        if let Some(mr) = &mr {
            a.host.ep.read(to_b, part, mr.remote(0), 3).expect("read");
            at_a[2] += amount;
            at_b[3] += amount;
            a.reaches(at_a, [0; 6]);
            b.reaches(at_b, [0; 6]);
            a.host.ep.write(to_b, part, mr.remote(0), 4).expect("write");
            at_a[4] += amount;
            at_b[5] += amount;
            a.reaches(at_a, [0; 6]);
            b.reaches(at_b, [0; 6]);
        }
        // Every operation was also reported by the CQ.
        let kinds = match (way.has_rma(), way) {
            (false, _) => 1,
            (true, Way::Connection) => 3,
            (true, _) => 4,
        };
        for _ in 0..kinds {
            a.host.completion();
        }
        a.host.expect_nothing();
    }
}

macro_rules! ways {
    ($($name:ident: $unit:ident $way:ident $($apart:ident)?;)*) => {
        $(fn $name() {
            $($apart();)?
            operations(Way::$way, CompCntrType::$unit);
        })*
    };
}

ways! {
    work_requests_count_on_one_host: Wrs OneHost;
    work_requests_count_between_hosts: Wrs TwoHosts;
    work_requests_count_on_a_connection: Wrs Connection;
    work_requests_count_on_a_connection_between_hosts: Wrs Connection apart;
    work_requests_count_as_datagrams: Wrs Datagrams;
    work_requests_count_as_datagrams_between_hosts: Wrs Datagrams apart;
    bytes_count_on_one_host: Bytes OneHost;
    bytes_count_between_hosts: Bytes TwoHosts;
    bytes_count_on_a_connection: Bytes Connection;
    bytes_count_on_a_connection_between_hosts: Bytes Connection apart;
    bytes_count_as_datagrams: Bytes Datagrams;
    bytes_count_as_datagrams_between_hosts: Bytes Datagrams apart;
}

/// A write with immediate data: REMOTE_RDMA_WRITE and RECV at the target, the latter of no bytes.
fn immediate_data_count_as_a_receive(way: Way) {
    for (unit, written) in [(CompCntrType::Wrs, 1), (CompCntrType::Bytes, 40)] {
        let (a, to_b, b) = pair(way, unit);
        let (ours, theirs) = (buffer(64), buffer(64));
        let mr = region(&b, &theirs);
        let received = u64::from(unit == CompCntrType::Wrs);
        for (round, len) in [(1, 40), (2, 0)] {
            let op = Op::write(to_b, ours.slice(..len), mr.remote(0)).data(7);
            a.host.ep.post_one(&op.context(1)).expect("write");
            b.host.completion();
            let sum = match unit {
                CompCntrType::Bytes => written,
                _ => round * written,
            };
            a.reaches([0, 0, 0, 0, sum, 0], [0; 6]);
            b.reaches([0, round * received, 0, 0, 0, sum], [0; 6]);
        }
    }
}

fn immediate_data_count_without_a_cq() {
    for way in [Way::OneHost, Way::Connection] {
        // Of the target's two sides only the transmits have a CQ.
        let options = Options {
            bind: CqBind::TRANSMIT,
            ..Options::default()
        };
        let (a, to_b, b) = pair_with(way, &options, CompCntrType::Wrs);
        let (ours, theirs) = (buffer(64), buffer(64));
        let mr = region(&b, &theirs);
        let op = Op::write(to_b, &ours, mr.remote(0)).data(7);
        a.host.ep.post_one(&op.context(1)).expect("write");
        b.reaches([0, 1, 0, 0, 0, 1], [0; 6]);
    }
}

fn atomics_count_nowhere() {
    let options = Options {
        ep_type: EpType::Msg,
        caps: Caps::MSG | Caps::RMA | Caps::ATOMIC,
        ..Options::default()
    };
    let make = || Counted::new(&domain().1, &options, CompCntrType::Wrs, ALL);
    let (a, b) = (make(), make());
    connect(&a.host, &b.host);
    let (operand, into, word) = (Buffer::new(8), Buffer::new(8), Buffer::new(8));
    let (operand, into) = (operand.expect("buffer"), into.expect("buffer"));
    let mr = region(&b, &word.expect("buffer"));
    let (peer, word) = (FiAddr::UNSPEC, mr.remote(0));
    let (uint64, sum) = (Datatype::Uint64, AtomicOp::Sum);
    let ep = &a.host.ep;
    ep.atomic(peer, &operand, word, uint64, sum, 1)
        .expect("atomic");
    ep.fetch_atomic(peer, &operand, &into, word, uint64, sum, 2)
        .expect("fetch_atomic");
    ep.compare_atomic(
        peer,
        &operand,
        &operand,
        &into,
        word,
        uint64,
        AtomicOp::Cswap,
        3,
    )
    .expect("compare_atomic");
    for _ in 0..3 {
        a.host.completion();
    }
    a.reaches([0; 6], [0; 6]);
    b.reaches([0; 6], [0; 6]);
}

fn unsignalled_work_requests_count() {
    for way in [Way::OneHost, Way::TwoHosts, Way::Connection, Way::Datagrams] {
        let options = Options {
            bind: CqBind::TRANSMIT | CqBind::RECV | CqBind::SELECTIVE,
            ..Options::default()
        };
        let (a, to_b, b) = pair_with(way, &options, CompCntrType::Wrs);
        let (ours, theirs) = (buffer(64), buffer(64));
        for context in 0..2 {
            b.host.ep.recv(&theirs, context).expect("recv");
        }
        // Silent by the binding, and by being injected.
        a.host.ep.send(to_b, &ours, 1).expect("send");
        a.host.ep.inject(to_b, b"x").expect("inject");
        let mut at = ([2, 0, 0, 0, 0, 0], [0, 2, 0, 0, 0, 0]);
        if way.has_rma() {
            let mr = region(&b, &theirs);
            a.host.ep.read(to_b, &ours, mr.remote(0), 1).expect("read");
            a.host
                .ep
                .write(to_b, &ours, mr.remote(0), 1)
                .expect("write");
            at.0 = [2, 0, 1, 0, 1, 0];
            at.1 = [0, 2, 0, 1, 0, 1];
            a.reaches(at.0, [0; 6]);
            b.reaches(at.1, [0; 6]);
        } else {
            a.reaches(at.0, [0; 6]);
            b.reaches(at.1, [0; 6]);
        }
        a.host.expect_nothing();
        b.host.expect_nothing();
    }
}

/// A failure adds 1 to the error count, of a counter of bytes too, and nothing else anywhere.
fn failures_count_as_errors(way: Way) {
    for unit in [CompCntrType::Wrs, CompCntrType::Bytes] {
        let (a, to_b, b) = pair(way, unit);
        let (ours, theirs) = (buffer(64), buffer(64));
        // Longer than its receive: the receive fails, the send does not.
        b.host.ep.recv(theirs.slice(..10), 1).expect("recv");
        a.host.ep.send(to_b, &ours, 2).expect("send");
        let sent = if unit == CompCntrType::Bytes { 64 } else { 1 };
        b.reaches([0; 6], [0, 1, 0, 0, 0, 0]);
        a.reaches([sent, 0, 0, 0, 0, 0], [0; 6]);
        assert_eq!(b.host.failure().err, Errno::KFI_ETRUNC);
        // Refused by the target, which counts nothing.
        let nowhere = Remote::new(0, 0xdead);
        a.host.ep.write(to_b, &ours, nowhere, 3).expect("write");
        a.reaches([sent, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 0]);
        a.host.ep.read(to_b, &ours, nowhere, 4).expect("read");
        a.reaches([sent, 0, 0, 0, 0, 0], [0, 0, 1, 0, 1, 0]);
        b.reaches([0; 6], [0, 1, 0, 0, 0, 0]);
    }
}

fn flushed_work_requests_count_as_errors() {
    for unit in [CompCntrType::Wrs, CompCntrType::Bytes] {
        let (a, to_b, b) = pair(Way::Connection, unit);
        let (ours, theirs) = (buffer(64), buffer(64));
        for context in 0..5 {
            a.host.ep.recv(&ours, context).expect("recv");
        }
        // No receive is posted there, so this send is under way when the connection ends.
        a.host.ep.send(to_b, &theirs, 9).expect("send");
        a.host.ep.shutdown().expect("shutdown");
        a.reaches([0; 6], [1, 5, 0, 0, 0, 0]);
        for _ in 0..6 {
            assert_eq!(a.host.failure().err, Errno::ECANCELED);
        }
        drop(b);
    }
}

fn cancelled_receives_count_as_errors() {
    let (a, _, _b) = pair(Way::OneHost, CompCntrType::Wrs);
    let buffer = Buffer::new(64).expect("buffer");
    a.host.ep.recv(&buffer, 1).expect("recv");
    a.host
        .ep
        .post_one(&Op::multi_recv(&buffer).context(2))
        .expect("recv");
    a.host.ep.cancel(1).expect("cancel");
    a.reaches([0; 6], [0, 1, 0, 0, 0, 0]);
    a.host.ep.cancel(2).expect("cancel");
    a.reaches([0; 6], [0, 2, 0, 0, 0, 0]);
}

fn searches_count_when_they_receive() {
    for (unit, claimed) in [(CompCntrType::Wrs, 1), (CompCntrType::Bytes, 5)] {
        let (a, to_b, b) = pair(Way::OneHost, unit);
        let buffer = Buffer::new(64).expect("buffer");
        let search = |flags| {
            let op = Op::trecv(&buffer, 7, 0).flags(flags | OpFlags::COMPLETION);
            b.host.ep.post_one(&op.context(1)).expect("search");
        };
        search(OpFlags::PEEK);
        assert_eq!(b.host.failure().err, Errno::ENOMSG);
        a.host
            .ep
            .tsend(to_b, buffer.slice(..5), 7, 1)
            .expect("tsend");
        search(OpFlags::PEEK);
        b.host.completion();
        b.reaches([0; 6], [0; 6]);
        search(OpFlags::PEEK | OpFlags::CLAIM);
        b.host.completion();
        search(OpFlags::CLAIM);
        b.host.completion();
        let received = b.comps()[1];
        // The claim receives the message, and counts once.
        assert_eq!((received, b.errs()), (claimed, [0; 6]));
    }
}

fn messages_in_one_buffer_count_one_by_one() {
    for (unit, each) in [(CompCntrType::Wrs, 1), (CompCntrType::Bytes, 40)] {
        let (a, to_b, b) = pair(Way::OneHost, unit);
        let (ours, theirs) = (buffer(64), buffer(200));
        b.host
            .ep
            .set_min_multi_recv(50)
            .expect("set_min_multi_recv");
        b.host
            .ep
            .post_one(&Op::multi_recv(&theirs).context(1))
            .expect("recv");
        for round in 1..=4 {
            a.host.ep.send(to_b, ours.slice(..40), 2).expect("send");
            b.reaches([0, round * each, 0, 0, 0, 0], [0; 6]);
        }
        // The last one has released the buffer, which counts nothing.
        a.host.ep.send(to_b, ours.slice(..40), 2).expect("send");
        b.reaches([0, 4 * each, 0, 0, 0, 0], [0; 6]);
    }
}

fn one_counter_of_two_endpoints() {
    let (_, domain) = domain();
    let cntr = domain.comp_cntr().create().expect("create");
    let host = || {
        Host::prepared(&domain, &Options::default(), None, |ep| {
            ep.attach_comp_cntr(&cntr, CompCntrOps::SEND | CompCntrOps::RECV)
                .expect("attach");
        })
    };
    let (a, b) = (host(), host());
    let (to_b, to_a) = (a.meet(&b), b.meet(&a));
    let buffer = Buffer::new(8).expect("buffer");
    for _ in 0..3 {
        a.ep.recv(&buffer, 1).expect("recv");
        b.ep.recv(&buffer, 1).expect("recv");
        a.ep.send(to_b, &buffer, 1).expect("send");
        b.ep.send(to_a, &buffer, 1).expect("send");
    }
    assert_eq!(counts(&cntr), (12, 0));
    drop(a);
    let me = b.meet(&b);
    b.ep.recv(&buffer, 1).expect("recv");
    b.ep.send(me, &buffer, 1).expect("send");
    assert_eq!(counts(&cntr), (14, 0));
}

fn a_counter_of_one_operation_counts_no_other() {
    let (_, domain) = domain();
    for op in ALL.iter() {
        let host = Counted::new(&domain, &Options::default(), CompCntrType::Wrs, op);
        let (ep, me) = (&host.host.ep, host.host.meet(&host.host));
        let (ours, theirs) = (buffer(8), buffer(8));
        let mr = region(&host, &theirs);
        ep.recv(&theirs, 1).expect("recv");
        ep.send(me, &ours, 1).expect("send");
        ep.read(me, &ours, mr.remote(0), 1).expect("read");
        ep.write(me, &ours, mr.remote(0), 1).expect("write");
        let expected: Vec<u64> = ALL.iter().map(|other| u64::from(other == op)).collect();
        until("the operation has counted", || {
            host.comps().to_vec() == expected
        });
        assert_eq!(host.errs(), [0; 6]);
    }
}

/// Deferred work is no completion of the endpoint; with KFI_COMPLETION it is one, as any other.
/// Failures, too.
fn deferred_work_counts_on_request() {
    for way in [Way::OneHost, Way::TwoHosts, Way::Connection, Way::Datagrams] {
        for (unit, amount) in [(CompCntrType::Wrs, 1), (CompCntrType::Bytes, 64)] {
            let (a, to_b, b) = pair(way, unit);
            let (ours, theirs) = (buffer(64), buffer(64));
            let (go, done) = (cntr(&a.host.domain), cntr(&a.host.domain));
            for context in 0..2 {
                b.host.ep.recv(&theirs, context).expect("recv");
            }
            let run = |op: Op<'_>| {
                let (due, ended) = (go.value() + 1, done.value() + done.err() + 1);
                let work = Work::transfer(&go, due, &a.host.ep, op).completion(&done);
                queue(&a.host.domain, work);
                go.add(1).expect("add");
                until("the end of the work", || done.value() + done.err() == ended);
            };
            let send = Op::send(to_b, &ours).context(1);
            run(send);
            // Its target counts it as any operation.
            b.reaches([0, amount, 0, 0, 0, 0], [0; 6]);
            a.reaches([0; 6], [0; 6]);
            a.host.expect_nothing();
            run(send.flags(OpFlags::COMPLETION));
            a.reaches([amount, 0, 0, 0, 0, 0], [0; 6]);
            b.reaches([0, 2 * amount, 0, 0, 0, 0], [0; 6]);
            a.host.completion();
            // A refused write ends a connection, so that way is not tried.
            if matches!(way, Way::OneHost | Way::TwoHosts) {
                let write = Op::write(to_b, &ours, Remote::new(0, 0xdead)).context(2);
                run(write);
                assert_eq!(a.host.failure().op_context, 2);
                a.reaches([amount, 0, 0, 0, 0, 0], [0; 6]);
                run(write.flags(OpFlags::COMPLETION));
                assert_eq!(a.host.failure().op_context, 2);
                a.reaches([amount, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 0]);
                assert_eq!((done.value(), done.err()), (2, 2));
            }
        }
    }
}
