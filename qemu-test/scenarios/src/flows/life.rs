// SPDX-License-Identifier: GPL-2.0
//! The life of flows and their counters: rights, limits, closing, and the end of processes; also
//! while packets arrive, good ones and bad ones.

#![allow(unsafe_code, reason = "namespaces")]

use super::{Pair, options, values};
use crate::{
    abi_threads::{NetNs, USER, as_user, open_to_all},
    alone::stat_of,
    harness::tests,
    host::{Host, device, errno, until},
    hostile::{RawSocket, datagram},
    networks::{self, Wire},
    process::{Process, line},
    raw::{File, Netdev, addr_of_mut, arg, refused, text},
};
use kfi::{CounterDescription::Packets, Device, Errno, PacketCounter, StatClass, StatValues, abi};
use rustix::thread::UnshareFlags;
use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

tests![
    flows_need_cap_net_raw,
    a_namespace_of_ones_own_gives_the_right,
    flows_belong_to_datagram_endpoints,
    the_number_of_flows_is_limited,
    limits_are_reported,
    memory_of_counters_is_charged => 300,
    objects_in_use_stay_open,
    a_flow_counts_from_the_first_packet,
    a_removed_link_has_no_new_flows,
    flows_change_while_packets_arrive => 300,
    endpoints_close_while_packets_arrive => 300,
    a_killed_process_leaves_no_flows => 300,
    statistics_show_flows,
    damaged_packets_are_not_counted => 120,
];

/// The roles in which a test starts this program as another process.
pub(crate) const ROLES: &[(&str, fn())] = &[
    ("flow-owner", flow_owner),
    ("flow-in-namespace", flow_in_namespace),
];

/// A flow of all packets of `ep`.
fn open_flow(file: &File, ep: u32, counters: u32) -> Result<u32, Errno> {
    let arg = arg!(kfabric_flow_open: ep, counters);
    file.call(arg).map(|arg| arg.handle)
}

fn flows_need_cap_net_raw() {
    let file = File::open();
    open_to_all();
    let fabric = file.fabric();
    let domain = file.domain(fabric);
    let ep = file.ep_dgram(domain);
    let counters = file.counters(domain);
    let packets = abi::KFABRIC_COUNTER_PACKETS;
    assert_eq!(file.attach(counters, 0, packets, 0), Ok(()));
    as_user(|| {
        refused(open_flow(&file, ep, 0), Errno::EPERM);
        refused(open_flow(&file, ep, counters), Errno::EPERM);
    });
    let flow = open_flow(&file, ep, counters).expect("flow");
    // Everything else needs no right.
    as_user(|| {
        let mut value = 7u64;
        let arg = arg!(kfabric_counters_read: counters, values: addr_of_mut(&mut value), count: 1);
        file.call(arg).expect("read");
        assert_eq!(value, 0);
        let others = file.counters(domain);
        assert_eq!(file.attach(others, 0, packets, 0), Ok(()));
        assert_eq!(file.attach(others, flow, packets, 0), Ok(()));
        file.close_all(&[flow, others]);
    });
    file.close_all(&[counters, ep, domain, fabric]);
}

/// Root of a user namespace: it has the right in network namespaces that belong to this user
/// namespace, and in no other.
fn flow_in_namespace() {
    // SAFETY: No descriptor is unshared, and the process has one thread.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER) }.expect("unshare");
    println!("made");
    // The IDs are mapped.
    assert_eq!(line(), "mapped");
    let (file, _, domain) = File::open_only().and_domain();
    let ep = file.ep_dgram(domain);
    let outside = open_flow(&file, ep, 0);
    println!("{}", outside.is_err_and(|errno| errno == Errno::EPERM));
    // SAFETY: As above.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.expect("unshare");
    // The namespace of the link counts, not that of the caller.
    let outside = open_flow(&file, ep, 0);
    println!("{}", outside.is_err_and(|errno| errno == Errno::EPERM));
    crate::raw::ip("link set lo up");
    file.call(arg!(kfabric_link_add: name: text("inside"), netdev: text("lo")))
        .expect("link_add");
    let fabric = file.fabric();
    let domain = file.domain_on(fabric, "inside");
    let ep = file.ep_dgram(domain);
    println!("{}", open_flow(&file, ep, 0).is_ok());
    line();
}

