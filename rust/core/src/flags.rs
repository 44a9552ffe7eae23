// SPDX-License-Identifier: GPL-2.0
//! The flags of kfabric, as numbers and as types.
//!
//! The constants `KFI_*` have the values of `include/uapi/kfabric.h` (and of the kfabric 1.7
//! headers). They are written here by hand, because cargo builds this crate without the header; the
//! module compares each with the header when it is built (`rust/module/uapi/header.rs`). A bit can
//! have several names, because the high bits mean different things to different calls: bit 59 is
//! `KFI_CLAIM` to a receive, `KFI_DIRECTED_RECV` among capabilities and `KFI_SELECTIVE_COMPLETION`
//! to a bind.
//!
//! That is what the types are for. Each set of bits that a call takes is a type of its own:
//! [`Caps`], [`OpFlags`], [`CompFlags`], [`Access`], [`CntrBind`], [`CqBind`], [`MrMode`] and
//! [`MsgOrder`]. A face makes them from the caller's numbers with `from_bits`, which refuses a bit
//! that the set does not know with `EINVAL`; behind the face no value of these types can be bad,
//! and a capability cannot be taken for an operation flag. Enumerators: [`crate::enums`].

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
/// Reads from a peer's memory; a buffer that a read fills.
pub const KFI_READ: u64 = 1 << 8;
/// Writes to a peer's memory; a buffer that a write empties.
pub const KFI_WRITE: u64 = 1 << 9;
/// Receives messages.
pub const KFI_RECV: u64 = 1 << 10;
/// Sends messages.
pub const KFI_SEND: u64 = 1 << 11;
/// The transmit side: the same bit as [`KFI_SEND`].
pub const KFI_TRANSMIT: u64 = KFI_SEND;
/// Is the target of a peer's reads.
pub const KFI_REMOTE_READ: u64 = 1 << 12;
/// Is the target of a peer's writes.
pub const KFI_REMOTE_WRITE: u64 = 1 << 13;

/// A receive buffer that takes several messages; completion: that buffer was released.
pub const KFI_MULTI_RECV: u64 = 1 << 16;
/// The operation carries 64 bits for the peer's completion.
pub const KFI_REMOTE_CQ_DATA: u64 = 1 << 17;
/// More operations follow at once.
pub const KFI_MORE: u64 = 1 << 18;
/// Look at a message (a receive) or an event (an EQ) and leave it.
pub const KFI_PEEK: u64 = 1 << 19;
/// A triggered operation.
pub const KFI_TRIGGER: u64 = 1 << 20;
/// Begin only when earlier operations to that peer are done.
pub const KFI_FENCE: u64 = 1 << 21;
/// Make a completion.
pub const KFI_COMPLETION: u64 = 1 << 24;
/// Report through an event queue: the same bit as [`KFI_COMPLETION`].
pub const KFI_EVENT: u64 = KFI_COMPLETION;
/// The buffer is the caller's again when the call returns.
pub const KFI_INJECT: u64 = 1 << 25;
/// Complete when the buffer can be used again.
pub const KFI_INJECT_COMPLETE: u64 = 1 << 26;
/// Complete when the peer's endpoint has accepted the operation.
pub const KFI_TRANSMIT_COMPLETE: u64 = 1 << 27;
/// Complete when the data is in the peer's buffer.
pub const KFI_DELIVERY_COMPLETE: u64 = 1 << 28;
/// `signaling_vector` is valid.
pub const KFI_AFFINITY: u64 = 1 << 29;
/// Complete when the data is durable.
pub const KFI_COMMIT_COMPLETE: u64 = 1 << 30;

