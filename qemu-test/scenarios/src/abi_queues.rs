// SPDX-License-Identifier: GPL-2.0
//! Opening queues and counters, and completion queues: every refusal, and that a refused read takes
//! nothing.

use crate::{
    abi_threads::while_waiting,
    harness::tests,
    raw::{File, PAGE, Pages, addr_of_mut, arg, data, in_ms, now, refused, with},
};
use kfi::{Errno, abi};

tests![
    wait_objects_of_queues_and_counters,
    sizes_and_formats,
    an_empty_cq_gives_no_entries,
    an_entry_that_cannot_be_copied_stays,
    an_error_entry_comes_first,
    lost_completions_are_reported_once,
    invalid_waits_on_a_cq_are_refused,
    a_wait_can_be_for_several_entries,
    a_signal_ends_waits,
];

fn wait_objects_of_queues_and_counters() {
    let (file, fabric, domain) = File::open().and_domain();
    let fabric2 = file.fabric();
    let (wait_set, other) = (file.wait_set(fabric), file.wait_set(fabric2));
    let refused_all = |wait_obj, wait_set| {
        let eq = arg!(kfabric_eq_open: fabric, wait_obj, wait_set);
        refused(file.call(eq), Errno::EINVAL);
        let cq = arg!(kfabric_cq_open: domain, wait_obj, wait_set);
        refused(file.call(cq), Errno::EINVAL);
        let cntr = arg!(kfabric_cntr_open: domain, wait_obj, wait_set);
        refused(file.call(cntr), Errno::EINVAL);
    };
    for unknown in [4, 5, u32::MAX] {
        refused_all(unknown, 0);
        refused_all(unknown, wait_set);
    }
    // No wait set, and one of another fabric.
    for wait_set in [0, other] {
        refused_all(abi::KFI_WAIT_SET, wait_set);
    }
    // kfi_cntr(3), fi_cq(3): the field is ignored unless the wait object is KFI_WAIT_SET, whatever
    // its value.
    for wait_obj in [
        abi::KFI_WAIT_NONE,
        abi::KFI_WAIT_UNSPEC,
        abi::KFI_WAIT_QUEUE,
    ] {
        let sets = [file.wait_set(fabric), file.wait_set(fabric2)];
        for wait_set in [sets[0], sets[1], domain, u32::MAX] {
            let objects = file.waitable_objects(fabric, domain, wait_obj, wait_set);
            if sets.contains(&wait_set) {
                // None of the three is a member.
                file.close_all(&[wait_set]);
            }
            file.close_all(&objects);
        }
    }
    for wait_obj in [abi::KFI_WAIT_NONE, abi::KFI_WAIT_SET, 4, u32::MAX] {
        let arg = arg!(kfabric_wait_open: fabric, wait_obj);
        refused(file.call(arg), Errno::EINVAL);
    }
    file.close_all(&[wait_set, other, domain, fabric, fabric2]);
}

fn sizes_and_formats() {
    let (file, fabric, domain) = File::open().and_domain();
    let eq = |entries| file.call(arg!(kfabric_eq_open: fabric, entries));
    let open = |entries, format, wait_obj, wait_cond| {
        file.call(arg!(kfabric_cq_open: domain, entries, format, wait_obj, wait_cond))
    };
    let cq = |entries, format, cond| open(entries, format, abi::KFI_WAIT_UNSPEC, cond);
    for entries in [abi::KFABRIC_MAX_EQ + 1, u32::MAX] {
        refused(eq(entries), Errno::EINVAL);
    }
    for entries in [abi::KFABRIC_MAX_CQ + 1, u32::MAX] {
        refused(cq(entries, 0, 0), Errno::EINVAL);
    }
    for format in [5, u32::MAX] {
        refused(cq(0, format, 0), Errno::EINVAL);
    }
    for cond in [2, u32::MAX] {
        refused(cq(0, 0, cond), Errno::EINVAL);
        // fi_cq(3): the field is ignored with FI_WAIT_NONE.
        let ignored = open(0, 0, abi::KFI_WAIT_NONE, cond).expect("cq");
        file.close_all(&[ignored.handle]);
    }
    for events in [1, u32::MAX] {
        let arg = arg!(kfabric_cntr_open: domain, events);
        refused(file.call(arg), Errno::EINVAL);
    }
    let largest = eq(abi::KFABRIC_MAX_EQ).expect("eq");
    assert_eq!(largest.entries, abi::KFABRIC_MAX_EQ);
    let default = eq(0).expect("eq");
    assert_ne!(default.entries, 0);
    file.close_all(&[largest.handle, default.handle]);
    for (asked, made) in [(1, 1), (3, 4), (65535, 65536), (65536, 65536)] {
        let cq = cq(asked, 0, 0).expect("cq");
        assert_eq!(cq.entries, made);
        assert_ne!(cq.format, abi::KFI_CQ_FORMAT_UNSPEC);
        assert!(cq.ring_size >= u64::from(made) * 64);
        file.close_all(&[cq.handle]);
    }
    file.close_all(&[domain, fabric]);
}

