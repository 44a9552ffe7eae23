// SPDX-License-Identifier: GPL-2.0

//! Look-ups that take no lock.
//!
//! [`RcuMap`] holds values under numbers. They are looked up under RCU, from softirq too; entering
//! and removing is for process context. A value that was removed is dropped when nobody can be
//! looking at it any more, by the module's [workqueue](super::work): so its drop may sleep.

use crate::shim::{
    bindings as shim,
    work, //
};
use core::marker::PhantomData;
use kernel::{
    bindings,
    error::to_result,
    prelude::*,
    sync::rcu,
    types::Opaque, //
};

/// A map from numbers to values.
///
/// # Invariants
///
/// `map` is initialised; its entries are pointers that [`Slot::into_raw`] gave, each owned by the
/// map.
#[pin_data(PinnedDrop)]
pub(crate) struct RcuMap<V: Send + Sync + 'static> {
    #[pin]
    map: Opaque<bindings::xarray>,
    /// Where [`insert_next`](Self::insert_next) goes on; changed under the lock of `map`.
    next: Opaque<u32>,
    _values: PhantomData<V>,
}

// SAFETY: The map has a lock of its own, and its values may be used and dropped by any task.
unsafe impl<V: Send + Sync + 'static> Send for RcuMap<V> {}
// SAFETY: As above.
unsafe impl<V: Send + Sync + 'static> Sync for RcuMap<V> {}

/// A value in a map, and what drops it.
#[repr(C)]
struct Slot<V> {
    work: Opaque<bindings::rcu_work>,
    value: V,
}

impl<V: Send + Sync + 'static> Slot<V> {
    /// A slot on the heap, for a map. `ENOMEM`.
    fn new(value: V) -> Result<KBox<Self>> {
        let slot = KBox::new(
            Self {
                work: Opaque::uninit(),
                value,
            },
            GFP_KERNEL_ACCOUNT,
        )?;
        // SAFETY: `work` is valid for initialisation, and stays where it is, on the heap.
        unsafe { shim::kfabric_shim_rcu_work_init(slot.work.get(), Some(Self::run)) };
        Ok(slot)
    }

    fn into_raw(self: KBox<Self>) -> *mut Self {
        KBox::into_raw(self)
    }

    /// Drops the slot after a grace period.
    ///
    /// # Safety
    ///
    /// `slot` came from `into_raw`, and is given away; nobody can look it up any more.
    unsafe fn drop_later(slot: *mut Self) {
        // SAFETY: By the requirements the work is initialised, and not queued. The queue is there
        // as long as there are maps.
        unsafe { bindings::queue_rcu_work(work::raw_queue(), (*slot).work.get()) };
    }

    /// # Safety
    ///
    /// Called by the workqueue with the work of a slot that `drop_later` gave away.
    unsafe extern "C" fn run(work: *mut bindings::work_struct) {
        // The work is the first field of `rcu_work`, as that is of the slot.
        // SAFETY: By the requirements, and as a grace period has passed nobody else uses it.
        drop(unsafe { KBox::from_raw(work.cast::<Self>()) });
    }
}

kernel::static_assert!(core::mem::offset_of!(bindings::rcu_work, work) == 0);

