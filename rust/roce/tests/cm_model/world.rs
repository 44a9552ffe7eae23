// SPDX-License-Identifier: GPL-2.0
//! The hosts, the network between them, and the queue of events.

use super::rng::Rng;
use kfi_roce::{
    cm::{
        Body,
        CommId,
        Connect,
        Connection,
        Device,
        Event,
        Ignored,
        Mad,
        Message,
        Private,
        Reason,
        Refusal,
        Route,
        ServiceId,
        Side,
        State,
        Timeout,
        Timing, //
    },
    headers::Qpn,
    mtu::PathMtu,
    psn::Psn, //
};
use std::{
    collections::BTreeMap,
    net::{
        IpAddr,
        Ipv4Addr, //
    }, //
};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// Retransmission after 8 ms, then after 17, 34, 34 ms and so on.
const TIMING: Timing = Timing {
    first: Timeout::new(11),
    longest: Timeout::new(13),
    retries: 8,
    first_reply: Timeout::new(13),
    reply_retries: 3,
    service: Timeout::new(16),
    longest_service: Timeout::new(18),
    life_time: Timeout::new(11),
};

/// The longest delay of a datagram: less than the packet life time of 8 ms.
const LONGEST_DELAY: u64 = 5 * MS;

const SERVICE: ServiceId = ServiceId::tcp(7);

/// An action of a consumer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Act {
    Accept,
    Confirm,
    Reject,
    Ignore,
    Disconnect,
    Abandon,
    /// A packet arrives at the QP.
    Packet,
}

/// An event in the queue.
#[derive(Debug)]
pub(super) enum What {
    /// A datagram arrives at a host.
    Datagram(usize, Box<Mad>),
    /// A consumer of a host acts on a connection.
    Act(usize, CommId, Act),
    /// A host requests a connection.
    Connect(usize),
    /// A host loses its state.
    Restart(usize),
}

/// The events of a connection that its consumer has seen.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) active: bool,
    /// The peer's QP, PSN and private data.
    pub(super) peer: Option<(Qpn, Psn, Vec<u8>)>,
    pub(super) mine: Option<(Qpn, Psn, Vec<u8>)>,
    /// The path MTU, once it is known.
    pub(super) mtu: Option<PathMtu>,
    /// The peer has no acceptable path MTU.
    pub(super) no_common_mtu: bool,
    pub(super) connected: bool,
    pub(super) ended: Option<&'static str>,
    pub(super) closed: bool,
    pub(super) gave_up: bool,
    /// The consumer has ignored the request, and the peer was not asked to wait.
    pub(super) ignored: bool,
    /// The request, identified by the active end's ID.
    pub(super) request: u32,
    /// The number of timer expirations.
    pub(super) expired: u32,
    pub(super) sent: u32,
}

pub(super) struct Host {
    pub(super) device: Device,
    pub(super) connections: BTreeMap<CommId, Connection>,
    pub(super) histories: BTreeMap<CommId, History>,
    next_id: u32,
    next_qpn: u32,
}

impl Host {
    fn by_peer(&self, guid: u64, id: CommId) -> Option<CommId> {
        let mut all = self.connections.iter();
        all.find(|(_, connection)| {
            connection.remote_guid() == guid && connection.remote_id() == Some(id)
        })
        .map(|(id, _)| *id)
    }

    fn by_peer_qp(&self, guid: u64, qpn: Qpn, not: Option<CommId>) -> Option<CommId> {
        let mut all = self.connections.iter();
        all.find(|(id, connection)| {
            (connection.remote_guid(), connection.remote_qpn()) == (guid, qpn)
                && connection.state() == State::Established
                && Some(**id) != not
        })
        .map(|(id, _)| *id)
    }

    fn side(&mut self, random: &mut Rng) -> Side {
        self.next_qpn += 1;
        Side {
            qpn: Qpn::new(self.next_qpn),
            starting_psn: Psn::new(random.u64() as u32),
            responder_resources: 4,
            initiator_depth: 4,
            rnr_retry_count: 7,
            srq: false,
        }
    }
}

