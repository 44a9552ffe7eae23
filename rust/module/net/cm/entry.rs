// SPDX-License-Identifier: GPL-2.0

//! Entry: a connection in the table of a service: its state machine, its keys in the index of the
//! table, and the limits that it counts against.
//!
//! The memory of an entry and of its keys is allocated before the connection is inserted
//! ([`Reservation`]). All functions except [`Reservation::new`] are called with the lock of the
//! service held, and do not sleep.

use super::{
    conn::Conn,
    table::OfSource, //
};
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
use kfi_core::share::Source;
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
    /// An established connection: the GUID of the peer's device, the peer's address, and the peer's
    /// QP. GUID and QP are no secret; with the address, another host cannot send in the peer's
    /// name.
    PeerQp(u64, IpAddr, Qpn, CommId),
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
    fn set(&mut self, keys: &mut RBTree<Key, ()>, key: Option<Key>) {
        let node = match (core::mem::replace(self, Self::None), key) {
            (Self::Taken(old), Some(key)) if old == key => {
                *self = Self::Taken(old);
                return;
            }
            (Self::Taken(old), _) => keys.remove_node(&old).map(RBTreeNode::into_reservation),
            (Self::Free(node), _) => Some(node),
            (Self::None, _) => None,
        };
        *self = match (node, key) {
            (Some(node), Some(key)) => {
                keys.insert(node.into_node(key, ()));
                Self::Taken(key)
            }
            (Some(node), None) => Self::Free(node),
            // Cannot happen: outside this function the node is never `None`.
            (None, _) => Self::None,
        };
    }
}

/// The limits that a connection requested by a peer counts against.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Quota {
    /// None: this end has requested the connection, or the peer has proven its address, or has
    /// confirmed the connection.
    None,
    /// `Table::unanswered` and its source: the request has no answer.
    Unanswered,
    /// Its source: this end has accepted the request, and the peer has not confirmed that.
    HalfOpen,
    /// `Table::rejected`: the connection is kept to answer a repeated REQ.
    Rejected,
}

impl Quota {
    pub(super) const fn has_source(self) -> bool {
        matches!(self, Self::Unanswered | Self::HalfOpen)
    }
}

/// Memory for a connection in the table.
pub(super) struct Reservation {
    pub(super) entry: Option<RBTreeNodeReservation<CommId, Entry>>,
    /// For a connection that a peer requests: for its source, and for the network of that.
    pub(super) sources: [Option<RBTreeNodeReservation<Source, OfSource>>; 2],
    pub(super) keys: Option<Keys>,
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
        + 2 * size_of::<(Source, OfSource)>()
        + 3 * size_of::<Key>()
        + 6 * NODE_BYTES;

    /// Allocates the memory for a connection that `source` requests; `None`: this end does. Fails
    /// with `ENOMEM`. Sleeps.
    pub(super) fn new(source: Option<Source>) -> Result<Self> {
        let network = source.and_then(|source| source.network());
        let node = |source: Option<Source>| {
            let node = source.map(|_| RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT));
            node.transpose()
        };
        Ok(Self {
            entry: Some(RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?),
            sources: [node(source)?, node(network)?],
            keys: Some(Keys {
                deadline: KeyNode::new()?,
                peer: KeyNode::new()?,
                peer_qp: KeyNode::new()?,
            }),
        })
    }
}

/// Bytes of a tree node without its key and value, rounded up.
pub(super) const NODE_BYTES: usize = 64;

/// A connection in the table.
pub(super) struct Entry {
    pub(super) machine: Connection,
    pub(super) conn: Arc<Conn>,
    /// The limits that it counts against.
    pub(super) quota: Quota,
    /// An event has been queued since the last step, so the work item of `conn` must be queued.
    pub(super) event_queued: bool,
    keys: Keys,
}

impl Entry {
    /// Makes an entry whose keys are not in the index yet.
    pub(super) fn new(machine: Connection, conn: Arc<Conn>, quota: Quota, keys: Keys) -> Self {
        Self {
            machine,
            conn,
            quota,
            event_queued: false,
            keys,
        }
    }

    /// The source at the other end.
    pub(super) fn source(&self) -> Source {
        self.conn.link().source(self.machine.peer())
    }

    /// Updates the keys to the current state.
    pub(super) fn update_keys(&mut self, keys: &mut RBTree<Key, ()>) {
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
            established.then(|| Key::PeerQp(guid, machine.peer(), machine.remote_qpn(), id));
        self.keys.deadline.set(keys, deadline);
        self.keys.peer.set(keys, peer);
        self.keys.peer_qp.set(keys, peer_qp);
    }

    /// The limits that it counts against after a change of its state.
    pub(super) fn new_quota(&self) -> Quota {
        match (self.quota, self.machine.state()) {
            (Quota::None, _) => Quota::None,
            (_, State::ReqReceived) => Quota::Unanswered,
            (_, State::RepSent) => Quota::HalfOpen,
            // It was rejected.
            (Quota::Unanswered | Quota::Rejected, State::Timewait) => Quota::Rejected,
            _ => Quota::None,
        }
    }

    /// Queues an event for the consumer.
    fn queue_event(&mut self, event: &Event<'_>) {
        self.event_queued |= self.conn.queue_event(event);
    }

    /// Passes a message that came along `addrs` to the state machine, at `now` in ns. `same_qp`:
    /// the QP that a REP names has another connection with this service. Returns whether the
    /// message was a REP that accepts.
    pub(super) fn receive(
        &mut self,
        now: u64,
        addrs: &AddrPair,
        message: &Message<'_>,
        same_qp: bool,
    ) -> Result<bool, Ignored> {
        if self.conn.local() != addrs.to || self.conn.link().vrf() != addrs.vrf {
            return Err(Ignored::Source);
        }
        let Some(event) = self.machine.receive(now, addrs.from, message)? else {
            return Ok(false);
        };
        if event.is_reply() && same_qp {
            // The peer has lost the state of one of the two, and this end cannot tell which.
            let reason = Reason::STALE_CONN;
            let _ = self
                .machine
                .reject(now, reason, Private::NONE, Private::NONE);
            self.queue_event(&Event::Rejected {
                reason,
                info: &[],
                private: &[],
            });
        } else {
            self.queue_event(&event);
        }
        Ok(event.is_reply())
    }

    /// Ends the connection, whose state the peer has lost.
    pub(super) fn stale(&mut self, now: u64) {
        if let Some(event) = self.machine.stale(now) {
            self.queue_event(&event);
        }
    }

    /// Handles its timeout. Returns whether this produced an event; otherwise the last message is
    /// sent again.
    pub(super) fn expired(&mut self, now: u64) -> bool {
        let event = self.machine.expired(now);
        event.inspect(|event| self.queue_event(event)).is_some()
    }

    /// Queues the last event of a connection that was removed because its link has gone, and wakes
    /// its work item. A consumer whose last event is queued already gets no other one.
    pub(super) fn gone(self) {
        let event = match self.machine.state() {
            State::Established => Event::Disconnected(&[]),
            State::DreqSent => Event::Released,
            _ => Event::Unreachable,
        };
        if self.conn.queue_event(&event) {
            self.conn.wake();
        }
    }

    /// Removes all its keys from the index.
    pub(super) fn remove_keys(&mut self, keys: &mut RBTree<Key, ()>) {
        let own = &mut self.keys;
        for node in [&mut own.deadline, &mut own.peer, &mut own.peer_qp] {
            node.set(keys, None);
        }
    }
}
