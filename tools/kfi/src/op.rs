// SPDX-License-Identifier: GPL-2.0
//! Operations, before they are posted.
//!
//! An [`Op`] is one operation: kind, memory, peer, flags.  It has the layout of
//! the interface, so that one call posts an array of them without copies.  It
//! borrows its memory ([`Local`]) and its lists until it is posted; see
//! [`buffer`](crate::buffer) for what happens to the memory afterwards.

mod atomic;

use std::{fmt, marker::PhantomData};

use crate::{
    abi,
    addr::FiAddr,
    buffer::{Buffer, Slice},
    cntr::Cntr,
    flags::OpFlags,
};

/// A piece of memory in a list, with the layout of the interface.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct IoVec<'a> {
    // INVARIANT: memory of a `Buffer` that lives as long as `'a`.
    raw: abi::kfabric_iov,
    buffer: PhantomData<&'a Buffer>,
}

impl<'a> From<Slice<'a>> for IoVec<'a> {
    /// The bytes; a list does not name the region to which they may belong.
    fn from(slice: Slice<'a>) -> Self {
        Self {
            raw: abi::kfabric_iov {
                addr: slice.addr(),
                len: slice.len() as u64,
            },
            buffer: PhantomData,
        }
    }
}

impl<'a> From<&'a Buffer> for IoVec<'a> {
    fn from(buffer: &'a Buffer) -> Self {
        Slice::from(buffer).into()
    }
}

impl fmt::Debug for IoVec<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IoVec({:#x}, {} bytes)", self.raw.addr, self.raw.len)
    }
}

/// The local memory of an operation: its source or its destination.
#[derive(Clone, Copy, Debug)]
pub struct Local<'a> {
    // INVARIANT: `buf` and `len` are memory of a `Buffer`, or with `iov_count`
    // `buf` is a list of that many IoVec; either lives as long as `'a`.
    buf: u64,
    len: u64,
    iov_count: u32,
    mr: u32,
    memory: PhantomData<&'a Buffer>,
}

impl<'a> Local<'a> {
    /// No memory: for messages without bytes.
    pub const fn empty() -> Self {
        Self {
            buf: 0,
            len: 0,
            iov_count: 0,
            mr: 0,
            memory: PhantomData,
        }
    }

    /// Bytes that the kernel copies before the post returns.
    fn injected(bytes: &'a [u8]) -> Self {
        Self {
            buf: bytes.as_ptr().expose_provenance() as u64,
            len: bytes.len() as u64,
            ..Self::empty()
        }
    }
}

impl<'a> From<&'a Buffer> for Local<'a> {
    fn from(buffer: &'a Buffer) -> Self {
        Slice::from(buffer).into()
    }
}

impl<'a> From<Slice<'a>> for Local<'a> {
    fn from(slice: Slice<'a>) -> Self {
        Self {
            buf: slice.addr(),
            len: slice.len() as u64,
            mr: slice.region(),
            ..Self::empty()
        }
    }
}

/// The pieces, one after the other.
impl<'a> From<&'a [IoVec<'a>]> for Local<'a> {
    fn from(list: &'a [IoVec<'a>]) -> Self {
        if list.is_empty() {
            return Self::empty();
        }
        Self {
            buf: list.as_ptr().expose_provenance() as u64,
            // More than the kernel takes in any case.
            iov_count: u32::try_from(list.len()).unwrap_or(u32::MAX),
            ..Self::empty()
        }
    }
}

/// The pieces, one after the other.
impl<'a, const N: usize> From<&'a [IoVec<'a>; N]> for Local<'a> {
    fn from(list: &'a [IoVec<'a>; N]) -> Self {
        list.as_slice().into()
    }
}

/// A place in a peer's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Remote {
    /// Offset into the region, or virtual address with
    /// [`MrMode::VIRT_ADDR`](crate::MrMode::VIRT_ADDR).
    pub addr: u64,
    /// Key of the region.
    pub key: u64,
}

