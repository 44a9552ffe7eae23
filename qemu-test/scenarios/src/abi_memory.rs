// SPDX-License-Identifier: GPL-2.0
//! Memory regions, mappings, the limit of locked memory: every refusal.

#![allow(unsafe_code, reason = "mappings")]

use crate::{
    abi_threads::as_user,
    harness::tests,
    raw::{ALL_ACCESS, BAD_ADDRS, File, PAGE, Pages, addr_of, arg, data, refused, with},
};
use kfi::{
    Errno,
    abi::{self, Call},
};
use rustix::{
    mm::{MapFlags, ProtFlags},
    process::{Resource, Rlimit, getrlimit, setrlimit},
};

tests![
    invalid_regions_are_refused,
    lists_that_are_too_long_are_refused,
    keys_are_checked,
    unmapped_memory_is_not_registered,
    read_only_memory_is_registered_for_reading_only,
    regions_count_against_the_limit_of_locked_memory,
    operations_count_against_the_limit,
    invalid_offsets_are_not_mapped,
    mappings_that_are_too_long_are_refused,
];

/// Registers a list with this access under key 1.
fn reg(file: &File, domain: u32, iov: &[abi::kfabric_iov], access: u64) -> Result<u32, Errno> {
    file.call(arg!(kfabric_mr_reg:
        domain, iov: addr_of(iov), iov_count: iov.len() as u32, access, requested_key: 1
    ))
    .map(|arg| arg.handle)
}

fn iov(addr: u64, len: u64) -> abi::kfabric_iov {
    abi::kfabric_iov { addr, len }
}

fn invalid_regions_are_refused() {
    let (file, fabric, domain) = File::open().and_domain();
    let pages = Pages::new(1);
    let whole = [iov(pages.addr(), PAGE as u64)];
    refused(reg(&file, domain, &whole, 0), Errno::EINVAL);
    refused(reg(&file, domain, &[], ALL_ACCESS), Errno::EINVAL);
    for offset in [1, u64::MAX] {
        let arg = arg!(kfabric_mr_reg:
            domain, iov: addr_of(&whole), iov_count: 1, access: ALL_ACCESS, offset
        );
        refused(file.call(arg), Errno::EINVAL);
    }
    let (at, most) = (pages.addr(), abi::KFABRIC_MAX_MSG_SIZE);
    for list in [
        // No bytes.
        vec![iov(at, 0)],
        vec![iov(at, 0); 3],
        // Too many.
        vec![iov(at, most + 1)],
        vec![iov(at, most), iov(at, 1)],
        vec![iov(at, most / 2); 3],
        // Lengths whose sum wraps.
        vec![iov(at, u64::MAX), iov(at, 2)],
        vec![iov(at, 1 << 63), iov(at, (1 << 63) + 8)],
        // A range that wraps.
        vec![iov(u64::MAX - 7, 16)],
        vec![iov(at, 8), iov(u64::MAX - 4095, 4096)],
    ] {
        refused(reg(&file, domain, &list, ALL_ACCESS), Errno::EINVAL);
    }
    // An empty element is not allowed.
    let mr = reg(&file, domain, &[iov(8, 0), whole[0], iov(8, 0)], ALL_ACCESS);
    let mr = mr.expect("the key is free, and nothing is charged");
    file.close_all(&[mr, domain, fabric]);
}

fn lists_that_are_too_long_are_refused() {
    let (file, fabric, domain) = File::open().and_domain();
    let pages = Pages::new(1);
    let most = abi::KFABRIC_MAX_IOV as usize;
    let list = vec![iov(pages.addr(), 8); most + 1];
    refused(reg(&file, domain, &list, ALL_ACCESS), Errno::EINVAL);
    let arg = arg!(kfabric_mr_reg:
        domain, iov: addr_of(&list[..]), iov_count: u32::MAX, access: ALL_ACCESS
    );
    refused(file.call(arg), Errno::EINVAL);
    let mr = reg(&file, domain, &list[..most], ALL_ACCESS).expect("the longest list");
    // A list that is not mapped completely.
    let cut = Pages::new(1);
    let arg = with!(arg; iov: cut.before_hole(24), iov_count: 2);
    refused(file.call(arg), Errno::EFAULT);
    file.close_all(&[mr, domain, fabric]);
}

fn keys_are_checked() {
    let (file, fabric, domain) = File::open().and_domain();
    let pages = Pages::new(1);
    let at = pages.addr();
    let with_key = |domain, key| file.reg(domain, at, 8, key);
    for key in [1 << 32, 1 << 63, u64::MAX] {
        refused(with_key(domain, key), Errno::EKEYREJECTED);
    }
    for key in [0, 1, u64::from(u32::MAX)] {
        let mr = with_key(domain, key).expect("a key of 4 bytes");
        refused(with_key(domain, key), Errno::KFI_ENOKEY);
        // In another domain the same key is another region.
        let domain2 = file.domain(fabric);
        let other = with_key(domain2, key).expect("another domain");
        file.close_all(&[other, domain2, mr]);
        let again = with_key(domain, key).expect("the key is free again");
        file.close_all(&[again]);
    }
    // Where the provider chooses keys, the requested key is ignored.
    let theirs = file.make(arg!(kfabric_domain_open:
        fabric, link: crate::raw::text(crate::host::LINK), mr_mode: abi::KFI_MR_PROV_KEY
    ));
    let mrs = [7, 7, u64::MAX].map(|key| with_key(theirs, key).expect("any key"));
    file.close_all(&mrs);
    file.close_all(&[theirs, domain, fabric]);
}

