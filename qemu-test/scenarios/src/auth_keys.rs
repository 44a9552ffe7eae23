// SPDX-License-Identifier: GPL-2.0
//! Authorization keys: endpoints for reliable datagrams communicate with those that have the same
//! key, whatever they do. The consumer `consumer_keys` has the same tests for kernel modules.
//!
//! The keys of memory regions are tested in [`keys`](crate::keys).

use crate::{
    connected::open_region,
    deferred::{QUIET, cntr, defer},
    harness::tests,
    host::{Host, Options, buffer, domain, errno, netns_packets, until},
    hosts::{apart, sanitizing},
    ways::Way,
};
use kfi::{
    AtomicOp, AuthKey, Av, Buffer, Caps, CompFlags, CqBind, CqFormat, Datatype, Errno, FiAddr, Op,
    OpFlags, PacketCounter, Remote, Wait,
};

tests![
    equal_keys_communicate: [OneHost, TwoHosts],
    other_keys_do_not: [OneHost, TwoHosts],
    deferred_work_with_another_key_fails: [OneHost, TwoHosts],
    a_peer_comes_back_with_another_key: [OneHost, TwoHosts],
    endpoints_of_a_shared_context_have_keys_of_their_own,
    an_alias_has_the_key_of_its_endpoint,
    refused_peers_leave_nothing_behind => 120,
];

const SENT: CompFlags = CompFlags::MSG.union(CompFlags::SEND);
const RECEIVED: CompFlags = CompFlags::MSG.union(CompFlags::RECV);
const TRECEIVED: CompFlags = CompFlags::TAGGED.union(CompFlags::RECV);
const READ: CompFlags = CompFlags::RMA.union(CompFlags::READ);
const FETCHED: CompFlags = CompFlags::ATOMIC.union(CompFlags::READ);

/// Keys that differ in their last and their first byte.
const ONE: AuthKey = AuthKey::new([0, 0, 0, 1]);
const OTHER: AuthKey = AuthKey::new([1, 0, 0, 1]);

/// More than is buffered at a receiver.
const LONG: usize = 100_000;

fn options(auth_key: AuthKey) -> Options {
    Options {
        caps: Caps::MSG
            | Caps::TAGGED
            | Caps::TAGGED_RMA
            | Caps::RMA
            | Caps::ATOMIC
            | Caps::TRIGGER,
        auth_key,
        ..Options::default()
    }
}

/// Hosts with these keys, the first and the third of them on the same one of two hosts.
fn hosts<const N: usize>(way: Way, keys: [AuthKey; N]) -> [Host; N] {
    if way == Way::TwoHosts {
        apart();
    }
    keys.map(|key| Host::with(&options(key)))
}

/// A message from `a` arrives at `b`.
#[track_caller]
fn exchange(a: &Host, to_b: FiAddr, b: &Host) {
    let (from, into) = (Buffer::from_bytes(b"in order").expect("buffer"), buffer(8));
    b.ep.recv(&into, 30).expect("recv");
    a.ep.send(to_b, &from, 31).expect("send");
    b.expect(RECEIVED, 30);
    a.expect(SENT, 31);
    assert_eq!(into.to_vec(..), b"in order");
}

/// `op` fails because the peer has another key: the post on one host, and the completion between
/// hosts.
#[track_caller]
fn is_refused(way: Way, a: &Host, op: &Op<'_>) {
    let posted = a.ep.post_one(&op.context(40));
    if way == Way::OneHost {
        assert_eq!(errno(posted), Some(Errno::ENOTCONN));
    } else {
        posted.expect("post");
        let entry = a.failure();
        assert_eq!((entry.op_context, entry.err), (40, Errno::ENOTCONN));
        let text = a.cq.strerror(entry.prov_errno).expect("strerror");
        assert!(!text.is_empty());
    }
    a.expect_nothing();
}

fn equal_keys_communicate(way: Way) {
    // The key of zeros is that of endpoints without one.
    for key in [ONE, OTHER, AuthKey::NONE, AuthKey::new([0xff; 4])] {
        let [a, b] = hosts(way, [key; 2]);
        let to_b = a.meet(&b);
        exchange(&a, to_b, &b);
        let into = buffer(8);
        b.ep.trecv(&into, 5, 0, 1).expect("trecv");
        a.ep.tinject(to_b, b"a tagged", 5).expect("tinject");
        b.expect(TRECEIVED, 1);
        assert_eq!(into.to_vec(..), b"a tagged");
        let (theirs, ours) = (Buffer::of(&[5u64]).expect("buffer"), buffer(8));
        let mr = open_region(&b, &theirs, 1);
        let two = Buffer::of(&[2u64]).expect("buffer");
        let uint64 = Datatype::Uint64;
        let fetch = Op::fetch_atomic(to_b, &two, &ours, mr.remote(0), uint64, AtomicOp::Sum);
        a.ep.post_one(&fetch.context(2)).expect("fetch");
        a.expect(FETCHED, 2);
        assert_eq!(
            (ours.elements(), theirs.elements()),
            (vec![5u64], vec![7u64])
        );
        a.ep.read(to_b, &ours, mr.remote(0), 3).expect("read");
        a.expect(READ, 3);
        assert_eq!(ours.elements::<u64>(), [7]);
    }
}

