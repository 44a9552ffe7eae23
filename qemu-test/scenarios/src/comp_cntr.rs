// SPDX-License-Identifier: GPL-2.0
//! Completion counters of verbs changed by calls: values, attributes, attaching, limits.
//!
//! What operations add is in [`counted`], external memory in [`external`](mod@external), and the end of programs
//! and mappings while operations count in [`gone`]. Tests with a lowered maximum are in
//! [`module`](crate::module).

#![allow(unsafe_code, reason = "mappings")]

pub(crate) mod counted;
pub(crate) mod external;
pub(crate) mod gone;

use crate::{
    alone::stat_of,
    harness::tests,
    host::{Host, Options, device, domain, errno},
    raw::{File, arg, refused, with},
};
use kfi::{
    Buffer, CompCntr, CompCntrOps, CompCntrType, CqBind, Domain, Endpoint, EpType, Errno,
    MemoryLocation, StatClass, StatValues, abi,
};

tests![
    a_new_counter_is_zero,
    capabilities_are_reported,
    each_count_is_set_and_incremented,
    counts_wrap_at_the_full_width,
    counts_are_mapped_read_only,
    attributes_of_a_counter_are_checked,
    the_number_of_counters_is_limited => 300,
    attaching_is_checked,
    rdma_of_datagrams_is_not_supported,
    each_operation_has_one_counter,
    an_enabled_endpoint_attaches_nothing,
    an_attached_counter_is_busy,
    a_counter_stays_attached_until_the_endpoint_closes,
    counters_replace_a_cq,
    statistics_show_counters,
    threads_increment_and_lose_nothing => 120,
];

/// Every operation that can be counted.
pub(crate) const ALL: CompCntrOps = CompCntrOps::from_bits_retain(0x3f);

/// A counter of work requests in a domain of its own.
fn counter() -> CompCntr {
    domain().1.comp_cntr().create().expect("create")
}

/// A counter of work requests with its counts in these places.
pub(crate) fn external(
    domain: &Domain,
    comp: MemoryLocation<'_>,
    err: MemoryLocation<'_>,
) -> CompCntr {
    let cntr = domain.comp_cntr().external(comp, err);
    cntr.create().expect("create")
}

/// Both counts, by calls.
#[track_caller]
pub(crate) fn counts(cntr: &CompCntr) -> (u64, u64) {
    (cntr.read().expect("read"), cntr.read_err().expect("read"))
}

fn a_new_counter_is_zero() {
    for unit in [CompCntrType::Wrs, CompCntrType::Bytes] {
        let cntr = domain().1.comp_cntr().unit(unit).create().expect("create");
        assert_eq!(counts(&cntr), (0, 0));
        assert_eq!((cntr.comp_count(), cntr.err_count()), (Some(0), Some(0)));
        cntr.close().expect("destroy");
    }
}

fn capabilities_are_reported() {
    let (_, domain) = domain();
    let caps = domain.comp_cntr_caps().expect("caps");
    assert_eq!(caps.max_value, u64::MAX);
    assert_eq!(caps.max_counters, 4096);
    assert_eq!(caps.supported_qp_attach_ops, ALL);
    assert_eq!(device().query().expect("query").max_comp_cntr, 4096);
    let cntr = domain.comp_cntr().create().expect("create");
    assert_eq!(cntr.comp_count_max_value(), caps.max_value);
    assert_eq!(cntr.err_count_max_value(), caps.max_value);
}

fn each_count_is_set_and_incremented() {
    let cntr = counter();
    let both = || {
        let (comp, err) = counts(&cntr);
        assert_eq!(
            (cntr.comp_count(), cntr.err_count()),
            (Some(comp), Some(err))
        );
        (comp, err)
    };
    cntr.inc(5).expect("inc");
    assert_eq!(both(), (5, 0));
    cntr.inc_err(2).expect("inc_err");
    assert_eq!(both(), (5, 2));
    cntr.inc(0).expect("inc");
    cntr.inc_err(0).expect("inc_err");
    assert_eq!(both(), (5, 2));
    cntr.set(1).expect("set");
    assert_eq!(both(), (1, 2));
    cntr.set_err(7).expect("set_err");
    assert_eq!(both(), (1, 7));
    cntr.set(u64::MAX).expect("set");
    cntr.set_err(0).expect("set_err");
    assert_eq!(both(), (u64::MAX, 0));
}

