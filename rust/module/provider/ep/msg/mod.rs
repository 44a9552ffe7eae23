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
//!  Idle --connect--> Asking --REP---------------v
//!    |                                      Connected --shutdown, DREQ, failure--> Over
//!    |--accept---> Accepting --RTU, packet------^
//!    '--connect by hand-------------------------'   (and to Over from wherever it fails)
//! ```
//!
//! An endpoint is connected once. When its connection is over, what is under way ends with
//! `ECANCELED`, and so do posted receives: whoever makes it [`Over`](Phase::Over) sees to them, and
//! who has posted a receive looks at the phase once more.
//!
//! | file | what |
//! |---|---|
//! | [`attr`] | attributes of the QP |
//! | [`connect`] | peers: by connection management, or by hand |
//! | [`post`] | transmits |
//! | [`serve`] | the peer's requests, and what the QP tells |

mod attr;
mod connect;
mod post;
mod serve;

use kernel::{
    new_mutex,
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
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
    flags::Caps, //
};
use kfi_roce::{
    psn::Psn,
    rc::{
        Access,
        Attr, //
    },
    state::{
        Mask,
        State, //
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
        cm::{
            self,
            Conn, //
        },
        qp::{
            Qp,
            Rc, //
        },
        Values,
        FIGURES, //
    },
    shim::{
        errno::to_error,
        random::random_u32,
        sched::cond_resched, //
    }, //
};

/// How far a connection is.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum Phase {
    Idle = 0,
    /// A peer was asked.
    Asking = 1,
    /// A peer was accepted, and has not said yet that it is ready.
    Accepting = 2,
    Connected = 3,
    Over = 4,
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
    /// PSN of the first packet that is sent, if it is connected by hand; else of the first that is
    /// received.
    psn: Psn,
    /// Once enabled.
    qp: SetOnce<Arc<Qp<Rc>>>,
    /// A [`Phase`]. Written with `connecting` held, but for the end.
    phase: Atomic<u32>,
    /// Once connected.
    peer: SetOnce<Peer>,
    /// Who was asked.
    asked: SetOnce<SockAddr>,
    /// Once a peer was asked or accepted.
    conn: SetOnce<Arc<Conn>>,
    /// Held by who connects.
    #[pin]
    connecting: Mutex<()>,
    #[pin]
    tickets: SpinLock<Tickets>,
    /// The message that is being received. The QP's worker alone takes it, but for teardown.
    #[pin]
    incoming: Mutex<Option<Incoming>>,
    /// Bytes of the requests of the peer's present READ that have been answered. Changed by the
    /// receiving half of the QP alone, under its lock.
    read_bytes: Atomic<u64>,
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
            asked: SetOnce::new(),
            conn: SetOnce::new(),
            connecting <- new_mutex!((), "Msg::connecting"),
            tickets <- new_spinlock!(tickets, "Msg::tickets"),
            incoming <- new_mutex!(None, "Msg::incoming"),
            read_bytes: Atomic::new(0),
        }))
    }

    /// Bytes that one for `tx_size` transmits takes, with its QP.
    pub(super) const fn bytes(tx_size: usize) -> usize {
        size_of::<Self>()
            .saturating_add(Tickets::bytes(tx_size))
            .saturating_add(cm::CONNECTION_BYTES)
            .saturating_add(Qp::<Rc>::bytes(tx_size))
    }

    fn phase(&self) -> Phase {
        match self.phase.load(Relaxed) {
            0 => Phase::Idle,
            1 => Phase::Asking,
            2 => Phase::Accepting,
            3 => Phase::Connected,
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
        let owner = &endpoint.ident.budget;
        let qp = Qp::connection(link, addr.ip(), sends, owner, endpoint.clone())?;
        let attr = Attr {
            state: State::Init,
            ..self.attrs.attr(access(endpoint.caps))
        };
        if let Err(error) = qp.modify(&attr, Mask::RC_TO_INIT, None) {
            qp.close();
            return Err(error);
        }
        self.qp.populate(qp);
        Ok(*addr)
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

    /// At teardown: the QP is closed, and no call that posts is inside. Lets the connection go, and
    /// gives back the tickets of what never ended. Sleeps.
    pub(super) fn drop_all(&self, endpoint: &Endpoint, bound: &Bound) {
        if let Some(conn) = self.conn.as_ref() {
            conn.close();
        }
        let incoming = self.incoming.lock().take();
        if let Some(incoming) = incoming {
            incoming.give_back(endpoint, bound);
        }
        let mut at = 0;
        loop {
            let ticket = self.tickets.lock().drain(&mut at);
            match ticket {
                Some(ticket) => endpoint.give_back(bound, ticket),
                None => return,
            }
            cond_resched();
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

    /// The address of the peer (kfi_getpeer). `EOPNOTSUPP` another type, `ENOTCONN` it was never
    /// connected. Does not sleep.
    pub(crate) fn peer_addr(&self) -> Result<SockAddr> {
        let peer = self.msg()?.peer.as_ref().ok_or(ENOTCONN)?;
        Ok(peer.addr)
    }
}
