// SPDX-License-Identifier: GPL-2.0
//! Tests of the receiving side of a connection.

#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_rdm_inbound))]
mod suite {
    use super::super::*;
    use crate::{
        atomic::Function,
        enums::{
            AtomicOp,
            Datatype, //
        },
        op::OpType,
        rdm::header::MAX_HEADER,
    };

    fn message(id: u64, len: u32) -> Message {
        Message {
            id,
            after: 0,
            tag: None,
            data: None,
            len,
            finish: false,
            void: false,
        }
    }

    fn begin(inbound: &mut Inbound, header: Header) -> Result<Begin, Malformed> {
        let mut bytes = [0; MAX_HEADER];
        assert_eq!(header.put(&mut bytes), Some(header.len()));
        inbound.begin(&bytes, OutstandingAnswers::default())
    }

    /// Passes an eager message of no bytes that comes after another one. Returns whether it was
    /// taken.
    fn bring(inbound: &mut Inbound, (after, id): (u64, u64), void: bool) -> bool {
        let message = Message {
            after,
            void,
            ..message(id, 0)
        };
        let begun = begin(inbound, Header::Eager(message));
        let offered = matches!(begun, Ok(Begin::Message(..)));
        if offered {
            inbound.take();
        }
        let end = if offered { End::Message } else { End::Nothing };
        assert_eq!(inbound.end(40), Ok(end));
        offered
    }

    fn cancel(inbound: &mut Inbound, id: u64, finish: bool) -> Option<CancelState> {
        assert_eq!(
            begin(inbound, Header::Cancel { id, finish }),
            Ok(Begin::Other)
        );
        match inbound.end(16) {
            Ok(End::Event(Event::Cancel { id: named, found })) if named == id => Some(found),
            _ => None,
        }
    }

    #[test]
    fn a_message_of_several_packets() {
        let mut inbound = Inbound::new();
        let header = Header::Eager(message(1, 600));
        let begun = begin(&mut inbound, header);
        assert_eq!(begun, Ok(Begin::Message(message(1, 600), Source::Eager)));
        // The message has not been taken.
        assert_eq!(inbound.payload(0, 256), Ok(None));
        inbound.take();
        assert_eq!(inbound.payload(0, 256), Ok(Some((40..256, 0))));
        assert_eq!(inbound.payload(256, 256), Ok(Some((0..256, 216))));
        assert_eq!(inbound.payload(512, 128), Ok(Some((0..128, 472))));
        assert_eq!(inbound.payload(512, 129), Err(Malformed::Length));
        assert_eq!(inbound.payload(u32::MAX, 1), Err(Malformed::Length));
        assert_eq!(inbound.shut(), 0);
        assert_eq!(inbound.end(640), Ok(End::Message));
        assert_eq!(inbound.shut(), 1);
    }

    #[test]
    fn a_message_with_a_wrong_length_is_refused() {
        for len in [39, 639, 641] {
            let mut inbound = Inbound::new();
            let header = Header::Eager(message(1, 600));
            assert!(begin(&mut inbound, header).is_ok());
            inbound.take();
            assert_eq!(inbound.end(len), Err(Malformed::Length));
            assert_eq!(inbound.shut(), 0);
        }
        let mut inbound = Inbound::new();
        assert_eq!(begin(&mut inbound, Header::Ping), Ok(Begin::Other));
        assert_eq!(inbound.payload(0, 16), Ok(None));
        assert_eq!(inbound.payload(0, 17), Err(Malformed::Length));
        assert_eq!(inbound.end(17), Err(Malformed::Length));
    }

    #[test]
    fn a_message_that_was_not_taken_comes_again() {
        let mut inbound = Inbound::new();
        let header = Header::Eager(message(1, 0));
        for _ in 0..3 {
            let begun = begin(&mut inbound, header);
            assert!(matches!(begun, Ok(Begin::Message(..))));
        }
        assert!(bring(&mut inbound, (0, 1), false));
        assert!(!bring(&mut inbound, (0, 1), false));
        // Numbers may have gaps.
        assert!(bring(&mut inbound, (1, 5), false));
        assert!(!bring(&mut inbound, (1, 4), false));
    }

    #[test]
    fn void_messages_come_again_in_order() {
        let mut inbound = Inbound::new();
        assert!(bring(&mut inbound, (0, 1), false));
        assert!(!bring(&mut inbound, (1, 3), true));
        assert!(!bring(&mut inbound, (3, 4), true));
        // The original was on its way.
        assert!(!bring(&mut inbound, (4, 6), false));
        assert!(!bring(&mut inbound, (3, 4), false));
        assert!(bring(&mut inbound, (1, 3), false));
        assert!(bring(&mut inbound, (3, 4), false));
        assert!(bring(&mut inbound, (4, 6), false));
    }

    #[test]
    fn a_void_message_that_was_taken_is_a_duplicate() {
        let mut inbound = Inbound::new();
        // The original came first; then everything is made void and sent again.
        assert!(bring(&mut inbound, (0, 1), false));
        assert!(!bring(&mut inbound, (0, 1), true));
        assert!(!bring(&mut inbound, (1, 2), true));
        assert!(!bring(&mut inbound, (0, 1), false));
        assert!(bring(&mut inbound, (1, 2), false));
    }

