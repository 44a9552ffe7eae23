// SPDX-License-Identifier: GPL-2.0
//! The second process, and binding to a CPU.

use crate::{Result, count::Clock};
use rustix::thread::CpuSet;
use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
};

/// The CPU on which both processes run.
const CPU: usize = 0;

/// Binds the calling thread, and the processes it makes from now on.
pub(crate) fn bind() -> Result<()> {
    bind_to(CPU)
}

/// The same, for a row of two processes that wake each other.
///
/// Whether a task that is woken preempts its waker depends on how long both have run, and one round
/// can take half as many switches as the next. Where instructions are counted, both processes
/// therefore have the policy `SCHED_FIFO` until the returned value is dropped: then the waker runs
/// on until it sleeps.
pub(crate) fn bind_pair(clock: Clock) -> Result<Policy> {
    bind()?;
    match clock {
        Clock::Time => Ok(Policy { fifo: false }),
        Clock::Instructions => {
            set_policy(libc::SCHED_FIFO, 1)?;
            Ok(Policy { fifo: true })
        }
    }
}

/// The scheduling policy of the calling thread while a row runs.
pub(crate) struct Policy {
    fifo: bool,
}

impl Drop for Policy {
    fn drop(&mut self) {
        if self.fifo
            && let Err(error) = set_policy(libc::SCHED_OTHER, 0)
        {
            eprintln!("error: back to SCHED_OTHER: {error}");
        }
    }
}

fn set_policy(policy: libc::c_int, sched_priority: libc::c_int) -> Result<()> {
    // SAFETY: All zero is a parameter with nothing in it.
    let mut param: libc::sched_param = unsafe { std::mem::zeroed() };
    param.sched_priority = sched_priority;
    // SAFETY: Reads `param`, and changes how the calling thread is scheduled.
    match unsafe { libc::sched_setscheduler(0, policy, &param) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().into()),
    }
}

/// As [`bind`], to `cpu`.
pub(crate) fn bind_to(cpu: usize) -> Result<()> {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    Ok(rustix::thread::sched_setaffinity(None, &cpus)?)
}

/// A channel by which two processes synchronise; not used while time is measured.
pub(crate) struct Channel(UnixStream);

impl Channel {
    /// Sends a number.
    pub(crate) fn put(&mut self, number: u64) -> Result<()> {
        Ok(self.0.write_all(&number.to_ne_bytes())?)
    }

    /// Waits for a number.
    pub(crate) fn get(&mut self) -> Result<u64> {
        let mut bytes = [0; 8];
        self.0
            .read_exact(&mut bytes)
            .map_err(|e| format!("the other process is gone ({e})"))?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// Sends an address.
    pub(crate) fn put_addr(&mut self, addr: std::net::SocketAddr) -> Result<()> {
        let text = addr.to_string();
        self.put(text.len() as u64)?;
        Ok(self.0.write_all(text.as_bytes())?)
    }

    /// Waits for an address.
    pub(crate) fn get_addr(&mut self) -> Result<std::net::SocketAddr> {
        let mut text = vec![0; self.get()?.min(256) as usize];
        self.0.read_exact(&mut text)?;
        Ok(String::from_utf8(text)?.parse()?)
    }
}

/// A second process; killed and reaped when dropped.
pub(crate) struct Second {
    pid: libc::pid_t,
    /// The channel between both processes.
    pub(crate) channel: Channel,
}

impl Second {
    /// Runs `run` in a copy of this process, which must have a single thread. The copy prints an
    /// error on standard error; this process notices it because the channel breaks.
    pub(crate) fn new(run: impl FnOnce(Channel) -> Result<()>) -> Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        // SAFETY: This process has one thread, so its copy is in no state that only another thread
        // could end.
        let pid = unsafe { libc::fork() };
        if pid < 0 {
            return Err(std::io::Error::last_os_error().into());
        }
        if pid == 0 {
            drop(ours);
            let failed = match run(Channel(theirs)) {
                Ok(()) => 0,
                Err(error) => {
                    eprintln!("second process: {error}");
                    1
                }
            };
            // SAFETY: No requirements; what a test of this process would do at exit is not ours.
            unsafe { libc::_exit(failed) };
        }
        Ok(Self {
            pid,
            channel: Channel(ours),
        })
    }

    /// Its number.
    pub(crate) fn pid(&self) -> libc::pid_t {
        self.pid
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        // SAFETY: Our child, which is not reaped yet, so the number is still its own.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), 0);
        }
    }
}
