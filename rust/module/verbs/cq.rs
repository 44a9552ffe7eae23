// SPDX-License-Identifier: GPL-2.0

//! CQ: completion queue.
//!
//! The entries are in a ring, in the order in which they came. QPs [push](Cq::push) them. The owner
//! of the CQ polls them, or reads them from memory that it maps.
//!
//! # The handler
//!
//! A CQ that is armed calls its completion handler once for the next entry: for each one, or for
//! one that is solicited or in error. Arming a CQ again neither disarms it nor makes it wait for
//! fewer entries. A push decides under the lock whether there is a call, and [`Cq::notify`] makes
//! it. So a QP pushes under its own locks and calls the handler when it has released them, once for
//! several entries. One task at a time calls the handlers of a CQ. Another one leaves its call to
//! that task, which looks again before it stops. After [`ROUNDS`] rounds it leaves the rest to a
//! worker: a program that arms the CQ at each call would keep it for ever.
//!
//! # Overrun
//!
//! An entry for which the ring has no place is lost. The owner gets an event about the first one.
//! Its QP has to fail, because the owner cannot know what became of the request. The CQ takes
//! entries again as soon as there is room.
//!
//! # Locks
//!
//! `resizing` (a mutex) is taken before `ring`. No other lock is taken under `ring`, which is taken
//! in any context but NMIs.

use core::{
    mem::{
        swap,
        take, //
    },
    ptr::NonNull, //
};

use kernel::{
    new_mutex,
    new_spinlock_irq,
    prelude::*,
    sync::{
        Arc,
        Mutex,
        SpinLockIrq, //
    },
    types::ForeignOwnable,
    workqueue::{
        new_work,
        Work, //
    }, //
};

use super::{
    callbacks::{
        Callbacks,
        Cookie, //
    },
    code, //
    context::Context,
    cq_map::MappedRing,
    cq_ring::{
        Entries,
        PrivateRing,
        Ring, //
    },
    declared,
    device::Device,
    handle,
    map::Mapped,
    raw::{
        self,
        kfabric_verbs_context,
        kfabric_verbs_cq,
        kfabric_verbs_cq_buf,
        kfabric_verbs_device,
        kfabric_verbs_map,
        kfabric_verbs_wc, //
    },
};
use crate::{
    mem::{
        Allowance,
        Budget,
        MapAccess, //
    },
    shim::{
        memory::kmalloc_array_size,
        reclaim::OwnerKind,
        sched::cond_resched,
        work::{
            cancel,
            impl_work,
            packet_queue, //
        }, //
    }, //
};

pub(super) use super::cq_ring::{
    Arm,
    Entry,
    Opcode,
    Overrun, //
};

/// The most entries of a CQ.
pub(super) const MAX_CQE: u32 = raw::KFABRIC_VERBS_MAX_CQE;

/// How often a task calls the handlers of a CQ before a worker goes on.
const ROUNDS: u32 = 4;

/// Entries among which those of a program's QP are looked for.
const FORGET: u64 = 1024;

/// A completion queue.
#[pin_data]
pub(super) struct Cq {
    callbacks: Callbacks,
    cookie: Cookie,
    budget: Budget,
    access: Access,
    #[pin]
    ring: SpinLockIrq<Ring>,
    /// Held by the one task that changes the places of entries.
    #[pin]
    resizing: Mutex<Backing>,
    /// Calls the handlers for a task that has made enough calls.
    #[pin]
    again: Work<Self>,
}

impl_work! {
    impl Work for Cq { self.again, run: Cq::notify_again }
}

/// How the owner of a CQ gets its entries.
pub(super) enum Access {
    /// By polling.
    Calls,
    /// From memory that the program of this context maps.
    Mapped(Arc<Context>),
}

/// The charge and the mapping of the entries of a CQ.
struct Backing {
    /// The charge for them, unless their memory has its own.
    _charge: Allowance,
    /// Where the program maps them.
    mapped: Option<Mapped>,
}

impl Backing {
    /// Describes the memory of these entries that the program maps; all zeros if they are polled.
    /// Any context.
    fn map(&self, entries: &Entries) -> kfabric_verbs_map {
        match (&self.mapped, entries) {
            (Some(mapped), Entries::Mapped(ring)) => kfabric_verbs_map {
                offset: mapped.offset(),
                // CAST: At most `MAX_CQE` entries of 64 bytes, and a page.
                size: ring.pages().size() as u32,
                entries: ring.size(),
            },
            _ => kfabric_verbs_map::default(),
        }
    }
}

/// Memory for a number of entries, which a CQ does not have yet. Dropped in process context.
pub(super) struct Buffer {
    /// The number that was asked for.
    count: u32,
    entries: Entries,
    backing: Backing,
}

