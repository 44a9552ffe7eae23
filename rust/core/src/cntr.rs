// SPDX-License-Identifier: GPL-2.0

//! The counter: a success value, an error value, and the waiters for them.
//!
//! kfi_cntr uses this primitive, with the operations that it triggers; verbs' completion counters
//! can use it too. It consists of a lock-free part and two parts under locks.
//!
//! [`CounterValues`] is the lock-free part: the success value, the error value and `due`, the
//! lowest threshold of any waiter. Programs can map the two values read-only. Reading is a load.
//! Adding is one fully ordered atomic add and one compare with `due`; usually no waiter is due, and
//! the add is complete. An add that reaches `due` returns [`ThresholdReached`], and the caller
//! takes the lock of the waiters and passes it to the other part.
//!
//! [`Waiters`] is the part under the lock of the waiters: the waiters with their conditions
//! ([`WaitCondition`]), in [`Due`] order. There are two conditions. *At least*: the success value
//! reaches a threshold (kfi_cntr_wait). Any change of the error value since the thread entered
//! ([`WaitStart`]) ends this wait too, with [`Outcome::ErrorChanged`]. *Any change* since a
//! [`Seen`]: pollable file descriptors and wait sets use this.
//!
//! [`Changes`] is the part under the lock of the changes: all that modifies a value, except adds.
//!
//! # No lost wake-ups
//!
//! A waiter writes `due` and then reads the value; an adder writes the value and then reads `due`.
//! Each has a full barrier in between, so they cannot both read the old value: either the adder
//! sees the threshold and takes the lock, or the waiter sees the value and does not sleep. `due` is
//! never above the lowest threshold of a waiter, so raising it after a release hides no waiter.
//!
//! The value decreases in two cases only: by a set and by a wrap. These are changes.
//!
//! # Changes
//!
//! Each call of set is a change, even if it sets the same value. Each call of adderr and seterr
//! that changes the error value is one, and so is each wrap. An add of 0 to either value is not a
//! change, nor is a seterr to the same value.
//!
//! [`Changes`] has a lock of its own, under which changes exclude each other. It may be taken where
//! the lock of the waiters must not: in interrupts. A change counts itself, exchanges the value and
//! notes the highest value that it has found or made. The value that it has found includes all
//! earlier adds. A holder of the lock of the waiters takes the notes and releases all waiters that
//! they satisfy: the task that made the change, or soon after another one
//! ([`Waiters::release_changes`]). A waiter for 3 is therefore released by a set to 3 followed by a
//! set to 1, and by an add to 3 followed by a set to 1 even if the adder has not taken the lock
//! yet.
//!
//! A caller that arms a waiter first releases the waiters of the changes that it has seen. So a
//! waiter that is armed after a change is not released by it, whenever the notes are taken.
//!
//! The changes have a count, so adderr followed by seterr(0) is not missed. Success is checked
//! before the error. A change of the error value before a thread entered does not end its wait; a
//! change between its entry and its arming does.
//!
//! A wrap passes every threshold. A counter with a maximum of its own wraps only under the lock of
//! the changes: [`CounterValues::add`] passes the add itself to it. A counter of the full 64 bits
//! wraps in the atomic add, and its waiters are released when the adder takes the lock. A waiter
//! that is armed in between is released with the others, so none is missed.
//!
//! # Work
//!
//! [`Works`] are the triggered operations and the deferred work that wait for the counter, in
//! [`Waiters`] too, because they share the lock and `due`. A triggered operation compares its
//! threshold with the success value. Deferred work compares with success + error. `due` includes
//! the lowest threshold of deferred work minus the error value: adding is the same compare with or
//! without work. After a change of the error value without the lock of the waiters, `due` is too
//! high until its notes are taken. The task that takes them finds the adds in between, and changes
//! in between note the sum that they have found.
//!
//! Cost: reading and adding O(1); arming, disarming and each release O(log n) in the number of
//! waiters or works.
//!
//! Source: kfi_cntr(3), fi_trigger(3), ibv_create_comp_cntr(3).

#[cfg(doc)]
use crate::due::Due;

mod changes;
mod values;
mod waiters;
mod work;

pub use changes::Changes;
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
