// SPDX-License-Identifier: GPL-2.0

//! Pages of the module that programs map: a counter's values, a CQ's ring.
//!
//! [`SharedPages`] is a number of zeroed pages. A mapping holds a reference to
//! them, so they stay as long as anybody maps them, also when the object that
//! they belong to has been closed; and so does what they take of their owner's
//! budget ([`SharedPages::keep`]).
//!
//! The module reaches them through the direct map: as [`SharedWord`]s, each an
//! aligned 64-bit word that is accessed atomically, and by copying bytes in and
//! out. There is never a reference to their bytes: a program may change them at
//! any moment, and what is read from them is not to be trusted.

use super::account::Allowance;
use crate::shim::{
    bindings as shim,
    word::AtomicWord, //
};
use core::ptr::NonNull;
use kernel::{
    bindings,
    mm::virt::{
        flags,
        VmaNew, //
    },
    page::{
        Page,
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::{
        Arc,
        ArcBorrow,
        SetOnce, //
    },
    transmute::AsBytes, //
};
use kfi_core::word::Word;

/// What a program may do with mapped pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapAccess {
    /// Read them.
    ReadOnly,
    /// Read and write them.
    ReadWrite,
}

/// One of the pages.
///
/// # Invariants
///
/// `addr` is where `page` is in the direct map.
struct SharedPage {
    page: Page,
    addr: NonNull<u8>,
}

/// Zeroed pages that can be mapped, charged to the memory control group of who
/// made them.
pub(crate) struct SharedPages {
    pages: KVVec<SharedPage>,
    /// What they take of their owner's budget.
    memory: SetOnce<Allowance>,
}

/// What the kernel calls when a mapping is copied or goes.
///
/// # Invariants
///
/// It is only that of mappings whose private data is what `Arc::into_raw` gave for a [`SharedPages`],
/// one reference for each mapping.
struct MappingOps(bindings::vm_operations_struct);

// SAFETY: It is never written to.
unsafe impl Sync for MappingOps {}

static MAPPING_OPS: MappingOps = {
    // SAFETY: All functions of the structure may be absent.
    let mut ops: bindings::vm_operations_struct = unsafe { core::mem::zeroed() };
    ops.open = Some(mapping_open);
    ops.close = Some(mapping_close);
    MappingOps(ops)
};

/// # Safety
///
/// Called by the kernel with a mapping that has [`MAPPING_OPS`], and is a copy of one or a part of one.
unsafe extern "C" fn mapping_open(vma: *mut bindings::vm_area_struct) {
    // SAFETY: By the invariant the mapping that this one is a copy of has a reference, and it does not
    // go during the call.
    let pages = unsafe { ArcBorrow::<SharedPages>::from_raw((*vma).vm_private_data.cast()) };
    // INVARIANT: One more, for the copy; its private data is the same.
    let _ = Arc::into_raw(Arc::from(pages));
}

/// # Safety
///
/// Called by the kernel with a mapping that has [`MAPPING_OPS`], and goes.
unsafe extern "C" fn mapping_close(vma: *mut bindings::vm_area_struct) {
    // SAFETY: By the invariant this is the mapping's own reference, which nobody uses any more.
    drop(unsafe { Arc::<SharedPages>::from_raw((*vma).vm_private_data.cast()) });
}

// SAFETY: The pages are accessed atomically or by copying in C, and may be freed by any task.
unsafe impl Send for SharedPages {}

// SAFETY: As above; the list of pages does not change.
unsafe impl Sync for SharedPages {}

