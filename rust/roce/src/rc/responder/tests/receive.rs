// SPDX-License-Identifier: GPL-2.0
//! Tests of checking and executing requests.

#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_roce_rc_responder_receive))]
mod suite {
    use super::super::*;

    /// Passes requests in order and checks the calls of the target.
    fn expect_calls(requests: &[(Headers, u32)], calls: &[Call]) -> Result {
        with(|responder, target| {
            for (number, (headers, len)) in (0..).zip(requests) {
                let mut packet = request(number, *headers, *len);
                packet.bth.solicited = true;
                let result = responder.receive(0, &packet, target);
                assert_eq!(result, RequestResult::Executed);
            }
            assert_eq!(target.taken(), Log::of(calls));
            let last = requests.len() as u32 - 1;
            assert_eq!(answers(responder, 0), Log::of(&[Sent::Ack(last, 1)]));
            Ok(())
        })
    }

    fn ended(len: u32, end: SendEnd, write: bool) -> Call {
        Call::End(Ended {
            len,
            end,
            write,
            solicited: true,
        })
    }

    const SEND: Call = Call::Begin(Incoming::Send { whole: false });
    const WHOLE: Call = Call::Begin(Incoming::Send { whole: true });

    #[test]
    fn sends_consume_a_receive() -> Result {
        let plain = SendEnd::Plain;
        expect_calls(
            &[(Headers::SendOnly(plain), 0)],
            &[WHOLE, ended(0, plain, false)],
        )?;
        expect_calls(
            &[(Headers::SendOnly(SendEnd::Imm(5)), MTU)],
            &[WHOLE, Call::Place(0), ended(MTU, SendEnd::Imm(5), false)],
        )?;
        expect_calls(
            &[
                (Headers::SendFirst, MTU),
                (Headers::SendMiddle, MTU),
                (Headers::SendLast(SendEnd::Invalidate(9)), 3),
            ],
            &[
                SEND,
                Call::Place(0),
                Call::Place(MTU),
                Call::Place(2 * MTU),
                ended(2 * MTU + 3, SendEnd::Invalidate(9), false),
            ],
        )
    }

    #[test]
    fn writes_consume_a_receive_only_for_immediate_data() -> Result {
        let reth = |len| Reth { len, ..WHERE };
        expect_calls(
            &[(Headers::WriteOnly(reth(0), None), 0)],
            &[Call::CheckWrite(reth(0)), Call::EndWrite(reth(0))],
        )?;
        expect_calls(
            &[
                (Headers::WriteFirst(reth(MTU + 5)), MTU),
                (Headers::WriteLast(None), 5),
            ],
            &[
                Call::CheckWrite(reth(MTU + 5)),
                Call::Write(0),
                Call::Write(MTU),
                Call::EndWrite(reth(MTU + 5)),
            ],
        )?;
        expect_calls(
            &[
                (Headers::WriteFirst(reth(3 * MTU)), MTU),
                (Headers::WriteMiddle, MTU),
                (Headers::WriteLast(Some(8)), MTU),
            ],
            &[
                Call::CheckWrite(reth(3 * MTU)),
                Call::Write(0),
                Call::Write(MTU),
                Call::Begin(Incoming::WriteImm),
                Call::Write(2 * MTU),
                ended(3 * MTU, SendEnd::Imm(8), true),
                Call::EndWrite(reth(3 * MTU)),
            ],
        )?;
        expect_calls(
            &[(Headers::WriteOnly(reth(0), Some(8)), 0)],
            &[
                Call::CheckWrite(reth(0)),
                Call::Begin(Incoming::WriteImm),
                ended(0, SendEnd::Imm(8), true),
                Call::EndWrite(reth(0)),
            ],
        )
    }

    /// Returns the result on a second request after a first one was executed.
    fn after(first: (Headers, u32), second: (Headers, u32)) -> Result<RequestResult> {
        let mut result = RequestResult::Dropped;
        with(|responder, target| {
            let packet = request(0, first.0, first.1);
            assert_eq!(
                responder.receive(0, &packet, target),
                RequestResult::Executed
            );
            result = responder.receive(0, &request(1, second.0, second.1), target);
            Ok(())
        })?;
        Ok(result)
    }

