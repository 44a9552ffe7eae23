// SPDX-License-Identifier: GPL-2.0

//! Packets in socket buffers: verifying received ones, building those to send.
//!
//! A received packet stays in its socket buffer, in however many fragments; the ICRC is computed
//! over the fragments. A packet to send is built once, in one piece, from the IP header to the
//! ICRC: the payload is copied from the pages of the operation, and the ICRC is computed over the
//! copy. So a program that changes its buffer meanwhile sends old or new bytes, but never a packet
//! with a wrong ICRC.

use super::{
    socket::AddrPair,
    stats::Stat, //
};
use crate::shim::{
    skb::{
        crc32,
        Room,
        RxSkb,
        TxSkb, //
    },
    trace,
    udp::RX_HEAD, //
};
use core::net::IpAddr;
use kernel::prelude::*;
use kfi_roce::{
    headers::MAX_HEADERS,
    icrc::{
        Crc32,
        Icrc,
        IPV4_LEN,
        IPV6_LEN,
        UDP_LEN, //
    },
    packet::{
        Malformed,
        Packet,
        ICRC_LEN,
        UDP_PORT, //
    }, //
};

// All headers that are read more than once lie in the head, which only the packet's owner changes.
kernel::static_assert!(UDP_LEN + MAX_HEADERS <= RX_HEAD);

/// The kernel's CRC-32.
struct KernelCrc;

impl Crc32 for KernelCrc {
    fn update(crc: u32, bytes: &[u8]) -> u32 {
        crc32(crc, bytes)
    }
}

/// Parses a received packet, without checking its ICRC. Any context.
pub(super) fn parse(skb: &RxSkb) -> Result<Packet, Malformed> {
    let mut buffer = [0; MAX_HEADERS];
    Packet::parse(skb.head(&mut buffer), skb.len())
}

/// Parses a received packet and verifies its ICRC. Any context.
///
/// The error is the statistic that counts the drop.
#[cfg(kfi_kunit)]
pub(super) fn verified(skb: &RxSkb) -> Result<Packet, Stat> {
    let packet = parse(skb)?;
    verify(skb, &packet)?;
    Ok(packet)
}

/// Verifies the ICRC of `packet`, which was parsed from `skb`. Any context.
///
/// The error is the statistic that counts the drop.
pub(super) fn verify(skb: &RxSkb, packet: &Packet) -> Result<(), Stat> {
    let mut buffer = [0; MAX_HEADERS];
    let headers = skb
        .head(&mut buffer)
        .get(..packet.payload().start)
        .ok_or(Stat::DropShort)?;
    let ip = skb.ip();
    let mut icrc = if let Ok(ip) = <&[u8; IPV4_LEN]>::try_from(ip) {
        Icrc::<KernelCrc>::ipv4(ip, skb.udp(), headers)
    } else if let Ok(ip) = <&[u8; IPV6_LEN]>::try_from(ip) {
        Icrc::ipv6(ip, skb.udp(), headers)
    } else {
        return Err(Stat::DropIpOptions);
    };
    let end = skb.len().saturating_sub(ICRC_LEN);
    icrc.update_by(|crc| skb.crc32(crc, headers.len()..end));
    let mut wire = [0; ICRC_LEN];
    if !skb.copy_to_slice(end, &mut wire) || !icrc.matches(wire) {
        return Err(Stat::DropIcrc);
    }
    trace::rx(|| trace_fields(packet));
    Ok(())
}

