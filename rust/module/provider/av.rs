// SPDX-License-Identifier: GPL-2.0

//! Address vector: the peers that an owner's operations can name.
//!
//! The meaning of a `kfi_addr_t` is the core's ([`kfi_core::av`]); here are its memory and its
//! locks. Every transmit looks an address up, so the table is behind a spin lock, a leaf, held for
//! a look-up. Those who change it hold a mutex besides, under which larger tables are allocated
//! before the spin lock is taken, and old ones freed after.
//!
//! An AV opened with KFI_EVENT reports insertions to the EQ that it is bound to. They are done
//! when the call returns all the same; the event says how many were.

use kernel::{
    new_mutex,
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        Mutex,
        SpinLock, //
    }, //
};

use kfi_core::{
    addr::SockAddr,
    av::{
        index_len,
        Av as Table,
        AvSlot,
        IndexSlot, //
    },
    enums::AvType,
    errno::Errno,
    limits::{
        DEFAULT_AV,
        MAX_AV, //
    }, //
};

use super::{
    domain::Domain,
    eq::Eq,
    object::{
        Ident,
        Object,
        Used,
        Uses, //
    }, //
};
use crate::{
    mem::{
        Allowance,
        Budget, //
    },
    shim::{
        errno::to_error,
        random::random_u64, //
    }, //
};

/// What an AV is opened with; checked by the face.
pub(crate) struct AvAttr {
    /// Table or map.
    pub(crate) kind: AvType,
    /// Addresses to make room for at once; 0: default. At most [`MAX_AV`].
    pub(crate) count: u32,
    /// Insertions report to the EQ.
    pub(crate) events: bool,
}

type Slots = KVVec<AvSlot>;
type Index = KVVec<IndexSlot>;

/// What those who change the table look at.
struct Change {
    /// The EQ for events.
    eq: Option<Used<Eq>>,
    /// What the AV takes of its owner's budget.
    memory: Allowance,
}

/// Storage for `count` addresses, charged to `budget`. `ENOMEM`. Sleeps.
fn storage(count: usize, budget: &Budget) -> Result<(Slots, Index, Allowance)> {
    let bytes = count * size_of::<AvSlot>() + index_len(count) * size_of::<IndexSlot>();
    let memory = budget.take_for::<Av>(bytes)?;
    Ok((
        KVVec::from_elem(AvSlot::new(), count, GFP_KERNEL_ACCOUNT)?,
        KVVec::from_elem(IndexSlot::new(), index_len(count), GFP_KERNEL_ACCOUNT)?,
        memory,
    ))
}

/// See the module's story.
#[pin_data]
pub(crate) struct Av {
    ident: Ident,
    domain: Used<Domain>,
    uses: Uses,
    events: bool,
    #[pin]
    table: SpinLock<Table<Slots, Index>>,
    /// Held by those who change the table.
    #[pin]
    change: Mutex<Change>,
}

