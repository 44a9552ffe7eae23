// SPDX-License-Identifier: GPL-2.0

//! Counter: `kfi_cntr`, as specified by kfi_cntr(3).
//!
//! A [`Cntr`] is a [`Counter`] that belongs to a domain, has a wait object, and can be closed. The
//! endpoints and memory regions that count into it are bound to it and hold it in use.
//!
//! | file | topic |
//! |---|---|
//! | [`counter`] | the primitive: values, waiters, waking |
//! | [`fd`] | a counter as a file descriptor for poll(2), epoll and io_uring |
//! | `callback` | callbacks of kernel consumers |
//! | `irq` | changes in interrupts |
//! | `work` | the work that waits for it |

#[cfg(kfi_kunit)]
mod callback;
mod counter;
mod fd;
pub(crate) mod irq;
mod work;

#[cfg(kfi_kunit)]
#[path = "../../../../kunit/cntr.rs"]
mod kunit;

use kernel::{
    page::PAGE_SIZE,
    sync::atomic::AtomicFlag,
    workqueue::{
        new_work,
        Work, //
    }, //
};

use kfi_core::{
    cntr::Seen,
    flags::OpFlags, //
};

use self::fd::{
    CounterRef,
    Fd, //
};
use super::{
    object_list::{
        Class,
        ObjectListEntry,
        ObjectStats,
        StatsSource, //
    },
    prelude::*,
    wait::WaitObj,
    work::{
        AfterChange,
        Starter, //
    }, //
};
use crate::{
    mem::SharedPages,
    shim::anon_file::PendingFd, //
};

pub(crate) use self::counter::Counter;

/// The attributes of a counter.
pub(crate) struct CntrAttr {
    pub(crate) wait: WaitObj,
    /// Its largest value, after which it wraps to 0. 0 stands for 2^64 - 1.
    pub(crate) max_value: u64,
}

/// A counter of a domain.
#[pin_data]
pub(crate) struct Cntr {
    #[pin]
    counter: Counter,
    wait: WaitObj,
    flags: Atomic<u64>,
    uses: UseCount,
    domain: UseRef<Domain>,
    ident: Ident,
    list_entry: ObjectListEntry,
    /// Whether the domain's work queue has it in its list.
    listed: AtomicFlag,
    /// Drops the last reference.
    #[pin]
    last: Work<Self>,
    _memory: Allowance,
}

