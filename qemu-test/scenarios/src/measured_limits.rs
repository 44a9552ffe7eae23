// SPDX-License-Identifier: GPL-2.0
//! The limits of users and peers, compared with the memory that the kernel uses for itself.
//!
//! Each test loads the module with a small limit, fills a part of it until a call is refused, and
//! measures the kernel's memory before, at the limit, and after all is closed. The module's own
//! accounts are not asked: memory that it forgets to charge is found here.

use crate::{
    abi_budget::{map, unmap},
    abi_threads::{as_new_user, open_to_all},
    deferred_memory::waiting_op,
    harness::tests,
    host::{Host, LINK, Options, SOON, buffer, domain_on, errno, within},
    hostile::one_peer::OnePeer,
    hosts::{LINKS, apart, sanitizing},
    kernel_memory::{self, Used},
    module::Loaded,
    networks::Wire,
    raw::{File, PAGE, Pages, addr_of, arg, data, ipv4, text, with},
};
use kfi::{
    Device, Errno,
    abi::{self, Call},
};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::time::Duration;

tests![
    objects_take_what_is_charged => 600,
    handle_tables_take_what_is_charged,
    operations_under_way_take_what_is_charged => 120,
    waiting_work_takes_what_is_charged => 180,
    mapped_memory_takes_what_is_charged,
    ports_take_less_than_is_charged,
    own_messages_take_what_is_charged,
    messages_of_another_user_take_what_is_charged,
    messages_of_another_host_take_what_is_charged => 180,
    connections_of_another_host_take_what_is_charged => 180,
];

/// The limit of a user.
const LIMIT: u64 = 16 << 20;

/// What one source may take of it: of the half that peers use, it leaves a quarter as much free as
/// it has.
const ONE_PEER: u64 = LIMIT / 2 / 5 * 4;

/// Changes of the kernel's memory, in bytes, that have other causes than the module.
const SLACK: u64 = 2 << 20;

/// The most memory that a full limit of `limit` bytes may take. A kernel that checks for its own
/// faults stores up to three times the size of a small allocation with it.
fn most(limit: u64) -> u64 {
    let with_overhead = if sanitizing() {
        4 * limit
    } else {
        limit + limit / 4
    };
    with_overhead + SLACK
}

/// The most per-CPU memory, in bytes, that the kernel keeps after its last user has freed it.
const KEPT_PER_CPU: u64 = 4 << 20;

/// What the kernel uses, without what it can free at once.
fn used() -> Used {
    kernel_memory::shrink();
    Used::now()
}

/// Bytes by which the memory of the kernel has grown.
fn grown(now: Used, before: Used) -> u64 {
    now.since(before).all << 10
}

/// Bytes by which the kernel's memory has grown, without the per-CPU memory that it keeps and its
/// records of that memory. With two CPUs the records take as much again.
fn left(now: Used, before: Used) -> u64 {
    let percpu = now.since(before).percpu << 10;
    grown(now, before).saturating_sub(2 * percpu.min(KEPT_PER_CPU))
}

/// The least memory that a full limit must take.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Least {
    /// At least half of what is charged is memory.
    Half,
    /// The charge stands for something other than memory.
    Nothing,
}

/// Runs `setup`, whose objects do not count for the limit, and `fill`, which fills a limit of
/// `limit` bytes. Then drops the result of `fill`, and that of `setup`. Fails with a text if the
/// kernel's memory grew by more than [`most`] of the limit, or by less than `least`, or does not
/// shrink again.
fn compare<S, T>(
    what: &str,
    limit: u64,
    least: Least,
    setup: impl FnOnce() -> S,
    fill: impl FnOnce(&S) -> T,
) -> Result<(), String> {
    let before = used();
    let scene = setup();
    let empty = used();
    let filled = fill(&scene);
    let grown = grown(used(), empty);
    drop((filled, scene));
    let mut kept = 0;
    let came_back = within(SOON, || {
        kept = left(used(), before);
        kept <= SLACK
    });
    let kib = |bytes: u64| bytes >> 10;
    let found = format!(
        "{what}: {} KiB at a limit of {} KiB, and {} KiB afterwards",
        kib(grown),
        kib(limit),
        kib(kept)
    );
    println!("{found}");
    let fault = if grown > most(limit) {
        "too much"
    } else if least == Least::Half && grown < limit / 2 {
        "nothing was measured"
    } else if !came_back {
        "kept"
    } else {
        return Ok(());
    };
    Err(format!("{fault}: {found}"))
}

