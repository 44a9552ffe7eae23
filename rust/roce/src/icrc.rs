// SPDX-License-Identifier: GPL-2.0
//! The invariant CRC, the last 4 bytes of a packet.
//!
//! It covers the IP and UDP headers and the packet up to its pad. Fields that may change in transit
//! are replaced by ones:
//!
//! | header | replaced by ones |
//! |---|---|
//! | (before IP) | 8 bytes in place of InfiniBand's local route header |
//! | IPv4 | type of service, time to live, header checksum |
//! | IPv6 | traffic class, flow label, hop limit |
//! | UDP | checksum |
//! | BTH | the byte with FECN and BECN |
//!
//! The IP header must therefore be complete, with its length, identification and flags. The ICRC is
//! not defined for an IPv4 header with options or an IPv6 packet with extension headers, because
//! such packets are not RoCEv2.
//!
//! The CRC is that of Ethernet: polynomial 0x04c11db7, bits reflected, initial value all ones,
//! complemented at the end, lowest byte first on the wire. The caller supplies the CRC function
//! ([`Crc32`]) and may pass the bytes in several pieces:
//!
//! ```
//! # use kfi_roce::icrc::{Crc32, Icrc};
//! # fn sum<C: Crc32>(ip: &[u8; 20], udp: &[u8; 8], headers: &[u8], pieces: [&[u8]; 2]) -> usize {
//! let mut icrc = Icrc::<C>::ipv4(ip, udp, headers);
//! for payload in pieces {
//!     icrc.update(payload);
//! }
//! let trailer = icrc.trailer(3); // to be put behind the payload: a pad of 3, and the ICRC
//! # trailer.len()
//! # }
//! ```
//!
//! A receiver passes payload and pad to [`update`](Icrc::update) and calls
//! [`matches`](Icrc::matches).
//!
//! Source: InfiniBand specification, volume 1, section 7.8.1 and annex A17.

use super::{
    bytes::Writer,
    headers::Bth,
    packet::ICRC_LEN, //
};
use core::{
    marker::PhantomData,
    ops::Deref, //
};

/// The length of an IPv4 header without options in bytes.
pub const IPV4_LEN: usize = 20;

/// The length of an IPv6 header in bytes.
pub const IPV6_LEN: usize = 40;

/// The length of a UDP header in bytes.
pub const UDP_LEN: usize = 8;

/// The length in bytes of the longest headers that contain masked fields.
const HEAD_MAX: usize = IPV6_LEN + UDP_LEN + Bth::LEN;

/// The CRC after the 8 bytes of ones with which every ICRC begins.
const BEGIN: u32 = 0xdebb_20e3;

/// A CRC-32 implementation.
pub trait Crc32 {
    /// Returns the CRC of `bytes`, continued from `crc`: bits reflected, not complemented before or
    /// after. This is the kernel's `crc32_le()`.
    fn update(crc: u32, bytes: &[u8]) -> u32;
}

/// The state of an ICRC computation.
#[derive(Debug)]
pub struct Icrc<C> {
    crc: u32,
    by: PhantomData<C>,
}

impl<C: Crc32> Icrc<C> {
    /// Begins the ICRC of a packet with an IPv4 header. `packet` is the packet from its BTH on, or
    /// the part of it that is available.
    pub fn ipv4(ip: &[u8; IPV4_LEN], udp: &[u8; UDP_LEN], packet: &[u8]) -> Self {
        let mut ip = *ip;
        // Type of service, time to live, header checksum.
        let [_, tos, _, _, _, _, _, _, ttl, _, check @ .., _, _, _, _, _, _, _, _] = &mut ip;
        *tos = 0xff;
        *ttl = 0xff;
        check.copy_from_slice(&[0xff; 2]);
        Self::begin(&ip, udp, packet)
    }

    /// Begins the ICRC of a packet with an IPv6 header. `packet` is the packet from its BTH on, or
    /// the part of it that is available.
    pub fn ipv6(ip: &[u8; IPV6_LEN], udp: &[u8; UDP_LEN], packet: &[u8]) -> Self {
        let mut ip = *ip;
        // Traffic class and flow label follow the version (4 bits); then the hop limit.
        let [version, class, flow1, flow0, _, _, _, hops, ..] = &mut ip;
        *version |= 0x0f;
        *class = 0xff;
        *flow1 = 0xff;
        *flow0 = 0xff;
        *hops = 0xff;
        Self::begin(&ip, udp, packet)
    }

