// SPDX-License-Identifier: GPL-2.0

//! Connected endpoints: one RC QP.
//!
//! ```text
//!  transmits: post.rs --> QP --> peer       completions: completed() --> complete.rs
//!  the peer's requests: QP --> serve.rs --> posted receives, regions --> complete.rs
//! ```
//!
//! A transmit keeps its ticket in [`Tickets`] until the QP reports its status. Receives are in the
//! endpoint's queue of plain receives, in the order of posting, as on every endpoint type. If there
//! is none, the QP answers "receiver not ready" (RNR NAK), and the peer tries again.
//!
//! # The connection
//!
//! ```text
//!  Idle --connect--> Asking --REP---------------v
//!    |                                      Connected --shutdown, DREQ, failure--> Over
//!    |--accept---> Accepting --RTU, packet------^
//!    '--connect_qp------------------------------'   (and to Over from wherever it fails)
//! ```
//!
//! An endpoint is connected once. When its connection is over, outstanding operations and posted
//! receives complete with `ECANCELED`. The task that changes the phase to [`Over`](Phase::Over)
//! ends the receives. A task that posts a receive checks the phase afterwards, because the phase
//! may have changed before.
//!
//! | file | topic |
//! |---|---|
//! | [`attr`] | attributes of the QP |
//! | [`connect`] | connecting and disconnecting, with and without connection management |
//! | [`post`] | transmits |
//! | [`serve`] | the peer's requests, and the events of the QP |

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
        STATS, //
    },
    shim::{
        errno::to_error,
        random::random_u32,
        sched::cond_resched, //
    }, //
};

/// The phase of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum Phase {
    Idle = 0,
    /// A REQ was sent.
    Asking = 1,
    /// A request was accepted. The peer has not confirmed that yet.
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

/// The state of a connected endpoint.
#[pin_data]
pub(super) struct Msg {
    attrs: Attrs,
    /// Without connection management the PSN of the first packet that this end sends; with it that
    /// of the first packet that this end receives.
    psn: Psn,
    /// Set when the endpoint is enabled.
    qp: SetOnce<Arc<Qp<Rc>>>,
    /// A [`Phase`]. Written with `connecting` held, except Over.
    phase: Atomic<u32>,
    /// Set when the endpoint is connected.
    peer: SetOnce<Peer>,
    /// The address that the REQ was sent to.
    asked: SetOnce<SockAddr>,
    /// Set when a REQ was sent or a request was accepted.
    conn: SetOnce<Arc<Conn>>,
    /// Serialises the functions that connect and disconnect.
    #[pin]
    connecting: Mutex<()>,
    #[pin]
    tickets: SpinLock<Tickets>,
    /// The message that is being received. Locked by a run of the QP and by teardown.
    #[pin]
    incoming: Mutex<Option<Incoming>>,
    /// The bytes of the peer's current READ for which responses were sent. Only the receiving half
    /// of the QP changes it, under its lock.
    read_bytes: Atomic<u64>,
}

impl Msg {
    /// Makes the state without a QP, for `tx_size` transmits. Fails with `ENOMEM`. Sleeps.
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

    /// Bytes of the state for `tx_size` transmits and of its QP.
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

    /// Its QP. Fails with `KFI_EOPBADSTATE` if the endpoint is not enabled.
    fn qp(&self) -> Result<&Arc<Qp<Rc>>> {
        self.qp
            .as_ref()
            .ok_or_else(|| to_error(Errno::KFI_EOPBADSTATE))
    }

    /// Makes the QP at `addr`, in state INIT. Fails with `EBUSY`, `ENODEV`, `ENOMEM`. Sleeps.
    pub(super) fn enable(&self, endpoint: &Arc<Endpoint>, addr: &SockAddr) -> Result<SockAddr> {
        let link = endpoint.domain.link();
        let sends = self.tickets.lock().size().max(1);
        let owner = &endpoint.ident.budget;
        let qp = Qp::connection(link, sends, owner, endpoint.clone())?;
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

    /// The attributes of the QP. Fails with `KFI_EOPBADSTATE` if the endpoint is not enabled.
    /// Sleeps.
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

    /// An attribute. Fails with `ENOPROTOOPT` if there is no such attribute.
    pub(super) fn opt(&self, opt: QpOpt) -> Result<u64> {
        self.attrs.get(opt)
    }

    /// Sets an attribute. Fails with `ENOPROTOOPT`; `EINVAL`; `KFI_EOPBADSTATE` if the endpoint was
    /// connected. Sleeps.
    pub(super) fn set_opt(&self, opt: QpOpt, value: u64) -> Result {
        let _connecting = self.connecting.lock();
        self.attrs.get(opt)?;
        if self.phase() != Phase::Idle {
            return Err(to_error(Errno::KFI_EOPBADSTATE));
        }
        self.attrs.set(opt, value)
    }

    /// The number of outstanding transmits. Does not sleep.
    pub(super) fn under_way(&self) -> u64 {
        self.tickets.lock().used() as u64
    }

    /// The packet statistics of the QP. Does not sleep.
    pub(super) fn packets(&self) -> Values {
        self.qp
            .as_ref()
            .map_or([0; STATS], |qp| qp.stats().values())
    }

    /// Closes the QP. Operations that have not completed are not reported. Sleeps.
    pub(super) fn close(&self) {
        if let Some(qp) = self.qp.as_ref() {
            qp.close();
        }
    }

    /// For teardown. The QP is closed, and no posting call is inside. Closes the connection and
    /// gives back the tickets of operations that did not complete. Sleeps.
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

/// The access that a peer has to the memory of an endpoint with `caps`. Atomics need both rights.
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
    /// The state of a connected endpoint. Fails with `EOPNOTSUPP` for another endpoint type.
    fn msg(&self) -> Result<&Msg> {
        match &self.wire {
            Some(Wire::Msg(msg)) => Ok(msg),
            _ => Err(EOPNOTSUPP),
        }
    }

    /// The address of the peer (kfi_getpeer). Fails with `EOPNOTSUPP` for another endpoint type,
    /// `ENOTCONN` if it was never connected. Does not sleep.
    pub(crate) fn peer_addr(&self) -> Result<SockAddr> {
        let peer = self.msg()?.peer.as_ref().ok_or(ENOTCONN)?;
        Ok(peer.addr)
    }
}
