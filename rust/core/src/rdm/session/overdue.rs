// SPDX-License-Identifier: GPL-2.0
//! Answers that are expected of the peer, and when they are overdue.
//!
//! A peer may take a message as late as it likes: the message waits for a receive there. But a peer
//! that keeps the protocol does the rest promptly, without its program. If it does not, the
//! operation would never end, and neither would its owner's wait for it. So the connection is then
//! given up ([`Cause::Lost`]), and each of its operations fails.
//!
//! | expected | from | until |
//! |---|---|---|
//! | the answer to a CANCEL | the acknowledgement of the CANCEL | it has not transferred bytes for [`ANSWER_TIME`], or the limit |
//! | the FIN of a message that it has begun to read | a check | the same |
//! | the answer to tagged RMA, the RESULT of an atomic | a check after the acknowledgement | the same |
//! | the acknowledgement of a CANCEL; the end of RMA, or of an atomic, that its owner has tried to cancel | the call | the limit |
//! | the acceptance of work other than messages and atomics (no RNR NAK) | the first refusal | [`ANSWER_TIME`] without a completion |
//! | the answer to a RETIRE | the RETIRE | [`ANSWER_TIME_MAX`] |
//!
//! The *limit* is [`ANSWER_TIME_MAX`] plus the time that all outstanding bytes take with
//! [`ANSWER_RATE`]. It ends the wait for a peer that transfers bytes again and again.
//!
//! A peer answers in order, and behind the work that it has sent before. So the transfer of any
//! bytes counts as progress. It is not known to which answer it leads; the limit holds in any case.
//!
//! Posting and completing operations keep no record of this. A check looks at all operations, once
//! in [`CHECK_TIME`] while there are any. Therefore the time that is noted may be later by up to
//! that interval, except for the answer to a CANCEL.

use super::{
    super::{
        cause::Cause,
        ops::{
            CancelRequest,
            Rma,
            Send,
            SendState, //
        },
        store::{
            Store,
            Stores, //
        },
        times::{
            ANSWER_RATE,
            ANSWER_TIME,
            ANSWER_TIME_MAX,
            CHECK_TIME, //
        },
    },
    ConnState,
    Connection,
    Session,
    WorkResult, //
};

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;

/// Notes that the end of an operation is expected since `now`, unless it was expected before.
pub(super) fn expect_end(expected_since: &mut u64, now: u64) {
    if *expected_since == 0 {
        *expected_since = now.max(1);
    }
}

/// Returns the time of the check after one at `at`, unless an answer is overdue before.
fn next_check(at: u64) -> u64 {
    at.saturating_add(CHECK_TIME)
}

/// The expected answers that a check has found.
#[derive(Default)]
struct Expected {
    /// The time of the oldest one.
    oldest: Option<u64>,
    /// The time of the oldest one that the peer has to answer promptly.
    oldest_prompt: Option<u64>,
    /// The bytes of these operations.
    bytes: u64,
}

impl Expected {
    fn add(&mut self, since: u64, prompt: bool, len: u32) {
        if since == 0 {
            return;
        }
        self.bytes = self.bytes.saturating_add(u64::from(len));
        let earlier = |oldest: Option<u64>| oldest.map_or(since, |oldest| oldest.min(since));
        self.oldest = Some(earlier(self.oldest));
        if prompt {
            self.oldest_prompt = Some(earlier(self.oldest_prompt));
        }
    }

    /// Returns the time at which the connection is given up.
    fn limit(&self, moved_at: u64) -> Option<u64> {
        let time = self.bytes.saturating_mul(SECOND / ANSWER_RATE);
        let time = time.saturating_add(ANSWER_TIME_MAX);
        let limit = self.oldest?.saturating_add(time);
        let prompt = self.oldest_prompt;
        let prompt = prompt.map(|since| since.max(moved_at).saturating_add(ANSWER_TIME));
        Some(prompt.map_or(limit, |prompt| prompt.min(limit)))
    }
}

impl<C> Send<C> {
    /// Returns whether the peer can end the message at once.
    fn is_prompt(&self) -> bool {
        match self.cancel {
            CancelRequest::No => self.state == SendState::Sent,
            CancelRequest::Wanted | CancelRequest::Sent => false,
            CancelRequest::Acknowledged => true,
        }
    }

    /// Returns whether the peer ends the message without a receive of its program.
    fn needs_no_receive(&self) -> bool {
        self.out.atomic.is_some() || self.out.rma.is_some()
    }
}

impl<S: Stores> Session<S> {
    /// Returns the time of the next check, if operations may be outstanding.
    pub(super) fn check_at(&self) -> Option<u64> {
        let connection = self.current.as_ref()?;
        if !matches!(connection.state, ConnState::Up | ConnState::Draining(_)) {
            return None;
        }
        (connection.queued > 0 || !self.sends.is_empty()).then_some(self.watch_at)
    }

    /// Checks the expected answers, and gives the connection up if one is overdue. O(n).
    pub(super) fn check_answers(
        &mut self,
        now: u64,
        moved_at: u64,
        is_being_read: impl Fn(u64) -> bool,
    ) {
        let next = next_check(now);
        if self.check_at().is_none() {
            self.watch_at = next;
            return;
        }
        // If this host was stopped, the packets that wait are handled before the peer is given up.
        let is_late = now > next_check(self.watch_at);
        let limit = self.expected(now, is_being_read).limit(moved_at);
        self.watch_at = match limit {
            Some(limit) if limit <= now && is_late => next,
            Some(limit) if limit <= now => {
                if let Some(connection) = &mut self.current {
                    connection.close(Cause::Lost);
                }
                next
            }
            Some(limit) => limit.min(next),
            None => next,
        };
    }

    /// Notes the answers that are expected since now, and returns all that are expected.
    fn expected(&mut self, now: u64, is_being_read: impl Fn(u64) -> bool) -> Expected {
        let mut expected = Expected::default();
        let mut next = self.sends.next(0);
        while let Some(number) = next {
            next = self.sends.next(number.wrapping_add(1));
            let Some(send) = self.sends.get_mut(number).filter(|send| send.was_posted) else {
                continue;
            };
            let is_expected = || send.needs_no_receive() || is_being_read(number);
            if send.state == SendState::Sent && send.expected_since == 0 && is_expected() {
                expect_end(&mut send.expected_since, now);
            }
            expected.add(send.expected_since, send.is_prompt(), send.out.len);
        }
        let mut next = self.rmas.map.next(0);
        while let Some(number) = next {
            next = self.rmas.map.next(number.wrapping_add(1));
            let is_posted = |rma: &&Rma<S::Op>| rma.queued > 0;
            if let Some(rma) = self.rmas.map.get(number).filter(is_posted) {
                expected.add(rma.expected_since, false, rma.transfer.len);
            }
        }
        expected
    }

    /// Handles the completion of a CANCEL: the answer is expected since now.
    pub(super) fn cancel_done(&mut self, now: u64, number: u64, done: WorkResult) {
        if matches!(done, WorkResult::Failed(_)) {
            return;
        }
        if let Some(send) = self.sends.get_mut(number) {
            send.cancel = CancelRequest::Acknowledged;
            send.expected_since = now.max(1);
        }
    }
}

impl Connection {
    /// Returns the time at which the connection is given up because the peer refuses work that it
    /// must not refuse.
    pub(super) fn stuck_at(&self) -> Option<u64> {
        let blocked = self.blocked?;
        let stuck = self.is_open() && self.has_other_work();
        stuck.then(|| blocked.since.saturating_add(ANSWER_TIME))
    }
}
