// SPDX-License-Identifier: GPL-2.0
//! Tests of the recovery from losses.

#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_roce_rc_requester_recover))]
mod suite {
    use super::super::*;

    #[test]
    fn a_nak_for_a_wrong_psn_goes_back() -> Result {
        with(&attr(), 16, |requester| {
            for wr_id in 0..3 {
                requester.post(&request(wr_id, SEND, 4 * MTU))?;
            }
            assert_eq!(flight(requester, 0), (12, Some(0)));
            requester.receive(10, &nak(5, Nak::Sequence));
            // The NAK confirms all requests before it.
            assert_eq!(taken(requester), Some((0, Status::Success)));
            assert_eq!(taken(requester), None);
            assert_eq!(requester.window(), 8);
            assert_eq!(requester.deadline(), None);
            let outgoing = requester.poll(20);
            assert_eq!(outgoing.map(|outgoing| outgoing.again), Some(true));
            assert_eq!(outgoing.map(|outgoing| outgoing.offset), Some(MTU));
            assert_eq!(flight(requester, 20), (6, Some(6)));
            // Another loss in the same window does not halve it again.
            requester.receive(30, &nak(8, Nak::Sequence));
            assert_eq!(requester.window(), 8);
            assert_eq!(flight(requester, 30), (4, Some(8)));
            requester.receive(40, &ack(11));
            assert_eq!(taken(requester), Some((1, Status::Success)));
            assert_eq!(taken(requester), Some((2, Status::Success)));
            let stats = requester.stats();
            assert_eq!((stats.retries, stats.nak_sequence), (2, 2));
            assert_eq!(stats.resent, 11);
            assert_eq!(stats.packets, 23);
            Ok(())
        })
    }

    #[test]
    fn a_duplicate_nak_has_no_effect() -> Result {
        with(&attr(), 16, |requester| {
            requester.post(&request(0, SEND, 0))?;
            assert_eq!(flight(requester, 0), (1, Some(0)));
            // A round trip takes 1000 ns.
            requester.receive(1000, &ack(0));
            assert_eq!(taken(requester), Some((0, Status::Success)));
            assert_eq!(requester.rtt.smoothed(), 1000);
            requester.post(&request(1, SEND, 3 * MTU))?;
            assert_eq!(flight(requester, 2000), (3, Some(1)));
            requester.receive(3000, &nak(1, Nak::Sequence));
            requester.receive(3000, &nak(1, Nak::Sequence));
            assert_eq!(flight(requester, 3000), (3, Some(1)));
            requester.receive(3999, &nak(1, Nak::Sequence));
            assert_eq!(requester.poll(3999), None);
            requester.receive(4000, &nak(1, Nak::Sequence));
            assert_eq!(flight(requester, 4000), (3, Some(1)));
            assert_eq!(requester.stats().retries, 2);
            Ok(())
        })
    }

    #[test]
    fn naks_in_quick_succession_count_as_one_retry() -> Result {
        let three = Attr {
            retry_cnt: 3,
            ..attr()
        };
        with(&three, 16, |requester| {
            requester.post(&request(0, SEND, 0))?;
            let mut now = 0;
            for _ in 0..3 {
                // Without a measured round trip, every NAK makes the requester go back.
                for _ in 0..50 {
                    assert_eq!(flight(requester, now), (1, Some(0)));
                    requester.receive(now, &nak(0, Nak::Sequence));
                }
                assert_eq!(requester.state(), State::Rts);
                now += rtt::INITIAL;
            }
            assert_eq!(flight(requester, now), (1, Some(0)));
            requester.receive(now, &nak(0, Nak::Sequence));
            assert_eq!(taken(requester), Some((0, Status::RetryExceeded)));
            assert_eq!(requester.state(), State::Error);
            Ok(())
        })
    }

