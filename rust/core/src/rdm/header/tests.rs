// SPDX-License-Identifier: GPL-2.0
//! Tests of the header of SENDs.

#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_rdm_header))]
mod suite {
    use super::super::*;
    use crate::{
        atomic::Function,
        enums::{
            AtomicOp,
            Datatype, //
        },
        limits,
        op::OpType, //
    };

    const MESSAGE: Message = Message {
        id: 0x0102_0304_0506_0708,
        after: 0x0102_0304_0506_0707,
        tag: Some(0x1112_1314_1516_1718),
        data: Some(0x2122_2324_2526_2728),
        len: 0x1000,
        finish: true,
        void: false,
    };

    const READ: Message = Message {
        data: None,
        ..MESSAGE
    };

    const PLACE: RemoteAddr = RemoteAddr {
        va: 0x3132_3334_3536_3738,
        rkey: 0x4142_4344,
    };

    const RTS_BYTES: [u8; 56] = [
        1, 2, 7, 0, 0, 0, 0x10, 0, //
        1, 2, 3, 4, 5, 6, 7, 8, //
        1, 2, 3, 4, 5, 6, 7, 7, //
        0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, //
        0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, //
        0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38, //
        0x41, 0x42, 0x43, 0x44, 0, 0, 0, 0,
    ];

    const ATOMIC_BYTES: [u8; 48] = [
        1, 3, 4, 0, 0, 0, 0, 56, //
        1, 2, 3, 4, 5, 6, 7, 8, //
        1, 2, 3, 4, 5, 6, 7, 7, //
        0, 0, 0, 0, 0, 0, 0, 0, //
        0, 0, 0, 0, 0, 0, 0, 0, //
        8, 12, 4, 0, 0, 2, 0, 3, //
    ];

    /// A CSWAP of three INT32 in two pieces.
    fn atomic() -> Option<Header> {
        let function = Function::new(OpType::CompareAtomic, AtomicOp::Cswap, Datatype::Int32);
        let call = Call::new(function.ok()?, 2, 3)?;
        let message = Message {
            tag: None,
            data: None,
            len: 56,
            ..MESSAGE
        };
        Some(Header::Atomic(message, call))
    }

    /// Returns a header of each kind with its length.
    fn all() -> [(Header, usize); 14] {
        let id = 7;
        let status = FinStatus::Withdrawn;
        let finish = true;
        let (len, data) = (5, u64::MAX);
        [
            (Header::Eager(MESSAGE), 40),
            (Header::Rts(MESSAGE, PLACE), 56),
            (Header::TaggedWrite(MESSAGE, PLACE, 1 << 30), 56),
            (Header::TaggedRead(READ, 7), 48),
            (atomic().unwrap_or(Header::Ping), 48),
            (Header::Fin { id, status }, 16),
            (Header::Cancel { id, finish }, 16),
            (Header::Note { len, data }, 40),
            (Header::Ping, 16),
            (Header::Retire, 16),
            (Header::Retired, 16),
            (Header::Keep, 16),
            (Header::Bye { last: 9 }, 16),
            (Header::Result { id, len: 4096 }, 16),
        ]
    }

    /// Returns the result for the bytes of an RTS with byte `at` changed to `byte`.
    fn changed(at: usize, byte: u8) -> Result<Header, Malformed> {
        let mut bytes = RTS_BYTES;
        if let Some(place) = bytes.get_mut(at) {
            *place = byte;
        }
        Header::parse(&bytes)
    }

    #[test]
    fn bytes_are_where_they_belong() {
        let mut bytes = [0xff; 56];
        assert_eq!(Header::Rts(MESSAGE, PLACE).put(&mut bytes), Some(56));
        assert_eq!(bytes, RTS_BYTES);
        assert_eq!(Header::parse(&bytes), Ok(Header::Rts(MESSAGE, PLACE)));
        let mut bytes = [0xff; 17];
        let fin = Header::Fin {
            id: 7,
            status: FinStatus::Withdrawn,
        };
        assert_eq!(fin.put(&mut bytes), Some(16));
        let expected = [1, 4, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0xff];
        assert_eq!(bytes, expected);
    }

    #[test]
    fn written_headers_are_parsed_again() {
        for (header, len) in all() {
            let mut bytes = [0xff; MAX_HEADER];
            assert_eq!(header.len(), len);
            assert_eq!(header.put(&mut bytes), Some(len));
            assert_eq!(Header::parse(&bytes), Ok(header));
            for short in 0..len {
                let short = bytes.get(..short).unwrap_or_default();
                assert_eq!(Header::parse(short), Err(Malformed::Short));
                let mut room = [0; MAX_HEADER];
                let room = room.get_mut(..short.len()).unwrap_or_default();
                assert_eq!(header.put(room), None);
            }
        }
    }

