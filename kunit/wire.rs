// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_wire`: sockets, packets, and datagrams between QPs.
//!
//! Both ends are on a link on the loopback interface of the first network namespace, which must be
//! up, with 127.0.0.0/8 and, with IPv6, ::1. To test packets that no peer would send, a test builds
//! a valid packet and changes it before it is sent.

use super::{
    del,
    kunit_rc_pair::Peer,
    kunit_wire_pair::{
        at,
        buffer,
        built,
        datagrams,
        exchange,
        with_pattern,
        End,
        Pair,
        Recorder,
        Slow,
        TestLink,
        ONE,
        QKEY,
        SIX,
        TWO, //
    },
    packet,
    qp::{
        ud::Destination,
        Qp,
        Rc, //
    },
    socket,
    NetNs,
    Path,
    Stat, //
};
use crate::{
    kunit::helpers::{
        eventually,
        rx_skb,
        thread,
        wait_for, //
    },
    mem::{
        self,
        payload::Payload,
        Budget,
        MemRef,
        Source, //
    },
    shim::skb::{
        Inbox,
        InboxLimits,
        NoRoom,
        TxSkb, //
    }, //
};
use core::net::{
    IpAddr,
    Ipv4Addr,
    Ipv6Addr, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        Arc, //
    }, //
};
use kfi_core::addr::DGRAM_QPN;
use kfi_roce::{
    headers::{
        Bth,
        Headers,
        Qpn,
        SendEnd, //
    },
    packet::Packet,
    psn::Psn,
    ud::GSI_QKEY, //
};

#[kunit_tests(kfabric_wire)]
mod tests {
    use super::*;

    #[test]
    fn the_first_link_binds_the_port() -> Result {
        let netns = NetNs::current()?;
        // The port is free, and cannot be bound twice.
        let first = socket::open(&netns)?;
        ensure!(socket::open(&netns).is_err_and(|e| e == EADDRINUSE));
        ensure!(TestLink::new().is_err_and(|e| e == EADDRINUSE));
        socket::close(&first);
        let link = TestLink::new()?;
        ensure!(socket::open(&netns).is_err_and(|e| e == EADDRINUSE));
        // The port is free again immediately, although there is still a reference to the link.
        let known = link.0.clone();
        drop(link);
        let again = socket::open(&netns)?;
        socket::close(&again);
        drop(known);
        Ok(())
    }

    #[test]
    fn unwritten_payload_is_sent_as_zeros() -> Result {
        let mut skb = TxSkb::new(64)?;
        ensure!(skb.bytes().is_empty() && !skb.is_complete());
        let mut room = skb.room(20);
        room.put(&[7; 30]);
        ensure_eq!(room.left(), 0);
        room.fill(1);
        ensure!(skb.bytes() == [7; 20]);
        let mut room = skb.room(100);
        ensure_eq!(room.left(), 44);
        room.put(&[8; 4]);
        ensure_eq!(room.left(), 40);
        room.fill(0);
        ensure!(skb.is_complete() && skb.room(1).left() == 0);
        ensure!(skb.bytes().iter().skip(24).all(|byte| *byte == 0));
        // A payload of which nothing is written is sent as zeros, and reveals no other kernel
        // memory.
        let pair = Pair::new(ONE, TWO)?;
        let bth = Bth::new(pair.b.qp.number(), Psn::new(0));
        let packet = Packet::new(bth, Headers::SendOnly(SendEnd::Plain), 100);
        let skb = pair.path.build(0xc000, 1, &packet, |_| Ok(()))?;
        let payload = skb.bytes().get(40..140).ok_or(EINVAL)?;
        ensure!(payload.iter().all(|byte| *byte == 0));
        let rx = rx_skb(skb.bytes(), 20, 64, 1000)?;
        ensure!(packet::verified(&rx).is_ok());
        Ok(())
    }

