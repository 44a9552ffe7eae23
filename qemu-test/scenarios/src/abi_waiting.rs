// SPDX-License-Identifier: GPL-2.0
//! Counters, wait sets, poll sets: every refusal; and the effects of deadlines and signals on
//! waiters.

use crate::{
    abi_objects::getwait,
    abi_threads::{interrupt, while_waiting},
    harness::tests,
    raw::{File, PAGE, Pages, addr_of_mut, arg, in_ms, now, refused},
    threads::handle_signals,
};
use kfi::{Errno, abi};
use rustix::fs::{OFlags, fcntl_setfl};
use std::time::Duration;

tests![
    invalid_changes_of_a_counter_are_refused,
    a_threshold_that_is_not_reached_times_out,
    an_error_ends_the_wait_and_returns_the_values,
    a_counter_without_a_wait_object_refuses_waits,
    descriptors_of_counters_check_their_arguments,
    descriptors_of_wait_sets_check_their_arguments,
    descriptors_of_queues_cannot_be_read_or_written,
    a_wait_set_without_a_signal_times_out,
    only_queues_and_counters_join_poll_sets,
    a_full_poll_set_refuses_members => 120,
    a_poll_with_unwritable_results_fails,
    a_signal_interrupts_every_wait,
    a_restarted_wait_continues,
    a_restarted_wait_keeps_its_deadline,
    deadlines_in_the_far_future_do_not_end_a_wait,
];

/// Waits; returns the values, too.
pub(crate) fn cntr_wait(
    file: &File,
    cntr: u32,
    threshold: u64,
    deadline: u64,
) -> (Result<(), Errno>, (u64, u64)) {
    let mut arg = arg!(kfabric_cntr_wait: cntr, threshold, deadline, value: 99, err: 99);
    let result = file.call_mut(&mut arg);
    (result, (arg.value, arg.err))
}

fn invalid_changes_of_a_counter_are_refused() {
    let (file, fabric, domain) = File::open().and_domain();
    let cntr = file.make(arg!(kfabric_cntr_open: domain, max_value: 100));
    for what in [4, 5, u32::MAX] {
        refused(file.cntr_modify(cntr, what, 1), Errno::EINVAL);
    }
    for what in [abi::KFABRIC_CNTR_SET, abi::KFABRIC_CNTR_SETERR] {
        for value in [101, u64::MAX] {
            refused(file.cntr_modify(cntr, what, value), Errno::EINVAL);
        }
    }
    assert_eq!(file.cntr_read(cntr), Ok((0, 0)));
    for what in [abi::KFABRIC_CNTR_SET, abi::KFABRIC_CNTR_SETERR] {
        file.cntr_modify(cntr, what, 100).expect("the largest");
    }
    assert_eq!(file.cntr_read(cntr), Ok((100, 100)));
    file.close_all(&[cntr, domain, fabric]);
}

fn a_threshold_that_is_not_reached_times_out() {
    let (file, fabric, domain) = File::open().and_domain();
    let cntr = file.cntr(domain);
    file.cntr_add(cntr, 3);
    file.cntr_modify(cntr, abi::KFABRIC_CNTR_ADDERR, 2)
        .expect("add");
    for wait in [0, 1, in_ms(0), in_ms(50)] {
        let (result, values) = cntr_wait(&file, cntr, 4, wait);
        refused(result, Errno::ETIMEDOUT);
        assert_eq!(values, (3, 2), "told, though time ran out");
        assert!(now() >= wait);
    }
    for wait in [0, 1, in_ms(50), abi::KFABRIC_FOREVER] {
        assert_eq!(cntr_wait(&file, cntr, 3, wait), (Ok(()), (3, 2)));
    }
    assert_eq!(cntr_wait(&file, cntr, 0, 0).0, Ok(()));
    assert_eq!(file.cntr_read(cntr), Ok((3, 2)));
    file.close_all(&[cntr, domain, fabric]);
}

