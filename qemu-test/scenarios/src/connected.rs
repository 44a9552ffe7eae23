// SPDX-License-Identifier: GPL-2.0
//! Connected endpoints, connected by hand, through the network of this host.

use crate::{
    harness::tests,
    host::{
        BOTH, Host, Options, READ, RECEIVED, REMOTE, SENT, SOON, WROTE, address_of, buffer, domain,
        errno, exchange, holding, is_refused, pattern, register, until,
    },
};
use kfi::{
    Access, Buffer, Caps, Cntr, CntrBind, Endpoint, EpType, Errno, FiAddr, Mr, Op, OpFlags,
    PeerAddr, QpAddr, QpOption, QpState, Remote, RmaIov,
};
use std::time::Duration;

/// Ignored by connected endpoints.
const PEER: FiAddr = FiAddr::UNSPEC;

/// The time during which no completion may come.
const QUIET: Duration = Duration::from_millis(200);

/// The first of the wire's `prov_errno`.
const WIRE: u32 = 256;

tests![
    messages_arrive_over_ipv6,
    a_message_waits_for_its_receive,
    a_message_that_is_too_long_ends_the_connection,
    the_lost_length_of_a_truncated_message_is_reported,
    a_forbidden_access_ends_the_connection,
    rma_takes_one_remote_piece,
    counters_count,
    both_ways_at_once => 180,
    the_attributes_of_the_qp_are_returned,
    options_of_a_qp_are_checked,
    operations_are_refused_before_the_connection,
    a_shutdown_ends_what_is_under_way,
    a_missing_peer_times_out,
    retries_to_a_peer_without_receives_end,
    closing_with_operations_under_way => 300,
    invalid_peers_are_refused,
    unsupported_operations_are_refused,
    connecting_enables_the_endpoint,
];

fn options() -> Options {
    Options::of(EpType::Msg, Caps::MSG | Caps::RMA)
}

/// Connects an endpoint to a QP, which begins with this PSN.
pub(crate) fn connect_to(ep: &Endpoint, (to, psn): (QpAddr, u32)) {
    ep.connect_qp(to, psn).expect("connect_qp");
}

/// Connects two hosts.
pub(crate) fn connect(a: &Host, b: &Host) {
    connect_qps(&a.ep, &b.ep);
}

/// Connects two endpoints.
pub(crate) fn connect_qps(a: &Endpoint, b: &Endpoint) {
    let (at_a, at_b) = (address_of(a), address_of(b));
    connect_to(a, at_b);
    connect_to(b, at_a);
}

/// Two connected hosts, after `change` of their options.
fn pair_after(change: impl Fn(&Host)) -> (Host, Host) {
    let (a, b) = (Host::with(&options()), Host::with(&options()));
    change(&a);
    change(&b);
    connect(&a, &b);
    (a, b)
}

fn pair() -> (Host, Host) {
    pair_after(|_| ())
}

/// Two hosts that give up early.
fn impatient() -> (Host, Host) {
    pair_after(|host| {
        for (option, value) in [
            (QpOption::Timeout, 10),
            (QpOption::RetryCnt, 2),
            (QpOption::RnrRetry, 2),
            (QpOption::MinRnrTimer, 1),
        ] {
            host.ep.set_qp_option(option, value).expect("option");
        }
    })
}

/// A region of `host`, with all rights for its peer.
pub(crate) fn open_region(host: &Host, buffer: &Buffer, key: u64) -> Mr {
    register(&host.domain, buffer, REMOTE, key)
}

fn messages_arrive_over_ipv6() {
    let any = Some("[::1]:0".parse().expect("address"));
    let [a, b] = [(); 2].map(|()| Host::at(&domain().1, &options(), any));
    connect(&a, &b);
    exchange(&a, PEER, &b, 10_000);
    exchange(&b, PEER, &a, 1);
}

fn a_message_waits_for_its_receive() {
    let (a, b) = pair();
    let from = holding(b"patience");
    a.ep.send(PEER, &from, 1).expect("send");
    assert!(a.cq.next(QUIET).expect("next").is_none());
    let into = buffer(8);
    b.ep.recv(&into, 2).expect("recv");
    b.expect(RECEIVED, 2);
    a.expect(SENT, 1);
    assert_eq!(into.to_vec(..), b"patience");
}

