// SPDX-License-Identifier: GPL-2.0

//! A counter as a descriptor: `KFI_GETWAIT` of a counter.
//!
//! A descriptor is armed for one thing at a time, and readable once that has happened:
//!
//! ```text
//!               armed for the next change of a value since what was read last
//!                  |                                         ^
//!   write(2) of    |            it happens                   | read(2): struct kfabric_cntr_values
//!   a threshold    v                                         |
//!               armed for a value of at least t ---------> readable
//!                               it happens, or the
//!                               error value changes
//! ```
//!
//! A new one is armed for the next change. It stays readable until it is read or armed anew, also
//! if the value falls again meanwhile.
//!
//! An armed descriptor stands in the counter's line as a task in a call does ([`Bell`]), so an
//! add that it does not wait for costs the adder nothing. While it is readable it does not stand in
//! line. Each has a wait queue of its own, so that a wake-up reaches only those who wait for a
//! descriptor that has become readable.
//!
//! Nothing is lost in read(2): taking the values and arming for a change since is one step, and if
//! the values cannot be copied out, the descriptor is readable again.
//!
//! A descriptor is a use of its counter. If the counter is closed by force (its owner's device file
//! is gone, and another process has the descriptor), poll(2) gives `POLLERR | POLLHUP`, read(2) and
//! write(2) `EBADF`.
//!
//! Arming and taking are one hold of the counter's lock each. The memory of the place in line
//! travels with the descriptor: between its counter and one reader nothing is allocated.

use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            AtomicFlag,
            Release, //
        },
        Arc,
        SpinLock,
        SpinLockGuard, //
    },
    uaccess::{
        UserSliceReader,
        UserSliceWriter, //
    }, //
};

use kfi_core::{
    cntr::{
        Cond,
        Waiter, //
    },
    wait::Deadline, //
};

use super::counter::{
    Counter,
    Token, //
};
use crate::{
    provider::wait::{
        fd::READABLE,
        line::Memory, //
    },
    shim::{
        anon_file::{
            AnonFile,
            PollTable,
            EPOLLERR,
            EPOLLHUP, //
        },
        bindings::kfabric_cntr_values,
        wait::{
            new_wait_queue,
            WaitQueue, //
        }, //
    }, //
};

/// Where a descriptor stands in its counter's line.
#[derive(Default)]
pub(super) struct Place {
    /// Set while it stands in line.
    pub(super) waiter: Option<Waiter>,
    /// Memory to get in line with, while it does not stand there.
    pub(super) memory: Option<Memory<Token>>,
}

impl Place {
    /// It has left the line, and got memory back.
    pub(super) fn left(&mut self, memory: Option<Memory<Token>>) {
        self.waiter = None;
        if memory.is_some() {
            self.memory = memory;
        }
    }
}

/// What a counter has of a descriptor in its line: whether it is readable, and who waits for that.
#[pin_data]
pub(super) struct Bell {
    /// Changed under the counter's line lock.
    rung: AtomicFlag,
    /// Locked under the counter's line lock, and never waited for there.
    #[pin]
    place: SpinLock<Place>,
    #[pin]
    queue: WaitQueue,
}

impl Bell {
    fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            rung: AtomicFlag::new(false),
            place <- new_spinlock!(Place::default(), "cntr::Bell::place"),
            queue <- new_wait_queue!("cntr::Bell::queue"),
        })
    }

    /// Its place. Under the counter's line lock.
    pub(super) fn place(&self) -> SpinLockGuard<'_, Place> {
        self.place.lock()
    }

    /// It has happened: [`set`](Self::set) and [`wake`](Self::wake).
    pub(super) fn ring(&self) {
        self.set();
        self.wake();
    }

    /// It has happened. Under the counter's line lock; to be followed by [`wake`](Self::wake).
    pub(super) fn set(&self) {
        self.rung.store(true, Release);
    }

    /// Wakes who waits for it to happen.
    pub(super) fn wake(&self) {
        // The wait queue's lock orders this with who gets on the queue and then looks.
        self.queue.wake_poll(READABLE);
    }

    /// The counter is closed by force: also who waits for that alone is told.
    pub(super) fn hang_up(&self) {
        self.set();
        self.queue.wake_all();
    }

    /// Armed anew. Under the counter's line lock.
    pub(super) fn silence(&self) {
        self.rung.store(false, Release);
    }

    /// Whether it has happened.
    #[inline]
    pub(super) fn is_rung(&self) -> bool {
        self.rung.load(Acquire)
    }
}

