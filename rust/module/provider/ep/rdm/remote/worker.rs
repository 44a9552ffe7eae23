// SPDX-License-Identifier: GPL-2.0

//! The worker of a session: it handles timeouts and the peer's messages, and makes and closes
//! connections.
//!
//! # The worker does not wait for the lock of the state
//!
//! A task of the owner that is not scheduled may hold the lock of the state. So the work is divided
//! into steps that need the lock ([`Step`]) and steps that do not ([`Next`]). The worker stores a
//! step in [`Session::turn`] and tries to take the lock. If it gets the lock, it executes the step.
//! Otherwise it returns. The holder of the lock executes the step before it unlocks, and queues the
//! worker, which continues. [`LeftStep`] has the argument that no step is lost. One step is stored
//! at a time, so a holder executes at most one. A step makes no QP and closes none.
//!
//! The work items of connection management, which deliver events and requests of peers, take no
//! lock of the state. They store what they deliver and wake the worker.
//!
//! ```text
//!            .-- Step: Decide, ... --> a holder of the lock ------.
//!   worker --|                                                    |--> Next: a QP is made, ...
//!      ^     '-- the same, under the lock that it gets at once ---'        |
//!      '-------------------------------------------------------------------'
//! ```
//!
//! [`LeftStep`]: kfi_core::left_step::LeftStep

#[cfg(kfi_kunit)]
#[path = "../../../../../../kunit/session_worker.rs"]
mod kunit;

use core::ops::{
    Deref,
    DerefMut, //
};
use kernel::sync::{
    atomic::{
        Acquire,
        Full,
        Release, //
    },
    MutexGuard, //
};

use kfi_core::rdm::{
    hello::Refusal,
    session::{
        Conn,
        Manage,
        Reply, //
    },
    times::CONNECT_TIME,
    unproven::Proof,
    Cause,
    Hello, //
};

use super::{
    super::super::prelude::*,
    conn::{
        CmEvent,
        Connection, //
    },
    session::{
        Session,
        SessionConn,
        State, //
    }, //
};
use crate::{
    mem::{
        PeerPlace,
        PeerWork, //
    },
    net::cm,
    shim::{
        alarm::Alarm,
        sched::now_ns,
        work, //
    }, //
};

/// A request of the peer that waits for the worker.
pub(super) type Waiting = (KBox<cm::Request>, Hello);

/// The purpose of a connection that was made.
pub(super) enum Purpose {
    /// It is requested from the peer with this hello.
    Connect(Hello),
    /// The peer's request is accepted with this hello.
    Accept(KBox<cm::Request>, Hello),
}

/// A part of the worker's work that needs the state.
pub(super) enum Step {
    /// Handles what has happened, and decides what to do next.
    Decide,
    /// Enters a connection in the state, so that work can be queued to its QP and it can be closed.
    Enter(SessionConn, Purpose),
    /// A connection has failed.
    Failed(Conn, Cause),
    /// A connection attempt has failed; another one may succeed.
    Rejected(Conn, Refusal),
    /// Handles what the peer has sent on a connection that is closed.
    Drain(Arc<Connection>, Cause),
    /// Removes a connection that is closed.
    Leave(Conn),
}

/// What the worker does after a step, without the lock.
pub(super) enum Next {
    /// Nothing.
    End,
    Step(Step),
    Connect(Conn, Hello),
    /// Answers a request of the peer.
    Answer(KBox<cm::Request>, Reply),
    Entered(Arc<Connection>, Purpose),
    /// There was no room for a connection, which the protocol rules out.
    NotEntered(SessionConn, Purpose),
    /// Answers the peer's REP. `true`: the connection is used.
    Confirm(Arc<Connection>, bool),
    Close(Conn, Option<Arc<Connection>>, Cause),
    Drained(Arc<Connection>, Cause),
    Left(Option<SessionConn>),
    /// The session is removed from its endpoint.
    Retire(Alarm<Session>),
}

/// How far the worker has got.
pub(super) enum Turn {
    /// It has nothing to go on with.
    Idle,
    /// A step that the worker could not execute.
    Step(Step),
    /// A holder of the lock executes the step, and queues the worker then.
    Taken,
    /// A holder of the lock has executed a step.
    Next(Next),
}

/// The state of a session, locked. A step that the worker has left is executed before the unlock.
pub(super) struct Locked<'a> {
    // Fields are dropped in this order.
    state: MutexGuard<'a, State>,
    released: Released<'a>,
}

impl Deref for Locked<'_> {
    type Target = State;

    #[inline(always)]
    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Locked<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Drop for Locked<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        let session = self.released.0;
        if session.left.is_left() {
            session.execute_left(&mut self.state);
        }
    }
}

