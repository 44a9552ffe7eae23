// SPDX-License-Identifier: GPL-2.0

//! Table: the connections and listeners of a service, and their look-up.
//!
//! A connection is found by its local communication ID, and by its [`Key`]s: its next timeout, and
//! the IDs and QPs that the peer's messages contain. The caller allocates the memory for all keys
//! before a connection is inserted ([`Reservation`]). So no function here allocates, and no later
//! step fails. Each look-up is O(log n). All functions are called with the lock of the service
//! held, and do not sleep.

use super::{
    conn::Conn,
    entry::{
        Asked,
        Entry,
        Key,
        Reservation, //
    },
    listen::{
        ListenerEntry,
        Source, //
    },
    MAX_ASKED,
    MAX_ASKED_OF_SOURCE,
    MAX_CONNECTIONS,
    MAX_REJECTED, //
};
use crate::net::socket::AddrPair;
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
use kfi_core::token_bucket::TokenBucket;
use kfi_roce::{
    cm::{
        Body,
        CommId,
        Connection,
        Ignored,
        Mad,
        Message,
        ServiceId,
        State, //
    },
    headers::Qpn, //
};

/// A connection that was removed from the table. It must not be dropped under the table's lock.
pub(super) type Removed = RBTreeNode<CommId, Entry>;

/// The result of a [step](Table::step). It must not be dropped under the table's lock.
pub(super) struct Step<R> {
    pub(super) result: R,
    pub(super) conn: Arc<Conn>,
    /// The message to send to its peer.
    pub(super) mad: Option<Mad>,
    /// An event was queued, so the work item of `conn` must be queued.
    pub(super) told: bool,
    /// The connection, if it is closed and was removed.
    _left: Option<Removed>,
}

/// The result of passing a message to a connection.
pub(super) struct Received {
    pub(super) step: Step<Result<bool, Ignored>>,
    /// The step of another connection with the same QP, whose state the peer has lost.
    pub(super) rival: Option<Step<()>>,
}

/// The reason why a connection cannot be inserted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum EnterError {
    /// Another connection has this ID.
    Taken,
    /// A limit is reached.
    Full,
}

/// The result of a [sweep](Table::sweep) for connections whose link has gone.
pub(super) enum SweepResult {
    /// A connection, which was removed from the table.
    Gone(Removed),
    /// None up to this ID, and there are more to check.
    UpTo(CommId),
    /// None up to the last ID.
    Done,
}

/// Connections that a sweep checks before the lock is released.
const STRIDE: usize = 64;

/// The table of a service, see the module documentation.
///
/// # Invariants
///
/// `count` is the number of connections. `waiting` and `rejected` are the numbers of those whose
/// `asked` has that value. `sources` has, by the peer's address, the number of connections that
/// [count] against their source, and no zeros. `names` has the keys of each connection's state.
///
/// [count]: Asked::has_source
pub(super) struct Table {
    connections: RBTree<CommId, Entry>,
    names: RBTree<Key, ()>,
    count: usize,
    waiting: usize,
    rejected: usize,
    sources: RBTree<IpAddr, usize>,
    listeners: RBTree<(ServiceId, IpAddr), Arc<ListenerEntry>>,
    /// Unproven requests that may end a connection, see [`end_stale`](Self::end_stale). To guess a
    /// QP number of 24 bits takes months.
    stale_attempts: TokenBucket<1_000_000_000, 16>,
}

/// Memory for a listener in the table.
pub(super) type ListenerNode = RBTreeNodeReservation<(ServiceId, IpAddr), Arc<ListenerEntry>>;

