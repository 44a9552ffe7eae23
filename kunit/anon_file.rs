// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_anon_file`: anonymous file descriptors, from reservation to release.
//!
//! Guest scenarios test sleeping in poll(2), epoll and io_uring.

use super::*;
use crate::{
    kunit::helpers::{
        soon,
        UserFd,
        UserMemory, //
    },
    shim::wait::new_wait_queue, //
};
use kernel::sync::atomic::{
    ordering::{
        Acquire,
        Full,
        Relaxed, //
    },
    Atomic, //
};

/// The state of a [`Mailbox`] after its release.
#[pin_data]
struct ReleaseState {
    #[pin]
    queue: WaitQueue,
    released: Atomic<u32>,
}

/// A file with a number that can be written and read; 0 means none.
#[pin_data(PinnedDrop)]
struct Mailbox {
    #[pin]
    queue: WaitQueue,
    number: Atomic<u32>,
    state: Arc<ReleaseState>,
}

impl Mailbox {
    fn new() -> Result<(Arc<Self>, Arc<ReleaseState>)> {
        let state = Arc::pin_init(
            pin_init!(ReleaseState {
                queue <- new_wait_queue!("kunit::ReleaseState"),
                released: Atomic::new(0),
            }),
            GFP_KERNEL,
        )?;
        let shared = state.clone();
        let mailbox = Arc::pin_init(
            pin_init!(Self {
                queue <- new_wait_queue!("kunit::Mailbox"),
                number: Atomic::new(0),
                state: shared,
            }),
            GFP_KERNEL,
        )?;
        Ok((mailbox, state))
    }
}

#[pinned_drop]
impl PinnedDrop for Mailbox {
    fn drop(self: Pin<&mut Self>) {
        self.state.released.fetch_add(1, Full);
        self.state.queue.wake_all();
    }
}

impl AnonFile for Mailbox {
    const NAME: &'static CStr = c"[kfabric-mailbox]";

    fn poll<'a>(&'a self, table: &PollTable<'a>) -> u32 {
        table.register(&self.queue);
        if self.number.load(Acquire) == 0 {
            EPOLLHUP
        } else {
            EPOLLIN | EPOLLRDNORM
        }
    }

    fn read(&self, to: &mut UserSliceWriter, nonblock: bool) -> Result<usize> {
        if to.len() < size_of::<u32>() {
            return Err(EINVAL);
        }
        match self.number.xchg(0, Full) {
            0 if nonblock => Err(EAGAIN),
            0 => Ok(0),
            number => to.write(&number).map(|()| size_of::<u32>()),
        }
    }

    fn write(&self, from: &mut UserSliceReader, _nonblock: bool) -> Result<usize> {
        self.number.store(from.read()?, Relaxed);
        self.queue.wake_poll(EPOLLIN);
        Ok(size_of::<u32>())
    }
}

/// A file that supports neither reading nor writing.
struct Silent;

impl AnonFile for Silent {
    const NAME: &'static CStr = c"[kfabric-silent]";

    fn poll<'a>(&'a self, _table: &PollTable<'a>) -> u32 {
        EPOLLHUP
    }
}

/// Waits until the object is released, which the file system does a little after the close. Returns
/// the number of releases.
fn released(state: &ReleaseState) -> u32 {
    let count = || state.released.load(Acquire);
    let seen = || Some(count()).filter(|count| *count > 0);
    state.queue.wait_until(soon(), seen).unwrap_or(0)
}

#[kunit_tests(kfabric_anon_file)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_that_is_not_installed_is_released() -> Result {
        let (mailbox, state) = Mailbox::new()?;
        let pending = PendingFd::new(mailbox)?;
        let number = pending.fd();
        ensure!(number >= 0);
        // The descriptor is reserved, and not open yet.
        ensure_eq!(UserFd::new(number).poll(), 0);
        ensure_eq!(state.released.load(Acquire), 0);
        drop(pending);
        ensure_eq!(released(&state), 1);
        // The number is free again.
        let (mailbox, state) = Mailbox::new()?;
        let again = PendingFd::new(mailbox)?;
        ensure_eq!(again.fd(), number);
        drop(again);
        ensure_eq!(released(&state), 1);
        Ok(())
    }

    #[test]
    fn a_descriptor_reaches_its_object() -> Result {
        let memory = UserMemory::map(4096, true)?;
        let (mailbox, state) = Mailbox::new()?;
        let pending = PendingFd::new(mailbox.clone())?;
        let fd = UserFd::new(pending.fd());
        pending.install();

        ensure_eq!(fd.poll(), EPOLLHUP);
        ensure_eq!(fd.read(&memory, 4, false), Ok(0));
        memory.write(0, &77u32.to_ne_bytes())?;
        ensure_eq!(fd.write(&memory, 4, false), Ok(4));
        ensure_eq!(mailbox.number.load(Acquire), 77);
        ensure_eq!(fd.poll(), EPOLLIN | EPOLLRDNORM);
        memory.write(0, &[0; 4])?;
        ensure_eq!(fd.read(&memory, 3, false), Err(EINVAL));
        ensure_eq!(fd.write(&memory, 3, false), Err(EFAULT));
        ensure_eq!(fd.read(&memory, 4096, false), Ok(4));
        let mut bytes = [0; 4];
        memory.read(0, &mut bytes)?;
        ensure_eq!(u32::from_ne_bytes(bytes), 77);
        ensure_eq!(fd.read(&memory, 4, true), Err(EAGAIN));

        // Only the file holds a reference to the object now.
        drop(mailbox);
        ensure_eq!(fd.poll(), EPOLLHUP);
        ensure_eq!(state.released.load(Acquire), 0);
        drop(fd);
        ensure_eq!(released(&state), 1);
        Ok(())
    }

    #[test]
    fn unsupported_reads_and_writes_fail() -> Result {
        let memory = UserMemory::map(4096, true)?;
        let silent = Arc::new(Silent, GFP_KERNEL)?;
        let pending = PendingFd::new(silent)?;
        let fd = UserFd::new(pending.fd());
        pending.install();
        ensure_eq!(fd.poll(), EPOLLHUP);
        ensure_eq!(fd.read(&memory, 8, false), Err(EINVAL));
        ensure_eq!(fd.write(&memory, 8, false), Err(EINVAL));
        Ok(())
    }
}
