// SPDX-License-Identifier: GPL-2.0

//! Compares the numbers of `<uapi/kfabric.h>` with those of the module at compile time.
//!
//! The header is the source. `kfi_core` repeats its flags, enumerators, error numbers and limits,
//! because cargo builds that crate without the header; this file compares each pair. A number that
//! the module uses from the header directly is repeated here as a literal: programs are compiled
//! with it, so it never changes. If only the header changes a value, the module does not compile.
//!
//! A new name in the header does not compile either, until a table here contains it:
//! `shim/lists.awk` makes the lists of names from the header. [`calls`](super::calls) is the table
//! for commands.
//!
//! `scripts/check-header` compiles only this file and `calls.rs`, without the kernel, so they may
//! use only the bindings and `kfi_core`.

use super::calls::calls;
use crate::shim::bindings;
use kfi_core::{
    addr,
    auth_key::AuthKey,
    enums,
    errno::Errno,
    flags,
    flow,
    limits,
    op,
    wait, //
};

macro_rules! compare {
    (@one $name:ident $value:expr) => {
        const _: () = assert!(
            bindings::$name as u64 == $value as u64,
            concat!(
                "include/uapi/kfabric.h: ",
                stringify!($name),
                " is not ",
                stringify!($value)
            )
        );
    };
    (
        flags { $($flag:ident)* }
        errors { $($error:ident)* }
        enums { $($class:ident { $($enumerator:ident = $variant:ident,)* })* }
        values { $($name:ident = $value:expr;)* }
        texts { $($text:ident = $is:literal;)* }
    ) => {
        $(compare!(@one $flag flags::$flag);)*
        $(compare!(@one $error Errno::$error.number());)*
        $($(compare!(@one $enumerator enums::$class::$variant);)*)*
        $(compare!(@one $name $value);)*
        $(const _: () = assert!(
            same(bindings::$text, $is),
            concat!("include/uapi/kfabric.h: ", stringify!($text), " differs")
        );)*

        /// The names that are compared.
        mod compared {
            $(pub(super) const $flag: () = ();)*
            $(pub(super) const $error: () = ();)*
            $($(pub(super) const $enumerator: () = ();)*)*
            $(pub(super) const $name: () = ();)*
            $(pub(super) const $text: () = ();)*
        }
    };
}

/// Whether two texts are equal.
const fn same(mut a: &[u8], mut b: &[u8]) -> bool {
    while let ([x, rest_a @ ..], [y, rest_b @ ..]) = (a, b) {
        if *x != *y {
            return false;
        }
        (a, b) = (rest_a, rest_b);
    }
    a.is_empty() && b.is_empty()
}

