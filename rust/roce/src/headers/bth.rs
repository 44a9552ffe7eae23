// SPDX-License-Identifier: GPL-2.0
//! The base transport header, 12 bytes, with which every packet begins.
//!
//! | byte | bits | field |
//! |---|---|---|
//! | 0 | 8 | opcode |
//! | 1 | 1, 1, 2, 4 | SE, M (MigReq), PadCnt, TVer |
//! | 2 | 16 | P_Key |
//! | 4 | 1, 1, 6 | FECN, BECN, reserved (not under the ICRC) |
//! | 5 | 24 | DestQP |
//! | 8 | 1, 7 | A (AckReq), reserved |
//! | 9 | 24 | PSN |
//!
//! Reserved bits are sent as 0 and ignored when received. There is one partition, the default one:
//! its P_Key is sent, and received from full and limited members.
//!
//! Source: InfiniBand specification, volume 1, section 9.2; RoCEv2: annex A17.

use super::{
    super::{
        bytes::{
            Reader,
            Writer, //
        },
        opcode::Opcode,
        packet::Malformed,
        psn::Psn, //
    },
    Qpn,
};

/// The P_Key of the default partition, full member.
pub const DEFAULT_PKEY: u16 = 0xffff;

/// The bits of a P_Key that name the partition; the highest one says full member.
const PARTITION: u16 = 0x7fff;

/// The base transport header, but for what follows from the rest of the packet: opcode and pad
/// count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bth {
    /// Solicited event: the responder's completion shall wake who waits for solicited ones.
    pub solicited: bool,
    /// MigReq: path migration is in the state migrated. Set by devices that do not migrate, and
    /// ignored by this one.
    pub mig_req: bool,
    /// Forward congestion notification: a switch on the way was congested.
    pub fecn: bool,
    /// Backward congestion notification: the other direction was congested.
    pub becn: bool,
    /// The QP to which the packet goes.
    pub dest_qp: Qpn,
    /// The requester wants an acknowledgement.
    pub ack_req: bool,
    /// The packet's number.
    pub psn: Psn,
}

impl Bth {
    /// Its bytes.
    pub const LEN: usize = 12;

    /// Returns the header of packet `psn` to a QP, with no notice set.
    pub const fn new(dest_qp: Qpn, psn: Psn) -> Self {
        Self {
            solicited: false,
            mig_req: true,
            fecn: false,
            becn: false,
            dest_qp,
            ack_req: false,
            psn,
        }
    }

    /// Reads the header: the opcode, the pad count, the rest.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<(Opcode, u8, Self), Malformed> {
        let short = Malformed::Short;
        let opcode = reader.u8().ok_or(short)?;
        let bits = reader.u8().ok_or(short)?;
        let pkey = reader.u16().ok_or(short)?;
        let dest = reader.u32().ok_or(short)?;
        let psn = reader.u32().ok_or(short)?;

        // The version first: what it does not fix cannot be judged.
        if bits & 0x0f != 0 {
            return Err(Malformed::Version);
        }
        let opcode = Opcode::from_byte(opcode).ok_or(Malformed::Opcode)?;
        if pkey & PARTITION != DEFAULT_PKEY & PARTITION {
            return Err(Malformed::Pkey);
        }
        let bth = Self {
            solicited: bits & 0x80 != 0,
            mig_req: bits & 0x40 != 0,
            fecn: dest & 1 << 31 != 0,
            becn: dest & 1 << 30 != 0,
            dest_qp: Qpn::new(dest),
            ack_req: psn & 1 << 31 != 0,
            psn: Psn::new(psn),
        };
        Ok((opcode, bits >> 4 & 3, bth))
    }

    /// Writes the header. The two lowest bits of `pad` are the pad count.
    pub(crate) fn write(&self, opcode: Opcode, pad: u8, writer: &mut Writer<'_>) -> Option<()> {
        let bit = |set: bool, bit: u32| u32::from(set) << bit;
        let first = u32::from(opcode.byte()) << 24
            | bit(self.solicited, 23)
            | bit(self.mig_req, 22)
            | u32::from(pad & 3) << 20
            | u32::from(DEFAULT_PKEY);
        writer.u32(first)?;
        writer.u32(bit(self.fecn, 31) | bit(self.becn, 30) | self.dest_qp.get())?;
        writer.u32(bit(self.ack_req, 31) | self.psn.get())
    }
}
