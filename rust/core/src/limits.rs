// SPDX-License-Identifier: GPL-2.0
//! All limits and defaults, each with its reason.
//!
//! Limits that a program can see are also in `include/uapi/kfabric.h`; the module compares both
//! when it is built (`rust/module/uapi/header.rs`). Internal limits are defined only here. A module
//! parameter may lower some limits; none can be exceeded.

/// The maximum number of objects of one open file. A handle has 16 bits, and 0 means none.
pub const MAX_HANDLES: u32 = 65_535;

/// The maximum length of a message or an RMA operation in bytes. RoCE's RETH allows 2^31; half of
/// it keeps every sum of two lengths within 32 bits.
pub const MAX_MSG_SIZE: u64 = 1 << 30;

/// The maximum number of elements of an iov or RMA iov list: the number that kfilnd requires.
pub const MAX_IOV: usize = 256;

/// The maximum length of `KFI_INJECT` in bytes: small enough to be stored in the operation itself,
/// so that injecting does not allocate.
pub const INJECT_SIZE: usize = 256;

/// The maximum length of the elements of an atomic in bytes. Operands and old values are copied
/// through kernel memory at both ends, and each element is changed by itself; this bounds both.
pub const MAX_ATOMIC_SIZE: usize = 4096;

/// The largest `tx_size` and `rx_size` of an endpoint. Matching searches the receives in order
/// under the endpoint's lock; this bounds the search.
pub const MAX_QUEUE: u32 = 16_384;

/// The largest CQ in entries of 64 bytes: a ring of 4 MiB.
pub const MAX_CQ: u32 = 65_536;

/// The largest EQ in events. Events are infrequent.
pub const MAX_EQ: u32 = 4_096;

/// The maximum number of addresses in one AV.
pub const MAX_AV: u32 = 65_536;

/// The maximum length of an event's data in bytes: the event of a connection with the longest
/// private data.
pub const MAX_EVENT: usize = 320;

/// The maximum length of private data in a connection request: the part of a REQ behind the RDMA
/// CM's header.
pub const MAX_CONNECT_DATA: usize = 56;

/// The maximum length of private data in an acceptance: that of a REP.
pub const MAX_ACCEPT_DATA: usize = 196;

/// The maximum length of private data in a rejection: that of a REJ.
pub const MAX_REJECT_DATA: usize = 148;

/// The maximum number of connection requests that wait at one passive endpoint to be accepted or
/// rejected.
pub const MAX_BACKLOG: u32 = 4_096;

/// The maximum number of transmit contexts, and of receive contexts, of a scalable endpoint. kfilnd
/// makes one of each for each CPU partition. An endpoint reserves a port for each receive context,
/// and each context costs as much as an endpoint.
pub const MAX_EP_CTX: u32 = 64;

/// The default backlog of a passive endpoint.
pub const DEFAULT_BACKLOG: u32 = 128;

/// The maximum number of completion counters of one domain. Each has a page of its own, so they
/// take 16 MiB.
pub const MAX_COMP_CNTR: u32 = 4_096;

/// The maximum number of operations in one post call, which bounds the time of the call.
pub const MAX_POST: u32 = 4_096;

/// The maximum number of waiters of one counter: tasks that sleep in a call, and descriptors; and
/// of the tasks that sleep in reads of one CQ or EQ. A change of the counter, a completion or an
/// event wakes those that are due under the object's lock, about half a microsecond each.
pub const MAX_WAITERS: u32 = 1_024;

/// The maximum number of deferred works and triggered operations that wait in one domain.
pub const MAX_WORK: u32 = 131_072;

/// The largest `total_buffered_recv` of an endpoint, in bytes of kernel memory.
pub const MAX_BUFFERED: u64 = 64 << 20;

/// The size of a name in bytes, its NUL included.
pub const NAME_MAX: usize = 64;

/// The size of a link's name in bytes, its NUL included: `IFNAMSIZ`.
pub const LINK_NAME_MAX: usize = 16;

/// The default `tx_size`: transmits in progress.
pub const DEFAULT_TX_SIZE: u32 = 256;

/// The default `rx_size`: posted receives.
pub const DEFAULT_RX_SIZE: u32 = 256;

/// The default size of a CQ: enough for the transmits and the receives of two default endpoints.
pub const DEFAULT_CQ: u32 = 1_024;

/// The default size of an EQ.
pub const DEFAULT_EQ: u32 = 64;

/// The default of the expected number of addresses of an AV, which grows as needed.
pub const DEFAULT_AV: u32 = 64;

/// The default `total_buffered_recv`: 128 messages of [`EAGER_SIZE`].
pub const DEFAULT_BUFFERED: u64 = 1 << 20;

/// The maximum length in bytes of a message that is copied into kernel memory when it arrives
/// before its receive. A longer one stays in the sender's pinned memory until a receive takes it.
/// Its pages are pinned anyway, and copying it twice would cost more than waiting.
pub const EAGER_SIZE: u64 = 8 << 10;

/// The maximum number of unexpected messages in each of the two queues of an endpoint (plain and
/// tagged), whatever their length. An empty message is not charged for bytes, so this bounds its
/// cost. At the limit senders wait.
pub const MAX_UNEXPECTED: u32 = 1_024;

/// The maximum number of flows of an endpoint. A softirq compares each packet with all of them.
pub const MAX_FLOWS: usize = 64;

/// The maximum number of static counter points of a counters object, and of all counter points of a
/// flow. A softirq adds to each for a packet.
pub const MAX_FLOW_POINTS: usize = 16;

/// The maximum number of values of a counters object. Each CPU has all of them.
pub const MAX_COUNTERS: u32 = 256;

/// The default number of values of a counters object.
pub const DEFAULT_COUNTERS: u32 = 16;

/// The default of `KFI_OPT_MIN_MULTI_RECV` in bytes: a multi-receive buffer with less room is
/// released.
pub const DEFAULT_MIN_MULTI_RECV: u64 = 64;

/// The size of a memory key in bytes: keys are R_Keys on the wire. The fields of the interface are
/// wider.
pub const MR_KEY_SIZE: u64 = 4;

/// The size of remote CQ data of reliable datagrams in bytes.
pub const CQ_DATA_SIZE: u64 = 8;

/// The size of remote CQ data in bytes where it is the immediate data of a packet.
pub const IMM_DATA_SIZE: u64 = 4;

/// The maximum length of a datagram in bytes: the largest path MTU.
pub const MAX_DGRAM_SIZE: u64 = 4_096;

/// The number of endpoints, CQs, counters or regions of a domain that an offer reports: the number
/// that one file can have.
pub const MAX_OBJECTS: u64 = MAX_HANDLES as u64;

/// The newest API version: `KFI_VERSION(1, 7)`.
pub const API_VERSION: u32 = (1 << 16) | 7;

/// The default `mem_tag_format`: every bit of a tag is a field of its own.
pub const TAG_FORMAT_GENERIC: u64 = 0xaaaa_aaaa_aaaa_aaaa;

const _: () = assert!(MAX_QUEUE as u64 >= DEFAULT_TX_SIZE as u64);
const _: () = assert!(MAX_BUFFERED >= DEFAULT_BUFFERED && DEFAULT_BUFFERED >= EAGER_SIZE);
const _: () = assert!(EAGER_SIZE >= INJECT_SIZE as u64);
const _: () = assert!(MAX_COUNTERS >= DEFAULT_COUNTERS);
const _: () = assert!(DEFAULT_CQ.is_power_of_two() && MAX_CQ.is_power_of_two());
