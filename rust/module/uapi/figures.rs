// SPDX-License-Identifier: GPL-2.0

//! `KFABRIC_IOC_FIGURES`: packet statistics of a link, an endpoint or a network namespace.

use kernel::prelude::*;

use super::{
    file::OpenFile,
    parse::zero,
    stat::visible, //
};
use crate::{
    net::{
        self,
        NetNs,
        Values,
        FIGURES, //
    },
    provider::object_list::{
        self,
        Class, //
    },
    shim::bindings::*, //
};

/// `KFABRIC_IOC_FIGURES`.
pub(super) fn figures(_file: &OpenFile, arg: &mut kfabric_figures) -> Result {
    zero(&[arg.reserved])?;
    let netns = NetNs::current()?;
    let found: Values = match arg.of {
        KFABRIC_FIGURES_NETNS if arg.id != 0 => return Err(EINVAL),
        KFABRIC_FIGURES_NETNS => net::socket(netns.id())?.receiver().figures().values(),
        KFABRIC_FIGURES_LINK => {
            let before = arg.id.checked_sub(1).ok_or(ENOENT)?;
            let before = u32::try_from(before).map_err(|_| ENOENT)?;
            let link = net::next(netns.id(), before)?;
            if u64::from(link.id()) != arg.id {
                return Err(ENOENT);
            }
            link.figures().values()
        }
        KFABRIC_FIGURES_EP => {
            let before = arg.id.checked_sub(1).ok_or(ENOENT)?;
            let seen = visible(&netns);
            let (_, object) = object_list::next(Class::Endpoint, before, seen)
                .filter(|(id, _)| *id == arg.id)
                .ok_or(ENOENT)?;
            object.packets()
        }
        _ => return Err(EINVAL),
    };
    let mut values = [0; KFABRIC_MAX_FIGURES as usize];
    for (to, from) in values.iter_mut().zip(found) {
        *to = from;
    }
    *arg = kfabric_figures {
        size: arg.size,
        of: arg.of,
        id: arg.id,
        count: FIGURES as u32,
        reserved: 0,
        values,
    };
    Ok(())
}
