// SPDX-License-Identifier: GPL-2.0

//! A connection of a session: an RC QP, connection management's part of it, and what comes in.
//!
//! It is made by `manage.rs` and closed there. The QP asks it for the peer's requests (`serve.rs`),
//! under the lock of the QP's responder; what follows from them for the session waits in the [`Inbox`]
//! until the QP's run is over, as the session's lock stands above the QP's.
//!
//! `inbox` is a mutex: taken under the lock of the QP's responder and under that of the session; under it
//! are taken the endpoint's receive lock and what a completion takes. `cm` and `half_open` are leaves.

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
    flags::Caps,
    limits::MAX_IOV,
    rdm::{
        header::{
            Header,
            MAX_HEADER, //
        },
        inbound::{
            Event,
            Found, //
        },
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
        receive::remote::Berth,
        receive::Message,
        Endpoint, //
    },
    op::{
        Owed,
        Reply, //
    },
    session::Session,
    works::Works, //
};
use crate::{
    mem::{
        Allowance,
        MemRef,
        Part,
        PartAllowance, //
    },
    net::{
        cm,
        qp::{
            rc::{
                Request,
                FRONT_MAX, //
            },
            Qp,
            Rc, //
        },
        LinkState,
        Path, //
    },
    provider::domain::Domain,
    shim::{
        random::random_u32,
        sched::coarse_now_ns, //
    }, //
};

/// Code of the local ACK timeout: 67 ms, and up to four times as long when there is no answer. With
/// [`RETRIES`] a peer that is silent is given up after about two seconds.
const TIMEOUT: u8 = 14;

/// How often what is not acknowledged is sent again.
pub(super) const RETRIES: u8 = 7;

/// A peer without room is tried again for ever: it says when.
pub(super) const RNR_RETRIES: u8 = 7;

// Each header stands before the memory of its message.
kernel::static_assert!(MAX_HEADER <= FRONT_MAX);

/// A message, or something else, that is coming in.
pub(super) enum Coming {
    Nothing,
    /// A message, where it goes, and what its sender is owed when it has come.
    Message(Berth, Message, Option<Owed>),
    /// A write that is to be counted.
    Write,
    /// The peer wants a message back; this is what it is answered with.
    Cancel(Owed),
}

/// Something for the session.
pub(super) enum Said {
    Event(Event),
    Cancel(u64, Found, Owed),
    Reply(Reply),
}

/// What has come in.
pub(super) struct Inbox {
    pub(super) inbound: Inbound,
    pub(super) coming: Coming,
    /// What the session is to be told, in order.
    pub(super) said: KVec<Said>,
    /// Regions that the peer's present write has written to.
    pub(super) written: Regions,
    /// Whether the WRITE that ends next is the last of its operation.
    pub(super) write_ends: bool,
}

/// What an operation of the peer's has accessed so far: it counts once at each region when all of it has
/// succeeded. There is room for as many regions as an operation can name.
pub(super) struct Regions {
    keys: KVec<u32>,
    /// Bytes, in all of them.
    bytes: u64,
}

impl Regions {
    /// Bytes that the room takes.
    const BYTES: usize = MAX_IOV * size_of::<u32>();

    /// None, with the room. `ENOMEM`. Sleeps.
    fn new() -> Result<Self> {
        Ok(Self {
            keys: KVec::with_capacity(MAX_IOV, GFP_KERNEL_ACCOUNT)?,
            bytes: 0,
        })
    }

    /// Whether nothing has been accessed.
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Bytes that have been accessed.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A piece has been accessed. Does not sleep.
    pub(super) fn add(&mut self, reth: &Reth) {
        self.bytes = self.bytes.saturating_add(u64::from(reth.len));
        if !self.keys.contains(&reth.rkey) {
            // There is room for what a peer that keeps to the protocol can name.
            let _ = self.keys.push_within_capacity(reth.rkey);
        }
    }

    /// The operation has ended: counts it at each region. Its bytes. Does not sleep.
    pub(super) fn count(&mut self, domain: &Domain, write: bool) -> u64 {
        for rkey in self.keys.iter() {
            // It may have been closed meanwhile.
            let _ = domain.in_region(u64::from(*rkey), |region| {
                region.count(write);
                Ok(())
            });
        }
        self.keys.clear();
        core::mem::take(&mut self.bytes)
    }
}

/// Connection management's part.
enum Managed {
    /// Nothing yet.
    No,
    Yes(Arc<cm::Conn>),
    /// The connection has been closed.
    Closed,
}

