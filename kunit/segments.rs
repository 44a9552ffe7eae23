// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_segments`: memory of all kinds as segment lists.
//!
//! The tests compare the results of copies with the bytes at the address that the test allocated,
//! not with the module's view. Suite `kfabric_mr` tests operations on registered memory.

use super::{
    consumer::{
        self,
        ATOMIC_ELEMENTS,
        ATOMIC_PAGES, //
    },
    kunit::error,
    kunit_kinds::{
        buffer,
        Exporter,
        Held,
        Kind,
        Pages, //
    },
    memref::{
        copy_mem,
        equal, //
    },
    pinned::PINNED_MAX,
    segments::{
        Segment,
        Segments,
        SEGMENTS_MAX, //
    },
    *, //
};
use crate::{
    kunit::helpers::UserMemory,
    shim::bindings as shim, //
};
use kernel::{
    bindings,
    new_spinlock,
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};

/// The lengths of pieces: one byte; empty pieces, single bytes and whole pages; a byte between
/// empty pieces; a long piece.
const LAYOUTS: [&[usize]; 4] = [
    &[1],
    &[1, 0, PAGE_SIZE, 3, 0, 0, 5000, 1, 2 * PAGE_SIZE - 1, 0],
    &[0, 0, 7, 0],
    &[65536 + 13],
];

/// The lengths of thousands of pieces, too many for a stack.
static ONES: [usize; 3000] = [1; 3000];

fn element_of(page: *mut bindings::page, offset: usize, len: usize) -> bindings::bio_vec {
    bindings::bio_vec {
        bv_page: page,
        bv_offset: offset as u32,
        bv_len: len as u32,
    }
}

fn element(addr: usize, len: usize) -> bindings::kvec {
    bindings::kvec {
        iov_base: core::ptr::without_provenance_mut(addr),
        iov_len: len,
    }
}

/// Returns the error of a kvec with one element.
fn kvec_error(addr: usize, len: usize) -> Option<Error> {
    // SAFETY: The call must refuse the address, or does not access it.
    error(unsafe { consumer::kvec(&[element(addr, len)], Access::Read, true) })
}

/// Returns an error and prints `what` unless `holds`.
fn ensure(holds: bool, what: &str) -> Result {
    if holds {
        return Ok(());
    }
    pr_err!("not {}\n", what);
    Err(EIO)
}

/// Opens all of the memory for writing.
fn opened(held: &Held) -> Result<MemRef> {
    held.memory.open(0, held.len(), Access::Write)
}

/// Copies to and from each range of `held` that is near the end of a piece.
fn borders(held: &Held, lens: &[usize]) -> Result {
    let all = opened(held)?;
    let total = held.len();
    let mut border = 0;
    for len in lens.iter().take(40) {
        border += len;
        for (before, after) in [(0, 1), (1, 0), (1, 1), (2, 9), (700, 5000)] {
            let from = border.saturating_sub(before);
            let to = (border + after).min(total);
            let (at, len) = (from, to - from);
            held.clear();
            let bytes = buffer(from, len)?;
            ensure(copy_mem(&all.slice(at, len), &bytes) == len, "written")?;
            ensure(held.holds(at, len, from), "written there")?;
            // The same range, opened separately.
            let part = held.memory.open(at, len, Access::Read)?;
            ensure(equal(&part, &bytes), "read")?;
            // Written like a packet is placed, without sleeping.
            held.clear();
            let mut packet = [0; 64];
            let some = len.min(packet.len());
            payload::peek(packet.get_mut(..some).ok_or(EINVAL)?, &bytes, 0);
            let stored = payload::store(&all, at, packet.get(..some).ok_or(EINVAL)?);
            ensure(stored == some, "stored")?;
            ensure(held.holds(at, some, from), "stored there")?;
        }
    }
    Ok(())
}