impl Remote {
    /// That address in the region with that key.
    pub const fn new(addr: u64, key: u64) -> Self {
        Self { addr, key }
    }
}

/// A piece of a peer's memory in a list, with the layout of the interface.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct RmaIov(abi::kfabric_rma_iov);

impl RmaIov {
    /// `len` bytes at `remote`.
    pub const fn new(remote: Remote, len: u64) -> Self {
        Self(abi::kfabric_rma_iov {
            addr: remote.addr,
            len,
            key: remote.key,
        })
    }
}

/// One operation, to be posted with [`Endpoint::post`](crate::Endpoint::post).
///
/// An operation is made by one of the functions that name a kind, then
/// completed by the methods.  Its flags are added to the endpoint's defaults
/// unless it is [`explicit`](Op::explicit).
///
/// ```
/// use kfi::{Buffer, FiAddr, Op, OpFlags};
///
/// let buffer = Buffer::new(64)?;
/// let op = Op::tsend(FiAddr(0), &buffer, 7)
///     .context(42)
///     .flags(OpFlags::DELIVERY_COMPLETE);
/// # let _ = op;
/// # Ok::<(), kfi::Error>(())
/// ```
///
/// An operation cannot outlive its memory:
///
/// ```compile_fail
/// # use kfi::{Buffer, FiAddr, Op};
/// let op = {
///     let buffer = Buffer::new(64)?;
///     Op::send(FiAddr(0), &buffer)
/// };
/// let _ = op;
/// # Ok::<(), kfi::Error>(())
/// ```
#[derive(Clone, Copy)]
#[repr(transparent)]
#[must_use = "an operation does nothing until it is posted"]
pub struct Op<'a> {
    // INVARIANT: `buf`, `len`, `iov_count` come from a `Local<'a>`, or from
    // bytes that live as long as `'a`, with KFI_INJECT, which no method takes
    // away.  With `rma_iov_count`, `rma_addr` is a list of that many RmaIov
    // that lives as long as `'a`.  `compare` and `result` are 0, or of a
    // `Slice<'a>` as long as `len` says, with `iov_count` 0; or lists of as
    // many IoVec as their counts say, which live as long as `'a`.
    raw: abi::kfabric_op,
    memory: PhantomData<&'a Buffer>,
}

impl<'a> Op<'a> {
    fn new(opcode: u32, local: Local<'a>, peer: FiAddr) -> Self {
        Self {
            raw: abi::kfabric_op {
                opcode,
                buf: local.buf,
                len: local.len,
                iov_count: local.iov_count,
                mr: local.mr,
                peer: peer.0,
                ..abi::kfabric_op::default()
            },
            memory: PhantomData,
        }
    }

    /// Sends a message.
    pub fn send(peer: FiAddr, local: impl Into<Local<'a>>) -> Self {
        Self::new(abi::KFABRIC_OP_SEND, local.into(), peer)
    }

    /// Receives a message, from any peer.
    pub fn recv(local: impl Into<Local<'a>>) -> Self {
        Self::new(abi::KFABRIC_OP_RECV, local.into(), FiAddr::UNSPEC)
    }

    /// Receives messages into one buffer until less than the endpoint's
    /// minimum ([`set_min_multi_recv`](crate::Endpoint::set_min_multi_recv))
    /// is left of it.
    pub fn multi_recv(local: impl Into<Local<'a>>) -> Self {
        Self::recv(local).flags(OpFlags::MULTI_RECV)
    }

    /// Sends a tagged message.
    pub fn tsend(peer: FiAddr, local: impl Into<Local<'a>>, tag: u64) -> Self {
        Self::new(abi::KFABRIC_OP_TSEND, local.into(), peer).tag(tag, 0)
    }

    /// Receives a message with this tag, from any peer.  Bits that are set in
    /// `ignore` do not matter.
    pub fn trecv(local: impl Into<Local<'a>>, tag: u64, ignore: u64) -> Self {
        Self::new(abi::KFABRIC_OP_TRECV, local.into(), FiAddr::UNSPEC).tag(tag, ignore)
    }

