// SPDX-License-Identifier: GPL-2.0
//! The table of all calls: the kind of each field of each argument, and a call that succeeds.
//!
//! [`abi_shape`](crate::abi_shape) makes from it the tests of the rules that hold for every call,
//! and compares it with the header: a call, a structure or a field that is not in the table is a
//! failed test. A [`World`] has the objects that the calls need, and is made again for each test
//! of a rule.

#![allow(unsafe_code, reason = "structures from bytes, and a descriptor")]

use crate::{
    abi_world::{ADDRS, Class, EVENT, FI_ADDRS, HINTS, INFOS, IOV, OPS, OUT, POSTED, WORKS, World},
    host::LINK,
    raw::{Make, bytes_of, ipv4, text},
};
use kfi::{
    Errno,
    abi::{self, Call},
};
use std::os::fd::{FromRawFd, OwnedFd};

/// The interface that link calls are made with, and the link.
pub(crate) const NETDEV: &str = "shape0";
pub(crate) const SHAPE_LINK: &str = "shapelink";

/// The kind of a field.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// 0.
    Reserved,
    /// Flags, with the known ones.
    Flags(u64),
    /// An object of one of these classes.
    Handle(&'static [Class]),
    /// An object of one of these classes; with the results of 0 and of an object of another
    /// class.
    HandleOr(&'static [Class], Errno, Errno),
    /// Address of memory that the call reads.
    In,
    /// Address of memory that the call reads, or 0.
    InOrNull,
    /// Address of memory that the call writes.
    Out,
    /// Address of memory that the call writes, or 0.
    OutOrNull,
    /// A socket address.
    Addr,
    /// A value, whose rules are the call's own.
    Value,
    /// A result of the call, which it ignores on input.
    Reported,
}

/// A field of an argument.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) offset: usize,
    pub(crate) len: usize,
    pub(crate) kind: Kind,
}

type Undo = Box<dyn Fn(&World, &[u8])>;
type Valid = Box<dyn Fn(&World) -> Vec<u8>>;

/// A way to make a call.
pub(crate) struct Row {
    /// `KFABRIC_IOC_*`.
    pub(crate) name: &'static str,
    pub(crate) request: u32,
    /// The structure.
    pub(crate) arg: &'static str,
    /// Bytes of its first version, which never changes.
    pub(crate) v1: usize,
    /// Bytes of it now.
    pub(crate) size: usize,
    /// All of them but `size`, in order.
    pub(crate) fields: Vec<Field>,
    /// Whether the library takes it for a structure without pointers.
    pub(crate) plain: bool,
    /// An argument that succeeds.
    pub(crate) valid: Valid,
    /// Undoes the call that succeeded.
    pub(crate) undo: Undo,
}

impl Row {
    /// Whether the call writes to its argument.
    pub(crate) fn tells(&self) -> bool {
        // Fields for input and output, and calls that get or set.
        const BOTH_WAYS: [&str; 6] = [
            "KFABRIC_IOC_GETINFO",
            "KFABRIC_IOC_CQ_READ",
            "KFABRIC_IOC_POLL",
            "KFABRIC_IOC_OPSFLAG",
            "KFABRIC_IOC_EP_NAME",
            "KFABRIC_IOC_EP_OPT",
        ];
        let reported = |field: &Field| matches!(field.kind, Kind::Reported);
        self.fields.iter().any(reported) || BOTH_WAYS.contains(&self.name)
    }
}

/// Closes an object.
fn close<M: Make>(world: &World, arg: &M) {
    world.file.close_all(&[arg.handle()]);
}

/// The call needs no undoing.
fn keep<C: Call>(_: &World, _: &C) {}

fn from_bytes<T: Copy>(bytes: &[u8]) -> T {
    assert_eq!(bytes.len(), size_of::<T>());
    // SAFETY: as many bytes, and any are a structure of integers.
    unsafe { bytes.as_ptr().cast::<T>().read_unaligned() }
}

macro_rules! row {
    (
        $request:ident $arg:ident $v1:literal
        { $($field:ident: $kind:expr),* $(,)? }
        $valid:expr, $undo:expr
    ) => {{
        let blank = abi::$arg::default();
        let valid: fn(&World) -> abi::$arg = $valid;
        let undo: fn(&World, &abi::$arg) = $undo;
        Row {
            name: stringify!($request),
            request: abi::$request,
            arg: stringify!($arg),
            v1: $v1,
            plain: <abi::$arg as Call>::PLAIN,
            size: size_of::<abi::$arg>(),
            fields: vec![$(Field {
                name: stringify!($field).trim_end_matches('_'),
                offset: std::mem::offset_of!(abi::$arg, $field),
                len: size_of_val(&blank.$field),
                kind: $kind,
            }),*],
            valid: Box::new(move |world| bytes_of(&valid(world))),
            undo: Box::new(move |world, bytes| undo(world, &from_bytes(bytes))),
        }
    }};
}

