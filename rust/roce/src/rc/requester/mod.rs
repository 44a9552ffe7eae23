// SPDX-License-Identifier: GPL-2.0
//! The requester: sends posted work requests, and retransmits them until they are answered.
//!
//! ```text
//!              una              next             max
//!  answered     |  outstanding   | to retransmit  |  not sent yet
//!  -------------+----------------+----------------+----------------> PSN
//! ```
//!
//! The requester cuts packets from the send queue on demand: [`Requester::poll`] returns the next
//! packet that the window, the limits of the peer and the timers allow, and says which bytes of
//! which work request are its payload. The only transmission state is the queue and three PSNs, so
//! going back means setting `next`.
//!
//! | file | contents |
//! |---|---|
//! | `send.rs` | choosing and building the next packet |
//! | `receive.rs` | matching responses with requests |
//! | `recover.rs` | losses: NAKs, timers, packets that the local stack refused |
//!
//! # Losses
//!
//! After a NAK, or a response to a later PSN that shows that an earlier response was lost (an
//! implied NAK), the requester retransmits everything from `una` on at once. Two timers detect that
//! no response comes. The probe timer ([`rtt`](super::rtt)) expires after a few round trips; the
//! requester then retransmits one packet, and doubles the time. The local ACK timeout counts as a
//! retry; it grows to two and then to four times its value, the most that the specification allows.
//! The requester makes `retry_cnt` retries without a new response. The next one ends the work
//! request with [`Status::RetryExceeded`], and the QP goes to ERR. NAKs that follow each other
//! faster than probes would count as one retry. RNR NAKs are counted separately, against
//! `rnr_retry`.
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

/// The length of an atomic in bytes.
pub(super) const ATOMIC_LEN: u32 = 8;

/// A requester. `Q` and `R` are lent memory: slots for work requests, and slots for outstanding
/// READ requests and atomics.
///
/// # Invariants
///
/// - In the order of PSNs from `una` on: `una <= next <= max`, and `max` is at most
///   [`LARGEST`](super::window::LARGEST) ahead of `una`.
/// - `una` lies in the oldest WQE that is not answered if that has begun; otherwise all three are
///   equal.
/// - `next` lies in WQE `at`; or `at` is the first WQE that has not begun, and `next == max`.
pub struct Requester<Q, R> {
    attr: Attr,
    queue: SendQueue<Q>,
    outstanding: Outstanding<R>,
    una: Psn,
    next: Psn,
    max: Psn,
    at: Number,
    /// The number of packets sent since the last one that requested an acknowledgement.
    since_ack_req: u32,
    window: Window,
    /// Further losses do not reduce the window until this PSN is answered.
    recovered: Option<Psn>,
    rtt: Rtt,
    /// The packet whose round trip is measured, and the time at which it was sent.
    measured: Option<(Psn, u64)>,
    timers: Timers,
    /// The responses that have arrived behind the missing response to `una`.
    gap: Gap,
    /// Whether to report that the send queue is drained. False except in SQD.
    notify: bool,
    stats: RequesterStats,
}

