// SPDX-License-Identifier: GPL-2.0
//! Packets: the contents of UDP datagrams to port 4791.
//!
//! ```text
//! BTH | extended headers | payload | pad, 0 to 3 | ICRC, 4
//! ```
//!
//! A [`Packet`] describes everything but the bytes of payload, pad and ICRC, and borrows nothing.
//! Parsing takes the first bytes of the datagram and its length, so a socket buffer need not be
//! linear; the payload is a range within the datagram. Building writes the headers into a small
//! buffer of the caller. The caller sends the payload from its own memory, followed by the bytes
//! that [`Icrc::trailer`](super::icrc::Icrc::trailer) returns.
//!
//! # Checks
//!
//! Parsing checks all that does not depend on a QP: the datagram is long enough for the headers of
//! its opcode and the ICRC, and its length is a multiple of 4; the version, opcode, P_Key, pad
//! count and AETH syndrome are valid; and there is no payload if the opcode allows none. Each
//! failure is a [`Malformed`] of its own, which the caller counts. Malformed packets are dropped
//! without an answer. The responder and requester of the QP check the length of the payload against
//! the path MTU, and the fields of the extended headers. Reserved bits are ignored.
//!
//! Source: InfiniBand specification, volume 1, sections 5.2, 9.6; annex A17.

use super::{
    bytes::{
        Reader,
        Writer, //
    },
    headers::{
        Bth,
        Headers,
        MAX_HEADERS, //
    },
    opcode::Opcode, //
};
use core::ops::Range;

/// The destination UDP port of packets.
pub const UDP_PORT: u16 = 4791;

/// The length of the ICRC in bytes.
pub const ICRC_LEN: usize = 4;

crate::counted_reasons! {
    /// The reason for which a datagram is not a packet.
    Malformed {
        /// The datagram is too short for the headers of its opcode and the ICRC.
        Short = "short",
        /// The length is not a multiple of 4.
        Length = "length",
        /// The transport version is not 0.
        Version = "version",
        /// The opcode is reserved, or belongs to a transport service that this device does not
        /// support.
        Opcode = "opcode",
        /// The P_Key is not that of the default partition.
        Pkey = "pkey",
        /// The payload is shorter than the pad.
        Pad = "pad",
        /// There is a payload although the opcode allows none.
        Payload = "payload",
        /// The syndrome of the AETH is reserved.
        Syndrome = "syndrome",
    }
}

/// A packet without the bytes of its payload.
///
/// # Invariants
///
/// `payload_len` is 0 if the opcode has no payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The base transport header.
    pub bth: Bth,
    headers: Headers,
    payload_len: usize,
}

impl Packet {
    /// Makes a packet with `payload_len` bytes of payload, or none if the opcode allows none.
    pub const fn new(bth: Bth, headers: Headers, payload_len: usize) -> Self {
        let has = headers.opcode().has_payload();
        let payload_len = if has { payload_len } else { 0 };
        Self {
            bth,
            headers,
            payload_len,
        }
    }

    /// Parses the packet in a UDP datagram of `len` bytes, ICRC included. `head` is the beginning
    /// of the datagram: all of it, or at least its first [`MAX_HEADERS`] bytes.
    ///
    /// The ICRC is not verified.
    ///
    /// # Errors
    ///
    /// See [`Malformed`].
    pub fn parse(head: &[u8], len: usize) -> Result<Self, Malformed> {
        if len < Bth::LEN.wrapping_add(ICRC_LEN) {
            return Err(Malformed::Short);
        }
        let mut reader = Reader::new(head);
        let (opcode, pad, bth) = Bth::read(&mut reader)?;
        let body = len
            .checked_sub(opcode.headers_len())
            .and_then(|rest| rest.checked_sub(ICRC_LEN))
            .ok_or(Malformed::Short)?;
        if len % 4 != 0 {
            return Err(Malformed::Length);
        }
        let payload_len = body.checked_sub(usize::from(pad)).ok_or(Malformed::Pad)?;
        if !opcode.has_payload() && body != 0 {
            return Err(Malformed::Payload);
        }
        let headers = Headers::read(opcode, &mut reader)?;
        // INVARIANT: Checked above.
        Ok(Self {
            bth,
            headers,
            payload_len,
        })
    }

    /// Returns the opcode.
    #[inline]
    pub const fn opcode(&self) -> Opcode {
        self.headers.opcode()
    }

