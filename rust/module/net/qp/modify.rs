// SPDX-License-Identifier: GPL-2.0

//! Changes of a QP's state: what both kinds have in common.
//!
//! A QP is created in RESET, with a number and without an address. `modify` moves it to other
//! states and gives it its attributes: see [`kfi_roce::state`] for the transitions, and
//! [`Qp::<Rc>::modify`](super::Qp) and [`Qp::<Ud>::modify`](super::Qp) for what the kinds add.
//!
//! # Addresses
//!
//! The address is an attribute too ([`Accepts`]). When it changes, packets may wait that were
//! accepted with the earlier one, and a packet may be on its way from the check in softirq to the
//! inbox. So from the first change on, a run checks the addresses of packets again
//! ([`still_accepts`](Qp::still_accepts)).
//!
//! # Return to RESET
//!
//! A QP that has returned to RESET can be used again, for any peer. It keeps its number and its
//! statistics. When `modify` returns, the run that was in progress has ended, no packet waits, no
//! work request is left and the timer is not set. A packet that its last peer sends later is
//! dropped until the QP is connected, and afterwards by its address or its PSN.
//!
//! # Locks
//!
//! `running`, `modifying`, then the locks of the kind. A change of the address and a change to
//! RESET take `running`, so they wait for a run. Others do not, so a caller may hold locks that the
//! consumer takes, as far as the locks of the kind allow that.

#[cfg(kfi_kunit)]
#[path = "../../../../kunit/ud_modify.rs"]
mod kunit;

use super::{
    accepted::Accepts,
    Kind,
    Qp,
    QpAddress, //
};
use crate::{
    net::{
        link::LinkState,
        path::Path,
        socket::AddrPair,
        stats::Stat, //
    },
    shim::skb::RxSkb, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc,
        MutexGuard, //
    }, //
};
use kfi_roce::state::State;

/// The locks of a change of the state. When it is dropped, the worker is woken if no run could
/// begin meanwhile: tasks may have left their runs to it.
pub(super) struct Change<'a, K: Kind> {
    qp: &'a Arc<Qp<K>>,
    _modifying: MutexGuard<'a, ()>,
    running: Option<MutexGuard<'a, ()>>,
}

impl<K: Kind> Drop for Change<'_, K> {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            drop(running);
            self.qp.wake();
        }
    }
}

impl<K: Kind> Qp<K> {
    /// Begins a change of the state. If it `waits`, the current run has ended, and no other begins
    /// until the result is dropped. Sleeps.
    pub(super) fn begin_change(self: &Arc<Self>, waits: bool) -> Change<'_, K> {
        let running = waits.then(|| self.running.lock());
        Change {
            qp: self,
            _modifying: self.modifying.lock(),
            running,
        }
    }

    /// Checks that the QP may go to `state`. Fails with `ENODEV` if its link has gone, unless the
    /// state is ERR or RESET. Any context.
    pub(super) fn check_link(&self, state: State) -> Result {
        if self.is_gone() && !matches!(state, State::Error | State::Reset) {
            return Err(ENODEV);
        }
        Ok(())
    }

    /// Checks that packets of the QP can use `path`: it is of the same namespace. Fails with
    /// `EINVAL`. Any context.
    pub(super) fn check_path(&self, path: &Path) -> Result {
        let same = Arc::ptr_eq(path.link().socket(), &self.socket);
        same.then_some(()).ok_or(EINVAL)
    }

    /// Changes the packets that the QP accepts. Does not sleep.
    pub(super) fn accept(&self, _change: &Change<'_, K>, accepts: Accepts) {
        if !self.accepted.is_nothing() {
            // Ordered by the locks of the inbox, which a packet that was accepted before passes.
            self.address_changed.store(true, Relaxed);
        }
        self.accepted.set(accepts);
    }

    /// Drops the packets that wait. Sleeps.
    pub(super) fn empty_inbox(&self, _change: &Change<'_, K>) {
        let dropped = self.inbox.take(u32::MAX).map(drop).count() as u64;
        if dropped != 0 {
            self.counter().add(Stat::DropState, dropped);
        }
    }

    /// Whether the QP still accepts a packet from its inbox. Called in a run.
    #[inline]
    pub(super) fn still_accepts(&self, skb: &RxSkb) -> bool {
        !self.address_changed.load(Relaxed) || self.recheck(skb)
    }

    #[cold]
    fn recheck(&self, skb: &RxSkb) -> bool {
        AddrPair::of(skb).is_some_and(|addrs| self.check_addresses(&addrs).is_ok())
    }

    /// Checks the addresses of a packet. Fails with the cause of its drop. Process context or
    /// softirq.
    pub(super) fn check_addresses(&self, addrs: &AddrPair) -> Result<(), Stat> {
        if matches!(&self.address, QpAddress::Link(link) if link.vrf() != addrs.vrf) {
            return Err(Stat::DropDestination);
        }
        self.accepted.check(addrs, |to| match &self.address {
            QpAddress::Link(link) => link.has_ip(to),
            QpAddress::Namespace => true,
        })
    }

    /// Whether the link has gone. Any context.
    pub(super) fn is_gone(&self) -> bool {
        matches!(&self.address, QpAddress::Link(link) if link.state() == LinkState::Gone)
    }
}
