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

use super::atomic::{
    Call,
    CALL_LEN, //
};
use crate::{
    errno::Errno,
    limits,
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
        /// The length exceeds the maximum of the kind, or differs from the number of bytes that came.
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

/// The fields, before they are interpreted.
#[derive(Default)]
struct Fields {
    kind: u8,
    flags: u8,
    status: u8,
    len: u32,
    id: u64,
    after: u64,
    tag: u64,
    data: u64,
    place: Option<RemoteAddr>,
    /// Of tagged RMA.
    offset: u32,
    call: Option<Call>,
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

    fn fields(&self) -> Fields {
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

impl Fields {
    /// Interprets the fields.
    fn meaning(&self) -> Result<Header, Malformed> {
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

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_rdm_header))]
mod tests {
    use super::*;
    use crate::{
        atomic::Function,
        enums::{
            AtomicOp,
            Datatype, //
        },
        op::OpType,
    };

    const MESSAGE: Message = Message {
        id: 0x0102_0304_0506_0708,
        after: 0x0102_0304_0506_0707,
        tag: Some(0x1112_1314_1516_1718),
        data: Some(0x2122_2324_2526_2728),
        len: 0x1000,
        finish: true,
        void: false,
    };

    const READ: Message = Message {
        data: None,
        ..MESSAGE
    };

    const PLACE: RemoteAddr = RemoteAddr {
        va: 0x3132_3334_3536_3738,
        rkey: 0x4142_4344,
    };

    const RTS_BYTES: [u8; 56] = [
        1, 2, 7, 0, 0, 0, 0x10, 0, //
        1, 2, 3, 4, 5, 6, 7, 8, //
        1, 2, 3, 4, 5, 6, 7, 7, //
        0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, //
        0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, //
        0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38, //
        0x41, 0x42, 0x43, 0x44, 0, 0, 0, 0,
    ];

    const ATOMIC_BYTES: [u8; 48] = [
        1, 3, 4, 0, 0, 0, 0, 56, //
        1, 2, 3, 4, 5, 6, 7, 8, //
        1, 2, 3, 4, 5, 6, 7, 7, //
        0, 0, 0, 0, 0, 0, 0, 0, //
        0, 0, 0, 0, 0, 0, 0, 0, //
        8, 12, 4, 0, 0, 2, 0, 3, //
    ];

    /// A CSWAP of three INT32 in two pieces.
    fn atomic() -> Option<Header> {
        let function = Function::new(OpType::CompareAtomic, AtomicOp::Cswap, Datatype::Int32);
        let call = Call::new(function.ok()?, 2, 3)?;
        let message = Message {
            tag: None,
            data: None,
            len: 56,
            ..MESSAGE
        };
        Some(Header::Atomic(message, call))
    }

    /// Returns a header of each kind with its length.
    fn all() -> [(Header, usize); 14] {
        let id = 7;
        let status = FinStatus::Withdrawn;
        let finish = true;
        let (len, data) = (5, u64::MAX);
        [
            (Header::Eager(MESSAGE), 40),
            (Header::Rts(MESSAGE, PLACE), 56),
            (Header::TaggedWrite(MESSAGE, PLACE, 1 << 30), 56),
            (Header::TaggedRead(READ, 7), 48),
            (atomic().unwrap_or(Header::Ping), 48),
            (Header::Fin { id, status }, 16),
            (Header::Cancel { id, finish }, 16),
            (Header::Note { len, data }, 40),
            (Header::Ping, 16),
            (Header::Retire, 16),
            (Header::Retired, 16),
            (Header::Keep, 16),
            (Header::Bye { last: 9 }, 16),
            (Header::Result { id, len: 4096 }, 16),
        ]
    }

    /// Returns the result for the bytes of an RTS with byte `at` changed to `byte`.
    fn changed(at: usize, byte: u8) -> Result<Header, Malformed> {
        let mut bytes = RTS_BYTES;
        if let Some(place) = bytes.get_mut(at) {
            *place = byte;
        }
        Header::parse(&bytes)
    }

    #[test]
    fn bytes_are_where_they_belong() {
        let mut bytes = [0xff; 56];
        assert_eq!(Header::Rts(MESSAGE, PLACE).put(&mut bytes), Some(56));
        assert_eq!(bytes, RTS_BYTES);
        assert_eq!(Header::parse(&bytes), Ok(Header::Rts(MESSAGE, PLACE)));
        let mut bytes = [0xff; 17];
        let fin = Header::Fin {
            id: 7,
            status: FinStatus::Withdrawn,
        };
        assert_eq!(fin.put(&mut bytes), Some(16));
        let expected = [1, 4, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0xff];
        assert_eq!(bytes, expected);
    }

    #[test]
    fn written_headers_are_parsed_again() {
        for (header, len) in all() {
            let mut bytes = [0xff; MAX_HEADER];
            assert_eq!(header.len(), len);
            assert_eq!(header.put(&mut bytes), Some(len));
            assert_eq!(Header::parse(&bytes), Ok(header));
            for short in 0..len {
                let short = bytes.get(..short).unwrap_or_default();
                assert_eq!(Header::parse(short), Err(Malformed::Short));
                let mut room = [0; MAX_HEADER];
                let room = room.get_mut(..short.len()).unwrap_or_default();
                assert_eq!(header.put(room), None);
            }
        }
    }

    #[test]
    fn a_message_becomes_void() {
        for (header, len) in all() {
            let void = header.to_void();
            assert_eq!(void.len(), len);
            match void {
                Header::Eager(message)
                | Header::Rts(message, _)
                | Header::TaggedWrite(message, ..)
                | Header::TaggedRead(message, _)
                | Header::Atomic(message, _) => {
                    assert!(message.void);
                    let mut bytes = [0; MAX_HEADER];
                    assert_eq!(void.put(&mut bytes), Some(len));
                    assert_eq!(Header::parse(&bytes), Ok(void));
                }
                _ => assert_eq!(void, header),
            }
        }
    }

    #[test]
    fn each_invalid_header_has_its_reason() {
        assert_eq!(changed(0, 0), Err(Malformed::Version));
        assert_eq!(changed(0, 2), Err(Malformed::Version));
        for kind in [0, 15, 255] {
            assert_eq!(changed(1, kind), Err(Malformed::Kind));
        }
        assert_eq!(changed(2, 0x10 | 7), Err(Malformed::Flags));
        // An RTS without FINISH.
        assert_eq!(changed(2, 3), Err(Malformed::Flags));
        assert_eq!(changed(3, 1), Err(Malformed::Reserved));
        // A length of 1 GiB and one byte.
        assert_eq!(changed(4, 0x40), Err(Malformed::Length));
        // A tag or data without its flag.
        assert_eq!(changed(2, 6), Err(Malformed::Reserved));
        assert_eq!(changed(2, 5), Err(Malformed::Reserved));
        assert_eq!(changed(55, 1), Err(Malformed::Reserved));
        assert_eq!(changed(23, 8), Err(Malformed::Order));
        assert_eq!(changed(23, 9), Err(Malformed::Order));
        for (index, malformed) in Malformed::ALL.iter().enumerate() {
            assert_eq!(*malformed as usize, index);
            assert!(malformed.name().starts_with("rdm_"));
        }
    }

    #[test]
    fn unused_fields_must_be_zero() {
        // The columns: kind; whether it may have flags, a status, a length, an id, further fields.
        let kinds = [
            (FIN, [false, true, false, true, true]),
            (CANCEL, [true, false, false, true, true]),
            (NOTE, [false, false, true, false, false]),
            (PING, [false, false, false, false, true]),
            (RETIRE, [false, false, false, false, true]),
            (RETIRED, [false, false, false, false, true]),
            (KEEP, [false, false, false, false, true]),
            (BYE, [false, false, false, true, true]),
            (RESULT, [false, false, true, true, true]),
        ];
        for (kind, may) in kinds {
            for (at, may) in [2, 3, 7, 15, 23].into_iter().zip(may) {
                let mut bytes = [0; MAX_HEADER];
                if let Some([version, first, ..]) = bytes.get_mut(..2) {
                    *version = VERSION;
                    *first = kind;
                }
                if let Some(place) = bytes.get_mut(at) {
                    *place = if at == 2 { FINISH } else { 1 };
                }
                assert_eq!(Header::parse(&bytes).is_ok(), may);
            }
        }
    }

    #[test]
    fn atomics_say_what_their_payload_is() {
        let changed = |at: usize, byte: u8| {
            let mut bytes = ATOMIC_BYTES;
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
            Header::parse(&bytes)
        };
        let header = atomic();
        assert_eq!(changed(0, VERSION).ok(), header);
        assert_eq!(header.map(|header| header.payload()), Some(56));
        let mut bytes = [0xff; 48];
        let len = header.and_then(|header| header.put(&mut bytes));
        assert_eq!((len, bytes), (Some(48), ATOMIC_BYTES));
        // An unknown form, op and type; a combination that is not defined.
        for (at, byte) in [(40, 9), (41, 19), (42, 14), (41, 2), (44, 2), (47, 0)] {
            assert_eq!(changed(at, byte), Err(Malformed::Atomic));
        }
        // A length that does not follow from the call.
        for (at, byte) in [(7, 55), (7, 57), (47, 4), (45, 1), (4, 1)] {
            assert_eq!(changed(at, byte), Err(Malformed::Length));
        }
        assert_eq!(changed(43, 1), Err(Malformed::Reserved));
        assert_eq!(changed(3, 1), Err(Malformed::Reserved));
        assert_eq!(changed(31, 1), Err(Malformed::Reserved));
        assert_eq!(changed(39, 1), Err(Malformed::Reserved));
        // A tag; data with a result; no result.
        for flags in [5, 6, 0] {
            assert_eq!(changed(2, flags), Err(Malformed::Flags));
        }
        assert_eq!(changed(23, 8), Err(Malformed::Order));
        let too_long = Header::Result {
            id: 1,
            len: (1 << 30) + 1,
        };
        let mut bytes = [0; SHORT_LEN];
        assert_eq!(too_long.put(&mut bytes), Some(SHORT_LEN));
        assert_eq!(Header::parse(&bytes), Err(Malformed::Length));
    }

    #[test]
    fn tagged_rma_has_a_tag_an_answer_and_an_offset() {
        let write = Header::TaggedWrite(MESSAGE, PLACE, 0x0051_5253);
        let read = Header::TaggedRead(READ, 0x0051_5253);
        let changed = |header: Header, at: usize, byte: u8| {
            let mut bytes = [0; MAX_HEADER];
            assert_eq!(header.put(&mut bytes), Some(header.len()));
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
            Header::parse(&bytes)
        };
        // The offsets are where they belong.
        for (header, at) in [(write, 52), (read, 40)] {
            let parsed = changed(header, at + 3, 0x54).ok();
            let rma = parsed.and_then(|header| header.tagged_rma());
            assert_eq!(rma.map(|rma| rma.offset), Some(0x0051_5254));
            assert_eq!(rma.map(|rma| rma.read), Some(header == read));
            assert_eq!(changed(header, at, 0x41), Err(Malformed::Length));
            // A length of more than 1 GiB.
            assert_eq!(changed(header, 4, 0x41), Err(Malformed::Length));
            assert_eq!(changed(header, 3, 1), Err(Malformed::Reserved));
            assert_eq!(changed(header, 23, 8), Err(Malformed::Order));
            assert_eq!(header.payload(), 0);
        }
        // Without an answer; without a tag, whose field is 0 then.
        assert_eq!(changed(write, 2, TAGGED | DATA), Err(Malformed::Flags));
        assert_eq!(changed(read, 2, TAGGED), Err(Malformed::Flags));
        let plain = |message| Message {
            tag: None,
            ..message
        };
        let without = Header::TaggedWrite(plain(MESSAGE), PLACE, 0);
        assert_eq!(changed(without, 43, 1), Err(Malformed::Flags));
        assert_eq!(
            changed(Header::TaggedRead(plain(READ), 0), 43, 1),
            Err(Malformed::Flags)
        );
        // A read has no data.
        assert_eq!(changed(read, 2, 7), Err(Malformed::Flags));
        assert_eq!(changed(read, 47, 1), Err(Malformed::Reserved));
        let fin = |status| {
            let id = 7;
            changed(
                Header::Fin {
                    id,
                    status: FinStatus::Received,
                },
                3,
                status,
            )
        };
        for (byte, status) in [(2, FinStatus::Truncated), (3, FinStatus::NoReceive)] {
            assert_eq!(fin(byte), Ok(Header::Fin { id: 7, status }));
        }
        assert_eq!(fin(4), Err(Malformed::Status));
        assert_eq!(FinStatus::Received.result(), Ok(()));
        assert_eq!(FinStatus::Withdrawn.result(), Err(Errno::ECANCELED));
        assert_eq!(FinStatus::Truncated.result(), Err(Errno::EMSGSIZE));
        assert_eq!(FinStatus::NoReceive.result(), Err(Errno::EREMOTEIO));
    }

    #[test]
    fn lengths_above_the_limit_are_refused() {
        let eager = |len| {
            let mut bytes = [0; MAX_HEADER];
            let message = Message { len, ..MESSAGE };
            assert!(Header::Eager(message).put(&mut bytes).is_some());
            Header::parse(&bytes)
        };
        let most = limits::EAGER_SIZE as u32;
        assert!(eager(0).is_ok());
        assert!(eager(most).is_ok());
        assert_eq!(eager(most + 1), Err(Malformed::Length));
        let note = |len| {
            let mut bytes = [0; MAX_HEADER];
            assert!(Header::Note { len, data: 0 }.put(&mut bytes).is_some());
            Header::parse(&bytes)
        };
        assert!(note(1 << 30).is_ok());
        assert_eq!(note((1 << 30) + 1), Err(Malformed::Length));
        assert_eq!(eager(5).map(|header| header.payload()), Ok(5));
        assert_eq!(note(5).map(|header| header.payload()), Ok(0));
    }
}
