// SPDX-License-Identifier: GPL-2.0
//! The trait [`Attack`], the list of all attacks, and those on connection management.
//!
//! An attacker that is not on the path between the good flow's hosts can send all packets of this
//! file: with any source address, and with communication IDs that are random. The attacks know more
//! than such an attacker does: the GUIDs, ports and QPNs of the good flow. They leave out messages
//! that would then be legitimate messages of the peer, from the peer's address.

use super::{
    A, B, blind,
    datagrams::Datagrams,
    evidence::{Counter, Evidence},
    field::{Attacker, Facts, Field, crowd},
    greetings::OtherKeys,
    guessers::Guessers,
    half_open::HalfOpen,
    hoard::Hoard,
    mutate::Mutations,
    no_bytes::NoBytes,
    other_namespace::OtherNamespace,
    others_cookies::OthersCookies,
    owned::{self, Owned},
    packet::{Captured, Way, bad_request, request, to_gsi},
    peer::{epoch, greeting},
};
use crate::{hosts::sanitizing, rng::Rng};
use kfi::PacketCounter;
use kfi_core::rdm::{hello::PeerEpoch, service_id};
use kfi_roce::{
    cm::{
        Body, CommId, Drep, Dreq, IpHeader, Message, Mra, Private, Reason, Regarding, Rej, Rep,
        Req, Rtu, ServiceId, Timeout,
    },
    headers::Qpn,
    psn::Psn,
};
use std::{
    collections::HashMap,
    net::Ipv4Addr,
    time::{Duration, Instant},
};

/// Packets of a burst.
const BURST: usize = 8;

/// The part of an attack's packets that the hosts must have counted, if the module counts each one:
/// queues may lose some.
pub(super) const MOST: f64 = 0.5;

/// The part that they must have counted, if the kernel drops many packets before the module. A
/// kernel that checks itself sends less than a hundred in a phase, of which one is enough.
pub(super) fn some_part() -> f64 {
    if sanitizing() { 0.01 } else { 0.05 }
}

/// The least mean time between two answers to one request that no peer has confirmed: a REP is sent
/// again after 0.5 s for the first time (`Timing::first_reply`).
const REPLY_INTERVAL: Duration = Duration::from_millis(500);

/// How many answers to such a request are allowed in all: four REPs and a REJ.
const REPLIES: u32 = 5;

/// The pause between two requests whose answers are counted.
const REFLECTION_PAUSE: Duration = Duration::from_millis(20);

/// Requests whose answers are counted.
const REFLECTIONS: usize = 4096;

/// An attack: packets of one kind, sent by the attacker's host during the phases of the siege.
pub(super) trait Attack {
    /// Its name.
    fn name(&self) -> &'static str;

    /// A phase of it begins.
    fn begin(&mut self, _field: &Field) {}

    /// Sends some packets.
    fn burst(&mut self, attacker: &mut Attacker, at: &Facts, rng: &mut Rng);

    /// Handles a packet that has come to one of its addresses.
    fn receive(&mut self, _foe: &mut Attacker, _heard: &Captured) {}

    /// The statistics that show that its packets have reached the module. `None`:
    /// [`end`](Self::end) checks that they were answered.
    fn evidence(&self) -> Option<Evidence> {
        Some(Evidence::new(Counter::Gsi, MOST))
    }

    /// Whether it makes legitimate traffic of its own from [`begin`](Self::begin) to
    /// [`end`](Self::end), which slows the flow down although it is no attack.
    fn has_load(&self) -> bool {
        false
    }

    /// Whether it should go on, because it has not filled what it fills.
    fn wants_more(&self) -> bool {
        false
    }

    /// Closes the connections that it has kept, before its phase ends.
    fn leave(&mut self, _attacker: &mut Attacker) {}

