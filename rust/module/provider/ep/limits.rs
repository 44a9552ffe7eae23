// SPDX-License-Identifier: GPL-2.0

//! Limits of endpoints beyond those of [`kfi_core::limits`].

/// The default room below which a multi-receive buffer is released (`KFI_OPT_MIN_MULTI_RECV`).
pub(super) const MIN_MULTI_RECV: u64 = kfi_core::limits::DEFAULT_MIN_MULTI_RECV;

/// The bytes of private data in a connection request (`KFI_OPT_CM_DATA_SIZE`): an IB CM message
/// without the header of the RDMA CM.
pub(super) const CM_DATA_SIZE: u64 = 56;
