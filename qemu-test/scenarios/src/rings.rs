// SPDX-License-Identifier: GPL-2.0
//! Mapped memory: the ring of a CQ, valid and invalid writes of a program to it; the page of a
//! counter.

#![allow(unsafe_code, reason = "mapped memory")]

use crate::{
    alone::Alone,
    harness::tests,
    host::{SOON, errno},
    raw::{File, PAGE, Party, arg, data, in_ms, refused},
    threads::Sleeper,
};
use kfi::{Buffer, CompFlags, Entry, Errno, Error, Op, abi};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
use std::{
    mem::offset_of,
    os::fd::AsFd,
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    time::{Duration, Instant},
};

tests![
    ring_entries_equal_those_of_a_read_by_call,
    a_ring_wraps,
    reads_by_ring_and_by_call_can_alternate,
    an_error_stops_the_ring_until_it_is_read,
    an_acknowledged_loss_is_not_reported_again,
    a_sleeping_reader_of_the_ring_misses_no_entry,
    an_invalid_head_is_eio_until_it_is_repaired,
    an_invalid_head_affects_its_writer_only,
    a_head_may_skip_entries,
    other_writes_to_the_ring_do_no_harm,
    mappings_are_checked,
    a_mapping_outlives_its_object,
    the_page_of_a_counter_is_read_only,
];

/// Mapped memory of the device.
struct Mapped {
    at: *mut u8,
    len: usize,
}

// SAFETY: it is accessed atomically, or by one thread.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps `len` bytes at `offset`.
    fn with(
        fd: impl AsFd,
        offset: u64,
        len: usize,
        prot: ProtFlags,
        flags: MapFlags,
    ) -> Result<Self, Errno> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, prot, flags, fd, offset) }?;
        Ok(Self { at: at.cast(), len })
    }

    /// Maps `len` bytes at `offset` to read and write.
    fn new(fd: impl AsFd, offset: u64, len: usize) -> Result<Self, Errno> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        Self::with(fd, offset, len, prot, MapFlags::SHARED)
    }

    /// The word at `offset`.
    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.len);
        // SAFETY: inside the mapping and aligned; accessed atomically.
        unsafe { AtomicU64::from_ptr(self.at.add(offset).cast()) }
    }

    fn protect(&self, flags: MprotectFlags) -> rustix::io::Result<()> {
        // SAFETY: the mapping is ours, nobody holds references into it.
        unsafe { rustix::mm::mprotect(self.at.cast(), self.len, flags) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped by `with` with this length.
        unsafe {
            let _ = rustix::mm::munmap(self.at.cast(), self.len);
        }
    }
}

/// An endpoint that writes to itself, by calls as they are, and its ring.
struct Desk {
    file: File,
    cq: abi::kfabric_cq_open,
    ep: u32,
    me: u64,
    ring: Mapped,
    _memory: Buffer,
}

impl Desk {
    fn new(entries: u32) -> Self {
        let (file, _, domain) = File::open().and_domain();
        let cq = file
            .call(arg!(kfabric_cq_open:
                domain, entries, format: abi::KFI_CQ_FORMAT_TAGGED, wait_obj: abi::KFI_WAIT_QUEUE
            ))
            .expect("cq");
        let Party { ep, me, .. } = file.party_with(domain, cq.handle, arg!(kfabric_ep_open));
        let memory = Buffer::new(PAGE).expect("buffer");
        file.reg(domain, memory.addr(), PAGE as u64, 1).expect("mr");
        let ring = Mapped::new(&file, cq.ring_offset, cq.ring_size as usize).expect("mmap");
        Self {
            file,
            cq,
            ep,
            me,
            ring,
            _memory: memory,
        }
    }

    /// Writes to itself, which makes an entry, or an error entry with another key than 1.
    fn write(&self, context: u64, rma_key: u64) -> Result<(), Errno> {
        let op = data!(kfabric_op:
            opcode: abi::KFABRIC_OP_WRITE, flags: abi::KFI_INJECT | abi::KFI_COMPLETION, context,
            peer: self.me, rma_key
        );
        self.file.post_one(self.ep, op)
    }