use Kind::{
    Addr, Flags, Handle, HandleOr, In, InOrNull, Out, OutOrNull, Reported, Reserved, Value,
};

/// Default flags of transmits.
const TX_FLAGS: u64 = abi::KFI_COMPLETION
    | abi::KFI_INJECT
    | abi::KFI_INJECT_COMPLETE
    | abi::KFI_TRANSMIT_COMPLETE
    | abi::KFI_DELIVERY_COMPLETE
    | abi::KFI_TRIGGER;

/// Capabilities that have a name, whether endpoints can have them or not.
const CAPS: u64 = abi::KFI_MSG
    | abi::KFI_RMA
    | abi::KFI_TAGGED
    | abi::KFI_ATOMIC
    | abi::KFI_MULTICAST
    | abi::KFI_TAGGED_RMA
    | abi::KFI_READ
    | abi::KFI_WRITE
    | abi::KFI_RECV
    | abi::KFI_SEND
    | abi::KFI_REMOTE_READ
    | abi::KFI_REMOTE_WRITE
    | abi::KFI_MULTI_RECV
    | abi::KFI_TRIGGER
    | abi::KFI_FENCE
    | abi::KFI_SOURCE_ERR
    | abi::KFI_LOCAL_COMM
    | abi::KFI_REMOTE_COMM
    | abi::KFI_RMA_EVENT
    | abi::KFI_SOURCE
    | abi::KFI_NAMED_RX_CTX
    | abi::KFI_DIRECTED_RECV;

/// A handle of one of these classes; others give `EINVAL`.
const WAIT_SET: Kind = HandleOr(&[Class::Wait], Errno::EINVAL, Errno::EBADF);

/// Every call, in the header's order.
pub(crate) fn table() -> Vec<Row> {
    let mut table = device_calls();
    table.extend(common_calls());
    table.extend(fabric_calls());
    table.extend(av_calls());
    table.extend(queue_calls());
    table.extend(wait_calls());
    table.extend(ep_calls());
    table.extend(flow_calls());
    table.extend(comp_cntr_calls());
    table
}

fn device_calls() -> Vec<Row> {
    vec![
        row!(KFABRIC_IOC_QUERY kfabric_query 72 {
            abi_version: Reported, module_version: Reported, page_size: Reported, caps: Reported,
            max_msg_size: Reported, inject_size: Reported, max_iov: Reported, max_handles: Reported,
            max_queue: Reported, max_cq: Reported, max_eq: Reported, max_av: Reported, max_post: Reported,
            max_buffered: Reported, max_flows: Reported, max_flow_points: Reported,
            max_counters: Reported, max_comp_cntr: Reported, max_work: Reported,
            reserved: Reported,
        } |_| Call::sized(), keep),
        row!(KFABRIC_IOC_NOP kfabric_nop 8 {
            reserved: Reserved,
        } |_| Call::sized(), keep),
        row!(KFABRIC_IOC_LINK_ADD kfabric_link_add 40 {
            flags: Flags(0), name: Value, netdev: Value,
        } |world| {
            let _ = world.file.call(link_del());
            abi::kfabric_link_add {
                name: text(SHAPE_LINK),
                netdev: text(NETDEV),
                ..Call::sized()
            }
        }, |world, _| {
            world.file.call(link_del()).expect("link_del");
        }),
        row!(KFABRIC_IOC_LINK_DEL kfabric_link_del 24 {
            flags: Flags(0), name: Value,
        } |world| {
            let _ = world.file.call(abi::kfabric_link_add {
                name: text(SHAPE_LINK),
                netdev: text(NETDEV),
                ..Call::sized()
            });
            link_del()
        }, keep),
        row!(KFABRIC_IOC_LINK_GET kfabric_link_get 152 {
            after: Value, name: Reported, netdev: Reported, state: Reported, mtu: Reported, ipv4: Reported,
            ipv6: Reported, domains: Reported, endpoints: Reported, tx_ops: Reported, tx_bytes: Reported,
            rx_ops: Reported, rx_bytes: Reported,
        } |_| Call::sized(), keep),
        row!(KFABRIC_IOC_GETINFO kfabric_getinfo 168 {
            version: Value, flags: Flags(abi::KFI_SOURCE), hints: InOrNull, infos: Out,
            count: Value, reserved: Reserved, node: Value, service: Value,
        } |world| abi::kfabric_getinfo {
            hints: world.at(HINTS),
            infos: world.at(INFOS),
            count: 1,
            ..Call::sized()
        }, keep),
        row!(KFABRIC_IOC_STAT kfabric_stat 136 {
            object_class: Value, after: Value, pid: Reported, handle: Reported, link: Reported, addr: Reported,
            v: Reported,
        } |_| abi::kfabric_stat {
            object_class: abi::KFI_CLASS_EP,
            ..Call::sized()
        }, keep),
        row!(KFABRIC_IOC_FIGURES kfabric_figures 536 {
            of: Value, id: Value, count: Reported, reserved: Reserved, values: Reported,
        } |_| abi::kfabric_figures {
            of: abi::KFABRIC_FIGURES_NETNS,
            ..Call::sized()
        }, keep),
    ]
}

