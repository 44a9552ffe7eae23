// SPDX-License-Identifier: GPL-2.0
//! Operations between two hosts: long ones, those that wait at their sender, and their counts.

use super::{LINKS, apart, exchange, sanitizing};
use crate::{
    counting::Counted,
    harness::tests,
    host::{
        Host, Options, READ, RECEIVED, REMOTE, SENT, SOON, TRECEIVED, TSENT, WROTE, buffer,
        holding, pair, pair_with, pattern, register, until,
    },
    raw::ip,
};
use kfi::{Access, CntrBind, Errno, Op, OpFlags, PacketCounter, Remote};
use std::time::Duration;

tests![
    a_long_message_arrives => 300,
    a_long_rma_arrives => 300,
    packets_are_counted,
    a_waiting_send_can_be_cancelled,
    a_flood_waits_at_its_sender,
    operations_continue_after_a_refused_one,
    counters_of_both_sides_count,
    a_long_read_counts_once => 300,
    all_operations_complete_under_heavy_loss => 300,
    operations_work_over_ipv6,
    hosts_with_different_mtus_exchange_messages,
];

/// Bytes of the longest message and piece of memory that go between hosts here: more packets than a
/// window of 65,536 has, which carry 1024 bytes each.
fn longest() -> usize {
    if sanitizing() { 4 << 20 } else { 68 << 20 }
}

fn a_long_message_arrives() {
    apart();
    let (a, _, b, to_a) = pair();
    let len = longest();
    let bytes = pattern(len, len as u64);
    let (ours, into) = (holding(&bytes), buffer(len));
    a.ep.trecv(&into, 7, 0, 2).expect("trecv");
    b.ep.tsend(to_a, &ours, 7, 1).expect("tsend");
    let entry = a.cq.next(SOON * 10).expect("completion").expect("in time");
    assert_eq!((entry.len as usize, entry.op_context), (len, 2));
    assert!(into.to_vec(..) == bytes, "length {len}");
    b.expect(TSENT, 1);
}

fn a_long_rma_arrives() {
    apart();
    let (a, to_b, b, _) = pair();
    let len = longest();
    let bytes = pattern(len, 7);
    let (ours, theirs) = (holding(&bytes), buffer(len));
    let _mr = register(&b.domain, &theirs, REMOTE, 1);
    let long = SOON * 10;
    let ends = |context| {
        let entry = a.cq.next(long).expect("completion").expect("in time");
        assert_eq!(entry.op_context, context);
    };
    a.ep.write(to_b, &ours, Remote::new(0, 1), 1)
        .expect("write");
    ends(1);
    assert!(theirs.to_vec(..) == bytes, "written");
    ours.fill(0);
    a.ep.read(to_b, &ours, Remote::new(0, 1), 2).expect("read");
    ends(2);
    assert!(ours.to_vec(..) == bytes, "read");
}

fn packets_are_counted() {
    let hosts = apart();
    let (a, to_b, b, _) = pair();
    let count = |index: usize, host: &Host, counter| hosts.host(index).run(|| host.count(counter));
    assert_eq!(count(0, &a, PacketCounter::TxPackets), 0);
    // Of 1024 bytes, at the path MTU of an Ethernet.
    exchange(&a, to_b, &b, 4 * 1024 - 200);
    assert!(count(0, &a, PacketCounter::TxPackets) >= 4);
    assert!(count(1, &b, PacketCounter::RxPackets) >= 4);
    assert!(count(1, &b, PacketCounter::RxBytes) >= 4 * 1024 - 200);
    until("an acknowledgement", || {
        count(0, &a, PacketCounter::AckRx) > 0 && count(1, &b, PacketCounter::AckTx) > 0
    });
    // The link keeps the counts of a connection that has ended.
    let before = count(0, &a, PacketCounter::TxPackets);
    drop(b);
    let into = buffer(8);
    a.ep.send(to_b, &into, 9).expect("send");
    a.failure();
    assert!(count(0, &a, PacketCounter::TxPackets) >= before);
}