fn an_error_ends_the_wait_and_returns_the_values() {
    let (file, fabric, domain) = File::open().and_domain();
    let cntr = file.cntr(domain);
    let (result, values) = while_waiting(
        || cntr_wait(&file, cntr, 5, in_ms(20_000)),
        |_| {
            file.cntr_modify(cntr, abi::KFABRIC_CNTR_ADDERR, 7)
                .expect("adderr")
        },
    );
    refused(result, Errno::KFI_EAVAIL);
    assert_eq!(values, (0, 7));
    file.close_all(&[cntr, domain, fabric]);
}

fn a_counter_without_a_wait_object_refuses_waits() {
    let (file, fabric, domain) = File::open().and_domain();
    let cntr = file.make(arg!(kfabric_cntr_open: domain));
    for wait in [in_ms(1000), abi::KFABRIC_FOREVER] {
        refused(cntr_wait(&file, cntr, 1, wait).0, Errno::EINVAL);
    }
    // Deadline 0 and a deadline that has passed poll.
    for wait in [0, 1, in_ms(0)] {
        refused(cntr_wait(&file, cntr, 1, wait).0, Errno::ETIMEDOUT);
    }
    file.cntr_add(cntr, 1);
    assert_eq!(cntr_wait(&file, cntr, 1, 0).0, Ok(()));
    // A wait for a value that is reached does not sleep, but it counts as a wait.
    refused(cntr_wait(&file, cntr, 1, in_ms(1000)).0, Errno::EINVAL);
    for wait_obj in [abi::KFI_WAIT_UNSPEC, abi::KFI_WAIT_QUEUE] {
        let sleeps = file.make(arg!(kfabric_cntr_open: domain, wait_obj));
        let (result, _) = while_waiting(
            || cntr_wait(&file, sleeps, 1, in_ms(20_000)),
            |_| {
                refused(file.close(sleeps), Errno::EBUSY);
                let add = abi::KFABRIC_CNTR_ADD;
                file.cntr_modify(sleeps, add, 1).expect("add");
            },
        );
        assert_eq!(result, Ok(()));
        file.close_all(&[sleeps]);
    }
    file.close_all(&[cntr, domain, fabric]);
}

/// The error of a result of rustix.
fn io<T: std::fmt::Debug>(result: rustix::io::Result<T>) -> Result<T, i32> {
    result.map_err(|e| e.raw_os_error())
}

fn descriptors_of_counters_check_their_arguments() {
    let (file, fabric, domain) = File::open().and_domain();
    let cntr = file.cntr(domain);
    let fd = getwait(&file, cntr).expect("getwait");
    fcntl_setfl(&fd, OFlags::NONBLOCK).expect("fcntl");
    let mut values = [0u8; 32];
    assert_eq!(io(rustix::io::read(&fd, &mut values)), Err(11));
    file.cntr_add(cntr, 1);
    for room in [0, 1, 8, 15] {
        let read = io(rustix::io::read(&fd, &mut values[..room]));
        assert_eq!(read, Err(22), "{room}");
    }
    for len in [0, 4, 7, 9, 16] {
        let written = io(rustix::io::write(&fd, &[0; 16][..len]));
        assert_eq!(written, Err(22), "{len}");
    }
    // Values that cannot be copied are not taken, and no more than the values are written.
    let pages = Pages::new(1);
    pages.write(0, &[0xee; 32]);
    assert_eq!(io(read_to(&fd, pages.before_hole(8), 16)), Err(14));
    assert_eq!(io(read_to(&fd, pages.addr(), 32)), Ok(16));
    assert_eq!(pages.read(0, 8), 1u64.to_ne_bytes());
    assert_eq!(pages.read(16, 16), [0xee; 16]);
    assert_eq!(io(rustix::io::read(&fd, &mut values)), Err(11));
    drop(fd);
    file.close_all(&[cntr, domain, fabric]);
}

