// SPDX-License-Identifier: GPL-2.0
//! The fuzz targets of reliable datagrams: headers and private data of a peer.

use super::Bytes;
use kfi_core::{
    limits,
    rdm::{
        atomic::{
            Piece,
            MAX_PAYLOAD, //
        },
        grant::Grant,
        header::{
            Header,
            MAX_HEADER, //
        },
        hello::{
            Hello,
            Refusal,
            HELLO_LEN, //
        },
        inbound::{
            Begin,
            End,
            Inbound,
            OutstandingAnswers,
            Source, //
        }, //
    }, //
};
use kfi_roce::headers::Reth;

/// Returns bytes that are a valid header more often than by chance.
fn help(bytes: &mut Bytes<'_>) -> Vec<u8> {
    let how = bytes.byte();
    let mut header = bytes.take(MAX_HEADER).to_vec();
    if how & 1 == 0 && header.len() > 3 {
        header[0] = 1;
        header[1] %= 16;
        header[2] &= 0xf;
        header[3] &= 3;
    }
    if how & 2 == 0 {
        for byte in header.iter_mut().skip(4).take(2) {
            *byte = 0;
        }
    }
    if how & 4 == 0 {
        for byte in header.iter_mut().skip(9).take(14) {
            *byte = 0;
        }
    }
    header
}

fn check_header(header: &Header) {
    let mut bytes = [0xff; MAX_HEADER];
    assert_eq!(header.put(&mut bytes), Some(header.len()));
    assert_eq!(Header::parse(&bytes), Ok(*header));
    match header {
        Header::Eager(message) => {
            assert!(u64::from(message.len) <= limits::EAGER_SIZE);
            assert_eq!(header.payload(), message.len);
        }
        Header::Rts(message, _) => {
            assert!(message.finish && u64::from(message.len) <= limits::MAX_MSG_SIZE);
        }
        Header::Atomic(message, call) => {
            assert_eq!(message.len, call.payload());
            assert_eq!(header.payload(), call.payload());
            assert!(call.payload() as usize <= MAX_PAYLOAD);
            assert!(call.memory_len() <= MAX_PAYLOAD);
            assert!((1..=limits::MAX_IOV).contains(&call.pieces()));
            assert!((1..=limits::MAX_ATOMIC_SIZE).contains(&call.len()));
            assert_eq!(message.finish, call.result_len().is_some());
            assert!(message.tag.is_none());
        }
        Header::TaggedWrite(message, ..) | Header::TaggedRead(message, _) => {
            let rma = header.tagged_rma().expect("tagged RMA");
            assert!(message.finish && message.tag.is_some());
            assert!(u64::from(message.len) <= limits::MAX_MSG_SIZE);
            assert!(u64::from(rma.offset) <= limits::MAX_MSG_SIZE);
            assert_eq!(header.payload(), 0);
        }
        Header::Result { len, .. } => {
            assert!(u64::from(*len) <= limits::MAX_MSG_SIZE);
            assert_eq!(header.payload(), *len);
        }
        _ => {}
    }
    if let Header::Eager(message)
    | Header::Rts(message, _)
    | Header::TaggedWrite(message, ..)
    | Header::TaggedRead(message, _)
    | Header::Atomic(message, _) = header
    {
        assert!(message.after < message.id);
    }
}

/// Parses the header of a SEND, private data, and an address to be read.
pub fn rdm_header(data: &[u8]) {
    let mut bytes = Bytes(data);
    let header = help(&mut bytes);
    if let Ok(header) = Header::parse(&header) {
        check_header(&header);
        check_header(&header.to_void());
    }
    let mut private = bytes.take(HELLO_LEN).to_vec();
    if bytes.byte() & 1 == 0 {
        if let Some(version) = private.first_mut() {
            *version = 1;
        }
    }
    if let Ok(hello) = Hello::parse(&private) {
        assert!(hello.port != 0 && hello.name_port != 0 && hello.reads != 0);
        let mut again = [0; HELLO_LEN];
        assert_eq!(hello.put(&mut again), Some(()));
        assert_eq!(Hello::parse(&again), Ok(hello));
    }
    if let Some(refusal) = Refusal::parse(&private) {
        assert_eq!(Refusal::parse(&refusal.to_bytes()), Some(refusal));
    }
    let reth = Reth {
        va: bytes.u64(),
        rkey: bytes.u32(),
        len: bytes.u32(),
    };
    let piece = Piece {
        addr: reth.va,
        rkey: reth.rkey,
        len: reth.len,
    };
    assert_eq!(Piece::from_bytes(piece.to_bytes()), piece);
    if let Some(grant) = Grant::of(&reth) {
        let place = Grant::place(grant.id);
        assert_eq!(place.rkey, reth.rkey);
        assert_eq!(place.va.wrapping_add(u64::from(grant.offset)), reth.va);
    }
}

/// Passes SENDs of an arbitrary peer.
pub fn rdm_inbound(data: &[u8]) {
    let mut bytes = Bytes(data);
    let mut inbound = Inbound::new();
    let mut taken = 0;
    let mut atomics = 0;
    let mut complete = 0;
    while !bytes.0.is_empty() {
        let first = help(&mut bytes);
        let answers = OutstandingAnswers {
            total: u32::from(bytes.byte()) * 4,
            waiting: 0,
        };
        let Ok(begun) = inbound.begin(&first, answers) else {
            // The connection fails.
            return;
        };
        let mut wanted = None;
        let mut room = None;
        if let Begin::Result { len, .. } = begun {
            room = Some(len);
        }
        if let Begin::Message(message, source) = begun {
            let last = match source {
                Source::Atomic(_) => &mut atomics,
                _ => &mut taken,
            };
            assert!(message.id > *last && message.after <= *last && !message.void);
            if bytes.byte() & 1 == 0 {
                // The peer has to wait; the state is unchanged.
                continue;
            }
            inbound.take();
            *last = message.id;
            wanted = Some(message);
            room = Some(message.len);
        }
        if begun == Begin::NotReady {
            continue;
        }
        let mut offset = 0;
        let mut placed = 0;
        for _ in 0..bytes.byte() & 3 {
            let len = u32::from(bytes.byte()) * 64;
            let Ok(part) = inbound.payload(offset, len) else {
                return;
            };
            if let Some((range, at)) = part {
                let room = room.expect("a message or a result to which the bytes belong");
                assert!(range.end == len as usize && at == placed);
                placed += range.len() as u32;
                assert!(placed <= room);
            }
            offset += len;
        }
        match inbound.end(offset) {
            Ok(End::Message) => complete = taken,
            Ok(End::Event(_) | End::Nothing) => assert!(wanted.is_none()),
            Err(_) => return,
        }
        if bytes.byte() == 0 {
            assert_eq!(inbound.shut(), complete);
        }
    }
}
