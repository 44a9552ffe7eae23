// SPDX-License-Identifier: GPL-2.0
//! The kernel's log, and the faults that a kernel reports there.

use rustix::fs::{Mode, OFlags};
use std::os::fd::OwnedFd;

/// Texts by which the kernel reports a fault.
const FAULTS: [&str; 14] = [
    "WARNING: ",
    "BUG: ",
    "Oops",
    "general protection fault",
    "INFO: possible",
    "possible circular locking",
    "possible recursive locking",
    "suspicious RCU",
    "blocked for more than",
    "detected stall",
    "UBSAN: ",
    "KASAN: ",
    "refcount_t: ",
    "Bad page",
];

/// The kernel's log from now on.
pub(crate) struct KernelLog(OwnedFd);

impl KernelLog {
    /// Begins after the existing records.
    pub(crate) fn open() -> Self {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = rustix::fs::open("/dev/kmsg", flags, Mode::empty()).expect("open /dev/kmsg");
        rustix::fs::seek(&fd, rustix::fs::SeekFrom::End(0)).expect("seek");
        Self(fd)
    }

    /// Reads the new records. The error is the first one that reports a fault.
    pub(crate) fn look(&self) -> Result<(), String> {
        let mut record = [0; 8192];
        loop {
            match rustix::io::read(&self.0, &mut record) {
                Ok(len) => {
                    let text = String::from_utf8_lossy(&record[..len]);
                    if FAULTS.iter().any(|fault| text.contains(fault)) {
                        return Err(format!("the kernel says: {text}"));
                    }
                }
                // Records were overwritten before they were read: continues with the
                // next.
                Err(rustix::io::Errno::PIPE) => {}
                Err(_) => return Ok(()),
            }
        }
    }
}
