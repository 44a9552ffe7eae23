// SPDX-License-Identifier: GPL-2.0
//! Shared contexts: room for transmits, and receives, that several endpoints
//! have in common (fi_endpoint(3), "Shared contexts").

use std::sync::Arc;

use crate::{
    abi::{self, Call, calls},
    domain::Domain,
    ep::{Endpoint, Posted},
    error::Result,
    flags::{Caps, OpFlags},
    object::{Inner, object},
    op::{Local, Op},
    setters::setters,
};

/// Opens a shared transmit context; from [`Domain::stx`].
#[derive(Debug)]
#[must_use = "nothing happens before `open`"]
pub struct SharedTxBuilder {
    domain: Domain,
    raw: abi::kfabric_stx_open,
}

impl SharedTxBuilder {
    setters! {
        /// Capabilities of the transmit side that its endpoints may have; without
        /// this all.
        caps(caps: Caps) => raw.caps = caps.bits();

        /// Transmits of all its endpoints that can be under way; 0: the module's
        /// default.
        size(size: u32) => raw.tx_size = size;

        /// A number for the caller's own use.
        context(context: u64) => raw.context = context;
    }

    /// Opens it.
    ///
    /// # Errors
    ///
    /// `EINVAL`: capabilities that no endpoint has for transmits, a size above
    /// the limit; `EMFILE`; `ENOMEM`.
    pub fn open(mut self) -> Result<SharedTx> {
        self.raw.domain = self.domain.handle();
        let device = self.domain.device();
        calls::plain(device, &mut self.raw)?;
        Ok(SharedTx {
            inner: Inner::new(device, self.raw.handle, vec![self.domain.as_hold()]),
        })
    }
}

/// A shared transmit context: room for transmits that endpoints have in common.
///
/// Endpoints are opened with [`EndpointBuilder::shared_tx`] and bound with
/// [`Endpoint::bind_stx`].  Operations are posted to the endpoints, and complete
/// in their own CQs and counters.
///
/// [`EndpointBuilder::shared_tx`]: crate::EndpointBuilder::shared_tx
#[derive(Clone)]
pub struct SharedTx {
    inner: Arc<Inner>,
}

object!(SharedTx);

/// Opens a shared receive context; from [`Domain::srx`].
#[derive(Debug)]
#[must_use = "nothing happens before `open`"]
pub struct SharedRxBuilder {
    domain: Domain,
    raw: abi::kfabric_srx_open,
}

impl SharedRxBuilder {
    setters! {
        /// Capabilities of the receive side that its endpoints may have; without
        /// this all.
        caps(caps: Caps) => raw.caps = caps.bits();

        /// Default flags of receives.
        op_flags(flags: OpFlags) => raw.rx_op_flags = flags.bits();

        /// Receives that can be posted; 0: the module's default.
        size(size: u32) => raw.rx_size = size;

        /// Bytes of unexpected messages that are kept; 0: the module's default.
        buffered(bytes: u64) => raw.total_buffered_recv = bytes;

        /// A number for the caller's own use.
        context(context: u64) => raw.context = context;
    }

    /// Opens it.
    ///
    /// # Errors
    ///
    /// `EINVAL`: capabilities that no endpoint has for receives, flags that
    /// receives do not have, sizes above the limits; `EMFILE`; `ENOMEM`.
    pub fn open(mut self) -> Result<SharedRx> {
        self.raw.domain = self.domain.handle();
        let device = self.domain.device();
        calls::plain(device, &mut self.raw)?;
        let hold = vec![self.domain.as_hold()];
        Ok(SharedRx {
            receives: Endpoint::from_inner(Inner::new(device, self.raw.handle, hold)),
        })
    }
}

