// SPDX-License-Identifier: GPL-2.0
//! Address vectors and getinfo: every refusal, and partial success of lists.

use crate::{
    harness::tests,
    raw::{
        File, PAGE, Pages, addr_of, addr_of_mut, arg, bytes_of, data, ipv4, refused, text, with,
    },
};
use kfi::{Errno, abi};

tests![
    av_types_and_sizes_are_checked,
    invalid_lists_are_refused,
    invalid_addresses_are_not_inserted,
    insertions_with_unwritable_results_are_undone,
    a_full_av_refuses_addresses => 120,
    invalid_address_text_is_refused,
    events_need_an_eq,
    getinfo_refuses_invalid_arguments,
];

/// `insert` with addresses of arrays of its own.
fn insert(
    file: &File,
    av: u32,
    addrs: &[abi::kfabric_sockaddr],
    fi_addrs: &mut [u64],
    errors: Option<&mut [i32]>,
) -> Result<u32, Errno> {
    assert_eq!(addrs.len(), fi_addrs.len());
    let (flags, errors) = match errors {
        Some(errors) => (abi::KFI_SYNC_ERR, addr_of_mut(errors)),
        None => (0, 0),
    };
    file.call(arg!(kfabric_av_insert:
        av, flags, addrs: addr_of(addrs), fi_addrs: addr_of_mut(fi_addrs), errors,
        count: addrs.len() as u32
    ))
    .map(|arg| arg.inserted)
}

fn lookup(file: &File, av: u32, fi_addr: u64) -> Result<abi::kfabric_sockaddr, Errno> {
    file.call(arg!(kfabric_av_lookup: av, fi_addr))
        .map(|arg| arg.addr)
}

fn remove(file: &File, av: u32, fi_addrs: &[u64]) -> Result<(), Errno> {
    file.call(arg!(kfabric_av_remove:
        av, fi_addrs: addr_of(fi_addrs), count: fi_addrs.len() as u32
    ))
    .map(|_| ())
}

fn bad() -> abi::kfabric_sockaddr {
    data!(kfabric_sockaddr: family: 99)
}

fn av_types_and_sizes_are_checked() {
    let (file, fabric, domain) = File::open().and_domain();
    let open = |type_, count| file.call(arg!(kfabric_av_open: domain, type_, count));
    for type_ in [3, u32::MAX] {
        refused(open(type_, 0), Errno::EINVAL);
    }
    for count in [abi::KFABRIC_MAX_AV + 1, u32::MAX] {
        refused(open(abi::KFI_AV_TABLE, count), Errno::EINVAL);
    }
    let chosen = open(abi::KFI_AV_UNSPEC, 0).expect("open");
    assert!([abi::KFI_AV_MAP, abi::KFI_AV_TABLE].contains(&chosen.type_));
    let largest = open(abi::KFI_AV_MAP, abi::KFABRIC_MAX_AV).expect("open");
    assert_eq!(largest.type_, abi::KFI_AV_MAP);
    file.close_all(&[chosen.handle, largest.handle, domain, fabric]);
}

fn invalid_lists_are_refused() {
    let (file, fabric, domain) = File::open().and_domain();
    let av = file.av(domain);
    let addrs = [ipv4([10, 0, 0, 1], 1)];
    let mut fi_addrs = [7u64];
    let mut errors = [7i32];
    let good = arg!(kfabric_av_insert:
        av, addrs: addr_of(&addrs), fi_addrs: addr_of_mut(&mut fi_addrs), count: 1
    );
    for count in [0, abi::KFABRIC_MAX_AV + 1, u32::MAX] {
        refused(
            file.call(abi::kfabric_av_insert { count, ..good }),
            Errno::EINVAL,
        );
    }
    // The flag and the pointer for errors must be given together.
    let flags = abi::KFI_SYNC_ERR;
    refused(
        file.call(abi::kfabric_av_insert { flags, ..good }),
        Errno::EINVAL,
    );
    let errors = addr_of_mut(&mut errors);
    refused(
        file.call(abi::kfabric_av_insert { errors, ..good }),
        Errno::EINVAL,
    );
    assert_eq!(fi_addrs, [7]);
    // In a table the caller knows the numbers itself, in a map it does not.
    let map = file.make(arg!(kfabric_av_open: domain, type_: abi::KFI_AV_MAP));
    let untold = with!(good; fi_addrs: 0);
    refused(
        file.call(abi::kfabric_av_insert { av: map, ..untold }),
        Errno::EINVAL,
    );
    assert_eq!(file.call(untold).expect("insert").inserted, 1);
    assert_eq!(lookup(&file, av, 0), Ok(addrs[0]));
    // Nothing had been inserted before.
    refused(lookup(&file, av, 1), Errno::ENOENT);
    file.close_all(&[av, map, domain, fabric]);
}

