// SPDX-License-Identifier: GPL-2.0

//! Memory of each kind for the suites, with access to its bytes that does not use the module.

use super::{
    consumer,
    dma_buf::DmaBuf,
    memref::INLINE_MAX,
    *, //
};
use crate::{
    kunit::helpers::{
        eventually,
        UserMemory, //
    },
    shim::bindings as shim, //
};
use core::ptr::NonNull;
use kernel::{
    bindings,
    error::to_result,
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};

/// A kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Pinned memory of the test's thread, one range for each piece.
    User,
    /// A buffer of the module.
    Buffer,
    /// Addresses of the slab allocator.
    SlabKvec,
    /// Addresses of vmalloc.
    VmallocKvec,
    /// A list of bio_vec entries.
    BioVec,
    /// A scatterlist.
    Scatterlist,
    /// One DMA-BUF.
    DmaBuf,
    /// A gather list whose pieces have different kinds.
    Gather,
    /// A gather list of DMA-BUFs and other kinds.
    Mixed,
}

impl Kind {
    /// All kinds.
    pub(crate) const ALL: [Self; 9] = [
        Self::User,
        Self::Buffer,
        Self::SlabKvec,
        Self::VmallocKvec,
        Self::BioVec,
        Self::Scatterlist,
        Self::DmaBuf,
        Self::Gather,
        Self::Mixed,
    ];

    /// The kinds from which the gather lists here are made.
    const PARTS: [Self; 4] = [
        Self::Buffer,
        Self::SlabKvec,
        Self::BioVec,
        Self::VmallocKvec,
    ];
}

/// The number of unused bytes between the pieces of a kvec, so that no piece touches the next.
const GAP: usize = 3;

/// The number of bytes of a DMA-BUF before the part that is used.
const BEFORE: usize = 5;

/// The allocation behind a memory.
#[allow(dead_code, reason = "kept, to be dropped")]
enum Allocated {
    Nothing,
    User(UserMemory),
    Slab(KVec<u8>),
    Vmalloc(VVec<u8>),
    Pages(KVVec<Pages>),
    DmaBuf(Exporter),
    Parts(KVVec<Held>),
}

/// Memory of one kind, with the bytes as the test sees them.
pub(crate) struct Held {
    /// The memory to register.
    pub(crate) memory: Memory,
    /// The addresses and lengths of the bytes.
    pieces: KVVec<(*mut u8, usize)>,
    _allocated: Allocated,
}

/// Returns byte `index` of a pattern whose period is not a power of two.
pub(crate) fn pattern(index: usize) -> u8 {
    (index % 251) as u8
}

/// Returns a buffer with `len` bytes of the pattern, from byte `skip` on.
pub(crate) fn buffer(skip: usize, len: usize) -> Result<MemRef> {
    let memory = MemRef::buffer(len)?;
    for at in (0..len).step_by(INLINE_MAX) {
        let bytes: [u8; INLINE_MAX] = core::array::from_fn(|index| pattern(skip + at + index));
        let inline = Inline::from_slice(&bytes).ok_or(EINVAL)?;
        copy(&memory.slice(at, len), &Source::Inline(&inline));
    }
    Ok(memory)
}

/// Returns the ranges by which the owner addresses `len` bytes: one range from 0 on.
pub(crate) fn named(len: usize) -> Result<KVec<UserRange>> {
    let mut ranges = KVec::new();
    let range = UserRange {
        addr: 0,
        len: len as u64,
    };
    ranges.push(range, GFP_KERNEL)?;
    Ok(ranges)
}

impl Held {
    /// Makes zeroed memory of `kind` whose pieces have these lengths. A buffer and a DMA-BUF have
    /// one piece.
    pub(crate) fn new(kind: Kind, lens: &[usize]) -> Result<Self> {
        match kind {
            Kind::User => Self::user(lens),
            Kind::Buffer => Self::buffer(lens.iter().sum()),
            Kind::SlabKvec => {
                let mut bytes = KVec::from_elem(0, room(lens), GFP_KERNEL)?;
                let base = bytes.as_mut_ptr();
                Self::kvec(base, lens, Allocated::Slab(bytes))
            }
            Kind::VmallocKvec => {
                let mut bytes = VVec::from_elem(0, room(lens), GFP_KERNEL)?;
                let base = bytes.as_mut_ptr();
                Self::kvec(base, lens, Allocated::Vmalloc(bytes))
            }
            Kind::BioVec => Self::bio_vec(lens),
            Kind::Scatterlist => Self::scatterlist(lens),
            Kind::DmaBuf => Self::dma_buf(lens.iter().sum()),
            Kind::Gather => Self::gather(lens, false),
            Kind::Mixed => Self::gather(lens, true),
        }
    }

