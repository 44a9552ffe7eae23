// SPDX-License-Identifier: GPL-2.0
//! Endpoints that count their operations with counters and have no CQ, and operations that need no
//! entry in a CQ. A failure of such an operation is reported all the same if there is a CQ.

use crate::{
    alone::Alone,
    connected::{connect_qps, open_region},
    counting::KINDS,
    harness::tests,
    host::{BOTH, Host, Options, REMOTE, SOON, buffer, domain, holding, pattern, register, until},
    hosts::apart,
    ways::Way,
};
use kfi::{
    Av, Buffer, Caps, Cntr, CqBind, Domain, Endpoint, EpType, Errno, FiAddr, Mr, Op, Remote, Wait,
};

tests![
    operations_are_counted: [OneHost, TwoHosts, Connection, Datagrams],
    a_peek_needs_a_cq,
    silent_operations_need_no_room: [OneHost, TwoHosts, Connection],
    errors_keep_their_order_when_the_cq_is_full,
    a_silent_send_that_waits_is_cancelled_when_the_cq_is_full,
    a_silent_receive_fails_when_the_cq_is_full,
];

/// The places of the counters of a [`Bare`], in the order of [`KINDS`].
pub(crate) const SEND: usize = 0;
pub(crate) const RECV: usize = 1;
pub(crate) const READ: usize = 2;
pub(crate) const WRITE: usize = 3;
pub(crate) const REMOTE_READ: usize = 4;
pub(crate) const REMOTE_WRITE: usize = 5;

/// Bytes of a transfer.
const LEN: usize = 3000;

/// An enabled endpoint with a counter for each kind of operation, and without a CQ.
pub(crate) struct Bare {
    pub(crate) domain: Domain,
    av: Av,
    pub(crate) ep: Endpoint,
    pub(crate) counters: [Cntr; 6],
}

impl Bare {
    pub(crate) fn new(ep_type: EpType, caps: Caps) -> Self {
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
        ep.enable().expect("enable");
        Self {
            domain,
            av,
            ep,
            counters,
        }
    }

    pub(crate) fn meet(&self, other: &Self) -> FiAddr {
        let name = other.ep.name().expect("name");
        self.av.insert_one(name).expect("insert")
    }

