// SPDX-License-Identifier: GPL-2.0
//! Processes that are killed at any time, and others that must not be affected.

use crate::{
    harness::tests,
    host::{Host, LINK, Options, SOON, device, domain_on, pattern, until},
    hosts::{LINKS, apart, sanitizing},
    process::{Process, line},
};
use kfi::{Access, Buffer, CompFlags, Deadline, Device, Domain, Fabric, Op, StatClass, StatValues};
use std::time::Duration;

tests![
    two_processes_exchange_messages,
    killed_processes_leave_nothing => 1200,
    buffered_messages_are_charged_to_their_receiver,
    buffered_messages_from_the_wire_are_charged_to_their_receiver,
    waiting_messages_are_charged_to_their_receiver => 300,
    a_sender_reclaims_little_of_a_full_receiver,
];

/// The roles in which a test starts this program as another process.
pub(crate) const ROLES: &[(&str, fn())] = &[
    ("answerer", answerer),
    ("victim", victim),
    ("hoarder", hoarder),
];

/// A process that answers each message with the same bytes, for ever.
fn answerer() {
    let host = Host::new();
    println!("{}", host.ep.name().expect("name"));
    let into = Buffer::new(65536).expect("buffer");
    let back = Buffer::new(65536).expect("buffer");
    let client = line().parse().expect("the client's address");
    let peer = host.av.insert_one(client).expect("insert");
    loop {
        host.ep.recv(&into, 1).expect("recv");
        let entry = loop {
            let entry = host
                .cq
                .next(Deadline::FOREVER)
                .expect("next")
                .expect("entry");
            if entry.flags.contains(CompFlags::RECV) {
                break entry;
            }
        };
        let len = entry.len as usize;
        back.write_at(0, &into.to_vec(..len));
        host.ep.send(peer, back.slice(..len), 2).expect("send");
    }
}

fn two_processes_exchange_messages() {
    let mut process = Process::in_role("answerer");
    let server = process.read_line().parse().expect("address");
    let host = Host::new();
    let name = host.ep.name().expect("name");
    process.tell(&name.to_string());
    let peer = host.av.insert_one(server).expect("insert");
    for (round, len) in [0usize, 1, 256, 257, 4096, 8192, 65536]
        .into_iter()
        .enumerate()
    {
        let bytes = pattern(len, round as u64);
        let from = Buffer::from_bytes(&bytes).expect("buffer");
        let into = Buffer::new(65536).expect("buffer");
        host.ep.recv(&into, 1).expect("recv");
        host.ep.send(peer, from.slice(..len), 2).expect("send");
        for _ in 0..2 {
            host.completion();
        }
        assert!(into.to_vec(..len) == bytes, "{len} bytes");
    }
    drop(process);
    // Its endpoint is closed with it.
    let gone = Buffer::new(1).expect("buffer");
    until("the endpoint of a killed process gone", || {
        host.ep.send(peer, &gone, 3).is_err()
    });
}

/// A process that makes all kinds of calls until it is killed.
fn victim() {
    let me = Host::with(&Options {
        cq_entries: 1024,
        ..Options::default()
    });
    let other = Host::on(&me.domain, &Options::default());
    let to_me = other.meet(&me);
    let stranger = line().parse().expect("the address of a stranger");
    let stranger = me.av.insert_one(stranger).expect("insert");
    let large = Buffer::new(1 << 20).expect("buffer");
    let mr = me
        .domain
        .mr(&large)
        .access(Access::REMOTE_READ | Access::REMOTE_WRITE)
        .requested_key(1)
        .open()
        .expect("mr");
    let cntr = me
        .domain
        .cntr()
        .wait(kfi::Wait::Queue)
        .open()
        .expect("cntr");
    let fds = (me.cq.wait_fd().expect("fd"), cntr.wait_fd().expect("fd"));
    let ring = me.cq.ring().expect("ring");
    // Sleepers of every kind.
    for _ in 0..2 {
        let (cntr, cq) = (cntr.clone(), other.cq.clone());
        std::thread::spawn(move || cntr.wait(u64::MAX, Deadline::FOREVER).map(|_| ()));
        std::thread::spawn(move || cq.wait(Deadline::FOREVER).map(|_| ()));
    }
    println!("ready");
    let mut round = 0u64;
    loop {
        round += 1;
        // Refusals for want of room are part of it.
        let _ = me.ep.recv(&large, round);
        let _ = me.ep.post_one(&Op::multi_recv(&large).context(round));
        let _ = me.ep.trecv(&large, round, 0, round);
        let _ = other.ep.send(to_me, &large, round);
        let _ = other.ep.tsend(to_me, &large, round % 7, round);
        let _ = other.ep.write(to_me, &large, mr.remote(0), round);
        let _ = me.ep.send(stranger, large.slice(..100_000), round);
        let _ = me.ep.inject(stranger, &[1; 100]);
        let _ = me.ep.cancel(round.wrapping_sub(3));
        let _ = cntr.add(1);
        for host in [&me, &other] {
            let mut entries = [kfi::Entry::default(); 8];
            if host.cq.read(&mut entries).is_err() {
                let _ = host.cq.readerr();
            }
        }
        if round == u64::MAX {
            drop((fds, ring));
            return;
        }
    }
}

