// SPDX-License-Identifier: GPL-2.0
//! Calls on completion counters, and on flows and their counters.

use super::{
    Kind::{Flags, Handle, Out, Reported, Reserved, Value},
    Row, close, keep,
};
use crate::{
    abi_world::{Class, OUT},
    raw::{arg, data},
};
use kfi::abi;

pub(super) fn comp_cntr_calls() -> Vec<Row> {
    vec![
        row!(KFABRIC_IOC_COMP_CNTR_CAPS kfabric_comp_cntr_caps 24 {
            domain: Handle(&[Class::Domain]), max_value: Reported, max_counters: Reported,
            supported_qp_attach_ops: Reported,
        } |world| arg!(kfabric_comp_cntr_caps: domain: world.domain), keep),
        row!(KFABRIC_IOC_COMP_CNTR_CREATE kfabric_comp_cntr_create 104 {
            domain: Handle(&[Class::Domain]), comp_mask: Reserved,
            flags: Flags(abi::KFABRIC_COMP_CNTR_INIT_WITH_EXTERNAL_MEM as u64), type_: Value,
            handle: Reported, context: Value, comp_cntr_ext_mem: Value, err_cntr_ext_mem: Value,
            page_offset: Reported, comp_count_max_value: Reported, err_count_max_value: Reported,
        } |world| {
            let at = |offset| data!(kfabric_memory_location: ptr: world.at(OUT + offset));
            arg!(kfabric_comp_cntr_create:
                domain: world.domain, flags: abi::KFABRIC_COMP_CNTR_INIT_WITH_EXTERNAL_MEM,
                comp_cntr_ext_mem: at(0), err_cntr_ext_mem: at(8)
            )
        }, close),
        row!(KFABRIC_IOC_COMP_CNTR_MODIFY kfabric_comp_cntr_modify 24 {
            comp_cntr: Handle(&[Class::CompCntr]), entry: Value, op: Value, value: Value,
        } |world| arg!(kfabric_comp_cntr_modify:
            comp_cntr: world.comp_cntr, op: abi::KFABRIC_COMP_CNTR_MODIFY_SET, value: 1
        ), keep),
        row!(KFABRIC_IOC_COMP_CNTR_READ kfabric_comp_cntr_read 24 {
            comp_cntr: Handle(&[Class::CompCntr]), entry: Value, reserved: Reserved,
            value: Reported,
        } |world| arg!(kfabric_comp_cntr_read: comp_cntr: world.comp_cntr), keep),
        row!(KFABRIC_IOC_COMP_CNTR_ATTACH kfabric_comp_cntr_attach 24 {
            ep: Handle(&[Class::Ep]), comp_cntr: Handle(&[Class::CompCntr]),
            op_mask: Flags(0x3f), comp_mask: Reserved, reserved: Reserved,
        } |world| arg!(kfabric_comp_cntr_attach:
            ep: world.ep_new, comp_cntr: world.comp_cntr, op_mask: abi::KFABRIC_COMP_CNTR_OP_SEND
        ), keep),
    ]
}

pub(super) fn flow_calls() -> Vec<Row> {
    vec![
        row!(KFABRIC_IOC_COUNTERS_OPEN kfabric_counters_open 32 {
            domain: Handle(&[Class::Domain]), context: Value, flags: Flags(0), count: Value,
            handle: Reported,
        } |world| arg!(kfabric_counters_open: domain: world.domain), close),
        row!(KFABRIC_IOC_COUNTERS_ATTACH kfabric_counters_attach 24 {
            counters: Handle(&[Class::Counters]),
            // 0 is a static point: see flows.rs for this field.
            flow: Value, description: Value, index: Value, comp_mask: Reserved,
        } |world| arg!(kfabric_counters_attach: counters: world.counters, flow: world.flow), keep),
        row!(KFABRIC_IOC_COUNTERS_READ kfabric_counters_read 32 {
            counters: Handle(&[Class::Counters]), values: Out,
            flags: Flags(abi::KFABRIC_COUNTERS_PREFER_CACHED as u64), count: Value,
            reserved: Reserved,
        } |world| arg!(kfabric_counters_read:
            counters: world.counters, values: world.at(OUT), count: 2
        ), keep),
        row!(KFABRIC_IOC_FLOW_OPEN kfabric_flow_open 136 {
            ep: Handle(&[Class::Ep]), context: Value,
            flags: Flags(abi::KFABRIC_FLOW_DONT_TRAP as u64),
            // 0 is none: see flows.rs for this field.
            counters: Value, handle: Reported, priority: Value, family: Value, value: Value,
            mask: Value,
        } |world| arg!(kfabric_flow_open: ep: world.ep_dgram, counters: world.counters), close),
    ]
}
