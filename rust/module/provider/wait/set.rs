// SPDX-License-Identifier: GPL-2.0

//! Wait set: one object to wait on for many counters, CQs and EQs.
//!
//! Its members are the objects that were opened with `KFI_WAIT_SET` and this set. Each holds the
//! set in use. A member signals the set when an entry, an event or an error arrives or a value
//! changes. The set does not know the state of its members. It remembers one signal:
//!
//! ```text
//!   signal --- a task sleeps ----> the task that has slept longest takes it and runs
//!         \--- no task sleeps ---> pending until a task takes it; more signals add nothing
//! ```
//!
//! A task that has taken a signal, by [`WaitSet::wait`] or read(2) on a descriptor, checks all
//! members. It may find nothing if another task was faster. It misses nothing, because everything
//! that happens later makes a new signal.
//!
//! A descriptor is readable while a signal is pending. read(2) of 8 bytes or more takes the signal
//! and gives a `__u64` 1. It waits for a signal, or gives `EAGAIN` with `O_NONBLOCK`. So a
//! descriptor is used like an eventfd: poll, read, check the members.
//!
//! A kernel consumer may sleep in the wait queue of the set (KFI_GETWAIT) until a condition of its
//! own holds, and takes no signal. So after a first KFI_GETWAIT every signal wakes that queue, also
//! one that a task takes.
//!
//! # Locks
//!
//! Members signal the set while they hold no spin lock of their own. A task that completes a part
//! of a multi-receive buffer holds the lock of that buffer, which other tasks take under the
//! endpoint's receive lock (`ep/multi_recv.rs`). Only sleepers are woken under the lock of the set.
//! Pollers are woken after its release.

use kernel::uaccess::UserSliceWriter;

use kfi_core::{
    due::Key,
    wait::{
        self,
        Armed, //
    }, //
};

use super::{
    line::{
        with_memory,
        Line,
        Memory,
        NewWaiter, //
    },
    poll_events,
    sleep,
    WakeReason,
    Wakeup,
    READABLE, //
};
use crate::{
    provider::{
        fabric::Fabric,
        prelude::*, //
    },
    shim::{
        anon_file::{
            AnonFile,
            PendingFd,
            PollTable, //
        },
        wait::{
            Sleeper,
            Waker, //
        }, //
    }, //
};

/// A wait set of a fabric.
#[pin_data]
pub(crate) struct WaitSet {
    fabric: UseRef<Fabric>,
    uses: UseCount,
    #[pin]
    line: SpinLock<wait::WaitSet<Line<Waker>>>,
    /// The wait queue of pollers and of kernel consumers.
    #[pin]
    readable: WaitQueue,
    /// Whether a kernel consumer has got the wait queue.
    has_consumer: Atomic<bool>,
    _memory: Allowance,
}

