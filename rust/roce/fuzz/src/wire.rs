// SPDX-License-Identifier: GPL-2.0
//! The fuzz targets for packets, unreliable datagrams and connection management.

use super::Bytes;
use kfi_roce::{
    cm::{
        Attribute,
        Body,
        CommId,
        Connect,
        Connection,
        Device,
        Event,
        Invalid,
        IpHeader,
        Mad,
        Message,
        Private,
        Reason,
        Req,
        Route,
        ServiceId,
        Side,
        State,
        Timing,
        MAD_LEN, //
    },
    error::Error,
    headers::{
        Qpn,
        MAX_HEADERS, //
    },
    icrc::{
        Crc32,
        Icrc, //
    },
    mtu::PathMtu,
    packet::{
        Malformed,
        Packet,
        ICRC_LEN, //
    },
    psn::Psn,
    state::{
        Mask,
        State as QpState, //
    },
    ud, //
};
use std::net::{
    IpAddr,
    Ipv4Addr, //
};

/// Parses a datagram, possibly truncated.
pub fn packet(data: &[u8]) {
    let mut bytes = Bytes(data);
    let help = bytes.byte();
    let mut datagram = bytes.0.to_vec();
    // Makes the version and the P_Key valid more often than by chance.
    if help & 1 != 0 {
        if let Some([_, bits, pkey @ ..]) = datagram.first_chunk_mut::<4>() {
            *bits &= 0xf0;
            *pkey = [0xff; 2];
        }
    }
    if help & 2 != 0 {
        datagram.truncate(datagram.len() / 4 * 4);
    }
    let len = datagram.len();
    let whole = Packet::parse(&datagram, len);
    // The first bytes are enough for parsing.
    let head = &datagram[..len.min(MAX_HEADERS)];
    assert_eq!(Packet::parse(head, len), whole);
    let packet = match whole {
        Ok(packet) => packet,
        Err(malformed) => {
            assert!(len >= 16 || malformed == Malformed::Short);
            return;
        }
    };
    assert_eq!(packet.len(), len);
    assert!(packet.payload().end + packet.pad() + ICRC_LEN == len);
    assert_eq!(packet.payload().len(), packet.payload_len());
    let mut buffer = [0xaa; MAX_HEADERS];
    let written = packet.write(&mut buffer);
    assert_eq!(written.len(), packet.headers().len());
    assert_eq!(Packet::parse(written, len), Ok(packet));
    // The written bytes differ only in reserved bits: the low bits of bytes 4 and 8, and of a DETH.
    let mut reserved = datagram[..written.len()].to_vec();
    reserved[4] &= 0xc0;
    reserved[8] &= 0x80;
    if packet.opcode().has_deth() {
        reserved[16] = 0;
    }
    // The P_Key of a limited member is accepted too.
    reserved[2] |= 0x80;
    assert_eq!(reserved, written);
}

/// A checksum that depends on the order of the bytes.
struct Sum;

impl Crc32 for Sum {
    fn update(crc: u32, bytes: &[u8]) -> u32 {
        bytes.iter().fold(crc, |crc, byte| {
            crc.rotate_left(5).wrapping_mul(0x9e37_79b9) ^ u32::from(*byte)
        })
    }
}

/// Computes an ICRC over pieces.
pub fn icrc(data: &[u8]) {
    let mut bytes = Bytes(data);
    let (v6, udp) = (bytes.byte() & 1 != 0, bytes.array());
    let begin = |packet: &[u8], ip: [u8; 40]| {
        if v6 {
            Icrc::<Sum>::ipv6(&ip, &udp, packet)
        } else {
            let [v4 @ .., _, _, _, _, _, _, _, _, _, _] = ip;
            let [v4 @ .., _, _, _, _, _, _, _, _, _, _] = v4;
            Icrc::ipv4(&v4, &udp, packet)
        }
    };
    let ip = bytes.array();
    let (head, rest) = bytes.0.split_at(bytes.0.len().min(12));
    let mut pieces = begin(head, ip);
    let middle = rest.len() / 3;
    pieces.update(&rest[..middle]);
    pieces.update(&rest[middle..]);
    let whole = begin(bytes.0, ip).finish();
    assert_eq!(pieces.finish(), whole);
    assert!(begin(bytes.0, ip).matches(whole));
    for pad in 0..5 {
        let trailer = begin(bytes.0, ip).trailer(pad);
        assert_eq!(trailer.len(), pad.min(3) + ICRC_LEN);
        let mut padded = bytes.0.to_vec();
        if padded.len() >= 12 {
            padded.extend(&trailer[..pad.min(3)]);
            assert_eq!(begin(&padded, ip).finish(), trailer[pad.min(3)..]);
        }
    }
}