/// read(2) to any address.
fn read_to(fd: &std::os::fd::OwnedFd, addr: u64, len: usize) -> rustix::io::Result<usize> {
    use std::os::fd::AsRawFd;
    #[allow(unsafe_code, reason = "an address that may be none")]
    // SAFETY: the kernel writes to memory of the test, or gives EFAULT.
    let read = unsafe { libc::read(fd.as_raw_fd(), addr as *mut libc::c_void, len) };
    usize::try_from(read).map_err(|_| {
        let errno = std::io::Error::last_os_error().raw_os_error();
        rustix::io::Errno::from_raw_os_error(errno.expect("errno"))
    })
}

fn descriptors_of_wait_sets_check_their_arguments() {
    let (file, fabric, domain) = File::open().and_domain();
    let wait_set = file.wait_set(fabric);
    let cntr = file.make(arg!(kfabric_cntr_open: domain, wait_obj: abi::KFI_WAIT_SET, wait_set));
    let fd = getwait(&file, wait_set).expect("getwait");
    fcntl_setfl(&fd, OFlags::NONBLOCK).expect("fcntl");
    let mut one = [0u8; 16];
    assert_eq!(io(rustix::io::read(&fd, &mut one)), Err(11));
    file.cntr_add(cntr, 1);
    for room in [0, 7] {
        assert_eq!(
            io(rustix::io::read(&fd, &mut one[..room])),
            Err(22),
            "{room}"
        );
    }
    let pages = Pages::new(1);
    assert_eq!(io(read_to(&fd, pages.before_hole(4), 8)), Err(14));
    assert_eq!(io(rustix::io::read(&fd, &mut one)), Ok(8));
    assert_eq!(one[..8], 1u64.to_ne_bytes());
    assert_eq!(io(rustix::io::read(&fd, &mut one)), Err(11));
    assert_eq!(
        io(rustix::io::write(&fd, &one[..8])),
        Err(22),
        "nothing to write"
    );
    drop(fd);
    file.close_all(&[cntr, wait_set, domain, fabric]);
}

fn descriptors_of_queues_cannot_be_read_or_written() {
    let (file, fabric, domain) = File::open().and_domain();
    for queue in [file.cq(domain), file.eq(fabric)] {
        let fd = getwait(&file, queue).expect("getwait");
        let mut some = [0u8; 64];
        assert_eq!(
            io(rustix::io::read(&fd, &mut some)),
            Err(22),
            "nothing to read"
        );
        assert_eq!(
            io(rustix::io::write(&fd, &some)),
            Err(22),
            "nothing to write"
        );
        drop(fd);
        file.close_all(&[queue]);
    }
    file.close_all(&[domain, fabric]);
}

fn a_wait_set_without_a_signal_times_out() {
    let file = File::open();
    let fabric = file.fabric();
    let wait_set = file.wait_set(fabric);
    for deadline in [0, 1, in_ms(0), in_ms(50)] {
        let arg = arg!(kfabric_wait: wait_set, deadline);
        refused(file.call(arg), Errno::ETIMEDOUT);
        assert!(now() >= deadline);
    }
    file.close_all(&[wait_set, fabric]);
}

fn poll_change(file: &File, poll: u32, handle: u32, remove: u32) -> Result<(), Errno> {
    file.call(arg!(kfabric_poll_change: poll, handle, remove))
        .map(|_| ())
}

fn only_queues_and_counters_join_poll_sets() {
    let (file, fabric, domain) = File::open().and_domain();
    let domain2 = file.domain(fabric);
    let (poll, other) = (file.poll_set(domain), file.poll_set(domain2));
    for member in [file.cq(domain), file.cntr(domain)] {
        for remove in [2, u32::MAX] {
            refused(poll_change(&file, poll, member, remove), Errno::EINVAL);
        }
        for remove in [0, 1] {
            refused(poll_change(&file, other, member, remove), Errno::EINVAL);
        }
        refused(poll_change(&file, poll, member, 1), Errno::ENOENT);
        poll_change(&file, poll, member, 0).expect("add");
        refused(poll_change(&file, poll, member, 0), Errno::EEXIST);
        poll_change(&file, poll, member, 1).expect("remove");
        refused(poll_change(&file, poll, member, 1), Errno::ENOENT);
        file.close_all(&[member]);
    }
    for wrong in [file.av(domain), file.eq(fabric), poll] {
        for remove in [0, 1] {
            refused(poll_change(&file, poll, wrong, remove), Errno::EINVAL);
        }
        if wrong != poll {
            file.close_all(&[wrong]);
        }
    }
    let mut contexts = [0u64; 2];
    let arg = arg!(kfabric_poll: poll, contexts: addr_of_mut(&mut contexts));
    refused(file.call(arg), Errno::EINVAL);
    // An empty set reports no member.
    let reported = file
        .call(abi::kfabric_poll { count: 2, ..arg })
        .expect("poll");
    assert_eq!(reported.count, 0);
    file.close_all(&[poll, other, domain, domain2, fabric]);
}

