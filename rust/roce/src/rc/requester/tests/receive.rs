// SPDX-License-Identifier: GPL-2.0
//! Tests of matching responses with requests.

#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_roce_rc_requester_receive))]
mod suite {
    use super::super::*;

    #[test]
    fn an_ack_confirms_all_earlier_requests() -> Result {
        with(&attr(), 64, |requester| {
            for wr_id in 0..4 {
                requester.post(&request(wr_id, SEND, 2 * MTU))?;
            }
            assert_eq!(flight(requester, 0), (8, Some(0)));
            // In the middle of the third message.
            requester.receive(5, &ack(4));
            assert_eq!(taken(requester), Some((0, Status::Success)));
            assert_eq!(taken(requester), Some((1, Status::Success)));
            assert_eq!(taken(requester), None);
            assert_eq!(requester.in_flight(), 3);
            // Duplicate and earlier acknowledgements have no effect.
            for number in [4, 0, 1] {
                requester.receive(6, &ack(number));
            }
            assert_eq!(requester.stats().duplicates, 3);
            requester.receive(7, &ack(7));
            assert_eq!(taken(requester), Some((2, Status::Success)));
            assert_eq!(taken(requester), Some((3, Status::Success)));
            assert!(requester.is_empty());
            Ok(())
        })
    }

    #[test]
    fn responses_to_unsent_packets_are_ignored() -> Result {
        with(&attr(), 64, |requester| {
            requester.post(&request(0, SEND, 0))?;
            requester.receive(0, &ack(0));
            assert_eq!(flight(requester, 0), (1, Some(0)));
            for number in [1, 2, 1000, Psn::HALF - 1] {
                requester.receive(0, &ack(number));
                requester.receive(0, &nak(number, Nak::RemoteAccess));
            }
            assert_eq!(requester.stats().strays, 9);
            assert_eq!(requester.state(), State::Rts);
            assert_eq!(taken(requester), None);
            // A request is not a response.
            let packet = response(0, Headers::SendOnly(SendEnd::Plain), 0);
            assert_eq!(requester.receive(0, &packet), Received::Nothing);
            assert_eq!(taken(requester), None);
            requester.receive(0, &ack(0));
            assert_eq!(taken(requester), Some((0, Status::Success)));
            Ok(())
        })
    }

    #[test]
    fn read_data_confirms_earlier_requests() -> Result {
        with(&attr(), 64, |requester| {
            requester.post(&request(0, SEND, MTU))?;
            requester.post(&request(1, WRITE, MTU))?;
            requester.post(&request(2, READ, MTU))?;
            assert_eq!(flight(requester, 0), (3, Some(0)));
            let packet = data(2, Position::Only, MTU as usize);
            assert_eq!(place(requester, 0, &packet), Some((2, 0)));
            for wr_id in 0..3 {
                assert_eq!(taken(requester), Some((wr_id, Status::Success)));
            }
            Ok(())
        })
    }

    #[test]
    fn an_ack_behind_a_read_implies_that_its_data_was_lost() -> Result {
        with(&attr(), 64, |requester| {
            requester.post(&request(0, SEND, 0))?;
            requester.post(&request(1, READ, MTU))?;
            requester.post(&request(2, SEND, 0))?;
            assert_eq!(flight(requester, 0), (3, Some(0)));
            requester.receive(0, &ack(2));
            assert_eq!(taken(requester), Some((0, Status::Success)));
            assert_eq!(taken(requester), None);
            assert_eq!(requester.stats().implied_naks, 1);
            assert_eq!(flight(requester, 0), (2, Some(1)));
            // A duplicate of the ACK does not cause another retransmission.
            requester.receive(0, &ack(2));
            assert_eq!(requester.poll(0), None);
            place(requester, 0, &data(1, Position::Only, MTU as usize));
            assert_eq!(taken(requester), Some((1, Status::Success)));
            requester.receive(0, &ack(2));
            assert_eq!(taken(requester), Some((2, Status::Success)));
            Ok(())
        })
    }

    #[test]
    fn refusals_end_the_work_request_and_flush_the_rest() -> Result {
        for (code, status) in [
            (Nak::InvalidRequest, Status::RemoteInvalidRequest),
            (Nak::RemoteAccess, Status::RemoteAccess),
            (Nak::RemoteOperation, Status::RemoteOperation),
        ] {
            with(&attr(), 64, |requester| {
                requester.post(&request(0, SEND, MTU))?;
                requester.post(&request(1, WRITE, 3 * MTU))?;
                requester.post(&request(2, SEND, MTU))?;
                assert_eq!(flight(requester, 0), (5, Some(0)));
                requester.post(&request(3, SEND, MTU))?;
                requester.receive(0, &nak(2, code));
                assert_eq!(requester.state(), State::Error);
                assert_eq!(requester.state(), State::Error);
                assert_eq!(requester.poll(0), None);
                assert_eq!(requester.deadline(), None);
                assert_eq!(taken(requester), Some((0, Status::Success)));
                assert_eq!(taken(requester), Some((1, status)));
                // A work request that is posted in ERR is flushed too, in its turn.
                requester.post(&request(4, SEND, MTU))?;
                for wr_id in 2..=4 {
                    assert_eq!(taken(requester), Some((wr_id, Status::Flushed)));
                }
                assert_eq!(taken(requester), None);
                requester.receive(0, &ack(4));
                assert_eq!(taken(requester), None);
                let stats = requester.stats();
                let naks = stats.nak_invalid + stats.nak_access + stats.nak_operation;
                assert_eq!(naks, 1);
                Ok(())
            })?;
        }
        // A READ before the refused request will not be answered.
        with(&attr(), 64, |requester| {
            requester.post(&request(0, READ, MTU))?;
            requester.post(&request(1, WRITE, MTU))?;
            assert_eq!(flight(requester, 0), (2, Some(0)));
            requester.receive(0, &nak(1, Nak::RemoteAccess));
            assert_eq!(taken(requester), Some((0, Status::Flushed)));
            assert_eq!(taken(requester), Some((1, Status::RemoteAccess)));
            Ok(())
        })
    }

