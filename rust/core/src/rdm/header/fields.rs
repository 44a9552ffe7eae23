// SPDX-License-Identifier: GPL-2.0
//! The fields of a header: what each kind has in them, and which values it refuses.

use super::{
    FinStatus,
    Header,
    Malformed,
    Message,
    RemoteAddr,
    ATOMIC,
    BYE,
    CANCEL,
    DATA,
    EAGER,
    FIN,
    FINISH,
    KEEP,
    NOTE,
    PING,
    RESULT,
    RETIRE,
    RETIRED,
    RTS,
    TAGGED,
    TAGGED_READ,
    TAGGED_WRITE,
    VOID, //
};
use crate::{
    limits,
    rdm::atomic::Call, //
};

/// The fields, before they are interpreted.
#[derive(Default)]
pub(super) struct Fields {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) status: u8,
    pub(super) len: u32,
    pub(super) id: u64,
    pub(super) after: u64,
    pub(super) tag: u64,
    pub(super) data: u64,
    pub(super) place: Option<RemoteAddr>,
    /// Of tagged RMA.
    pub(super) offset: u32,
    pub(super) call: Option<Call>,
}

impl Message {
    const fn flags(&self) -> u8 {
        let mut flags = 0;
        if self.tag.is_some() {
            flags |= TAGGED;
        }
        if self.data.is_some() {
            flags |= DATA;
        }
        if self.finish {
            flags |= FINISH;
        }
        if self.void {
            flags |= VOID;
        }
        flags
    }

    fn fields(&self, kind: u8, place: Option<RemoteAddr>) -> Fields {
        Fields {
            kind,
            flags: self.flags(),
            status: 0,
            len: self.len,
            id: self.id,
            after: self.after,
            tag: self.tag.unwrap_or(0),
            data: self.data.unwrap_or(0),
            place,
            offset: 0,
            call: None,
        }
    }
}

impl Header {
    /// Returns the fields; those that the kind does not use are 0.
    pub(super) fn fields(&self) -> Fields {
        let plain = |kind| Fields {
            kind,
            ..Fields::default()
        };
        match self {
            Self::Eager(message) => message.fields(EAGER, None),
            Self::Rts(message, place) => message.fields(RTS, Some(*place)),
            Self::TaggedWrite(message, place, offset) => Fields {
                offset: *offset,
                ..message.fields(TAGGED_WRITE, Some(*place))
            },
            Self::TaggedRead(message, offset) => Fields {
                offset: *offset,
                ..message.fields(TAGGED_READ, None)
            },
            Self::Atomic(message, call) => Fields {
                call: Some(*call),
                ..message.fields(ATOMIC, None)
            },
            Self::Fin { id, status } => Fields {
                status: *status as u8,
                id: *id,
                ..plain(FIN)
            },
            Self::Cancel { id, finish } => Fields {
                flags: if *finish { FINISH } else { 0 },
                id: *id,
                ..plain(CANCEL)
            },
            Self::Note { len, data } => Fields {
                len: *len,
                data: *data,
                ..plain(NOTE)
            },
            Self::Ping => plain(PING),
            Self::Retire => plain(RETIRE),
            Self::Retired => plain(RETIRED),
            Self::Keep => plain(KEEP),
            Self::Bye { last } => Fields {
                id: *last,
                ..plain(BYE)
            },
            Self::Result { id, len } => Fields {
                len: *len,
                id: *id,
                ..plain(RESULT)
            },
        }
    }
}

