// SPDX-License-Identifier: GPL-2.0
//! Threads that are not scheduled hold the locks of sessions with peers on another host. The
//! process of such a peer still ends. Processes of another user end within a second, and their new
//! pairs connect as fast as beside threads that hold nothing; the slowest one takes a second more.
//!
//! The threads send or write without a pause and are [kept from running](crate::crowd) wherever
//! they are then. So each round holds other locks.

use crate::{
    abi_threads::{NetNs, USER, open_to_all},
    connected::open_region,
    crowd::{Crowd, Held, keep_away},
    harness::tests,
    host::{Host, Options, SOON, buffer, domain_on, within},
    hosts::{Hosts, LINKS, apart},
    process::{Process, line, program},
};
use kfi::Remote;
use rustix::thread::gettid;
use std::{
    os::unix::process::CommandExt,
    sync::{atomic::Ordering::Relaxed, mpsc},
    time::{Duration, Instant},
};

tests![
    another_users_process_ends_and_its_pairs_connect,
    a_process_with_held_sessions_ends,
];

/// The roles in which the tests start this program as another process.
pub(crate) const ROLES: &[(&str, fn())] = &[("held_end", run_end), ("held_threads", run_threads)];

/// How long a process may take to end.
const BOUND: Duration = Duration::from_secs(1);

/// How long the threads are held at one place after the other.
const TRIES: Duration = Duration::from_secs(3);

/// Threads that are held at a time.
const THREADS: usize = 2;

/// Writes of a thread that are outstanding at a time.
const BATCH: u64 = 32;

/// The key of all regions.
const KEY: u64 = 1;

/// The role of one end of a pair. It is told its link, writes its address, and is told the address
/// of a peer, or is killed. It sends a message to the peer, and writes how many microseconds that
/// took.
fn run_end() {
    let (_, domain) = domain_on(&line());
    let host = Host::on(&domain, &Options::default());
    println!("{}", host.ep.name().expect("name"));
    let peer = host.av.insert_one(line().parse().expect("a name"));
    let from = buffer(8);
    let begin = Instant::now();
    host.ep.send(peer.expect("insert"), &from, 1).expect("send");
    host.completion();
    println!("{}", begin.elapsed().as_micros());
    line();
}

/// The role of the process with the held threads. It is told the namespaces of the hosts, and
/// writes the ids of its threads: first those of idle threads, then those of writers. Then it waits
/// for its end.
///
/// The test itself runs none of them: a thread that is held in a page fault has the lock of its
/// process's memory map.
fn run_threads() {
    let hosts = [line(), line()].map(|path| NetNs::open(&path));
    let (send, tids) = mpsc::channel();
    let me = || gettid().as_raw_nonzero().get();
    for number in 0..2 * THREADS {
        let send = send.clone();
        let [a, b] = [0, 1].map(|index| hosts[index].run(|| domain_on(LINKS[index]).1));
        std::thread::spawn(move || {
            if number < THREADS {
                send.send(me()).expect("send");
                loop {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            let [a, b] = [a, b].map(|domain| Host::on(&domain, &Options::default()));
            let (from, to_b, target) = (buffer(8), a.meet(&b), buffer(8));
            let _mr = open_region(&b, &target, KEY);
            send.send(me()).expect("send");
            loop {
                for context in 0..BATCH {
                    let written = a.ep.write(to_b, &from, Remote::new(0, KEY), context);
                    written.expect("write");
                }
                for _ in 0..BATCH {
                    let entry = a.cq.next(10 * SOON).expect("a completion");
                    assert!(entry.is_some());
                }
            }
        });
        println!("{}", tids.recv().expect("a thread"));
    }
    line();
}

/// Threads of another process that are held together. They are released when this is dropped.
struct HeldThreads<'a>(&'a [Crowd]);

impl<'a> HeldThreads<'a> {
    fn new(threads: &'a [Crowd]) -> Self {
        threads.iter().for_each(Crowd::hold);
        // They may still run for some milliseconds.
        std::thread::sleep(Duration::from_millis(10));
        Self(threads)
    }

    fn stacks(&self) -> String {
        self.0.iter().map(Crowd::stack).collect()
    }
}

impl Drop for HeldThreads<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(Crowd::release);
    }
}

/// Returns how long the first message of a new pair of another user takes while these threads are
/// held. The processes of the pair are then killed, and must end within [`BOUND`].
fn connect_time_beside(threads: &[Crowd], hosts: &Hosts) -> Duration {
    let start = || Process::start(program("held_end").uid(USER));
    // Whatever fails, the threads are released before the processes are waited for.
    let mut ends = [0, 1].map(|index| hosts.host(index).run(start));
    let held = HeldThreads::new(threads);
    let answer = |end: &mut Process, question: &str| {
        end.tell(question);
        let answer = end.line_within(SOON);
        answer.unwrap_or_else(|| panic!("a pair waits for another user\n{}", held.stacks()))
    };
    let [client, server] = &mut ends;
    answer(client, LINKS[0]);
    let name = answer(server, LINKS[1]);
    let took = answer(client, &name).parse().expect("a time");
    for end in &mut ends {
        end.kill();
        assert!(
            within(BOUND, || end.has_ended()),
            "a process waits for another user's threads, which are not scheduled\n{}",
            held.stacks()
        );
    }
    Duration::from_micros(took)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// The times are compared with those beside as many held threads that have no lock: the spinning
/// threads take as much of the CPU there.
fn another_users_process_ends_and_its_pairs_connect() {
    keep_away();
    open_to_all();
    let hosts = apart();
    let mut process = Process::in_role("held_threads");
    for index in [0, 1] {
        process.tell(&hosts.host(index).path());
    }
    // Released before the process is waited for.
    let threads: [Crowd; 2 * THREADS] = std::array::from_fn(|_| {
        let tid = process.line_within(SOON).expect("a thread");
        Crowd::around(tid.parse().expect("a number"))
    });
    let (idle, writers) = threads.split_at(THREADS);
    let (mut quiet, mut held, begin) = (Vec::new(), Vec::new(), Instant::now());
    while begin.elapsed() < TRIES || held.len() < 5 {
        quiet.push(connect_time_beside(idle, hosts));
        held.push(connect_time_beside(writers, hosts));
    }
    assert!(
        threads.iter().all(Crowd::is_there),
        "a thread ended early, and held nothing"
    );
    let (rounds, worst) = (held.len(), *held.iter().max().expect("a round"));
    let (quiet, held) = (median(quiet), median(held));
    assert!(
        held <= 3 * quiet && worst <= BOUND + 3 * quiet,
        "{held:?}, at worst {worst:?}, instead of {quiet:?}, in {rounds} rounds"
    );
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
