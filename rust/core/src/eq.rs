// SPDX-License-Identifier: GPL-2.0

//! The event queue (EQ): control events, and errors in a separate queue.
//!
//! An event is a number and up to [`MAX_EVENT`] bytes. The module pushes its own events (a memory
//! region was registered, addresses were inserted); users write theirs. Errors of asynchronous
//! calls have a queue of their own; while it is not empty, a read returns KFI_EAVAIL. An event
//! stays in the queue if the caller's buffer is too short for it, or if it is only peeked at.
//!
//! There are no reservations: control events are few, and their number is not known beforehand. But
//! anybody can send requests for connections, so these take at most half of the room. A
//! user's write to a full queue fails with EAGAIN. An event of the module that finds no room is
//! lost and counted, and reported once as KFI_EOVERRUN after the queued events have been read. A
//! peek returns that report without consuming it.
//!
//! A read returns the first of these that applies: KFI_EAVAIL if there is an error; an event (or
//! KFI_ETOOSMALL); KFI_EOVERRUN once; EAGAIN.
//!
//! An event of the module has a source: the identifier of the object that it is about. When the
//! object is closed, its owner may remove the events that were not read
//! ([`EventQueue::remove_events_of`]): their reader would take them for those of another object
//! with this identifier.
//!
//! Each operation takes O(1), and O(log n) in the number of sleepers for each that is armed or
//! released; a removal takes O(n) in the number of events. Context: any, under the EQ's lock.
//!
//! Source: fi_eq(3).

use crate::{
    due::{
        Due,
        DueMap,
        Key, //
    },
    errno::{
        Errno,
        Result, //
    },
    fifo::Fifo,
    limits::MAX_REJECT_DATA, //
};
use core::ops::DerefMut;

#[cfg(any(test, kfi_kunit))]
mod tests;

pub use crate::{
    fifo::Push,
    limits::MAX_EVENT, //
};

/// A slot for an event.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// The identifier of the object that it is about; 0 if a user has written it.
    source: u64,
    event: u32,
    /// At most `MAX_EVENT`.
    len: u16,
    /// A user has written it.
    written: bool,
    data: [u8; MAX_EVENT],
}

impl Event {
    /// An empty slot, to initialise storage.
    pub const EMPTY: Self = Self {
        source: 0,
        event: 0,
        len: 0,
        written: false,
        data: [0; MAX_EVENT],
    };

    /// Returns the number of the event: KFI_NOTIFY, KFI_MR_COMPLETE, ...
    pub fn event(&self) -> u32 {
        self.event
    }

    /// Returns the data of the event.
    pub fn data(&self) -> &[u8] {
        self.data.get(..usize::from(self.len)).unwrap_or(&[])
    }

    /// Fills the slot. `source` is `None` for an event that a user writes. `data` is cut at
    /// `MAX_EVENT`.
    fn fill(&mut self, event: u32, source: Option<u64>, data: &[u8]) {
        self.event = event;
        self.written = source.is_none();
        self.source = source.unwrap_or(0);
        self.len = 0;
        for (to, from) in self.data.iter_mut().zip(data) {
            *to = *from;
            // The length is at most MAX_EVENT.
            self.len = self.len.wrapping_add(1);
        }
    }
}

impl Default for Event {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// An error event, as KFABRIC_IOC_EQ_READERR returns it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrEvent {
    /// The identifier of the object in its front end.
    pub fid: u64,
    /// The positive error number.
    pub err: u32,
    /// The provider's error number; 0 if there is none.
    pub prov_errno: u32,
    /// The context of the call that failed.
    pub context: u64,
    /// KFI_AV_COMPLETE: the index of the address that failed.
    pub data: u64,
    /// The private data of the peer that rejected a connection.
    pub err_data: ErrData,
}

/// The private data of a rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrData {
    /// At most `MAX_REJECT_DATA`.
    len: u8,
    data: [u8; MAX_REJECT_DATA],
}

const _: () = assert!(MAX_REJECT_DATA <= u8::MAX as usize);

impl ErrData {
    /// No data.
    pub const NONE: Self = Self {
        len: 0,
        data: [0; MAX_REJECT_DATA],
    };

