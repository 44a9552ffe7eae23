// SPDX-License-Identifier: GPL-2.0

//! `KFABRIC_IOC_STAT`: statistics of endpoints, CQs and counters. `KFABRIC_IOC_FIGURES`: packet
//! statistics of a link, an endpoint or a network namespace.
//!
//! Both show objects on links of the caller's network namespace: all of them to a caller that may
//! administer the namespace, otherwise those of the caller's own user.

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
        NetNs,
        Values,
        STATS, //
    },
    provider::object_list::{
        self,
        Class,
        StatsSource, //
    },
    shim::bindings::*, //
};

/// `KFABRIC_IOC_STAT`.
pub(super) fn stat(_file: &OpenFile, arg: &mut kfabric_stat) -> Result {
    let class = match arg.object_class {
        KFI_CLASS_EP => Class::Endpoint,
        KFI_CLASS_CQ => Class::Cq,
        KFI_CLASS_CNTR => Class::Cntr,
        _ => return Err(EINVAL),
    };
    let netns = NetNs::current()?;
    let (id, object) = object_list::next(class, arg.after, visible(&netns)).ok_or(ENOENT)?;
    let figures = object.figures();
    let ident = object.ident();
    *arg = kfabric_stat {
        size: arg.size,
        object_class: arg.object_class,
        after: id,
        pid: ident.owner.pid_in_current_ns(),
        // Handles have 32 bits; an object of another front end has none.
        handle: u32::try_from(ident.fid).unwrap_or(0),
        link: object.domain().link().name().to_array(),
        addr: put_sockaddr(figures.addr),
        v: figures.values,
    };
    Ok(())
}

/// Whether the current task, in `netns`, may see an object.
fn visible(netns: &NetNs) -> impl FnMut(&dyn StatsSource) -> bool {
    let all = netns.capable_net_admin();
    let here = netns.id();
    move |object| {
        object.domain().link().netns() == here && (all || object.ident().owner.is_current_user())
    }
}

/// `KFABRIC_IOC_FIGURES`.
pub(super) fn figures(_file: &OpenFile, arg: &mut kfabric_figures) -> Result {
    zero(&[arg.reserved])?;
    let netns = NetNs::current()?;
    let found: Values = match arg.of {
        KFABRIC_FIGURES_NETNS if arg.id != 0 => return Err(EINVAL),
        KFABRIC_FIGURES_NETNS => net::socket(netns.id())?.receiver().stats().values(),
        KFABRIC_FIGURES_LINK => {
            let before = arg.id.checked_sub(1).ok_or(ENOENT)?;
            let before = u32::try_from(before).map_err(|_| ENOENT)?;
            let link = net::next(netns.id(), before)?;
            if u64::from(link.id()) != arg.id {
                return Err(ENOENT);
            }
            link.stats().values()
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
        count: STATS as u32,
        reserved: 0,
        values,
    };
    Ok(())
}
