// SPDX-License-Identifier: GPL-2.0

//! Tests of the EQ through its public interface, with one thread.

#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_eq))]
mod suite {
    use super::super::*;
    use crate::testing::{
        ArrayMap,
        Log, //
    };

    const EMPTY_ERR: ErrEvent = ErrEvent {
        fid: 0,
        err: 0,
        prov_errno: 0,
        context: 0,
        data: 0,
        err_data: ErrData::NONE,
    };

    /// The object of the events.
    const SOURCE: u64 = 77;

    const READ_7: Result<Read> = Ok(Read { event: 7, len: 3 });

    #[test]
    fn an_event_is_read_once_and_peeked_at_often() {
        let (mut events, mut errors) = ([Event::EMPTY; 2], [EMPTY_ERR; 1]);
        let mut eq = EventQueue::new(&mut events[..], &mut errors[..], ArrayMap::new());
        let mut buf = [0; 8];
        assert_eq!(eq.read(&mut buf, Mode::Take), Err(Errno::EAGAIN));
        assert_eq!(eq.write(7, b"abc", |_| ()), Ok(()));
        assert!(eq.front_is_written());
        assert_eq!(eq.read(&mut buf, Mode::Peek), READ_7);
        assert_eq!(eq.read(&mut buf, Mode::Peek), READ_7);
        eq.drop_front();
        assert_eq!(eq.read(&mut buf, Mode::Take), Err(Errno::EAGAIN));
        assert_eq!(eq.write(7, b"abc", |_| ()), Ok(()));
        assert_eq!(eq.read(&mut buf, Mode::Take), READ_7);
        assert_eq!(&buf, b"abc\0\0\0\0\0");
        assert_eq!(eq.read(&mut buf, Mode::Take), Err(Errno::EAGAIN));
    }

    #[test]
    fn a_short_buffer_leaves_the_event() {
        let (mut events, mut errors) = ([Event::EMPTY; 1], [EMPTY_ERR; 1]);
        let mut eq = EventQueue::new(&mut events[..], &mut errors[..], ArrayMap::new());
        let mut buf = [9; 3];
        assert_eq!(eq.write(7, b"abc", |_| ()), Ok(()));
        assert_eq!(
            eq.read(&mut buf[..2], Mode::Take),
            Err(Errno::KFI_ETOOSMALL)
        );
        assert_eq!(buf, [9; 3]);
        assert_eq!(eq.read(&mut buf, Mode::Take), READ_7);
    }

    #[test]
    fn events_have_zero_to_max_event_bytes() {
        let (mut events, mut errors) = ([Event::EMPTY; 1], [EMPTY_ERR; 1]);
        let mut eq = EventQueue::new(&mut events[..], &mut errors[..], ArrayMap::new());
        let long = [5; MAX_EVENT + 1];
        assert_eq!(eq.write(1, &long, |_| ()), Err(Errno::EINVAL));
        assert_eq!(eq.push(1, SOURCE, &long, |_| ()), Err(Errno::EINVAL));
        assert_eq!(eq.overruns(), 0);
        assert_eq!(eq.write(1, &long[1..], |_| ()), Ok(()));
        let mut buf = [0; MAX_EVENT];
        assert!(eq.read(&mut buf, Mode::Take).is_ok());
        assert_eq!(buf, [5; MAX_EVENT]);
        assert_eq!(eq.write(1, &[], |_| ()), Ok(()));
        assert_eq!(eq.read(&mut [], Mode::Take), Ok(Read { event: 1, len: 0 }));
    }

