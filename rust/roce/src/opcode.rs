// SPDX-License-Identifier: GPL-2.0
//! The opcodes of RC and UD.
//!
//! The first byte of a packet is its opcode: the three highest bits select the transport service,
//! the others the operation. An [`Opcode`] is one that this device supports: RC without the flush
//! and atomic-write extensions, and UD. [`Opcode::from_byte`] returns `None` for all others.
//!
//! The opcode determines the layout of the rest of the packet: the extended headers that follow the
//! BTH, in the order RETH, AtomicETH, AETH, AtomicAckETH, DETH, ImmDt, IETH, and whether there is a
//! payload.
//!
//! Source: InfiniBand specification, volume 1, section 9.2.1 (table of opcodes).

use super::headers::{
    Aeth,
    AtomicEth,
    Bth,
    Deth,
    Reth,
    ATOMIC_ACK_LEN,
    IETH_LEN,
    IMM_LEN, //
};

/// The transport service of an opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable datagram.
    Ud,
}

/// The position of a packet in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Position {
    /// The first of several packets.
    First,
    /// Neither the first nor the last.
    Middle,
    /// The last of several packets.
    Last,
    /// The only packet.
    Only,
}

impl Position {
    /// Returns whether this is the first packet of a message.
    #[inline]
    pub const fn starts(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    /// Returns whether this is the last packet of a message.
    #[inline]
    pub const fn ends(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }
}

/// The operation of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// SEND.
    Send,
    /// RDMA WRITE.
    Write,
    /// RDMA READ request.
    ReadRequest,
    /// RDMA READ response.
    ReadResponse,
    /// Acknowledge.
    Acknowledge,
    /// Atomic acknowledge.
    AtomicAcknowledge,
    /// Compare and swap.
    CompareSwap,
    /// Fetch and add.
    FetchAdd,
}

/// Bits of the properties of an opcode: the extended headers, and whether a payload is allowed.
const RETH: u8 = 1 << 0;
const ATOMIC: u8 = 1 << 1;
const AETH: u8 = 1 << 2;
const ATOMIC_ACK: u8 = 1 << 3;
const DETH: u8 = 1 << 4;
const IMM: u8 = 1 << 5;
const IETH: u8 = 1 << 6;
const PAYLOAD: u8 = 1 << 7;