fn invalid_addresses_are_not_inserted() {
    let (file, fabric, domain) = File::open().and_domain();
    let av = file.av(domain);
    let good = |port| ipv4([10, 0, 0, 1], port);
    let mut fi_addrs = [7u64; 3];
    // None of them can be inserted: the call fails.
    refused(
        insert(&file, av, &[bad()], &mut fi_addrs[..1], None),
        Errno::EINVAL,
    );
    refused(
        insert(&file, av, &[bad(); 3], &mut fi_addrs, None),
        Errno::EINVAL,
    );
    assert_eq!(fi_addrs, [abi::KFI_ADDR_NOTAVAIL; 3]);
    let mut errors = [7i32; 3];
    let none = insert(&file, av, &[bad(); 3], &mut fi_addrs, Some(&mut errors));
    refused(none, Errno::EINVAL);
    assert_eq!(errors, [Errno::EINVAL.raw(); 3]);
    // Some of them can be inserted: the call returns their number.
    let addrs = [good(1), bad(), good(2)];
    let inserted = insert(&file, av, &addrs, &mut fi_addrs, Some(&mut errors));
    assert_eq!(inserted, Ok(2));
    assert_eq!(fi_addrs[1], abi::KFI_ADDR_NOTAVAIL);
    assert_eq!(errors, [0, Errno::EINVAL.raw(), 0]);
    assert_eq!(lookup(&file, av, fi_addrs[0]), Ok(good(1)));
    assert_eq!(lookup(&file, av, fi_addrs[2]), Ok(good(2)));
    // Without KFI_SYNC_ERR, too.
    assert_eq!(insert(&file, av, &addrs, &mut fi_addrs, None), Ok(2));
    assert_eq!(fi_addrs, [2, abi::KFI_ADDR_NOTAVAIL, 3]);
    // A port or the number of a QP, which has 24 bits.
    for (port, qpn) in [(3, 1), (3, 0x02_0003), (0, 1 << 24), (0, 1 << 31)] {
        let addr = abi::kfabric_sockaddr { qpn, ..good(port) };
        refused(
            insert(&file, av, &[addr], &mut fi_addrs[..1], None),
            Errno::EINVAL,
        );
    }
    file.close_all(&[av, domain, fabric]);
}

fn insertions_with_unwritable_results_are_undone() {
    let (file, fabric, domain) = File::open().and_domain();
    let addrs: Vec<_> = (1..=8).map(|port| ipv4([10, 0, 0, 1], port)).collect();
    let pages = Pages::new(1);
    for (fi_addr_room, error_room, addr_room) in [(32, 64, 8), (64, 10, 8), (64, 64, 4)] {
        let av = file.av(domain);
        let reported = Pages::new(1);
        let list = Pages::new(1);
        let bytes: Vec<u8> = addrs.iter().take(addr_room).flat_map(bytes_of).collect();
        list.write(PAGE - bytes.len(), &bytes);
        let arg = arg!(kfabric_av_insert:
            av, flags: abi::KFI_SYNC_ERR, addrs: list.before_hole(bytes.len()),
            fi_addrs: pages.before_hole(fi_addr_room), errors: reported.before_hole(error_room),
            count: 8
        );
        refused(file.call(arg), Errno::EFAULT);
        for fi_addr in 0..8 {
            refused(lookup(&file, av, fi_addr), Errno::ENOENT);
        }
        // Their numbers are free, too.
        let mut first = [7u64];
        assert_eq!(insert(&file, av, &addrs[..1], &mut first, None), Ok(1));
        assert_eq!(first, [0]);
        file.close_all(&[av]);
    }
    file.close_all(&[domain, fabric]);
}

