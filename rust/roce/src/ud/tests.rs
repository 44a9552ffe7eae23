// SPDX-License-Identifier: GPL-2.0
//! Tests of a UD QP.

#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_roce_ud))]
mod suite {
    use super::super::*;

    const QKEY: u32 = 0x1234_5678;
    const MTU: PathMtu = PathMtu::Mtu1024;
    const SEND: Send = Send {
        dest_qp: Qpn::new(0x22),
        qkey: QKEY,
        len: 100,
        imm: None,
        solicited: false,
    };

    /// Makes a QP in `state` with PSN 0xffffff as its first PSN.
    fn qp(number: u32, state: State) -> Qp {
        let mut qp = Qp::new(Qpn::new(number));
        let attr = Attr {
            qkey: QKEY,
            sq_psn: Psn::new(Psn::MASK),
            ..Attr::default()
        };
        let init = Mask::PKEY_INDEX.with(Mask::PORT).with(Mask::QKEY);
        let path: &[(State, Mask)] = match state {
            State::Reset => &[],
            State::Init => &[(State::Init, init)],
            State::Rtr => &[(State::Init, init), (State::Rtr, Mask::NONE)],
            _ => &[
                (State::Init, init),
                (State::Rtr, Mask::NONE),
                (State::Rts, Mask::SQ_PSN),
            ],
        };
        for (state, mask) in path {
            let attr = Attr {
                state: *state,
                ..attr
            };
            assert_eq!(qp.modify(&attr, *mask), Ok(()));
        }
        match state {
            State::Sqe => qp.send_failed(),
            State::Sqd | State::Error => {
                let attr = Attr { state, ..attr };
                assert_eq!(qp.modify(&attr, Mask::NONE), Ok(()));
            }
            _ => {}
        }
        assert_eq!(qp.state(), state);
        qp
    }

    fn packet(send: &Send) -> Packet {
        let packet = qp(0x11, State::Rts).send(send, MTU);
        assert!(packet.is_ok());
        let none = Packet::new(Bth::new(Qpn::GSI, Psn::new(0)), Headers::SendFirst, 0);
        packet.unwrap_or(none)
    }

    #[test]
    fn a_datagram_goes_from_qp_to_qp() {
        for (imm, solicited) in [(None, false), (Some(7), true)] {
            let send = Send {
                imm,
                solicited,
                ..SEND
            };
            let packet = packet(&send);
            assert_eq!(packet.bth.dest_qp, SEND.dest_qp);
            let received = qp(0x22, State::Rtr).receive(&packet, Some(140));
            assert_eq!(
                received,
                Ok(Received {
                    src_qp: Qpn::new(0x11),
                    imm,
                    solicited,
                    payload: packet.payload(),
                    fits: true,
                })
            );
            assert_eq!(received.map(|received| received.len()), Ok(140));
        }
    }

    #[test]
    fn psns_count_datagrams() {
        let mut qp = qp(0x11, State::Rts);
        for psn in [Psn::MASK, 0, 1] {
            let packet = qp.send(&SEND, MTU);
            assert_eq!(packet.map(|packet| packet.bth.psn.get()), Ok(psn));
            let long = Send { len: 1025, ..SEND };
            assert_eq!(qp.send(&long, MTU), Err(Unsent::TooLong));
        }
    }

    #[test]
    fn a_message_is_at_most_the_path_mtu() {
        for mtu in PathMtu::ALL {
            let mut qp = qp(0x11, State::Rts);
            let mut send = Send {
                len: mtu.bytes() as usize,
                ..SEND
            };
            assert!(qp.send(&send, mtu).is_ok());
            send.len += 1;
            assert_eq!(qp.send(&send, mtu), Err(Unsent::TooLong));
            send.len = usize::MAX;
            assert_eq!(qp.send(&send, mtu), Err(Unsent::TooLong));
            send.len = 0;
            assert!(qp.send(&send, mtu).is_ok());
        }
    }

