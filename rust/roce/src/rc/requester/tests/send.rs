// SPDX-License-Identifier: GPL-2.0
//! Tests of choosing and building packets.

#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_roce_rc_requester_send))]
mod suite {
    use super::super::*;

    #[test]
    fn messages_are_cut_at_the_mtu() -> Result {
        use Opcode::*;
        let imm = Op::Send(SendEnd::Imm(1));
        let invalidate = Op::Send(SendEnd::Invalidate(1));
        let write_imm = Op::Write {
            va: 0x1000,
            rkey: 7,
            imm: Some(9),
        };
        for (op, len, opcodes) in [
            (SEND, 0, [RcSendOnly].as_slice()),
            (SEND, 1, &[RcSendOnly]),
            (SEND, MTU, &[RcSendOnly]),
            (SEND, MTU + 1, &[RcSendFirst, RcSendLast]),
            (SEND, 3 * MTU, &[RcSendFirst, RcSendMiddle, RcSendLast]),
            (imm, 0, &[RcSendOnlyImm]),
            (imm, MTU + 1, &[RcSendFirst, RcSendLastImm]),
            (invalidate, 5, &[RcSendOnlyInvalidate]),
            (invalidate, 2 * MTU, &[RcSendFirst, RcSendLastInvalidate]),
            (WRITE, 0, &[RcWriteOnly]),
            (WRITE, 2 * MTU, &[RcWriteFirst, RcWriteLast]),
            (
                WRITE,
                2 * MTU + 9,
                &[RcWriteFirst, RcWriteMiddle, RcWriteLast],
            ),
            (write_imm, 0, &[RcWriteOnlyImm]),
            (write_imm, MTU + 1, &[RcWriteFirst, RcWriteLastImm]),
        ] {
            with(&attr(), 64, |requester| {
                let request = WorkRequest {
                    solicited: true,
                    ..request(77, op, len)
                };
                requester.post(&request)?;
                let mut done = 0;
                for (index, opcode) in (0..).zip(opcodes) {
                    let Some(outgoing) = requester.poll(0) else {
                        return Err(Error::Invalid);
                    };
                    let packet = outgoing.packet;
                    let last = index + 1 == opcodes.len() as u32;
                    assert_eq!(packet.opcode(), *opcode);
                    assert_eq!(packet.bth.psn, psn(index));
                    assert_eq!(packet.bth.dest_qp, PEER);
                    assert_eq!(packet.bth.solicited, last);
                    assert_eq!(packet.bth.ack_req, last);
                    assert_eq!(outgoing.wr_id, 77);
                    assert_eq!(outgoing.offset, done);
                    assert!(!outgoing.again);
                    done += packet.payload_len() as u32;
                    if let Headers::WriteFirst(reth) | Headers::WriteOnly(reth, _) =
                        packet.headers()
                    {
                        let all = Reth {
                            va: 0x1000,
                            rkey: 7,
                            len,
                        };
                        assert_eq!(reth, all);
                    }
                }
                assert_eq!(done, len);
                assert_eq!(requester.poll(0), None);
                assert_eq!(taken(requester), None);
                let last = opcodes.len() as u32 - 1;
                assert_eq!(requester.receive(0, &ack(last)), Received::Nothing);
                assert_eq!(taken(requester), Some((77, Status::Success)));
                assert_eq!(requester.deadline(), None);
                assert_eq!(requester.stats().bytes, u64::from(len));
                Ok(())
            })?;
        }
        Ok(())
    }

