// SPDX-License-Identifier: GPL-2.0
//! Connection management as sessions see it, with messages ("messages") that are lost, repeated, or
//! delayed for a long time.

use std::collections::{BTreeMap, BTreeSet};

use kfi_core::{
    auth_key::AuthKey,
    flags::Caps,
    rdm::{
        hello::{
            PeerEpoch,
            Refusal, //
        },
        session::{
            Conn,
            Reply, //
        },
        unproven::Proof,
        Cause,
        Hello, //
    }, //
};

use super::{
    qp::{
        Qp,
        QpId, //
    },
    Addr,
    Event,
    World,
    MS, //
};

/// The contents of a message.
#[derive(Clone, Debug)]
pub(crate) struct CmMessage {
    from: Addr,
    to: Addr,
    body: Body,
}

#[derive(Clone, Debug)]
enum Body {
    Req {
        call: u64,
        qp: QpId,
        hello: Hello,
    },
    Rep {
        call: u64,
        yours: u64,
        qp: QpId,
        hello: Hello,
    },
    Rtu {
        yours: u64,
    },
    Rej {
        yours: u64,
        refusal: Option<Refusal>,
    },
    Dreq {
        yours: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Asking,
    Accepted,
    Established,
}

/// One side of a connection.
#[derive(Debug)]
struct Call {
    owner: Addr,
    peer: Addr,
    conn: Conn,
    qp: QpId,
    hello: Hello,
    remote: Option<u64>,
    state: State,
}

/// All connections.
#[derive(Default)]
pub(crate) struct Cm {
    calls: BTreeMap<u64, Call>,
    next: u64,
    /// Forged requests whose answers are lost.
    silent: BTreeSet<u64>,
}

impl World {
    fn write(&mut self, from: Addr, to: Addr, body: Body) {
        let message = CmMessage { from, to, body };
        if self.plan.old_messages && self.rng.one_in(8) {
            let delay = self.rng.spread(self.plan.work_time);
            self.after(delay, Event::CmMessage(message.clone()));
        }
        if !self.draining && self.rng.one_in(self.plan.loss) {
            return;
        }
        let delay = self.rng.spread(self.plan.delay);
        self.after(delay, Event::CmMessage(message));
    }

    fn new_call(
        &mut self,
        owner: Addr,
        peer: Addr,
        conn: Conn,
        hello: Hello,
        theirs: Option<(u64, QpId)>,
    ) -> u64 {
        self.cm.next += 1;
        let call = self.cm.next;
        let qp = QpId(call);
        let mut made = Qp::new(owner, peer, conn);
        made.remote = theirs.map(|(_, qp)| qp);
        self.qps.insert(qp, made);
        let state = if theirs.is_some() {
            State::Accepted
        } else {
            State::Asking
        };
        self.cm.calls.insert(
            call,
            Call {
                owner,
                peer,
                conn,
                qp,
                hello,
                remote: theirs.map(|(call, _)| call),
                state,
            },
        );
        self.repeat(call);
        call
    }

    /// Sends a connection request.
    pub(crate) fn connect(&mut self, owner: Addr, peer: Addr, conn: Conn, hello: Hello) {
        self.new_call(owner, peer, conn, hello, None);
    }

    /// Sends a message that is not answered, and schedules its repetition.
    pub(crate) fn repeat(&mut self, id: u64) {
        let Some(call) = self.cm.calls.get(&id) else {
            return;
        };
        let (owner, peer, qp, hello) = (call.owner, call.peer, call.qp, call.hello);
        let body = match (call.state, call.remote) {
            (State::Asking, _) => Body::Req {
                call: id,
                qp,
                hello,
            },
            (State::Accepted, Some(yours)) => Body::Rep {
                call: id,
                yours,
                qp,
                hello,
            },
            _ => return,
        };
        self.write(owner, peer, body);
        self.after(20 * MS, Event::Repeat(id));
    }

    /// Delivers a request that its sender never made; the answer to it is lost.
    pub(crate) fn forge_silent_request(&mut self, from: Addr, to: Addr, incarnation: u64) {
        self.cm.silent.insert(self.cm.next + 1);
        self.forge_request(from, to, incarnation, 0);
    }

