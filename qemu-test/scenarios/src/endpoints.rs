// SPDX-License-Identifier: GPL-2.0
//! Endpoints: their life, their addresses, many of them, and two links on one host.
//!
//! Their capabilities are tested in [`capabilities`](crate::capabilities), their transfers
//! in [`transfers`](crate::transfers).

use crate::{
    harness::tests,
    host::{
        BOTH, Host, LINK, Options, RECEIVED, REMOTE, SENT, SOON, WROTE, buffer, device, domain,
        domain_on, errno, holding, is_refused, pair, pattern, register, until,
    },
    raw::Netdev,
};
use kfi::{
    Av, Buffer, Caps, CntrBind, CompFlags, Cq, CqBind, CqFormat, Domain, Endpoint, Errno, FiAddr,
    Op, OpFlags, Wait,
};
use std::{
    collections::HashSet,
    net::{IpAddr, SocketAddr},
};

tests![
    an_endpoint_needs_its_queues_counters_and_av,
    nothing_works_before_it_is_enabled,
    bindings_are_made_once_and_in_time,
    attributes_have_limits,
    names_are_chosen_or_given,
    a_port_belongs_to_one,
    names_must_be_addresses_of_the_link,
    ipv6_is_an_address_like_others,
    two_hundred_endpoints_exchange_messages => 600,
    closing_drops_waiting_operations,
    two_links_on_one_host_have_own_statistics => 120,
];

/// A CQ, an AV and an endpoint that are not bound yet.
fn parts_on(domain: &Domain) -> (Cq, Av, Endpoint) {
    let cq = domain.cq().format(CqFormat::Tagged).wait(Wait::Queue);
    let cq = cq.open().expect("cq");
    let (av, ep) = (
        domain.av().open().expect("av"),
        domain.endpoint().open().expect("endpoint"),
    );
    (cq, av, ep)
}

fn parts() -> (Domain, Cq, Av, Endpoint) {
    let (_, domain) = domain();
    let (cq, av, ep) = parts_on(&domain);
    (domain, cq, av, ep)
}

fn an_endpoint_needs_its_queues_counters_and_av() {
    let (domain, cq, av, ep) = parts();
    is_refused(ep.enable(), Errno::KFI_ENOCQ);
    ep.bind_cq(&cq, CqBind::RECV).expect("bind cq");
    is_refused(ep.enable(), Errno::KFI_ENOCQ);
    ep.bind_cq(&cq, CqBind::TRANSMIT).expect("bind cq");
    is_refused(ep.enable(), Errno::KFI_ENOAV);
    ep.bind_av(&av).expect("bind av");
    ep.enable().expect("enable");
    is_refused(ep.enable(), Errno::KFI_EOPBADSTATE);
    // One direction, one CQ; a mere target needs none.
    for (caps, bind) in [
        (Caps::MSG | Caps::SEND, Some(CqBind::TRANSMIT)),
        (Caps::TAGGED | Caps::RECV, Some(CqBind::RECV)),
        (Caps::RMA | Caps::READ, Some(CqBind::TRANSMIT)),
        (Caps::RMA | Caps::REMOTE_READ | Caps::REMOTE_WRITE, None),
    ] {
        let ep = domain.endpoint().caps(caps).open().expect("endpoint");
        ep.bind_av(&av).expect("bind av");
        if let Some(bind) = bind {
            assert_eq!(errno(ep.enable()), Some(Errno::KFI_ENOCQ), "{caps:?}");
            ep.bind_cq(&cq, BOTH.difference(bind)).expect("bind cq");
            assert_eq!(errno(ep.enable()), Some(Errno::KFI_ENOCQ), "{caps:?}");
            ep.bind_cq(&cq, bind).expect("bind cq");
        }
        ep.enable().expect("enable");
    }
    // A counter of the direction stands in for its CQ.
    let at_target = CntrBind::REMOTE_READ | CntrBind::REMOTE_WRITE;
    let transmits = CntrBind::SEND | CntrBind::READ | CntrBind::WRITE;
    for (caps, counted) in [
        (Caps::MSG | Caps::SEND, CntrBind::SEND),
        (Caps::RMA | Caps::READ, CntrBind::READ),
        (Caps::RMA | Caps::WRITE, CntrBind::WRITE),
        (Caps::TAGGED | Caps::RECV, CntrBind::RECV),
    ] {
        let ep = domain.endpoint().caps(caps).open().expect("endpoint");
        ep.bind_av(&av).expect("bind av");
        let cntr = domain.cntr().open().expect("cntr");
        let (other_counters, other_cq) = match counted {
            CntrBind::RECV => (transmits, CqBind::TRANSMIT),
            _ => (CntrBind::RECV, CqBind::RECV),
        };
        ep.bind_cntr(&cntr, other_counters | at_target)
            .expect("bind cntr");
        ep.bind_cq(&cq, other_cq).expect("bind cq");
        assert_eq!(errno(ep.enable()), Some(Errno::KFI_ENOCQ), "{caps:?}");
        ep.bind_cntr(&cntr, counted).expect("bind cntr");
        ep.enable().expect("enable");
    }
}

