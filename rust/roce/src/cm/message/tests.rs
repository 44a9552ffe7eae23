// SPDX-License-Identifier: GPL-2.0

//! Tests of all messages: each field is at the position that the specification gives, and reserved
//! fields are zero.

#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_roce_cm_message))]
mod suite {
    use super::super::{
        super::{
            Gid,
            Path,
            ServiceId,
            Transport, //
        },
        *, //
    };

    /// A field: the index of its byte after the header, its first bit in that byte counted from the
    /// highest, its number of bits, its value.
    type Field = (usize, usize, usize, u64);

    const TID: u64 = 0x0123_4567_89ab_cdef;

    /// Returns the datagram with this attribute ID and these fields. The bytes from `private.0` on
    /// are `private.1`.
    fn datagram(attribute: u8, fields: &[Field], private: (usize, u8)) -> Mad {
        let mut mad = [0; MAD_LEN];
        let header = [
            1, 7, 2, 3, 0, 0, 0, 0, 0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0, attribute,
        ];
        for (to, from) in mad.iter_mut().zip(header) {
            *to = from;
        }
        for (byte, bit, bits, value) in fields {
            for number in 0..*bits {
                let at = (24 + byte) * 8 + bit + number;
                let set = value >> (bits - 1 - number) & 1 != 0;
                if let Some(place) = mad.get_mut(at / 8) {
                    *place |= u8::from(set) << (7 - at % 8);
                }
            }
        }
        let (from, fill) = private;
        for place in mad.iter_mut().skip(24 + from) {
            *place = fill;
        }
        mad
    }

    /// Checks that the message is written as this datagram, and parsed again.
    fn check(body: Body<'_>, mad: &Mad) -> bool {
        let message = Message { tid: TID, body };
        message.write() == *mad && Message::parse(mad) == Ok(message)
    }

    const LOCAL: CommId = CommId(0x8182_8384);
    const REMOTE: CommId = CommId(0x9192_9394);
    const QPN: Qpn = Qpn::new(0xa1_a2a3);
    const PSN: Psn = Psn::new(0xb1_b2b3);
    const GUID: u64 = 0xc1c2_c3c4_c5c6_c7c8;

    const LOCAL_ID: Field = (0, 0, 32, 0x8182_8384);
    const REMOTE_ID: Field = (4, 0, 32, 0x9192_9394);

    fn path(fill: u8) -> Path {
        Path {
            local_lid: 0x1234,
            remote_lid: 0x5678,
            local_gid: Gid([fill; 16]),
            remote_gid: Gid([fill + 1; 16]),
            flow_label: 0x9_8765,
            packet_rate: 0x2a,
            traffic_class: 0x87,
            hop_limit: 0x65,
            service_level: 0x9,
            subnet_local: true,
            ack_timeout: Timeout::new(0x15),
        }
    }

    /// Returns the fields of a path that begins at byte `at`.
    fn path_fields(at: usize, fill: u8) -> [Field; 14] {
        let halves = |fill: u8| u64::from_be_bytes([fill; 8]);
        [
            (at, 0, 16, 0x1234),
            (at + 2, 0, 16, 0x5678),
            (at + 4, 0, 64, halves(fill)),
            (at + 12, 0, 64, halves(fill)),
            (at + 20, 0, 64, halves(fill + 1)),
            (at + 28, 0, 64, halves(fill + 1)),
            (at + 36, 0, 20, 0x9_8765),
            (at + 39, 2, 6, 0x2a),
            (at + 40, 0, 8, 0x87),
            (at + 41, 0, 8, 0x65),
            (at + 42, 0, 4, 0x9),
            (at + 42, 4, 1, 1),
            (at + 43, 0, 5, 0x15),
            (at + 43, 5, 3, 0),
        ]
    }