    #[test]
    fn an_error_is_read_first() {
        let (mut events, mut errors) = ([Event::EMPTY; 1], [EMPTY_ERR; 1]);
        let mut eq = EventQueue::new(&mut events[..], &mut errors[..], ArrayMap::new());
        let error = ErrEvent {
            err: 12,
            ..EMPTY_ERR
        };
        let mut buf = [0; 8];
        assert_eq!(eq.read_err(Mode::Take), Err(Errno::EAGAIN));
        assert_eq!(eq.write(7, b"abc", |_| ()), Ok(()));
        assert_eq!(eq.push_err(error, |_| ()), Push::Queued);
        assert_eq!(eq.read(&mut buf, Mode::Take), Err(Errno::KFI_EAVAIL));
        assert_eq!(eq.read_err(Mode::Peek), Ok(error));
        assert_eq!(eq.read_err(Mode::Take), Ok(error));
        assert_eq!(eq.read_err(Mode::Take), Err(Errno::EAGAIN));
        assert_eq!(eq.read(&mut buf, Mode::Take), READ_7);
    }

    #[test]
    fn data_of_a_rejection_is_cut_at_the_limit() {
        let data = [7; MAX_REJECT_DATA + 1];
        assert_eq!(ErrData::default().get(), &[]);
        assert_eq!(ErrData::new(&[]), ErrData::NONE);
        assert_eq!(ErrData::new(b"no").get(), b"no");
        assert_eq!(ErrData::new(&data).get(), &data[1..]);
    }

    #[test]
    fn an_overrun_is_reported_once_after_the_events() {
        let (mut events, mut errors) = ([Event::EMPTY; 1], [EMPTY_ERR; 1]);
        let mut eq = EventQueue::new(&mut events[..], &mut errors[..], ArrayMap::new());
        let mut buf = [0; 8];
        assert!(!eq.front_is_written());
        assert_eq!(eq.push(7, SOURCE, b"abc", |_| ()), Ok(Push::Queued));
        assert!(!eq.front_is_written());
        assert_eq!(eq.write(8, b"", |_| ()), Err(Errno::EAGAIN));
        assert_eq!(eq.overruns(), 0);
        assert_eq!(eq.push(8, SOURCE, b"", |_| ()), Ok(Push::Overrun));
        assert_eq!(eq.push_err(EMPTY_ERR, |_| ()), Push::Queued);
        assert_eq!(eq.push_err(EMPTY_ERR, |_| ()), Push::Overrun);
        assert_eq!(eq.overruns(), 2);
        assert_eq!(eq.read_err(Mode::Take), Ok(EMPTY_ERR));
        assert_eq!(eq.read(&mut buf, Mode::Take), READ_7);
        assert!(eq.ready());
        assert_eq!(eq.read(&mut buf, Mode::Peek), Err(Errno::KFI_EOVERRUN));
        assert_eq!(eq.read(&mut buf, Mode::Take), Err(Errno::KFI_EOVERRUN));
        assert_eq!(eq.read(&mut buf, Mode::Take), Err(Errno::EAGAIN));
        assert!(!eq.ready());
    }

    #[test]
    fn requests_take_half_of_the_room_and_are_not_lost() {
        let (mut events, mut errors) = ([Event::EMPTY; 3], [EMPTY_ERR; 1]);
        let mut eq = EventQueue::new(&mut events[..], &mut errors[..], ArrayMap::new());
        let mut buf = [0; 8];
        let long = [0; MAX_EVENT + 1];
        assert_eq!(
            eq.push_request(7, SOURCE, &long, |_| ()),
            Err(Errno::EINVAL)
        );
        assert_eq!(eq.push_request(7, SOURCE, b"abc", |_| ()), Ok(()));
        assert_eq!(eq.push(8, SOURCE, b"", |_| ()), Ok(Push::Queued));
        assert_eq!(
            eq.push_request(7, SOURCE, b"abc", |_| ()),
            Err(Errno::EAGAIN)
        );
        assert_eq!(eq.overruns(), 0);
        assert_eq!(eq.push(8, SOURCE, b"", |_| ()), Ok(Push::Queued));
        assert_eq!(eq.read(&mut buf, Mode::Take), READ_7);
        assert_eq!(eq.read(&mut buf, Mode::Take), Ok(Read { event: 8, len: 0 }));
        assert_eq!(eq.push_request(7, SOURCE, b"abc", |_| ()), Ok(()));
        assert_eq!(eq.read(&mut buf, Mode::Take), Ok(Read { event: 8, len: 0 }));
        assert_eq!(eq.read(&mut buf, Mode::Take), READ_7);
        assert_eq!(eq.read(&mut buf, Mode::Take), Err(Errno::EAGAIN));
    }

