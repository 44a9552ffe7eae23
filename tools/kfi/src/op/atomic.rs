// SPDX-License-Identifier: GPL-2.0
//! Atomic operations, before they are posted.

use super::{IoVec, Local, Op, Remote};
use crate::{
    abi,
    addr::FiAddr,
    buffer::Slice,
    enums::{AtomicOp, Datatype},
    flags::OpFlags,
};

/// Atomics.
impl<'a> Op<'a> {
    /// Changes elements of a peer's memory atomically: operands are added to them, for instance.
    ///
    /// `operand` has one for each element; their type and number are those of the elements.
    /// Endpoints for reliable datagrams have all operations of [`AtomicOp`] on most types of
    /// [`Datatype`]; connected endpoints ([`EpType::Msg`](crate::EpType::Msg)) have those of an RC
    /// QP: [`AtomicOp::Sum`] and [`AtomicOp::Cswap`] of one [`Datatype::Uint64`] or
    /// [`Datatype::Int64`].  [`Domain::query_atomic`](crate::Domain::query_atomic) tells.  The
    /// address at the peer is a multiple of the element's size.
    ///
    /// ```
    /// use kfi::{AtomicOp, Buffer, Element, FiAddr, Op, Remote};
    ///
    /// let halves = Buffer::of(&[0.5f32; 4])?;
    /// let op = Op::atomic(FiAddr(0), &halves, Remote::new(16, 77), f32::DATATYPE, AtomicOp::Prod);
    /// assert_eq!(op.raw().len, 16);
    /// # Ok::<(), kfi::Error>(())
    /// ```
    pub fn atomic(
        peer: FiAddr,
        operand: impl Into<Local<'a>>,
        remote: Remote,
        datatype: Datatype,
        op: AtomicOp,
    ) -> Self {
        Self::new(abi::KFABRIC_OP_ATOMIC, operand.into(), peer)
            .remote(remote)
            .what(datatype, op)
    }

    /// Changes elements of a peer's memory as [`Op::atomic`], and stores their old values in
    /// `result`.  [`AtomicOp::AtomicRead`] only stores them; it does not read `operand`.
    ///
    /// ```
    /// use kfi::{AtomicOp, Buffer, Datatype, FiAddr, Op, Remote};
    ///
    /// let one = Buffer::from_bytes(&1u64.to_ne_bytes())?;
    /// let before = Buffer::new(8)?;
    /// // The word that the peer keeps at the beginning of its region 77.
    /// let word = Remote::new(0, 77);
    /// let (uint64, sum) = (Datatype::Uint64, AtomicOp::Sum);
    /// let op = Op::fetch_atomic(FiAddr::UNSPEC, &one, &before, word, uint64, sum).context(5);
    /// assert_eq!(op.raw().result, before.addr());
    /// # Ok::<(), kfi::Error>(())
    /// ```
    ///
    /// # Panics
    ///
    /// If `result` is not as long as `operand`.
    pub fn fetch_atomic(
        peer: FiAddr,
        operand: impl Into<Slice<'a>>,
        result: impl Into<Slice<'a>>,
        remote: Remote,
        datatype: Datatype,
        op: AtomicOp,
    ) -> Self {
        let operand = operand.into();
        Self::new(abi::KFABRIC_OP_FETCH_ATOMIC, operand.into(), peer)
            .remote(remote)
            .what(datatype, op)
            .result(operand, result.into())
    }

    /// Changes each element of a peer's memory if a comparison with `compare` holds, and stores
    /// the old values in `result`, whether it held or not.
    ///
    /// With [`AtomicOp::Cswap`], `operand` replaces an element that is equal to `compare`.
    /// [`AtomicOp::Mswap`] replaces the bits that are set in `compare`.  See [`Op::atomic`].
    ///
    /// # Panics
    ///
    /// If `compare` or `result` is not as long as `operand`.
    pub fn compare_atomic(
        peer: FiAddr,
        operand: impl Into<Slice<'a>>,
        compare: impl Into<Slice<'a>>,
        result: impl Into<Slice<'a>>,
        remote: Remote,
        datatype: Datatype,
        op: AtomicOp,
    ) -> Self {
        let (operand, compare) = (operand.into(), compare.into());
        assert_eq!(compare.len(), operand.len(), "bytes to compare with");
        let mut this = Self::new(abi::KFABRIC_OP_COMPARE_ATOMIC, operand.into(), peer)
            .remote(remote)
            .what(datatype, op)
            .result(operand, result.into());
        this.raw.compare = compare.addr();
        this
    }

    /// Changes elements of a peer's memory as [`Op::atomic`], silently as [`Op::inject`].
    pub fn inject_atomic(
        peer: FiAddr,
        operand: &'a [u8],
        remote: Remote,
        datatype: Datatype,
        op: AtomicOp,
    ) -> Self {
        Self::atomic(peer, Local::injected(operand), remote, datatype, op).flags(OpFlags::INJECT)
    }

