// SPDX-License-Identifier: GPL-2.0

//! Reads of a CQ by a call: entries, error entries, and sleeping until they come.
//!
//! A read returns the first of these that applies: `EIO` if the head in the mapped ring is
//! impossible; `KFI_EAVAIL` if an error entry must be read first; entries; `KFI_EOVERRUN` if
//! completions that belong to no posted operation were lost, reported once; `EAGAIN`. A read that
//! has taken entries returns their number and no error; the next read returns the error.
//!
//! Entries are copied out under the reader mutex, so that each is taken once and in order. Under
//! the mutex no page of the program is faulted in: a page that is not present ends the copy with
//! `EFAULT`, the reader releases the mutex, and faults the page in before it continues ([`Sink`]).
//! So a reader whose memory is slow delays no other reader.
//!
//! The entries of a kernel consumer are copied under the spin lock instead. While a read has found
//! its queue empty and nothing has arrived, another read takes no lock
//! ([`ConsumerSide::is_empty`]).
//!
//! All functions here sleep, but not [`Queue::read`] and [`Queue::readerr`] for a kernel consumer,
//! which softirqs may call.

#[cfg(kfi_kunit)]
#[path = "../../../../kunit/cq_wait.rs"]
mod kunit;

use kfi_core::{
    cq::{
        Armed,
        BlockingRead,
        ErrEntry, //
    },
    limits,
    ring::Batch, //
};

use super::queue::{
    Queue,
    Token, //
};
use crate::{
    provider::{
        prelude::*,
        wait::{
            handler::ConsumerSide,
            line::{
                with_memory,
                NewWaiter, //
            },
            sleep,
            WakeReason, //
        }, //
    },
    shim::{
        bindings::kfabric_cq_entry,
        sched::heed_signals,
        user::PagefaultDisabled,
        wait::{
            Sleeper,
            WaitError, //
        }, //
    }, //
};

/// The number of entries that a reader takes under one hold of the mutex.
const CHUNK: usize = 64;

/// The destination of a reader's entries. A closure is a sink whose memory is always present.
pub(crate) trait Sink {
    /// Takes the words of an entry that belong to the format, and the source. Does not fault pages
    /// in. Fails with `EFAULT` if the memory of the program is not present.
    fn take(&mut self, words: &[u64], source: u64) -> Result;

    /// Faults in the memory for the next entry, after [`take`](Self::take) returned `EFAULT`. Fails
    /// with `EFAULT` if the memory is not accessible. Sleeps without bound. The caller holds no
    /// lock.
    fn fault_in(&mut self) -> Result {
        Err(EFAULT)
    }
}

impl<F: FnMut(&[u64], u64) -> Result> Sink for F {
    #[inline]
    fn take(&mut self, words: &[u64], source: u64) -> Result {
        self(words, source)
    }
}

/// The result of reading a chunk.
struct Chunk {
    /// Entries taken.
    taken: usize,
    /// Whether there may be more.
    more: bool,
    /// The error that ended the chunk, if any.
    result: Result,
}

impl Queue {
    /// Takes at most `count` entries. `sink` gets, for each, the words of the format and the
    /// source. With `count` 0 the call takes nothing and reports whether there is something.
    ///
    /// Fails with the errors listed above, or that of `sink` for the first entry. An entry that
    /// `sink` refuses stays queued.
    pub(crate) fn read(&self, count: usize, mut sink: impl Sink) -> Result<usize> {
        self.drain(count, &mut sink)
    }

    /// [`Cq::sread`](super::Cq::sread) of at least `want` entries; 0 counts as 1. If another reader
    /// was faster, it sleeps again. When the deadline has passed, or [`signal`](Self::signal) was
    /// called since the call began, the call takes the entries that are queued. `began` is 0
    /// afterwards unless the call was interrupted.
    pub(crate) fn sread(
        &self,
        count: usize,
        want: u32,
        deadline: Deadline,
        began: &mut u64,
        mut sink: impl Sink,
    ) -> Result<usize> {
        let number = core::mem::replace(began, 0);
        if deadline == Deadline::Poll {
            return self.read(count, sink);
        }
        // Taken before anything that takes time: a later `signal()` releases this thread.
        let inside = {
            let mut state = self.lock();
            match number {
                0 => state.enter(),
                number => state.enter_again(number),
            }
        };
        let result = self.wait(&inside, count, want.into(), deadline, &mut sink);
        if result == Err(ERESTARTSYS) {
            *began = inside.number();
        }
        self.lock().leave(inside);
        result
    }

    /// [`sread`](Self::sread) for a thread that is `inside`.
    fn wait(
        &self,
        inside: &BlockingRead,
        count: usize,
        want: u64,
        deadline: Deadline,
        sink: &mut impl Sink,
    ) -> Result<usize> {
        pin_init::stack_pin_init!(let sleeper = Sleeper::new());
        let sleeper = sleeper.as_ref();
        loop {
            if self.lock().holds(want) {
                match self.drain(count, sink) {
                    // Another reader was faster, or a program took them from its mapping.
                    Err(error) if error == EAGAIN => {}
                    result => return result,
                }
            }
            let armed = with_memory(|memory| {
                let token = Token::Sleeper(sleeper.waker());
                let mut state = self.lock();
                if self.is_closed() {
                    return Err(EBADF);
                }
                // A completion, of another user's task, wakes all that are due under the lock.
                if state.sleepers() >= limits::MAX_WAITERS && !state.holds(want) {
                    return Err(ENOSPC);
                }
                if memory.is_none() && state.sleepers() != 0 {
                    return Ok(None);
                }
                let memory = memory.take();
                Ok(Some(state.arm(inside, want, NewWaiter { token, memory })))
            })?;
            let key = match armed {
                Armed::Ready(_slot) => continue,
                Armed::Signalled(_slot) => return self.drain(count, sink),
                Armed::Waiting(key) => key,
            };
            let leave = || self.lock().disarm(&key).is_some();
            match sleep(&sleeper, deadline, leave) {
                Ok(WakeReason::Ready | WakeReason::ErrorChanged) => {}
                Ok(WakeReason::Signalled) | Err(WaitError::TimedOut) => {
                    return self.drain(count, sink)
                }
                Ok(WakeReason::Closed) => return Err(EBADF),
                Err(interrupted) => return Err(interrupted.into()),
            }
        }
    }

