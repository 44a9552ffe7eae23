// SPDX-License-Identifier: GPL-2.0
//! The operations that counters count: of every kind, at both ends.

use crate::{
    harness::tests,
    host::{Host, LINK, Options, SOON, domain, until},
    threads::Sleeper,
};
use kfi::{
    Access, Av, Buffer, Caps, Cntr, CntrBind, Cq, CqBind, CqFormat, Domain, Endpoint, Entry, Errno,
    Error, FiAddr, Op, OpFlags, Remote, RmaIov, Values, Wait,
};
use std::time::Duration;

tests![
    each_kind_counts_where_it_is_bound,
    one_counter_for_several_kinds,
    a_failed_operation_counts_as_an_error,
    an_operation_that_fails_releases_a_waiter,
    an_operation_counts_once_at_its_target,
    a_search_counts_nothing,
    silent_success_counts,
    messages_in_one_buffer_count_one_by_one,
    a_counter_waits_for_operations,
    a_counter_is_bound_once_and_in_time,
    a_bound_counter_stays_open,
];

/// The kinds of operations for which counters are bound, in the order of [`Counted::counters`].
pub(crate) const KINDS: [CntrBind; 6] = [
    CntrBind::SEND,
    CntrBind::RECV,
    CntrBind::READ,
    CntrBind::WRITE,
    CntrBind::REMOTE_READ,
    CntrBind::REMOTE_WRITE,
];

/// An enabled endpoint with a counter for each kind.
pub(crate) struct Counted {
    domain: Domain,
    pub(crate) cq: Cq,
    av: Av,
    pub(crate) ep: Endpoint,
    pub(crate) counters: [Cntr; 6],
}

impl Counted {
    pub(crate) fn new() -> Self {
        let (domain, cq, av, ep) = unbound();
        let counters = KINDS.map(|kind| {
            let cntr = counter(&domain);
            ep.bind_cntr(&cntr, kind).expect("bind cntr");
            cntr
        });
        ep.enable().expect("enable");
        Self {
            domain,
            cq,
            av,
            ep,
            counters,
        }
    }

    pub(crate) fn meet(&self, other: &Self) -> FiAddr {
        self.av
            .insert_one(other.ep.name().expect("name"))
            .expect("insert")
    }

    /// The success values, in the order of [`KINDS`].
    fn counts(&self) -> [u64; 6] {
        self.counters.each_ref().map(Cntr::value)
    }

    /// The error values.
    fn errors(&self) -> [u64; 6] {
        self.counters.each_ref().map(Cntr::err)
    }
}

fn counter(domain: &Domain) -> Cntr {
    domain.cntr().wait(Wait::Queue).open().expect("cntr")
}

/// An endpoint with all capabilities, its CQ and AV bound, not enabled.
fn unbound() -> (Domain, Cq, Av, Endpoint) {
    let (_, domain) = domain();
    let (cq, av, ep) = unbound_on(&domain);
    (domain, cq, av, ep)
}

fn unbound_on(domain: &Domain) -> (Cq, Av, Endpoint) {
    let cq = domain
        .cq()
        .format(CqFormat::Tagged)
        .wait(Wait::Queue)
        .open()
        .expect("cq");
    let av = domain.av().open().expect("av");
    let ep = domain
        .endpoint()
        .caps(Options::default().caps)
        .open()
        .expect("endpoint");
    ep.bind_cq(&cq, CqBind::TRANSMIT | CqBind::RECV)
        .expect("bind cq");
    ep.bind_av(&av).expect("bind av");
    (cq, av, ep)
}

fn region(of: &Counted, buffer: &Buffer) -> kfi::Mr {
    of.domain
        .mr(buffer)
        .access(Access::REMOTE_READ | Access::REMOTE_WRITE)
        .requested_key(1)
        .open()
        .expect("mr")
}