/// Changes a UD QP, sends from it, and passes packets to it.
pub fn ud(data: &[u8]) {
    let mut bytes = Bytes(data);
    let mut qp = ud::Qp::new(Qpn::new(bytes.u32()));
    while !bytes.0.is_empty() {
        let before = format!("{qp:?}");
        match bytes.byte() & 3 {
            0 => {
                let attr = ud::Attr {
                    state: QpState::ALL[usize::from(bytes.byte()) % 7],
                    cur_state: QpState::ALL[usize::from(bytes.byte()) % 7],
                    pkey_index: u16::from(bytes.byte() & 1),
                    port: bytes.byte() & 3,
                    qkey: bytes.u32() & 0x8000_0001,
                    sq_psn: Psn::new(bytes.u32()),
                    en_sqd_async_notify: true,
                };
                let all = [
                    Mask::CUR_STATE,
                    Mask::PKEY_INDEX,
                    Mask::PORT,
                    Mask::QKEY,
                    Mask::SQ_PSN,
                    Mask::AV,
                    Mask::EN_SQD_ASYNC_NOTIFY,
                ];
                let given = bytes.byte();
                let mask = (0..)
                    .zip(all)
                    .filter(|(bit, _)| given >> bit & 1 != 0)
                    .fold(Mask::NONE, |mask, (_, one)| mask.with(one));
                match qp.modify(&attr, mask) {
                    Ok(()) => {
                        assert_eq!(qp.state(), attr.state);
                        let sqd = attr.state == QpState::Sqd;
                        assert!(sqd || !qp.clone().take_drained());
                    }
                    Err(error) => {
                        assert_eq!(error, Error::Invalid);
                        assert_eq!(format!("{qp:?}"), before);
                    }
                }
            }
            1 => {
                let send = ud::Send {
                    dest_qp: Qpn::new(bytes.u32()),
                    qkey: bytes.u32() & 0x8000_0001,
                    len: bytes.number() as usize,
                    imm: (bytes.byte() & 1 != 0).then_some(7),
                    solicited: bytes.byte() & 1 != 0,
                };
                let mtu = PathMtu::ALL[usize::from(bytes.byte()) % 5];
                match qp.send(&send, mtu) {
                    Ok(packet) => {
                        assert_eq!(qp.state(), QpState::Rts);
                        assert!(packet.payload_len() <= mtu.bytes() as usize);
                        assert_eq!(packet.payload_len(), send.len);
                    }
                    Err(unsent) => {
                        assert_eq!(format!("{qp:?}"), before);
                        let long = send.len > mtu.bytes() as usize;
                        assert!(unsent != ud::Unsent::TooLong || long);
                    }
                }
            }
            2 => qp.send_failed(),
            _ => {
                let datagram = bytes.take(28);
                let len = usize::from(u16::from_be_bytes(bytes.array()));
                let room = (bytes.byte() & 3 != 0).then_some(bytes.number() as usize);
                if let Ok(packet) = Packet::parse(datagram, len) {
                    if let Ok(received) = qp.receive(&packet, room) {
                        assert!(qp.state().executes());
                        assert_eq!(received.payload, packet.payload());
                        assert_eq!(received.len(), packet.payload_len() + 40);
                        assert_eq!(received.fits, Some(received.len()) <= room);
                    }
                }
            }
        }
    }
}