/// Wakes the worker after the unlock, if it has left a step meanwhile.
struct Released<'a>(&'a Arc<Session>);

impl Drop for Released<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // The unlock is a full barrier, which `LeftStep` requires: a locked instruction.
        if self.0.left.is_left() {
            self.0.wake();
        }
    }
}

impl PeerWork for Session {
    fn queue(self: Arc<Self>) {
        self.wake();
    }

    fn place(&self) -> &PeerPlace {
        &self.place
    }
}

/// The lock.
impl Session {
    /// Locks the state, for a task or a run of a QP. Sleeps.
    #[inline(always)]
    pub(super) fn lock(self: &Arc<Self>) -> Locked<'_> {
        Locked {
            state: self.state.lock(),
            released: Released(self),
        }
    }

    /// Locks the state if no other task holds it. Does not sleep.
    fn try_lock(self: &Arc<Self>) -> Option<Locked<'_>> {
        Some(Locked {
            state: self.state.try_lock()?,
            released: Released(self),
        })
    }

    /// Executes the step that the worker has left, and queues the worker.
    #[cold]
    fn execute_left(self: &Arc<Self>, state: &mut State) {
        if let Some(next) = self.execute(state) {
            *self.turn.lock() = Turn::Next(next);
            self.enqueue();
        }
    }
}

/// The worker.
impl Session {
    /// Has the worker handle a request of the peer. Returns the one of two requests that the peer
    /// has to repeat, because another one waits: the later one, unless it alone is proven. Sleeps.
    pub(super) fn put_request(
        self: &Arc<Self>,
        request: KBox<cm::Request>,
        hello: Hello,
    ) -> Option<KBox<cm::Request>> {
        let is_proven = |request: &cm::Request| request.proof() == cm::SourceProof::Proven;
        let left = {
            let mut slot = self.request.lock();
            if matches!(&*slot, Some((other, _)) if is_proven(other) || !is_proven(&request)) {
                Some(request)
            } else {
                slot.replace((request, hello)).map(|(other, _)| other)
            }
        };
        self.wake();
        left
    }

    /// Has the worker inform the peer that the endpoint closes, and end the session. Any context.
    pub(super) fn leave(self: &Arc<Self>) {
        self.is_leaving.store(true, Release);
        self.wake();
    }

    /// Has the worker decide what to do. The caller has stored the reason before. Any context.
    pub(super) fn wake(self: &Arc<Self>) {
        // The item may be queued already, for the rest of a decision that was made before.
        self.woken.xchg(true, Full);
        self.enqueue();
    }

    /// Queues the work item. Any context.
    fn enqueue(self: &Arc<Self>) {
        // Not queued if it is already.
        let _ = work::peer_queue(self.endpoint.ident.owner.kind()).enqueue(self.clone());
    }

    /// Called by the work item, which never runs twice at once.
    pub(super) fn run_worker(self: &Arc<Self>) {
        let ident = &self.endpoint.ident;
        let Some(_worker) = ident.budget.enter_peer_worker(&ident.owner, self.clone()) else {
            return;
        };
        let _scope = ident.owner.kind().scope();
        let turn = {
            let mut turn = self.turn.lock();
            if let Turn::Taken = *turn {
                return;
            }
            core::mem::replace(&mut *turn, Turn::Idle)
        };
        let mut step = match turn {
            Turn::Step(step) => Some(step),
            // A holder may have decided before a wake-up that has queued no item.
            Turn::Next(next) => self.go_on(next).or_else(|| self.decide_again()),
            Turn::Idle | Turn::Taken => Some(Step::Decide),
        };
        while let Some(now) = step {
            *self.turn.lock() = Turn::Step(now);
            self.left.leave();
            let Some(mut state) = self.try_lock() else {
                return;
            };
            let Some(next) = self.execute(&mut state) else {
                // Another holder has executed it, and has queued this item again.
                return;
            };
            *self.turn.lock() = Turn::Idle;
            drop(state);
            step = self.go_on(next);
            cond_resched();
        }
    }

    /// The next step after a decision that leaves nothing to do.
    fn decide_again(&self) -> Option<Step> {
        self.woken.load(Acquire).then_some(Step::Decide)
    }

    /// Executes the step that is stored. `None`: there is none. The caller holds the lock, and
    /// stores the result or goes on with it.
    fn execute(self: &Arc<Self>, state: &mut State) -> Option<Next> {
        self.left.take();
        let step = {
            let mut turn = self.turn.lock();
            match core::mem::replace(&mut *turn, Turn::Taken) {
                Turn::Step(step) => step,
                other => {
                    *turn = other;
                    return None;
                }
            }
        };
        let now = now_ns();
        let next = self.step(state, now, step);
        // No work is queued to the QP before the RTU is sent.
        if !matches!(next, Next::Confirm(_, true)) {
            self.follow(state, now);
        }
        Some(next)
    }

