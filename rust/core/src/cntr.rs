// SPDX-License-Identifier: GPL-2.0

//! The counter: two values, and who waits for them.
//!
//! One primitive under kfi_cntr, and later under verbs' completion counters and
//! triggered operations. It has a half without a lock and a half with one.
//!
//! [`Gate`] is the half without: the success value, the error value and `due`,
//! the lowest threshold that anybody waits for. The values live where a program
//! can map them, read-only. Reading is a load. Adding is one fully ordered
//! atomic add and one compare with `due`; in most adds nobody is due, and that
//! was all. An add that gets to `due` gives back [`Crossed`], and the caller
//! takes the counter's lock and hands it to the other half.
//!
//! [`Waiters`] is the half under the lock: who waits for what ([`Cond`]), in
//! [`Due`] order. There are two conditions. *At least*: the success value reaches a
//! threshold (kfi_cntr_wait); any change of the error value since the thread entered
//! ([`Entered`]) ends it too, with [`Outcome::ErrorChanged`]. *Any change* since a [`Seen`]: what a
//! pollable fd and a wait set want.
//!
//! # No wake-up is lost
//!
//! A waiter writes `due` and then reads the value; an adder writes the value and
//! then reads `due`. Each has a full barrier between the two, so it cannot be
//! that both read the old: either the adder sees the threshold and comes to the
//! lock, or the waiter sees the value and does not sleep. While anybody waits,
//! `due` never stands above the lowest threshold, so a raise of it, after a
//! release, hides nobody.
//!
//! The value falls in two ways only. [`Waiters::set`] swaps it under the lock and
//! releases whoever waited for what it was: all adds before it are in the old
//! value, so who waits for 3 is released by a set to 3 followed by a set to 1,
//! and by an add to 3 followed by a set to 1 even if the adder has not come to
//! the lock yet. And it wraps, which passes every threshold there is. A counter
//! with a maximum of its own wraps under the lock only: [`Gate::add`] hands the add
//! itself over. The full 64 bits wrap in the atomic add, and for waiters that
//! takes place when the adder comes to the lock: one that slips in between is
//! released with the others, nobody is ever forgotten.
//!
//! # What counts as a change
//!
//! Each call of set is a change, also if it sets what was there. Each call of adderr
//! and seterr that changes the error value is one. Sequence numbers of changes go with
//! the values, so adderr followed by seterr(0) is not missed. An add of 0 to either
//! value is none, nor is a seterr to what was there. Success is looked at before the
//! error. A change of the error value from before a thread entered does not count for
//! it; one between its entry and its arming does.
//!
//! # What comes later
//!
//! A trigger queue is one more [`Due`] beside these waiters: of work instead of
//! waiters, released into the endpoint. KFI_TRIGGER compares with the success
//! value and joins as it is. Deferred work compares with success + error: the
//! error value changes under the lock only, so its lowest threshold less the
//! error value joins in what `due` is made from.
//!
//! Costs: reading and adding O(1); arming, disarming and each release O(log n) in
//! the number of waiters.
//!
//! Source: kfi_cntr(3), fi_trigger(3), ibv_create_comp_cntr(3).

#[cfg(doc)]
use crate::due::Due;

mod gate;
mod waiters;

pub use gate::{
    Crossed,
    Gate, //
};
pub use waiters::{
    Armed,
    Cond,
    Entered,
    Outcome,
    Seen,
    Waiter,
    Waiters, //
};
