// SPDX-License-Identifier: GPL-2.0
//! SENDs with atomics, and with old values, that no correct peer sends. The target refuses each
//! with a NAK, which ends the connection, and changes no memory.

use kfi::PacketCounter;
use kfi_core::{
    atomic::Function,
    enums::{AtomicOp, Datatype},
    limits::MAX_ATOMIC_SIZE,
    op::OpType,
    rdm::{
        atomic::{Call, Piece},
        header::{Header, MAX_HEADER, Message},
    },
};

/// A SEND that is refused.
pub(super) struct BadSend {
    /// The defect.
    pub(super) what: String,
    /// The header and the payload.
    pub(super) bytes: Vec<u8>,
    /// The counter of the target's NAK.
    pub(super) counter: PacketCounter,
}

/// The target's memory, as the attacker knows it.
#[derive(Clone, Copy)]
pub(super) struct Target {
    /// A key that allows all accesses.
    pub(super) key: u32,
    /// The length of its region in bytes.
    pub(super) len: u64,
    /// A key that allows reading only.
    pub(super) read_only: u32,
}

impl Target {
    /// A word of the region.
    pub(super) fn word(&self, addr: u64) -> Piece {
        piece(addr, self.key, 8)
    }
}

/// The number of a header's first atomic.
const FIRST: u64 = 1;

fn piece(addr: u64, rkey: u32, len: u32) -> Piece {
    Piece { addr, rkey, len }
}

/// Message number `id` of a connection.
pub(super) fn message(id: u64, tag: Option<u64>, len: u32, finish: bool) -> Message {
    Message {
        id,
        after: id - 1,
        tag,
        data: None,
        len,
        finish,
        void: false,
    }
}

/// The bytes of a header, and `payload` behind it.
pub(super) fn send_of(header: &Header, payload: &[u8]) -> Vec<u8> {
    let mut bytes = [0; MAX_HEADER];
    let len = header.put(&mut bytes).expect("room");
    [&bytes[..len], payload].concat()
}

/// Atomic number `id`, which adds `operands` to words of 8 bytes in `pieces`.
pub(super) fn addition(id: u64, void: bool, pieces: &[Piece], operands: &[u64]) -> Vec<u8> {
    let function = Function::new(OpType::Atomic, AtomicOp::Sum, Datatype::Uint64);
    let function = function.expect("a function");
    let call = Call::new(function, pieces.len(), operands.len()).expect("an atomic");
    let message = Message {
        void,
        ..message(id, None, call.payload(), false)
    };
    let pieces = pieces.iter().flat_map(|piece| piece.to_bytes());
    let operands = operands.iter().flat_map(|operand| operand.to_le_bytes());
    let payload: Vec<u8> = pieces.chain(operands).collect();
    send_of(&Header::Atomic(message, call), &payload)
}

/// The bytes of the header of an atomic that are changed: their offset, and what they become.
const CHANGES: &[(&str, usize, &[u8])] = &[
    ("version", 0, &[0xff]),
    ("an unknown kind", 1, &[15]),
    ("a tag", 2, &[1]),
    ("old values of an atomic without any", 2, &[4]),
    ("an unknown flag", 2, &[0x10]),
    ("a status", 3, &[1]),
    ("a shorter payload", 4, &[0, 0, 0, 16]),
    ("a longer payload", 4, &[0, 0, 0, 32]),
    ("a payload of 4 GiB", 4, &[0xff; 4]),
    ("after itself", 16, &[0, 0, 0, 0, 0, 0, 0, 1]),
    ("after a later one", 16, &[0xff; 8]),
    ("a tag without its flag", 24, &[0, 0, 0, 0, 0, 0, 0, 1]),
    ("CQ data without their flag", 32, &[0, 0, 0, 0, 0, 0, 0, 1]),
    ("a form that is no atomic", 40, &[1]),
    ("a form that returns old values", 40, &[7]),
    ("an unknown form", 40, &[0xff]),
    ("an operation of another form", 41, &[12]),
    ("an unknown operation", 41, &[0xff]),
    ("a type without operations", 42, &[12]),
    ("an unknown type", 42, &[0xff]),
    ("a smaller type", 42, &[5]),
    ("a reserved byte", 43, &[1]),
    ("no pieces", 44, &[0, 0]),
    ("more pieces than the payload has", 44, &[0, 2]),
    ("257 pieces", 44, &[1, 1]),
    ("65535 pieces", 44, &[0xff; 2]),
    ("no elements", 46, &[0, 0]),
    ("more elements than the payload has", 46, &[0, 2]),
    ("more than 4 KiB", 46, &[2, 1]),
    ("65535 elements", 46, &[0xff; 2]),
];

