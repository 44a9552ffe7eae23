// SPDX-License-Identifier: GPL-2.0

//! Completion counter of verbs, as specified by ibv_create_comp_cntr(3).
//!
//! A [`CompCntr`] is a [`Counter`] that belongs to a domain and is attached to endpoints
//! ([`Attached`]), each of which it counts for a set of operations. Its values are in a page of the
//! module, which programs map read-only. With external memory each value has a copy in memory of
//! the program, too ([`Copies`]). `kfi_core::comp_cntr` defines what counts, and how the copies are
//! written.
//!
//! The functions correspond to the operations of `struct ib_device_ops`, so a verbs device only
//! calls them:
//!
//! | operation of a verbs device | function |
//! |---|---|
//! | `create_comp_cntr` | [`CompCntr::create`] |
//! | `destroy_comp_cntr` | [`close`](super::object::close) |
//! | `modify_comp_cntr` | [`CompCntr::modify`] |
//! | `read_comp_cntr` | [`CompCntr::read`] |
//! | `query_comp_cntr_caps` | [`Caps::current`] |
//! | `qp_attach_comp_cntr` | [`CompCntr::count`] by the QP, which has a set of its own |
//!
//! # Context
//!
//! Counting: process context, under any lock that is not the counter's. Nothing here allocates or
//! sleeps unless its documentation says so.

mod attached;
mod copies;

#[cfg(kfi_kunit)]
#[path = "../../../../kunit/comp_cntr.rs"]
mod kunit;

use kernel::page::PAGE_SIZE;

use kfi_core::{
    enums::{
        CompCntrEntry,
        CompCntrModifyOp,
        CompCntrType, //
    },
    flags::CompCntrOps,
    limits, //
};

pub(crate) use self::attached::Attached;
use self::copies::Copies;
use super::{
    cntr::Counter,
    object_list::{
        self,
        ObjectListEntry,
        ObjectStats,
        StatsSource, //
    },
    prelude::*, //
};
use crate::mem::{
    PinnedWord,
    SharedPages, //
};

/// The largest value of completion counters that are created from now on.
static MAX_VALUE: Atomic<u64> = Atomic::new(u64::MAX);

/// Sets the largest value of completion counters; 0 stands for 2^64 - 1. Returns the previous one.
pub(super) fn set_max_value(max: u64) -> u64 {
    MAX_VALUE.xchg(if max == 0 { u64::MAX } else { max }, Relaxed)
}

/// What the device can count (ibv_query_comp_cntr_caps). Each domain has these capabilities.
pub(crate) struct Caps {
    /// The largest value; the next one is 0.
    pub(crate) max_value: u64,
    /// The number of counters that a domain may have.
    pub(crate) max_counters: u32,
    /// The operations that can be counted. Datagram endpoints have no RDMA.
    pub(crate) ops: CompCntrOps,
}

impl Caps {
    /// The capabilities. Any context.
    pub(crate) fn current() -> Self {
        Self {
            max_value: MAX_VALUE.load(Relaxed),
            max_counters: limits::MAX_COMP_CNTR,
            ops: CompCntrOps::ALL,
        }
    }
}

/// The attributes of a completion counter.
pub(crate) struct CompCntrAttr {
    pub(crate) unit: CompCntrType,
    /// The words for copies of the completion count and the error count.
    pub(crate) external: Option<[PinnedWord; 2]>,
}

/// The domain of a counter, which counts its completion counters.
struct Place {
    domain: UseRef<Domain>,
    counted: Atomic<bool>,
}

impl Place {
    /// Takes a place in `domain`. Fails with `EBADF` if the domain is closed, `ENOMEM` if it has as
    /// many counters as it may have.
    fn take(domain: &Arc<Domain>) -> Result<Self> {
        let domain = UseRef::new(domain.clone())?;
        domain.add_comp_cntr()?;
        Ok(Self {
            domain,
            counted: Atomic::new(true),
        })
    }

    /// Gives the place back, and releases the use of the domain. Idempotent.
    fn release(&self) {
        if self.counted.xchg(false, Relaxed) {
            self.domain.remove_comp_cntr();
        }
        self.domain.release();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.release();
    }
}

/// A completion counter of a domain.
#[pin_data]
pub(crate) struct CompCntr {
    #[pin]
    counter: Counter,
    unit: CompCntrType,
    /// `None`: no external memory.
    copies: Option<Pin<KBox<Copies>>>,
    max_value: u64,
    uses: UseCount,
    place: Place,
    ident: Ident,
    list_entry: ObjectListEntry,
    _memory: Allowance,
}

