// SPDX-License-Identifier: GPL-2.0
//! The enumerators of kfabric, as types.
//!
//! Each enumerator has the numbers of the C enumerator with the same name in
//! `include/uapi/kfabric.h`; the module compares them when it is built
//! (`rust/module/uapi/header.rs`). Where that header has fewer, the numbers are those of the
//! kfabric 1.7 headers. `try_from` converts a number of a caller and returns `EINVAL` for an
//! unknown one. `u32::from` returns the number.

use crate::errno::Errno;

/// Defines an enumerator with a checked conversion from a number of a caller.
macro_rules! enumerator {
    (
        $(#[$meta:meta])*
        $name:ident {
            $( $(#[$variant_meta:meta])* $variant:ident = $value:expr, )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum $name {
            $( $(#[$variant_meta])* $variant = $value, )*
        }

        impl TryFrom<u32> for $name {
            type Error = Errno;

            /// Converts a number from outside; returns `EINVAL` if it is not in the list.
            fn try_from(value: u32) -> Result<Self, Errno> {
                $(
                    if value == $value {
                        return Ok(Self::$variant);
                    }
                )*
                Err(Errno::EINVAL)
            }
        }

        impl From<$name> for u32 {
            fn from(value: $name) -> u32 {
                value as u32
            }
        }
    };
}

pub(crate) use enumerator;

enumerator! {
    /// Endpoint types (`enum kfi_ep_type`).
    EpType {
        /// The provider's choice.
        Unspec = 0,
        /// Connected, reliable.
        Msg = 1,
        /// Datagrams, unreliable.
        Dgram = 2,
        /// Datagrams, reliable.
        Rdm = 3,
    }
}

enumerator! {
    /// Types of address vectors (`enum kfi_av_type`).
    AvType {
        /// The provider's choice.
        Unspec = 0,
        /// Values chosen by the provider.
        Map = 1,
        /// Indices from 0.
        Table = 2,
    }
}

enumerator! {
    /// The events that a counter counts (`enum kfi_cntr_events`).
    CntrEvents {
        /// Completions.
        Comp = 0,
    }
}

enumerator! {
    /// Conditions of triggered operations (`enum kfi_trigger_event`).
    TriggerEvent {
        /// A counter reaches a threshold.
        Threshold = 0,
    }
}

enumerator! {
    /// Wait objects (`enum kfi_wait_obj`).
    WaitObj {
        /// Threads do not wait.
        None = 0,
        /// Threads wait through calls only.
        Unspec = 1,
        /// Through a wait set.
        Set = 2,
        /// A wait queue that the user can get.
        Queue = 3,
    }
}

enumerator! {
    /// Formats of completions (`enum kfi_cq_format`).
    CqFormat {
        /// The provider's choice.
        Unspec = 0,
        /// Context only.
        Context = 1,
        /// As `Context`, with flags and length.
        Msg = 2,
        /// As `Msg`, with buffer and remote CQ data.
        Data = 3,
        /// As `Data`, with the tag.
        Tagged = 4,
    }
}

enumerator! {
    /// Wait conditions of a CQ (`enum kfi_cq_wait_cond`).
    CqWaitCond {
        /// At least one entry.
        None = 0,
        /// A number of entries.
        Threshold = 1,
    }
}

enumerator! {
    /// Threading models (`enum kfi_threading`).
    Threading {
        /// The provider's choice.
        Unspec = 0,
        /// Calls are safe from all threads.
        Safe = 1,
        /// One thread for each object.
        Fid = 2,
        /// One thread for each domain.
        Domain = 3,
        /// One thread for each completion.
        Completion = 4,
        /// One thread for each endpoint.
        Endpoint = 5,
    }
}

enumerator! {
    /// Progress models (`enum kfi_progress`).
    Progress {
        /// The provider's choice.
        Unspec = 0,
        /// Progress without calls.
        Auto = 1,
        /// Progress only in calls.
        Manual = 2,
    }
}

enumerator! {
    /// Resource management (`enum kfi_resource_mgmt`).
    ResourceMgmt {
        /// The provider's choice.
        Unspec = 0,
        /// The caller keeps queues from overrunning.
        Disabled = 1,
        /// The provider keeps queues from overrunning.
        Enabled = 2,
    }
}

enumerator! {
    /// Address formats.
    AddrFormat {
        /// The provider's choice.
        Unspec = 0,
        /// A socket address of either family.
        Sockaddr = 1,
        /// IPv4.
        SockaddrIn = 2,
        /// IPv6.
        SockaddrIn6 = 3,
    }
}

enumerator! {
    /// Wire protocols.
    Protocol {
        /// The provider's choice.
        Unspec = 0,
        /// One RC QP, connected by the RDMA CM.
        RdmaCmIbRc = 1,
        /// One UD QP.
        IbUd = 3,
        /// Reliable datagrams over RC QPs.
        IbRdm = 7,
    }
}

enumerator! {
    /// Classes of objects that the module supports.
    Class {
        /// None.
        Unspec = 0,
        /// Fabric.
        Fabric = 1,
        /// Domain.
        Domain = 2,
        /// Endpoint.
        Ep = 3,
        /// Passive endpoint.
        Pep = 9,
        /// Address vector.
        Av = 11,
        /// Memory region.
        Mr = 12,
        /// Event queue.
        Eq = 13,
        /// Completion queue.
        Cq = 14,
        /// Counter.
        Cntr = 15,
        /// Wait set.
        Wait = 16,
        /// Poll set.
        Poll = 17,
    }
}

enumerator! {
    /// Events of an event queue.
    EqEvent {
        /// A notification.
        Notify = 0,
        /// A peer has requested a connection.
        ConnReq = 1,
        /// A connection is established.
        Connected = 2,
        /// A connection has ended.
        Shutdown = 3,
        /// A memory region was registered.
        MrComplete = 4,
        /// Addresses were inserted.
        AvComplete = 5,
        /// A multicast group was joined.
        JoinComplete = 6,
    }
}

enumerator! {
    /// Options of an endpoint (level `KFI_OPT_ENDPOINT`).
    EpOpt {
        /// The room in bytes below which a multi-receive buffer is released.
        MinMultiRecv = 0,
        /// The maximum length of the private data of a connection request in bytes.
        CmDataSize = 1,
    }
}

enumerator! {
    /// Data types of atomics (`enum kfi_datatype`).
    Datatype {
        /// 8 bits, signed.
        Int8 = 0,
        /// 8 bits.
        Uint8 = 1,
        /// 16 bits, signed.
        Int16 = 2,
        /// 16 bits.
        Uint16 = 3,
        /// 32 bits, signed.
        Int32 = 4,
        /// 32 bits.
        Uint32 = 5,
        /// 64 bits, signed.
        Int64 = 6,
        /// 64 bits.
        Uint64 = 7,
        /// Floating point.
        Float = 8,
        /// Floating point, double precision.
        Double = 9,
        /// Complex number of two `Float`.
        FloatComplex = 10,
        /// Complex number of two `Double`.
        DoubleComplex = 11,
        /// Floating point, extended precision.
        LongDouble = 12,
        /// Complex number of two `LongDouble`.
        LongDoubleComplex = 13,
    }
}

enumerator! {
    /// Operations of atomics (`enum kfi_op`): the new value of the target.
    AtomicOp {
        /// The smaller of target and operand.
        Min = 0,
        /// The greater of target and operand.
        Max = 1,
        /// The sum.
        Sum = 2,
        /// The product.
        Prod = 3,
        /// Logical or.
        Lor = 4,
        /// Logical and.
        Land = 5,
        /// Bitwise or.
        Bor = 6,
        /// Bitwise and.
        Band = 7,
        /// Logical exclusive or.
        Lxor = 8,
        /// Bitwise exclusive or.
        Bxor = 9,
        /// Unchanged: the target is only read.
        AtomicRead = 10,
        /// The operand.
        AtomicWrite = 11,
        /// The operand, if the target is equal to the compare value.
        Cswap = 12,
        /// The operand, if the target is not equal to the compare value.
        CswapNe = 13,
        /// The operand, if the compare value is less than or equal to the target.
        CswapLe = 14,
        /// The operand, if the compare value is less than the target.
        CswapLt = 15,
        /// The operand, if the compare value is greater than or equal to the target.
        CswapGe = 16,
        /// The operand, if the compare value is greater than the target.
        CswapGt = 17,
        /// The bits of the operand that are set in the compare value; the other bits are unchanged.
        Mswap = 18,
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_enums))]
mod tests {
    use super::*;

    #[test]
    fn enumerators_refuse_the_next_number() {
        assert_eq!(EpType::try_from(3), Ok(EpType::Rdm));
        assert_eq!(EpType::try_from(4), Err(Errno::EINVAL));
        assert_eq!(AvType::try_from(3), Err(Errno::EINVAL));
        assert_eq!(CntrEvents::try_from(1), Err(Errno::EINVAL));
        assert_eq!(WaitObj::try_from(3), Ok(WaitObj::Queue));
        assert_eq!(WaitObj::try_from(4), Err(Errno::EINVAL));
        assert_eq!(CqFormat::try_from(4), Ok(CqFormat::Tagged));
        assert_eq!(CqFormat::try_from(5), Err(Errno::EINVAL));
        assert_eq!(CqWaitCond::try_from(2), Err(Errno::EINVAL));
        assert_eq!(Threading::try_from(6), Err(Errno::EINVAL));
        assert_eq!(Progress::try_from(3), Err(Errno::EINVAL));
        assert_eq!(ResourceMgmt::try_from(3), Err(Errno::EINVAL));
        assert_eq!(AddrFormat::try_from(4), Err(Errno::EINVAL));
        assert_eq!(Protocol::try_from(2), Err(Errno::EINVAL));
        assert_eq!(Protocol::try_from(7), Ok(Protocol::IbRdm));
        assert_eq!(Class::try_from(4), Err(Errno::EINVAL));
        assert_eq!(Class::try_from(9), Ok(Class::Pep));
        assert_eq!(Class::try_from(17), Ok(Class::Poll));
        assert_eq!(EqEvent::try_from(7), Err(Errno::EINVAL));
        assert_eq!(EpOpt::try_from(2), Err(Errno::EINVAL));
        assert_eq!(Datatype::try_from(7), Ok(Datatype::Uint64));
        assert_eq!(Datatype::try_from(14), Err(Errno::EINVAL));
        assert_eq!(AtomicOp::try_from(2), Ok(AtomicOp::Sum));
        assert_eq!(AtomicOp::try_from(12), Ok(AtomicOp::Cswap));
        assert_eq!(AtomicOp::try_from(18), Ok(AtomicOp::Mswap));
        assert_eq!(AtomicOp::try_from(19), Err(Errno::EINVAL));
        assert_eq!(u32::from(Class::Cntr), 15);
    }
}