    #[track_caller]
    fn complete_all(&self, contexts: impl IntoIterator<Item = u64>) {
        for context in contexts {
            self.write(context, 1).expect("write");
        }
    }

    /// The context of the next entry, by call.
    fn read(&self) -> Result<u64, Errno> {
        self.file
            .cq_read(self.cq.handle)
            .map(|entry| entry.op_context)
    }

    fn head(&self) -> &AtomicU64 {
        self.ring.word(offset_of!(abi::kfabric_cq_ring, head))
    }

    fn tail(&self) -> &AtomicU64 {
        self.ring.word(offset_of!(abi::kfabric_cq_ring, tail))
    }

    fn errors(&self) -> u64 {
        self.ring
            .word(offset_of!(abi::kfabric_cq_ring, errors))
            .load(SeqCst)
    }

    /// Word `index` of the entry in `slot`.
    fn entry(&self, slot: u64, index: usize) -> &AtomicU64 {
        let shape = self
            .ring
            .word(offset_of!(abi::kfabric_cq_ring, entries))
            .load(SeqCst);
        let (size, offset) = (shape & 0xffff_ffff, shape >> 32);
        assert!(slot < size);
        let at = offset as usize + slot as usize * size_of::<abi::kfabric_cq_entry>();
        self.ring.word(at + 8 * index)
    }
}

fn ring_entries_equal_those_of_a_read_by_call() {
    let (a, b) = (Alone::new(), Alone::new());
    let to_b = a.av.insert_one(b.ep.name().expect("name")).expect("insert");
    let into = Buffer::new(100).expect("buffer");
    let all = || {
        b.ep.trecv(&into, 3, 0, 11).expect("trecv");
        a.ep.post_one(&Op::tinject(to_b, &[1; 9], 3).data(77))
            .expect("inject");
        b.ep.recv(&into, 12).expect("recv");
        a.ep.inject(to_b, &[2; 5]).expect("inject");
        a.ep.post_one(&Op::inject_write(to_b, &[3; 8], b.remote()).data(5))
            .expect("write");
        b.complete(13);
    };
    all();
    let mut by_call = [Entry::default(); 8];
    let count = b.cq.read(&mut by_call).expect("read");
    assert_eq!(count, 4);
    let mut ring = b.cq.ring().expect("ring");
    assert!(ring.is_empty());
    all();
    assert_eq!(ring.len(), 4);
    let mut mapped = [Entry::default(); 8];
    assert_eq!(ring.read(&mut mapped).expect("read"), 4);
    assert_eq!(mapped[..4], by_call[..4]);
    assert_eq!(
        mapped[0].flags,
        CompFlags::TAGGED | CompFlags::RECV | CompFlags::REMOTE_CQ_DATA
    );
    // One ring has one reader.
    assert!(matches!(b.cq.ring(), Err(Error::RingTaken)));
    drop(ring);
    assert!(b.cq.ring().is_ok());
}

fn a_ring_wraps() {
    let alone = Alone::with_cq(|cq| cq.entries(4));
    let mut ring = alone.cq.ring().expect("ring");
    assert_eq!(ring.capacity(), 4);
    let mut entries = [Entry::default(); 4];
    let (mut posted, mut read) = (0, 0);
    while read < 2000 {
        // 1, 2, 3, 4, 1, ... entries at a time, and never more than fit.
        let burst = read % 4 + 1;
        for _ in 0..burst {
            alone.complete(posted);
            posted += 1;
        }
        if burst == 4 {
            assert_eq!(errno(alone.try_complete(0)), Some(Errno::EAGAIN));
        }
        while !ring.is_empty() {
            let count = ring.read(&mut entries[..3]).expect("read");
            for entry in &entries[..count] {
                assert_eq!(entry.op_context, read);
                read += 1;
            }
        }
        assert_eq!(read, posted);
    }
    assert_eq!(ring.read(&mut entries).expect("read"), 0);
}

