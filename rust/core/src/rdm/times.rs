// SPDX-License-Identifier: GPL-2.0
//! Timeouts and limits of reliable datagrams. Times are in nanoseconds.

/// A millisecond.
const MS: u64 = 1_000_000;

/// The time that operations wait for a connection before they fail.
pub const CONNECT_TIME: u64 = 5_000 * MS;

/// The time that an end with something to send waits for the peer to confirm a connection that it
/// seems to have requested, before it sends a request itself.
pub const PROOF_TIME: u64 = 500 * MS;

/// The first pause before another request to a busy peer; the pause doubles each time.
pub const BUSY_PAUSE: u64 = 10 * MS;

/// The longest pause before another request to a busy peer.
pub const BUSY_PAUSE_MAX: u64 = 500 * MS;

/// The number of times that an end repeats its request without a pause because the peer sends it a
/// cookie. After that, the pauses are those for a busy peer. A correct peer sends one cookie, and
/// another one if it was restarted or if the first one arrived too late.
pub const PROMPT_RETRIES: u32 = 3;

/// The number of requests without a valid cookie that an endpoint handles in a burst.
pub const UNPROVEN_BURST: u32 = 16;

/// The time after which an endpoint handles one more of them. Beyond this rate a correct peer needs
/// one more round trip. A handled request costs the host a session and a QP, even if it is forged.
pub const UNPROVEN_INTERVAL: u64 = 250 * MS;

/// The time after which an endpoint makes other cookies. A cookie is valid until the end of the
/// period after its own: at least this time, and at most twice as long.
pub const COOKIE_PERIOD: u64 = 10_000 * MS;

/// The time without work after which a connection ends.
pub const IDLE_TIME: u64 = 60_000 * MS;

/// The time without a packet from the peer after which a session that waits for it sends a PING.
pub const PING_TIME: u64 = 2_000 * MS;

/// The time within which a peer sends an expected answer, unless it transfers bytes meanwhile:
/// see [`overdue`](super::session). A correct peer answers at once. The time leaves room for a busy
/// host, and for work that the peer has sent before.
pub const ANSWER_TIME: u64 = 60_000 * MS;

/// The interval at which a session looks for operations whose answers are expected.
pub const CHECK_TIME: u64 = ANSWER_TIME / 4;

/// The time within which the peer answers also if it transfers other bytes meanwhile, besides the
/// time that the outstanding bytes take with [`ANSWER_RATE`].
pub const ANSWER_TIME_MAX: u64 = 10 * ANSWER_TIME;

/// The rate at which the outstanding bytes are transferred at least, in bytes per second.
pub const ANSWER_RATE: u64 = 256 << 10;

/// The time that the end that agreed to end a connection waits for the other end to do it.
pub const RETIRE_TIME: u64 = 500 * MS;

/// The time that a closing endpoint waits for the acknowledgement of its last messages.
pub const LINGER_TIME: u64 = 200 * MS;

/// The first interval before a void message is sent again; it doubles after each further refusal.
pub const BACKOFF_TIME: u64 = MS;

/// The longest interval before a void message is sent again.
pub const BACKOFF_TIME_MAX: u64 = 64 * MS;

/// The time in an RNR NAK: a peer has to wait so long because there is no room.
pub const RNR_TIME: u64 = MS / 2;

/// The maximum number of work requests of a connection in its QP.
pub const DEPTH: u32 = 64;

/// One in this many work requests is reserved for work for which the peer waits.
pub const CONTROL_SHARE: u32 = 4;

/// The number of RDMA READs of one end that the other serves at the same time.
pub const READS: u8 = 16;

/// The number of bytes of a message that one READ reads. Other work is done between two such READs.
pub const READ_SIZE: u32 = 1 << 20;

/// The maximum number of outstanding answers of an end to its peer, besides those for messages that
/// wait for a receive. A message that would need one more is refused (RNR NAK) until the peer has
/// acknowledged a FIN.
pub const ANSWERS: u32 = 256;

/// The maximum number of unanswered CANCELs of an end. A peer accepts so many beyond [`ANSWERS`],
/// so it refuses no CANCEL of an end that respects this limit. A CANCEL cannot be made void, so two
/// ends that refused each other's CANCELs would never send a FIN.
pub const CANCELS_MAX: u32 = 64;

const _: () = assert!(DEPTH.is_power_of_two() && CONTROL_SHARE > 1);
const _: () = assert!(BUSY_PAUSE <= BUSY_PAUSE_MAX && BUSY_PAUSE_MAX < CONNECT_TIME);
const _: () = assert!(PROOF_TIME < CONNECT_TIME);
// A cookie is valid as long as operations wait for a connection.
const _: () = assert!(CONNECT_TIME <= COOKIE_PERIOD && UNPROVEN_BURST > 0);
const _: () = assert!(BACKOFF_TIME <= BACKOFF_TIME_MAX && PING_TIME < IDLE_TIME);
const _: () = assert!(PING_TIME < CHECK_TIME && CHECK_TIME <= ANSWER_TIME && ANSWER_RATE > 0);
