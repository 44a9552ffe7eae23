// SPDX-License-Identifier: GPL-2.0
//! The table of all calls: the kind of each field of each argument, and a call that succeeds.
//!
//! [`abi_shape`](crate::abi_shape) makes from it the tests of the rules that hold for every call,
//! and compares it with the header: a call, a structure or a field that is not in the table is a
//! failed test. A [`World`] has the objects that the calls need, and is made again for each test
//! of a rule.
//!
//! | file | calls |
//! |---|---|
//! | [`base`] | on the device, on any object, on fabrics, domains, event queues and address vectors |
//! | [`queues`] | on queues and counters of completions, wait and poll sets |
//! | [`endpoints`] | on endpoints, operations and deferred work |
//! | [`counting`] | on completion counters, flows and their counters |

#![allow(unsafe_code, reason = "structures from bytes")]

use crate::{
    abi_world::{Class, World},
    raw::Make,
};
use kfi::{
    Errno,
    abi::{self, Call},
};

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
        let valid: fn(&$crate::abi_world::World) -> abi::$arg = $valid;
        let undo: fn(&$crate::abi_world::World, &abi::$arg) = $undo;
        Row {
            name: stringify!($request),
            request: abi::$request,
            arg: stringify!($arg),
            v1: $v1,
            plain: <abi::$arg as kfi::abi::Call>::PLAIN,
            size: size_of::<abi::$arg>(),
            fields: vec![$($crate::abi_table::Field {
                name: stringify!($field).trim_end_matches('_'),
                offset: std::mem::offset_of!(abi::$arg, $field),
                len: size_of_val(&blank.$field),
                kind: $kind,
            }),*],
            valid: Box::new(move |world| $crate::raw::bytes_of(&valid(world))),
            undo: Box::new(move |world, bytes| undo(world, &$crate::abi_table::from_bytes(bytes))),
        }
    }};
}

mod base;
mod counting;
mod endpoints;
mod queues;

use base::{av_calls, common_calls, device_calls, fabric_calls};
use counting::{comp_cntr_calls, flow_calls};
use endpoints::{ep_calls, scalable_calls};
use queues::{queue_calls, wait_calls};

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
const WAIT_SET: Kind = Kind::HandleOr(&[Class::Wait], Errno::EINVAL, Errno::EBADF);

/// Every call, in the header's order.
pub(crate) fn table() -> Vec<Row> {
    let mut table = device_calls();
    table.extend(common_calls());
    table.extend(fabric_calls());
    table.extend(av_calls());
    table.extend(queue_calls());
    table.extend(wait_calls());
    table.extend(ep_calls());
    table.extend(comp_cntr_calls());
    table.extend(scalable_calls());
    table.extend(flow_calls());
    table
}
