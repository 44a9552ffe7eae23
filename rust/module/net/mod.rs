// SPDX-License-Identifier: GPL-2.0

//! The device: links on network interfaces.
//!
//! A [`Link`] is the software device on one network interface in one network namespace. Somebody
//! with CAP_NET_ADMIN in the namespace makes it ([`add`]) and removes it ([`del`]); domains are
//! opened on it ([`Link::open`]) and keep it in use. Without a link the module has nothing to do
//! with the network; with the first one in a namespace it opens UDP port 4791 there ([`Socket`]).
//!
//! A [`Qp`] is at an address of a link: for datagrams, or for a reliable connection. It reaches its
//! peers by a [`Path`] each, and asks and tells the floor above through a trait for each kind.
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
//! The RTNL is above the locks that opening and closing a socket takes, and above the table's spin
//! lock; that is above the lock of a link's interface name, a leaf. Links are made and removed with
//! the RTNL held. System calls that look for links or open domains take the spin lock alone,
//! packets neither of the two: see [`table`]. The work item that reports a link that has gone
//! ([`LinkEvents`]) holds none of these locks.
//!
//! The mutexes of a QP are neither below nor above these locks: see [`qp`]. The locks of connection
//! management are described at [`cm`]. In softirq a packet takes the lock of its QP's inbox, a
//! leaf; all other look-ups are under RCU.
//!
//! | file | what |
//! |---|---|
//! | [`name`] | names of links and interfaces, checked |
//! | [`link`] | one link |
//! | [`table`] | all links, and what happens to interfaces |
//! | [`socket`] | a namespace's door to the wire, and the numbers of its QPs |
//! | [`packet`] | packets in socket buffers: verified, built |
//! | [`path`] | the way from a link's address to a peer |
//! | [`qp`] | queue pairs |
//! | [`cm`] | connection management: how QPs find their peers |
//! | [`stats`] | what is counted |

#[allow(dead_code, unused_imports, reason = "suites use all of it")]
pub(crate) mod cm;
mod link;
mod name;
mod packet;
mod path;
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
mod kunit_cm_pair;
#[cfg(kfi_kunit)]
#[path = "../../../kunit/cm_slow.rs"]
mod kunit_cm_slow;
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
    path::Path,
    stats::{
        Figure,
        QpFigures,
        Values,
        FIGURES, //
    },
    table::{
        add,
        del,
        find,
        has_address,
        is_local,
        next,
        next_anywhere,
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
