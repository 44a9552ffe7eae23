// SPDX-License-Identifier: GPL-2.0

//! Pages of the module that programs map: the values of a counter, the ring of a CQ.
//!
//! [`SharedPages`] is a number of zeroed pages. Each mapping holds a reference to them. So the
//! pages, and their charge to the owner's budget ([`SharedPages::keep`]), stay as long as any
//! program maps them, even after the object was closed.
//!
//! The module accesses the pages through the direct map: as [`SharedWord`]s, which are aligned
//! 64-bit words accessed atomically, or by copying bytes. It never creates a Rust reference to the
//! bytes. A program may change writable pages at any moment, so values read from them must not be
//! trusted.

use super::budget::Allowance;
use crate::shim::{
    bindings as shim,
    memory::kmalloc_array_size,
    word::AtomicWord, //
};
use core::ptr::NonNull;
use kernel::{
    bindings,
    fs::File,
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

/// The access of a program to mapped pages.
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
/// `addr` is the address of `page` in the direct map.
struct SharedPage {
    page: Page,
    addr: NonNull<u8>,
}

/// Zeroed pages that can be mapped, charged to the memory control group of the task that creates
/// them.
pub(crate) struct SharedPages {
    pages: KVVec<SharedPage>,
    /// Their charge to the owner's budget.
    memory: SetOnce<Allowance>,
}

/// The kernel calls these when a mapping is copied or removed.
///
/// # Invariants
///
/// Used only for mappings whose private data is the result of `Arc::into_raw` for a
/// [`SharedPages`]; each mapping owns one reference.
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
/// Only the kernel calls this, with a mapping that has [`MAPPING_OPS`] and is a copy or a part of
/// another one.
unsafe extern "C" fn mapping_open(vma: *mut bindings::vm_area_struct) {
    // SAFETY: By the invariant, the mapping that this one was copied from has a reference, and it
    // stays during the call.
    let pages = unsafe { ArcBorrow::<SharedPages>::from_raw((*vma).vm_private_data.cast()) };
    // INVARIANT: The copy gets a reference of its own; its private data is the same.
    let _ = Arc::into_raw(Arc::from(pages));
}

/// # Safety
///
/// Only the kernel calls this, with a mapping that has [`MAPPING_OPS`] and is being removed.
unsafe extern "C" fn mapping_close(vma: *mut bindings::vm_area_struct) {
    // SAFETY: By the invariant this reference belongs to the mapping, which does not use it any
    // more.
    drop(unsafe { Arc::<SharedPages>::from_raw((*vma).vm_private_data.cast()) });
}

// SAFETY: The pages are accessed atomically or by copying in C, and any task may free them.
unsafe impl Send for SharedPages {}

// SAFETY: As above; the list of pages does not change.
unsafe impl Sync for SharedPages {}

impl SharedPages {
    /// The number of pages for `bytes`.
    fn count(bytes: usize) -> usize {
        bytes.div_ceil(PAGE_SIZE).max(1)
    }

    /// Bytes of memory that the pages for `bytes` take, with their list. Any context.
    pub(crate) fn bytes_taken(bytes: usize) -> usize {
        let count = Self::count(bytes);
        let list = kmalloc_array_size::<SharedPage>(count);
        count.saturating_mul(PAGE_SIZE).saturating_add(list)
    }

    /// Allocates pages for `bytes`, at least one. Fails with `ENOMEM`. Sleeps.
    pub(crate) fn new(bytes: usize) -> Result<Arc<Self>> {
        let count = Self::count(bytes);
        let mut pages = KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..count {
            let page = Page::alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO)?;
            // SAFETY: The page is valid. It is in the direct map (shim.c does not compile where
            // some pages are not).
            let addr = unsafe { shim::kfabric_shim_page_address(page.as_ptr()) };
            let addr = NonNull::new(addr.cast()).ok_or(ENOMEM)?;
            // INVARIANT: `addr` is the address of the page in the direct map.
            pages.push(SharedPage { page, addr }, GFP_KERNEL_ACCOUNT)?;
        }
        let memory = SetOnce::new();
        Ok(Arc::new(Self { pages, memory }, GFP_KERNEL_ACCOUNT)?)
    }

    /// Keeps `memory` charged until the object and all mappings have released the pages. Called
    /// once.
    pub(crate) fn keep(&self, memory: Allowance) {
        self.memory.populate(memory);
    }

    /// Size in bytes, a multiple of the page size.
    pub(crate) fn size(&self) -> usize {
        self.pages.len() << PAGE_SHIFT
    }

    /// Maps the pages, from the first on, to all of the new mapping.
    ///
    /// The mapping cannot grow and cannot be executed. Child processes do not inherit a writable
    /// mapping, because a ring has one consumer. Process context, in the `mmap` operation of a
    /// file. Fails with `EINVAL` if the mapping is larger than [`size`](Self::size), or it is
    /// [`MapAccess::ReadWrite`] and not shared; `EACCES` for a writable mapping of
    /// [`MapAccess::ReadOnly`] pages, or an executable one; `ENOMEM`.
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
        // Set the operations last: the kernel does not close a mapping whose creation failed.
        // SAFETY: The area is being created, and nothing else uses it yet. INVARIANT: The mapping
        // owns the reference.
        unsafe {
            let vma = vma.as_ptr();
            (*vma).vm_private_data = Arc::into_raw(self.clone()).cast_mut().cast();
            (*vma).vm_ops = &raw const MAPPING_OPS.0;
        }
        Ok(())
    }

    /// [`map`](Self::map) in the `mmap` operation of a file of another module. That module may be
    /// unloaded before the mapping ends, whose operations are functions of this module. So the
    /// mapping gets `file`, an [`anon_file::keeper`](crate::shim::anon_file::keeper), in place of
    /// its own, and no longer holds the other file. Fails as [`map`](Self::map).
    pub(crate) fn map_with_file(
        self: &Arc<Self>,
        vma: &VmaNew,
        access: MapAccess,
        file: &File,
    ) -> Result {
        self.map(vma, access)?;
        // SAFETY: The area is being created, is of a file, and nothing else uses it yet. The call
        // takes a reference to the file.
        unsafe { bindings::vma_set_file(vma.as_ptr(), file.as_ptr()) };
        Ok(())
    }

    /// The word at byte `offset`; `None` if it is outside or not a multiple of 8.
    pub(crate) fn word(self: &Arc<Self>, offset: usize) -> Option<SharedWord> {
        if offset % size_of::<u64>() != 0 {
            return None;
        }
        let (addr, _) = self.locate(offset)?;
        // INVARIANT: The word is aligned and lies in a page, which the reference keeps.
        Some(SharedWord {
            word: addr.cast(),
            _pages: self.clone(),
        })
    }

    /// Copies `bytes` to the pages, at byte `offset`. Fails with `EINVAL` if the range is outside
    /// the pages. Nothing is written then. Any context. Does not order the writes: publish them
    /// with [`Word::store_release`].
    pub(crate) fn write_bytes(&self, offset: usize, bytes: &[u8]) -> Result {
        self.check(offset, bytes.len())?;
        let (mut offset, mut bytes) = (offset, bytes);
        while let Some((addr, here)) = self.locate(offset).filter(|_| !bytes.is_empty()) {
            let (now, rest) = bytes.split_at(here.min(bytes.len()));
            // SAFETY: `addr` points to `here` bytes of a page that stays valid. A program may read
            // or change them during the copy, which is why C does it.
            unsafe {
                shim::kfabric_shim_copy(addr.as_ptr().cast(), now.as_ptr().cast(), now.len())
            };
            offset += now.len();
            bytes = rest;
        }
        Ok(())
    }

    /// Copies `value` to byte `offset`; otherwise as [`write_bytes`](Self::write_bytes).
    #[inline]
    pub(crate) fn write<T: AsBytes>(&self, offset: usize, value: &T) -> Result {
        self.write_bytes(offset, value.as_bytes())
    }

    /// Copies bytes from the pages, from byte `offset` on, to `bytes`. Fails with `EINVAL` if the
    /// range is outside the pages. Nothing is read then. Any context. The result must not be
    /// trusted if a program can write to the pages.
    #[cfg(kfi_kunit)]
    pub(crate) fn read_bytes(&self, offset: usize, bytes: &mut [u8]) -> Result {
        self.check(offset, bytes.len())?;
        let mut done = 0;
        while let Some((addr, here)) = self.locate(offset + done) {
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

    /// Writes words at byte `offset`, which is a multiple of 8, all in one page. Readers see each
    /// word either old or new. Fails with `EINVAL` if the range is outside the pages, crosses a
    /// page or is not aligned. Nothing is written then. Any context. Does not order the writes:
    /// publish them with [`Word::store_release`].
    #[inline]
    pub(crate) fn write_words<const N: usize>(&self, offset: usize, words: &[u64; N]) -> Result {
        let to: &[AtomicWord; N] = self.words(offset)?;
        for (to, word) in to.iter().zip(words) {
            to.store(*word);
        }
        Ok(())
    }

    /// Reads words at byte `offset`; otherwise as [`write_words`](Self::write_words). The result
    /// must not be trusted if a program can write to the pages.
    #[inline]
    pub(crate) fn read_words<const N: usize>(&self, offset: usize) -> Result<[u64; N]> {
        let from: &[AtomicWord; N] = self.words(offset)?;
        Ok(from.each_ref().map(|word| word.load()))
    }

    /// `N` words at byte `offset`, all in one page.
    #[inline]
    fn words<const N: usize>(&self, offset: usize) -> Result<&[AtomicWord; N]> {
        let (addr, here) = self.locate(offset).ok_or(EINVAL)?;
        if offset % size_of::<u64>() != 0 || N * size_of::<u64>() > here {
            return Err(EINVAL);
        }
        // SAFETY: `N` aligned words of a page that stays while `self` is borrowed. The module
        // accesses them through this type or by copying in C. A program accesses an aligned word as
        // a whole, and any value is valid.
        Ok(unsafe { &*addr.as_ptr().cast() })
    }

    /// Fails with `EINVAL` unless `len` bytes at `offset` are within the pages.
    fn check(&self, offset: usize, len: usize) -> Result {
        match offset.checked_add(len) {
            Some(end) if end <= self.size() => Ok(()),
            _ => Err(EINVAL),
        }
    }

    /// The address of byte `offset`, and the number of bytes from there to the end of its page.
    #[inline]
    fn locate(&self, offset: usize) -> Option<(NonNull<u8>, usize)> {
        let shared = self.pages.get(offset >> PAGE_SHIFT)?;
        let within = offset & (PAGE_SIZE - 1);
        // SAFETY: By the type invariants the page is at `addr`, and `within` is within it.
        let addr = unsafe { shared.addr.add(within) };
        Some((addr, PAGE_SIZE - within))
    }
}

/// A word of [`SharedPages`]. It holds a reference to the pages.
///
/// # Invariants
///
/// `word` is aligned and lies in the pages.
#[derive(Clone)]
pub(crate) struct SharedWord {
    word: NonNull<u64>,
    _pages: Arc<SharedPages>,
}

// SAFETY: The word is accessed atomically, and any task may free its pages.
unsafe impl Send for SharedWord {}

// SAFETY: As above.
unsafe impl Sync for SharedWord {}

impl SharedWord {
    #[inline(always)]
    fn word(&self) -> &AtomicWord {
        // SAFETY: By the type invariants the word is valid and aligned while `self` lives. The
        // module accesses it through this type; a program accesses an aligned word as a whole, and
        // any value is valid.
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
