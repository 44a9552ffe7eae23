// SPDX-License-Identifier: GPL-2.0
//! Datagram endpoints, through the network of this host.

use crate::{
    harness::tests,
    host::{Host, Options, SOON, domain, errno, pair_with, pattern},
};
use kfi::{
    Buffer, Caps, CompFlags, CqBind, CqFormat, EpType, Errno, Error, FiAddr, Op, OpFlags, QpAddr,
    QpState, Side,
};
use std::time::Duration;

const SENT: CompFlags = CompFlags::MSG.union(CompFlags::SEND);
const RECEIVED: CompFlags = CompFlags::MSG.union(CompFlags::RECV);

/// The time during which no completion may come.
const QUIET: Duration = Duration::from_millis(200);

tests![
    messages_arrive,
    a_datagram_without_a_receive_is_lost,
    sources_are_given,
    cq_data_have_32_bits,
    injected_messages_are_silent,
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
    Options {
        ep_type: EpType::Dgram,
        caps: Caps::MSG | Caps::SOURCE | Caps::MULTI_RECV,
        ..Options::default()
    }
}

fn pair() -> (Host, FiAddr, Host, FiAddr) {
    pair_with(&options())
}

fn messages_arrive() {
    let (a, to_b, b, _) = pair();
    for len in [0usize, 1, 3, 4, 255, 256, 257, 1024, 4096] {
        let into = Buffer::new(4096).expect("buffer");
        b.ep.recv(&into, 2).expect("recv");
        let bytes = pattern(len, 1);
        let from = Buffer::from_bytes(&pattern(4096, 1)).expect("buffer");
        a.ep.send(to_b, from.slice(..len), 1).expect("send");
        a.expect(SENT, 1);
        let entry = b.expect(RECEIVED, 2);
        assert_eq!(entry.len as usize, len);
        // The message is at the beginning of the buffer: no GRH.
        assert!(
            into.to_vec(..len) == bytes[..len.min(bytes.len())],
            "length {len}"
        );
    }
}

fn a_datagram_without_a_receive_is_lost() {
    let (a, to_b, b, _) = pair();
    let (first, second) = (
        Buffer::from_bytes(b"1").unwrap(),
        Buffer::from_bytes(b"2").unwrap(),
    );
    a.ep.send(to_b, &first, 1).expect("send");
    a.expect(SENT, 1);
    // The time was long enough for it to arrive.
    assert!(b.cq.next(QUIET).expect("next").is_none());
    let into = Buffer::new(8).expect("buffer");
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
    let into = Buffer::new(8).expect("buffer");
    for (host, to, source) in [(&a, to_b, to_a), (&stranger, to_b_too, FiAddr::NOTAVAIL)] {
        b.ep.recv(&into, 2).expect("recv");
        host.ep.inject(to, b"me").expect("inject");
        assert_eq!(b.expect(RECEIVED, 2).src_addr, source);
    }
}

fn cq_data_have_32_bits() {
    let (a, to_b, b, _) = pair();
    let into = Buffer::new(8).expect("buffer");
    let from = Buffer::from_bytes(b"12345678").expect("buffer");
    b.ep.recv(&into, 2).expect("recv");
    a.ep.senddata(to_b, &from, u32::MAX.into(), 1)
        .expect("senddata");
    let entry = b.expect(RECEIVED | CompFlags::REMOTE_CQ_DATA, 2);
    assert_eq!((entry.len, entry.data), (8, u32::MAX.into()));
    let long = a.ep.senddata(to_b, &from, 1 << 32, 1);
    assert_eq!(errno(long), Some(Errno::EINVAL));
}

fn injected_messages_are_silent() {
    let (a, to_b, b, _) = pair();
    let into = Buffer::new(256).expect("buffer");
    b.ep.recv(&into, 2).expect("recv");
    a.ep.inject(to_b, &[7; 256]).expect("inject");
    assert_eq!(b.expect(RECEIVED, 2).len, 256);
    a.expect_nothing();
    assert_eq!(errno(a.ep.inject(to_b, &[7; 257])), Some(Errno::EMSGSIZE));
}

fn a_long_message_is_cut_at_its_receive() {
    let (a, to_b, b, _) = pair();
    let into = Buffer::new(16).expect("buffer");
    b.ep.recv(into.slice(..8), 2).expect("recv");
    a.ep.inject(to_b, b"0123456789").expect("inject");
    let entry = b.failure();
    assert_eq!((entry.err, entry.op_context), (Errno::KFI_ETRUNC, 2));
    assert_eq!((entry.len, entry.olen), (8, 2));
    assert_eq!(into.to_vec(..), b"01234567\0\0\0\0\0\0\0\0");
}

fn a_message_longer_than_the_path_mtu_is_refused() {
    let (a, to_b, ..) = pair();
    // The MTU of the loopback interface allows the largest.
    assert_eq!(a.ep.qp().expect("qp").path_mtu, Some(4096));
    let from = Buffer::new(4097).expect("buffer");
    assert_eq!(errno(a.ep.send(to_b, &from, 1)), Some(Errno::EMSGSIZE));
    a.expect_nothing();
}

fn a_multi_receive_buffer_takes_datagrams() {
    let (a, to_b, b, _) = pair();
    let into = Buffer::new(128).expect("buffer");
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
    assert_eq!(errno(host.ep.peer()), Some(Errno::EOPNOTSUPP));
    assert_eq!(errno(host.ep.shutdown()), Some(Errno::EOPNOTSUPP));
    let (addr, psn) = host.qp();
    assert_eq!(
        errno(host.ep.connect_qp(addr, psn)),
        Some(Errno::EOPNOTSUPP)
    );
}

