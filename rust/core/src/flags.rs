// SPDX-License-Identifier: GPL-2.0
//! The flags of kfabric, as numbers and as types.
//!
//! The constants `KFI_*` have the values of `include/uapi/kfabric.h` (and of the kfabric 1.7
//! headers). They are written by hand, because cargo builds this crate without the header; the
//! module compares each with the header when it is built (`rust/module/uapi/header.rs`). One bit
//! can have several names, because the meaning of the high bits depends on the call: bit 59 is
//! `KFI_CLAIM` for a receive, `KFI_DIRECTED_RECV` as a capability and `KFI_SELECTIVE_COMPLETION`
//! for a bind.
//!
//! Each set of bits that a call accepts therefore has a type of its own: [`Caps`], [`OpFlags`],
//! [`CompFlags`], [`Access`], [`CntrBind`], [`CompCntrOps`], [`CompCntrInit`], [`CqBind`],
//! [`MrMode`] and [`MsgOrder`]. A front end converts the caller's numbers with `from_bits`, which
//! returns `EINVAL` for a bit that the set does not have. Values of these types are always valid,
//! and a capability cannot be used as an operation flag. Enumerators: [`crate::enums`].

use crate::errno::Errno;

/// Plain messages: send and receive.
pub const KFI_MSG: u64 = 1 << 1;
/// Remote memory access: read and write.
pub const KFI_RMA: u64 = 1 << 2;
/// Tagged messages.
pub const KFI_TAGGED: u64 = 1 << 3;
/// Atomic operations.
pub const KFI_ATOMIC: u64 = 1 << 4;
/// Multicast.
pub const KFI_MULTICAST: u64 = 1 << 5;
/// RMA to tagged buffers.
pub const KFI_TAGGED_RMA: u64 = 1 << 6;
/// Reads from a peer's memory; a local buffer that is the destination of reads.
pub const KFI_READ: u64 = 1 << 8;
/// Writes to a peer's memory; a local buffer that is the source of writes.
pub const KFI_WRITE: u64 = 1 << 9;
/// Receives messages.
pub const KFI_RECV: u64 = 1 << 10;
/// Sends messages.
pub const KFI_SEND: u64 = 1 << 11;
/// The transmit side: the same bit as [`KFI_SEND`].
pub const KFI_TRANSMIT: u64 = KFI_SEND;
/// The target of a peer's reads.
pub const KFI_REMOTE_READ: u64 = 1 << 12;
/// The target of a peer's writes.
pub const KFI_REMOTE_WRITE: u64 = 1 << 13;

/// A receive buffer for several messages; in a completion: that buffer was released.
pub const KFI_MULTI_RECV: u64 = 1 << 16;
/// The operation carries 64 bits for the peer's completion.
pub const KFI_REMOTE_CQ_DATA: u64 = 1 << 17;
/// More operations follow immediately.
pub const KFI_MORE: u64 = 1 << 18;
/// Search for a message (a receive), or read an event (an EQ), without removing it.
pub const KFI_PEEK: u64 = 1 << 19;
/// A triggered operation.
pub const KFI_TRIGGER: u64 = 1 << 20;
/// Begin only after earlier operations to that peer have completed.
pub const KFI_FENCE: u64 = 1 << 21;
/// Make a completion entry.
pub const KFI_COMPLETION: u64 = 1 << 24;
/// Report to an event queue: the same bit as [`KFI_COMPLETION`].
pub const KFI_EVENT: u64 = KFI_COMPLETION;
/// The caller can reuse the buffer when the call returns.
pub const KFI_INJECT: u64 = 1 << 25;
/// Complete when the buffer can be reused.
pub const KFI_INJECT_COMPLETE: u64 = 1 << 26;
/// Complete when the peer's endpoint has accepted the operation.
pub const KFI_TRANSMIT_COMPLETE: u64 = 1 << 27;
/// Complete when the data is in the peer's buffer.
pub const KFI_DELIVERY_COMPLETE: u64 = 1 << 28;
/// `signaling_vector` is valid.
pub const KFI_AFFINITY: u64 = 1 << 29;
/// Complete when the data is durable.
pub const KFI_COMMIT_COMPLETE: u64 = 1 << 30;