/// [`compare`] for a limit of which at least half is memory. A fault fails the test.
#[track_caller]
fn measure_beside<S, T>(
    what: &str,
    limit: u64,
    setup: impl FnOnce() -> S,
    fill: impl FnOnce(&S) -> T,
) {
    compare(what, limit, Least::Half, setup, fill).unwrap_or_else(|fault| panic!("{fault}"));
}

/// [`compare`] without a setup. A fault fails the test.
#[track_caller]
fn measure<T>(what: &str, limit: u64, least: Least, fill: impl FnOnce() -> T) {
    compare(what, limit, least, || (), |()| fill()).unwrap_or_else(|fault| panic!("{fault}"));
}

/// The module with the small limit, as long as this value exists.
fn limited() -> Loaded {
    let loaded = Loaded::with(&[&format!("user_memory={}", LIMIT >> 20)]);
    File::open();
    open_to_all();
    loaded
}

/// An open file of a user who has no other. This process, which stays root, uses it.
fn of_new_user() -> File {
    as_new_user(File::open_only)
}

/// Calls `each` with 1, 2 and so on until it is refused. The error must be this one.
#[track_caller]
fn until_refused<T>(expected: Errno, mut each: impl FnMut(u64) -> Result<T, Errno>) -> Vec<T> {
    let mut done = Vec::new();
    for number in 1..200_000 {
        match each(number) {
            Ok(one) => done.push(one),
            Err(error) => {
                assert_eq!(error, expected, "after {} times", done.len());
                return done;
            }
        }
    }
    panic!("no limit");
}

/// Opens an object of a class. It gets a file, a fabric, a domain, an address, and a number that no
/// other object has.
type Open = fn(&File, u32, u32, u64, u64) -> Result<u32, Errno>;

/// Opens an object; its handle.
macro_rules! open {
    ($file:ident, $($arg:tt)*) => { $file.call(arg!($($arg)*)).map(|arg| arg.handle) };
}

/// The classes of objects, with queues of several sizes. The charge for a small object has a
/// part for what the kernel needs to keep it.
const CLASSES: &[(&str, Least, Open)] = &[
    ("fabrics", Least::Nothing, |file, _, _, _, _| {
        open!(file, kfabric_fabric_open)
    }),
    (
        "domains",
        Least::Half,
        |file, fabric, _, _, _| open!(file, kfabric_domain_open: fabric, link: text(LINK)),
    ),
    (
        "EQs",
        Least::Half,
        |file, fabric, _, _, _| open!(file, kfabric_eq_open: fabric),
    ),
    (
        "large CQs",
        Least::Half,
        |file, _, domain, _, _| open!(file, kfabric_cq_open: domain, entries: 8192),
    ),
    (
        "small CQs",
        Least::Half,
        |file, _, domain, _, _| open!(file, kfabric_cq_open: domain, entries: 1),
    ),
    (
        "counters",
        Least::Half,
        |file, _, domain, _, _| open!(file, kfabric_cntr_open: domain),
    ),
    (
        "AVs",
        Least::Half,
        |file, _, domain, _, _| open!(file, kfabric_av_open: domain, type_: abi::KFI_AV_TABLE, count: 64),
    ),
    (
        "large AVs",
        Least::Half,
        |file, _, domain, _, _| open!(file, kfabric_av_open: domain, type_: abi::KFI_AV_TABLE, count: 1500),
    ),
    ("regions", Least::Half, |file, _, domain, at, key| {
        file.reg(domain, at, 1, key)
    }),
    (
        "wait sets",
        Least::Nothing,
        |file, fabric, _, _, _| open!(file, kfabric_wait_open: fabric, wait_obj: abi::KFI_WAIT_QUEUE),
    ),
    (
        "poll sets",
        Least::Nothing,
        |file, _, domain, _, _| open!(file, kfabric_poll_open: domain),
    ),
    (
        "endpoints",
        Least::Half,
        |file, _, domain, _, _| open!(file, kfabric_ep_open: domain),
    ),
    (
        "connected endpoints",
        Least::Half,
        |file, _, domain, _, _| open!(file, kfabric_ep_open: domain, type_: abi::KFI_EP_MSG),
    ),
    // A part of the charge is for transmits under way, for the QP, or for packets that wait for it.
    (
        "large endpoints",
        Least::Nothing,
        |file, _, domain, _, _| open!(file, kfabric_ep_open: domain, rx_size: 700, tx_size: 700),
    ),
    (
        "large connected endpoints",
        Least::Nothing,
        |file, _, domain, _, _| open!(file, kfabric_ep_open: domain, type_: abi::KFI_EP_MSG, rx_size: 700, tx_size: 700),
    ),
    (
        "datagram endpoints",
        Least::Nothing,
        |file, _, domain, _, _| open!(file, kfabric_ep_open: domain, type_: abi::KFI_EP_DGRAM),
    ),
    (
        "shared receive contexts",
        Least::Half,
        |file, _, domain, _, _| open!(file, kfabric_srx_open: domain),
    ),
    (
        "shared transmit contexts",
        Least::Nothing,
        |file, _, domain, _, _| open!(file, kfabric_stx_open: domain),
    ),
    (
        "completion counters",
        Least::Half,
        |file, _, domain, _, _| open!(file, kfabric_comp_cntr_create: domain),
    ),
    (
        "counters objects",
        Least::Half,
        |file, _, domain, _, _| open!(file, kfabric_counters_open: domain, count: abi::KFABRIC_MAX_COUNTERS),
    ),
];

