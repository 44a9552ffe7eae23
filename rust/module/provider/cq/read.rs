// SPDX-License-Identifier: GPL-2.0

//! Reading a CQ by call: entries, error entries, sleeping until they come.
//!
//! The order of answers, first match: `EIO` the mapped head is spoilt; `KFI_EAVAIL` an error entry
//! is to be read first; entries; `KFI_EOVERRUN` completions that nobody posted for were lost, told
//! once; `EAGAIN`. A read that has taken entries gives their number, whatever it then met: the next
//! read tells.
//!
//! Entries are copied out under the reader mutex, so that each is taken once and in order. There
//! the copying does not wait for a program's memory: a page that is not there ends it with `EFAULT`,
//! the mutex is given back, and the page is brought in before the reader goes on ([`Sink`]). So a
//! reader whose memory takes long delays nobody but itself.
//!
//! Everything here sleeps.

use kernel::prelude::*;

use kfi_core::{
    cq::{
        Armed,
        ErrEntry,
        Inside, //
    },
    ring::Batch,
    wait::Deadline, //
};

use super::queue::Queue;
use crate::{
    provider::wait::{
        line::{
            with_memory,
            Enters, //
        },
        sleep,
        Why, //
    },
    shim::{
        bindings::kfabric_cq_entry,
        errno::to_error,
        sched::{
            cond_resched,
            heed_signals, //
        },
        user::NoFaults,
        wait::{
            Sleeper,
            WaitError, //
        }, //
    }, //
};

/// Entries whose slots are given back at once.
const CHUNK: usize = 64;

/// Where a reader's entries go. A closure is one whose memory is always there.
pub(crate) trait Sink {
    /// Takes the words of an entry that the format has, and the source. Does not wait for memory of
    /// the program's: `EFAULT` if it is not there.
    fn take(&mut self, words: &[u64], source: u64) -> Result;

    /// Brings in the memory for the next entry, after [`take`](Self::take) gave `EFAULT`. `EFAULT` it
    /// cannot be. Sleeps as long as it takes; no lock is held.
    fn bring_in(&mut self) -> Result {
        Err(EFAULT)
    }
}

impl<F: FnMut(&[u64], u64) -> Result> Sink for F {
    #[inline]
    fn take(&mut self, words: &[u64], source: u64) -> Result {
        self(words, source)
    }
}

/// What the reading of a chunk came to.
struct Chunk {
    /// Entries taken.
    taken: usize,
    /// Whether there may be more.
    more: bool,
    /// What ended it.
    result: Result,
}

impl Queue {
    /// Takes at most `count` entries; of each, `sink` is given the words that the format has, and
    /// the source. `count` 0 takes nothing and tells whether there is something.
    ///
    /// The module's errors above, or that of `sink` for the first entry; what `sink` refuses stays
    /// queued.
    pub(crate) fn read(&self, count: usize, mut sink: impl Sink) -> Result<usize> {
        self.drain(count, &mut sink)
    }