/// The parameters of the faults.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub(super) loss: u32,
    pub(super) duplication: u32,
    pub(super) reject: u32,
    pub(super) abandon: u32,
    pub(super) slow: u32,
    pub(super) restart: u32,
}

pub(super) struct World {
    now: u64,
    seq: u64,
    queue: BTreeMap<(u64, u64), What>,
    pub(super) hosts: [Host; 2],
    random: Rng,
    pub(super) faults: Faults,
    pub(super) restarts: u32,
    traced: bool,
}

/// Describes a message in one line.
pub(super) fn describe(message: &Message<'_>) -> String {
    let name = message.attribute().name();
    match &message.body {
        Body::Req(req) => format!("{name} of {:x}", req.local_id.0),
        Body::Rej(rej) => format!(
            "{name} {:x} -> {:x}: {}",
            rej.local_id.0,
            rej.remote_id.0,
            rej.reason.text().to_str().unwrap()
        ),
        _ => match message.route() {
            Route::Local(id) => format!("{name} -> {:x}", id.0),
            _ => name.into(),
        },
    }
}

/// Returns the name of an event.
pub(super) fn name(event: &Event<'_>) -> &'static str {
    match event {
        Event::Reply(_) => "Reply",
        Event::Established(_) => "Established",
        Event::Rejected { .. } => "Rejected",
        Event::Unreachable => "Unreachable",
        Event::Disconnected(_) => "Disconnected",
        Event::Released => "Released",
        Event::Closed => "Closed",
    }
}

pub(super) fn device(number: u8) -> Device {
    Device {
        ca_guid: 0x1111_1111_1111_1111 * u64::from(number + 1),
        ip: IpAddr::V4(Ipv4Addr::new(10, 0, 0, number + 1)),
        mtu: PathMtu::Mtu1024,
        responder_resources: 16,
        initiator_depth: 16,
        timing: TIMING,
    }
}

impl World {
    pub(super) fn new(seed: u64, traced: bool) -> Self {
        let mut random = Rng::new(seed);
        let faults = Faults {
            loss: random.pick(&[0, 0, 5, 20, 50]),
            duplication: random.pick(&[0, 0, 10, 50]),
            reject: random.pick(&[0, 0, 20]),
            abandon: random.pick(&[0, 0, 20]),
            slow: random.pick(&[0, 0, 30]),
            restart: random.pick(&[0, 0, 0, 30]),
        };
        let mut host = |number| Host {
            device: Device {
                mtu: PathMtu::ALL[random.below(5) as usize],
                ..device(number)
            },
            connections: BTreeMap::new(),
            histories: BTreeMap::new(),
            next_id: u32::from(number + 1) << 24,
            next_qpn: 1,
        };
        let hosts = [host(0), host(1)];
        let mut world = Self {
            now: 0,
            seq: 0,
            queue: BTreeMap::new(),
            hosts,
            random,
            faults,
            restarts: 0,
            traced,
        };
        world.trace(|| format!("seed {seed}: {faults:?}"));
        for _ in 0..1 + world.random.below(4) {
            let who = world.random.below(2) as usize;
            let after = world.random.below(20 * MS);
            world.plan(after, What::Connect(who));
        }
        if world.random.chance(100 * faults.restart) {
            let who = world.random.below(2) as usize;
            let after = world.random.below(60 * MS);
            world.plan(after, What::Restart(who));
            for who in [0, 1, 0, 1] {
                let after = after + world.random.below(60 * MS);
                world.plan(after, What::Connect(who));
            }
        }
        world
    }

    fn plan(&mut self, after: u64, what: What) {
        self.seq += 1;
        self.queue.insert((self.now + after, self.seq), what);
    }

    /// Plans an action of a consumer at a random time.
    fn plan_act(&mut self, who: usize, id: CommId, act: Act) {
        let slow = self.random.chance(100 * self.faults.slow);
        let after = if slow {
            self.random.below(400 * MS)
        } else {
            self.random.below(2 * MS)
        };
        self.plan(after, What::Act(who, id, act));
    }

    fn send(&mut self, from: usize, mad: Mad) {
        self.trace(|| format!("from {from}: {}", describe(&Message::parse(&mad).unwrap())));
        let copies = if self.random.chance(100 * self.faults.loss) {
            0
        } else if self.random.chance(100 * self.faults.duplication) {
            1 + self.random.below(3)
        } else {
            1
        };
        for _ in 0..copies {
            let after = 20 * US + self.random.below(LONGEST_DELAY - 20 * US);
            self.plan(after, What::Datagram(1 - from, Box::new(mad)));
        }
    }

    /// Sends the pending message of a connection, if there is one.
    fn transmit(&mut self, who: usize, id: CommId) {
        let host = &mut self.hosts[who];
        let Some(connection) = host.connections.get_mut(&id) else {
            return;
        };
        let mad = connection.transmit();
        assert_eq!(connection.transmit(), None);
        if let Some(mad) = mad {
            if let Some(history) = host.histories.get_mut(&id) {
                history.sent += 1;
            }
            self.send(who, mad);
        }
    }

    fn connect(&mut self, who: usize) {
        let peer = self.hosts[1 - who].device;
        let host = &mut self.hosts[who];
        host.next_id += 1;
        let id = CommId(host.next_id);
        let side = host.side(&mut self.random);
        let private = [self.random.u64() as u8; 20];
        let least_mtu = PathMtu::ALL[self.random.below(10).saturating_sub(5) as usize];
        let connect = Connect {
            local_id: id,
            tid: self.random.u64(),
            remote: peer.ip,
            service_id: SERVICE,
            side,
            mtu: PathMtu::Mtu4096,
            least_mtu,
            retry_count: 7,
            private: Private::new(&private).unwrap(),
        };
        let connection = Connection::connect(self.now, &host.device, &connect);
        host.connections.insert(id, connection);
        let history = History {
            active: true,
            mine: Some((side.qpn, side.starting_psn, private.to_vec())),
            request: id.0,
            no_common_mtu: peer.mtu < least_mtu.min(host.device.mtu),
            ..History::default()
        };
        assert!(host.histories.insert(id, history).is_none());
        if self.random.chance(100 * self.faults.abandon) {
            let after = self.random.below(100 * MS);
            self.plan(after, What::Act(who, id, Act::Abandon));
        }
        self.transmit(who, id);
    }

    /// Executes an action of a consumer. The connection refuses it in a wrong state.
    fn act(&mut self, who: usize, id: CommId, act: Act) {
        self.trace(|| format!("{who}: {:x} {act:?}", id.0));
        let now = self.now;
        let host = &mut self.hosts[who];
        let side = host.side(&mut self.random);
        let Some(connection) = host.connections.get_mut(&id) else {
            return;
        };
        let history = host.histories.get_mut(&id).unwrap();
        let state = connection.state();
        let mut next = None;
        match act {
            Act::Accept => {
                let private = [self.random.u64() as u8; 30];
                let accepted = Private::new(&private).unwrap();
                if connection.accept(now, &side, accepted).is_ok() {
                    history.mine = Some((side.qpn, side.starting_psn, private.to_vec()));
                    next = Some(Act::Packet);
                }
            }
            Act::Confirm => {
                let private = Private::new(b"ready").unwrap();
                if connection.confirm(now, private).is_ok() {
                    history.connected = true;
                    next = Some(Act::Disconnect);
                }
            }
            Act::Reject => {
                let private = Private::new(b"no").unwrap();
                let reason = Reason::CONSUMER_DEFINED;
                let answer = connection.reject(now, reason, Private::NONE, private);
                history.gave_up |= answer.is_ok();
            }
            Act::Ignore => {
                let answer = connection.ignore(now, Reason::NO_RESOURCES);
                history.gave_up |= answer.is_ok();
                if answer.is_ok() && connection.state() == State::Closed {
                    assert_eq!((connection.transmit(), connection.deadline()), (None, None));
                    history.ignored = true;
                    history.closed = true;
                    host.connections.remove(&id);
                    return;
                }
            }
            Act::Disconnect => {
                let _ = connection.disconnect(now, Private::NONE);
            }
            Act::Abandon => {
                connection.abandon(now);
                history.gave_up |= state != State::Closed;
            }
            // Some packets arrive at the QP before the RTU.
            Act::Packet => {
                let other = &self.hosts[1 - who];
                let request = CommId(self.hosts[who].histories[&id].request);
                let ready = other.histories.get(&request).is_some_and(|s| s.connected);
                let host = &mut self.hosts[who];
                let connection = host.connections.get_mut(&id).unwrap();
                if ready && self.random.chance(5_000) && connection.communication_established() {
                    host.histories.get_mut(&id).unwrap().connected = true;
                    next = Some(Act::Disconnect);
                }
            }
        }
        self.transmit(who, id);
        if let Some(next) = next {
            self.plan_end(who, id, next);
        }
    }

    /// Plans the time at which a connected consumer disconnects.
    fn plan_end(&mut self, who: usize, id: CommId, act: Act) {
        let after = self.random.below(50 * MS);
        self.plan(after, What::Act(who, id, act));
    }

    /// Prints a line if tracing is on.
    fn trace(&self, what: impl FnOnce() -> String) {
        if self.traced {
            println!("{:>10.3} ms  {}", self.now as f64 / MS as f64, what());
        }
    }

    /// Handles an event at a consumer.
    fn handle_event(&mut self, who: usize, id: CommId, event: Event<'_>) {
        self.trace(|| format!("{who}: {:x} gets {}", id.0, name(&event)));
        let reject = self.random.chance(100 * self.faults.reject);
        let host = &mut self.hosts[who];
        let state = host.connections[&id].state();
        let history = host.histories.get_mut(&id).unwrap();
        assert!(!history.closed, "an event after it was closed");
        let end = match event {
            Event::Closed => {
                assert_eq!(state, State::Closed);
                assert!(
                    history.ended.is_some() || history.gave_up,
                    "closed without a reason"
                );
                history.closed = true;
                assert_eq!(host.connections[&id].deadline(), None);
                host.connections.remove(&id);
                return;
            }
            Event::Reply(reply) => {
                assert!(history.active && !history.gave_up && history.ended.is_none());
                assert_eq!(history.peer, None);
                let private = reply.private[..30].to_vec();
                history.peer = Some((reply.qpn, reply.starting_psn, private));
                history.mtu = Some(reply.mtu);
                let (guid, qpn) = (host.connections[&id].remote_guid(), reply.qpn);
                if let Some(stale) = host.by_peer_qp(guid, qpn, Some(id)) {
                    self.stale(who, stale);
                    let connection = self.hosts[who].connections.get_mut(&id).unwrap();
                    let none = (Private::NONE, Private::NONE);
                    let no = connection.reject(self.now, Reason::STALE_CONN, none.0, none.1);
                    assert_eq!(no, Ok(()));
                    self.hosts[who].histories.get_mut(&id).unwrap().gave_up = true;
                    return;
                }
                let act = if reject { Act::Reject } else { Act::Confirm };
                self.plan_act(who, id, act);
                return;
            }
            Event::Established(private) => {
                assert!(!history.active && !history.connected && history.ended.is_none());
                assert!(private.starts_with(b"ready\0"));
                history.connected = true;
                self.plan_end(who, id, Act::Disconnect);
                return;
            }
            Event::Rejected { .. }
            | Event::Unreachable
            | Event::Disconnected(_)
            | Event::Released => name(&event),
        };
        assert!(!history.gave_up, "{end} after the consumer gave up");
        assert_eq!(history.ended.replace(end), None);
    }

    /// Handles the loss of a connection at the peer.
    fn stale(&mut self, who: usize, id: CommId) {
        let connection = self.hosts[who].connections.get_mut(&id).unwrap();
        if let Some(event) = connection.stale(self.now) {
            self.handle_event(who, id, event);
        }
        self.transmit(who, id);
    }

    fn datagram(&mut self, who: usize, mad: &Mad) {
        let from = device(1 - who as u8).ip;
        let message = Message::parse(mad).unwrap();
        self.trace(|| format!("to {who}: {}", describe(&message)));
        let host = &self.hosts[who];
        let id = match message.route() {
            Route::Local(id) => host.connections.contains_key(&id).then_some(id),
            Route::Request { ca_guid, remote_id } | Route::Remote { ca_guid, remote_id } => {
                host.by_peer(ca_guid, remote_id)
            }
        };
        match (id, &message.body) {
            (Some(id), _) => {
                let connection = self.hosts[who].connections.get_mut(&id).unwrap();
                match (connection.receive(self.now, from, &message), &message.body) {
                    (Ok(Some(event)), _) => self.handle_event(who, id, event),
                    (Err(Ignored::Reused), Body::Req(req)) => {
                        self.stale(who, id);
                        let no = Refusal::new(Reason::STALE_CONN);
                        self.send(who, no.message(message.tid, req.local_id));
                    }
                    _ => {}
                }
                self.transmit(who, id);
            }
            (None, Body::Req(req)) => {
                if let Some(stale) = host.by_peer_qp(req.ca_guid, req.qpn, None) {
                    self.stale(who, stale);
                    let no = Refusal::new(Reason::STALE_CONN);
                    self.send(who, no.message(message.tid, req.local_id));
                    return;
                }
                let host = &mut self.hosts[who];
                host.next_id += 1;
                let id = CommId(host.next_id);
                let passive = Connection::request(&host.device, id, from, message.tid, req);
                let (connection, request) = match passive {
                    Ok(passive) => passive,
                    Err(no) => {
                        assert_eq!(no.reason(), Reason::INVALID_MTU);
                        self.send(who, no.message(message.tid, req.local_id));
                        return;
                    }
                };
                host.connections.insert(id, connection);
                let history = History {
                    peer: Some((
                        request.qpn,
                        request.starting_psn,
                        request.private[..20].to_vec(),
                    )),
                    request: req.local_id.0,
                    mtu: Some(request.mtu),
                    ..History::default()
                };
                host.histories.insert(id, history);
                let act = if !self.random.chance(100 * self.faults.reject) {
                    Act::Accept
                } else if self.random.chance(5_000) {
                    Act::Ignore
                } else {
                    Act::Reject
                };
                self.plan_act(who, id, act);
            }
            (None, _) => {
                if let Some(answer) = message.unknown() {
                    self.send(who, answer);
                }
            }
        }
    }

    /// Discards the state of a host. New connections get IDs in the same way as before.
    fn restart(&mut self, who: usize) {
        self.trace(|| format!("{who}: restarts"));
        let host = &mut self.hosts[who];
        host.connections.clear();
        for history in host.histories.values_mut() {
            history.closed = true;
        }
        host.next_qpn = 1;
        if self.random.chance(5_000) {
            host.next_id = (who as u32 + 1) << 24;
            host.histories.clear();
        }
        self.restarts += 1;
    }

    /// Runs until there are no more events.
    pub(super) fn run(&mut self) {
        loop {
            let timers = self.hosts.iter().enumerate().flat_map(|(who, host)| {
                let deadlines = host.connections.iter();
                deadlines.filter_map(move |(id, connection)| {
                    connection.deadline().map(|deadline| (deadline, who, *id))
                })
            });
            let timer = timers.min();
            let next = self.queue.first_key_value().map(|(key, _)| *key);
            match (timer, next) {
                (None, None) => return,
                (Some((deadline, who, id)), next) if next.is_none_or(|next| deadline <= next.0) => {
                    self.now = self.now.max(deadline);
                    let host = &mut self.hosts[who];
                    let connection = host.connections.get_mut(&id).unwrap();
                    host.histories.get_mut(&id).unwrap().expired += 1;
                    if let Some(event) = connection.expired(self.now) {
                        self.handle_event(who, id, event);
                    }
                    self.transmit(who, id);
                }
                (_, Some(key)) => {
                    self.now = key.0;
                    match self.queue.remove(&key).unwrap() {
                        What::Datagram(to, mad) => self.datagram(to, &mad),
                        What::Act(who, id, act) => self.act(who, id, act),
                        What::Connect(who) => self.connect(who),
                        What::Restart(who) => self.restart(who),
                    }
                }
                (Some(_), None) => unreachable!(),
            }
            assert!(self.now < 60_000 * MS, "it does not end");
        }
    }
}
