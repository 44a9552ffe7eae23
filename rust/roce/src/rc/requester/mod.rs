// SPDX-License-Identifier: GPL-2.0
//! The requester: sends what is posted, until it is answered.
//!
//! ```text
//!              una              next             max
//!  answered     |  outstanding   |  to be sent    |  not sent yet
//!  -------------+----------------+---- again -----+----------------> PSN
//! ```
//!
//! Packets are cut from the send queue on demand: [`Requester::poll`] gives the next one that the
//! window, the peer's limits and the timers allow, and says which bytes of which work request are its
//! payload. Nothing is kept but the queue and three PSNs: going back is setting `next`.
//!
//! | file | what |
//! |---|---|
//! | `send.rs` | which packet is next |
//! | `receive.rs` | what a response answers |
//! | `recover.rs` | losses: NAKs, timers, packets that the local stack refused |
//!
//! # Losses
//!
//! A NAK, or a response behind a missing one (an implied NAK), sends all from `una` on again, at once.
//! Two timers guard against silence: after a few round trips one packet is sent again, and again after
//! twice the time (a probe, [`rtt`](super::rtt)); after the local ACK timeout that counts as a retry, and
//! again after two and after four times the timeout, which is as far as the specification lets it grow.
//! `retry_cnt` retries in which nothing new is answered are allowed; the next reason for one ends the
//! work request with [`Status::RetryExceeded`] and the QP goes to ERR. NAKs that follow each other faster
//! than probes would count as one. RNR NAKs are counted by themselves, against `rnr_retry`.
//!
//! Source: InfiniBand specification, volume 1, sections 9.7.3 to 9.7.6 and 9.9.2.

mod receive;
mod recover;
mod send;

#[cfg(any(test, kfi_kunit))]
mod tests;

pub use self::{
    receive::Received,
    recover::LOCAL_PAUSE,
    send::Outgoing, //
};

use super::{
    super::{
        mtu::PathMtu,
        psn::Psn,
        state::{
            Mask,
            Posting,
            State, //
        },
    },
    attr::Attr,
    gap::Gap,
    outstanding::{
        Outstanding,
        Slot, //
    },
    queue::{
        Completion,
        Number,
        SendQueue,
        Status,
        WorkRequest,
        Wqe, //
    },
    rtt::Rtt,
    stats::RequesterStats,
    window::Window,
    MAX_LEN, //
};
use crate::error::{
    Error,
    Result, //
};
use core::ops::DerefMut;

use recover::Timers;

/// Bytes of an atomic.
pub(super) const ATOMIC_LEN: u32 = 8;

/// A requester. `Q` and `R` are lent memory: slots for work requests, and for READ requests and
/// atomics outstanding.
///
/// # Invariants
///
/// - Going round from `una`: `una <= next <= max`, at most [`LARGEST`](super::window::LARGEST) apart.
/// - `una` lies in the oldest WQE that is not answered, if it has begun; else all three are equal.
/// - `next` lies in WQE `at`, or `at` is the first that has not begun, and then `next == max`.
pub struct Requester<Q, R> {
    attr: Attr,
    queue: SendQueue<Q>,
    outstanding: Outstanding<R>,
    una: Psn,
    next: Psn,
    max: Psn,
    at: Number,
    /// Packets sent since one that is to be answered.
    unasked: u32,
    window: Window,
    /// No further loss counts for the window before this PSN is answered.
    recovered: Option<Psn>,
    rtt: Rtt,
    /// The packet that is being measured, and when it went.
    measured: Option<(Psn, u64)>,
    timers: Timers,
    /// Answers that have come behind the missing one to `una`.
    gap: Gap,
    /// Whether a WQE failed of itself.
    failed: bool,
    stats: RequesterStats,
}