impl CompCntr {
    /// Creates a counter of `domain`, with both values 0. Fails with `EINVAL` if both copies are to
    /// be in the same word; `EBADF` if the domain is closed; `ENOMEM`, also if the domain has
    /// [`limits::MAX_COMP_CNTR`] counters. Sleeps.
    pub(crate) fn create(
        domain: &Arc<Domain>,
        attr: CompCntrAttr,
        ident: Ident,
    ) -> Result<Arc<Self>> {
        let place = Place::take(domain)?;
        let copies = match attr.external {
            None => None,
            Some([comp, err]) if comp.is_same(&err) => return Err(EINVAL),
            Some([comp, err]) => Some(KBox::pin_init(Copies::new(comp, err), GFP_KERNEL_ACCOUNT)?),
        };
        let memory = ident
            .budget
            .take_for::<Self>(copies.as_ref().map_or(0, |_| size_of::<Copies>()))?;
        let page_memory = ident.budget.take(PAGE_SIZE as u64)?;
        let max_value = Caps::current().max_value;
        let counter = Counter::new(max_value)?;
        let cntr = Arc::pin_init(
            pin_init!(Self {
                counter <- counter,
                unit: attr.unit,
                copies,
                max_value,
                uses: UseCount::new(),
                place,
                ident,
                list_entry: ObjectListEntry::new(),
                _memory: memory,
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        // A program may map the page and keep it after the counter was destroyed.
        cntr.page().keep(page_memory);
        cntr.list_entry.enter(cntr.clone())?;
        Ok(cntr)
    }

    /// The page with its values. Programs map it read-only.
    pub(crate) fn page(&self) -> &Arc<SharedPages> {
        self.counter.page()
    }

    /// The largest value of either count; the next one is 0. Any context.
    pub(crate) fn max_value(&self) -> u64 {
        self.max_value
    }

    /// Reads a value. Any context.
    pub(crate) fn read(&self, entry: CompCntrEntry) -> u64 {
        match entry {
            CompCntrEntry::Comp => self.counter.read(),
            CompCntrEntry::Err => self.counter.err(),
        }
    }

    /// Sets a value, or adds to it modulo the largest value + 1. Fails with `EINVAL` if `value` is
    /// larger than the largest value; nothing is changed then. Does not sleep.
    pub(crate) fn modify(&self, entry: CompCntrEntry, op: CompCntrModifyOp, value: u64) -> Result {
        if value > self.max_value {
            return Err(EINVAL);
        }
        match (entry, op) {
            (CompCntrEntry::Comp, CompCntrModifyOp::Set) => self.counter.set(value)?,
            (CompCntrEntry::Comp, CompCntrModifyOp::Inc) => self.counter.add(value),
            (CompCntrEntry::Err, CompCntrModifyOp::Set) => {
                self.counter.seterr(value)?;
            }
            (CompCntrEntry::Err, CompCntrModifyOp::Inc) => {
                self.counter.adderr(value);
            }
        }
        self.write_copy(entry);
        Ok(())
    }

    /// Counts an operation with `len` bytes that has ended. Process context, also with bottom
    /// halves disabled; does not sleep.
    pub(crate) fn count(&self, success: bool, len: u64) {
        let entry = if success {
            self.counter.add(self.unit.amount(len));
            CompCntrEntry::Comp
        } else {
            self.counter.adderr(1);
            CompCntrEntry::Err
        };
        self.write_copy(entry);
    }

    /// Writes the copy of a value that was just changed, if there is one. Does not sleep.
    #[inline]
    fn write_copy(&self, entry: CompCntrEntry) {
        if let Some(copies) = &self.copies {
            copies.write(entry, || self.read(entry));
        }
    }

    pub(crate) fn domain(&self) -> &Arc<Domain> {
        self.place.domain.arc()
    }
}

impl Object for CompCntr {
    fn uses(&self) -> &UseCount {
        &self.uses
    }

    /// When this returns, the memory of the copies is not written any more and is released, also if
    /// operations of others are still inside an endpoint that the counter was attached to.
    fn teardown(&self) {
        self.list_entry.leave();
        self.counter.close();
        if let Some(copies) = &self.copies {
            copies.release();
        }
        self.place.release();
    }
}

impl StatsSource for CompCntr {
    fn class(&self) -> object_list::Class {
        object_list::Class::CompCntr
    }

    fn ident(&self) -> &Ident {
        &self.ident
    }

    fn domain(&self) -> &Arc<Domain> {
        self.place.domain.arc()
    }

    fn stats(&self) -> ObjectStats {
        ObjectStats {
            addr: None,
            values: [
                self.read(CompCntrEntry::Comp),
                self.read(CompCntrEntry::Err),
                self.max_value,
                // Each attachment is a use.
                self.uses.count(),
                u64::from(u32::from(self.unit)),
                u64::from(self.copies.is_some()),
                0,
                0,
            ],
        }
    }
}
