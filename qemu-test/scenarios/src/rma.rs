// SPDX-License-Identifier: GPL-2.0
//! Reads and writes of a peer's memory, and the access rights of regions.

use crate::{
    abi_threads::{as_user, open_to_all},
    connected::open_region,
    harness::tests,
    host::{Host, Options, domain_on, link_count, pair, pattern},
    keys::{REFUSED, guess},
};
use kfi::{
    Access, AvKind, Buffer, CntrBind, CompFlags, CqBind, CqFormat, Errno, FiAddr, Mr, MrMode, Op,
    OpFlags, PacketCounter, Remote, RmaIov, Wait,
};
use std::time::{Duration, Instant};

const WROTE: CompFlags = CompFlags::RMA.union(CompFlags::WRITE);
const READ: CompFlags = CompFlags::RMA.union(CompFlags::READ);

tests![
    writes_and_reads_arrive,
    an_injected_write_is_silent,
    data_of_a_write_reaches_the_peers_cq,
    pieces_on_both_sides,
    a_forbidden_access_is_refused_and_changes_nothing,
    virtual_addresses_and_provider_keys_work,
    counters_of_the_target_count,
    a_region_saves_pinning,
    the_key_of_a_closed_region_is_invalid,
    guessing_keys_is_slow_and_counted,
];

fn writes_and_reads_arrive() {
    let (a, to_b, b, _) = pair();
    write_and_read(&a, to_b, &b, [1, 8, 256, 257, 4096, 10_000, 1 << 20]);
}

/// Writes to memory of `b` and reads it back, for each length.
pub(crate) fn write_and_read<const N: usize>(a: &Host, to_b: FiAddr, b: &Host, lens: [usize; N]) {
    for (key, len) in lens.into_iter().enumerate() {
        let theirs = Buffer::new(len + 16).expect("buffer");
        let mr = open_region(b, &theirs, key as u64);
        let bytes = pattern(len, key as u64);
        let ours = Buffer::from_bytes(&bytes).expect("buffer");
        let remote = Remote::new(8, mr.key());
        a.ep.write(to_b, &ours, remote, 1).expect("write");
        a.expect(WROTE, 1);
        assert!(theirs.to_vec(8..8 + len) == bytes, "length {len}");
        assert_eq!(theirs.to_vec(..8), [0; 8]);
        assert_eq!(theirs.to_vec(8 + len..), [0; 8]);
        let back = Buffer::new(len).expect("buffer");
        a.ep.read(to_b, &back, remote, 2).expect("read");
        a.expect(READ, 2);
        assert!(back.to_vec(..) == bytes, "length {len}");
    }
    // The target's CQ gets no entry.
    b.expect_nothing();
}

fn an_injected_write_is_silent() {
    let (a, to_b, b, _) = pair();
    let theirs = Buffer::new(16).expect("buffer");
    let mr = open_region(&b, &theirs, 1);
    a.ep.inject_write(to_b, b"now", Remote::new(3, mr.key()))
        .expect("inject_write");
    assert_eq!(theirs.to_vec(3..6), b"now");
    a.expect_nothing();
    // An error is never silent.
    a.ep.inject_write(to_b, b"now", Remote::new(14, mr.key()))
        .expect("inject_write");
    assert_eq!(a.failure().err, Errno::EACCES);
}

fn data_of_a_write_reaches_the_peers_cq() {
    let (a, to_b, b, _) = pair();
    let theirs = Buffer::new(16).expect("buffer");
    let mr = open_region(&b, &theirs, 1);
    let ours = Buffer::from_bytes(b"12345678").expect("buffer");
    let op = Op::write(to_b, &ours, Remote::new(0, mr.key()))
        .context(4)
        .flags(OpFlags::REMOTE_CQ_DATA)
        .data(99);
    a.ep.post_one(&op).expect("writedata");
    a.expect(WROTE, 4);
    let flags = CompFlags::RMA | CompFlags::REMOTE_WRITE | CompFlags::REMOTE_CQ_DATA;
    let entry = b.completion();
    // fi_cq(3): the length is for receives.
    assert_eq!((entry.flags, entry.data, entry.len), (flags, 99, 0));
}

fn pieces_on_both_sides() {
    let (a, to_b, b, _) = pair();
    let theirs = Buffer::new(100).expect("buffer");
    let (first, second) = (open_region(&b, &theirs, 1), open_region(&b, &theirs, 2));
    let ours = Buffer::from_bytes(&pattern(60, 1)).expect("buffer");
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
    let error = a.ep.post_one(&op).expect_err("50 bytes into 20");
    assert_eq!(error.errno(), Some(Errno::EINVAL));
}