    #[test]
    fn opcodes_must_follow_each_other() -> Result {
        let reth = Reth {
            len: 2 * MTU,
            ..WHERE
        };
        let one = Reth { len: 1, ..WHERE };
        let send = (Headers::SendOnly(SendEnd::Plain), 1);
        let send_first = (Headers::SendFirst, MTU);
        let write_first = (Headers::WriteFirst(reth), MTU);
        let begin = [
            send,
            send_first,
            (Headers::WriteOnly(one, None), 1),
            write_first,
            (Headers::ReadRequest(one), 0),
            (Headers::CompareSwap(WORD), 0),
            (Headers::FetchAdd(WORD), 0),
        ];
        let send_on = [
            (Headers::SendMiddle, MTU),
            (Headers::SendLast(SendEnd::Plain), 1),
        ];
        let write_on = [(Headers::WriteLast(None), MTU)];
        let invalid = RequestResult::Refused(Nak::InvalidRequest);
        for (first, starts, sends, writes) in [
            (send, RequestResult::Executed, invalid, invalid),
            (send_first, invalid, RequestResult::Executed, invalid),
            (write_first, invalid, invalid, RequestResult::Executed),
        ] {
            for second in begin {
                assert_eq!(after(first, second), Ok(starts));
            }
            for second in send_on {
                assert_eq!(after(first, second), Ok(sends));
            }
            for second in write_on {
                assert_eq!(after(first, second), Ok(writes));
            }
        }
        // A middle packet whose length would be right for a last packet.
        assert_eq!(after(write_first, (Headers::WriteMiddle, MTU)), Ok(invalid));
        Ok(())
    }

    /// Returns the result on a request after no other.
    fn alone(headers: Headers, len: u32) -> Result<RequestResult> {
        let mut result = RequestResult::Dropped;
        with(|responder, target| {
            result = responder.receive(0, &request(0, headers, len), target);
            Ok(())
        })?;
        Ok(result)
    }

    #[test]
    fn packets_of_a_wrong_length_are_refused() -> Result {
        let invalid = RequestResult::Refused(Nak::InvalidRequest);
        let good = RequestResult::Executed;
        let plain = SendEnd::Plain;
        let reth = |len| Reth { len, ..WHERE };
        for (headers, len, result) in [
            (Headers::SendOnly(plain), MTU, good),
            (Headers::SendOnly(plain), MTU + 1, invalid),
            (Headers::SendFirst, MTU - 1, invalid),
            (Headers::SendFirst, MTU + 1, invalid),
            (Headers::SendFirst, 0, invalid),
            (Headers::WriteOnly(reth(5), None), 5, good),
            (Headers::WriteOnly(reth(5), None), 4, invalid),
            (Headers::WriteOnly(reth(5), None), 6, invalid),
            (Headers::WriteOnly(reth(0), None), 1, invalid),
            (Headers::WriteOnly(reth(MTU + 1), None), MTU + 1, invalid),
            (Headers::WriteFirst(reth(MTU + 1)), MTU, good),
            (Headers::WriteFirst(reth(MTU)), MTU, invalid),
            (Headers::WriteFirst(reth(MTU + 1)), MTU - 1, invalid),
            (Headers::WriteFirst(reth(MAX_LEN)), MTU, good),
            (Headers::WriteFirst(reth(MAX_LEN + 1)), MTU, invalid),
            (Headers::ReadRequest(reth(MAX_LEN)), 0, good),
            (Headers::ReadRequest(reth(MAX_LEN + 1)), 0, invalid),
        ] {
            assert_eq!(alone(headers, len), Ok(result));
        }
        let first = (Headers::SendFirst, MTU);
        for (headers, len, result) in [
            (Headers::SendMiddle, MTU - 1, invalid),
            (Headers::SendMiddle, MTU + 1, invalid),
            (Headers::SendLast(plain), 0, invalid),
            (Headers::SendLast(plain), 1, good),
            (Headers::SendLast(plain), MTU, good),
            (Headers::SendLast(plain), MTU + 1, invalid),
        ] {
            assert_eq!(after(first, (headers, len)), Ok(result));
        }
        for (first, len, result) in [
            (MTU + 5, 5, good),
            (MTU + 5, 4, invalid),
            (MTU + 5, 6, invalid),
            (MTU + 5, 0, invalid),
            (2 * MTU, MTU, good),
            (3 * MTU, MTU, invalid),
        ] {
            let first = (Headers::WriteFirst(reth(first)), MTU);
            let last = (Headers::WriteLast(None), len);
            assert_eq!(after(first, last), Ok(result));
        }
        let first = (Headers::WriteFirst(reth(3 * MTU)), MTU);
        assert_eq!(after(first, (Headers::WriteMiddle, MTU)), Ok(good));
        assert_eq!(after(first, (Headers::WriteMiddle, MTU - 1)), Ok(invalid));
        Ok(())
    }

