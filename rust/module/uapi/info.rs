// SPDX-License-Identifier: GPL-2.0

//! Information about the module and its links: `KFABRIC_IOC_QUERY`, `KFABRIC_IOC_NOP`,
//! `KFABRIC_IOC_GETINFO`.

use core::mem::MaybeUninit;

use kernel::page::PAGE_SIZE;

use kfi_core::{
    auth_key::AuthKey,
    info::{
        DomainAttr,
        EpAttr,
        FabricAttr,
        Info,
        Kind,
        Name,
        Request,
        RxAttr,
        TxAttr, //
    }, //
};

use super::{
    parse::{
        own_sockaddr_or_none,
        sockaddr_or_none,
        text,
        user_ptr, //
    },
    prelude::*, //
};
use crate::{
    net::NetNsId,
    registry,
    shim::user::{
        read_element,
        write_element, //
    }, //
};

/// The size of a `struct kfabric_info` in its first version, which all programs know.
const INFO_V1_SIZE: usize = core::mem::offset_of!(kfabric_info, auth_key_size);

/// `KFABRIC_IOC_QUERY`.
pub(super) fn query(_file: &OpenFile, arg: &mut kfabric_query) -> Result {
    *arg = kfabric_query {
        size: arg.size,
        abi_version: KFABRIC_ABI_VERSION,
        module_version: registry::VERSION,
        page_size: PAGE_SIZE as u32,
        caps: (Kind::RDM.caps | Kind::MSG.caps | Kind::DGRAM.caps).bits(),
        max_msg_size: limits::MAX_MSG_SIZE,
        inject_size: limits::INJECT_SIZE as u32,
        max_iov: limits::MAX_IOV as u32,
        max_handles: limits::MAX_HANDLES,
        max_queue: limits::MAX_QUEUE,
        max_cq: limits::MAX_CQ,
        max_eq: limits::MAX_EQ,
        max_av: limits::MAX_AV,
        max_post: limits::MAX_POST,
        max_buffered: limits::MAX_BUFFERED,
        max_flows: limits::MAX_FLOWS as u32,
        max_flow_points: limits::MAX_FLOW_POINTS as u32,
        max_counters: limits::MAX_COUNTERS,
        max_comp_cntr: limits::MAX_COMP_CNTR,
        max_work: limits::MAX_WORK,
        max_ep_ctx: limits::MAX_EP_CTX,
    };
    Ok(())
}

/// `KFABRIC_IOC_NOP`.
pub(super) fn nop(_file: &OpenFile, arg: &kfabric_nop) -> Result {
    must_be_zero(&[arg.reserved])
}

/// `KFABRIC_IOC_GETINFO`. The count includes entries for which the program has no room.
pub(super) fn getinfo(_file: &OpenFile, arg: &mut kfabric_getinfo) -> Result {
    let size = info_size(arg.info_size)?;
    let (node, service) = (text(&arg.node)?, text(&arg.service)?);
    let request = Request::new(arg.version, arg.flags, node, service).map_err(to_error)?;
    let hints = match arg.hints {
        0 => KBox::new(Info::ANY, GFP_KERNEL)?,
        addr => read_hints(user_ptr(addr)?, size)?,
    };
    let (infos, room) = (user_ptr(arg.infos)?, arg.count);
    let mut count = 0u32;
    registry::getinfo(NetNsId::current()?, &request, &hints, |info| {
        if count < room {
            write_element(infos, count as usize, size, &put_info(info))?;
        }
        count = count.saturating_add(1);
        Ok(())
    })?;
    arg.count = count;
    Ok(())
}

/// The size of an entry and of hints, as the program knows them. Fails with `EINVAL` if it is below
/// that of the first version, `E2BIG` if it is above a page.
fn info_size(size: u32) -> Result<usize> {
    match usize::try_from(size)? {
        0 => Ok(INFO_V1_SIZE),
        size if size < INFO_V1_SIZE => Err(EINVAL),
        size if size > PAGE_SIZE => Err(E2BIG),
        size => Ok(size),
    }
}

/// Reads hints of `size` bytes. They are large, so they are allocated and do not use stack while
/// providers are asked.
#[inline(never)]
fn read_hints(at: UserPtr, size: usize) -> Result<KBox<Info>> {
    let mut room = MaybeUninit::uninit();
    let raw = read_element::<kfabric_info>(at, 0, size, INFO_V1_SIZE, &mut room)?;
    Ok(KBox::new(info(raw)?, GFP_KERNEL)?)
}

/// A name in a fixed-size field. Fails with `EINVAL` if there is no NUL.
fn name(field: &[u8]) -> Result<Name> {
    Name::from_field(field).map_err(to_error)
}

