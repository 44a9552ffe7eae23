// SPDX-License-Identifier: GPL-2.0
//! Connection management: the effect of each message in each state, the checks against forged
//! messages, and routing.

use kfi_roce::cm::{
    Attribute,
    Body,
    CommId,
    Event,
    Ignored,
    Mad,
    Message,
    Private,
    Reason,
    Regarding,
    Rej,
    Route,
    State, //
};
use std::net::IpAddr;

mod wire;
use wire::cm::{
    all,
    messages,
    rej,
    End,
    ACTIVE_GUID,
    ACTIVE_ID,
    ANSWER_INTERVAL,
    PASSIVE_ID, //
};

/// Returns the effect of a message: the name of the event or error, the next state, and the message
/// sent.
fn effect(active: bool, state: State, message: &Mad) -> String {
    let mut end = End::in_state(active, state);
    end.now += ANSWER_INTERVAL;
    let outcome = end.event(message, |event| match event {
        None => "ok",
        Some(Event::Reply(_)) => "Reply",
        Some(Event::Established(_)) => "Established",
        Some(Event::Rejected { .. }) => "Rejected",
        Some(Event::Unreachable) => "Unreachable",
        Some(Event::Disconnected(_)) => "Disconnected",
        Some(Event::Released) => "Released",
        Some(Event::Closed) => "Closed",
    });
    let what = match outcome {
        Ok(what) => what,
        Err(ignored) => ignored.name(),
    };
    let after = if end.state() == state {
        ""
    } else {
        end.state().name()
    };
    let sent = end.sent().map_or("", Attribute::name);
    [what, after, sent]
        .into_iter()
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(", ")
}

#[test]
fn effects_of_messages_on_the_active_end() {
    // The columns are REQ, MRA, REJ, REP, RTU, DREQ, DREP.
    let table = [
        (
            State::ReqSent,
            [
                "ids",
                "ok",
                "Rejected, TIMEWAIT",
                "Reply, REP RECEIVED",
                "ids",
                "state",
                "state",
            ],
        ),
        (
            State::RepReceived,
            [
                "ids",
                "state",
                "Rejected, TIMEWAIT",
                "duplicate, MRA",
                "ids",
                "state",
                "state",
            ],
        ),
        (
            State::Established,
            [
                "ids",
                "state",
                "Disconnected, TIMEWAIT",
                "duplicate, RTU",
                "ids",
                "Disconnected, TIMEWAIT, DREP",
                "state",
            ],
        ),
        (
            State::DreqSent,
            [
                "ids",
                "state",
                "Released, TIMEWAIT",
                "state",
                "ids",
                "Released, TIMEWAIT, DREP",
                "Released, TIMEWAIT",
            ],
        ),
        (
            State::Timewait,
            [
                "ids",
                "state",
                "duplicate",
                "duplicate",
                "ids",
                "duplicate, DREP",
                "duplicate",
            ],
        ),
        (State::Closed, ["state"; 7]),
    ];
    for (state, row) in table {
        for ((attribute, message), expected) in messages(true).iter().zip(row) {
            let effect = effect(true, state, message);
            assert_eq!(effect, expected, "{} in {state:?}", attribute.name());
        }
    }
}

#[test]
fn effects_of_messages_on_the_passive_end() {
    // The columns are REQ, MRA, REJ, REP, RTU, DREQ, DREP.
    let table = [
        (
            State::ReqReceived,
            [
                "duplicate, MRA",
                "state",
                "Rejected, TIMEWAIT",
                "ids",
                "state",
                "state",
                "state",
            ],
        ),
        (
            State::RepSent,
            [
                "duplicate, REP",
                "ok",
                "Rejected, TIMEWAIT",
                "ids",
                "Established, ESTABLISHED",
                "Disconnected, TIMEWAIT, DREP",
                "state",
            ],
        ),
        (
            State::Established,
            [
                "duplicate",
                "state",
                "Disconnected, TIMEWAIT",
                "ids",
                "duplicate",
                "Disconnected, TIMEWAIT, DREP",
                "state",
            ],
        ),
        (
            State::DreqSent,
            [
                "duplicate",
                "state",
                "Released, TIMEWAIT",
                "ids",
                "state",
                "Released, TIMEWAIT, DREP",
                "Released, TIMEWAIT",
            ],
        ),
        (
            State::Timewait,
            [
                "duplicate",
                "state",
                "duplicate",
                "ids",
                "duplicate",
                "duplicate, DREP",
                "duplicate",
            ],
        ),
        (State::Closed, ["state"; 7]),
    ];
    for (state, row) in table {
        for ((attribute, message), expected) in messages(false).iter().zip(row) {
            let effect = effect(false, state, message);
            assert_eq!(effect, expected, "{} in {state:?}", attribute.name());
        }
    }
}

