// SPDX-License-Identifier: GPL-2.0

//! Common code of endpoints that are one QP: connected endpoints and datagram endpoints.
//!
//! Such an endpoint ([`Wire`]) adds no header of its own, so its messages have what the headers of
//! InfiniBand's packets have.

use core::net::IpAddr;

use kfi_core::enums::EpType;
use kfi_roce::{
    mtu::PathMtu,
    state::State, //
};

use super::{
    dgram::Dgram,
    msg::Msg,
    op::Op,
    prelude::*, //
};
use crate::{
    mem::Budget,
    net::Values, //
};

/// The QP of an endpoint, with its state.
pub(super) enum Wire {
    /// An RC QP.
    Msg(Pin<KBox<Msg>>),
    /// A UD QP.
    Dgram(Pin<KBox<Dgram>>),
}

/// The attributes of a QP.
pub(crate) struct QpInfo {
    pub(crate) qpn: u32,
    /// The first PSN that it sends; 0 for datagrams.
    pub(crate) psn: u32,
    pub(crate) ip: IpAddr,
    /// The peer's QP number; 0: none.
    pub(crate) dest_qpn: u32,
    pub(crate) state: State,
    /// The path MTU to its peer, or the longest datagram.
    pub(crate) path_mtu: Option<PathMtu>,
}

impl Wire {
    /// Makes the state of an endpoint of a type and of `owner`, for `tx_size` transmits. `None` for
    /// reliable datagrams. Fails with `ENOMEM`. Sleeps.
    pub(super) fn new(ep_type: EpType, tx_size: usize, owner: &Budget) -> Result<Option<Self>> {
        Ok(match ep_type {
            EpType::Unspec | EpType::Rdm => None,
            EpType::Msg => Some(Self::Msg(KBox::pin_init(
                Msg::new(tx_size)?,
                GFP_KERNEL_ACCOUNT,
            )?)),
            EpType::Dgram => Some(Self::Dgram(KBox::pin_init(
                Dgram::new(owner),
                GFP_KERNEL_ACCOUNT,
            )?)),
        })
    }

    /// Makes the QP of an endpoint at `addr`. Returns the final address. Fails with `EADDRINUSE`;
    /// `EBUSY` if there are too many QPs; `ENODEV`; `ENOMEM`. Sleeps.
    pub(super) fn enable(&self, endpoint: &Arc<Endpoint>, addr: &SockAddr) -> Result<SockAddr> {
        match self {
            Self::Msg(msg) => msg.enable(endpoint, addr),
            Self::Dgram(dgram) => dgram.enable(endpoint, addr),
        }
    }

    /// Posts an operation. Errors: see [`Poster::post`]. With `EAGAIN`, `op` still has its memory.
    /// Sleeps.
    pub(super) fn post(
        &self,
        endpoint: &Arc<Endpoint>,
        bound: &Bound,
        op: &mut Op<'_>,
        poster: &mut Poster<'_>,
    ) -> Result {
        match self {
            Self::Msg(msg) => msg.post(endpoint, bound, op, poster),
            Self::Dgram(dgram) => dgram.post(endpoint, bound, op, poster),
        }
    }

    /// Checks an operation that is not a receive, and returns its flags. Fails with the errors of
    /// [`Poster::post`] that do not depend on the peer or the state of the connection. Any context.
    pub(super) fn check(&self, endpoint: &Endpoint, op: &Op<'_>) -> Result<OpFlags> {
        match self {
            Self::Msg(msg) => Ok(msg.transmit_of(endpoint, op)?.flags),
            Self::Dgram(dgram) => match op {
                Op::Send(op) => Ok(dgram.check_send(endpoint, op)?.0),
                _ => Err(EOPNOTSUPP),
            },
        }
    }

    /// Sends the work that operations have queued. Sleeps.
    pub(super) fn push(&self) {
        match self {
            Self::Msg(msg) => msg.push(),
            Self::Dgram(_) => {}
        }
    }

    /// The number of outstanding transmits. Does not sleep.
    pub(super) fn under_way(&self) -> u64 {
        match self {
            Self::Msg(msg) => msg.under_way(),
            Self::Dgram(_) => 0,
        }
    }

    /// The packet statistics of the QP. Does not sleep.
    pub(super) fn packets(&self) -> Values {
        match self {
            Self::Msg(msg) => msg.packets(),
            Self::Dgram(dgram) => dgram.packets(),
        }
    }

    /// Closes the QP. It accesses no memory after this has returned. Sleeps.
    pub(super) fn close(&self) {
        match self {
            Self::Msg(msg) => msg.close(),
            Self::Dgram(dgram) => dgram.close(),
        }
    }
}

impl Endpoint {
    /// The attributes of its QP. Fails with `EOPNOTSUPP` if the endpoint is not one QP,
    /// `KFI_EOPBADSTATE` if it is not enabled. Sleeps.
    pub(crate) fn qp_info(&self) -> Result<QpInfo> {
        match &self.wire {
            None => Err(EOPNOTSUPP),
            Some(Wire::Msg(msg)) => msg.qp_info(self),
            Some(Wire::Dgram(dgram)) => dgram.qp_info(self),
        }
    }

    /// Checks that the link can send. Fails with `ENETDOWN`, `ENODEV`. Does not sleep.
    #[inline(always)]
    pub(super) fn check_link(&self) -> Result {
        self.domain.link().check()
    }

    /// Whether the link still has the address of the endpoint. While it has not, the endpoint sends
    /// nothing, and receives nothing: the address may be another host's. Looks the address up only
    /// if an address of the namespace has changed since the last call. Does not sleep.
    #[inline(always)]
    pub(super) fn has_address(&self, bound: &Bound) -> bool {
        let link = self.domain.link();
        bound.has_name.still(|| link.has_address(&bound.name))
    }

    /// Checks that the link still has the endpoint's address. Fails with `EADDRNOTAVAIL`; with
    /// `ENETDOWN` or `ENODEV` if the link has gone down or was removed. Does not sleep.
    #[inline(always)]
    pub(super) fn check_address(&self, bound: &Bound) -> Result {
        match self.has_address(bound) {
            true => Ok(()),
            false => Err(self.domain.link().no_address()),
        }
    }

    /// Whether messages to the endpoint, which the directory has at the address of a peer, are
    /// delivered on this host: the address is still its own, and it is in the same VRF as `sender`.
    #[inline(always)]
    pub(super) fn is_local_to(&self, sender: &Endpoint) -> bool {
        let (own, of_sender) = (self.domain.link(), sender.domain.link());
        let same_network = Arc::ptr_eq(own, of_sender) || own.vrf() == of_sender.vrf();
        // It is in the directory a little before it is enabled.
        let has_address = |bound| self.has_address(bound);
        same_network && self.bound.as_ref().is_none_or(has_address)
    }
}

/// The immediate data of an operation. Fails with `EINVAL` if its CQ data have more than 32 bits.
pub(super) fn imm_data(flags: OpFlags, data: u64) -> Result<Option<u32>> {
    if !flags.contains(OpFlags::REMOTE_CQ_DATA) {
        return Ok(None);
    }
    u32::try_from(data).map(Some).map_err(|_| EINVAL)
}