fn each_kind_counts_where_it_is_bound() {
    let (a, b) = (Counted::new(), Counted::new());
    let to_b = a.meet(&b);
    let (ours, theirs) = (
        Buffer::new(64).expect("buffer"),
        Buffer::new(64).expect("buffer"),
    );
    let mr = region(&b, &theirs);
    for i in 0..3 {
        b.ep.recv(&theirs, i).expect("recv");
        b.ep.trecv(&theirs, 1, 0, i).expect("trecv");
    }
    a.ep.send(to_b, &ours, 0).expect("send");
    assert_eq!(a.counts(), [1, 0, 0, 0, 0, 0]);
    a.ep.tsend(to_b, &ours, 1, 0).expect("tsend");
    a.ep.inject(to_b, b"x").expect("inject");
    a.ep.tinject(to_b, b"x", 1).expect("tinject");
    a.ep.senddata(to_b, &ours, 7, 0).expect("senddata");
    assert_eq!(a.counts(), [5, 0, 0, 0, 0, 0]);
    assert_eq!(b.counts(), [0, 5, 0, 0, 0, 0]);
    // The receiver counts a waiting message when it receives it.
    for _ in 0..2 {
        a.ep.tinject(to_b, b"x", 1).expect("tinject");
    }
    assert_eq!((a.counts()[0], b.counts()[1]), (7, 6));
    b.ep.trecv(&theirs, 1, 0, 9).expect("trecv");
    assert_eq!(b.counts()[1], 7);
    for i in 1..=4 {
        a.ep.write(to_b, &ours, mr.remote(0), 0).expect("write");
        assert_eq!(a.counts(), [7, 0, 0, i, 0, 0]);
        assert_eq!(b.counts(), [0, 7, 0, 0, 0, i]);
    }
    a.ep.inject_write(to_b, b"x", mr.remote(0))
        .expect("inject_write");
    a.ep.read(to_b, &ours, mr.remote(0), 0).expect("read");
    assert_eq!(a.counts(), [7, 0, 1, 5, 0, 0]);
    assert_eq!(b.counts(), [0, 7, 0, 0, 1, 5]);
    assert_eq!((a.errors(), b.errors()), ([0; 6], [0; 6]));
}

fn one_counter_for_several_kinds() {
    let (domain, _cq, av, ep) = unbound();
    let (messages, rma) = (counter(&domain), counter(&domain));
    ep.bind_cntr(&messages, CntrBind::SEND | CntrBind::RECV)
        .expect("bind");
    ep.bind_cntr(
        &rma,
        CntrBind::READ | CntrBind::WRITE | CntrBind::REMOTE_WRITE,
    )
    .expect("bind");
    ep.enable().expect("enable");
    let me = av.insert_one(ep.name().expect("name")).expect("insert");
    let buffer = Buffer::new(8).expect("buffer");
    let mr = domain
        .mr(&buffer)
        .access(Access::REMOTE_READ | Access::REMOTE_WRITE)
        .open()
        .expect("mr");
    ep.recv(&buffer, 0).expect("recv");
    ep.inject(me, b"to me").expect("inject");
    assert_eq!((messages.value(), rma.value()), (2, 0));
    // A write to its own memory is a write, and a remote write.
    ep.inject_write(me, b"x", mr.remote(0)).expect("write");
    assert_eq!((messages.value(), rma.value()), (2, 2));
    // No counter of remote reads is bound.
    let into = Buffer::new(8).expect("buffer");
    ep.read(me, &into, mr.remote(0), 0).expect("read");
    assert_eq!((messages.value(), rma.value()), (2, 3));
}

/// kfi_cntr(3): an operation that encounters an error increments the error value, and that
/// unblocks.
fn an_operation_that_fails_releases_a_waiter() {
    let (a, b) = (Counted::new(), Counted::new());
    let to_b = a.meet(&b);
    let buffer = Buffer::new(8).expect("buffer");
    let waiter = {
        let cntr = a.counters[3].clone();
        Sleeper::asleep(move || cntr.wait(1, SOON))
    };
    a.ep.write(to_b, &buffer, Remote::new(0, 99), 0)
        .expect("write");
    let error = waiter.end().expect_err("the write failed");
    assert_eq!(error.errno(), Some(Errno::KFI_EAVAIL));
    assert_eq!((a.counts()[3], a.errors()[3]), (0, 1));
}

