// SPDX-License-Identifier: GPL-2.0

//! The calls `KFABRIC_IOC_EP_*`, `KFABRIC_IOC_PEP_*` and `KFABRIC_IOC_OPSFLAG`.

use core::net::IpAddr;

use kfi_core::{
    auth_key::AuthKey,
    flags::{
        KFI_RECV,
        KFI_TRANSMIT, //
    },
    op::Side, //
};
use kfi_roce::{
    mtu::PathMtu,
    state::State, //
};

use super::{
    objects::Entry,
    parse::{
        own_sockaddr,
        own_sockaddr_or_none,
        private,
        sockaddr,
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
        options::{
            Opt,
            QpOpt, //
        },
        Endpoint, //
    },
    fabric::Fabric,
    pep::{
        Pep,
        PepAttr, //
    }, //
};

/// `KFABRIC_IOC_EP_OPEN`.
pub(super) fn open(
    file: &OpenFile,
    arg: &mut kfabric_ep_open,
    ident: Ident,
) -> Result<Arc<Endpoint>> {
    if arg.shared & !(KFABRIC_SHARED_TX | KFABRIC_SHARED_RX) != 0 {
        return Err(EINVAL);
    }
    let request = EpRequest {
        ep_type: arg.type_,
        caps: arg.caps,
        tx_op_flags: arg.tx_op_flags,
        rx_op_flags: arg.rx_op_flags,
        tx_size: arg.tx_size.into(),
        rx_size: arg.rx_size.into(),
        total_buffered_recv: arg.total_buffered_recv,
        src_addr: own_sockaddr_or_none(&arg.src_addr)?,
        shares: Shares {
            tx: arg.shared & KFABRIC_SHARED_TX != 0,
            rx: arg.shared & KFABRIC_SHARED_RX != 0,
        },
        auth_key: AuthKey::new(arg.auth_key),
    };
    Endpoint::open(&file.object::<Domain>(arg.domain)?, request.check()?, ident)
}

/// `KFABRIC_IOC_EP_ENABLE`.
pub(super) fn enable(file: &OpenFile, arg: &kfabric_ep_enable) -> Result {
    match file.entry(arg.ep)? {
        Entry::Endpoint(endpoint) => endpoint.enable(),
        Entry::Sep(sep) => sep.enable(),
        _ => Err(EBADF),
    }
}

/// `KFABRIC_IOC_EP_NAME`.
pub(super) fn name(file: &OpenFile, arg: &mut kfabric_ep_name) -> Result {
    must_be_zero(&[arg.reserved])?;
    let set = yes_or_no(arg.set)?;
    let object = file.entry(arg.ep)?;
    match &object {
        Entry::Endpoint(endpoint) if set => endpoint.set_name(own_sockaddr(&arg.addr)?)?,
        Entry::Endpoint(endpoint) => arg.addr = put_sockaddr(Some(endpoint.name()?)),
        Entry::Sep(sep) if set => sep.set_name(own_sockaddr(&arg.addr)?)?,
        Entry::Sep(sep) => arg.addr = put_sockaddr(Some(sep.name()?)),
        Entry::Pep(pep) if set => pep.set_name(own_sockaddr(&arg.addr)?)?,
        Entry::Pep(pep) => arg.addr = put_sockaddr(Some(pep.name())),
        _ => return Err(EBADF),
    }
    Ok(())
}

/// `KFABRIC_IOC_EP_CANCEL`.
pub(super) fn cancel(file: &OpenFile, arg: &kfabric_ep_cancel) -> Result {
    file.object::<Endpoint>(arg.ep)?.cancel(arg.context)
}

