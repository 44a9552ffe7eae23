// SPDX-License-Identifier: GPL-2.0
//! Threads that sleep or are preempted in a system call: helpers that cause this, and wait for
//! it.

#![allow(unsafe_code, reason = "signal handlers, policies of the scheduler")]

use crate::host::until;
use std::{
    os::unix::thread::JoinHandleExt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering::SeqCst},
    },
    thread::JoinHandle,
};

/// A closure that owns clones of these values: `cloned!(cntr, cq = alone.cq; move || ...)`.
macro_rules! cloned {
    (@ $name:ident) => { $name };
    (@ $name:ident $from:expr) => { $from };
    ($($name:ident $(= $from:expr)?),+; $closure:expr) => {{
        $(let $name = cloned!(@ $name $($from)?).clone();)+
        $closure
    }};
}
pub(crate) use cloned;

/// A thread that should sleep in a call.
pub(crate) struct Sleeper<T> {
    thread: JoinHandle<T>,
    tid: i32,
}

impl<T: Send + 'static> Sleeper<T> {
    /// Starts it.
    pub(crate) fn new(work: impl FnOnce() -> T + Send + 'static) -> Self {
        let tid = Arc::new(AtomicI32::new(0));
        let thread = {
            let tid = tid.clone();
            std::thread::spawn(move || {
                tid.store(rustix::thread::gettid().as_raw_nonzero().get(), SeqCst);
                work()
            })
        };
        until("a thread that runs", || tid.load(SeqCst) != 0);
        Self {
            thread,
            tid: tid.load(SeqCst),
        }
    }

    /// Starts it and waits until it sleeps.
    pub(crate) fn asleep(work: impl FnOnce() -> T + Send + 'static) -> Self {
        let sleeper = Self::new(work);
        sleeper.until_asleep();
        sleeper
    }

    /// A line of `/proc/self/task/TID/status`, without its name.
    fn status(&self, name: &str) -> Option<String> {
        let path = format!("/proc/self/task/{}/status", self.tid);
        let text = std::fs::read_to_string(path).ok()?;
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line[name.len()..].trim().to_owned())
    }

    /// Waits until it sleeps in ioctl, read, poll, ppoll, epoll_wait or epoll_pwait and can be
    /// interrupted.
    pub(crate) fn until_asleep(&self) {
        const IN: [&str; 6] = ["16 ", "0 ", "7 ", "271 ", "232 ", "281 "];
        until("a thread asleep in a call", || {
            assert!(!self.is_finished(), "it does not sleep");
            let call = std::fs::read_to_string(format!("/proc/self/task/{}/syscall", self.tid));
            self.status("State:")
                .is_some_and(|state| state.starts_with('S'))
                && call.is_ok_and(|call| IN.iter().any(|number| call.starts_with(number)))
        });
    }

    /// The number of times that it has slept.
    pub(crate) fn sleeps(&self) -> u64 {
        self.status("voluntary_ctxt_switches:")
            .and_then(|count| count.parse().ok())
            .expect("a thread that has not ended")
    }

    /// Whether it has ended.
    pub(crate) fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Sends it SIGUSR1.
    pub(crate) fn interrupt(&self) {
        // SAFETY: the thread is not joined yet, so its handle is valid.
        let result = unsafe { libc::pthread_kill(self.thread.as_pthread_t(), libc::SIGUSR1) };
        assert_eq!(result, 0, "pthread_kill");
    }

    /// Waits for its end; returns its result.
    pub(crate) fn join(self) -> T {
        self.thread.join().expect("a thread that does not panic")
    }

    /// Waits for its end, which must come soon.
    pub(crate) fn end(self) -> T {
        until("the end of a thread", || self.is_finished());
        self.join()
    }
}

static SIGNALS: AtomicU32 = AtomicU32::new(0);

/// While it is set, the handler does not return.
static HOLD: AtomicBool = AtomicBool::new(false);

extern "C" fn count_signal(_: libc::c_int) {
    SIGNALS.fetch_add(1, SeqCst);
    while HOLD.load(SeqCst) {
        std::hint::spin_loop();
    }
}

/// Runs `work` while `sleeper`, whose call a signal has interrupted, is in the signal's handler.
/// [`handle_signals`] was called.
pub(crate) fn in_the_handler<T>(sleeper: &Sleeper<T>, work: impl FnOnce())
where
    T: Send + 'static,
{
    let before = signals();
    HOLD.store(true, SeqCst);
    sleeper.interrupt();
    until("a signal that is handled", || signals() > before);
    work();
    HOLD.store(false, SeqCst);
}

/// Handles SIGUSR1 by counting it. `restart`: the interrupted call continues afterwards.
pub(crate) fn handle_signals(restart: bool) {
    // SAFETY: zeros are valid in this structure.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = count_signal as extern "C" fn(libc::c_int) as libc::sighandler_t;
    action.sa_flags = if restart { libc::SA_RESTART } else { 0 };
    // SAFETY: the handler only touches an atomic number.
    let result = unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) };
    assert_eq!(result, 0, "sigaction");
}

/// Signals handled so far.
pub(crate) fn signals() -> u32 {
    SIGNALS.load(SeqCst)
}

/// Restricts the calling thread, and threads that it starts later, to these CPUs.
pub(crate) fn run_on(cpus: impl IntoIterator<Item = usize>) {
    // SAFETY: zeros are an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for cpu in cpus {
        // SAFETY: a CPU's number is below the size of the set.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    // SAFETY: the set is valid for the call.
    let result = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
    assert_eq!(result, 0, "sched_setaffinity");
}

/// The number of CPUs that are online.
pub(crate) fn cpus() -> usize {
    let all = std::fs::read_to_string("/sys/devices/system/cpu/online").expect("CPUs");
    let last = all.trim().rsplit(['-', ',']).next().expect("a number");
    last.parse::<usize>().expect("a number") + 1
}

/// From now on the calling thread runs on this CPU, before all ordinary threads.
pub(crate) fn become_real_time(cpu: usize) {
    run_on([cpu]);
    let param = libc::sched_param { sched_priority: 1 };
    // SAFETY: the parameters are valid for the call.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const param) };
    assert_eq!(result, 0, "sched_setscheduler");
}

/// A real-time thread on one CPU. While it is [wanted](Self::want) it spins, so that ordinary
/// threads on that CPU are preempted. (After 0.95 s the kernel lets them run for a short time.)
pub(crate) struct Hog {
    wanted: Arc<AtomicBool>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Hog {
    /// Starts the thread, which sleeps at first.
    pub(crate) fn on(cpu: usize) -> Self {
        let (wanted, over) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicBool::new(false)),
        );
        let ready = Arc::new(AtomicBool::new(false));
        let thread = {
            let (wanted, over, ready) = (wanted.clone(), over.clone(), ready.clone());
            std::thread::spawn(move || {
                become_real_time(cpu);
                ready.store(true, SeqCst);
                while !over.load(SeqCst) {
                    if wanted.load(SeqCst) {
                        std::hint::spin_loop();
                    } else {
                        std::thread::park();
                    }
                }
            })
        };
        until("a thread that waits", || ready.load(SeqCst));
        Self {
            wanted,
            over,
            thread: Some(thread),
        }
    }

    /// Makes the thread spin (`true`) or sleep (`false`).
    pub(crate) fn want(&self, wanted: bool) {
        self.wanted.store(wanted, SeqCst);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        self.over.store(true, SeqCst);
        self.want(false);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
