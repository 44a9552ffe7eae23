// SPDX-License-Identifier: GPL-2.0
//! Reliable datagrams between two hosts: two network namespaces, joined by a veth pair.
//!
//! What holds on one host holds between two: tests of other rooms are run again, with the endpoints of
//! a pair on different hosts. Besides, there is what only a network does: it loses packets, hosts die.

use crate::{
    abi_threads::NetNs,
    harness::{Test, tests},
    host::{Host, Options, SOON, domain_on, link_count, pair, pair_with, pattern, until},
    raw::{ip, program},
};
use kfi::{
    Access, Buffer, Caps, CntrBind, CompFlags, CqBind, Device, Domain, Errno, FiAddr, Op, OpFlags,
    PacketFigure, Remote,
};
use std::{
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

const SENT: CompFlags = CompFlags::MSG.union(CompFlags::SEND);
const RECEIVED: CompFlags = CompFlags::MSG.union(CompFlags::RECV);
const TSENT: CompFlags = CompFlags::TAGGED.union(CompFlags::SEND);
const TRECEIVED: CompFlags = CompFlags::TAGGED.union(CompFlags::RECV);
const WROTE: CompFlags = CompFlags::RMA.union(CompFlags::WRITE);
const READ: CompFlags = CompFlags::RMA.union(CompFlags::READ);

/// Tests of other rooms.
macro_rules! as_on_one_host {
    ($($room:ident: $($name:ident),+;)*) => {
        $($(
            fn $name() {
                apart();
                run(crate::$room::TESTS, stringify!($name));
            }
        )+)*
    };
}

as_on_one_host! {
    messages: a_posted_receive_gets_the_message, a_message_waits_for_its_receive,
        sizes_from_nothing_to_16_mib, tags_choose, order_is_kept,
        injected_bytes_can_be_reused_at_once, data_travels_with_a_message,
        truncation_tells_what_did_not_fit, a_large_message_waits_with_its_sender,
        delivery_complete_waits_for_the_receive, cancelled_receives_say_so,
        multi_receive_is_released_once;
    transfers: lists_of_256_pieces, lists_with_empty_pieces, levels_of_completion;
    rma: writes_and_reads_arrive, data_of_a_write_reaches_the_peers_cq, pieces_on_both_sides,
        a_region_saves_pinning;
    capabilities: a_directed_receive_takes_from_its_source_alone,
        without_the_capability_a_source_is_ignored;
}

tests![
    // As on one host.
    a_posted_receive_gets_the_message,
    a_message_waits_for_its_receive,
    sizes_from_nothing_to_16_mib => 600,
    tags_choose,
    order_is_kept,
    injected_bytes_can_be_reused_at_once,
    data_travels_with_a_message,
    truncation_tells_what_did_not_fit,
    a_large_message_waits_with_its_sender,
    delivery_complete_waits_for_the_receive,
    cancelled_receives_say_so,
    multi_receive_is_released_once,
    lists_of_256_pieces,
    lists_with_empty_pieces,
    levels_of_completion,
    writes_and_reads_arrive,
    data_of_a_write_reaches_the_peers_cq,
    pieces_on_both_sides,
    a_region_saves_pinning,
    a_directed_receive_takes_from_its_source_alone,
    without_the_capability_a_source_is_ignored,
    // Between hosts only.
    messages_are_looked_for,
    an_injected_write_is_silent,
    a_long_message => 300,
    a_long_piece_of_memory => 300,
    packets_are_counted,
    both_begin_at_once,
    idle_connections_are_retired => 120,
    nobody_there_refuses_the_connection,
    a_host_that_is_not_there_does_not_answer,
    a_peer_that_closes_and_comes_back,
    a_peer_that_is_killed_and_comes_back,
    a_send_that_waits_can_be_taken_back,
    a_flood_waits_at_its_sender,
    what_is_refused_is_an_error_and_the_next_goes_on,
    counters_of_both_sides_count,
    many_endpoints => 300,
    everything_in_a_storm_of_loss => 300,
    a_link_that_goes_fails_what_is_under_way,
    closing_with_operations_under_way,
    closing_while_connecting,
    closing_without_being_heard,
    processes_that_are_killed => 120,
    over_ipv6,
];

/// What this program is when a test starts it as another process.
pub(crate) const ROLES: &[(&str, fn())] = &[("host_victim", victim)];

/// Two hosts.
pub(crate) struct Hosts {
    a: NetNs,
    b: NetNs,
    turn: AtomicUsize,
}

static HOSTS: OnceLock<Hosts> = OnceLock::new();

/// Interfaces and links have these names, each on its host.
const LINKS: [&str; 2] = ["va", "vb"];

impl Hosts {
    fn new() -> Self {
        let hosts = Self {
            a: NetNs::new(),
            b: NetNs::new(),
            turn: AtomicUsize::new(0),
        };
        let there = hosts.b.path();
        hosts
            .a
            .run(|| ip(&format!("link add va type veth peer name vb netns {there}")));
        for (index, name) in LINKS.into_iter().enumerate() {
            let at = index + 1;
            hosts.host(index).run(|| {
                ip(&format!("address add 10.7.0.{at}/24 dev {name}"));
                ip(&format!("address add fd07::{at}/64 dev {name} nodad"));
                ip(&format!("link set {name} up"));
                let device = Device::open().expect("open /dev/kfabric");
                device.link_add(name, name).expect("link_add");
            });
        }
        hosts
    }

    fn host(&self, index: usize) -> &NetNs {
        if index.is_multiple_of(2) {
            &self.a
        } else {
            &self.b
        }
    }

    /// A domain on one of them.
    pub(crate) fn domain(&self, index: usize) -> (kfi::Fabric, Domain) {
        self.host(index).run(|| domain_on(LINKS[index % 2]))
    }

    /// The network behaves like this from now on, in both directions (tc-netem(8)).
    pub(crate) fn network(&self, netem: &str) {
        for (index, name) in LINKS.into_iter().enumerate() {
            let words = format!("qdisc replace dev {name} root netem {netem}");
            self.host(index).run(|| program("tc", &words));
        }
    }
}

/// From now on this process is two hosts, and each new domain is on the other one.
pub(crate) fn apart() -> &'static Hosts {
    HOSTS.get_or_init(Hosts::new)
}