fn link_del() -> abi::kfabric_link_del {
    abi::kfabric_link_del {
        name: text(SHAPE_LINK),
        ..Call::sized()
    }
}

fn common_calls() -> Vec<Row> {
    vec![
        row!(KFABRIC_IOC_CLOSE kfabric_close 8 {
            handle: Handle(&Class::ALL),
        } |world| abi::kfabric_close {
            handle: world.spare,
            ..Call::sized()
        }, keep),
        row!(KFABRIC_IOC_GETWAIT kfabric_getwait 16 {
            handle: Handle(&[Class::Cntr, Class::Cq, Class::Eq, Class::Wait]),
            flags: Flags(0), fd: Reported,
        } |world| abi::kfabric_getwait {
            handle: world.cntr,
            ..Call::sized()
        }, |_, arg| {
            // SAFETY: the call made it for us.
            drop(unsafe { OwnedFd::from_raw_fd(arg.fd) });
        }),
        row!(KFABRIC_IOC_OPSFLAG kfabric_opsflag 24 {
            handle: Handle(&[Class::Ep, Class::Cntr]), set: Value, reserved: Reserved,
            flags: Flags(TX_FLAGS | abi::KFI_TRANSMIT),
        } |world| abi::kfabric_opsflag {
            handle: world.ep,
            flags: abi::KFI_TRANSMIT,
            ..Call::sized()
        }, keep),
        row!(KFABRIC_IOC_BIND kfabric_bind 24 {
            handle: HandleOr(&[Class::Ep], Errno::EBADF, Errno::EINVAL),
            to: HandleOr(&[Class::Cntr], Errno::EBADF, Errno::EINVAL),
            reserved: Reserved,
            flags: Flags(abi::KFI_SEND | abi::KFI_RECV | abi::KFI_READ | abi::KFI_WRITE
                | abi::KFI_REMOTE_READ | abi::KFI_REMOTE_WRITE),
        } |world| abi::kfabric_bind {
            handle: world.ep_new,
            to: world.cntr,
            flags: abi::KFI_SEND,
            ..Call::sized()
        }, keep),
    ]
}

fn fabric_calls() -> Vec<Row> {
    vec![
        row!(KFABRIC_IOC_FABRIC_OPEN kfabric_fabric_open 16 {
            handle: Reported, context: Value,
        } |_| Call::sized(), close),
        row!(KFABRIC_IOC_DOMAIN_OPEN kfabric_domain_open 40 {
            fabric: Handle(&[Class::Fabric]), link: Value,
            mr_mode: Flags((abi::KFI_MR_VIRT_ADDR | abi::KFI_MR_PROV_KEY) as u64),
            handle: Reported, context: Value,
        } |world| abi::kfabric_domain_open {
            fabric: world.fabric,
            link: text(LINK),
            ..Call::sized()
        }, close),
        row!(KFABRIC_IOC_QUERY_ATOMIC kfabric_query_atomic 48 {
            domain: Handle(&[Class::Domain]), ep_type: Value, opcode: Value, datatype: Value,
            op: Value, flags: Flags(0), count: Reported, elem_size: Reported,
        } |world| abi::kfabric_query_atomic {
            domain: world.domain,
            opcode: abi::KFABRIC_OP_ATOMIC,
            ..Call::sized()
        }, keep),
        row!(KFABRIC_IOC_EQ_OPEN kfabric_eq_open 40 {
            fabric: Handle(&[Class::Fabric]), entries: Value, wait_obj: Value,
            wait_set: WAIT_SET, handle: Reported,
            flags: Flags(abi::KFI_WRITE | abi::KFI_AFFINITY), context: Value,
        } |world| abi::kfabric_eq_open {
            fabric: world.fabric,
            wait_obj: abi::KFI_WAIT_SET,
            wait_set: world.wait,
            ..Call::sized()
        }, close),
        row!(KFABRIC_IOC_EQ_READ kfabric_eq_read 40 {
            eq: Handle(&[Class::Eq]), deadline: Value, flags: Flags(abi::KFI_PEEK), buf: Out,
            len: Value, event: Reported,
        } |world| abi::kfabric_eq_read {
            eq: world.eq,
            buf: world.at(OUT),
            len: 24,
            ..Call::sized()
        }, keep),
        row!(KFABRIC_IOC_EQ_READERR kfabric_eq_readerr 48 {
            eq: Handle(&[Class::Eq]), flags: Flags(abi::KFI_PEEK), handle: Reported, err: Reported,
            prov_errno: Reported, reserved: Reserved, context: Reported, data: Reported,
            err_data: Value, err_data_size: Value, reserved2: Reserved,
        } |world| abi::kfabric_eq_readerr {
            eq: world.eq_err,
            ..Call::sized()
        }, keep),
        row!(KFABRIC_IOC_EQ_WRITE kfabric_eq_write 32 {
            eq: Handle(&[Class::Eq]), flags: Flags(0), buf: In, len: Value, event: Value,
        } |world| abi::kfabric_eq_write {
            eq: world.eq,
            buf: world.at(EVENT),
            len: 24,
            event: 5,
            ..Call::sized()
        }, keep),
    ]
}

