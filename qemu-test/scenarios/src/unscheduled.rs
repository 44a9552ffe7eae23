// SPDX-License-Identifier: GPL-2.0
//! A task that is not scheduled delays neither a process that ends nor a peer's QP.
//!
//! The task posts operations in this process. It is [kept from running](Held) while it copies
//! memory of another process, or while it sends packets to that process's QP.

use crate::{
    abi_threads::{USER, open_to_all},
    connected::{connect_to, open_region},
    crowd::{Held, keep_away},
    harness::tests,
    host::{Host, Options, SOON, device, until, within},
    process::{Process, line, program},
};
use kfi::{
    Access, Buffer, Caps, Device, EpType, Errno, FiAddr, PacketCounter, PacketsOf, QpAddr, Remote,
    StatClass,
};
use std::{
    os::unix::{fs::FileExt, process::CommandExt},
    time::{Duration, Instant},
};

tests![
    a_process_exits_while_a_message_to_it_is_copied,
    a_process_is_killed_while_its_memory_is_written,
    a_process_is_killed_while_its_memory_is_copied,
    a_process_is_killed_while_its_message_is_received,
    a_process_is_killed_while_it_closes_an_endpoint,
    a_process_is_killed_while_it_closes_a_region,
    a_close_succeeds_when_the_copy_has_ended,
    messages_that_wait_at_a_killed_process_fail_at_once,
    packets_to_a_qp_do_not_wait_for_their_sender,
    a_process_is_killed_while_a_peer_reads_its_memory,
];

/// The roles of this program when a test starts it as another process.
pub(crate) const ROLES: &[(&str, fn())] = &[("copied", copied), ("answers", answers)];

/// How long a process may take to end.
const BOUND: Duration = Duration::from_secs(2);

/// Bytes of a copy: so many that it takes longer than a change of the scheduling policy.
const LEN: usize = 128 << 20;

/// The key of all regions.
pub(crate) const KEY: u64 = 1;

/// The fault if a process does not end.
const EXIT_WAITS: &str = "a process waits for a task that is not scheduled and copies its memory";

/// At both ends of the bytes that are copied.
const MARK: [u8; 8] = *b"kfi mark";

impl Process {
    /// Starts the target of operations in a role of this program, as the user `uid`.
    fn target(role: &str, uid: u32) -> Self {
        Self::start(program(role).uid(uid))
    }

    /// Whether it ends soon enough.
    fn ends(&mut self) -> bool {
        within(BOUND, || self.has_ended())
    }

    /// Whether it sleeps in the kernel and waits for something else than a signal.
    fn is_stuck(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id()));
        let stat = stat.expect("stat");
        // Behind the name, which is in parentheses.
        let state = stat.rsplit_once(')').map_or("", |(_, rest)| rest.trim());
        state.starts_with('D')
    }

    /// Whether its memory has the mark at this address.
    fn is_marked(&self, addr: u64) -> bool {
        let memory = std::fs::File::open(format!("/proc/{}/mem", self.id()));
        let mut bytes = [0; MARK.len()];
        let read = memory.expect("its memory").read_exact_at(&mut bytes, addr);
        read.expect("read its memory");
        bytes == MARK
    }
}

/// The role of a process to or from whose memory a task copies. It closes the object that it is
/// told to, or exits.
fn copied() {
    let host = Host::new();
    let name = host.ep.name().expect("name");
    let buffer = Buffer::new(LEN).expect("buffer");
    println!("{name} {}", buffer.addr());
    let reported = line();
    if reported != "unmarked" {
        mark(&buffer);
    }
    let mr = open_region(&host, &buffer, KEY);
    match reported.as_str() {
        "marked" | "unmarked" => host.ep.recv(&buffer, 1).expect("recv"),
        receiver => {
            let peer = host.av.insert_one(receiver.parse().expect("a name"));
            let sent = host.ep.send(peer.expect("insert"), &buffer, 1);
            sent.expect("send");
        }
    }
    println!("ready");
    match line().as_str() {
        "exit" => std::process::exit(0),
        "endpoint" => host.ep.close().expect("close the endpoint"),
        "region" => mr.close().expect("close the region"),
        _ => return,
    }
    println!("closed");
    line();
}

fn mark(buffer: &Buffer) {
    buffer.write_at(0, &MARK);
    buffer.write_at(LEN - MARK.len(), &MARK);
}

/// How bytes are copied, by the task.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Copying {
    Send,
    Write,
    Read,
    Receive,
}

impl Copying {
    /// Whether the bytes come from the target.
    fn is_from_target(self) -> bool {
        matches!(self, Self::Read | Self::Receive)
    }
}

/// A task that is not scheduled in the middle of a copy to or from the memory of a target, and what
/// the task posts to. The task is dropped first.
struct Caught {
    task: Held,
    target: Process,
    /// The target's endpoint.
    peer: FiAddr,
    host: Host,
}

impl Caught {
    /// Catches a task in a copy.
    fn new(how: Copying) -> Self {
        keep_away();
        // The copy may be over before its task is held.
        for _ in 0..20 {
            if let Some(caught) = Self::attempt(how) {
                return caught;
            }
        }
        panic!("no copy was caught in its middle");
    }

