// SPDX-License-Identifier: GPL-2.0
//! Threads of one user that are not scheduled hold the locks of sessions with peers on another
//! host. Another user does not notice: a process of it ends at once, and its new pairs connect as
//! fast as otherwise.
//!
//! The threads write without a pause and are [kept from running](Held) wherever they are then. So
//! each round holds other locks.

use crate::{
    abi_threads::{USER, open_to_all},
    connected::open_region,
    crowd::{Held, keep_away},
    harness::tests,
    host::{Host, Options, SOON, buffer, domain_on, pair, within},
    hosts::{Hosts, LINKS, apart},
    process::{Process, line, program},
};
use kfi::{Buffer, Mr, Remote};
use std::{
    os::unix::process::CommandExt,
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

tests![
    another_users_process_ends_and_its_pairs_connect,
    a_process_with_held_sessions_ends,
];

/// The roles in which the tests start this program as another process.
pub(crate) const ROLES: &[(&str, fn())] = &[("held_end", end)];

/// The key of all regions.
const KEY: u64 = 1;

/// How long a process may take to end.
const BOUND: Duration = Duration::from_secs(1);

/// How long the threads are held at one place after the other.
const TRIES: Duration = Duration::from_secs(3);

/// Writes that are outstanding at a time.
const BATCH: u64 = 32;

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

/// A new pair of another user: how long its first message takes. Its processes are killed and must
/// end soon.
fn connects(hosts: &Hosts, stacks: impl Fn() -> String) -> Duration {
    let (server, name) = process(hosts, 0, USER);
    let (mut client, _) = process(hosts, 1, USER);
    client.tell(&name);
    let took = client.read_line().parse().expect("a time");
    for mut process in [client, server] {
        process.kill();
        assert!(
            within(BOUND, || process.has_ended()),
            "a process waits for another user's threads, which are not scheduled\n{}",
            stacks()
        );
    }
    Duration::from_micros(took)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// A thread that writes to a peer on the other host. It is dropped first.
struct Writer {
    task: Held,
    _ends: (Host, Host, Mr, Buffer),
}

impl Writer {
    fn new() -> Self {
        let (a, to_b, b, _) = pair();
        let target = buffer(8);
        let mr = open_region(&b, &target, KEY);
        let (ep, cq) = (a.ep.clone(), a.cq.clone());
        let task = Held::new(move |stop| {
            let from = buffer(8);
            while !stop.load(Relaxed) {
                for context in 0..BATCH {
                    let written = ep.write(to_b, &from, Remote::new(0, KEY), context);
                    written.expect("write");
                }
                for _ in 0..BATCH {
                    let entry = cq.next(10 * SOON).expect("a completion");
                    assert!(entry.is_some());
                }
            }
        });
        Self {
            task,
            _ends: (a, b, mr, target),
        }
    }
}

/// The other times are those beside as many threads that are kept from running and hold nothing: the
/// busy threads beside them take as much of the CPU.
fn another_users_process_ends_and_its_pairs_connect() {
    keep_away();
    open_to_all();
    let hosts = apart();
    let writers = [Writer::new(), Writer::new()];
    let sleeper = || {
        Held::new(|stop| {
            while !stop.load(Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
        })
    };
    let sleepers = [sleeper(), sleeper()];
    let beside = |tasks: [&Held; 2]| {
        for task in tasks {
            task.hold();
        }
        std::thread::sleep(Duration::from_millis(10));
        let stacks = || tasks.iter().map(|task| task.stack()).collect();
        let took = connects(hosts, stacks);
        for task in tasks {
            task.release();
        }
        std::thread::sleep(Duration::from_millis(2));
        took
    };
    let (mut quiet, mut held, begin) = (Vec::new(), Vec::new(), Instant::now());
    while begin.elapsed() < TRIES || held.len() < 5 {
        quiet.push(beside(sleepers.each_ref()));
        held.push(beside(writers.each_ref().map(|writer| &writer.task)));
    }
    let (quiet, held) = (median(quiet), median(held));
    assert!(held <= 3 * quiet, "{held:?} instead of {quiet:?}");
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
