// SPDX-License-Identifier: GPL-2.0
//! The ACK extended transport header, 4 bytes: a syndrome and the MSN.
//!
//! Bits 6 and 5 of a syndrome are its kind, bits 4 to 0 its value; bit 7 is 0:
//!
//! | bits 6 5 | kind | bits 4 to 0 |
//! |---|---|---|
//! | 0 0 | ACK | end-to-end flow control [`Credits`] |
//! | 0 1 | RNR NAK | time to wait, [`RnrTimer`] |
//! | 1 1 | NAK | reason, [`Nak`] |
//!
//! All other syndromes are reserved, and a packet with one is malformed.
//!
//! Source: InfiniBand specification, volume 1, sections 9.7.5.2.3 to 9.7.5.2.9.

use super::super::{
    bytes::{
        Reader,
        Writer, //
    },
    packet::Malformed,
    psn::Psn, //
};

/// The ACK extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    /// The response to the request.
    pub syndrome: Syndrome,
    /// The message sequence number: the number of messages that the responder has completed.
    pub msn: Psn,
}

impl Aeth {
    /// The length of the header in bytes.
    pub const LEN: usize = 4;

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let word = reader.u32().ok_or(Malformed::Short)?;
        let [syndrome, ..] = word.to_be_bytes();
        let syndrome = Syndrome::from_byte(syndrome).ok_or(Malformed::Syndrome)?;
        let msn = Psn::new(word);
        Ok(Self { syndrome, msn })
    }

    pub(crate) fn write(&self, writer: &mut Writer<'_>) -> Option<()> {
        writer.u32(u32::from(self.syndrome.byte()) << 24 | self.msn.get())
    }
}

/// The response to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Syndrome {
    /// The request and all before it have been executed.
    Ack(Credits),
    /// The responder is not ready: the requester waits for this time and retransmits. All requests
    /// before it have been executed.
    Rnr(RnrTimer),
    /// The request was refused. All requests before it have been executed.
    Nak(Nak),
}

impl Syndrome {
    /// An acknowledgement without flow control. The device sends no other one.
    pub const ACK: Self = Self::Ack(Credits::UNUSED);

    /// Returns the syndrome with this byte, or `None` if it is reserved.
    #[inline]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        let value = byte & 0x1f;
        Some(match byte >> 5 {
            0 => Self::Ack(Credits(value)),
            1 => Self::Rnr(RnrTimer(value)),
            3 => match Nak::from_code(value) {
                Some(nak) => Self::Nak(nak),
                None => return None,
            },
            _ => return None,
        })
    }

    /// Returns the byte of the syndrome.
    #[inline]
    pub const fn byte(self) -> u8 {
        match self {
            Self::Ack(credits) => credits.0,
            Self::Rnr(timer) => 0x20 | timer.0,
            Self::Nak(nak) => 0x60 | nak as u8,
        }
    }
}

/// The reason for which a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Nak {
    /// PSN sequence error: packets before this one are missing.
    Sequence = 0,
    /// Invalid request: an opcode out of order, a wrong length, or a missing resource.
    InvalidRequest = 1,
    /// Remote access error: the key, the access rights or the bounds do not match.
    RemoteAccess = 2,
    /// Remote operational error: the responder could not execute the request.
    RemoteOperation = 3,
}

impl Nak {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::Sequence,
        Self::InvalidRequest,
        Self::RemoteAccess,
        Self::RemoteOperation,
    ];

    /// Returns the NAK with this code. Code 4 belongs to InfiniBand's reliable datagrams and is not
    /// supported.
    #[inline]
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::Sequence,
            1 => Self::InvalidRequest,
            2 => Self::RemoteAccess,
            3 => Self::RemoteOperation,
            _ => return None,
        })
    }
}

/// End-to-end flow control: the number of receives that a responder has posted, as a code of 5
/// bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Credits(u8);

impl Credits {
    /// There is no flow control.
    pub const UNUSED: Self = Self(0x1f);

    /// Returns the credits with this code, below 32.
    pub const fn from_code(code: u8) -> Option<Self> {
        if code < 32 {
            Some(Self(code))
        } else {
            None
        }
    }

