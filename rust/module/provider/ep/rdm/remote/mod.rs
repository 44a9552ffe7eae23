// SPDX-License-Identifier: GPL-2.0

//! Peers on other hosts: reliable datagrams over the network.
//!
//! An address is an address on another host if no endpoint of this host has it and routing takes it
//! to another host. Each post asks that anew, because addresses and routes change; without a change
//! the answer takes no look-up ([`Path::check`]). An endpoint has a [`Session`] for each such peer.
//! The session is made by the first operation to the peer, or by a connection request of the peer.
//! It is freed when it has had nothing to do for a while. The core has the protocol
//! ([`kfi_core::rdm`]): connections on demand, SENDs of messages with a header of the module's own,
//! long messages read by their receiver, RMA as RDMA, atomics as those of RC or in SENDs, tagged
//! RMA as messages with an answer.
//!
//! ```text
//!        post.rs ----> session.rs ----> conn.rs ----> QP ----> peer
//!                        ^  ^  \           ^
//!  worker.rs, manage.rs -'  |   '-> op.rs  '--- serve.rs <---- QP <---- peer
//!             (CM)          '--------------------'   |
//!                                                    '--> receive/remote.rs: matching
//! ```
//!
//! | file | topic |
//! |---|---|
//! | [`post`] | transmits to such peers |
//! | [`atomic`] | atomics, at both ends |
//! | [`tagged`] | tagged RMA to such peers |
//! | [`session`] | one peer: its lock, the actions of the protocol |
//! | [`worker`] | the worker of a session, which does not wait for the lock of its state |
//! | [`granted`] | memory of outstanding operations that the peer reads, or fills |
//! | [`conn`] | one connection: its QP |
//! | [`request`] | the work requests of a QP for the requests of the protocol |
//! | [`serve`] | the peer's requests on a connection |
//! | [`manage`] | making and closing connections; the connection requests of peers |
//! | [`op`] | operations, and answers to the peer |
//! | [`store`] | memory of operations and of the work requests of a QP |
//!
//! # Limits
//!
//! Outstanding transmits count against `tx_size`, together with those that wait on this host.
//! Sessions and connections are charged to the endpoint's owner. Unexpected messages from other
//! hosts have the same limits as those from this host; a message that finds no room waits at its
//! sender. Answers to the peer are charged too, and their number is limited for each peer. A
//! message whose answer would exceed the limit waits.
//!
//! # Closing
//!
//! An endpoint that closes sends a BYE to its peers and waits until they acknowledge it, at most
//! [`LINGER_TIME`](kfi_core::rdm::times::LINGER_TIME). Afterwards it has no QP, and its outstanding
//! operations have been dropped without completions. Workers of the module do this. If the task
//! that closes the endpoint is killed, it waits again when its file is released. The total wait is
//! not longer.
//!
//! A release of a file by force waits [`LEAVE_TIME`] at most. If there is still a session then, for
//! example because a task that holds one of its locks is not scheduled, the worker that ends the
//! last session tears the endpoint down.

mod atomic;
pub(super) mod conn;
mod granted;
mod manage;
pub(in crate::provider::ep) mod op;
mod post;
mod request;
mod serve;
pub(in crate::provider::ep) mod session;
mod store;
mod tagged;
mod worker;

#[cfg(kfi_kunit)]
#[path = "../../../../../../kunit/half_open.rs"]
mod kunit;

use kernel::{
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::atomic::Full, //
};

use kfi_core::rdm::{
    service_id,
    times::LINGER_TIME, //
};

use self::{
    manage::{
        RdmListener, //
        RequestFilter,
    },
    session::Session, //
};
use super::super::{
    prelude::*,
    teardown::PendingTeardown, //
};
use crate::{
    net::{
        cm::{
            self,
            Listening, //
        },
        Path,
        QpStats,
        Reach,
        Values,
        STATS, //
    },
    shim::{
        random::random_u64,
        sched::now_ns,
        wait::Signals, //
    }, //
};

