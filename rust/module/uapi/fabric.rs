// SPDX-License-Identifier: GPL-2.0

//! The calls for links of the caller's network namespace (`KFABRIC_IOC_LINK_*`), and for what is
//! made from them: `KFABRIC_IOC_FABRIC_OPEN`, `KFABRIC_IOC_DOMAIN_OPEN`; and the atomics that
//! endpoints of a domain have: `KFABRIC_IOC_QUERY_ATOMIC`.

use kfi_core::{
    atomic::Function,
    enums::{
        AtomicOp,
        Datatype,
        EpType, //
    },
    flags,
    op::OpType, //
};

use super::prelude::*;
use crate::{
    net::{
        self,
        IfName,
        LinkName,
        LinkState,
        NetNs,
        NetNsId, //
    },
    provider::{
        domain::MrMode,
        ep::atomic,
        fabric::Fabric, //
    }, //
};

/// `KFABRIC_IOC_FABRIC_OPEN`.
pub(super) fn fabric_open(
    _file: &OpenFile,
    _arg: &mut kfabric_fabric_open,
    ident: Ident,
) -> Result<Arc<Fabric>> {
    Fabric::open(NetNsId::current()?, ident)
}

/// `KFABRIC_IOC_DOMAIN_OPEN`.
pub(super) fn domain_open(
    file: &OpenFile,
    arg: &mut kfabric_domain_open,
    ident: Ident,
) -> Result<Arc<Domain>> {
    const MODES: flags::MrMode = flags::MrMode::VIRT_ADDR.union(flags::MrMode::PROV_KEY);

    let fabric = file.object::<Fabric>(arg.fabric)?;
    let mode = flags::MrMode::from_bits(arg.mr_mode).map_err(to_error)?;
    if !MODES.contains(mode) {
        return Err(EINVAL);
    }
    let mode = MrMode {
        virt_addr: mode.contains(flags::MrMode::VIRT_ADDR),
        prov_key: mode.contains(flags::MrMode::PROV_KEY),
    };
    // No link has a name that is not valid.
    let name = LinkName::new(&arg.link).map_err(|_| ENODEV)?;
    let link = net::find(fabric.netns(), &name)?.open()?;
    Domain::open(&fabric, link, mode, ident)
}

/// `KFABRIC_IOC_QUERY_ATOMIC`.
pub(super) fn query_atomic(file: &OpenFile, arg: &mut kfabric_query_atomic) -> Result {
    must_be_zero(&[arg.flags])?;
    file.object::<Domain>(arg.domain)?;
    let ep_type = EpType::try_from(arg.ep_type).map_err(to_error)?;
    let kind = OpType::try_from(arg.opcode).map_err(to_error)?;
    let op = AtomicOp::try_from(arg.op).map_err(to_error)?;
    let datatype = Datatype::try_from(arg.datatype).map_err(to_error)?;
    let function = Function::new(kind, op, datatype).map_err(to_error)?;
    arg.count = atomic::max_count(ep_type, &function)? as u64;
    arg.elem_size = datatype.size() as u64;
    Ok(())
}

/// `KFABRIC_IOC_LINK_ADD`.
pub(super) fn link_add(_file: &OpenFile, arg: &kfabric_link_add) -> Result {
    must_be_zero(&[arg.flags])?;
    let name = LinkName::new(&arg.name)?;
    let interface = IfName::new(&arg.netdev)?;
    net::add(&NetNs::current()?, name, interface)?;
    Ok(())
}

/// `KFABRIC_IOC_LINK_DEL`.
pub(super) fn link_del(_file: &OpenFile, arg: &kfabric_link_del) -> Result {
    must_be_zero(&[arg.flags])?;
    net::del(&NetNs::current()?, &LinkName::new(&arg.name)?)
}

/// `KFABRIC_IOC_LINK_GET`.
pub(super) fn link_get(_file: &OpenFile, arg: &mut kfabric_link_get) -> Result {
    let info = net::next(NetNsId::current()?, arg.after)?.info();
    *arg = kfabric_link_get {
        size: arg.size,
        after: info.id,
        name: info.name.to_array(),
        netdev: info.ifname.to_array(),
        state: match info.state {
            LinkState::Down => KFABRIC_LINK_DOWN,
            LinkState::Up => KFABRIC_LINK_UP,
            LinkState::Gone => KFABRIC_LINK_GONE,
        },
        mtu: info.mtu,
        ipv4: put_sockaddr(info.ipv4),
        ipv6: put_sockaddr(info.ipv6),
        domains: info.domains,
        endpoints: info.endpoints,
        tx_ops: info.tx_ops,
        tx_bytes: info.tx_bytes,
        rx_ops: info.rx_ops,
        rx_bytes: info.rx_bytes,
    };
    Ok(())
}
