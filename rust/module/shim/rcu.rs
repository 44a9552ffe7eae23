// SPDX-License-Identifier: GPL-2.0

//! Look-ups that take no lock.
//!
//! [`RcuMap`] holds values under numbers. They are looked up under RCU, from softirq too; entering
//! and removing is for process context. A value that was removed is dropped when nobody can be
//! looking at it any more, by the module's [workqueue](super::work): so its drop may sleep. An
//! [`RcuBox`] is a single value that is dropped in the same way. No caller waits for a grace
//! period.

use crate::shim::{
    bindings as shim,
    work, //
};
use core::{
    convert::Infallible,
    marker::PhantomData,
    ops::Deref,
    ptr::NonNull, //
};
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
/// `map` is initialised; its entries are pointers that [`Slot::new`] gave, each owned by the map.
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

/// A value on the heap, and the work item that drops it after a grace period.
#[pin_data]
#[repr(C)]
struct Slot<V> {
    #[pin]
    work: Opaque<bindings::rcu_work>,
    #[pin]
    value: V,
}

impl<V: Send + Sync + 'static> Slot<V> {
    /// Makes a slot on the heap. An error of `value`; `ENOMEM`. Sleeps.
    fn new<E>(value: impl PinInit<V, E>) -> Result<NonNull<Self>>
    where
        Error: From<E>,
    {
        let slot = KBox::try_pin_init(
            try_pin_init!(Self {
                // SAFETY: `work` is valid for initialisation, and stays where it is, on the heap.
                work <- Opaque::ffi_init(|work| unsafe {
                    shim::kfabric_shim_rcu_work_init(work, Some(Self::run));
                }),
                value <- value,
            }? Error),
            GFP_KERNEL_ACCOUNT,
        )?;
        // SAFETY: The value is never moved: it is used by reference, and dropped in place.
        let slot = unsafe { Pin::into_inner_unchecked(slot) };
        Ok(NonNull::from(KBox::leak(slot)))
    }

    /// Drops the slot after a grace period.
    ///
    /// # Safety
    ///
    /// `slot` came from `new`, and the caller gives its ownership away. RCU read-side sections that
    /// begin after this cannot find it.
    unsafe fn drop_later(slot: NonNull<Self>) {
        // SAFETY: By the requirements the work is initialised, and not queued. The queue is there
        // as long as there are maps and boxes.
        unsafe { bindings::queue_rcu_work(work::raw_queue(), (*slot.as_ptr()).work.get()) };
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
        let slot = Slot::new::<Infallible>(value)?.as_ptr();
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
        let slot = Slot::new::<Infallible>(value)?.as_ptr();
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
        let Some(slot) = NonNull::new(slot.cast()) else {
            return false;
        };
        // SAFETY: By the type invariant it is a slot, which cannot be looked up any more.
        unsafe { Slot::<V>::drop_later(slot) };
        true
    }

    /// A clone of the value under `number`. Any context.
    pub(crate) fn get(&self, number: u32) -> Option<V>
    where
        V: Clone,
    {
        self.with(number, V::clone)
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

/// A value that readers without a reference count may use under RCU. When the box is dropped, the
/// module's workqueue drops the value after a grace period; so the drop of the value may sleep. The
/// drop of the box is for any context.
///
/// # Invariants
///
/// `slot` is what [`Slot::new`] gave, and owned.
pub(crate) struct RcuBox<V: Send + Sync + 'static> {
    slot: NonNull<Slot<V>>,
}

// SAFETY: The value may be used and dropped by any task.
unsafe impl<V: Send + Sync + 'static> Send for RcuBox<V> {}
// SAFETY: As above.
unsafe impl<V: Send + Sync + 'static> Sync for RcuBox<V> {}

impl<V: Send + Sync + 'static> RcuBox<V> {
    /// Makes a value in place. An error of `value`; `ENOMEM`. Sleeps.
    pub(crate) fn pin_init<E>(value: impl PinInit<V, E>) -> Result<Self>
    where
        Error: From<E>,
    {
        // INVARIANT: Made just now.
        Ok(Self {
            slot: Slot::new(value)?,
        })
    }
}

impl<V: Send + Sync + 'static> Deref for RcuBox<V> {
    type Target = V;

    fn deref(&self) -> &V {
        // SAFETY: By the type invariant the slot is valid, and there are no mutable references to
        // it.
        unsafe { &(*self.slot.as_ptr()).value }
    }
}

impl<V: Send + Sync + 'static> Drop for RcuBox<V> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the slot came from `new`; its ownership ends here.
        unsafe { Slot::drop_later(self.slot) };
    }
}
