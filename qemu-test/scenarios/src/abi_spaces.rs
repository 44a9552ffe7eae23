// SPDX-License-Identifier: GPL-2.0
//! Visibility of objects: network namespaces and users.

use crate::{
    abi_links::{link, links},
    abi_threads::{NetNs, as_user, open_to_all},
    harness::tests,
    host::until,
    raw::{File, Party, arg, data, ipv4, refused, text},
};
use kfi::{Errno, abi};

tests![
    links_of_another_namespace_are_not_seen,
    a_fabric_stays_in_its_namespace,
    endpoints_of_another_namespace_are_not_reached,
    a_namespace_is_removed_with_its_links,
    stat_refuses_invalid_arguments,
    figures_refuses_invalid_arguments,
    an_ordinary_user_sees_its_own_objects,
    another_namespace_has_other_objects,
];

fn add(file: &File, name: &str) {
    file.call(arg!(kfabric_link_add: name: text(name), netdev: text("lo")))
        .expect("link_add");
}

fn domain_on(file: &File, fabric: u32, name: &str) -> Result<u32, Errno> {
    file.call(arg!(kfabric_domain_open: fabric, link: text(name)))
        .map(|arg| arg.handle)
}

fn links_of_another_namespace_are_not_seen() {
    let (a, b) = (NetNs::new(), NetNs::new());
    let file = File::open_only();
    a.run(|| {
        add(&file, "same");
        add_second(&file);
    });
    b.run(|| {
        assert!(links(&file).is_empty());
        let arg = arg!(kfabric_link_del: name: text("same"));
        refused(file.call(arg), Errno::ENODEV);
        let fabric = file.fabric();
        refused(domain_on(&file, fabric, "same"), Errno::ENODEV);
        // The same names are free in this namespace.
        add(&file, "same");
        let domain = domain_on(&file, fabric, "same").expect("domain");
        assert_eq!(link(&file, "same").expect("listed").domains, 1);
        file.close_all(&[domain, fabric]);
        // Ids of one namespace are no ids of the other.
        assert_eq!(links(&file).len(), 1);
    });
    a.run(|| {
        assert_eq!(links(&file).len(), 2);
        assert_eq!(link(&file, "same").expect("listed").domains, 0);
    });
    // getinfo has the links of this namespace only.
    let offers = |netns: &NetNs| {
        netns.run(|| {
            let arg = file.call(arg!(kfabric_getinfo)).expect("getinfo");
            arg.count
        })
    };
    assert!(offers(&a) >= 1 && offers(&b) >= 1);
    let empty = NetNs::new();
    empty.run(|| refused(file.call(arg!(kfabric_getinfo)), Errno::ENODATA));
}

/// A second link, on an interface of its own.
fn add_second(file: &File) {
    crate::raw::ip("link add abis0 type dummy");
    file.call(arg!(kfabric_link_add: name: text("second"), netdev: text("abis0")))
        .expect("link_add");
}

fn a_fabric_stays_in_its_namespace() {
    let (a, b) = (NetNs::new(), NetNs::new());
    let file = File::open_only();
    let of_a = a.run(|| {
        add(&file, "ina");
        file.fabric()
    });
    b.run(|| {
        add(&file, "inb");
        refused(domain_on(&file, of_a, "inb"), Errno::ENODEV);
        let domain = domain_on(&file, of_a, "ina").expect("domain");
        let of_b = file.fabric();
        refused(domain_on(&file, of_b, "ina"), Errno::ENODEV);
        file.close_all(&[domain, of_b]);
    });
    file.close_all(&[of_a]);
}

/// An endpoint on a link of `netns`'s loopback interface at this port.
fn endpoint(file: &File, netns: &NetNs, port: u16) -> (Party, [u32; 2]) {
    netns.run(|| {
        if link(file, "loop").is_none() {
            add(file, "loop");
        }
        let fabric = file.fabric();
        let domain = domain_on(file, fabric, "loop").expect("domain");
        let party = file.party(
            domain,
            arg!(kfabric_ep_open: src_addr: ipv4([127, 0, 0, 1], port)),
        );
        (party, [domain, fabric])
    })
}

