// SPDX-License-Identifier: GPL-2.0
//! Matching of messages with receives.

use kfi_core::{
    errno::Errno,
    matching::{
        unexpected::{
            Answer as Found,
            Message as Known,
            Search, //
        },
        Criteria,
        Envelope,
        Placement, //
    },
    rdm::{
        header::{
            FinStatus,
            Message,
            RemoteAddr, //
        },
        inbound::{
            CancelState,
            Event,
            Source, //
        },
        session::Conn,
        Due, //
    }, //
};

use super::{
    end::{
        Answered,
        Filling,
        Held,
        Placing,
        Rx,
        Where,
        KEY, //
    },
    oracle::{
        Kind,
        Oracle, //
    },
    Addr,
    World, //
};

/// The endpoint refuses an access.
pub(crate) struct Refused;

fn envelope_of(message: &Message, src: Addr) -> Envelope<Addr> {
    let tag = message.tag.unwrap_or(0);
    Envelope { src, tag }
}

impl World {
    /// Handles the beginning of a message. Returns `None` if there is no room for it.
    pub(crate) fn offer(
        &mut self,
        addr: Addr,
        peer: Addr,
        message: &Message,
        source: Source,
    ) -> Option<Placing> {
        let sender = self.ends[peer].as_ref().unwrap();
        let op = sender.numbers[&(addr, message.id)];
        if let Source::Atomic(_) = source {
            return self.offer_atomic(addr, peer, op, message, source);
        }
        if source.tagged_rma().is_some() {
            return Some(self.offer_tagged(addr, peer, op, message, source));
        }
        let sent = &self.oracle.ops[&op].kind;
        let (tag, data, len) = (message.tag, message.data, message.len);
        assert!(
            matches!(sent, Kind::Message { tag: t, data: d, len: l, .. }
                if *t == tag && *d == data && *l == len),
            "{message:?} is not {sent:?}"
        );
        let eager = source == Source::Eager;
        let charge = if eager { u64::from(len) } else { 0 };
        let end = self.ends[addr].as_mut().unwrap();
        let incarnation = end.incarnation;
        let envelope = envelope_of(message, peer);
        let pair = end.pair(tag.is_some());
        let at = match pair.take(&envelope) {
            Some(rx) => Where::Receive(rx),
            None => {
                if pair.unexpected.len() + pair.reserved >= pair.room
                    || end.pairs[0].unexpected.charge(charge).is_err()
                {
                    return None;
                }
                end.pair(tag.is_some()).reserved += 1;
                Where::Unexpected
            }
        };
        self.log(|| format!("{peer}-{addr}: {op} taken, {at:?}, number {}", message.id));
        self.oracle.arrived(op, incarnation);
        Some(Placing {
            at,
            op,
            message: Some(*message),
            source,
            bytes: vec![0; charge as usize],
        })
    }

    /// Handles the beginning of an atomic. Returns `None` if there is no memory for it.
    fn offer_atomic(
        &mut self,
        addr: Addr,
        peer: Addr,
        op: u64,
        message: &Message,
        source: Source,
    ) -> Option<Placing> {
        if !self.draining && self.rng.one_in(self.plan.no_room) {
            self.oracle.count("no room");
            return None;
        }
        let end = self.ends[addr].as_mut().unwrap();
        let share = message
            .finish
            .then(|| end.shares.entry(peer).or_default().clone());
        Some(Placing {
            at: Where::Atomic(share),
            op,
            message: Some(*message),
            source,
            bytes: vec![0; message.len as usize],
        })
    }

    /// Executes an atomic that has come completely, or refuses it.
    pub(crate) fn execute_atomic(
        &mut self,
        addr: Addr,
        peer: Addr,
        conn: Conn,
        placing: Placing,
    ) -> Result<(), Refused> {
        let Placing {
            at: Where::Atomic(share),
            op,
            message: Some(message),
            source: Source::Atomic(call),
            bytes,
        } = placing
        else {
            panic!("it is an atomic");
        };
        assert!(
            bytes == Oracle::bytes(op, message.len),
            "wrong operands of {op}"
        );
        let Kind::Atomic(atomic) = &self.oracle.ops[&op].kind else {
            panic!("it is an atomic");
        };
        assert_eq!(atomic.call, Some(call));
        if atomic.key != KEY {
            return Err(Refused);
        }
        let now = self.now;
        let end = self.ends[addr].as_mut().unwrap();
        self.oracle.executed(op, end.incarnation);
        if let Some(share) = share {
            let len = call.result_len().expect("an answer");
            let due = Due {
                conn,
                id: message.id,
                status: FinStatus::Received,
                read: None,
                result: Some(len),
            };
            let values = Answered::Values(Oracle::values(op, len));
            // If the connection has gone, the values are dropped.
            let _ = end.session(peer).answer(now, due, Some(values), share);
        }
        self.pump(addr, peer);
        Ok(())
    }