compare! {
    // The names are the same in kfi_core::flags.
    flags {
        KFI_MSG KFI_RMA KFI_TAGGED KFI_ATOMIC KFI_MULTICAST KFI_TAGGED_RMA KFI_READ
        KFI_WRITE KFI_RECV KFI_SEND KFI_TRANSMIT KFI_REMOTE_READ KFI_REMOTE_WRITE
        KFI_MULTI_RECV KFI_REMOTE_CQ_DATA KFI_MORE KFI_PEEK KFI_TRIGGER KFI_FENCE
        KFI_COMPLETION KFI_EVENT KFI_INJECT KFI_INJECT_COMPLETE KFI_TRANSMIT_COMPLETE
        KFI_DELIVERY_COMPLETE KFI_AFFINITY KFI_COMMIT_COMPLETE KFI_SOURCE_ERR KFI_LOCAL_COMM
        KFI_REMOTE_COMM KFI_RMA_EVENT KFI_SOURCE KFI_NAMED_RX_CTX KFI_DISCARD KFI_SYNC_ERR
        KFI_CLAIM KFI_DIRECTED_RECV KFI_REG_MR KFI_SELECTIVE_COMPLETION KFI_ADDR_UNSPEC
        KFI_ADDR_NOTAVAIL KFI_KEY_NOTAVAIL KFI_MR_LOCAL KFI_MR_VIRT_ADDR KFI_MR_PROV_KEY
        KFI_MR_RMA_EVENT KFI_ORDER_NONE KFI_ORDER_RAR KFI_ORDER_RAW KFI_ORDER_RAS
        KFI_ORDER_WAR KFI_ORDER_WAW KFI_ORDER_WAS KFI_ORDER_SAR KFI_ORDER_SAW KFI_ORDER_SAS
        KFI_ORDER_STRICT KFI_ORDER_DATA
        KFABRIC_COMP_CNTR_INIT_WITH_EXTERNAL_MEM KFABRIC_COMP_CNTR_OP_SEND
        KFABRIC_COMP_CNTR_OP_RECV KFABRIC_COMP_CNTR_OP_RDMA_READ
        KFABRIC_COMP_CNTR_OP_REMOTE_RDMA_READ KFABRIC_COMP_CNTR_OP_RDMA_WRITE
        KFABRIC_COMP_CNTR_OP_REMOTE_RDMA_WRITE
    }
    // The names are the same in kfi_core::errno.
    errors {
        KFI_EOTHER KFI_ETOOSMALL KFI_EOPBADSTATE KFI_EAVAIL KFI_EBADFLAGS KFI_ENOEQ
        KFI_EDOMAIN KFI_ENOCQ KFI_ECRC KFI_ETRUNC KFI_ENOKEY KFI_ENOAV KFI_EOVERRUN
    }
    // Each enumerator is that of kfi_core::enums.
    enums {
        EpType { KFI_EP_UNSPEC = Unspec, KFI_EP_MSG = Msg, KFI_EP_DGRAM = Dgram, KFI_EP_RDM = Rdm, }
        AvType { KFI_AV_UNSPEC = Unspec, KFI_AV_MAP = Map, KFI_AV_TABLE = Table, }
        CntrEvents { KFI_CNTR_EVENTS_COMP = Comp, }
        WaitObj {
            KFI_WAIT_NONE = None, KFI_WAIT_UNSPEC = Unspec, KFI_WAIT_SET = Set,
            KFI_WAIT_QUEUE = Queue,
        }
        CqFormat {
            KFI_CQ_FORMAT_UNSPEC = Unspec, KFI_CQ_FORMAT_CONTEXT = Context, KFI_CQ_FORMAT_MSG = Msg,
            KFI_CQ_FORMAT_DATA = Data, KFI_CQ_FORMAT_TAGGED = Tagged,
        }
        CqWaitCond { KFI_CQ_COND_NONE = None, KFI_CQ_COND_THRESHOLD = Threshold, }
        Threading { KFI_THREAD_UNSPEC = Unspec, KFI_THREAD_SAFE = Safe, }
        Progress {
            KFI_PROGRESS_UNSPEC = Unspec, KFI_PROGRESS_AUTO = Auto, KFI_PROGRESS_MANUAL = Manual,
        }
        ResourceMgmt {
            KFI_RM_UNSPEC = Unspec, KFI_RM_DISABLED = Disabled, KFI_RM_ENABLED = Enabled,
        }
        AddrFormat {
            KFI_FORMAT_UNSPEC = Unspec, KFI_SOCKADDR = Sockaddr, KFI_SOCKADDR_IN = SockaddrIn,
            KFI_SOCKADDR_IN6 = SockaddrIn6,
        }
        Protocol {
            KFI_PROTO_UNSPEC = Unspec, KFI_PROTO_RDMA_CM_IB_RC = RdmaCmIbRc, KFI_PROTO_IB_UD = IbUd,
            KFI_PROTO_IB_RDM = IbRdm,
        }
        Class {
            KFI_CLASS_UNSPEC = Unspec, KFI_CLASS_FABRIC = Fabric, KFI_CLASS_DOMAIN = Domain,
            KFI_CLASS_EP = Ep, KFI_CLASS_PEP = Pep, KFI_CLASS_AV = Av, KFI_CLASS_MR = Mr,
            KFI_CLASS_EQ = Eq, KFI_CLASS_CQ = Cq, KFI_CLASS_CNTR = Cntr, KFI_CLASS_WAIT = Wait,
            KFI_CLASS_POLL = Poll, KFABRIC_CLASS_COMP_CNTR = CompCntr,
            KFABRIC_CLASS_COUNTERS = Counters, KFABRIC_CLASS_FLOW = Flow,
        }
        CompCntrType { KFABRIC_COMP_CNTR_TYPE_WRS = Wrs, KFABRIC_COMP_CNTR_TYPE_BYTES = Bytes, }
        CompCntrEntry { KFABRIC_COMP_CNTR_ENTRY_COMP = Comp, KFABRIC_COMP_CNTR_ENTRY_ERR = Err, }
        CompCntrModifyOp { KFABRIC_COMP_CNTR_MODIFY_SET = Set, KFABRIC_COMP_CNTR_MODIFY_INC = Inc, }
        MemoryLocationType {
            KFABRIC_MEMORY_LOCATION_VA = Va, KFABRIC_MEMORY_LOCATION_DMABUF = DmaBuf,
        }
        EqEvent {
            KFI_NOTIFY = Notify, KFI_CONNREQ = ConnReq, KFI_CONNECTED = Connected,
            KFI_SHUTDOWN = Shutdown, KFI_MR_COMPLETE = MrComplete, KFI_AV_COMPLETE = AvComplete,
            KFI_JOIN_COMPLETE = JoinComplete,
        }
        TriggerEvent { KFI_TRIGGER_THRESHOLD = Threshold, }
        EpOpt { KFI_OPT_MIN_MULTI_RECV = MinMultiRecv, KFI_OPT_CM_DATA_SIZE = CmDataSize, }
        Datatype {
            KFI_INT8 = Int8, KFI_UINT8 = Uint8, KFI_INT16 = Int16, KFI_UINT16 = Uint16,
            KFI_INT32 = Int32, KFI_UINT32 = Uint32, KFI_INT64 = Int64, KFI_UINT64 = Uint64,
            KFI_FLOAT = Float, KFI_DOUBLE = Double, KFI_FLOAT_COMPLEX = FloatComplex,
            KFI_DOUBLE_COMPLEX = DoubleComplex, KFI_LONG_DOUBLE = LongDouble,
            KFI_LONG_DOUBLE_COMPLEX = LongDoubleComplex,
        }
        AtomicOp {
            KFI_MIN = Min, KFI_MAX = Max, KFI_SUM = Sum, KFI_PROD = Prod, KFI_LOR = Lor,
            KFI_LAND = Land, KFI_BOR = Bor, KFI_BAND = Band, KFI_LXOR = Lxor, KFI_BXOR = Bxor,
            KFI_ATOMIC_READ = AtomicRead, KFI_ATOMIC_WRITE = AtomicWrite, KFI_CSWAP = Cswap,
            KFI_CSWAP_NE = CswapNe, KFI_CSWAP_LE = CswapLe, KFI_CSWAP_LT = CswapLt,
            KFI_CSWAP_GE = CswapGe, KFI_CSWAP_GT = CswapGt, KFI_MSWAP = Mswap,
        }
    }
    values {
        // Limits.
        KFABRIC_MAX_HANDLES = limits::MAX_HANDLES; KFABRIC_MAX_MSG_SIZE = limits::MAX_MSG_SIZE;
        KFABRIC_MAX_IOV = limits::MAX_IOV; KFABRIC_INJECT_SIZE = limits::INJECT_SIZE;
        KFABRIC_MAX_ATOMIC_SIZE = limits::MAX_ATOMIC_SIZE;
        KFABRIC_MAX_QUEUE = limits::MAX_QUEUE; KFABRIC_MAX_CQ = limits::MAX_CQ;
        KFABRIC_MAX_EQ = limits::MAX_EQ; KFABRIC_MAX_AV = limits::MAX_AV;
        KFABRIC_MAX_EVENT = limits::MAX_EVENT; KFABRIC_MAX_POST = limits::MAX_POST;
        KFABRIC_MAX_BUFFERED = limits::MAX_BUFFERED; KFABRIC_MAX_COMP_CNTR = limits::MAX_COMP_CNTR;
        KFABRIC_MAX_WAITERS = limits::MAX_WAITERS; KFABRIC_MAX_WORK = limits::MAX_WORK;
        KFABRIC_MAX_EP_CTX = limits::MAX_EP_CTX;
        KFABRIC_MAX_CONNECT_DATA = limits::MAX_CONNECT_DATA;
        KFABRIC_MAX_ACCEPT_DATA = limits::MAX_ACCEPT_DATA;
        KFABRIC_MAX_REJECT_DATA = limits::MAX_REJECT_DATA;
        KFABRIC_MAX_BACKLOG = limits::MAX_BACKLOG; KFABRIC_MAX_FLOWS = limits::MAX_FLOWS;
        KFABRIC_MAX_FLOW_POINTS = limits::MAX_FLOW_POINTS;
        KFABRIC_MAX_COUNTERS = limits::MAX_COUNTERS; KFABRIC_NAME_MAX = limits::NAME_MAX;
        KFABRIC_LINK_NAME_MAX = limits::LINK_NAME_MAX; KFABRIC_STRADDR_MAX = addr::TEXT_MAX;
        KFABRIC_AUTH_KEY_SIZE = AuthKey::LEN;
        KFABRIC_DGRAM_QPN = addr::DGRAM_QPN; KFABRIC_FOREVER = wait::FOREVER;

        KFABRIC_OP_RECV = op::OpType::Recv; KFABRIC_OP_SEND = op::OpType::Send;
        KFABRIC_OP_TRECV = op::OpType::TRecv; KFABRIC_OP_TSEND = op::OpType::TSend;
        KFABRIC_OP_READ = op::OpType::Read; KFABRIC_OP_WRITE = op::OpType::Write;
        KFABRIC_OP_ATOMIC = op::OpType::Atomic; KFABRIC_OP_FETCH_ATOMIC = op::OpType::FetchAtomic;
        KFABRIC_OP_COMPARE_ATOMIC = op::OpType::CompareAtomic;

        // uapi/dispatch.rs and uapi/info.rs use these constants.
        KFABRIC_IOC_TYPE = 0xbb; KFABRIC_ABI_VERSION = 1;

        // uapi/ep.rs converts these to the enumerators of provider/ep/options.rs, which have no
        // numbers.
        KFI_OPT_ENDPOINT = 0; KFABRIC_OPT_QP = 0x4b51; KFABRIC_OPT_QKEY = 0;
        KFABRIC_OPT_PATH_MTU = 1; KFABRIC_OPT_TIMEOUT = 2; KFABRIC_OPT_RETRY_CNT = 3;
        KFABRIC_OPT_RNR_RETRY = 4; KFABRIC_OPT_MIN_RNR_TIMER = 5; KFABRIC_OPT_RD_ATOMIC = 6;
        KFABRIC_OPT_DEST_RD_ATOMIC = 7;

        // uapi/ep.rs converts the states of a QP to these.
        KFABRIC_QP_RESET = 0; KFABRIC_QP_INIT = 1; KFABRIC_QP_RTR = 2; KFABRIC_QP_RTS = 3;
        KFABRIC_QP_SQD = 4; KFABRIC_QP_SQE = 5; KFABRIC_QP_ERR = 6;

        // uapi/fabric.rs uses these constants.
        KFABRIC_LINK_DOWN = 0; KFABRIC_LINK_UP = 1; KFABRIC_LINK_GONE = 2;

        // uapi/cntr.rs uses these constants: each selects a function of a counter.
        KFABRIC_CNTR_ADD = 0; KFABRIC_CNTR_SET = 1; KFABRIC_CNTR_ADDERR = 2;
        KFABRIC_CNTR_SETERR = 3;

        // uapi/flow.rs uses these constants.
        KFABRIC_COUNTER_PACKETS = flow::Description::Packets;
        KFABRIC_COUNTER_BYTES = flow::Description::Bytes; KFABRIC_COUNTERS_PREFER_CACHED = 1;
        KFABRIC_FLOW_DONT_TRAP = 1;
        // uapi/work.rs uses these constants: each selects a function of a counter.
        KFABRIC_OP_CNTR_SET = 9; KFABRIC_OP_CNTR_ADD = 10;

        // uapi/post.rs uses this constant.
        KFABRIC_OP_EXPLICIT = 1; KFABRIC_SHARED_TX = 1; KFABRIC_SHARED_RX = 2;

        // uapi/stat.rs and net/stats.rs use these constants.
        KFABRIC_MAX_FIGURES = 64; KFABRIC_FIGURES_NETNS = 0; KFABRIC_FIGURES_LINK = 1;
        KFABRIC_FIGURES_EP = 2; KFABRIC_FIGURE_RX_PACKETS = 0; KFABRIC_FIGURE_RX_BYTES = 1;
        KFABRIC_FIGURE_TX_PACKETS = 2; KFABRIC_FIGURE_TX_BYTES = 3; KFABRIC_FIGURE_TX_NOT_SENT = 4;
        KFABRIC_FIGURE_DROP_SHORT = 5; KFABRIC_FIGURE_DROP_LENGTH = 6;
        KFABRIC_FIGURE_DROP_VERSION = 7; KFABRIC_FIGURE_DROP_OPCODE = 8;
        KFABRIC_FIGURE_DROP_PKEY = 9; KFABRIC_FIGURE_DROP_PAD = 10;
        KFABRIC_FIGURE_DROP_PAYLOAD = 11; KFABRIC_FIGURE_DROP_SYNDROME = 12;
        KFABRIC_FIGURE_DROP_IP_OPTIONS = 13; KFABRIC_FIGURE_DROP_TOO_LONG = 14;
        KFABRIC_FIGURE_DROP_NO_QP = 15; KFABRIC_FIGURE_DROP_SERVICE = 16;
        KFABRIC_FIGURE_DROP_DESTINATION = 17; KFABRIC_FIGURE_DROP_SOURCE = 18;
        KFABRIC_FIGURE_DROP_STATE = 19; KFABRIC_FIGURE_DROP_INBOX_FULL = 20;
        KFABRIC_FIGURE_DROP_ICRC = 21; KFABRIC_FIGURE_DROP_QKEY = 22;
        KFABRIC_FIGURE_DROP_NO_RECEIVE = 23; KFABRIC_FIGURE_RESENT = 24;
        KFABRIC_FIGURE_RETRIES = 25; KFABRIC_FIGURE_TIMEOUTS = 26; KFABRIC_FIGURE_PROBES = 27;
        KFABRIC_FIGURE_DUPLICATES = 28; KFABRIC_FIGURE_STRAYS = 29;
        KFABRIC_FIGURE_OUT_OF_SEQUENCE = 30; KFABRIC_FIGURE_ACK_TX = 31; KFABRIC_FIGURE_ACK_RX = 32;
        KFABRIC_FIGURE_NAK_SEQUENCE_TX = 33; KFABRIC_FIGURE_NAK_SEQUENCE_RX = 34;
        KFABRIC_FIGURE_NAK_INVALID_TX = 35; KFABRIC_FIGURE_NAK_INVALID_RX = 36;
        KFABRIC_FIGURE_NAK_ACCESS_TX = 37; KFABRIC_FIGURE_NAK_ACCESS_RX = 38;
        KFABRIC_FIGURE_NAK_OPERATION_TX = 39; KFABRIC_FIGURE_NAK_OPERATION_RX = 40;
        KFABRIC_FIGURE_RNR_TX = 41; KFABRIC_FIGURE_RNR_RX = 42; KFABRIC_FIGURE_DROP_CM = 43;
        KFABRIC_FIGURE_CM_DUPLICATES = 44; KFABRIC_FIGURE_CM_RESENT = 45;
        KFABRIC_FIGURE_CM_NO_LISTENER = 46; KFABRIC_FIGURE_CM_NO_ROOM = 47;
        KFABRIC_FIGURE_MR_REFUSED = 48; KFABRIC_FIGURE_DROP_PSN = 49;
        KFABRIC_FIGURE_DROP_BUDGET = 50; KFABRIC_FIGURE_RX_INLINE = 51;
        KFABRIC_FIGURE_CM_UNPROVEN = 52; KFABRIC_FIGURE_CM_KEY = 53;
        KFABRIC_FIGURE_CM_DELAYED = 54;
    }
    texts {
        // uapi/file.rs registers this name without the directory.
        KFABRIC_DEVICE = b"/dev/kfabric\0";
    }
}