/// Nothing reaches an endpoint with another key: neither its receives nor its memory.
fn other_keys_do_not(way: Way) {
    let none = AuthKey::NONE;
    for (first, second) in [(ONE, OTHER), (none, ONE), (ONE, none)] {
        let [a, b, friend] = hosts(way, [first, second, second]);
        let (to_b, to_a) = (a.meet(&b), b.meet(&a));
        let friend_to_b = friend.meet(&b);
        let theirs = Buffer::of(&[7u64; 2]).expect("buffer");
        let mr = open_region(&b, &theirs, 1);
        let (into, tagged) = (buffer(8), buffer(8));
        b.ep.recv(&into, 1).expect("recv");
        b.ep.trecv(&tagged, 5, 0, 2).expect("trecv");
        let (from, long, back) = (buffer(8), buffer(LONG), buffer(8));
        let (at, uint64) = (mr.remote(0), Datatype::Uint64);
        // The authorization key is checked before the key of a region, also of one that does not
        // exist.
        let nowhere = Remote::new(0, 77);
        let sum = AtomicOp::Sum;
        for op in [
            Op::send(to_b, &from),
            Op::send(to_b, &long),
            Op::send(to_b, &from).flags(OpFlags::DELIVERY_COMPLETE | OpFlags::COMPLETION),
            Op::send(to_b, &from).flags(OpFlags::REMOTE_CQ_DATA).data(9),
            Op::inject(to_b, b"injected"),
            Op::tsend(to_b, &from, 5),
            Op::tinject(to_b, b"injected", 5),
            Op::write(to_b, &from, at),
            Op::write(to_b, &from, at)
                .flags(OpFlags::REMOTE_CQ_DATA)
                .data(9),
            Op::write(to_b, &from, nowhere),
            Op::inject_write(to_b, b"injected", at),
            Op::read(to_b, &back, at),
            Op::read(to_b, &back, nowhere),
            Op::tread(to_b, &back, 5, 0),
            Op::twrite(to_b, &from, 5, 0),
            Op::atomic(to_b, &from, at, uint64, sum),
            Op::fetch_atomic(to_b, &from, &back, at, uint64, sum),
        ] {
            is_refused(way, &a, &op);
        }
        // Nor in the other direction.
        is_refused(way, &b, &Op::send(to_a, &from));
        b.expect_nothing();
        assert_eq!(theirs.elements::<u64>(), [7, 7]);
        assert_eq!(back.to_vec(..), [0; 8]);
        // The receives wait for those that have the key.
        friend.ep.inject(friend_to_b, b"a friend").expect("inject");
        let tagged_friend = Op::tinject(friend_to_b, b"a friend", 5);
        friend.ep.post_one(&tagged_friend).expect("tinject");
        for _ in 0..2 {
            let entry = b.completion();
            assert!(matches!(
                (entry.flags, entry.op_context),
                (RECEIVED, 1) | (TRECEIVED, 2)
            ));
        }
        assert_eq!(
            (into.to_vec(..), tagged.to_vec(..)),
            (b"a friend".to_vec(), b"a friend".to_vec())
        );
    }
}

/// It is admitted, and fails when it starts.
fn deferred_work_with_another_key_fails(way: Way) {
    let [a, b] = hosts(way, [ONE, OTHER]);
    let to_b = a.meet(&b);
    let (go, done) = (cntr(&a.domain), cntr(&a.domain));
    let theirs = Buffer::of(&[7u64]).expect("buffer");
    let mr = open_region(&b, &theirs, 1);
    let (from, into) = (buffer(8), buffer(8));
    b.ep.recv(&into, 1).expect("recv");
    let sum = Op::atomic(to_b, &from, mr.remote(0), Datatype::Uint64, AtomicOp::Sum);
    let works = [
        Op::send(to_b, &from),
        Op::write(to_b, &from, mr.remote(0)),
        sum,
    ];
    for (round, op) in (1..).zip(works) {
        defer(&a, &go, round, op.context(round), &done);
        std::thread::sleep(QUIET);
        assert_eq!(done.err(), round - 1);
        go.add(1).expect("add");
        let entry = a.failure();
        assert_eq!((entry.op_context, entry.err), (round, Errno::ENOTCONN));
        until("the failure is counted", || done.err() == round);
    }
    // A triggered operation, too.
    let op = Op::send(to_b, &from).trigger(&go, 9).context(9);
    a.ep.post_one(&op).expect("post");
    go.set(9).expect("set");
    let entry = a.failure();
    assert_eq!((entry.op_context, entry.err), (9, Errno::ENOTCONN));
    assert_eq!(done.value(), 0);
    b.expect_nothing();
    assert_eq!(theirs.elements::<u64>(), [7]);
}

