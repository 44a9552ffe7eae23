// SPDX-License-Identifier: GPL-2.0

//! Operations of an endpoint and a peer on another host: transmits, receives that are being filled, and
//! what is owed to the peer for its messages.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use kfi_core::{
    errno::Errno,
    prov_errno,
    rdm::{
        header::{
            Fate,
            Place as RemotePlace, //
        },
        ops,
        session::Conn,
        Due, //
    }, //
};
use kfi_roce::rc::Status;

use super::super::super::{
    complete::{
        Failure,
        Outcome,
        Ticket, //
    },
    op::{
        Remote,
        RemoteRange, //
    },
    receive::{
        Message,
        Place, //
    },
    Bound,
    Endpoint, //
};
use super::{
    owing::Share,
    session::Session,
    store::{
        slot,
        AnswerSlot,
        ANSWER_BYTES, //
    }, //
};
use crate::mem::MemRef;

/// The memory of a peer's that RMA names.
pub(super) struct Target {
    /// Whether it is read, not written.
    pub(super) read: bool,
    pub(super) remote: Remote,
}

/// A transmit under way.
pub(in crate::provider::ep) struct Transmit {
    pub(super) ticket: Ticket,
    /// What is sent or written, or where goes what is read.
    pub(super) memory: MemRef,
    /// For RMA.
    pub(super) target: Option<Target>,
    /// The number under which the peer may read the memory, if it may.
    pub(super) grant: Option<u64>,
}

impl Transmit {
    /// Bytes of kernel memory that one takes at most while it is under way.
    pub(in crate::provider::ep) const BYTES: usize =
        size_of::<ops::Send<Self>>() + size_of::<MemRef>() + kfi_core::limits::INJECT_SIZE + 128;

    /// The peer's part of a piece of RMA, and this host's.
    pub(super) fn piece(&self, piece: u32) -> Option<(RemoteRange, MemRef)> {
        let pieces = self.target.as_ref()?.remote.pieces();
        let index = piece as usize;
        let range = *pieces.get(index)?;
        // The sum of all lengths is the length of the memory.
        let before = pieces
            .get(..index)?
            .iter()
            .fold(0usize, |sum, piece| sum.wrapping_add(piece.len as usize));
        Some((range, self.memory.slice(before, range.len as usize)))
    }
}

/// A receive that is being filled with bytes that are read from the peer's memory.
pub(in crate::provider::ep) struct Filling {
    pub(super) place: Place,
    pub(super) message: Message,
}

impl Filling {
    /// A part of its memory.
    pub(super) fn memory(&self, offset: u32, len: u32) -> MemRef {
        self.place.memory().slice(offset as usize, len as usize)
    }
}

/// What a peer is owed for a message of its own: a FIN, and before it the reading of the bytes, if they
/// are still with the peer.
pub(in crate::provider::ep) struct Owed(KBox<Debt>);

struct Debt {
    session: Arc<Session>,
    conn: Conn,
    id: u64,
    /// Where the bytes are, if they are not here.
    at: Option<RemotePlace>,
    slot: AnswerSlot,
}

impl Owed {
    /// Bytes that one takes.
    const BYTES: usize = size_of::<Debt>() + ANSWER_BYTES;

    /// What is owed for message `id`, which came over `conn`. `ENOMEM`, also if it would be more than the
    /// endpoint's owner may have. Sleeps.
    pub(super) fn new(
        session: &Arc<Session>,
        conn: Conn,
        id: u64,
        at: Option<RemotePlace>,
    ) -> Result<Self> {
        let budget = &session.endpoint().ident.budget;
        let share = session.owing.share(budget, Self::BYTES)?;
        Self::with(share, session, conn, id, at)
    }

    /// What is owed for a CANCEL of message `id`, which came over `conn`. `ENOMEM`: the host has none.
    /// Sleeps.
    pub(super) fn for_cancel(session: &Arc<Session>, conn: Conn, id: u64) -> Result<Self> {
        let budget = &session.endpoint().ident.budget;
        let share = session.owing.share_of_cancel(budget, Self::BYTES);
        Self::with(share, session, conn, id, None)
    }

    fn with(
        share: Share,
        session: &Arc<Session>,
        conn: Conn,
        id: u64,
        at: Option<RemotePlace>,
    ) -> Result<Self> {
        // In a worker, or in a task of the sender's user.
        session.endpoint().ident.owner.memcg().charge(|| {
            let debt = Debt {
                session: session.clone(),
                conn,
                id,
                at,
                slot: slot(share)?,
            };
            Ok(Self(KBox::new(debt, GFP_KERNEL_ACCOUNT)?))
        })
    }

