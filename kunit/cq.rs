// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_cq`: completion queues with the real scheduler, clock and shared pages.
//!
//! The core crate tests the order of results, credits and overruns against a model. These tests
//! cover the integration, the memory and the wake-ups. Guest scenarios test signals, poll(2) and
//! mappings.

use super::{
    queue::Queue,
    Cq,
    CqAttr,
    Sink, //
};
use crate::{
    kunit::{
        fixture::{
            a_while,
            eventually,
            ident,
            soon,
            wait_obj,
            within,
            Count,
            TestDomain,
            LONG,
            MS, //
        },
        helpers::{
            self,
            Join, //
        }, //
    },
    provider::{
        object::{
            close,
            force_close, //
        },
        wait::{
            Readable,
            WaitObj,
            WaitSet, //
        }, //
    },
    shim::{
        bindings::kfabric_cq_ring,
        errno::to_error,
        sched::now_ns, //
    }, //
};
use core::mem::offset_of;
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full, //
        },
        Arc, //
    }, //
};
use kfi_core::{
    cq::{
        Credit,
        Entry,
        ErrEntry,
        Format,
        Push, //
    },
    enums,
    errno::Errno,
    wait::Deadline,
    word::Word, //
};

pub(super) fn queue(size: u32) -> Result<Arc<Queue>> {
    Arc::pin_init(Queue::new(size, Format::Context, true, None)?, GFP_KERNEL)
}

fn avail() -> Error {
    to_error(Errno::KFI_EAVAIL)
}

/// Returns a completion with the context `n`.
fn entry(n: u64) -> Entry {
    Entry {
        op_context: n,
        flags: n + 1,
        len: n + 2,
        buf: n + 3,
        data: n + 4,
        tag: n + 5,
        src_addr: n + 6,
        reserved: 0,
    }
}

/// Returns an error entry with the context `n`.
pub(super) fn error(n: u64) -> ErrEntry {
    ErrEntry {
        op_context: n,
        err: 5,
        ..ErrEntry::default()
    }
}

fn push(queue: &Queue, n: u64) -> Result {
    queue.push(queue.reserve()?, &entry(n));
    Ok(())
}

fn push_err(queue: &Queue, n: u64) -> Result {
    queue.push_err(queue.reserve()?, &error(n));
    Ok(())
}

/// Returns the context in the words of an entry.
fn context(words: &[u64]) -> u64 {
    words.first().copied().unwrap_or(u64::MAX)
}

/// Returns a sink that adds up contexts.
fn sum(total: &mut u64) -> impl FnMut(&[u64], u64) -> Result + '_ {
    |words: &[u64], _: u64| {
        *total += context(words);
        Ok(())
    }
}

/// A sink whose memory is not present at first, and cannot be brought in before `go_on`.
struct Slow {
    stalled: Arc<Count>,
    go_on: Arc<Count>,
    taken: u32,
}

impl Sink for Slow {
    fn take(&mut self, _words: &[u64], _source: u64) -> Result {
        if self.stalled.get() == 0 {
            return Err(EFAULT);
        }
        self.taken += 1;
        Ok(())
    }

    fn fault_in(&mut self) -> Result {
        self.stalled.add(1);
        if eventually(|| self.go_on.get() == 1) {
            Ok(())
        } else {
            Err(ETIMEDOUT)
        }
    }
}

fn ignore(_words: &[u64], _source: u64) -> Result {
    Ok(())
}

/// Waits for `want` entries, and reads at most `count`.
fn sread(queue: &Queue, count: usize, want: u32, deadline: Deadline) -> Result<usize> {
    queue.sread(count, want, deadline, &mut 0, ignore)
}

/// Reads an error entry. Returns its context.
pub(super) fn readerr(queue: &Queue) -> Result<u64> {
    let mut context = 0;
    queue.readerr(
        |error| {
            context = error.op_context;
            Ok(())
        },
        || Err(EFAULT),
    )?;
    Ok(context)
}

fn waiting(queue: &Queue) -> u32 {
    queue.lock().sleepers()
}

fn inside(queue: &Queue) -> u32 {
    queue.lock().inside()
}

/// Returns the word of the ring's page at `offset`.
fn word(queue: &Queue, offset: usize) -> Result<impl Word> {
    queue.ring().word(offset).ok_or(EINVAL)
}

