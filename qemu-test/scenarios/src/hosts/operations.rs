// SPDX-License-Identifier: GPL-2.0
//! Operations between two hosts: long ones, those that wait at their sender, and their counts.

use super::{
    LINKS, READ, RECEIVED, SENT, TRECEIVED, TSENT, WROTE, apart, exchange, fails, sanitizing,
};
use crate::{
    counting::pieces_count_once,
    harness::tests,
    host::{Host, Options, SOON, pair, pair_with, pattern, until},
    raw::ip,
};
use kfi::{
    Access, Buffer, Cntr, CntrBind, CqBind, Entry, Errno, FiAddr, Mr, Op, OpFlags, PacketCounter,
    Remote, Wait,
};
use std::time::Duration;

tests![
    searches_find_messages,
    an_injected_write_is_silent,
    a_long_message_arrives => 300,
    a_long_rma_arrives => 300,
    packets_are_counted,
    a_waiting_send_can_be_cancelled,
    a_flood_waits_at_its_sender,
    operations_continue_after_a_refused_one,
    counters_of_both_sides_count,
    an_operation_counts_once_at_its_target,
    a_long_read_counts_once => 300,
    all_operations_complete_under_heavy_loss => 300,
    operations_work_over_ipv6,
    hosts_with_different_mtus_exchange_messages,
];

/// Bytes of the longest message and piece of memory that go between hosts here.
const LONGEST: usize = 256 << 20;

fn a_long_message_arrives() {
    apart();
    let (a, to_b, b, to_a) = pair();
    let (size, longest) = if sanitizing() {
        (2 << 20, 4 << 20)
    } else {
        (16 << 20, LONGEST)
    };
    let long = SOON * 10;
    for (from, to, at, len) in [
        (&a, to_b, &b, size),
        (&a, to_b, &b, size + 1),
        (&b, to_a, &a, longest),
    ] {
        let bytes = pattern(len, len as u64);
        let (ours, into) = (
            Buffer::from_bytes(&bytes).expect("buffer"),
            Buffer::new(len).expect("buffer"),
        );
        at.ep.trecv(&into, 7, 0, 2).expect("trecv");
        from.ep.tsend(to, &ours, 7, 1).expect("tsend");
        let entry = at.cq.next(long).expect("completion").expect("in time");
        assert_eq!((entry.len as usize, entry.op_context), (len, 2));
        assert!(into.to_vec(..) == bytes, "length {len}");
        from.expect(TSENT, 1);
    }
}

