// SPDX-License-Identifier: GPL-2.0
//! Datagram endpoints, through the network of this host.

use crate::{
    harness::tests,
    host::{
        BOTH, Host, Options, RECEIVED, SENT, SOON, buffer, domain, errno, holding, is_refused,
        pair_with,
    },
};
use kfi::{Caps, CompFlags, EpType, Errno, Error, FiAddr, Op, OpFlags, QpAddr, QpState, Side};
use std::time::Duration;

/// The time during which no completion may come.
const QUIET: Duration = Duration::from_millis(200);

tests![
    a_datagram_without_a_receive_is_lost,
    sources_are_given,
    a_long_message_is_cut_at_its_receive,
    a_message_longer_than_the_path_mtu_is_refused,
    a_multi_receive_buffer_takes_datagrams,
    a_port_names_a_qp,
    ports_are_unique_in_a_namespace,
    qps_can_be_inserted_by_number,
    packets_with_another_qkey_are_dropped,
    qkeys_are_checked,
    unsupported_operations_are_refused,
    a_missing_peer_is_no_error,
    many_messages_arrive,
];

fn options() -> Options {
    Options::of(EpType::Dgram, Caps::MSG | Caps::SOURCE | Caps::MULTI_RECV)
}

fn pair() -> (Host, FiAddr, Host, FiAddr) {
    pair_with(&options())
}

fn a_datagram_without_a_receive_is_lost() {
    let (a, to_b, b, _) = pair();
    let (first, second) = (holding(b"1"), holding(b"2"));
    a.ep.send(to_b, &first, 1).expect("send");
    a.expect(SENT, 1);
    // The time was long enough for it to arrive.
    assert!(b.cq.next(QUIET).expect("next").is_none());
    let into = buffer(8);
    b.ep.recv(&into, 2).expect("recv");
    assert!(b.cq.next(QUIET).expect("next").is_none());
    a.ep.send(to_b, &second, 1).expect("send");
    b.expect(RECEIVED, 2);
    assert_eq!(into.to_vec(..1), b"2");
}

fn sources_are_given() {
    let (a, to_b, b, to_a) = pair();
    let stranger = Host::with(&options());
    let to_b_too = stranger.meet(&b);
    let into = buffer(8);
    for (host, to, source) in [(&a, to_b, to_a), (&stranger, to_b_too, FiAddr::NOTAVAIL)] {
        b.ep.recv(&into, 2).expect("recv");
        host.ep.inject(to, b"me").expect("inject");
        assert_eq!(b.expect(RECEIVED, 2).src_addr, source);
    }
}

fn a_long_message_is_cut_at_its_receive() {
    let (a, to_b, b, _) = pair();
    let into = buffer(16);
    b.ep.recv(into.slice(..8), 2).expect("recv");
    a.ep.inject(to_b, b"0123456789").expect("inject");
    let entry = b.fails(2, Errno::KFI_ETRUNC);
    assert_eq!((entry.len, entry.olen), (8, 2));
    assert_eq!(into.to_vec(..), b"01234567\0\0\0\0\0\0\0\0");
}

fn a_message_longer_than_the_path_mtu_is_refused() {
    let (a, to_b, ..) = pair();
    // The MTU of the loopback interface allows the largest.
    assert_eq!(a.ep.qp().expect("qp").path_mtu, Some(4096));
    let from = buffer(4097);
    is_refused(a.ep.send(to_b, &from, 1), Errno::EMSGSIZE);
    a.expect_nothing();
}

fn a_multi_receive_buffer_takes_datagrams() {
    let (a, to_b, b, _) = pair();
    let into = buffer(128);
    let op = Op::recv(&into).flags(OpFlags::MULTI_RECV).context(5);
    b.ep.post_one(&op).expect("recv");
    for (number, byte) in [1u8, 2].into_iter().enumerate() {
        a.ep.inject(to_b, &[byte; 64]).expect("inject");
        let entry = b.completion();
        assert_eq!(entry.buf, into.addr() + 64 * number as u64);
        assert_eq!(entry.flags.contains(CompFlags::MULTI_RECV), number == 1);
    }
    assert_eq!(into.to_vec(..64), [1; 64]);
    assert_eq!(into.to_vec(64..), [2; 64]);
}

fn a_port_names_a_qp() {
    let host = Host::with(&options());
    let name = host.ep.name().expect("name");
    let qp = host.ep.qp().expect("qp");
    assert_eq!(qp.qpn, 0x02_0000 + u32::from(name.port()));
    assert_eq!((qp.ip(), qp.psn, qp.dest_qpn), (name.ip(), 0, None));
    assert_eq!(qp.state, QpState::Rts);
    is_refused(host.ep.peer(), Errno::EOPNOTSUPP);
    is_refused(host.ep.shutdown(), Errno::EOPNOTSUPP);
    let (addr, psn) = host.qp();
    is_refused(host.ep.connect_qp(addr, psn), Errno::EOPNOTSUPP);
}

fn ports_are_unique_in_a_namespace() {
    let open = |ip: &str| {
        let (_, domain) = domain();
        let (cq, av) = (
            domain.cq().open().expect("cq"),
            domain.av().open().expect("av"),
        );
        let addr = format!("{ip}:7471").parse().expect("address");
        let ep = domain.endpoint().ep_type(EpType::Dgram).caps(Caps::MSG);
        let ep = ep.addr(addr).open().expect("endpoint");
        ep.bind_cq(&cq, BOTH).expect("bind");
        ep.bind_av(&av).expect("bind");
        ep
    };
    let (one, other) = (open("127.0.0.1"), open("127.0.0.2"));
    one.enable().expect("enable");
    is_refused(other.enable(), Errno::EADDRINUSE);
    drop(one);
    other.enable().expect("enable");
    assert_eq!(other.name().expect("name").port(), 7471);
}