fn reads_by_ring_and_by_call_can_alternate() {
    let alone = Alone::with_cq(|cq| cq.entries(8));
    let mut ring = alone.cq.ring().expect("ring");
    let mut next = 0;
    for round in 0..300u64 {
        alone.complete_all(8 * round..8 * round + 8);
        for turn in 0..4u64 {
            let mut entries = [Entry::default(); 2];
            let count = if (turn + round) % 3 == 0 {
                ring.read(&mut entries).expect("read")
            } else {
                alone.cq.read(&mut entries).expect("read")
            };
            assert_eq!(count, 2);
            for entry in entries {
                assert_eq!(entry.op_context, next);
                next += 1;
            }
        }
        assert!(ring.is_empty());
        assert!(alone.read(1).is_empty());
    }
}

fn an_error_stops_the_ring_until_it_is_read() {
    let alone = Alone::new();
    let mut ring = alone.cq.ring().expect("ring");
    let mut entries = [Entry::default(); 4];
    alone.complete(1);
    alone.fail(2);
    alone.fail(3);
    for left in [2, 1] {
        assert_eq!(ring.errors(), left);
        assert_eq!(errno(ring.read(&mut entries)), Some(Errno::KFI_EAVAIL));
        assert!(alone.read_error().is_some());
    }
    assert_eq!(ring.errors(), 0);
    assert_eq!(ring.read(&mut entries).expect("read"), 1);
}

fn an_acknowledged_loss_is_not_reported_again() {
    let alone = Alone::with_cq(|cq| cq.entries(2));
    let other = Alone::new();
    let there = other
        .av
        .insert_one(alone.ep.name().expect("name"))
        .expect("insert");
    let lose = |count| {
        for data in 0..count {
            let op = Op::inject_write(there, b"", alone.remote()).data(data);
            other.ep.post_one(&op).expect("write");
        }
    };
    let poll_set = alone.domain.poll_set().expect("poll set");
    poll_set.add(&alone.cq).expect("add");
    let is_polled = || !poll_set.poll(1).expect("poll").is_empty();
    let fd = alone.cq.wait_fd().expect("fd");
    let mut ring = alone.cq.ring().expect("ring");
    let mut entries = [Entry::default(); 4];
    for round in 1..=2 {
        lose(5);
        assert_eq!(ring.overruns(), 3 * round);
        assert_eq!(ring.read(&mut entries).expect("read"), 2);
        assert!(fd.wait(Duration::ZERO).expect("poll") && is_polled());
        assert_eq!(errno(ring.read(&mut entries)), Some(Errno::KFI_EOVERRUN));
        // Reported once: neither the descriptor, nor the poll set, nor a read or a wait by call
        // reports it again.
        assert!(!fd.wait(Duration::ZERO).expect("poll"));
        assert!(!is_polled());
        assert_eq!(alone.cq.read(&mut entries).expect("read"), 0);
        let begin = Instant::now();
        let short = Duration::from_millis(30);
        assert_eq!(ring.sread(&mut entries, short).expect("sread"), 0);
        assert!(begin.elapsed() >= short, "the loss ended the wait");
    }
    // Reported by call: not reported by the ring.
    lose(5);
    assert_eq!(ring.read(&mut entries).expect("read"), 2);
    assert_eq!(
        errno(alone.cq.read(&mut entries)),
        Some(Errno::KFI_EOVERRUN)
    );
    assert_eq!(ring.read(&mut entries).expect("read"), 0);
    // A sleeping reader gets one report, too.
    let reader = Sleeper::asleep(move || {
        let first = errno(ring.sread(&mut entries, SOON));
        (first, ring.read(&mut entries).ok())
    });
    // Its room is taken, so the next one is lost.
    let into = Buffer::new(8).expect("buffer");
    alone.ep.recv(&into, 1).expect("recv");
    alone.ep.recv(&into, 2).expect("recv");
    lose(1);
    assert_eq!(reader.end(), (Some(Errno::KFI_EOVERRUN), Some(0)));
}

fn a_sleeping_reader_of_the_ring_misses_no_entry() {
    const COUNT: u64 = 4000;
    let alone = Alone::with_cq(|cq| cq.entries(16));
    let reader = {
        let cq = alone.cq.clone();
        Sleeper::new(move || {
            let mut ring = cq.ring().expect("ring");
            let mut entries = [Entry::default(); 5];
            let mut next = 0;
            while next < COUNT {
                let count = ring.sread(&mut entries, SOON).expect("sread");
                assert_ne!(count, 0, "a wake-up was lost behind {next}");
                for entry in &entries[..count] {
                    assert_eq!(entry.op_context, next);
                    next += 1;
                }
            }
        })
    };
    for context in 0..COUNT {
        while let Err(error) = alone.try_complete(context) {
            assert!(error.is_again(), "{error}");
            std::thread::yield_now();
        }
    }
    reader.join();
}