/// An endpoint with itself in its AV, whose receives end in a CQ of this size and wait object.
struct Rig {
    file: File,
    fabric: u32,
    domain: u32,
    ep: u32,
    tx_cq: u32,
    cq: u32,
    av: u32,
    me: u64,
}

impl Rig {
    fn new(cq: abi::kfabric_cq_open) -> Self {
        let (file, fabric, domain) = File::open().and_domain();
        let cq = file.make(with!(cq; domain, format: abi::KFI_CQ_FORMAT_TAGGED));
        let (tx_cq, av, ep) = (file.cq(domain), file.av(domain), file.ep(domain));
        file.bind(ep, tx_cq, abi::KFI_SEND).expect("bind");
        file.bind(ep, cq, abi::KFI_RECV).expect("bind");
        file.bind(ep, av, 0).expect("bind");
        file.enable(ep).expect("enable");
        let name = file.ep_name(ep).expect("name");
        let me = file.insert(av, name).expect("insert");
        Self {
            file,
            fabric,
            domain,
            ep,
            tx_cq,
            cq,
            av,
            me,
        }
    }

    fn queue() -> Self {
        Self::new(arg!(kfabric_cq_open: wait_obj: abi::KFI_WAIT_QUEUE))
    }

    /// Sends itself an empty message: a receive with `context` completes.
    fn complete(&self, context: u64) {
        let recv = data!(kfabric_op: context, peer: abi::KFI_ADDR_UNSPEC);
        let send = data!(kfabric_op:
            opcode: abi::KFABRIC_OP_SEND, flags: abi::KFI_INJECT, peer: self.me
        );
        self.file.post_one(self.ep, recv).expect("recv");
        self.file.post_one(self.ep, send).expect("send");
    }

    /// A receive with `context` completes with an error.
    fn fail(&self, context: u64) {
        let recv = data!(kfabric_op: context, peer: abi::KFI_ADDR_UNSPEC);
        self.file.post_one(self.ep, recv).expect("recv");
        self.file
            .call(arg!(kfabric_ep_cancel: ep: self.ep, context))
            .expect("cancel");
    }

    /// Takes one entry; its context.
    fn read(&self, deadline: u64) -> Result<u64, Errno> {
        let entry = self.file.cq_wait(self.cq, deadline)?;
        Ok(entry.op_context)
    }

    fn finish(self) {
        self.file.close_all(&[
            self.ep,
            self.tx_cq,
            self.cq,
            self.av,
            self.domain,
            self.fabric,
        ]);
    }
}

fn an_empty_cq_gives_no_entries() {
    let rig = Rig::queue();
    refused(rig.read(0), Errno::EAGAIN);
    let deadline = in_ms(50);
    refused(rig.read(deadline), Errno::EAGAIN);
    assert!(now() >= deadline);
    // A deadline that has passed polls.
    refused(rig.read(1), Errno::EAGAIN);
    refused(rig.file.cq_readerr(rig.cq), Errno::EAGAIN);
    // A read that only waits.
    let mut only = arg!(kfabric_cq_read: cq: rig.cq);
    refused(rig.file.call(only), Errno::EAGAIN);
    only.deadline = in_ms(20);
    refused(rig.file.call(only), Errno::EAGAIN);
    rig.complete(1);
    assert_eq!(rig.file.call(only).expect("there is one").count, 0);
    assert_eq!(rig.read(0), Ok(1));
    rig.finish();
}

fn an_entry_that_cannot_be_copied_stays() {
    let rig = Rig::queue();
    for context in 1..=4 {
        rig.complete(context);
    }
    let pages = Pages::new(1);
    let sources = Pages::new(1);
    let arg = |entries: usize, sources_room: usize, deadline| {
        arg!(kfabric_cq_read:
            cq: rig.cq, buf: pages.before_hole(entries),
            src_addrs: sources.before_hole(sources_room), count: 4, deadline
        )
    };
    for deadline in [0, in_ms(1000)] {
        refused(rig.file.call(arg(40, 32, deadline)), Errno::EFAULT);
        refused(rig.file.call(arg(192, 4, deadline)), Errno::EFAULT);
    }
    // If there is room for some, the call takes some.
    assert_eq!(rig.file.call(arg(100, 32, 0)).expect("read").count, 2);
    assert_eq!(rig.file.call(arg(192, 12, 0)).expect("read").count, 1);
    assert_eq!(rig.read(0), Ok(4));
    refused(rig.read(0), Errno::EAGAIN);
    rig.finish();
}

fn an_error_entry_comes_first() {
    let rig = Rig::queue();
    rig.complete(1);
    rig.fail(2);
    for deadline in [0, in_ms(1000)] {
        refused(rig.read(deadline), Errno::KFI_EAVAIL);
    }
    let error = rig.file.cq_readerr(rig.cq).expect("readerr");
    assert_eq!(
        (error.op_context, error.err),
        (2, Errno::ECANCELED.raw() as u32)
    );
    refused(rig.file.cq_readerr(rig.cq), Errno::EAGAIN);
    assert_eq!(rig.read(0), Ok(1));
    // A waiting reader gets the error.
    let result = while_waiting(|| rig.read(in_ms(20_000)), |_| rig.fail(3));
    refused(result, Errno::KFI_EAVAIL);
    rig.file.cq_readerr(rig.cq).expect("readerr");
    rig.finish();
}