    /// Looks whether there is a message with this tag.  The completion reports
    /// it; if there is none, it is an error entry with `ENOMSG`.  With
    /// [`OpFlags::CLAIM`] the message is kept for a [`trecv`](Op::trecv) with
    /// that flag and the same context, with [`OpFlags::DISCARD`] it is dropped.
    pub fn tpeek(tag: u64, ignore: u64) -> Self {
        Self::trecv(Local::empty(), tag, ignore).flags(OpFlags::PEEK)
    }

    /// Reads a peer's memory into `local`.
    pub fn read(peer: FiAddr, local: impl Into<Local<'a>>, remote: Remote) -> Self {
        Self::new(abi::KFABRIC_OP_READ, local.into(), peer).remote(remote)
    }

    /// Writes `local` to a peer's memory.
    pub fn write(peer: FiAddr, local: impl Into<Local<'a>>, remote: Remote) -> Self {
        Self::new(abi::KFABRIC_OP_WRITE, local.into(), peer).remote(remote)
    }

    /// Reads the memory of a tagged receive that the peer has posted, from byte
    /// `offset` on.
    ///
    /// The receive is matched as by a message with this tag, and completes.  The
    /// operation does not wait for one: it fails with `EREMOTEIO` if there is
    /// none.  Both endpoints need [`Caps::TAGGED_RMA`](crate::Caps::TAGGED_RMA).
    pub fn tread(peer: FiAddr, local: impl Into<Local<'a>>, tag: u64, offset: u64) -> Self {
        Self::read(peer, local, Remote::new(offset, tag)).flags(OpFlags::TAGGED)
    }

    /// Writes to the memory of a tagged receive that the peer has posted, as
    /// [`Op::tread`].
    pub fn twrite(peer: FiAddr, local: impl Into<Local<'a>>, tag: u64, offset: u64) -> Self {
        Self::write(peer, local, Remote::new(offset, tag)).flags(OpFlags::TAGGED)
    }

    /// Sends a short message whose bytes are copied at once
    /// ([`Query::inject_size`](crate::Query::inject_size) says how many can
    /// be).
    ///
    /// Its success makes no CQ entry, though counters count it, unless it has
    /// [`OpFlags::COMPLETION`].
    pub fn inject(peer: FiAddr, bytes: &'a [u8]) -> Self {
        Self::send(peer, Local::injected(bytes)).flags(OpFlags::INJECT)
    }

    /// Sends a short tagged message, as [`Op::inject`].
    pub fn tinject(peer: FiAddr, bytes: &'a [u8], tag: u64) -> Self {
        Self::tsend(peer, Local::injected(bytes), tag).flags(OpFlags::INJECT)
    }

    /// Writes a few bytes to a peer's memory, as [`Op::inject`].
    pub fn inject_write(peer: FiAddr, bytes: &'a [u8], remote: Remote) -> Self {
        Self::write(peer, Local::injected(bytes), remote).flags(OpFlags::INJECT)
    }

    /// The number that the completion returns.
    pub fn context(mut self, context: u64) -> Self {
        self.raw.context = context;
        self
    }

    /// Adds flags.
    pub fn flags(mut self, flags: OpFlags) -> Self {
        self.raw.flags |= flags.bits();
        self
    }

    /// Sends a number along to the peer's CQ (remote CQ data).
    pub fn data(mut self, data: u64) -> Self {
        self.raw.data = data;
        self.flags(OpFlags::REMOTE_CQ_DATA)
    }

