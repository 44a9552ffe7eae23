// SPDX-License-Identifier: GPL-2.0
//! The kernel memory that one user's objects may take (module parameter `user_memory`): the objects
//! that count, their owners, and the behaviour at the limit.

#![allow(unsafe_code, reason = "mappings")]

use crate::{
    abi_threads::{as_user, open_to_all},
    deferred_memory::waiting_op,
    harness::tests,
    host::LINK,
    networks::Wire,
    raw::{File, Make, PAGE, Pages, addr_of, arg, data, refused, text, with},
};
use kfi::{
    Errno,
    abi::{self, Call},
};

tests![
    every_class_of_object_counts,
    files_of_a_user_share_a_limit_and_users_do_not,
    the_growth_of_an_av_counts,
    a_message_that_cannot_be_buffered_waits,
    lists_of_outstanding_rma_count => 120,
    pages_count_as_long_as_they_are_mapped => 900,
];

/// The default limit of a user in MiB; it is not in sysfs.
pub(crate) const LIMIT: u64 = 256;

/// Opens a CQ of `entries`.
fn cq(file: &File, domain: u32, entries: u32) -> Result<u32, Errno> {
    opened(file, arg!(kfabric_cq_open: domain, entries))
}

/// Opens CQs, large ones first, then fabrics, until no more can be opened.
pub(crate) fn fill(file: &File, domain: u32) -> Vec<u32> {
    let mut handles = Vec::new();
    for entries in [65_536, 4_096, 64] {
        loop {
            match cq(file, domain, entries) {
                Ok(handle) => handles.push(handle),
                Err(e) => break assert_eq!(e, Errno::ENOMEM),
            }
        }
    }
    while let Ok(arg) = file.call(arg!(kfabric_fabric_open)) {
        handles.push(arg.handle);
    }
    handles
}

/// Opens an object; its handle.
fn opened<M: Make>(file: &File, arg: M) -> Result<u32, Errno> {
    file.call(arg).map(|arg| arg.handle())
}

/// Tries to open one of each class; returns the results.
pub(crate) fn one_of_each(
    file: &File,
    fabric: u32,
    domain: u32,
    at: u64,
) -> [Result<u32, Errno>; 11] {
    [
        opened(file, arg!(kfabric_fabric_open)),
        opened(file, arg!(kfabric_domain_open: fabric, link: text(LINK))),
        opened(file, arg!(kfabric_eq_open: fabric)),
        opened(file, arg!(kfabric_av_open: domain, type_: abi::KFI_AV_MAP)),
        file.reg(domain, at, 1, 7),
        cq(file, domain, 1),
        opened(file, arg!(kfabric_cntr_open: domain)),
        opened(file, arg!(kfabric_comp_cntr_create: domain)),
        opened(
            file,
            arg!(kfabric_wait_open: fabric, wait_obj: abi::KFI_WAIT_QUEUE),
        ),
        opened(file, arg!(kfabric_poll_open: domain)),
        opened(file, arg!(kfabric_ep_open: domain)),
    ]
}

fn every_class_of_object_counts() {
    File::open();
    open_to_all();
    as_user(|| {
        let (file, fabric, domain) = File::open_only().and_domain();
        let pages = Pages::new(1);
        let full = fill(&file, domain);
        // As many of the largest CQs as fit: each has a ring of 4 MiB, and its errors.
        let most = LIMIT / 4;
        let largest = full.iter().filter(|h| **h < full[0] + most as u32).count() as u64;
        assert!(
            (1..=most).contains(&largest),
            "{largest} of the largest CQs"
        );
        for (class, result) in one_of_each(&file, fabric, domain, pages.addr())
            .into_iter()
            .enumerate()
        {
            assert_eq!(result, Err(Errno::ENOMEM), "class {class}");
        }
        // The memory of closed objects is available again, for any class.
        file.close_all(&full[..1]);
        let mut opened: Vec<u32> = one_of_each(&file, fabric, domain, pages.addr())
            .into_iter()
            .map(|result| result.expect("there is room"))
            .collect();
        opened.reverse();
        file.close_all(&opened);
        let first = cq(&file, domain, 65_536).expect("nothing is lost on the way");
        refused(cq(&file, domain, 65_536), Errno::ENOMEM);
        file.close_all(&[first]);
    });
}

fn files_of_a_user_share_a_limit_and_users_do_not() {
    let roots = File::open();
    open_to_all();
    as_user(|| {
        let (file, _, domain) = File::open_only().and_domain();
        fill(&file, domain);
        let other = File::open_only();
        let result = other.call(arg!(kfabric_fabric_open));
        refused(result.map(|arg| arg.handle), Errno::ENOMEM);
        // The file is closed, and all its objects with it.
        drop(file);
        let fabric = other.fabric();
        let domain = other.domain(fabric);
        cq(&other, domain, 65_536).expect("all is back");
        fill(&other, domain);
        // Root has an account of its own, and no limit.
        let fabric = roots.fabric();
        let domain = roots.domain(fabric);
        let many = LIMIT.div_ceil(8) as usize;
        let cqs: Vec<u32> = (0..many)
            .map(|_| cq(&roots, domain, 65_536).expect("root"))
            .collect();
        roots.close_all(&cqs);
        roots.close_all(&[domain, fabric]);
    });
}

