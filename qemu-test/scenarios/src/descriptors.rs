// SPDX-License-Identifier: GPL-2.0
//! Wait objects as file descriptors: select, poll, epoll, io_uring, read and write; and the threads
//! that are woken.
//!
//! Threads sleep without a deadline: poll(2) and epoll_wait(2) check once more at their deadline,
//! so a lost wake-up could be taken for a late one.

use crate::{
    abi_objects::getwait,
    alone::Alone,
    harness::tests,
    host::{SOON, domain, errno, until},
    raw::{File, arg},
    threads::{Sleeper, cloned, handle_signals},
    uring::Uring,
};
use kfi::{Cntr, CntrFd, Deadline, Entry, Errno, EventKind, Values, Wait, abi};
use rustix::{
    event::{PollFd, PollFlags, Timespec, epoll, poll},
    io,
};
use std::{
    os::fd::{AsFd, AsRawFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

tests![
    a_counter_is_readable_after_each_change,
    a_counter_is_readable_at_its_threshold,
    an_error_is_a_change_and_ends_a_wait_for_a_threshold,
    a_change_stays_until_it_is_read,
    each_descriptor_has_a_threshold_of_its_own,
    pollers_for_a_higher_threshold_are_not_woken,
    reads_wait_or_return_eagain,
    epoll_reports_ready_descriptors,
    io_uring_gets_its_completion_at_the_event,
    a_cq_is_readable_while_it_is_not_empty,
    an_eq_is_readable_while_it_is_not_empty,
    every_wait_object_has_a_descriptor,
    the_descriptor_of_a_member_is_that_of_its_set,
    descriptors_hang_up_when_their_device_is_closed,
    a_readable_descriptor_hangs_up,
];

const NEVER: Duration = Duration::ZERO;

/// A counter with a wait object.
pub(crate) fn counter() -> Cntr {
    let (_, domain) = domain();
    domain.cntr().wait(Wait::Queue).open().expect("cntr")
}

#[track_caller]
pub(crate) fn readable(fd: &CntrFd) -> bool {
    fd.wait(NEVER).expect("poll")
}

fn values(value: u64, err: u64) -> Values {
    Values { value, err }
}

/// The events that poll(2) returns for a descriptor, at once.
fn events(fd: &impl AsFd) -> PollFlags {
    let mut fds = [PollFd::new(fd, PollFlags::IN | PollFlags::OUT)];
    poll(&mut fds, Some(&Timespec::default())).expect("poll");
    fds[0].revents()
}

/// Waits until poll(2) returns an event of a descriptor.
fn wait_events(fd: &impl AsFd) -> PollFlags {
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    assert_eq!(poll(&mut fds, None).expect("poll"), 1);
    fds[0].revents()
}

/// Whether select(2) reports, at once, that a descriptor is readable.
#[allow(unsafe_code, reason = "select(2) and its sets")]
fn selected(fd: &impl AsFd) -> bool {
    let fd = fd.as_fd().as_raw_fd();
    assert!(fd < libc::FD_SETSIZE as i32);
    let mut none = libc::timeval {
        tv_sec: 0,
        tv_usec: 0,
    };
    // SAFETY: zeros are an empty set. The descriptor is open and has room in the set; the set and
    // the time are valid, and the other sets may be null.
    unsafe {
        let mut set: libc::fd_set = std::mem::zeroed();
        libc::FD_SET(fd, &raw mut set);
        let null = std::ptr::null_mut();
        let count = libc::select(fd + 1, &raw mut set, null, null, &raw mut none);
        let readable = libc::FD_ISSET(fd, &raw const set);
        assert_eq!(count, i32::from(readable), "select");
        readable
    }
}

fn a_counter_is_readable_after_each_change() {
    let cntr = counter();
    cntr.add(1).expect("add");
    let fd = cntr.wait_fd().expect("fd");
    assert!(!readable(&fd), "armed for the next change");
    // Several changes are one.
    cntr.add(2).expect("add");
    cntr.set(1).expect("set");
    assert!(readable(&fd));
    assert_eq!(fd.consume().expect("read"), values(1, 0));
    let changes: [(&dyn Fn() -> kfi::Result<()>, Values); 4] = [
        (&|| cntr.add(2), values(3, 0)),
        (&|| cntr.set(1), values(1, 0)),
        (&|| cntr.adderr(4), values(1, 4)),
        (&|| cntr.seterr(0), values(1, 0)),
    ];
    for (change, want) in changes {
        assert!(!readable(&fd));
        change().expect("change");
        assert!(readable(&fd), "{want:?}");
        assert_eq!(events(&fd), PollFlags::IN, "{want:?}");
        assert_eq!(fd.consume().expect("read"), want);
    }
    cntr.add(0).expect("add");
    assert!(!readable(&fd), "an add of nothing");
}

fn a_counter_is_readable_at_its_threshold() {
    let cntr = counter();
    let fd = cntr.wait_fd().expect("fd");
    fd.arm(5).expect("arm");
    cntr.add(4).expect("add");
    assert!(!readable(&fd));
    cntr.add(1).expect("add");
    assert!(readable(&fd));
    // Armed again, for a threshold that is reached already and for one that is not.
    fd.arm(5).expect("arm");
    assert!(readable(&fd));
    fd.arm(6).expect("arm");
    assert!(!readable(&fd));
    fd.arm(0).expect("arm");
    assert!(readable(&fd));
    fd.arm(u64::MAX).expect("arm");
    assert!(!readable(&fd));
    cntr.set(u64::MAX).expect("set");
    assert!(readable(&fd));
    assert_eq!(fd.consume().expect("read"), values(u64::MAX, 0));
    assert!(!readable(&fd));
}

fn an_error_is_a_change_and_ends_a_wait_for_a_threshold() {
    let cntr = counter();
    cntr.adderr(1).expect("adderr");
    let fd = cntr.wait_fd().expect("fd");
    fd.arm(100).expect("arm");
    assert!(!readable(&fd), "an error from before");
    cntr.adderr(1).expect("adderr");
    assert!(readable(&fd));
    assert_eq!(fd.consume().expect("read"), values(0, 2));
    // Undone before a thread looked.
    fd.arm(100).expect("arm");
    cntr.adderr(1).expect("adderr");
    cntr.seterr(2).expect("seterr");
    assert!(readable(&fd));
    assert_eq!(fd.consume().expect("read"), values(0, 2));
}

fn a_change_stays_until_it_is_read() {
    let cntr = counter();
    let fd = cntr.wait_fd().expect("fd");
    fd.arm(3).expect("arm");
    cntr.set(3).expect("set");
    cntr.set(0).expect("set");
    for _ in 0..2 {
        assert!(readable(&fd), "3 was reached");
    }
    assert_eq!(fd.consume().expect("read"), values(0, 0));
    assert!(!readable(&fd));
    // A change that is undone is a change.
    cntr.set(9).expect("set");
    cntr.set(0).expect("set");
    assert!(readable(&fd));
    assert_eq!(fd.consume().expect("read"), values(0, 0));
}

fn each_descriptor_has_a_threshold_of_its_own() {
    let cntr = counter();
    let fds: Vec<CntrFd> = (1..=20u64)
        .map(|threshold| {
            let fd = cntr.wait_fd().expect("fd");
            fd.arm(threshold).expect("arm");
            fd
        })
        .collect();
    for value in 1..=20usize {
        cntr.add(1).expect("add");
        let ready = fds.iter().filter(|fd| readable(fd)).count();
        assert_eq!(ready, value);
        assert!(fds[..value].iter().all(readable));
    }
    // Descriptors and threads in calls wait in one queue.
    let sleeper = Sleeper::asleep(cloned!(cntr; move || cntr.wait(30, SOON)));
    fds[0].arm(30).expect("arm");
    fds[1].arm(31).expect("arm");
    cntr.set(30).expect("set");
    sleeper.end().expect("wait");
    assert!(readable(&fds[0]) && !readable(&fds[1]));
}

fn pollers_for_a_higher_threshold_are_not_woken() {
    let cntr = counter();
    let fd = Arc::new(cntr.wait_fd().expect("fd"));
    fd.arm(1000).expect("arm");
    let poller = Sleeper::new(cloned!(fd; move || fd.wait(Deadline::FOREVER).expect("poll")));
    let asleep = || {
        let mut last = u64::MAX;
        until("a thread asleep in poll", || {
            std::thread::sleep(Duration::from_millis(20));
            std::mem::replace(&mut last, poller.sleeps()) == poller.sleeps()
        });
        last
    };
    let before = asleep();
    for _ in 0..999 {
        cntr.add(1).expect("add");
    }
    assert_eq!(poller.sleeps(), before, "it ran for nothing");
    cntr.add(1).expect("add");
    assert!(poller.end());
}

fn reads_wait_or_return_eagain() {
    let cntr = counter();
    let fd = Arc::new(cntr.wait_fd().expect("fd"));
    fd.set_nonblocking(true).expect("fcntl");
    assert_eq!(errno(fd.consume()), Some(Errno::EAGAIN));
    fd.set_nonblocking(false).expect("fcntl");
    fd.arm(5).expect("arm");
    let asleep = || Sleeper::asleep(cloned!(fd; move || fd.consume()));
    let reader = asleep();
    cntr.add(4).expect("add");
    assert!(!reader.is_finished());
    cntr.add(1).expect("add");
    assert_eq!(reader.end().expect("read"), values(5, 0));
    // Two readers, one change: one of them gets it.
    let (one, two) = (asleep(), asleep());
    cntr.add(1).expect("add");
    until("one reader done", || one.is_finished() || two.is_finished());
    std::thread::sleep(Duration::from_millis(20));
    assert!(!(one.is_finished() && two.is_finished()));
    cntr.add(1).expect("add");
    let mut both = [one.end(), two.end()].map(|result| result.expect("read").value);
    both.sort_unstable();
    assert_eq!(both, [6, 7]);
    // A signal of the system.
    handle_signals(false);
    let reader = asleep();
    reader.interrupt();
    assert_eq!(errno(reader.end()), Some(Errno::EINTR));
}

fn epoll_reports_ready_descriptors() {
    let alone = Alone::new();
    let cntr = counter();
    let (low, high) = (cntr.wait_fd().expect("fd"), cntr.wait_fd().expect("fd"));
    let cq = alone.cq.wait_fd().expect("fd");
    low.arm(2).expect("arm");
    high.arm(3).expect("arm");
    let set = epoll::create(epoll::CreateFlags::CLOEXEC).expect("epoll");
    let add = |fd: &dyn AsFd, data, flags| {
        let data = epoll::EventData::new_u64(data);
        epoll::add(&set, fd.as_fd(), data, epoll::EventFlags::IN | flags).expect("epoll_ctl");
    };
    add(&low, 1, epoll::EventFlags::empty());
    add(&high, 2, epoll::EventFlags::ET);
    add(&cq, 3, epoll::EventFlags::empty());
    let ready = || {
        let mut list = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; 8];
        let count = epoll::wait(&set, &mut list, Some(&Timespec::default())).expect("epoll");
        let mut ready: Vec<u64> = list[..count].iter().map(|event| event.data.u64()).collect();
        ready.sort_unstable();
        ready
    };
    assert!(ready().is_empty());
    cntr.add(1).expect("add");
    assert!(ready().is_empty());
    cntr.add(1).expect("add");
    assert_eq!(ready(), [1]);
    cntr.add(1).expect("add");
    alone.complete(1);
    assert_eq!(ready(), [1, 2, 3]);
    // Level-triggered: again. Edge-triggered: not before the next event.
    assert_eq!(ready(), [1, 3]);
    low.consume().expect("read");
    assert_eq!(alone.read(1), [1]);
    assert!(ready().is_empty());
    high.arm(4).expect("arm");
    cntr.add(1).expect("add");
    assert_eq!(ready(), [1, 2]);
    // A thread that sleeps in epoll_wait is woken.
    low.consume().expect("read");
    high.consume().expect("read");
    let set = Arc::new(set);
    let waiter = {
        let set = set.clone();
        Sleeper::new(move || {
            let mut list = [epoll::Event {
                flags: epoll::EventFlags::empty(),
                data: epoll::EventData::new_u64(0),
            }];
            let count = epoll::wait(&*set, &mut list, None).expect("epoll");
            (count, list[0].data.u64())
        })
    };
    std::thread::sleep(Duration::from_millis(20));
    alone.fail(2);
    assert_eq!(waiter.end(), (1, 3));
}

fn io_uring_gets_its_completion_at_the_event() {
    let uring = Uring::new();
    let alone = Alone::new();
    let cntr = counter();
    let (low, high) = (cntr.wait_fd().expect("fd"), cntr.wait_fd().expect("fd"));
    let cq = alone.cq.wait_fd().expect("fd");
    low.arm(2).expect("arm");
    high.arm(100).expect("arm");
    uring.poll_add(&low, 1);
    uring.poll_add(&high, 2);
    uring.poll_add(&cq, 3);
    cntr.add(1).expect("add");
    assert!(uring.completions().is_empty());
    cntr.add(1).expect("add");
    let (who, events) = uring.next();
    assert_eq!((who, events & 1), (1, 1));
    alone.complete(1);
    let (who, events) = uring.next();
    assert_eq!((who, events & 1), (3, 1));
    assert!(uring.completions().is_empty());
    // A descriptor that is readable already is reported at once.
    uring.poll_add(&cq, 4);
    assert_eq!(uring.next().0, 4);
    cntr.set(100).expect("set");
    assert_eq!(uring.next().0, 2);
    // A waiting request does not prevent that everything is closed.
    assert_eq!(alone.read(1), [1]);
    uring.poll_add(&cq, 5);
    drop(cq);
    drop(alone);
}

fn a_cq_is_readable_while_it_is_not_empty() {
    let alone = Alone::new();
    let (one, two) = (
        alone.cq.wait_fd().expect("fd"),
        alone.cq.wait_fd().expect("fd"),
    );
    let readable = |want: bool| {
        for fd in [&one, &two] {
            assert_eq!(
                events(fd),
                if want {
                    PollFlags::IN
                } else {
                    PollFlags::empty()
                }
            );
            assert_eq!(selected(fd), want);
        }
    };
    readable(false);
    alone.complete_all(1..3);
    readable(true);
    assert_eq!(alone.read(1), [1]);
    readable(true);
    assert_eq!(alone.read(1), [2]);
    readable(false);
    alone.fail(1);
    readable(true);
    alone.read_error();
    readable(false);
    // Read through the mapped ring.
    let mut ring = alone.cq.ring().expect("ring");
    alone.complete(3);
    readable(true);
    assert_eq!(ring.read(&mut [Entry::default()]).expect("read"), 1);
    readable(false);
    // Silent successes make nothing to read.
    alone
        .ep
        .inject_write(alone.me, b"", alone.remote())
        .expect("write");
    readable(false);
    let poller = Sleeper::new(move || one.wait(Deadline::FOREVER).expect("poll"));
    std::thread::sleep(Duration::from_millis(20));
    alone.complete(4);
    assert!(poller.end());
}

fn an_eq_is_readable_while_it_is_not_empty() {
    let (fabric, _domain) = domain();
    let eq = fabric.eq().wait(Wait::Queue).writable().open().expect("eq");
    let fd = eq.wait_fd().expect("fd");
    assert_eq!(events(&fd), PollFlags::empty());
    let poller = {
        let fd = eq.wait_fd().expect("fd");
        Sleeper::new(move || fd.wait(Deadline::FOREVER).expect("poll"))
    };
    std::thread::sleep(Duration::from_millis(20));
    eq.write(EventKind::Notify, b"x").expect("write");
    assert!(poller.end());
    assert_eq!(events(&fd), PollFlags::IN);
    eq.peek(NEVER).expect("peek").expect("event");
    assert_eq!(events(&fd), PollFlags::IN);
    eq.read(NEVER).expect("read").expect("event");
    assert_eq!(events(&fd), PollFlags::empty());
}

/// Objects that have none, and wait sets: `abi_objects::all_wait_objects_but_none_have_descriptors`.
fn every_wait_object_has_a_descriptor() {
    let (_, domain) = domain();
    for wait in [Wait::Unspec, Wait::Queue] {
        let cntr = domain.cntr().wait(wait.clone()).open().expect("cntr");
        let fd = cntr.wait_fd().expect("fd");
        assert!(!readable(&fd));
        cntr.add(1).expect("add");
        assert!(readable(&fd));
        // The descriptor of a CQ wakes a thread.
        let alone = Alone::with_cq(|cq| cq.wait(wait));
        let fd = alone.cq.wait_fd().expect("fd");
        let poller = Sleeper::new(move || fd.wait(Deadline::FOREVER).expect("poll"));
        std::thread::sleep(Duration::from_millis(20));
        alone.complete(1);
        assert!(poller.end());
    }
}

/// KFI_GETWAIT of an object in a wait set is the descriptor of the set.
fn the_descriptor_of_a_member_is_that_of_its_set() {
    let (file, fabric, domain) = File::open().and_domain();
    let wait_set = file.wait_set(fabric);
    let members @ [eq, cq, cntr] =
        file.waitable_objects(fabric, domain, abi::KFI_WAIT_SET, wait_set);
    for member in members {
        let fd = getwait(&file, member).expect("getwait");
        assert_eq!(events(&fd), PollFlags::empty());
        file.cntr_add(cntr, 1);
        assert_eq!(events(&fd), PollFlags::IN);
        // One signal for the set, which one read takes.
        let mut one = [0; 8];
        assert_eq!(rustix::io::read(&fd, &mut one).expect("read"), 8);
        assert_eq!(u64::from_ne_bytes(one), 1);
        assert_eq!(events(&fd), PollFlags::empty());
    }
    file.close_all(&[eq, cq, cntr, wait_set, domain, fabric]);
}

fn descriptors_hang_up_when_their_device_is_closed() {
    let (file, fabric, domain) = File::open().and_domain();
    let make: [&dyn Fn() -> u32; 4] = [
        &|| file.cntr(domain),
        &|| file.cq(domain),
        &|| file.eq(fabric),
        &|| file.wait_set(fabric),
    ];
    let fd_of = |handle| getwait(&file, handle).expect("getwait");
    // Of each kind: one that is polled, and one that is polled later.
    let fds: Vec<OwnedFd> = make.iter().map(|make| fd_of(make())).collect();
    let pollers: Vec<_> = make
        .iter()
        .map(|make| {
            let fd = fd_of(make());
            Sleeper::new(move || wait_events(&fd))
        })
        .collect();
    // Those that can be read: threads asleep in read(2).
    let readers: Vec<_> = [0, 3]
        .map(|kind: usize| {
            let fd = fd_of(make[kind]());
            Sleeper::asleep(move || io::read(&fd, &mut [0; 16]))
        })
        .into();
    std::thread::sleep(Duration::from_millis(20));
    assert!(fds.iter().all(|fd| events(fd).is_empty()));
    drop(file);
    let gone = PollFlags::ERR | PollFlags::HUP;
    for poller in pollers {
        assert_eq!(poller.end(), gone);
    }
    for reader in readers {
        assert_eq!(reader.end(), Err(io::Errno::BADF));
    }
    for fd in &fds {
        assert_eq!(events(fd), gone);
    }
    for fd in [&fds[0], &fds[3]] {
        assert_eq!(io::read(fd, &mut [0; 16]), Err(io::Errno::BADF));
    }
    assert_eq!(io::write(&fds[0], &[0; 8]), Err(io::Errno::BADF));
}

/// A task that waits only for the end of its device is woken, also if the descriptor has been
/// readable before.
fn a_readable_descriptor_hangs_up() {
    let (file, _, domain) = File::open().and_domain();
    let cntr = file.cntr(domain);
    let fd_of = |handle| getwait(&file, handle).expect("getwait");
    let (fd, edge) = (fd_of(cntr), fd_of(cntr));
    file.call(arg!(kfabric_cntr_modify: cntr, what: abi::KFABRIC_CNTR_ADD, value: 1))
        .expect("add");
    assert_eq!(events(&fd), PollFlags::IN);
    let hangs_up = Sleeper::asleep(move || {
        let mut fds = [PollFd::new(&fd, PollFlags::empty())];
        assert_eq!(poll(&mut fds, None).expect("poll"), 1);
        fds[0].revents()
    });
    // The edge was taken, and the counter is not read.
    let set = epoll::create(epoll::CreateFlags::CLOEXEC).expect("epoll");
    let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(&set, &edge, epoll::EventData::new_u64(1), flags).expect("epoll_ctl");
    assert_eq!(next_event(&set), epoll::EventFlags::IN);
    let has_edge = Sleeper::asleep(move || next_event(&set));
    drop(file);
    assert_eq!(hangs_up.end(), PollFlags::ERR | PollFlags::HUP);
    let gone = epoll::EventFlags::ERR | epoll::EventFlags::HUP;
    assert!(has_edge.end().contains(gone));
    drop(edge);
}

/// Waits for an event of an epoll instance.
fn next_event(set: &impl AsFd) -> epoll::EventFlags {
    let mut list = [epoll::Event {
        flags: epoll::EventFlags::empty(),
        data: epoll::EventData::new_u64(0),
    }];
    assert_eq!(epoll::wait(set, &mut list, None).expect("epoll"), 1);
    list[0].flags
}
