// SPDX-License-Identifier: GPL-2.0

//! Callbacks of a CQ: [`Registration`](crate::provider::wait::callback::Registration) of a [`Cq`].
//!
//! A callback waits for a number of entries ([`CallbackCondition::Ready`], for kfi_cq_open's
//! handler), or for the next completion ([`CallbackCondition::Next`], for req_notify_cq). An error
//! entry, a lost completion and [`Cq::signal`] call it too. The wait object and the wait condition
//! of the CQ do not matter.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use kfi_core::{
    cq::{
        Armed,
        CallbackCondition, //
    },
    due::Key, //
};

use super::{
    queue::Token,
    Cq, //
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

/// The place of a callback among the waiters of a CQ.
pub(crate) struct Place {
    /// Set while the callback is armed.
    key: Option<Key>,
    /// Memory for the waiter while it is not.
    memory: Option<Memory<Token>>,
}

impl Place {
    /// The waiter was removed; `memory` is what it gave back.
    pub(super) fn left(&mut self, memory: Option<Memory<Token>>) {
        self.key = None;
        self.memory = memory;
    }
}

impl Watched for Cq {
    type Cond = CallbackCondition;
    type Place = Place;

    fn new_place() -> Result<Place> {
        Ok(Place {
            key: None,
            memory: Some(Memory::new()?),
        })
    }

    fn arm(
        &self,
        callback: &Arc<Callback<Self>>,
        cond: CallbackCondition,
    ) -> Result<Option<WakeReason>> {
        let mut state = self.queue.state.lock();
        if self.queue.is_closed() {
            return Err(EBADF);
        }
        callback.place(|place| {
            if let Some(left) = place.key.take().and_then(|key| state.disarm(&key)) {
                place.left(left.memory);
            }
            let slot = NewWaiter {
                who: Token::Callback(callback.clone()),
                memory: place.memory.take(),
            };
            match state.arm_callback(cond, slot) {
                Armed::Waiting(key) => {
                    place.key = Some(key);
                    Ok(None)
                }
                Armed::Ready(slot) | Armed::Signalled(slot) => {
                    place.left(slot.memory);
                    Ok(Some(WakeReason::Ready))
                }
            }
        })
    }

    fn disarm(&self, callback: &Callback<Self>) {
        let mut state = self.queue.state.lock();
        callback.last_place(|place| {
            if let Some(left) = place.key.take().and_then(|key| state.disarm(&key)) {
                place.left(left.memory);
            }
        });
    }
}
