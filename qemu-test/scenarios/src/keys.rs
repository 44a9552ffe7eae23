// SPDX-License-Identifier: GPL-2.0
//! Keys that are guessed, over the wire and by connected endpoints: all refusals give the same
//! answer, the target's link counts each, and further guesses of the same user are delayed longer
//! and longer.
//!
//! `rma::guessing_keys_is_slow_and_counted` is about reliable datagrams within one host. It uses
//! the helpers here.

use crate::{
    abi_threads::{NetNs, as_new_user, open_to_all},
    connected::connect_qps,
    harness::tests,
    host::{Host, LINK, Options, device, domain_on, failure, link_count, netns_count, until},
    networks::Wire,
};
use kfi::{
    Access, Buffer, Cntr, Cq, CqBind, CqFormat, Domain, Endpoint, EpType, ErrEntry, Errno, FiAddr,
    Mr, PacketCounter, Remote, Wait,
};
use std::time::{Duration, Instant};

tests![
    all_refusals_over_the_wire_give_one_answer => 120,
    all_refusals_of_connected_endpoints_give_one_answer => 120,
    guesses_over_the_wire_are_delayed_and_counted => 120,
    guesses_of_connected_endpoints_are_delayed_and_counted => 120,
    guesses_of_endpoints_that_close_at_once_are_delayed,
    a_host_that_guesses_gets_no_connection => 300,
];

/// The `prov_errno` of every refused access.
pub(crate) const REFUSED: u32 = 256 + 10;

/// Ignored by connected endpoints.
const PEER: FiAddr = FiAddr::UNSPEC;

/// Tries a key that no region has. Returns when the access was posted, and when its refusal was
/// read.
pub(crate) fn guess(ep: &Endpoint, cq: &Cq, to: FiAddr, key: u64) -> (Instant, Instant) {
    let begin = Instant::now();
    let entry = access(ep, cq, to, false, Remote::new(0, key));
    assert_eq!((entry.err, entry.prov_errno), (Errno::EACCES, REFUSED));
    (begin, Instant::now())
}

/// Posts an access to 8 bytes, and reads its refusal.
fn access(ep: &Endpoint, cq: &Cq, to: FiAddr, write: bool, remote: Remote) -> ErrEntry {
    let bytes = Buffer::new(8).expect("buffer");
    if write {
        ep.write(to, &bytes, remote, 9)
    } else {
        ep.read(to, &bytes, remote, 9)
    }
    .expect("post");
    failure(cq)
}

/// The same over the wire, by reliable datagrams.
///
/// A refusal ends the connection. An access that is posted before the connection has ended fails
/// with `ECONNRESET`, and does not reach the target. It is posted again.
fn without_resets(a: &Host, to: FiAddr, write: bool, remote: Remote) -> ErrEntry {
    for _ in 0..100 {
        let entry = access(&a.ep, &a.cq, to, write, remote);
        if entry.err != Errno::ECONNRESET {
            return entry;
        }
    }
    panic!("the connection is reset again and again");
}

/// Number of refusals without a delay.
const FREE: u32 = 16;

/// Number of guesses of a test: the last one waits for 512 ms.
const GUESSES: u32 = FREE + 11;

/// The least time between the last refusal and the next access: 1 ms after the first refusal with a
/// delay, twice as long after each further one. (The longest delay is 1 s, which no test here
/// reaches.)
fn delay(refusals: u32) -> Duration {
    match refusals.checked_sub(FREE + 1) {
        None => Duration::ZERO,
        Some(beyond) => Duration::from_millis(1 << beyond),
    }
}

/// Makes `guess` try keys, one after another, and checks the time of each; returns their number.
fn are_delayed(mut guess: impl FnMut(u64) -> (Instant, Instant)) -> u64 {
    let (mut begin, mut before) = guess(0);
    // The least number that counts: each second takes one back.
    let mut refusals = 1;
    for key in 1..10 * u64::from(GUESSES) {
        let (posted, refused) = guess(key);
        refusals -= refusals.min((refused - before).as_secs() as u32);
        // The guess before was refused after it was posted.
        let took = refused - begin;
        assert!(
            took >= delay(refusals),
            "a guess after {refusals} refusals took {took:?}"
        );
        (begin, before) = (posted, refused);
        refusals += 1;
        if refusals == GUESSES {
            return key + 1;
        }
    }
    panic!("guesses take so long that refusals do not add up");
}

/// The domain of an ordinary user, on the link of a host. Refusals of another user's accesses delay
/// nothing of it.
fn users_domain(netns: &NetNs) -> Domain {
    netns.run(|| as_new_user(|| domain_on("roce0").1))
}