impl<Q, R> Requester<Q, R>
where
    Q: DerefMut<Target = [Wqe]>,
    R: DerefMut<Target = [Slot]>,
{
    /// Makes a requester in state RESET.
    ///
    /// `wqes` are slots for work requests; the largest power of two of them is used. `slots` are
    /// slots for outstanding READ requests and atomics. `window` is the maximum number of
    /// outstanding packets (see [`DEFAULT_LARGEST`](super::window::DEFAULT_LARGEST)).
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
            since_ack_req: 0,
            window: Window::new(window),
            recovered: None,
            rtt: Rtt::new(),
            measured: None,
            timers: Timers::default(),
            gap: Gap::default(),
            notify: false,
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

    /// Returns how many packets may be outstanding at present.
    pub fn window(&self) -> u32 {
        self.window.size()
    }

    /// Returns how many PSNs are outstanding, those of expected READ responses included.
    pub fn in_flight(&self) -> u32 {
        self.next.since(self.una)
    }

    /// Returns the upper bound of `max_rd_atomic`: how many READs and atomics can be outstanding.
    pub fn max_rd_atomic(&self) -> usize {
        self.outstanding.capacity()
    }

    /// Returns the maximum number of queued work requests.
    pub fn capacity(&self) -> u32 {
        self.queue.capacity()
    }

    /// Returns the number of queued work requests, including those that have ended and were not yet
    /// taken by [`Self::take`].
    pub fn len(&self) -> u32 {
        self.queue.len()
    }

    /// Returns whether no work request is queued.
    pub fn is_empty(&self) -> bool {
        self.queue.len() == 0
    }

    /// Returns whether no send is under way. In state SQD this means that the send queue is
    /// drained.
    pub fn is_drained(&self) -> bool {
        self.queue.is_quiet()
    }

    /// Returns true once when the send queue is drained in state SQD, if the transition to SQD
    /// requested that ([`Attr::en_sqd_async_notify`]). The caller calls this after it has taken all
    /// completions.
    pub fn take_drained(&mut self) -> bool {
        let drained = self.notify && self.is_drained();
        self.notify &= !drained;
        drained
    }

    /// Checks whether [`Self::modify`] accepts this change.
    ///
    /// # Errors
    ///
    /// `Error::Invalid`: [`Attr::check`] refuses it; or the send queue is being drained
    /// ([`state`](super::super::state#draining)), and the new state is neither ERR nor RESET.
    pub fn check(&self, attr: &Attr, mask: Mask) -> Result {
        // The responder checks the limit of its replay slots.
        let dest_rd_atomic = usize::MAX;
        let rd_atomic = self.outstanding.capacity();
        attr.check(self.attr.state, mask, rd_atomic, dest_rd_atomic)?;
        let ends = matches!(attr.state, State::Error | State::Reset);
        if self.attr.state == State::Sqd && !self.is_drained() && !ends {
            return Err(Error::Invalid);
        }
        Ok(())
    }

    /// Moves the requester to state `attr.state` and sets the attributes in `mask`.
    ///
    /// In ERR the queued work requests are flushed, see [`Self::take`]. In RESET they are removed
    /// without completions.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::check`].
    pub fn modify(&mut self, attr: &Attr, mask: Mask) -> Result {
        self.check(attr, mask)?;
        self.attr.take(attr, mask);
        self.notify &= attr.state == State::Sqd;
        if mask.contains(Mask::EN_SQD_ASYNC_NOTIFY) {
            self.notify = attr.en_sqd_async_notify;
        }
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

    /// Moves the requester to ERR from any state but RESET, because the responder failed or the
    /// connection is gone.
    pub fn error(&mut self) {
        if self.attr.state != State::Reset {
            self.attr.state = State::Error;
            self.stop();
        }
    }

    fn reset(&mut self) {
        self.queue.clear();
        self.rtt = Rtt::new();
        self.window = Window::new(self.window.largest());
        self.stop();
        let state = self.attr.state;
        self.attr = Attr {
            state,
            ..Attr::default()
        };
    }

    /// Clears the outstanding requests and all timers.
    fn stop(&mut self) {
        self.notify = false;
        self.outstanding.clear();
        self.una = self.max;
        self.next = self.max;
        self.at = self.queue.begun();
        self.since_ack_req = 0;
        self.recovered = None;
        self.measured = None;
        self.timers = Timers::default();
        self.gap = Gap::default();
    }

    /// Queues a work request. [`Self::take`] reports its completion once.
    ///
    /// # Errors
    ///
    /// - `Error::Invalid`: the state does not allow posting; the message is longer than
    ///   [`MAX_LEN`]; an atomic does not have 8 bytes; the peer allows no READs and atomics.
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

    /// Takes the oldest work request if it has ended. In state ERR all work requests end: the one
    /// that failed with its status, the others with [`Status::Flushed`].
    ///
    /// The caller must have placed the bytes of every [`Self::receive`] before this call.
    pub fn take(&mut self) -> Option<Completion> {
        let completion = self.queue.take(self.flushes())?;
        self.stop_at_begun();
        Some(completion)
    }

    /// Marks a flushed work request as not begun, so that no packet of it is sent.
    fn stop_at_begun(&mut self) {
        if self.flushes() {
            self.at = self.queue.begun();
        }
    }

    fn flushes(&self) -> bool {
        self.attr.state.post_send() == Posting::Flushed
    }

    /// Fails a work request that the caller cannot continue: its memory is not readable, or a
    /// response cannot be placed. The work request ends with `status`, and the QP goes to ERR.
    ///
    /// `wqe` comes from [`Outgoing`] or [`Received`]. The caller must not have taken the work
    /// request yet.
    pub fn fail(&mut self, wqe: Number, status: Status) {
        if self.flushes() {
            return;
        }
        self.queue.fail(wqe, status);
        self.attr.state = State::Error;
        self.stop();
    }

    /// Returns the path MTU.
    #[inline]
    pub fn mtu(&self) -> PathMtu {
        self.attr.path_mtu
    }
}
