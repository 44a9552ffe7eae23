// SPDX-License-Identifier: GPL-2.0
//! The operations that counters count: of every kind, at both ends.

use crate::{
    connected::connect,
    harness::tests,
    host::{
        BOTH, Host, LINK, Options, READ, REMOTE, SOON, WROTE, buffer, domain, found, is_refused,
        register, until, until_asleep,
    },
    threads::Sleeper,
};
use kfi::{
    Access, Av, Buffer, Caps, Cntr, CntrBind, Cq, CqBind, Domain, Endpoint, Entry, EpType, Errno,
    FiAddr, Mr, Op, OpFlags, Remote, RmaIov, Values, Wait,
};
use std::time::Duration;

tests![
    each_kind_counts_where_it_is_bound,
    one_counter_for_several_kinds,
    a_binding_without_flags_counts_all,
    a_failed_operation_counts_as_an_error,
    an_operation_that_fails_releases_a_waiter,
    an_operation_counts_once_at_its_target,
    an_access_to_no_bytes_counts_with_its_key,
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

/// A host with a counter for each kind.
pub(crate) struct Counted {
    host: Host,
    pub(crate) counters: [Cntr; 6],
}

impl std::ops::Deref for Counted {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}

impl Counted {
    pub(crate) fn new() -> Self {
        let (_, domain) = domain();
        let (host, counters) = Host::counting(&domain, &Options::default(), KINDS);
        Self { host, counters }
    }

    /// The success values, in the order of [`KINDS`].
    fn counts(&self) -> [u64; 6] {
        self.counters.each_ref().map(Cntr::value)
    }

    /// The error values.
    fn errors(&self) -> [u64; 6] {
        self.counters.each_ref().map(Cntr::err)
    }

    /// A region with this key, and a counter of the accesses of peers to it.
    pub(crate) fn counted_region(&self, len: usize, key: u64) -> (Mr, Cntr) {
        let region = register(&self.domain, &buffer(len), REMOTE, key);
        let cntr = counter(&self.domain);
        let accesses = CntrBind::REMOTE_READ | CntrBind::REMOTE_WRITE;
        region.bind_cntr(&cntr, accesses).expect("bind");
        (region, cntr)
    }
}

fn counter(domain: &Domain) -> Cntr {
    domain.cntr().wait(Wait::Queue).open().expect("cntr")
}

/// An endpoint on `domain` whose CQ and AV are bound, not enabled.
fn unbound_on(domain: &Domain) -> (Cq, Av, Endpoint) {
    let (cq, av) = (
        domain.cq().open().expect("cq"),
        domain.av().open().expect("av"),
    );
    let ep = domain.endpoint().open().expect("endpoint");
    ep.bind_cq(&cq, BOTH).expect("bind cq");
    ep.bind_av(&av).expect("bind av");
    (cq, av, ep)
}

fn each_kind_counts_where_it_is_bound() {
    let (a, b) = (Counted::new(), Counted::new());
    let to_b = a.meet(&b);
    let (ours, theirs) = (buffer(64), buffer(64));
    let (mr, at_region) = b.counted_region(64, 1);
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
    assert_eq!((at_region.value(), at_region.err()), (6, 0));
    assert_eq!((a.errors(), b.errors()), ([0; 6], [0; 6]));
}

fn one_counter_for_several_kinds() {
    let (_, domain) = domain();
    let kinds = [
        CntrBind::SEND | CntrBind::RECV,
        CntrBind::READ | CntrBind::WRITE | CntrBind::REMOTE_WRITE,
    ];
    let (host, cntrs) = Host::counting(&domain, &Options::default(), kinds);
    let (me, ep) = (host.meet(&host), &host.ep);
    let (theirs, into) = (buffer(8), buffer(8));
    let mr = register(&domain, &theirs, REMOTE, 0);
    let counts = |values| assert_eq!(cntrs.each_ref().map(Cntr::value), values);
    ep.recv(&theirs, 0).expect("recv");
    ep.inject(me, b"to me").expect("inject");
    counts([2, 0]);
    // A write to its own memory is a write, and a remote write.
    ep.inject_write(me, b"x", mr.remote(0)).expect("write");
    counts([2, 2]);
    // No counter of remote reads is bound.
    ep.read(me, &into, mr.remote(0), 0).expect("read");
    counts([2, 3]);
}

/// kfi_cntr(3): a counter counts every completion at its endpoint; flags of the binding may restrict
/// that.
fn a_binding_without_flags_counts_all() {
    let (_, domain) = domain();
    let (_cq, _av, unbound) = unbound_on(&domain);
    let (host, [all]) = Host::counting(&domain, &Options::default(), [CntrBind::empty()]);
    let (me, ep) = (host.meet(&host), &host.ep);
    let (theirs, into) = (buffer(8), buffer(8));
    let mr = register(&domain, &theirs, REMOTE, 0);
    ep.recv(&theirs, 0).expect("recv");
    ep.inject(me, b"to me").expect("inject");
    assert_eq!(all.value(), 2);
    // Each as an operation of its own, and as one of a peer.
    ep.inject_write(me, b"x", mr.remote(0)).expect("write");
    assert_eq!(all.value(), 4);
    ep.read(me, &into, mr.remote(0), 0).expect("read");
    assert_eq!((all.value(), all.err()), (6, 0));
    // Each kind has its counter then.
    unbound.bind_cntr(&all, CntrBind::empty()).expect("bind");
    for kind in KINDS {
        is_refused(unbound.bind_cntr(&all, kind), Errno::EINVAL);
    }
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
    is_refused(waiter.end(), Errno::KFI_EAVAIL);
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
    let local = buffer(48);
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
    let access = |list: &[RmaIov], len, write| {
        let (bytes, remote) = (local.slice(..len), Remote::new(0, keys[0]));
        let op = if write {
            Op::write(to, bytes, remote)
        } else {
            Op::read(to, bytes, remote)
        };
        from.post_one(&op.remote_iov(list)).expect("post");
        ends();
    };
    let mut expected = ([0; 2], [0; 2]);
    for (list, len, adds) in cases {
        for write in [true, false] {
            access(list, len, write);
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
            access(list, len, write);
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
    let ((one, at_one), (two, at_two)) = (b.counted_region(4096, 1), b.counted_region(4096, 2));
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

/// On a connection an access to no bytes succeeds with any key. It starts nothing at a target that
/// has not allowed it.
fn an_access_to_no_bytes_counts_with_its_key() {
    let (_, domain) = domain();
    let options = Options {
        ep_type: EpType::Msg,
        caps: Caps::MSG | Caps::RMA,
        ..Options::default()
    };
    let host = || Host::counting(&domain, &options, KINDS);
    let ((a, _), (b, at_b)) = (host(), host());
    connect(&a, &b);
    let writes = register(&domain, &buffer(8), Access::REMOTE_WRITE, 1);
    let nothing = buffer(8);
    let remote = |key| Remote::new(0, key);
    let peer = FiAddr::UNSPEC;
    for (key, counts) in [(0x77, [0, 0]), (writes.key(), [0, 1])] {
        a.ep.read(peer, nothing.slice(..0), remote(key), 1)
            .expect("read");
        a.ep.write(peer, nothing.slice(..0), remote(key), 2)
            .expect("write");
        a.expect(READ, 1);
        a.expect(WROTE, 2);
        // The target counts before it acknowledges.
        assert_eq!([at_b[4].value(), at_b[5].value()], counts, "key {key}");
    }
}

fn a_search_counts_nothing() {
    let (a, b) = (Counted::new(), Counted::new());
    let to_b = a.meet(&b);
    let into = buffer(8);
    let search = |tag, flags| {
        let op = Op::tpeek(tag, 0).context(tag).flags(flags);
        b.ep.post_one(&op).expect("peek");
        found(&b.cq, tag).is_some()
    };
    // The context identifies the message that is claimed.
    let receive = |tag, flags| {
        let op = Op::trecv(&into, tag, 0).context(tag).flags(flags);
        b.ep.post_one(&op).expect("trecv");
        assert!(found(&b.cq, tag).is_some());
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
    let large = buffer(100_000);
    let small = buffer(8);
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
    assert_eq!(b.counts(), [0; 6]);
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
    is_refused(a.ep.inject(to_b, b"x"), Errno::EHOSTUNREACH);
    assert_eq!(a.errors(), [2, 0, 1, 1, 0, 0]);
}

fn silent_success_counts() {
    let (_, domain) = domain();
    let selective = Options {
        bind: BOTH | CqBind::SELECTIVE,
        ..Options::default()
    };
    let messages = CntrBind::SEND | CntrBind::RECV;
    let (host, [cntr]) = Host::counting(&domain, &selective, [messages]);
    let me = host.meet(&host);
    let bytes = buffer(8);
    for i in 1..=100 {
        host.ep.recv(&bytes, 0).expect("recv");
        host.ep.send(me, &bytes, 0).expect("send");
        assert_eq!(cntr.value(), 2 * i);
    }
    host.expect_nothing();
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
    let waiter = Sleeper::new(move || received.wait(100, SOON));
    until_asleep(&b.counters[1], 1);
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
        is_refused(ep.bind_cntr(cntr, kinds), errno);
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
    let mr = register(&domain, &buffer, Access::REMOTE_WRITE, 0);
    is_refused(mr.bind_cntr(&one, CntrBind::SEND), Errno::EINVAL);
    is_refused(
        mr.bind_cntr(&elsewhere, CntrBind::REMOTE_WRITE),
        Errno::EINVAL,
    );
    mr.bind_cntr(&one, CntrBind::REMOTE_WRITE).expect("bind");
    is_refused(mr.bind_cntr(&two, CntrBind::REMOTE_WRITE), Errno::EINVAL);
    is_refused(
        mr.bind_cntr(&two, CntrBind::REMOTE_WRITE | CntrBind::REMOTE_READ),
        Errno::EINVAL,
    );
    mr.bind_cntr(&two, CntrBind::REMOTE_READ).expect("bind");
}

fn a_bound_counter_stays_open() {
    let (_, domain) = domain();
    let (_cq, _av, ep) = unbound_on(&domain);
    let (bound, of_region) = (counter(&domain), counter(&domain));
    ep.bind_cntr(&bound, CntrBind::SEND).expect("bind");
    let buffer = Buffer::new(8).expect("buffer");
    let mr = register(&domain, &buffer, Access::REMOTE_WRITE, 0);
    mr.bind_cntr(&of_region, CntrBind::REMOTE_WRITE)
        .expect("bind");
    let busy = |cntr: &Cntr| {
        is_refused(cntr.clone().close(), Errno::EBUSY);
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
}