    /// Takes entries when at least `want` (0 counts as 1) are queued; sleeps until they are, or an
    /// error entry is, or completions were lost, and goes on sleeping if another reader was faster.
    ///
    /// As [`read`](Self::read) once it need not sleep. When the deadline has passed, or
    /// [`signal`](Self::signal) was called since the call began, it takes what there is; `ETIMEDOUT`
    /// or `EAGAIN` if there is nothing. `ERESTARTSYS` a signal of the system's is pending; `EBADF` the
    /// queue was closed by force; `ENOMEM`.
    ///
    /// `began` is 0, or what an interrupted call has left there, which then goes on; it is 0
    /// afterwards if the call was not interrupted.
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
        // Before everything that takes time: signals from now on release this thread.
        let inside = {
            let mut state = self.state.lock();
            match number {
                0 => state.enter(),
                number => state.enter_again(number),
            }
        };
        let result = self.wait(&inside, count, want.into(), deadline, &mut sink);
        if result == Err(ERESTARTSYS) {
            *began = inside.number();
        }
        self.state.lock().leave(inside);
        result
    }

    /// [`sread`](Self::sread), by a thread that is inside.
    fn wait(
        &self,
        inside: &Inside,
        count: usize,
        want: u64,
        deadline: Deadline,
        sink: &mut impl Sink,
    ) -> Result<usize> {
        pin_init::stack_pin_init!(let sleeper = Sleeper::new());
        let sleeper = sleeper.as_ref();
        loop {
            if self.state.lock().holds(want) {
                match self.drain(count, sink) {
                    // Another reader was faster, or a program took them from its mapping.
                    Err(error) if error == EAGAIN => {}
                    result => return result,
                }
            }
            let armed = with_memory(|memory| {
                let who = sleeper.waker();
                let mut state = self.state.lock();
                if self.is_closed() {
                    return Err(EBADF);
                }
                if memory.is_none() && state.sleepers() != 0 {
                    return Ok(None);
                }
                let memory = memory.take();
                Ok(Some(state.arm(inside, want, Enters { who, memory })))
            })?;
            let key = match armed {
                Armed::Ready(_slot) => continue,
                Armed::Signalled(_slot) => return self.drain(count, sink),
                Armed::Waiting(key) => key,
            };
            let leave = || self.state.lock().disarm(&key).is_some();
            match sleep(&sleeper, deadline, leave) {
                Ok(Why::Ready | Why::ErrorChanged) => {}
                Ok(Why::Signalled) => return self.drain(count, sink),
                Ok(Why::Closed) => return Err(EBADF),
                Err(WaitError::TimedOut) => {
                    return self.drain(count, sink).map_err(|error| {
                        if error == EAGAIN {
                            ETIMEDOUT
                        } else {
                            error
                        }
                    })
                }
                Err(interrupted) => return Err(interrupted.into()),
            }
        }
    }

    /// Takes the oldest error entry, once `sink` has got it. `EAGAIN` there is none, or the error
    /// of `sink`, and the entry stays. `sink` and `bring_in` are what [`Sink`] has.
    pub(crate) fn readerr(
        &self,
        mut sink: impl FnMut(&ErrEntry) -> Result,
        mut bring_in: impl FnMut() -> Result,
    ) -> Result {
        // What remains of its record, which is dropped outside the locks.
        let mut _spent = None;
        loop {
            let result = {
                let _reader = self.reader.lock();
                let entry = self.state.lock().peek_err().map_err(to_error)?;
                let _no_faults = NoFaults::new();
                sink(&entry).and_then(|()| {
                    // Error entries are taken by call only, and this is the one reader.
                    let (_, record) = self.state.lock().read_err().map_err(to_error)?;
                    _spent = record;
                    Ok(())
                })
            };
            match result {
                Err(error) if error == EFAULT => {
                    heed_signals()?;
                    bring_in()?;
                }
                result => return result,
            }
        }
    }

    /// [`read`](Self::read), a chunk at a time.
    fn drain(&self, count: usize, sink: &mut impl Sink) -> Result<usize> {
        let mut done = 0usize;
        loop {
            let chunk = self.chunk(count.saturating_sub(done), done == 0, sink);
            done = done.saturating_add(chunk.taken);
            let result = match chunk.result {
                Err(error) if error == EFAULT => heed_signals().and_then(|()| sink.bring_in()),
                Ok(()) if !chunk.more => return Ok(done),
                // There may always be more: a signal ends it here.
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

    /// Takes a chunk of at most `count` entries, as the one who is the reader. `first`: if there is
    /// nothing, that is an error.
    fn chunk(&self, count: usize, first: bool, sink: &mut impl Sink) -> Chunk {
        let _reader = self.reader.lock();
        // A chunk fits in any integer.
        let want = count.min(CHUNK) as u32;
        let batch = {
            let mut state = self.state.lock();
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
        self.state.lock().take(&batch, copied);
        let taken = copied as usize;
        Chunk {
            taken,
            more: taken != 0 && taken < count,
            result,
        }
    }

    /// Gives `sink` the entries of `batch`. How many it took, and its error if not all.
    fn copy(&self, batch: &Batch, sink: &mut impl Sink) -> (u32, Result) {
        const SOURCE: usize = core::mem::offset_of!(kfabric_cq_entry, src_addr) / size_of::<u64>();
        let _no_faults = NoFaults::new();
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
