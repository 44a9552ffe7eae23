// SPDX-License-Identifier: GPL-2.0

//! Address vector: the peers that the operations of an owner can name.
//!
//! The core defines what a `kfi_addr_t` means ([`kfi_core::av`]). This file adds memory and locks.
//! Every transmit looks up an address, so a spin lock protects the table. It is a leaf and is held
//! for one look-up. A task that changes the table also holds a mutex. Under the mutex it allocates
//! a larger table before it takes the spin lock, and frees the old table after it has released the
//! spin lock.
//!
//! An AV that is opened with KFI_EVENT reports insertions to the EQ that it is bound to. The
//! addresses are inserted when the call returns in this case too. The event gives their number.

use kfi_core::{
    av::{
        index_len,
        Av as Table,
        AvSlot,
        IndexSlot, //
    },
    enums::AvType,
    limits::{
        DEFAULT_AV,
        MAX_AV, //
    },
    peer::RxCtxBits, //
};

use super::{
    eq::Eq,
    prelude::*, //
};
use crate::{
    mem::Budget,
    shim::{
        memory::kmalloc_array_size,
        random::random_u64, //
    }, //
};

/// The attributes of an AV. The front end has checked them.
pub(crate) struct AvAttr {
    pub(crate) kind: AvType,
    /// Addresses to make room for when the AV is opened. 0: the default. At most [`MAX_AV`].
    pub(crate) count: u32,
    /// Insertions are reported to the EQ.
    pub(crate) events: bool,
    /// The upper bits of a `kfi_addr_t` that select a receive context.
    pub(crate) rx_ctx_bits: RxCtxBits,
}

type Slots = KVVec<AvSlot>;
type Index = KVVec<IndexSlot>;

/// State that only a change of the table uses.
struct AvUpdate {
    /// The EQ for events.
    eq: Option<UseRef<Eq>>,
    /// The memory of the table, charged to the owner's budget.
    memory: Allowance,
}

/// Allocates storage for `count` addresses and charges it to `budget`. Fails with `ENOMEM`. Sleeps.
fn storage(count: usize, budget: &Budget) -> Result<(Slots, Index, Allowance)> {
    let bytes =
        kmalloc_array_size::<AvSlot>(count) + kmalloc_array_size::<IndexSlot>(index_len(count));
    let memory = budget.take_for::<Av>(bytes)?;
    Ok((
        KVVec::from_elem(AvSlot::new(), count, GFP_KERNEL_ACCOUNT)?,
        KVVec::from_elem(IndexSlot::new(), index_len(count), GFP_KERNEL_ACCOUNT)?,
        memory,
    ))
}

/// An address vector.
#[pin_data]
pub(crate) struct Av {
    ident: Ident,
    domain: UseRef<Domain>,
    uses: UseCount,
    events: bool,
    rx_ctx_bits: RxCtxBits,
    #[pin]
    table: SpinLock<Table<Slots, Index>>,
    /// Held while the table is changed. Taken before `table`.
    #[pin]
    change: Mutex<AvUpdate>,
}

