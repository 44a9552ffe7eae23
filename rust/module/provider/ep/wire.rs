// SPDX-License-Identifier: GPL-2.0

//! What endpoints of the wire have in common: connected ones and datagrams.
//!
//! Such an endpoint is one QP ([`Wire`]). It has no header of its own on the wire, so it carries what
//! InfiniBand's packets do.

use core::net::IpAddr;

use kernel::{
    prelude::*,
    sync::Arc, //
};

use kfi_core::{
    addr::SockAddr,
    enums::EpType,
    flags::OpFlags, //
};
use kfi_roce::{
    mtu::PathMtu,
    state::State, //
};

use super::{
    bound::Bound,
    dgram::Dgram,
    msg::Msg,
    op::Op,
    post::Poster,
    Endpoint, //
};
use crate::net::{
    LinkState,
    Values, //
};

/// The QP of an endpoint, and what goes with it.
pub(super) enum Wire {
    /// An RC QP.
    Msg(Pin<KBox<Msg>>),
    /// A UD QP.
    Dgram(Pin<KBox<Dgram>>),
}

/// What there is to know of a QP.
pub(crate) struct QpInfo {
    /// Its number.
    pub(crate) qpn: u32,
    /// PSN of the first packet that it sends; 0 for datagrams.
    pub(crate) psn: u32,
    /// Its address.
    pub(crate) ip: IpAddr,
    /// The peer's number; 0: none.
    pub(crate) dest_qpn: u32,
    /// Its state.
    pub(crate) state: State,
    /// Towards its peer, or the longest datagram.
    pub(crate) path_mtu: Option<PathMtu>,
}

impl Wire {
    /// What an endpoint of a type needs for `tx_size` transmits; `None` for reliable datagrams.
    /// `ENOMEM`. Sleeps.
    pub(super) fn new(ep_type: EpType, tx_size: usize) -> Result<Option<Self>> {
        Ok(match ep_type {
            EpType::Unspec | EpType::Rdm => None,
            EpType::Msg => Some(Self::Msg(KBox::pin_init(
                Msg::new(tx_size)?,
                GFP_KERNEL_ACCOUNT,
            )?)),
            EpType::Dgram => Some(Self::Dgram(KBox::pin_init(
                Dgram::new(),
                GFP_KERNEL_ACCOUNT,
            )?)),
        })
    }

    /// Makes the QP of an endpoint at `addr`; gives the address that it has then. `EADDRINUSE`,
    /// `EBUSY` too many QPs, `ENODEV`, `ENOMEM`. Sleeps.
    pub(super) fn enable(&self, endpoint: &Arc<Endpoint>, addr: &SockAddr) -> Result<SockAddr> {
        match self {
            Self::Msg(msg) => msg.enable(endpoint, addr),
            Self::Dgram(dgram) => dgram.enable(endpoint, addr),
        }
    }

    /// Does an operation. See [`Poster::post`] for errors. Sleeps.
    pub(super) fn post(
        &self,
        endpoint: &Arc<Endpoint>,
        bound: &Bound,
        op: Op<'_>,
        poster: &mut Poster<'_>,
    ) -> Result {
        match self {
            Self::Msg(msg) => msg.post(endpoint, bound, op, poster),
            Self::Dgram(dgram) => dgram.post(endpoint, bound, op),
        }
    }

    /// Sends what operations have queued. Sleeps.
    pub(super) fn push(&self) {
        match self {
            Self::Msg(msg) => msg.push(),
            Self::Dgram(_) => {}
        }
    }

    /// Transmits that have not ended. Does not sleep.
    pub(super) fn under_way(&self) -> u64 {
        match self {
            Self::Msg(msg) => msg.under_way(),
            Self::Dgram(_) => 0,
        }
    }

    /// What became of the packets of the QP. Does not sleep.
    pub(super) fn packets(&self) -> Values {
        match self {
            Self::Msg(msg) => msg.packets(),
            Self::Dgram(dgram) => dgram.packets(),
        }
    }

    /// Closes the QP; it has no part in anything when this returns. Sleeps.
    pub(super) fn close(&self) {
        match self {
            Self::Msg(msg) => msg.close(),
            Self::Dgram(dgram) => dgram.close(),
        }
    }
}

impl Endpoint {
    /// Its QP: `EOPNOTSUPP` it has none of its own. `KFI_EOPBADSTATE` not enabled. Sleeps.
    pub(crate) fn qp_info(&self) -> Result<QpInfo> {
        match &self.wire {
            None => Err(EOPNOTSUPP),
            Some(Wire::Msg(msg)) => msg.qp_info(self),
            Some(Wire::Dgram(dgram)) => dgram.qp_info(self),
        }
    }

    /// Whether the link can send: `ENETDOWN`, `ENODEV`. Does not sleep.
    pub(super) fn check_link(&self) -> Result {
        match self.domain.link().state() {
            LinkState::Up => Ok(()),
            LinkState::Down => Err(ENETDOWN),
            LinkState::Gone => Err(ENODEV),
        }
    }
}

/// The immediate data of an operation: `EINVAL` its CQ data have more than 32 bits.
pub(super) fn imm_data(flags: OpFlags, data: u64) -> Result<Option<u32>> {
    if !flags.contains(OpFlags::REMOTE_CQ_DATA) {
        return Ok(None);
    }
    u32::try_from(data).map(Some).map_err(|_| EINVAL)
}