/// Runs `run` with `queue` in a thread, and counts if it returns true.
fn count_if(
    queue: &Arc<Queue>,
    count: &Arc<Count>,
    run: impl FnOnce(&Queue) -> bool + Send + 'static,
) -> Result<Join> {
    let queue = queue.clone();
    helpers::count_if(count, move || run(&queue))
}

#[kunit_tests(kfabric_cq)]
mod tests {
    use super::*;

    #[test]
    fn each_format_is_the_beginning_of_the_entry() -> Result {
        for (format, size) in [
            (Format::Context, 8),
            (Format::Msg, 24),
            (Format::Data, 40),
            (Format::Tagged, 48),
        ] {
            let queue = Arc::pin_init(Queue::new(4, format, false, None)?, GFP_KERNEL)?;
            push(&queue, 100)?;
            let mut right = false;
            let read = queue.read(1, |words: &[u64], source: u64| {
                right = size_of_val(words) == size
                    && source == 106
                    && words.iter().zip(100..).all(|(word, value)| *word == value);
                Ok(())
            });
            assert_eq!(read, Ok(1));
            assert!(right);
        }
        Ok(())
    }

    #[test]
    fn the_ring_has_the_layout_of_the_abi() -> Result {
        let queue = queue(5)?;
        assert_eq!(queue.size(), 8);
        let mut at = [0; 4];
        queue
            .ring()
            .read_bytes(offset_of!(kfabric_cq_ring, entries), &mut at)?;
        assert_eq!(u32::from_ne_bytes(at), 8);
        queue
            .ring()
            .read_bytes(offset_of!(kfabric_cq_ring, entry_offset), &mut at)?;
        let first = u32::from_ne_bytes(at) as usize;
        assert!(first >= size_of::<kfabric_cq_ring>());
        assert!(queue.ring().size() >= first + 8 * 64);
        push(&queue, 1)?;
        push(&queue, 10)?;
        let mut second = [0; 8];
        queue.ring().read_bytes(first + 64 + 16, &mut second)?;
        assert_eq!(u64::from_ne_bytes(second), 12);
        assert_eq!(word(&queue, offset_of!(kfabric_cq_ring, tail))?.load(), 2);
        push_err(&queue, 3)?;
        assert_eq!(word(&queue, offset_of!(kfabric_cq_ring, errors))?.load(), 1);
        assert_eq!(readerr(&queue), Ok(3));
        assert_eq!(word(&queue, offset_of!(kfabric_cq_ring, errors))?.load(), 0);
        assert_eq!(queue.read(8, ignore), Ok(2));
        assert_eq!(word(&queue, offset_of!(kfabric_cq_ring, head))?.load(), 2);
        Ok(())
    }

    #[test]
    fn attributes_are_checked() -> Result {
        assert_eq!(queue(0)?.size(), 1);
        assert_eq!(queue(1)?.size(), 1);
        assert_eq!(queue(1000)?.size(), 1024);
        assert!(Queue::new(u32::MAX, Format::Context, true, None).is_err());
        let attr = |entries, format, cond| {
            let wait = wait_obj(enums::WaitObj::None)?;
            CqAttr::new(entries, format, wait, cond).map(|attr| attr.entries)
        };
        assert_eq!(attr(0, 0, 0), Ok(1024));
        assert_eq!(attr(65_536, 4, 1), Ok(65_536));
        assert_eq!(attr(65_537, 0, 0), Err(EINVAL));
        assert_eq!(attr(1, 5, 0), Err(EINVAL));
        // The condition is ignored with this wait object.
        assert_eq!(attr(1, 0, 2), Ok(1));
        let unspec = wait_obj(enums::WaitObj::Unspec)?;
        assert_eq!(CqAttr::new(1, 0, unspec, 2).err(), Some(EINVAL));
        Ok(())
    }

