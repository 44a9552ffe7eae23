// SPDX-License-Identifier: GPL-2.0

//! Connected endpoints: one RC QP.
//!
//! ```text
//!  transmits: post.rs --> QP --> peer       ends: completed() --> complete.rs
//!  the peer's requests: QP --> serve.rs --> posted receives, regions --> complete.rs
//! ```
//!
//! A transmit keeps its place in [`Tickets`] until the QP says how it ended. Receives wait in the
//! endpoint's queue of plain receives, in the order of posting, as on every type of endpoint; where
//! there is none the QP answers "receiver not ready", and the peer tries again.
//!
//! # The connection
//!
//! ```text
//!  Idle --connect--> Connected --shutdown, failure--> Over
//! ```
//!
//! An endpoint is connected once. When its connection is over, what is under way ends with
//! `ECANCELED`, and so do posted receives: whoever makes it [`Over`](Phase::Over) sees to them, and
//! who has posted a receive looks at the phase once more.
//!
//! | file | what |
//! |---|---|
//! | [`attr`] | attributes of the QP |
//! | [`post`] | transmits |
//! | [`serve`] | the peer's requests, and what the QP tells |

mod attr;
mod post;
mod serve;

use kernel::{
    new_mutex,
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc,
        Mutex,
        SetOnce,
        SpinLock, //
    }, //
};

use kfi_core::{
    addr::SockAddr,
    errno::Errno,
    flags::Caps,
    roce::{
        headers::Qpn,
        psn::Psn,
        rc::{
            Access,
            Attr, //
        },
        state::{
            Mask,
            State, //
        }, //
    }, //
};

use self::{
    attr::Attrs,
    post::Tickets,
    serve::Incoming, //
};
use super::{
    bound::Bound,
    options::QpOpt,
    wire::{
        QpInfo,
        Wire, //
    },
    Endpoint, //
};
use crate::{
    net::{
        qp::{
            Qp,
            Rc, //
        },
        LinkState,
        Path,
        Values,
        FIGURES, //
    },
    shim::{
        errno::to_error,
        random::random_u32, //
    }, //
};

/// How far a connection is.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum Phase {
    Idle = 0,
    Connected = 1,
    Over = 2,
}

/// The peer of a connection.
#[derive(Clone, Copy)]
struct Peer {
    addr: SockAddr,
    qpn: u32,
    attr: Attr,
}

/// See the module's story.
#[pin_data]
pub(super) struct Msg {
    attrs: Attrs,
    /// PSN of the first packet that is sent.
    psn: Psn,
    /// Once enabled.
    qp: SetOnce<Arc<Qp<Rc>>>,
    /// A [`Phase`]. Written with `connecting` held, but for the end.
    phase: Atomic<u32>,
    /// Once connected.
    peer: SetOnce<Peer>,
    /// Held by who connects.
    #[pin]
    connecting: Mutex<()>,
    #[pin]
    tickets: SpinLock<Tickets>,
    /// The message that is being received. The QP's worker alone takes it, but for teardown.
    #[pin]
    incoming: Mutex<Option<Incoming>>,
}

impl Msg {
    /// One without a QP, for `tx_size` transmits. `ENOMEM`. Sleeps.
    pub(super) fn new(tx_size: usize) -> Result<impl PinInit<Self>> {
        let tickets = Tickets::new(tx_size)?;
        Ok(pin_init!(Self {
            attrs: Attrs::new(),
            psn: Psn::new(random_u32()),
            qp: SetOnce::new(),
            phase: Atomic::new(Phase::Idle as u32),
            peer: SetOnce::new(),
            connecting <- new_mutex!((), "Msg::connecting"),
            tickets <- new_spinlock!(tickets, "Msg::tickets"),
            incoming <- new_mutex!(None, "Msg::incoming"),
        }))
    }

    /// Bytes that one for `tx_size` transmits takes, with its QP.
    pub(super) const fn bytes(tx_size: usize) -> usize {
        size_of::<Self>()
            .saturating_add(Tickets::bytes(tx_size))
            .saturating_add(Qp::<Rc>::bytes(tx_size))
    }

    fn phase(&self) -> Phase {
        match self.phase.load(Relaxed) {
            0 => Phase::Idle,
            1 => Phase::Connected,
            _ => Phase::Over,
        }
    }

