// SPDX-License-Identifier: GPL-2.0

//! Look-ups that take no lock.
//!
//! [`RcuMap`] maps numbers to values. Any context, softirq included, can look them up under RCU;
//! process context inserts and removes them. A removed value is dropped when no reader can use it
//! any more, by the module's [workqueue](super::work), so its drop may sleep. An [`RcuBox`] is a
//! single value that is dropped in the same way, and an [`RcuCell`] is a place whose value is
//! replaced while it is being read. No caller waits for a grace period.

#[cfg(kfi_kunit)]
#[path = "../../../kunit/rcu.rs"]
mod kunit;

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
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed, //
        },
        rcu, //
    },
    types::Opaque, //
};

/// A map from numbers to values.
///
/// # Invariants
///
/// `map` is initialised; its entries are pointers from [`Slot::new`], each owned by the map.
#[pin_data(PinnedDrop)]
pub(crate) struct RcuMap<V: Send + Sync + 'static> {
    #[pin]
    map: Opaque<bindings::xarray>,
    /// The start of the next search of [`insert_next`](Self::insert_next); changed under the lock
    /// of `map`.
    next: Opaque<u32>,
    _values: PhantomData<V>,
}

// SAFETY: The map has its own lock, and any task may use and drop its values.
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
    /// Allocates a slot. Fails with an error of `value`, `ENOMEM`. Sleeps.
    fn new<E>(value: impl PinInit<V, E>) -> Result<NonNull<Self>>
    where
        Error: From<E>,
    {
        let slot = KBox::try_pin_init(
            try_pin_init!(Self {
                // SAFETY: `work` is valid for initialisation, and does not move, because it is on
                // the heap.
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
    /// `slot` came from `new`, and the caller passes its ownership on. RCU read-side sections that
    /// begin after this cannot find it.
    unsafe fn drop_later(slot: NonNull<Self>) {
        // SAFETY: By the requirements the work is initialised and not queued. The queue exists as
        // long as there are maps and boxes.
        unsafe { bindings::queue_rcu_work(work::raw_queue(), (*slot.as_ptr()).work.get()) };
    }

    /// # Safety
    ///
    /// Only the workqueue calls this, with the work of a slot that was passed to `drop_later`.
    unsafe extern "C" fn run(work: *mut bindings::work_struct) {
        // The work is the first field of `rcu_work`, which is the first field of the slot. SAFETY:
        // By the requirements; a grace period has passed, so nothing else uses the slot.
        drop(unsafe { KBox::from_raw(work.cast::<Self>()) });
    }
}

kernel::static_assert!(core::mem::offset_of!(bindings::rcu_work, work) == 0);

impl<V: Send + Sync + 'static> RcuMap<V> {
    /// A map without values; the first search of [`insert_next`](Self::insert_next) starts at
    /// `next`.
    pub(crate) fn new(next: u32) -> impl PinInit<Self> {
        pin_init!(Self {
            // SAFETY: `map` is valid for initialisation, and pinned. INVARIANT: Initialised, and
            // without entries.
            map <- Opaque::ffi_init(|map| unsafe { shim::kfabric_shim_map_init(map) }),
            next: Opaque::new(next),
            _values: PhantomData,
        })
    }

    /// Inserts `value` at `number`. Fails with `EBUSY` if there is a value, `ENOMEM`. Sleeps.
    pub(crate) fn insert(&self, number: u32, value: V) -> Result {
        let slot = Slot::new::<Infallible>(value)?.as_ptr();
        // SAFETY: The map is initialised.
        // INVARIANT: The map owns the slot if the call succeeds.
        let ret = unsafe { shim::kfabric_shim_map_insert(self.map.get(), number, slot.cast()) };
        to_result(ret).inspect_err(|_| {
            // SAFETY: The map has not taken the slot.
            drop(unsafe { KBox::from_raw(slot) });
        })
    }

    /// Inserts `value` at the next free number from `min` to `max`, and returns the number. The
    /// search continues where the last one ended, and wraps. Fails with `EBUSY` if no number is
    /// free, `ENOMEM`. Sleeps.
    pub(crate) fn insert_next(&self, min: u32, max: u32, value: V) -> Result<u32> {
        let slot = Slot::new::<Infallible>(value)?.as_ptr();
        let mut number = 0;
        // SAFETY: The map is initialised, `number` is valid for the call, and only this function
        // changes `next`, under the map's lock. INVARIANT: The map owns the slot if the call
        // succeeds.
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
        to_result(ret).inspect_err(|_| {
            // SAFETY: The map has not taken the slot.
            drop(unsafe { KBox::from_raw(slot) });
        })?;
        Ok(number)
    }

    /// Calls `f` with the value at `number`, in an RCU read-side section: `f` must not sleep. Any
    /// context.
    pub(crate) fn with<R>(&self, number: u32, f: impl FnOnce(&V) -> R) -> Option<R> {
        let _rcu = rcu::read_lock();
        // SAFETY: The map is initialised.
        let slot = unsafe { bindings::xa_load(self.map.get(), number as usize) };
        // SAFETY: By the type invariant it is null or a slot, which is not dropped before the end
        // of the read-side section.
        let slot = unsafe { slot.cast::<Slot<V>>().as_ref() }?;
        Some(f(&slot.value))
    }

    /// The first value at a number from `from` on, and the number. Any context.
    pub(crate) fn next(&self, from: u32) -> Option<(u32, V)>
    where
        V: Clone,
    {
        let mut number = from;
        let _rcu = rcu::read_lock();
        // SAFETY: The map is initialised, `number` is valid for the call; this is a read-side
        // section.
        let slot = unsafe { shim::kfabric_shim_map_find(self.map.get(), &raw mut number) };
        // SAFETY: As in `with`.
        let slot = unsafe { slot.cast::<Slot<V>>().as_ref() }?;
        Some((number, slot.value.clone()))
    }

    /// Removes the value at `number`, which is dropped later; false if there is none. Process
    /// context.
    pub(crate) fn remove(&self, number: u32) -> bool {
        // SAFETY: The map is initialised. INVARIANT: The map does not own the result any more.
        let slot = unsafe { bindings::xa_erase(self.map.get(), number as usize) };
        let Some(slot) = NonNull::new(slot.cast()) else {
            return false;
        };
        // SAFETY: By the type invariant it is a slot, which look-ups cannot find any more.
        unsafe { Slot::<V>::drop_later(slot) };
        true
    }

    /// A clone of the value at `number`. Any context.
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
            // SAFETY: The map is initialised, `number` is valid for the call; this is a read-side
            // section.
            let slot = unsafe { shim::kfabric_shim_map_find(self.map.get(), &raw mut number) };
            drop(guard);
            if slot.is_null() {
                break;
            }
            self.remove(number);
        }
        // SAFETY: The map is initialised and has no entries; nothing uses it any more.
        unsafe { bindings::xa_destroy(self.map.get()) };
    }
}

