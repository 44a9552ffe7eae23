// SPDX-License-Identifier: GPL-2.0
//! The library against the module: needs /dev/kfabric and, for the link,
//! CAP_NET_ADMIN.
//!
//! Ignored by a plain `cargo test`; the guest runs them with `--ignored`.  Each
//! test takes what it needs from a link on `lo`, which the first one makes.

use std::{
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use kfi::{
    Access, Av, AvKind, Buffer, Caps, CntrBind, CompFlags, Cq, CqBind, CqFormat, Deadline, Device,
    Domain, Endpoint, Entry, EpType, Errno, Error, EventKind, Fabric, FiAddr, Figures, Hints,
    IoVec, LinkState, Local, MrMode, Op, OpFlags, Remote, Result, RmaIov, Side, StatClass, Values,
    Wait,
    abi::{self, Call},
};

const LINK: &str = "kfi0";
const PATIENCE: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(30);

fn device() -> Device {
    let device = Device::open().expect("the module is loaded");
    match device.link_add(LINK, "lo") {
        Ok(()) => (),
        Err(error) if error.is(Errno::EEXIST) => (),
        Err(error) => panic!("{error}"),
    }
    device
}

fn fabric() -> Fabric {
    device().fabric().unwrap()
}

fn domain() -> Domain {
    fabric().domain(LINK).open().unwrap()
}

/// An enabled endpoint with its queue and addresses.
struct Peer {
    ep: Endpoint,
    cq: Cq,
    av: Av,
}

impl Peer {
    fn new(domain: &Domain) -> Self {
        Self::with(domain, CqBind::TRANSMIT | CqBind::RECV, |_| ())
    }

    fn with(domain: &Domain, bind: CqBind, more: impl FnOnce(&Endpoint)) -> Self {
        let cq = domain
            .cq()
            .entries(64)
            .format(CqFormat::Tagged)
            .wait(Wait::Queue)
            .open()
            .unwrap();
        let av = domain.av().kind(AvKind::Table).open().unwrap();
        let caps = Caps::MSG
            | Caps::TAGGED
            | Caps::RMA
            | Caps::SOURCE
            | Caps::DIRECTED_RECV
            | Caps::MULTI_RECV;
        let ep = domain.endpoint().caps(caps).open().unwrap();
        ep.bind_cq(&cq, bind).unwrap();
        ep.bind_av(&av).unwrap();
        more(&ep);
        ep.enable().unwrap();
        Self { ep, cq, av }
    }

    fn addr_of(&self, peer: &Peer) -> FiAddr {
        self.av.insert_one(peer.ep.name().unwrap()).unwrap()
    }

    fn next(&self) -> Entry {
        self.cq.next(PATIENCE).unwrap().expect("a completion")
    }
}

fn pair() -> (Peer, Peer, FiAddr, FiAddr) {
    let domain = domain();
    let (one, two) = (Peer::new(&domain), Peer::new(&domain));
    let (to_two, to_one) = (one.addr_of(&two), two.addr_of(&one));
    (one, two, to_two, to_one)
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T>, errno: Errno) {
    let error = result.expect_err("it is refused");
    assert!(error.is(errno), "{error}");
}

#[test]
#[ignore = "needs /dev/kfabric"]
fn query_and_nop() {
    let device = device();
    let query = device.query().unwrap();
    assert_eq!(query.abi_version, abi::KFABRIC_ABI_VERSION);
    assert_eq!(query.page_size as usize, rustix::param::page_size());
    assert!(
        query
            .caps
            .contains(Caps::MSG | Caps::TAGGED | Caps::RMA | Caps::ATOMIC)
    );
    device.nop().unwrap();
}

#[test]
#[ignore = "needs /dev/kfabric"]
fn links() {
    let device = device();
    let link = device
        .links()
        .map(Result::unwrap)
        .find(|link| link.name == LINK)
        .expect("the link is listed");
    assert_eq!(link.netdev, "lo");
    assert_eq!(link.state, LinkState::Up);
    assert_eq!(link.ipv4, Some("127.0.0.1:0".parse().unwrap()));
    refused(device.link_add(LINK, "lo"), Errno::EEXIST);
    refused(device.link_add("other", "nowhere"), Errno::ENODEV);
    refused(device.link_del("nowhere"), Errno::ENODEV);
    assert!(matches!(
        device.link_add("a-name-that-is-too-long", "lo"),
        Err(Error::Name { .. })
    ));
}

#[test]
#[ignore = "needs /dev/kfabric"]
fn getinfo() {
    let device = device();
    let hints = Hints::new()
        .caps(Caps::MSG)
        .ep_type(EpType::Rdm)
        .domain_name(LINK);
    let infos = device.getinfo(&hints).unwrap();
    assert!(!infos.is_empty());
    for info in &infos {
        assert_eq!(info.domain_name, LINK);
        assert_eq!(info.ep_type, EpType::Rdm);
        assert!(info.caps.contains(Caps::MSG));
    }
    refused(
        device.getinfo(&Hints::new().domain_name("nowhere")),
        Errno::ENODATA,
    );
}

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
fn peek_claim_discard() {
    let (one, two, to_two, _) = pair();
    // Nothing there: an error entry, which `next` reads.
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
    // A region of another domain object on the same link is not the peer's.
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
    // Silent, so a write that is not follows, which comes after it.
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
    // Out of the region: an error entry.
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

#[test]
#[ignore = "needs /dev/kfabric"]
fn every_format_is_unpacked() {
    let domain = domain();
    for format in [
        CqFormat::Context,
        CqFormat::Msg,
        CqFormat::Data,
        CqFormat::Tagged,
    ] {
        let cq = domain.cq().entries(16).format(format).open().unwrap();
        assert_eq!((cq.format(), cq.entries()), (format, 16));
        let av = domain.av().kind(AvKind::Table).open().unwrap();
        let caps = Caps::TAGGED | Caps::SOURCE;
        let ep = domain.endpoint().caps(caps).open().unwrap();
        ep.bind_cq(&cq, CqBind::TRANSMIT | CqBind::RECV | CqBind::SELECTIVE)
            .unwrap();
        ep.bind_av(&av).unwrap();
        ep.enable().unwrap();
        let me = av.insert_one(ep.name().unwrap()).unwrap();
        let buffer = Buffer::new(8).unwrap();
        for n in 1..=3 {
            let recv = Op::trecv(&buffer, n, 0).flags(OpFlags::COMPLETION);
            ep.post_one(&recv.context(n)).unwrap();
            let data = [0u8; 3];
            ep.post_one(&Op::tinject(me, &data, n).data(10 + n).explicit())
                .unwrap();
        }
        let mut out = [Entry::default(); 8];
        let mut from = [FiAddr(55); 8];
        assert_eq!(cq.readfrom(&mut out, &mut from).unwrap(), 3, "{format}");
        for (n, (entry, from)) in (1..).zip(out.iter().zip(from).take(3)) {
            let raw = format.raw();
            assert_eq!(entry.op_context, n, "{format}");
            assert_eq!((entry.src_addr, from), (me, me), "{format}");
            let len = if raw >= abi::KFI_CQ_FORMAT_MSG { 3 } else { 0 };
            assert_eq!(entry.len, len, "{format}");
            assert_eq!(entry.flags.is_empty(), len == 0, "{format}");
            let data = if raw >= abi::KFI_CQ_FORMAT_DATA {
                10 + n
            } else {
                0
            };
            assert_eq!(entry.data, data, "{format}");
            let tag = if raw >= abi::KFI_CQ_FORMAT_TAGGED {
                n
            } else {
                0
            };
            assert_eq!(entry.tag, tag, "{format}");
        }
        assert_eq!(from[3], FiAddr(55), "{format}");
    }
}

#[test]
#[ignore = "needs /dev/kfabric"]
fn cq_waits() {
    let (one, two, to_two, _) = pair();
    let start = Instant::now();
    let mut out = [Entry::default(); 4];
    assert_eq!(one.cq.read(&mut out).unwrap(), 0);
    assert_eq!(one.cq.sread(&mut out, SHORT).unwrap(), 0);
    assert!(!one.cq.wait(SHORT).unwrap());
    assert!(start.elapsed() >= 2 * SHORT);
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| one.cq.wait(PATIENCE).unwrap());
        thread::sleep(SHORT);
        one.ep.send(to_two, Local::empty(), 1).unwrap();
        assert!(sleeper.join().unwrap());
    });
    assert_eq!(one.cq.read(&mut out).unwrap(), 1);
    // A signal ends a sleep with nothing.
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            let start = Instant::now();
            let mut out = [Entry::default()];
            (two.cq.sread(&mut out, PATIENCE).unwrap(), start.elapsed())
        });
        thread::sleep(SHORT);
        two.cq.signal().unwrap();
        let (count, time) = sleeper.join().unwrap();
        assert!(count == 0 && time < PATIENCE);
    });
    let polled = domain().cq().wait(Wait::None).open().unwrap();
    refused(polled.sread(&mut out, SHORT), Errno::EINVAL);
    refused(polled.wait_fd(), Errno::EINVAL);
    refused(polled.signal(), Errno::EINVAL);
    refused(one.cq.sread_cond(&mut out, 2, SHORT), Errno::EINVAL);
}

