// SPDX-License-Identifier: GPL-2.0
//! What the peer owes, and when it is overdue.
//!
//! A peer may take a message as late as it likes: the message waits for a receive there. But a peer
//! that keeps the protocol does the rest promptly, without its program. If it does not, the
//! operation would never end, and neither would its owner's wait for it. So the connection is then
//! given up ([`Cause::Lost`]), and each of its operations fails.
//!
//! | what is owed | from | until |
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
//! in [`CHECK_TIME`] while there are any. Therefore a debt is noted up to that time later than it
//! begins, unless it begins with a CANCEL.

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

/// Notes that an operation is owed since `now`, unless it is owed already.
pub(super) fn owe(owed_at: &mut u64, now: u64) {
    if *owed_at == 0 {
        *owed_at = now.max(1);
    }
}

/// The debts that a check has found.
#[derive(Default)]
struct Debts {
    /// The time of the oldest one.
    oldest: Option<u64>,
    /// The time of the oldest one that the peer has to answer promptly.
    oldest_prompt: Option<u64>,
    /// The bytes of all outstanding operations.
    bytes: u64,
}

impl Debts {
    fn add(&mut self, owed_at: u64, prompt: bool, len: u32) {
        self.bytes = self.bytes.saturating_add(u64::from(len));
        if owed_at == 0 {
            return;
        }
        let earlier = |oldest: Option<u64>| oldest.map_or(owed_at, |oldest| oldest.min(owed_at));
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
        let prompt = prompt.map(|owed_at| owed_at.max(moved_at).saturating_add(ANSWER_TIME));
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

    /// Checks what the peer owes, and gives the connection up if that is overdue. O(n).
    pub(super) fn check_owed(
        &mut self,
        now: u64,
        moved_at: u64,
        is_being_read: impl Fn(u64) -> bool,
    ) {
        let next = now.saturating_add(CHECK_TIME);
        if self.check_at().is_none() {
            self.watch_at = next;
            return;
        }
        let limit = self.debts(now, is_being_read).limit(moved_at);
        self.watch_at = match limit {
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

    /// Notes what the peer owes since now, and returns all debts.
    fn debts(&mut self, now: u64, is_being_read: impl Fn(u64) -> bool) -> Debts {
        let mut debts = Debts::default();
        let mut next = self.sends.next(0);
        while let Some(number) = next {
            next = self.sends.next(number.wrapping_add(1));
            let Some(send) = self.sends.get_mut(number).filter(|send| send.was_posted) else {
                continue;
            };
            let owes = || send.needs_no_receive() || is_being_read(number);
            if send.state == SendState::Sent && send.owed_at == 0 && owes() {
                owe(&mut send.owed_at, now);
            }
            debts.add(send.owed_at, send.is_prompt(), send.out.len);
        }
        let mut next = self.rmas.map.next(0);
        while let Some(number) = next {
            next = self.rmas.map.next(number.wrapping_add(1));
            let is_posted = |rma: &&Rma<S::Op>| rma.queued > 0;
            if let Some(rma) = self.rmas.map.get(number).filter(is_posted) {
                debts.add(rma.owed_at, false, rma.transfer.len);
            }
        }
        debts
    }

    /// Handles the completion of a CANCEL: the peer owes the answer since now.
    pub(super) fn cancel_done(&mut self, now: u64, number: u64, done: WorkResult) {
        if matches!(done, WorkResult::Failed(_)) {
            return;
        }
        if let Some(send) = self.sends.get_mut(number) {
            send.cancel = CancelRequest::Acknowledged;
            send.owed_at = now.max(1);
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
