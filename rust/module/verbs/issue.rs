// SPDX-License-Identifier: GPL-2.0

//! Issuing: work requests go from the send queue to the QP of `net`, and leave the queue when they
//! are done.
//!
//! A program's post issues in the posting task. A kernel caller may post where it must not sleep,
//! so its post wakes the QP, and the run of the QP issues. Both do the same ([`Qp::progress`]):
//! they issue what waits, then reap what is done.
//!
//! Memory is registered in the order of the posts, without waiting for what was posted before. An
//! invalidation waits until it is the head of the queue, because work requests before it may use
//! the memory.
//!
//! The memory of a work request is found when it is issued, by the keys that are valid then. A work
//! request whose memory is not accessible, or which cannot be executed, fails when all before it
//! have ended; then the QP goes to ERR (a connection) or SQE (datagrams), and what follows is
//! flushed.
//!
//! Everything here runs in tasks and workers of the QP's own user, in process context, without a
//! lock other than `modifying`.

use kernel::prelude::*;

use kfi_roce::{
    mtu::PathMtu,
    rc::{
        Op,
        Status, //
    },
    state::{
        Posting,
        State, //
    }, //
};

use super::{
    cq::{
        Entry,
        Opcode, //
    },
    keys::BadKey,
    qp::{
        Qp,
        Transport, //
    },
    send::{
        Bytes,
        Done,
        Next,
        SendOp, //
    },
    sge::Parts, //
};
use crate::{
    mem::{
        MemRef,
        Source, //
    },
    net::qp::{
        rc::Request,
        ud::Destination, //
    }, //
};

/// Work requests that a task issues before it leaves the rest to a run.
const BUDGET: u32 = 256;

/// Work requests that are reaped at a time.
const BATCH: usize = 4;

/// The bytes of the largest path MTU. A longer datagram is lost on every path.
const LONGEST_DATAGRAM: u32 = PathMtu::Mtu4096.bytes();

/// The task that issues.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// A task that posts or changes the state.
    Task,
    /// A run of the QP.
    Run,
}

/// What has become of a work request.
enum Issued {
    /// The QP has it, and will report its result.
    Queued,
    /// It is done.
    Done(Status),
    /// It cannot be executed.
    Failed(Status),
    /// It waits for RTS.
    Waits,
    /// The QP is in a state in which there are no work requests: another task resets it.
    Refused,
}

impl Qp {
    /// Issues the work requests that wait, and adds the entries of those that are done to the CQ.
    /// Sleeps. The caller holds no lock but that for changes of the state (`modifying`).
    pub(super) fn progress(&self, by: By) {
        loop {
            if self.issue() {
                self.push(by);
            }
            if !self.reap() {
                return;
            }
        }
    }

    /// Sends what was issued. The stack is deep below this: the packets may be processed by a
    /// peer's QP in this task.
    fn push(&self, by: By) {
        if let Some(Transport::Rc(qp)) = self.transport() {
            match by {
                By::Task => qp.push(),
                By::Run => qp.push_only(),
            }
        }
    }

    /// Issues what waits. Returns whether the QP of `net` has got a work request.
    #[inline(never)]
    fn issue(&self) -> bool {
        let mut left = BUDGET;
        let mut first = true;
        let mut queued = false;
        while let Some(next) = self.send.next(first) {
            first = false;
            let place = next.place;
            match self.execute(next) {
                Issued::Queued => {
                    queued = true;
                    self.send.issued(place, None);
                }
                Issued::Done(status) => self.send.issued(place, Some(status)),
                Issued::Failed(status) => self.send.failed(place, status),
                // In another state by now, the work request can be issued.
                Issued::Waits if !self.send.pause_in(State::Sqd) => {}
                Issued::Waits => break,
                Issued::Refused => {
                    self.send.pause();
                    break;
                }
            }
            left -= 1;
            if left == 0 {
                self.send.pause();
                self.wake();
                break;
            }
        }
        queued
    }

    /// The memory of a work request, which reads it or, with `write`, writes to it.
    #[inline(never)]
    fn memory(&self, bytes: Bytes, write: bool) -> core::result::Result<MemRef, Status> {
        match bytes {
            Bytes::Inline(memory) => Ok(memory),
            Bytes::Sges { sges, count } => {
                let sges = sges.get(..count).unwrap_or_default();
                let parts = Parts::resolve(self.pd(), sges, write);
                let memory = parts
                    .map_err(|_| Status::LocalProtection)?
                    .into_memory()
                    .map_err(|_| Status::LocalOperation)?;
                // The lists of a region are charged; those of several SGEs are new.
                memory
                    .charge_lists(self.budget())
                    .map_err(|_| Status::LocalOperation)?;
                Ok(memory)
            }
        }
    }

    /// The outcome of an operation on a region.
    fn local(result: core::result::Result<(), BadKey>) -> Issued {
        match result {
            Ok(()) => Issued::Done(Status::Success),
            Err(BadKey) => Issued::Failed(Status::LocalOperation),
        }
    }

