// SPDX-License-Identifier: GPL-2.0

//! Table: the connections and listeners of a service, and how they are found.
//!
//! A connection is found by its own communication ID, and by [`Name`]s: what time and peers know it
//! by. It has room for all the names that it can ever get from the moment in which it is entered, so
//! nothing fails later. Every look-up is O(log n).

use super::{
    conn::{
        Conn,
        Consumer, //
    },
    listen::Door,
    MAX_ASKED,
    MAX_ASKED_OF_SOURCE,
    MAX_CONNECTIONS,
    MAX_REJECTED, //
};
use crate::{
    net::LinkState,
    shim::random::random_u32, //
};
use core::net::{
    IpAddr,
    Ipv4Addr,
    Ipv6Addr, //
};
use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode,
        RBTreeNodeReservation, //
    },
    sync::Arc, //
};
use kfi_core::roce::{
    cm::{
        CommId,
        Connection,
        Event,
        Mad,
        ServiceId,
        State, //
    },
    headers::Qpn, //
};

/// What a connection is found by besides its ID, which stands last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    /// When it wants to be looked at. Sorts before all others.
    Deadline(u64, CommId),
    /// A passive end: the GUID of the peer's device, and what the peer calls it.
    Peer(u64, CommId, CommId),
    /// One that is established: the GUID of the peer's device, the peer's QP, and the peer's address:
    /// the first two are no secret, and another host may not speak for the peer.
    PeerQp(u64, Qpn, IpAddr, CommId),
}

/// A name that a connection has, or room for one.
enum Place {
    Free(RBTreeNodeReservation<Name, ()>),
    Taken(Name),
    /// Between two names.
    None,
}

impl Place {
    fn new() -> Result<Self> {
        Ok(Self::Free(RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?))
    }

    /// Gives the connection another name, or none.
    fn set(&mut self, names: &mut RBTree<Name, ()>, name: Option<Name>) {
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
            // Not so: a place has a name or room.
            (None, _) => Self::None,
        };
    }
}

/// Whether a connection counts as one that a peer has asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// It does not: this end has asked, or has accepted and heard that the peer is there.
    No,
    /// In `waiting`, and at its source: it has no answer.
    Waiting,
    /// At its source: it was accepted, and the peer has not confirmed that.
    HalfOpen,
    /// In `rejected`: it may be asked for once more.
    Rejected,
}

impl Asked {
    const fn has_source(self) -> bool {
        matches!(self, Self::Waiting | Self::HalfOpen)
    }
}

/// A connection in the table.
pub(super) struct Entry {
    pub(super) machine: Connection,
    /// None: it has heard of the end, or does not want to; or nobody has accepted yet.
    pub(super) consumer: Option<Arc<dyn Consumer>>,
    conn: Arc<Conn>,
    asked: Asked,
    deadline: Place,
    peer: Place,
    peer_qp: Place,
}

impl Entry {
    /// Gives it the names that are right for its state.
    fn rename(&mut self, names: &mut RBTree<Name, ()>) {
        let machine = &self.machine;
        let id = machine.local_id();
        let guid = machine.remote_guid();
        let deadline = machine.deadline().map(|at| Name::Deadline(at, id));
        let peer = match machine.remote_id() {
            Some(remote) if !machine.is_active() => Some(Name::Peer(guid, remote, id)),
            _ => None,
        };
        let established = machine.state() == State::Established;
        let peer_qp =
            established.then(|| Name::PeerQp(guid, machine.remote_qpn(), machine.peer(), id));
        self.deadline.set(names, deadline);
        self.peer.set(names, peer);
        self.peer_qp.set(names, peer_qp);
    }

    /// What it counts as now, if it was `asked` before.
    fn asked_now(&self) -> Asked {
        let state = self.machine.state();
        match (self.asked, state) {
            (Asked::No, _) => Asked::No,
            (_, State::ReqReceived) => Asked::Waiting,
            (_, State::RepSent) => Asked::HalfOpen,
            (Asked::Waiting | Asked::Rejected, State::Timewait) if self.consumer.is_none() => {
                Asked::Rejected
            }
            _ => Asked::No,
        }
    }

    /// This end's address.
    pub(super) fn local(&self) -> IpAddr {
        self.conn.local()
    }

    /// Its link has gone, and it has left the table: tells the consumer, if that has heard of no end.
    pub(super) fn gone(self) {
        let Some(consumer) = self.consumer else {
            return;
        };
        let event = match self.machine.state() {
            State::Established => Event::Disconnected(&[]),
            State::DreqSent => Event::Released,
            _ => Event::Unreachable,
        };
        consumer.event(&self.conn, &event);
    }

    /// Takes all names from it.
    fn unname(&mut self, names: &mut RBTree<Name, ()>) {
        for place in [&mut self.deadline, &mut self.peer, &mut self.peer_qp] {
            place.set(names, None);
        }
    }
}

