// SPDX-License-Identifier: GPL-2.0
//! Reads and writes of a peer's memory, and the access rights of regions.

use crate::{
    abi_threads::{as_user, open_to_all},
    connected::open_region,
    harness::tests,
    host::{
        Host, Options, READ, WROTE, buffer, domain_on, holding, is_refused, link_count, pair,
        pattern, register, until,
    },
    keys::{REFUSED, guess},
    ways::Way,
};
use kfi::{Access, Errno, Mr, MrMode, Op, PacketCounter, Remote, RmaIov};
use std::time::{Duration, Instant};

tests![
    writes_and_reads_arrive: [OneHost, TwoHosts, Connection],
    an_injected_write_is_silent: [OneHost, TwoHosts],
    pieces_on_both_sides,
    a_forbidden_access_is_refused_and_changes_nothing,
    virtual_addresses_and_provider_keys_work,
    a_region_saves_pinning,
    the_key_of_a_closed_region_is_invalid,
    guessing_keys_is_slow_and_counted,
];

/// Writes to memory of the peer and reads it back, for each length.
fn writes_and_reads_arrive(way: Way) {
    let (a, to_b, b) = way.pair();
    let lens = [1, 8, 256, 257, 4096, 4097, 10_000, 100_000, 1 << 20];
    for (key, len) in (0..).zip(lens) {
        let theirs = buffer(len + 16);
        let mr = open_region(&b, &theirs, key);
        let bytes = pattern(len, key);
        let ours = holding(&bytes);
        let remote = Remote::new(8, mr.key());
        a.ep.write(to_b, &ours, remote, 1).expect("write");
        a.expect(WROTE, 1);
        assert!(theirs.to_vec(8..8 + len) == bytes, "length {len}");
        assert_eq!(theirs.to_vec(..8), [0; 8]);
        assert_eq!(theirs.to_vec(8 + len..), [0; 8]);
        let back = buffer(len);
        a.ep.read(to_b, &back, remote, 2).expect("read");
        a.expect(READ, 2);
        assert!(back.to_vec(..) == bytes, "length {len}");
    }
    // The target's CQ gets no entry.
    b.expect_nothing();
}

fn an_injected_write_is_silent(way: Way) {
    let (a, to_b, b) = way.pair();
    let theirs = buffer(16);
    let mr = open_region(&b, &theirs, 1);
    a.ep.inject_write(to_b, b"now", Remote::new(3, mr.key()))
        .expect("inject_write");
    if way == Way::TwoHosts {
        until("written", || theirs.to_vec(3..6) == b"now");
    }
    assert_eq!(theirs.to_vec(3..6), b"now");
    a.expect_nothing();
    // An error is never silent.
    a.ep.inject_write(to_b, b"now", Remote::new(14, mr.key()))
        .expect("inject_write");
    assert_eq!(a.failure().err, Errno::EACCES);
    b.expect_nothing();
}

fn pieces_on_both_sides() {
    let (a, to_b, b, _) = pair();
    let theirs = buffer(100);
    let (first, second) = (open_region(&b, &theirs, 1), open_region(&b, &theirs, 2));
    let ours = holding(&pattern(60, 1));
    let local = [
        ours.slice(0..5).into(),
        ours.slice(10..40).into(),
        ours.slice(45..60).into(),
    ];
    let remote = [
        RmaIov::new(first.remote(0), 20),
        RmaIov::new(second.remote(50), 30),
    ];
    let op = Op::write(to_b, &local[..], Remote::default())
        .remote_iov(&remote)
        .context(1);
    a.ep.post_one(&op).expect("write");
    a.expect(WROTE, 1);
    let all = ours.to_vec(..);
    let sent: Vec<u8> = [&all[0..5], &all[10..40], &all[45..60]].concat();
    assert_eq!(theirs.to_vec(0..20), sent[..20]);
    assert_eq!(theirs.to_vec(50..80), sent[20..]);
    assert_eq!(theirs.to_vec(20..50), [0; 30]);
    // Lengths that do not agree are refused at once.
    let remote = [RmaIov::new(first.remote(0), 20)];
    let op = Op::write(to_b, &local[..], Remote::default()).remote_iov(&remote);
    is_refused(a.ep.post_one(&op), Errno::EINVAL);
}

fn a_forbidden_access_is_refused_and_changes_nothing() {
    let (a, to_b, b, _) = pair();
    let theirs = buffer(100);
    let read_only = register(&b.domain, &theirs, Access::REMOTE_READ, 1);
    let ours = holding(&[7; 50]);
    // Unknown key, access not allowed, outside the region: the answer is the same for all.
    let mut contexts = 0;
    for remote in [
        Remote::new(0, 77),
        Remote::new(0, u64::MAX),
        Remote::new(0, read_only.key()),
    ] {
        contexts += 1;
        a.ep.write(to_b, &ours, remote, contexts).expect("write");
        let entry = a.failure();
        assert_eq!((entry.err, entry.prov_errno), (Errno::EACCES, REFUSED));
        assert_eq!((entry.flags, entry.op_context), (WROTE, contexts));
    }
    for addr in [51, 100, 101, u64::MAX, u64::MAX - 49] {
        a.ep.read(to_b, &ours, Remote::new(addr, read_only.key()), 9)
            .expect("read");
        let entry = a.failure();
        let found = (entry.err, entry.prov_errno);
        assert_eq!(found, (Errno::EACCES, REFUSED), "{addr}");
    }
    assert_eq!(theirs.to_vec(..), vec![0; 100]);
    assert_eq!(ours.to_vec(..), vec![7; 50]);
    // A list with one refused piece moves no bytes.
    let writable = open_region(&b, &theirs, 2);
    let remote = [
        RmaIov::new(writable.remote(0), 25),
        RmaIov::new(read_only.remote(0), 25),
    ];
    let op = Op::write(to_b, &ours, Remote::default()).remote_iov(&remote);
    a.ep.post_one(&op).expect("write");
    assert_eq!(a.failure().prov_errno, REFUSED);
    assert_eq!(theirs.to_vec(..), vec![0; 100]);
    let text = a.cq.strerror(REFUSED).expect("strerror");
    assert!(!text.is_empty());
}