/// Source addresses are also reported in errors.
pub const KFI_SOURCE_ERR: u64 = 1 << 50;
/// Communication with endpoints on this host.
pub const KFI_LOCAL_COMM: u64 = 1 << 51;
/// Communication with endpoints on other hosts.
pub const KFI_REMOTE_COMM: u64 = 1 << 52;
/// Remote RMA updates counters at the target.
pub const KFI_RMA_EVENT: u64 = 1 << 56;
/// Source addresses are reported; for getinfo: the address is the caller's own.
pub const KFI_SOURCE: u64 = 1 << 57;
/// Receive contexts can be addressed.
pub const KFI_NAMED_RX_CTX: u64 = 1 << 58;
/// Discard the message.
pub const KFI_DISCARD: u64 = 1 << 58;
/// Return an error number for each address inserted.
pub const KFI_SYNC_ERR: u64 = 1 << 58;
/// Claim a message that a search found, or receive a claimed one.
pub const KFI_CLAIM: u64 = 1 << 59;
/// Receives from one source only.
pub const KFI_DIRECTED_RECV: u64 = 1 << 59;
/// Memory registration is asynchronous.
pub const KFI_REG_MR: u64 = 1 << 59;
/// Successes are reported only on request.
pub const KFI_SELECTIVE_COMPLETION: u64 = 1 << 59;

/// The `kfi_addr_t` that matches any address.
pub const KFI_ADDR_UNSPEC: u64 = u64::MAX;
/// The `kfi_addr_t` that stands for an unknown address.
pub const KFI_ADDR_NOTAVAIL: u64 = u64::MAX;
/// The key that stands for no key.
pub const KFI_KEY_NOTAVAIL: u64 = u64::MAX;

/// Local buffers must be registered.
pub const KFI_MR_LOCAL: u32 = 1 << 1;
/// Peers address a region by virtual address.
pub const KFI_MR_VIRT_ADDR: u32 = 1 << 3;
/// The provider chooses keys.
pub const KFI_MR_PROV_KEY: u32 = 1 << 4;
/// Counters can be bound only to regions opened with `KFI_RMA_EVENT`.
pub const KFI_MR_RMA_EVENT: u32 = 1 << 5;

/// No ordering.
pub const KFI_ORDER_NONE: u64 = 0;
/// Reads after reads.
pub const KFI_ORDER_RAR: u64 = 1 << 0;
/// Reads after writes.
pub const KFI_ORDER_RAW: u64 = 1 << 1;
/// Reads after sends.
pub const KFI_ORDER_RAS: u64 = 1 << 2;
/// Writes after reads.
pub const KFI_ORDER_WAR: u64 = 1 << 3;
/// Writes after writes.
pub const KFI_ORDER_WAW: u64 = 1 << 4;
/// Writes after sends.
pub const KFI_ORDER_WAS: u64 = 1 << 5;
/// Sends after reads.
pub const KFI_ORDER_SAR: u64 = 1 << 6;
/// Sends after writes.
pub const KFI_ORDER_SAW: u64 = 1 << 7;
/// Sends after sends.
pub const KFI_ORDER_SAS: u64 = 1 << 8;
/// All of the above.
pub const KFI_ORDER_STRICT: u64 = 0x1ff;
/// The bytes of an operation are written in order.
pub const KFI_ORDER_DATA: u64 = 1 << 16;