    #[test]
    fn a_message_becomes_void() {
        for (header, len) in all() {
            let void = header.to_void();
            assert_eq!(void.len(), len);
            match void {
                Header::Eager(message)
                | Header::Rts(message, _)
                | Header::TaggedWrite(message, ..)
                | Header::TaggedRead(message, _)
                | Header::Atomic(message, _) => {
                    assert!(message.void);
                    let mut bytes = [0; MAX_HEADER];
                    assert_eq!(void.put(&mut bytes), Some(len));
                    assert_eq!(Header::parse(&bytes), Ok(void));
                }
                _ => assert_eq!(void, header),
            }
        }
    }

    #[test]
    fn each_invalid_header_has_its_reason() {
        assert_eq!(changed(0, 0), Err(Malformed::Version));
        assert_eq!(changed(0, 2), Err(Malformed::Version));
        for kind in [0, 15, 255] {
            assert_eq!(changed(1, kind), Err(Malformed::Kind));
        }
        assert_eq!(changed(2, 0x10 | 7), Err(Malformed::Flags));
        // An RTS without FINISH.
        assert_eq!(changed(2, 3), Err(Malformed::Flags));
        assert_eq!(changed(3, 1), Err(Malformed::Reserved));
        // A length of 1 GiB and one byte.
        assert_eq!(changed(4, 0x40), Err(Malformed::Length));
        // A tag or data without its flag.
        assert_eq!(changed(2, 6), Err(Malformed::Reserved));
        assert_eq!(changed(2, 5), Err(Malformed::Reserved));
        assert_eq!(changed(55, 1), Err(Malformed::Reserved));
        assert_eq!(changed(23, 8), Err(Malformed::Order));
        assert_eq!(changed(23, 9), Err(Malformed::Order));
        for (index, malformed) in Malformed::ALL.iter().enumerate() {
            assert_eq!(*malformed as usize, index);
            assert!(malformed.name().starts_with("rdm_"));
        }
    }

    #[test]
    fn unused_fields_must_be_zero() {
        // The columns: kind; whether it may have flags, a status, a length, an id, further fields.
        let kinds = [
            (FIN, [false, true, false, true, true]),
            (CANCEL, [true, false, false, true, true]),
            (NOTE, [false, false, true, false, false]),
            (PING, [false, false, false, false, true]),
            (RETIRE, [false, false, false, false, true]),
            (RETIRED, [false, false, false, false, true]),
            (KEEP, [false, false, false, false, true]),
            (BYE, [false, false, false, true, true]),
            (RESULT, [false, false, true, true, true]),
        ];
        for (kind, may) in kinds {
            for (at, may) in [2, 3, 7, 15, 23].into_iter().zip(may) {
                let mut bytes = [0; MAX_HEADER];
                if let Some([version, first, ..]) = bytes.get_mut(..2) {
                    *version = VERSION;
                    *first = kind;
                }
                if let Some(place) = bytes.get_mut(at) {
                    *place = if at == 2 { FINISH } else { 1 };
                }
                assert_eq!(Header::parse(&bytes).is_ok(), may);
            }
        }
    }

    #[test]
    fn atomics_say_what_their_payload_is() {
        let changed = |at: usize, byte: u8| {
            let mut bytes = ATOMIC_BYTES;
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
            Header::parse(&bytes)
        };
        let header = atomic();
        assert_eq!(changed(0, VERSION).ok(), header);
        assert_eq!(header.map(|header| header.payload()), Some(56));
        let mut bytes = [0xff; 48];
        let len = header.and_then(|header| header.put(&mut bytes));
        assert_eq!((len, bytes), (Some(48), ATOMIC_BYTES));
        // An unknown form, op and type; a combination that is not defined.
        for (at, byte) in [(40, 9), (41, 19), (42, 14), (41, 2), (44, 2), (47, 0)] {
            assert_eq!(changed(at, byte), Err(Malformed::Atomic));
        }
        // A length that does not follow from the call.
        for (at, byte) in [(7, 55), (7, 57), (47, 4), (45, 1), (4, 1)] {
            assert_eq!(changed(at, byte), Err(Malformed::Length));
        }
        assert_eq!(changed(43, 1), Err(Malformed::Reserved));
        assert_eq!(changed(3, 1), Err(Malformed::Reserved));
        assert_eq!(changed(31, 1), Err(Malformed::Reserved));
        assert_eq!(changed(39, 1), Err(Malformed::Reserved));
        // A tag; data with a result; no result.
        for flags in [5, 6, 0] {
            assert_eq!(changed(2, flags), Err(Malformed::Flags));
        }
        assert_eq!(changed(23, 8), Err(Malformed::Order));
        let too_long = Header::Result {
            id: 1,
            len: (1 << 30) + 1,
        };
        let mut bytes = [0; SHORT_LEN];
        assert_eq!(too_long.put(&mut bytes), Some(SHORT_LEN));
        assert_eq!(Header::parse(&bytes), Err(Malformed::Length));
    }