    #[test]
    fn data_for_another_request_is_dropped() -> Result {
        let value = Headers::AtomicAcknowledge(aeth(Syndrome::ACK), 0);
        let mtu = MTU as usize;
        for (op, len, packet) in [
            (READ, 1, response(1, value, 0)),
            (SEND, 2 * MTU, data(1, Position::Only, mtu)),
            (SEND, 2 * MTU, data(2, Position::First, mtu)),
            (SEND, 2 * MTU, data(2, Position::Last, mtu)),
            (WRITE, 1, response(1, value, 0)),
            (WRITE, 1, data(1, Position::Only, 1)),
            (ADD, 8, data(1, Position::Only, 8)),
        ] {
            with(&attr(), 64, |requester| {
                requester.post(&request(7, SEND, 0))?;
                requester.post(&request(8, op, len))?;
                flight(requester, 0);
                let in_flight = requester.in_flight();
                assert_eq!(requester.receive(0, &packet), Received::Nothing);
                // The packet does not confirm earlier requests either.
                assert_eq!(taken(requester), None);
                assert_eq!(requester.in_flight(), in_flight);
                assert_eq!(requester.state(), State::Rts);
                let stats = requester.stats();
                assert_eq!((stats.strays, stats.responses), (1, 0));
                requester.receive(0, &ack(0));
                assert_eq!(taken(requester), Some((7, Status::Success)));
                Ok(())
            })?;
        }
        Ok(())
    }

    #[test]
    fn invalid_responses_fail_the_work_request() -> Result {
        let mtu = MTU as usize;
        for (op, len, packet) in [
            (READ, 2 * MTU, data(0, Position::First, mtu - 1)),
            (READ, 2 * MTU, data(0, Position::First, mtu + 1)),
            (READ, 2 * MTU, data(0, Position::Only, 0)),
            (READ, MTU, data(0, Position::First, mtu)),
            (READ, MTU, data(0, Position::Middle, mtu)),
            (READ, 0, data(0, Position::Only, 4)),
        ] {
            with(&attr(), 64, |requester| {
                requester.post(&request(0, op, len))?;
                flight(requester, 0);
                assert_eq!(requester.receive(0, &packet), Received::Nothing);
                assert_eq!(taken(requester), Some((0, Status::BadResponse)));
                assert_eq!(requester.state(), State::Error);
                Ok(())
            })?;
        }
        // The credits in the response have no effect.
        with(&attr(), 64, |requester| {
            requester.post(&request(0, SEND, 0))?;
            flight(requester, 0);
            let credits = Credits::from_code(0).unwrap_or(Credits::UNUSED);
            requester.receive(0, &response_with(0, Syndrome::Ack(credits)));
            assert_eq!(taken(requester), Some((0, Status::Success)));
            Ok(())
        })
    }

    #[test]
    fn only_lost_read_data_is_requested_again() -> Result {
        with(&attr(), 32, |requester| {
            requester.post(&request(0, READ, 20 * MTU))?;
            // The READ is cut into requests of 8, 8 and 4 packets.
            assert_eq!(flight(requester, 0), (3, Some(0)));
            for number in 0..3 {
                let packet = data(number, Position::Middle, MTU as usize);
                assert_eq!(place(requester, 0, &packet), Some((0, number * MTU)));
            }
            // Response 3 is lost. The requester sends one request for the rest of the first, and
            // the other requests again.
            for number in 4..8 {
                let packet = data(number, Position::Middle, MTU as usize);
                assert_eq!(place(requester, 0, &packet), None);
            }
            for (number, packets) in [(3, 5), (8, 8), (16, 4)] {
                let headers = requester.poll(0).map(|outgoing| outgoing.packet.headers());
                let reth = Reth {
                    va: 0x1000 + u64::from(number * MTU),
                    rkey: 7,
                    len: packets * MTU,
                };
                assert_eq!(headers, Some(Headers::ReadRequest(reth)));
                if number == 3 {
                    // The window is halved, and the first response fills a part of it.
                    assert_eq!(requester.window(), 16);
                }
                if number == 8 {
                    assert_eq!(requester.poll(0), None);
                    place(requester, 0, &data(3, Position::First, MTU as usize));
                }
            }
            assert_eq!(requester.poll(0), None);
            assert_eq!(requester.stats().implied_naks, 1);
            // The responses to the original requests still arrive, but 4 is lost now. When 5
            // arrives a second time, the loss is detected.
            let late = data(6, Position::Middle, MTU as usize);
            assert_eq!(place(requester, 0, &late), None);
            assert_eq!(requester.stats().implied_naks, 2);
            let five = data(5, Position::Middle, MTU as usize);
            assert_eq!(place(requester, 0, &five), None);
            assert_eq!(requester.stats().implied_naks, 2);
            assert_eq!(place(requester, 0, &five), None);
            assert_eq!(requester.stats().implied_naks, 3);
            Ok(())
        })
    }
}
