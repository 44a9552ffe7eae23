// SPDX-License-Identifier: GPL-2.0
//! The field: the network of the attack test. Two hosts with the module and the attacker's host
//! are on one Ethernet.
//!
//! ```text
//!   a  192.0.2.1, 192.0.2.11 ---.
//!   b  192.0.2.2, 192.0.2.12 ---+--- bridge
//!   c  192.0.2.3             ---'
//!      10.64.0.0/10, behind c: the attacker's other addresses
//! ```
//!
//! Each host is a network namespace. `c` has no link of the module. Its kernel accepts the packets
//! to the attacker's addresses and never answers them. In the code, the foe is the attacker: the
//! sockets at `c` that send packets and capture the answers. The crowd is the set of its other
//! addresses, from which it sends as many hosts.

use super::{
    A, B,
    packet::{Capture, Captured, RawSocket, Way},
};
use crate::{abi_threads::NetNs, raw::ip, rng::Rng};
use kfi::Device;
use kfi_roce::{
    cm::Body,
    headers::Qpn,
    opcode::Service,
    packet::{Packet, UDP_PORT},
    psn::Psn,
};
use std::{
    io::ErrorKind,
    net::{Ipv4Addr, UdpSocket},
    time::Duration,
};

/// The attacker's host.
const C: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 3);

/// The addresses of the sacrificial connections, whose packets the attacker sees.
pub(super) const SPARE_A: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 11);
pub(super) const SPARE_B: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 12);

/// The first byte of the attacker's other addresses (the crowd), and the second byte of those of
/// attack number 0. Each attack has a second byte of its own, so that the destination of an answer
/// tells the attack.
const CROWD: (u8, u8) = (10, 64);

/// How long a [`Facts::refresh`] captures the good flow.
const GLANCE: Duration = Duration::from_millis(30);

/// A random source address of attack number `attack`.
pub(super) fn crowd(attack: u8, rng: &mut Rng) -> Ipv4Addr {
    let [_, .., high, low] = (rng.next() as u32).to_be_bytes();
    Ipv4Addr::new(CROWD.0, CROWD.1 + attack, high, low.clamp(1, 254))
}

/// One source address of attack number `attack`, for a host that keeps its address.
pub(super) fn member(attack: u8, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(CROWD.0, CROWD.1 + attack, 0, host)
}

/// The attack to which an address belongs.
pub(super) fn attack_of(ip: Ipv4Addr) -> Option<u8> {
    let [first, second, ..] = ip.octets();
    let attack = second.checked_sub(CROWD.1)?;
    (first == CROWD.0 && attack < CROWD.1).then_some(attack)
}

/// The network of the attack test: the hosts with the module (`a`, `b`) and the attacker's host
/// (`c`).
pub(super) struct Field {
    pub(super) a: NetNs,
    pub(super) b: NetNs,
    pub(super) c: NetNs,
    _bridge: NetNs,
}

impl Field {
    pub(super) fn new() -> Self {
        let bridge = NetNs::new();
        bridge.run(|| {
            ip("link add br0 type bridge");
            ip("link set br0 up");
        });
        let (a, b, c) = (NetNs::new(), NetNs::new(), NetNs::new());
        let hosts: [(&NetNs, &str, &[Ipv4Addr]); 3] = [
            (&a, "porta", &[A, SPARE_A]),
            (&b, "portb", &[B, SPARE_B]),
            (&c, "portc", &[C]),
        ];
        for (host, name, addresses) in hosts {
            bridge.run(|| {
                let there = host.path();
                ip(&format!(
                    "link add {name} type veth peer name veth0 netns {there}"
                ));
                ip(&format!("link set {name} master br0 up"));
            });
            host.run(|| {
                for address in addresses {
                    ip(&format!("address add {address}/24 dev veth0"));
                }
                ip("link set veth0 up");
            });
        }
        for host in [&a, &b] {
            host.run(|| {
                ip(&format!("route add 10.64.0.0/10 via {C}"));
                let device = Device::open().expect("device");
                device.link_add("roce0", "veth0").expect("link_add");
            });
        }
        c.run(|| ip("route add local 10.64.0.0/10 dev lo"));
        Self {
            a,
            b,
            c,
            _bridge: bridge,
        }
    }
}

/// The attacker: it sends any packet, and captures the packets that arrive at its host.
pub(super) struct Attacker {
    raw: RawSocket,
    ear: Capture,
    /// A socket that is never read. Without it, the kernel would answer with ICMP errors.
    _sink: UdpSocket,
    /// Packets are dropped instead of sent.
    pub(super) is_silent: bool,
    /// Number of packets sent.
    pub(super) sent: u64,
    /// Number of packets captured.
    pub(super) captured: u64,
}

impl Attacker {
    pub(super) fn new(field: &Field) -> Self {
        Self::on(&field.c)
    }

    /// The attacker on this host.
    pub(super) fn on(host: &NetNs) -> Self {
        let sink = host.run(|| {
            let all = Ipv4Addr::UNSPECIFIED;
            UdpSocket::bind((all, UDP_PORT)).expect("bind")
        });
        Self {
            raw: RawSocket::new(host),
            ear: Capture::arriving(host),
            _sink: sink,
            is_silent: true,
            sent: 0,
            captured: 0,
        }
    }

