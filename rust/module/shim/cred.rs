// SPDX-License-Identifier: GPL-2.0

//! Who opened something, and what they have locked in memory.

use crate::shim::bindings as shim;
use core::ptr::NonNull;
use kernel::{
    bindings,
    error::to_result,
    prelude::*,
    sync::Arc,
    task::{
        Kuid,
        Task, //
    }, //
};

/// Who opened the device: their user and their process.
///
/// # Invariants
///
/// `pid` is a valid `struct pid`, and one reference to it is ours.
pub(crate) struct Owner {
    uid: Kuid,
    pid: NonNull<bindings::pid>,
}

// SAFETY: A `struct pid` is reference-counted and may be used and put by any task; a kuid is a
// number.
unsafe impl Send for Owner {}

// SAFETY: Nothing of it changes.
unsafe impl Sync for Owner {}

impl Owner {
    /// The effective user and the process (thread group) of the current task.
    ///
    /// Process context, may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn current() -> Result<Arc<Self>> {
        // SAFETY: The current task is valid.
        let pid =
            unsafe { bindings::get_task_pid(Task::current_raw(), bindings::pid_type_PIDTYPE_TGID) };
        // INVARIANT: `get_task_pid` took a reference.
        let owner = Self {
            uid: Kuid::current_euid(),
            pid: NonNull::new(pid).ok_or(ESRCH)?,
        };
        Ok(Arc::new(owner, GFP_KERNEL_ACCOUNT)?)
    }

    /// Whether the current task acts for the same user.
    pub(crate) fn is_current_user(&self) -> bool {
        self.uid == Kuid::current_euid()
    }

    /// The process's number in the current task's PID namespace; 0 if it cannot
    /// be seen from there.
    pub(crate) fn pid_in_current_ns(&self) -> i32 {
        // SAFETY: `pid` is valid by the type invariants.
        unsafe { bindings::pid_vnr(self.pid.as_ptr()) }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // SAFETY: The reference is ours by the type invariants, and not used again.
        unsafe { bindings::put_pid(self.pid.as_ptr()) }
    }
}

/// Whether the current task may exceed limits of resources: `CAP_SYS_RESOURCE`, outside of any user
/// namespace. Does not sleep.
pub(crate) fn may_exceed_limits() -> bool {
    // SAFETY: No requirements.
    unsafe { shim::kfabric_shim_may_exceed_limits() }
}

/// Pages charged to a user: `locked_vm` against `RLIMIT_MEMLOCK`, and shown as
/// `VmPin` of the process. Given back when dropped.
///
/// All that one user has locked through descriptors of any kind, such as
/// io_uring's, stands against one limit. `CAP_IPC_LOCK` lifts it.
///
/// # Invariants
///
/// `pages` are charged to `user` and counted on `mm`, and one reference to each
/// of these is ours; or `pages` is 0.
pub(crate) struct Charge {
    pages: usize,
    user: *mut bindings::user_struct,
    mm: *mut bindings::mm_struct,
}

// SAFETY: Both references may be used and put by any task.
unsafe impl Send for Charge {}

// SAFETY: Nothing of it changes.
unsafe impl Sync for Charge {}

impl Charge {
    /// Charges `pages` to the user of the current task.
    ///
    /// Process context of a task with memory of its own: not of a kernel thread.
    ///
    /// # Errors
    ///
    /// `ENOMEM` over the limit.
    pub(crate) fn current(pages: usize) -> Result<Self> {
        let mut charge = Self {
            pages: 0,
            user: core::ptr::null_mut(),
            mm: core::ptr::null_mut(),
        };
        if pages == 0 {
            return Ok(charge);
        }
        if current!().mm().is_none() {
            return Err(EFAULT);
        }
        // SAFETY: The current task has an mm; the two pointers are written to.
        to_result(unsafe { shim::kfabric_shim_charge(pages, &mut charge.user, &mut charge.mm) })?;
        // INVARIANT: Charged, and both references taken.
        charge.pages = pages;
        Ok(charge)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.pages != 0 {
            // SAFETY: By the type invariants this was charged, and the references are ours.
            unsafe { shim::kfabric_shim_uncharge(self.pages, self.user, self.mm) }
        }
    }
}
