// SPDX-License-Identifier: GPL-2.0
//! Shared contexts: receives that the messages of several endpoints take, and room for transmits
//! that several endpoints have in common.
//!
//! [`hosts`](crate::hosts) runs some of these tests again with the sender on another host.

mod pool;

use self::pool::{MEMBERS, Pool, of_byte};
use crate::{
    connected::connect_qps,
    harness::tests,
    host::{
        BOTH, Host, LINK, Options, RECEIVED, SENT, SOON, TRECEIVED, TSENT, buffer, domain, errno,
        fails, failure, found, holding, is_refused, until,
    },
    raw::{File, refused},
};
use kfi::{
    Av, Caps, CompFlags, Cq, CqBind, EpType, Errno, FiAddr, Op, OpFlags, Wait,
    abi::{self, Call},
};

tests![
    the_oldest_shared_receive_takes_a_message,
    messages_wait_for_a_shared_receive,
    an_endpoint_closes_and_shared_receives_stay,
    a_shared_buffer_takes_messages_of_all_endpoints,
    shared_receives_are_posted_before_endpoints,
    shared_receives_are_cancelled,
    a_peer_sends_much_to_shared_receives,
    connections_share_receives,
    datagram_endpoints_share_receives,
    transmits_share_room,
    contexts_are_checked,
    a_file_ends_with_a_context_in_use,
];

/// More bytes than are buffered at the receiver.
const LONG: usize = 100_000;

fn the_oldest_shared_receive_takes_a_message() {
    let pool = Pool::new();
    let (sender, to) = pool.sender();
    let into: Vec<_> = (0..8).map(|_| buffer(LONG)).collect();
    for (context, buffer) in (0..).zip(&into[..6]) {
        pool.srx.recv(buffer, context).expect("recv");
    }
    for tag in [0, 1] {
        let place = 6 + tag as usize;
        pool.srx
            .trecv(&into[place], tag, 0, 6 + tag)
            .expect("trecv");
    }
    for (context, len) in (0u64..).zip([1, 0, LONG, 8, 5_000, 300]) {
        let at = context as usize;
        let from = of_byte(at as u8 + 1, len.max(1));
        let peer = to[(at + 1) % MEMBERS];
        sender.ep.send(peer, from.slice(..len), 50).expect("send");
        let entry = pool.expect(RECEIVED, context);
        assert_eq!(entry.len as usize, len);
        assert_eq!(into[at].to_vec(..len), from.to_vec(..len));
        sender.expect(SENT, 50);
    }
    for tag in [1, 0] {
        let from = of_byte(9, 10);
        sender.ep.tsend(to[0], &from, tag, 51).expect("tsend");
        assert_eq!(pool.expect(TRECEIVED, 6 + tag).tag, tag);
        sender.expect(TSENT, 51);
    }
    pool.expect_nothing();
    let counts = pool.members.iter().map(|member| member.received.read());
    let counts: Vec<_> = counts.map(|count| count.expect("read").value).collect();
    assert_eq!(counts, [4, 2, 2]);
}

/// Waits until a message with this tag waits for a receive.
fn until_it_waits(pool: &Pool, tag: u64) {
    until("a message waits", || waits(pool, tag));
}

/// Whether a message with this tag waits for a receive.
fn waits(pool: &Pool, tag: u64) -> bool {
    let nowhere = buffer(1);
    let search = Op::trecv(&nowhere, tag, 0).flags(OpFlags::PEEK).context(99);
    pool.srx.post_one(&search).expect("search");
    let entry = found(&pool.cq, 99);
    if let Some(entry) = &entry {
        assert_eq!(entry.tag, tag, "{entry:?}");
    }
    entry.is_some()
}

fn messages_wait_for_a_shared_receive() {
    let pool = Pool::new();
    let (sender, to) = pool.sender();
    let lengths = [8, LONG, 0, 4_000, 8];
    for (tag, len) in (0u64..).zip(lengths) {
        let from = of_byte(tag as u8 + 1, len.max(1));
        let peer = to[tag as usize % MEMBERS];
        sender
            .ep
            .tsend(peer, from.slice(..len), tag, tag)
            .expect("tsend");
        if len < LONG {
            sender.expect(TSENT, tag);
        }
        until_it_waits(&pool, tag);
    }
    let into = buffer(LONG);
    for (tag, len) in (0u64..).zip(lengths) {
        // Any message: the oldest.
        pool.srx.trecv(&into, 0, u64::MAX, 70 + tag).expect("trecv");
        let entry = pool.expect(TRECEIVED, 70 + tag);
        assert_eq!((entry.len as usize, entry.tag), (len, tag));
        assert_eq!(into.to_vec(..len), vec![tag as u8 + 1; len]);
    }
    sender.expect(TSENT, 1);
    pool.expect_nothing();
}

