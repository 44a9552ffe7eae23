// SPDX-License-Identifier: GPL-2.0
//! Event queues and address vectors.

use super::{PATIENCE, SHORT, domain, fabric, refused};
use kfi::{AvKind, Deadline, Errno, EventKind, FiAddr, Wait};
use std::net::SocketAddr;

#[test]
#[ignore = "needs /dev/kfabric"]
fn event_queue() {
    let eq = fabric().eq().writable().wait(Wait::Queue).open().unwrap();
    assert_eq!(eq.read(Deadline::POLL).unwrap(), None);
    assert_eq!(eq.read(SHORT).unwrap(), None);
    let fd = eq.wait_fd().unwrap();
    assert!(!fd.wait(Deadline::POLL).unwrap());
    eq.write(EventKind::Notify, b"hello").unwrap();
    assert!(fd.wait(PATIENCE).unwrap());
    assert_eq!(eq.peek(Deadline::POLL).unwrap().unwrap().data, b"hello");
    let event = eq.read(Deadline::FOREVER).unwrap().unwrap();
    assert_eq!(
        (event.kind, &*event.data),
        (EventKind::Notify, &b"hello"[..])
    );
    assert_eq!(eq.readerr().unwrap(), None);
    let longest = kfi::abi::KFABRIC_MAX_EVENT as usize;
    refused(
        eq.write(EventKind::Notify, &vec![0; longest + 1]),
        Errno::EINVAL,
    );
    let plain = fabric().eq().open().unwrap();
    refused(plain.write(EventKind::Notify, b""), Errno::EINVAL);
}

#[test]
#[ignore = "needs /dev/kfabric"]
fn address_vector() {
    let domain = domain();
    let av = domain.av().kind(AvKind::Table).open().unwrap();
    assert_eq!(av.kind(), AvKind::Table);
    let addrs: [SocketAddr; 2] = ["10.0.0.1:7471".parse().unwrap(), "[::1]:1".parse().unwrap()];
    let fi_addrs = av.insert(&addrs).unwrap();
    assert_eq!(fi_addrs, [FiAddr(0), FiAddr(1)]);
    for (fi_addr, addr) in fi_addrs.iter().zip(addrs) {
        assert_eq!(av.lookup(*fi_addr).unwrap(), addr);
    }
    let text = av.insertsvc("10.0.0.2", "9").unwrap();
    assert_eq!(av.lookup(text).unwrap(), "10.0.0.2:9".parse().unwrap());
    refused(av.insertsvc("nobody", "9"), Errno::EINVAL);
    let each = av.insert_sync_err(&addrs[..1]).unwrap();
    assert!(each[0].is_ok());
    av.remove(&fi_addrs).unwrap();
    refused(av.lookup(FiAddr(0)), Errno::ENOENT);
    refused(av.remove(&fi_addrs), Errno::ENOENT);
    refused(av.insert(&[]), Errno::EINVAL);
    let straddr = av.straddr(addrs[0]).unwrap();
    assert!(straddr.ends_with("://10.0.0.1:7471"), "{straddr}");
}

#[test]
#[ignore = "needs /dev/kfabric"]
fn all_addresses_are_inserted_or_none() {
    let domain = domain();
    let addrs: [SocketAddr; 2] = ["10.0.0.1:7471".parse().unwrap(), "[::1]:1".parse().unwrap()];
    let av = domain.av().open().unwrap();
    let all = av.insert_all(&addrs).unwrap();
    assert_eq!(av.lookup(all[1]).unwrap(), addrs[1]);
    refused(av.insert_all(&[]), Errno::EINVAL);
    // There is room for one more address.
    let av = domain.av().open().unwrap();
    let many = vec![addrs[0]; kfi::abi::KFABRIC_MAX_AV as usize - 1];
    for some in many.chunks(4096) {
        av.insert_all(some).unwrap();
    }
    refused(av.insert_all(&addrs), Errno::ENOSPC);
    av.insert_all(&addrs[1..]).unwrap();
    refused(av.insert_all(&addrs[1..]), Errno::ENOSPC);
}
