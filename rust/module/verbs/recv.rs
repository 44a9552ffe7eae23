// SPDX-License-Identifier: GPL-2.0

//! Receive queue: the receives that wait for messages, of a QP or of an SRQ.
//!
//! A receive is stored as it was posted. Its keys are looked up when a message takes it. The ring
//! counts positions as that of a CQ does, so that it gets another size piece by piece.
//!
//! # Locks
//!
//! `resizing` (a mutex) is taken before `ring`. No other lock is taken under `ring`, which is taken
//! in any context but NMIs.

use core::mem::swap;

use kernel::{
    new_mutex,
    new_spinlock_irq,
    prelude::*,
    sync::{
        Arc,
        Mutex,
        SpinLockIrq, //
    }, //
};

use super::{
    cq_ring::place,
    raw,
    sge::{
        Sge,
        MAX_SGE,
        NO_SGE, //
    }, //
};
use crate::{
    mem::{
        Allowance,
        Budget, //
    },
    shim::{
        memory::kmalloc_array_size,
        sched::cond_resched, //
    }, //
};

/// The most receives of a queue.
pub(super) const MAX_RECV_WR: u32 = raw::KFABRIC_VERBS_MAX_RECV_WR;

/// Receives that are moved while the lock is held.
const PIECE: u64 = 64;

/// A receive that a message has taken.
pub(super) struct Recv {
    pub(super) wr_id: u64,
    /// How many of `sges` it has.
    pub(super) count: usize,
    pub(super) sges: [Sge; MAX_SGE],
}

impl Recv {
    /// Its SGEs.
    pub(super) fn sges(&self) -> &[Sge] {
        self.sges.get(..self.count).unwrap_or_default()
    }
}

/// A receive in the ring, without its SGEs.
#[derive(Clone, Copy)]
struct Slot {
    wr_id: u64,
    count: u32,
}

/// Places for receives, and as many SGEs for each as a receive may have.
struct Places {
    slots: KVVec<Slot>,
    sges: KVVec<Sge>,
    max_sge: usize,
}

impl Places {
    /// Places for `max_wr` receives of `max_sge` SGEs. Fails with `ENOMEM`. Process context,
    /// sleeps.
    fn new(max_wr: usize, max_sge: usize) -> Result<Self> {
        let empty = Slot { wr_id: 0, count: 0 };
        Ok(Self {
            slots: KVVec::from_elem(empty, max_wr, GFP_KERNEL_ACCOUNT)?,
            sges: KVVec::from_elem(NO_SGE, max_wr.saturating_mul(max_sge), GFP_KERNEL_ACCOUNT)?,
            max_sge,
        })
    }

    /// The number of places.
    fn size(&self) -> u64 {
        self.slots.len() as u64
    }

    /// The place of a position. There is at least one place.
    fn place(&self, position: u64) -> usize {
        place(position, self.slots.len())
    }

    /// Stores a receive, which has no more SGEs than it may have.
    fn store(&mut self, position: u64, wr_id: u64, sges: &[Sge]) {
        let place = self.place(position);
        if let Some(slot) = self.slots.get_mut(place) {
            *slot = Slot {
                wr_id,
                // CAST: At most `MAX_SGE`.
                count: sges.len() as u32,
            };
        }
        let first = place.saturating_mul(self.max_sge);
        for (to, from) in self
            .sges
            .get_mut(first..)
            .unwrap_or_default()
            .iter_mut()
            .zip(sges)
        {
            *to = *from;
        }
    }

    /// The receive at a position.
    fn load(&self, position: u64) -> Option<(u64, &[Sge])> {
        let place = self.place(position);
        let slot = self.slots.get(place)?;
        let first = place.saturating_mul(self.max_sge);
        let end = first.saturating_add(slot.count as usize);
        Some((slot.wr_id, self.sges.get(first..end)?))
    }
}

/// What the lock protects.
struct Ring {
    places: Places,
    /// The position of the oldest receive, and that of the next one that comes.
    head: u64,
    tail: u64,
    /// The limit; 0: none. When fewer receives are left, that is reported, and the limit becomes 0.
    limit: u32,
    /// Whether receives are refused.
    closed: bool,
}

impl Ring {
    /// Receives that wait.
    fn len(&self) -> u64 {
        self.tail.wrapping_sub(self.head)
    }

    /// Copies the next piece from position `from` on. Returns whether it was the last piece. Fails
    /// with `EINVAL` if more receives wait than have room there.
    fn copy_piece(&self, from: &mut u64, to: &mut Places) -> Result<bool> {
        if self.len() > to.size() {
            return Err(EINVAL);
        }
        let first = self.head.max(*from);
        *from = self.tail.min(first.saturating_add(PIECE));
        for position in first..*from {
            if let Some((wr_id, sges)) = self.places.load(position) {
                to.store(position, wr_id, sges);
            }
        }
        Ok(*from == self.tail)
    }
}

/// What a receive queue allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// The most receives.
    pub(super) max_wr: u32,
    /// The most SGEs of a receive.
    pub(super) max_sge: u32,
    /// See [`RecvQueue::modify`].
    pub(super) limit: u32,
}

/// A receive queue.
#[pin_data]
pub(super) struct RecvQueue {
    budget: Budget,
    max_sge: usize,
    #[pin]
    ring: SpinLockIrq<Ring>,
    /// Held by the one task that changes the size; the charge for the ring.
    #[pin]
    resizing: Mutex<Allowance>,
}