fn the_growth_of_an_av_counts() {
    File::open();
    open_to_all();
    as_user(|| {
        let (file, _, domain) = File::open_only().and_domain();
        let av = file.make(arg!(kfabric_av_open: domain, type_: abi::KFI_AV_TABLE, count: 1));
        let full = fill(&file, domain);
        let name = |n: u16| crate::raw::ipv4([127, 0, 0, 1], 1 + n);
        let inserted = (0..1024)
            .take_while(|n| file.insert(av, name(*n)).is_ok())
            .count() as u16;
        assert!(inserted < 64, "{inserted} addresses for nothing");
        refused(file.insert(av, name(inserted)), Errno::ENOMEM);
        file.close_all(&full[..1]);
        for n in inserted..1024 {
            assert_eq!(file.insert(av, name(n)), Ok(u64::from(n)));
        }
    });
}

fn a_message_that_cannot_be_buffered_waits() {
    let sender = File::open();
    open_to_all();
    let fabric = sender.fabric();
    let domain = sender.domain(fabric);
    let party = sender.party(domain, Call::sized());
    as_user(|| {
        let (file, _, domain) = File::open_only().and_domain();
        let receiver = file.party(domain, Call::sized());
        let name = file.ep_name(receiver.ep).expect("name");
        let peer = sender.insert(party.av, name).expect("insert");
        let pages = Pages::new(4);
        let send = |context| {
            data!(kfabric_op:
                opcode: abi::KFABRIC_OP_SEND, context, buf: pages.addr(), len: PAGE as u64, peer
            )
        };
        let recv = |context| {
            data!(kfabric_op:
                opcode: abi::KFABRIC_OP_RECV, context, buf: pages.addr() + PAGE as u64,
                len: PAGE as u64, peer: abi::KFI_ADDR_UNSPEC
            )
        };
        // A buffered message completes at once.
        sender.post_one(party.ep, send(1)).expect("send");
        assert_eq!(sender.cq_read(party.cq).expect("complete").op_context, 1);
        // A message that cannot be buffered waits, and is not lost.
        fill(&file, domain);
        sender.post_one(party.ep, send(2)).expect("send");
        refused(sender.cq_read(party.cq), Errno::EAGAIN);
        // A message that cannot wait is refused.
        let inject = with!(send(3); flags: abi::KFI_INJECT, len: 8);
        let buffered = (0..1024)
            .take_while(|_| match sender.post_one(party.ep, inject) {
                Ok(()) => sender.cq_read(party.cq).is_ok(),
                Err(e) => {
                    assert_eq!(e, Errno::EAGAIN);
                    false
                }
            })
            .count();
        assert!(buffered < 1024, "{buffered} injected for nothing");
        for context in [4, 5] {
            file.post_one(receiver.ep, recv(context)).expect("recv");
            let entry = file.cq_read(receiver.cq).expect("received");
            assert_eq!((entry.op_context, entry.len), (context, PAGE as u64));
        }
        assert_eq!(sender.cq_read(party.cq).expect("complete").op_context, 2);
    });
}

