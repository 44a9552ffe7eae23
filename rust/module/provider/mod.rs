// SPDX-License-Identifier: GPL-2.0

//! The provider: the objects of kfabric, and the path of operations through them.
//!
//! A front end (`uapi` for programs, `capi` for kernel modules) makes objects and calls their
//! methods, and nothing below them. The provider uses `net`, which has the links and QPs. Each
//! object has a file:
//!
//! ```text
//! fabric -> domain -> ep   -> av, cq, cntr, mr, comp_cntr, stx, ep (a shared receive context)
//!                     sep  -> av; ep            (the contexts of a scalable endpoint)
//!                     poll -> cq, cntr          (an arrow: "is made from" or "is bound to")
//!                     flow -> ep, counters
//!        -> eq, wait
//!        -> pep -> eq
//! ```
//!
//! [`work`] has the operations that wait for a counter: triggered operations and deferred work.
//!
//! An operation enters at [`ep::post::Poster::post`], or is admitted and started
//! (`Endpoint::admit`) and posted later. It finds its peer on this host through [`directory`], or
//! goes to another host over the network. It ends in [`ep::complete`]. Only that reports to CQs,
//! counters and completion counters; they signal the wait objects.
//!
//! The documentation of a function lists its errors after "Fails with", each with its cause unless
//! that is evident. "Sleeps" means that the function may sleep.
//!
//! # Lifetime
//!
//! Objects are reference-counted internally ([`Arc`](kernel::sync::Arc)) and closed explicitly by
//! their owners. [`object`] describes how uses are counted and what a close does.
//!
//! All functions run in process context, with four exceptions. The timers of a session and of an
//! endpoint's submission queues expire in hard interrupt context and only queue a work item.
//! Operations are admitted and started in any context (`ep/admit.rs`). Memory that a peer reads is
//! copied with bottom halves disabled, where nothing may sleep
//! ([`Consumer::read`](crate::net::qp::rc::Consumer::read)). Interrupts may change a counter
//! without the lock of its waiters (`cntr/irq.rs`). Spin locks are leaves unless their
//! documentation says otherwise. None is held while memory is allocated or a consumer is called, or
//! while data are copied, except one packet of a granted message (`ep/rdm/remote/session.rs`).
//!
//! # Lock order
//!
//! An arrow means "is taken before". Locks of different items are not held together, except as
//! stated.
//!
//! - An endpoint's state -> the state of the scalable endpoint of which it is a context.
//! - Mutexes of one object: an endpoint's state, a passive endpoint's state, an AV's change, the
//!   readers of a CQ, an EQ or a poll set -> those of connection management -> spin locks.
//! - The mutex of a session with another host -> the locks of its QPs and connections, and those of
//!   a completion. No other mutex is taken under it.
//! - The spin lock of a CQ, an EQ or a counter -> the locks of wait queues. The spin lock of a CQ
//!   or a counter -> that of a callback. The spin lock of a counter -> that of its domain's works
//!   that are due -> that of the workqueue.
//! - The spin lock of a wait set. The caller has released the lock of the member that signals it.
//! - The lock of an endpoint's receive side -> that of a multi-receive buffer -> those of a CQ, a
//!   counter, a completion counter's copies and a wait set, one after the other. The latter are
//!   taken under the lock of the buffer only. The lock of the receive side of a shared receive
//!   context -> that of the CQ of its endpoints, when the first of them is enabled
//!   (`ep/receive/shared.rs`).
//! - The lock of an endpoint's transmit side -> that of a waiting send, a leaf.
//! - The lock of an endpoint's submission queues may be taken under any of these but leaves. Only
//!   those of the workqueue and of the timer are taken under it (`ep/submit/`).
//! - The mutex of a flow's points -> the lock of a counters object, a leaf. A mutex of a flow is
//!   not held while the table of flows of its endpoint changes.
//! - The lock of a counter's changes is a leaf. It is taken in any context, alone or under the spin
//!   lock of the counter.
//! - The lock of a completion counter's copies is a leaf. It is taken after the lock of the counter
//!   was released.
//! - The locks of an AV's table, of a domain's keys, of the directories, of their list and of the
//!   object list are leaves.
//!
//! Locks that objects of several users share, and that the end of a process takes, are spin locks.
//! No task is preempted while it holds one, so the end of a process does not wait for a task that
//! is not scheduled. The mutexes that the end of a process takes belong to its own objects. Its
//! calls have returned by then. Only workers hold these mutexes, and tasks that run one of its QPs
//! ([`qp`](crate::net::qp)).

pub(crate) mod av;
pub(crate) mod cntr;
pub(crate) mod comp_cntr;
pub(crate) mod counters;
pub(crate) mod cq;
pub(crate) mod directory;
pub(crate) mod domain;
pub(crate) mod drain;
pub(crate) mod ep;
pub(crate) mod eq;
pub(crate) mod fabric;
pub(crate) mod flow;
pub(crate) mod mr;
pub(crate) mod object;
pub(crate) mod object_list;
pub(crate) mod pep;
pub(crate) mod poll;
mod prelude;
pub(crate) mod sep;
pub(crate) mod stx;
pub(crate) mod wait;
pub(crate) mod work;

#[cfg(kfi_kunit)]
#[path = "../../../kunit/mr.rs"]
mod kunit_mr;

use kernel::sync::Arc;

use crate::net::{
    Link,
    LinkEvents, //
};

/// Handles the removal of a link for the provider's objects.
pub(crate) static LINK_EVENTS: LinkWatch = LinkWatch;

/// The type of [`LINK_EVENTS`].
pub(crate) struct LinkWatch;

impl LinkEvents for LinkWatch {
    /// Fails the operations that are outstanding on the link. Operations that are posted later are
    /// refused. Sleeps.
    fn link_gone(&self, link: &Arc<Link>) {
        let mut after = 0;
        let on_link =
            |object: &dyn object_list::StatsSource| Arc::ptr_eq(object.domain().link(), link);
        while let Some((id, endpoint)) =
            object_list::next(object_list::Class::Endpoint, after, on_link)
        {
            endpoint.link_gone();
            after = id;
        }
    }
}

/// Dropping it waits until all objects that were closed by force have been torn down.
pub(crate) struct Teardowns;

impl Drop for Teardowns {
    fn drop(&mut self) {
        ep::wait_for_teardowns();
    }
}

/// Prepares the provider's global locks. `comp_cntr_max_value` is the module parameter.
///
/// # Safety
///
/// Must be called once, before anything else of the provider.
pub(crate) unsafe fn init(comp_cntr_max_value: u64) {
    comp_cntr::set_max_value(comp_cntr_max_value);
    // SAFETY: Called once and first, by the requirement above.
    unsafe {
        object_list::init();
        directory::init();
    }
}