/// Builds a packet, with this traffic class (over IPv4: type of service), UDP source port `source`
/// and, over IPv4, identification `id`. `fill` writes the payload; the part of the room that it
/// leaves is filled with zeros.
///
/// Fails with `ENOMEM`; `EMSGSIZE` if it is longer than an IP packet can be; `EINVAL` if the
/// addresses are of two families; an error of `fill`. Does not sleep unless `fill` does.
pub(super) fn build(
    addrs: &AddrPair,
    class: u8,
    source: u16,
    id: u16,
    packet: &Packet,
    fill: impl FnOnce(&mut Room<'_>) -> Result,
) -> Result<TxSkb> {
    let udp_len = UDP_LEN.saturating_add(packet.len());
    let (ip_len, total) = match addrs.from {
        IpAddr::V4(_) => (IPV4_LEN, udp_len.saturating_add(IPV4_LEN)),
        IpAddr::V6(_) => (IPV6_LEN, udp_len),
    };
    let total = u16::try_from(total).map_err(|_| EMSGSIZE)?;
    let mut skb = TxSkb::new(ip_len.saturating_add(udp_len))?;
    let mut buffer = [0; MAX_HEADERS];
    let headers = packet.write(&mut buffer);
    let udp = udp_header(source, udp_len);
    let mut icrc = match (addrs.from, addrs.to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let ip = ipv4_header(total, class, id, from.octets(), to.octets());
            skb.room(IPV4_LEN).put(&ip);
            Icrc::<KernelCrc>::ipv4(&ip, &udp, headers)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let ip = ipv6_header(total, class, from.octets(), to.octets());
            skb.room(IPV6_LEN).put(&ip);
            Icrc::ipv6(&ip, &udp, headers)
        }
        _ => return Err(EINVAL),
    };
    skb.room(UDP_LEN).put(&udp);
    skb.room(headers.len()).put(headers);
    let before = skb.bytes().len();
    let mut payload = skb.room(packet.payload_len());
    fill(&mut payload)?;
    payload.fill(0);
    icrc.update(skb.bytes().get(before..).unwrap_or_default());
    let trailer = icrc.trailer(packet.pad());
    skb.room(trailer.len()).put(&trailer);
    // All lengths are right by construction; if one were not, nothing would be sent.
    if !skb.is_complete() {
        return Err(EINVAL);
    }
    trace::tx(|| trace_fields(packet));
    Ok(skb)
}

/// Drops a packet for `cause`, which the caller counts. Any context.
pub(super) fn reject(skb: RxSkb, cause: Stat) {
    trace::drop(|| {
        let number = parse(&skb).map_or(0, |packet| packet.bth.dest_qp.get());
        (number, cause as u32)
    });
    skb.reject();
}

/// The fields of a packet that tracepoints report.
fn trace_fields(packet: &Packet) -> (u32, u32, u32, u32) {
    (
        packet.bth.dest_qp.get(),
        packet.opcode().byte().into(),
        packet.bth.psn.get(),
        packet.payload_len() as u32,
    )
}

/// The UDP header: to port 4791, without a checksum.
fn udp_header(source: u16, len: usize) -> [u8; UDP_LEN] {
    let [s1, s0] = source.to_be_bytes();
    let [d1, d0] = UDP_PORT.to_be_bytes();
    // The caller has checked the length of the IP packet.
    let [l1, l0] = (len as u16).to_be_bytes();
    [s1, s0, d1, d0, l1, l0, 0, 0]
}

/// The IPv4 header, with "don't fragment". The stack fills in TTL and checksum, which the ICRC does
/// not cover.
fn ipv4_header(total: u16, class: u8, id: u16, from: [u8; 4], to: [u8; 4]) -> [u8; IPV4_LEN] {
    const DONT_FRAGMENT: u8 = 0x40;
    const UDP: u8 = 17;
    let [l1, l0] = total.to_be_bytes();
    let [i1, i0] = id.to_be_bytes();
    let length = [0x45, class, l1, l0];
    let fragment = [i1, i0, DONT_FRAGMENT, 0];
    let protocol = [0, UDP, 0, 0];
    let mut ip = [0; IPV4_LEN];
    ip.copy_from_slice([length, fragment, protocol, from, to].as_flattened());
    ip
}

/// The IPv6 header. The stack fills in the hop limit, which the ICRC does not cover.
fn ipv6_header(payload: u16, class: u8, from: [u8; 16], to: [u8; 16]) -> [u8; IPV6_LEN] {
    const UDP: u8 = 17;
    let [l1, l0] = payload.to_be_bytes();
    let [from_net, from_host] = halves(from);
    let [to_net, to_host] = halves(to);
    // The class is between the version and the flow label, which is 0.
    let fields = [0x60 | class >> 4, class << 4, 0, 0, l1, l0, UDP, 0];
    let mut ip = [0; IPV6_LEN];
    ip.copy_from_slice([fields, from_net, from_host, to_net, to_host].as_flattened());
    ip
}

/// The two halves of an IPv6 address.
fn halves(address: [u8; 16]) -> [[u8; 8]; 2] {
    let [a, b, c, d, e, f, g, h, rest @ ..] = address;
    [[a, b, c, d, e, f, g, h], rest]
}
