// SPDX-License-Identifier: GPL-2.0
//! Connected endpoints, connected by hand, through the network of this host.

use crate::{
    harness::tests,
    host::{Host, Options, SOON, address_of, domain, errno, pattern, until},
    rma::write_and_read,
};
use kfi::{
    Access, Buffer, Caps, Cntr, CntrBind, CompFlags, CqBind, Endpoint, EpType, Errno, FiAddr, Mr,
    Op, OpFlags, PeerAddr, QpAddr, QpOption, QpState, Remote, RmaIov,
};
use std::time::Duration;

const SENT: CompFlags = CompFlags::MSG.union(CompFlags::SEND);
const RECEIVED: CompFlags = CompFlags::MSG.union(CompFlags::RECV);
const WROTE: CompFlags = CompFlags::RMA.union(CompFlags::WRITE);
const READ: CompFlags = CompFlags::RMA.union(CompFlags::READ);

/// Ignored by connected endpoints.
const PEER: FiAddr = FiAddr::UNSPEC;

/// The time during which no completion may come.
const QUIET: Duration = Duration::from_millis(200);

/// The first of the wire's `prov_errno`.
const WIRE: u32 = 256;

tests![
    messages_arrive,
    long_messages_arrive => 180,
    messages_arrive_over_ipv6,
    a_message_waits_for_its_receive,
    cq_data_have_32_bits,
    injected_messages_are_silent,
    a_message_that_is_too_long_ends_the_connection,
    the_lost_length_of_a_truncated_message_is_reported,
    writes_and_reads_arrive,
    data_of_a_write_reaches_the_peers_cq,
    a_forbidden_access_ends_the_connection,
    rma_takes_one_remote_piece,
    counters_count,
    the_transmit_queue_is_bounded,
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
    Options {
        ep_type: EpType::Msg,
        caps: Caps::MSG | Caps::RMA,
        ..Options::default()
    }
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
    host.domain
        .mr(buffer)
        .access(Access::REMOTE_READ | Access::REMOTE_WRITE)
        .requested_key(key)
        .open()
        .expect("mr")
}

fn exchange(a: &Host, b: &Host, len: usize) {
    let bytes = pattern(len, len as u64);
    let from = Buffer::from_bytes(if len == 0 { b"-" } else { &bytes }).expect("buffer");
    let into = Buffer::new(len.max(1)).expect("buffer");
    b.ep.recv(&into, 2).expect("recv");
    a.ep.send(PEER, from.slice(..len), 1).expect("send");
    let entry = b.expect(RECEIVED, 2);
    assert_eq!(entry.len as usize, len);
    assert!(into.to_vec(..len) == bytes, "length {len}");
    a.expect(SENT, 1);
}

fn messages_arrive() {
    let (a, b) = pair();
    for len in [
        0, 1, 3, 255, 256, 257, 4095, 4096, 4097, 8192, 10_000, 65_536,
    ] {
        exchange(&a, &b, len);
        exchange(&b, &a, len);
    }
}

fn long_messages_arrive() {
    let (a, b) = pair();
    for len in [1 << 20, (1 << 20) + 1, 16 << 20] {
        exchange(&a, &b, len);
    }
}

fn messages_arrive_over_ipv6() {
    let open = || {
        let (_, domain) = domain();
        let cq = domain
            .cq()
            .format(kfi::CqFormat::Tagged)
            .open()
            .expect("cq");
        let ep = domain
            .endpoint()
            .ep_type(EpType::Msg)
            .addr("[::1]:0".parse().unwrap())
            .open()
            .expect("endpoint");
        ep.bind_cq(&cq, CqBind::TRANSMIT | CqBind::RECV)
            .expect("bind");
        ep.enable().expect("enable");
        let av = domain.av().open().expect("av");
        Host { domain, cq, av, ep }
    };
    let (a, b) = (open(), open());
    connect(&a, &b);
    exchange(&a, &b, 10_000);
    exchange(&b, &a, 1);
}

fn a_message_waits_for_its_receive() {
    let (a, b) = pair();
    let from = Buffer::from_bytes(b"patience").expect("buffer");
    a.ep.send(PEER, &from, 1).expect("send");
    assert!(a.cq.next(QUIET).expect("next").is_none());
    let into = Buffer::new(8).expect("buffer");
    b.ep.recv(&into, 2).expect("recv");
    b.expect(RECEIVED, 2);
    a.expect(SENT, 1);
    assert_eq!(into.to_vec(..), b"patience");
}