fn unmapped_memory_is_not_registered() {
    let (file, fabric, domain) = File::open().and_domain();
    let pages = Pages::new(2);
    let good = iov(pages.addr(), PAGE as u64);
    let hole = [pages.hole(), pages.before_hole(1), pages.before_hole(PAGE)];
    for addr in BAD_ADDRS[..3].iter().chain(&hole) {
        for access in [ALL_ACCESS, abi::KFI_SEND, abi::KFI_REMOTE_READ] {
            let wrong = iov(*addr, PAGE as u64 + 1);
            refused(reg(&file, domain, &[wrong], access), Errno::EFAULT);
            refused(reg(&file, domain, &[good, wrong], access), Errno::EFAULT);
        }
    }
    pages.protect(false);
    refused(reg(&file, domain, &[good], abi::KFI_SEND), Errno::EFAULT);
    // The values of a counter, which no program may write.
    let cntr = file.call(arg!(kfabric_cntr_open: domain)).expect("cntr");
    let at = map(&file, cntr.page_offset, PAGE, ProtFlags::READ).expect("mmap");
    let values = [iov(at, 16)];
    for writes in [abi::KFI_RECV, abi::KFI_READ, abi::KFI_REMOTE_WRITE] {
        refused(reg(&file, domain, &values, writes), Errno::EFAULT);
    }
    file.close_all(&[cntr.handle, domain, fabric]);
}

fn read_only_memory_is_registered_for_reading_only() {
    let (file, fabric, domain) = File::open().and_domain();
    let pages = Pages::new(1);
    pages.protect(true);
    let whole = [iov(pages.addr(), PAGE as u64)];
    for writes in [abi::KFI_RECV, abi::KFI_READ, abi::KFI_REMOTE_WRITE] {
        refused(reg(&file, domain, &whole, writes), Errno::EFAULT);
        let more = writes | abi::KFI_SEND;
        refused(reg(&file, domain, &whole, more), Errno::EFAULT);
    }
    for reads in [abi::KFI_SEND, abi::KFI_WRITE, abi::KFI_REMOTE_READ] {
        let mr = reg(&file, domain, &whole, reads).expect("reading is enough");
        file.close_all(&[mr]);
    }
    file.close_all(&[domain, fabric]);
}

/// Lowers the limit of locked memory to this number of pages, for an ordinary
/// user.
fn limit_locked(pages: usize) {
    let limit = Rlimit {
        current: Some((pages * PAGE) as u64),
        ..getrlimit(Resource::Memlock)
    };
    setrlimit(Resource::Memlock, limit).expect("setrlimit");
}

fn regions_count_against_the_limit_of_locked_memory() {
    let (file, fabric, domain) = File::open().and_domain();
    let pages = Pages::new(16);
    limit_locked(8);
    let at = pages.addr();
    let whole = |count: usize, key| file.reg(domain, at, (count * PAGE) as u64, key);
    as_user(|| {
        refused(whole(9, 1), Errno::ENOMEM);
        let mr = whole(8, 1).expect("exactly the limit");
        refused(whole(1, 2), Errno::ENOMEM);
        // One byte more takes another page, and so does a buffer that crosses a
        // page boundary.
        file.close_all(&[mr]);
        let mr = file.reg(domain, at + 4000, 200, 1).expect("two pages");
        refused(whole(7, 2), Errno::ENOMEM);
        let six = whole(6, 2).expect("what is left");
        file.close_all(&[mr, six]);
        // A refused key takes nothing from the limit.
        let mr = whole(4, 1).expect("mr");
        for _ in 0..10 {
            refused(whole(4, 1), Errno::KFI_ENOKEY);
        }
        let more = whole(4, 2).expect("nothing was charged for the refused ones");
        file.close_all(&[mr, more]);
        // Nor does memory that is not mapped.
        for _ in 0..10 {
            refused(
                file.reg(domain, pages.hole() - 4096, 8192, 1),
                Errno::EFAULT,
            );
        }
        let mr = whole(8, 1).expect("mr");
        file.close_all(&[mr]);
    });
    // A process with `CAP_IPC_LOCK` has no limit.
    let mr = whole(16, 1).expect("root");
    file.close_all(&[mr, domain, fabric]);
}