    #[test]
    fn a_packet_has_the_traffic_class_of_its_path() -> Result {
        let link = TestLink::new()?;
        let bth = Bth::new(Qpn::new(77), Psn::new(0));
        let packet = Packet::new(bth, Headers::SendOnly(SendEnd::Plain), 100);
        for (from, to, ip_len) in [(ONE, TWO, 20), (SIX, SIX, 40)] {
            let start = |class| -> Result<(u8, u8)> {
                let path = Path::with_class(&link.0, from, to, class)?;
                let skb = path.build(0xc000, 1, &packet, |_| Ok(()))?;
                ensure!(packet::verified(&rx_skb(skb.bytes(), ip_len, 64, 1000)?).is_ok());
                let [first, second, ..] = *skb.bytes() else {
                    return Err(EINVAL);
                };
                Ok((first, second))
            };
            let wanted = match ip_len {
                20 => [(0x45, 0), (0x45, 0xb9), (0x45, 0xff)],
                _ => [(0x60, 0), (0x6b, 0x90), (0x6f, 0xf0)],
            };
            for (class, wanted) in [0, 0xb9, 0xff].into_iter().zip(wanted) {
                ensure_eq!(start(class)?, wanted);
            }
        }
        Ok(())
    }

    #[test]
    fn packets_are_taken_in_batches() -> Result {
        let pair = Pair::new(ONE, TWO)?;
        let skb = built(&pair.path, &pair.a, pair.b.qp.number(), 64)?;
        pin_init::stack_pin_init!(let inbox = Inbox::new(u32::MAX));
        let max = |packets, bytes| InboxLimits { packets, bytes };
        for number in 0..10 {
            let rx = rx_skb(skb.bytes(), 20, 64, 1000)?;
            ensure!(inbox
                .push(rx, max(10, u32::MAX), 0)
                .is_ok_and(|first| first == (number == 0)));
        }
        let rx = rx_skb(skb.bytes(), 20, 64, 1000)?;
        let full = inbox.push(rx, max(10, u32::MAX), 0);
        ensure!(matches!(full, Err((NoRoom::Full, _))));
        ensure_eq!(inbox.take(4).0.count(), 4);
        ensure!(!inbox.is_empty());
        ensure_eq!(inbox.take(6).0.count(), 6);
        ensure!(inbox.is_empty() && inbox.take(1).0.is_empty());
        // Packets that were taken have freed all of their room.
        for _ in 0..2 {
            let rx = rx_skb(skb.bytes(), 20, 64, 1000)?;
            ensure!(inbox.push(rx, max(9, 1), 0).is_ok_and(|first| first));
            let rx = rx_skb(skb.bytes(), 20, 64, 1000)?;
            let full = inbox.push(rx, max(9, 1), 0);
            ensure!(matches!(full, Err((NoRoom::Full, _))));
            ensure_eq!(inbox.take(2).0.count(), 1);
        }
        Ok(())
    }

    #[test]
    fn nonlinear_packets_are_checked() -> Result {
        let pair = Pair::new(ONE, TWO)?;
        for payload in [0, 1, 64, 1000, 1001, 4096] {
            let skb = built(&pair.path, &pair.a, pair.b.qp.number(), payload)?;
            let memory = MemRef::buffer(payload)?;
            for (linear, piece) in [(0, 1000), (5, 300), (12, 777), (20, 512), (100, 4000)] {
                let rx = rx_skb(skb.bytes(), 20, linear, piece)?;
                ensure!(rx.len() == skb.bytes().len() - 28);
                let packet = packet::verified(&rx);
                ensure!(packet.is_ok_and(|packet| packet.payload_len() == payload));
                let placed = Payload::new(&rx, 20..20 + payload).place(&memory, 0);
                ensure_eq!(placed, payload);
                ensure!(mem::memref::equal(&memory, &buffer(payload)?));
                // The bytes covered by the ICRC after the headers, in either piece.
                for at in [40, 47, 48, 50, 70, 500, 900, 1500, 4000] {
                    let mut changed = KVec::new();
                    changed.extend_from_slice(skb.bytes(), GFP_KERNEL)?;
                    let Some(byte) = changed.get_mut(at) else {
                        continue;
                    };
                    *byte ^= 0x10;
                    let rx = rx_skb(&changed, 20, linear, piece)?;
                    ensure!(packet::verified(&rx) == Err(Stat::DropIcrc));
                }
            }
        }
        Ok(())
    }

    #[test]
    fn datagrams_over_ipv4() -> Result {
        ensure!(exchange(ONE, TWO)?);
        Ok(())
    }