/// Source addresses are reported also for errors.
pub const KFI_SOURCE_ERR: u64 = 1 << 50;
/// Reaches endpoints on this host.
pub const KFI_LOCAL_COMM: u64 = 1 << 51;
/// Reaches endpoints on other hosts.
pub const KFI_REMOTE_COMM: u64 = 1 << 52;
/// Remote RMA moves counters at the target.
pub const KFI_RMA_EVENT: u64 = 1 << 56;
/// Source addresses are reported; to getinfo: the address is the caller's own.
pub const KFI_SOURCE: u64 = 1 << 57;
/// Receive contexts can be named by address.
pub const KFI_NAMED_RX_CTX: u64 = 1 << 58;
/// Throw the message away.
pub const KFI_DISCARD: u64 = 1 << 58;
/// An error number for each address inserted.
pub const KFI_SYNC_ERR: u64 = 1 << 58;
/// Claim a message that was found, or receive one that was claimed.
pub const KFI_CLAIM: u64 = 1 << 59;
/// Receives from one source only.
pub const KFI_DIRECTED_RECV: u64 = 1 << 59;
/// Registration of memory is asynchronous.
pub const KFI_REG_MR: u64 = 1 << 59;
/// Successes are reported on request only.
pub const KFI_SELECTIVE_COMPLETION: u64 = 1 << 59;

/// A `kfi_addr_t` that stands for any address.
pub const KFI_ADDR_UNSPEC: u64 = u64::MAX;
/// A `kfi_addr_t` that says that there is none.
pub const KFI_ADDR_NOTAVAIL: u64 = u64::MAX;
/// A key that says that there is none.
pub const KFI_KEY_NOTAVAIL: u64 = u64::MAX;

/// Local buffers need registration.
pub const KFI_MR_LOCAL: u32 = 1 << 1;
/// Peers address a region by virtual address.
pub const KFI_MR_VIRT_ADDR: u32 = 1 << 3;
/// The provider chooses keys.
pub const KFI_MR_PROV_KEY: u32 = 1 << 4;
/// Counters can be bound to regions opened with `KFI_RMA_EVENT` only.
pub const KFI_MR_RMA_EVENT: u32 = 1 << 5;

/// No order.
pub const KFI_ORDER_NONE: u64 = 0;
/// Read after read.
pub const KFI_ORDER_RAR: u64 = 1 << 0;
/// Read after write.
pub const KFI_ORDER_RAW: u64 = 1 << 1;
/// Read after send.
pub const KFI_ORDER_RAS: u64 = 1 << 2;
/// Write after read.
pub const KFI_ORDER_WAR: u64 = 1 << 3;
/// Write after write.
pub const KFI_ORDER_WAW: u64 = 1 << 4;
/// Write after send.
pub const KFI_ORDER_WAS: u64 = 1 << 5;
/// Send after read.
pub const KFI_ORDER_SAR: u64 = 1 << 6;
/// Send after write.
pub const KFI_ORDER_SAW: u64 = 1 << 7;
/// Send after send.
pub const KFI_ORDER_SAS: u64 = 1 << 8;
/// All of the above.
pub const KFI_ORDER_STRICT: u64 = 0x1ff;
/// Bytes are written in order.
pub const KFI_ORDER_DATA: u64 = 1 << 16;

