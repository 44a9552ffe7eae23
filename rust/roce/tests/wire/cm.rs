// SPDX-License-Identifier: GPL-2.0
//! The two ends of a connection, and the messages that they may receive.

use kfi_roce::{
    cm::{
        Attribute,
        Body,
        CommId,
        Connect,
        Connection,
        Device,
        Drep,
        Dreq,
        Event,
        Ignored,
        Mad,
        Message,
        Mra,
        Private,
        Reason,
        Regarding,
        Rej,
        Rep,
        Rtu,
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
use std::net::{
    IpAddr,
    Ipv4Addr, //
};

pub(crate) const ACTIVE_IP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
pub(crate) const PASSIVE_IP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
pub(crate) const ACTIVE_ID: CommId = CommId(0xaaaa_0001);
pub(crate) const PASSIVE_ID: CommId = CommId(0xbbbb_0002);
pub(crate) const ACTIVE_GUID: u64 = 0xaaaa_aaaa_aaaa_aaaa;
pub(crate) const PASSIVE_GUID: u64 = 0xbbbb_bbbb_bbbb_bbbb;
pub(crate) const ACTIVE_QPN: Qpn = Qpn::new(0x1a);
pub(crate) const PASSIVE_QPN: Qpn = Qpn::new(0x2b);
pub(crate) const TID: u64 = 0x1000;
pub(crate) const SERVICE: ServiceId = ServiceId::tcp(7471);
pub(crate) const MS: u64 = 1_000_000;

/// Retransmission after 8 ms, then after 17, 34 and 34 ms.
pub(crate) const TIMING: Timing = Timing {
    first: Timeout::new(11),
    longest: Timeout::new(13),
    retries: 4,
    first_reply: Timeout::new(13),
    reply_retries: 3,
    service: Timeout::new(16),
    longest_service: Timeout::new(18),
    life_time: Timeout::new(10),
};

/// The interval in ns in which a repeated REQ is answered at most once: half of the first interval.
pub(crate) const ANSWER_INTERVAL: u64 = TIMING.first.ns() / 2;

pub(crate) const ACTIVE: Device = Device {
    ca_guid: ACTIVE_GUID,
    ip: ACTIVE_IP,
    mtu: PathMtu::Mtu4096,
    responder_resources: 16,
    initiator_depth: 16,
    timing: TIMING,
};

pub(crate) const PASSIVE: Device = Device {
    ca_guid: PASSIVE_GUID,
    ip: PASSIVE_IP,
    mtu: PathMtu::Mtu1024,
    ..ACTIVE
};

pub(crate) const ACTIVE_SIDE: Side = Side {
    qpn: ACTIVE_QPN,
    starting_psn: Psn::new(0x11_1111),
    responder_resources: 3,
    initiator_depth: 5,
    rnr_retry_count: 6,
    srq: false,
};

pub(crate) const PASSIVE_SIDE: Side = Side {
    qpn: PASSIVE_QPN,
    starting_psn: Psn::new(0x22_2222),
    responder_resources: 4,
    initiator_depth: 7,
    rnr_retry_count: 2,
    srq: true,
};

pub(crate) const CONNECT: Connect<'_> = Connect {
    local_id: ACTIVE_ID,
    tid: TID,
    remote: PASSIVE_IP,
    service_id: SERVICE,
    side: ACTIVE_SIDE,
    mtu: PathMtu::Mtu1024,
    least_mtu: PathMtu::Mtu256,
    retry_count: 7,
    private: Private::NONE,
};

/// A connection with the current time.
pub(crate) struct End {
    pub(crate) connection: Connection,
    pub(crate) now: u64,
}

impl End {
    /// Returns the active end and its REQ.
    pub(crate) fn active() -> (Self, Mad) {
        let mut end = Self {
            connection: Connection::connect(0, &ACTIVE, &CONNECT),
            now: 0,
        };
        let req = end.connection.transmit().unwrap();
        (end, req)
    }

    /// Returns the passive end that this REQ makes.
    pub(crate) fn passive(req: &Mad) -> Self {
        let Ok(Message {
            tid,
            body: Body::Req(req),
        }) = Message::parse(req)
        else {
            panic!("no REQ");
        };
        let passive = Connection::request(&PASSIVE, PASSIVE_ID, ACTIVE_IP, tid, &req);
        let (connection, _) = passive.unwrap();
        Self { connection, now: 0 }
    }

    /// Returns an end in this state, after an exchange with a peer.
    pub(crate) fn in_state(active: bool, state: State) -> Self {
        let (mut one, req) = Self::active();
        let mut other = Self::passive(&req);
        let mut steps = 0;
        loop {
            let mine = if active { &mut one } else { &mut other };
            if mine.connection.state() == state {
                // The last message of this end has been sent.
                mine.connection.transmit();
                return if active { one } else { other };
            }
            match steps {
                0 => other.accept(),
                1 => one.receive(&other.connection.transmit().unwrap()).unwrap(),
                2 => one.confirm(),
                3 => other.receive(&one.connection.transmit().unwrap()).unwrap(),
                4 => mine.disconnect(),
                5 => mine.wait_for(Some(Event::Released)),
                6 => mine.wait_for(Some(Event::Closed)),
                _ => panic!("{state:?} is not reached"),
            }
            steps += 1;
        }
    }

    pub(crate) fn accept(&mut self) {
        let private = Private::new(b"accepted").unwrap();
        let answer = self.connection.accept(self.now, &PASSIVE_SIDE, private);
        assert_eq!(answer, Ok(()));
    }

    pub(crate) fn confirm(&mut self) {
        let private = Private::new(b"confirmed").unwrap();
        assert_eq!(self.connection.confirm(self.now, private), Ok(()));
    }

    pub(crate) fn disconnect(&mut self) {
        let private = Private::new(b"bye").unwrap();
        assert_eq!(self.connection.disconnect(self.now, private), Ok(()));
    }

    pub(crate) fn peer(&self) -> IpAddr {
        self.connection.peer()
    }

    /// Passes a message of the peer.
    pub(crate) fn receive(&mut self, mad: &Mad) -> Result<(), Ignored> {
        self.event(mad, |_| ())
    }

    /// Passes a message of the peer, and the event for the consumer to `f`.
    pub(crate) fn event<T>(
        &mut self,
        mad: &Mad,
        f: impl FnOnce(Option<Event<'_>>) -> T,
    ) -> Result<T, Ignored> {
        let message = Message::parse(mad).unwrap();
        let peer = self.peer();
        self.connection.receive(self.now, peer, &message).map(f)
    }

    /// Advances the time to the deadline and handles it.
    pub(crate) fn expire(&mut self) -> Option<Event<'static>> {
        let deadline = self.connection.deadline().unwrap();
        assert!(deadline >= self.now);
        // A call before the deadline has no effect.
        if let Some(before) = deadline.checked_sub(1).filter(|before| *before >= self.now) {
            assert_eq!(self.connection.expired(before), None);
            assert_eq!(self.connection.deadline(), Some(deadline));
        }
        self.now = deadline;
        self.connection.expired(deadline)
    }

    /// Advances the time until this event, which must be the first one.
    pub(crate) fn wait_for(&mut self, event: Option<Event<'static>>) {
        loop {
            let next = self.expire();
            if next == event {
                return;
            }
            assert_eq!(next, None);
        }
    }

    /// Returns the kind of the message to be sent.
    pub(crate) fn sent(&mut self) -> Option<Attribute> {
        let mad = self.connection.transmit()?;
        assert!(self.connection.transmit().is_none());
        Some(Message::parse(&mad).unwrap().attribute())
    }

    pub(crate) fn state(&self) -> State {
        self.connection.state()
    }
}

pub(crate) fn mad(tid: u64, body: Body<'_>) -> Mad {
    Message { tid, body }.write()
}

/// Returns the fields of the REJ in this datagram: both IDs, the message that it refers to, the
/// reason.
pub(crate) fn rej(mad: &Mad) -> (CommId, CommId, Regarding, Reason) {
    match Message::parse(mad).unwrap().body {
        Body::Rej(rej) => (rej.local_id, rej.remote_id, rej.regarding, rej.reason),
        other => panic!("no REJ: {other:?}"),
    }
}

/// Returns all kinds of messages that the peer of an end can send, with the right IDs.
pub(crate) fn messages(active: bool) -> [(Attribute, Mad); 7] {
    let (_, req) = End::active();
    let (local_id, remote_id) = if active {
        (PASSIVE_ID, ACTIVE_ID)
    } else {
        (ACTIVE_ID, PASSIVE_ID)
    };
    let regarding = if active {
        Regarding::Req
    } else {
        Regarding::Rep
    };
    let mra = Mra {
        local_id,
        remote_id,
        regarding,
        service_timeout: Timeout::new(14),
        private: Private::NONE,
    };
    let rej = Rej {
        local_id,
        remote_id,
        regarding: Regarding::Other,
        reason: Reason::CONSUMER_DEFINED,
        info: Private::NONE,
        private: Private::new(b"no").unwrap(),
    };
    let rep = Rep {
        local_id,
        remote_id,
        qpn: PASSIVE_QPN,
        starting_psn: Psn::new(5),
        responder_resources: 0,
        initiator_depth: 0,
        target_ack_delay: Timeout::new(0),
        failover: 0,
        flow_control: false,
        rnr_retry_count: 0,
        srq: false,
        ca_guid: PASSIVE_GUID,
        private: Private::NONE,
    };
    let rtu = Rtu {
        local_id,
        remote_id,
        private: Private::NONE,
    };
    let dreq = Dreq {
        local_id,
        remote_id,
        remote_qpn: if active { ACTIVE_QPN } else { PASSIVE_QPN },
        private: Private::new(b"enough").unwrap(),
    };
    let drep = Drep {
        local_id,
        remote_id,
        private: Private::NONE,
    };
    [
        (Attribute::Req, req),
        (Attribute::Mra, mad(TID, Body::Mra(mra))),
        (Attribute::Rej, mad(TID, Body::Rej(rej))),
        (Attribute::Rep, mad(TID, Body::Rep(rep))),
        (Attribute::Rtu, mad(TID, Body::Rtu(rtu))),
        (Attribute::Dreq, mad(0x77, Body::Dreq(dreq))),
        (Attribute::Drep, mad(TID + 1, Body::Drep(drep))),
    ]
}

pub(crate) const STATES: [State; 8] = [
    State::ReqSent,
    State::ReqReceived,
    State::RepSent,
    State::RepReceived,
    State::Established,
    State::DreqSent,
    State::Timewait,
    State::Closed,
];

pub(crate) fn exists(active: bool, state: State) -> bool {
    !matches!(
        (active, state),
        (true, State::ReqReceived | State::RepSent) | (false, State::ReqSent | State::RepReceived)
    )
}

/// Returns every state of both ends.
pub(crate) fn all() -> impl Iterator<Item = (bool, State)> {
    [true, false]
        .into_iter()
        .flat_map(|active| STATES.map(|state| (active, state)))
        .filter(|(active, state)| exists(*active, *state))
}

pub(crate) fn ns(code: u8) -> u64 {
    Timeout::new(code).ns()
}
