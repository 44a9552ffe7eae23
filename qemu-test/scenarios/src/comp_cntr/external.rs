// SPDX-License-Identifier: GPL-2.0
//! Completion counters whose values are copied to memory of the program: by virtual address, and to
//! [DMA-BUFs](crate::dma_buf).

#![allow(unsafe_code, reason = "mappings, and borrowed descriptors")]

use super::{counts, external};
use crate::{
    abi_threads::{as_user, open_to_all},
    dma_buf::{DmaBuf, Exporter, system_heap},
    harness::tests,
    host::{Host, Options, domain},
    raw::{BAD_ADDRS, File, PAGE, Pages, arg, data, refused, with},
};
use kfi::{Buffer, CompCntr, CompCntrOps, CompCntrType, Domain, Errno, MemoryLocation, abi};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

tests![
    memory_of_the_program_holds_the_counts,
    a_udmabuf_holds_the_counts,
    a_buffer_of_the_system_heap_holds_the_counts,
    a_dma_buf_that_is_not_mapped_is_read_by_call,
    each_count_has_a_place_of_its_own,
    both_counts_begin_at_0,
    only_the_counts_are_written,
    what_a_program_writes_changes_no_count,
    several_counters_share_a_page,
    places_that_are_invalid_are_refused,
    dma_bufs_that_are_invalid_are_refused,
    pinned_pages_are_charged,
    operations_are_seen_in_memory,
    the_last_copy_is_the_count => 300,
    a_copy_does_not_go_back => 300,
    sets_and_increments_race => 300,
    nothing_is_written_after_the_end,
];

/// The number at `offset` of a buffer.
pub(crate) fn word(memory: &Buffer, offset: usize) -> u64 {
    let mut bytes = [0; 8];
    memory.read_at(offset, &mut bytes);
    u64::from_ne_bytes(bytes)
}

/// A counter with its counts in a buffer, at 0 and 8.
fn in_memory(domain: &Domain, memory: &Buffer) -> CompCntr {
    external(
        domain,
        MemoryLocation::va(memory, 0),
        MemoryLocation::va(memory, 8),
    )
}

/// Makes every change by a call, and compares the counts in `memory` after each.
#[track_caller]
fn follows(cntr: &CompCntr, memory: &Buffer, [comp, err]: [usize; 2]) {
    let check = |expected| {
        assert_eq!(counts(cntr), expected);
        assert_eq!((word(memory, comp), word(memory, err)), expected);
    };
    check((0, 0));
    cntr.inc(5).expect("inc");
    check((5, 0));
    cntr.inc_err(2).expect("inc_err");
    check((5, 2));
    cntr.set(u64::MAX).expect("set");
    check((u64::MAX, 2));
    cntr.inc(1).expect("inc");
    check((0, 2));
    cntr.set_err(9).expect("set_err");
    check((0, 9));
    cntr.set(3).expect("set");
    cntr.set_err(0).expect("set_err");
    check((3, 0));
}

fn memory_of_the_program_holds_the_counts() {
    let (_, domain) = domain();
    let memory = Buffer::new(3 * PAGE).expect("buffer");
    for [comp, err] in [[0, 8], [8, 0], [PAGE - 8, PAGE], [16, 2 * PAGE + 24]] {
        let cntr = external(
            &domain,
            MemoryLocation::va(&memory, comp),
            MemoryLocation::va(&memory, err),
        );
        follows(&cntr, &memory, [comp, err]);
        assert_eq!((cntr.comp_count(), cntr.err_count()), (Some(3), Some(0)));
    }
}

fn dma_buf_holds_the_counts(exporter: Exporter) {
    let (_, domain) = domain();
    let buffer = exporter.make(2);
    let (comp, err) = (PAGE - 8, PAGE + 64);
    let place = |offset| MemoryLocation::dma_buf(buffer.fd.as_fd(), offset as u64);
    // With a mapping of the program's own, and without.
    let mapped = external(
        &domain,
        place(comp).mapped(&buffer.memory, comp),
        place(err).mapped(&buffer.memory, err),
    );
    follows(&mapped, &buffer.memory, [comp, err]);
    assert_eq!(
        (mapped.comp_count(), mapped.err_count()),
        (Some(3), Some(0))
    );
    drop(mapped);
    let unmapped = external(&domain, place(comp), place(err));
    follows(&unmapped, &buffer.memory, [comp, err]);
}

