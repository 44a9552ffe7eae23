// SPDX-License-Identifier: GPL-2.0

//! Naming bytes, and moving them.
//!
//! [`MemRef`] names bytes that can be kept and written: a part of memory of any kind
//! (see [`backing`](super::backing)). It is small and cheap to clone; a part of it
//! is another one, without an allocation.  [`Source`] names what a transmit
//! reads: a `MemRef`, or [`Inline`] bytes that were copied in when the operation
//! was posted (injected and small messages). Those stay where they were copied
//! to, with who posts, and are gone when posting is over; [`Source::keep`] makes
//! something of either that lasts.
//!
//! [`copy`] moves bytes between two of them: the longest runs that both sides
//! have, one C copy each. It cannot fail: what could go wrong was settled when the
//! memory was pinned, referenced, allocated or opened for access. Where two ranges overlap
//! at different positions, the bytes there are unspecified afterwards; a range
//! copied onto itself stays what it was.
//!
//! A program may change its memory during a copy; then some mixture arrives.

use super::{
    backing::Backing,
    pinned::{
        Access,
        Pinned,
        UserRange, //
    },
    segments::Cursor, //
};
use crate::shim::{
    bindings as shim,
    sched,
    user, //
};
use core::mem::MaybeUninit;
use kernel::{
    prelude::*,
    sync::Arc,
    uaccess::UserPtr, //
};

/// Bytes that [`Inline`] holds: what `KFI_INJECT` can carry.
pub(crate) const INLINE_MAX: usize = shim::KFABRIC_INJECT_SIZE as usize;

/// Bytes that are copied before others may run.
const RESCHED_BYTES: usize = 1 << 20;

/// What a run of bytes counts as at least, so that others may run after so many runs as well.
const RUN_BYTES: usize = 256;

/// A range of bytes that can be kept, and written if it is [`writable`](Self::writable).
///
/// **Dropping the last reference may sleep**: a `MemRef` is
/// never dropped under a spinlock, nor outside process context.
///
/// # Invariants
///
/// `offset + len` is at most the length of `backing`, 0 without one.
#[derive(Clone)]
pub(crate) struct MemRef {
    backing: Option<Arc<Backing>>,
    offset: usize,
    len: usize,
}

// The tables of posted receives hold one per entry.
kernel::static_assert!(size_of::<MemRef>() <= 24);

impl MemRef {
    /// No bytes.
    pub(crate) const fn empty() -> Self {
        // INVARIANT: 0 + 0 is 0.
        Self {
            backing: None,
            offset: 0,
            len: 0,
        }
    }

    /// All of `backing`.
    #[inline]
    pub(super) fn new(backing: Arc<Backing>) -> Self {
        // INVARIANT: The length is that of the memory.
        Self {
            offset: 0,
            len: backing.len(),
            backing: Some(backing),
        }
    }

    /// All of pinned memory.
    #[inline]
    pub(crate) fn pinned(pinned: Pinned) -> Self {
        Self::new(pinned.into_backing())
    }

    /// The bytes of `parts`, one after the other, which are kept: writable if all of them are. A part may
    /// be there several times, and be a gather list itself.
    ///
    /// Process context, may sleep.
    ///
    /// # Errors
    ///
    /// `E2BIG` too many segments, `EINVAL` too many bytes (see
    /// [`SEGMENTS_MAX`](super::segments::SEGMENTS_MAX), [`PINNED_MAX`](super::pinned::PINNED_MAX)); `ENOMEM`.
    pub(crate) fn gather(parts: &[Self]) -> Result<Self> {
        Backing::gather(parts).map(Self::new)
    }

    /// A new buffer of `len` bytes, zero, charged to the current memory control
    /// group.
    ///
    /// Process context, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    #[cfg(kfi_kunit)]
    pub(crate) fn buffer(len: usize) -> Result<Self> {
        let buffer = Self::buffer_unset(len)?;
        fill(&buffer, 0);
        Ok(buffer)
    }