    #[test]
    fn datagrams_over_ipv6() -> Result {
        if cfg!(CONFIG_IPV6) {
            ensure!(exchange(SIX, SIX)?);
        }
        Ok(())
    }

    #[test]
    fn a_receive_begins_with_the_grh() -> Result {
        let pair = Pair::new(ONE, TWO)?;
        pair.send(&buffer(4)?)?;
        ensure!(eventually(|| pair.b.got.count() == 1));
        let seen = pair.b.got.last().ok_or(EIO)?;
        ensure!(seen.grh.starts_with(&[0; 20]));
        // The version and length, UDP, and the addresses.
        ensure!(seen.grh.get(20..24) == Some(&[0x45, 0, 0, 20 + 8 + 12 + 8 + 4 + 4]));
        ensure!(seen.grh.get(29) == Some(&17));
        ensure!(seen.grh.get(32..) == Some(&[127, 0, 0, 1, 127, 0, 0, 2]));
        Ok(())
    }

    #[test]
    fn datagrams_above_the_path_mtu_are_refused() -> Result {
        let pair = Pair::new(ONE, TWO)?;
        // The path MTU is the largest one, not that of the interface.
        ensure!(pair.path.mtu().is_ok_and(|mtu| mtu.bytes() == 4096));
        ensure!(pair.send(&buffer(4097)?) == Err(EMSGSIZE));
        ensure!(pair.send(&buffer(4096)?).is_ok());
        ensure!(eventually(|| pair.b.got.count() == 1));
        Ok(())
    }

    #[test]
    fn paths_without_a_route_have_no_mtu() -> Result {
        let link = TestLink::new()?;
        let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let all = IpAddr::V4(Ipv4Addr::BROADCAST);
        let some = IpAddr::V4(Ipv4Addr::new(224, 0, 0, 1));
        for to in [any, all, some, SIX, IpAddr::V6(Ipv6Addr::UNSPECIFIED)] {
            ensure!(Path::new(&link.0, ONE, to).is_err_and(|e| e == EINVAL));
        }
        // The source is not an address of the link.
        let elsewhere = IpAddr::V4(Ipv4Addr::new(10, 9, 8, 7));
        ensure!(Path::new(&link.0, elsewhere, TWO)?.mtu() == Err(EADDRNOTAVAIL));
        // No route to the destination leaves by the interface.
        ensure!(Path::new(&link.0, ONE, elsewhere)?.mtu() == Err(ENETUNREACH));
        Ok(())
    }

    #[test]
    fn statistics_count_packets_and_bytes() -> Result {
        let pair = Pair::new(ONE, TWO)?;
        pair.send(&buffer(5)?)?;
        pair.send(&buffer(0)?)?;
        // BTH, DETH, payload with pad, ICRC.
        let bytes = (12 + 8 + 8 + 4) + (12 + 8 + 4);
        ensure!(pair.b.counts(Stat::RxPackets, 2));
        ensure!(pair.b.counts(Stat::RxBytes, bytes));
        ensure!(pair.a.counts(Stat::TxPackets, 2));
        ensure!(pair.a.counts(Stat::TxBytes, bytes));
        let link = pair.link.0.stats();
        ensure_eq!(link.get(Stat::TxPackets), 2);
        ensure!(eventually(|| link.get(Stat::RxBytes) == bytes));
        for (number, stat) in Stat::ALL.iter().enumerate() {
            ensure_eq!(*stat as usize, number);
            ensure!(!stat.name().is_empty());
        }
        Ok(())
    }

    #[test]
    fn a_wrong_icrc_is_dropped() -> Result {
        let pair = Pair::new(ONE, TWO)?;
        let mut sent = 0;
        // IP identification; UDP source port; PSN; Q key; payload; ICRC.
        for at in [5, 21, 39, 43, 50, 28 + 12 + 8 + 16] {
            pair.send_changed(16, |bytes| bytes[at] ^= 1)?;
            sent += 1;
        }
        ensure!(pair.b.counts(Stat::DropIcrc, sent));
        // Fields that may change in transit can be changed: FECN and BECN.
        pair.send_changed(16, |bytes| bytes[28 + 4] |= 0xc0)?;
        ensure!(eventually(|| pair.b.got.count() == 1));
        ensure!(pair.works()?);
        ensure_eq!(pair.b.stat(Stat::DropIcrc), sent);
        Ok(())
    }

