// SPDX-License-Identifier: GPL-2.0
//! The oracle: every operation ends once; a message is received at most once, completely and in
//! order, and exactly once if its sender was told so; an atomic is executed at most once, and
//! exactly once if its initiator was told so.

use std::collections::BTreeMap;

use kfi_core::{
    errno::{
        Errno,
        Result, //
    },
    op::TaggedRma,
    rdm::atomic::Call, //
};

use super::rng::bytes;

/// The kind of an operation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    Message {
        tag: Option<u64>,
        data: Option<u64>,
        len: u32,
        delivery: bool,
    },
    Rma(Rma),
    Tagged(Tagged),
    Atomic(Atomic),
    Receive,
    Search,
}

/// An atomic.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Atomic {
    /// The atomic in a SEND; `None`: it is one of RC.
    pub(crate) call: Option<Call>,
    pub(crate) key: u32,
}

/// Tagged RMA.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tagged {
    pub(crate) tag: u64,
    pub(crate) len: u32,
    pub(crate) rma: TaggedRma,
}

/// An RMA operation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rma {
    pub(crate) write: bool,
    pub(crate) key: u32,
    /// The offset and length of each piece.
    pub(crate) pieces: Vec<(u64, u32)>,
    pub(crate) data: Option<u64>,
}

/// An operation.
#[derive(Debug)]
pub(crate) struct Op {
    pub(crate) incarnation: u64,
    pub(crate) kind: Kind,
    /// The result; `None` if the operation has not ended.
    pub(crate) end: Option<Result>,
    /// The endpoint has gone, so the operation will not end.
    pub(crate) void: bool,
    /// For a receive, the message; for a message, the incarnation that received it.
    seen: Option<u64>,
}

/// The oracle. See the top of the file.
#[derive(Default)]
pub(crate) struct Oracle {
    pub(crate) ops: BTreeMap<u64, Op>,
    next: u64,
    open: u64,
    /// The last message that was taken, by the incarnations of sender and receiver.
    last: BTreeMap<(u64, u64), u64>,
    /// The same for RMA and atomics.
    accesses: BTreeMap<(u64, u64), u64>,
    /// The CQ data of WRITEs that arrived, with their counts.
    notes: BTreeMap<u64, u64>,
    /// The incarnations that have ended.
    ended: Vec<u64>,
    /// How often each event happened.
    pub(crate) counts: BTreeMap<String, u64>,
}

impl Oracle {
    pub(crate) fn count(&mut self, what: &str) {
        *self.counts.entry(what.into()).or_default() += 1;
    }

    pub(crate) fn posted(&mut self, incarnation: u64, kind: Kind) -> u64 {
        self.next += 1;
        self.open += u64::from(kind != Kind::Receive);
        self.ops.insert(
            self.next,
            Op {
                incarnation,
                kind,
                end: None,
                void: false,
                seen: None,
            },
        );
        self.next
    }

    /// Removes an operation that was not accepted.
    pub(crate) fn unpost(&mut self, id: u64) {
        let op = self.ops.remove(&id).unwrap();
        self.open -= u64::from(op.kind != Kind::Receive);
    }

    pub(crate) fn ended(&mut self, id: u64, result: Result) {
        let op = self.ops.get_mut(&id).unwrap();
        assert_eq!(op.end, None, "{op:?} ends twice");
        assert!(!op.void, "{op:?} ends after its endpoint");
        op.end = Some(result);
        self.open -= u64::from(op.kind != Kind::Receive);
        let name = match &op.kind {
            Kind::Message { .. } => "send",
            Kind::Rma(_) => "rma",
            Kind::Tagged(tagged) if tagged.rma.read => "tagged read",
            Kind::Tagged(_) => "tagged write",
            Kind::Atomic(Atomic { call: None, .. }) => "rc atomic",
            Kind::Atomic(_) => "atomic",
            Kind::Receive => "receive",
            Kind::Search => "search",
        };
        let text = match result {
            Ok(()) => "ok".into(),
            Err(error) => format!("{error:?}"),
        };
        self.count(&format!("{name}: {text}"));
    }

    /// Records that an endpoint has gone with its unfinished operations.
    pub(crate) fn gone(&mut self, incarnation: u64) {
        self.ended.push(incarnation);
        for op in self.ops.values_mut() {
            if op.incarnation == incarnation && op.end.is_none() && !op.void {
                op.void = true;
                self.open -= u64::from(op.kind != Kind::Receive);
            }
        }
    }

    /// Records that the message of operation `id` was taken at its target.
    pub(crate) fn arrived(&mut self, id: u64, target: u64) {
        let op = &self.ops[&id];
        let last = self.last.entry((op.incarnation, target)).or_default();
        assert!(*last < id, "{op:?} came behind {last}");
        *last = id;
    }

