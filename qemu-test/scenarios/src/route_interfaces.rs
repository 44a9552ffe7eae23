// SPDX-License-Identifier: GPL-2.0
//! Interfaces under a link that get another master or another name, and changes of other
//! namespaces.

use crate::{
    abi_threads::NetNs,
    harness::tests,
    host::{Host, Options, domain_on, exchange, until},
    networks::Wire,
    raw::ip,
    routes::{
        Caller, ENDS, KINDS, Kind, Listener, PEER, WITH_OTHER, add_link, add_other, addr,
        change_address, meet, reaches,
    },
    tracing::count_calls,
};
use kfi::{Device, Errno};
use std::process::{Command, Stdio};

tests![
    links_in_a_vrf_use_its_routes_only => 240,
    an_enslaved_or_renamed_interface_keeps_its_link => 120,
    changes_in_another_namespace_cause_no_look_ups => 120,
];

/// Loads a module of the kernel. It fails where the kernel has it built in.
pub(crate) fn load(module: &str) {
    let mut modprobe = Command::new("modprobe");
    let _ = modprobe.args(["-q", module]).stderr(Stdio::null()).status();
}

/// Puts the interface of a host into a VRF. IPv6 addresses go while it is set down for that.
fn enslave(netns: &NetNs, ipv6: &str) {
    netns.run(|| ip("link set veth0 master red"));
    change_address(netns, "add", &format!("{ipv6}/64"));
}

/// An interface is put into a VRF under its link, and taken out. Packets arrive in both cases.
fn links_in_a_vrf_use_its_routes_only() {
    load("vrf");
    let wire = Wire::new();
    for netns in [&wire.a, &wire.b] {
        netns.run(|| ip("link add red type vrf table 10"));
    }
    let all = || {
        for (near, far) in ENDS {
            for kind in KINDS {
                let one = (&wire.a, "roce0", addr(near, 0));
                // Another host, and this one.
                for other in [(&wire.b, "roce0", addr(far, 0)), one] {
                    let (a, to_b, b) = meet(kind, [one, other]);
                    reaches(kind, &a, to_b, &b);
                    reaches_back(kind, &a, &b);
                }
            }
        }
    };
    for (netns, ipv6) in [(&wire.a, ENDS[1].0), (&wire.b, ENDS[1].1)] {
        netns.run(|| ip("link set red up"));
        enslave(netns, ipv6);
    }
    all();
    // A link outside the VRF is in another network: also its endpoints on this host.
    wire.a.run(|| {
        add_other();
        add_link("roce1", "other");
    });
    for (near, other) in WITH_OTHER {
        let outside = wire.a.run(|| {
            let at = Some(addr(other, 7471));
            Host::at(&domain_on("roce1").1, &Options::default(), at)
        });
        let caller = Caller::new(Kind::Rdm, &wire.a, addr(near, 0));
        let got = caller.call(addr(other, 7471));
        assert_eq!(got, Some(Errno::EHOSTUNREACH), "{near}");
        outside.expect_nothing();
    }
    // A passive endpoint at the unspecified address gets requests by the links of all VRFs.
    for ((any, (near, far)), (_, other)) in ["0.0.0.0", "::"].into_iter().zip(ENDS).zip(WITH_OTHER)
    {
        let listener = Listener::new(&wire.a, addr(any, 0));
        for (netns, from_link, from, to, link) in [
            (&wire.b, "roce0", far, near, "roce0"),
            (&wire.a, "roce0", near, near, "roce0"),
            (&wire.a, "roce1", other, other, "roce1"),
        ] {
            let caller = Caller::on(Kind::Connect, netns, from_link, addr(from, 0));
            listener.serve(&caller, addr(to, listener.port()), link);
        }
    }
    // A link that is added in a VRF.
    for netns in [&wire.a, &wire.b] {
        netns.run(|| {
            let device = Device::open().expect("device");
            until("the link is free", || device.link_del("roce0").is_ok());
            device.link_add("roce0", "veth0").expect("link_add");
        });
    }
    all();
    for (netns, ipv6) in [(&wire.a, ENDS[1].0), (&wire.b, ENDS[1].1)] {
        netns.run(|| ip("link set veth0 nomaster"));
        change_address(netns, "add", &format!("{ipv6}/64"));
    }
    all();
}

/// The second host answers the first one.
fn reaches_back(kind: Kind, a: &Host, b: &Host) {
    let to_a = match kind {
        Kind::Rdm | Kind::Dgram => b.meet(a),
        Kind::Connect | Kind::ConnectQp => PEER,
    };
    reaches(kind, b, to_a, a);
}

/// The addresses stay on the interface, and routes lead by it, as for a UDP socket.
fn an_enslaved_or_renamed_interface_keeps_its_link() {
    let wire = Wire::new();
    let at = |number: usize, port| {
        let (near, far) = ENDS[number];
        [
            (&wire.a, "roce0", addr(near, port)),
            (&wire.b, "roce0", addr(far, port)),
        ]
    };
    let all = KINDS.map(|kind| (kind, meet(kind, at(0, 0))));
    let go_on = || {
        for (kind, (a, to_b, b)) in &all {
            reaches(*kind, a, *to_b, b);
        }
        // New endpoints, too.
        let (a, to_b, b) = meet(Kind::Rdm, at(0, 0));
        reaches(Kind::Rdm, &a, to_b, &b);
    };
    go_on();
    wire.a.run(|| {
        ip("link set veth0 down");
        ip("link set veth0 name renamed");
        ip("link set renamed up");
        let device = Device::open().expect("device");
        let links = device.links().collect::<kfi::Result<Vec<_>>>();
        assert_eq!(links.expect("links")[0].netdev, "renamed");
    });
    go_on();
    wire.a.run(|| {
        ip("link add br0 type bridge");
        ip("link set br0 up");
        ip("link set renamed master br0");
    });
    go_on();
    wire.a.run(|| ip("link set renamed nomaster"));
    go_on();
}

/// A user who may change the addresses of their own namespace slows nobody down.
fn changes_in_another_namespace_cause_no_look_ups() {
    /// Interfaces that came up a moment ago get addresses by themselves, which cause look-ups, too.
    const TRIES: usize = 50;
    let wire = Wire::new();
    let elsewhere = NetNs::new();
    elsewhere.run(|| {
        add_other();
        add_link("roce0", "other");
    });
    let (near, far) = ENDS[0];
    let at = [
        (&wire.a, "roce0", addr(near, 0)),
        (&wire.b, "roce0", addr(far, 0)),
    ];
    let (a, to_b, b) = meet(Kind::Rdm, at);
    exchange(&a, to_b, &b, 100);
    let look_ups = |netns: &NetNs, dev: &str| {
        count_calls("kfabric_shim_route_find", || {
            for what in ["add", "del"] {
                netns.run(|| ip(&format!("address {what} 198.51.100.1/32 dev {dev}")));
                exchange(&a, to_b, &b, 100);
            }
        })
    };
    assert!(
        (0..TRIES).any(|_| look_ups(&elsewhere, "other") == 0),
        "each change of another namespace causes a look-up"
    );
    assert!(look_ups(&wire.a, "veth0") >= 2);
}