fn nothing_works_before_it_is_enabled() {
    let (_domain, cq, av, ep) = parts();
    let buffer = Buffer::new(8).expect("buffer");
    let refused = || {
        is_refused(ep.recv(&buffer, 0), Errno::KFI_EOPBADSTATE);
        is_refused(ep.inject(FiAddr(0), b"x"), Errno::KFI_EOPBADSTATE);
        is_refused(ep.cancel(0), Errno::KFI_EOPBADSTATE);
        is_refused(ep.name(), Errno::KFI_EOPBADSTATE);
    };
    refused();
    ep.bind_cq(&cq, BOTH).expect("bind");
    ep.bind_av(&av).expect("bind");
    refused();
    ep.enable().expect("enable");
    ep.recv(&buffer, 0).expect("recv");
    ep.cancel(0).expect("cancel");
}

fn bindings_are_made_once_and_in_time() {
    let (fabric, domain) = domain();
    let (cq, av, ep) = parts_on(&domain);
    let elsewhere = fabric.domain(LINK).open().expect("domain");
    let second = domain.cq().open().expect("cq");
    let foreign_cq = elsewhere.cq().open().expect("cq");
    for (cq, flags) in [
        (&cq, CqBind::empty()),
        (&cq, CqBind::SELECTIVE),
        (&cq, CqBind::from_bits_retain(1) | CqBind::RECV),
    ] {
        assert_eq!(
            errno(ep.bind_cq(cq, flags)),
            Some(Errno::EINVAL),
            "{flags:?}"
        );
    }
    is_refused(ep.bind_cq(&foreign_cq, CqBind::RECV), Errno::EINVAL);
    let foreign_av = elsewhere.av().open().expect("av");
    is_refused(ep.bind_av(&foreign_av), Errno::EINVAL);
    ep.bind_cq(&cq, CqBind::RECV).expect("bind");
    is_refused(ep.bind_cq(&second, CqBind::RECV), Errno::EINVAL);
    is_refused(ep.bind_cq(&second, BOTH), Errno::EINVAL);
    // The refused bind had no effect: TRANSMIT is still free.
    ep.bind_cq(&second, CqBind::TRANSMIT).expect("bind");
    ep.bind_av(&av).expect("bind");
    let other_av = domain.av().open().expect("av");
    is_refused(ep.bind_av(&other_av), Errno::EINVAL);
    ep.enable().expect("enable");
    let late = Some(Errno::KFI_EOPBADSTATE);
    assert_eq!(errno(ep.bind_cq(&cq, CqBind::RECV)), late);
    assert_eq!(errno(ep.bind_av(&other_av)), late);
    assert_eq!(
        errno(ep.set_name(SocketAddr::from(([127, 0, 0, 1], 0)))),
        late
    );
}

