// SPDX-License-Identifier: GPL-2.0
//! Operations, and their completions.

use super::{LINK, PATIENCE, Peer, device, domain, fabric, pair, refused};
use kfi::{
    Access, Buffer, CompFlags, CqBind, Deadline, Entry, Errno, Error, IoVec, Local, MrMode, Op,
    OpFlags, Remote, RmaIov, Side,
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
fn tagged_messages() {
    let (one, two, to_two, _) = pair();
    let (a, b) = (Buffer::new(8).unwrap(), Buffer::new(8).unwrap());
    two.ep.trecv(&a, 0x10, 0xf, 1).unwrap();
    two.ep.trecv(&b, 0x20, 0, 2).unwrap();
    one.ep.tinject(to_two, b"b", 0x20).unwrap();
    one.ep.tinject(to_two, b"a", 0x17).unwrap();
    let (first, second) = (two.next(), two.next());
    assert_eq!((first.op_context, first.tag), (2, 0x20));
    assert_eq!((second.op_context, second.tag), (1, 0x17));
    assert_eq!(
        (a.to_vec(..1), b.to_vec(..1)),
        (b"a".to_vec(), b"b".to_vec())
    );
}

#[test]
#[ignore = "needs /dev/kfabric"]
fn a_peek_can_claim_or_discard_a_message() {
    let (one, two, to_two, _) = pair();
    // No message: an error entry, which `next` reads.
    two.ep.post_one(&Op::tpeek(5, 0).context(1)).unwrap();
    let Err(Error::Completion(none)) = two.cq.next(PATIENCE) else {
        panic!("nothing was there to peek at");
    };
    assert_eq!((none.op_context, none.err), (1, Errno::ENOMSG));
    one.ep.tinject(to_two, b"five", 5).unwrap();
    let claim = Op::tpeek(5, 0).flags(OpFlags::CLAIM).context(2);
    two.ep.post_one(&claim).unwrap();
    let found = two.next();
    assert_eq!((found.op_context, found.len, found.tag), (2, 4, 5));
    let into = Buffer::new(8).unwrap();
    let take = Op::trecv(&into, 5, 0).flags(OpFlags::CLAIM).context(2);
    two.ep.post_one(&take).unwrap();
    assert_eq!(two.next().len, 4);
    assert_eq!(into.to_vec(..4), b"five");
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
fn multi_receive() {
    let (one, two, to_two, _) = pair();
    two.ep.set_min_multi_recv(4).unwrap();
    assert_eq!(two.ep.min_multi_recv().unwrap(), 4);
    let buffer = Buffer::new(10).unwrap();
    two.ep
        .post_one(&Op::multi_recv(&buffer).context(1))
        .unwrap();
    for _ in 0..2 {
        one.ep.inject(to_two, b"four").unwrap();
    }
    let (first, second) = (two.next(), two.next());
    assert_eq!(first.buf, buffer.addr());
    assert_eq!(second.buf, buffer.addr() + 4);
    assert!(!first.flags.contains(CompFlags::MULTI_RECV));
    assert!(second.flags.contains(CompFlags::MULTI_RECV), "{second:?}");
}

#[test]
#[ignore = "needs /dev/kfabric"]
fn truncation_is_an_error_entry() {
    let (one, two, to_two, _) = pair();
    let into = Buffer::new(2).unwrap();
    two.ep.recv(&into, 1).unwrap();
    one.ep.inject(to_two, b"hello").unwrap();
    let mut out = [Entry::default()];
    assert!(two.cq.sread(&mut out, PATIENCE).unwrap_err().is_eavail());
    let failed = two.cq.readerr().unwrap().expect("an error entry");
    assert_eq!((failed.op_context, failed.olen), (1, 3));
    assert_eq!(two.cq.readerr().unwrap(), None);
    assert!(!two.cq.strerror(failed.prov_errno).unwrap().is_empty());
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

#[test]
#[ignore = "needs /dev/kfabric"]
fn cancel() {
    let (one, ..) = pair();
    let buffer = Buffer::new(8).unwrap();
    one.ep.recv(&buffer, 77).unwrap();
    one.ep.cancel(77).unwrap();
    match one.cq.next(PATIENCE) {
        Err(Error::Completion(failed)) => {
            assert_eq!((failed.op_context, failed.err), (77, Errno::ECANCELED));
        }
        other => panic!("{other:?}"),
    }
    refused(one.ep.cancel(77), Errno::ENOENT);
}

#[test]
#[ignore = "needs /dev/kfabric"]
fn default_op_flags() {
    let domain = domain();
    let bind = CqBind::TRANSMIT | CqBind::RECV | CqBind::SELECTIVE;
    let one = Peer::with(&domain, bind, |_| ());
    one.ep
        .set_op_flags(Side::Transmit, OpFlags::TRANSMIT_COMPLETE)
        .unwrap();
    assert_eq!(
        one.ep.op_flags(Side::Transmit).unwrap(),
        OpFlags::TRANSMIT_COMPLETE
    );
    let me = one.addr_of(&one);
    one.ep.inject(me, b"silent").unwrap();
    let loud = Op::inject(me, b"loud")
        .flags(OpFlags::COMPLETION)
        .context(1);
    one.ep.post_one(&loud).unwrap();
    assert_eq!(one.next().op_context, 1);
    assert_eq!(one.cq.next(Deadline::POLL).unwrap(), None);
}