/// The domain whose turn it is, if this process is two hosts.
pub(crate) fn next_domain() -> Option<(kfi::Fabric, Domain)> {
    let hosts = HOSTS.get()?;
    Some(hosts.domain(hosts.turn.fetch_add(1, Ordering::Relaxed)))
}

/// Runs a test of another room.
fn run(room: &[Test], name: &str) {
    let test = room
        .iter()
        .find(|test| test.name.rsplit("::").next() == Some(name))
        .expect("the test is there");
    (test.run)();
}

/// Sends a message of `len` bytes from `a` to `b`.
#[track_caller]
fn exchange(a: &Host, to_b: FiAddr, b: &Host, len: usize) {
    let bytes = pattern(len, len as u64);
    let from = Buffer::from_bytes(if len == 0 { b"-" } else { &bytes }).expect("buffer");
    let into = Buffer::new(len.max(1)).expect("buffer");
    b.ep.trecv(&into, 7, 0, 2).expect("trecv");
    a.ep.tsend(to_b, from.slice(..len), 7, 1).expect("tsend");
    let entry = b.expect(TRECEIVED, 2);
    assert_eq!(entry.len as usize, len);
    assert!(into.to_vec(..len) == bytes, "length {len}");
    a.expect(TSENT, 1);
}

/// Whether the kernel looks for its own faults, which makes it ten times slower, and what is long
/// between two hosts a hundred times.
fn sanitizing() -> bool {
    std::path::Path::new("/sys/kernel/debug/kmemleak").exists()
}

/// Bytes of the longest message and piece of memory that go between hosts here.
const LONGEST: usize = 256 << 20;

