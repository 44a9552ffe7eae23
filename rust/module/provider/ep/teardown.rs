// SPDX-License-Identifier: GPL-2.0

//! The teardown of an endpoint, and the number of endpoints that are being torn down.
//!
//! The task that closes an endpoint tears it down, unless a close by force finds that another task
//! still uses the endpoint: one that posts its started operations, or the worker of a session with
//! a peer. That task does the rest when it ends. The module ends after all teardowns.

use kernel::{
    sync::atomic::{
        Acquire,
        Full, //
    },
    time::{
        delay::fsleep,
        Delta, //
    }, //
};

use super::{
    prelude::*,
    wire::Wire, //
};

/// The endpoints that are being torn down, also by the worker of a session or by the task that
/// posts started operations.
pub(super) static TEARDOWNS: Atomic<u32> = Atomic::new(0);

/// Counts an endpoint that is being torn down until it is dropped. The module ends after that.
pub(super) struct PendingTeardown(());

impl PendingTeardown {
    /// Counts one more. Any context.
    pub(super) fn new() -> Self {
        TEARDOWNS.fetch_add(1, Full);
        Self(())
    }

    /// Leaves the rest to another task, which takes the count over.
    pub(super) fn leave(self) {
        core::mem::forget(self);
    }

    /// The count of a teardown that was [left](Self::leave) to the caller.
    pub(super) fn of_other() -> Self {
        Self(())
    }
}

impl Drop for PendingTeardown {
    fn drop(&mut self) {
        TEARDOWNS.fetch_sub(1, Full);
    }
}

/// Waits until no endpoint is being torn down: for the end of the module. Sleeps.
pub(in crate::provider) fn wait_for_teardowns() {
    // Only the end of the module waits, seldom, so that sessions need no wait queue for it.
    while TEARDOWNS.load(Acquire) != 0 {
        fsleep(Delta::from_millis(10));
    }
}

impl Endpoint {
    /// Tears the endpoint down. It is shut, and no operation of the owner is inside. If a session
    /// with a peer does not end in time, its worker does the rest. Sleeps.
    pub(super) fn teardown_now(&self) {
        self.submission.drop_all();
        if self.leave_remote() {
            self.end_teardown();
        }
    }

    /// [`teardown_now`](Self::teardown_now) by the task that posts started operations. Sleeps.
    pub(super) fn teardown_left(&self) {
        let _teardown = PendingTeardown::of_other();
        self.teardown_now();
    }

    /// The part of [`teardown_now`](Self::teardown_now) that needs the end of all sessions. Sleeps.
    pub(super) fn end_teardown(&self) {
        if let Some(bound) = self.bound.as_ref() {
            if let Some(Wire::Msg(msg)) = &self.wire {
                msg.drop_all(self, bound);
            }
            self.drop_receives(bound);
            self.fail_unexpected();
            self.take_back_sends(bound);
            self.leave_srx();
            if let Some(eq) = &bound.eq {
                eq.remove_events_of(&self.ident);
            }
            bound.release();
        }
        if let Some(context) = &self.context {
            context.leave();
        }
        if let Some(srx) = self.srx.as_ref() {
            srx.release();
        }
        if let Some(stx) = self.tx.stx.as_ref() {
            stx.release();
        }
        self.domain.release();
    }
}