    /// A buffer of `len` bytes for a message that is coming in: all of them are to be set before
    /// anybody reads them. Charged to the current memory control group.
    ///
    /// Process context, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn to_be_filled(len: usize) -> Result<Self> {
        Self::buffer_unset(len)
    }

    /// A buffer whose bytes are yet to be set, all of them.
    fn buffer_unset(len: usize) -> Result<Self> {
        if len == 0 {
            return Ok(Self::empty());
        }
        // Whoever is charged may be somebody else, who is not to suffer from it: see
        // `kfabric_shim_buffer_alloc`. This much is there, or the message waits.
        let flags = (GFP_KERNEL_ACCOUNT & !GFP_KERNEL) | GFP_NOWAIT;
        Backing::buffer(len, flags).map(Self::new)
    }

    /// Bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether it may be the target of a copy.
    #[inline]
    pub(crate) fn writable(&self) -> bool {
        match &self.backing {
            None => true,
            Some(backing) => backing.access() == Access::Write,
        }
    }

    /// What is behind it, and keeps the bytes.
    pub(super) fn backing(&self) -> Option<&Backing> {
        self.backing.as_deref()
    }

    /// Bytes of kernel memory that its lists take.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.backing().map_or(0, Backing::heap_bytes)
    }

    /// Notes that the memory is about to be written, or was.
    #[inline]
    pub(super) fn mark_written(&self) {
        if let Some(backing) = &self.backing {
            backing.mark_written();
        }
    }

    /// The part of `len` bytes at `offset`, as much of it as there is.
    #[inline(always)]
    pub(crate) fn slice(&self, offset: usize, len: usize) -> Self {
        let offset = offset.min(self.len);
        // INVARIANT: Within the range of `self`, which is within the memory.
        Self {
            backing: self.backing.clone(),
            offset: self.offset + offset,
            len: len.min(self.len - offset),
        }
    }

    /// Copies all bytes into a new buffer.
    ///
    /// Process context, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    #[cfg(kfi_kunit)]
    pub(crate) fn to_buffer(&self) -> Result<Self> {
        let buffer = Self::buffer_unset(self.len)?;
        copy_mem(&buffer, self);
        Ok(buffer)
    }

    /// A cursor at byte `skip`.
    #[inline(always)]
    pub(super) fn cursor(&self, skip: usize) -> Cursor<'_> {
        let skip = skip.min(self.len);
        let (offset, len) = (self.offset + skip, self.len - skip);
        match &self.backing {
            None => Cursor::flat(core::ptr::null_mut(), 0),
            Some(backing) => Cursor::segments(backing.segments(), offset, len),
        }
    }

    /// A cursor at byte `skip` for writing, if that is allowed.
    #[inline(always)]
    pub(super) fn cursor_mut(&self, skip: usize) -> Option<Cursor<'_>> {
        // Whoever got here without the right to write has a bug.
        if kernel::warn_on!(!self.writable()) {
            return None;
        }
        self.mark_written();
        Some(self.cursor(skip))
    }
}

/// Up to [`INLINE_MAX`] bytes, and room for so many: who posts operations has
/// one, and fills it anew for each.
///
/// # Invariants
///
/// The first `len` of `bytes` are initialized.
pub(crate) struct Inline {
    bytes: [MaybeUninit<u8>; INLINE_MAX],
    len: usize,
}

impl Inline {
    /// No bytes.
    pub(crate) const fn new() -> Self {
        // INVARIANT: None.
        Self {
            bytes: [MaybeUninit::uninit(); INLINE_MAX],
            len: 0,
        }
    }

    /// Replaces the bytes by those of `ranges` of the current process, end to
    /// end.
    ///
    /// Process context, may sleep.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` more than [`INLINE_MAX`] bytes; `EFAULT`.
    pub(crate) fn read_user(&mut self, ranges: &[UserRange]) -> Result {
        self.len = 0;
        ranges.iter().try_for_each(|range| self.append(range))
    }

    /// [`read_user`](Self::read_user) of one range.
    #[inline]
    pub(crate) fn read_one(&mut self, range: &UserRange) -> Result {
        self.len = 0;
        self.append(range)
    }

    #[inline]
    fn append(&mut self, range: &UserRange) -> Result {
        let len = usize::try_from(range.len).map_err(|_| EMSGSIZE)?;
        let end = self.len.checked_add(len).ok_or(EMSGSIZE)?;
        let room = self.bytes.get_mut(self.len..end).ok_or(EMSGSIZE)?;
        if len > 0 {
            user::read_bytes(UserPtr::from_addr(usize::try_from(range.addr)?), room)?;
        }
        // INVARIANT: Read until there.
        self.len = end;
        Ok(())
    }

    /// A copy of `bytes`; `None` if they are too many.
    pub(crate) fn from_slice(bytes: &[u8]) -> Option<Self> {
        let mut inline = Self::new();
        for (to, from) in inline.bytes.get_mut(..bytes.len())?.iter_mut().zip(bytes) {
            to.write(*from);
        }
        // INVARIANT: Written until there.
        inline.len = bytes.len();
        Some(inline)
    }

    /// The bytes.
    #[inline]
    pub(crate) fn as_slice(&self) -> &[u8] {
        let bytes = self.bytes.get(..self.len).unwrap_or_default();
        // SAFETY: Initialized, by the type invariants.
        unsafe { core::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len()) }
    }
}

/// What a transmit reads.
pub(crate) enum Source<'a> {
    /// Bytes that were taken when the operation was posted.
    Inline(&'a Inline),
    /// Memory that is read when the bytes are needed.
    Mem(MemRef),
}