fn a_long_message() {
    apart();
    let (a, to_b, b, to_a) = pair();
    let (size, longest) = if sanitizing() {
        (2 << 20, 4 << 20)
    } else {
        (16 << 20, LONGEST)
    };
    let long = SOON * 10;
    for (from, to, at, len) in [
        (&a, to_b, &b, size),
        (&a, to_b, &b, size + 1),
        (&b, to_a, &a, longest),
    ] {
        let bytes = pattern(len, len as u64);
        let (ours, into) = (
            Buffer::from_bytes(&bytes).expect("buffer"),
            Buffer::new(len).expect("buffer"),
        );
        at.ep.trecv(&into, 7, 0, 2).expect("trecv");
        from.ep.tsend(to, &ours, 7, 1).expect("tsend");
        let entry = at.cq.next(long).expect("completion").expect("in time");
        assert_eq!((entry.len as usize, entry.op_context), (len, 2));
        assert!(into.to_vec(..) == bytes, "length {len}");
        from.expect(TSENT, 1);
    }
}

fn a_long_piece_of_memory() {
    apart();
    let (a, to_b, b, _) = pair();
    let len = if sanitizing() { 4 << 20 } else { LONGEST };
    let bytes = pattern(len, 7);
    let (ours, theirs) = (
        Buffer::from_bytes(&bytes).expect("buffer"),
        Buffer::new(len).expect("buffer"),
    );
    let _mr = b
        .domain
        .mr(&theirs)
        .access(Access::REMOTE_WRITE | Access::REMOTE_READ)
        .requested_key(1)
        .open()
        .expect("mr");
    let long = SOON * 10;
    let ends = |context| {
        let entry = a.cq.next(long).expect("completion").expect("in time");
        assert_eq!(entry.op_context, context);
    };
    a.ep.write(to_b, &ours, Remote::new(0, 1), 1)
        .expect("write");
    ends(1);
    assert!(theirs.to_vec(..) == bytes, "written");
    ours.fill(0);
    a.ep.read(to_b, &ours, Remote::new(0, 1), 2).expect("read");
    ends(2);
    assert!(ours.to_vec(..) == bytes, "read");
}

fn messages_are_looked_for() {
    apart();
    for len in [5, 100_000] {
        let (a, to_b, b, _) = pair();
        let search = |tag, flags| {
            let op = Op::tpeek(tag, 0).context(tag).flags(flags);
            b.ep.post_one(&op).expect("peek");
        };
        let sent: Vec<Buffer> = (1..=3)
            .map(|tag| Buffer::from_bytes(&pattern(len, tag)).expect("buffer"))
            .collect();
        for (from, tag) in sent.iter().zip(1..) {
            a.ep.tsend(to_b, from, tag, tag).expect("tsend");
        }
        // When the last one is there, all are.
        let there = |tag| {
            search(tag, OpFlags::PEEK);
            b.cq.next(SOON).is_ok()
        };
        until("the messages have come", || there(3));
        search(2, OpFlags::PEEK | OpFlags::DISCARD);
        assert_eq!(b.expect(TRECEIVED, 2).len as usize, len);
        a.expect(TSENT, if len == 5 { 1 } else { 2 });
        assert!(!there(2), "discarded and found");
        search(3, OpFlags::PEEK | OpFlags::CLAIM);
        b.expect(TRECEIVED, 3);
        assert!(!there(3), "claimed and found");
        let into = Buffer::new(len).expect("buffer");
        let claim = Op::trecv(&into, 9, 0).context(3).flags(OpFlags::CLAIM);
        b.ep.post_one(&claim).expect("claim");
        b.expect(TRECEIVED, 3);
        assert!(into.to_vec(..) == pattern(len, 3));
        b.ep.trecv(&into, 0, u64::MAX, 4).expect("trecv");
        b.expect(TRECEIVED, 4);
        assert!(into.to_vec(..) == pattern(len, 1));
        a.completion();
        a.completion();
        a.expect_nothing();
    }
}

fn an_injected_write_is_silent() {
    apart();
    let (a, to_b, b, _) = pair();
    let theirs = Buffer::new(8).expect("buffer");
    let _mr = b
        .domain
        .mr(&theirs)
        .access(Access::REMOTE_WRITE)
        .requested_key(1)
        .open()
        .expect("mr");
    let remote = Remote::new(2, 1);
    a.ep.inject_write(to_b, b"now", remote).expect("inject");
    until("written", || theirs.to_vec(2..5) == b"now");
    a.expect_nothing();
    b.expect_nothing();
}

