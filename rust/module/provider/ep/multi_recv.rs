// SPDX-License-Identifier: GPL-2.0

//! A multi-receive buffer, posted once and filled by several messages.
//!
//! It stays posted while it has room; each message takes a part of it. Its release is always
//! reported, once: with the completion of the part that is finished last, or when it is cancelled.
//! The ticket of the operation is for that; the other parts have none.
//!
//! Parts are placed at the same time and finish one after the other: [`MultiBuffer::finish`] has
//! the completion of a part written under the buffer's lock. So the one that says that the buffer
//! is released is behind those of all other parts, and the owner may use the buffer anew when it
//! sees it. The memory is let go of before, lest the owner be at its limit of pinned memory.
//!
//! # Locks
//!
//! The lock of the state is taken under the endpoint's receive lock; under it are taken those of
//! the CQ, the counters and the wait set that completions go to.

use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        SpinLock, //
    }, //
};

use kfi_core::multi_recv::{
    MultiRecv,
    Part,
    Release, //
};

use super::complete::Ticket;
use crate::mem::MemRef;

struct State {
    room: MultiRecv,
    /// All of the buffer, until it is released.
    memory: MemRef,
    ticket: Option<Ticket>,
}

/// What the end of a part means.
pub(super) enum End {
    /// More parts are to come, or are being filled.
    Part,
    /// The buffer is released with this part.
    Last(Ticket),
    /// The buffer was cancelled, and is released behind this part.
    LastOfCancelled(Ticket),
}

/// See the module's story.
#[pin_data]
pub(super) struct MultiBuffer {
    addr: u64,
    context: u64,
    reports: bool,
    #[pin]
    state: SpinLock<State>,
}

impl MultiBuffer {
    /// Makes one of `memory`, which its owner calls `addr`; it is released when less than `min`
    /// bytes are left. `ENOMEM` gives the ticket back. Sleeps.
    pub(super) fn new(
        memory: MemRef,
        addr: u64,
        min: u64,
        ticket: Ticket,
    ) -> core::result::Result<Arc<Self>, (Error, Ticket)> {
        let room = MultiRecv::new(memory.len() as u64, min);
        let (context, reports) = (ticket.context(), ticket.reports());
        // The ticket must come back if there is no memory, so it moves in after the allocation.
        let made = Arc::pin_init(
            pin_init!(Self {
                addr,
                context,
                reports,
                state <- new_spinlock!(
                    State {
                        room,
                        memory,
                        ticket: None,
                    },
                    "MultiBuffer::state"
                ),
            }),
            GFP_KERNEL_ACCOUNT,
        );
        match made {
            Ok(buffer) => {
                buffer.state.lock().ticket = Some(ticket);
                Ok(buffer)
            }
            Err(e) => Err((e, ticket)),
        }
    }

    /// The context of the operation.
    pub(super) fn context(&self) -> u64 {
        self.context
    }

    /// Whether successes of its parts make entries.
    pub(super) fn reports(&self) -> bool {
        self.reports
    }

    /// What the owner calls the byte at `offset`.
    pub(super) fn address(&self, offset: u64) -> u64 {
        self.addr.wrapping_add(offset)
    }

    /// Takes a part for a message of `len` bytes, and its memory, which is to be dropped before the
    /// part is finished; `None` if the buffer is closed. Does not sleep.
    #[inline(always)]
    pub(super) fn take(&self, len: u64) -> Option<(Part, MemRef)> {
        let mut state = self.state.lock();
        let part = state.room.take(len)?;
        let memory = state
            .memory
            .slice(part.offset as usize, part.placement.len as usize);
        Some((part, memory))
    }

    /// Whether it takes no more messages. Does not sleep.
    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().room.is_closed()
    }

    /// A part has been placed: `complete` writes its completion, under the lock. Sleeps.
    #[inline(always)]
    pub(super) fn finish(&self, complete: impl FnOnce(End)) {
        let mut state = self.state.lock();
        if state.room.is_closed() && state.room.outstanding() == 1 {
            // This is the last part, and nothing can change that. Memory is not let go of under the
            // lock.
            let memory = core::mem::replace(&mut state.memory, MemRef::empty());
            drop(state);
            drop(memory);
            state = self.state.lock();
        }
        complete(match state.room.finish() {
            Release::No => End::Part,
            Release::Flag => state.ticket.take().map_or(End::Part, End::Last),
            Release::Cancelled => state.ticket.take().map_or(End::Part, End::LastOfCancelled),
        });
    }

    /// Takes no more messages; gives the ticket, and lets go of the memory, if no part is being
    /// filled, else the last of them will. Sleeps.
    pub(super) fn cancel(&self) -> Option<Ticket> {
        let mut state = self.state.lock();
        if !state.room.cancel() {
            return None;
        }
        let memory = core::mem::replace(&mut state.memory, MemRef::empty());
        let ticket = state.ticket.take();
        drop(state);
        drop(memory);
        ticket
    }
}
