// SPDX-License-Identifier: GPL-2.0
//! A thread that a test can starve of CPU time ([`Crowd::hold`]): it becomes SCHED_IDLE on a CPU
//! that a crowd of ordinary threads, which spin, keeps busy.
//!
//! Two CPUs are used: the last one for that thread and the spinning threads, the first one for all
//! other threads of the test. A kernel worker that has to run on the last CPU gets a share of it.

#![allow(unsafe_code, reason = "scheduling policies")]

use crate::host::until;
use rustix::{
    io::Errno,
    process::Pid,
    thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering::SeqCst},
    },
    thread::JoinHandle,
};

/// Number of spinning threads. Beside them, a SCHED_IDLE thread gets less than a thousandth of the
/// CPU.
const SPINNERS: usize = 8;

/// States of those threads.
const PARKED: u32 = 0;
const SPIN: u32 = 1;
const END: u32 = 2;

/// The CPUs that this process may use: the first one, or the last one.
fn cpu(last: bool) -> CpuSet {
    static ALLOWED: std::sync::OnceLock<CpuSet> = std::sync::OnceLock::new();
    // All CPUs of the process, before one of its threads was pinned.
    let allowed = ALLOWED.get_or_init(|| sched_getaffinity(None).expect("sched_getaffinity"));
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
    let cpu = if last { cpus.next_back() } else { cpus.next() };
    let mut set = CpuSet::new();
    set.set(cpu.expect("a CPU"));
    set
}

/// From now on the calling thread runs on the first CPU, and so do the threads and processes that
/// it starts.
pub(crate) fn keep_away() {
    sched_setaffinity(None, &cpu(false)).expect("sched_setaffinity");
}

/// The spinning threads that keep another thread, which may be of another process, from running.
/// Dropping this value lets it run again.
pub(crate) struct Crowd {
    tid: i32,
    state: Arc<AtomicU32>,
    spinners: Vec<JoinHandle<()>>,
}

impl Crowd {
    /// Moves the thread with this id to the last CPU, beside threads that do not spin yet.
    pub(crate) fn around(tid: i32) -> Self {
        let pinned = sched_setaffinity(Pid::from_raw(tid), &cpu(true));
        // The thread may have ended.
        assert!(
            matches!(pinned, Ok(()) | Err(Errno::SRCH)),
            "sched_setaffinity: {pinned:?}"
        );
        let state = Arc::new(AtomicU32::new(PARKED));
        let spinners = (0..SPINNERS).map(|_| {
            let state = state.clone();
            std::thread::spawn(move || {
                sched_setaffinity(None, &cpu(true)).expect("sched_setaffinity");
                loop {
                    match state.load(SeqCst) {
                        PARKED => std::thread::park(),
                        SPIN => std::hint::spin_loop(),
                        _ => return,
                    }
                }
            })
        });
        let spinners = spinners.collect();
        Self {
            tid,
            state,
            spinners,
        }
    }

    /// Begins to keep the thread from running. It may still run for some milliseconds.
    pub(crate) fn hold(&self) {
        self.policy(libc::SCHED_IDLE);
        self.tell(SPIN);
    }

    /// Lets it run again.
    pub(crate) fn release(&self) {
        self.tell(PARKED);
        self.policy(libc::SCHED_OTHER);
    }

    /// Its kernel stack; empty if it has ended.
    pub(crate) fn stack(&self) -> String {
        std::fs::read_to_string(format!("/proc/{}/stack", self.tid)).unwrap_or_default()
    }

    /// Whether the thread exists.
    pub(crate) fn is_there(&self) -> bool {
        std::path::Path::new(&format!("/proc/{}", self.tid)).exists()
    }

    fn tell(&self, state: u32) {
        self.state.store(state, SeqCst);
        for spinner in &self.spinners {
            spinner.thread().unpark();
        }
    }

    fn policy(&self, policy: libc::c_int) {
        let param = libc::sched_param { sched_priority: 0 };
        // SAFETY: the structure is read, and lives until the function returns.
        let result = unsafe { libc::sched_setscheduler(self.tid, policy, &raw const param) };
        // The thread may have ended.
        let error = std::io::Error::last_os_error();
        assert!(
            result == 0 || error.raw_os_error() == Some(libc::ESRCH),
            "sched_setscheduler: {error}"
        );
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.tell(END);
        self.policy(libc::SCHED_OTHER);
        for spinner in self.spinners.drain(..) {
            // A thread that has panicked has printed its message.
            let _ = spinner.join();
        }
    }
}

/// A thread of this process that a test can keep from running. Dropping this value waits for its
/// end.
pub(crate) struct Held {
    thread: Option<JoinHandle<()>>,
    crowd: Crowd,
    stop: Arc<AtomicBool>,
}

impl Held {
    /// Starts it. `work` is called with a flag that is set when it should end soon.
    pub(crate) fn new(work: impl FnOnce(&AtomicBool) + Send + 'static) -> Self {
        let (tid, stop) = (
            Arc::new(AtomicI32::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let thread = {
            let (tid, stop) = (tid.clone(), stop.clone());
            std::thread::spawn(move || {
                tid.store(gettid().as_raw_nonzero().get(), SeqCst);
                work(&stop);
            })
        };
        until("a thread that runs", || tid.load(SeqCst) != 0);
        Self {
            thread: Some(thread),
            crowd: Crowd::around(tid.load(SeqCst)),
            stop,
        }
    }

    /// Begins to keep it from running. It may still run for some milliseconds.
    pub(crate) fn hold(&self) {
        self.crowd.hold();
    }

    /// Lets it run again.
    pub(crate) fn release(&self) {
        self.crowd.release();
    }

    /// Whether its work is done.
    pub(crate) fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Its kernel stack.
    pub(crate) fn stack(&self) -> String {
        self.crowd.stack()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        self.release();
        if let Some(thread) = self.thread.take() {
            // A thread that has panicked has printed its message.
            let _ = thread.join();
        }
    }
}
