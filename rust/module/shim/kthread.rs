// SPDX-License-Identifier: GPL-2.0

//! Kernel threads for the KUnit suites.
//!
//! Built with the suites only (cfg `kfi_kunit`).

use crate::shim::bindings as shim;
use core::ptr::NonNull;
use kernel::{
    bindings,
    error::from_err_ptr,
    prelude::*,
    sync::{
        Arc,
        Completion, //
    }, //
};

/// A thread that runs a closure once.
///
/// Dropping it waits for the thread to end.
pub(crate) struct Join {
    done: Arc<Completion>,
    task: NonNull<bindings::task_struct>,
}

/// The argument of the thread of a [`Join`].
struct Start<F> {
    run: F,
    done: Arc<Completion>,
}

/// Runs `run` in a kernel thread.
///
/// Process context.
///
/// # Errors
///
/// `ENOMEM`.
pub(crate) fn spawn<F: FnOnce() + Send + 'static>(name: &'static CStr, run: F) -> Result<Join> {
    let done = Arc::pin_init(Completion::new(), GFP_KERNEL)?;
    let start = KBox::new(
        Start {
            run,
            done: done.clone(),
        },
        GFP_KERNEL,
    )?;
    let start = KBox::into_raw(start);
    // SAFETY: `main::<F>` expects `start` and takes it over; the name is static.
    let task = from_err_ptr(unsafe {
        shim::kfabric_shim_kunit_thread(Some(main::<F>), start.cast(), name.as_char_ptr())
    })
    .inspect_err(|_| {
        // SAFETY: No thread was created, so `start` is still owned here.
        drop(unsafe { KBox::from_raw(start) });
    })?;
    Ok(Join {
        done,
        task: NonNull::new(task).ok_or(ENOMEM)?,
    })
}

/// # Safety
///
/// `data` is a `Start<F>` that `spawn` has created and passes on.
unsafe extern "C" fn main<F: FnOnce() + Send + 'static>(data: *mut c_void) -> c_int {
    // SAFETY: By the requirements.
    let start = KBox::into_inner(unsafe { KBox::from_raw(data.cast::<Start<F>>()) });
    (start.run)();
    start.done.complete_all();
    0
}

/// Allows the current thread, which [`spawn`] created, to be [killed](Join::kill).
pub(crate) fn allow_kill() {
    // SAFETY: Changes the signal handling of the current task; process context.
    unsafe { shim::kfabric_shim_kunit_allow_kill() }
}

impl Join {
    /// Sends a fatal signal to the thread, which has called [`allow_kill`]. It ends the thread's
    /// killable waits.
    pub(crate) fn kill(&self) {
        // SAFETY: The task is valid, as `kfabric_shim_kunit_thread` took a reference.
        unsafe { shim::kfabric_shim_kunit_kill(self.task.as_ptr()) }
    }

    /// Waits for the thread to end.
    pub(crate) fn join(self) {}
}

impl Drop for Join {
    fn drop(&mut self) {
        self.done.wait_for_completion();
        // SAFETY: The task is valid, as `kfabric_shim_kunit_thread` took a reference, which this
        // puts. The closure has run, so the thread ends by itself or has ended; afterwards it runs
        // no code of this module.
        unsafe { shim::kfabric_shim_kunit_join(self.task.as_ptr()) };
    }
}
