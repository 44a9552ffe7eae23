// SPDX-License-Identifier: GPL-2.0
//! A connection of the attacker's own. The attacker requests and confirms it as any peer does; then
//! it sends any request over it, and any answer.

use super::{
    field::Attacker,
    packet::{Captured, Way, to_gsi, whole},
};
use crate::{raw::now, rng::Rng};
use kfi_core::{
    auth_key::AuthKey,
    flags::Caps,
    rdm::{
        Cookie, Hello,
        header::{Header, MAX_HEADER},
        hello::{HELLO_LEN, PeerEpoch, Refusal},
    },
};
use kfi_roce::{
    cm::{self, Body, CommId, Event, Message, Route},
    headers::{Aeth, Bth, Headers, Nak, Qpn, SendEnd, Syndrome},
    mtu::PathMtu,
    packet::Packet,
    psn::Psn,
};
use std::time::{Duration, Instant};

/// The time without packets after which the attacker gives up a connection.
const PATIENCE: Duration = Duration::from_secs(3);

/// The bytes of a greeting (the private data in a REQ of reliable datagrams) of `epoch` at `port`.
pub(super) fn greeting(epoch: PeerEpoch, port: u16) -> [u8; HELLO_LEN] {
    let hello = Hello {
        peer_epoch: epoch,
        port,
        name_port: port,
        reads: 16,
        caps: Caps::MSG
            | Caps::TAGGED
            | Caps::TAGGED_RMA
            | Caps::RMA
            | Caps::RECV
            | Caps::ATOMIC
            | Caps::REMOTE_READ
            | Caps::REMOTE_WRITE,
        cookie: None,
        auth_key: AuthKey::NONE,
    };
    bytes_of(&hello)
}

fn bytes_of(hello: &Hello) -> [u8; HELLO_LEN] {
    let mut bytes = [0; HELLO_LEN];
    hello.put(&mut bytes).expect("room");
    bytes
}

/// A greeting with a cookie.
pub(super) fn with_cookie(greeting: &[u8], cookie: Cookie) -> [u8; HELLO_LEN] {
    let hello = Hello::parse(greeting).expect("a greeting");
    bytes_of(&Hello {
        cookie: Some(cookie),
        ..hello
    })
}

/// A greeting with another authorization key.
pub(super) fn with_key(greeting: &[u8], auth_key: AuthKey) -> [u8; HELLO_LEN] {
    let hello = Hello::parse(greeting).expect("a greeting");
    bytes_of(&Hello { auth_key, ..hello })
}

/// A greeting of a context of a scalable endpoint whose name has this port.
pub(super) fn with_name(greeting: &[u8], name_port: u16) -> [u8; HELLO_LEN] {
    let hello = Hello::parse(greeting).expect("a greeting");
    bytes_of(&Hello { name_port, ..hello })
}

/// The cookie of a rejection by an endpoint that asks for it.
pub(super) fn cookie_of(private: &[u8]) -> Option<Cookie> {
    match Refusal::parse(private) {
        Some(Refusal::Retry(cookie)) => Some(cookie),
        _ => None,
    }
}

/// A random epoch, which no other endpoint has.
pub(super) fn epoch(rng: &mut Rng) -> PeerEpoch {
    PeerEpoch {
        incarnation: rng.next(),
        epoch: 1 + rng.below(1000),
    }
}

/// What a packet names at the end to which it goes. It tells connections of one address apart.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Named {
    Connection(CommId),
    Qp(Qpn),
}

impl Named {
    pub(super) fn by(captured: &Captured) -> Option<Self> {
        match captured.message() {
            Some(message) => match message.route() {
                Route::Local(id) => Some(Self::Connection(id)),
                _ => None,
            },
            None => captured.packet().map(|packet| Self::Qp(packet.bth.dest_qp)),
        }
    }
}

/// One end of a connection, made by hand.
pub(super) struct Peer {
    way: Way,
    machine: cm::Connection,
    /// What it has requested, and its GUID.
    service_id: cm::ServiceId,
    private: Vec<u8>,
    ca_guid: u64,
    qpn: Qpn,
    /// The other end's QP, once it is known.
    theirs: Option<Qpn>,
    /// The PSN with which this end begins.
    first: Psn,
    /// Requests that the other end has acknowledged, as packets.
    pub(super) acknowledged: u32,
    /// Time of the last packet.
    captured: Instant,
    dead: bool,
}

