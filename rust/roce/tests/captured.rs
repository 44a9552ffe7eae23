// SPDX-License-Identifier: GPL-2.0
//! Packets of another implementation are parsed, and written again byte for byte.
//!
//! tests/data/rping.hex holds a captured session of in-tree rxe: connection management with and
//! without a listener, SENDs, a READ, WRITEs and their acknowledgements, over IPv4 and IPv6.

use kfi_roce::{
    cm::{
        Body,
        Gid,
        IpHeader,
        Message,
        Reason,
        Regarding,
        Req,
        ServiceId,
        Timeout,
        Transport, //
    },
    headers::{
        Aeth,
        Deth,
        Headers,
        Qpn,
        Syndrome,
        MAX_HEADERS, //
    },
    opcode::Opcode,
    packet::Packet, //
};
use std::collections::BTreeMap;

mod wire;
use wire::Datagram;

/// The IP packets of the session.
fn session() -> Vec<Vec<u8>> {
    include_str!("data/rping.hex")
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            (0..line.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&line[at..at + 2], 16).unwrap())
                .collect()
        })
        .collect()
}

#[test]
fn every_icrc_is_right() {
    let session = session();
    assert_eq!(session.len(), 48);
    for packet in &session {
        assert!(Datagram::new(packet).verify());
        // The ICRC is wrong after a change of any bit of the packet, except FECN and BECN.
        let from = packet.len() - Datagram::new(packet).payload.len();
        for at in (from..packet.len()).filter(|at| at - from != 4) {
            let mut changed = packet.clone();
            changed[at] ^= 0x10;
            assert!(!Datagram::new(&changed).verify());
        }
    }
}

#[test]
fn each_end_chooses_the_first_psn_of_the_other() {
    // The PSN that each end asked for, by host and QP.
    let mut asked = BTreeMap::new();
    let mut begun = BTreeMap::new();
    for packet in &session() {
        let datagram = Datagram::new(packet);
        let (packet, payload) = datagram.parse();
        if packet.bth.dest_qp != Qpn::GSI {
            if !packet.opcode().is_response() {
                let to = (datagram.dst, packet.bth.dest_qp);
                begun.entry(to).or_insert(packet.bth.psn);
            }
            continue;
        }
        match Message::parse(payload).unwrap().body {
            Body::Req(req) => asked.insert((datagram.src, req.qpn), req.starting_psn),
            Body::Rep(rep) => asked.insert((datagram.src, rep.qpn), rep.starting_psn),
            _ => None,
        };
    }
    // There are two connections, with requests in both directions on each.
    assert_eq!(begun.len(), 4);
    for (qp, psn) in begun {
        assert_eq!(asked.get(&qp), Some(&psn), "{qp:?}");
    }
}

#[test]
fn every_packet_is_written_as_it_was_parsed() {
    let mut seen = BTreeMap::new();
    for packet in &session() {
        let datagram = Datagram::new(packet);
        let (packet, payload) = datagram.parse();
        assert_eq!(packet.len(), datagram.payload.len());
        let mut buffer = [0; MAX_HEADERS];
        let headers = packet.write(&mut buffer);
        let mut icrc = datagram.icrc(headers);
        icrc.update(payload);
        let trailer = icrc.trailer(packet.pad());
        let written = [headers, payload, &*trailer].concat();
        assert_eq!(written, datagram.payload);
        *seen.entry(packet.opcode().byte()).or_insert(0) += 1;
    }
    // The numbers are those counted in the capture.
    assert_eq!(
        seen.into_iter().collect::<Vec<_>>(),
        [
            (Opcode::RcSendOnly.byte(), 12),
            (Opcode::RcWriteOnly.byte(), 3),
            (Opcode::RcReadRequest.byte(), 3),
            (Opcode::RcReadResponseOnly.byte(), 3),
            (Opcode::RcAcknowledge.byte(), 15),
            (Opcode::UdSendOnly.byte(), 12),
        ]
    );
}

#[test]
fn captured_acknowledgements_and_reads_are_parsed() {
    for packet in &session() {
        let (packet, payload) = Datagram::new(packet).parse();
        match packet.headers() {
            Headers::Acknowledge(Aeth { syndrome, msn })
            | Headers::ReadResponseOnly(Aeth { syndrome, msn }) => {
                assert_eq!(syndrome, Syndrome::ACK);
                assert!((1..=8).contains(&msn.get()));
            }
            Headers::ReadRequest(reth) => assert_eq!(reth.len, 64),
            Headers::WriteOnly(reth, None) => {
                assert_eq!(reth.len as usize, payload.len());
                assert!(payload.starts_with(b"rdma-ping-"));
            }
            Headers::SendOnly(_) => assert_eq!(payload.len(), 16),
            Headers::Datagram(deth, None) => {
                let gsi = Deth {
                    qkey: 0x8001_0000,
                    src_qp: Qpn::GSI,
                };
                assert_eq!(deth, gsi);
                assert_eq!(packet.bth.dest_qp, Qpn::GSI);
                assert_eq!(payload.len(), 256);
            }
            other => panic!("not in the session: {other:?}"),
        }
    }
}

