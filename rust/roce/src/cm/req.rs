// SPDX-License-Identifier: GPL-2.0
//! REQ, the connection request, and the paths in it.
//!
//! Source: InfiniBand specification, volume 1, section 12.6.5, table 106.

use super::{
    super::{
        bytes::{
            Reader,
            Writer, //
        },
        headers::Qpn,
        psn::Psn, //
    },
    message::{
        read_24,
        write_24,
        CommId,
        Private, //
    },
    Gid,
    ServiceId,
    Timeout, //
};

/// A path: the addresses of both ends and the parameters of its packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Path {
    /// The LID of the REQ's sender. 0 in an alternate path means that there is none.
    pub local_lid: u16,
    /// The LID of the REQ's receiver.
    pub remote_lid: u16,
    /// The GID of the REQ's sender.
    pub local_gid: Gid,
    /// The GID of the REQ's receiver.
    pub remote_gid: Gid,
    /// The flow label, 20 bits.
    pub flow_label: u32,
    /// The packet rate, a code of 6 bits.
    pub packet_rate: u8,
    /// The traffic class.
    pub traffic_class: u8,
    /// The hop limit.
    pub hop_limit: u8,
    /// The service level, 4 bits.
    pub service_level: u8,
    /// Whether the path stays within a subnet.
    pub subnet_local: bool,
    /// The local ACK timeout of the REQ's sender.
    pub ack_timeout: Timeout,
}

/// The permissive LID, which names no port.
const PERMISSIVE_LID: u16 = 0xffff;

/// The current packet rate of the port.
const RATE_PORT_CURRENT: u8 = 0;

impl Path {
    /// Returns the RoCEv2 path between two IP addresses.
    pub const fn new(local_gid: Gid, remote_gid: Gid, hop_limit: u8, ack_timeout: Timeout) -> Self {
        Self {
            local_lid: PERMISSIVE_LID,
            remote_lid: PERMISSIVE_LID,
            local_gid,
            remote_gid,
            flow_label: 0,
            packet_rate: RATE_PORT_CURRENT,
            traffic_class: 0,
            hop_limit,
            service_level: 0,
            subnet_local: false,
            ack_timeout,
        }
    }

    /// No path.
    pub const NONE: Self = Self {
        local_lid: 0,
        remote_lid: 0,
        local_gid: Gid([0; Gid::LEN]),
        remote_gid: Gid([0; Gid::LEN]),
        flow_label: 0,
        packet_rate: 0,
        traffic_class: 0,
        hop_limit: 0,
        service_level: 0,
        subnet_local: false,
        ack_timeout: Timeout::new(0),
    };

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let local_lid = reader.u16()?;
        let remote_lid = reader.u16()?;
        let local_gid = Gid(reader.array()?);
        let remote_gid = Gid(reader.array()?);
        let flow = reader.u32()?;
        let [traffic_class, hop_limit, service, timeout] = reader.array()?;
        Some(Self {
            local_lid,
            remote_lid,
            local_gid,
            remote_gid,
            flow_label: flow >> 12,
            packet_rate: (flow & 0x3f) as u8,
            traffic_class,
            hop_limit,
            service_level: service >> 4,
            subnet_local: service & 0x08 != 0,
            ack_timeout: Timeout::new(timeout >> 3),
        })
    }

    fn write(&self, writer: &mut Writer<'_>) -> Option<()> {
        writer.u16(self.local_lid)?;
        writer.u16(self.remote_lid)?;
        writer.put(&self.local_gid.0)?;
        writer.put(&self.remote_gid.0)?;
        writer.u32(self.flow_label << 12 | u32::from(self.packet_rate & 0x3f))?;
        writer.put(&[
            self.traffic_class,
            self.hop_limit,
            self.service_level << 4 | u8::from(self.subnet_local) << 3,
            self.ack_timeout.code() << 3,
        ])
    }
}

/// The transport service that a REQ asks for, a code of 2 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Transport {
    /// Reliable connection.
    Rc = 0,
    /// Unreliable connection.
    Uc = 1,
    /// Reliable datagram of InfiniBand.
    Rd = 2,
    /// Extended: XRC.
    Extended = 3,
}

impl Transport {
    const fn new(code: u8) -> Self {
        match code & 3 {
            0 => Self::Rc,
            1 => Self::Uc,
            2 => Self::Rd,
            _ => Self::Extended,
        }
    }
}