    /// Its QP. `KFI_EOPBADSTATE` not enabled.
    fn qp(&self) -> Result<&Arc<Qp<Rc>>> {
        self.qp
            .as_ref()
            .ok_or_else(|| to_error(Errno::KFI_EOPBADSTATE))
    }

    /// Makes the QP at `addr`, in state INIT. `EBUSY`, `ENODEV`, `ENOMEM`. Sleeps.
    pub(super) fn enable(&self, endpoint: &Arc<Endpoint>, addr: &SockAddr) -> Result<SockAddr> {
        let link = endpoint.domain.link();
        let sends = self.tickets.lock().size().max(1);
        let qp = Qp::connection(link, addr.ip(), sends, endpoint.clone())?;
        let attr = Attr {
            state: State::Init,
            ..self.attrs.attr(access(endpoint.caps))
        };
        let mask = Mask::PKEY_INDEX.with(Mask::PORT).with(Mask::ACCESS_FLAGS);
        if let Err(error) = qp.modify(&attr, mask, None) {
            qp.close();
            return Err(error);
        }
        self.qp.populate(qp);
        Ok(*addr)
    }

    /// Connects the QP with that of a peer, whose first packet has `psn`. See
    /// [`Endpoint::connect_qp`].
    fn connect(&self, endpoint: &Endpoint, bound: &Bound, peer: SockAddr, psn: u32) -> Result {
        if psn >> 24 != 0 || !peer.is_qp() {
            return Err(EINVAL);
        }
        let qpn = peer.qpn().ok_or(EINVAL)?;
        let _connecting = self.connecting.lock();
        if self.phase() != Phase::Idle || self.peer.as_ref().is_some() {
            return Err(EISCONN);
        }
        let qp = self.qp()?;
        if endpoint.domain.link().state() == LinkState::Gone {
            return Err(ENODEV);
        }
        let path = Path::new(endpoint.domain.link(), bound.name.ip(), peer.ip())?;
        let attr = Attr {
            state: State::Rtr,
            path_mtu: self.attrs.path_mtu(path.mtu().ok_or(ENETUNREACH)?)?,
            dest_qpn: Qpn::new(qpn),
            rq_psn: Psn::new(psn),
            sq_psn: self.psn,
            ..self.attrs.attr(access(endpoint.caps))
        };
        let to_rtr = Mask::AV
            .with(Mask::PATH_MTU)
            .with(Mask::DEST_QPN)
            .with(Mask::RQ_PSN)
            .with(Mask::MAX_DEST_RD_ATOMIC)
            .with(Mask::MIN_RNR_TIMER);
        let to_rts = Mask::TIMEOUT
            .with(Mask::RETRY_CNT)
            .with(Mask::RNR_RETRY)
            .with(Mask::SQ_PSN)
            .with(Mask::MAX_QP_RD_ATOMIC);
        qp.modify(&attr, to_rtr, Some(&path))?;
        let rts = Attr {
            state: State::Rts,
            ..attr
        };
        self.peer.populate(Peer {
            addr: peer,
            qpn,
            attr,
        });
        qp.modify(&rts, to_rts, None)?;
        self.phase.store(Phase::Connected as u32, Relaxed);
        // Who ended it meanwhile found nothing to end.
        if qp.state() == State::Error {
            self.end(endpoint, bound);
        }
        Ok(())
    }

    /// The connection is over; `false` if it was, or never began. Ends posted receives. Sleeps.
    fn end(&self, endpoint: &Endpoint, bound: &Bound) -> bool {
        let ended = self
            .phase
            .cmpxchg(Phase::Connected as u32, Phase::Over as u32, Full)
            .is_ok();
        if ended {
            endpoint.cancel_receives(bound);
        }
        ended
    }

    /// What there is to know of the QP. `KFI_EOPBADSTATE` not enabled. Sleeps.
    pub(super) fn qp_info(&self, endpoint: &Endpoint) -> Result<QpInfo> {
        let qp = self.qp()?;
        let bound = endpoint
            .bound
            .as_ref()
            .ok_or_else(|| to_error(Errno::KFI_EOPBADSTATE))?;
        let peer = self.peer.as_ref();
        Ok(QpInfo {
            qpn: qp.number().get(),
            psn: self.psn.get(),
            ip: bound.name.ip(),
            dest_qpn: peer.map_or(0, |peer| peer.qpn),
            state: qp.state(),
            path_mtu: peer.map(|peer| peer.attr.path_mtu),
        })
    }

