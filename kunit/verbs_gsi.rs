// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_verbs_gsi`: the GSI QP of a device, by the functions of `bindings.h`. The device
//! is on the loopback interface, so QP 1 sends to itself.

use super::{
    cq::Cq,
    kunit_fixture::{
        cookie,
        is_empty,
        Case, //
    },
    kunit_memory::Host,
    mr::OwnedMr,
    pd::Pd,
    qp::{
        Parents,
        Qp, //
    },
    raw, //
};
use crate::kunit::helpers::{
    a_while,
    eventually,
    wait_for, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    types::ForeignOwnable, //
};
use kfi_roce::{
    cm::MAD_LEN,
    headers::Qpn,
    rc::Status,
    state::State,
    ud::{
        GRH_LEN,
        GSI_QKEY, //
    }, //
};

// Bits of `enum ib_qp_attr_mask`.
const EN_SQD_ASYNC_NOTIFY: u32 = 1 << 2;
const PKEY_INDEX: u32 = 1 << 4;
const QKEY: u32 = 1 << 6;
const SQ_PSN: u32 = 1 << 16;

/// The IPv4-mapped GID of 127.0.0.`last`.
fn gid(last: u8) -> [u8; 16] {
    let mut gid = [0; 16];
    gid[10..].copy_from_slice(&[0xff, 0xff, 127, 0, 0, last]);
    gid
}

/// A GSI QP of a kernel caller, with its CQs and its memory: a MAD, and room for one.
struct Gsi {
    handle: *mut raw::kfabric_verbs_qp,
    sends: Arc<Cq>,
    receives: Arc<Cq>,
    memory: KVec<u8>,
    key: u32,
    _mr: KBox<OwnedMr>,
}

fn create(pd: Arc<Pd>, case: &Case, sends: &Arc<Cq>, receives: &Arc<Cq>) -> Result<Arc<Qp>> {
    let parents = Parents {
        pd,
        send_cq: sends.clone(),
        recv_cq: receives.clone(),
        srq: None,
    };
    let init = raw::kfabric_verbs_qp_init {
        cookie: cookie(&case.calls).address(),
        type_: raw::KFABRIC_VERBS_QP_GSI,
        max_send_wr: 8,
        max_recv_wr: 8,
        max_send_sge: 1,
        max_recv_sge: 1,
        ..Default::default()
    };
    Qp::new(parents, &init)
}

impl Gsi {
    fn new(host: &Host, case: &Case) -> Result<Self> {
        let pd = host.kernel_pd()?;
        let mr = OwnedMr::all(&pd, raw::KFABRIC_VERBS_LOCAL_WRITE)?;
        let (sends, receives) = (case.cq(16)?, case.cq(16)?);
        let mut memory = KVec::from_elem(0, 2 * MAD_LEN + GRH_LEN, GFP_KERNEL)?;
        // Performance management, which connection management does not know.
        memory[..4].copy_from_slice(&[1, 4, 1, 1]);
        let qp = create(pd, case, &sends, &receives)?;
        Ok(Self {
            handle: qp.into_foreign().cast(),
            sends,
            receives,
            memory,
            key: mr.key(),
            _mr: mr,
        })
    }

    /// The state that a query reports. Nothing is being drained.
    fn is_in(&self, state: State) -> bool {
        let mut draining = true;
        // SAFETY: The handle is valid until `self` is dropped, and `draining` during the call.
        let now = unsafe { raw::kfabric_verbs_qp_state(self.handle, &mut draining) };
        now == state as u32 && !draining
    }

    /// Changes the state, with the attributes that the change requires, and with `also`.
    fn change_with(&self, state: State, also: u32) -> c_int {
        let attr = raw::kfabric_verbs_qp_attr {
            state: state as u32,
            qkey: GSI_QKEY,
            drain_event: 1,
            ..Default::default()
        };
        let mask = match state {
            State::Init => PKEY_INDEX | QKEY,
            State::Rts if self.is_in(State::Rtr) => SQ_PSN,
            _ => 0,
        };
        let mask = raw::KFABRIC_VERBS_QP_STATE | mask | also;
        // SAFETY: The handle is valid until `self` is dropped, and `attr` during the call.
        unsafe { raw::kfabric_verbs_qp_modify(self.handle, &attr, mask) }
    }

