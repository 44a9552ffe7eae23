// SPDX-License-Identifier: GPL-2.0
//! Losses: NAKs, timers, packets that the local stack refused.

use super::{
    super::{
        super::psn::Psn,
        attr::{
            AckTimeout,
            Attr,
            RNR_FOR_EVER, //
        },
        outstanding::Slot,
        queue::{
            Status,
            Wqe, //
        },
        stats, //
    },
    Requester, //
};
use core::ops::DerefMut;

/// How long a requester waits when the local stack refused a packet, in nanoseconds: about as long as
/// a queue of a network device needs to have room again. Twice as long after each further refusal.
pub const LOCAL_PAUSE: u64 = 100_000;

/// Doublings of [`LOCAL_PAUSE`] at most: 6.4 ms.
const LOCAL_DOUBLINGS: u32 = 6;

/// Doublings of the time before a probe at most. The local ACK timeout comes first, if there is one.
const PROBE_DOUBLINGS: u32 = 12;

/// Doublings of the local ACK timeout at most: a requester may wait up to four times as long as the
/// timeout says (InfiniBand specification, 9.7.6.1.3). So a peer that is only slow has longer to answer
/// than one that is about to.
const TIMEOUT_DOUBLINGS: u32 = 2;

/// The timers of a requester, and how often it may still try.
///
/// `waiting` is the time since which nothing new was answered, if something is outstanding.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timers {
    /// Nothing is sent before.
    pause: Option<u64>,
    waiting: Option<u64>,
    probe: Option<u64>,
    /// Probes since the last progress.
    probes: u32,
    /// Times that the local ACK timeout expired since the last progress.
    timeouts: u32,
    /// Retries left.
    retries: u8,
    /// Retries after an RNR NAK left.
    rnr_retries: u8,
    /// When a NAK was last heeded, and when one was last counted as a retry, if nothing was answered
    /// since.
    heeded: Option<u64>,
    counted: Option<u64>,
    /// Refusals of the local stack since the last progress.
    refusals: u32,
}

impl Timers {
    /// Whether nothing may be sent yet.
    pub(super) fn is_paused(&mut self, now: u64) -> bool {
        self.pause = self.pause.filter(|until| now < *until);
        self.pause.is_some()
    }

    /// From now on all may be tried as often as it says there.
    pub(super) fn allow(&mut self, attr: &Attr) {
        self.retries = attr.retry_cnt;
        self.rnr_retries = attr.rnr_retry;
    }

    /// Something new was answered.
    pub(super) fn progress(&mut self, attr: &Attr) {
        *self = Self {
            pause: self.pause,
            ..Self::default()
        };
        self.allow(attr);
    }

    /// From now on an answer is awaited.
    pub(super) fn wait(&mut self, now: u64, patience: u64) {
        self.waiting.get_or_insert(now);
        if self.probe.is_none() {
            let patience = patience.saturating_mul(1 << self.probes.min(PROBE_DOUBLINGS));
            self.probe = Some(now.saturating_add(patience));
        }
    }

    /// No answer is awaited before something is sent.
    fn still(&mut self) {
        self.waiting = None;
        self.probe = None;
    }

    /// When the local ACK timeout expires.
    fn expiry(&self, timeout: AckTimeout) -> Option<u64> {
        let patience = 1 << self.timeouts.min(TIMEOUT_DOUBLINGS);
        let ns = timeout.ns()?.saturating_mul(patience);
        Some(self.waiting?.saturating_add(ns))
    }
}

