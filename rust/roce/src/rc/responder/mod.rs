// SPDX-License-Identifier: GPL-2.0
//! The responder: executes requests in order, each once, and answers.
//!
//! Requests are numbered; the next one to be executed is `expected`. One that is before it was executed
//! and is answered again; one that is behind it waits for nothing: it is dropped, and the requester told
//! once with a NAK.
//!
//! Executing means calling the [`Target`], at once. Answers are collected and handed out by
//! [`Responder::poll`]: first those of READs and atomics in the order of their PSNs, packet by packet,
//! then one ACK or NAK for all the rest. So a thousand requests that came in one batch cost one ACK, and
//! an answer never overtakes one to an earlier request.
//!
//! | file | what |
//! |---|---|
//! | `receive.rs` | what becomes of a request |
//! | `reply.rs` | answers: READ data, atomics' results, ACKs, NAKs |
//! | `replay.rs` | READs and atomics that are remembered |
//!
//! # Errors
//!
//! A request that is invalid, or that the target refuses, gets a NAK, and the QP goes to ERR: the NAK,
//! and the answers before it, are the last packets that it sends. The caller is told by
//! [`Verdict::Refused`] and flushes the requester too.
//!
//! Source: InfiniBand specification, volume 1, sections 9.4, 9.7.4, 9.7.5 and 9.9.3.

mod receive;
mod replay;
mod reply;

#[cfg(any(test, kfi_kunit))]
pub(super) mod tests;

pub use self::{
    receive::Verdict,
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

/// When requests are acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckPolicy {
    /// Nanoseconds that an ACK may wait for more requests that it can answer. 0: none, so one ACK
    /// answers what came before [`Responder::poll`] was called.
    pub delay: u64,
    /// Requests that ask for an ACK and may wait for it together. At least 1.
    pub requests: u32,
}

impl AckPolicy {
    /// At once.
    pub const AT_ONCE: Self = Self {
        delay: 0,
        requests: 1,
    };
}

/// The message that is coming in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    /// None.
    Between,
    /// A SEND of which so many bytes have come.
    Send(u32),
    /// A WRITE of which so many bytes have come.
    Write(Reth, u32),
}

/// A responder. `P` is lent memory: slots for READs and atomics to be replayed.
///
/// # Invariants
///
/// A receive of the target has begun exactly while `message` is `Message::Send`.
pub struct Responder<P> {
    attr: Attr,
    policy: AckPolicy,
    /// The PSN of the next request to be executed.
    expected: Psn,
    /// Messages executed.
    msn: Psn,
    message: Message,
    store: Store<P>,
    pending: Pending,
    stats: ResponderStats,
}

impl<P: DerefMut<Target = [Replay]>> Responder<P> {
    /// Makes a responder in state RESET. `slots` is room for READs and atomics to be replayed.
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

    /// Returns how many READs and atomics can be remembered: what `max_dest_rd_atomic` may be.
    pub fn max_dest_rd_atomic(&self) -> usize {
        self.store.capacity()
    }

    /// Returns the PSN of the next request.
    pub fn expected(&self) -> Psn {
        self.expected
    }

    /// Goes to state `attr.state` with those attributes that are in `mask`. Of a message that is coming
    /// in, the receive is aborted if the state is RESET or ERR.
    ///
    /// # Errors
    ///
    /// As [`Attr::check`].
    pub fn modify<T: Target>(&mut self, attr: &Attr, mask: Mask, target: &mut T) -> Result {
        // What the requester has outstanding is its own business.
        let rd_atomic = usize::MAX;
        let dest_rd_atomic = self.store.capacity();
        attr.check(self.attr.state, mask, rd_atomic, dest_rd_atomic)?;
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

    /// Goes to state ERR, from any but RESET: the requester failed, or the connection is gone. Nothing
    /// is answered any more; the receive of a message that is coming in is aborted.
    pub fn error<T: Target>(&mut self, target: &mut T) {
        // One that refused a request still has something to say.
        if !matches!(self.attr.state, State::Reset | State::Error) {
            self.attr.state = State::Error;
            self.stop(None, target);
        }
    }

    /// Forgets what is to be answered, and the message that is coming in.
    fn stop<T: Target>(&mut self, why: Option<Refusal>, target: &mut T) {
        self.abort(why, target);
        self.store.stop();
        self.pending = Pending::default();
    }

    /// Forgets the message that is coming in.
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