    /// Changes the state, which is the new one afterwards.
    fn change(&self, state: State) -> Result {
        ensure_eq!(self.change_with(state, 0), 0);
        ensure!(self.is_in(state));
        Ok(())
    }

    fn sge(&self, at: usize, length: usize) -> raw::kfabric_verbs_sge {
        raw::kfabric_verbs_sge {
            addr: (self.memory.as_ptr().addr() + at) as u64,
            length: length as u32,
            lkey: self.key,
        }
    }

    /// Posts the MAD, to QP 1 of another address of the interface.
    fn send(&self, wr_id: u64) -> c_int {
        self.send_to(gid(2), wr_id)
    }

    /// Posts the MAD, to QP 1 of this address.
    fn send_to(&self, dgid: [u8; 16], wr_id: u64) -> c_int {
        let (sge, av) = (
            self.sge(0, MAD_LEN),
            raw::kfabric_verbs_av {
                sgid: gid(1),
                dgid,
                traffic_class: 0,
            },
        );
        let send = raw::kfabric_verbs_send {
            wr_id,
            sges: &sge,
            av: &av,
            num_sge: 1,
            opcode: raw::KFABRIC_VERBS_WR_SEND,
            flags: raw::KFABRIC_VERBS_SEND_SIGNALED,
            remote_qpn: Qpn::GSI.get(),
            remote_qkey: GSI_QKEY,
            ..Default::default()
        };
        // SAFETY: The handle is valid until `self` is dropped, and the rest during the calls.
        // `drop()` destroys the QP before the memory is freed.
        unsafe {
            let ret = raw::kfabric_verbs_qp_post_send(self.handle, &send);
            raw::kfabric_verbs_qp_post_end(self.handle);
            ret
        }
    }

    /// Posts a receive of a MAD.
    fn receive(&self, wr_id: u64) -> c_int {
        let sge = self.sge(MAD_LEN, GRH_LEN + MAD_LEN);
        // SAFETY: The handle is valid until `self` is dropped, and `sge` during the call. `drop()`
        // destroys the QP before the memory is freed.
        unsafe { raw::kfabric_verbs_qp_post_recv(self.handle, wr_id, &sge, 1) }
    }

    /// Whether the memory of the receive has the MAD. Clears that memory.
    fn take_mad(&mut self) -> bool {
        let (mad, room) = self.memory.split_at_mut(MAD_LEN);
        let same = room[GRH_LEN..] == *mad;
        room.fill(0);
        same
    }
}

impl Drop for Gsi {
    fn drop(&mut self) {
        // SAFETY: The handle is valid, and `self`, which alone has it, ends.
        unsafe { raw::kfabric_verbs_qp_destroy(self.handle) };
    }
}

/// Waits for the next entry. Fails if it is not that of `wr_id` with this status.
fn completes(cq: &Cq, wr_id: u64, status: Status) -> Result {
    let next = wait_for(|| {
        let mut found = None;
        cq.poll(1, |entry| found = Some((entry.wr_id, entry.status)));
        found
    })?;
    ensure!(next == (wr_id, status));
    Ok(())
}

#[kunit_tests(kfabric_verbs_gsi)]
mod tests {
    use super::*;

    #[test]
    fn a_gsi_qp_goes_through_its_states() -> Result {
        let host = Host::new()?;
        let case = Case::new(74)?;
        let mut gsi = Gsi::new(&host, &case)?;
        ensure!(gsi.is_in(State::Reset));
        let refused = EINVAL.to_errno();
        for _ in 0..2 {
            ensure_eq!((gsi.send(0), gsi.receive(0)), (refused, refused));
            gsi.change(State::Init)?;
            ensure_eq!((gsi.send(0), gsi.receive(1)), (refused, 0));
            gsi.change(State::Rtr)?;
            ensure_eq!((gsi.send(0), gsi.receive(2)), (refused, 0));
            gsi.change(State::Rts)?;
            ensure_eq!(gsi.send(3), 0);
            completes(&gsi.sends, 3, Status::Success)?;
            completes(&gsi.receives, 1, Status::Success)?;
            ensure!(gsi.take_mad());

            // A work request waits in SQD, and is executed in RTS.
            gsi.change(State::Sqd)?;
            ensure_eq!(gsi.send(4), 0);
            a_while();
            ensure!(is_empty(&gsi.sends) && is_empty(&gsi.receives));
            gsi.change(State::Rts)?;
            completes(&gsi.sends, 4, Status::Success)?;
            completes(&gsi.receives, 2, Status::Success)?;
            ensure!(gsi.take_mad());

            // In ERR all is flushed, whether it was posted before or is posted then.
            gsi.change(State::Sqd)?;
            ensure_eq!((gsi.send(5), gsi.receive(6)), (0, 0));
            gsi.change(State::Error)?;
            ensure_eq!((gsi.send(7), gsi.receive(8)), (0, 0));
            for (cq, ids) in [(&gsi.sends, [5, 7]), (&gsi.receives, [6, 8])] {
                for id in ids {
                    completes(cq, id, Status::Flushed)?;
                }
            }
            ensure!(!gsi.take_mad());
            gsi.change(State::Reset)?;
        }
        Ok(())
    }

