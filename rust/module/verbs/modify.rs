// SPDX-License-Identifier: GPL-2.0

//! Changes of a QP's state, and its attributes.
//!
//! `kfabric_ib.ko` has checked the transition by the rules of the RDMA subsystem. The QP of
//! [`net`](crate::net) checks it by its own, with the values of the attributes. The send queue
//! follows afterwards: from the change on, the new state decides about posts.

use core::net::{
    IpAddr,
    Ipv6Addr, //
};

use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    }, //
};

use kfi_roce::{
    headers::{
        Qpn,
        RnrTimer, //
    },
    mtu::PathMtu,
    psn::Psn,
    rc::{
        self,
        Access,
        AckTimeout, //
    },
    state::{
        Mask,
        State, //
    },
    ud, //
};

use super::{
    code,
    declared,
    issue::By,
    qp::{
        Qp,
        Transport, //
    },
    raw::{
        self,
        kfabric_verbs_av,
        kfabric_verbs_qp,
        kfabric_verbs_qp_attr, //
    }, //
};
use crate::net::{
    qp::rc::MAX_RD_ATOMIC,
    Path, //
};

/// The IP address of a GID: an IPv4-mapped one is an IPv4 address.
pub(super) fn ip_of_gid(gid: &[u8; 16]) -> IpAddr {
    Ipv6Addr::from(*gid).to_canonical()
}

/// The state with a number of `enum ib_qp_state`. Fails with `EINVAL` for another number.
fn state_of(number: u32) -> Result<State> {
    State::ALL
        .into_iter()
        .find(|state| *state as u32 == number)
        .ok_or(EINVAL)
}

/// The operations that the peer may use. Other rights of `enum ib_access_flags` have no effect on a
/// QP; `kfabric_ib.ko` has refused unknown ones.
fn access_of(bits: u32) -> Access {
    let has = |right| bits & right != 0;
    Access {
        write: has(raw::KFABRIC_VERBS_REMOTE_WRITE),
        read: has(raw::KFABRIC_VERBS_REMOTE_READ),
        atomic: has(raw::KFABRIC_VERBS_REMOTE_ATOMIC),
    }
}

/// The attributes of a connection. Fails with `EINVAL` for an invalid value.
fn rc_attr(attr: &kfabric_verbs_qp_attr, mask: Mask) -> Result<rc::Attr> {
    let mut to = rc::Attr {
        state: state_of(attr.state)?,
        ..rc::Attr::default()
    };
    let has = |attribute| mask.contains(attribute);
    if has(Mask::CUR_STATE) {
        to.cur_state = state_of(attr.cur_state)?;
    }
    if has(Mask::PATH_MTU) {
        let code = u8::try_from(attr.path_mtu)?;
        to.path_mtu = PathMtu::from_code(code).ok_or(EINVAL)?;
    }
    if has(Mask::MIN_RNR_TIMER) {
        to.min_rnr_timer = RnrTimer::from_code(attr.min_rnr_timer).ok_or(EINVAL)?;
    }
    if has(Mask::TIMEOUT) {
        to.timeout = AckTimeout::from_code(attr.timeout).ok_or(EINVAL)?;
    }
    if has(Mask::ACCESS_FLAGS) {
        to.access = access_of(attr.access);
    }
    to.en_sqd_async_notify = attr.drain_event != 0;
    to.pkey_index = attr.pkey_index;
    to.port = attr.port;
    to.dest_qpn = Qpn::new(attr.dest_qpn);
    to.rq_psn = Psn::new(attr.rq_psn);
    to.sq_psn = Psn::new(attr.sq_psn);
    // Programs ask for as many as the peer's device can execute; the QP may have fewer outstanding.
    to.max_rd_atomic = attr.max_rd_atomic.min(MAX_RD_ATOMIC);
    to.max_dest_rd_atomic = attr.max_dest_rd_atomic;
    to.retry_cnt = attr.retry_cnt;
    to.rnr_retry = attr.rnr_retry;
    Ok(to)
}

/// The attributes of a QP for datagrams. Fails as [`rc_attr`].
fn ud_attr(attr: &kfabric_verbs_qp_attr, mask: Mask) -> Result<ud::Attr> {
    let mut to = ud::Attr {
        state: state_of(attr.state)?,
        ..ud::Attr::default()
    };
    if mask.contains(Mask::CUR_STATE) {
        to.cur_state = state_of(attr.cur_state)?;
    }
    to.en_sqd_async_notify = attr.drain_event != 0;
    to.pkey_index = attr.pkey_index;
    to.port = attr.port;
    to.qkey = attr.qkey;
    to.sq_psn = Psn::new(attr.sq_psn);
    Ok(to)
}

impl Qp {
    /// The path of an address vector, which can be used now. Fails with `EINVAL` for addresses that
    /// no path can have; otherwise as [`Path::check`]. Sleeps.
    fn path(&self, av: &kfabric_verbs_av) -> Result<Arc<Path>> {
        let (from, to) = (ip_of_gid(&av.sgid), ip_of_gid(&av.dgid));
        let path = Path::with_class(self.link(), from, to, av.traffic_class)?;
        path.check()?;
        Ok(path)
    }