fn a_full_av_refuses_addresses() {
    let (file, fabric, domain) = File::open().and_domain();
    let av = file.av(domain);
    let most = abi::KFABRIC_MAX_AV as usize;
    let addr = |n: usize| ipv4([10, 0, (n >> 16) as u8, 1], n as u16 | 1);
    let addrs: Vec<_> = (0..most - 1).map(addr).collect();
    let mut fi_addrs = vec![0u64; most - 1];
    let inserted = insert(&file, av, &addrs, &mut fi_addrs, None);
    assert_eq!(inserted, Ok(most as u32 - 1));
    // There is room for one of three.
    let more = [addr(1); 3];
    let (mut fi, mut errors) = ([0u64; 3], [0i32; 3]);
    assert_eq!(insert(&file, av, &more, &mut fi, Some(&mut errors)), Ok(1));
    let full = Errno::ENOSPC.raw();
    assert_eq!(errors, [0, full, full]);
    assert_eq!(fi[1..], [abi::KFI_ADDR_NOTAVAIL; 2]);
    refused(insert(&file, av, &more, &mut fi, None), Errno::ENOSPC);
    let svc = arg!(kfabric_av_insertsvc: av, node: text("10.0.0.1"), service: text("1"));
    refused(file.call(svc), Errno::ENOSPC);
    remove(&file, av, &fi_addrs[100..101]).expect("remove");
    file.call(svc).expect("there is room again");
    refused(file.call(svc), Errno::ENOSPC);
    // More than the limit, though all are in the AV.
    let too_many = arg!(kfabric_av_remove:
        av, fi_addrs: addr_of(&fi_addrs[..]), count: abi::KFABRIC_MAX_AV + 1
    );
    refused(file.call(too_many), Errno::EINVAL);
    remove(&file, av, &fi_addrs).expect("remove all of the first list");
    file.close_all(&[av, domain, fabric]);
}

fn invalid_address_text_is_refused() {
    let (file, fabric, domain) = File::open().and_domain();
    let av = file.av(domain);
    let call = |node: &str, service: &str| {
        file.call(arg!(kfabric_av_insertsvc: av, node: text(node), service: text(service)))
    };
    let endless = "1".repeat(64);
    for (node, service) in [
        ("", "1"),
        ("localhost", "1"),
        ("10.0.0", "1"),
        ("10.0.0.256", "1"),
        ("10.0.0.1 ", "1"),
        ("::g", "1"),
        (":::1", "1"),
        ("10.0.0.1", ""),
        ("10.0.0.1", "1x"),
        (endless.as_str(), "1"),
        ("10.0.0.1", "http"),
        ("10.0.0.1", "65536"),
        ("10.0.0.1", "-1"),
        ("10.0.0.1", "0x10"),
        ("10.0.0.1", " 1"),
        ("10.0.0.1", endless.as_str()),
    ] {
        let result = call(node, service);
        assert_eq!(
            result.map(|_| ()),
            Err(Errno::EINVAL),
            "{node:?} {service:?}"
        );
    }
    let inserted = call("10.0.0.1", "65535").expect("insertsvc");
    assert_eq!(inserted.fi_addr, 0, "the first that was inserted");
    assert_eq!(lookup(&file, av, 0), Ok(ipv4([10, 0, 0, 1], 65535)));
    file.close_all(&[av, domain, fabric]);
}

