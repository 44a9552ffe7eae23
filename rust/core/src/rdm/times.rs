// SPDX-License-Identifier: GPL-2.0
//! How long, how often, how many. Times are in nanoseconds.

/// A millisecond.
const MS: u64 = 1_000_000;

/// How long operations wait for a connection before they fail.
pub const CONNECT_TIME: u64 = 5_000 * MS;

/// How long an end that has something to send waits for the peer to confirm a connection that it seems
/// to have asked for, before it asks for one itself.
pub const PROOF_TIME: u64 = 500 * MS;

/// The first pause before a peer is asked again that was busy; each further one is twice as long.
pub const BUSY_PAUSE: u64 = 10 * MS;

/// The longest pause before a busy peer is asked again.
pub const BUSY_PAUSE_MAX: u64 = 500 * MS;

/// A connection that has done nothing for so long is given up.
pub const IDLE_TIME: u64 = 60_000 * MS;

/// Who waits for something of the peer's, and has heard nothing for so long, asks whether it is there.
pub const PING_TIME: u64 = 2_000 * MS;

/// How long the end that agreed to give a connection up waits for the other to go first.
pub const RETIRE_TIME: u64 = 500 * MS;

/// How long an endpoint that closes waits for what it said last to be acknowledged.
pub const LINGER_TIME: u64 = 200 * MS;

/// How long a message that has stepped aside waits before it is tried again; twice as long after each
/// further refusal.
pub const HOLD_TIME: u64 = MS;

/// The longest time that a message which has stepped aside waits.
pub const HOLD_TIME_MAX: u64 = 64 * MS;

/// How long a peer is to wait that was told that there is no room.
pub const RNR_TIME: u64 = MS / 2;

/// Work requests of a connection that are with its QP at most.
pub const DEPTH: u32 = 64;

/// Operations leave one in so many of these free, for what the peer waits for.
pub const CONTROL_SHARE: u32 = 4;

/// RDMA READs of one end that the other serves at the same time.
pub const READS: u8 = 16;

/// Bytes that are read of a message at once. Between two such READs others get their turn.
pub const READ_SIZE: u32 = 1 << 20;

/// Answers that an end owes to its peer at most, besides those for messages that wait for a receive.
/// A message that would need one more is refused (RNR NAK) until the peer has acknowledged a FIN.
pub const ANSWERS: u32 = 256;

/// CANCELs that an end has with its peer at most, without a FIN for them. A peer takes so many beyond
/// [`ANSWERS`], so it refuses no CANCEL of an end that keeps to this: a CANCEL cannot step aside, and two
/// ends that refuse each other's CANCELs would both never send a FIN.
pub const RECALLS: u32 = 64;

const _: () = assert!(DEPTH.is_power_of_two() && CONTROL_SHARE > 1);
const _: () = assert!(BUSY_PAUSE <= BUSY_PAUSE_MAX && BUSY_PAUSE_MAX < CONNECT_TIME);
const _: () = assert!(PROOF_TIME < CONNECT_TIME);
const _: () = assert!(HOLD_TIME <= HOLD_TIME_MAX && PING_TIME < IDLE_TIME);
