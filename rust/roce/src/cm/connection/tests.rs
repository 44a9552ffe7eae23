// SPDX-License-Identifier: GPL-2.0

//! Tests of a connection that run under cargo and in the kernel. More cases are in `tests/cm*.rs`.

#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_roce_cm_connection))]
mod suite {
    use super::super::{
        super::super::mtu::PathMtu,
        *, //
    };
    use core::net::Ipv4Addr;

    const IPS: [IpAddr; 2] = [
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)),
    ];

    fn device(number: u8) -> Device {
        let [one, two] = IPS;
        Device {
            ca_guid: 7 + u64::from(number),
            ip: if number == 0 { one } else { two },
            mtu: PathMtu::Mtu1024,
            responder_resources: 4,
            initiator_depth: 4,
            timing: Timing::DEFAULT,
        }
    }

    fn active_ip() -> IpAddr {
        let [from, _] = IPS;
        from
    }

    fn side(qpn: u32) -> Side {
        Side {
            qpn: Qpn::new(qpn),
            starting_psn: Psn::new(qpn << 8),
            responder_resources: 4,
            initiator_depth: 4,
            rnr_retry_count: 7,
            srq: false,
        }
    }

    fn active() -> Connection {
        let [_, remote] = IPS;
        let connect = Connect {
            local_id: CommId(1),
            tid: 1,
            remote,
            service_id: ServiceId::tcp(7471),
            side: side(0x11),
            mtu: PathMtu::Mtu1024,
            least_mtu: PathMtu::Mtu256,
            retry_count: 7,
            private: Private::NONE,
        };
        Connection::connect(0, &device(0), &connect)
    }

    /// Returns the passive end that the REQ of `active` makes.
    fn passive(active: &mut Connection) -> Option<Connection> {
        let [from, _] = IPS;
        let mad = active.transmit()?;
        let message = Message::parse(&mad).ok()?;
        let Body::Req(req) = &message.body else {
            return None;
        };
        let made = Connection::request(&device(1), CommId(2), from, message.tid, req);
        made.ok().map(|(connection, _)| connection)
    }

    /// Passes the next message of `from` to `to`. Returns whether it caused an event; `None` if
    /// there was no message.
    fn pass(from: &mut Connection, to: &mut Connection) -> Option<bool> {
        let mad = from.transmit()?;
        let message = Message::parse(&mad).ok()?;
        let event = to.receive(0, to.peer(), &message).ok()?;
        Some(event.is_some())
    }

    #[test]
    fn a_connection_is_made_and_ended() -> Result<(), ()> {
        let mut active = active();
        let mut passive = passive(&mut active).ok_or(())?;
        assert_eq!(passive.accept(0, &side(0x22), Private::NONE), Ok(()));
        assert_eq!(pass(&mut passive, &mut active), Some(true));
        assert_eq!(active.state(), State::RepReceived);
        assert_eq!(active.remote_qpn(), Qpn::new(0x22));
        assert_eq!(active.confirm(0, Private::NONE), Ok(()));
        assert_eq!(pass(&mut active, &mut passive), Some(true));
        assert_eq!(active.state(), State::Established);
        assert_eq!(passive.state(), State::Established);
        assert_eq!(passive.disconnect(0, Private::NONE), Ok(()));
        assert_eq!(pass(&mut passive, &mut active), Some(true));
        assert_eq!(pass(&mut active, &mut passive), Some(true));
        for end in [&mut active, &mut passive] {
            assert_eq!(end.state(), State::Timewait);
            assert_eq!(end.expired(u64::MAX), Some(Event::Closed));
            assert_eq!(end.deadline(), None);
        }
        Ok(())
    }

    #[test]
    fn a_peer_that_does_not_answer_is_given_up() {
        let mut active = active();
        let mut sent = 0;
        let mut last = 0;
        while let Some(deadline) = active.deadline() {
            sent += u32::from(active.transmit().is_some());
            let event = active.expired(deadline);
            assert_eq!(active.expired(deadline), None);
            if event == Some(Event::Unreachable) {
                last = deadline;
            }
        }
        // One transmission, ten retransmissions, and a REJ.
        assert_eq!(sent, 12);
        assert_eq!(last / 100_000_000, 95);
        assert_eq!(active.state(), State::Closed);
    }

    #[test]
    fn one_request_causes_few_packets_to_its_source() -> Result<(), ()> {
        // The source of the REQ may be forged, and sends nothing further.
        let mut passive = passive(&mut active()).ok_or(())?;
        assert_eq!(passive.accept(0, &side(0x22), Private::NONE), Ok(()));
        let mut sent = 0;
        while let Some(deadline) = passive.deadline() {
            sent += u32::from(passive.transmit().is_some());
            let _ = passive.expired(deadline);
        }
        assert_eq!(passive.state(), State::Closed);
        // The REP is sent four times, then a REJ.
        assert_eq!(sent, 5);
        Ok(())
    }

    /// Returns how many of 1,000 repetitions of a REQ, one per ms, are answered.
    fn answers(passive: &mut Connection, req: &Mad) -> u32 {
        const MS: u64 = 1_000_000;
        let begin = 10_000 * MS;
        let message = Message::parse(req);
        let Ok(message) = message else {
            return u32::MAX;
        };
        (0..1_000).fold(0, |sent, ms| {
            let heard = passive.receive(begin + ms * MS, active_ip(), &message);
            let duplicate = heard == Err(Ignored::Duplicate);
            sent + u32::from(passive.transmit().is_some() && duplicate)
        })
    }

    #[test]
    fn a_repeated_request_is_answered_once_in_each_interval() {
        let mut active = active();
        let req = active.transmit();
        let asked = |req: &Mad| {
            let message = Message::parse(req).ok()?;
            let Body::Req(req) = &message.body else {
                return None;
            };
            let made = Connection::request(&device(1), CommId(2), active_ip(), message.tid, req);
            made.ok().map(|(connection, _)| connection)
        };
        let made = req.and_then(|req| Some((req, asked(&req)?)));
        assert!(made.is_some());
        let Some((req, waiting)) = made else {
            return;
        };
        // The interval is 67 ms: 15 answers in a second, or 14 if the first interval began before.
        let now = 9_999_999_999;
        let mut thinking = waiting.clone();
        assert_eq!(answers(&mut thinking, &req), 15);
        let mut accepted = waiting.clone();
        assert_eq!(accepted.accept(now, &side(0x22), Private::NONE), Ok(()));
        assert!(accepted.transmit().is_some());
        assert_eq!(answers(&mut accepted, &req), 14);
        let mut rejected = waiting;
        let reason = Reason::CONSUMER_DEFINED;
        let answer = rejected.reject(now, reason, Private::NONE, Private::NONE);
        assert_eq!(answer, Ok(()));
        assert!(rejected.transmit().is_some());
        assert_eq!(answers(&mut rejected, &req), 14);
    }

    #[test]
    fn an_ignored_request_lets_no_peer_wait() -> Result<(), ()> {
        let reason = Reason::NO_RESOURCES;
        let mut active = active();
        let mut ignored = passive(&mut active).ok_or(())?;
        assert_eq!(ignored.ignore(0, reason), Ok(()));
        assert_eq!(ignored.state(), State::Closed);
        assert_eq!((ignored.transmit(), ignored.deadline()), (None, None));
        assert_eq!(ignored.ignore(0, reason), Err(State::Closed));
        // The repeated REQ is a new request. The next one is answered by an MRA.
        assert_eq!(active.expired(active.deadline().ok_or(())?), None);
        let mut ignored = passive(&mut active).ok_or(())?;
        assert_eq!(active.expired(active.deadline().ok_or(())?), None);
        assert_eq!(pass(&mut active, &mut ignored), None);
        let promptly = active.deadline();
        assert_eq!(pass(&mut ignored, &mut active), Some(false));
        assert!(active.deadline() > promptly);
        assert_eq!(ignored.ignore(0, reason), Ok(()));
        assert_eq!(pass(&mut ignored, &mut active), Some(true));
        assert_eq!(active.state(), State::Timewait);
        Ok(())
    }

    #[test]
    fn a_rejection_reaches_the_peer() -> Result<(), ()> {
        let mut active = active();
        let mut passive = passive(&mut active).ok_or(())?;
        let reason = Reason::CONSUMER_DEFINED;
        let answer = passive.reject(0, reason, Private::NONE, Private::NONE);
        assert_eq!(answer, Ok(()));
        assert_eq!(pass(&mut passive, &mut active), Some(true));
        assert_eq!(active.state(), State::Timewait);
        assert_eq!(passive.state(), State::Timewait);
        Ok(())
    }

    #[test]
    fn the_peer_cannot_extend_the_time_after_a_rejection() {
        let mut active = active();
        let mad = active.transmit();
        assert!(mad.is_some());
        let Some(mad) = mad else {
            return;
        };
        let message = Message::parse(&mad);
        let Ok(Message {
            tid,
            body: Body::Req(mut req),
        }) = message
        else {
            return;
        };
        req.primary.ack_timeout = Timeout::MAX;
        req.remote_response_timeout = Timeout::MAX;
        req.local_response_timeout = Timeout::MAX;
        let made = Connection::request(&device(1), CommId(2), active_ip(), tid, &req);
        assert!(made.is_ok());
        let Ok((mut passive, _)) = made else {
            return;
        };
        let reason = Reason::CONSUMER_DEFINED;
        let answer = passive.reject(0, reason, Private::NONE, Private::NONE);
        assert_eq!(answer, Ok(()));
        // 4.3 s, and twice the time that a packet travels.
        assert!(passive.deadline().is_some_and(|at| at < 4_500_000_000));
    }
}