fn virtual_addresses_and_provider_keys_work() {
    let device = crate::host::device();
    let fabric = device.fabric().expect("fabric");
    let domain = fabric
        .domain(crate::host::LINK)
        .mr_mode(MrMode::VIRT_ADDR | MrMode::PROV_KEY)
        .open()
        .expect("domain");
    let b = Host::on(&domain, &Options::default());
    let a = Host::new();
    let to_b = a.meet(&b);
    let theirs = buffer(100);
    let regions: Vec<Mr> = (0..3).map(|_| open_region(&b, &theirs, 5)).collect();
    let mut keys: Vec<u64> = regions.iter().map(Mr::key).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 3, "keys of the provider's choice differ");
    let ours = holding(&[1; 10]);
    a.ep.write(to_b, &ours, Remote::new(theirs.addr() + 90, keys[0]), 1)
        .expect("write");
    a.expect(WROTE, 1);
    assert_eq!(theirs.to_vec(90..), [1; 10]);
    a.ep.write(to_b, &ours, Remote::new(90, keys[0]), 2)
        .expect("write");
    assert_eq!(a.failure().prov_errno, REFUSED);
}

fn a_region_saves_pinning() {
    let (a, to_b, b, _) = pair();
    let ours = holding(&pattern(10_000, 2));
    let source = register(&a.domain, &ours, Access::SEND, 1);
    let theirs = buffer(10_000);
    let sink = register(&b.domain, &theirs, Access::RECV, 1);
    b.ep.recv(sink.slice(1_000..9_000), 1).expect("recv");
    a.ep.send(to_b, source.slice(2_000..10_000), 2)
        .expect("send");
    b.completion();
    assert!(theirs.to_vec(1_000..9_000) == ours.to_vec(2_000..10_000));
    // It must allow its use.
    is_refused(a.ep.recv(source.slice(..), 3), Errno::EACCES);
}

fn the_key_of_a_closed_region_is_invalid() {
    let (a, to_b, b, _) = pair();
    let theirs = buffer(64);
    let mr = open_region(&b, &theirs, 3);
    is_refused(
        b.domain
            .mr(&theirs)
            .access(Access::REMOTE_READ)
            .requested_key(3)
            .open(),
        Errno::KFI_ENOKEY,
    );
    let remote = mr.remote(0);
    mr.close().expect("close");
    let ours = holding(&[1; 8]);
    a.ep.write(to_b, &ours, remote, 1).expect("write");
    assert_eq!(a.failure().prov_errno, REFUSED);
    assert_eq!(theirs.to_vec(..), vec![0; 64]);
    drop(open_region(&b, &theirs, 3));
}

/// Tries keys that no region has for `time`, by one thread with a file of its own; returns the
/// number of answered tries.
fn guess_for(time: Duration, first: u64) -> u64 {
    as_user(|| {
        let (_fabric, domain) = domain_on(crate::host::LINK);
        let (a, b) = (
            Host::on(&domain, &Options::default()),
            Host::on(&domain, &Options::default()),
        );
        let to_b = a.meet(&b);
        let end = Instant::now() + time;
        let mut tries = 0;
        while Instant::now() < end {
            guess(&a.ep, &a.cq, to_b, first + tries);
            tries += 1;
        }
        tries
    })
}

fn guessing_keys_is_slow_and_counted() {
    // Each thread has an endpoint of its own, which may be in a part of its own: refusals without
    // delay, delays of 1, 2, 4, ... ms that fit in the time, and one more that began before its
    // end.
    const MOST: u64 = 4 * (16 + 12 + 1);
    crate::host::device();
    open_to_all();
    let before = link_count(PacketCounter::MrRefused);
    let time = Duration::from_secs(3);
    let tries: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4u64)
            .map(|number| scope.spawn(move || guess_for(time, number << 20)))
            .collect();
        let tries = threads.into_iter().map(|t| t.join().expect("guess"));
        tries.sum()
    });
    assert!(tries >= 16, "{tries} tries");
    assert!(tries <= MOST, "{tries} tries in 3 s by 4 threads");
    assert_eq!(link_count(PacketCounter::MrRefused) - before, tries);
    // Messages of the user are not delayed, nor are accesses of users without a limit.
    as_user(|| {
        let (_fabric, domain) = domain_on(crate::host::LINK);
        let host = Host::on(&domain, &Options::default());
        let to_itself = host.meet(&host);
        let began = Instant::now();
        let bytes = buffer(8);
        host.ep.recv(&bytes, 1).expect("recv");
        host.ep.send(to_itself, &bytes, 2).expect("send");
        for _ in 0..2 {
            host.completion();
        }
        assert!(began.elapsed() < Duration::from_secs(1));
    });
    let (a, to_b, _b, _) = pair();
    let bytes = buffer(8);
    for key in 0..200 {
        a.ep.read(to_b, &bytes, Remote::new(0, key), 0)
            .expect("read");
        a.failure();
    }
}
