// SPDX-License-Identifier: GPL-2.0
//! A connection of a session, and its state.

use super::{
    super::{
        cause::Cause,
        hello::PeerEpoch,
        ops::Lane,
        unproven::Proof, //
    },
    Conn, //
};
use crate::flags::Caps;

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnState {
    /// This end has sent a request.
    Asked,
    /// The peer's request was answered. The time is the limit for its confirmation.
    Answered(u64),
    /// The peer has confirmed. The connection waits until the previous one has gone.
    Ready,
    /// The connection is in use.
    Up,
    /// This end wants to end the idle connection. The time is the limit for the peer's answer.
    Draining(u64),
    /// The peer wants to end the idle connection, and this end has agreed. The time is the limit
    /// for that.
    Retired(u64),
    /// The endpoint closes. The time is the limit for its last messages.
    Leaving(u64),
    /// The connection ends. The flag is set once [`Manage::Close`] was returned.
    Closing(Cause, bool),
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) id: Conn,
    pub(super) state: ConnState,
    /// The incarnation and epoch of the peer's request, if the peer requested the connection.
    pub(super) peer_request: Option<PeerEpoch>,
    /// The proof of that request's source address.
    pub(super) proof: Proof,
    /// The time until which the session waits for the peer's confirmation, if the peer requested
    /// the connection.
    pub(super) confirm_by: u64,
    /// The operations that the peer can be the target of.
    pub(super) caps: Caps,
    /// The number of READs that the peer serves at the same time.
    pub(super) reads: u32,
    /// The number of items of work in the QP: all, messages, atomics, READs. No message is behind
    /// an atomic.
    pub(super) queued: u32,
    pub(super) messages: u32,
    pub(super) atomics: u32,
    pub(super) reading: u32,
    /// Set if the peer refused the oldest work in the QP, until work completes.
    pub(super) blocked: Option<Blocked>,
    /// The signals to be sent.
    pub(super) signals: Signals,
    /// The last message that the peer has taken, if its BYE reported that.
    pub(super) taken: Option<u64>,
}

/// The peer has refused the oldest work in the QP (RNR NAK), and no work has completed since.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocked {
    /// The time of the first refusal, or at which the SENDs in front of other work were made void.
    pub(super) since: u64,
    /// Whether SENDs were made void.
    pub(super) voided: bool,
    /// Whether there was a refusal since.
    pub(super) again: bool,
}

/// The signals to be sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Signals {
    pub(super) keep: bool,
    pub(super) ping: bool,
    pub(super) retire: bool,
    pub(super) retired: bool,
    pub(super) bye: bool,
    /// A PING is in the QP.
    pub(super) pinging: bool,
}

impl Connection {
    /// Makes a connection in this state, without work.
    pub(super) fn new(id: Conn, state: ConnState) -> Self {
        Self {
            id,
            state,
            peer_request: None,
            proof: Proof::None,
            confirm_by: 0,
            caps: Caps::EMPTY,
            reads: 0,
            queued: 0,
            messages: 0,
            atomics: 0,
            reading: 0,
            blocked: None,
            signals: Signals::default(),
            taken: None,
        }
    }

    /// Begins to end the connection, unless it is ending already.
    pub(super) fn close(&mut self, cause: Cause) {
        if !matches!(self.state, ConnState::Closing(..)) {
            self.state = ConnState::Closing(cause, false);
        }
    }

    /// Returns the cause for receives that are filled from the peer when the connection has ended.
    pub(super) fn cause_of_receives(&self) -> Cause {
        match self.state {
            ConnState::Closing(cause, _) => cause.of_receive(),
            _ => Cause::Reset,
        }
    }

    /// Returns the number of SENDs of a lane in the QP.
    pub(super) fn sends(&self, lane: Lane) -> u32 {
        match lane {
            Lane::Messages => self.messages,
            Lane::Atomics => self.atomics,
        }
    }

    /// Returns the lane of the oldest SEND in the QP. No message is behind an atomic.
    pub(super) fn first_lane(&self) -> Lane {
        match self.messages {
            0 => Lane::Atomics,
            _ => Lane::Messages,
        }
    }

    /// Returns whether the QP has work that need not wait for room at the peer: other than the
    /// SENDs of the first lane.
    pub(super) fn has_other_work(&self) -> bool {
        self.queued > self.sends(self.first_lane())
    }

    /// Returns the number of SENDs of a lane in the QP, to be changed.
    pub(super) fn sends_mut(&mut self, lane: Lane) -> &mut u32 {
        match lane {
            Lane::Messages => &mut self.messages,
            Lane::Atomics => &mut self.atomics,
        }
    }

    /// Returns whether work may be posted to its QP.
    pub(super) fn is_open(&self) -> bool {
        matches!(
            self.state,
            ConnState::Up | ConnState::Draining(_) | ConnState::Retired(_) | ConnState::Leaving(_)
        )
    }
}
