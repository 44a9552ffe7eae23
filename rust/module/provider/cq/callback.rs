// SPDX-License-Identifier: GPL-2.0

//! Callbacks of a CQ: [`Registration`](crate::provider::wait::callback::Registration) of a [`Cq`].
//!
//! A callback waits for a number of entries ([`CallbackCondition::Ready`], for kfi_cq_open's
//! handler), or for the next completion ([`CallbackCondition::Next`], for req_notify_cq). An error
//! entry, a lost completion and [`Cq::signal`] call it too. The wait object and the wait condition
//! of the CQ do not matter.

use kfi_core::{
    cq::{
        Armed,
        CallbackCondition, //
    },
    due::Key, //
};

use super::{
    queue::{
        State,
        Token, //
    },
    Cq, //
};
use crate::provider::{
    prelude::*,
    wait::{
        callback::{
            Callback,
            Watched, //
        },
        line::{
            Entry,
            NewWaiter, //
        },
        WakeReason, //
    }, //
};

impl Watched for Cq {
    type Cond = CallbackCondition;
    type Key = Key;
    type Token = Token;

    fn arm(
        &self,
        callback: &Arc<Callback<Self>>,
        cond: CallbackCondition,
    ) -> Result<Option<WakeReason>> {
        let mut state = self.queue.lock();
        if self.queue.is_closed() {
            return Err(EBADF);
        }
        callback.entry(|entry| {
            disarm(&mut state, entry);
            let waiter = NewWaiter {
                token: Token::Callback(callback.clone()),
                memory: entry.memory.take(),
            };
            match state.arm_callback(cond, waiter) {
                Armed::Waiting(key) => {
                    entry.key = Some(key);
                    None
                }
                Armed::Ready(waiter) | Armed::Signalled(waiter) => {
                    entry.memory = waiter.memory;
                    Some(WakeReason::Ready)
                }
            }
        })
    }

    fn disarm(&self, callback: &Callback<Self>) {
        let mut state = self.queue.lock();
        callback.last_entry(|entry| disarm(&mut state, entry));
    }
}

fn disarm(state: &mut State, entry: &mut Entry<Key, Token>) {
    if let Some(left) = entry.key.take().and_then(|key| state.disarm(&key)) {
        entry.removed(left.memory);
    }
}
