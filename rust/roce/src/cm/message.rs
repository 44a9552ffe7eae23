// SPDX-License-Identifier: GPL-2.0
//! The messages of connection management, read from and written into management datagrams.
//!
//! | message | says | private data |
//! |---|---|---|
//! | [`Req`] | here is my QP: connect | 92 |
//! | [`Mra`] | I have your message and need time | 222 |
//! | [`Rej`] | no | 148 |
//! | [`Rep`] | yes: here is my QP | 196 |
//! | [`Rtu`] | ready to use | 224 |
//! | [`Dreq`] | let us disconnect | 220 |
//! | [`Drep`] | disconnected | 224 |
//!
//! Each carries the communication ID of its sender, and all but REQ the one of its receiver: a
//! [`CommId`] names a connection at the end that chose it.
//!
//! Private data have a fixed length on the wire; what is shorter is filled with zeros, and how long
//! it was is not said. Reserved fields are written as zeros and ignored when read. So are those
//! that mean nothing in RoCEv2 or to this device: EE contexts, Q keys (RC has none), vendor IDs,
//! and of paths, LIDs and service levels. They are there for other implementations.
//!
//! Source: InfiniBand specification, volume 1, section 12.6, tables 106 to 113.

use super::{
    super::{
        bytes::{
            Reader,
            Writer, //
        },
        headers::Qpn,
        psn::Psn, //
    },
    mad::{
        self,
        Attribute,
        Mad,
        Malformed,
        MAD_LEN, //
    },
    Reason,
    Req,
    Timeout, //
};

/// What one end calls a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommId(pub u32);

/// Private data of at most `N` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Private<'a, const N: usize>(&'a [u8]);

impl<'a, const N: usize> Private<'a, N> {
    /// No private data.
    pub const NONE: Self = Self(&[]);

    /// Takes `bytes`, unless they are more than `N`.
    pub const fn new(bytes: &'a [u8]) -> Option<Self> {
        if bytes.len() <= N {
            Some(Self(bytes))
        } else {
            None
        }
    }

    /// Returns the bytes; of a message that was received, always `N`.
    pub const fn get(self) -> &'a [u8] {
        self.0
    }

    /// Takes them from the front of what is left of a datagram.
    pub(super) fn read(rest: &'a [u8]) -> Option<Self> {
        rest.get(..N).map(Self)
    }
}

/// Reads 24 bits and 8 bits behind them.
pub(super) fn read_24(reader: &mut Reader<'_>) -> Option<[u32; 2]> {
    let word = reader.u32()?;
    Some([word >> 8, word & 0xff])
}

/// Writes 24 bits and 8 bits behind them.
pub(super) fn write_24(writer: &mut Writer<'_>, high: u32, low: u8) -> Option<()> {
    writer.u32(high << 8 | u32::from(low))
}

/// Which message is rejected or acknowledged, a code of 2 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Regarding {
    /// The REQ.
    Req = 0,
    /// The REP.
    Rep = 1,
    /// Another message, or none.
    Other = 2,
}

impl Regarding {
    const fn new(code: u8) -> Self {
        match code & 3 {
            0 => Self::Req,
            1 => Self::Rep,
            _ => Self::Other,
        }
    }
}

/// Message receipt acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mra<'a> {
    /// The sender's ID of the connection.
    pub local_id: CommId,
    /// The receiver's ID of the connection.
    pub remote_id: CommId,
    /// Which message the sender has received.
    pub regarding: Regarding,
    /// How long the sender needs to answer it.
    pub service_timeout: Timeout,
    /// The private data.
    pub private: Private<'a, 222>,
}

impl<'a> Mra<'a> {
    fn read(reader: &mut Reader<'a>) -> Option<Self> {
        Some(Self {
            local_id: CommId(reader.u32()?),
            remote_id: CommId(reader.u32()?),
            regarding: Regarding::new(reader.u8()? >> 6),
            service_timeout: Timeout::new(reader.u8()? >> 3),
            private: Private::read(reader.rest())?,
        })
    }

    fn write(&self, writer: &mut Writer<'_>) -> Option<()> {
        writer.u32(self.local_id.0)?;
        writer.u32(self.remote_id.0)?;
        writer.put(&[
            (self.regarding as u8) << 6,
            self.service_timeout.code() << 3,
        ])?;
        writer.put(self.private.get())
    }
}

/// Reject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rej<'a> {
    /// The sender's ID of the connection; 0 if it has none.
    pub local_id: CommId,
    /// The receiver's ID of the connection; 0 if the sender does not know it.
    pub remote_id: CommId,
    /// Which message is rejected.
    pub regarding: Regarding,
    /// Why.
    pub reason: Reason,
    /// Additional information, of which kind depends on the reason. Of a message that was received
    /// it is as long as the message says.
    pub info: Private<'a, 72>,
    /// The private data.
    pub private: Private<'a, 148>,
}

impl<'a> Rej<'a> {
    /// Bytes of additional information.
    pub const INFO_LEN: usize = 72;