impl<Q, R> Requester<Q, R>
where
    Q: DerefMut<Target = [Wqe]>,
    R: DerefMut<Target = [Slot]>,
{
    /// Makes a requester in state RESET.
    ///
    /// `wqes` is room for work requests; a power of two of them is used. `slots` is room for READ
    /// requests and atomics outstanding. `window` is the most packets to be outstanding
    /// ([`DEFAULT_LARGEST`](super::window::DEFAULT_LARGEST)).
    pub fn new(wqes: Q, slots: R, window: u32) -> Self {
        let queue = SendQueue::new(wqes);
        Self {
            attr: Attr::default(),
            at: queue.begun(),
            queue,
            outstanding: Outstanding::new(slots),
            una: Psn::default(),
            next: Psn::default(),
            max: Psn::default(),
            unasked: 0,
            window: Window::new(window),
            recovered: None,
            rtt: Rtt::new(),
            measured: None,
            timers: Timers::default(),
            gap: Gap::default(),
            failed: false,
            stats: RequesterStats::default(),
        }
    }

    /// Returns the state.
    pub fn state(&self) -> State {
        self.attr.state
    }

    /// Returns the attributes.
    pub fn attr(&self) -> &Attr {
        &self.attr
    }

    /// Returns the counters.
    pub fn stats(&self) -> &RequesterStats {
        &self.stats
    }

    /// Returns how many packets may be outstanding now.
    pub fn window(&self) -> u32 {
        self.window.size()
    }

    /// Returns how many packets are outstanding, responses to be awaited included.
    pub fn in_flight(&self) -> u32 {
        self.next.since(self.una)
    }

    /// Returns the smoothed round trip in nanoseconds, 0 if none was measured.
    pub fn round_trip(&self) -> u64 {
        self.rtt.smoothed()
    }

    /// Returns how many READs and atomics can be outstanding: what `max_rd_atomic` may be.
    pub fn max_rd_atomic(&self) -> usize {
        self.outstanding.capacity()
    }

    /// Returns how many work requests can be queued.
    pub fn capacity(&self) -> u32 {
        self.queue.capacity()
    }

    /// Returns how many work requests are queued, those that have ended and were not taken by
    /// [`Self::take`] included.
    pub fn len(&self) -> u32 {
        self.queue.len()
    }

    /// Returns whether no work request is queued.
    pub fn is_empty(&self) -> bool {
        self.queue.len() == 0
    }

    /// Returns whether no send is under way: in state SQD, whether the send queue is drained.
    pub fn is_drained(&self) -> bool {
        self.queue.is_quiet()
    }

    /// Goes to state `attr.state` with those attributes that are in `mask`.
    ///
    /// To ERR: what is queued is flushed, see [`Self::take`]. To RESET: what is queued is forgotten.
    ///
    /// # Errors
    ///
    /// As [`Attr::check`].
    pub fn modify(&mut self, attr: &Attr, mask: Mask) -> Result {
        // What the responder remembers is its own business.
        let dest_rd_atomic = usize::MAX;
        let rd_atomic = self.outstanding.capacity();
        attr.check(self.attr.state, mask, rd_atomic, dest_rd_atomic)?;
        self.attr.take(attr, mask);
        if mask.contains(Mask::SQ_PSN) {
            self.una = attr.sq_psn;
            self.next = attr.sq_psn;
            self.max = attr.sq_psn;
        }
        if mask.contains(Mask::RETRY_CNT) || mask.contains(Mask::RNR_RETRY) {
            self.timers.allow(&self.attr);
        }
        match attr.state {
            State::Reset => self.reset(),
            State::Error => self.stop(),
            _ => {}
        }
        Ok(())
    }

    /// Goes to state ERR, from any but RESET: the responder failed, or the connection is gone.
    pub fn error(&mut self) {
        if self.attr.state != State::Reset {
            self.attr.state = State::Error;
            self.stop();
        }
    }

    fn reset(&mut self) {
        self.queue.clear();
        self.failed = false;
        self.rtt = Rtt::new();
        self.window = Window::new(self.window.largest());
        self.stop();
        let state = self.attr.state;
        self.attr = Attr {
            state,
            ..Attr::default()
        };
    }

    /// Nothing is outstanding and no timer runs any more.
    fn stop(&mut self) {
        self.outstanding.clear();
        self.una = self.max;
        self.next = self.max;
        self.at = self.queue.begun();
        self.unasked = 0;
        self.recovered = None;
        self.measured = None;
        self.timers = Timers::default();
        self.gap = Gap::default();
    }

    /// Queues a work request. What becomes of it says [`Self::take`], once.
    ///
    /// # Errors
    ///
    /// - `Error::Invalid`: the state does not allow it; a message longer than [`MAX_LEN`], an atomic that is
    ///   not of 8 bytes; a READ or atomic when the peer allows none.
    /// - `Error::Full`: the send queue is full.
    pub fn post(&mut self, request: &WorkRequest) -> Result {
        let is_rd_atomic = request.op.is_rd_atomic();
        if self.attr.state.post_send() == Posting::Refused
            || request.len > MAX_LEN
            || request.op.is_atomic() && request.len != ATOMIC_LEN
            || is_rd_atomic && self.attr.max_rd_atomic == 0
        {
            return Err(Error::Invalid);
        }
        let packets = self.mtu().packets(request.len);
        if !self.queue.push(*request, packets) {
            return Err(Error::Full);
        }
        Ok(())
    }

    /// Takes the oldest work request, if it has ended. In state ERR all end: the one that failed with
    /// its status, the others as [`Status::Flushed`].
    ///
    /// What [`Self::receive`] said of bytes must have been done before.
    pub fn take(&mut self) -> Option<Completion> {
        let completion = self.queue.take(self.flushes())?;
        self.stop_at_begun();
        Some(completion)
    }

    /// What is flushed need not begin.
    fn stop_at_begun(&mut self) {
        if self.flushes() {
            self.at = self.queue.begun();
        }
    }

    fn flushes(&self) -> bool {
        self.attr.state.post_send() == Posting::Flushed
    }

    /// The caller could not do its part of a work request: its memory cannot be read, or an answer
    /// cannot be placed. It ends with `status`, and the QP goes to ERR.
    ///
    /// To be called before the work request is taken; `wqe` is what [`Outgoing`] or [`Received`] said.
    pub fn fail(&mut self, wqe: Number, status: Status) {
        if self.flushes() {
            return;
        }
        self.queue.fail(wqe, status);
        self.failed = true;
        self.attr.state = State::Error;
        self.stop();
    }

    /// Returns whether the QP went to ERR because a work request failed here: the responder has to
    /// follow ([`Responder::error`](super::Responder::error)).
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// Returns the path MTU: bytes of payload that a packet has at most.
    #[inline]
    pub fn mtu(&self) -> PathMtu {
        self.attr.path_mtu
    }
}