/// `KFABRIC_IOC_EP_OPT`.
pub(super) fn opt(file: &OpenFile, arg: &mut kfabric_ep_opt) -> Result {
    must_be_zero(&[arg.reserved])?;
    let set = yes_or_no(arg.set)?;
    let object = file.entry(arg.ep)?;
    if !matches!(object, Entry::Endpoint(_) | Entry::Sep(_)) {
        return Err(EBADF);
    }
    let opt = match (arg.level, arg.name) {
        (KFI_OPT_ENDPOINT, KFI_OPT_MIN_MULTI_RECV) => Opt::MinMultiRecv,
        (KFI_OPT_ENDPOINT, KFI_OPT_CM_DATA_SIZE) => Opt::CmDataSize,
        (KFABRIC_OPT_QP, name) => Opt::Qp(qp_opt(name)?),
        _ => return Err(ENOPROTOOPT),
    };
    match object {
        Entry::Endpoint(endpoint) if set => endpoint.set_opt(opt, arg.value)?,
        Entry::Endpoint(endpoint) => arg.value = endpoint.opt(opt)?,
        Entry::Sep(sep) if set => sep.set_opt(opt, arg.value)?,
        Entry::Sep(sep) => arg.value = sep.opt(opt)?,
        _ => return Err(EBADF),
    }
    Ok(())
}

/// The QP option with this number. Fails with `ENOPROTOOPT` if there is none.
fn qp_opt(name: u32) -> Result<QpOpt> {
    Ok(match name {
        KFABRIC_OPT_QKEY => QpOpt::Qkey,
        KFABRIC_OPT_PATH_MTU => QpOpt::PathMtu,
        KFABRIC_OPT_TIMEOUT => QpOpt::Timeout,
        KFABRIC_OPT_RETRY_CNT => QpOpt::RetryCnt,
        KFABRIC_OPT_RNR_RETRY => QpOpt::RnrRetry,
        KFABRIC_OPT_MIN_RNR_TIMER => QpOpt::MinRnrTimer,
        KFABRIC_OPT_RD_ATOMIC => QpOpt::RdAtomic,
        KFABRIC_OPT_DEST_RD_ATOMIC => QpOpt::DestRdAtomic,
        _ => return Err(ENOPROTOOPT),
    })
}

/// `KFABRIC_IOC_EP_QP`.
pub(super) fn qp(file: &OpenFile, arg: &mut kfabric_ep_qp) -> Result {
    must_be_zero(&[arg.reserved])?;
    let info = file.object::<Endpoint>(arg.ep)?.qp_info()?;
    let gid = match info.ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    *arg = kfabric_ep_qp {
        size: arg.size,
        ep: arg.ep,
        qpn: info.qpn,
        psn: info.psn,
        gid: gid.octets(),
        dest_qpn: info.dest_qpn,
        state: match info.state {
            State::Reset => KFABRIC_QP_RESET,
            State::Init => KFABRIC_QP_INIT,
            State::Rtr => KFABRIC_QP_RTR,
            State::Rts => KFABRIC_QP_RTS,
            State::Sqd => KFABRIC_QP_SQD,
            State::Sqe => KFABRIC_QP_SQE,
            State::Error => KFABRIC_QP_ERR,
        },
        path_mtu: info.path_mtu.map_or(0, PathMtu::bytes),
        reserved: 0,
    };
    Ok(())
}

/// `KFABRIC_IOC_EP_CONNECT_QP`.
pub(super) fn connect_qp(file: &OpenFile, arg: &kfabric_ep_connect_qp) -> Result {
    must_be_zero(&[arg.reserved])?;
    let peer = sockaddr(&arg.addr)?;
    file.object::<Endpoint>(arg.ep)?.connect_qp(peer, arg.psn)
}

/// `KFABRIC_IOC_EP_CONNECT`.
pub(super) fn connect(file: &OpenFile, arg: &kfabric_ep_connect) -> Result {
    must_be_zero(&[arg.reserved])?;
    let peer = own_sockaddr(&arg.addr)?;
    let mut room = [0; limits::MAX_CONNECT_DATA];
    let private = private(&mut room, arg.param, arg.param_len)?;
    file.object::<Endpoint>(arg.ep)?.connect(peer, private)
}

