// SPDX-License-Identifier: GPL-2.0

//! A session: an endpoint and one peer on another host.
//!
//! What is to be done says the core's [`rdm::Session`]; here it has a lock, memory, a timer, and somebody
//! who does it:
//!
//! ```text
//!  post, cancel, answer  (process)    ---.
//!  completed, run_ended  (QP's worker) --+--> state: core --> pump: work for QPs, ends of operations
//!  event, request        (CM)         ---'             '----> work item: connections (manage.rs)
//!  timer ------------------------------------------------------^
//! ```
//!
//! # Locks
//!
//! `state` is a mutex; under it are taken the locks of the session's QPs, of [`Connection`]s, and what a
//! completion takes. So nobody may post in the context of a completion, only who is woken by it. It is
//! not for a consumer that is being asked by a QP: what is to be said then is kept by the connection
//! until its run is over. What programs post is sent when they have let go of the lock, so that they
//! can run the receive work of peers on the same machine
//! ([`InlineList`](crate::shim::inline_work::InlineList)); what others
//! want is sent under it. `grants` is a spin lock and a leaf; bytes are copied under it, at most a path
//! MTU, because the memory that is read there must not go meanwhile, and dropping it would sleep.
//!
//! # The end
//!
//! A session that has nothing to do and no connection is taken out of its endpoint's table, under its
//! lock, and gives back what comes late.

use kernel::{
    new_mutex,
    new_spinlock,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        lock::{
            mutex::MutexBackend,
            Guard, //
        },
        Arc,
        Mutex,
        SpinLock, //
    },
    time::hrtimer::HrTimer,
    workqueue::{
        impl_has_work,
        new_work,
        Work,
        WorkItem, //
    }, //
};

use kfi_core::{
    addr::SockAddr,
    errno::Errno,
    rdm::{
        self,
        header::{
            Header,
            MAX_HEADER, //
        },
        ops::{
            Outgoing,
            Transfer, //
        },
        session::{
            Cancelled,
            Conn,
            Do,
            Done,
            Ended,
            Request,
            Work as Piece, //
        },
        times::{
            DEPTH,
            IDLE_TIME,
            READS, //
        },
        Cause,
        Config,
        Grant, //
    }, //
};
use kfi_roce::{
    headers::SendEnd,
    rc::Op as WireOp, //
};

use super::{
    super::super::{
        bound::Bound,
        Endpoint, //
    },
    conn::Connection,
    op::{
        Reply,
        Transmit, //
    },
    owing::Owing,
    store::{
        RmaSlot,
        SendSlot,
        Tree,
        Trees, //
    },
    works::Works, //
};
use crate::{
    mem::{
        wire,
        Allowance,
        MemRef, //
    },
    shim::{
        alarm::{
            impl_alarm,
            Alarm,
            Due, //
        },
        sched::now_ns,
        skb::Room,
        work, //
    }, //
};

/// The protocol.
pub(super) type Core = rdm::Session<Trees>;

/// A message, and the memory for it.
pub(super) struct NewSend {
    pub(super) transmit: Transmit,
    pub(super) slot: SendSlot,
    /// For one whose bytes do not go with it.
    pub(super) grant: Option<GrantSlot>,
}

/// An RMA operation, and the memory for it.
pub(super) struct NewRma {
    pub(super) transmit: Transmit,
    pub(super) slot: RmaSlot,
}

/// A connection, and the work that is with its QP.
pub(super) struct Line {
    pub(super) connection: Arc<Connection>,
    pub(super) works: Works,
    /// Why it failed, if a work request did.
    pub(super) cause: Option<Cause>,
    /// The QP has work that it has not been told to send.
    pub(super) unsent: bool,
}

/// Connections that there can be: one in use, and one that takes its place.
const LINES: usize = 2;

/// What the lock guards.
pub(super) struct State {
    pub(super) core: Core,
    lines: [Option<Line>; LINES],
    gone: bool,
    alarm: Alarm<Session>,
}

impl State {
    /// The line of a connection.
    pub(super) fn line(&mut self, conn: Conn) -> Option<&mut Line> {
        find(&mut self.lines, conn)
    }

    /// Puts a line in; gives it back if there is no room, which there is by the protocol.
    pub(super) fn enter(&mut self, line: Line) -> core::result::Result<(), Line> {
        match self.lines.iter_mut().find(|place| place.is_none()) {
            Some(place) => {
                *place = Some(line);
                Ok(())
            }
            None => Err(line),
        }
    }