    #[test]
    fn operations_that_the_qp_does_not_allow_are_refused() -> Result {
        let one = Reth { len: 1, ..WHERE };
        for (headers, len, access) in [
            (
                Headers::WriteOnly(one, None),
                1,
                Access {
                    write: false,
                    ..attr().access
                },
            ),
            (
                Headers::ReadRequest(one),
                0,
                Access {
                    read: false,
                    ..attr().access
                },
            ),
            (
                Headers::FetchAdd(WORD),
                0,
                Access {
                    atomic: false,
                    ..attr().access
                },
            ),
        ] {
            let attr = Attr { access, ..attr() };
            with_attr(&attr, AckPolicy::AT_ONCE, |responder, target| {
                let result = responder.receive(0, &request(0, headers, len), target);
                assert_eq!(result, RequestResult::Refused(Nak::InvalidRequest));
                assert_eq!(target.taken(), Log::new());
                Ok(())
            })?;
        }
        // The address is not aligned.
        for va in [0x1001, 0x1004] {
            let result = alone(Headers::FetchAdd(AtomicEth { va, ..WORD }), 0);
            assert_eq!(result, Ok(RequestResult::Refused(Nak::InvalidRequest)));
        }
        Ok(())
    }

    #[test]
    fn refusals_of_the_target_are_sent_as_naks() -> Result {
        let reth = |len| Reth { len, ..WHERE };
        let send = Headers::SendOnly(SendEnd::Plain);
        let write = Headers::WriteOnly(reth(1), Some(3));
        let end = Call::End(Ended {
            len: 1,
            end: SendEnd::Plain,
            write: false,
            solicited: false,
        });
        let imm = Call::End(Ended {
            len: 1,
            end: SendEnd::Imm(3),
            write: true,
            solicited: false,
        });
        for (headers, len, call, aborts) in [
            (send, 1, WHOLE, false),
            (send, 1, Call::Place(0), true),
            (send, 1, end, true),
            (write, 1, Call::CheckWrite(reth(1)), false),
            (write, 1, Call::Begin(Incoming::WriteImm), false),
            (write, 1, Call::Write(0), true),
            (write, 1, imm, true),
            (
                Headers::ReadRequest(reth(9)),
                0,
                Call::CheckRead(reth(9)),
                false,
            ),
            (
                Headers::FetchAdd(WORD),
                0,
                Call::Atomic(Atomic::FetchAdd),
                false,
            ),
            (
                Headers::CompareSwap(WORD),
                0,
                Call::Atomic(Atomic::CompareSwap),
                false,
            ),
        ] {
            for (why, nak) in [
                (Refusal::Invalid, Nak::InvalidRequest),
                (Refusal::Access, Nak::RemoteAccess),
                (Refusal::Operation, Nak::RemoteOperation),
            ] {
                with(|responder, target| {
                    target.refuses = Some((call, why));
                    let result = responder.receive(0, &request(0, headers, len), target);
                    assert_eq!(result, RequestResult::Refused(nak));
                    assert_eq!(responder.state(), State::Error);
                    let mut calls = target.taken();
                    // The last call aborts the receive, if it had begun.
                    let abort = calls.pop() == Some(Call::Abort(Some(why)));
                    assert_eq!(abort, aborts);
                    assert_eq!(answers(responder, 0), Log::of(&[Sent::Nak(0, 0, nak)]));
                    Ok(())
                })?;
            }
        }
        Ok(())
    }

    #[test]
    fn duplicates_are_answered_and_not_executed() -> Result {
        with(|responder, target| {
            for number in 0..3 {
                responder.receive(0, &send(number), target);
            }
            target.taken();
            answers(responder, 0);
            for number in [0, 2, 1] {
                let result = responder.receive(0, &send(number), target);
                assert_eq!(result, RequestResult::Duplicate);
            }
            // Requests that ask for no acknowledgement, and a PSN half the number space back, are
            // answered too.
            let old = quiet(0, Headers::SendFirst, MTU);
            assert_eq!(responder.receive(0, &old, target), RequestResult::Duplicate);
            let mut old = send(0);
            old.bth.psn = responder.expected().sub(Psn::HALF);
            assert_eq!(responder.receive(0, &old, target), RequestResult::Duplicate);
            assert_eq!(target.taken(), Log::new());
            assert_eq!(answers(responder, 0), Log::of(&[Sent::Ack(2, 3)]));
            assert_eq!(responder.expected(), psn(3));
            assert_eq!(responder.stats().duplicates, 5);
            Ok(())
        })
    }

