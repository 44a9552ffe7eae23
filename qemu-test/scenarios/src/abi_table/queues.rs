// SPDX-License-Identifier: GPL-2.0
//! Calls on queues and counters of completions, on wait and poll sets.

use super::{
    Kind::{Flags, Handle, HandleOr, Out, OutOrNull, Reported, Reserved, Value},
    Row, WAIT_SET, close, keep,
};
use crate::{
    abi_world::{Class, OUT},
    raw::arg,
};
use kfi::{Errno, abi};

pub(super) fn queue_calls() -> Vec<Row> {
    vec![
        row!(KFABRIC_IOC_CQ_OPEN kfabric_cq_open 72 {
            domain: Handle(&[Class::Domain]), entries: Value, format: Value, wait_obj: Value,
            wait_cond: Value, wait_set: WAIT_SET, signaling_vector: Value,
            flags: Flags(abi::KFI_AFFINITY), context: Value, handle: Reported, reserved: Reserved,
            ring_offset: Reported, ring_size: Reported,
        } |world| arg!(kfabric_cq_open:
            domain: world.domain, wait_obj: abi::KFI_WAIT_SET, wait_set: world.wait
        ), close),
        row!(KFABRIC_IOC_CQ_READ kfabric_cq_read 40 {
            cq: Handle(&[Class::Cq]), buf: Out, src_addrs: OutOrNull, count: Value, cond: Value,
            deadline: Value, began: Value,
        } |world| arg!(kfabric_cq_read:
            cq: world.cq, buf: world.at(OUT), src_addrs: world.at(OUT + 64), count: 1
        ), |_, arg| assert_eq!(arg.count, 1)),
        row!(KFABRIC_IOC_CQ_READERR kfabric_cq_readerr 88 {
            cq: Handle(&[Class::Cq]), flags: Flags(0), op_context: Reported, comp_flags: Reported,
            len: Reported, buf: Reported, data: Reported, tag: Reported, olen: Reported, src_addr: Reported, err: Reported,
            prov_errno: Reported,
        } |world| arg!(kfabric_cq_readerr:
            cq: world.cq_err
        ), |_, arg| assert_eq!(arg.op_context, 78)),
        row!(KFABRIC_IOC_CQ_SIGNAL kfabric_cq_signal 8 {
            cq: Handle(&[Class::Cq]),
        } |world| arg!(kfabric_cq_signal: cq: world.cq), keep),
        row!(KFABRIC_IOC_CQ_STRERROR kfabric_cq_strerror 80 {
            cq: Handle(&[Class::Cq]), prov_errno: Value, reserved: Reserved, text: Reported,
        } |world| arg!(kfabric_cq_strerror: cq: world.cq), keep),
        row!(KFABRIC_IOC_CNTR_OPEN kfabric_cntr_open 56 {
            domain: Handle(&[Class::Domain]), events: Value, wait_obj: Value, wait_set: WAIT_SET,
            handle: Reported, flags: Flags(0), max_value: Value, context: Value, page_offset: Reported,
        } |world| arg!(kfabric_cntr_open:
            domain: world.domain, wait_obj: abi::KFI_WAIT_SET, wait_set: world.wait
        ), close),
        row!(KFABRIC_IOC_CNTR_READ kfabric_cntr_read 24 {
            cntr: Handle(&[Class::Cntr]), value: Reported, err: Reported,
        } |world| arg!(kfabric_cntr_read:
            cntr: world.cntr
        ), |_, arg| assert_eq!((arg.value, arg.err), (1, 0))),
        row!(KFABRIC_IOC_CNTR_MODIFY kfabric_cntr_modify 24 {
            cntr: Handle(&[Class::Cntr]), what: Value, reserved: Reserved, value: Value,
        } |world| arg!(kfabric_cntr_modify:
            cntr: world.cntr, value: 1
        ), |world, _| assert_eq!(world.file.cntr_read(world.cntr), Ok((2, 0)))),
        row!(KFABRIC_IOC_CNTR_WAIT kfabric_cntr_wait 40 {
            cntr: Handle(&[Class::Cntr]), threshold: Value, deadline: Value, value: Reported,
            err: Reported, began: Value,
        } |world| arg!(kfabric_cntr_wait:
            cntr: world.cntr, threshold: 1
        ), |_, arg| assert_eq!((arg.value, arg.err), (1, 0))),
    ]
}

pub(super) fn wait_calls() -> Vec<Row> {
    vec![
        row!(KFABRIC_IOC_WAIT_OPEN kfabric_wait_open 24 {
            fabric: Handle(&[Class::Fabric]), wait_obj: Value, handle: Reported, flags: Flags(0),
        } |world| arg!(kfabric_wait_open:
            fabric: world.fabric, wait_obj: abi::KFI_WAIT_UNSPEC
        ), close),
        row!(KFABRIC_IOC_WAIT kfabric_wait 16 {
            wait_set: Handle(&[Class::Wait]), deadline: Value,
        } |world| arg!(kfabric_wait: wait_set: world.wait), keep),
        row!(KFABRIC_IOC_POLL_OPEN kfabric_poll_open 24 {
            domain: Handle(&[Class::Domain]), flags: Flags(0), handle: Reported, reserved: Reserved,
        } |world| arg!(kfabric_poll_open: domain: world.domain), close),
        row!(KFABRIC_IOC_POLL_CHANGE kfabric_poll_change 24 {
            poll: Handle(&[Class::Poll]),
            handle: HandleOr(&[Class::Cq, Class::Cntr], Errno::EBADF, Errno::EINVAL),
            remove: Value, flags: Flags(0),
        } |world| arg!(kfabric_poll_change: poll: world.poll, handle: world.cq), keep),
        row!(KFABRIC_IOC_POLL kfabric_poll 24 {
            poll: Handle(&[Class::Poll]), contexts: Out, count: Value, reserved: Reserved,
        } |world| arg!(kfabric_poll:
            poll: world.poll, contexts: world.at(OUT), count: 4
        ), |_, arg| assert_eq!(arg.count, 1, "the counter's change was told before")),
    ]
}