fn killed_processes_leave_nothing() {
    let stranger = Host::with(&Options {
        rx_size: 64,
        ..Options::default()
    });
    let name = stranger.ep.name().expect("name");
    let mut seed = 12345u64;
    let rounds = if sanitizing() { 250 } else { 400 };
    for round in 0..rounds {
        let mut process = Process::in_role("victim");
        process.tell(&name.to_string());
        if round % 4 != 0 {
            assert_eq!(process.read_line(), "ready");
        }
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        std::thread::sleep(Duration::from_micros((seed >> 33) % 20_000));
        process.kill();
        assert!(!process.wait().success());
        // Its messages to this process must not stay: receive them, so that there is room for the
        // next process.
        let into = Buffer::new(100_000).expect("buffer");
        while stranger.ep.recv(&into, 0).is_ok() {
            let mut entries = [kfi::Entry::default()];
            if stranger.cq.read(&mut entries).is_err() {
                let _ = stranger.cq.readerr();
            }
        }
        stranger_still_works(&stranger);
    }
    // No object of them remains.
    let left = || {
        StatClass::ALL
            .into_iter()
            .flat_map(|class| device().stats(class))
            .filter(|stat| {
                let stat = stat.as_ref().expect("stat");
                stat.pid != Some(std::process::id())
            })
            .count()
    };
    until("objects of killed processes gone", || left() == 0);
}

fn stranger_still_works(stranger: &Host) {
    let cntr = stranger
        .domain
        .cntr()
        .wait(kfi::Wait::Queue)
        .open()
        .expect("cntr");
    cntr.add(3).expect("add");
    assert_eq!(cntr.wait(3, SOON).expect("wait").value, 3);
    while stranger.ep.cancel(0).is_ok() {
        assert!(matches!(stranger.cq.readerr(), Ok(Some(_))));
    }
    loop {
        let mut entries = [kfi::Entry::default(); 16];
        match stranger.cq.read(&mut entries) {
            Ok(0) => break,
            Ok(_) => {}
            Err(_) => {
                let _ = stranger.cq.readerr();
            }
        }
    }
}

/// The directory of control groups.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Bytes of a message that is kept at its receiver, and how many are sent: nearly as many as it keeps
/// of one peer.
const KEPT: usize = 8192;
const KEPT_COUNT: u64 = 800;

/// A memory control group. Dropping it moves its processes back to the root group and removes it.
pub(crate) struct Cgroup(String);

impl Cgroup {
    /// A new one. All kernels of the tests have the memory controller.
    pub(crate) fn new(name: &str) -> Self {
        std::fs::write(format!("{CGROUPS}/cgroup.subtree_control"), "+memory").expect("+memory");
        let path = format!("{CGROUPS}/{name}");
        std::fs::create_dir(&path).expect("make a control group");
        Self(path)
    }

    /// Moves a process into it.
    pub(crate) fn take(&self, pid: u32) {
        std::fs::write(format!("{}/cgroup.procs", self.0), pid.to_string()).expect("cgroup.procs");
    }

    /// Bytes that are charged to it.
    pub(crate) fn current(&self) -> u64 {
        self.file("memory.current")
            .trim()
            .parse()
            .expect("a number")
    }