impl Buffer {
    /// Fails with `EINVAL` for no entries and for more than [`MAX_CQE`], and with `ENOMEM` as
    /// [`Cq::new`]. Process context, sleeps.
    fn new(budget: &Budget, count: u32, access: &Access) -> Result<Self> {
        if count == 0 || count > MAX_CQE {
            return Err(EINVAL);
        }
        let (entries, charge, mapped) = match access {
            Access::Calls => {
                let size = count as usize;
                let charge = budget.take_for::<Cq>(kmalloc_array_size::<Entry>(size))?;
                let ring = KVVec::from_elem(Entry::EMPTY, size, GFP_KERNEL_ACCOUNT)?;
                (Entries::Private(PrivateRing::new(ring)), charge, None)
            }
            Access::Mapped(context) => {
                let charge = budget.take_for::<Cq>(0)?;
                let ring = MappedRing::new(budget, count)?;
                let pages = ring.pages().clone();
                let mapped = Mapped::new(context, pages, MapAccess::ReadWrite)?;
                (Entries::Mapped(ring), charge, Some(mapped))
            }
        };
        Ok(Self {
            count,
            entries,
            backing: Backing {
                _charge: charge,
                mapped,
            },
        })
    }
}

impl Cq {
    /// A CQ for `entries` entries, or the next power of two if it is mapped. Process context,
    /// sleeps.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: no entries, or more than [`MAX_CQE`].
    /// - `ENOMEM`, also if the user has no more memory of the kernel (`user_memory`).
    pub(super) fn new(
        budget: &Budget,
        callbacks: Callbacks,
        cookie: Cookie,
        entries: u32,
        access: Access,
    ) -> Result<Arc<Self>> {
        let buffer = Buffer::new(budget, entries, &access)?;
        Arc::pin_init(
            pin_init!(Self {
                callbacks,
                cookie,
                budget: budget.clone(),
                access,
                ring <- new_spinlock_irq!(Ring::new(buffer.entries)),
                resizing <- new_mutex!(buffer.backing),
                again <- new_work!("Cq::again"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Adds an entry. A solicited one, like one in error, wakes also a CQ that is armed for
    /// solicited entries. The caller calls [`notify`](Self::notify) when it has released its locks,
    /// also after an overrun, and fails its QP then. Any context.
    pub(super) fn push(&self, entry: &Entry, solicited: bool) -> Result<(), Overrun> {
        self.ring.lock().push(entry, solicited)
    }

    /// The memory that the program maps; zeros for a CQ that is polled. Process context, sleeps.
    fn map(&self) -> kfabric_verbs_map {
        // No resize replaces it meanwhile.
        let backing = self.resizing.lock();
        let ring = self.ring.lock();
        backing.map(&ring.entries)
    }

    /// Calls the handlers for which entries have asked since the last call, or has a worker call
    /// them. The worker calls handlers of programs only: kernel callers expect none after the last
    /// QP of the CQ was destroyed, and `ib_free_cq()` frees their state before the CQ ends. Any
    /// context; no spin lock held.
    pub(super) fn notify(self: &Arc<Self>) {
        let mut ring = self.ring.lock();
        if ring.notifying {
            return;
        }
        let kind = self.budget.principal().kind();
        let rounds = match kind {
            OwnerKind::Program => ROUNDS,
            OwnerKind::Consumer => u32::MAX,
        };
        for _ in 0..rounds {
            let due = take(&mut ring.due);
            ring.notifying = due.comp || due.error;
            if !ring.notifying {
                return;
            }
            drop(ring);
            if due.error {
                self.callbacks.cq_error(self.cookie);
            }
            if due.comp {
                self.callbacks.comp(self.cookie);
            }
            ring = self.ring.lock();
        }
        drop(ring);
        // Cannot fail: the item is not queued, because only the task that notifies queues it.
        let _ = packet_queue(kind).enqueue(self.clone());
    }

    /// Goes on with the calls of a task that has made enough of them. Work item: process context.
    fn notify_again(self: &Arc<Self>) {
        self.ring.lock().notifying = false;
        self.notify();
    }

    /// Takes the oldest entries, at most `count`, and passes them to `each`, which is called under
    /// a spin lock. Returns how many there were: none of a mapped CQ. Any context.
    pub(super) fn poll(&self, count: u32, mut each: impl FnMut(Entry)) -> u32 {
        let mut ring = self.ring.lock();
        let mut taken = 0;
        while taken < count {
            let Some(entry) = ring.pop() else {
                break;
            };
            each(entry);
            taken += 1;
        }
        taken
    }

    /// Arms the CQ. Returns whether it has entries, which do not wake it. Any context.
    pub(super) fn arm(&self, arm: Arm) -> bool {
        let mut ring = self.ring.lock();
        ring.arm = ring.arm.max(arm);
        !ring.is_empty()
    }

    /// Removes the entries of a QP that pushes none any more. Process context, sleeps.
    ///
    /// For a program, only if no more than [`FORGET`] entries wait: otherwise a user who ends
    /// thousands of QPs could have hundreds of thousands of entries searched for each. Nothing uses
    /// a program's entry to find its QP.
    pub(super) fn forget(&self, qp: Cookie) {
        let _resizing = self.resizing.lock();
        let of_program = self.budget.principal().kind() == OwnerKind::Program;
        if of_program && self.ring.lock().len() > FORGET {
            return;
        }
        while !self.ring.lock().forget_piece(qp) {
            cond_resched();
        }
    }

    /// Memory for another number of entries, for [`resize_to`](Self::resize_to). Both are charged
    /// until then. Process context, sleeps.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: no entries, or more than [`MAX_CQE`].
    /// - `ENOMEM`, as [`new`](Self::new).
    pub(super) fn buffer(&self, entries: u32) -> Result<Buffer> {
        Buffer::new(&self.budget, entries, &self.access)
    }

    /// Replaces the memory of the CQ by `buffer`. Entries that wait stay. Fails with `EINVAL` if
    /// more entries wait than the number that was asked for; the CQ is unchanged then. Process
    /// context, sleeps.
    pub(super) fn resize_to(&self, mut buffer: Buffer) -> Result {
        let mut resizing = self.resizing.lock();
        let mut copied = 0;
        loop {
            let mut ring = self.ring.lock();
            // The number that was asked for counts, although the next power of two may be enough.
            if ring.len() > buffer.count.into() {
                return Err(EINVAL);
            }
            if ring.copy_piece(&mut copied, &mut buffer.entries)? {
                swap(&mut ring.entries, &mut buffer.entries);
                break;
            }
            drop(ring);
            cond_resched();
        }
        swap(&mut *resizing, &mut buffer.backing);
        Ok(())
    }

    /// Calls [`buffer`](Self::buffer) and [`resize_to`](Self::resize_to). Fails as they do.
    #[cfg(kfi_kunit)]
    pub(super) fn resize(&self, entries: u32) -> Result {
        self.resize_to(self.buffer(entries)?)
    }
}

declared! {
    kfabric_verbs_cq_create: fn(
        *mut kfabric_verbs_device, *mut kfabric_verbs_context, u32, bool, *mut c_void,
    ) -> *mut kfabric_verbs_cq;
    kfabric_verbs_cq_map: fn(*const kfabric_verbs_cq, *mut kfabric_verbs_map);
    kfabric_verbs_cq_buf_new: fn(*const kfabric_verbs_cq, u32, *mut kfabric_verbs_map)
        -> *mut kfabric_verbs_cq_buf;
    kfabric_verbs_cq_resize: fn(*mut kfabric_verbs_cq, *mut kfabric_verbs_cq_buf) -> c_int;
    kfabric_verbs_cq_buf_free: fn(*mut kfabric_verbs_cq_buf);
    kfabric_verbs_cq_poll: fn(*mut kfabric_verbs_cq, u32, *mut kfabric_verbs_wc) -> u32;
    kfabric_verbs_cq_arm: fn(*mut kfabric_verbs_cq, u32) -> c_int;
    kfabric_verbs_cq_destroy: fn(*mut kfabric_verbs_cq);
}

/// A CQ of a context, or of kernel callers if the context is null; a program may map it. Fails as
/// [`Cq::new`]; with `EINVAL` if it is to be mapped and not a program's. Sleeps.
///
/// # Safety
///
/// The handles are valid by the interface. The callbacks of the device may be called with the
/// cookie until the CQ is destroyed.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_cq_create(
    device: *mut kfabric_verbs_device,
    context: *mut kfabric_verbs_context,
    entries: u32,
    mapped: bool,
    cookie: *mut c_void,
) -> *mut kfabric_verbs_cq {
    // SAFETY: By the requirement above.
    let device = unsafe { Arc::<Device>::borrow(device.cast()) };
    // SAFETY: By the requirement above.
    let context = unsafe { Context::of(&device, NonNull::new(context)) };
    let (callbacks, cookie) = (context.callbacks(), Cookie::new(cookie));
    let access = match (mapped, context.is_program()) {
        (false, _) => Access::Calls,
        (true, true) => Access::Mapped(context.clone()),
        (true, false) => return EINVAL.to_ptr(),
    };
    let cq = Cq::new(context.budget(), callbacks, cookie, entries, access);
    handle(cq)
}

/// Stores what a program maps of a CQ: zeros for one that is polled. Sleeps.
///
/// # Safety
///
/// The handle is valid by the interface; `map` is valid for writes.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_cq_map(
    cq: *const kfabric_verbs_cq,
    map: *mut kfabric_verbs_map,
) {
    // SAFETY: By the requirement above.
    let cq = unsafe { Arc::<Cq>::borrow(cq.cast_mut().cast()) };
    // SAFETY: By the requirement above.
    unsafe { map.write(cq.map()) };
}

/// Memory for another number of entries of a CQ, for [`kfabric_verbs_cq_resize`]. Stores what a
/// program will map of it: zeros for a CQ that is polled. Fails as [`Cq::buffer`]. Sleeps.
///
/// # Safety
///
/// The handle is valid by the interface; `map` is valid for writes.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_cq_buf_new(
    cq: *const kfabric_verbs_cq,
    entries: u32,
    map: *mut kfabric_verbs_map,
) -> *mut kfabric_verbs_cq_buf {
    // SAFETY: By the requirement above.
    let cq = unsafe { Arc::<Cq>::borrow(cq.cast_mut().cast()) };
    let buffer = cq.buffer(entries);
    if let Ok(buffer) = &buffer {
        // SAFETY: By the requirement above.
        unsafe { map.write(buffer.backing.map(&buffer.entries)) };
    }
    handle(buffer.and_then(|buffer| Ok(KBox::new(buffer, GFP_KERNEL_ACCOUNT)?)))
}

/// Replaces the memory of a CQ, and consumes the handle `buf`, also after an error. Fails as
/// [`Cq::resize_to`]. Sleeps.
///
/// # Safety
///
/// The handles are valid by the interface, and that of the memory is not used any more.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_cq_resize(
    cq: *mut kfabric_verbs_cq,
    buf: *mut kfabric_verbs_cq_buf,
) -> c_int {
    // SAFETY: By the requirement above.
    let (cq, buffer) = unsafe {
        (
            Arc::<Cq>::borrow(cq.cast()),
            KBox::<Buffer>::from_foreign(buf.cast()),
        )
    };
    code(cq.resize_to(KBox::into_inner(buffer)))
}

/// Frees memory that was not given to a CQ. Sleeps.
///
/// # Safety
///
/// The handle is valid by the interface, and not used any more.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_cq_buf_free(buf: *mut kfabric_verbs_cq_buf) {
    // SAFETY: By the requirement above.
    drop(unsafe { KBox::<Buffer>::from_foreign(buf.cast()) });
}

