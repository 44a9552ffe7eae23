// SPDX-License-Identifier: GPL-2.0
//! Scalable endpoints: contexts with addresses, the source of their messages, and what closes
//! when. [`hosts`](crate::hosts) runs the transfers between two hosts, too.

use crate::{
    harness::tests,
    host::{
        BOTH, RECEIVED, REMOTE, SENT, SOON, buffer, device, domain, expect, expect_nothing, fails,
        failure, holding, is_refused, register,
    },
    threads::{become_real_time, run_on},
};
use kfi::{
    AuthKey, Av, Caps, CompCntrOps, CompFlags, Cq, CqBind, CqFormat, Domain, Endpoint, Entry,
    Errno, FiAddr, Op, ScalableEndpoint, Side, Wait,
};
use std::{net::SocketAddr, sync::mpsc};

tests![
    each_context_has_an_address,
    the_source_is_the_scalable_endpoint,
    a_receive_names_a_scalable_endpoint,
    memory_is_accessed_through_each_context,
    contexts_that_do_not_exist_are_not_reached,
    contexts_have_the_key_of_their_scalable_endpoint,
    attributes_of_contexts_are_checked,
    contexts_are_set_up,
    contexts_in_use_stay_open,
    a_context_closes_when_its_last_entry_was_read => 120,
    a_program_that_ends_closes_everything,
];

/// Bits of addresses that select a context.
const BITS: u32 = 8;

/// Contexts of each side.
const CONTEXTS: u32 = 3;

/// A context and its CQ.
struct Context {
    ep: Endpoint,
    cq: Cq,
}

impl Context {
    fn new(domain: &Domain, sep: &ScalableEndpoint, side: Side, index: u32) -> Self {
        let cq = domain.cq().format(CqFormat::Tagged).wait(Wait::Queue);
        let cq = cq.open().expect("cq");
        let ep = sep.context(side, index).open().expect("context");
        ep.bind_cq(&cq, CqBind::empty()).expect("bind");
        ep.enable().expect("enable");
        Self { ep, cq }
    }

    /// The next completion, which must have these flags and this context.
    #[track_caller]
    fn expect(&self, flags: CompFlags, context: u64) -> Entry {
        expect(&self.cq, flags, context)
    }
}

/// A scalable endpoint with all its contexts, enabled.
struct Scalable {
    domain: Domain,
    av: Av,
    sep: ScalableEndpoint,
    tx: Vec<Context>,
    rx: Vec<Context>,
}

impl Scalable {
    fn new() -> Self {
        let (_, domain) = domain();
        Self::on(&domain)
    }

    fn on(domain: &Domain) -> Self {
        Self::named(domain, None)
    }

    /// With this name.
    fn named(domain: &Domain, name: Option<SocketAddr>) -> Self {
        Self::keyed(domain, name, AuthKey::NONE)
    }

    /// With this name and this authorization key.
    fn keyed(domain: &Domain, name: Option<SocketAddr>, key: AuthKey) -> Self {
        let av = domain.av().rx_ctx_bits(BITS).open().expect("av");
        let sep = domain
            .scalable_endpoint()
            .contexts(CONTEXTS, CONTEXTS)
            .caps(Caps::MSG | Caps::TAGGED | Caps::RMA | Caps::SOURCE | Caps::DIRECTED_RECV)
            .auth_key(key)
            .open()
            .expect("scalable endpoint");
        sep.bind_av(&av).expect("bind");
        if let Some(name) = name {
            sep.set_name(name).expect("name");
        }
        sep.enable().expect("enable");
        let contexts = |side| {
            (0..CONTEXTS)
                .map(|index| Context::new(domain, &sep, side, index))
                .collect()
        };
        Self {
            domain: domain.clone(),
            tx: contexts(Side::Transmit),
            rx: contexts(Side::Recv),
            av,
            sep,
        }
    }

    /// Adds the name of `other` to the AV.
    fn meet(&self, other: &Self) -> FiAddr {
        self.av
            .insert_one(other.sep.name().expect("name"))
            .expect("insert")
    }
}

/// The address of a context.
fn context(peer: FiAddr, index: usize) -> FiAddr {
    peer.receive_context(index as u32, BITS)
}

fn each_context_has_an_address() {
    let (a, b) = (Scalable::new(), Scalable::new());
    let to_b = a.meet(&b);
    for (i, from) in a.tx.iter().enumerate() {
        for (j, at) in b.rx.iter().enumerate() {
            // Eager, and with the sender until it is received.
            for len in [100, 20_000] {
                let bytes = vec![(1 + i * 3 + j) as u8; len];
                let ours = holding(&bytes);
                let into = buffer(len);
                at.ep.recv(&into, 2).expect("recv");
                from.ep.send(context(to_b, j), &ours, 1).expect("send");
                assert_eq!(at.expect(RECEIVED, 2).len as usize, len);
                from.expect(SENT, 1);
                assert!(into.to_vec(..) == bytes);
                for other in &b.rx {
                    expect_nothing(&other.cq);
                }
            }
        }
    }
}