    /// Returns the code.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Returns the number of receives; `None` without flow control.
    ///
    /// The codes above 1 stand alternately for powers of two and for one and a half times these.
    pub const fn count(self) -> Option<u32> {
        match self.0 {
            code @ 0..=1 => Some(code as u32),
            code @ 2..=30 => {
                let base = if code & 1 == 0 { 2 } else { 3 };
                Some(base << (code as u32 / 2).saturating_sub(1))
            }
            _ => None,
        }
    }
}

/// The time that a requester waits after an RNR NAK, as a code of 5 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RnrTimer(u8);

/// The times in units of 10 us, by code.
const RNR_TIMES: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

impl RnrTimer {
    /// Returns the timer with this code, below 32.
    pub const fn from_code(code: u8) -> Option<Self> {
        if code < 32 {
            Some(Self(code))
        } else {
            None
        }
    }

    /// Returns the shortest timer of at least `ns` nanoseconds, or the longest one (655.36 ms) if
    /// there is none.
    pub fn at_least(ns: u64) -> Self {
        (1..32)
            .map(Self)
            .find(|timer| timer.ns() >= ns)
            .unwrap_or(Self(0))
    }

    /// Returns the code.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Returns the time in nanoseconds: 10 us to 655.36 ms.
    pub fn ns(self) -> u64 {
        // The code is below 32, so the lookup succeeds.
        let time = RNR_TIMES.get(usize::from(self.0)).copied();
        u64::from(time.unwrap_or(0)).wrapping_mul(10_000)
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_roce_aeth))]
mod tests {
    use super::*;

    #[test]
    fn syndromes_convert_to_bytes_and_back() {
        let mut known = 0;
        for byte in 0..=u8::MAX {
            if let Some(syndrome) = Syndrome::from_byte(byte) {
                assert_eq!(syndrome.byte(), byte);
                known += 1;
            }
        }
        assert_eq!(known, 32 + 32 + 4);
        assert_eq!(Syndrome::ACK.byte(), 0x1f);
        for (byte, nak) in (0x60..).zip(Nak::ALL) {
            assert_eq!(Syndrome::from_byte(byte), Some(Syndrome::Nak(nak)));
        }
        let timer = RnrTimer::from_code(14);
        assert_eq!(Syndrome::from_byte(0x2e), timer.map(Syndrome::Rnr));
    }

    #[test]
    fn reserved_syndromes_are_refused() {
        for byte in [0x40, 0x5f, 0x64, 0x65, 0x7f, 0x80, 0x9f, 0xa0, 0xe0, 0xff] {
            assert_eq!(Syndrome::from_byte(byte), None);
        }
    }

    #[test]
    fn credits_decode_to_a_number_of_receives() {
        for (code, count) in [
            (0, 0),
            (1, 1),
            (2, 2),
            (3, 3),
            (4, 4),
            (5, 6),
            (6, 8),
            (7, 12),
            (8, 16),
            (9, 24),
            (10, 32),
            (29, 24576),
            (30, 32768),
        ] {
            let credits = Credits::from_code(code);
            assert_eq!(credits.and_then(Credits::count), Some(count));
            assert_eq!(credits.map(Credits::code), Some(code));
        }
        assert_eq!(Credits::UNUSED.count(), None);
        assert_eq!(Credits::from_code(31), Some(Credits::UNUSED));
        assert_eq!(Credits::from_code(32), None);
    }

    #[test]
    fn rnr_timers_convert_to_nanoseconds_and_back() {
        for (code, ns) in [
            (0, 655_360_000),
            (1, 10_000),
            (2, 20_000),
            (3, 30_000),
            (4, 40_000),
            (5, 60_000),
            (6, 80_000),
            (7, 120_000),
            (12, 640_000),
            (14, 1_280_000),
            (20, 10_240_000),
            (30, 327_680_000),
            (31, 491_520_000),
        ] {
            let timer = RnrTimer::from_code(code);
            assert_eq!(timer.map(RnrTimer::ns), Some(ns));
            assert_eq!(Some(RnrTimer::at_least(ns)), timer);
            assert_eq!(timer.map(RnrTimer::code), Some(code));
        }
        assert_eq!(RnrTimer::from_code(32), None);
        assert_eq!(RnrTimer::at_least(0).code(), 1);
        assert_eq!(RnrTimer::at_least(10_001).code(), 2);
        assert_eq!(RnrTimer::at_least(491_520_001).code(), 0);
        assert_eq!(RnrTimer::at_least(u64::MAX).code(), 0);
    }
}