fn a_udmabuf_holds_the_counts() {
    dma_buf_holds_the_counts(Exporter::Udmabuf);
}

fn a_buffer_of_the_system_heap_holds_the_counts() {
    dma_buf_holds_the_counts(Exporter::SystemHeap);
}

fn a_dma_buf_that_is_not_mapped_is_read_by_call() {
    let (_, domain) = domain();
    let fd = system_heap(PAGE, libc::O_RDWR);
    let place = |offset| MemoryLocation::dma_buf(fd.as_fd(), offset);
    let cntr = external(&domain, place(0), place(8));
    drop(fd);
    cntr.inc(4).expect("inc");
    cntr.inc_err(1).expect("inc_err");
    assert_eq!(counts(&cntr), (4, 1));
    assert_eq!((cntr.comp_count(), cntr.err_count()), (None, None));
    assert!(cntr.mapped().is_none());
    // The module's own page shows them in any case.
    assert_eq!((cntr.page().value(), cntr.page().err()), (4, 1));
}

fn each_count_has_a_place_of_its_own() {
    let (_, domain) = domain();
    let memory = Buffer::new(PAGE).expect("buffer");
    let one = Exporter::Udmabuf.make(1);
    let two = Exporter::SystemHeap.make(1);
    let va = || MemoryLocation::va(&memory, 32);
    let dma = |buffer: &DmaBuf, offset: usize| {
        // SAFETY: the descriptor is open as long as `buffer`, longer than the call below.
        let fd = unsafe { BorrowedFd::borrow_raw(buffer.fd.as_raw_fd()) };
        MemoryLocation::dma_buf(fd, offset as u64).mapped(&buffer.memory, offset)
    };
    for (comp, err) in [
        (va(), dma(&one, 16)),
        (dma(&one, 24), va()),
        (dma(&one, 8), dma(&two, 8)),
    ] {
        let cntr = external(&domain, comp, err);
        cntr.inc(6).expect("inc");
        cntr.inc_err(7).expect("inc_err");
        assert_eq!((cntr.comp_count(), cntr.err_count()), (Some(6), Some(7)));
        assert_eq!(counts(&cntr), (6, 7));
    }
}

fn both_counts_begin_at_0() {
    let (_, domain) = domain();
    let memory = Buffer::from_bytes(&[0xff; 16]).expect("buffer");
    let cntr = in_memory(&domain, &memory);
    assert_eq!((word(&memory, 0), word(&memory, 8)), (0, 0));
    assert_eq!(counts(&cntr), (0, 0));
}

fn only_the_counts_are_written() {
    let (_, domain) = domain();
    let memory = Buffer::from_bytes(&[0xa5; 64]).expect("buffer");
    let cntr = external(
        &domain,
        MemoryLocation::va(&memory, 16),
        MemoryLocation::va(&memory, 40),
    );
    cntr.set(u64::MAX).expect("set");
    cntr.set_err(u64::MAX).expect("set_err");
    drop(cntr);
    let mut expected = [0xa5; 64];
    expected[16..24].fill(0xff);
    expected[40..48].fill(0xff);
    assert_eq!(memory.to_vec(..), expected);
}

/// The page: counts should not be modified by writing to the memory. The counter ignores it.
fn what_a_program_writes_changes_no_count() {
    let (_, domain) = domain();
    let memory = Buffer::new(16).expect("buffer");
    let cntr = in_memory(&domain, &memory);
    cntr.inc(2).expect("inc");
    memory.write_at(0, &77u64.to_ne_bytes());
    memory.write_at(8, &88u64.to_ne_bytes());
    assert_eq!(counts(&cntr), (2, 0));
    // It is there until the next change of that count.
    assert_eq!((cntr.comp_count(), cntr.err_count()), (Some(77), Some(88)));
    cntr.inc(1).expect("inc");
    assert_eq!((cntr.comp_count(), cntr.err_count()), (Some(3), Some(88)));
    cntr.inc_err(1).expect("inc_err");
    assert_eq!((cntr.comp_count(), cntr.err_count()), (Some(3), Some(1)));
}

