// SPDX-License-Identifier: GPL-2.0
//! Packets to a QP of the same host are processed by the task that sends them only if the QP
//! belongs to the same user, user namespace and memory cgroup; otherwise by the QP's worker.

#![allow(unsafe_code, reason = "namespaces")]

use crate::{
    abi_threads::{USER, open_to_all},
    connected::connect_to,
    harness::tests,
    host::{Host, SOON},
    process::{Process, line, program},
    processes::Cgroup,
    unscheduled::{answers, options, packet_count, parse_qp},
};
use kfi::{Buffer, FiAddr, PacketCounter, Remote};
use rustix::thread::UnshareFlags;
use std::os::unix::process::CommandExt;

tests![
    packets_within_one_user_are_processed_by_their_sender,
    packets_to_another_user_are_processed_by_the_worker,
    packets_to_another_cgroup_are_processed_by_the_worker,
    packets_to_another_user_namespace_are_processed_by_the_worker,
];

/// The role of this program when a test starts it as another process.
pub(crate) const ROLES: &[(&str, fn())] = &[("inline-peer", peer)];

/// How often the peer's memory is read. One request and one response each time.
const READS: u64 = 100;

/// The role of the peer. It is told when to begin, and whether in a user namespace of its own.
fn peer() {
    if line() == "unshare" {
        // SAFETY: No descriptor is unshared, and the process has one thread.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER) }.expect("unshare");
    }
    answers();
}

/// Reads the memory of a peer that is told to begin with `word`. Returns how many packets were
/// processed by their sender: requests at the peer, and responses here.
fn processed_by_sender(mut peer: Process, word: &str) -> (u64, u64) {
    peer.tell(word);
    let theirs = parse_qp(&peer.read_line());
    let host = Host::with(&options());
    let (at, psn) = host.qp();
    connect_to(&host.ep, theirs);
    peer.tell(&format!("{} {} {psn}", at.host, at.qpn));
    assert_eq!(peer.read_line(), "ready");
    let buffer = Buffer::new(8).expect("buffer");
    for context in 0..READS {
        let remote = Remote::new(0, crate::unscheduled::KEY);
        let read = host.ep.read(FiAddr::UNSPEC, &buffer, remote, context);
        read.expect("read");
        let entry = host.cq.next(SOON).expect("next").expect("a completion");
        assert_eq!(entry.op_context, context);
    }
    assert!(packet_count(&peer, PacketCounter::RxPackets) >= READS);
    assert!(host.count(PacketCounter::RxPackets) >= READS);
    (
        packet_count(&peer, PacketCounter::RxInline),
        host.count(PacketCounter::RxInline),
    )
}

/// Not always: a softirq may have been held back by something else.
fn packets_within_one_user_are_processed_by_their_sender() {
    let (there, here) = processed_by_sender(Process::in_role("inline-peer"), "begin");
    assert!(there > READS / 2, "{there} requests of {READS}");
    assert!(here > READS / 2, "{here} responses of {READS}");
}

fn packets_to_another_user_are_processed_by_the_worker() {
    crate::host::device();
    open_to_all();
    let peer = Process::start(program("inline-peer").uid(USER));
    // The peer's worker does not process packets to this user's QP, either.
    assert_eq!(processed_by_sender(peer, "begin"), (0, 0));
}

fn packets_to_another_cgroup_are_processed_by_the_worker() {
    let cgroup = Cgroup::new("kfi-peer");
    let peer = Process::in_role("inline-peer");
    cgroup.take(peer.id());
    assert_eq!(processed_by_sender(peer, "begin"), (0, 0));
}

fn packets_to_another_user_namespace_are_processed_by_the_worker() {
    crate::host::device();
    let peer = Process::in_role("inline-peer");
    assert_eq!(processed_by_sender(peer, "unshare"), (0, 0));
}