    /// Takes the line of a connection out.
    pub(super) fn leave(&mut self, conn: Conn) -> Option<Line> {
        let is_it = |line: &mut Line| line.connection.conn() == conn;
        self.lines.iter_mut().find_map(|place| place.take_if(is_it))
    }

    /// Whether the session has been taken out of its endpoint's table.
    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }

    /// When something last came from the peer.
    pub(super) fn heard(&self) -> u64 {
        let lines = self.lines.iter().flatten();
        lines.map(|line| line.connection.heard()).max().unwrap_or(0)
    }
}

fn find(lines: &mut [Option<Line>; LINES], conn: Conn) -> Option<&mut Line> {
    lines
        .iter_mut()
        .flatten()
        .find(|line| line.connection.conn() == conn)
}

/// What a QP does.
struct Order {
    op: WireOp,
    /// READs of the same operation follow.
    more: bool,
    front: [u8; MAX_HEADER],
    front_len: usize,
    memory: MemRef,
}

impl Order {
    /// A SEND of `header`, and of `memory` behind it.
    fn send(header: &Header, memory: MemRef) -> Self {
        let mut front = [0; MAX_HEADER];
        let front_len = header.put(&mut front).unwrap_or(0);
        Self {
            op: WireOp::Send(SendEnd::Plain),
            more: false,
            front,
            front_len,
            memory,
        }
    }

    fn plain(op: WireOp, memory: MemRef) -> Self {
        Self {
            op,
            more: false,
            front: [0; MAX_HEADER],
            front_len: 0,
            memory,
        }
    }

    /// What is to be done for a request of the session.
    fn of(core: &Core, connection: &Connection, request: &Request) -> Option<Self> {
        Some(match *request {
            Request::Send(header) => {
                let memory = match header {
                    Header::Eager(message) => core.op(message.id)?.memory.clone(),
                    _ => MemRef::empty(),
                };
                Self::send(&header, memory)
            }
            Request::Bye => {
                let last = connection.shut();
                Self::send(&Header::Bye { last }, MemRef::empty())
            }
            Request::Read {
                answer,
                offset,
                len,
                va,
                rkey,
            } => {
                let memory = core.receive(answer)?.memory(offset, len);
                Self::plain(WireOp::Read { va, rkey }, memory)
            }
            Request::Rma {
                number,
                piece,
                counts,
            } => {
                let transmit = core.op(number)?;
                let (range, memory) = transmit.piece(piece)?;
                let (va, rkey) = (range.addr, u32::try_from(range.key).ok()?);
                let op = match &transmit.target {
                    Some(target) if target.read => {
                        let pieces = target.remote.pieces().len();
                        return Some(Self {
                            more: (piece as usize).wrapping_add(1) < pieces,
                            ..Self::plain(WireOp::Read { va, rkey }, memory)
                        });
                    }
                    _ => WireOp::Write {
                        va,
                        rkey,
                        imm: counts.then_some(0),
                    },
                };
                Self::plain(op, memory)
            }
        })
    }
}

/// Memory that the peer may read, by the number of the message.
type Grants = RBTree<u64, MemRef>;

/// Room for one of them.
pub(super) type GrantSlot = RBTreeNodeReservation<u64, MemRef>;

/// See the module's story.
#[pin_data]
pub(in crate::provider::ep) struct Session {
    endpoint: Arc<Endpoint>,
    peer: SockAddr,
    #[pin]
    state: Mutex<State>,
    #[pin]
    grants: SpinLock<Grants>,
    /// What is owed to the peer.
    pub(super) owing: Owing,
    due: Due,
    #[pin]
    timer: HrTimer<Self>,
    #[pin]
    work: Work<Self>,
    /// What it takes of its owner's budget.
    _memory: Allowance,
}

impl_has_work! {
    impl HasWork<Self> for Session { self.work }
}

impl WorkItem for Session {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.manage();
    }
}

impl_alarm! {
    impl Alarm for Session {
        timer: self.timer, due: self.due, rings: Self::wake
    }
}