fn the_source_is_the_scalable_endpoint() {
    let (a, b) = (Scalable::new(), Scalable::new());
    let (to_b, to_a) = (a.meet(&b), b.meet(&a));
    let into = buffer(8);
    for (i, from) in a.tx.iter().enumerate() {
        for (j, at) in b.rx.iter().enumerate() {
            at.ep.recv(&into, 2).expect("recv");
            let bytes = [i as u8, j as u8];
            from.ep.inject(context(to_b, j), &bytes).expect("inject");
            assert_eq!(at.expect(RECEIVED, 2).src_addr, to_a);
        }
    }
    // A message that came before its receive.
    a.tx[1]
        .ep
        .inject(context(to_b, 2), b"early")
        .expect("inject");
    std::thread::sleep(SOON / 100);
    b.rx[2].ep.recv(&into, 3).expect("recv");
    assert_eq!(b.rx[2].expect(RECEIVED, 3).src_addr, to_a);
}

fn a_receive_names_a_scalable_endpoint() {
    let (a, b) = (Scalable::new(), Scalable::new());
    let other = Scalable::on(&a.domain);
    let (to_b, to_a) = (a.meet(&b), b.meet(&a));
    let from_other = context(other.meet(&b), 1);
    let (into, rest) = (buffer(8), buffer(8));
    let at = &b.rx[1];
    at.ep
        .post_one(&Op::recv(&into).from(to_a).context(1))
        .expect("recv");
    other.tx[0].ep.inject(from_other, b"no").expect("inject");
    a.tx[2].ep.inject(context(to_b, 1), b"yes").expect("inject");
    at.expect(RECEIVED, 1);
    assert_eq!(into.to_vec(..3), b"yes");
    at.ep.recv(&rest, 2).expect("recv");
    at.expect(RECEIVED, 2);
    assert_eq!(rest.to_vec(..2), b"no");
}

fn memory_is_accessed_through_each_context() {
    let (a, b) = (Scalable::new(), Scalable::new());
    let to_b = a.meet(&b);
    let (ours, theirs) = (buffer(4096), buffer(4096));
    let mr = register(&b.domain, &theirs, REMOTE, 0);
    for (index, from) in a.tx.iter().enumerate() {
        let peer = context(to_b, index);
        let at = 1024 * index;
        ours.fill(index as u8 + 1);
        from.ep
            .write(peer, ours.slice(..1024), mr.remote(at as u64), 1)
            .expect("write");
        from.expect(CompFlags::RMA | CompFlags::WRITE, 1);
        assert!(theirs.to_vec(at..at + 1024) == ours.to_vec(..1024));
        theirs.fill(index as u8 + 7);
        from.ep
            .read(peer, ours.slice(..1024), mr.remote(0), 2)
            .expect("read");
        from.expect(CompFlags::RMA | CompFlags::READ, 2);
        assert!(theirs.to_vec(..1024) == ours.to_vec(..1024));
    }
}

/// An operation to `peer` fails when it is posted, or completes with ECONNREFUSED from another
/// host.
#[track_caller]
fn does_not_reach(from: &Context, peer: FiAddr) {
    let ours = buffer(8);
    match from.ep.send(peer, &ours, 9) {
        Ok(()) => {
            fails(&from.cq, 9, Errno::ECONNREFUSED);
        }
        failed => is_refused(failed, Errno::EHOSTUNREACH),
    }
}

fn contexts_that_do_not_exist_are_not_reached() {
    let (a, first) = (Scalable::new(), Scalable::new());
    // A name whose next ports are free.
    let mut name = first.sep.name().expect("name");
    name.set_port(7100);
    let b = Scalable::named(&first.domain, Some(name));
    assert_eq!(b.sep.name().expect("name"), name);
    let to_b = a.meet(&b);
    does_not_reach(&a.tx[0], context(to_b, CONTEXTS as usize));
    does_not_reach(&a.tx[0], context(to_b, 255));
    // An endpoint where the next context would be is no context.
    name.set_port(name.port() + CONTEXTS as u16);
    let ep = b.domain.endpoint().addr(name).open().expect("endpoint");
    ep.bind_cq(&b.rx[0].cq, BOTH).expect("bind");
    ep.bind_av(&b.av).expect("bind");
    ep.enable().expect("enable");
    does_not_reach(&a.tx[0], context(to_b, CONTEXTS as usize));
    let plain = a.av.insert_one(name).expect("insert");
    a.tx[0].ep.inject(plain, b"plain").expect("inject");
    let into = buffer(8);
    ep.recv(&into, 3).expect("recv");
    b.rx[0].expect(RECEIVED, 3);
    // A context by its port, instead of by the name and its index.
    name.set_port(b.sep.name().expect("name").port() + 1);
    let direct = a.av.insert_one(name).expect("insert");
    does_not_reach(&a.tx[1], direct);
    // Ports of transmit contexts follow those of the receive contexts.
    let to_first = a.meet(&first);
    for index in CONTEXTS..3 * CONTEXTS {
        does_not_reach(&a.tx[1], context(to_first, index as usize));
    }
    // All contexts have one address.
    let looked_up = a.av.lookup(context(to_b, 2)).expect("lookup");
    assert_eq!(looked_up, b.sep.name().expect("name"));
}