impl<Q, R> Requester<Q, R>
where
    Q: DerefMut<Target = [Wqe]>,
    R: DerefMut<Target = [Slot]>,
{
    /// Returns when to call [`Self::expired`], unless something happens before: the end of a pause, a
    /// probe, the local ACK timeout. `None`: nothing is awaited.
    ///
    /// Later than the `now` of the last call, once [`Self::poll`] gives nothing more.
    pub fn deadline(&self) -> Option<u64> {
        if !self.attr.state.sends() {
            return None;
        }
        let timers = &self.timers;
        // The end of a pause matters if something is to be sent then.
        let pause = self.queue.get(self.at).and(timers.pause);
        [pause, timers.probe, timers.expiry(self.attr.timeout)]
            .into_iter()
            .flatten()
            .min()
    }

    /// Does what is due at `now`. Then [`Self::poll`] may give packets, and [`Self::take`] a completion.
    pub fn expired(&mut self, now: u64) {
        if !self.attr.state.sends() {
            return;
        }
        let is_due = |time: Option<u64>| time.is_some_and(|time| time <= now);
        // A pause that is over ends.
        self.timers.is_paused(now);
        if is_due(self.timers.expiry(self.attr.timeout)) {
            stats::add(&mut self.stats.timeouts, 1);
            self.timers.timeouts = self.timers.timeouts.saturating_add(1);
            if self.retry() {
                self.window.silence();
                self.rewind(self.una);
                self.timers.still();
            }
        } else if is_due(self.timers.probe) {
            stats::add(&mut self.stats.probes, 1);
            self.timers.probes = self.timers.probes.saturating_add(1);
            self.timers.probe = None;
            self.window.silence();
            self.rewind(self.una);
        }
    }

    /// The local stack refused packet `psn` that [`Self::poll`] gave: it counts as lost, and nothing is
    /// sent for a while.
    pub fn not_sent(&mut self, now: u64, psn: Psn) {
        stats::add(&mut self.stats.not_sent, 1);
        if !self.attr.state.sends() || !psn.is_within(self.una, self.in_flight()) {
            return;
        }
        self.shrink();
        self.rewind(psn);
        let doublings = self.timers.refusals.min(LOCAL_DOUBLINGS);
        let until = now.saturating_add(LOCAL_PAUSE << doublings);
        self.timers.refusals = self.timers.refusals.saturating_add(1);
        self.timers.pause = self.timers.pause.max(Some(until));
        // What went before it may fill the window that is left, and nothing follows it.
        self.timers.probe = None;
        self.timers.wait(until, self.rtt.patience());
    }

    /// `una` was lost: a response says so that needs not say it itself.
    pub(super) fn implied_nak(&mut self, now: u64) {
        self.gap.told();
        stats::add(&mut self.stats.implied_naks, 1);
        self.lost(now);
    }

    /// `una` was lost: a response says so.
    pub(super) fn lost(&mut self, now: u64) {
        // What comes within a round trip of the last going back is about what was sent before.
        let within =
            |time: Option<u64>, ns: u64| time.is_some_and(|time| now.saturating_sub(time) < ns);
        if self.next == self.una || within(self.timers.heeded, self.rtt.least()) {
            return;
        }
        // A network that duplicates and reorders can make many of one loss.
        if !within(self.timers.counted, self.rtt.patience()) {
            if !self.retry() {
                return;
            }
            self.timers.counted = Some(now);
        }
        stats::add(&mut self.stats.retries, 1);
        self.shrink();
        self.rewind(self.una);
        self.timers.still();
        self.timers.heeded = Some(now);
    }

    /// The responder has no receive for `una`; to be sent again in `ns`.
    pub(super) fn not_ready(&mut self, now: u64, ns: u64) {
        if self.next == self.una {
            // Said twice.
            return;
        }
        if self.attr.rnr_retry != RNR_FOR_EVER {
            let Some(left) = self.timers.rnr_retries.checked_sub(1) else {
                self.fail(self.queue.oldest(), Status::RnrRetryExceeded);
                return;
            };
            self.timers.rnr_retries = left;
        }
        self.rewind(self.una);
        self.timers.still();
        // The peer is there, and has all up to here.
        self.timers.retries = self.attr.retry_cnt;
        self.timers.timeouts = 0;
        self.timers.pause = Some(now.saturating_add(ns));
    }

    /// Counts a retry. False: it was one too many, the oldest work request failed.
    fn retry(&mut self) -> bool {
        let Some(left) = self.timers.retries.checked_sub(1) else {
            self.fail(self.queue.oldest(), Status::RetryExceeded);
            return false;
        };
        self.timers.retries = left;
        true
    }

    /// Halves the window, once for all that is outstanding.
    fn shrink(&mut self) {
        if self.recovered.is_none() {
            self.window.lost();
            self.recovered = Some(self.max);
        }
    }

    /// Goes back: all from `psn` on, which is outstanding, is to be sent again.
    fn rewind(&mut self, psn: Psn) {
        // INVARIANT: Between `una` and `max`, and in the WQE that it belongs to.
        self.at = self.number_of(psn);
        self.next = psn;
        self.outstanding.rewind(psn);
        self.measured = None;
        self.unasked = 0;
    }

    /// Undoes going back: nothing needs to be sent again.
    pub(super) fn forward(&mut self) {
        // INVARIANT: As before going back: `max` is in the last WQE that has begun, or behind it.
        self.at = self.number_of(self.max);
        self.next = self.max;
        while self.outstanding.again().is_some() {
            self.outstanding.sent_again();
        }
    }
}