    /// Records that an RMA operation or an atomic accesses the memory of `target`.
    pub(crate) fn accesses(&mut self, id: u64, target: u64) {
        let op = &self.ops[&id];
        let pair = (op.incarnation, target);
        let last = self.accesses.entry(pair).or_default();
        assert!(*last <= id, "{op:?} came behind {last}");
        *last = id;
        let message = self.last.get(&pair).copied().unwrap_or(0);
        assert!(message < id, "{op:?} came behind the message {message}");
    }

    /// Records that `target` executed an atomic.
    pub(crate) fn executed(&mut self, id: u64, target: u64) {
        self.accesses(id, target);
        let op = self.ops.get_mut(&id).unwrap();
        assert_eq!(op.seen, None, "{op:?} is executed twice");
        op.seen = Some(target);
        let is_over = matches!(op.end, Some(Ok(()) | Err(Errno::ECANCELED | Errno::EACCES)));
        assert!(!is_over, "{op:?} has ended and is executed");
        self.count("executed");
    }

    /// Returns the old values of an atomic.
    pub(crate) fn values(id: u64, len: u32) -> Vec<u8> {
        bytes(!id, len as usize)
    }

    /// Records that `target` received or discarded the message.
    pub(crate) fn received(&mut self, id: u64, target: u64) {
        let op = self.ops.get_mut(&id).unwrap();
        assert_eq!(op.seen, None, "{op:?} is received twice");
        op.seen = Some(target);
        let cancelled = op.end == Some(Err(Errno::ECANCELED));
        assert!(!cancelled, "{op:?} was cancelled and is received");
        self.count("received");
    }

    /// Records the CQ data of a WRITE.
    pub(crate) fn noted(&mut self, data: u64) {
        *self.notes.entry(data).or_default() += 1;
    }

    /// Returns the bytes of a message.
    pub(crate) fn bytes(id: u64, len: u32) -> Vec<u8> {
        bytes(id, len as usize)
    }

    /// Returns whether all operations except receives have ended.
    pub(crate) fn is_settled(&self) -> bool {
        self.open == 0
    }

    pub(crate) fn check_settled(&self) {
        for (id, op) in &self.ops {
            let done = op.end.is_some() || op.void || op.kind == Kind::Receive;
            assert!(done, "operation {id} never ends: {op:?}");
        }
    }

    /// Checks the results of a run without faults.
    pub(crate) fn check_no_failure(&self) {
        for (id, op) in &self.ops {
            // EACCES: the peer lacks the capability.
            let fine = matches!(
                op.end,
                None | Some(Ok(()))
                    | Some(Err(Errno::ECANCELED
                        | Errno::EACCES
                        | Errno::EMSGSIZE
                        | Errno::ENOMSG
                        // No receive has the tag.
                        | Errno::EREMOTEIO
                        | Errno::KFI_ETRUNC))
            );
            assert!(fine, "{id} failed without a reason: {op:?}");
        }
    }

    /// Checks the results of any run.
    pub(crate) fn check(&self) {
        assert!(self.notes.values().all(|times| *times == 1));
        for (id, op) in &self.ops {
            if let (Kind::Rma(rma), Some(Ok(()))) = (&op.kind, op.end) {
                if let Some(data) = rma.data {
                    assert!(self.notes.contains_key(&data), "the data of {id} is lost");
                }
            }
            if let Kind::Atomic(_) = op.kind {
                match op.end {
                    Some(Ok(())) => assert!(op.seen.is_some(), "{id} was not executed: {op:?}"),
                    Some(Err(Errno::ECANCELED | Errno::EACCES)) => {
                        assert_eq!(op.seen, None, "{id} was executed: {op:?}");
                    }
                    // It may have been executed.
                    _ => {}
                }
            }
            if let Kind::Tagged(_) = op.kind {
                match op.end {
                    Some(Ok(()) | Err(Errno::EMSGSIZE)) => {
                        assert!(op.seen.is_some(), "{id} found no receive: {op:?}");
                    }
                    Some(Err(Errno::ECANCELED | Errno::EREMOTEIO)) => {
                        assert_eq!(op.seen, None, "{id} found a receive: {op:?}");
                    }
                    _ => {}
                }
            }
            let Kind::Message { delivery, len, .. } = op.kind else {
                continue;
            };
            let delivered = delivery || u64::from(len) > kfi_core::limits::EAGER_SIZE;
            match op.end {
                Some(Ok(())) if delivered => {
                    assert!(
                        op.seen.is_some(),
                        "{id} was delivered, not received: {op:?}"
                    );
                }
                // The message may be in the buffer of an endpoint that has gone.
                Some(Ok(())) => {
                    let gone = self
                        .last
                        .keys()
                        .any(|(from, to)| *from == op.incarnation && self.ended.contains(to));
                    assert!(op.seen.is_some() || gone, "{id} is lost: {op:?}");
                }
                Some(Err(Errno::ECANCELED)) => {
                    assert_eq!(op.seen, None, "{id} was cancelled, received: {op:?}");
                }
                _ => {}
            }
        }
    }
}