fn contexts_have_the_key_of_their_scalable_endpoint() {
    let keys = [[0, 0, 0, 1], [0, 0, 0, 1], [1, 0, 0, 0]].map(AuthKey::new);
    let [a, b, stranger] = keys.map(|key| Scalable::keyed(&domain().1, None, key));
    let to_b = a.meet(&b);
    let (ours, theirs) = (buffer(8), buffer(8));
    for (index, tx) in a.tx.iter().enumerate() {
        b.rx[index].ep.recv(&theirs, 1).expect("recv");
        tx.ep.send(context(to_b, index), &ours, 2).expect("send");
        b.rx[index].expect(RECEIVED, 1);
        tx.expect(SENT, 2);
    }
    for (from, to) in [(&a, a.meet(&stranger)), (&b, b.meet(&stranger))] {
        for (index, tx) in from.tx.iter().enumerate() {
            // By the call on one host, and in the CQ between hosts.
            match tx.ep.send(context(to, index), &ours, 3) {
                Ok(()) => assert_eq!(failure(&tx.cq).err, Errno::ENOTCONN),
                refused => is_refused(refused, Errno::ENOTCONN),
            }
        }
    }
    for rx in &stranger.rx {
        expect_nothing(&rx.cq);
    }
}

fn attributes_of_contexts_are_checked() {
    let (_, domain) = domain();
    let most = device().query().expect("query").max_ep_ctx;
    assert_eq!(most, 64);
    let open = |tx, rx| domain.scalable_endpoint().contexts(tx, rx).open();
    is_refused(open(most + 1, 1), Errno::EINVAL);
    is_refused(open(1, most + 1), Errno::EINVAL);
    is_refused(domain.av().rx_ctx_bits(17).open(), Errno::EINVAL);
    let sep = open(most, 0).expect("scalable endpoint");
    let tx = |index| sep.context(Side::Transmit, index);
    let last = tx(most - 1).open().expect("context");
    is_refused(tx(most).open(), Errno::EINVAL);
    is_refused(tx(u32::MAX).open(), Errno::EINVAL);
    is_refused(tx(most - 1).open(), Errno::EBUSY);
    is_refused(tx(0).caps(Caps::RECV).open(), Errno::EINVAL);
    is_refused(tx(0).queue_size(16_385).open(), Errno::EINVAL);
    is_refused(sep.context(Side::Recv, 1).open(), Errno::EINVAL);
    last.close().expect("close");
    tx(most - 1).open().expect("context");
    let sends = domain.scalable_endpoint().caps(Caps::MSG | Caps::SEND);
    let sends = sends.open().expect("scalable endpoint");
    let receive = sends.context(Side::Recv, 0).open();
    is_refused(receive, Errno::EOPNOTSUPP);
}

