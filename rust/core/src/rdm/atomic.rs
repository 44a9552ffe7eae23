// SPDX-License-Identifier: GPL-2.0
//! Atomics in SENDs.
//!
//! An atomic that RC does not have is a SEND with a [`Header`](super::header::Header) (`ATOMIC`),
//! which says what is to be done ([`Call`]), and a payload:
//!
//! ```text
//!  pieces of the peer's memory | operands | values to compare with
//!     16 bytes each            | the sum of the pieces' lengths, each
//! ```
//!
//! A piece has the address (8 bytes), the key (4) and the length (4), big endian. Operands and
//! values are elements in little-endian byte order. ATOMIC_READ has no operands, and only a
//! comparing atomic has values to compare with.
//!
//! The target executes the atomic when all of the SEND has come. The atomic is a message for the
//! [`Session`](super::Session) of both ends, so it is executed once or not at all, also if it is
//! sent again because there was no room for it ([`inbound`](super::inbound)). If it does not return
//! values, the acknowledgement of the SEND says that it was executed. Otherwise the target sends
//! the old values back (`RESULT`), in the place of a FIN.
//!
//! If the target does not allow an access, or a piece is not valid, no element is changed, and the
//! SEND is refused (NAK), which ends the connection, as for RDMA. If a connection fails, an atomic
//! that was posted to its QP may have been executed. It fails, and is not sent again.

use super::header::Malformed;
use crate::{
    atomic::Function,
    enums::{
        AtomicOp,
        Datatype, //
    },
    limits,
    op::OpType,
};
use kfi_roce::bytes::{
    Reader,
    Writer, //
};

/// The length of a piece in bytes.
pub const PIECE_LEN: usize = 16;

/// The maximum length of the payload in bytes.
pub const MAX_PAYLOAD: usize = limits::MAX_IOV * PIECE_LEN + 2 * limits::MAX_ATOMIC_SIZE;

/// The length of a [`Call`] in a header in bytes.
pub(super) const CALL_LEN: usize = 8;

/// An atomic in a header.
///
/// # Invariants
///
/// There are 1 to [`MAX_IOV`](limits::MAX_IOV) pieces, and at least one element, of at most
/// [`MAX_ATOMIC_SIZE`](limits::MAX_ATOMIC_SIZE) bytes in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    function: Function,
    pieces: u16,
    count: u16,
}

impl Call {
    /// Returns the atomic on `count` elements in this number of pieces; `None` if a number is out
    /// of range.
    pub fn new(function: Function, pieces: usize, count: usize) -> Option<Self> {
        let bytes = count.checked_mul(function.datatype().size())?;
        let is_valid = (1..=limits::MAX_IOV).contains(&pieces)
            && (1..=limits::MAX_ATOMIC_SIZE).contains(&bytes);
        // INVARIANT: Just checked.
        is_valid.then_some(Self {
            function,
            pieces: u16::try_from(pieces).ok()?,
            count: u16::try_from(count).ok()?,
        })
    }

    /// Returns the function.
    pub const fn function(&self) -> &Function {
        &self.function
    }

    /// Returns the number of pieces.
    pub const fn pieces(&self) -> usize {
        self.pieces as usize
    }

    /// Returns the length of the elements in bytes.
    pub const fn len(&self) -> usize {
        // By the invariants the product is small.
        (self.count as usize).wrapping_mul(self.function.datatype().size())
    }

    /// Returns whether there are no elements, which cannot be.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the length of the old values that are sent back; `None` if there are none.
    pub const fn result_len(&self) -> Option<u32> {
        if self.function.fetches() {
            // At most `MAX_ATOMIC_SIZE`.
            return Some(self.len() as u32);
        }
        None
    }

    /// Returns the offset of the operands in the payload, which is the length of the pieces.
    pub const fn operands_at(&self) -> usize {
        self.pieces().wrapping_mul(PIECE_LEN)
    }

    /// Returns the length of the payload in bytes: at most [`MAX_PAYLOAD`].
    pub const fn payload(&self) -> u32 {
        self.operands_at()
            .wrapping_add(self.function.input_len(self.len())) as u32
    }

    /// Returns the length of the memory in which the target executes the atomic. It has the payload
    /// and, from [`operands_at`](Self::operands_at) on, room for the old values.
    pub const fn memory_len(&self) -> usize {
        let with_values = self.operands_at().wrapping_add(self.len());
        let payload = self.payload() as usize;
        if with_values > payload {
            with_values
        } else {
            payload
        }
    }

    pub(super) fn put(&self, writer: &mut Writer<'_>) -> Option<()> {
        // All numbers of the three enumerators are below 256.
        let what = [
            self.function.kind() as u8,
            self.function.op() as u8,
            self.function.datatype() as u8,
            0,
        ];
        writer.put(&what)?;
        writer.put(&self.pieces.to_be_bytes())?;
        writer.put(&self.count.to_be_bytes())
    }

