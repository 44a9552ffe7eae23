// SPDX-License-Identifier: GPL-2.0

//! A multi-receive buffer: posted once and filled by several messages.
//!
//! The buffer stays posted while it has room. Each message takes a part of it. Its release is
//! always reported once: with the completion of the part that is finished last, or when the buffer
//! is cancelled. The ticket of the operation is for that; the other parts have none.
//!
//! Parts are filled concurrently and finish one after the other: [`MultiBuffer::finish`] writes the
//! completion of a part under the buffer's lock. So the completion that reports the release comes
//! after those of all other parts, and the owner may reuse the buffer when it sees it. The memory
//! is released before, because the owner may be at its limit of pinned memory.
//!
//! # Locks
//!
//! The lock of the state is taken under the endpoint's receive lock. The locks of the CQ, of the
//! counters and of the wait set that completions go to are taken under it.

use kfi_core::multi_recv::{
    MultiRecv,
    Part,
    Release, //
};

use super::prelude::*;

struct State {
    room: MultiRecv,
    /// The whole buffer, until it is released.
    memory: MemRef,
    ticket: Option<Ticket>,
}

/// The meaning of the end of a part.
pub(super) enum End {
    /// More parts will come, or are being filled.
    Part,
    /// The buffer is released with this part.
    Last(Ticket),
    /// The buffer was cancelled. Its release is reported after this part.
    LastOfCancelled(Ticket),
}

/// A posted multi-receive buffer.
#[pin_data]
pub(super) struct MultiBuffer {
    addr: u64,
    pub(super) context: u64,
    /// Whether successes of its parts make entries.
    pub(super) reports: bool,
    #[pin]
    state: SpinLock<State>,
}

impl MultiBuffer {
    /// Makes a buffer of `memory` with the owner's address `addr`. It is released when less than
    /// `min` bytes are left. Fails with `ENOMEM` and the ticket. Sleeps.
    pub(super) fn new(
        memory: MemRef,
        addr: u64,
        min: u64,
        ticket: Ticket,
    ) -> core::result::Result<Arc<Self>, (Error, Ticket)> {
        let room = MultiRecv::new(memory.len() as u64, min);
        let (context, reports) = (ticket.context, ticket.report);
        // The ticket must be returned if there is no memory, so it is stored after the allocation.
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

    /// The owner's address of the byte at `offset`.
    pub(super) fn address(&self, offset: u64) -> u64 {
        self.addr.wrapping_add(offset)
    }

    /// Takes a part for a message of `len` bytes, and its memory. `None`: the buffer is closed. The
    /// caller drops the memory before it finishes the part. Does not sleep.
    #[inline(always)]
    pub(super) fn take(&self, len: u64) -> Option<(Part, MemRef)> {
        let mut state = self.state.lock();
        let part = state.room.take(len)?;
        let memory = state
            .memory
            .slice(part.offset as usize, part.placement.len as usize);
        Some((part, memory))
    }

    /// Whether the buffer takes no more messages. Does not sleep.
    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().room.is_closed()
    }

    /// Finishes a part that was placed: calls `complete` under the lock, which writes the
    /// completion. Sleeps.
    #[inline(always)]
    pub(super) fn finish(&self, complete: impl FnOnce(End)) {
        let mut state = self.state.lock();
        if state.room.is_closed() && state.room.outstanding() == 1 {
            // This is the last part, and no other task can change that. Memory is not released
            // under the lock.
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

    /// Closes the buffer for messages. If no part is being filled, releases the memory and returns
    /// the ticket; otherwise the last part does that. Sleeps.
    pub(super) fn cancel(&self) -> Option<Ticket> {
        let (ticket, memory) = self.take_back()?;
        drop(memory);
        Some(ticket)
    }

    /// The same, and returns the memory. Does not sleep.
    pub(super) fn take_back(&self) -> Option<(Ticket, MemRef)> {
        let mut state = self.state.lock();
        if !state.room.cancel() {
            return None;
        }
        let (ticket, memory) = (state.ticket.take(), state.memory.take());
        // Without a ticket the memory is dropped here, outside the lock.
        drop(state);
        ticket.map(|ticket| (ticket, memory))
    }
}
