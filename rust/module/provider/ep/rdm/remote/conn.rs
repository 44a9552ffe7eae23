// SPDX-License-Identifier: GPL-2.0

//! A connection of a session: an RC QP, its connection in connection management, and the messages
//! that arrive on it.
//!
//! `manage.rs` makes and closes connections. The QP calls the connection for requests of the peer
//! (`serve.rs`), under the lock of its responder. The session's lock is taken before the QP's, so
//! events for the session wait in the [`Inbox`] until the run of the QP is over.
//!
//! `inbox` is a mutex. It is taken under the lock of the QP's responder and under that of the
//! session. The endpoint's receive lock and the locks of a completion are taken under it. `cm`,
//! `cm_events` and `half_open` are spin locks and leaves.

use kfi_core::{
    limits::MAX_IOV,
    rdm::{
        header::{
            Header,
            MAX_HEADER, //
        },
        hello::Refusal,
        inbound::{
            CancelState,
            Event, //
        },
        ops::Lane,
        session::{
            Conn,
            Work, //
        },
        times::{
            DEPTH,
            READS,
            RNR_TIME, //
        },
        Cause,
        Hello,
        Inbound, //
    }, //
};
use kfi_roce::{
    headers::{
        Qpn,
        Reth,
        RnrTimer, //
    },
    mtu::PathMtu,
    psn::Psn,
    rc::{
        Access,
        AckTimeout,
        Attr,
        Op as WireOp, //
    },
    state::{
        Mask,
        State as QpState, //
    }, //
};

use super::{
    super::super::{
        prelude::*,
        receive::remote::ArrivalTarget, //
    },
    atomic::ReceivedAtomic,
    op::{
        PendingAnswer,
        Reply, //
    },
    session::Session,
    store::PostedWork, //
};
use crate::{
    mem::{
        Part,
        PartAllowance, //
    },
    net::{
        cm,
        qp::{
            rc::{
                Request,
                INLINE_HEADER_MAX, //
            },
            Qp,
            Rc, //
        },
        Path, //
    },
    shim::{
        random::random_u32,
        sched::coarse_now_ns, //
    }, //
};

/// Code of the local ACK timeout: 67 ms, and up to four times as long without a response. With
/// [`RETRIES`] the connection to a silent peer fails after about two seconds.
const TIMEOUT: u8 = 14;

/// The number of times that an unacknowledged packet is sent again.
pub(super) const RETRIES: u8 = 7;

/// 7 stands for no limit: a peer that has no room names the time of the next try.
pub(super) const RNR_RETRIES: u8 = 7;

// Each header is sent from the inline header in front of the message's memory.
kernel::static_assert!(MAX_HEADER <= INLINE_HEADER_MAX);

/// A SEND or WRITE that is being received.
pub(super) enum ReceivedSend {
    Nothing,
    /// A message, its destination, and the answer that its sender gets when it has arrived.
    Message(ArrivalTarget, Message, Option<PendingAnswer>),
    /// An atomic.
    Atomic(ReceivedAtomic),
    /// The old values of an atomic of this end, and their destination.
    Result(MemRef),
    /// A write that is counted at its end.
    Write,
    /// A CANCEL, and the answer to it.
    Cancel(PendingAnswer),
}

/// An event for the session.
pub(super) enum SessionEvent {
    Event(Event),
    Cancel(u64, CancelState, PendingAnswer),
    Reply(Reply),
}

/// The receiving state of a connection.
pub(super) struct Inbox {
    pub(super) inbound: Inbound,
    pub(super) receiving: ReceivedSend,
    /// The events for the session, in order.
    pub(super) events: KVec<SessionEvent>,
    /// The regions that the peer's current write has accessed.
    pub(super) written: Regions,
    /// Whether the WRITE that ends next is the last of its operation.
    pub(super) write_ends: bool,
}

/// The regions that one operation of the peer has accessed so peer. The operation counts once at
/// each region when all of it has succeeded. There is room for the most regions that an operation
/// can name.
pub(super) struct Regions {
    keys: KVec<u32>,
    /// Bytes accessed in all regions.
    bytes: u64,
}

impl Regions {
    /// Bytes of memory for the keys.
    const BYTES: usize = MAX_IOV * size_of::<u32>();

    /// Makes an empty list with room for the keys. Fails with `ENOMEM`. Sleeps.
    fn new() -> Result<Self> {
        Ok(Self {
            keys: KVec::with_capacity(MAX_IOV, GFP_KERNEL_ACCOUNT)?,
            bytes: 0,
        })
    }

    /// Whether no region has been accessed.
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The bytes that have been accessed.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds an accessed piece. Does not sleep.
    pub(super) fn add(&mut self, reth: &Reth) {
        self.bytes = self.bytes.saturating_add(u64::from(reth.len));
        if !self.keys.contains(&reth.rkey) {
            // The room suffices for every peer that follows the protocol.
            let _ = self.keys.push_within_capacity(reth.rkey);
        }
    }

