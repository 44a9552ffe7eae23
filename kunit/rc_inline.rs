// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_rc_inline`: which packets within a host the sender's task processes, and which
//! the worker of the receiving QP.

use super::worker;
use crate::{
    kunit::helpers::{
        a_while,
        count_if,
        eventually,
        user,
        Count,
        LONG, //
    },
    mem::Budget,
    net::{
        kunit_rc_pair::{
            default_attr,
            plain,
            End,
            Pair,
            SEND, //
        },
        kunit_wire_pair::{
            buffer,
            ONE,
            TWO, //
        },
        Stat, //
    },
    shim::{
        inline_work::{
            self,
            InlineList, //
        },
        reclaim::OwnerKind,
        sched::now_ns,
        work, //
    }, //
};
use kernel::{
    prelude::*,
    sync::atomic::Relaxed, //
};

/// Sends 100 messages, each after the one before has completed.
fn send_one_by_one(from: &End) -> Result {
    let payload = buffer(8)?;
    for round in 0..100 {
        from.qp
            .queue(&plain(SEND), &[], &mut payload.clone(), round)?;
        from.qp.push();
        ensure!(eventually(|| from.peer.ended() as u64 == round + 1));
    }
    Ok(())
}

#[kunit_tests(kfabric_rc_inline)]
mod tests {
    use super::*;

    #[test]
    fn packets_to_another_users_qp_are_processed_by_its_worker() -> Result {
        let pair = Pair::of(ONE, TWO, &default_attr(), &Budget::of(user(34), None)?)?;
        let (a, b) = (&pair.a, &pair.b);
        send_one_by_one(a)?;
        ensure_eq!(b.peer.received(), 100);
        ensure!(b.stat(Stat::RxPackets) >= 100);
        // The worker of this QP runs for its user, and does not process packets for the first
        // user's QP either.
        ensure_eq!((a.stat(Stat::RxInline), b.stat(Stat::RxInline)), (0, 0));
        Ok(())
    }

    /// The run of a program's QP may wait for a lock of the program, whose holder waits for I/O. A
    /// kernel consumer that frees memory does not wait for that.
    #[test]
    fn programs_and_kernel_consumers_share_no_run_and_no_workqueue() -> Result {
        let consumer = Budget::current(OwnerKind::Consumer)?;
        let pair = Pair::of(ONE, TWO, &default_attr(), &consumer)?;
        let (a, b) = (&pair.a, &pair.b);
        let [ours, theirs] = [a, b].map(|end| core::ptr::from_ref(end.qp.queue_of_worker()));
        send_one_by_one(a)?;
        ensure_eq!(b.peer.received(), 100);
        // The user, the user namespace and the memory cgroup are the same.
        ensure_eq!((a.stat(Stat::RxInline), b.stat(Stat::RxInline)), (0, 0));
        ensure!(core::ptr::eq(ours, work::packet_queue(OwnerKind::Program)));
        ensure!(core::ptr::eq(
            theirs,
            work::packet_queue(OwnerKind::Consumer)
        ));
        ensure!(!core::ptr::eq(ours, theirs));
        Ok(())
    }

    #[test]
    fn packets_within_kernel_consumers_are_processed_by_the_sender() -> Result {
        let consumer = Budget::current(OwnerKind::Consumer)?;
        let pair = Pair::of_owners(ONE, TWO, &default_attr(), [&consumer; 2])?;
        let (a, b) = (&pair.a, &pair.b);
        send_one_by_one(a)?;
        ensure!(cfg!(CONFIG_PREEMPT_RT) || b.stat(Stat::RxInline) > 50);
        Ok(())
    }

    /// A task that has accepted work is not scheduled for a while: this task, which waits.
    #[test]
    fn work_that_a_task_does_not_begin_is_done_by_the_worker() -> Result {
        let pair = Pair::default()?;
        let (a, b) = (&pair.a, &pair.b);
        let payload = buffer(8)?;
        let mut accepted = 0;
        for round in 0..20 {
            let inline = InlineList::of_task(OwnerKind::Program);
            a.qp.queue(&plain(SEND), &[], &mut payload.clone(), round)?;
            worker::send(&a.qp, &mut a.qp.kind.sending.lock(), Some(&inline));
            accepted += u32::from(inline.has_work());
            let begin = now_ns();
            ensure!(eventually(|| u64::from(b.peer.received()) == round + 1));
            // Without waiting for a retransmission, which would not help.
            ensure!(now_ns() - begin < LONG / 2);
            ensure!(eventually(|| a.peer.ended() as u64 == round + 1));
            // There is no work left to run.
            inline.run();
        }
        ensure!(cfg!(CONFIG_PREEMPT_RT) || accepted > 10);
        // On a slow machine the worker of the other end sends some packets again, and runs this QP.
        ensure!(b.stat(Stat::RxInline) <= u64::from(accepted) / 2);
        Ok(())
    }