macro_rules! all_are_compared {
    ($($name:ident)*) => {
        const _: () = {
            $(let () = compared::$name;)*
        };
    };
}
bindings::every_constant!(all_are_compared);

/// The commands of the header, each with its number and the structure of its argument.
macro_rules! commands {
    ($($command:ident $number:literal $arg:ident;)*) => {
        mod number {
            $(pub(super) const $command: u32 = $number;)*
        }

        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        mod argument {
            $(pub(super) type $command = crate::shim::bindings::$arg;)*
        }

        const _: () = {
            $(let () = handled::$command;)*
        };
    };
}
bindings::every_command!(commands);

/// Compares the table of calls with the commands of the header, and the sizes with the structures.
macro_rules! compare_calls {
    ($(
        $number:literal $command:ident ($arg:ident: $v1:literal) $way:ident $file:ident::$function:ident;
    )*) => {
        $(
            const _: () = assert!(
                number::$command == $number,
                concat!("include/uapi/kfabric.h: ", stringify!($command), " is not ", $number)
            );
            const _: fn(argument::$command) -> bindings::$arg = |arg| arg;
            const _: () = assert!(
                core::mem::offset_of!(bindings::$arg, size) == 0
                    && $v1 >= 8
                    && $v1 % 8 == 0
                    && $v1 <= size_of::<bindings::$arg>(),
                concat!("include/uapi/kfabric.h: ", stringify!($arg), " is shorter than its first version")
            );
        )*

        mod handled {
            $(pub(super) const $command: () = ();)*
        }
    };
}
calls!(compare_calls);
