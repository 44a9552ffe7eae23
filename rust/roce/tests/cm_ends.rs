// SPDX-License-Identifier: GPL-2.0
//! Connection management: losses, rejections, disconnects, peers that forget.

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
fn a_message_is_sent_again_and_given_up() {
    const ALL: [u8; 5] = [11, 12, 13, 13, 13];
    for (active, state, what, waits) in [
        (true, State::ReqSent, Attribute::Req, &ALL[..]),
        // Seldom: its receiver may know nothing of it.
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
            assert_eq!(end.says(), Some(what));
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
        // The peer is told, should it be there.
        let last = (state != State::DreqSent).then_some(Attribute::Rej);
        assert_eq!(end.says(), last);
        assert_eq!(end.expire(), Some(Event::Closed));
        assert_eq!(
            (end.state(), end.connection.deadline()),
            (State::Closed, None)
        );
        assert_eq!(end.says(), None);
    }
}

#[test]
fn what_is_sent_again_is_the_same() {
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
fn a_late_clock_is_no_storm() {
    let (mut end, _) = End::active();
    let late = 3_600_000 * MS;
    assert_eq!(end.connection.expired(late), None);
    assert_eq!(end.says(), Some(Attribute::Req));
    // Once, and then not before the next interval.
    assert_eq!(end.connection.deadline(), Some(late + ns(12)));
    assert_eq!(end.connection.expired(late), None);
    assert_eq!(end.says(), None);
    // The end of time is no panic.
    let mut end = Connection::connect(u64::MAX - 1, &ACTIVE, &CONNECT);
    assert_eq!(end.deadline(), Some(u64::MAX));
    while end.expired(u64::MAX).is_none() {}
    assert_eq!(end.state(), State::Timewait);
}

#[test]
fn the_peer_does_not_choose_when_a_reply_is_sent_again() {
    let (_, mut req) = End::active();
    // The local response timeout: byte 47, its upper five bits.
    for said in [0, 12, 15, 20, 21, 31] {
        req[24 + 47] = said << 3 | req[24 + 47] & 7;
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
    assert_eq!(passive.hear(&again), Err(Ignored::Duplicate));
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
    // Once: who asks again and again is not waited for.
    active.now += MS;
    assert_eq!(active.hear(&mra), Err(Ignored::Duplicate));
    assert_eq!(active.connection.deadline(), Some(deadline));
    // Then it goes on.
    assert_eq!(active.expire(), None);
    assert_eq!(active.says(), Some(Attribute::Req));
    passive.accept();
    let rep = passive.connection.transmit().unwrap();
    assert_eq!(active.hear(&rep), Ok(()));
    // The same for the active end's consumer.
    assert_eq!(passive.expire(), None);
    let again = passive.connection.transmit().unwrap();
    assert_eq!(active.hear(&again), Err(Ignored::Duplicate));
    let mra = active.connection.transmit().unwrap();
    assert_eq!(passive.hear(&mra), Ok(()));
    let longest = Timing::LIMIT.ns();
    assert_eq!(
        passive.connection.deadline(),
        Some(passive.now + ns(16) + longest)
    );
    active.confirm();
    let rtu = active.connection.transmit().unwrap();
    assert_eq!(passive.hear(&rtu), Ok(()));
    assert_eq!(passive.state(), State::Established);
}

#[test]
fn nobody_is_waited_for_for_ever() {
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
        assert_eq!(end.hear(&mra(asked, Regarding::Req)), Ok(()));
        let deadline = ns(granted) + ns(13);
        assert_eq!(end.connection.deadline(), Some(deadline));
    }
    for regarding in [Regarding::Rep, Regarding::Other] {
        let (mut end, _) = End::active();
        assert_eq!(end.hear(&mra(10, regarding)), Err(Ignored::State));
    }
}

#[test]
fn a_lost_rtu_is_made_up_for() {
    // By the REP that comes again,
    let mut active = End::in_state(true, State::Established);
    let mut passive = End::in_state(false, State::RepSent);
    passive.expire();
    let rep = passive.connection.transmit().unwrap();
    assert_eq!(active.hear(&rep), Err(Ignored::Duplicate));
    let rtu = active.connection.transmit().unwrap();
    let private = passive.event(&rtu, |event| match event {
        Some(Event::Established(private)) => private.to_vec(),
        other => panic!("{other:?}"),
    });
    assert!(private.unwrap().starts_with(b"confirmed\0"));
    // or by a packet that comes to the QP.
    let mut passive = End::in_state(false, State::RepSent);
    assert!(passive.connection.communication_established());
    assert_eq!(passive.state(), State::Established);
    assert_eq!(passive.connection.deadline(), None);
    assert!(!passive.connection.communication_established());
    assert_eq!(passive.hear(&rtu), Err(Ignored::Duplicate));
}

#[test]
fn a_lost_rep_is_made_up_for_at_once() {
    let mut passive = End::in_state(false, State::RepSent);
    let (_, req) = End::active();
    let deadline = passive.connection.deadline();
    // Not more often than once in an interval.
    assert_eq!(passive.hear(&req), Err(Ignored::Duplicate));
    assert_eq!(passive.says(), None);
    passive.now += ANSWER_INTERVAL;
    assert_eq!(passive.hear(&req), Err(Ignored::Duplicate));
    assert_eq!(passive.says(), Some(Attribute::Rep));
    // It does not count.
    assert_eq!(passive.connection.deadline(), deadline);
}

#[test]
fn what_was_answered_is_not_said_again() {
    // The clock has made a message due, and before it was sent the answer came.
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
            assert_eq!(end.says(), None, "{state:?}");
        }
    }
    // Nor is what nobody answered, once it is over.
    let mut end = End::in_state(true, State::DreqSent);
    end.wait_for(Some(Event::Released));
    assert_eq!(end.says(), None);
    let all = messages(true);
    let (_, dreq) = all
        .iter()
        .find(|(kind, _)| *kind == Attribute::Dreq)
        .unwrap();
    assert_eq!(end.hear(dreq), Err(Ignored::Duplicate));
    end.wait_for(Some(Event::Closed));
    assert_eq!(end.says(), None);
}