    fn user(lens: &[usize]) -> Result<Self> {
        let memory = UserMemory::map(room(lens).next_multiple_of(PAGE_SIZE), true)?;
        let mut ranges = KVVec::new();
        let mut at = memory.addr() + 1;
        for len in lens {
            let range = UserRange {
                addr: at as u64,
                len: *len as u64,
            };
            ranges.push(range, GFP_KERNEL)?;
            at += len + GAP;
        }
        let pinned = MemRef::pinned(Pinned::new(&ranges, Access::Write)?);
        Self::from_segments(pinned, Allocated::User(memory))
    }

    fn buffer(len: usize) -> Result<Self> {
        Self::from_segments(MemRef::buffer(len)?, Allocated::Nothing)
    }

    /// Uses the module's own view of the bytes, if there is no other.
    fn from_segments(memory: MemRef, allocated: Allocated) -> Result<Self> {
        let mut pieces = KVVec::new();
        if let Some(backing) = memory.backing() {
            for segment in backing.segments() {
                pieces.push((segment.addr, segment.len), GFP_KERNEL)?;
            }
        }
        Ok(Self {
            memory: memory.into(),
            pieces,
            _allocated: allocated,
        })
    }

    fn kvec(base: *mut u8, lens: &[usize], allocated: Allocated) -> Result<Self> {
        let mut list = KVVec::new();
        let mut pieces = KVVec::new();
        let mut at = base.wrapping_add(1);
        for len in lens {
            let element = bindings::kvec {
                iov_base: at.cast(),
                iov_len: *len,
            };
            list.push(element, GFP_KERNEL)?;
            pieces.push((at, *len), GFP_KERNEL)?;
            at = at.wrapping_add(len + GAP);
        }
        // SAFETY: The bytes are allocated as long as `allocated`, which tests drop last.
        let memory = unsafe { consumer::kvec(&list, Access::Write, true)? };
        Ok(Self {
            memory: memory.into(),
            pieces,
            _allocated: allocated,
        })
    }

    fn bio_vec(lens: &[usize]) -> Result<Self> {
        let mut list = KVVec::new();
        let (pages, pieces) = pages_of(lens, |page, offset, len| {
            let element = bindings::bio_vec {
                bv_page: page,
                bv_len: len as u32,
                bv_offset: offset as u32,
            };
            Ok(list.push(element, GFP_KERNEL)?)
        })?;
        // SAFETY: The pages were allocated with these bytes.
        let memory = unsafe { consumer::bio_vec(&list, Access::Write, true)? };
        Ok(Self {
            memory: memory.into(),
            pieces,
            _allocated: Allocated::Pages(pages),
        })
    }

    fn scatterlist(lens: &[usize]) -> Result<Self> {
        let table = Table::new(lens.len())?;
        let mut next = table.0.sgl;
        let (pages, pieces) = pages_of(lens, |page, offset, len| {
            // SAFETY: This is an entry of the table, which has as many entries as there are
            // lengths.
            next = unsafe { shim::kfabric_kunit_sg_set(next, page, offset as u32, len as u32) };
            Ok(())
        })?;
        // SAFETY: All entries of the table are set, to pages that were allocated with these bytes.
        let memory = unsafe { consumer::sg_table(&table.0, Access::Write, true)? };
        Ok(Self {
            memory: memory.into(),
            pieces,
            _allocated: Allocated::Pages(pages),
        })
    }

    fn dma_buf(len: usize) -> Result<Self> {
        let exporter = Exporter::new(len + BEFORE, true, shim::KFABRIC_KUNIT_MAP_MEMORY)?;
        let mut pieces = KVVec::new();
        pieces.push((exporter.memory().wrapping_add(BEFORE), len), GFP_KERNEL)?;
        Ok(Self {
            memory: Memory::DmaBuf(exporter.open(BEFORE, len, Access::Write)?),
            pieces,
            _allocated: Allocated::DmaBuf(exporter),
        })
    }