    /// Sends a packet.
    pub(super) fn send(&mut self, packet: &[u8]) {
        if self.is_silent {
            return;
        }
        match self.raw.try_send(packet) {
            Ok(()) => self.sent += 1,
            // A queue is full. The packet is not counted as sent.
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
            // The header was changed, and the kernel refuses to send it.
            Err(error) if error.kind() == ErrorKind::InvalidInput => {}
            Err(error) => panic!("send {packet:02x?}: {error}"),
        }
    }

    /// Counts a message that another socket has sent.
    pub(super) fn has_sent(&mut self) {
        self.sent += 1;
    }

    /// The next captured packet.
    pub(super) fn receive(&mut self) -> Option<Captured> {
        let captured = self.ear.next()?;
        self.captured += 1;
        Some(captured)
    }

    /// Discards the packets that have arrived.
    pub(super) fn drain(&mut self) {
        while self.ear.next().is_some() {}
    }
}

/// One direction of a connection of the good flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    pub(super) way: Way,
    /// The QP to which it goes.
    pub(super) qpn: Qpn,
    /// The last PSN of a request, and of a response.
    pub(super) request: Psn,
    pub(super) response: Psn,
}

/// The facts that the attacker knows. A real attacker that is not on the path knows fewer.
pub(super) struct Facts {
    /// The connections of the good flow, two streams for each.
    pub(super) streams: Vec<Stream>,
    /// The GUIDs of the hosts a and b.
    pub(super) guids: [u64; 2],
    /// The ports of the good endpoints for reliable datagrams at a and b.
    pub(super) good: [u16; 2],
    /// The ports at a of the newcomers (endpoints that connect repeatedly), and the port at b of
    /// the greeter (the endpoint to which they connect).
    pub(super) newcomers: std::ops::Range<u16>,
    pub(super) greeter: u16,
    /// The port at b of the open endpoint: one for reliable datagrams that accepts every peer.
    pub(super) open: u16,
    /// The port at b of the keeper: an endpoint for reliable datagrams that accepts every peer, and
    /// keeps their messages without receiving them.
    pub(super) keeper: u16,
    /// The key of the open endpoint's memory region.
    pub(super) key: u32,
    /// The tag of some of its receives.
    pub(super) tag: u64,
    /// The ports at b of the receive contexts of a scalable endpoint.
    pub(super) contexts: std::ops::Range<u16>,
    /// The port at b where a listener waits for connections.
    pub(super) listener: u16,
}

impl Facts {
    /// No facts yet.
    pub(super) fn new() -> Self {
        Self {
            streams: Vec::new(),
            guids: [0; 2],
            good: [0; 2],
            newcomers: 0..0,
            greeter: 0,
            open: 0,
            keeper: 0,
            key: 0,
            tag: 0,
            contexts: 0..0,
            listener: 0,
        }
    }

    /// Learns the connections of the good flow, whose packets alone were captured.
    pub(super) fn learn(&mut self, capture: &Capture) {
        while let Some(captured) = capture.next() {
            let Some(packet) = captured.packet() else {
                continue;
            };
            let qpn = packet.bth.dest_qp;
            let guid = match captured.message().map(|message| message.body) {
                Some(Body::Req(req)) => Some(req.ca_guid),
                Some(Body::Rep(rep)) => Some(rep.ca_guid),
                _ => None,
            };
            if let Some(guid) = guid {
                self.guids[usize::from(captured.way.from == B)] = guid;
            }
            let known = |stream: &Stream| (stream.way, stream.qpn) == (captured.way, qpn);
            let is_connected = packet.opcode().service() == Service::Rc;
            if is_connected && !self.streams.iter().any(known) {
                self.streams.push(Stream {
                    way: captured.way,
                    qpn,
                    request: packet.bth.psn,
                    response: packet.bth.psn,
                });
            }
            self.note(&captured, &packet);
        }
        assert!(self.guids.iter().all(|guid| *guid != 0), "GUIDs");
        // Two connections, both ways.
        assert_eq!(self.streams.len(), 4, "{:?}", self.streams);
    }

    fn note(&mut self, captured: &Captured, packet: &Packet) {
        let bth = packet.bth;
        let mut streams = self.streams.iter_mut();
        let of_it = streams.find(|stream| (stream.way, stream.qpn) == (captured.way, bth.dest_qp));
        if let Some(stream) = of_it {
            if packet.opcode().is_response() {
                stream.response = bth.psn;
            } else {
                stream.request = bth.psn;
            }
        }
    }

    /// Updates the PSNs of the good connections.
    pub(super) fn refresh(&mut self, field: &Field) {
        let capture = Capture::of_module(&field.b, [A, B]);
        std::thread::sleep(GLANCE);
        while let Some(captured) = capture.next() {
            if let Some(packet) = captured.packet() {
                self.note(&captured, &packet);
            }
        }
    }

    /// Whether a good connection has this QP.
    pub(super) fn is_good(&self, qpn: Qpn) -> bool {
        self.streams.iter().any(|stream| stream.qpn == qpn)
    }
}
