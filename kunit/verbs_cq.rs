// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_verbs_cq`: the completion queues of verbs, with entries that the suite makes.

use super::{
    cq::{
        Arm,
        Entry,
        Opcode,
        Overrun,
        MAX_CQE, //
    },
    kunit_fixture::{
        entry,
        is_empty,
        polls,
        push,
        qp,
        Case, //
    },
    raw, //
};
use crate::kunit::helpers::{
    a_while,
    eventually,
    thread,
    Count, //
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Acquire,
        Release, //
    },
    types::ForeignOwnable, //
};
use kfi_roce::rc::Status;

#[kunit_tests(kfabric_verbs_cq)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_polled_in_the_order_of_their_pushes() -> Result {
        let case = Case::new(60)?;
        let cq = case.cq(3)?;
        ensure!(is_empty(&cq));
        let mut next = 0;
        for round in 0..20_u64 {
            let count = round % 3 + 1;
            push(&cq, next, count)?;
            // In two calls, if there are two: the second is not full.
            ensure!(polls(&cq, next, 1));
            let rest = count as u32 - 1;
            ensure_eq!(cq.poll(7, |_| {}), rest);
            ensure!(is_empty(&cq));
            next += count;
        }
        push(&cq, 5, 3)?;
        ensure!(polls(&cq, 5, 2) && polls(&cq, 7, 1));
        cq.notify();
        ensure_eq!(case.calls.numbers(), (0, 0, 0));
        Ok(())
    }

    #[test]
    fn entries_are_passed_whole() -> Result {
        let case = Case::new(60)?;
        let cq = case.cq(1)?;
        let pushed = Entry {
            wr_id: 1 << 63,
            qp: qp(9),
            qpn: 2,
            status: Status::RemoteAccess,
            opcode: Opcode::RecvRdmaWithImm,
            byte_len: 3,
            imm_or_key: 4,
            src_qp: 5,
            flags: 6,
            vendor_err: 7,
            network_hdr_type: 8,
        };
        ensure_eq!(cq.push(&pushed, false), Ok(()));
        let mut found = None;
        cq.poll(1, |entry| found = Some(entry.to_wc()));
        let wc = found.ok_or(ENODATA)?;
        ensure_eq!((wc.wr_id, wc.qp, wc.qpn), (1 << 63, qp(9).address(), 2));
        ensure_eq!((wc.status, wc.opcode), (10, 129));
        ensure_eq!((wc.byte_len, wc.imm_or_key, wc.src_qp), (3, 4, 5));
        ensure_eq!((wc.flags, wc.vendor_err, wc.network_hdr_type), (6, 7, 8));
        Ok(())
    }

    #[test]
    fn a_full_cq_loses_entries_and_reports_the_first() -> Result {
        let case = Case::new(61)?;
        let cq = case.cq(4)?;
        push(&cq, 0, 4)?;
        ensure_eq!(cq.push(&entry(4, 0), false), Err(Overrun));
        ensure_eq!(case.calls.numbers(), (0, 0, 0));
        cq.notify();
        ensure_eq!(case.calls.numbers(), (0, 1, 0));
        ensure_eq!(cq.push(&entry(5, 0), false), Err(Overrun));
        cq.notify();
        ensure_eq!(case.calls.numbers(), (0, 1, 0));
        // A caller that waits for the lost entry does not wait for ever.
        cq.arm(Arm::Next);
        ensure_eq!(cq.push(&entry(6, 0), false), Err(Overrun));
        cq.notify();
        ensure_eq!(case.calls.numbers(), (1, 1, 0));
        ensure!(polls(&cq, 0, 1));
        push(&cq, 4, 1)?;
        ensure_eq!(cq.push(&entry(7, 0), false), Err(Overrun));
        ensure!(polls(&cq, 1, 4) && is_empty(&cq));
        cq.notify();
        ensure_eq!(case.calls.numbers(), (1, 1, 0));
        Ok(())
    }

    #[test]
    fn an_armed_cq_calls_its_handler_once() -> Result {
        let case = Case::new(62)?;
        let cq = case.cq(100)?;
        let comps = |push: &dyn Fn()| {
            let before = case.calls.numbers().0;
            push();
            cq.notify();
            cq.notify();
            case.calls.numbers().0 - before
        };
        let plain = || {
            let _ = cq.push(&entry(0, 0), false);
        };
        let solicited = || {
            let _ = cq.push(&entry(0, 0), true);
        };
        ensure_eq!(comps(&plain), 0);
        // The entry that is there does not count.
        ensure!(cq.arm(Arm::Next));
        ensure_eq!(comps(&|| {}), 0);
        ensure_eq!(comps(&|| (plain(), plain()).0), 1);
        ensure_eq!(comps(&plain), 0);
        ensure!(cq.poll(100, |_| {}) == 4 && !cq.arm(Arm::Not));
        ensure_eq!(comps(&solicited), 0);

        cq.arm(Arm::Solicited);
        ensure_eq!(comps(&plain), 0);
        ensure_eq!(comps(&|| (solicited(), solicited()).0), 1);
        ensure_eq!(comps(&solicited), 0);
        // The later call does not take back the earlier one.
        cq.arm(Arm::Next);
        cq.arm(Arm::Solicited);
        cq.arm(Arm::Not);
        ensure_eq!(comps(&plain), 1);
        cq.arm(Arm::Solicited);
        cq.arm(Arm::Next);
        ensure_eq!(comps(&plain), 1);
        Ok(())
    }

    #[test]
    fn an_entry_in_error_is_like_a_solicited_one() -> Result {
        let case = Case::new(62)?;
        let cq = case.cq(32)?;
        let (mut errors, mut calls) = (0, 0);
        for status in [
            Status::Success,
            Status::LocalLength,
            Status::LocalOperation,
            Status::LocalProtection,
            Status::Flushed,
            Status::BadResponse,
            Status::LocalAccess,
            Status::RemoteInvalidRequest,
            Status::RemoteAccess,
            Status::RemoteOperation,
            Status::RetryExceeded,
            Status::RnrRetryExceeded,
        ] {
            cq.arm(Arm::Solicited);
            let entry = Entry {
                status,
                ..Entry::EMPTY
            };
            ensure_eq!(cq.push(&entry, false), Ok(()));
            cq.notify();
            errors += u32::from(status != Status::Success);
            calls = case.calls.numbers().0;
            ensure_eq!(calls, errors);
        }
        ensure_eq!(calls, 11);
        Ok(())
    }

    #[test]
    fn the_functions_of_c_arm_and_poll() -> Result {
        let case = Case::new(63)?;
        let cq = case.cq(20)?;
        let handle: *mut raw::kfabric_verbs_cq = cq.clone().into_foreign().cast();
        // SAFETY: `handle` is valid until the end of the case.
        let arm = |flags| unsafe { raw::kfabric_verbs_cq_arm(handle, flags) };
        ensure_eq!(arm(0), 0);
        ensure_eq!(arm(raw::KFABRIC_VERBS_ARM_REPORT_MISSED), 0);
        ensure_eq!(arm(8), EOPNOTSUPP.to_errno());
        push(&cq, 0, 20)?;
        cq.notify();
        ensure_eq!(case.calls.numbers().0, 0);
        ensure_eq!(arm(raw::KFABRIC_VERBS_ARM_NEXT), 0);
        let missed = raw::KFABRIC_VERBS_ARM_SOLICITED | raw::KFABRIC_VERBS_ARM_REPORT_MISSED;
        ensure_eq!(arm(missed), 1);
        let mut wc = [const { core::mem::MaybeUninit::<raw::kfabric_verbs_wc>::uninit() }; 16];
        // SAFETY: There is room for 16 entries.
        let mut poll =
            |count| unsafe { raw::kfabric_verbs_cq_poll(handle, count, wc.as_mut_ptr().cast()) };
        ensure_eq!((poll(16), poll(16), poll(16)), (16, 4, 0));
        push(&cq, 0, 1)?;
        cq.notify();
        ensure_eq!(case.calls.numbers().0, 1);
        let mut map = raw::kfabric_verbs_map::default();
        // SAFETY: As above; `map` is valid for writes.
        let mut buffer =
            |entries| unsafe { raw::kfabric_verbs_cq_buf_new(handle, entries, &mut map) };
        ensure_eq!(buffer(0), EINVAL.to_ptr());
        let one = buffer(1);
        // SAFETY: As above. The memory is used once.
        ensure_eq!(unsafe { raw::kfabric_verbs_cq_resize(handle, one) }, 0);
        let unused = buffer(2);
        // SAFETY: As above.
        unsafe { raw::kfabric_verbs_cq_buf_free(unused) };
        let small = buffer(1);
        // There is nothing to map.
        ensure_eq!((map.offset, map.size, map.entries), (0, 0, 0));
        ensure_eq!(cq.push(&entry(1, 0), false), Err(Overrun));
        cq.resize(2)?;
        push(&cq, 1, 1)?;
        // SAFETY: As above. The memory is not used any more, although it is too small.
        let refused = unsafe { raw::kfabric_verbs_cq_resize(handle, small) };
        ensure_eq!(refused, EINVAL.to_errno());
        ensure!(polls(&cq, 0, 2));
        // SAFETY: The handle is not used any more.
        unsafe { raw::kfabric_verbs_cq_destroy(handle) };
        Ok(())
    }

    #[test]
    fn a_handler_polls_arms_and_pushes() -> Result {
        let case = Case::new(64)?;
        let cq = case.cq(8)?;
        *case.calls.cq.lock() = Some(cq.clone());
        cq.arm(Arm::Next);
        for _ in 0..3 {
            push(&cq, 0, 2)?;
            cq.notify();
        }
        let polled = || case.calls.polled.load(Acquire);
        ensure_eq!((case.calls.numbers().0, polled()), (3, 6));
        // A push of the handler itself makes a call after this one.
        case.calls.pushes.store(4, Release);
        push(&cq, 0, 1)?;
        cq.notify();
        // The last call is a worker's.
        ensure!(eventually(|| case.calls.numbers().0 == 8));
        ensure_eq!((case.calls.numbers().0, polled()), (8, 11));
        ensure_eq!(case.calls.bad.load(Acquire), 0);
        *case.calls.cq.lock() = None;
        Ok(())
    }

    /// A handler that pushes at each call does not keep its caller: a worker goes on with the calls,
    /// until the CQ ends.
    #[test]
    fn a_handler_that_is_always_due_keeps_no_caller() -> Result {
        let case = Case::new(64)?;
        let cq = case.cq(8)?;
        *case.calls.cq.lock() = Some(cq.clone());
        case.calls.pushes.store(u32::MAX, Release);
        cq.arm(Arm::Next);
        push(&cq, 0, 1)?;
        cq.notify();
        let comps = || case.calls.numbers().0;
        ensure!(eventually(|| comps() > 100));
        // SAFETY: This reference is the handle, and is not used any more.
        unsafe { raw::kfabric_verbs_cq_destroy(cq.clone().into_foreign().cast()) };
        let before = comps();
        a_while();
        ensure_eq!(comps(), before);
        ensure_eq!(case.calls.bad.load(Acquire), 0);
        *case.calls.cq.lock() = None;
        Ok(())
    }

    /// No entry is left without a call, and no two calls of a CQ overlap.
    #[test]
    fn many_tasks_push_and_call_the_handler() -> Result {
        const PUSHES: u64 = 2000;
        let case = Case::new(64)?;
        let cq = case.cq(MAX_CQE)?;
        *case.calls.cq.lock() = Some(cq.clone());
        cq.arm(Arm::Next);
        let failed = Count::new()?;
        let mut threads = KVec::new();
        for _ in 0..4 {
            let (cq, failed) = (cq.clone(), failed.clone());
            let run = move || {
                for n in 0..PUSHES {
                    failed.add(cq.push(&entry(n, 0), false).is_err().into());
                    cq.notify();
                }
            };
            threads.push(thread(run)?, GFP_KERNEL)?;
        }
        drop(threads);
        ensure_eq!(failed.get(), 0);
        // The last calls may be a worker's.
        ensure!(eventually(|| case.calls.polled.load(Acquire) == 4 * PUSHES));
        ensure_eq!(case.calls.bad.load(Acquire), 0);
        *case.calls.cq.lock() = None;
        Ok(())
    }

    #[test]
    fn entries_of_a_qp_are_removed() -> Result {
        let case = Case::new(65)?;
        for (size, skip) in [(1, 0), (64, 0), (64, 63), (65, 1), (1000, 700), (1000, 0)] {
            let cq = case.cq(size)?;
            push(&cq, 0, skip)?;
            ensure!(polls(&cq, 0, skip as u32));
            // Nothing to remove.
            cq.forget(qp(1));
            for round in 0..3 {
                let mut kept = 0;
                for n in 0..size.into() {
                    let of = (n * 7 + round) % 3;
                    let wr_id = if of == 1 { 0 } else { kept };
                    kept += u64::from(of != 1);
                    ensure_eq!(cq.push(&entry(wr_id, of), false), Ok(()));
                }
                cq.forget(qp(1));
                cq.forget(qp(1));
                cq.forget(qp(3));
                // Their places are free.
                for n in kept..size.into() {
                    ensure_eq!(cq.push(&entry(n, 0), false), Ok(()));
                }
                ensure_eq!(cq.push(&entry(0, 0), false), Err(Overrun));
                ensure!(polls(&cq, 0, size) && is_empty(&cq));
            }
            // All of them.
            push(&cq, 0, size.into())?;
            cq.forget(qp(0));
            ensure!(!cq.arm(Arm::Not) && is_empty(&cq));
        }
        Ok(())
    }

    /// Entries of other QPs stay in order while they come and are polled, and the ring gets another
    /// size.
    #[test]
    fn entries_are_removed_while_others_come() -> Result {
        let case = Case::new(65)?;
        let (cq, done, bad) = (case.cq(5000)?, Count::new()?, Count::new()?);
        let (other, stop) = (cq.clone(), done.clone());
        let pusher = thread(move || {
            let mut n = 0;
            while stop.get() == 0 {
                let of = u64::from(n % 4 == 0);
                // A lost entry has its number again.
                n += u64::from(other.push(&entry(n, of), false).is_ok());
            }
        })?;
        let (other, stop, wrong) = (cq.clone(), done.clone(), bad.clone());
        let poller = thread(move || {
            let mut next = 0;
            while stop.get() == 0 {
                other.poll(7, |entry| {
                    // Every fourth one may be missing, and no other.
                    if entry.wr_id == next + 1 && next % 4 == 0 {
                        next += 1;
                    }
                    wrong.add((entry.wr_id != next).into());
                    next = entry.wr_id + 1;
                });
            }
        })?;
        for round in 0..300 {
            cq.forget(qp(1));
            let result = cq.resize(4000 + round);
            bad.add((!matches!(result, Ok(()) | Err(EINVAL))).into());
        }
        done.add(1);
        drop((pusher, poller));
        ensure_eq!(bad.get(), 0);
        Ok(())
    }

    #[test]
    fn a_cq_gets_another_size_and_keeps_its_entries() -> Result {
        let case = Case::new(66)?;
        let cq = case.cq(128)?;
        push(&cq, 0, 100)?;
        ensure!(polls(&cq, 0, 100));
        push(&cq, 100, 128)?;
        for size in [128, 1000, 129, 128, 5000, 128] {
            cq.resize(size)?;
            ensure_eq!(cq.resize(127), Err(EINVAL));
            ensure_eq!(cq.resize(0), Err(EINVAL));
            ensure_eq!(cq.resize(MAX_CQE + 1), Err(EINVAL));
            ensure_eq!(cq.resize(u32::MAX), Err(EINVAL));
        }
        ensure_eq!(cq.push(&entry(0, 0), false), Err(Overrun));
        ensure!(polls(&cq, 100, 28));
        cq.resize(100)?;
        cq.resize(102)?;
        push(&cq, 228, 2)?;
        ensure_eq!(cq.push(&entry(0, 0), false), Err(Overrun));
        ensure!(polls(&cq, 128, 102) && is_empty(&cq));
        cq.resize(1)?;
        push(&cq, 0, 1)?;
        ensure!(polls(&cq, 0, 1));
        Ok(())
    }
}
