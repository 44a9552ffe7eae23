// SPDX-License-Identifier: GPL-2.0

//! `KFABRIC_IOC_STAT`: statistics of endpoints, CQs, counters of all kinds, and flows.
//! `KFABRIC_IOC_FIGURES`: packet statistics of a link, an endpoint or a network namespace.
//!
//! Both show objects on links of the caller's network namespace: all of them to a caller that may
//! administer the namespace, otherwise those of the caller's own user.
//!
//! `/sys/kernel/debug/kfabric` shows the packet statistics of all network namespaces as text:
//!
//! | file | content |
//! |---|---|
//! | `links` | each link, with the statistics of its QPs |
//! | `endpoints` | each endpoint that has sent or received packets, with its statistics |
//!
//! A line names the object. Its statistics that are not 0 follow, one in each line, with the names
//! that the command `kfi` uses.

use kernel::{
    debugfs::{
        Dir,
        File, //
    },
    fmt, //
};

use super::prelude::*;
use crate::{
    net::{
        self,
        Link,
        NetNs,
        Stat,
        Values,
        STATS, //
    },
    provider::object_list::{
        self,
        Class,
        StatsSource, //
    }, //
};

/// `KFABRIC_IOC_STAT`.
pub(super) fn stat(_file: &OpenFile, arg: &mut kfabric_stat) -> Result {
    let class = match arg.object_class {
        KFI_CLASS_EP => Class::Endpoint,
        KFI_CLASS_CQ => Class::Cq,
        KFI_CLASS_CNTR => Class::Cntr,
        KFABRIC_CLASS_COUNTERS => Class::Counters,
        KFABRIC_CLASS_FLOW => Class::Flow,
        KFABRIC_CLASS_COMP_CNTR => Class::CompCntr,
        _ => return Err(EINVAL),
    };
    let netns = NetNs::current()?;
    let (id, object) = object_list::next(class, arg.after, visible(&netns)).ok_or(ENOENT)?;
    let stats = object.stats();
    let ident = object.ident();
    *arg = kfabric_stat {
        size: arg.size,
        object_class: arg.object_class,
        after: id,
        pid: ident.owner.pid_in_current_ns(),
        handle: ident.handle(),
        link: object.domain().link().name().to_array(),
        addr: put_sockaddr(stats.addr),
        v: stats.values,
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
    must_be_zero(&[arg.reserved])?;
    let netns = NetNs::current()?;
    let before = || arg.id.checked_sub(1).ok_or(ENOENT);
    let found: Values = match arg.of {
        KFABRIC_FIGURES_NETNS if arg.id != 0 => return Err(EINVAL),
        KFABRIC_FIGURES_NETNS => net::socket(netns.id())?.receiver().stats().values(),
        KFABRIC_FIGURES_LINK => {
            let before = u32::try_from(before()?).map_err(|_| ENOENT)?;
            let link = net::next(netns.id(), before)?;
            if u64::from(link.id()) != arg.id {
                return Err(ENOENT);
            }
            link.stats().values()
        }
        KFABRIC_FIGURES_EP => {
            let (_, object) = object_list::next(Class::Endpoint, before()?, visible(&netns))
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

/// The files; they are removed when it is dropped.
#[pin_data]
pub(crate) struct Debugfs {
    #[pin]
    _links: File<()>,
    #[pin]
    _endpoints: File<()>,
    _dir: Dir,
}

impl Debugfs {
    /// Creates the files, if the kernel has debugfs. Sleeps.
    pub(crate) fn new() -> impl PinInit<Self, Error> {
        let dir = Dir::new(c"kfabric");
        try_pin_init!(Self {
            _links <- dir.read_callback_file(c"links", (), &links),
            _endpoints <- dir.read_callback_file(c"endpoints", (), &endpoints),
            _dir: dir,
        }? Error)
    }
}

fn links(_: &(), f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut after: Option<Arc<Link>> = None;
    while let Ok(link) = net::next_anywhere(after.as_deref()) {
        let info = link.info();
        writeln!(
            f,
            "{} on {} id {} netns {} {:?} mtu {}",
            text(info.name.as_bytes()),
            text(info.ifname.as_bytes()),
            info.id,
            link.netns().cookie(),
            info.state,
            info.mtu
        )?;
        values(f, &link.stats().values())?;
        after = Some(link);
    }
    Ok(())
}

fn endpoints(_: &(), f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut after = 0;
    while let Some((id, endpoint)) = object_list::next(Class::Endpoint, after, |_| true) {
        after = id;
        let packets = endpoint.packets();
        if packets.iter().all(|value| *value == 0) {
            continue;
        }
        let link = endpoint.domain().link();
        write!(f, "{id} on {}", text(link.name().as_bytes()))?;
        if let Some(addr) = endpoint.stats().addr {
            write!(f, " at {addr}")?;
        }
        writeln!(f, " pid {}", endpoint.ident().owner.pid_in_current_ns())?;
        values(f, &packets)?;
    }
    Ok(())
}

/// A name as text. It is ASCII, unless an administrator has given an interface another name.
fn text(name: &[u8]) -> &str {
    core::str::from_utf8(name).unwrap_or("?")
}

fn values(f: &mut fmt::Formatter<'_>, values: &Values) -> fmt::Result {
    for (stat, value) in Stat::ALL.iter().zip(values) {
        if *value != 0 {
            writeln!(f, "  {} {value}", stat.name())?;
        }
    }
    Ok(())
}
