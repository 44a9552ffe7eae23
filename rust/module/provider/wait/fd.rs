// SPDX-License-Identifier: GPL-2.0

//! A CQ or an EQ as a file descriptor.
//!
//! The descriptor is readable while the queue has something to read, by a call or through the
//! mapped ring. read(2) and write(2) on the descriptor itself fail with `EINVAL`. All descriptors
//! of a queue share its wait queue, because they wait for the same condition.
//!
//! A descriptor is a use of its queue. The queue can be closed by force while another process holds
//! the descriptor, when the owner's device file is released. Then poll(2) gives `POLLERR |
//! POLLHUP`.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use crate::{
    provider::object::{
        Object,
        UseRef, //
    },
    shim::{
        anon_file::{
            AnonFile,
            PendingFd,
            PollTable,
            EPOLLERR,
            EPOLLHUP,
            EPOLLIN,
            EPOLLRDNORM, //
        },
        wait::WaitQueue, //
    }, //
};

/// A queue with descriptors that are readable while it has something to read.
pub(in crate::provider) trait Readable: Object + 'static {
    /// The name of its descriptors in `/proc/PID/fd`.
    const NAME: &'static CStr;

    /// The wait queue of pollers. It is woken with `EPOLLIN | EPOLLRDNORM` when there is something
    /// to read, and with all events when the queue was closed.
    fn readable(&self) -> &WaitQueue;

    /// Whether there is something to read. Does not sleep.
    fn is_ready(&self) -> bool;
}

/// The events that wake [`Readable::readable`].
pub(in crate::provider) const READABLE: u32 = EPOLLIN | EPOLLRDNORM;

/// The file behind a descriptor.
struct QueueFd<T: Readable> {
    queue: UseRef<T>,
}

/// Makes a descriptor for `queue`, which is a use of it. Fails with `EBADF` if the queue is closed;
/// `EMFILE`, `ENFILE`, `ENOMEM`. Sleeps.
pub(in crate::provider) fn open<T: Readable>(queue: &Arc<T>) -> Result<PendingFd> {
    let queue = UseRef::new(queue.clone())?;
    PendingFd::new(Arc::new(QueueFd { queue }, GFP_KERNEL_ACCOUNT)?)
}

impl<T: Readable> AnonFile for QueueFd<T> {
    const NAME: &'static CStr = T::NAME;

    fn poll<'a>(&'a self, table: &PollTable<'a>) -> u32 {
        table.register(self.queue.readable());
        if self.queue.uses().is_closed() {
            EPOLLERR | EPOLLHUP
        } else if self.queue.is_ready() {
            READABLE
        } else {
            0
        }
    }
}
