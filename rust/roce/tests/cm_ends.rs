// SPDX-License-Identifier: GPL-2.0
//! Connection management: losses, rejections, disconnects, and peers that lose their state.

use kfi_roce::cm::{
    Attribute,
    Body,
    CommId,
    Connection,
    Event,
    Ignored,
    Message,
    Mra,
    Private,
    Reason,
    Regarding,
    Route,
    State,
    Timeout,
    Timing, //
};

mod wire;
use wire::cm::{
    all,
    exists,
    mad,
    messages,
    ns,
    rej,
    End,
    ACTIVE,
    ACTIVE_GUID,
    ACTIVE_ID,
    ANSWER_INTERVAL,
    CONNECT,
    MS,
    PASSIVE_ID,
    STATES,
    TID,
    TIMING, //
};

// Losses.

#[test]
fn an_unanswered_message_is_retransmitted_and_fails() {
    const ALL: [u8; 5] = [11, 12, 13, 13, 13];
    for (active, state, what, waits) in [
        (true, State::ReqSent, Attribute::Req, &ALL[..]),
        // The REP is sent fewer times, because its receiver may not have requested it.
        (false, State::RepSent, Attribute::Rep, &[13, 14, 15, 16]),
        (true, State::DreqSent, Attribute::Dreq, &ALL),
        (false, State::DreqSent, Attribute::Dreq, &ALL),
    ] {
        let mut end = End::in_state(active, state);
        let start = end.now;
        let mut intervals = Vec::new();
        for _ in 1..waits.len() {
            let before = end.now;
            assert_eq!(end.expire(), None);
            assert_eq!(end.state(), state);
            assert_eq!(end.sent(), Some(what));
            intervals.push(Timeout::at_least(end.now - before).code());
        }
        assert_eq!(intervals, waits[..waits.len() - 1]);
        let event = if state == State::DreqSent {
            Event::Released
        } else {
            Event::Unreachable
        };
        assert_eq!(end.expire(), Some(event));
        assert_eq!(end.now - start, waits.iter().copied().map(ns).sum());
        assert_eq!(end.state(), State::Timewait);
        // A REJ tells the peer, in case that it exists.
        let last = (state != State::DreqSent).then_some(Attribute::Rej);
        assert_eq!(end.sent(), last);
        assert_eq!(end.expire(), Some(Event::Closed));
        assert_eq!(
            (end.state(), end.connection.deadline()),
            (State::Closed, None)
        );
        assert_eq!(end.sent(), None);
    }
}

#[test]
fn retransmissions_are_identical() {
    for (active, state) in [
        (true, State::ReqSent),
        (false, State::RepSent),
        (true, State::DreqSent),
    ] {
        let mut end = End::in_state(active, state);
        end.expire();
        let first = end.connection.transmit().unwrap();
        end.expire();
        assert_eq!(end.connection.transmit(), Some(first));
    }
}

#[test]
fn a_late_timer_causes_one_retransmission() {
    let (mut end, _) = End::active();
    let late = 3_600_000 * MS;
    assert_eq!(end.connection.expired(late), None);
    assert_eq!(end.sent(), Some(Attribute::Req));
    // One retransmission, and no further one before the next interval.
    assert_eq!(end.connection.deadline(), Some(late + ns(12)));
    assert_eq!(end.connection.expired(late), None);
    assert_eq!(end.sent(), None);
    // A deadline at the end of time does not overflow.
    let mut end = Connection::connect(u64::MAX - 1, &ACTIVE, &CONNECT);
    assert_eq!(end.deadline(), Some(u64::MAX));
    while end.expired(u64::MAX).is_none() {}
    assert_eq!(end.state(), State::Timewait);
}

