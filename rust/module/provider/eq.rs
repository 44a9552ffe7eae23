// SPDX-License-Identifier: GPL-2.0

//! Event queue: control events, as specified by fi_eq(3).
//!
//! Memory regions, address vectors, passive and connected endpoints report to the EQ that they are
//! bound to. A program that opened it with `KFI_WRITE` writes events of its own. The core defines
//! the behaviour of the queue ([`kfi_core::eq`]). This file adds memory, locks, and tasks to wake.
//!
//! A reader first gets a copy of an event, and then the event is removed. It is copied under the
//! spin lock and given to the reader under a mutex, which serialises readers. So a program whose
//! buffer is too short or not accessible loses no event. Under the mutex no page of the program is
//! faulted in: a page that is not present ends the read with `EFAULT`, and the caller faults it in
//! and reads again.
//!
//! # Locks
//!
//! `Eq::reader` (mutex) -> `Eq::state` (spin lock). The locks of wait queues and wait sets are not
//! taken under the spin lock.

#[cfg(kfi_kunit)]
#[path = "../../../kunit/eq.rs"]
mod kunit;

use kernel::sync::SpinLockGuard;

use kfi_core::{
    enums::EqEvent,
    eq::{
        Armed,
        ErrData,
        ErrEvent,
        Event,
        EventQueue,
        Mode,
        Push,
        MAX_EVENT, //
    },
    limits, //
};

use super::{
    fabric::Fabric,
    prelude::*,
    wait::{
        self,
        handler::ConsumerSide,
        line::{
            with_memory,
            Line,
            NewWaiter,
            RemovedWaiter, //
        },
        sleep,
        Readable,
        WaitObj,
        WakeReason,
        READABLE, //
    }, //
};
use crate::{
    net::LinkName,
    shim::{
        anon_file::PendingFd,
        bindings::{
            kfabric_eq_cm_entry,
            kfabric_eq_entry,
            kfabric_sockaddr, //
        },
        errno::number,
        memory::kmalloc_array_size,
        user::PagefaultDisabled,
        wait::{
            Sleeper,
            Waker, //
        }, //
    }, //
};

/// The attributes of an EQ.
pub(crate) struct EqAttr {
    /// The number of events that it holds; 0: the default.
    pub(crate) entries: u32,
    pub(crate) wait: WaitObj,
    /// Whether the owner may write events.
    pub(crate) writable: bool,
    /// Of the EQ of a kernel consumer.
    pub(crate) consumer: Option<ConsumerSide>,
}

/// An event as a reader sees it.
pub(crate) struct EventRead<'a> {
    pub(crate) event: u32,
    pub(crate) data: &'a [u8],
    /// The owner has written it.
    pub(crate) written: bool,
}

/// The content of a connection event.
pub(super) struct Connection<'a> {
    /// The number of a connection request; 0 for other events.
    pub(super) connreq: u32,
    /// The serial number of its passive endpoint; `None` for other events.
    pub(super) pep: Option<u64>,
    /// This end's address.
    pub(super) local: SockAddr,
    /// The peer's address.
    pub(super) peer: SockAddr,
    pub(super) link: &'a LinkName,
    pub(super) private: &'a [u8],
}

// An event has room for an entry and the longest private data.
kernel::static_assert!(size_of::<kfabric_eq_cm_entry>() + limits::MAX_ACCEPT_DATA <= MAX_EVENT);

/// Bytes of an event that is not of a connection.
const ENTRY_LEN: usize = size_of::<kfabric_eq_entry>();

/// An address in the format of the interface.
fn raw(addr: &SockAddr) -> kfabric_sockaddr {
    kernel::transmute::FromBytes::from_bytes_copy(&addr.to_raw()).unwrap_or_default()
}

type State = EventQueue<KVVec<Event>, KVVec<ErrEvent>, Line<Waker>>;

/// An event queue of a fabric.
#[pin_data]
pub(crate) struct Eq {
    fabric: UseRef<Fabric>,
    entries: u32,
    writable: bool,
    wait: WaitObj,
    consumer: Option<ConsumerSide>,
    uses: UseCount,
    #[pin]
    state: SpinLock<State>,
    #[pin]
    reader: Mutex<()>,
    #[pin]
    readable: WaitQueue,
    _memory: Allowance,
}

/// Wakes a sleeper. The caller holds the lock of `state`.
fn wake(left: RemovedWaiter<Waker>) {
    left.token.wake(WakeReason::Ready.reason());
}