fn counts_wrap_at_the_full_width() {
    let cntr = counter();
    cntr.set(cntr.comp_count_max_value()).expect("set");
    cntr.inc(1).expect("inc");
    assert_eq!(counts(&cntr), (0, 0));
    cntr.set_err(cntr.err_count_max_value()).expect("set_err");
    cntr.inc_err(1).expect("inc_err");
    assert_eq!(counts(&cntr), (0, 0));
    // The counts are those of modular arithmetic.
    cntr.set(u64::MAX - 1).expect("set");
    cntr.inc(5).expect("inc");
    cntr.set_err(u64::MAX - 1).expect("set_err");
    cntr.inc_err(7).expect("inc_err");
    assert_eq!(counts(&cntr), (3, 5));
    // No value is above the maximum; see [`module`](crate::module) for a lower one.
    cntr.set(u64::MAX).expect("set");
    cntr.inc(u64::MAX).expect("inc");
    assert_eq!(counts(&cntr), (u64::MAX - 1, 5));
}

fn counts_are_mapped_read_only() {
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
    let file = File::open();
    let domain = file.domain(file.fabric());
    let made = file
        .call(arg!(kfabric_comp_cntr_create: domain))
        .expect("create");
    let map = |prot, len| {
        // SAFETY: a new mapping.
        unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                prot,
                MapFlags::SHARED,
                &file,
                made.page_offset,
            )
        }
    };
    assert_eq!(
        map(ProtFlags::READ | ProtFlags::WRITE, 4096),
        Err(rustix::io::Errno::ACCESS)
    );
    assert_eq!(map(ProtFlags::READ, 8192), Err(rustix::io::Errno::INVAL));
    let page = map(ProtFlags::READ, 4096).expect("mmap");
    file.call(arg!(kfabric_comp_cntr_modify:
        comp_cntr: made.handle, op: abi::KFABRIC_COMP_CNTR_MODIFY_INC, value: 3
    ))
    .expect("inc");
    // SAFETY: mapped above, whole words.
    let seen = unsafe { page.cast::<[u64; 2]>().read_volatile() };
    assert_eq!(seen, [3, 0]);
    // The page stays as long as the mapping.
    file.close(made.handle).expect("destroy");
    // SAFETY: as above.
    let seen = unsafe { page.cast::<[u64; 2]>().read_volatile() };
    assert_eq!(seen, [3, 0]);
    // SAFETY: mapped above, and not used any more.
    unsafe { munmap(page, 4096) }.expect("munmap");
}

fn attributes_of_a_counter_are_checked() {
    let file = File::open();
    let good = arg!(kfabric_comp_cntr_create: domain: file.domain(file.fabric()));
    refused(file.call(with!(good; type_: 2)), Errno::EINVAL);
    // Without the flag the places for external memory are not looked at.
    let nowhere = abi::kfabric_memory_location {
        ptr: 3,
        offset: 5,
        fd: -1,
        type_: 9,
    };
    let cntr = file.make(with!(good; comp_cntr_ext_mem: nowhere, err_cntr_ext_mem: nowhere));
    for (entry, op) in [(2, 0), (0, 2), (u32::MAX, 1), (1, u32::MAX)] {
        let wrong = arg!(kfabric_comp_cntr_modify: comp_cntr: cntr, entry, op);
        refused(file.call(wrong), Errno::EINVAL);
    }
    let wrong = arg!(kfabric_comp_cntr_read: comp_cntr: cntr, entry: 2);
    refused(file.call(wrong), Errno::EINVAL);
}

fn the_number_of_counters_is_limited() {
    let file = File::open();
    let fabric = file.fabric();
    let (domain, other) = (file.domain(fabric), file.domain(fabric));
    let create = |domain| file.call(arg!(kfabric_comp_cntr_create: domain));
    let made: Vec<u32> = (0..4096)
        .map(|_| create(domain).expect("create").handle)
        .collect();
    refused(create(domain), Errno::ENOMEM);
    create(other).expect("another domain has its own");
    file.close(made[17]).expect("destroy");
    create(domain).expect("there is room for one again");
    refused(create(domain), Errno::ENOMEM);
    // A counter that is refused for another reason takes no place.
    file.close(made[18]).expect("destroy");
    refused(
        file.call(arg!(kfabric_comp_cntr_create:
            domain, flags: abi::KFABRIC_COMP_CNTR_INIT_WITH_EXTERNAL_MEM
        )),
        Errno::EINVAL,
    );
    create(domain).expect("the place is still there");
}

/// An endpoint of this type, not enabled.
fn endpoint(domain: &Domain, ep_type: EpType) -> Endpoint {
    domain.endpoint().ep_type(ep_type).open().expect("endpoint")
}

