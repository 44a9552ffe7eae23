// SPDX-License-Identifier: GPL-2.0
//! The enumerations of the interface.

use crate::{abi, wait::WaitSet};

macro_rules! choice {
    (
        $(#[$doc:meta])*
        $name:ident { $( $(#[$vdoc:meta])* $variant:ident = $value:ident $text:literal, )* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $( $(#[$vdoc])* $variant, )*
            /// A number that this crate does not know.
            Unknown(u32),
        }

        impl $name {
            /// The number in the interface.
            pub const fn raw(self) -> u32 {
                match self {
                    $( Self::$variant => abi::$value, )*
                    Self::Unknown(raw) => raw,
                }
            }

            /// The choice with this number.
            pub const fn from_raw(raw: u32) -> Self {
                match raw {
                    $( abi::$value => Self::$variant, )*
                    raw => Self::Unknown(raw),
                }
            }

            /// Its name in small letters; `unknown` where there is none.
            pub const fn name(self) -> &'static str {
                match self {
                    $( Self::$variant => $text, )*
                    Self::Unknown(_) => "unknown",
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl $name {
            /// Those that this crate knows, in the order of their numbers.
            pub const ALL: &[Self] = &[$( Self::$variant, )*];
        }
    };
}

choice! {
    /// Type of an endpoint.
    EpType {
        /// The provider's choice.
        #[default]
        Unspec = KFI_EP_UNSPEC "unspec",
        /// Connected, reliable.
        Msg = KFI_EP_MSG "msg",
        /// Unconnected, unreliable.
        Dgram = KFI_EP_DGRAM "dgram",
        /// Unconnected, reliable.
        Rdm = KFI_EP_RDM "rdm",
    }
}

choice! {
    /// Type of what an atomic works on.
    Datatype {
        /// 8 bits, signed.
        #[default]
        Int8 = KFI_INT8 "int8",
        /// 8 bits.
        Uint8 = KFI_UINT8 "uint8",
        /// 16 bits, signed.
        Int16 = KFI_INT16 "int16",
        /// 16 bits.
        Uint16 = KFI_UINT16 "uint16",
        /// 32 bits, signed.
        Int32 = KFI_INT32 "int32",
        /// 32 bits.
        Uint32 = KFI_UINT32 "uint32",
        /// 64 bits, signed.
        Int64 = KFI_INT64 "int64",
        /// 64 bits.
        Uint64 = KFI_UINT64 "uint64",
        /// `float` of C.
        Float = KFI_FLOAT "float",
        /// `double` of C.
        Double = KFI_DOUBLE "double",
        /// Two of `Float`.
        FloatComplex = KFI_FLOAT_COMPLEX "float_complex",
        /// Two of `Double`.
        DoubleComplex = KFI_DOUBLE_COMPLEX "double_complex",
        /// `long double` of C.
        LongDouble = KFI_LONG_DOUBLE "long_double",
        /// Two of `LongDouble`.
        LongDoubleComplex = KFI_LONG_DOUBLE_COMPLEX "long_double_complex",
    }
}

choice! {
    /// Operation of an atomic: the value that it stores.
    AtomicOp {
        /// The smaller one.
        #[default]
        Min = KFI_MIN "min",
        /// The greater one.
        Max = KFI_MAX "max",
        /// The sum.
        Sum = KFI_SUM "sum",
        /// The product.
        Prod = KFI_PROD "prod",
        /// Logical or.
        Lor = KFI_LOR "lor",
        /// Logical and.
        Land = KFI_LAND "land",
        /// Or, bit by bit.
        Bor = KFI_BOR "bor",
        /// And, bit by bit.
        Band = KFI_BAND "band",
        /// Logical exclusive or.
        Lxor = KFI_LXOR "lxor",
        /// Exclusive or, bit by bit.
        Bxor = KFI_BXOR "bxor",
        /// The old value, unchanged.
        AtomicRead = KFI_ATOMIC_READ "atomic_read",
        /// The operand.
        AtomicWrite = KFI_ATOMIC_WRITE "atomic_write",
        /// The operand, if the old value equals the compared one.
        Cswap = KFI_CSWAP "cswap",
        /// The operand, if the old value differs from the compared one.
        CswapNe = KFI_CSWAP_NE "cswap_ne",
        /// The operand, if the compared one is less or equal.
        CswapLe = KFI_CSWAP_LE "cswap_le",
        /// The operand, if the compared one is less.
        CswapLt = KFI_CSWAP_LT "cswap_lt",
        /// The operand, if the compared one is greater or equal.
        CswapGe = KFI_CSWAP_GE "cswap_ge",
        /// The operand, if the compared one is greater.
        CswapGt = KFI_CSWAP_GT "cswap_gt",
        /// Those bits of the operand that are set in the compared one.
        Mswap = KFI_MSWAP "mswap",
    }
}

choice! {
    /// Type of an address vector.
    AvKind {
        /// The provider's choice.
        #[default]
        Unspec = KFI_AV_UNSPEC "unspec",
        /// Addresses have values of the module's choice.
        Map = KFI_AV_MAP "map",
        /// Addresses are numbered 0, 1, 2, ...
        Table = KFI_AV_TABLE "table",
    }
}

choice! {
    /// What a completion counter counts.
    CompCntrType {
        /// Work requests.
        #[default]
        Wrs = KFABRIC_COMP_CNTR_TYPE_WRS "wrs",
        /// Bytes of work requests.
        Bytes = KFABRIC_COMP_CNTR_TYPE_BYTES "bytes",
    }
}

choice! {
    /// A value of a completion counter.
    CompCntrEntry {
        /// The completion count.
        #[default]
        Comp = KFABRIC_COMP_CNTR_ENTRY_COMP "comp",
        /// The error count.
        Err = KFABRIC_COMP_CNTR_ENTRY_ERR "err",
    }
}

choice! {
    /// A change of a value of a completion counter.
    CompCntrModifyOp {
        /// Set it.
        #[default]
        Set = KFABRIC_COMP_CNTR_MODIFY_SET "set",
        /// Add to it.
        Inc = KFABRIC_COMP_CNTR_MODIFY_INC "inc",
    }
}

choice! {
    /// Format of the entries of a CQ.
    CqFormat {
        /// The provider's choice.
        #[default]
        Unspec = KFI_CQ_FORMAT_UNSPEC "unspec",
        /// The context.
        Context = KFI_CQ_FORMAT_CONTEXT "context",
        /// And flags and length.
        Msg = KFI_CQ_FORMAT_MSG "msg",
        /// And buffer and remote CQ data.
        Data = KFI_CQ_FORMAT_DATA "data",
        /// And the tag.
        Tagged = KFI_CQ_FORMAT_TAGGED "tagged",
    }
}

choice! {
    /// Number of threads that may use an object at the same time.
    Threading {
        /// Not specified.
        #[default]
        Unspec = KFI_THREAD_UNSPEC "unspec",
        /// Any.
        Safe = KFI_THREAD_SAFE "safe",
    }
}

choice! {
    /// The side that makes operations progress.
    Progress {
        /// Not specified.
        #[default]
        Unspec = KFI_PROGRESS_UNSPEC "unspec",
        /// The module by itself.
        Auto = KFI_PROGRESS_AUTO "auto",
        /// The program, by reading completions.
        Manual = KFI_PROGRESS_MANUAL "manual",
    }
}

choice! {
    /// The side that keeps queues from overflowing.
    ResourceMgmt {
        /// Not specified.
        #[default]
        Unspec = KFI_RM_UNSPEC "unspec",
        /// The program.
        Disabled = KFI_RM_DISABLED "disabled",
        /// The module.
        Enabled = KFI_RM_ENABLED "enabled",
    }
}

choice! {
    /// Format of addresses.
    AddrFormat {
        /// Not specified.
        #[default]
        Unspec = KFI_FORMAT_UNSPEC "unspec",
        /// IPv4 or IPv6.
        Sockaddr = KFI_SOCKADDR "sockaddr",
        /// IPv4.
        SockaddrIn = KFI_SOCKADDR_IN "sockaddr_in",
        /// IPv6.
        SockaddrIn6 = KFI_SOCKADDR_IN6 "sockaddr_in6",
    }
}

choice! {
    /// Protocol on the wire.
    Protocol {
        /// Not specified.
        #[default]
        Unspec = KFI_PROTO_UNSPEC "unspec",
        /// RC, connected by the RDMA CM.
        RdmaCmIbRc = KFI_PROTO_RDMA_CM_IB_RC "rdma_cm_ib_rc",
        /// UD.
        IbUd = KFI_PROTO_IB_UD "ib_ud",
        /// Reliable datagrams over RC.
        IbRdm = KFI_PROTO_IB_RDM "ib_rdm",
    }
}

choice! {
    /// State of a QP.
    QpState {
        /// It was just made.
        #[default]
        Reset = KFABRIC_QP_RESET "reset",
        /// Receives can be posted.
        Init = KFABRIC_QP_INIT "init",
        /// It receives.
        Rtr = KFABRIC_QP_RTR "rtr",
        /// It receives and sends.
        Rts = KFABRIC_QP_RTS "rts",
        /// It does not begin to send anything new.
        Sqd = KFABRIC_QP_SQD "sqd",
        /// Sending failed.
        Sqe = KFABRIC_QP_SQE "sqe",
        /// It is over.
        Error = KFABRIC_QP_ERR "error",
    }
}

choice! {
    /// State of a link.
    LinkState {
        /// The interface is down.
        #[default]
        Down = KFABRIC_LINK_DOWN "down",
        /// The interface is up.
        Up = KFABRIC_LINK_UP "up",
        /// The interface was removed; domains are still open.
        Gone = KFABRIC_LINK_GONE "gone",
    }
}

choice! {
    /// Kind of an event.
    EventKind {
        /// A notification.
        #[default]
        Notify = KFI_NOTIFY "notify",
        /// A peer wants to connect.
        ConnReq = KFI_CONNREQ "connreq",
        /// A connection is there.
        Connected = KFI_CONNECTED "connected",
        /// A connection ended.
        Shutdown = KFI_SHUTDOWN "shutdown",
        /// A memory region is registered.
        MrComplete = KFI_MR_COMPLETE "mr_complete",
        /// Addresses are inserted.
        AvComplete = KFI_AV_COMPLETE "av_complete",
        /// A multicast group is joined.
        JoinComplete = KFI_JOIN_COMPLETE "join_complete",
    }
}

/// How threads can wait on a CQ, a counter or an event queue.
#[derive(Clone, Debug, Default)]
pub enum Wait {
    /// Not at all: it is only polled.
    None,
    /// In blocking calls.
    #[default]
    Unspec,
    /// Through a wait set.
    Set(WaitSet),
    /// In blocking calls, and through a descriptor for poll, epoll and
    /// io_uring.
    Queue,
}

impl Wait {
    /// `wait_obj` and `wait_set` of the interface.
    pub(crate) fn raw(&self) -> (u32, u32) {
        match self {
            Self::None => (abi::KFI_WAIT_NONE, 0),
            Self::Unspec => (abi::KFI_WAIT_UNSPEC, 0),
            Self::Set(set) => (abi::KFI_WAIT_SET, set.handle()),
            Self::Queue => (abi::KFI_WAIT_QUEUE, 0),
        }
    }
}

/// A side of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Sends, reads, writes and atomics.
    Transmit,
    /// Receives.
    Recv,
}

impl Side {
    pub(crate) fn raw(self) -> u64 {
        match self {
            Self::Transmit => abi::KFI_TRANSMIT,
            Self::Recv => abi::KFI_RECV,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    macro_rules! there_and_back {
        ($($name:ident)*) => {$(
            for choice in $name::ALL {
                assert_eq!($name::from_raw(choice.raw()), *choice);
                assert_ne!(choice.name(), "unknown");
            }
            assert_eq!($name::from_raw(12345), $name::Unknown(12345));
            assert_eq!($name::Unknown(12345).raw(), 12345);
            assert_eq!($name::default().raw(), 0);
        )*};
    }

    #[test]
    fn numbers_survive_conversion() {
        there_and_back!(EpType Datatype AtomicOp QpState AvKind CqFormat Threading Progress ResourceMgmt
            AddrFormat Protocol LinkState EventKind CompCntrType CompCntrEntry CompCntrModifyOp);
    }

    #[test]
    fn names_can_be_padded() {
        assert_eq!(format!("{:>5}", LinkState::Up), "   up");
    }
}