impl<V: Send + Sync + 'static> RcuMap<V> {
    /// A map without values; [`insert_next`](Self::insert_next) begins at `next`.
    pub(crate) fn new(next: u32) -> impl PinInit<Self> {
        pin_init!(Self {
            // SAFETY: `map` is valid for initialisation, and pinned.
            // INVARIANT: Initialised, and without entries.
            map <- Opaque::ffi_init(|map| unsafe { shim::kfabric_shim_map_init(map) }),
            next: Opaque::new(next),
            _values: PhantomData,
        })
    }

    /// Enters `value` under `number`. `EBUSY` there is a value; `ENOMEM`. Sleeps.
    pub(crate) fn insert(&self, number: u32, value: V) -> Result {
        let slot = Slot::new(value)?.into_raw();
        // SAFETY: The map is initialised.
        // INVARIANT: The map owns the slot if it has taken it.
        let ret = unsafe { shim::kfabric_shim_map_insert(self.map.get(), number, slot.cast()) };
        to_result(ret).inspect_err(|_| {
            // SAFETY: The map has not taken it.
            drop(unsafe { KBox::from_raw(slot) });
        })
    }

    /// Enters `value` under the next number between `min` and `max`, round and round, that has
    /// none, and returns the number. `EBUSY` all have a value; `ENOMEM`. Sleeps.
    pub(crate) fn insert_next(&self, min: u32, max: u32, value: V) -> Result<u32> {
        let slot = Slot::new(value)?.into_raw();
        let mut number = 0;
        // SAFETY: The map is initialised, `number` is valid for the call, and `next` is changed by
        // this function only, which takes the map's lock for it.
        // INVARIANT: The map owns the slot if it has taken it.
        let ret = unsafe {
            shim::kfabric_shim_map_alloc(
                self.map.get(),
                &raw mut number,
                slot.cast(),
                min,
                max,
                self.next.get(),
            )
        };
        if let Err(error) = to_result(ret) {
            // SAFETY: The map has not taken it.
            drop(unsafe { KBox::from_raw(slot) });
            return Err(error);
        }
        Ok(number)
    }

    /// Calls `f` with the value under `number`, in an RCU read-side section: it must not sleep.
    /// Any context.
    pub(crate) fn with<R>(&self, number: u32, f: impl FnOnce(&V) -> R) -> Option<R> {
        let _rcu = rcu::read_lock();
        // SAFETY: The map is initialised.
        let slot = unsafe { bindings::xa_load(self.map.get(), number as usize) };
        // SAFETY: By the type invariant it is null or a slot, which is not dropped before the end
        // of the read-side section.
        let slot = unsafe { slot.cast::<Slot<V>>().as_ref() }?;
        Some(f(&slot.value))
    }

    /// The first value under a number from `from` on, and the number. Any context.
    pub(crate) fn next(&self, from: u32) -> Option<(u32, V)>
    where
        V: Clone,
    {
        let mut number = from;
        let _rcu = rcu::read_lock();
        // SAFETY: The map is initialised, `number` is valid for the call; we are in a read-side
        // section.
        let slot = unsafe { shim::kfabric_shim_map_find(self.map.get(), &raw mut number) };
        // SAFETY: As in `with`.
        let slot = unsafe { slot.cast::<Slot<V>>().as_ref() }?;
        Some((number, slot.value.clone()))
    }

    /// Removes the value under `number`; false if there is none. It is dropped later. Any context
    /// in which [`insert`](Self::insert) does not interrupt: process.
    pub(crate) fn remove(&self, number: u32) -> bool {
        // SAFETY: The map is initialised. INVARIANT: The map no longer owns what is returned.
        let slot = unsafe { bindings::xa_erase(self.map.get(), number as usize) };
        if slot.is_null() {
            return false;
        }
        // SAFETY: By the type invariant it is a slot, which cannot be looked up any more.
        unsafe { Slot::<V>::drop_later(slot.cast()) };
        true
    }
}

#[pinned_drop]
impl<V: Send + Sync + 'static> PinnedDrop for RcuMap<V> {
    fn drop(self: Pin<&mut Self>) {
        let mut number = 0;
        loop {
            let guard = rcu::read_lock();
            // SAFETY: The map is initialised, `number` is valid for the call; we are in a read-side
            // section.
            let slot = unsafe { shim::kfabric_shim_map_find(self.map.get(), &raw mut number) };
            drop(guard);
            if slot.is_null() {
                break;
            }
            self.remove(number);
        }
        // SAFETY: The map is initialised and has no entries; nobody uses it any more.
        unsafe { bindings::xa_destroy(self.map.get()) };
    }
}
