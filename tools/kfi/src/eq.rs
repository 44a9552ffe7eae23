// SPDX-License-Identifier: GPL-2.0
//! Event queues, which report control operations.

use std::sync::Arc;

use crate::{
    abi::{self, Call, calls},
    deadline::Deadline,
    enums::{EventKind, Wait},
    errno::Errno,
    error::Result,
    fabric::Fabric,
    object::{Inner, object},
    setters::setters,
    wait::WaitFd,
};

/// Opens an event queue; from [`Fabric::eq`].
#[derive(Debug)]
#[must_use = "nothing happens before `open`"]
pub struct EqBuilder {
    fabric: Fabric,
    entries: u32,
    wait: Wait,
    flags: u64,
    context: u64,
}

impl EqBuilder {
    pub(crate) fn new(fabric: &Fabric) -> Self {
        Self {
            fabric: fabric.clone(),
            entries: 0,
            wait: Wait::default(),
            flags: 0,
            context: 0,
        }
    }

    setters! {
        /// Events that it holds; 0, as without this: the module's default.
        entries(entries: u32) => entries = entries;

        /// How threads can wait on it.
        wait(wait: Wait) => wait = wait;
    }

    /// [`Eq::write`] is allowed.
    pub fn writable(mut self) -> Self {
        self.flags |= abi::KFI_WRITE;
        self
    }

    /// A number for the caller's own use.
    pub fn context(mut self, context: u64) -> Self {
        self.context = context;
        self
    }

    /// Opens it.
    ///
    /// # Errors
    ///
    /// `EINVAL`: more entries than [`Query::max_eq`](crate::Query::max_eq);
    /// `EMFILE`; `ENOMEM`.
    pub fn open(self) -> Result<Eq> {
        let (wait_obj, wait_set) = self.wait.raw();
        let mut arg = abi::kfabric_eq_open {
            fabric: self.fabric.handle(),
            entries: self.entries,
            wait_obj,
            wait_set,
            flags: self.flags,
            context: self.context,
            ..Call::sized()
        };
        let device = self.fabric.device();
        calls::plain(device, &mut arg)?;
        let mut parents = vec![self.fabric.as_hold()];
        if let Wait::Set(set) = &self.wait {
            parents.push(set.as_hold());
        }
        Ok(Eq {
            inner: Inner::new(device, arg.handle, parents),
        })
    }
}

/// An event.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Kind of the event.
    pub kind: EventKind,
    /// Its data as it came: the bytes given to [`Eq::write`], or the data that
    /// [`Event::entry`] or [`Event::connection`] decodes.
    pub data: Vec<u8>,
}

/// The subject of an event that the module made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EventEntry {
    /// Handle of the object.
    pub handle: u32,
    /// Context of the object or of the call.
    pub context: u64,
    /// [`EventKind::AvComplete`]: number of addresses that were inserted.
    pub data: u64,
}

impl Event {
    /// The event as one that the module made: object, context and a number.
    ///
    /// `None` if the data is too short for that.
    pub fn entry(&self) -> Option<EventEntry> {
        let bytes = self.data.get(..size_of::<abi::kfabric_eq_entry>())?;
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_ne_bytes(word)
        };
        Some(EventEntry {
            handle: u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
            context: word(8),
            data: word(16),
        })
    }
}

/// An event that reports a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrEvent {
    /// Handle of the object.
    pub handle: u32,
    /// Why it failed.
    pub err: Errno,
    /// The module's own number for it.
    pub prov_errno: u32,
    /// Context of the call that failed.
    pub context: u64,
    /// Insertion of addresses: index of the one that failed.
    pub data: u64,
    /// Private data that came with a rejection, filled up with zeros.
    pub private: Vec<u8>,
}

/// An event queue.
///
/// ```no_run
/// # fn f(fabric: kfi::Fabric) -> kfi::Result<()> {
/// use kfi::{Deadline, EventKind};
///
/// let eq = fabric.eq().writable().open()?;
/// eq.write(EventKind::Notify, b"hello")?;
/// let event = eq.read(Deadline::POLL)?.expect("it was just written");
/// assert_eq!(event.data, b"hello");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Eq {
    inner: Arc<Inner>,
}

