// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_session_worker`: the worker of a session while a task holds the lock of the
//! session's state.

use super::*;
use crate::{
    kunit::{
        fixture::{
            count_if,
            ep_attr,
            eventually,
            ident,
            Count,
            TestDomain, //
        },
        helpers::{
            take_peer_workers,
            MS, //
        }, //
    },
    provider::{
        av::Av,
        ep::teardown::TEARDOWNS,
        object::force_close, //
    }, //
};
use core::net::{
    IpAddr,
    Ipv4Addr, //
};
use kfi_core::enums::EpType;

/// The address of the peer. No endpoint answers there.
const THERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// An endpoint with a session. It is only the target of writes, so that it needs no CQ.
struct Fixture {
    endpoint: Arc<Endpoint>,
    av: Arc<Av>,
    session: Arc<Session>,
    _domain: TestDomain,
}

impl Fixture {
    fn open() -> Result<Self> {
        let domain = TestDomain::open()?;
        let av = domain.av(ident(3, 3)?)?;
        let attr = ep_attr(EpType::Rdm, Caps::RMA.union(Caps::REMOTE_WRITE));
        let endpoint = Endpoint::open(&domain.domain, attr, ident(4, 4)?)?;
        endpoint.bind_av(&av)?;
        endpoint.enable()?;
        let bound = endpoint.bound.as_ref().ok_or(EBADF)?;
        let peer = SockAddr::new(THERE, 7, 0).map_err(|_| EINVAL)?;
        let session = endpoint.session(bound, &PeerAddr::new(peer, 7))?;
        Ok(Self {
            endpoint,
            av,
            session,
            _domain: domain,
        })
    }

    /// Wakes the worker, and returns whether it ends.
    fn worker_ends(&self) -> Result<bool> {
        let ended = Count::new()?;
        self.session.wake();
        let session = self.session.clone();
        let thread = count_if(&ended, move || {
            work::flush(&session.work);
            true
        })?;
        let ends = eventually(|| ended.get() == 1);
        if !ends {
            // It waits for the lock that the caller holds.
            core::mem::forget(thread);
        }
        Ok(ends)
    }

    fn is_gone(&self) -> bool {
        self.endpoint.remote.find(&self.session.peer).is_none()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        force_close(&*self.endpoint);
        force_close(&*self.av);
    }
}

#[kunit_tests(kfabric_session_worker)]
mod tests {
    use super::*;

    /// The worker does not wait for the lock. The holder executes its step when it unlocks, and the
    /// worker does the rest.
    #[test]
    fn a_locked_session_is_left_to_the_holder() -> Result {
        let fixture = Fixture::open()?;
        let session = &fixture.session;
        let locked = session.lock();
        ensure!(fixture.worker_ends()?);
        ensure!(matches!(*session.turn.lock(), Turn::Step(Step::Decide)));
        session.leave();
        ensure!(fixture.worker_ends()?);
        ensure!(!locked.has_left && !locked.gone);
        drop(locked);
        // The holder alone has executed that.
        ensure!(session.lock().has_left);
        ensure!(eventually(|| fixture.is_gone()));
        ensure!(eventually(|| matches!(*session.turn.lock(), Turn::Idle)));
        Ok(())
    }

    /// A wake-up between the decision of a holder, which leaves nothing to do, and the worker's
    /// next run queues no item. It is not lost.
    #[test]
    fn a_wake_up_after_the_decision_of_a_holder_is_handled() -> Result {
        let fixture = Fixture::open()?;
        let session = &fixture.session;
        work::flush(&session.work);
        // As if the item was queued by a holder when `leave` was called.
        *session.turn.lock() = Turn::Next(Next::End);
        session.is_leaving.store(true, Release);
        session.woken.xchg(true, Full);
        session.enqueue();
        ensure!(eventually(|| fixture.is_gone()));
        Ok(())
    }

    /// A close by force does not wait for the holder of the lock. The endpoint is torn down when
    /// the lock has been released.
    #[test]
    fn a_close_by_force_waits_for_no_holder() -> Result {
        let fixture = Fixture::open()?;
        let locked = fixture.session.lock();
        let begin = now_ns();
        force_close(&*fixture.endpoint);
        ensure!(now_ns() - begin < 10_000 * MS);
        ensure!(!fixture.is_gone());
        ensure_eq!(TEARDOWNS.load(Acquire), 1);
        drop(locked);
        ensure!(eventually(|| TEARDOWNS.load(Acquire) == 0));
        ensure!(fixture.is_gone());
        Ok(())
    }

    /// A session gets no worker while all workers for peers of its user run.
    #[test]
    fn a_session_waits_for_a_worker_of_the_user() -> Result {
        let fixture = Fixture::open()?;
        let session = &fixture.session;
        let ident = &fixture.endpoint.ident;
        work::flush(&session.work);
        let workers = take_peer_workers(&ident.budget, &ident.owner)?;
        session.leave();
        ensure!(fixture.worker_ends()?);
        ensure!(!fixture.is_gone());
        drop(workers);
        ensure!(eventually(|| fixture.is_gone()));
        Ok(())
    }

    /// Tasks that always hold the lock, one after the other, do not keep the worker from its work.
    #[test]
    fn a_busy_session_ends() -> Result {
        let fixture = Fixture::open()?;
        let done = Count::new()?;
        let mut tasks = KVec::new();
        for _ in 0..4 {
            let session = fixture.session.clone();
            let task = count_if(&done, move || {
                eventually(|| {
                    let locked = session.lock();
                    locked.gone
                })
            })?;
            tasks.push(task, GFP_KERNEL)?;
        }
        fixture.session.leave();
        ensure!(eventually(|| done.get() == 4));
        drop(tasks);
        ensure!(eventually(|| fixture.is_gone()));
        Ok(())
    }
}