impl Av {
    /// Opens an AV. `EINVAL` room for more than [`MAX_AV`] wanted, `EBADF` the domain is closed,
    /// `ENOMEM`. Sleeps.
    pub(crate) fn open(domain: &Arc<Domain>, attr: AvAttr, ident: Ident) -> Result<Arc<Self>> {
        let count = match attr.count {
            0 => DEFAULT_AV,
            count if count <= MAX_AV => count,
            _ => return Err(EINVAL),
        };
        let domain = Used::new(domain.clone())?;
        let (slots, index, memory) = storage(count as usize, &ident.budget)?;
        let table = Table::new(attr.kind, slots, index, random_u64()).map_err(|_| EINVAL)?;
        Arc::pin_init(
            pin_init!(Self {
                ident,
                domain,
                uses: Uses::new(),
                events: attr.events,
                table <- new_spinlock!(table, "Av::table"),
                change <- new_mutex!(Change { eq: None, memory }, "Av::change"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Binds the EQ for events. `EINVAL` another fabric or a second EQ, `EBADF` it or the EQ is
    /// closed. Sleeps.
    pub(crate) fn bind_eq(&self, eq: &Arc<Eq>) -> Result {
        if !Arc::ptr_eq(eq.fabric(), self.domain.fabric()) {
            return Err(EINVAL);
        }
        let mut change = self.change.lock();
        // Under the mutex, which teardown takes after the AV was marked closed: a use that came
        // later would stay.
        if self.uses.is_closed() {
            return Err(EBADF);
        }
        if change.eq.is_some() {
            return Err(EINVAL);
        }
        change.eq = Some(Used::new(eq.clone())?);
        Ok(())
    }

    /// Whether insertions report to the EQ; `KFI_ENOEQ` they would, but there is none. To be asked
    /// before anything is inserted. Sleeps.
    pub(crate) fn reports(&self) -> Result<bool> {
        if self.events && self.change.lock().eq.is_none() {
            return Err(to_error(Errno::KFI_ENOEQ));
        }
        Ok(self.events)
    }

    /// Inserts an address; gives its `kfi_addr_t`. `ENOSPC` there are [`MAX_AV`], `ENOMEM`. Sleeps.
    pub(crate) fn insert(&self, addr: SockAddr) -> Result<u64> {
        let mut change = self.change.lock();
        let room = {
            let mut table = self.table.lock();
            if !table.is_full() {
                return table.insert(addr).map_err(to_error);
            }
            table.capacity()
        };
        let larger = room.saturating_mul(2).min(MAX_AV as usize);
        if larger <= room {
            return Err(ENOSPC);
        }
        let (slots, index, memory) = storage(larger, &self.ident.budget)?;
        // The mutex keeps others from changing it meanwhile, so it fits.
        let old = self.table.lock().grow(slots, index);
        drop(old);
        change.memory = memory;
        self.table.lock().insert(addr).map_err(to_error)
    }

    /// Reports the end of an insertion with `context` to the EQ: each address that failed, as its
    /// index and why, and how many were inserted. Sleeps.
    pub(crate) fn report(
        &self,
        context: u64,
        inserted: u64,
        failed: impl Iterator<Item = (u64, Error)>,
    ) {
        if let Some(eq) = &self.change.lock().eq {
            for (index, error) in failed {
                eq.av_error(&self.ident, context, index, error);
            }
            eq.av_complete(&self.ident, context, inserted);
        }
    }

    /// Removes addresses, all or none. `ENOENT` one of them is not there, or stands in the list
    /// twice. Sleeps.
    pub(crate) fn remove(&self, fi_addrs: &[u64]) -> Result {
        let _change = self.change.lock();
        // One by one, so that the spin lock is not held for long; those who look up meanwhile may
        // see some of them gone. The mutex keeps others from marking or removing.
        for (marked, fi_addr) in fi_addrs.iter().enumerate() {
            let mark = self.table.lock().mark(*fi_addr);
            if let Err(error) = mark {
                for fi_addr in fi_addrs.iter().take(marked) {
                    self.table.lock().unmark(*fi_addr);
                }
                return Err(to_error(error));
            }
        }
        for fi_addr in fi_addrs {
            self.table.lock().remove(*fi_addr).map_err(to_error)?;
        }
        Ok(())
    }

    /// The address of a `kfi_addr_t`. `ENOENT`. Does not sleep.
    #[link_section = ".text.hot"]
    pub(crate) fn lookup(&self, fi_addr: u64) -> Result<SockAddr> {
        self.table.lock().lookup(fi_addr).map_err(to_error)
    }

    /// The `kfi_addr_t` of a source, or `KFI_ADDR_NOTAVAIL`. Does not sleep.
    pub(super) fn source(&self, addr: &SockAddr) -> u64 {
        self.table.lock().source(addr)
    }

    /// Table or map.
    pub(crate) fn kind(&self) -> AvType {
        self.table.lock().kind()
    }

    /// The domain that it was made from.
    pub(crate) fn domain(&self) -> &Arc<Domain> {
        self.domain.arc()
    }
}

impl Object for Av {
    fn uses(&self) -> &Uses {
        &self.uses
    }

    fn teardown(&self) {
        let eq = self.change.lock().eq.take();
        drop(eq);
        self.domain.release();
    }
}
