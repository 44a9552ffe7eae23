// SPDX-License-Identifier: GPL-2.0
//! Connection management: establishing connections, and refusing requests.

use kfi_roce::{
    cm::{
        Body,
        CommId,
        Connect,
        Connection,
        Device,
        Event,
        Gid,
        Ignored,
        Message,
        Path,
        Private,
        Reason,
        Regarding,
        Req,
        Request,
        State,
        Timeout,
        Transport, //
    },
    headers::Qpn,
    mtu::PathMtu, //
};
use std::net::{
    IpAddr,
    Ipv4Addr,
    Ipv6Addr, //
};

mod wire;
use wire::cm::{
    all,
    End,
    ACTIVE,
    ACTIVE_GUID,
    ACTIVE_ID,
    ACTIVE_IP,
    ACTIVE_QPN,
    ACTIVE_SIDE,
    CONNECT,
    PASSIVE,
    PASSIVE_GUID,
    PASSIVE_ID,
    PASSIVE_IP,
    PASSIVE_QPN,
    PASSIVE_SIDE,
    SERVICE,
    TID, //
};

#[test]
fn both_ends_learn_the_parameters_of_the_peer() {
    let private = [7; 92];
    let connect = Connect {
        private: Private::new(&private).unwrap(),
        ..CONNECT
    };
    let mut active = Connection::connect(5, &ACTIVE, &connect);
    assert_eq!(active.state(), State::ReqSent);
    assert!(active.is_active());
    assert_eq!((active.remote_id(), active.peer()), (None, PASSIVE_IP));
    let req = active.transmit().unwrap();

    let message = Message::parse(&req).unwrap();
    let Body::Req(req) = message.body else {
        panic!("no REQ")
    };
    assert_eq!(message.tid, TID);
    let (mut passive, request) =
        Connection::request(&PASSIVE, PASSIVE_ID, ACTIVE_IP, TID, &req).unwrap();
    assert_eq!(
        request,
        Request {
            from: ACTIVE_IP,
            service_id: SERVICE,
            qpn: ACTIVE_QPN,
            starting_psn: ACTIVE_SIDE.starting_psn,
            mtu: PathMtu::Mtu1024,
            // The values that the peer's requester wants and its responder supports.
            responder_resources: 5,
            initiator_depth: 3,
            retry_count: 7,
            rnr_retry_count: 6,
            ack_timeout: Timeout::new(11),
            flow_label: 0,
            traffic_class: 0,
            srq: false,
            private: &private,
        }
    );
    assert_eq!(passive.state(), State::ReqReceived);
    assert!(!passive.is_active());
    assert_eq!(passive.remote_id(), Some(ACTIVE_ID));
    assert_eq!(
        (passive.remote_guid(), passive.remote_qpn()),
        (ACTIVE_GUID, ACTIVE_QPN)
    );
    assert_eq!((passive.deadline(), passive.transmit()), (None, None));

    let private = Private::new(b"yes").unwrap();
    passive.accept(7, &PASSIVE_SIDE, private).unwrap();
    assert_eq!(passive.state(), State::RepSent);
    let rep = passive.transmit().unwrap();
    let message = Message::parse(&rep).unwrap();
    assert_eq!(message.tid, TID);
    match active.receive(8, PASSIVE_IP, &message).unwrap() {
        Some(Event::Reply(reply)) => {
            assert_eq!(reply.qpn, PASSIVE_QPN);
            assert_eq!(reply.starting_psn, PASSIVE_SIDE.starting_psn);
            // The peer's requester wants 7, limited to the 3 that were offered; its responder
            // supports 4.
            assert_eq!((reply.responder_resources, reply.initiator_depth), (3, 4));
            assert_eq!(reply.rnr_retry_count, 2);
            assert_eq!(reply.ack_timeout, Timeout::new(11));
            assert!(reply.srq);
            assert_eq!(reply.private.len(), 196);
            assert!(reply.private.starts_with(b"yes\0"));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(active.state(), State::RepReceived);
    assert_eq!(active.remote_id(), Some(PASSIVE_ID));
    assert_eq!(
        (active.remote_guid(), active.remote_qpn()),
        (PASSIVE_GUID, PASSIVE_QPN)
    );
    // There is no deadline for the consumer.
    assert_eq!((active.deadline(), active.transmit()), (None, None));

    active.confirm(9, Private::new(b"ready").unwrap()).unwrap();
    assert_eq!(
        (active.state(), active.deadline()),
        (State::Established, None)
    );
    let rtu = active.transmit().unwrap();
    let message = Message::parse(&rtu).unwrap();
    assert_eq!(message.tid, TID);
    match passive.receive(9, ACTIVE_IP, &message).unwrap() {
        Some(Event::Established(private)) => {
            assert_eq!(private.len(), 224);
            assert!(private.starts_with(b"ready\0"));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(
        (passive.state(), passive.deadline()),
        (State::Established, None)
    );
    assert_eq!((active.transmit(), passive.transmit()), (None, None));
}

#[test]
fn no_more_is_offered_than_the_device_supports() {
    let device = Device {
        responder_resources: 1,
        initiator_depth: 2,
        ..PASSIVE
    };
    let (_, req) = End::active();
    let Body::Req(req) = Message::parse(&req).unwrap().body else {
        panic!("no REQ")
    };
    let (_, request) = Connection::request(&device, PASSIVE_ID, ACTIVE_IP, 0, &req).unwrap();
    assert_eq!(
        (request.responder_resources, request.initiator_depth),
        (1, 2)
    );
    // The same holds for the path MTU.
    let connect = Connect {
        mtu: PathMtu::Mtu4096,
        ..CONNECT
    };
    let mut active = Connection::connect(0, &PASSIVE, &connect);
    match Message::parse(&active.transmit().unwrap()).unwrap().body {
        Body::Req(req) => assert_eq!(req.mtu, PathMtu::Mtu1024.code()),
        other => panic!("{other:?}"),
    }
    // The requester gets no more than the peer supports.
    let mut passive = End::in_state(false, State::ReqReceived);
    passive.accept();
    match Message::parse(&passive.connection.transmit().unwrap())
        .unwrap()
        .body
    {
        Body::Rep(rep) => assert_eq!((rep.responder_resources, rep.initiator_depth), (4, 3)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_values_of_a_reply_are_limited_to_the_offer() {
    let (mut active, req) = End::active();
    let mut passive = End::passive(&req);
    passive.accept();
    let mut rep = passive.connection.transmit().unwrap();
    // The responder resources and the initiator depth.
    rep[24 + 24] = 200;
    rep[24 + 25] = 100;
    let depths = active.event(&rep, |event| match event {
        Some(Event::Reply(reply)) => (reply.responder_resources, reply.initiator_depth),
        other => panic!("{other:?}"),
    });
    assert_eq!(depths, Ok((3, 5)));
}

#[test]
fn unacceptable_requests_are_refused() {
    let gid = |ip: [u8; 4]| Gid::from(Ipv4Addr::from(ip));
    let (_, mad) = End::active();
    let Body::Req(good) = Message::parse(&mad).unwrap().body else {
        panic!("no REQ")
    };
    let path = good.primary;
    type Case<'a> = (Req<'a>, Reason, &'a [u8]);
    let cases: &[Case<'_>] = &[
        (
            Req {
                transport: Transport::Uc,
                ..good
            },
            Reason::INVALID_TRANSPORT_TYPE,
            &[],
        ),
        (
            Req {
                transport: Transport::Extended,
                ..good
            },
            Reason::INVALID_TRANSPORT_TYPE,
            &[],
        ),
        (Req { mtu: 0, ..good }, Reason::INVALID_MTU, &[3]),
        (Req { mtu: 4, ..good }, Reason::INVALID_MTU, &[3]),
        (Req { mtu: 6, ..good }, Reason::INVALID_MTU, &[3]),
        (Req { mtu: 15, ..good }, Reason::INVALID_MTU, &[3]),
        (
            Req {
                primary: Path {
                    remote_gid: gid([10, 0, 0, 3]),
                    ..path
                },
                ..good
            },
            Reason::INVALID_GID,
            &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2],
        ),
        (
            Req {
                primary: Path {
                    local_gid: gid([10, 0, 0, 3]),
                    ..path
                },
                ..good
            },
            Reason::UNSUPPORTED,
            &[],
        ),
        (
            Req {
                pkey: 0x8001,
                ..good
            },
            Reason::UNSUPPORTED,
            &[],
        ),
        (
            Req {
                qpn: Qpn::new(0),
                ..good
            },
            Reason::UNSUPPORTED,
            &[],
        ),
        (
            Req {
                qpn: Qpn::GSI,
                ..good
            },
            Reason::UNSUPPORTED,
            &[],
        ),
        (
            Req {
                qpn: Qpn::MULTICAST,
                ..good
            },
            Reason::UNSUPPORTED,
            &[],
        ),
    ];
    for (req, reason, info) in cases {
        let refusal = Connection::request(&PASSIVE, PASSIVE_ID, ACTIVE_IP, TID, req).unwrap_err();
        assert_eq!(refusal.reason(), *reason);
        let mad = refusal.message(TID, req.local_id);
        let message = Message::parse(&mad).unwrap();
        assert_eq!(message.tid, TID);
        match message.body {
            Body::Rej(rej) => {
                assert_eq!((rej.local_id, rej.remote_id), (CommId(0), ACTIVE_ID));
                assert_eq!(rej.regarding, Regarding::Req);
                assert_eq!(rej.reason, *reason);
                assert_eq!(rej.info.get(), *info);
            }
            other => panic!("{other:?}"),
        }
        // The peer parses the rejection.
        let (mut active, _) = End::active();
        let rejected = active.event(&mad, |event| match event {
            Some(Event::Rejected { reason, info, .. }) => (reason, info.to_vec()),
            other => panic!("{other:?}"),
        });
        assert_eq!(rejected, Ok((*reason, info.to_vec())));
    }
    // Smaller path MTUs and limited members of the partition are accepted.
    for req in [
        good,
        Req { mtu: 1, ..good },
        Req {
            pkey: 0x7fff,
            ..good
        },
    ] {
        assert!(Connection::request(&PASSIVE, PASSIVE_ID, ACTIVE_IP, 9, &req).is_ok());
    }
    // An address of the other IP version does not match.
    let v6 = IpAddr::V6(Ipv6Addr::LOCALHOST);
    assert!(Connection::request(&PASSIVE, PASSIVE_ID, v6, 9, &good).is_err());
}

#[test]
fn ipv6_addresses_are_gids() {
    let (a, b) = (
        IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1)),
        IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2)),
    );
    let device = Device { ip: a, ..ACTIVE };
    let connect = Connect {
        remote: b,
        ..CONNECT
    };
    let mut active = Connection::connect(0, &device, &connect);
    let mad = active.transmit().unwrap();
    let Body::Req(req) = Message::parse(&mad).unwrap().body else {
        panic!("no REQ")
    };
    assert_eq!(req.primary.local_gid.ip(), a);
    let device = Device { ip: b, ..PASSIVE };
    assert!(Connection::request(&device, PASSIVE_ID, a, 0, &req).is_ok());
}

#[test]
fn calls_in_a_wrong_state_are_refused() {
    for (active, state) in all() {
        let fresh = || End::in_state(active, state).connection;
        let answer = |ok: &[State]| {
            if ok.contains(&state) {
                Ok(())
            } else {
                Err(state)
            }
        };
        let none = Private::NONE;
        assert_eq!(
            fresh().accept(0, &PASSIVE_SIDE, none),
            answer(&[State::ReqReceived])
        );
        assert_eq!(
            fresh().confirm(0, Private::NONE),
            answer(&[State::RepReceived])
        );
        assert_eq!(
            fresh().disconnect(0, Private::NONE),
            answer(&[State::Established])
        );
        assert_eq!(
            fresh().reject(0, Reason::NO_QP, Private::NONE, Private::NONE),
            answer(&[State::ReqReceived, State::RepReceived])
        );
        assert_eq!(
            fresh().ignore(0, Reason::NO_RESOURCES),
            answer(&[State::ReqReceived])
        );
        let mut end = fresh();
        assert_eq!(end.communication_established(), state == State::RepSent);
        let stale = fresh().stale(0);
        let gone = (state == State::Established).then_some(Event::Disconnected(&[]));
        assert_eq!(stale, gone);
    }
}

#[test]
fn reasons_are_listed_in_order() {
    for (number, kind) in Ignored::ALL.iter().enumerate() {
        assert_eq!(*kind as usize, number);
        assert!(!kind.name().is_empty());
    }
}
