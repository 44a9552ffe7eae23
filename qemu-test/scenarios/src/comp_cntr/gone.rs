// SPDX-License-Identifier: GPL-2.0
//! External memory whose mapping, descriptor or process goes while operations count; programs that
//! fork or become other programs; forced ends.

#![allow(unsafe_code, reason = "fork, exec, and mappings that are replaced")]

use super::{ALL, counts, external, external::word};
use crate::{
    dma_buf::{Exporter, Shared},
    harness::tests,
    host::{Host, LINK, Options, buffer, device, domain, until},
    hosts::{apart, sanitizing},
    process::{Process, line},
    raw::{PAGE, arg},
    ways::Way,
};
use kfi::{
    Buffer, CompCntr, CompCntrOps, CompFlags, Domain, Entry, FiAddr, MemoryLocation, StatClass, abi,
};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use std::{
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

tests![
    memory_that_is_unmapped_while_operations_count: [OneHost, TwoHosts],
    descriptors_that_are_closed_while_operations_count: [OneHost, TwoHosts],
    pages_that_are_replaced_while_operations_count,
    processes_that_are_killed_while_operations_count => 600,
    processes_that_are_killed_while_operations_count_between_hosts => 600,
    a_process_that_has_mapped_a_dma_buf_sees_the_counts,
    a_child_of_fork_keeps_a_copy,
    a_counter_outlives_exec,
    killed_while_others_change_counters => 300,
];

/// The roles in which a test starts this program as another process.
pub(crate) const ROLES: &[(&str, fn())] = &[
    ("counted", counted),
    ("observer", observer),
    ("executes", executes),
    ("executed", executed),
    ("changer", changer),
];

/// A counter of receives with its counts in `memory`, and a host that it is attached to.
fn counted_host(domain: &Domain, memory: &Buffer) -> (Host, CompCntr) {
    let cntr = external(
        domain,
        MemoryLocation::va(memory, 0),
        MemoryLocation::va(memory, 8),
    );
    let host = Host::prepared(domain, &Options::default(), None, |ep| {
        ep.attach_comp_cntr(&cntr, CompCntrOps::RECV)
            .expect("attach");
    });
    (host, cntr)
}

/// Sends messages to `host`, which receives them, until `over`; returns their number.
fn exchange(sender: &Host, to: FiAddr, host: &Host, over: &AtomicBool) -> u64 {
    let (from, into) = (buffer(100), buffer(100));
    let mut sent = 0;
    while !over.load(Relaxed) {
        host.ep.recv(&into, 1).expect("recv");
        sender.ep.send(to, &from, 2).expect("send");
        host.completion();
        sender.completion();
        sent += 1;
    }
    sent
}

/// Runs `change` while messages count. Their number must be the count in the end.
fn while_messages_count(host: &Host, cntr: &CompCntr, change: impl FnOnce()) {
    let sender = Host::with(&Options::default());
    let to = sender.meet(host);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let messages = scope.spawn(|| exchange(&sender, to, host, &over));
        until("messages have counted", || cntr.read().expect("read") > 10);
        change();
        let now = cntr.read().expect("read");
        until("messages go on", || cntr.read().expect("read") > now + 10);
        over.store(true, Relaxed);
        let sent = messages.join().expect("messages");
        until("all are counted", || counts(cntr) == (sent, 0));
    });
}

fn memory_that_is_unmapped_while_operations_count(way: Way) {
    if way == Way::TwoHosts {
        apart();
    }
    let (_, domain) = domain();
    let memory = Buffer::new(16).expect("buffer");
    let (host, cntr) = counted_host(&domain, &memory);
    // The address stays reserved, so that nothing else is there when the library unmaps it.
    while_messages_count(&host, &cntr, || replace(&memory, ProtFlags::empty()));
}

/// Maps another page in place of that of a buffer.
fn replace(memory: &Buffer, prot: ProtFlags) {
    let flags = MapFlags::PRIVATE | MapFlags::FIXED;
    // SAFETY: the page belongs to `memory`, which accesses it atomically.
    unsafe { mmap_anonymous(memory.as_ptr().cast(), PAGE, prot, flags) }.expect("mmap");
}