    /// Bytes of private data.
    pub const PRIVATE_LEN: usize = 148;

    fn read(reader: &mut Reader<'a>) -> Option<Self> {
        let local_id = CommId(reader.u32()?);
        let remote_id = CommId(reader.u32()?);
        let regarding = Regarding::new(reader.u8()? >> 6);
        let info_len = usize::from(reader.u8()? >> 1);
        let reason = Reason::new(reader.u16()?);
        let (info, private) = reader.rest().split_at_checked(Self::INFO_LEN)?;
        // A length that cannot be means all of it.
        let info = info.get(..info_len).unwrap_or(info);
        Some(Self {
            local_id,
            remote_id,
            regarding,
            reason,
            info: Private(info),
            private: Private::read(private)?,
        })
    }

    fn write(&self, writer: &mut Writer<'_>) -> Option<()> {
        writer.u32(self.local_id.0)?;
        writer.u32(self.remote_id.0)?;
        // At most 72.
        let info_len = self.info.get().len() as u8;
        writer.put(&[(self.regarding as u8) << 6, info_len << 1])?;
        writer.u16(self.reason.code())?;
        writer.put(self.info.get())?;
        writer.skip(Self::INFO_LEN.saturating_sub(self.info.get().len()))?;
        writer.put(self.private.get())
    }
}

/// Reply to a request for communication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rep<'a> {
    /// The sender's ID of the connection.
    pub local_id: CommId,
    /// The receiver's ID of the connection.
    pub remote_id: CommId,
    /// The sender's QP.
    pub qpn: Qpn,
    /// The first PSN that the receiver of this message shall send.
    pub starting_psn: Psn,
    /// READs and atomics that the sender's responder can have outstanding.
    pub responder_resources: u8,
    /// READs and atomics that the sender's requester will have outstanding.
    pub initiator_depth: u8,
    /// How long the sender's responder takes to acknowledge.
    pub target_ack_delay: Timeout,
    /// What became of the alternate path, 2 bits: 0 accepted, 1 not supported, 2 rejected.
    pub failover: u8,
    /// Whether the sender has end-to-end flow control.
    pub flow_control: bool,
    /// How often the receiver's requester shall try again after an RNR NAK, 3 bits.
    pub rnr_retry_count: u8,
    /// Whether the sender's QP has a shared receive queue.
    pub srq: bool,
    /// The sender's GUID, that of the whole device.
    pub ca_guid: u64,
    /// The private data.
    pub private: Private<'a, 196>,
}

impl<'a> Rep<'a> {
    /// Bytes of private data.
    pub const PRIVATE_LEN: usize = 196;

    fn read(reader: &mut Reader<'a>) -> Option<Self> {
        let local_id = CommId(reader.u32()?);
        let remote_id = CommId(reader.u32()?);
        let _qkey = reader.u32()?;
        let [qpn, _] = read_24(reader)?;
        let _eecn = reader.u32()?;
        let [psn, _] = read_24(reader)?;
        let [responder_resources, initiator_depth, delay, rnr] = reader.array()?;
        Some(Self {
            local_id,
            remote_id,
            qpn: Qpn::new(qpn),
            starting_psn: Psn::new(psn),
            responder_resources,
            initiator_depth,
            target_ack_delay: Timeout::new(delay >> 3),
            failover: delay >> 1 & 3,
            flow_control: delay & 1 != 0,
            rnr_retry_count: rnr >> 5,
            srq: rnr & 0x10 != 0,
            ca_guid: reader.u64()?,
            private: Private::read(reader.rest())?,
        })
    }

    fn write(&self, writer: &mut Writer<'_>) -> Option<()> {
        writer.u32(self.local_id.0)?;
        writer.u32(self.remote_id.0)?;
        writer.u32(0)?;
        write_24(writer, self.qpn.get(), 0)?;
        writer.u32(0)?;
        write_24(writer, self.starting_psn.get(), 0)?;
        writer.put(&[
            self.responder_resources,
            self.initiator_depth,
            self.target_ack_delay.code() << 3
                | (self.failover & 3) << 1
                | u8::from(self.flow_control),
            self.rnr_retry_count << 5 | u8::from(self.srq) << 4,
        ])?;
        writer.u64(self.ca_guid)?;
        writer.put(self.private.get())
    }
}

/// Ready to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rtu<'a> {
    /// The sender's ID of the connection.
    pub local_id: CommId,
    /// The receiver's ID of the connection.
    pub remote_id: CommId,
    /// The private data.
    pub private: Private<'a, 224>,
}

impl<'a> Rtu<'a> {
    /// Bytes of private data.
    pub const PRIVATE_LEN: usize = 224;

    fn read(reader: &mut Reader<'a>) -> Option<Self> {
        Some(Self {
            local_id: CommId(reader.u32()?),
            remote_id: CommId(reader.u32()?),
            private: Private::read(reader.rest())?,
        })
    }

    fn write(&self, writer: &mut Writer<'_>) -> Option<()> {
        writer.u32(self.local_id.0)?;
        writer.u32(self.remote_id.0)?;
        writer.put(self.private.get())
    }
}