/// `KFABRIC_IOC_EP_ACCEPT`.
pub(super) fn accept(file: &OpenFile, arg: &kfabric_ep_accept) -> Result {
    must_be_zero(&[arg.reserved])?;
    let mut room = [0; limits::MAX_ACCEPT_DATA];
    let private = private(&mut room, arg.param, arg.param_len)?;
    let pep = file.object::<Pep>(arg.pep)?;
    file.object::<Endpoint>(arg.ep)?
        .accept(&pep, arg.connreq.into(), private)
}

/// `KFABRIC_IOC_EP_SHUTDOWN`.
pub(super) fn shutdown(file: &OpenFile, arg: &kfabric_ep_shutdown) -> Result {
    must_be_zero(&[arg.flags])?;
    file.object::<Endpoint>(arg.ep)?.shutdown()
}

/// `KFABRIC_IOC_EP_PEER`.
pub(super) fn peer(file: &OpenFile, arg: &mut kfabric_ep_peer) -> Result {
    let addr = file.object::<Endpoint>(arg.ep)?.peer_addr()?;
    arg.addr = put_sockaddr(Some(addr));
    Ok(())
}

/// `KFABRIC_IOC_OPSFLAG`.
pub(super) fn opsflag(file: &OpenFile, arg: &mut kfabric_opsflag) -> Result {
    must_be_zero(&[arg.reserved])?;
    let set = yes_or_no(arg.set)?;
    match file.entry(arg.handle)? {
        object @ (Entry::Endpoint(_) | Entry::Sep(_)) => {
            let side = match arg.flags & (KFI_TRANSMIT | KFI_RECV) {
                KFI_TRANSMIT => Side::Transmit,
                KFI_RECV => Side::Receive,
                _ => return Err(EINVAL),
            };
            // A get ignores all flags but the side, but they must be valid.
            let flags = arg.flags & !(KFI_TRANSMIT | KFI_RECV);
            let flags = side.default_flags(flags).map_err(to_error)?;
            let found = match object {
                Entry::Endpoint(endpoint) if set => return endpoint.set_op_flags(side, flags),
                Entry::Sep(sep) if set => return sep.set_op_flags(side, flags),
                Entry::Endpoint(endpoint) => endpoint.op_flags(side),
                Entry::Sep(sep) => sep.op_flags(side),
                _ => return Err(EBADF),
            };
            arg.flags = arg.flags & (KFI_TRANSMIT | KFI_RECV) | found.bits();
        }
        Entry::Cntr(cntr) if set => cntr.set_flags(arg.flags)?,
        Entry::Cntr(cntr) => arg.flags = cntr.flags(),
        _ => return Err(EBADF),
    }
    Ok(())
}

/// `KFABRIC_IOC_PEP_OPEN`.
pub(super) fn pep_open(
    file: &OpenFile,
    arg: &mut kfabric_pep_open,
    ident: Ident,
) -> Result<Arc<Pep>> {
    let attr = PepAttr {
        addr: own_sockaddr(&arg.addr)?,
        backlog: arg.backlog,
    };
    let pep = Pep::open(&file.object::<Fabric>(arg.fabric)?, attr, ident)?;
    arg.backlog = pep.backlog();
    Ok(pep)
}

/// `KFABRIC_IOC_PEP_LISTEN`.
pub(super) fn pep_listen(file: &OpenFile, arg: &kfabric_pep_listen) -> Result {
    file.object::<Pep>(arg.pep)?.listen()
}

/// `KFABRIC_IOC_PEP_REJECT`.
pub(super) fn pep_reject(file: &OpenFile, arg: &kfabric_pep_reject) -> Result {
    let mut room = [0; limits::MAX_REJECT_DATA];
    let private = private(&mut room, arg.param, arg.param_len)?;
    file.object::<Pep>(arg.pep)?
        .reject(arg.connreq.into(), private)
}
