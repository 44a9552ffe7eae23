// SPDX-License-Identifier: GPL-2.0
//! Counters of flows: what the manual page ibv_attach_counters_point_flow(3) says about attaching
//! counter points, their values and their errors.
//!
//! | file | what |
//! |---|---|
//! | [`matching`] | which packets belong to a flow |
//! | [`life`] | rights, limits, closing and the end of processes |

pub(crate) mod life;
pub(crate) mod matching;

use crate::{
    harness::tests,
    host::{Host, Options, domain, errno, until},
    networks::{self, Wire},
    raw::{File, addr_of_mut, arg, data, ipv4, refused},
};
use kfi::{Caps, CounterDescription, Counters, EpType, Errno, FiAddr, Flow, PacketCounter, abi};

use CounterDescription::{Bytes, Packets};

tests![
    values_are_zero_at_first => 120,
    a_static_point_counts_when_a_flow_is_made,
    a_dynamic_point_counts_at_once,
    nothing_is_attached_while_bound_statically,
    unsupported_descriptions_are_found_out,
    several_flows_add_up,
    several_points_of_one_index_add_up,
    values_only_grow,
    invalid_arguments_of_attach_are_refused,
    invalid_arguments_of_counters_are_refused,
    counters_of_another_domain_are_refused,
    counters_without_points_count_nothing,
    prefer_cached_reads_the_same,
    bytes_are_those_of_the_statistics,
    packets_are_counted_without_a_receive,
    packets_between_hosts_are_counted,
];

/// Endpoints for datagrams.
fn options() -> Options {
    Options {
        ep_type: EpType::Dgram,
        caps: Caps::MSG | Caps::SOURCE,
        ..Options::default()
    }
}

/// A receiver, and a sender on the same host.
struct Pair {
    sender: Host,
    to: FiAddr,
    receiver: Host,
}

impl Pair {
    fn new() -> Self {
        let (sender, receiver) = (Host::with(&options()), Host::with(&options()));
        let to = sender.meet(&receiver);
        Self {
            sender,
            to,
            receiver,
        }
    }

    /// Sends this many datagrams, and waits until they have arrived.
    #[track_caller]
    fn send(&self, count: u64) {
        let arrived = || self.receiver.count(PacketCounter::RxPackets);
        let before = arrived();
        for number in 0..count {
            self.sender.ep.inject(self.to, &[0; 64]).expect("inject");
            // Not more than the inbox holds.
            if number % 64 == 63 {
                until("datagrams", || arrived() == before + number + 1);
            }
        }
        until("datagrams", || arrived() == before + count);
    }

    /// Counters of the receiver's domain with these points.
    fn counters(&self, points: &[(CounterDescription, u32)]) -> Counters {
        let counters = self.receiver.domain.counters().open().expect("counters");
        for (description, index) in points {
            counters.attach(*description, *index).expect("attach");
        }
        counters
    }

    /// A flow of all packets that counts into them.
    fn flow(&self, counters: &Counters) -> Flow {
        let flow = self.receiver.ep.flow().counters(counters);
        flow.dont_trap().open().expect("flow")
    }
}

/// Bytes of a datagram of 64 bytes from the BTH to the ICRC: BTH, DETH, payload, ICRC.
const BYTES: u64 = 12 + 8 + 64 + 4;

/// The first values.
fn values<const N: usize>(counters: &Counters) -> [u64; N] {
    let mut values = [u64::MAX; N];
    counters.read(&mut values).expect("read");
    values
}

fn values_are_zero_at_first() {
    let (_, domain) = domain();
    for count in [0, 1, 16, 256] {
        let counters = domain.counters().count(count).open().expect("counters");
        let expected = if count == 0 { 16 } else { count as usize };
        assert_eq!(counters.count(), expected);
        assert_eq!(counters.values().expect("values"), vec![0; expected]);
    }
    // Memory that was used before is no exception.
    let pair = Pair::new();
    for _ in 0..50 {
        let counters = pair.counters(&[(Packets, 0), (Bytes, 1)]);
        assert_eq!(values(&counters), [0, 0]);
        let _flow = pair.flow(&counters);
        pair.send(1);
        assert_eq!(values(&counters), [1, BYTES]);
    }
}