fn attributes_have_limits() {
    let (_, domain) = domain();
    let ep = || domain.endpoint();
    for (opened, want) in [
        (ep().tx_size(16_384).rx_size(16_384).open(), None),
        (ep().tx_size(16_385).open(), Some(Errno::EINVAL)),
        (ep().rx_size(16_385).open(), Some(Errno::EINVAL)),
        (ep().buffered(64 << 20).open(), None),
        (ep().buffered((64 << 20) + 1).open(), Some(Errno::EINVAL)),
        (ep().ep_type(kfi::EpType::Unspec).open(), None),
        (ep().ep_type(kfi::EpType::Msg).open(), None),
        (ep().ep_type(kfi::EpType::Dgram).open(), None),
        (
            ep().ep_type(kfi::EpType::Unknown(9)).open(),
            Some(Errno::EINVAL),
        ),
        (ep().caps(Caps::ATOMIC).open(), None),
        (
            ep().caps(Caps::MSG | Caps::MULTICAST).open(),
            Some(Errno::EOPNOTSUPP),
        ),
        (
            ep().caps(Caps::from_bits_retain(1)).open(),
            Some(Errno::EINVAL),
        ),
        (
            ep().tx_op_flags(OpFlags::MULTI_RECV).open(),
            Some(Errno::EINVAL),
        ),
        (ep().tx_op_flags(OpFlags::PEEK).open(), Some(Errno::EINVAL)),
        (
            ep().rx_op_flags(OpFlags::INJECT).open(),
            Some(Errno::EINVAL),
        ),
        (ep().rx_op_flags(OpFlags::MULTI_RECV).open(), None),
    ] {
        assert_eq!(errno(opened), want);
    }
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// Binds and enables an endpoint that was opened on `domain`.
fn enable(domain: &Domain, ep: &Endpoint) -> kfi::Result<SocketAddr> {
    let (cq, av) = (
        domain.cq().open().expect("cq"),
        domain.av().open().expect("av"),
    );
    ep.bind_cq(&cq, BOTH)?;
    ep.bind_av(&av)?;
    ep.enable()?;
    ep.name()
}

fn names_are_chosen_or_given() {
    let (_, domain) = domain();
    // Chosen by the module: the link's first address, and a port of the ephemeral range,
    // different for each.
    let mut eps = Vec::new();
    let mut ports = HashSet::new();
    for _ in 0..50 {
        let ep = domain.endpoint().open().expect("endpoint");
        let name = enable(&domain, &ep).expect("enable");
        assert_eq!(name.ip(), IpAddr::from([127, 0, 0, 1]));
        assert!(name.port() >= 49_152, "{name}");
        assert!(ports.insert(name.port()), "{name} was given twice");
        eps.push(ep);
    }
    // Given when the endpoint is opened, as a whole or only the address; or set before it is
    // enabled.
    let open = |addr: SocketAddr| domain.endpoint().addr(addr).open().expect("endpoint");
    let ep = open(loopback(7471));
    assert_eq!(enable(&domain, &ep).expect("enable"), loopback(7471));
    let ep = open(SocketAddr::from(([127, 5, 6, 7], 0)));
    let name = enable(&domain, &ep).expect("enable");
    assert_eq!(name.ip(), IpAddr::from([127, 5, 6, 7]));
    assert_ne!(name.port(), 0);
    let ep = open(loopback(1));
    for port in [2, 3] {
        ep.set_name(loopback(port)).expect("set_name");
    }
    assert_eq!(enable(&domain, &ep).expect("enable"), loopback(3));
}

fn a_port_belongs_to_one() {
    let (_, domain) = domain();
    let open = |domain: &Domain, addr: SocketAddr| {
        let ep = domain.endpoint().addr(addr);
        ep.open().expect("endpoint")
    };
    let first = open(&domain, loopback(7000));
    enable(&domain, &first).expect("enable");
    let second = open(&domain, loopback(7000));
    is_refused(enable(&domain, &second), Errno::EADDRINUSE);
    // Not across open files either.
    let (_, elsewhere) = crate::host::domain();
    let third = open(&elsewhere, loopback(7000));
    is_refused(enable(&elsewhere, &third), Errno::EADDRINUSE);
    // The same port at another address is another endpoint address.
    let fourth = open(&domain, SocketAddr::from(([127, 0, 0, 2], 7000)));
    enable(&domain, &fourth).expect("enable");
    // A refused enable can be tried again.
    first.close().expect("close");
    second.enable().expect("enable");
    assert_eq!(second.name().expect("name"), loopback(7000));
    is_refused(third.enable(), Errno::EADDRINUSE);
    third.set_name(loopback(7001)).expect("set_name");
    third.enable().expect("enable");
}

fn names_must_be_addresses_of_the_link() {
    let (_, domain) = domain();
    let ep = domain.endpoint().open().expect("endpoint");
    for text in [
        "10.1.2.3:0",
        "0.0.0.0:7471",
        "[::]:7471",
        "[2001:db8::1]:0",
        "[fe80::1]:0",
        "255.255.255.255:1",
    ] {
        let addr: SocketAddr = text.parse().expect("address");
        let opened = domain.endpoint().addr(addr).open();
        assert_eq!(errno(opened), Some(Errno::EADDRNOTAVAIL), "{text}");
        assert_eq!(
            errno(ep.set_name(addr)),
            Some(Errno::EADDRNOTAVAIL),
            "{text}"
        );
    }
    enable(&domain, &ep).expect("enable");
}

fn ipv6_is_an_address_like_others() {
    let (_, domain) = domain();
    let host = |port: u16| {
        let addr = SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1u16], port));
        Host::at(&domain, &Options::default(), Some(addr))
    };
    let (a, b) = (host(0), host(7471));
    assert_eq!(b.ep.name().expect("name").to_string(), "[::1]:7471");
    let (to_b, to_a) = (a.meet(&b), b.meet(&a));
    // IPv4 and IPv6 reach each other, because the link is the same.
    let c = Host::on(&domain, &Options::default());
    let (from_c, to_c) = (b.meet(&c), a.meet(&c));
    let into = buffer(8);
    for host in [&b, &b, &c] {
        host.ep.recv(&into, 1).expect("recv");
    }
    a.ep.inject(to_b, b"six").expect("inject");
    assert_eq!(b.expect(RECEIVED, 1).src_addr, to_a);
    c.ep.inject(c.meet(&b), b"four").expect("inject");
    assert_eq!(b.expect(RECEIVED, 1).src_addr, from_c);
    a.ep.inject(to_c, b"six").expect("inject");
    assert_eq!(c.expect(RECEIVED, 1).len, 3);
}