#[test]
fn the_peer_cannot_change_the_retransmission_of_a_reply() {
    let (_, mut req) = End::active();
    // The local response timeout is in the upper five bits of byte 47.
    for timeout in [0, 12, 15, 20, 21, 31] {
        req[24 + 47] = timeout << 3 | req[24 + 47] & 7;
        let mut passive = End::passive(&req);
        passive.accept();
        let mut waits = Vec::new();
        loop {
            let before = passive.now;
            let event = passive.expire();
            waits.push(Timeout::at_least(passive.now - before).code());
            if event.is_some() {
                break;
            }
        }
        assert_eq!(waits, [13, 14, 15, 16]);
    }
}

#[test]
fn a_slow_consumer_asks_for_time() {
    let (mut active, req) = End::active();
    let mut passive = End::passive(&req);
    assert_eq!(active.expire(), None);
    let again = active.connection.transmit().unwrap();
    assert_eq!(passive.receive(&again), Err(Ignored::Duplicate));
    let mra = passive.connection.transmit().unwrap();
    match Message::parse(&mra).unwrap().body {
        Body::Mra(mra) => {
            assert_eq!((mra.local_id, mra.remote_id), (PASSIVE_ID, ACTIVE_ID));
            assert_eq!(mra.regarding, Regarding::Req);
            assert_eq!(mra.service_timeout, TIMING.service);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(active.event(&mra, |event| event.is_none()), Ok(true));
    let deadline = active.connection.deadline().unwrap();
    assert_eq!(deadline, active.now + ns(16) + ns(13));
    // Only the first MRA extends the wait.
    active.now += MS;
    assert_eq!(active.receive(&mra), Err(Ignored::Duplicate));
    assert_eq!(active.connection.deadline(), Some(deadline));
    // Then the retransmissions continue.
    assert_eq!(active.expire(), None);
    assert_eq!(active.sent(), Some(Attribute::Req));
    passive.accept();
    let rep = passive.connection.transmit().unwrap();
    assert_eq!(active.receive(&rep), Ok(()));
    // The same holds for the consumer of the active end.
    assert_eq!(passive.expire(), None);
    let again = passive.connection.transmit().unwrap();
    assert_eq!(active.receive(&again), Err(Ignored::Duplicate));
    let mra = active.connection.transmit().unwrap();
    assert_eq!(passive.receive(&mra), Ok(()));
    let longest = Timing::LIMIT.ns();
    assert_eq!(
        passive.connection.deadline(),
        Some(passive.now + ns(16) + longest)
    );
    active.confirm();
    let rtu = active.connection.transmit().unwrap();
    assert_eq!(passive.receive(&rtu), Ok(()));
    assert_eq!(passive.state(), State::Established);
}

#[test]
fn the_wait_for_a_peer_is_limited() {
    let mra = |service: u8, regarding| {
        let mra = Mra {
            local_id: PASSIVE_ID,
            remote_id: ACTIVE_ID,
            regarding,
            service_timeout: Timeout::new(service),
            private: Private::NONE,
        };
        mad(TID, Body::Mra(mra))
    };
    for (asked, granted) in [(0, 0), (17, 17), (18, 18), (19, 18), (31, 18)] {
        let (mut end, _) = End::active();
        assert_eq!(end.receive(&mra(asked, Regarding::Req)), Ok(()));
        let deadline = ns(granted) + ns(13);
        assert_eq!(end.connection.deadline(), Some(deadline));
    }
    for regarding in [Regarding::Rep, Regarding::Other] {
        let (mut end, _) = End::active();
        assert_eq!(end.receive(&mra(10, regarding)), Err(Ignored::State));
    }
}

#[test]
fn a_lost_rtu_is_recovered() {
    // The repeated REP causes another RTU,
    let mut active = End::in_state(true, State::Established);
    let mut passive = End::in_state(false, State::RepSent);
    passive.expire();
    let rep = passive.connection.transmit().unwrap();
    assert_eq!(active.receive(&rep), Err(Ignored::Duplicate));
    let rtu = active.connection.transmit().unwrap();
    let private = passive.event(&rtu, |event| match event {
        Some(Event::Established(private)) => private.to_vec(),
        other => panic!("{other:?}"),
    });
    assert!(private.unwrap().starts_with(b"confirmed\0"));
    // or a packet on the QP establishes the connection.
    let mut passive = End::in_state(false, State::RepSent);
    assert!(passive.connection.communication_established());
    assert_eq!(passive.state(), State::Established);
    assert_eq!(passive.connection.deadline(), None);
    assert!(!passive.connection.communication_established());
    assert_eq!(passive.receive(&rtu), Err(Ignored::Duplicate));
}

#[test]
fn a_lost_rep_is_sent_again_at_once() {
    let mut passive = End::in_state(false, State::RepSent);
    let (_, req) = End::active();
    let deadline = passive.connection.deadline();
    // Not more often than once in an interval.
    assert_eq!(passive.receive(&req), Err(Ignored::Duplicate));
    assert_eq!(passive.sent(), None);
    passive.now += ANSWER_INTERVAL;
    assert_eq!(passive.receive(&req), Err(Ignored::Duplicate));
    assert_eq!(passive.sent(), Some(Attribute::Rep));
    // The answer does not count as a retransmission.
    assert_eq!(passive.connection.deadline(), deadline);
}

#[test]
fn an_answered_message_is_not_retransmitted() {
    // A retransmission was due, and the answer arrived before it was sent.
    for (active, state, answers) in [
        (true, State::ReqSent, &[Attribute::Rep, Attribute::Rej][..]),
        (false, State::RepSent, &[Attribute::Rtu, Attribute::Rej]),
        (true, State::DreqSent, &[Attribute::Drep, Attribute::Rej]),
        (false, State::DreqSent, &[Attribute::Drep, Attribute::Rej]),
    ] {
        for answer in answers {
            let mut end = End::in_state(active, state);
            assert_eq!(end.expire(), None);
            let all = messages(active);
            let (_, mad) = all.iter().find(|(kind, _)| kind == answer).unwrap();
            assert_eq!(end.event(mad, |event| event.is_some()), Ok(true));
            assert_eq!(end.sent(), None, "{state:?}");
        }
    }
    // The same holds for a message without an answer, once the connection is over.
    let mut end = End::in_state(true, State::DreqSent);
    end.wait_for(Some(Event::Released));
    assert_eq!(end.sent(), None);
    let all = messages(true);
    let (_, dreq) = all
        .iter()
        .find(|(kind, _)| *kind == Attribute::Dreq)
        .unwrap();
    assert_eq!(end.receive(dreq), Err(Ignored::Duplicate));
    end.wait_for(Some(Event::Closed));
    assert_eq!(end.sent(), None);
}

// Rejections.

#[test]
fn a_consumer_can_reject() {
    let mut passive = End::in_state(false, State::ReqReceived);
    let info = Private::new(&[1, 2, 3]).unwrap();
    let private = Private::new(b"go away").unwrap();
    passive
        .connection
        .reject(0, Reason::CONSUMER_DEFINED, info, private)
        .unwrap();
    assert_eq!(passive.state(), State::Timewait);
    let no = passive.connection.transmit().unwrap();
    let (mut active, req) = End::active();
    let received = active.event(&no, |event| match event {
        Some(Event::Rejected {
            reason,
            info,
            private,
        }) => {
            assert_eq!(reason, Reason::CONSUMER_DEFINED);
            assert_eq!(info, [1, 2, 3]);
            assert_eq!(private.len(), 148);
            assert!(private.starts_with(b"go away\0"));
        }
        other => panic!("{other:?}"),
    });
    assert_eq!(received, Ok(()));
    assert_eq!(active.state(), State::Timewait);
    assert_eq!(active.expire(), Some(Event::Closed));
    // The REJ may have been lost, so it is sent again for as long as the peer may repeat its REQ.
    passive.now += ANSWER_INTERVAL;
    assert_eq!(passive.receive(&req), Err(Ignored::Duplicate));
    assert_eq!(passive.connection.transmit(), Some(no));
    let linger = ns(13) + 2 * ns(11);
    assert_eq!(passive.connection.deadline(), Some(passive.now + linger));
    assert_eq!(passive.expire(), Some(Event::Closed));

    let mut active = End::in_state(true, State::RepReceived);
    active
        .connection
        .reject(0, Reason::NO_QP, Private::NONE, Private::NONE)
        .unwrap();
    let no = active.connection.transmit().unwrap();
    assert_eq!(
        rej(&no),
        (ACTIVE_ID, PASSIVE_ID, Regarding::Rep, Reason::NO_QP)
    );
    let mut passive = End::in_state(false, State::RepSent);
    assert_eq!(passive.receive(&no), Ok(()));
    assert_eq!(passive.state(), State::Timewait);
    // It is sent again too.
    let mut other = End::in_state(false, State::RepSent);
    other.expire();
    let rep = other.connection.transmit().unwrap();
    assert_eq!(active.receive(&rep), Err(Ignored::Duplicate));
    assert_eq!(active.connection.transmit(), Some(no));
}

#[test]
fn a_rejection_is_remembered_while_the_peer_may_ask() {
    let linger = ns(13) + 2 * ns(11);
    let (_, req) = End::active();
    for state in [State::ReqReceived, State::RepSent] {
        for give_up in [false, true] {
            let mut passive = End::in_state(false, state);
            if state == State::RepSent && give_up {
                passive.wait_for(Some(Event::Unreachable));
            } else {
                passive.connection.abandon(passive.now);
            }
            let deadline = passive.now + linger;
            assert_eq!(passive.connection.deadline(), Some(deadline));
            passive.sent();
            // Each repetition extends the time, but only as often as there are retries.
            for _ in 0..TIMING.retries {
                passive.now += ns(13);
                assert_eq!(passive.receive(&req), Err(Ignored::Duplicate));
                assert_eq!(passive.sent(), Some(Attribute::Rej));
                let deadline = passive.now + linger;
                assert_eq!(passive.connection.deadline(), Some(deadline));
            }
            let deadline = passive.connection.deadline();
            passive.now += ANSWER_INTERVAL;
            assert_eq!(passive.receive(&req), Err(Ignored::Duplicate));
            assert_eq!(passive.sent(), Some(Attribute::Rej));
            assert_eq!(passive.connection.deadline(), deadline);
        }
    }
    // The time is longer if the peer was told to wait by an MRA.
    let mut passive = End::in_state(false, State::ReqReceived);
    assert_eq!(passive.receive(&req), Err(Ignored::Duplicate));
    assert_eq!(passive.sent(), Some(Attribute::Mra));
    passive.connection.abandon(0);
    assert_eq!(passive.connection.deadline(), Some(linger + ns(16)));
}

#[test]
fn the_state_of_a_peer_is_kept_for_a_limited_time() {
    // The response timeout and the ACK timeout are the upper five bits of bytes 43 and 95.
    let (_, mut req) = End::active();
    req[24 + 43] |= 0xf8;
    req[24 + 95] |= 0xf8;
    let mut passive = End::passive(&req);
    passive.connection.abandon(0);
    // The response timeout is limited. The packet life time does not depend on the sender of the
    // REQ.
    let deadline = passive.connection.deadline().expect("a deadline");
    assert!((ns(20)..ns(20) + ns(16)).contains(&deadline), "{deadline}");
    let mut passive = End::passive(&req);
    passive.accept();
    assert!(passive.connection.communication_established());
    passive.disconnect();
    passive.wait_for(Some(Event::Released));
    let deadline = passive.now + ns(20);
    assert_eq!(passive.connection.deadline(), Some(deadline));
}

#[test]
fn a_connection_can_be_abandoned_in_any_state() {
    for (active, state) in all() {
        let mut end = End::in_state(active, state);
        end.connection.abandon(end.now);
        let (after, sent) = match state {
            State::Established => (State::DreqSent, Some(Attribute::Dreq)),
            State::DreqSent | State::Timewait | State::Closed => (state, None),
            _ => (State::Timewait, Some(Attribute::Rej)),
        };
        assert_eq!((end.state(), end.sent()), (after, sent));
        // A second call has no effect.
        end.connection.abandon(end.now);
        assert_eq!((end.state(), end.sent()), (after, None));
        // The only event is Closed.
        if state != State::Closed {
            end.wait_for(Some(Event::Closed));
        }
    }
}

#[test]
fn a_withdrawn_request_ends_at_the_peer() {
    // The active end does not know the passive one's ID, so the REJ names the request by its GUID.
    let (mut active, req) = End::active();
    active.connection.abandon(0);
    let no = active.connection.transmit().unwrap();
    let message = Message::parse(&no).unwrap();
    assert_eq!(
        message.route(),
        Route::Remote {
            ca_guid: ACTIVE_GUID,
            remote_id: ACTIVE_ID
        }
    );
    for state in [State::ReqReceived, State::RepSent] {
        let mut passive = End::in_state(false, state);
        let reason = passive.event(&no, |event| match event {
            Some(Event::Rejected { reason, .. }) => reason,
            other => panic!("{other:?}"),
        });
        assert_eq!(reason, Ok(Reason::TIMEOUT));
    }
    // A REP that was under way gets the same answer, although it has the ID.
    let mut passive = End::passive(&req);
    passive.accept();
    let rep = passive.connection.transmit().unwrap();
    assert_eq!(active.receive(&rep), Err(Ignored::Duplicate));
    assert_eq!(active.connection.transmit(), Some(no));
    // An established connection has confirmed its ID, so the REJ must have it.
    for state in [State::Established, State::DreqSent] {
        let mut passive = End::in_state(false, state);
        assert_eq!(passive.receive(&no), Err(Ignored::Ids));
        assert_eq!((passive.state(), passive.sent()), (state, None));
    }
    // A REJ with another GUID belongs to another request; an active end ignores such a REJ.
    let mut other = no;
    other[24 + 12] ^= 1;
    let mut passive = End::in_state(false, State::ReqReceived);
    assert_eq!(passive.receive(&other), Err(Ignored::Ids));
    let mut zero = no;
    zero[24 + 12..24 + 20].fill(0);
    let (mut active, _) = End::active();
    assert_eq!(active.receive(&zero), Err(Ignored::Ids));
}

#[test]
fn a_reply_with_an_impossible_qp_is_refused() {
    for qpn in [0, 1, 0xff_ffff] {
        let (mut active, req) = End::active();
        let mut passive = End::passive(&req);
        passive.accept();
        let mut rep = passive.connection.transmit().unwrap();
        rep[24 + 12..24 + 15].copy_from_slice(&u32::to_be_bytes(qpn)[1..]);
        let reason = active.event(&rep, |event| match event {
            Some(Event::Rejected { reason, .. }) => reason,
            other => panic!("{other:?}"),
        });
        assert_eq!(reason, Ok(Reason::UNSUPPORTED));
        let no = active.connection.transmit().unwrap();
        assert_eq!(
            rej(&no),
            (ACTIVE_ID, PASSIVE_ID, Regarding::Rep, Reason::UNSUPPORTED)
        );
        assert_eq!(passive.receive(&no), Ok(()));
    }
}

// Disconnecting.

#[test]
fn a_disconnect_is_answered() {
    for active in [true, false] {
        let mut one = End::in_state(active, State::Established);
        let mut other = End::in_state(!active, State::Established);
        one.disconnect();
        let dreq = one.connection.transmit().unwrap();
        let message = Message::parse(&dreq).unwrap();
        // The DREQ has a new transaction ID.
        assert_eq!(message.tid, TID + 1);
        let private = other.event(&dreq, |event| match event {
            Some(Event::Disconnected(private)) => private.to_vec(),
            other => panic!("{other:?}"),
        });
        let private = private.unwrap();
        assert_eq!(private.len(), 220);
        assert!(private.starts_with(b"bye\0"));
        let drep = other.connection.transmit().unwrap();
        assert_eq!(Message::parse(&drep).unwrap().tid, TID + 1);
        assert_eq!(
            one.event(&drep, |event| event == Some(Event::Released)),
            Ok(true)
        );
        // The DREP may be lost, and old packets may still arrive: both ends wait.
        assert_eq!(other.receive(&dreq), Err(Ignored::Duplicate));
        assert_eq!(other.connection.transmit(), Some(drep));
        for end in [&mut one, &mut other] {
            assert_eq!(end.state(), State::Timewait);
            assert_eq!(end.connection.deadline(), Some(end.now + ns(11)));
            assert_eq!(end.expire(), Some(Event::Closed));
        }
    }
}

#[test]
fn both_disconnect_at_once() {
    let mut one = End::in_state(true, State::Established);
    let mut other = End::in_state(false, State::Established);
    one.disconnect();
    other.disconnect();
    let (a, b) = (
        one.connection.transmit().unwrap(),
        other.connection.transmit().unwrap(),
    );
    let released = |event: Option<Event<'_>>| event == Some(Event::Released);
    assert_eq!(one.event(&b, released), Ok(true));
    assert_eq!(other.event(&a, released), Ok(true));
    let (a, b) = (
        one.connection.transmit().unwrap(),
        other.connection.transmit().unwrap(),
    );
    // The DREPs cross and have no further effect.
    assert_eq!(one.receive(&b), Err(Ignored::Duplicate));
    assert_eq!(other.receive(&a), Err(Ignored::Duplicate));
    assert_eq!(one.expire(), Some(Event::Closed));
    assert_eq!(other.expire(), Some(Event::Closed));
}

// Peers that have lost their state.

#[test]
fn a_restarted_peer_can_connect_again() {
    // The same communication ID is used for another QP, PSN or service.
    for at in [8 + 7, 32 + 2, 44 + 2] {
        for state in STATES.into_iter().filter(|state| exists(false, *state)) {
            let (_, mut req) = End::active();
            req[24 + at] ^= 0x10;
            let mut passive = End::in_state(false, state);
            let event = passive.event(&req, |event| match event {
                Some(Event::Rejected { reason, .. }) => {
                    assert_eq!(reason, Reason::STALE_CONN);
                    "Rejected"
                }
                Some(Event::Released) => "Released",
                None => "none",
                other => panic!("{other:?}"),
            });
            let expected = match state {
                State::ReqReceived | State::RepSent => Ok("Rejected"),
                State::Established => Err(Ignored::Reused),
                State::DreqSent => Ok("Released"),
                State::Timewait => Ok("none"),
                _ => Err(Ignored::State),
            };
            assert_eq!(event, expected);
            if expected.is_err() {
                // The owner decides whether an established connection ends.
                assert_eq!((passive.state(), passive.sent()), (state, None));
                continue;
            }
            assert_eq!(passive.state(), State::Timewait);
            let no = passive.connection.transmit().unwrap();
            assert_eq!(
                rej(&no),
                (CommId(0), ACTIVE_ID, Regarding::Req, Reason::STALE_CONN)
            );
            assert_eq!(passive.expire(), Some(Event::Closed));
        }
    }
}

#[test]
fn a_stale_connection_is_ended() {
    let mut end = End::in_state(true, State::Established);
    let event = end.connection.stale(end.now);
    assert_eq!(event, Some(Event::Disconnected(&[])));
    assert_eq!(end.state(), State::DreqSent);
    assert_eq!(end.sent(), Some(Attribute::Dreq));
    // The consumer knows; the only event left is Closed.
    end.wait_for(Some(Event::Closed));
}