fn packets_are_counted() {
    let hosts = apart();
    let (a, to_b, b, _) = pair();
    let count = |index: usize, host: &Host, figure| hosts.host(index).run(|| host.count(figure));
    assert_eq!(count(0, &a, PacketFigure::TxPackets), 0);
    // Of 1024 bytes, at the path MTU of an Ethernet.
    exchange(&a, to_b, &b, 4 * 1024 - 200);
    assert!(count(0, &a, PacketFigure::TxPackets) >= 4);
    assert!(count(1, &b, PacketFigure::RxPackets) >= 4);
    assert!(count(1, &b, PacketFigure::RxBytes) >= 4 * 1024 - 200);
    until("an acknowledgement", || {
        count(0, &a, PacketFigure::AckRx) > 0 && count(1, &b, PacketFigure::AckTx) > 0
    });
    // What a connection counted stays when it goes.
    let before = count(0, &a, PacketFigure::TxPackets);
    drop(b);
    let into = Buffer::new(8).expect("buffer");
    a.ep.send(to_b, &into, 9).expect("send");
    a.failure();
    assert!(count(0, &a, PacketFigure::TxPackets) >= before);
}

/// A connection that nobody needs for a minute goes, and the next message makes another.
fn idle_connections_are_retired() {
    let hosts = apart();
    let (a, to_b, b, _) = pair();
    exchange(&a, to_b, &b, 100);
    // Packets of connection management: those of the link that are not the endpoint's.
    let managed_at = |index: usize, host: &Host| {
        let tx = PacketFigure::TxPackets;
        hosts.host(index).run(|| link_count(tx) - host.count(tx))
    };
    let managed = || managed_at(0, &a) + managed_at(1, &b);
    std::thread::sleep(Duration::from_secs(1));
    let connected = managed();
    assert!(connected > 0);
    std::thread::sleep(Duration::from_secs(50));
    assert_eq!(managed(), connected);
    until("the connection is retired", || managed() > connected);
    std::thread::sleep(Duration::from_secs(1));
    let retired = managed();
    exchange(&a, to_b, &b, 100);
    assert!(managed() > retired);
}

fn both_begin_at_once() {
    apart();
    for _ in 0..20 {
        let (a, to_b, b, to_a) = pair();
        let (at_a, at_b) = (Buffer::new(8).unwrap(), Buffer::new(8).unwrap());
        a.ep.recv(&at_a, 1).expect("recv");
        b.ep.recv(&at_b, 1).expect("recv");
        std::thread::scope(|scope| {
            scope.spawn(|| a.ep.inject(to_b, b"from a..").expect("inject"));
            scope.spawn(|| b.ep.inject(to_a, b"from b..").expect("inject"));
        });
        a.expect(RECEIVED, 1);
        b.expect(RECEIVED, 1);
        assert_eq!(at_a.to_vec(..), b"from b..");
        assert_eq!(at_b.to_vec(..), b"from a..");
    }
}

/// The error entry of an operation, which must be this one.
#[track_caller]
fn fails(host: &Host, context: u64, errno: Errno) {
    let entry = host.failure();
    assert_eq!((entry.err, entry.op_context), (errno, context), "{entry:?}");
}

fn nobody_there_refuses_the_connection() {
    apart();
    let (a, _, b, _) = pair();
    let mut addr = b.ep.name().expect("name");
    addr.set_port(1);
    let nobody = a.av.insert_one(addr).expect("insert");
    let from = Buffer::new(8).expect("buffer");
    let begin = Instant::now();
    a.ep.send(nobody, &from, 5).expect("send");
    fails(&a, 5, Errno::ECONNREFUSED);
    assert!(begin.elapsed() < Duration::from_secs(2));
}

fn a_host_that_is_not_there_does_not_answer() {
    apart();
    let a = Host::new();
    let addr = "10.7.0.99:4000".parse().expect("address");
    let nobody = a.av.insert_one(addr).expect("insert");
    let from = Buffer::new(8).expect("buffer");
    a.ep.send(nobody, &from, 5).expect("send");
    fails(&a, 5, Errno::ETIMEDOUT);
    // An address of this host at which nobody is.
    let mut own = a.ep.name().expect("name");
    own.set_port(1);
    let nobody = a.av.insert_one(own).expect("insert");
    let refused = a.ep.send(nobody, &from, 6).expect_err("nobody");
    assert_eq!(refused.errno(), Some(Errno::EHOSTUNREACH));
}