/// Returns the unspecified address of the family of `ip`: a listener at it listens at all
/// addresses.
fn any(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

impl Table {
    pub(super) fn new() -> Self {
        // INVARIANT: The table is empty.
        Self {
            connections: RBTree::new(),
            names: RBTree::new(),
            count: 0,
            waiting: 0,
            rejected: 0,
            sources: RBTree::new(),
            listeners: RBTree::new(),
            stale_attempts: TokenBucket::new(),
        }
    }

    /// Whether a limit forbids another connection, requested by the peer at `source`, or by this
    /// end (`None`).
    pub(super) fn is_full(&self, source: Option<IpAddr>) -> bool {
        let too_many_of = |source| {
            let from_it = self.sources.get(&source).copied().unwrap_or(0);
            self.waiting >= MAX_ASKED || from_it >= MAX_ASKED_OF_SOURCE
        };
        self.count >= MAX_CONNECTIONS || source.is_some_and(too_many_of)
    }

    /// Inserts a connection, with the memory in `room`, which was not used before.
    pub(super) fn enter(
        &mut self,
        conn: &Arc<Conn>,
        machine: Connection,
        room: &mut Reservation,
    ) -> Result<(), EnterError> {
        let id = machine.local_id();
        let source = machine.peer();
        let asked = if machine.is_active() {
            Asked::No
        } else {
            Asked::Waiting
        };
        if self.is_full(asked.has_source().then_some(source)) {
            return Err(EnterError::Full);
        }
        if self.connections.get(&id).is_some() {
            return Err(EnterError::Taken);
        }
        let (Some(node), Some(names)) = (room.entry.take(), room.names.take()) else {
            return Err(EnterError::Full);
        };
        if asked.has_source() && self.sources.get(&source).is_none() {
            if let Some(node) = room.source.take() {
                self.sources.insert(node.into_node(source, 0));
            }
        }
        let mut entry = Entry::new(machine, conn.clone(), asked, names);
        entry.update_keys(&mut self.names);
        self.connections.insert(node.into_node(id, entry));
        // INVARIANT: One connection more.
        self.count = self.count.wrapping_add(1);
        self.recount(source, Asked::No, asked);
        Ok(())
    }

    /// Updates the numbers for a connection of the peer at `source` whose `asked` changes from
    /// `old` to `new`.
    fn recount(&mut self, source: IpAddr, old: Asked, new: Asked) {
        // INVARIANT: One fewer of `old`, one more of `new`.
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

    /// Calls `act` with a connection, takes the message that it has to send, and updates its keys
    /// and the counts. Removes the connection if it is closed then. `None` if there is no such
    /// connection.
    pub(super) fn step<R>(
        &mut self,
        id: CommId,
        act: impl FnOnce(&mut Entry) -> R,
    ) -> Option<Step<R>> {
        let entry = self.connections.get_mut(&id)?;
        let result = act(entry);
        let mad = entry.machine.transmit();
        entry.update_keys(&mut self.names);
        let conn = entry.conn.clone();
        let told = core::mem::take(&mut entry.told);
        let mut closed = entry.machine.state() == State::Closed;
        let (old, new, source) = (entry.asked, entry.asked_now(), entry.machine.peer());
        entry.asked = new;
        self.recount(source, old, new);
        // The REJ is sent in any case. If it is lost, the peer's repeated REQ is a new request.
        closed |= new == Asked::Rejected && self.rejected > MAX_REJECTED;
        Some(Step {
            result,
            conn,
            mad,
            told,
            _left: if closed { self.remove(id) } else { None },
        })
    }

    /// Passes a message that came along `way` to a connection; `None` if there is no such
    /// connection. If the peer accepts with a QP that has another connection, it has lost the state
    /// of one of the two: both end.
    pub(super) fn heard(
        &mut self,
        now: u64,
        id: CommId,
        way: &AddrPair,
        message: &Message<'_>,
    ) -> Option<Received> {
        let rival = match &message.body {
            Body::Rep(rep) => self.by_peer_qp(rep.ca_guid, rep.qpn, way.from),
            _ => None,
        };
        let step = self.step(id, |entry| entry.heard(now, way, message, rival.is_some()))?;
        let rival = rival.filter(|_| step.result == Ok(true));
        let rival = rival.and_then(|rival| self.step(rival, |entry| entry.stale(now)));
        Some(Received { step, rival })
    }

    /// Ends the established connection of the QP with which a peer (GUID, QP number, address)
    /// requests another one, because the peer has lost its state; `None` if there is none. A host
    /// that forges the address has to guess the QP number, so the number of attempts is limited;
    /// beyond the limit, connections are not ended.
    pub(super) fn end_stale(
        &mut self,
        now: u64,
        (guid, qpn, from): (u64, Qpn, IpAddr),
        source: Source,
    ) -> Option<Step<()>> {
        if source == Source::Unproven && !self.stale_attempts.take(now) {
            return None;
        }
        let id = self.by_peer_qp(guid, qpn, from)?;
        self.step(id, |entry| entry.stale(now))
    }

    /// Removes a connection, in any state.
    pub(super) fn remove(&mut self, id: CommId) -> Option<Removed> {
        let entry = self.connections.get_mut(&id)?;
        entry.remove_keys(&mut self.names);
        let (asked, source) = (entry.asked, entry.machine.peer());
        // INVARIANT: One connection fewer.
        self.count = self.count.wrapping_sub(1);
        self.recount(source, asked, Asked::No);
        self.connections.remove_node(&id)
    }

    /// The state of a connection; `None` if there is none.
    pub(super) fn state(&self, id: CommId) -> Option<State> {
        Some(self.connections.get(&id)?.machine.state())
    }

    /// Whether this connection is in the table.
    pub(super) fn is(&self, conn: &Conn) -> bool {
        let entry = self.connections.get(&conn.id());
        entry.is_some_and(|entry| core::ptr::eq(&raw const *entry.conn, conn))
    }

    /// Whether a connection with this ID is in the table.
    pub(super) fn has(&self, id: CommId) -> bool {
        self.connections.get(&id).is_some()
    }

    /// The first key that is not less than `name`.
    fn first(&self, name: Key) -> Option<Key> {
        Some(*self.names.cursor_lower_bound(&name)?.current().0)
    }

    /// The passive end for which the peer uses this ID.
    pub(super) fn by_peer(&self, guid: u64, remote_id: CommId) -> Option<CommId> {
        match self.first(Key::Peer(guid, remote_id, CommId(0)))? {
            Key::Peer(g, remote, id) if (g, remote) == (guid, remote_id) => Some(id),
            _ => None,
        }
    }

    /// An established connection with a QP of the peer at `from`.
    pub(super) fn by_peer_qp(&self, guid: u64, qpn: Qpn, from: IpAddr) -> Option<CommId> {
        match self.first(Key::PeerQp(guid, qpn, from, CommId(0)))? {
            Key::PeerQp(g, q, ip, id) if (g, q, ip) == (guid, qpn, from) => Some(id),
            _ => None,
        }
    }

    /// The time of the next timeout, in ns, and the connection that has it.
    pub(super) fn deadline(&self) -> Option<(u64, CommId)> {
        match self.first(Key::Deadline(0, CommId(0)))? {
            Key::Deadline(at, id) => Some((at, id)),
            _ => None,
        }
    }

    /// Removes the first connection with an ID above `after` whose link has gone. Checks at most
    /// [`STRIDE`] connections.
    pub(super) fn sweep(&mut self, after: CommId) -> SweepResult {
        let mut at = after;
        for _ in 0..STRIDE {
            let Some(from) = at.0.checked_add(1) else {
                return SweepResult::Done;
            };
            let Some(cursor) = self.connections.cursor_lower_bound(&CommId(from)) else {
                return SweepResult::Done;
            };
            let (&id, entry) = cursor.current();
            if entry.conn.is_gone() {
                return self.remove(id).map_or(SweepResult::Done, SweepResult::Gone);
            }
            at = id;
        }
        SweepResult::UpTo(at)
    }

    /// Inserts a listener. Fails with `EADDRINUSE` if another one has the service ID at one of its
    /// addresses.
    pub(super) fn listen(&mut self, listener: &Arc<ListenerEntry>, node: ListenerNode) -> Result {
        let (service_id, ip) = listener.at();
        // The listener at all addresses sorts before the others of its family.
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
        self.listeners
            .insert(node.into_node((service_id, ip), listener.clone()));
        Ok(())
    }

    /// The listener for a service ID at an address.
    pub(super) fn listener(&self, service_id: ServiceId, ip: IpAddr) -> Option<Arc<ListenerEntry>> {
        let at = |ip| self.listeners.get(&(service_id, ip));
        at(ip).or_else(|| at(any(ip))).cloned()
    }

    /// Removes a listener, if it is in the table. The result must not be dropped under the lock.
    pub(super) fn unlisten(&mut self, listener: &Arc<ListenerEntry>) -> Option<Arc<ListenerEntry>> {
        let key = listener.at();
        let listens = self.listeners.get(&key)?;
        if Arc::ptr_eq(listens, listener) {
            self.listeners.remove(&key)
        } else {
            None
        }
    }

    /// Removes the first listener; `None` if there is none.
    pub(super) fn remove_listener(&mut self) -> Option<Arc<ListenerEntry>> {
        let key = *self.listeners.cursor_front()?.current().0;
        self.listeners.remove(&key)
    }
}