fn attaching_is_checked() {
    let file = File::open();
    let (domain, elsewhere) = (file.domain(file.fabric()), file.domain(file.fabric()));
    let (ep, cntr) = (file.ep(domain), file.comp_cntr(domain));
    let attach = |comp_cntr, op_mask| {
        let arg = arg!(kfabric_comp_cntr_attach: ep, comp_cntr, op_mask);
        refused(file.call(arg), Errno::EINVAL);
    };
    for wrong in [0, 1 << 6, 0x41] {
        attach(cntr, wrong);
    }
    attach(file.comp_cntr(elsewhere), 1);
    // Nothing was attached by any of these.
    file.close(cntr).expect("destroy");
}

fn rdma_of_datagrams_is_not_supported() {
    let (_, domain) = domain();
    let cntr = domain.comp_cntr().create().expect("create");
    let ep = endpoint(&domain, EpType::Dgram);
    let messages = CompCntrOps::SEND | CompCntrOps::RECV;
    for rdma in ALL.difference(messages).iter() {
        for ops in [rdma, rdma | messages] {
            let result = ep.attach_comp_cntr(&cntr, ops);
            assert_eq!(errno(result), Some(Errno::EOPNOTSUPP), "{ops:?}");
        }
    }
    ep.attach_comp_cntr(&cntr, messages).expect("attach");
    for ep_type in [EpType::Msg, EpType::Rdm] {
        let ep = endpoint(&domain, ep_type);
        ep.attach_comp_cntr(&cntr, ALL).expect("attach");
    }
}

fn each_operation_has_one_counter() {
    let (_, domain) = domain();
    let (one, two) = (
        domain.comp_cntr().create().expect("create"),
        domain.comp_cntr().create().expect("create"),
    );
    let ep = endpoint(&domain, EpType::Rdm);
    ep.attach_comp_cntr(&one, CompCntrOps::SEND | CompCntrOps::RDMA_READ)
        .expect("attach");
    for taken in [
        CompCntrOps::SEND,
        CompCntrOps::RDMA_READ,
        CompCntrOps::SEND | CompCntrOps::RECV,
        ALL,
    ] {
        for cntr in [&one, &two] {
            let result = ep.attach_comp_cntr(cntr, taken);
            assert_eq!(errno(result), Some(Errno::EBUSY), "{taken:?}");
        }
    }
    // Nothing of the refused ones was attached: RECV is free.
    ep.attach_comp_cntr(&two, CompCntrOps::RECV)
        .expect("attach");
    ep.attach_comp_cntr(&one, CompCntrOps::RDMA_WRITE)
        .expect("a counter can be attached again, for more");
}

fn an_enabled_endpoint_attaches_nothing() {
    for ep_type in [EpType::Rdm, EpType::Msg, EpType::Dgram] {
        let caps = match ep_type {
            EpType::Rdm => Options::default().caps,
            _ => kfi::Caps::MSG,
        };
        let host = Host::with(&Options {
            ep_type,
            caps,
            ..Options::default()
        });
        let cntr = host.domain.comp_cntr().create().expect("create");
        let result = host.ep.attach_comp_cntr(&cntr, CompCntrOps::SEND);
        assert_eq!(errno(result), Some(Errno::EINVAL), "{ep_type}");
        cntr.close().expect("it is not attached");
    }
}

fn an_attached_counter_is_busy() {
    let file = File::open();
    let domain = file.domain(file.fabric());
    let (ep, cntr) = (file.ep(domain), file.comp_cntr(domain));
    let attach = |op_mask| file.call(arg!(kfabric_comp_cntr_attach: ep, comp_cntr: cntr, op_mask));
    refused(file.close(domain), Errno::EBUSY);
    attach(1).expect("attach");
    refused(file.close(cntr), Errno::EBUSY);
    attach(2).expect("attach");
    refused(file.close(cntr), Errno::EBUSY);
    // It still counts.
    let modify = arg!(kfabric_comp_cntr_modify:
        comp_cntr: cntr, op: abi::KFABRIC_COMP_CNTR_MODIFY_INC, value: 1
    );
    file.call(modify).expect("inc");
    file.close_all(&[ep, cntr, domain]);
    refused(file.call(modify), Errno::EBADF);
}