/// SENDs whose header or payload is invalid.
fn invalid(target: &Target, add: &mut impl FnMut(&str, Vec<u8>)) {
    let good = addition(FIRST, false, &[target.word(0)], &[1]);
    for (what, at, new) in CHANGES {
        let mut bytes = good.clone();
        bytes[*at..*at + new.len()].copy_from_slice(new);
        add(what, bytes);
    }
    // An end within each field of the header, and within the payload.
    for len in [0, 1, 4, 8, 16, 24, 32, 40, 44, 47, 48, 63, 64, 71] {
        add(&format!("{len} bytes only"), good[..len].to_vec());
    }
    add("bytes behind the payload", [&good[..], &[0; 8]].concat());
    for (what, pieces) in [
        ("a piece of more than all elements", [(0, 16), (16, 0)]),
        ("pieces of less than all elements", [(0, 0), (8, 0)]),
        ("pieces of more than all elements", [(0, 8), (8, 8)]),
        ("a half element", [(0, 4), (4, 4)]),
        ("an unaligned element", [(4, 8), (16, 0)]),
        ("lengths whose sum overflows", [(0, u32::MAX - 7), (0, 16)]),
    ] {
        let pieces = pieces.map(|(addr, len)| piece(addr, target.key, len));
        add(what, addition(FIRST, false, &pieces, &[1]));
    }
    // Nothing was requested of the attacker.
    let result = |id, len| Header::Result { id, len };
    add("values nobody waits for", send_of(&result(1, 8), &[9; 8]));
    add("no values nobody waits for", send_of(&result(0, 0), &[]));
    let most = MAX_ATOMIC_SIZE as u32;
    add("too many values", send_of(&result(1, most + 1), &[9; 8]));
    let mut flagged = send_of(&result(1, 8), &[9; 8]);
    flagged[2] = 4;
    add("values with a flag", flagged);
}

/// Atomics whose access is not allowed. Where there are two pieces, the first one is allowed.
fn forbidden(target: &Target, add: &mut impl FnMut(&str, Vec<u8>)) {
    let other_key = target.key ^ 0x0f00;
    for (what, addr, rkey) in [
        ("an unknown key", 0, other_key),
        ("a key for reading", 0, target.read_only),
        ("behind the region", target.len, target.key),
        ("at the end of all addresses", u64::MAX - 7, target.key),
    ] {
        let wrong = piece(addr, rkey, 8);
        add(what, addition(FIRST, false, &[wrong], &[1]));
        let pieces = [target.word(0), wrong];
        let second = addition(FIRST, false, &pieces, &[1, 1]);
        add(&format!("{what}, in the second piece"), second);
    }
}

/// All of them, for a target that has this memory.
pub(super) fn all(target: &Target) -> Vec<BadSend> {
    let mut sends = Vec::new();
    let mut add = |counter, what: &str, bytes| {
        let what = what.to_owned();
        sends.push(BadSend {
            what,
            bytes,
            counter,
        });
    };
    invalid(target, &mut |what, bytes| {
        add(PacketCounter::NakInvalidTx, what, bytes);
    });
    forbidden(target, &mut |what, bytes| {
        add(PacketCounter::NakAccessTx, what, bytes);
    });
    sends
}
