// SPDX-License-Identifier: GPL-2.0
//! The header at the beginning of each SEND between reliable datagram endpoints.
//!
//! ```text
//!  0       1       2       3       4               8                              16
//! +-------+-------+-------+-------+---------------+------------------------------+
//! |version| kind  | flags |status | length        | id                           |
//! +-------+-------+-------+-------+---------------+------------------------------+ 16
//! | after                                         | tag                          |
//! +-----------------------------------------------+------------------------------+ 32
//! | CQ data                                       | address                      |
//! +-----------------------+-----------------------+------------------------------+ 48
//! | key                   | 0, or the offset      |
//! +-----------------------+-----------------------+ 56
//! ```
//!
//! An `ATOMIC` has in the place of the address:
//!
//! ```text
//!  40    41    42      43    44          46          48
//! +-----+-----+--------+-----+-----------+-----------+
//! |form |op   |datatype| 0   |pieces     |elements   |
//! +-----+-----+--------+-----+-----------+-----------+
//! ```
//!
//! A `TAGGED_READ` has the offset (4 bytes) and 4 bytes of 0 in the place of the address.
//!
//! All fields are big endian. A field that a kind does not use is 0; a header with another value
//! there is refused, so that later versions can use the field. The length depends on the kind:
//!
//! | kind | bytes | meaning |
//! |---|---|---|
//! | `EAGER` | 40 | a message whose bytes follow |
//! | `RTS` | 56 | a message whose bytes the receiver reads from `address` with `key` |
//! | `ATOMIC` | 48 | an atomic, whose memory and operands follow ([`atomic`](super::atomic)) |
//! | `FIN` | 16 | the end of the receiver's message `id`, with a status |
//! | `CANCEL` | 16 | a request to withdraw message `id`, if that is still possible |
//! | `NOTE` | 40 | CQ data of an earlier WRITE of `length` bytes |
//! | `PING` | 16 | none: its acknowledgement shows that the peer is alive |
//! | `RETIRE`, `RETIRED`, `KEEP` | 16 | a request to end an idle connection, consent, refusal |
//! | `BYE` | 16 | the endpoint closes; it has taken all messages up to `id` |
//! | `RESULT` | 16 | the end of the receiver's atomic or tagged read `id`; its bytes follow |
//! | `TAGGED_WRITE` | 56 | a tagged write: the receiver reads its bytes as those of an `RTS`, and places them at `offset` of the memory of a posted receive with a matching tag |
//! | `TAGGED_READ` | 48 | a tagged read of `length` bytes at `offset` of such memory |
//!
//! Kinds above 14 are unused.
//!
//! The receiver answers a `TAGGED_WRITE` with a FIN, and a `TAGGED_READ` with a RESULT, which is
//! shorter than requested if the memory is. It answers both with a FIN if it has no such receive.

mod fields;
#[cfg(any(test, kfi_kunit))]
mod tests;

use self::fields::Fields;
use super::atomic::{
    Call,
    CALL_LEN, //
};
use crate::{
    errno::Errno,
    op::TaggedRma, //
};
use kfi_roce::bytes::{
    Reader,
    Writer, //
};

/// The version that this module implements.
pub const VERSION: u8 = 1;

/// The length of the longest header in bytes.
pub const MAX_HEADER: usize = RTS_LEN;

const SHORT_LEN: usize = 16;
const MESSAGE_LEN: usize = 40;
const ATOMIC_LEN: usize = MESSAGE_LEN + CALL_LEN;
const TAGGED_READ_LEN: usize = MESSAGE_LEN + 8;
const RTS_LEN: usize = 56;

const EAGER: u8 = 1;
const RTS: u8 = 2;
const ATOMIC: u8 = 3;
const FIN: u8 = 4;
const CANCEL: u8 = 5;
const NOTE: u8 = 6;
const PING: u8 = 7;
const RETIRE: u8 = 8;
const RETIRED: u8 = 9;
const KEEP: u8 = 10;
const BYE: u8 = 11;
const RESULT: u8 = 12;
const TAGGED_WRITE: u8 = 13;
const TAGGED_READ: u8 = 14;