    pub(crate) fn region(&self, buffer: &Buffer) -> Mr {
        register(&self.domain, buffer, REMOTE, 0)
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
    let from = holding(&bytes);
    let into = [0; 2].map(|_| buffer(LEN));
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
    let from = holding(&bytes);
    let (back, theirs) = (buffer(LEN), buffer(LEN));
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

fn operations_are_counted(way: Way) {
    if way == Way::TwoHosts {
        apart();
    }
    let caps = match way {
        Way::OneHost | Way::TwoHosts => Caps::MSG | Caps::TAGGED | Caps::RMA,
        Way::Connection => Caps::MSG | Caps::RMA,
        Way::Datagrams => Caps::MSG,
    };
    let [a, b] = [(); 2].map(|()| Bare::new(way.ep_type(), caps));
    let to_b = match way {
        Way::Connection => {
            connect_qps(&a.ep, &b.ep);
            FiAddr::UNSPEC
        }
        _ => a.meet(&b),
    };
    sends(&a, to_b, &b);
    if way.has_rma() {
        writes_and_reads(&a, to_b, &b);
    }
    let bytes = buffer(LEN);
    if way == Way::Connection {
        // The data of a write have no CQ to go to; the write itself is counted.
        let mr = b.region(&bytes);
        let op = Op::inject_write(to_b, b"data", mr.remote(0)).data(5);
        a.ep.post_one(&op).expect("write");
        a.counts(WRITE, 2);
        b.counts(REMOTE_WRITE, 2);
        assert!(bytes.to_vec(..4) == b"data");
    } else if way.has_rma() {
        // A tagged message that waits for its receive, and a failure.
        a.ep.tsend(to_b, &bytes, 7, 5).expect("tsend");
        b.ep.trecv(&bytes, 7, 0, 6).expect("trecv");
        a.counts(SEND, 3);
        b.counts(RECV, 3);
        let nowhere = Remote::new(0, 0xdead);
        a.ep.write(to_b, &bytes, nowhere, 7).expect("write");
        until("the failure is counted", || a.counters[WRITE].err() == 1);
        assert_eq!(a.counters[WRITE].value(), 1);
    }
}

/// An entry is all that a peek would tell.
fn a_peek_needs_a_cq() {
    let bare = Bare::new(EpType::Rdm, Caps::MSG | Caps::TAGGED);
    let received = || bare.counters[RECV].value();
    let sent = Buffer::new(4).expect("buffer");
    sent.write_at(0, b"data");
    for counted in 0..2 {
        let peek = bare.ep.post_one(&Op::tpeek(1, 0));
        assert_eq!(peek.unwrap_err().errno(), Some(Errno::KFI_ENOCQ));
        assert_eq!(received(), counted);
        // A message that it could find, and that a receive finds afterwards.
        let me = bare.meet(&bare);
        let message = Op::tsend(me, &sent, 1);
        bare.ep.post_one(&message).expect("send");
        let peek = bare.ep.post_one(&Op::tpeek(1, 0));
        assert_eq!(peek.unwrap_err().errno(), Some(Errno::KFI_ENOCQ));
        let buffer = Buffer::new(4).expect("buffer");
        bare.ep
            .post_one(&Op::trecv(&buffer, 1, 0))
            .expect("receive");
        until("a receive", || received() == counted + 1);
        assert!(buffer.to_vec(..4) == b"data");
    }
}

/// Fills the CQ.
fn fill(alone: &Alone) {
    let refused = (0..100_000).find_map(|context| alone.try_complete(context).err());
    let refused = refused.expect("a CQ that is full");
    assert_eq!(refused.errno(), Some(Errno::EAGAIN));
}

/// Posts an operation whose success is not reported, and which no full CQ refuses.
#[track_caller]
fn posts(alone: &Alone, op: &Op<'_>) {
    alone.ep.post_one(op).expect("post");
}

/// A write to where there is nothing.
fn fails(alone: &Alone, context: u64) -> Op<'static> {
    Op::inject_write(alone.me, b"x", Remote::new(0, 0xdead)).context(context)
}

fn errors_keep_their_order_when_the_cq_is_full() {
    let alone = Alone::new();
    let into = buffer(8);
    alone.ep.recv(&into, 1 << 41).expect("recv");
    fill(&alone);
    posts(&alone, &fails(&alone, 1 << 40));
    // This one has room in the CQ.
    alone.ep.cancel(1 << 41).expect("cancel");
    posts(&alone, &fails(&alone, 1 << 42));
    for context in [1 << 40, 1 << 41, 1 << 42] {
        assert_eq!(alone.read_error(), Some(context));
    }
    assert_eq!(alone.read_error(), None);
    // More of them than the CQ has entries.
    for context in 0..1000 {
        posts(&alone, &fails(&alone, context));
    }
    for context in 0..1000 {
        assert_eq!(alone.read_error(), Some(context));
    }
    assert_eq!(alone.read_error(), None);
    assert!(!alone.read(1).is_empty());
}

/// An endpoint with a full CQ that is bound selectively.
fn full_selective() -> Alone {
    let bind = BOTH | CqBind::SELECTIVE;
    let alone = Alone::with(|cq| cq, |ep| ep, bind);
    fill(&alone);
    alone
}

fn a_silent_send_that_waits_is_cancelled_when_the_cq_is_full() {
    let alone = full_selective();
    // Too long to be buffered.
    let buffer = Buffer::new(1 << 20).expect("buffer");
    posts(&alone, &Op::tsend(alone.me, &buffer, 7).context(1 << 40));
    alone.ep.cancel(1 << 40).expect("cancel");
    assert_eq!(alone.read_error(), Some(1 << 40));
    // One that is received instead reports nothing.
    posts(&alone, &Op::tsend(alone.me, &buffer, 7));
    posts(&alone, &Op::trecv(&buffer, 7, 0));
    assert_eq!(alone.read_error(), None);
}

fn a_silent_receive_fails_when_the_cq_is_full() {
    let alone = full_selective();
    let into = buffer(4);
    posts(&alone, &Op::recv(&into).context(1 << 40));
    posts(&alone, &Op::trecv(&into, 1, 0).context(1 << 41));
    posts(&alone, &Op::inject(alone.me, b"too long"));
    alone.ep.cancel(1 << 41).expect("cancel");
    // A message that waits, for a receive that is too short.
    posts(&alone, &Op::tinject(alone.me, b"too long", 2));
    posts(&alone, &Op::trecv(&into, 2, 0).context(1 << 42));
    for (context, errno) in [
        (1 << 40, Errno::KFI_ETRUNC),
        (1 << 41, Errno::ECANCELED),
        (1 << 42, Errno::KFI_ETRUNC),
    ] {
        let error = alone.cq.readerr().expect("readerr").expect("an error");
        assert_eq!((error.op_context, error.err), (context, errno));
    }
    assert_eq!(alone.read_error(), None);
}

/// Entries of a CQ that is soon full.
const FEW: u32 = 16;

/// Fills the CQ of a host with receives; gives their memory.
fn fill_with_receives(host: &Host) -> Buffer {
    let into = buffer(8);
    let refused = (1000..2000).find_map(|context| host.ep.recv(&into, context).err());
    let refused = refused.expect("a CQ that is full");
    assert_eq!(refused.errno(), Some(Errno::EAGAIN));
    into
}

/// Of an endpoint whose CQ is full: some that succeed, and one that fails.
fn silent_operations_need_no_room(way: Way) {
    let (a, to_b, b) = way.pair_with(&Options::sized(0, 0, FEW));
    let (into, theirs) = (buffer(8), buffer(8));
    b.ep.recv(&into, 1).expect("recv");
    let mr = open_region(&b, &theirs, 1);
    let _receives = fill_with_receives(&a);
    a.ep.inject_write(to_b, b"x", mr.remote(0)).expect("write");
    a.ep.inject(to_b, b"message").expect("inject");
    assert_eq!(b.completion().op_context, 1);
    assert!(into.to_vec(..7) == b"message");
    assert!(theirs.to_vec(..1) == b"x");
    a.expect_nothing();
    let op = Op::inject_write(to_b, b"x", Remote::new(0, 0xdead));
    a.ep.post_one(&op.context(7)).expect("inject_write");
    // What ends with its connection may come before.
    until("the failure is reported", || a.failure().op_context == 7);
}
