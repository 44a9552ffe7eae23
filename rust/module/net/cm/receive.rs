// SPDX-License-Identifier: GPL-2.0

//! Receives the messages of connection management: datagrams to QP 1.
//!
//! The work item of QP 1 processes them one at a time. It does not call consumers or listeners:
//! their own work items deliver events and requests. It does call [`Listener::screen`], before
//! anything is allocated for a REQ, and the second consumer of QP 1 ([`gsi`](super::gsi)). Neither
//! sleeps.
//!
//! [`Listener::screen`]: super::Listener::screen

use super::{
    super::{
        link::Link,
        path::Path,
        qp::ud::{
            self,
            Datagram, //
        },
        socket::AddrPair,
        stats::Stat, //
    },
    conn::Conn,
    entry::{
        Quota,
        Reservation, //
    },
    gsi,
    listen::{
        ListenerEntry,
        Params,
        Rejection,
        Request,
        SourceProof, //
    },
    service::{
        random_id,
        Cm, //
    }, //
};
use crate::shim::sched::now_ns;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kfi_roce::{
    cm::{
        Body,
        CommId,
        Connection,
        Ignored,
        Mad,
        Message,
        Private,
        Reason,
        Refusal,
        Req,
        Route,
        MAD_LEN, //
    },
    headers::Qpn,
    mtu::PathMtu, //
};

/// Passes the datagrams of QP 1 to the service.
pub(super) struct CmConsumer(pub(super) Arc<Cm>);

impl ud::Consumer for CmConsumer {
    fn datagram(&self, datagram: &Datagram<'_>) -> Result<(), Stat> {
        if self.0.datagram(datagram).is_none() {
            self.0.count(Stat::DropCm);
        }
        // A datagram that is not used was counted above.
        Ok(())
    }
}

/// The reason for which a REQ does not become a request.
enum NoRequest {
    /// The listener has too many undelivered requests, or the peer was refused access to memory too
    /// often. The REQ gets no answer, and the peer repeats it.
    Overloaded,
    /// It is rejected.
    Refused(Refusal),
    /// The listener rejects it.
    Screened(Rejection),
}

impl From<Refusal> for NoRequest {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl Cm {
    /// Processes a datagram. `None` if it is no valid message, or has no effect, and there is no
    /// second consumer for it. Sleeps.
    fn datagram(self: &Arc<Self>, datagram: &Datagram<'_>) -> Option<()> {
        let addrs = datagram.addrs()?;
        let mut mad: Mad = [0; MAD_LEN];
        let payload = datagram.payload();
        let complete = datagram.source_qp() == Qpn::GSI
            && payload.len() == MAD_LEN
            && payload.copy_to_slice(&mut mad);
        let message = complete.then(|| Message::parse(&mad).ok()).flatten();
        let Some(message) = message else {
            return gsi::pass_on(self, datagram, || false);
        };
        let found = self.with(|table| match message.route() {
            Route::Request { ca_guid, remote_id } | Route::Remote { ca_guid, remote_id } => {
                table.by_peer(ca_guid, remote_id)
            }
            Route::Local(id) => Some(id).filter(|id| table.contains_id(*id)),
        });
        let Some(id) = found else {
            let has_listener = || match &message.body {
                Body::Req(req) => {
                    self.with(|table| table.listener(req.service_id, addrs.to).is_some())
                }
                _ => false,
            };
            return gsi::pass_on(self, datagram, has_listener).or_else(|| match &message.body {
                Body::Req(req) => self.receive_req(&addrs, message.tid, req, None),
                _ => self.answer_unknown(&addrs, &message),
            });
        };
        match self.receive(id, &addrs, &message) {
            Ok(()) => Some(()),
            Err(Ignored::Duplicate) => {
                self.count(Stat::CmDuplicates);
                Some(())
            }
            // The peer has lost the state of the connection, if the REQ is not forged.
            Err(Ignored::Reused) => match &message.body {
                Body::Req(req) => self.receive_req(&addrs, message.tid, req, Some(id)),
                _ => None,
            },
            // The ID belongs to another connection. The sender means one of the second consumer, or
            // one that does not exist: then it would repeat a REP until it gives up.
            Err(Ignored::Source | Ignored::Ids) => {
                let is_rep = matches!(message.body, Body::Rep(_));
                let unknown = || {
                    is_rep
                        .then(|| self.answer_unknown(&addrs, &message))
                        .flatten()
                };
                gsi::pass_on(self, datagram, || false).or_else(unknown)
            }
            Err(_) => None,
        }
    }

    /// Answers a message about a connection that does not exist. `None` if the message has no
    /// answer, or there is no path to its sender. Sleeps.
    fn answer_unknown(&self, addrs: &AddrPair, message: &Message<'_>) -> Option<()> {
        let answer = message.unknown()?;
        let (_, path) = self.reply_path(addrs)?;
        self.send(&path, &answer);
        Some(())
    }

    /// The link that a datagram was sent to, and the path to its sender. Sleeps.
    fn reply_path(&self, addrs: &AddrPair) -> Option<(Arc<Link>, Arc<Path>)> {
        let link = self.socket().link_at(addrs.to, addrs.vrf)?;
        let path = Path::new(&link, addrs.to, addrs.from).ok()?;
        Some((link, path))
    }