fn av_calls() -> Vec<Row> {
    vec![
        row!(KFABRIC_IOC_AV_OPEN kfabric_av_open 40 {
            domain: Handle(&[Class::Domain]), type_: Value, count: Value,
            flags: Flags(abi::KFI_EVENT), handle: Reported, reserved: Reserved, context: Value,
        } |world| abi::kfabric_av_open {
            domain: world.domain,
            ..Call::sized()
        }, close),
        row!(KFABRIC_IOC_AV_INSERT kfabric_av_insert 56 {
            av: Handle(&[Class::Av]), flags: Flags(abi::KFI_SYNC_ERR | abi::KFI_MORE),
            addrs: In, fi_addrs: OutOrNull, errors: Out, context: Value, count: Value,
            inserted: Reported,
        } |world| abi::kfabric_av_insert {
            av: world.av,
            flags: abi::KFI_SYNC_ERR,
            addrs: world.at(ADDRS),
            fi_addrs: world.at(OUT),
            errors: world.at(OUT + 64),
            count: 1,
            ..Call::sized()
        }, |world, _| assert_eq!(world.memory.read(OUT + 64, 4), [0; 4])),
        row!(KFABRIC_IOC_AV_INSERTSVC kfabric_av_insertsvc 160 {
            av: Handle(&[Class::Av]), flags: Flags(abi::KFI_SYNC_ERR | abi::KFI_MORE),
            context: Value, fi_addr: Reported, node: Value, service: Value,
        } |world| abi::kfabric_av_insertsvc {
            av: world.av,
            node: text("127.0.0.1"),
            service: text("9"),
            ..Call::sized()
        }, keep),
        row!(KFABRIC_IOC_AV_REMOVE kfabric_av_remove 32 {
            av: Handle(&[Class::Av]), flags: Flags(0), fi_addrs: In, count: Value,
            reserved: Reserved,
        } |world| abi::kfabric_av_remove {
            av: world.av,
            fi_addrs: world.at(FI_ADDRS),
            count: 1,
            ..Call::sized()
        }, keep),
        row!(KFABRIC_IOC_AV_LOOKUP kfabric_av_lookup 48 {
            av: Handle(&[Class::Av]), fi_addr: Value, addr: Reported,
        } |world| abi::kfabric_av_lookup {
            av: world.av,
            ..Call::sized()
        }, keep),
        row!(KFABRIC_IOC_AV_STRADDR kfabric_av_straddr 120 {
            av: Handle(&[Class::Av]), addr: Addr, text: Reported,
        } |world| abi::kfabric_av_straddr {
            av: world.av,
            addr: ipv4([10, 0, 0, 1], 7471),
            ..Call::sized()
        }, keep),
        row!(KFABRIC_IOC_MR_REG kfabric_mr_reg 80 {
            domain: Handle(&[Class::Domain]), iov: In, iov_count: Value, handle: Reported,
            access: Flags(crate::raw::ALL_ACCESS), offset: Reserved, requested_key: Value,
            flags: Flags(abi::KFI_RMA_EVENT), context: Value, key: Reported, iova: Reported,
        } |world| abi::kfabric_mr_reg {
            domain: world.domain,
            iov: world.at(IOV),
            iov_count: 1,
            access: abi::KFI_SEND,
            requested_key: 2,
            ..Call::sized()
        }, close),
    ]
}

