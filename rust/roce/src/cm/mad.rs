// SPDX-License-Identifier: GPL-2.0
//! The header of management datagrams (MADs): the first 24 of their 256 bytes.
//!
//! | byte | field | here |
//! |---|---|---|
//! | 0 | base version | 1 |
//! | 1 | management class | 7, communication management |
//! | 2 | class version | 2 |
//! | 3 | method | 3, send |
//! | 4 | status, class specific | 0 |
//! | 8 | transaction ID | that of a request is repeated in its answers |
//! | 16 | attribute ID | the message, see [`Attribute`] |
//! | 18 | reserved, attribute modifier | 0 |
//!
//! Source: InfiniBand specification, volume 1, sections 13.4.2, 16.7.

use super::super::bytes::{
    Reader,
    Writer, //
};

/// The length of a management datagram in bytes.
pub const MAD_LEN: usize = 256;

/// A management datagram.
pub type Mad = [u8; MAD_LEN];

crate::counted_reasons! {
    /// The reason for which a datagram to QP 1 is not a message of connection management.
    Malformed {
        /// The length is not [`MAD_LEN`].
        Length = "length",
        /// The base version is not 1.
        BaseVersion = "base_version",
        /// The management class is not communication management.
        Class = "class",
        /// The class version is not 2.
        ClassVersion = "class_version",
        /// The method is not send.
        Method = "method",
        /// The attribute is not one of [`Attribute`]: service ID resolution, alternate paths, or
        /// unknown.
        Attribute = "attribute",
    }
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Attribute {
    /// Request for communication.
    Req = 0x10,
    /// Message receipt acknowledgement.
    Mra = 0x11,
    /// Reject.
    Rej = 0x12,
    /// Reply to a request.
    Rep = 0x13,
    /// Ready to use.
    Rtu = 0x14,
    /// Disconnection request.
    Dreq = 0x15,
    /// Disconnection reply.
    Drep = 0x16,
}

impl Attribute {
    /// All kinds.
    pub const ALL: [Self; 7] = [
        Self::Req,
        Self::Mra,
        Self::Rej,
        Self::Rep,
        Self::Rtu,
        Self::Dreq,
        Self::Drep,
    ];

    /// Returns the kind with this attribute ID.
    pub const fn from_id(id: u16) -> Option<Self> {
        Some(match id {
            0x10 => Self::Req,
            0x11 => Self::Mra,
            0x12 => Self::Rej,
            0x13 => Self::Rep,
            0x14 => Self::Rtu,
            0x15 => Self::Dreq,
            0x16 => Self::Drep,
            _ => return None,
        })
    }

    /// Returns the name of the message.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Req => "REQ",
            Self::Mra => "MRA",
            Self::Rej => "REJ",
            Self::Rep => "REP",
            Self::Rtu => "RTU",
            Self::Dreq => "DREQ",
            Self::Drep => "DREP",
        }
    }
}

const BASE_VERSION: u8 = 1;
const CLASS: u8 = 7;
const CLASS_VERSION: u8 = 2;
const METHOD_SEND: u8 = 3;

/// Reads the header: the kind of the message and the transaction ID.
pub(super) fn read(reader: &mut Reader<'_>) -> Result<(Attribute, u64), Malformed> {
    let short = Malformed::Length;
    let [base, class, class_version, method] = reader.array().ok_or(short)?;
    let _status = reader.u32().ok_or(short)?;
    let tid = reader.u64().ok_or(short)?;
    let id = reader.u16().ok_or(short)?;
    let _modifier: [u8; 6] = reader.array().ok_or(short)?;
    for (same, malformed) in [
        (base == BASE_VERSION, Malformed::BaseVersion),
        (class == CLASS, Malformed::Class),
        (class_version == CLASS_VERSION, Malformed::ClassVersion),
        (method == METHOD_SEND, Malformed::Method),
    ] {
        if !same {
            return Err(malformed);
        }
    }
    let attribute = Attribute::from_id(id).ok_or(Malformed::Attribute)?;
    Ok((attribute, tid))
}

/// Writes the header.
pub(super) fn write(attribute: Attribute, tid: u64, writer: &mut Writer<'_>) -> Option<()> {
    writer.put(&[BASE_VERSION, CLASS, CLASS_VERSION, METHOD_SEND])?;
    writer.u32(0)?;
    writer.u64(tid)?;
    writer.u16(attribute as u16)?;
    writer.put(&[0; 6])
}
