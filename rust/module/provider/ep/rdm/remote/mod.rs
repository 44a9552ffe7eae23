// SPDX-License-Identifier: GPL-2.0

//! Peers on other hosts: reliable datagrams over the wire.
//!
//! An address that no endpoint of this host has, and that is not an address of its links either, is
//! another host's. For each such peer an endpoint has a [`Session`]: it comes with the first operation to
//! the peer, or when the peer asks for a connection, and goes when it has had nothing to do for a while.
//! What it does is the core's ([`kfi_core::rdm`]): connections on demand, messages with a header of
//! the module's own in SENDs, long ones read by their receiver, RMA as RDMA.
//!
//! ```text
//!  post.rs ----> session.rs ----> conn.rs ----> QP ----> peer
//!                  ^  ^  \           ^
//!    manage.rs ----'  |   '-> op.rs  '--- serve.rs <---- QP <---- peer
//!    (CM)             '--------------------'   |
//!                                              '--> receive/remote.rs: matching
//! ```
//!
//! | file | what |
//! |---|---|
//! | [`post`] | transmits to such peers |
//! | [`session`] | one peer: the lock, what is to be done |
//! | [`conn`] | one connection: the QP |
//! | [`serve`] | what the peer wants over it |
//! | [`manage`] | connections come and go |
//! | [`op`] | operations under way, and what is owed to the peer |
//! | [`owing`] | how many answers are owed to the peer |
//! | [`works`] | what is with a QP |
//! | [`store`] | memory of operations |
//!
//! # Limits
//!
//! Transmits under way count against `tx_size` with those that wait on this host. Sessions and
//! connections are charged to the endpoint's owner, and messages that nobody has received yet stand
//! against the same limits as on one host: who finds no room waits, at its own host. Answers to the
//! peer are charged too, and their number is limited for each peer: what would need one more waits.
//!
//! # Closing
//!
//! An endpoint that closes says so to its peers and waits until they know, or for
//! [`LINGER_TIME`](kfi_core::rdm::times::LINGER_TIME). Then no QP of its is left, and what was
//! under way is dropped without a word. Workers of the module do that. If the task that closes the
//! endpoint is killed, it waits once more when its file goes: in all not longer than before.

pub(super) mod conn;
mod manage;
pub(in crate::provider::ep) mod op;
mod owing;
mod post;
mod serve;
pub(in crate::provider::ep) mod session;
mod store;
mod works;

#[cfg(kfi_kunit)]
#[path = "../../../../../../kunit/half_open.rs"]
mod kunit;

use kernel::{
    new_mutex,
    new_spinlock,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::{
        atomic::{
            Atomic,
            Full, //
        },
        Arc,
        Mutex,
        SetOnce,
        SpinLock, //
    }, //
};

use kfi_core::{
    addr::SockAddr,
    rdm::service_id, //
};

use self::{
    manage::Door,
    session::Session, //
};
use super::super::{
    bound::Bound,
    Endpoint, //
};
use crate::{
    net::{
        self,
        cm::{
            self,
            Listening, //
        },
        QpFigures,
        Values,
        FIGURES, //
    },
    shim::{
        random::random_u64,
        wait::{
            new_wait_queue,
            WaitQueue, //
        }, //
    }, //
};

/// The most requests for connections that wait for an answer. Each is answered when it is
/// delivered; in a larger burst further REQs are ignored, and their senders repeat them.
const BACKLOG: u32 = 64;

struct Sessions {
    tree: RBTree<SockAddr, Arc<Session>>,
    /// The endpoint closes: no session comes any more.
    closed: bool,
}

/// What an endpoint for reliable datagrams has to do with other hosts.
#[pin_data]
pub(in crate::provider::ep) struct Remote {
    /// Which life of the endpoint this is.
    incarnation: u64,
    /// The last epoch that was used.
    epoch: Atomic<u64>,
    /// A leaf.
    #[pin]
    sessions: SpinLock<Sessions>,
    /// Who waits until the last session has gone.
    #[pin]
    empty: WaitQueue,
    /// Taken by who enables and who closes.
    #[pin]
    listening: Mutex<Option<Listening>>,
    /// What became of the packets of all its connections; there with [`Endpoint::listen`].
    figures: SetOnce<Arc<QpFigures>>,
}

impl Remote {
    /// Bytes of kernel memory that the listener takes.
    pub(in crate::provider::ep) const BYTES: usize = cm::listening_bytes(BACKLOG as usize);