/// Disconnection request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dreq<'a> {
    /// The sender's ID of the connection.
    pub local_id: CommId,
    /// The receiver's ID of the connection.
    pub remote_id: CommId,
    /// The receiver's QP.
    pub remote_qpn: Qpn,
    /// The private data.
    pub private: Private<'a, 220>,
}

impl<'a> Dreq<'a> {
    /// Bytes of private data.
    pub const PRIVATE_LEN: usize = 220;

    fn read(reader: &mut Reader<'a>) -> Option<Self> {
        let local_id = CommId(reader.u32()?);
        let remote_id = CommId(reader.u32()?);
        let [qpn, _] = read_24(reader)?;
        Some(Self {
            local_id,
            remote_id,
            remote_qpn: Qpn::new(qpn),
            private: Private::read(reader.rest())?,
        })
    }

    fn write(&self, writer: &mut Writer<'_>) -> Option<()> {
        writer.u32(self.local_id.0)?;
        writer.u32(self.remote_id.0)?;
        write_24(writer, self.remote_qpn.get(), 0)?;
        writer.put(self.private.get())
    }
}

/// Disconnection reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drep<'a> {
    /// The sender's ID of the connection.
    pub local_id: CommId,
    /// The receiver's ID of the connection.
    pub remote_id: CommId,
    /// The private data.
    pub private: Private<'a, 224>,
}

impl<'a> Drep<'a> {
    /// Bytes of private data.
    pub const PRIVATE_LEN: usize = 224;

    fn read(reader: &mut Reader<'a>) -> Option<Self> {
        Some(Self {
            local_id: CommId(reader.u32()?),
            remote_id: CommId(reader.u32()?),
            private: Private::read(reader.rest())?,
        })
    }

    fn write(&self, writer: &mut Writer<'_>) -> Option<()> {
        writer.u32(self.local_id.0)?;
        writer.u32(self.remote_id.0)?;
        writer.put(self.private.get())
    }
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as what they hold")]
pub enum Body<'a> {
    Req(Req<'a>),
    Mra(Mra<'a>),
    Rej(Rej<'a>),
    Rep(Rep<'a>),
    Rtu(Rtu<'a>),
    Dreq(Dreq<'a>),
    Drep(Drep<'a>),
}

/// A message with its transaction ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The transaction: an answer has the one of the request.
    pub tid: u64,
    /// What is said.
    pub body: Body<'a>,
}

impl<'a> Message<'a> {
    /// Reads the message in the payload of a datagram to QP 1.
    ///
    /// # Errors
    ///
    /// See [`Malformed`].
    pub fn parse(payload: &'a [u8]) -> Result<Self, Malformed> {
        let mad: &Mad = payload.try_into().map_err(|_| Malformed::Length)?;
        let mut reader = Reader::new(mad);
        let (attribute, tid) = mad::read(&mut reader)?;
        let reader = &mut reader;
        let body = match attribute {
            Attribute::Req => Req::read(reader).map(Body::Req),
            Attribute::Mra => Mra::read(reader).map(Body::Mra),
            Attribute::Rej => Rej::read(reader).map(Body::Rej),
            Attribute::Rep => Rep::read(reader).map(Body::Rep),
            Attribute::Rtu => Rtu::read(reader).map(Body::Rtu),
            Attribute::Dreq => Dreq::read(reader).map(Body::Dreq),
            Attribute::Drep => Drep::read(reader).map(Body::Drep),
        };
        // Each is shorter than a datagram.
        let body = body.ok_or(Malformed::Length)?;
        Ok(Self { tid, body })
    }

    /// Returns which message it is.
    pub const fn attribute(&self) -> Attribute {
        match self.body {
            Body::Req(_) => Attribute::Req,
            Body::Mra(_) => Attribute::Mra,
            Body::Rej(_) => Attribute::Rej,
            Body::Rep(_) => Attribute::Rep,
            Body::Rtu(_) => Attribute::Rtu,
            Body::Dreq(_) => Attribute::Dreq,
            Body::Drep(_) => Attribute::Drep,
        }
    }

    /// Returns the datagram.
    pub fn write(&self) -> Mad {
        let mut mad = [0; MAD_LEN];
        // Every message fits: its private data is not longer than it may be.
        let _ = self.put(&mut Writer::new(&mut mad));
        mad
    }

    fn put(&self, writer: &mut Writer<'_>) -> Option<()> {
        mad::write(self.attribute(), self.tid, writer)?;
        match &self.body {
            Body::Req(req) => req.write(writer),
            Body::Mra(mra) => mra.write(writer),
            Body::Rej(rej) => rej.write(writer),
            Body::Rep(rep) => rep.write(writer),
            Body::Rtu(rtu) => rtu.write(writer),
            Body::Dreq(dreq) => dreq.write(writer),
            Body::Drep(drep) => drep.write(writer),
        }
    }
}

#[cfg(any(test, kfi_kunit))]
mod tests;
