// SPDX-License-Identifier: GPL-2.0
//! Calls on endpoints, for operations and for deferred work.

use super::{
    CAPS,
    Kind::{Addr, Flags, Handle, In, Reported, Reserved, Value},
    Row, TX_FLAGS, close, keep,
};
use crate::{
    abi_world::{Class, EVENT, OPS, POSTED, WORKS, World},
    raw::{arg, bytes_of, data, ipv4},
};
use kfi::abi;

/// Cancels all work, and returns its number.
fn flush(world: &World) -> u64 {
    let flushed = world
        .file
        .call(arg!(kfabric_flush_work: domain: world.domain));
    flushed.expect("flush_work").flushed
}

/// Capabilities that both sides have.
const BOTH_CAPS: u64 = abi::KFI_MSG
    | abi::KFI_TAGGED
    | abi::KFI_RMA
    | abi::KFI_ATOMIC
    | abi::KFI_TAGGED_RMA
    | abi::KFI_NAMED_RX_CTX
    | abi::KFI_TRIGGER
    | abi::KFI_LOCAL_COMM
    | abi::KFI_REMOTE_COMM;

/// Capabilities of shared transmit contexts.
const TX_CAPS: u64 = BOTH_CAPS | abi::KFI_SEND | abi::KFI_READ | abi::KFI_WRITE | abi::KFI_FENCE;

/// Capabilities of shared receive contexts.
const RX_CAPS: u64 = BOTH_CAPS
    | abi::KFI_RECV
    | abi::KFI_REMOTE_READ
    | abi::KFI_REMOTE_WRITE
    | abi::KFI_MULTI_RECV
    | abi::KFI_SOURCE
    | abi::KFI_DIRECTED_RECV
    | abi::KFI_RMA_EVENT;