    #[test]
    fn credits_reserve_room() -> Result {
        let queue = queue(4)?;
        let mut credits = KVec::new();
        for _ in 0..4 {
            credits.push(queue.reserve()?, GFP_KERNEL)?;
        }
        assert_eq!(queue.reserve().err(), Some(EAGAIN));
        assert_eq!(queue.push_unposted(&entry(1)), Push::Overrun);
        let mut next = || -> Result<Credit> { credits.pop().ok_or(ENOENT) };
        queue.push(next()?, &entry(1));
        queue.push_err(next()?, &error(2));
        assert_eq!(queue.reserve().err(), Some(EAGAIN));
        queue.unreserve(next()?);
        let credit = queue.reserve()?;
        assert_eq!(queue.reserve().err(), Some(EAGAIN));
        assert_eq!(queue.read(4, ignore), Err(avail()));
        assert_eq!(readerr(&queue), Ok(2));
        assert_eq!(queue.read(4, ignore), Ok(1));
        // Completions were lost before; the loss is reported once after the entries.
        assert_eq!(queue.read(4, ignore), Err(to_error(Errno::KFI_EOVERRUN)));
        assert_eq!(queue.read(4, ignore), Err(EAGAIN));
        queue.unreserve(credit);
        queue.unreserve(next()?);
        for _ in 0..4 {
            push(&queue, 1)?;
        }
        assert_eq!(queue.reserve().err(), Some(EAGAIN));
        Ok(())
    }

    #[test]
    fn entries_that_cannot_be_copied_are_not_consumed() -> Result {
        let queue = queue(256)?;
        for n in 0..200 {
            push(&queue, n)?;
        }
        assert_eq!(
            queue.read(200, |_: &[u64], _: u64| Err(EFAULT)),
            Err(EFAULT)
        );
        // The first entry that cannot be copied ends the read, in any chunk.
        let mut next = 0;
        for stop in [1, 64, 130, 131] {
            let read = queue.read(200, |words: &[u64], _: u64| {
                assert_eq!(context(words), next);
                if next == stop {
                    return Err(EFAULT);
                }
                next += 1;
                Ok(())
            });
            let read = read?;
            assert_eq!(next, stop);
            assert!(read > 0);
        }
        assert_eq!(queue.read(1000, ignore), Ok(200 - 131));
        push_err(&queue, 9)?;
        assert_eq!(queue.readerr(|_| Err(EFAULT), || Err(EFAULT)), Err(EFAULT));
        assert_eq!(readerr(&queue), Ok(9));
        assert_eq!(readerr(&queue), Err(EAGAIN));
        Ok(())
    }

    #[test]
    fn a_read_returns_at_most_the_requested_number() -> Result {
        let queue = queue(256)?;
        assert_eq!(queue.read(0, ignore), Err(EAGAIN));
        for n in 0..100 {
            push(&queue, n)?;
        }
        assert_eq!(queue.read(0, ignore), Ok(0));
        assert_eq!(queue.read(64, ignore), Ok(64));
        assert_eq!(queue.read(1, ignore), Ok(1));
        assert_eq!(queue.read(usize::MAX, ignore), Ok(35));
        assert_eq!(queue.read(1, ignore), Err(EAGAIN));
        Ok(())
    }

    #[test]
    fn an_error_during_a_read_is_reported_by_the_next() -> Result {
        let queue = queue(256)?;
        for n in 0..100 {
            push(&queue, n)?;
        }
        // The error comes while the first chunk is being copied.
        let read = queue.read(100, |words: &[u64], _: u64| {
            if context(words) == 5 {
                push_err(&queue, 1)?;
            }
            Ok(())
        })?;
        assert!(read > 5 && read < 100);
        assert_eq!(queue.read(100, ignore), Err(avail()));
        assert_eq!(readerr(&queue), Ok(1));
        assert_eq!(queue.read(100, ignore), Ok(100 - read));
        Ok(())
    }

    #[test]
    fn a_read_ends_at_its_deadline() -> Result {
        let queue = queue(8)?;
        assert_eq!(sread(&queue, 1, 0, Deadline::Poll), Err(EAGAIN));
        assert_eq!(sread(&queue, 1, 0, Deadline::At(1)), Err(ETIMEDOUT));
        let end = now_ns() + 20 * MS;
        assert_eq!(sread(&queue, 1, 0, Deadline::At(end)), Err(ETIMEDOUT));
        assert!(now_ns() >= end);
        assert_eq!(waiting(&queue), 0);
        // With fewer entries than wanted, the read returns those at the deadline.
        push(&queue, 1)?;
        push(&queue, 2)?;
        let end = now_ns() + 20 * MS;
        assert_eq!(sread(&queue, 8, 3, Deadline::At(end)), Ok(2));
        assert!(now_ns() >= end);
        // With as many as wanted, the read returns immediately, limited to the room of the caller.
        push(&queue, 1)?;
        push(&queue, 2)?;
        assert_eq!(sread(&queue, 1, 2, Deadline::Forever), Ok(1));
        assert_eq!(sread(&queue, 1, 1, Deadline::Forever), Ok(1));
        Ok(())
    }

