// SPDX-License-Identifier: GPL-2.0

//! Posting of operations to an endpoint.
//!
//! A call posts one operation or several. Most of them go to one peer and make no entry when they
//! succeed. A [`Poster`] is one such call. It caches the last peer, so that the next operation need
//! not look it up. It hands packets to the network once, at the end of the call. The peer is cached
//! for one call only, because the AV may change before the next one.

use kfi_core::atomic::Function;

use super::{
    op::Op,
    prelude::*,
    rdm::remote::session::Session,
    submit::{
        Progress,
        CALL_BUDGET, //
    }, //
};
use crate::shim::{
    sched::now_ns,
    trace,
    user::PagefaultDisabled, //
};

/// The peer of an operation.
pub(super) enum Peer {
    /// An endpoint on this host.
    Local(Arc<Endpoint>),
    /// A session with an endpoint on another host.
    Remote(Arc<Session>),
}

/// The peer of the last operation of a poster.
#[derive(Default)]
pub(super) struct LastPeer(Option<KnownPeer>);

/// A peer, by its `kfi_addr_t`. Its reference must not be kept while this task waits for memory of
/// its program, which can take forever: the peer may be closed meanwhile, and the memory of an
/// endpoint is charged to its owner until the last reference is dropped.
struct KnownPeer {
    addr: u64,
    peer: Peer,
    _no_faults: PagefaultDisabled,
}

/// One call that posts operations to an endpoint. Sends the queued packets when it is dropped.
pub(crate) struct Poster<'a> {
    pub(super) endpoint: &'a Arc<Endpoint>,
    /// `None`: the endpoint is not enabled.
    bound: Option<&'a Bound>,
    pub(super) last: LastPeer,
    /// Work to be sent at the end of the call.
    pub(super) unsent: Unsent,
    /// The record of the started operation that is being posted.
    pub(super) spare: Option<Record>,
    /// The origin of the operation that is being posted.
    pub(super) origin: Origin,
    /// Whether an operation of this call has waited for the delay after a refused access.
    has_waited: bool,
}

/// The origin of an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// The call that posts it.
    Call,
    /// It was started. `turn`: the time at which its delay after refused accesses ends, if it waits
    /// for that.
    Started { turn: Option<u64> },
}

/// Work that operations have queued and that has not been sent.
pub(super) enum Unsent {
    Nothing,
    /// Work for the endpoint's own QP.
    Own,
    /// Work for the QPs of a session.
    To(Arc<Session>),
}

impl<'a> Poster<'a> {
    /// Begins a call that posts to `endpoint`.
    pub(crate) fn new(endpoint: &'a Arc<Endpoint>) -> Self {
        Self {
            endpoint,
            bound: endpoint.bound.as_ref(),
            last: LastPeer::default(),
            unsent: Unsent::Nothing,
            spare: None,
            origin: Origin::Call,
            has_waited: false,
        }
    }

    /// Whether the call remembers the peer of its last operation.
    #[inline(always)]
    pub(crate) fn keeps_peer(&self) -> bool {
        self.last.0.is_some()
    }

    /// See [`Endpoint::check_function`].
    pub(crate) fn check_function(&self, function: &Function, len: u64) -> Result {
        self.endpoint.check_function(function, len)
    }

    /// Drops the reference to the last peer. As long as there is one, accesses to user memory that
    /// is not present fail with `EFAULT`.
    pub(crate) fn forget_peer(&mut self) {
        self.last = LastPeer::default();
    }

    /// Sends the queued work, and drops the reference to the last peer: the caller may wait.
    /// Sleeps.
    pub(crate) fn prepare_to_wait(&mut self) {
        self.push();
        self.forget_peer();
    }

    /// Posts an operation, in the caller's process. Operations of the same side that were started
    /// before are posted first.
    ///
    /// An accepted operation (`Ok`) ends in exactly one completion, reported as requested. A
    /// refused operation has no effect. `struct kfabric_post` lists the errors. Sleeps.
    #[inline(always)]
    pub(crate) fn post(&mut self, mut op: Op<'_>) -> Result {
        let endpoint = self.endpoint;
        if endpoint.submission.has_started(op.side()) {
            self.post_started_first(op.side())?;
        }
        trace::post(|| {
            let (kind, context) = op.kind_and_context();
            (endpoint.ident.fid, kind as u32, context)
        });
        self.run(&mut op)
    }

    /// Posts the started operations of a side, or waits until another task has. Fails with `EAGAIN`
    /// if one of them finds no room, or if there are too many for one call; `EINTR` if the current
    /// task is being killed.
    #[cold]
    fn post_started_first(&mut self, side: Side) -> Result {
        // Another task may need the peer to go on.
        self.push();
        self.forget_peer();
        let run = self.endpoint.submission.begin_killable(side)?;
        match self.post_started(run, CALL_BUDGET) {
            Progress::Empty => Ok(()),
            Progress::Blocked | Progress::More => Err(EAGAIN),
        }
    }