fn several_counters_share_a_page() {
    let (_, domain) = domain();
    let memory = Buffer::new(PAGE).expect("buffer");
    let place = |index: usize| MemoryLocation::va(&memory, 8 * index);
    let counters: Vec<CompCntr> = (0..256)
        .map(|n| external(&domain, place(2 * n), place(2 * n + 1)))
        .collect();
    for (n, cntr) in counters.iter().enumerate() {
        cntr.inc(n as u64 + 1).expect("inc");
        cntr.inc_err(n as u64 + 1000).expect("inc_err");
    }
    for n in 0..256 {
        assert_eq!(word(&memory, 16 * n), n as u64 + 1);
        assert_eq!(word(&memory, 16 * n + 8), n as u64 + 1000);
    }
}

/// Creates a counter with these places.
fn create(
    file: &File,
    domain: u32,
    comp: abi::kfabric_memory_location,
    err: abi::kfabric_memory_location,
) -> Result<u32, Errno> {
    file.call(arg!(kfabric_comp_cntr_create:
        domain, flags: abi::KFABRIC_COMP_CNTR_INIT_WITH_EXTERNAL_MEM, comp_cntr_ext_mem: comp,
        err_cntr_ext_mem: err
    ))
    .map(|arg| arg.handle)
}

fn va(ptr: u64) -> abi::kfabric_memory_location {
    data!(kfabric_memory_location: ptr)
}

fn in_dma_buf(fd: i32, offset: u64) -> abi::kfabric_memory_location {
    data!(kfabric_memory_location: fd, offset, type_: abi::KFABRIC_MEMORY_LOCATION_DMABUF)
}

/// Either place may be the wrong one.
#[track_caller]
fn both_refused(
    file: &File,
    domain: u32,
    good: abi::kfabric_memory_location,
    bad: abi::kfabric_memory_location,
    errno: Errno,
) {
    refused(create(file, domain, bad, good), errno);
    refused(create(file, domain, good, bad), errno);
}

fn places_that_are_invalid_are_refused() {
    let file = File::open();
    let domain = file.domain(file.fabric());
    let pages = Pages::new(2);
    let good = va(pages.addr());
    for offset in [1, 2, 4, 7] {
        both_refused(
            &file,
            domain,
            good,
            va(pages.addr() + 64 + offset),
            Errno::EINVAL,
        );
    }
    both_refused(&file, domain, good, va(0), Errno::EINVAL);
    for type_ in [2, u32::MAX] {
        let unknown = with!(va(pages.addr() + 64); type_);
        both_refused(&file, domain, good, unknown, Errno::EINVAL);
    }
    for addr in BAD_ADDRS.into_iter().chain([pages.hole()]) {
        let addr = addr & !7;
        let result = create(&file, domain, va(addr), good);
        assert!(
            matches!(result, Err(Errno::EFAULT | Errno::EINVAL)),
            "{addr:#x}: {result:?}"
        );
        assert_eq!(create(&file, domain, good, va(addr)), result);
    }
    refused(create(&file, domain, va(pages.hole()), good), Errno::EFAULT);
    // Memory that the program may only read.
    let text = std::fs::File::open("/proc/self/exe").expect("open");
    // SAFETY: a new mapping, which nothing else uses.
    let read_only = unsafe {
        rustix::mm::mmap(
            std::ptr::null_mut(),
            PAGE,
            rustix::mm::ProtFlags::READ,
            rustix::mm::MapFlags::PRIVATE,
            &text,
            0,
        )
    }
    .expect("mmap");
    let read_only = va(read_only.addr() as u64);
    both_refused(&file, domain, good, read_only, Errno::EFAULT);
    // Both counts in the same place.
    refused(create(&file, domain, good, good), Errno::EINVAL);
    // Nothing is left: the counter of a good place is the first of the domain to be closed.
    let cntr = create(&file, domain, good, va(pages.addr() + 8)).expect("create");
    file.close_all(&[cntr, domain]);
}

