// SPDX-License-Identifier: GPL-2.0

//! Shared receive contexts: receives that several endpoints match their messages with.
//!
//! Source: fi_endpoint(3), "Shared contexts". A shared receive context (SRX) is an [`Endpoint`]
//! that has a receive side and no address. Receives are posted to it, and cancelled, as to any
//! endpoint. The endpoints that use it have no queues of their own: [`Endpoint::rx_side`] is the
//! receive side of the SRX. So receives match in the order of posting, messages in the order of
//! arrival, whichever endpoint they came to. An unexpected message knows its endpoint
//! ([`Location::target`]).
//!
//! A receive completes at the endpoint whose message it took: in the CQ and the counters that are
//! bound to that. The room in the CQ has to be there when the receive is posted, when its endpoint
//! is not known. So all endpoints of an SRX have the same receive CQ, bound with the same flags,
//! and, as the page requires, the same AV; the first one that is enabled determines them (the
//! *reporter*).
//!
//! # Room in the CQ
//!
//! As long as there is a reporter with a CQ, one place in the CQ is reserved for each receive in
//! the queues, also for one that is silent. The ticket of such a receive says only that
//! (`ReservedRoom::Pool`). So receives can be posted before the first endpoint is enabled, which
//! then reserves the places of all of them, and remain when the last endpoint closes, which
//! releases them. A ticket that leaves the queues takes its place with it.
//!
//! # Locks
//!
//! The reporter changes under the lock of the queues. The lock of the CQ is taken under it then.

use kfi_core::{
    info,
    op, //
};

use super::{
    super::{
        bound::{
            Bindings,
            CqBinding, //
        },
        prelude::*,
        ticket::ReservedRoom,
        State, //
    },
    Location,
    MatchedReceive,
    Queues,
    RxSide,
    UnexpectedMessage, //
};
use crate::provider::cq::Credit;

/// The reporter of an SRX, and the number of its endpoints.
#[derive(Default)]
pub(super) struct Sharing {
    /// The number of enabled endpoints that use the queues.
    endpoints: u32,
    /// What all of them are bound to; `None`: there are none.
    reporter: Option<Arc<Bound>>,
}

impl Sharing {
    /// The reporter.
    pub(super) fn reporter(&self) -> Option<Arc<Bound>> {
        self.reporter.clone()
    }

    /// Whether `bound` is still that of the reporter, or, without one, that of the SRX itself.
    pub(super) fn is_current(&self, bound: &Bound, srx: &Endpoint) -> bool {
        let current = self.reporter.as_deref().or(srx.bound.as_ref());
        current.is_some_and(|current| core::ptr::eq(current, bound))
    }
}

/// The bindings of an endpoint that must be the same for all endpoints of an SRX.
impl Bindings {
    fn reports_like(&self, other: &Self) -> bool {
        let same_av = match (&self.av, &other.av) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(a.arc(), b.arc()),
            _ => false,
        };
        let same_cq = match (&self.rx_cq, &other.rx_cq) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(a.cq.arc(), b.cq.arc()) && a.selective == b.selective,
            _ => false,
        };
        same_av && same_cq
    }

    /// The reporter for an SRX whose first endpoint has these bindings. Fails with `EBADF`.
    fn reporter(&self) -> Result<Self> {
        let mut reporter = Self::default();
        if let Some(av) = &self.av {
            reporter.av = Some(UseRef::new(av.arc().clone())?);
        }
        if let Some(binding) = &self.rx_cq {
            reporter.rx_cq = Some(CqBinding {
                cq: UseRef::new(binding.cq.arc().clone())?,
                selective: binding.selective,
            });
        }
        Ok(reporter)
    }
}

impl Queues {
    /// The number of receives in the queues.
    fn posted(&self) -> u32 {
        // Each has at most MAX_QUEUE.
        self.plain
            .posted
            .len()
            .saturating_add(self.tagged.posted.len())
    }
}

/// The endpoint that uses an SRX.
impl Endpoint {
    /// The receives and the unexpected messages that messages to this endpoint are matched with:
    /// its own, or those of its SRX.
    #[inline(always)]
    pub(in crate::provider::ep) fn rx_side(&self) -> &RxSide {
        if !self.shares.rx {
            return &self.rx;
        }
        // An endpoint that is enabled has its SRX.
        self.srx.as_ref().map_or(&self.rx, |srx| &srx.rx)
    }

    /// Binds an SRX. Fails with `EINVAL` if the endpoint was not opened to use one, has one, or has
    /// capabilities that the SRX does not have; if `srx` is no SRX, or of another domain;
    /// `KFI_EOPBADSTATE`; `EBADF`. Sleeps.
    pub(crate) fn bind_srx(&self, srx: &Arc<Self>) -> Result {
        let needs = info::used_of_rx(self.caps);
        if !self.shares.rx
            || !srx.is_srx
            || !Arc::ptr_eq(srx.domain.arc(), self.domain.arc())
            || !srx.caps.contains(needs)
        {
            return Err(EINVAL);
        }
        self.set_up(|_, _| {
            let used = UseRef::new(srx.clone())?;
            if !self.srx.populate(used) {
                return Err(EINVAL);
            }
            Ok(())
        })
    }