macro_rules! opcodes {
    ($(
        $(#[$doc:meta])*
        $name:ident = $byte:literal, $service:ident, $operation:ident, $position:ident, $properties:expr;
    )*) => {
        /// An opcode that this device supports.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Opcode {
            $($(#[$doc])* $name = $byte,)*
        }

        impl Opcode {
            /// All opcodes.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns the opcode with this byte.
            #[inline]
            pub const fn from_byte(byte: u8) -> Option<Self> {
                Some(match byte {
                    $($byte => Self::$name,)*
                    _ => return None,
                })
            }

            /// Returns the transport service.
            #[inline]
            pub const fn service(self) -> Service {
                match self {
                    $(Self::$name => Service::$service,)*
                }
            }

            /// Returns the operation.
            #[inline]
            pub const fn operation(self) -> Operation {
                match self {
                    $(Self::$name => Operation::$operation,)*
                }
            }

            /// Returns the position of the packet in its message.
            #[inline]
            pub const fn position(self) -> Position {
                match self {
                    $(Self::$name => Position::$position,)*
                }
            }

            #[inline]
            const fn properties(self) -> u8 {
                match self {
                    $(Self::$name => $properties,)*
                }
            }
        }
    };
}

opcodes! {
    /// RC SEND First.
    RcSendFirst = 0x00, Rc, Send, First, PAYLOAD;
    /// RC SEND Middle.
    RcSendMiddle = 0x01, Rc, Send, Middle, PAYLOAD;
    /// RC SEND Last.
    RcSendLast = 0x02, Rc, Send, Last, PAYLOAD;
    /// RC SEND Last with Immediate.
    RcSendLastImm = 0x03, Rc, Send, Last, IMM | PAYLOAD;
    /// RC SEND Only.
    RcSendOnly = 0x04, Rc, Send, Only, PAYLOAD;
    /// RC SEND Only with Immediate.
    RcSendOnlyImm = 0x05, Rc, Send, Only, IMM | PAYLOAD;
    /// RC RDMA WRITE First.
    RcWriteFirst = 0x06, Rc, Write, First, RETH | PAYLOAD;
    /// RC RDMA WRITE Middle.
    RcWriteMiddle = 0x07, Rc, Write, Middle, PAYLOAD;
    /// RC RDMA WRITE Last.
    RcWriteLast = 0x08, Rc, Write, Last, PAYLOAD;
    /// RC RDMA WRITE Last with Immediate.
    RcWriteLastImm = 0x09, Rc, Write, Last, IMM | PAYLOAD;
    /// RC RDMA WRITE Only.
    RcWriteOnly = 0x0a, Rc, Write, Only, RETH | PAYLOAD;
    /// RC RDMA WRITE Only with Immediate.
    RcWriteOnlyImm = 0x0b, Rc, Write, Only, RETH | IMM | PAYLOAD;
    /// RC RDMA READ Request.
    RcReadRequest = 0x0c, Rc, ReadRequest, Only, RETH;
    /// RC RDMA READ response First.
    RcReadResponseFirst = 0x0d, Rc, ReadResponse, First, AETH | PAYLOAD;
    /// RC RDMA READ response Middle.
    RcReadResponseMiddle = 0x0e, Rc, ReadResponse, Middle, PAYLOAD;
    /// RC RDMA READ response Last.
    RcReadResponseLast = 0x0f, Rc, ReadResponse, Last, AETH | PAYLOAD;
    /// RC RDMA READ response Only.
    RcReadResponseOnly = 0x10, Rc, ReadResponse, Only, AETH | PAYLOAD;
    /// RC Acknowledge.
    RcAcknowledge = 0x11, Rc, Acknowledge, Only, AETH;
    /// RC ATOMIC Acknowledge.
    RcAtomicAcknowledge = 0x12, Rc, AtomicAcknowledge, Only, AETH | ATOMIC_ACK;
    /// RC CmpSwap.
    RcCompareSwap = 0x13, Rc, CompareSwap, Only, ATOMIC;
    /// RC FetchAdd.
    RcFetchAdd = 0x14, Rc, FetchAdd, Only, ATOMIC;
    /// RC SEND Last with Invalidate.
    RcSendLastInvalidate = 0x16, Rc, Send, Last, IETH | PAYLOAD;
    /// RC SEND Only with Invalidate.
    RcSendOnlyInvalidate = 0x17, Rc, Send, Only, IETH | PAYLOAD;
    /// UD SEND Only.
    UdSendOnly = 0x64, Ud, Send, Only, DETH | PAYLOAD;
    /// UD SEND Only with Immediate.
    UdSendOnlyImm = 0x65, Ud, Send, Only, DETH | IMM | PAYLOAD;
}

impl Opcode {
    /// Returns the byte of the opcode.
    #[inline]
    pub const fn byte(self) -> u8 {
        self as u8
    }

    /// Returns whether the packet goes from a responder to a requester.
    #[inline]
    pub const fn is_response(self) -> bool {
        matches!(
            self.operation(),
            Operation::ReadResponse | Operation::Acknowledge | Operation::AtomicAcknowledge
        )
    }

    /// Returns whether the packet goes from a requester to a responder.
    #[inline]
    pub const fn is_request(self) -> bool {
        !self.is_response()
    }

    /// Returns whether there is a RETH.
    #[inline]
    pub const fn has_reth(self) -> bool {
        self.properties() & RETH != 0
    }

    /// Returns whether there is an AtomicETH.
    #[inline]
    pub const fn has_atomic(self) -> bool {
        self.properties() & ATOMIC != 0
    }

    /// Returns whether there is an AETH.
    #[inline]
    pub const fn has_aeth(self) -> bool {
        self.properties() & AETH != 0
    }

    /// Returns whether there is an AtomicAckETH.
    #[inline]
    pub const fn has_atomic_ack(self) -> bool {
        self.properties() & ATOMIC_ACK != 0
    }

    /// Returns whether there is a DETH.
    #[inline]
    pub const fn has_deth(self) -> bool {
        self.properties() & DETH != 0
    }

    /// Returns whether there is immediate data.
    #[inline]
    pub const fn has_imm(self) -> bool {
        self.properties() & IMM != 0
    }

    /// Returns whether there is an IETH.
    #[inline]
    pub const fn has_ieth(self) -> bool {
        self.properties() & IETH != 0
    }

    /// Returns whether a payload is allowed.
    #[inline]
    pub const fn has_payload(self) -> bool {
        self.properties() & PAYLOAD != 0
    }

    /// Returns the length of all headers in bytes, BTH included: at most
    /// [`MAX_HEADERS`](super::headers::MAX_HEADERS).
    #[inline]
    pub const fn headers_len(self) -> usize {
        let mut len = Bth::LEN;
        // Each header occurs at most once, so the sum is at most 72.
        if self.has_reth() {
            len = len.wrapping_add(Reth::LEN);
        }
        if self.has_atomic() {
            len = len.wrapping_add(AtomicEth::LEN);
        }
        if self.has_aeth() {
            len = len.wrapping_add(Aeth::LEN);
        }
        if self.has_atomic_ack() {
            len = len.wrapping_add(ATOMIC_ACK_LEN);
        }
        if self.has_deth() {
            len = len.wrapping_add(Deth::LEN);
        }
        if self.has_imm() {
            len = len.wrapping_add(IMM_LEN);
        }
        if self.has_ieth() {
            len = len.wrapping_add(IETH_LEN);
        }
        len
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_roce_opcode))]
mod tests {
    use super::{
        super::headers::MAX_HEADERS,
        *, //
    };

    #[test]
    fn each_byte_has_at_most_one_opcode() {
        let mut known = 0;
        for byte in 0..=u8::MAX {
            let Some(opcode) = Opcode::from_byte(byte) else {
                continue;
            };
            assert_eq!(opcode.byte(), byte);
            assert!(Opcode::ALL.contains(&opcode));
            known += 1;
        }
        assert_eq!(known, 25);
        assert_eq!(Opcode::ALL.len(), 25);
    }

    #[test]
    fn unsupported_opcodes_are_refused() {
        // RC: resync, 0x18 to 0x1f (flush, atomic write); UC; RD; other UD opcodes; congestion
        // notification.
        for byte in [
            0x15, 0x18, 0x1c, 0x1d, 0x1f, 0x20, 0x24, 0x44, 0x60, 0x63, 0x66, 0x81,
        ] {
            assert_eq!(Opcode::from_byte(byte), None);
        }
    }

    #[test]
    fn services_follow_the_highest_bits() {
        for opcode in Opcode::ALL {
            let service = match opcode.byte() >> 5 {
                0 => Service::Rc,
                _ => Service::Ud,
            };
            assert_eq!(opcode.service(), service);
        }
    }

    #[test]
    fn each_opcode_has_its_header_length() {
        for (byte, len) in [
            (0x00, 12),
            (0x03, 16),
            (0x05, 16),
            (0x06, 28),
            (0x08, 12),
            (0x09, 16),
            (0x0a, 28),
            (0x0b, 32),
            (0x0c, 28),
            (0x0d, 16),
            (0x0e, 12),
            (0x0f, 16),
            (0x10, 16),
            (0x11, 16),
            (0x12, 24),
            (0x13, 40),
            (0x14, 40),
            (0x16, 16),
            (0x17, 16),
            (0x64, 20),
            (0x65, 24),
        ] {
            assert_eq!(Opcode::from_byte(byte).map(Opcode::headers_len), Some(len));
        }
        assert!(Opcode::ALL
            .iter()
            .all(|opcode| opcode.headers_len() <= MAX_HEADERS));
    }

    #[test]
    fn responses_and_payloads_follow_from_the_opcode() {
        for opcode in Opcode::ALL {
            let byte = opcode.byte();
            assert_eq!(opcode.is_response(), matches!(byte, 0x0d..=0x12));
            assert_eq!(opcode.is_request(), !opcode.is_response());
            assert_eq!(opcode.has_payload(), !matches!(byte, 0x0c | 0x11..=0x14));
        }
    }

    #[test]
    fn each_opcode_has_its_position() {
        use Position::*;
        for (byte, position) in [
            (0x00, First),
            (0x01, Middle),
            (0x02, Last),
            (0x04, Only),
            (0x0c, Only),
            (0x0e, Middle),
        ] {
            assert_eq!(
                Opcode::from_byte(byte).map(Opcode::position),
                Some(position)
            );
        }
        assert!(First.starts() && Only.starts() && !Middle.starts() && !Last.starts());
        assert!(Last.ends() && Only.ends() && !Middle.ends() && !First.ends());
    }
}