/// Accesses the regions `keys` in one operation of several pieces each, and in one without pieces,
/// and checks the target's counters: `at_target` for its endpoint, and those of the regions.
pub(crate) fn pieces_count_once(
    from: &Endpoint,
    to: FiAddr,
    keys: [u64; 2],
    at_target: [&Cntr; 2],
    regions: [&Cntr; 2],
    ends: impl Fn(),
) {
    let local = Buffer::new(48).expect("buffer");
    let piece = |region: usize, at: u64, len: u64| RmaIov::new(Remote::new(at, keys[region]), len);
    let one_region = [piece(0, 0, 16), piece(0, 32, 16), piece(0, 16, 16)];
    let both = [
        piece(0, 0, 8),
        piece(1, 0, 8),
        piece(0, 8, 16),
        piece(1, 16, 16),
    ];
    let empty = [piece(0, 0, 0)];
    // The list, whether it has bytes, and the expected count of each region.
    let cases: [(&[RmaIov], usize, [u64; 2]); 3] = [
        (&one_region, 48, [1, 0]),
        (&both, 48, [1, 1]),
        (&empty, 0, [1, 0]),
    ];
    let mut expected = ([0; 2], [0; 2]);
    for (list, len, adds) in cases {
        for write in [true, false] {
            let remote = Remote::new(0, keys[0]);
            let op = if write {
                Op::write(to, local.slice(..len), remote)
            } else {
                Op::read(to, local.slice(..len), remote)
            };
            from.post_one(&op.remote_iov(list)).expect("post");
            ends();
            expected.0[usize::from(write)] += 1;
            for (sum, add) in expected.1.iter_mut().zip(adds) {
                *sum += add;
            }
            let values = |cntrs: [&Cntr; 2]| cntrs.map(|cntr| cntr.read().expect("read").value);
            until("the target has counted", || {
                (values(at_target), values(regions)) == expected
            });
        }
    }
    // A piece that is refused: the target counts nothing of the operation, now or later.
    let refused = [piece(0, 0, 16), piece(1, 0, 16), piece(0, 4090, 16)];
    // So is one of no bytes with an invalid key.
    let none = [RmaIov::new(Remote::new(0, 99), 0)];
    for (list, len) in [(&refused[..], 48), (&none[..], 0)] {
        for write in [true, false] {
            let remote = Remote::new(0, keys[0]);
            let op = if write {
                Op::write(to, local.slice(..len), remote)
            } else {
                Op::read(to, local.slice(..len), remote)
            };
            from.post_one(&op.remote_iov(list)).expect("post");
            ends();
        }
    }
    std::thread::sleep(Duration::from_millis(50));
    let values = |cntrs: [&Cntr; 2]| cntrs.map(Cntr::value);
    assert_eq!((values(at_target), values(regions)), expected);
    let errors = |cntrs: [&Cntr; 2]| cntrs.map(Cntr::err);
    assert_eq!((errors(at_target), errors(regions)), ([0; 2], [0; 2]));
}

fn an_operation_counts_once_at_its_target() {
    let (a, b) = (Counted::new(), Counted::new());
    let to_b = a.meet(&b);
    let open = |key| {
        let region = b
            .domain
            .mr(&Buffer::new(4096).expect("buffer"))
            .access(Access::REMOTE_READ | Access::REMOTE_WRITE)
            .requested_key(key)
            .open()
            .expect("mr");
        let cntr = counter(&b.domain);
        region
            .bind_cntr(&cntr, CntrBind::REMOTE_READ | CntrBind::REMOTE_WRITE)
            .expect("bind");
        (region, cntr)
    };
    let ((one, at_one), (two, at_two)) = (open(1), open(2));
    let ends = || {
        // An entry or an error entry.
        if a.cq.sread(&mut [Entry::default()], SOON).is_err() {
            a.cq.readerr().expect("readerr").expect("an error");
        }
    };
    pieces_count_once(
        &a.ep,
        to_b,
        [one.key(), two.key()],
        [&b.counters[4], &b.counters[5]],
        [&at_one, &at_two],
        ends,
    );
}

fn a_search_counts_nothing() {
    let (a, b) = (Counted::new(), Counted::new());
    let to_b = a.meet(&b);
    let into = Buffer::new(8).expect("buffer");
    // The result of a search or a receive: an entry or an error entry.
    let ended = |context| match b.cq.next(SOON) {
        Ok(entry) => {
            assert_eq!(entry.expect("an entry").op_context, context);
            true
        }
        Err(Error::Completion(entry)) => {
            assert_eq!((entry.err, entry.op_context), (Errno::ENOMSG, context));
            false
        }
        Err(error) => panic!("{error}"),
    };
    let search = |tag, flags| {
        let op = Op::tpeek(tag, 0).context(tag).flags(flags);
        b.ep.post_one(&op).expect("peek");
        ended(tag)
    };
    // The context identifies the message that is claimed.
    let receive = |tag, flags| {
        let op = Op::trecv(&into, tag, 0).context(tag).flags(flags);
        b.ep.post_one(&op).expect("trecv");
        assert!(ended(tag));
    };
    // An operation is counted before its entry is in the CQ.
    let counted = |values: [u64; 2]| assert_eq!([b.counts()[1], b.errors()[1]], values);
    for tag in 1..=4 {
        a.ep.post_one(&Op::tsend(to_b, &into, tag)).expect("tsend");
    }
    // When the last entry has come, all have. A search without a result is an error entry, but no
    // error of a counter.
    until("the messages have come", || search(4, OpFlags::PEEK));
    assert!(!search(9, OpFlags::PEEK));
    assert!(search(1, OpFlags::PEEK));
    assert!(search(2, OpFlags::PEEK | OpFlags::DISCARD));
    assert!(search(3, OpFlags::PEEK | OpFlags::CLAIM));
    counted([0, 0]);
    receive(3, OpFlags::CLAIM);
    counted([1, 0]);
    // A message that is claimed and discarded was received once.
    assert!(search(4, OpFlags::PEEK | OpFlags::CLAIM));
    counted([1, 0]);
    receive(4, OpFlags::CLAIM | OpFlags::DISCARD);
    counted([2, 0]);
    // The message that was only found.
    receive(1, OpFlags::empty());
    counted([3, 0]);
}