fn cq_data_have_32_bits() {
    let (a, b) = pair();
    let (from, into) = (Buffer::from_bytes(b"x").unwrap(), Buffer::new(8).unwrap());
    b.ep.recv(&into, 2).expect("recv");
    a.ep.senddata(PEER, &from, 0xdead_beef, 1)
        .expect("senddata");
    let entry = b.expect(RECEIVED | CompFlags::REMOTE_CQ_DATA, 2);
    assert_eq!((entry.data, entry.len), (0xdead_beef, 1));
    a.expect(SENT, 1);
    let long = a.ep.senddata(PEER, &from, 1 << 32, 1);
    assert_eq!(errno(long), Some(Errno::EINVAL));
}

fn injected_messages_are_silent() {
    let (a, b) = pair();
    let into = Buffer::new(256).expect("buffer");
    b.ep.recv(&into, 2).expect("recv");
    a.ep.inject(PEER, &[9; 256]).expect("inject");
    b.expect(RECEIVED, 2);
    assert_eq!(into.to_vec(..), [9; 256]);
    a.expect_nothing();
    assert_eq!(errno(a.ep.inject(PEER, &[9; 257])), Some(Errno::EMSGSIZE));
}

/// Messages of many packets, of which the first ones fit, and some do not at all.
fn the_lost_length_of_a_truncated_message_is_reported() {
    const ROOM: usize = 10_000;
    for len in [ROOM + 1, 2 * ROOM, 200_000] {
        let (a, b) = pair();
        let into = Buffer::new(ROOM).expect("buffer");
        b.ep.recv(&into, 2).expect("recv");
        let bytes = pattern(len, len as u64);
        let from = Buffer::from_bytes(&bytes).expect("buffer");
        a.ep.send(PEER, &from, 1).expect("send");
        let entry = b.failure();
        assert_eq!((entry.err, entry.op_context), (Errno::KFI_ETRUNC, 2));
        assert_eq!((entry.len, entry.olen), (ROOM as u64, (len - ROOM) as u64));
        assert!(into.to_vec(..) == bytes[..ROOM]);
        assert_eq!(a.failure().err, Errno::EREMOTEIO);
    }
}

fn a_message_that_is_too_long_ends_the_connection() {
    let (a, b) = pair();
    let into = Buffer::new(8).expect("buffer");
    b.ep.recv(&into, 2).expect("recv");
    b.ep.recv(&into, 3).expect("recv");
    let from = Buffer::from_bytes(&[7; 9]).expect("buffer");
    a.ep.send(PEER, &from, 1).expect("send");
    let entry = b.failure();
    assert_eq!((entry.err, entry.op_context), (Errno::KFI_ETRUNC, 2));
    // fi_cq(3): bytes that were placed, and bytes that did not fit and were
    // discarded.
    assert_eq!((entry.len, entry.olen), (8, 1));
    assert_eq!(into.to_vec(..), [7; 8]);
    assert_eq!(entry.prov_errno, WIRE + 1);
    // The next one ends with its connection.
    let entry = b.failure();
    assert_eq!((entry.err, entry.op_context), (Errno::ECANCELED, 3));
    let entry = a.failure();
    assert_eq!((entry.err, entry.op_context), (Errno::EREMOTEIO, 1));
    assert_eq!(entry.prov_errno, WIRE + 9);
    assert_eq!(
        a.cq.strerror(entry.prov_errno).expect("strerror"),
        "The peer refused the request as invalid"
    );
    for host in [&a, &b] {
        until("shut down", || {
            host.ep.qp().expect("qp").state == QpState::Error
        });
        assert_eq!(errno(host.ep.recv(&into, 4)), Some(Errno::ESHUTDOWN));
        assert_eq!(errno(host.ep.send(PEER, &into, 4)), Some(Errno::ESHUTDOWN));
    }
}

fn writes_and_reads_arrive() {
    let (a, b) = pair();
    write_and_read(&a, PEER, &b, [1, 8, 4096, 4097, 100_000, 1 << 20]);
}

fn data_of_a_write_reaches_the_peers_cq() {
    let (a, b) = pair();
    let theirs = Buffer::new(16).expect("buffer");
    let mr = open_region(&b, &theirs, 1);
    // It takes no receive.
    b.ep.recv(&theirs, 2).expect("recv");
    let ours = Buffer::from_bytes(b"12345678").expect("buffer");
    let op = Op::write(PEER, &ours, Remote::new(0, mr.key()))
        .context(4)
        .flags(OpFlags::REMOTE_CQ_DATA)
        .data(99);
    a.ep.post_one(&op).expect("writedata");
    a.expect(WROTE, 4);
    let flags = CompFlags::RMA | CompFlags::REMOTE_WRITE | CompFlags::REMOTE_CQ_DATA;
    let entry = b.completion();
    // fi_cq(3): the length is for receives.
    assert_eq!((entry.flags, entry.data, entry.len), (flags, 99, 0));
    a.ep.inject(PEER, b"m").expect("inject");
    b.expect(RECEIVED, 2);
}