    #[test]
    fn a_receive_holds_grh_and_payload() {
        let packet = packet(&SEND);
        let qp = qp(0x22, State::Rtr);
        for (room, fits) in [
            (0, false),
            (39, false),
            (139, false),
            (140, true),
            (141, true),
        ] {
            let received = qp.receive(&packet, Some(room));
            assert_eq!(received.map(|received| received.fits), Ok(fits));
        }
        assert_eq!(qp.receive(&packet, None), Err(Dropped::NoReceive));
    }

    #[test]
    fn states_permit_sending_and_receiving() {
        let packet = packet(&SEND);
        for (state, send, receive) in [
            (State::Reset, Err(Unsent::Refused), false),
            (State::Init, Err(Unsent::Refused), false),
            (State::Rtr, Err(Unsent::Refused), true),
            (State::Rts, Ok(100), true),
            (State::Sqd, Err(Unsent::Draining), true),
            (State::Sqe, Err(Unsent::Flushed), true),
            (State::Error, Err(Unsent::Flushed), false),
        ] {
            let mut qp = qp(0x22, state);
            let sent = qp.send(&SEND, MTU).map(|packet| packet.payload_len());
            assert_eq!(sent, send);
            let received = qp.receive(&packet, Some(140)).map(|received| received.fits);
            let qkey = state != State::Reset;
            assert_eq!(
                received,
                match receive {
                    true => Ok(true),
                    false => Err(Dropped::State),
                }
            );
            let has_qkey = qp.qkey() == QKEY;
            assert_eq!(has_qkey, qkey);
        }
    }

    #[test]
    fn datagrams_need_the_right_q_key() {
        let mut qp = qp(0x22, State::Rts);
        for (qkey, ok) in [(QKEY, true), (QKEY ^ 1, false), (0, false)] {
            let packet = packet(&Send { qkey, ..SEND });
            let received = qp.receive(&packet, Some(140));
            assert_eq!(received.is_ok(), ok);
            assert!(ok || received == Err(Dropped::Qkey));
        }
        // A controlled Q key is replaced by the sender's own.
        let named = packet(&Send {
            qkey: GSI_QKEY,
            ..SEND
        });
        assert!(qp.receive(&named, Some(140)).is_ok());
        assert!(is_controlled(GSI_QKEY) && !is_controlled(QKEY));
        assert!(is_controlled(1 << 31) && !is_controlled(u32::MAX >> 1));
        // Between management QPs it is their own Q key.
        let mut gsi = Qp::gsi(Psn::new(5));
        let to_gsi = Send {
            dest_qp: Qpn::GSI,
            qkey: GSI_QKEY,
            len: 256,
            ..SEND
        };
        let packet = gsi.send(&to_gsi, MTU);
        let received = packet.map(|packet| gsi.receive(&packet, Some(296)));
        assert!(matches!(received, Ok(Ok(_))));
        assert_eq!(gsi.qpn(), Qpn::GSI);
        // The Q key can be changed while the QP works.
        let attr = Attr {
            state: State::Rts,
            qkey: 5,
            ..Attr::default()
        };
        assert_eq!(qp.modify(&attr, Mask::QKEY), Ok(()));
        assert_eq!(qp.qkey(), 5);
    }

    #[test]
    fn unacceptable_datagrams_are_dropped() {
        let qp = qp(0x22, State::Rts);
        let bth = Bth::new(Qpn::new(0x22), Psn::new(0));
        let rc = Packet::new(bth, Headers::SendMiddle, 100);
        assert_eq!(qp.receive(&rc, Some(140)), Err(Dropped::Service));
        let headers = packet(&SEND).headers();
        for (len, ok) in [(4096, true), (4097, false), (65_000, false)] {
            let received = qp.receive(&Packet::new(bth, headers, len), Some(usize::MAX));
            assert!(received.is_ok() == ok || received == Err(Dropped::Length));
        }
        for (number, kind) in Dropped::ALL.iter().enumerate() {
            assert_eq!(*kind as usize, number);
            assert!(!kind.name().is_empty());
        }
    }