    #[test]
    fn retries_are_counted_as_specified() -> Result {
        // 131 us is shorter than any probe interval.
        let timeout = AckTimeout::from_code(5).unwrap_or_default();
        assert_eq!(timeout.ns(), Some(131_072));
        for retry_cnt in 0..=7 {
            let attr = Attr {
                timeout,
                retry_cnt,
                ..attr()
            };
            with(&attr, 16, |requester| {
                requester.post(&request(0, SEND, 3 * MTU))?;
                requester.post(&request(1, SEND, 0))?;
                let mut now = 1000;
                assert_eq!(flight(requester, now), (4, Some(0)));
                let patience = [1, 2, 4, 4, 4, 4, 4, 4].map(|times| times * 131_072);
                let (last, patience) = match patience.get(..=usize::from(retry_cnt)) {
                    Some([patience @ .., last]) => (*last, patience),
                    _ => return Err(Error::Invalid),
                };
                for patience in patience.iter().copied() {
                    assert_eq!(requester.deadline(), Some(now + patience));
                    requester.expired(now + patience - 1);
                    assert_eq!(requester.poll(now + patience - 1), None);
                    now += patience;
                    requester.expired(now);
                    // One packet is sent, and it requests an acknowledgement.
                    assert_eq!(sent(requester, now), Some((Opcode::RcSendFirst, 0, true)));
                    assert_eq!(requester.poll(now), None);
                }
                now += last;
                requester.expired(now);
                assert_eq!(requester.state(), State::Error);
                assert_eq!(requester.poll(now), None);
                assert_eq!(requester.deadline(), None);
                assert_eq!(taken(requester), Some((0, Status::RetryExceeded)));
                assert_eq!(taken(requester), Some((1, Status::Flushed)));
                assert_eq!(taken(requester), None);
                assert_eq!(requester.stats().timeouts, u64::from(retry_cnt) + 1);
                Ok(())
            })?;
        }
        Ok(())
    }

    #[test]
    fn progress_resets_the_retries() -> Result {
        let attr = Attr {
            timeout: AckTimeout::from_code(5).unwrap_or_default(),
            retry_cnt: 1,
            ..attr()
        };
        with(&attr, 16, |requester| {
            requester.post(&request(0, SEND, 20 * MTU))?;
            let mut now = 0;
            for number in 0..19 {
                while requester.poll(now).is_some() {}
                now += 131_072;
                requester.expired(now);
                assert_eq!(
                    requester.poll(now).map(|out| out.packet.bth.psn),
                    Some(psn(number))
                );
                now += 1000;
                requester.receive(now, &ack(number));
            }
            assert_eq!(requester.state(), State::Rts);
            assert_eq!(requester.stats().timeouts, 19);
            Ok(())
        })
    }

    #[test]
    fn probes_come_before_the_timeout_and_do_not_count() -> Result {
        let attr = Attr {
            timeout: AckTimeout::from_code(14).unwrap_or_default(),
            retry_cnt: 0,
            ..attr()
        };
        let timeout = 67_108_864;
        with(&attr, 16, |requester| {
            requester.post(&request(0, SEND, 2 * MTU))?;
            assert_eq!(flight(requester, 0), (2, Some(0)));
            // Without a measurement the probes come after 20 ms and 40 ms later.
            for now in [rtt::INITIAL, 3 * rtt::INITIAL] {
                assert_eq!(requester.deadline(), Some(now));
                requester.expired(now);
                assert_eq!(sent(requester, now), Some((Opcode::RcSendFirst, 0, true)));
                assert_eq!(requester.poll(now), None);
            }
            assert_eq!(requester.stats().probes, 2);
            assert_eq!(requester.deadline(), Some(timeout));
            requester.expired(timeout);
            assert_eq!(taken(requester), Some((0, Status::RetryExceeded)));
            Ok(())
        })?;
        // Without a local ACK timeout the probes continue, at growing intervals.
        let attr = Attr {
            timeout: AckTimeout::NONE,
            ..attr
        };
        with(&attr, 16, |requester| {
            requester.post(&request(0, SEND, 2 * MTU))?;
            let mut now = 0;
            assert_eq!(flight(requester, now), (2, Some(0)));
            for doublings in 0..20 {
                let wait = rtt::INITIAL << doublings.min(12);
                assert_eq!(requester.deadline(), Some(now + wait));
                now += wait;
                requester.expired(now);
                assert_eq!(flight(requester, now), (1, Some(0)));
            }
            Ok(())
        })
    }

