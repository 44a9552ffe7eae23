// SPDX-License-Identifier: GPL-2.0

//! The device: links on network interfaces.
//!
//! A [`Link`] is the software device on one network interface in one network namespace. Somebody
//! with CAP_NET_ADMIN in the namespace makes it ([`add`]) and removes it ([`del`]); domains are
//! opened on it ([`Link::open`]) and keep it in use. Without a link the module has nothing to do
//! with the network.
//!
//! ```text
//!            add                      interface up, down
//!   (none) ------> Down/Up <----------------------------> Down/Up
//!                     |
//!                     | interface or namespace goes, or del (without domains only)
//!                     v
//!                   Gone, listed while domains are open ---last closes---> (none)
//! ```
//!
//! # What keeps what alive
//!
//! A link keeps neither its interface nor its namespace: it knows both by number
//! ([`NetdevId`](crate::shim::net::NetdevId)), follows the interface through a notifier, and looks
//! it up under RCU when addresses are asked for. So namespaces end when their processes do, and
//! take their links along.
//!
//! # Locks
//!
//! RTNL -> the table's mutex -> the lock of a link's interface name (a leaf). A holder of the RTNL
//! may enter the table; nothing in here takes the RTNL under the table's mutex. Those on floors
//! above are told of a link that went ([`LinkEvents`]) by a worker that holds none of these.
//!
//! | file | what |
//! |---|---|
//! | [`name`] | names of links and interfaces, checked |
//! | [`link`] | one link |
//! | [`table`] | all links, and what happens to interfaces |

mod link;
mod name;
mod table;

#[cfg(kfi_kunit)]
#[path = "../../../kunit/net.rs"]
mod kunit;

pub(crate) use self::{
    link::{
        EndpointCount,
        Link,
        LinkState,
        LinkUse, //
    },
    name::{
        IfName,
        LinkName, //
    },
    table::{
        add,
        del,
        find,
        next,
        start,
        LinkEvents,
        Registration, //
    },
};
pub(crate) use crate::shim::net::{
    NetNs,
    NetNsId, //
};