    /// Nobody is known yet.
    pub(in crate::provider::ep) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            incarnation: random_u64(),
            epoch: Atomic::new(0),
            sessions <- new_spinlock!(
                Sessions {
                    tree: RBTree::new(),
                    closed: false,
                },
                "Remote::sessions"
            ),
            empty <- new_wait_queue!("Remote::empty"),
            listening <- new_mutex!(None, "Remote::listening"),
            figures: SetOnce::new(),
        })
    }

    /// What became of the packets of all its connections. Does not sleep.
    pub(in crate::provider::ep) fn packets(&self) -> Values {
        self.figures
            .as_ref()
            .map_or([0; FIGURES], |figures| figures.values())
    }

    fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// An epoch that is larger than all before. Any context.
    fn next_epoch(&self) -> u64 {
        self.epoch.fetch_add(1, Full).wrapping_add(1)
    }

    /// The session with a peer, if there is one. Does not sleep.
    fn find(&self, peer: &SockAddr) -> Option<Arc<Session>> {
        self.sessions.lock().tree.get(peer).cloned()
    }

    /// Puts a session in, unless there is one with this peer: gives that which is there. `EBADF` the
    /// endpoint closes, `ENOMEM`. Sleeps.
    fn enter(&self, session: Arc<Session>) -> Result<Arc<Session>> {
        let node = RBTreeNode::new(*session.peer(), session.clone(), GFP_KERNEL_ACCOUNT)?;
        let mut sessions = self.sessions.lock();
        if sessions.closed {
            drop(sessions);
            return Err(EBADF);
        }
        if let Some(other) = sessions.tree.get(session.peer()) {
            let other = other.clone();
            drop(sessions);
            return Ok(other);
        }
        sessions.tree.insert(node);
        Ok(session)
    }

    /// Takes a session out. Sleeps.
    fn forget(&self, session: &Arc<Session>) {
        let (node, empty) = {
            let mut sessions = self.sessions.lock();
            let is_it = sessions
                .tree
                .get(session.peer())
                .is_some_and(|other| Arc::ptr_eq(other, session));
            let node = if is_it {
                sessions.tree.remove_node(session.peer())
            } else {
                None
            };
            (node, sessions.tree.is_empty())
        };
        drop(node);
        if empty {
            self.empty.wake_all();
        }
    }

    /// Runs `work` on each session, until it gives true; whether it did. Those that come meanwhile may
    /// be left out. Sleeps.
    fn any(&self, mut work: impl FnMut(&Arc<Session>) -> bool) -> bool {
        let mut next = self.first();
        while let Some(session) = next {
            if work(&session) {
                return true;
            }
            next = self.after(session.peer());
        }
        false
    }

    fn first(&self) -> Option<Arc<Session>> {
        let sessions = self.sessions.lock();
        let first = sessions.tree.cursor_front()?.current().1.clone();
        Some(first)
    }

    /// The first one whose peer's address is above `peer`.
    fn after(&self, peer: &SockAddr) -> Option<Arc<Session>> {
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
    /// Starts to listen for connections of other hosts at `name`. `EADDRINUSE` another endpoint
    /// listens there; `ENODEV` the namespace has no link; `ENOMEM`. Sleeps.
    pub(in crate::provider::ep) fn listen(self: &Arc<Self>, name: &SockAddr) -> Result {
        let door = Arc::new(Door(self.clone()), GFP_KERNEL_ACCOUNT)?;
        let socket = self.domain.link().socket();
        let service = service_id(name.port());
        // It may have been tried before.
        let _ = self.remote.figures.populate(QpFigures::shared()?);
        let listening = cm::listen(socket, name.ip(), service, BACKLOG, door)?;
        *self.remote.listening.lock() = Some(listening);
        Ok(())
    }

    /// The session with the peer at `addr`, made if there is none. `ENOMEM`, `EBADF`. Sleeps.
    fn session(self: &Arc<Self>, bound: &Bound, addr: &SockAddr) -> Result<Arc<Session>> {
        if let Some(session) = self.remote.find(addr) {
            return Ok(session);
        }
        self.remote.enter(Session::new(self, bound, *addr)?)
    }

    /// The session with the peer at `addr`, to post to. `EHOSTUNREACH` it is an address of this host,
    /// and nobody is there, or there is no way to it; `ENOMEM`. Sleeps.
    #[inline(never)]
    pub(in crate::provider::ep) fn remote_peer(
        self: &Arc<Self>,
        bound: &Bound,
        addr: &SockAddr,
    ) -> Result<Arc<Session>> {
        if let Some(session) = self.remote.find(addr) {
            return Ok(session);
        }
        let nobody = addr.is_qp() || addr.port() == 0;
        // Whatever is reached through a loopback interface is here.
        if nobody || bound.name.is_loopback() || net::is_local(self.domain.link().netns(), addr) {
            return Err(EHOSTUNREACH);
        }
        if !manage::has_way(bound, self, addr.ip()) {
            return Err(EHOSTUNREACH);
        }
        self.session(bound, addr)
    }

    /// Takes back the oldest operation to a peer on another host with `context`; false if there is none
    /// that can be. Sleeps.
    pub(in crate::provider::ep) fn cancel_remote(&self, context: u64) -> bool {
        self.remote.any(|session| session.cancel(context))
    }

    /// The link has gone: has each session's worker fail what is under way, so that no session
    /// waits for another one's lock. Sleeps.
    pub(in crate::provider::ep) fn fail_remote(&self) {
        self.remote.any(|session| {
            session.wake();
            false
        });
    }

    /// Nobody connects any more. Sleeps.
    pub(in crate::provider::ep) fn stop_listening(&self) {
        let listening = self.remote.listening.lock().take();
        drop(listening);
    }

    /// Says farewell to all peers. No call that posts is inside. Idempotent. Sleeps.
    pub(in crate::provider::ep) fn begin_to_leave(&self) {
        if core::mem::replace(&mut self.remote.sessions.lock().closed, true) {
            return;
        }
        self.remote.any(|session| {
            session.with(|state, now| state.core.leave(now));
            false
        });
    }

    /// Waits until no session is left, after [`begin_to_leave`](Self::begin_to_leave). `EINTR` the
    /// current task is being killed. Sleeps.
    pub(in crate::provider::ep) fn wait_for_sessions(&self) -> Result {
        let remote = &self.remote;
        let is_empty = || remote.sessions.lock().tree.is_empty();
        remote.empty.wait_killable(is_empty).map_err(|_| EINTR)
    }

    /// Says farewell to all peers, and waits until no session is left. No call that posts is inside.
    /// Sleeps.
    pub(in crate::provider::ep) fn leave_remote(&self) {
        self.begin_to_leave();
        self.remote
            .empty
            .wait_uninterruptible(|| self.remote.sessions.lock().tree.is_empty());
    }
}