    /// See [`Cq::readerr`](super::Cq::readerr).
    pub(crate) fn readerr(
        &self,
        mut sink: impl FnMut(&ErrEntry) -> Result,
        mut fault_in: impl FnMut() -> Result,
    ) -> Result {
        // The rest of the operation's record. It is dropped outside the locks.
        let mut _spent = None;
        if self.consumer.is_some() {
            let mut state = self.lock();
            sink(&state.peek_err().map_err(to_error)?)?;
            (_, _spent) = state.read_err().map_err(to_error)?;
            return Ok(());
        }
        loop {
            let result = {
                let _reader = self.reader.lock();
                let entry = self.lock().peek_err().map_err(to_error)?;
                let _no_faults = PagefaultDisabled::new();
                sink(&entry).and_then(|()| {
                    // Error entries are taken only by a call, and this thread is the only reader.
                    let (_, record) = self.lock().read_err().map_err(to_error)?;
                    _spent = record;
                    Ok(())
                })
            };
            match result {
                Err(error) if error == EFAULT => {
                    heed_signals()?;
                    fault_in()?;
                }
                result => return result,
            }
        }
    }

    /// [`read`](Self::read), a chunk at a time.
    fn drain(&self, count: usize, sink: &mut impl Sink) -> Result<usize> {
        if let Some(consumer) = &self.consumer {
            return self.drain_locked(consumer, count, sink);
        }
        let mut done = 0usize;
        loop {
            let chunk = self.chunk(count.saturating_sub(done), done == 0, sink);
            done = done.saturating_add(chunk.taken);
            let result = match chunk.result {
                Err(error) if error == EFAULT => heed_signals().and_then(|()| sink.fault_in()),
                Ok(()) if !chunk.more => return Ok(done),
                // More entries may come without end, so the loop checks for signals.
                Ok(()) => heed_signals(),
                result => result,
            };
            match result {
                Err(error) if done == 0 => return Err(error),
                Err(_) => return Ok(done),
                Ok(()) => cond_resched(),
            }
        }
    }

    /// [`drain`](Self::drain) for a kernel consumer, whose memory is present: copies under the spin
    /// lock. Process context or softirq.
    fn drain_locked(
        &self,
        consumer: &ConsumerSide,
        count: usize,
        sink: &mut impl Sink,
    ) -> Result<usize> {
        let mut done = 0usize;
        loop {
            if consumer.is_empty() && done == 0 {
                return Err(EAGAIN);
            }
            // A chunk fits in every integer type.
            let want = count.saturating_sub(done).min(CHUNK) as u32;
            let mut state = self.lock();
            let batch = match done {
                0 => state.peek(want),
                _ => Ok(state.more(want)),
            };
            let batch = batch.map_err(|error| {
                if error == Errno::EAGAIN {
                    consumer.finds_empty();
                }
                to_error(error)
            })?;
            let (copied, result) = self.copy(&batch, sink);
            state.take(&batch, copied);
            done = done.saturating_add(copied as usize);
            let short = copied < want;
            if short && !state.ready() {
                consumer.finds_empty();
            }
            match result {
                Err(error) if done == 0 => return Err(error),
                Ok(()) if !short && done < count => {}
                _ => return Ok(done),
            }
        }
    }

    /// Takes a chunk of at most `count` entries under the reader mutex. With `first`, an empty
    /// queue is an error.
    fn chunk(&self, count: usize, first: bool, sink: &mut impl Sink) -> Chunk {
        let _reader = self.reader.lock();
        // A chunk fits in every integer type.
        let want = count.min(CHUNK) as u32;
        let batch = {
            let mut state = self.lock();
            if first {
                state.peek(want).map_err(to_error)
            } else {
                Ok(state.more(want))
            }
        };
        let batch = match batch {
            Ok(batch) => batch,
            Err(error) => {
                return Chunk {
                    taken: 0,
                    more: false,
                    result: Err(error),
                }
            }
        };
        let (copied, result) = self.copy(&batch, sink);
        self.lock().take(&batch, copied);
        let taken = copied as usize;
        Chunk {
            taken,
            more: taken != 0 && taken < count,
            result,
        }
    }

    /// Gives the entries of `batch` to `sink`. Returns how many it took, and the error if it did
    /// not take all.
    fn copy(&self, batch: &Batch, sink: &mut impl Sink) -> (u32, Result) {
        const SOURCE: usize = core::mem::offset_of!(kfabric_cq_entry, src_addr) / size_of::<u64>();
        let _no_faults = PagefaultDisabled::new();
        let words = self.format.words();
        let mut copied = 0;
        for slot in batch.slots() {
            let result = self.load(slot).and_then(|entry| {
                let source = *entry.get(SOURCE).ok_or(EIO)?;
                sink.take(entry.get(..words).ok_or(EIO)?, source)
            });
            if result.is_err() {
                return (copied, result);
            }
            copied = copied.wrapping_add(1);
        }
        (copied, Ok(()))
    }
}
