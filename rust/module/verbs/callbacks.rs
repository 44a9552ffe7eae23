// SPDX-License-Identifier: GPL-2.0

//! Callbacks: the functions of `kfabric_ib.ko` that the objects of a device call.
//!
//! They report completions and events to the RDMA subsystem, which calls the handlers of programs
//! and of kernel callers. These must not sleep. They may call the functions of verbs that do not
//! sleep: poll and arm a CQ, post requests. So no spin lock of the module is held.

use kernel::prelude::*;

use super::raw::kfabric_verbs_callbacks;

/// The object of the RDMA subsystem that an object here belongs to, as an address.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Cookie(u64);

impl Cookie {
    /// No object.
    pub(super) const NONE: Self = Self(0);

    /// The object at this address.
    pub(super) fn new(object: *mut c_void) -> Self {
        Self(object as u64)
    }

    /// Its address.
    pub(super) fn address(self) -> *mut c_void {
        self.0 as *mut c_void
    }
}

/// The functions that the objects of a device call.
///
/// # Invariants
///
/// The functions may be called with the cookie of each object of the device, until the object's
/// handle is ended.
#[derive(Clone, Copy)]
pub(super) struct Callbacks(&'static kfabric_verbs_callbacks);

impl Callbacks {
    /// These functions.
    ///
    /// # Safety
    ///
    /// They may be called with the cookie of each object of the device, until the object's handle
    /// is ended.
    pub(super) unsafe fn new(functions: &'static kfabric_verbs_callbacks) -> Self {
        // INVARIANT: By the requirement above.
        Self(functions)
    }

    /// The CQ with this cookie calls its completion handler. Any context; no spin lock held.
    pub(super) fn comp(self, cq: Cookie) {
        if let Some(comp) = self.0.comp {
            // SAFETY: By the type invariants; the CQ calls this, so its handle is not ended.
            unsafe { comp(cq.address()) };
        }
    }

    /// The CQ with this cookie was full when an entry came. Any context; no spin lock held.
    pub(super) fn cq_error(self, cq: Cookie) {
        if let Some(cq_error) = self.0.cq_error {
            // SAFETY: By the type invariants; the CQ calls this, so its handle is not ended.
            unsafe { cq_error(cq.address()) };
        }
    }

    /// The SRQ with this cookie has an event, a number of `enum ib_event_type`. Any context; no
    /// spin lock held.
    pub(super) fn srq_event(self, srq: Cookie, event: u32) {
        if let Some(srq_event) = self.0.srq_event {
            // SAFETY: By the type invariants; the SRQ calls this, so its handle is not ended.
            unsafe { srq_event(srq.address(), event) };
        }
    }

    /// The QP with this cookie has an event, a number of `enum ib_event_type`. Any context; no spin
    /// lock held.
    pub(super) fn qp_event(self, qp: Cookie, event: u32) {
        if let Some(qp_event) = self.0.qp_event {
            // SAFETY: By the type invariants; the QP calls this, so its handle is not ended.
            unsafe { qp_event(qp.address(), event) };
        }
    }
}