fn a_forbidden_access_is_refused_and_changes_nothing() {
    let (a, to_b, b, _) = pair();
    let theirs = Buffer::new(100).expect("buffer");
    let read_only = b
        .domain
        .mr(&theirs)
        .access(Access::REMOTE_READ)
        .requested_key(1)
        .open()
        .expect("mr");
    let ours = Buffer::from_bytes(&[7; 50]).expect("buffer");
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
    let theirs = Buffer::new(100).expect("buffer");
    let regions: Vec<Mr> = (0..3).map(|_| open_region(&b, &theirs, 5)).collect();
    let mut keys: Vec<u64> = regions.iter().map(Mr::key).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 3, "keys of the provider's choice differ");
    let ours = Buffer::from_bytes(&[1; 10]).expect("buffer");
    a.ep.write(to_b, &ours, Remote::new(theirs.addr() + 90, keys[0]), 1)
        .expect("write");
    a.expect(WROTE, 1);
    assert_eq!(theirs.to_vec(90..), [1; 10]);
    a.ep.write(to_b, &ours, Remote::new(90, keys[0]), 2)
        .expect("write");
    assert_eq!(a.failure().prov_errno, REFUSED);
}

fn counters_of_the_target_count() {
    let a = Host::new();
    let (_, domain) = crate::host::domain();
    let cq = domain
        .cq()
        .format(CqFormat::Tagged)
        .wait(Wait::Queue)
        .open()
        .expect("cq");
    let av = domain.av().kind(AvKind::Map).open().expect("av");
    let [writes, reads, region_writes] =
        [(); 3].map(|()| domain.cntr().wait(Wait::Queue).open().expect("cntr"));
    let ep = domain.endpoint().open().expect("endpoint");
    ep.bind_cq(&cq, CqBind::TRANSMIT | CqBind::RECV)
        .expect("bind");
    ep.bind_av(&av).expect("bind");
    ep.bind_cntr(&writes, CntrBind::REMOTE_WRITE).expect("bind");
    ep.bind_cntr(&reads, CntrBind::REMOTE_READ).expect("bind");
    ep.enable().expect("enable");
    let theirs = Buffer::new(64).expect("buffer");
    let mr = domain
        .mr(&theirs)
        .access(Access::REMOTE_READ | Access::REMOTE_WRITE)
        .requested_key(1)
        .open()
        .expect("mr");
    mr.bind_cntr(&region_writes, CntrBind::REMOTE_WRITE)
        .expect("bind");
    let to_b: FiAddr = a.av.insert_one(ep.name().expect("name")).expect("insert");
    let ours = Buffer::new(64).expect("buffer");
    for _ in 0..3 {
        a.ep.write(to_b, &ours, mr.remote(0), 0).expect("write");
        a.expect(WROTE, 0);
    }
    a.ep.read(to_b, &ours, mr.remote(0), 0).expect("read");
    a.expect(READ, 0);
    assert_eq!(
        (writes.value(), reads.value(), region_writes.value()),
        (3, 1, 3)
    );
    // Refused accesses count nowhere at the target.
    a.ep.write(to_b, &ours, Remote::new(1, mr.key()), 0)
        .expect("write");
    a.failure();
    assert_eq!(
        (writes.value(), writes.err(), region_writes.err()),
        (3, 0, 0)
    );
}

fn a_region_saves_pinning() {
    let (a, to_b, b, _) = pair();
    let ours = Buffer::from_bytes(&pattern(10_000, 2)).expect("buffer");
    let source = a
        .domain
        .mr(&ours)
        .access(Access::SEND)
        .requested_key(1)
        .open()
        .expect("mr");
    let theirs = Buffer::new(10_000).expect("buffer");
    let sink = b
        .domain
        .mr(&theirs)
        .access(Access::RECV)
        .requested_key(1)
        .open()
        .expect("mr");
    b.ep.recv(sink.slice(1_000..9_000), 1).expect("recv");
    a.ep.send(to_b, source.slice(2_000..10_000), 2)
        .expect("send");
    b.completion();
    assert!(theirs.to_vec(1_000..9_000) == ours.to_vec(2_000..10_000));
    // It must allow its use.
    let error =
        a.ep.recv(source.slice(..), 3)
            .expect_err("a region for sends");
    assert_eq!(error.errno(), Some(Errno::EACCES));
}

fn the_key_of_a_closed_region_is_invalid() {
    let (a, to_b, b, _) = pair();
    let theirs = Buffer::new(64).expect("buffer");
    let mr = open_region(&b, &theirs, 3);
    let error = b
        .domain
        .mr(&theirs)
        .access(Access::REMOTE_READ)
        .requested_key(3)
        .open()
        .expect_err("the key is in use");
    assert_eq!(error.errno(), Some(Errno::KFI_ENOKEY));
    let remote = mr.remote(0);
    mr.close().expect("close");
    let ours = Buffer::from_bytes(&[1; 8]).expect("buffer");
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
        let bytes = Buffer::new(8).expect("buffer");
        host.ep.recv(&bytes, 1).expect("recv");
        host.ep.send(to_itself, &bytes, 2).expect("send");
        for _ in 0..2 {
            host.completion();
        }
        assert!(began.elapsed() < Duration::from_secs(1));
    });
    let (a, to_b, _b, _) = pair();
    let bytes = Buffer::new(8).expect("buffer");
    for key in 0..200 {
        a.ep.read(to_b, &bytes, Remote::new(0, key), 0)
            .expect("read");
        a.failure();
    }
}