/// The message has a tag.
const TAGGED: u8 = 1 << 0;
/// The message has CQ data.
const DATA: u8 = 1 << 1;
/// The receiver ends the message with a FIN.
const FINISH: u8 = 1 << 2;
/// The message is void: the receiver ignores it, and it will be sent again.
const VOID: u8 = 1 << 3;

kfi_roce::counted_reasons! {
    /// The reason for which bytes are not a valid header, or do not match their SEND.
    Malformed {
        /// The bytes end before the header does.
        Short = "rdm_short",
        /// The version is another one.
        Version = "rdm_version",
        /// The kind is unknown.
        Kind = "rdm_kind",
        /// A flag is unknown, or invalid for this kind.
        Flags = "rdm_flags",
        /// The status is unknown.
        Status = "rdm_status",
        /// A field that this kind does not use is not 0.
        Reserved = "rdm_reserved",
        /// The number after which a message comes is not smaller than its own.
        Order = "rdm_order",
        /// The length exceeds the maximum of the kind, or differs from the number of bytes that
        /// came.
        Length = "rdm_length",
        /// The atomic is not one that the interface defines.
        Atomic = "rdm_atomic",
    }
}

/// The properties of a message in its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The number of the message: larger than those of all messages that its sender posted before.
    pub id: u64,
    /// The message is taken only if message `after`, or a later one, was taken; 0 means no
    /// condition.
    pub after: u64,
    /// The tag, if there is one.
    pub tag: Option<u64>,
    /// The remote CQ data, if there is any.
    pub data: Option<u64>,
    /// The length in bytes: of the message, or of the payload of an atomic.
    pub len: u32,
    /// Whether the receiver ends the message with a FIN, or an atomic with a RESULT. Always true
    /// for an RTS, and for tagged RMA.
    pub finish: bool,
    /// Whether the message is void: the receiver ignores it, and it will be sent again.
    pub void: bool,
}

/// The address and key of the sender's memory that the receiver may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddr {
    /// The address of the first byte.
    pub va: u64,
    /// The key.
    pub rkey: u32,
}

/// The end of a message at its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FinStatus {
    /// The message was received completely or in part, or was discarded.
    Received = 0,
    /// The message was withdrawn at the request of its sender; no receive has seen it.
    Withdrawn = 1,
    /// A tagged write whose bytes did not all fit.
    Truncated = 2,
    /// Tagged RMA that no posted receive matches.
    NoReceive = 3,
}

impl FinStatus {
    /// Returns the result of the message for its sender.
    ///
    /// # Errors
    ///
    /// `ECANCELED`, `EMSGSIZE`, `EREMOTEIO` for the statuses from `Withdrawn` on.
    pub const fn result(self) -> Result<(), Errno> {
        match self {
            Self::Received => Ok(()),
            Self::Withdrawn => Err(Errno::ECANCELED),
            Self::Truncated => Err(Errno::EMSGSIZE),
            Self::NoReceive => Err(Errno::EREMOTEIO),
        }
    }
}

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// A message with its bytes.
    Eager(Message),
    /// A message whose bytes the sender still has.
    Rts(Message, RemoteAddr),
    /// A tagged write whose bytes the sender still has, and the offset of the first byte.
    TaggedWrite(Message, RemoteAddr, u32),
    /// A tagged read, and the offset of the first byte.
    TaggedRead(Message, u32),
    /// An atomic with its memory and its operands.
    Atomic(Message, Call),
    /// The end of a message of the peer.
    Fin {
        /// The number of the message.
        id: u64,
        /// The status.
        status: FinStatus,
    },
    /// A request to withdraw a message.
    Cancel {
        /// The number of the message.
        id: u64,
        /// Whether the message is ended by a FIN.
        finish: bool,
    },
    /// CQ data of a WRITE.
    Note {
        /// The number of bytes written.
        len: u32,
        /// The data.
        data: u64,
    },
    /// A check whether the peer is alive.
    Ping,
    /// A request to end the connection. Its sender sends nothing more until this is answered.
    Retire,
    /// Consent to RETIRE: this side is idle too and sends nothing more.
    Retired,
    /// Refusal of RETIRE.
    Keep,
    /// The endpoint closes.
    Bye {
        /// The last message of the receiver that was taken.
        last: u64,
    },
    /// The end of an atomic of the peer with the old values, or of a tagged read with its bytes.
    Result {
        /// The number of the operation.
        id: u64,
        /// The length of the values or bytes.
        len: u32,
    },
}