    #[test]
    fn atomics_are_one_packet_and_answered_by_their_value() -> Result {
        let swap = Op::CompareSwap {
            va: 0x1000,
            rkey: 7,
            compare: 1,
            swap: 2,
        };
        with(&attr(), 64, |requester| {
            requester.post(&request(1, swap, 8))?;
            requester.post(&request(2, ADD, 8))?;
            let eth = AtomicEth {
                va: 0x1000,
                rkey: 7,
                swap_add: 2,
                compare: 1,
            };
            let packet = requester.poll(0).map(|outgoing| outgoing.packet);
            let headers = packet.map(|packet| packet.headers());
            assert_eq!(headers, Some(Headers::CompareSwap(eth)));
            let eth = AtomicEth {
                swap_add: 5,
                compare: 0,
                ..eth
            };
            let packet = requester.poll(0).map(|outgoing| outgoing.packet);
            let headers = packet.map(|packet| packet.headers());
            assert_eq!(headers, Some(Headers::FetchAdd(eth)));
            for (number, wr_id) in [(0, 1), (1, 2)] {
                let headers = Headers::AtomicAcknowledge(aeth(Syndrome::ACK), 42);
                let received = requester.receive(0, &response(number, headers, 0));
                let returned = match received {
                    Received::Atomic { wr_id, value, .. } => Some((wr_id, value)),
                    _ => None,
                };
                assert_eq!(returned, Some((wr_id, 42)));
                assert_eq!(taken(requester), Some((wr_id, Status::Success)));
            }
            Ok(())
        })
    }

    #[test]
    fn invalid_work_requests_are_refused() -> Result {
        let mut wqes = [Wqe::EMPTY; 2];
        let mut slots = [Psn::default(); 1];
        let mut requester = Requester::new(&mut wqes[..], &mut slots[..], 64);
        let send = request(1, SEND, 1);
        assert_eq!(requester.post(&send), Err(Error::Invalid));
        let none = Attr {
            max_rd_atomic: 0,
            ..attr()
        };
        let many = Attr {
            max_rd_atomic: 2,
            ..attr()
        };
        assert_eq!(start(&mut requester, &many), Err(Error::Invalid));
        assert_eq!(requester.state(), State::Rtr);
        assert_eq!(requester.post(&send), Err(Error::Invalid));
        requester.modify(&Attr::default(), Mask::NONE)?;
        start(&mut requester, &none)?;
        for (op, len) in [(SEND, MAX_LEN + 1), (WRITE, u32::MAX), (READ, 1), (ADD, 8)] {
            let posted = requester.post(&request(1, op, len));
            assert_eq!(posted, Err(Error::Invalid));
        }
        requester.modify(&Attr::default(), Mask::NONE)?;
        let one = Attr {
            max_rd_atomic: 1,
            ..attr()
        };
        start(&mut requester, &one)?;
        for len in [0, 7, 9] {
            let posted = requester.post(&request(1, ADD, len));
            assert_eq!(posted, Err(Error::Invalid));
        }
        assert!(requester.is_empty());
        requester.post(&request(1, SEND, MAX_LEN))?;
        requester.post(&request(2, READ, MAX_LEN))?;
        assert_eq!(requester.post(&send), Err(Error::Full));
        assert_eq!(requester.len(), 2);
        Ok(())
    }