/// A shared receive context: receives that the messages of several endpoints
/// take, the oldest that matches first.
///
/// Endpoints are opened with [`EndpointBuilder::shared_rx`] and bound with
/// [`Endpoint::bind_srx`].  A receive completes in the CQ and the counter of the
/// endpoint whose message it took.  All endpoints that are enabled at the same
/// time have the same CQ for receives, and the same address vector.
///
/// ```no_run
/// # fn f(domain: kfi::Domain, cq: kfi::Cq, av: kfi::Av) -> kfi::Result<()> {
/// use kfi::{Buffer, CqBind};
///
/// let (pool, buffer) = (domain.srx().open()?, Buffer::new(4096)?);
/// pool.recv(&buffer, 1)?;
/// for _ in 0..8 {
///     let ep = domain.endpoint().shared_rx().open()?;
///     ep.bind_srx(&pool)?;
///     ep.bind_cq(&cq, CqBind::TRANSMIT | CqBind::RECV)?;
///     ep.bind_av(&av)?;
///     ep.enable()?;
/// }
/// # Ok(())
/// # }
/// ```
///
/// [`EndpointBuilder::shared_rx`]: crate::EndpointBuilder::shared_rx
#[derive(Clone, Debug)]
pub struct SharedRx {
    /// The module takes it where it takes an endpoint.
    receives: Endpoint,
}

impl SharedRx {
    /// The handle, for raw calls; 0 once it was closed.
    pub fn handle(&self) -> u32 {
        self.receives.handle()
    }

    /// Posts receives, in order, in one call.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::post`]; also `EAGAIN`: the CQ has no room for another
    /// completion, or its first endpoint is just being enabled, or its last one
    /// closed; while no endpoint is enabled, `KFI_ENOAV`: a receive of one source,
    /// and `KFI_ENOCQ`: a search.
    pub fn post(&self, ops: &[Op<'_>]) -> Result<Posted> {
        self.receives.post(ops)
    }

    /// Posts one receive.
    ///
    /// # Errors
    ///
    /// As [`SharedRx::post`].
    pub fn post_one(&self, op: &Op<'_>) -> Result<()> {
        self.receives.post_one(op)
    }

    /// Receives a message.
    ///
    /// # Errors
    ///
    /// As [`SharedRx::post`].
    pub fn recv<'a>(&self, local: impl Into<Local<'a>>, context: u64) -> Result<()> {
        self.receives.recv(local, context)
    }

    /// Receives a message with this tag; bits in `ignore` do not matter.
    ///
    /// # Errors
    ///
    /// As [`SharedRx::post`].
    pub fn trecv<'a>(
        &self,
        local: impl Into<Local<'a>>,
        tag: u64,
        ignore: u64,
        context: u64,
    ) -> Result<()> {
        self.receives.trecv(local, tag, ignore, context)
    }

    /// Cancels the oldest receive with this context.  It completes with
    /// `ECANCELED`, or, while no endpoint is enabled, nowhere.
    ///
    /// # Errors
    ///
    /// `ENOENT`: there is none that can still be cancelled.
    pub fn cancel(&self, context: u64) -> Result<()> {
        self.receives.cancel(context)
    }

    /// A multi-receive buffer with less room than this many bytes is released.
    ///
    /// # Errors
    ///
    /// Only those of every call.
    pub fn set_min_multi_recv(&self, bytes: u64) -> Result<()> {
        self.receives.set_min_multi_recv(bytes)
    }

    /// Closes it now, and returns an error if that fails.
    ///
    /// # Errors
    ///
    /// `EBUSY`: an endpoint is bound to it.  It is closed later then, with the
    /// last reference.
    pub fn close(self) -> Result<()> {
        self.receives.close()
    }
}

impl Domain {
    /// A shared transmit context, to be opened.
    pub fn stx(&self) -> SharedTxBuilder {
        SharedTxBuilder {
            domain: self.clone(),
            raw: Call::sized(),
        }
    }

    /// A shared receive context, to be opened.
    pub fn srx(&self) -> SharedRxBuilder {
        SharedRxBuilder {
            domain: self.clone(),
            raw: Call::sized(),
        }
    }
}

impl Endpoint {
    /// Takes room for transmits from a shared context.
    ///
    /// # Errors
    ///
    /// `EINVAL`: not opened with [`shared_tx`](crate::EndpointBuilder::shared_tx),
    /// bound already, another domain, or capabilities that the context does not
    /// have; `KFI_EOPBADSTATE`: enabled already.
    pub fn bind_stx(&self, stx: &SharedTx) -> Result<()> {
        self.bind(stx.handle(), stx.as_hold())
    }

    /// Matches its messages with the receives of a shared context.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::bind_stx`], with
    /// [`shared_rx`](crate::EndpointBuilder::shared_rx).
    pub fn bind_srx(&self, srx: &SharedRx) -> Result<()> {
        self.bind(srx.handle(), srx.receives.as_hold())
    }
}
