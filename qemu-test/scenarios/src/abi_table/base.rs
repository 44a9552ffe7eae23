// SPDX-License-Identifier: GPL-2.0
//! Calls on the device, on any object, on fabrics, domains, event queues and address vectors.

#![allow(unsafe_code, reason = "a descriptor")]

use super::{
    Kind::{
        Addr, Flags, Handle, HandleOr, In, InOrNull, Out, OutOrNull, Reported, Reserved, Value,
    },
    NETDEV, Row, SHAPE_LINK, TX_FLAGS, WAIT_SET, close, keep,
};
use crate::{
    abi_world::{ADDRS, Class, EVENT, FI_ADDRS, HINTS, INFOS, IOV, OUT},
    host::LINK,
    raw::{arg, ipv4, text},
};
use kfi::{
    Errno,
    abi::{self, Call},
};
use std::os::fd::{FromRawFd, OwnedFd};

pub(super) fn device_calls() -> Vec<Row> {
    vec![
        row!(KFABRIC_IOC_QUERY kfabric_query 72 {
            abi_version: Reported, module_version: Reported, page_size: Reported, caps: Reported,
            max_msg_size: Reported, inject_size: Reported, max_iov: Reported, max_handles: Reported,
            max_queue: Reported, max_cq: Reported, max_eq: Reported, max_av: Reported, max_post: Reported,
            max_buffered: Reported, max_flows: Reported, max_flow_points: Reported,
            max_counters: Reported, max_comp_cntr: Reported, max_work: Reported,
            max_ep_ctx: Reported,
        } |_| Call::sized(), keep),
        row!(KFABRIC_IOC_NOP kfabric_nop 8 {
            reserved: Reserved,
        } |_| Call::sized(), keep),
        row!(KFABRIC_IOC_LINK_ADD kfabric_link_add 40 {
            flags: Flags(0), name: Value, netdev: Value,
        } |world| {
            let _ = world.file.call(link_del());
            arg!(kfabric_link_add: name: text(SHAPE_LINK), netdev: text(NETDEV))
        }, |world, _| {
            world.file.call(link_del()).expect("link_del");
        }),
        row!(KFABRIC_IOC_LINK_DEL kfabric_link_del 24 {
            flags: Flags(0), name: Value,
        } |world| {
            let _ = world.file.call(arg!(kfabric_link_add:
                name: text(SHAPE_LINK), netdev: text(NETDEV)
            ));
            link_del()
        }, keep),
        row!(KFABRIC_IOC_LINK_GET kfabric_link_get 152 {
            after: Value, name: Reported, netdev: Reported, state: Reported, mtu: Reported, ipv4: Reported,
            ipv6: Reported, domains: Reported, endpoints: Reported, tx_ops: Reported, tx_bytes: Reported,
            rx_ops: Reported, rx_bytes: Reported,
        } |_| Call::sized(), keep),
        row!(KFABRIC_IOC_GETINFO kfabric_getinfo 168 {
            version: Value, flags: Flags(abi::KFI_SOURCE), hints: InOrNull, infos: Out,
            count: Value, info_size: Value, node: Value, service: Value,
        } |world| arg!(kfabric_getinfo:
            hints: world.at(HINTS), infos: world.at(INFOS), count: 1
        ), keep),
        row!(KFABRIC_IOC_STAT kfabric_stat 136 {
            object_class: Value, after: Value, pid: Reported, handle: Reported, link: Reported, addr: Reported,
            v: Reported,
        } |_| arg!(kfabric_stat: object_class: abi::KFI_CLASS_EP), keep),
        row!(KFABRIC_IOC_FIGURES kfabric_figures 536 {
            of: Value, id: Value, count: Reported, reserved: Reserved, values: Reported,
        } |_| arg!(kfabric_figures: of: abi::KFABRIC_FIGURES_NETNS), keep),
    ]
}

