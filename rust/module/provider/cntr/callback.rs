// SPDX-License-Identifier: GPL-2.0

//! Callbacks of a counter: [`Registration`](crate::provider::wait::callback::Registration) of a
//! [`Cntr`].
//!
//! A callback waits like a thread in kfi_cntr_wait ([`WaitCondition::AtLeast`]): until the success
//! value reaches a threshold, or the error value changes, since [`Cntr::entered`] at the latest. Or
//! it waits for any change ([`WaitCondition::AnyChange`]). The wait object of the counter does not
//! matter.

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
use crate::provider::{
    prelude::*,
    wait::{
        callback::{
            Callback,
            Watched, //
        },
        line::NewWaiter,
        WakeReason, //
    }, //
};

impl Cntr {
    /// The number of changes so far, for [`WaitCondition::AtLeast`]. A consumer
    /// takes it before it reads the error value for the last time; then it misses no change. Does
    /// not sleep.
    pub(crate) fn entered(&self) -> WaitStart {
        self.counter.entered()
    }
}

impl Watched for Cntr {
    type Cond = WaitCondition;
    type Key = Waiter;
    type Token = Token;

    fn arm(
        &self,
        callback: &Arc<Callback<Self>>,
        cond: WaitCondition,
    ) -> Result<Option<WakeReason>> {
        let counter = &self.counter;
        let mut line = counter.line();
        if counter.is_closed() {
            return Err(EBADF);
        }
        callback.entry(|entry| {
            counter.disarm(&mut line, entry);
            let waiter = NewWaiter {
                token: Token::Callback(callback.clone()),
                memory: entry.memory.take(),
            };
            match line.arm(&counter.values, cond, waiter) {
                Armed::Waiting(key) => {
                    entry.key = Some(key);
                    None
                }
                Armed::Over(outcome, waiter) => {
                    entry.memory = waiter.memory;
                    Some(reason(outcome))
                }
            }
        })
    }

    fn disarm(&self, callback: &Callback<Self>) {
        let mut line = self.counter.line();
        callback.last_entry(|entry| self.counter.disarm(&mut line, entry));
    }
}
