// SPDX-License-Identifier: GPL-2.0
//! Opening, enabling and changing endpoints: every refusal.

use crate::{
    harness::tests,
    raw::{File, Netdev, Pages, arg, bytes_of, data, ip, ipv4, refused, with},
};
use kfi::{Errno, abi};

tests![
    unknown_types_and_capabilities_are_refused,
    endpoint_sizes_are_checked,
    endpoint_addresses_are_checked,
    enabling_needs_queues_and_an_av,
    enabling_needs_a_free_port,
    enabling_needs_an_address,
    getting_and_setting_names_is_checked,
    endpoint_options_are_checked,
    default_flags_are_checked,
    only_posted_operations_are_cancelled,
    calls_with_unwritable_results_set_nothing,
];

const SIDES: u64 = abi::KFI_SEND | abi::KFI_RECV;

fn unknown_types_and_capabilities_are_refused() {
    let (file, fabric, domain) = File::open().and_domain();
    let open = |type_, caps| file.call(arg!(kfabric_ep_open: domain, type_, caps));
    for type_ in [4, 6, u32::MAX] {
        refused(open(type_, 0), Errno::EINVAL);
    }
    let caps = abi::KFI_MULTICAST;
    refused(open(abi::KFI_EP_RDM, caps), Errno::EOPNOTSUPP);
    refused(
        open(abi::KFI_EP_RDM, caps | abi::KFI_MSG),
        Errno::EOPNOTSUPP,
    );
    for type_ in [
        abi::KFI_EP_UNSPEC,
        abi::KFI_EP_MSG,
        abi::KFI_EP_DGRAM,
        abi::KFI_EP_RDM,
    ] {
        for caps in [
            0,
            abi::KFI_MSG,
            abi::KFI_SEND,
            abi::KFI_RECV,
            abi::KFI_TRIGGER,
        ] {
            let ep = open(type_, caps).expect("open").handle;
            file.close_all(&[ep]);
        }
    }
    refused(open(abi::KFI_EP_DGRAM, abi::KFI_READ), Errno::EOPNOTSUPP);
    refused(open(abi::KFI_EP_MSG, abi::KFI_TAGGED), Errno::EOPNOTSUPP);
    file.close_all(&[domain, fabric]);
}

fn endpoint_sizes_are_checked() {
    let (file, fabric, domain) = File::open().and_domain();
    let open = |tx_size, rx_size, total_buffered_recv| {
        file.call(arg!(kfabric_ep_open: domain, tx_size, rx_size, total_buffered_recv))
    };
    let (queue, buffered) = (abi::KFABRIC_MAX_QUEUE, abi::KFABRIC_MAX_BUFFERED);
    for (tx, rx, bytes) in [
        (queue + 1, 0, 0),
        (u32::MAX, 0, 0),
        (0, queue + 1, 0),
        (0, u32::MAX, 0),
        (0, 0, buffered + 1),
        (0, 0, u64::MAX),
    ] {
        refused(open(tx, rx, bytes), Errno::EINVAL);
    }
    for (tx, rx, bytes) in [(1, 1, 1), (queue, queue, buffered)] {
        let ep = open(tx, rx, bytes).expect("open").handle;
        file.close_all(&[ep]);
    }
    file.close_all(&[domain, fabric]);
}

fn endpoint_addresses_are_checked() {
    let (file, fabric, domain) = File::open().and_domain();
    let open = |src_addr| file.call(arg!(kfabric_ep_open: domain, src_addr));
    let elsewhere = data!(kfabric_sockaddr:
        family: 10, v6: [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]
    );
    for addr in [
        ipv4([10, 1, 2, 3], 0),
        ipv4([0, 0, 0, 0], 0),
        ipv4([255, 255, 255, 255], 5),
        elsewhere,
        with!(elsewhere; v6: [0; 16]),
    ] {
        refused(open(addr), Errno::EADDRNOTAVAIL);
    }
    // Not empty, but without a family.
    let no_family = data!(kfabric_sockaddr: port: 1);
    refused(open(no_family), Errno::EINVAL);
    let ep = open(ipv4([127, 0, 0, 1], 7)).expect("open").handle;
    file.close_all(&[ep, domain, fabric]);
}