fn objects_take_what_is_charged() {
    let _loaded = limited();
    let pages = Pages::new(1);
    let faults = CLASSES.iter().filter_map(|&(class, least, open)| {
        compare(
            class,
            LIMIT,
            least,
            || (),
            |()| {
                let (file, fabric, domain) = of_new_user().and_domain();
                let opened = until_refused(Errno::ENOMEM, |number| {
                    open(&file, fabric, domain, pages.addr(), number)
                });
                println!("{} {class}", opened.len());
                file
            },
        )
        .err()
    });
    assert_eq!(faults.collect::<Vec<_>>(), [""; 0]);
}

/// The first object of each file makes a table.
fn handle_tables_take_what_is_charged() {
    let _loaded = limited();
    let many = Rlimit {
        current: Some(1 << 16),
        maximum: Some(1 << 16),
    };
    setrlimit(Resource::Nofile, many).expect("setrlimit");
    measure("handle tables", LIMIT, Least::Half, || {
        as_new_user(|| {
            until_refused(Errno::ENOMEM, |_| {
                let fabric = Device::open().and_then(|device| device.fabric());
                fabric.map_err(|error| errno::<()>(Err(error)).expect("an error number"))
            })
        })
    });
}

/// Each operation is to a host that does not answer. The allocator rounds the memory of 171 pieces up
/// to a power of two, and that of the payload of an atomic, which has a header before its 4,096
/// bytes.
fn operations_under_way_take_what_is_charged() {
    let _loaded = limited();
    let wire = Wire::new();
    wire.a.run(|| {
        let pages = Pages::new(1);
        for pieces in [256u64, 171] {
            let piece = |addr| abi::kfabric_rma_iov {
                addr,
                len: 1,
                key: 7,
            };
            let list: Vec<_> = (0..pieces).map(piece).collect();
            let write = data!(kfabric_op:
                opcode: abi::KFABRIC_OP_WRITE, buf: pages.addr(), len: pieces,
                rma_addr: addr_of(list.as_slice()), rma_iov_count: pieces as u32
            );
            fill_with(&format!("lists of {pieces} pieces"), write);
        }
        let atomic = data!(kfabric_op:
            opcode: abi::KFABRIC_OP_ATOMIC, buf: pages.addr(), len: PAGE as u64, rma_key: 7,
            datatype: abi::KFI_UINT64 as u16, op: abi::KFI_SUM as u16
        );
        fill_with("payloads of atomics", atomic);
    });
}