impl Peer {
    /// Sends a REQ for a service along `way`, as `change` has changed it.
    pub(super) fn ask(
        attacker: &mut Attacker,
        rng: &mut Rng,
        way: Way,
        service_id: cm::ServiceId,
        private: &[u8],
        change: impl FnOnce(&mut cm::Req<'_>),
    ) -> Self {
        let any = |rng: &mut Rng| Qpn::new(2 + rng.below(0xff_0000) as u32);
        let (qpn, first) = (any(rng), Psn::new(rng.next() as u32));
        let ca_guid = rng.next();
        let local_id = cm::CommId(rng.next() as u32 | 1);
        let machine = connect(way, service_id, private, ca_guid, qpn, local_id);
        let mut peer = Self {
            way,
            machine,
            service_id,
            private: private.to_vec(),
            ca_guid,
            qpn,
            theirs: None,
            first,
            acknowledged: 0,
            captured: Instant::now(),
            dead: false,
        };
        peer.send_request(attacker, change);
        peer
    }

    /// Accepts the request that `captured` has, with this private data. `None`: it has none.
    pub(super) fn accept(
        attacker: &mut Attacker,
        rng: &mut Rng,
        captured: &Captured,
        private: &[u8],
    ) -> Option<Self> {
        let message = captured.message()?;
        let Body::Req(req) = &message.body else {
            return None;
        };
        let way = captured.way.back();
        let qpn = Qpn::new(2 + rng.below(0xff_0000) as u32);
        let (ca_guid, local_id) = (rng.next(), cm::CommId(rng.next() as u32 | 1));
        let device = device(way, ca_guid);
        let from = way.to.into();
        let made = cm::Connection::request(&device, local_id, from, message.tid, req);
        let (mut machine, request) = made.expect("a good request");
        let (theirs, first) = (request.qpn, request.starting_psn);
        let private = cm::Private::new(private).expect("private data");
        let side = side(qpn, Psn::new(local_id.0));
        machine.accept(now(), &side, private).expect("a request");
        let mad = machine.transmit().expect("a REP");
        let rep = Message::parse(&mad).expect("a REP");
        attacker.send(&to_gsi(way, 0, &rep));
        Some(Self {
            way,
            machine,
            service_id: req.service_id,
            private: Vec::new(),
            ca_guid,
            qpn,
            theirs: Some(theirs),
            first,
            acknowledged: 0,
            captured: Instant::now(),
            dead: false,
        })
    }

    /// Sends the REQ that the machine has made, as `change` has changed it.
    fn send_request(&mut self, attacker: &mut Attacker, change: impl FnOnce(&mut cm::Req<'_>)) {
        let mad = self.machine.transmit().expect("a REQ");
        let mut message = Message::parse(&mad).expect("a REQ");
        if let Body::Req(req) = &mut message.body {
            change(req);
        }
        attacker.send(&to_gsi(self.way, 0, &message));
    }

    /// Sends the REQ again, with a cookie, for a new connection.
    fn ask_again(&mut self, attacker: &mut Attacker, refused: cm::CommId, cookie: Cookie) {
        self.private = with_cookie(&self.private, cookie).to_vec();
        let local_id = cm::CommId(refused.0.wrapping_add(2));
        self.machine = connect(
            self.way,
            self.service_id,
            &self.private,
            self.ca_guid,
            self.qpn,
            local_id,
        );
        self.send_request(attacker, |_| ());
    }

    /// Whether a packet is for this end.
    pub(super) fn is_for(&self, captured: &Captured) -> bool {
        captured.way.back() == self.way
    }

    /// Whether a packet that comes to its address is for this end.
    pub(super) fn is(&self, named: Named) -> bool {
        match named {
            Named::Connection(id) => self.machine.local_id() == id,
            Named::Qp(qpn) => self.qpn == qpn,
        }
    }

    /// Whether the connection was made, and has not failed, however long nothing has arrived.
    pub(super) fn is_connected(&self) -> bool {
        self.theirs.is_some() && !self.dead
    }

    /// Whether the connection has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.dead
    }

    /// Disconnects, if the connection is made.
    pub(super) fn leave(&mut self, attacker: &mut Attacker) {
        let _ = self.machine.disconnect(now(), cm::Private::NONE);
        self.send_next(attacker);
    }

    /// Whether the connection has failed, or nothing has arrived for too long.
    pub(super) fn is_dead(&self) -> bool {
        self.dead || self.captured.elapsed() > PATIENCE
    }

    /// Whether the connection is made.
    pub(super) fn is_up(&self) -> bool {
        self.theirs.is_some() && !self.is_dead()
    }

    /// Takes a packet. Returns it if it is for this end's QP.
    pub(super) fn receive(
        &mut self,
        attacker: &mut Attacker,
        captured: &Captured,
    ) -> Option<Packet> {
        let packet = captured.packet()?;
        if packet.bth.dest_qp == self.qpn {
            self.captured = Instant::now();
            self.note(&packet);
            return Some(packet);
        }
        let message = captured.message()?;
        let from = self.way.to.into();
        match self.machine.receive(now(), from, &message) {
            Ok(Some(Event::Reply(reply))) => {
                self.theirs = Some(reply.qpn);
                // The PSN with which this end begins, from the other end.
                self.first = reply.starting_psn;
                self.captured = Instant::now();
                let _ = self.machine.confirm(now(), cm::Private::NONE);
            }
            Ok(Some(Event::Rejected { private, .. })) => {
                let (Some(cookie), Body::Rej(rej)) = (cookie_of(private), &message.body) else {
                    self.dead = true;
                    return None;
                };
                self.ask_again(attacker, rej.remote_id, cookie);
            }
            Ok(None | Some(Event::Established(_))) | Err(_) => {}
            Ok(Some(_)) => self.dead = true,
        }
        self.send_next(attacker);
        None
    }

    /// Sends the message that the machine has made, if there is one.
    fn send_next(&mut self, attacker: &mut Attacker) {
        if let Some(mad) = self.machine.transmit() {
            let message = Message::parse(&mad).expect("a message");
            attacker.send(&to_gsi(self.way, 0, &message));
        }
    }

    /// Records an acknowledgement of its requests.
    fn note(&mut self, packet: &Packet) {
        let psn = packet.bth.psn;
        let before = match packet.headers() {
            Headers::Acknowledge(aeth) => match aeth.syndrome {
                Syndrome::Ack(_) => psn.next(),
                Syndrome::Rnr(_) | Syndrome::Nak(Nak::Sequence) => psn,
                Syndrome::Nak(_) => {
                    self.dead = true;
                    return;
                }
            },
            Headers::ReadResponseLast(_) | Headers::ReadResponseOnly(_) => psn.next(),
            _ => return,
        };
        let done = before.since(self.first);
        if !Psn::new(done).is_before(Psn::new(self.acknowledged)) {
            self.acknowledged = done;
        }
    }

    /// Sends the request that is `number` packets behind the first.
    pub(super) fn request(
        &self,
        attacker: &mut Attacker,
        number: u32,
        headers: Headers,
        payload: &[u8],
    ) {
        let Some(theirs) = self.theirs else {
            return;
        };
        let bth = Bth {
            ack_req: true,
            ..Bth::new(theirs, self.first.add(number))
        };
        let packet = Packet::new(bth, headers, payload.len());
        attacker.send(&whole(self.way, &packet, payload));
    }

    /// Sends a header of reliable datagrams, and `payload` behind it, as a SEND.
    pub(super) fn say(
        &self,
        attacker: &mut Attacker,
        number: u32,
        header: &Header,
        payload: &[u8],
    ) {
        let mut bytes = [0; MAX_HEADER];
        let len = header.put(&mut bytes).expect("room");
        let bytes = [&bytes[..len], payload].concat();
        self.request(attacker, number, Headers::SendOnly(SendEnd::Plain), &bytes);
    }

    /// Answers a request of the other end.
    pub(super) fn answer(&self, attacker: &mut Attacker, to: &Packet, syndrome: Syndrome) {
        let Some(theirs) = self.theirs else {
            return;
        };
        let msn = Psn::new(0);
        let headers = Headers::Acknowledge(Aeth { syndrome, msn });
        let packet = Packet::new(Bth::new(theirs, to.bth.psn), headers, 0);
        attacker.send(&whole(self.way, &packet, &[]));
    }
}

/// The device `ca_guid` at the beginning of `way`.
fn device(way: Way, ca_guid: u64) -> cm::Device {
    cm::Device {
        ca_guid,
        ip: way.from.into(),
        mtu: PathMtu::Mtu1024,
        responder_resources: 16,
        initiator_depth: 16,
        timing: cm::Timing::DEFAULT,
    }
}

/// What a QP offers to its peer, which begins with this PSN.
fn side(qpn: Qpn, starting_psn: Psn) -> cm::Side {
    cm::Side {
        qpn,
        starting_psn,
        responder_resources: 16,
        initiator_depth: 16,
        rnr_retry_count: 7,
        srq: false,
    }
}

/// A connection of the device `ca_guid` for its QP `qpn`, which requests a service along `way`.
fn connect(
    way: Way,
    service_id: cm::ServiceId,
    private: &[u8],
    ca_guid: u64,
    qpn: Qpn,
    local_id: cm::CommId,
) -> cm::Connection {
    let device = device(way, ca_guid);
    let connect = cm::Connect {
        local_id,
        tid: local_id.0.into(),
        remote: way.to.into(),
        service_id,
        side: side(qpn, Psn::new(local_id.0)),
        mtu: PathMtu::Mtu1024,
        least_mtu: PathMtu::Mtu1024,
        retry_count: 7,
        private: cm::Private::new(private).expect("private data"),
    };
    cm::Connection::connect(now(), &device, &connect)
}