fn enabling_needs_queues_and_an_av() {
    let (file, fabric, domain) = File::open().and_domain();
    let (cq, av) = (file.cq(domain), file.av(domain));
    for (caps, sides) in [
        (0, SIDES),
        (abi::KFI_MSG, SIDES),
        (abi::KFI_MSG | abi::KFI_SEND, abi::KFI_SEND),
        (abi::KFI_MSG | abi::KFI_RECV, abi::KFI_RECV),
        (abi::KFI_TAGGED | abi::KFI_RECV, abi::KFI_RECV),
        (abi::KFI_RMA | abi::KFI_READ, abi::KFI_SEND),
        (abi::KFI_RMA | abi::KFI_WRITE, abi::KFI_SEND),
        // The target of RMA gets no completion.
        (abi::KFI_RMA | abi::KFI_REMOTE_READ, 0),
        (abi::KFI_RMA | abi::KFI_REMOTE_WRITE, 0),
    ] {
        let ep = file.make(arg!(kfabric_ep_open: domain, caps));
        // One side after the other: enable names each missing one.
        for side in [abi::KFI_SEND, abi::KFI_RECV] {
            if sides & side != 0 {
                refused(file.enable(ep), Errno::KFI_ENOCQ);
                file.bind(ep, cq, side).expect("bind");
            }
        }
        refused(file.enable(ep), Errno::KFI_ENOAV);
        refused(file.ep_name(ep), Errno::KFI_EOPBADSTATE);
        file.bind(ep, av, 0).expect("bind");
        file.enable(ep).expect("enable");
        refused(file.enable(ep), Errno::KFI_EOPBADSTATE);
        file.close_all(&[ep]);
    }
    // The other side's CQ does not help.
    let ep = file.make(arg!(kfabric_ep_open: domain, caps: abi::KFI_MSG | abi::KFI_SEND));
    file.bind(ep, cq, abi::KFI_RECV).expect("bind");
    file.bind(ep, av, 0).expect("bind");
    refused(file.enable(ep), Errno::KFI_ENOCQ);
    file.close_all(&[ep, cq, av, domain, fabric]);
}

/// An endpoint that is bound to all objects it needs.
fn bound(file: &File, domain: u32, src_addr: abi::kfabric_sockaddr) -> (u32, u32, u32) {
    let ep = file.make(arg!(kfabric_ep_open: domain, src_addr));
    let (cq, av) = (file.cq(domain), file.av(domain));
    file.bind(ep, cq, SIDES).expect("bind");
    file.bind(ep, av, 0).expect("bind");
    (ep, cq, av)
}

fn enabling_needs_a_free_port() {
    let (file, fabric, domain) = File::open().and_domain();
    let wanted = ipv4([127, 0, 0, 1], 4444);
    let (first, cq, av) = bound(&file, domain, wanted);
    let (second, cq2, av2) = bound(&file, domain, wanted);
    file.enable(first).expect("enable");
    refused(file.enable(second), Errno::EADDRINUSE);
    // On another open file, too.
    let other = File::open();
    let fabric2 = other.fabric();
    let domain2 = other.domain(fabric2);
    let (third, cq3, av3) = bound(&other, domain2, wanted);
    refused(other.enable(third), Errno::EADDRINUSE);
    // Another address of the link has a port of its own.
    let (fourth, cq4, av4) = bound(&other, domain2, ipv4([127, 0, 0, 2], 4444));
    other.enable(fourth).expect("enable");
    file.close_all(&[first]);
    file.enable(second).expect("the port is free again");
    refused(other.enable(third), Errno::EADDRINUSE);
    other
        .call(arg!(kfabric_ep_name: ep: third, set: 1, addr: ipv4([127, 0, 0, 1], 0)))
        .expect("set name");
    other.enable(third).expect("any port");
    other.close_all(&[third, fourth, cq3, cq4, av3, av4, domain2, fabric2]);
    file.close_all(&[second, cq, cq2, av, av2, domain, fabric]);
}

