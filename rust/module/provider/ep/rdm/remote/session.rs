// SPDX-License-Identifier: GPL-2.0

//! A session: an endpoint and one peer on another host.
//!
//! The core's [`rdm::Session`] decides what to do. This file adds a lock, memory, a timer, and the
//! execution of its decisions:
//!
//! ```text
//!  post, cancel, answer  (process)     ---.
//!  completed, run_ended  (run of a QP) ---+--> state: core --> pump: work for QPs, completions
//!  steps of the worker   (worker.rs)   ---'             '----> work item: connections (manage.rs)
//!  event, request (CM), timer, leave --------------------------^
//! ```
//!
//! # Locks
//!
//! `state` is a mutex. The worker of the session never waits for it (`worker.rs`). The locks of the
//! session's QPs, of [`Connection`]s and of a completion are taken under it. So a callback of a
//! completion must not post; a task that the completion wakes may. A consumer that a QP calls under
//! its own lock must not take `state`: the connection keeps its events for the session until the
//! run of the QP is over. Programs send their operations after they have released `state`, so that
//! they can run the receive work of peers on the same machine
//! ([`InlineList`](crate::shim::inline_work::InlineList)). All other packets are sent under it.
//!
//! `grants` is a spin lock and a leaf. Bytes are copied under it, at most a path MTU: the memory
//! must not be released during the copy, and dropping a reference to it here could sleep.
//!
//! # The end
//!
//! A session that has nothing to do and no connection is marked as gone under its lock, and then
//! removed from its endpoint's table. An operation that is posted to it later is returned to the
//! poster.

use kernel::{
    rbtree::RBTree,
    time::hrtimer::HrTimer,
    workqueue::{
        new_work,
        Work, //
    }, //
};

use super::{
    super::super::{
        prelude::*,
        receive::share::KeptShare, //
    },
    conn::Connection,
    granted::{
        GrantSlot,
        Granted,
        Grants,
        ResultPlace,
        ResultSlot, //
    },
    op::{
        AnswerCount,
        AnswerData,
        Reply,
        Transmit, //
    },
    request::SendRequest,
    store::{
        PostedWork,
        RmaSlot,
        SendSlot,
        Tree,
        Trees, //
    },
    worker::{
        Turn,
        Waiting, //
    }, //
};
use crate::{
    mem::{
        PeerPlace,
        PeerShare, //
    },
    net::Path,
    shim::{
        alarm::{
            impl_alarm,
            Alarm,
            Due, //
        },
        sched::now_ns,
        word::AtomicWord,
        work::impl_work, //
    }, //
};
use kfi_core::left_step::LeftStep;
use kfi_core::rdm::{
    self,
    header::Header,
    ops::{
        Outgoing,
        Transfer, //
    },
    session::{
        Action,
        Activity,
        Cancelled,
        Conn,
        Ended,
        Request,
        Work as Piece,
        WorkResult, //
    },
    times::{
        DEPTH,
        IDLE_TIME,
        READS, //
    },
    Cause,
    Config, //
};

/// The state machine of the protocol.
pub(super) type Core = rdm::Session<Trees>;

/// A message to be sent, and its preallocated memory.
pub(super) struct NewSend {
    pub(super) transmit: Transmit,
    pub(super) slot: SendSlot,
    /// For a message that the receiver reads.
    pub(super) grant: Option<GrantSlot>,
    /// For an atomic that returns values, or a tagged read: their destination.
    pub(super) result: Option<(ResultSlot, MemRef)>,
}

/// An RMA operation, and its preallocated memory.
pub(super) struct NewRma {
    pub(super) transmit: Transmit,
    pub(super) slot: RmaSlot,
}

/// A connection, and the work that its QP has.
pub(super) struct SessionConn {
    pub(super) connection: Arc<Connection>,
    pub(super) posted_work: PostedWork,
    /// The cause of its failure, if a work request failed.
    pub(super) cause: Option<Cause>,
    /// The QP has work that was queued but not sent.
    pub(super) unsent: bool,
}

/// The most connections: one in use, and one that replaces it.
const MAX_CONNS: usize = 2;

/// The state under the lock.
pub(super) struct State {
    pub(super) core: Core,
    conns: [Option<SessionConn>; MAX_CONNS],
    /// The session is no longer in its endpoint's table, or is about to be removed.
    pub(super) gone: bool,
    /// The endpoint is closing, and the core knows it.
    pub(super) has_left: bool,
    pub(super) alarm: Alarm<Session>,
}

