// SPDX-License-Identifier: GPL-2.0

//! Conn: one end of a connection.

use super::{
    super::{
        link::{
            Link,
            LinkState, //
        },
        path::Path, //
    },
    service::Cm, //
};
use crate::shim::{
    random::random_u64,
    sched::now_ns, //
};
use core::net::IpAddr;
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};
use kfi_core::roce::{
    cm::{
        self,
        CommId,
        Connection,
        Event,
        Private,
        Reason,
        Rej,
        Rep,
        ServiceId,
        Side,
        State, //
    },
    mtu::PathMtu, //
};

/// Who has a connection: an endpoint.
pub(crate) trait Consumer: Send + Sync {
    /// Something has happened to a connection. Process context; no lock is held that anything of this
    /// room takes; may sleep and call all of it. One after the other in a namespace.
    ///
    /// [`Event::Reply`] wants [`Conn::confirm`] or [`Conn::reject`], now or later. After `Rejected`,
    /// `Unreachable`, `Disconnected` or `Released`, of which one comes unless the connection is closed
    /// before, nothing comes; `Closed` is not told. When the link of a connection goes, that is
    /// `Unreachable`, or `Disconnected` if it was established.
    fn event(&self, conn: &Arc<Conn>, event: &Event<'_>);
}

/// What an active end asks for.
#[derive(Clone, Copy)]
pub(crate) struct Connect<'a> {
    /// The link.
    pub(crate) link: &'a Arc<Link>,
    /// Its address.
    pub(crate) local: IpAddr,
    /// The peer's.
    pub(crate) remote: IpAddr,
    /// What is asked for.
    pub(crate) service_id: ServiceId,
    /// This end's QP.
    pub(crate) side: Side,
    /// The path MTU; `None`: what the way carries, or less if the peer has less.
    pub(crate) mtu: Option<PathMtu>,
    /// How often the peer's requester shall try again: 0 to 7.
    pub(crate) retry_count: u8,
    /// The private data, at most 92 bytes.
    pub(crate) private: &'a [u8],
    /// For the consumer to know the connection by.
    pub(crate) context: u64,
}

/// Asks for a connection. `consumer` is told what happens to it, perhaps before this returns.
///
/// `EINVAL` addresses of two families, or a peer's that is nobody's; too many private data; a path MTU
/// that the way does not carry. `ENETUNREACH` there is no way now. `ENODEV` the link has gone. `EBUSY`
/// too many connections in the namespace, or somebody else has QP 1 there. `ENOMEM`. Sleeps.
pub(crate) fn connect(connect: &Connect<'_>, consumer: Arc<dyn Consumer>) -> Result<Arc<Conn>> {
    let cm = Cm::of(connect.link.socket())?;
    let path = Path::new(connect.link, connect.local, connect.remote)?;
    let way_mtu = path.mtu().ok_or(ENETUNREACH)?;
    let mtu = connect.mtu.unwrap_or(way_mtu);
    if mtu > way_mtu {
        return Err(EINVAL);
    }
    let private = Private::new(connect.private).ok_or(EINVAL)?;
    let device = cm.device(connect.local, way_mtu);
    cm.enter(path, connect.context, consumer, |local_id| {
        let asks = cm::Connect {
            local_id,
            tid: random_u64(),
            remote: connect.remote,
            service_id: connect.service_id,
            side: connect.side,
            mtu,
            least_mtu: connect.mtu.unwrap_or(PathMtu::Mtu256),
            retry_count: connect.retry_count,
            private,
        };
        Connection::connect(now_ns(), &device, &asks)
    })
}

/// See the module's story. **Every one is to be closed.**
pub(crate) struct Conn {
    cm: Arc<Cm>,
    id: CommId,
    path: Arc<Path>,
    context: Atomic<u64>,
}

impl Conn {
    pub(super) fn new(
        cm: &Arc<Cm>,
        id: CommId,
        path: Arc<Path>,
        context: u64,
    ) -> Result<Arc<Self>> {
        let conn = Self {
            cm: cm.clone(),
            id,
            path,
            context: Atomic::new(context),
        };
        Ok(Arc::new(conn, GFP_KERNEL_ACCOUNT)?)
    }

    pub(super) fn id(&self) -> CommId {
        self.id
    }

    /// What the consumer knows it by. Any context.
    pub(crate) fn context(&self) -> u64 {
        self.context.load(Relaxed)
    }

    /// Its link. Any context.
    pub(crate) fn link(&self) -> &Arc<Link> {
        self.path.link()
    }

    /// The way to the peer. Any context.
    pub(crate) fn path(&self) -> &Arc<Path> {
        &self.path
    }