impl SharedPages {
    /// As many pages as hold `bytes`, at least one.
    ///
    /// Process context, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(bytes: usize) -> Result<Arc<Self>> {
        let count = bytes.div_ceil(PAGE_SIZE).max(1);
        let mut pages = KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..count {
            let page = Page::alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO)?;
            // SAFETY: The page is valid, and in the direct map (shim.c refuses to be built where
            // not all pages are).
            let addr = unsafe { shim::kfabric_shim_page_address(page.as_ptr()) };
            let addr = NonNull::new(addr.cast()).ok_or(ENOMEM)?;
            // INVARIANT: That is where the page is.
            pages.push(SharedPage { page, addr }, GFP_KERNEL_ACCOUNT)?;
        }
        let memory = SetOnce::new();
        Ok(Arc::new(Self { pages, memory }, GFP_KERNEL_ACCOUNT)?)
    }

    /// Has `memory` be charged as long as the pages are there: their object and every mapping of them.
    /// Once.
    pub(crate) fn keep(&self, memory: Allowance) {
        self.memory.populate(memory);
    }

    /// Bytes: whole pages.
    pub(crate) fn size(&self) -> usize {
        self.pages.len() << PAGE_SHIFT
    }

    /// Maps the pages from the first on, as many as the new mapping has.
    ///
    /// The mapping does not grow. One that can be written is not inherited by
    /// child processes: a ring has one consumer. Nothing in it can be executed.
    ///
    /// Process context, in the `mmap` operation of a file.
    ///
    /// # Errors
    ///
    /// `EINVAL` the mapping is larger than [`size`](Self::size), or to be written
    /// and not shared; `EACCES` a writable mapping of what is [`MapAccess::ReadOnly`],
    /// or an executable one; `ENOMEM`.
    pub(crate) fn map(self: &Arc<Self>, vma: &VmaNew, access: MapAccess) -> Result {
        if vma.end() - vma.start() > self.size() {
            return Err(EINVAL);
        }
        if vma.executable() {
            return Err(EACCES);
        }
        vma.try_clear_mayexec()?;
        match access {
            MapAccess::ReadOnly => {
                if vma.writable() {
                    return Err(EACCES);
                }
                vma.try_clear_maywrite()?;
            }
            MapAccess::ReadWrite => {
                if vma.flags() & flags::SHARED == 0 {
                    return Err(EINVAL);
                }
                vma.set_dontcopy();
            }
        }
        vma.set_dontexpand();
        vma.set_dontdump();
        let vma = vma.set_mixedmap();
        for (addr, shared) in (vma.start()..vma.end()).step_by(PAGE_SIZE).zip(&self.pages) {
            vma.vm_insert_page(addr, &shared.page)?;
        }
        // Last, because the kernel does not close a mapping that was not made.
        // SAFETY: The area is in the making, and this is its only user.
        // INVARIANT: The reference is the mapping's.
        unsafe {
            let vma = vma.as_ptr();
            (*vma).vm_private_data = Arc::into_raw(self.clone()).cast_mut().cast();
            (*vma).vm_ops = &raw const MAPPING_OPS.0;
        }
        Ok(())
    }

    /// The word at byte `offset`; `None` if that is outside or not a multiple
    /// of 8.
    pub(crate) fn word(self: &Arc<Self>, offset: usize) -> Option<SharedWord> {
        if offset % size_of::<u64>() != 0 {
            return None;
        }
        let (addr, _) = self.place(offset)?;
        // INVARIANT: Aligned, within a page, which the reference keeps.
        Some(SharedWord {
            word: addr.cast(),
            _pages: self.clone(),
        })
    }

    /// Copies `bytes` to byte `offset` on.
    ///
    /// Any context. No order: publish with [`Word::store_release`].
    ///
    /// # Errors
    ///
    /// `EINVAL` that is outside; nothing is written then.
    pub(crate) fn write_bytes(&self, offset: usize, bytes: &[u8]) -> Result {
        self.check(offset, bytes.len())?;
        let (mut offset, mut bytes) = (offset, bytes);
        while let Some((addr, here)) = self.place(offset).filter(|_| !bytes.is_empty()) {
            let (now, rest) = bytes.split_at(here.min(bytes.len()));
            // SAFETY: `addr` points to `here` bytes of a page that stays. A program may read or
            // change them meanwhile, which is why this is done in C.
            unsafe {
                shim::kfabric_shim_copy(addr.as_ptr().cast(), now.as_ptr().cast(), now.len())
            };
            offset += now.len();
            bytes = rest;
        }
        Ok(())
    }

    /// Copies `value` to byte `offset`; else as [`write_bytes`](Self::write_bytes).
    #[inline]
    pub(crate) fn write<T: AsBytes>(&self, offset: usize, value: &T) -> Result {
        self.write_bytes(offset, value.as_bytes())
    }

    /// Copies the bytes from byte `offset` on to `bytes`.
    ///
    /// Any context. What a program can write to is not to be trusted.
    ///
    /// # Errors
    ///
    /// `EINVAL` that is outside; nothing is read then.
    #[cfg(kfi_kunit)]
    pub(crate) fn read_bytes(&self, offset: usize, bytes: &mut [u8]) -> Result {
        self.check(offset, bytes.len())?;
        let mut done = 0;
        while let Some((addr, here)) = self.place(offset + done) {
            let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) else {
                break;
            };
            let len = here.min(rest.len());
            // SAFETY: As in `write_bytes`; `rest` has `len` bytes.
            unsafe { shim::kfabric_shim_copy(rest.as_mut_ptr().cast(), addr.as_ptr().cast(), len) };
            done += len;
        }
        Ok(())
    }

    /// Writes words to byte `offset` on, a multiple of 8, all in one page: each is whole to who
    /// reads it.
    ///
    /// Any context. No order: publish with [`Word::store_release`].
    ///
    /// # Errors
    ///
    /// `EINVAL` they are not there; nothing is written then.
    #[inline]
    pub(crate) fn write_words<const N: usize>(&self, offset: usize, words: &[u64; N]) -> Result {
        let to: &[AtomicWord; N] = self.words(offset)?;
        for (to, word) in to.iter().zip(words) {
            to.store(*word);
        }
        Ok(())
    }

    /// Reads words from byte `offset` on; else as [`write_words`](Self::write_words). What a program
    /// can write to is not to be trusted.
    #[inline]
    pub(crate) fn read_words<const N: usize>(&self, offset: usize) -> Result<[u64; N]> {
        let from: &[AtomicWord; N] = self.words(offset)?;
        Ok(from.each_ref().map(|word| word.load()))
    }

    /// `N` words from byte `offset` on, all in one page.
    #[inline]
    fn words<const N: usize>(&self, offset: usize) -> Result<&[AtomicWord; N]> {
        let (addr, here) = self.place(offset).ok_or(EINVAL)?;
        if offset % size_of::<u64>() != 0 || N * size_of::<u64>() > here {
            return Err(EINVAL);
        }
        // SAFETY: `N` aligned words of a page that stays while `self` is borrowed. The module
        // accesses them through this type or by copying in C; a program's accesses to an aligned
        // word are whole, and any value is one.
        Ok(unsafe { &*addr.as_ptr().cast() })
    }

    /// `EINVAL` unless `len` bytes at `offset` are within.
    fn check(&self, offset: usize, len: usize) -> Result {
        match offset.checked_add(len) {
            Some(end) if end <= self.size() => Ok(()),
            _ => Err(EINVAL),
        }
    }

    /// Where byte `offset` is, and how many bytes of its page begin there.
    #[inline]
    fn place(&self, offset: usize) -> Option<(NonNull<u8>, usize)> {
        let shared = self.pages.get(offset >> PAGE_SHIFT)?;
        let within = offset & (PAGE_SIZE - 1);
        // SAFETY: By the type invariants the page is at `addr`, and `within` is within it.
        let addr = unsafe { shared.addr.add(within) };
        Some((addr, PAGE_SIZE - within))
    }
}

