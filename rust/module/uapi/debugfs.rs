// SPDX-License-Identifier: GPL-2.0

//! `/sys/kernel/debug/kfabric`: packet statistics of all network namespaces, as text.
//!
//! | file | content |
//! |---|---|
//! | `links` | each link, with the figures of its QPs |
//! | `endpoints` | each endpoint that has sent or received packets, with its figures |
//!
//! A line names the object. Its figures that are not 0 follow, one in each line, with the names
//! that the command `kfi` uses.

use kernel::{
    debugfs::{
        Dir,
        File, //
    },
    fmt,
    prelude::*,
    sync::Arc, //
};

use crate::{
    net::{
        self,
        Link,
        Stat,
        Values, //
    },
    provider::object_list::{
        self,
        Class, //
    }, //
};

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
        if let Some(addr) = endpoint.figures().addr {
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
    for (figure, value) in Stat::ALL.iter().zip(values) {
        if *value != 0 {
            writeln!(f, "  {} {value}", figure.name())?;
        }
    }
    Ok(())
}
