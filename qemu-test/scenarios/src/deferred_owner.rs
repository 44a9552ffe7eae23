// SPDX-License-Identifier: GPL-2.0
//! Deferred work that a task of another user makes due: its memory is charged to its owner, it runs
//! with the nice value of its owner, and it does not delay the work of others.

use crate::{
    abi_threads::{USER, open_to_all},
    deferred::{cntr, queue, wait},
    harness::tests,
    host::{Host, Options, SOON, domain, until},
    hosts::sanitizing,
    process::{Process, line, program},
    processes::Cgroup,
};
use kfi::{Buffer, Cntr, CntrBind, Domain, Op, Work};
use std::{
    os::unix::process::CommandExt,
    time::{Duration, Instant},
};

tests![
    memory_is_charged_to_the_owner => 120,
    work_has_the_nice_value_of_its_owner => 180,
    a_chain_of_one_user_does_not_starve_another => 300,
];

/// The roles in which a test starts this program as another process.
pub(crate) const ROLES: &[(&str, fn())] =
    &[("work-sender", sends_much), ("work-chain", chains_much)];

/// The nice value of the owner of a chain, which nothing else in the guest has.
const NICE: i32 = 13;

/// Messages of a sender, and the bytes of each: they are kept at its own receiver.
const MESSAGES: u64 = 1000;
const LEN: usize = 8192;

/// Works of each of the two counters of a chain.
const LINKS: u64 = 30_000;

/// A process of the ordinary user. It opens the device after the first line that the test tells it.
fn owner(role: &str) -> Process {
    crate::host::device();
    open_to_all();
    Process::start(program(role).uid(USER).gid(USER))
}

/// A host of the owner. A message to it counts at the counter.
fn counted(domain: &Domain) -> (Host, Cntr) {
    let go = cntr(domain);
    let host = Host::prepared(domain, &Options::default(), None, |ep| {
        ep.bind_cntr(&go, CntrBind::RECV).expect("bind a counter");
    });
    (host, go)
}

/// The task of another user that makes the work of `owner` due.
struct Foreign {
    host: Host,
    to: kfi::FiAddr,
}

impl Foreign {
    /// Lets the owner begin, and reads its address.
    fn new(owner: &mut Process) -> Self {
        owner.tell("begin");
        let host = Host::new();
        let name = owner.read_line().parse().expect("address");
        let to = host.av.insert_one(name).expect("insert");
        Self { host, to }
    }

    fn start(&self) {
        self.host.ep.inject(self.to, b"start").expect("inject");
    }
}

/// An owner with many messages, which wait for one of somebody else.
fn sends_much() {
    line();
    let (_, domain) = domain();
    let (host, go) = counted(&domain);
    let done = cntr(&domain);
    let receiver = Host::on(
        &domain,
        &Options {
            rx_size: 4096,
            buffered: 64 << 20,
            ..Options::default()
        },
    );
    let to = host.meet(&receiver);
    let (bytes, into) = (
        Buffer::new(LEN).expect("buffer"),
        Buffer::new(8).expect("buffer"),
    );
    let mr = domain.mr(&bytes).access(kfi::Access::SEND).open();
    let mr = mr.expect("mr");
    host.ep.recv(&into, 1).expect("recv");
    let send = || Work::transfer(&go, 1, &host.ep, Op::send(to, mr.slice(..))).completion(&done);
    let works: Vec<_> = (0..MESSAGES).map(|_| send()).collect();
    assert!(domain.queue_work(&works).expect("queue").all());
    println!("{}", host.ep.name().expect("name"));
    // Asleep all the time.
    done.wait(MESSAGES, SOON * 5).expect("wait");
    println!("done");
    line();
}

/// The messages are kept in the owner's group, and the other one pays for none.
fn memory_is_charged_to_the_owner() {
    let (theirs, ours) = (Cgroup::new("kfi-owner"), Cgroup::new("kfi-foreign"));
    let mut owner = owner("work-sender");
    theirs.take(owner.id());
    ours.take(std::process::id());
    let foreign = Foreign::new(&mut owner);
    let before = (ours.current(), theirs.current());
    foreign.start();
    assert_eq!(owner.read_line(), "done");
    let grown = (
        ours.current().saturating_sub(before.0),
        theirs.current().saturating_sub(before.1),
    );
    let sent = LEN as u64 * MESSAGES;
    // Charges are made in batches for each CPU.
    assert!(grown.1 >= sent - (2 << 20), "{grown:?} of {sent}");
    assert!(grown.0 < sent / 4, "{grown:?} of {sent}");
    assert!(owner.wait().success());
    until("the messages are given back", || {
        theirs.current() < before.1 + (2 << 20)
    });
}