/// Takes at most `count` entries, and returns how many there were. Any context.
///
/// # Safety
///
/// The handle is valid by the interface; `wc` has room for `count` entries.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_cq_poll(
    cq: *mut kfabric_verbs_cq,
    count: u32,
    wc: *mut kfabric_verbs_wc,
) -> u32 {
    // SAFETY: By the requirement above.
    let cq = unsafe { Arc::<Cq>::borrow(cq.cast()) };
    let mut at = wc;
    cq.poll(count, |entry| {
        // SAFETY: `wc` has room for `count` entries, and this is called at most `count` times. So
        // `at` is inside of the array when it is written, and directly behind it at most
        // afterwards.
        unsafe {
            at.write(entry.to_wc());
            at = at.add(1);
        }
    })
}

/// Arms a CQ. Returns 1 if it has entries and the caller asks whether it has; `-EOPNOTSUPP` for
/// flags that are not known; otherwise 0. Any context.
///
/// # Safety
///
/// The handle is valid by the interface.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_cq_arm(cq: *mut kfabric_verbs_cq, flags: u32) -> c_int {
    const WHEN: u32 = raw::KFABRIC_VERBS_ARM_SOLICITED | raw::KFABRIC_VERBS_ARM_NEXT;
    // SAFETY: By the requirement above.
    let cq = unsafe { Arc::<Cq>::borrow(cq.cast()) };
    if flags & !(WHEN | raw::KFABRIC_VERBS_ARM_REPORT_MISSED) != 0 {
        return EOPNOTSUPP.to_errno();
    }
    let arm = match flags & WHEN {
        0 => Arm::Not,
        raw::KFABRIC_VERBS_ARM_SOLICITED => Arm::Solicited,
        _ => Arm::Next,
    };
    let has_entries = cq.arm(arm);
    (has_entries && flags & raw::KFABRIC_VERBS_ARM_REPORT_MISSED != 0).into()
}

/// Ends a CQ. Its handlers are not called after the return. The CQ has no QP. Sleeps.
///
/// # Safety
///
/// The handle is valid by the interface, and not used any more.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_cq_destroy(cq: *mut kfabric_verbs_cq) {
    // SAFETY: By the requirement above.
    let cq = unsafe { Arc::<Cq>::from_foreign(cq.cast()) };
    cancel(&cq);
}