object!(Eq);

impl Eq {
    /// Takes the next event, and sleeps while there is none; `None`: the
    /// deadline has passed.
    ///
    /// # Errors
    ///
    /// - `KFI_EAVAIL`: an error event must be read first.
    /// - `KFI_EOVERRUN`: events were lost; reported once.
    /// - `EINVAL`: this event queue has no wait object of its own.
    /// - `ENOSPC`: 1,024 threads sleep in such calls.
    /// - `EINTR`: a signal.
    pub fn read(&self, deadline: impl Into<Deadline>) -> Result<Option<Event>> {
        self.take(deadline.into(), 0)
    }

    /// As [`Eq::read`], but the event stays.
    ///
    /// # Errors
    ///
    /// As [`Eq::read`].
    pub fn peek(&self, deadline: impl Into<Deadline>) -> Result<Option<Event>> {
        self.take(deadline.into(), abi::KFI_PEEK)
    }

    fn take(&self, deadline: Deadline, flags: u64) -> Result<Option<Event>> {
        let mut data = vec![0; abi::KFABRIC_MAX_EVENT as usize];
        loop {
            let (arg, result) =
                calls::eq_read(self.device(), self.handle(), deadline, flags, &mut data);
            let len = arg.len as usize;
            match result {
                Ok(()) => {
                    data.truncate(len);
                    return Ok(Some(Event {
                        kind: EventKind::from_raw(arg.event),
                        data,
                    }));
                }
                Err(error) if error.is_again() || error.is_timeout() => return Ok(None),
                Err(error) if error.is(Errno::KFI_ETOOSMALL) && len > data.len() => {
                    data.resize(len, 0);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes the next error event; `None`: there is none.
    ///
    /// # Errors
    ///
    /// Only those of every call.
    pub fn readerr(&self) -> Result<Option<ErrEvent>> {
        let mut private = vec![0; abi::KFABRIC_MAX_REJECT_DATA as usize];
        match calls::eq_readerr(self.device(), self.handle(), &mut private) {
            Ok(arg) => Ok(Some(ErrEvent {
                handle: arg.handle,
                err: Errno::from_raw(arg.err as i32),
                prov_errno: arg.prov_errno,
                context: arg.context,
                data: arg.data,
                private: {
                    private.truncate(arg.err_data_size as usize);
                    private
                },
            })),
            Err(error) if error.is_again() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Puts an event into the queue.
    ///
    /// # Errors
    ///
    /// `EINVAL`: not opened as [`writable`](EqBuilder::writable), or more than
    /// 320 bytes; `EAGAIN`: the queue is full.
    pub fn write(&self, kind: EventKind, data: &[u8]) -> Result<()> {
        calls::eq_write(self.device(), self.handle(), kind.raw(), data)
    }

    /// A descriptor that is readable while there is an event or error event.
    ///
    /// # Errors
    ///
    /// `EINVAL`: opened with [`Wait::None`]; `EMFILE`, `ENFILE`.
    pub fn wait_fd(&self) -> Result<WaitFd> {
        let fd = calls::getwait(self.device(), self.handle())?;
        Ok(WaitFd::new(fd, self.as_hold()))
    }
}

const _: () = assert!(size_of::<abi::kfabric_eq_entry>() == 24);

/// Events fit a buffer of the largest size at once.
const _: () = assert!(abi::KFABRIC_MAX_EVENT as usize >= size_of::<abi::kfabric_eq_entry>());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_decoded() {
        let mut data = Vec::new();
        data.extend(7u32.to_ne_bytes());
        data.extend(0u32.to_ne_bytes());
        data.extend(8u64.to_ne_bytes());
        data.extend(9u64.to_ne_bytes());
        let event = Event {
            kind: EventKind::AvComplete,
            data: data.clone(),
        };
        assert_eq!(
            event.entry(),
            Some(EventEntry {
                handle: 7,
                context: 8,
                data: 9
            })
        );
        data.pop();
        let short = Event { data, ..event };
        assert_eq!(short.entry(), None);
    }
}