/// Posts this operation to a host that does not answer, until it is refused.
fn fill_with(what: &str, op: abi::kfabric_op) {
    measure(what, LIMIT, Least::Half, || {
        let file = of_new_user();
        let domain = file.domain_on(file.fabric(), "roce0");
        let caps = abi::KFI_RMA | abi::KFI_ATOMIC;
        let queue = file.make(arg!(kfabric_cq_open: domain, entries: 4096));
        let attr = arg!(kfabric_ep_open: caps, tx_size: 4096);
        let party = file.party_with(domain, queue, attr);
        let absent = u32::from_ne_bytes([192, 0, 2, 99]);
        let peer = file.insert(party.av, with!(party.name; v4: absent));
        let op = with!(op; peer: peer.expect("insert"));
        until_refused(Errno::ENOMEM, |_| file.post_one(party.ep, op));
        file
    });
}

fn waiting_work_takes_what_is_charged() {
    let _loaded = limited();
    for triggers in [false, true] {
        let what = ["deferred work", "triggered operations"][usize::from(triggers)];
        measure(what, LIMIT, Least::Half, || {
            let (file, _, domain) = of_new_user().and_domain();
            let caps = abi::KFI_MSG | abi::KFI_TRIGGER;
            let party = file.party(domain, arg!(kfabric_ep_open: caps));
            let go = file.cntr(domain);
            let pages = Pages::new(1);
            let mr = file.reg(domain, pages.addr(), 8, 7).expect("mr");
            let op = data!(kfabric_op:
                opcode: abi::KFABRIC_OP_RECV, buf: pages.addr(), len: 8, mr,
                peer: abi::KFI_ADDR_UNSPEC
            );
            let names = (domain, party.ep, go);
            until_refused(Errno::ENOMEM, |_| waiting_op(&file, names, op, triggers));
            (file, pages)
        });
    }
}

/// Mappings, which keep the memory of closed objects. Dropping this value removes them.
struct Mappings(Vec<(usize, usize)>);

impl Drop for Mappings {
    fn drop(&mut self) {
        for (at, len) in self.0.drain(..) {
            unmap(at, len);
        }
    }
}

fn mapped_memory_takes_what_is_charged() {
    let _loaded = limited();
    measure("rings", LIMIT, Least::Half, || {
        let (file, _, domain) = of_new_user().and_domain();
        Mappings(until_refused(Errno::ENOMEM, |_| {
            let cq = file.call(arg!(kfabric_cq_open: domain, entries: 4096))?;
            let len = cq.ring_size as usize;
            let at = map(&file, cq.ring_offset, len);
            file.close(cq.handle).map(|()| (at, len))
        }))
    });
    measure("pages of counters", LIMIT, Least::Half, || {
        let (file, _, domain) = of_new_user().and_domain();
        Mappings(until_refused(Errno::ENOMEM, |_| {
            let cntr = file.call(arg!(kfabric_cntr_open: domain))?;
            let at = map(&file, cntr.page_offset, PAGE);
            file.close(cntr.handle).map(|()| (at, PAGE))
        }))
    });
}

/// All users share the ports, so the charge is larger than the memory.
fn ports_take_less_than_is_charged() {
    let _loaded = limited();
    measure("ports", LIMIT, Least::Nothing, || {
        let file = of_new_user();
        let fabric = file.fabric();
        let addr = ipv4([127, 0, 0, 2], 0);
        let ports = until_refused(
            Errno::ENOMEM,
            |_| open!(file, kfabric_pep_open: fabric, addr, backlog: 1),
        );
        let most = LIMIT / (32 << 10);
        let ports = ports.len() as u64;
        assert!((most / 4..most).contains(&ports), "{ports} ports");
        file
    });
}

/// The lengths of messages that are kept: the largest one, and one that the allocator rounds up to it.
const LENS: [usize; 2] = [8 << 10, 4100];

/// The memory that the allocator takes for the bytes of one of them.
const KEPT: u64 = 8 << 10;

/// The messages that are kept must take no more than the limit.
#[track_caller]
fn assert_within(kept: usize, len: usize, limit: u64) {
    println!("{kept} messages of {len} bytes");
    assert!(
        kept as u64 * KEPT <= limit,
        "{kept} messages of {len} bytes"
    );
}