fn a_static_point_counts_when_a_flow_is_made() {
    let pair = Pair::new();
    let counters = pair.counters(&[(Packets, 3), (Bytes, 5)]);
    pair.send(2);
    assert_eq!(values(&counters), [0; 8]);
    let flow = pair.flow(&counters);
    pair.send(3);
    assert_eq!(values(&counters), [0, 0, 0, 3, 0, 3 * BYTES, 0, 0]);
    // Values stay when the flow is gone.
    flow.close().expect("close");
    pair.send(4);
    assert_eq!(values(&counters), [0, 0, 0, 3, 0, 3 * BYTES, 0, 0]);
}

fn a_dynamic_point_counts_at_once() {
    let pair = Pair::new();
    let flow = pair.receiver.ep.flow().open().expect("flow");
    let (one, other) = (pair.counters(&[]), pair.counters(&[]));
    pair.send(1);
    one.attach_to(&flow, Packets, 0).expect("attach");
    pair.send(2);
    one.attach_to(&flow, Bytes, 1).expect("attach");
    other.attach_to(&flow, Packets, 15).expect("attach");
    pair.send(3);
    assert_eq!(values(&one), [5, 3 * BYTES]);
    assert_eq!(values::<16>(&other)[15], 3);
    // In addition to the static points of the flow.
    let with_static = pair.counters(&[(Packets, 0)]);
    drop(flow);
    let flow = pair.flow(&with_static);
    other.attach_to(&flow, Packets, 14).expect("attach");
    pair.send(1);
    assert_eq!((values(&with_static), values(&one)), ([1], [5, 3 * BYTES]));
    assert_eq!(values::<16>(&other)[14..], [1, 3]);
}

fn nothing_is_attached_while_bound_statically() {
    let pair = Pair::new();
    let counters = pair.counters(&[(Packets, 0)]);
    let dynamic = pair.receiver.ep.flow().dont_trap().open().expect("flow");
    let busy = |counters: &Counters| {
        assert_eq!(errno(counters.attach(Bytes, 1)), Some(Errno::EBUSY));
        let attached = counters.attach_to(&dynamic, Bytes, 1);
        assert_eq!(errno(attached), Some(Errno::EBUSY));
    };
    // Bound dynamically, it takes points of both kinds.
    counters.attach_to(&dynamic, Packets, 4).expect("attach");
    counters.attach(Packets, 2).expect("attach");
    let (first, second) = (pair.flow(&counters), pair.flow(&counters));
    busy(&counters);
    drop(first);
    busy(&counters);
    drop(second);
    // It is still bound, by the dynamic point.
    busy(&counters);
    pair.send(1);
    assert_eq!(values(&counters), [0, 0, 0, 0, 1]);
    let other = pair.receiver.ep.flow().open().expect("flow");
    drop(dynamic);
    counters.attach(Bytes, 1).expect("attach");
    counters.attach_to(&other, Packets, 5).expect("attach");
}

fn unsupported_descriptions_are_found_out() {
    let (file, fabric, domain) = File::open().and_domain();
    let ep = file.ep_dgram(domain);
    let counters = file.counters(domain);
    let flow = file.make(arg!(kfabric_flow_open: ep));
    for description in [2, 3, 255, 1 << 31, u32::MAX] {
        let attached = file.attach(counters, 0, description, 0);
        refused(attached, Errno::EOPNOTSUPP);
        // Before the errors of the object's state.
        let attached = file.attach(counters, flow, description, 999);
        refused(attached, Errno::EOPNOTSUPP);
    }
    for description in [abi::KFABRIC_COUNTER_PACKETS, abi::KFABRIC_COUNTER_BYTES] {
        for flow in [0, flow] {
            assert_eq!(file.attach(counters, flow, description, 0), Ok(()));
        }
    }
    file.close_all(&[flow, counters, ep, domain, fabric]);
}

fn several_flows_add_up() {
    let pair = Pair::new();
    let counters = pair.counters(&[(Packets, 1), (Bytes, 0)]);
    let (first, second) = (pair.flow(&counters), pair.flow(&counters));
    pair.send(2);
    assert_eq!(values(&counters), [4 * BYTES, 4]);
    // Flows of other endpoints, too.
    let other = Pair {
        receiver: Host::on(&pair.receiver.domain, &options()),
        ..Pair::new()
    };
    let other = Pair {
        to: other.sender.meet(&other.receiver),
        ..other
    };
    let third = other.flow(&counters);
    other.send(5);
    assert_eq!(values(&counters), [9 * BYTES, 9]);
    drop((first, second));
    pair.send(1);
    other.send(1);
    assert_eq!(values(&counters), [10 * BYTES, 10]);
    drop(third);
}