    /// Returns the opcode with its extended headers.
    #[inline]
    pub const fn headers(&self) -> Headers {
        self.headers
    }

    /// Returns the length of the payload in bytes, without pad.
    #[inline]
    pub const fn payload_len(&self) -> usize {
        self.payload_len
    }

    /// Returns the range of the payload in the datagram, without pad.
    #[inline]
    pub const fn payload(&self) -> Range<usize> {
        let start = self.headers.len();
        start..start.saturating_add(self.payload_len)
    }

    /// Returns the pad count: the number of bytes that complete the payload to a multiple of 4.
    #[inline]
    pub const fn pad(&self) -> usize {
        self.payload_len.wrapping_neg() % 4
    }

    /// Returns the length of the whole datagram in bytes, ICRC included.
    #[inline]
    pub const fn len(&self) -> usize {
        self.payload()
            .end
            .saturating_add(self.pad())
            .saturating_add(ICRC_LEN)
    }

    /// Returns false: there is always a BTH.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes the headers into `buffer` and returns the part of it that was written.
    pub fn write<'b>(&self, buffer: &'b mut [u8; MAX_HEADERS]) -> &'b [u8] {
        let mut writer = Writer::new(buffer);
        // The headers are at most MAX_HEADERS bytes, so there is room.
        let _ = self.put(&mut writer);
        let len = writer.len();
        buffer.get(..len).unwrap_or(&[])
    }

    fn put(&self, writer: &mut Writer<'_>) -> Option<()> {
        // At most 3.
        let pad = self.pad() as u8;
        self.bth.write(self.opcode(), pad, writer)?;
        self.headers.write(writer)
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_roce_packet))]
mod tests {
    use super::{
        super::{
            headers::{
                Aeth,
                AtomicEth,
                Deth,
                Qpn,
                Reth,
                SendEnd,
                Syndrome, //
            },
            psn::Psn, //
        },
        *, //
    };

    const RETH: Reth = Reth {
        va: 0x0102_0304_0506_0708,
        rkey: 0x090a_0b0c,
        len: 0x0d0e_0f10,
    };
    const ATOMIC: AtomicEth = AtomicEth {
        va: 0x0102_0304_0506_0708,
        rkey: 0x090a_0b0c,
        swap_add: 0x0d0e_0f10_1112_1314,
        compare: 0x1516_1718_191a_1b1c,
    };
    const AETH: Aeth = Aeth {
        syndrome: Syndrome::ACK,
        msn: Psn::new(0x02_0304),
    };
    const DETH: Deth = Deth {
        qkey: 0x0102_0304,
        src_qp: Qpn::new(0x06_0708),
    };
    const WORD: u32 = 0x1112_1314;

    /// One value for each opcode, in order, with the bytes that follow the BTH.
    const EACH: [(Headers, &[u8]); 25] = [
        (Headers::SendFirst, &[]),
        (Headers::SendMiddle, &[]),
        (Headers::SendLast(SendEnd::Plain), &[]),
        (Headers::SendLast(SendEnd::Imm(WORD)), &[17, 18, 19, 20]),
        (Headers::SendOnly(SendEnd::Plain), &[]),
        (Headers::SendOnly(SendEnd::Imm(WORD)), &[17, 18, 19, 20]),
        (
            Headers::WriteFirst(RETH),
            &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
        ),
        (Headers::WriteMiddle, &[]),
        (Headers::WriteLast(None), &[]),
        (Headers::WriteLast(Some(WORD)), &[17, 18, 19, 20]),
        (
            Headers::WriteOnly(RETH, None),
            &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
        ),
        (
            Headers::WriteOnly(RETH, Some(WORD)),
            &[
                1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20,
            ],
        ),
        (
            Headers::ReadRequest(RETH),
            &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
        ),
        (Headers::ReadResponseFirst(AETH), &[0x1f, 2, 3, 4]),
        (Headers::ReadResponseMiddle, &[]),
        (Headers::ReadResponseLast(AETH), &[0x1f, 2, 3, 4]),
        (Headers::ReadResponseOnly(AETH), &[0x1f, 2, 3, 4]),
        (Headers::Acknowledge(AETH), &[0x1f, 2, 3, 4]),
        (
            Headers::AtomicAcknowledge(AETH, 0x0506_0708_090a_0b0c),
            &[0x1f, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12],
        ),
        (
            Headers::CompareSwap(ATOMIC),
            &[
                1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23,
                24, 25, 26, 27, 28,
            ],
        ),
        (
            Headers::FetchAdd(ATOMIC),
            &[
                1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23,
                24, 25, 26, 27, 28,
            ],
        ),
        (
            Headers::SendLast(SendEnd::Invalidate(WORD)),
            &[17, 18, 19, 20],
        ),
        (
            Headers::SendOnly(SendEnd::Invalidate(WORD)),
            &[17, 18, 19, 20],
        ),
        (Headers::Datagram(DETH, None), &[1, 2, 3, 4, 0, 6, 7, 8]),
        (
            Headers::Datagram(DETH, Some(WORD)),
            &[1, 2, 3, 4, 0, 6, 7, 8, 17, 18, 19, 20],
        ),
    ];