    /// The link's address. Any context.
    pub(crate) fn local(&self) -> IpAddr {
        self.path.way().from
    }

    /// The peer's address. Any context.
    pub(crate) fn remote(&self) -> IpAddr {
        self.path.way().to
    }

    /// The state. Sleeps.
    pub(crate) fn state(&self) -> State {
        self.cm.state(self.id).unwrap_or(State::Closed)
    }

    /// Whether its link has gone. Any context.
    pub(super) fn is_gone(&self) -> bool {
        self.link().state() == LinkState::Gone
    }

    /// Passive: see [`Request::accept`](super::Request::accept). `ECONNABORTED`.
    pub(super) fn accept(
        &self,
        side: &Side,
        private: Private<'_, { Rep::PRIVATE_LEN }>,
        context: u64,
        consumer: Arc<dyn Consumer>,
    ) -> Result {
        let accepted = self.cm.act(self.id, |entry| {
            entry.machine.accept(now_ns(), side, private)?;
            self.context.store(context, Relaxed);
            entry.consumer = Some(consumer);
            Ok::<_, State>(())
        });
        match accepted {
            Some(Ok(())) => Ok(()),
            _ => Err(ECONNABORTED),
        }
    }

    /// Active: the QP is ready to send; an RTU goes. `EINVAL` more than 224 bytes of private data;
    /// `ENOTCONN` it was over meanwhile, or has no reply. Sleeps.
    pub(crate) fn confirm(&self, private: &[u8]) -> Result {
        let private = Private::new(private).ok_or(EINVAL)?;
        let confirmed = self
            .cm
            .act(self.id, |entry| entry.machine.confirm(now_ns(), private));
        done(confirmed)
    }

    /// Instead of accepting or confirming: says no. Private data beyond 148 bytes are cut off. The
    /// consumer hears no more of it. `ENOTCONN` it is in another state. Sleeps.
    pub(crate) fn reject(&self, reason: Reason, private: &[u8]) -> Result {
        let private = private.get(..Rej::PRIVATE_LEN).unwrap_or(private);
        let private = Private::new(private).unwrap_or(Private::NONE);
        let none = Private::NONE;
        let mut consumer = None;
        let rejected = self.cm.act(self.id, |entry| {
            entry.machine.reject(now_ns(), reason, none, private)?;
            consumer = entry.consumer.take();
            Ok(())
        });
        drop(consumer);
        done(rejected)
    }

    /// Rejects a reply because the peer has forgotten another connection of that QP; gives who is to
    /// hear of it.
    pub(super) fn reject_stale(&self) -> Option<Arc<dyn Consumer>> {
        let none = (Private::NONE, Private::NONE);
        self.cm.act(self.id, |entry| {
            // It is as its reply left it, or its consumer has closed it.
            let _ = entry
                .machine
                .reject(now_ns(), Reason::STALE_CONN, none.0, none.1);
            entry.consumer.take()
        })?
    }

    /// Passive: a packet of the peer has come to the QP, so it is ready, though its RTU has not come.
    /// Returns whether the connection is established by this, and not before; then no event says so.
    /// Sleeps.
    pub(crate) fn communication_established(&self) -> bool {
        self.cm
            .act(self.id, |entry| entry.machine.communication_established())
            .unwrap_or(false)
    }

    /// Established: disconnects; a DREQ goes. `EINVAL` more than 220 bytes of private data; `ENOTCONN`
    /// it is in another state. Sleeps.
    pub(crate) fn disconnect(&self, private: &[u8]) -> Result {
        let private = Private::new(private).ok_or(EINVAL)?;
        let disconnected = self
            .cm
            .act(self.id, |entry| entry.machine.disconnect(now_ns(), private));
        done(disconnected)
    }

    /// The consumer has no more use for it, in whatever state: what was asked for is taken back, what
    /// was not answered is rejected, what is connected is disconnected. No event begins after this; one
    /// may be running still. Idempotent. Sleeps.
    pub(crate) fn close(&self) {
        let consumer = self.cm.act(self.id, |entry| {
            entry.machine.abandon(now_ns());
            entry.consumer.take()
        });
        drop(consumer);
    }

    /// Takes it out of the table; nothing is sent.
    pub(super) fn forget(&self) {
        self.cm.remove(self.id);
    }
}

/// What came of something that a state forbids; `None`: the connection has left the table.
fn done(result: Option<core::result::Result<(), State>>) -> Result {
    match result {
        Some(Ok(())) => Ok(()),
        _ => Err(ENOTCONN),
    }
}