/// For each exporter the memory's host and that of the messages differ, if there are two.
fn descriptors_that_are_closed_while_operations_count(way: Way) {
    if way == Way::TwoHosts {
        apart();
    }
    for exporter in Exporter::ALL {
        let (_, domain) = domain();
        let buffer = exporter.make(1);
        let memory = buffer.memory.clone();
        let place = |offset| MemoryLocation::dma_buf(buffer.fd.as_fd(), offset);
        let cntr = external(&domain, place(0), place(8));
        let host = Host::prepared(&domain, &Options::default(), None, |ep| {
            ep.attach_comp_cntr(&cntr, CompCntrOps::RECV)
                .expect("attach");
        });
        while_messages_count(&host, &cntr, || drop(buffer));
        // The program's own mapping still shows the counts.
        assert_eq!((word(&memory, 0), word(&memory, 8)), counts(&cntr));
        // Without any mapping and descriptor of the program.
        drop(memory);
        while_messages_go_on(&host, &cntr);
    }
}

/// Some more messages count.
fn while_messages_go_on(host: &Host, cntr: &CompCntr) {
    let before = cntr.read().expect("read");
    let sender = Host::with(&Options::default());
    let to = sender.meet(host);
    let buffer = Buffer::new(8).expect("buffer");
    for _ in 0..10 {
        host.ep.recv(&buffer, 1).expect("recv");
        sender.ep.send(to, &buffer, 2).expect("send");
        host.completion();
    }
    until("they are counted", || {
        cntr.read().expect("read") == before + 10
    });
}

/// Another page appears where the counts were: it stays as the program has written it.
fn pages_that_are_replaced_while_operations_count() {
    let (_, domain) = domain();
    let memory = Buffer::new(16).expect("buffer");
    let (host, cntr) = counted_host(&domain, &memory);
    while_messages_count(&host, &cntr, || {
        replace(&memory, ProtFlags::READ | ProtFlags::WRITE);
        memory.write_at(0, &[0x5a; 16]);
    });
    assert_eq!(memory.to_vec(..), [0x5a; 16]);
}

/// A process with counters of both kinds of external memory, which receives for ever.
fn counted() {
    let (_, domain) = match line().as_str() {
        "apart" => crate::host::domain_on(crate::hosts::LINKS[0]),
        _ => domain(),
    };
    let memory = Buffer::new(16).expect("buffer");
    let buffer = Exporter::Udmabuf.make(1);
    let place = |offset| MemoryLocation::dma_buf(buffer.fd.as_fd(), offset);
    let (in_memory, in_buffer) = (
        domain.comp_cntr().external(
            MemoryLocation::va(&memory, 0),
            MemoryLocation::va(&memory, 8),
        ),
        domain.comp_cntr().external(place(0), place(8)),
    );
    let (in_memory, in_buffer) = (
        in_memory.create().expect("create"),
        in_buffer.create().expect("create"),
    );
    let host = Host::prepared(&domain, &Options::default(), None, |ep| {
        ep.attach_comp_cntr(
            &in_memory,
            CompCntrOps::RECV | CompCntrOps::REMOTE_RDMA_READ,
        )
        .expect("attach");
        ep.attach_comp_cntr(
            &in_buffer,
            ALL.difference(CompCntrOps::RECV | CompCntrOps::REMOTE_RDMA_READ),
        )
        .expect("attach");
    });
    let into = Buffer::new(4096).expect("buffer");
    let mr = domain
        .mr(&into)
        .access(kfi::Access::REMOTE_READ | kfi::Access::REMOTE_WRITE)
        .requested_key(1)
        .open()
        .expect("mr");
    println!("{}", host.ep.name().expect("name"));
    loop {
        let _ = host.ep.recv(&into, 1);
        let mut entries = [Entry::default(); 8];
        let _ = host.cq.read(&mut entries);
        if entries[0].flags == CompFlags::all() {
            drop(mr);
            return;
        }
    }
}