    fn step(self: &Arc<Self>, state: &mut State, now: u64, step: Step) -> Next {
        let core = &mut state.core;
        match step {
            Step::Decide => return self.decide(state, now),
            Step::Enter(entry, purpose) => {
                let connection = entry.connection.clone();
                return match state.enter(entry) {
                    Ok(()) => Next::Entered(connection, purpose),
                    Err(entry) => Next::NotEntered(entry, purpose),
                };
            }
            Step::Failed(conn, cause) => core.failed(conn, cause),
            Step::Rejected(conn, refusal) => core.rejected(now, conn, refusal),
            Step::Drain(connection, cause) => {
                connection.deliver_events(state, now);
                return Next::Drained(connection, cause);
            }
            Step::Leave(conn) => {
                let entry = state.leave(conn);
                state.core.closed(now, conn);
                return Next::Left(entry);
            }
        }
        Next::Step(Step::Decide)
    }

    /// Handles a request, an event or expired timeouts, or decides on an action for the
    /// connections.
    fn decide(self: &Arc<Self>, state: &mut State, now: u64) -> Next {
        // Fully ordered: what is stored after the following looks wakes the worker again.
        self.woken.xchg(false, Full);
        let is_leaving = self.is_leaving.load(Acquire) && !state.has_left;
        if is_leaving {
            state.has_left = true;
            state.core.leave(now);
        }
        let is_gone = self.endpoint.domain.link().state() == LinkState::Gone;
        if is_gone {
            state.core.fail_all(Cause::LinkGone);
        }
        if is_leaving || is_gone {
            self.follow(state, now);
        }
        let request = self.request.lock().take();
        if let Some((request, hello)) = request {
            return self.requested(state, now, request, &hello);
        }
        let next_event =
            |connection: &Arc<Connection>| Some((connection.clone(), connection.take_cm_event()?));
        let event = state.connections().find_map(next_event);
        if let Some((connection, event)) = event {
            return self.event(state, now, connection, event);
        }
        let activity = state.activity();
        let is_being_read = |number| self.is_being_read(number);
        state.core.expired(now, activity, is_being_read);
        match state.core.manage(now, self.endpoint.remote.next_epoch()) {
            Some(Manage::Connect(conn, hello)) => return Next::Connect(conn, hello),
            Some(Manage::Close(conn, cause)) => {
                let connection = state.entry(conn).map(|entry| entry.connection.clone());
                return Next::Close(conn, connection, cause);
            }
            None => {}
        }
        self.follow(state, now);
        if state.gone || !state.core.is_spare() {
            return Next::End;
        }
        state.gone = true;
        Next::Retire(core::mem::replace(&mut state.alarm, Alarm::new()))
    }

    /// Handles the peer's request for a connection.
    fn requested(
        &self,
        state: &mut State,
        now: u64,
        request: KBox<cm::Request>,
        hello: &Hello,
    ) -> Next {
        if state.gone {
            // The peer repeats the request, and another session gets it.
            return Next::Answer(request, Reply::Ignore);
        }
        let epoch = self.endpoint.remote.next_epoch();
        let proof = match request.proof() {
            cm::SourceProof::Proven => Proof::Cookie,
            cm::SourceProof::Unproven | cm::SourceProof::Unknown => Proof::None,
        };
        let is_in_doubt = state.core.has_unproven_request();
        let reply = state.core.requested(now, hello, epoch, proof);
        if is_in_doubt || state.core.has_unproven_request() {
            // Also while the peer's own request is on its way, after a forged one.
            let until = now.saturating_add(CONNECT_TIME);
            self.must_prove_until.store(until, Relaxed);
        }
        Next::Answer(request, reply)
    }

    /// Handles an event of a connection.
    fn event(
        &self,
        state: &mut State,
        now: u64,
        connection: Arc<Connection>,
        event: CmEvent,
    ) -> Next {
        let (core, conn) = (&mut state.core, connection.conn);
        match event {
            CmEvent::Replied(Ok(hello)) => {
                let accepted = core.accepted(now, conn, &hello);
                return Next::Confirm(connection, accepted);
            }
            CmEvent::Replied(Err(cause)) => {
                core.failed(conn, cause);
                return Next::Confirm(connection, false);
            }
            CmEvent::Established => core.established(now, conn),
            CmEvent::Rejected(Some(refusal)) => core.rejected(now, conn, refusal),
            CmEvent::Rejected(None) => core.failed(conn, Cause::Superseded),
            CmEvent::Unreachable => core.failed(conn, Cause::Unanswered),
            CmEvent::Disconnected => core.failed(conn, connection.cause()),
        }
        Next::Step(Step::Decide)
    }
}