    #[test]
    fn malformed_packets_are_dropped() -> Result {
        let pair = Pair::new(ONE, TWO)?;
        let cases: [(Stat, usize, u8); 6] = [
            (Stat::DropVersion, 29, 0x41),
            (Stat::DropOpcode, 28, 0x7f),
            (Stat::DropPkey, 31, 0),
            (Stat::DropPad, 29, 0x70),
            (Stat::DropPayload, 28, 0x11),
            (Stat::DropNoQp, 35, 0),
        ];
        for (cause, at, byte) in cases {
            let before = pair.dropped_without_qp(cause);
            // There are only two QPs, so a QP number with one bit changed belongs to none.
            pair.send_changed(if cause == Stat::DropPad { 0 } else { 16 }, |bytes| {
                bytes[at] = if cause == Stat::DropNoQp {
                    bytes[at] ^ 0x40
                } else {
                    byte
                };
            })?;
            ensure!(eventually(|| pair.dropped_without_qp(cause) == before + 1));
        }
        // An acknowledgement with a reserved syndrome.
        let before = pair.dropped_without_qp(Stat::DropSyndrome);
        pair.send_changed(0, |bytes| {
            bytes[28] = 0x11;
            bytes[40] = 0x40;
            // The packet is 4 bytes shorter, and so must be the UDP length.
            bytes[25] -= 4;
        })?;
        ensure!(eventually(
            || pair.dropped_without_qp(Stat::DropSyndrome) == before + 1
        ));
        ensure!(pair.works()?);
        ensure_eq!(pair.b.got.count(), 1);
        Ok(())
    }

    #[test]
    fn invalid_lengths_are_dropped() -> Result {
        let pair = Pair::new(ONE, TWO)?;
        let (short, odd) = (
            pair.dropped_without_qp(Stat::DropShort),
            pair.dropped_without_qp(Stat::DropLength),
        );
        // The UDP length is smaller than that of the packet: 0 to 23 bytes are not a RoCEv2
        // datagram.
        for len in 0..24u8 {
            pair.send_changed(16, |bytes| bytes[25] = 8 + len)?;
        }
        ensure!(eventually(
            || pair.dropped_without_qp(Stat::DropShort) == short + 24
        ));
        for len in 25..28u8 {
            pair.send_changed(16, |bytes| bytes[25] = 8 + len)?;
        }
        ensure!(eventually(
            || pair.dropped_without_qp(Stat::DropLength) == odd + 3
        ));
        // The packet has one byte more than the largest path MTU, and is dropped before it reaches
        // a QP.
        let long = pair.dropped_without_qp(Stat::DropTooLong);
        pair.send_changed(4097, |_| {})?;
        ensure!(eventually(
            || pair.dropped_without_qp(Stat::DropTooLong) == long + 1
        ));
        ensure!(pair.works()?);
        ensure_eq!(pair.b.got.count(), 1);
        Ok(())
    }

    #[test]
    fn packets_for_others_are_dropped() -> Result {
        let pair = Pair::new(ONE, TWO)?;
        // A packet of another transport service.
        let bth = Bth::new(pair.b.qp.number(), Psn::new(0));
        let send = Packet::new(bth, Headers::SendOnly(SendEnd::Plain), 8);
        pair.path.send(with_pattern(&pair.path, &send)?)?;
        ensure!(pair.b.counts(Stat::DropService, 1));
        // A packet to another address: the first QP is not at the address of the second one.
        let skb = built(&pair.path, &pair.a, pair.a.qp.number(), 8)?;
        pair.path.send(skb)?;
        ensure!(pair.a.counts(Stat::DropDestination, 1));
        // A datagram with another Q key.
        let wrong = Destination {
            qkey: QKEY + 1,
            ..pair.b.destination()
        };
        pair.a
            .qp
            .send(&pair.path, &wrong, &Source::Mem(buffer(1)?))?;
        ensure!(pair.b.counts(Stat::DropQkey, 1));
        // The consumer has no receive for it.
        ensure_eq!(pair.b.got.count(), 0);
        pair.b.got.takes.store(false, Release);
        pair.send(&buffer(1)?)?;
        ensure!(pair.b.counts(Stat::DropNoReceive, 1));
        ensure!(pair.works()?);
        Ok(())
    }

