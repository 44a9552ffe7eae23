// SPDX-License-Identifier: GPL-2.0
//! Concurrent operations of every kind: threads that post, cancel, read, close and open again on a
//! few endpoints, and processes that send to these until they are killed.
//!
//! The interleaving is random. The tests check all the time:
//!
//! - an accepted operation completes exactly once, a refused one never; only those of a closed
//!   endpoint may end without a completion, and none after the close;
//! - a message is received at most once, with its bytes; one whose send failed was not received,
//!   one whose send waited for its delivery and succeeded was;
//! - no completion of a multi-receive buffer comes behind its release;
//! - when an endpoint is closed, its CQ has all its credits back.
//!
//! The tests are mainly for the sanitizing kernel, where lockdep and KASAN check the module.
//!
//! # How
//!
//! An operation has a slot: memory of its own, a generation, and a state. Its context is slot and
//! generation, so a completion that comes twice, or too late, names an old generation.

use crate::{
    harness::tests,
    host::{Host, Options, SOON},
    hosts::sanitizing,
    raw::{File, addr_of_mut, arg, data, in_ms, ipv4},
};
use kfi::{
    Buffer, Errno,
    abi::{self, Call},
};
use std::{
    collections::HashMap,
    io::{BufRead, Write},
    process::{Command, Stdio},
    sync::{
        Mutex,
        atomic::{
            AtomicBool, AtomicU32, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::{Duration, Instant},
};

mod slots;

use slots::{
    FREE, KINDS, Kind, LENGTHS, MULTI_ROOM, POSTED, POSTING, ROOM, SHORT, Slot, identify, message,
};

tests![
    nothing_is_lost_or_done_twice => 900,
];

/// The roles in which tests start this program as another process.
pub(crate) const ROLES: &[(&str, fn())] = &[("shooter", shooter)];

/// How long the threads run: a minute where the kernel checks itself, as in the part races of the
/// tests, which makes threads meet wherever they can.
fn time() -> Duration {
    Duration::from_secs(if sanitizing() { 60 } else { 15 })
}
const PARTIES: usize = 4;
const PORT: u16 = 40_000;
/// A message from another process, whose sends this process does not know.
const FOREIGN: u64 = 1 << 63;

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as usize % n
    }
}

/// An endpoint with its CQ; the endpoint is closed and opened again.
struct Member {
    cq: u32,
    av: u32,
    ep: AtomicU32,
    name: abi::kfabric_sockaddr,
    key: u64,
    /// The memory that others write to.
    _region: Buffer,
    /// One reader at a time, so that a completion is handled before the next is read.
    reader: Mutex<()>,
}

/// The completions of a message so far.
#[derive(Default, Clone, Copy)]
struct Fate {
    received: bool,
    failed: bool,
    delivered: bool,
}

struct Arena {
    file: File,
    domain: u32,
    members: Vec<Member>,
    slots: Vec<Slot>,
    fates: Mutex<HashMap<u64, Fate>>,
    stop: AtomicBool,
    /// Parts of multi-receive buffers that were lost because a CQ was full, which is allowed.
    overrun: AtomicBool,
    completed: AtomicU64,
    closed: AtomicU64,
}

/// Set when a thread ends, also by a failed check.
struct StopAtEnd<'a>(&'a Arena);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop.store(true, SeqCst);
        }
    }
}

impl Arena {
    fn new() -> Self {
        let file = File::open();
        let domain = file.domain(file.fabric());
        let slots = KINDS.iter().flat_map(|&(kind, count, room)| {
            (0..count).map(move |_| Slot {
                kind,
                memory: Buffer::new(room).expect("buffer"),
                state: AtomicU64::new(0),
                ep: AtomicU32::new(0),
                delivers: AtomicBool::new(false),
            })
        });
        let mut arena = Self {
            file,
            domain,
            members: Vec::new(),
            slots: slots.collect(),
            fates: Mutex::default(),
            stop: AtomicBool::new(false),
            overrun: AtomicBool::new(false),
            completed: AtomicU64::new(0),
            closed: AtomicU64::new(0),
        };
        for index in 0..PARTIES {
            let member = arena.member(index);
            arena.members.push(member);
        }
        for member in &arena.members {
            for (index, peer) in arena.members.iter().enumerate() {
                let fi_addr = arena.file.insert(member.av, peer.name).expect("insert");
                assert_eq!(fi_addr, index as u64);
            }
        }
        arena
    }

