// SPDX-License-Identifier: GPL-2.0

//! Posting: the endpoint's door.
//!
//! Operations come in calls, one or many at a time, and those of a call mostly go to one peer and
//! say nothing when they succeed. A [`Poster`] is one such call: it remembers the last peer, so that
//! it need not be looked up again; and what goes out on the wire is sent together, at its end. The
//! peer is good for one call only: the next call sees an AV that has changed meanwhile.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use kfi_core::errno::Errno;

use super::{
    bound::Bound,
    op::Op,
    rdm::remote::session::Session,
    Endpoint, //
};
use crate::{
    net::LinkState,
    shim::{
        errno::to_error,
        trace, //
    }, //
};

/// Whom an operation goes to.
pub(super) enum Peer {
    /// An endpoint of this host.
    Here(Arc<Endpoint>),
    /// One of another host.
    There(Arc<Session>),
}

/// The peer that a poster's last operation went to.
#[derive(Default)]
pub(super) struct LastPeer(Option<(u64, Peer)>);

/// Who posts operations to an endpoint, in a row; see the module's story.
pub(crate) struct Poster<'a> {
    endpoint: &'a Arc<Endpoint>,
    /// None: not enabled.
    bound: Option<&'a Bound>,
    pub(super) last: LastPeer,
    /// What is to be sent at the end.
    pub(super) unsent: Unsent,
    /// Whether an operation of this call has waited for its turn to access a peer's memory.
    has_waited: bool,
}

/// What operations have queued and nobody has sent yet.
pub(super) enum Unsent {
    Nothing,
    /// Work for the endpoint's own QP.
    Own,
    /// Work for those of a session.
    To(Arc<Session>),
}

impl<'a> Poster<'a> {
    /// Somebody who posts to `endpoint`.
    pub(crate) fn new(endpoint: &'a Arc<Endpoint>) -> Self {
        Self {
            endpoint,
            bound: endpoint.bound.as_ref(),
            last: LastPeer::default(),
            unsent: Unsent::Nothing,
            has_waited: false,
        }
    }

    /// Whether the call keeps the peer of its last operation.
    #[inline(always)]
    pub(crate) fn keeps_peer(&self) -> bool {
        self.last.0.is_some()
    }

    /// Lets go of the last peer. To be called before this task waits for memory of its program, which can
    /// take for ever: the peer may close meanwhile, and what is left of it is charged to its owner.
    pub(crate) fn forget_peer(&mut self) {
        self.last = LastPeer::default();
    }

    /// Does an operation, in the caller's process.
    ///
    /// What is accepted (`Ok`) ends in exactly one completion, reported as asked; what is refused
    /// has no effect. See `struct kfabric_post` for every error. Sleeps.
    #[inline(always)]
    pub(crate) fn post(&mut self, op: Op<'_>) -> Result {
        let endpoint = self.endpoint;
        if op.accesses_memory() && endpoint.ident.is_delayed() {
            self.enter_access()?;
        }
        let (Some(_inside), Some(bound)) = (endpoint.run.enter(), self.bound) else {
            return Err(to_error(Errno::KFI_EOPBADSTATE));
        };
        trace::post(|| {
            let (kind, context) = op.name();
            (endpoint.ident.fid, kind as u32, context)
        });
        if let Some(wire) = &endpoint.wire {
            return wire.post(endpoint, bound, op, self);
        }
        match op {
            Op::Send(op) => endpoint.send(bound, op, self),
            Op::Receive(op) => endpoint.receive(bound, op),
            Op::Read(op) => endpoint.read(bound, op, self),
            Op::Write(op) => endpoint.write(bound, op, self),
            Op::Atomic(_) => Err(EOPNOTSUPP),
        }
    }

    /// An operation was queued to a peer on another host. Sleeps.
    pub(super) fn queued_to(&mut self, session: Arc<Session>) {
        if !matches!(&self.unsent, Unsent::To(last) if Arc::ptr_eq(last, &session)) {
            self.push();
            self.unsent = Unsent::To(session);
        }
    }

    /// Sends what was queued. Sleeps.
    fn push(&mut self) {
        let unsent = core::mem::replace(&mut self.unsent, Unsent::Nothing);
        // Who closes meanwhile drops what was queued, or sends it with the farewell.
        let Some(_inside) = self.endpoint.run.enter() else {
            return;
        };
        match unsent {
            Unsent::Nothing => {}
            Unsent::Own => {
                if let Some(wire) = &self.endpoint.wire {
                    wire.push();
                }
            }
            Unsent::To(session) => session.push(),
        }
    }

    /// Waits for the turn of an access to a peer's memory, the first time; no other task waits for this
    /// one meanwhile. `EAGAIN` that takes too long, or has been done; `EINTR` a signal is pending. Sleeps.
    #[cold]
    fn enter_access(&mut self) -> Result {
        self.push();
        self.forget_peer();
        let may_sleep = !core::mem::replace(&mut self.has_waited, true);
        self.endpoint.ident.enter_access(may_sleep)
    }
}

impl Endpoint {
    /// The peer at `fi_addr`, if it can be reached from here: `ENOENT` not in the AV,
    /// `EHOSTUNREACH` nobody there, `ENETDOWN`, `ENODEV`; `ENOMEM` for one of another host. Sleeps.
    #[inline(always)]
    pub(super) fn peer<'a>(
        self: &Arc<Self>,
        bound: &Bound,
        fi_addr: u64,
        last: &'a mut LastPeer,
    ) -> Result<&'a Peer> {
        match self.domain.link().state() {
            LinkState::Up => {}
            LinkState::Down => return Err(ENETDOWN),
            LinkState::Gone => return Err(ENODEV),
        }
        let known = matches!(
            &last.0,
            Some((known, Peer::Here(peer))) if *known == fi_addr && peer.run.is_open()
        );
        if !known {
            let addr = bound.av()?.lookup(fi_addr)?;
            let peer = match self.domain.directory().find(&addr) {
                Some(peer) => Peer::Here(peer),
                None => Peer::There(self.remote_peer(bound, &addr)?),
            };
            last.0 = Some((fi_addr, peer));
        }
        last.0.as_ref().map(|(_, peer)| peer).ok_or(EHOSTUNREACH)
    }
}

impl Drop for Poster<'_> {
    #[inline]
    fn drop(&mut self) {
        if !matches!(self.unsent, Unsent::Nothing) {
            self.push();
        }
    }
}
