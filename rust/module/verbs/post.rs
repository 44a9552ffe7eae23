// SPDX-License-Identifier: GPL-2.0

//! Posting work requests and receives.
//!
//! This file validates each post once. The RDMA subsystem passes a program's work requests
//! unchecked. Posts are possible in any context but NMIs. Inline data of a program are read from
//! its memory here, so only a task of the program posts for the program.

use kernel::prelude::*;

use kfi_roce::{
    headers::{
        Qpn,
        SendEnd, //
    },
    rc::{
        Op,
        MAX_LEN, //
    },
    state::State, //
};

use super::{
    code,
    declared,
    issue::By,
    keys::Rights,
    modify::ip_of_gid,
    qp::{
        Qp,
        Transport, //
    },
    raw::{
        self,
        kfabric_verbs_qp,
        kfabric_verbs_send,
        kfabric_verbs_sge, //
    },
    send::{
        SendOp,
        WorkRequest, //
    },
    sge::{
        sges_of,
        Sge, //
    }, //
};
use crate::mem::{
    Inline,
    UserRange, //
};

/// The flags of work requests. The RDMA subsystem passes those of a program unchecked.
const FLAGS: u32 = raw::KFABRIC_VERBS_SEND_FENCE
    | raw::KFABRIC_VERBS_SEND_SIGNALED
    | raw::KFABRIC_VERBS_SEND_SOLICITED
    | raw::KFABRIC_VERBS_SEND_INLINE;

/// Bytes of an atomic.
const ATOMIC_LEN: u32 = 8;

impl Qp {
    /// The operation on a region; `None` if the work request is another one. Only connections of
    /// kernel callers have such operations: fails with `EINVAL` for other QPs, and for rights that
    /// no region has.
    fn region_op(&self, send: &kfabric_verbs_send) -> Result<Option<SendOp>> {
        let op = match send.opcode {
            raw::KFABRIC_VERBS_WR_REG_MR => SendOp::Register {
                key: send.rkey,
                base: send.remote_addr,
                rights: Rights::of_region(send.access).map_err(|_| EINVAL)?,
            },
            raw::KFABRIC_VERBS_WR_LOCAL_INV => SendOp::Invalidate {
                key: send.imm_or_key,
            },
            _ => return Ok(None),
        };
        let is_inline = send.flags & raw::KFABRIC_VERBS_SEND_INLINE != 0;
        match self.transport() {
            Some(Transport::Rc(_)) if !self.is_of_program() && !is_inline && send.num_sge == 0 => {
                Ok(Some(op))
            }
            _ => Err(EINVAL),
        }
    }

    /// What a work request does. Fails with `EINVAL` for an operation that the QP does not have.
    ///
    /// # Safety
    ///
    /// `send` is valid by the interface.
    unsafe fn op(&self, send: &kfabric_verbs_send) -> Result<SendOp> {
        if let Some(op) = self.region_op(send)? {
            return Ok(op);
        }
        let imm = Some(send.imm_or_key);
        let (va, rkey) = (send.remote_addr, send.rkey);
        let op = match send.opcode {
            raw::KFABRIC_VERBS_WR_SEND => Op::Send(SendEnd::Plain),
            raw::KFABRIC_VERBS_WR_SEND_IMM => Op::Send(SendEnd::Imm(send.imm_or_key)),
            raw::KFABRIC_VERBS_WR_SEND_INV => Op::Send(SendEnd::Invalidate(send.imm_or_key)),
            raw::KFABRIC_VERBS_WR_WRITE => Op::Write {
                va,
                rkey,
                imm: None,
            },
            raw::KFABRIC_VERBS_WR_WRITE_IMM => Op::Write { va, rkey, imm },
            raw::KFABRIC_VERBS_WR_READ => Op::Read { va, rkey },
            raw::KFABRIC_VERBS_WR_COMPARE_SWAP => Op::CompareSwap {
                va,
                rkey,
                compare: send.compare_add,
                swap: send.swap,
            },
            raw::KFABRIC_VERBS_WR_FETCH_ADD => Op::FetchAdd {
                va,
                rkey,
                add: send.compare_add,
            },
            _ => return Err(EINVAL),
        };
        match self.transport() {
            Some(Transport::Rc(_)) => Ok(SendOp::Rc(op)),
            Some(Transport::Ud(_) | Transport::Gsi(_)) => {
                // SAFETY: By the requirement above.
                let av = unsafe { send.av.as_ref() }.ok_or(EINVAL)?;
                let imm = match op {
                    Op::Send(SendEnd::Plain) => None,
                    Op::Send(SendEnd::Imm(imm)) => Some(imm),
                    _ => return Err(EINVAL),
                };
                Ok(SendOp::Ud {
                    from: ip_of_gid(&av.sgid),
                    to: ip_of_gid(&av.dgid),
                    class: av.traffic_class,
                    qpn: Qpn::new(send.remote_qpn),
                    qkey: send.remote_qkey,
                    imm,
                })
            }
            None => Err(EINVAL),
        }
    }

    /// Reads the inline data of a work request. Fails with `EINVAL` if the queue has no room for so
    /// many; `EFAULT`.
    ///
    /// # Safety
    ///
    /// `sges` has addresses of the poster: of the program, in a task of it, or of the kernel.
    unsafe fn read_inline(&self, inline: &mut Inline, sges: &[Sge], len: u32) -> Result {
        if len > self.send.max_inline() {
            return Err(EINVAL);
        }
        for sge in sges {
            if self.is_of_program() {
                inline.append(&UserRange {
                    addr: sge.addr,
                    len: sge.length.into(),
                })?;
            } else {
                let from = sge.addr as usize as *const u8;
                // SAFETY: A kernel caller's address, by the requirement above.
                unsafe { inline.append_kernel(from, sge.length as usize)? };
            }
        }
        Ok(())
    }