fn queue_calls() -> Vec<Row> {
    vec![
        row!(KFABRIC_IOC_CQ_OPEN kfabric_cq_open 72 {
            domain: Handle(&[Class::Domain]), entries: Value, format: Value, wait_obj: Value,
            wait_cond: Value, wait_set: WAIT_SET, signaling_vector: Value,
            flags: Flags(abi::KFI_AFFINITY), context: Value, handle: Reported, reserved: Reserved,
            ring_offset: Reported, ring_size: Reported,
        } |world| abi::kfabric_cq_open {
            domain: world.domain,
            wait_obj: abi::KFI_WAIT_SET,
            wait_set: world.wait,
            ..Call::sized()
        }, close),
        row!(KFABRIC_IOC_CQ_READ kfabric_cq_read 40 {
            cq: Handle(&[Class::Cq]), buf: Out, src_addrs: OutOrNull, count: Value, cond: Value,
            deadline: Value, began: Value,
        } |world| abi::kfabric_cq_read {
            cq: world.cq,
            buf: world.at(OUT),
            src_addrs: world.at(OUT + 64),
            count: 1,
            ..Call::sized()
        }, |_, arg| assert_eq!(arg.count, 1)),
        row!(KFABRIC_IOC_CQ_READERR kfabric_cq_readerr 88 {
            cq: Handle(&[Class::Cq]), flags: Flags(0), op_context: Reported, comp_flags: Reported,
            len: Reported, buf: Reported, data: Reported, tag: Reported, olen: Reported, src_addr: Reported, err: Reported,
            prov_errno: Reported,
        } |world| abi::kfabric_cq_readerr {
            cq: world.cq_err,
            ..Call::sized()
        }, |_, arg| assert_eq!(arg.op_context, 78)),
        row!(KFABRIC_IOC_CQ_SIGNAL kfabric_cq_signal 8 {
            cq: Handle(&[Class::Cq]),
        } |world| abi::kfabric_cq_signal {
            cq: world.cq,
            ..Call::sized()
        }, keep),
        row!(KFABRIC_IOC_CQ_STRERROR kfabric_cq_strerror 80 {
            cq: Handle(&[Class::Cq]), prov_errno: Value, reserved: Reserved, text: Reported,
        } |world| abi::kfabric_cq_strerror {
            cq: world.cq,
            ..Call::sized()
        }, keep),
        row!(KFABRIC_IOC_CNTR_OPEN kfabric_cntr_open 56 {
            domain: Handle(&[Class::Domain]), events: Value, wait_obj: Value, wait_set: WAIT_SET,
            handle: Reported, flags: Flags(0), max_value: Value, context: Value, page_offset: Reported,
        } |world| abi::kfabric_cntr_open {
            domain: world.domain,
            wait_obj: abi::KFI_WAIT_SET,
            wait_set: world.wait,
            ..Call::sized()
        }, close),
        row!(KFABRIC_IOC_CNTR_READ kfabric_cntr_read 24 {
            cntr: Handle(&[Class::Cntr]), value: Reported, err: Reported,
        } |world| abi::kfabric_cntr_read {
            cntr: world.cntr,
            ..Call::sized()
        }, |_, arg| assert_eq!((arg.value, arg.err), (1, 0))),
        row!(KFABRIC_IOC_CNTR_MODIFY kfabric_cntr_modify 24 {
            cntr: Handle(&[Class::Cntr]), what: Value, reserved: Reserved, value: Value,
        } |world| abi::kfabric_cntr_modify {
            cntr: world.cntr,
            value: 1,
            ..Call::sized()
        }, |world, _| assert_eq!(world.file.cntr_read(world.cntr), Ok((2, 0)))),
        row!(KFABRIC_IOC_CNTR_WAIT kfabric_cntr_wait 40 {
            cntr: Handle(&[Class::Cntr]), threshold: Value, deadline: Value, value: Reported,
            err: Reported, began: Value,
        } |world| abi::kfabric_cntr_wait {
            cntr: world.cntr,
            threshold: 1,
            ..Call::sized()
        }, |_, arg| assert_eq!((arg.value, arg.err), (1, 0))),
    ]
}

fn wait_calls() -> Vec<Row> {
    vec![
        row!(KFABRIC_IOC_WAIT_OPEN kfabric_wait_open 24 {
            fabric: Handle(&[Class::Fabric]), wait_obj: Value, handle: Reported, flags: Flags(0),
        } |world| abi::kfabric_wait_open {
            fabric: world.fabric,
            wait_obj: abi::KFI_WAIT_UNSPEC,
            ..Call::sized()
        }, close),
        row!(KFABRIC_IOC_WAIT kfabric_wait 16 {
            wait_set: Handle(&[Class::Wait]), deadline: Value,
        } |world| abi::kfabric_wait {
            wait_set: world.wait,
            ..Call::sized()
        }, keep),
        row!(KFABRIC_IOC_POLL_OPEN kfabric_poll_open 24 {
            domain: Handle(&[Class::Domain]), flags: Flags(0), handle: Reported, reserved: Reserved,
        } |world| abi::kfabric_poll_open {
            domain: world.domain,
            ..Call::sized()
        }, close),
        row!(KFABRIC_IOC_POLL_CHANGE kfabric_poll_change 24 {
            poll: Handle(&[Class::Poll]),
            handle: HandleOr(&[Class::Cq, Class::Cntr], Errno::EBADF, Errno::EINVAL),
            remove: Value, flags: Flags(0),
        } |world| abi::kfabric_poll_change {
            poll: world.poll,
            handle: world.cq,
            ..Call::sized()
        }, keep),
        row!(KFABRIC_IOC_POLL kfabric_poll 24 {
            poll: Handle(&[Class::Poll]), contexts: Out, count: Value, reserved: Reserved,
        } |world| abi::kfabric_poll {
            poll: world.poll,
            contexts: world.at(OUT),
            count: 4,
            ..Call::sized()
        }, |_, arg| assert_eq!(arg.count, 1, "the counter's change was told before")),
    ]
}

