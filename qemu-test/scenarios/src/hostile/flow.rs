// SPDX-License-Identifier: GPL-2.0
//! The good flow: legitimate traffic, which must go on during all attacks. It is messages both ways
//! between two hosts, over a connection and as reliable datagrams, and newcomers: endpoints that
//! connect repeatedly, to an endpoint called the greeter. Each message is compared byte for byte.

use super::{
    A, B,
    field::{Facts, Field},
    packet::Capture,
};
use crate::{
    host::{Host, Options, RECEIVED, SENT, TRECEIVED, TSENT, buffer, domain_on},
    networks::{Wire, connect_with, msg},
    rng::Rng,
};
use kfi::{Buffer, CompFlags, Cq, Domain, Entry, Errno, Error, FiAddr, Op};
use std::{
    net::SocketAddr,
    ops::Range,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// Longest time of a completion under an attack.
const STALL: Duration = Duration::from_secs(60);

/// Lengths of messages, in turn: of one packet and of some, and one that its receiver reads.
const LENGTHS: [usize; 16] = [
    64, 4096, 1024, 8192, 100, 4096, 2000, 512, 64, 1024, 100, 4096, 64, 2000, 1024, LONGEST,
];

/// The longest of them.
const LONGEST: usize = 32 << 10;

/// Bytes behind a message that must not be written.
const BEHIND: usize = 64;

/// Ports of the newcomers, one after another, and of the greeter.
const NEWCOMERS: Range<u16> = 7001..7009;
const GREETER: u16 = 7100;

/// The pause between two newcomers: a multiple of the time that the last one took, within limits,
/// so that they take little CPU time from the flow, also on a slow kernel.
const NEWCOMER_PAUSE: Duration = Duration::from_millis(250);
const NEWCOMER_PAUSES: u32 = 4;
const NEWCOMER_PAUSE_MAX: Duration = Duration::from_secs(4);

/// How long newcomers may still be refused (barred) after an attack that may bar them: longer than
/// a request that no peer confirms is kept, which is 8.1 s.
const BARRED: Duration = Duration::from_secs(15);

/// The counts of the flow so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    /// Messages of the connection.
    pub(super) msg: u64,
    /// Reliable datagrams.
    pub(super) rdm: u64,
    /// Endpoints that connected, and those that were refused when that is allowed.
    pub(super) newcomers: u64,
    pub(super) barred: u64,
}

/// The state that the threads of the flow share.
struct Shared {
    begin: Instant,
    msg: AtomicU64,
    rdm: AtomicU64,
    newcomers: AtomicU64,
    barred: AtomicU64,
    /// The time that the slowest newcomer has taken, in nanoseconds.
    slowest: AtomicU64,
    /// The time until which newcomers may be refused, in nanoseconds from `begin`.
    barred_until: AtomicU64,
    pause: AtomicBool,
    paused: AtomicU64,
    stop: AtomicBool,
    failure: Mutex<Option<String>>,
}

impl Shared {
    /// Waits as long as the flow pauses. Returns whether to go on.
    fn goes_on(&self) -> bool {
        if self.pause.load(SeqCst) {
            self.paused.fetch_add(1, SeqCst);
            while self.pause.load(SeqCst) && !self.stop.load(SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            self.paused.fetch_sub(1, SeqCst);
        }
        !self.stop.load(SeqCst)
    }

    fn failed(&self, who: &str, why: &str) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert_with(|| format!("{who}: {why}"));
    }

    /// Whether a newcomer that began at this time, in nanoseconds from `begin`, may be refused.
    fn may_bar(&self, since: u64) -> bool {
        since < self.barred_until.load(SeqCst)
    }

    fn now(&self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }
}

/// The flow.
pub(super) struct Flow {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Flow {
    /// Begins the flow, and captures its first packets for the attacker's facts.
    pub(super) fn begin(field: &Field, facts: &mut Facts) -> Self {
        let capture = Capture::of_module(&field.b, [A, B]);
        let shared = Arc::new(Shared {
            begin: Instant::now(),
            msg: AtomicU64::new(0),
            rdm: AtomicU64::new(0),
            newcomers: AtomicU64::new(0),
            barred: AtomicU64::new(0),
            slowest: AtomicU64::new(0),
            barred_until: AtomicU64::new(0),
            pause: AtomicBool::new(false),
            paused: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            failure: Mutex::new(None),
        });
        let mut flow = Self {
            shared,
            threads: Vec::new(),
        };
        let connected = Pair::connected(field);
        let datagrams = Pair::datagrams(field);
        facts.good = datagrams.ports();
        flow.start("connection", |shared| &shared.msg, connected);
        flow.start("reliable datagrams", |shared| &shared.rdm, datagrams);
        let begin = Instant::now();
        while flow.counts().msg < 100 || flow.counts().rdm < 100 {
            assert!(begin.elapsed() < STALL, "the flow does not begin");
            assert_eq!(flow.failure(), None);
            std::thread::sleep(Duration::from_millis(5));
        }
        facts.learn(&capture);
        facts.newcomers = NEWCOMERS;
        facts.greeter = GREETER;
        let mut newcomers = Newcomers::new(field);
        flow.spawn("newcomers", move |shared| newcomers.next(shared));
        flow
    }

