// SPDX-License-Identifier: GPL-2.0
//! Tests of answers.

#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_roce_rc_responder_reply))]
mod suite {
    use super::super::*;

    #[test]
    fn one_ack_answers_a_batch() -> Result {
        with(|responder, target| {
            for number in 0..5 {
                responder.receive(0, &send(number), target);
            }
            assert_eq!(answers(responder, 0), Log::of(&[Sent::Ack(4, 5)]));
            assert_eq!(responder.stats().coalesced, 4);
            assert_eq!(responder.stats().acks, 1);
            // No ACK is sent if no request asks for one.
            responder.receive(0, &quiet(5, Headers::SendFirst, MTU), target);
            assert_eq!(answers(responder, 0), Log::new());
            assert_eq!(responder.deadline(), None);
            let last = request(6, Headers::SendLast(SendEnd::Plain), 1);
            responder.receive(0, &last, target);
            assert_eq!(answers(responder, 0), Log::of(&[Sent::Ack(6, 6)]));
            Ok(())
        })
    }

    #[test]
    fn an_ack_may_wait_for_more() -> Result {
        let policy = AckPolicy {
            delay: 1000,
            requests: 3,
        };
        with_attr(&attr(), policy, |responder, target| {
            responder.receive(100, &send(0), target);
            responder.receive(600, &send(1), target);
            assert_eq!(responder.poll(1099), None);
            assert_eq!(responder.deadline(), Some(1100));
            assert_eq!(answers(responder, 1100), Log::of(&[Sent::Ack(1, 2)]));
            assert_eq!(responder.deadline(), None);
            // An ACK waits for at most three requests.
            for number in 2..5 {
                assert_eq!(responder.poll(2000), None);
                responder.receive(2000, &send(number), target);
            }
            assert_eq!(answers(responder, 2000), Log::of(&[Sent::Ack(4, 5)]));
            // A duplicate makes the ACK due at once.
            responder.receive(3000, &send(5), target);
            responder.receive(3000, &send(4), target);
            assert_eq!(answers(responder, 3000), Log::of(&[Sent::Ack(5, 6)]));
            Ok(())
        })
    }

    #[test]
    fn reads_are_answered_packet_by_packet() -> Result {
        with(|responder, target| {
            let reth = Reth {
                len: 3 * MTU + 5,
                ..WHERE
            };
            let request = request(0, Headers::ReadRequest(reth), 0);
            assert_eq!(
                responder.receive(0, &request, target),
                RequestResult::Executed
            );
            assert_eq!(target.taken(), Log::of(&[Call::CheckRead(reth)]));
            assert_eq!(responder.expected(), psn(4));
            for (index, said_is) in [
                (0, Sent::First(0, 1)),
                (1, Sent::Middle(1)),
                (2, Sent::Middle(2)),
                (3, Sent::Last(3, 1)),
            ] {
                let Some(answering) = responder.poll(0) else {
                    return Err(Error::Invalid);
                };
                assert_eq!(sent(&answering.packet), Some(said_is));
                assert_eq!(answering.packet.bth.dest_qp, PEER);
                let len = if index == 3 { 5 } else { MTU };
                assert_eq!(answering.packet.payload_len(), len as usize);
                let part = Reth {
                    va: WHERE.va + u64::from(index * MTU),
                    rkey: WHERE.rkey,
                    len,
                };
                assert_eq!(answering.read, Some(part));
                assert_eq!(answering.completes, (index == 3).then_some(reth));
                assert!(!answering.more);
            }
            // The data was the answer that the request asked for.
            assert_eq!(responder.poll(0), None);
            assert_eq!(responder.deadline(), None);
            // For no bytes the target decides about the key, and there is no memory to read.
            let reth = Reth { rkey: 99, ..WHERE };
            let mut request = super::super::request(4, Headers::ReadRequest(reth), 0);
            // More requests of the same READ follow.
            request.bth.solicited = true;
            responder.receive(0, &request, target);
            assert_eq!(target.taken(), Log::of(&[Call::CheckRead(reth)]));
            let Some(answering) = responder.poll(0) else {
                return Err(Error::Invalid);
            };
            assert_eq!(sent(&answering.packet), Some(Sent::Only(4, 2)));
            assert_eq!(answering.read, None);
            assert_eq!(answering.completes, Some(reth));
            assert!(answering.more);
            assert_eq!(responder.stats().read_responses, 5);
            assert_eq!(responder.stats().read_bytes, u64::from(3 * MTU + 5));
            Ok(())
        })
    }