/// Request for communication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Req<'a> {
    /// The communication ID of the sender.
    pub local_id: CommId,
    /// The service ID.
    pub service_id: ServiceId,
    /// The GUID of the sender's device.
    pub ca_guid: u64,
    /// The QP number of the sender.
    pub qpn: Qpn,
    /// The number of READs and atomics that the sender's responder can have outstanding.
    pub responder_resources: u8,
    /// The number of READs and atomics that the sender's requester wants to have outstanding.
    pub initiator_depth: u8,
    /// The time that the receiver may take to answer.
    pub remote_response_timeout: Timeout,
    /// The transport service.
    pub transport: Transport,
    /// Whether the sender has end-to-end flow control.
    pub flow_control: bool,
    /// The first PSN that the receiver of this message has to send.
    pub starting_psn: Psn,
    /// The time that the sender may take to answer.
    pub local_response_timeout: Timeout,
    /// The retry count for the receiver's requester, 3 bits.
    pub retry_count: u8,
    /// The P_Key of the partition.
    pub pkey: u16,
    /// The code of the path MTU, see [`PathMtu::code`](super::super::mtu::PathMtu::code); 4 bits.
    pub mtu: u8,
    /// The retry count after an RNR NAK for the receiver's requester, 3 bits.
    pub rnr_retry_count: u8,
    /// How often the receiver retransmits a message of connection management, 4 bits.
    pub max_cm_retries: u8,
    /// Whether the sender's QP has a shared receive queue.
    pub srq: bool,
    /// The primary path.
    pub primary: Path,
    /// The alternate path.
    pub alternate: Path,
    /// The private data.
    pub private: Private<'a, 92>,
}

impl<'a> Req<'a> {
    /// The length of the private data in bytes.
    pub const PRIVATE_LEN: usize = 92;

    pub(super) fn read(reader: &mut Reader<'a>) -> Option<Self> {
        let local_id = CommId(reader.u32()?);
        let _vendor = reader.u32()?;
        let service_id = ServiceId::new(reader.u64()?);
        let ca_guid = reader.u64()?;
        let _reserved_and_qkey = reader.u64()?;
        let [qpn, responder_resources] = read_24(reader)?;
        let [_, initiator_depth] = read_24(reader)?;
        let [_, response] = read_24(reader)?;
        let [psn, local] = read_24(reader)?;
        let pkey = reader.u16()?;
        let [mtu, retries] = reader.array()?;
        Some(Self {
            local_id,
            service_id,
            ca_guid,
            qpn: Qpn::new(qpn),
            responder_resources: responder_resources as u8,
            initiator_depth: initiator_depth as u8,
            remote_response_timeout: Timeout::new((response >> 3) as u8),
            transport: Transport::new((response >> 1) as u8),
            flow_control: response & 1 != 0,
            starting_psn: Psn::new(psn),
            local_response_timeout: Timeout::new((local >> 3) as u8),
            retry_count: (local & 7) as u8,
            pkey,
            mtu: mtu >> 4,
            rnr_retry_count: mtu & 7,
            max_cm_retries: retries >> 4,
            srq: retries & 0x08 != 0,
            primary: Path::read(reader)?,
            alternate: Path::read(reader)?,
            private: Private::read(reader.rest())?,
        })
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>) -> Option<()> {
        writer.u32(self.local_id.0)?;
        writer.u32(0)?;
        writer.u64(self.service_id.get())?;
        writer.u64(self.ca_guid)?;
        writer.u64(0)?;
        write_24(writer, self.qpn.get(), self.responder_resources)?;
        write_24(writer, 0, self.initiator_depth)?;
        write_24(
            writer,
            0,
            self.remote_response_timeout.code() << 3
                | (self.transport as u8) << 1
                | u8::from(self.flow_control),
        )?;
        write_24(
            writer,
            self.starting_psn.get(),
            self.local_response_timeout.code() << 3 | self.retry_count & 7,
        )?;
        writer.u16(self.pkey)?;
        writer.put(&[
            self.mtu << 4 | self.rnr_retry_count & 7,
            self.max_cm_retries << 4 | u8::from(self.srq) << 3,
        ])?;
        self.primary.write(writer)?;
        self.alternate.write(writer)?;
        writer.put(self.private.get())
    }
}
