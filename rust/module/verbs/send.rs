// SPDX-License-Identifier: GPL-2.0

//! The send queue of a QP: a ring of work requests.
//!
//! ```text
//!   head            issued                    tail
//!    | in the QP, or done | posted, not issued |
//! ```
//!
//! A post stores a work request at the tail: in any context, under a lock with interrupts off. The
//! [issuer](super::issue) takes work requests from `issued` on, one task at a time, in process
//! context, and gives them to the QP of [`net`](crate::net). A result is stored in the work
//! request's slot. Work requests leave the ring at its head only, by one task at a time, which adds
//! their entries to the CQ ([`Qp::reap`](super::qp::Qp::reap)). So the entries of a send queue have
//! the order of the posts, in whatever order the results come.
//!
//! A change to RESET empties the ring and increments its generation: results of earlier generations
//! have no effect.

use core::net::IpAddr;

use kernel::{
    new_spinlock_irq,
    prelude::*,
    sync::SpinLockIrq, //
};

use kfi_roce::{
    headers::Qpn,
    rc::{
        Op,
        Status, //
    },
    state::{
        Posting,
        State, //
    }, //
};

use super::{
    keys::Rights,
    sge::{
        Sge,
        MAX_SGE,
        NO_SGE, //
    }, //
};
use crate::{
    mem::{
        payload,
        Inline,
        MemRef, //
    },
    shim::{
        memory::{
            kmalloc_array_size,
            kmalloc_size, //
        },
        wait::{
            new_wait_queue,
            Signals,
            WaitQueue, //
        }, //
    }, //
};

/// What a work request does.
#[derive(Clone, Copy)]
pub(super) enum SendOp {
    /// An operation of a reliable connection.
    Rc(Op),
    /// A datagram.
    Ud {
        /// The address that it is sent from.
        from: IpAddr,
        /// The address that it is sent to.
        to: IpAddr,
        /// Its traffic class.
        class: u8,
        /// The QP there.
        qpn: Qpn,
        /// Its Q key.
        qkey: u32,
        /// Immediate data.
        imm: Option<u32>,
    },
    /// Registers the memory that was mapped to a region.
    Register {
        /// The key that it gets.
        key: u32,
        /// The address of its first byte.
        base: u64,
        /// What it grants.
        rights: Rights,
    },
    /// Ends what a region grants under a key.
    Invalidate {
        /// The key.
        key: u32,
    },
}

/// A work request, as it is posted.
#[derive(Clone, Copy)]
pub(super) struct WorkRequest {
    /// The poster's ID of it.
    pub(super) wr_id: u64,
    /// What it does.
    pub(super) op: SendOp,
    /// Bytes of its memory.
    pub(super) len: u32,
    /// Begin only when all READs and atomics posted before have completed.
    pub(super) fence: bool,
    /// The peer's completion is a solicited event.
    pub(super) solicited: bool,
    /// A successful completion is reported.
    pub(super) signaled: bool,
}

impl WorkRequest {
    /// Whether it is issued only when all work requests before it have left the ring. They may use
    /// the memory that an invalidation takes away.
    fn waits_for_head(&self) -> bool {
        match self.op {
            SendOp::Invalidate { .. } => true,
            SendOp::Register { .. } => self.fence,
            SendOp::Rc(_) | SendOp::Ud { .. } => false,
        }
    }
}

/// A place in the ring.
#[derive(Clone, Copy)]
struct Slot {
    request: WorkRequest,
    /// SGEs of the slot that are used.
    sges: u8,
    /// Bytes of the slot's inline data; then it has no SGE.
    inline: u16,
    /// The result, if it is known.
    status: Option<Status>,
}

/// A position in the ring, in one generation of it. It goes through the QP as the context of a work
/// request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Place(u64);

impl Place {
    fn new(generation: u32, position: u32) -> Self {
        Self(u64::from(generation) << 32 | u64::from(position))
    }

    /// From the context of a work request.
    pub(super) fn from_context(context: u64) -> Self {
        Self(context)
    }

    /// The context of a work request.
    pub(super) fn context(self) -> u64 {
        self.0
    }

    fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn position(self) -> u32 {
        self.0 as u32
    }
}

/// A work request that is to be issued.
pub(super) struct Next {
    /// Where it is.
    pub(super) place: Place,
    /// The work request.
    pub(super) request: WorkRequest,
    /// Its memory.
    pub(super) bytes: Bytes,
}

