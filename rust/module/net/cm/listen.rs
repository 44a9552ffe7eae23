// SPDX-License-Identifier: GPL-2.0

//! Listening: who may be asked for connections.

use super::{
    super::socket::Socket,
    request::Request,
    service::Cm, //
};
use core::net::IpAddr;
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full, //
        },
        Arc, //
    }, //
};
use kfi_core::roce::cm::ServiceId;

/// Who is asked: a passive endpoint, or an endpoint for reliable datagrams.
pub(crate) trait Listener: Send + Sync {
    /// A peer asks for a connection. Process context; no lock is held that anything of this room
    /// takes; may sleep and call all of it. One after the other in a namespace, so a listener that
    /// takes long holds up the others.
    fn request(&self, request: Request);

    /// The last link of the namespace has gone: nobody can ask any more. Called as
    /// [`request`](Self::request).
    fn gone(&self) {}
}

/// Listens at `ip`, or at all addresses of its family if that is the unspecified one, in the namespace
/// of `socket`. So many requests as `backlog` says may wait for an answer at once.
///
/// `EADDRINUSE` somebody listens for this service there; `ENODEV` the namespace has no link any more;
/// `EBUSY` somebody else has QP 1; `ENOMEM`. Sleeps.
pub(crate) fn listen(
    socket: &Arc<Socket>,
    ip: IpAddr,
    service_id: ServiceId,
    backlog: u32,
    listener: Arc<dyn Listener>,
) -> Result<Listening> {
    let cm = Cm::of(socket)?;
    let door = Door {
        service_id,
        ip,
        backlog,
        waiting: Arc::new(Atomic::new(0), GFP_KERNEL_ACCOUNT)?,
        listener,
    };
    let door = Arc::new(door, GFP_KERNEL_ACCOUNT)?;
    cm.listen(&door)?;
    Ok(Listening { cm, door })
}

/// Listens until it is dropped. [`Listener::request`] may be running still when that returns.
pub(crate) struct Listening {
    cm: Arc<Cm>,
    door: Arc<Door>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.cm.unlisten(&self.door);
    }
}

/// A listener in the table.
pub(super) struct Door {
    service_id: ServiceId,
    ip: IpAddr,
    backlog: u32,
    /// How many requests wait for an answer. They share the number and not the listener, which may be
    /// who keeps them.
    waiting: Arc<Atomic<u32>>,
    listener: Arc<dyn Listener>,
}

impl Door {
    /// What for, and at which address.
    pub(super) fn at(&self) -> (ServiceId, IpAddr) {
        (self.service_id, self.ip)
    }

    /// Who is to be asked.
    pub(super) fn listener(&self) -> &dyn Listener {
        &*self.listener
    }

    /// Room for a request; `None`: so many wait already.
    pub(super) fn room(&self) -> Option<Waiting> {
        // Only the one who brings news adds.
        let place = Waiting(self.waiting.clone());
        (self.waiting.fetch_add(1, Full) < self.backlog).then_some(place)
    }
}

/// The place of a request that waits for an answer.
pub(super) struct Waiting(Arc<Atomic<u32>>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Full);
    }
}
