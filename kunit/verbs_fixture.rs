// SPDX-License-Identifier: GPL-2.0

//! What the suites of the queues of verbs have in common: handlers that count their calls, and
//! entries with numbers.

use super::{
    callbacks::{
        Callbacks,
        Cookie, //
    },
    cq::{
        Access,
        Arm,
        Cq,
        Entry,
        MAX_CQE, //
    },
    raw, //
};
use crate::{
    kunit::helpers::user,
    mem::{
        Budget,
        Part, //
    }, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full, //
        },
        Arc,
        Mutex, //
    }, //
};

/// The calls of the handlers of the objects of a case, whose cookie is the address of this.
#[pin_data]
pub(super) struct Calls {
    comps: Atomic<u32>,
    errors: Atomic<u32>,
    limits: Atomic<u32>,
    drained: Atomic<u32>,
    inside: Atomic<u32>,
    /// Calls that overlapped another one, and entries that were not in order.
    pub(super) bad: Atomic<u32>,
    /// Entries that the handler has polled.
    pub(super) polled: Atomic<u64>,
    /// The entries that the handler pushes, one in each call.
    pub(super) pushes: Atomic<u32>,
    /// The CQ that the handler arms and polls.
    #[pin]
    pub(super) cq: Mutex<Option<Arc<Cq>>>,
}

impl Calls {
    fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                comps: Atomic::new(0),
                errors: Atomic::new(0),
                limits: Atomic::new(0),
                drained: Atomic::new(0),
                inside: Atomic::new(0),
                bad: Atomic::new(0),
                polled: Atomic::new(0),
                pushes: Atomic::new(0),
                cq <- new_mutex!(None),
            }),
            GFP_KERNEL,
        )
    }

    /// The numbers of calls of the handlers for completions, for overruns and for limits.
    pub(super) fn numbers(&self) -> (u32, u32, u32) {
        (
            self.comps.load(Acquire),
            self.errors.load(Acquire),
            self.limits.load(Acquire),
        )
    }

    /// The number of calls of the handler for QPs whose send queue is drained.
    pub(super) fn drained(&self) -> u32 {
        self.drained.load(Acquire)
    }

    fn comp(&self) {
        let overlaps = self.inside.fetch_add(1, Full) != 0;
        let cq = self.cq.lock().clone();
        if let Some(cq) = cq {
            cq.arm(Arm::Next);
            if self.pushes.load(Acquire) > 0 {
                self.pushes.fetch_sub(1, Full);
                let _ = cq.push(&entry(1, 0), false);
                cq.notify();
            }
            let taken = cq.poll(MAX_CQE, |_| {});
            self.polled.fetch_add(taken.into(), Full);
        }
        self.bad.fetch_add(overlaps.into(), Full);
        self.inside.fetch_sub(1, Full);
        self.comps.fetch_add(1, Full);
    }
}

/// The calls behind a cookie.
///
/// # Safety
///
/// The cookie is that of an object of a case that has not ended.
unsafe fn calls<'a>(cookie: *mut c_void) -> &'a Calls {
    // SAFETY: The case has a reference.
    unsafe { &*cookie.cast() }
}

extern "C" fn comp(cookie: *mut c_void) {
    // SAFETY: `FUNCTIONS` belongs to objects of the cases alone.
    unsafe { calls(cookie) }.comp();
}

extern "C" fn cq_error(cookie: *mut c_void) {
    // SAFETY: As above.
    unsafe { calls(cookie) }.errors.fetch_add(1, Full);
}

extern "C" fn srq_event(cookie: *mut c_void, event: u32) {
    // SAFETY: As above.
    let calls = unsafe { calls(cookie) };
    let right = event == raw::KFABRIC_VERBS_EVENT_SRQ_LIMIT;
    calls.limits.fetch_add(right.into(), Full);
}

extern "C" fn qp_event(cookie: *mut c_void, event: u32) {
    // The QPs of some cases have no cookie.
    if !cookie.is_null() {
        // SAFETY: As above.
        let calls = unsafe { calls(cookie) };
        let right = event == raw::KFABRIC_VERBS_EVENT_SQ_DRAINED;
        calls.drained.fetch_add(right.into(), Full);
    }
}

static FUNCTIONS: raw::kfabric_verbs_callbacks = raw::kfabric_verbs_callbacks {
    comp: Some(comp),
    cq_error: Some(cq_error),
    srq_event: Some(srq_event),
    qp_event: Some(qp_event),
};

pub(super) fn functions() -> Callbacks {
    // SAFETY: The cookie of each object of a case is the address of its `Calls`; that of a QP may be
    // NULL, which `qp_event()` checks.
    unsafe { Callbacks::new(&FUNCTIONS) }
}

pub(super) fn cookie(calls: &Arc<Calls>) -> Cookie {
    Cookie::new(Arc::as_ptr(calls).cast_mut().cast())
}

/// What most cases need. Each uses a user of its own.
pub(super) struct Case {
    pub(super) calls: Arc<Calls>,
    pub(super) budget: Budget,
}

impl Case {
    pub(super) fn new(number: u32) -> Result<Self> {
        Ok(Self {
            calls: Calls::new()?,
            budget: Budget::of(user(number), Some(64 << 20))?,
        })
    }

    pub(super) fn cq(&self, entries: u32) -> Result<Arc<Cq>> {
        Cq::new(
            &self.budget,
            functions(),
            cookie(&self.calls),
            entries,
            Access::Calls,
        )
    }

    pub(super) fn charged(&self) -> u64 {
        self.budget.charged(Part::Peers).0
    }
}

pub(super) fn qp(number: u64) -> Cookie {
    Cookie::new((0x1000 + number) as *mut c_void)
}

/// The entry `wr_id` of the QP `number`.
pub(super) fn entry(wr_id: u64, number: u64) -> Entry {
    Entry {
        wr_id,
        qp: qp(number),
        ..Entry::EMPTY
    }
}

/// Pushes the entries from `first` on, `count` of them, of one QP.
pub(super) fn push(cq: &Cq, first: u64, count: u64) -> Result {
    for wr_id in first..first + count {
        ensure_eq!(cq.push(&entry(wr_id, 0), false), Ok(()));
    }
    Ok(())
}

/// Polls `count` entries, which are those from `first` on.
pub(super) fn polls(cq: &Cq, first: u64, count: u32) -> bool {
    let (mut next, mut same) = (first, true);
    let taken = cq.poll(count, |entry| {
        same &= entry.wr_id == next;
        next += 1;
    });
    same && taken == count
}

pub(super) fn is_empty(cq: &Cq) -> bool {
    cq.poll(1, |_| {}) == 0
}
