// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_mem`: memory of programs, memory of the module, and copies between them.
//!
//! The thread of a test gets user memory of its own (`UserMemory`), like a program. Guest scenarios
//! test limits on locked memory and mappings of the module's pages.

use super::{
    kunit_kinds::{
        buffer,
        pattern, //
    },
    memref::{
        copy_mem,
        copy_part,
        equal,
        fill,
        INLINE_MAX, //
    },
    pinned::PINNED_MAX,
    *, //
};
use crate::{
    kunit::helpers::{
        thread,
        LockedPage,
        UserMemory, //
    },
    shim::{
        bindings::{
            kfabric_bind,
            kfabric_getwait,
            kfabric_nop,
            kfabric_op, //
        },
        user::{
            read_element,
            read_struct,
            write_struct, //
        },
        word::AtomicWord, //
    }, //
};
use core::mem::MaybeUninit;

use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};
use kfi_core::word::Word;

/// Returns memory of the test's thread that contains the pattern.
fn user(len: usize) -> Result<UserMemory> {
    let memory = UserMemory::map(len, true)?;
    for at in (0..len).step_by(PAGE_SIZE) {
        let bytes: KVec<u8> = page_of_pattern(at)?;
        memory.write(at, &bytes)?;
    }
    Ok(memory)
}

fn page_of_pattern(skip: usize) -> Result<KVec<u8>> {
    let mut bytes = KVec::with_capacity(PAGE_SIZE, GFP_KERNEL)?;
    for index in 0..PAGE_SIZE {
        bytes.push(pattern(skip + index), GFP_KERNEL)?;
    }
    Ok(bytes)
}

fn range(memory: &UserMemory, offset: usize, len: usize) -> UserRange {
    UserRange {
        addr: (memory.addr() + offset) as u64,
        len: len as u64,
    }
}