fn several_points_of_one_index_add_up() {
    let pair = Pair::new();
    let counters = pair.counters(&[(Packets, 0), (Packets, 0), (Bytes, 1), (Packets, 1)]);
    let flow = pair.flow(&counters);
    pair.send(3);
    assert_eq!(values(&counters), [6, 3 * BYTES + 3]);
    // Dynamic points of one index.
    let dynamic = pair.counters(&[]);
    for description in [Bytes, Bytes, Packets] {
        dynamic.attach_to(&flow, description, 2).expect("attach");
    }
    pair.send(1);
    assert_eq!(values(&dynamic), [0, 0, 2 * BYTES + 1]);
    assert_eq!(values(&counters), [8, 4 * BYTES + 4]);
}

fn values_only_grow() {
    let pair = Pair::new();
    let counters = pair.counters(&[(Packets, 0)]);
    let mut expected = 0;
    for round in 0..10 {
        let flow = pair.flow(&counters);
        pair.send(round);
        expected += round;
        assert_eq!(values(&counters), [expected]);
        drop(flow);
        assert_eq!(values(&counters), [expected]);
        // A static point more does not clear them.
        counters.attach(Packets, 9).expect("attach");
        assert_eq!(values(&counters), [expected]);
    }
}

fn invalid_arguments_of_attach_are_refused() {
    let (file, fabric, domain) = File::open().and_domain();
    let ep = file.ep_dgram(domain);
    let counters = file.make(arg!(kfabric_counters_open: domain, count: 3));
    let flow = file.make(arg!(kfabric_flow_open: ep));
    let packets = abi::KFABRIC_COUNTER_PACKETS;
    for flow in [0, flow] {
        for index in [3, 4, 1 << 31, u32::MAX] {
            refused(file.attach(counters, flow, packets, index), Errno::EINVAL);
        }
    }
    // No handle of a flow.
    for handle in [ep, counters, domain, 60_000, u32::MAX] {
        refused(file.attach(counters, handle, packets, 0), Errno::EBADF);
    }
    // The limit of the static points.
    for _ in 0..abi::KFABRIC_MAX_FLOW_POINTS {
        assert_eq!(file.attach(counters, 0, packets, 2), Ok(()));
    }
    refused(file.attach(counters, 0, packets, 2), Errno::ENOSPC);
    // The limit of the points of a flow, static and dynamic ones.
    let with_static = file.make(arg!(kfabric_flow_open: ep, counters));
    let others = file.counters(domain);
    refused(file.attach(others, with_static, packets, 0), Errno::ENOSPC);
    for _ in 0..abi::KFABRIC_MAX_FLOW_POINTS {
        assert_eq!(file.attach(others, flow, packets, 0), Ok(()));
    }
    refused(file.attach(others, flow, packets, 0), Errno::ENOSPC);
    // A refused attach has bound nothing.
    file.close_all(&[with_static, counters, flow, others, ep, domain, fabric]);
}

fn invalid_arguments_of_counters_are_refused() {
    let (file, fabric, domain) = File::open().and_domain();
    let open = |count| file.call(arg!(kfabric_counters_open: domain, count));
    for count in [abi::KFABRIC_MAX_COUNTERS + 1, 1 << 16, u32::MAX] {
        refused(open(count), Errno::EINVAL);
    }
    let counters = open(2).expect("counters").handle;
    let mut read = [7u64; 4];
    let mut read_some = |count, flags| {
        read = [7; 4];
        let arg = arg!(kfabric_counters_read:
            counters, values: addr_of_mut(&mut read), count, flags
        );
        file.call(arg).map(|_| read)
    };
    for count in [0, 3, 256, u32::MAX] {
        refused(read_some(count, 0), Errno::EINVAL);
    }
    assert_eq!(read_some(1, 0), Ok([0, 7, 7, 7]));
    assert_eq!(read_some(2, 1), Ok([0, 0, 7, 7]));
    file.close_all(&[counters, domain, fabric]);
}

fn counters_of_another_domain_are_refused() {
    let file = File::open();
    let fabric = file.fabric();
    let (domain, other) = (file.domain(fabric), file.domain(fabric));
    let ep = file.ep_dgram(domain);
    let flow = file.make(arg!(kfabric_flow_open: ep));
    let counters = file.counters(other);
    let packets = abi::KFABRIC_COUNTER_PACKETS;
    refused(file.attach(counters, flow, packets, 0), Errno::EINVAL);
    assert_eq!(file.attach(counters, 0, packets, 0), Ok(()));
    let arg = arg!(kfabric_flow_open: ep, counters);
    refused(file.call(arg), Errno::EINVAL);
    file.close_all(&[counters, flow, ep, domain, other, fabric]);
}

