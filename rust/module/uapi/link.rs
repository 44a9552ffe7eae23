// SPDX-License-Identifier: GPL-2.0

//! The calls `KFABRIC_IOC_LINK_*`: links of the caller's network namespace.

use kernel::prelude::*;

use super::{
    file::OpenFile,
    parse::{
        put_sockaddr,
        zero, //
    }, //
};
use crate::{
    net::{
        self,
        IfName,
        LinkName,
        LinkState,
        NetNs,
        NetNsId, //
    },
    shim::bindings::*, //
};

/// `KFABRIC_IOC_LINK_ADD`.
pub(super) fn add(_file: &OpenFile, arg: &kfabric_link_add) -> Result {
    zero(&[arg.flags])?;
    let name = LinkName::new(&arg.name)?;
    let interface = IfName::new(&arg.netdev)?;
    net::add(&NetNs::current()?, name, interface)?;
    Ok(())
}

/// `KFABRIC_IOC_LINK_DEL`.
pub(super) fn del(_file: &OpenFile, arg: &kfabric_link_del) -> Result {
    zero(&[arg.flags])?;
    net::del(&NetNs::current()?, &LinkName::new(&arg.name)?)
}

/// `KFABRIC_IOC_LINK_GET`.
pub(super) fn get(_file: &OpenFile, arg: &mut kfabric_link_get) -> Result {
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
