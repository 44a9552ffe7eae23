// SPDX-License-Identifier: GPL-2.0
//! The responder: executes requests in order, each once, and answers them.
//!
//! `expected` is the PSN of the next request. A request with an earlier PSN has been executed and
//! is answered again. A request with a later PSN is dropped, and a NAK reports the gap to the
//! requester once.
//!
//! To execute a request, the responder calls the [`Target`] immediately. It collects the answers,
//! and [`Responder::poll`] returns them: first those of READs and atomics in the order of their
//! PSNs, packet by packet, then one ACK or NAK for all other requests. A thousand requests of one
//! batch therefore cost one ACK, and an answer never overtakes one to an earlier request.
//!
//! | file | contents |
//! |---|---|
//! | `receive.rs` | checking and executing requests |
//! | `reply.rs` | answers: READ data, results of atomics, ACKs, NAKs |
//! | `replay.rs` | READs and atomics that may be repeated |
//!
//! # Errors
//!
//! A request that is invalid, or that the target refuses, gets a NAK, and the QP goes to ERR. The
//! NAK and the answers before it are the last packets that the responder sends.
//! [`RequestResult::Refused`] tells the caller to flush the requester too.
//!
//! Source: InfiniBand specification, volume 1, sections 9.4, 9.7.4, 9.7.5 and 9.9.3.

mod receive;
mod replay;
mod reply;

#[cfg(any(test, kfi_kunit))]
pub(super) mod tests;

pub use self::{
    receive::RequestResult,
    replay::Replay,
    reply::Answering, //
};

use super::{
    super::{
        headers::Reth,
        mtu::PathMtu,
        psn::Psn,
        state::{
            Mask,
            State, //
        },
    },
    attr::Attr,
    stats::ResponderStats,
    target::{
        Refusal,
        Target, //
    },
};
use crate::error::Result;
use core::ops::DerefMut;

use replay::Store;
use reply::Pending;

/// The rules for acknowledging requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckPolicy {
    /// The time in nanoseconds that an ACK may wait for more requests. 0: it does not wait, and one
    /// ACK answers the requests that arrived before [`Responder::poll`].
    pub delay: u64,
    /// The number of requests that may wait together for one ACK. At least 1.
    pub requests: u32,
}

impl AckPolicy {
    /// Acknowledges without delay.
    pub const AT_ONCE: Self = Self {
        delay: 0,
        requests: 1,
    };
}

/// The message that is being received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    /// None.
    Between,
    /// A SEND of which this many bytes have been received.
    Send(u32),
    /// A WRITE of which this many bytes have been received.
    Write(Reth, u32),
}

/// A responder. `P` is lent memory: slots for READs and atomics that may be repeated.
///
/// # Invariants
///
/// The target has a receive in progress exactly while `message` is `Message::Send`.
pub struct Responder<P> {
    attr: Attr,
    policy: AckPolicy,
    /// The PSN of the next request to be executed.
    expected: Psn,
    /// The number of messages executed.
    msn: Psn,
    message: Message,
    store: Store<P>,
    pending: Pending,
    stats: ResponderStats,
}

impl<P: DerefMut<Target = [Replay]>> Responder<P> {
    /// Makes a responder in state RESET. `slots` are for READs and atomics that may be repeated.
    pub fn new(slots: P, policy: AckPolicy) -> Self {
        Self {
            attr: Attr::default(),
            policy,
            expected: Psn::default(),
            msn: Psn::default(),
            message: Message::Between,
            store: Store::new(slots),
            pending: Pending::default(),
            stats: ResponderStats::default(),
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
    pub fn stats(&self) -> &ResponderStats {
        &self.stats
    }

    /// Returns the upper bound of `max_dest_rd_atomic`: the number of READs and atomics that the
    /// responder can remember.
    pub fn max_dest_rd_atomic(&self) -> usize {
        self.store.capacity()
    }

    /// Returns the PSN of the next request.
    pub fn expected(&self) -> Psn {
        self.expected
    }

    /// Checks whether [`Self::modify`] accepts this change.
    ///
    /// # Errors
    ///
    /// The errors of [`Attr::check`].
    pub fn check(&self, attr: &Attr, mask: Mask) -> Result {
        // The requester checks the limit of its outstanding READs and atomics.
        let rd_atomic = usize::MAX;
        attr.check(self.attr.state, mask, rd_atomic, self.store.capacity())
    }

    /// Moves the responder to state `attr.state` and sets the attributes in `mask`. In RESET and
    /// ERR the receive in progress, if any, is aborted.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::check`].
    pub fn modify<T: Target>(&mut self, attr: &Attr, mask: Mask, target: &mut T) -> Result {
        self.check(attr, mask)?;
        let limit = self.attr.max_dest_rd_atomic;
        self.attr.take(attr, mask);
        if mask.contains(Mask::RQ_PSN) {
            self.expected = attr.rq_psn;
            self.msn = Psn::default();
        }
        if mask.contains(Mask::RQ_PSN) || self.attr.max_dest_rd_atomic != limit {
            self.store.reset(usize::from(self.attr.max_dest_rd_atomic));
        }
        match attr.state {
            State::Reset => {
                self.stop(None, target);
                let state = self.attr.state;
                self.attr = Attr {
                    state,
                    ..Attr::default()
                };
            }
            State::Error => self.stop(None, target),
            _ => {}
        }
        Ok(())
    }

    /// Moves the responder to ERR from any state but RESET, because the requester failed or the
    /// connection is gone. No further answers are sent, and the receive in progress, if any, is
    /// aborted.
    pub fn error<T: Target>(&mut self, target: &mut T) {
        // A responder in ERR may still have to send the NAK of a refused request.
        if !matches!(self.attr.state, State::Reset | State::Error) {
            self.attr.state = State::Error;
            self.stop(None, target);
        }
    }

    /// Discards all pending answers and the message that is being received.
    fn stop<T: Target>(&mut self, why: Option<Refusal>, target: &mut T) {
        self.abort(why, target);
        self.store.stop();
        self.pending = Pending::default();
    }

    /// Discards the message that is being received; aborts its receive.
    fn abort<T: Target>(&mut self, why: Option<Refusal>, target: &mut T) {
        let message = core::mem::replace(&mut self.message, Message::Between);
        if matches!(message, Message::Send(_)) {
            target.abort_receive(why);
        }
    }

    #[inline]
    fn mtu(&self) -> PathMtu {
        self.attr.path_mtu
    }
}
