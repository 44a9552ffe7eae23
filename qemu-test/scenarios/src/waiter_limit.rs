// SPDX-License-Identifier: GPL-2.0
//! The limit of the waiters of a counter: threads in a wait, and descriptors; and that of the
//! threads that sleep in reads of a queue.

use crate::{
    abi_objects::getwait,
    abi_threads::while_waiting,
    abi_waiting::cntr_wait,
    harness::tests,
    host::within,
    raw::{File, arg, in_ms, refused},
};
use kfi::{Errno, abi};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{
    os::fd::OwnedFd,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    time::{Duration, Instant},
};

tests![
    a_full_counter_refuses_waiters => 120,
    a_thread_in_a_wait_is_a_waiter => 120,
    a_queue_has_so_many_sleepers => 300,
];

const MOST: usize = abi::KFABRIC_MAX_WAITERS as usize;

/// Opens `count` descriptors of a counter. The process may open that many afterwards.
fn open(file: &File, cntr: u32, count: usize) -> Vec<OwnedFd> {
    let raised = Rlimit {
        current: Some(2 * MOST as u64),
        ..getrlimit(Resource::Nofile)
    };
    setrlimit(Resource::Nofile, raised).expect("setrlimit");
    (0..count)
        .map(|_| getwait(file, cntr).expect("getwait"))
        .collect()
}

/// The counter, whose value is from 1 to 4, takes no waiter. Calls that do not wait succeed.
fn is_full(file: &File, cntr: u32) {
    refused(getwait(file, cntr), Errno::ENOSPC);
    let begin = Instant::now();
    for deadline in [in_ms(20_000), abi::KFABRIC_FOREVER] {
        let (result, _) = cntr_wait(file, cntr, 5, deadline);
        assert_eq!(result, Err(Errno::ENOSPC));
    }
    assert!(begin.elapsed() < Duration::from_secs(10));
    let (result, _) = cntr_wait(file, cntr, 5, 0);
    assert_eq!(result, Err(Errno::ETIMEDOUT));
    let (result, _) = cntr_wait(file, cntr, 1, abi::KFABRIC_FOREVER);
    assert_eq!(result, Ok(()));
}

/// The counter, whose value is below 5, takes a waiter.
fn has_room(file: &File, cntr: u32) {
    let (result, _) = cntr_wait(file, cntr, 5, in_ms(20));
    assert_eq!(result, Err(Errno::ETIMEDOUT));
    drop(getwait(file, cntr).expect("getwait"));
}

fn a_full_counter_refuses_waiters() {
    let (file, fabric, domain) = File::open().and_domain();
    let (cntr, other) = (file.cntr(domain), file.cntr(domain));
    let add = |value| file.cntr_modify(cntr, abi::KFABRIC_CNTR_ADD, value);
    add(1).expect("add");
    let mut fds = open(&file, cntr, MOST);
    is_full(&file, cntr);
    has_room(&file, other);
    // Descriptors that are readable wait for nothing, and can be armed at any time.
    add(1).expect("add");
    is_full(&file, cntr);
    let mut values = [0u8; 16];
    for fd in &fds {
        assert_eq!(rustix::io::read(fd, &mut values), Ok(16));
        assert_eq!(rustix::io::write(fd, &4u64.to_ne_bytes()), Ok(8));
    }
    is_full(&file, cntr);
    fds.pop();
    has_room(&file, cntr);
    fds.push(getwait(&file, cntr).expect("getwait"));
    is_full(&file, cntr);
    // All are due.
    add(2).expect("add");
    for fd in &fds {
        assert_eq!(rustix::io::read(fd, &mut values), Ok(16));
    }
    drop(fds);
    has_room(&file, cntr);
    file.close_all(&[cntr, other, domain, fabric]);
}

fn a_thread_in_a_wait_is_a_waiter() {
    let (file, fabric, domain) = File::open().and_domain();
    let cntr = file.cntr(domain);
    let add = |value| file.cntr_modify(cntr, abi::KFABRIC_CNTR_ADD, value);
    add(1).expect("add");
    let fds = open(&file, cntr, MOST - 1);
    let (result, _) = while_waiting(
        || cntr_wait(&file, cntr, 2, in_ms(60_000)),
        |_| {
            is_full(&file, cntr);
            add(1).expect("add");
        },
    );
    assert_eq!(result, Ok(()));
    has_room(&file, cntr);
    drop(fds);
    file.close_all(&[cntr, domain, fabric]);
}

/// Bytes of the stack of a thread that sleeps.
const STACK: usize = 64 << 10;

/// More threads than may sleep call `wait` with a deadline; so many of them are refused at once.
/// Then `wake` wakes the others.
fn sleep_in(wait: impl Fn(u64) -> Result<(), Errno> + Sync, wake: impl Fn()) {
    const MORE: usize = 3;
    let (refused, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..MOST + MORE {
            std::thread::Builder::new()
                .stack_size(STACK)
                .spawn_scoped(scope, || {
                    if wait(in_ms(200_000)) == Err(Errno::ENOSPC) {
                        refused.fetch_add(1, SeqCst);
                    }
                    ended.fetch_add(1, SeqCst);
                })
                .expect("thread");
        }
        // Each of the refused calls has found the others asleep.
        let all_sleep = || refused.load(SeqCst) == MORE;
        assert!(within(Duration::from_secs(60), all_sleep), "{refused:?}");
        std::thread::sleep(Duration::from_millis(100));
        // A call that does not sleep succeeds.
        assert_eq!(wait(0), Err(Errno::EAGAIN));
        assert_eq!(wait(abi::KFABRIC_FOREVER), Err(Errno::ENOSPC));
        assert_eq!((refused.load(SeqCst), ended.load(SeqCst)), (MORE, MORE));
        wake();
    });
    assert_eq!(ended.load(SeqCst), MOST + MORE);
    assert_eq!(refused.load(SeqCst), MORE);
}

fn a_queue_has_so_many_sleepers() {
    let (file, fabric, domain) = File::open().and_domain();
    let (cq, eq) = (file.cq(domain), file.eq(fabric));
    let read = |deadline| {
        let arg = arg!(kfabric_cq_read: cq, deadline);
        file.call(arg).map(drop)
    };
    let signal = || {
        let arg = arg!(kfabric_cq_signal: cq);
        file.call(arg).map(drop).expect("signal");
    };
    sleep_in(read, signal);
    // There is room again.
    assert_eq!(read(in_ms(20)), Err(Errno::EAGAIN));
    let read = |deadline, flags| {
        let arg = arg!(kfabric_eq_read: eq, deadline, flags);
        file.call(arg).map(drop)
    };
    let write = || {
        let arg = arg!(kfabric_eq_write: eq, event: abi::KFI_NOTIFY);
        file.call(arg).map(drop).expect("write");
    };
    sleep_in(|deadline| read(deadline, abi::KFI_PEEK), write);
    assert_eq!(read(0, 0), Ok(()));
    assert_eq!(read(in_ms(20), 0), Err(Errno::ETIMEDOUT));
    file.close_all(&[cq, eq, domain, fabric]);
}
