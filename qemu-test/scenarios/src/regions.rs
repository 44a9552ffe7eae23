// SPDX-License-Identifier: GPL-2.0
//! Regions of several pieces of memory, as peers access them: the bytes of the pieces in a row,
//! whatever their order, lengths and alignment (fi_mr(3), fi_mr_regv).

use crate::{
    connected::open_region,
    harness::tests,
    host::{
        Host, LINK, Options, READ, REMOTE, WROTE, buffer, device, holding, pair, pattern, register,
    },
    ways::Way,
};
use kfi::{Access, Buffer, Errno, FiAddr, IoVec, Mr, MrMode};

tests![
    a_region_of_pieces: [OneHost, TwoHosts, Connection],
    a_region_of_pieces_at_its_virtual_address,
    the_longest_region_ends_where_it_should,
    a_key_names_a_region_of_the_peers_domain: [OneHost, TwoHosts, Connection],
    a_key_that_is_used_again_names_the_new_region: [OneHost, TwoHosts, Connection],
    regions_of_the_same_memory_have_their_own_rights: [OneHost, TwoHosts],
    a_region_outlives_the_endpoints_of_its_domain,
];

/// The longest list.
const PIECES: usize = kfi::abi::KFABRIC_MAX_IOV as usize;

/// Bytes from the beginning of a piece to that of the next.
const STEP: usize = 1301;

/// The places of the pieces in their buffer: odd lengths at odd places, the last place first. Some
/// cross a page, some are in the same page, some have no bytes.
fn places() -> Vec<std::ops::Range<usize>> {
    (0..PIECES)
        .rev()
        .map(|index| {
            let begin = index * STEP + index % 5;
            begin..begin + index * 97 % (STEP - 5)
        })
        .collect()
}

/// A region of pieces, and its memory.
fn open(b: &Host) -> (Buffer, Mr) {
    let theirs = holding(&pattern(PIECES * STEP, 1));
    let pieces: Vec<IoVec<'_>> = places()
        .into_iter()
        .map(|place| theirs.slice(place).into())
        .collect();
    let mr = b
        .domain
        .mr(&theirs)
        .pieces(&pieces)
        .access(REMOTE)
        .requested_key(1)
        .open()
        .expect("mr");
    (theirs, mr)
}

/// "Multiple memory buffers are registered as a single memory region."
fn is_one_region(a: &Host, to_b: FiAddr, b: &Host) {
    let (theirs, mr) = open(b);
    let at = |offset: usize| mr.remote(offset as u64);
    let mut expected = theirs.to_vec(..);
    let total: usize = places().iter().map(ExactSizeIterator::len).sum();
    // All of it, and parts that begin and end within pieces.
    for (seed, range) in (2..).zip([0..total, 1..total - 1, 5000..6000, total / 2..total]) {
        let bytes = pattern(range.len(), seed);
        let mut rest = bytes.as_slice();
        let mut begin = 0;
        for place in places() {
            // The part of this piece that is written.
            let end = begin + place.len();
            let (from, to) = (range.start.clamp(begin, end), range.end.clamp(begin, end));
            let (now, later) = rest.split_at(to - from);
            expected[place.start + from - begin..][..to - from].copy_from_slice(now);
            (rest, begin) = (later, end);
        }
        assert!(rest.is_empty());
        let ours = holding(&bytes);
        a.ep.write(to_b, &ours, at(range.start), 1).expect("write");
        a.expect(WROTE, 1);
        // Memory between the pieces is as before.
        assert!(theirs.to_vec(..) == expected, "{range:?}");
        let back = buffer(range.len());
        a.ep.read(to_b, &back, at(range.start), 2).expect("read");
        a.expect(READ, 2);
        assert!(back.to_vec(..) == bytes, "{range:?}");
    }
    // It ends with its last piece.
    let ours = buffer(8);
    a.ep.read(to_b, &ours, at(total - 8), 3).expect("read");
    a.expect(READ, 3);
    a.ep.write(to_b, &ours, at(total - 7), 4).expect("write");
    assert_eq!(a.failure().err, Errno::EACCES);
    assert!(theirs.to_vec(..) == expected);
}

fn a_region_of_pieces(way: Way) {
    let (a, to_b, b) = way.pair();
    is_one_region(&a, to_b, &b);
}

/// "specify the destination memory buffer using the target's virtual address, with any offset into
/// the region specified as virtual address + offset".
fn a_region_of_pieces_at_its_virtual_address() {
    let fabric = device().fabric().expect("fabric");
    let domain = fabric.domain(LINK).mr_mode(MrMode::VIRT_ADDR);
    let domain = domain.open().expect("domain");
    let b = Host::on(&domain, &Options::default());
    let a = Host::new();
    let to_b = a.meet(&b);
    is_one_region(&a, to_b, &b);
    let (theirs, mr) = open(&b);
    let first = &places()[0];
    assert_eq!(mr.iova(), theirs.addr() + first.start as u64);
}

