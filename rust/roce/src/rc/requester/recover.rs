// SPDX-License-Identifier: GPL-2.0
//! Recovery from losses: NAKs, timers, and packets that the local stack refused.

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

/// The pause in nanoseconds after the local stack refused a packet: about the time that the queue
/// of a network device needs to have room again. It doubles after each further refusal.
pub const LOCAL_PAUSE: u64 = 100_000;

/// The maximum number of doublings of [`LOCAL_PAUSE`]: 6.4 ms.
const LOCAL_DOUBLINGS: u32 = 6;

/// The maximum number of doublings of the probe interval. The local ACK timeout expires earlier, if
/// there is one.
const PROBE_DOUBLINGS: u32 = 12;

/// The maximum number of doublings of the local ACK timeout: a requester may wait up to four times
/// the timeout (InfiniBand specification, 9.7.6.1.3). This gives a slow peer more time before the
/// last retry.
const TIMEOUT_DOUBLINGS: u32 = 2;

/// The timers of a requester, and the retries that are left.
///
/// `waiting` is the time since which no new response has come, if packets are outstanding.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timers {
    /// No packet is sent before this time.
    pause: Option<u64>,
    waiting: Option<u64>,
    probe: Option<u64>,
    /// The number of probes since the last progress.
    probes: u32,
    /// The number of local ACK timeouts since the last progress.
    timeouts: u32,
    /// The number of retries left.
    retries: u8,
    /// The number of retries after RNR NAKs left.
    rnr_retries: u8,
    /// The times at which the requester last went back after a NAK and last counted a NAK as a
    /// retry; `None` if there was progress since.
    rewound: Option<u64>,
    counted: Option<u64>,
    /// The number of refusals by the local stack since the last progress.
    refusals: u32,
}

impl Timers {
    /// Returns whether sending is paused at `now`; ends a pause that is over.
    pub(super) fn is_paused(&mut self, now: u64) -> bool {
        self.pause = self.pause.filter(|until| now < *until);
        self.pause.is_some()
    }

    /// Resets the retries to the limits in `attr`.
    pub(super) fn allow(&mut self, attr: &Attr) {
        self.retries = attr.retry_cnt;
        self.rnr_retries = attr.rnr_retry;
    }

    /// Resets the counts and timers, but not a pause, because a new response has come.
    pub(super) fn progress(&mut self, attr: &Attr) {
        *self = Self {
            pause: self.pause,
            ..Self::default()
        };
        self.allow(attr);
    }

    /// Starts the timers, unless they run, because a packet was sent.
    pub(super) fn wait(&mut self, now: u64, patience: u64) {
        self.waiting.get_or_insert(now);
        if self.probe.is_none() {
            let patience = patience.saturating_mul(1 << self.probes.min(PROBE_DOUBLINGS));
            self.probe = Some(now.saturating_add(patience));
        }
    }

    /// Stops the timers until a packet is sent.
    fn stop(&mut self) {
        self.waiting = None;
        self.probe = None;
    }

    /// Returns the time at which the local ACK timeout expires.
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
    /// Returns the time at which to call [`Self::expired`], unless another call comes first: the
    /// end of a pause, a probe, or the local ACK timeout. `None` if no timer runs.
    ///
    /// After [`Self::poll`] has returned `None`, the time is later than the `now` of that call.
    pub fn deadline(&self) -> Option<u64> {
        if !self.attr.state.sends() {
            return None;
        }
        let timers = &self.timers;
        // The end of a pause matters only if there is a packet to send.
        let pause = self.queue.get(self.at).and(timers.pause);
        [pause, timers.probe, timers.expiry(self.attr.timeout)]
            .into_iter()
            .flatten()
            .min()
    }