    #[test]
    fn sleepers_are_woken_when_their_number_is_reached() -> Result {
        let queue = queue(16)?;
        let woken = Count::new()?;
        let mut threads = KVec::new();
        for want in [3, 1, 2, 2, 100] {
            // These threads only wait; they take no entry.
            let thread = count_if(&queue, &woken, move |queue| {
                sread(queue, 0, want, soon()) == Ok(0)
            })?;
            threads.push(thread, GFP_KERNEL)?;
        }
        assert!(eventually(|| waiting(&queue) == 5));
        // When the push returns, exactly the sleepers whose number is reached have been removed.
        for (n, left) in [(1, 4), (2, 2), (3, 1)] {
            push(&queue, n)?;
            assert_eq!(waiting(&queue), left);
            assert!(eventually(|| woken.get() == 5 - left));
        }
        // A number above the size counts as the size.
        for n in 3..15 {
            push(&queue, n)?;
            assert_eq!(waiting(&queue), 1);
        }
        push(&queue, 15)?;
        assert_eq!(waiting(&queue), 0);
        drop(threads);
        assert_eq!(woken.get(), 5);
        assert_eq!(queue.read(100, ignore), Ok(16));
        Ok(())
    }

    #[test]
    fn errors_and_overruns_wake_all_sleepers() -> Result {
        let queue = queue(2)?;
        let woken = Count::new()?;
        let mut threads = KVec::new();
        for want in [1, 2] {
            let thread = count_if(&queue, &woken, move |queue| {
                sread(queue, 1, want, soon()) == Err(avail())
            })?;
            threads.push(thread, GFP_KERNEL)?;
        }
        assert!(eventually(|| waiting(&queue) == 2));
        push_err(&queue, 1)?;
        assert_eq!(waiting(&queue), 0);
        threads.clear();
        assert_eq!(woken.get(), 2);
        assert_eq!(readerr(&queue), Ok(1));

        let (one, two) = (queue.reserve()?, queue.reserve()?);
        let thread = count_if(&queue, &woken, |queue| {
            sread(queue, 1, 2, soon()) == Err(to_error(Errno::KFI_EOVERRUN))
        })?;
        assert!(eventually(|| waiting(&queue) == 1));
        assert_eq!(queue.push_err_unposted(&error(1)), Push::Overrun);
        thread.join();
        assert_eq!(woken.get(), 3);
        queue.unreserve(one);
        queue.unreserve(two);
        Ok(())
    }

    #[test]
    fn a_signal_ends_waits() -> Result {
        let queue = queue(8)?;
        let ended = Count::new()?;
        let mut threads = KVec::new();
        for want in [1, 5] {
            let thread = count_if(&queue, &ended, move |queue| {
                sread(queue, 1, want, soon()) == Err(EAGAIN)
            })?;
            threads.push(thread, GFP_KERNEL)?;
        }
        assert!(eventually(|| waiting(&queue) == 2));
        queue.signal();
        threads.clear();
        assert_eq!(ended.get(), 2);
        // No thread sleeps: one signal is kept for the next thread that would.
        queue.signal();
        queue.signal();
        assert_eq!(sread(&queue, 1, 0, Deadline::Poll), Err(EAGAIN));
        assert_eq!(sread(&queue, 1, 0, Deadline::Forever), Err(EAGAIN));
        assert_eq!(sread(&queue, 1, 0, within(20)), Err(ETIMEDOUT));
        // With a kept signal the read takes the entries that are there.
        queue.signal();
        push(&queue, 1)?;
        assert_eq!(sread(&queue, 8, 5, Deadline::Forever), Ok(1));
        Ok(())
    }

