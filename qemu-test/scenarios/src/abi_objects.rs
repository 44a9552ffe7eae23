// SPDX-License-Identifier: GPL-2.0
//! Calls that all objects have: closing, handles, descriptors of wait objects.

use crate::{
    abi_bind::COUNTED,
    abi_budget::one_of_each,
    abi_threads::{as_user, while_waiting},
    abi_world::World,
    harness::tests,
    raw::{File, arg, in_ms, refused, text},
};
use kfi::{Errno, abi};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{collections::HashSet, os::fd::FromRawFd, os::fd::OwnedFd};

tests![
    objects_from_which_others_were_made_are_busy,
    objects_to_which_others_are_bound_are_busy,
    members_of_sets_are_busy,
    a_descriptor_keeps_its_object_busy,
    a_waiter_keeps_the_object_busy,
    a_second_close_is_refused,
    one_of_many_concurrent_closes_succeeds,
    the_number_of_handles_is_limited => 900,
    the_number_of_descriptors_is_limited,
    all_wait_objects_but_none_have_descriptors,
    a_domain_needs_a_link,
];

/// `object` is busy as long as `user` exists.
#[track_caller]
fn busy_until_closed(file: &File, object: u32, user: u32) {
    refused(file.close(object), Errno::EBUSY);
    // It still exists, and still refuses.
    refused(file.close(object), Errno::EBUSY);
    file.close_all(&[user, object]);
}

fn objects_from_which_others_were_made_are_busy() {
    type Maker = fn(&File, u32) -> u32;
    let file = File::open();
    let from_fabric: [Maker; 3] = [File::domain, File::eq, File::wait_set];
    for make in from_fabric {
        let fabric = file.fabric();
        let child = make(&file, fabric);
        refused(file.close(fabric), Errno::EBUSY);
        // The refused close had no effect: objects can still be made from it.
        let second = make(&file, fabric);
        file.close_all(&[child]);
        busy_until_closed(&file, fabric, second);
    }
    let page = crate::raw::Pages::new(1);
    let addr = page.addr();
    let from_domain: [Maker; 5] = [File::ep, File::av, File::cq, File::cntr, File::poll_set];
    let fabric = file.fabric();
    for make in from_domain {
        let domain = file.domain(fabric);
        let child = make(&file, domain);
        refused(file.close(domain), Errno::EBUSY);
        let second = make(&file, domain);
        file.close_all(&[child]);
        busy_until_closed(&file, domain, second);
    }
    let domain = file.domain(fabric);
    let mr = file.reg(domain, addr, 8, 1).expect("mr");
    busy_until_closed(&file, domain, mr);
    file.close_all(&[fabric]);
}

fn objects_to_which_others_are_bound_are_busy() {
    let file = File::open();
    let fabric = file.fabric();
    let bound = |user: u32, object: u32, flags: u64| {
        file.bind(user, object, flags).expect("bind");
        busy_until_closed(&file, object, user);
    };
    bound(file.domain(fabric), file.eq(fabric), 0);
    bound(file.domain(fabric), file.eq(fabric), abi::KFI_REG_MR);
    let domain = file.domain(fabric);
    bound(file.av(domain), file.eq(fabric), 0);
    bound(file.ep(domain), file.eq(fabric), 0);
    bound(file.ep(domain), file.av(domain), 0);
    for side in [abi::KFI_SEND, abi::KFI_RECV, abi::KFI_SEND | abi::KFI_RECV] {
        bound(file.ep(domain), file.cq(domain), side);
    }
    let page = crate::raw::Pages::new(1);
    for what in COUNTED {
        bound(file.ep(domain), file.cntr(domain), what);
    }
    for what in &COUNTED[4..] {
        let mr = file.reg(domain, page.addr(), 8, 1).expect("mr");
        bound(mr, file.cntr(domain), *what);
    }
    // Enabled, the endpoint holds all of them.
    let (eq, cntr) = (file.eq(fabric), file.cntr(domain));
    let (av, cq, rx_cq) = (file.av(domain), file.cq(domain), file.cq(domain));
    let ep = file.ep(domain);
    for (to, flags) in [
        (eq, 0),
        (av, 0),
        (cq, abi::KFI_SEND),
        (rx_cq, abi::KFI_RECV),
        (cntr, abi::KFI_SEND | abi::KFI_REMOTE_WRITE),
    ] {
        file.bind(ep, to, flags).expect("bind");
    }
    file.enable(ep).expect("enable");
    for object in [eq, av, cq, rx_cq, cntr] {
        refused(file.close(object), Errno::EBUSY);
    }
    file.close_all(&[ep, eq, av, cq, rx_cq, cntr, domain, fabric]);
}

