// SPDX-License-Identifier: GPL-2.0
//! Links: every refusal, and the effects of changes of their interface.

use crate::{
    abi_threads::{NetNs, as_user, open_to_all},
    harness::tests,
    host::until,
    raw::{File, Netdev, Pages, arg, data, ip, ip_batch, ipv4, refused, text, udp_on},
    route_interfaces::load,
};
use kfi::{
    Errno,
    abi::{self, Call},
};
use std::{ffi::c_char, io, net::UdpSocket, os::unix::process::CommandExt, process::Command};

tests![
    invalid_names_are_refused,
    a_second_link_of_a_name_or_interface_is_refused,
    unknown_interfaces_are_refused,
    links_hold_the_udp_port_of_their_namespace,
    a_link_in_use_stays,
    an_ordinary_user_makes_no_links,
    the_owner_of_a_namespace_makes_links_there,
    the_number_of_links_is_limited => 300,
    listing_ends,
    a_link_follows_its_interface_down_and_up,
    a_removed_interface_ends_its_endpoints,
];

fn add(file: &File, name: &str, netdev: &str) -> Result<(), Errno> {
    file.call(arg!(kfabric_link_add: name: text(name), netdev: text(netdev)))
        .map(|_| ())
}

fn del(file: &File, name: &str) -> Result<(), Errno> {
    file.call(arg!(kfabric_link_del: name: text(name)))
        .map(|_| ())
}

fn string(field: &[c_char]) -> String {
    let bytes = field.iter().map(|c| *c as u8).take_while(|c| *c != 0);
    String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned()
}

/// All links of this thread's namespace.
pub(crate) fn links(file: &File) -> Vec<abi::kfabric_link_get> {
    let mut found = Vec::new();
    let mut after = 0;
    loop {
        match file.call(arg!(kfabric_link_get: after)) {
            Ok(link) => {
                assert!(link.after > after, "ids grow");
                after = link.after;
                found.push(link);
            }
            Err(Errno::ENOENT) => return found,
            Err(e) => panic!("link_get: {e:?}"),
        }
    }
}

/// The link of this name.
pub(crate) fn link(file: &File, name: &str) -> Option<abi::kfabric_link_get> {
    links(file)
        .into_iter()
        .find(|link| string(&link.name) == name)
}

fn invalid_names_are_refused() {
    let file = File::open();
    let _netdev = Netdev::dummy("abil0", "");
    let before = links(&file).len();
    let long = "sixteen-letters!";
    for name in [
        "", long, "a/b", "/", "a b", " a", "a\tb", "a\nb", "\u{7f}", "\u{1}", "é", ".", "..",
    ] {
        refused(add(&file, name, "abil0"), Errno::EINVAL);
        refused(del(&file, name), Errno::EINVAL);
    }
    // Names that no interface can have.
    for netdev in ["", long, "a/b", "a b", "a:b", ".", ".."] {
        refused(add(&file, "abil", netdev), Errno::EINVAL);
    }
    assert_eq!(links(&file).len(), before);
    for name in ["fifteen-letters", "a", "~!@#$%^&*()", "...", ".a", "a."] {
        add(&file, name, "abil0").expect("add");
        assert_eq!(string(&link(&file, name).expect("listed").netdev), "abil0");
        del(&file, name).expect("del");
    }
    // Bytes behind the NUL are ignored.
    let mut tail: abi::kfabric_link_add = Call::sized();
    tail.name = text("abil\0/ x");
    tail.netdev = text("abil0\0/ x");
    file.call(tail).expect("add");
    del(&file, "abil").expect("del");
}

fn a_second_link_of_a_name_or_interface_is_refused() {
    let file = File::open();
    let _netdevs = (Netdev::dummy("abil0", ""), Netdev::dummy("abil1", ""));
    add(&file, "abil", "abil0").expect("add");
    for (name, netdev) in [("abil", "abil0"), ("abil", "abil1"), ("other", "abil0")] {
        refused(add(&file, name, netdev), Errno::EEXIST);
    }
    add(&file, "other", "abil1").expect("add");
    del(&file, "abil").expect("del");
    refused(del(&file, "abil"), Errno::ENODEV);
    add(&file, "abil", "abil0").expect("name and interface are free again");
    for name in ["abil", "other"] {
        del(&file, name).expect("del");
    }
}

