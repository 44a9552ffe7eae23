// SPDX-License-Identifier: GPL-2.0
//! Packets made by hand with a good ICRC, and the sockets that send and capture them.

#![allow(unsafe_code, reason = "raw sockets")]

use crate::abi_threads::NetNs;
use kfi_roce::{
    cm::{self, Message, Req},
    headers::{Bth, DEFAULT_PKEY, Deth, Headers, MAX_HEADERS, Qpn},
    icrc::{Crc32, IPV4_LEN, Icrc, UDP_LEN},
    mtu::PathMtu,
    packet::{ICRC_LEN, Packet, UDP_PORT},
    psn::Psn,
    ud::GSI_QKEY,
};
use std::{
    io::Error,
    net::Ipv4Addr,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

/// The TTL of packets made by hand. A capture distinguishes them by it from those of the module,
/// which have the TTL [`TTL_OF_MODULE`]. The ICRC does not cover it.
const TTL: u8 = 63;

/// The default TTL of the kernel.
const TTL_OF_MODULE: u8 = 64;

/// The UDP source port of packets made by hand.
pub(super) const PORT: u16 = 0xc123;

/// Bytes of a capture's receive buffer.
const CAPTURED: libc::c_int = 4 << 20;

/// The source and the destination address of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) from: Ipv4Addr,
    pub(super) to: Ipv4Addr,
}

impl Way {
    pub(super) const fn new(from: Ipv4Addr, to: Ipv4Addr) -> Self {
        Self { from, to }
    }

    pub(super) const fn back(self) -> Self {
        Self::new(self.to, self.from)
    }
}

const fn crc_table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < table.len() {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ ((crc & 1) * 0xedb8_8320);
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

struct Crc;

impl Crc32 for Crc {
    fn update(crc: u32, bytes: &[u8]) -> u32 {
        const TABLE: [u32; 256] = crc_table();
        bytes.iter().fold(crc, |crc, byte| {
            (crc >> 8) ^ TABLE[usize::from(crc as u8 ^ byte)]
        })
    }
}

/// An IP header for `len` bytes behind it. The kernel fills in the checksum.
fn ip_header(way: Way, protocol: u8, len: usize) -> [u8; IPV4_LEN] {
    let mut ip = [0; IPV4_LEN];
    ip[..2].copy_from_slice(&[0x45, 0]);
    ip[2..4].copy_from_slice(&((IPV4_LEN + len) as u16).to_be_bytes());
    // The kernel keeps an identification that is not 0. Don't fragment.
    ip[4..10].copy_from_slice(&[0, 1, 0x40, 0, TTL, protocol]);
    ip[12..16].copy_from_slice(&way.from.octets());
    ip[16..].copy_from_slice(&way.to.octets());
    ip
}

/// The headers of a UDP datagram of `len` bytes to the module's port.
fn udp_headers(way: Way, port: u16, len: usize) -> ([u8; IPV4_LEN], [u8; UDP_LEN]) {
    let len = UDP_LEN + len;
    let mut udp = [0; UDP_LEN];
    udp[..2].copy_from_slice(&port.to_be_bytes());
    udp[2..4].copy_from_slice(&UDP_PORT.to_be_bytes());
    udp[4..6].copy_from_slice(&(len as u16).to_be_bytes());
    (ip_header(way, libc::IPPROTO_UDP as u8, len), udp)
}

/// An IP packet with these bytes in a UDP datagram to the module's port.
pub(super) fn datagram(way: Way, port: u16, bytes: &[u8]) -> Vec<u8> {
    let (ip, udp) = udp_headers(way, port, bytes.len());
    [&ip[..], &udp, bytes].concat()
}

/// An IP packet with `body`, from the BTH to the pad, and a good ICRC.
pub(super) fn seal(way: Way, port: u16, body: &[u8]) -> Vec<u8> {
    let (ip, udp) = udp_headers(way, port, body.len() + ICRC_LEN);
    let icrc = Icrc::<Crc>::ipv4(&ip, &udp, body);
    [&ip[..], &udp, body, &icrc.trailer(0)].concat()
}

/// The bytes of a packet, from the BTH to the pad.
pub(super) fn body(packet: &Packet, payload: &[u8]) -> Vec<u8> {
    let mut buffer = [0; MAX_HEADERS];
    let pad = &[0; 3][..packet.pad()];
    [packet.write(&mut buffer), payload, pad].concat()
}

/// An IP packet with a good ICRC.
pub(super) fn whole(way: Way, packet: &Packet, payload: &[u8]) -> Vec<u8> {
    seal(way, PORT, &body(packet, payload))
}

/// A message of connection management.
pub(super) fn to_gsi(way: Way, psn: u32, message: &Message<'_>) -> Vec<u8> {
    let mad = message.write();
    let deth = Deth {
        qkey: GSI_QKEY,
        src_qp: Qpn::GSI,
    };
    let bth = Bth::new(Qpn::GSI, Psn::new(psn));
    let packet = Packet::new(bth, Headers::Datagram(deth, None), mad.len());
    whole(way, &packet, &mad)
}

/// An ICMP message with `word` behind its checksum, about a packet that begins with `quoted`.
pub(super) fn icmp(way: Way, kind: u8, code: u8, word: u32, quoted: &[u8]) -> Vec<u8> {
    let mut icmp = vec![kind, code, 0, 0];
    icmp.extend(word.to_be_bytes());
    icmp.extend(quoted);
    icmp.resize(icmp.len().next_multiple_of(2), 0);
    let sum: u32 = icmp
        .as_chunks()
        .0
        .iter()
        .map(|pair| u32::from(u16::from_be_bytes(*pair)))
        .sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    let ip = ip_header(way, libc::IPPROTO_ICMP as u8, icmp.len());
    [&ip[..], &icmp].concat()
}

/// A REQ to a service along `way`.
pub(super) fn request<'p>(way: Way, service_id: cm::ServiceId, private: &'p [u8]) -> Req<'p> {
    let timing = cm::Timing::DEFAULT;
    Req {
        local_id: cm::CommId(1),
        service_id,
        ca_guid: 7,
        qpn: Qpn::new(0x100),
        responder_resources: 4,
        initiator_depth: 4,
        remote_response_timeout: timing.longest,
        transport: cm::Transport::Rc,
        flow_control: false,
        starting_psn: Psn::new(0),
        local_response_timeout: timing.longest,
        retry_count: 7,
        pkey: DEFAULT_PKEY,
        mtu: PathMtu::Mtu1024.code(),
        rnr_retry_count: 7,
        max_cm_retries: 15,
        srq: false,
        primary: cm::Path::new(way.from.into(), way.to.into(), 64, timing.life_time),
        alternate: cm::Path::NONE,
        private: cm::Private::new(private).expect("private data"),
    }
}