fn events_need_an_eq() {
    let (file, fabric, domain) = File::open().and_domain();
    let av = file.make(arg!(kfabric_av_open:
        domain, type_: abi::KFI_AV_TABLE, flags: abi::KFI_EVENT
    ));
    let mut fi_addr = [7u64];
    let one = [ipv4([10, 0, 0, 1], 1)];
    let svc = arg!(kfabric_av_insertsvc: av, node: text("10.0.0.1"), service: text("1"));
    refused(
        insert(&file, av, &one, &mut fi_addr, None),
        Errno::KFI_ENOEQ,
    );
    refused(file.call(svc), Errno::KFI_ENOEQ);
    assert_eq!(fi_addr, [7]);
    let eq = file.eq(fabric);
    file.bind(av, eq, 0).expect("bind");
    // Results that cannot be written fail the call.
    let arg = arg!(kfabric_av_insert: av, addrs: addr_of(&one), fi_addrs: 8, count: 1);
    refused(file.call(arg), Errno::EFAULT);
    let mut room = [0u64; 3];
    let read = arg!(kfabric_eq_read: eq, buf: addr_of_mut(&mut room), len: 24);
    refused(file.call(read), Errno::EAGAIN);
    // With events the call succeeds, and the EQ has the results.
    assert_eq!(insert(&file, av, &[bad()], &mut fi_addr, None), Ok(0));
    let error = file.call(arg!(kfabric_eq_readerr: eq)).expect("readerr");
    assert_eq!((error.handle, error.err), (av, Errno::EINVAL.raw() as u32));
    assert_eq!(insert(&file, av, &one, &mut fi_addr, None), Ok(0));
    assert_eq!(fi_addr, [0], "nothing was inserted while it was refused");
    file.close_all(&[av, eq, domain, fabric]);
}

fn getinfo_refuses_invalid_arguments() {
    let file = File::open();
    let mut infos = [abi::kfabric_info::default(); 2];
    let mut ask_with = |flags, version, node: &str, service: &str, hints: Option<&_>| {
        let hints: Option<&abi::kfabric_info> = hints;
        file.call(arg!(kfabric_getinfo:
            version, flags, hints: hints.map_or(0, addr_of), infos: addr_of_mut(&mut infos),
            count: 2, node: text(node), service: text(service)
        ))
        .map(|arg| arg.count)
    };
    // Without KFI_SOURCE a name is that of no link.
    for node in ["localhost", "127.0.0", "lo", "0x7f00000001"] {
        refused(ask_with(0, 0, node, "80", None), Errno::EINVAL);
    }
    assert!(ask_with(0, 0, "0x7f000001", "80", None).expect("getinfo") >= 1);
    let mut ask = |version, node: &str, service: &str, hints: Option<&_>| {
        ask_with(abi::KFI_SOURCE, version, node, service, hints)
    };
    let version = |major: u32, minor: u32| major << 16 | minor;
    for newer in [version(1, 8), version(2, 0), u32::MAX] {
        refused(ask(newer, "", "", None), Errno::ENOSYS);
    }
    for older in [0, version(1, 0), version(1, 7)] {
        assert!(ask(older, "127.0.0.1", "", None).expect("getinfo") >= 1);
    }
    let endless = "1".repeat(64);
    for (node, service) in [
        ("", "http"),
        ("127.0.0.1", "65536"),
        (endless.as_str(), ""),
        ("", endless.as_str()),
    ] {
        let result = ask(0, node, service, None);
        assert_eq!(result, Err(Errno::EINVAL), "{node:?} {service:?}");
    }
    // An address of the loopback interface in another form, and names of links that are not there.
    assert!(ask(0, "0x7f000001", "80", None).expect("getinfo") >= 1);
    for node in ["nolink", "127.0.0"] {
        refused(ask(0, node, "80", None), Errno::ENODATA);
    }
    let blank = abi::kfabric_info::default();
    for hints in [
        with!(blank; domain_name: text("nolink")),
        with!(blank; prov_name: text("nobody")),
        with!(blank; ep_type: abi::KFI_EP_RDM, caps: abi::KFI_MULTICAST),
        with!(blank; ep_type: 4),
        with!(blank; ep_type: abi::KFI_EP_DGRAM, caps: abi::KFI_RMA),
        with!(blank; max_msg_size: abi::KFABRIC_MAX_MSG_SIZE + 1),
    ] {
        refused(ask(0, "", "", Some(&hints)), Errno::ENODATA);
    }
    // Invalid hints: an address, or a name without end.
    for hints in [
        with!(blank; src_addr: bad()),
        with!(blank; dest_addr: bad()),
        with!(blank; domain_name: text(&endless)),
        with!(blank; fabric_name: text(&endless)),
        with!(blank; prov_name: text(&endless)),
    ] {
        refused(ask(0, "", "", Some(&hints)), Errno::EINVAL);
    }
    assert!(ask(0, "", "", Some(&blank)).expect("getinfo") >= 1);
}