    /// fi_cq(3): the call unblocks any thread waiting in a blocking read. One thread sleeps for its
    /// number of completions, so the signal is not kept. Another thread found a completion and
    /// waits for the reader that is about to take it. It must not sleep afterwards.
    #[test]
    fn a_signal_reaches_a_thread_that_is_not_asleep_yet() -> Result {
        let queue = queue(8)?;
        let (ended, stalled, go_on) = (Count::new()?, Count::new()?, Count::new()?);
        push(&queue, 1)?;
        let reader = {
            let (stalled, go_on) = (stalled.clone(), go_on.clone());
            count_if(&queue, &ended, move |queue| {
                let read = queue.read(1, |_: &[u64], _: u64| {
                    stalled.add(1);
                    eventually(|| go_on.get() == 1);
                    Ok(())
                });
                read == Ok(1)
            })?
        };
        assert!(eventually(|| stalled.get() == 1));
        let asleep = count_if(&queue, &ended, |queue| {
            sread(queue, 1, 5, soon()) == Err(EAGAIN)
        })?;
        assert!(eventually(|| waiting(&queue) == 1));
        let waiter = count_if(&queue, &ended, |queue| {
            sread(queue, 1, 1, soon()) == Err(EAGAIN)
        })?;
        assert!(eventually(|| inside(&queue) == 2));
        a_while();
        assert_eq!((waiting(&queue), inside(&queue)), (1, 2));
        let begin = now_ns();
        queue.signal();
        go_on.add(1);
        reader.join();
        asleep.join();
        waiter.join();
        assert_eq!(ended.get(), 3);
        // The thread did not sleep until its deadline.
        assert!(now_ns() - begin < LONG / 2);
        Ok(())
    }

    /// A reader waits for the memory of its program, as in a long page fault; other readers
    /// continue.
    #[test]
    fn a_reader_that_waits_for_memory_delays_no_other() -> Result {
        let queue = queue(8)?;
        let (ended, stalled, go_on) = (Count::new()?, Count::new()?, Count::new()?);
        push(&queue, 1)?;
        push(&queue, 2)?;
        let reader = {
            let slow = Slow {
                stalled: stalled.clone(),
                go_on: go_on.clone(),
                taken: 0,
            };
            count_if(&queue, &ended, move |queue| queue.read(2, slow) == Ok(1))?
        };
        assert!(eventually(|| stalled.get() == 1));
        // The reader has not taken an entry yet.
        assert_eq!(sread(&queue, 1, 5, within(20)), Ok(1));
        push_err(&queue, 9)?;
        assert_eq!(readerr(&queue), Ok(9));
        assert_eq!(queue.read(0, ignore), Ok(0));
        go_on.add(1);
        reader.join();
        assert_eq!(ended.get(), 1);
        assert_eq!(queue.read(1, ignore), Err(EAGAIN));
        // The same with an error entry.
        push_err(&queue, 5)?;
        let mut tries = 0;
        let result = queue.readerr(
            |_| {
                tries += 1;
                if tries == 1 {
                    Err(EFAULT)
                } else {
                    Ok(())
                }
            },
            || {
                // Another reader takes the error entry in the meantime.
                assert_eq!(readerr(&queue), Ok(5));
                push_err(&queue, 6)
            },
        );
        assert_eq!(result, Ok(()));
        assert_eq!(tries, 2);
        assert_eq!(readerr(&queue), Err(EAGAIN));
        Ok(())
    }

    #[test]
    fn a_reader_that_comes_too_late_sleeps_again() -> Result {
        let queue = queue(8)?;
        let got = Count::new()?;
        let mut threads = KVec::new();
        for _ in 0..3 {
            let thread = count_if(&queue, &got, |queue| sread(queue, 1, 1, soon()) == Ok(1))?;
            threads.push(thread, GFP_KERNEL)?;
        }
        assert!(eventually(|| waiting(&queue) == 3));
        for n in 1..=3 {
            push(&queue, 1)?;
            assert!(eventually(|| got.get() == n && waiting(&queue) == 3 - n));
            a_while();
            assert_eq!(got.get(), n);
        }
        Ok(())
    }

