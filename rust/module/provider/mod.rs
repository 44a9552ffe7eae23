// SPDX-License-Identifier: GPL-2.0

//! The provider: the objects of kfabric, and the one way that operations take through them.
//!
//! A face (`uapi`, later `capi`) makes objects and calls their methods; it never reaches past
//! them. Below is `net` with the links. One file is one object:
//!
//! ```text
//! fabric -> domain -> ep  -> av, cq, cntr, mr   (an arrow: "is made from" or "is bound to")
//!        -> eq, wait      poll -> cq, cntr
//!        -> pep -> eq
//! ```
//!
//! An operation enters at [`ep::post::Poster::post`], meets its peer through [`directory`], or goes to
//! another host over the wire, and ends
//! in [`ep::complete`], which alone feeds CQs, counters and, through them, wait objects.
//!
//! # Life
//!
//! Objects are reference-counted inside ([`Arc`](kernel::sync::Arc)) and closed explicitly
//! outside: [`object`] says how use is counted and what closing means. All runs in process context,
//! with two exceptions. The timer of a session rings in hard interrupt context, and queues a work item
//! only. What a peer reads is copied with bottom halves disabled, where nothing may sleep
//! ([`Consumer::read`](crate::net::qp::rc::Consumer::read)). Spin locks are leaves unless a lock says
//! otherwise, and none is held while memory is allocated or a consumer is called back, nor while data
//! is copied, but for one packet of a granted message (`ep/rdm/remote/session.rs`).
//!
//! # Lock order
//!
//! Mutexes: an object's own (an endpoint's stage, a passive endpoint's, an AV's change, the readers of
//! a CQ, an EQ, a poll set or a counter's descriptor), then those of connection management. A session
//! with another host has one of its own; below it are those of its QPs and connections and what a
//! completion takes, and none of the others. Below them spin locks: of a CQ, an EQ or a counter, and
//! under it wait queues' own; of a wait set, taken when its member's lock has been let go. An
//! endpoint's receive side, and under it that of a multi-receive buffer; under the latter alone, those
//! of a CQ, a counter and a wait set, one after the other. An endpoint's transmit side, and under it
//! that of a waiting send. The locks of an AV, of the keys, of the directories, of their list and of
//! the roster are leaves. Otherwise no two of these lines are held at once.
//!
//! Locks that objects of several users share, and that the end of a process takes, are spin locks: no
//! task is preempted while it holds one, so a process does not wait for a task that is not scheduled.
//! The mutexes that it takes are its own objects'. Its calls have ended then; workers hold them, and
//! whoever takes a turn of one of its QPs ([`qp`](crate::net::qp)).

pub(crate) mod av;
pub(crate) mod cntr;
pub(crate) mod cq;
pub(crate) mod directory;
pub(crate) mod domain;
pub(crate) mod ep;
pub(crate) mod eq;
pub(crate) mod fabric;
pub(crate) mod mr;
pub(crate) mod object;
pub(crate) mod pep;
pub(crate) mod poll;
pub(crate) mod roster;
pub(crate) mod rundown;
pub(crate) mod wait;

#[cfg(kfi_kunit)]
#[path = "../../../kunit/bench.rs"]
pub(crate) mod bench;
#[cfg(kfi_kunit)]
#[path = "../../../kunit/mr.rs"]
mod kunit_mr;

use kernel::sync::Arc;

use crate::net::{
    Link,
    LinkEvents, //
};

/// What happens to the provider's objects when a link's interface goes.
pub(crate) static LINK_EVENTS: LinkWatch = LinkWatch;

/// See [`LINK_EVENTS`].
pub(crate) struct LinkWatch;

impl LinkEvents for LinkWatch {
    /// Fails the sends that wait at their peers; what is posted from now on is refused. Sleeps.
    fn link_gone(&self, link: &Arc<Link>) {
        let mut after = 0;
        let on_link = |object: &dyn roster::Listed| Arc::ptr_eq(object.domain().link(), link);
        while let Some((id, endpoint)) = roster::next(roster::Class::Endpoint, after, on_link) {
            endpoint.link_gone();
            after = id;
        }
    }
}

/// Prepares the provider's global locks.
///
/// # Safety
///
/// To be called once, before anything else of the provider.
pub(crate) unsafe fn init() {
    // SAFETY: Called once and first, by the requirement above.
    unsafe {
        roster::init();
        directory::init();
    }
}
