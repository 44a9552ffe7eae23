// SPDX-License-Identifier: GPL-2.0
//! Atomics of reliable datagrams on one word: of several endpoints and programs at the same time,
//! behind writes, and over a network that loses packets. Each is executed once, and none is lost.

use super::{options, pair};
use crate::{
    connected::open_region,
    harness::tests,
    host::{FETCHED, Host, Options, buffer, buffer_of},
    hosts,
    ways::Way,
};
use kfi::{AtomicOp, Buffer, Datatype, Element, EpType, FiAddr, Remote};
use std::{
    collections::HashSet,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    time::Duration,
};

tests![
    writes_and_atomics_keep_their_order,
    all_ways_add_up => 180,
    threads_share_two_endpoints => 180,
    an_owner_that_always_changes_its_word_does_not_stop_atomics: [OneHost => 120, TwoHosts => 120],
    each_atomic_executes_once_over_a_lossy_network: [TwoHosts => 300, Connection => 300],
];

fn writes_and_atomics_keep_their_order() {
    const ROUNDS: u64 = 200;
    let (a, to_b, b) = pair(Way::TwoHosts);
    let theirs = buffer_of(&[0u64; 2]);
    let mr = open_region(&b, &theirs, 1);
    let (word, three) = (mr.remote(8), buffer_of(&[3u64]));
    let numbers: Vec<u64> = (0..ROUNDS).collect();
    let (numbers, sums) = (
        Buffer::of(&numbers),
        Buffer::of(&vec![0u64; ROUNDS as usize]),
    );
    let (numbers, sums) = (numbers.expect("buffer"), sums.expect("buffer"));
    let (uint64, sum) = (Datatype::Uint64, AtomicOp::Sum);
    for round in 0..ROUNDS as usize {
        let part = round * 8..round * 8 + 8;
        // The word is set, 3 is added twice, and it is read: by RDMA, a SEND, RC, RDMA.
        a.ep.write(to_b, numbers.slice(part.clone()), word, 1)
            .expect("write");
        a.ep.atomic(to_b, &three, word, uint64, sum, 2)
            .expect("atomic");
        a.ep.fetch_atomic(to_b, &three, sums.slice(part.clone()), word, uint64, sum, 3)
            .expect("fetch_atomic");
        a.ep.read(to_b, sums.slice(part), word, 4).expect("read");
        // A write may overtake a read before it, so the next round waits.
        for _ in 0..4 {
            a.completion();
        }
    }
    let expected: Vec<u64> = (6..ROUNDS + 6).collect();
    assert_eq!(sums.elements::<u64>(), expected);
}

/// Adds 1 to a number `count` times, several at a time, with an atomic of the way that the type
/// has. Returns the old values.
pub(crate) fn count_up<T: Element>(
    host: &Host,
    to: FiAddr,
    at: Remote,
    count: u64,
    one: T,
    number: fn(T) -> u64,
) -> Vec<u64> {
    const DEPTH: u64 = 8;
    let size = size_of::<T>();
    let (one, before) = (buffer_of(&[one]), buffer(size * DEPTH as usize));
    let mut found = Vec::new();
    let mut posted = 0;
    while (found.len() as u64) < count {
        while posted < count && posted < found.len() as u64 + DEPTH {
            let slot = (posted % DEPTH) as usize * size;
            let into = before.slice(slot..slot + size);
            host.ep
                .fetch_atomic(to, &one, into, at, T::DATATYPE, AtomicOp::Sum, posted)
                .expect("fetch_atomic");
            posted += 1;
        }
        let done = host.completion().op_context;
        found.push(number(before.elements::<T>()[(done % DEPTH) as usize]));
    }
    found
}

/// One word, changed by seven endpoints on two hosts, each with a thread of its own: by atomics of
/// RC and in SENDs, by reliable datagrams and over a connection. The target's program changes it
/// too, by atomic instructions.
fn all_ways_add_up() {
    const EACH: u64 = 500;
    /// What the program adds before each of `EACH` pauses, so that it adds while the others do.
    const BURST: u64 = 20;
    let (a, to_b, b) = pair(Way::TwoHosts);
    let theirs = buffer_of(&[0u64]);
    let mr = open_region(&b, &theirs, 1);
    let at = mr.remote(0);
    let near = Host::on(&b.domain, &options());
    let to_near = near.meet(&b);
    let [one, two, three] = [&a, &b, &a].map(|host| Host::on(&host.domain, &options()));
    let [one_to_b, two_to_b, three_to_b] = [&one, &two, &three].map(|host| host.meet(&b));
    let connected = Options {
        ep_type: EpType::Msg,
        ..options()
    };
    let (far, end) = (
        Host::on(&a.domain, &connected),
        Host::on(&b.domain, &connected),
    );
    crate::connected::connect(&far, &end);
    let unspec = FiAddr::UNSPEC;
    let (word, half) = (|word: u64| word, |half: u32| u64::from(half));
    let by_program = || {
        // SAFETY: the word is at the start of a page, which `theirs` keeps, and all accesses to it
        // are atomic.
        let word = unsafe { AtomicU64::from_ptr(theirs.as_ptr().cast()) };
        let mut found = Vec::new();
        for _ in 0..EACH {
            found.extend((0..BURST).map(|_| word.fetch_add(1, SeqCst)));
            std::thread::sleep(Duration::from_millis(1));
        }
        found
    };
    let mut words: Vec<u64> = Vec::new();
    std::thread::scope(|scope| {
        let threads = [
            scope.spawn(by_program),
            scope.spawn(|| count_up(&a, to_b, at, EACH, 1u64, word)),
            scope.spawn(|| count_up(&near, to_near, at, EACH, 1u64, word)),
            scope.spawn(|| count_up(&far, unspec, at, EACH, 1u64, word)),
            scope.spawn(|| count_up(&three, three_to_b, at, EACH, 1u64, word)),
            // In SENDs, and locally, on the low half of the word.
            scope.spawn(|| count_up(&one, one_to_b, at, EACH, 1u32, half)),
            scope.spawn(|| count_up(&two, two_to_b, at, EACH, 1u32, half)),
        ];
        for thread in threads {
            words.extend(thread.join().expect("a thread that adds"));
        }
    });
    let total = (6 + BURST) * EACH;
    assert_eq!(theirs.elements::<u64>(), [total]);
    let words: HashSet<u64> = words.into_iter().collect();
    assert!((0..total).all(|value| words.contains(&value)));
}