    #[test]
    fn closing_by_force_wakes_all_and_refuses_sleepers() -> Result {
        let queue = queue(8)?;
        let closed = Count::new()?;
        let mut threads = KVec::new();
        for want in [1, 3] {
            let thread = count_if(&queue, &closed, move |queue| {
                sread(queue, 1, want, soon()) == Err(EBADF)
            })?;
            threads.push(thread, GFP_KERNEL)?;
        }
        assert!(eventually(|| waiting(&queue) == 2));
        queue.close();
        threads.clear();
        assert_eq!(closed.get(), 2);
        assert_eq!(sread(&queue, 1, 1, Deadline::Forever), Err(EBADF));
        Ok(())
    }

    #[test]
    fn a_program_frees_room_through_the_ring() -> Result {
        let queue = queue(4)?;
        let head = word(&queue, offset_of!(kfabric_cq_ring, head))?;
        for round in 0..10 {
            for n in 0..4 {
                push(&queue, n)?;
            }
            assert_eq!(queue.reserve().err(), Some(EAGAIN));
            assert!(queue.is_ready());
            head.store_release(4 * round + 3);
            let credit = queue.reserve()?;
            queue.unreserve(credit);
            assert!(queue.is_ready());
            head.store_release(4 * round + 4);
            assert!(!queue.is_ready());
            assert_eq!(queue.read(4, ignore), Err(EAGAIN));
        }
        Ok(())
    }

    #[test]
    fn an_invalid_head_harms_only_its_writer() -> Result {
        let queue = queue(4)?;
        let head = word(&queue, offset_of!(kfabric_cq_ring, head))?;
        push(&queue, 1)?;
        push(&queue, 2)?;
        assert_eq!(queue.read(1, ignore), Ok(1));
        // Heads below, above, and far from the valid range.
        for spoilt in [0, 3, 1 << 40, u64::MAX] {
            head.store(spoilt);
            assert_eq!(queue.read(1, ignore), Err(EIO));
            assert_eq!(sread(&queue, 1, 4, Deadline::Forever), Err(EIO));
            assert!(queue.is_ready());
            // Completions still arrive as long as there is room.
            for _ in 0..8 {
                if let Ok(credit) = queue.reserve() {
                    queue.push(credit, &entry(3));
                }
            }
            let stats = queue.stats();
            let queued = stats.get(1).copied();
            assert_eq!(queued, Some(4));
            // The program writes a valid head again, and all entries are there.
            let tail = word(&queue, offset_of!(kfabric_cq_ring, tail))?.load();
            head.store(tail - 4);
            assert_eq!(queue.read(3, ignore), Ok(3));
        }
        Ok(())
    }

    #[test]
    fn many_readers_lose_no_completion() -> Result {
        const PRODUCERS: u64 = 2;
        const EACH: u64 = 5000;
        const ALL: u64 = PRODUCERS * EACH;
        let queue = queue(32)?;
        let taken = Arc::new(Atomic::new(0u64), GFP_KERNEL)?;
        let total = Arc::new(Atomic::new(0u64), GFP_KERNEL)?;
        let good = Count::new()?;
        let mut threads = KVec::new();
        for producer in 0..PRODUCERS {
            let thread = count_if(&queue, &good, move |queue| {
                let end = now_ns() + 20_000_000_000;
                let mut n = producer;
                while n < ALL && now_ns() < end {
                    if push(queue, n).is_ok() {
                        n += PRODUCERS;
                    } else {
                        crate::shim::sched::cond_resched();
                    }
                }
                n >= ALL
            })?;
            threads.push(thread, GFP_KERNEL)?;
        }
        for want in [1, 1, 7] {
            let (taken, total) = (taken.clone(), total.clone());
            let thread = count_if(&queue, &good, move |queue| loop {
                let mut contexts = 0;
                match queue.sread(5, want, soon(), &mut 0, sum(&mut contexts)) {
                    Ok(n) => {
                        total.fetch_add(contexts, Full);
                        if taken.fetch_add(n as u64, Full) + n as u64 == ALL {
                            // The other threads sleep, or will.
                            queue.close();
                            return true;
                        }
                    }
                    Err(error) => return error == EBADF,
                }
            })?;
            threads.push(thread, GFP_KERNEL)?;
        }
        // The thread that wants many entries may sleep while few are left; the others take them.
        drop(threads);
        assert_eq!(good.get(), 5);
        assert_eq!(taken.load(Acquire), ALL);
        assert_eq!(total.load(Acquire), ALL * (ALL - 1) / 2);
        let stats = queue.stats();
        assert_eq!(stats, [32, 0, 0, ALL, 0, 0, 0, 0]);
        Ok(())
    }

