// SPDX-License-Identifier: GPL-2.0

//! The attributes of a connected endpoint's QP that its owner can set (`KFABRIC_OPT_QP`).
//!
//! They are words that are read without a lock. They are set under `Msg::connecting`, and only
//! before the endpoint is connected ([`Msg::set_opt`](super::Msg::set_opt)). So all functions that
//! connect the QP read the same values.

use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

use kfi_core::errno::Errno;
use kfi_roce::{
    headers::RnrTimer,
    mtu::PathMtu,
    rc::{
        attr::{
            AckTimeout,
            MAX_RETRY, //
        },
        Access,
        Attr, //
    }, //
};

use super::super::options::QpOpt;
use crate::{
    net::qp::rc::MAX_RD_ATOMIC,
    shim::errno::to_error, //
};

/// 67 ms.
const DEFAULT_TIMEOUT: u32 = 14;
/// 0.64 ms.
const DEFAULT_MIN_RNR_TIMER: u32 = 12;

/// The attributes of the QP, in the units of the interface. All values are valid.
pub(super) struct Attrs {
    path_mtu: Atomic<u32>,
    timeout: Atomic<u32>,
    retry_cnt: Atomic<u32>,
    rnr_retry: Atomic<u32>,
    min_rnr_timer: Atomic<u32>,
    rd_atomic: Atomic<u32>,
    dest_rd_atomic: Atomic<u32>,
}

impl Attrs {
    pub(super) const fn new() -> Self {
        Self {
            path_mtu: Atomic::new(0),
            timeout: Atomic::new(DEFAULT_TIMEOUT),
            retry_cnt: Atomic::new(MAX_RETRY as u32),
            rnr_retry: Atomic::new(MAX_RETRY as u32),
            min_rnr_timer: Atomic::new(DEFAULT_MIN_RNR_TIMER),
            rd_atomic: Atomic::new(MAX_RD_ATOMIC as u32),
            dest_rd_atomic: Atomic::new(MAX_RD_ATOMIC as u32),
        }
    }

    /// The word of an attribute and its largest value.
    fn place(&self, opt: QpOpt) -> Option<(&Atomic<u32>, u32)> {
        Some(match opt {
            QpOpt::Qkey => return None,
            QpOpt::PathMtu => (&self.path_mtu, PathMtu::Mtu4096.bytes()),
            QpOpt::Timeout => (&self.timeout, 31),
            QpOpt::RetryCnt => (&self.retry_cnt, u32::from(MAX_RETRY)),
            QpOpt::RnrRetry => (&self.rnr_retry, u32::from(MAX_RETRY)),
            QpOpt::MinRnrTimer => (&self.min_rnr_timer, 31),
            QpOpt::RdAtomic => (&self.rd_atomic, u32::from(MAX_RD_ATOMIC)),
            QpOpt::DestRdAtomic => (&self.dest_rd_atomic, u32::from(MAX_RD_ATOMIC)),
        })
    }

    /// The value of an attribute. Fails with `ENOPROTOOPT` if there is no such attribute.
    pub(super) fn get(&self, opt: QpOpt) -> Result<u64> {
        let (place, _) = self
            .place(opt)
            .ok_or_else(|| to_error(Errno::ENOPROTOOPT))?;
        Ok(u64::from(place.load(Relaxed)))
    }

    /// Sets an attribute. Fails with `ENOPROTOOPT` if there is no such attribute, `EINVAL` if the
    /// value is out of range.
    pub(super) fn set(&self, opt: QpOpt, value: u64) -> Result {
        let (place, max) = self
            .place(opt)
            .ok_or_else(|| to_error(Errno::ENOPROTOOPT))?;
        let value = u32::try_from(value).map_err(|_| EINVAL)?;
        let is_mtu = || value == 0 || PathMtu::ALL.iter().any(|mtu| mtu.bytes() == value);
        if value > max || (opt == QpOpt::PathMtu && !is_mtu()) {
            return Err(EINVAL);
        }
        place.store(value, Relaxed);
        Ok(())
    }

    /// The path MTU that the owner set.
    pub(super) fn chosen_mtu(&self) -> Option<PathMtu> {
        let chosen = self.path_mtu.load(Relaxed);
        PathMtu::ALL.into_iter().find(|mtu| mtu.bytes() == chosen)
    }

    /// The path MTU of the connection on a path with the MTU `way`. Fails with `EINVAL` if the
    /// owner set a larger one.
    pub(super) fn path_mtu(&self, way: PathMtu) -> Result<PathMtu> {
        match self.path_mtu.load(Relaxed) {
            0 => Ok(way),
            chosen => PathMtu::ALL
                .into_iter()
                .find(|mtu| mtu.bytes() == chosen && *mtu <= way)
                .ok_or(EINVAL),
        }
    }

    /// The attributes except the path MTU.
    pub(super) fn attr(&self, access: Access) -> Attr {
        // No value has more than 5 bits.
        let code = |value: &Atomic<u32>| value.load(Relaxed) as u8;
        let default = Attr::default();
        Attr {
            access,
            timeout: AckTimeout::from_code(code(&self.timeout)).unwrap_or(default.timeout),
            retry_cnt: code(&self.retry_cnt),
            rnr_retry: code(&self.rnr_retry),
            min_rnr_timer: RnrTimer::from_code(code(&self.min_rnr_timer))
                .unwrap_or(default.min_rnr_timer),
            max_rd_atomic: code(&self.rd_atomic),
            max_dest_rd_atomic: code(&self.dest_rd_atomic),
            ..default
        }
    }
}