    #[test]
    fn qp_numbers_are_unique_and_not_reused_soon() -> Result {
        let link = TestLink::new()?;
        let (a, b) = (End::new(&link, ONE)?, End::new(&link, ONE)?);
        let (first, second) = (a.qp.number(), b.qp.number());
        ensure!(first.get() > 1 && second.get() > 1 && first != second);
        // The number is not reused soon.
        drop(a);
        let c = End::new(&link, ONE)?;
        ensure!(c.qp.number() != first && c.qp.number() != second);
        // The number of a QP with a port is known from the port.
        let got = Recorder::new()?;
        let qp = datagrams(&link, &at(ONE, 7471)?, QKEY, got.clone())?;
        ensure!(qp.number().get() == DGRAM_QPN + 7471);
        let other = datagrams(&link, &at(TWO, 7471)?, QKEY, got.clone());
        ensure!(other.is_err_and(|e| e == EBUSY));
        qp.close();
        let again = datagrams(&link, &at(TWO, 7471)?, QKEY, got)?;
        again.close();
        // There is only one QP 1. Connection management owns it, and closes it when its service
        // ends.
        let got = Recorder::new()?;
        let taken = Qp::gsi(link.0.socket(), got.clone());
        ensure!(taken.is_err_and(|e| e == EBUSY));
        link.0.socket().receiver().cm().link_gone(true);
        let gsi = wait_for(|| Qp::gsi(link.0.socket(), got.clone()).ok())?;
        ensure!(gsi.number() == Qpn::GSI);
        ensure!(Qp::gsi(link.0.socket(), got.clone()).is_err_and(|e| e == EBUSY));
        // QP 1 receives at every address.
        let path = Path::new(&link.0, ONE, TWO)?;
        let to = Destination {
            qp: Qpn::GSI,
            qkey: GSI_QKEY,
            ..c.destination()
        };
        // Only QP 1 can use its Q key: other QPs that name it send their own.
        c.qp.send(&path, &to, &Source::Mem(buffer(256)?))?;
        ensure!(eventually(|| gsi.stats().get(Stat::DropQkey) == 1));
        gsi.send(&path, &to, &Source::Mem(buffer(256)?))?;
        ensure!(eventually(|| got.count() == 1));
        gsi.close();
        let again = Qp::gsi(link.0.socket(), got)?;
        again.close();
        Ok(())
    }

    /// The number of one connected QP does not reveal that of another one: the index and the bits
    /// above it are random.
    #[test]
    fn numbers_of_connected_qps_are_random() -> Result {
        const QPS: usize = 64;
        /// The low bits of a number contain the index and the bit that is set in the numbers of
        /// ports.
        const INDICES: u32 = 2 * DGRAM_QPN;
        let link = TestLink::new()?;
        let (owner, peer) = (Budget::of_program()?, Peer::new()?);
        let mut qps: KVec<Arc<Qp<Rc>>> = KVec::new();
        for _ in 0..QPS {
            let qp = Qp::connection(&link.0, 1, &owner, peer.clone())?;
            qps.push(qp, GFP_KERNEL)?;
        }
        let indices = || qps.iter().map(|qp| qp.number().get() % INDICES);
        let highs = || qps.iter().map(|qp| qp.number().get() / INDICES);
        let steps = indices().zip(indices().skip(1));
        // Of 63 random steps, 3 or more are so small less than once in a million runs.
        let small = steps.filter(|(one, next)| one.abs_diff(*next) <= 8).count();
        ensure!(small < 3);
        // The numbers are never all in one half of the range, nor have all the same high bits.
        let (least, most) = (indices().min(), indices().max());
        ensure!(least.is_some_and(|least| least > Qpn::GSI.get()));
        ensure!(most.is_some_and(|most| most < DGRAM_QPN));
        ensure!(least < most.map(|most| most.saturating_sub(DGRAM_QPN / 2)));
        ensure!(highs().min() < highs().max());
        for qp in &qps {
            qp.close();
        }
        Ok(())
    }