/// Returns bytes that are a valid message more often than by chance.
fn mad(bytes: &mut Bytes<'_>) -> Mad {
    let help = bytes.byte();
    let mut mad: Mad = if help & 0xc0 == 0xc0 {
        bytes.array()
    } else {
        let mut mad = [0; MAD_LEN];
        mad[17] = bytes.byte();
        for _ in 0..help & 7 {
            mad[usize::from(bytes.byte())] = bytes.byte();
        }
        mad
    };
    if help & 8 == 0 {
        mad[..4].copy_from_slice(&[1, 7, 2, 3]);
        mad[16] = 0;
        mad[17] = 0x10 | mad[17] & 7;
    }
    mad
}

/// Parses a CM message, and the header of the RDMA CM in it.
pub fn cm_message(data: &[u8]) {
    assert_eq!(Message::parse(data).is_ok(), {
        let known = data.get(16..18).is_some_and(|id| {
            let id = u16::from_be_bytes([id[0], id[1]]);
            Attribute::from_id(id).is_some()
        });
        data.len() == MAD_LEN && data.starts_with(&[1, 7, 2, 3]) && known
    });
    let mad = mad(&mut Bytes(data));
    let Ok(message) = Message::parse(&mad) else {
        return;
    };
    // A parsed message is written again without its reserved fields.
    let again = message.write();
    assert_eq!(Message::parse(&again), Ok(message));
    assert_eq!(Message::parse(&again).map(|again| again.write()), Ok(again));
    if let Some(answer) = message.unknown() {
        let answer = Message::parse(&answer).expect("is well formed");
        assert_eq!(answer.tid, message.tid);
        assert_eq!(answer.unknown(), None);
    }
    if let Body::Req(req) = &message.body {
        let private: &[u8; Req::PRIVATE_LEN] = req.private.get().try_into().expect("has its bytes");
        match IpHeader::parse(private) {
            Ok((header, consumer)) => {
                let again = header.write(consumer).expect("fits");
                assert_eq!(IpHeader::parse(&again), Ok((header, consumer)));
            }
            Err(Invalid::Version) => assert_ne!(private[0], 0),
            Err(Invalid::IpVersion) => assert!(![4, 6].contains(&(private[1] >> 4))),
        }
    }
}

const IPS: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)),
];
const IDS: [CommId; 2] = [CommId(0x0101_0101), CommId(0x0202_0202)];
const GUIDS: [u64; 2] = [0x0303_0303_0303_0303, 0x0404_0404_0404_0404];
const QPN: Qpn = Qpn::new(0x05_0505);

fn device(number: usize) -> Device {
    Device {
        ca_guid: GUIDS[number],
        ip: IPS[number],
        mtu: PathMtu::Mtu1024,
        responder_resources: 4,
        initiator_depth: 4,
        timing: Timing::DEFAULT,
    }
}

const SIDE: Side = Side {
    qpn: QPN,
    starting_psn: Psn::new(6),
    responder_resources: 4,
    initiator_depth: 4,
    rnr_retry_count: 7,
    srq: false,
};

/// Returns the passive end for an arbitrary REQ.
fn passive(bytes: &mut Bytes<'_>) -> Option<Connection> {
    let mut mad = mad(bytes);
    mad[17] = 0x10;
    if bytes.byte() & 7 != 0 {
        // Corrects the fields that would cause a refusal.
        mad[24..28].copy_from_slice(&IDS[0].0.to_be_bytes());
        mad[40..48].copy_from_slice(&GUIDS[0].to_be_bytes());
        mad[24 + 43] &= 0xf9;
        mad[24 + 48..24 + 50].fill(0xff);
        mad[24 + 50] = mad[24 + 50] & 0x1f | 0x10;
        for (at, ip) in [(56, 1), (72, 2)] {
            let gid = &mut mad[24 + at..][..16];
            gid.fill(0);
            gid[10..].copy_from_slice(&[0xff, 0xff, 10, 0, 0, ip]);
        }
    }
    let message = Message::parse(&mad).ok()?;
    let Body::Req(req) = &message.body else {
        return None;
    };
    match Connection::request(&device(1), IDS[1], IPS[0], message.tid, req) {
        Ok((connection, request)) => {
            assert!(request.mtu <= PathMtu::Mtu1024);
            assert!(request.initiator_depth <= 4 && request.responder_resources <= 4);
            Some(connection)
        }
        Err(refusal) => {
            let mad = refusal.message(message.tid, req.local_id);
            assert!(matches!(Message::parse(&mad), Ok(no) if no.attribute() == Attribute::Rej));
            None
        }
    }
}