fn endpoints_of_another_namespace_are_not_reached() {
    let (a, b) = (NetNs::new(), NetNs::new());
    let file = File::open_only();
    // One port in two namespaces is two addresses.
    let (in_a, parents_a) = endpoint(&file, &a, 5000);
    let (in_b, parents_b) = endpoint(&file, &b, 5000);
    let (other, parents_other) = endpoint(&file, &b, 6000);
    let send = |from: &Party, peer| {
        let op = data!(kfabric_op: opcode: abi::KFABRIC_OP_SEND, peer);
        file.post_one(from.ep, op)
    };
    let to_other_from_a = file.insert(in_a.av, other.name).expect("insert");
    let to_other_from_b = file.insert(in_b.av, other.name).expect("insert");
    refused(send(&in_a, to_other_from_a), Errno::EHOSTUNREACH);
    // Posted from any namespace: the endpoint stays where it was made.
    b.run(|| refused(send(&in_a, to_other_from_a), Errno::EHOSTUNREACH));
    send(&in_b, to_other_from_b).expect("in its own namespace");
    a.run(|| send(&in_b, to_other_from_b).expect("from anywhere"));
    // A message to its own address arrives at itself, not at the other endpoint with that
    // address.
    send(&in_a, in_a.me).expect("to itself");
    let recv = data!(kfabric_op: peer: abi::KFI_ADDR_UNSPEC);
    file.post_one(in_b.ep, recv).expect("recv");
    let entry = file.cq_read(in_b.cq).expect("its own sends");
    assert_ne!(entry.flags & abi::KFI_SEND, 0);
    file.cq_read(in_b.cq).expect("its own sends");
    refused(file.cq_read(in_b.cq), Errno::EAGAIN);
    for (party, parents) in [(in_a, parents_a), (in_b, parents_b), (other, parents_other)] {
        file.part(&party);
        file.close_all(&parents);
    }
}

fn a_namespace_is_removed_with_its_links() {
    let file = File::open_only();
    let netns = NetNs::new();
    let (party, [domain, fabric]) = endpoint(&file, &netns, 5000);
    // One without domains, too.
    netns.run(|| add_second(&file));
    let op = data!(kfabric_op: opcode: abi::KFABRIC_OP_SEND, peer: party.me);
    file.post_one(party.ep, op).expect("send");
    drop(netns);
    // The kernel removes namespaces with a delay. Meanwhile the interface is down.
    let mut seen = Vec::new();
    until("the namespace is gone", || {
        let result = file.post_one(party.ep, op);
        if let Err(e) = result
            && !seen.contains(&e)
        {
            seen.push(e);
        }
        while file.cq_read(party.cq).is_ok() {}
        result == Err(Errno::ENODEV)
    });
    assert!(
        seen.iter()
            .all(|e| [Errno::ENODEV, Errno::ENETDOWN, Errno::EAGAIN].contains(e)),
        "{seen:?}"
    );
    refused(domain_on(&file, fabric, "loop"), Errno::ENODEV);
    refused(domain_on(&file, fabric, "second"), Errno::ENODEV);
    file.part(&party);
    file.close_all(&[domain, fabric]);
}

fn figures_refuses_invalid_arguments() {
    let (a, b) = (NetNs::new(), NetNs::new());
    let file = File::open_only();
    let values = |of, id| file.call(arg!(kfabric_figures: of, id));
    let id = a.run(|| {
        // The port is not open before there is a link.
        refused(values(abi::KFABRIC_FIGURES_NETNS, 0), Errno::ENOENT);
        add(&file, "ina");
        let netns = values(abi::KFABRIC_FIGURES_NETNS, 0).expect("figures");
        assert_eq!(netns.count as usize, kfi::PacketCounter::ALL.len());
        refused(values(abi::KFABRIC_FIGURES_NETNS, 1), Errno::EINVAL);
        refused(values(3, 0), Errno::EINVAL);
        let id = u64::from(link(&file, "ina").expect("listed").after);
        values(abi::KFABRIC_FIGURES_LINK, id).expect("figures");
        for of in [abi::KFABRIC_FIGURES_LINK, abi::KFABRIC_FIGURES_EP] {
            for wrong in [0, id + 1_000_000, id << 32, u64::MAX] {
                refused(values(of, wrong), Errno::ENOENT);
            }
        }
        id
    });
    // A link of another namespace.
    b.run(|| {
        add(&file, "inb");
        refused(values(abi::KFABRIC_FIGURES_LINK, id), Errno::ENOENT);
    });
}

