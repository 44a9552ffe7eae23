// SPDX-License-Identifier: GPL-2.0

//! Segment lists: the addresses of the bytes of memory, in order.
//!
//! A [`Segment`] is a run of contiguous bytes at kernel addresses, in the direct map or in another
//! mapping (vmalloc, a DMA-BUF). [`Segments`] is the list that all kinds of memory have; a copy
//! needs nothing else. A [`Cursor`] iterates over it.
//!
//! Up to two segments are stored in place; a small buffer has no more. No segment is empty. So a
//! cursor finds its first segment in O(log n) steps and each next one in one step, and an access to
//! n bytes takes at most n steps, however long the list is. That bounds the accesses that may not
//! sleep: a packet carries at most one path MTU. Functions that process a whole list call
//! `cond_resched()` after a bounded number of steps.

use crate::shim::{
    memory::kmalloc_array_size,
    sched::Resched, //
};
use kernel::{
    alloc::Flags,
    page::{
        PAGE_MASK,
        PAGE_SIZE, //
    },
    prelude::*, //
};

/// Segments that are stored in place.
const FEW: usize = 2;

/// The largest number of segments of a list of kernel memory: as many as the pages of the largest
/// region.
pub(crate) const SEGMENTS_MAX: usize = 1 << 18;

/// The flags of an allocation in any context but NMIs, charged to the active memory control group.
pub(super) fn atomic_flags() -> Flags {
    (GFP_KERNEL_ACCOUNT & !GFP_KERNEL) | GFP_ATOMIC
}

/// The flags of an allocation that does not wait, charged to the active memory control group. That
/// may be another user's, which must not have to reclaim memory for it.
pub(super) fn nowait_flags() -> Flags {
    (GFP_KERNEL_ACCOUNT & !GFP_KERNEL) | GFP_NOWAIT
}

/// A vector with room for `count` elements, in memory of `kmalloc()`. So it can be freed in any
/// context but NMIs, like this can be called. Fails with `ENOMEM`.
pub(crate) fn atomic_vec<T>(count: usize) -> Result<KVVec<T>> {
    let list = KVec::with_capacity(count, atomic_flags())?;
    let (addr, len, capacity) = list.into_raw_parts();
    // SAFETY: The parts are those of a vector of this type. `KVmalloc` frees and reallocates memory
    // of `Kmalloc` too: `kvfree()` and `kvrealloc()` take both.
    Ok(unsafe { KVVec::from_raw_parts(addr, len, capacity) })
}

/// Contiguous bytes at kernel addresses.
#[derive(Clone, Copy)]
pub(super) struct Segment {
    /// The first byte.
    pub(super) addr: *mut u8,
    /// Total length of this segment and all before it.
    pub(super) end: usize,
    /// Length of this segment.
    pub(super) len: usize,
}

impl Segment {
    /// No bytes.
    const NONE: Self = Self {
        addr: core::ptr::null_mut(),
        end: 0,
        len: 0,
    };
}

/// Segments in order: a few in place, more in allocated memory.
enum List {
    Few { list: [Segment; FEW], count: usize },
    Many(KVVec<Segment>),
}

/// A segment list.
///
/// # Invariants
///
/// No segment is empty; `end` of each is the sum of the lengths up to and including it, and `len`
/// is the sum of all.
pub(super) struct Segments {
    list: List,
    len: usize,
}

impl Segments {
    /// No segments.
    pub(super) const fn new() -> Self {
        // INVARIANT: There are no segments.
        Self {
            list: List::Few {
                list: [Segment::NONE; FEW],
                count: 0,
            },
            len: 0,
        }
    }

    /// One segment of `len` bytes at `addr`; none if `len` is 0.
    pub(super) fn one(addr: *mut u8, len: usize) -> Self {
        let mut segments = Self::new();
        segments.push(addr, len, false);
        segments
    }

    /// Length in bytes.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The segments.
    #[inline]
    pub(super) fn as_slice(&self) -> &[Segment] {
        match &self.list {
            List::Few { list, count } => list.get(..*count).unwrap_or_default(),
            List::Many(list) => list,
        }
    }

    /// Whether the list has allocated memory.
    #[inline(always)]
    pub(super) fn has_allocated(&self) -> bool {
        matches!(self.list, List::Many(_))
    }

    /// Bytes of kernel memory that the list takes.
    pub(super) fn heap_bytes(&self) -> usize {
        match &self.list {
            List::Few { .. } => 0,
            List::Many(list) => kmalloc_array_size::<Segment>(list.capacity()),
        }
    }

    fn last_mut(&mut self) -> Option<&mut Segment> {
        match &mut self.list {
            List::Few { list, count } => list.get_mut(..*count)?.last_mut(),
            List::Many(list) => list.last_mut(),
        }
    }

    /// Makes room for `more` segments. Fails with `ENOMEM`. Sleeps.
    pub(super) fn reserve(&mut self, more: usize) -> Result {
        self.reserve_with(more, GFP_KERNEL_ACCOUNT)
    }

    /// [`reserve`](Self::reserve) with these flags of the allocation.
    fn reserve_with(&mut self, more: usize, flags: Flags) -> Result {
        match &mut self.list {
            List::Few { count, .. } if *count + more <= FEW => {}
            List::Few { list, count } => {
                let mut many = KVVec::with_capacity(*count + more, flags)?;
                many.extend_from_slice(list.get(..*count).unwrap_or_default(), flags)?;
                self.list = List::Many(many);
            }
            List::Many(list) => list.reserve(more, flags)?,
        }
        Ok(())
    }