fn active(bytes: &mut Bytes<'_>) -> Connection {
    let len = usize::from(bytes.byte() % 93);
    let private = bytes.take(len);
    let connect = Connect {
        local_id: IDS[0],
        tid: bytes.u64(),
        remote: IPS[1],
        service_id: ServiceId::tcp(7),
        side: SIDE,
        mtu: PathMtu::Mtu1024,
        least_mtu: PathMtu::from_code(bytes.byte() % 6).unwrap_or(PathMtu::Mtu256),
        retry_count: bytes.byte(),
        private: Private::new(private).expect("fits"),
    };
    Connection::connect(bytes.number(), &device(0), &connect)
}

/// Returns a message in which some IDs are right.
fn hostile(bytes: &mut Bytes<'_>, active: bool) -> Mad {
    let mut mad = mad(bytes);
    let (me, peer) = if active { (0, 1) } else { (1, 0) };
    let right = bytes.byte();
    if right & 1 == 0 {
        mad[24..28].copy_from_slice(&IDS[peer].0.to_be_bytes());
    }
    let is_req = mad[17] == 0x10;
    if right & 2 == 0 && !is_req {
        mad[28..32].copy_from_slice(&IDS[me].0.to_be_bytes());
    }
    if right & 4 == 0 {
        match mad[17] {
            // The GUID of a REQ, a REJ and a REP; the QP of a DREQ.
            0x10 => mad[40..48].copy_from_slice(&GUIDS[peer].to_be_bytes()),
            0x12 => {
                mad[33] = 16;
                mad[34..36].copy_from_slice(&[0, 4]);
                mad[36..44].copy_from_slice(&GUIDS[peer].to_be_bytes());
            }
            0x13 => mad[52..60].copy_from_slice(&GUIDS[peer].to_be_bytes()),
            0x15 => mad[32..35].copy_from_slice(&QPN.get().to_be_bytes()[1..]),
            _ => {}
        }
    }
    mad
}

/// The events that a consumer has seen, in order.
#[derive(Default)]
struct Heard {
    ended: bool,
    gave_up: bool,
    closed: bool,
}

impl Heard {
    fn hear(&mut self, event: Event<'_>, connection: &Connection) {
        assert!(!self.closed);
        match event {
            Event::Reply(reply) => {
                assert!(reply.mtu <= PathMtu::Mtu1024);
                assert!(!self.ended && !self.gave_up && connection.is_active());
                assert_eq!(connection.state(), State::RepReceived);
            }
            Event::Established(private) => {
                assert!(!self.ended && !self.gave_up && !connection.is_active());
                assert_eq!(private.len(), 224);
                assert_eq!(connection.state(), State::Established);
            }
            Event::Closed => {
                assert!(self.ended || self.gave_up);
                assert_eq!(connection.state(), State::Closed);
                self.closed = true;
            }
            Event::Rejected { info, private, .. } => {
                assert!(info.len() <= 72 && [0, 148].contains(&private.len()));
                self.end();
            }
            Event::Disconnected(private) => {
                assert!([0, 220].contains(&private.len()));
                self.end();
            }
            Event::Unreachable | Event::Released => self.end(),
        }
    }

    fn end(&mut self) {
        assert!(!self.ended && !self.gave_up);
        self.ended = true;
    }
}