    fn member(&self, index: usize) -> Member {
        let (file, domain) = (&self.file, self.domain);
        let region = Buffer::new(16 * 4096).expect("buffer");
        let key = 100 + index as u64;
        file.reg(domain, region.addr(), region.len() as u64, key)
            .expect("mr");
        let member = Member {
            cq: file.make(arg!(kfabric_cq_open:
                domain, entries: 4096, format: abi::KFI_CQ_FORMAT_TAGGED,
                wait_obj: abi::KFI_WAIT_QUEUE
            )),
            av: file.av(domain),
            ep: AtomicU32::new(0),
            name: ipv4([127, 0, 0, 1], PORT + index as u16),
            key,
            _region: region,
            reader: Mutex::new(()),
        };
        self.open(&member);
        member
    }

    fn open(&self, member: &Member) {
        let ep = self.file.make(abi::kfabric_ep_open {
            domain: self.domain,
            tx_size: 32,
            rx_size: 64,
            caps: abi::KFI_MSG
                | abi::KFI_TAGGED
                | abi::KFI_RMA
                | abi::KFI_MULTI_RECV
                | abi::KFI_SOURCE,
            // Some of the messages that could be buffered must wait with their senders.
            total_buffered_recv: 64 << 10,
            src_addr: member.name,
            ..Call::sized()
        });
        let both = abi::KFI_SEND | abi::KFI_RECV;
        self.file.bind(ep, member.cq, both).expect("bind cq");
        self.file.bind(ep, member.av, 0).expect("bind av");
        self.file.enable(ep).expect("enable");
        member.ep.store(ep, SeqCst);
    }

    fn slot(&self, context: u64) -> (&Slot, u64) {
        (&self.slots[(context & 0xffff) as usize], context >> 16)
    }

    /// A slot of this kind, made ready for an operation, and its context.
    fn take(&self, dice: &mut Dice, kind: Kind, ep: u32) -> Option<(&Slot, u64)> {
        let begin = dice.below(self.slots.len());
        let indices = (begin..self.slots.len()).chain(0..begin);
        for index in indices {
            let slot = &self.slots[index];
            let (generation, phase) = slot.now();
            // The endpoint is stored while no other thread has taken the slot: a free slot belongs
            // to no endpoint.
            if slot.kind == kind && phase == FREE && slot.change(generation, FREE, 3) {
                slot.ep.store(ep, SeqCst);
                let taken = slot.state.swap((generation + 1) << 2 | POSTING, SeqCst);
                assert_eq!(taken & 3, 3);
                return Some((slot, (generation + 1) << 16 | index as u64));
            }
        }
        None
    }

    fn post(&self, ep: u32, slot: &Slot, context: u64, op: abi::kfabric_op) {
        let op = abi::kfabric_op { context, ..op };
        let generation = context >> 16;
        match self.file.post_one(ep, op) {
            // If the change fails, the operation is complete already.
            Ok(()) => drop(slot.change(generation, POSTING, POSTED)),
            Err(e) => {
                let expected = [
                    Errno::EAGAIN,
                    Errno::EBADF,
                    Errno::EHOSTUNREACH,
                    Errno::KFI_EOPBADSTATE,
                ];
                assert!(expected.contains(&e), "{:?}: {e:?}", slot.kind);
                assert!(
                    slot.change(generation, POSTING, FREE),
                    "{:?}: refused with {e:?}, and complete",
                    slot.kind
                );
            }
        }
    }

