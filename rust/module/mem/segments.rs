// SPDX-License-Identifier: GPL-2.0

//! Segment lists: where the bytes of memory lie, in order.
//!
//! A [`Segment`] is a run of bytes that follow each other at kernel addresses: in the direct map, or
//! where the memory is mapped otherwise (vmalloc, a DMA-BUF). All kinds of memory have [`Segments`]
//! and nothing else that a copy looks at. A [`Cursor`] goes through them.
//!
//! Two segments, which is what a small buffer has at most, need no memory of their own. No segment is
//! empty. So a cursor finds its first segment in O(log n) steps and each next one in one step, and an
//! access to n bytes takes at most n steps, however long the list is. That is what bounds the accesses
//! that may not sleep: a packet has at most one path MTU of bytes. Everything that goes through a whole
//! list lets others run after a bounded number of steps.

use kernel::{
    page::{
        PAGE_MASK,
        PAGE_SIZE, //
    },
    prelude::*, //
};

/// Segments that need no memory of their own.
const FEW: usize = 2;

/// Segments of one list of kernel memory, at most: as many as the largest region has if each of its
/// pages is one.
pub(crate) const SEGMENTS_MAX: usize = 1 << 18;

/// Bytes that follow each other at kernel addresses.
#[derive(Clone, Copy)]
pub(super) struct Segment {
    /// The first byte.
    pub(super) addr: *mut u8,
    /// Bytes of this segment and all before it.
    pub(super) end: usize,
    /// Bytes of this segment.
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

/// Segments in order; a few in place, more in memory of their own.
enum List {
    Few { list: [Segment; FEW], count: usize },
    Many(KVVec<Segment>),
}

/// A segment list.
///
/// # Invariants
///
/// No segment is empty; `end` of each is the sum of the lengths up to it, and `len` is that of all.
pub(super) struct Segments {
    list: List,
    len: usize,
}

impl Segments {
    /// No segments.
    pub(super) const fn new() -> Self {
        // INVARIANT: None.
        Self {
            list: List::Few {
                list: [Segment::NONE; FEW],
                count: 0,
            },
            len: 0,
        }
    }

    /// One segment of `len` bytes at `addr`; none if there are no bytes.
    pub(super) fn one(addr: *mut u8, len: usize) -> Self {
        let mut segments = Self::new();
        segments.push(addr, len, false);
        segments
    }

    /// Bytes.
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

    /// Bytes of kernel memory that the list takes besides itself.
    pub(super) fn heap_bytes(&self) -> usize {
        match &self.list {
            List::Few { .. } => 0,
            List::Many(list) => list.capacity().saturating_mul(size_of::<Segment>()),
        }
    }

    fn last_mut(&mut self) -> Option<&mut Segment> {
        match &mut self.list {
            List::Few { list, count } => list.get_mut(..*count)?.last_mut(),
            List::Many(list) => list.last_mut(),
        }
    }

    /// Makes room for `more` segments. Fails with `ENOMEM`.
    pub(super) fn reserve(&mut self, more: usize) -> Result {
        match &mut self.list {
            List::Few { count, .. } if *count + more <= FEW => {}
            List::Few { list, count } => {
                let mut many = KVVec::with_capacity(*count + more, GFP_KERNEL_ACCOUNT)?;
                many.extend_from_slice(list.get(..*count).unwrap_or_default(), GFP_KERNEL_ACCOUNT)?;
                self.list = List::Many(many);
            }
            List::Many(list) => list.reserve(more, GFP_KERNEL_ACCOUNT)?,
        }
        Ok(())
    }

    /// Adds `len` bytes at `addr`, if there are any; `join`: to the last segment, if they follow it.
    /// There must be room for a segment.
    pub(super) fn push(&mut self, addr: *mut u8, len: usize, join: bool) {
        if len == 0 {
            return;
        }
        // INVARIANT: The bytes are counted here and in one segment.
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
            // Reserved, so this cannot fail.
            List::Many(list) => drop(list.push_within_capacity(segment)),
        }
    }

    /// Gives memory back that turned out not to be needed.
    pub(super) fn shrink(&mut self) {
        if let List::Many(list) = &mut self.list {
            // Failing to leaves things as they are.
            let _ = list.shrink_to(0, GFP_KERNEL_ACCOUNT);
        }
    }
}

/// Pages under `len` bytes at `addr`, which do not wrap.
pub(super) fn pages_of(addr: usize, len: usize) -> usize {
    if len == 0 {
        return 0;
    }
    ((addr & !PAGE_MASK) + len).div_ceil(PAGE_SIZE)
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
    pub(super) fn flat(addr: *mut u8, len: usize) -> Self {
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
    pub(super) fn segments(segments: &'a [Segment], offset: usize, len: usize) -> Self {
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

    /// The address; as many bytes follow it without a gap as [`here`](Self::here) says.
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