    /// Posts an operation. With `EAGAIN`, `op` still has its memory.
    #[inline(always)]
    pub(super) fn run(&mut self, op: &mut Op<'_>) -> Result {
        let endpoint = self.endpoint;
        if op.accesses_memory() && endpoint.ident.is_delayed() && endpoint.drain.is_open() {
            self.enter_access()?;
        }
        let (Some(_inside), Some(bound)) = (endpoint.drain.enter(), self.bound) else {
            return Err(to_error(Errno::KFI_EOPBADSTATE));
        };
        if let Some(wire) = &endpoint.wire {
            return wire.post(endpoint, bound, op, self);
        }
        match op {
            Op::Send(op) => endpoint.send(bound, op, self),
            Op::Receive(op) => endpoint.receive(bound, op, &mut self.spare),
            Op::Read(op) => endpoint.read(bound, op, self),
            Op::Write(op) => endpoint.write(bound, op, self),
            Op::Atomic(op) => endpoint.atomic(bound, op, self),
        }
    }

    /// Notes that an operation was queued to a session. Sends the work of another session first.
    /// Sleeps.
    pub(super) fn queued_to(&mut self, session: Arc<Session>) {
        if !matches!(&self.unsent, Unsent::To(last) if Arc::ptr_eq(last, &session)) {
            self.push();
            self.unsent = Unsent::To(session);
        }
    }

    /// Sends the queued work. Sleeps.
    fn push(&mut self) {
        let unsent = core::mem::replace(&mut self.unsent, Unsent::Nothing);
        // A task that closes the endpoint meanwhile drops the queued work, or sends it before the
        // BYE.
        let Some(_inside) = self.endpoint.drain.enter() else {
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

    /// Waits, at most once per call, for the delay that a refused access to a peer's memory causes.
    /// The queued work is sent before, so no other task waits for this one. Fails with `EAGAIN` if
    /// the delay is too long, or this call has waited before; `EINTR` if a signal is pending.
    /// Sleeps.
    #[cold]
    fn enter_access(&mut self) -> Result {
        self.push();
        self.forget_peer();
        let ident = &self.endpoint.ident;
        let Origin::Started { turn } = &mut self.origin else {
            let may_sleep = !core::mem::replace(&mut self.has_waited, true);
            return ident.enter_access(may_sleep);
        };
        // A started operation does not sleep, because those of the other side would wait, too. Its
        // turn is kept until the next attempt.
        let at = match *turn {
            Some(at) => at,
            None => ident.access_turn()?,
        };
        *turn = Some(at);
        if at > now_ns() {
            return Err(EAGAIN);
        }
        // If the operation finds no room, its next attempt needs no other turn.
        Ok(())
    }
}

impl Endpoint {
    /// The peer at `fi_addr`, as addresses and routes are now. Fails with `ENOENT` if it is not in
    /// the AV; `EHOSTUNREACH` if no endpoint has the address and the name, or it cannot be reached;
    /// `EADDRNOTAVAIL` if the link has lost the endpoint's own address; `EMSGSIZE` if the route or
    /// the interface carries no path MTU; `ENOTCONN` if the endpoint has another authorization key;
    /// `ENETDOWN`, `ENODEV` by the state of the link; `ENOMEM` for a peer on another host. Sleeps.
    #[inline(always)]
    pub(super) fn peer<'a>(
        self: &Arc<Self>,
        bound: &Bound,
        fi_addr: u64,
        last: &'a mut LastPeer,
    ) -> Result<&'a Peer> {
        self.check_link()?;
        let known = matches!(
            &last.0,
            Some(KnownPeer { addr, peer: Peer::Local(peer), .. })
                if *addr == fi_addr && peer.drain.is_open()
        );
        if !known {
            // Once for operations to one peer, one after the other in the same call.
            self.check_address(bound)?;
            let av = bound.av()?;
            let name = av.lookup(fi_addr)?;
            // Usually the endpoint of this name. A context is looked up out of line.
            let index = av.rx_index(fi_addr);
            let found = match index {
                0 => self.domain.directory().find(&name),
                _ => self.find_context(&name, index)?,
            };
            let peer = match found {
                Some(peer) if peer.is_local_to(self) => {
                    // A receive context that does not exist, or a context by another name.
                    if !peer.is_context_of(&name, index) {
                        return Err(EHOSTUNREACH);
                    }
                    if peer.auth_key != self.auth_key {
                        return Err(ENOTCONN);
                    }
                    Peer::Local(peer)
                }
                // The address of an endpoint may have moved to another host.
                _ => {
                    let context = PeerAddr::context(name, index).map_err(to_error)?;
                    Peer::Remote(self.remote_peer(bound, &context)?)
                }
            };
            last.0 = Some(KnownPeer {
                addr: fi_addr,
                peer,
                _no_faults: PagefaultDisabled::new(),
            });
        }
        let last = last.0.as_ref();
        last.map(|last| &last.peer).ok_or(EHOSTUNREACH)
    }

    /// The endpoint on this host at the place of receive context `index` of `name`. Fails with
    /// `EHOSTUNREACH` if there can be none. Does not sleep.
    #[cold]
    #[inline(never)]
    fn find_context(&self, name: &SockAddr, index: u16) -> Result<Option<Arc<Endpoint>>> {
        let context = PeerAddr::context(*name, index).map_err(to_error)?;
        Ok(self.domain.directory().find(context.addr()))
    }
}

impl Drop for Poster<'_> {
    #[inline]
    fn drop(&mut self) {
        if !matches!(self.unsent, Unsent::Nothing) {
            self.push();
        }
        if let Some(record) = self.spare.take() {
            self.endpoint.keep_record(record);
        }
    }
}
