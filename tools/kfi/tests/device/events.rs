// SPDX-License-Identifier: GPL-2.0
//! Event queues, address vectors, wait and poll sets.

use super::{LINK, PATIENCE, SHORT, domain, fabric, refused};
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
fn address_vector_events() {
    let fabric = fabric();
    let eq = fabric.eq().wait(Wait::Queue).open().unwrap();
    let domain = fabric.domain(LINK).open().unwrap();
    let av = domain.av().kind(AvKind::Table).events().open().unwrap();
    let addr = "10.0.0.1:7471".parse().unwrap();
    refused(av.insert(&[addr]), Errno::KFI_ENOEQ);
    av.bind_eq(&eq).unwrap();
    av.insert_with_context(&[addr, addr], 77).unwrap();
    let event = eq.read(PATIENCE).unwrap().expect("an event");
    assert_eq!(event.kind, EventKind::AvComplete);
    let entry = event.entry().unwrap();
    assert_eq!(
        (entry.handle, entry.context, entry.data),
        (av.handle(), 77, 2)
    );
}

#[test]
#[ignore = "needs /dev/kfabric"]
fn wait_set() {
    let fabric = fabric();
    let set = fabric.wait_set().unwrap();
    let domain = fabric.domain(LINK).open().unwrap();
    let cntr = domain.cntr().wait(Wait::Set(set.clone())).open().unwrap();
    assert!(!set.wait(SHORT).unwrap());
    cntr.add(1).unwrap();
    assert!(set.wait(PATIENCE).unwrap());
    let fd = set.wait_fd().unwrap();
    fd.set_nonblocking(true).unwrap();
    assert!(!fd.wait(Deadline::POLL).unwrap());
    assert!(fd.consume().unwrap_err().is_again());
    cntr.add(1).unwrap();
    assert!(fd.wait(PATIENCE).unwrap());
    fd.consume().unwrap();
    assert!(!fd.wait(Deadline::POLL).unwrap());
    // The counter keeps its wait set.
    refused(set.clone().close(), Errno::EBUSY);
}

#[test]
#[ignore = "needs /dev/kfabric"]
fn poll_set() {
    let domain = domain();
    let set = domain.poll_set().unwrap();
    let (a, b) = (
        domain.cntr().context(7).open().unwrap(),
        domain.cntr().context(8).open().unwrap(),
    );
    set.add(&a).unwrap();
    set.add(&b).unwrap();
    refused(set.add(&a), Errno::EEXIST);
    set.poll(16).unwrap();
    b.add(1).unwrap();
    assert_eq!(set.poll(16).unwrap(), [8]);
    assert_eq!(set.poll(16).unwrap(), []);
    set.remove(&b).unwrap();
    refused(set.remove(&b), Errno::ENOENT);
    refused(set.poll(0), Errno::EINVAL);
    b.close().unwrap();
}