/// The most connection requests that wait for delivery. Each is answered when it is delivered. In a
/// larger burst further REQs are ignored, and their senders repeat them.
const BACKLOG: u32 = 64;

/// The time in ns that a close by force waits for the sessions. It is more than they take if their
/// workers run.
const LEAVE_TIME: u64 = 4 * LINGER_TIME;

/// Checks that a path leads to another host now. Fails with `EHOSTUNREACH`, `EADDRNOTAVAIL`,
/// `ENODEV`, `ENOMEM`. Does not sleep.
fn check_path(path: &Path) -> Result {
    match path.check() {
        Ok(Reach::Network) => Ok(()),
        // No endpoint of this host has the address.
        Ok(Reach::ThisHost) | Err(ENETUNREACH) => Err(EHOSTUNREACH),
        Err(error) => Err(error),
    }
}

struct Sessions {
    tree: RBTree<PeerAddr, Arc<Session>>,
    /// The endpoint is closing: no session can be added.
    closed: bool,
    /// Until when a close by force waits, in ns. Set with `closed`.
    leave_by: u64,
    /// The worker that ends the last session tears the endpoint down.
    must_teardown: bool,
}

/// The sessions of an endpoint for reliable datagrams.
#[pin_data]
pub(in crate::provider::ep) struct Remote {
    /// A random number that identifies this instance of the endpoint to its peers.
    incarnation: u64,
    /// The last epoch that was used.
    epoch: Atomic<u64>,
    /// Decides which connection requests are handled.
    #[pin]
    request_filter: RequestFilter,
    /// A leaf.
    #[pin]
    sessions: SpinLock<Sessions>,
    /// The tasks that wait until there is no session.
    #[pin]
    empty: WaitQueue,
    /// Taken when the endpoint is enabled and closed.
    #[pin]
    listening: Mutex<Option<Listening>>,
    /// The packet statistics of all its connections. Set by [`Endpoint::listen`].
    stats: SetOnce<Arc<QpStats>>,
}

impl Remote {
    /// Bytes of kernel memory that the listener takes.
    pub(in crate::provider::ep) const BYTES: usize = cm::listening_bytes(BACKLOG as usize);

