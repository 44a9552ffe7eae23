// SPDX-License-Identifier: GPL-2.0
//! Sets of flags.
//!
//! In the interface one 64-bit number holds capabilities, flags of operations,
//! flags of completions and flags of bindings, and some bits mean different
//! things in different places.  Here each place has a type of its own.

use bitflags::bitflags;

use crate::abi;

bitflags! {
    /// Capabilities of an endpoint.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Caps: u64 {
        /// Messages.
        const MSG = abi::KFI_MSG;
        /// Reading and writing a peer's memory.
        const RMA = abi::KFI_RMA;
        /// Tagged messages.
        const TAGGED = abi::KFI_TAGGED;
        /// Atomic operations.
        const ATOMIC = abi::KFI_ATOMIC;
        /// Multicast.
        const MULTICAST = abi::KFI_MULTICAST;
        /// RMA that is matched by tags.
        const TAGGED_RMA = abi::KFI_TAGGED_RMA;
        /// Reading a peer's memory.
        const READ = abi::KFI_READ;
        /// Writing a peer's memory.
        const WRITE = abi::KFI_WRITE;
        /// Receiving messages.
        const RECV = abi::KFI_RECV;
        /// Sending messages.
        const SEND = abi::KFI_SEND;
        /// Peers may read.
        const REMOTE_READ = abi::KFI_REMOTE_READ;
        /// Peers may write.
        const REMOTE_WRITE = abi::KFI_REMOTE_WRITE;
        /// Receive buffers for several messages.
        const MULTI_RECV = abi::KFI_MULTI_RECV;
        /// Triggered operations.
        const TRIGGER = abi::KFI_TRIGGER;
        /// Fences.
        const FENCE = abi::KFI_FENCE;
        /// Peers on the same host.
        const LOCAL_COMM = abi::KFI_LOCAL_COMM;
        /// Peers on other hosts.
        const REMOTE_COMM = abi::KFI_REMOTE_COMM;
        /// Error entries name unknown sources.
        const SOURCE_ERR = abi::KFI_SOURCE_ERR;
        /// Events for RMA on a region.
        const RMA_EVENT = abi::KFI_RMA_EVENT;
        /// Completions name their source.
        const SOURCE = abi::KFI_SOURCE;
        /// Addresses name a receive context.
        const NAMED_RX_CTX = abi::KFI_NAMED_RX_CTX;
        /// Receives can name one source.
        const DIRECTED_RECV = abi::KFI_DIRECTED_RECV;
        /// Bits that this crate does not know.
        const _ = !0;
    }

    /// Flags of an operation, and an endpoint's defaults for them.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct OpFlags: u64 {
        /// RMA to the memory of a tagged receive of the peer.
        const TAGGED = abi::KFI_TAGGED;
        /// The receive buffer takes several messages.
        const MULTI_RECV = abi::KFI_MULTI_RECV;
        /// Carries data to the peer's CQ.
        const REMOTE_CQ_DATA = abi::KFI_REMOTE_CQ_DATA;
        /// More operations follow at once.
        const MORE = abi::KFI_MORE;
        /// Looks whether there is a message; takes none.
        const PEEK = abi::KFI_PEEK;
        /// Triggered operation.
        const TRIGGER = abi::KFI_TRIGGER;
        /// Starts when earlier operations towards the peer are complete.
        const FENCE = abi::KFI_FENCE;
        /// Makes a CQ entry even if the binding is selective.
        const COMPLETION = abi::KFI_COMPLETION;
        /// The buffer can be used again when the post returns.
        const INJECT = abi::KFI_INJECT;
        /// Completes when the buffer can be used again.
        const INJECT_COMPLETE = abi::KFI_INJECT_COMPLETE;
        /// Completes when it is independent of this side.
        const TRANSMIT_COMPLETE = abi::KFI_TRANSMIT_COMPLETE;
        /// Completes when the data is placed at the peer.
        const DELIVERY_COMPLETE = abi::KFI_DELIVERY_COMPLETE;
        /// Takes the message that a peek claimed; with [`OpFlags::PEEK`]:
        /// claims it.
        const CLAIM = abi::KFI_CLAIM;
        /// Drops the message that a peek found or claimed.
        const DISCARD = abi::KFI_DISCARD;
        /// Bits that this crate does not know.
        const _ = !0;
    }

    /// Flags of a completion: the kind of operation, and the valid fields of
    /// the entry.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    #[repr(transparent)]
    pub struct CompFlags: u64 {
        /// A message.
        const MSG = abi::KFI_MSG;
        /// RMA.
        const RMA = abi::KFI_RMA;
        /// A tagged message.
        const TAGGED = abi::KFI_TAGGED;
        /// An atomic operation.
        const ATOMIC = abi::KFI_ATOMIC;
        /// A read.
        const READ = abi::KFI_READ;
        /// A write.
        const WRITE = abi::KFI_WRITE;
        /// A receive.
        const RECV = abi::KFI_RECV;
        /// A send.
        const SEND = abi::KFI_SEND;
        /// A peer read this side's memory.
        const REMOTE_READ = abi::KFI_REMOTE_READ;
        /// A peer wrote to this side's memory.
        const REMOTE_WRITE = abi::KFI_REMOTE_WRITE;
        /// The module has released a multi-receive buffer: it places nothing
        /// more there.
        const MULTI_RECV = abi::KFI_MULTI_RECV;
        /// `data` holds the peer's remote CQ data.
        const REMOTE_CQ_DATA = abi::KFI_REMOTE_CQ_DATA;
        /// More of the same message follows.
        const MORE = abi::KFI_MORE;
        /// The answer to a claim.
        const CLAIM = abi::KFI_CLAIM;
        /// Bits that this crate does not know.
        const _ = !0;
    }

    /// Allowed uses of a memory region.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Access: u64 {
        /// Source of sends.
        const SEND = abi::KFI_SEND;
        /// Target of receives.
        const RECV = abi::KFI_RECV;
        /// Target of reads from peers.
        const READ = abi::KFI_READ;
        /// Source of writes to peers.
        const WRITE = abi::KFI_WRITE;
        /// Peers may read it.
        const REMOTE_READ = abi::KFI_REMOTE_READ;
        /// Peers may write it.
        const REMOTE_WRITE = abi::KFI_REMOTE_WRITE;
        /// Bits that this crate does not know.
        const _ = !0;
    }

    /// How an endpoint uses a CQ.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct CqBind: u64 {
        /// Completions of transmits: sends, reads, writes.
        const TRANSMIT = abi::KFI_TRANSMIT;
        /// Completions of receives.
        const RECV = abi::KFI_RECV;
        /// Successes are silent unless the operation has
        /// [`OpFlags::COMPLETION`].
        const SELECTIVE = abi::KFI_SELECTIVE_COMPLETION;
        /// Bits that this crate does not know.
        const _ = !0;
    }

    /// The operations that a counter counts.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct CntrBind: u64 {
        /// Sends, plain and tagged.
        const SEND = abi::KFI_SEND;
        /// Receives, plain and tagged.
        const RECV = abi::KFI_RECV;
        /// RMA reads.
        const READ = abi::KFI_READ;
        /// RMA writes.
        const WRITE = abi::KFI_WRITE;
        /// Reads that a peer made here.
        const REMOTE_READ = abi::KFI_REMOTE_READ;
        /// Writes that a peer made here.
        const REMOTE_WRITE = abi::KFI_REMOTE_WRITE;
        /// Bits that this crate does not know.
        const _ = !0;
    }

    /// The operations that a completion counter counts.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct CompCntrOps: u32 {
        /// Sends, plain and tagged.
        const SEND = abi::KFABRIC_COMP_CNTR_OP_SEND;
        /// Receives, plain and tagged, and CQ data of a peer's writes.
        const RECV = abi::KFABRIC_COMP_CNTR_OP_RECV;
        /// RMA reads.
        const RDMA_READ = abi::KFABRIC_COMP_CNTR_OP_RDMA_READ;
        /// Reads that a peer made here.
        const REMOTE_RDMA_READ = abi::KFABRIC_COMP_CNTR_OP_REMOTE_RDMA_READ;
        /// RMA writes.
        const RDMA_WRITE = abi::KFABRIC_COMP_CNTR_OP_RDMA_WRITE;
        /// Writes that a peer made here.
        const REMOTE_RDMA_WRITE = abi::KFABRIC_COMP_CNTR_OP_REMOTE_RDMA_WRITE;
        /// Bits that this crate does not know.
        const _ = !0;
    }

    /// Naming and addressing of the regions of a domain.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct MrMode: u32 {
        /// Local buffers must be registered.
        const LOCAL = abi::KFI_MR_LOCAL;
        /// Peers use virtual addresses; without it, offsets.
        const VIRT_ADDR = abi::KFI_MR_VIRT_ADDR;
        /// The module chooses the keys; without it, the program.
        const PROV_KEY = abi::KFI_MR_PROV_KEY;
        /// Counters of a region must be bound before use.
        const RMA_EVENT = abi::KFI_MR_RMA_EVENT;
        /// Bits that this crate does not know.
        const _ = !0;
    }

    /// Pairs that stay in order towards one peer: `XAY` is "X after Y", with R
    /// for read, W for write, S for send.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct MsgOrder: u64 {
        /// Read after read.
        const RAR = abi::KFI_ORDER_RAR;
        /// Read after write.
        const RAW = abi::KFI_ORDER_RAW;
        /// Read after send.
        const RAS = abi::KFI_ORDER_RAS;
        /// Write after read.
        const WAR = abi::KFI_ORDER_WAR;
        /// Write after write.
        const WAW = abi::KFI_ORDER_WAW;
        /// Write after send.
        const WAS = abi::KFI_ORDER_WAS;
        /// Send after read.
        const SAR = abi::KFI_ORDER_SAR;
        /// Send after write.
        const SAW = abi::KFI_ORDER_SAW;
        /// Send after send.
        const SAS = abi::KFI_ORDER_SAS;
        /// Completions report data in order.
        const DATA = abi::KFI_ORDER_DATA;
        /// Bits that this crate does not know.
        const _ = !0;
    }
}
