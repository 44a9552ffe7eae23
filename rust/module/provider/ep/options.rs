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
    wire::Wire,
    Endpoint, //
};
use crate::shim::errno::to_error;

/// The options of an endpoint.
#[derive(Clone, Copy)]
pub(crate) enum Opt {
    /// `KFI_OPT_MIN_MULTI_RECV`, bytes.
    MinMultiRecv,
    /// `KFI_OPT_CM_DATA_SIZE`, bytes; cannot be set.
    CmDataSize,
    /// Of its QP (level `KFABRIC_OPT_QP`).
    Qp(QpOpt),
}

/// The options of a QP, `KFABRIC_OPT_*`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum QpOpt {
    /// Q key, of datagrams; all others are of connected endpoints.
    Qkey,
    /// Path MTU, bytes; 0: what the way allows.
    PathMtu,
    /// Local ACK timeout, a code.
    Timeout,
    /// How often what was not answered is sent again.
    RetryCnt,
    /// How often a peer without a receive is tried again.
    RnrRetry,
    /// How long a peer waits that found no receive here, a code.
    MinRnrTimer,
    /// READs and atomics under way.
    RdAtomic,
    /// READs and atomics of the peer's under way.
    DestRdAtomic,
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

    /// The value of an option. `ENOPROTOOPT` an endpoint of its type does not have it. Does not
    /// sleep.
    pub(crate) fn opt(&self, opt: Opt) -> Result<u64> {
        match (opt, &self.wire) {
            (Opt::MinMultiRecv, _) => Ok(self.min_multi_recv.load(Relaxed)),
            (Opt::CmDataSize, _) => Ok(limits::CM_DATA_SIZE),
            (Opt::Qp(QpOpt::Qkey), Some(Wire::Dgram(dgram))) => Ok(u64::from(dgram.qkey())),
            (Opt::Qp(opt), Some(Wire::Msg(msg))) => msg.opt(opt),
            (Opt::Qp(_), _) => Err(to_error(Errno::ENOPROTOOPT)),
        }
    }

    /// The room below which a multi-receive buffer is released, bytes. Does not sleep.
    pub(super) fn min_multi_recv(&self) -> u64 {
        self.min_multi_recv.load(Relaxed)
    }

    /// Sets an option; buffers posted before keep what they were posted with. `ENOPROTOOPT` it
    /// cannot be set, or an endpoint of its type does not have it; of a QP also `EINVAL` out of
    /// range, `EPERM` a controlled Q key, `KFI_EOPBADSTATE` too late, `EBADF`. Sleeps.
    pub(crate) fn set_opt(&self, opt: Opt, value: u64) -> Result {
        match (opt, &self.wire) {
            (Opt::MinMultiRecv, _) => {
                self.min_multi_recv.store(value, Relaxed);
                Ok(())
            }
            (Opt::Qp(QpOpt::Qkey), Some(Wire::Dgram(dgram))) => {
                self.set_up(|_, _| dgram.set_qkey(value))
            }
            (Opt::Qp(opt), Some(Wire::Msg(msg))) => msg.set_opt(opt, value),
            (Opt::CmDataSize | Opt::Qp(_), _) => Err(to_error(Errno::ENOPROTOOPT)),
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

    /// The same of a transmit of `len` bytes, checked: besides `EINVAL` what
    /// [`OpType::check_caps`] and [`OpType::check_len`] say. Does not sleep.
    #[inline]
    pub(super) fn checked_flags_of(
        &self,
        kind: OpType,
        flags: Flags,
        len: usize,
    ) -> Result<OpFlags> {
        let flags = self.flags_of(kind, flags)?;
        kind.check_caps(self.caps, flags, false)
            .and_then(|()| kind.check_len(flags, len as u64))
            .map_err(to_error)?;
        Ok(flags)
    }

    /// Sets the default flags of a side, checked with [`Side::default_flags`]. `EOPNOTSUPP` a
    /// datagram's delivery cannot be told. Does not sleep.
    pub(crate) fn set_op_flags(&self, side: Side, flags: OpFlags) -> Result {
        if matches!(self.wire, Some(Wire::Dgram(_))) && flags.contains(OpFlags::DELIVERY_COMPLETE) {
            return Err(EOPNOTSUPP);
        }
        let place = match side {
            Side::Transmit => &self.tx_op_flags,
            Side::Receive => &self.rx_op_flags,
        };
        place.store(flags.bits(), Relaxed);
        Ok(())
    }
}