/// Returns the word at byte `offset` of `pages`.
fn value(pages: &SharedPages, offset: usize) -> Result<u64> {
    let mut bytes = [0; 8];
    pages.read_bytes(offset, &mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

/// Returns the error of a call that must fail.
pub(super) fn error<T>(result: Result<T>) -> Option<Error> {
    result.err()
}

#[kunit_tests(kfabric_mem)]
mod tests {
    use super::*;

    #[test]
    fn inline_bytes_have_a_limit() -> Result {
        let most = Inline::from_slice(&[9; INLINE_MAX]).ok_or(EINVAL)?;
        ensure_eq!(most.as_slice().len(), INLINE_MAX);
        ensure!(Inline::from_slice(&[9; INLINE_MAX + 1]).is_none());
        ensure!(Inline::from_slice(&[]).ok_or(EINVAL)?.as_slice().is_empty());
        Ok(())
    }

    #[test]
    fn atomics_need_an_aligned_word() -> Result {
        let memory = user(PAGE_SIZE)?;
        let pinned = Pinned::new(&[range(&memory, 8, 20)], Access::Write)?;
        let pinned = MemRef::pinned(pinned);
        let word = payload::word(&pinned.slice(8, 8)).map(|word| word.fetch_add(1));
        let bytes: [u8; 8] = core::array::from_fn(|index| pattern(16 + index));
        let before = u64::from_ne_bytes(bytes);
        ensure_eq!(word, Some(before));
        let after = payload::word(&pinned.slice(8, 12)).map(|word| word.load());
        ensure_eq!(after, Some(before + 1));
        // Not aligned, too short, and empty ranges.
        for (offset, len) in [(4, 8), (1, 8), (16, 4), (8, 7), (20, 0)] {
            ensure!(payload::word(&pinned.slice(offset, len)).is_none());
        }
        // 8 bytes that are not contiguous.
        let pieces = [range(&memory, 0, 4), range(&memory, 100, 4)];
        let pieces = MemRef::pinned(Pinned::new(&pieces, Access::Write)?);
        ensure!(payload::word(&pieces).is_none());
        Ok(())
    }

    #[test]
    fn inline_bytes_from_user() -> Result {
        let memory = user(PAGE_SIZE)?;
        let ranges = [
            range(&memory, 3, 100),
            range(&memory, 0, 0),
            range(&memory, 500, 156),
        ];
        let mut inline = Inline::new();
        inline.read_user(&ranges)?;
        ensure_eq!(inline.as_slice().len(), INLINE_MAX);
        ensure!((0..100).all(|index| inline.as_slice().get(index) == Some(&pattern(3 + index))));
        ensure!(
            (0..156).all(|index| inline.as_slice().get(100 + index) == Some(&pattern(500 + index)))
        );

        let over = [range(&memory, 0, 100), range(&memory, 0, 157)];
        ensure_eq!(inline.read_user(&over).err(), Some(EMSGSIZE));
        let endless = [range(&memory, 0, 1), range(&memory, 0, usize::MAX)];
        ensure_eq!(inline.read_user(&endless).err(), Some(EMSGSIZE));
        ensure_eq!(
            inline.read_user(&[range(&memory, PAGE_SIZE - 1, 2)]).err(),
            Some(EFAULT)
        );
        let kernel = [UserRange {
            addr: u64::MAX - 4095,
            len: 8,
        }];
        ensure_eq!(inline.read_user(&kernel).err(), Some(EFAULT));
        // A range of no bytes is not accessed.
        let nothing = [UserRange {
            addr: u64::MAX,
            len: 0,
        }];
        inline.read_user(&nothing)?;
        ensure!(inline.as_slice().is_empty());
        Ok(())
    }

    #[test]
    fn a_slice_is_limited_to_the_memory() -> Result {
        let memory = buffer(0, 1000)?;
        ensure_eq!(memory.slice(0, 1000).len(), 1000);
        ensure_eq!(memory.slice(990, 100).len(), 10);
        ensure_eq!(memory.slice(1000, 1).len(), 0);
        ensure_eq!(memory.slice(usize::MAX, usize::MAX).len(), 0);
        let part = memory.slice(100, 200);
        ensure!(equal(&part.slice(50, 60), &buffer(150, 60)?));
        ensure_eq!(part.slice(150, 100).len(), 50);
        ensure_eq!(MemRef::empty().len(), 0);
        ensure_eq!(MemRef::empty().slice(0, 10).len(), 0);
        ensure_eq!(MemRef::buffer(0)?.len(), 0);
        Ok(())
    }

    #[test]
    fn a_new_buffer_is_zero() -> Result {
        let memory = MemRef::buffer(3 * PAGE_SIZE + 5)?;
        ensure!(memory.writable());
        let zero = Inline::from_slice(&[0; INLINE_MAX]).ok_or(EINVAL)?;
        let zero = Source::Inline(&zero).to_buffer()?;
        for at in (0..memory.len()).step_by(INLINE_MAX) {
            let part = memory.slice(at, INLINE_MAX);
            ensure!(equal(&part, &zero.slice(0, part.len())));
        }
        Ok(())
    }

    #[test]
    fn a_copy_ends_with_the_shorter_side() -> Result {
        let source = Source::Mem(buffer(0, 300)?);
        let target = MemRef::buffer(1000)?;
        ensure_eq!(copy(&target, &source), 300);
        ensure_eq!(copy(&target.slice(0, 10), &source), 10);
        ensure_eq!(copy(&target.slice(300, 1000), &source), 300);
        ensure!(equal(&target.slice(0, 300), &buffer(0, 300)?));
        ensure!(equal(&target.slice(300, 300), &buffer(0, 300)?));
        ensure_eq!(copy(&MemRef::empty(), &source), 0);
        ensure_eq!(copy(&target, &Source::Mem(MemRef::empty())), 0);
        ensure_eq!(copy_part(&target, &source, 290), 10);
        ensure!(equal(&target.slice(0, 10), &buffer(290, 10)?));
        ensure_eq!(copy_part(&target, &source, 300), 0);
        ensure_eq!(copy_part(&target, &source, usize::MAX), 0);
        let inline = Inline::from_slice(&[1, 2, 3]).ok_or(EINVAL)?;
        let inline = Source::Inline(&inline);
        ensure_eq!(copy_part(&target, &inline, 2), 1);
        ensure_eq!(copy_part(&target, &inline, 4), 0);
        ensure_eq!(copy(&target, &inline), 3);
        Ok(())
    }

    #[test]
    fn pinned_memory_is_the_programs() -> Result {
        let memory = user(8 * PAGE_SIZE)?;
        let before = UserMemory::charged();
        let (from, len) = (100, 5 * PAGE_SIZE + 17);
        let pinned = Pinned::new(&[range(&memory, from, len)], Access::Write)?;
        ensure_eq!(pinned.len(), len);
        ensure!(pinned.writable());
        ensure_eq!(UserMemory::charged() - before, 6);
        let all = MemRef::pinned(pinned);
        ensure!(equal(&all, &buffer(from, len)?));
        // Parts with odd offsets and lengths, across page boundaries.
        for (offset, part) in [(0, 1), (1, 4095), (3995, 2), (4000, 9000), (len - 1, 1)] {
            ensure!(equal(
                &all.slice(offset, part),
                &buffer(from + offset, part)?
            ));
        }
        // A write changes these bytes and no others.
        ensure_eq!(
            copy(&all.slice(4090, 5000), &Source::Mem(buffer(7, 5000)?)),
            5000
        );
        let mut byte = [0];
        for (offset, expected) in [
            (from + 4089, pattern(from + 4089)),
            (from + 4090, pattern(7)),
            (from + 9089, pattern(7 + 4999)),
            (from + 9090, pattern(from + 9090)),
        ] {
            memory.read(offset, &mut byte)?;
            ensure_eq!(byte[0], expected);
        }
        // Writes of the program are visible.
        memory.write(from, &[0xee])?;
        let seen = all.slice(0, 1);
        let expected = Inline::from_slice(&[0xee]).ok_or(EINVAL)?;
        let expected = Source::Inline(&expected).to_buffer()?;
        ensure!(equal(&seen, &expected));
        drop(seen);
        drop(all);
        ensure_eq!(UserMemory::charged(), before);
        Ok(())
    }

    #[test]
    fn ranges_are_pinned_end_to_end() -> Result {
        let memory = user(4 * PAGE_SIZE)?;
        let before = UserMemory::charged();
        // Neighbours in one page, an empty range, the same page twice, and a long range.
        let ranges = [
            range(&memory, 0, 100),
            range(&memory, 100, 50),
            range(&memory, 4000, 0),
            range(&memory, 10, 20),
            range(&memory, 4000, 8000),
        ];
        let pinned = Pinned::new(&ranges, Access::Read)?;
        ensure_eq!(pinned.len(), 8170);
        ensure!(!pinned.writable());
        ensure_eq!(UserMemory::charged() - before, 6);
        let all = MemRef::pinned(pinned);
        ensure!(!all.writable());
        ensure!(equal(&all.slice(0, 150), &buffer(0, 150)?));
        ensure!(equal(&all.slice(150, 20), &buffer(10, 20)?));
        ensure!(equal(&all.slice(170, 8000), &buffer(4000, 8000)?));
        let kept = all.to_buffer()?;
        ensure!(equal(&all, &kept));
        drop(all);
        ensure_eq!(UserMemory::charged(), before);
        // An empty list.
        let none = Pinned::new(&[], Access::Write)?;
        ensure_eq!(none.len(), 0);
        ensure_eq!(MemRef::pinned(none).len(), 0);
        Ok(())
    }

    /// The task that unpins is often a peer's, and the program can hold the lock of its page.
    #[test]
    fn unpinning_takes_no_lock_of_a_page() -> Result {
        let memory = user(PAGE_SIZE)?;
        let all = [range(&memory, 0, PAGE_SIZE)];
        let read = Pinned::new(&all, Access::Read)?;
        ensure!(!LockedPage::new(&memory)?.is_dirty());
        let written = MemRef::pinned(Pinned::new(&all, Access::Write)?);
        let page = LockedPage::new(&memory)?;
        ensure!(page.is_dirty());
        fill(&written, 7);
        // To mark the page under its lock would wait for ever.
        drop(written);
        drop(read);
        drop(page);
        ensure!(LockedPage::new(&memory)?.is_dirty());
        let mut bytes = [0; 1];
        memory.read(100, &mut bytes)?;
        ensure_eq!(bytes, [7]);
        Ok(())
    }

    #[test]
    fn a_large_region_can_be_pinned() -> Result {
        const LEN: usize = 16 << 20;
        let memory = user(LEN)?;
        let all = MemRef::pinned(Pinned::new(&[range(&memory, 1, LEN - 1)], Access::Write)?);
        let kept = all.to_buffer()?;
        ensure!(equal(&kept, &all));
        ensure!(equal(
            &kept.slice(LEN - 1000, 999),
            &buffer(LEN - 999, 999)?
        ));
        fill(&all, 0x5a);
        let mut bytes = [0; 2];
        memory.read(0, &mut bytes)?;
        ensure_eq!(bytes, [pattern(0), 0x5a]);
        memory.read(LEN - 2, &mut bytes)?;
        ensure_eq!(bytes, [0x5a, 0x5a]);
        ensure_eq!(copy_mem(&all, &kept), LEN - 1);
        ensure!(equal(&kept, &all));
        Ok(())
    }

    #[test]
    fn invalid_ranges_cannot_be_pinned() -> Result {
        let memory = user(2 * PAGE_SIZE)?;
        let hole = {
            let mapped = UserMemory::map(PAGE_SIZE, true)?;
            mapped.addr() as u64
        };
        let before = UserMemory::charged();
        let wraps = UserRange {
            addr: u64::MAX - 10,
            len: 20,
        };
        ensure_eq!(error(Pinned::new(&[wraps], Access::Read)), Some(EINVAL));
        let last_page = UserRange {
            addr: u64::MAX - 10,
            len: 5,
        };
        ensure_eq!(error(Pinned::new(&[last_page], Access::Read)), Some(EINVAL));
        let long = range(&memory, 0, PINNED_MAX + 1);
        ensure_eq!(error(Pinned::new(&[long], Access::Read)), Some(EINVAL));
        let half = range(&memory, 0, PINNED_MAX / 2 + 1);
        ensure_eq!(
            error(Pinned::new(&[half, half], Access::Read)),
            Some(EINVAL)
        );
        let kernel = UserRange {
            addr: 1 << 63,
            len: 8,
        };
        ensure_eq!(error(Pinned::new(&[kernel], Access::Read)), Some(EFAULT));
        let unmapped = UserRange { addr: hole, len: 8 };
        ensure_eq!(error(Pinned::new(&[unmapped], Access::Read)), Some(EFAULT));
        // The ranges that were pinned before the failure are unpinned.
        let partly = [range(&memory, 0, 2 * PAGE_SIZE), unmapped];
        ensure_eq!(error(Pinned::new(&partly, Access::Write)), Some(EFAULT));
        ensure_eq!(UserMemory::charged(), before);
        Ok(())
    }

    #[test]
    fn pages_outlive_their_mapping() -> Result {
        let memory = user(3 * PAGE_SIZE)?;
        let pinned = Pinned::new(&[range(&memory, 5, 2 * PAGE_SIZE)], Access::Write)?;
        drop(memory);
        ensure!(equal(&MemRef::pinned(pinned), &buffer(5, 2 * PAGE_SIZE)?));
        Ok(())
    }

    #[test]
    fn shared_pages_have_bounds() -> Result {
        let pages = SharedPages::new(PAGE_SIZE + 1)?;
        ensure_eq!(pages.size(), 2 * PAGE_SIZE);
        ensure_eq!(SharedPages::new(0)?.size(), PAGE_SIZE);
        let mut bytes = [1; 16];
        pages.read_bytes(PAGE_SIZE - 8, &mut bytes)?;
        ensure_eq!(bytes, [0; 16]);
        let text = *b"over a boundary.";
        pages.write_bytes(PAGE_SIZE - 8, &text)?;
        pages.read_bytes(PAGE_SIZE - 8, &mut bytes)?;
        ensure_eq!(bytes, text);
        pages.write(2 * PAGE_SIZE - 8, &0x1122_3344_5566_7788u64)?;
        ensure_eq!(value(&pages, 2 * PAGE_SIZE - 8)?, 0x1122_3344_5566_7788);
        for offset in [2 * PAGE_SIZE - 15, 2 * PAGE_SIZE, usize::MAX - 3] {
            ensure_eq!(error(pages.write_bytes(offset, &text)), Some(EINVAL));
            ensure_eq!(error(pages.read_bytes(offset, &mut bytes)), Some(EINVAL));
        }
        pages.write_bytes(2 * PAGE_SIZE, &[])?;
        ensure_eq!(value(&pages, 2 * PAGE_SIZE - 8)?, 0x1122_3344_5566_7788);
        ensure!(pages.word(4).is_none());
        ensure!(pages.word(2 * PAGE_SIZE).is_none());
        ensure!(pages.word(2 * PAGE_SIZE - 8).is_some());
        Ok(())
    }

    #[test]
    fn a_shared_word_is_read_and_written() -> Result {
        let pages = SharedPages::new(8)?;
        let word = pages.word(16).ok_or(EINVAL)?;
        let same = word.clone();
        ensure_eq!(word.load(), 0);
        word.store(5);
        ensure_eq!(same.load_acquire(), 5);
        same.store_release(u64::MAX);
        ensure_eq!(word.fetch_add(3), u64::MAX);
        ensure_eq!(word.swap(10), 2);
        ensure_eq!(word.compare_exchange(9, 1), Err(10));
        ensure_eq!(word.compare_exchange(10, 1), Ok(10));
        ensure_eq!(value(&pages, 16)?, 1);
        ensure_eq!(value(&pages, 8)?, 0);
        drop(pages);
        ensure_eq!(word.load(), 1);
        Ok(())
    }

    #[test]
    fn no_addition_is_lost() -> Result {
        const EACH: u64 = 100_000;
        let word = Arc::new(AtomicWord::new(0), GFP_KERNEL)?;
        let other = word.clone();
        let thread = thread(move || {
            for _ in 0..EACH {
                other.fetch_add(1);
            }
        })?;
        for _ in 0..EACH {
            let mut old = word.load();
            while let Err(found) = word.compare_exchange(old, old.wrapping_add(1)) {
                old = found;
            }
        }
        thread.join();
        ensure_eq!(word.load(), 2 * EACH);
        Ok(())
    }

    #[test]
    fn only_the_part_that_both_sides_know_is_written() -> Result {
        const KNOWN: usize = size_of::<kfabric_bind>();
        let memory = UserMemory::map(PAGE_SIZE, true)?;
        let ptr = memory.ptr(0);
        let value = kfabric_bind {
            size: KNOWN as u32,
            flags: 7,
            ..Default::default()
        };
        let mut bytes = [0; KNOWN + 8];
        for (user_size, kept) in [(KNOWN + 8, 8), (KNOWN - 8, 16)] {
            memory.write(0, &[0xaa; KNOWN + 8])?;
            write_struct(ptr, &value, user_size)?;
            memory.read(0, &mut bytes)?;
            ensure!(bytes.iter().rev().take(kept).all(|byte| *byte == 0xaa));
            ensure_eq!(bytes[0], KNOWN as u8);
        }
        let gone = write_struct(memory.ptr(PAGE_SIZE - 4), &kfabric_nop::default(), 8);
        ensure_eq!(error(gone), Some(EFAULT));
        Ok(())
    }

    #[test]
    fn structures_that_are_not_aligned_to_words() -> Result {
        /// The structure follows a 32-bit word, so its address is not a multiple of 8.
        #[repr(C, align(8))]
        #[derive(Default)]
        struct Odd {
            before: u32,
            value: kfabric_getwait,
        }
        const SIZE: usize = size_of::<kfabric_getwait>();
        let memory = UserMemory::map(PAGE_SIZE, true)?;
        let ptr = memory.ptr(4);
        memory.write(4, &(SIZE as u32).to_ne_bytes())?;
        let mut odd = Odd::default();
        (odd.value, _) = read_struct(ptr)?;
        ensure_eq!(odd.value.size as usize, SIZE);
        memory.write(4, &[0xaa; SIZE])?;
        write_struct(ptr, &odd.value, SIZE)?;
        let mut bytes = [0; SIZE];
        memory.read(4, &mut bytes)?;
        ensure!(bytes.iter().skip(4).all(|byte| *byte == 0));
        ensure_eq!(bytes[0], SIZE as u8);
        Ok(())
    }

    #[test]
    fn elements_of_an_array_with_a_stride() -> Result {
        const V1: usize = size_of::<kfabric_op>();
        let memory = UserMemory::map(PAGE_SIZE, true)?;
        let stride = V1 + 8;
        let array = memory.ptr(0);
        memory.write(2 * stride, &3u32.to_ne_bytes())?;
        let mut op = MaybeUninit::new(kfabric_op {
            opcode: 9,
            tag: 9,
            ..kfabric_op::default()
        });
        let element = read_element(array, 2, stride, V1, &mut op)?;
        ensure_eq!(element.opcode, 3);
        ensure_eq!(element.tag, 0);
        memory.write(2 * stride + V1, &[1])?;
        let mut read = |index, stride| read_element(array, index, stride, V1, &mut op).err();
        ensure_eq!(read(2, stride), Some(E2BIG));
        ensure_eq!(read(0, V1 - 1), Some(EINVAL));
        ensure_eq!(read(0, PAGE_SIZE + 1), Some(E2BIG));
        ensure_eq!(read(usize::MAX, V1), Some(EFAULT));
        ensure_eq!(read(PAGE_SIZE, V1), Some(EFAULT));
        // Elements of the present size are read word by word.
        memory.write(3 * V1, &5u32.to_ne_bytes())?;
        memory.write(4 * V1 - 1, &[7])?;
        ensure_eq!(read(3, V1), None);
        let last = PAGE_SIZE / V1 - 1;
        ensure_eq!(read(last, V1), None);
        ensure_eq!(read(last + 1, V1), Some(EFAULT));
        let element = read_element(array, 3, V1, V1, &mut op)?;
        ensure_eq!(element.opcode, 5);
        ensure_eq!(element.threshold, 7 << 56);
        Ok(())
    }
}