impl Header {
    /// Returns the length of the header in bytes. The payload follows it.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a header is never empty")]
    pub const fn len(&self) -> usize {
        match self {
            Self::Eager(_) | Self::Note { .. } => MESSAGE_LEN,
            Self::Atomic(..) => ATOMIC_LEN,
            Self::Rts(..) | Self::TaggedWrite(..) => RTS_LEN,
            Self::TaggedRead(..) => TAGGED_READ_LEN,
            _ => SHORT_LEN,
        }
    }

    /// Returns the length of the payload in bytes.
    #[inline]
    pub const fn payload(&self) -> u32 {
        match self {
            Self::Eager(message) | Self::Atomic(message, _) => message.len,
            Self::Result { len, .. } => *len,
            _ => 0,
        }
    }

    /// Returns the same header with its message made void; other headers are returned unchanged.
    pub const fn to_void(mut self) -> Self {
        match &mut self {
            Self::Eager(message)
            | Self::Rts(message, _)
            | Self::TaggedWrite(message, ..)
            | Self::TaggedRead(message, _)
            | Self::Atomic(message, _) => message.void = true,
            _ => {}
        }
        self
    }

    /// Returns the access of tagged RMA.
    #[inline]
    pub const fn tagged_rma(&self) -> Option<TaggedRma> {
        let (read, offset) = match self {
            Self::TaggedWrite(_, _, offset) => (false, *offset),
            Self::TaggedRead(_, offset) => (true, *offset),
            _ => return None,
        };
        Some(TaggedRma { read, offset })
    }

    /// Writes the header to the front of `bytes`. Returns its length; `None` if `bytes` is too
    /// short.
    pub fn put(&self, bytes: &mut [u8]) -> Option<usize> {
        let fields = self.fields();
        let mut writer = Writer::new(bytes);
        writer.put(&[VERSION, fields.kind, fields.flags, fields.status])?;
        writer.u32(fields.len)?;
        writer.u64(fields.id)?;
        if self.len() >= MESSAGE_LEN {
            writer.u64(fields.after)?;
            writer.u64(fields.tag)?;
            writer.u64(fields.data)?;
        }
        if let Some(place) = fields.place {
            writer.u64(place.va)?;
            writer.u32(place.rkey)?;
            writer.u32(fields.offset)?;
        } else if fields.kind == TAGGED_READ {
            writer.u32(fields.offset)?;
            writer.u32(0)?;
        }
        if let Some(call) = fields.call {
            call.put(&mut writer)?;
        }
        Some(writer.len())
    }

    /// Parses the header at the front of `bytes`, the first bytes of a SEND.
    ///
    /// # Errors
    ///
    /// See [`Malformed`]. The caller checks that as many bytes follow as [`Self::payload`] returns.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let short = Malformed::Short;
        let mut reader = Reader::new(bytes);
        let [version, kind, flags, status] = reader.array().ok_or(short)?;
        if version != VERSION {
            return Err(Malformed::Version);
        }
        let mut fields = Fields {
            kind,
            flags,
            status,
            len: reader.u32().ok_or(short)?,
            id: reader.u64().ok_or(short)?,
            ..Fields::default()
        };
        if matches!(
            kind,
            EAGER | RTS | ATOMIC | NOTE | TAGGED_WRITE | TAGGED_READ
        ) {
            fields.after = reader.u64().ok_or(short)?;
            fields.tag = reader.u64().ok_or(short)?;
            fields.data = reader.u64().ok_or(short)?;
        }
        if matches!(kind, RTS | TAGGED_WRITE) {
            let va = reader.u64().ok_or(short)?;
            let rkey = reader.u32().ok_or(short)?;
            fields.place = Some(RemoteAddr { va, rkey });
        }
        if matches!(kind, TAGGED_WRITE | TAGGED_READ) {
            fields.offset = reader.u32().ok_or(short)?;
        }
        if matches!(kind, RTS | TAGGED_READ) && reader.u32().ok_or(short)? != 0 {
            return Err(Malformed::Reserved);
        }
        if kind == ATOMIC {
            fields.call = Some(Call::parse(reader.array().ok_or(short)?)?);
        }
        fields.meaning()
    }
}
