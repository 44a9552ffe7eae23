// SPDX-License-Identifier: GPL-2.0

//! The worker of a QP whose user has as many workers as are allowed.
//!
//! The locks that the worker takes may be held by tasks that are not scheduled, and as many workers
//! as are allowed wait for them. So the worker leaves the QP in a list of its user
//! ([`WaitingWork`]), and a worker of the user that ends queues the QP's. A task of the user can
//! process the packets meanwhile. The QP stays in the list: the worker may have been woken for
//! something else, a retransmission that is due for example.

use super::{
    Kind,
    Qp, //
};
use crate::mem::{
    Place,
    RunningWorker,
    WaitingWork, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

impl<K: Kind> WaitingWork for Qp<K> {
    fn queue(self: Arc<Self>) {
        self.wake();
    }

    fn place(&self) -> &Place {
        &self.place
    }
}

impl<K: Kind> Qp<K> {
    /// Begins a run of the worker, which ends when the result is dropped. The inner value is `None`
    /// if the QP has no owner. Fails with `EAGAIN` if as many workers run as are allowed; a worker
    /// that ends queues the QP again, unless it is closed. Process context; does not sleep.
    pub(super) fn enter_worker(self: &Arc<Self>) -> Result<Option<RunningWorker<'_>>> {
        match self.inbox.owner() {
            Some(owner) => owner
                .enter_worker_or_wait(|| self.clone(), &self.place)
                .ok_or(EAGAIN)
                .map(Some),
            None => Ok(None),
        }
    }

    /// Takes the QP out of the list, for ever. Process context.
    pub(super) fn wait_no_more(&self) {
        if let Some(owner) = self.inbox.owner() {
            owner.wait_no_more(&self.place);
        }
    }
}