impl Fields {
    /// Returns the header that the fields mean.
    ///
    /// # Errors
    ///
    /// See [`Malformed`].
    pub(super) fn meaning(&self) -> Result<Header, Malformed> {
        let (flags, unused) = match self.kind {
            EAGER => (TAGGED | DATA | FINISH | VOID, self.status != 0),
            RTS | TAGGED_WRITE => (TAGGED | DATA | FINISH | VOID, self.status != 0),
            TAGGED_READ => (TAGGED | FINISH | VOID, self.status != 0),
            ATOMIC => (DATA | FINISH | VOID, self.status != 0),
            FIN => (0, self.len != 0),
            CANCEL => (FINISH, self.status != 0 || self.len != 0),
            NOTE => {
                let order = self.id != 0 || self.after != 0;
                (0, self.status != 0 || order || self.tag != 0)
            }
            PING | RETIRE | RETIRED | KEEP => {
                (0, self.status != 0 || self.len != 0 || self.id != 0)
            }
            BYE => (0, self.status != 0 || self.len != 0),
            RESULT => (0, self.status != 0),
            _ => return Err(Malformed::Kind),
        };
        if self.flags & !flags != 0 {
            return Err(Malformed::Flags);
        }
        if unused {
            return Err(Malformed::Reserved);
        }
        if let Some(call) = self.call {
            return self.atomic(call);
        }
        Ok(match (self.kind, self.place) {
            (EAGER, _) => Header::Eager(self.message(limits::EAGER_SIZE)?),
            (RTS, Some(place)) => {
                let message = self.message(limits::MAX_MSG_SIZE)?;
                if !message.finish {
                    return Err(Malformed::Flags);
                }
                Header::Rts(message, place)
            }
            (TAGGED_WRITE, Some(place)) => {
                Header::TaggedWrite(self.tagged_message()?, place, self.offset()?)
            }
            (TAGGED_READ, _) => Header::TaggedRead(self.tagged_message()?, self.offset()?),
            (FIN, _) => Header::Fin {
                id: self.id,
                status: match self.status {
                    0 => FinStatus::Received,
                    1 => FinStatus::Withdrawn,
                    2 => FinStatus::Truncated,
                    3 => FinStatus::NoReceive,
                    _ => return Err(Malformed::Status),
                },
            },
            (CANCEL, _) => Header::Cancel {
                id: self.id,
                finish: self.flags & FINISH != 0,
            },
            (NOTE, _) => Header::Note {
                len: self.len_up_to(limits::MAX_MSG_SIZE)?,
                data: self.data,
            },
            (PING, _) => Header::Ping,
            (RETIRE, _) => Header::Retire,
            (RETIRED, _) => Header::Retired,
            (KEEP, _) => Header::Keep,
            (BYE, _) => Header::Bye { last: self.id },
            (RESULT, _) => Header::Result {
                id: self.id,
                // The receiver knows what it has requested.
                len: self.len_up_to(limits::MAX_MSG_SIZE)?,
            },
            _ => return Err(Malformed::Kind),
        })
    }

    fn atomic(&self, call: Call) -> Result<Header, Malformed> {
        let message = self.message(u64::from(call.payload()))?;
        if message.len != call.payload() {
            return Err(Malformed::Length);
        }
        if message.finish != call.function().fetches() {
            return Err(Malformed::Flags);
        }
        // Only an atomic that returns nothing can have CQ data.
        if message.finish && message.data.is_some() {
            return Err(Malformed::Flags);
        }
        Ok(Header::Atomic(message, call))
    }

    /// The message of tagged RMA: with a tag and an answer.
    fn tagged_message(&self) -> Result<Message, Malformed> {
        let message = self.message(limits::MAX_MSG_SIZE)?;
        if message.tag.is_none() || !message.finish {
            return Err(Malformed::Flags);
        }
        Ok(message)
    }

    /// The offset of tagged RMA: at most the length of the largest receive.
    fn offset(&self) -> Result<u32, Malformed> {
        if u64::from(self.offset) > limits::MAX_MSG_SIZE {
            return Err(Malformed::Length);
        }
        Ok(self.offset)
    }

    fn len_up_to(&self, max: u64) -> Result<u32, Malformed> {
        if u64::from(self.len) > max {
            return Err(Malformed::Length);
        }
        Ok(self.len)
    }

    fn message(&self, max: u64) -> Result<Message, Malformed> {
        let len = self.len_up_to(max)?;
        let has = |flag| self.flags & flag != 0;
        if (!has(TAGGED) && self.tag != 0) || (!has(DATA) && self.data != 0) {
            return Err(Malformed::Reserved);
        }
        if self.after >= self.id {
            return Err(Malformed::Order);
        }
        Ok(Message {
            id: self.id,
            after: self.after,
            tag: has(TAGGED).then_some(self.tag),
            data: has(DATA).then_some(self.data),
            len,
            finish: has(FINISH),
            void: has(VOID),
        })
    }
}
