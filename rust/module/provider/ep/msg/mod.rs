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
//!  Idle --connect--> Connecting --REP-----------v
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

mod connect;
mod post;
mod serve;

use kfi_roce::{
    headers::RnrTimer,
    mtu::PathMtu,
    psn::Psn,
    rc::{
        attr::{
            AckTimeout,
            MAX_RETRY, //
        },
        Access,
        Attr, //
    },
    state::{
        Mask,
        State, //
    }, //
};

use self::{
    post::Tickets,
    serve::Incoming, //
};
use super::{
    options::QpOpt,
    prelude::*,
    wire::{
        QpInfo,
        Wire, //
    }, //
};
use crate::{
    net::{
        cm::{
            self,
            Conn, //
        },
        qp::{
            rc::MAX_RD_ATOMIC,
            Qp,
            Rc, //
        },
        Path,
        Values,
        STATS, //
    },
    shim::{
        random::random_u32,
        word::AtomicWord, //
    }, //
};
use kfi_core::left_step::LeftStep;

/// The phase of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum Phase {
    Idle = 0,
    /// A REQ was sent.
    Connecting = 1,
    /// A request was accepted. The peer has not confirmed that yet.
    Accepting = 2,
    Connected = 3,
    Over = 4,
}

/// The peer of a connection.
struct Peer {
    addr: SockAddr,
    /// The path to it, which each post checks.
    path: Arc<Path>,
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
    requested: SetOnce<SockAddr>,
    /// Set when a REQ was sent or a request was accepted.
    conn: SetOnce<Arc<Conn>>,
    /// Serialises the functions that connect and disconnect. Locked by
    /// [`begin_connecting`](Self::begin_connecting).
    #[pin]
    connecting: Mutex<()>,
    /// The worker that delivers events has found `connecting` locked.
    event_left: LeftStep<AtomicWord>,
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
            requested: SetOnce::new(),
            conn: SetOnce::new(),
            connecting <- new_mutex!((), "Msg::connecting"),
            event_left: LeftStep::new(AtomicWord::new(0)),
            tickets <- new_spinlock!(tickets, "Msg::tickets"),
            incoming <- new_mutex!(None, "Msg::incoming"),
            read_bytes: Atomic::new(0),
        }))
    }

    /// Bytes of the state for `tx_size` transmits and of its QP.
    pub(super) fn bytes(tx_size: usize) -> usize {
        size_of::<Self>()
            .saturating_add(Tickets::bytes(tx_size))
            .saturating_add(cm::CONNECTION_BYTES)
            .saturating_add(Qp::<Rc>::bytes(tx_size))
    }

    fn phase(&self) -> Phase {
        match self.phase.load(Relaxed) {
            0 => Phase::Idle,
            1 => Phase::Connecting,
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
        let _connecting = self.begin_connecting();
        self.attrs.get(opt)?;
        if self.phase() != Phase::Idle {
            return Err(to_error(Errno::KFI_EOPBADSTATE));
        }
        self.attrs.set(opt, value)
    }

    /// The number of outstanding transmits. Does not sleep.
    pub(super) fn under_way(&self) -> u64 {
        self.tickets.lock().used as u64
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
    /// gives back the tickets of operations that did not complete. Accesses to the peer's memory
    /// among them count as one refusal: a program that guesses keys would close the endpoint before
    /// the answer comes. Sleeps.
    pub(super) fn drop_all(&self, endpoint: &Endpoint, bound: &Bound) {
        if let Some(conn) = self.conn.as_ref() {
            conn.close();
        }
        let incoming = self.incoming.lock().take();
        if let Some(incoming) = incoming {
            incoming.give_back(endpoint, bound);
        }
        let (mut at, mut was_accessing) = (0, false);
        loop {
            let ticket = self.tickets.lock().drain(&mut at);
            let Some(ticket) = ticket else {
                break;
            };
            was_accessing |= !matches!(ticket.kind, OpType::Send | OpType::TSend);
            endpoint.tx.give_back_shared();
            endpoint.give_back(bound, ticket);
            cond_resched();
        }
        if was_accessing {
            endpoint.ident.refused();
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

/// 67 ms.
const DEFAULT_TIMEOUT: u32 = 14;
/// 0.64 ms.
const DEFAULT_MIN_RNR_TIMER: u32 = 12;

/// The attributes of the QP, in the units of the interface. All values are valid.
pub(super) struct Attrs {
    path_mtu: Atomic<u32>,
    timeout: Atomic<u32>,
    retry_cnt: Atomic<u32>,
    rnr_retry: Atomic<u32>,
    min_rnr_timer: Atomic<u32>,
    rd_atomic: Atomic<u32>,
    dest_rd_atomic: Atomic<u32>,
}

impl Attrs {
    pub(super) const fn new() -> Self {
        Self {
            path_mtu: Atomic::new(0),
            timeout: Atomic::new(DEFAULT_TIMEOUT),
            retry_cnt: Atomic::new(MAX_RETRY as u32),
            rnr_retry: Atomic::new(MAX_RETRY as u32),
            min_rnr_timer: Atomic::new(DEFAULT_MIN_RNR_TIMER),
            rd_atomic: Atomic::new(MAX_RD_ATOMIC as u32),
            dest_rd_atomic: Atomic::new(MAX_RD_ATOMIC as u32),
        }
    }

    /// The word of an attribute and its largest value. Fails with `ENOPROTOOPT` if there is no such
    /// attribute.
    fn word(&self, opt: QpOpt) -> Result<(&Atomic<u32>, u32)> {
        Ok(match opt {
            QpOpt::Qkey => return Err(to_error(Errno::ENOPROTOOPT)),
            QpOpt::PathMtu => (&self.path_mtu, PathMtu::Mtu4096.bytes()),
            QpOpt::Timeout => (&self.timeout, 31),
            QpOpt::RetryCnt => (&self.retry_cnt, u32::from(MAX_RETRY)),
            QpOpt::RnrRetry => (&self.rnr_retry, u32::from(MAX_RETRY)),
            QpOpt::MinRnrTimer => (&self.min_rnr_timer, 31),
            QpOpt::RdAtomic => (&self.rd_atomic, u32::from(MAX_RD_ATOMIC)),
            QpOpt::DestRdAtomic => (&self.dest_rd_atomic, u32::from(MAX_RD_ATOMIC)),
        })
    }

    /// The value of an attribute. Fails with `ENOPROTOOPT` if there is no such attribute.
    pub(super) fn get(&self, opt: QpOpt) -> Result<u64> {
        let (word, _) = self.word(opt)?;
        Ok(u64::from(word.load(Relaxed)))
    }

    /// Sets an attribute. Fails with `ENOPROTOOPT` if there is no such attribute, `EINVAL` if the
    /// value is out of range.
    pub(super) fn set(&self, opt: QpOpt, value: u64) -> Result {
        let (word, max) = self.word(opt)?;
        let value = u32::try_from(value).map_err(|_| EINVAL)?;
        let is_mtu = || value == 0 || PathMtu::ALL.iter().any(|mtu| mtu.bytes() == value);
        if value > max || (opt == QpOpt::PathMtu && !is_mtu()) {
            return Err(EINVAL);
        }
        word.store(value, Relaxed);
        Ok(())
    }

    /// The path MTU that the owner set.
    pub(super) fn chosen_mtu(&self) -> Option<PathMtu> {
        let chosen = self.path_mtu.load(Relaxed);
        PathMtu::ALL.into_iter().find(|mtu| mtu.bytes() == chosen)
    }

    /// The path MTU of the connection on a path with the MTU `path`. Fails with `EINVAL` if the
    /// owner set a larger one.
    pub(super) fn path_mtu(&self, path: PathMtu) -> Result<PathMtu> {
        match self.path_mtu.load(Relaxed) {
            0 => Ok(path),
            chosen => PathMtu::ALL
                .into_iter()
                .find(|mtu| mtu.bytes() == chosen && *mtu <= path)
                .ok_or(EINVAL),
        }
    }

    /// The attributes except the path MTU.
    pub(super) fn attr(&self, access: Access) -> Attr {
        // No value has more than 5 bits.
        let code = |value: &Atomic<u32>| value.load(Relaxed) as u8;
        let default = Attr::default();
        Attr {
            access,
            timeout: AckTimeout::from_code(code(&self.timeout)).unwrap_or(default.timeout),
            retry_cnt: code(&self.retry_cnt),
            rnr_retry: code(&self.rnr_retry),
            min_rnr_timer: RnrTimer::from_code(code(&self.min_rnr_timer))
                .unwrap_or(default.min_rnr_timer),
            max_rd_atomic: code(&self.rd_atomic),
            max_dest_rd_atomic: code(&self.dest_rd_atomic),
            ..default
        }
    }
}