    /// Starts the operation when the success value of `cntr` has reached
    /// `threshold` (`KFI_TRIGGER`), or at once if it has.
    ///
    /// The endpoint needs [`Caps::TRIGGER`](crate::Caps::TRIGGER), and the
    /// counter belongs to its domain.  Until the operation starts, both are in
    /// use.  [`Endpoint::cancel`](crate::Endpoint::cancel) cancels it.
    ///
    /// ```no_run
    /// # fn f(domain: kfi::Domain, ep: kfi::Endpoint, peer: kfi::FiAddr) -> kfi::Result<()> {
    /// use kfi::{Buffer, Op};
    ///
    /// let (arrived, answer) = (domain.cntr().open()?, Buffer::from_bytes(b"all here")?);
    /// ep.post_one(&Op::send(peer, &answer).trigger(&arrived, 3))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn trigger(self, cntr: &Cntr, threshold: u64) -> Self {
        self.condition(cntr, threshold).flags(OpFlags::TRIGGER)
    }

    /// Names the counter and the threshold without the flag: for an endpoint or
    /// an alias that has [`OpFlags::TRIGGER`] as a default flag, all of whose
    /// operations wait for the counter that they name.
    ///
    /// An operation that has a condition, but neither the flag nor the default
    /// flag, is refused with `EINVAL`.
    ///
    /// ```no_run
    /// # fn f(domain: kfi::Domain, ep: kfi::Endpoint, peer: kfi::FiAddr) -> kfi::Result<()> {
    /// use kfi::{Buffer, Op, OpFlags};
    ///
    /// let (arrived, answer) = (domain.cntr().open()?, Buffer::from_bytes(b"all here")?);
    /// let later = ep.alias(OpFlags::TRIGGER, OpFlags::empty())?;
    /// later.post_one(&Op::send(peer, &answer).condition(&arrived, 3))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn condition(mut self, cntr: &Cntr, threshold: u64) -> Self {
        self.raw.trigger_event = abi::KFI_TRIGGER_THRESHOLD;
        self.raw.trigger_cntr = cntr.handle();
        self.raw.threshold = threshold;
        self
    }

    /// Uses exactly these flags, without the endpoint's defaults.
    pub fn explicit(mut self) -> Self {
        self.raw.control |= abi::KFABRIC_OP_EXPLICIT;
        self
    }

    /// Receives from this peer only; needs
    /// [`Caps::DIRECTED_RECV`](crate::Caps::DIRECTED_RECV).
    pub fn from(mut self, peer: FiAddr) -> Self {
        self.raw.peer = peer.0;
        self
    }

    /// A list of places in the peer's memory, instead of one.
    pub fn remote_iov(mut self, list: &'a [RmaIov]) -> Self {
        self.raw.rma_addr = match list {
            [] => 0,
            list => list.as_ptr().expose_provenance() as u64,
        };
        self.raw.rma_iov_count = u32::try_from(list.len()).unwrap_or(u32::MAX);
        self.raw.rma_key = 0;
        self
    }

    fn remote(mut self, remote: Remote) -> Self {
        self.raw.rma_addr = remote.addr;
        self.raw.rma_key = remote.key;
        self
    }

    fn tag(mut self, tag: u64, ignore: u64) -> Self {
        self.raw.tag = tag;
        self.raw.ignore = ignore;
        self
    }

    /// The structure of the interface, to look at.
    pub fn raw(&self) -> &abi::kfabric_op {
        &self.raw
    }
}