    /// Begins to use the SRX, if the endpoint has one. The endpoint is about to be enabled with
    /// `bindings`. Fails with `EINVAL` if other endpoints of the SRX have another CQ or AV;
    /// `EAGAIN` if the CQ has no room for the receives that are posted to the SRX; `EBADF`;
    /// `ENOMEM`. Sleeps.
    pub(in crate::provider::ep) fn join_srx(&self, bindings: &Bindings) -> Result {
        let Some(srx) = self.srx.as_ref() else {
            return Ok(());
        };
        let name = srx.bound.as_ref().ok_or(EBADF)?.name;
        let reporter = Bound::new(bindings.reporter()?, self.domain.link(), name, name);
        // If there is another one, it is dropped after the lock was released.
        let reporter = Arc::new(reporter, GFP_KERNEL_ACCOUNT)?;
        let mut queues = srx.rx.queues.lock();
        match &queues.sharing.reporter {
            Some(current) if !current.reports_like(bindings) => return Err(EINVAL),
            Some(_) => {}
            None => {
                if let Some(binding) = &reporter.rx_cq {
                    binding.cq.reserve_many(queues.posted())?;
                }
                queues.sharing.reporter = Some(reporter);
            }
        }
        queues.sharing.endpoints = queues.sharing.endpoints.saturating_add(1);
        Ok(())
    }

    /// Ends the use of the SRX that [`join_srx`](Self::join_srx) began. Sleeps.
    pub(in crate::provider::ep) fn leave_srx(&self) {
        let Some(srx) = self.srx.as_ref() else {
            return;
        };
        let (last, posted) = {
            let mut queues = srx.rx.queues.lock();
            queues.sharing.endpoints = queues.sharing.endpoints.saturating_sub(1);
            if queues.sharing.endpoints > 0 {
                return;
            }
            (queues.sharing.reporter.take(), queues.posted())
        };
        if let Some(last) = last {
            if let Some(binding) = &last.rx_cq {
                binding.cq.release_many(posted);
            }
            // Calls that post to the SRX may still have references.
            last.release();
        }
    }

    /// Prepares the ticket of a receive of an SRX to be completed or given back with `bound`: it
    /// gets the place that is reserved for it.
    #[inline(never)]
    pub(in crate::provider::ep) fn take_from_pool(&self, bound: &Bound, ticket: &mut Ticket) {
        ticket.reserved = match &bound.rx_cq {
            None => ReservedRoom::None,
            Some(binding) => {
                ticket.report |= !binding.selective;
                ReservedRoom::Credit(Credit::of_pool())
            }
        };
        // The receive has left room for a started one that waits for it.
        if let Some(srx) = self.srx.as_ref() {
            srx.submission.kick();
        }
    }

    /// Fails the receive of an SRX that a message of this endpoint took, because the endpoint
    /// closes. The SRX does not close, so its owner must get the buffer back. Does not sleep.
    pub(in crate::provider::ep) fn fail_taken(&self, bound: &Bound, ticket: Ticket) {
        self.complete(bound, ticket, Outcome::failed(Errno::ECANCELED));
    }

    /// Whether an unexpected message is for this endpoint.
    pub(super) fn is_target_of(&self, location: &Location) -> bool {
        location
            .target()
            .is_some_and(|target| core::ptr::eq(&**target, self))
    }
}

/// The SRX itself.
impl Endpoint {
    /// Makes a new endpoint an SRX, which can be used at once.
    pub(in crate::provider::ep) fn become_srx(&self) {
        let name = SockAddr::v4(core::net::Ipv4Addr::UNSPECIFIED, 0);
        let link = self.domain.link();
        self.bound
            .populate(Bound::new(Bindings::default(), link, name, name));
        *self.state.lock() = State::Srx;
        self.drain.start();
    }

    /// Its reporter. `None`: it is no SRX, or no endpoint uses it. Does not sleep.
    #[inline]
    pub(in crate::provider::ep) fn reporter(&self) -> Option<Arc<Bound>> {
        if !self.is_srx {
            return None;
        }
        self.srx_reporter()
    }

    #[cold]
    #[inline(never)]
    fn srx_reporter(&self) -> Option<Arc<Bound>> {
        self.rx.queues.lock().sharing.reporter()
    }

    /// The ticket of a receive that is posted to an SRX. Fails with `EAGAIN` if the CQ has no room.
    /// Does not sleep.
    pub(super) fn pool_ticket(
        &self,
        bound: &Bound,
        kind: OpType,
        flags: OpFlags,
        context: u64,
        len: u64,
    ) -> Result<Ticket> {
        if let Some(binding) = &bound.rx_cq {
            binding.cq.reserve()?.into_pool();
        }
        Ok(Ticket {
            kind,
            // If the CQ of its endpoint turns out not to be selective, the success is reported,
            // too.
            report: op::reports_success(flags, true),
            tagged: flags.contains(OpFlags::TAGGED),
            context,
            len,
            reserved: ReservedRoom::Pool,
        })
    }

    /// Moves an unexpected message of an SRX to the receive that `take` returns, at the endpoint
    /// that it came to. Returns `false` without calling it if the sender has taken the message
    /// back, or the endpoint is closing. Sleeps.
    pub(super) fn deliver_at_target(
        &self,
        tagged: bool,
        found: &UnexpectedMessage<SockAddr>,
        location: Location,
        take: impl FnOnce(&Message) -> Option<MatchedReceive>,
    ) -> bool {
        let target = location.target().cloned();
        if let Some(target) = &target {
            if let Some((_inside, bound)) = target.enter() {
                return target.deliver(bound, tagged, found, location, take);
            }
        }
        // As its close does with the others.
        self.uncharge_bytes(found.charged);
        location.fail();
        false
    }
}