fn a_long_rma_arrives() {
    apart();
    let (a, to_b, b, _) = pair();
    let len = if sanitizing() { 4 << 20 } else { LONGEST };
    let bytes = pattern(len, 7);
    let (ours, theirs) = (
        Buffer::from_bytes(&bytes).expect("buffer"),
        Buffer::new(len).expect("buffer"),
    );
    let _mr = b
        .domain
        .mr(&theirs)
        .access(Access::REMOTE_WRITE | Access::REMOTE_READ)
        .requested_key(1)
        .open()
        .expect("mr");
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

fn searches_find_messages() {
    apart();
    for len in [5, 100_000] {
        let (a, to_b, b, _) = pair();
        let search = |tag, flags| {
            let op = Op::tpeek(tag, 0).context(tag).flags(flags);
            b.ep.post_one(&op).expect("peek");
        };
        let sent: Vec<Buffer> = (1..=3)
            .map(|tag| Buffer::from_bytes(&pattern(len, tag)).expect("buffer"))
            .collect();
        for (from, tag) in sent.iter().zip(1..) {
            a.ep.tsend(to_b, from, tag, tag).expect("tsend");
        }
        // When the last one has arrived, all have.
        let there = |tag| {
            search(tag, OpFlags::PEEK);
            b.cq.next(SOON).is_ok()
        };
        until("the messages have come", || there(3));
        search(2, OpFlags::PEEK | OpFlags::DISCARD);
        assert_eq!(b.expect(TRECEIVED, 2).len as usize, len);
        a.expect(TSENT, if len == 5 { 1 } else { 2 });
        assert!(!there(2), "discarded and found");
        search(3, OpFlags::PEEK | OpFlags::CLAIM);
        b.expect(TRECEIVED, 3);
        assert!(!there(3), "claimed and found");
        let into = Buffer::new(len).expect("buffer");
        let claim = Op::trecv(&into, 9, 0).context(3).flags(OpFlags::CLAIM);
        b.ep.post_one(&claim).expect("claim");
        b.expect(TRECEIVED, 3);
        assert!(into.to_vec(..) == pattern(len, 3));
        b.ep.trecv(&into, 0, u64::MAX, 4).expect("trecv");
        b.expect(TRECEIVED, 4);
        assert!(into.to_vec(..) == pattern(len, 1));
        a.completion();
        a.completion();
        a.expect_nothing();
    }
}

fn an_injected_write_is_silent() {
    apart();
    let (a, to_b, b, _) = pair();
    let theirs = Buffer::new(8).expect("buffer");
    let _mr = b
        .domain
        .mr(&theirs)
        .access(Access::REMOTE_WRITE)
        .requested_key(1)
        .open()
        .expect("mr");
    let remote = Remote::new(2, 1);
    a.ep.inject_write(to_b, b"now", remote).expect("inject");
    until("written", || theirs.to_vec(2..5) == b"now");
    a.expect_nothing();
    b.expect_nothing();
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
    let into = Buffer::new(8).expect("buffer");
    a.ep.send(to_b, &into, 9).expect("send");
    a.failure();
    assert!(count(0, &a, PacketCounter::TxPackets) >= before);
}

fn a_waiting_send_can_be_cancelled() {
    apart();
    let (a, to_b, b, _) = pair();
    exchange(&a, to_b, &b, 8);
    for len in [8, 100_000] {
        let from = Buffer::from_bytes(&pattern(len, 1)).expect("buffer");
        let op = Op::send(to_b, &from)
            .context(5)
            .flags(OpFlags::DELIVERY_COMPLETE | OpFlags::COMPLETION);
        a.ep.post_one(&op).expect("send");
        std::thread::sleep(Duration::from_millis(50));
        a.ep.cancel(5).expect("cancel");
        fails(&a, 5, Errno::ECANCELED);
        // No part of it remains there.
        exchange(&a, to_b, &b, len);
        let none = Op::tpeek(0, u64::MAX).context(6);
        b.ep.post_one(&none).expect("peek");
        fails(&b, 6, Errno::ENOMSG);
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
        let from = Buffer::from_bytes(&bytes(number)).expect("buffer");
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
    let into = Buffer::new(100_000).expect("buffer");
    let back = Buffer::from_bytes(&pattern(100_000, 1)).expect("buffer");
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
    let theirs = Buffer::new(64).expect("buffer");
    let mr = b
        .domain
        .mr(&theirs)
        .access(Access::REMOTE_READ)
        .requested_key(3)
        .open()
        .expect("mr");
    let ours = Buffer::new(8).expect("buffer");
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
        fails(&a, 1, Errno::EACCES);
        a.ep.read(to_b, &ours, Remote::new(8, mr.key()), 2)
            .expect("read");
        a.expect(READ, 2);
    }
    assert_eq!(theirs.to_vec(..), [0; 64]);
}

fn counters_of_both_sides_count() {
    let hosts = apart();
    let counted = |index: usize| {
        let (_, domain) = hosts.domain(index);
        let cntrs = [0; 4].map(|_| domain.cntr().open().expect("cntr"));
        let cq = domain
            .cq()
            .format(kfi::CqFormat::Tagged)
            .open()
            .expect("cq");
        let av = domain.av().open().expect("av");
        let ep = domain
            .endpoint()
            .caps(Options::default().caps)
            .open()
            .expect("endpoint");
        ep.bind_cq(&cq, CqBind::TRANSMIT | CqBind::RECV)
            .expect("bind");
        ep.bind_av(&av).expect("bind");
        for (cntr, what) in cntrs.iter().zip([
            CntrBind::SEND,
            CntrBind::RECV,
            CntrBind::WRITE,
            CntrBind::REMOTE_WRITE,
        ]) {
            ep.bind_cntr(cntr, what).expect("bind");
        }
        ep.enable().expect("enable");
        (Host { domain, cq, av, ep }, cntrs)
    };
    let ((a, at_a), (b, at_b)) = (counted(0), counted(1));
    let to_b = a.meet(&b);
    let theirs = Buffer::new(4096).expect("buffer");
    let mr = b
        .domain
        .mr(&theirs)
        .access(Access::REMOTE_WRITE)
        .requested_key(1)
        .open()
        .expect("mr");
    let region = b.domain.cntr().open().expect("cntr");
    mr.bind_cntr(&region, CntrBind::REMOTE_WRITE).expect("bind");
    for number in 0..10 {
        exchange(&a, to_b, &b, number * 2000);
        a.ep.write(to_b, theirs_of(number), Remote::new(0, mr.key()), 3)
            .expect("write");
        a.expect(WROTE, 3);
    }
    let value = |cntr: &kfi::Cntr| cntr.read().expect("read").value;
    until("counted", || {
        value(&at_a[0]) == 10
            && value(&at_b[1]) == 10
            && value(&at_a[2]) == 10
            && value(&at_b[3]) == 10
            && value(&region) == 10
    });
}

/// Two hosts; the second one has counters of remote reads and writes on its endpoint, and two
/// regions of this size with a counter each.
type Target = (Host, FiAddr, Host, [Cntr; 2], [(Mr, Cntr); 2]);

fn counting_target(len: usize) -> Target {
    let hosts = apart();
    let host = |index: usize| {
        let (_, domain) = hosts.domain(index);
        let cntrs = [0; 2].map(|_| domain.cntr().open().expect("cntr"));
        let cq = domain
            .cq()
            .format(kfi::CqFormat::Tagged)
            .wait(Wait::Queue)
            .open()
            .expect("cq");
        let av = domain.av().open().expect("av");
        let ep = domain
            .endpoint()
            .caps(Options::default().caps)
            .open()
            .expect("endpoint");
        ep.bind_cq(&cq, CqBind::TRANSMIT | CqBind::RECV)
            .expect("bind");
        ep.bind_av(&av).expect("bind");
        for (cntr, what) in cntrs
            .iter()
            .zip([CntrBind::REMOTE_READ, CntrBind::REMOTE_WRITE])
        {
            ep.bind_cntr(cntr, what).expect("bind");
        }
        ep.enable().expect("enable");
        (Host { domain, cq, av, ep }, cntrs)
    };
    let ((a, _), (b, at_b)) = (host(0), host(1));
    let to_b = a.meet(&b);
    let regions = [1, 2].map(|key| {
        let mr = b
            .domain
            .mr(&Buffer::new(len).expect("buffer"))
            .access(Access::REMOTE_READ | Access::REMOTE_WRITE)
            .requested_key(key)
            .open()
            .expect("mr");
        let cntr = b.domain.cntr().open().expect("cntr");
        mr.bind_cntr(&cntr, CntrBind::REMOTE_READ | CntrBind::REMOTE_WRITE)
            .expect("bind");
        (mr, cntr)
    });
    (a, to_b, b, at_b, regions)
}

fn an_operation_counts_once_at_its_target() {
    let (a, to_b, _b, at_b, [one, two]) = counting_target(4096);
    pieces_count_once(
        &a.ep,
        to_b,
        [one.0.key(), two.0.key()],
        [&at_b[0], &at_b[1]],
        [&one.1, &two.1],
        || {
            if a.cq.sread(&mut [Entry::default()], SOON).is_err() {
                a.cq.readerr().expect("readerr").expect("an error");
            }
        },
    );
}

/// It takes several requests on the wire.
fn a_long_read_counts_once() {
    const LEN: usize = 4 << 20;
    let (a, to_b, _b, at_b, [one, _]) = counting_target(LEN);
    let into = Buffer::new(LEN).expect("buffer");
    for number in 1..=3 {
        a.ep.read(to_b, &into, Remote::new(0, one.0.key()), 2)
            .expect("read");
        a.expect(READ, 2);
        until("counted", || {
            at_b[0].value() >= number && one.1.value() >= number
        });
        assert_eq!((at_b[0].value(), one.1.value()), (number, number));
    }
    // No completion follows.
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!((at_b[0].value(), one.1.value()), (3, 3));
}

/// Some bytes to be written, which must stay.
fn theirs_of(number: usize) -> &'static Buffer {
    Box::leak(Box::new(Buffer::new(number + 1).expect("buffer")))
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
        let theirs = Buffer::new(longest).expect("buffer");
        let mr = b
            .domain
            .mr(&theirs)
            .access(Access::REMOTE_READ | Access::REMOTE_WRITE)
            .requested_key(1)
            .open()
            .expect("mr");
        let bytes = pattern(longest, 5);
        let ours = Buffer::from_bytes(&bytes).expect("buffer");
        a.ep.write(to_b, &ours, Remote::new(0, mr.key()), 1)
            .expect("write");
        a.expect(WROTE, 1);
        assert!(theirs.to_vec(..) == bytes);
        let back = Buffer::new(longest).expect("buffer");
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