    fn begin(ip: &[u8], udp: &[u8; UDP_LEN], packet: &[u8]) -> Self {
        let mut udp = *udp;
        let [.., high, low] = &mut udp;
        *high = 0xff;
        *low = 0xff;
        let mut bth: [u8; Bth::LEN];
        let (covered, rest) = match packet.split_first_chunk() {
            Some((first, rest)) => {
                bth = *first;
                let [_, _, _, _, notices, ..] = &mut bth;
                *notices = 0xff;
                (&bth[..], rest)
            }
            // The bytes are shorter than a BTH, so they are not a packet.
            None => (packet, &[][..]),
        };
        // One call covers all bytes with masked fields.
        let mut head = [0; HEAD_MAX];
        let mut writer = Writer::new(&mut head);
        for part in [ip, &udp, covered] {
            // The buffer has room for the longest headers.
            let _ = writer.put(part);
        }
        let len = writer.len();
        let mut icrc = Self {
            crc: BEGIN,
            by: PhantomData,
        };
        icrc.update(head.get(..len).unwrap_or(&head));
        icrc.update(rest);
        icrc
    }

    /// Continues over the next bytes: headers, payload, pad.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.crc = C::update(self.crc, bytes);
        }
    }

    /// Continues over bytes that are not in a slice: `by` gets the CRC and returns it continued
    /// over them.
    #[inline]
    pub fn update_by(&mut self, by: impl FnOnce(u32) -> u32) {
        self.crc = by(self.crc);
    }

    /// Returns the ICRC in wire format.
    #[inline]
    pub fn finish(self) -> [u8; ICRC_LEN] {
        (!self.crc).to_le_bytes()
    }

    /// Continues over a pad of `pad` bytes, at most 3. Returns the bytes that follow the payload:
    /// the pad and the ICRC.
    pub fn trailer(mut self, pad: usize) -> Trailer {
        let pad = pad.min(3);
        let len = pad.wrapping_add(ICRC_LEN);
        let mut bytes = [0; Trailer::MAX];
        self.update(bytes.get(..pad).unwrap_or(&[]));
        if let Some(place) = bytes.get_mut(pad..len) {
            place.copy_from_slice(&self.finish());
        }
        Trailer { bytes, len }
    }

    /// Returns whether `wire`, the last 4 bytes of the packet, is its correct ICRC.
    #[inline]
    pub fn matches(self, wire: [u8; ICRC_LEN]) -> bool {
        self.finish() == wire
    }
}

/// The bytes that follow a payload: pad and ICRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    bytes: [u8; Self::MAX],
    len: usize,
}

impl Trailer {
    /// The maximum length of a trailer in bytes.
    pub const MAX: usize = 3 + ICRC_LEN;
}

impl Deref for Trailer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&self.bytes)
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_roce_icrc))]
mod tests {
    use super::*;

    /// A bitwise CRC.
    struct Bits;

