// SPDX-License-Identifier: GPL-2.0
//! The memory limit of a user that has made user namespaces: the users in them have accounts of
//! their own, and all their memory counts for the owner of the namespace, too.

#![allow(unsafe_code, reason = "namespaces")]

use crate::{
    abi_budget::fill,
    abi_threads::{USER, as_user, in_thread, open_to_all},
    harness::tests,
    process::{Process, line, program},
    raw::File,
};
use rustix::{
    process::{Gid, Uid},
    thread::UnshareFlags,
};
use std::os::unix::process::CommandExt;

tests![
    memory_of_namespace_users_counts_for_the_owner => 300,
    memory_counts_for_the_owners_of_all_outer_namespaces => 300,
    users_outside_have_their_own_limit => 300,
];

/// The role in which a test starts this program as another process.
pub(crate) const ROLES: &[(&str, fn())] = &[("namespaced", namespaced)];

/// A user ID that is mapped into a namespace, as `/etc/subuid` gives them to users.
const SUBUID: u32 = 100_001;

impl Process {
    /// Starts a process of the user [`SUBUID`] in a user namespace that belongs to [`USER`], and in
    /// `more` namespaces inside each other.
    fn namespaced(more: u32) -> Self {
        let mut me = Self::start(program("namespaced").uid(USER).gid(USER));
        assert_eq!(me.read_line(), "made");
        for map in ["uid_map", "gid_map"] {
            let path = format!("/proc/{}/{map}", me.id());
            std::fs::write(path, format!("0 {USER} 1\n1 {SUBUID} 1\n")).expect(map);
        }
        me.tell(&more.to_string());
        assert_eq!(me.read_line(), "ready");
        me
    }

    /// Opens objects until there is no room; returns their number.
    fn fills(&mut self) -> usize {
        self.tell("fill");
        self.read_line().parse().expect("a number")
    }

    /// Closes its objects.
    fn empties(&mut self) {
        self.tell("empty");
        assert_eq!(self.read_line(), "empty");
    }

    fn finishes(&mut self) {
        self.tell("end");
        assert!(self.wait().success());
    }
}

/// Becomes root of a new user namespace in the caller's.
fn enter_namespace() {
    // SAFETY: No descriptor is unshared, and the process has one thread.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER) }.expect("unshare");
}

/// The role of the process in the namespaces. It fills its account and empties it on request.
fn namespaced() {
    enter_namespace();
    println!("made");
    // The IDs are mapped.
    let more: u32 = line().parse().expect("a number");
    let (uid, gid) = (Uid::from_raw(1), Gid::from_raw(1));
    rustix::thread::set_thread_res_gid(gid, gid, gid).expect("setresgid");
    rustix::thread::set_thread_res_uid(uid, uid, uid).expect("setresuid");
    for _ in 0..more {
        enter_namespace();
    }
    let (file, _, domain) = File::open_only().and_domain();
    println!("ready");
    let mut full = Vec::new();
    loop {
        match line().as_str() {
            "fill" => {
                full.extend(fill(&file, domain));
                println!("{}", full.len());
            }
            "empty" => {
                file.close_all(&full);
                full.clear();
                println!("empty");
            }
            _ => return,
        }
    }
}

/// Whether a user can open no more objects.
fn is_full(file: &File, domain: u32) -> bool {
    fill(file, domain).is_empty()
}

/// A process in `more` namespaces inside the owner's takes all the room, then the owner does.
fn counts_for_the_owner(more: u32) {
    File::open();
    open_to_all();
    let mut process = Process::namespaced(more);
    as_user(|| {
        let (file, _, domain) = File::open_only().and_domain();
        let taken = process.fills();
        assert!(taken > 10, "the process opened {taken} objects");
        assert!(is_full(&file, domain), "the owner has room of its own");
        process.empties();
        let full = fill(&file, domain);
        assert!(full.len() > 10, "the owner opened {} objects", full.len());
        assert_eq!(process.fills(), 0, "the process has room of its own");
        file.close_all(&full);
        let again = process.fills();
        assert!(again > 10, "the process opened {again} objects");
        // The process ends, and all its room is free again.
        process.finishes();
        let full = fill(&file, domain);
        assert!(full.len() > 10, "the owner opened {} objects", full.len());
    });
}

fn memory_of_namespace_users_counts_for_the_owner() {
    counts_for_the_owner(0);
}

fn memory_counts_for_the_owners_of_all_outer_namespaces() {
    counts_for_the_owner(1);
}

/// A user outside the namespaces has an account that they do not affect.
fn users_outside_have_their_own_limit() {
    File::open();
    open_to_all();
    let mut process = Process::namespaced(0);
    assert!(process.fills() > 10);
    in_thread(|| {
        let other = Uid::from_raw(USER + 1);
        rustix::thread::set_thread_res_uid(other, other, other).expect("setresuid");
        let (file, _, domain) = File::open_only().and_domain();
        assert!(!is_full(&file, domain));
    });
}