fn a_peer_that_closes_and_comes_back() {
    apart();
    let (a, to_b, b, _) = pair();
    exchange(&a, to_b, &b, 100);
    let addr = b.ep.name().expect("name");
    // A long one waits for its receive there.
    let long = Buffer::new(100_000).expect("buffer");
    a.ep.send(to_b, &long, 9).expect("send");
    std::thread::sleep(Duration::from_millis(100));
    let domain = b.domain.clone();
    drop(b);
    fails(&a, 9, Errno::ECONNRESET);
    let from = Buffer::new(8).expect("buffer");
    a.ep.send(to_b, &from, 5).expect("send");
    fails(&a, 5, Errno::ECONNREFUSED);
    let b = Host::at(&domain, &Options::default(), Some(addr));
    exchange(&a, to_b, &b, 100);
    exchange(&a, to_b, &b, 100_000);
}

fn a_peer_that_is_killed_and_comes_back() {
    let hosts = apart();
    let (a, to_b, b, _) = pair();
    exchange(&a, to_b, &b, 100);
    let addr = b.ep.name().expect("name");
    // The cable is out: it dies without a word.
    hosts.network("loss 100%");
    let from = Buffer::new(8).expect("buffer");
    a.ep.send(to_b, &from, 5).expect("send");
    let domain = b.domain.clone();
    let begin = Instant::now();
    drop(b);
    assert!(
        begin.elapsed() < Duration::from_secs(5),
        "closing takes long"
    );
    fails(&a, 5, Errno::ETIMEDOUT);
    assert!(begin.elapsed() < Duration::from_secs(10), "noticed late");
    hosts.network("loss 0%");
    let b = Host::at(&domain, &Options::default(), Some(addr));
    exchange(&a, to_b, &b, 100);
}

fn a_send_that_waits_can_be_taken_back() {
    apart();
    let (a, to_b, b, _) = pair();
    exchange(&a, to_b, &b, 8);
    for len in [8, 100_000] {
        let from = Buffer::from_bytes(&pattern(len, 1)).expect("buffer");
        let op = Op::send(to_b, &from)
            .context(5)
            .flags(OpFlags::DELIVERY_COMPLETE | OpFlags::COMPLETION);
        a.ep.post_one(&op).expect("send");
        std::thread::sleep(Duration::from_millis(50));
        a.ep.cancel(5).expect("cancel");
        fails(&a, 5, Errno::ECANCELED);
        // Nothing of it is left there.
        exchange(&a, to_b, &b, len);
        let none = Op::tpeek(0, u64::MAX).context(6);
        b.ep.post_one(&none).expect("peek");
        fails(&b, 6, Errno::ENOMSG);
    }
}

fn a_flood_waits_at_its_sender() {
    apart();
    let options = Options {
        tx_size: 512,
        cq_entries: 4096,
        rx_size: 64,
        buffered: 64 << 10,
        ..Options::default()
    };
    let (a, to_b, b, to_a) = pair_with(&options);
    let count = 300u64;
    let bytes = |number: u64| pattern(4000, number);
    for number in 0..count {
        let from = Buffer::from_bytes(&bytes(number)).expect("buffer");
        a.ep.send(to_b, &from, number).expect("send");
    }
    // Those that were buffered there are done; the others wait.
    let mut done = 0;
    while let Some(entry) = a.cq.next(Duration::from_millis(300)).expect("next") {
        assert_eq!((entry.flags, entry.op_context), (SENT, done));
        done += 1;
    }
    assert!(done > 0 && done < 64, "{done} are done");
    // The other direction goes on meanwhile, and what the flooded one has to say too.
    let into = Buffer::new(100_000).expect("buffer");
    let back = Buffer::from_bytes(&pattern(100_000, 1)).expect("buffer");
    for len in [100, 100_000] {
        a.ep.trecv(&into, 7, 0, 1000).expect("trecv");
        b.ep.tsend(to_a, back.slice(..len), 7, 1001).expect("tsend");
        b.expect(TSENT, 1001);
        a.expect(TRECEIVED, 1000);
        assert!(into.to_vec(..len) == back.to_vec(..len));
    }
    for number in 0..count {
        b.ep.recv(&into, number).expect("recv");
        b.expect(RECEIVED, number);
        assert!(into.to_vec(..4000) == bytes(number), "message {number}");
    }
    for number in done..count {
        a.expect(SENT, number);
    }
}

