// SPDX-License-Identifier: GPL-2.0
//! Aliases of endpoints: the same endpoint with other default flags.
//!
//! An alias is what fi_ep_alias(3) describes.  Its typical use is a
//! trigger-able endpoint ([`OpFlags::TRIGGER`]): all operations that are posted
//! through the alias wait for a counter, those that are posted to the endpoint
//! itself do not.

use std::sync::Arc;

use crate::{
    abi::{self, Call, calls},
    ep::{Endpoint, Posted},
    error::Result,
    flags::OpFlags,
    object::{Inner, object},
    op::Op,
};

/// An alias of an endpoint; from [`Endpoint::alias`].
///
/// ```no_run
/// # fn f(domain: kfi::Domain, ep: kfi::Endpoint, peer: kfi::FiAddr) -> kfi::Result<()> {
/// use kfi::{Buffer, Op, OpFlags};
///
/// let (arrived, answer) = (domain.cntr().open()?, Buffer::from_bytes(b"all here")?);
/// let later = ep.alias(OpFlags::TRIGGER, OpFlags::empty())?;
/// later.post_one(&Op::send(peer, &answer).trigger(&arrived, 3))?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct EndpointAlias {
    inner: Arc<Inner>,
}

object!(EndpointAlias);

impl EndpointAlias {
    /// Posts operations, in order, in one call: as [`Endpoint::post`], with the
    /// default flags of the alias.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::post`].
    #[inline]
    pub fn post(&self, ops: &[Op<'_>]) -> Result<Posted> {
        let (arg, result) = calls::post(self.device(), self.handle(), ops);
        result?;
        Ok(Posted::new(arg.done, arg.error))
    }

    /// Posts one operation.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::post`].
    pub fn post_one(&self, op: &Op<'_>) -> Result<()> {
        self.post(std::slice::from_ref(op)).map(drop)
    }
}

impl Endpoint {
    /// Opens an alias with these default flags of transmits and of receives
    /// (kfi_ep_alias).
    ///
    /// # Errors
    ///
    /// `EINVAL`: flags that operations of that side do not have; `EOPNOTSUPP`:
    /// [`OpFlags::TRIGGER`] without [`Caps::TRIGGER`](crate::Caps::TRIGGER);
    /// `EMFILE`; `ENOMEM`.
    pub fn alias(&self, transmits: OpFlags, receives: OpFlags) -> Result<EndpointAlias> {
        let mut arg = abi::kfabric_ep_alias {
            ep: self.handle(),
            tx_op_flags: transmits.bits(),
            rx_op_flags: receives.bits(),
            ..Call::sized()
        };
        calls::plain(self.device(), &mut arg)?;
        Ok(EndpointAlias {
            inner: Inner::new(self.device(), arg.handle, vec![self.as_hold()]),
        })
    }
}