/// The memory of a work request.
#[expect(clippy::large_enum_variant, reason = "it is on the stack")]
pub(super) enum Bytes {
    /// Bytes that were copied when it was posted.
    Inline(MemRef),
    /// SGEs, whose keys are not resolved yet.
    Sges {
        /// SGEs; the first `count` of them are used.
        sges: [Sge; MAX_SGE],
        /// How many.
        count: usize,
    },
}

/// A work request that has left the ring.
#[derive(Clone, Copy)]
pub(super) struct Done {
    /// The work request.
    pub(super) request: WorkRequest,
    /// Its result.
    pub(super) status: Status,
}

/// What [`SendQueue::take_done`] has found.
pub(super) struct Reaped {
    /// How many of the array are filled.
    pub(super) count: usize,
    /// The head is a work request that failed before it got to the QP: the caller moves the QP to
    /// ERR, and stores its result ([`SendQueue::store`]).
    pub(super) failed: Option<(Place, Status)>,
}

struct Ring {
    slots: KVVec<Slot>,
    /// `max_sge` for each slot.
    sges: KVVec<Sge>,
    head: u32,
    issued: u32,
    tail: u32,
    /// A task issues.
    issuing: bool,
    /// A task reaps.
    reaping: bool,
    /// The work request at `issued` has failed: nothing is issued until it is the head.
    failed: Option<Status>,
    /// The state of the QP, as far as it decides about posts.
    state: State,
    generation: u32,
    /// A task waits until no task issues or reaps.
    awaited: bool,
}

impl Ring {
    fn is_idle(&self) -> bool {
        !self.issuing && !self.reaping
    }

    /// Whether there is a work request to be issued next, at `index`, that is issued only when it
    /// is the head.
    fn next_waits_for_head(&self, index: usize) -> bool {
        let slot = self.slots.get(index);
        self.issued != self.tail && slot.is_some_and(|slot| slot.request.waits_for_head())
    }
}

/// A send queue.
#[pin_data]
pub(super) struct SendQueue {
    /// A leaf. Any context.
    #[pin]
    ring: SpinLockIrq<Ring>,
    /// The task that waits until no task issues or reaps.
    #[pin]
    idle: WaitQueue,
    /// The inline data of all slots.
    inline: MemRef,
    max_inline: u32,
    max_sge: u32,
    /// Places of the ring, less 1: a power of two, less 1.
    mask: u32,
}

const EMPTY: Slot = Slot {
    request: WorkRequest {
        wr_id: 0,
        op: SendOp::Rc(Op::Read { va: 0, rkey: 0 }),
        len: 0,
        fence: false,
        solicited: false,
        signaled: false,
    },
    sges: 0,
    inline: 0,
    status: None,
};

impl SendQueue {
    /// Bytes of a queue.
    pub(super) fn bytes(max_wr: u32, max_sge: u32, max_inline: u32) -> usize {
        let slots = max_wr.max(1).next_power_of_two() as usize;
        let sges = slots.saturating_mul(max_sge as usize);
        let inline = slots.saturating_mul(max_inline as usize);
        kmalloc_array_size::<Slot>(slots)
            .saturating_add(kmalloc_array_size::<Sge>(sges))
            .saturating_add(kmalloc_size(inline))
    }

    /// A queue for `max_wr` work requests, rounded up to a power of two, with `max_sge` SGEs or
    /// `max_inline` bytes each. Fails with `ENOMEM`. Sleeps.
    pub(super) fn new(
        max_wr: u32,
        max_sge: u32,
        max_inline: u32,
    ) -> Result<impl PinInit<Self, Error>> {
        let slots = max_wr.max(1).next_power_of_two();
        let len = slots as usize;
        let sges = len.checked_mul(max_sge as usize).ok_or(ENOMEM)?;
        let inline = len.checked_mul(max_inline as usize).ok_or(ENOMEM)?;
        let ring = Ring {
            slots: KVVec::from_elem(EMPTY, len, GFP_KERNEL_ACCOUNT)?,
            sges: KVVec::from_elem(NO_SGE, sges, GFP_KERNEL_ACCOUNT)?,
            head: 0,
            issued: 0,
            tail: 0,
            issuing: false,
            reaping: false,
            failed: None,
            state: State::Reset,
            generation: 0,
            awaited: false,
        };
        let inline = MemRef::to_be_filled(inline, true)?;
        Ok(try_pin_init!(Self {
            ring <- new_spinlock_irq!(ring, "SendQueue::ring"),
            idle <- new_wait_queue!("SendQueue::idle"),
            inline,
            max_inline,
            max_sge,
            mask: slots - 1,
        }? Error))
    }

