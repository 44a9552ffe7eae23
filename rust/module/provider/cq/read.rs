// SPDX-License-Identifier: GPL-2.0

//! Reading a CQ by call: entries, error entries, sleeping until they come.
//!
//! The order of answers, first match: `EIO` the mapped head is spoilt; `KFI_EAVAIL` an error entry
//! is to be read first; entries; `KFI_EOVERRUN` completions that nobody posted for were lost, told
//! once; `EAGAIN`. A read that has taken entries gives their number, whatever it then met: the next
//! read tells.
//!
//! Everything here sleeps: it copies to programs under the reader mutex.

use kernel::{
    prelude::*,
    sync::lock::{
        mutex::MutexBackend,
        Guard, //
    }, //
};

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
        sched::cond_resched,
        wait::{
            Sleeper,
            WaitError, //
        }, //
    }, //
};

/// Entries whose slots are given back at once.
const CHUNK: usize = 64;

/// The reader mutex, held.
type Reader<'a> = Guard<'a, (), MutexBackend>;

impl Queue {
    /// Takes at most `count` entries; of each, `sink` is given the words that the format has, and
    /// the source. `count` 0 takes nothing and tells whether there is something.
    ///
    /// The module's errors above, or that of `sink` for the first entry; what `sink` refuses stays
    /// queued.
    pub(crate) fn read(
        &self,
        count: usize,
        mut sink: impl FnMut(&[u64], u64) -> Result,
    ) -> Result<usize> {
        self.drain(&self.reader.lock(), count, &mut sink)
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
        mut sink: impl FnMut(&[u64], u64) -> Result,
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
        sink: &mut impl FnMut(&[u64], u64) -> Result,
    ) -> Result<usize> {
        pin_init::stack_pin_init!(let sleeper = Sleeper::new());
        let sleeper = sleeper.as_ref();
        loop {
            let reader = self.reader.lock();
            if self.state.lock().holds(want) {
                match self.drain(&reader, count, sink) {
                    // A program has taken them from its mapping meanwhile.
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
                Armed::Signalled(_slot) => return self.drain(&reader, count, sink),
                Armed::Waiting(key) => key,
            };
            drop(reader);
            let leave = || self.state.lock().disarm(&key).is_some();
            match sleep(&sleeper, deadline, leave) {
                Ok(Why::Ready | Why::ErrorChanged) => {}
                Ok(Why::Signalled) => return self.read(count, sink),
                Ok(Why::Closed) => return Err(EBADF),
                Err(WaitError::TimedOut) => {
                    return self.read(count, sink).map_err(|error| {
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
    /// of `sink`, and the entry stays.
    pub(crate) fn readerr(&self, sink: impl FnOnce(&ErrEntry) -> Result) -> Result {
        let _reader = self.reader.lock();
        let entry = self.state.lock().peek_err().map_err(to_error)?;
        sink(&entry)?;
        // Error entries are taken by call only, and this is the one reader.
        self.state.lock().read_err().map_err(to_error)?;
        Ok(())
    }

    /// [`read`](Self::read), by the one who is the reader.
    fn drain(
        &self,
        _reader: &Reader<'_>,
        count: usize,
        sink: &mut impl FnMut(&[u64], u64) -> Result,
    ) -> Result<usize> {
        // A chunk fits in any integer.
        let chunk = |left: usize| left.min(CHUNK) as u32;
        let mut batch = self.state.lock().peek(chunk(count)).map_err(to_error)?;
        let mut done = 0usize;
        loop {
            let (copied, result) = self.copy(&batch, sink);
            done = done.saturating_add(copied as usize);
            {
                let mut state = self.state.lock();
                state.take(&batch, copied);
                match result {
                    Err(error) if done == 0 => return Err(error),
                    Err(_) => return Ok(done),
                    Ok(()) => batch = state.more(chunk(count.saturating_sub(done))),
                }
            }
            if batch.count() == 0 {
                return Ok(done);
            }
            cond_resched();
        }
    }

    /// Gives `sink` the entries of `batch`. How many it took, and its error if not all.
    fn copy(&self, batch: &Batch, sink: &mut impl FnMut(&[u64], u64) -> Result) -> (u32, Result) {
        const SOURCE: usize = core::mem::offset_of!(kfabric_cq_entry, src_addr) / size_of::<u64>();
        let words = self.format.words();
        let mut copied = 0;
        for slot in batch.slots() {
            let result = self.load(slot).and_then(|entry| {
                let source = *entry.get(SOURCE).ok_or(EIO)?;
                sink(entry.get(..words).ok_or(EIO)?, source)
            });
            if result.is_err() {
                return (copied, result);
            }
            copied = copied.wrapping_add(1);
        }
        (copied, Ok(()))
    }
}