    #[test]
    fn attributes_must_be_right() {
        let good = Attr {
            state: State::Init,
            qkey: 1,
            ..Attr::default()
        };
        let mask = Mask::PKEY_INDEX.with(Mask::PORT).with(Mask::QKEY);
        for bad in [
            Attr { port: 2, ..good },
            Attr {
                pkey_index: 1,
                ..good
            },
            Attr {
                state: State::Rts,
                ..good
            },
        ] {
            let mut qp = Qp::new(Qpn::new(1));
            assert_eq!(qp.modify(&bad, mask), Err(Error::Invalid));
            assert_eq!(qp.modify(&good, Mask::PORT), Err(Error::Invalid));
            assert_eq!((qp.state(), qp.qkey()), (State::Reset, 0));
            assert_eq!(qp.modify(&good, mask), Ok(()));
            // RESET clears all attributes.
            assert_eq!(qp.modify(&Attr::default(), Mask::NONE), Ok(()));
            assert_eq!((qp.state(), qp.qkey()), (State::Reset, 0));
        }
        let mut qp = qp(0x22, State::Rts);
        let attr = Attr {
            state: State::Rts,
            ..good
        };
        assert_eq!(qp.modify(&attr, Mask::CUR_STATE), Err(Error::Invalid));
        let attr = Attr {
            cur_state: State::Rts,
            ..attr
        };
        assert_eq!(qp.modify(&attr, Mask::CUR_STATE), Ok(()));
    }

    #[test]
    fn a_send_queue_recovers() {
        let mut qp = qp(0x22, State::Sqe);
        qp.send_failed();
        assert_eq!(qp.state(), State::Sqe);
        let attr = Attr {
            state: State::Rts,
            ..Attr::default()
        };
        assert_eq!(qp.modify(&attr, Mask::NONE), Ok(()));
        assert!(qp.send(&SEND, MTU).is_ok());
        // A failed send has no effect on a QP that cannot send.
        let mut qp = Qp::new(Qpn::new(1));
        qp.send_failed();
        assert_eq!(qp.state(), State::Reset);
    }

    #[test]
    fn a_drained_queue_is_reported_on_request() {
        let to = |state, en_sqd_async_notify| Attr {
            state,
            en_sqd_async_notify,
            ..Attr::default()
        };
        let mask = Mask::EN_SQD_ASYNC_NOTIFY;
        let mut qp = qp(0x22, State::Rts);
        for (notify, mask, reported) in [
            (true, mask, true),
            (false, mask, false),
            (true, Mask::NONE, false),
        ] {
            assert_eq!(qp.modify(&to(State::Sqd, notify), mask), Ok(()));
            let drained = (qp.take_drained(), qp.take_drained());
            assert_eq!(drained, (reported, false));
            assert_eq!(qp.modify(&to(State::Rts, false), Mask::NONE), Ok(()));
        }
        // Another state ends the request for a report.
        for state in [State::Rts, State::Error, State::Reset] {
            let mut qp = qp.clone();
            assert_eq!(qp.modify(&to(State::Sqd, true), mask), Ok(()));
            assert_eq!(qp.modify(&to(state, false), Mask::NONE), Ok(()));
            assert!(!qp.take_drained());
        }
        assert_eq!(qp.modify(&to(State::Sqd, true), mask), Ok(()));
        qp.send_failed();
        assert!(!qp.take_drained());
    }

    #[test]
    fn a_receive_begins_with_the_network_header() {
        let mut v4 = [0; 20];
        let mut v6 = [0; 40];
        for (byte, place) in (1..).zip(&mut v4) {
            *place = byte;
        }
        for (byte, place) in (1..).zip(&mut v6) {
            *place = byte;
        }
        let grh = grh_ipv4(&v4);
        assert_eq!(grh.split_at(20), (&[0; 20][..], &v4[..]));
        assert_eq!(grh_ipv6(&v6), v6);
    }
}
