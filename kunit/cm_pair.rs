// SPDX-License-Identifier: GPL-2.0

//! Two ends of connection management on a link on the loopback interface, for suite `kfabric_cm`: a
//! listener that keeps requests, and consumers that record events. No QP is connected, because
//! connection management knows QPs only by their number.

use super::{
    cm::{
        connect,
        listen,
        Conn,
        Connect,
        Consumer,
        Delivery,
        Listener,
        Listening,
        Request, //
    },
    kunit_wire_pair::{
        TestLink,
        ONE,
        SIX, //
    },
    Stat, //
};
use crate::{
    kunit::helpers::{
        eventually,
        wait_for,
        Count, //
    },
    shim::reclaim::OwnerKind, //
};
use core::net::IpAddr;
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};
use kfi_core::rdm::service_id;
use kfi_roce::{
    cm::{
        Event,
        Reason,
        ServiceId,
        Side,
        State, //
    },
    headers::Qpn,
    psn::Psn, //
};

pub(super) const SERVICE: ServiceId = service_id(7);

/// An event with the first byte of its private data.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Seen {
    Reply(Qpn, u8),
    Established(u8),
    Rejected(Reason, u8),
    Unreachable,
    Disconnected(u8),
    Released,
}

/// A consumer that records events.
#[pin_data]
pub(super) struct Memory {
    #[pin]
    pub(super) seen: Mutex<KVec<Seen>>,
}

impl Memory {
    pub(super) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                seen <- new_mutex!(KVec::new()),
            }),
            GFP_KERNEL,
        )
    }

    pub(super) fn is(&self, seen: &[Seen]) -> bool {
        self.seen.lock().as_slice() == seen
    }

    /// Waits until exactly these events are recorded. Returns false if they are not in time.
    pub(super) fn sees(&self, seen: &[Seen]) -> bool {
        eventually(|| self.is(seen))
    }
}

impl Consumer for Memory {
    fn owner_kind(&self) -> OwnerKind {
        OwnerKind::Program
    }

    fn event(&self, _conn: &Arc<Conn>, event: &Event<'_>) -> Delivery {
        let first = |bytes: &[u8]| bytes.first().copied().unwrap_or(0);
        let seen = match event {
            Event::Reply(reply) => Seen::Reply(reply.qpn, first(reply.private)),
            Event::Established(private) => Seen::Established(first(private)),
            Event::Rejected {
                reason, private, ..
            } => Seen::Rejected(*reason, first(private)),
            Event::Unreachable => Seen::Unreachable,
            Event::Disconnected(private) => Seen::Disconnected(first(private)),
            Event::Released => Seen::Released,
            // The consumer does not get this event.
            Event::Closed => return Delivery::Done,
        };
        let _ = self.seen.lock().push(seen, GFP_KERNEL);
        Delivery::Done
    }
}

/// A listener that keeps requests until a test takes them.
#[pin_data]
pub(crate) struct TestListener {
    #[pin]
    pub(crate) pending: Mutex<KVec<Request>>,
    pub(crate) requests: Arc<Count>,
    pub(super) gone: Arc<Count>,
}

impl TestListener {
    pub(crate) fn new() -> Result<Arc<Self>> {
        let (requests, gone) = (Count::new()?, Count::new()?);
        Arc::pin_init(
            pin_init!(Self {
                pending <- new_mutex!(KVec::new()),
                requests,
                gone,
            }),
            GFP_KERNEL,
        )
    }

    /// Waits for the next request. `ETIMEDOUT`.
    pub(super) fn next(&self) -> Result<Request> {
        wait_for(|| self.pending.lock().pop())
    }
}

impl Listener for TestListener {
    fn owner_kind(&self) -> OwnerKind {
        OwnerKind::Program
    }

    fn request(&self, request: Request) {
        let _ = self.pending.lock().push(request, GFP_KERNEL);
        self.requests.add(1);
    }

    fn gone(&self) {
        self.gone.add(1);
    }
}

pub(super) fn side(qpn: u32) -> Side {
    Side {
        qpn: Qpn::new(qpn),
        starting_psn: Psn::new(qpn),
        responder_resources: 4,
        initiator_depth: 5,
        rnr_retry_count: 6,
        srq: false,
    }
}

/// Returns the parameters of a connection of QP `qpn` to `SERVICE` at `remote`.
pub(super) fn params<'a>(
    link: &'a TestLink,
    remote: IpAddr,
    qpn: u32,
    private: &'a [u8],
) -> Connect<'a> {
    Connect {
        link: &link.0,
        local: ONE,
        remote,
        service_id: SERVICE,
        side: side(qpn),
        mtu: None,
        retry_count: 3,
        private,
        context: qpn.into(),
    }
}

/// A link with a listener at `ip`, and consumers for both ends.
pub(super) struct Ends {
    pub(super) listener: Arc<TestListener>,
    pub(super) listening: Option<Listening>,
    pub(super) active: Arc<Memory>,
    pub(super) passive: Arc<Memory>,
    pub(super) ip: IpAddr,
    pub(super) link: TestLink,
}

impl Ends {
    pub(super) fn new(ip: IpAddr) -> Result<Self> {
        Self::with_backlog(ip, 2)
    }

    /// Makes the ends with a limit of unanswered requests for the listener.
    pub(super) fn with_backlog(ip: IpAddr, backlog: u32) -> Result<Self> {
        let link = TestLink::new()?;
        let listener = TestListener::new()?;
        let listening = listen(link.0.socket(), ip, SERVICE, backlog, listener.clone())?;
        Ok(Self {
            listener,
            listening: Some(listening),
            active: Memory::new()?,
            passive: Memory::new()?,
            ip,
            link,
        })
    }

    /// Requests a connection of QP `qpn`, with one byte of private data.
    pub(super) fn request(&self, qpn: u32, private: u8) -> Result<Arc<Conn>> {
        let local = if self.ip.is_ipv4() { ONE } else { SIX };
        self.request_from(local, qpn, private)
    }

    /// Like [`Self::request`], from the address `local` of the link.
    pub(super) fn request_from(&self, local: IpAddr, qpn: u32, private: u8) -> Result<Arc<Conn>> {
        let private = [private];
        let params = Connect {
            local,
            ..params(&self.link, self.ip, qpn, &private)
        };
        connect(&params, self.active.clone())
    }

    pub(super) fn accept(&self, request: Request, qpn: u32, private: u8) -> Result<Arc<Conn>> {
        request.accept(&side(qpn), &[private], u64::from(qpn), self.passive.clone())
    }

    /// Makes a connection. Returns the active and the passive end.
    pub(super) fn connected(&self, qpn: u32) -> Result<(Arc<Conn>, Arc<Conn>)> {
        let active = self.request(qpn, 1)?;
        let passive = self.accept(self.listener.next()?, qpn + 1, 2)?;
        let reply = Seen::Reply(Qpn::new(qpn + 1), 2);
        if !eventually(|| self.active.seen.lock().contains(&reply)) {
            return Err(ETIMEDOUT);
        }
        active.confirm(&[3])?;
        if !eventually(|| passive.state() == State::Established) {
            return Err(ETIMEDOUT);
        }
        Ok((active, passive))
    }

    pub(super) fn stat(&self, stat: Stat) -> u64 {
        self.link.0.socket().receiver().stats().get(stat)
    }
}