    #[inline(never)]
    fn execute(&self, next: Next) -> Issued {
        let Next {
            place,
            request,
            bytes,
        } = next;
        // A flushed work request does not use its memory.
        if self.send.state().post_send() == Posting::Flushed {
            return Issued::Done(Status::Flushed);
        }
        match (request.op, self.transport()) {
            (SendOp::Rc(op), Some(Transport::Rc(qp))) => {
                let mut memory = match self.memory(bytes, op.is_rd_atomic()) {
                    Ok(memory) => memory,
                    Err(status) => return Issued::Failed(status),
                };
                let request = Request {
                    op,
                    fence: request.fence,
                    // The flag has a meaning for these alone; in a READ it says that more READs
                    // follow.
                    solicited: request.solicited && op.takes_receive(),
                };
                match qp.queue(&request, &[], &mut memory, place.context()) {
                    Ok(()) => Issued::Queued,
                    // Cannot happen: the ring has no more places than the QP.
                    Err(error) if error == EAGAIN => Issued::Refused,
                    // The QP cannot have READs or atomics outstanding.
                    Err(_) => Issued::Failed(Status::LocalOperation),
                }
            }
            // In SQD a datagram waits. A UD QP of `net` would return `EAGAIN`; a GSI QP has none.
            (SendOp::Ud { .. }, Some(_)) if self.send.state() == State::Sqd => Issued::Waits,
            // It is lost on every path, so its memory (up to thousands of pieces) is not resolved.
            (SendOp::Ud { .. }, Some(Transport::Ud(_) | Transport::Gsi(_)))
                if request.len > LONGEST_DATAGRAM =>
            {
                Issued::Done(Status::Success)
            }
            (
                SendOp::Ud {
                    from,
                    to,
                    class,
                    qpn,
                    qkey,
                    imm,
                },
                Some(transport @ (Transport::Ud(_) | Transport::Gsi(_))),
            ) => {
                // QP 1 serves all users, and none of them may make it fail: neither by the address
                // of a peer nor because memory is short. The datagram is lost, and connection
                // management sends it again.
                let failed = |status| match transport {
                    Transport::Gsi(_) => Issued::Done(Status::Success),
                    _ => Issued::Failed(status),
                };
                let memory = match self.memory(bytes, false) {
                    Ok(memory) => memory,
                    Err(status) => return failed(status),
                };
                let dest = Destination {
                    qp: qpn,
                    qkey,
                    imm,
                    solicited: request.solicited,
                };
                let found = self
                    .paths()
                    .and_then(|paths| paths.path(self.link(), from, to, class));
                let path = match found {
                    Ok(path) => path,
                    // No such peer can exist.
                    Err(error) if error == EINVAL => return failed(Status::LocalOperation),
                    Err(_) => return Issued::Done(Status::Success),
                };
                let payload = Source::Mem(memory);
                let sent = match transport {
                    Transport::Gsi(gsi) => gsi.send(&path, &dest, &payload),
                    Transport::Ud(qp) => qp.send(&path, &dest, &payload),
                    Transport::Rc(_) => Err(EINVAL),
                };
                match sent {
                    Err(error) if error == EAGAIN => Issued::Waits,
                    Err(error) if error == EINVAL => Issued::Refused,
                    Err(error) if error == ECANCELED => Issued::Done(Status::Flushed),
                    // A datagram that cannot be sent counts as lost on the way.
                    _ => Issued::Done(Status::Success),
                }
            }
            (SendOp::Register { .. } | SendOp::Invalidate { .. }, Some(Transport::Rc(_)))
                if self.send.state() == State::Sqd =>
            {
                Issued::Waits
            }
            (SendOp::Register { key, base, rights }, Some(Transport::Rc(_))) => {
                Self::local(self.pd().register(key, base, rights))
            }
            (SendOp::Invalidate { key }, Some(Transport::Rc(_))) => {
                Self::local(self.pd().invalidate(key))
            }
            // Cannot happen: posts refuse such operations.
            _ => Issued::Failed(Status::LocalOperation),
        }
    }

    /// Adds the entries of work requests that are done to the CQ. Returns whether the next one can
    /// be issued now, because one that could not be has ended, or because it is the head.
    #[inline(never)]
    fn reap(&self) -> bool {
        let mut first = true;
        let mut again = false;
        let mut moved = false;
        // Other threads may post as fast as this one reaps.
        let mut left = BUDGET;
        loop {
            if left == 0 {
                self.send.stop_reaping();
                self.wake();
                break;
            }
            left -= 1;
            let mut done = [None; BATCH];
            let reaped = self.send.take_done(first, &mut done);
            first = false;
            if let Some((place, status)) = reaped.failed {
                self.note_error(status);
                self.fail();
                self.send.store(place, status);
                again = true;
                continue;
            }
            if reaped.count == 0 {
                again |= moved && self.send.is_due();
                break;
            }
            moved = true;
            for done in done.into_iter().flatten() {
                self.ended(&done);
            }
        }
        self.send_cq().notify();
        again
    }

    /// A work request has left the ring: it counts, and its entry is added if it has one.
    fn ended(&self, done: &Done) {
        let Done { request, status } = *done;
        if status == Status::RemoteAccess {
            self.refused();
        }
        self.count_send(&request, status);
        if status == Status::Success && !request.signaled {
            return;
        }
        self.note_error(status);
        let opcode = match request.op {
            SendOp::Ud { .. } => Opcode::Send,
            SendOp::Register { .. } => Opcode::RegMr,
            SendOp::Invalidate { .. } => Opcode::LocalInv,
            SendOp::Rc(op) => match op {
                Op::Send(_) => Opcode::Send,
                Op::Write { .. } => Opcode::RdmaWrite,
                Op::Read { .. } => Opcode::RdmaRead,
                Op::CompareSwap { .. } => Opcode::CompSwap,
                Op::FetchAdd { .. } => Opcode::FetchAdd,
            },
        };
        let entry = Entry {
            byte_len: request.len,
            ..self.entry(request.wr_id, status, opcode)
        };
        if self.send_cq().push(&entry, false).is_err() {
            self.fail_all();
        }
    }
}
