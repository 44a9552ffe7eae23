// SPDX-License-Identifier: GPL-2.0

//! Tests of the CQ through its public interface, with one thread.

#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_cq))]
mod suite {
    use super::super::*;
    use crate::testing::{
        ArrayMap,
        ArrayRecords,
        Log,
        Plain, //
    };

    const EMPTY_ERR: ErrEntry = ErrEntry {
        op_context: 0,
        flags: 0,
        len: 0,
        buf: 0,
        data: 0,
        tag: 0,
        olen: 0,
        src_addr: 0,
        err: 0,
        prov_errno: 0,
    };

    const ERR_5: ErrEntry = ErrEntry {
        err: 5,
        ..EMPTY_ERR
    };

    type Cq<'a> = CompletionQueue<Plain, &'a mut [ErrEntry], ArrayMap, ArrayRecords>;

    fn new_cq<W: crate::word::Word>(
        words: Words<W>,
        size: u32,
        errors: &mut [ErrEntry],
    ) -> Result<CompletionQueue<W, &mut [ErrEntry], ArrayMap, ArrayRecords>> {
        CompletionQueue::new(words, size, errors, ArrayRecords::new(), ArrayMap::new())
    }

    /// Returns a CQ of four entries.
    fn cq(errors: &mut [ErrEntry; 4]) -> Result<Cq<'_>> {
        let words = Words {
            tail: Plain::new(0),
            errors: Plain::new(0),
            overruns: Plain::new(0),
            head: Plain::new(0),
            reported: Plain::new(0),
        };
        new_cq(words, 4, &mut errors[..])
    }

    /// Completes an operation that is posted now.
    fn complete(cq: &mut Cq<'_>) -> Result<Log<(u32, Woken)>> {
        let mut log = Log::new();
        let credit = cq.reserve()?;
        cq.push(credit, |_| (), |name, why| log.push((name, why)));
        Ok(log)
    }

    fn fail(cq: &mut Cq<'_>) -> Result<Log<(u32, Woken)>> {
        let mut log = Log::new();
        let credit = cq.reserve()?;
        cq.push_err(credit, ERR_5, |name, why| log.push((name, why)));
        Ok(log)
    }

    /// Reads up to `want` entries. Returns their number.
    fn read<W: crate::word::Word>(
        cq: &mut CompletionQueue<W, &mut [ErrEntry], ArrayMap, ArrayRecords>,
        want: u32,
    ) -> Result<u32> {
        let batch = cq.peek(want)?;
        cq.take(&batch, batch.count());
        Ok(batch.count())
    }

    /// Arms a thread that has just entered; it stays inside.
    fn arm<W: crate::word::Word>(
        cq: &mut CompletionQueue<W, &mut [ErrEntry], ArrayMap, ArrayRecords>,
        want: u64,
        name: u32,
    ) -> Armed<u32> {
        let inside = cq.enter();
        let armed = cq.arm(&inside, want, name);
        if !matches!(armed, Armed::Waiting(_)) {
            cq.leave(inside);
        }
        armed
    }

    #[test]
    fn there_are_as_many_error_slots_as_entries() {
        let mut errors = [EMPTY_ERR; 3];
        let words = || Words {
            tail: Plain::new(0),
            errors: Plain::new(0),
            overruns: Plain::new(0),
            head: Plain::new(0),
            reported: Plain::new(0),
        };
        let few = new_cq(words(), 4, &mut errors[..]);
        assert_eq!(few.map(|_| ()), Err(Errno::EINVAL));
        let odd = new_cq(words(), 3, &mut errors[..]);
        assert_eq!(odd.map(|_| ()), Err(Errno::EINVAL));
        let good = new_cq(words(), 2, &mut errors[..]);
        assert!(good.is_ok());
    }

    #[test]
    fn room_can_be_taken_for_many_at_once() -> Result {
        let mut errors = [EMPTY_ERR; 4];
        let mut cq = cq(&mut errors)?;
        assert_eq!(cq.reserve_many(5), Err(Errno::EAGAIN));
        assert_eq!(cq.reserved(), 0);
        cq.reserve_many(3)?;
        cq.reserve()?.into_pool();
        assert_eq!(cq.reserve_many(1), Err(Errno::EAGAIN));
        assert_eq!(cq.reserve_many(0), Ok(()));
        cq.push(Credit::of_pool(), |slot| assert_eq!(slot, 0), |_, _| ());
        assert_eq!((cq.queued(), cq.reserved()), (1, 3));
        cq.release_many(3);
        assert_eq!(cq.reserved(), 0);
        cq.reserve_many(3)
    }

    #[test]
    fn a_credit_is_room_for_an_entry_an_error_or_nothing() -> Result {
        let mut errors = [EMPTY_ERR; 4];
        let mut cq = cq(&mut errors)?;
        let (a, b, c, d) = (cq.reserve()?, cq.reserve()?, cq.reserve()?, cq.reserve()?);
        assert_eq!(cq.reserve().map(|_| ()), Err(Errno::EAGAIN));
        assert_eq!(cq.reserved(), 4);
        cq.push(a, |slot| assert_eq!(slot, 0), |_, _| ());
        cq.push_err(b, ERR_5, |_, _| ());
        assert_eq!(cq.reserve().map(|_| ()), Err(Errno::EAGAIN));
        cq.release(c);
        assert!(complete(&mut cq).is_ok());
        cq.push_err(d, ERR_5, |_, _| ());
        assert_eq!((cq.queued(), cq.errors(), cq.reserved()), (2, 2, 0));
        assert_eq!(cq.reserve().map(|_| ()), Err(Errno::EAGAIN));
        assert_eq!(cq.read_err(), Ok((ERR_5, None)));
        assert!(complete(&mut cq).is_ok());
        assert_eq!((cq.queued(), cq.errors(), cq.reserved()), (3, 1, 0));
        assert_eq!(cq.entries_ever(), 3);
        assert_eq!(cq.size(), 4);
        Ok(())
    }

    #[test]
    fn errors_are_read_before_entries() -> Result {
        let mut errors = [EMPTY_ERR; 4];
        let mut cq = cq(&mut errors)?;
        assert_eq!(read(&mut cq, 1), Err(Errno::EAGAIN));
        assert_eq!(cq.read_err(), Err(Errno::EAGAIN));
        complete(&mut cq)?;
        fail(&mut cq)?;
        assert_eq!(read(&mut cq, 1), Err(Errno::KFI_EAVAIL));
        assert_eq!(cq.peek_err(), Ok(ERR_5));
        assert_eq!(cq.read_err(), Ok((ERR_5, None)));
        assert_eq!(cq.peek_err(), Err(Errno::EAGAIN));
        assert_eq!(read(&mut cq, 0), Ok(0));
        assert_eq!(cq.queued(), 1);
        assert_eq!(read(&mut cq, 9), Ok(1));
        assert_eq!(read(&mut cq, 0), Err(Errno::EAGAIN));
        Ok(())
    }

    #[test]
    fn a_silent_failure_uses_room_or_its_record() -> Result {
        let mut errors = [EMPTY_ERR; 4];
        let mut cq = cq(&mut errors)?;
        let mut record = Some(7);
        assert!(cq.push_err_recorded(&mut record, ERR_5, |_, _| ()));
        // There was room.
        assert_eq!(record, Some(7));
        let credit = cq.reserve()?;
        complete(&mut cq)?;
        complete(&mut cq)?;
        assert!(!cq.push_err_recorded(&mut None, ERR_5, |_, _| ()));
        assert_eq!((cq.errors(), cq.overruns()), (1, 0));
        let err = |err| ErrEntry { err, ..EMPTY_ERR };
        assert!(cq.push_err_recorded(&mut record, err(6), |_, _| ()));
        assert_eq!(record, None);
        assert!(cq.push_err_recorded(&mut Some(8), err(7), |_, _| ()));
        // The room of the credit was not taken.
        cq.push_err(credit, err(8), |_, _| ());
        assert!(cq.push_err_recorded(&mut Some(9), err(9), |_, _| ()));
        assert_eq!((cq.queued(), cq.errors(), cq.reserved()), (2, 5, 0));
        // Error entries are read in order, wherever they are stored.
        assert_eq!(cq.peek_err(), Ok(ERR_5));
        assert_eq!(cq.read_err(), Ok((ERR_5, None)));
        assert_eq!(cq.peek_err(), Ok(err(6)));
        assert_eq!(cq.read_err(), Ok((err(6), Some(7))));
        assert_eq!(cq.read_err(), Ok((err(7), Some(8))));
        assert_eq!(read(&mut cq, 1), Err(Errno::KFI_EAVAIL));
        assert_eq!(cq.read_err(), Ok((err(8), None)));
        assert_eq!(cq.more(9).count(), 0);
        // Entries in records take no room.
        let credits = (cq.reserve()?, cq.reserve()?);
        assert_eq!(cq.reserve().map(|_| ()), Err(Errno::EAGAIN));
        assert!(cq.ready());
        assert_eq!(cq.read_err(), Ok((err(9), Some(9))));
        assert_eq!(cq.read_err(), Err(Errno::EAGAIN));
        assert_eq!(read(&mut cq, 9), Ok(2));
        assert!(!cq.ready());
        cq.release(credits.0);
        cq.release(credits.1);
        Ok(())
    }

    #[test]
    fn a_silent_failure_wakes_all_sleepers() -> Result {
        use Woken::Ready;
        let mut errors = [EMPTY_ERR; 4];
        let mut cq = cq(&mut errors)?;
        let _credits = (cq.reserve()?, cq.reserve()?, cq.reserve()?, cq.reserve()?);
        assert!(matches!(arm(&mut cq, 3, 3), Armed::Waiting(_)));
        assert!(matches!(arm(&mut cq, 1, 1), Armed::Waiting(_)));
        let mut log = Log::new();
        let wake = |name, why| log.push((name, why));
        assert!(cq.push_err_recorded(&mut Some(7), ERR_5, wake));
        assert_eq!(log, Log::of(&[(1, Ready), (3, Ready)]));
        Ok(())
    }

    #[test]
    fn a_callback_is_armed_until_its_condition_holds() -> Result {
        use CallbackCondition::{
            Next,
            Ready, //
        };
        let mut errors = [EMPTY_ERR; 4];
        let mut cq = cq(&mut errors)?;
        assert!(matches!(cq.arm_callback(Ready(2), 2), Armed::Waiting(_)));
        assert!(matches!(cq.arm_callback(Next, 9), Armed::Waiting(_)));
        assert_eq!(cq.sleepers(), 2);
        assert_eq!(complete(&mut cq)?, Log::of(&[(9, Woken::Ready)]));
        // The entry that is queued counts for a number, and not as the next one.
        assert_eq!(cq.arm_callback(Ready(0), 1), Armed::Ready(1));
        assert!(matches!(cq.arm_callback(Next, 9), Armed::Waiting(_)));
        let both = Log::of(&[(9, Woken::Ready), (2, Woken::Ready)]);
        assert_eq!(complete(&mut cq)?, both);
        assert_eq!(complete(&mut cq)?, Log::of(&[]));
        assert_eq!(read(&mut cq, 9), Ok(3));
        // An error entry is a reason to call both.
        let Armed::Waiting(key) = cq.arm_callback(Ready(1), 1) else {
            return Err(Errno::EINVAL);
        };
        assert!(matches!(cq.arm_callback(Ready(4), 4), Armed::Waiting(_)));
        assert!(matches!(cq.arm_callback(Next, 9), Armed::Waiting(_)));
        assert_eq!(cq.disarm(&key), Some(1));
        let both = Log::of(&[(9, Woken::Ready), (4, Woken::Ready)]);
        assert_eq!(fail(&mut cq)?, both);
        Ok(())
    }

    #[test]
    fn a_signal_calls_callbacks_and_is_kept_for_a_thread() -> Result {
        use CallbackCondition::Next;
        let mut errors = [EMPTY_ERR; 4];
        let mut cq = cq(&mut errors)?;
        assert!(matches!(cq.arm_callback(Next, 9), Armed::Waiting(_)));
        let mut log = Log::new();
        cq.signal(|name, why| log.push((name, why)));
        assert_eq!(log, Log::of(&[(9, Woken::Signalled)]));
        // A callback neither takes nor prevents the signal of a thread.
        assert!(matches!(cq.arm_callback(Next, 9), Armed::Waiting(_)));
        assert_eq!(arm(&mut cq, 1, 1), Armed::Signalled(1));
        Ok(())
    }

    #[test]
    fn a_read_that_has_copied_entries_ends_with_their_number() -> Result {
        let mut errors = [EMPTY_ERR; 4];
        let mut cq = cq(&mut errors)?;
        complete(&mut cq)?;
        complete(&mut cq)?;
        assert_eq!(read(&mut cq, 1), Ok(1));
        assert_eq!(cq.more(5).count(), 1);
        fail(&mut cq)?;
        assert_eq!(cq.more(5).count(), 0);
        assert_eq!(cq.read_err(), Ok((ERR_5, None)));
        assert_eq!(cq.more(5).count(), 1);
        assert_eq!(read(&mut cq, 1), Ok(1));
        assert_eq!(cq.more(5).count(), 0);
        Ok(())
    }

    #[test]
    fn an_overrun_is_counted_and_reported_once_after_the_entries() -> Result {
        let mut errors = [EMPTY_ERR; 4];
        let mut cq = cq(&mut errors)?;
        let credit = cq.reserve()?;
        for _ in 0..3 {
            assert_eq!(cq.push_uncredited(|_| (), |_, _| ()), Push::Queued);
        }
        assert_eq!(cq.push_uncredited(|_| (), |_, _| ()), Push::Overrun);
        assert_eq!(cq.push_err_uncredited(ERR_5, |_, _| ()), Push::Overrun);
        assert_eq!(cq.overruns(), 2);
        // The room of the credit was not taken.
        cq.push(credit, |_| (), |_, _| ());
        assert_eq!(read(&mut cq, 9), Ok(4));
        assert!(cq.ready());
        assert_eq!(cq.more(1).count(), 0);
        assert_eq!(read(&mut cq, 9), Err(Errno::KFI_EOVERRUN));
        assert_eq!(read(&mut cq, 9), Err(Errno::EAGAIN));
        assert!(!cq.ready());
        assert_eq!(cq.push_err_uncredited(ERR_5, |_, _| ()), Push::Queued);
        assert_eq!(cq.overruns(), 2);
        Ok(())
    }

    #[test]
    fn a_reader_of_the_mapped_ring_acknowledges_an_overrun() -> Result {
        let mut errors = [EMPTY_ERR; 4];
        let (head, reported) = (Plain::new(0), Plain::new(0));
        let words = Words {
            tail: &Plain::new(0),
            errors: &Plain::new(0),
            overruns: &Plain::new(0),
            head: &head,
            reported: &reported,
        };
        let mut cq = new_cq(words, 4, &mut errors[..])?;
        for _ in 0..6 {
            let _ = cq.push_uncredited(|_| (), |_, _| ());
        }
        head.store(4);
        assert!(cq.ready() && cq.holds(3));
        // The reader has reported the loss: the CQ is not ready and does not report it again.
        reported.store(2);
        assert!(!cq.ready() && !cq.holds(1));
        assert!(matches!(arm(&mut cq, 1, 1), Armed::Waiting(_)));
        assert_eq!(read(&mut cq, 1), Err(Errno::EAGAIN));
        // The next loss is a new one. It is reported to a reader by call, which counts for both.
        for _ in 0..5 {
            let _ = cq.push_uncredited(|_| (), |_, _| ());
        }
        assert_eq!(read(&mut cq, 4), Ok(4));
        assert_eq!(read(&mut cq, 1), Err(Errno::KFI_EOVERRUN));
        assert_eq!(reported.load(), 3);
        assert_eq!(read(&mut cq, 1), Err(Errno::EAGAIN));
        assert!(!cq.ready());
        Ok(())
    }

    #[test]
    fn a_reader_of_the_mapped_ring_frees_room() -> Result {
        let mut errors = [EMPTY_ERR; 4];
        let head = Plain::new(0);
        let (tail, errs, lost) = (Plain::new(0), Plain::new(0), Plain::new(0));
        let words = Words {
            tail: &tail,
            errors: &errs,
            overruns: &lost,
            head: &head,
            reported: &Plain::new(0),
        };
        let mut cq = new_cq(words, 4, &mut errors[..])?;
        for _ in 0..4 {
            assert_eq!(cq.push_uncredited(|_| (), |_, _| ()), Push::Queued);
        }
        assert_eq!(tail.load(), 4);
        assert_eq!(cq.reserve().map(|_| ()), Err(Errno::EAGAIN));
        assert_eq!(cq.push_uncredited(|_| (), |_, _| ()), Push::Overrun);
        assert_eq!(lost.load(), 1);
        head.store(3);
        let credit = cq.reserve()?;
        assert_eq!(cq.push_uncredited(|_| (), |_, _| ()), Push::Queued);
        cq.push_err(credit, ERR_5, |_, _| ());
        assert_eq!(errs.load(), 1);
        assert_eq!(cq.read_err(), Ok((ERR_5, None)));
        assert_eq!(errs.load(), 0);
        assert_eq!(cq.queued(), 2);
        Ok(())
    }

    #[test]
    fn an_invalid_head_fails_reads_by_call() -> Result {
        let mut errors = [EMPTY_ERR; 4];
        let head = Plain::new(0);
        let words = Words {
            tail: &Plain::new(0),
            errors: &Plain::new(0),
            overruns: &Plain::new(0),
            head: &head,
            reported: &Plain::new(0),
        };
        let mut cq = new_cq(words, 4, &mut errors[..])?;
        for _ in 0..4 {
            assert_eq!(cq.push_uncredited(|_| (), |_, _| ()), Push::Queued);
        }
        head.store(5);
        assert_eq!(cq.peek(1), Err(Errno::EIO));
        assert_eq!(cq.more(1).count(), 0);
        assert!(cq.ready());
        assert_eq!(cq.reserve().map(|_| ()), Err(Errno::EAGAIN));
        assert_eq!(cq.push_err_uncredited(ERR_5, |_, _| ()), Push::Overrun);
        head.store(4);
        assert_eq!(cq.peek(1), Err(Errno::KFI_EOVERRUN));
        head.store(u64::MAX);
        assert_eq!(arm(&mut cq, 1, 1), Armed::Ready(1));
        Ok(())
    }

    #[test]
    fn sleepers_wait_for_their_number_of_entries() -> Result {
        use Woken::Ready;
        let mut errors = [EMPTY_ERR; 4];
        let mut cq = cq(&mut errors)?;
        assert!(matches!(arm(&mut cq, 2, 2), Armed::Waiting(_)));
        assert!(matches!(arm(&mut cq, 0, 1), Armed::Waiting(_)));
        assert!(matches!(arm(&mut cq, 3, 3), Armed::Waiting(_)));
        // A number above the size counts as the size.
        assert!(matches!(arm(&mut cq, u64::MAX, 4), Armed::Waiting(_)));
        assert_eq!(complete(&mut cq)?, Log::of(&[(1, Ready)]));
        assert_eq!(read(&mut cq, 1), Ok(1));
        assert_eq!(complete(&mut cq)?, Log::of(&[]));
        assert_eq!(arm(&mut cq, 1, 8), Armed::Ready(8));
        assert_eq!(complete(&mut cq)?, Log::of(&[(2, Ready)]));
        assert_eq!(cq.sleepers(), 2);
        assert_eq!(complete(&mut cq)?, Log::of(&[(3, Ready)]));
        assert_eq!(complete(&mut cq)?, Log::of(&[(4, Ready)]));
        Ok(())
    }

    #[test]
    fn errors_and_overruns_wake_everybody() -> Result {
        use Woken::Ready;
        let mut errors = [EMPTY_ERR; 4];
        let mut cq = cq(&mut errors)?;
        assert!(matches!(arm(&mut cq, 3, 3), Armed::Waiting(_)));
        assert!(matches!(arm(&mut cq, 1, 1), Armed::Waiting(_)));
        assert_eq!(fail(&mut cq)?, Log::of(&[(1, Ready), (3, Ready)]));
        assert_eq!(arm(&mut cq, 3, 3), Armed::Ready(3));
        assert_eq!(cq.read_err(), Ok((ERR_5, None)));
        let credits = (cq.reserve()?, cq.reserve()?, cq.reserve()?, cq.reserve()?);
        assert!(matches!(arm(&mut cq, 3, 3), Armed::Waiting(_)));
        let mut log = Log::new();
        assert_eq!(
            cq.push_uncredited(|_| (), |name, why| log.push((name, why))),
            Push::Overrun
        );
        assert_eq!(log, Log::of(&[(3, Ready)]));
        assert_eq!(arm(&mut cq, 3, 3), Armed::Ready(3));
        cq.release(credits.0);
        Ok(())
    }

    #[test]
    fn a_signal_releases_every_thread_inside() -> Result {
        use Woken::Signalled;
        let mut errors = [EMPTY_ERR; 4];
        let mut cq = cq(&mut errors)?;
        let mut log = Log::new();
        let (asleep, queued, late) = (cq.enter(), cq.enter(), cq.enter());
        assert!(matches!(cq.arm(&asleep, 3, 3), Armed::Waiting(_)));
        cq.signal(|name, why| log.push((name, why)));
        assert_eq!(log, Log::of(&[(3, Signalled)]));
        // These threads were inside and not asleep; it does not matter when they arm.
        assert_eq!(cq.arm(&queued, 1, 1), Armed::Signalled(1));
        cq.leave(asleep);
        cq.leave(queued);
        // A thread that enters now was not inside, and no signal was kept for it.
        let new = cq.enter();
        assert!(matches!(cq.arm(&new, 1, 4), Armed::Waiting(_)));
        assert_eq!(cq.arm(&late, 1, 2), Armed::Signalled(2));
        cq.leave(late);
        assert_eq!(complete(&mut cq)?, Log::of(&[(4, Woken::Ready)]));
        assert_eq!(read(&mut cq, 1), Ok(1));
        // Another reader was faster: the thread is still inside and was not signalled.
        assert!(matches!(cq.arm(&new, 1, 4), Armed::Waiting(_)));
        assert_eq!(cq.sleepers(), 1);
        cq.leave(new);
        Ok(())
    }

    #[test]
    fn a_signal_reaches_a_thread_that_is_between_two_sleeps() -> Result {
        let mut errors = [EMPTY_ERR; 4];
        let mut cq = cq(&mut errors)?;
        let inside = cq.enter();
        assert!(matches!(cq.arm(&inside, 1, 1), Armed::Waiting(_)));
        assert_eq!(complete(&mut cq)?, Log::of(&[(1, Woken::Ready)]));
        // The thread is woken, another one takes the entry, a signal comes, and then the thread
        // looks again.
        assert_eq!(read(&mut cq, 1), Ok(1));
        cq.signal(|_, _| ());
        assert_eq!(cq.arm(&inside, 1, 1), Armed::Signalled(1));
        // The same holds for a thread whose wait was interrupted by a signal of the system.
        let number = inside.number();
        assert_ne!(number, 0);
        cq.leave(inside);
        let inside = cq.enter_again(number);
        assert_eq!(cq.arm(&inside, 1, 1), Armed::Signalled(1));
        cq.leave(inside);
        Ok(())
    }

    #[test]
    fn a_signal_without_a_thread_inside_is_kept_for_one() -> Result {
        let mut errors = [EMPTY_ERR; 4];
        let mut cq = cq(&mut errors)?;
        cq.signal(|_, _| ());
        cq.signal(|_, _| ());
        complete(&mut cq)?;
        // The signal is kept, but not consumed by a read that finds an entry.
        assert_eq!(arm(&mut cq, 1, 1), Armed::Ready(1));
        assert_eq!(read(&mut cq, 1), Ok(1));
        assert!(!cq.ready());
        assert_eq!(arm(&mut cq, 1, 1), Armed::Signalled(1));
        assert!(matches!(arm(&mut cq, 1, 1), Armed::Waiting(_)));
        // A thread is inside: it is released, and no signal is kept.
        let mut log = Log::new();
        cq.signal(|name, why| log.push((name, why)));
        assert_eq!(log, Log::of(&[(1, Woken::Signalled)]));
        assert!(matches!(arm(&mut cq, 1, 2), Armed::Waiting(_)));
        Ok(())
    }

    #[test]
    fn a_thread_that_leaves_is_not_woken() -> Result {
        let mut errors = [EMPTY_ERR; 4];
        let mut cq = cq(&mut errors)?;
        let inside = cq.enter();
        if let Armed::Waiting(key) = cq.arm(&inside, 2, 2) {
            assert_eq!(cq.disarm(&key), Some(2));
            assert_eq!(cq.disarm(&key), None);
        }
        cq.leave(inside);
        // No thread is inside any more.
        cq.signal(|_, _| panic!("no thread sleeps"));
        assert_eq!(arm(&mut cq, 1, 1), Armed::Signalled(1));
        Ok(())
    }

    #[test]
    fn closing_by_force_releases_all() -> Result {
        let mut errors = [EMPTY_ERR; 4];
        let mut cq = cq(&mut errors)?;
        assert!(!cq.holds(0));
        assert!(matches!(arm(&mut cq, 2, 2), Armed::Waiting(_)));
        assert!(matches!(arm(&mut cq, 1, 1), Armed::Waiting(_)));
        let mut gone = Log::new();
        cq.release_all(|name| gone.push(name));
        assert_eq!(gone, Log::of(&[1, 2]));
        assert_eq!(cq.sleepers(), 0);
        complete(&mut cq)?;
        assert!(cq.holds(0) && cq.holds(1) && !cq.holds(2));
        for _ in 0..3 {
            complete(&mut cq)?;
        }
        assert!(cq.holds(u64::MAX));
        Ok(())
    }
}