    fn req(private: &[u8]) -> Req<'_> {
        Req {
            local_id: LOCAL,
            service_id: ServiceId::new(0xd1d2_d3d4_d5d6_d7d8),
            ca_guid: GUID,
            qpn: QPN,
            responder_resources: 0x71,
            initiator_depth: 0x72,
            remote_response_timeout: Timeout::new(0x13),
            transport: Transport::Rd,
            flow_control: true,
            starting_psn: PSN,
            local_response_timeout: Timeout::new(0x1a),
            retry_count: 5,
            pkey: 0x7fff,
            mtu: 0xa,
            rnr_retry_count: 6,
            max_cm_retries: 0xb,
            srq: true,
            primary: path(0x31),
            alternate: path(0x41),
            private: Private::new(private).unwrap_or(Private::NONE),
        }
    }

    #[test]
    fn req_is_laid_out_as_specified() {
        let fields = [
            LOCAL_ID,
            (8, 0, 64, 0xd1d2_d3d4_d5d6_d7d8),
            (16, 0, 64, GUID),
            (32, 0, 24, 0xa1_a2a3),
            (35, 0, 8, 0x71),
            (39, 0, 8, 0x72),
            (43, 0, 5, 0x13),
            (43, 5, 2, 2),
            (43, 7, 1, 1),
            (44, 0, 24, 0xb1_b2b3),
            (47, 0, 5, 0x1a),
            (47, 5, 3, 5),
            (48, 0, 16, 0x7fff),
            (50, 0, 4, 0xa),
            (50, 5, 3, 6),
            (51, 0, 4, 0xb),
            (51, 4, 1, 1),
        ];
        let mut mad = datagram(0x10, &fields, (140, 0xee));
        for (at, fill) in [(52, 0x31), (96, 0x41)] {
            let path = datagram(0x10, &path_fields(at, fill), (232, 0));
            for (to, from) in mad.iter_mut().zip(path) {
                *to |= from;
            }
        }
        assert!(check(Body::Req(req(&[0xee; 92])), &mad));
    }

    #[test]
    fn mra_is_laid_out_as_specified() {
        let fields = [LOCAL_ID, REMOTE_ID, (8, 0, 2, 1), (9, 0, 5, 0x16)];
        let mra = Mra {
            local_id: LOCAL,
            remote_id: REMOTE,
            regarding: Regarding::Rep,
            service_timeout: Timeout::new(0x16),
            private: Private(&[0xee; 222]),
        };
        assert!(check(Body::Mra(mra), &datagram(0x11, &fields, (10, 0xee))));
    }

    #[test]
    fn rej_is_laid_out_as_specified() {
        let fields = [
            LOCAL_ID,
            REMOTE_ID,
            (8, 0, 2, 2),
            (9, 0, 7, 8),
            (10, 0, 16, 28),
            (12, 0, 64, GUID),
        ];
        let info = GUID.to_be_bytes();
        let rej = Rej {
            local_id: LOCAL,
            remote_id: REMOTE,
            regarding: Regarding::Other,
            reason: Reason::CONSUMER_DEFINED,
            info: Private(&info),
            private: Private(&[0xee; 148]),
        };
        assert!(check(Body::Rej(rej), &datagram(0x12, &fields, (84, 0xee))));

        let fields = [LOCAL_ID, (9, 0, 7, 72), (10, 0, 16, 0xffff)];
        let rej = Rej {
            remote_id: CommId(0),
            regarding: Regarding::Req,
            reason: Reason::new(0xffff),
            info: Private(&[0; 72]),
            ..rej
        };
        assert!(check(Body::Rej(rej), &datagram(0x12, &fields, (84, 0xee))));
    }

    #[test]
    fn rep_is_laid_out_as_specified() {
        let fields = [
            LOCAL_ID,
            REMOTE_ID,
            (12, 0, 24, 0xa1_a2a3),
            (20, 0, 24, 0xb1_b2b3),
            (24, 0, 8, 0x71),
            (25, 0, 8, 0x72),
            (26, 0, 5, 0x13),
            (26, 5, 2, 2),
            (26, 7, 1, 1),
            (27, 0, 3, 6),
            (27, 3, 1, 1),
            (28, 0, 64, GUID),
        ];
        let rep = Rep {
            local_id: LOCAL,
            remote_id: REMOTE,
            qpn: QPN,
            starting_psn: PSN,
            responder_resources: 0x71,
            initiator_depth: 0x72,
            target_ack_delay: Timeout::new(0x13),
            failover: 2,
            flow_control: true,
            rnr_retry_count: 6,
            srq: true,
            ca_guid: GUID,
            private: Private(&[0xee; 196]),
        };
        assert!(check(Body::Rep(rep), &datagram(0x13, &fields, (36, 0xee))));
    }

    #[test]
    fn rtu_dreq_and_drep_are_laid_out_as_specified() {
        let fields = [LOCAL_ID, REMOTE_ID, (8, 0, 24, 0xa1_a2a3)];
        let (local_id, remote_id) = (LOCAL, REMOTE);
        let rtu = Rtu {
            local_id,
            remote_id,
            private: Private(&[0xee; 224]),
        };
        assert!(check(
            Body::Rtu(rtu),
            &datagram(0x14, &fields[..2], (8, 0xee))
        ));
        let dreq = Dreq {
            local_id,
            remote_id,
            remote_qpn: QPN,
            private: Private(&[0xee; 220]),
        };
        assert!(check(
            Body::Dreq(dreq),
            &datagram(0x15, &fields, (12, 0xee))
        ));
        let drep = Drep {
            local_id,
            remote_id,
            private: Private(&[0xee; 224]),
        };
        assert!(check(
            Body::Drep(drep),
            &datagram(0x16, &fields[..2], (8, 0xee))
        ));
    }

    #[test]
    fn private_data_is_filled_with_zeros() {
        let message = Message {
            tid: TID,
            body: Body::Req(req(b"abc")),
        };
        let mad = message.write();
        let private = match Message::parse(&mad).map(|message| message.body) {
            Ok(Body::Req(req)) => req.private.get(),
            _ => &[],
        };
        assert_eq!(private.len(), 92);
        assert_eq!(
            private.split_at_checked(3),
            Some((&b"abc"[..], &[0; 89][..]))
        );
        assert!(Private::<'_, 3>::new(b"abc").is_some());
        assert!(Private::<'_, 3>::new(b"abcd").is_none());
        assert_eq!(Private::<'_, 3>::NONE.get(), b"");
    }

    #[test]
    fn reserved_fields_are_ignored() {
        // Status and class specific, reserved and attribute modifier; vendor ID, Q key and EECNs of
        // a REQ.
        let message = Message {
            tid: TID,
            body: Body::Req(req(&[0; 92])),
        };
        let mut mad = message.write();
        for at in [4, 7, 18, 23, 28, 31, 48, 55, 60, 62, 64, 66] {
            if let Some(place) = mad.get_mut(at) {
                *place = 0xff;
            }
        }
        assert_eq!(Message::parse(&mad), Ok(message));
    }

    #[test]
    fn additional_information_has_the_length_in_the_message() {
        for (said, long) in [(0, 0), (1, 1), (72, 72), (73, 72), (127, 72)] {
            let mad = datagram(0x12, &[(9, 0, 7, said)], (84, 0));
            let info = match Message::parse(&mad).map(|message| message.body) {
                Ok(Body::Rej(rej)) => Some(rej.info.get().len()),
                _ => None,
            };
            assert_eq!(info, Some(long));
        }
    }

    #[test]
    fn malformed_messages_are_refused() {
        let good = datagram(0x14, &[], (232, 0));
        assert!(Message::parse(&good).is_ok());
        for (at, byte, malformed) in [
            (0, 0, Malformed::BaseVersion),
            (0, 2, Malformed::BaseVersion),
            (1, 1, Malformed::Class),
            (1, 0x81, Malformed::Class),
            (2, 1, Malformed::ClassVersion),
            (2, 3, Malformed::ClassVersion),
            (3, 1, Malformed::Method),
            (3, 0x83, Malformed::Method),
            (16, 1, Malformed::Attribute),
            (17, 0x0f, Malformed::Attribute),
            (17, 0x17, Malformed::Attribute),
            (17, 0x1a, Malformed::Attribute),
        ] {
            let mut mad = good;
            if let Some(place) = mad.get_mut(at) {
                *place = byte;
            }
            assert_eq!(Message::parse(&mad), Err(malformed));
        }
        for len in 0..MAD_LEN {
            let short = good.get(..len).unwrap_or(&good);
            assert_eq!(Message::parse(short), Err(Malformed::Length));
        }
        assert_eq!(Message::parse(&[0; 257]), Err(Malformed::Length));
    }

    #[test]
    fn each_attribute_id_has_its_message() {
        for id in 0..=u16::MAX {
            if let Some(attribute) = Attribute::from_id(id) {
                assert_eq!(attribute as u16, id);
                assert!(Attribute::ALL.contains(&attribute));
            }
        }
        for (id, attribute) in (0x10..).zip(Attribute::ALL) {
            assert_eq!(Attribute::from_id(id), Some(attribute));
        }
        for (number, kind) in Malformed::ALL.iter().enumerate() {
            assert_eq!(*kind as usize, number);
            assert!(!kind.name().is_empty());
        }
    }
}
