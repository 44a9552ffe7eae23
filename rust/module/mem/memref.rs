// SPDX-License-Identifier: GPL-2.0

//! References to memory, and copying.
//!
//! A [`MemRef`] is a reference to a range of bytes of memory of any kind (see
//! [`backing`](super::backing)). It is small and cheap to clone. A part of it is another `MemRef`,
//! without an allocation. A [`Source`] has the bytes that a transmit operation reads: a `MemRef`,
//! or [`Inline`] bytes that were copied when the operation was posted (injected and small
//! messages). The caller that posts owns the inline bytes, and they are gone when it has finished
//! posting; [`Source::own`] turns either kind into a `MemRef` that lasts.
//!
//! [`copy`] copies bytes, with one call of C for each run that is contiguous on both sides. It
//! cannot fail: everything that can fail happens when the memory is pinned, referenced, allocated
//! or opened for access. If two ranges overlap at different positions, the overlapping bytes are
//! unspecified afterwards. A range that is copied onto itself does not change.
//!
//! A program may change its memory during a copy; then the destination gets a mixture of old and
//! new bytes.

use super::{
    backing::Backing,
    budget::Budget,
    pinned::{
        Access,
        Pinned,
        UserRange,
        PINNED_MAX, //
    },
    segments::{
        nowait_flags,
        Cursor, //
    }, //
};
use crate::shim::{
    bindings as shim,
    memory::kmalloc_size,
    sched,
    user, //
};
use core::mem::MaybeUninit;
use kernel::{
    prelude::*,
    sync::Arc,
    uaccess::UserPtr, //
};

/// Bytes that [`Inline`] can hold: as many as `KFI_INJECT` can send.
pub(crate) const INLINE_MAX: usize = shim::KFABRIC_INJECT_SIZE as usize;

/// Bytes that are copied between two calls of `cond_resched()`.
const RESCHED_BYTES: usize = 1 << 20;

/// The least that a run counts towards [`RESCHED_BYTES`], so that many short runs are interrupted
/// too.
const RUN_BYTES: usize = 256;

/// A reference to a range of bytes, which are writable if [`writable`](Self::writable) says so.
///
/// **Dropping the last reference may sleep**: do it in process context, with no spin lock held. For
/// exceptions see [`Backing`].
///
/// # Invariants
///
/// `offset + len` is at most the length of `backing`; both are 0 without a backing.
#[derive(Clone)]
pub(crate) struct MemRef {
    backing: Option<Arc<Backing>>,
    offset: usize,
    len: usize,
}

// The tables of posted receives have one in each entry.
kernel::static_assert!(size_of::<MemRef>() <= 24);

/// Memory that is not used any more and is only kept until a context that may sleep drops it.
pub(crate) struct Kept {
    _backing: Option<Arc<Backing>>,
}