fn a_namespace_of_ones_own_gives_the_right() {
    device();
    open_to_all();
    use std::os::unix::process::CommandExt;
    let mut process = Process::start(
        crate::process::program("flow-in-namespace")
            .uid(USER)
            .gid(USER),
    );
    assert_eq!(process.read_line(), "made");
    for map in ["uid_map", "gid_map"] {
        let path = format!("/proc/{}/{map}", process.id());
        std::fs::write(path, format!("0 {USER} 1\n")).expect(map);
    }
    process.tell("mapped");
    assert_eq!(process.read_line(), "true", "a flow outside");
    assert_eq!(process.read_line(), "true", "a flow outside, from inside");
    assert_eq!(process.read_line(), "true", "no flow inside");
    process.tell("end");
    assert!(process.wait().success());
}

fn flows_belong_to_datagram_endpoints() {
    let (file, fabric, domain) = File::open().and_domain();
    for type_ in [abi::KFI_EP_RDM, abi::KFI_EP_MSG] {
        let ep = file.make(arg!(kfabric_ep_open: domain, type_));
        refused(open_flow(&file, ep, 0), Errno::EOPNOTSUPP);
        file.close_all(&[ep]);
    }
    // No counters.
    let ep = file.ep_dgram(domain);
    for handle in [ep, domain, 60_000, u32::MAX] {
        refused(open_flow(&file, ep, handle), Errno::EBADF);
    }
    file.close_all(&[ep, domain, fabric]);
}

fn the_number_of_flows_is_limited() {
    let (file, fabric, domain) = File::open().and_domain();
    let (ep, other) = (file.ep_dgram(domain), file.ep_dgram(domain));
    let counters = file.counters(domain);
    let packets = abi::KFABRIC_COUNTER_PACKETS;
    assert_eq!(file.attach(counters, 0, packets, 0), Ok(()));
    let flows: Vec<u32> = (0..abi::KFABRIC_MAX_FLOWS)
        .map(|_| open_flow(&file, ep, 0).expect("flow"))
        .collect();
    refused(open_flow(&file, ep, counters), Errno::ENOSPC);
    // The refused flow has not bound the counters.
    assert_eq!(file.attach(counters, 0, packets, 0), Ok(()));
    // Each endpoint has its own.
    let of_other = open_flow(&file, other, 0).expect("flow");
    file.close_all(&flows[..1]);
    let again = open_flow(&file, ep, counters).expect("flow");
    refused(open_flow(&file, ep, 0), Errno::ENOSPC);
    file.close_all(&flows[1..]);
    file.close_all(&[again, of_other, ep, other, counters, domain, fabric]);
}

fn limits_are_reported() {
    let query = device().query().expect("query");
    assert_eq!(query.max_flows, abi::KFABRIC_MAX_FLOWS);
    assert_eq!(query.max_flow_points, abi::KFABRIC_MAX_FLOW_POINTS);
    assert_eq!(query.max_counters, abi::KFABRIC_MAX_COUNTERS);
    assert!(query.max_flows >= 64);
}

fn memory_of_counters_is_charged() {
    device();
    open_to_all();
    as_user(|| {
        // Objects of several files, because one file has too few handles.
        let mut files = Vec::new();
        let mut opened = 0;
        let refused = 'full: loop {
            let (file, _, domain) = File::open_only().and_domain();
            loop {
                let arg = arg!(kfabric_counters_open: domain, count: abi::KFABRIC_MAX_COUNTERS);
                match file.call(arg) {
                    Ok(_) => opened += 1,
                    Err(Errno::EMFILE) => break,
                    Err(errno) => break 'full errno,
                }
                assert!(opened < 1_000_000, "no limit");
            }
            files.push(file);
        };
        assert_eq!(refused, Errno::ENOMEM);
        assert!(opened > 1000, "{opened}");
        drop(files);
        // The memory is free again.
        let (file, _, domain) = File::open_only().and_domain();
        let counters: Vec<u32> = (0..1000).map(|_| file.counters(domain)).collect();
        file.close_all(&counters);
    });
}