    #[test]
    fn an_unnecessary_probe_is_undone() -> Result {
        with(&attr(), 16, |requester| {
            requester.post(&request(0, SEND, 9 * MTU))?;
            requester.post(&request(1, READ, 2 * MTU))?;
            assert_eq!(flight(requester, 0), (10, Some(0)));
            requester.expired(rtt::INITIAL);
            assert_eq!(requester.window(), 1);
            assert_eq!(flight(requester, rtt::INITIAL), (1, Some(0)));
            // Everything had arrived.
            requester.receive(rtt::INITIAL + 1, &ack(3));
            assert_eq!(requester.window(), 16);
            assert_eq!(requester.stats().spurious, 1);
            assert_eq!(requester.in_flight(), 7);
            assert_eq!(requester.poll(rtt::INITIAL + 1), None);
            let packet = data(9, Position::First, MTU as usize);
            assert_eq!(place(requester, rtt::INITIAL + 2, &packet), Some((1, 0)));
            assert_eq!(requester.poll(rtt::INITIAL + 2), None);
            Ok(())
        })
    }

    #[test]
    fn retransmitted_packets_are_not_measured() -> Result {
        with(&attr(), 16, |requester| {
            requester.post(&request(0, SEND, 0))?;
            assert_eq!(flight(requester, 0), (1, Some(0)));
            requester.receive(1000, &nak(0, Nak::Sequence));
            assert_eq!(flight(requester, 1000), (1, Some(0)));
            requester.receive(5000, &ack(0));
            assert_eq!(requester.rtt.smoothed(), 0);
            requester.post(&request(1, READ, 2 * MTU))?;
            assert_eq!(flight(requester, 6000), (1, Some(1)));
            place(requester, 6700, &data(1, Position::First, MTU as usize));
            assert_eq!(requester.rtt.smoothed(), 700);
            Ok(())
        })
    }

    #[test]
    fn an_rnr_nak_delays_the_retransmission() -> Result {
        let timer = RnrTimer::from_code(14).unwrap_or(RnrTimer::at_least(0));
        let wait = timer.ns();
        let timeout = AckTimeout::from_code(5).unwrap_or_default();
        for rnr_retry in 0..=7 {
            let attr = Attr {
                rnr_retry,
                timeout,
                ..attr()
            };
            with(&attr, 16, |requester| {
                requester.post(&request(0, SEND, 0))?;
                requester.post(&request(1, SEND, 2 * MTU))?;
                let mut now = 0;
                assert_eq!(flight(requester, now), (3, Some(0)));
                requester.receive(now, &ack(0));
                assert_eq!(taken(requester), Some((0, Status::Success)));
                let tries = if rnr_retry == 7 { 100 } else { rnr_retry };
                for _ in 0..tries {
                    requester.receive(now, &response_with(1, Syndrome::Rnr(timer)));
                    // A duplicate RNR NAK has no effect.
                    requester.receive(now, &response_with(1, Syndrome::Rnr(timer)));
                    // No other timer runs.
                    assert_eq!(requester.deadline(), Some(now + wait));
                    assert_eq!(requester.poll(now + wait - 1), None);
                    now += wait;
                    requester.expired(now);
                    assert_eq!(flight(requester, now), (2, Some(1)));
                    assert_eq!(requester.deadline(), Some(now + 131_072));
                }
                requester.receive(now, &response_with(1, Syndrome::Rnr(timer)));
                let failed = taken(requester);
                if rnr_retry == 7 {
                    assert_eq!(failed, None);
                } else {
                    assert_eq!(failed, Some((1, Status::RnrRetryExceeded)));
                }
                assert_eq!(requester.stats().timeouts, 0);
                Ok(())
            })?;
        }
        Ok(())
    }

