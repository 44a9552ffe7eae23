// SPDX-License-Identifier: GPL-2.0

//! The attributes of a new endpoint, and their checks, which are the same for all front ends.

use kfi_core::{
    auth_key::AuthKey,
    enums::EpType,
    info::Kind,
    limits,
    op::expand_caps, //
};

use super::prelude::*;

/// The attributes that a caller asks for. 0 leaves the choice to the provider, except for flags.
pub(crate) struct EpRequest {
    /// `KFI_EP_*`.
    pub(crate) ep_type: u32,
    pub(crate) caps: u64,
    /// Default flags of transmits.
    pub(crate) tx_op_flags: u64,
    /// Default flags of receives.
    pub(crate) rx_op_flags: u64,
    pub(crate) tx_size: u64,
    pub(crate) rx_size: u64,
    pub(crate) total_buffered_recv: u64,
    /// See [`EpAttr::src_addr`].
    pub(crate) src_addr: Option<SockAddr>,
    pub(crate) shares: Shares,
    /// [`AuthKey::NONE`] if none is given.
    pub(crate) auth_key: AuthKey,
}

/// The sides of an endpoint that use a shared context (`KFI_SHARED_CONTEXT`).
#[derive(Clone, Copy, Default)]
pub(crate) struct Shares {
    pub(crate) tx: bool,
    pub(crate) rx: bool,
}

/// The attributes of an endpoint, checked.
pub(crate) struct EpAttr {
    pub(crate) ep_type: EpType,
    /// Capabilities, complete.
    pub(crate) caps: Caps,
    /// Default flags of transmits.
    pub(crate) tx_op_flags: OpFlags,
    /// Default flags of receives.
    pub(crate) rx_op_flags: OpFlags,
    /// The number of sends that can wait at their peers.
    pub(crate) tx_size: usize,
    /// The number of receives that can be posted, of each kind (plain, tagged).
    pub(crate) rx_size: usize,
    /// Bytes of unexpected messages that the endpoint buffers.
    pub(crate) total_buffered_recv: u64,
    /// The requested address; `None`: the first one of the link. Port 0: any.
    pub(crate) src_addr: Option<SockAddr>,
    pub(crate) shares: Shares,
    /// The authorization key. Only reliable datagrams have one.
    pub(crate) auth_key: AuthKey,
}

impl EpRequest {
    /// Checks the attributes. Fails with `EINVAL` for an unknown type, capability or flag, a flag
    /// that cannot be a default of its side, or a size above its limit; `EOPNOTSUPP` for a
    /// capability, a default flag, buffering or an authorization key that endpoints of the type do
    /// not have. Does not sleep.
    pub(crate) fn check(self) -> Result<EpAttr> {
        let ep_type = EpType::try_from(self.ep_type).map_err(to_error)?;
        self.check_as(ep_type, Kind::of(ep_type))
    }

    /// [`check`](Self::check) for a shared receive context, whose endpoints can have any type.
    pub(crate) fn check_srx(self) -> Result<EpAttr> {
        self.check_as(EpType::Rdm, &Kind::SHARED)
    }

    fn check_as(self, ep_type: EpType, kind: &Kind) -> Result<EpAttr> {
        let caps = expand_caps(Caps::from_bits(self.caps).map_err(to_error)?, kind.caps);
        if !kind.caps.contains(caps) {
            return Err(EOPNOTSUPP);
        }
        let tx_op_flags = Side::Transmit
            .default_flags(self.tx_op_flags)
            .map_err(to_error)?;
        let rx_op_flags = Side::Receive
            .default_flags(self.rx_op_flags)
            .map_err(to_error)?;
        if !kind.tx_op_flags.contains(tx_op_flags) {
            return Err(EOPNOTSUPP);
        }
        if (tx_op_flags | rx_op_flags).contains(OpFlags::TRIGGER) && !caps.contains(Caps::TRIGGER) {
            return Err(EOPNOTSUPP);
        }
        let (default_buffered, max_buffered) = kind.buffered;
        if max_buffered == 0 && self.total_buffered_recv != 0 {
            return Err(EOPNOTSUPP);
        }
        if kind.auth_key_size == 0 && self.auth_key != AuthKey::NONE {
            return Err(EOPNOTSUPP);
        }
        Ok(EpAttr {
            ep_type,
            caps,
            tx_op_flags,
            rx_op_flags,
            tx_size: queue_size(self.tx_size, limits::DEFAULT_TX_SIZE)?,
            rx_size: queue_size(self.rx_size, limits::DEFAULT_RX_SIZE)?,
            total_buffered_recv: match self.total_buffered_recv {
                0 => default_buffered,
                bytes if bytes > max_buffered => return Err(EINVAL),
                bytes => bytes,
            },
            src_addr: self.src_addr,
            shares: self.shares,
            auth_key: self.auth_key,
        })
    }
}

/// The size of a queue. Fails with `EINVAL` if it is too large.
fn queue_size(size: u64, default: u32) -> Result<usize> {
    let size = if size == 0 { default.into() } else { size };
    if size > limits::MAX_QUEUE.into() {
        return Err(EINVAL);
    }
    Ok(usize::try_from(size)?)
}