/// Kills a process of role `counted` in the middle, again and again.
fn killed(start: impl Fn() -> Process, domain: &Domain) {
    let rounds = if sanitizing() { 20 } else { 60 };
    let buffer = Buffer::new(512).expect("buffer");
    for round in 0..rounds {
        let mut process = start();
        let name = process.read_line().parse().expect("address");
        let host = Host::on(domain, &Options::default());
        let to = host.av.insert_one(name).expect("insert");
        let stop = std::time::Instant::now() + Duration::from_millis(20 + round);
        let mut killed = false;
        let end = stop + Duration::from_millis(50);
        while std::time::Instant::now() < end {
            let remote = kfi::Remote::new(0, 1);
            let _ = host.ep.send(to, &buffer, 1);
            let _ = host.ep.write(to, &buffer, remote, 2);
            let _ = host.ep.read(to, &buffer, remote, 3);
            let mut entries = [Entry::default(); 16];
            if host.cq.read(&mut entries).is_err() {
                let _ = host.cq.readerr();
            }
            if !killed && std::time::Instant::now() > stop {
                process.kill();
                killed = true;
            }
        }
        assert!(!process.wait().success());
    }
}

/// No counter of another process is left.
fn no_counter_is_left() {
    until("counters of killed processes gone", || {
        device()
            .stats(StatClass::CompCntr)
            .all(|stat| stat.expect("stat").pid == Some(std::process::id()))
    });
}

fn processes_that_are_killed_while_operations_count() {
    let (_, domain) = domain();
    let start = || {
        let mut process = Process::in_role("counted");
        process.tell("here");
        process
    };
    killed(start, &domain);
    no_counter_is_left();
}

fn processes_that_are_killed_while_operations_count_between_hosts() {
    let hosts = apart();
    let (_, domain) = hosts.domain(1);
    let start = || {
        // The process begins on the first host.
        let mut process = hosts.host(0).run(|| Process::in_role("counted"));
        process.tell("apart");
        process
    };
    killed(start, &domain);
    hosts.host(0).run(no_counter_is_left);
}

/// A process that maps the DMA-BUF of another one, and tells the counts that it sees.
fn observer() {
    let path = line();
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .expect("open the memfd");
    let memory = Buffer::map(file.as_fd(), 0, 4096).expect("mmap");
    loop {
        let expected: u64 = line().parse().expect("a number");
        until("the count", || word(&memory, 0) == expected);
        println!("{} {}", word(&memory, 0), word(&memory, 8));
    }
}

fn a_process_that_has_mapped_a_dma_buf_sees_the_counts() {
    let (_, domain) = domain();
    let buffer = Shared::new(PAGE);
    let place = |offset| MemoryLocation::dma_buf(buffer.dma_buf.as_fd(), offset);
    let cntr = external(&domain, place(0), place(8));
    let mut observer = Process::in_role("observer");
    observer.tell(&format!(
        "/proc/{}/fd/{}",
        std::process::id(),
        buffer.memfd.as_raw_fd()
    ));
    for count in 1..=20 {
        cntr.inc_err(1).expect("inc_err");
        cntr.inc(1).expect("inc");
        observer.tell(&count.to_string());
        assert_eq!(observer.read_line(), format!("{count} {count}"));
    }
}

fn a_child_of_fork_keeps_a_copy() {
    let (_, domain) = domain();
    let memory = Buffer::new(16).expect("buffer");
    let (host, cntr) = counted_host(&domain, &memory);
    while_messages_go_on(&host, &cntr);
    assert_eq!(word(&memory, 0), 10);
    let mut pipe = [0; 2];
    // SAFETY: an array of two descriptors.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    // SAFETY: the child calls only functions that are safe after a fork, and ends.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork");
    if child == 0 {
        // Waits until the parent has counted further, and looks at its copy.
        let mut byte = 0u8;
        // SAFETY: one byte.
        unsafe {
            libc::close(pipe[1]);
            libc::read(pipe[0], (&raw mut byte).cast(), 1);
        }
        let seen = word(&memory, 0);
        // SAFETY: ends the child without running the parent's code.
        unsafe { libc::_exit(if seen == 10 { 0 } else { 1 }) };
    }
    // The pinned page stays the parent's, so the counts go on there.
    while_messages_go_on(&host, &cntr);
    assert_eq!(word(&memory, 0), 20);
    let mut status = 0;
    // SAFETY: ends the child's wait; the child is this process's.
    unsafe {
        libc::close(pipe[1]);
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        libc::close(pipe[0]);
    }
    assert_eq!(status, 0, "the child has a copy of the old count");
    // The counter, its file and its memory are still there after the child.
    while_messages_go_on(&host, &cntr);
    assert_eq!(word(&memory, 0), 30);
}

