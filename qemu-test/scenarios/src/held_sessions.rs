// SPDX-License-Identifier: GPL-2.0
//! A thread that is not scheduled holds the lock of its session with a peer on another host. The
//! peer's process ends all the same.
//!
//! The thread sends without a pause and is [kept from running](Held) wherever it is then. So each
//! round holds another lock.

use crate::{
    crowd::{Held, keep_away},
    harness::tests,
    host::{Host, Options, SOON, buffer, domain_on, within},
    hosts::{LINKS, apart},
    process::{Process, line},
};
use std::{
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

/// The role of the peer. It is told its link, writes its address, and waits for its end.
fn end() {
    let (_, domain) = domain_on(&line());
    let host = Host::on(&domain, &Options::default());
    println!("{}", host.ep.name().expect("name"));
    line();
}

/// The peer of the thread is a process of the same user.
fn a_process_with_held_sessions_ends() {
    keep_away();
    let hosts = apart();
    let begin = Instant::now();
    while begin.elapsed() < TRIES {
        let mut target = hosts.host(1).run(|| Process::in_role("held_end"));
        target.tell(LINKS[1]);
        let name = target.read_line();
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