pub(super) fn ep_calls() -> Vec<Row> {
    vec![
        row!(KFABRIC_IOC_EP_OPEN kfabric_ep_open 96 {
            domain: Handle(&[Class::Domain]), type_: Value, handle: Reported, caps: Flags(CAPS),
            tx_op_flags: Flags(TX_FLAGS),
            rx_op_flags: Flags(abi::KFI_COMPLETION | abi::KFI_MULTI_RECV | abi::KFI_TRIGGER),
            tx_size: Value, rx_size: Value, total_buffered_recv: Value, src_addr: Addr,
            context: Value,
            shared: Flags((abi::KFABRIC_SHARED_TX | abi::KFABRIC_SHARED_RX) as u64),
            auth_key: Value,
        } |world| arg!(kfabric_ep_open:
            domain: world.domain, type_: abi::KFI_EP_RDM, src_addr: ipv4([127, 0, 0, 1], 0)
        ), close),
        row!(KFABRIC_IOC_EP_ENABLE kfabric_ep_enable 8 {
            ep: Handle(&[Class::Ep, Class::Sep]),
        } |world| arg!(kfabric_ep_enable: ep: world.ep_new), keep),
        row!(KFABRIC_IOC_EP_NAME kfabric_ep_name 48 {
            ep: Handle(&[Class::Ep, Class::Pep, Class::Sep]), set: Value, reserved: Reserved,
            addr: Reported,
        } |world| arg!(kfabric_ep_name: ep: world.ep), keep),
        row!(KFABRIC_IOC_EP_NAME kfabric_ep_name 48 {
            ep: Handle(&[Class::Ep, Class::Pep, Class::Sep]), set: Value, reserved: Reserved,
            addr: Addr,
        } |world| arg!(kfabric_ep_name:
            ep: world.ep_new, set: 1, addr: ipv4([127, 0, 0, 1], 0)
        ), keep),
        row!(KFABRIC_IOC_EP_CANCEL kfabric_ep_cancel 16 {
            ep: Handle(&[Class::Ep]), context: Value,
        } |world| arg!(kfabric_ep_cancel: ep: world.ep, context: POSTED), keep),
        row!(KFABRIC_IOC_EP_OPT kfabric_ep_opt 32 {
            ep: Handle(&[Class::Ep, Class::Sep]), set: Value, level: Value, name: Value,
            reserved: Reserved,
            value: Value,
        } |world| arg!(kfabric_ep_opt: ep: world.ep), keep),
        row!(KFABRIC_IOC_EP_QP kfabric_ep_qp 48 {
            ep: Handle(&[Class::Ep]), qpn: Reported, psn: Reported, gid: Reported, dest_qpn: Reported,
            state: Reported, path_mtu: Reported, reserved: Reserved,
        } |world| arg!(kfabric_ep_qp: ep: world.ep_msg()), keep),
        row!(KFABRIC_IOC_EP_CONNECT_QP kfabric_ep_connect_qp 48 {
            ep: Handle(&[Class::Ep]), addr: Value, psn: Value, reserved: Reserved,
        } |world| world.to_itself(world.ep_msg()), keep),
        row!(KFABRIC_IOC_POST kfabric_post 40 {
            ep: Handle(&[Class::Ep]), ops: In, count: Value, op_size: Value, flags: Flags(0),
            done: Reported, error: Reported,
        } |world| arg!(kfabric_post:
            ep: world.ep, ops: world.at(OPS), count: 1,
            op_size: size_of::<abi::kfabric_op>() as u32
        ), |_, arg| assert_eq!((arg.done, arg.error), (1, 0))),
        row!(KFABRIC_IOC_QUEUE_WORK kfabric_queue_work 48 {
            domain: Handle(&[Class::Domain]), works: In, count: Value, work_size: Value,
            op_size: Value, reserved: Reserved, flags: Flags(0), done: Reported, error: Reported,
        } |world| {
            let work = data!(kfabric_work:
                threshold: 100, triggering_cntr: world.cntr, op_type: abi::KFABRIC_OP_CNTR_ADD,
                object: world.cntr, value: 1
            );
            world.memory.write(WORKS, &bytes_of(&work));
            arg!(kfabric_queue_work:
                domain: world.domain, works: world.at(WORKS), count: 1,
                work_size: size_of::<abi::kfabric_work>() as u32
            )
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
        } |world| arg!(kfabric_flush_work: domain: world.domain), keep),
        row!(KFABRIC_IOC_EP_ALIAS kfabric_ep_alias 40 {
            ep: Handle(&[Class::Ep]),
            tx_op_flags: Flags(TX_FLAGS),
            rx_op_flags: Flags(abi::KFI_COMPLETION | abi::KFI_MULTI_RECV | abi::KFI_TRIGGER),
            context: Value, handle: Reported, reserved: Reserved,
        } |world| arg!(kfabric_ep_alias: ep: world.ep), close),
        row!(KFABRIC_IOC_STX_OPEN kfabric_stx_open 32 {
            domain: Handle(&[Class::Domain]), caps: Flags(TX_CAPS), tx_size: Value,
            handle: Reported, context: Value,
        } |world| arg!(kfabric_stx_open: domain: world.domain), close),
        row!(KFABRIC_IOC_SRX_OPEN kfabric_srx_open 48 {
            domain: Handle(&[Class::Domain]), caps: Flags(RX_CAPS),
            rx_op_flags: Flags(abi::KFI_COMPLETION | abi::KFI_MULTI_RECV | abi::KFI_TRIGGER),
            rx_size: Value, handle: Reported, total_buffered_recv: Value, context: Value,
        } |world| arg!(kfabric_srx_open: domain: world.domain), close),
        row!(KFABRIC_IOC_PEP_OPEN kfabric_pep_open 56 {
            fabric: Handle(&[Class::Fabric]), backlog: Value, handle: Reported, addr: Addr,
            context: Value,
        } |world| arg!(kfabric_pep_open:
            fabric: world.fabric, addr: ipv4([127, 0, 0, 2], 0)
        ), close),
        row!(KFABRIC_IOC_PEP_LISTEN kfabric_pep_listen 8 {
            pep: Handle(&[Class::Pep]),
        } |world| arg!(kfabric_pep_listen: pep: world.meeting().silent), keep),
        row!(KFABRIC_IOC_PEP_REJECT kfabric_pep_reject 24 {
            pep: Handle(&[Class::Pep]), connreq: Value, param_len: Value, param: In,
        } |world| {
            let met = world.meeting();
            arg!(kfabric_pep_reject:
                pep: met.pep, connreq: met.connreq, param: world.at(EVENT), param_len: 24
            )
        }, keep),
        row!(KFABRIC_IOC_EP_CONNECT kfabric_ep_connect 56 {
            ep: Handle(&[Class::Ep]), addr: Addr, param: In, param_len: Value, reserved: Reserved,
        } |world| arg!(kfabric_ep_connect:
            ep: world.meeting().ep, addr: ipv4([127, 0, 0, 9], 5), param: world.at(EVENT),
            param_len: 24
        ), keep),
        row!(KFABRIC_IOC_EP_ACCEPT kfabric_ep_accept 32 {
            ep: Handle(&[Class::Ep]), pep: Handle(&[Class::Pep]), connreq: Value, param: In,
            param_len: Value, reserved: Reserved,
        } |world| {
            let met = world.meeting();
            arg!(kfabric_ep_accept:
                ep: met.ep, pep: met.pep, connreq: met.connreq, param: world.at(EVENT),
                param_len: 24
            )
        }, keep),
        row!(KFABRIC_IOC_EP_SHUTDOWN kfabric_ep_shutdown 16 {
            ep: Handle(&[Class::Ep]), flags: Flags(0),
        } |world| arg!(kfabric_ep_shutdown: ep: world.ep_connected()), keep),
        row!(KFABRIC_IOC_EP_PEER kfabric_ep_peer 40 {
            ep: Handle(&[Class::Ep]), addr: Reported,
        } |world| arg!(kfabric_ep_peer: ep: world.ep_connected()), keep),
    ]
}

pub(super) fn scalable_calls() -> Vec<Row> {
    vec![
        row!(KFABRIC_IOC_SEP_OPEN kfabric_sep_open 104 {
            domain: Handle(&[Class::Domain]), caps: Flags(CAPS), tx_op_flags: Flags(TX_FLAGS),
            rx_op_flags: Flags(abi::KFI_COMPLETION | abi::KFI_MULTI_RECV | abi::KFI_TRIGGER),
            tx_size: Value, rx_size: Value, total_buffered_recv: Value, src_addr: Addr,
            context: Value, tx_ctx_cnt: Value, rx_ctx_cnt: Value, handle: Reported,
            auth_key: Value,
        } |world| arg!(kfabric_sep_open:
            domain: world.domain, src_addr: ipv4([127, 0, 0, 1], 0)
        ), close),
        row!(KFABRIC_IOC_SEP_CONTEXT kfabric_sep_context 56 {
            sep: Handle(&[Class::Sep]), receive: Value, index: Value, caps: Value,
            op_flags: Value, queue_size: Value, handle: Reported, total_buffered_recv: Value,
            context: Value,
        } |world| arg!(kfabric_sep_context: sep: world.sep), close),
    ]
}