    fn start(&mut self, name: &'static str, count: fn(&Shared) -> &AtomicU64, mut pair: Pair) {
        let mut number = 0;
        self.spawn(name, move |shared| {
            for back in [false, true] {
                pair.exchange(number, back)?;
                count(shared).fetch_add(1, Relaxed);
            }
            number += 1;
            Ok(())
        });
    }

    fn spawn(
        &mut self,
        name: &'static str,
        mut step: impl FnMut(&Shared) -> Result<(), String> + Send + 'static,
    ) {
        let shared = self.shared.clone();
        self.threads.push(std::thread::spawn(move || {
            while shared.goes_on() {
                if let Err(why) = step(&shared) {
                    return shared.failed(name, &why);
                }
            }
        }));
    }

    pub(super) fn counts(&self) -> Counts {
        Counts {
            msg: self.shared.msg.load(Relaxed),
            rdm: self.shared.rdm.load(Relaxed),
            newcomers: self.shared.newcomers.load(Relaxed),
            barred: self.shared.barred.load(Relaxed),
        }
    }

    /// Why it has failed, if it has.
    pub(super) fn failure(&self) -> Option<String> {
        let failure = self.shared.failure.lock();
        let claimed = failure.unwrap_or_else(PoisonError::into_inner).clone();
        claimed.or_else(|| {
            let ended = self.threads.iter().any(JoinHandle::is_finished);
            ended.then(|| "a thread of the good flow has ended".to_owned())
        })
    }

    /// The time of the slowest newcomer since the last call.
    pub(super) fn slowest(&self) -> Duration {
        Duration::from_nanos(self.shared.slowest.swap(0, Relaxed))
    }

    /// From now on, and for some time, newcomers may be refused.
    pub(super) fn bar_newcomers(&self) {
        let until = self.shared.now() + BARRED.as_nanos() as u64;
        self.shared.barred_until.store(until, SeqCst);
    }