fn a_waiting_send_can_be_cancelled() {
    apart();
    let (a, to_b, b, _) = pair();
    exchange(&a, to_b, &b, 8);
    for len in [8, 100_000] {
        let from = holding(&pattern(len, 1));
        let op = Op::send(to_b, &from)
            .context(5)
            .flags(OpFlags::DELIVERY_COMPLETE | OpFlags::COMPLETION);
        a.ep.post_one(&op).expect("send");
        std::thread::sleep(Duration::from_millis(50));
        a.ep.cancel(5).expect("cancel");
        a.fails(5, Errno::ECANCELED);
        // No part of it remains there.
        exchange(&a, to_b, &b, len);
        let none = Op::tpeek(0, u64::MAX).context(6);
        b.ep.post_one(&none).expect("peek");
        b.fails(6, Errno::ENOMSG);
    }
}

fn a_flood_waits_at_its_sender() {
    apart();
    let options = Options {
        tx_size: 512,
        cq_entries: 4096,
        rx_size: 64,
        buffered: 64 << 10,
        ..Options::default()
    };
    let (a, to_b, b, to_a) = pair_with(&options);
    let count = 300u64;
    let bytes = |number: u64| pattern(4000, number);
    for number in 0..count {
        let from = holding(&bytes(number));
        a.ep.send(to_b, &from, number).expect("send");
    }
    // Those that were buffered there are complete; the others wait.
    let mut done = 0;
    while let Some(entry) = a.cq.next(Duration::from_millis(300)).expect("next") {
        assert_eq!((entry.flags, entry.op_context), (SENT, done));
        done += 1;
    }
    assert!(done > 0 && done < 64, "{done} are done");
    // The other direction continues meanwhile, and so do answers of the flooded endpoint.
    let into = buffer(100_000);
    let back = holding(&pattern(100_000, 1));
    for len in [100, 100_000] {
        a.ep.trecv(&into, 7, 0, 1000).expect("trecv");
        b.ep.tsend(to_a, back.slice(..len), 7, 1001).expect("tsend");
        b.expect(TSENT, 1001);
        a.expect(TRECEIVED, 1000);
        assert!(into.to_vec(..len) == back.to_vec(..len));
    }
    for number in 0..count {
        b.ep.recv(&into, number).expect("recv");
        b.expect(RECEIVED, number);
        assert!(into.to_vec(..4000) == bytes(number), "message {number}");
    }
    for number in done..count {
        a.expect(SENT, number);
    }
}

fn operations_continue_after_a_refused_one() {
    apart();
    let (a, to_b, b, _) = pair();
    let theirs = buffer(64);
    let mr = register(&b.domain, &theirs, Access::REMOTE_READ, 3);
    let ours = buffer(8);
    for (remote, write) in [
        (Remote::new(0, 4), false),
        (Remote::new(60, 3), false),
        (Remote::new(0, 3), true),
        (Remote::new(0, 1 << 40), false),
    ] {
        if write {
            a.ep.write(to_b, &ours, remote, 1).expect("write");
        } else {
            a.ep.read(to_b, &ours, remote, 1).expect("read");
        }
        a.fails(1, Errno::EACCES);
        a.ep.read(to_b, &ours, Remote::new(8, mr.key()), 2)
            .expect("read");
        a.expect(READ, 2);
    }
    assert_eq!(theirs.to_vec(..), [0; 64]);
}

