// SPDX-License-Identifier: GPL-2.0

//! Contexts of scalable endpoints: endpoints that have one side.
//!
//! A context is an [`Endpoint`] with the capabilities of one side, so operations, completions and
//! closing are those of endpoints. [`Context`] is what it has besides: its scalable endpoint
//! ([`ScalableEp`]), from which it has its AV and its name when it is enabled.
//!
//! - A receive context is at the port of the name plus its index, where peers find it.
//! - A transmit context has a port of its own. Peers know its connections by that, and do not find
//!   it there: the directory has no endpoint at the port, and nobody listens. Its messages have the
//!   name of the scalable endpoint as their source.

use kfi_core::flags::{
    CntrBind,
    CompCntrOps,
    CqBind, //
};

use super::prelude::*;
use crate::{
    provider::{
        av::Av,
        sep::ScalableEp, //
    },
    shim::wait::Signals, //
};

/// What a context has of its scalable endpoint, of which it is a use.
pub(crate) struct Context {
    sep: UseRef<ScalableEp>,
    side: Side,
    index: u16,
}

/// The AV and the name of a context that is being enabled.
pub(super) struct ContextName {
    pub(super) av: Arc<Av>,
    /// The address of the context; port 0: the directory chooses one.
    pub(super) addr: SockAddr,
    /// The name of the scalable endpoint.
    pub(super) name: SockAddr,
}

impl Context {
    /// Makes the part of context `index`. Fails with `EBADF` if the scalable endpoint is closed.
    pub(in crate::provider) fn new(sep: &Arc<ScalableEp>, side: Side, index: u16) -> Result<Self> {
        Ok(Self {
            sep: UseRef::new(sep.clone())?,
            side,
            index,
        })
    }

    /// Its side. Any context.
    #[inline]
    pub(super) fn side(&self) -> Side {
        self.side
    }

    /// The name of a context that is being enabled. The scalable endpoint gets its name if it has
    /// none. Errors: see [`ScalableEp::join`]. Sleeps.
    pub(super) fn name(&self) -> Result<ContextName> {
        let (av, name) = self.sep.join()?;
        let addr = match self.side {
            Side::Transmit => name.with_port(0),
            // The port was reserved.
            Side::Receive => *PeerAddr::context(name, self.index)
                .map_err(to_error)?
                .addr(),
        };
        Ok(ContextName { av, addr, name })
    }

    /// The context is closed: another one with its index can be opened. Sleeps.
    pub(super) fn leave(&self) {
        self.sep.leave(self.side, self.index);
        self.sep.release();
    }

    /// The sides that a CQ is bound to with `flags`. Without flags it is the side of the context.
    /// Fails with `EINVAL` for the other side.
    pub(super) fn cq_sides(&self, flags: CqBind) -> Result<CqBind> {
        let (own, other) = match self.side {
            Side::Transmit => (CqBind::TRANSMIT, CqBind::RECV),
            Side::Receive => (CqBind::RECV, CqBind::TRANSMIT),
        };
        if flags.contains(other) {
            return Err(EINVAL);
        }
        Ok(flags | own)
    }

    /// The operations that a counter can be bound to.
    pub(super) fn counted(&self) -> CntrBind {
        match self.side {
            Side::Transmit => CntrBind::SEND | CntrBind::READ | CntrBind::WRITE,
            Side::Receive => CntrBind::RECV | CntrBind::REMOTE_READ | CntrBind::REMOTE_WRITE,
        }
    }

    /// Checks the operations that a completion counter is attached to. Fails with `EINVAL` for
    /// operations of the other side.
    pub(super) fn check_comp_cntr(&self, ops: CompCntrOps) -> Result {
        let own = match self.side {
            Side::Transmit => super::bound::TRANSMITS,
            Side::Receive => CompCntrOps::ALL.without(super::bound::TRANSMITS),
        };
        if own.contains(ops) {
            Ok(())
        } else {
            Err(EINVAL)
        }
    }
}

impl Endpoint {
    /// The side that it has if it is a context; `None`: both. Any context.
    #[inline]
    pub(crate) fn only_side(&self) -> Option<Side> {
        self.context.as_ref().map(Context::side)
    }

    /// Fails with `EBUSY` if an operation of a transmit context is outstanding, or was started and
    /// is not posted. Before that it waits until no task posts started operations: an operation
    /// counts as started until its post returns, but its completion can be read earlier. `EINTR` if
    /// a signal ends the wait. Sleeps.
    pub(super) fn check_transmits(&self, signals: Signals) -> Result {
        if self.submission.has_started(Side::Transmit) {
            self.submission.wait_idle(Side::Transmit, signals)?;
        }
        if self.tx.waiting() != 0 || self.submission.has_started(Side::Transmit) {
            return Err(EBUSY);
        }
        Ok(())
    }

    /// Whether it is receive context `index` of `name`, at whose address it was found. An ordinary
    /// endpoint is its own context 0. Does not sleep.
    #[inline]
    pub(super) fn is_context_of(&self, name: &SockAddr, index: u16) -> bool {
        if self.context.is_none() {
            return index == 0;
        }
        // An endpoint enters the directory before it is enabled.
        self.bound
            .as_ref()
            .is_some_and(|bound| bound.source.port() == name.port())
    }
}
