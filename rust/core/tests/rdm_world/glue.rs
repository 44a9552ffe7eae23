// SPDX-License-Identifier: GPL-2.0
//! The caller of the sessions: executes the actions that a session returns.

use std::collections::BTreeSet;

use kfi_core::{
    errno::{
        Errno,
        Result, //
    },
    matching::Placement,
    rdm::{
        header::Header,
        inbound::Source,
        ops::{
            Outgoing,
            RmaKind,
            Transfer, //
        },
        session::{
            Action,
            Activity,
            Cancelled,
            Conn,
            Ended,
            Manage,
            Request,
            Work,
            WorkResult, //
        },
        Grant,
        Session, //
    }, //
};

use super::{
    end::{
        Answered,
        End,
        Filling,
        Held,
        Model,
        Placing,
        Rx,
        Where,
        REGION, //
    },
    oracle::{
        self,
        Kind,
        Oracle, //
    },
    Addr,
    World, //
};

impl World {
    /// Runs `work` on a session, and then the actions that follow.
    pub(crate) fn with_session<T>(
        &mut self,
        owner: Addr,
        peer: Addr,
        work: impl FnOnce(&mut Session<Model>) -> T,
    ) {
        if let Some(end) = &mut self.ends[owner] {
            work(end.session(peer));
            self.pump(owner, peer);
        }
    }

    pub(crate) fn expire_session(&mut self, owner: Addr, peer: Addr) {
        let received_at = self
            .qps
            .values()
            .filter(|qp| qp.owner == owner && qp.peer == peer)
            .map(|qp| qp.received_at)
            .max();
        let now = self.now;
        let activity = Activity {
            received_at: received_at.unwrap_or(0),
            moved_at: self.moved_at.get(&(owner, peer)).copied().unwrap_or(0),
        };
        let being_read = self.being_read.clone();
        self.with_session(owner, peer, |session| {
            let mut numbers = BTreeSet::new();
            let mut from = 0;
            while let Some(number) = session.find(from, |op| being_read.contains(op)) {
                numbers.insert(number);
                from = number + 1;
            }
            session.expired(now, activity, |number| numbers.contains(&number));
        });
    }

    /// Executes the actions of a session.
    pub(crate) fn pump(&mut self, owner: Addr, peer: Addr) {
        let now = self.now;
        loop {
            let Some(end) = &mut self.ends[owner] else {
                return;
            };
            if let Some(next) = end.session(peer).next(now) {
                match next {
                    Action::Post(conn, work, request) => {
                        self.post_work(owner, peer, conn, work, request)
                    }
                    Action::Void(conn, lane) => {
                        self.log(|| format!("{owner}-{peer}: void {lane:?}"));
                        self.oracle.count(&format!("void {lane:?}"));
                        if let Some(qp) = self.qp_of(owner, peer, conn) {
                            self.make_void(qp, lane);
                        }
                    }
                    Action::End(ended) => self.end_op(owner, peer, ended),
                }
                continue;
            }
            let epoch = end.next_epoch();
            match end.session(peer).manage(now, epoch) {
                Some(Manage::Connect(conn, hello)) => self.connect(owner, peer, conn, hello),
                Some(Manage::Close(conn, cause)) => {
                    self.log(|| format!("{owner}-{peer}: {conn:?} closes, {cause:?}"));
                    self.oracle.count(&format!("close: {cause:?}"));
                    self.close_conn(owner, peer, conn);
                }
                None => break,
            }
        }
        let Some(end) = &mut self.ends[owner] else {
            return;
        };
        if end.session(peer).is_spare() {
            end.sessions.remove(&peer);
            if end.leaving && end.sessions.is_empty() {
                self.remove(owner);
            }
        }
    }

    /// Frees the QP of a connection.
    fn close_conn(&mut self, owner: Addr, peer: Addr, conn: Conn) {
        if let Some(id) = self.qp_of(owner, peer, conn) {
            self.report(id, false);
            let placing = self.qps.get_mut(&id).and_then(|qp| qp.placing.take());
            if let Some(placing) = placing {
                self.abort(owner, &placing);
            }
        }
        self.disconnect(owner, peer, conn);
        let now = self.now;
        let Some(end) = &mut self.ends[owner] else {
            return;
        };
        // Messages whose bytes are still with the peer are lost.
        for pair in &mut end.pairs {
            let is_gone = |held: &Held| matches!(held, Held::There { conn: of, .. } if *of == conn);
            let mut found = Vec::new();
            while let Some((known, held)) = pair.unexpected.withdraw(is_gone) {
                if known.envelope.src == peer {
                    continue;
                }
                found.push((known, held));
            }
            for (known, held) in found {
                assert!(pair.unexpected.arrive(known, held).is_ok());
            }
        }
        end.session(peer).closed(now, conn);
    }

