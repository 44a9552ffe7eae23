// SPDX-License-Identifier: GPL-2.0
//! Completion queues: formats, waiting, rings.

use super::{PATIENCE, SHORT, domain, pair, refused};
use kfi::{
    AvKind, Buffer, Caps, CqBind, CqFormat, Deadline, Entry, Errno, Error, FiAddr, Local, Op,
    OpFlags, Wait, abi,
};
use std::{thread, time::Instant};

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
    // A signal ends a sleep without completions.
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
    // Without the condition the number is ignored.
    assert_eq!(one.cq.sread_cond(&mut out, 2, SHORT).unwrap(), 0);
}

#[test]
#[ignore = "needs /dev/kfabric"]
fn a_cq_wait_can_wait_for_several_completions() {
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
    // Without a wait condition the number is ignored: one completion is enough.
    let (one, ..) = pair();
    assert!(!one.cq.wait_cond(2, SHORT).unwrap());
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
    // Reading by call continues where the ring ended.
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