    /// The operands of an atomic in pieces, one after the other.
    pub fn operand_pieces(mut self, pieces: &'a [IoVec<'a>]) -> Self {
        let local = Local::from(pieces);
        self.raw.buf = local.buf;
        self.raw.len = local.len;
        self.raw.iov_count = local.iov_count;
        self.raw.mr = local.mr;
        self
    }

    /// The values that a comparing atomic compares with in pieces, as many bytes as the operands.
    pub fn compare_pieces(mut self, pieces: &'a [IoVec<'a>]) -> Self {
        let local = Local::from(pieces);
        self.raw.compare = local.buf;
        // More than the kernel takes in any case.
        self.raw.compare_iov_count = u16::try_from(local.iov_count).unwrap_or(u16::MAX);
        self
    }

    /// The destinations of the old values in pieces, as many bytes as the operands.
    pub fn result_pieces(mut self, pieces: &'a [IoVec<'a>]) -> Self {
        let local = Local::from(pieces);
        self.raw.result = local.buf;
        self.raw.result_iov_count = u16::try_from(local.iov_count).unwrap_or(u16::MAX);
        self.raw.result_mr = 0;
        self
    }

    fn what(mut self, datatype: Datatype, op: AtomicOp) -> Self {
        // A number that is too large is none of the interface's.
        self.raw.datatype = u16::try_from(datatype.raw()).unwrap_or(u16::MAX);
        self.raw.op = u16::try_from(op.raw()).unwrap_or(u16::MAX);
        self
    }

    fn result(mut self, operand: Slice<'a>, result: Slice<'a>) -> Self {
        assert_eq!(result.len(), operand.len(), "bytes for the result");
        self.raw.result = result.addr();
        self.raw.result_mr = result.region();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Buffer;

    #[test]
    fn atomics() {
        let words = Buffer::new(24).unwrap();
        let (operand, compare, result) = (words.slice(..8), words.slice(8..16), words.slice(16..));
        let (peer, remote) = (FiAddr(1), Remote::new(64, 77));
        let (uint64, sum) = (Datatype::Uint64, AtomicOp::Sum);
        let base = abi::kfabric_op {
            opcode: abi::KFABRIC_OP_ATOMIC,
            buf: words.addr(),
            len: 8,
            peer: 1,
            rma_addr: 64,
            rma_key: 77,
            datatype: 7,
            op: 2,
            ..Default::default()
        };
        let raw = *Op::atomic(peer, operand, remote, uint64, sum).raw();
        assert_eq!(raw, base);
        let fetch = abi::kfabric_op {
            opcode: abi::KFABRIC_OP_FETCH_ATOMIC,
            result: words.addr() + 16,
            result_mr: 12,
            ..base
        };
        let into = result.of_region(12);
        let raw = *Op::fetch_atomic(peer, operand, into, remote, uint64, sum).raw();
        assert_eq!(raw, fetch);
        let swap = AtomicOp::Cswap;
        let raw = *Op::compare_atomic(peer, operand, compare, into, remote, uint64, swap).raw();
        let compared = abi::kfabric_op {
            opcode: abi::KFABRIC_OP_COMPARE_ATOMIC,
            op: 12,
            compare: words.addr() + 8,
            ..fetch
        };
        assert_eq!(raw, compared);
        let raw = *Op::inject_atomic(peer, &[1; 8], remote, uint64, sum).raw();
        assert_eq!((raw.flags, raw.len), (abi::KFI_INJECT, 8));
        let unknown = Op::atomic(peer, operand, remote, Datatype::Unknown(65_543), sum);
        assert_eq!(unknown.raw().datatype, u16::MAX);
    }

    #[test]
    fn values_may_be_in_pieces() {
        let words = Buffer::new(24).unwrap();
        let slices = [0, 8, 16].map(|at| words.slice(at..at + 8));
        let pieces = slices.map(|slice| {
            let (from, to) = (IoVec::from(words.slice(..3)), IoVec::from(slice));
            [from, to]
        });
        let [operand, compare, result] = slices;
        let (peer, to, swap) = (FiAddr(1), Remote::default(), AtomicOp::Mswap);
        let op = Op::compare_atomic(peer, operand, compare, result, to, Datatype::Int8, swap)
            .operand_pieces(&pieces[0])
            .compare_pieces(&pieces[1])
            .result_pieces(&pieces[2]);
        let raw = op.raw();
        let at = |index: usize| pieces[index].as_ptr().addr() as u64;
        assert_eq!((raw.buf, raw.len, raw.iov_count), (at(0), 0, 2));
        assert_eq!((raw.compare, raw.compare_iov_count), (at(1), 2));
        assert_eq!((raw.result, raw.result_iov_count), (at(2), 2));
    }

    #[test]
    #[should_panic(expected = "bytes for the result")]
    fn a_result_must_be_as_long_as_the_operand() {
        let words = Buffer::new(15).unwrap();
        let (operand, result) = (words.slice(..8), words.slice(8..));
        let (uint64, sum) = (Datatype::Uint64, AtomicOp::Sum);
        let _ = Op::fetch_atomic(FiAddr(0), operand, result, Remote::default(), uint64, sum);
    }

    #[test]
    #[should_panic(expected = "bytes to compare with")]
    fn the_compared_operand_must_be_as_long() {
        let words = Buffer::new(23).unwrap();
        let (operand, result, compare) = (words.slice(..8), words.slice(8..16), words.slice(16..));
        let (uint64, swap) = (Datatype::Uint64, AtomicOp::Cswap);
        let to = Remote::default();
        let _ = Op::compare_atomic(FiAddr(0), operand, compare, result, to, uint64, swap);
    }
}