    /// A phase of it ends. The error says what was wrong.
    fn end(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// Whether its peers never acknowledge, so that the victim must give them up.
    fn is_silent(&self) -> bool {
        false
    }

    /// Whether newcomers (good endpoints that are not connected yet) cannot be distinguished from
    /// the attacker, so that the victim may refuse them (bar them).
    fn may_bar_newcomers(&self) -> bool {
        false
    }
}

/// All attacks. An attack that needs source addresses of its own gets a number ([`crowd`]). The
/// last one may bar newcomers for some time.
pub(super) fn all() -> Vec<Box<dyn Attack>> {
    let make: [fn(u8) -> Box<dyn Attack>; 28] = [
        |number| Box::new(blind::Flood { number }),
        |_| Box::new(blind::Far { responses: false }),
        |_| Box::new(blind::Far { responses: true }),
        |_| Box::new(blind::Guesses),
        |_| Box::new(blind::Icmp),
        |_| Box::new(Mutations::new()),
        |_| Box::new(Datagrams::new()),
        |number| Box::new(Owned::new(number, owned::Cancels)),
        |number| Box::new(Owned::new(number, owned::Deliveries)),
        |number| Box::new(Owned::new(number, owned::Keys)),
        |number| Box::new(Owned::new(number, owned::BadAtomics)),
        |number| Box::new(Owned::new(number, owned::TaggedRma)),
        |number| Box::new(OtherKeys::new(number)),
        |number| Box::new(Rejected { number }),
        |number| Box::new(Disconnects { number }),
        |number| Box::new(Stale { number }),
        |number| Box::new(Reflection::new(number)),
        |_| Box::new(ToMany),
        |_| Box::new(Incarnation),
        |number| Box::new(Owned::new(number, owned::Reads)),
        |number| Box::new(owned::Timeouts::new(number)),
        |number| Box::new(Guessers::new(number)),
        |number| Box::new(NoBytes::new(number)),
        |number| Box::new(OthersCookies::new(number)),
        |_| Box::new(OtherNamespace::new()),
        |number| Box::new(Hoard::new(number)),
        |number| Box::new(HalfOpen::of_one_host(number)),
        |number| Box::new(HalfOpen::of_many_hosts(number)),
    ];
    (0..).zip(make).map(|(number, make)| make(number)).collect()
}

/// A service ID, of a service that `b` offers or does not offer.
pub(super) fn any_service(at: &Facts, rng: &mut Rng) -> ServiceId {
    match rng.below(6) {
        0 => service_id(rng.next() as u16),
        1 => ServiceId::tcp(rng.next() as u16),
        2 => ServiceId::tcp(at.listener),
        3 => service_id(at.greeter),
        4 => service_id(at.good[1]),
        _ => service_id(at.open),
    }
}

/// A QP that no good connection has.
pub(super) fn other_qpn(at: &Facts, rng: &mut Rng) -> Qpn {
    loop {
        let qpn = Qpn::new(rng.next() as u32);
        if !at.is_good(qpn) {
            return qpn;
        }
    }
}

/// The private data of a connected endpoint's REQ.
pub(super) fn ip_header(way: Way, port: u16) -> Vec<u8> {
    let header = IpHeader {
        src: way.from.into(),
        src_port: port,
        dst: way.to.into(),
    };
    header.write(&[]).expect("addresses of one kind").to_vec()
}

/// Private data with which a REQ may be accepted.
fn good_private(way: Way, service_id: ServiceId, rng: &mut Rng) -> Vec<u8> {
    let port = 1 + rng.below(0xffff) as u16;
    match service_id.tcp_port() {
        Some(_) => ip_header(way, port),
        None => greeting(epoch(rng), port).to_vec(),
    }
}

/// Sends a REQ of the device `guid` for its QP `qpn`, with random IDs. Returns its communication
/// ID.
pub(super) fn ask(
    attacker: &mut Attacker,
    rng: &mut Rng,
    way: Way,
    service_id: ServiceId,
    private: &[u8],
    guid: u64,
    qpn: Qpn,
) -> CommId {
    let local_id = CommId(rng.next() as u32);
    let req = Req {
        local_id,
        ca_guid: guid,
        qpn,
        ..request(way, service_id, private)
    };
    let (tid, body) = (rng.next(), Body::Req(req));
    attacker.send(&to_gsi(way, 0, &Message { tid, body }));
    local_id
}

/// A REQ that was sent.
pub(super) struct Asked {
    pub(super) way: Way,
    pub(super) service_id: ServiceId,
    pub(super) private: Vec<u8>,
    pub(super) qpn: Qpn,
}

/// Sends a REQ along `way` that some service may accept, of a device that asks once. Returns its
/// communication ID.
fn ask_anything(attacker: &mut Attacker, at: &Facts, rng: &mut Rng, way: Way) -> (CommId, Asked) {
    let service_id = any_service(at, rng);
    ask_service(attacker, at, rng, way, service_id)
}

/// The same to this service.
pub(super) fn ask_service(
    attacker: &mut Attacker,
    at: &Facts,
    rng: &mut Rng,
    way: Way,
    service_id: ServiceId,
) -> (CommId, Asked) {
    let private = good_private(way, service_id, rng);
    let (guid, qpn) = (rng.next(), other_qpn(at, rng));
    let id = ask(attacker, rng, way, service_id, &private, guid, qpn);
    let asked = Asked {
        way,
        service_id,
        private,
        qpn,
    };
    (id, asked)
}

/// The REJ that answers a request. A REP is counted in `accepted`.
pub(super) fn rejection<'a>(message: &'a Message<'a>, accepted: &mut u64) -> Option<&'a Rej<'a>> {
    match &message.body {
        Body::Rej(rej) => Some(rej),
        Body::Rep(_) => {
            *accepted += 1;
            None
        }
        _ => None,
    }
}

