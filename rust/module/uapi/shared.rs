// SPDX-License-Identifier: GPL-2.0

//! Shared contexts: `KFABRIC_IOC_STX_OPEN`, `KFABRIC_IOC_SRX_OPEN`. A shared receive context is an
//! endpoint of the provider, so the calls that take an endpoint take it too.

use kfi_core::{
    auth_key::AuthKey,
    flags::{
        Caps,
        OpFlags, //
    },
    info::{
        shared_rx,
        shared_tx,
        Info,
        RxAttr,
        TxAttr, //
    }, //
};

use super::prelude::*;
use crate::provider::{
    ep::{
        attr::{
            EpRequest,
            Shares, //
        },
        Endpoint, //
    },
    stx::Stx, //
};

/// `KFABRIC_IOC_STX_OPEN`.
pub(super) fn open_stx(
    file: &OpenFile,
    arg: &mut kfabric_stx_open,
    ident: Ident,
) -> Result<Arc<Stx>> {
    let hint = TxAttr {
        caps: arg.caps,
        size: arg.tx_size.into(),
        ..Info::ANY.tx
    };
    let found = shared_tx(&hint).map_err(|_| EINVAL)?;
    let caps = Caps::from_bits_truncate(found.caps);
    let stx = Stx::open(
        &file.object::<Domain>(arg.domain)?,
        caps,
        found.size,
        &ident,
    )?;
    arg.caps = found.caps;
    arg.tx_size = u32::try_from(found.size)?;
    Ok(stx)
}

/// `KFABRIC_IOC_SRX_OPEN`.
pub(super) fn open_srx(
    file: &OpenFile,
    arg: &mut kfabric_srx_open,
    ident: Ident,
) -> Result<Arc<Endpoint>> {
    let hint = RxAttr {
        caps: arg.caps,
        size: arg.rx_size.into(),
        total_buffered_recv: arg.total_buffered_recv,
        ..Info::ANY.rx
    };
    let found = shared_rx(&hint).map_err(|_| EINVAL)?;
    let request = EpRequest {
        ep_type: KFI_EP_RDM,
        caps: found.caps,
        tx_op_flags: OpFlags::EMPTY.bits(),
        rx_op_flags: arg.rx_op_flags,
        tx_size: 0,
        rx_size: found.size,
        total_buffered_recv: found.total_buffered_recv,
        src_addr: None,
        shares: Shares::default(),
        auth_key: AuthKey::NONE,
    };
    let attr = request.check_srx()?;
    let srx = Endpoint::open_srx(&file.object::<Domain>(arg.domain)?, attr, ident)?;
    arg.caps = found.caps;
    arg.rx_size = u32::try_from(found.size)?;
    arg.total_buffered_recv = found.total_buffered_recv;
    Ok(srx)
}