fn what_is_refused_is_an_error_and_the_next_goes_on() {
    apart();
    let (a, to_b, b, _) = pair();
    let theirs = Buffer::new(64).expect("buffer");
    let mr = b
        .domain
        .mr(&theirs)
        .access(Access::REMOTE_READ)
        .requested_key(3)
        .open()
        .expect("mr");
    let ours = Buffer::new(8).expect("buffer");
    for (remote, write) in [
        (Remote::new(0, 4), false),
        (Remote::new(60, 3), false),
        (Remote::new(0, 3), true),
        (Remote::new(0, 1 << 40), false),
    ] {
        if write {
            a.ep.write(to_b, &ours, remote, 1).expect("write");
        } else {
            a.ep.read(to_b, &ours, remote, 1).expect("read");
        }
        fails(&a, 1, Errno::EACCES);
        a.ep.read(to_b, &ours, Remote::new(8, mr.key()), 2)
            .expect("read");
        a.expect(READ, 2);
    }
    assert_eq!(theirs.to_vec(..), [0; 64]);
}

fn counters_of_both_sides_count() {
    let hosts = apart();
    let counted = |index: usize| {
        let (_, domain) = hosts.domain(index);
        let cntrs = [0; 4].map(|_| domain.cntr().open().expect("cntr"));
        let cq = domain
            .cq()
            .format(kfi::CqFormat::Tagged)
            .open()
            .expect("cq");
        let av = domain.av().open().expect("av");
        let ep = domain
            .endpoint()
            .caps(Options::default().caps)
            .open()
            .expect("endpoint");
        ep.bind_cq(&cq, CqBind::TRANSMIT | CqBind::RECV)
            .expect("bind");
        ep.bind_av(&av).expect("bind");
        for (cntr, what) in cntrs.iter().zip([
            CntrBind::SEND,
            CntrBind::RECV,
            CntrBind::WRITE,
            CntrBind::REMOTE_WRITE,
        ]) {
            ep.bind_cntr(cntr, what).expect("bind");
        }
        ep.enable().expect("enable");
        (Host { domain, cq, av, ep }, cntrs)
    };
    let ((a, at_a), (b, at_b)) = (counted(0), counted(1));
    let to_b = a.meet(&b);
    let theirs = Buffer::new(4096).expect("buffer");
    let mr = b
        .domain
        .mr(&theirs)
        .access(Access::REMOTE_WRITE)
        .requested_key(1)
        .open()
        .expect("mr");
    let region = b.domain.cntr().open().expect("cntr");
    mr.bind_cntr(&region, CntrBind::REMOTE_WRITE).expect("bind");
    for number in 0..10 {
        exchange(&a, to_b, &b, number * 2000);
        a.ep.write(to_b, theirs_of(number), Remote::new(0, mr.key()), 3)
            .expect("write");
        a.expect(WROTE, 3);
    }
    let value = |cntr: &kfi::Cntr| cntr.read().expect("read").value;
    until("counted", || {
        value(&at_a[0]) == 10
            && value(&at_b[1]) == 10
            && value(&at_a[2]) == 10
            && value(&at_b[3]) == 10
            && value(&region) == 10
    });
}

/// Some bytes to be written, which stay.
fn theirs_of(number: usize) -> &'static Buffer {
    Box::leak(Box::new(Buffer::new(number + 1).expect("buffer")))
}