    /// Handles the end of a message.
    pub(crate) fn arrived(&mut self, addr: Addr, peer: Addr, conn: Conn, placing: Placing) {
        if let Some(rma) = placing.source.tagged_rma() {
            return self.tagged_arrived(addr, peer, conn, rma, placing);
        }
        let Placing {
            at,
            op,
            message,
            source,
            bytes,
        } = placing;
        let message = message.expect("a message");
        let tagged = message.tag.is_some();
        let id = message.id;
        let envelope = envelope_of(&message, peer);
        let fin = message.finish.then_some((conn, id));
        let held = match source {
            Source::Eager => Held::Here { op, bytes, fin },
            Source::Rts(addr_of_bytes) => Held::There {
                op,
                conn,
                id,
                addr_of_bytes,
            },
            Source::Atomic(_) | Source::TaggedWrite(..) | Source::TaggedRead(_) => {
                panic!("it does not wait for a receive")
            }
        };
        let known = Known {
            envelope,
            len: u64::from(message.len),
            data: message.data,
            charged: match &held {
                Held::Here { bytes, .. } => bytes.len() as u64,
                Held::There { .. } => 0,
            },
        };
        let rx = match at {
            Where::Atomic(_) | Where::Values | Where::Nowhere => panic!("it is not matched"),
            Where::Receive(rx) => Some((rx, 0)),
            Where::Unexpected => {
                let end = self.ends[addr].as_mut().unwrap();
                let pair = end.pair(tagged);
                pair.reserved -= 1;
                // A receive may have been posted in the meantime.
                pair.take(&envelope).map(|rx| (rx, known.charged))
            }
        };
        match rx {
            Some((rx, charged)) => {
                self.pass_to_receive(addr, rx, &known, held);
                let end = self.ends[addr].as_mut().unwrap();
                end.pairs[0].unexpected.uncharge(charged);
            }
            None => {
                let end = self.ends[addr].as_mut().unwrap();
                assert!(end.pair(tagged).unexpected.arrive(known, held).is_ok());
                assert!(end.pairs[0].unexpected.charged() <= self.plan.budget);
            }
        }
        self.pump(addr, peer);
    }