/// What keeps a counter for a descriptor: a use of a [`Cntr`](super::Cntr).
pub(super) trait Holder: Send + Sync + 'static {
    /// The counter.
    fn counter(&self) -> &Counter;
}

/// See the module's story.
pub(super) struct Fd<H: Holder> {
    holder: H,
    bell: Arc<Bell>,
}

impl<H: Holder> Fd<H> {
    /// A descriptor of `holder`'s counter, armed for the next change. `EBADF` the counter was
    /// closed by force, `ENOMEM`. Sleeps.
    pub(super) fn new(holder: H) -> Result<Arc<Self>> {
        let bell = Arc::pin_init(Bell::new(), GFP_KERNEL_ACCOUNT)?;
        let fd = Arc::new(Self { holder, bell }, GFP_KERNEL_ACCOUNT)?;
        fd.arm(Cond::AnyChange(fd.counter().seen()))?;
        Ok(fd)
    }

    fn counter(&self) -> &Counter {
        self.holder.counter()
    }

    fn arm(&self, cond: Cond) -> Result {
        let mut spare = None;
        while !self.counter().arm(&self.bell, cond, &mut spare)? {
            spare = Some(Memory::new()?);
        }
        Ok(())
    }

    /// Arms it for a value of at least `threshold`. `EBADF`, `ENOMEM`. Sleeps.
    pub(super) fn arm_threshold(&self, threshold: u64) -> Result {
        self.arm(Cond::AtLeast(threshold, self.counter().entered()))
    }

    /// Arms it for the next change and gives `sink` the values that are there. `EAGAIN` it is not
    /// readable; `EBADF`; `ENOMEM`; the error of `sink`, and it is readable again. Sleeps.
    pub(super) fn take(&self, sink: impl FnOnce(&kfabric_cntr_values) -> Result) -> Result {
        if !self.is_readable() {
            return Err(EAGAIN);
        }
        let mut spare = None;
        let seen = loop {
            if let Some(seen) = self.counter().take(&self.bell, &mut spare)? {
                break seen;
            }
            spare = Some(Memory::new()?);
        };
        let values = kfabric_cntr_values {
            value: seen.value,
            err: seen.err,
        };
        sink(&values).inspect_err(|_| self.counter().ring(&self.bell))
    }

    /// Whether it is readable. Does not sleep.
    #[inline]
    pub(super) fn is_readable(&self) -> bool {
        self.bell.is_rung()
    }
}

impl<H: Holder> Drop for Fd<H> {
    fn drop(&mut self) {
        self.counter().leave_bell(&self.bell);
    }
}

impl<H: Holder> AnonFile for Fd<H> {
    const NAME: &'static CStr = c"[kfabric-cntr]";

    #[link_section = ".text.hot"]
    fn poll<'a>(&'a self, table: &PollTable<'a>) -> u32 {
        table.register(&self.bell.queue);
        if self.counter().is_closed() {
            EPOLLERR | EPOLLHUP
        } else if self.is_readable() {
            READABLE
        } else {
            0
        }
    }

    /// `EINVAL` less room than `struct kfabric_cntr_values`; `EAGAIN`; `EBADF`; `ERESTARTSYS`;
    /// `EFAULT`, `ENOMEM` and nothing has changed.
    #[link_section = ".text.hot"]
    fn read(&self, to: &mut UserSliceWriter, nonblock: bool) -> Result<usize> {
        const SIZE: usize = size_of::<kfabric_cntr_values>();
        if to.len() < SIZE {
            return Err(EINVAL);
        }
        loop {
            match self.take(|values| to.write(values)) {
                Ok(()) => return Ok(SIZE),
                // Not readable, or another reader was faster.
                Err(error) if error == EAGAIN && !nonblock => {
                    self.bell
                        .queue
                        .wait_until(Deadline::Forever, || self.is_readable().then_some(()))?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// `EINVAL` not 8 bytes; `EBADF`; `EFAULT`, `ENOMEM` and nothing has changed.
    fn write(&self, from: &mut UserSliceReader, _nonblock: bool) -> Result<usize> {
        const SIZE: usize = size_of::<u64>();
        if from.len() != SIZE {
            return Err(EINVAL);
        }
        self.arm_threshold(from.read()?)?;
        Ok(SIZE)
    }
}
