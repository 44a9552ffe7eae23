// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_cq`: reads of completion queues in the middle of which a copy fails or an error
//! comes, and a close by force.
//!
//! The core crate tests the order of results, credits and overruns against a model. `cq_wait.rs`
//! tests the threads that wait. Guest scenarios test queues as programs use them.

use super::{
    queue::Queue,
    CqAttr, //
};
use crate::{
    kunit::{
        fixture::{
            eventually,
            soon,
            wait_obj,
            Count,
            TestDomain, //
        },
        helpers, //
    },
    provider::object::{
        close,
        force_close, //
    },
    shim::errno::to_error, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kfi_core::{
    cq::{
        Entry,
        ErrEntry,
        Format, //
    },
    enums,
    errno::Errno,
    wait::Deadline, //
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

#[kunit_tests(kfabric_cq)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_without_a_size_has_1024_entries() -> Result {
        let attr = CqAttr::new(0, 0, wait_obj(enums::WaitObj::None)?, 0)?;
        ensure_eq!(attr.entries, 1024);
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