/// Calls `f` for each CM message.
fn messages(mut f: impl FnMut(&Datagram<'_>, &[u8], Message<'_>)) {
    for packet in &session() {
        let datagram = Datagram::new(packet);
        let (packet, payload) = datagram.parse();
        if packet.opcode() == Opcode::UdSendOnly {
            f(&datagram, payload, Message::parse(payload).unwrap());
        }
    }
}

#[test]
fn messages_are_written_as_they_were_parsed() {
    let mut names = Vec::new();
    messages(|_, payload, message| {
        names.push(message.attribute().name());
        assert_eq!(message.write(), payload);
    });
    let session = ["REQ", "REP", "RTU", "DREQ", "DREP"];
    let refused = ["REQ", "REJ"];
    assert_eq!(names, [&session[..], &refused, &session].concat());
}

#[test]
fn a_connection_is_made_and_ended() {
    let (mut active, mut passive) = (None, None);
    messages(|datagram, _, Message { tid, body }| match body {
        Body::Req(req) => {
            let port = req.service_id.tcp_port().unwrap();
            assert!([7174, 9999].contains(&port));
            assert_eq!(req.service_id, ServiceId::tcp(port));
            assert_eq!(req.transport, Transport::Rc);
            assert_eq!((req.pkey, req.mtu), (0xffff, 3));
            assert_eq!((req.responder_resources, req.initiator_depth), (1, 1));
            assert_eq!((req.retry_count, req.rnr_retry_count), (7, 7));
            assert_eq!(req.max_cm_retries, 15);
            assert_eq!(req.remote_response_timeout, Timeout::new(20));
            assert_eq!(req.local_response_timeout, Timeout::new(20));
            assert_eq!(req.primary.ack_timeout, Timeout::new(17));
            assert_eq!(req.primary.local_gid, Gid::from(datagram.src));
            assert_eq!(req.primary.remote_gid, Gid::from(datagram.dst));
            assert!(req.alternate.local_lid == 0 && !req.srq && !req.flow_control);
            let private: &[u8; Req::PRIVATE_LEN] = req.private.get().try_into().unwrap();
            let (header, consumer) = IpHeader::parse(private).unwrap();
            assert_eq!((header.src, header.dst), (datagram.src, datagram.dst));
            assert_ne!(header.src_port, 0);
            assert_eq!(&header.write(consumer).unwrap(), private);
            active = Some((tid, req.local_id, req.qpn, req.ca_guid));
        }
        Body::Rep(rep) => {
            let (request, id, qpn, guid) = active.unwrap();
            assert_eq!((tid, rep.remote_id), (request, id));
            assert_eq!((rep.responder_resources, rep.initiator_depth), (1, 1));
            assert_eq!(rep.rnr_retry_count, 7);
            assert_ne!((rep.qpn, rep.ca_guid), (qpn, guid));
            passive = Some((rep.local_id, rep.qpn));
        }
        Body::Rtu(rtu) => {
            let ((request, id, ..), (other, _)) = (active.unwrap(), passive.unwrap());
            assert_eq!((tid, rtu.local_id, rtu.remote_id), (request, id, other));
        }
        Body::Dreq(dreq) => {
            // The server disconnects; the capture has one packet of each end.
            let ((_, id, qpn, _), (other, other_qpn)) = (active.unwrap(), passive.unwrap());
            let ends = [(id, other, other_qpn), (other, id, qpn)];
            assert!(ends.contains(&(dreq.local_id, dreq.remote_id, dreq.remote_qpn)));
        }
        Body::Drep(drep) => {
            let ((_, id, ..), (other, _)) = (active.unwrap(), passive.unwrap());
            let ends = [(id, other), (other, id)];
            assert!(ends.contains(&(drep.local_id, drep.remote_id)));
        }
        Body::Rej(rej) => {
            let (request, id, ..) = active.unwrap();
            assert_eq!((tid, rej.remote_id), (request, id));
            assert_eq!(rej.regarding, Regarding::Req);
            assert_eq!(rej.reason, Reason::INVALID_SERVICE_ID);
            assert_eq!(rej.info.get(), b"");
        }
        Body::Mra(_) => panic!("there was no need"),
    });
}

/// A packet that is truncated, or has excess bytes, is refused.
#[test]
fn every_shorter_packet_is_refused() {
    for packet in &session() {
        let payload = Datagram::new(packet).payload;
        let (packet, _) = Datagram::new(packet).parse();
        for len in 0..payload.len() {
            if let Ok(shorter) = Packet::parse(&payload[..len], len) {
                assert!(shorter.payload_len() < packet.payload_len());
            }
        }
    }
}