    #[test]
    fn tagged_rma_has_a_tag_an_answer_and_an_offset() {
        let write = Header::TaggedWrite(MESSAGE, PLACE, 0x0051_5253);
        let read = Header::TaggedRead(READ, 0x0051_5253);
        let changed = |header: Header, at: usize, byte: u8| {
            let mut bytes = [0; MAX_HEADER];
            assert_eq!(header.put(&mut bytes), Some(header.len()));
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
            Header::parse(&bytes)
        };
        // The offsets are where they belong.
        for (header, at) in [(write, 52), (read, 40)] {
            let parsed = changed(header, at + 3, 0x54).ok();
            let rma = parsed.and_then(|header| header.tagged_rma());
            assert_eq!(rma.map(|rma| rma.offset), Some(0x0051_5254));
            assert_eq!(rma.map(|rma| rma.read), Some(header == read));
            assert_eq!(changed(header, at, 0x41), Err(Malformed::Length));
            // A length of more than 1 GiB.
            assert_eq!(changed(header, 4, 0x41), Err(Malformed::Length));
            assert_eq!(changed(header, 3, 1), Err(Malformed::Reserved));
            assert_eq!(changed(header, 23, 8), Err(Malformed::Order));
            assert_eq!(header.payload(), 0);
        }
        // Without an answer; without a tag, whose field is 0 then.
        assert_eq!(changed(write, 2, TAGGED | DATA), Err(Malformed::Flags));
        assert_eq!(changed(read, 2, TAGGED), Err(Malformed::Flags));
        let plain = |message| Message {
            tag: None,
            ..message
        };
        let without = Header::TaggedWrite(plain(MESSAGE), PLACE, 0);
        assert_eq!(changed(without, 43, 1), Err(Malformed::Flags));
        assert_eq!(
            changed(Header::TaggedRead(plain(READ), 0), 43, 1),
            Err(Malformed::Flags)
        );
        // A read has no data.
        assert_eq!(changed(read, 2, 7), Err(Malformed::Flags));
        assert_eq!(changed(read, 47, 1), Err(Malformed::Reserved));
        let fin = |status| {
            let id = 7;
            changed(
                Header::Fin {
                    id,
                    status: FinStatus::Received,
                },
                3,
                status,
            )
        };
        for (byte, status) in [(2, FinStatus::Truncated), (3, FinStatus::NoReceive)] {
            assert_eq!(fin(byte), Ok(Header::Fin { id: 7, status }));
        }
        assert_eq!(fin(4), Err(Malformed::Status));
        assert_eq!(FinStatus::Received.result(), Ok(()));
        assert_eq!(FinStatus::Withdrawn.result(), Err(Errno::ECANCELED));
        assert_eq!(FinStatus::Truncated.result(), Err(Errno::EMSGSIZE));
        assert_eq!(FinStatus::NoReceive.result(), Err(Errno::EREMOTEIO));
    }

    #[test]
    fn lengths_above_the_limit_are_refused() {
        let eager = |len| {
            let mut bytes = [0; MAX_HEADER];
            let message = Message { len, ..MESSAGE };
            assert!(Header::Eager(message).put(&mut bytes).is_some());
            Header::parse(&bytes)
        };
        let most = limits::EAGER_SIZE as u32;
        assert!(eager(0).is_ok());
        assert!(eager(most).is_ok());
        assert_eq!(eager(most + 1), Err(Malformed::Length));
        let note = |len| {
            let mut bytes = [0; MAX_HEADER];
            assert!(Header::Note { len, data: 0 }.put(&mut bytes).is_some());
            Header::parse(&bytes)
        };
        assert!(note(1 << 30).is_ok());
        assert_eq!(note((1 << 30) + 1), Err(Malformed::Length));
        assert_eq!(eager(5).map(|header| header.payload()), Ok(5));
        assert_eq!(note(5).map(|header| header.payload()), Ok(0));
    }
}