impl Source<'_> {
    /// Bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Inline(inline) => inline.len,
            Self::Mem(mem) => mem.len(),
        }
    }

    /// Copies all bytes into a new buffer, for a message that nobody waits for
    /// yet.
    ///
    /// Process context, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn to_buffer(&self) -> Result<MemRef> {
        let buffer = MemRef::buffer_unset(self.len())?;
        copy(&buffer, self);
        Ok(buffer)
    }

    /// Memory with these bytes that lasts: the memory itself, or a copy of what
    /// was taken along.
    ///
    /// Process context, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn keep(&self) -> Result<MemRef> {
        match self {
            Self::Inline(_) => self.to_buffer(),
            Self::Mem(mem) => Ok(mem.clone()),
        }
    }

    /// A cursor at byte `skip`.
    #[inline(always)]
    pub(super) fn cursor(&self, skip: usize) -> Cursor<'_> {
        match self {
            Self::Inline(inline) => {
                let bytes = inline.as_slice().get(skip..).unwrap_or_default();
                Cursor::flat(bytes.as_ptr().cast_mut(), bytes.len())
            }
            Self::Mem(mem) => mem.cursor(skip),
        }
    }
}

/// Copies `src` to `dst`, as many bytes as the shorter of the two has, and
/// returns how many. Nothing if `dst` is not writable.
///
/// Process context, no spinlock held: others may run in between.
#[inline(always)]
pub(crate) fn copy(dst: &MemRef, src: &Source<'_>) -> usize {
    copy_part(dst, src, 0)
}

/// Copies `src` from byte `skip` on to `dst`; else as [`copy`].
#[inline(always)]
pub(crate) fn copy_part(dst: &MemRef, src: &Source<'_>, skip: usize) -> usize {
    dst.cursor_mut(0)
        .map_or(0, |dst| run(dst, src.cursor(skip)))
}

/// Copies between two ranges; else as [`copy`].
#[inline]
pub(crate) fn copy_mem(dst: &MemRef, src: &MemRef) -> usize {
    dst.cursor_mut(0).map_or(0, |dst| run(dst, src.cursor(0)))
}

/// All copies. Most messages are one piece at both ends.
#[inline(always)]
fn run(dst: Cursor<'_>, src: Cursor<'_>) -> usize {
    let total = dst.left().min(src.left());
    if total <= dst.here().min(src.here()).min(RESCHED_BYTES) {
        // SAFETY: As in `run_pieces`.
        unsafe { shim::kfabric_shim_copy(dst.addr().cast(), src.addr().cast(), total) };
        return total;
    }
    run_pieces(dst, src, total)
}

/// Copies piece by piece.
#[inline(never)]
fn run_pieces(mut dst: Cursor<'_>, mut src: Cursor<'_>, total: usize) -> usize {
    let mut left = total;
    let mut since_resched = 0;
    while left > 0 {
        let len = dst.here().min(src.here()).min(left).min(RESCHED_BYTES);
        // SAFETY: By the invariants of `Cursor` both point to at least `len` bytes of memory that
        // stays; that of `dst` is writable, as `cursor_mut` gave it. It may be changed by others
        // meanwhile, which is why this is done in C.
        unsafe { shim::kfabric_shim_copy(dst.addr().cast(), src.addr().cast(), len) };
        dst.advance(len);
        src.advance(len);
        left -= len;
        since_resched += len.max(RUN_BYTES);
        if since_resched >= RESCHED_BYTES && left > 0 {
            since_resched = 0;
            sched::cond_resched();
        }
    }
    total
}

/// Sets all bytes of `dst`, if it is writable.
///
/// Process context, no spinlock held.
#[cfg(kfi_kunit)]
pub(crate) fn fill(dst: &MemRef, byte: u8) {
    let Some(mut dst) = dst.cursor_mut(0) else {
        return;
    };
    while dst.left() > 0 {
        let len = dst.here().min(RESCHED_BYTES);
        // SAFETY: As in `run`.
        unsafe { shim::kfabric_shim_fill(dst.addr().cast(), byte, len) };
        dst.advance(len);
        sched::cond_resched();
    }
}

/// Whether two ranges have the same bytes, and as many.
///
/// Process context, no spinlock held.
#[cfg(kfi_kunit)]
pub(crate) fn equal(a: &MemRef, b: &MemRef) -> bool {
    let (mut a, mut b) = (a.cursor(0), b.cursor(0));
    if a.left() != b.left() {
        return false;
    }
    while a.left() > 0 {
        let len = a.here().min(b.here()).min(RESCHED_BYTES);
        // SAFETY: As in `run`; both are read only.
        if !unsafe { shim::kfabric_shim_equal(a.addr().cast(), b.addr().cast(), len) } {
            return false;
        }
        a.advance(len);
        b.advance(len);
        sched::cond_resched();
    }
    true
}
