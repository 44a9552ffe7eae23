// SPDX-License-Identifier: GPL-2.0
//! Two hosts with a router between them, and a path that carries less than both interfaces: packets
//! that are too long end with an error for that case, and the next connection uses the smaller path
//! MTU.

use crate::{
    abi_threads::NetNs,
    harness::tests,
    host::{Host, Options, RECEIVED, SENT, buffer, domain_on, exchange},
    networks::{Wire, connect_with, msg},
    raw::ip,
};
use kfi::{Buffer, Device, Errno, Error, FiAddr};
use std::time::Duration;

tests![
    a_narrow_path_ends_a_connection => 300,
    reliable_datagrams_reconnect_over_a_narrow_path => 300,
    long_ipv6_packets_are_fragmented => 300,
];

/// Ignored by connected endpoints.
const PEER: FiAddr = FiAddr::UNSPEC;

/// The `prov_errno` of a narrow path: the wire's numbers and "local length error".
const TOO_LONG: u32 = 257;

/// Longer than the retries of an endpoint.
const LONG: Duration = Duration::from_secs(90);

/// The near host is `wire.a`, the router `wire.b`.
struct Routed {
    wire: Wire,
    far: NetNs,
}

impl Routed {
    /// All interfaces have an MTU of 9,000 bytes.
    fn new() -> Self {
        let routed = Self {
            wire: Wire::new(),
            far: NetNs::new(),
        };
        let Self { wire, far } = &routed;
        ip("link add rb type veth peer name rc");
        ip(&format!("link set rb netns {}", wire.b.path()));
        ip(&format!("link set rc netns {}", far.path()));
        wire.a.run(|| {
            ip("link set veth0 mtu 9000");
            ip("route add default via 192.0.2.2");
            ip("-6 route add default via 2001:db8::2");
        });
        wire.b.run(|| {
            ip("link set veth0 mtu 9000");
            ip("link set rb mtu 9000 up");
            ip("address add 198.51.100.2/24 dev rb");
            ip("address add 2001:db8:1::2/64 dev rb nodad");
            for family in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
                std::fs::write(format!("/proc/sys/net/{family}"), "1").expect("forwarding");
            }
        });
        far.run(|| {
            ip("link set rc name veth0");
            ip("link set veth0 mtu 9000 up");
            ip("address add 198.51.100.1/24 dev veth0");
            ip("address add 2001:db8:1::1/64 dev veth0 nodad");
            ip("route add default via 198.51.100.2");
            ip("-6 route add default via 2001:db8:1::2");
            let device = Device::open().expect("device");
            device.link_add("roce0", "veth0").expect("link_add");
        });
        routed
    }

    /// Makes the far half of the path carry packets of 1,400 bytes at most.
    fn narrow(&self) {
        self.wire.b.run(|| ip("link set rb mtu 1400"));
        self.far.run(|| ip("link set veth0 mtu 1400"));
    }

    /// A connected endpoint at each host, which give up after seven seconds.
    fn pair(&self, ipv6: bool, mtu: u64) -> (Host, Host) {
        let host = |netns: &NetNs, ip: &str| {
            let addr = ipv6.then(|| format!("[{ip}]:0").parse().expect("address"));
            netns.run(|| Host::at(&domain_on("roce0").1, &msg(), addr))
        };
        let a = host(&self.wire.a, "2001:db8::1");
        let b = host(&self.far, "2001:db8:1::1");
        connect_with(&a, &b, 16, mtu);
        (a, b)
    }
}

/// An operation has failed because of the path.
#[track_caller]
fn is_too_long(host: &Host, context: u64) {
    match host.cq.next(LONG) {
        Err(Error::Completion(entry)) => assert_eq!(
            (entry.err, entry.prov_errno, entry.op_context),
            (Errno::EMSGSIZE, TOO_LONG, context),
            "{entry:?}"
        ),
        other => panic!("no failure: {other:?}"),
    }
}

fn a_narrow_path_ends_a_connection() {
    let routed = Routed::new();
    let (a, b) = routed.pair(false, 0);
    assert_eq!(a.ep.qp().expect("qp").path_mtu, Some(4096));
    exchange(&a, PEER, &b, 10_000);
    routed.narrow();
    exchange(&a, PEER, &b, 1000);
    let buffer = Buffer::new(10_000).expect("buffer");
    b.ep.recv(&buffer, 2).expect("recv");
    a.ep.send(PEER, &buffer, 1).expect("send");
    is_too_long(&a, 1);
    // The next connection uses the MTU from the router's message.
    let (a, b) = routed.pair(false, 1024);
    exchange(&a, PEER, &b, 10_000);
    exchange(&b, PEER, &a, 10_000);
}

fn reliable_datagrams_reconnect_over_a_narrow_path() {
    let routed = Routed::new();
    let a = Wire::host(&routed.wire.a, &Options::default());
    let b = Wire::host(&routed.far, &Options::default());
    let to_b = a.meet(&b);
    exchange(&a, to_b, &b, 3000);
    routed.narrow();
    let (from, into) = (buffer(3000), buffer(3000));
    b.ep.recv(&into, 2).expect("recv");
    a.ep.send(to_b, &from, 1).expect("send");
    is_too_long(&a, 1);
    // The receive is still posted, for the next message.
    a.ep.send(to_b, &from, 3).expect("send");
    b.expect(RECEIVED, 2);
    a.expect(SENT, 3);
    exchange(&a, to_b, &b, 100_000);
}

fn long_ipv6_packets_are_fragmented() {
    let routed = Routed::new();
    let (a, b) = routed.pair(true, 0);
    assert_eq!(a.ep.qp().expect("qp").path_mtu, Some(4096));
    exchange(&a, PEER, &b, 10_000);
    routed.narrow();
    exchange(&a, PEER, &b, 10_000);
    exchange(&b, PEER, &a, 10_000);
}