fn dma_bufs_that_are_invalid_are_refused() {
    let file = File::open();
    let domain = file.domain(file.fabric());
    let pages = Pages::new(1);
    let good = va(pages.addr());
    let null = std::fs::File::open("/dev/null").expect("open");
    both_refused(&file, domain, good, in_dma_buf(-1, 0), Errno::EBADF);
    both_refused(&file, domain, good, in_dma_buf(12345, 0), Errno::EBADF);
    both_refused(
        &file,
        domain,
        good,
        in_dma_buf(null.as_raw_fd(), 0),
        Errno::EINVAL,
    );
    for exporter in Exporter::ALL {
        let buffer = exporter.make(2);
        let fd = buffer.fd.as_raw_fd();
        let len = 2 * PAGE as u64;
        for offset in [1, 4, len, len - 4, len + 8, 1 << 40, u64::MAX - 7] {
            both_refused(&file, domain, good, in_dma_buf(fd, offset), Errno::EINVAL);
        }
        // The program's own address is checked for alignment, and not used.
        let mapped = with!(in_dma_buf(fd, 0); ptr: 4);
        both_refused(&file, domain, good, mapped, Errno::EINVAL);
        let elsewhere = with!(in_dma_buf(fd, len - 8); ptr: 8);
        let cntr = create(&file, domain, elsewhere, good).expect("create");
        refused(
            create(&file, domain, in_dma_buf(fd, 0), in_dma_buf(fd, 0)),
            Errno::EINVAL,
        );
        file.close(cntr).expect("destroy");
    }
    let read_only = system_heap(PAGE, libc::O_RDONLY);
    both_refused(
        &file,
        domain,
        good,
        in_dma_buf(read_only.as_raw_fd(), 0),
        Errno::EACCES,
    );
    file.close(domain).expect("nothing is left");
}

fn pinned_pages_are_charged() {
    open_to_all();
    let _link = File::open();
    as_user(|| {
        let before = getrlimit(Resource::Memlock);
        let limit = |pages: usize| {
            let bytes = Some((pages * PAGE) as u64);
            let limit = Rlimit {
                current: bytes,
                maximum: before.maximum,
            };
            setrlimit(Resource::Memlock, limit).expect("setrlimit");
        };
        let file = File::open_only();
        let domain = file.domain(file.fabric());
        let pages = Pages::new(1);
        let (comp, err) = (va(pages.addr()), va(pages.addr() + 8));
        for too_few in [0, 1] {
            limit(too_few);
            refused(create(&file, domain, comp, err), Errno::ENOMEM);
        }
        // Each copy pins its page.
        limit(2);
        let cntr = create(&file, domain, comp, err).expect("create");
        refused(create(&file, domain, comp, err), Errno::ENOMEM);
        // A DMA-BUF is not memory of the program.
        file.close(cntr).expect("destroy");
        let again = create(&file, domain, comp, err).expect("the charge is gone");
        // Destroying releases it although the program has not unmapped anything.
        file.close(again).expect("destroy");
        limit(3);
        let cntr = create(&file, domain, comp, err).expect("create");
        refused(create(&file, domain, comp, err), Errno::ENOMEM);
        file.close(cntr).expect("destroy");
    });
}

fn operations_are_seen_in_memory() {
    let (_, domain) = domain();
    let memory = Buffer::new(64).expect("buffer");
    let bytes = Exporter::Udmabuf.make(1);
    let count = in_memory(&domain, &memory);
    let sum = domain
        .comp_cntr()
        .unit(CompCntrType::Bytes)
        .external(
            MemoryLocation::dma_buf(bytes.fd.as_fd(), 0),
            MemoryLocation::dma_buf(bytes.fd.as_fd(), 8),
        )
        .create()
        .expect("create");
    let host = Host::prepared(&domain, &Options::default(), None, |ep| {
        ep.attach_comp_cntr(&count, CompCntrOps::SEND | CompCntrOps::RDMA_WRITE)
            .expect("attach");
        ep.attach_comp_cntr(&sum, CompCntrOps::RECV)
            .expect("attach");
    });
    let me = host.meet(&host);
    let buffer = Buffer::new(300).expect("buffer");
    for round in 1..=20 {
        host.ep.recv(&buffer, 1).expect("recv");
        host.ep.send(me, &buffer, 2).expect("send");
        assert_eq!(word(&memory, 0), round);
        assert_eq!(word(&bytes.memory, 0), 300 * round);
        host.completion();
        host.completion();
    }
    host.ep
        .write(me, &buffer, kfi::Remote::new(0, 0xdead), 3)
        .expect("write");
    assert_eq!((word(&memory, 0), word(&memory, 8)), (20, 1));
}