    /// Changes the state, with the attributes in `bits` (`enum ib_qp_attr_mask`).
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the transition or an attribute is not allowed, or a value is invalid.
    /// - `EOPNOTSUPP`: an attribute that a QP does not have: the state of path migration. (The RDMA
    ///   subsystem refuses alternate paths over RoCE, and `kfabric_ib.ko` rate limits.)
    /// - Those of [`path`](Self::path), and of the QP of `net`.
    ///
    /// Nothing has changed then. Sleeps.
    fn modify(&self, attr: &kfabric_verbs_qp_attr, bits: u32) -> Result {
        let mask = Mask::from_bits(bits & !raw::KFABRIC_VERBS_QP_STATE).ok_or(EOPNOTSUPP)?;
        let to = state_of(attr.state)?;
        let _modifying = self.modifying.lock();
        if to == State::Reset {
            return self.reset(attr, mask);
        }
        let awaited = self.awaits_first.load(Relaxed);
        // Both are set before the QP changes: a task that finds it in SQD waits, and the first
        // message in RTR finds that it is the first.
        let stopped = to == State::Sqd && self.send.exchange_state(State::Rts, to);
        self.awaits_first.store(to == State::Rtr, Relaxed);
        self.change(attr, mask).inspect_err(|_| {
            self.awaits_first.store(awaited, Relaxed);
            // Unless a run has found an error meanwhile.
            if stopped && self.send.exchange_state(to, State::Rts) {
                self.wake();
            }
        })?;
        self.recv.set_closed(false);
        self.send.set_state(to);
        if let found @ (State::Error | State::Sqe) = self.state() {
            // A run has found an error meanwhile.
            self.send.fail(found);
        }
        // The send queue of a GSI QP is drained at once: a datagram has ended when it was sent. A QP
        // of `net` reports the event itself.
        let asked = mask.contains(Mask::EN_SQD_ASYNC_NOTIFY) && attr.drain_event != 0;
        if asked && matches!(self.transport(), Some(Transport::Gsi(_))) {
            self.raise(raw::KFABRIC_VERBS_EVENT_SQ_DRAINED);
        }
        self.draining
            .store(to == State::Sqd && self.is_draining(), Relaxed);
        self.progress(By::Task);
        // In ERR the run flushes the receives; in SQD it notices that the queue is drained.
        self.wake();
        Ok(())
    }

    /// Changes the QP of `net`. Sleeps.
    fn change(&self, attr: &kfabric_verbs_qp_attr, mask: Mask) -> Result {
        match self.transport().ok_or(ENODEV)? {
            Transport::Rc(qp) => {
                let path = match mask.contains(Mask::AV) {
                    true => Some(self.path(&attr.av)?),
                    false => None,
                };
                qp.modify(&rc_attr(attr, mask)?, mask, path.as_ref())?;
                if let Some(path) = &path {
                    self.set_peer(path.addrs().to);
                }
                Ok(())
            }
            Transport::Ud(qp) => qp.modify(&ud_attr(attr, mask)?, mask, None),
            // The GSI QP has a state only, and `kfabric_ib.ko` has checked the transition.
            Transport::Gsi(_) => Ok(()),
        }
    }

    /// Returns to RESET. The queues are closed first, so that a run flushes nothing; then no task
    /// has a work request of this generation any more. Sleeps.
    fn reset(&self, attr: &kfabric_verbs_qp_attr, mask: Mask) -> Result {
        let was = self.send.state();
        self.recv.set_closed(true);
        self.send.set_state(State::Reset);
        self.send.wait_idle();
        self.change(attr, mask).inspect_err(|_| {
            self.recv.set_closed(was == State::Reset);
            self.send.set_state(was);
        })?;
        // The run of the earlier generation has ended, and the next one finds nothing.
        *self.incoming.lock() = None;
        self.recv.clear();
        self.forget_generation();
        Ok(())
    }

    /// Whether it is in SQD, and work requests that had begun have not ended. Process context; may
    /// sleep.
    pub(super) fn is_draining(&self) -> bool {
        match self.transport() {
            Some(Transport::Rc(qp)) => qp.is_draining(),
            // A datagram has ended when it was sent.
            _ => false,
        }
    }

    /// The state that a query reports, and whether the send queue is being drained. Any context:
    /// any user may ask the RDMA subsystem for the state of any QP, and must not keep its owner
    /// waiting.
    pub(super) fn reported_state(&self) -> (State, bool) {
        let state = self.send.state();
        (state, state == State::Sqd && self.draining.load(Relaxed))
    }

    /// The state of the QP of `net`. Process context; may sleep.
    pub(super) fn state(&self) -> State {
        match self.transport() {
            Some(Transport::Rc(qp)) => qp.state(),
            Some(Transport::Ud(qp)) => qp.state(),
            Some(Transport::Gsi(_)) => self.send.state(),
            None => State::Reset,
        }
    }
}

declared! {
    kfabric_verbs_qp_state: fn(*const kfabric_verbs_qp, *mut bool) -> u32;
    kfabric_verbs_qp_modify:
        fn(*mut kfabric_verbs_qp, *const kfabric_verbs_qp_attr, u32) -> c_int;
}

/// The state of a QP, of `enum ib_qp_state`, and whether its send queue is being drained. Any
/// context.
///
/// # Safety
///
/// The arguments are valid by the interface.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_qp_state(
    qp: *const kfabric_verbs_qp,
    draining: *mut bool,
) -> u32 {
    // SAFETY: By the requirement above.
    let qp = unsafe { Qp::borrow(qp) };
    let (state, is_draining) = qp.reported_state();
    // SAFETY: By the requirement above.
    unsafe { draining.write(is_draining) };
    state as u32
}

/// Changes the state of a QP. Fails as [`Qp::modify`]. Sleeps.
///
/// # Safety
///
/// The arguments are valid by the interface.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_qp_modify(
    qp: *mut kfabric_verbs_qp,
    attr: *const kfabric_verbs_qp_attr,
    mask: u32,
) -> c_int {
    // SAFETY: By the requirement above.
    let (qp, attr) = unsafe { (Qp::borrow(qp), &*attr) };
    code(qp.modify(attr, mask))
}