/// Makes a set of bits that cannot hold an unknown one.
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

            /// No bit.
            pub const EMPTY: Self = Self(0);

            /// Every bit there is.
            pub const ALL: Self = Self(0 $( | $value )*);

            /// Takes `bits` from outside.
            ///
            /// # Errors
            ///
            /// `EINVAL`: a bit that this set does not know.
            pub const fn from_bits(bits: $repr) -> Result<Self, Errno> {
                if bits & !Self::ALL.0 != 0 {
                    return Err(Errno::EINVAL);
                }
                Ok(Self(bits))
            }

            /// Takes the bits of `bits` that this set knows.
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

            /// Returns whether something of `other` is set.
            pub const fn intersects(self, other: Self) -> bool {
                self.0 & other.0 != 0
            }

            /// Returns the bits of both.
            pub const fn union(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// Returns the bits that both have.
            pub const fn intersection(self, other: Self) -> Self {
                Self(self.0 & other.0)
            }

            /// Returns the bits that `other` does not have.
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
    /// Capabilities of an endpoint, of an offer and of a hint (fi_getinfo(3)).
    ///
    /// What a provider has is less: see [`info`](crate::info).
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
        /// Begins reads.
        READ = KFI_READ,
        /// Begins writes.
        WRITE = KFI_WRITE,
        /// Receives.
        RECV = KFI_RECV,
        /// Sends.
        SEND = KFI_SEND,
        /// Is read from.
        REMOTE_READ = KFI_REMOTE_READ,
        /// Is written to.
        REMOTE_WRITE = KFI_REMOTE_WRITE,
        /// Multi-receive buffers.
        MULTI_RECV = KFI_MULTI_RECV,
        /// Triggered operations.
        TRIGGER = KFI_TRIGGER,
        /// Fences.
        FENCE = KFI_FENCE,
        /// Source addresses for errors.
        SOURCE_ERR = KFI_SOURCE_ERR,
        /// Peers on this host.
        LOCAL_COMM = KFI_LOCAL_COMM,
        /// Peers on other hosts.
        REMOTE_COMM = KFI_REMOTE_COMM,
        /// Counters of regions.
        RMA_EVENT = KFI_RMA_EVENT,
        /// Source addresses.
        SOURCE = KFI_SOURCE,
        /// Receive contexts named by address.
        NAMED_RX_CTX = KFI_NAMED_RX_CTX,
        /// Receives from one source.
        DIRECTED_RECV = KFI_DIRECTED_RECV,
    }
}

bit_set! {
    /// Flags of an operation (`struct kfabric_op`), and an endpoint's default flags.
    ///
    /// Which of them a kind of operation takes: [`OpType::flags`](crate::op::OpType::flags).
    OpFlags: u64 {
        /// The buffer takes several messages.
        MULTI_RECV = KFI_MULTI_RECV,
        /// Carries 64 bits for the peer's completion.
        REMOTE_CQ_DATA = KFI_REMOTE_CQ_DATA,
        /// More follows at once.
        MORE = KFI_MORE,
        /// Look, and leave the message.
        PEEK = KFI_PEEK,
        /// Wait for earlier operations to that peer.
        FENCE = KFI_FENCE,
        /// Make a completion.
        COMPLETION = KFI_COMPLETION,
        /// The buffer is free when the call returns.
        INJECT = KFI_INJECT,
        /// Level: the buffer is free.
        INJECT_COMPLETE = KFI_INJECT_COMPLETE,
        /// Level: the peer has accepted it.
        TRANSMIT_COMPLETE = KFI_TRANSMIT_COMPLETE,
        /// Level: it is in the peer's buffer.
        DELIVERY_COMPLETE = KFI_DELIVERY_COMPLETE,
        /// Throw the message away.
        DISCARD = KFI_DISCARD,
        /// Claim a message, or receive the one claimed.
        CLAIM = KFI_CLAIM,
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
        /// A read begun here.
        READ = KFI_READ,
        /// A write begun here.
        WRITE = KFI_WRITE,
        /// A receive.
        RECV = KFI_RECV,
        /// A send.
        SEND = KFI_SEND,
        /// A read begun by a peer.
        REMOTE_READ = KFI_REMOTE_READ,
        /// A write begun by a peer.
        REMOTE_WRITE = KFI_REMOTE_WRITE,
        /// A multi-receive buffer was released.
        MULTI_RECV = KFI_MULTI_RECV,
        /// `data` is valid.
        REMOTE_CQ_DATA = KFI_REMOTE_CQ_DATA,
    }
}

bit_set! {
    /// What may be done with a memory region (fi_mr(3)).
    Access: u64 {
        /// Read by the provider: source of sends.
        SEND = KFI_SEND,
        /// Written by the provider: receives.
        RECV = KFI_RECV,
        /// Written by the provider: filled by reads begun here.
        READ = KFI_READ,
        /// Read by the provider: source of writes begun here.
        WRITE = KFI_WRITE,
        /// Read by peers.
        REMOTE_READ = KFI_REMOTE_READ,
        /// Written by peers.
        REMOTE_WRITE = KFI_REMOTE_WRITE,
    }
}

