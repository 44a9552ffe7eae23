// SPDX-License-Identifier: GPL-2.0
//! Bindings and their flags: every refusal of `KFABRIC_IOC_BIND`.

use crate::{
    abi_world::{Class, World},
    harness::tests,
    raw::{File, refused},
};
use kfi::{
    Errno,
    abi::{self, Call},
};

tests![
    invalid_pairs_are_not_bound,
    invalid_binding_flags_are_refused,
    bindings_across_domains_and_fabrics_are_refused,
    a_second_binding_is_refused,
    an_enabled_endpoint_is_not_bound,
];

/// The operations that a counter can count.
pub(crate) const COUNTED: [u64; 6] = [
    abi::KFI_SEND,
    abi::KFI_RECV,
    abi::KFI_READ,
    abi::KFI_WRITE,
    abi::KFI_REMOTE_READ,
    abi::KFI_REMOTE_WRITE,
];

/// The table of valid bindings.
const PAIRS: [(Class, Class); 9] = [
    (Class::Domain, Class::Eq),
    (Class::Av, Class::Eq),
    (Class::Ep, Class::Av),
    (Class::Ep, Class::Eq),
    (Class::Sep, Class::Av),
    (Class::Pep, Class::Eq),
    (Class::Ep, Class::Cq),
    (Class::Ep, Class::Cntr),
    (Class::Mr, Class::Cntr),
];

fn invalid_pairs_are_not_bound() {
    let world = World::new();
    for from in Class::ALL {
        for to in Class::ALL {
            if PAIRS.contains(&(from, to)) {
                continue;
            }
            for flags in [0, abi::KFI_SEND, abi::KFI_REMOTE_READ, abi::KFI_REG_MR] {
                let result = world.file.bind(world.of(from), world.of(to), flags);
                assert_eq!(result, Err(Errno::EINVAL), "{from:?} to {to:?}");
            }
        }
    }
    world.finish();
}

fn invalid_binding_flags_are_refused() {
    let (file, fabric, domain) = File::open().and_domain();
    let page = crate::raw::Pages::new(1);
    let mr = file.reg(domain, page.addr(), 8, 1).expect("mr");
    let (av, av2, ep) = (file.av(domain), file.av(domain), file.ep(domain));
    let (eq, cq, cntr) = (file.eq(fabric), file.cq(domain), file.cntr(domain));
    let pep = file.pep(fabric);
    let sides = abi::KFI_SEND | abi::KFI_RECV;
    let any = COUNTED.iter().fold(0, |all, one| all | one);
    let remote = abi::KFI_REMOTE_READ | abi::KFI_REMOTE_WRITE;
    for (object, to, known) in [
        (domain, eq, abi::KFI_REG_MR),
        (av, eq, 0),
        (ep, av2, 0),
        (ep, eq, 0),
        (pep, eq, 0),
        (ep, cq, sides | abi::KFI_SELECTIVE_COMPLETION),
        (ep, cntr, any),
        (mr, cntr, remote),
    ] {
        for bit in 0..64 {
            let good = known & known.wrapping_neg();
            if known & 1 << bit == 0 {
                refused(file.bind(object, to, good | 1 << bit), Errno::EINVAL);
            }
        }
    }
    // None of the required flags.
    refused(file.bind(ep, cq, 0), Errno::EINVAL);
    refused(
        file.bind(ep, cq, abi::KFI_SELECTIVE_COMPLETION),
        Errno::EINVAL,
    );
    refused(file.bind(mr, cntr, 0), Errno::EINVAL);
    // Nothing was bound.
    file.close_all(&[eq, cq, cntr, av2, mr, av, ep, pep, domain, fabric]);
}