fn objects_in_use_stay_open() {
    let (file, fabric, domain) = File::open().and_domain();
    let ep = file.ep_dgram(domain);
    let (bound, dynamic) = (file.counters(domain), file.counters(domain));
    let packets = abi::KFABRIC_COUNTER_PACKETS;
    assert_eq!(file.attach(bound, 0, packets, 0), Ok(()));
    let flow = open_flow(&file, ep, bound).expect("flow");
    assert_eq!(file.attach(dynamic, flow, packets, 0), Ok(()));
    for handle in [ep, bound, dynamic, domain] {
        refused(file.close(handle), Errno::EBUSY);
    }
    // A refused close has changed nothing.
    let second = open_flow(&file, ep, bound).expect("flow");
    file.close_all(&[flow]);
    refused(file.close(ep), Errno::EBUSY);
    refused(file.close(bound), Errno::EBUSY);
    file.close_all(&[dynamic, second]);
    refused(file.close(flow), Errno::EBADF);
    file.close_all(&[bound, ep, domain, fabric]);
}

/// A flow that is made before the endpoint is enabled.
fn a_flow_counts_from_the_first_packet() {
    let sender = Host::with(&options());
    let domain = sender.domain.clone();
    let cq = domain.cq().open().expect("cq");
    let av = domain.av().open().expect("av");
    let ep = domain
        .endpoint()
        .ep_type(kfi::EpType::Dgram)
        .caps(kfi::Caps::MSG)
        .open()
        .expect("endpoint");
    let counters = domain.counters().open().expect("counters");
    counters.attach(Packets, 0).expect("attach");
    let _flow = ep.flow().counters(&counters).open().expect("flow");
    ep.bind_cq(&cq, kfi::CqBind::TRANSMIT | kfi::CqBind::RECV)
        .expect("bind");
    ep.bind_av(&av).expect("bind");
    ep.enable().expect("enable");
    let name = ep.name().expect("name");
    let to = sender.av.insert_one(name).expect("insert");
    sender.ep.inject(to, b"first").expect("inject");
    until("the first packet", || values(&counters) == [1]);
}

fn a_removed_link_has_no_new_flows() {
    let netns = NetNs::new();
    netns.run(|| {
        let netdev = Netdev::dummy("kfl0", "10.99.0.1/24");
        let file = File::open_only();
        file.call(arg!(kfabric_link_add: name: text("gone"), netdev: text("kfl0")))
            .expect("link_add");
        let fabric = file.fabric();
        let domain = file.domain_on(fabric, "gone");
        let ep = file.make(arg!(kfabric_ep_open: domain, type_: abi::KFI_EP_DGRAM));
        let counters = file.counters(domain);
        let flow = open_flow(&file, ep, 0).expect("flow");
        netdev.delete();
        refused(open_flow(&file, ep, 0), Errno::ENODEV);
        // Objects from before can be used and closed.
        let packets = abi::KFABRIC_COUNTER_PACKETS;
        assert_eq!(file.attach(counters, flow, packets, 0), Ok(()));
        file.close_all(&[flow, counters, ep, domain, fabric]);
    });
}

/// Sends datagrams to the receiver of `pair` until `stop`; returns their number.
fn stream(pair: &Pair, stop: &AtomicBool) -> u64 {
    let mut sent = 0;
    while !stop.load(Ordering::Relaxed) {
        pair.sender.ep.inject(pair.to, &[0; 64]).expect("inject");
        sent += 1;
    }
    sent
}