    #[test]
    fn a_closed_qp_receives_nothing() -> Result {
        let pair = Pair::new(ONE, TWO)?;
        ensure!(pair.works()?);
        let dropped = pair.dropped_without_qp(Stat::DropNoQp);
        pair.b.qp.close();
        pair.b.qp.close();
        pair.send(&buffer(8)?)?;
        ensure!(eventually(
            || pair.dropped_without_qp(Stat::DropNoQp) == dropped + 1
        ));
        ensure_eq!(pair.b.got.count(), 1);
        Ok(())
    }

    #[test]
    fn a_qp_outlives_its_link() -> Result {
        let pair = Pair::new(ONE, TWO)?;
        ensure!(pair.works()?);
        let (a, link) = (&pair.a, &pair.link);
        del(&NetNs::current()?, link.0.name())?;
        // Nothing is sent any more, because the path has no MTU.
        ensure!(pair.send(&buffer(8)?) == Err(ENODEV));
        let skb = built(&pair.path, a, pair.b.qp.number(), 8)?;
        ensure!(pair.path.send(skb) == Err(ENETDOWN));
        // No QP can be made on the link.
        let got = Recorder::new()?;
        ensure!(datagrams(link, &at(ONE, 0)?, QKEY, got).is_err_and(|e| e == ENODEV));
        // A link that is added now is another one.
        let next_link = TestLink::new()?;
        let (c, d) = (End::new(&next_link, ONE)?, End::new(&next_link, TWO)?);
        let path = Path::new(&next_link.0, ONE, TWO)?;
        c.qp.send(&path, &d.destination(), &Source::Mem(buffer(8)?))?;
        ensure!(eventually(|| d.got.count() == 1));
        ensure_eq!(pair.b.got.count(), 1);
        Ok(())
    }

    #[test]
    fn the_number_of_waiting_packets_is_limited() -> Result {
        let pair = Pair::new(ONE, TWO)?;
        let slow = Slow::new()?;
        let qp = datagrams(&pair.link, &at(TWO, 0)?, QKEY, slow.clone())?;
        let to = Destination {
            qp: qp.number(),
            ..pair.b.destination()
        };
        let payload = buffer(1024)?;
        let sent = 3000;
        for _ in 0..sent {
            let source = Source::Mem(payload.clone());
            pair.a.qp.send(&pair.path, &to, &source)?;
        }
        let dropped = || qp.stats().get(Stat::DropInboxFull);
        ensure!(eventually(|| dropped() > 0));
        slow.go_on();
        ensure!(eventually(
            || u64::from(slow.count.get()) + dropped() == sent
        ));
        // Some hundred packets, by the limit.
        ensure!((200..2000).contains(&slow.count.get()));
        qp.close();
        Ok(())
    }

    #[test]
    fn qps_are_opened_and_closed_during_a_flood() -> Result {
        let pair = Arc::new(Pair::new(ONE, TWO)?, GFP_KERNEL)?;
        let stop = Arc::new(Atomic::new(false), GFP_KERNEL)?;
        let target = Arc::new(Atomic::new(pair.b.qp.number().get()), GFP_KERNEL)?;
        let sender = {
            let (pair, stop, target) = (pair.clone(), stop.clone(), target.clone());
            let payload = buffer(256)?;
            thread(move || {
                while !stop.load(Acquire) {
                    let to = Destination {
                        qp: Qpn::new(target.load(Acquire)),
                        ..pair.b.destination()
                    };
                    let source = Source::Mem(payload.clone());
                    let _ = pair.a.qp.send(&pair.path, &to, &source);
                }
            })?
        };
        for round in 0..300 {
            let end = End::new(&pair.link, TWO)?;
            target.store(end.qp.number().get(), Release);
            // One QP in three lives until a packet reaches it; the others end at any time.
            if round % 3 == 0 {
                ensure!(eventually(|| end.got.count() > 0));
            }
            let got = end.got.clone();
            drop(end);
            let after = got.count();
            crate::shim::sched::cond_resched();
            ensure_eq!(got.count(), after);
        }
        stop.store(true, Release);
        sender.join();
        ensure!(pair.works()?);
        Ok(())
    }
}