fn an_invalid_head_is_eio_until_it_is_repaired() {
    let desk = Desk::new(8);
    desk.complete_all(0..4);
    assert_eq!(desk.read(), Ok(0));
    assert_eq!((desk.head().load(SeqCst), desk.tail().load(SeqCst)), (1, 4));
    // Ahead of the tail, behind what was taken, and far from both.
    for bad in [5, 9, 1 << 63, 0, u64::MAX, 1 + (1 << 32)] {
        desk.head().store(bad, SeqCst);
        for _ in 0..2 {
            assert_eq!(desk.read(), Err(Errno::EIO), "head {bad:#x}");
        }
        // A reader that would sleep gets the error as well, and the head does not move.
        let waited = desk.file.cq_wait(desk.cq.handle, in_ms(20_000)).map(|_| ());
        assert_eq!(waited, Err(Errno::EIO));
        assert_eq!(desk.head().load(SeqCst), bad);
    }
    // Errors are read as usual.
    desk.write(50, 99).expect("write");
    assert_eq!(desk.read(), Err(Errno::EIO));
    let error = desk.file.cq_readerr(desk.cq.handle).expect("readerr");
    assert_eq!(error.op_context, 50);
    // After a repair of the head no entry is lost.
    desk.head().store(1, SeqCst);
    for context in 1..4 {
        assert_eq!(desk.read(), Ok(context));
    }
    assert_eq!(desk.read(), Err(Errno::EAGAIN));
}

fn an_invalid_head_affects_its_writer_only() {
    let (desk, other) = (Desk::new(4), Desk::new(4));
    desk.head().store(77, SeqCst);
    // Entries arrive as long as there is room according to the module, and no longer.
    desk.complete_all(0..4);
    for bad in [77, 5, u64::MAX] {
        desk.head().store(bad, SeqCst);
        assert_eq!(desk.write(4, 1), Err(Errno::EAGAIN));
    }
    other.complete_all(0..4);
    for context in 0..4 {
        assert_eq!(other.read(), Ok(context));
    }
    desk.head().store(0, SeqCst);
    for context in 0..4 {
        assert_eq!(desk.read(), Ok(context));
    }
    desk.complete_all(4..8);
    assert_eq!(desk.entry(0, 0).load(SeqCst), 4);
}

fn a_head_may_skip_entries() {
    let desk = Desk::new(4);
    desk.complete_all(0..4);
    desk.head().store(3, SeqCst);
    assert_eq!(desk.read(), Ok(3));
    // Their room is free.
    desk.complete_all(4..8);
    desk.head().store(8, SeqCst);
    assert_eq!(desk.read(), Err(Errno::EAGAIN));
    desk.complete_all(8..12);
    for context in 8..12 {
        assert_eq!(desk.read(), Ok(context));
    }
}

fn other_writes_to_the_ring_do_no_harm() {
    let desk = Desk::new(8);
    desk.complete_all(0..3);
    for word in (0..desk.cq.ring_size as usize).step_by(8) {
        if word != offset_of!(abi::kfabric_cq_ring, head) {
            desk.ring.word(word).store(u64::MAX - word as u64, SeqCst);
        }
    }
    // The module has its own tail; it finds changed entries as the program left them.
    let entry = desk.file.cq_read(desk.cq.handle).expect("read");
    assert_eq!(
        entry.op_context & 0xffff_ffff_0000_0000,
        0xffff_ffff_0000_0000
    );
    desk.complete_all(3..8);
    assert_eq!(desk.tail().load(SeqCst), 8);
    for _ in 1..3 {
        assert!(desk.read().is_ok());
    }
    for context in 3..8 {
        assert_eq!(desk.read(), Ok(context));
    }
    desk.write(9, 99).expect("write");
    assert_eq!(desk.errors(), 1);
    assert_eq!(desk.read(), Err(Errno::KFI_EAVAIL));
    desk.file.cq_readerr(desk.cq.handle).expect("readerr");
    assert_eq!(desk.errors(), 0);
}