fn a_full_poll_set_refuses_members() {
    const MOST: usize = 1024;
    let (file, fabric, domain) = File::open().and_domain();
    let poll = file.poll_set(domain);
    let members: Vec<u32> = (0..MOST).map(|_| file.cntr(domain)).collect();
    for member in &members {
        poll_change(&file, poll, *member, 0).expect("add");
    }
    let more = file.cntr(domain);
    refused(poll_change(&file, poll, more, 0), Errno::ENOSPC);
    // The check for a duplicate comes before the check for room.
    refused(poll_change(&file, poll, members[0], 0), Errno::EEXIST);
    poll_change(&file, poll, members[5], 1).expect("remove");
    poll_change(&file, poll, more, 0).expect("there is room again");
    refused(poll_change(&file, poll, members[5], 0), Errno::ENOSPC);
    file.close_all(&[poll, more]);
    file.close_all(&members);
    file.close_all(&[domain, fabric]);
}

fn a_poll_with_unwritable_results_fails() {
    let (file, fabric, domain) = File::open().and_domain();
    let poll = file.poll_set(domain);
    let cntrs: Vec<u32> = (1..=3)
        .map(|context| file.make(arg!(kfabric_cntr_open: domain, context)))
        .collect();
    for cntr in &cntrs {
        poll_change(&file, poll, *cntr, 0).expect("add");
        file.cntr_add(*cntr, 1);
    }
    let pages = Pages::new(1);
    let arg = |room| arg!(kfabric_poll: poll, contexts: pages.before_hole(room), count: 3);
    refused(file.call(arg(4)), Errno::EFAULT);
    // Room for one of them: the next call reports the others.
    assert_eq!(file.call(arg(12)).expect("poll").count, 1);
    assert_eq!(pages.read(PAGE - 12, 8), 1u64.to_ne_bytes());
    assert_eq!(file.call(arg(24)).expect("poll").count, 2);
    assert_eq!(file.call(arg(24)).expect("poll").count, 0);
    file.close_all(&[poll]);
    file.close_all(&cntrs);
    file.close_all(&[domain, fabric]);
}

/// All objects on which a thread can wait in a call.
struct Waits {
    file: File,
    eq: u32,
    cq: u32,
    cntr: u32,
    wait_set: u32,
    member: u32,
}

type Wait = fn(&Waits, u64) -> Result<(), Errno>;