/// Memory for receives, and the charge for it. Fails with `EINVAL` for more than [`MAX_RECV_WR`]
/// receives, with `ENOMEM`.
fn charged_places(budget: &Budget, max_wr: u32, max_sge: usize) -> Result<(Places, Allowance)> {
    if max_wr > MAX_RECV_WR {
        return Err(EINVAL);
    }
    let max_wr = max_wr as usize;
    let sges = kmalloc_array_size::<Sge>(max_wr.saturating_mul(max_sge));
    let bytes = kmalloc_array_size::<Slot>(max_wr).saturating_add(sges);
    let memory = budget.take_for::<RecvQueue>(bytes)?;
    Ok((Places::new(max_wr, max_sge)?, memory))
}

impl RecvQueue {
    /// A queue for `max_wr` receives of `max_sge` SGEs. Both may be 0. Process context, sleeps.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: more than [`MAX_RECV_WR`] receives, or than [`MAX_SGE`] SGEs.
    /// - `ENOMEM`, also if the user has no more memory of the kernel (`user_memory`).
    pub(super) fn new(budget: &Budget, max_wr: u32, max_sge: u32) -> Result<Arc<Self>> {
        let max_sge = max_sge as usize;
        if max_sge > MAX_SGE {
            return Err(EINVAL);
        }
        let (places, memory) = charged_places(budget, max_wr, max_sge)?;
        let ring = Ring {
            places,
            head: 0,
            tail: 0,
            limit: 0,
            closed: false,
        };
        Arc::pin_init(
            pin_init!(Self {
                budget: budget.clone(),
                max_sge,
                ring <- new_spinlock_irq!(ring),
                resizing <- new_mutex!(memory),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Adds a receive. Fails with `EINVAL` if it has too many SGEs or the queue is
    /// [closed](Self::set_closed), with `ENOMEM` if the queue is full. Any context.
    pub(super) fn post(&self, wr_id: u64, sges: &[Sge]) -> Result {
        if sges.len() > self.max_sge {
            return Err(EINVAL);
        }
        let mut guard = self.ring.lock();
        let ring = &mut *guard;
        if ring.closed {
            return Err(EINVAL);
        }
        if ring.len() >= ring.places.size() {
            return Err(ENOMEM);
        }
        ring.places.store(ring.tail, wr_id, sges);
        ring.tail = ring.tail.wrapping_add(1);
        Ok(())
    }

    /// Takes the oldest receive. Process context.
    pub(super) fn pop(&self) -> Option<Recv> {
        self.pop_limited().0
    }

    /// [`pop`](Self::pop). Returns also whether fewer receives are left than the limit, which is 0
    /// then.
    pub(super) fn pop_limited(&self) -> (Option<Recv>, bool) {
        let mut guard = self.ring.lock();
        let ring = &mut *guard;
        if ring.head == ring.tail {
            return (None, false);
        }
        let Some((wr_id, sges)) = ring.places.load(ring.head) else {
            return (None, false);
        };
        let mut recv = Recv {
            wr_id,
            count: sges.len(),
            sges: [NO_SGE; MAX_SGE],
        };
        for (to, from) in recv.sges.iter_mut().zip(sges) {
            *to = *from;
        }
        ring.head = ring.head.wrapping_add(1);
        let is_below = ring.len() < ring.limit.into();
        if is_below {
            ring.limit = 0;
        }
        (Some(recv), is_below)
    }

    /// Whether no receive waits. Any context.
    #[cfg(kfi_kunit)]
    pub(super) fn is_empty(&self) -> bool {
        let ring = self.ring.lock();
        ring.head == ring.tail
    }

    /// Drops all receives. Any context.
    pub(super) fn clear(&self) {
        let mut ring = self.ring.lock();
        ring.head = ring.tail;
    }

    /// Refuses receives from now on, or accepts them again. A new queue accepts them. Any context.
    pub(super) fn set_closed(&self, closed: bool) {
        self.ring.lock().closed = closed;
    }

    /// What it allows. Any context.
    pub(super) fn limits(&self) -> Limits {
        let ring = self.ring.lock();
        Limits {
            // CAST: Both are within the limits of `new`.
            max_wr: ring.places.size() as u32,
            max_sge: self.max_sge as u32,
            limit: ring.limit,
        }
    }

    /// Changes the number of receives, the limit, or both. A limit is reported once, by the
    /// [`pop`](Self::pop_limited) that leaves fewer receives than that. Receives that wait stay.
    /// Process context, sleeps.
    ///
    /// # Errors
    ///
    /// Nothing has changed then.
    ///
    /// - `EINVAL`: more than [`MAX_RECV_WR`] receives, fewer than wait, none, or fewer than the
    ///   limit.
    /// - `ENOMEM`, as [`new`](Self::new). Both rings are charged for the time of the call.
    pub(super) fn modify(&self, max_wr: Option<u32>, limit: Option<u32>) -> Result {
        let Some(max_wr) = max_wr else {
            let mut ring = self.ring.lock();
            let limit = limit.unwrap_or(ring.limit);
            if u64::from(limit) > ring.places.size() {
                return Err(EINVAL);
            }
            ring.limit = limit;
            return Ok(());
        };
        if max_wr == 0 {
            return Err(EINVAL);
        }
        let (mut other, mut memory) = charged_places(&self.budget, max_wr, self.max_sge)?;
        let mut resizing = self.resizing.lock();
        let mut copied = 0;
        loop {
            let mut guard = self.ring.lock();
            let ring = &mut *guard;
            let limit = limit.unwrap_or(ring.limit);
            if limit > max_wr {
                return Err(EINVAL);
            }
            if ring.copy_piece(&mut copied, &mut other)? {
                swap(&mut ring.places, &mut other);
                ring.limit = limit;
                break;
            }
            drop(guard);
            cond_resched();
        }
        swap(&mut *resizing, &mut memory);
        Ok(())
    }
}