    pub(super) fn parse(bytes: [u8; CALL_LEN]) -> Result<Self, Malformed> {
        let [kind, op, datatype, zero, pieces @ .., count_high, count_low] = bytes;
        if zero != 0 {
            return Err(Malformed::Reserved);
        }
        let kind = OpType::try_from(u32::from(kind));
        let op = AtomicOp::try_from(u32::from(op));
        let datatype = Datatype::try_from(u32::from(datatype));
        let (Ok(kind), Ok(op), Ok(datatype)) = (kind, op, datatype) else {
            return Err(Malformed::Atomic);
        };
        let function = Function::new(kind, op, datatype).map_err(|_| Malformed::Atomic)?;
        let pieces = usize::from(u16::from_be_bytes(pieces));
        let count = usize::from(u16::from_be_bytes([count_high, count_low]));
        Self::new(function, pieces, count).ok_or(Malformed::Atomic)
    }
}

/// A piece of the peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The address of the first byte.
    pub addr: u64,
    /// The key.
    pub rkey: u32,
    /// The length in bytes.
    pub len: u32,
}

impl Piece {
    /// Returns the piece as bytes of the payload.
    pub fn to_bytes(&self) -> [u8; PIECE_LEN] {
        let [a, b, c, d, e, f, g, h] = self.addr.to_be_bytes();
        let [i, j, k, l] = self.rkey.to_be_bytes();
        let [m, n, o, p] = self.len.to_be_bytes();
        [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]
    }

    /// Returns the piece in bytes of the payload.
    pub fn from_bytes(bytes: [u8; PIECE_LEN]) -> Self {
        let mut reader = Reader::new(&bytes);
        // There are enough bytes.
        Self {
            addr: reader.u64().unwrap_or(0),
            rkey: reader.u32().unwrap_or(0),
            len: reader.u32().unwrap_or(0),
        }
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_rdm_atomic))]
mod tests {
    use super::*;
    use crate::errno::Errno;

    fn call(kind: OpType, op: AtomicOp, pieces: usize, count: usize) -> Result<Call, Errno> {
        let function = Function::new(kind, op, Datatype::Uint16)?;
        Call::new(function, pieces, count).ok_or(Errno::EINVAL)
    }

    #[test]
    fn lengths_follow_from_the_function() -> Result<(), Errno> {
        let base = call(OpType::Atomic, AtomicOp::Sum, 2, 10)?;
        assert_eq!((base.len(), base.result_len()), (20, None));
        assert_eq!((base.payload(), base.memory_len()), (52, 52));
        let read = call(OpType::FetchAtomic, AtomicOp::AtomicRead, 1, 10)?;
        assert_eq!((read.len(), read.result_len()), (20, Some(20)));
        assert_eq!((read.payload(), read.memory_len()), (16, 36));
        let compare = call(OpType::CompareAtomic, AtomicOp::Mswap, 256, 2048)?;
        assert_eq!((compare.len(), compare.result_len()), (4096, Some(4096)));
        assert_eq!(compare.payload() as usize, MAX_PAYLOAD);
        assert_eq!(compare.memory_len(), MAX_PAYLOAD);
        Ok(())
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        for (pieces, count) in [(0, 1), (257, 1), (1, 0), (1, 2049), (1, usize::MAX)] {
            assert!(call(OpType::Atomic, AtomicOp::Sum, pieces, count).is_err());
        }
    }

    #[test]
    fn calls_are_parsed_again() -> Result<(), Errno> {
        let call = call(OpType::CompareAtomic, AtomicOp::CswapGt, 0x100, 0x203)?;
        let mut bytes = [0xff; CALL_LEN];
        assert_eq!(call.put(&mut Writer::new(&mut bytes)), Some(()));
        assert_eq!(bytes, [8, 17, 3, 0, 1, 0, 2, 3]);
        assert_eq!(Call::parse(bytes), Ok(call));
        for (at, byte, error) in [
            (0, 5, Malformed::Atomic),
            (0, 6, Malformed::Atomic),
            (0, 9, Malformed::Atomic),
            (1, 2, Malformed::Atomic),
            (1, 19, Malformed::Atomic),
            (2, 12, Malformed::Atomic),
            (2, 14, Malformed::Atomic),
            (3, 1, Malformed::Reserved),
            (4, 0, Malformed::Atomic),
            (5, 1, Malformed::Atomic),
            (6, 0xff, Malformed::Atomic),
        ] {
            let mut changed = bytes;
            if let Some(place) = changed.get_mut(at) {
                *place = byte;
            }
            let parsed = Call::parse(changed);
            // No pieces at all: the other byte of their number is 0 too.
            assert_eq!(parsed, Err(error));
        }
        Ok(())
    }

    #[test]
    fn pieces_are_parsed_again() {
        let piece = Piece {
            addr: 0x0102_0304_0506_0708,
            rkey: 0x1112_1314,
            len: 0x2122_2324,
        };
        let bytes = piece.to_bytes();
        let expected = [
            1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x12, 0x13, 0x14, 0x21, 0x22, 0x23, 0x24,
        ];
        assert_eq!(bytes, expected);
        assert_eq!(Piece::from_bytes(bytes), piece);
    }
}