impl Waits {
    const ALL: [(&'static str, Wait); 4] = [
        ("CQ_READ", |w, deadline| {
            w.file.cq_wait(w.cq, deadline).map(|_| ())
        }),
        ("EQ_READ", |w, deadline| {
            let mut data = [0u64; 2];
            w.file
                .call(arg!(kfabric_eq_read:
                    eq: w.eq, deadline, buf: addr_of_mut(&mut data), len: 16
                ))
                .map(|_| ())
        }),
        ("CNTR_WAIT", |w, deadline| {
            cntr_wait(&w.file, w.cntr, 1, deadline).0
        }),
        ("WAIT", |w, deadline| {
            w.file
                .call(arg!(kfabric_wait: wait_set: w.wait_set, deadline))
                .map(|_| ())
        }),
    ];

    fn new() -> Self {
        let (file, fabric, domain) = File::open().and_domain();
        let wait_set = file.wait_set(fabric);
        let member = file.make(arg!(kfabric_cntr_open:
            domain, wait_obj: abi::KFI_WAIT_SET, wait_set
        ));
        Self {
            eq: file.eq(fabric),
            cq: file.cq(domain),
            cntr: file.cntr(domain),
            wait_set,
            member,
            file,
        }
    }

    /// Ends every wait, the one on the CQ with `EAGAIN`.
    fn release(&self) {
        let data = 0u64;
        self.file
            .call(arg!(kfabric_eq_write: eq: self.eq, buf: crate::raw::addr_of(&data), len: 8))
            .expect("eq write");
        self.file
            .call(arg!(kfabric_cq_signal: cq: self.cq))
            .expect("cq signal");
        for cntr in [self.cntr, self.member] {
            self.file.cntr_add(cntr, 1);
        }
    }
}

fn a_signal_interrupts_every_wait() {
    handle_signals(false);
    let waits = Waits::new();
    for (name, wait) in Waits::ALL {
        for deadline in [in_ms(30_000), abi::KFABRIC_FOREVER] {
            let result = while_waiting(|| wait(&waits, deadline), interrupt);
            assert_eq!(result, Err(Errno::EINTR), "{name}");
        }
    }
    // So are reads of descriptors that wait.
    for object in [waits.cntr, waits.wait_set] {
        let fd = getwait(&waits.file, object).expect("getwait");
        let mut data = [0u8; 16];
        let result = while_waiting(|| io(rustix::io::read(&fd, &mut data)), interrupt);
        assert_eq!(result, Err(4));
    }
    // No waiter is left on any object.
    for object in [waits.eq, waits.cq, waits.cntr, waits.member, waits.wait_set] {
        waits.file.close_all(&[object]);
    }
}

fn a_restarted_wait_continues() {
    handle_signals(true);
    for (name, wait) in Waits::ALL {
        for deadline in [in_ms(30_000), abi::KFABRIC_FOREVER] {
            let waits = Waits::new();
            let result = while_waiting(
                || wait(&waits, deadline),
                |tid| {
                    for _ in 0..3 {
                        interrupt(tid);
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    waits.release();
                },
            );
            let expected = match name {
                "CQ_READ" => Err(Errno::EAGAIN),
                _ => Ok(()),
            };
            assert_eq!(result, expected, "{name}");
            assert!(now() < deadline, "{name}: not before the deadline");
        }
    }
    let waits = Waits::new();
    let fd = getwait(&waits.file, waits.cntr).expect("getwait");
    let mut data = [0u8; 16];
    let result = while_waiting(
        || io(rustix::io::read(&fd, &mut data)),
        |tid| {
            interrupt(tid);
            std::thread::sleep(Duration::from_millis(5));
            waits.release();
        },
    );
    assert_eq!(result, Ok(16));
}

fn a_restarted_wait_keeps_its_deadline() {
    handle_signals(true);
    let waits = Waits::new();
    for (name, wait) in Waits::ALL {
        let deadline = in_ms(300);
        let result = while_waiting(
            || {
                let result = wait(&waits, deadline);
                (result, now())
            },
            |tid| {
                while now() < deadline - 100_000_000 {
                    interrupt(tid);
                    std::thread::sleep(Duration::from_millis(20));
                }
            },
        );
        let (result, ended) = result;
        let expected = match name {
            "CQ_READ" => Errno::EAGAIN,
            _ => Errno::ETIMEDOUT,
        };
        assert_eq!(result, Err(expected), "{name}");
        assert!(ended >= deadline, "{name}: too early");
        assert!(ended < deadline + 5_000_000_000, "{name}: too late");
    }
}

fn deadlines_in_the_far_future_do_not_end_a_wait() {
    for deadline in [i64::MAX as u64, 1 << 63, u64::MAX - 1] {
        for (name, wait) in Waits::ALL {
            let waits = Waits::new();
            let result = while_waiting(|| wait(&waits, deadline), |_| waits.release());
            let expected = match name {
                "CQ_READ" => Err(Errno::EAGAIN),
                _ => Ok(()),
            };
            assert_eq!(result, expected, "{name} until {deadline:#x}");
        }
    }
}
