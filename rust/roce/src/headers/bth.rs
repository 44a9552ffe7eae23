// SPDX-License-Identifier: GPL-2.0
//! The base transport header (BTH), the first 12 bytes of every packet.
//!
//! | byte | bits | field |
//! |---|---|---|
//! | 0 | 8 | opcode |
//! | 1 | 1, 1, 2, 4 | SE, M (MigReq), PadCnt, TVer |
//! | 2 | 16 | P_Key |
//! | 4 | 1, 1, 6 | FECN, BECN, reserved (not covered by the ICRC) |
//! | 5 | 24 | DestQP |
//! | 8 | 1, 7 | A (AckReq), reserved |
//! | 9 | 24 | PSN |
//!
//! Reserved bits are sent as 0 and ignored when received. Only the default partition is supported:
//! its P_Key is sent, and packets of full and limited members are accepted.
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

/// The bits of a P_Key that identify the partition; the highest bit marks a full member.
const PARTITION: u16 = 0x7fff;

/// The base transport header without the fields that follow from the rest of the packet: the opcode
/// and the pad count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bth {
    /// Solicited event: the completion at the responder wakes waiters for solicited completions.
    pub solicited: bool,
    /// MigReq: the state of path migration is "migrated". Devices without path migration set it;
    /// this device ignores it.
    pub mig_req: bool,
    /// Forward congestion notification: a switch on the path was congested.
    pub fecn: bool,
    /// Backward congestion notification: the path in the opposite direction was congested.
    pub becn: bool,
    /// The destination QP.
    pub dest_qp: Qpn,
    /// The requester asks for an acknowledgement.
    pub ack_req: bool,
    /// The packet sequence number.
    pub psn: Psn,
}

impl Bth {
    /// The length of the header in bytes.
    pub const LEN: usize = 12;

    /// Returns the header of packet `psn` to a QP, with no flag set but MigReq.
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

    /// Reads the header. Returns the opcode, the pad count, and the other fields.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<(Opcode, u8, Self), Malformed> {
        let short = Malformed::Short;
        let opcode = reader.u8().ok_or(short)?;
        let bits = reader.u8().ok_or(short)?;
        let pkey = reader.u16().ok_or(short)?;
        let dest = reader.u32().ok_or(short)?;
        let psn = reader.u32().ok_or(short)?;

        // The version is checked first, because the other fields depend on it.
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