impl Eq {
    /// Opens an EQ of `fabric`. Fails with `EINVAL` for more than `KFABRIC_MAX_EQ` events, or a
    /// wait set of another fabric; `EBADF` if the fabric is closed; `ENOMEM`. Sleeps.
    pub(crate) fn open(fabric: &Arc<Fabric>, attr: EqAttr, ident: Ident) -> Result<Arc<Self>> {
        attr.wait.check_fabric(fabric)?;
        let entries = match attr.entries {
            0 => limits::DEFAULT_EQ,
            entries if entries <= limits::MAX_EQ => entries,
            _ => return Err(EINVAL),
        };
        let slots = entries as usize;
        let bytes = kmalloc_array_size::<Event>(slots) + kmalloc_array_size::<ErrEvent>(slots);
        let memory = ident.budget.take_for::<Self>(bytes)?;
        let state = EventQueue::new(
            KVVec::from_elem(Event::EMPTY, slots, GFP_KERNEL_ACCOUNT)?,
            KVVec::from_elem(ErrEvent::default(), slots, GFP_KERNEL_ACCOUNT)?,
            Line::new(),
        );
        let fabric = UseRef::new(fabric.clone())?;
        Arc::pin_init(
            pin_init!(Self {
                fabric,
                entries,
                writable: attr.writable,
                wait: attr.wait,
                consumer: attr.consumer,
                uses: UseCount::new(),
                state <- new_spinlock!(state, "Eq::state"),
                reader <- new_mutex!((), "Eq::reader"),
                readable <- new_wait_queue!("Eq::readable"),
                _memory: memory,
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    pub(crate) fn fabric(&self) -> &Arc<Fabric> {
        self.fabric.arc()
    }

    /// The number of events that it holds.
    pub(crate) fn entries(&self) -> u32 {
        self.entries
    }

    /// Reports that the memory region `mr` is registered. Does not sleep.
    pub(super) fn mr_complete(&self, mr: &Ident) {
        self.post(EqEvent::MrComplete, mr, mr.context, 0);
    }

    /// Reports that a call with `context` has inserted `inserted` addresses in `av`. Does not
    /// sleep.
    pub(super) fn av_complete(&self, av: &Ident, context: u64, inserted: u64) {
        self.post(EqEvent::AvComplete, av, context, inserted);
    }

    /// Reports that a call with `context` could not insert its address `index` in `av`. Does not
    /// sleep.
    pub(super) fn av_error(&self, av: &Ident, context: u64, index: u64, error: Error) {
        self.post_error(ErrEvent {
            fid: av.fid,
            err: number(error),
            prov_errno: 0,
            context,
            data: index,
            err_data: ErrData::NONE,
        });
    }

    /// Reports an event of a connection. Returns whether the queue had room; if not, the event is
    /// lost, apart from a request, which the caller refuses then. In the EQ of a kernel
    /// consumer the entry has, in place of the context, which an event does not have there, the
    /// identifier of the endpoint or the serial number of the passive one. Does not sleep.
    pub(super) fn connection(&self, event: EqEvent, about: &Ident, what: &Connection<'_>) -> bool {
        let mut bytes = [0; MAX_EVENT];
        let head = kfabric_eq_cm_entry {
            handle: about.handle(),
            connreq: what.connreq,
            context: match self.consumer {
                None => about.context,
                Some(_) => what.pep.unwrap_or(about.fid),
            },
            src_addr: raw(&what.local),
            dest_addr: raw(&what.peer),
            link: what.link.to_array(),
        };
        let head = kernel::transmute::AsBytes::as_bytes(&head);
        let len = head.len().saturating_add(what.private.len());
        let parts = [head, what.private];
        for (to, from) in bytes.iter_mut().zip(parts.iter().copied().flatten()) {
            *to = *from;
        }
        let event_bytes = bytes.get(..len).unwrap_or(&bytes);
        let mut state = self.lock_for_arrival();
        let queued = if event == EqEvent::ConnReq {
            state
                .push_request(event.into(), about.fid, event_bytes, wake)
                .is_ok()
        } else {
            state.push(event.into(), about.fid, event_bytes, wake) == Ok(Push::Queued)
        };
        drop(state);
        self.arrived();
        queued
    }

    /// Reports that `about` has not been connected. `prov_errno` is the reason in the peer's REJ,
    /// and `private` its private data. Does not sleep.
    pub(super) fn not_connected(&self, about: &Ident, err: Errno, prov_errno: u32, private: &[u8]) {
        self.post_error(ErrEvent {
            fid: about.fid,
            err: err.number(),
            prov_errno,
            context: about.context,
            data: 0,
            err_data: ErrData::new(private),
        });
    }

    /// Queues an event of the module. If there is no room, the event is lost; the EQ counts that
    /// and reports it to its readers.
    fn post(&self, event: EqEvent, about: &Ident, context: u64, data: u64) {
        let words = self.entry_bytes(about, context, data);
        // An entry is not longer than an event can be, so it is queued or an overrun.
        let pushed: Result<Push, _> =
            (self.lock_for_arrival()).push(event.into(), about.fid, &words, wake);
        debug_assert!(pushed.is_ok());
        self.arrived();
    }

    /// Removes the events of an object that is closed, which has reported its last one. No reader
    /// gets one of them afterwards. Sleeps.
    pub(super) fn remove_events_of(&self, about: &Ident) {
        // A reader gives the oldest event away, and then removes it.
        let _reader = self.reader.lock();
        self.state.lock().remove_events_of(about.fid);
    }

    /// The bytes of `struct kfabric_eq_entry`; for a kernel consumer those of `struct
    /// kfi_eq_entry`, which has the whole identifier in place of the handle.
    fn entry_bytes(&self, about: &Ident, context: u64, data: u64) -> [u8; ENTRY_LEN] {
        let entry = kfabric_eq_entry {
            handle: about.handle(),
            reserved: 0,
            context,
            data,
        };
        let mut bytes = [0; ENTRY_LEN];
        bytes.copy_from_slice(kernel::transmute::AsBytes::as_bytes(&entry));
        if let (Some(_), Some(head)) = (&self.consumer, bytes.first_chunk_mut()) {
            *head = about.fid.to_ne_bytes();
        }
        bytes
    }

    /// Locks the state, to which something is added.
    fn lock_for_arrival(&self) -> SpinLockGuard<'_, State> {
        let state = self.state.lock();
        if let Some(consumer) = &self.consumer {
            consumer.arrives();
        }
        state
    }

    /// What the EQ of a kernel consumer has for it.
    pub(crate) fn consumer(&self) -> Option<&ConsumerSide> {
        self.consumer.as_ref()
    }

    /// The wait queue for a kernel consumer. See [`WaitObj::queue`].
    pub(crate) fn wait_queue(&self) -> Result<&WaitQueue> {
        self.wait.queue()
    }

    fn post_error(&self, error: ErrEvent) {
        // The event is queued or lost; the queue counts losses.
        let _ = self.lock_for_arrival().push_err(error, wake);
        self.arrived();
    }

    /// Queues an event of the owner (kfi_eq_write). Fails with `EINVAL` if the EQ was opened
    /// without `KFI_WRITE`, or for more than `KFABRIC_MAX_EVENT` bytes; `EAGAIN` if the queue is
    /// full. Does not sleep.
    pub(crate) fn write(&self, event: u32, data: &[u8]) -> Result {
        if !self.writable {
            return Err(EINVAL);
        }
        self.lock_for_arrival()
            .write(event, data, wake)
            .map_err(to_error)?;
        self.arrived();
        Ok(())
    }

    /// Wakes pollers and signals the wait set. The caller does not hold the lock.
    fn arrived(&self) {
        // A poller enters the wait queue before it looks at the queue. So either it saw the new
        // event, or this check finds it on the wait queue.
        if self.readable.has_sleepers() {
            self.readable.wake_poll(READABLE);
        }
        self.wait.signal();
    }

    /// Gives the oldest event to `sink`, and then removes it unless `peek` is set (kfi_eq_read).
    ///
    /// Fails with `KFI_EAVAIL` if an error event must be read first; the error of `sink`, after
    /// which the event stays, among them `EFAULT` if the program's memory is not present;
    /// `KFI_EOVERRUN` if events were lost, reported once; `EAGAIN` if the queue is empty. Sleeps.
    pub(crate) fn read(&self, peek: bool, sink: impl FnOnce(EventRead<'_>) -> Result) -> Result {
        if self.consumer.as_ref().is_some_and(ConsumerSide::is_empty) {
            return Err(EAGAIN);
        }
        let _reader = self.reader.lock();
        let mut data = [0; MAX_EVENT];
        let (read, written) = {
            let mut state = self.state.lock();
            match state.read(&mut data, Mode::Peek) {
                Ok(read) => (read, state.front_is_written()),
                Err(error) => {
                    if let (Errno::EAGAIN, Some(consumer)) = (error, &self.consumer) {
                        consumer.finds_empty();
                    }
                    if !peek && error == Errno::KFI_EOVERRUN {
                        // The loss was reported and is not reported again.
                        let _ = state.read(&mut [], Mode::Take);
                    }
                    return Err(to_error(error));
                }
            }
        };
        let _no_faults = PagefaultDisabled::new();
        sink(EventRead {
            event: read.event,
            data: data.get(..read.len).unwrap_or_default(),
            written,
        })?;
        if !peek {
            // Events are removed under the lock of the readers, which this thread has.
            self.state.lock().drop_front();
        }
        Ok(())
    }

    /// [`read`](Self::read) that sleeps until there is something to read (kfi_eq_sread).
    ///
    /// Also fails with `EINVAL` for a wait with `KFI_WAIT_NONE` or `KFI_WAIT_SET`; `ETIMEDOUT`;
    /// `ERESTARTSYS`; `EBADF` if the EQ was closed before or during the wait; `ENOSPC` if
    /// [`limits::MAX_WAITERS`] tasks sleep here; `ENOMEM`. With
    /// [`Deadline::Poll`] the call does not wait. A wait is a use of the EQ.
    pub(crate) fn sread(
        self: &Arc<Self>,
        peek: bool,
        deadline: Deadline,
        mut sink: impl FnMut(EventRead<'_>) -> Result,
    ) -> Result {
        if deadline == Deadline::Poll {
            return self.read(peek, sink);
        }
        if !self.wait.is_pollable() {
            return Err(EINVAL);
        }
        let _using = UseGuard::new(&**self)?;
        loop {
            if self.is_ready() {
                match self.read(peek, &mut sink) {
                    // Another reader was faster.
                    Err(error) if error == EAGAIN => {}
                    result => return result,
                }
            }
            self.wait_ready(deadline)?;
        }
    }

    /// Sleeps until there is something to read. Another reader may take it before this returns.
    fn wait_ready(&self, deadline: Deadline) -> Result {
        pin_init::stack_pin_init!(let sleeper = Sleeper::new());
        let armed = with_memory(|memory| {
            let token = sleeper.as_ref().waker();
            let mut state = self.state.lock();
            if self.uses.is_closed() {
                return Err(EBADF);
            }
            // An event, of a peer, wakes all of them under the lock.
            if state.sleepers() >= limits::MAX_WAITERS {
                return Err(ENOSPC);
            }
            if memory.is_none() && state.sleepers() != 0 {
                return Ok(None);
            }
            let memory = memory.take();
            Ok(Some(state.arm(NewWaiter { token, memory })))
        })?;
        let Armed::Waiting(key) = armed else {
            return Ok(());
        };
        let leave = || self.state.lock().disarm(&key).is_some();
        match sleep(&sleeper, deadline, leave)? {
            WakeReason::Closed => Err(EBADF),
            _ => Ok(()),
        }
    }

    /// Gives the oldest error event to `sink`, and then removes it unless `peek` is set
    /// (kfi_eq_readerr). Fails with `EAGAIN` if there is no error event; the error of `sink` as for
    /// [`read`](Self::read), after which the event stays. Sleeps.
    pub(crate) fn readerr(&self, peek: bool, sink: impl FnOnce(&ErrEvent) -> Result) -> Result {
        let _reader = self.reader.lock();
        let error = self.state.lock().read_err(Mode::Peek).map_err(to_error)?;
        let _no_faults = PagefaultDisabled::new();
        sink(&error)?;
        if !peek {
            self.state.lock().read_err(Mode::Take).map_err(to_error)?;
        }
        Ok(())
    }

    /// Makes a descriptor, which is a use of the EQ. See [`WaitObj::getwait`]. Also fails with
    /// `EMFILE`, `ENFILE`, `ENOMEM`. Sleeps.
    pub(crate) fn getwait(self: &Arc<Self>) -> Result<PendingFd> {
        self.wait.getwait(&**self, || wait::open_fd(self))
    }
}

impl Object for Eq {
    fn uses(&self) -> &UseCount {
        &self.uses
    }

    fn teardown(&self) {
        self.state.lock().release_all(|left| {
            left.token.wake(WakeReason::Closed.reason());
        });
        self.readable.wake_all();
        self.wait.release();
        self.fabric.release();
    }
}

impl Readable for Eq {
    const NAME: &'static CStr = c"[kfabric-eq]";

    fn readable(&self) -> &WaitQueue {
        &self.readable
    }

    fn is_ready(&self) -> bool {
        self.state.lock().ready()
    }
}