    #[test]
    fn a_withdrawn_message_is_not_waited_for() {
        let mut inbound = Inbound::new();
        assert!(!bring(&mut inbound, (0, 1), true));
        assert!(!bring(&mut inbound, (1, 2), true));
        assert_eq!(cancel(&mut inbound, 1, true), Some(CancelState::Never));
        // The message was posted after the CANCEL, and is void too. Its original was on its way.
        assert!(!bring(&mut inbound, (2, 3), false));
        // Messages sent again do not depend on the withdrawn one.
        assert!(bring(&mut inbound, (0, 2), false));
        assert!(bring(&mut inbound, (2, 3), false));
        assert_eq!(cancel(&mut inbound, 3, false), Some(CancelState::Received));
        assert_eq!(cancel(&mut inbound, 3, true), Some(CancelState::Taken));
        // The message to be withdrawn had been taken.
        assert!(bring(&mut inbound, (3, 4), false));
        assert!(bring(&mut inbound, (3, 5), false));
    }

    #[test]
    fn atomics_have_an_order_of_their_own() {
        let function = Function::new(OpType::Atomic, AtomicOp::Sum, Datatype::Uint8);
        let call = function.ok().and_then(|function| Call::new(function, 1, 1));
        let call = call.map(|call| (call.payload(), call));
        let bring = |inbound: &mut Inbound, (after, id): (u64, u64), void: bool| {
            let (len, call) = call?;
            let message = Message {
                after,
                void,
                ..message(id, len)
            };
            let begun = begin(inbound, Header::Atomic(message, call));
            let offered = matches!(begun, Ok(Begin::Message(_, Source::Atomic(_))));
            if offered {
                inbound.take();
            }
            let end = if offered { End::Message } else { End::Nothing };
            assert_eq!(inbound.end(48 + len), Ok(end));
            Some(offered)
        };
        let mut inbound = Inbound::new();
        assert!(self::bring(&mut inbound, (0, 5), false));
        // Its number is smaller than that of a message that was taken.
        assert_eq!(bring(&mut inbound, (0, 2), true), Some(false));
        assert_eq!(bring(&mut inbound, (2, 3), false), Some(false));
        assert_eq!(bring(&mut inbound, (0, 2), false), Some(true));
        assert_eq!(bring(&mut inbound, (0, 2), false), Some(false));
        assert_eq!(bring(&mut inbound, (2, 3), false), Some(true));
        assert_eq!(bring(&mut inbound, (3, 9), false), Some(true));
        assert!(self::bring(&mut inbound, (5, 7), false));
        // A BYE tells only of messages.
        assert_eq!(inbound.shut(), 7);
    }

    #[test]
    fn results_are_placed() {
        let mut inbound = Inbound::new();
        let (id, len) = (3, 20);
        let begun = begin(&mut inbound, Header::Result { id, len });
        assert_eq!(begun, Ok(Begin::Result { id, len }));
        assert_eq!(inbound.payload(0, 30), Ok(Some((16..30, 0))));
        assert_eq!(inbound.payload(30, 6), Ok(Some((0..6, 14))));
        assert_eq!(inbound.payload(30, 7), Err(Malformed::Length));
        assert_eq!(inbound.end(36), Ok(End::Event(Event::Result { id, len })));
        assert!(begin(&mut inbound, Header::Result { id, len }).is_ok());
        assert_eq!(inbound.end(35), Err(Malformed::Length));
    }

    #[test]
    fn a_closing_endpoint_takes_no_message() {
        let mut inbound = Inbound::new();
        assert!(bring(&mut inbound, (0, 1), false));
        assert_eq!(inbound.shut(), 1);
        let header = Header::Eager(message(2, 0));
        assert_eq!(begin(&mut inbound, header), Ok(Begin::NotReady));
        assert!(!bring(&mut inbound, (0, 1), false));
        assert_eq!(begin(&mut inbound, Header::Retire), Ok(Begin::Other));
        assert_eq!(inbound.end(16), Ok(End::Event(Event::Retire)));
    }

    #[test]
    fn sends_beyond_the_answer_limit_must_wait() {
        let begin = |header: Header, total: u32, waiting: u32| {
            let mut bytes = [0; MAX_HEADER];
            assert_eq!(header.put(&mut bytes), Some(header.len()));
            Inbound::new().begin(&bytes, OutstandingAnswers { total, waiting })
        };
        let answered = Message {
            finish: true,
            ..message(1, 0)
        };
        let place = RemoteAddr { va: 0, rkey: 0 };
        for header in [Header::Eager(answered), Header::Rts(answered, place)] {
            let is_offered = |total, waiting| match begin(header, total, waiting) {
                Ok(Begin::Message(..)) => true,
                other => {
                    assert_eq!(other, Ok(Begin::NotReady));
                    false
                }
            };
            assert!(is_offered(ANSWERS - 1, 0) && is_offered(ANSWERS + 6, 7));
            assert!(!is_offered(ANSWERS, 0) && !is_offered(ANSWERS + 7, 7));
            assert!(!is_offered(u32::MAX, u32::MAX));
        }
        for (id, finish) in [(1, true), (u64::MAX, false)] {
            let cancel = Header::Cancel { id, finish };
            let max = ANSWERS + CANCELS_MAX;
            assert_eq!(begin(cancel, max - 1, 0), Ok(Begin::Other));
            assert_eq!(begin(cancel, max, 0), Ok(Begin::NotReady));
            assert_eq!(begin(cancel, max + 4, 5), Ok(Begin::Other));
        }
        // A message without an answer is not limited.
        let eager = Header::Eager(message(1, 0));
        assert!(matches!(begin(eager, u32::MAX, 0), Ok(Begin::Message(..))));
        assert_eq!(begin(Header::Ping, u32::MAX, 0), Ok(Begin::Other));
        let fin = Header::Fin {
            id: 1,
            status: FinStatus::Received,
        };
        assert_eq!(begin(fin, u32::MAX, 0), Ok(Begin::Other));
    }
}