/// Messages of many packets, of which the first ones fit, and some do not at all.
fn the_lost_length_of_a_truncated_message_is_reported() {
    const ROOM: usize = 10_000;
    for len in [ROOM + 1, 2 * ROOM, 200_000] {
        let (a, b) = pair();
        let into = buffer(ROOM);
        b.ep.recv(&into, 2).expect("recv");
        let bytes = pattern(len, len as u64);
        let from = holding(&bytes);
        a.ep.send(PEER, &from, 1).expect("send");
        let entry = b.fails(2, Errno::KFI_ETRUNC);
        assert_eq!((entry.len, entry.olen), (ROOM as u64, (len - ROOM) as u64));
        assert!(into.to_vec(..) == bytes[..ROOM]);
        assert_eq!(a.failure().err, Errno::EREMOTEIO);
    }
}

fn a_message_that_is_too_long_ends_the_connection() {
    let (a, b) = pair();
    let into = buffer(8);
    b.ep.recv(&into, 2).expect("recv");
    b.ep.recv(&into, 3).expect("recv");
    let from = holding(&[7; 9]);
    a.ep.send(PEER, &from, 1).expect("send");
    let entry = b.fails(2, Errno::KFI_ETRUNC);
    // fi_cq(3): bytes that were placed, and bytes that did not fit and were
    // discarded.
    assert_eq!((entry.len, entry.olen), (8, 1));
    assert_eq!(into.to_vec(..), [7; 8]);
    assert_eq!(entry.prov_errno, WIRE + 1);
    // The next one ends with its connection.
    b.fails(3, Errno::ECANCELED);
    let entry = a.fails(1, Errno::EREMOTEIO);
    assert_eq!(entry.prov_errno, WIRE + 9);
    assert_eq!(
        a.cq.strerror(entry.prov_errno).expect("strerror"),
        "The peer refused the request as invalid"
    );
    for host in [&a, &b] {
        until("shut down", || {
            host.ep.qp().expect("qp").state == QpState::Error
        });
        is_refused(host.ep.recv(&into, 4), Errno::ESHUTDOWN);
        is_refused(host.ep.send(PEER, &into, 4), Errno::ESHUTDOWN);
    }
}

fn a_forbidden_access_ends_the_connection() {
    for what in ["key", "rights", "bounds"] {
        let (a, b) = pair();
        let theirs = buffer(16);
        let mr = register(&b.domain, &theirs, Access::REMOTE_READ, 1);
        let ours = buffer(8);
        match what {
            "key" => a.ep.read(PEER, &ours, Remote::new(0, 2), 1),
            "rights" => a.ep.write(PEER, &ours, Remote::new(0, mr.key()), 1),
            _ => a.ep.read(PEER, &ours, Remote::new(9, mr.key()), 1),
        }
        .expect("post");
        let entry = a.failure();
        assert_eq!((entry.err, entry.op_context), (Errno::EACCES, 1), "{what}");
        assert_eq!(entry.prov_errno, WIRE + 10, "{what}");
        assert_eq!(theirs.to_vec(..), [0; 16]);
    }
}

fn rma_takes_one_remote_piece() {
    let (a, b) = pair();
    let theirs = buffer(64);
    let mr = open_region(&b, &theirs, 1);
    let ours = holding(&pattern(40, 1));
    let local = [ours.slice(0..5).into(), ours.slice(10..20).into()];
    let op = Op::write(PEER, &local[..], Remote::new(1, mr.key())).context(1);
    a.ep.post_one(&op).expect("write");
    a.expect(WROTE, 1);
    let all = ours.to_vec(..);
    assert_eq!(theirs.to_vec(1..6), all[0..5]);
    assert_eq!(theirs.to_vec(6..16), all[10..20]);
    let remote = [RmaIov::new(mr.remote(0), 5), RmaIov::new(mr.remote(9), 10)];
    let op = Op::write(PEER, &local[..], Remote::default()).remote_iov(&remote);
    is_refused(a.ep.post_one(&op), Errno::EINVAL);
}

