// SPDX-License-Identifier: GPL-2.0
//! Connection management between ends with different path MTUs.

use kfi_roce::{
    cm::{
        Body,
        CommId,
        Connect,
        Connection,
        Event,
        Ignored,
        Mad,
        Message,
        Private,
        Reason,
        Regarding,
        Rej,
        Req,
        State, //
    },
    mtu::PathMtu, //
};

mod wire;
use wire::cm::{
    mad,
    ns,
    End,
    ACTIVE,
    ACTIVE_ID,
    ACTIVE_IP,
    CONNECT,
    PASSIVE,
    PASSIVE_ID,
    TID, //
};

/// Returns an active end that requests 4096, or less down to `least_mtu`, and its REQ.
fn asks(least_mtu: PathMtu) -> (End, Mad) {
    let connect = Connect {
        mtu: PathMtu::Mtu4096,
        least_mtu,
        ..CONNECT
    };
    let mut end = End {
        connection: Connection::connect(0, &ACTIVE, &connect),
        now: 0,
    };
    let req = end.connection.transmit().unwrap();
    (end, req)
}

fn req(mad: &Mad) -> (u64, Req<'_>) {
    match Message::parse(mad).unwrap() {
        Message {
            tid,
            body: Body::Req(req),
        } => (tid, req),
        other => panic!("no REQ: {other:?}"),
    }
}

/// Returns the answer of a passive end with a path MTU of 1024 that keeps no connection.
fn refused(mad: &Mad) -> Mad {
    let (tid, req) = req(mad);
    let refusal = Connection::request(&PASSIVE, PASSIVE_ID, ACTIVE_IP, tid, &req).unwrap_err();
    assert_eq!(refusal.reason(), Reason::INVALID_MTU);
    refusal.message(tid, req.local_id)
}

/// Returns a REJ of the REQ with this transaction ID.
fn no(tid: u64, reason: Reason, info: &[u8]) -> Mad {
    let rej = Rej {
        local_id: CommId(0),
        remote_id: ACTIVE_ID,
        regarding: Regarding::Req,
        reason,
        info: Private::new(info).unwrap(),
        private: Private::NONE,
    };
    mad(tid, Body::Rej(rej))
}

/// Passes a message that must be reported as a rejection to the consumer.
fn rejected(end: &mut End, mad: &Mad, because: Reason) {
    let received = end.event(mad, |event| match event {
        Some(Event::Rejected { reason, .. }) => reason,
        other => panic!("{other:?}"),
    });
    assert_eq!(received, Ok(because));
    assert_eq!(end.state(), State::Timewait);
    assert_eq!(end.sent(), None);
}

/// Passes a message that must not cause an event.
fn nothing(end: &mut End, mad: &Mad) {
    let received = end.event(mad, |event| assert_eq!(event, None));
    assert_eq!(received, Ok(()));
}

/// Passes a REP. Returns the path MTU that is reported to the consumer.
fn accepted(end: &mut End, rep: &Mad) -> PathMtu {
    let mtu = end.event(rep, |event| match event {
        Some(Event::Reply(reply)) => reply.mtu,
        other => panic!("{other:?}"),
    });
    mtu.unwrap()
}