    /// Posts something.
    fn play(&self, dice: &mut Dice) {
        let from = &self.members[dice.below(PARTIES)];
        let to = dice.below(PARTIES);
        let ep = from.ep.load(SeqCst);
        let choice = dice.below(32);
        let kind = match choice {
            0..12 => Kind::Recv,
            12..14 => Kind::Multi,
            14..28 => Kind::Send,
            28..31 => Kind::Rma,
            _ => Kind::Search,
        };
        let Some((slot, context)) = self.take(dice, kind, ep) else {
            return;
        };
        let tag = dice.below(4) as u64;
        let buf = slot.memory.addr();
        let op = match kind {
            Kind::Recv => data!(kfabric_op:
                opcode: [abi::KFABRIC_OP_RECV, abi::KFABRIC_OP_TRECV][choice % 2], buf,
                len: [ROOM, ROOM, ROOM, SHORT][dice.below(4)] as u64, peer: abi::KFI_ADDR_UNSPEC,
                tag: if choice % 2 == 1 { tag } else { 0 },
                ignore: if choice % 4 == 1 { 3 } else { 0 }
            ),
            Kind::Multi => data!(kfabric_op:
                opcode: abi::KFABRIC_OP_RECV, flags: abi::KFI_MULTI_RECV, buf,
                len: MULTI_ROOM as u64, peer: abi::KFI_ADDR_UNSPEC
            ),
            Kind::Send => {
                let len = LENGTHS[dice.below(LENGTHS.len())];
                slot.memory.write_at(0, &message(context, len));
                let delivers = dice.below(3) == 0;
                // Shorter ones have no room for their context.
                slot.delivers.store(delivers && len >= 16, SeqCst);
                let tagged = choice.is_multiple_of(3);
                let flags = if delivers {
                    abi::KFI_DELIVERY_COMPLETE
                } else if len <= 256 && dice.below(2) == 0 {
                    abi::KFI_INJECT | abi::KFI_COMPLETION
                } else {
                    0
                };
                data!(kfabric_op:
                    opcode: [abi::KFABRIC_OP_SEND, abi::KFABRIC_OP_TSEND][usize::from(tagged)],
                    flags, buf, len: len as u64, peer: to as u64, tag: if tagged { tag } else { 0 }
                )
            }
            Kind::Rma => data!(kfabric_op:
                opcode: [abi::KFABRIC_OP_READ, abi::KFABRIC_OP_WRITE][choice % 2], buf, len: 4096,
                peer: to as u64, rma_addr: 4096 * dice.below(16) as u64,
                rma_key: self.members[to].key
            ),
            Kind::Search => data!(kfabric_op:
                opcode: abi::KFABRIC_OP_TRECV, flags: abi::KFI_PEEK, peer: abi::KFI_ADDR_UNSPEC,
                tag
            ),
        };
        self.post(ep, slot, context, op);
    }

    /// Handles a completion: frees the slot, which must not be free already.
    fn end(&self, context: u64) {
        let (slot, generation) = self.slot(context);
        assert!(
            slot.change(generation, POSTING, FREE) || slot.change(generation, POSTED, FREE),
            "{:?}: complete, but not under way: {:?}, not {generation}",
            slot.kind,
            slot.now()
        );
        self.completed.fetch_add(1, Relaxed);
    }

    fn fate(&self, context: u64, tell: impl FnOnce(&mut Fate)) {
        let mut fates = self.fates.lock().expect("fates");
        let fate = fates.entry(context).or_default();
        tell(fate);
        assert!(!(fate.received && fate.failed), "received, and failed");
    }

    /// A receive has got `len` bytes at `offset` of its memory.
    fn received(&self, slot: &Slot, offset: usize, len: usize, whole: bool) {
        let bytes = slot.memory.to_vec(offset..offset + len);
        match identify(&bytes, whole) {
            Some(context) if context & FOREIGN == 0 => self.fate(context, |fate| {
                assert!(!fate.received, "a message came twice");
                fate.received = true;
            }),
            _ => {}
        }
    }

    /// Takes an entry; `err` is 0 for a success. Returns the context of a multi-receive buffer that
    /// an error entry releases: entries of its parts may still be queued, as error entries are read
    /// first.
    fn entry(&self, context: u64, flags: u64, buf: u64, len: u64, err: u32) -> Option<u64> {
        let (slot, generation) = self.slot(context);
        let (now, phase) = slot.now();
        assert!(
            now == generation && (phase == POSTING || phase == POSTED),
            "{:?}: an entry ({flags:#x}, {err}) of an operation that is over",
            slot.kind
        );
        let len = len as usize;
        let truncated = err == Errno::KFI_ETRUNC.raw() as u32;
        match slot.kind {
            Kind::Recv if err == 0 || truncated => self.received(slot, 0, len, err == 0),
            Kind::Multi => {
                if flags & abi::KFI_RECV != 0 && (err == 0 || truncated) {
                    let offset = buf - slot.memory.addr();
                    self.received(slot, offset as usize, len, err == 0);
                }
                if flags & abi::KFI_MULTI_RECV == 0 {
                    return None;
                }
                if err != 0 {
                    return Some(context);
                }
            }
            Kind::Send if err != 0 => self.fate(context, |fate| fate.failed = true),
            Kind::Send if slot.delivers.load(SeqCst) => {
                self.fate(context, |fate| fate.delivered = true);
            }
            _ => {}
        }
        self.end(context);
        None
    }

