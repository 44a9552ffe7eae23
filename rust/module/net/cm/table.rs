// SPDX-License-Identifier: GPL-2.0

//! Table: the connections and listeners of a service, and their look-up.
//!
//! A connection is an [`Entry`]. It is found by its local communication ID, and by its [`Key`]s:
//! its next timeout, and the IDs and QPs that the peer's messages contain. The caller allocates the
//! memory for all keys before a connection is inserted ([`Reservation`]). So no function of the
//! table allocates, and no later step fails. Each look-up is O(log n). All functions are called
//! with the lock of the service held, and do not sleep, except [`Reservation::new`].

use super::{
    conn::Conn,
    entry::{
        Entry,
        Key,
        Quota,
        Reservation, //
    },
    listen::{
        ListenerEntry,
        SourceProof, //
    },
    MAX_CONNECTIONS,
    MAX_OF_PEERS,
    MAX_REJECTED,
    MAX_UNANSWERED,
    MAX_UNCONFIRMED_OF_NETWORK,
    MAX_UNCONFIRMED_OF_SOURCE, //
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
use kfi_core::{
    share::{
        left,
        Source, //
    },
    token_bucket::TokenBucket, //
};
use kfi_roce::{
    cm::{
        Body,
        CommId,
        Connection,
        Ignored,
        Mad,
        Message,
        Req,
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
    pub(super) event_queued: bool,
    /// The connection, if it is closed and was removed.
    _removed: Option<Removed>,
}

/// The result of passing a message to a connection.
pub(super) struct Received {
    pub(super) step: Step<Result<bool, Ignored>>,
    /// The step of another connection with the same QP, whose state the peer has lost.
    pub(super) stale: Option<Step<()>>,
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

/// The connections that a source has requested, or all hosts of a network.
#[derive(Clone, Copy, Default)]
pub(super) struct OfSource {
    all: usize,
    /// Those that [count](Quota::has_source) against their source.
    unconfirmed: usize,
}

/// Connections that a sweep checks before the lock is released.
const STRIDE: usize = 64;

/// The table of a service, see the module documentation.
///
/// # Invariants
///
/// `count` is the number of connections, and `of_peers` that of those that peers have requested.
/// `unanswered` and `rejected` are the numbers of those whose `quota` has that value. `sources`
/// has, by the source and by its network, the numbers of connections that it has requested, and no
/// zeros. `keys` has the keys of each connection's state.
pub(super) struct Table {
    connections: RBTree<CommId, Entry>,
    keys: RBTree<Key, ()>,
    count: usize,
    of_peers: usize,
    unanswered: usize,
    rejected: usize,
    sources: RBTree<Source, OfSource>,
    listeners: RBTree<(ServiceId, IpAddr), Arc<ListenerEntry>>,
    /// Requests without a proof that may end a connection, see [`end_stale`](Self::end_stale). With
    /// one connection, to guess a number of 24 bits takes months.
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
            keys: RBTree::new(),
            count: 0,
            of_peers: 0,
            unanswered: 0,
            rejected: 0,
            sources: RBTree::new(),
            listeners: RBTree::new(),
            stale_attempts: TokenBucket::new(),
        }
    }

    /// Whether a limit forbids another connection that this end requests.
    fn is_full(&self) -> bool {
        self.count >= MAX_CONNECTIONS
    }

    /// The connections of a source, and those of its network.
    fn of(&self, source: Source) -> (OfSource, OfSource) {
        let of = |source| self.sources.get(&source).copied().unwrap_or_default();
        let network = source.network();
        (of(source), network.map_or(OfSource::default(), of))
    }

    /// Whether a limit forbids another connection that `source` requests, and that counts against
    /// `quota`. The source has a [share](kfi_core::share).
    pub(super) fn is_full_for(&self, source: Source, quota: Quota) -> bool {
        let (own, network) = self.of(source);
        let left = left(own.all as u64, network.all as u64);
        let share_used = (self.of_peers as u64).saturating_add(left) >= MAX_OF_PEERS as u64;
        let unconfirmed = || {
            self.unanswered >= MAX_UNANSWERED
                || own.unconfirmed >= MAX_UNCONFIRMED_OF_SOURCE
                || network.unconfirmed >= MAX_UNCONFIRMED_OF_NETWORK
        };
        self.is_full() || share_used || quota.has_source() && unconfirmed()
    }

    /// Inserts a connection that counts against `quota`, with the memory in `reservation`, which
    /// was not used before. Fails with `EBUSY` if a limit is reached, `EEXIST` if another
    /// connection has this ID.
    pub(super) fn insert(
        &mut self,
        conn: &Arc<Conn>,
        machine: Connection,
        quota: Quota,
        reservation: &mut Reservation,
    ) -> Result {
        let id = machine.local_id();
        let source = conn.link().source(machine.peer());
        let is_of_peer = !machine.is_active();
        let is_full = if is_of_peer {
            self.is_full_for(source, quota)
        } else {
            self.is_full()
        };
        if is_full {
            return Err(EBUSY);
        }
        if self.connections.get(&id).is_some() {
            return Err(EEXIST);
        }
        let (Some(node), Some(keys)) = (reservation.entry.take(), reservation.keys.take()) else {
            return Err(EBUSY);
        };
        if is_of_peer {
            let nodes = reservation.sources.iter_mut();
            for (source, node) in source.with_network().zip(nodes) {
                if self.sources.get(&source).is_none() {
                    if let Some(node) = node.take() {
                        let none = OfSource::default();
                        self.sources.insert(node.into_node(source, none));
                    }
                }
            }
        }
        let mut entry = Entry::new(machine, conn.clone(), quota, keys);
        entry.update_keys(&mut self.keys);
        self.connections.insert(node.into_node(id, entry));
        // INVARIANT: One connection more.
        self.count = self.count.wrapping_add(1);
        if is_of_peer {
            self.of_peers = self.of_peers.wrapping_add(1);
            self.change(source, |of_source| {
                of_source.all = of_source.all.wrapping_add(1);
            });
        }
        self.recount(source, Quota::None, quota);
        Ok(())
    }

    /// Changes the numbers of a source and of its network, if it has any.
    fn change(&mut self, source: Source, change: impl Fn(&mut OfSource)) {
        for source in source.with_network() {
            if let Some(of_source) = self.sources.get_mut(&source) {
                change(of_source);
            }
        }
    }

    /// Updates the numbers for a connection of the peer `source` whose `quota` changes from `old`
    /// to `new`.
    fn recount(&mut self, source: Source, old: Quota, new: Quota) {
        // INVARIANT: One fewer of `old`, one more of `new`.
        match old {
            Quota::Unanswered => self.unanswered = self.unanswered.wrapping_sub(1),
            Quota::Rejected => self.rejected = self.rejected.wrapping_sub(1),
            Quota::None | Quota::HalfOpen => {}
        }
        match new {
            Quota::Unanswered => self.unanswered = self.unanswered.wrapping_add(1),
            Quota::Rejected => self.rejected = self.rejected.wrapping_add(1),
            Quota::None | Quota::HalfOpen => {}
        }
        if old.has_source() != new.has_source() {
            self.change(source, |of_source| {
                of_source.unconfirmed = of_source
                    .unconfirmed
                    .wrapping_sub(usize::from(old.has_source()))
                    .wrapping_add(usize::from(new.has_source()));
            });
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
        entry.update_keys(&mut self.keys);
        let conn = entry.conn.clone();
        let event_queued = core::mem::take(&mut entry.event_queued);
        let mut closed = entry.machine.state() == State::Closed;
        let (old, new, source) = (entry.quota, entry.new_quota(), entry.source());
        entry.quota = new;
        self.recount(source, old, new);
        // The REJ is sent in any case. If it is lost, the peer's repeated REQ is a new request.
        closed |= new == Quota::Rejected && self.rejected > MAX_REJECTED;
        Some(Step {
            result,
            conn,
            mad,
            event_queued,
            _removed: if closed { self.remove(id) } else { None },
        })
    }

    /// Passes a message that came along `addrs` to a connection; `None` if there is no such
    /// connection. If the peer accepts with a QP that has another connection, it has lost the state
    /// of one of the two: both end.
    pub(super) fn receive(
        &mut self,
        now: u64,
        id: CommId,
        addrs: &AddrPair,
        message: &Message<'_>,
    ) -> Option<Received> {
        let same_qp = match &message.body {
            Body::Rep(rep) => self.by_peer_qp(rep.ca_guid, rep.qpn, addrs.from),
            _ => None,
        };
        let step = self.step(id, |entry| {
            entry.receive(now, addrs, message, same_qp.is_some())
        })?;
        let same_qp = same_qp.filter(|_| step.result == Ok(true));
        let stale = same_qp.and_then(|id| self.step(id, |entry| entry.stale(now)));
        Some(Received { step, stale })
    }

    /// The established connection whose state a peer has lost that sends this REQ from `from`: that
    /// of its QP, or that of its communication ID (`same_id`).
    pub(super) fn stale(
        &self,
        req: &Req<'_>,
        from: IpAddr,
        same_id: Option<CommId>,
    ) -> Option<CommId> {
        self.by_peer_qp(req.ca_guid, req.qpn, from).or(same_id)
    }

    /// Ends the [stale](Self::stale) connection; `None` if there is none. A REQ without a proof of
    /// its address ends none, if the listener asks for proofs. If the listener does not, the REQ
    /// ends only connections of its own space of service IDs. Their peers' QP numbers and IDs could
    /// be guessed, so the number of REQs with the GUID and the address of such a peer is limited;
    /// beyond the limit, connections are not ended.
    pub(super) fn end_stale(
        &mut self,
        now: u64,
        req: &Req<'_>,
        from: IpAddr,
        same_id: Option<CommId>,
        proof: SourceProof,
    ) -> Option<Step<()>> {
        let may_end = match proof {
            SourceProof::Proven => true,
            SourceProof::Unproven => false,
            SourceProof::Unknown => {
                self.has_peer(req.ca_guid, from) && self.stale_attempts.take(now)
            }
        };
        if !may_end {
            return None;
        }
        let id = self.stale(req, from, same_id)?;
        let service_id = self.connections.get(&id)?.machine.service_id();
        if proof == SourceProof::Unknown && service_id.port_in(req.service_id).is_none() {
            return None;
        }
        self.step(id, |entry| entry.stale(now))
    }

    /// Removes a connection, in any state.
    pub(super) fn remove(&mut self, id: CommId) -> Option<Removed> {
        let entry = self.connections.get_mut(&id)?;
        entry.remove_keys(&mut self.keys);
        let (quota, source) = (entry.quota, entry.source());
        let is_of_peer = !entry.machine.is_active();
        // INVARIANT: One connection fewer.
        self.count = self.count.wrapping_sub(1);
        self.recount(source, quota, Quota::None);
        if is_of_peer {
            self.of_peers = self.of_peers.wrapping_sub(1);
            self.change(source, |of_source| {
                of_source.all = of_source.all.wrapping_sub(1);
            });
            for source in source.with_network() {
                if self.sources.get(&source).is_some_and(|it| it.all == 0) {
                    self.sources.remove(&source);
                }
            }
        }
        self.connections.remove_node(&id)
    }

    /// The state of a connection; `None` if there is none.
    pub(super) fn state(&self, id: CommId) -> Option<State> {
        Some(self.connections.get(&id)?.machine.state())
    }

    /// Whether this connection is in the table.
    pub(super) fn contains(&self, conn: &Conn) -> bool {
        let entry = self.connections.get(&conn.id());
        entry.is_some_and(|entry| core::ptr::eq(&raw const *entry.conn, conn))
    }

    /// Whether a connection with this ID is in the table.
    pub(super) fn contains_id(&self, id: CommId) -> bool {
        self.connections.get(&id).is_some()
    }

    /// The first key that is not less than `key`.
    fn first(&self, key: Key) -> Option<Key> {
        Some(*self.keys.cursor_lower_bound(&key)?.current().0)
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
        match self.first(Key::PeerQp(guid, from, qpn, CommId(0)))? {
            Key::PeerQp(g, ip, q, id) if (g, ip, q) == (guid, from, qpn) => Some(id),
            _ => None,
        }
    }

    /// Whether there is an established connection with a peer of this GUID at `from`.
    fn has_peer(&self, guid: u64, from: IpAddr) -> bool {
        let lowest = Key::PeerQp(guid, from, Qpn::new(0), CommId(0));
        matches!(self.first(lowest), Some(Key::PeerQp(g, ip, ..)) if (g, ip) == (guid, from))
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
        let listening = self.listeners.get(&key)?;
        if Arc::ptr_eq(listening, listener) {
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