    /// Aborts an incoming message.
    pub(crate) fn abort(&mut self, owner: Addr, placing: &Placing) {
        self.oracle.count("aborted");
        match &placing.at {
            Where::Atomic(_) | Where::Values | Where::Nowhere => {}
            Where::Receive(rx) => self.end_receive(owner, rx.id, Err(Errno::ECONNRESET)),
            Where::Unexpected => {
                let len = placing.bytes.len() as u64;
                if let Some(end) = &mut self.ends[owner] {
                    let message = placing.message.expect("a message");
                    let tagged = message.tag.is_some();
                    end.pairs[0].unexpected.uncharge(len);
                    end.pair(tagged).reserved -= 1;
                }
            }
        }
    }

    fn post_work(&mut self, owner: Addr, peer: Addr, conn: Conn, work: Work, request: Request) {
        let Some(id) = self.qp_of(owner, peer, conn) else {
            panic!("work for a connection that is not there");
        };
        if self.qps[&id].failed {
            return;
        }
        let end = self.ends[owner].as_mut().unwrap();
        let op = |end: &mut End, number| {
            let op = end.session(peer).op(number).copied();
            op.expect("an operation that has not ended")
        };
        let mut request = request;
        let payload = match request {
            Request::Send(Header::Eager(message)) => {
                let op = op(end, message.id);
                Oracle::bytes(op, message.len)
            }
            Request::Send(Header::Atomic(message, call)) => {
                let op = op(end, message.id);
                assert_eq!(message.len, call.payload());
                Oracle::bytes(op, message.len)
            }
            Request::Result { answer, id, len } => {
                let values = match end.session(peer).receive(answer) {
                    Some(Answered::Values(values)) => values.clone(),
                    Some(Answered::Serving(serving)) => Self::served(serving),
                    _ => panic!("an answer with values"),
                };
                request = Request::Send(Header::Result { id, len });
                self.oracle.count("result");
                values
            }
            Request::Rma { number, piece, .. } => {
                let op = op(end, number);
                match &self.oracle.ops[&op].kind {
                    Kind::Rma(rma) if rma.write => {
                        let (_, len) = rma.pieces[piece as usize];
                        Oracle::bytes(op ^ u64::from(piece) << 48, len)
                    }
                    _ => Vec::new(),
                }
            }
            Request::Read { .. } => {
                self.oracle.count("reading");
                Vec::new()
            }
            Request::Bye => {
                let last = self.qps.get_mut(&id).unwrap().inbound.shut();
                request = Request::Send(Header::Bye { last });
                Vec::new()
            }
            _ => Vec::new(),
        };
        self.post(id, work, request, payload);
    }

    /// Returns the parameters of a piece of an RMA operation.
    pub(crate) fn rma_of(&mut self, owner: Addr, peer: Addr, number: u64) -> Option<oracle::Rma> {
        let end = self.ends[owner].as_mut()?;
        let op = *end.session(peer).op(number)?;
        match &self.oracle.ops[&op].kind {
            Kind::Rma(rma) => Some(rma.clone()),
            _ => None,
        }
    }

    /// Returns an atomic of RC, and its operation.
    pub(crate) fn atomic_of(
        &mut self,
        owner: Addr,
        peer: Addr,
        number: u64,
    ) -> Option<(u64, oracle::Atomic)> {
        let end = self.ends[owner].as_mut()?;
        let op = *end.session(peer).op(number)?;
        match &self.oracle.ops[&op].kind {
            Kind::Atomic(atomic) => Some((op, atomic.clone())),
            _ => None,
        }
    }

    /// Makes room for the old values of an atomic of `owner`.
    pub(crate) fn expect_values(&mut self, owner: Addr, peer: Addr, id: u64, len: u32) -> Placing {
        self.moved_at.insert((owner, peer), self.now);
        let end = self.ends[owner].as_ref().unwrap();
        let op = end.numbers[&(peer, id)];
        let atomic = match &self.oracle.ops[&op].kind {
            Kind::Tagged(tagged) => return Self::expect_read(tagged, op, len),
            Kind::Atomic(atomic) => atomic,
            other => panic!("{other:?} gets no result"),
        };
        let call = atomic.call.expect("an atomic in a SEND");
        assert_eq!(call.result_len(), Some(len));
        Placing {
            at: Where::Values,
            op,
            message: None,
            source: Source::Atomic(call),
            bytes: vec![0; len as usize],
        }
    }