    #[test]
    fn answers_keep_their_order() -> Result {
        with(|responder, target| {
            responder.receive(0, &send(0), target);
            responder.receive(0, &read(1, 0, 2), target);
            responder.receive(0, &request(3, Headers::FetchAdd(WORD), 0), target);
            responder.receive(0, &send(4), target);
            // The data acknowledges the first request.
            assert_eq!(
                answers(responder, 0),
                Log::of(&[
                    Sent::First(1, 2),
                    Sent::Last(2, 2),
                    Sent::Value(3, 3, 42),
                    Sent::Ack(4, 4),
                ])
            );
            assert_eq!(responder.stats().atomic_responses, 1);
            // A NAK waits for the data too.
            responder.receive(0, &read(5, 0, 2), target);
            responder.receive(0, &send(9), target);
            assert_eq!(
                answers(responder, 0),
                Log::of(&[
                    Sent::First(5, 5),
                    Sent::Last(6, 5),
                    Sent::Nak(7, 5, Nak::Sequence),
                ])
            );
            Ok(())
        })
    }

    #[test]
    fn duplicate_reads_are_answered_again() -> Result {
        with(|responder, target| {
            responder.receive(0, &read(0, 0, 4), target);
            assert_eq!(
                answers(responder, 0),
                Log::of(&[
                    Sent::First(0, 1),
                    Sent::Middle(1),
                    Sent::Middle(2),
                    Sent::Last(3, 1),
                ])
            );
            target.taken();
            // The whole READ, its rest, and a part in its middle.
            for (first, packets, sent) in [
                (3, 1, [Sent::Only(3, 1)].as_slice()),
                (2, 2, &[Sent::First(2, 1), Sent::Last(3, 1)]),
                (1, 2, &[Sent::First(1, 1), Sent::Last(2, 1)]),
                (1, 1, &[Sent::Only(1, 1)]),
            ] {
                let again = read(first, first, packets);
                assert_eq!(
                    responder.receive(0, &again, target),
                    RequestResult::Duplicate
                );
                assert_eq!(answers(responder, 0), Log::of(sent));
            }
            assert_eq!(responder.stats().replays, 4);
            // Ranges that do not match the original are refused.
            let reth = Reth {
                len: 4 * MTU,
                ..WHERE
            };
            for (number, reth) in [
                (1, reth),
                (0, Reth { rkey: 8, ..reth }),
                (0, Reth { va: 0x1001, ..reth }),
                (
                    0,
                    Reth {
                        len: 5 * MTU,
                        ..reth
                    },
                ),
                (
                    0,
                    Reth {
                        len: 4 * MTU - 1,
                        ..reth
                    },
                ),
                (
                    0,
                    Reth {
                        len: 3 * MTU + 1,
                        ..reth
                    },
                ),
                (
                    0,
                    Reth {
                        len: MTU - 1,
                        ..reth
                    },
                ),
                (0, Reth { len: 0, ..reth }),
                (
                    0,
                    Reth {
                        len: u32::MAX,
                        ..reth
                    },
                ),
            ] {
                let other = request(number, Headers::ReadRequest(reth), 0);
                assert_eq!(
                    responder.receive(0, &other, target),
                    RequestResult::Duplicate
                );
                assert_eq!(answers(responder, 0), Log::new());
            }
            let add = request(1, Headers::FetchAdd(WORD), 0);
            responder.receive(0, &add, target);
            assert_eq!(answers(responder, 0), Log::new());
            assert_eq!(responder.stats().forgotten, 10);
            // The answer starts again in the middle.
            responder.receive(0, &read(0, 0, 4), target);
            responder.poll(0);
            responder.poll(0);
            responder.receive(0, &read(0, 0, 2), target);
            assert_eq!(
                answers(responder, 0),
                Log::of(&[Sent::First(0, 1), Sent::Last(1, 1)])
            );
            assert_eq!(target.taken(), Log::new());
            Ok(())
        })
    }