fn members_of_sets_are_busy() {
    let (file, fabric, domain) = File::open().and_domain();
    for member in [file.cq(domain), file.cntr(domain)] {
        let poll = file.poll_set(domain);
        let change = |remove| {
            file.call(arg!(kfabric_poll_change: poll, handle: member, remove))
                .expect("poll_change");
        };
        change(0);
        refused(file.close(member), Errno::EBUSY);
        change(1);
        change(0);
        busy_until_closed(&file, member, poll);
    }
    let wait_obj = abi::KFI_WAIT_SET;
    for index in 0..3 {
        let wait_set = file.wait_set(fabric);
        let mut members = file.waitable_objects(fabric, domain, wait_obj, wait_set);
        // The last member keeps it busy.
        members.swap(index, 2);
        file.close_all(&members[..2]);
        busy_until_closed(&file, wait_set, members[2]);
    }
    // An object that could not be opened is no member.
    let wait_set = file.wait_set(fabric);
    let arg = arg!(kfabric_cntr_open: domain, events: 1, wait_obj, wait_set);
    refused(file.call(arg), Errno::EINVAL);
    file.close_all(&[wait_set, domain, fabric]);
}

/// A descriptor of `handle`.
pub(crate) fn getwait(file: &File, handle: u32) -> Result<OwnedFd, Errno> {
    let arg = file.call(arg!(kfabric_getwait: handle))?;
    // SAFETY: the call made it for us.
    #[allow(unsafe_code, reason = "a new descriptor")]
    Ok(unsafe { OwnedFd::from_raw_fd(arg.fd) })
}

fn a_descriptor_keeps_its_object_busy() {
    let (file, fabric, domain) = File::open().and_domain();
    for object in [
        file.cntr(domain),
        file.cq(domain),
        file.eq(fabric),
        file.wait_set(fabric),
    ] {
        let fd = getwait(&file, object).expect("getwait");
        let flags = rustix::io::fcntl_getfd(&fd).expect("fcntl");
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        let flags = rustix::fs::fcntl_getfl(&fd).expect("fcntl");
        assert!(!flags.contains(rustix::fs::OFlags::NONBLOCK));
        refused(file.close(object), Errno::EBUSY);
        let copy = fd.try_clone().expect("dup");
        drop(fd);
        refused(file.close(object), Errno::EBUSY);
        drop(copy);
        // close(2) releases a file after it has returned if another thread uses it just then.
        assert_eq!(file.close(object), Ok(()));
    }
    file.close_all(&[domain, fabric]);
}

fn a_waiter_keeps_the_object_busy() {
    let (file, fabric, domain) = File::open().and_domain();
    let mut buffer = [0u64; 8];
    let buf = crate::raw::addr_of_mut(&mut buffer);
    let cq = file.cq(domain);
    let result = while_waiting(
        || file.cq_wait(cq, abi::KFABRIC_FOREVER),
        |_| {
            refused(file.close(cq), Errno::EBUSY);
            file.call(arg!(kfabric_cq_signal: cq)).expect("signal");
        },
    );
    refused(result, Errno::EAGAIN);
    let eq = file.eq(fabric);
    while_waiting(
        || file.call(arg!(kfabric_eq_read: eq, deadline: abi::KFABRIC_FOREVER, buf, len: 8)),
        |_| {
            refused(file.close(eq), Errno::EBUSY);
            file.call(arg!(kfabric_eq_write: eq, buf, len: 8))
                .expect("eq write");
        },
    )
    .expect("eq read");
    let cntr = file.cntr(domain);
    while_waiting(
        || file.call(arg!(kfabric_cntr_wait: cntr, threshold: 1, deadline: abi::KFABRIC_FOREVER)),
        |_| {
            refused(file.close(cntr), Errno::EBUSY);
            file.cntr_add(cntr, 1);
        },
    )
    .expect("cntr wait");
    let wait_set = file.wait_set(fabric);
    let result = while_waiting(
        || file.call(arg!(kfabric_wait: wait_set, deadline: in_ms(400))),
        |_| refused(file.close(wait_set), Errno::EBUSY),
    );
    refused(result, Errno::ETIMEDOUT);
    file.close_all(&[cq, eq, cntr, wait_set, domain, fabric]);
}

fn a_second_close_is_refused() {
    let world = World::new();
    let file = &world.file;
    let first = file.fabric();
    file.close_all(&[first]);
    refused(file.close(first), Errno::EBADF);
    // A number is not reused at once, so that a user of the old handle gets an error.
    let second = file.fabric();
    assert_ne!(first, second);
    refused(file.close(first), Errno::EBADF);
    file.close_all(&[second]);
    world.finish();
}