    /// Returns bytes that `owner` has offered to `reader`.
    pub(crate) fn granted(&mut self, owner: Addr, reader: Addr, grant: &Grant) -> Vec<u8> {
        let end = self.ends[owner].as_mut().unwrap();
        let op = end.session(reader).op(grant.id).copied();
        let op = op.expect("a message that has not ended");
        let len = match self.oracle.ops[&op].kind {
            Kind::Message { len, .. } => len,
            Kind::Tagged(tagged) if !tagged.rma.read => tagged.len,
            _ => panic!("it is a message or a tagged write"),
        };
        let from = grant.offset as usize;
        self.being_read.insert(op);
        self.moved_at.insert((owner, reader), self.now);
        Oracle::bytes(op, len)[from..from + grant.len as usize].to_vec()
    }

    /// Handles the completion of work.
    pub(crate) fn work_done(
        &mut self,
        owner: Addr,
        peer: Addr,
        conn: Conn,
        work: Work,
        done: WorkResult,
        data: Option<(Request, Vec<u8>)>,
    ) {
        let now = self.now;
        let Some(end) = &mut self.ends[owner] else {
            return;
        };
        let session = end.session(peer);
        match data {
            Some((Request::Read { answer, offset, .. }, data)) => {
                let filling = session.receive_mut(answer);
                let filling = filling.expect("a receive that is being filled").filling();
                let from = offset as usize;
                filling.bytes[from..from + data.len()].copy_from_slice(&data);
            }
            Some((Request::Rma { number, .. }, data)) => {
                let op = session.op(number).copied();
                assert!(op.is_some() && data.len() <= REGION);
            }
            _ => {}
        }
        let ended = session.done(now, conn, work, done);
        if let Some(ended) = ended {
            self.end_op(owner, peer, ended);
        }
    }

    pub(crate) fn end_op(&mut self, owner: Addr, peer: Addr, ended: Ended<u64, Answered>) {
        match ended {
            Ended::Op(op, result) => {
                let end = self.ends[owner].as_mut().unwrap();
                let (_, number) = end.open.remove(&op).unwrap();
                self.log(|| format!("{owner}-{peer}: operation {op} ends: {result:?}"));
                let names = |work: &Work| match work {
                    Work::Message(of) | Work::Atomic(of) | Work::Piece(of, _) => *of == number,
                    _ => false,
                };
                let is_queued = self
                    .qps
                    .values()
                    .filter(|qp| qp.owner == owner && qp.peer == peer)
                    .any(|qp| qp.queue.iter().any(|wqe| names(&wqe.work)));
                assert!(!is_queued, "{op} ends while a QP has it");
                self.op_ended(owner, op, result);
            }
            Ended::Receive(Answered::Values(_), _) => {}
            Ended::Receive(Answered::Serving(serving), result) => {
                let result = result.and(serving.fit.status());
                self.end_receive(owner, serving.rx.id, result);
            }
            Ended::Receive(Answered::Filling(filling), result) => {
                let Filling { rx, op, fit, bytes } = filling;
                match result {
                    Ok(()) => self.fill(owner, rx, op, fit, &bytes),
                    Err(error) => self.end_receive(owner, rx.id, Err(error)),
                }
            }
        }
    }

    fn op_ended(&mut self, owner: Addr, op: u64, result: Result) {
        let leaving = self.ends[owner].as_ref().is_some_and(|end| end.leaving);
        // The end is not reported then.
        if !leaving {
            self.oracle.ended(op, result);
        }
    }

    pub(crate) fn end_receive(&mut self, owner: Addr, id: u64, result: Result) {
        if let Some(end) = &mut self.ends[owner] {
            end.receives.remove(&id);
        }
        self.log(|| format!("{owner}: receive {id} ends: {result:?}"));
        self.op_ended(owner, id, result);
    }

    /// Places a message in a receive.
    pub(crate) fn fill(&mut self, owner: Addr, rx: Rx, op: u64, fit: Placement, bytes: &[u8]) {
        let expected = Oracle::bytes(op, fit.len as u32);
        assert!(bytes[..fit.len as usize] == expected, "wrong bytes of {op}");
        let incarnation = self.ends[owner].as_ref().unwrap().incarnation;
        self.oracle.received(op, incarnation);
        self.end_receive(owner, rx.id, fit.status());
    }