fn link_del() -> abi::kfabric_link_del {
    arg!(kfabric_link_del: name: text(SHAPE_LINK))
}

pub(super) fn common_calls() -> Vec<Row> {
    vec![
        row!(KFABRIC_IOC_CLOSE kfabric_close 8 {
            handle: Handle(&Class::ALL),
        } |world| arg!(kfabric_close: handle: world.spare), keep),
        row!(KFABRIC_IOC_GETWAIT kfabric_getwait 16 {
            handle: Handle(&[Class::Cntr, Class::Cq, Class::Eq, Class::Wait]),
            flags: Flags(0), fd: Reported,
        } |world| arg!(kfabric_getwait: handle: world.cntr), |_, arg| {
            // SAFETY: the call made it for us.
            drop(unsafe { OwnedFd::from_raw_fd(arg.fd) });
        }),
        row!(KFABRIC_IOC_OPSFLAG kfabric_opsflag 24 {
            handle: Handle(&[Class::Ep, Class::Sep, Class::Cntr]), set: Value, reserved: Reserved,
            flags: Flags(TX_FLAGS | abi::KFI_TRANSMIT),
        } |world| arg!(kfabric_opsflag: handle: world.ep, flags: abi::KFI_TRANSMIT), keep),
        row!(KFABRIC_IOC_BIND kfabric_bind 24 {
            handle: HandleOr(&[Class::Ep], Errno::EBADF, Errno::EINVAL),
            to: HandleOr(&[Class::Cntr], Errno::EBADF, Errno::EINVAL),
            reserved: Reserved,
            flags: Flags(abi::KFI_SEND | abi::KFI_RECV | abi::KFI_READ | abi::KFI_WRITE
                | abi::KFI_REMOTE_READ | abi::KFI_REMOTE_WRITE),
        } |world| arg!(kfabric_bind:
            handle: world.ep_new, to: world.cntr, flags: abi::KFI_SEND
        ), keep),
    ]
}

pub(super) fn fabric_calls() -> Vec<Row> {
    vec![
        row!(KFABRIC_IOC_FABRIC_OPEN kfabric_fabric_open 16 {
            handle: Reported, context: Value,
        } |_| Call::sized(), close),
        row!(KFABRIC_IOC_DOMAIN_OPEN kfabric_domain_open 40 {
            fabric: Handle(&[Class::Fabric]), link: Value,
            mr_mode: Flags((abi::KFI_MR_VIRT_ADDR | abi::KFI_MR_PROV_KEY) as u64),
            handle: Reported, context: Value,
        } |world| arg!(kfabric_domain_open: fabric: world.fabric, link: text(LINK)), close),
        row!(KFABRIC_IOC_QUERY_ATOMIC kfabric_query_atomic 48 {
            domain: Handle(&[Class::Domain]), ep_type: Value, opcode: Value, datatype: Value,
            op: Value, flags: Flags(0), count: Reported, elem_size: Reported,
        } |world| arg!(kfabric_query_atomic:
            domain: world.domain, opcode: abi::KFABRIC_OP_ATOMIC
        ), keep),
        row!(KFABRIC_IOC_EQ_OPEN kfabric_eq_open 40 {
            fabric: Handle(&[Class::Fabric]), entries: Value, wait_obj: Value,
            wait_set: WAIT_SET, handle: Reported,
            flags: Flags(abi::KFI_WRITE | abi::KFI_AFFINITY), context: Value,
        } |world| arg!(kfabric_eq_open:
            fabric: world.fabric, wait_obj: abi::KFI_WAIT_SET, wait_set: world.wait
        ), close),
        row!(KFABRIC_IOC_EQ_READ kfabric_eq_read 40 {
            eq: Handle(&[Class::Eq]), deadline: Value, flags: Flags(abi::KFI_PEEK), buf: Out,
            len: Value, event: Reported,
        } |world| arg!(kfabric_eq_read: eq: world.eq, buf: world.at(OUT), len: 24), keep),
        row!(KFABRIC_IOC_EQ_READERR kfabric_eq_readerr 48 {
            eq: Handle(&[Class::Eq]), flags: Flags(abi::KFI_PEEK), handle: Reported, err: Reported,
            prov_errno: Reported, reserved: Reserved, context: Reported, data: Reported,
            err_data: Value, err_data_size: Value, reserved2: Reserved,
        } |world| arg!(kfabric_eq_readerr: eq: world.eq_err), keep),
        row!(KFABRIC_IOC_EQ_WRITE kfabric_eq_write 32 {
            eq: Handle(&[Class::Eq]), flags: Flags(0), buf: In, len: Value, event: Value,
        } |world| arg!(kfabric_eq_write:
            eq: world.eq, buf: world.at(EVENT), len: 24, event: 5
        ), keep),
    ]
}

