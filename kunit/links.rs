// SPDX-License-Identifier: GPL-2.0

//! A guard for the links that a case adds: it removes them however the case ends.
//!
//! An interface has one link, and all cases use the loopback interface of the first network
//! namespace. A link that a failed case left there would fail all cases after it.

use super::{
    del,
    next,
    table::NetdevHandler,
    Link,
    NetNs, //
};
use crate::shim::net::{
    NetdevEvent,
    NetdevEvents,
    Rtnl, //
};
use kernel::prelude::*;

/// Removes all links of this network namespace. A link in use is removed too, as it is when its
/// interface goes.
pub(crate) fn remove_links() {
    let Ok(netns) = NetNs::current() else {
        return;
    };
    let mut last = 0;
    while let Ok(link) = next(netns.id(), last) {
        last = link.id();
        if del(&netns, link.name()) == Err(EBUSY) {
            pr_err!("a case left its link in use\n");
            interface_gone(&link);
        }
    }
}

/// [Removes all links](remove_links) of this network namespace when it is dropped.
pub(crate) struct NoLinks;

impl Drop for NoLinks {
    fn drop(&mut self) {
        remove_links();
    }
}

/// Reports to the table of links that the interface of `link` is gone.
fn interface_gone(link: &Link) {
    let _rtnl = Rtnl::lock();
    NetdevHandler::event(NetdevEvent::Gone(link.netdev()));
}