    fn attempt(how: Copying) -> Option<Self> {
        let mut target = Process::target("copied", 0);
        let reported = target.read_line();
        let (name, addr) = reported.split_once(' ').expect("two words");
        let addr: u64 = addr.parse().expect("an address");
        let host = Host::new();
        let peer = host.av.insert_one(name.parse().expect("a name"));
        let peer = peer.expect("insert");
        let own_name = host.ep.name().expect("name").to_string();
        target.tell(match how {
            Copying::Send | Copying::Write => "unmarked",
            Copying::Read => "marked",
            Copying::Receive => &own_name,
        });
        let buffer = Buffer::new(LEN).expect("buffer");
        if !how.is_from_target() {
            mark(&buffer);
        }
        // The region pins the buffer, so that posting takes no longer than the copy.
        let access = Access::SEND | Access::RECV | Access::WRITE | Access::READ;
        let mr = host.domain.mr(&buffer).access(access).open().expect("mr");
        assert_eq!(target.read_line(), "ready");
        let ep = host.ep.clone();
        let task = Held::new(move |_| {
            let remote = Remote::new(0, KEY);
            let posted = match how {
                Copying::Send => ep.send(peer, mr.slice(..), 1),
                Copying::Write => ep.write(peer, mr.slice(..), remote, 1),
                Copying::Read => ep.read(peer, mr.slice(..), remote, 1),
                Copying::Receive => ep.recv(mr.slice(..), 1),
            };
            posted.expect("post");
        });
        let is_marked = |offset: usize| {
            if how.is_from_target() {
                let mut bytes = [0; MARK.len()];
                buffer.read_at(offset, &mut bytes);
                bytes == MARK
            } else {
                target.is_marked(addr + offset as u64)
            }
        };
        until("a copy has begun", || is_marked(0));
        task.hold();
        std::thread::sleep(Duration::from_millis(20));
        if task.is_over() || is_marked(LEN - MARK.len()) {
            return None;
        }
        Some(Self {
            task,
            target,
            peer,
            host,
        })
    }

    /// The task goes on: its operation succeeds, though the target has ended.
    fn succeeds(&self) {
        self.task.release();
        let entry = self.host.completion();
        assert_eq!(entry.op_context, 1, "{entry:?}");
        self.host.expect_nothing();
    }
}

fn a_process_exits_while_a_message_to_it_is_copied() {
    let mut caught = Caught::new(Copying::Send);
    caught.target.tell("exit");
    assert!(caught.target.ends(), "{EXIT_WAITS}");
    caught.succeeds();
}

fn killed_while(how: Copying) {
    let mut caught = Caught::new(how);
    caught.target.kill();
    assert!(caught.target.ends(), "{EXIT_WAITS}");
    caught.succeeds();
}

fn a_process_is_killed_while_its_memory_is_written() {
    killed_while(Copying::Write);
}

fn a_process_is_killed_while_its_memory_is_copied() {
    killed_while(Copying::Read);
}

fn a_process_is_killed_while_its_message_is_received() {
    killed_while(Copying::Receive);
}

fn killed_while_it_closes(what: &str, how: Copying) {
    let mut caught = Caught::new(how);
    caught.target.tell(what);
    let stuck = within(Duration::from_secs(1), || caught.target.is_stuck());
    assert!(stuck, "the {what} closes while its memory is being copied");
    caught.target.kill();
    assert!(
        caught.target.ends(),
        "SIGKILL does not end a close that waits for a sender that is not scheduled"
    );
    caught.succeeds();
}

fn a_process_is_killed_while_it_closes_an_endpoint() {
    killed_while_it_closes("endpoint", Copying::Send);
}

fn a_process_is_killed_while_it_closes_a_region() {
    killed_while_it_closes("region", Copying::Read);
}

fn a_close_succeeds_when_the_copy_has_ended() {
    for (what, how) in [("endpoint", Copying::Send), ("region", Copying::Write)] {
        let mut caught = Caught::new(how);
        caught.target.tell(what);
        let stuck = within(Duration::from_secs(1), || caught.target.is_stuck());
        assert!(stuck, "the {what} closes while its memory is being copied");
        caught.task.release();
        assert_eq!(caught.target.read_line(), "closed", "{what}");
        caught.succeeds();
    }
}

/// The task that is not scheduled keeps nothing from the target's other peers.
fn messages_that_wait_at_a_killed_process_fail_at_once() {
    const BYTES: usize = 1 << 20;
    let mut caught = Caught::new(Copying::Send);
    let other = Host::new();
    let name = caught.host.av.lookup(caught.peer).expect("lookup");
    let peer = other.av.insert_one(name).expect("insert");
    let buffer = Buffer::new(BYTES).expect("buffer");
    other.ep.send(peer, &buffer, 2).expect("send");
    other.expect_nothing();
    caught.target.kill();
    assert!(caught.target.ends(), "{EXIT_WAITS}");
    let failure = other.failure();
    assert_eq!(failure.err, Errno::EHOSTUNREACH);
    assert!(!caught.task.is_over());
    caught.succeeds();
}