    /// Delivers a request that its sender never made.
    pub(crate) fn forge_request(&mut self, from: Addr, to: Addr, incarnation: u64, epoch: u64) {
        self.cm.next += 1;
        let call = self.cm.next;
        let peer_epoch = PeerEpoch { incarnation, epoch };
        let hello = Hello {
            peer_epoch,
            port: 1000 + from as u16,
            name_port: 1000 + from as u16,
            reads: 1,
            caps: Caps::EMPTY,
            cookie: None,
            auth_key: AuthKey::NONE,
        };
        let qp = QpId(call);
        let body = Body::Req { call, qp, hello };
        self.at(self.now, Event::CmMessage(CmMessage { from, to, body }));
    }

    fn call_of(&self, owner: Addr, peer: Addr, conn: Conn) -> Option<u64> {
        let is = |call: &Call| call.owner == owner && call.peer == peer && call.conn == conn;
        self.cm
            .calls
            .iter()
            .find(|(_, call)| is(call))
            .map(|(id, _)| *id)
    }

    /// Returns the QP of a connection.
    pub(crate) fn qp_of(&self, owner: Addr, peer: Addr, conn: Conn) -> Option<QpId> {
        let id = self.call_of(owner, peer, conn)?;
        Some(self.cm.calls[&id].qp)
    }

    /// Ends a connection.
    pub(crate) fn disconnect(&mut self, owner: Addr, peer: Addr, conn: Conn) {
        if let Some(id) = self.call_of(owner, peer, conn) {
            let call = self.cm.calls.remove(&id).unwrap();
            self.qps.remove(&call.qp);
            if let (Some(yours), State::Established) = (call.remote, call.state) {
                self.write(owner, peer, Body::Dreq { yours });
            }
        }
    }

    /// Removes all connections of an endpoint that has died, without telling the peers.
    pub(crate) fn forget_calls(&mut self, owner: Addr) {
        let dead: Vec<u64> = self
            .cm
            .calls
            .iter()
            .filter(|(_, call)| call.owner == owner)
            .map(|(id, _)| *id)
            .collect();
        for id in dead {
            let call = self.cm.calls.remove(&id).unwrap();
            self.qps.remove(&call.qp);
        }
    }

    /// Handles the first packet on this QP.
    pub(crate) fn first_packet(&mut self, qp: QpId) {
        if let Some(call) = self.cm.calls.get(&qp.0) {
            if call.state == State::Accepted {
                self.is_established(qp.0);
            }
        }
    }

    fn is_established(&mut self, id: u64) {
        let call = self.cm.calls.get_mut(&id).unwrap();
        call.state = State::Established;
        let (owner, peer, conn, now) = (call.owner, call.peer, call.conn, self.now);
        self.log(|| format!("{owner}-{peer}: {conn:?} established"));
        self.oracle.count("established");
        self.with_session(owner, peer, |session| session.established(now, conn));
    }

    pub(crate) fn message(&mut self, message: CmMessage) {
        let CmMessage { from, to, body } = message;
        if self.passes(from, to).is_err() {
            return;
        }
        self.log(|| format!("{from}-{to}: {body:?}"));
        match body {
            Body::Req { call, qp, hello } => self.request(from, to, call, qp, &hello),
            Body::Rep {
                call,
                yours,
                qp,
                hello,
            } => self.reply(from, to, call, yours, qp, &hello),
            Body::Rtu { yours } => {
                if self.is_of(yours, to, State::Accepted) {
                    self.is_established(yours);
                }
            }
            Body::Rej { yours, refusal } => self.rejection(to, yours, refusal),
            Body::Dreq { yours } => {
                if let Some(call) = self.cm.calls.get(&yours) {
                    let (owner, peer, conn) = (call.owner, call.peer, call.conn);
                    let reset = Cause::Reset;
                    self.with_session(owner, peer, |session| session.failed(conn, reset));
                }
            }
        }
    }

    fn is_of(&self, id: u64, owner: Addr, state: State) -> bool {
        self.cm
            .calls
            .get(&id)
            .is_some_and(|call| call.owner == owner && call.state == state)
    }

