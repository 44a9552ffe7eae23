// SPDX-License-Identifier: GPL-2.0
//! Threads with other credentials, in another network namespace, or asleep in a call.
//!
//! Credentials and namespaces belong to a thread, so a test changes them in a thread of its own and
//! the process keeps its own. Programs started there (`ip`) inherit them.

#![allow(unsafe_code, reason = "namespaces, signals")]

use crate::raw::ip;
use rustix::{
    process::{Gid, Pid, Uid},
    thread::{LinkNameSpaceType, UnshareFlags, gettid},
};
use std::{
    fs::File,
    os::fd::{AsFd, AsRawFd},
    sync::atomic::{AtomicI32, AtomicU32, Ordering},
    time::Duration,
};

/// The ordinary user of the guest.
pub(crate) const USER: u32 = 1000;

/// Runs `run` in a thread; returns its result, and panics if it panics.
pub(crate) fn in_thread<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| match scope.spawn(run).join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// Becomes the ordinary user, without any capability.
pub(crate) fn become_user() {
    become_user_number(USER);
}

fn become_user_number(user: u32) {
    let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
    rustix::thread::set_thread_groups(&[]).expect("setgroups");
    rustix::thread::set_thread_res_gid(gid, gid, gid).expect("setresgid");
    rustix::thread::set_thread_res_uid(uid, uid, uid).expect("setresuid");
}

/// Runs `run` as an ordinary user.
pub(crate) fn as_user<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    in_thread(|| {
        become_user();
        run()
    })
}

/// Runs `run` as an ordinary user that no other test is: its account has no history.
pub(crate) fn as_new_user<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    static USERS: AtomicU32 = AtomicU32::new(0);
    in_thread(|| {
        // Each test is a process.
        let number = USERS.fetch_add(1, Ordering::Relaxed);
        become_user_number(16 * std::process::id() + number + (1 << 20));
        run()
    })
}

/// Lets all users open the device.
pub(crate) fn open_to_all() {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions("/dev/kfabric", std::fs::Permissions::from_mode(0o666))
        .expect("chmod /dev/kfabric");
}

/// A network namespace, which exists as long as this value.
pub(crate) struct NetNs(File);

impl NetNs {
    /// A new one; its loopback interface is up.
    pub(crate) fn new() -> Self {
        in_thread(|| {
            // SAFETY: no descriptor is unshared.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.expect("unshare");
            ip("link set lo up");
            Self(File::open("/proc/thread-self/ns/net").expect("open my namespace"))
        })
    }

    /// One of another process, at its [`path`](Self::path).
    pub(crate) fn open(path: &str) -> Self {
        Self(File::open(path).expect("open a namespace"))
    }

    /// The path by which this process and others can open it.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// Runs `run` in it.
    pub(crate) fn run<T: Send>(&self, run: impl FnOnce() -> T + Send) -> T {
        in_thread(|| {
            rustix::thread::move_into_link_name_space(
                self.0.as_fd(),
                Some(LinkNameSpaceType::Network),
            )
            .expect("setns");
            run()
        })
    }
}

/// Whether a thread of this process sleeps.
fn asleep(tid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap_or_default();
    // Behind the name, which is in parentheses.
    let state = stat.rsplit_once(')').map_or("", |(_, rest)| rest.trim());
    state.starts_with('S')
}

/// Runs `wait`, which should sleep in a call, and, once it does, `meanwhile` with the thread's id.
pub(crate) fn while_waiting<T: Send>(
    wait: impl FnOnce() -> T + Send,
    meanwhile: impl FnOnce(i32),
) -> T {
    let tid = AtomicI32::new(0);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            tid.store(gettid().as_raw_nonzero().get(), Ordering::SeqCst);
            wait()
        });
        // Asleep more than once in a row: in the call, and not by chance before it.
        let mut seen = 0;
        while seen < 3 && !waiter.is_finished() {
            std::thread::sleep(Duration::from_millis(3));
            let tid = tid.load(Ordering::SeqCst);
            seen = if tid != 0 && asleep(tid) { seen + 1 } else { 0 };
        }
        meanwhile(tid.load(Ordering::SeqCst));
        match waiter.join() {
            Ok(value) => value,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Sends SIGUSR1 to a thread of this process.
pub(crate) fn interrupt(tid: i32) {
    let pid: i32 = Pid::as_raw(Some(rustix::process::getpid()));
    // SAFETY: a signal that is handled.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, libc::SIGUSR1) };
    assert_eq!(sent, 0, "tgkill");
}