#[kunit_tests(kfabric_segments)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_written_and_read_as_a_whole() -> Result {
        for kind in Kind::ALL {
            for lens in LAYOUTS {
                let held = Held::new(kind, lens)?;
                let len = held.len();
                ensure_eq!(held.memory.len(), len);
                ensure!(held.memory.writable());
                let source = buffer(7, len)?;
                ensure_eq!(copy_mem(&opened(&held)?, &source), len);
                ensure!(held.holds(0, len, 7));
                let target = MemRef::buffer(len)?;
                ensure_eq!(copy_mem(&target, &opened(&held)?), len);
                ensure!(equal(&target, &source));
                ensure_eq!(held.memory.open(len, 10, Access::Read)?.len(), 0);
                ensure_eq!(held.memory.open(usize::MAX, 1, Access::Read)?.len(), 0);
            }
        }
        Ok(())
    }

    #[test]
    fn every_kind_is_accessed_across_its_borders() -> Result {
        for kind in Kind::ALL {
            for lens in LAYOUTS {
                borders(&Held::new(kind, lens)?, lens)?;
            }
        }
        Ok(())
    }

    #[test]
    fn thousands_of_pieces_of_one_byte() -> Result {
        const COUNT: usize = ONES.len();
        for kind in Kind::ALL {
            let held = Held::new(kind, &ONES)?;
            ensure_eq!(copy_mem(&opened(&held)?, &buffer(3, COUNT)?), COUNT);
            ensure!(held.holds(0, COUNT, 3));
            let part = held.memory.open(1234, 321, Access::Read)?;
            ensure!(equal(&part, &buffer(3 + 1234, 321)?));
        }
        Ok(())
    }

    #[test]
    fn all_pairs_of_kinds_are_copied() -> Result {
        let (from_lens, to_lens) = ([5, 4096, 1, 3000], [4000, 3, 0, 3099]);
        for from in Kind::ALL {
            let source = Held::new(from, &from_lens)?;
            source.fill(11);
            for to in Kind::ALL {
                let target = Held::new(to, &to_lens)?;
                let len = target.len().min(source.len());
                ensure_eq!(copy_mem(&opened(&target)?, &opened(&source)?), len);
                ensure!(target.holds(0, len, 11));
            }
        }
        Ok(())
    }

    #[test]
    fn a_gather_list_keeps_its_parts() -> Result {
        let one = buffer(0, 1000)?;
        let two = buffer(500, 3)?;
        let parts = [
            one.slice(10, 20),
            MemRef::empty(),
            two.clone(),
            one.slice(0, 1),
            one.clone(),
        ];
        let all = MemRef::gather(&parts)?;
        drop(parts);
        drop(one);
        drop(two);
        ensure_eq!(all.len(), 20 + 3 + 1 + 1000);
        ensure!(equal(&all.slice(0, 20), &buffer(10, 20)?));
        ensure!(equal(&all.slice(20, 3), &buffer(500, 3)?));
        ensure!(equal(&all.slice(24, 1000), &buffer(0, 1000)?));
        // A list of lists that contains the same memory twice.
        let twice = MemRef::gather(&[all.slice(15, 10), all.clone(), MemRef::empty()])?;
        drop(all);
        ensure_eq!(twice.len(), 10 + 1024);
        ensure!(equal(&twice.slice(0, 5), &buffer(25, 5)?));
        ensure!(equal(&twice.slice(34, 1000), &buffer(0, 1000)?));
        // A write through one part is read through the other.
        copy_mem(&twice.slice(5, 3), &buffer(77, 3)?);
        ensure!(equal(&twice.slice(10 + 20, 3), &buffer(77, 3)?));
        ensure_eq!(MemRef::gather(&[])?.len(), 0);
        Ok(())
    }

    #[test]
    fn a_gather_list_is_as_writable_as_its_parts() -> Result {
        let memory = UserMemory::map(PAGE_SIZE, true)?;
        let range = UserRange {
            addr: memory.addr() as u64,
            len: 64,
        };
        let pinned = MemRef::pinned(Pinned::new(&[range], Access::Read)?);
        let all = MemRef::gather(&[buffer(0, 4)?, pinned])?;
        ensure!(!all.writable());
        let writable = MemRef::pinned(Pinned::new(&[range], Access::Write)?);
        ensure!(MemRef::gather(&[buffer(0, 4)?, writable])?.writable());
        Ok(())
    }

    #[test]
    fn addresses_that_are_not_memory_are_refused() -> Result {
        let user = UserMemory::map(PAGE_SIZE, true)?;
        for (addr, len) in [
            (user.addr(), 8),
            (8, 8),
            // Addresses between the direct map and vmalloc, or not canonical.
            (1 << 62, 8),
            (usize::MAX - 7, 64),
            (usize::MAX - 7, usize::MAX >> 40),
        ] {
            ensure_eq!(kvec_error(addr, len), Some(EFAULT));
            // A range of no bytes is not accessed.
            ensure_eq!(kvec_error(addr, 0), None);
        }
        // The page after the end of an allocation has no memory.
        let held = VVec::from_elem(0u8, PAGE_SIZE, GFP_KERNEL)?;
        let addr = held.as_ptr().expose_provenance();
        ensure_eq!(kvec_error(addr, PAGE_SIZE), None);
        ensure_eq!(kvec_error(addr, PAGE_SIZE + 1), Some(EFAULT));
        // The stack of the caller.
        let local = [0u8; 16];
        let addr = local.as_ptr().expose_provenance();
        ensure_eq!(kvec_error(addr, 16), Some(EINVAL));
        // Static data of the module.
        ensure_eq!(kvec_error((&raw const ONES).expose_provenance(), 8), None);
        Ok(())
    }

    /// A list that has fewer segments than were reserved gives the rest of the memory back.
    #[test]
    fn lists_shrink() -> Result {
        let pages = KVVec::from_elem(0u8, 129 * PAGE_SIZE, GFP_KERNEL)?;
        for (step, count) in [(1, 1), (1, 64), (2, 3), (2, 65)] {
            let mut segments = Segments::new();
            segments.reserve(128)?;
            for index in 0..count {
                let page = pages.get(index * step * PAGE_SIZE..).ok_or(EINVAL)?;
                segments.push(page.as_ptr().cast_mut(), PAGE_SIZE, true);
            }
            segments.shrink();
            ensure_eq!(segments.len(), count * PAGE_SIZE);
            let list = segments.as_slice();
            if step == 1 {
                ensure_eq!(list.len(), 1);
                ensure_eq!(segments.heap_bytes(), 0);
                continue;
            }
            ensure_eq!(list.len(), count);
            // SAFETY: The list was allocated by kmalloc(): it is smaller than a page.
            let taken = unsafe { bindings::ksize(list.as_ptr().cast()) };
            ensure_eq!(segments.heap_bytes(), taken);
            ensure!(taken < 2 * count * size_of::<Segment>());
        }
        Ok(())
    }

    #[test]
    fn lists_have_limits() -> Result {
        let byte = KVec::from_elem(0u8, 1, GFP_KERNEL)?;
        let addr = byte.as_ptr().expose_provenance();
        ensure_eq!(kvec_error(addr, PINNED_MAX + 1), Some(EINVAL));
        let halves = [element(addr, 1), element(addr, PINNED_MAX)];
        // SAFETY: The call must refuse the list.
        let refused = unsafe { consumer::kvec(&halves, Access::Read, true) };
        ensure_eq!(error(refused), Some(EINVAL));
        let mut list = KVVec::with_capacity(SEGMENTS_MAX + 1, GFP_KERNEL)?;
        for _ in 0..SEGMENTS_MAX {
            list.push(element(addr, 1), GFP_KERNEL)?;
        }
        // SAFETY: The byte exists as long as the result.
        let most = unsafe { consumer::kvec(&list, Access::Read, true)? };
        ensure_eq!(most.len(), SEGMENTS_MAX);
        ensure!(most.heap_bytes() >= SEGMENTS_MAX * 24);
        list.push(element(addr, 0), GFP_KERNEL)?;
        // SAFETY: The call must refuse the list.
        let refused = unsafe { consumer::kvec(&list, Access::Read, true) };
        ensure_eq!(error(refused), Some(E2BIG));
        // A gather list with more segments.
        ensure_eq!(error(MemRef::gather(&[most.clone(), most])), Some(E2BIG));
        Ok(())
    }

    #[test]
    fn pages_are_referenced() -> Result {
        let pages = Pages::new(2, true)?;
        let before = pages.count(0);
        let elements = [
            bindings::bio_vec {
                bv_page: pages.page,
                bv_offset: 100,
                bv_len: 2 * PAGE_SIZE as u32,
            },
            bindings::bio_vec {
                bv_page: pages.page,
                bv_offset: 0,
                bv_len: 1,
            },
        ];
        // SAFETY: The pages contain these bytes.
        let memory = unsafe { consumer::bio_vec(&elements, Access::Write, true)? };
        // The first element uses three pages, the second one.
        ensure_eq!(pages.count(0), before + 4);
        let part = memory.slice(5, 5);
        drop(memory);
        ensure_eq!(pages.count(0), before + 4);
        drop(part);
        ensure_eq!(pages.count(0), before);
        Ok(())
    }

    #[test]
    fn memory_is_passed_and_dropped_under_a_spin_lock() -> Result {
        let lock = Arc::pin_init(new_spinlock!((), "kunit::segments"), GFP_KERNEL)?;
        let pages = Pages::new(2, true)?;
        let before = pages.count(0);
        let bytes = KVec::from_elem(7u8, PAGE_SIZE, GFP_KERNEL)?;
        let addr = bytes.as_ptr().expose_provenance();
        let kvec = KVec::from_elem(element(addr, 3), ATOMIC_ELEMENTS, GFP_KERNEL)?;
        let page = bindings::bio_vec {
            bv_page: pages.page,
            bv_offset: 100,
            bv_len: 2 * PAGE_SIZE as u32,
        };
        let bio_vec = KVec::from_elem(page, ATOMIC_ELEMENTS, GFP_KERNEL)?;
        let guard = lock.lock();
        // SAFETY: The bytes exist as long as the result.
        let memory = unsafe { consumer::kvec(&kvec, Access::Read, false) };
        // SAFETY: The pages exist as long as the result.
        let of_pages = unsafe { consumer::bio_vec(&bio_vec, Access::Write, false) };
        let counted = pages.count(0);
        let lens = [&memory, &of_pages].map(|made| made.as_ref().map_or(0, MemRef::len));
        drop((memory, of_pages));
        drop(guard);
        ensure_eq!(lens, [3 * ATOMIC_ELEMENTS, 2 * PAGE_SIZE * ATOMIC_ELEMENTS]);
        ensure_eq!(counted, before + 3 * ATOMIC_ELEMENTS as i32);
        ensure_eq!(pages.count(0), before);
        Ok(())
    }

    #[test]
    fn memory_that_is_passed_under_a_spin_lock_has_limits() -> Result {
        let bytes = VVec::from_elem(0u8, ATOMIC_PAGES * PAGE_SIZE, GFP_KERNEL)?;
        let addr = bytes.as_ptr().expose_provenance();
        let pages = Pages::new(2, true)?;
        let before = pages.count(0);
        let page = bindings::bio_vec {
            bv_page: pages.page,
            bv_offset: 0,
            bv_len: 4 * PAGE_SIZE as u32,
        };
        // An element counts, too.
        let most = (ATOMIC_PAGES - 1) * PAGE_SIZE;
        let many = KVec::from_elem(element(addr, 0), ATOMIC_ELEMENTS + 1, GFP_KERNEL)?;
        for (list, error) in [
            (&many[..], Some(E2BIG)),
            (&[element(addr, most)][..], None),
            (&[element(addr, most + 1)][..], Some(E2BIG)),
            (&[element(8, 8)][..], Some(EFAULT)),
        ] {
            // SAFETY: The call must refuse the list, or the bytes exist as long as the result.
            let memory = unsafe { consumer::kvec(list, Access::Read, false) };
            ensure_eq!(super::error(memory), error);
        }
        let list = KVec::from_elem(page, ATOMIC_ELEMENTS, GFP_KERNEL)?;
        // SAFETY: The pages exist as long as the result.
        let memory = unsafe { consumer::bio_vec(&list, Access::Read, false)? };
        ensure_eq!(memory.len(), 4 * PAGE_SIZE * ATOMIC_ELEMENTS);
        drop(memory);
        ensure_eq!(pages.count(0), before);
        Ok(())
    }

    #[test]
    fn pages_without_a_reference_count_are_not_referenced() -> Result {
        let good = Pages::new(0, true)?;
        let before = good.count(0);
        let plain = Pages::new(1, false)?;
        let small = KVec::from_elem(7u8, 64, GFP_KERNEL)?;
        let large = KVec::from_elem(7u8, 16 * PAGE_SIZE, GFP_KERNEL)?;
        let first = element_of(good.page, 0, 10);
        // SAFETY: The addresses are of kmalloc().
        let page_of = |addr: &[u8]| unsafe { shim::kfabric_kunit_slab_page(addr.as_ptr().cast()) };
        let offset = small.as_ptr().addr() & (PAGE_SIZE - 1);
        for (page, offset, len) in [
            (page_of(&small), offset, 64),
            (page_of(&large), PAGE_SIZE - 1, 2 * PAGE_SIZE),
            // The second of two pages that are not a folio.
            (plain.page, PAGE_SIZE - 1, 2),
        ] {
            let counts = || (good.count(0), plain.count(0), plain.count(1));
            let list = [first, element_of(page, offset, len), first];
            for may_sleep in [true, false] {
                // SAFETY: The pages exist as long as the result.
                let memory = unsafe { consumer::bio_vec(&list, Access::Write, may_sleep)? };
                ensure_eq!(memory.len(), 20 + len);
                // The references that were taken before are put.
                ensure_eq!(counts(), (before, 1, 0));
                copy_mem(&memory.slice(10, len), &buffer(3, len)?);
                ensure!(equal(&memory.slice(10, len), &buffer(3, len)?));
                // A write through the last element is read through the first.
                copy_mem(&memory.slice(10 + len, 10), &buffer(3, 10)?);
                ensure!(equal(&memory.slice(0, 10), &buffer(3, 10)?));
                drop(memory);
                ensure_eq!(counts(), (before, 1, 0));
            }
        }
        // An element without a page. References that were taken before the failure are put.
        let none = element_of(core::ptr::null_mut(), 0, 2);
        // SAFETY: The call must refuse the list.
        let refused = unsafe { consumer::bio_vec(&[first, none], Access::Read, true) };
        ensure_eq!(error(refused), Some(EINVAL));
        ensure_eq!(good.count(0), before);
        Ok(())
    }

    #[test]
    fn cpu_access_to_a_dma_buf_ends_with_its_memory() -> Result {
        let mut exporter = Exporter::new(3 * PAGE_SIZE, true, shim::KFABRIC_KUNIT_MAP_MEMORY)?;
        let dma_buf = exporter.open(10, 2 * PAGE_SIZE, Access::Write)?;
        ensure!(exporter.is_mapped());
        ensure_eq!(exporter.accesses(), (0, 0));
        let memory = dma_buf.open(5, 100, Access::Write)?;
        ensure_eq!(exporter.accesses(), (1, 0));
        let part = memory.slice(1, 1);
        let other = dma_buf.open(5, usize::MAX, Access::Read)?;
        ensure_eq!(other.len(), 2 * PAGE_SIZE - 5);
        ensure!(!other.writable() && memory.writable());
        ensure_eq!(exporter.accesses(), (2, 0));
        drop(memory);
        ensure_eq!(exporter.accesses(), (2, 0));
        drop(part);
        ensure_eq!(exporter.accesses(), (2, 1));
        // A range of no bytes is not accessed.
        ensure_eq!(dma_buf.open(2 * PAGE_SIZE, 1, Access::Write)?.len(), 0);
        ensure_eq!(exporter.accesses(), (2, 1));
        // The memory keeps all of it alive.
        drop(dma_buf);
        exporter.put();
        ensure!(exporter.is_mapped());
        drop(other);
        ensure_eq!(exporter.accesses(), (2, 2));
        ensure!(!exporter.is_mapped());
        ensure!(exporter.is_released());
        Ok(())
    }

    #[test]
    fn cpu_access_to_a_dma_buf_can_fail() -> Result {
        let exporter = Exporter::new(PAGE_SIZE, true, shim::KFABRIC_KUNIT_MAP_MEMORY)?;
        let dma_buf = exporter.open(0, PAGE_SIZE, Access::Write)?;
        exporter.fail(EIO.to_errno(), 0);
        ensure_eq!(error(dma_buf.open(0, 8, Access::Write)), Some(EIO));
        ensure_eq!(exporter.accesses(), (0, 0));
        // A failed end is reported once, by the next access.
        exporter.fail(0, ENXIO.to_errno());
        drop(dma_buf.open(0, 8, Access::Write)?);
        exporter.fail(0, 0);
        ensure_eq!(error(dma_buf.open(0, 8, Access::Read)), Some(ENXIO));
        ensure_eq!(exporter.accesses(), (1, 1));
        drop(dma_buf.open(0, 8, Access::Read)?);
        ensure_eq!(exporter.accesses(), (2, 2));
        Ok(())
    }

    #[test]
    fn a_list_is_opened_as_a_whole_or_not_at_all() -> Result {
        let one = Exporter::new(100, true, shim::KFABRIC_KUNIT_MAP_MEMORY)?;
        let two = Exporter::new(100, true, shim::KFABRIC_KUNIT_MAP_MEMORY)?;
        let mut parts = KVVec::new();
        parts.push(Memory::DmaBuf(one.open(0, 100, Access::Write)?), GFP_KERNEL)?;
        parts.push(buffer(0, 50)?.into(), GFP_KERNEL)?;
        parts.push(Memory::DmaBuf(two.open(50, 50, Access::Write)?), GFP_KERNEL)?;
        let list = Memory::gather(parts)?;
        ensure_eq!(list.len(), 200);
        two.fail(EAGAIN.to_errno(), 0);
        ensure_eq!(error(list.open(0, 200, Access::Write)), Some(EAGAIN));
        ensure_eq!((one.accesses(), two.accesses()), ((1, 1), (0, 0)));
        // Only parts that contain some of the bytes are opened.
        let some = list.open(10, 140, Access::Write)?;
        ensure_eq!(some.len(), 140);
        ensure_eq!((one.accesses(), two.accesses()), ((2, 1), (0, 0)));
        drop(some);
        two.fail(0, 0);
        ensure_eq!(list.open(100, 50, Access::Write)?.len(), 50);
        let last = list.open(160, 100, Access::Write)?;
        ensure_eq!(last.len(), 40);
        ensure_eq!((one.accesses(), two.accesses()), ((2, 2), (1, 0)));
        // A list that contains a DMA-BUF cannot be a part of another list.
        let mut parts = KVVec::new();
        parts.push(list, GFP_KERNEL)?;
        ensure_eq!(error(Memory::gather(parts)), Some(EINVAL));
        Ok(())
    }

    #[test]
    fn dma_bufs_that_cannot_be_used_are_refused() -> Result {
        let good = Exporter::new(100, true, shim::KFABRIC_KUNIT_MAP_MEMORY)?;
        for (offset, len) in [(0, 0), (0, 101), (100, 1), (usize::MAX, 2), (1, usize::MAX)] {
            ensure_eq!(error(good.open(offset, len, Access::Read)), Some(EINVAL));
        }
        let read_only = Exporter::new(100, false, shim::KFABRIC_KUNIT_MAP_MEMORY)?;
        ensure_eq!(error(read_only.open(0, 8, Access::Write)), Some(EACCES));
        let readable = read_only.open(0, 8, Access::Read)?;
        ensure!(!readable.writable());
        ensure_eq!(error(readable.open(0, 8, Access::Write)), Some(EACCES));
        for map in [shim::KFABRIC_KUNIT_MAP_NONE, shim::KFABRIC_KUNIT_MAP_IO] {
            let mut exporter = Exporter::new(100, true, map)?;
            ensure_eq!(error(exporter.open(0, 8, Access::Read)), Some(EOPNOTSUPP));
            ensure!(!exporter.is_mapped());
            exporter.put();
            ensure!(exporter.is_released());
        }
        Ok(())
    }
}