fn counters_count() {
    // A read of this length takes several requests on the wire.
    const LONG: usize = 4 << 20;
    let (_, domain) = domain();
    let accesses = CntrBind::REMOTE_READ | CntrBind::REMOTE_WRITE;
    let own = CntrBind::SEND | CntrBind::RECV | CntrBind::READ | CntrBind::WRITE;
    let [(a, [ours, _]), (b, [theirs, remote])] =
        [(); 2].map(|()| Host::counting(&domain, &options(), [own, accesses]));
    connect(&a, &b);
    let mr = open_region(&b, &buffer(LONG), 5);
    let region = domain.cntr().open().expect("cntr");
    mr.bind_cntr(&region, accesses).expect("bind");
    let local = buffer(LONG);
    exchange(&a, PEER, &b, 1);
    // The target counts each operation once, at the endpoint and at the region.
    let at_target = || [&remote, &region].map(Cntr::value);
    let mut count = 0;
    for len in [64, LONG, 0] {
        let bytes = local.slice(..len);
        for write in [true, false] {
            if write {
                a.ep.write(PEER, bytes, mr.remote(0), 1).expect("write");
                a.expect(WROTE, 1);
            } else {
                a.ep.read(PEER, bytes, mr.remote(0), 1).expect("read");
                a.expect(READ, 1);
            }
            count += 1;
            until("the target has counted", || at_target() == [count; 2]);
        }
    }
    // No completion follows.
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(at_target(), [count; 2]);
    assert_eq!((ours.value(), theirs.value()), (1 + count, 1));
    for cntr in [&ours, &theirs, &remote, &region] {
        assert_eq!(cntr.err(), 0);
    }
}

fn both_ways_at_once() {
    const ROUNDS: u64 = 64;
    let (a, b) = pair();
    let len = 100_000;
    let bytes = pattern(len, 7);
    let from = holding(&bytes);
    std::thread::scope(|scope| {
        for host in [&a, &b] {
            scope.spawn(|| {
                let inboxes: Vec<_> = (0..4).map(|_| buffer(len)).collect();
                for (number, inbox) in inboxes.iter().enumerate() {
                    host.ep.recv(inbox, number as u64).expect("recv");
                }
                let (mut sent, mut done, mut received) = (0, 0, 0);
                while done < ROUNDS || received < ROUNDS {
                    if sent < ROUNDS && sent - done < 4 {
                        host.ep.send(PEER, &from, 99).expect("send");
                        sent += 1;
                        continue;
                    }
                    let entry = host.completion();
                    if entry.flags == SENT {
                        done += 1;
                        continue;
                    }
                    assert_eq!(entry.flags, RECEIVED);
                    let inbox = &inboxes[entry.op_context as usize];
                    assert!(inbox.to_vec(..) == bytes, "message {received}");
                    received += 1;
                    host.ep.recv(inbox, entry.op_context).expect("recv");
                }
            });
        }
    });
}

fn the_attributes_of_the_qp_are_returned() {
    let (a, b) = (Host::with(&options()), Host::with(&options()));
    let qp = a.ep.qp().expect("qp");
    assert_eq!(
        (qp.state, qp.dest_qpn, qp.path_mtu),
        (QpState::Init, None, None)
    );
    assert!(qp.psn < 1 << 24 && qp.qpn > 1 && qp.qpn < 1 << 24);
    is_refused(a.ep.peer(), Errno::ENOTCONN);
    connect(&a, &b);
    let (to_b, _) = b.qp();
    let qp = a.ep.qp().expect("qp");
    assert_eq!((qp.state, qp.dest_qpn), (QpState::Rts, Some(to_b.qpn)));
    assert_eq!(qp.path_mtu, Some(4096));
    assert_eq!(a.ep.peer().expect("peer"), PeerAddr::Qp(to_b));
    is_refused(a.ep.connect_qp(to_b, 0), Errno::EISCONN);
}