fn counters_of_both_sides_count() {
    let hosts = apart();
    let kinds = [
        CntrBind::SEND,
        CntrBind::RECV,
        CntrBind::WRITE,
        CntrBind::REMOTE_WRITE,
    ];
    let [(a, at_a), (b, at_b)] =
        [0, 1].map(|index| Host::counting(&hosts.domain(index).1, &Options::default(), kinds));
    let to_b = a.meet(&b);
    let mr = register(&b.domain, &buffer(4096), Access::REMOTE_WRITE, 1);
    let region = b.domain.cntr().open().expect("cntr");
    mr.bind_cntr(&region, CntrBind::REMOTE_WRITE).expect("bind");
    let from = buffer(10);
    for number in 0..10 {
        exchange(&a, to_b, &b, number * 2000);
        a.ep.write(to_b, from.slice(..=number), mr.remote(0), 3)
            .expect("write");
        a.expect(WROTE, 3);
    }
    let counted = [&at_a[0], &at_b[1], &at_a[2], &at_b[3], &region];
    until("counted", || counted.iter().all(|cntr| cntr.value() == 10));
}

/// It takes several requests on the wire.
fn a_long_read_counts_once() {
    const LEN: usize = 4 << 20;
    apart();
    let (a, b) = (Counted::new(), Counted::new());
    let to_b = a.meet(&b);
    let (mr, at_region) = b.counted_region(LEN, 1);
    let into = buffer(LEN);
    let counts = || (b.counters[4].value(), at_region.value());
    for number in 1..=3 {
        a.ep.read(to_b, &into, mr.remote(0), 2).expect("read");
        a.expect(READ, 2);
        until("counted", || counts().0 >= number && counts().1 >= number);
        assert_eq!(counts(), (number, number));
    }
    // No completion follows.
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(counts(), (3, 3));
}

fn all_operations_complete_under_heavy_loss() {
    let hosts = apart();
    // With this loss each window is small, and a slow machine needs smaller transfers.
    for (netem, longest) in [
        ("loss 0.1% duplicate 0.1%", 1 << 20),
        (
            "delay 1ms 1ms loss 1% duplicate 1% reorder 10% 50%",
            1 << 20,
        ),
        ("loss 10% duplicate 2%", 100_000),
    ] {
        hosts.network(netem);
        let (a, to_b, b, to_a) = pair();
        for len in [0, 1, 256, 4096, 8192, 8193, 50_000, longest] {
            exchange(&a, to_b, &b, len);
            exchange(&b, to_a, &a, len);
        }
        let theirs = buffer(longest);
        let mr = register(&b.domain, &theirs, REMOTE, 1);
        let bytes = pattern(longest, 5);
        let ours = holding(&bytes);
        a.ep.write(to_b, &ours, Remote::new(0, mr.key()), 1)
            .expect("write");
        a.expect(WROTE, 1);
        assert!(theirs.to_vec(..) == bytes);
        let back = buffer(longest);
        a.ep.read(to_b, &back, Remote::new(0, mr.key()), 2)
            .expect("read");
        a.expect(READ, 2);
        assert!(back.to_vec(..) == bytes);
    }
    hosts.network("loss 0%");
}

fn operations_work_over_ipv6() {
    let hosts = apart();
    let open = |index: usize| {
        let (_, domain) = hosts.domain(index);
        let addr = format!("[fd07::{}]:0", index + 1).parse().expect("address");
        Host::at(&domain, &Options::default(), Some(addr))
    };
    let (a, b) = (open(0), open(1));
    let (to_b, to_a) = (a.meet(&b), b.meet(&a));
    for len in [0, 100, 100_000] {
        exchange(&a, to_b, &b, len);
        exchange(&b, to_a, &a, len);
    }
}

/// Each end takes the lesser values of both, whichever connects; longer packets would be lost.
fn hosts_with_different_mtus_exchange_messages() {
    let hosts = apart();
    for mtus in [[9000, 1500], [1500, 9000], [600, 9000]] {
        for (index, mtu) in mtus.into_iter().enumerate() {
            let name = LINKS[index];
            hosts
                .host(index)
                .run(|| ip(&format!("link set {name} mtu {mtu}")));
        }
        let (a, to_b, b, to_a) = pair();
        exchange(&a, to_b, &b, 100_000);
        exchange(&b, to_a, &a, 100_000);
    }
}