#[test]
#[ignore = "needs /dev/kfabric"]
fn cq_waits_for_a_number() {
    let domain = domain();
    let cq = domain.cq().wait(Wait::Queue).threshold_cond();
    let cq = cq.open().unwrap();
    let av = domain.av().kind(AvKind::Table).open().unwrap();
    let ep = domain.endpoint().caps(Caps::MSG).open().unwrap();
    ep.bind_cq(&cq, CqBind::TRANSMIT | CqBind::RECV).unwrap();
    ep.bind_av(&av).unwrap();
    ep.enable().unwrap();
    let myself = av.insert_one(ep.name().unwrap()).unwrap();
    assert!(!cq.wait_cond(2, SHORT).unwrap());
    ep.send(myself, Local::empty(), 1).unwrap();
    assert!(cq.wait_cond(1, Deadline::FOREVER).unwrap());
    let start = Instant::now();
    assert!(cq.wait_cond(2, SHORT).unwrap());
    assert!(start.elapsed() >= SHORT);
    ep.send(myself, Local::empty(), 2).unwrap();
    assert!(cq.wait_cond(2, Deadline::FOREVER).unwrap());
    // Nothing was taken.
    let mut out = [Entry::default(); 4];
    assert_eq!(cq.read(&mut out).unwrap(), 2);
    let (one, ..) = pair();
    refused(one.cq.wait_cond(2, SHORT), Errno::EINVAL);
}