/// Sends messages of `len` bytes to endpoints of a new user, from `sender` or from the same user. At
/// each endpoint it stops when a message waits or is refused, and an injected one is refused.
fn keep_messages(what: &str, sender: Option<&File>, limit: u64, len: usize) {
    /// Two of the endpoints have as many slots as the messages need.
    const RECEIVERS: usize = 3;
    let pages = Pages::new(len.div_ceil(PAGE));
    let setup = || {
        let (file, _, domain) = of_new_user().and_domain();
        let total_buffered_recv = abi::KFABRIC_MAX_BUFFERED;
        let receivers: [_; RECEIVERS] = std::array::from_fn(|_| {
            let attr = arg!(kfabric_ep_open: rx_size: 1024, total_buffered_recv);
            file.party(domain, attr).name
        });
        let from = sender.unwrap_or(&file);
        let party = from.party(from.domain(from.fabric()), Call::sized());
        (file, receivers, party)
    };
    measure_beside(what, limit, setup, |(file, receivers, party)| {
        let from = sender.unwrap_or(file);
        let mut kept = 0;
        for name in receivers {
            let peer = from.insert(party.av, *name).expect("insert");
            let send = data!(kfabric_op:
                opcode: abi::KFABRIC_OP_SEND, buf: pages.addr(), len: len as u64, peer
            );
            let sent = until_refused(Errno::EAGAIN, |_| {
                from.post_one(party.ep, send)?;
                from.cq_read(party.cq)
            });
            kept += sent.len();
            let inject = with!(send; flags: abi::KFI_INJECT, len: 8);
            until_refused(Errno::EAGAIN, |_| {
                from.post_one(party.ep, inject)?;
                from.cq_read(party.cq)
            });
        }
        assert_within(kept, len, limit);
    });
}

fn own_messages_take_what_is_charged() {
    let _loaded = limited();
    for len in LENS {
        keep_messages("messages of the same user", None, LIMIT, len);
    }
}

fn messages_of_another_user_take_what_is_charged() {
    let _loaded = limited();
    let sender = File::open_only();
    for len in LENS {
        keep_messages("messages of another user", Some(&sender), ONE_PEER, len);
    }
}

/// On the sender's host the kernel keeps a connection only. Two endpoints have more slots than the
/// messages need.
fn messages_of_another_host_take_what_is_charged() {
    let _loaded = limited();
    let hosts = apart();
    let options = Options {
        rx_size: 1024,
        buffered: abi::KFABRIC_MAX_BUFFERED,
        ..Options::default()
    };
    for len in LENS {
        let from = buffer(len);
        let setup = || {
            let new = || {
                as_new_user(|| {
                    let (_, domain) = domain_on(LINKS[1]);
                    [(); 2].map(|()| Host::on(&domain, &options))
                })
            };
            let receivers = hosts.host(1).run(new);
            let a = Host::on(&hosts.domain(0).1, &Options::default());
            (a, receivers)
        };
        measure_beside(
            "messages of another host",
            ONE_PEER,
            setup,
            |(a, receivers)| {
                let kept = receivers.each_ref().map(|b| {
                    let to_b = a.meet(b);
                    until_refused(Errno::EAGAIN, |number| {
                        a.ep.send(to_b, &from, number).expect("send");
                        let kept = a.cq.next(Duration::from_millis(500)).expect("a completion");
                        kept.ok_or(Errno::EAGAIN)
                    })
                    .len()
                });
                assert_within(kept.iter().sum(), len, ONE_PEER);
            },
        );
    }
}

/// The connections that one host can request over IPv4 at the default limit, 256 MiB (abi.md).
const CONNECTIONS: u64 = 2600;

/// The peer disconnects when this is dropped.
struct Leaving<'a>(&'a mut OnePeer);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// The peer is a program without the module, which takes no memory for its ends.
fn connections_of_another_host_take_what_is_charged() {
    let _loaded = limited();
    let wire = Wire::new();
    let mut peer = OnePeer::new(&wire);
    let setup = || {
        let new = || as_new_user(|| Host::on(&domain_on("roce0").1, &Options::default()));
        wire.b.run(new)
    };
    measure_beside("connections of another host", ONE_PEER, setup, |host| {
        let port = host.ep.name().expect("name").port();
        let made = until_refused(Errno::EBUSY, |_| peer.connect(port)).len() as u64;
        println!("{made} connections");
        // abi.md names a number that is rounded.
        let most = CONNECTIONS * LIMIT / (256 << 20);
        assert!(
            made.abs_diff(most) * 100 <= 8 * most,
            "{made} connections instead of {most}"
        );
        Leaving(&mut peer)
    });
}
