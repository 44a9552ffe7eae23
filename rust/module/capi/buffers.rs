// SPDX-License-Identifier: GPL-2.0

//! What a consumer passes as memory: a pointer and a length, or a list of addresses (kvec), of
//! pages (bio_vec), or a scatterlist.
//!
//! A [`Local`] is what the call got. [`Local::memory`] makes references to the memory, which last
//! until the operation or the region has ended ([`consumer`]). [`Local::source`] makes the bytes of
//! a transmit, and copies few bytes at kernel addresses. Descriptors of regions (kfi_mr_desc()) are
//! not needed, because no domain has KFI_MR_LOCAL: a consumer may pass them, and they are ignored.
//!
//! # Context
//!
//! Both functions take the context of the call. With [`Context::Atomic`] they can be called in
//! softirqs and hard interrupts and under spin locks, and what they return can be dropped there. A
//! list is shorter then: see [`consumer::ATOMIC_ELEMENTS`] and [`consumer::ATOMIC_PAGES`].

use kernel::{
    bindings::{
        bio_vec,
        kvec,
        scatterlist,
        sg_table, //
    },
    prelude::*, //
};

use super::raw::{
    self,
    kfi_iov_type, //
};
use crate::{
    mem::{
        consumer,
        memref::INLINE_MAX,
        Access,
        Inline,
        MemRef,
        Source, //
    },
    provider::ep::admit::Context, //
};

/// The elements of an operation's local memory.
#[derive(Clone, Copy)]
pub(super) enum Elements {
    /// One range of kernel addresses.
    One(kvec),
    Kvec(*const kvec),
    Bvec(*const bio_vec),
    Sgl(*const scatterlist),
}

/// The local memory of an operation.
///
/// # Invariants
///
/// There are `count` valid elements during the call that made this value, and the consumer keeps
/// the memory that they name by the rules of the interface.
#[derive(Clone, Copy)]
pub(super) struct Local {
    elements: Elements,
    count: usize,
}

impl Local {
    /// `len` bytes at a kernel address.
    ///
    /// # Safety
    ///
    /// By the interface, the memory is that of an operation.
    pub(super) unsafe fn buffer(addr: *const c_void, len: usize) -> Self {
        // INVARIANT: One element, by the requirement above.
        Self {
            elements: Elements::One(kvec {
                iov_base: addr.cast_mut(),
                iov_len: len,
            }),
            count: 1,
        }
    }

    /// A list of `count` elements. Fails with `EINVAL` if there are elements but no list.
    ///
    /// # Safety
    ///
    /// By the interface, the memory is that of an operation.
    pub(super) unsafe fn list(elements: Elements, count: usize) -> Result<Self> {
        let is_null = match elements {
            Elements::One(_) => false,
            Elements::Kvec(list) => list.is_null(),
            Elements::Bvec(list) => list.is_null(),
            Elements::Sgl(list) => list.is_null(),
        };
        if is_null && count != 0 {
            return Err(EINVAL);
        }
        // INVARIANT: By the requirement above.
        Ok(Self { elements, count })
    }

    /// The list of a `struct kfi_msg` or the like. Fails with `EINVAL` for an unknown type, or if
    /// there are elements but no list.
    ///
    /// # Safety
    ///
    /// By the interface, the memory is that of an operation. `list` is the union's member that
    /// `kind` names.
    pub(super) unsafe fn of_msg(
        kind: kfi_iov_type,
        list: *const kvec,
        count: usize,
    ) -> Result<Self> {
        let elements = match kind {
            raw::KFI_KVEC => Elements::Kvec(list),
            raw::KFI_BVEC => Elements::Bvec(list.cast()),
            raw::KFI_SGL => Elements::Sgl(list.cast()),
            _ => return Err(EINVAL),
        };
        // SAFETY: By the requirement above.
        unsafe { Self::list(elements, count) }
    }

    /// The kernel addresses, if it consists of those.
    fn kvecs(&self) -> Option<&[kvec]> {
        match &self.elements {
            Elements::One(one) => Some(core::slice::from_ref(one)),
            Elements::Kvec(_) if self.count == 0 => Some(&[]),
            // SAFETY: There are `count` elements by the type invariants.
            Elements::Kvec(list) => Some(unsafe { core::slice::from_raw_parts(*list, self.count) }),
            _ => None,
        }
    }

    /// The address of its first byte, for the completions of a multi-receive buffer; 0 if it does
    /// not consist of kernel addresses.
    pub(super) fn addr(&self) -> u64 {
        let first = self.kvecs().and_then(|list| list.first());
        first.map_or(0, |first| first.iov_base.expose_provenance() as u64)
    }

    /// Checks the number of elements, before any of them is read. Fails with `E2BIG`.
    fn check_count(&self, call: Context) -> Result {
        if self.count > consumer::most_elements(call == Context::MaySleep) {
            return Err(E2BIG);
        }
        Ok(())
    }

    /// References to the memory. Fails with the errors of [`consumer`].
    pub(super) fn memory(&self, access: Access, call: Context) -> Result<MemRef> {
        let may_sleep = call == Context::MaySleep;
        self.check_count(call)?;
        let is_empty = |list: &[kvec]| list.iter().all(|element| element.iov_len == 0);
        if self.count == 0 || self.kvecs().is_some_and(is_empty) {
            return Ok(MemRef::empty());
        }
        if let Some(list) = self.kvecs() {
            // SAFETY: By the type invariants, and the rules of the interface.
            return unsafe { consumer::kvec(list, access, may_sleep) };
        }
        match self.elements {
            Elements::Bvec(list) => {
                // SAFETY: There are `count` elements by the type invariants.
                let list = unsafe { core::slice::from_raw_parts(list, self.count) };
                // SAFETY: By the type invariants, and the rules of the interface.
                unsafe { consumer::bio_vec(list, access, may_sleep) }
            }
            Elements::Sgl(list) => {
                let count = u32::try_from(self.count).map_err(|_| E2BIG)?;
                let table = sg_table {
                    sgl: list.cast_mut(),
                    nents: count,
                    orig_nents: count,
                };
                // SAFETY: By the type invariants, and the rules of the interface.
                unsafe { consumer::sg_table(&table, access, may_sleep) }
            }
            // Above.
            Elements::One(_) | Elements::Kvec(_) => Err(EINVAL),
        }
    }

    /// The bytes of a transmit: a copy in `inline` if they are few, otherwise their memory. Fails
    /// with the errors of [`consumer`].
    pub(super) fn source<'a>(&self, inline: &'a mut Inline, call: Context) -> Result<Source<'a>> {
        self.check_count(call)?;
        if let Some(list) = self.kvecs() {
            let sum = list
                .iter()
                .try_fold(0usize, |sum, element| sum.checked_add(element.iov_len));
            if sum.is_some_and(|sum| sum <= INLINE_MAX) {
                for element in list.iter().filter(|element| element.iov_len != 0) {
                    if element.iov_base.is_null() {
                        return Err(EFAULT);
                    }
                    // SAFETY: By the type invariants, and the rules of the interface.
                    unsafe { inline.append_kernel(element.iov_base.cast(), element.iov_len)? };
                }
                return Ok(Source::Inline(inline));
            }
        }
        Ok(Source::Mem(self.memory(Access::Read, call)?))
    }
}