/// A hundred of them on each host, or `KFI_MANY`.
fn many_endpoints() {
    apart();
    let many = std::env::var("KFI_MANY").map_or(100, |many| many.parse().expect("a number"));
    let (_, at_a) = next_domain().expect("apart");
    let (_, at_b) = next_domain().expect("apart");
    let options = Options {
        cq_entries: 64,
        tx_size: 16,
        rx_size: 16,
        ..Options::default()
    };
    let open =
        |domain: &Domain| -> Vec<Host> { (0..many).map(|_| Host::on(domain, &options)).collect() };
    let (here, there) = (open(&at_a), open(&at_b));
    let into = Buffer::new(64).expect("buffer");
    // Each talks to three. Some at a time: a slow machine cannot make so many connections at once.
    for step in [0, 1, 7] {
        for some in (0..many).collect::<Vec<_>>().chunks(20) {
            for index in some {
                let (host, peer) = (&here[*index], &there[(index + step) % many]);
                peer.ep.recv(&into, 1).expect("recv");
                let to = host.meet(peer);
                host.ep
                    .inject(to, &(*index as u64).to_ne_bytes())
                    .expect("inject");
            }
            for index in some {
                there[(index + step) % many].expect(RECEIVED, 1);
            }
        }
    }
}

fn everything_in_a_storm_of_loss() {
    let hosts = apart();
    // With so much loss each window is small, and a slow machine has enough to do with less.
    for (netem, longest) in [
        ("loss 0.1% duplicate 0.1%", 1 << 20),
        (
            "delay 1ms 1ms loss 1% duplicate 1% reorder 10% 50%",
            1 << 20,
        ),
        ("loss 10% duplicate 2%", 100_000),
    ] {
        hosts.network(netem);
        let (a, to_b, b, to_a) = pair();
        for len in [0, 1, 256, 4096, 8192, 8193, 50_000, longest] {
            exchange(&a, to_b, &b, len);
            exchange(&b, to_a, &a, len);
        }
        let theirs = Buffer::new(longest).expect("buffer");
        let mr = b
            .domain
            .mr(&theirs)
            .access(Access::REMOTE_READ | Access::REMOTE_WRITE)
            .requested_key(1)
            .open()
            .expect("mr");
        let bytes = pattern(longest, 5);
        let ours = Buffer::from_bytes(&bytes).expect("buffer");
        a.ep.write(to_b, &ours, Remote::new(0, mr.key()), 1)
            .expect("write");
        a.expect(WROTE, 1);
        assert!(theirs.to_vec(..) == bytes);
        let back = Buffer::new(longest).expect("buffer");
        a.ep.read(to_b, &back, Remote::new(0, mr.key()), 2)
            .expect("read");
        a.expect(READ, 2);
        assert!(back.to_vec(..) == bytes);
    }
    hosts.network("loss 0%");
}

fn a_link_that_goes_fails_what_is_under_way() {
    let hosts = apart();
    let (a, to_b, b, _) = pair();
    exchange(&a, to_b, &b, 8);
    let long = Buffer::new(100_000).expect("buffer");
    a.ep.send(to_b, &long, 9).expect("send");
    std::thread::sleep(Duration::from_millis(50));
    hosts.a.run(|| ip("link del va"));
    fails(&a, 9, Errno::ENODEV);
}

fn closing_with_operations_under_way() {
    apart();
    for _ in 0..10 {
        let (a, to_b, b, to_a) = pair_with(&Options {
            caps: Options::default().caps & !Caps::SOURCE,
            ..Options::default()
        });
        let buffers: Vec<Buffer> = (0..20)
            .map(|number| Buffer::new(1 << (number % 18)).expect("buffer"))
            .collect();
        for (number, buffer) in buffers.iter().enumerate() {
            a.ep.send(to_b, buffer, number as u64).expect("send");
            b.ep.send(to_a, buffer, number as u64).expect("send");
            if number % 3 == 0 {
                b.ep.recv(buffer, 100).expect("recv");
            }
        }
        let begin = Instant::now();
        drop(a);
        drop(b);
        assert!(begin.elapsed() < SOON / 4, "closing takes long");
    }
}

