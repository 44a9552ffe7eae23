// SPDX-License-Identifier: GPL-2.0
//! A QP: a requester and a responder that share a state.
//!
//! For who holds one lock over both. Who has a lock for each uses [`Requester`] and [`Responder`] by
//! themselves and does what stands here: changes the state of both, with both locks, and lets one
//! follow when the other fails.

use super::{
    super::{
        packet::Packet,
        state::{
            Mask,
            State, //
        },
    },
    attr::Attr,
    outstanding::Slot,
    queue::Wqe,
    requester::{
        Received,
        Requester, //
    },
    responder::{
        Replay,
        Responder,
        Verdict, //
    },
    target::Target, //
};
use crate::errno::Result;
use core::ops::DerefMut;

/// An RC QP. See [`Requester`] and [`Responder`] for `Q`, `R` and `P`.
pub struct Qp<Q, R, P> {
    /// Sends.
    pub requester: Requester<Q, R>,
    /// Receives.
    pub responder: Responder<P>,
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It was a response.
    Response(Received),
    /// It was a request.
    Request(Verdict),
}

impl<Q, R, P> Qp<Q, R, P>
where
    Q: DerefMut<Target = [Wqe]>,
    R: DerefMut<Target = [Slot]>,
    P: DerefMut<Target = [Replay]>,
{
    /// Makes a QP of two halves in state RESET.
    pub const fn new(requester: Requester<Q, R>, responder: Responder<P>) -> Self {
        Self {
            requester,
            responder,
        }
    }

    /// Returns the state.
    pub fn state(&self) -> State {
        self.responder.state()
    }

    /// Goes to state `attr.state` with those attributes that are in `mask`.
    ///
    /// # Errors
    ///
    /// As [`Attr::check`]; nothing has changed then.
    pub fn modify<T: Target>(&mut self, attr: &Attr, mask: Mask, target: &mut T) -> Result {
        let room = (
            self.requester.max_rd_atomic(),
            self.responder.max_dest_rd_atomic(),
        );
        attr.check(self.state(), mask, room.0, room.1)?;
        self.requester.modify(attr, mask)?;
        self.responder.modify(attr, mask, target)
    }

    /// Takes in a packet that came at `now`; `target` has its payload.
    pub fn receive<T: Target>(&mut self, now: u64, packet: &Packet, target: &mut T) -> Event {
        let event = if packet.opcode().is_response() {
            Event::Response(self.requester.receive(now, packet))
        } else {
            Event::Request(self.responder.receive(now, packet, target))
        };
        self.follow(target);
        event
    }

    /// Does what is due at `now`.
    pub fn expired<T: Target>(&mut self, now: u64, target: &mut T) {
        self.requester.expired(now);
        self.follow(target);
    }

    /// Returns when to call [`Self::expired`] and to poll both halves, unless something happens before.
    pub fn deadline(&self) -> Option<u64> {
        [self.requester.deadline(), self.responder.deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    /// One half goes to ERR if the other has. To be called after one was made to fail by itself.
    pub fn follow<T: Target>(&mut self, target: &mut T) {
        if self.requester.state() == State::Error {
            self.responder.error(target);
        } else if self.responder.state() == State::Error {
            self.requester.error();
        }
    }
}