    #[test]
    fn requests_beyond_any_window_are_dropped_silently() -> Result {
        with(|responder, target| {
            responder.receive(0, &send(0), target);
            assert_eq!(answers(responder, 0), Log::of(&[Sent::Ack(0, 1)]));
            for number in [2 + LARGEST, 3 * LARGEST, Psn::HALF / 2, Psn::HALF] {
                let result = responder.receive(0, &send(number), target);
                assert_eq!(result, RequestResult::Dropped);
            }
            assert_eq!(answers(responder, 0), Log::new());
            assert_eq!(responder.stats().too_far, 4);
            assert_eq!(responder.stats().out_of_sequence, 0);
            // The packet does not change the answer to a packet within the window.
            let result = responder.receive(0, &send(1 + LARGEST), target);
            assert_eq!(result, RequestResult::OutOfSequence);
            let nak = Sent::Nak(1, 1, Nak::Sequence);
            assert_eq!(answers(responder, 0), Log::of(&[nak]));
            assert_eq!(
                responder.receive(0, &send(1), target),
                RequestResult::Executed
            );
            Ok(())
        })
    }

    #[test]
    fn a_gap_is_reported_once() -> Result {
        with(|responder, target| {
            responder.receive(0, &send(0), target);
            for number in [2, 4, 3] {
                let result = responder.receive(0, &send(number), target);
                assert_eq!(result, RequestResult::OutOfSequence);
            }
            // The NAK acknowledges all requests before it.
            let nak = Sent::Nak(1, 1, Nak::Sequence);
            assert_eq!(answers(responder, 0), Log::of(&[nak]));
            for number in [5, 6, 1000, 1 + LARGEST] {
                responder.receive(0, &send(number), target);
            }
            assert_eq!(answers(responder, 0), Log::new());
            // A packet that arrives a second time was retransmitted, so 1 was lost again.
            responder.receive(0, &send(2), target);
            assert_eq!(answers(responder, 0), Log::of(&[nak]));
            responder.receive(0, &send(3), target);
            assert_eq!(answers(responder, 0), Log::new());
            for number in [1, 2, 3] {
                let result = responder.receive(0, &send(number), target);
                assert_eq!(result, RequestResult::Executed);
            }
            assert_eq!(answers(responder, 0), Log::of(&[Sent::Ack(3, 4)]));
            // A new gap is reported again.
            responder.receive(0, &send(5), target);
            let nak = Sent::Nak(4, 4, Nak::Sequence);
            assert_eq!(answers(responder, 0), Log::of(&[nak]));
            let stats = responder.stats();
            assert_eq!((stats.out_of_sequence, stats.nak_sequence), (10, 3));
            Ok(())
        })
    }

    #[test]
    fn a_gap_that_closes_completely_is_not_reported() -> Result {
        with(|responder, target| {
            responder.receive(0, &send(1), target);
            responder.receive(0, &send(0), target);
            responder.receive(0, &send(1), target);
            assert_eq!(answers(responder, 0), Log::of(&[Sent::Ack(1, 2)]));
            Ok(())
        })
    }

    #[test]
    fn a_gap_behind_a_late_packet_is_reported() -> Result {
        with(|responder, target| {
            responder.receive(0, &send(1), target);
            responder.receive(0, &send(0), target);
            // 1 was dropped.
            let nak = Sent::Nak(1, 1, Nak::Sequence);
            assert_eq!(answers(responder, 0), Log::of(&[nak]));
            responder.receive(0, &send(2), target);
            assert_eq!(answers(responder, 0), Log::new());
            responder.receive(0, &send(3), target);
            responder.receive(0, &send(1), target);
            responder.receive(0, &send(2), target);
            responder.receive(0, &send(3), target);
            assert_eq!(answers(responder, 0), Log::of(&[Sent::Ack(3, 4)]));
            Ok(())
        })
    }