/// UDP port 4791 belongs to the links of a namespace, from the first to the last.
fn links_hold_the_udp_port_of_their_namespace() {
    // Here the port is in use if a test before this one has left a link.
    NetNs::new().run(the_port_of_a_namespace);
}

fn the_port_of_a_namespace() {
    let file = File::open_only();
    let _netdevs = (
        Netdev::dummy("abil0", "10.73.0.1/24"),
        Netdev::dummy("abil1", ""),
    );
    // Even if the other socket has one address or one family only.
    for address in ["0.0.0.0:4791", "10.73.0.1:4791", "[::1]:4791"] {
        let _mine = UdpSocket::bind(address).expect("nobody has the port");
        refused(add(&file, "abil", "abil0"), Errno::EADDRINUSE);
        assert!(link(&file, "abil").is_none());
    }
    // Even if the other socket is bound to a VRF.
    load("vrf");
    ip("link add red type vrf table 10");
    ip("link set red up");
    ip("link set abil0 master red");
    for ipv6 in [false, true] {
        let _mine = udp_on("red", ipv6, 4791).expect("nobody has the port");
        for (name, netdev) in [("abil", "abil0"), ("other", "abil1")] {
            refused(add(&file, name, netdev), Errno::EADDRINUSE);
            assert!(link(&file, name).is_none());
        }
    }
    let taken = |address| {
        let sockets = [false, true].map(|ipv6| udp_on("red", ipv6, 4791));
        for socket in sockets.into_iter().chain([UdpSocket::bind(address)]) {
            let error = socket.expect_err("the port is taken");
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        }
    };
    add(&file, "abil", "abil0").expect("add");
    add(&file, "other", "abil1").expect("the second link has the same port");
    for address in ["0.0.0.0:4791", "127.0.0.1:4791", "[::]:4791"] {
        taken(address);
    }
    del(&file, "abil").expect("del");
    taken("0.0.0.0:4791");
    // A datagram that is no packet is not counted for a QP.
    let sender = UdpSocket::bind("127.0.0.1:0").expect("bind");
    for len in 0..200 {
        let noise = [0x64; 200];
        sender
            .send_to(&noise[..len], "127.0.0.1:4791")
            .expect("send");
    }
    del(&file, "other").expect("del");
    UdpSocket::bind("0.0.0.0:4791").expect("the port is free");
    UdpSocket::bind("[::]:4791").expect("the port is free");
    for ipv6 in [false, true] {
        udp_on("red", ipv6, 4791).expect("the port is free");
    }
}

fn unknown_interfaces_are_refused() {
    let file = File::open();
    refused(add(&file, "abil", "nosuch0"), Errno::ENODEV);
    refused(del(&file, "nosuchlink"), Errno::ENODEV);
    // The refused calls have not taken the name.
    let _netdev = Netdev::dummy("abil0", "");
    add(&file, "abil", "abil0").expect("add");
    del(&file, "abil").expect("del");
}

fn a_link_in_use_stays() {
    let file = File::open();
    let _netdev = Netdev::dummy("abil0", "");
    add(&file, "abil", "abil0").expect("add");
    let fabric = file.fabric();
    let domains = [
        file.domain_on(fabric, "abil"),
        file.domain_on(fabric, "abil"),
    ];
    for (left, domain) in [(2, domains[0]), (1, domains[1])] {
        assert_eq!(link(&file, "abil").expect("listed").domains, left);
        refused(del(&file, "abil"), Errno::EBUSY);
        file.close_all(&[domain]);
    }
    assert_eq!(link(&file, "abil").expect("listed").domains, 0);
    del(&file, "abil").expect("del");
    let arg = arg!(kfabric_domain_open: fabric, link: text("abil"));
    refused(file.call(arg), Errno::ENODEV);
    file.close_all(&[fabric]);
}

fn an_ordinary_user_makes_no_links() {
    let file = File::open();
    let _netdev = Netdev::dummy("abil0", "");
    add(&file, "abil", "abil0").expect("add");
    as_user(|| {
        // The capabilities of the caller count, not those of the process that opened the device.
        refused(del(&file, "abil"), Errno::EPERM);
        refused(add(&file, "other", "abil0"), Errno::EPERM);
        refused(add(&file, "other", "nosuch0"), Errno::EPERM);
        refused(del(&file, "nosuchlink"), Errno::EPERM);
        // Showing and using links needs no capability.
        assert!(link(&file, "abil").is_some());
        let fabric = file.fabric();
        file.close_all(&[file.domain_on(fabric, "abil"), fabric]);
    });
    assert!(link(&file, "abil").is_some());
    del(&file, "abil").expect("del");
}