    /// Posts a message.
    pub(crate) fn send(&mut self, addr: Addr, peer: Addr, kind: Kind, fence: bool) {
        let Kind::Message {
            tag,
            data,
            len,
            delivery,
        } = kind
        else {
            return;
        };
        let now = self.now;
        let end = self.ends[addr].as_mut().unwrap();
        let op = self.oracle.posted(end.incarnation, kind);
        let out = Outgoing {
            tag,
            data,
            len,
            atomic: None,
            rma: None,
            delivery,
            fence,
        };
        let number = end.session(peer).send(now, out, op, ());
        end.numbers.insert((peer, number), op);
        end.open.insert(op, (peer, number));
        self.log(|| format!("{addr}-{peer}: operation {op} is number {number}: {out:?}"));
        self.pump(addr, peer);
    }

    /// Posts an RMA operation.
    pub(crate) fn transfer(&mut self, addr: Addr, peer: Addr, rma: oracle::Rma, fence: bool) {
        let now = self.now;
        let end = self.ends[addr].as_mut().unwrap();
        let transfer = Transfer {
            kind: if rma.write {
                RmaKind::Write(rma.data)
            } else {
                RmaKind::Read
            },
            len: rma.pieces.iter().map(|(_, len)| len).sum(),
            pieces: rma.pieces.len() as u32,
            fence,
        };
        let op = self.oracle.posted(end.incarnation, Kind::Rma(rma));
        let number = end.session(peer).rma(now, transfer, op, ());
        end.numbers.insert((peer, number), op);
        end.open.insert(op, (peer, number));
        self.log(|| format!("{addr}-{peer}: operation {op} is number {number}: {transfer:?}"));
        self.pump(addr, peer);
    }

    /// Posts an atomic.
    pub(crate) fn atomic(&mut self, addr: Addr, peer: Addr, atomic: oracle::Atomic, fence: bool) {
        let now = self.now;
        let end = self.ends[addr].as_mut().unwrap();
        let call = atomic.call;
        let op = self.oracle.posted(end.incarnation, Kind::Atomic(atomic));
        let session = end.session(peer);
        let number = match call {
            Some(call) => session.send(now, Outgoing::atomic(call, None, fence), op, ()),
            None => {
                let transfer = Transfer {
                    kind: RmaKind::Atomic,
                    len: 8,
                    pieces: 1,
                    fence,
                };
                session.rma(now, transfer, op, ())
            }
        };
        end.numbers.insert((peer, number), op);
        end.open.insert(op, (peer, number));
        self.log(|| format!("{addr}-{peer}: operation {op} is number {number}: {call:?}"));
        self.pump(addr, peer);
    }

    /// Cancels an operation.
    pub(crate) fn cancel(&mut self, addr: Addr, op: u64) {
        let now = self.now;
        let end = self.ends[addr].as_mut().unwrap();
        let (peer, number) = end.open[&op];
        let cancelled = end.session(peer).cancel(now, number);
        self.log(|| format!("{addr}-{peer}: operation {op} cancelled: {cancelled:?}"));
        if let Cancelled::Ended(of) = cancelled {
            assert_eq!(of, op);
            let ended = Ended::Op(op, Err(Errno::ECANCELED));
            self.end_op(addr, peer, ended);
        }
        self.pump(addr, peer);
    }

    /// Removes an endpoint without telling its peers.
    pub(crate) fn crash(&mut self, addr: Addr) {
        if self.ends[addr].is_some() {
            self.log(|| format!("{addr}: dies"));
            self.oracle.count("crash");
            self.forget_calls(addr);
            self.remove(addr);
        }
    }

    fn remove(&mut self, addr: Addr) {
        if let Some(end) = self.ends[addr].take() {
            self.log(|| format!("{addr}: gone"));
            self.oracle.gone(end.incarnation);
        }
    }

    /// Closes an endpoint.
    pub(crate) fn close(&mut self, addr: Addr) {
        let now = self.now;
        let Some(end) = self.ends[addr].as_mut().filter(|end| !end.leaving) else {
            return;
        };
        end.leaving = true;
        let peers: Vec<Addr> = end.sessions.keys().copied().collect();
        self.log(|| format!("{addr}: closes"));
        self.oracle.count("close");
        for peer in &peers {
            if let Some(end) = &mut self.ends[addr] {
                if let Some(session) = end.sessions.get_mut(peer) {
                    session.leave(now);
                    self.pump(addr, *peer);
                }
            }
        }
        if let Some(end) = &self.ends[addr] {
            if end.sessions.is_empty() {
                self.remove(addr);
            }
        }
    }
}