/// Defines a set of bits that cannot contain an unknown bit.
macro_rules! bit_set {
    (
        $(#[$meta:meta])*
        $name:ident: $repr:ty {
            $( $(#[$bit_meta:meta])* $bit:ident = $value:expr, )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name($repr);

        impl $name {
            $( $(#[$bit_meta])* pub const $bit: Self = Self($value); )*

            /// The empty set.
            pub const EMPTY: Self = Self(0);

            /// The set of all bits.
            pub const ALL: Self = Self(0 $( | $value )*);

            /// Converts `bits` from outside.
            ///
            /// # Errors
            ///
            /// `EINVAL`: a bit is not in this set.
            pub const fn from_bits(bits: $repr) -> Result<Self, Errno> {
                if bits & !Self::ALL.0 != 0 {
                    return Err(Errno::EINVAL);
                }
                Ok(Self(bits))
            }

            /// Converts `bits` and drops those that are not in this set.
            pub const fn from_bits_truncate(bits: $repr) -> Self {
                Self(bits & Self::ALL.0)
            }

            /// Returns the bits.
            pub const fn bits(self) -> $repr {
                self.0
            }

            /// Returns whether no bit is set.
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }

            /// Returns whether all of `other` is set.
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Returns whether any bit of `other` is set.
            pub const fn intersects(self, other: Self) -> bool {
                self.0 & other.0 != 0
            }

            /// Returns the union of both sets.
            pub const fn union(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// Returns the intersection of both sets.
            pub const fn intersection(self, other: Self) -> Self {
                Self(self.0 & other.0)
            }

            /// Returns the bits that are not in `other`.
            pub const fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }
        }

        impl core::ops::BitOr for $name {
            type Output = Self;
            fn bitor(self, other: Self) -> Self {
                self.union(other)
            }
        }

        impl core::ops::BitAnd for $name {
            type Output = Self;
            fn bitand(self, other: Self) -> Self {
                self.intersection(other)
            }
        }

        impl core::ops::BitOrAssign for $name {
            fn bitor_assign(&mut self, other: Self) {
                *self = self.union(other);
            }
        }
    };
}

bit_set! {
    /// Capabilities of an endpoint, of an offer and of hints (fi_getinfo(3)).
    ///
    /// A provider supports only some of them: see [`info`](crate::info).
    Caps: u64 {
        /// Plain messages.
        MSG = KFI_MSG,
        /// Remote memory access.
        RMA = KFI_RMA,
        /// Tagged messages.
        TAGGED = KFI_TAGGED,
        /// Atomic operations.
        ATOMIC = KFI_ATOMIC,
        /// Multicast.
        MULTICAST = KFI_MULTICAST,
        /// RMA to tagged buffers.
        TAGGED_RMA = KFI_TAGGED_RMA,
        /// Initiates reads.
        READ = KFI_READ,
        /// Initiates writes.
        WRITE = KFI_WRITE,
        /// Receives.
        RECV = KFI_RECV,
        /// Sends.
        SEND = KFI_SEND,
        /// Is the target of reads.
        REMOTE_READ = KFI_REMOTE_READ,
        /// Is the target of writes.
        REMOTE_WRITE = KFI_REMOTE_WRITE,
        /// Multi-receive buffers.
        MULTI_RECV = KFI_MULTI_RECV,
        /// Triggered operations.
        TRIGGER = KFI_TRIGGER,
        /// Fences.
        FENCE = KFI_FENCE,
        /// Source addresses in errors.
        SOURCE_ERR = KFI_SOURCE_ERR,
        /// Communication with peers on this host.
        LOCAL_COMM = KFI_LOCAL_COMM,
        /// Communication with peers on other hosts.
        REMOTE_COMM = KFI_REMOTE_COMM,
        /// Counters bound to regions.
        RMA_EVENT = KFI_RMA_EVENT,
        /// Source addresses.
        SOURCE = KFI_SOURCE,
        /// Receive contexts that can be addressed.
        NAMED_RX_CTX = KFI_NAMED_RX_CTX,
        /// Receives from one source only.
        DIRECTED_RECV = KFI_DIRECTED_RECV,
    }
}

bit_set! {
    /// Flags of an operation (`struct kfabric_op`), and an endpoint's default flags.
    ///
    /// [`OpType::flags`](crate::op::OpType::flags) checks which flags a kind of operation accepts.
    OpFlags: u64 {
        /// RMA to the memory of a tagged receive of the peer.
        TAGGED = KFI_TAGGED,
        /// The buffer receives several messages.
        MULTI_RECV = KFI_MULTI_RECV,
        /// The operation carries 64 bits for the peer's completion.
        REMOTE_CQ_DATA = KFI_REMOTE_CQ_DATA,
        /// More operations follow immediately.
        MORE = KFI_MORE,
        /// Search for a message without removing it.
        PEEK = KFI_PEEK,
        /// Begin only after earlier operations to that peer have completed.
        FENCE = KFI_FENCE,
        /// Make a completion entry.
        COMPLETION = KFI_COMPLETION,
        /// The buffer can be reused when the call returns.
        INJECT = KFI_INJECT,
        /// Completion level: the buffer can be reused.
        INJECT_COMPLETE = KFI_INJECT_COMPLETE,
        /// Completion level: the peer's endpoint has accepted the operation.
        TRANSMIT_COMPLETE = KFI_TRANSMIT_COMPLETE,
        /// Completion level: the data is in the peer's buffer.
        DELIVERY_COMPLETE = KFI_DELIVERY_COMPLETE,
        /// Discard the message.
        DISCARD = KFI_DISCARD,
        /// Claim a message, or receive a claimed one.
        CLAIM = KFI_CLAIM,
        /// Wait for a counter before it starts.
        TRIGGER = KFI_TRIGGER,
    }
}

bit_set! {
    /// Flags of a completion (fi_cq(3), "Completion Flags").
    CompFlags: u64 {
        /// A plain message.
        MSG = KFI_MSG,
        /// RMA.
        RMA = KFI_RMA,
        /// A tagged message.
        TAGGED = KFI_TAGGED,
        /// An atomic operation.
        ATOMIC = KFI_ATOMIC,
        /// A read initiated by this endpoint.
        READ = KFI_READ,
        /// A write initiated by this endpoint.
        WRITE = KFI_WRITE,
        /// A receive.
        RECV = KFI_RECV,
        /// A send.
        SEND = KFI_SEND,
        /// A read initiated by a peer.
        REMOTE_READ = KFI_REMOTE_READ,
        /// A write initiated by a peer.
        REMOTE_WRITE = KFI_REMOTE_WRITE,
        /// A multi-receive buffer was released.
        MULTI_RECV = KFI_MULTI_RECV,
        /// `data` is valid.
        REMOTE_CQ_DATA = KFI_REMOTE_CQ_DATA,
    }
}

bit_set! {
    /// Access rights of a memory region (fi_mr(3)).
    Access: u64 {
        /// The provider reads the memory: source of sends.
        SEND = KFI_SEND,
        /// The provider writes the memory: destination of receives.
        RECV = KFI_RECV,
        /// The provider writes the memory: destination of local reads.
        READ = KFI_READ,
        /// The provider reads the memory: source of local writes.
        WRITE = KFI_WRITE,
        /// Peers read the memory.
        REMOTE_READ = KFI_REMOTE_READ,
        /// Peers write the memory.
        REMOTE_WRITE = KFI_REMOTE_WRITE,
    }
}

impl Access {
    /// Returns whether this access writes the memory. The owner's right to write it must be checked
    /// then, and the pages pinned for writing.
    pub const fn writes_memory(self) -> bool {
        self.intersects(Self::RECV.union(Self::READ).union(Self::REMOTE_WRITE))
    }
}

bit_set! {
    /// The operations that a counter bound to an endpoint or a region counts (fi_endpoint(3),
    /// fi_ep_bind).
    CntrBind: u64 {
        /// Plain and tagged sends.
        SEND = KFI_SEND,
        /// Plain and tagged receives.
        RECV = KFI_RECV,
        /// Reads initiated by this endpoint.
        READ = KFI_READ,
        /// Writes initiated by this endpoint.
        WRITE = KFI_WRITE,
        /// Reads by peers.
        REMOTE_READ = KFI_REMOTE_READ,
        /// Writes by peers.
        REMOTE_WRITE = KFI_REMOTE_WRITE,
    }
}

/// Counted by a completion counter: sends.
pub const KFABRIC_COMP_CNTR_OP_SEND: u32 = 1 << 0;
/// Counted by a completion counter: receives, and immediate data.
pub const KFABRIC_COMP_CNTR_OP_RECV: u32 = 1 << 1;
/// Counted by a completion counter: reads of a peer's memory.
pub const KFABRIC_COMP_CNTR_OP_RDMA_READ: u32 = 1 << 2;
/// Counted by a completion counter: reads by peers.
pub const KFABRIC_COMP_CNTR_OP_REMOTE_RDMA_READ: u32 = 1 << 3;
/// Counted by a completion counter: writes to a peer's memory.
pub const KFABRIC_COMP_CNTR_OP_RDMA_WRITE: u32 = 1 << 4;
/// Counted by a completion counter: writes by peers.
pub const KFABRIC_COMP_CNTR_OP_REMOTE_RDMA_WRITE: u32 = 1 << 5;

bit_set! {
    /// The operations that a completion counter counts for the endpoint that it is attached to
    /// (ibv_qp_attach_comp_cntr(3)). Atomics have no bit.
    CompCntrOps: u32 {
        /// Sends.
        SEND = KFABRIC_COMP_CNTR_OP_SEND,
        /// Receives, and immediate data.
        RECV = KFABRIC_COMP_CNTR_OP_RECV,
        /// Reads initiated by this endpoint.
        RDMA_READ = KFABRIC_COMP_CNTR_OP_RDMA_READ,
        /// Reads by peers.
        REMOTE_RDMA_READ = KFABRIC_COMP_CNTR_OP_REMOTE_RDMA_READ,
        /// Writes initiated by this endpoint.
        RDMA_WRITE = KFABRIC_COMP_CNTR_OP_RDMA_WRITE,
        /// Writes by peers.
        REMOTE_RDMA_WRITE = KFABRIC_COMP_CNTR_OP_REMOTE_RDMA_WRITE,
    }
}

/// `flags` when a completion counter is created: its values are copied to memory of the program.
pub const KFABRIC_COMP_CNTR_INIT_WITH_EXTERNAL_MEM: u32 = 1 << 0;

bit_set! {
    /// Flags for creating a completion counter (ibv_create_comp_cntr(3)).
    CompCntrInit: u32 {
        /// The values are copied to memory of the program.
        WITH_EXTERNAL_MEM = KFABRIC_COMP_CNTR_INIT_WITH_EXTERNAL_MEM,
    }
}

bit_set! {
    /// Flags for binding a CQ to an endpoint (fi_endpoint(3), fi_ep_bind).
    CqBind: u64 {
        /// Completions of transmits.
        TRANSMIT = KFI_TRANSMIT,
        /// Completions of receives.
        RECV = KFI_RECV,
        /// Successes are reported only on request.
        SELECTIVE_COMPLETION = KFI_SELECTIVE_COMPLETION,
    }
}

bit_set! {
    /// Modes of memory registration (fi_mr(3)).
    MrMode: u32 {
        /// Local buffers must be registered.
        LOCAL = KFI_MR_LOCAL,
        /// Regions are addressed by virtual address instead of by offset.
        VIRT_ADDR = KFI_MR_VIRT_ADDR,
        /// The provider chooses keys.
        PROV_KEY = KFI_MR_PROV_KEY,
        /// Counters require `KFI_RMA_EVENT` at registration.
        RMA_EVENT = KFI_MR_RMA_EVENT,
    }
}

bit_set! {
    /// The ordering of operations to one peer (fi_endpoint(3), msg_order).
    MsgOrder: u64 {
        /// Reads after reads.
        RAR = KFI_ORDER_RAR,
        /// Reads after writes.
        RAW = KFI_ORDER_RAW,
        /// Reads after sends.
        RAS = KFI_ORDER_RAS,
        /// Writes after reads.
        WAR = KFI_ORDER_WAR,
        /// Writes after writes.
        WAW = KFI_ORDER_WAW,
        /// Writes after sends.
        WAS = KFI_ORDER_WAS,
        /// Sends after reads.
        SAR = KFI_ORDER_SAR,
        /// Sends after writes.
        SAW = KFI_ORDER_SAW,
        /// Sends after sends.
        SAS = KFI_ORDER_SAS,
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_flags))]
mod tests {
    use super::*;

    #[test]
    fn unknown_bits_are_refused() {
        assert_eq!(Caps::from_bits(1 << 63), Err(Errno::EINVAL));
        assert_eq!(OpFlags::from_bits(KFI_MULTICAST), Err(Errno::EINVAL));
        assert_eq!(OpFlags::from_bits(KFI_COMMIT_COMPLETE), Err(Errno::EINVAL));
        assert_eq!(CompFlags::from_bits(KFI_COMPLETION), Err(Errno::EINVAL));
        assert_eq!(Access::from_bits(KFI_SEND | KFI_MSG), Err(Errno::EINVAL));
        assert_eq!(
            CntrBind::from_bits(KFI_SELECTIVE_COMPLETION),
            Err(Errno::EINVAL)
        );
        assert_eq!(CqBind::from_bits(KFI_READ), Err(Errno::EINVAL));
        assert_eq!(CompCntrOps::from_bits(1 << 6), Err(Errno::EINVAL));
        assert_eq!(CompCntrInit::from_bits(1 << 1), Err(Errno::EINVAL));
        assert_eq!(MrMode::from_bits(1), Err(Errno::EINVAL));
        assert_eq!(MsgOrder::from_bits(KFI_ORDER_DATA), Err(Errno::EINVAL));
    }

    #[test]
    fn known_bits_are_preserved() {
        assert_eq!(Caps::from_bits(Caps::ALL.bits()), Ok(Caps::ALL));
        assert_eq!(Caps::from_bits(0), Ok(Caps::EMPTY));
        assert_eq!(MsgOrder::ALL.bits(), KFI_ORDER_STRICT);
        assert_eq!(
            CqBind::ALL.bits(),
            KFI_TRANSMIT | KFI_RECV | KFI_SELECTIVE_COMPLETION
        );
        assert_eq!(Access::ALL.bits(), CntrBind::ALL.bits());
        assert_eq!(OpFlags::from_bits_truncate(u64::MAX), OpFlags::ALL);
    }

    #[test]
    fn sets_have_union_intersection_and_difference() {
        let both = Caps::MSG | Caps::SEND;
        assert!(both.contains(Caps::MSG));
        assert!(both.contains(Caps::EMPTY));
        assert!(!both.contains(Caps::MSG | Caps::RECV));
        assert!(both.intersects(Caps::MSG | Caps::RECV));
        assert!(!both.intersects(Caps::RECV));
        assert_eq!(both.without(Caps::MSG), Caps::SEND);
        assert_eq!(both & Caps::MSG, Caps::MSG);
        assert!(Caps::EMPTY.is_empty());
        assert!(!both.is_empty());
        let mut set = Caps::EMPTY;
        set |= both;
        assert_eq!(set, both);
    }

    #[test]
    fn access_that_writes_memory() {
        assert!(Access::RECV.writes_memory());
        assert!(Access::READ.writes_memory());
        assert!(Access::REMOTE_WRITE.writes_memory());
        assert!(!(Access::SEND | Access::WRITE | Access::REMOTE_READ).writes_memory());
    }
}