/// An owner with a chain of two counters, which begins with a message of somebody else, as often as
/// it is told.
fn chains_much() {
    line();
    rustix::process::nice(NICE).expect("nice");
    let (_, domain) = domain();
    let (host, go) = counted(&domain);
    let into = Buffer::new(8).expect("buffer");
    let (a, b) = (cntr(&domain), cntr(&domain));
    println!("{}", host.ep.name().expect("name"));
    for round in 1.. {
        if line() != "again" {
            return;
        }
        host.ep.recv(&into, round).expect("recv");
        let (at_a, at_b) = (a.value(), b.value());
        let works: Vec<_> = (1..=LINKS)
            .flat_map(|n| {
                [
                    Work::add(&a, at_a + n, &b, 1),
                    Work::add(&b, at_b + n, &a, 1),
                ]
            })
            .collect();
        for part in works.chunks(4000) {
            assert!(domain.queue_work(part).expect("queue").all());
        }
        queue(&domain, Work::add(&go, round, &a, 1));
        println!("ready");
        b.wait(at_b + LINKS, SOON * 10).expect("wait");
        // The last work of the chain adds once more.
        until("the end of the chain", || a.value() == at_a + LINKS + 1);
        host.completion();
        println!("done");
    }
}

/// Whether a worker of the kernel that runs, or could run, has this nice value.
fn worker_with(nice: i32) -> bool {
    let all = std::fs::read_dir("/proc").expect("/proc");
    all.filter_map(|entry| std::fs::read_to_string(entry.ok()?.path().join("stat")).ok())
        .any(|stat| {
            // pid (name) state ppid ..., proc_pid_stat(5); nice is field 19.
            let Some((name, rest)) = stat.rsplit_once(')') else {
                return false;
            };
            let fields: Vec<&str> = rest.split_whitespace().collect();
            name.contains("(kworker") && fields[0] == "R" && fields[16] == nice.to_string()
        })
}

fn work_has_the_nice_value_of_its_owner() {
    let mut owner = owner("work-chain");
    let foreign = Foreign::new(&mut owner);
    assert!(!worker_with(NICE));
    let begin = Instant::now();
    let mut seen = false;
    while !seen && begin.elapsed() < SOON * 10 {
        owner.tell("again");
        assert_eq!(owner.read_line(), "ready");
        foreign.start();
        let started = Instant::now();
        while !seen && started.elapsed() < Duration::from_millis(200) {
            seen = worker_with(NICE);
        }
        assert_eq!(owner.read_line(), "done");
    }
    assert!(seen, "no worker had the nice value {NICE}");
    until("the worker has its own nice value again", || {
        !worker_with(NICE)
    });
    owner.tell("end");
    assert!(owner.wait().success());
}

/// While works of one user start each other, work of another user in another process takes no
/// longer than some time slices.
fn a_chain_of_one_user_does_not_starve_another() {
    let mut owner = owner("work-chain");
    let foreign = Foreign::new(&mut owner);
    let (_, domain) = domain();
    let (go, done) = (cntr(&domain), cntr(&domain));
    let (mut longest, mut round) = (Duration::ZERO, 0);
    for _ in 0..3 {
        owner.tell("again");
        assert_eq!(owner.read_line(), "ready");
        foreign.start();
        for _ in 0..50 {
            let begin = Instant::now();
            round += 1;
            queue(&domain, Work::add(&go, round, &done, 1));
            go.add(1).expect("add");
            wait(&done, round);
            longest = longest.max(begin.elapsed());
        }
        assert_eq!(owner.read_line(), "done");
    }
    owner.tell("end");
    assert!(owner.wait().success());
    let limit = if sanitizing() { SOON } else { SOON / 10 };
    assert!(longest < limit, "{longest:?}");
}
