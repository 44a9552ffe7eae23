// SPDX-License-Identifier: GPL-2.0
//! Counters.

use super::{PATIENCE, Peer, SHORT, domain, refused};
use kfi::{Access, Buffer, CntrBind, Deadline, Errno, Values, Wait};
use std::thread;

#[test]
#[ignore = "needs /dev/kfabric"]
fn counters() {
    let cntr = domain().cntr().wait(Wait::Queue).open().unwrap();
    cntr.add(3).unwrap();
    cntr.adderr(1).unwrap();
    let values = Values { value: 3, err: 1 };
    assert_eq!(cntr.values(), values);
    assert_eq!(cntr.read().unwrap(), values);
    assert_eq!(cntr.wait(3, Deadline::POLL).unwrap(), values);
    assert!(cntr.wait(4, Deadline::POLL).unwrap_err().is_timeout());
    assert!(cntr.wait(4, SHORT).unwrap_err().is_timeout());
    cntr.set(10).unwrap();
    cntr.seterr(0).unwrap();
    assert_eq!((cntr.value(), cntr.err()), (10, 0));
    assert_eq!(cntr.ops_flags().unwrap(), 0);
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| cntr.wait(12, PATIENCE).unwrap().value);
        thread::sleep(SHORT);
        cntr.add(2).unwrap();
        assert!(sleeper.join().unwrap() >= 12);
    });
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| cntr.wait(100, PATIENCE).unwrap_err());
        thread::sleep(SHORT);
        cntr.adderr(1).unwrap();
        assert!(sleeper.join().unwrap().is_eavail());
    });
    let small = domain().cntr().max_value(3).open().unwrap();
    refused(small.set(4), Errno::EINVAL);
    small.set(3).unwrap();
    small.add(1).unwrap();
    assert_eq!(small.value(), 0);
}

#[test]
#[ignore = "needs /dev/kfabric"]
fn counter_descriptor() {
    let cntr = domain().cntr().wait(Wait::Queue).open().unwrap();
    let fd = cntr.wait_fd().unwrap();
    fd.set_nonblocking(true).unwrap();
    assert!(fd.consume().unwrap_err().is_again());
    cntr.add(1).unwrap();
    assert!(fd.wait(PATIENCE).unwrap());
    assert_eq!(fd.consume().unwrap(), Values { value: 1, err: 0 });
    fd.arm(5).unwrap();
    cntr.add(3).unwrap();
    assert!(!fd.wait(Deadline::POLL).unwrap());
    cntr.add(1).unwrap();
    assert!(fd.wait(Deadline::POLL).unwrap());
    assert_eq!(fd.consume().unwrap().value, 5);
}

#[test]
#[ignore = "needs /dev/kfabric"]
fn regions_count() {
    let domain = domain();
    let one = Peer::new(&domain);
    let me = one.addr_of(&one);
    let writes = domain.cntr().open().unwrap();
    let buffer = Buffer::new(64).unwrap();
    let mr = domain
        .mr(&buffer)
        .access(Access::REMOTE_WRITE)
        .requested_key(3)
        .rma_event()
        .open()
        .unwrap();
    mr.bind_cntr(&writes, CntrBind::REMOTE_WRITE).unwrap();
    one.ep.inject_write(me, b"abc", mr.remote(0)).unwrap();
    writes.wait(1, PATIENCE).unwrap();
    assert_eq!(buffer.to_vec(..3), b"abc");
}