/// A value that readers without a reference count may use under RCU. When the box is dropped, the
/// module's workqueue drops the value after a grace period, so the drop of the value may sleep. The
/// box can be dropped in any context.
///
/// # Invariants
///
/// `slot` is a result of [`Slot::new`], and owned.
pub(crate) struct RcuBox<V: Send + Sync + 'static> {
    slot: NonNull<Slot<V>>,
}

// SAFETY: Any task may use and drop the value.
unsafe impl<V: Send + Sync + 'static> Send for RcuBox<V> {}
// SAFETY: As above.
unsafe impl<V: Send + Sync + 'static> Sync for RcuBox<V> {}

impl<V: Send + Sync + 'static> RcuBox<V> {
    /// Creates a value in place. Fails with an error of `value`, `ENOMEM`. Sleeps.
    pub(crate) fn pin_init<E>(value: impl PinInit<V, E>) -> Result<Self>
    where
        Error: From<E>,
    {
        // INVARIANT: Just created.
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
        // SAFETY: By the type invariant the slot came from `new`; this passes its ownership on.
        unsafe { Slot::drop_later(self.slot) };
    }
}

/// A place for a value that readers use under RCU while others replace it.
///
/// # Invariants
///
/// `slot` is null or a result of [`Slot::new`] that the cell owns.
pub(crate) struct RcuCell<V: Send + Sync + 'static> {
    slot: Atomic<*mut Slot<V>>,
}

// SAFETY: Any task may use and drop the value.
unsafe impl<V: Send + Sync + 'static> Send for RcuCell<V> {}
// SAFETY: As above; the pointer is changed atomically.
unsafe impl<V: Send + Sync + 'static> Sync for RcuCell<V> {}

impl<V: Send + Sync + 'static> RcuCell<V> {
    /// An empty cell.
    pub(crate) const fn empty() -> Self {
        // INVARIANT: Null.
        Self {
            slot: Atomic::new(core::ptr::null_mut()),
        }
    }

    /// Whether the cell is empty at this moment: one load. Any context.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.slot.load(Relaxed).is_null()
    }

    /// Calls `f` with the value, in an RCU read-side section: `f` must not sleep. `None` if the
    /// cell is empty. Any context.
    #[inline]
    pub(crate) fn with<R>(&self, f: impl FnOnce(&V) -> R) -> Option<R> {
        let _rcu = rcu::read_lock();
        // Acquire pairs with the barrier in `replace`: a reader that sees the pointer sees the
        // whole value.
        let slot = self.slot.load(Acquire);
        // SAFETY: By the type invariant it is null or a slot. A slot that is removed is not dropped
        // before the end of this read-side section, because only `drop_later` drops it, which is
        // called after the removal. There are no mutable references to its value.
        let slot = unsafe { slot.as_ref() }?;
        Some(f(&slot.value))
    }

    /// Replaces the value and returns the previous one, which readers may still be using. Any
    /// context.
    pub(crate) fn replace(&self, value: Option<RcuBox<V>>) -> Option<RcuBox<V>> {
        let slot = match value {
            // The cell takes over the slot, so the box must not drop it.
            Some(value) => core::mem::ManuallyDrop::new(value).slot.as_ptr(),
            None => core::ptr::null_mut(),
        };
        // INVARIANT: Null, or the slot of the box, which owned it. By the same invariant the result
        // is null or a slot, which the cell does not own any more.
        let previous = self.slot.xchg(slot, Full);
        NonNull::new(previous).map(|slot| RcuBox { slot })
    }
}

impl<V: Send + Sync + 'static> Drop for RcuCell<V> {
    fn drop(&mut self) {
        // A reader that found the cell under RCU may still be using the value: the box drops it
        // later.
        drop(self.replace(None));
    }
}