    fn gather(lens: &[usize], mixed: bool) -> Result<Self> {
        let mut parts = KVVec::new();
        let mut held = KVVec::new();
        let mut pieces = KVVec::new();
        for (index, len) in lens.iter().enumerate() {
            let kind = match index % 5 {
                // Each DMA-BUF is a file, so there are not too many.
                0 if mixed && *len > 0 && index < 50 => Kind::DmaBuf,
                _ => Kind::PARTS[index % Kind::PARTS.len()],
            };
            let part = Self::new(kind, &[*len])?;
            for piece in part.pieces.iter() {
                pieces.push(*piece, GFP_KERNEL)?;
            }
            parts.push(part.memory.share(), GFP_KERNEL)?;
            held.push(part, GFP_KERNEL)?;
        }
        Ok(Self {
            memory: Memory::gather(parts)?,
            pieces,
            _allocated: Allocated::Parts(held),
        })
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.pieces.iter().map(|(_, len)| len).sum()
    }

    /// Returns whether `len` bytes from byte `at` on are those of the pattern from `skip` on, and
    /// all other bytes are zero.
    pub(crate) fn holds(&self, at: usize, len: usize, skip: usize) -> bool {
        let mut index = 0;
        for (addr, bytes) in self.pieces.iter() {
            for byte in 0..*bytes {
                // SAFETY: The piece is allocated; there is no concurrent write.
                let found = unsafe { addr.wrapping_add(byte).read_volatile() };
                let expected = if index >= at && index < at + len {
                    pattern(skip + index - at)
                } else {
                    0
                };
                if found != expected {
                    pr_err!("byte {}: {} instead of {}\n", index, found, expected);
                    return false;
                }
                index += 1;
            }
        }
        true
    }

    /// Writes the pattern from `skip` on to all bytes.
    pub(crate) fn fill(&self, skip: usize) {
        self.write(|index| pattern(skip + index));
    }

    /// Writes zeros to all bytes.
    pub(crate) fn clear(&self) {
        self.write(|_| 0);
    }

    fn write(&self, byte: impl Fn(usize) -> u8) {
        let mut index = 0;
        for (addr, bytes) in self.pieces.iter() {
            for at in 0..*bytes {
                // SAFETY: The piece is allocated; there is no concurrent access.
                unsafe { addr.wrapping_add(at).write_volatile(byte(index)) };
                index += 1;
            }
        }
    }

    /// Returns a second reference to the memory.
    pub(crate) fn share(&self) -> Memory {
        self.memory.share()
    }
}

impl Memory {
    /// Returns a second reference to the same memory.
    fn share(&self) -> Self {
        match self {
            Self::Open(memory) => Self::Open(memory.clone()),
            Self::DmaBuf(dma_buf) => Self::DmaBuf(dma_buf.clone()),
            Self::List(parts) => {
                let mut list = KVVec::new();
                for part in parts.iter() {
                    // If memory is exhausted, the test fails because of the missing part.
                    let _ = list.push(part.share(), GFP_KERNEL);
                }
                Self::List(list)
            }
        }
    }
}

/// Returns the number of bytes for pieces of these lengths, with gaps.
fn room(lens: &[usize]) -> usize {
    1 + lens.iter().map(|len| len + GAP).sum::<usize>()
}

/// Contiguous allocated pages.
pub(crate) struct Pages {
    pub(crate) page: *mut bindings::page,
    order: u32,
}

impl Pages {
    pub(crate) fn new(order: u32, compound: bool) -> Result<Self> {
        // SAFETY: The call allocates, and may sleep.
        let page = unsafe { shim::kfabric_kunit_pages(order, compound) };
        if page.is_null() {
            return Err(ENOMEM);
        }
        Ok(Self { page, order })
    }

    /// Returns the reference count of page `index`.
    pub(crate) fn count(&self, index: usize) -> i32 {
        // SAFETY: This is one of the pages.
        unsafe { shim::kfabric_kunit_page_count(self.page.wrapping_add(index)) }
    }

    /// Returns the address of the first byte.
    pub(crate) fn addr(&self) -> *mut u8 {
        // SAFETY: This is a page.
        unsafe { shim::kfabric_shim_page_address(self.page) }.cast()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: The pages were allocated with this order, and are not used any more.
        unsafe { shim::kfabric_kunit_pages_free(self.page, self.order) }
    }
}

/// Addresses and lengths of pieces of memory.
type Pieces = KVVec<(*mut u8, usize)>;

