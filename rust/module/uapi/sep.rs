// SPDX-License-Identifier: GPL-2.0

//! The calls `KFABRIC_IOC_SEP_*`: scalable endpoints, and opening their contexts, which are
//! endpoints for all other calls.

use kfi_core::{
    auth_key::AuthKey,
    enums::EpType,
    info::{
        RxAttr,
        TxAttr, //
    }, //
};

use super::{
    parse::{
        own_sockaddr_or_none,
        yes_or_no, //
    },
    prelude::*, //
};
use crate::provider::{
    ep::{
        attr::{
            EpRequest,
            Shares, //
        },
        Endpoint, //
    },
    sep::{
        ContextCounts,
        ScalableEp, //
    }, //
};

/// `KFABRIC_IOC_SEP_OPEN`.
pub(super) fn open(
    file: &OpenFile,
    arg: &mut kfabric_sep_open,
    ident: Ident,
) -> Result<Arc<ScalableEp>> {
    let request = EpRequest {
        ep_type: EpType::Rdm.into(),
        caps: arg.caps,
        tx_op_flags: arg.tx_op_flags,
        rx_op_flags: arg.rx_op_flags,
        tx_size: arg.tx_size.into(),
        rx_size: arg.rx_size.into(),
        total_buffered_recv: arg.total_buffered_recv,
        src_addr: own_sockaddr_or_none(&arg.src_addr)?,
        shares: Shares::default(),
        auth_key: AuthKey::new(arg.auth_key),
    };
    let counts = ContextCounts::new(arg.tx_ctx_cnt.into(), arg.rx_ctx_cnt.into())?;
    let domain = file.object::<Domain>(arg.domain)?;
    ScalableEp::open(&domain, request.check()?, counts, ident)
}

/// `KFABRIC_IOC_SEP_CONTEXT`.
pub(super) fn context(
    file: &OpenFile,
    arg: &mut kfabric_sep_context,
    ident: Ident,
) -> Result<Arc<Endpoint>> {
    let receives = yes_or_no(arg.receive)?;
    let sep = file.object::<ScalableEp>(arg.sep)?;
    let index = arg.index.into();
    if receives {
        let hint = RxAttr {
            caps: arg.caps,
            op_flags: arg.op_flags,
            size: arg.queue_size.into(),
            total_buffered_recv: arg.total_buffered_recv,
            ..RxAttr::default()
        };
        let (context, attr) = sep.rx_context(index, &hint, ident)?;
        (arg.caps, arg.op_flags) = (attr.caps, attr.op_flags);
        // At most 16,384.
        arg.queue_size = attr.size as u32;
        arg.total_buffered_recv = attr.total_buffered_recv;
        return Ok(context);
    }
    if arg.total_buffered_recv != 0 {
        return Err(EINVAL);
    }
    let hint = TxAttr {
        caps: arg.caps,
        op_flags: arg.op_flags,
        size: arg.queue_size.into(),
        ..TxAttr::default()
    };
    let (context, attr) = sep.tx_context(index, &hint, ident)?;
    (arg.caps, arg.op_flags) = (attr.caps, attr.op_flags);
    // At most 16,384.
    arg.queue_size = attr.size as u32;
    Ok(context)
}