    /// Stores `data`, cut at [`MAX_REJECT_DATA`].
    pub fn new(data: &[u8]) -> Self {
        let mut this = Self::NONE;
        for (to, from) in this.data.iter_mut().zip(data) {
            *to = *from;
            // The length is at most MAX_REJECT_DATA.
            this.len = this.len.wrapping_add(1);
        }
        this
    }

    /// Returns the bytes.
    pub fn get(&self) -> &[u8] {
        self.data.get(..usize::from(self.len)).unwrap_or(&[])
    }
}

impl Default for ErrData {
    fn default() -> Self {
        Self::NONE
    }
}

/// Whether a read removes the event (KFI_PEEK: no).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The read removes the event.
    Take,
    /// The read leaves the event.
    Peek,
}

/// An event that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// The number of the event.
    pub event: u32,
    /// The number of its bytes at the front of the buffer.
    pub len: usize,
}

/// The result of arming a sleeper.
#[derive(Debug, PartialEq, Eq)]
pub enum Armed<S> {
    /// There is something to read. The slot is returned.
    Ready(S),
    /// The thread sleeps until its token is released. The key is for [`EventQueue::disarm`].
    Waiting(Key),
}

/// An event queue. `V`: slots for events; `R`: slots for errors; `M`: the map of
/// sleepers.
pub struct EventQueue<V, R, M: DueMap> {
    events: Fifo<V>,
    errors: Fifo<R>,
    overruns: u64,
    overrun_to_report: bool,
    sleepers: Due<M>,
}

