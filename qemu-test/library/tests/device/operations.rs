// SPDX-License-Identifier: GPL-2.0
//! Operations, and their completions.

use super::{LINK, PATIENCE, Peer, device, domain, fabric, pair, refused};
use kfi::{
    Access, Buffer, CompFlags, CqBind, Deadline, Errno, Error, IoVec, Local, MrMode, Op, Remote,
    RmaIov,
};

#[test]
#[ignore = "needs /dev/kfabric"]
fn messages() {
    let (one, two, to_two, to_one) = pair();
    let (out, into) = (
        Buffer::from_bytes(b"hello").unwrap(),
        Buffer::new(16).unwrap(),
    );
    two.ep.recv(&into, 1).unwrap();
    one.ep.send(to_two, &out, 2).unwrap();
    let sent = one.next();
    assert_eq!(sent.op_context, 2);
    assert_eq!(sent.flags, CompFlags::MSG | CompFlags::SEND);
    let received = two.next();
    assert_eq!((received.op_context, received.len), (1, 5));
    assert_eq!(received.flags, CompFlags::MSG | CompFlags::RECV);
    assert_eq!(received.src_addr, to_one);
    assert_eq!(into.to_vec(..5), b"hello");
    assert_eq!(one.cq.next(Deadline::POLL).unwrap(), None);
}

#[test]
#[ignore = "needs /dev/kfabric"]
fn remote_cq_data_and_inject() {
    let (one, two, to_two, _) = pair();
    let into = Buffer::new(16).unwrap();
    two.ep.recv(&into, 1).unwrap();
    one.ep.senddata(to_two, Local::empty(), 99, 2).unwrap();
    let received = two.next();
    assert!(received.flags.contains(CompFlags::REMOTE_CQ_DATA));
    assert_eq!((received.data, received.len), (99, 0));
    // Unexpected: kept until it is received.
    one.ep.inject(to_two, b"later").unwrap();
    two.ep.recv(&into, 3).unwrap();
    assert_eq!(two.next().len, 5);
    assert_eq!(into.to_vec(..5), b"later");
    let limit = device().query().unwrap().inject_size as usize;
    refused(one.ep.inject(to_two, &vec![0; limit + 1]), Errno::EMSGSIZE);
}

#[test]
#[ignore = "needs /dev/kfabric"]
fn rma() {
    let (one, two, to_two, _) = pair();
    let target = Buffer::new(64).unwrap();
    let domain = domain();
    // Another domain object on the same link does not have the peer's region.
    drop(domain);
    let mr_domain = fabric()
        .domain(LINK)
        .mr_mode(MrMode::PROV_KEY)
        .open()
        .unwrap();
    let three = Peer::new(&mr_domain);
    let mr = mr_domain
        .mr(&target)
        .access(Access::REMOTE_READ | Access::REMOTE_WRITE)
        .open()
        .unwrap();
    let to_three = one.addr_of(&three);
    let local = Buffer::from_bytes(b"written!").unwrap();
    one.ep.write(to_three, &local, mr.remote(8), 1).unwrap();
    let entry = one.next();
    assert_eq!(
        (entry.op_context, entry.flags),
        (1, CompFlags::RMA | CompFlags::WRITE)
    );
    assert_eq!(target.to_vec(8..16), b"written!");
    // A silent write; the write after it is not silent, and completes later.
    one.ep.inject_write(to_three, b"in", mr.remote(0)).unwrap();
    one.ep.write(to_three, &local, mr.remote(8), 1).unwrap();
    one.next();
    assert_eq!(target.to_vec(..2), b"in");
    let back = Buffer::new(8).unwrap();
    one.ep.read(to_three, &back, mr.remote(8), 2).unwrap();
    one.next();
    assert_eq!(back.to_vec(..), b"written!");
    // Lists on both sides.
    let pieces = [IoVec::from(back.slice(4..)), IoVec::from(back.slice(..4))];
    let places = [RmaIov::new(mr.remote(8), 4), RmaIov::new(mr.remote(12), 4)];
    let op = Op::read(to_three, &pieces, Remote::default()).remote_iov(&places);
    one.ep.post_one(&op.context(3)).unwrap();
    one.next();
    assert_eq!(back.to_vec(..), b"ten!writ");
    // Outside the region: an error entry.
    one.ep.read(to_three, &back, mr.remote(60), 4).unwrap();
    assert!(matches!(one.cq.next(PATIENCE), Err(Error::Completion(_))));
    let _ = (two, to_two);
}

#[test]
#[ignore = "needs /dev/kfabric"]
fn registered_memory_is_used_by_operations() {
    let domain = domain();
    let (one, two) = (Peer::new(&domain), Peer::new(&domain));
    let to_two = one.addr_of(&two);
    let buffer = Buffer::from_bytes(b"0123456789").unwrap();
    let mr = domain
        .mr(&buffer)
        .access(Access::SEND | Access::RECV)
        .requested_key(7)
        .open()
        .unwrap();
    assert_eq!(mr.key(), 7);
    two.ep.recv(mr.slice(8..), 1).unwrap();
    one.ep.send(to_two, mr.slice(2..4), 2).unwrap();
    assert_eq!(two.next().len, 2);
    assert_eq!(buffer.to_vec(..), b"0123456723");
    let readable = domain
        .mr(&buffer)
        .access(Access::SEND)
        .requested_key(8)
        .open()
        .unwrap();
    refused(two.ep.recv(readable.slice(..), 3), Errno::EACCES);
}

#[test]
#[ignore = "needs /dev/kfabric"]
fn batches_and_partial_acceptance() {
    let domain = domain();
    let one = Peer::new(&domain);
    let small = domain.endpoint().rx_size(4).open().unwrap();
    small
        .bind_cq(&one.cq, CqBind::TRANSMIT | CqBind::RECV)
        .unwrap();
    small.bind_av(&one.av).unwrap();
    small.enable().unwrap();
    let buffer = Buffer::new(8).unwrap();
    let ops = vec![Op::recv(&buffer); 1000];
    let posted = small.post(&ops).unwrap();
    assert!(posted.done >= 4 && posted.done < 1000, "{posted:?}");
    assert_eq!(posted.error, Some(Errno::EAGAIN));
    refused(small.post(&ops), Errno::EAGAIN);
    refused(small.post(&[]), Errno::EINVAL);
}
