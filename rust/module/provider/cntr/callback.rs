// SPDX-License-Identifier: GPL-2.0

//! Callbacks of a counter: [`Registration`](crate::provider::wait::callback::Registration) of a
//! [`Cntr`].
//!
//! A callback waits like a thread in kfi_cntr_wait ([`WaitCondition::AtLeast`]): until the success
//! value reaches a threshold, or the error value changes, since [`Cntr::entered`] at the latest. Or
//! it waits for any change ([`WaitCondition::AnyChange`]). The wait object of the counter does not
//! matter.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use kfi_core::cntr::{
    Armed,
    WaitCondition,
    WaitStart,
    Waiter, //
};

use super::{
    counter::{
        reason,
        Token, //
    },
    Cntr, //
};
use crate::provider::wait::{
    callback::{
        Callback,
        Watched, //
    },
    line::{
        Memory,
        NewWaiter, //
    },
    WakeReason, //
};

/// The place of a callback among the waiters of a counter.
pub(crate) struct Place {
    /// Set while the callback is armed.
    waiter: Option<Waiter>,
    /// Memory for the waiter while it is not.
    memory: Option<Memory<Token>>,
}

impl Place {
    /// The waiter was removed; `memory` is what it gave back.
    pub(super) fn left(&mut self, memory: Option<Memory<Token>>) {
        self.waiter = None;
        self.memory = memory;
    }
}

impl Cntr {
    /// The number of changes of the error value so far, for [`WaitCondition::AtLeast`]. A consumer
    /// takes it before it reads the error value for the last time; then it misses no change. Does
    /// not sleep.
    pub(crate) fn entered(&self) -> WaitStart {
        self.counter.entered()
    }
}

impl Watched for Cntr {
    type Cond = WaitCondition;
    type Place = Place;

    fn new_place() -> Result<Place> {
        Ok(Place {
            waiter: None,
            memory: Some(Memory::new()?),
        })
    }

    fn arm(
        &self,
        callback: &Arc<Callback<Self>>,
        cond: WaitCondition,
    ) -> Result<Option<WakeReason>> {
        let counter = &self.counter;
        let mut line = counter.line.lock();
        if counter.is_closed() {
            return Err(EBADF);
        }
        callback.place(|place| {
            if let Some(waiter) = place.waiter.take() {
                if let Some(left) = line.disarm(&counter.gate, &waiter) {
                    place.left(left.memory);
                }
            }
            let slot = NewWaiter {
                who: Token::Callback(callback.clone()),
                memory: place.memory.take(),
            };
            match line.arm(&counter.gate, cond, slot) {
                Armed::Waiting(waiter) => {
                    place.waiter = Some(waiter);
                    Ok(None)
                }
                Armed::Over(outcome, slot) => {
                    place.left(slot.memory);
                    Ok(Some(reason(outcome)))
                }
            }
        })
    }

    fn disarm(&self, callback: &Callback<Self>) {
        let counter = &self.counter;
        let mut line = counter.line.lock();
        callback.last_place(|place| {
            if let Some(waiter) = place.waiter.take() {
                if let Some(left) = line.disarm(&counter.gate, &waiter) {
                    place.left(left.memory);
                }
            }
        });
    }
}