    #[test]
    fn duplicate_atomics_are_not_executed_again() -> Result {
        with(|responder, target| {
            let add = |number| request(number, Headers::FetchAdd(WORD), 0);
            for number in 0..3 {
                responder.receive(0, &add(number), target);
                let value = 42 + 2 * u64::from(number);
                let sent = Sent::Value(number, number + 1, value);
                assert_eq!(answers(responder, 0), Log::of(&[sent]));
            }
            assert_eq!(target.word, 46);
            // Two requests are remembered.
            for (number, sent) in [
                (2, [Sent::Value(2, 3, 46)].as_slice()),
                (1, &[Sent::Value(1, 2, 44)]),
                (0, &[]),
            ] {
                let swap = request(number, Headers::CompareSwap(WORD), 0);
                for again in [add(number), swap] {
                    assert_eq!(
                        responder.receive(0, &again, target),
                        RequestResult::Duplicate
                    );
                    assert_eq!(answers(responder, 0), Log::of(sent));
                }
            }
            let other = read(1, 0, 1);
            responder.receive(0, &other, target);
            assert_eq!(answers(responder, 0), Log::new());
            assert_eq!(target.word, 46);
            assert_eq!(responder.stats().forgotten, 3);
            Ok(())
        })
    }

    #[test]
    fn reads_beyond_the_agreed_limit_are_refused() -> Result {
        with(|responder, target| {
            responder.receive(0, &read(0, 0, 2), target);
            responder.receive(0, &read(2, 0, 2), target);
            let result = responder.receive(0, &read(4, 0, 2), target);
            assert_eq!(result, RequestResult::Refused(Nak::InvalidRequest));
            // The requests before it are answered first.
            assert_eq!(
                answers(responder, 0),
                Log::of(&[
                    Sent::First(0, 1),
                    Sent::Last(1, 1),
                    Sent::First(2, 2),
                    Sent::Last(3, 2),
                    Sent::Nak(4, 2, Nak::InvalidRequest),
                ])
            );
            Ok(())
        })?;
        // There is room once the oldest has been answered, even while it is answered again.
        with(|responder, target| {
            responder.receive(0, &read(0, 0, 2), target);
            responder.receive(0, &read(2, 0, 2), target);
            responder.poll(0);
            responder.poll(0);
            responder.receive(0, &read(0, 0, 2), target);
            let result = responder.receive(0, &read(4, 0, 1), target);
            assert_eq!(result, RequestResult::Executed);
            assert_eq!(
                answers(responder, 0),
                Log::of(&[Sent::First(2, 2), Sent::Last(3, 2), Sent::Only(4, 3)])
            );
            Ok(())
        })?;
        let none = Attr {
            max_dest_rd_atomic: 0,
            ..attr()
        };
        with_attr(&none, AckPolicy::AT_ONCE, |responder, target| {
            let result = responder.receive(0, &read(0, 0, 1), target);
            assert_eq!(result, RequestResult::Refused(Nak::InvalidRequest));
            Ok(())
        })
    }

