// SPDX-License-Identifier: GPL-2.0

//! What can be asked of an endpoint and changed: its name, options and default flags.

use kernel::{
    prelude::*,
    sync::atomic::Relaxed, //
};

use kfi_core::{
    addr::SockAddr,
    errno::Errno,
    flags::OpFlags,
    op::{
        OpType,
        Side, //
    }, //
};

use super::{
    limits,
    op::Flags,
    Endpoint, //
};
use crate::shim::errno::to_error;

/// The options of an endpoint (level `KFI_OPT_ENDPOINT`).
#[derive(Clone, Copy)]
pub(crate) enum Opt {
    /// `KFI_OPT_MIN_MULTI_RECV`, bytes.
    MinMultiRecv,
    /// `KFI_OPT_CM_DATA_SIZE`, bytes; cannot be set.
    CmDataSize,
}

impl Endpoint {
    /// Its address. `KFI_EOPBADSTATE` before it is enabled. Does not sleep.
    pub(crate) fn name(&self) -> Result<SockAddr> {
        match self.bound.as_ref() {
            Some(bound) => Ok(bound.name),
            None => Err(to_error(Errno::KFI_EOPBADSTATE)),
        }
    }

    /// Chooses the address that it shall have. `EADDRNOTAVAIL` the link does not have it,
    /// `KFI_EOPBADSTATE` it is enabled, `EBADF` it is closed. Sleeps.
    pub(crate) fn set_name(&self, addr: SockAddr) -> Result {
        if !self.domain.link().has_address(&addr) {
            return Err(EADDRNOTAVAIL);
        }
        self.set_up(|_, want| {
            *want = Some(addr);
            Ok(())
        })
    }

    /// The value of an option. Does not sleep.
    pub(crate) fn opt(&self, opt: Opt) -> u64 {
        match opt {
            Opt::MinMultiRecv => self.min_multi_recv.load(Relaxed),
            Opt::CmDataSize => limits::CM_DATA_SIZE,
        }
    }

    /// The room below which a multi-receive buffer is released, bytes. Does not sleep.
    pub(super) fn min_multi_recv(&self) -> u64 {
        self.min_multi_recv.load(Relaxed)
    }

    /// Sets an option; buffers posted before keep what they were posted with. `ENOPROTOOPT` it
    /// cannot be set. Does not sleep.
    pub(crate) fn set_opt(&self, opt: Opt, value: u64) -> Result {
        match opt {
            Opt::MinMultiRecv => {
                self.min_multi_recv.store(value, Relaxed);
                Ok(())
            }
            Opt::CmDataSize => Err(to_error(Errno::ENOPROTOOPT)),
        }
    }

    /// The default flags of a side. Does not sleep.
    pub(crate) fn op_flags(&self, side: Side) -> OpFlags {
        let flags = match side {
            Side::Transmit => &self.tx_op_flags,
            Side::Receive => &self.rx_op_flags,
        };
        OpFlags::from_bits_truncate(flags.load(Relaxed))
    }

    /// The effective flags of an operation: its own, with the endpoint's defaults unless they are
    /// all there is. `EINVAL` a flag that `kind` cannot have. Does not sleep.
    pub(super) fn flags_of(&self, kind: OpType, flags: Flags) -> Result<OpFlags> {
        let defaults = self.op_flags(kind.side());
        kind.flags(flags.own.bits(), flags.explicit, defaults)
            .map_err(to_error)
    }

    /// Sets the default flags of a side, checked with [`Side::default_flags`]. Does not sleep.
    pub(crate) fn set_op_flags(&self, side: Side, flags: OpFlags) {
        let place = match side {
            Side::Transmit => &self.tx_op_flags,
            Side::Receive => &self.rx_op_flags,
        };
        place.store(flags.bits(), Relaxed);
    }
}