// Saying no.

#[test]
fn a_consumer_says_no() {
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
    let heard = active.event(&no, |event| match event {
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
    assert_eq!(heard, Ok(()));
    assert_eq!(active.state(), State::Timewait);
    assert_eq!(active.expire(), Some(Event::Closed));
    // The REJ may have been lost: it is said again for as long as the peer may ask.
    passive.now += ANSWER_INTERVAL;
    assert_eq!(passive.hear(&req), Err(Ignored::Duplicate));
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
    assert_eq!(passive.hear(&no), Ok(()));
    assert_eq!(passive.state(), State::Timewait);
    // Said again, too.
    let mut other = End::in_state(false, State::RepSent);
    other.expire();
    let rep = other.connection.transmit().unwrap();
    assert_eq!(active.hear(&rep), Err(Ignored::Duplicate));
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
            passive.says();
            // Each time it asks, it may ask again; but not for ever.
            for _ in 0..TIMING.retries {
                passive.now += ns(13);
                assert_eq!(passive.hear(&req), Err(Ignored::Duplicate));
                assert_eq!(passive.says(), Some(Attribute::Rej));
                let deadline = passive.now + linger;
                assert_eq!(passive.connection.deadline(), Some(deadline));
            }
            let deadline = passive.connection.deadline();
            passive.now += ANSWER_INTERVAL;
            assert_eq!(passive.hear(&req), Err(Ignored::Duplicate));
            assert_eq!(passive.says(), Some(Attribute::Rej));
            assert_eq!(passive.connection.deadline(), deadline);
        }
    }
    // Longer, if it was asked to wait.
    let mut passive = End::in_state(false, State::ReqReceived);
    assert_eq!(passive.hear(&req), Err(Ignored::Duplicate));
    assert_eq!(passive.says(), Some(Attribute::Mra));
    passive.connection.abandon(0);
    assert_eq!(passive.connection.deadline(), Some(linger + ns(16)));
}