    #[test]
    fn the_wait_object_determines_how_to_wait() -> Result {
        let test = TestDomain::open()?;
        let open = |wait, cond| {
            let attr = CqAttr::new(8, 0, wait, cond)?;
            Cq::open(&test.domain, attr, ident(3, 3)?)
        };
        let set = WaitSet::open(&test.fabric.0, ident(4, 4)?)?;
        let none = open(wait_obj(enums::WaitObj::None)?, 0)?;
        let unspec = open(wait_obj(enums::WaitObj::Unspec)?, 1)?;
        let queue = open(wait_obj(enums::WaitObj::Queue)?, 0)?;
        let member = open(
            WaitObj::new(enums::WaitObj::Set.into(), Some(set.clone()))?,
            0,
        )?;
        for cq in [&none, &member] {
            assert_eq!(cq.sread(1, 0, Deadline::At(1), &mut 0, ignore), Err(EINVAL));
            assert_eq!(cq.sread(1, 0, Deadline::Poll, &mut 0, ignore), Err(EAGAIN));
        }
        assert_eq!(none.signal(), Err(EINVAL));
        assert_eq!(
            unspec.sread(1, 2, Deadline::At(1), &mut 0, ignore),
            Err(ETIMEDOUT)
        );
        // Without the condition the number is ignored: the read does not sleep until its deadline.
        queue.push(queue.reserve()?, &entry(1));
        let begin = now_ns();
        assert_eq!(queue.sread(0, 2, soon(), &mut 0, ignore), Ok(0));
        assert!(now_ns() - begin < LONG / 2);
        assert_eq!(queue.sread(1, 2, Deadline::Poll, &mut 0, ignore), Ok(1));
        assert_eq!(
            queue.sread(1, 0, Deadline::At(1), &mut 0, ignore),
            Err(ETIMEDOUT)
        );
        assert_eq!(none.getwait().err(), Some(EINVAL));
        assert_eq!(unspec.format(), Format::Context);
        assert_eq!(unspec.entries(), 8);
        assert_eq!(unspec.strerror(0).is_empty(), false);
        assert!(unspec.strerror(257) != unspec.strerror(266));
        assert_eq!(unspec.strerror(12345), c"Unknown error");

        assert_eq!(set.wait(Deadline::Poll), Err(ETIMEDOUT));
        member.push(member.reserve()?, &entry(1));
        assert_eq!(set.wait(Deadline::Poll), Ok(()));
        member.push_err(member.reserve()?, &error(1));
        assert_eq!(set.wait(Deadline::Poll), Ok(()));
        member.push_unposted(&entry(1));
        assert_eq!(set.wait(Deadline::Poll), Ok(()));
        assert_eq!(member.signal(), Ok(()));
        assert_eq!(set.wait(Deadline::Poll), Ok(()));
        assert_eq!(set.wait(Deadline::Poll), Err(ETIMEDOUT));
        assert!(member.is_ready());

        assert_eq!(close(&*set), Err(EBUSY));
        for cq in [none, unspec, queue, member] {
            assert_eq!(close(&*cq), Ok(()));
        }
        assert_eq!(close(&*set), Ok(()));
        assert_eq!(close(&*test.domain), Ok(()));
        Ok(())
    }

    #[test]
    fn waiters_use_the_cq() -> Result {
        let test = TestDomain::open()?;
        let cq = test.cq(8, enums::WaitObj::Queue, 3)?;
        assert_eq!(close(&*test.domain), Err(EBUSY));
        let (other, refused) = (cq.clone(), Count::new()?);
        let thread = helpers::count_if(&refused, move || {
            other.sread(1, 0, soon(), &mut 0, ignore) == Err(EBADF)
        })?;
        assert!(eventually(|| waiting(&cq.queue) == 1));
        assert_eq!(close(&*cq), Err(EBUSY));
        force_close(&*cq);
        thread.join();
        assert_eq!(refused.get(), 1);
        assert_eq!(close(&*cq), Err(EBADF));
        assert_eq!(
            cq.sread(1, 0, Deadline::Forever, &mut 0, ignore),
            Err(EBADF)
        );
        assert_eq!(cq.getwait().err(), Some(EBADF));
        Ok(())
    }
}