/// A process that becomes another program while its counter counts.
fn executes() {
    let device = device();
    let fabric = device.fabric().expect("fabric");
    let domain = fabric.domain(LINK).open().expect("domain");
    let memory = Buffer::new(16).expect("buffer");
    let (host, cntr) = counted_host(&domain, &memory);
    let into = Buffer::new(4096).expect("buffer");
    for _ in 0..100 {
        host.ep.recv(&into, 1).expect("recv");
    }
    println!("{}", host.ep.name().expect("name"));
    assert_eq!(line(), "exec");
    rustix::io::fcntl_setfd(&device, rustix::io::FdFlags::empty()).expect("fcntl");
    let me = std::ffi::CString::new("/proc/self/exe").expect("text");
    let role = [c"kfi-scenarios", c"--role", c"executed"];
    let (fd, handle) = (device.as_fd().as_raw_fd(), cntr.handle());
    let environment = [
        std::ffi::CString::new(format!("KFI_FD={fd}")).expect("text"),
        std::ffi::CString::new(format!("KFI_CNTR={handle}")).expect("text"),
    ];
    let argv: Vec<*const libc::c_char> = role
        .iter()
        .map(|word| word.as_ptr())
        .chain([std::ptr::null()])
        .collect();
    let envp: Vec<*const libc::c_char> = environment
        .iter()
        .map(|word| word.as_ptr())
        .chain([std::ptr::null()])
        .collect();
    // SAFETY: the lists end with null, and all texts live.
    unsafe { libc::execve(me.as_ptr(), argv.as_ptr(), envp.as_ptr()) };
    panic!("{}", std::io::Error::last_os_error());
}

/// The program that it becomes: has the open file, and not the memory.
fn executed() {
    let number = |name| std::env::var(name).expect(name).parse().expect("a number");
    let fd: i32 = number("KFI_FD");
    // SAFETY: it was inherited and is not closed.
    let device = unsafe { BorrowedFd::borrow_raw(fd) };
    println!("executed");
    loop {
        let expected: u64 = line().parse().expect("a number");
        until("the messages are counted", || {
            let mut arg = arg!(kfabric_comp_cntr_read: comp_cntr: number("KFI_CNTR") as u32);
            // SAFETY: the structure has no address.
            unsafe { abi::call(device, &mut arg) }.expect("read");
            arg.value == expected
        });
        println!("{expected}");
    }
}

fn a_counter_outlives_exec() {
    let mut process = Process::in_role("executes");
    let name = process.read_line().parse().expect("address");
    let host = Host::new();
    let to = host.av.insert_one(name).expect("insert");
    let send = |count: u64| {
        for _ in 0..count {
            host.ep.inject(to, b"counts").expect("inject");
        }
    };
    send(5);
    process.tell("exec");
    assert_eq!(process.read_line(), "executed");
    for expected in [5, 15, 16] {
        if expected > 5 {
            send(if expected == 15 { 10 } else { 1 });
        }
        process.tell(&expected.to_string());
        assert_eq!(process.read_line(), expected.to_string());
    }
}

/// A process whose threads change a counter with external memory until it is killed.
fn changer() {
    let (_, domain) = domain();
    let memory = Buffer::new(16).expect("buffer");
    let (host, cntr) = counted_host(&domain, &memory);
    println!("ready");
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let (cntr, domain, memory) = (&cntr, &domain, &memory);
            scope.spawn(move || {
                loop {
                    let _ = cntr.inc(thread);
                    let _ = cntr.set_err(thread);
                    if thread == 0 {
                        let place = |offset| MemoryLocation::va(memory, offset);
                        let other = domain.comp_cntr().external(place(0), place(8)).create();
                        drop(other);
                    }
                }
            });
        }
    });
    drop(host);
}

fn killed_while_others_change_counters() {
    let mine = super::counter();
    let rounds = if sanitizing() { 20 } else { 100 };
    for round in 0..rounds {
        let mut process = Process::in_role("changer");
        assert_eq!(process.read_line(), "ready");
        std::thread::sleep(Duration::from_micros(997 * (round % 17)));
        process.kill();
        mine.inc(1).expect("inc");
        assert!(!process.wait().success());
        assert_eq!(counts(&mine), (round + 1, 0));
    }
    no_counter_is_left();
}