pub(super) fn av_calls() -> Vec<Row> {
    vec![
        row!(KFABRIC_IOC_AV_OPEN kfabric_av_open 40 {
            domain: Handle(&[Class::Domain]), type_: Value, count: Value,
            flags: Flags(abi::KFI_EVENT), handle: Reported, rx_ctx_bits: Value, context: Value,
        } |world| arg!(kfabric_av_open: domain: world.domain), close),
        row!(KFABRIC_IOC_AV_INSERT kfabric_av_insert 56 {
            av: Handle(&[Class::Av]), flags: Flags(abi::KFI_SYNC_ERR | abi::KFI_MORE),
            addrs: In, fi_addrs: OutOrNull, errors: Out, context: Value, count: Value,
            inserted: Reported,
        } |world| arg!(kfabric_av_insert:
            av: world.av, flags: abi::KFI_SYNC_ERR, addrs: world.at(ADDRS), fi_addrs: world.at(OUT),
            errors: world.at(OUT + 64), count: 1
        ), |world, _| assert_eq!(world.memory.read(OUT + 64, 4), [0; 4])),
        row!(KFABRIC_IOC_AV_INSERTSVC kfabric_av_insertsvc 160 {
            av: Handle(&[Class::Av]), flags: Flags(abi::KFI_SYNC_ERR | abi::KFI_MORE),
            context: Value, fi_addr: Reported, node: Value, service: Value,
        } |world| arg!(kfabric_av_insertsvc:
            av: world.av, node: text("127.0.0.1"), service: text("9")
        ), keep),
        row!(KFABRIC_IOC_AV_REMOVE kfabric_av_remove 32 {
            av: Handle(&[Class::Av]), flags: Flags(0), fi_addrs: In, count: Value,
            reserved: Reserved,
        } |world| arg!(kfabric_av_remove:
            av: world.av, fi_addrs: world.at(FI_ADDRS), count: 1
        ), keep),
        row!(KFABRIC_IOC_AV_LOOKUP kfabric_av_lookup 48 {
            av: Handle(&[Class::Av]), fi_addr: Value, addr: Reported,
        } |world| arg!(kfabric_av_lookup: av: world.av), keep),
        row!(KFABRIC_IOC_AV_STRADDR kfabric_av_straddr 120 {
            av: Handle(&[Class::Av]), addr: Addr, text: Reported,
        } |world| arg!(kfabric_av_straddr: av: world.av, addr: ipv4([10, 0, 0, 1], 7471)), keep),
        row!(KFABRIC_IOC_MR_REG kfabric_mr_reg 80 {
            domain: Handle(&[Class::Domain]), iov: In, iov_count: Value, handle: Reported,
            access: Flags(crate::raw::ALL_ACCESS), offset: Reserved, requested_key: Value,
            flags: Flags(abi::KFI_RMA_EVENT), context: Value, key: Reported, iova: Reported,
        } |world| arg!(kfabric_mr_reg:
            domain: world.domain, iov: world.at(IOV), iov_count: 1, access: abi::KFI_SEND,
            requested_key: 2
        ), close),
    ]
}