fn flows_change_while_packets_arrive() {
    let pair = Pair::new();
    let base = pair.counters(&[(Packets, 0)]);
    let flow = pair.receiver.ep.flow().priority(5).counters(&base);
    let _flow = flow.dont_trap().open().expect("flow");
    let stop = AtomicBool::new(false);
    let (sent, others) = std::thread::scope(|scope| {
        let sender = scope.spawn(|| stream(&pair, &stop));
        let end = Instant::now() + Duration::from_secs(5);
        let mut rounds = 0u64;
        while Instant::now() < end {
            let counters = pair.counters(&[(Packets, 0)]);
            let before = pair.receiver.ep.flow().dont_trap().counters(&counters);
            let before = before.open().expect("flow");
            let after = pair.receiver.ep.flow().priority(9).open().expect("flow");
            let dynamic = pair.counters(&[]);
            dynamic.attach_to(&after, Packets, 1).expect("attach");
            let [first]: [u64; 1] = values(&counters);
            drop((before, after));
            let [second]: [u64; 1] = values(&counters);
            assert!(first <= second);
            rounds += 1;
        }
        stop.store(true, Ordering::Relaxed);
        (sender.join().expect("sender"), rounds)
    });
    assert!(sent > 0 && others > 0);
    // Each packet was counted once, also those for which there was no room.
    let arrived = || {
        pair.receiver.count(PacketCounter::RxPackets)
            + pair.receiver.count(PacketCounter::DropInboxFull)
            + pair.receiver.count(PacketCounter::DropBudget)
    };
    until("all datagrams", || arrived() == sent);
    assert_eq!(values(&base), [sent]);
}

fn endpoints_close_while_packets_arrive() {
    let sender = Host::with(&options());
    let end = Instant::now() + Duration::from_secs(4);
    let mut round = 0u64;
    while Instant::now() < end {
        let receiver = Host::on(&sender.domain, &options());
        let to = sender.meet(&receiver);
        let counters = receiver.domain.counters().open().expect("counters");
        counters.attach(Packets, 0).expect("attach");
        let flows: Vec<_> = (0..8)
            .map(|_| receiver.ep.flow().dont_trap().counters(&counters).open())
            .map(|flow| flow.expect("flow"))
            .collect();
        let stop = AtomicBool::new(false);
        let ep = receiver.ep.clone();
        let sent = std::thread::scope(|scope| {
            let sending = scope.spawn(|| {
                let mut sent = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    // A datagram to a closed endpoint is no error.
                    sender.ep.inject(to, &[0; 64]).expect("inject");
                    sent += 1;
                }
                sent
            });
            std::thread::sleep(Duration::from_micros(500 * (round % 8)));
            assert_eq!(errno(ep.close()), Some(Errno::EBUSY));
            drop(flows);
            drop(receiver);
            stop.store(true, Ordering::Relaxed);
            sending.join().expect("sender")
        });
        let [counted]: [u64; 1] = values(&counters);
        assert!(counted <= 8 * sent, "{counted} of 8 * {sent}");
        sender.av.remove(&[to]).expect("remove");
        round += 1;
    }
}

/// A process with an endpoint and flows, until it is killed.
fn flow_owner() {
    let host = Host::with(&options());
    let mut flows = Vec::new();
    for _ in 0..32 {
        let counters = host.domain.counters().open().expect("counters");
        counters.attach(Packets, 0).expect("attach");
        let flow = host.ep.flow().dont_trap().counters(&counters).open();
        flows.push((flow.expect("flow"), counters));
    }
    println!("{}", host.ep.name().expect("name"));
    // Others come and go.
    loop {
        let flow = host.ep.flow().open().expect("flow");
        for (_, counters) in &flows {
            assert!(counters.values().expect("values")[0] < u64::MAX);
        }
        drop(flow);
    }
}