/// Requests that are rejected, with times as long as possible.
struct Rejected {
    number: u8,
}

impl Attack for Rejected {
    fn name(&self) -> &'static str {
        "rejected requests"
    }

    fn burst(&mut self, attacker: &mut Attacker, at: &Facts, rng: &mut Rng) {
        for _ in 0..BURST {
            let from = match rng.below(4) {
                0 => A,
                _ => crowd(self.number, rng),
            };
            let service_id = any_service(at, rng);
            let number = rng.next() as u32;
            attacker.send(&bad_request(Way::new(from, B), number, service_id));
        }
    }
}

/// Messages that would end a connection, or make one, if their communication IDs were right.
struct Disconnects {
    number: u8,
}

impl Attack for Disconnects {
    fn name(&self) -> &'static str {
        "messages with guessed communication IDs"
    }

    fn burst(&mut self, attacker: &mut Attacker, at: &Facts, rng: &mut Rng) {
        for _ in 0..BURST {
            let stream = rng.pick(&at.streams);
            let way = match rng.below(4) {
                0 => Way::new(crowd(self.number, rng), stream.way.to),
                _ => stream.way,
            };
            let [local_id, remote_id] = [(); 2].map(|()| CommId(rng.next() as u32));
            let guid = at.guids[usize::from(stream.way.from == B)];
            let info = guid.to_be_bytes();
            let gave_up = rng.one_in(2);
            let body = match rng.below(6) {
                0 => Body::Dreq(Dreq {
                    local_id,
                    remote_id,
                    remote_qpn: stream.qpn,
                    private: Private::NONE,
                }),
                1 => Body::Drep(Drep {
                    local_id,
                    remote_id,
                    private: Private::NONE,
                }),
                2 => Body::Rej(Rej {
                    local_id,
                    remote_id: if gave_up { CommId(0) } else { remote_id },
                    regarding: Regarding::Req,
                    reason: rng.pick(&[Reason::TIMEOUT, Reason::STALE_CONN, Reason::NO_QP]),
                    info: Private::new(&info).expect("a GUID"),
                    private: Private::NONE,
                }),
                3 => Body::Rtu(Rtu {
                    local_id,
                    remote_id,
                    private: Private::NONE,
                }),
                4 => Body::Mra(Mra {
                    local_id,
                    remote_id,
                    regarding: Regarding::Rep,
                    service_timeout: Timeout::MAX,
                    private: Private::NONE,
                }),
                _ => Body::Rep(Rep {
                    local_id,
                    remote_id,
                    qpn: other_qpn(at, rng),
                    starting_psn: Psn::new(0),
                    responder_resources: 1,
                    initiator_depth: 1,
                    target_ack_delay: Timeout::MAX,
                    failover: 0,
                    flow_control: false,
                    rnr_retry_count: 7,
                    srq: false,
                    ca_guid: guid,
                    private: Private::NONE,
                }),
            };
            let tid = rng.next();
            attacker.send(&to_gsi(way, 0, &Message { tid, body }));
        }
    }
}

/// Requests with the GUID of a peer, as if it had forgotten its connections.
struct Stale {
    number: u8,
}

impl Attack for Stale {
    fn name(&self) -> &'static str {
        "requests with a peer's GUID"
    }

    fn burst(&mut self, attacker: &mut Attacker, at: &Facts, rng: &mut Rng) {
        for _ in 0..BURST {
            // The peer's QP, from another address; or another QP, from the peer's address.
            let stream = rng.pick(&at.streams);
            let peers = at
                .streams
                .iter()
                .find(|other| other.way == stream.way.back());
            let (from, qpn) = match (rng.below(2), peers) {
                (0, Some(peers)) => (crowd(self.number, rng), peers.qpn),
                _ => (stream.way.from, other_qpn(at, rng)),
            };
            let way = Way::new(from, stream.way.to);
            let service_id = any_service(at, rng);
            let private = match rng.below(4) {
                0 => good_private(way, service_id, rng),
                _ => Vec::new(),
            };
            let guid = at.guids[usize::from(stream.way.from == B)];
            ask(attacker, rng, way, service_id, &private, guid, qpn);
        }
    }
}