fn an_endpoint_closes_and_shared_receives_stay() {
    let mut pool = Pool::new();
    let (sender, to) = pool.sender();
    // A short and a long message wait for each of two endpoints.
    for (tag, peer) in (0u64..).zip(&to[..2]) {
        sender
            .ep
            .tsend(*peer, &of_byte(1, 8), tag, tag)
            .expect("tsend");
        sender.expect(TSENT, tag);
        until_it_waits(&pool, tag);
        let (tag, from) = (10 + tag, of_byte(2, LONG));
        sender.ep.tsend(*peer, &from, tag, tag).expect("tsend");
        until_it_waits(&pool, tag);
    }
    pool.members.remove(0);
    // EHOSTUNREACH on one host, ECONNRESET from another one.
    let failed = sender.failure();
    assert_eq!(failed.op_context, 10, "{failed:?}");
    for (tag, stays) in [(0, false), (10, false), (1, true), (11, true)] {
        assert_eq!(waits(&pool, tag), stays, "tag {tag}");
    }
    let into = buffer(LONG);
    for (tag, len) in [(1, 8), (11, LONG)] {
        pool.srx.trecv(&into, 0, u64::MAX, 5).expect("trecv");
        let entry = pool.expect(TRECEIVED, 5);
        assert_eq!((entry.len as usize, entry.tag), (len, tag));
    }
    sender.expect(TSENT, 11);
    // A receive outlives all endpoints.
    pool.srx.recv(&into, 6).expect("recv");
    pool.members.clear();
    pool.add(EpType::Rdm).expect("enable");
    let known = pool.members[0].ep.name().expect("name");
    let peer = sender.av.insert_one(known).expect("insert");
    sender.ep.send(peer, &of_byte(3, 9), 7).expect("send");
    assert_eq!(pool.expect(RECEIVED, 6).len, 9);
    sender.expect(SENT, 7);
    pool.expect_nothing();
}

fn a_shared_buffer_takes_messages_of_all_endpoints() {
    let pool = Pool::new();
    let (sender, to) = pool.sender();
    pool.srx.set_min_multi_recv(64).expect("min_multi_recv");
    let into = buffer(5 * 64 + 10);
    for at in 0..5 {
        if at == 2 {
            // Two wait for it.
            let op = Op::multi_recv(&into).context(3);
            pool.srx.post_one(&op).expect("multi_recv");
        }
        let from = of_byte(at as u8 + 1, 64);
        sender.ep.send(to[at % MEMBERS], &from, 1).expect("send");
        sender.expect(SENT, 1);
    }
    for at in 0..5 {
        let flags = match at {
            4 => RECEIVED | CompFlags::MULTI_RECV,
            _ => RECEIVED,
        };
        let entry = pool.expect(flags, 3);
        assert_eq!((entry.len, entry.buf), (64, into.addr() + 64 * at));
    }
    is_refused(pool.srx.cancel(3), Errno::ENOENT);
    pool.expect_nothing();
}

/// Room in the CQ is taken when the first endpoint is enabled.
fn shared_receives_are_posted_before_endpoints() {
    let mut pool = Pool::empty(4, 8);
    let into = buffer(64);
    for context in 0..5 {
        pool.srx.recv(&into, context).expect("recv");
    }
    is_refused(pool.add(EpType::Rdm), Errno::EAGAIN);
    // It is reported nowhere.
    pool.srx.cancel(4).expect("cancel");
    pool.add(EpType::Rdm).expect("enable");
    is_refused(pool.srx.recv(&into, 9), Errno::EAGAIN);
    let (sender, to) = pool.sender();
    for context in 0..4 {
        sender.ep.send(to[0], &of_byte(1, 8), 1).expect("send");
        sender.expect(SENT, 1);
        pool.expect(RECEIVED, context);
        pool.srx.recv(&into, context).expect("recv");
    }
    is_refused(pool.srx.recv(&into, 9), Errno::EAGAIN);
    pool.members.clear();
    // The room is free again, and so is the CQ.
    for context in 4..8 {
        pool.srx.recv(&into, context).expect("recv");
    }
    is_refused(pool.srx.recv(&into, 9), Errno::EAGAIN);
    pool.cq.close().expect("close the CQ");
}