/// Cancels all work, and returns its number.
fn flush(world: &World) -> u64 {
    let flushed = world.file.call(abi::kfabric_flush_work {
        domain: world.domain,
        ..Call::sized()
    });
    flushed.expect("flush_work").flushed
}

fn ep_calls() -> Vec<Row> {
    vec![
        row!(KFABRIC_IOC_EP_OPEN kfabric_ep_open 96 {
            domain: Handle(&[Class::Domain]), type_: Value, handle: Reported, caps: Flags(CAPS),
            tx_op_flags: Flags(TX_FLAGS),
            rx_op_flags: Flags(abi::KFI_COMPLETION | abi::KFI_MULTI_RECV | abi::KFI_TRIGGER),
            tx_size: Value, rx_size: Value, total_buffered_recv: Value, src_addr: Addr,
            context: Value,
        } |world| abi::kfabric_ep_open {
            domain: world.domain,
            type_: abi::KFI_EP_RDM,
            src_addr: ipv4([127, 0, 0, 1], 0),
            ..Call::sized()
        }, close),
        row!(KFABRIC_IOC_EP_ENABLE kfabric_ep_enable 8 {
            ep: Handle(&[Class::Ep]),
        } |world| abi::kfabric_ep_enable {
            ep: world.ep_new,
            ..Call::sized()
        }, keep),
        row!(KFABRIC_IOC_EP_NAME kfabric_ep_name 48 {
            ep: Handle(&[Class::Ep, Class::Pep]), set: Value, reserved: Reserved, addr: Reported,
        } |world| abi::kfabric_ep_name {
            ep: world.ep,
            ..Call::sized()
        }, keep),
        row!(KFABRIC_IOC_EP_NAME kfabric_ep_name 48 {
            ep: Handle(&[Class::Ep, Class::Pep]), set: Value, reserved: Reserved, addr: Addr,
        } |world| abi::kfabric_ep_name {
            ep: world.ep_new,
            set: 1,
            addr: ipv4([127, 0, 0, 1], 0),
            ..Call::sized()
        }, keep),
        row!(KFABRIC_IOC_EP_CANCEL kfabric_ep_cancel 16 {
            ep: Handle(&[Class::Ep]), context: Value,
        } |world| abi::kfabric_ep_cancel {
            ep: world.ep,
            context: POSTED,
            ..Call::sized()
        }, keep),
        row!(KFABRIC_IOC_EP_OPT kfabric_ep_opt 32 {
            ep: Handle(&[Class::Ep]), set: Value, level: Value, name: Value, reserved: Reserved,
            value: Value,
        } |world| abi::kfabric_ep_opt {
            ep: world.ep,
            ..Call::sized()
        }, keep),
        row!(KFABRIC_IOC_EP_QP kfabric_ep_qp 48 {
            ep: Handle(&[Class::Ep]), qpn: Reported, psn: Reported, gid: Reported, dest_qpn: Reported,
            state: Reported, path_mtu: Reported, reserved: Reserved,
        } |world| abi::kfabric_ep_qp {
            ep: world.ep_msg(),
            ..Call::sized()
        }, keep),
        row!(KFABRIC_IOC_EP_CONNECT_QP kfabric_ep_connect_qp 48 {
            ep: Handle(&[Class::Ep]), addr: Value, psn: Value, reserved: Reserved,
        } |world| world.to_itself(world.ep_msg()), keep),
        row!(KFABRIC_IOC_POST kfabric_post 40 {
            ep: Handle(&[Class::Ep]), ops: In, count: Value, op_size: Value, flags: Flags(0),
            done: Reported, error: Reported,
        } |world| abi::kfabric_post {
            ep: world.ep,
            ops: world.at(OPS),
            count: 1,
            op_size: size_of::<abi::kfabric_op>() as u32,
            ..Call::sized()
        }, |_, arg| assert_eq!((arg.done, arg.error), (1, 0))),
        row!(KFABRIC_IOC_QUEUE_WORK kfabric_queue_work 48 {
            domain: Handle(&[Class::Domain]), works: In, count: Value, work_size: Value,
            op_size: Value, reserved: Reserved, flags: Flags(0), done: Reported, error: Reported,
        } |world| {
            let work = abi::kfabric_work {
                threshold: 100,
                triggering_cntr: world.cntr,
                op_type: abi::KFABRIC_OP_CNTR_ADD,
                object: world.cntr,
                value: 1,
                ..Default::default()
            };
            world.memory.write(WORKS, &bytes_of(&work));
            abi::kfabric_queue_work {
                domain: world.domain,
                works: world.at(WORKS),
                count: 1,
                work_size: size_of::<abi::kfabric_work>() as u32,
                ..Call::sized()
            }
        }, |world, arg| {
            assert_eq!((arg.done, arg.error), (1, 0));
            assert!(flush(world) >= 1);
        }),
        row!(KFABRIC_IOC_CANCEL_WORK kfabric_cancel_work 24 {
            triggering_cntr: Handle(&[Class::Cntr]), threshold: Value, id: Value,
        } |world| world.work(), |world, _| {
            flush(world);
        }),
        row!(KFABRIC_IOC_FLUSH_WORK kfabric_flush_work 24 {
            domain: Handle(&[Class::Domain]), triggering_cntr: Value, reserved: Reserved,
            flushed: Reported,
        } |world| abi::kfabric_flush_work {
            domain: world.domain,
            ..Call::sized()
        }, keep),
        row!(KFABRIC_IOC_EP_ALIAS kfabric_ep_alias 40 {
            ep: Handle(&[Class::Ep]),
            tx_op_flags: Flags(TX_FLAGS),
            rx_op_flags: Flags(abi::KFI_COMPLETION | abi::KFI_MULTI_RECV | abi::KFI_TRIGGER),
            context: Value, handle: Reported, reserved: Reserved,
        } |world| abi::kfabric_ep_alias {
            ep: world.ep,
            ..Call::sized()
        }, close),
        row!(KFABRIC_IOC_PEP_OPEN kfabric_pep_open 56 {
            fabric: Handle(&[Class::Fabric]), backlog: Value, handle: Reported, addr: Addr,
            context: Value,
        } |world| abi::kfabric_pep_open {
            fabric: world.fabric,
            addr: ipv4([127, 0, 0, 2], 0),
            ..Call::sized()
        }, close),
        row!(KFABRIC_IOC_PEP_LISTEN kfabric_pep_listen 8 {
            pep: Handle(&[Class::Pep]),
        } |world| abi::kfabric_pep_listen {
            pep: world.meeting().silent,
            ..Call::sized()
        }, keep),
        row!(KFABRIC_IOC_PEP_REJECT kfabric_pep_reject 24 {
            pep: Handle(&[Class::Pep]), connreq: Value, param_len: Value, param: In,
        } |world| {
            let met = world.meeting();
            abi::kfabric_pep_reject {
                pep: met.pep,
                connreq: met.connreq,
                param: world.at(EVENT),
                param_len: 24,
                ..Call::sized()
            }
        }, keep),
        row!(KFABRIC_IOC_EP_CONNECT kfabric_ep_connect 56 {
            ep: Handle(&[Class::Ep]), addr: Addr, param: In, param_len: Value, reserved: Reserved,
        } |world| abi::kfabric_ep_connect {
            ep: world.meeting().ep,
            addr: ipv4([127, 0, 0, 9], 5),
            param: world.at(EVENT),
            param_len: 24,
            ..Call::sized()
        }, keep),
        row!(KFABRIC_IOC_EP_ACCEPT kfabric_ep_accept 32 {
            ep: Handle(&[Class::Ep]), pep: Handle(&[Class::Pep]), connreq: Value, param: In,
            param_len: Value, reserved: Reserved,
        } |world| {
            let met = world.meeting();
            abi::kfabric_ep_accept {
                ep: met.ep,
                pep: met.pep,
                connreq: met.connreq,
                param: world.at(EVENT),
                param_len: 24,
                ..Call::sized()
            }
        }, keep),
        row!(KFABRIC_IOC_EP_SHUTDOWN kfabric_ep_shutdown 16 {
            ep: Handle(&[Class::Ep]), flags: Flags(0),
        } |world| abi::kfabric_ep_shutdown {
            ep: world.ep_connected(),
            ..Call::sized()
        }, keep),
        row!(KFABRIC_IOC_EP_PEER kfabric_ep_peer 40 {
            ep: Handle(&[Class::Ep]), addr: Reported,
        } |world| abi::kfabric_ep_peer {
            ep: world.ep_connected(),
            ..Call::sized()
        }, keep),
    ]
}