    /// Makes room for `count` segments of an empty list, in memory of `kmalloc()`. So the list can
    /// be freed in any context but NMIs, like this can be called. Fails with `ENOMEM`.
    pub(super) fn reserve_atomic(&mut self, count: usize) -> Result {
        if count > FEW {
            self.list = List::Many(atomic_vec(count)?);
        }
        Ok(())
    }

    /// Removes all segments. The room that was reserved stays.
    pub(super) fn clear(&mut self) {
        // INVARIANT: There are no segments.
        match &mut self.list {
            List::Few { count, .. } => *count = 0,
            List::Many(list) => list.clear(),
        }
        self.len = 0;
    }

    /// Adds `len` bytes at `addr`. With `join` the bytes extend the last segment if they follow it.
    /// The caller has reserved room for a segment.
    pub(super) fn push(&mut self, addr: *mut u8, len: usize, join: bool) {
        if len == 0 {
            return;
        }
        // INVARIANT: The bytes are added to the total and to one segment.
        self.len += len;
        if join {
            if let Some(last) = self.last_mut() {
                if last.addr.wrapping_add(last.len) == addr {
                    last.len += len;
                    last.end += len;
                    return;
                }
            }
        }
        let segment = Segment {
            addr,
            end: self.len,
            len,
        };
        match &mut self.list {
            List::Few { list, count } => {
                if let Some(slot) = list.get_mut(*count) {
                    *slot = segment;
                    *count += 1;
                }
            }
            // Room was reserved, so this cannot fail.
            List::Many(list) => drop(list.push_within_capacity(segment)),
        }
    }

    /// Frees reserved memory that is not needed. Sleeps.
    ///
    /// Makes a new list, because `krealloc()` keeps the memory of a list that becomes shorter.
    pub(super) fn shrink(&mut self) {
        let List::Many(list) = &self.list else {
            return;
        };
        let needed = match list.len() {
            0..=FEW => 0,
            len => kmalloc_array_size::<Segment>(len),
        };
        if needed >= self.heap_bytes() {
            return;
        }
        // Without free memory the list stays as it is.
        let mut exact = Self::new();
        if exact.reserve_with(list.len(), nowait_flags()).is_err() {
            return;
        }
        let mut resched = Resched::new();
        for segment in list.iter() {
            exact.push(segment.addr, segment.len, false);
            resched.step();
        }
        *self = exact;
    }
}

/// Number of pages that `len` bytes at `addr` touch. The range does not wrap.
pub(super) fn pages_of(addr: usize, len: usize) -> usize {
    if len == 0 {
        return 0;
    }
    ((addr & !PAGE_MASK) + len).div_ceil(PAGE_SIZE)
}

/// A position in memory and the bytes that follow.
///
/// # Invariants
///
/// `addr` points to `here` contiguous bytes, valid for reads during `'a`; the rest of the `left`
/// bytes is in `rest`. `here` is 0 only if `left` is 0.
pub(super) struct Cursor<'a> {
    addr: *mut u8,
    here: usize,
    left: usize,
    rest: &'a [Segment],
}

impl<'a> Cursor<'a> {
    /// `len` bytes at `addr`, valid during `'a`.
    #[inline(always)]
    pub(super) fn flat(addr: *mut u8, len: usize) -> Self {
        // INVARIANT: All bytes are contiguous.
        Self {
            addr,
            here: len,
            left: len,
            rest: &[],
        }
    }

    /// `len` bytes from byte `offset` of `segments`, which have that many.
    #[inline(always)]
    pub(super) fn segments(segments: &'a [Segment], offset: usize, len: usize) -> Self {
        let index = match segments {
            [first, ..] if offset < first.end => 0,
            _ => segments.partition_point(|segment| segment.end <= offset),
        };
        let Some((first, rest)) = segments.get(index..).and_then(<[_]>::split_first) else {
            return Self::flat(core::ptr::null_mut(), 0);
        };
        let here = first.end - offset;
        // INVARIANT: `here` bytes of the first segment are left; the rest follows.
        Self {
            addr: first.addr.wrapping_add(first.len - here),
            here: here.min(len),
            left: len,
            rest,
        }
    }

    /// The current address; [`here`](Self::here) contiguous bytes follow it.
    #[inline]
    pub(super) fn addr(&self) -> *mut u8 {
        self.addr
    }

    /// Number of contiguous bytes at the current address; 0 at the end only.
    #[inline]
    pub(super) fn here(&self) -> usize {
        self.here
    }

    /// Number of bytes left in total.
    #[inline]
    pub(super) fn left(&self) -> usize {
        self.left
    }

    /// Advances by `len` bytes, at most `here`.
    #[inline]
    pub(super) fn advance(&mut self, len: usize) {
        self.addr = self.addr.wrapping_add(len);
        self.here -= len;
        self.left -= len;
        if self.here == 0 && self.left > 0 {
            match self.rest.split_first() {
                Some((next, rest)) => {
                    // INVARIANT: `here` is the next segment, or what is left of the range.
                    self.addr = next.addr;
                    self.here = next.len.min(self.left);
                    self.rest = rest;
                }
                // Cannot happen by the invariant; end here.
                None => self.left = 0,
            }
        }
    }
}