fn shared_receives_are_cancelled() {
    let pool = Pool::new();
    let into = buffer(64);
    pool.srx.recv(&into, 1).expect("recv");
    pool.srx.trecv(&into, 1, 0, 1).expect("trecv");
    pool.srx
        .post_one(&Op::multi_recv(&into).context(2))
        .expect("multi_recv");
    let member = &pool.members[0].ep;
    is_refused(member.cancel(1), Errno::ENOENT);
    is_refused(member.recv(&into, 1), Errno::ENOSYS);
    for (context, flags) in [
        (1, RECEIVED),
        (1, TRECEIVED),
        (2, RECEIVED | CompFlags::MULTI_RECV),
    ] {
        pool.srx.cancel(context).expect("cancel");
        let failed = failure(&pool.cq);
        assert_eq!((failed.err, failed.flags), (Errno::ECANCELED, flags));
    }
    is_refused(pool.srx.cancel(1), Errno::ENOENT);
}

/// Many messages of all lengths to all endpoints, with few receives: none is lost, and those to one
/// endpoint arrive in their order.
fn a_peer_sends_much_to_shared_receives() {
    const MESSAGES: usize = 600;
    const POSTED: usize = 8;
    let length = |number: usize| match number % 7 {
        6 => 30_000,
        other => 8 + 700 * other,
    };
    let pool = Pool::new();
    let (sender, to) = pool.sender();
    let into: Vec<_> = (0..POSTED).map(|_| buffer(30_000)).collect();
    for (context, buffer) in (0..).zip(&into) {
        pool.srx.recv(buffer, context).expect("recv");
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..MESSAGES {
                let mut bytes = vec![number as u8; length(number)];
                bytes[..8].copy_from_slice(&(number as u64).to_ne_bytes());
                let from = holding(&bytes);
                let peer = to[number % MEMBERS];
                let begin = std::time::Instant::now();
                while let Err(e) = sender.ep.send(peer, &from, number as u64) {
                    assert_eq!(e.errno(), Some(Errno::EAGAIN));
                    assert!(begin.elapsed() < SOON);
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                sender.expect(SENT, number as u64);
            }
        });
        let mut next = [0, 1, 2];
        for _ in 0..MESSAGES {
            let entry = pool.cq.next(SOON).expect("completion").expect("in time");
            assert_eq!(entry.flags, RECEIVED);
            let buffer = &into[entry.op_context as usize];
            let head = buffer.to_vec(..8).try_into().expect("8 bytes");
            let number = u64::from_ne_bytes(head) as usize;
            assert_eq!(entry.len as usize, length(number));
            let rest = buffer.to_vec(8..length(number));
            assert!(rest.iter().all(|byte| *byte == number as u8), "{number}");
            let next = &mut next[number % MEMBERS];
            assert_eq!(number, *next);
            *next += MEMBERS;
            pool.srx.recv(buffer, entry.op_context).expect("recv");
        }
    });
    pool.expect_nothing();
}

/// The end of a connection leaves the receives to the others.
fn connections_share_receives() {
    let mut pool = Pool::empty(64, 0);
    let into = buffer(64);
    // Connections pass a multi-receive buffer over.
    pool.srx
        .post_one(&Op::multi_recv(&into).context(9))
        .expect("multi_recv");
    pool.srx.recv(&into, 0).expect("recv");
    let options = Options::of(EpType::Msg, Caps::MSG);
    let (_, there) = domain();
    let mut clients = Vec::new();
    for at in 0..MEMBERS {
        pool.add(EpType::Msg).expect("enable");
        clients.push(Host::on(&there, &options));
        connect_qps(&clients[at].ep, &pool.members[at].ep);
    }
    let from = of_byte(7, 32);
    for client in &clients[..2] {
        client.ep.send(FiAddr::UNSPEC, &from, 1).expect("send");
    }
    // The other one waits for a receive.
    pool.expect(RECEIVED, 0);
    pool.expect_nothing();
    pool.srx.recv(&into, 1).expect("recv");
    pool.expect(RECEIVED, 1);
    for client in &clients[..2] {
        client.expect(SENT, 1);
    }
    pool.srx.recv(&into, 2).expect("recv");
    pool.members.remove(0);
    pool.expect_nothing();
    clients[2].ep.send(FiAddr::UNSPEC, &from, 3).expect("send");
    pool.expect(RECEIVED, 2);
    clients[2].expect(SENT, 3);
    pool.srx.cancel(9).expect("cancel");
    assert_eq!(failure(&pool.cq).op_context, 9);
}

