// SPDX-License-Identifier: GPL-2.0

//! Owners of files and principals of work, memory control groups, and charges for locked memory.

use crate::shim::{
    bindings as shim,
    reclaim::OwnerKind,
    sched::{
        BorrowedNice,
        Nice, //
    }, //
};
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

/// The owner of objects: the user and the process that opened the file or the fabric.
///
/// # Invariants
///
/// `pid` is a valid `struct pid`, to which this object owns a reference.
pub(crate) struct Owner {
    kind: OwnerKind,
    uid: Kuid,
    pid: NonNull<bindings::pid>,
    memcg: MemCgroup,
    nice: Nice,
}

// SAFETY: A `struct pid` is reference-counted and may be used and put by any task; a kuid is a
// number.
unsafe impl Send for Owner {}

// SAFETY: No field changes.
unsafe impl Sync for Owner {}

impl Owner {
    /// The effective user and the process (thread group) of the current task. Fails with `ENOMEM`.
    /// Sleeps.
    pub(crate) fn current(kind: OwnerKind) -> Result<Arc<Self>> {
        // SAFETY: The current task is valid.
        let pid =
            unsafe { bindings::get_task_pid(Task::current_raw(), bindings::pid_type_PIDTYPE_TGID) };
        // INVARIANT: `get_task_pid` took a reference.
        let owner = Self {
            kind,
            uid: Kuid::current_euid(),
            pid: NonNull::new(pid).ok_or(ESRCH)?,
            memcg: MemCgroup::current(),
            nice: Nice::current(),
        };
        Ok(Arc::new(owner, GFP_KERNEL_ACCOUNT)?)
    }

    /// Whether it is a program or a kernel consumer.
    pub(crate) fn kind(&self) -> OwnerKind {
        self.kind
    }

    /// Calls `run` on behalf of this owner, in a worker or in a task of another owner. Its
    /// allocations with `GFP_KERNEL_ACCOUNT` are charged to the owner's memory control group. Those
    /// on behalf of a kernel consumer do not wait for I/O. Process context.
    pub(crate) fn charge<R>(&self, run: impl FnOnce() -> R) -> R {
        let _scope = self.kind.scope();
        self.memcg.charge(run)
    }

    /// The memory control group of the process when it opened the file or the fabric.
    pub(crate) fn memcg(&self) -> &MemCgroup {
        &self.memcg
    }

    /// Gives the current task, a worker, the nice value that the task had which opened the file,
    /// until the result is dropped. A worker for a kernel consumer keeps its own: it may be the
    /// rescuer of its queue. Process context.
    #[must_use = "the value is restored when this is dropped"]
    pub(crate) fn borrow_nice(&self) -> Option<BorrowedNice> {
        match self.kind {
            OwnerKind::Program => Some(self.nice.borrow()),
            OwnerKind::Consumer => None,
        }
    }

    /// Whether the current task acts for the same user.
    pub(crate) fn is_current_user(&self) -> bool {
        self.uid == Kuid::current_euid()
    }

    /// The process's number in the current task's PID namespace; 0 if it is not visible there.
    pub(crate) fn pid_in_current_ns(&self) -> i32 {
        // SAFETY: `pid` is valid by the type invariants.
        unsafe { bindings::pid_vnr(self.pid.as_ptr()) }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // SAFETY: The reference is owned by the type invariants, and not used again.
        unsafe { bindings::put_pid(self.pid.as_ptr()) }
    }
}

/// Whether the current task may exceed resource limits: it has `CAP_SYS_RESOURCE` in the initial
/// user namespace. Does not sleep.
pub(crate) fn may_exceed_limits() -> bool {
    // SAFETY: No requirements.
    unsafe { shim::kfabric_shim_may_exceed_limits() }
}

/// The most ancestors of a user namespace: the kernel allows no deeper nesting.
pub(crate) const NAMESPACE_DEPTH: usize = 33;

/// The owners of the current task's user namespace and of its ancestors, from the topmost down, and
/// their number. It leaves out the initial namespace and namespaces that root owns. Does not sleep.
pub(crate) fn namespace_owners() -> ([Kuid; NAMESPACE_DEPTH], usize) {
    let mut owners = [bindings::kuid_t::default(); NAMESPACE_DEPTH];
    // SAFETY: There is room for that many. The current task keeps the namespaces alive.
    let count =
        unsafe { shim::kfabric_shim_namespace_owners(owners.as_mut_ptr(), NAMESPACE_DEPTH as u32) };
    (owners.map(Kuid::from_raw), count as usize)
}

