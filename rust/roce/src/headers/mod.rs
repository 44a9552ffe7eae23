// SPDX-License-Identifier: GPL-2.0
//! Transport headers: the BTH and the extended headers that follow it.
//!
//! The opcode determines which extended headers follow the BTH. [`Headers`] therefore represents
//! both in one value: a WRITE Only has a RETH, an acknowledgement has an AETH, and an inconsistent
//! combination cannot be expressed. [`Headers::opcode`] returns the opcode.
//!
//! Source: InfiniBand specification, volume 1, section 9.3; RETH and atomics: 9.3.3 and 9.3.5.

mod aeth;
mod bth;

pub use self::{
    aeth::{
        Aeth,
        Credits,
        Nak,
        RnrTimer,
        Syndrome, //
    },
    bth::{
        Bth,
        DEFAULT_PKEY, //
    },
};

use super::{
    bytes::{
        Reader,
        Writer, //
    },
    opcode::Opcode,
    packet::Malformed, //
};

/// The length in bytes of the longest headers: BTH and AtomicETH.
pub const MAX_HEADERS: usize = Bth::LEN + AtomicEth::LEN;

/// The length of immediate data (ImmDt) in bytes.
pub const IMM_LEN: usize = 4;

/// The length of an IETH, the key to invalidate, in bytes.
pub const IETH_LEN: usize = 4;

/// The length of an AtomicAckETH, the value before the operation, in bytes.
pub const ATOMIC_ACK_LEN: usize = 8;

/// The number of a QP: 24 bits.
///
/// # Invariants
///
/// At most [`Qpn::MULTICAST`], which has all bits set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Qpn(u32);

impl Qpn {
    /// The general services QP, to which CM messages are sent.
    pub const GSI: Self = Self(1);

    /// The destination of multicast datagrams.
    pub const MULTICAST: Self = Self(0xff_ffff);

    /// Returns the QP number in the low 24 bits of `bits`.
    #[inline]
    pub const fn new(bits: u32) -> Self {
        // INVARIANT: The value is masked.
        Self(bits & Self::MULTICAST.0)
    }

    /// Returns the number.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// The RDMA extended transport header (RETH): the remote memory of a READ or WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reth {
    /// The virtual address.
    pub va: u64,
    /// The R_Key.
    pub rkey: u32,
    /// The length of the whole message in bytes. More than 2^31 is an invalid request.
    pub len: u32,
}

impl Reth {
    /// The length of the header in bytes.
    pub const LEN: usize = 16;

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            va: reader.u64()?,
            rkey: reader.u32()?,
            len: reader.u32()?,
        })
    }

    fn write(&self, writer: &mut Writer<'_>) -> Option<()> {
        writer.u64(self.va)?;
        writer.u32(self.rkey)?;
        writer.u32(self.len)
    }
}

/// The extended transport header of the atomic operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicEth {
    /// The virtual address of 8 bytes. An address that is not a multiple of 8 is an invalid
    /// request.
    pub va: u64,
    /// The R_Key.
    pub rkey: u32,
    /// The value to swap in or to add.
    pub swap_add: u64,
    /// The value to compare with; unused by fetch-and-add.
    pub compare: u64,
}

impl AtomicEth {
    /// The length of the header in bytes.
    pub const LEN: usize = 28;

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            va: reader.u64()?,
            rkey: reader.u32()?,
            swap_add: reader.u64()?,
            compare: reader.u64()?,
        })
    }

    fn write(&self, writer: &mut Writer<'_>) -> Option<()> {
        writer.u64(self.va)?;
        writer.u32(self.rkey)?;
        writer.u64(self.swap_add)?;
        writer.u64(self.compare)
    }
}

/// The datagram extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deth {
    /// The Q key, which must be equal to the receiver's.
    pub qkey: u32,
    /// The source QP.
    pub src_qp: Qpn,
}

impl Deth {
    /// The length of the header in bytes.
    pub const LEN: usize = 8;

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            qkey: reader.u32()?,
            // The highest byte is reserved.
            src_qp: Qpn::new(reader.u32()?),
        })
    }

    fn write(&self, writer: &mut Writer<'_>) -> Option<()> {
        writer.u32(self.qkey)?;
        writer.u32(self.src_qp.get())
    }
}