    /// The task that runs the QP may not be scheduled for a while. The workers of other QPs run in
    /// the meantime, however many such tasks there are.
    #[test]
    fn a_worker_does_not_wait_for_a_task() -> Result {
        let pair = Pair::default()?;
        let (a, b) = (&pair.a, &pair.b);
        let payload = buffer(8)?;
        let flushed = Count::new()?;
        let running = b.qp.running.lock();
        a.post(SEND, &payload)?;
        let flusher = {
            let qp = b.qp.clone();
            count_if(&flushed, move || {
                work::flush(&qp.work);
                true
            })?
        };
        let worker_is_free = eventually(|| flushed.get() == 1);
        let received = b.peer.received();
        drop(running);
        // A task does this after a run.
        if b.qp.missed() {
            b.qp.wake();
        }
        drop(flusher);
        ensure!(worker_is_free);
        ensure_eq!(received, 0);
        ensure!(eventually(|| a.peer.ended() == 1));
        Ok(())
    }

    /// The task may not be scheduled between the end of its run and its look for what was left to
    /// it.
    #[test]
    fn a_worker_tries_again_what_it_left_to_a_task() -> Result {
        let pair = Pair::default()?;
        let (a, b) = (&pair.a, &pair.b);
        let payload = buffer(8)?;
        let running = b.qp.running.lock();
        a.post(SEND, &payload)?;
        ensure!(eventually(|| b.qp.rerun.load(Relaxed)));
        ensure_eq!(b.peer.received(), 0);
        drop(running);
        let begin = now_ns();
        ensure!(eventually(|| b.peer.received() == 1));
        // Without waiting until the packet is sent again, which would not help.
        ensure!(now_ns() - begin < LONG / 2);
        ensure!(eventually(|| a.peer.ended() == 1));
        Ok(())
    }

    /// A task that accepted a packet before finds the QP running after its worker has.
    #[test]
    fn a_task_withdraws_no_offer_of_a_worker() -> Result {
        let pair = Pair::default()?;
        let (a, b) = (&pair.a, &pair.b);
        let payload = buffer(8)?;
        let running = b.qp.running.lock();
        a.post(SEND, &payload)?;
        ensure!(eventually(|| b.qp.rerun.load(Relaxed)));
        a_while();
        inline_work::InlineWork::run(b.qp.clone(), &InlineList::of_task(OwnerKind::Program));
        drop(running);
        ensure!(eventually(|| b.peer.received() == 1));
        ensure!(eventually(|| a.peer.ended() == 1));
        Ok(())
    }

    /// A user whose tasks are not scheduled leaves workers to the QPs of others.
    #[test]
    fn workers_of_one_user_are_limited() -> Result {
        let budget = Budget::of(user(36), None)?;
        let pair = Pair::of(ONE, TWO, &default_attr(), &budget)?;
        let (a, b) = (&pair.a, &pair.b);
        let mut workers = KVec::with_capacity(1024, GFP_KERNEL)?;
        // Workers of the pair may still run.
        let fill = |workers: &mut KVec<_>| {
            eventually(|| {
                while let Some(worker) = budget.enter_worker() {
                    if workers.push_within_capacity(worker).is_err() {
                        break;
                    }
                }
                workers.len() >= 64
            })
        };
        ensure!(fill(&mut workers));
        ensure!(budget.clone().enter_worker().is_none());
        ensure!(Budget::of(user(37), None)?.enter_worker().is_some());
        ensure!(Budget::of_consumer(user(36))?.enter_worker().is_some());
        a.post(SEND, &buffer(8)?)?;
        ensure!(eventually(|| b.qp.place.is_waiting()));
        a_while();
        ensure_eq!(b.peer.received(), 0);
        // The QP waits without a timer.
        ensure!(!b.qp.deadline.has_offer());
        ensure!(b.qp.place.is_waiting());
        // A task that runs the QP has not done what the worker was woken for.
        inline_work::InlineWork::run(b.qp.clone(), &InlineList::of_task(OwnerKind::Program));
        ensure_eq!(b.peer.received(), 1);
        ensure!(b.qp.place.is_waiting());
        // One that ends is enough.
        drop(workers.pop());
        ensure!(eventually(|| a.peer.ended() == 1));
        ensure!(!b.qp.place.is_waiting());
        // A QP that is closed waits no more.
        ensure!(fill(&mut workers));
        a.post(SEND, &buffer(8)?)?;
        ensure!(eventually(|| b.qp.place.is_waiting()));
        b.qp.close();
        ensure!(!b.qp.place.is_waiting());
        b.qp.wake();
        work::flush(&b.qp.work);
        ensure!(!b.qp.place.is_waiting());
        Ok(())
    }
}
