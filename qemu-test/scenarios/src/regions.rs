// SPDX-License-Identifier: GPL-2.0
//! Regions of several pieces of memory, as peers access them: the bytes of the pieces in a row,
//! whatever their order, lengths and alignment (fi_mr(3), fi_mr_regv).

use crate::{
    connected::connect,
    harness::tests,
    host::{Host, Options, device, pair, pattern},
    hosts::apart,
};
use kfi::{Access, Buffer, Caps, CompFlags, EpType, Errno, FiAddr, IoVec, Mr, MrMode};

tests![
    a_region_of_pieces_on_one_host,
    a_region_of_pieces_between_two_hosts,
    a_region_of_pieces_of_a_connection,
    a_region_of_pieces_at_its_virtual_address,
    the_longest_region_ends_where_it_should,
];

const WROTE: CompFlags = CompFlags::RMA.union(CompFlags::WRITE);
const READ: CompFlags = CompFlags::RMA.union(CompFlags::READ);

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
    let theirs = Buffer::from_bytes(&pattern(PIECES * STEP, 1)).expect("buffer");
    let pieces: Vec<IoVec<'_>> = places()
        .into_iter()
        .map(|place| theirs.slice(place).into())
        .collect();
    let mr = b
        .domain
        .mr(&theirs)
        .pieces(&pieces)
        .access(Access::REMOTE_READ | Access::REMOTE_WRITE)
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
        let ours = Buffer::from_bytes(&bytes).expect("buffer");
        a.ep.write(to_b, &ours, at(range.start), 1).expect("write");
        a.expect(WROTE, 1);
        // Memory between the pieces is as before.
        assert!(theirs.to_vec(..) == expected, "{range:?}");
        let back = Buffer::new(range.len()).expect("buffer");
        a.ep.read(to_b, &back, at(range.start), 2).expect("read");
        a.expect(READ, 2);
        assert!(back.to_vec(..) == bytes, "{range:?}");
    }
    // It ends with its last piece.
    let ours = Buffer::new(8).expect("buffer");
    a.ep.read(to_b, &ours, at(total - 8), 3).expect("read");
    a.expect(READ, 3);
    a.ep.write(to_b, &ours, at(total - 7), 4).expect("write");
    assert_eq!(a.failure().err, Errno::EACCES);
    assert!(theirs.to_vec(..) == expected);
}

fn a_region_of_pieces_on_one_host() {
    let (a, to_b, b, _) = pair();
    is_one_region(&a, to_b, &b);
}

fn a_region_of_pieces_between_two_hosts() {
    apart();
    let (a, to_b, b, _) = pair();
    is_one_region(&a, to_b, &b);
}

fn a_region_of_pieces_of_a_connection() {
    let options = Options {
        ep_type: EpType::Msg,
        caps: Caps::MSG | Caps::RMA,
        ..Options::default()
    };
    let (a, b) = (Host::with(&options), Host::with(&options));
    connect(&a, &b);
    is_one_region(&a, FiAddr::UNSPEC, &b);
}

/// "specify the destination memory buffer using the target's virtual address, with any offset into
/// the region specified as virtual address + offset".
fn a_region_of_pieces_at_its_virtual_address() {
    let fabric = device().fabric().expect("fabric");
    let domain = fabric
        .domain(crate::host::LINK)
        .mr_mode(MrMode::VIRT_ADDR)
        .open()
        .expect("domain");
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
    let theirs = Buffer::new(longest as usize / PIECES).expect("buffer");
    let pieces = [(); PIECES].map(|()| IoVec::from(&theirs));
    let mr = b
        .domain
        .mr(&theirs)
        .pieces(&pieces)
        .access(Access::REMOTE_READ | Access::REMOTE_WRITE)
        .open()
        .expect("mr");
    let ours = Buffer::from_bytes(b"last one").expect("buffer");
    a.ep.write(to_b, &ours, mr.remote(longest - 8), 1)
        .expect("write");
    a.expect(WROTE, 1);
    assert_eq!(theirs.to_vec(theirs.len() - 8..), b"last one");
    let back = Buffer::new(8).expect("buffer");
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