    /// Reads all entries. Returns their number.
    fn drain(&self, member: &Member, deadline: u64) -> usize {
        let _reader = member.reader.lock().expect("reader");
        let mut released = Vec::new();
        let mut deadline = deadline;
        let mut taken = 0;
        loop {
            // 48 bytes each: TAGGED.
            let mut raw = [[0u64; 6]; 32];
            let read = self.file.call(arg!(kfabric_cq_read:
                cq: member.cq, buf: addr_of_mut(&mut raw), count: 32,
                deadline: std::mem::take(&mut deadline)
            ));
            match read {
                Ok(read) => {
                    taken += read.count as usize;
                    for raw in raw.iter().take(read.count as usize) {
                        let none = self.entry(raw[0], raw[1], raw[3], raw[2], 0);
                        assert!(none.is_none());
                    }
                }
                Err(Errno::KFI_EAVAIL) => {
                    while let Ok(error) = self.file.cq_readerr(member.cq) {
                        taken += 1;
                        let (context, flags) = (error.op_context, error.comp_flags);
                        released
                            .extend(self.entry(context, flags, error.buf, error.len, error.err));
                    }
                }
                Err(Errno::KFI_EOVERRUN) => self.overrun.store(true, SeqCst),
                Err(Errno::EAGAIN) => break,
                Err(e) => panic!("cq_read: {e:?}"),
            }
        }
        // All entries that the CQ had of these have been read now.
        for context in released {
            self.end(context);
        }
        taken
    }

    /// Number of the CQ's entries reserved by operations.
    fn reserved(&self, member: &Member) -> u64 {
        self.file
            .stats(abi::KFI_CLASS_CQ)
            .iter()
            .filter(|stat| stat.pid as u32 == std::process::id() && stat.handle == member.cq)
            .map(|stat| stat.v[5])
            .sum()
    }