    /// Limits the bytes that may be charged to it.
    fn limit(&self, bytes: u64) {
        std::fs::write(format!("{}/memory.max", self.0), bytes.to_string()).expect("memory.max");
    }

    /// The number of charges that met its limit. Each attempt to reclaim its memory counts again.
    fn met_limit(&self) -> u64 {
        let events = self.file("memory.events");
        let count = events.lines().find_map(|line| line.strip_prefix("max "));
        count.expect("max").parse().expect("a number")
    }

    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(format!("{}/{name}", self.0)).expect(name)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let pids = std::fs::read_to_string(format!("{}/cgroup.procs", self.0));
        for pid in pids.unwrap_or_default().lines() {
            // The process may have ended.
            let _ = std::fs::write(format!("{CGROUPS}/cgroup.procs"), pid);
        }
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// The role of a process that never receives. Its standard input tells it its link and how many
/// endpoints to open; it ends when its standard input is closed.
fn hoarder() {
    let reported = line();
    let (link, count) = reported.split_once(' ').expect("two words");
    let (_fabric, domain) = domain_on(link);
    let options = Options {
        rx_size: 4096,
        buffered: 64 << 20,
        ..Options::default()
    };
    let count: usize = count.parse().expect("a number");
    let hosts: Vec<Host> = (0..count).map(|_| Host::on(&domain, &options)).collect();
    let names = hosts.iter().map(|host| host.ep.name().expect("name"));
    let names: Vec<String> = names.map(|name| name.to_string()).collect();
    println!("{}", names.join(" "));
    line();
}

fn buffered_messages_are_charged_to_their_receiver() {
    device();
    receiver_pays(Process::in_role("hoarder"), LINK, || domain_on(LINK));
}

/// On one machine the sender's task may do the work of the receiver's QP.
fn buffered_messages_from_the_wire_are_charged_to_their_receiver() {
    let hosts = apart();
    let [ours, theirs] = [0, 1].map(|index| (hosts.host(index), LINKS[index]));
    let process = theirs.0.run(|| Process::in_role("hoarder"));
    receiver_pays(process, theirs.1, || ours.0.run(|| domain_on(ours.1)));
}

/// Sends messages from `domain` to a [`hoarder`] on `link`, and checks the memory cgroup that is
/// charged for them.
fn receiver_pays(mut process: Process, link: &str, domain: impl FnOnce() -> (Fabric, Domain)) {
    let (theirs, ours) = (Cgroup::new("kfi-receiver"), Cgroup::new("kfi-sender"));
    theirs.take(process.id());
    ours.take(std::process::id());
    let (_fabric, domain) = domain();
    let host = Host::on(&domain, &Options::default());
    process.tell(&format!("{link} 1"));
    let peer = process.read_line().parse().expect("address");
    let peer = host.av.insert_one(peer).expect("insert");
    let bytes = Buffer::new(KEPT).expect("buffer");
    let before = (ours.current(), theirs.current());
    for context in 0..KEPT_COUNT {
        let sent = host.ep.send(peer, &bytes, context);
        sent.unwrap_or_else(|error| panic!("message {context}: {error}"));
        assert_eq!(host.completion().op_context, context);
    }
    let grown = (
        ours.current().saturating_sub(before.0),
        theirs.current().saturating_sub(before.1),
    );
    let sent = KEPT as u64 * KEPT_COUNT;
    // Charges are made in batches for each CPU, and a process needs some memory besides.
    assert!(grown.1 >= sent - (2 << 20), "{grown:?} of {sent}");
    assert!(grown.0 < sent / 4, "{grown:?} of {sent}");
    process.wait();
    until("the messages are given back", || {
        theirs.current() < before.1 + (2 << 20)
    });
}

/// Number of endpoints at which messages wait, number of messages at each, and the least bytes that
/// each takes there.
const WAITED_AT: usize = 16;
const WAITING: u64 = 800;
const WAITING_BYTES: u64 = 256;

/// A message that waits with its sender on another host takes memory at its receiver. On one
/// machine the sender's task may do the work of the receiver's QP.
fn waiting_messages_are_charged_to_their_receiver() {
    let hosts = apart();
    let [ours, theirs] = [0, 1].map(|index| (hosts.host(index), LINKS[index]));
    let mut process = theirs.0.run(|| Process::in_role("hoarder"));
    let [at_sender, at_receiver] = ["kfi-sender", "kfi-receiver"].map(Cgroup::new);
    at_receiver.take(process.id());
    at_sender.take(std::process::id());
    process.tell(&format!("{} {WAITED_AT}", theirs.1));
    let names = process.read_line();
    let (_fabric, domain) = ours.0.run(|| domain_on(ours.1));
    let options = Options {
        tx_size: 1024,
        cq_entries: 1024,
        ..Options::default()
    };
    // Longer than a message that is copied to its receiver. The region pins the buffer once.
    let bytes = Buffer::new(2 * KEPT).expect("buffer");
    let mr = domain.mr(&bytes).access(Access::SEND).open().expect("mr");
    let before = at_receiver.current();
    let senders: Vec<Host> = names
        .split(' ')
        .map(|name| {
            let host = Host::on(&domain, &options);
            let peer = host.av.insert_one(name.parse().expect("address"));
            let peer = peer.expect("insert");
            for context in 0..WAITING {
                host.ep.send(peer, mr.slice(..), context).expect("send");
            }
            host
        })
        .collect();
    let waiting = |values| match values {
        StatValues::Endpoint { unexpected, .. } => unexpected,
        _ => 0,
    };
    let all = WAITED_AT as u64 * WAITING;
    until("all messages wait", || {
        let stats = theirs.0.run(|| {
            let stats = Device::open().expect("device").stats(StatClass::Endpoint);
            stats.collect::<Result<Vec<_>, _>>().expect("stats")
        });
        let theirs = stats.iter().filter(|stat| stat.pid == Some(process.id()));
        theirs.map(|stat| waiting(stat.values)).sum::<u64>() == all
    });
    let grown = at_receiver.current().saturating_sub(before);
    // The processes and endpoints end before the test asserts.
    drop(process);
    drop(senders);
    assert!(
        grown >= all * WAITING_BYTES,
        "{grown} bytes for {all} messages"
    );
}

/// Bytes that the receiver's group may have besides what its process uses, and the number of
/// messages that are refused when it is full.
const SPARE: u64 = 2 << 20;
const REFUSED: u64 = 50;

/// The most charges that meet the limit for one message. A task that insists makes 16 attempts and
/// more.
const CHARGES: u64 = 4;

/// A message that finds no room in its receiver's memory group stays with its sender, whose task
/// does not try for long to reclaim the receiver's memory.
fn a_sender_reclaims_little_of_a_full_receiver() {
    device();
    let mut process = Process::in_role("hoarder");
    let theirs = Cgroup::new("kfi-receiver");
    theirs.take(process.id());
    let host = Host::with(&Options {
        tx_size: 1024,
        cq_entries: 1024,
        ..Options::default()
    });
    process.tell(&format!("{LINK} 1"));
    let peer = process.read_line().parse().expect("address");
    let peer = host.av.insert_one(peer).expect("insert");
    theirs.limit(theirs.current() + SPARE);
    let bytes = Buffer::new(KEPT).expect("buffer");
    // A message that is kept completes before the call returns.
    let is_kept = |context| {
        host.ep.send(peer, &bytes, context).expect("send");
        host.cq.next(Duration::ZERO).expect("next").is_some()
    };
    let kept = (0..KEPT_COUNT)
        .take_while(|context| is_kept(*context))
        .count() as u64;
    assert!(kept > 0 && kept < KEPT_COUNT, "{kept} messages were kept");
    let before = theirs.met_limit();
    // An attempt to reclaim may make room for a later message.
    let (mut sent, mut refused) = (0, 0);
    while refused < REFUSED {
        refused += u64::from(!is_kept(sent));
        sent += 1;
        assert!(
            sent < 4 * REFUSED,
            "{refused} of {sent} messages were refused"
        );
    }
    let charges = theirs.met_limit() - before;
    println!("{kept} messages were kept, {charges} charges for {sent} others met the limit");
    assert!(
        (REFUSED..=CHARGES * sent).contains(&charges),
        "{charges} charges for {sent} messages, {refused} of them refused"
    );
}
