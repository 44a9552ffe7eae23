// SPDX-License-Identifier: GPL-2.0
//! Endpoints that count their operations with counters and have no CQ, and operations that need no
//! entry in a CQ.

use crate::{
    alone::Alone,
    connected::connect_qps,
    counting::KINDS,
    harness::{Defect, REDESIGN, tests},
    host::{SOON, domain, pattern, until},
    hosts::apart,
};
use kfi::{
    Access, Av, Buffer, Caps, Cntr, Domain, Endpoint, EpType, Errno, FiAddr, Mr, Op, Remote, Wait,
};

const NEEDS_CQ: Defect = Defect {
    message: "an endpoint with a counter for each of its operations and no CQ cannot be enabled",
    mended: REDESIGN,
};

const NEEDS_ROOM: Defect = Defect {
    message: "an operation that reports nothing is refused because its CQ is full",
    mended: REDESIGN,
};

tests![
    reliable_datagrams_on_one_host[NEEDS_CQ],
    reliable_datagrams_between_two_hosts[NEEDS_CQ],
    connected_endpoints[NEEDS_CQ],
    datagrams[NEEDS_CQ],
    silent_operations_need_no_room[NEEDS_ROOM],
    a_silent_operation_that_fails_is_told_when_the_cq_is_full[NEEDS_ROOM],
];

/// The places of the counters of a [`Bare`], in the order of [`KINDS`].
const SEND: usize = 0;
const RECV: usize = 1;
const READ: usize = 2;
const WRITE: usize = 3;
const REMOTE_READ: usize = 4;
const REMOTE_WRITE: usize = 5;

/// Bytes of a transfer.
const LEN: usize = 3000;

/// An enabled endpoint with a counter for each kind of operation, and without a CQ.
struct Bare {
    domain: Domain,
    av: Av,
    ep: Endpoint,
    counters: [Cntr; 6],
}

impl Bare {
    fn new(ep_type: EpType, caps: Caps) -> Self {
        let (_, domain) = domain();
        let av = domain.av().open().expect("av");
        let ep = domain.endpoint().ep_type(ep_type).caps(caps).open();
        let ep = ep.expect("endpoint");
        let counters = KINDS.map(|kind| {
            let cntr = domain.cntr().wait(Wait::Queue).open().expect("cntr");
            ep.bind_cntr(&cntr, kind).expect("bind cntr");
            cntr
        });
        if ep_type != EpType::Msg {
            ep.bind_av(&av).expect("bind av");
        }
        let enabled = ep.enable();
        if let Err(error) = enabled {
            assert!(error.is(Errno::KFI_ENOCQ), "{error:?}");
            panic!("{}", NEEDS_CQ.message);
        }
        Self {
            domain,
            av,
            ep,
            counters,
        }
    }

    fn meet(&self, other: &Self) -> FiAddr {
        let name = other.ep.name().expect("name");
        self.av.insert_one(name).expect("insert")
    }

    fn region(&self, buffer: &Buffer) -> Mr {
        self.domain
            .mr(buffer)
            .access(Access::REMOTE_READ | Access::REMOTE_WRITE)
            .open()
            .expect("mr")
    }

    /// Waits until one counter has this value, and checks that it has no larger one and no errors.
    #[track_caller]
    fn counts(&self, kind: usize, value: u64) {
        let values = self.counters[kind].wait(value, SOON).expect("wait");
        assert_eq!((values.value, values.err), (value, 0), "{:?}", KINDS[kind]);
    }
}

/// Sends a message from `a` to `b`, and injects one.
fn sends(a: &Bare, to_b: FiAddr, b: &Bare) {
    let bytes = pattern(LEN, 1);
    let from = Buffer::from_bytes(&bytes).expect("buffer");
    let into = [0; 2].map(|_| Buffer::new(LEN).expect("buffer"));
    for into in &into {
        b.ep.recv(into, 1).expect("recv");
    }
    a.ep.send(to_b, &from, 2).expect("send");
    a.counts(SEND, 1);
    b.counts(RECV, 1);
    assert!(into[0].to_vec(..) == bytes);
    a.ep.inject(to_b, &bytes[..100]).expect("inject");
    a.counts(SEND, 2);
    b.counts(RECV, 2);
    assert!(into[1].to_vec(..100) == bytes[..100]);
}