fn datagram_endpoints_share_receives() {
    let mut pool = Pool::empty(64, 0);
    let into = buffer(64);
    for context in 0..MEMBERS as u64 {
        pool.srx.recv(&into, context).expect("recv");
        pool.add(EpType::Dgram).expect("enable");
    }
    let sender = Host::with(&Options::of(EpType::Dgram, Caps::MSG));
    for (context, member) in (0..).zip(&pool.members) {
        let name = member.ep.name().expect("name");
        let peer = sender.av.insert_one(name).expect("insert");
        sender.ep.send(peer, &of_byte(1, 40), 1).expect("send");
        sender.expect(SENT, 1);
        assert_eq!(pool.expect(RECEIVED, context).len, 40);
        assert_eq!(member.received.read().expect("read").value, 1);
    }
}

/// Whichever endpoint a transmit is posted to.
fn transmits_share_room() {
    let target = Host::new();
    let (_, domain) = domain();
    let stx = domain.stx().size(2).open().expect("stx");
    let ends: Vec<_> = (0..2)
        .map(|_| {
            let (cq, av) = (
                domain.cq().wait(Wait::Queue).open().expect("cq"),
                domain.av().open().expect("av"),
            );
            let ep = domain.endpoint().shared_tx().open().expect("endpoint");
            ep.bind_stx(&stx).expect("bind stx");
            ep.bind_cq(&cq, BOTH).expect("bind cq");
            ep.bind_av(&av).expect("bind av");
            ep.enable().expect("enable");
            let name = target.ep.name().expect("name");
            let peer = av.insert_one(name).expect("insert");
            (ep, cq, peer)
        })
        .collect();
    let from = of_byte(1, LONG);
    // No receive: each waits.
    for (tag, (ep, _, peer)) in (0u64..).zip(&ends) {
        ep.tsend(*peer, &from, tag, 1).expect("tsend");
    }
    for (ep, _, peer) in &ends {
        is_refused(ep.send(*peer, &from, 2), Errno::EAGAIN);
    }
    let into = buffer(LONG);
    target.ep.trecv(&into, 0, 0, 1).expect("trecv");
    target.expect(TRECEIVED, 1);
    let (first, cq, peer) = &ends[0];
    cq.next(SOON).expect("completion").expect("in time");
    // The room that it has left is anybody's.
    ends[1].0.send(ends[1].2, &from, 3).expect("send");
    is_refused(first.send(*peer, &from, 2), Errno::EAGAIN);
    ends[1].0.cancel(3).expect("cancel");
    fails(&ends[1].1, 3, Errno::ECANCELED);
    first.send(*peer, &from, 2).expect("send");
}