    impl Crc32 for Bits {
        fn update(crc: u32, bytes: &[u8]) -> u32 {
            bytes.iter().fold(crc, |crc, byte| {
                (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
                    (crc >> 1) ^ ((crc & 1) * 0xedb8_8320)
                })
            })
        }
    }

    // Five packets with their ICRC. The ICRCs were computed by scapy 2.8.0, contrib/roce, as in
    //
    //     IPv6(tc=0x5a, fl=0x12345, hlim=63, src="2001:db8::7", dst="2001:db8:0:1::42") /
    //     UDP(sport=0xd234, dport=4791, chksum=0) /
    //     BTH(opcode="RC_RDMA_WRITE_ONLY", solicited=1, migreq=1, padcount=3, pkey=0xffff,
    //         dqpn=0x123456, ackreq=1, psn=0xfedcba) / Raw(RETH + b"hello" + pad)
    //
    // for V6_WRITE. V4_CNP is an exception: two NICs exchanged it, and scapy's tests contain it.
    // V4_UC is in scapy's tests too.

    /// A SEND only of UC, with type of service 1 and a UDP checksum.
    const V4_UC: [u8; 64] = [
        0x45, 0x01, 0x00, 0x40, 0x04, 0x78, 0x40, 0x00, 0x40, 0x11, 0xb4, 0xd5, //
        0xc0, 0xa8, 0x00, 0x07, 0xc0, 0xa8, 0x00, 0x07, 0xc0, 0x00, 0x12, 0xb7, //
        0x00, 0x2c, 0xac, 0xa2, 0x24, 0x60, 0xff, 0xff, 0x00, 0x00, 0x00, 0xd3, //
        0x00, 0xcf, 0x17, 0x10, 0x46, 0x30, 0x81, 0x8b, 0xe2, 0x89, 0x35, 0xd9, //
        0x0e, 0x9a, 0x95, 0x50, 0x54, 0x01, 0xbe, 0x88, 0x5e, 0x50, 0x00, 0x00, //
        0x78, 0xf3, 0x53, 0xf3,
    ];

    /// A congestion notification of a NIC, with BECN.
    const V4_CNP: [u8; 60] = [
        0x45, 0xc2, 0x00, 0x3c, 0x71, 0x8c, 0x40, 0x00, 0x40, 0x11, 0x91, 0x61, //
        0x0a, 0x00, 0x11, 0x01, 0x0a, 0x00, 0x12, 0x01, 0x00, 0x00, 0x12, 0xb7, //
        0x00, 0x28, 0x00, 0x00, 0x81, 0x00, 0xff, 0xff, 0x40, 0x00, 0x01, 0x18, //
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, //
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x82, 0xfd, 0x00, 0x2a,
    ];

    /// A datagram of UD to QP 1.
    const V4_UD: [u8; 68] = [
        0x45, 0x00, 0x00, 0x44, 0x00, 0x07, 0x40, 0x00, 0x40, 0x11, 0x26, 0xa0, //
        0x0a, 0x00, 0x00, 0x01, 0x0a, 0x00, 0x00, 0x02, 0xc1, 0x23, 0x12, 0xb7, //
        0x00, 0x30, 0x00, 0x00, 0x64, 0x40, 0xff, 0xff, 0x00, 0x00, 0x00, 0x01, //
        0x00, 0x00, 0x00, 0x01, 0x80, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, //
        0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, //
        0x0c, 0x0d, 0x0e, 0x0f, 0x1a, 0xdf, 0x70, 0x5b,
    ];

    /// A WRITE of 5 bytes, with traffic class and flow label.
    const V6_WRITE: [u8; 88] = [
        0x65, 0xa1, 0x23, 0x45, 0x00, 0x30, 0x11, 0x3f, 0x20, 0x01, 0x0d, 0xb8, //
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x07, //
        0x20, 0x01, 0x0d, 0xb8, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, //
        0x00, 0x00, 0x00, 0x42, 0xd2, 0x34, 0x12, 0xb7, 0x00, 0x30, 0x00, 0x00, //
        0x0a, 0xf0, 0xff, 0xff, 0x00, 0x12, 0x34, 0x56, 0x80, 0xfe, 0xdc, 0xba, //
        0x00, 0x00, 0x7f, 0x00, 0x11, 0x22, 0x33, 0x44, 0xde, 0xad, 0xbe, 0xef, //
        0x00, 0x00, 0x00, 0x05, 0x68, 0x65, 0x6c, 0x6c, 0x6f, 0x00, 0x00, 0x00, //
        0xe7, 0x3f, 0x4e, 0xcc,
    ];

    /// An acknowledgement with FECN, between link-local addresses, with a UDP checksum.
    const V6_ACK: [u8; 68] = [
        0x60, 0x00, 0x00, 0x00, 0x00, 0x1c, 0x11, 0xff, 0xfe, 0x80, 0x00, 0x00, //
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, //
        0xfe, 0x80, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, //
        0x00, 0x00, 0x00, 0x02, 0xc0, 0x01, 0x12, 0xb7, 0x00, 0x1c, 0x7f, 0xe5, //
        0x11, 0x00, 0x7f, 0xff, 0x80, 0x00, 0x00, 0x11, 0x00, 0x00, 0x00, 0x07, //
        0x1f, 0x00, 0x00, 0x03, 0x71, 0x5f, 0x0e, 0x99,
    ];

    const ALL: [&[u8]; 5] = [&V4_UC, &V4_CNP, &V4_UD, &V6_WRITE, &V6_ACK];

    /// Begins the ICRC of an IP packet. Returns it with the rest of the packet and its ICRC.
    fn begin(ip: &[u8]) -> Option<(Icrc<Bits>, &[u8], [u8; 4])> {
        let (rest, wire) = ip.split_last_chunk()?;
        // The split 4 bytes behind the BTH gives both pieces some bytes.
        Some(if *ip.first()? >> 4 == 4 {
            let (ip, rest) = rest.split_first_chunk()?;
            let (udp, rest) = rest.split_first_chunk()?;
            let (head, rest) = rest.split_at_checked(16)?;
            (Icrc::ipv4(ip, udp, head), rest, *wire)
        } else {
            let (ip, rest) = rest.split_first_chunk()?;
            let (udp, rest) = rest.split_first_chunk()?;
            let (head, rest) = rest.split_at_checked(16)?;
            (Icrc::ipv6(ip, udp, head), rest, *wire)
        })
    }

    fn icrc(ip: &[u8]) -> Option<[u8; 4]> {
        let (mut icrc, rest, _) = begin(ip)?;
        icrc.update(rest);
        Some(icrc.finish())
    }

    fn verify(ip: &[u8]) -> Option<bool> {
        let (mut icrc, rest, wire) = begin(ip)?;
        icrc.update(rest);
        Some(icrc.matches(wire))
    }

    #[test]
    fn the_beginning_is_eight_bytes_of_ones() {
        assert_eq!(Bits::update(u32::MAX, &[0xff; 8]), BEGIN);
    }

    #[test]
    fn the_icrc_of_known_packets_is_correct() {
        assert_eq!(icrc(&V4_UC), Some([0x78, 0xf3, 0x53, 0xf3]));
        assert_eq!(icrc(&V4_CNP), Some([0x82, 0xfd, 0x00, 0x2a]));
        assert_eq!(icrc(&V4_UD), Some([0x1a, 0xdf, 0x70, 0x5b]));
        assert_eq!(icrc(&V6_WRITE), Some([0xe7, 0x3f, 0x4e, 0xcc]));
        assert_eq!(icrc(&V6_ACK), Some([0x71, 0x5f, 0x0e, 0x99]));
        for packet in ALL {
            assert_eq!(verify(packet), Some(true));
        }
    }

    #[test]
    fn a_trailer_has_the_pad_and_the_icrc() {
        // The payload of 5 bytes has a pad of 3, that of 18 bytes a pad of 2; the others have none.
        for (packet, pad) in ALL.iter().zip([2, 0, 0, 3, 0]) {
            let Some((mut icrc, rest, _)) = begin(packet) else {
                continue;
            };
            let payload = rest.len() - pad;
            icrc.update(rest.get(..payload).unwrap_or(rest));
            let trailer = icrc.trailer(pad);
            assert_eq!(trailer.len(), pad + 4);
            assert_eq!(packet.get(packet.len() - pad - 4..), Some(&*trailer));
        }
        // A longer pad is limited to 3.
        let icrc = begin(&V6_ACK).map(|(icrc, ..)| icrc.trailer(9).len());
        assert_eq!(icrc, Some(Trailer::MAX));
    }

    #[test]
    fn the_icrc_does_not_depend_on_the_pieces() {
        for cut in 0..20 {
            let Some((mut icrc, rest, wire)) = begin(&V6_WRITE) else {
                continue;
            };
            let (one, two) = rest.split_at(cut.min(rest.len()));
            icrc.update(one);
            icrc.update(&[]);
            icrc.update_by(|crc| Bits::update(crc, two));
            assert!(icrc.matches(wire));
        }
    }

    /// Returns whether the ICRC covers bit `bit` of byte `at`.
    fn is_covered<const N: usize>(packet: &[u8; N], at: usize, bit: u32) -> bool {
        let mut changed = *packet;
        if let Some(byte) = changed.get_mut(at) {
            *byte ^= 1 << bit;
        }
        verify(&changed) == Some(false)
    }

    #[test]
    fn the_icrc_covers_all_bits_that_do_not_change_in_transit() {
        // The top four bits of byte 0 are left out, because they select the IP version.
        for at in 1..V4_UC.len() {
            for bit in 0..8 {
                let changes = matches!(at, 1 | 8 | 10 | 11 | 26 | 27 | 32);
                assert_eq!(is_covered(&V4_UC, at, bit), !changes);
            }
        }
        for at in 0..V6_WRITE.len() {
            for bit in 0..8 {
                if at == 0 && bit >= 4 {
                    continue;
                }
                let changes = matches!(at, 0..=3 | 7 | 46 | 47 | 52);
                assert_eq!(is_covered(&V6_WRITE, at, bit), !changes);
            }
        }
    }

    #[test]
    fn a_packet_shorter_than_a_bth_does_not_panic() {
        let icrc = Icrc::<Bits>::ipv4(&[0; 20], &[0; 8], &[1, 2, 3]);
        assert_eq!(icrc.finish().len(), 4);
    }
}
