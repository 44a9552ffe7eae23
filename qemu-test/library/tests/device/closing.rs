// SPDX-License-Identifier: GPL-2.0
//! Closing of objects, in every order.

use super::{LINK, Peer, device, fabric, pair, refused};
use kfi::{
    Access, Buffer, CntrBind, Errno, Wait,
    abi::{self, Call},
};

#[test]
#[ignore = "needs /dev/kfabric"]
fn closing() {
    let fabric = fabric();
    let domain = fabric.domain(LINK).open().unwrap();
    let cq = domain.cq().wait(Wait::Queue).open().unwrap();
    refused(domain.clone().close(), Errno::EBUSY);
    let fd = cq.wait_fd().unwrap();
    refused(cq.clone().close(), Errno::EBUSY);
    drop(fd);
    let other = cq.clone();
    cq.close().unwrap();
    assert_eq!(other.handle(), 0);
    refused(other.readerr(), Errno::EBADF);
    drop(other);
    domain.close().unwrap();
    fabric.close().unwrap();
}

/// In whatever order a program drops objects, all are closed: the domain's link
/// shows it.
#[test]
#[ignore = "needs /dev/kfabric"]
fn every_order_of_dropping_closes_all() {
    let device = device();
    for order in 0..120u32 {
        let fabric = device.fabric().unwrap();
        let domain = fabric.domain(LINK).open().unwrap();
        let one = Peer::new(&domain);
        let cntr = domain.cntr().open().unwrap();
        let buffer = Buffer::new(8).unwrap();
        let mr = domain
            .mr(&buffer)
            .access(Access::REMOTE_WRITE)
            .requested_key(1)
            .open()
            .unwrap();
        mr.bind_cntr(&cntr, CntrBind::REMOTE_WRITE).unwrap();
        one.ep.recv(&buffer, 0).unwrap();
        let fd = one.cq.wait_fd().unwrap();
        let mut things: Vec<Box<dyn Send>> = vec![
            Box::new((fabric, one.av)),
            Box::new((domain, one.cq)),
            Box::new((cntr, fd)),
            Box::new((mr, buffer)),
            Box::new(one.ep),
        ];
        let mut rest = order as usize;
        while !things.is_empty() {
            let index = rest % things.len();
            rest /= things.len();
            drop(things.swap_remove(index));
        }
    }
    let mut arg = abi::kfabric_close::sized();
    for handle in 1..2000 {
        arg.handle = handle;
        // SAFETY: the structure holds no address.
        let result = unsafe { abi::call(&device, &mut arg) };
        assert_eq!(result, Err(Errno::EBADF), "handle {handle} is still open");
    }
}

/// A buffer may be dropped while an operation uses it: the kernel keeps its
/// pages, and the operation does not change the memory that gets its address
/// next.
#[test]
#[ignore = "needs /dev/kfabric"]
fn a_buffer_may_be_dropped_before_its_operation_ends() {
    let (one, two, to_two, _) = pair();
    let buffer = Buffer::new(4096).unwrap();
    let addr = buffer.addr();
    two.ep.recv(&buffer, 1).unwrap();
    drop(buffer);
    let next = Buffer::new(4096).unwrap();
    one.ep.inject(to_two, b"late").unwrap();
    assert_eq!(two.next().len, 4);
    assert_eq!(next.to_vec(..), [0; 4096]);
    // Most likely at the same address, which the test needs.
    println!("{addr:#x} {:#x}", next.addr());
}