    /// Makes an empty table.
    pub(in crate::provider::ep) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            incarnation: random_u64(),
            epoch: Atomic::new(0),
            request_filter <- RequestFilter::new(),
            sessions <- new_spinlock!(
                Sessions {
                    tree: RBTree::new(),
                    closed: false,
                    leave_by: 0,
                    must_teardown: false,
                },
                "Remote::sessions"
            ),
            empty <- new_wait_queue!("Remote::empty"),
            listening <- new_mutex!(None, "Remote::listening"),
            stats: SetOnce::new(),
        })
    }

    /// The packet statistics of all its connections. Does not sleep.
    pub(in crate::provider::ep) fn packets(&self) -> Values {
        self.stats
            .as_ref()
            .map_or([0; STATS], |stats| stats.values())
    }

    /// Returns an epoch that is larger than all previous ones. Any context.
    fn next_epoch(&self) -> u64 {
        self.epoch.fetch_add(1, Full).wrapping_add(1)
    }

    /// The session with a peer, if there is one. Does not sleep.
    fn find(&self, peer: &PeerAddr) -> Option<Arc<Session>> {
        self.sessions.lock().tree.get(peer).cloned()
    }

    /// Whether a request in the name of a peer needs a proof at `now`, because another one without
    /// a proof has come. Does not sleep.
    fn must_prove(&self, peer: &PeerAddr, now: u64) -> bool {
        let sessions = self.sessions.lock();
        let session = sessions.tree.get(peer);
        session.is_some_and(|session| session.must_prove_until.load(Relaxed) > now)
    }

    /// Adds a session, unless there is one with this peer. Returns the one in the table. Fails with
    /// `EBADF` if the endpoint is closing, `ENOMEM`. Sleeps.
    fn enter(&self, session: Arc<Session>) -> Result<Arc<Session>> {
        let node = RBTreeNode::new(session.peer, session.clone(), GFP_KERNEL_ACCOUNT)?;
        let mut sessions = self.sessions.lock();
        if sessions.closed {
            drop(sessions);
            return Err(EBADF);
        }
        if let Some(other) = sessions.tree.get(&session.peer) {
            let other = other.clone();
            drop(sessions);
            return Ok(other);
        }
        sessions.tree.insert(node);
        Ok(session)
    }

    /// Removes a session. Tears the endpoint down if that was left to the end of the last session.
    /// Sleeps.
    fn forget(&self, session: &Arc<Session>) {
        let (node, empty, must_teardown) = {
            let mut sessions = self.sessions.lock();
            let is_it = sessions
                .tree
                .get(&session.peer)
                .is_some_and(|other| Arc::ptr_eq(other, session));
            let node = if is_it {
                sessions.tree.remove_node(&session.peer)
            } else {
                None
            };
            let empty = sessions.tree.is_empty();
            let must_teardown = empty && core::mem::take(&mut sessions.must_teardown);
            (node, empty, must_teardown)
        };
        drop(node);
        if empty {
            self.empty.wake_all();
        }
        if must_teardown {
            let _teardown = PendingTeardown::of_other();
            session.endpoint.end_teardown();
        }
    }

    /// Calls `work` for each session until it returns true. Returns whether it did. Sessions that
    /// are added meanwhile may be left out. Sleeps.
    fn any(&self, mut work: impl FnMut(&Arc<Session>) -> bool) -> bool {
        let mut next = self.first();
        while let Some(session) = next {
            if work(&session) {
                return true;
            }
            next = self.after(&session.peer);
        }
        false
    }

    fn first(&self) -> Option<Arc<Session>> {
        let sessions = self.sessions.lock();
        let first = sessions.tree.cursor_front()?.current().1.clone();
        Some(first)
    }

    /// The first session whose peer's address is above `peer`.
    fn after(&self, peer: &PeerAddr) -> Option<Arc<Session>> {
        let sessions = self.sessions.lock();
        let cursor = sessions.tree.cursor_lower_bound(peer)?;
        let (addr, session) = cursor.current();
        let session = if addr == peer {
            cursor.peek_next()?.1
        } else {
            session
        };
        Some(session.clone())
    }
}

impl Endpoint {
    /// Begins to accept connections from other hosts at `name`. Peers never connect to a transmit
    /// context, because it has nothing to receive. Fails with `EADDRINUSE` if another
    /// endpoint listens there; `ENODEV` if the namespace has no link; `ENOMEM`. Sleeps.
    pub(in crate::provider::ep) fn listen(self: &Arc<Self>, name: &SockAddr) -> Result {
        // A previous attempt to enable the endpoint may have set it.
        let _ = self.remote.stats.populate(QpStats::shared()?);
        if self.only_side() == Some(Side::Transmit) {
            return Ok(());
        }
        let listener = Arc::new(RdmListener(self.clone()), GFP_KERNEL_ACCOUNT)?;
        let socket = self.domain.link().socket();
        let service = service_id(name.port());
        let listening = cm::listen(socket, name.ip(), service, BACKLOG, listener)?;
        *self.remote.listening.lock() = Some(listening);
        Ok(())
    }

    /// The session with the peer at `addr`; makes one if there is none. Fails with `EINVAL` if it
    /// cannot be the address of a host; `ENOMEM`, `EBADF`. Sleeps.
    fn session(self: &Arc<Self>, bound: &Bound, addr: &PeerAddr) -> Result<Arc<Session>> {
        if let Some(session) = self.remote.find(addr) {
            return Ok(session);
        }
        let path = self.path_to(bound, addr)?;
        self.remote.enter(Session::new(self, bound, *addr, path)?)
    }

    fn path_to(&self, bound: &Bound, addr: &PeerAddr) -> Result<Arc<Path>> {
        Path::new(self.domain.link(), bound.name.ip(), addr.addr().ip())
    }

