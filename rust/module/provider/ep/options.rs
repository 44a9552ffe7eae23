// SPDX-License-Identifier: GPL-2.0

//! Attributes of an endpoint that a caller can read or set: its name, options and default flags.

use super::{
    op::Flags,
    prelude::*,
    wire::Wire, //
};

/// The bytes of private data in a connection request (`KFI_OPT_CM_DATA_SIZE`): an IB CM message
/// without the header of the RDMA CM.
pub(crate) const CM_DATA_SIZE: u64 = 56;

/// The options of an endpoint.
#[derive(Clone, Copy)]
pub(crate) enum Opt {
    /// `KFI_OPT_MIN_MULTI_RECV`, bytes.
    MinMultiRecv,
    /// `KFI_OPT_CM_DATA_SIZE`, bytes; cannot be set.
    CmDataSize,
    /// An option of its QP (level `KFABRIC_OPT_QP`).
    Qp(QpOpt),
}

/// The options of a QP, `KFABRIC_OPT_*`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum QpOpt {
    /// Q key, of datagram endpoints. All others are of connected endpoints.
    Qkey,
    /// Path MTU in bytes; 0: the largest that the path allows.
    PathMtu,
    /// Local ACK timeout, as its InfiniBand code.
    Timeout,
    /// The number of times that an unanswered packet is sent again.
    RetryCnt,
    /// The number of times that a send is tried again after an RNR NAK.
    RnrRetry,
    /// The time after which a peer tries again that got an RNR NAK, as its InfiniBand code.
    MinRnrTimer,
    /// The most outstanding READs and atomics of this end.
    RdAtomic,
    /// The most outstanding READs and atomics of the peer.
    DestRdAtomic,
}

impl Endpoint {
    /// Its address; that of the scalable endpoint if it is a context. Fails with `KFI_EOPBADSTATE`
    /// if the endpoint is not enabled. Does not sleep.
    pub(crate) fn name(&self) -> Result<SockAddr> {
        match self.bound.as_ref() {
            Some(bound) if !self.is_srx => Ok(bound.source),
            _ => Err(to_error(Errno::KFI_EOPBADSTATE)),
        }
    }

    /// Sets the address that it will have when it is enabled. Fails with `EADDRNOTAVAIL` if the
    /// link does not have the address; `EINVAL` if it is a context; `KFI_EOPBADSTATE` if the
    /// endpoint is enabled; `EBADF` if it is closed. Sleeps.
    pub(crate) fn set_name(&self, addr: SockAddr) -> Result {
        if self.context.is_some() {
            return Err(EINVAL);
        }
        if !self.domain.link().has_address(&addr) {
            return Err(EADDRNOTAVAIL);
        }
        self.set_up(|_, requested| {
            *requested = Some(addr);
            Ok(())
        })
    }

    /// The value of an option. Fails with `ENOPROTOOPT` if endpoints of this type do not have it.
    /// Does not sleep.
    pub(crate) fn opt(&self, opt: Opt) -> Result<u64> {
        match (opt, &self.wire) {
            (Opt::MinMultiRecv, _) => Ok(self.min_multi_recv.load(Relaxed)),
            (Opt::CmDataSize, _) => Ok(CM_DATA_SIZE),
            (Opt::Qp(QpOpt::Qkey), Some(Wire::Dgram(dgram))) => Ok(u64::from(dgram.qkey())),
            (Opt::Qp(opt), Some(Wire::Msg(msg))) => msg.opt(opt),
            (Opt::Qp(_), _) => Err(to_error(Errno::ENOPROTOOPT)),
        }
    }

    /// Sets an option. Buffers that were posted before keep the old value. Fails with `ENOPROTOOPT`
    /// if the option is read-only, or endpoints of this type do not have it. For options of a QP
    /// also with `EINVAL` if the value is out of range; `EPERM` for a controlled Q key;
    /// `KFI_EOPBADSTATE` if the endpoint is enabled (Q key) or was connected (the others); `EBADF`.
    /// Sleeps.
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

    /// Whether successes of a side make no CQ entry without `KFI_COMPLETION`. Does not sleep.
    pub(crate) fn is_selective(&self, side: Side) -> bool {
        let bound = self.bound.as_ref();
        bound
            .and_then(|bound| bound.cq(side))
            .is_some_and(|binding| binding.selective)
    }

    /// The effective flags of an operation: its own and, unless they are explicit, the defaults of
    /// the endpoint. Any context.
    #[inline]
    pub(super) fn flags_of(&self, kind: OpType, flags: Flags) -> OpFlags {
        let defaults = match flags.explicit {
            true => OpFlags::EMPTY,
            false => self.op_flags(kind.side()),
        };
        kind.with_defaults(flags.own, defaults)
    }

    /// The effective flags of a transmit of `len` bytes, with all checks. Fails with those of
    /// [`OpType::check_caps`] and [`OpType::check_len`]. Any context.
    #[inline]
    pub(super) fn checked_flags_of(
        &self,
        kind: OpType,
        flags: Flags,
        len: usize,
    ) -> Result<OpFlags> {
        let flags = self.flags_of(kind, flags);
        kind.check_caps(self.caps, flags, false)
            .and_then(|()| kind.check_len(flags, len as u64))
            .map_err(to_error)?;
        Ok(flags)
    }

    /// Checks that its operations can have these default flags. Fails with `EOPNOTSUPP` for
    /// KFI_DELIVERY_COMPLETE of a datagram endpoint, and KFI_TRIGGER without the capability. Does
    /// not sleep.
    pub(crate) fn check_op_flags(&self, flags: OpFlags) -> Result {
        if matches!(self.wire, Some(Wire::Dgram(_))) && flags.contains(OpFlags::DELIVERY_COMPLETE) {
            return Err(EOPNOTSUPP);
        }
        if flags.contains(OpFlags::TRIGGER) && !self.caps.contains(Caps::TRIGGER) {
            return Err(EOPNOTSUPP);
        }
        Ok(())
    }

    /// Sets the default flags of a side, which [`Side::default_flags`] has checked. Fails as
    /// [`check_op_flags`](Self::check_op_flags). Does not sleep.
    pub(crate) fn set_op_flags(&self, side: Side, flags: OpFlags) -> Result {
        self.check_op_flags(flags)?;
        let default_flags = match side {
            Side::Transmit => &self.tx_op_flags,
            Side::Receive => &self.rx_op_flags,
        };
        default_flags.store(flags.bits(), Relaxed);
        Ok(())
    }
}