fn two_hundred_endpoints_exchange_messages() {
    const COUNT: usize = 200;
    let (_, domain) = domain();
    let options = Options::sized(16, 256, 512);
    let hosts: Vec<_> = (0..COUNT).map(|_| Host::on(&domain, &options)).collect();
    let names: Vec<_> = hosts
        .iter()
        .map(|host| host.ep.name().expect("name"))
        .collect();
    assert_eq!(names.iter().collect::<HashSet<_>>().len(), COUNT);
    // Each has the addresses of all, in the same order.
    for host in &hosts {
        let given = host.av.insert(&names).expect("insert");
        assert!(given.iter().map(|fi_addr| fi_addr.0).eq(0..COUNT as u64));
    }
    // Each sends to all; the first half of the receives is posted before.
    let into = buffer(16);
    let receive = |host: &Host| {
        for context in 0..COUNT as u64 / 2 {
            host.ep.recv(&into, context).expect("recv");
        }
    };
    hosts.iter().for_each(receive);
    for (number, host) in hosts.iter().enumerate() {
        let bytes = (number as u64).to_le_bytes();
        let ops: Vec<_> = (0..COUNT as u64)
            .map(|peer| Op::inject(FiAddr(peer), &bytes))
            .collect();
        let posted = host.ep.post(&ops).expect("post");
        assert_eq!((posted.done, posted.error), (COUNT, None));
    }
    hosts.iter().for_each(receive);
    for host in &hosts {
        let mut sources = HashSet::new();
        for _ in 0..COUNT {
            assert!(sources.insert(host.completion().src_addr));
        }
        assert_eq!(sources.len(), COUNT);
        host.expect_nothing();
    }
}