impl Kept {
    /// No memory.
    pub(crate) const fn nothing() -> Self {
        Self { _backing: None }
    }
}

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
        // INVARIANT: The length is that of `backing`.
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

    /// The bytes of `parts`, concatenated; writable if all parts are. The result keeps the parts. A
    /// part may occur several times, and may be a gather list itself. Sleeps. Fails with `E2BIG`
    /// for more than [`SEGMENTS_MAX`](super::segments::SEGMENTS_MAX) segments; `EINVAL` for more
    /// than [`PINNED_MAX`] bytes; `ENOMEM`.
    pub(crate) fn gather(parts: &[Self]) -> Result<Self> {
        Self::gather_up_to(PINNED_MAX, parts)
    }

    /// The same as [`gather`](Self::gather), with a limit of `most` bytes.
    pub(crate) fn gather_up_to(most: usize, parts: &[Self]) -> Result<Self> {
        Backing::gather(most, parts).map(Self::new)
    }

    /// A new buffer of `len` zero bytes, charged to the current memory control group. Fails with
    /// `ENOMEM`. Sleeps.
    #[cfg(kfi_kunit)]
    pub(crate) fn buffer(len: usize) -> Result<Self> {
        let buffer = Self::to_be_filled(len, true)?;
        fill(&buffer, 0);
        Ok(buffer)
    }

    /// A buffer of `len` bytes for an incoming message, charged to the current memory control
    /// group. The caller sets all bytes before anything reads them. Fails with `ENOMEM`. Process
    /// context with `may_sleep`, otherwise any context.
    pub(crate) fn to_be_filled(len: usize, may_sleep: bool) -> Result<Self> {
        if len == 0 {
            return Ok(Self::empty());
        }
        Backing::buffer(len, nowait_flags(), may_sleep).map(Self::new)
    }

    /// The same for a message that its receiver keeps, and that can stay with its sender otherwise.
    /// The current task may be the sender's while the memory control group is the receiver's: the
    /// task reclaims little memory of it. Fails with `ENOMEM`. Sleeps.
    pub(crate) fn to_be_kept(len: usize) -> Result<Self> {
        if len == 0 {
            return Ok(Self::empty());
        }
        Backing::message(len, nowait_flags()).map(Self::new)
    }

    /// Bytes of kernel memory that the buffer of a message of `len` bytes takes. Any context.
    pub(crate) fn kept_bytes(len: u64) -> u64 {
        // With the reference count, as the allocator rounds both.
        const BACKING: usize = (size_of::<Backing>() + size_of::<usize>()).next_multiple_of(64);
        match len {
            0 => 0,
            _ => (kmalloc_size(len as usize) + BACKING) as u64,
        }
    }

    /// Length in bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether a copy may write to it.
    #[inline]
    pub(crate) fn writable(&self) -> bool {
        match &self.backing {
            None => true,
            Some(backing) => backing.access() == Access::Write,
        }
    }

    /// The memory that it refers to; `None` for no bytes.
    pub(super) fn backing(&self) -> Option<&Backing> {
        self.backing.as_deref()
    }

    /// Bytes of kernel memory that its lists use.
    #[cfg(kfi_kunit)]
    pub(crate) fn heap_bytes(&self) -> usize {
        self.backing().map_or(0, Backing::heap_bytes)
    }

    /// Charges `budget` for its lists as long as they live, unless they are charged: for a region,
    /// or an operation that does not end in its call. Fails with `ENOMEM`. Any context. The memory
    /// is dropped in process context afterwards, or while the caller has the budget.
    #[inline(always)]
    pub(crate) fn charge_lists(&self, budget: &Budget) -> Result {
        match self.backing() {
            Some(backing) => backing.charge_lists(budget),
            None => Ok(()),
        }
    }

    /// The part of `len` bytes at `offset`, clipped to the range.
    #[inline(always)]
    pub(crate) fn slice(&self, offset: usize, len: usize) -> Self {
        let offset = offset.min(self.len);
        // INVARIANT: Within the range of `self`, which lies within `backing`.
        Self {
            backing: self.backing.clone(),
            offset: self.offset + offset,
            len: len.min(self.len - offset),
        }
    }

    /// Takes the reference, and leaves no bytes. Any context.
    #[inline]
    pub(crate) fn take(&mut self) -> Self {
        core::mem::replace(self, Self::empty())
    }

    /// Copies all bytes to a new buffer. Fails with `ENOMEM`. Sleeps.
    #[cfg(kfi_kunit)]
    pub(crate) fn to_buffer(&self) -> Result<Self> {
        let buffer = Self::to_be_filled(self.len, true)?;
        copy_mem(&buffer, self);
        Ok(buffer)
    }

    /// Takes the memory that it refers to, and leaves no bytes. Any context.
    pub(super) fn take_backing(&mut self) -> Option<Arc<Backing>> {
        self.take().backing
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

    /// A cursor at byte `skip` for writing; `None` if the memory is not writable.
    #[inline(always)]
    pub(super) fn cursor_mut(&self, skip: usize) -> Option<Cursor<'_>> {
        // A caller that gets here without the right to write has a bug.
        if kernel::warn_on!(!self.writable()) {
            return None;
        }
        Some(self.cursor(skip))
    }
}

/// Up to [`INLINE_MAX`] bytes, stored in place. A caller that posts operations has one and fills it
/// again for each of them.
///
/// # Invariants
///
/// The first `len` of `bytes` are initialized.
// With `len` behind `bytes`, the compiler would write zeros to both to make one of no bytes.
#[repr(C)]
pub(crate) struct Inline {
    len: usize,
    bytes: [MaybeUninit<u8>; INLINE_MAX],
}

impl Inline {
    /// No bytes.
    pub(crate) const fn new() -> Self {
        // INVARIANT: `len` is 0.
        Self {
            len: 0,
            bytes: [MaybeUninit::uninit(); INLINE_MAX],
        }
    }

