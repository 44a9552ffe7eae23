// SPDX-License-Identifier: GPL-2.0

//! SRQ: a receive queue that several QPs share.
//!
//! It belongs to a PD, in which the keys of its receives are looked up, whatever the PD of the QP
//! is. Its limit event is reported once, when a message takes a receive and leaves fewer than the
//! limit. The next limit that is set is reported again.

use kernel::{
    prelude::*,
    sync::Arc,
    types::ForeignOwnable, //
};

use super::{
    callbacks::{
        Callbacks,
        Cookie, //
    },
    code, //
    declared,
    handle,
    pd::Pd,
    raw::{
        self,
        kfabric_verbs_pd,
        kfabric_verbs_sge,
        kfabric_verbs_srq,
        kfabric_verbs_srq_attr, //
    },
    recv::{
        Recv,
        RecvQueue, //
    },
    sge::sges_of,
};
use crate::mem::Allowance;

/// A shared receive queue.
pub(super) struct Srq {
    pd: Arc<Pd>,
    queue: Arc<RecvQueue>,
    callbacks: Callbacks,
    cookie: Cookie,
    _memory: Allowance,
}

impl Srq {
    /// An SRQ for `max_wr` receives of `max_sge` SGEs, with no limit. Process context, sleeps.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: no receives; or as [`RecvQueue::new`].
    /// - `ENOMEM`, also if the user has no more memory of the kernel (`user_memory`).
    pub(super) fn new(pd: Arc<Pd>, cookie: Cookie, max_wr: u32, max_sge: u32) -> Result<Arc<Self>> {
        if max_wr == 0 {
            return Err(EINVAL);
        }
        let budget = pd.context().budget();
        let srq = Self {
            queue: RecvQueue::new(budget, max_wr, max_sge)?,
            _memory: budget.take_for::<Self>(0)?,
            callbacks: pd.context().callbacks(),
            cookie,
            pd,
        };
        Ok(Arc::new(srq, GFP_KERNEL_ACCOUNT)?)
    }

    /// The PD of its receives. Any context.
    pub(super) fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Its receives. Any context.
    #[cfg(kfi_kunit)]
    pub(super) fn queue(&self) -> &Arc<RecvQueue> {
        &self.queue
    }

    /// Takes the oldest receive. Reports the limit event, whose handler must not sleep. Process
    /// context, no spin lock held.
    pub(super) fn pop(&self) -> Option<Recv> {
        let (recv, is_below) = self.queue.pop_limited();
        if is_below {
            self.callbacks
                .srq_event(self.cookie, raw::KFABRIC_VERBS_EVENT_SRQ_LIMIT);
        }
        recv
    }
}

declared! {
    kfabric_verbs_srq_create: fn(*mut kfabric_verbs_pd, u32, u32, *mut c_void)
        -> *mut kfabric_verbs_srq;
    kfabric_verbs_srq_modify: fn(*mut kfabric_verbs_srq, u32, u32, u32) -> c_int;
    kfabric_verbs_srq_query: fn(*mut kfabric_verbs_srq, *mut kfabric_verbs_srq_attr);
    kfabric_verbs_srq_post: fn(*mut kfabric_verbs_srq, u64, *const kfabric_verbs_sge, u32) -> c_int;
    kfabric_verbs_srq_destroy: fn(*mut kfabric_verbs_srq);
}

/// An SRQ of a PD. Fails as [`Srq::new`]. Sleeps.
///
/// # Safety
///
/// The handle is valid by the interface. The callbacks of the device may be called with the cookie
/// until the SRQ is destroyed.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_srq_create(
    pd: *mut kfabric_verbs_pd,
    max_wr: u32,
    max_sge: u32,
    cookie: *mut c_void,
) -> *mut kfabric_verbs_srq {
    // SAFETY: By the requirement above.
    let pd = unsafe { Arc::<Pd>::borrow(pd.cast()) };
    handle(Srq::new(pd.into(), Cookie::new(cookie), max_wr, max_sge))
}

/// Changes the attributes that are in `mask`. Fails as [`RecvQueue::modify`]; with `EOPNOTSUPP` if
/// the mask has others. Sleeps.
///
/// # Safety
///
/// The handle is valid by the interface.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_srq_modify(
    srq: *mut kfabric_verbs_srq,
    mask: u32,
    max_wr: u32,
    limit: u32,
) -> c_int {
    const MAX_WR: u32 = raw::KFABRIC_VERBS_SRQ_MAX_WR;
    const LIMIT: u32 = raw::KFABRIC_VERBS_SRQ_LIMIT;
    // SAFETY: By the requirement above.
    let srq = unsafe { Arc::<Srq>::borrow(srq.cast()) };
    if mask & !(MAX_WR | LIMIT) != 0 {
        return EOPNOTSUPP.to_errno();
    }
    let max_wr = (mask & MAX_WR != 0).then_some(max_wr);
    let limit = (mask & LIMIT != 0).then_some(limit);
    code(srq.queue.modify(max_wr, limit))
}

/// Stores the attributes. Any context.
///
/// # Safety
///
/// The arguments are valid by the interface.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_srq_query(
    srq: *mut kfabric_verbs_srq,
    attr: *mut kfabric_verbs_srq_attr,
) {
    // SAFETY: By the requirement above.
    let limits = unsafe { Arc::<Srq>::borrow(srq.cast()) }.queue.limits();
    let now = kfabric_verbs_srq_attr {
        max_wr: limits.max_wr,
        max_sge: limits.max_sge,
        limit: limits.limit,
    };
    // SAFETY: By the requirement above.
    unsafe { attr.write(now) };
}

/// Posts a receive of `count` SGEs. Fails as [`RecvQueue::post`]. Any context.
///
/// # Safety
///
/// The handle is valid by the interface; there are `count` SGEs at `sges`.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_srq_post(
    srq: *mut kfabric_verbs_srq,
    wr_id: u64,
    sges: *const kfabric_verbs_sge,
    count: u32,
) -> c_int {
    // SAFETY: By the requirement above.
    let srq = unsafe { Arc::<Srq>::borrow(srq.cast()) };
    // SAFETY: By the requirement above, they are valid during the call. Nothing changes them.
    let sges = unsafe { sges_of(sges, count) };
    code(srq.queue.post(wr_id, sges))
}

/// Ends an SRQ. No QP has it. Sleeps.
///
/// # Safety
///
/// The handle is valid by the interface, and not used any more.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_srq_destroy(srq: *mut kfabric_verbs_srq) {
    // SAFETY: By the requirement above.
    drop(unsafe { Arc::<Srq>::from_foreign(srq.cast()) });
}
