// SPDX-License-Identifier: GPL-2.0

//! The counter: a success value, an error value, and the waiters for them.
//!
//! kfi_cntr uses this primitive, with the operations that it triggers; verbs' completion counters
//! can use it too. It consists of a lock-free part and a part under a lock.
//!
//! [`CounterValues`] is the lock-free part: the success value, the error value and `due`, the
//! lowest threshold of any waiter. Programs can map the two values read-only. Reading is a load.
//! Adding is one fully ordered atomic add and one compare with `due`; usually no waiter is due, and
//! the add is complete. An add that reaches `due` returns [`ThresholdReached`], and the caller
//! takes the counter's lock and passes it to the other part.
//!
//! [`Waiters`] is the part under the lock: the waiters with their conditions ([`WaitCondition`]),
//! in [`Due`] order. There are two conditions. *At least*: the success value reaches a threshold
//! (kfi_cntr_wait). Any change of the error value since the thread entered ([`WaitStart`]) ends
//! this wait too, with [`Outcome::ErrorChanged`]. *Any change* since a [`Seen`]: pollable file
//! descriptors and wait sets use this.
//!
//! # No lost wake-ups
//!
//! A waiter writes `due` and then reads the value; an adder writes the value and then reads `due`.
//! Each has a full barrier in between, so they cannot both read the old value: either the adder
//! sees the threshold and takes the lock, or the waiter sees the value and does not sleep. `due` is
//! never above the lowest threshold of a waiter, so raising it after a release hides no waiter.
//!
//! The value decreases in two cases only. [`Waiters::set`] exchanges it under the lock and releases
//! all waiters that the old value satisfies. The old value includes all earlier adds. A waiter for
//! 3 is therefore released by a set to 3 followed by a set to 1, and by an add to 3 followed by a
//! set to 1 even if the adder has not taken the lock yet. In the second case the value wraps, which
//! passes every threshold. A counter with a maximum of its own wraps only under the lock:
//! [`CounterValues::add`] passes the add itself to the lock. A counter of the full 64 bits wraps in
//! the atomic add, and its waiters are released when the adder takes the lock. A waiter that is
//! armed in between is released with the others, so none is missed.
//!
//! # Changes
//!
//! Each call of set is a change, even if it sets the same value. Each call of adderr and seterr
//! that changes the error value is one. The values have a change count, so adderr followed by
//! seterr(0) is not missed. An add of 0 to either value is not a change, nor is a seterr to the
//! same value. Success is checked before the error. A change of the error value before a thread
//! entered does not end its wait; a change between its entry and its arming does.
//!
//! # Work
//!
//! [`Works`] are the triggered operations and the deferred work that wait for the counter, in
//! [`Waiters`] too, because they share the lock and `due`. A triggered operation compares its
//! threshold with the success value. Deferred work compares with success + error. The error value
//! changes only under the lock, so `due` includes the lowest threshold of deferred work minus the
//! error value: adding is the same compare with or without work.
//!
//! Cost: reading and adding O(1); arming, disarming and each release O(log n) in the number of
//! waiters or works.
//!
//! Source: kfi_cntr(3), fi_trigger(3), ibv_create_comp_cntr(3).

#[cfg(doc)]
use crate::due::Due;

mod values;
mod waiters;
mod work;

pub use values::{
    CounterValues,
    ThresholdReached,
    UnlockedAdd, //
};
pub use waiters::{
    Armed,
    Outcome,
    Seen,
    WaitCondition,
    WaitStart,
    Waiter,
    Waiters, //
};
pub use work::{
    Compared,
    NoSlot,
    NoWork,
    WorkMap,
    Works, //
    BATCH,
};