    /// Passes a message to a receive.
    fn pass_to_receive(&mut self, addr: Addr, rx: Rx, known: &Known<Addr>, held: Held) {
        let peer = known.envelope.src;
        let fit = Placement::new(known.len, u64::from(rx.room));
        match held {
            Held::Here { op, bytes, fin } => {
                self.fill(addr, rx, op, fit, &bytes);
                if let Some((conn, id)) = fin {
                    self.answer(addr, peer, conn, id, FinStatus::Received, None, None);
                }
            }
            Held::There {
                op,
                conn,
                id,
                addr_of_bytes,
            } => {
                let len = fit.len as u32;
                if len == 0 {
                    self.fill(addr, rx, op, fit, &[]);
                    self.answer(addr, peer, conn, id, FinStatus::Received, None, None);
                    return;
                }
                let bytes = vec![0; len as usize];
                let filling = Filling { rx, op, fit, bytes };
                let read = Some((addr_of_bytes, len));
                self.answer(
                    addr,
                    peer,
                    conn,
                    id,
                    FinStatus::Received,
                    read,
                    Some(filling),
                );
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of an answer")]
    fn answer(
        &mut self,
        addr: Addr,
        peer: Addr,
        conn: Conn,
        id: u64,
        status: FinStatus,
        read: Option<(RemoteAddr, u32)>,
        filling: Option<Filling>,
    ) {
        let now = self.now;
        let due = Due {
            conn,
            id,
            status,
            read,
            result: None,
        };
        let end = self.ends[addr].as_mut().unwrap();
        let share = end.shares.entry(peer).or_default().clone();
        let filling = filling.map(Answered::Filling);
        if let Some(mut filling) = end.session(peer).answer(now, due, filling, share) {
            let filling = filling.filling();
            let id = filling.rx.id;
            self.end_receive(addr, id, Err(Errno::ECONNRESET));
        }
    }

    /// Handles an event from the peer.
    pub(crate) fn handle_event(&mut self, addr: Addr, peer: Addr, conn: Conn, event: Event) {
        self.log(|| format!("{peer}-{addr}: {conn:?} {event:?}"));
        let now = self.now;
        match event {
            Event::Cancel { id, found } => {
                let status = match found {
                    CancelState::Never => Some(FinStatus::Withdrawn),
                    CancelState::Received => Some(FinStatus::Received),
                    CancelState::Taken => self
                        .withdraw(addr, peer, conn, id)
                        .then_some(FinStatus::Withdrawn),
                };
                if let Some(status) = status {
                    self.answer(addr, peer, conn, id, status, None, None);
                }
            }
            Event::Note { len: _, data } => {
                self.oracle.noted(data);
            }
            _ => {
                let end = self.ends[addr].as_mut().unwrap();
                if let Some(ended) = end.session(peer).event(now, conn, event) {
                    self.end_op(addr, peer, ended);
                }
            }
        }
        self.pump(addr, peer);
    }

    /// Withdraws a message that waits for its receive.
    fn withdraw(&mut self, addr: Addr, peer: Addr, conn: Conn, id: u64) -> bool {
        let end = self.ends[addr].as_mut().unwrap();
        for tagged in [false, true] {
            let is_it = |held: &Held| match held {
                Held::Here { fin, .. } => *fin == Some((conn, id)),
                Held::There {
                    conn: of, id: no, ..
                } => *of == conn && *no == id,
            };
            // Connections of different peers may have the same identifier.
            let mut others = Vec::new();
            let mut found = false;
            while let Some((known, held)) = end.pair(tagged).unexpected.withdraw(is_it) {
                if known.envelope.src == peer {
                    end.pairs[0].unexpected.uncharge(known.charged);
                    found = true;
                } else {
                    others.push((known, held));
                }
            }
            for (known, held) in others {
                assert!(end.pair(tagged).unexpected.arrive(known, held).is_ok());
            }
            if found {
                return true;
            }
        }
        false
    }

    /// Posts a receive, or searches.
    pub(crate) fn receive(
        &mut self,
        addr: Addr,
        tagged: bool,
        search: Search,
        want: &Criteria<Addr>,
        rx: Rx,
    ) {
        let end = self.ends[addr].as_mut().unwrap();
        // A context that has claimed a message is known.
        let context = match search {
            Search::Claim | Search::ClaimDiscard => end.claims.first().copied().unwrap_or(0),
            _ => rx.id,
        };
        let pair = end.pair(tagged);
        match pair.unexpected.receive(search, want, context) {
            Found::Post => {
                if pair.posted.post(*want, rx).is_err() {
                    self.oracle.unpost(rx.id);
                } else {
                    end.receives.insert(rx.id);
                }
            }
            Found::Received(known, held) => {
                end.claims.retain(|claim| *claim != context);
                let charged = known.charged;
                self.pass_to_receive(addr, rx, &known, held);
                let end = self.ends[addr].as_mut().unwrap();
                end.pairs[0].unexpected.uncharge(charged);
                self.pump(addr, known.envelope.src);
            }
            Found::Found(_) => {
                if search == Search::PeekClaim {
                    end.claims.push(context);
                }
                self.end_receive(addr, rx.id, Ok(()));
            }
            Found::Discarded(known, held) => {
                end.claims.retain(|claim| *claim != context);
                end.pairs[0].unexpected.uncharge(known.charged);
                let incarnation = end.incarnation;
                let peer = known.envelope.src;
                let (op, fin) = match held {
                    Held::Here { op, fin, .. } => (op, fin),
                    Held::There { op, conn, id, .. } => (op, Some((conn, id))),
                };
                self.oracle.received(op, incarnation);
                self.oracle.count("discarded");
                if let Some((conn, id)) = fin {
                    self.answer(addr, peer, conn, id, FinStatus::Received, None, None);
                }
                self.end_receive(addr, rx.id, Ok(()));
                self.pump(addr, peer);
            }
            Found::NoMessage => self.end_receive(addr, rx.id, Err(Errno::ENOMSG)),
            Found::NotClaimed => {
                // The connection of the claimed message has gone, and the message with it.
                end.claims.retain(|claim| *claim != context);
                self.oracle.unpost(rx.id);
            }
        }
    }

    /// Cancels a receive.
    pub(crate) fn cancel_receive(&mut self, addr: Addr, id: u64) -> bool {
        let end = self.ends[addr].as_mut().unwrap();
        let is_it = |rx: &Rx| rx.id == id;
        let found = end.pairs[0]
            .posted
            .cancel(is_it)
            .or_else(|| end.pairs[1].posted.cancel(is_it));
        let found = found.is_some();
        if found {
            self.end_receive(addr, id, Err(Errno::ECANCELED));
        }
        found
    }
}
