// SPDX-License-Identifier: GPL-2.0

//! `KFABRIC_IOC_STAT`: statistics of endpoints, CQs and counters.
//!
//! It shows objects on links of the caller's network namespace: all of them to a caller that may
//! administer the namespace, otherwise those of the caller's own user.

use kernel::prelude::*;

use super::{
    file::OpenFile,
    parse::put_sockaddr, //
};
use crate::{
    net::NetNs,
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
pub(super) fn visible(netns: &NetNs) -> impl FnMut(&dyn StatsSource) -> bool {
    let all = netns.capable_net_admin();
    let here = netns.id();
    move |object| {
        object.domain().link().netns() == here && (all || object.ident().owner.is_current_user())
    }
}