/// A connection that has left the table; not to be dropped under the table's lock.
pub(super) type Left = RBTreeNode<CommId, Entry>;

/// What came of a step of a connection.
pub(super) struct Step<R> {
    pub(super) result: R,
    pub(super) conn: Arc<Conn>,
    /// What is to be sent to its peer.
    pub(super) mad: Option<Mad>,
    /// It is closed. To be dropped, but not under the lock.
    _left: Option<Left>,
}

/// Why a connection cannot be entered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Full;

/// See the module's story.
///
/// # Invariants
///
/// `count` is the number of connections, `waiting` and `rejected` those of the connections that are
/// marked so; `sources` has the number of those that count at their source, by the peer's address, and
/// no zeros. A connection has the names that its state gives it.
pub(super) struct Table {
    connections: RBTree<CommId, Entry>,
    names: RBTree<Name, ()>,
    count: usize,
    waiting: usize,
    rejected: usize,
    sources: RBTree<IpAddr, usize>,
    listeners: RBTree<(ServiceId, IpAddr), Arc<Door>>,
}

/// The address of a family that stands for all.
fn any(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

impl Table {
    pub(super) fn new() -> Self {
        // INVARIANT: Nothing in it.
        Self {
            connections: RBTree::new(),
            names: RBTree::new(),
            count: 0,
            waiting: 0,
            rejected: 0,
            sources: RBTree::new(),
            listeners: RBTree::new(),
        }
    }

    /// An ID for another connection, asked for by the peer at `source` or by this end.
    pub(super) fn new_id(&self, source: Option<IpAddr>) -> Result<CommId, Full> {
        let is_full = |source| {
            let from_it = self.sources.get(&source).copied().unwrap_or(0);
            self.waiting >= MAX_ASKED || from_it >= MAX_ASKED_OF_SOURCE
        };
        if self.count >= MAX_CONNECTIONS || source.is_some_and(is_full) {
            return Err(Full);
        }
        loop {
            let id = CommId(random_u32());
            if id != CommId(0) && self.connections.get(&id).is_none() {
                return Ok(id);
            }
        }
    }

    /// Enters a connection under an ID of [`new_id`](Self::new_id), which was asked for meanwhile by
    /// nobody else. `ENOMEM`. Sleeps.
    pub(super) fn enter(
        &mut self,
        conn: &Arc<Conn>,
        machine: Connection,
        consumer: Option<Arc<dyn Consumer>>,
    ) -> Result {
        let id = machine.local_id();
        let asked = if machine.is_active() {
            Asked::No
        } else {
            Asked::Waiting
        };
        let source = machine.peer();
        let mut entry = Entry {
            machine,
            consumer,
            conn: conn.clone(),
            asked,
            deadline: Place::new()?,
            peer: Place::new()?,
            peer_qp: Place::new()?,
        };
        let room = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        if asked.has_source() && self.sources.get(&source).is_none() {
            let node = RBTreeNode::new(source, 0, GFP_KERNEL_ACCOUNT)?;
            self.sources.insert(node);
        }
        entry.rename(&mut self.names);
        self.connections.insert(room.into_node(id, entry));
        // INVARIANT: One more.
        self.count = self.count.wrapping_add(1);
        self.recount(source, Asked::No, asked);
        Ok(())
    }

    /// A connection of the peer at `source` counted as `old` and now counts as `new`.
    fn recount(&mut self, source: IpAddr, old: Asked, new: Asked) {
        // INVARIANT: One fewer of the one, one more of the other.
        match old {
            Asked::Waiting => self.waiting = self.waiting.wrapping_sub(1),
            Asked::Rejected => self.rejected = self.rejected.wrapping_sub(1),
            Asked::No | Asked::HalfOpen => {}
        }
        match new {
            Asked::Waiting => self.waiting = self.waiting.wrapping_add(1),
            Asked::Rejected => self.rejected = self.rejected.wrapping_add(1),
            Asked::No | Asked::HalfOpen => {}
        }
        if let Some(number) = self.sources.get_mut(&source) {
            *number = number
                .wrapping_sub(usize::from(old.has_source()))
                .wrapping_add(usize::from(new.has_source()));
            if *number == 0 {
                self.sources.remove(&source);
            }
        }
    }

    /// Has a connection do something; `None` if there is none. One that is closed then has left.
    pub(super) fn step<R>(
        &mut self,
        id: CommId,
        act: impl FnOnce(&mut Entry) -> R,
    ) -> Option<Step<R>> {
        let entry = self.connections.get_mut(&id)?;
        let result = act(entry);
        let mad = entry.machine.transmit();
        entry.rename(&mut self.names);
        let conn = entry.conn.clone();
        let mut closed = entry.machine.state() == State::Closed;
        let (old, new, source) = (entry.asked, entry.asked_now(), entry.machine.peer());
        entry.asked = new;
        self.recount(source, old, new);
        // The rejection goes out all the same. If it is lost, the peer's next REQ is a new request.
        closed |= new == Asked::Rejected && self.rejected > MAX_REJECTED;
        Some(Step {
            result,
            conn,
            mad,
            _left: if closed { self.remove(id) } else { None },
        })
    }

    /// Takes a connection out, whatever its state.
    pub(super) fn remove(&mut self, id: CommId) -> Option<Left> {
        let entry = self.connections.get_mut(&id)?;
        entry.unname(&mut self.names);
        let (asked, source) = (entry.asked, entry.machine.peer());
        // INVARIANT: One fewer.
        self.count = self.count.wrapping_sub(1);
        self.recount(source, asked, Asked::No);
        self.connections.remove_node(&id)
    }

    /// The state of a connection; `None` if there is none.
    pub(super) fn state(&self, id: CommId) -> Option<State> {
        Some(self.connections.get(&id)?.machine.state())
    }

    /// The consumer of a connection; `last`: it is to be told for the last time.
    pub(super) fn consumer(&mut self, id: CommId, last: bool) -> Option<Arc<dyn Consumer>> {
        let consumer = &mut self.connections.get_mut(&id)?.consumer;
        if last {
            consumer.take()
        } else {
            consumer.clone()
        }
    }

    /// Whether there is such a connection.
    pub(super) fn has(&self, id: CommId) -> bool {
        self.connections.get(&id).is_some()
    }

    /// The first name from `name` on.
    fn first(&self, name: Name) -> Option<Name> {
        Some(*self.names.cursor_lower_bound(&name)?.current().0)
    }

    /// The passive end that a peer calls so.
    pub(super) fn by_peer(&self, guid: u64, remote_id: CommId) -> Option<CommId> {
        match self.first(Name::Peer(guid, remote_id, CommId(0)))? {
            Name::Peer(g, remote, id) if (g, remote) == (guid, remote_id) => Some(id),
            _ => None,
        }
    }

    /// An established connection with a QP of the peer at `from`.
    pub(super) fn by_peer_qp(&self, guid: u64, qpn: Qpn, from: IpAddr) -> Option<CommId> {
        match self.first(Name::PeerQp(guid, qpn, from, CommId(0)))? {
            Name::PeerQp(g, q, ip, id) if (g, q, ip) == (guid, qpn, from) => Some(id),
            _ => None,
        }
    }

    /// The next time at which a connection wants to be looked at, and which.
    pub(super) fn deadline(&self) -> Option<(u64, CommId)> {
        match self.first(Name::Deadline(0, CommId(0)))? {
            Name::Deadline(at, id) => Some((at, id)),
            _ => None,
        }
    }

    /// Takes out the first connection with an ID above `after` whose link has gone.
    pub(super) fn remove_gone(&mut self, after: CommId) -> Option<Left> {
        let mut from = CommId(after.0.checked_add(1)?);
        loop {
            let cursor = self.connections.cursor_lower_bound(&from)?;
            let (&id, entry) = cursor.current();
            if entry.conn.link().state() == LinkState::Gone {
                return self.remove(id);
            }
            from = CommId(id.0.checked_add(1)?);
        }
    }

    /// Lets somebody listen. `EADDRINUSE` somebody does already at one of those addresses; `ENOMEM`.
    /// Sleeps.
    pub(super) fn listen(&mut self, door: &Arc<Door>) -> Result {
        let (service_id, ip) = door.at();
        // That of all addresses sorts before the others of its family.
        let others = self.listeners.cursor_lower_bound(&(service_id, any(ip)));
        let first = others.map(|cursor| *cursor.current().0);
        let taken = match first {
            Some((id, other)) if id == service_id && any(other) == any(ip) => {
                ip == any(ip) || other == any(ip) || self.listeners.get(&(id, ip)).is_some()
            }
            _ => false,
        };
        if taken {
            return Err(EADDRINUSE);
        }
        let node = RBTreeNode::new((service_id, ip), door.clone(), GFP_KERNEL_ACCOUNT)?;
        self.listeners.insert(node);
        Ok(())
    }

    /// Who listens for a service at an address.
    pub(super) fn listener(&self, service_id: ServiceId, ip: IpAddr) -> Option<Arc<Door>> {
        let at = |ip| self.listeners.get(&(service_id, ip));
        at(ip).or_else(|| at(any(ip))).cloned()
    }

    /// `door` is nobody's any more. What comes back is not to be dropped under the lock.
    pub(super) fn unlisten(&mut self, door: &Arc<Door>) -> Option<Arc<Door>> {
        let key = door.at();
        let listens = self.listeners.get(&key)?;
        if Arc::ptr_eq(listens, door) {
            self.listeners.remove(&key)
        } else {
            None
        }
    }

    /// Takes out any listener.
    pub(super) fn remove_listener(&mut self) -> Option<Arc<Door>> {
        let key = *self.listeners.cursor_front()?.current().0;
        self.listeners.remove(&key)
    }
}