    /// Counts the finished operation at each region. Returns its bytes. Does not sleep.
    pub(super) fn count(&mut self, domain: &Domain, write: bool) -> u64 {
        for rkey in self.keys.iter() {
            // The region may have been closed meanwhile.
            let _ = domain.in_region(u64::from(*rkey), |region| {
                region.count(write);
                Ok(())
            });
        }
        self.keys.clear();
        core::mem::take(&mut self.bytes)
    }
}

/// An event from connection management.
pub(super) enum CmEvent {
    /// The peer has accepted the connection, whose QP is ready, or the connection has failed.
    Replied(core::result::Result<Hello, Cause>),
    Established,
    /// The peer has rejected it. `None`: it uses another connection, or has given this one up.
    Rejected(Option<Refusal>),
    Unreachable,
    Disconnected,
}

/// The events that wait for the session's worker: a reply or an establishment, and the end.
#[derive(Default)]
struct CmEvents {
    first: Option<CmEvent>,
    last: Option<CmEvent>,
}

/// The connection in connection management.
enum CmState {
    /// Not made yet.
    None,
    Open(Arc<cm::Conn>),
    /// The connection has been closed.
    Closed,
}

/// The parameters of the peer's end.
pub(super) struct PeerParams {
    pub(super) qpn: Qpn,
    /// The first PSN that this end sends. The peer has chosen it.
    pub(super) psn: Psn,
    pub(super) mtu: PathMtu,
    /// The READs of this end that the peer serves at the same time.
    pub(super) responder_resources: u8,
    /// The READs that the peer may have outstanding.
    pub(super) initiator_depth: u8,
}

/// A connection of a session.
#[pin_data]
pub(in crate::provider::ep) struct Connection {
    pub(super) session: Arc<Session>,
    /// Its name in the session.
    pub(super) conn: Conn,
    /// The first PSN that the peer sends. REQ and REP contain it.
    psn: Psn,
    qp: SetOnce<Arc<Qp<Rc>>>,
    #[pin]
    cm: SpinLock<CmState>,
    /// The events from connection management that wait for the session's worker.
    #[pin]
    cm_events: SpinLock<CmEvents>,
    #[pin]
    pub(super) inbox: Mutex<Inbox>,
    /// The regions that the peer's current READ has accessed. They are not in `inbox` because READs
    /// are answered where nothing may sleep. The locks of the domain's keys and of counters are
    /// taken under this lock.
    #[pin]
    pub(super) read: SpinLock<Regions>,
    /// The time of the peer's last packet by the coarse clock, ns; 0: none has come. Packets that
    /// [`note_access`](Self::note_access) notes are left out.
    last_packet: Atomic<u64>,
    /// The time of the peer's last packet with which it transferred bytes of an operation; 0: none.
    last_access: Atomic<u64>,
    /// Whether the peer is known to have established the connection.
    established: Atomic<bool>,
    /// Whether this end refused the peer an access to memory.
    pub(super) refused: Atomic<bool>,
    /// Whether this end refused a SEND of the peer because it violates the protocol.
    pub(super) invalid: Atomic<bool>,
    _memory: Allowance,
    /// Its charge to the part for unconfirmed connections, until the peer has confirmed it.
    #[pin]
    half_open: SpinLock<Option<PartAllowance>>,
    /// Its charge to the part for peers, if the peer requested the connection.
    _of_peers: Option<PartAllowance>,
}