fn flow_calls() -> Vec<Row> {
    vec![
        row!(KFABRIC_IOC_COUNTERS_OPEN kfabric_counters_open 32 {
            domain: Handle(&[Class::Domain]), context: Value, flags: Flags(0), count: Value,
            handle: Reported,
        } |world| abi::kfabric_counters_open {
            domain: world.domain,
            ..Call::sized()
        }, close),
        row!(KFABRIC_IOC_COUNTERS_ATTACH kfabric_counters_attach 24 {
            counters: Handle(&[Class::Counters]),
            // 0 is a static point: see flows.rs for this field.
            flow: Value, description: Value, index: Value, comp_mask: Reserved,
        } |world| abi::kfabric_counters_attach {
            counters: world.counters,
            flow: world.flow,
            ..Call::sized()
        }, keep),
        row!(KFABRIC_IOC_COUNTERS_READ kfabric_counters_read 32 {
            counters: Handle(&[Class::Counters]), values: Out,
            flags: Flags(abi::KFABRIC_COUNTERS_PREFER_CACHED as u64), count: Value,
            reserved: Reserved,
        } |world| abi::kfabric_counters_read {
            counters: world.counters,
            values: world.at(OUT),
            count: 2,
            ..Call::sized()
        }, keep),
        row!(KFABRIC_IOC_FLOW_OPEN kfabric_flow_open 136 {
            ep: Handle(&[Class::Ep]), context: Value,
            flags: Flags(abi::KFABRIC_FLOW_DONT_TRAP as u64),
            // 0 is none: see flows.rs for this field.
            counters: Value, handle: Reported, priority: Value, family: Value, value: Value,
            mask: Value,
        } |world| abi::kfabric_flow_open {
            ep: world.ep_dgram,
            counters: world.counters,
            ..Call::sized()
        }, close),
    ]
}