impl Cntr {
    /// Opens a counter of `domain`. Fails with `EINVAL` if the wait set belongs to another fabric;
    /// `EBADF` if the domain is closed; `ENOMEM`. Sleeps.
    pub(crate) fn open(domain: &Arc<Domain>, attr: CntrAttr, ident: Ident) -> Result<Arc<Self>> {
        attr.wait.check_fabric(domain.fabric())?;
        let domain = UseRef::new(domain.clone())?;
        let memory = ident.budget.take_for::<Self>(0)?;
        let page_memory = ident.budget.take(PAGE_SIZE as u64)?;
        let counter = Counter::new(attr.max_value)?;
        let cntr = Arc::pin_init(
            pin_init!(Self {
                counter <- counter,
                wait: attr.wait,
                flags: Atomic::new(0),
                uses: UseCount::new(),
                domain,
                ident,
                list_entry: ObjectListEntry::new(),
                listed: AtomicFlag::new(false),
                last <- new_work!("kfabric::Cntr"),
                _memory: memory,
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        // A program may map the page and keep it after the counter was closed.
        cntr.page().keep(page_memory);
        cntr.list_entry.enter(cntr.clone())?;
        Ok(cntr)
    }

    /// The page with its values. Programs map it read-only.
    pub(crate) fn page(&self) -> &Arc<SharedPages> {
        self.counter.page()
    }

    /// The success value (kfi_cntr_read). Does not sleep.
    #[inline]
    pub(crate) fn read(&self) -> u64 {
        self.counter.read()
    }

    /// The error value (kfi_cntr_readerr). Does not sleep.
    #[inline]
    pub(crate) fn err(&self) -> u64 {
        self.counter.err()
    }

    /// Adds to the success value (kfi_cntr_add, and each success of a bound object). Does not
    /// sleep.
    // Always: each completion adds, and a call costs more than an add.
    #[inline(always)]
    pub(crate) fn add(&self, n: u64) {
        self.counter.add(n);
        self.signal_add(n);
    }

    /// [`add`](Self::add) in a call of the owner, which starts the work that is due. Sleeps.
    #[inline]
    pub(crate) fn add_here(&self, n: u64) {
        self.start_here(self.add_for(n, Starter::Call));
    }

    /// [`add`](Self::add) that leaves the work that is due to the caller. Does not sleep.
    #[inline(always)]
    pub(super) fn add_for(&self, n: u64, starter: Starter) -> AfterChange {
        let after = self.counter.add_for(n, starter);
        self.signal_add(n);
        after
    }

    /// Signals the wait object after an add. Does not sleep.
    #[inline(always)]
    fn signal_add(&self, n: u64) {
        // An add of 0 changes nothing.
        if self.wait.is_signalled() && n != 0 {
            self.wait.signal();
        }
    }

    pub(crate) fn domain(&self) -> &Arc<Domain> {
        self.domain.arc()
    }

    /// Its largest value. Does not sleep.
    pub(in crate::provider) fn max(&self) -> u64 {
        self.counter.max()
    }

    /// Adds to the error value (kfi_cntr_adderr, and each failure of a bound object). Does not
    /// sleep.
    pub(crate) fn adderr(&self, n: u64) {
        // An add of 0 changes nothing.
        if self.counter.adderr(n) {
            self.wait.signal();
        }
    }

    /// Sets the success value (kfi_cntr_set). Fails with `EINVAL` for a value above the maximum.
    /// Does not sleep.
    pub(crate) fn set(&self, value: u64) -> Result {
        self.counter.set(value)?;
        self.wait.signal();
        Ok(())
    }

    /// Sets the error value (kfi_cntr_seterr). Fails with `EINVAL` for a value above the maximum.
    /// Does not sleep.
    pub(crate) fn seterr(&self, value: u64) -> Result {
        // Setting the same value changes nothing.
        if self.counter.seterr(value)? {
            self.wait.signal();
        }
        Ok(())
    }

    /// [`adderr`](Self::adderr) in a call of the owner, which starts the work that is due. Sleeps.
    pub(crate) fn adderr_here(&self, n: u64) {
        let (changed, after) = self.counter.adderr_for(n, Starter::Call);
        self.changed_here(changed, after);
    }

    /// [`set`](Self::set) in a call of the owner, which starts the work that is due. Sleeps.
    pub(crate) fn set_here(&self, value: u64) -> Result {
        self.set_for(value, Starter::Call)
            .map(|after| self.start_here(after))
    }

    /// [`set`](Self::set) that leaves the work that is due to the caller. Does not sleep.
    pub(super) fn set_for(&self, value: u64, starter: Starter) -> Result<AfterChange> {
        let (result, after) = self.counter.set_for(value, starter);
        // A refused value changes nothing.
        result?;
        self.wait.signal();
        Ok(after)
    }

    /// [`seterr`](Self::seterr) in a call of the owner, which starts the work that is due. Sleeps.
    pub(crate) fn seterr_here(&self, value: u64) -> Result {
        let (result, after) = self.counter.seterr_for(value, Starter::Call);
        self.changed_here(result == Ok(true), after);
        result.map(drop)
    }

    /// Signals the wait object if a value has changed, and starts the work that is due. Sleeps.
    fn changed_here(&self, changed: bool, after: AfterChange) {
        if changed {
            self.wait.signal();
        }
        self.start_here(after);
    }

    /// Waits until the success value reaches `threshold` (kfi_cntr_wait).
    ///
    /// Fails with `EINVAL` if the counter has `KFI_WAIT_NONE` and the deadline does not poll;
    /// `ETIMEDOUT`; `KFI_EAVAIL` if the error value changed since the call began; `ERESTARTSYS` if
    /// a signal is pending; `EBADF` if the counter was closed before or during the wait; `ENOSPC`
    /// if it has [`MAX_WAITERS`](kfi_core::limits::MAX_WAITERS) waiters; `ENOMEM`. Sleeps, unless
    /// the deadline polls. The counter is in use during the wait. `began` is 0, or the value that
    /// an interrupted call left there, which this call continues.
    pub(crate) fn wait(
        self: &Arc<Self>,
        threshold: u64,
        deadline: Deadline,
        began: &mut u64,
    ) -> Result {
        if deadline == Deadline::Poll {
            return self.counter.wait(threshold, deadline, began);
        }
        if matches!(self.wait, WaitObj::None) {
            return Err(EINVAL);
        }
        let _using = UseGuard::new(&**self)?;
        self.counter.wait(threshold, deadline, began)
    }

    /// Its default operation flags (KFI_GETOPSFLAG). Does not sleep.
    pub(crate) fn flags(&self) -> u64 {
        self.flags.load(Relaxed)
    }

    /// Sets its default operation flags (KFI_SETOPSFLAG). No operation of a counter uses them.
    /// Fails with `EINVAL` for a bit that is not an operation flag. Does not sleep.
    pub(crate) fn set_flags(&self, flags: u64) -> Result {
        let flags = OpFlags::from_bits(flags).map_err(to_error)?;
        self.flags.store(flags.bits(), Relaxed);
        Ok(())
    }

    /// Makes a descriptor, which is a use of the counter. See [`WaitObj::getwait`]. Also fails with
    /// `EMFILE`, `ENFILE`, `ENOSPC`, `ENOMEM`. Sleeps.
    pub(crate) fn getwait(self: &Arc<Self>) -> Result<PendingFd> {
        self.wait.getwait(&**self, || {
            PendingFd::new(Fd::new(UseRef::new(self.clone())?)?)
        })
    }

    /// The wait queue for a kernel consumer. See [`WaitObj::queue`]. Does not sleep.
    pub(crate) fn queue(&self) -> Result<&WaitQueue> {
        self.wait.queue()
    }

    /// Both values as they are now, to be given to [`changed`](Self::changed). Does not sleep.
    pub(super) fn seen(&self) -> Seen {
        self.counter.seen()
    }

    /// Both values as they are now, if either was written since `since`. Does not sleep.
    pub(super) fn changed(&self, since: &Seen) -> Option<Seen> {
        self.counter.changed(since)
    }
}

impl CounterRef for UseRef<Cntr> {
    fn counter(&self) -> &Counter {
        &self.arc().counter
    }
}

impl Object for Cntr {
    fn uses(&self) -> &UseCount {
        &self.uses
    }

    fn before_close(&self) {
        self.release_keeper();
    }

    fn teardown(&self) {
        self.list_entry.leave();
        self.counter.close();
        self.end_work();
        self.wait.release();
        self.domain.release();
    }
}

impl StatsSource for Cntr {
    fn class(&self) -> Class {
        Class::Cntr
    }

    fn ident(&self) -> &Ident {
        &self.ident
    }

    fn domain(&self) -> &Arc<Domain> {
        self.domain.arc()
    }

    fn stats(&self) -> ObjectStats {
        let (waiters, lowest) = self.counter.waiting();
        let (works, lowest_work, due) = self.counter.working();
        ObjectStats {
            addr: None,
            values: [
                self.read(),
                self.err(),
                u64::from(waiters),
                lowest.unwrap_or(u64::MAX),
                u64::from(works),
                lowest_work.unwrap_or(u64::MAX),
                due,
                0,
            ],
        }
    }
}