fn a_failed_operation_counts_as_an_error() {
    let (a, b) = (Counted::new(), Counted::new());
    let to_b = a.meet(&b);
    let large = Buffer::new(100_000).expect("buffer");
    let small = Buffer::new(8).expect("buffer");
    // Truncated: an error at the receiver, a success at the sender.
    b.ep.recv(&small, 0).expect("recv");
    a.ep.inject(to_b, &[0; 9]).expect("inject");
    assert_eq!((a.counts()[0], a.errors()[0]), (1, 0));
    assert_eq!((b.counts()[1], b.errors()[1]), (0, 1));
    // Cancelled.
    b.ep.trecv(&small, 0, 0, 7).expect("trecv");
    b.ep.cancel(7).expect("cancel");
    assert_eq!(b.errors(), [0, 2, 0, 0, 0, 0]);
    a.ep.send(to_b, &large, 8).expect("send");
    a.ep.cancel(8).expect("cancel");
    assert_eq!((a.counts()[0], a.errors()[0]), (1, 1));
    // Refused by the peer's memory.
    a.ep.write(to_b, &small, Remote::new(0, 99), 0)
        .expect("write");
    a.ep.read(to_b, &small, Remote::new(0, 99), 0)
        .expect("read");
    assert_eq!(a.errors(), [1, 0, 1, 1, 0, 0]);
    assert_eq!(b.errors(), [0, 2, 0, 0, 0, 0]);
    // The peer's endpoint is closed.
    a.ep.send(to_b, &large, 9).expect("send");
    drop(b);
    assert_eq!(a.errors(), [2, 0, 1, 1, 0, 0]);
    assert_eq!(a.counts(), [1, 0, 0, 0, 0, 0]);
    // The CQ reports each, too.
    let mut errors = Vec::new();
    while let Some(entry) = a.cq.readerr().expect("readerr") {
        errors.push(entry.err);
    }
    assert_eq!(
        errors,
        [
            Errno::ECANCELED,
            Errno::EACCES,
            Errno::EACCES,
            Errno::EHOSTUNREACH
        ]
    );
    // No counter counts an operation that is not accepted.
    let error = a.ep.inject(to_b, b"x").expect_err("nobody there");
    assert_eq!(error.errno(), Some(Errno::EHOSTUNREACH));
    assert_eq!(a.errors(), [2, 0, 1, 1, 0, 0]);
}

fn silent_success_counts() {
    let (domain, cq, av) = {
        let (_, domain) = domain();
        let cq = domain.cq().wait(Wait::Queue).open().expect("cq");
        let av = domain.av().open().expect("av");
        (domain, cq, av)
    };
    let ep = domain.endpoint().open().expect("endpoint");
    ep.bind_cq(&cq, CqBind::TRANSMIT | CqBind::RECV | CqBind::SELECTIVE)
        .expect("bind cq");
    ep.bind_av(&av).expect("bind av");
    let cntr = counter(&domain);
    ep.bind_cntr(&cntr, CntrBind::SEND | CntrBind::RECV)
        .expect("bind");
    ep.enable().expect("enable");
    let me = av.insert_one(ep.name().expect("name")).expect("insert");
    let buffer = Buffer::new(8).expect("buffer");
    for i in 1..=100 {
        ep.recv(&buffer, 0).expect("recv");
        ep.send(me, &buffer, 0).expect("send");
        assert_eq!(cntr.value(), 2 * i);
    }
    assert_eq!(cq.read(&mut [kfi::Entry::default()]).expect("read"), 0);
}

fn messages_in_one_buffer_count_one_by_one() {
    let (a, b) = (Counted::new(), Counted::new());
    let to_b = a.meet(&b);
    let buffer = Buffer::new(100).expect("buffer");
    b.ep.set_min_multi_recv(10).expect("min_multi_recv");
    b.ep.post_one(&Op::multi_recv(&buffer)).expect("multi");
    for i in 1..=3 {
        a.ep.inject(to_b, &[0; 30]).expect("inject");
        assert_eq!(b.counts()[1], i);
    }
    // It has 10 bytes left, so it is still posted: a message that does not fit is an error.
    a.ep.inject(to_b, &[0; 11]).expect("inject");
    assert_eq!((b.counts()[1], b.errors()[1]), (3, 1));
}

