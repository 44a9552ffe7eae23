// SPDX-License-Identifier: GPL-2.0

//! `KFABRIC_IOC_EP_*`, `KFABRIC_IOC_OPSFLAG`.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use kfi_core::{
    enums::EpType,
    flags::{
        Caps,
        KFI_RECV,
        KFI_TRANSMIT, //
    },
    info::Kind,
    limits,
    op::{
        expand_caps,
        Side, //
    }, //
};

use super::{
    file::OpenFile,
    objects::Entry,
    parse::{
        own_sockaddr,
        own_sockaddr_or_none,
        put_sockaddr,
        yes_or_no,
        zero, //
    }, //
};
use crate::{
    provider::{
        domain::Domain,
        ep::{
            options::Opt,
            Endpoint,
            EpAttr, //
        },
        object::Ident, //
    },
    shim::{
        bindings::*,
        errno::to_error, //
    }, //
};

/// `KFABRIC_IOC_EP_OPEN`.
pub(super) fn open(
    file: &OpenFile,
    arg: &mut kfabric_ep_open,
    ident: Ident,
) -> Result<Arc<Endpoint>> {
    match EpType::try_from(arg.type_).map_err(to_error)? {
        EpType::Rdm | EpType::Unspec => {}
        EpType::Msg | EpType::Dgram => return Err(EOPNOTSUPP),
    }
    let kind = &Kind::RDM;
    let caps = expand_caps(Caps::from_bits(arg.caps).map_err(to_error)?, kind.caps);
    if !kind.caps.contains(caps) {
        return Err(EOPNOTSUPP);
    }
    let tx_op_flags = Side::Transmit
        .default_flags(arg.tx_op_flags)
        .map_err(to_error)?;
    let rx_op_flags = Side::Receive
        .default_flags(arg.rx_op_flags)
        .map_err(to_error)?;
    let attr = EpAttr {
        caps,
        tx_op_flags,
        rx_op_flags,
        tx_size: queue_size(arg.tx_size, limits::DEFAULT_TX_SIZE)?,
        rx_size: queue_size(arg.rx_size, limits::DEFAULT_RX_SIZE)?,
        total_buffered_recv: match arg.total_buffered_recv {
            0 => limits::DEFAULT_BUFFERED,
            bytes if bytes > limits::MAX_BUFFERED => return Err(EINVAL),
            bytes => bytes,
        },
        src_addr: own_sockaddr_or_none(&arg.src_addr)?,
    };
    Endpoint::open(&file.object::<Domain>(arg.domain)?, attr, ident)
}

/// The size of a queue: `EINVAL` too large.
fn queue_size(size: u32, default: u32) -> Result<usize> {
    let size = if size == 0 { default } else { size };
    if size > limits::MAX_QUEUE {
        return Err(EINVAL);
    }
    Ok(usize::try_from(size)?)
}

/// `KFABRIC_IOC_EP_ENABLE`.
pub(super) fn enable(file: &OpenFile, arg: &kfabric_ep_enable) -> Result {
    file.object::<Endpoint>(arg.ep)?.enable()
}

/// `KFABRIC_IOC_EP_NAME`.
pub(super) fn name(file: &OpenFile, arg: &mut kfabric_ep_name) -> Result {
    zero(&[arg.reserved])?;
    let set = yes_or_no(arg.set)?;
    let endpoint = file.object::<Endpoint>(arg.ep)?;
    if set {
        endpoint.set_name(own_sockaddr(&arg.addr)?)
    } else {
        arg.addr = put_sockaddr(Some(endpoint.name()?));
        Ok(())
    }
}

/// `KFABRIC_IOC_EP_CANCEL`.
pub(super) fn cancel(file: &OpenFile, arg: &kfabric_ep_cancel) -> Result {
    file.object::<Endpoint>(arg.ep)?.cancel(arg.context)
}

/// `KFABRIC_IOC_EP_OPT`.
pub(super) fn opt(file: &OpenFile, arg: &mut kfabric_ep_opt) -> Result {
    zero(&[arg.reserved])?;
    let set = yes_or_no(arg.set)?;
    let endpoint = file.object::<Endpoint>(arg.ep)?;
    let opt = match (arg.level, arg.name) {
        (KFI_OPT_ENDPOINT, KFI_OPT_MIN_MULTI_RECV) => Opt::MinMultiRecv,
        (KFI_OPT_ENDPOINT, KFI_OPT_CM_DATA_SIZE) => Opt::CmDataSize,
        _ => return Err(ENOPROTOOPT),
    };
    if set {
        endpoint.set_opt(opt, arg.value)
    } else {
        arg.value = endpoint.opt(opt);
        Ok(())
    }
}

/// `KFABRIC_IOC_OPSFLAG`.
pub(super) fn opsflag(file: &OpenFile, arg: &mut kfabric_opsflag) -> Result {
    zero(&[arg.reserved])?;
    let set = yes_or_no(arg.set)?;
    match file.entry(arg.handle)? {
        Entry::Endpoint(endpoint) => {
            let side = match arg.flags & (KFI_TRANSMIT | KFI_RECV) {
                KFI_TRANSMIT => Side::Transmit,
                KFI_RECV => Side::Receive,
                _ => return Err(EINVAL),
            };
            let flags = arg.flags & !(KFI_TRANSMIT | KFI_RECV);
            if set {
                endpoint.set_op_flags(side, side.default_flags(flags).map_err(to_error)?);
            } else {
                // What a get says besides the side has no meaning, but it must be known.
                side.default_flags(flags).map_err(to_error)?;
                arg.flags = arg.flags & (KFI_TRANSMIT | KFI_RECV) | endpoint.op_flags(side).bits();
            }
        }
        Entry::Cntr(cntr) if set => cntr.set_flags(arg.flags)?,
        Entry::Cntr(cntr) => arg.flags = cntr.flags(),
        _ => return Err(EBADF),
    }
    Ok(())
}
