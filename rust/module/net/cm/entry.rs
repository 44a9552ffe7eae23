// SPDX-License-Identifier: GPL-2.0

//! Entry: a connection in the table of a service.
//!
//! An entry has the state machine, its keys ([`Key`]) in the table's index, and the limits that the
//! connection counts against ([`Asked`]). [`Reservation`] is the memory for all of it, allocated
//! before the table is locked.

use super::conn::Conn;
use crate::net::socket::AddrPair;
use core::net::IpAddr;
use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode,
        RBTreeNodeReservation, //
    },
    sync::Arc, //
};
use kfi_roce::{
    cm::{
        CommId,
        Connection,
        Event,
        Ignored,
        Message,
        Private,
        Reason,
        State, //
    },
    headers::Qpn, //
};

/// A key in the table's index. The local ID comes last, so that all keys differ.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// The time of its next timeout, in ns. Sorts before all others.
    Deadline(u64, CommId),
    /// A passive end: the GUID of the peer's device, and the peer's communication ID.
    Peer(u64, CommId, CommId),
    /// An established connection: the GUID of the peer's device, the peer's QP, and the peer's
    /// address. The first two are no secret; with the address, another host cannot send in the
    /// peer's name.
    PeerQp(u64, Qpn, IpAddr, CommId),
}

/// A key of a connection in the index, or memory for one.
enum KeyNode {
    Free(RBTreeNodeReservation<Key, ()>),
    Taken(Key),
    /// Only while the key is being changed.
    None,
}

impl KeyNode {
    fn new() -> Result<Self> {
        Ok(Self::Free(RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?))
    }

    /// Replaces the key; `None` removes it.
    fn set(&mut self, names: &mut RBTree<Key, ()>, name: Option<Key>) {
        let room = match (core::mem::replace(self, Self::None), name) {
            (Self::Taken(old), Some(name)) if old == name => {
                *self = Self::Taken(old);
                return;
            }
            (Self::Taken(old), _) => names.remove_node(&old).map(RBTreeNode::into_reservation),
            (Self::Free(room), _) => Some(room),
            (Self::None, _) => None,
        };
        *self = match (room, name) {
            (Some(room), Some(name)) => {
                names.insert(room.into_node(name, ()));
                Self::Taken(name)
            }
            (Some(room), None) => Self::Free(room),
            // Cannot happen: outside this function the node is never `None`.
            (None, _) => Self::None,
        };
    }
}

/// The limits that a connection requested by a peer counts against.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// None: this end has requested the connection, or the peer has confirmed it.
    No,
    /// `Table::waiting` and its source: the request has no answer.
    Waiting,
    /// Its source: this end has accepted the request, and the peer has not confirmed that.
    HalfOpen,
    /// `Table::rejected`: the connection is kept to answer a repeated REQ.
    Rejected,
}

impl Asked {
    pub(super) const fn has_source(self) -> bool {
        matches!(self, Self::Waiting | Self::HalfOpen)
    }
}

/// Memory for a connection in the table.
pub(super) struct Reservation {
    pub(super) entry: Option<RBTreeNodeReservation<CommId, Entry>>,
    pub(super) source: Option<RBTreeNodeReservation<IpAddr, usize>>,
    pub(super) names: Option<Keys>,
}

/// The keys of a connection.
pub(super) struct Keys {
    deadline: KeyNode,
    peer: KeyNode,
    peer_qp: KeyNode,
}

impl Reservation {
    /// Bytes of kernel memory that it uses, with the overhead of the tree nodes.
    pub(super) const BYTES: usize = size_of::<(CommId, Entry)>()
        + size_of::<(IpAddr, usize)>()
        + 3 * size_of::<Key>()
        + 5 * NODE_BYTES;

    /// Allocates the memory. Fails with `ENOMEM`. Sleeps.
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            entry: Some(RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?),
            source: Some(RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?),
            names: Some(Keys {
                deadline: KeyNode::new()?,
                peer: KeyNode::new()?,
                peer_qp: KeyNode::new()?,
            }),
        })
    }
}

/// Bytes of a tree node without its key and value, rounded up.
const NODE_BYTES: usize = 64;