/// Writes from `a` to `b`, and reads the bytes back.
fn writes_and_reads(a: &Bare, to_b: FiAddr, b: &Bare) {
    let bytes = pattern(LEN, 2);
    let from = Buffer::from_bytes(&bytes).expect("buffer");
    let (back, theirs) = (
        Buffer::new(LEN).expect("buffer"),
        Buffer::new(LEN).expect("buffer"),
    );
    let mr = b.region(&theirs);
    a.ep.write(to_b, &from, mr.remote(0), 3).expect("write");
    a.counts(WRITE, 1);
    b.counts(REMOTE_WRITE, 1);
    assert!(theirs.to_vec(..) == bytes);
    a.ep.read(to_b, &back, mr.remote(0), 4).expect("read");
    a.counts(READ, 1);
    b.counts(REMOTE_READ, 1);
    assert!(back.to_vec(..) == bytes);
}

fn reliable_datagrams() {
    let caps = Caps::MSG | Caps::TAGGED | Caps::RMA;
    let (a, b) = (Bare::new(EpType::Rdm, caps), Bare::new(EpType::Rdm, caps));
    let to_b = a.meet(&b);
    sends(&a, to_b, &b);
    writes_and_reads(&a, to_b, &b);
    // A tagged message that waits for its receive, and a failure.
    let buffer = Buffer::new(LEN).expect("buffer");
    a.ep.tsend(to_b, &buffer, 7, 5).expect("tsend");
    b.ep.trecv(&buffer, 7, 0, 6).expect("trecv");
    a.counts(SEND, 3);
    b.counts(RECV, 3);
    let nowhere = Remote::new(0, 0xdead);
    a.ep.write(to_b, &buffer, nowhere, 7).expect("write");
    until("the failure is counted", || a.counters[WRITE].err() == 1);
    assert_eq!(a.counters[WRITE].value(), 1);
}

fn reliable_datagrams_on_one_host() {
    reliable_datagrams();
}

fn reliable_datagrams_between_two_hosts() {
    apart();
    reliable_datagrams();
}

fn connected_endpoints() {
    let caps = Caps::MSG | Caps::RMA;
    let (a, b) = (Bare::new(EpType::Msg, caps), Bare::new(EpType::Msg, caps));
    connect_qps(&a.ep, &b.ep);
    sends(&a, FiAddr::UNSPEC, &b);
    writes_and_reads(&a, FiAddr::UNSPEC, &b);
}

fn datagrams() {
    let (a, b) = (
        Bare::new(EpType::Dgram, Caps::MSG),
        Bare::new(EpType::Dgram, Caps::MSG),
    );
    let to_b = a.meet(&b);
    sends(&a, to_b, &b);
}

/// An endpoint with a full CQ.
fn full() -> Alone {
    let alone = Alone::new();
    let refused = (0..100_000).find_map(|context| alone.try_complete(context).err());
    let refused = refused.expect("a CQ that is full");
    assert_eq!(refused.errno(), Some(Errno::EAGAIN));
    alone
}

/// Posts an operation whose success is not reported.
#[track_caller]
fn posts(alone: &Alone, op: &Op<'_>) {
    let posted = alone.ep.post_one(op);
    if let Err(error) = posted {
        assert!(error.is(Errno::EAGAIN), "{error:?}");
        panic!("{}", NEEDS_ROOM.message);
    }
}

fn silent_operations_need_no_room() {
    let alone = full();
    posts(&alone, &Op::inject_write(alone.me, b"x", alone.remote()));
    posts(&alone, &Op::inject(alone.me, b"message"));
    // The entries of the CQ stay, and none is added.
    while let [context] = alone.read(1)[..] {
        assert!(context < 100_000);
    }
    assert_eq!(alone.read_error(), None);
}

fn a_silent_operation_that_fails_is_told_when_the_cq_is_full() {
    let alone = full();
    let nowhere = Remote::new(0, 0xdead);
    let context = 1 << 40;
    let op = Op::inject_write(alone.me, b"x", nowhere).context(context);
    posts(&alone, &op);
    assert_eq!(alone.read_error(), Some(context));
}