    #[test]
    fn acknowledgements_are_requested_in_time() -> Result {
        use Opcode::*;
        // The last packet of a message, if no other message follows.
        with(&attr(), 64, |requester| {
            requester.post(&request(0, SEND, 0))?;
            requester.post(&request(1, SEND, 0))?;
            assert_eq!(sent(requester, 0), Some((RcSendOnly, 0, false)));
            assert_eq!(sent(requester, 0), Some((RcSendOnly, 1, true)));
            // The next work request has to wait for a fence.
            requester.post(&request(2, READ, 1))?;
            requester.post(&request(3, SEND, 0))?;
            requester.post(&WorkRequest {
                fence: true,
                ..request(4, SEND, 0)
            })?;
            assert_eq!(sent(requester, 0), Some((RcReadRequest, 2, false)));
            assert_eq!(sent(requester, 0), Some((RcSendOnly, 3, true)));
            assert_eq!(sent(requester, 0), None);
            Ok(())
        })?;
        // The next request has to wait for the peer's limit on READs.
        let one = Attr {
            max_rd_atomic: 1,
            ..attr()
        };
        with(&one, 16, |requester| {
            requester.post(&request(0, SEND, 0))?;
            requester.post(&request(1, READ, 20 * MTU))?;
            assert_eq!(sent(requester, 0), Some((RcSendOnly, 0, true)));
            assert_eq!(sent(requester, 0), None);
            requester.receive(0, &ack(0));
            assert_eq!(sent(requester, 0), Some((RcReadRequest, 1, false)));
            Ok(())
        })?;
        // Four times per window.
        with(&attr(), 16, |requester| {
            requester.post(&request(0, SEND, 100 * MTU))?;
            for number in 0..16 {
                let opcode = if number == 0 {
                    RcSendFirst
                } else {
                    RcSendMiddle
                };
                let asks = number % 4 == 3;
                assert_eq!(sent(requester, 0), Some((opcode, number, asks)));
            }
            assert_eq!(sent(requester, 0), None);
            Ok(())
        })?;
        // The packet that fills the window, whatever its size.
        with(&attr(), 3, |requester| {
            requester.post(&request(0, WRITE, 100 * MTU))?;
            requester.post(&request(1, SEND, 100 * MTU))?;
            for number in 0..3 {
                let asked = sent(requester, 0).map(|(_, _, asked)| asked);
                assert_eq!(asked, Some(true));
                let _ = number;
            }
            requester.receive(0, &ack(0));
            assert_eq!(sent(requester, 0), Some((RcWriteMiddle, 3, true)));
            assert_eq!(sent(requester, 0), None);
            Ok(())
        })
    }

    #[test]
    fn a_read_uses_a_psn_for_each_response_packet() -> Result {
        // Each request covers a quarter of the window.
        with(&attr(), 16, |requester| {
            requester.post(&request(0, READ, 10 * MTU + 1))?;
            requester.post(&request(1, SEND, 0))?;
            for (number, packets) in [(0, 4), (4, 4), (8, 3)] {
                let Some(outgoing) = requester.poll(0) else {
                    return Err(Error::Invalid);
                };
                let reth = Reth {
                    va: 0x1000 + u64::from(number * MTU),
                    rkey: 7,
                    len: (packets * MTU).min((10 * MTU + 1) - number * MTU),
                };
                assert_eq!(outgoing.packet.bth.psn, psn(number));
                assert_eq!(outgoing.packet.headers(), Headers::ReadRequest(reth));
                assert_eq!(outgoing.packet.payload_len(), 0);
                assert_eq!(outgoing.offset, number * MTU);
                // The bit tells the peer whether more requests of the READ follow.
                assert_eq!(outgoing.packet.bth.solicited, number != 8);
            }
            assert_eq!(sent(requester, 0), Some((Opcode::RcSendOnly, 11, true)));
            // The responder may cut the response differently.
            for number in 0..10 {
                let position = match number {
                    0 | 4 | 8 => Position::First,
                    3 => Position::Last,
                    _ => Position::Middle,
                };
                let packet = data(number, position, MTU as usize);
                assert_eq!(place(requester, 0, &packet), Some((0, number * MTU)));
                // A duplicate has no effect.
                assert_eq!(place(requester, 0, &packet), None);
                assert_eq!(taken(requester), None);
            }
            let packet = data(10, Position::Last, 1);
            assert_eq!(place(requester, 0, &packet), Some((0, 10 * MTU)));
            assert_eq!(taken(requester), Some((0, Status::Success)));
            requester.receive(0, &ack(11));
            assert_eq!(taken(requester), Some((1, Status::Success)));
            Ok(())
        })?;
        // A READ of no bytes has one PSN and one response.
        with(&attr(), 16, |requester| {
            requester.post(&request(0, READ, 0))?;
            assert_eq!(sent(requester, 0), Some((Opcode::RcReadRequest, 0, false)));
            let packet = data(0, Position::Only, 0);
            assert_eq!(place(requester, 0, &packet), Some((0, 0)));
            assert_eq!(taken(requester), Some((0, Status::Success)));
            Ok(())
        })
    }