/// The header at the end of a SEND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendEnd {
    /// No header.
    Plain,
    /// Immediate data for the receiver's completion (ImmDt).
    Imm(u32),
    /// An R_Key of the receiver that the receiver invalidates (IETH).
    Invalidate(u32),
}

/// An opcode with its extended headers.
///
/// Immediate data is `Option<u32>`, in the byte order of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the opcodes")]
pub enum Headers {
    SendFirst,
    SendMiddle,
    SendLast(SendEnd),
    SendOnly(SendEnd),
    WriteFirst(Reth),
    WriteMiddle,
    WriteLast(Option<u32>),
    WriteOnly(Reth, Option<u32>),
    ReadRequest(Reth),
    ReadResponseFirst(Aeth),
    ReadResponseMiddle,
    ReadResponseLast(Aeth),
    ReadResponseOnly(Aeth),
    Acknowledge(Aeth),
    /// The `u64` is the value before the operation.
    AtomicAcknowledge(Aeth, u64),
    CompareSwap(AtomicEth),
    FetchAdd(AtomicEth),
    /// UD SEND Only.
    Datagram(Deth, Option<u32>),
}

impl Headers {
    /// Returns the opcode.
    pub const fn opcode(&self) -> Opcode {
        match self {
            Self::SendFirst => Opcode::RcSendFirst,
            Self::SendMiddle => Opcode::RcSendMiddle,
            Self::SendLast(SendEnd::Plain) => Opcode::RcSendLast,
            Self::SendLast(SendEnd::Imm(_)) => Opcode::RcSendLastImm,
            Self::SendLast(SendEnd::Invalidate(_)) => Opcode::RcSendLastInvalidate,
            Self::SendOnly(SendEnd::Plain) => Opcode::RcSendOnly,
            Self::SendOnly(SendEnd::Imm(_)) => Opcode::RcSendOnlyImm,
            Self::SendOnly(SendEnd::Invalidate(_)) => Opcode::RcSendOnlyInvalidate,
            Self::WriteFirst(_) => Opcode::RcWriteFirst,
            Self::WriteMiddle => Opcode::RcWriteMiddle,
            Self::WriteLast(None) => Opcode::RcWriteLast,
            Self::WriteLast(Some(_)) => Opcode::RcWriteLastImm,
            Self::WriteOnly(_, None) => Opcode::RcWriteOnly,
            Self::WriteOnly(_, Some(_)) => Opcode::RcWriteOnlyImm,
            Self::ReadRequest(_) => Opcode::RcReadRequest,
            Self::ReadResponseFirst(_) => Opcode::RcReadResponseFirst,
            Self::ReadResponseMiddle => Opcode::RcReadResponseMiddle,
            Self::ReadResponseLast(_) => Opcode::RcReadResponseLast,
            Self::ReadResponseOnly(_) => Opcode::RcReadResponseOnly,
            Self::Acknowledge(_) => Opcode::RcAcknowledge,
            Self::AtomicAcknowledge(..) => Opcode::RcAtomicAcknowledge,
            Self::CompareSwap(_) => Opcode::RcCompareSwap,
            Self::FetchAdd(_) => Opcode::RcFetchAdd,
            Self::Datagram(_, None) => Opcode::UdSendOnly,
            Self::Datagram(_, Some(_)) => Opcode::UdSendOnlyImm,
        }
    }

    /// Returns the length of all headers in bytes, BTH included: at most [`MAX_HEADERS`].
    pub const fn len(&self) -> usize {
        self.opcode().headers_len()
    }