    #[test]
    fn answers_refused_by_the_local_stack_are_sent_again() -> Result {
        let gap = |responder: &mut Lent<'_>, target: &mut RecordingTarget| {
            responder.receive(0, &send(1), target);
        };
        let rnr = |responder: &mut Lent<'_>, target: &mut RecordingTarget| {
            target.receives = 0;
            responder.receive(0, &send(0), target);
        };
        let refused = |responder: &mut Lent<'_>, target: &mut RecordingTarget| {
            target.refuses = Some((Call::Place(0), Refusal::Invalid));
            responder.receive(0, &send(0), target);
        };
        let ack = |responder: &mut Lent<'_>, target: &mut RecordingTarget| {
            responder.receive(0, &send(0), target);
        };
        let value = |responder: &mut Lent<'_>, target: &mut RecordingTarget| {
            responder.receive(0, &request(0, Headers::FetchAdd(WORD), 0), target);
        };
        type Cause = fn(&mut Lent<'_>, &mut RecordingTarget);
        let cases: [(Cause, Sent); 5] = [
            (gap, Sent::Nak(0, 0, Nak::Sequence)),
            (rnr, Sent::Rnr(0, 0)),
            (refused, Sent::Nak(0, 0, Nak::InvalidRequest)),
            (ack, Sent::Ack(0, 1)),
            (value, Sent::Value(0, 1, 42)),
        ];
        for (cause, expected) in cases {
            with(|responder, target| {
                cause(responder, target);
                let mut now = 0;
                for _ in 0..3 {
                    let Some(answering) = responder.poll(now) else {
                        return Err(Error::Invalid);
                    };
                    assert_eq!(sent(&answering.packet), Some(expected));
                    responder.not_sent(now, &answering.packet);
                    assert_eq!(responder.poll(now + LOCAL_PAUSE - 1), None);
                    now += LOCAL_PAUSE;
                    assert_eq!(responder.deadline(), Some(now));
                }
                assert_eq!(answers(responder, now), Log::of(&[expected]));
                assert_eq!(responder.deadline(), None);
                assert_eq!(responder.stats().not_sent, 3);
                Ok(())
            })?;
        }
        // Refused packets in the middle of a READ, and several of a batch.
        with(|responder, target| {
            responder.receive(0, &read(0, 0, 4), target);
            let mut packets = [None; 4];
            for packet in &mut packets {
                *packet = responder.poll(0).map(|answering| answering.packet);
            }
            for packet in packets.iter().skip(1).flatten() {
                responder.not_sent(0, packet);
            }
            assert_eq!(
                answers(responder, LOCAL_PAUSE),
                Log::of(&[Sent::Middle(1), Sent::Middle(2), Sent::Last(3, 1)])
            );
            Ok(())
        })?;
        // An ACK that is repeated later acknowledges all that was executed by then.
        with(|responder, target| {
            responder.receive(0, &send(0), target);
            let Some(answering) = responder.poll(0) else {
                return Err(Error::Invalid);
            };
            responder.receive(0, &send(2), target);
            responder.not_sent(0, &answering.packet);
            let nak = Sent::Nak(1, 1, Nak::Sequence);
            assert_eq!(answers(responder, LOCAL_PAUSE), Log::of(&[nak]));
            Ok(())
        })
    }

    #[test]
    fn a_read_fails_when_its_memory_disappears() -> Result {
        for (why, nak) in [
            (Refusal::Access, Nak::RemoteAccess),
            (Refusal::Operation, Nak::RemoteOperation),
        ] {
            with(|responder, target| {
                responder.receive(0, &read(0, 0, 4), target);
                responder.receive(0, &request(4, Headers::SendFirst, MTU), target);
                target.taken();
                responder.poll(0);
                responder.poll(0);
                responder.fail_read(psn(1), why, target);
                assert_eq!(target.taken(), Log::of(&[Call::Abort(Some(why))]));
                assert_eq!(responder.state(), State::Error);
                assert_eq!(answers(responder, 0), Log::of(&[Sent::Nak(1, 1, nak)]));
                responder.fail_read(psn(1), why, target);
                assert_eq!(answers(responder, 0), Log::new());
                assert_eq!(target.taken(), Log::new());
                Ok(())
            })?;
        }
        // The NAK of a refused request is still pending.
        with(|responder, target| {
            responder.receive(0, &read(0, 0, 4), target);
            responder.receive(0, &request(4, Headers::SendMiddle, MTU), target);
            assert_eq!(responder.state(), State::Error);
            responder.poll(0);
            responder.fail_read(psn(0), Refusal::Access, target);
            let nak = Sent::Nak(0, 1, Nak::RemoteAccess);
            assert_eq!(answers(responder, 0), Log::of(&[nak]));
            Ok(())
        })
    }
}