    #[test]
    fn no_more_reads_and_atomics_than_the_peer_allows() -> Result {
        let two = Attr {
            max_rd_atomic: 2,
            ..attr()
        };
        with(&two, 64, |requester| {
            for (wr_id, op, len) in [(0, ADD, 8), (1, READ, 1), (2, ADD, 8), (3, SEND, 0)] {
                requester.post(&request(wr_id, op, len))?;
            }
            assert_eq!(flight(requester, 0), (2, Some(0)));
            let headers = Headers::AtomicAcknowledge(aeth(Syndrome::ACK), 0);
            requester.receive(0, &response(0, headers, 0));
            assert_eq!(flight(requester, 0), (2, Some(2)));
            Ok(())
        })
    }

    #[test]
    fn a_fence_waits_for_reads_and_atomics_only() -> Result {
        with(&attr(), 64, |requester| {
            requester.post(&request(0, SEND, 0))?;
            requester.post(&WorkRequest {
                fence: true,
                ..request(1, READ, 2 * MTU)
            })?;
            requester.post(&WorkRequest {
                fence: true,
                ..request(2, WRITE, 1)
            })?;
            requester.post(&request(3, SEND, 0))?;
            assert_eq!(flight(requester, 0), (2, Some(0)));
            place(requester, 0, &data(1, Position::First, MTU as usize));
            assert_eq!(requester.poll(0), None);
            place(requester, 0, &data(2, Position::Last, MTU as usize));
            assert_eq!(flight(requester, 0), (2, Some(3)));
            Ok(())
        })
    }

    #[test]
    fn a_draining_queue_begins_no_work_request() -> Result {
        with(&attr(), 64, |requester| {
            requester.post(&request(0, SEND, 2 * MTU))?;
            requester.post(&request(1, SEND, 2 * MTU))?;
            assert!(requester.poll(0).is_some());
            let sqd = Attr {
                state: State::Sqd,
                en_sqd_async_notify: true,
                ..attr()
            };
            requester.modify(&sqd, Mask::EN_SQD_ASYNC_NOTIFY)?;
            assert!(!requester.is_drained() && !requester.take_drained());
            // Until the queue is drained, attributes stay as they are, and so do the timers.
            let deadline = requester.deadline();
            assert!(deadline.is_some());
            let fewer = Attr {
                retry_cnt: 1,
                rnr_retry: 1,
                ..sqd
            };
            let counts = Mask::RETRY_CNT.with(Mask::RNR_RETRY);
            assert_eq!(requester.modify(&fewer, counts), Err(Error::Invalid));
            assert_eq!(requester.attr().retry_cnt, attr().retry_cnt);
            assert_eq!(requester.deadline(), deadline);
            // A work request that has begun continues, also after a loss; another one does not
            // begin.
            assert_eq!(sent(requester, 0), Some((Opcode::RcSendLast, 1, true)));
            assert_eq!(requester.poll(0), None);
            requester.receive(0, &nak(0, Nak::Sequence));
            assert_eq!(flight(requester, 0), (2, Some(0)));
            requester.post(&request(2, SEND, 0))?;
            requester.receive(0, &ack(1));
            assert!(requester.is_drained());
            assert_eq!(taken(requester), Some((0, Status::Success)));
            // It is reported once.
            assert!(requester.take_drained() && !requester.take_drained());
            assert_eq!(requester.poll(0), None);
            assert_eq!(requester.deadline(), None);
            requester.modify(&fewer, counts)?;
            assert_eq!(requester.attr().retry_cnt, 1);
            let rts = Attr {
                state: State::Rts,
                ..sqd
            };
            requester.modify(&rts, Mask::NONE)?;
            assert_eq!(flight(requester, 0), (3, Some(2)));
            Ok(())
        })
    }