    const BTH: Bth = Bth::new(Qpn::new(0x12_3456), Psn::new(0x65_4321));

    /// Returns the headers of a packet, padded with zeros to 72 bytes, and the length of its
    /// datagram.
    fn datagram(headers: Headers, payload: usize) -> ([u8; 72], usize) {
        let packet = Packet::new(BTH, headers, payload);
        let mut buffer = [0; MAX_HEADERS];
        let mut bytes = [0; 72];
        for (to, from) in bytes.iter_mut().zip(packet.write(&mut buffer)) {
            *to = *from;
        }
        (bytes, packet.len())
    }

    fn parse((bytes, len): ([u8; 72], usize)) -> Result<Packet, Malformed> {
        Packet::parse(&bytes, len)
    }

    #[test]
    fn each_opcode_is_written_and_read() {
        for (opcode, (headers, bytes)) in Opcode::ALL.iter().zip(EACH) {
            assert_eq!(headers.opcode(), *opcode);
            let mut buffer = [0xff; MAX_HEADERS];
            for payload in 0..9 {
                let packet = Packet::new(BTH, headers, payload);
                let written = packet.write(&mut buffer);
                assert_eq!(written.len(), headers.len());
                assert_eq!(written.get(..1), Some([opcode.byte()].as_slice()));
                assert_eq!(written.get(12..), Some(bytes));
                let again = Packet::parse(written, packet.len());
                let payload = if opcode.has_payload() { payload } else { 0 };
                assert_eq!(again, Ok(Packet::new(BTH, headers, payload)));
                assert_eq!(packet.payload_len(), payload);
                assert_eq!(packet.payload(), headers.len()..headers.len() + payload);
                assert_eq!(packet.len() % 4, 0);
                assert_eq!(packet.len(), headers.len() + payload.div_ceil(4) * 4 + 4);
            }
        }
    }

    #[test]
    fn the_bth_is_laid_out_as_specified() {
        let mut buffer = [0; MAX_HEADERS];
        let packet = Packet::new(BTH, Headers::SendOnly(SendEnd::Plain), 3);
        assert_eq!(
            packet.write(&mut buffer),
            [4, 0x50, 0xff, 0xff, 0, 0x12, 0x34, 0x56, 0, 0x65, 0x43, 0x21]
        );
        let bth = Bth {
            solicited: true,
            mig_req: false,
            fecn: true,
            becn: true,
            ack_req: true,
            ..BTH
        };
        let packet = Packet::new(bth, Headers::SendMiddle, 4);
        let written = packet.write(&mut buffer);
        assert_eq!(
            written,
            [1, 0x80, 0xff, 0xff, 0xc0, 0x12, 0x34, 0x56, 0x80, 0x65, 0x43, 0x21]
        );
        assert_eq!(Packet::parse(written, 20), Ok(packet));
        for (fecn, byte) in [(true, 0x80), (false, 0x40)] {
            let bth = Bth {
                fecn,
                becn: !fecn,
                ..BTH
            };
            let packet = Packet::new(bth, Headers::SendMiddle, 0);
            assert_eq!(packet.write(&mut buffer).get(4), Some(&byte));
        }
    }

    #[test]
    fn reserved_bits_are_ignored() {
        let good = datagram(Headers::Datagram(DETH, None), 8);
        let (mut bytes, len) = good;
        for (at, bits) in [(4, 0x3f), (8, 0x7f), (16, 0xff)] {
            if let Some(byte) = bytes.get_mut(at) {
                *byte |= bits;
            }
        }
        assert_eq!(parse((bytes, len)), parse(good));
    }