/// A connection in the table.
pub(super) struct Entry {
    pub(super) machine: Connection,
    pub(super) conn: Arc<Conn>,
    /// The limits that it counts against.
    pub(super) asked: Asked,
    /// An event has been queued since the last step, so the work item of `conn` must be queued.
    pub(super) told: bool,
    names: Keys,
}

impl Entry {
    pub(super) fn new(machine: Connection, conn: Arc<Conn>, asked: Asked, names: Keys) -> Self {
        Self {
            machine,
            conn,
            asked,
            told: false,
            names,
        }
    }

    /// Updates the keys to the current state.
    pub(super) fn update_keys(&mut self, names: &mut RBTree<Key, ()>) {
        let machine = &self.machine;
        let id = machine.local_id();
        let guid = machine.remote_guid();
        let deadline = machine.deadline().map(|at| Key::Deadline(at, id));
        let peer = match machine.remote_id() {
            Some(remote) if !machine.is_active() => Some(Key::Peer(guid, remote, id)),
            _ => None,
        };
        let established = machine.state() == State::Established;
        let peer_qp =
            established.then(|| Key::PeerQp(guid, machine.remote_qpn(), machine.peer(), id));
        self.names.deadline.set(names, deadline);
        self.names.peer.set(names, peer);
        self.names.peer_qp.set(names, peer_qp);
    }

    /// The limits that it counts against after a change of its state.
    pub(super) fn asked_now(&self) -> Asked {
        match (self.asked, self.machine.state()) {
            (Asked::No, _) => Asked::No,
            (_, State::ReqReceived) => Asked::Waiting,
            (_, State::RepSent) => Asked::HalfOpen,
            // It was rejected.
            (Asked::Waiting | Asked::Rejected, State::Timewait) => Asked::Rejected,
            _ => Asked::No,
        }
    }

    /// Queues an event for the consumer.
    fn tell(&mut self, event: &Event<'_>) {
        self.told |= self.conn.put(event);
    }

    /// Passes a message that came along `way` to the state machine, at `now` in ns. `rival`: the QP
    /// that a REP names has another connection with this service. Returns whether the message was a
    /// REP that accepts.
    pub(super) fn heard(
        &mut self,
        now: u64,
        way: &AddrPair,
        message: &Message<'_>,
        rival: bool,
    ) -> Result<bool, Ignored> {
        if self.conn.local() != way.to {
            return Err(Ignored::Source);
        }
        let Some(event) = self.machine.receive(now, way.from, message)? else {
            return Ok(false);
        };
        if event.is_reply() && rival {
            // The peer has lost the state of one of the two, and this end cannot tell which.
            let reason = Reason::STALE_CONN;
            let _ = self
                .machine
                .reject(now, reason, Private::NONE, Private::NONE);
            self.tell(&Event::Rejected {
                reason,
                info: &[],
                private: &[],
            });
        } else {
            self.tell(&event);
        }
        Ok(event.is_reply())
    }

    /// Ends the connection, whose state the peer has lost.
    pub(super) fn stale(&mut self, now: u64) {
        if let Some(event) = self.machine.stale(now) {
            self.tell(&event);
        }
    }

    /// Handles its timeout. Returns whether this produced an event; otherwise the last message is
    /// sent again.
    pub(super) fn expired(&mut self, now: u64) -> bool {
        match self.machine.expired(now) {
            Some(event) => {
                self.tell(&event);
                true
            }
            None => false,
        }
    }

    /// Queues the last event of a connection that was removed because its link has gone, and wakes
    /// its work item. A consumer whose last event is queued already gets no other one.
    pub(super) fn gone(self) {
        let event = match self.machine.state() {
            State::Established => Event::Disconnected(&[]),
            State::DreqSent => Event::Released,
            _ => Event::Unreachable,
        };
        if self.conn.put(&event) {
            self.conn.wake();
        }
    }

    /// Removes all its keys from the index.
    pub(super) fn remove_keys(&mut self, names: &mut RBTree<Key, ()>) {
        let own = &mut self.names;
        for place in [&mut own.deadline, &mut own.peer, &mut own.peer_qp] {
            place.set(names, None);
        }
    }
}