/// Number of accesses that a target has refused.
fn refusals(netns: &NetNs) -> u64 {
    netns.run(|| link_count(PacketCounter::MrRefused))
}

fn guesses_over_the_wire_are_delayed_and_counted() {
    open_to_all();
    let wire = Wire::new();
    let a = Host::on(&users_domain(&wire.a), &Options::default());
    let b = Wire::host(&wire.b, &Options::default());
    let to_b = a.meet(&b);
    let guesses = are_delayed(|key| {
        let begin = Instant::now();
        let entry = without_resets(&a, to_b, false, Remote::new(0, key));
        assert_eq!((entry.err, entry.prov_errno), (Errno::EACCES, REFUSED));
        // Includes the time of accesses that were posted too early.
        (begin, Instant::now())
    });
    assert_eq!(refusals(&wire.b), guesses);
    assert_eq!(refusals(&wire.a), 0);
}

/// The domain of connected endpoints of one host.
struct Side {
    domain: Domain,
    cq: Cq,
}

impl Side {
    fn on(domain: Domain) -> Self {
        let cq = domain.cq().format(CqFormat::Tagged).wait(Wait::Queue);
        let cq = cq.open().expect("cq");
        Self { domain, cq }
    }

    /// An enabled endpoint.
    fn endpoint(&self) -> Endpoint {
        let ep = self.domain.endpoint().ep_type(EpType::Msg);
        let ep = ep.open().expect("endpoint");
        ep.bind_cq(&self.cq, CqBind::TRANSMIT | CqBind::RECV)
            .expect("bind cq");
        ep.enable().expect("enable");
        ep
    }

    /// A connected endpoint, and its peer at the other side.
    fn connected(&self, other: &Self) -> (Endpoint, Endpoint) {
        let ends = (self.endpoint(), other.endpoint());
        connect_qps(&ends.0, &ends.1);
        ends
    }

    /// Opens counters until the open file has one free handle, so that each endpoint gets that one.
    fn fill(&self) -> Vec<Cntr> {
        let mut fillers = Vec::new();
        let again = || {
            let first = self.endpoint();
            let handle = first.handle();
            drop(first);
            self.endpoint().handle() == handle
        };
        while !again() {
            assert!(fillers.len() < 1000, "no handle is used again");
            fillers.push(self.domain.cntr().open().expect("cntr"));
        }
        fillers
    }
}

/// A connection ends with its first refusal, so each guess needs another one. The endpoints of a
/// user are in 16 parts with separate delays; those of one open file with the same handle are in
/// the same part.
fn connections_are_delayed(a: &Side, b: &Side) -> u64 {
    let _fillers = a.fill();
    let mut handle = None;
    are_delayed(|key| {
        let (ep, _peer) = a.connected(b);
        assert_eq!(*handle.get_or_insert(ep.handle()), ep.handle());
        guess(&ep, &a.cq, PEER, key)
    })
}

fn guesses_of_connected_endpoints_are_delayed_and_counted() {
    open_to_all();
    // Over the wire.
    let wire = Wire::new();
    let a = Side::on(users_domain(&wire.a));
    let b = Side::on(wire.b.run(|| domain_on("roce0").1));
    let guesses = connections_are_delayed(&a, &b);
    assert_eq!(refusals(&wire.b), guesses);
    assert_eq!(refusals(&wire.a), 0);
    drop((a, b));
    // Within one host.
    device();
    let a = Side::on(as_new_user(|| domain_on(LINK).1));
    let b = Side::on(domain_on(LINK).1);
    let before = link_count(PacketCounter::MrRefused);
    let guesses = connections_are_delayed(&a, &b);
    assert_eq!(link_count(PacketCounter::MrRefused) - before, guesses);
}

/// A guess whose endpoint closes before the answer comes is delayed like any other.
fn guesses_of_endpoints_that_close_at_once_are_delayed() {
    open_to_all();
    let wire = Wire::new();
    let a = Side::on(users_domain(&wire.a));
    let b = Side::on(wire.b.run(|| domain_on("roce0").1));
    let _fillers = a.fill();
    let bytes = Buffer::new(8).expect("buffer");
    let begin = Instant::now();
    for key in 0..=u64::from(FREE + 11) {
        let (ep, _peer) = a.connected(&b);
        ep.write(PEER, &bytes, Remote::new(0, key), 9)
            .expect("write");
    }
    let took = begin.elapsed();
    assert!(
        took >= delay(FREE + 11),
        "{took:?} for guesses that are not waited for"
    );
}