/// Runs 8 threads that change a counter while this one looks.
fn race(cntr: &CompCntr, change: impl Fn(u64) + Sync, look: impl Fn() + Sync) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|thread| {
                scope.spawn({
                    let change = &change;
                    move || change(thread)
                })
            })
            .collect();
        scope.spawn(|| {
            while !over.load(Relaxed) {
                look();
            }
        });
        for thread in threads {
            thread.join().expect("thread");
        }
        over.store(true, Relaxed);
    });
    let expected = counts(cntr);
    assert_eq!(
        (cntr.comp_count(), cntr.err_count()),
        (Some(expected.0), Some(expected.1))
    );
}

fn the_last_copy_is_the_count() {
    let (_, domain) = domain();
    let buffer = Exporter::Udmabuf.make(1);
    let memory = Buffer::new(16).expect("buffer");
    let in_buffer = |offset| {
        MemoryLocation::dma_buf(buffer.fd.as_fd(), offset as u64).mapped(&buffer.memory, offset)
    };
    let counters = [
        in_memory(&domain, &memory),
        external(&domain, in_buffer(0), in_buffer(8)),
    ];
    for cntr in &counters {
        // Many short races, because a wrong last copy shows at the end only.
        for round in 1..=100 {
            race(
                cntr,
                |_| {
                    for _ in 0..20 {
                        cntr.inc(1).expect("inc");
                        cntr.inc_err(1).expect("inc_err");
                    }
                },
                || (),
            );
            assert_eq!(counts(cntr), (160 * round, 160 * round));
        }
    }
}

fn a_copy_does_not_go_back() {
    let (_, domain) = domain();
    let memory = Buffer::new(16).expect("buffer");
    let cntr = in_memory(&domain, &memory);
    let last = std::sync::atomic::AtomicU64::new(0);
    race(
        &cntr,
        |_| {
            for _ in 0..20_000 {
                cntr.inc(1).expect("inc");
            }
        },
        || {
            let now = cntr.comp_count().expect("mapped");
            let before = last.swap(now, Relaxed);
            assert!(now >= before, "{now} after {before}");
        },
    );
    assert_eq!(cntr.comp_count(), Some(160_000));
}

fn sets_and_increments_race() {
    let (_, domain) = domain();
    let memory = Buffer::new(16).expect("buffer");
    let cntr = in_memory(&domain, &memory);
    for _ in 0..200 {
        race(
            &cntr,
            |thread| {
                for step in 0..10 {
                    if thread < 2 {
                        cntr.set(1000 * thread + step).expect("set");
                        cntr.set_err(step).expect("set_err");
                    } else {
                        cntr.inc(1).expect("inc");
                        cntr.inc_err(1).expect("inc_err");
                    }
                }
            },
            || (),
        );
    }
}

fn nothing_is_written_after_the_end() {
    let file = File::open();
    let domain = file.domain(file.fabric());
    let pages = Pages::new(1);
    let cntr = create(&file, domain, va(pages.addr()), va(pages.addr() + 8)).expect("create");
    file.close(cntr).expect("destroy");
    pages.write(0, &[7; 16]);
    // A new counter without external memory does not write there, whatever its handle.
    let other = file.comp_cntr(domain);
    file.call(arg!(kfabric_comp_cntr_modify:
        comp_cntr: other, op: abi::KFABRIC_COMP_CNTR_MODIFY_INC, value: 1
    ))
    .expect("inc");
    refused(
        file.call(arg!(kfabric_comp_cntr_modify:
            comp_cntr: cntr, op: abi::KFABRIC_COMP_CNTR_MODIFY_INC, value: 1
        )),
        Errno::EBADF,
    );
    assert_eq!(pages.read(0, 16), [7; 16]);
}