    /// The SGEs that a work request may have.
    pub(super) fn max_sge(&self) -> u32 {
        self.max_sge
    }

    /// The inline bytes that a work request may have.
    pub(super) fn max_inline(&self) -> u32 {
        self.max_inline
    }

    /// Work requests that there is room for.
    pub(super) fn capacity(&self) -> u32 {
        self.mask + 1
    }

    fn index(&self, position: u32) -> usize {
        (position & self.mask) as usize
    }

    /// Posts a work request with SGEs, at most [`max_sge`](Self::max_sge), or with inline data, at
    /// most [`max_inline`](Self::max_inline). Fails with `EINVAL` in a state in which nothing can
    /// be posted, `ENOMEM` if the queue is full. Any context.
    pub(super) fn post(
        &self,
        request: &WorkRequest,
        sges: &[Sge],
        inline: Option<&Inline>,
    ) -> Result {
        let mut ring = self.ring.lock();
        if ring.state.post_send() == Posting::Refused {
            return Err(EINVAL);
        }
        let position = ring.tail;
        if position.wrapping_sub(ring.head) > self.mask {
            return Err(ENOMEM);
        }
        let index = self.index(position);
        let bytes = inline.map_or(&[] as &[u8], Inline::as_slice);
        let at = index.saturating_mul(self.max_inline as usize);
        payload::store(&self.inline, at, bytes);
        let first = index.saturating_mul(self.max_sge as usize);
        if let Some(room) = ring.sges.get_mut(first..) {
            for (to, from) in room.iter_mut().zip(sges) {
                *to = *from;
            }
        }
        if let Some(slot) = ring.slots.get_mut(index) {
            *slot = Slot {
                request: *request,
                // CAST: At most `MAX_SGE`.
                sges: sges.len() as u8,
                // CAST: At most `MAX_INLINE`.
                inline: bytes.len() as u16,
                status: None,
            };
        }
        ring.tail = position.wrapping_add(1);
        Ok(())
    }

    /// The next work request to be issued, for the only task that issues: a call with `first` makes
    /// the caller that task. `None`: another task issues, and looks again before it ends; or there
    /// is nothing to issue now, and the caller is not that task any more. Any context.
    pub(super) fn next(&self, first: bool) -> Option<Next> {
        let mut ring = self.ring.lock();
        if first && ring.issuing {
            return None;
        }
        let position = ring.issued;
        let index = self.index(position);
        ring.issuing = position != ring.tail
            && ring.failed.is_none()
            && (position == ring.head || !ring.next_waits_for_head(index));
        if !ring.issuing {
            self.wake_idle(&ring);
            return None;
        }
        let slot = ring.slots.get(index)?;
        let request = slot.request;
        let bytes = if slot.inline != 0 {
            let at = index.saturating_mul(self.max_inline as usize);
            Bytes::Inline(self.inline.slice(at, slot.inline.into()))
        } else {
            let count = slot.sges.into();
            let first = index.saturating_mul(self.max_sge as usize);
            let mut sges = [NO_SGE; MAX_SGE];
            for (to, from) in sges.iter_mut().zip(ring.sges.get(first..)?).take(count) {
                *to = *from;
            }
            Bytes::Sges { sges, count }
        };
        Some(Next {
            place: Place::new(ring.generation, position),
            request,
            bytes,
        })
    }

    /// The caller does not issue any more. Any context.
    pub(super) fn pause(&self) {
        let mut ring = self.ring.lock();
        ring.issuing = false;
        self.wake_idle(&ring);
    }

    /// The caller does not issue any more if the state is `state`. Returns whether it is. Any
    /// context.
    pub(super) fn pause_in(&self, state: State) -> bool {
        let mut ring = self.ring.lock();
        ring.issuing = ring.state != state;
        self.wake_idle(&ring);
        !ring.issuing
    }

    /// The caller does not reap any more. Any context.
    pub(super) fn stop_reaping(&self) {
        let mut ring = self.ring.lock();
        ring.reaping = false;
        self.wake_idle(&ring);
    }

    fn wake_idle(&self, ring: &Ring) {
        if ring.awaited && ring.is_idle() {
            self.idle.wake_all();
        }
    }