fn enabling_needs_an_address() {
    let file = File::open();
    let _netdev = Netdev::dummy("abiep0", "");
    ip("-6 addr flush dev abiep0");
    file.call(arg!(kfabric_link_add:
        name: crate::raw::text("abiep"), netdev: crate::raw::text("abiep0")
    ))
    .expect("link_add");
    let fabric = file.fabric();
    let domain = file.domain_on(fabric, "abiep");
    let (ep, cq, av) = bound(&file, domain, Default::default());
    refused(file.enable(ep), Errno::EADDRNOTAVAIL);
    ip("addr add 10.71.0.1/24 dev abiep0");
    // An address that was there when it was chosen and was removed since.
    let (second, cq2, av2) = bound(&file, domain, ipv4([10, 71, 0, 1], 0));
    ip("addr del 10.71.0.1/24 dev abiep0");
    refused(file.enable(second), Errno::EADDRNOTAVAIL);
    ip("addr add 10.71.0.1/24 dev abiep0");
    for ep in [ep, second] {
        file.enable(ep).expect("enable");
        let name = file.ep_name(ep).expect("name");
        assert_eq!(name.v4, ipv4([10, 71, 0, 1], 0).v4);
        assert_ne!(name.port, 0);
    }
    file.close_all(&[ep, second, cq, cq2, av, av2, domain, fabric]);
    file.call(arg!(kfabric_link_del: name: crate::raw::text("abiep")))
        .expect("link_del");
}

fn getting_and_setting_names_is_checked() {
    let (file, fabric, domain) = File::open().and_domain();
    let (ep, cq, av) = bound(&file, domain, ipv4([127, 0, 0, 1], 4500));
    let set = |set, addr| file.call(arg!(kfabric_ep_name: ep, set, addr));
    let good = ipv4([127, 0, 0, 5], 4501);
    for wrong in [2, u32::MAX] {
        refused(set(wrong, good), Errno::EINVAL);
    }
    refused(set(1, Default::default()), Errno::EINVAL);
    refused(set(1, ipv4([10, 1, 2, 3], 1)), Errno::EADDRNOTAVAIL);
    refused(file.ep_name(ep), Errno::KFI_EOPBADSTATE);
    set(1, good).expect("set");
    refused(set(1, ipv4([10, 1, 2, 3], 1)), Errno::EADDRNOTAVAIL);
    file.enable(ep).expect("enable");
    assert_eq!(file.ep_name(ep), Ok(good), "what was refused changed it");
    refused(set(1, good), Errno::KFI_EOPBADSTATE);
    file.close_all(&[ep, cq, av, domain, fabric]);
}

fn endpoint_options_are_checked() {
    let (file, fabric, domain) = File::open().and_domain();
    let ep = file.ep(domain);
    let opt = |set, level, name, value| {
        file.call(arg!(kfabric_ep_opt: ep, set, level, name, value))
            .map(|arg| arg.value)
    };
    let min = abi::KFI_OPT_MIN_MULTI_RECV;
    let before = opt(0, 0, min, 0).expect("get");
    refused(opt(2, 0, min, 5), Errno::EINVAL);
    for (level, name) in [(1, min), (u32::MAX, min), (0, 2), (0, u32::MAX)] {
        for set in [0, 1] {
            refused(opt(set, level, name, 5), Errno::ENOPROTOOPT);
        }
    }
    refused(opt(1, 0, abi::KFI_OPT_CM_DATA_SIZE, 5), Errno::ENOPROTOOPT);
    opt(0, 0, abi::KFI_OPT_CM_DATA_SIZE, 0).expect("get");
    assert_eq!(opt(0, 0, min, 0), Ok(before));
    opt(1, 0, min, 77).expect("set");
    assert_eq!(opt(0, 0, min, 0), Ok(77));
    file.close_all(&[ep, domain, fabric]);
}

fn opsflag(file: &File, handle: u32, set: u32, flags: u64) -> Result<u64, Errno> {
    file.call(arg!(kfabric_opsflag: handle, set, flags))
        .map(|arg| arg.flags)
}

