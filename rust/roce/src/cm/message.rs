// SPDX-License-Identifier: GPL-2.0
//! The messages of connection management, read from and written into management datagrams.
//!
//! | message | meaning | bytes of private data |
//! |---|---|---|
//! | [`Req`] | connection request with the sender's QP | 92 |
//! | [`Mra`] | message received, the answer takes time | 222 |
//! | [`Rej`] | rejection | 148 |
//! | [`Rep`] | acceptance with the sender's QP | 196 |
//! | [`Rtu`] | ready to use | 224 |
//! | [`Dreq`] | disconnection request | 220 |
//! | [`Drep`] | disconnection confirmed | 224 |
//!
//! Each message carries the communication ID of its sender, and each but REQ that of its receiver.
//! A [`CommId`] identifies a connection at the end that chose it.
//!
//! Private data has a fixed length on the wire. Shorter data is padded with zeros, and its original
//! length is not transmitted. Reserved fields are written as zeros and ignored when read. The same
//! holds for fields that have no meaning in RoCEv2 or for this device, which are kept for other
//! implementations: EE contexts, Q keys (RC has none), vendor IDs, and the LIDs and service levels
//! of paths.
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

/// A communication ID: identifies a connection at one of its ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommId(pub u32);

/// Private data of at most `N` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Private<'a, const N: usize>(&'a [u8]);

impl<'a, const N: usize> Private<'a, N> {
    /// No private data.
    pub const NONE: Self = Self(&[]);

    /// Returns `bytes` as private data, or `None` if they are more than `N`.
    pub const fn new(bytes: &'a [u8]) -> Option<Self> {
        if bytes.len() <= N {
            Some(Self(bytes))
        } else {
            None
        }
    }

    /// Returns the bytes. Those of a received message are always `N`.
    pub const fn get(self) -> &'a [u8] {
        self.0
    }

    /// Takes private data from the front of the rest of a datagram.
    pub(super) fn read(rest: &'a [u8]) -> Option<Self> {
        rest.get(..N).map(Self)
    }
}

/// Reads a field of 24 bits and the 8 bits that follow it.
pub(super) fn read_24(reader: &mut Reader<'_>) -> Option<[u32; 2]> {
    let word = reader.u32()?;
    Some([word >> 8, word & 0xff])
}

/// Writes a field of 24 bits and the 8 bits that follow it.
pub(super) fn write_24(writer: &mut Writer<'_>, high: u32, low: u8) -> Option<()> {
    writer.u32(high << 8 | u32::from(low))
}

/// The message that a REJ or MRA refers to, a code of 2 bits.
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
    /// The communication ID of the sender.
    pub local_id: CommId,
    /// The communication ID of the receiver.
    pub remote_id: CommId,
    /// The message that the sender has received.
    pub regarding: Regarding,
    /// The time that the sender needs to answer it.
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
    /// The communication ID of the sender; 0 if it has none.
    pub local_id: CommId,
    /// The communication ID of the receiver; 0 if the sender does not know it.
    pub remote_id: CommId,
    /// The message that is rejected.
    pub regarding: Regarding,
    /// The reason.
    pub reason: Reason,
    /// Additional information; its format depends on the reason. In a received message it has the
    /// length that the message gives.
    pub info: Private<'a, 72>,
    /// The private data.
    pub private: Private<'a, 148>,
}

impl<'a> Rej<'a> {
    /// The maximum length of the additional information in bytes.
    pub const INFO_LEN: usize = 72;

    /// The length of the private data in bytes.
    pub const PRIVATE_LEN: usize = 148;

    fn read(reader: &mut Reader<'a>) -> Option<Self> {
        let local_id = CommId(reader.u32()?);
        let remote_id = CommId(reader.u32()?);
        let regarding = Regarding::new(reader.u8()? >> 6);
        let info_len = usize::from(reader.u8()? >> 1);
        let reason = Reason::new(reader.u16()?);
        let (info, private) = reader.rest().split_at_checked(Self::INFO_LEN)?;
        // Invalid lengths stand for the whole field.
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
    /// The communication ID of the sender.
    pub local_id: CommId,
    /// The communication ID of the receiver.
    pub remote_id: CommId,
    /// The QP number of the sender.
    pub qpn: Qpn,
    /// The first PSN that the receiver of this message has to send.
    pub starting_psn: Psn,
    /// The number of READs and atomics that the sender's responder can have outstanding.
    pub responder_resources: u8,
    /// The number of READs and atomics that the sender's requester will have outstanding.
    pub initiator_depth: u8,
    /// The time that the sender's responder takes to acknowledge.
    pub target_ack_delay: Timeout,
    /// The result for the alternate path, 2 bits: 0 accepted, 1 not supported, 2 rejected.
    pub failover: u8,
    /// Whether the sender has end-to-end flow control.
    pub flow_control: bool,
    /// The retry count after an RNR NAK for the receiver's requester, 3 bits.
    pub rnr_retry_count: u8,
    /// Whether the sender's QP has a shared receive queue.
    pub srq: bool,
    /// The GUID of the sender's device.
    pub ca_guid: u64,
    /// The private data.
    pub private: Private<'a, 196>,
}

impl<'a> Rep<'a> {
    /// The length of the private data in bytes.
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

/// Disconnection request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dreq<'a> {
    /// The communication ID of the sender.
    pub local_id: CommId,
    /// The communication ID of the receiver.
    pub remote_id: CommId,
    /// The QP number of the receiver.
    pub remote_qpn: Qpn,
    /// The private data.
    pub private: Private<'a, 220>,
}

impl<'a> Dreq<'a> {
    /// The length of the private data in bytes.
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

/// Defines a message that consists of the communication IDs and private data.
macro_rules! confirmation {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name<'a> {
            /// The communication ID of the sender.
            pub local_id: CommId,
            /// The communication ID of the receiver.
            pub remote_id: CommId,
            /// The private data.
            pub private: Private<'a, 224>,
        }

        impl<'a> $name<'a> {
            /// The length of the private data in bytes.
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
    };
}

confirmation! {
    /// Ready to use.
    Rtu
}

confirmation! {
    /// Disconnection reply.
    Drep
}

/// The contents of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after their contents")]
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
    /// The transaction ID. An answer has that of its request.
    pub tid: u64,
    /// The contents.
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
        // Each message is shorter than a datagram.
        let body = body.ok_or(Malformed::Length)?;
        Ok(Self { tid, body })
    }

    /// Returns the kind of the message.
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

    /// Returns the message as a datagram.
    pub fn write(&self) -> Mad {
        let mut mad = [0; MAD_LEN];
        // Every message fits, because `Private` limits the private data.
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
