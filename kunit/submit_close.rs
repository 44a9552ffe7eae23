// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_submit_close`: started operations of endpoints that close.

use super::{
    attr::EpAttr,
    post::Poster,
    submit::Progress,
    *, //
};
use crate::{
    kunit::{
        fixture::ep_attr,
        helpers::{
            allow_kill,
            count_if,
            thread,
            Count, //
        }, //
    },
    provider::{
        object::{
            close,
            close_killable,
            force_close, //
        },
        sep::{
            ContextCounts,
            ScalableEp, //
        }, //
    },
    shim::work, //
};
use kfi_core::{
    flags::Caps,
    info::TxAttr, //
};

/// A reference to an endpoint for a context that may not sleep.
#[pin_data]
struct Last {
    #[pin]
    endpoint: SpinLockIrq<Option<Arc<Endpoint>>>,
}

impl Last {
    fn put(&self) {
        let endpoint = self.endpoint.lock().take();
        if let Some(endpoint) = endpoint {
            endpoint.put();
        }
    }
}

/// Admits a SEND without bytes that has to wait at its peer.
fn admit_long_empty(end: &End) -> Result<Admitted> {
    let mut op = end.send(Source::Mem(MemRef::empty()), 1);
    if let Op::Send(send) = &mut op {
        send.flags.own = OpFlags::DELIVERY_COMPLETE;
    }
    end.endpoint.admit(&mut op, Context::MaySleep)
}

/// A pair whose first end is a transmit context of a scalable endpoint.
fn pair_with_context() -> Result<(Pair, Arc<ScalableEp>)> {
    let mut pair = Pair::new(EpType::Rdm)?;
    let attr = ep_attr(EpType::Rdm, Caps::MSG | Caps::SEND | Caps::RECV);
    let attr = EpAttr { tx_size: 4, ..attr };
    let counts = ContextCounts::new(1, 0)?;
    let sep = ScalableEp::open(&pair.domain.domain, attr, counts, ident(50, 0)?)?;
    sep.bind_av(&pair.av)?;
    let (context, _) = sep.tx_context(0, &TxAttr::default(), ident(60, 0)?)?;
    close(&*pair.a.endpoint)?;
    pair.a.endpoint = context;
    pair.a.endpoint.bind_cq(&pair.a.cq, CqBind::TRANSMIT)?;
    pair.a.endpoint.enable()?;
    Ok((pair, sep))
}

#[kunit_tests(kfabric_submit_close)]
mod tests {
    use super::*;

    #[test]
    fn started_operations_of_a_closed_endpoint_are_dropped() -> Result {
        let pair = Pair::sized(EpType::Rdm, narrow(1), Sizes::DEFAULT)?;
        for context in 0..20 {
            admit_long(&pair.a, context)?.start();
        }
        let late = admit_long(&pair.a, 99)?;
        let in_irq = Batch::new(&pair.a, 3)?;
        ensure!(eventually(|| pair.a.endpoint.tx.waiting() == 1));
        close(&*pair.a.endpoint)?;
        ensure!(!pair.a.endpoint.submission.has_started(Side::Transmit));
        late.start();
        in_hard_irq(move || in_irq.start())?;
        ensure!(eventually(|| !pair
            .a
            .endpoint
            .submission
            .has_started(Side::Transmit)));
        ensure!(pair.a.poll().is_none());
        Ok(())
    }

    /// A close waits while a task posts started operations, and succeeds after they have completed.
    #[test]
    fn the_close_of_a_transmit_context_waits_for_a_post() -> Result {
        let (pair, sep) = pair_with_context()?;
        let tx = &pair.a;
        // This run has the queue. It posts the operation only after the close has begun to wait.
        let run = tx.endpoint.submission.begin_killable(Side::Transmit)?;
        admit_byte(tx, 1, Context::MaySleep)?.start();
        let closed = Count::new()?;
        let (endpoint, result) = (tx.endpoint.clone(), closed.clone());
        let closer = thread(move || match close(&*endpoint) {
            Ok(()) => result.add(1),
            Err(_) => result.add(2),
        })?;
        a_while();
        let early = closed.get();
        // The run ends before any check: a check that fails would leave the close waiting for it.
        let progress = Poster::new(&tx.endpoint).post_started(run, 1);
        closer.join();
        ensure_eq!((early, closed.get()), (0, 1));
        ensure!(progress == Progress::Empty);
        ensure_eq!(tx.complete(), Ok(()));
        close(&*sep)
    }

    /// A task that is killed while its close waits leaves the context as it was.
    #[test]
    fn an_interrupted_close_of_a_transmit_context_changes_nothing() -> Result {
        let (pair, sep) = pair_with_context()?;
        let tx = &pair.a;
        let run = tx.endpoint.submission.begin_killable(Side::Transmit)?;
        admit_byte(tx, 1, Context::MaySleep)?.start();
        let interrupted = Count::new()?;
        let closer = {
            let endpoint = tx.endpoint.clone();
            count_if(&interrupted, move || {
                allow_kill();
                close_killable(&*endpoint) == Err(EINTR)
            })?
        };
        a_while();
        let early = interrupted.get();
        closer.kill();
        closer.join();
        let progress = Poster::new(&tx.endpoint).post_started(run, 1);
        ensure_eq!((early, interrupted.get()), (0, 1));
        ensure!(progress == Progress::Empty);
        ensure_eq!(tx.complete(), Ok(()));
        admit_byte(tx, 2, Context::MaySleep)?.start();
        ensure_eq!(tx.complete(), Ok(()));
        close(&*tx.endpoint)?;
        close(&*sep)
    }