/// A REQ without a greeting, with times as long as possible: an endpoint for reliable datagrams
/// rejects it.
pub(super) fn bad_request(way: Way, number: u32, service_id: cm::ServiceId) -> Vec<u8> {
    let longest = cm::Timeout::new(20);
    let mut req = request(way, service_id, &[]);
    req.local_id = cm::CommId(number.wrapping_add(1));
    req.qpn = Qpn::new(number.wrapping_add(0x100));
    req.remote_response_timeout = longest;
    req.local_response_timeout = longest;
    req.primary.ack_timeout = cm::Timeout::ack(longest, cm::Timeout::new(0));
    let body = cm::Body::Req(req);
    let tid = number.into();
    to_gsi(way, number, &Message { tid, body })
}

/// A socket that sends IP packets as they are.
pub(crate) struct RawSocket(OwnedFd);

impl RawSocket {
    pub(crate) fn new(netns: &NetNs) -> Self {
        netns.run(|| Self(socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_RAW)))
    }

    /// Sends a packet to the destination in its IP header.
    pub(crate) fn try_send(&self, packet: &[u8]) -> Result<(), Error> {
        let to: [u8; 4] = packet[16..20].try_into().expect("four bytes");
        // SAFETY: all zero is a valid address structure.
        let mut addr: libc::sockaddr_in = unsafe { std::mem::zeroed() };
        addr.sin_family = libc::AF_INET as _;
        addr.sin_addr.s_addr = u32::from_ne_bytes(to);
        // SAFETY: the buffer and the address are valid for the call.
        let sent = unsafe {
            libc::sendto(
                self.0.as_raw_fd(),
                packet.as_ptr().cast(),
                packet.len(),
                0,
                (&raw const addr).cast(),
                size_of_val(&addr) as u32,
            )
        };
        if sent == packet.len() as isize {
            Ok(())
        } else {
            Err(Error::last_os_error())
        }
    }

    /// Sends a packet, which must succeed.
    #[track_caller]
    pub(crate) fn send(&self, packet: &[u8]) {
        self.try_send(packet).expect("send a packet");
    }
}

/// A new socket of the caller's namespace.
pub(super) fn socket(domain: i32, kind: i32, protocol: i32) -> OwnedFd {
    let kind = kind | libc::SOCK_CLOEXEC;
    // SAFETY: the call takes three numbers.
    let fd = unsafe { libc::socket(domain, kind, protocol) };
    assert!(fd >= 0, "socket: {}", Error::last_os_error());
    // SAFETY: the descriptor is new and has no other owner.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn set_option<T>(socket: &OwnedFd, option: i32, value: &T) {
    // SAFETY: the value is valid for the call, with this length.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const *value).cast(),
            size_of::<T>() as u32,
        )
    };
    assert_eq!(result, 0, "setsockopt: {}", Error::last_os_error());
}

/// The packets to the module's UDP port that a namespace receives, or sends as well.
pub(super) struct Capture(OwnedFd);

impl Capture {
    /// All packets that arrive in a namespace and are addressed to it, or to all hosts. The capture
    /// has a packet before the module gets it.
    pub(super) fn arriving(netns: &NetNs) -> Self {
        // A bridge that does not know an address yet sends to all of its ports. The types from
        // OTHERHOST on are packets to other hosts, and packets that the namespace sends.
        let kind = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32;
        let program = [
            load(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, kind),
            unless_at_least(libc::PACKET_OTHERHOST.into(), 1),
            ret(0),
            ret(u32::MAX),
        ];
        Self::new(netns, &program)
    }

