// SPDX-License-Identifier: GPL-2.0

//! What becomes of the operations that a [`Reader`](super::post::Reader) has read: they are posted,
//! or one of them is admitted.

use kfi_core::atomic::Function;

use super::prelude::*;
use crate::provider::{
    ep::{
        admit::Admitted,
        op::Op,
        post::Poster,
        Endpoint, //
    },
    work::{
        Deferral,
        Work, //
    }, //
};

/// Takes the operations that a [`Reader`](super::post::Reader) has read.
pub(super) trait Destination {
    /// Whether the bytes of short transmits are copied when they are read, and not pinned.
    const COPIES: bool;

    /// Takes an operation. Sleeps.
    fn accept(&mut self, op: Op<'_>) -> Result;

    /// Checks that the endpoint has this atomic function, of operands of `len` bytes. Fails with
    /// the errors of `struct kfabric_post`.
    fn check_function(&self, function: &Function, len: u64) -> Result;

    /// Whether there is a reference to a peer, which must be dropped before the task waits for
    /// memory of the program.
    fn keeps_peer(&self) -> bool;

    /// Drops that reference.
    fn forget_peer(&mut self);
}

impl Destination for Poster<'_> {
    const COPIES: bool = true;

    #[inline(always)]
    fn accept(&mut self, op: Op<'_>) -> Result {
        self.post(op)
    }

    fn check_function(&self, function: &Function, len: u64) -> Result {
        Poster::check_function(self, function, len)
    }

    #[inline(always)]
    fn keeps_peer(&self) -> bool {
        Poster::keeps_peer(self)
    }

    #[inline(always)]
    fn forget_peer(&mut self) {
        Poster::forget_peer(self);
    }
}

/// Admits an operation that waits for a counter.
pub(super) struct Admission<'a> {
    endpoint: &'a Arc<Endpoint>,
    /// Deferred work: its report.
    deferral: Option<Deferral>,
    admitted: Option<Admitted>,
}

impl<'a> Admission<'a> {
    /// Of an operation of `endpoint`; deferred work with its report.
    pub(super) fn new(endpoint: &'a Arc<Endpoint>, deferral: Option<Deferral>) -> Self {
        Self {
            endpoint,
            deferral,
            admitted: None,
        }
    }

    /// The work that was admitted. Fails with `EINVAL` if there is none, `EBADF` if the endpoint is
    /// closed.
    pub(super) fn into_work(self) -> Result<Work> {
        Work::transfer(self.endpoint, self.admitted.ok_or(EINVAL)?)
    }
}

impl Destination for Admission<'_> {
    const COPIES: bool = false;

    fn accept(&mut self, mut op: Op<'_>) -> Result {
        self.admitted = Some(match self.deferral.take() {
            Some(deferral) => self.endpoint.admit_deferred(&mut op, deferral)?,
            None => self.endpoint.admit_waiting(&mut op)?,
        });
        Ok(())
    }

    fn check_function(&self, function: &Function, len: u64) -> Result {
        self.endpoint.check_function(function, len)
    }

    fn keeps_peer(&self) -> bool {
        false
    }

    fn forget_peer(&mut self) {}
}
