// SPDX-License-Identifier: GPL-2.0

//! Naming bytes, and moving them.
//!
//! [`MemRef`] names bytes that can be kept and written: a part of pinned memory,
//! or of a buffer of the module's. It is small and cheap to clone; a part of it
//! is another one, without an allocation.  [`Source`] names what a transmit
//! reads: a `MemRef`, or [`Inline`] bytes that were copied in when the operation
//! was posted (injected and small messages). Those stay where they were copied
//! to, with who posts, and are gone when posting is over; [`Source::keep`] makes
//! something of either that lasts.
//!
//! Kernel consumers' memory (kvec, bvec, scatterlists, dma-buf) becomes further
//! variants of `Mem`; nobody outside this file sees the difference.
//!
//! [`copy`] moves bytes between two of them: the longest runs that both sides
//! have in the direct map, one C copy each. It cannot fail: what could go wrong
//! was settled when the memory was pinned or allocated. Where two ranges overlap
//! at different positions, the bytes there are unspecified afterwards; a range
//! copied onto itself stays what it was.
//!
//! A program may change its memory during a copy; then some mixture arrives.

use super::pinned::{
    Pinned,
    Segment,
    UserRange, //
};
use crate::shim::{
    bindings as shim,
    sched,
    user, //
};
use core::{
    ffi::c_void,
    mem::MaybeUninit,
    ptr::NonNull, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    uaccess::UserPtr, //
};

/// Bytes that [`Inline`] holds: what `KFI_INJECT` can carry.
pub(crate) const INLINE_MAX: usize = shim::KFABRIC_INJECT_SIZE as usize;

/// Bytes that are copied before others may run.
const RESCHED_BYTES: usize = 1 << 20;

/// A range of bytes that can be kept, and written if it is [`writable`](Self::writable).
///
/// **Dropping the last reference to pinned memory may sleep**: a `MemRef` is
/// never dropped under a spinlock, nor outside process context.
///
/// # Invariants
///
/// `offset + len` is at most the length of `mem`.
#[derive(Clone)]
pub(crate) struct MemRef {
    mem: Mem,
    offset: usize,
    len: usize,
}

/// The memory behind a [`MemRef`].
#[derive(Clone)]
enum Mem {
    None,
    Pinned(Arc<Pinned>),
    Buffer(Arc<Buffer>),
}

/// Kernel memory that is accessed by copying only: its bytes are never a slice.
///
/// # Invariants
///
/// `memory` is what `kfabric_shim_buffer_alloc` gave, and not freed.
struct Buffer {
    memory: NonNull<c_void>,
}

// SAFETY: The memory belongs to no thread; by the module's rules it is accessed by copying only, like
// the memory of a program, which may change at any time.
unsafe impl Send for Buffer {}
// SAFETY: As above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Memory for `len` bytes, charged to the current memory control group. `ENOMEM`. Sleeps.
    fn new(len: usize) -> Result<Self> {
        // SAFETY: Allocates; may sleep, as the caller may.
        let memory = unsafe { shim::kfabric_shim_buffer_alloc(len) };
        // INVARIANT: It was allocated just now.
        Ok(Self {
            memory: NonNull::new(memory).ok_or(ENOMEM)?,
        })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: By the type invariants; nobody refers to it any more.
        unsafe { shim::kfabric_shim_buffer_free(self.memory.as_ptr()) }
    }
}

// The tables of posted receives hold one per entry.
kernel::static_assert!(size_of::<MemRef>() <= 48);

impl MemRef {
    /// No bytes.
    pub(crate) const fn empty() -> Self {
        // INVARIANT: 0 + 0 is 0.
        Self {
            mem: Mem::None,
            offset: 0,
            len: 0,
        }
    }

    /// All of pinned memory.
    pub(crate) fn pinned(pinned: Arc<Pinned>) -> Self {
        // INVARIANT: The length is that of the memory.
        Self {
            offset: 0,
            len: pinned.len(),
            mem: Mem::Pinned(pinned),
        }
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
        let buffer = Buffer::new(len)?;
        // Whoever is charged may be somebody else, who is not to suffer from it: see
        // `kfabric_shim_buffer_alloc`. This much is there, or the message waits.
        let flags = (GFP_KERNEL_ACCOUNT & !GFP_KERNEL) | GFP_NOWAIT;
        // INVARIANT: The length is that of the memory.
        Ok(Self {
            mem: Mem::Buffer(Arc::new(buffer, flags)?),
            offset: 0,
            len,
        })
    }

    /// Bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether it may be the target of a copy.
    #[inline]
    pub(crate) fn writable(&self) -> bool {
        match &self.mem {
            Mem::None | Mem::Buffer(_) => true,
            Mem::Pinned(pinned) => pinned.writable(),
        }
    }