fn mappings_are_checked() {
    let desk = Desk::new(256);
    let (file, offset) = (&desk.file, desk.cq.ring_offset);
    let size = desk.cq.ring_size as usize;
    assert!(size > 4 * PAGE && size.is_multiple_of(PAGE));
    // A part from the beginning can be mapped.
    assert_eq!(Mapped::new(file, offset, PAGE).map(drop), Ok(()));
    // A private copy of a ring makes no sense to write to; executing never does.
    let (read, write, exec) = (ProtFlags::READ, ProtFlags::WRITE, ProtFlags::EXEC);
    let map = |prot, flags| Mapped::with(file, offset, PAGE, prot, flags);
    assert!(map(read, MapFlags::SHARED).is_ok());
    refused(
        map(read | write, MapFlags::PRIVATE).map(drop),
        Errno::EINVAL,
    );
    refused(map(read | exec, MapFlags::SHARED).map(drop), Errno::EACCES);
    let mapped = map(read, MapFlags::SHARED).expect("mmap");
    let result = mapped.protect(MprotectFlags::READ | MprotectFlags::EXEC);
    assert_eq!(result, Err(rustix::io::Errno::ACCESS));
}

fn a_mapping_outlives_its_object() {
    let desk = Desk::new(4);
    desk.complete_all([42]);
    let Desk {
        file, cq, ep, ring, ..
    } = desk;
    let fabric = file.fabric();
    let domain = file.domain(fabric);
    let cntr = file.call(arg!(kfabric_cntr_open: domain)).expect("cntr");
    let page = Mapped::with(
        &file,
        cntr.page_offset,
        PAGE,
        ProtFlags::READ,
        MapFlags::SHARED,
    )
    .expect("mmap");
    file.cntr_add(cntr.handle, 7);
    file.close_all(&[cntr.handle, ep, cq.handle]);
    // New objects may get the old numbers; the mappings do not follow.
    let other = file.cntr(domain);
    file.cntr_add(other, 99);
    // A mapping is no use of the domain, either.
    file.close_all(&[other, domain, fabric]);
    drop(file);
    assert_eq!(page.word(0).load(SeqCst), 7);
    let tail = ring.word(offset_of!(abi::kfabric_cq_ring, tail));
    assert_eq!(tail.load(SeqCst), 1);
    ring.word(offset_of!(abi::kfabric_cq_ring, head))
        .store(5, SeqCst);
    assert_eq!(tail.load(SeqCst), 1);
}

fn the_page_of_a_counter_is_read_only() {
    let file = File::open();
    let cntr = file
        .call(arg!(kfabric_cntr_open: domain: file.domain(file.fabric())))
        .expect("cntr");
    let (read, write) = (ProtFlags::READ, ProtFlags::WRITE);
    let map = |len, prot, flags| Mapped::with(&file, cntr.page_offset, len, prot, flags);
    for flags in [MapFlags::SHARED, MapFlags::PRIVATE] {
        for prot in [write, read | write] {
            refused(map(PAGE, prot, flags).map(drop), Errno::EACCES);
        }
        let page = map(PAGE, read, flags).expect("mmap");
        let result = page.protect(MprotectFlags::READ | MprotectFlags::WRITE);
        assert_eq!(result, Err(rustix::io::Errno::ACCESS));
        assert_eq!(page.word(0).load(SeqCst), 0);
    }
    refused(
        map(2 * PAGE, read, MapFlags::SHARED).map(drop),
        Errno::EINVAL,
    );
    // The rest of the page is always zero.
    let page = map(PAGE, read, MapFlags::SHARED).expect("mmap");
    file.cntr_modify(cntr.handle, abi::KFABRIC_CNTR_SET, u64::MAX)
        .expect("set");
    file.cntr_modify(cntr.handle, abi::KFABRIC_CNTR_SETERR, 3)
        .expect("seterr");
    let words: Vec<u64> = (0..PAGE)
        .step_by(8)
        .map(|at| page.word(at).load(SeqCst))
        .collect();
    assert_eq!(words[..2], [u64::MAX, 3]);
    assert!(words[2..].iter().all(|word| *word == 0));
}