impl Session {
    /// The session of `endpoint` with the peer at `peer`. `ENOMEM`. Sleeps.
    pub(super) fn new(
        endpoint: &Arc<Endpoint>,
        bound: &Bound,
        peer: SockAddr,
    ) -> Result<Arc<Self>> {
        let memory = endpoint.ident.budget.take_for::<Self>(0)?;
        let owing = Owing::new()?;
        let config = Config {
            incarnation: endpoint.remote.incarnation(),
            port: bound.name.port(),
            caps: endpoint.caps,
            depth: DEPTH,
            reads: READS,
            idle_time: IDLE_TIME,
        };
        let core = Core::new(config, Tree::new(), Tree::new(), Tree::new());
        let state = State {
            core,
            lines: [const { None }; LINES],
            gone: false,
            alarm: Alarm::new(),
        };
        Arc::pin_init(
            pin_init!(Self {
                endpoint: endpoint.clone(),
                peer,
                state <- new_mutex!(state, "Session::state"),
                grants <- new_spinlock!(RBTree::new(), "Session::grants"),
                owing,
                due: Due::never(),
                timer <- HrTimer::new(),
                work <- new_work!("kfabric::Session"),
                _memory: memory,
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Its endpoint. Any context.
    pub(super) fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    /// Its peer. Any context.
    pub(in crate::provider::ep) fn peer(&self) -> &SockAddr {
        &self.peer
    }

    /// Has the work item run soon. Any context.
    pub(super) fn wake(self: &Arc<Self>) {
        // Refused if it is due already.
        let _ = work::slow_queue().enqueue(self.clone());
    }

    /// Takes the lock. Who changes something does what follows: [`follow`](Self::follow). Sleeps.
    pub(super) fn lock(&self) -> Guard<'_, State, MutexBackend> {
        self.state.lock()
    }

    /// Runs `work` on the protocol, and does what follows. Sleeps.
    pub(super) fn with<T>(self: &Arc<Self>, work: impl FnOnce(&mut State, u64) -> T) -> T {
        let mut state = self.state.lock();
        let now = now_ns();
        let result = work(&mut state, now);
        self.follow(&mut state, now);
        result
    }

    /// Nothing was posted after all: if it was made for that, it can go. Sleeps.
    pub(super) fn settle(self: &Arc<Self>) {
        self.with(|_, _| ());
    }

    /// Posts a message, and opens its memory to the peer if it does not go with it. Gives it back if the
    /// session has gone: there may be a new one. [`push`](Self::push) is to be called soon. Sleeps.
    pub(super) fn send(self: &Arc<Self>, outgoing: Outgoing, new: NewSend) -> Option<NewSend> {
        let mut state = self.state.lock();
        if state.gone {
            return Some(new);
        }
        let NewSend {
            transmit,
            slot,
            grant,
        } = new;
        let memory = transmit.memory.clone();
        let now = now_ns();
        let number = state.core.send(now, outgoing, transmit, slot);
        if let Some(grant) = grant {
            if let Some(transmit) = state.core.op_mut(number) {
                transmit.grant = Some(number);
            }
            self.grants.lock().insert(grant.into_node(number, memory));
        }
        self.pump(&mut state, now);
        None
    }

    /// Posts an RMA operation. Gives it back if the session has gone. [`push`](Self::push) is to be
    /// called soon. Sleeps.
    pub(super) fn rma(self: &Arc<Self>, transfer: Transfer, new: NewRma) -> Option<NewRma> {
        let mut state = self.state.lock();
        if state.gone {
            return Some(new);
        }
        let NewRma { transmit, slot } = new;
        let now = now_ns();
        state.core.rma(now, transfer, transmit, slot);
        self.pump(&mut state, now);
        None
    }

    /// Sends what was posted. Sleeps; no lock is held, and no QP's consumer is being called.
    pub(in crate::provider::ep) fn push(&self) {
        let unsent = {
            let mut state = self.state.lock();
            state.lines.each_mut().map(|line| {
                let line = line.as_mut()?;
                core::mem::take(&mut line.unsent).then(|| line.connection.clone())
            })
        };
        for connection in unsent.into_iter().flatten() {
            connection.push();
        }
    }

    /// Gives the peer an answer. Sleeps.
    pub(super) fn answer(self: &Arc<Self>, reply: Reply) {
        self.with(|state, now| self.answer_locked(state, now, reply));
    }

    /// The same, for who has the lock and will do what follows.
    pub(super) fn answer_locked(&self, state: &mut State, now: u64, reply: Reply) {
        let (due, filling, slot) = reply.into_parts();
        if let Some(filling) = state.core.answer(now, due, filling, slot) {
            self.end(Ended::Receive(filling, Err(Cause::Reset.errno())));
        }
    }

    /// Takes the oldest operation with this context back; false if there is none, or it is too late.
    /// Sleeps.
    pub(super) fn cancel(self: &Arc<Self>, context: u64) -> bool {
        self.with(|state, _| {
            let mut from = 0;
            let is_it = |transmit: &Transmit| transmit.ticket.context() == context;
            while let Some(number) = state.core.find(from, is_it) {
                match state.core.cancel(number) {
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

    /// Reads bytes that the peer has been granted to `room`. Those of a message that has ended are
    /// zeros: the peer has said that it needs them no more, and what asks for them is an old packet.
    /// Does not sleep.
    pub(super) fn read_grant(&self, grant: &Grant, room: &mut Room<'_>) {
        match self.grants.lock().get(&grant.id) {
            Some(memory) => {
                wire::gather_mem(room, memory, grant.offset as usize);
            }
            None => room.fill(0),
        }
    }

    /// Whether the peer has been granted these bytes. Does not sleep.
    pub(super) fn has_grant(&self, grant: &Grant) -> bool {
        let grants = self.grants.lock();
        let end = u64::from(grant.offset).saturating_add(u64::from(grant.len));
        grants
            .get(&grant.id)
            .is_some_and(|memory| end <= memory.len() as u64)
    }

    /// Does all that the protocol wants, but for connections. Under the lock.
    pub(super) fn follow(self: &Arc<Self>, state: &mut State, now: u64) {
        self.pump(state, now);
        for line in state.lines.iter_mut().flatten() {
            if core::mem::take(&mut line.unsent) {
                line.connection.push_only();
            }
        }
    }

    /// The same, but what is handed to QPs is not sent yet.
    fn pump(self: &Arc<Self>, state: &mut State, now: u64) {
        while let Some(next) = state.core.next(now) {
            match next {
                Do::Post(conn, piece, request) => self.post(state, now, conn, piece, &request),
                Do::Void(conn) => {
                    if let Some(line) = state.line(conn) {
                        let Line {
                            connection, works, ..
                        } = line;
                        connection.make_void(works);
                    }
                }
                Do::End(ended) => self.end(ended),
            }
        }
        if state.gone {
            // Whoever comes late has nothing to do here.
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

    /// Hands work to a QP, which sends it later. What it does not take has failed, with its connection.
    fn post(&self, state: &mut State, now: u64, conn: Conn, piece: Piece, request: &Request) {
        let State { core, lines, .. } = state;
        if let Some(line) = find(lines, conn) {
            if let Some(order) = Order::of(core, &line.connection, request) {
                let context = line.works.put(piece);
                let front = order.front.get(..order.front_len).unwrap_or_default();
                let queued =
                    line.connection
                        .queue(order.op, order.more, front, order.memory, context);
                if queued.is_ok() {
                    line.unsent = true;
                    return;
                }
                line.works.take(context);
            }
        }
        if let Some(ended) = core.done(now, conn, piece, Done::Failed(None)) {
            self.end(ended);
        }
        core.failed(conn, Cause::Reset);
    }

    /// An operation or a receive has ended. Sleeps.
    pub(super) fn end(&self, ended: Ended<Transmit, super::op::Filling>) {
        // Whoever has sessions is bound.
        let Some(bound) = self.endpoint.bound.as_ref() else {
            return;
        };
        match ended {
            Ended::Op(transmit, result) => {
                if let Some(number) = transmit.grant {
                    let node = self.grants.lock().remove_node(&number);
                    // Not under the lock.
                    drop(node);
                }
                self.endpoint.end_transmit(bound, transmit, result);
            }
            Ended::Receive(filling, result) => self.endpoint.end_filling(bound, filling, result),
        }
    }

    /// Takes it out of its endpoint's table if there is nothing left to be done. Sleeps.
    pub(super) fn retire_if_spare(self: &Arc<Self>) {
        let alarm = {
            let mut state = self.state.lock();
            if state.gone || !state.core.is_spare() {
                return;
            }
            state.gone = true;
            core::mem::replace(&mut state.alarm, Alarm::new())
        };
        // Cancels the timer, whose callback takes no lock.
        drop(alarm);
        self.endpoint.remote.forget(self);
    }
}