    #[test]
    fn the_last_reference_to_an_endpoint_is_dropped_by_the_worker() -> Result {
        let budget = Budget::of(user(92), Some(64 << 20))?;
        let pair = Pair::of(&budget, EpType::Rdm, Sizes::DEFAULT)?;
        let endpoint = pair.a.endpoint.clone();
        let op = admit_byte(&pair.a, 1, Context::MaySleep)?;
        drop(pair);
        // The operation and this test have the only references.
        op.start();
        ensure!(eventually(|| !endpoint
            .submission
            .has_started(Side::Transmit)));
        work::flush(&endpoint.work);
        ensure!(budget.charged(Part::Peers).0 > 0);
        let last = Arc::pin_init(
            pin_init!(Last {
                endpoint <- new_spinlock_irq!(Some(endpoint)),
            }),
            GFP_KERNEL,
        )?;
        in_hard_irq(move || last.put())?;
        ensure!(eventually(|| budget.charged(Part::Peers).0 == 0));
        Ok(())
    }

    #[test]
    fn operations_of_a_closed_endpoint_are_dropped_without_a_worker_of_the_user() -> Result {
        let budget = Budget::of(user(94), Some(64 << 20))?;
        let mut owner = ident(30, 0)?;
        owner.budget = budget.clone();
        let sizes = Sizes::DEFAULT;
        let pair = Pair::owned(EpType::Rdm, sizes, sizes, [owner, ident(40, 0)?])?;
        let mut workers = KVec::new();
        while let Some(worker) = budget.enter_worker() {
            workers.push(worker, GFP_KERNEL)?;
        }
        let waits = admit_byte(&pair.a, 1, Context::MaySleep)?;
        let late = admit_byte(&pair.a, 2, Context::MaySleep)?;
        waits.start();
        a_while();
        ensure!(pair.a.endpoint.submission.has_started(Side::Transmit));
        force_close(&*pair.a.endpoint);
        drop(pair);
        late.start();
        ensure!(eventually(|| budget.charged(Part::Peers).0 == 0));
        Ok(())
    }

    #[test]
    fn a_close_during_the_work_of_the_worker_ends_all_operations() -> Result {
        for _ in 0..20 {
            let pair = Pair::sized(EpType::Rdm, narrow(256), Sizes::DEFAULT)?;
            for context in 0..100 {
                admit_long(&pair.a, context)?.start();
            }
            close(&*pair.a.endpoint)?;
            // The CQ is not in use any more, and gets no entry.
            while pair.a.poll().is_some() {}
            close(&*pair.a.cq)?;
            ensure_eq!(pair.a.endpoint.tx.waiting(), 0);
        }
        Ok(())
    }

    #[test]
    fn a_close_by_force_during_the_work_of_the_worker_frees_all() -> Result {
        for _ in 0..20 {
            let budget = Budget::of(user(93), Some(64 << 20))?;
            let pair = Pair::of(&budget, EpType::Rdm, narrow(256))?;
            for context in 0..100 {
                admit_long(&pair.a, context)?.start();
            }
            drop(pair);
            ensure!(eventually(|| budget.charged(Part::Peers).0 == 0));
        }
        Ok(())
    }

    #[test]
    fn a_close_by_force_leaves_the_teardown_to_a_task_that_posts() -> Result {
        let pair = Pair::new(EpType::Rdm)?;
        let run = pair.a.endpoint.submission.begin(Side::Transmit);
        ensure!(run.is_some());
        // A second task does not take operations meanwhile.
        ensure!(pair.a.endpoint.submission.begin(Side::Transmit).is_none());
        let send = pair.a.send(Source::Mem(MemRef::buffer(LONG)?), 1);
        Poster::new(&pair.a.endpoint).post(send)?;
        force_close(&*pair.a.endpoint);
        ensure_eq!(pair.a.endpoint.tx.waiting(), 1);
        let must_teardown = run.is_some_and(|run| run.end(Progress::Empty, false));
        ensure!(must_teardown);
        pair.a.endpoint.teardown_left();
        ensure_eq!(pair.a.endpoint.tx.waiting(), 0);
        Ok(())
    }

    /// The timer of a blocked queue would keep the endpoint.
    #[test]
    fn an_attempt_in_vain_does_not_keep_a_closed_endpoint() -> Result {
        let pair = Pair::new(EpType::Rdm)?;
        let endpoint = &pair.a.endpoint;
        let run = endpoint.submission.begin_killable(Side::Transmit)?;
        admit_byte(&pair.a, 1, Context::MaySleep)?.start();
        force_close(&**endpoint);
        ensure!(run.end(Progress::Blocked, false));
        ensure!(!endpoint.submission.is_armed());
        endpoint.teardown_left();
        Ok(())
    }

    #[test]
    fn many_started_operations_are_posted_and_freed() -> Result {
        let pair = Pair::sized(EpType::Rdm, narrow(1), Sizes::DEFAULT)?;
        start_long(&pair, 1, 1)?;
        for _ in 0..20_000 {
            admit_long_empty(&pair.a)?.start();
        }
        // They wait behind one that has no room.
        a_while();
        close(&*pair.a.endpoint)?;
        ensure!(!pair.a.endpoint.submission.has_started(Side::Transmit));
        Ok(())
    }
}