    /// Passes a message to a connection, and does what the state machine asks for. Sleeps.
    fn receive(
        self: &Arc<Self>,
        id: CommId,
        addrs: &AddrPair,
        message: &Message<'_>,
    ) -> core::result::Result<(), Ignored> {
        let received = self.with_deadlines(|table| table.receive(now_ns(), id, addrs, message));
        // `None`: the connection has been removed since it was found.
        let received = received.ok_or(Ignored::State)?;
        if let Some(stale) = received.stale {
            self.finish(stale);
        }
        self.finish(received.step).map(|_| ())
    }

    /// Processes a REQ. `same_id` is the established connection of its sender that has its
    /// communication ID. `None` if it gets no answer. Sleeps.
    fn receive_req(
        self: &Arc<Self>,
        addrs: &AddrPair,
        tid: u64,
        req: &Req<'_>,
        same_id: Option<CommId>,
    ) -> Option<()> {
        let (link, path) = self.reply_path(addrs)?;
        match self.request(addrs, &link, &path, tid, req, same_id) {
            Ok((listener, request)) => {
                // A listener that was closed in the meantime returns the request; dropping it
                // rejects it.
                drop(listener.enqueue(request));
            }
            Err(NoRequest::Overloaded) => return None,
            Err(NoRequest::Refused(refusal)) => {
                self.send(&path, &refusal.message(tid, req.local_id));
            }
            Err(NoRequest::Screened(rejection)) => {
                if let Some(stat) = rejection.stat {
                    self.count(stat);
                }
                let private = Private::new(&rejection.private).unwrap_or(Private::NONE);
                let refusal = Refusal::new(Reason::CONSUMER_DEFINED);
                self.send(&path, &refusal.message_with(tid, req.local_id, private));
            }
        }
        Some(())
    }

    /// Creates the passive end, and the request for the listener. Sleeps.
    fn request(
        self: &Arc<Self>,
        addrs: &AddrPair,
        link: &Arc<Link>,
        path: &Arc<Path>,
        tid: u64,
        req: &Req<'_>,
        same_id: Option<CommId>,
    ) -> core::result::Result<(Arc<ListenerEntry>, KBox<Request>), NoRequest> {
        let no_room = || {
            self.count(Stat::CmNoRoom);
            NoRequest::Refused(Refusal::new(Reason::NO_RESOURCES))
        };
        let source = link.source(addrs.from);
        // A listener that demands proofs demands one of a peer whose source has no room, because
        // other users' listeners and forged REQs may have taken it.
        let (listener, must_prove) = self.with(|table| {
            let listener = table.listener(req.service_id, addrs.to);
            let stale = table.stale(req, addrs.from, same_id);
            let must_prove = stale.is_some() || table.is_full_for(source, Quota::Unanswered);
            (listener, must_prove)
        });
        let Some(listener) = listener else {
            self.count(Stat::CmNoListener);
            return Err(Refusal::new(Reason::INVALID_SERVICE_ID).into());
        };
        if listener.is_overloaded(source) {
            return Err(NoRequest::Overloaded);
        }
        if listener.is_delayed(addrs.from) {
            self.count(Stat::CmDelayed);
            return Err(NoRequest::Overloaded);
        }
        let proof = listener
            .screen(addrs.from, req.private.get(), must_prove)
            .map_err(NoRequest::Screened)?;
        let stale =
            self.with_deadlines(|table| table.end_stale(now_ns(), req, addrs.from, same_id, proof));
        // Two connections with one ID of the peer could not be distinguished.
        let is_refused = stale.is_some() || same_id.is_some();
        if let Some(stale) = stale {
            self.finish(stale);
        }
        if is_refused {
            return Err(Refusal::new(Reason::STALE_CONN).into());
        }
        let quota = match proof {
            SourceProof::Proven => Quota::None,
            SourceProof::Unproven | SourceProof::Unknown => Quota::Unanswered,
        };
        // Checked first, so that a REQ which is rejected for lack of room allocates only the path
        // of its answer.
        if self.with(|table| table.is_full_for(source, quota)) {
            return Err(no_room());
        }
        let slot = listener.reserve(source).ok_or_else(no_room)?;
        let mtu = PathMtu::of_interface(link.mtu()).ok_or_else(no_room)?;
        let device = self.device(addrs.to, mtu);
        let id = random_id();
        let (machine, requested) = Connection::request(&device, id, addrs.from, tid, req)?;
        let conn =
            Conn::new(self, id, path.clone(), listener.kind(), 0, None).map_err(|_| no_room())?;
        let request = Request {
            conn,
            service_id: req.service_id,
            params: Params::new(&requested),
            private: *requested.private,
            proof,
            open: false,
            _slot: slot,
        };
        let mut request = KBox::new(request, GFP_KERNEL_ACCOUNT).map_err(|_| no_room())?;
        let mut reservation = Reservation::new(Some(source)).map_err(|_| no_room())?;
        // An ID that is taken counts as lack of room: the peer may try again.
        self.insert(&request.conn, machine, quota, &mut reservation)
            .map_err(|_| no_room())?;
        request.open = true;
        if request.conn.is_gone() {
            // `Cm::sweep` may have run before the connection was in the table.
            request.conn.forget();
        }
        Ok((listener, request))
    }
}