fn options_of_a_qp_are_checked() {
    let (a, b) = (Host::with(&options()), Host::with(&options()));
    for (option, default, largest) in [
        (QpOption::PathMtu, 0, 4096),
        (QpOption::Timeout, 14, 31),
        (QpOption::RetryCnt, 7, 7),
        (QpOption::RnrRetry, 7, 7),
        (QpOption::MinRnrTimer, 12, 31),
        (QpOption::RdAtomic, 16, 16),
        (QpOption::DestRdAtomic, 16, 16),
    ] {
        let set = |value| a.ep.set_qp_option(option, value);
        assert_eq!(a.ep.qp_option(option).expect("get"), default, "{option:?}");
        for wrong in [largest + 1, 1 << 32, u64::MAX] {
            assert_eq!(errno(set(wrong)), Some(Errno::EINVAL), "{option:?}");
        }
        set(largest).expect("set");
        assert_eq!(a.ep.qp_option(option).expect("get"), largest);
        set(default).expect("set");
    }
    for wrong in [1, 255, 1000] {
        let set = a.ep.set_qp_option(QpOption::PathMtu, wrong);
        is_refused(set, Errno::EINVAL);
    }
    is_refused(a.ep.qkey(), Errno::ENOPROTOOPT);
    for host in [&a, &b] {
        host.ep.set_qp_option(QpOption::PathMtu, 512).expect("set");
    }
    a.ep.set_qp_option(QpOption::RdAtomic, 0).expect("set");
    connect(&a, &b);
    let buffer = Buffer::new(8).expect("buffer");
    let read = a.ep.read(PEER, &buffer, Remote::new(0, 1), 1);
    is_refused(read, Errno::EOPNOTSUPP);
    assert_eq!(a.ep.qp().expect("qp").path_mtu, Some(512));
    exchange(&a, PEER, &b, 10_000);
    let late = a.ep.set_qp_option(QpOption::PathMtu, 512);
    is_refused(late, Errno::KFI_EOPBADSTATE);
    let rdm = Host::new();
    let other = rdm.ep.qp_option(QpOption::Timeout);
    is_refused(other, Errno::ENOPROTOOPT);
}

fn operations_are_refused_before_the_connection() {
    let a = Host::with(&options());
    let buffer = Buffer::new(8).expect("buffer");
    a.ep.recv(&buffer, 1).expect("recv");
    is_refused(a.ep.send(PEER, &buffer, 2), Errno::ENOTCONN);
    let remote = Remote::new(0, 1);
    let read = a.ep.read(PEER, &buffer, remote, 2);
    is_refused(read, Errno::ENOTCONN);
    let write = a.ep.write(PEER, &buffer, remote, 2);
    is_refused(write, Errno::ENOTCONN);
    is_refused(a.ep.shutdown(), Errno::ENOTCONN);
    a.ep.cancel(1).expect("cancel");
    assert_eq!(a.failure().err, Errno::ECANCELED);
}

fn a_shutdown_ends_what_is_under_way() {
    let (a, b) = pair();
    let buffer = Buffer::new(8).expect("buffer");
    a.ep.recv(&buffer, 1).expect("recv");
    a.ep.send(PEER, &buffer, 2).expect("send");
    a.ep.shutdown().expect("shutdown");
    let mut ended = [a.failure(), a.failure()];
    ended.sort_by_key(|entry| entry.op_context);
    for (entry, context) in ended.iter().zip(1..) {
        assert_eq!((entry.err, entry.op_context), (Errno::ECANCELED, context));
        assert_eq!(entry.prov_errno, WIRE + 5);
    }
    is_refused(a.ep.shutdown(), Errno::ENOTCONN);
    is_refused(a.ep.send(PEER, &buffer, 3), Errno::ESHUTDOWN);
    is_refused(a.ep.recv(&buffer, 3), Errno::ESHUTDOWN);
    a.expect_nothing();
    // For connections made by hand, the peer gets no event.
    assert_eq!(b.ep.qp().expect("qp").state, QpState::Rts);
}