fn contexts_are_checked() {
    let (fabric, domain) = domain();
    let other = fabric.domain(LINK).open().expect("domain");
    is_refused(domain.srx().caps(Caps::SEND).open(), Errno::EINVAL);
    is_refused(domain.stx().caps(Caps::RECV).open(), Errno::EINVAL);
    is_refused(domain.srx().size(16_385).open(), Errno::EINVAL);
    is_refused(domain.stx().size(16_385).open(), Errno::EINVAL);
    is_refused(domain.srx().buffered(u64::MAX).open(), Errno::EINVAL);
    let inject = domain.srx().op_flags(OpFlags::INJECT).open();
    is_refused(inject, Errno::EINVAL);

    let (srx, stx) = (
        domain.srx().open().expect("srx"),
        domain.stx().open().expect("stx"),
    );
    let narrow = domain.srx().caps(Caps::MSG | Caps::RECV);
    let narrow = narrow.open().expect("srx");
    let alien = other.srx().open().expect("srx");
    let plain = domain.endpoint().open().expect("endpoint");
    is_refused(plain.bind_srx(&srx), Errno::EINVAL);
    is_refused(plain.bind_stx(&stx), Errno::EINVAL);
    let ep = domain.endpoint().shared_rx().shared_tx();
    let ep = ep.open().expect("endpoint");
    is_refused(ep.bind_srx(&alien), Errno::EINVAL);
    is_refused(ep.bind_srx(&narrow), Errno::EINVAL);
    let (cq, av) = (
        domain.cq().open().expect("cq"),
        domain.av().open().expect("av"),
    );
    ep.bind_cq(&cq, BOTH).expect("bind cq");
    ep.bind_av(&av).expect("bind av");
    is_refused(ep.enable(), Errno::KFI_EOPBADSTATE);
    ep.bind_srx(&srx).expect("bind srx");
    is_refused(ep.bind_srx(&srx), Errno::EINVAL);
    is_refused(ep.enable(), Errno::KFI_EOPBADSTATE);
    ep.bind_stx(&stx).expect("bind stx");
    is_refused(ep.bind_stx(&stx), Errno::EINVAL);
    // While no endpoint is enabled.
    let into = buffer(8);
    let from_one = Op::recv(&into).from(FiAddr(0));
    is_refused(srx.post_one(&from_one), Errno::KFI_ENOAV);
    let search = Op::trecv(&into, 1, 0).flags(OpFlags::PEEK);
    is_refused(srx.post_one(&search), Errno::KFI_ENOCQ);
    ep.enable().expect("enable");
    is_refused(ep.bind_srx(&srx), Errno::KFI_EOPBADSTATE);
    is_refused(ep.bind_stx(&stx), Errno::KFI_EOPBADSTATE);
    // A context receives, and nothing else.
    let send = Op::send(FiAddr(0), &into);
    is_refused(srx.post_one(&send), Errno::EOPNOTSUPP);

    // Other endpoints report alike.
    let another = |cq: &Cq, av: &Av, flags| {
        let ep = domain.endpoint().shared_rx().open().expect("endpoint");
        ep.bind_srx(&srx).expect("bind srx");
        ep.bind_cq(cq, flags).expect("bind cq");
        ep.bind_av(av).expect("bind av");
        errno(ep.enable())
    };
    let (other_cq, other_av) = (
        domain.cq().open().expect("cq"),
        domain.av().open().expect("av"),
    );
    assert_eq!(another(&cq, &av, BOTH), None);
    assert_eq!(another(&other_cq, &av, BOTH), Some(Errno::EINVAL));
    assert_eq!(another(&cq, &other_av, BOTH), Some(Errno::EINVAL));
    assert_eq!(
        another(&cq, &av, BOTH | CqBind::SELECTIVE),
        Some(Errno::EINVAL)
    );
    is_refused(srx.clone().close(), Errno::EBUSY);
    is_refused(stx.clone().close(), Errno::EBUSY);
    drop(ep);
    assert_eq!(
        another(&other_cq, &other_av, BOTH | CqBind::SELECTIVE),
        None
    );
    srx.close().expect("close");
    stx.close().expect("close");
}

/// The end of a file closes a context that endpoints use, with messages and receives in it.
fn a_file_ends_with_a_context_in_use() {
    for receives in [false, true] {
        let sender = Host::new();
        let file = File::open();
        let domain = file.domain(file.fabric());
        let srx = file.make(abi::kfabric_srx_open {
            domain,
            ..Call::sized()
        });
        let stx = file.make(abi::kfabric_stx_open {
            domain,
            ..Call::sized()
        });
        let (cq, av) = (file.cq(domain), file.av(domain));
        let ep = file.make(abi::kfabric_ep_open {
            domain,
            shared: abi::KFABRIC_SHARED_RX | abi::KFABRIC_SHARED_TX,
            ..Call::sized()
        });
        for to in [srx, stx, av] {
            file.bind(ep, to, 0).expect("bind");
        }
        file.bind(ep, cq, BOTH.bits()).expect("bind");
        file.enable(ep).expect("enable");
        for handle in [srx, stx, cq, av] {
            refused(file.close(handle), Errno::EBUSY);
        }
        let port = u16::from_be(file.ep_name(ep).expect("name").port);
        let peer = sender
            .av
            .insert_one(([127, 0, 0, 1], port).into())
            .expect("insert");
        let into = buffer(64);
        if receives {
            let op = abi::kfabric_op {
                opcode: abi::KFABRIC_OP_RECV,
                buf: into.addr(),
                len: 64,
                peer: u64::MAX,
                ..Default::default()
            };
            file.post_one(srx, op).expect("post");
        } else {
            sender.ep.send(peer, &of_byte(1, 8), 1).expect("send");
            sender.expect(SENT, 1);
            sender.ep.send(peer, &of_byte(1, LONG), 2).expect("send");
        }
        drop(file);
        if !receives {
            assert_eq!(sender.failure().err, Errno::EHOSTUNREACH);
        }
    }
}