#[test]
#[ignore = "needs /dev/kfabric"]
fn cq_descriptor() {
    let (one, _two, to_two, _) = pair();
    let fd = one.cq.wait_fd().unwrap();
    assert!(!fd.wait(Deadline::POLL).unwrap());
    one.ep.send(to_two, Local::empty(), 1).unwrap();
    assert!(fd.wait(PATIENCE).unwrap());
    one.next();
    assert!(!fd.wait(Deadline::POLL).unwrap());
}

#[test]
#[ignore = "needs /dev/kfabric"]
fn ring() {
    let (one, two, to_two, to_one) = pair();
    let mut ring = two.cq.ring().unwrap();
    assert!(matches!(two.cq.ring(), Err(Error::RingTaken)));
    assert_eq!((ring.len(), ring.capacity()), (0, 64));
    let buffer = Buffer::new(8).unwrap();
    let mut out = [Entry::default(); 4];
    for round in 0..200u64 {
        two.ep.recv(&buffer, round).unwrap();
        one.ep
            .post_one(&Op::inject(to_two, b"abc").data(round))
            .unwrap();
        assert_eq!(ring.sread(&mut out, PATIENCE).unwrap(), 1);
        assert_eq!(
            (out[0].op_context, out[0].len, out[0].data),
            (round, 3, round)
        );
        assert_eq!(out[0].src_addr, to_one);
    }
    assert_eq!(ring.read(&mut out).unwrap(), 0);
    assert_eq!(ring.sread(&mut out, SHORT).unwrap(), 0);
    // Reading by call goes on where the ring ended.
    two.ep.recv(&buffer, 1000).unwrap();
    one.ep.inject(to_two, b"abc").unwrap();
    assert_eq!(two.next().op_context, 1000);
    assert!(ring.is_empty());
    // Errors come first.
    two.ep.recv(&buffer, 5).unwrap();
    two.ep.cancel(5).unwrap();
    assert_eq!(ring.errors(), 1);
    assert!(ring.read(&mut out).unwrap_err().is_eavail());
    assert!(two.cq.readerr().unwrap().is_some());
    assert_eq!(ring.read(&mut out).unwrap(), 0);
    drop(ring);
    drop(two.cq.ring().unwrap());
}

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
fn counters_count_operations() {
    let domain = domain();
    let (sends, recvs) = (domain.cntr().open().unwrap(), domain.cntr().open().unwrap());
    let both = CqBind::TRANSMIT | CqBind::RECV;
    let one = Peer::with(&domain, both, |ep| {
        ep.bind_cntr(&sends, CntrBind::SEND).unwrap();
        ep.bind_cntr(&recvs, CntrBind::RECV).unwrap();
        refused(ep.bind_cntr(&recvs, CntrBind::SEND), Errno::EINVAL);
    });
    let me = one.addr_of(&one);
    let buffer = Buffer::new(8).unwrap();
    for n in 1..=5 {
        one.ep.recv(&buffer, 0).unwrap();
        one.ep.inject(me, b"x").unwrap();
        sends.wait(n, PATIENCE).unwrap();
        recvs.wait(n, PATIENCE).unwrap();
    }
    assert_eq!((sends.value(), recvs.value()), (5, 5));
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

#[test]
#[ignore = "needs /dev/kfabric"]
fn statistics() {
    let device = device();
    let domain = device.fabric().unwrap().domain(LINK).open().unwrap();
    let one = Peer::new(&domain);
    let cntr = domain.cntr().open().unwrap();
    cntr.add(42).unwrap();
    // Other tests of this process may have the same handles in their files.
    let shown = |class, handle: u32, like: &dyn Fn(Figures) -> bool| {
        device.stats(class).map(Result::unwrap).any(|stat| {
            stat.pid == Some(std::process::id())
                && stat.handle == handle
                && stat.link == LINK
                && like(stat.figures)
        })
    };
    assert!(shown(StatClass::Cntr, cntr.handle(), &|figures| matches!(
        figures,
        Figures::Cntr {
            value: 42,
            err: 0,
            threshold: None,
            ..
        }
    )));
    assert!(shown(StatClass::Cq, one.cq.handle(), &|figures| matches!(
        figures,
        Figures::Cq {
            size: 64,
            queued: 0,
            ..
        }
    )));
    let name = one.ep.name().ok();
    assert!(shown(
        StatClass::Endpoint,
        one.ep.handle(),
        &|figures| matches!(
            figures,
            Figures::Endpoint { addr, tx_ops: 0, .. } if addr == name
        )
    ));
}

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

/// However objects are dropped, all are closed: the domain's link says so.
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

/// A buffer may go while an operation uses it: its pages stay with the kernel,
/// and what has its address next is not touched.
#[test]
#[ignore = "needs /dev/kfabric"]
fn a_buffer_may_go_before_its_operation() {
    let (one, two, to_two, _) = pair();
    let buffer = Buffer::new(4096).unwrap();
    let addr = buffer.addr();
    two.ep.recv(&buffer, 1).unwrap();
    drop(buffer);
    let next = Buffer::new(4096).unwrap();
    one.ep.inject(to_two, b"late").unwrap();
    assert_eq!(two.next().len, 4);
    assert_eq!(next.to_vec(..), [0; 4096]);
    // The same address, most likely: that is what makes the test one.
    println!("{addr:#x} {:#x}", next.addr());
}