fn a_killed_process_leaves_no_flows() {
    let sender = Host::with(&options());
    let left = || {
        [StatClass::Flow, StatClass::Counters]
            .into_iter()
            .flat_map(|class| device().stats(class))
            .map(|stat| stat.expect("stat"))
            .filter(|stat| stat.pid != Some(std::process::id()))
            .count()
    };
    for round in 0..12u64 {
        let mut process = Process::in_role("flow-owner");
        let name = process.read_line().parse().expect("address");
        let to = sender.av.insert_one(name).expect("insert");
        assert!(left() >= 64);
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(20 * (round % 5)) {
            sender.ep.inject(to, &[0; 64]).expect("inject");
        }
        process.kill();
        for _ in 0..500 {
            sender.ep.inject(to, &[0; 64]).expect("inject");
        }
        assert!(!process.wait().success());
        until("flows of a killed process gone", || left() == 0);
        sender.av.remove(&[to]).expect("remove");
    }
    // Another endpoint is as before.
    let pair = Pair::new();
    let counters = pair.counters(&[(Packets, 0)]);
    let _flow = pair.flow(&counters);
    pair.send(5);
    assert_eq!(values(&counters), [5]);
}

fn statistics_show_flows() {
    let pair = Pair::new();
    let counters = pair.counters(&[(Packets, 0), (Packets, 1)]);
    let flow = pair.receiver.ep.flow().priority(42).counters(&counters);
    let flow = flow.open().expect("flow");
    counters.attach(Packets, 2).expect_err("bound");
    pair.send(3);
    assert_eq!(
        stat_of(StatClass::Flow, flow.handle()),
        Some(StatValues::Flow {
            addr: pair.receiver.ep.name().ok(),
            packets: 3,
            bytes: 3 * super::BYTES,
            priority: 42,
            points: 2,
            ep: pair.receiver.ep.handle(),
        })
    );
    assert_eq!(
        stat_of(StatClass::Counters, counters.handle()),
        Some(StatValues::Counters {
            count: 16,
            points: 2,
            bound: 1,
        })
    );
    // Another user does not see them.
    open_to_all();
    as_user(|| {
        let device = Device::open().expect("device");
        assert_eq!(device.stats(StatClass::Flow).count(), 0);
    });
    let handle = flow.handle();
    drop(flow);
    assert_eq!(stat_of(StatClass::Flow, handle), None);
}

/// Packets of a host that can send any packet.
fn damaged_packets_are_not_counted() {
    let wire = Wire::new();
    let attacker = RawSocket::new(&wire.a);
    let host = Wire::host(&wire.b, &networks::dgram());
    let counters = host.domain.counters().open().expect("counters");
    counters.attach(Packets, 0).expect("attach");
    let _flow = host.ep.flow().counters(&counters).open().expect("flow");
    let count = |counter| wire.b.run(|| host.count(counter));
    // The default Q key, and a wrong one.
    let good = datagram(&host, 0x0123_4567, 64);
    attacker.send(&good);
    attacker.send(&datagram(&host, 0, 64));
    until("two datagrams", || values(&counters) == [2]);
    // The BTH, the DETH, the payload and the ICRC.
    for (number, at) in [28, 36, 40, 60, good.len() - 1].into_iter().enumerate() {
        let mut bad = good.clone();
        // Not the opcode, the flags, the P_Key or the QP, but what only the ICRC protects.
        let at = if at == 28 { 28 + 11 } else { at };
        bad[at] ^= 0x10;
        attacker.send(&bad);
        until("drop_icrc", || {
            count(PacketCounter::DropIcrc) == number as u64 + 1
        });
    }
    // Thousands of them, between good ones.
    for round in 0..2000u32 {
        let mut bad = good.clone();
        bad[44 + (round as usize % 32)] ^= 1 << (round % 8);
        attacker.send(&bad);
        if round % 100 == 0 {
            attacker.send(&good);
        }
    }
    until("the good ones", || values(&counters) == [22]);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(values(&counters), [22]);
}