    /// What waits in the queues when the QP returns to RESET has no entry, and is not executed
    /// later.
    #[test]
    fn reset_forgets_what_was_posted() -> Result {
        let host = Host::new()?;
        let case = Case::new(75)?;
        let gsi = Gsi::new(&host, &case)?;
        for state in [State::Init, State::Rtr, State::Rts] {
            gsi.change(state)?;
        }
        gsi.change(State::Sqd)?;
        ensure_eq!((gsi.send(1), gsi.receive(2)), (0, 0));
        gsi.change(State::Reset)?;
        for state in [State::Init, State::Rtr, State::Rts] {
            gsi.change(state)?;
        }
        a_while();
        ensure!(is_empty(&gsi.sends) && is_empty(&gsi.receives));
        // The datagram finds no receive.
        ensure_eq!(gsi.send(3), 0);
        completes(&gsi.sends, 3, Status::Success)?;
        a_while();
        ensure!(is_empty(&gsi.receives));
        Ok(())
    }

    #[test]
    fn a_bad_address_is_no_error_of_a_gsi_qp() -> Result {
        let host = Host::new()?;
        let case = Case::new(78)?;
        let gsi = Gsi::new(&host, &case)?;
        for state in [State::Init, State::Rtr, State::Rts] {
            gsi.change(state)?;
        }
        let mut broadcast = gid(255);
        broadcast[13..].fill(255);
        for (wr_id, dgid) in [(1, broadcast), (2, gid(2))] {
            ensure_eq!(gsi.send_to(dgid, wr_id), 0);
            completes(&gsi.sends, wr_id, Status::Success)?;
            ensure!(gsi.is_in(State::Rts));
        }
        Ok(())
    }

    #[test]
    fn a_drained_queue_is_reported() -> Result {
        let host = Host::new()?;
        let case = Case::new(76)?;
        let gsi = Gsi::new(&host, &case)?;
        for state in [State::Init, State::Rtr, State::Rts, State::Sqd, State::Rts] {
            gsi.change(state)?;
        }
        a_while();
        ensure_eq!(case.calls.drained(), 0);
        ensure_eq!(gsi.change_with(State::Sqd, EN_SQD_ASYNC_NOTIFY), 0);
        ensure!(eventually(|| case.calls.drained() == 1));
        Ok(())
    }

    #[test]
    fn a_device_has_one_gsi_qp_of_a_kernel_caller() -> Result {
        let host = Host::new()?;
        let case = Case::new(77)?;
        let (sends, receives) = (case.cq(1)?, case.cq(1)?);
        let another = |pd| create(pd, &case, &sends, &receives).err();
        ensure_eq!(another(host.pd()?), Some(EINVAL));
        let mut gsi = Gsi::new(&host, &case)?;
        ensure_eq!(another(host.kernel_pd()?), Some(EBUSY));
        ensure_eq!(another(host.pd()?), Some(EINVAL));
        for state in [State::Init, State::Rtr, State::Rts] {
            gsi.change(state)?;
        }
        ensure_eq!((gsi.receive(1), gsi.send(2)), (0, 0));
        completes(&gsi.receives, 1, Status::Success)?;
        ensure!(gsi.take_mad());
        drop(gsi);
        drop(Gsi::new(&host, &case)?);
        Ok(())
    }
}