impl Access {
    /// Returns whether this access writes to the memory, so that the owner's right to write to it
    /// must be checked and the pages be pinned for writing.
    pub const fn writes_memory(self) -> bool {
        self.intersects(Self::RECV.union(Self::READ).union(Self::REMOTE_WRITE))
    }
}

bit_set! {
    /// What a counter bound to an endpoint or a region counts (fi_endpoint(3), fi_ep_bind).
    CntrBind: u64 {
        /// Sends, plain and tagged.
        SEND = KFI_SEND,
        /// Receives, plain and tagged.
        RECV = KFI_RECV,
        /// Reads begun here.
        READ = KFI_READ,
        /// Writes begun here.
        WRITE = KFI_WRITE,
        /// Reads by peers.
        REMOTE_READ = KFI_REMOTE_READ,
        /// Writes by peers.
        REMOTE_WRITE = KFI_REMOTE_WRITE,
    }
}

bit_set! {
    /// How a CQ is bound to an endpoint (fi_endpoint(3), fi_ep_bind).
    CqBind: u64 {
        /// Completions of transmits.
        TRANSMIT = KFI_TRANSMIT,
        /// Completions of receives.
        RECV = KFI_RECV,
        /// Successes on request only.
        SELECTIVE_COMPLETION = KFI_SELECTIVE_COMPLETION,
    }
}

bit_set! {
    /// Modes of memory registration (fi_mr(3)).
    MrMode: u32 {
        /// Local buffers need registration.
        LOCAL = KFI_MR_LOCAL,
        /// Regions are addressed by virtual address, not by offset.
        VIRT_ADDR = KFI_MR_VIRT_ADDR,
        /// The provider chooses keys.
        PROV_KEY = KFI_MR_PROV_KEY,
        /// Counters need `KFI_RMA_EVENT` at registration.
        RMA_EVENT = KFI_MR_RMA_EVENT,
    }
}

bit_set! {
    /// What stays in order towards one peer (fi_endpoint(3), msg_order).
    MsgOrder: u64 {
        /// Read after read.
        RAR = KFI_ORDER_RAR,
        /// Read after write.
        RAW = KFI_ORDER_RAW,
        /// Read after send.
        RAS = KFI_ORDER_RAS,
        /// Write after read.
        WAR = KFI_ORDER_WAR,
        /// Write after write.
        WAW = KFI_ORDER_WAW,
        /// Write after send.
        WAS = KFI_ORDER_WAS,
        /// Send after read.
        SAR = KFI_ORDER_SAR,
        /// Send after write.
        SAW = KFI_ORDER_SAW,
        /// Send after send.
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
        assert_eq!(OpFlags::from_bits(KFI_TRIGGER), Err(Errno::EINVAL));
        assert_eq!(OpFlags::from_bits(KFI_COMMIT_COMPLETE), Err(Errno::EINVAL));
        assert_eq!(CompFlags::from_bits(KFI_COMPLETION), Err(Errno::EINVAL));
        assert_eq!(Access::from_bits(KFI_SEND | KFI_MSG), Err(Errno::EINVAL));
        assert_eq!(
            CntrBind::from_bits(KFI_SELECTIVE_COMPLETION),
            Err(Errno::EINVAL)
        );
        assert_eq!(CqBind::from_bits(KFI_READ), Err(Errno::EINVAL));
        assert_eq!(MrMode::from_bits(1), Err(Errno::EINVAL));
        assert_eq!(MsgOrder::from_bits(KFI_ORDER_DATA), Err(Errno::EINVAL));
    }

    #[test]
    fn known_bits_come_back() {
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
    fn sets_are_sets() {
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
