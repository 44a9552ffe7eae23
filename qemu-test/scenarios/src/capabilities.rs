// SPDX-License-Identifier: GPL-2.0
//! Capabilities, default flags and options of endpoints.

use crate::{
    harness::tests,
    host::{Host, Options, RECEIVED, SENT, buffer, domain, errno, is_refused, pair_with, register},
};
use kfi::{Access, Buffer, Caps, CompFlags, EpType, Errno, FiAddr, Op, OpFlags, Remote, Side};

tests![
    default_flags_are_kept_and_take_effect,
    options_are_kept,
    endpoints_have_the_requested_capabilities,
    a_directed_receive_takes_messages_of_its_source_only,
    without_the_capability_a_source_is_ignored,
];

fn default_flags_are_kept_and_take_effect() {
    let (a, to_b, b, _) = pair_with(&Options {
        tx_op_flags: OpFlags::DELIVERY_COMPLETE,
        ..Options::default()
    });
    assert_eq!(
        a.ep.op_flags(Side::Transmit).expect("flags"),
        OpFlags::DELIVERY_COMPLETE
    );
    assert_eq!(a.ep.op_flags(Side::Recv).expect("flags"), OpFlags::empty());
    let (ours, theirs) = (buffer(8), buffer(8));
    a.ep.send(to_b, &ours, 1).expect("send");
    a.expect_nothing();
    b.ep.recv(&theirs, 2).expect("recv");
    a.expect(SENT, 1);
    b.expect(RECEIVED, 2);
    // With explicit flags the defaults do not apply.
    a.ep.post_one(&Op::send(to_b, &ours).explicit().context(3))
        .expect("send");
    a.expect(SENT, 3);
    // The default changes while the endpoint exists; an injected operation has its limit
    // then, whichever function posts it.
    let flags = OpFlags::INJECT | OpFlags::COMPLETION;
    a.ep.set_op_flags(Side::Transmit, flags).expect("set");
    assert_eq!(a.ep.op_flags(Side::Transmit).expect("flags"), flags);
    let large = buffer(257);
    is_refused(a.ep.send(to_b, &large, 4), Errno::EMSGSIZE);
    a.ep.post_one(&Op::send(to_b, &large).explicit().context(5))
        .expect("send");
    a.expect(SENT, 5);
    a.ep.send(to_b, &ours, 6).expect("send");
    a.expect(SENT, 6);
    // Defaults of another kind do not apply to a read, which cannot be injected.
    let mr = register(&b.domain, &theirs, Access::REMOTE_READ, 0);
    a.ep.read(to_b, large.slice(..8), mr.remote(0), 7)
        .expect("read");
    a.expect(CompFlags::RMA | CompFlags::READ, 7);
    for (side, flags) in [
        (Side::Transmit, OpFlags::MULTI_RECV),
        (Side::Transmit, OpFlags::FENCE),
        (Side::Transmit, OpFlags::REMOTE_CQ_DATA),
        (Side::Recv, OpFlags::INJECT),
        (Side::Recv, OpFlags::PEEK),
        (Side::Recv, OpFlags::from_bits_retain(1)),
    ] {
        assert_eq!(
            errno(a.ep.set_op_flags(side, flags)),
            Some(Errno::EINVAL),
            "{flags:?}"
        );
    }
    assert_eq!(a.ep.op_flags(Side::Transmit).expect("flags"), flags);
    // Receives: every buffer can take several messages.
    b.ep.set_op_flags(Side::Recv, OpFlags::MULTI_RECV)
        .expect("set");
    let into = buffer(1000);
    while b.ep.cancel(0).is_ok() {}
    let c = Host::new();
    let to_b = c.meet(&b);
    drain(&b);
    b.ep.recv(&into, 9).expect("recv");
    for _ in 0..3 {
        c.ep.inject(to_b, b"several").expect("inject");
        assert_eq!(b.completion().op_context, 9);
    }
}

/// Receives the messages that wait at a host, and drops them.
fn drain(host: &Host) {
    let into = buffer(4096);
    loop {
        let receive = Op::recv(&into).explicit().context(u64::MAX);
        host.ep.post_one(&receive).expect("recv");
        let mut entry = [kfi::Entry::default()];
        if host.cq.read(&mut entry).expect("read") == 0 {
            host.ep.cancel(u64::MAX).expect("cancel");
            host.cq
                .readerr()
                .expect("readerr")
                .expect("the cancelled one");
            return;
        }
    }
}

fn options_are_kept() {
    let host = Host::new();
    let default = host.ep.min_multi_recv().expect("get");
    assert!(default > 0);
    for bytes in [0, 1, 4096, u64::MAX] {
        host.ep.set_min_multi_recv(bytes).expect("set");
        assert_eq!(host.ep.min_multi_recv().expect("get"), bytes);
    }
    // Buffers that were posted before keep their old minimum.
    let other = Host::new();
    let there = other.meet(&host);
    let into = buffer(100);
    host.ep.set_min_multi_recv(50).expect("set");
    host.ep
        .post_one(&Op::multi_recv(&into).context(1))
        .expect("recv");
    host.ep.set_min_multi_recv(1).expect("set");
    other.ep.inject(there, &[0; 51]).expect("inject");
    host.expect(RECEIVED | CompFlags::MULTI_RECV, 1);
}

