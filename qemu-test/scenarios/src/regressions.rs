// SPDX-License-Identifier: GPL-2.0
//! Defects that were fixed and must not come back: one test for each, which describes the effect on
//! a program.

use crate::{
    abi_threads::{as_user, open_to_all},
    harness::tests,
    host::{Host, LINK, Options, SOON, device, domain, pair_with, until},
    hosts::sanitizing,
    raw::{File, Netdev, PAGE, Pages, addr_of, addr_of_mut, arg, bytes_of, refused},
};
use kfi::{Access, Buffer, CompFlags, Deadline, Entry, Errno, MrMode, Op, OpFlags, abi};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::{
    collections::{HashMap, HashSet},
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::{Duration, Instant},
};

tests![
    the_release_of_a_multi_receive_is_its_last_entry => 300,
    a_receive_is_charged_until_its_completion_and_no_longer => 120,
    a_send_is_charged_until_its_failure_and_no_longer => 120,
    a_failed_registration_makes_no_event,
    keys_chosen_by_the_module_are_random,
    no_send_waits_on_a_link_that_is_gone => 300,
];

/// Tells threads to stop.
type Flag = AtomicBool;

/// Sets a flag when it is dropped, also if a test fails.
struct RaiseAtEnd<'a>(&'a Flag);

impl Drop for RaiseAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Two messages were placed in a multi-receive buffer at the same time, and the one that finished
/// last, whose entry says that the buffer is released, had that entry written before the entry of
/// the other. A program that posts a buffer anew when it is released lost the other's bytes.
fn the_release_of_a_multi_receive_is_its_last_entry() {
    const PARTS: u64 = 3;
    const LEN: u64 = 64;
    const BUFFERS: usize = 8;
    let options = Options {
        cq_entries: 4096,
        rx_size: 64,
        ..Options::default()
    };
    let receiver = Host::with(&options);
    receiver.ep.set_min_multi_recv(LEN).expect("min_multi_recv");
    let into: Vec<Buffer> = (0..BUFFERS)
        .map(|_| Buffer::new((PARTS * LEN) as usize).expect("buffer"))
        .collect();
    let stop = Flag::default();
    std::thread::scope(|scope| {
        let _stop = RaiseAtEnd(&stop);
        for number in 1..=4 {
            let (stop, receiver, options) = (&stop, &receiver, &options);
            scope.spawn(move || {
                let sender = Host::with(options);
                let to = sender.meet(receiver);
                while !stop.load(SeqCst) {
                    // If there is no buffer, the message would be kept, and not be a part.
                    let _ = sender.ep.inject(to, &[number; LEN as usize]);
                }
            });
        }
        let mut context = 0u64;
        let post = |context: u64| {
            let buffer = &into[context as usize % BUFFERS];
            receiver
                .ep
                .post_one(&Op::multi_recv(buffer).context(context))
                .expect("multi_recv");
        };
        let mut released = HashSet::new();
        let mut parts = HashMap::new();
        let mut entries = [Entry::default(); 64];
        let begin = Instant::now();
        let (mut posted, mut shared) = (0, 0);
        let time = Duration::from_secs(if sanitizing() { 20 } else { 6 });
        while begin.elapsed() < time {
            while posted < BUFFERS {
                post(context);
                context += 1;
                posted += 1;
            }
            let count = receiver.cq.sread(&mut entries, SOON).expect("sread");
            for entry in &entries[..count] {
                assert!(
                    !released.contains(&entry.op_context),
                    "an entry behind the release: {entry:?}"
                );
                let reported = parts.entry(entry.op_context).or_insert(0u64);
                *reported += 1;
                if entry.flags.contains(CompFlags::MULTI_RECV) {
                    assert_eq!(*reported, PARTS, "a release before all parts: {entry:?}");
                    released.insert(entry.op_context);
                    let bytes = into[entry.op_context as usize % BUFFERS].to_vec(..);
                    shared += usize::from(bytes.iter().any(|byte| *byte != bytes[0]));
                    posted -= 1;
                }
            }
        }
        println!("{} buffers, {shared} of several senders", released.len());
        // Each buffer was used several times, and several senders placed messages in one.
        assert!(released.len() >= 10 * BUFFERS, "hardly anything happened");
        assert!(shared > 0, "no two senders met in a buffer");
    });
}

/// Lets ordinary users pin `bytes`.
fn limit_pinned(bytes: u64) {
    let limit = Rlimit {
        current: Some(bytes),
        maximum: Some(bytes),
    };
    setrlimit(Resource::Memlock, limit).expect("setrlimit");
}

/// The amount that an ordinary user may pin in these tests.
const PINNED: usize = 32 << 20;

/// The memory of a receive was pinned, and charged to RLIMIT_MEMLOCK, until some time after its
/// completion: the sender's process still had a reference to it. A program at its limit that posted
/// the next receive at once was refused with ENOMEM, now and then.
fn a_receive_is_charged_until_its_completion_and_no_longer() {
    open_to_all();
    limit_pinned(PINNED as u64);
    let (sender, to, receiver, _) = pair_with(&Options::default());
    let rounds = 20;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let bytes = Buffer::new(PINNED).expect("buffer");
            for round in 0..rounds {
                sender.ep.send(to, &bytes, round).expect("send");
                sender.expect(CompFlags::MSG | CompFlags::SEND, round);
            }
        });
        as_user(|| {
            let into = Buffer::new(PINNED).expect("buffer");
            for round in 0..rounds {
                receiver.ep.recv(&into, round).expect("recv");
                receiver.expect(CompFlags::MSG | CompFlags::RECV, round);
            }
        });
    });
}