/// The user and the memory control group on whose behalf work is done, and whether that is for
/// programs or kernel consumers.
#[derive(PartialEq)]
pub(crate) struct Principal {
    kind: OwnerKind,
    uid: Kuid,
    /// The ID of the user namespace.
    user_ns: u64,
    memcg: MemCgroup,
}

impl Principal {
    /// `uid`, in the current task's user namespace and memory control group. Process context.
    pub(crate) fn with_user(kind: OwnerKind, uid: Kuid) -> Self {
        Self {
            kind,
            uid,
            // SAFETY: Only reads the current task.
            user_ns: unsafe { shim::kfabric_shim_user_ns_current() },
            memcg: MemCgroup::current(),
        }
    }

    /// Whether it is of programs or kernel consumers. Any context.
    pub(crate) fn kind(&self) -> OwnerKind {
        self.kind
    }

    /// Whether the current task has the effective user, the user namespace and the memory control
    /// group of this principal. The caller compares the kind, which a task does not have. Never
    /// true of a worker thread of a workqueue, which runs on behalf of others. Process context, or
    /// softirq: then the current task is the one that was interrupted.
    pub(crate) fn is_current(&self) -> bool {
        // SAFETY: Only reads the current task, and compares a pointer.
        unsafe { shim::kfabric_shim_is_current(self.uid.into_raw(), self.user_ns, self.memcg.0) }
    }
}

/// A memory control group to charge memory to.
///
/// # Invariants
///
/// The pointer is null, or a memory control group to which this object owns a reference.
#[derive(PartialEq)]
pub(crate) struct MemCgroup(*mut c_void);

// SAFETY: A control group is reference-counted and may be used and put by any task.
unsafe impl Send for MemCgroup {}

// SAFETY: The pointer does not change.
unsafe impl Sync for MemCgroup {}

impl MemCgroup {
    /// The group of the current task's memory. Process context.
    pub(crate) fn current() -> Self {
        // SAFETY: Only reads the current task. INVARIANT: The result owns the reference.
        Self(unsafe { shim::kfabric_shim_memcg_current() })
    }

    /// Calls `run`; its allocations with `GFP_KERNEL_ACCOUNT` are charged to this group instead of
    /// the current task's. Process context.
    pub(crate) fn charge<R>(&self, run: impl FnOnce() -> R) -> R {
        /// Ends the scope on drop.
        struct Scope(*mut c_void);

        impl Drop for Scope {
            fn drop(&mut self) {
                // SAFETY: This is the group that was active before `enter`, in the same task.
                unsafe { shim::kfabric_shim_memcg_enter(self.0) };
            }
        }

        // SAFETY: The group is valid by the type invariants, and outlives the scope.
        let _scope = Scope(unsafe { shim::kfabric_shim_memcg_enter(self.0) });
        run()
    }
}

impl Drop for MemCgroup {
    fn drop(&mut self) {
        // SAFETY: The reference is owned by the type invariants, and not used again.
        unsafe { shim::kfabric_shim_memcg_put(self.0) }
    }
}

/// Locked pages charged to a user: `locked_vm` against `RLIMIT_MEMLOCK`, shown as `VmPin` of the
/// process. Dropping it returns the charge.
///
/// All memory that a user has locked through descriptors of any kind, such as io_uring's, counts
/// towards one limit. `CAP_IPC_LOCK` lifts it.
///
/// # Invariants
///
/// `pages` are charged to `user` and counted in `mm`, and this object owns a reference to each of
/// them; or `pages` is 0.
pub(crate) struct Charge {
    pages: usize,
    user: *mut bindings::user_struct,
    mm: *mut bindings::mm_struct,
}

// SAFETY: Both references may be used and put by any task.
unsafe impl Send for Charge {}

// SAFETY: No field changes.
unsafe impl Sync for Charge {}

impl Charge {
    /// Charges `pages` to the user of the current task. Process context of a task that has an mm,
    /// so not of a kernel thread. Fails with `ENOMEM` if the limit would be exceeded; `EFAULT` if
    /// the task has no mm.
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
        // SAFETY: The current task has an mm; the two pointers are outputs.
        to_result(unsafe { shim::kfabric_shim_charge(pages, &mut charge.user, &mut charge.mm) })?;
        // INVARIANT: The pages are charged, and both references were taken.
        charge.pages = pages;
        Ok(charge)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.pages != 0 {
            // SAFETY: By the type invariants the pages are charged, and the references are owned.
            unsafe { shim::kfabric_shim_uncharge(self.pages, self.user, self.mm) }
        }
    }
}