impl State {
    /// The entry of a connection.
    pub(super) fn entry(&mut self, conn: Conn) -> Option<&mut SessionConn> {
        find(&mut self.conns, conn)
    }

    /// Adds a connection. Returns it if there is no room, which the protocol rules out.
    pub(super) fn enter(&mut self, entry: SessionConn) -> core::result::Result<(), SessionConn> {
        match self.conns.iter_mut().find(|slot| slot.is_none()) {
            Some(slot) => {
                *slot = Some(entry);
                Ok(())
            }
            None => Err(entry),
        }
    }

    /// Removes a connection.
    pub(super) fn leave(&mut self, conn: Conn) -> Option<SessionConn> {
        let is_it = |entry: &mut SessionConn| entry.connection.conn == conn;
        self.conns.iter_mut().find_map(|slot| slot.take_if(is_it))
    }

    /// The connections.
    pub(super) fn connections(&self) -> impl Iterator<Item = &Arc<Connection>> {
        self.conns.iter().flatten().map(|entry| &entry.connection)
    }

    /// The times at which the peer was active last.
    pub(super) fn activity(&self) -> Activity {
        let mut activity = Activity::default();
        for connection in self.connections() {
            activity.received_at = activity.received_at.max(connection.last_packet());
            activity.moved_at = activity.moved_at.max(connection.last_access());
        }
        activity
    }
}

fn find(conns: &mut [Option<SessionConn>; MAX_CONNS], conn: Conn) -> Option<&mut SessionConn> {
    conns
        .iter_mut()
        .flatten()
        .find(|entry| entry.connection.conn == conn)
}

/// A session with a peer.
#[pin_data]
pub(in crate::provider::ep) struct Session {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) peer: PeerAddr,
    /// The path to the peer, which each post checks. Connections have paths of their own.
    pub(super) path: Arc<Path>,
    /// Locked by [`lock`](Self::lock) and [`try_lock`](Self::try_lock). A caller that changes the
    /// state calls [`follow`](Self::follow) afterwards.
    #[pin]
    pub(super) state: Mutex<State>,
    /// The worker has left a step in `turn`.
    pub(super) left: LeftStep<AtomicWord>,
    /// [`wake`](Self::wake) was called since the worker, or a holder of the lock, began to decide.
    pub(super) woken: Atomic<bool>,
    /// How far the worker has got. A leaf.
    #[pin]
    pub(super) turn: SpinLock<Turn>,
    /// A request of the peer that waits for the worker. A leaf.
    #[pin]
    pub(super) request: SpinLock<Option<Waiting>>,
    /// The endpoint is closing.
    pub(super) is_leaving: Atomic<bool>,
    #[pin]
    pub(super) grants: SpinLock<Grants>,
    /// The destinations of the old values of atomics and of the bytes of tagged reads, by the
    /// number of the operation. A leaf.
    #[pin]
    pub(super) results: SpinLock<RBTree<u64, ResultPlace>>,
    /// The count of the answers to the peer that are not finished.
    pub(super) answers: AnswerCount,
    /// See [`PeerWork`](crate::mem::PeerWork).
    pub(super) place: PeerPlace,
    /// The time until which a request in the name of the peer needs a proof of its address, ns.
    pub(super) must_prove_until: Atomic<u64>,
    /// What the peer may use of the owner's memory.
    pub(super) peer_share: PeerShare,
    /// What its messages may use of the endpoint's receive side.
    pub(super) kept_share: KeptShare,
    due: Due,
    #[pin]
    timer: HrTimer<Self>,
    #[pin]
    pub(super) work: Work<Self>,
    _memory: Allowance,
}

impl_work! {
    impl Work for Session { self.work, run: Self::run_worker }
}

impl_alarm! {
    impl Alarm for Session {
        timer: self.timer, due: self.due, expired: Self::wake
    }
}