fn default_flags_are_checked() {
    let (file, fabric, domain) = File::open().and_domain();
    let (ep, cntr) = (file.ep(domain), file.cntr(domain));
    let (tx, rx) = (abi::KFI_TRANSMIT, abi::KFI_RECV);
    for set in [0, 1] {
        refused(opsflag(&file, ep, set, 0), Errno::EINVAL);
        refused(opsflag(&file, ep, set, tx | rx), Errno::EINVAL);
        refused(opsflag(&file, ep, set, abi::KFI_COMPLETION), Errno::EINVAL);
        // Flags of the other side, or of no default.
        refused(
            opsflag(&file, ep, set, tx | abi::KFI_MULTI_RECV),
            Errno::EINVAL,
        );
        refused(opsflag(&file, ep, set, rx | abi::KFI_INJECT), Errno::EINVAL);
        for flag in [abi::KFI_FENCE, abi::KFI_MORE, abi::KFI_REMOTE_CQ_DATA] {
            refused(opsflag(&file, ep, set, tx | flag), Errno::EINVAL);
        }
        for flag in [abi::KFI_PEEK, abi::KFI_CLAIM, abi::KFI_DISCARD] {
            refused(opsflag(&file, ep, set, rx | flag), Errno::EINVAL);
        }
    }
    refused(opsflag(&file, ep, 2, tx), Errno::EINVAL);
    assert_eq!(opsflag(&file, ep, 0, tx), Ok(tx));
    assert_eq!(opsflag(&file, ep, 0, rx), Ok(rx));
    let both = [
        tx | abi::KFI_COMPLETION | abi::KFI_INJECT,
        rx | abi::KFI_COMPLETION | abi::KFI_MULTI_RECV,
    ];
    for flags in both {
        opsflag(&file, ep, 1, flags).expect("set");
        assert_eq!(opsflag(&file, ep, 0, flags & (tx | rx)), Ok(flags));
    }
    // A counter has no default flags.
    assert_eq!(opsflag(&file, cntr, 0, 0), Ok(0));
    assert_eq!(opsflag(&file, cntr, 1, 0), Ok(0));
    refused(opsflag(&file, cntr, 1, 1), Errno::EINVAL);
    refused(opsflag(&file, cntr, 2, 0), Errno::EINVAL);
    file.close_all(&[ep, cntr, domain, fabric]);
}

fn only_posted_operations_are_cancelled() {
    let (file, fabric, domain) = File::open().and_domain();
    let cancel = |ep, context| file.call(arg!(kfabric_ep_cancel: ep, context)).map(|_| ());
    let (ep, cq, av) = bound(&file, domain, Default::default());
    refused(cancel(ep, 0), Errno::KFI_EOPBADSTATE);
    file.enable(ep).expect("enable");
    refused(cancel(ep, 0), Errno::ENOENT);
    let op = data!(kfabric_op: context: 5, peer: abi::KFI_ADDR_UNSPEC);
    file.post_one(ep, op).expect("post");
    refused(cancel(ep, 6), Errno::ENOENT);
    assert_eq!(cancel(ep, 5), Ok(()));
    refused(cancel(ep, 5), Errno::ENOENT);
    refused(file.cq_read(cq), Errno::KFI_EAVAIL);
    let error = file.cq_readerr(cq).expect("readerr");
    assert_eq!(
        (error.op_context, error.err),
        (5, Errno::ECANCELED.raw() as u32)
    );
    refused(file.cq_readerr(cq), Errno::EAGAIN);
    file.close_all(&[ep, cq, av, domain, fabric]);
}

/// These calls get or set, and write back the values they were given to set.
fn calls_with_unwritable_results_set_nothing() {
    let (file, fabric, domain) = File::open().and_domain();
    let (ep, cq, av) = bound(&file, domain, ipv4([127, 0, 0, 1], 4600));
    let blind = |request: u32, arg: &[u8]| {
        let page = Pages::new(1);
        page.write(0, arg);
        page.protect(true);
        refused(file.call_raw(request, page.addr()), Errno::EFAULT);
    };
    let flags = arg!(kfabric_opsflag:
        handle: ep, set: 1, flags: abi::KFI_TRANSMIT | abi::KFI_INJECT
    );
    blind(abi::KFABRIC_IOC_OPSFLAG, &bytes_of(&flags));
    let tx = abi::KFI_TRANSMIT;
    assert_eq!(opsflag(&file, ep, 0, tx), Ok(tx));
    let opt = arg!(kfabric_ep_opt: ep, value: 1_000_000, set: 1);
    blind(abi::KFABRIC_IOC_EP_OPT, &bytes_of(&opt));
    let got = file
        .call(abi::kfabric_ep_opt { set: 0, ..opt })
        .expect("get");
    assert_ne!(got.value, 1_000_000);
    let name = arg!(kfabric_ep_name: ep, set: 1, addr: ipv4([127, 0, 0, 1], 4601));
    blind(abi::KFABRIC_IOC_EP_NAME, &bytes_of(&name));
    file.enable(ep).expect("enable");
    assert_eq!(file.ep_name(ep), Ok(ipv4([127, 0, 0, 1], 4600)));
    file.close_all(&[ep, cq, av, domain, fabric]);
}