impl fmt::Debug for Op<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.raw.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_layout_of_the_interface() {
        assert_eq!(size_of::<Op<'_>>(), size_of::<abi::kfabric_op>());
        assert_eq!(size_of::<IoVec<'_>>(), size_of::<abi::kfabric_iov>());
        assert_eq!(size_of::<RmaIov>(), size_of::<abi::kfabric_rma_iov>());
        assert_eq!(size_of::<FiAddr>(), 8);
    }

    #[test]
    fn every_kind_fills_its_fields() {
        let buffer = Buffer::new(16).unwrap();
        let raw = *Op::send(FiAddr(3), &buffer).context(9).raw();
        assert_eq!(
            raw,
            abi::kfabric_op {
                opcode: abi::KFABRIC_OP_SEND,
                buf: buffer.addr(),
                len: 16,
                peer: 3,
                context: 9,
                ..Default::default()
            }
        );
        let raw = *Op::recv(buffer.slice(4..6)).raw();
        assert_eq!(
            (raw.opcode, raw.buf, raw.len),
            (abi::KFABRIC_OP_RECV, buffer.addr() + 4, 2)
        );
        assert_eq!(raw.peer, abi::KFI_ADDR_UNSPEC);
        let raw = *Op::trecv(&buffer, 5, 6).from(FiAddr(2)).raw();
        assert_eq!(
            (raw.opcode, raw.tag, raw.ignore, raw.peer),
            (abi::KFABRIC_OP_TRECV, 5, 6, 2)
        );
        let raw = *Op::read(FiAddr(1), &buffer, Remote::new(64, 77)).raw();
        assert_eq!(
            (raw.opcode, raw.rma_addr, raw.rma_key),
            (abi::KFABRIC_OP_READ, 64, 77)
        );
        assert_eq!(
            Op::write(FiAddr(1), &buffer, Remote::default())
                .raw()
                .opcode,
            abi::KFABRIC_OP_WRITE
        );
        let raw = *Op::twrite(FiAddr(1), &buffer, 77, 5).raw();
        assert_eq!(
            (raw.opcode, raw.flags, raw.rma_addr, raw.rma_key),
            (abi::KFABRIC_OP_WRITE, abi::KFI_TAGGED, 5, 77)
        );
        let raw = *Op::tread(FiAddr(1), &buffer, 77, 5).raw();
        assert_eq!(
            (raw.opcode, raw.flags, raw.rma_addr, raw.rma_key),
            (abi::KFABRIC_OP_READ, abi::KFI_TAGGED, 5, 77)
        );
        assert_eq!(
            Op::tsend(FiAddr(1), &buffer, 8).raw().opcode,
            abi::KFABRIC_OP_TSEND
        );
    }

    #[test]
    fn flags_add_up() {
        let raw = *Op::inject(FiAddr(0), b"abc")
            .flags(OpFlags::COMPLETION)
            .data(5)
            .explicit()
            .raw();
        assert_eq!(
            raw.flags,
            abi::KFI_INJECT | abi::KFI_COMPLETION | abi::KFI_REMOTE_CQ_DATA
        );
        assert_eq!(
            (raw.len, raw.data, raw.control),
            (3, 5, abi::KFABRIC_OP_EXPLICIT)
        );
        assert_eq!(Op::tpeek(1, 0).raw().flags, abi::KFI_PEEK);
        assert_eq!(
            Op::multi_recv(Local::empty()).raw().flags,
            abi::KFI_MULTI_RECV
        );
    }

    #[test]
    fn lists_of_memory_are_passed_by_address() {
        let buffer = Buffer::new(16).unwrap();
        let list = [buffer.slice(..4).into(), IoVec::from(buffer.slice(8..))];
        let raw = *Op::send(FiAddr(0), &list).raw();
        assert_eq!(
            (raw.buf, raw.iov_count, raw.len),
            (list.as_ptr().addr() as u64, 2, 0)
        );
        let none: [IoVec<'_>; 0] = [];
        let raw = *Op::send(FiAddr(0), &none).raw();
        assert_eq!((raw.buf, raw.iov_count, raw.len), (0, 0, 0));
        let remote = [RmaIov::new(Remote::new(1, 2), 3)];
        let raw = *Op::read(FiAddr(0), &buffer, Remote::new(9, 9))
            .remote_iov(&remote)
            .raw();
        assert_eq!((raw.rma_iov_count, raw.rma_key), (1, 0));
        assert_eq!(raw.rma_addr, remote.as_ptr().addr() as u64);
    }

    #[test]
    fn a_slice_of_a_region_names_the_region() {
        let buffer = Buffer::new(16).unwrap();
        let slice = buffer.slice(2..).of_region(12);
        assert_eq!(Op::send(FiAddr(0), slice).raw().mr, 12);
    }
}