impl Session {
    /// Makes a session of `endpoint` with `peer`, to which `path` leads. Fails with `ENOMEM`.
    /// Sleeps.
    pub(super) fn new(
        endpoint: &Arc<Endpoint>,
        bound: &Bound,
        peer: PeerAddr,
        path: Arc<Path>,
    ) -> Result<Arc<Self>> {
        let more = size_of::<Path>() + KeptShare::BYTES;
        let memory = endpoint.ident.budget.take_for::<Self>(more)?;
        let answers = AnswerCount::new()?;
        let source = endpoint.domain.link().source(peer.addr().ip());
        let peer_share = endpoint.ident.budget.share_of(source)?;
        let kept_share = endpoint.kept_share(source)?;
        let config = Config {
            incarnation: endpoint.remote.incarnation,
            port: bound.name.port(),
            name_port: bound.source.port(),
            caps: endpoint.caps,
            auth_key: endpoint.auth_key,
            depth: DEPTH,
            reads: READS,
            idle_time: IDLE_TIME,
        };
        let core = Core::new(config, Tree::new(), Tree::new(), Tree::new());
        let state = State {
            core,
            conns: [const { None }; MAX_CONNS],
            gone: false,
            has_left: false,
            alarm: Alarm::new(),
        };
        Arc::pin_init(
            pin_init!(Self {
                endpoint: endpoint.clone(),
                peer,
                path,
                state <- new_mutex!(state, "Session::state"),
                left: LeftStep::new(AtomicWord::new(0)),
                woken: Atomic::new(false),
                turn <- new_spinlock!(Turn::Idle, "Session::turn"),
                request <- new_spinlock!(None, "Session::request"),
                is_leaving: Atomic::new(false),
                grants <- new_spinlock!(RBTree::new(), "Session::grants"),
                results <- new_spinlock!(RBTree::new(), "Session::results"),
                answers,
                place: PeerPlace::new(),
                must_prove_until: Atomic::new(0),
                peer_share,
                kept_share,
                due: Due::never(),
                timer <- HrTimer::new(),
                work <- new_work!("kfabric::Session"),
                _memory: memory,
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Calls `work` with the state under the lock, and then [`follow`](Self::follow). Sleeps.
    pub(super) fn with<T>(self: &Arc<Self>, work: impl FnOnce(&mut State, u64) -> T) -> T {
        let mut state = self.lock();
        let now = now_ns();
        let result = work(&mut state, now);
        self.follow(&mut state, now);
        result
    }

    /// Lets an unused session be freed, after an operation was refused for which it may have been
    /// made. Sleeps.
    pub(super) fn free_if_unused(self: &Arc<Self>) {
        self.with(|_, _| ());
    }

    /// Posts a message. Grants the peer access to its memory if the peer reads it. Returns the
    /// message if the session has been removed; the caller then uses a new session. The caller
    /// calls [`push`](Self::push) soon. Sleeps.
    pub(super) fn send(self: &Arc<Self>, outgoing: Outgoing, new: NewSend) -> Option<NewSend> {
        let mut state = self.lock();
        if state.gone {
            return Some(new);
        }
        let NewSend {
            transmit,
            slot,
            grant,
            result,
        } = new;
        let memory = transmit.memory.clone();
        let now = now_ns();
        let number = state.core.send(now, outgoing, transmit, slot);
        if let Some(grant) = grant {
            if let Some(transmit) = state.core.op_mut(number) {
                transmit.grant = Some(number);
            }
            let granted = Granted {
                memory,
                is_being_read: false,
            };
            self.grants.lock().insert(grant.into_node(number, granted));
        }
        if let Some((slot, memory)) = result {
            if let Some(transmit) = state.core.op_mut(number) {
                transmit.result = Some(number);
            }
            let place = ResultPlace {
                memory,
                may_be_short: outgoing.rma.is_some(),
                conn: None,
            };
            self.results.lock().insert(slot.into_node(number, place));
        }
        self.pump(&mut state, now);
        None
    }

    /// Posts an RMA operation. Returns it if the session has been removed. The caller calls
    /// [`push`](Self::push) soon. Sleeps.
    pub(super) fn rma(self: &Arc<Self>, transfer: Transfer, new: NewRma) -> Option<NewRma> {
        let mut state = self.lock();
        if state.gone {
            return Some(new);
        }
        let NewRma { transmit, slot } = new;
        let now = now_ns();
        state.core.rma(now, transfer, transmit, slot);
        self.pump(&mut state, now);
        None
    }

    /// Sends the queued work. Sleeps. The caller holds no lock and is not called by a QP.
    pub(in crate::provider::ep) fn push(self: &Arc<Self>) {
        let unsent = {
            let mut state = self.lock();
            state.conns.each_mut().map(|entry| {
                let entry = entry.as_mut()?;
                core::mem::take(&mut entry.unsent).then(|| entry.connection.clone())
            })
        };
        for connection in unsent.into_iter().flatten() {
            connection.push();
        }
    }

    /// Answers the peer. Sleeps.
    pub(super) fn answer(self: &Arc<Self>, reply: Reply) {
        self.with(|state, now| self.answer_locked(state, now, reply));
    }

    /// [`answer`](Self::answer) for a caller that holds the lock and calls `follow` afterwards.
    pub(super) fn answer_locked(&self, state: &mut State, now: u64, reply: Reply) {
        let (due, data, slot) = reply.into_parts();
        if let Some(data) = state.core.answer(now, due, data, slot) {
            self.end(Ended::Receive(data, Err(Cause::Reset.errno())));
        }
    }

    /// Cancels the oldest operation with `context`. Returns false if there is none, or it is too
    /// late. Sleeps.
    pub(super) fn cancel(self: &Arc<Self>, context: u64) -> bool {
        self.with(|state, now| {
            let mut from = 0;
            let is_it = |transmit: &Transmit| transmit.ticket.context == context;
            while let Some(number) = state.core.find(from, is_it) {
                match state.core.cancel(now, number) {
                    Cancelled::No => from = number.wrapping_add(1),
                    Cancelled::Ended(transmit) => {
                        self.end(Ended::Op(transmit, Err(Errno::ECANCELED)));
                        return true;
                    }
                    Cancelled::Asked => return true,
                }
            }
            false
        })
    }

    /// Executes the decisions of the protocol, except those about connections. The caller holds the
    /// lock.
    pub(super) fn follow(self: &Arc<Self>, state: &mut State, now: u64) {
        self.pump(state, now);
        for entry in state.conns.iter_mut().flatten() {
            if core::mem::take(&mut entry.unsent) {
                entry.connection.push_only();
            }
        }
    }

    /// [`follow`](Self::follow) without sending the work that is queued to QPs.
    fn pump(self: &Arc<Self>, state: &mut State, now: u64) {
        while let Some(next) = state.core.next(now) {
            match next {
                Action::Post(conn, piece, request) => self.post(state, now, conn, piece, &request),
                Action::Void(conn, lane) => {
                    if let Some(entry) = state.entry(conn) {
                        let SessionConn {
                            connection,
                            posted_work,
                            ..
                        } = entry;
                        connection.make_void(posted_work, lane);
                    }
                }
                Action::End(ended) => self.end(ended),
            }
        }
        if state.gone {
            // A session that was removed makes no connections.
        } else if state.core.wants_manage(now) || state.core.is_spare() {
            self.wake();
        } else if let Some(at) = state.core.deadline() {
            if at <= now {
                self.wake();
            } else {
                state.alarm.set(self, &self.due, now, at);
            }
        }
    }

    /// Queues work to a QP, which sends it later. If the QP refuses it, the connection fails.
    fn post(&self, state: &mut State, now: u64, conn: Conn, piece: Piece, request: &Request) {
        let State { core, conns, .. } = state;
        if let Some(entry) = find(conns, conn) {
            if let Some(send) = SendRequest::of(core, &entry.connection, request) {
                let context = entry.posted_work.put(piece);
                let header = send
                    .inline_header
                    .get(..send.header_len)
                    .unwrap_or_default();
                let (op, more, memory) = (send.op, send.more, send.memory);
                let with_result = match (piece, request) {
                    (Piece::Atomic(number), _) => Some(number),
                    (Piece::Message(number), Request::Send(Header::TaggedRead(..))) => Some(number),
                    _ => None,
                };
                if let Some(number) = with_result {
                    if let Some(place) = self.results.lock().get_mut(&number) {
                        place.conn = Some(conn);
                    }
                }
                let queued = entry.connection.queue(op, more, header, memory, context);
                if queued.is_ok() {
                    entry.unsent = true;
                    return;
                }
                entry.posted_work.take(context);
            }
        }
        if let Some(ended) = core.done(now, conn, piece, WorkResult::Failed(None)) {
            self.end(ended);
        }
        core.failed(conn, Cause::Reset);
    }

    /// Completes an operation or a receive. Sleeps.
    pub(super) fn end(&self, ended: Ended<Transmit, AnswerData>) {
        // An endpoint that has sessions is enabled.
        let Some(bound) = self.endpoint.bound.as_ref() else {
            return;
        };
        match ended {
            Ended::Op(transmit, result) => {
                if let Some(number) = transmit.grant {
                    let node = self.grants.lock().remove_node(&number);
                    // The memory is not dropped under the lock.
                    drop(node);
                }
                if let Some(number) = transmit.result {
                    let node = self.results.lock().remove_node(&number);
                    drop(node);
                }
                self.endpoint.end_transmit(bound, transmit, result);
            }
            Ended::Receive(
                AnswerData::Filling(recv_read) | AnswerData::Serving(recv_read),
                result,
            ) => self.endpoint.end_filling(bound, recv_read, result),
            // The initiator of the atomic has them, or has lost the connection.
            Ended::Receive(AnswerData::Values(values), _) => drop(values),
        }
    }
}