    /// Whether it is owed to this session's peer for a message of this connection; of this number, if
    /// there is one.
    pub(in crate::provider::ep) fn is_of(
        &self,
        session: &Arc<Session>,
        conn: Conn,
        id: Option<u64>,
    ) -> bool {
        Arc::ptr_eq(&self.0.session, session)
            && self.0.conn == conn
            && id.is_none_or(|id| id == self.0.id)
    }

    /// Whether the bytes are still with the peer.
    pub(in crate::provider::ep) fn is_away(&self) -> bool {
        self.0.at.is_some()
    }

    /// The message has been received, or nobody wants it.
    pub(in crate::provider::ep) fn finish(self) -> Reply {
        Reply {
            owed: self,
            fate: Fate::Received,
            filling: None,
        }
    }

    /// The message has been taken back.
    pub(in crate::provider::ep) fn withdraw(self) -> Reply {
        Reply {
            owed: self,
            fate: Fate::Withdrawn,
            filling: None,
        }
    }

    /// Its bytes are to be read into `place` first.
    pub(in crate::provider::ep) fn fill(self, place: Place, message: Message) -> Reply {
        Reply {
            owed: self,
            fate: Fate::Received,
            filling: Some(Filling { place, message }),
        }
    }
}

/// An answer to the peer.
#[must_use = "the peer waits for it"]
pub(in crate::provider::ep) struct Reply {
    owed: Owed,
    fate: Fate,
    filling: Option<Filling>,
}

impl Reply {
    /// Gives it. Sleeps; no lock is held.
    pub(in crate::provider::ep) fn give(self) {
        let session = self.owed.0.session.clone();
        session.answer(self);
    }

    /// What the protocol wants of it.
    pub(super) fn into_parts(self) -> (Due, Option<Filling>, AnswerSlot) {
        let Self {
            owed,
            fate,
            filling,
        } = self;
        let Debt {
            conn, id, at, slot, ..
        } = KBox::into_inner(owed.0);
        let read = at.zip(filling.as_ref()).map(|(at, filling)| {
            let fit = filling.place.fit(filling.message.len);
            // A message has at most 2^30 bytes.
            (at, fit.len as u32)
        });
        let due = Due {
            conn,
            id,
            fate,
            read,
        };
        (due, filling, slot)
    }
}

/// What is told of an error of a remote operation.
fn failed(errno: Errno) -> Outcome {
    let mut outcome = Outcome::failed(errno);
    let status = match errno {
        Errno::EACCES => Status::RemoteAccess,
        Errno::ETIMEDOUT => Status::RetryExceeded,
        Errno::EMSGSIZE => Status::LocalLength,
        _ => return outcome,
    };
    if let Some((_, prov_errno)) = prov_errno::of_transmit(status) {
        outcome.error = Some(Failure {
            errno,
            prov_errno,
            olen: 0,
        });
    }
    outcome
}

impl Endpoint {
    /// A transmit has ended; while the endpoint closes, nothing is told. Sleeps.
    pub(super) fn end_transmit(
        &self,
        bound: &Bound,
        transmit: Transmit,
        result: core::result::Result<(), Errno>,
    ) {
        let Transmit {
            ticket,
            memory,
            target,
            ..
        } = transmit;
        // Who is told may take it for granted that the memory and the place are free.
        drop(memory);
        drop(target);
        self.tx.give_back_room();
        if matches!(result, Err(Errno::EACCES)) {
            // Whoever looks for a key may have closed the endpoint meanwhile.
            self.ident.refused();
        }
        match result {
            _ if !self.run.is_open() => self.give_back(bound, ticket),
            Ok(()) => self.complete_transmit(bound, ticket),
            Err(errno) => self.complete(bound, ticket, failed(errno)),
        }
    }

    /// The filling of a receive has ended; while the endpoint closes, nothing is told. Sleeps.
    pub(super) fn end_filling(
        &self,
        bound: &Bound,
        filling: Filling,
        result: core::result::Result<(), Errno>,
    ) {
        let Filling { place, message } = filling;
        match result {
            _ if !self.run.is_open() => self.drop_place(bound, place),
            Ok(()) => self.finish(bound, place, &message),
            Err(errno) => self.fail_place(bound, place, &message, errno),
        }
    }
}
