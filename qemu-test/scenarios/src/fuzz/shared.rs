// SPDX-License-Identifier: GPL-2.0
//! The part of a skeleton with scalable endpoints and shared contexts.

use super::round::{ALL_CAPS, Desk, Kind, MEMBERS, SEPS};
use crate::raw::{File, arg, ipv4};
use kfi::abi;

/// Ports of the scalable endpoint of a process: it has a receive context at each.
fn ports_of(process: u64) -> std::ops::Range<u16> {
    let count = SEPS.len() as u16 / 2;
    let start = SEPS.start + process as u16 * count;
    start..start + count
}

/// An AV that knows the scalable endpoints and the members of both processes, first.
fn av(desk: &Desk, file: &File, domain: u32) -> Option<u32> {
    let arg = arg!(kfabric_av_open: domain, type_: abi::KFI_AV_TABLE, rx_ctx_bits: 4);
    let av = file.call(arg).ok()?.handle;
    desk.add(Kind::Av, av);
    let names = [0, 1].map(|process| ports_of(process).start);
    for port in names.into_iter().chain(MEMBERS) {
        let _ = file.insert(av, ipv4([127, 0, 0, 1], port));
    }
    Some(av)
}

fn cq(desk: &Desk, file: &File, domain: u32) -> Option<u32> {
    let arg = arg!(kfabric_cq_open: domain, entries: 64, wait_obj: abi::KFI_WAIT_QUEUE);
    let cq = file.call(arg).ok()?.handle;
    desk.add(Kind::Cq, cq);
    Some(cq)
}

/// A scalable endpoint with contexts, and two endpoints with shared contexts.
pub(super) fn skeleton(desk: &Desk, file: &File, domain: u32, process: u64) -> Option<()> {
    let (av, cq) = (av(desk, file, domain)?, cq(desk, file, domain)?);
    let ports = ports_of(process);
    let count = u32::from(ports.end - ports.start);
    let sep = arg!(kfabric_sep_open:
        domain, caps: ALL_CAPS, tx_ctx_cnt: count, rx_ctx_cnt: count,
        src_addr: ipv4([127, 0, 0, 1], ports.start)
    );
    let sep = file.call(sep).ok()?.handle;
    desk.add(Kind::Sep, sep);
    file.bind(sep, av, 0).ok()?;
    for (receive, index) in (0..2).flat_map(|side| (0..count).map(move |index| (side, index))) {
        let context = arg!(kfabric_sep_context: sep, receive, index, queue_size: 16);
        let ep = file.call(context).ok()?.handle;
        desk.add(Kind::Ep, ep);
        file.bind(ep, cq, 0).ok()?;
        let _ = file.enable(ep);
    }
    let stx = arg!(kfabric_stx_open: domain, tx_size: 8);
    let stx = file.call(stx).ok()?.handle;
    desk.add(Kind::Stx, stx);
    let srx = arg!(kfabric_srx_open: domain, rx_size: 16);
    let srx = file.call(srx).ok()?.handle;
    desk.add(Kind::Srx, srx);
    let half = MEMBERS.len() as u16 / 2;
    let start = MEMBERS.start + process as u16 * half;
    for port in start..start + half {
        let member = arg!(kfabric_ep_open:
            domain, caps: ALL_CAPS, shared: abi::KFABRIC_SHARED_RX | abi::KFABRIC_SHARED_TX,
            src_addr: ipv4([127, 0, 0, 1], port)
        );
        let ep = file.call(member).ok()?.handle;
        desk.add(Kind::Ep, ep);
        for to in [srx, stx, av] {
            file.bind(ep, to, 0).ok()?;
        }
        file.bind(ep, cq, abi::KFI_SEND | abi::KFI_RECV).ok()?;
        let _ = file.enable(ep);
    }
    Some(())
}
