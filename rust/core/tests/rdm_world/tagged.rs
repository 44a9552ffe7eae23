// SPDX-License-Identifier: GPL-2.0
//! Tagged RMA: writes and reads of the memory of posted receives.

use kfi_core::{
    errno::Errno,
    matching::{
        Envelope,
        Placement, //
    },
    op::TaggedRma,
    rdm::{
        header::{
            FinStatus,
            Message, //
        },
        inbound::Source,
        ops::Outgoing,
        session::Conn,
        Due, //
    }, //
};

use super::{
    end::{
        Answered,
        Filling,
        Placing,
        Serving,
        Where, //
    },
    oracle::{
        Kind,
        Oracle,
        Tagged, //
    },
    Addr,
    World, //
};

impl World {
    /// Posts a tagged write or read.
    pub(crate) fn tagged(&mut self, addr: Addr, peer: Addr, tagged: Tagged, fence: bool) -> u64 {
        let now = self.now;
        let end = self.ends[addr].as_mut().unwrap();
        let out = Outgoing {
            tag: Some(tagged.tag),
            data: None,
            len: tagged.len,
            atomic: None,
            rma: Some(tagged.rma),
            delivery: false,
            fence,
        };
        let op = self.oracle.posted(end.incarnation, Kind::Tagged(tagged));
        let number = end.session(peer).send(now, out, op, ());
        end.numbers.insert((peer, number), op);
        end.open.insert(op, (peer, number));
        self.log(|| format!("{addr}-{peer}: operation {op} is number {number}: {out:?}"));
        self.pump(addr, peer);
        op
    }

    /// Handles the beginning of tagged RMA, which does not wait for a receive.
    pub(crate) fn offer_tagged(
        &mut self,
        addr: Addr,
        peer: Addr,
        op: u64,
        message: &Message,
        source: Source,
    ) -> Placing {
        let tagged = Tagged {
            tag: message.tag.expect("a tag"),
            len: message.len,
            rma: source.tagged_rma().expect("tagged RMA"),
        };
        assert_eq!(self.oracle.ops[&op].kind, Kind::Tagged(tagged));
        let end = self.ends[addr].as_mut().unwrap();
        let incarnation = end.incarnation;
        let envelope = Envelope {
            src: peer,
            tag: tagged.tag,
        };
        let at = match end.pair(true).take(&envelope) {
            Some(rx) => Where::Receive(rx),
            None => Where::Nowhere,
        };
        self.log(|| format!("{peer}-{addr}: {op} taken, {at:?}, number {}", message.id));
        self.oracle.arrived(op, incarnation);
        Placing {
            at,
            op,
            message: Some(*message),
            source,
            bytes: Vec::new(),
        }
    }

    /// Handles the end of the SEND of tagged RMA.
    pub(crate) fn tagged_arrived(
        &mut self,
        addr: Addr,
        peer: Addr,
        conn: Conn,
        rma: TaggedRma,
        placing: Placing,
    ) {
        let Placing { at, op, source, .. } = placing;
        let message = placing.message.expect("a message");
        let mut due = Due {
            conn,
            id: message.id,
            status: FinStatus::Received,
            read: None,
            result: None,
        };
        let mut answered = None;
        match at {
            Where::Receive(rx) => {
                let room = u64::from(rx.room.saturating_sub(rma.offset));
                let fit = Placement::new(u64::from(message.len), room);
                let len = fit.len as u32;
                if rma.read {
                    let incarnation = self.ends[addr].as_ref().unwrap().incarnation;
                    self.oracle.received(op, incarnation);
                    due.result = Some(len);
                    answered = Some(Answered::Serving(Serving { rx, op, fit }));
                } else {
                    if fit.olen > 0 {
                        due.status = FinStatus::Truncated;
                    }
                    if len == 0 {
                        self.fill(addr, rx, op, fit, &[]);
                    } else {
                        let at = source.at().expect("the memory of a write");
                        due.read = Some((at, len));
                        let bytes = vec![0; len as usize];
                        answered = Some(Answered::Filling(Filling { rx, op, fit, bytes }));
                    }
                }
            }
            Where::Nowhere => due.status = FinStatus::NoReceive,
            _ => panic!("tagged RMA does not wait"),
        }
        let now = self.now;
        let end = self.ends[addr].as_mut().unwrap();
        let share = end.shares.entry(peer).or_default().clone();
        if let Some(answered) = end.session(peer).answer(now, due, answered, share) {
            let id = answered.rx().expect("a receive").id;
            self.end_receive(addr, id, Err(Errno::ECONNRESET));
        }
        self.pump(addr, peer);
    }

    /// Makes room for the bytes of a tagged read of an endpoint.
    pub(crate) fn expect_read(tagged: &Tagged, op: u64, len: u32) -> Placing {
        assert!(tagged.rma.read && len <= tagged.len);
        Placing {
            at: Where::Values,
            op,
            message: None,
            source: Source::TaggedRead(tagged.rma.offset),
            bytes: vec![0; len as usize],
        }
    }

    /// Returns the bytes that a tagged read gets.
    pub(crate) fn served(serving: &Serving) -> Vec<u8> {
        Oracle::values(serving.op, serving.fit.len as u32)
    }
}