    /// Waits until no task issues or reaps: tasks of the QP's own user, which may be preempted.
    /// The state is RESET, so none begins. Process context; sleeps.
    pub(super) fn wait_idle(&self) {
        self.ring.lock().awaited = true;
        // No signal ends this wait.
        let _ = self
            .idle
            .wait_for(Signals::None, || self.ring.lock().is_idle());
        self.ring.lock().awaited = false;
    }

    /// The work request at `place` was issued, the result of [`next`](Self::next); with `status`,
    /// it is done already. Any context.
    pub(super) fn issued(&self, place: Place, status: Option<Status>) {
        let mut ring = self.ring.lock();
        if ring.generation == place.generation() && ring.issued == place.position() {
            ring.issued = place.position().wrapping_add(1);
            if status.is_some() {
                self.set(&mut ring, place, status);
            }
        }
    }

    /// The work request at `place`, the result of [`next`](Self::next), cannot be issued. Nothing
    /// is issued until it is the head. Any context.
    pub(super) fn failed(&self, place: Place, status: Status) {
        let mut ring = self.ring.lock();
        if ring.generation == place.generation() && ring.issued == place.position() {
            ring.failed = Some(status);
        }
    }

    /// Stores a result. Any context.
    pub(super) fn store(&self, place: Place, status: Status) {
        self.set(&mut self.ring.lock(), place, Some(status));
    }

    fn set(&self, ring: &mut Ring, place: Place, status: Option<Status>) {
        // A result of an earlier generation belongs to no slot.
        if ring.generation != place.generation() {
            return;
        }
        let index = self.index(place.position());
        if let Some(slot) = ring.slots.get_mut(index) {
            slot.status = status;
        }
        if ring.issued == place.position() && ring.failed.is_some() {
            ring.failed = None;
            ring.issued = place.position().wrapping_add(1);
        }
    }

    /// Takes work requests that are done from the head, for the only task that reaps: a call with
    /// `first` makes the caller that task. If nothing was found, the caller is not that task any
    /// more; another task may be it, and looks again before it ends. Any context.
    pub(super) fn take_done(&self, first: bool, done: &mut [Option<Done>]) -> Reaped {
        let mut ring = self.ring.lock();
        let mut reaped = Reaped {
            count: 0,
            failed: None,
        };
        if first && ring.reaping {
            return reaped;
        }
        for to in done {
            if ring.head == ring.issued {
                break;
            }
            let Some(slot) = ring.slots.get(self.index(ring.head)) else {
                break;
            };
            let Some(status) = slot.status else {
                break;
            };
            *to = Some(Done {
                request: slot.request,
                status,
            });
            ring.head = ring.head.wrapping_add(1);
            reaped.count += 1;
        }
        if reaped.count == 0 && ring.head == ring.issued {
            let place = Place::new(ring.generation, ring.head);
            reaped.failed = ring.failed.map(|status| (place, status));
        }
        ring.reaping = reaped.count != 0 || reaped.failed.is_some();
        self.wake_idle(&ring);
        reaped
    }

    /// Whether the next work request had to wait until it is the head, and is. The task that has
    /// taken the one before it from the ring issues it. Any context.
    pub(super) fn is_due(&self) -> bool {
        let ring = self.ring.lock();
        ring.issued == ring.head && ring.next_waits_for_head(self.index(ring.issued))
    }

    /// The state of the QP. Any context.
    pub(super) fn state(&self) -> State {
        self.ring.lock().state
    }

    /// The QP has gone to an error state: to SQE from a state in which it sends or may send, or to
    /// ERR from any but RESET. Any context.
    pub(super) fn fail(&self, state: State) {
        let mut ring = self.ring.lock();
        let may = match state {
            State::Sqe => matches!(ring.state, State::Rtr | State::Rts | State::Sqd),
            _ => ring.state != State::Reset,
        };
        if may {
            ring.state = state;
        }
    }

    /// Changes the state from `from` to `to`, neither of them RESET. Returns whether it was `from`.
    /// Any context.
    pub(super) fn exchange_state(&self, from: State, to: State) -> bool {
        let mut ring = self.ring.lock();
        let is_from = ring.state == from;
        if is_from {
            ring.state = to;
        }
        is_from
    }

    /// The state of the QP has changed. In RESET the ring is emptied. Any context.
    pub(super) fn set_state(&self, state: State) {
        let mut ring = self.ring.lock();
        ring.state = state;
        if state == State::Reset {
            ring.head = ring.tail;
            ring.issued = ring.tail;
            ring.failed = None;
            ring.generation = ring.generation.wrapping_add(1);
        }
    }
}
