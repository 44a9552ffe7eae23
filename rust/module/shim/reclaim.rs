// SPDX-License-Identifier: GPL-2.0

//! Memory reclaim: whose allocations must not wait for I/O.
//!
//! A kernel consumer may write back dirty pages. Then its operations are what frees memory, and an
//! allocation that they need must not start I/O and wait for it: that I/O may be the consumer's
//! own. A consumer that posts in process context chooses the scope of its allocations itself. What
//! a worker does for it runs in the scope [`NoIo`].
//!
//! A program waits for memory like any task, and nothing that frees memory waits for a program. So
//! a worker may wait for I/O on its behalf: its memory control group can then swap, instead of
//! killing a process.

use crate::shim::bindings;
use kernel::{
    prelude::*,
    types::NotThreadSafe, //
};

/// The kind of an owner of objects. It selects the workqueues, the account, and whether allocations
/// of workers may wait for I/O.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum OwnerKind {
    /// Those of an open file.
    Program,
    /// Those of a kernel module.
    Consumer,
}

impl OwnerKind {
    /// The scope for what a worker, or a task of another owner, does on behalf of an owner of this
    /// kind. Any context.
    #[must_use = "the scope ends when this is dropped"]
    pub(crate) fn scope(self) -> Option<NoIo> {
        match self {
            Self::Program => None,
            Self::Consumer => Some(NoIo::enter()),
        }
    }
}

/// A scope of the current task, in which no allocation starts I/O or waits for it:
/// `memalloc_noio_save()`. It ends when this is dropped. Scopes nest: they are dropped in the
/// reverse order. It stays with the task that made it.
pub(crate) struct NoIo {
    before: c_uint,
    _not_send: NotThreadSafe,
}

impl NoIo {
    /// Begins the scope. Any context.
    #[must_use = "the scope ends when this is dropped"]
    pub(crate) fn enter() -> Self {
        Self {
            // SAFETY: Changes a flag of the current task, which only this task changes.
            before: unsafe { bindings::kfabric_shim_noio_save() },
            _not_send: NotThreadSafe,
        }
    }
}

impl Drop for NoIo {
    fn drop(&mut self) {
        // SAFETY: The value is of the same task, because this is not `Send`.
        unsafe { bindings::kfabric_shim_noio_restore(self.before) }
    }
}
