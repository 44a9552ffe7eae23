// SPDX-License-Identifier: GPL-2.0
//! Completion counters of verbs: closing in any order, and external memory.

use kfi::{Buffer, CompCntrOps, CompCntrType, CqBind, Errno, MemoryLocation};

use super::{Peer, domain};

#[test]
#[ignore = "needs /dev/kfabric"]
fn a_counter_can_be_dropped_before_its_endpoint() {
    let domain = domain();
    let memory = Buffer::new(16).unwrap();
    let place = |offset| MemoryLocation::va(&memory, offset);
    let sent = domain.comp_cntr().create().unwrap();
    let bytes = domain
        .comp_cntr()
        .unit(CompCntrType::Bytes)
        .external(place(0), place(8))
        .create()
        .unwrap();
    let kept = bytes.clone();
    let peer = Peer::with(&domain, CqBind::TRANSMIT | CqBind::RECV, |ep| {
        ep.attach_comp_cntr(&sent, CompCntrOps::SEND).unwrap();
        ep.attach_comp_cntr(&bytes, CompCntrOps::RECV).unwrap();
    });
    // The endpoint keeps the counters, and the counters their memory.
    drop((sent, bytes, memory));
    let me = peer.av.insert_one(peer.ep.name().unwrap()).unwrap();
    let buffer = Buffer::new(64).unwrap();
    peer.ep.recv(&buffer, 1).unwrap();
    peer.ep.inject(me, b"seven b").unwrap();
    assert_eq!((kept.read().unwrap(), kept.comp_count()), (7, Some(7)));
    assert_eq!((kept.read_err().unwrap(), kept.err_count()), (0, Some(0)));
    let error = kept.clone().close().unwrap_err();
    assert!(error.is(Errno::EBUSY), "{error}");
    drop(peer);
    kept.close().unwrap();
}

#[test]
#[ignore = "needs /dev/kfabric"]
fn capabilities_name_the_operations() {
    let caps = domain().comp_cntr_caps().unwrap();
    assert!(caps.supported_qp_attach_ops.contains(CompCntrOps::RECV));
    assert!(caps.max_counters > 0 && caps.max_value > 0);
}