fn a_counter_waits_for_operations() {
    let (a, b) = (Counted::new(), Counted::new());
    let to_b = a.meet(&b);
    let [_, received, ..] = b.counters.clone();
    let waiter = crate::threads::Sleeper::new(move || received.wait(100, SOON));
    crate::host::until_asleep(&b.counters[1], 1);
    let buffer = Buffer::new(8).expect("buffer");
    for i in 0..100 {
        assert!(!waiter.is_finished(), "released by {i} of 100");
        b.ep.recv(&buffer, i).expect("recv");
        a.ep.post_one(&Op::inject(to_b, b"x")).expect("inject");
    }
    assert_eq!(waiter.end().expect("wait"), Values { value: 100, err: 0 });
}

fn a_counter_is_bound_once_and_in_time() {
    let (fabric, domain) = domain();
    let (_cq, _av, ep) = unbound_on(&domain);
    let (one, two) = (counter(&domain), counter(&domain));
    ep.bind_cntr(&one, CntrBind::SEND).expect("bind");
    let refused = |cntr: &Cntr, kinds, errno| {
        let error = ep.bind_cntr(cntr, kinds).expect_err("bound");
        assert_eq!(error.errno(), Some(errno));
    };
    for cntr in [&one, &two] {
        refused(cntr, CntrBind::SEND, Errno::EINVAL);
        refused(cntr, CntrBind::SEND | CntrBind::RECV, Errno::EINVAL);
    }
    refused(&one, CntrBind::empty(), Errno::EINVAL);
    refused(
        &one,
        CntrBind::from_bits_retain(kfi::abi::KFI_MSG),
        Errno::EINVAL,
    );
    let elsewhere = counter(&fabric.domain(LINK).open().expect("domain"));
    refused(&elsewhere, CntrBind::RECV, Errno::EINVAL);
    // A refused bind has no effect: RECV is still free.
    ep.bind_cntr(&two, CntrBind::RECV).expect("bind");
    ep.enable().expect("enable");
    refused(&two, CntrBind::READ, Errno::KFI_EOPBADSTATE);
    // A region's counters count remote accesses only, each once.
    let buffer = Buffer::new(8).expect("buffer");
    let mr = domain
        .mr(&buffer)
        .access(Access::REMOTE_WRITE)
        .open()
        .expect("mr");
    let errno = |result: kfi::Result<()>| result.err().as_ref().and_then(Error::errno);
    assert_eq!(
        errno(mr.bind_cntr(&one, CntrBind::SEND)),
        Some(Errno::EINVAL)
    );
    assert_eq!(
        errno(mr.bind_cntr(&elsewhere, CntrBind::REMOTE_WRITE)),
        Some(Errno::EINVAL)
    );
    mr.bind_cntr(&one, CntrBind::REMOTE_WRITE).expect("bind");
    assert_eq!(
        errno(mr.bind_cntr(&two, CntrBind::REMOTE_WRITE)),
        Some(Errno::EINVAL)
    );
    assert_eq!(
        errno(mr.bind_cntr(&two, CntrBind::REMOTE_WRITE | CntrBind::REMOTE_READ)),
        Some(Errno::EINVAL)
    );
    mr.bind_cntr(&two, CntrBind::REMOTE_READ).expect("bind");
}

fn a_bound_counter_stays_open() {
    let host = Host::with(&Options {
        caps: Caps::MSG,
        tx_op_flags: OpFlags::empty(),
        ..Options::default()
    });
    let (domain, _cq, _av, ep) = unbound();
    let (bound, of_region) = (counter(&domain), counter(&domain));
    ep.bind_cntr(&bound, CntrBind::SEND).expect("bind");
    let buffer = Buffer::new(8).expect("buffer");
    let mr = domain
        .mr(&buffer)
        .access(Access::REMOTE_WRITE)
        .open()
        .expect("mr");
    mr.bind_cntr(&of_region, CntrBind::REMOTE_WRITE)
        .expect("bind");
    let busy = |cntr: &Cntr| {
        let error = cntr.clone().close().expect_err("it is bound");
        assert_eq!(error.errno(), Some(Errno::EBUSY));
    };
    busy(&bound);
    busy(&of_region);
    ep.enable().expect("enable");
    busy(&bound);
    ep.close().expect("close");
    bound.close().expect("close");
    busy(&of_region);
    mr.close().expect("close");
    of_region.close().expect("close");
    drop(host);
}