/// The answers to one request.
struct Answered {
    count: u32,
    first: Instant,
    last: Instant,
}

/// One request with the address of each of many hosts, and the number of answers to each.
struct Reflection {
    number: u8,
    next: Instant,
    answered: HashMap<Ipv4Addr, Answered>,
}

impl Reflection {
    fn new(number: u8) -> Self {
        Self {
            number,
            next: Instant::now(),
            answered: HashMap::new(),
        }
    }
}

impl Attack for Reflection {
    fn name(&self) -> &'static str {
        "answers to one request"
    }

    fn burst(&mut self, attacker: &mut Attacker, at: &Facts, rng: &mut Rng) {
        let from = crowd(self.number, rng);
        if Instant::now() < self.next
            || self.answered.len() >= REFLECTIONS
            || self.answered.contains_key(&from)
        {
            return;
        }
        self.next = Instant::now() + REFLECTION_PAUSE;
        ask_anything(attacker, at, rng, Way::new(from, B));
    }

    fn receive(&mut self, _foe: &mut Attacker, captured: &Captured) {
        let now = Instant::now();
        let answered = self.answered.entry(captured.way.to).or_insert(Answered {
            count: 0,
            first: now,
            last: now,
        });
        answered.count += 1;
        answered.last = now;
    }

    fn end(&mut self) -> Result<(), String> {
        if self.answered.is_empty() {
            return Err("no request was answered".into());
        }
        for (ip, answered) in &self.answered {
            let time = answered.last - answered.first;
            // The capture may show two answers at once that were sent at different times.
            let allowed = 2 + (time.as_millis() / REPLY_INTERVAL.as_millis()) as u32;
            if answered.count > allowed.min(REPLIES) {
                let count = answered.count;
                return Err(format!(
                    "{count} answers in {time:?} to {ip}, for one request from this address"
                ));
            }
        }
        Ok(())
    }
}

/// Requests with source addresses that stand for many hosts, for no host, or for the victim.
struct ToMany;

impl Attack for ToMany {
    fn name(&self) -> &'static str {
        "requests from broadcast addresses"
    }

    fn evidence(&self) -> Option<Evidence> {
        // The kernel drops those with the address of all hosts, of a group, or of the victim
        // itself.
        Some(Evidence::new(
            Counter::Packets(&[PacketCounter::DropCm]),
            some_part(),
        ))
    }

    fn burst(&mut self, attacker: &mut Attacker, at: &Facts, rng: &mut Rng) {
        const SOURCES: [Ipv4Addr; 7] = [
            Ipv4Addr::new(192, 0, 2, 255),
            Ipv4Addr::new(192, 0, 2, 0),
            Ipv4Addr::BROADCAST,
            Ipv4Addr::new(224, 0, 0, 1),
            Ipv4Addr::UNSPECIFIED,
            Ipv4Addr::LOCALHOST,
            B,
        ];
        for _ in 0..BURST {
            let way = Way::new(rng.pick(&SOURCES), B);
            ask_anything(attacker, at, rng, way);
        }
    }
}

/// Requests with the addresses of endpoints that are about to connect, with the largest
/// incarnations, which take precedence over those of the endpoints.
struct Incarnation;

impl Attack for Incarnation {
    fn name(&self) -> &'static str {
        "requests of the last incarnation"
    }

    fn burst(&mut self, attacker: &mut Attacker, at: &Facts, rng: &mut Rng) {
        let ports: Vec<u16> = at.newcomers.clone().chain([at.good[0]]).collect();
        for _ in 0..BURST {
            let epoch = PeerEpoch {
                incarnation: u64::MAX - rng.below(4) / 3,
                epoch: rng.edge(),
            };
            let theirs = rng.pick(&ports);
            // To the passive end, or to the active one.
            let (way, from, to) = match rng.below(2) {
                0 => (Way::new(A, B), theirs, rng.pick(&[at.greeter, at.good[1]])),
                _ => (Way::new(B, A), rng.pick(&[at.greeter, at.good[1]]), theirs),
            };
            let private = greeting(epoch, from);
            let guid = at.guids[usize::from(way.from == B)];
            let qpn = other_qpn(at, rng);
            ask(attacker, rng, way, service_id(to), &private, guid, qpn);
        }
    }
}