    #[test]
    fn a_drained_queue_is_reported_on_request() -> Result {
        with(&attr(), 64, |requester| {
            let to = |state, en_sqd_async_notify| Attr {
                state,
                en_sqd_async_notify,
                ..attr()
            };
            let mask = Mask::EN_SQD_ASYNC_NOTIFY;
            // The queue is drained at once: nothing is under way.
            for (notify, mask, reported) in [
                (true, mask, true),
                (false, mask, false),
                (true, Mask::NONE, false),
            ] {
                requester.modify(&to(State::Sqd, notify), mask)?;
                assert_eq!(requester.take_drained(), reported);
                assert!(!requester.take_drained());
                requester.modify(&to(State::Rts, false), Mask::NONE)?;
            }
            // The report of one drain is not left to the next one, nor to another state.
            requester.modify(&to(State::Sqd, true), mask)?;
            requester.modify(&to(State::Rts, false), Mask::NONE)?;
            assert!(!requester.take_drained());
            requester.modify(&to(State::Sqd, false), Mask::NONE)?;
            assert!(!requester.take_drained());
            Ok(())
        })
    }

    #[test]
    fn a_failure_of_the_caller_ends_the_work_request() -> Result {
        with(&attr(), 64, |requester| {
            for wr_id in 0..3 {
                requester.post(&request(wr_id, SEND, MTU))?;
            }
            requester.poll(0);
            let Some(outgoing) = requester.poll(0) else {
                return Err(Error::Invalid);
            };
            requester.fail(outgoing.wqe, Status::LocalProtection);
            assert_eq!(requester.state(), State::Error);
            // A second failure has no effect.
            requester.fail(outgoing.wqe, Status::RemoteAccess);
            assert_eq!(taken(requester), Some((0, Status::Flushed)));
            assert_eq!(taken(requester), Some((1, Status::LocalProtection)));
            assert_eq!(taken(requester), Some((2, Status::Flushed)));
            Ok(())
        })?;
        // The data of the last packet could not be placed.
        with(&attr(), 64, |requester| {
            requester.post(&request(0, READ, MTU))?;
            requester.poll(0);
            let packet = data(0, Position::Only, MTU as usize);
            let Received::Place { wqe, .. } = requester.receive(0, &packet) else {
                return Err(Error::Invalid);
            };
            requester.fail(wqe, Status::LocalProtection);
            assert_eq!(taken(requester), Some((0, Status::LocalProtection)));
            assert_eq!(taken(requester), None);
            Ok(())
        })
    }

    #[test]
    fn an_error_flushes_and_a_reset_discards() -> Result {
        with(&attr(), 64, |requester| {
            requester.post(&request(0, SEND, MTU))?;
            requester.post(&request(1, READ, MTU))?;
            flight(requester, 0);
            requester.receive(0, &nak(0, Nak::Sequence));
            assert_eq!(requester.window(), 32);
            flight(requester, 0);
            requester.error();
            assert_eq!(requester.state(), State::Error);
            assert_eq!(requester.receive(0, &ack(0)), Received::Nothing);
            assert_eq!(taken(requester), Some((0, Status::Flushed)));
            requester.modify(&Attr::default(), Mask::NONE)?;
            assert_eq!(requester.state(), State::Reset);
            assert!(requester.is_empty());
            assert_eq!(taken(requester), None);
            requester.error();
            assert_eq!(requester.state(), State::Reset);
            // After a reset the requester starts with the initial window.
            assert_eq!(requester.window(), 64);
            start(requester, &attr())?;
            requester.post(&request(2, READ, MTU))?;
            assert_eq!(sent(requester, 0), Some((Opcode::RcReadRequest, 0, false)));
            place(requester, 0, &data(0, Position::Only, MTU as usize));
            assert_eq!(taken(requester), Some((2, Status::Success)));
            Ok(())
        })
    }
}
