// SPDX-License-Identifier: GPL-2.0

//! A CQ or an EQ as a descriptor.
//!
//! It is readable while there is something to be read from the queue, by call or through the
//! mapped ring; nothing is read from, or written to, the descriptor itself (`EINVAL`). All
//! descriptors of a queue share its wait queue, because they all wait for the same thing.
//!
//! A descriptor is a use of its queue. If the queue is closed by force (its owner's device file is
//! gone, and another process has the descriptor), the descriptor hangs up: `POLLERR | POLLHUP`.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use crate::{
    provider::object::{
        Object,
        Used, //
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

/// A queue whose descriptors are readable while it has something to read.
pub(in crate::provider) trait Readable: Object + 'static {
    /// Class of its descriptors, as `/proc/PID/fd` shows it.
    const NAME: &'static CStr;

    /// Woken with `EPOLLIN | EPOLLRDNORM` after something to read has come, and with everything
    /// after the queue was closed.
    fn readable(&self) -> &WaitQueue;

    /// Whether there is something to read. Does not sleep.
    fn is_ready(&self) -> bool;
}

/// The events that [`Readable::readable`] is woken with.
pub(in crate::provider) const READABLE: u32 = EPOLLIN | EPOLLRDNORM;

/// The file behind a descriptor.
struct QueueFd<T: Readable> {
    queue: Used<T>,
}

/// Makes a descriptor for `queue`; it is a use. `EBADF` the queue is closed, `EMFILE`, `ENFILE`,
/// `ENOMEM`. Sleeps.
pub(in crate::provider) fn open<T: Readable>(queue: &Arc<T>) -> Result<PendingFd> {
    let queue = Used::new(queue.clone())?;
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