    #[test]
    fn an_rnr_nak_resets_the_retries() -> Result {
        let attr = Attr {
            retry_cnt: 1,
            timeout: AckTimeout::from_code(5).unwrap_or_default(),
            ..attr()
        };
        let timer = RnrTimer::at_least(1);
        with(&attr, 16, |requester| {
            requester.post(&request(0, SEND, 0))?;
            let mut now = 0;
            for _ in 0..5 {
                assert_eq!(flight(requester, now), (1, Some(0)));
                now += 131_072;
                requester.expired(now);
                assert_eq!(flight(requester, now), (1, Some(0)));
                requester.receive(now, &response_with(0, Syndrome::Rnr(timer)));
                now += timer.ns();
            }
            assert_eq!(requester.state(), State::Rts);
            Ok(())
        })
    }

    #[test]
    fn a_packet_refused_by_the_local_stack_counts_as_lost() -> Result {
        let attr = Attr {
            timeout: AckTimeout::from_code(14).unwrap_or_default(),
            retry_cnt: 0,
            ..attr()
        };
        with(&attr, 16, |requester| {
            requester.post(&request(0, SEND, 2 * MTU))?;
            requester.post(&request(1, SEND, 2 * MTU))?;
            for _ in 0..2 {
                requester.poll(0);
            }
            let third = requester.poll(0).map(|outgoing| outgoing.packet.bth.psn);
            assert_eq!(third, Some(psn(2)));
            requester.not_sent(0, psn(2));
            assert_eq!(requester.window(), 8);
            // Nothing is sent during the pause; then sending continues at the packet that was
            // refused.
            let mut now = LOCAL_PAUSE;
            assert_eq!(requester.poll(now - 1), None);
            assert_eq!(requester.deadline(), Some(now));
            for doublings in 1..10 {
                requester.expired(now);
                assert_eq!(
                    requester.poll(now).map(|out| out.packet.bth.psn),
                    Some(psn(2))
                );
                requester.not_sent(now, psn(2));
                // Another packet of the same batch is refused.
                requester.not_sent(now, psn(3));
                let pause = LOCAL_PAUSE << doublings.min(6);
                assert_eq!(requester.window(), 8);
                assert_eq!(requester.deadline(), Some(now + pause));
                assert_eq!(requester.poll(now + pause - 1), None);
                now += pause;
            }
            requester.expired(now);
            assert_eq!(flight(requester, now), (2, Some(2)));
            // `not_sent` has no effect for packets that are answered or were never sent.
            requester.receive(now, &ack(1));
            for number in [0, 1, 4, 5] {
                requester.not_sent(now, psn(number));
            }
            assert_eq!(requester.in_flight(), 2);
            requester.receive(now, &ack(3));
            assert_eq!(taken(requester), Some((0, Status::Success)));
            assert_eq!(taken(requester), Some((1, Status::Success)));
            assert_eq!(requester.deadline(), None);
            Ok(())
        })
    }

    #[test]
    fn a_refused_read_request_is_sent_again() -> Result {
        with(&attr(), 16, |requester| {
            requester.post(&request(0, READ, 8 * MTU))?;
            assert_eq!(flight(requester, 0), (2, Some(0)));
            requester.not_sent(0, psn(4));
            assert_eq!(requester.poll(0), None);
            let again = requester
                .poll(LOCAL_PAUSE)
                .map(|out| (out.offset, out.again));
            assert_eq!(again, Some((4 * MTU, true)));
            assert_eq!(requester.poll(LOCAL_PAUSE), None);
            Ok(())
        })
    }
}