fn stat_refuses_invalid_arguments() {
    let file = File::open();
    for object_class in [
        abi::KFI_CLASS_UNSPEC,
        abi::KFI_CLASS_FABRIC,
        abi::KFI_CLASS_DOMAIN,
        abi::KFI_CLASS_AV,
        abi::KFI_CLASS_MR,
        abi::KFI_CLASS_EQ,
        abi::KFI_CLASS_WAIT,
        abi::KFI_CLASS_POLL,
        4,
        99,
        u32::MAX,
    ] {
        let arg = arg!(kfabric_stat: object_class);
        refused(file.call(arg), Errno::EINVAL);
    }
    for object_class in [abi::KFI_CLASS_EP, abi::KFI_CLASS_CQ, abi::KFI_CLASS_CNTR] {
        for after in [0, 1, u64::MAX - 1, u64::MAX] {
            let arg = arg!(kfabric_stat: object_class, after);
            refused(file.call(arg), Errno::ENOENT);
        }
    }
}

const CLASSES: [u32; 3] = [abi::KFI_CLASS_EP, abi::KFI_CLASS_CQ, abi::KFI_CLASS_CNTR];

const NOTHING: [Vec<u32>; 3] = [const { Vec::new() }; 3];

/// Handles of the objects that the caller sees, by class.
fn seen(file: &File) -> [Vec<u32>; 3] {
    CLASSES.map(|class| {
        let stats = file.stats(class);
        let me = std::process::id() as i32;
        assert!(stats.iter().all(|stat| stat.pid == me));
        stats.iter().map(|stat| stat.handle).collect()
    })
}

fn an_ordinary_user_sees_its_own_objects() {
    open_to_all();
    let (roots, fabric, domain) = File::open().and_domain();
    let root_ep = roots.ep(domain);
    let root_cq = roots.cq(domain);
    let root_cntr = roots.cntr(domain);
    let (users, objects) = as_user(|| {
        let users = File::open_only();
        assert_eq!(seen(&users), NOTHING);
        // The user of the caller counts, not that of the open file.
        assert_eq!(seen(&roots), NOTHING);
        let fabric = users.fabric();
        // Handles that differ from root's.
        for _ in 0..20 {
            users.close_all(&[users.fabric()]);
        }
        let domain = users.domain(fabric);
        let objects = [users.ep(domain), users.cq(domain), users.cntr(domain)];
        assert_eq!(seen(&users), objects.map(|object| vec![object]));
        (users, objects)
    });
    let all = [root_ep, root_cq, root_cntr]
        .into_iter()
        .zip(objects)
        .map(|(root, user)| vec![root, user]);
    let all: Vec<_> = all.collect();
    assert_eq!(seen(&roots).to_vec(), all);
    assert_eq!(seen(&users).to_vec(), all, "root sees all through any file");
    // Objects of a file of the user belong to the user, whichever user calls.
    let fabric2 = users.fabric();
    let by_root = users.cntr(users.domain(fabric2));
    as_user(|| assert_eq!(seen(&roots)[2], [objects[2], by_root]));
    drop(users);
    assert_eq!(
        seen(&roots),
        [vec![root_ep], vec![root_cq], vec![root_cntr]],
        "gone with the file"
    );
    roots.close_all(&[root_ep, root_cq, root_cntr, domain, fabric]);
}

fn another_namespace_has_other_objects() {
    let (here, fabric, domain) = File::open().and_domain();
    let cntr = here.cntr(domain);
    let netns = NetNs::new();
    let (there, theirs) = netns.run(|| {
        let there = File::open_only();
        add(&there, "loop");
        let fabric = there.fabric();
        for _ in 0..20 {
            there.close_all(&[there.fabric()]);
        }
        let domain = domain_on(&there, fabric, "loop").expect("domain");
        let theirs = there.cntr(domain);
        assert_eq!(seen(&there)[2], [theirs]);
        assert_eq!(
            seen(&here)[2],
            [theirs],
            "the caller's namespace, not the file's"
        );
        (there, theirs)
    });
    assert_ne!(cntr, theirs);
    assert_eq!(seen(&there)[2], [cntr]);
    here.close_all(&[cntr, domain, fabric]);
}