/// A word of [`SharedPages`], which it keeps alive.
///
/// # Invariants
///
/// `word` is aligned and lies in the pages.
#[derive(Clone)]
pub(crate) struct SharedWord {
    word: NonNull<u64>,
    _pages: Arc<SharedPages>,
}

// SAFETY: The word is accessed atomically, and its pages may be freed by any task.
unsafe impl Send for SharedWord {}

// SAFETY: As above.
unsafe impl Sync for SharedWord {}

impl SharedWord {
    #[inline(always)]
    fn word(&self) -> &AtomicWord {
        // SAFETY: By the type invariants the word is valid and aligned while `self` lives. The
        // module accesses it through this type; a program's accesses to an aligned word are whole,
        // and any value is one.
        unsafe { AtomicWord::from_ptr(self.word.as_ptr()) }
    }
}

impl Word for SharedWord {
    #[inline(always)]
    fn load(&self) -> u64 {
        self.word().load()
    }

    #[inline(always)]
    fn load_acquire(&self) -> u64 {
        self.word().load_acquire()
    }

    #[inline(always)]
    fn store(&self, value: u64) {
        self.word().store(value);
    }

    #[inline(always)]
    fn store_release(&self, value: u64) {
        self.word().store_release(value);
    }

    #[inline(always)]
    fn fetch_add(&self, n: u64) -> u64 {
        self.word().fetch_add(n)
    }

    #[inline(always)]
    fn swap(&self, value: u64) -> u64 {
        self.word().swap(value)
    }

    #[inline(always)]
    fn compare_exchange(&self, old: u64, new: u64) -> Result<u64, u64> {
        self.word().compare_exchange(old, new)
    }
}
