// SPDX-License-Identifier: GPL-2.0
//! Endpoints that get more packets than they can process: waiting packets count in the budget of
//! the endpoint's owner, up to a part of it, and take nothing from other users.
//!
//! A real-time thread sends the packets, so ordinary tasks cannot preempt it on its CPU. The
//! packets arrive in softirqs on that CPU, and the QPs' workers, which would run there too, cannot
//! take them.

#![allow(unsafe_code, reason = "scheduling")]

use crate::{
    abi_budget::{LIMIT, fill},
    abi_threads::{as_user, open_to_all},
    harness::tests,
    host::{Host, domain_on, until},
    hostile::{QKEY, RawSocket, datagram},
    networks::{Wire, dgram},
    raw::{File, ip},
};
use kfi::PacketCounter;

tests![
    waiting_packets_count_in_the_budget => 300,
    a_users_packets_hold_a_part_of_the_budget => 300,
];

/// The divisor of a user's limit that gives the part for packets.
const SHARE: u64 = 4;

/// The run time, in nanoseconds, that the first CPU's fair server reserves for ordinary tasks in
/// each period of one second. A worker needs little of it to take all packets that wait.
const KEPT: &str = "/sys/kernel/debug/sched/fair_server/cpu0/runtime";

/// Sets the fair server's run time to 0 until this value is dropped.
struct NoneKept(String);

impl NoneKept {
    fn new() -> Self {
        let before = std::fs::read_to_string(KEPT).expect("read the fair server's run time");
        std::fs::write(KEPT, "0").expect("set the fair server's run time to 0");
        Self(before)
    }
}

impl Drop for NoneKept {
    fn drop(&mut self) {
        std::fs::write(KEPT, self.0.trim()).expect("restore the fair server's run time");
    }
}

/// Runs `run` as a real-time task on the first CPU, so that its ordinary tasks do not run
/// meanwhile.
fn uninterrupted<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    let _none_kept = NoneKept::new();
    let thread = || {
        // SAFETY: all zero is a valid set of CPUs, and the pointers are valid for the calls.
        let (pinned, fifo) = unsafe {
            let mut cpus: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(0, &mut cpus);
            let param = libc::sched_param { sched_priority: 1 };
            (
                libc::sched_setaffinity(0, size_of_val(&cpus), &raw const cpus),
                libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const param),
            )
        };
        assert_eq!((pinned, fifo), (0, 0), "a real-time priority");
        run()
    };
    std::thread::scope(|scope| scope.spawn(thread).join()).expect("a thread")
}

/// Two hosts of which the second is flooded.
struct Scene {
    wire: Wire,
    attacker: RawSocket,
}

impl Scene {
    fn new() -> Self {
        let wire = Wire::new();
        for netns in [&wire.a, &wire.b] {
            netns.run(|| ip("link set veth0 mtu 9000"));
        }
        let attacker = RawSocket::new(&wire.a);
        Self { wire, attacker }
    }

    /// An endpoint of the test's own user (root) at the second host.
    fn endpoint(&self) -> Host {
        Wire::host(&self.wire.b, &dgram())
    }

    /// An endpoint there, of an ordinary user.
    fn users(&self) -> Host {
        self.wire.b.run(|| {
            as_user(|| {
                let (_fabric, domain) = domain_on("roce0");
                Host::on(&domain, &dgram())
            })
        })
    }

    /// Sends `count` datagrams of `len` bytes to each host, while no worker can take them.
    fn flood(&self, hosts: &[&Host], count: u64, len: usize) {
        let packets: Vec<_> = hosts.iter().map(|host| datagram(host, QKEY, len)).collect();
        uninterrupted(|| {
            for packet in &packets {
                for _ in 0..count {
                    self.attacker.send(packet);
                }
            }
        });
    }

    /// Checks how many of `sent` datagrams waited, and how many were dropped because the budget of
    /// the owner of `host` had no room. No datagram may be dropped for another cause.
    fn outcome(&self, host: &Host, sent: u64) -> (u64, u64) {
        let mut outcome = (0, 0);
        until("all packets", || {
            outcome = self.wire.b.run(|| {
                (
                    host.count(PacketCounter::RxPackets),
                    host.count(PacketCounter::DropBudget),
                )
            });
            outcome.0 + outcome.1 == sent
        });
        outcome
    }
}

fn waiting_packets_count_in_the_budget() {
    open_to_all();
    let scene = Scene::new();
    let (host, roots) = (scene.users(), scene.endpoint());
    // The user's objects use up the user's limit.
    let file = scene.wire.b.run(|| {
        as_user(|| {
            let file = File::open_only();
            let fabric = file.fabric();
            let domain = file.domain_on(fabric, "roce0");
            fill(&file, domain);
            file
        })
    });
    // Then only the reserve of the endpoint is left for packets. Other users are not affected.
    scene.flood(&[&host, &roots], 100, 1000);
    let (waited, dropped) = scene.outcome(&host, 100);
    assert!(waited >= 2 && dropped >= 50, "{waited} of 100 waited");
    assert_eq!(scene.outcome(&roots, 100), (100, 0));
    // When the objects are closed, there is room again.
    drop(file);
    scene.flood(&[&host], 100, 1000);
    assert_eq!(scene.outcome(&host, 200), (waited + 100, dropped));
}

/// More endpoints than the part has room for full inboxes of 1 MiB: that is 64.
const ENDPOINTS: usize = 80;

/// Nearly as many packets of 4096 bytes as one inbox takes.
const EACH: u64 = 120;

fn a_users_packets_hold_a_part_of_the_budget() {
    open_to_all();
    let scene = Scene::new();
    let roots = scene.endpoint();
    let hosts: Vec<_> = (0..ENDPOINTS).map(|_| scene.users()).collect();
    let mut flooded: Vec<_> = hosts.iter().collect();
    flooded.push(&roots);
    scene.flood(&flooded, EACH, 4096);
    let outcomes: Vec<_> = hosts.iter().map(|host| scene.outcome(host, EACH)).collect();
    // Each endpoint has a reserve of its own.
    assert!(outcomes.iter().all(|(waited, _)| *waited > 0));
    let waited: u64 = outcomes.iter().map(|(waited, _)| waited).sum();
    let dropped: u64 = outcomes.iter().map(|(_, dropped)| dropped).sum();
    println!("{waited} packets waited, {dropped} were dropped");
    // A packet takes some 8 KiB with its descriptor; the reserve holds two of them. Inboxes that
    // are all flooded leave one part in so many and one to others.
    let part = (LIMIT << 20) / SHARE;
    let most = part / 8192 + 3 * ENDPOINTS as u64;
    assert!(dropped > 0, "{waited} packets waited");
    assert!(
        (most / 2..=most).contains(&waited),
        "{waited} packets waited, of at most {most}"
    );
    assert_eq!(scene.outcome(&roots, EACH), (EACH, 0));
    // The charge of all waiting packets is uncharged.
    let last = hosts.len() - 1;
    scene.flood(&[&hosts[0], &hosts[last]], EACH, 4096);
    for number in [0, last] {
        let (waited, dropped) = outcomes[number];
        let now = scene.outcome(&hosts[number], 2 * EACH);
        assert_eq!(now, (waited + EACH, dropped));
    }
}