fn lost_completions_are_reported_once() {
    let rig = Rig::new(arg!(kfabric_cq_open: entries: 1, wait_obj: abi::KFI_WAIT_QUEUE));
    let pages = Pages::new(1);
    let mr = rig
        .file
        .reg(rig.domain, pages.addr(), PAGE as u64, 1)
        .expect("mr");
    let write = |data| {
        let op = data!(kfabric_op:
            opcode: abi::KFABRIC_OP_WRITE, flags: abi::KFI_REMOTE_CQ_DATA, buf: pages.addr(),
            len: 8, peer: rig.me, data, rma_key: 1
        );
        rig.file.post_one(rig.ep, op).expect("write");
        rig.file.cq_read(rig.tx_cq).expect("the write completes");
    };
    for deadline in [0, in_ms(20_000)] {
        for data in 1..=3 {
            write(data);
        }
        let entry = rig.file.cq_read(rig.cq).expect("the first one is there");
        assert_eq!(entry.data, 1);
        refused(rig.read(deadline), Errno::KFI_EOVERRUN);
        refused(rig.read(0), Errno::EAGAIN);
        write(4);
        assert_eq!(rig.file.cq_read(rig.cq).expect("read").data, 4);
        refused(rig.read(0), Errno::EAGAIN);
    }
    rig.file.close_all(&[mr]);
    rig.finish();
}

fn invalid_waits_on_a_cq_are_refused() {
    let (file, fabric, domain) = File::open().and_domain();
    let wait_set = file.wait_set(fabric);
    for (wait_obj, wait_set, signal) in [
        (abi::KFI_WAIT_NONE, 0, Err(Errno::EINVAL)),
        (abi::KFI_WAIT_SET, wait_set, Ok(())),
    ] {
        let cq = file.make(arg!(kfabric_cq_open: domain, wait_obj, wait_set));
        for deadline in [in_ms(1000), abi::KFABRIC_FOREVER] {
            refused(file.cq_wait(cq, deadline), Errno::EINVAL);
            // A read that only waits.
            refused(
                file.call(arg!(kfabric_cq_read: cq, deadline)),
                Errno::EINVAL,
            );
        }
        // A deadline that has passed polls.
        refused(file.cq_read(cq), Errno::EAGAIN);
        for deadline in [1, in_ms(0)] {
            refused(file.cq_wait(cq, deadline), Errno::EAGAIN);
        }
        let arg = arg!(kfabric_cq_signal: cq);
        assert_eq!(file.call(arg).map(|_| ()), signal);
        file.close_all(&[cq]);
    }
    file.close_all(&[wait_set, domain, fabric]);
}

/// Without KFI_CQ_COND_THRESHOLD any entry ends the wait, whatever the value of `cond`.
fn a_wait_can_be_for_several_entries() {
    for (wait_cond, kept) in [
        (abi::KFI_CQ_COND_NONE, false),
        (abi::KFI_CQ_COND_THRESHOLD, true),
    ] {
        let rig = Rig::new(arg!(kfabric_cq_open: wait_obj: abi::KFI_WAIT_QUEUE, wait_cond));
        let mut entries = [0u64; 2 * 6];
        let mut read = |deadline| {
            rig.file
                .call(arg!(kfabric_cq_read:
                    cq: rig.cq, buf: addr_of_mut(&mut entries), count: 2, cond: 2, deadline
                ))
                .map(|arg| arg.count)
        };
        refused(read(in_ms(20)), Errno::EAGAIN);
        let latest = in_ms(10_000);
        if kept {
            // At its deadline it takes the entries that are queued.
            rig.complete(1);
            let deadline = in_ms(50);
            assert_eq!(read(deadline), Ok(1));
            assert!(now() >= deadline);
            rig.complete(2);
            rig.complete(3);
            assert_eq!(read(in_ms(20_000)), Ok(2));
        } else {
            rig.complete(1);
            assert_eq!(read(in_ms(20_000)), Ok(1));
        }
        assert!(now() < latest, "it slept to its deadline");
        rig.finish();
    }
}

fn a_signal_ends_waits() {
    let rig = Rig::queue();
    let signal = || {
        rig.file
            .call(arg!(kfabric_cq_signal: cq: rig.cq))
            .expect("signal");
    };
    let result = while_waiting(|| rig.read(abi::KFABRIC_FOREVER), |_| signal());
    refused(result, Errno::EAGAIN);
    // A signal before the wait: the next one does not sleep.
    signal();
    let late = in_ms(20_000);
    refused(rig.read(late), Errno::EAGAIN);
    assert!(now() < late);
    let deadline = in_ms(10);
    refused(rig.read(deadline), Errno::EAGAIN);
    assert!(now() >= deadline);
    rig.finish();
}