/// The users of a host that does not delay them, here root, are refused so often that the target
/// ignores requests of the host.
fn a_host_that_guesses_gets_no_connection() {
    const FREE: u64 = 4096;
    const PER_SECOND: u64 = 64;
    let wire = Wire::new();
    let delayed = || netns_count(&wire.b, PacketCounter::CmDelayed);
    let a = Side::on(wire.a.run(|| domain_on("roce0").1));
    let b = Side::on(wire.b.run(|| domain_on("roce0").1));
    let begin = Instant::now();
    let allowed = |time: Duration| FREE + PER_SECOND * (time.as_secs() + 1);
    let mut tries = 0;
    // The delay must last until a connection is requested.
    while tries < allowed(begin.elapsed() + Duration::from_secs(5)) {
        let (ep, _peer) = a.connected(&b);
        guess(&ep, &a.cq, PEER, 0x77);
        tries += 1;
        assert!(tries < 50_000, "fewer than {PER_SECOND} tries per second");
    }
    assert_eq!(refusals(&wire.b), tries);
    assert_eq!(delayed(), 0);
    let (from, to) = (
        Wire::host(&wire.a, &Options::default()),
        Wire::host(&wire.b, &Options::default()),
    );
    let to_b = from.meet(&to);
    let bytes = Buffer::new(8).expect("buffer");
    from.ep.send(to_b, &bytes, 1).expect("send");
    until("an ignored request", || delayed() > 0);
}

/// The bytes of each region of a target.
const LEN: u64 = 64;

/// Regions of a target, one with all access rights and others with one each.
struct Target {
    all: Mr,
    read_only: Mr,
    write_only: Mr,
    closed: u64,
}

impl Target {
    fn on(domain: &Domain) -> Self {
        let memory = Buffer::new(LEN as usize).expect("buffer");
        let open = |access, key| {
            let mr = domain.mr(&memory).access(access).requested_key(key);
            mr.open().expect("mr")
        };
        let closed = open(Access::REMOTE_READ | Access::REMOTE_WRITE, 4);
        let key = closed.key();
        closed.close().expect("close");
        Self {
            all: open(Access::REMOTE_READ | Access::REMOTE_WRITE, 1),
            read_only: open(Access::REMOTE_READ, 2),
            write_only: open(Access::REMOTE_WRITE, 3),
            closed: key,
        }
    }

    /// Accesses to 8 bytes that must be refused: whether it is a write, and its target.
    fn forbidden(&self) -> Vec<(&'static str, bool, Remote)> {
        let (all, read_only, write_only) =
            (self.all.key(), self.read_only.key(), self.write_only.key());
        vec![
            ("no such key", false, Remote::new(0, 0x77)),
            ("no such key", true, Remote::new(0, 0x77)),
            (
                "a key of a closed region",
                false,
                Remote::new(0, self.closed),
            ),
            ("no right to read", false, Remote::new(0, write_only)),
            ("no right to write", true, Remote::new(0, read_only)),
            ("across the end", false, Remote::new(LEN - 7, all)),
            ("across the end", true, Remote::new(LEN - 7, all)),
            ("behind the end", false, Remote::new(LEN, all)),
            ("far outside", true, Remote::new(u64::MAX - 7, all)),
            ("neither right nor bytes", true, Remote::new(LEN, read_only)),
        ]
    }
}

/// Makes `access` try all accesses that regions of the second host's `domain` forbid, and compares
/// the answers.
fn are_one_answer(wire: &Wire, domain: &Domain, mut access: impl FnMut(bool, Remote) -> ErrEntry) {
    let target = Target::on(domain);
    for (what, write, remote) in target.forbidden() {
        let before = refusals(&wire.b);
        let entry = access(write, remote);
        assert_eq!(entry.op_context, 9, "{what}");
        // The parts of an answer that could depend on the reason.
        let reported = (
            entry.err,
            entry.prov_errno,
            entry.len,
            entry.olen,
            entry.data,
        );
        assert_eq!(reported, (Errno::EACCES, REFUSED, 0, 0, 0), "{what}");
        assert_eq!(refusals(&wire.b) - before, 1, "{what}");
    }
}

fn all_refusals_over_the_wire_give_one_answer() {
    let wire = Wire::new();
    let a = Wire::host(&wire.a, &Options::default());
    let b = Wire::host(&wire.b, &Options::default());
    let to_b = a.meet(&b);
    are_one_answer(&wire, &b.domain, |write, remote| {
        without_resets(&a, to_b, write, remote)
    });
}

fn all_refusals_of_connected_endpoints_give_one_answer() {
    let wire = Wire::new();
    let [a, b] = [&wire.a, &wire.b].map(|netns| Side::on(netns.run(|| domain_on("roce0").1)));
    are_one_answer(&wire, &b.domain, |write, remote| {
        let (ep, _peer) = a.connected(&b);
        access(&ep, &a.cq, PEER, write, remote)
    });
}