    /// Handles the timers that have expired at `now`. Then [`Self::poll`] may return packets, and
    /// [`Self::take`] a completion.
    pub fn expired(&mut self, now: u64) {
        if !self.attr.state.sends() {
            return;
        }
        let is_due = |time: Option<u64>| time.is_some_and(|time| time <= now);
        // This ends a pause that is over.
        self.timers.is_paused(now);
        if is_due(self.timers.expiry(self.attr.timeout)) {
            stats::add(&mut self.stats.timeouts, 1);
            self.timers.timeouts = self.timers.timeouts.saturating_add(1);
            if self.retry() {
                self.window.silence();
                self.rewind(self.una);
                self.timers.stop();
            }
        } else if is_due(self.timers.probe) {
            stats::add(&mut self.stats.probes, 1);
            self.timers.probes = self.timers.probes.saturating_add(1);
            self.timers.probe = None;
            self.window.silence();
            self.rewind(self.una);
        }
    }

    /// Records that the local stack refused packet `psn`, which [`Self::poll`] returned. The packet
    /// counts as lost, and sending pauses.
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
        // Earlier packets may fill the reduced window, so that no packet follows. The timer ends
        // the wait then.
        self.timers.probe = None;
        self.timers.wait(until, self.rtt.patience());
    }

    /// Handles an implied NAK: a response shows that the response to `una` was lost.
    pub(super) fn implied_nak(&mut self, now: u64) {
        self.gap.set_reported();
        stats::add(&mut self.stats.implied_naks, 1);
        self.lost(now);
    }

    /// Goes back to `una` after a NAK or an implied NAK.
    pub(super) fn lost(&mut self, now: u64) {
        // A NAK that arrives within one round trip after going back refers to earlier packets.
        let within =
            |time: Option<u64>, ns: u64| time.is_some_and(|time| now.saturating_sub(time) < ns);
        if self.next == self.una || within(self.timers.rewound, self.rtt.least()) {
            return;
        }
        // A network that duplicates and reorders packets can cause several NAKs for one loss.
        if !within(self.timers.counted, self.rtt.patience()) {
            if !self.retry() {
                return;
            }
            self.timers.counted = Some(now);
        }
        stats::add(&mut self.stats.retries, 1);
        self.shrink();
        self.rewind(self.una);
        self.timers.stop();
        self.timers.rewound = Some(now);
    }

    /// Handles an RNR NAK for `una`: the requester retransmits it after `ns`.
    pub(super) fn not_ready(&mut self, now: u64, ns: u64) {
        if self.next == self.una {
            // The RNR NAK is a duplicate.
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
        self.timers.stop();
        // The peer responds and has executed everything before this request.
        self.timers.retries = self.attr.retry_cnt;
        self.timers.timeouts = 0;
        self.timers.pause = Some(now.saturating_add(ns));
    }

    /// Counts a retry. Returns false, and fails the oldest work request, if none was left.
    fn retry(&mut self) -> bool {
        let Some(left) = self.timers.retries.checked_sub(1) else {
            self.fail(self.queue.oldest(), Status::RetryExceeded);
            return false;
        };
        self.timers.retries = left;
        true
    }

    /// Halves the window, once for all packets that are outstanding.
    fn shrink(&mut self) {
        if self.recovered.is_none() {
            self.window.lost();
            self.recovered = Some(self.max);
        }
    }

    /// Goes back: marks everything from `psn` on, which is outstanding, for retransmission.
    fn rewind(&mut self, psn: Psn) {
        // INVARIANT: `psn` is between `una` and `max`, and `at` is its WQE.
        self.at = self.number_of(psn);
        self.next = psn;
        self.outstanding.rewind(psn);
        self.measured = None;
        self.since_ack_req = 0;
    }

    /// Undoes going back: marks everything as sent.
    pub(super) fn forward(&mut self) {
        // INVARIANT: As before going back: `max` lies in the last WQE that has begun, or behind it.
        self.at = self.number_of(self.max);
        self.next = self.max;
        while self.outstanding.again().is_some() {
            self.outstanding.sent_again();
        }
    }
}
