// SPDX-License-Identifier: GPL-2.0
//! The endpoint types with their capabilities and limits.
//!
//! | type    | on the wire                      | peers               | a message               |
//! |---------|----------------------------------|---------------------|-------------------------|
//! | `RDM`   | RC QPs with a header of our own  | any, by AV          | arrives, in order       |
//! | `MSG`   | one RC QP, as InfiniBand has it  | one, connected      | arrives, in order       |
//! | `DGRAM` | one UD QP, as InfiniBand has it  | any, by AV          | may be lost; a path MTU |
//!
//! `MSG` and `DGRAM` have no header beyond InfiniBand's, so they have no tags, 4 bytes of CQ data
//! (the immediate data) and one remote memory range per operation. No report tells the sender of a
//! datagram whether it arrived, so there is no delivery-complete level. Atomics are those of an RC
//! QP.

use crate::{
    auth_key::AuthKey,
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

/// The capabilities and limits of one endpoint type.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// The endpoint type.
    pub ep_type: EpType,
    /// The wire protocol.
    pub protocol: Protocol,
    /// The version of the protocol.
    pub protocol_version: u32,
    /// All capabilities.
    pub caps: Caps,
    /// All orderings of operations to one peer.
    pub msg_order: MsgOrder,
    /// The flags that can be defaults of the transmit side.
    pub tx_op_flags: OpFlags,
    /// The maximum length of a message or an RMA operation in bytes.
    pub max_msg_size: u64,
    /// The maximum number of remote memory ranges in one operation.
    pub rma_iov_limit: u64,
    /// The length of remote CQ data in bytes.
    pub cq_data_size: u64,
    /// The default and the maximum of `total_buffered_recv`: bytes of unexpected messages that are
    /// buffered.
    pub buffered: (u64, u64),
    /// The most transmit contexts and the most receive contexts of a scalable endpoint; 1: there
    /// are no scalable endpoints of the type.
    pub max_ctx: u64,
    /// The length of an authorization key in bytes; 0: endpoints of the type have none.
    pub auth_key_size: u64,
}

/// The capabilities that all types have: messages, and operations that a counter triggers.
const MESSAGES: Caps = Caps::MSG
    .union(Caps::SEND)
    .union(Caps::RECV)
    .union(Caps::TRIGGER);

/// The capabilities for RMA.
const RMA: Caps = Caps::RMA
    .union(Caps::READ)
    .union(Caps::WRITE)
    .union(Caps::REMOTE_READ)
    .union(Caps::REMOTE_WRITE)
    .union(Caps::RMA_EVENT)
    .union(Caps::FENCE);

/// The orderings that one RC QP guarantees: all but sends and writes after reads without a fence.
const RC_ORDER: MsgOrder = MsgOrder::ALL.without(MsgOrder::SAR).without(MsgOrder::WAR);

/// The same without writes and reads after sends: a message for which the peer has no room is sent
/// again later, and other operations do not wait for it.
const RDM_ORDER: MsgOrder = RC_ORDER.without(MsgOrder::WAS).without(MsgOrder::RAS);

impl Kind {
    /// Reliable datagrams.
    pub const RDM: Self = Self {
        ep_type: EpType::Rdm,
        protocol: Protocol::IbRdm,
        protocol_version: 1,
        caps: MESSAGES
            .union(RMA)
            .union(Caps::TAGGED)
            .union(Caps::TAGGED_RMA)
            .union(Caps::ATOMIC)
            .union(Caps::MULTI_RECV)
            .union(Caps::SOURCE)
            .union(Caps::DIRECTED_RECV)
            .union(Caps::NAMED_RX_CTX)
            .union(Caps::LOCAL_COMM)
            .union(Caps::REMOTE_COMM),
        msg_order: RDM_ORDER,
        tx_op_flags: Side::Transmit.default_flags_allowed(),
        max_msg_size: limits::MAX_MSG_SIZE,
        rma_iov_limit: limits::MAX_IOV as u64,
        cq_data_size: limits::CQ_DATA_SIZE,
        buffered: (limits::DEFAULT_BUFFERED, limits::MAX_BUFFERED),
        max_ctx: limits::MAX_EP_CTX as u64,
        auth_key_size: AuthKey::LEN as u64,
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
        max_ctx: 1,
        auth_key_size: 0,
    };

    /// Datagrams. The maximum message is the path MTU of the link; this is the largest one.
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
        max_ctx: 1,
        auth_key_size: 0,
    };

    /// Shared contexts, which endpoints of all types can use: what any type has.
    pub const SHARED: Self = Self {
        caps: Self::RDM.caps.union(Self::MSG.caps).union(Self::DGRAM.caps),
        msg_order: RC_ORDER,
        ..Self::RDM
    };

    /// Returns the kind for an endpoint type; `Unspec` gives reliable datagrams.
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
    fn each_endpoint_type_has_its_kind() {
        for ep_type in [EpType::Msg, EpType::Dgram, EpType::Rdm] {
            assert_eq!(Kind::of(ep_type).ep_type, ep_type);
        }
        assert_eq!(Kind::of(EpType::Unspec).ep_type, EpType::Rdm);
    }

    #[test]
    fn datagrams_have_no_tags_rma_or_delivery_level() {
        assert!(!Kind::DGRAM.caps.intersects(Caps::RMA | Caps::TAGGED));
        assert!(!Kind::DGRAM.tx_op_flags.contains(OpFlags::DELIVERY_COMPLETE));
        assert!(Kind::MSG.tx_op_flags.contains(OpFlags::DELIVERY_COMPLETE));
        assert!(!Kind::MSG.caps.intersects(Caps::TAGGED | Caps::MULTI_RECV));
        assert!((Kind::MSG.caps & Kind::RDM.caps).contains(Caps::ATOMIC));
        assert!(!Kind::DGRAM.caps.contains(Caps::ATOMIC));
    }
}