impl<V, R, M> EventQueue<V, R, M>
where
    V: DerefMut<Target = [Event]>,
    R: DerefMut<Target = [ErrEvent]>,
    M: DueMap,
{
    /// Makes an empty EQ that holds as many events and errors as there are slots.
    pub const fn new(events: V, errors: R, sleepers: M) -> Self {
        Self {
            events: Fifo::new(events),
            errors: Fifo::new(errors),
            overruns: 0,
            overrun_to_report: false,
            sleepers: Due::new(sleepers),
        }
    }

    /// Queues an event of the module about the object `source`. `wake` is called for each sleeper
    /// to wake, also if the event is lost, because the loss is reported.
    ///
    /// Errors: EINVAL if there are more than [`MAX_EVENT`] bytes; nothing is changed.
    pub fn push(
        &mut self,
        event: u32,
        source: u64,
        data: &[u8],
        wake: impl FnMut(M::Token),
    ) -> Result<Push> {
        if data.len() <= MAX_EVENT && self.events.is_full() {
            return Ok(self.overrun(wake));
        }
        self.append(event, Some(source), data, wake)?;
        Ok(Push::Queued)
    }

    /// Queues a request for a connection to the object `source`, unless half of the slots, rounded
    /// up, have events. The caller refuses the request then, so nothing is lost; `wake` as in
    /// [`Self::push`].
    ///
    /// Errors: EINVAL if there are more than [`MAX_EVENT`] bytes; EAGAIN if there is no room.
    pub fn push_request(
        &mut self,
        event: u32,
        source: u64,
        data: &[u8],
        wake: impl FnMut(M::Token),
    ) -> Result {
        let room = self.events.capacity().div_ceil(2);
        if data.len() <= MAX_EVENT && self.events.len() >= room {
            return Err(Errno::EAGAIN);
        }
        self.append(event, Some(source), data, wake)
    }

    /// Queues an event of a user (kfi_eq_write); `wake` as in [`Self::push`].
    ///
    /// Errors: EINVAL if there are more than [`MAX_EVENT`] bytes; EAGAIN if the queue is full.
    pub fn write(&mut self, event: u32, data: &[u8], wake: impl FnMut(M::Token)) -> Result {
        self.append(event, None, data, wake)
    }

    /// Removes the events and errors about the object `source` that were not read. Those that users
    /// have written stay. O(n).
    pub fn remove_events_of(&mut self, source: u64) {
        self.events
            .retain(|event| event.written || event.source != source);
        self.errors.retain(|error| error.fid != source);
    }

    fn append(
        &mut self,
        event: u32,
        source: Option<u64>,
        data: &[u8],
        wake: impl FnMut(M::Token),
    ) -> Result {
        if data.len() > MAX_EVENT {
            return Err(Errno::EINVAL);
        }
        if !self.events.push_with(|slot| slot.fill(event, source, data)) {
            return Err(Errno::EAGAIN);
        }
        self.release_all(wake);
        Ok(())
    }

    /// Queues an error; `wake` as in [`Self::push`].
    pub fn push_err(&mut self, error: ErrEvent, wake: impl FnMut(M::Token)) -> Push {
        if !self.errors.push_with(|slot| *slot = error) {
            return self.overrun(wake);
        }
        self.release_all(wake);
        Push::Queued
    }

    fn overrun(&mut self, wake: impl FnMut(M::Token)) -> Push {
        self.overruns = self.overruns.wrapping_add(1);
        self.overrun_to_report = true;
        self.release_all(wake);
        Push::Overrun
    }

    /// Copies the data of the oldest event to the front of `buf`.
    ///
    /// Errors, the first that applies: KFI_EAVAIL if an error must be read first; KFI_ETOOSMALL if
    /// `buf` is too short (the event stays);
    /// KFI_EOVERRUN once, if events were lost and no event is left; EAGAIN if there is nothing to
    /// read.
    pub fn read(&mut self, buf: &mut [u8], mode: Mode) -> Result<Read> {
        if !self.errors.is_empty() {
            return Err(Errno::KFI_EAVAIL);
        }
        let Some(event) = self.events.front() else {
            if self.overrun_to_report {
                self.overrun_to_report = mode == Mode::Peek;
                return Err(Errno::KFI_EOVERRUN);
            }
            return Err(Errno::EAGAIN);
        };
        let data = event.data();
        let read = Read {
            event: event.event(),
            len: data.len(),
        };
        buf.get_mut(..data.len())
            .ok_or(Errno::KFI_ETOOSMALL)?
            .copy_from_slice(data);
        if mode == Mode::Take {
            self.events.pop();
        }
        Ok(read)
    }

    /// Returns whether a user has written the oldest event.
    pub fn front_is_written(&self) -> bool {
        self.events.front().is_some_and(|event| event.written)
    }

    /// Removes the oldest event, which the caller has read with [`Mode::Peek`] and copied to the
    /// program. The caller serialises readers.
    pub fn drop_front(&mut self) {
        self.events.pop();
    }

    /// Returns the oldest error.
    ///
    /// Errors: EAGAIN if there is none.
    pub fn read_err(&mut self, mode: Mode) -> Result<ErrEvent> {
        let error = *self.errors.front().ok_or(Errno::EAGAIN)?;
        if mode == Mode::Take {
            self.errors.pop();
        }
        Ok(error)
    }

    /// Returns whether a read would return something other than EAGAIN.
    pub fn ready(&self) -> bool {
        !self.errors.is_empty() || !self.events.is_empty() || self.overrun_to_report
    }

    /// Arms a sleeper, unless there is something to read. O(log n).
    pub fn arm(&mut self, slot: M::Slot) -> Armed<M::Slot> {
        if self.ready() {
            return Armed::Ready(slot);
        }
        Armed::Waiting(self.sleepers.insert(0, slot))
    }

    /// Removes a sleeper after a timeout or a signal. Returns `None` if it was released before.
    /// O(log n).
    pub fn disarm(&mut self, key: &Key) -> Option<M::Token> {
        self.sleepers.remove(key)
    }

    /// Releases all sleepers. The queue does not change.
    pub fn release_all(&mut self, mut release: impl FnMut(M::Token)) {
        while let Some((_, token)) = self.sleepers.pop() {
            release(token);
        }
    }

    /// Returns the maximum number of events.
    pub fn capacity(&self) -> usize {
        self.events.capacity()
    }

    /// Returns the number of queued events.
    pub fn events(&self) -> usize {
        self.events.len()
    }

    /// Returns the number of queued errors.
    pub fn errors(&self) -> usize {
        self.errors.len()
    }

    /// Returns the number of events and errors that were ever lost.
    pub fn overruns(&self) -> u64 {
        self.overruns
    }

    /// Returns the number of sleepers.
    pub fn sleepers(&self) -> u32 {
        self.sleepers.len()
    }
}