/// Checks the conditions that always hold for a connection, and sends its message.
fn check(connection: &mut Connection) {
    let state = connection.state();
    let waits = matches!(
        state,
        State::ReqSent | State::RepSent | State::DreqSent | State::Timewait
    );
    assert_eq!(connection.deadline().is_some(), waits, "{state:?}");
    if let Some(mad) = connection.transmit() {
        let message = Message::parse(&mad).expect("is well formed");
        assert_eq!(message.write(), mad);
        assert_ne!(state, State::Closed);
        // The message is for the peer, and its answer is routed back.
        if let Route::Local(id) = message.route() {
            let known = connection.remote_id();
            assert!(known.is_none_or(|known| known == id));
        }
        assert_eq!(connection.transmit(), None);
    }
}

/// A connection with its consumer, its clock, and an arbitrary peer.
pub fn cm_connection(data: &[u8]) {
    let mut bytes = Bytes(data);
    let connection = if bytes.byte() & 1 == 0 {
        Some(active(&mut bytes))
    } else {
        passive(&mut bytes)
    };
    let Some(mut connection) = connection else {
        return;
    };
    let mut heard = Heard::default();
    let mut now = 0;
    let from = connection.peer();
    check(&mut connection);
    while !bytes.0.is_empty() {
        let before = connection.state();
        let private = [bytes.byte(); 148];
        let private = &private[..usize::from(private[0]) % 149];
        let called = match bytes.byte() % 13 {
            0..=5 => {
                let mad = hostile(&mut bytes, connection.is_active());
                let stranger = bytes.byte() & 15 == 15;
                let from = if stranger {
                    IpAddr::V4(Ipv4Addr::LOCALHOST)
                } else {
                    from
                };
                if let Ok(message) = Message::parse(&mad) {
                    match connection.receive(now, from, &message) {
                        Ok(Some(event)) => heard.hear(event, &connection),
                        Ok(None) => {}
                        Err(_) => assert_eq!(connection.state(), before),
                    }
                }
                None
            }
            6 => {
                now = now.saturating_add(bytes.number());
                if let Some(event) = connection.expired(now) {
                    heard.hear(event, &connection);
                }
                None
            }
            7 => Some(connection.accept(now, &SIDE, Private::new(private).expect("fits"))),
            8 => Some(connection.confirm(now, Private::new(private).expect("fits"))),
            9 => {
                let info = Private::new(&private[..private.len().min(72)]).expect("fits");
                let private = Private::new(private).expect("fits");
                let answer = connection.reject(now, Reason::CONSUMER_DEFINED, info, private);
                heard.gave_up |= answer.is_ok();
                Some(answer)
            }
            10 => Some(connection.disconnect(now, Private::new(private).expect("fits"))),
            11 => {
                let answer = connection.ignore(now, Reason::NO_RESOURCES);
                if answer.is_ok() && connection.state() == State::Closed {
                    // The consumer gets no event.
                    check(&mut connection);
                    return;
                }
                heard.gave_up |= answer.is_ok();
                Some(answer)
            }
            _ => {
                if private.is_empty() {
                    heard.gave_up |= before != State::Closed;
                    connection.abandon(now);
                } else if private.len() & 1 == 0 {
                    if let Some(event) = connection.stale(now) {
                        heard.hear(event, &connection);
                    }
                } else {
                    connection.communication_established();
                }
                None
            }
        };
        if let Some(Err(state)) = called {
            assert_eq!((state, connection.state()), (before, before));
        }
        if bytes.byte() & 3 != 0 {
            check(&mut connection);
        }
    }
    // Without further messages the connection ends, or waits for its consumer.
    for _ in 0..40 {
        let Some(deadline) = connection.deadline() else {
            break;
        };
        now = now.max(deadline);
        if let Some(event) = connection.expired(now) {
            heard.hear(event, &connection);
        }
        check(&mut connection);
    }
    assert_eq!(connection.deadline(), None);
    assert_eq!(heard.closed, connection.state() == State::Closed);
    assert!(matches!(
        connection.state(),
        State::Closed | State::ReqReceived | State::RepReceived | State::Established
    ));
}