fn a_peer_comes_back_with_another_key(way: Way) {
    let [a, b] = hosts(way, [ONE, ONE]);
    let to_b = a.meet(&b);
    exchange(&a, to_b, &b);
    let addr = b.ep.name().expect("name");
    let domain = b.domain.clone();
    // It waits for its receive there.
    let long = buffer(LONG);
    a.ep.send(to_b, &long, 9).expect("send");
    drop(b);
    let gone = match way {
        Way::OneHost => Errno::EHOSTUNREACH,
        _ => Errno::ECONNRESET,
    };
    let entry = a.failure();
    assert_eq!((entry.op_context, entry.err), (9, gone));
    let b = Host::at(&domain, &options(OTHER), Some(addr));
    for _ in 0..3 {
        is_refused(way, &a, &Op::send(to_b, &long));
    }
    b.expect_nothing();
    drop(b);
    let b = Host::at(&domain, &options(ONE), Some(addr));
    exchange(&a, to_b, &b);
}

/// Each message takes a receive of the context, whichever endpoint it comes to.
fn endpoints_of_a_shared_context_have_keys_of_their_own() {
    let (_, domain) = domain();
    let cq = domain.cq().format(CqFormat::Tagged).wait(Wait::Queue);
    let cq = cq.open().expect("cq");
    let av: Av = domain.av().open().expect("av");
    let srx = domain.srx().open().expect("srx");
    let member = |key| {
        let ep = domain.endpoint().auth_key(key).shared_rx();
        let ep = ep.open().expect("endpoint");
        ep.bind_srx(&srx).expect("bind srx");
        ep.bind_cq(&cq, CqBind::TRANSMIT | CqBind::RECV)
            .expect("bind cq");
        ep.bind_av(&av).expect("bind av");
        ep.enable().expect("enable");
        ep
    };
    let members = [ONE, OTHER].map(member);
    let into = buffer(8);
    for (index, key) in [ONE, OTHER].into_iter().enumerate() {
        let sender = Host::with(&options(key));
        let known = members.each_ref().map(|member| {
            let name = member.name().expect("name");
            sender.av.insert_one(name).expect("insert")
        });
        srx.recv(&into, 5).expect("recv");
        is_refused(
            Way::OneHost,
            &sender,
            &Op::inject(known[1 - index], b"refused."),
        );
        sender.ep.inject(known[index], b"accepted").expect("inject");
        let entry = cq
            .next(crate::host::SOON)
            .expect("completion")
            .expect("in time");
        assert_eq!((entry.flags, entry.op_context), (RECEIVED, 5));
        assert_eq!(into.to_vec(..), b"accepted");
    }
}

fn an_alias_has_the_key_of_its_endpoint() {
    let [a, b, friend] = hosts(Way::OneHost, [ONE, OTHER, ONE]);
    let (to_b, to_friend) = (a.meet(&b), a.meet(&friend));
    let alias =
        a.ep.alias(OpFlags::empty(), OpFlags::empty())
            .expect("alias");
    let refused = alias.post_one(&Op::inject(to_b, b"message."));
    assert_eq!(errno(refused), Some(Errno::ENOTCONN));
    let into = buffer(8);
    friend.ep.recv(&into, 1).expect("recv");
    alias
        .post_one(&Op::inject(to_friend, b"message."))
        .expect("inject");
    friend.expect(RECEIVED, 1);
    b.expect_nothing();
}

/// Many peers without the key ask again and again. Those that have it communicate meanwhile, and
/// all objects close.
fn refused_peers_leave_nothing_behind() {
    let hosts = apart();
    let [strangers_domain, domain_of_b] = [0, 1].map(|_| domain().1);
    let b = Host::on(&domain_of_b, &options(OTHER));
    // A request that is answered too late fails with another error.
    let count = if sanitizing() { 25 } else { 100 };
    let strangers: Vec<_> = (0..count)
        .map(|_| Host::on(&strangers_domain, &options(ONE)))
        .collect();
    let friend = Host::on(&strangers_domain, &options(OTHER));
    let to_b = friend.meet(&b);
    let refused = || {
        let count = || netns_packets().get(PacketCounter::CmKey);
        hosts.host(1).run(count)
    };
    let before = refused();
    for _ in 0..3 {
        for stranger in &strangers {
            let to_b = stranger.meet(&b);
            stranger.ep.inject(to_b, b"stranger").expect("inject");
        }
        exchange(&friend, to_b, &b);
        for stranger in &strangers {
            assert_eq!(stranger.failure().err, Errno::ENOTCONN);
        }
    }
    b.expect_nothing();
    // A request is repeated if its answer is late.
    assert!(refused() - before >= 3 * count);
}