fn closing_drops_waiting_operations() {
    let (a, to_b, b, _) = pair();
    let large = buffer(100_000);
    for context in 0..5 {
        a.ep.tsend(to_b, &large, context, context).expect("tsend");
    }
    a.ep.inject(to_b, b"stays").expect("inject");
    b.ep.trecv(&large, 1, 0, 1).expect("trecv");
    b.expect(CompFlags::TAGGED | CompFlags::RECV, 1);
    let cq = a.cq.clone();
    drop(a);
    // Messages that waited at the closed endpoint are lost; those that the peer had are
    // there.
    let search = |tag| {
        b.ep.post_one(&Op::tpeek(tag, 0)).expect("peek");
        b.cq.next(SOON).map(|entry| entry.is_some())
    };
    for tag in [0, 2, 3, 4] {
        assert!(search(tag).is_err(), "tag {tag}");
    }
    let into = buffer(8);
    b.ep.recv(&into, 7).expect("recv");
    b.expect(RECEIVED, 7);
    // The CQ of the closed endpoint has the entry of the received message, and no other.
    let mut entries = [kfi::Entry::default(); 8];
    assert_eq!(cq.read(&mut entries).expect("read"), 1);
    assert_eq!(entries[0].op_context, 1);
}

fn two_links_on_one_host_have_own_statistics() {
    let _netdev = Netdev::dummy("kfiep0", "10.77.0.1/24");
    let device = device();
    device.link_add("ep0", "kfiep0").expect("link add");
    let [a, b] = [LINK, "ep0"].map(|link| Host::on(&domain_on(link).1, &Options::default()));
    assert_eq!(
        b.ep.name().expect("name").ip(),
        IpAddr::from([10, 77, 0, 1])
    );
    let (to_b, to_a) = (a.meet(&b), b.meet(&a));
    let link = |name: &str| {
        device
            .links()
            .map(|link| link.expect("link"))
            .find(|link| link.name == name)
            .expect("the link")
    };
    let before = link("ep0");
    assert_eq!((before.domains, before.endpoints), (1, 1));
    let bytes = pattern(200_000, 4);
    let from = holding(&bytes);
    for (sender, to, receiver) in [(&a, to_b, &b), (&b, to_a, &a)] {
        for len in [0, 8, 4096, 200_000] {
            let into = buffer(200_000);
            sender.ep.send(to, from.slice(..len), 1).expect("send");
            receiver.ep.recv(&into, 2).expect("recv");
            sender.expect(SENT, 1);
            assert_eq!(receiver.expect(RECEIVED, 2).len, len as u64);
            assert!(into.to_vec(..len) == bytes[..len]);
        }
        let memory = buffer(4096);
        let access = REMOTE;
        let mr = register(&receiver.domain, &memory, access, 0);
        sender
            .ep
            .write(to, from.slice(..4096), mr.remote(0), 3)
            .expect("write");
        sender.expect(WROTE, 3);
        assert!(memory.to_vec(..) == bytes[..4096]);
    }
    // Each link counts its own operations.
    let after = link("ep0");
    let moved = 8 + 4096 + 200_000 + 4096;
    assert_eq!((after.tx_ops, after.tx_bytes), (5, moved));
    assert_eq!((after.rx_ops, after.rx_bytes), (5, moved));
    // A link in use stays; an unused one is removed.
    is_refused(device.link_del("ep0"), Errno::EBUSY);
    drop(b);
    until("the link free", || device.link_del("ep0").is_ok());
    is_refused(a.ep.inject(to_b, b"x"), Errno::EHOSTUNREACH);
}