impl Av {
    /// Opens an AV. Fails with `EINVAL` for more than [`MAX_AV`] addresses; `EBADF` if the domain
    /// is closed; `ENOMEM`. Sleeps.
    pub(crate) fn open(domain: &Arc<Domain>, attr: AvAttr, ident: Ident) -> Result<Arc<Self>> {
        let count = match attr.count {
            0 => DEFAULT_AV,
            count if count <= MAX_AV => count,
            _ => return Err(EINVAL),
        };
        let domain = UseRef::new(domain.clone())?;
        let (slots, index, memory) = storage(count as usize, &ident.budget)?;
        let table = Table::new(attr.kind, slots, index, random_u64()).map_err(|_| EINVAL)?;
        Arc::pin_init(
            pin_init!(Self {
                ident,
                domain,
                uses: UseCount::new(),
                events: attr.events,
                rx_ctx_bits: attr.rx_ctx_bits,
                table <- new_spinlock!(table, "Av::table"),
                change <- new_mutex!(AvUpdate { eq: None, memory }, "Av::change"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Binds the EQ for events. Fails with `EINVAL` if the EQ belongs to another fabric, or the AV
    /// has an EQ; `EBADF` if the AV or the EQ is closed. Sleeps.
    pub(crate) fn bind_eq(&self, eq: &Arc<Eq>) -> Result {
        if !Arc::ptr_eq(eq.fabric(), self.domain.fabric()) {
            return Err(EINVAL);
        }
        let mut change = self.change.lock();
        // Teardown takes this mutex after the AV was marked closed. A use that is added later would
        // never be released.
        if self.uses.is_closed() {
            return Err(EBADF);
        }
        if change.eq.is_some() {
            return Err(EINVAL);
        }
        change.eq = Some(UseRef::new(eq.clone())?);
        Ok(())
    }

    /// Whether insertions are reported to the EQ. The caller asks before it inserts anything. Fails
    /// with `KFI_ENOEQ` if they are, but no EQ is bound. Sleeps.
    pub(crate) fn reports(&self) -> Result<bool> {
        if self.events && self.change.lock().eq.is_none() {
            return Err(to_error(Errno::KFI_ENOEQ));
        }
        Ok(self.events)
    }

    /// Inserts an address and returns its `kfi_addr_t`. Fails with `ENOSPC` if the AV has
    /// [`MAX_AV`] addresses, `ENOMEM`. Sleeps.
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
        // The mutex keeps other tasks from changing the table meanwhile, so the entries fit.
        let old = self.table.lock().grow(slots, index);
        drop(old);
        change.memory = memory;
        self.table.lock().insert(addr).map_err(to_error)
    }

    /// Reports the end of an insertion with `context` to the EQ: the index and the error of each
    /// address that failed, and the number of addresses that were inserted. Sleeps.
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

    /// Removes all of the addresses or none. Fails with `ENOENT` if one of them is not in the AV,
    /// or is in the list twice. Sleeps.
    pub(crate) fn remove(&self, fi_addrs: &[u64]) -> Result {
        let _change = self.change.lock();
        // The spin lock is taken for one address at a time, so it is not held for long. A look-up
        // at the same time may find some of them removed. The mutex keeps other tasks from marking
        // or removing.
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

    /// The address that was inserted as a `kfi_addr_t`: the name of the peer, whichever of its
    /// receive contexts the upper bits select. Fails with `ENOENT`. Does not sleep.
    #[link_section = ".text.hot"]
    pub(crate) fn lookup(&self, fi_addr: u64) -> Result<SockAddr> {
        let (fi_addr, _) = self.rx_ctx_bits.split(fi_addr);
        self.table.lock().lookup(fi_addr).map_err(to_error)
    }

    /// The index of the receive context that a `kfi_addr_t` selects. Any context.
    #[inline]
    pub(super) fn rx_index(&self, fi_addr: u64) -> u16 {
        self.rx_ctx_bits.split(fi_addr).1
    }

    /// The endpoint that a `kfi_addr_t` selects. Fails with `ENOENT` if the peer is not in the AV;
    /// `EHOSTUNREACH` if no peer can have the receive context. Does not sleep.
    pub(super) fn peer(&self, fi_addr: u64) -> Result<PeerAddr> {
        PeerAddr::context(self.lookup(fi_addr)?, self.rx_index(fi_addr)).map_err(to_error)
    }

    /// The `kfi_addr_t` of a source address, or `KFI_ADDR_NOTAVAIL`. Does not sleep.
    pub(super) fn source(&self, addr: &SockAddr) -> u64 {
        self.table.lock().source(addr)
    }

    pub(crate) fn kind(&self) -> AvType {
        self.table.lock().kind()
    }

    pub(crate) fn domain(&self) -> &Arc<Domain> {
        self.domain.arc()
    }
}

impl Object for Av {
    fn uses(&self) -> &UseCount {
        &self.uses
    }

    fn teardown(&self) {
        let eq = self.change.lock().eq.take();
        drop(eq);
        self.domain.release();
    }
}