fn contexts_are_set_up() {
    let (_, domain) = domain();
    let av = domain.av().rx_ctx_bits(BITS).open().expect("av");
    let cq = domain.cq().open().expect("cq");
    let sep = domain.scalable_endpoint().contexts(1, 2);
    let sep = sep.open().expect("scalable endpoint");
    is_refused(sep.name(), Errno::KFI_EOPBADSTATE);
    is_refused(sep.enable(), Errno::KFI_ENOAV);
    let rx = sep.context(Side::Recv, 1).open().expect("context");
    is_refused(rx.bind_av(&av), Errno::EINVAL);
    is_refused(rx.bind_cq(&cq, CqBind::TRANSMIT), Errno::EINVAL);
    is_refused(rx.enable(), Errno::KFI_ENOCQ);
    rx.bind_cq(&cq, CqBind::RECV).expect("bind");
    is_refused(rx.enable(), Errno::KFI_ENOAV);
    sep.bind_av(&av).expect("bind");
    is_refused(sep.bind_av(&av), Errno::EINVAL);
    // The context settles the name.
    rx.enable().expect("enable");
    let name = sep.name().expect("name");
    assert_eq!(rx.name().expect("name"), name);
    is_refused(sep.set_name(name), Errno::KFI_EOPBADSTATE);
    sep.enable().expect("enable");
    is_refused(sep.enable(), Errno::KFI_EOPBADSTATE);
    // Its ports are taken.
    let mut taken = name;
    taken.set_port(name.port() + 1);
    let ep = domain.endpoint().addr(taken).open().expect("endpoint");
    ep.bind_cq(&cq, BOTH).expect("bind");
    ep.bind_av(&av).expect("bind");
    is_refused(ep.enable(), Errno::EADDRINUSE);
    let into = buffer(8);
    let sends = rx.send(FiAddr(0), &into, 1);
    is_refused(sends, Errno::EOPNOTSUPP);
    // A completion counter of verbs counts operations of the side of its context.
    let counts = domain.comp_cntr().create().expect("create");
    let (send, recv) = (CompCntrOps::SEND, CompCntrOps::RECV);
    for (side, own, other) in [(Side::Transmit, send, recv), (Side::Recv, recv, send)] {
        let context = sep.context(side, 0).open().expect("context");
        for ops in [other, own | other] {
            is_refused(context.attach_comp_cntr(&counts, ops), Errno::EINVAL);
        }
        context.attach_comp_cntr(&counts, own).expect("attach");
    }
    rx.close().expect("close");
    is_refused(ep.enable(), Errno::EADDRINUSE);
    sep.close().expect("close");
    ep.enable().expect("enable");
}

fn contexts_in_use_stay_open() {
    let (a, b) = (Scalable::new(), Scalable::new());
    let to_b = a.meet(&b);
    is_refused(a.sep.clone().close(), Errno::EBUSY);
    is_refused(a.av.clone().close(), Errno::EBUSY);
    let ours = buffer(20_000);
    let tx = a.tx[0].ep.clone();
    tx.send(context(to_b, 0), &ours, 1).expect("send");
    is_refused(tx.clone().close(), Errno::EBUSY);
    tx.cancel(1).expect("cancel");
    assert_eq!(failure(&a.tx[0].cq).err, Errno::ECANCELED);
    tx.close().expect("close");
    // Receives are dropped.
    let rx = b.rx[0].ep.clone();
    rx.recv(&ours, 2).expect("recv");
    rx.close().expect("close");
    expect_nothing(&b.rx[0].cq);
}

/// The add of another thread starts the send. The thread that waits for the entry preempts it
/// before the post has returned.
fn a_context_closes_when_its_last_entry_was_read() {
    const ROUNDS: u64 = 300;
    let peer = Scalable::new();
    let (_, domain) = domain();
    let av = domain.av().rx_ctx_bits(BITS).open().expect("av");
    let sep = domain.scalable_endpoint().caps(Caps::MSG | Caps::TRIGGER);
    let sep = sep.open().expect("scalable endpoint");
    sep.bind_av(&av).expect("bind");
    let name = peer.sep.name().expect("name");
    let to = context(av.insert_one(name).expect("insert"), 0);
    let (go, from, into) = (domain.cntr().open().expect("cntr"), buffer(8), buffer(8));
    let (due, posted) = mpsc::channel();
    let adder = std::thread::spawn({
        let go = go.clone();
        move || {
            run_on([0]);
            posted.iter().for_each(|()| go.add(1).expect("add"));
        }
    });
    become_real_time(0);
    for round in 1..=ROUNDS {
        peer.rx[0].ep.recv(&into, round).expect("recv");
        let Context { ep, cq } = Context::new(&domain, &sep, Side::Transmit, 0);
        let send = Op::send(to, &from).context(round).trigger(&go, round);
        ep.post_one(&send).expect("send");
        due.send(()).expect("a thread");
        expect(&cq, SENT, round);
        ep.close().expect("close");
        peer.rx[0].expect(RECEIVED, round);
    }
    drop(due);
    adder.join().expect("adds");
}

fn a_program_that_ends_closes_everything() {
    let peer = Scalable::new();
    for _ in 0..3 {
        let device = {
            let scalable = Scalable::new();
            let to_peer = scalable.meet(&peer);
            let ours = buffer(20_000);
            for (index, tx) in scalable.tx.iter().enumerate() {
                tx.ep.send(context(to_peer, index), &ours, 1).expect("send");
            }
            for rx in &scalable.rx {
                rx.ep.recv(&ours, 1).expect("recv");
            }
            scalable.domain.clone()
        };
        drop(device);
    }
    for rx in &peer.rx {
        expect_nothing(&rx.cq);
    }
}
