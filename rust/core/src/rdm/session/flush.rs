// SPDX-License-Identifier: GPL-2.0
//! Ending the operations of a connection that has ended.

use super::{
    super::{
        cause::Cause,
        ops::Lane,
        store::{
            Store,
            Stores, //
        },
    },
    Ended,
    Session, //
};
use crate::errno::Result;

impl<S: Stores> Session<S> {
    /// Takes one operation or receive that ends because its connection has ended.
    pub(super) fn flush_one(&mut self, now: u64) -> Option<Ended<S::Op, S::Receive>> {
        if let Some(cause) = self.flush_answers {
            if let Some(receive) = self.flush_answer(cause) {
                return Some(receive);
            }
            self.flush_answers = None;
        }
        let mut flush = self.flush?;
        let is_meant = |number: &u64| *number < flush.until;
        while let Some(number) = self.sends.next(flush.sends).filter(is_meant) {
            flush.sends = number.wrapping_add(1);
            let Some(send) = self.sends.get_mut(number) else {
                continue;
            };
            let spares = match send.out.lane() {
                Lane::Messages => flush.cause.spares_unsent(),
                Lane::Atomics => flush.cause.spares_unsent_rma(),
            };
            if !send.was_posted && spares {
                continue;
            }
            let received = number <= flush.taken
                && send.was_posted
                && send.out.lane() == Lane::Messages
                && !send.out.has_fin();
            let result = match send.error {
                _ if received => Ok(()),
                Some(error) => Err(error),
                None => Err(flush.cause.errno()),
            };
            self.flush = Some(flush);
            return self.flush_send(number, result);
        }
        while let Some(number) = self.rmas.map.next(flush.rmas).filter(is_meant) {
            flush.rmas = number.wrapping_add(1);
            let Some(rma) = self.rmas.map.get(number) else {
                continue;
            };
            if rma.queued == 0 && flush.cause.spares_unsent_rma() {
                continue;
            }
            self.flush = Some(flush);
            let rma = self.rmas.map.remove(number)?;
            let error = rma.error.unwrap_or(flush.cause.errno());
            return Some(Ended::Op(rma.cookie, Err(error)));
        }
        self.flush = None;
        for lane in [Lane::Messages, Lane::Atomics] {
            let lane = self.lane(lane);
            lane.at = 0;
            lane.backoff = None;
        }
        self.rmas.at = 0;
        self.find_atomic(0);
        self.cancels_wanted = 0;
        self.cancels_unanswered = 0;
        self.find_fence(0);
        // After a permanent failure, operations posted earlier do not cause another attempt.
        if !flush.cause.spares_unsent() {
            self.attempt = None;
        }
        self.start_connecting(now);
        self.promote(now);
        None
    }

    fn flush_send(&mut self, number: u64, result: Result) -> Option<Ended<S::Op, S::Receive>> {
        let send = self.remove_send(number)?;
        // The status that the peer sent takes precedence. A message that the peer acknowledged was
        // taken.
        let result = match send.status {
            Some(status) => status.result(),
            None => result,
        };
        Some(Ended::Op(send.cookie, result))
    }

    /// Takes an answer whose connection has ended for `cause`, and returns its receive.
    fn flush_answer(&mut self, cause: Cause) -> Option<Ended<S::Op, S::Receive>> {
        let mut from = 0;
        while let Some(number) = self.answers.map.next(from) {
            from = number.wrapping_add(1);
            let conn = self.answers.map.get(number)?.due.conn;
            if self.has(conn) {
                continue;
            }
            let answer = self.answers.map.remove(number)?;
            if let Some(receive) = answer.receive {
                return Some(Ended::Receive(receive, Err(cause.errno())));
            }
        }
        None
    }
}