/// Writes in pieces to a host that does not answer: their lists live until the writes end.
fn lists_of_outstanding_rma_count() {
    const PIECES: usize = 256;
    /// Each piece has an address, a length and a key.
    const LIST: u64 = 24 * PIECES as u64;
    File::open();
    open_to_all();
    let wire = Wire::new();
    wire.a.run(|| {
        as_user(|| {
            let file = File::open_only();
            let fabric = file.fabric();
            let domain = file
                .call(arg!(kfabric_domain_open: fabric, link: text("roce0")))
                .expect("domain")
                .handle;
            let queue = file.make(arg!(kfabric_cq_open:
                domain, entries: 65_536, wait_obj: abi::KFI_WAIT_QUEUE
            ));
            let caps = abi::KFI_RMA | abi::KFI_TRIGGER;
            let attr = arg!(kfabric_ep_open: caps, tx_size: 16_384);
            let party = file.party_with(domain, queue, attr);
            let absent = u32::from_ne_bytes([192, 0, 2, 99]);
            let peer = file
                .insert(party.av, with!(party.name; v4: absent))
                .expect("insert");
            let pages = Pages::new(1);
            let list: Vec<abi::kfabric_rma_iov> = (0..PIECES as u64)
                .map(|addr| abi::kfabric_rma_iov {
                    addr,
                    len: 1,
                    key: 7,
                })
                .collect();
            let write = data!(kfabric_op:
                opcode: abi::KFABRIC_OP_WRITE, buf: pages.addr(), len: PIECES as u64, peer,
                rma_addr: addr_of(list.as_slice()), rma_iov_count: PIECES as u32
            );
            // The lists of operations that wait for a counter are charged when they are accepted.
            let go = file.cntr(domain);
            for triggers in [false, true] {
                let names = (domain, party.ep, go);
                waiting_op(&file, names, write, triggers).expect("work that waits");
            }
            let mut full = fill(&file, domain);
            full.reverse();
            // The first is one of the largest CQs.
            file.close(full.pop().expect("a CQ")).expect("close");
            let count = (0..20_000)
                .find(|_| match file.post_one(party.ep, write) {
                    Ok(()) => false,
                    Err(error) => {
                        assert_eq!(error, Errno::ENOMEM);
                        true
                    }
                })
                .expect("a limit");
            let room = 16 << 20;
            assert!(
                (1..room / LIST).contains(&count),
                "{count} writes in the room of one CQ"
            );
            // Those that wait need no more memory for their lists.
            file.cntr_add(go, 1);
            // All end when the peer has not answered, and return the memory.
            for _ in 0..count + 2 {
                refused(file.cq_wait(party.cq, u64::MAX), Errno::KFI_EAVAIL);
                let failed = file.cq_readerr(party.cq).expect("the error");
                assert_ne!(failed.err, Errno::ENOMEM.raw() as u32);
            }
            file.post_one(party.ep, write).expect("there is room");
            file.close_all(&full);
        });
    });
}

/// A mapping of a CQ's ring or of a counter's page, which stays until [`unmap`].
pub(crate) fn map(file: &File, offset: u64, len: usize) -> usize {
    let (prot, flags) = (rustix::mm::ProtFlags::READ, rustix::mm::MapFlags::SHARED);
    // SAFETY: a new mapping, at an address of the kernel's choice.
    let at = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, prot, flags, file, offset) };
    at.expect("mmap").expose_provenance()
}

/// Unmaps a part of a mapping.
pub(crate) fn unmap(at: usize, len: usize) {
    let at = std::ptr::with_exposed_provenance_mut(at);
    // SAFETY: nobody uses it any more.
    unsafe { rustix::mm::munmap(at, len) }.expect("munmap");
}

fn pages_count_as_long_as_they_are_mapped() {
    File::open();
    open_to_all();
    as_user(|| {
        let (file, _, domain) = File::open_only().and_domain();
        let open = || file.call(arg!(kfabric_cq_open: domain, entries: 65_536));
        // Makes rings of closed CQs until the user's memory is used up.
        let mut rings = Vec::new();
        while let Ok(cq) = open() {
            rings.push((
                map(&file, cq.ring_offset, cq.ring_size as usize),
                cq.ring_size as usize,
            ));
            file.close(cq.handle).expect("close");
            assert!(rings.len() < 100, "{} rings of closed CQs", rings.len());
        }
        assert!(rings.len() > 10, "{} rings", rings.len());
        // A part of a mapping keeps all of its pages. Three mappings take more than a CQ.
        let last = rings.split_off(rings.len() - 3);
        for (at, len) in &last {
            unmap(at + PAGE, len - PAGE);
        }
        refused(open().map(|arg| arg.handle), Errno::ENOMEM);
        for (at, _) in last {
            unmap(at, PAGE);
        }
        let cq = open().expect("what is unmapped can be had again");
        file.close(cq.handle).expect("close");
        // The pages are freed with the mapping, not with the file.
        drop(file);
        let (other, _, domain) = File::open_only().and_domain();
        let most = || {
            let mut cqs = Vec::new();
            while let Ok(handle) = self::cq(&other, domain, 65_536) {
                cqs.push(handle);
            }
            other.close_all(&cqs);
            cqs.len()
        };
        let found = most();
        assert!((1..4).contains(&found), "{found} CQs beside the rings");
        for (at, len) in rings {
            unmap(at, len);
        }
        let found = most();
        assert!(found > 20, "{found} CQs without the rings");
        // The same for counters.
        let mut pages = Vec::new();
        let mut counters = 0;
        let full = fill(&other, domain);
        // The first one is a CQ of 65,536 entries, which takes less memory than 5,000 pages.
        other.close(full[0]).expect("close");
        while let Ok(cntr) = other.call(arg!(kfabric_cntr_open: domain)) {
            counters += 1;
            pages.push(map(&other, cntr.page_offset, PAGE));
            other.close(cntr.handle).expect("close");
            assert!(counters < 5_000, "{counters} pages of closed counters");
        }
        assert!(counters > 1_000, "{counters} pages of closed counters");
        for at in pages {
            unmap(at, PAGE);
        }
    });
}