    /// Packets of the module that a namespace sends or receives, with one of two sources.
    pub(super) fn of_module(netns: &NetNs, sources: [Ipv4Addr; 2]) -> Self {
        let [one, other] = sources.map(u32::from);
        let byte = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
        let word = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
        // The TTL, then the source address.
        let program = [
            load(byte, 8),
            unless_equal(TTL_OF_MODULE.into(), 5),
            load(word, 12),
            unless_equal(one, 1),
            ret(u32::MAX),
            unless_equal(other, 1),
            ret(u32::MAX),
            ret(0),
        ];
        Self::new(netns, &program)
    }

    fn new(netns: &NetNs, program: &[libc::sock_filter]) -> Self {
        // The kernel passes a packet to the sockets of all protocols first. Those of one protocol
        // get it after the kernel's own receiver, and so after the module, which may have answered
        // by then.
        let protocol = libc::ETH_P_ALL;
        // It receives nothing before it is bound to a protocol, after its filter is set.
        let socket = netns.run(|| socket(libc::AF_PACKET, libc::SOCK_DGRAM, 0));
        set_option(&socket, libc::SO_RCVBUFFORCE, &CAPTURED);
        let filter = libc::sock_fprog {
            len: program.len() as u16,
            filter: program.as_ptr().cast_mut(),
        };
        set_option(&socket, libc::SO_ATTACH_FILTER, &filter);
        // SAFETY: all zero is a valid address structure.
        let mut addr: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        addr.sll_family = libc::AF_PACKET as u16;
        addr.sll_protocol = (protocol as u16).to_be();
        // SAFETY: the address is valid for the call.
        let result = unsafe {
            libc::bind(
                socket.as_raw_fd(),
                (&raw const addr).cast(),
                size_of_val(&addr) as u32,
            )
        };
        assert_eq!(result, 0, "bind: {}", Error::last_os_error());
        Self(socket)
    }

    /// The next packet that was captured, if there is one.
    pub(super) fn next(&self) -> Option<Captured> {
        let mut buffer = [0; 2048];
        loop {
            // SAFETY: the buffer is valid for the call.
            let len = unsafe {
                libc::recv(
                    self.0.as_raw_fd(),
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                    libc::MSG_DONTWAIT,
                )
            };
            let Ok(len) = usize::try_from(len) else {
                return None;
            };
            if let Some(captured) = Captured::parse(&buffer[..len]) {
                return Some(captured);
            }
        }
    }
}

fn load(code: u32, at: u32) -> libc::sock_filter {
    instruction(code, 0, at)
}

/// Skips `skip` instructions unless the loaded value is `value`.
fn unless_equal(value: u32, skip: u8) -> libc::sock_filter {
    instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, skip, value)
}

/// Skips `skip` instructions unless the loaded value is at least `value`.
fn unless_at_least(value: u32, skip: u8) -> libc::sock_filter {
    instruction(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, skip, value)
}

fn ret(bytes: u32) -> libc::sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, 0, bytes)
}

fn instruction(code: u32, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf,
        k,
    }
}

/// A captured packet.
#[derive(Clone)]
pub(super) struct Captured {
    pub(super) way: Way,
    /// The UDP source port.
    pub(super) port: u16,
    /// From the BTH to the ICRC.
    bytes: Vec<u8>,
}

impl Captured {
    fn parse(ip: &[u8]) -> Option<Self> {
        let (head, rest) = ip.split_at_checked(IPV4_LEN)?;
        let (udp, bytes) = rest.split_at_checked(UDP_LEN)?;
        let is_ours = head[0] == 0x45
            && head[9] == libc::IPPROTO_UDP as u8
            && udp[2..4] == UDP_PORT.to_be_bytes();
        let ip = |at: usize| head[at..].first_chunk().copied().map(Ipv4Addr::from);
        let way = Way::new(ip(12)?, ip(16)?);
        is_ours.then(|| Self {
            way,
            port: u16::from_be_bytes([udp[0], udp[1]]),
            bytes: bytes.to_vec(),
        })
    }

    /// From the BTH to the pad.
    pub(super) fn body(&self) -> &[u8] {
        &self.bytes[..self.bytes.len().saturating_sub(ICRC_LEN)]
    }

    /// The packet's headers, if it is a valid packet.
    pub(super) fn packet(&self) -> Option<Packet> {
        Packet::parse(&self.bytes, self.bytes.len()).ok()
    }

    /// The message of connection management in it, if there is one.
    pub(super) fn message(&self) -> Option<Message<'_>> {
        let packet = self.packet()?;
        let is_gsi = packet.bth.dest_qp == Qpn::GSI;
        let payload = self.bytes.get(packet.payload())?;
        Message::parse(payload).ok().filter(|_| is_gsi)
    }
}