fn comp_cntr_calls() -> Vec<Row> {
    vec![
        row!(KFABRIC_IOC_COMP_CNTR_CAPS kfabric_comp_cntr_caps 24 {
            domain: Handle(&[Class::Domain]), max_value: Reported, max_counters: Reported,
            supported_qp_attach_ops: Reported,
        } |world| abi::kfabric_comp_cntr_caps {
            domain: world.domain,
            ..Call::sized()
        }, keep),
        row!(KFABRIC_IOC_COMP_CNTR_CREATE kfabric_comp_cntr_create 104 {
            domain: Handle(&[Class::Domain]), comp_mask: Reserved,
            flags: Flags(abi::KFABRIC_COMP_CNTR_INIT_WITH_EXTERNAL_MEM as u64), type_: Value,
            handle: Reported, context: Value, comp_cntr_ext_mem: Value, err_cntr_ext_mem: Value,
            page_offset: Reported, comp_count_max_value: Reported, err_count_max_value: Reported,
        } |world| {
            let at = |offset| abi::kfabric_memory_location {
                ptr: world.at(OUT + offset),
                ..Default::default()
            };
            abi::kfabric_comp_cntr_create {
                domain: world.domain,
                flags: abi::KFABRIC_COMP_CNTR_INIT_WITH_EXTERNAL_MEM,
                comp_cntr_ext_mem: at(0),
                err_cntr_ext_mem: at(8),
                ..Call::sized()
            }
        }, close),
        row!(KFABRIC_IOC_COMP_CNTR_MODIFY kfabric_comp_cntr_modify 24 {
            comp_cntr: Handle(&[Class::CompCntr]), entry: Value, op: Value, value: Value,
        } |world| abi::kfabric_comp_cntr_modify {
            comp_cntr: world.comp_cntr,
            op: abi::KFABRIC_COMP_CNTR_MODIFY_SET,
            value: 1,
            ..Call::sized()
        }, keep),
        row!(KFABRIC_IOC_COMP_CNTR_READ kfabric_comp_cntr_read 24 {
            comp_cntr: Handle(&[Class::CompCntr]), entry: Value, reserved: Reserved,
            value: Reported,
        } |world| abi::kfabric_comp_cntr_read {
            comp_cntr: world.comp_cntr,
            ..Call::sized()
        }, keep),
        row!(KFABRIC_IOC_COMP_CNTR_ATTACH kfabric_comp_cntr_attach 24 {
            ep: Handle(&[Class::Ep]), comp_cntr: Handle(&[Class::CompCntr]),
            op_mask: Flags(0x3f), comp_mask: Reserved, reserved: Reserved,
        } |world| abi::kfabric_comp_cntr_attach {
            ep: world.ep_new,
            comp_cntr: world.comp_cntr,
            op_mask: abi::KFABRIC_COMP_CNTR_OP_SEND,
            ..Call::sized()
        }, keep),
    ]
}