    #[test]
    fn a_missing_receive_causes_an_rnr_nak() -> Result {
        let imm = Headers::WriteLast(Some(1));
        let reth = Reth {
            len: 2 * MTU,
            ..WHERE
        };
        with(|responder, target| {
            target.receives = 0;
            let result = responder.receive(0, &send(0), target);
            assert_eq!(result, RequestResult::NotReady);
            responder.receive(0, &send(1), target);
            let answering = responder.poll(0);
            let headers = answering.map(|answering| answering.packet.headers());
            let Some(Headers::Acknowledge(aeth)) = headers else {
                return Err(Error::Invalid);
            };
            assert_eq!(aeth.syndrome, Syndrome::Rnr(attr().min_rnr_timer));
            assert_eq!(answers(responder, 0), Log::new());
            responder.receive(0, &send(1), target);
            // The requester may have sent this packet before the RNR NAK arrived.
            responder.receive(0, &send(2), target);
            let naks = responder.stats().nak_sequence;
            assert!(naks <= 1);
            answers(responder, 0);
            // The RNR NAK is repeated, and packets that arrived behind the request before have no
            // effect.
            responder.receive(0, &send(0), target);
            assert_eq!(answers(responder, 0), Log::of(&[Sent::Rnr(0, 0)]));
            responder.receive(0, &send(1), target);
            assert_eq!(answers(responder, 0), Log::new());
            target.receives = 1;
            assert_eq!(
                responder.receive(0, &send(0), target),
                RequestResult::Executed
            );
            assert_eq!(answers(responder, 0), Log::of(&[Sent::Ack(0, 1)]));
            // The last packet of a WRITE gets the RNR NAK; the packets before it stay executed.
            responder.receive(0, &request(1, Headers::WriteFirst(reth), MTU), target);
            let result = responder.receive(0, &request(2, imm, MTU), target);
            assert_eq!(result, RequestResult::NotReady);
            assert_eq!(answers(responder, 0), Log::of(&[Sent::Rnr(2, 1)]));
            target.receives = 1;
            target.taken();
            let result = responder.receive(0, &request(2, imm, MTU), target);
            assert_eq!(result, RequestResult::Executed);
            assert_eq!(
                target.taken(),
                Log::of(&[
                    Call::Begin(Incoming::WriteImm),
                    Call::Write(MTU),
                    Call::End(Ended {
                        len: 2 * MTU,
                        end: SendEnd::Imm(1),
                        write: true,
                        solicited: false,
                    }),
                    Call::EndWrite(reth),
                ])
            );
            assert_eq!(responder.stats().rnr, 3);
            Ok(())
        })
    }

    #[test]
    fn states_that_take_no_requests() -> Result {
        let mut slots = [Replay::EMPTY; 4];
        let mut responder = Responder::new(&mut slots[..], AckPolicy::AT_ONCE);
        let mut target = RecordingTarget::new();
        assert_eq!(
            responder.receive(0, &send(0), &mut target),
            RequestResult::Dropped
        );
        responder.error(&mut target);
        assert_eq!(responder.state(), State::Reset);
        let many = Attr {
            max_dest_rd_atomic: 5,
            ..attr()
        };
        let started = start(&mut responder, &many, &mut target);
        assert_eq!(started, Err(Error::Invalid));
        assert_eq!(responder.state(), State::Init);
        assert_eq!(
            responder.receive(0, &send(0), &mut target),
            RequestResult::Dropped
        );
        assert_eq!(responder.stats().unready, 2);
        responder.modify(&Attr::default(), Mask::NONE, &mut target)?;
        start(&mut responder, &attr(), &mut target)?;
        // A responder ignores responses.
        let answer = Headers::ReadResponseMiddle;
        let result = responder.receive(0, &request(0, answer, MTU), &mut target);
        assert_eq!(result, RequestResult::Dropped);
        let first = request(0, Headers::SendFirst, MTU);
        assert_eq!(
            responder.receive(0, &first, &mut target),
            RequestResult::Executed
        );
        target.taken();
        responder.error(&mut target);
        assert_eq!(target.taken(), Log::of(&[Call::Abort(None)]));
        assert_eq!(answers(&mut responder, 0), Log::new());
        assert_eq!(responder.deadline(), None);
        assert_eq!(
            responder.receive(0, &send(1), &mut target),
            RequestResult::Dropped
        );
        assert_eq!(target.taken(), Log::new());
        // A second error has no effect.
        responder.error(&mut target);
        assert_eq!(target.taken(), Log::new());
        // The responder starts again, and is reset in the middle of a message.
        responder.modify(&Attr::default(), Mask::NONE, &mut target)?;
        start(&mut responder, &attr(), &mut target)?;
        assert_eq!(
            responder.receive(0, &first, &mut target),
            RequestResult::Executed
        );
        target.taken();
        responder.modify(&Attr::default(), Mask::NONE, &mut target)?;
        assert_eq!(target.taken(), Log::of(&[Call::Abort(None)]));
        Ok(())
    }
}
