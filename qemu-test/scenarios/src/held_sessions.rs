// SPDX-License-Identifier: GPL-2.0
//! A thread that is not scheduled holds the lock of its session with a peer on another host. The
//! peer's process ends all the same.
//!
//! The thread sends without a pause and is [kept from running](Held) wherever it is then. So each
//! round holds another lock.

use crate::{
    abi_threads::open_to_all,
    crowd::{Held, keep_away},
    harness::tests,
    host::{Host, Options, SOON, buffer, domain_on, within},
    hosts::{Hosts, LINKS, apart},
    process::{Process, line, program},
};
use std::{
    os::unix::process::CommandExt,
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

tests![a_process_with_held_sessions_ends];

/// The roles in which the tests start this program as another process.
pub(crate) const ROLES: &[(&str, fn())] = &[("held_end", end)];

/// How long a process may take to end.
const BOUND: Duration = Duration::from_secs(1);

/// How long the thread is held at one place after the other.
const TRIES: Duration = Duration::from_secs(3);

/// The role of one end of a pair. It is told its link, and then the address of a peer, to which it
/// sends a message. It writes how many microseconds the message took.
fn end() {
    let (_, domain) = domain_on(&line());
    let host = Host::on(&domain, &Options::default());
    println!("{}", host.ep.name().expect("name"));
    loop {
        let peer = line();
        if peer.is_empty() {
            return;
        }
        let peer = host.av.insert_one(peer.parse().expect("a name"));
        let from = buffer(8);
        let begin = Instant::now();
        host.ep.send(peer.expect("insert"), &from, 1).expect("send");
        host.completion();
        println!("{}", begin.elapsed().as_micros());
    }
}

/// A process with an endpoint on one of the hosts, and its address.
fn process(hosts: &Hosts, index: usize, uid: u32) -> (Process, String) {
    let start = || Process::start(program("held_end").uid(uid));
    let mut process = hosts.host(index).run(start);
    process.tell(LINKS[index]);
    let name = process.read_line();
    (process, name)
}

/// The peers of the threads: a process of the same user ends, though its sessions' peers are held.
fn a_process_with_held_sessions_ends() {
    keep_away();
    open_to_all();
    let hosts = apart();
    let begin = Instant::now();
    while begin.elapsed() < TRIES {
        let (mut target, name) = process(hosts, 1, 0);
        let (_, domain) = hosts.domain(0);
        let host = Host::on(&domain, &Options::default());
        let peer = host.av.insert_one(name.parse().expect("a name"));
        let (peer, ep, cq) = (peer.expect("insert"), host.ep.clone(), host.cq.clone());
        let task = Held::new(move |stop| {
            let from = buffer(8);
            while !stop.load(Relaxed) {
                // Both fail when the target has ended.
                if ep.send(peer, &from, 1).is_err() || !matches!(cq.next(SOON), Ok(Some(_))) {
                    return;
                }
            }
        });
        std::thread::sleep(Duration::from_millis(20));
        task.hold();
        std::thread::sleep(Duration::from_millis(10));
        target.kill();
        let stack = task.stack();
        assert!(
            within(2 * BOUND, || target.has_ended()),
            "a process waits for a thread that is not scheduled\n{stack}"
        );
    }
}
