// SPDX-License-Identifier: GPL-2.0

//! The network layer: links on network interfaces, queue pairs, connection management.
//!
//! A [`Link`] is the software device on one network interface in one network namespace. A user with
//! CAP_NET_ADMIN in the namespace adds ([`add`]) and removes it ([`del`]). Domains are opened on it
//! ([`Link::open`]) and keep it in use. Without a link the module uses no network; the first link
//! of a namespace opens UDP port 4791 there ([`socket`]).
//!
//! A [`Qp`](qp::Qp) is at an address of a link: for datagrams, or for a reliable connection. It
//! reaches each peer by a [`Path`], and calls the layer above through a trait for each kind of QP.
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
//! # Lifetimes
//!
//! A link holds no reference to its interface or its namespace: it identifies both by number
//! ([`NetdevId`](crate::shim::net::NetdevId)), follows the interface through a notifier, and looks
//! it up under RCU when it reads addresses. So a namespace ends when its processes do, and its
//! links end with it.
//!
//! # Locks
//!
//! The lock order is: RTNL, the locks that opening and closing a socket takes, the table's spin
//! lock, the lock of a link's interface name (a leaf). Links are added and removed with the RTNL
//! held. System calls that look for links or open domains take only the spin lock, packets neither:
//! see [`table`]. The work item that reports a link that has gone ([`LinkEvents`]) holds none of
//! these locks.
//!
//! The mutexes of a QP are not ordered with these locks: see [`qp`]. The locks of connection
//! management are described at [`cm`]. In softirq a packet takes the lock of its QP's inbox, a
//! leaf; all other look-ups are under RCU.
//!
//! | file | content |
//! |---|---|
//! | [`link`] | one link; names of links and interfaces, validated |
//! | [`device_use`] | the use of a link by a device of the RDMA subsystem |
//! | [`table`] | all links, and the events of interfaces |
//! | [`socket`] | the UDP sockets of a namespace, and the numbers of its QPs |
//! | [`packet`] | packets in socket buffers: verifying and building |
//! | [`path`] | the path from a link's address to a peer |
//! | [`path_cache`] | the paths to recent destinations of datagrams |
//! | [`generation`] | whether addresses have changed since a check |
//! | [`qp`] | queue pairs |
//! | [`flow`] | flows: rules at a UD QP that count received packets |
//! | [`cm`] | connection management: connects QPs with their peers |
//! | [`stats`] | statistics |

#[allow(dead_code, unused_imports, reason = "suites use all of it")]
pub(crate) mod cm;
mod device_use;
pub(crate) mod flow;
mod generation;
mod link;
mod packet;
mod path;
mod path_cache;
pub(crate) mod qp;
mod socket;
mod stats;
mod table;

#[cfg(kfi_kunit)]
#[path = "../../../kunit/net.rs"]
mod kunit;
#[cfg(kfi_kunit)]
#[path = "../../../kunit/cm.rs"]
mod kunit_cm;
#[cfg(kfi_kunit)]
#[path = "../../../kunit/cm_pair.rs"]
pub(crate) mod kunit_cm_pair;
#[cfg(kfi_kunit)]
#[path = "../../../kunit/cm_slow.rs"]
mod kunit_cm_slow;
#[cfg(kfi_kunit)]
#[path = "../../../kunit/links.rs"]
pub(crate) mod kunit_links;
#[cfg(kfi_kunit)]
#[path = "../../../kunit/rc.rs"]
mod kunit_rc;
#[cfg(kfi_kunit)]
#[path = "../../../kunit/rc_pair.rs"]
pub(crate) mod kunit_rc_pair;
#[cfg(kfi_kunit)]
#[path = "../../../kunit/wire.rs"]
mod kunit_wire;
#[cfg(kfi_kunit)]
#[path = "../../../kunit/wire_pair.rs"]
mod kunit_wire_pair;

pub(crate) use self::{
    device_use::DeviceUse,
    generation::Checked,
    link::{
        EndpointCount,
        IfName,
        Link,
        LinkName,
        LinkState,
        LinkUse,
        NAME_MAX, //
    },
    path::{
        Path,
        Reach, //
    },
    path_cache::PathCache,
    stats::{
        QpStats,
        Stat,
        Values,
        STATS, //
    },
    table::{
        add,
        del,
        find,
        has_address,
        next,
        next_anywhere,
        on_interface,
        socket,
        start,
        LinkEvents,
        Registration, //
    },
};
pub(crate) use crate::shim::net::{
    NetNs,
    NetNsId, //
};
