// SPDX-License-Identifier: GPL-2.0
//! Which packets belong to a flow: fields and masks, priorities, IPv4 and IPv6, on one host and
//! between two.

use super::{BYTES, options};
use crate::{
    harness::tests,
    host::{Host, domain, errno, until},
    networks::{self, Wire},
    raw::{File, arg, refused},
};
use kfi::{
    CounterDescription, Counters, Domain, Errno, FiAddr, FlowBuilder, Op, PacketCounter, abi,
};
use std::net::{IpAddr, SocketAddr};

tests![
    a_flow_without_fields_has_all_packets,
    the_source_address_selects,
    the_destination_address_selects,
    the_udp_source_port_selects,
    the_source_qp_selects,
    the_destination_qp_selects,
    the_opcode_selects,
    all_fields_select_together,
    ipv6_packets_are_compared => 120,
    versions_are_distinguished,
    the_lowest_priority_number_comes_first,
    of_equal_priorities_the_oldest_comes_first,
    a_flow_can_let_packets_continue,
    a_destroyed_flow_leaves_its_packets_to_others,
    rules_that_match_nothing_are_refused,
    packets_between_hosts_are_compared => 120,
];

/// A sender, with the receiver's address.
struct Sender {
    host: Host,
    to: FiAddr,
}

impl Sender {
    fn new(domain: &Domain, addr: SocketAddr, receiver: &Host) -> Self {
        let host = Host::at(domain, &options(), Some(addr));
        Self {
            to: host.meet(receiver),
            host,
        }
    }

    /// The number of its QP.
    fn qpn(&self) -> u32 {
        self.host.ep.qp().expect("qp").qpn
    }

    /// The UDP source port of its packets: a hash of the QP number.
    fn port(&self) -> u16 {
        0xc000 | (self.qpn().wrapping_mul(0x9e37_79b1) >> 18) as u16
    }

    fn send(&self) {
        self.host.ep.inject(self.to, &[0; 64]).expect("inject");
    }

    fn send_with_data(&self) {
        let message = [0; 64];
        let op = Op::inject(self.to, &message).data(5);
        self.host.ep.post_one(&op).expect("inject");
    }
}

/// Two senders with different addresses, and a receiver.
struct Scene {
    senders: [Sender; 2],
    receiver: Host,
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

impl Scene {
    fn at(addrs: [&str; 3]) -> Self {
        let (_, domain) = domain();
        let [a, b, own] = addrs.map(|addr| SocketAddr::new(ip(addr), 0));
        let receiver = Host::at(&domain, &options(), Some(own));
        Self {
            senders: [a, b].map(|addr| Sender::new(&domain, addr, &receiver)),
            receiver,
        }
    }

    fn new() -> Self {
        Self::at(["127.0.0.1", "127.0.1.9", "127.0.0.2"])
    }

    /// A flow with a counter of its packets at index 0, of their bytes at index 1.
    fn counted(&self, build: impl FnOnce(FlowBuilder) -> FlowBuilder) -> Counted {
        let counters = self.receiver.domain.counters().open().expect("counters");
        counters
            .attach(CounterDescription::Packets, 0)
            .expect("attach");
        counters
            .attach(CounterDescription::Bytes, 1)
            .expect("attach");
        let flow = build(self.receiver.ep.flow()).counters(&counters);
        Counted {
            flow: Some(flow.open().expect("flow")),
            counters,
        }
    }

    /// Runs `send`, which sends this many datagrams, and waits until they have arrived.
    fn arrive(&self, count: u64, send: impl FnOnce()) {
        let arrived = || self.receiver.count(PacketCounter::RxPackets);
        let before = arrived();
        send();
        until("datagrams", || arrived() == before + count);
    }

    /// One datagram of the first sender, and two of the second.
    fn send(&self) {
        self.arrive(3, || {
            for sender in [0, 1, 1] {
                self.senders[sender].send();
            }
        });
    }

    /// Flows with these fields select the datagram of the first sender, the two of the second, none
    /// and all.
    fn distinguishes(
        &self,
        first: impl FnOnce(FlowBuilder) -> FlowBuilder,
        second: impl FnOnce(FlowBuilder) -> FlowBuilder,
        neither: impl FnOnce(FlowBuilder) -> FlowBuilder,
        both: impl FnOnce(FlowBuilder) -> FlowBuilder,
    ) {
        let flows = [
            self.counted(|flow| first(flow).dont_trap()),
            self.counted(|flow| second(flow).dont_trap()),
            self.counted(|flow| neither(flow).dont_trap()),
            self.counted(|flow| both(flow).dont_trap()),
        ];
        self.send();
        let counts = flows.each_ref().map(Counted::packets);
        assert_eq!(counts, [1, 2, 0, 3]);
    }
}

/// A flow and its counters.
struct Counted {
    flow: Option<kfi::Flow>,
    counters: Counters,
}

impl Counted {
    fn packets(&self) -> u64 {
        let mut values = [0; 2];
        self.counters.read(&mut values).expect("read");
        assert_eq!(values[1], values[0] * BYTES);
        values[0]
    }