/// Pieces that name the same memory again and again, as long together as a region can be.
fn the_longest_region_ends_where_it_should() {
    let (a, to_b, b, _) = pair();
    let longest = kfi::abi::KFABRIC_MAX_MSG_SIZE;
    let theirs = buffer(longest as usize / PIECES);
    let pieces = [(); PIECES].map(|()| IoVec::from(&theirs));
    let mr = b.domain.mr(&theirs).pieces(&pieces).access(REMOTE);
    let mr = mr.open().expect("mr");
    let ours = holding(b"last one");
    a.ep.write(to_b, &ours, mr.remote(longest - 8), 1)
        .expect("write");
    a.expect(WROTE, 1);
    assert_eq!(theirs.to_vec(theirs.len() - 8..), b"last one");
    let back = buffer(8);
    a.ep.read(to_b, &back, mr.remote(theirs.len() as u64 - 8), 2)
        .expect("read");
    a.expect(READ, 2);
    assert_eq!(back.to_vec(..), b"last one");
    for beyond in [longest - 7, longest, u64::MAX - 7] {
        a.ep.write(to_b, &ours, mr.remote(beyond), 3)
            .expect("write");
        assert_eq!(a.failure().err, Errno::EACCES, "{beyond:#x}");
    }
}

/// Writes 8 bytes, which must succeed.
#[track_caller]
fn write(a: &Host, to_b: FiAddr, bytes: &[u8; 8], mr: &Mr) {
    let ours = holding(bytes);
    a.ep.write(to_b, &ours, mr.remote(0), 1).expect("write");
    a.expect(WROTE, 1);
}

/// fi_mr(3), requested_key: keys are those of a domain. The same key is another region in another
/// domain, also for peers.
fn a_key_names_a_region_of_the_peers_domain(way: Way) {
    let (a, to_b, b) = way.pair();
    let (ours, theirs) = (buffer(8), buffer(8));
    let (_ours, mr) = (open_region(&a, &ours, 77), open_region(&b, &theirs, 77));
    write(&a, to_b, b"to peer.", &mr);
    assert_eq!(theirs.to_vec(..), b"to peer.");
    assert_eq!(ours.to_vec(..), [0; 8]);
    // A key that only the initiator's domain has.
    let _other = open_region(&a, &ours, 78);
    let from = holding(b"nowhere.");
    a.ep.write(to_b, &from, kfi::Remote::new(0, 78), 2)
        .expect("write");
    assert_eq!(a.failure().err, Errno::EACCES);
    assert_eq!(ours.to_vec(..), [0; 8]);
}

/// fi_mr(3): a region that is closed is not accessed any more; its key may be given to another one.
fn a_key_that_is_used_again_names_the_new_region(way: Way) {
    let (a, to_b, b) = way.pair();
    let memory = [(); 5].map(|()| Buffer::new(8).expect("buffer"));
    for round in 0..20u8 {
        let theirs = &memory[usize::from(round) % 5];
        let before: Vec<_> = memory.iter().map(|buffer| buffer.to_vec(..)).collect();
        let mr = open_region(&b, theirs, 5);
        write(&a, to_b, &[round; 8], &mr);
        for (buffer, before) in memory.iter().zip(before) {
            let is_it = std::ptr::eq(buffer, theirs);
            assert_eq!(
                buffer.to_vec(..),
                if is_it { vec![round; 8] } else { before }
            );
        }
        mr.close().expect("close");
    }
}

/// fi_mr(3), access: the operations that a region allows, whatever other regions of the same memory
/// allow.
fn regions_of_the_same_memory_have_their_own_rights(way: Way) {
    let (a, to_b, b) = way.pair();
    let theirs = holding(b"contents");
    let open = |access, key| register(&b.domain, &theirs, access, key);
    let (readable, writable) = (open(Access::REMOTE_READ, 1), open(Access::REMOTE_WRITE, 2));
    let ours = buffer(8);
    a.ep.read(to_b, &ours, readable.remote(0), 1).expect("read");
    a.expect(READ, 1);
    assert_eq!(ours.to_vec(..), b"contents");
    ours.fill(7);
    a.ep.write(to_b, &ours, readable.remote(0), 2)
        .expect("write");
    assert_eq!(a.failure().err, Errno::EACCES);
    a.ep.read(to_b, &ours, writable.remote(0), 3).expect("read");
    assert_eq!(a.failure().err, Errno::EACCES);
    assert_eq!(theirs.to_vec(..), b"contents");
    assert_eq!(ours.to_vec(..), [7; 8]);
    write(&a, to_b, b"replaced", &writable);
    assert_eq!(theirs.to_vec(..), b"replaced");
    // One of them ends, and the other does not.
    readable.close().expect("close");
    write(&a, to_b, b"goes on.", &writable);
    assert_eq!(theirs.to_vec(..), b"goes on.");
}

/// A region belongs to its domain, not to the endpoints through which peers reach it.
fn a_region_outlives_the_endpoints_of_its_domain() {
    let a = Host::new();
    let b = Host::new();
    let theirs = buffer(8);
    let mr = open_region(&b, &theirs, 5);
    let to_b = a.meet(&b);
    write(&a, to_b, b"first...", &mr);
    for _ in 0..5 {
        let other = Host::on(&b.domain, &Options::default());
        let to_other = a.meet(&other);
        write(&a, to_other, b"second..", &mr);
        assert_eq!(theirs.to_vec(..), b"second..");
        drop(other);
        write(&a, to_b, b"third...", &mr);
        assert_eq!(theirs.to_vec(..), b"third...");
    }
}
