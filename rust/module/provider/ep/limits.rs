// SPDX-License-Identifier: GPL-2.0

//! Limits of endpoints beyond those of [`kfi_core::limits`].

/// The room below which a multi-receive buffer is released, unless set (`KFI_OPT_MIN_MULTI_RECV`).
pub(super) const MIN_MULTI_RECV: u64 = kfi_core::limits::DEFAULT_MIN_MULTI_RECV;

/// Bytes of private data that a connection request can carry (`KFI_OPT_CM_DATA_SIZE`): what the
/// RDMA CM leaves of an IB CM message.
pub(super) const CM_DATA_SIZE: u64 = 56;