    /// The part of `len` bytes at `offset`, as much of it as there is.
    #[inline(always)]
    pub(crate) fn slice(&self, offset: usize, len: usize) -> Self {
        let offset = offset.min(self.len);
        // INVARIANT: Within the range of `self`, which is within the memory.
        Self {
            mem: self.mem.clone(),
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
        match &self.mem {
            Mem::None => Cursor::flat(core::ptr::null_mut(), 0),
            Mem::Pinned(pinned) => Cursor::segments(pinned.segments(), offset, len),
            Mem::Buffer(buffer) => {
                let addr = buffer.memory.as_ptr().cast::<u8>();
                Cursor::flat(addr.wrapping_add(offset), len)
            }
        }
    }

    /// A cursor at byte `skip` for writing, if that is allowed.
    #[inline(always)]
    pub(super) fn cursor_mut(&self, skip: usize) -> Option<Cursor<'_>> {
        // Whoever got here without the right to write has a bug.
        if kernel::warn_on!(!self.writable()) {
            return None;
        }
        if let Mem::Pinned(pinned) = &self.mem {
            pinned.mark_written();
        }
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
    let total = dst.left.min(src.left);
    if total <= dst.here.min(src.here).min(RESCHED_BYTES) {
        // SAFETY: As in `run_pieces`.
        unsafe { shim::kfabric_shim_copy(dst.addr.cast(), src.addr.cast(), total) };
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
        let len = dst.here.min(src.here).min(left).min(RESCHED_BYTES);
        // SAFETY: By the invariants of `Cursor` both point to at least `len` bytes of memory that
        // stays; that of `dst` is writable, as `cursor_mut` gave it. It may be changed by others
        // meanwhile, which is why this is done in C.
        unsafe { shim::kfabric_shim_copy(dst.addr.cast(), src.addr.cast(), len) };
        dst.advance(len);
        src.advance(len);
        left -= len;
        since_resched += len;
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
    while dst.left > 0 {
        let len = dst.here.min(RESCHED_BYTES);
        // SAFETY: As in `run`.
        unsafe { shim::kfabric_shim_fill(dst.addr.cast(), byte, len) };
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
    if a.left != b.left {
        return false;
    }
    while a.left > 0 {
        let len = a.here.min(b.here).min(RESCHED_BYTES);
        // SAFETY: As in `run`; both are read only.
        if !unsafe { shim::kfabric_shim_equal(a.addr.cast(), b.addr.cast(), len) } {
            return false;
        }
        a.advance(len);
        b.advance(len);
        sched::cond_resched();
    }
    true
}

/// A place in memory, and the bytes that follow.
///
/// # Invariants
///
/// `addr` points to `here` bytes that follow each other, valid for reads during
/// `'a`; the rest of `left` is in `rest`. `here` is 0 only if `left` is.
pub(super) struct Cursor<'a> {
    addr: *mut u8,
    here: usize,
    left: usize,
    rest: &'a [Segment],
}

impl<'a> Cursor<'a> {
    /// `len` bytes at `addr`, valid during `'a`.
    #[inline(always)]
    fn flat(addr: *mut u8, len: usize) -> Self {
        // INVARIANT: All of it is here.
        Self {
            addr,
            here: len,
            left: len,
            rest: &[],
        }
    }

    /// `len` bytes from byte `offset` of `segments`, which have so many.
    #[inline(always)]
    fn segments(segments: &'a [Segment], offset: usize, len: usize) -> Self {
        let index = match segments {
            [first, ..] if offset < first.end => 0,
            _ => segments.partition_point(|segment| segment.end <= offset),
        };
        let Some((first, rest)) = segments.get(index..).and_then(<[_]>::split_first) else {
            return Self::flat(core::ptr::null_mut(), 0);
        };
        let here = first.end - offset;
        // INVARIANT: `here` bytes are left of the first segment, and the rest follows.
        Self {
            addr: first.addr.wrapping_add(first.len - here),
            here: here.min(len),
            left: len,
            rest,
        }
    }

    /// Where it is: so many bytes from there on follow each other as [`here`](Self::here) says.
    #[inline]
    pub(super) fn addr(&self) -> *mut u8 {
        self.addr
    }

    /// Bytes that follow each other in memory; 0 at the end only.
    #[inline]
    pub(super) fn here(&self) -> usize {
        self.here
    }

    /// Bytes that are left in all.
    #[inline]
    pub(super) fn left(&self) -> usize {
        self.left
    }

    /// Goes on by `len` bytes, at most `here`.
    #[inline]
    pub(super) fn advance(&mut self, len: usize) {
        self.addr = self.addr.wrapping_add(len);
        self.here -= len;
        self.left -= len;
        if self.here == 0 && self.left > 0 {
            match self.rest.split_first() {
                Some((next, rest)) => {
                    // INVARIANT: The next segment is all here, or what is left of the range.
                    self.addr = next.addr;
                    self.here = next.len.min(self.left);
                    self.rest = rest;
                }
                // Not so by the invariant; it ends here.
                None => self.left = 0,
            }
        }
    }
}