impl Connection {
    /// Makes a connection with a QP in INIT. `established`: this end requests the connection. Fails
    /// with `EBUSY` if there are too many QPs in the namespace; `ENODEV` if the link was removed;
    /// `ENOMEM`. Sleeps.
    pub(super) fn new(session: &Arc<Session>, conn: Conn, established: bool) -> Result<Arc<Self>> {
        let endpoint = &session.endpoint;
        endpoint.bound.as_ref().ok_or(EBADF)?;
        let depth = DEPTH as usize;
        let bytes = Qp::<Rc>::bytes(depth)
            + Qp::<Rc>::inline_header_bytes(depth)
            + PostedWork::BYTES
            + 2 * Regions::BYTES;
        let memory = endpoint.ident.budget.take_for::<Self>(bytes)?;
        // Includes the session, which may have been made for this connection.
        let all = bytes + size_of::<Self>() + size_of::<Session>();
        let budget = &endpoint.ident.budget;
        let (of_peers, half_open) = if established {
            (None, None)
        } else {
            let of_peers = session.peer_share.take(budget, Part::Peers, all as u64)?;
            let half_open = session
                .peer_share
                .take(budget, Part::HalfOpen, all as u64)?;
            (Some(of_peers), Some(half_open))
        };
        let inbox = Inbox {
            inbound: Inbound::new(),
            receiving: ReceivedSend::Nothing,
            events: KVec::new(),
            written: Regions::new()?,
            write_ends: false,
        };
        let read = Regions::new()?;
        let connection = Arc::pin_init(
            pin_init!(Self {
                session: session.clone(),
                conn,
                psn: Psn::new(random_u32()),
                qp: SetOnce::new(),
                cm <- new_spinlock!(CmState::None, "Connection::cm"),
                cm_events <- new_spinlock!(CmEvents::default(), "Connection::cm_events"),
                inbox <- new_mutex!(inbox, "Connection::inbox"),
                read <- new_spinlock!(read, "Connection::read"),
                last_packet: Atomic::new(0),
                last_access: Atomic::new(0),
                established: Atomic::new(established),
                refused: Atomic::new(false),
                invalid: Atomic::new(false),
                _memory: memory,
                half_open <- new_spinlock!(half_open, "Connection::half_open"),
                _of_peers: of_peers,
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        let link = endpoint.domain.link();
        let stats = endpoint.remote.stats.as_ref().ok_or(EBADF)?.clone();
        let qp =
            Qp::connection_with_inline_headers(link, depth, stats, budget, connection.clone())?;
        let init = Attr {
            state: QpState::Init,
            access: access(endpoint.caps),
            ..Attr::default()
        };
        if let Err(error) = qp.modify(&init, Mask::RC_TO_INIT, None) {
            qp.close();
            return Err(error);
        }
        connection.qp.populate(qp);
        Ok(connection)
    }

    /// Its endpoint. Any context.
    pub(super) fn endpoint(&self) -> &Arc<Endpoint> {
        &self.session.endpoint
    }

    /// The time of the peer's last packet, ns. Any context.
    pub(super) fn last_packet(&self) -> u64 {
        self.last_packet.load(Relaxed).max(self.last_access())
    }

    /// The time of the last packet with which the peer transferred bytes of an operation, ns. Any
    /// context.
    pub(super) fn last_access(&self) -> u64 {
        self.last_access.load(Relaxed)
    }

    /// Notes that a packet of the peer has come. Any context.
    pub(super) fn note_packet(&self) {
        self.last_packet.store(coarse_now_ns(), Relaxed);
    }

    /// Notes that a packet of the peer has come with which it reads a message, accesses registered
    /// memory, or sends a RESULT. Any context.
    pub(super) fn note_access(&self) {
        self.last_access.store(coarse_now_ns(), Relaxed);
    }

    /// The parameters of this end for the peer. `responder_resources` and `initiator_depth` are the
    /// most READs in each direction.
    pub(super) fn side(&self, responder_resources: u8, initiator_depth: u8) -> kfi_roce::cm::Side {
        kfi_roce::cm::Side {
            qpn: self.qp.as_ref().map_or(Qpn::default(), |qp| qp.number()),
            starting_psn: self.psn,
            responder_resources,
            initiator_depth,
            rnr_retry_count: RNR_RETRIES,
            srq: false,
        }
    }

    /// Moves the QP to RTS. Fails with `EINVAL`, `ENODEV`. Sleeps.
    pub(super) fn ready(&self, path: &Arc<Path>, peer: &PeerParams) -> Result {
        let qp = self.qp.as_ref().ok_or(EINVAL)?;
        let attr = Attr {
            state: QpState::Rtr,
            path_mtu: peer.mtu,
            dest_qpn: peer.qpn,
            rq_psn: self.psn,
            sq_psn: peer.psn,
            max_rd_atomic: peer.responder_resources.clamp(1, READS),
            max_dest_rd_atomic: peer.initiator_depth.clamp(1, READS),
            min_rnr_timer: RnrTimer::at_least(RNR_TIME),
            timeout: AckTimeout::from_code(TIMEOUT).unwrap_or_default(),
            retry_cnt: RETRIES,
            rnr_retry: RNR_RETRIES,
            ..Attr::default()
        };
        qp.modify(&attr, Mask::RC_TO_RTR, Some(path))?;
        let rts = Attr {
            state: QpState::Rts,
            ..attr
        };
        qp.modify(&rts, Mask::RC_TO_RTS, None)
    }

    /// Stores its connection in connection management. Closes that if this connection has been
    /// closed meanwhile. Sleeps.
    pub(super) fn managed_by(&self, conn: Arc<cm::Conn>) {
        let mut cm = self.cm.lock();
        if let CmState::Closed = *cm {
            drop(cm);
            conn.close();
            return;
        }
        *cm = CmState::Open(conn);
    }

    /// Its connection in connection management, unless it has been closed. Does not sleep.
    pub(super) fn managed(&self) -> Option<Arc<cm::Conn>> {
        match &*self.cm.lock() {
            CmState::Open(conn) => Some(conn.clone()),
            _ => None,
        }
    }

    /// Stores an event for the session's worker. Does not sleep.
    pub(super) fn put_cm_event(&self, event: CmEvent) {
        let mut events = self.cm_events.lock();
        match event {
            CmEvent::Replied(_) | CmEvent::Established => events.first = Some(event),
            _ => events.last = Some(event),
        }
    }

    /// Takes the next event. Does not sleep.
    pub(super) fn take_cm_event(&self) -> Option<CmEvent> {
        let mut events = self.cm_events.lock();
        events.first.take().or_else(|| events.last.take())
    }

    /// Queues a work request to the QP. The caller pushes the QP afterwards. `more`: READs of the
    /// same operation follow. Fails with `EINVAL`, `EAGAIN`. Sleeps.
    pub(super) fn queue(
        &self,
        op: WireOp,
        more: bool,
        inline_header: &[u8],
        mut memory: MemRef,
        context: u64,
    ) -> Result {
        let request = Request {
            op,
            fence: false,
            solicited: more,
        };
        let qp = self.qp.as_ref().ok_or(EINVAL)?;
        qp.queue(&request, inline_header, &mut memory, context)
    }

    /// Waits until all packets that have come from the peer are processed. Sleeps. The caller holds
    /// no lock and is not called by a QP.
    pub(super) fn settle(&self) {
        if let Some(qp) = self.qp.as_ref() {
            qp.settle();
        }
    }

    /// Sends the queued packets. Sleeps. The caller holds no lock and is not called by a QP.
    pub(super) fn push(&self) {
        if let Some(qp) = self.qp.as_ref() {
            qp.push();
        }
    }

    /// Sends the queued packets. The caller may hold the session's lock or be called by a QP.
    /// Sleeps.
    pub(super) fn push_only(&self) {
        if let Some(qp) = self.qp.as_ref() {
            qp.push_only();
        }
    }

    /// Marks the messages or the atomics in the QP's send queue as void. Sleeps.
    pub(super) fn make_void(&self, posted_work: &mut PostedWork, lane: Lane) {
        let Some(qp) = self.qp.as_ref() else {
            return;
        };
        qp.rewrite(|context, inline_header| {
            let Some(posted) = posted_work.get_mut(context) else {
                return;
            };
            match (posted.work, lane) {
                (Work::Message(_), Lane::Messages) | (Work::Atomic(_), Lane::Atomics) => {}
                _ => return,
            }
            if let Ok(header) = Header::parse(inline_header) {
                posted.void = header.to_void().put(inline_header).is_some();
            }
        });
    }

    /// Accepts no further messages. Returns the ID of the last accepted one. Sleeps.
    pub(super) fn shut(&self) -> u64 {
        self.inbox.lock().inbound.shut()
    }

    /// If a packet of the peer has come, the connection is established. Returns whether that was
    /// not known before. Sleeps. The caller holds no lock.
    pub(super) fn communication_established(&self) -> bool {
        if self.established.load(Relaxed) || self.last_packet() == 0 {
            return false;
        }
        let Some(conn) = self.managed() else {
            // The connection is being accepted. The RTU or the next packet establishes it.
            return false;
        };
        self.set_established();
        conn.communication_established()
    }

    /// Notes that the connection is established. Sleeps.
    pub(super) fn set_established(&self) {
        self.established.store(true, Relaxed);
        let half_open = self.half_open.lock().take();
        drop(half_open);
    }

    /// The cause of the failure, unless a work request of this end failed. Any context.
    pub(super) fn cause(&self) -> Cause {
        if self.endpoint().domain.link().state() == LinkState::Gone {
            Cause::LinkGone
        } else if self.refused.load(Relaxed) {
            Cause::Access
        } else if self.invalid.load(Relaxed) {
            Cause::Protocol
        } else {
            Cause::Reset
        }
    }

    /// Closes the connection in connection management, which informs the peer, and the QP. Nothing
    /// arrives afterwards. Sleeps. The caller holds no lock.
    pub(super) fn close(&self) {
        let managed = core::mem::replace(&mut *self.cm.lock(), CmState::Closed);
        if let CmState::Open(conn) = managed {
            conn.close();
        }
        if let Some(qp) = self.qp.as_ref() {
            qp.close();
        }
    }
}

/// The access that a peer has. It can always read: the receiver of a long message reads it, which
/// [`Grant`](kfi_core::rdm::Grant) restricts.
fn access(caps: Caps) -> Access {
    Access {
        write: caps.contains(Caps::REMOTE_WRITE),
        read: true,
        atomic: caps.contains(Caps::ATOMIC | Caps::REMOTE_READ | Caps::REMOTE_WRITE),
    }
}