/// The same with a send that fails because its peer closes: its completion came while the closing
/// process still had its memory pinned.
fn a_send_is_charged_until_its_failure_and_no_longer() {
    open_to_all();
    limit_pinned(PINNED as u64);
    for round in 0..20 {
        let (sender, to, receiver, _) = pair_with(&Options::default());
        let waits = &std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                waits.wait();
                // Gives the other thread time to sleep.
                std::thread::sleep(Duration::from_millis(5));
                drop(receiver);
            });
            as_user(|| {
                let bytes = Buffer::new(PINNED).expect("buffer");
                sender.ep.send(to, &bytes, round).expect("send");
                waits.wait();
                let woken = sender.cq.wait(SOON).expect_err("an error entry");
                assert_eq!(woken.errno(), Some(Errno::KFI_EAVAIL));
                let error = sender.cq.readerr().expect("readerr").expect("an error");
                assert_eq!(error.err, Errno::EHOSTUNREACH, "{error:?}");
                sender.ep.recv(&bytes, round).expect("recv");
            });
        });
    }
}

/// An MR_REG that could not return its handle closed the region again, but the event
/// KFI_MR_COMPLETE of this region stayed in the EQ.
fn a_failed_registration_makes_no_event() {
    let (file, fabric, domain) = File::open().and_domain();
    let eq = file.eq(fabric);
    file.bind(domain, eq, abi::KFI_REG_MR).expect("bind");
    let memory = Pages::new(1);
    let iov = abi::kfabric_iov {
        addr: memory.addr(),
        len: PAGE as u64,
    };
    let arg = arg!(kfabric_mr_reg: domain, iov: addr_of(&iov), iov_count: 1, access: abi::KFI_SEND);
    let argument = Pages::new(1);
    argument.write(0, &bytes_of(&arg));
    argument.protect(true);
    let number = abi::KFABRIC_IOC_MR_REG;
    refused(file.call_raw(number, argument.addr()), Errno::EFAULT);
    let mut data = [0u8; 64];
    let read = arg!(kfabric_eq_read: eq, buf: addr_of_mut(&mut data), len: 64);
    refused(file.call(read), Errno::EAGAIN);
    // A successful one makes one event, which names it.
    let mr = file.make(arg);
    let event = file.call(read).expect("eq_read").event;
    assert_eq!(event, abi::KFI_MR_COMPLETE);
    assert_eq!(data[..4], mr.to_ne_bytes());
}

/// Keys that the module chose were 1, 2, 3 and so on in each domain: a peer that did not know a key
/// could try these, and reach memory that was open to others.
fn keys_chosen_by_the_module_are_random() {
    let mut keys = Vec::new();
    for _ in 0..4 {
        let (fabric, _) = domain();
        let domain = fabric
            .domain(LINK)
            .mr_mode(MrMode::PROV_KEY)
            .open()
            .expect("domain");
        for _ in 0..4 {
            let buffer = Buffer::new(PAGE).expect("buffer");
            let mr = domain
                .mr(&buffer)
                .access(Access::REMOTE_READ)
                .open()
                .expect("mr");
            keys.push(mr.remote(0).key);
        }
    }
    keys.sort_unstable();
    assert!(
        keys.iter().all(|key| *key <= u64::from(u32::MAX)),
        "{keys:?}"
    );
    let near = keys.windows(2).filter(|pair| pair[1] - pair[0] < 1024);
    // 16 of 2^32: a correct guess is practically impossible.
    assert_eq!(near.count(), 0, "{keys:?}");
}

/// A send that found its link alive, and began to wait just after the sends of that link had been
/// failed, waited for ever.
fn no_send_waits_on_a_link_that_is_gone() {
    let ended = |error| matches!(error, Errno::ENODEV | Errno::ECANCELED);
    for round in 0..8 {
        let netdev = Netdev::dummy("kfgone", "10.98.0.1/24");
        let device = device();
        device.link_add("kfgone", "kfgone").expect("link_add");
        let fabric = device.fabric().expect("fabric");
        let domain = fabric.domain("kfgone").open().expect("domain");
        let options = Options {
            cq_entries: 4096,
            tx_size: 1024,
            ..Options::default()
        };
        let (sender, receiver) = (Host::on(&domain, &options), Host::on(&domain, &options));
        let to = sender.meet(&receiver);
        let bytes = Buffer::new(1).expect("buffer");
        let accepted = std::thread::scope(|scope| {
            let poster = scope.spawn(|| {
                let op = Op::send(to, &bytes).flags(OpFlags::DELIVERY_COMPLETE);
                let mut accepted = 0u64;
                loop {
                    match sender.ep.post_one(&op) {
                        Ok(()) => accepted += 1,
                        Err(e) if e.errno() == Some(Errno::ENODEV) => return accepted,
                        // The interface is set down before it is removed.
                        Err(e) if e.errno() == Some(Errno::ENETDOWN) => {}
                        Err(e) if e.errno() == Some(Errno::EAGAIN) => {}
                        Err(e) => panic!("{e}"),
                    }
                    // So that the next one can wait. The error entry may be that of another send,
                    // which failed just now because the link was removed.
                    if accepted > 0 && accepted.is_multiple_of(100) {
                        while sender.ep.cancel(0).is_ok() {
                            let error = sender.cq.readerr().expect("readerr").expect("an error");
                            assert!(ended(error.err), "{error:?}");
                            accepted -= 1;
                        }
                    }
                }
            });
            std::thread::sleep(Duration::from_millis(2 + 5 * round));
            netdev.delete();
            poster.join().expect("poster")
        });
        let mut failed = 0;
        until("the end of every send", || {
            while let Ok(Some(error)) = sender.cq.readerr() {
                assert!(ended(error.err), "{error:?}");
                failed += 1;
            }
            failed == accepted
        });
        assert!(sender.cq.next(Deadline::POLL).expect("next").is_none());
    }
}
