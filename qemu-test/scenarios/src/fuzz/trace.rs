// SPDX-License-Identifier: GPL-2.0
//! The last calls of each thread of a round, in a file that outlives its process.
//!
//! A call is recorded before it is made and its result afterwards, which shows a call that never
//! returned. Recording is a copy into mapped memory.

#![allow(unsafe_code, reason = "mapped memory")]

use rustix::{
    fs::{Mode, OFlags},
    mm::{MapFlags, ProtFlags},
};
use std::fmt::Write as _;

/// Threads that are traced.
pub(super) const THREADS: usize = 4;
/// Calls that are kept of each.
const CALLS: usize = 24;
/// Bytes of a call's structure that are kept.
const BYTES: usize = 192;

/// The result of a call that has not returned.
const UNDER_WAY: i64 = i64::MIN;

#[derive(Clone, Copy)]
#[repr(C)]
struct Record {
    number: u64,
    result: i64,
    len: u64,
    name: [u8; 32],
    bytes: [u8; BYTES],
}

const SIZE: usize = THREADS * CALLS * size_of::<Record>();

fn path(process: u64) -> String {
    format!("/dev/shm/kfi-fuzz-{process}")
}

/// A thread's buffer for its calls.
pub(super) struct Trace {
    records: *mut Record,
    number: u64,
}

// SAFETY: each thread has records of its own.
unsafe impl Send for Trace {}

/// Traces for the threads of `process`; earlier contents are dropped.
pub(super) fn create(process: u64) -> Vec<Trace> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    let file = rustix::fs::open(path(process), flags, Mode::from(0o600)).expect("trace file");
    rustix::fs::ftruncate(&file, SIZE as u64).expect("ftruncate");
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice, which stays.
    let start =
        unsafe { rustix::mm::mmap(std::ptr::null_mut(), SIZE, prot, MapFlags::SHARED, &file, 0) }
            .expect("mmap")
            .cast::<Record>();
    (0..THREADS)
        .map(|thread| Trace {
            // SAFETY: within the mapping.
            records: unsafe { start.add(thread * CALLS) },
            number: 0,
        })
        .collect()
}

impl Trace {
    /// Records a call before it is made.
    pub(super) fn begin(&mut self, name: &str, bytes: &[u8]) {
        self.number += 1;
        let mut record = Record {
            number: self.number,
            result: UNDER_WAY,
            len: bytes.len().min(BYTES) as u64,
            name: [0; 32],
            bytes: [0; BYTES],
        };
        for (to, from) in record.name.iter_mut().zip(name.bytes()) {
            *to = from;
        }
        for (to, from) in record.bytes.iter_mut().zip(bytes) {
            *to = *from;
        }
        // SAFETY: a record of this thread's.
        unsafe { self.place().write(record) };
    }

    /// Records the result: 0, a value, or a negative error number.
    pub(super) fn end(&mut self, result: i64) {
        // SAFETY: as above.
        unsafe { (*self.place()).result = result };
    }

    fn place(&self) -> *mut Record {
        // SAFETY: within the records of this thread.
        unsafe { self.records.add(self.number as usize % CALLS) }
    }
}

/// The last calls of a process, oldest first, as text.
pub(super) fn read(process: u64) -> String {
    let Ok(bytes) = std::fs::read(path(process)) else {
        return String::new();
    };
    let mut text = String::new();
    let thread_bytes = CALLS * size_of::<Record>();
    for (thread, bytes) in bytes.chunks_exact(thread_bytes).enumerate() {
        let mut records: Vec<Record> = bytes
            .chunks_exact(size_of::<Record>())
            // SAFETY: a record is numbers; any bytes are one.
            .map(|bytes| unsafe { bytes.as_ptr().cast::<Record>().read_unaligned() })
            .filter(|record| record.number != 0)
            .collect();
        records.sort_by_key(|record| record.number);
        for record in records {
            let name = String::from_utf8_lossy(&record.name);
            let words: Vec<String> = record.bytes[..record.len as usize]
                .chunks(4)
                .map(|word| {
                    let mut whole = [0; 4];
                    whole[..word.len()].copy_from_slice(word);
                    format!("{:x}", u32::from_ne_bytes(whole))
                })
                .collect();
            let result = match record.result {
                UNDER_WAY => "under way".to_owned(),
                result => result.to_string(),
            };
            let _ = writeln!(
                text,
                "  thread {thread} #{} {} [{}] = {result}",
                record.number,
                name.trim_end_matches('\0'),
                words.join(" ")
            );
        }
    }
    text
}
