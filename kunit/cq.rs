// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_cq`: the entries of completion queues, their shared pages, and their wait
//! objects.
//!
//! The core crate tests the order of results, credits and overruns against a model. These tests
//! cover the integration and the memory; `cq_wait.rs` the threads that wait. Guest scenarios test
//! signals, poll(2) and mappings.

use super::{
    queue::Queue,
    Cq,
    CqAttr, //
};
use crate::{
    kunit::{
        fixture::{
            eventually,
            ident,
            soon,
            wait_obj,
            Count,
            TestDomain,
            LONG, //
        },
        helpers, //
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
    sync::Arc, //
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

pub(super) fn avail() -> Error {
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

pub(super) fn push(queue: &Queue, n: u64) -> Result {
    queue.push(queue.reserve()?, &entry(n));
    Ok(())
}

pub(super) fn push_err(queue: &Queue, n: u64) -> Result {
    queue.push_err(queue.reserve()?, &error(n));
    Ok(())
}

/// Returns the context in the words of an entry.
pub(super) fn context(words: &[u64]) -> u64 {
    words.first().copied().unwrap_or(u64::MAX)
}

pub(super) fn ignore(_words: &[u64], _source: u64) -> Result {
    Ok(())
}

/// Waits for `want` entries, and reads at most `count`.
pub(super) fn sread(queue: &Queue, count: usize, want: u32, deadline: Deadline) -> Result<usize> {
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

pub(super) fn waiting(queue: &Queue) -> u32 {
    queue.lock().sleepers()
}

/// Returns the word of the ring's page at `offset`.
fn word(queue: &Queue, offset: usize) -> Result<impl Word> {
    queue.ring().word(offset).ok_or(EINVAL)
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
            ensure_eq!(read, Ok(1));
            ensure!(right);
        }
        Ok(())
    }

    #[test]
    fn the_ring_has_the_layout_of_the_abi() -> Result {
        let queue = queue(5)?;
        ensure_eq!(queue.size(), 8);
        let mut at = [0; 4];
        queue
            .ring()
            .read_bytes(offset_of!(kfabric_cq_ring, entries), &mut at)?;
        ensure_eq!(u32::from_ne_bytes(at), 8);
        queue
            .ring()
            .read_bytes(offset_of!(kfabric_cq_ring, entry_offset), &mut at)?;
        let first = u32::from_ne_bytes(at) as usize;
        ensure!(first >= size_of::<kfabric_cq_ring>());
        ensure!(queue.ring().size() >= first + 8 * 64);
        push(&queue, 1)?;
        push(&queue, 10)?;
        let mut second = [0; 8];
        queue.ring().read_bytes(first + 64 + 16, &mut second)?;
        ensure_eq!(u64::from_ne_bytes(second), 12);
        ensure_eq!(word(&queue, offset_of!(kfabric_cq_ring, tail))?.load(), 2);
        push_err(&queue, 3)?;
        ensure_eq!(word(&queue, offset_of!(kfabric_cq_ring, errors))?.load(), 1);
        ensure_eq!(readerr(&queue), Ok(3));
        ensure_eq!(word(&queue, offset_of!(kfabric_cq_ring, errors))?.load(), 0);
        ensure_eq!(queue.read(8, ignore), Ok(2));
        ensure_eq!(word(&queue, offset_of!(kfabric_cq_ring, head))?.load(), 2);
        Ok(())
    }

    #[test]
    fn attributes_are_checked() -> Result {
        ensure_eq!(queue(0)?.size(), 1);
        ensure_eq!(queue(1)?.size(), 1);
        ensure_eq!(queue(1000)?.size(), 1024);
        ensure!(Queue::new(u32::MAX, Format::Context, true, None).is_err());
        let attr = |entries, format, cond| {
            let wait = wait_obj(enums::WaitObj::None)?;
            CqAttr::new(entries, format, wait, cond).map(|attr| attr.entries)
        };
        ensure_eq!(attr(0, 0, 0), Ok(1024));
        ensure_eq!(attr(65_536, 4, 1), Ok(65_536));
        ensure_eq!(attr(65_537, 0, 0), Err(EINVAL));
        ensure_eq!(attr(1, 5, 0), Err(EINVAL));
        // The condition is ignored with this wait object.
        ensure_eq!(attr(1, 0, 2), Ok(1));
        let unspec = wait_obj(enums::WaitObj::Unspec)?;
        ensure_eq!(CqAttr::new(1, 0, unspec, 2).err(), Some(EINVAL));
        Ok(())
    }

    #[test]
    fn credits_reserve_room() -> Result {
        let queue = queue(4)?;
        let mut credits = KVec::new();
        for _ in 0..4 {
            credits.push(queue.reserve()?, GFP_KERNEL)?;
        }
        ensure_eq!(queue.reserve().err(), Some(EAGAIN));
        ensure_eq!(queue.push_unposted(&entry(1)), Push::Overrun);
        let mut next = || -> Result<Credit> { credits.pop().ok_or(ENOENT) };
        queue.push(next()?, &entry(1));
        queue.push_err(next()?, &error(2));
        ensure_eq!(queue.reserve().err(), Some(EAGAIN));
        queue.unreserve(next()?);
        let credit = queue.reserve()?;
        ensure_eq!(queue.reserve().err(), Some(EAGAIN));
        ensure_eq!(queue.read(4, ignore), Err(avail()));
        ensure_eq!(readerr(&queue), Ok(2));
        ensure_eq!(queue.read(4, ignore), Ok(1));
        // Completions were lost before; the loss is reported once after the entries.
        ensure_eq!(queue.read(4, ignore), Err(to_error(Errno::KFI_EOVERRUN)));
        ensure_eq!(queue.read(4, ignore), Err(EAGAIN));
        queue.unreserve(credit);
        queue.unreserve(next()?);
        for _ in 0..4 {
            push(&queue, 1)?;
        }
        ensure_eq!(queue.reserve().err(), Some(EAGAIN));
        Ok(())
    }

    #[test]
    fn entries_that_cannot_be_copied_are_not_consumed() -> Result {
        let queue = queue(256)?;
        for n in 0..200 {
            push(&queue, n)?;
        }
        ensure_eq!(
            queue.read(200, |_: &[u64], _: u64| Err(EFAULT)),
            Err(EFAULT)
        );
        // The first entry that cannot be copied ends the read, in any chunk.
        let mut next = 0;
        for stop in [1, 64, 130, 131] {
            let read = queue.read(200, |words: &[u64], _: u64| {
                ensure_eq!(context(words), next);
                if next == stop {
                    return Err(EFAULT);
                }
                next += 1;
                Ok(())
            });
            let read = read?;
            ensure_eq!(next, stop);
            ensure!(read > 0);
        }
        ensure_eq!(queue.read(1000, ignore), Ok(200 - 131));
        push_err(&queue, 9)?;
        ensure_eq!(queue.readerr(|_| Err(EFAULT), || Err(EFAULT)), Err(EFAULT));
        ensure_eq!(readerr(&queue), Ok(9));
        ensure_eq!(readerr(&queue), Err(EAGAIN));
        Ok(())
    }

    #[test]
    fn a_read_returns_at_most_the_requested_number() -> Result {
        let queue = queue(256)?;
        ensure_eq!(queue.read(0, ignore), Err(EAGAIN));
        for n in 0..100 {
            push(&queue, n)?;
        }
        ensure_eq!(queue.read(0, ignore), Ok(0));
        ensure_eq!(queue.read(64, ignore), Ok(64));
        ensure_eq!(queue.read(1, ignore), Ok(1));
        ensure_eq!(queue.read(usize::MAX, ignore), Ok(35));
        ensure_eq!(queue.read(1, ignore), Err(EAGAIN));
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
        ensure!(read > 5 && read < 100);
        ensure_eq!(queue.read(100, ignore), Err(avail()));
        ensure_eq!(readerr(&queue), Ok(1));
        ensure_eq!(queue.read(100, ignore), Ok(100 - read));
        Ok(())
    }

    /// fi_cq(3): the call unblocks any thread waiting in a blocking read. One thread sleeps for its
    /// number of completions, so the signal is not kept. Another thread found a completion and
    /// waits for the reader that is about to take it. It must not sleep afterwards.
    /// A reader waits for the memory of its program, as in a long page fault; other readers
    /// continue.
    #[test]
    fn a_program_frees_room_through_the_ring() -> Result {
        let queue = queue(4)?;
        let head = word(&queue, offset_of!(kfabric_cq_ring, head))?;
        for round in 0..10 {
            for n in 0..4 {
                push(&queue, n)?;
            }
            ensure_eq!(queue.reserve().err(), Some(EAGAIN));
            ensure!(queue.is_ready());
            head.store_release(4 * round + 3);
            let credit = queue.reserve()?;
            queue.unreserve(credit);
            ensure!(queue.is_ready());
            head.store_release(4 * round + 4);
            ensure!(!queue.is_ready());
            ensure_eq!(queue.read(4, ignore), Err(EAGAIN));
        }
        Ok(())
    }

    #[test]
    fn an_invalid_head_harms_only_its_writer() -> Result {
        let queue = queue(4)?;
        let head = word(&queue, offset_of!(kfabric_cq_ring, head))?;
        push(&queue, 1)?;
        push(&queue, 2)?;
        ensure_eq!(queue.read(1, ignore), Ok(1));
        // Heads below, above, and far from the valid range.
        for spoilt in [0, 3, 1 << 40, u64::MAX] {
            head.store(spoilt);
            ensure_eq!(queue.read(1, ignore), Err(EIO));
            ensure_eq!(sread(&queue, 1, 4, Deadline::Forever), Err(EIO));
            ensure!(queue.is_ready());
            // Completions still arrive as long as there is room.
            for _ in 0..8 {
                if let Ok(credit) = queue.reserve() {
                    queue.push(credit, &entry(3));
                }
            }
            let stats = queue.stats();
            let queued = stats.get(1).copied();
            ensure_eq!(queued, Some(4));
            // The program writes a valid head again, and all entries are there.
            let tail = word(&queue, offset_of!(kfabric_cq_ring, tail))?.load();
            head.store(tail - 4);
            ensure_eq!(queue.read(3, ignore), Ok(3));
        }
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
            ensure_eq!(cq.sread(1, 0, Deadline::At(1), &mut 0, ignore), Err(EINVAL));
            ensure_eq!(cq.sread(1, 0, Deadline::Poll, &mut 0, ignore), Err(EAGAIN));
        }
        ensure_eq!(none.signal(), Err(EINVAL));
        ensure_eq!(
            unspec.sread(1, 2, Deadline::At(1), &mut 0, ignore),
            Err(ETIMEDOUT)
        );
        // Without the condition the number is ignored: the read does not sleep until its deadline.
        queue.push(queue.reserve()?, &entry(1));
        let begin = now_ns();
        ensure_eq!(queue.sread(0, 2, soon(), &mut 0, ignore), Ok(0));
        ensure!(now_ns() - begin < LONG / 2);
        ensure_eq!(queue.sread(1, 2, Deadline::Poll, &mut 0, ignore), Ok(1));
        ensure_eq!(
            queue.sread(1, 0, Deadline::At(1), &mut 0, ignore),
            Err(ETIMEDOUT)
        );
        ensure_eq!(none.getwait().err(), Some(EINVAL));
        ensure_eq!(unspec.format(), Format::Context);
        ensure_eq!(unspec.entries(), 8);
        ensure_eq!(unspec.strerror(0).is_empty(), false);
        ensure!(unspec.strerror(257) != unspec.strerror(266));
        ensure_eq!(unspec.strerror(12345), c"Unknown error");

        ensure_eq!(set.wait(Deadline::Poll), Err(ETIMEDOUT));
        member.push(member.reserve()?, &entry(1));
        ensure_eq!(set.wait(Deadline::Poll), Ok(()));
        member.push_err(member.reserve()?, &error(1));
        ensure_eq!(set.wait(Deadline::Poll), Ok(()));
        member.push_unposted(&entry(1));
        ensure_eq!(set.wait(Deadline::Poll), Ok(()));
        ensure_eq!(member.signal(), Ok(()));
        ensure_eq!(set.wait(Deadline::Poll), Ok(()));
        ensure_eq!(set.wait(Deadline::Poll), Err(ETIMEDOUT));
        ensure!(member.is_ready());

        ensure_eq!(close(&*set), Err(EBUSY));
        for cq in [none, unspec, queue, member] {
            ensure_eq!(close(&*cq), Ok(()));
        }
        ensure_eq!(close(&*set), Ok(()));
        ensure_eq!(close(&*test.domain), Ok(()));
        Ok(())
    }

    #[test]
    fn waiters_use_the_cq() -> Result {
        let test = TestDomain::open()?;
        let cq = test.cq(8, enums::WaitObj::Queue, 3)?;
        ensure_eq!(close(&*test.domain), Err(EBUSY));
        let (other, refused) = (cq.clone(), Count::new()?);
        let thread = helpers::count_if(&refused, move || {
            other.sread(1, 0, soon(), &mut 0, ignore) == Err(EBADF)
        })?;
        ensure!(eventually(|| waiting(&cq.queue) == 1));
        ensure_eq!(close(&*cq), Err(EBUSY));
        force_close(&*cq);
        thread.join();
        ensure_eq!(refused.get(), 1);
        ensure_eq!(close(&*cq), Err(EBADF));
        ensure_eq!(
            cq.sread(1, 0, Deadline::Forever, &mut 0, ignore),
            Err(EBADF)
        );
        ensure_eq!(cq.getwait().err(), Some(EBADF));
        Ok(())
    }
}