#[test]
fn no_peer_is_remembered_for_ever() {
    // The response timeout and the ACK timeout: the upper five bits of bytes 43 and 95.
    let (_, mut req) = End::active();
    req[24 + 43] |= 0xf8;
    req[24 + 95] |= 0xf8;
    let mut passive = End::passive(&req);
    passive.connection.abandon(0);
    // The response timeout is limited; how long a packet travels, the sender of a REQ does not choose.
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
fn a_consumer_gives_up_at_any_time() {
    for (active, state) in all() {
        let mut end = End::in_state(active, state);
        end.connection.abandon(end.now);
        let (after, said) = match state {
            State::Established => (State::DreqSent, Some(Attribute::Dreq)),
            State::DreqSent | State::Timewait | State::Closed => (state, None),
            _ => (State::Timewait, Some(Attribute::Rej)),
        };
        assert_eq!((end.state(), end.says()), (after, said));
        // Twice is once.
        end.connection.abandon(end.now);
        assert_eq!((end.state(), end.says()), (after, None));
        // Nothing is heard of it but the end.
        if state != State::Closed {
            end.wait_for(Some(Event::Closed));
        }
    }
}

#[test]
fn a_request_that_is_taken_back_ends_at_the_peer() {
    // The active end does not know the passive one's ID, so its GUID says whose request it is.
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
    // A REP that was under way gets the same answer, though it brings the ID.
    let mut passive = End::passive(&req);
    passive.accept();
    let rep = passive.connection.transmit().unwrap();
    assert_eq!(active.hear(&rep), Err(Ignored::Duplicate));
    assert_eq!(active.connection.transmit(), Some(no));
    // Another's GUID is another's request, and an active end hears no such thing.
    let mut other = no;
    other[24 + 12] ^= 1;
    let mut passive = End::in_state(false, State::ReqReceived);
    assert_eq!(passive.hear(&other), Err(Ignored::Ids));
    let mut zero = no;
    zero[24 + 12..24 + 20].fill(0);
    let (mut active, _) = End::active();
    assert_eq!(active.hear(&zero), Err(Ignored::Ids));
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
        assert_eq!(passive.hear(&no), Ok(()));
    }
}

// Ending one.

#[test]
fn a_disconnect_is_answered() {
    for active in [true, false] {
        let mut one = End::in_state(active, State::Established);
        let mut other = End::in_state(!active, State::Established);
        one.disconnect();
        let dreq = one.connection.transmit().unwrap();
        let message = Message::parse(&dreq).unwrap();
        // A transaction of its own.
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
        // The DREP may be lost, and old packets are under way: both wait.
        assert_eq!(other.hear(&dreq), Err(Ignored::Duplicate));
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
    // The DREPs cross, and say nothing new.
    assert_eq!(one.hear(&b), Err(Ignored::Duplicate));
    assert_eq!(other.hear(&a), Err(Ignored::Duplicate));
    assert_eq!(one.expire(), Some(Event::Closed));
    assert_eq!(other.expire(), Some(Event::Closed));
}

// Peers that forget.

#[test]
fn a_peer_that_forgot_gets_a_new_chance() {
    // The same name for another request: another QP, PSN or service.
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
                Some(Event::Disconnected(private)) => {
                    assert_eq!(private, b"");
                    "Disconnected"
                }
                Some(Event::Released) => "Released",
                None => "none",
                other => panic!("{other:?}"),
            });
            let expected = match state {
                State::ReqReceived | State::RepSent => Ok("Rejected"),
                State::Established => Ok("Disconnected"),
                State::DreqSent => Ok("Released"),
                State::Timewait => Ok("none"),
                _ => Err(Ignored::State),
            };
            assert_eq!(event, expected);
            if state == State::Closed {
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
    assert_eq!(end.says(), Some(Attribute::Dreq));
    // The consumer was told; only the end comes.
    end.wait_for(Some(Event::Closed));
}