impl WaitSet {
    /// Opens a wait set. Fails with `EBADF` if the fabric is closed, `ENOMEM`. Sleeps.
    pub(crate) fn open(fabric: &Arc<Fabric>, ident: Ident) -> Result<Arc<Self>> {
        let fabric = UseRef::new(fabric.clone())?;
        Arc::pin_init(
            try_pin_init!(Self {
                fabric,
                uses: UseCount::new(),
                line <- new_spinlock!(wait::WaitSet::new(Line::new()), "WaitSet::line"),
                readable <- new_wait_queue!("WaitSet::readable"),
                has_consumer: Atomic::new(false),
                _memory: ident.budget.take_for::<Self>(0)?,
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    pub(crate) fn fabric(&self) -> &Arc<Fabric> {
        self.fabric.arc()
    }

    /// Signals the set. Process context. The caller holds no spin lock of a member or of the set.
    pub(crate) fn signal(&self) {
        let mut wakeup = Wakeup::new();
        let mut line = self.line.lock();
        match line.signal() {
            Some(left) => {
                wakeup.one(left, WakeReason::Ready);
                drop(line);
                // As below. The check is a full barrier, so it sees a consumer that did not see the
                // change.
                if self.readable.has_sleepers() && self.has_consumer.load(Relaxed) {
                    self.readable.wake_all();
                }
            }
            None => {
                drop(line);
                // A poller enters the wait queue before it looks at the set. So either it saw the
                // signal, or this check finds it on the wait queue.
                if self.readable.has_sleepers() {
                    self.readable.wake_poll(READABLE);
                }
            }
        }
    }

    /// Waits until a member is signalled, and takes the signal.
    ///
    /// Fails with `ETIMEDOUT` if the deadline has passed; `ERESTARTSYS` if a signal of the process
    /// is pending; `EBADF` if the set was closed by force; `ENOMEM`. Sleeps, unless the deadline
    /// polls.
    pub(crate) fn wait(self: &Arc<Self>, deadline: Deadline) -> Result {
        let _using = UseGuard::new(&**self)?;
        self.take(deadline)
    }

    /// [`wait`](Self::wait) for a caller that holds a use already.
    pub(super) fn take(&self, deadline: Deadline) -> Result {
        if self.line.lock().take() {
            return Ok(());
        }
        if deadline == Deadline::Poll {
            return Err(ETIMEDOUT);
        }
        pin_init::stack_pin_init!(let sleeper = Sleeper::new());
        let sleeper = sleeper.as_ref();
        let Some(key) = with_memory(|memory| self.enter(sleeper, memory))? else {
            return Ok(());
        };
        let leave = || self.line.lock().disarm(&key).is_some();
        match sleep(&sleeper, deadline, leave)? {
            WakeReason::Closed => Err(EBADF),
            _ => Ok(()),
        }
    }

    /// Takes a pending signal (`Some(None)`) or enters the line. `None`: the caller must bring
    /// memory. Fails with `EBADF` if the set was closed by force.
    fn enter(
        &self,
        sleeper: Pin<&Sleeper>,
        memory: &mut Option<Memory<Waker>>,
    ) -> Result<Option<Option<Key>>> {
        let token = sleeper.waker();
        let mut line = self.line.lock();
        if self.uses.is_closed() {
            return Err(EBADF);
        }
        if memory.is_none() && line.sleepers() != 0 {
            return Ok(None);
        }
        let memory = memory.take();
        Ok(Some(match line.arm(NewWaiter { token, memory }) {
            Armed::Signalled(_) => None,
            Armed::Waiting(key) => Some(key),
        }))
    }

    /// The wait queue for a kernel consumer. Does not sleep.
    pub(crate) fn queue(&self) -> &WaitQueue {
        self.has_consumer.store(true, Relaxed);
        &self.readable
    }

    /// Whether a signal is pending. Does not sleep.
    pub(super) fn pending(&self) -> bool {
        self.line.lock().pending()
    }

    /// The number of sleepers. Does not sleep.
    #[cfg(kfi_kunit)]
    pub(super) fn sleepers(&self) -> u32 {
        self.line.lock().sleepers()
    }

    /// Makes a descriptor, which is a use of the set. Fails with `EBADF` if the set is closed;
    /// `EMFILE`, `ENFILE`, `ENOMEM`. Sleeps.
    pub(crate) fn getwait(self: &Arc<Self>) -> Result<PendingFd> {
        let set = UseRef::new(self.clone())?;
        PendingFd::new(Arc::new(SetFd { set }, GFP_KERNEL_ACCOUNT)?)
    }
}

impl Object for WaitSet {
    fn uses(&self) -> &UseCount {
        &self.uses
    }

    fn teardown(&self) {
        let mut wakeup = Wakeup::new();
        self.line
            .lock()
            .release_all(|left| wakeup.one(left, WakeReason::Closed));
        self.readable.wake_all();
        self.fabric.release();
    }
}

/// The file behind a descriptor of a wait set.
pub(super) struct SetFd {
    pub(super) set: UseRef<WaitSet>,
}

impl AnonFile for SetFd {
    const NAME: &'static CStr = c"[kfabric-wait]";

    fn poll<'a>(&'a self, table: &PollTable<'a>) -> u32 {
        table.register(&self.set.readable);
        poll_events(self.set.uses.is_closed(), || self.set.pending())
    }

    /// Takes the signal. Fails with `EINVAL` for less than 8 bytes; `EAGAIN`; `EBADF` if the set
    /// was closed by force; `ERESTARTSYS`; `EFAULT`, after which the signal is pending again.
    fn read(&self, to: &mut UserSliceWriter, nonblock: bool) -> Result<usize> {
        const ONE: u64 = 1;
        if to.len() < size_of_val(&ONE) {
            return Err(EINVAL);
        }
        if self.set.uses.is_closed() {
            return Err(EBADF);
        }
        if nonblock {
            self.set.take(Deadline::Poll).map_err(|_| EAGAIN)?;
        } else {
            self.set.take(Deadline::Forever)?;
        }
        to.write(&ONE).inspect_err(|_| self.set.signal())?;
        Ok(size_of_val(&ONE))
    }
}