    /// Closes an endpoint while it is in use, and opens another in its place.
    fn renew(&self, member: &Member) {
        let ep = member.ep.load(SeqCst);
        self.file.close(ep).expect("close");
        self.closed.fetch_add(1, Relaxed);
        self.drain(member, 0);
        let begin = Instant::now();
        for slot in &self.slots {
            loop {
                let (generation, phase) = slot.now();
                if phase == FREE || slot.ep.load(SeqCst) != ep {
                    break;
                }
                // The close dropped it.
                if phase == POSTED && slot.change(generation, POSTED, FREE) {
                    break;
                }
                assert!(begin.elapsed() < SOON, "a call that does not return");
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        assert_eq!(self.reserved(member), 0, "credits of a CQ without endpoint");
        self.open(member);
    }

    fn cancel_some(&self, dice: &mut Dice) {
        let index = dice.below(self.slots.len());
        self.cancel(index);
    }

    fn cancel(&self, index: usize) {
        let slot = &self.slots[index];
        let (generation, phase) = slot.now();
        if phase != POSTED {
            return;
        }
        let cancelled = self.file.call(arg!(kfabric_ep_cancel:
            ep: slot.ep.load(SeqCst), context: generation << 16 | index as u64
        ));
        match cancelled {
            Ok(_) | Err(Errno::ENOENT | Errno::EBADF | Errno::KFI_EOPBADSTATE) => {}
            Err(e) => panic!("cancel: {e:?}"),
        }
    }

    /// Starts processes that send to this one, and kills them.
    fn shoot(&self, dice: &mut Dice) {
        let mut child = Command::new(std::env::current_exe().expect("own path"))
            .args(["--role", "shooter"])
            .stdin(Stdio::piped())
            .spawn()
            .expect("start a process");
        writeln!(child.stdin.as_mut().expect("stdin"), "{}", dice.0).expect("write");
        std::thread::sleep(Duration::from_millis(50 + dice.below(300) as u64));
        child.kill().expect("kill");
        child.wait().expect("wait");
    }

    /// Ends all threads, after which no operation may be left.
    fn settle(&self) {
        let begin = Instant::now();
        loop {
            for member in &self.members {
                self.drain(member, 0);
            }
            let left: Vec<usize> = (0..self.slots.len())
                .filter(|index| self.slots[*index].now().1 != FREE)
                .collect();
            if left.is_empty() {
                break;
            }
            let left_of = |index: &usize| (self.slots[*index].kind, self.slots[*index].now());
            assert!(
                begin.elapsed() < SOON,
                "never complete: {:?}",
                left.iter().map(left_of).collect::<Vec<_>>()
            );
            for index in left {
                self.cancel(index);
            }
        }
        for member in &self.members {
            assert_eq!(self.reserved(member), 0, "credits without operations");
        }
        let fates = self.fates.lock().expect("fates");
        let lost = fates
            .values()
            .filter(|fate| fate.delivered && !fate.received);
        if !self.overrun.load(SeqCst) {
            assert_eq!(lost.count(), 0, "delivered, but not received");
        }
    }
}

fn nothing_is_lost_or_done_twice() {
    let arena = Arena::new();
    let seed = u64::from(std::process::id()) << 20 | 0x5eed;
    println!("seed {seed:#x}");
    let begin = Instant::now();
    let time = time();
    let going = || begin.elapsed() < time && !arena.stop.load(SeqCst);
    std::thread::scope(|scope| {
        let (arena, going) = (&arena, &going);
        let run = |number: u64, act: &'static (dyn Fn(&Arena, &mut Dice) + Sync)| {
            scope.spawn(move || {
                let _stop = StopAtEnd(arena);
                let mut dice = Dice(seed.wrapping_mul(2 * number + 3));
                while going() {
                    act(arena, &mut dice);
                }
            });
        };
        for number in 0..3 {
            run(number, &Arena::play);
        }
        for number in 3..5 {
            run(number, &|arena, dice| {
                let member = &arena.members[dice.below(PARTIES)];
                arena.drain(member, in_ms(2));
            });
        }
        run(5, &Arena::cancel_some);
        run(6, &|arena, dice| {
            arena.renew(&arena.members[dice.below(PARTIES)]);
            std::thread::sleep(Duration::from_millis(dice.below(40) as u64));
        });
        run(7, &Arena::shoot);
    });
    arena.settle();
    println!(
        "{} completions, {} closes, {} messages",
        arena.completed.load(SeqCst),
        arena.closed.load(SeqCst),
        arena.fates.lock().expect("fates").len()
    );
    let renewed = arena.closed.load(SeqCst);
    assert!(renewed > 10 && arena.completed.load(SeqCst) > 1000);
}

/// Sends to all members until it is killed. Its messages never change.
fn shooter() {
    let mut line = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut line)
        .expect("a seed");
    let mut dice = Dice(line.trim().parse().expect("a number"));
    let host = Host::with(&Options {
        cq_entries: 4096,
        ..Options::default()
    });
    let to: Vec<_> = (0..PARTIES as u16)
        .map(|index| {
            let addr = ([127, 0, 0, 1], PORT + index).into();
            host.av.insert_one(addr).expect("insert")
        })
        .collect();
    let messages: Vec<Buffer> = (0u64..)
        .zip(LENGTHS)
        .map(|(i, len)| Buffer::from_bytes(&message(FOREIGN | i, len)).expect("buffer"))
        .collect();
    loop {
        let buffer = &messages[dice.below(messages.len())];
        let to = to[dice.below(PARTIES)];
        let op = match dice.below(2) {
            0 => kfi::Op::send(to, buffer),
            _ => kfi::Op::tsend(to, buffer, dice.below(4) as u64),
        };
        let _ = host.ep.post_one(&op);
        let mut entries = [kfi::Entry::default(); 16];
        if host.cq.read(&mut entries).is_err() {
            let _ = host.cq.readerr();
        }
    }
}