    /// The session with `peer`, for posting, as routes are now. Fails with `EHOSTUNREACH` for an
    /// address of this host that no endpoint has, or an address without a route; `EADDRNOTAVAIL` if
    /// the link has lost the endpoint's own address; `EMSGSIZE` if the route or the interface
    /// carries no path MTU; `ENODEV` if the link was removed; `ENOMEM`. Sleeps.
    #[inline(never)]
    pub(in crate::provider::ep) fn remote_peer(
        self: &Arc<Self>,
        bound: &Bound,
        peer: &PeerAddr,
    ) -> Result<Arc<Session>> {
        if let Some(session) = self.remote.find(peer) {
            check_path(&session.path)?;
            return Ok(session);
        }
        let addr = peer.addr();
        let has_no_endpoint = addr.is_qp() || addr.port() == 0;
        if has_no_endpoint || !self.domain.link().is_in_scope(addr) {
            return Err(EHOSTUNREACH);
        }
        let path = self.path_to(bound, peer).map_err(|error| match error {
            EINVAL => EHOSTUNREACH,
            error => error,
        })?;
        check_path(&path)?;
        // Without a path MTU there is no connection.
        path.mtu()?;
        self.remote.enter(Session::new(self, bound, *peer, path)?)
    }

    /// Cancels the oldest operation with `context` to a peer on another host. Returns false if
    /// there is none that can be cancelled. Sleeps.
    pub(in crate::provider::ep) fn cancel_remote(&self, context: u64) -> bool {
        self.remote.any(|session| session.cancel(context))
    }

    /// Fails all outstanding operations because the link was removed. The worker of each session
    /// does that, so that no session waits for the lock of another one. Sleeps.
    pub(in crate::provider::ep) fn fail_remote(&self) {
        self.remote.any(|session| {
            session.wake();
            false
        });
    }

    /// Stops to accept connections. Sleeps.
    pub(in crate::provider::ep) fn stop_listening(&self) {
        let listening = self.remote.listening.lock().take();
        drop(listening);
    }

    /// Has the workers of the sessions send a BYE to all peers. The caller ensures that no posting
    /// call is inside. Idempotent. Sleeps.
    pub(in crate::provider::ep) fn begin_to_leave(&self) {
        {
            let mut sessions = self.remote.sessions.lock();
            if core::mem::replace(&mut sessions.closed, true) {
                return;
            }
            sessions.leave_by = now_ns().saturating_add(LEAVE_TIME);
        }
        self.remote.any(|session| {
            session.leave();
            false
        });
    }

    /// Waits until there is no session, after [`begin_to_leave`](Self::begin_to_leave). Fails with
    /// `EINTR` if a signal ends the wait. Sleeps.
    pub(in crate::provider::ep) fn wait_for_sessions(&self, signals: Signals) -> Result {
        let remote = &self.remote;
        let is_empty = || remote.sessions.lock().tree.is_empty();
        remote.empty.wait_for(signals, is_empty).map_err(|_| EINTR)
    }

    /// Sends a BYE to all peers, and waits until there is no session, at most [`LEAVE_TIME`] since
    /// the first call. Returns `false` if there is one: its worker then calls
    /// [`end_teardown`](Self::end_teardown). The caller ensures that no posting call is inside.
    /// Sleeps.
    pub(in crate::provider::ep) fn leave_remote(&self) -> bool {
        self.begin_to_leave();
        let remote = &self.remote;
        let leave_by = Deadline::At(remote.sessions.lock().leave_by);
        let is_empty = || remote.sessions.lock().tree.is_empty();
        if remote.empty.wait_uninterruptible(leave_by, is_empty) {
            return true;
        }
        let mut sessions = remote.sessions.lock();
        if sessions.tree.is_empty() {
            return true;
        }
        // The sessions have references to the endpoint.
        PendingTeardown::new().leave();
        sessions.must_teardown = true;
        false
    }
}