    fn destroy(&mut self) {
        self.flow = None;
    }
}

fn a_flow_without_fields_has_all_packets() {
    let scene = Scene::new();
    let flow = scene.counted(|flow| flow);
    scene.send();
    assert_eq!(flow.packets(), 3);
}

fn the_source_address_selects() {
    Scene::new().distinguishes(
        |flow| flow.src_ip(ip("127.0.0.1"), 32),
        |flow| flow.src_ip(ip("127.0.1.0"), 24),
        |flow| flow.src_ip(ip("127.0.0.2"), 32),
        |flow| flow.src_ip(ip("127.0.0.0"), 23),
    );
}

fn the_destination_address_selects() {
    let scene = Scene::new();
    let dest = |text, prefix| scene.counted(|flow| flow.dest_ip(ip(text), prefix).dont_trap());
    let flows = [
        dest("127.0.0.2", 32),
        dest("127.0.0.2", 8),
        dest("0.0.0.0", 0),
        dest("127.0.0.1", 32),
        dest("128.0.0.0", 1),
    ];
    scene.send();
    assert_eq!(flows.each_ref().map(Counted::packets), [3, 3, 3, 0, 0]);
}

fn the_udp_source_port_selects() {
    let scene = Scene::new();
    let [a, b] = scene.senders.each_ref().map(Sender::port);
    assert_ne!(a, b, "try other ports");
    let differ = a ^ b;
    let same = !differ;
    scene.distinguishes(
        |flow| flow.src_port(a, u16::MAX),
        |flow| flow.src_port(b, differ),
        |flow| flow.src_port(a ^ 0x8000, 0x8000),
        |flow| flow.src_port(a, same),
    );
}

fn the_source_qp_selects() {
    let scene = Scene::new();
    let [a, b] = scene.senders.each_ref().map(Sender::qpn);
    scene.distinguishes(
        |flow| flow.src_qp(a, 0xff_ffff),
        |flow| flow.src_qp(b, (a ^ b) & 0xff_ffff),
        |flow| flow.src_qp(0, 0xff_0000),
        |flow| flow.src_qp(0x02_0000, 0xff_0000),
    );
}

fn the_destination_qp_selects() {
    let scene = Scene::new();
    let own = scene.receiver.ep.qp().expect("qp").qpn;
    let dest = |qp, mask| scene.counted(|flow| flow.dest_qp(qp, mask).dont_trap());
    let flows = [
        dest(own, 0xff_ffff),
        dest(own, 0x00_00ff),
        dest(own ^ 1, 0xff_ffff),
        dest(0, 0x02_0000),
    ];
    scene.send();
    assert_eq!(flows.each_ref().map(Counted::packets), [3, 3, 0, 0]);
}

fn the_opcode_selects() {
    let scene = Scene::new();
    let counters = scene.receiver.domain.counters().open().expect("counters");
    let mut flows = Vec::new();
    for (index, (opcode, mask)) in [
        (0x64, 0xff),
        (0x65, 0xff),
        (0x65, 0x01),
        (0x60, 0xe0),
        (4, 0xff),
    ]
    .into_iter()
    .enumerate()
    {
        let flow = scene.receiver.ep.flow().opcode(opcode, mask);
        let flow = flow.dont_trap().open().expect("flow");
        counters
            .attach_to(&flow, CounterDescription::Packets, index as u32)
            .expect("attach");
        flows.push(flow);
    }
    scene.arrive(3, || {
        scene.senders[0].send();
        scene.senders[1].send_with_data();
        scene.senders[1].send_with_data();
    });
    assert_eq!(counters.values().expect("values")[..5], [1, 2, 2, 3, 0]);
}

fn all_fields_select_together() {
    let scene = Scene::new();
    let own = scene.receiver.ep.qp().expect("qp").qpn;
    let [a, b] = &scene.senders;
    let all = |flow: FlowBuilder, sender: &Sender| {
        flow.src_ip(sender.host.ep.name().expect("name").ip(), 32)
            .dest_ip(ip("127.0.0.2"), 32)
            .src_port(sender.port(), u16::MAX)
            .src_qp(sender.qpn(), 0xff_ffff)
            .dest_qp(own, 0xff_ffff)
            .opcode(0x64, 0xff)
            .dont_trap()
    };
    let flows = [
        scene.counted(|flow| all(flow, a)),
        scene.counted(|flow| all(flow, b)),
        // One field of another sender.
        scene.counted(|flow| all(flow, a).src_ip(ip("127.0.1.9"), 32)),
        scene.counted(|flow| all(flow, a).src_port(b.port(), u16::MAX)),
        scene.counted(|flow| all(flow, a).src_qp(b.qpn(), 0xff_ffff)),
        scene.counted(|flow| all(flow, a).opcode(0x65, 0xff)),
        scene.counted(|flow| all(flow, a).dest_qp(own ^ 1, 0xff_ffff)),
        scene.counted(|flow| all(flow, a).dest_ip(ip("127.0.0.1"), 32)),
    ];
    scene.send();
    let counts = flows.each_ref().map(Counted::packets);
    assert_eq!(counts, [1, 2, 0, 0, 0, 0, 0, 0]);
}

fn ipv6_packets_are_compared() {
    crate::host::device();
    crate::raw::ip("address add fd0f::1:9/128 dev lo nodad");
    let scene = Scene::at(["::1", "fd0f::1:9", "::1"]);
    scene.distinguishes(
        |flow| flow.src_ip(ip("::1"), 128),
        |flow| flow.src_ip(ip("fd0f::"), 16),
        // The lower half is that of the first sender.
        |flow| flow.src_ip(ip("fd0f::1"), 128),
        |flow| flow.dest_ip(ip("::1"), 128),
    );
}

fn versions_are_distinguished() {
    let scene = Scene::new();
    let flows = [
        scene.counted(|flow| flow.ipv4().dont_trap()),
        scene.counted(|flow| flow.ipv6().dont_trap()),
        // The mapped form of an address is another address.
        scene.counted(|flow| flow.src_ip(ip("::ffff:127.0.0.1"), 128).dont_trap()),
        scene.counted(|flow| flow.src_ip(ip("::"), 0).dont_trap()),
        scene.counted(|flow| flow.src_ip(ip("0.0.0.0"), 0).dont_trap()),
    ];
    scene.send();
    assert_eq!(flows.each_ref().map(Counted::packets), [3, 0, 0, 0, 3]);
    let six = Scene::at(["::1", "::1", "::1"]);
    let flows = [
        six.counted(|flow| flow.ipv4().dont_trap()),
        six.counted(|flow| flow.ipv6().dont_trap()),
    ];
    six.send();
    assert_eq!(flows.each_ref().map(Counted::packets), [0, 3]);
    let mixed = scene.receiver.ep.flow().src_ip(ip("::1"), 128);
    let mixed = mixed.dest_ip(ip("127.0.0.2"), 32).open();
    assert_eq!(errno(mixed), Some(Errno::EINVAL));
}

fn the_lowest_priority_number_comes_first() {
    let scene = Scene::new();
    let [a, _] = &scene.senders;
    let from_a = |flow: FlowBuilder| flow.src_qp(a.qpn(), 0xff_ffff);
    let flows = [
        scene.counted(|flow| flow.priority(u32::MAX)),
        scene.counted(|flow| from_a(flow).priority(7)),
        scene.counted(|flow| from_a(flow).priority(8)),
    ];
    scene.send();
    assert_eq!(flows.each_ref().map(Counted::packets), [2, 1, 0]);
    // A later flow with a lower number.
    let first = scene.counted(|flow| flow.priority(0));
    scene.send();
    assert_eq!(first.packets(), 3);
    assert_eq!(flows.each_ref().map(Counted::packets), [2, 1, 0]);
}

fn of_equal_priorities_the_oldest_comes_first() {
    let scene = Scene::new();
    let [a, _] = &scene.senders;
    let flows = [
        scene.counted(|flow| flow.src_qp(a.qpn(), 0xff_ffff).priority(3)),
        scene.counted(|flow| flow.priority(3)),
        scene.counted(|flow| flow.priority(3)),
    ];
    scene.send();
    assert_eq!(flows.each_ref().map(Counted::packets), [1, 2, 0]);
}

fn a_flow_can_let_packets_continue() {
    let scene = Scene::new();
    let [a, _] = &scene.senders;
    let from_a = |flow: FlowBuilder| flow.src_qp(a.qpn(), 0xff_ffff);
    let flows = [
        scene.counted(|flow| flow.priority(0).dont_trap()),
        scene.counted(|flow| from_a(flow).priority(1)),
        scene.counted(|flow| flow.priority(2).dont_trap()),
        scene.counted(|flow| flow.priority(3)),
        scene.counted(|flow| flow.priority(4)),
    ];
    scene.send();
    assert_eq!(flows.each_ref().map(Counted::packets), [3, 1, 2, 2, 0]);
}

fn a_destroyed_flow_leaves_its_packets_to_others() {
    let scene = Scene::new();
    let mut first = scene.counted(|flow| flow.priority(1));
    let second = scene.counted(|flow| flow.priority(2));
    scene.send();
    first.destroy();
    scene.send();
    assert_eq!((first.packets(), second.packets()), (3, 3));
}

fn rules_that_match_nothing_are_refused() {
    let (file, fabric, domain) = File::open().and_domain();
    let ep = file.ep_dgram(domain);
    type Change = fn(&mut abi::kfabric_flow_open);
    let attempt = |family, change: Change| {
        let mut arg = arg!(kfabric_flow_open: ep, family);
        change(&mut arg);
        let made = file.call(arg).map(|arg| arg.handle);
        made.map(|handle| file.close_all(&[handle]))
    };
    let changes: &[Change] = &[
        // Bits outside the mask.
        |arg| arg.value.src_ip[0] = 1,
        |arg| arg.value.dest_ip[3] = 0x80,
        |arg| arg.value.src_port = 1,
        |arg| arg.value.src_qp = 1,
        |arg| arg.value.dest_qp = 1,
        |arg| arg.value.opcode = 1,
        |arg| (arg.value.opcode, arg.mask.opcode) = (3, 1),
        // Bits that a field does not have.
        |arg| arg.mask.src_qp = 1 << 24,
        |arg| (arg.value.src_qp, arg.mask.src_qp) = (1 << 31, 1 << 31),
        |arg| arg.mask.dest_qp = 1 << 24,
        |arg| arg.mask.reserved[4] = 1,
        |arg| arg.value.reserved[0] = 1,
    ];
    for change in changes {
        for family in [0, 2, 10] {
            refused(attempt(family, *change), Errno::EINVAL);
        }
    }
    let four: &[Change] = &[
        |arg| arg.mask.src_ip[4] = 1,
        |arg| arg.mask.src_ip[15] = 1,
        |arg| (arg.value.dest_ip[4], arg.mask.dest_ip[4]) = (1, 1),
    ];
    for change in four {
        refused(attempt(2, *change), Errno::EINVAL);
        assert_eq!(attempt(10, *change), Ok(()));
    }
    // A mask of an address, without a version.
    let without: &[Change] = &[
        |arg| arg.mask.src_ip[0] = 255,
        |arg| arg.mask.dest_ip[0] = 1,
    ];
    for change in without {
        refused(attempt(0, *change), Errno::EINVAL);
        assert_eq!(attempt(2, *change), Ok(()));
    }
    for family in [1, 3, 4, 6, 11, 0x1_0002, u32::MAX] {
        refused(attempt(family, |_| {}), Errno::EINVAL);
    }
    file.close_all(&[ep, domain, fabric]);
}

fn packets_between_hosts_are_compared() {
    let wire = Wire::new();
    let b = Wire::host(&wire.b, &networks::dgram());
    let six = wire.b.run(|| {
        let (_, domain) = crate::host::domain_on("roce0");
        let addr = SocketAddr::new(ip("2001:db8::2"), 0);
        Host::at(&domain, &networks::dgram(), Some(addr))
    });
    for (receiver, own, net) in [
        (&b, "192.0.2.1", "192.0.2.0"),
        (&six, "2001:db8::1", "2001:db8::"),
    ] {
        let sender = wire.a.run(|| {
            let (_, domain) = crate::host::domain_on("roce0");
            Sender::new(&domain, SocketAddr::new(ip(own), 0), receiver)
        });
        let counters = receiver.domain.counters().open().expect("counters");
        let mut flows = Vec::new();
        let mut count = |index, flow: FlowBuilder| {
            let flow = flow.dont_trap().open().expect("flow");
            counters
                .attach_to(&flow, CounterDescription::Packets, index)
                .expect("attach");
            flows.push(flow);
        };
        let flow = || receiver.ep.flow();
        count(0, flow().src_ip(ip(own), 128));
        count(1, flow().src_ip(ip(net), 24));
        count(2, flow().src_qp(sender.qpn(), 0xff_ffff));
        count(3, flow().src_port(sender.port(), 0xffff));
        count(4, flow().src_qp(sender.qpn() ^ 1, 0xff_ffff));
        for round in 1..=3 {
            sender.send();
            until("a datagram from the other host", || {
                counters.values().expect("values")[..5] == [round, round, round, round, 0]
            });
        }
    }
}