    /// An attribute. `ENOPROTOOPT` it has no such.
    pub(super) fn opt(&self, opt: QpOpt) -> Result<u64> {
        self.attrs.get(opt)
    }

    /// Chooses an attribute. `ENOPROTOOPT`, `EINVAL`, `KFI_EOPBADSTATE` it was connected. Sleeps.
    pub(super) fn set_opt(&self, opt: QpOpt, value: u64) -> Result {
        let _connecting = self.connecting.lock();
        self.attrs.get(opt)?;
        if self.phase() != Phase::Idle {
            return Err(to_error(Errno::KFI_EOPBADSTATE));
        }
        self.attrs.set(opt, value)
    }

    /// Transmits that have not ended. Does not sleep.
    pub(super) fn under_way(&self) -> u64 {
        self.tickets.lock().used() as u64
    }

    /// What became of the packets of the QP. Does not sleep.
    pub(super) fn packets(&self) -> Values {
        self.qp
            .as_ref()
            .map_or([0; FIGURES], |qp| qp.figures().values())
    }

    /// Closes the QP. What it had not ended is not reported. Sleeps.
    pub(super) fn close(&self) {
        if let Some(qp) = self.qp.as_ref() {
            qp.close();
        }
    }

    /// Gives back the credits of what never ended, at teardown: nobody is inside. Does not sleep.
    pub(super) fn drop_all(&self, endpoint: &Endpoint, bound: &Bound) {
        let incoming = self.incoming.lock().take();
        if let Some(incoming) = incoming {
            incoming.give_back(endpoint, bound);
        }
        loop {
            let ticket = self.tickets.lock().drain();
            match ticket {
                Some(ticket) => endpoint.give_back(bound, ticket),
                None => return,
            }
        }
    }
}

/// What a peer may do with the memory of an endpoint that has `caps`: atomics too, if it may do both.
fn access(caps: Caps) -> Access {
    let write = caps.contains(Caps::REMOTE_WRITE);
    let read = caps.contains(Caps::REMOTE_READ);
    Access {
        write,
        read,
        atomic: write && read,
    }
}

impl Endpoint {
    /// `EOPNOTSUPP` it is of another type.
    fn msg(&self) -> Result<&Msg> {
        match &self.wire {
            Some(Wire::Msg(msg)) => Ok(msg),
            _ => Err(EOPNOTSUPP),
        }
    }

    /// Connects with a QP by hand (`KFABRIC_IOC_EP_CONNECT_QP`, which has the errors). Enables the
    /// endpoint if need be. Sleeps.
    pub(crate) fn connect_qp(self: &Arc<Self>, peer: SockAddr, psn: u32) -> Result {
        let msg = self.msg()?;
        match self.enable() {
            Err(error) if error == to_error(Errno::KFI_EOPBADSTATE) => {}
            enabled => enabled?,
        }
        let (Some(_inside), Some(bound)) = (self.run.enter(), self.bound.as_ref()) else {
            return Err(EBADF);
        };
        msg.connect(self, bound, peer, psn)
    }

    /// Ends the connection (kfi_shutdown): what is under way ends with `ECANCELED`. `EOPNOTSUPP`
    /// another type, `ENOTCONN` it is not connected. Sleeps.
    pub(crate) fn shutdown(&self) -> Result {
        let msg = self.msg()?;
        let (Some(_inside), Some(bound)) = (self.run.enter(), self.bound.as_ref()) else {
            return Err(ENOTCONN);
        };
        let _connecting = msg.connecting.lock();
        if !msg.end(self, bound) {
            return Err(ENOTCONN);
        }
        let error = Attr {
            state: State::Error,
            ..Attr::default()
        };
        msg.qp()?.modify(&error, Mask::NONE, None)
    }

    /// The address of the peer (kfi_getpeer). `EOPNOTSUPP` another type, `ENOTCONN` it was never
    /// connected. Does not sleep.
    pub(crate) fn peer_addr(&self) -> Result<SockAddr> {
        let peer = self.msg()?.peer.as_ref().ok_or(ENOTCONN)?;
        Ok(peer.addr)
    }
}