fn a_counter_stays_attached_until_the_endpoint_closes() {
    let file = File::open();
    let domain = file.domain(file.fabric());
    let (cq, av) = (file.cq(domain), file.av(domain));
    let cntr = file.comp_cntr(domain);
    // Enabled or not, two endpoints or one.
    let eps = [file.ep(domain), file.ep(domain)];
    for ep in eps {
        file.bind(ep, cq, abi::KFI_SEND | abi::KFI_RECV)
            .expect("bind");
        file.bind(ep, av, 0).expect("bind");
        file.call(arg!(kfabric_comp_cntr_attach: ep, comp_cntr: cntr, op_mask: 0x3f))
            .expect("attach");
    }
    file.enable(eps[0]).expect("enable");
    refused(file.close(cntr), Errno::EBUSY);
    file.close(eps[0]).expect("close");
    refused(file.close(cntr), Errno::EBUSY);
    file.close(eps[1]).expect("close");
    file.close(cntr).expect("destroy");
}

/// The page: an alternative or extension to completion queues.
fn counters_replace_a_cq() {
    let (_, domain) = domain();
    let av = domain.av().open().expect("av");
    let cntr = domain.comp_cntr().create().expect("create");
    let open = || {
        let ep = endpoint(&domain, EpType::Rdm);
        ep.bind_av(&av).expect("bind");
        ep
    };
    // One direction is missing.
    for ops in [
        CompCntrOps::SEND,
        CompCntrOps::RECV,
        CompCntrOps::RECV | CompCntrOps::REMOTE_RDMA_READ | CompCntrOps::REMOTE_RDMA_WRITE,
    ] {
        let ep = open();
        ep.attach_comp_cntr(&cntr, ops).expect("attach");
        assert_eq!(errno(ep.enable()), Some(Errno::KFI_ENOCQ), "{ops:?}");
    }
    for ops in [
        CompCntrOps::SEND | CompCntrOps::RECV,
        CompCntrOps::RDMA_READ | CompCntrOps::RECV,
        CompCntrOps::RDMA_WRITE | CompCntrOps::RECV,
    ] {
        let ep = open();
        ep.attach_comp_cntr(&cntr, ops).expect("attach");
        ep.enable().expect("enable");
    }
    // Or a CQ for one direction, and a counter for the other.
    let ep = open();
    let cq = domain.cq().open().expect("cq");
    ep.bind_cq(&cq, CqBind::RECV).expect("bind");
    ep.attach_comp_cntr(&cntr, CompCntrOps::SEND)
        .expect("attach");
    ep.enable().expect("enable");
    let me = av.insert_one(ep.name().expect("name")).expect("insert");
    let buffer = Buffer::new(8).expect("buffer");
    ep.recv(&buffer, 1).expect("recv");
    ep.send(me, &buffer, 2).expect("send");
    assert_eq!(counts(&cntr), (1, 0));
    // Without a CQ the counter tells that an operation failed.
    ep.write(me, &buffer, kfi::Remote::new(0, 0xdead), 3)
        .expect("write");
    assert_eq!(counts(&cntr), (1, 0), "no counter for writes");
}

fn statistics_show_counters() {
    let (_, domain) = domain();
    let memory = Buffer::new(16).expect("buffer");
    let cntr = domain
        .comp_cntr()
        .unit(CompCntrType::Bytes)
        .external(
            kfi::MemoryLocation::va(&memory, 0),
            kfi::MemoryLocation::va(&memory, 8),
        )
        .create()
        .expect("create");
    let handle = cntr.handle();
    let shown = || stat_of(StatClass::CompCntr, handle);
    let expected = |comp, err, attached| {
        Some(StatValues::CompCntr {
            comp,
            err,
            max: u64::MAX,
            attached,
            unit: CompCntrType::Bytes,
            external: true,
        })
    };
    assert_eq!(shown(), expected(0, 0, 0));
    cntr.inc(9).expect("inc");
    cntr.inc_err(1).expect("inc_err");
    let ep = endpoint(&domain, EpType::Rdm);
    ep.attach_comp_cntr(&cntr, CompCntrOps::SEND)
        .expect("attach");
    ep.attach_comp_cntr(&cntr, CompCntrOps::RECV)
        .expect("attach");
    assert_eq!(shown(), expected(9, 1, 2));
    drop(ep);
    assert_eq!(shown(), expected(9, 1, 0));
    cntr.close().expect("destroy");
    assert_eq!(shown(), None, "it is still listed");
}

fn threads_increment_and_lose_nothing() {
    let cntr = counter();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    cntr.inc(1).expect("inc");
                    cntr.inc_err(2).expect("inc_err");
                }
            });
        }
    });
    assert_eq!(counts(&cntr), (160_000, 320_000));
    assert_eq!(cntr.comp_count(), Some(160_000));
}