fn bindings_across_domains_and_fabrics_are_refused() {
    let file = File::open();
    let (fabric, fabric2) = (file.fabric(), file.fabric());
    let (domain, domain2) = (file.domain(fabric), file.domain(fabric));
    let page = crate::raw::Pages::new(1);
    let mr = file.reg(domain, page.addr(), 8, 1).expect("mr");
    let (av, ep) = (file.av(domain), file.ep(domain));
    let (pep, eq2) = (file.pep(fabric), file.eq(fabric2));
    let (av2, cq2, cntr2) = (file.av(domain2), file.cq(domain2), file.cntr(domain2));
    for (object, to, flags) in [
        (domain, eq2, 0),
        (domain, eq2, abi::KFI_REG_MR),
        (av, eq2, 0),
        (ep, eq2, 0),
        (pep, eq2, 0),
        (ep, av2, 0),
        (ep, cq2, abi::KFI_SEND),
        (ep, cntr2, abi::KFI_SEND),
        (mr, cntr2, abi::KFI_REMOTE_READ),
    ] {
        refused(file.bind(object, to, flags), Errno::EINVAL);
    }
    file.close_all(&[eq2, av2, cq2, cntr2, domain2, fabric2]);
    file.close_all(&[mr, av, ep, pep, domain, fabric]);
}

fn a_second_binding_is_refused() {
    let (file, fabric, domain) = File::open().and_domain();
    let page = crate::raw::Pages::new(1);
    let mr = file.reg(domain, page.addr(), 8, 1).expect("mr");
    let (av, ep) = (file.av(domain), file.ep(domain));
    let (eq, eq2, pep) = (file.eq(fabric), file.eq(fabric), file.pep(fabric));
    for object in [domain, av, ep, pep] {
        file.bind(object, eq, 0).expect("bind");
        for again in [eq, eq2] {
            refused(file.bind(object, again, 0), Errno::EINVAL);
        }
    }
    refused(file.bind(domain, eq, abi::KFI_REG_MR), Errno::EINVAL);
    let av2 = file.av(domain);
    file.bind(ep, av, 0).expect("bind");
    for again in [av, av2] {
        refused(file.bind(ep, again, 0), Errno::EINVAL);
    }
    // One of both sides is taken: neither is bound.
    let (cq, cq2) = (file.cq(domain), file.cq(domain));
    let both = abi::KFI_SEND | abi::KFI_RECV;
    file.bind(ep, cq, abi::KFI_SEND).expect("bind");
    for again in [cq, cq2] {
        refused(file.bind(ep, again, abi::KFI_SEND), Errno::EINVAL);
        refused(file.bind(ep, again, both), Errno::EINVAL);
    }
    file.close_all(&[cq2]);
    file.bind(ep, cq, abi::KFI_RECV)
        .expect("the other side is free");
    // As with counters.
    let (cntr, cntr2) = (file.cntr(domain), file.cntr(domain));
    file.bind(ep, cntr, abi::KFI_SEND).expect("bind");
    file.bind(mr, cntr, abi::KFI_REMOTE_READ).expect("bind");
    for again in [cntr, cntr2] {
        refused(file.bind(ep, again, abi::KFI_SEND), Errno::EINVAL);
        refused(file.bind(ep, again, both), Errno::EINVAL);
        let remote = abi::KFI_REMOTE_READ | abi::KFI_REMOTE_WRITE;
        refused(file.bind(mr, again, remote), Errno::EINVAL);
    }
    file.close_all(&[cntr2, eq2, av2]);
    file.bind(ep, cntr, abi::KFI_RECV).expect("bind");
    file.bind(mr, cntr, abi::KFI_REMOTE_WRITE).expect("bind");
    file.enable(ep).expect("enable");
    file.close_all(&[ep, mr, cntr, cq, av, domain, pep, eq, fabric]);
}

fn an_enabled_endpoint_is_not_bound() {
    let (file, fabric, domain) = File::open().and_domain();
    let party = file.party(domain, Call::sized());
    let (eq, av) = (file.eq(fabric), file.av(domain));
    let (cq, cntr) = (file.cq(domain), file.cntr(domain));
    for (to, flags) in [
        (eq, 0),
        (av, 0),
        (cq, abi::KFI_SEND),
        (cntr, abi::KFI_REMOTE_WRITE),
    ] {
        refused(file.bind(party.ep, to, flags), Errno::KFI_EOPBADSTATE);
    }
    file.close_all(&[eq, av, cq, cntr]);
    file.part(&party);
    file.close_all(&[domain, fabric]);
}