    fn request(&mut self, from: Addr, to: Addr, theirs: u64, qp: QpId, hello: &Hello) {
        let refuse = |world: &mut Self, refusal| {
            let yours = theirs;
            let refusal = Some(refusal);
            world.write(to, from, Body::Rej { yours, refusal });
        };
        if self.ends[to].as_ref().is_none_or(|end| end.leaving) {
            return refuse(self, Refusal::Nobody);
        }
        let answered = self
            .cm
            .calls
            .iter()
            .find(|(_, call)| call.owner == to && call.remote == Some(theirs))
            .map(|(id, _)| *id);
        if let Some(id) = answered {
            if self.cm.calls[&id].state == State::Accepted {
                self.repeat_now(id);
            }
            return;
        }
        if !self.draining && self.rng.one_in(self.plan.busy) {
            return refuse(self, Refusal::Busy);
        }
        let now = self.now;
        let end = self.ends[to].as_mut().unwrap();
        if let Some(demands) = self.plan.demands {
            let demands = !self.draining && self.rng.one_in(demands);
            let checked = end.check(now, &self.plan, from, hello.cookie, demands);
            if let Err(cookie) = checked {
                self.oracle.count("retry");
                return refuse(self, Refusal::Retry(cookie));
            }
            if demands {
                self.oracle.count("proven");
            }
        }
        let epoch = end.next_epoch();
        let reply = end.session(from).requested(now, hello, epoch, Proof::None);
        match reply {
            Reply::Accept(conn, mine) if !self.draining && self.rng.one_in(self.plan.no_memory) => {
                // There is no memory for a QP.
                let _ = mine;
                refuse(self, Refusal::Busy);
                self.with_session(to, from, |session| session.failed(conn, Cause::Busy));
            }
            Reply::Accept(conn, mine) => {
                self.new_call(to, from, conn, mine, Some((theirs, qp)));
            }
            Reply::Refuse(refusal) => refuse(self, refusal),
            Reply::Ignore => {}
        }
        self.pump(to, from);
    }

    fn repeat_now(&mut self, id: u64) {
        let call = &self.cm.calls[&id];
        let (owner, peer, qp, hello) = (call.owner, call.peer, call.qp, call.hello);
        if let Some(yours) = call.remote {
            let call = id;
            let body = Body::Rep {
                call,
                yours,
                qp,
                hello,
            };
            self.write(owner, peer, body);
        }
    }

    fn reply(&mut self, from: Addr, to: Addr, theirs: u64, mine: u64, qp: QpId, hello: &Hello) {
        if self.is_of(mine, to, State::Established) {
            let known = self.cm.calls[&mine].remote == Some(theirs);
            if known {
                self.write(to, from, Body::Rtu { yours: theirs });
            }
            return;
        }
        if self.cm.silent.contains(&mine) {
            return;
        }
        let mut accepted = false;
        if self.is_of(mine, to, State::Asking) {
            let conn = self.cm.calls[&mine].conn;
            let now = self.now;
            let end = self.ends[to].as_mut().unwrap();
            accepted = end.session(from).accepted(now, conn, hello);
            if accepted {
                let call = self.cm.calls.get_mut(&mine).unwrap();
                call.state = State::Established;
                call.remote = Some(theirs);
                let own = call.qp;
                self.qps.get_mut(&own).unwrap().remote = Some(qp);
            }
        }
        if accepted {
            self.write(to, from, Body::Rtu { yours: theirs });
            self.pump(to, from);
        } else {
            let (yours, refusal) = (theirs, None);
            self.write(to, from, Body::Rej { yours, refusal });
        }
    }

    fn rejection(&mut self, to: Addr, id: u64, refusal: Option<Refusal>) {
        let Some(call) = self.cm.calls.get(&id).filter(|call| call.owner == to) else {
            return;
        };
        let (peer, conn, state, now) = (call.peer, call.conn, call.state, self.now);
        match (state, refusal) {
            (State::Asking, Some(refusal)) => {
                self.with_session(to, peer, |session| session.rejected(now, conn, refusal));
            }
            (State::Accepted, _) => {
                let cause = Cause::Superseded;
                self.with_session(to, peer, |session| session.failed(conn, cause));
            }
            _ => {}
        }
    }
}