    /// Replaces the bytes by those of `ranges` of the current process, concatenated. Sleeps. Fails
    /// with `EMSGSIZE` for more than [`INLINE_MAX`] bytes; `EFAULT`.
    pub(crate) fn read_user(&mut self, ranges: &[UserRange]) -> Result {
        self.len = 0;
        ranges.iter().try_for_each(|range| self.append(range))
    }

    /// The same as [`read_user`](Self::read_user) with one range.
    #[inline]
    pub(crate) fn read_one(&mut self, range: &UserRange) -> Result {
        self.len = 0;
        self.append(range)
    }

    /// Adds a range of the current process. Fails as [`read_user`](Self::read_user); then nothing
    /// was added. Sleeps.
    #[inline]
    pub(crate) fn append(&mut self, range: &UserRange) -> Result {
        let len = usize::try_from(range.len).map_err(|_| EMSGSIZE)?;
        let end = self.len.checked_add(len).ok_or(EMSGSIZE)?;
        let room = self.bytes.get_mut(self.len..end).ok_or(EMSGSIZE)?;
        if len > 0 {
            user::read_bytes(UserPtr::from_addr(usize::try_from(range.addr)?), room)?;
        }
        // INVARIANT: The bytes up to `end` were just read.
        self.len = end;
        Ok(())
    }

    /// Adds `len` bytes at a kernel address. Fails with `EMSGSIZE` if there would be more than
    /// [`INLINE_MAX`]; then nothing was added. Any context.
    ///
    /// # Safety
    ///
    /// The bytes can be read.
    pub(crate) unsafe fn append_kernel(&mut self, addr: *const u8, len: usize) -> Result {
        let end = self.len.checked_add(len).ok_or(EMSGSIZE)?;
        let room = self.bytes.get_mut(self.len..end).ok_or(EMSGSIZE)?;
        // SAFETY: There is room for `len` bytes, and by the requirement they can be read. Others
        // may change them during the copy, which is why C does it.
        unsafe { shim::kfabric_shim_copy(room.as_mut_ptr().cast(), addr.cast(), len) };
        // INVARIANT: The bytes up to `end` were just copied.
        self.len = end;
        Ok(())
    }