fn a_missing_peer_times_out() {
    let (a, b) = impatient();
    drop(b);
    let buffer = Buffer::new(8).expect("buffer");
    a.ep.recv(&buffer, 1).expect("recv");
    a.ep.send(PEER, &buffer, 2).expect("send");
    let mut ended = [a.failure(), a.failure()];
    ended.sort_by_key(|entry| entry.op_context);
    assert_eq!(ended[0].err, Errno::ECANCELED);
    assert_eq!(
        (ended[1].err, ended[1].prov_errno),
        (Errno::ETIMEDOUT, WIRE + 12)
    );
}

fn retries_to_a_peer_without_receives_end() {
    let (a, _b) = impatient();
    let buffer = Buffer::new(8).expect("buffer");
    a.ep.send(PEER, &buffer, 2).expect("send");
    let entry = a.failure();
    assert_eq!((entry.err, entry.prov_errno), (Errno::ETIMEDOUT, WIRE + 13));
}

fn closing_with_operations_under_way() {
    for _ in 0..20 {
        let (a, b) = pair();
        let (from, into) = (buffer(1 << 20), buffer(1 << 20));
        for number in 0..8 {
            b.ep.recv(&into, number).expect("recv");
            a.ep.send(PEER, &from, number).expect("send");
        }
        b.expect(RECEIVED, 0);
        // The order of closing does not matter.
        drop((b, a));
    }
}

fn invalid_peers_are_refused() {
    let (a, b) = (Host::with(&options()), Host::with(&options()));
    let (to_b, psn) = b.qp();
    let at = |host: &str| QpAddr {
        host: host.parse().unwrap(),
        ..to_b
    };
    for (addr, psn) in [
        (QpAddr { qpn: 0, ..to_b }, psn),
        (
            QpAddr {
                qpn: 1 << 24,
                ..to_b
            },
            psn,
        ),
        (to_b, 1 << 24),
        (at("[::1]:0"), psn),
        (at("0.0.0.0:0"), psn),
        (at("224.0.0.1:0"), psn),
    ] {
        let wrong = a.ep.connect_qp(addr, psn);
        assert_eq!(errno(wrong), Some(Errno::EINVAL), "{addr:?} {psn:#x}");
    }
    // It has not changed.
    connect(&a, &b);
    exchange(&a, PEER, &b, 8);
}

fn unsupported_operations_are_refused() {
    let (_, domain) = domain();
    for caps in [
        Caps::TAGGED,
        Caps::SOURCE,
        Caps::DIRECTED_RECV,
        Caps::MULTI_RECV,
    ] {
        let open = domain
            .endpoint()
            .ep_type(EpType::Msg)
            .caps(Caps::MSG | caps)
            .open();
        assert_eq!(errno(open), Some(Errno::EOPNOTSUPP), "{caps:?}");
    }
    let kept = domain.endpoint().ep_type(EpType::Msg).buffered(1).open();
    is_refused(kept, Errno::EOPNOTSUPP);
    let (a, b) = pair();
    let buffer = Buffer::new(8).expect("buffer");
    is_refused(a.ep.tsend(PEER, &buffer, 1, 1), Errno::EOPNOTSUPP);
    // Reliable connections have delivery complete.
    b.ep.recv(&buffer, 2).expect("recv");
    let op = Op::send(PEER, &buffer)
        .flags(OpFlags::DELIVERY_COMPLETE)
        .context(1);
    a.ep.post_one(&op).expect("send");
    a.expect(SENT, 1);
    assert_eq!(
        b.cq.next(SOON).expect("next").expect("entry").flags,
        RECEIVED
    );
}

fn connecting_enables_the_endpoint() {
    let (_, domain) = domain();
    let cq = domain.cq().open().expect("cq");
    let ep = domain.endpoint().ep_type(EpType::Msg);
    let ep = ep.open().expect("endpoint");
    let b = Host::with(&options());
    let (to_b, psn) = b.qp();
    is_refused(ep.qp(), Errno::KFI_EOPBADSTATE);
    is_refused(ep.connect_qp(to_b, psn), Errno::KFI_ENOCQ);
    ep.bind_cq(&cq, BOTH).expect("bind");
    ep.connect_qp(to_b, psn).expect("connect_qp");
    assert_eq!(ep.qp().expect("qp").state, QpState::Rts);
    is_refused(ep.enable(), Errno::KFI_EOPBADSTATE);
}
