// SPDX-License-Identifier: GPL-2.0
//! Every limit and default, each with its reason.
//!
//! Limits that a program can see stand in `include/uapi/kfabric.h` too. The module compares both when
//! it is built (`rust/module/uapi/header.rs`). Limits of the module's own have no other home. A
//! module parameter may lower some of them; none is ever exceeded.

/// Objects of one open file. A handle is 16 bits, 0 is none.
pub const MAX_HANDLES: u32 = 65_535;

/// Bytes in one message or RMA operation. RoCE's RETH length goes to 2^31; half of it keeps every
/// sum of two lengths within 32 bits.
pub const MAX_MSG_SIZE: u64 = 1 << 30;

/// Elements of an iov or RMA iov list: what kfilnd asks for.
pub const MAX_IOV: usize = 256;

/// Bytes that `KFI_INJECT` can carry: small enough to stand in the operation itself, so that
/// injecting allocates nothing.
pub const INJECT_SIZE: usize = 256;

/// Largest `tx_size` and `rx_size` of an endpoint. Matching walks the receives in order; this is
/// how long it can walk under the endpoint's lock.
pub const MAX_QUEUE: u32 = 16_384;

/// Largest CQ, in entries of 64 bytes: a ring of 4 MiB.
pub const MAX_CQ: u32 = 65_536;

/// Largest EQ, in events. Events are control traffic.
pub const MAX_EQ: u32 = 4_096;

/// Addresses in one AV.
pub const MAX_AV: u32 = 65_536;

/// Bytes of an event's data: what a connection's event says, and the longest private data with it.
pub const MAX_EVENT: usize = 320;

/// Bytes of private data in a request to connect: what the RDMA CM's header leaves of a REQ.
pub const MAX_CONNECT_DATA: usize = 56;

/// Bytes of private data in an acceptance: those of a REP.
pub const MAX_ACCEPT_DATA: usize = 196;

/// Bytes of private data in a rejection: those of a REJ.
pub const MAX_REJECT_DATA: usize = 148;

/// Connection requests that wait at one passive endpoint to be accepted or rejected.
pub const MAX_BACKLOG: u32 = 4_096;

/// Default backlog of a passive endpoint.
pub const DEFAULT_BACKLOG: u32 = 128;

/// Operations in one post: bounds the time of one call.
pub const MAX_POST: u32 = 4_096;

/// Largest `total_buffered_recv` of an endpoint, bytes of kernel memory.
pub const MAX_BUFFERED: u64 = 64 << 20;

/// Bytes of a name, its NUL included.
pub const NAME_MAX: usize = 64;

/// Bytes of a link's name, its NUL included: `IFNAMSIZ`.
pub const LINK_NAME_MAX: usize = 16;

/// Default `tx_size`: transmits under way.
pub const DEFAULT_TX_SIZE: u32 = 256;

/// Default `rx_size`: receives posted.
pub const DEFAULT_RX_SIZE: u32 = 256;

/// Default size of a CQ: the transmits and the receives of two default endpoints.
pub const DEFAULT_CQ: u32 = 1_024;

/// Default size of an EQ.
pub const DEFAULT_EQ: u32 = 64;

/// Default expected number of addresses of an AV; it grows.
pub const DEFAULT_AV: u32 = 64;

/// Default `total_buffered_recv`: 128 messages of [`EAGER_SIZE`].
pub const DEFAULT_BUFFERED: u64 = 1 << 20;

/// Largest message that is copied into kernel memory when it comes before its receive, bytes. A
/// longer one stays in the sender's pinned memory until a receive takes it: its pages cost nothing
/// more, and copying twice would cost more than waiting.
pub const EAGER_SIZE: u64 = 8 << 10;

/// Unexpected messages that an endpoint keeps in each of its two queues (plain and tagged),
/// whatever their length: an empty message charges no bytes and must not be free. Senders wait
/// when it is reached.
pub const MAX_UNEXPECTED: u32 = 1_024;

/// Default of `KFI_OPT_MIN_MULTI_RECV`, bytes: a multi-receive buffer with less room is released.
pub const DEFAULT_MIN_MULTI_RECV: u64 = 64;

/// Bytes of a memory key: keys are the R_Keys of the wire. The interface's fields are wider.
pub const MR_KEY_SIZE: u64 = 4;

/// Bytes of remote CQ data, of reliable datagrams.
pub const CQ_DATA_SIZE: u64 = 8;

/// Bytes of remote CQ data where it is the immediate of a packet.
pub const IMM_DATA_SIZE: u64 = 4;

/// Bytes of the longest datagram: the largest path MTU.
pub const MAX_DGRAM_SIZE: u64 = 4_096;

/// Endpoints, CQs, counters or regions of a domain that an offer tells of: what one file can hold.
pub const MAX_OBJECTS: u64 = MAX_HANDLES as u64;

/// Newest API version: `KFI_VERSION(1, 7)`.
pub const API_VERSION: u32 = (1 << 16) | 7;

/// `mem_tag_format` where nobody asks for one: every bit of a tag is a field of its own.
pub const TAG_FORMAT_GENERIC: u64 = 0xaaaa_aaaa_aaaa_aaaa;

const _: () = assert!(MAX_QUEUE as u64 >= DEFAULT_TX_SIZE as u64);
const _: () = assert!(MAX_BUFFERED >= DEFAULT_BUFFERED && DEFAULT_BUFFERED >= EAGER_SIZE);
const _: () = assert!(EAGER_SIZE >= INJECT_SIZE as u64);
const _: () = assert!(DEFAULT_CQ.is_power_of_two() && MAX_CQ.is_power_of_two());