    /// A copy of `bytes`; `None` if there are more than [`INLINE_MAX`].
    pub(crate) fn from_slice(bytes: &[u8]) -> Option<Self> {
        let mut inline = Self::new();
        for (to, from) in inline.bytes.get_mut(..bytes.len())?.iter_mut().zip(bytes) {
            to.write(*from);
        }
        // INVARIANT: The first `bytes.len()` were just written.
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

/// The bytes that a transmit operation reads.
pub(crate) enum Source<'a> {
    /// Bytes that were copied when the operation was posted.
    Inline(&'a Inline),
    /// Memory that is read when the bytes are needed.
    Mem(MemRef),
}

impl Source<'_> {
    /// Length in bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Inline(inline) => inline.len,
            Self::Mem(mem) => mem.len(),
        }
    }

    /// The memory that is read when the bytes are needed; `None` for bytes that were copied.
    pub(crate) fn memory(&self) -> Option<&MemRef> {
        match self {
            Self::Inline(_) => None,
            Self::Mem(mem) => Some(mem),
        }
    }

    /// The first 8 bytes as a word; 0 in the place of bytes that are not there.
    pub(crate) fn word(&self) -> u64 {
        let mut bytes = [0; size_of::<u64>()];
        let mut rest = bytes.as_mut_slice();
        let mut from = self.cursor(0);
        while !rest.is_empty() && from.left() > 0 {
            let piece = from.here().min(rest.len());
            // SAFETY: The cursor's memory is valid for reads of `piece` bytes, `rest` for writes.
            // Others may change the former during the copy, which is why C does it.
            unsafe { shim::kfabric_shim_copy(rest.as_mut_ptr().cast(), from.addr().cast(), piece) };
            from.advance(piece);
            rest = rest.get_mut(piece..).unwrap_or_default();
        }
        u64::from_ne_bytes(bytes)
    }

    /// Copies all bytes to a new buffer, for a message that no receive was posted for yet. Fails
    /// with `ENOMEM`. Sleeps.
    pub(crate) fn to_buffer(&self) -> Result<MemRef> {
        let buffer = MemRef::to_be_kept(self.len())?;
        copy(&buffer, self);
        Ok(buffer)
    }

    /// Memory with these bytes that outlives the call that posts. Inline bytes are copied to it
    /// first. The reference stays here until the caller [takes](MemRef::take) it. Fails with
    /// `ENOMEM`. Process context with `may_sleep`, otherwise any context.
    pub(crate) fn own(&mut self, may_sleep: bool) -> Result<&mut MemRef> {
        if let Self::Inline(_) = self {
            self.copy_short(may_sleep)?;
        }
        match self {
            Self::Mem(mem) => Ok(mem),
            // Replaced above.
            Self::Inline(_) => Err(EINVAL),
        }
    }

    /// Replaces at most [`INLINE_MAX`] bytes by a copy of them, which no one else changes, and
    /// returns the memory that they were in. Process context with `may_sleep`, otherwise any
    /// context. Fails with `EMSGSIZE` if there are more bytes; `ENOMEM`.
    pub(crate) fn copy_short(&mut self, may_sleep: bool) -> Result<Kept> {
        if self.len() > INLINE_MAX {
            return Err(EMSGSIZE);
        }
        let buffer = MemRef::to_be_filled(self.len(), may_sleep)?;
        // So few bytes are copied without a call of `cond_resched()`.
        copy(&buffer, self);
        match core::mem::replace(self, Self::Mem(buffer)) {
            Self::Mem(replaced) => Ok(Kept {
                _backing: replaced.backing,
            }),
            Self::Inline(_) => Ok(Kept::nothing()),
        }
    }

    /// Takes the memory that [`own`](Self::own) has made, and leaves no bytes. Any context.
    pub(crate) fn take_owned(&mut self) -> Source<'static> {
        match self {
            Self::Mem(mem) => Source::Mem(mem.take()),
            Self::Inline(_) => Source::Mem(MemRef::empty()),
        }
    }

    /// Drops the reference to the bytes, and leaves none. May sleep.
    #[inline]
    pub(crate) fn release(&mut self) {
        *self = Self::Mem(MemRef::empty());
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

/// Copies `src` to `dst`, as many bytes as the shorter one has, and returns their number. Copies
/// nothing if `dst` is not writable. Process context, no spin lock held: it calls `cond_resched()`.
#[inline(always)]
pub(crate) fn copy(dst: &MemRef, src: &Source<'_>) -> usize {
    copy_part(dst, src, 0)
}

/// Copies `src` from byte `skip` on to `dst`; otherwise as [`copy`].
#[inline(always)]
pub(crate) fn copy_part(dst: &MemRef, src: &Source<'_>, skip: usize) -> usize {
    dst.cursor_mut(0)
        .map_or(0, |dst| run(dst, src.cursor(skip)))
}

/// Copies between two ranges; otherwise as [`copy`].
#[inline]
pub(crate) fn copy_mem(dst: &MemRef, src: &MemRef) -> usize {
    dst.cursor_mut(0).map_or(0, |dst| run(dst, src.cursor(0)))
}

/// The common part of all copies. Most messages are contiguous on both sides.
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

/// Copies run by run.
#[inline(never)]
fn run_pieces(mut dst: Cursor<'_>, mut src: Cursor<'_>, total: usize) -> usize {
    let mut left = total;
    let mut since_resched = 0;
    while left > 0 {
        let len = dst.here().min(src.here()).min(left).min(RESCHED_BYTES);
        // SAFETY: By the invariants of `Cursor` both point to at least `len` bytes of memory that
        // stays valid, and that of `dst` is writable, because `cursor_mut` returned it. Others may
        // change the memory during the copy, which is why C does it.
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

/// Sets all bytes of `dst` to `byte`, if it is writable. Process context, no spin lock held.
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

/// Whether two ranges have the same length and the same bytes. Process context, no spin lock held.
#[cfg(kfi_kunit)]
pub(crate) fn equal(a: &MemRef, b: &MemRef) -> bool {
    let (mut a, mut b) = (a.cursor(0), b.cursor(0));
    if a.left() != b.left() {
        return false;
    }
    while a.left() > 0 {
        let len = a.here().min(b.here()).min(RESCHED_BYTES);
        // SAFETY: As in `run`; both are only read.
        if !unsafe { shim::kfabric_shim_equal(a.addr().cast(), b.addr().cast(), len) } {
            return false;
        }
        a.advance(len);
        b.advance(len);
        sched::cond_resched();
    }
    true
}