    /// Returns false: there is always a BTH.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Reads the extended headers of a packet with this opcode.
    pub(super) fn read(opcode: Opcode, reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let short = Malformed::Short;
        let end = |reader: &mut Reader<'_>| {
            Ok(if opcode.has_imm() {
                SendEnd::Imm(reader.u32().ok_or(short)?)
            } else if opcode.has_ieth() {
                SendEnd::Invalidate(reader.u32().ok_or(short)?)
            } else {
                SendEnd::Plain
            })
        };
        let imm = |reader: &mut Reader<'_>| {
            Ok(if opcode.has_imm() {
                Some(reader.u32().ok_or(short)?)
            } else {
                None
            })
        };
        let reth = |reader: &mut Reader<'_>| Reth::read(reader).ok_or(short);
        let atomic = |reader: &mut Reader<'_>| AtomicEth::read(reader).ok_or(short);
        Ok(match opcode {
            Opcode::RcSendFirst => Self::SendFirst,
            Opcode::RcSendMiddle => Self::SendMiddle,
            Opcode::RcSendLast | Opcode::RcSendLastImm | Opcode::RcSendLastInvalidate => {
                Self::SendLast(end(reader)?)
            }
            Opcode::RcSendOnly | Opcode::RcSendOnlyImm | Opcode::RcSendOnlyInvalidate => {
                Self::SendOnly(end(reader)?)
            }
            Opcode::RcWriteFirst => Self::WriteFirst(reth(reader)?),
            Opcode::RcWriteMiddle => Self::WriteMiddle,
            Opcode::RcWriteLast | Opcode::RcWriteLastImm => Self::WriteLast(imm(reader)?),
            Opcode::RcWriteOnly | Opcode::RcWriteOnlyImm => {
                Self::WriteOnly(reth(reader)?, imm(reader)?)
            }
            Opcode::RcReadRequest => Self::ReadRequest(reth(reader)?),
            Opcode::RcReadResponseFirst => Self::ReadResponseFirst(Aeth::read(reader)?),
            Opcode::RcReadResponseMiddle => Self::ReadResponseMiddle,
            Opcode::RcReadResponseLast => Self::ReadResponseLast(Aeth::read(reader)?),
            Opcode::RcReadResponseOnly => Self::ReadResponseOnly(Aeth::read(reader)?),
            Opcode::RcAcknowledge => Self::Acknowledge(Aeth::read(reader)?),
            Opcode::RcAtomicAcknowledge => {
                Self::AtomicAcknowledge(Aeth::read(reader)?, reader.u64().ok_or(short)?)
            }
            Opcode::RcCompareSwap => Self::CompareSwap(atomic(reader)?),
            Opcode::RcFetchAdd => Self::FetchAdd(atomic(reader)?),
            Opcode::UdSendOnly | Opcode::UdSendOnlyImm => {
                Self::Datagram(Deth::read(reader).ok_or(short)?, imm(reader)?)
            }
        })
    }

    /// Writes the extended headers.
    pub(super) fn write(&self, writer: &mut Writer<'_>) -> Option<()> {
        match self {
            Self::SendFirst
            | Self::SendMiddle
            | Self::WriteMiddle
            | Self::ReadResponseMiddle
            | Self::SendLast(SendEnd::Plain)
            | Self::SendOnly(SendEnd::Plain)
            | Self::WriteLast(None) => {}
            Self::SendLast(SendEnd::Imm(word) | SendEnd::Invalidate(word))
            | Self::SendOnly(SendEnd::Imm(word) | SendEnd::Invalidate(word))
            | Self::WriteLast(Some(word)) => writer.u32(*word)?,
            Self::WriteFirst(reth) | Self::WriteOnly(reth, None) | Self::ReadRequest(reth) => {
                reth.write(writer)?
            }
            Self::WriteOnly(reth, Some(imm)) => {
                reth.write(writer)?;
                writer.u32(*imm)?;
            }
            Self::ReadResponseFirst(aeth)
            | Self::ReadResponseLast(aeth)
            | Self::ReadResponseOnly(aeth)
            | Self::Acknowledge(aeth) => aeth.write(writer)?,
            Self::AtomicAcknowledge(aeth, value) => {
                aeth.write(writer)?;
                writer.u64(*value)?;
            }
            Self::CompareSwap(atomic) | Self::FetchAdd(atomic) => atomic.write(writer)?,
            Self::Datagram(deth, imm) => {
                deth.write(writer)?;
                if let Some(imm) = imm {
                    writer.u32(*imm)?;
                }
            }
        }
        Some(())
    }
}