#[test]
fn a_peer_with_a_smaller_mtu_gets_a_second_request() {
    let (mut active, first) = asks(PathMtu::Mtu256);
    // The REQ was sent twice before the peer answered.
    assert_eq!(active.expire(), None);
    assert_eq!(active.connection.transmit(), Some(first));
    let rej = refused(&first);
    nothing(&mut active, &rej);
    assert_eq!(active.state(), State::ReqSent);
    let second = active.connection.transmit().unwrap();
    let ((_, before), (tid, after)) = (req(&first), req(&second));
    assert_ne!(tid, TID);
    assert_eq!(before.mtu, PathMtu::Mtu4096.code());
    let mtu = PathMtu::Mtu1024.code();
    assert_eq!(after, Req { mtu, ..before });
    // The retransmission intervals start again.
    assert_eq!(active.connection.deadline(), Some(active.now + ns(11)));
    // A duplicate of the answer to the first REQ.
    assert_eq!(active.receive(&rej), Err(Ignored::Duplicate));
    assert_eq!(active.state(), State::ReqSent);
    assert_eq!(active.sent(), None);
    let mut passive = End::passive(&second);
    passive.accept();
    let rep = passive.connection.transmit().unwrap();
    assert_eq!(accepted(&mut active, &rep), PathMtu::Mtu1024);
    // It does not end the connection either once that is established.
    assert_eq!(active.receive(&rej), Err(Ignored::Ids));
    active.confirm();
    assert_eq!(active.receive(&rej), Err(Ignored::Ids));
    assert_eq!(active.state(), State::Established);
    // A late copy of the first REQ is a duplicate.
    passive
        .receive(&active.connection.transmit().unwrap())
        .unwrap();
    assert_eq!(passive.receive(&first), Err(Ignored::Duplicate));
    assert_eq!(passive.state(), State::Established);
}

#[test]
fn a_peer_with_the_requested_mtu_gets_one_request() {
    let (mut active, req) = End::active();
    let mut passive = End::passive(&req);
    passive.accept();
    let rep = passive.connection.transmit().unwrap();
    assert_eq!(accepted(&mut active, &rep), PathMtu::Mtu1024);
}

#[test]
fn an_mtu_below_the_minimum_is_not_requested() {
    for (least_mtu, will_do) in [
        (PathMtu::Mtu4096, false),
        (PathMtu::Mtu2048, false),
        (PathMtu::Mtu1024, true),
        (PathMtu::Mtu512, true),
    ] {
        let (mut active, req) = asks(least_mtu);
        let rej = refused(&req);
        if will_do {
            nothing(&mut active, &rej);
            assert_eq!(active.state(), State::ReqSent);
        } else {
            rejected(&mut active, &rej, Reason::INVALID_MTU);
        }
    }
}

#[test]
fn a_rejection_without_a_smaller_mtu_is_final() {
    // Nothing, an invalid code, the requested path MTU, and a larger one.
    for info in [&[] as &[u8], &[0], &[6], &[255], &[5], &[5, 3]] {
        let (mut active, _) = asks(PathMtu::Mtu256);
        let rej = no(TID, Reason::INVALID_MTU, info);
        rejected(&mut active, &rej, Reason::INVALID_MTU);
    }
    // A REJ with another reason.
    let (mut active, _) = asks(PathMtu::Mtu256);
    let rej = no(TID, Reason::CONSUMER_DEFINED, &[3]);
    rejected(&mut active, &rej, Reason::CONSUMER_DEFINED);
    // A REJ of another message.
    let (mut active, _) = asks(PathMtu::Mtu256);
    let rej = no(TID + 1, Reason::INVALID_MTU, &[3]);
    assert_eq!(active.receive(&rej), Err(Ignored::Duplicate));
}

#[test]
fn requests_end_with_the_smallest_mtu() {
    let (mut active, first) = asks(PathMtu::Mtu256);
    let mut asked = first;
    for code in [4, 3, 2, 1] {
        let (tid, _) = req(&asked);
        nothing(&mut active, &no(tid, Reason::INVALID_MTU, &[code]));
        asked = active.connection.transmit().unwrap();
        assert_eq!(req(&asked).1.mtu, code);
    }
    let (tid, _) = req(&asked);
    let rej = no(tid, Reason::INVALID_MTU, &[1]);
    rejected(&mut active, &rej, Reason::INVALID_MTU);
}

#[test]
fn a_second_request_can_be_withdrawn() {
    let (mut active, first) = asks(PathMtu::Mtu256);
    nothing(&mut active, &refused(&first));
    let second = active.connection.transmit().unwrap();
    active.connection.abandon(active.now);
    let mut passive = End::passive(&second);
    let rej = active.connection.transmit().unwrap();
    rejected(&mut passive, &rej, Reason::TIMEOUT);
}