fn a_forbidden_access_ends_the_connection() {
    for what in ["key", "rights", "bounds"] {
        let (a, b) = pair();
        let theirs = Buffer::new(16).expect("buffer");
        let mr = b
            .domain
            .mr(&theirs)
            .access(Access::REMOTE_READ)
            .requested_key(1)
            .open()
            .expect("mr");
        let ours = Buffer::new(8).expect("buffer");
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
    let theirs = Buffer::new(64).expect("buffer");
    let mr = open_region(&b, &theirs, 1);
    let ours = Buffer::from_bytes(&pattern(40, 1)).expect("buffer");
    let local = [ours.slice(0..5).into(), ours.slice(10..20).into()];
    let op = Op::write(PEER, &local[..], Remote::new(1, mr.key())).context(1);
    a.ep.post_one(&op).expect("write");
    a.expect(WROTE, 1);
    let all = ours.to_vec(..);
    assert_eq!(theirs.to_vec(1..6), all[0..5]);
    assert_eq!(theirs.to_vec(6..16), all[10..20]);
    let remote = [RmaIov::new(mr.remote(0), 5), RmaIov::new(mr.remote(9), 10)];
    let op = Op::write(PEER, &local[..], Remote::default()).remote_iov(&remote);
    assert_eq!(errno(a.ep.post_one(&op)), Some(Errno::EINVAL));
}

fn counters_count() {
    // A read of this length takes several requests on the wire.
    const LONG: usize = 4 << 20;
    let (a, b) = (Host::with(&options()), Host::with(&options()));
    drop((a, b));
    let (_, domain) = domain();
    let counted = || {
        let cq = domain
            .cq()
            .format(kfi::CqFormat::Tagged)
            .open()
            .expect("cq");
        let cntr = domain.cntr().open().expect("cntr");
        let remote = domain.cntr().open().expect("cntr");
        let ep = domain
            .endpoint()
            .ep_type(EpType::Msg)
            .open()
            .expect("endpoint");
        ep.bind_cq(&cq, CqBind::TRANSMIT | CqBind::RECV)
            .expect("bind");
        let all = CntrBind::SEND | CntrBind::RECV | CntrBind::READ | CntrBind::WRITE;
        ep.bind_cntr(&cntr, all).expect("bind");
        ep.bind_cntr(&remote, CntrBind::REMOTE_READ | CntrBind::REMOTE_WRITE)
            .expect("bind");
        ep.enable().expect("enable");
        let av = domain.av().open().expect("av");
        let host = Host {
            domain: domain.clone(),
            cq,
            av,
            ep,
        };
        (host, cntr, remote)
    };
    let ((a, ours, _), (b, theirs, remote)) = (counted(), counted());
    connect(&a, &b);
    let mr = open_region(&b, &Buffer::new(LONG).expect("buffer"), 5);
    let region = domain.cntr().open().expect("cntr");
    mr.bind_cntr(&region, CntrBind::REMOTE_READ | CntrBind::REMOTE_WRITE)
        .expect("bind");
    let local = Buffer::new(LONG).expect("buffer");
    exchange(&a, &b, 1);
    // The target counts each operation once, at the endpoint and at the region.
    let at_target = || [&remote, &region].map(Cntr::value);
    let mut count = 0;
    for len in [64, LONG, 0] {
        for write in [true, false] {
            if write {
                a.ep.write(PEER, local.slice(..len), mr.remote(0), 1)
                    .expect("write");
                a.expect(WROTE, 1);
            } else {
                a.ep.read(PEER, local.slice(..len), mr.remote(0), 1)
                    .expect("read");
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

fn the_transmit_queue_is_bounded() {
    let few = Options {
        tx_size: 4,
        ..options()
    };
    let (a, b) = (Host::with(&few), Host::with(&options()));
    connect(&a, &b);
    let from = Buffer::new(8).expect("buffer");
    // The peer has no receives, so none of them ends.
    for number in 0..4 {
        a.ep.send(PEER, &from, number).expect("send");
    }
    assert_eq!(errno(a.ep.send(PEER, &from, 4)), Some(Errno::EAGAIN));
    let into = Buffer::new(8).expect("buffer");
    for number in 0..5 {
        b.ep.recv(&into, number).expect("recv");
    }
    for number in 0..4 {
        b.expect(RECEIVED, number);
        a.expect(SENT, number);
    }
    a.ep.send(PEER, &from, 4).expect("send");
    b.expect(RECEIVED, 4);
}

fn both_ways_at_once() {
    const ROUNDS: u64 = 64;
    let (a, b) = pair();
    let len = 100_000;
    let bytes = pattern(len, 7);
    let from = Buffer::from_bytes(&bytes).expect("buffer");
    std::thread::scope(|scope| {
        for host in [&a, &b] {
            scope.spawn(|| {
                let inboxes: Vec<_> = (0..4).map(|_| Buffer::new(len).unwrap()).collect();
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
    assert_eq!(errno(a.ep.peer()), Some(Errno::ENOTCONN));
    connect(&a, &b);
    let (to_b, _) = b.qp();
    let qp = a.ep.qp().expect("qp");
    assert_eq!((qp.state, qp.dest_qpn), (QpState::Rts, Some(to_b.qpn)));
    assert_eq!(qp.path_mtu, Some(4096));
    assert_eq!(a.ep.peer().expect("peer"), PeerAddr::Qp(to_b));
    assert_eq!(errno(a.ep.connect_qp(to_b, 0)), Some(Errno::EISCONN));
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
        assert_eq!(errno(set), Some(Errno::EINVAL));
    }
    assert_eq!(errno(a.ep.qkey()), Some(Errno::ENOPROTOOPT));
    for host in [&a, &b] {
        host.ep.set_qp_option(QpOption::PathMtu, 512).expect("set");
    }
    a.ep.set_qp_option(QpOption::RdAtomic, 0).expect("set");
    connect(&a, &b);
    let buffer = Buffer::new(8).expect("buffer");
    let read = a.ep.read(PEER, &buffer, Remote::new(0, 1), 1);
    assert_eq!(errno(read), Some(Errno::EOPNOTSUPP));
    assert_eq!(a.ep.qp().expect("qp").path_mtu, Some(512));
    exchange(&a, &b, 10_000);
    let late = a.ep.set_qp_option(QpOption::PathMtu, 512);
    assert_eq!(errno(late), Some(Errno::KFI_EOPBADSTATE));
    let rdm = Host::new();
    let other = rdm.ep.qp_option(QpOption::Timeout);
    assert_eq!(errno(other), Some(Errno::ENOPROTOOPT));
}

fn operations_are_refused_before_the_connection() {
    let a = Host::with(&options());
    let buffer = Buffer::new(8).expect("buffer");
    a.ep.recv(&buffer, 1).expect("recv");
    assert_eq!(errno(a.ep.send(PEER, &buffer, 2)), Some(Errno::ENOTCONN));
    let remote = Remote::new(0, 1);
    let read = a.ep.read(PEER, &buffer, remote, 2);
    assert_eq!(errno(read), Some(Errno::ENOTCONN));
    let write = a.ep.write(PEER, &buffer, remote, 2);
    assert_eq!(errno(write), Some(Errno::ENOTCONN));
    assert_eq!(errno(a.ep.shutdown()), Some(Errno::ENOTCONN));
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
    assert_eq!(errno(a.ep.shutdown()), Some(Errno::ENOTCONN));
    assert_eq!(errno(a.ep.send(PEER, &buffer, 3)), Some(Errno::ESHUTDOWN));
    assert_eq!(errno(a.ep.recv(&buffer, 3)), Some(Errno::ESHUTDOWN));
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
        let (from, into) = (Buffer::new(1 << 20).unwrap(), Buffer::new(1 << 20).unwrap());
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
    exchange(&a, &b, 8);
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
    assert_eq!(errno(kept), Some(Errno::EOPNOTSUPP));
    let (a, b) = pair();
    let buffer = Buffer::new(8).expect("buffer");
    assert_eq!(
        errno(a.ep.tsend(PEER, &buffer, 1, 1)),
        Some(Errno::EOPNOTSUPP)
    );
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
    let ep = domain
        .endpoint()
        .ep_type(EpType::Msg)
        .open()
        .expect("endpoint");
    let b = Host::with(&options());
    let (to_b, psn) = b.qp();
    assert_eq!(errno(ep.qp()), Some(Errno::KFI_EOPBADSTATE));
    assert_eq!(errno(ep.connect_qp(to_b, psn)), Some(Errno::KFI_ENOCQ));
    ep.bind_cq(&cq, CqBind::TRANSMIT | CqBind::RECV)
        .expect("bind");
    ep.connect_qp(to_b, psn).expect("connect_qp");
    assert_eq!(ep.qp().expect("qp").state, QpState::Rts);
    assert_eq!(errno(ep.enable()), Some(Errno::KFI_EOPBADSTATE));
}