fn ports_are_unique_in_a_namespace() {
    let open = |ip: &str| {
        let (_, domain) = domain();
        let cq = domain.cq().open().expect("cq");
        let av = domain.av().open().expect("av");
        let ep = domain
            .endpoint()
            .ep_type(EpType::Dgram)
            .caps(Caps::MSG)
            .addr(format!("{ip}:7471").parse().unwrap())
            .open()
            .expect("endpoint");
        ep.bind_cq(&cq, CqBind::TRANSMIT | CqBind::RECV)
            .expect("bind");
        ep.bind_av(&av).expect("bind");
        ep
    };
    let (one, other) = (open("127.0.0.1"), open("127.0.0.2"));
    one.enable().expect("enable");
    assert_eq!(errno(other.enable()), Some(Errno::EADDRINUSE));
    drop(one);
    other.enable().expect("enable");
    assert_eq!(other.name().expect("name").port(), 7471);
    // Other types of endpoints have ports of their own.
    let rdm = Host::with(&Options::default());
    drop(rdm);
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
    let into = Buffer::new(8).expect("buffer");
    b.ep.recv(&into, 2).expect("recv");
    a.ep.inject(to_b, b"you").expect("inject");
    b.expect(RECEIVED, 2);
    let wrong = a.av.insert_qp(QpAddr {
        qpn: 1 << 24,
        ..addr
    });
    assert_eq!(errno(wrong), Some(Errno::EINVAL));
}

fn packets_with_another_qkey_are_dropped() {
    let (_, domain) = domain();
    let (a, b) = (Host::on(&domain, &options()), unready(&domain));
    b.1.set_qkey(7).expect("set_qkey");
    b.1.enable().expect("enable");
    let to_b = a.av.insert_one(b.1.name().expect("name")).expect("insert");
    let into = Buffer::new(8).expect("buffer");
    b.1.recv(&into, 2).expect("recv");
    a.ep.inject(to_b, b"no").expect("inject");
    assert!(b.0.next(QUIET).expect("next").is_none());
    let c = unready(&domain);
    c.1.set_qkey(7).expect("set_qkey");
    c.1.enable().expect("enable");
    let to_b = c.2.insert_one(b.1.name().expect("name")).expect("insert");
    c.1.inject(to_b, b"yes").expect("inject");
    assert_eq!(b.0.next(SOON).expect("next").expect("entry").len, 3);
}

/// A datagram endpoint that is not enabled, with its CQ and AV.
fn unready(domain: &kfi::Domain) -> (kfi::Cq, kfi::Endpoint, kfi::Av) {
    let cq = domain.cq().format(CqFormat::Tagged).open().expect("cq");
    let av = domain.av().open().expect("av");
    let ep = domain
        .endpoint()
        .ep_type(EpType::Dgram)
        .caps(Caps::MSG)
        .open()
        .expect("endpoint");
    ep.bind_cq(&cq, CqBind::TRANSMIT | CqBind::RECV)
        .expect("bind");
    ep.bind_av(&av).expect("bind");
    (cq, ep, av)
}

fn qkeys_are_checked() {
    let (_, domain) = domain();
    let (_cq, ep, _av) = unready(&domain);
    assert_eq!(ep.qkey().expect("qkey"), 0x0123_4567);
    assert_eq!(errno(ep.set_qkey(0x8000_0000)), Some(Errno::EPERM));
    ep.set_qkey(0x7fff_ffff).expect("set_qkey");
    assert_eq!(ep.qkey().expect("qkey"), 0x7fff_ffff);
    ep.enable().expect("enable");
    assert_eq!(errno(ep.set_qkey(1)), Some(Errno::KFI_EOPBADSTATE));
    let rdm = Host::new();
    assert_eq!(errno(rdm.ep.qkey()), Some(Errno::ENOPROTOOPT));
    assert_eq!(errno(rdm.ep.qp()), Some(Errno::EOPNOTSUPP));
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
    assert_eq!(errno(reported), Some(Errno::EOPNOTSUPP));
    let kept = domain.endpoint().ep_type(EpType::Dgram).buffered(1).open();
    assert_eq!(errno(kept), Some(Errno::EOPNOTSUPP));
    let (a, to_b, ..) = pair();
    let from = Buffer::from_bytes(b"x").expect("buffer");
    let op = Op::send(to_b, &from).flags(OpFlags::DELIVERY_COMPLETE);
    assert_eq!(errno(a.ep.post_one(&op)), Some(Errno::EOPNOTSUPP));
    let flags =
        a.ep.set_op_flags(Side::Transmit, OpFlags::DELIVERY_COMPLETE);
    assert_eq!(errno(flags), Some(Errno::EOPNOTSUPP));
    assert_eq!(
        errno(a.ep.tsend(to_b, &from, 1, 1)),
        Some(Errno::EOPNOTSUPP)
    );
    assert_eq!(errno(a.ep.send(FiAddr(99), &from, 1)), Some(Errno::ENOENT));
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
    assert_eq!(
        errno(a.ep.send(nobody, &from, 1)),
        Some(Errno::EHOSTUNREACH)
    );
    a.expect_nothing();
}

fn a_missing_peer_is_no_error() {
    let (a, ..) = pair();
    let gone =
        a.av.insert_one("127.0.0.1:1".parse().unwrap())
            .expect("insert");
    let from = Buffer::from_bytes(b"x").expect("buffer");
    a.ep.send(gone, &from, 1).expect("send");
    a.expect(SENT, 1);
}

fn many_messages_arrive() {
    let (a, to_b, b, _) = pair();
    let (from, into) = (Buffer::new(64).unwrap(), Buffer::new(64).unwrap());
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