/// What the peer's end is like.
pub(super) struct Far {
    pub(super) qpn: Qpn,
    /// PSN that it wants this end to begin with.
    pub(super) psn: Psn,
    pub(super) mtu: PathMtu,
    /// READs that it serves at once, and that it may ask for.
    pub(super) serves: u8,
    pub(super) asks: u8,
}

/// See the module's story.
#[pin_data]
pub(in crate::provider::ep) struct Connection {
    session: Arc<Session>,
    conn: Conn,
    /// PSN that the peer shall begin with, which is what REQ and REP tell it.
    psn: Psn,
    qp: SetOnce<Arc<Qp<Rc>>>,
    #[pin]
    cm: Mutex<Managed>,
    #[pin]
    pub(super) inbox: Mutex<Inbox>,
    /// Regions that the peer's present read has read from; of its own, because READs are answered
    /// where nothing may sleep. The locks of the domain's regions and of counters are taken under it.
    #[pin]
    pub(super) read: SpinLock<Regions>,
    /// When something last came from the peer, ns, by the coarse clock; 0: nothing has.
    heard: Atomic<u64>,
    /// Whether the peer is known to be connected.
    established: Atomic<bool>,
    /// Whether this end refused the peer access to memory.
    pub(super) refused: Atomic<bool>,
    /// What it takes of its owner's budget.
    _memory: Allowance,
    /// What it takes of the part for connections that the peer has not confirmed, as long as it has not.
    #[pin]
    half_open: Mutex<Option<PartAllowance>>,
    /// What it takes of the part for peers, if the peer has asked for it.
    _of_peers: Option<PartAllowance>,
}

