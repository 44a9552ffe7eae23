// SPDX-License-Identifier: GPL-2.0
//! The types of endpoints: what each can do, and within which limits.
//!
//! | type    | on the wire                      | peers               | a message               |
//! |---------|----------------------------------|---------------------|-------------------------|
//! | `RDM`   | RC QPs with a header of our own  | any, by AV          | arrives, in order       |
//! | `MSG`   | one RC QP, as InfiniBand has it  | one, connected      | arrives, in order       |
//! | `DGRAM` | one UD QP, as InfiniBand has it  | any, by AV          | may be lost; a path MTU |
//!
//! What has no header of our own carries what InfiniBand's packets do: no tags, 4 bytes of CQ data
//! (the immediate), one piece of remote memory in an operation. A datagram's sender never learns
//! what became of it, so there is no completion of its delivery. Atomics are those of an RC QP.

use crate::{
    enums::{
        EpType,
        Protocol, //
    },
    flags::{
        Caps,
        MsgOrder,
        OpFlags, //
    },
    limits,
    op::Side, //
};

/// What endpoints of one type have in common.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Type of endpoint.
    pub ep_type: EpType,
    /// Protocol on the wire.
    pub protocol: Protocol,
    /// Version of that.
    pub protocol_version: u32,
    /// All capabilities.
    pub caps: Caps,
    /// All orders of messages towards one peer.
    pub msg_order: MsgOrder,
    /// Default flags that the transmit side can have.
    pub tx_op_flags: OpFlags,
    /// Bytes of a message, or of an RMA operation.
    pub max_msg_size: u64,
    /// Pieces of remote memory in one operation.
    pub rma_iov_limit: u64,
    /// Bytes of remote CQ data.
    pub cq_data_size: u64,
    /// Bytes of messages that are kept until somebody receives them, unless asked for; at most.
    pub buffered: (u64, u64),
}

/// What goes with messages on every type.
const MESSAGES: Caps = Caps::MSG.union(Caps::SEND).union(Caps::RECV);

/// What goes with RMA.
const RMA: Caps = Caps::RMA
    .union(Caps::READ)
    .union(Caps::WRITE)
    .union(Caps::REMOTE_READ)
    .union(Caps::REMOTE_WRITE)
    .union(Caps::RMA_EVENT)
    .union(Caps::FENCE);

/// What one RC QP keeps in order: everything but sends and writes after reads, without a fence.
const RC_ORDER: MsgOrder = MsgOrder::ALL.without(MsgOrder::SAR).without(MsgOrder::WAR);

impl Kind {
    /// Reliable datagrams.
    pub const RDM: Self = Self {
        ep_type: EpType::Rdm,
        protocol: Protocol::IbRdm,
        protocol_version: 1,
        caps: MESSAGES
            .union(RMA)
            .union(Caps::TAGGED)
            .union(Caps::MULTI_RECV)
            .union(Caps::SOURCE)
            .union(Caps::DIRECTED_RECV)
            .union(Caps::LOCAL_COMM),
        msg_order: RC_ORDER,
        tx_op_flags: Side::Transmit.default_flags_allowed(),
        max_msg_size: limits::MAX_MSG_SIZE,
        rma_iov_limit: limits::MAX_IOV as u64,
        cq_data_size: limits::CQ_DATA_SIZE,
        buffered: (limits::DEFAULT_BUFFERED, limits::MAX_BUFFERED),
    };

    /// Connected endpoints.
    pub const MSG: Self = Self {
        ep_type: EpType::Msg,
        protocol: Protocol::RdmaCmIbRc,
        protocol_version: 1,
        caps: MESSAGES
            .union(RMA)
            .union(Caps::ATOMIC)
            .union(Caps::LOCAL_COMM)
            .union(Caps::REMOTE_COMM),
        msg_order: RC_ORDER,
        tx_op_flags: Side::Transmit.default_flags_allowed(),
        max_msg_size: limits::MAX_MSG_SIZE,
        rma_iov_limit: 1,
        cq_data_size: limits::IMM_DATA_SIZE,
        buffered: (0, 0),
    };

    /// Datagrams. A message is at most a path MTU, which depends on the link: the largest.
    pub const DGRAM: Self = Self {
        ep_type: EpType::Dgram,
        protocol: Protocol::IbUd,
        protocol_version: 1,
        caps: MESSAGES
            .union(Caps::SOURCE)
            .union(Caps::MULTI_RECV)
            .union(Caps::LOCAL_COMM)
            .union(Caps::REMOTE_COMM),
        msg_order: MsgOrder::EMPTY,
        tx_op_flags: Side::Transmit
            .default_flags_allowed()
            .without(OpFlags::DELIVERY_COMPLETE),
        max_msg_size: limits::MAX_DGRAM_SIZE,
        rma_iov_limit: 0,
        cq_data_size: limits::IMM_DATA_SIZE,
        buffered: (0, 0),
    };

    /// The type with this number; `Unspec` is reliable datagrams.
    pub const fn of(ep_type: EpType) -> &'static Self {
        match ep_type {
            EpType::Unspec | EpType::Rdm => &Self::RDM,
            EpType::Msg => &Self::MSG,
            EpType::Dgram => &Self::DGRAM,
        }
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_kind))]
mod tests {
    use super::*;

    #[test]
    fn each_type_is_its_own() {
        for ep_type in [EpType::Msg, EpType::Dgram, EpType::Rdm] {
            assert_eq!(Kind::of(ep_type).ep_type, ep_type);
        }
        assert_eq!(Kind::of(EpType::Unspec).ep_type, EpType::Rdm);
    }

    #[test]
    fn what_a_datagram_cannot() {
        assert!(!Kind::DGRAM.caps.intersects(Caps::RMA | Caps::TAGGED));
        assert!(!Kind::DGRAM.tx_op_flags.contains(OpFlags::DELIVERY_COMPLETE));
        assert!(Kind::MSG.tx_op_flags.contains(OpFlags::DELIVERY_COMPLETE));
        assert!(!Kind::MSG.caps.intersects(Caps::TAGGED | Caps::MULTI_RECV));
        assert!(Kind::MSG.caps.contains(Caps::ATOMIC));
        assert!(!(Kind::RDM.caps | Kind::DGRAM.caps).contains(Caps::ATOMIC));
    }
}