fn one_of_many_concurrent_closes_succeeds() {
    const THREADS: usize = 4;
    let file = File::open();
    let start = std::sync::Barrier::new(THREADS);
    let victim = std::sync::atomic::AtomicU32::new(0);
    let order = std::sync::atomic::Ordering::SeqCst;
    let closed = std::sync::atomic::AtomicU32::new(0);
    const ROUNDS: u32 = 200;
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    if start.wait().is_leader() {
                        victim.store(file.fabric(), order);
                    }
                    start.wait();
                    match file.close(victim.load(order)) {
                        Ok(()) => {
                            closed.fetch_add(1, order);
                        }
                        Err(e) => assert_eq!(e, Errno::EBADF),
                    }
                }
            });
        }
    });
    assert_eq!(closed.load(order), ROUNDS);
}

fn the_number_of_handles_is_limited() {
    let (file, fabric, domain) = File::open().and_domain();
    let mut handles = HashSet::from([fabric, domain]);
    let begin = std::time::Instant::now();
    for _ in 0..abi::KFABRIC_MAX_HANDLES - 2 {
        let handle = file.fabric();
        assert!(handle != 0 && handle <= abi::KFABRIC_MAX_HANDLES);
        assert!(handles.insert(handle), "{handle} given twice");
    }
    let making = begin.elapsed();
    let page = crate::raw::Pages::new(1);
    let none_left = || {
        for (class, made) in one_of_each(&file, fabric, domain, page.addr())
            .into_iter()
            .enumerate()
        {
            assert_eq!(made, Err(Errno::EMFILE), "class {class}");
        }
    };
    none_left();
    // No object was made from it.
    file.close_all(&[domain]);
    let last = file.fabric();
    assert_eq!(last, domain, "the one number that is free");
    none_left();
    // Another open file has handles of its own.
    let other = File::open();
    other.close_all(&[other.fabric()]);
    // Closing them takes as long as making them, by order of magnitude.
    let begin = std::time::Instant::now();
    drop(file);
    let ending = begin.elapsed();
    let limit = 4 * making + std::time::Duration::from_secs(20);
    assert!(ending < limit, "{ending:?}, making took {making:?}");
}

fn the_number_of_descriptors_is_limited() {
    let (file, fabric, domain) = File::open().and_domain();
    let objects = [
        file.cntr(domain),
        file.cq(domain),
        file.eq(fabric),
        file.wait_set(fabric),
    ];
    let before = getrlimit(Resource::Nofile);
    // The lowest free descriptor is not below this.
    let none = rustix::io::dup(&file).expect("dup");
    let limit = std::os::fd::AsRawFd::as_raw_fd(&none) as u64;
    drop(none);
    let lowered = Rlimit {
        current: Some(limit),
        ..before
    };
    setrlimit(Resource::Nofile, lowered).expect("setrlimit");
    for object in objects {
        refused(getwait(&file, object), Errno::EMFILE);
    }
    setrlimit(Resource::Nofile, before).expect("setrlimit");
    // The system's limit, which root may exceed.
    let file_max = "/proc/sys/fs/file-max";
    let system = std::fs::read_to_string(file_max).expect("file-max");
    std::fs::write(file_max, "0").expect("file-max");
    let results = objects.map(|object| as_user(|| getwait(&file, object)));
    std::fs::write(file_max, system.trim()).expect("file-max");
    for result in results {
        refused(result, Errno::ENFILE);
    }
    for object in objects {
        drop(getwait(&file, object).expect("getwait"));
    }
    file.close_all(&objects);
    file.close_all(&[domain, fabric]);
}

fn all_wait_objects_but_none_have_descriptors() {
    let (file, fabric, domain) = File::open().and_domain();
    let wait_set = file.wait_set(fabric);
    for (wait_obj, wait_set) in [
        (abi::KFI_WAIT_NONE, 0),
        (abi::KFI_WAIT_UNSPEC, 0),
        (abi::KFI_WAIT_SET, wait_set),
    ] {
        for object in file.waitable_objects(fabric, domain, wait_obj, wait_set) {
            if wait_obj == abi::KFI_WAIT_NONE {
                refused(getwait(&file, object), Errno::EINVAL);
            } else {
                drop(getwait(&file, object).expect("getwait"));
            }
            file.close_all(&[object]);
        }
    }
    // A wait set always has a wait object.
    let unspec = file.make(arg!(kfabric_wait_open: fabric, wait_obj: abi::KFI_WAIT_UNSPEC));
    drop(getwait(&file, unspec).expect("getwait"));
    file.close_all(&[unspec, wait_set, domain, fabric]);
}

fn a_domain_needs_a_link() {
    let file = File::open();
    let fabric = file.fabric();
    let open = |link: &str| file.call(arg!(kfabric_domain_open: fabric, link: text(link)));
    for link in ["", "nolink", "a/b", "a b", "sixteen-letters!", "LO0"] {
        refused(open(link), Errno::ENODEV);
    }
    file.close_all(&[fabric]);
}