    /// Calls `what` while the flow pauses, with no operations under way.
    pub(super) fn pausing<T>(&self, what: impl FnOnce() -> T) -> Result<T, String> {
        self.shared.pause.store(true, SeqCst);
        let begin = Instant::now();
        while self.shared.paused.load(SeqCst) < self.threads.len() as u64 {
            if let Some(why) = self.failure() {
                return Err(why);
            }
            if begin.elapsed() > STALL {
                return Err("the good flow does not pause".into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let result = what();
        self.shared.pause.store(false, SeqCst);
        Ok(result)
    }

    /// Ends it.
    pub(super) fn end(&mut self) -> Result<(), String> {
        if let Some(why) = self.failure() {
            return Err(why);
        }
        self.shared.stop.store(true, SeqCst);
        for thread in self.threads.drain(..) {
            thread.join().map_err(|_| "a thread panicked".to_owned())?;
        }
        let failure = self.shared.failure.lock();
        let failure = failure.unwrap_or_else(PoisonError::into_inner).clone();
        failure.map_or(Ok(()), Err)
    }
}

/// Puts the bytes of message `number` into a buffer.
fn fill(buffer: &Buffer, len: usize, number: u64) -> Vec<u8> {
    let mut rng = Rng::new(number);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend(rng.next().to_ne_bytes());
    }
    bytes.truncate(len);
    buffer.write_at(0, &bytes);
    bytes
}

/// Takes the next completion, which must have these flags and this context.
fn done(cq: &Cq, flags: CompFlags, context: u64) -> Result<Entry, String> {
    match cq.next(STALL) {
        Ok(Some(entry)) if (entry.flags, entry.op_context) == (flags, context) => Ok(entry),
        Ok(Some(entry)) => Err(format!("not the completion of {context}: {entry:?}")),
        Ok(None) => Err(format!("no completion of {context} within {STALL:?}")),
        Err(error) => Err(format!("operation {context} failed: {error:?}")),
    }
}

/// Checks that the message has its bytes, and that no byte behind it was written.
fn arrived(entry: &Entry, into: &Buffer, bytes: &[u8]) -> Result<(), String> {
    if entry.len != bytes.len() as u64 {
        return Err(format!("{} bytes came of {}", entry.len, bytes.len()));
    }
    let came = into.to_vec(..bytes.len() + BEHIND);
    let (message, behind) = came.split_at(bytes.len());
    if message != bytes {
        let at = message
            .iter()
            .zip(bytes)
            .position(|(came, sent)| came != sent);
        return Err(format!("other bytes than were sent, from {at:?} on"));
    }
    if behind.iter().any(|byte| *byte != 0) {
        return Err("bytes behind the message were written".into());
    }
    into.write_at(0, &vec![0; bytes.len()]);
    Ok(())
}

fn post(result: kfi::Result<()>) -> Result<(), String> {
    result.map_err(|error| format!("post: {error:?}"))
}

/// Two hosts that exchange messages: plain ones over a connection, or tagged reliable datagrams.
struct Pair {
    ends: [Host; 2],
    peers: [FiAddr; 2],
    is_tagged: bool,
    buffers: [Buffer; 2],
}

impl Pair {
    fn connected(field: &Field) -> Self {
        let ends = [&field.a, &field.b].map(|host| Wire::host(host, &msg()));
        connect_with(&ends[0], &ends[1], 16, 0);
        Self::new(ends, [FiAddr::UNSPEC; 2], false)
    }

    fn datagrams(field: &Field) -> Self {
        let ends = [&field.a, &field.b].map(|host| Wire::host(host, &Options::default()));
        let peers = [ends[0].meet(&ends[1]), ends[1].meet(&ends[0])];
        Self::new(ends, peers, true)
    }

    fn new(ends: [Host; 2], peers: [FiAddr; 2], is_tagged: bool) -> Self {
        let buffers = [(); 2].map(|()| buffer(LONGEST + BEHIND));
        Self {
            ends,
            peers,
            is_tagged,
            buffers,
        }
    }

    fn ports(&self) -> [u16; 2] {
        let ends = self.ends.each_ref();
        ends.map(|end| end.ep.name().expect("name").port())
    }

    /// Message `number` goes from a to b, or `back`.
    fn exchange(&mut self, number: u64, back: bool) -> Result<(), String> {
        let (one, other) = (usize::from(back), usize::from(!back));
        let (from, to) = (&self.ends[one], &self.ends[other]);
        let [sent, into] = &self.buffers;
        let (peer, len) = (self.peers[one], LENGTHS[number as usize % LENGTHS.len()]);
        let bytes = fill(sent, len, number);
        let message = sent.slice(..len);
        let (receive, received, send, was_sent) = if self.is_tagged {
            let message = Op::tsend(peer, message, number);
            (Op::trecv(into, number, 0), TRECEIVED, message, TSENT)
        } else {
            (Op::recv(into), RECEIVED, Op::send(peer, message), SENT)
        };
        post(to.ep.post_one(&receive.context(2)))?;
        post(from.ep.post_one(&send.context(1)))?;
        arrived(&done(&to.cq, received, 2)?, into, &bytes)?;
        done(&from.cq, was_sent, 1).map(|_| ())
    }
}

/// Endpoints that connect repeatedly, each of which sends one message.
struct Newcomers {
    domain: Domain,
    greeter: Host,
    number: u64,
    into: Buffer,
}

impl Newcomers {
    fn new(field: &Field) -> Self {
        let (_, domain) = field.a.run(|| domain_on("roce0"));
        let (_, there) = field.b.run(|| domain_on("roce0"));
        let at = SocketAddr::from((B, GREETER));
        Self {
            domain,
            greeter: Host::at(&there, &Options::default(), Some(at)),
            number: 0,
            into: buffer(64 + BEHIND),
        }
    }

    fn next(&mut self, shared: &Shared) -> Result<(), String> {
        let since = shared.now();
        self.number += 1;
        let ports = u64::from(NEWCOMERS.end - NEWCOMERS.start);
        let port = NEWCOMERS.start + (self.number % ports) as u16;
        let at = SocketAddr::from((A, port));
        let newcomer = Host::at(&self.domain, &Options::default(), Some(at));
        let to = newcomer.meet(&self.greeter);
        let from = buffer(64);
        let bytes = fill(&from, 64, self.number);
        let (greeter, tag) = (&self.greeter, self.number);
        post(greeter.ep.trecv(&self.into, tag, 0, 2))?;
        post(newcomer.ep.tsend(to, &from, tag, 1))?;
        match newcomer.cq.next(STALL) {
            Ok(Some(_)) => {
                arrived(&done(&greeter.cq, TRECEIVED, 2)?, &self.into, &bytes)?;
                shared.newcomers.fetch_add(1, Relaxed);
                shared.slowest.fetch_max(shared.now() - since, Relaxed);
            }
            Err(Error::Completion(_)) if shared.may_bar(since) => {
                // The message may still have arrived.
                let _ = greeter.ep.cancel(2);
                match greeter.cq.next(STALL) {
                    Ok(Some(_)) => {}
                    Err(Error::Completion(entry)) if entry.err == Errno::ECANCELED => {}
                    other => return Err(format!("a receive that was cancelled: {other:?}")),
                }
                self.into.fill(0);
                shared.barred.fetch_add(1, Relaxed);
            }
            other => {
                return Err(format!(
                    "endpoint {} cannot connect: {other:?}",
                    self.number
                ));
            }
        }
        let took = Duration::from_nanos(shared.now() - since);
        let pause = (took * NEWCOMER_PAUSES).min(NEWCOMER_PAUSE_MAX);
        std::thread::sleep(pause.max(NEWCOMER_PAUSE));
        Ok(())
    }
}