fn operations_count_against_the_limit() {
    let (file, fabric, domain) = File::open().and_domain();
    let party = file.party(domain, Call::sized());
    let pages = Pages::new(16);
    limit_locked(8);
    let op = |opcode, count: usize, context| {
        data!(kfabric_op:
            opcode, context, buf: pages.addr(), len: (count * PAGE) as u64,
            peer: if opcode == abi::KFABRIC_OP_RECV { abi::KFI_ADDR_UNSPEC } else { party.me }
        )
    };
    let cancel = |context| {
        file.call(arg!(kfabric_ep_cancel: ep: party.ep, context))
            .expect("cancel");
        refused(file.cq_read(party.cq), Errno::KFI_EAVAIL);
        file.cq_readerr(party.cq).expect("readerr");
    };
    as_user(|| {
        for opcode in [
            abi::KFABRIC_OP_RECV,
            abi::KFABRIC_OP_SEND,
            abi::KFABRIC_OP_TSEND,
        ] {
            let result = file.post_one(party.ep, op(opcode, 9, 1));
            refused(result, Errno::ENOMEM);
        }
        // A receive that waits holds its pages.
        file.post_one(party.ep, op(abi::KFABRIC_OP_RECV, 8, 1))
            .expect("exactly the limit");
        let result = file.post_one(party.ep, op(abi::KFABRIC_OP_RECV, 1, 2));
        refused(result, Errno::ENOMEM);
        cancel(1);
        // And a send.
        file.post_one(party.ep, op(abi::KFABRIC_OP_TSEND, 8, 3))
            .expect("send");
        let result = file.post_one(party.ep, op(abi::KFABRIC_OP_RECV, 1, 2));
        refused(result, Errno::ENOMEM);
        cancel(3);
        file.post_one(party.ep, op(abi::KFABRIC_OP_RECV, 8, 4))
            .expect("all was given back");
        cancel(4);
        refused(file.cq_read(party.cq), Errno::EAGAIN);
    });
    file.part(&party);
    file.close_all(&[domain, fabric]);
}

/// mmap(2) of the device; returns the address.
fn map(file: &File, offset: u64, len: usize, prot: ProtFlags) -> Result<u64, i32> {
    let at = std::ptr::null_mut();
    // SAFETY: a new mapping at an address of the kernel's choice.
    let at = unsafe { rustix::mm::mmap(at, len, prot, MapFlags::SHARED, file, offset) };
    at.map(|at| at.expose_provenance() as u64)
        .map_err(|e| e.raw_os_error())
}

fn ptr(addr: u64) -> *mut std::ffi::c_void {
    std::ptr::with_exposed_provenance_mut(addr as usize)
}

const EINVAL: i32 = 22;

fn invalid_offsets_are_not_mapped() {
    let (file, fabric, domain) = File::open().and_domain();
    let cntr = file.call(arg!(kfabric_cntr_open: domain)).expect("cntr");
    let cq = file.call(arg!(kfabric_cq_open: domain)).expect("cq");
    // A valid offset of a handle.
    let window = cntr.page_offset / u64::from(cntr.handle);
    let (eq, av, ep) = (file.eq(fabric), file.av(domain), file.ep(domain));
    let none = [0, 60_000, 65_535, 65_536, u32::MAX];
    for handle in [fabric, domain, eq, av, ep].into_iter().chain(none) {
        let result = map(&file, u64::from(handle) * window, PAGE, ProtFlags::READ);
        assert_eq!(result, Err(EINVAL), "handle {handle}");
    }
    for object in [cntr.page_offset, cq.ring_offset] {
        for inside in [PAGE as u64, window / 2, window - PAGE as u64] {
            let result = map(&file, object + inside, PAGE, ProtFlags::READ);
            assert_eq!(result, Err(EINVAL), "{inside:#x} behind it");
        }
    }
    // Another open file does not have the object.
    let other = File::open();
    let result = map(&other, cntr.page_offset, PAGE, ProtFlags::READ);
    assert_eq!(result, Err(EINVAL));
    // Nor does this one, after it is closed.
    file.close_all(&[cntr.handle]);
    let result = map(&file, cntr.page_offset, PAGE, ProtFlags::READ);
    assert_eq!(result, Err(EINVAL));
    file.close_all(&[cq.handle, eq, av, ep, domain, fabric]);
}

fn mappings_that_are_too_long_are_refused() {
    let (file, fabric, domain) = File::open().and_domain();
    let cntr = file.call(arg!(kfabric_cntr_open: domain)).expect("cntr");
    let cq = file
        .call(arg!(kfabric_cq_open: domain, entries: 256))
        .expect("cq");
    let ring = (cq.ring_size as usize).next_multiple_of(PAGE);
    for (offset, len) in [(cntr.page_offset, PAGE), (cq.ring_offset, ring)] {
        for more in [PAGE, 100 * PAGE] {
            let result = map(&file, offset, len + more, ProtFlags::READ);
            assert_eq!(result, Err(EINVAL));
        }
        let at = map(&file, offset, len, ProtFlags::READ).expect("all of it");
        // It cannot be made longer afterwards.
        // SAFETY: the mapping is the test's.
        let longer = unsafe {
            rustix::mm::mremap(ptr(at), len, len + PAGE, rustix::mm::MremapFlags::MAYMOVE)
        };
        assert!(longer.is_err(), "{longer:?}");
    }
    file.close_all(&[cntr.handle, cq.handle, domain, fabric]);
}