fn closing_while_connecting() {
    apart();
    for _ in 0..5 {
        let a = Host::new();
        let _ = next_domain();
        let from = Buffer::new(100_000).expect("buffer");
        for last in 90..100 {
            let addr = format!("10.7.0.{last}:4000").parse().expect("address");
            let nobody = a.av.insert_one(addr).expect("insert");
            a.ep.send(nobody, &from, last).expect("send");
        }
        let begin = Instant::now();
        drop(a);
        assert!(
            begin.elapsed() < Duration::from_secs(2),
            "closing takes long"
        );
    }
}

fn closing_without_being_heard() {
    let hosts = apart();
    let pairs: Vec<_> = (0..8).map(|_| pair()).collect();
    for (a, to_b, b, _) in &pairs {
        exchange(a, *to_b, b, 100);
    }
    // Nobody hears them any more: each waits a moment for an answer.
    hosts.network("loss 100%");
    for (a, _, b, _) in pairs {
        let begin = Instant::now();
        drop((a, b));
        assert!(
            begin.elapsed() < Duration::from_secs(4),
            "closing takes long"
        );
    }
    hosts.network("loss 0%");
}

fn over_ipv6() {
    let hosts = apart();
    let open = |index: usize| {
        let (_, domain) = hosts.domain(index);
        let addr = format!("[fd07::{}]:0", index + 1).parse().expect("address");
        Host::at(&domain, &Options::default(), Some(addr))
    };
    let (a, b) = (open(0), open(1));
    let (to_b, to_a) = (a.meet(&b), b.meet(&a));
    for len in [0, 100, 100_000] {
        exchange(&a, to_b, &b, len);
        exchange(&b, to_a, &a, len);
    }
}

/// Where the victim's host is, and its address and that of its peer.
const VICTIM: [&str; 3] = ["VICTIM_HOST", "VICTIM_ADDR", "VICTIM_PEER"];

/// Sends to its peer, and receives, until it is killed.
fn victim() {
    let [host, addr, peer] = VICTIM.map(|name| std::env::var(name).expect("told"));
    let (_fabric, domain) = NetNs::open(&host).run(|| domain_on(LINKS[1]));
    let options = Options {
        cq_entries: 1024,
        ..Options::default()
    };
    let me = Host::at(&domain, &options, Some(addr.parse().expect("address")));
    let peer = me
        .av
        .insert_one(peer.parse().expect("address"))
        .expect("insert");
    let buffers: Vec<Buffer> = (0..8)
        .map(|index| Buffer::new(64 << (2 * index)).expect("buffer"))
        .collect();
    let mut step = 0;
    loop {
        let buffer = &buffers[step % buffers.len()];
        // Whatever becomes of it.
        let _ = me.ep.send(peer, buffer, 1);
        let _ = me.ep.recv(buffer, 2);
        let _ = me.cq.next(Duration::from_millis(1));
        step += 1;
    }
}

fn processes_that_are_killed() {
    let hosts = apart();
    let (a, to_b, b, _) = pair();
    let addr = b.ep.name().expect("name");
    let domain = b.domain.clone();
    drop(b);
    let into = Buffer::new(1 << 20).expect("buffer");
    let said = [
        hosts.b.path(),
        addr.to_string(),
        a.ep.name().expect("name").to_string(),
    ];
    for round in 0..15 {
        let mut child = std::process::Command::new(std::env::current_exe().expect("own path"))
            .args(["--role", "host_victim"])
            .envs(VICTIM.iter().zip(&said))
            .spawn()
            .expect("start a process");
        // It is there when it has said something.
        a.ep.recv(&into, 1).expect("recv");
        while a.cq.next(SOON).is_err() {
            a.ep.recv(&into, 1).expect("recv");
        }
        for number in 0..round {
            let len = 1 << number;
            let _ = a.ep.recv(&into, 1);
            let _ = a.ep.send(to_b, into.slice(..len), 2);
        }
        std::thread::sleep(Duration::from_millis(round * 3));
        child.kill().expect("kill");
        child.wait().expect("wait");
    }
    // What was under way has ended, and a new one takes nothing of the old one's.
    let b = Host::at(&domain, &Options::default(), Some(addr));
    drop(a);
    let a = Host::new();
    exchange(&a, a.meet(&b), &b, 100_000);
}