    /// Posts a work request.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: an operation, a flag, SGEs or a length that the QP does not have, or a state in
    ///   which nothing can be posted.
    /// - `ENOMEM`: the queue is full.
    /// - `EFAULT`: inline data cannot be read.
    /// - `EAGAIN`: peers have refused access to their memory so often that the user's accesses are
    ///   delayed.
    ///
    /// Any context; process context for a program's QP.
    ///
    /// # Safety
    ///
    /// `send` is valid by the interface.
    unsafe fn post_send(&self, send: &kfabric_verbs_send) -> Result {
        let is_inline = send.flags & raw::KFABRIC_VERBS_SEND_INLINE != 0;
        // Inline data takes no SGE of the queue, so a QP without SGEs may post it as one.
        let max_sge = self.send.max_sge().max(is_inline.into());
        if send.flags & !FLAGS != 0 || send.num_sge > max_sge {
            return Err(EINVAL);
        }
        // SAFETY: By the requirement above. The caller does not change them during the call.
        let (sges, op) = unsafe { (sges_of(send.sges, send.num_sge), self.op(send)?) };
        let add = |sum: u64, sge: &Sge| sum.saturating_add(sge.length.into());
        let len = u32::try_from(sges.iter().fold(0, add)).map_err(|_| EINVAL)?;
        let has_access = match op {
            SendOp::Rc(op) => {
                let one = sges.len() == 1 && len == ATOMIC_LEN;
                if len > MAX_LEN || op.is_rd_atomic() && is_inline || op.is_atomic() && !one {
                    return Err(EINVAL);
                }
                !matches!(op, Op::Send(_))
            }
            SendOp::Ud { .. } | SendOp::Register { .. } | SendOp::Invalidate { .. } => false,
        };
        if has_access && self.is_of_program() && self.budget().is_delayed(self.number().into()) {
            // This does not sleep: the caller holds locks that the removal of the device waits for.
            self.budget().enter_access(self.number().into(), false)?;
        }
        let request = WorkRequest {
            wr_id: send.wr_id,
            op,
            len,
            fence: send.flags & raw::KFABRIC_VERBS_SEND_FENCE != 0,
            solicited: send.flags & raw::KFABRIC_VERBS_SEND_SOLICITED != 0,
            signaled: self.signal_all() || send.flags & raw::KFABRIC_VERBS_SEND_SIGNALED != 0,
        };
        if !is_inline {
            return self.send.post(&request, sges, None);
        }
        let mut inline = Inline::new();
        // SAFETY: By the requirement above.
        unsafe { self.read_inline(&mut inline, sges, len)? };
        self.send.post(&request, &[], Some(&inline))
    }

    /// The end of a list of posts. A program's work requests are issued in its task. Any context;
    /// process context for a program's QP.
    fn post_end(&self) {
        if self.is_of_program() {
            self.progress(By::Task);
        } else {
            self.wake();
        }
    }

    /// Posts a receive. Fails with `EINVAL` for more SGEs than the QP has, with an SRQ, or in
    /// RESET; `ENOMEM` if the queue is full. Any context.
    fn post_recv(&self, wr_id: u64, sges: &[Sge]) -> Result {
        let state = self.send.state();
        if self.srq().is_some() || state == State::Reset {
            return Err(EINVAL);
        }
        self.recv.post(wr_id, sges)?;
        // The state is read again, because a flush may have ended before the post.
        if self.send.state() == State::Error {
            // The run flushes it.
            self.wake();
        }
        Ok(())
    }
}

declared! {
    kfabric_verbs_qp_post_send: fn(*mut kfabric_verbs_qp, *const kfabric_verbs_send) -> c_int;
    kfabric_verbs_qp_post_end: fn(*mut kfabric_verbs_qp);
    kfabric_verbs_qp_post_recv:
        fn(*mut kfabric_verbs_qp, u64, *const kfabric_verbs_sge, u32) -> c_int;
}

/// Posts a work request, which [`kfabric_verbs_qp_post_end`] issues. Fails as [`Qp::post_send`].
///
/// # Safety
///
/// The arguments are valid by the interface.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_qp_post_send(
    qp: *mut kfabric_verbs_qp,
    send: *const kfabric_verbs_send,
) -> c_int {
    // SAFETY: By the requirement above.
    code(unsafe { Qp::borrow(qp).post_send(&*send) })
}

/// Ends a list of posts, in the context of the posts.
///
/// # Safety
///
/// The handle is valid by the interface.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_qp_post_end(qp: *mut kfabric_verbs_qp) {
    // SAFETY: By the requirement above.
    unsafe { Qp::borrow(qp) }.post_end();
}

/// Posts a receive. Fails as [`Qp::post_recv`]. Any context.
///
/// # Safety
///
/// The arguments are valid by the interface.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_qp_post_recv(
    qp: *mut kfabric_verbs_qp,
    wr_id: u64,
    sges: *const kfabric_verbs_sge,
    num_sge: u32,
) -> c_int {
    // SAFETY: By the requirement above. The caller does not change the SGEs during the call.
    let (qp, sges) = unsafe { (Qp::borrow(qp), sges_of(sges, num_sge)) };
    code(qp.post_recv(wr_id, sges))
}