fn qps_can_be_inserted_by_number() {
    let (a, _, b, _) = pair();
    let (addr, _) = b.qp();
    let to_b = a.av.insert_qp(addr).expect("insert_qp");
    // It is the address with the port.
    assert_eq!(
        a.av.lookup(to_b).expect("lookup"),
        b.ep.name().expect("name")
    );
    let into = buffer(8);
    b.ep.recv(&into, 2).expect("recv");
    a.ep.inject(to_b, b"you").expect("inject");
    b.expect(RECEIVED, 2);
    let wrong = a.av.insert_qp(QpAddr {
        qpn: 1 << 24,
        ..addr
    });
    is_refused(wrong, Errno::EINVAL);
}

fn packets_with_another_qkey_are_dropped() {
    let (_, domain) = domain();
    let keyed = || {
        Host::prepared(&domain, &options(), None, |ep| {
            ep.set_qkey(7).expect("set_qkey");
        })
    };
    let (a, b, c) = (Host::on(&domain, &options()), keyed(), keyed());
    let into = buffer(8);
    b.ep.recv(&into, 2).expect("recv");
    a.ep.inject(a.meet(&b), b"no").expect("inject");
    assert!(b.cq.next(QUIET).expect("next").is_none());
    c.ep.inject(c.meet(&b), b"yes").expect("inject");
    assert_eq!(b.expect(RECEIVED, 2).len, 3);
}

fn qkeys_are_checked() {
    let host = Host::prepared(&domain().1, &options(), None, |ep| {
        assert_eq!(ep.qkey().expect("qkey"), 0x0123_4567);
        is_refused(ep.set_qkey(0x8000_0000), Errno::EPERM);
        ep.set_qkey(0x7fff_ffff).expect("set_qkey");
        assert_eq!(ep.qkey().expect("qkey"), 0x7fff_ffff);
    });
    is_refused(host.ep.set_qkey(1), Errno::KFI_EOPBADSTATE);
    let rdm = Host::new();
    is_refused(rdm.ep.qkey(), Errno::ENOPROTOOPT);
    is_refused(rdm.ep.qp(), Errno::EOPNOTSUPP);
}

fn unsupported_operations_are_refused() {
    let (_, domain) = domain();
    let open = |caps| domain.endpoint().ep_type(EpType::Dgram).caps(caps).open();
    for caps in [Caps::TAGGED, Caps::RMA, Caps::DIRECTED_RECV, Caps::FENCE] {
        assert_eq!(
            errno(open(Caps::MSG | caps)),
            Some(Errno::EOPNOTSUPP),
            "{caps:?}"
        );
    }
    let reported = domain
        .endpoint()
        .ep_type(EpType::Dgram)
        .tx_op_flags(OpFlags::DELIVERY_COMPLETE)
        .open();
    is_refused(reported, Errno::EOPNOTSUPP);
    let kept = domain.endpoint().ep_type(EpType::Dgram).buffered(1).open();
    is_refused(kept, Errno::EOPNOTSUPP);
    let (a, to_b, ..) = pair();
    let from = holding(b"x");
    let op = Op::send(to_b, &from).flags(OpFlags::DELIVERY_COMPLETE);
    is_refused(a.ep.post_one(&op), Errno::EOPNOTSUPP);
    let flags =
        a.ep.set_op_flags(Side::Transmit, OpFlags::DELIVERY_COMPLETE);
    is_refused(flags, Errno::EOPNOTSUPP);
    is_refused(a.ep.tsend(to_b, &from, 1, 1), Errno::EOPNOTSUPP);
    is_refused(a.ep.send(FiAddr(99), &from, 1), Errno::ENOENT);
    // Another family than this endpoint's, and an address of no host.
    for addr in ["[::1]:7", "224.0.0.1:7", "255.255.255.255:7"] {
        let peer = a.av.insert_one(addr.parse().unwrap()).expect("insert");
        assert_eq!(
            errno(a.ep.send(peer, &from, 1)),
            Some(Errno::EHOSTUNREACH),
            "{addr}"
        );
    }
    let nobody =
        a.av.insert_one("127.0.0.1:0".parse().unwrap())
            .expect("insert");
    is_refused(a.ep.send(nobody, &from, 1), Errno::EHOSTUNREACH);
    a.expect_nothing();
}

fn a_missing_peer_is_no_error() {
    let (a, ..) = pair();
    let gone =
        a.av.insert_one("127.0.0.1:1".parse().unwrap())
            .expect("insert");
    let from = holding(b"x");
    a.ep.send(gone, &from, 1).expect("send");
    a.expect(SENT, 1);
}

fn many_messages_arrive() {
    let (a, to_b, b, _) = pair();
    let (from, into) = (buffer(64), buffer(64));
    let mut lost = 0;
    for number in 0..2000u64 {
        from.write_at(0, &number.to_ne_bytes());
        b.ep.recv(&into, number).expect("recv");
        a.ep.send(to_b, &from, number).expect("send");
        a.expect(SENT, number);
        match b.cq.next(SOON) {
            Ok(Some(entry)) => assert_eq!(entry.op_context, number),
            Ok(None) => lost += 1,
            Err(Error::Completion(entry)) => panic!("{entry:?}"),
            Err(error) => panic!("{error}"),
        }
        assert_eq!(into.to_vec(..8), number.to_ne_bytes());
    }
    assert_eq!(lost, 0);
}