/// Allocates pages for pieces of these lengths, each at another offset, and returns the pages with
/// the addresses of the pieces. An offset may be beyond the first page.
fn pages_of(
    lens: &[usize],
    mut each: impl FnMut(*mut bindings::page, usize, usize) -> Result,
) -> Result<(KVVec<Pages>, Pieces)> {
    let mut allocated = KVVec::new();
    let mut pieces = KVVec::new();
    for (index, len) in lens.iter().enumerate() {
        let mut offset = (37 * index + 1) % PAGE_SIZE;
        if index == 3 {
            offset += PAGE_SIZE;
        }
        let count = (offset + len).div_ceil(PAGE_SIZE).max(1);
        let pages = Pages::new(count.next_power_of_two().ilog2(), true)?;
        each(pages.page, offset, *len)?;
        pieces.push((pages.addr().wrapping_add(offset), *len), GFP_KERNEL)?;
        allocated.push(pages, GFP_KERNEL)?;
    }
    Ok((allocated, pieces))
}

/// A scatterlist.
struct Table(bindings::sg_table);

impl Table {
    fn new(entries: usize) -> Result<Self> {
        let mut table = bindings::sg_table::default();
        // SAFETY: The call initializes the table.
        to_result(unsafe { shim::kfabric_kunit_sg_alloc(&mut table, entries as u32) })?;
        Ok(Self(table))
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: The table was allocated.
        unsafe { shim::kfabric_kunit_sg_free(&mut self.0) }
    }
}

/// An exporter with its DMA-BUF.
pub(crate) struct Exporter {
    exporter: *mut c_void,
    dmabuf: Option<NonNull<bindings::dma_buf>>,
}

impl Exporter {
    /// Makes an exporter. `map` is one of `KFABRIC_KUNIT_MAP_*`.
    pub(crate) fn new(len: usize, writable: bool, map: u32) -> Result<Self> {
        let mut dmabuf = core::ptr::null_mut();
        // SAFETY: The call writes to `dmabuf`.
        let exporter = unsafe { shim::kfabric_kunit_dma_new(len, writable, map, &mut dmabuf) };
        if exporter.is_null() {
            return Err(ENOMEM);
        }
        Ok(Self {
            exporter,
            dmabuf: NonNull::new(dmabuf),
        })
    }

    /// Opens a part of the DMA-BUF.
    pub(crate) fn open(&self, offset: usize, len: usize, access: Access) -> Result<Arc<DmaBuf>> {
        // SAFETY: The test owns the reference.
        unsafe { DmaBuf::new(self.dmabuf.ok_or(EBADF)?, offset, len, access) }
    }

    pub(crate) fn memory(&self) -> *mut u8 {
        // SAFETY: The test owns the exporter.
        unsafe { shim::kfabric_kunit_dma_memory(self.exporter) }.cast()
    }

    /// Sets the errors of CPU access; 0 means success.
    pub(crate) fn fail(&self, begin: i32, end: i32) {
        // SAFETY: The test owns the exporter.
        unsafe { shim::kfabric_kunit_dma_fail(self.exporter, begin, end) }
    }

    fn count(&self, which: u32) -> u32 {
        // SAFETY: The test owns the exporter.
        unsafe { shim::kfabric_kunit_dma_count(self.exporter, which) }
    }

    /// Returns how many CPU accesses have begun, and how many have ended.
    pub(crate) fn accesses(&self) -> (u32, u32) {
        (
            self.count(shim::KFABRIC_KUNIT_DMA_BEGUN),
            self.count(shim::KFABRIC_KUNIT_DMA_ENDED),
        )
    }

    /// Returns whether the DMA-BUF is mapped.
    pub(crate) fn is_mapped(&self) -> bool {
        self.count(shim::KFABRIC_KUNIT_DMA_MAPPED) != 0
    }

    /// Puts the test's reference to the DMA-BUF.
    pub(crate) fn put(&mut self) {
        if let Some(dmabuf) = self.dmabuf.take() {
            // SAFETY: The test owns the reference and does not use it again.
            unsafe { shim::kfabric_kunit_dma_put(self.exporter, dmabuf.as_ptr()) }
        }
    }

    /// Waits until the DMA-BUF is released. A worker puts the last reference of a kernel thread.
    pub(crate) fn is_released(&self) -> bool {
        eventually(|| self.count(shim::KFABRIC_KUNIT_DMA_RELEASED) == 1)
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.put();
        // SAFETY: The test owns the exporter and does not use it again.
        unsafe { shim::kfabric_kunit_dma_free(self.exporter) }
    }
}