impl Connection {
    /// Makes one with a QP that has no peer yet; `established`: this end asks. `EBUSY` too many QPs in
    /// the namespace, `ENODEV` the link has gone, `ENOMEM`. Sleeps.
    pub(super) fn new(session: &Arc<Session>, conn: Conn, established: bool) -> Result<Arc<Self>> {
        let endpoint = session.endpoint();
        let bound = endpoint.bound.as_ref().ok_or(EBADF)?;
        let depth = DEPTH as usize;
        let bytes = Qp::<Rc>::bytes(depth)
            + Qp::<Rc>::front_bytes(depth)
            + Works::BYTES
            + 2 * Regions::BYTES;
        let memory = endpoint.ident.budget.take_for::<Self>(bytes)?;
        // With the session, which may have been made for it.
        let all = bytes + size_of::<Self>() + size_of::<Session>();
        let budget = &endpoint.ident.budget;
        let part = |part| budget.take_part(part, all as u64);
        let (of_peers, half_open) = if established {
            (None, None)
        } else {
            (Some(part(Part::Peers)?), Some(part(Part::HalfOpen)?))
        };
        let inbox = Inbox {
            inbound: Inbound::new(),
            coming: Coming::Nothing,
            said: KVec::new(),
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
                cm <- new_mutex!(Managed::No, "Connection::cm"),
                inbox <- new_mutex!(inbox, "Connection::inbox"),
                read <- new_spinlock!(read, "Connection::read"),
                heard: Atomic::new(0),
                established: Atomic::new(established),
                refused: Atomic::new(false),
                _memory: memory,
                half_open <- new_mutex!(half_open, "Connection::half_open"),
                _of_peers: of_peers,
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        let link = endpoint.domain.link();
        let ip = bound.name.ip();
        let figures = endpoint.remote.figures.as_ref().ok_or(EBADF)?.clone();
        let qp = Qp::connection_with_fronts(link, ip, depth, figures, budget, connection.clone())?;
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

    /// Its session. Any context.
    pub(super) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Its endpoint. Any context.
    pub(super) fn endpoint(&self) -> &Arc<Endpoint> {
        self.session.endpoint()
    }

    /// What the session calls it. Any context.
    pub(super) fn conn(&self) -> Conn {
        self.conn
    }

    /// When something last came from the peer. Any context.
    pub(super) fn heard(&self) -> u64 {
        self.heard.load(Relaxed)
    }

    /// Something has come from the peer. Any context.
    pub(super) fn hear(&self) {
        self.heard.store(coarse_now_ns(), Relaxed);
    }

    /// This end, as the peer shall know it, with so many READs each way.
    pub(super) fn side(&self, serves: u8, asks: u8) -> kfi_roce::cm::Side {
        kfi_roce::cm::Side {
            qpn: self.qp.as_ref().map_or(Qpn::default(), |qp| qp.number()),
            starting_psn: self.psn,
            responder_resources: serves,
            initiator_depth: asks,
            rnr_retry_count: RNR_RETRIES,
            srq: false,
        }
    }

    /// Makes the QP ready to receive and to send. `EINVAL`, `ENODEV`. Sleeps.
    pub(super) fn ready(&self, path: &Arc<Path>, far: &Far) -> Result {
        let qp = self.qp.as_ref().ok_or(EINVAL)?;
        let attr = Attr {
            state: QpState::Rtr,
            path_mtu: far.mtu,
            dest_qpn: far.qpn,
            rq_psn: self.psn,
            sq_psn: far.psn,
            max_rd_atomic: far.serves.clamp(1, READS),
            max_dest_rd_atomic: far.asks.clamp(1, READS),
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

    /// Connection management knows it as `conn`. Closes that, if the connection has been closed
    /// meanwhile. Sleeps.
    pub(super) fn managed_by(&self, conn: Arc<cm::Conn>) {
        let mut cm = self.cm.lock();
        if let Managed::Closed = *cm {
            drop(cm);
            conn.close();
            return;
        }
        *cm = Managed::Yes(conn);
    }

    /// Hands work to the QP, which is to be pushed then. `more`: READs of the same operation follow.
    /// `EINVAL`, `EAGAIN`. Sleeps.
    pub(super) fn queue(
        &self,
        op: WireOp,
        more: bool,
        front: &[u8],
        memory: MemRef,
        context: u64,
    ) -> Result {
        let request = Request {
            op,
            fence: false,
            solicited: more,
        };
        let qp = self.qp.as_ref().ok_or(EINVAL)?;
        qp.queue(&request, front, memory, context)
    }

    /// Waits until what has come from the peer has been processed. Sleeps; no lock is held, and no
    /// QP's consumer is being called.
    pub(super) fn settle(&self) {
        if let Some(qp) = self.qp.as_ref() {
            qp.settle();
        }
    }

    /// Sends what was queued. Sleeps; no lock is held, and no QP's consumer is being called.
    pub(super) fn push(&self) {
        if let Some(qp) = self.qp.as_ref() {
            qp.push();
        }
    }

    /// The same, under locks, or by a QP's consumer. Sleeps.
    pub(super) fn push_only(&self) {
        if let Some(qp) = self.qp.as_ref() {
            qp.push_only();
        }
    }

    /// Makes the messages void that are with the QP. Sleeps.
    pub(super) fn make_void(&self, works: &mut Works) {
        let Some(qp) = self.qp.as_ref() else {
            return;
        };
        qp.rewrite(|context, front| {
            let Some(posted) = works.get_mut(context) else {
                return;
            };
            if let (Work::Message(_), Ok(header)) = (posted.work, Header::parse(front)) {
                posted.void = header.to_void().put(front).is_some();
            }
        });
    }

    /// Takes no message any more; the last one that was taken. Sleeps.
    pub(super) fn shut(&self) -> u64 {
        self.inbox.lock().inbound.shut()
    }

    /// If a packet of the peer's has come, it is connected. Whether that is news. Sleeps; no lock is
    /// held.
    pub(super) fn communication_established(&self) -> bool {
        if self.established.load(Relaxed) || self.heard() == 0 {
            return false;
        }
        let conn = match &*self.cm.lock() {
            Managed::Yes(conn) => conn.clone(),
            // It is being accepted: the RTU, or the next packet, will tell.
            _ => return false,
        };
        self.is_established();
        conn.communication_established()
    }

    /// It is known now. Sleeps.
    pub(super) fn is_established(&self) {
        self.established.store(true, Relaxed);
        let half_open = self.half_open.lock().take();
        drop(half_open);
    }

    /// Why it failed, if no work request of this end's did. Any context.
    pub(super) fn cause(&self) -> Cause {
        if self.endpoint().domain.link().state() == LinkState::Gone {
            Cause::LinkGone
        } else if self.refused.load(Relaxed) {
            Cause::Access
        } else {
            Cause::Reset
        }
    }

    /// Lets connection management's part and the QP go: the peer is told, and nothing comes any more.
    /// Sleeps; no lock is held.
    pub(super) fn close(&self) {
        let managed = core::mem::replace(&mut *self.cm.lock(), Managed::Closed);
        if let Managed::Yes(conn) = managed {
            conn.close();
        }
        if let Some(qp) = self.qp.as_ref() {
            qp.close();
        }
    }
}

/// What a peer may do. Reading is always among it: it reads long messages, which is checked by
/// [`Grant`](kfi_core::rdm::Grant).
fn access(caps: Caps) -> Access {
    Access {
        write: caps.contains(Caps::REMOTE_WRITE),
        read: true,
        atomic: false,
    }
}