/// Runs `run` in a process of an ordinary user with namespaces of its own; it may only fail or not.
fn in_namespaces(flags: i32, run: impl Fn() -> Result<(), Errno> + Send + Sync + 'static) {
    let mut command = Command::new("true");
    #[allow(unsafe_code, reason = "between fork and exec")]
    // SAFETY: this process has one thread, so its child may do what it likes.
    unsafe {
        command.pre_exec(move || {
            crate::abi_threads::become_user();
            if libc::unshare(flags) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            run().map_err(|e| std::io::Error::from_raw_os_error(e.raw()))
        });
    }
    let status = command.status().expect("in the child");
    assert!(status.success());
}

fn the_owner_of_a_namespace_makes_links_there() {
    open_to_all();
    let (user, net) = (libc::CLONE_NEWUSER, libc::CLONE_NEWNET);
    in_namespaces(user | net, || {
        let file = File::open_only();
        add(&file, "mine", "lo")?;
        assert_eq!(links(&file).len(), 1);
        del(&file, "mine")
    });
    // Root of a user namespace has no capability in the network namespace of others.
    in_namespaces(user, || {
        let file = File::open_only();
        match add(&file, "mine", "lo") {
            Err(Errno::EPERM) => Ok(()),
            Err(e) => Err(e),
            Ok(()) => Err(Errno::EEXIST),
        }
    });
}

fn the_number_of_links_is_limited() {
    let limit: usize = std::fs::read_to_string("/sys/module/kfabric/parameters/max_links")
        .map_or(64, |text| text.trim().parse().expect("a number"));
    let netns = NetNs::new();
    netns.run(|| {
        let file = File::open_only();
        let lines: Vec<String> = (0..=limit)
            .map(|n| format!("link add d{n} type dummy"))
            .collect();
        ip_batch(&lines);
        for n in 0..limit {
            add(&file, &format!("l{n}"), &format!("d{n}")).expect("add");
        }
        let more = format!("d{limit}");
        refused(add(&file, "more", &more), Errno::ENOSPC);
        // Links that exist already are listed first.
        refused(add(&file, "l1", &more), Errno::EEXIST);
        del(&file, "l5").expect("del");
        add(&file, "more", &more).expect("there is room again");
        refused(add(&file, "l5", "d5"), Errno::ENOSPC);
        assert_eq!(links(&file).len(), limit);
        // Other namespaces have their own.
        NetNs::new().run(|| add(&file, "more", "lo").expect("another namespace"));
    });
}

fn listing_ends() {
    let file = File::open();
    let last = links(&file).last().expect("that of lo").after;
    for after in [last, last + 1, u32::MAX] {
        let arg = arg!(kfabric_link_get: after);
        refused(file.call(arg), Errno::ENOENT);
    }
}

/// A link on an interface of its own, and an endpoint there with itself as a peer.
struct Rig {
    file: File,
    fabric: u32,
    domain: u32,
    party: crate::raw::Party,
    pages: Pages,
}

impl Rig {
    fn new() -> (Netdev, Self) {
        let netdev = Netdev::dummy("abil0", "10.72.0.1/24");
        let file = File::open();
        add(&file, "abil", "abil0").expect("add");
        let fabric = file.fabric();
        let domain = file.domain_on(fabric, "abil");
        let party = file.party(domain, Call::sized());
        let rig = Self {
            file,
            fabric,
            domain,
            party,
            pages: Pages::new(8),
        };
        (netdev, rig)
    }

    fn post(&self, opcode: u32, len: u64) -> Result<(), Errno> {
        let receive = [abi::KFABRIC_OP_RECV, abi::KFABRIC_OP_TRECV].contains(&opcode);
        let op = data!(kfabric_op:
            opcode, context: 7, buf: self.pages.addr(), len,
            peer: if receive { abi::KFI_ADDR_UNSPEC } else { self.party.me }
        );
        self.file.post_one(self.party.ep, op)
    }

    fn state(&self) -> u32 {
        link(&self.file, "abil").expect("listed").state
    }

    /// The states of all links of the name.
    fn states(&self) -> Vec<u32> {
        let named = links(&self.file).into_iter();
        let named = named.filter(|link| string(&link.name) == "abil");
        named.map(|link| link.state).collect()
    }