/// Bytes of a read over the wire. One packet asks for them; all else is the work of the peer's QP.
const ANSWER: usize = 256 << 10;

/// A connected endpoint, for messages and RMA.
pub(crate) fn options() -> Options {
    Options {
        ep_type: EpType::Msg,
        caps: Caps::MSG | Caps::RMA,
        ..Options::default()
    }
}

/// The role of another user's process, whose memory is read over the wire. It does nothing else.
pub(crate) fn answers() {
    let host = Host::with(&options());
    let buffer = Buffer::new(ANSWER).expect("buffer");
    let _mr = open_region(&host, &buffer, KEY);
    let (at, psn) = host.qp();
    println!("{} {} {psn}", at.host, at.qpn);
    let reported = line();
    connect_to(&host.ep, parse_qp(&reported));
    println!("ready");
    line();
}

/// What a process that [`answers`] writes: the address of its QP, and its first PSN.
pub(crate) fn parse_qp(words: &str) -> (QpAddr, u32) {
    let words: Vec<&str> = words.split(' ').collect();
    let [host, qpn, psn] = words[..] else {
        panic!("no address of a QP: {words:?}");
    };
    let host = host.parse().expect("a host");
    let qpn = qpn.parse().expect("a QP number");
    (QpAddr { host, qpn }, psn.parse().expect("a PSN"))
}

/// A packet counter of the only endpoint of a process.
pub(crate) fn packet_count(process: &Process, counter: PacketCounter) -> u64 {
    let device = Device::open().expect("device");
    let stat = device
        .stats(StatClass::Endpoint)
        .map(|stat| stat.expect("stat"))
        .find(|stat| stat.pid == Some(process.id()))
        .expect("the endpoint of the process");
    device
        .packets(PacketsOf::Endpoint(stat.id))
        .expect("packets")
        .get(counter)
}

/// A connection to a process that [`answers`], and a task that reads its memory without a pause.
/// The task is dropped first.
struct Flood {
    task: Held,
    host: Host,
    target: Process,
}

impl Flood {
    fn new() -> Self {
        keep_away();
        // The target may not make the link.
        device();
        open_to_all();
        let mut target = Process::target("answers", USER);
        let theirs = parse_qp(&target.read_line());
        let host = Host::with(&options());
        let (at, psn) = host.qp();
        connect_to(&host.ep, theirs);
        target.tell(&format!("{} {} {psn}", at.host, at.qpn));
        assert_eq!(target.read_line(), "ready");
        let (ep, cq) = (host.ep.clone(), host.cq.clone());
        let task = Held::new(move |stop| {
            let buffer = Buffer::new(ANSWER).expect("buffer");
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let remote = Remote::new(0, KEY);
                // Both fail when the target has ended.
                if ep.read(FiAddr::UNSPEC, &buffer, remote, 1).is_err()
                    || !matches!(cq.next(SOON), Ok(Some(_)))
                {
                    return;
                }
            }
        });
        Self { task, host, target }
    }

    /// Packets that the target's QP has taken.
    fn taken(&self) -> u64 {
        packet_count(&self.target, PacketCounter::RxPackets)
    }

    /// Lets the task read for a moment, and holds it wherever it is then.
    fn hold(&self) {
        self.task.release();
        let begin = self.taken();
        until("packets flow", || self.taken() > begin + 4);
        self.task.hold();
        std::thread::sleep(Duration::from_millis(10));
    }

    /// Whether the target's QP takes all packets that were sent until now. The task that is held is
    /// scheduled once in some 8 s, so the bound is shorter. The QP's worker shares a CPU with the
    /// spinning threads, so under KASAN a second can be too short.
    fn all_are_taken(&self) -> bool {
        let sent = self.host.count(PacketCounter::TxPackets);
        within(Duration::from_secs(4), || self.taken() >= sent)
    }
}

/// How long tests hold the task at one place after the other.
const TRIES: Duration = Duration::from_secs(3);

/// A task may do the work of a QP to which it sends only if both are the same user's.
fn packets_to_a_qp_do_not_wait_for_their_sender() {
    let flood = Flood::new();
    let begin = Instant::now();
    let mut held = 0;
    while begin.elapsed() < TRIES {
        flood.hold();
        held += 1;
        let taken = flood.all_are_taken();
        let stack = flood.task.stack();
        assert!(
            taken,
            "a QP does not take all packets while their sender is not scheduled: at {held}\n{stack}"
        );
    }
}

fn a_process_is_killed_while_a_peer_reads_its_memory() {
    let begin = Instant::now();
    let mut held = 0;
    while begin.elapsed() < TRIES {
        let mut flood = Flood::new();
        flood.hold();
        held += 1;
        let stack = flood.task.stack();
        flood.target.kill();
        assert!(
            flood.target.ends(),
            "a process waits for another user's task, which is not scheduled: at {held}\n{stack}"
        );
    }
}