fn endpoints_have_the_requested_capabilities() {
    let (_, domain) = domain();
    let with = |caps| Host::on(&domain, &Options::of(EpType::Rdm, caps));
    let buffer = Buffer::new(8).expect("buffer");
    let nowhere = Remote::new(0, 1);
    let not_there = Some(Errno::EOPNOTSUPP);
    let sender = with(Caps::MSG | Caps::SEND);
    let receiver = with(Caps::TAGGED | Caps::RECV);
    let writer = with(Caps::RMA | Caps::WRITE);
    let me = sender.meet(&sender);
    assert_eq!(errno(sender.ep.recv(&buffer, 0)), not_there);
    assert_eq!(errno(sender.ep.tsend(me, &buffer, 0, 0)), not_there);
    assert_eq!(errno(sender.ep.write(me, &buffer, nowhere, 0)), not_there);
    assert_eq!(errno(receiver.ep.recv(&buffer, 0)), not_there);
    assert_eq!(errno(receiver.ep.tinject(FiAddr(0), b"x", 0)), not_there);
    let me = writer.meet(&writer);
    assert_eq!(errno(writer.ep.read(me, &buffer, nowhere, 0)), not_there);
    let multi = Op::multi_recv(&buffer);
    assert_eq!(errno(with(Caps::MSG).ep.post_one(&multi)), not_there);
    // A capability that the peer does not have: the completion has the error.
    let to_receiver = sender.meet(&receiver);
    sender.ep.send(to_receiver, &buffer, 5).expect("send");
    let entry = sender.cq.readerr().expect("readerr").expect("an error");
    assert_eq!((entry.op_context, entry.err), (5, Errno::EREMOTEIO));
    let to_sender = writer.meet(&sender);
    writer
        .ep
        .write(to_sender, &buffer, nowhere, 6)
        .expect("write");
    let entry = writer.cq.readerr().expect("readerr").expect("an error");
    assert_eq!((entry.op_context, entry.err), (6, Errno::EACCES));
}

fn a_directed_receive_takes_messages_of_its_source_only() {
    let b = Host::new();
    let [one, two, stranger] = [(); 3].map(|()| Host::new());
    let (from_one, from_two) = (b.meet(&one), b.meet(&two));
    let to_b = [&one, &two, &stranger].map(|host| host.meet(&b));
    let into = buffer(64);
    let receive = |from: FiAddr, context| {
        b.ep.post_one(&Op::recv(&into).from(from).context(context))
            .expect("recv");
    };
    receive(from_two, 2);
    receive(from_one, 1);
    receive(FiAddr::UNSPEC, 0);
    // A receive from one sender gets the second message. The stranger's message, the third,
    // goes to a receive from any sender.
    one.ep.inject(to_b[0], b"one").expect("inject");
    assert_eq!(b.completion().op_context, 1);
    one.ep.inject(to_b[0], b"one").expect("inject");
    assert_eq!(b.completion().op_context, 0);
    stranger.ep.inject(to_b[2], b"stranger").expect("inject");
    b.expect_nothing();
    two.ep.inject(to_b[1], b"two").expect("inject");
    assert_eq!(b.completion().op_context, 2);
    // Messages that came first: each receive finds its own, tagged ones by tag and source.
    for (host, to_b) in [(&one, to_b[0]), (&two, to_b[1])] {
        for tag in [5, 6] {
            host.ep.tinject(to_b, b"x", tag).expect("inject");
        }
    }
    let trecv = |from: FiAddr, tag, context| {
        let op = Op::trecv(&into, tag, 0).from(from).context(context);
        b.ep.post_one(&op).expect("trecv");
        let entry = b.completion();
        (entry.op_context, entry.tag, entry.src_addr)
    };
    assert_eq!(trecv(from_two, 6, 10), (10, 6, from_two));
    assert_eq!(trecv(from_one, 6, 11), (11, 6, from_one));
    assert_eq!(trecv(from_two, 5, 12), (12, 5, from_two));
    assert_eq!(trecv(FiAddr::UNSPEC, 5, 13), (13, 5, from_one));
    let unknown = Op::recv(&into).from(FiAddr(99));
    is_refused(b.ep.post_one(&unknown), Errno::ENOENT);
}

fn without_the_capability_a_source_is_ignored() {
    let (a, to_b, b, _) = pair_with(&Options::of(EpType::Rdm, Caps::MSG));
    let into = buffer(8);
    b.ep.post_one(&Op::recv(&into).from(FiAddr(99)).context(1))
        .expect("recv");
    a.ep.inject(to_b, b"x").expect("inject");
    b.expect(RECEIVED, 1);
}