/// One word, changed by eight threads that share two endpoints: four that of the other host, and
/// four one of the word's host. Each addition is one of its own.
fn threads_share_two_endpoints() {
    const THREADS: usize = 4;
    const EACH: usize = 250;
    const TOTAL: u64 = 2 * (THREADS * EACH) as u64;
    let (far, far_to_b, b) = pair(Way::TwoHosts);
    let near = Host::on(&b.domain, &options());
    let near_to_b = near.meet(&b);
    let theirs = buffer_of(&[0u64]);
    let mr = open_region(&b, &theirs, 1);
    let (at, one) = (mr.remote(0), buffer_of(&[1u64]));
    let found = [(); 2].map(|()| buffer(THREADS * EACH * 8));
    std::thread::scope(|scope| {
        for ((host, to), found) in [(&far, far_to_b), (&near, near_to_b)]
            .into_iter()
            .zip(&found)
        {
            for thread in 0..THREADS {
                let one = &one;
                scope.spawn(move || {
                    for round in 0..EACH {
                        let slot = (thread * EACH + round) * 8;
                        let into = found.slice(slot..slot + 8);
                        let (word, sum) = (u64::DATATYPE, AtomicOp::Sum);
                        host.ep
                            .fetch_atomic(to, one, into, at, word, sum, slot as u64)
                            .expect("fetch_atomic");
                        // Of this thread or of another one with the same endpoint.
                        host.completion();
                    }
                });
            }
        }
    });
    assert_eq!(theirs.elements::<u64>(), [TOTAL]);
    let mut words: Vec<u64> = found.iter().flat_map(Buffer::elements::<u64>).collect();
    words.sort_unstable();
    assert!(words.into_iter().eq(0..TOTAL));
}

/// The owner adds to the low half of its word without a pause. A peer changes bits of the high
/// half, which takes the CPU more than one instruction if the old value is wanted.
fn an_owner_that_always_changes_its_word_does_not_stop_atomics(way: Way) {
    const COUNT: u32 = 1000;
    let (a, to_b, b) = pair(way);
    let theirs = buffer_of(&[0u64]);
    let mr = open_region(&b, &theirs, 1);
    let bits: Vec<u64> = (32..64).map(|bit| 1 << bit).collect();
    let (operands, before) = (buffer_of(&bits), buffer(8));
    let (over, mut high) = (AtomicBool::new(false), 0);
    let added = std::thread::scope(|scope| {
        let owner = scope.spawn(|| {
            // SAFETY: the word is at the start of a page, which `theirs` keeps, and all accesses to
            // it are atomic.
            let word = unsafe { AtomicU64::from_ptr(theirs.as_ptr().cast()) };
            let mut added = 0u64;
            while !over.load(SeqCst) {
                word.fetch_add(1, SeqCst);
                added += 1;
            }
            added
        });
        for number in 0..COUNT {
            let slot = (number % 32) as usize;
            let operand = operands.slice(slot * 8..slot * 8 + 8);
            let (uint64, xor) = (Datatype::Uint64, AtomicOp::Bxor);
            a.ep.fetch_atomic(to_b, operand, &before, mr.remote(0), uint64, xor, 1)
                .expect("fetch_atomic");
            a.expect(FETCHED, 1);
            assert_eq!(before.elements::<u64>()[0] >> 32 << 32, high);
            high ^= bits[slot];
        }
        over.store(true, SeqCst);
        owner.join().expect("the owner")
    });
    assert_eq!(theirs.elements::<u64>(), [high | (added & 0xffff_ffff)]);
}

fn each_atomic_executes_once_over_a_lossy_network(way: Way) {
    let network = hosts::apart();
    let (a, to_b, b) = pair(way);
    let theirs = buffer_of(&[0u64; 2]);
    let mr = open_region(&b, &theirs, 1);
    let is_rdm = way == Way::TwoHosts;
    let adds = if is_rdm { 300 } else { 500 };
    network.network("delay 1ms 1ms loss 3% duplicate 3% reorder 10%");
    let found = count_up(&a, to_b, mr.remote(8), adds, 1u64, |word| word);
    assert!(found.into_iter().eq(0..adds));
    // A connection has atomics of 8 bytes only.
    let halves = if is_rdm { adds } else { 0 };
    let found = count_up(&a, to_b, mr.remote(0), halves, 1u32, u64::from);
    assert!(found.into_iter().eq(0..halves));
    assert_eq!(theirs.elements::<u64>(), [halves, adds]);
}
