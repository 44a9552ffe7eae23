// SPDX-License-Identifier: GPL-2.0

//! A multi-receive buffer, posted once and filled by several messages.
//!
//! It stays posted while it has room; each message takes a part of it. Its release is always
//! reported, once: with the completion of the part that is finished last, or when it is cancelled.
//! The ticket of the operation is for that; the other parts have none.
//!
//! The lock is a leaf; it is taken under the endpoint's receive lock.

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
    memory: MemRef,
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
                memory,
                addr,
                context,
                reports,
                state <- new_spinlock!(State { room, ticket: None }, "MultiBuffer::state"),
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

    /// The memory of a part.
    pub(super) fn memory(&self, offset: u64, len: u64) -> MemRef {
        self.memory.slice(offset as usize, len as usize)
    }

    /// What the owner calls the byte at `offset`.
    pub(super) fn address(&self, offset: u64) -> u64 {
        self.addr.wrapping_add(offset)
    }

    /// Takes a part for a message of `len` bytes; `None` if the buffer is closed. Does not sleep.
    pub(super) fn take(&self, len: u64) -> Option<Part> {
        self.state.lock().room.take(len)
    }

    /// Whether it takes no more messages. Does not sleep.
    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().room.is_closed()
    }

    /// A part has been placed. Does not sleep.
    pub(super) fn finish(&self) -> End {
        let mut state = self.state.lock();
        match state.room.finish() {
            Release::No => End::Part,
            Release::Flag => state.ticket.take().map_or(End::Part, End::Last),
            Release::Cancelled => state.ticket.take().map_or(End::Part, End::LastOfCancelled),
        }
    }

    /// Takes no more messages; gives the ticket if no part is being filled, else the last of them
    /// will have it. Does not sleep.
    pub(super) fn cancel(&self) -> Option<Ticket> {
        let mut state = self.state.lock();
        if state.room.cancel() {
            state.ticket.take()
        } else {
            None
        }
    }
}