#[test]
fn messages_with_wrong_ids_are_ignored() {
    for (active, state) in all() {
        for (attribute, good) in messages(active) {
            let mut end = End::in_state(active, state);
            let before = format!("{:?}", end.connection);
            let message = Message::parse(&good).unwrap();
            for ip in [
                "10.0.0.9",
                "10.0.0.1",
                "10.0.0.2",
                "::1",
                "::ffff:10.0.0.1",
                "::",
            ] {
                let ip: IpAddr = ip.parse().unwrap();
                if ip == end.peer() {
                    continue;
                }
                let answer = end.connection.receive(0, ip, &message);
                assert_eq!(answer, Err(Ignored::Source));
            }
            // Bytes 24 and 28 of a datagram are the first of the sender's ID and, except in a REQ,
            // of the receiver's ID. The QP of a DREQ and the GUID of a REQ come later.
            let places: &[usize] = match attribute {
                Attribute::Req => &[24, 27, 40, 47],
                Attribute::Dreq => &[24, 27, 28, 31, 32, 34],
                _ => &[24, 27, 28, 31],
            };
            for at in places {
                let mut bad = good;
                bad[*at] ^= 1;
                // The peer's ID is unknown in REQ SENT.
                let unknown = state == State::ReqSent && *at < 28;
                if unknown && matches!(attribute, Attribute::Rep | Attribute::Mra | Attribute::Rej)
                {
                    continue;
                }
                let answer = end.receive(&bad);
                assert!(
                    matches!(answer, Err(Ignored::Ids | Ignored::State)),
                    "{} with byte {at} wrong in {state:?}: {answer:?}",
                    attribute.name()
                );
            }
            assert_eq!(format!("{:?}", end.connection), before);
        }
    }
}

#[test]
fn messages_are_routed_to_their_connections() {
    for active in [true, false] {
        let local = if active { ACTIVE_ID } else { PASSIVE_ID };
        for (attribute, mad) in messages(active) {
            let message = Message::parse(&mad).unwrap();
            let route = match attribute {
                Attribute::Req => Route::Request {
                    ca_guid: ACTIVE_GUID,
                    remote_id: ACTIVE_ID,
                },
                _ => Route::Local(local),
            };
            assert_eq!(message.route(), route);
            // Two kinds of messages are answered without a connection.
            let answer = message.unknown();
            let answer = answer.as_ref().map(|mad| Message::parse(mad).unwrap());
            match (attribute, answer) {
                (Attribute::Dreq, Some(answer)) => {
                    assert_eq!(answer.tid, message.tid);
                    assert_eq!(answer.attribute(), Attribute::Drep);
                    // The answer ends the wait of the sender.
                    let mut sender = End::in_state(!active, State::DreqSent);
                    let answer = answer.write();
                    assert_eq!(sender.receive(&answer), Ok(()));
                }
                (Attribute::Rep, Some(answer)) => {
                    let no = answer.write();
                    let (from, to) = (local, if active { PASSIVE_ID } else { ACTIVE_ID });
                    assert_eq!(
                        rej(&no),
                        (from, to, Regarding::Rep, Reason::INVALID_COMM_ID)
                    );
                    if active {
                        let mut sender = End::in_state(false, State::RepSent);
                        assert_eq!(sender.receive(&no), Ok(()));
                    }
                }
                (_, answer) => assert_eq!(answer, None),
            }
        }
    }
    // A timeout that has the receiver's ID is routed by it.
    let guid = ACTIVE_GUID.to_be_bytes();
    let mut rej = Rej {
        local_id: ACTIVE_ID,
        remote_id: PASSIVE_ID,
        regarding: Regarding::Other,
        reason: Reason::TIMEOUT,
        info: Private::new(&guid).unwrap(),
        private: Private::NONE,
    };
    let route = |rej: Rej<'_>| {
        Message {
            tid: 0,
            body: Body::Rej(rej),
        }
        .route()
    };
    assert_eq!(route(rej), Route::Local(PASSIVE_ID));
    rej.remote_id = CommId(0);
    rej.info = Private::new(&guid[..7]).unwrap();
    assert_eq!(route(rej), Route::Local(CommId(0)));
    rej.info = Private::new(&guid).unwrap();
    rej.reason = Reason::NO_QP;
    assert_eq!(route(rej), Route::Local(CommId(0)));
}
