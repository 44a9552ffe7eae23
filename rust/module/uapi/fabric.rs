// SPDX-License-Identifier: GPL-2.0

//! The calls `KFABRIC_IOC_FABRIC_OPEN` and `KFABRIC_IOC_DOMAIN_OPEN`.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use kfi_core::flags;

use super::file::OpenFile;
use crate::{
    net::{
        self,
        LinkName,
        NetNsId, //
    },
    provider::{
        domain::{
            Domain,
            MrMode, //
        },
        fabric::Fabric,
        object::Ident, //
    },
    shim::{
        bindings::*,
        errno::to_error, //
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