    #[test]
    fn short_datagrams_are_refused() {
        for (headers, _) in EACH {
            let (bytes, len) = datagram(headers, 0);
            for short in 0..len {
                assert_eq!(parse((bytes, short)), Err(Malformed::Short));
            }
            assert!(parse((bytes, len)).is_ok());
            // The length of the datagram alone is not enough: the headers themselves must be
            // present.
            for short in 0..headers.len() {
                let head = bytes.get(..short).unwrap_or(&bytes);
                assert_eq!(Packet::parse(head, len), Err(Malformed::Short));
            }
        }
        assert_eq!(Packet::parse(&[], usize::MAX), Err(Malformed::Short));
    }

    #[test]
    fn lengths_are_multiples_of_four() {
        let (bytes, len) = datagram(Headers::SendFirst, 8);
        for more in 1..4 {
            assert_eq!(parse((bytes, len + more)), Err(Malformed::Length));
        }
        assert!(parse((bytes, len + 4)).is_ok());
    }

    /// Parses a valid packet with one byte changed.
    fn changed(headers: Headers, at: usize, byte: u8) -> Result<Packet, Malformed> {
        let (mut bytes, len) = datagram(headers, 8);
        if let Some(place) = bytes.get_mut(at) {
            *place = byte;
        }
        parse((bytes, len))
    }

    #[test]
    fn other_transport_versions_are_refused() {
        for version in 1..16 {
            let packet = changed(Headers::SendFirst, 1, version);
            assert_eq!(packet, Err(Malformed::Version));
        }
        assert!(changed(Headers::SendFirst, 1, 0).is_ok());
    }

    #[test]
    fn unknown_opcodes_are_refused() {
        for byte in 0..=u8::MAX {
            let refused = changed(Headers::SendFirst, 0, byte) == Err(Malformed::Opcode);
            assert_eq!(refused, Opcode::from_byte(byte).is_none());
        }
    }

    #[test]
    fn other_partitions_are_refused() {
        // The P_Key of a limited member of the default partition.
        assert!(changed(Headers::SendFirst, 2, 0x7f).is_ok());
        for (at, byte) in [(2, 0xfe), (2, 0), (3, 0xfe), (3, 0)] {
            let packet = changed(Headers::SendFirst, at, byte);
            assert_eq!(packet, Err(Malformed::Pkey));
        }
    }

    #[test]
    fn pads_are_not_part_of_the_payload() {
        for pad in 0..4 {
            let packet = changed(Headers::SendFirst, 1, (pad as u8) << 4);
            assert_eq!(packet.map(|packet| packet.payload_len()), Ok(8 - pad));
        }
        for (headers, _) in EACH {
            let (mut bytes, len) = datagram(headers, 0);
            if let Some(place) = bytes.get_mut(1) {
                *place = 0x10;
            }
            assert_eq!(parse((bytes, len)), Err(Malformed::Pad));
        }
    }

    #[test]
    fn payloads_are_refused_where_the_opcode_has_none() {
        for (headers, _) in EACH {
            let (bytes, len) = datagram(headers, 0);
            let packet = parse((bytes, len + 4));
            if headers.opcode().has_payload() {
                assert_eq!(packet.map(|packet| packet.payload_len()), Ok(4));
            } else {
                assert_eq!(packet, Err(Malformed::Payload));
            }
        }
    }

    #[test]
    fn packets_with_reserved_syndromes_are_refused() {
        for (headers, _) in EACH {
            let (mut bytes, len) = datagram(headers, 0);
            if let Some(place) = bytes.get_mut(12) {
                *place = 0x40;
            }
            let refused = parse((bytes, len)) == Err(Malformed::Syndrome);
            assert_eq!(refused, headers.opcode().has_aeth());
        }
    }

    #[test]
    fn reasons_are_listed_in_order() {
        for (number, kind) in Malformed::ALL.iter().enumerate() {
            assert_eq!(*kind as usize, number);
            assert!(!kind.name().is_empty());
        }
    }

    #[test]
    fn lengths_never_wrap() {
        let packet = Packet::new(BTH, Headers::SendFirst, usize::MAX);
        assert_eq!(packet.len(), usize::MAX);
        assert_eq!(packet.payload().end, usize::MAX);
        assert!(packet.pad() < 4);
    }
}