fn counters_without_points_count_nothing() {
    let pair = Pair::new();
    let counters = pair.counters(&[]);
    let flow = pair.receiver.ep.flow().counters(&counters).open();
    assert_eq!(errno(flow), Some(Errno::EINVAL));
    // It is not bound.
    counters.attach(Packets, 0).expect("attach");
    let _flow = pair.flow(&counters);
    pair.send(1);
    assert_eq!(values(&counters), [1]);
}

fn prefer_cached_reads_the_same() {
    let pair = Pair::new();
    let counters = pair.counters(&[(Packets, 0), (Bytes, 1)]);
    let _flow = pair.flow(&counters);
    for round in 1..5 {
        pair.send(1);
        let mut cached = [u64::MAX; 2];
        counters.read_cached(&mut cached).expect("read");
        assert_eq!(cached, [round, round * BYTES]);
        assert_eq!(values(&counters), cached);
    }
}

fn bytes_are_those_of_the_statistics() {
    let pair = Pair::new();
    let counters = pair.counters(&[(Packets, 0), (Bytes, 1)]);
    let _flow = pair.flow(&counters);
    let count = |counter| pair.receiver.count(counter);
    for len in [0usize, 1, 3, 4, 200, 256] {
        let packets = count(PacketCounter::RxPackets);
        pair.sender
            .ep
            .inject(pair.to, &vec![1; len])
            .expect("inject");
        until("a datagram", || {
            count(PacketCounter::RxPackets) == packets + 1
        });
        assert_eq!(
            values(&counters),
            [
                count(PacketCounter::RxPackets),
                count(PacketCounter::RxBytes)
            ],
            "length {len}"
        );
    }
}

fn packets_are_counted_without_a_receive() {
    let pair = Pair::new();
    let counters = pair.counters(&[(Packets, 0)]);
    let _flow = pair.flow(&counters);
    pair.send(3);
    assert_eq!(pair.receiver.count(PacketCounter::DropNoReceive), 3);
    assert_eq!(values(&counters), [3]);
    // And with another Q key: an endpoint takes its Q key before it is enabled.
    let (file, fabric, domain) = File::open().and_domain();
    let (cq, av) = (file.cq(domain), file.av(domain));
    let ep = file.ep_dgram(domain);
    file.bind(ep, cq, abi::KFI_SEND | abi::KFI_RECV)
        .expect("bind");
    file.bind(ep, av, 0).expect("bind");
    file.call(arg!(kfabric_ep_opt:
        ep, set: 1, level: abi::KFABRIC_OPT_QP, name: abi::KFABRIC_OPT_QKEY, value: 7
    ))
    .expect("Q key");
    file.enable(ep).expect("enable");
    let name = pair.receiver.ep.name().expect("name");
    let port = name.port();
    let to = file.insert(av, ipv4([127, 0, 0, 1], port)).expect("insert");
    let byte = 0u8;
    let op = data!(kfabric_op:
        opcode: abi::KFABRIC_OP_SEND, flags: abi::KFI_INJECT, buf: crate::raw::addr_of(&byte),
        len: 1, peer: to
    );
    file.post_one(ep, op).expect("post");
    until("a datagram with another Q key", || {
        pair.receiver.count(PacketCounter::DropQkey) == 1
    });
    assert_eq!(values(&counters), [4]);
    file.close_all(&[ep, cq, av, domain, fabric]);
}

fn packets_between_hosts_are_counted() {
    let wire = Wire::new();
    let (a, b) = (
        Wire::host(&wire.a, &networks::dgram()),
        Wire::host(&wire.b, &networks::dgram()),
    );
    let counters = b.domain.counters().open().expect("counters");
    counters.attach(Packets, 0).expect("attach");
    counters.attach(Bytes, 1).expect("attach");
    let from_a = "192.0.2.1".parse().expect("address");
    let _flow =
        b.ep.flow()
            .src_ip(from_a, 32)
            .counters(&counters)
            .open()
            .expect("flow");
    let to_b = a.meet(&b);
    for round in 1..=10 {
        a.ep.inject(to_b, &[5; 64]).expect("inject");
        until("a datagram from the other host", || {
            values(&counters) == [round, round * BYTES]
        });
    }
}