/// Converts hints to the type of `kfi_core`. Fails with `EINVAL` for a name without NUL, a bad
/// address, or an authorization key without its size.
fn info(raw: &kfabric_info) -> Result<Info> {
    let auth_key = AuthKey::new(raw.auth_key);
    if raw.auth_key_size == 0 && auth_key != AuthKey::NONE {
        return Err(EINVAL);
    }
    Ok(Info {
        caps: raw.caps,
        mode: raw.mode,
        addr_format: raw.addr_format,
        src_addr: own_sockaddr_or_none(&raw.src_addr)?,
        dest_addr: sockaddr_or_none(&raw.dest_addr)?,
        tx: TxAttr {
            caps: raw.tx_caps,
            op_flags: raw.tx_op_flags,
            msg_order: raw.tx_msg_order,
            comp_order: raw.tx_comp_order,
            inject_size: raw.tx_inject_size,
            size: raw.tx_size,
            iov_limit: raw.tx_iov_limit,
            rma_iov_limit: raw.tx_rma_iov_limit,
        },
        rx: RxAttr {
            caps: raw.rx_caps,
            op_flags: raw.rx_op_flags,
            msg_order: raw.rx_msg_order,
            comp_order: raw.rx_comp_order,
            total_buffered_recv: raw.rx_total_buffered_recv,
            size: raw.rx_size,
            iov_limit: raw.rx_iov_limit,
        },
        ep: EpAttr {
            ep_type: raw.ep_type,
            protocol: raw.protocol,
            protocol_version: raw.protocol_version,
            max_msg_size: raw.max_msg_size,
            mem_tag_format: raw.mem_tag_format,
            auth_key_size: raw.auth_key_size.into(),
            auth_key,
        },
        domain: DomainAttr {
            name: name(&raw.domain_name)?,
            threading: raw.threading,
            control_progress: raw.control_progress,
            data_progress: raw.data_progress,
            resource_mgmt: raw.resource_mgmt,
            av_type: raw.av_type,
            mr_mode: raw.mr_mode,
            mr_key_size: raw.mr_key_size,
            cq_data_size: raw.cq_data_size,
            cq_cnt: raw.cq_cnt,
            ep_cnt: raw.ep_cnt,
            cntr_cnt: raw.cntr_cnt,
            mr_cnt: raw.mr_cnt,
            mr_iov_limit: raw.mr_iov_limit,
        },
        fabric: FabricAttr {
            name: name(&raw.fabric_name)?,
            prov_name: name(&raw.prov_name)?,
            prov_version: raw.prov_version,
            api_version: raw.api_version,
        },
    })
}

/// Converts an entry to the structure of the interface.
#[inline(never)]
fn put_info(info: &Info) -> kfabric_info {
    let Info {
        tx,
        rx,
        ep,
        domain,
        fabric,
        ..
    } = info;
    kfabric_info {
        caps: info.caps,
        mode: info.mode,
        addr_format: info.addr_format,
        ep_type: ep.ep_type,
        src_addr: put_sockaddr(info.src_addr),
        dest_addr: put_sockaddr(info.dest_addr),
        tx_caps: tx.caps,
        tx_op_flags: tx.op_flags,
        tx_msg_order: tx.msg_order,
        tx_comp_order: tx.comp_order,
        tx_inject_size: tx.inject_size,
        tx_size: tx.size,
        tx_iov_limit: tx.iov_limit,
        tx_rma_iov_limit: tx.rma_iov_limit,
        rx_caps: rx.caps,
        rx_op_flags: rx.op_flags,
        rx_msg_order: rx.msg_order,
        rx_comp_order: rx.comp_order,
        rx_total_buffered_recv: rx.total_buffered_recv,
        rx_size: rx.size,
        rx_iov_limit: rx.iov_limit,
        protocol: ep.protocol,
        protocol_version: ep.protocol_version,
        max_msg_size: ep.max_msg_size,
        mem_tag_format: ep.mem_tag_format,
        threading: domain.threading,
        control_progress: domain.control_progress,
        data_progress: domain.data_progress,
        resource_mgmt: domain.resource_mgmt,
        av_type: domain.av_type,
        mr_mode: domain.mr_mode,
        mr_key_size: domain.mr_key_size,
        cq_data_size: domain.cq_data_size,
        cq_cnt: domain.cq_cnt,
        ep_cnt: domain.ep_cnt,
        cntr_cnt: domain.cntr_cnt,
        mr_cnt: domain.mr_cnt,
        mr_iov_limit: domain.mr_iov_limit,
        domain_name: *domain.name.field(),
        fabric_name: *fabric.name.field(),
        prov_name: *fabric.prov_name.field(),
        prov_version: fabric.prov_version,
        api_version: fabric.api_version,
        // At most that of a key.
        auth_key_size: ep.auth_key_size as u32,
        auth_key: *ep.auth_key.bytes(),
    }
}