    #[track_caller]
    fn transmits_are_refused(&self, errno: Errno) {
        for opcode in [
            abi::KFABRIC_OP_SEND,
            abi::KFABRIC_OP_TSEND,
            abi::KFABRIC_OP_READ,
            abi::KFABRIC_OP_WRITE,
        ] {
            for len in [0, 8, 20_000] {
                refused(self.post(opcode, len), errno);
            }
        }
        refused(self.file.cq_read(self.party.cq), Errno::EAGAIN);
    }
}

fn a_link_follows_its_interface_down_and_up() {
    let (_netdev, rig) = Rig::new();
    assert_eq!(rig.state(), abi::KFABRIC_LINK_UP);
    ip("link set abil0 down");
    assert_eq!(rig.state(), abi::KFABRIC_LINK_DOWN);
    rig.transmits_are_refused(Errno::ENETDOWN);
    // Receives wait until it is up again.
    rig.post(abi::KFABRIC_OP_RECV, 8).expect("recv");
    // Domains can be opened.
    let domain = rig.file.domain_on(rig.fabric, "abil");
    rig.file.close_all(&[domain]);
    ip("link set abil0 up");
    assert_eq!(rig.state(), abi::KFABRIC_LINK_UP);
    rig.post(abi::KFABRIC_OP_SEND, 8).expect("send");
    for _ in 0..2 {
        rig.file.cq_read(rig.party.cq).expect("sent and received");
    }
    rig.file.part(&rig.party);
    rig.file.close_all(&[rig.domain, rig.fabric]);
    del(&rig.file, "abil").expect("del");
}

fn a_removed_interface_ends_its_endpoints() {
    let (netdev, rig) = Rig::new();
    let file = &rig.file;
    let early = file.ep(rig.domain);
    file.bind(early, rig.party.cq, abi::KFI_SEND | abi::KFI_RECV)
        .expect("bind");
    file.bind(early, rig.party.av, 0).expect("bind");
    // A send that waits.
    rig.post(abi::KFABRIC_OP_TSEND, 20_000).expect("tsend");
    netdev.delete();
    assert_eq!(rig.state(), abi::KFABRIC_LINK_GONE);
    assert_eq!(string(&link(file, "abil").expect("listed").netdev), "abil0");
    // It fails, and so do all later ones.
    until("the waiting send fails", || {
        matches!(file.cq_read(rig.party.cq), Err(Errno::KFI_EAVAIL))
    });
    let error = file.cq_readerr(rig.party.cq).expect("readerr");
    assert_eq!(
        (error.op_context, error.err),
        (7, Errno::ENODEV.raw() as u32)
    );
    rig.transmits_are_refused(Errno::ENODEV);
    let open = arg!(kfabric_domain_open: fabric: rig.fabric, link: text("abil"));
    refused(file.call(open), Errno::ENODEV);
    refused(file.enable(early), Errno::ENODEV);
    let at = arg!(kfabric_ep_open: domain: rig.domain, src_addr: ipv4([10, 72, 0, 1], 0));
    refused(file.call(at), Errno::EADDRNOTAVAIL);
    refused(del(file, "abil"), Errno::ENODEV);
    // The names of the interface and of the link are free, although a domain is open on the old
    // link.
    let again = Netdev::dummy("abil0", "10.72.0.1/24");
    add(file, "abil", "abil0").expect("the name is free");
    refused(add(file, "abil", "abil0"), Errno::EEXIST);
    assert_eq!(rig.states(), [abi::KFABRIC_LINK_GONE, abi::KFABRIC_LINK_UP]);
    // The name means the new link; the old endpoints stay where they are.
    let domain = file.domain_on(rig.fabric, "abil");
    refused(del(file, "abil"), Errno::EBUSY);
    rig.transmits_are_refused(Errno::ENODEV);
    file.close_all(&[domain]);
    del(file, "abil").expect("del");
    refused(del(file, "abil"), Errno::ENODEV);
    add(file, "abil", "abil0").expect("add");
    // The remaining objects can be closed as usual.
    file.close_all(&[early]);
    file.part(&rig.party);
    file.close_all(&[rig.domain]);
    assert_eq!(rig.states(), [abi::KFABRIC_LINK_UP]);
    // A link without domains is removed with its interface at once.
    again.delete();
    assert!(link(file, "abil").is_none());
    refused(del(file, "abil"), Errno::ENODEV);
    file.close_all(&[rig.fabric]);
}