    #[test]
    fn the_events_of_an_object_are_removed() {
        let (mut events, mut errors) = ([Event::EMPTY; 4], [EMPTY_ERR; 2]);
        let mut eq = EventQueue::new(&mut events[..], &mut errors[..], ArrayMap::new());
        let mut buf = [0; 8];
        let other = ErrEvent {
            fid: SOURCE + 1,
            ..EMPTY_ERR
        };
        let error = ErrEvent {
            fid: SOURCE,
            ..EMPTY_ERR
        };
        assert_eq!(eq.push(1, SOURCE, b"", |_| ()), Ok(Push::Queued));
        assert_eq!(eq.push(7, SOURCE + 1, b"abc", |_| ()), Ok(Push::Queued));
        // Its source is 0; a written event, which has none, stays.
        assert_eq!(eq.push(2, 0, b"", |_| ()), Ok(Push::Queued));
        assert_eq!(eq.write(8, b"", |_| ()), Ok(()));
        assert_eq!(eq.push_err(error, |_| ()), Push::Queued);
        assert_eq!(eq.push_err(other, |_| ()), Push::Queued);
        eq.remove_events_of(SOURCE);
        eq.remove_events_of(0);
        assert_eq!((eq.events(), eq.errors()), (2, 1));
        assert_eq!(eq.read_err(Mode::Take), Ok(other));
        assert_eq!(eq.read(&mut buf, Mode::Take), READ_7);
        assert_eq!(eq.read(&mut buf, Mode::Take), Ok(Read { event: 8, len: 0 }));
        assert_eq!(eq.push_request(7, SOURCE, b"abc", |_| ()), Ok(()));
        eq.remove_events_of(SOURCE);
        assert!(!eq.ready());
        assert_eq!(eq.overruns(), 0);
    }

    #[test]
    fn sleepers_are_woken_by_events_errors_and_losses() {
        let (mut events, mut errors) = ([Event::EMPTY; 1], [EMPTY_ERR; 0]);
        let mut eq = EventQueue::new(&mut events[..], &mut errors[..], ArrayMap::new());
        let mut log = Log::new();
        assert!(matches!(eq.arm(1), Armed::Waiting(_)));
        assert!(matches!(eq.arm(2), Armed::Waiting(_)));
        if let Armed::Waiting(key) = eq.arm(3) {
            assert_eq!(eq.disarm(&key), Some(3));
        }
        assert_eq!(eq.sleepers(), 2);
        // There is no slot for errors: the loss is reported.
        assert_eq!(eq.push_err(EMPTY_ERR, |name| log.push(name)), Push::Overrun);
        assert_eq!(log, Log::of(&[1, 2]));
        assert_eq!(eq.arm(4), Armed::Ready(4));
        assert_eq!(eq.read(&mut [], Mode::Take), Err(Errno::KFI_EOVERRUN));
        assert!(matches!(eq.arm(5), Armed::Waiting(_)));
        assert_eq!(
            eq.push(1, SOURCE, &[], |name| log.push(name)),
            Ok(Push::Queued)
        );
        assert_eq!(log, Log::of(&[1, 2, 5]));
        assert_eq!(eq.read(&mut [], Mode::Take), Ok(Read { event: 1, len: 0 }));
        assert!(matches!(eq.arm(6), Armed::Waiting(_)));
        eq.release_all(|name| log.push(name));
        assert_eq!(log, Log::of(&[1, 2, 5, 6]));
        assert_eq!(eq.sleepers(), 0);
    }
}
