// SPDX-License-Identifier: GPL-2.0
//! Common objects of tests: a link on the loopback interface, and a host with the usual objects.

use crate::abi_threads::NetNs;
use kfi::{
    Access, AuthKey, Av, AvKind, Buffer, Caps, Cntr, CntrBind, CompFlags, Cq, CqBind, CqFormat,
    Device, Domain, Element, Endpoint, Entry, EpType, Errno, Error, Fabric, FiAddr, Mr, OpFlags,
    PacketCounter, Packets, PacketsOf, QpAddr, SharedRx, Stat, StatClass, StatValues, Wait,
    WaitSet,
};
use std::time::Duration;

// Flags of completions.
pub(crate) const SENT: CompFlags = CompFlags::MSG.union(CompFlags::SEND);
pub(crate) const RECEIVED: CompFlags = CompFlags::MSG.union(CompFlags::RECV);
pub(crate) const TSENT: CompFlags = CompFlags::TAGGED.union(CompFlags::SEND);
pub(crate) const TRECEIVED: CompFlags = CompFlags::TAGGED.union(CompFlags::RECV);
pub(crate) const WROTE: CompFlags = CompFlags::RMA.union(CompFlags::WRITE);
pub(crate) const READ: CompFlags = CompFlags::RMA.union(CompFlags::READ);
pub(crate) const ADDED: CompFlags = CompFlags::ATOMIC.union(CompFlags::WRITE);
pub(crate) const FETCHED: CompFlags = CompFlags::ATOMIC.union(CompFlags::READ);

/// A CQ for both directions.
pub(crate) const BOTH: CqBind = CqBind::TRANSMIT.union(CqBind::RECV);

/// All rights for peers.
pub(crate) const REMOTE: Access = Access::REMOTE_READ.union(Access::REMOTE_WRITE);

/// The name of the link that tests use.
pub(crate) const LINK: &str = "lo0";

/// Longest wait of a test for an expected event.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Opens the device, and makes the link on `lo` if it is not there yet.
pub(crate) fn device() -> Device {
    let device = Device::open().expect("open /dev/kfabric");
    let _ = device.link_add(LINK, "lo");
    device
}

/// A fabric and a domain on the loopback link.
pub(crate) fn domain() -> (Fabric, Domain) {
    if let Some(apart) = crate::hosts::next_domain() {
        return apart;
    }
    device();
    domain_on(LINK)
}

/// The domain of an existing link, in the namespace of the caller.
pub(crate) fn domain_on(link: &str) -> (Fabric, Domain) {
    let fabric = Device::open().expect("device").fabric().expect("fabric");
    let domain = fabric.domain(link).open().expect("domain");
    (fabric, domain)
}

/// The packet statistics of the QPs of the only link of the caller's namespace.
pub(crate) fn link_packets() -> Packets {
    let device = Device::open().expect("device");
    let link = device.links().next().expect("a link").expect("link");
    device.packets(PacketsOf::Link(link.id)).expect("packets")
}

/// One of these counters.
pub(crate) fn link_count(counter: PacketCounter) -> u64 {
    link_packets().get(counter)
}

/// The statistics of packets of the caller's namespace that no QP took, and of packets to QP 1.
pub(crate) fn netns_packets() -> Packets {
    let device = Device::open().expect("device");
    device.packets(PacketsOf::Netns).expect("packets")
}

/// One of those of this namespace.
pub(crate) fn netns_count(netns: &NetNs, counter: PacketCounter) -> u64 {
    netns.run(|| netns_packets().get(counter))
}

/// The error number of a result; `None` if it is no error, or one without a number.
pub(crate) fn errno<T>(result: kfi::Result<T>) -> Option<Errno> {
    result.err().as_ref().and_then(Error::errno)
}

/// A result must be this error.
#[track_caller]
pub(crate) fn is_refused<T>(result: kfi::Result<T>, expected: Errno) {
    assert_eq!(errno(result), Some(expected));
}

/// A buffer of this length in bytes, all zeros.
pub(crate) fn buffer(len: usize) -> Buffer {
    Buffer::new(len).expect("buffer")
}

/// A buffer of these bytes.
pub(crate) fn holding(bytes: &[u8]) -> Buffer {
    Buffer::from_bytes(bytes).expect("buffer")
}

/// A buffer of these elements.
pub(crate) fn buffer_of<T: Element>(elements: &[T]) -> Buffer {
    Buffer::of(elements).expect("buffer")
}

/// A region with these rights and this key.
pub(crate) fn register(domain: &Domain, buffer: &Buffer, access: Access, key: u64) -> Mr {
    let region = domain.mr(buffer).access(access).requested_key(key);
    region.open().expect("mr")
}

/// A domain, a wait set, and a counter that is its only member.
pub(crate) fn counter_of_set() -> (Domain, WaitSet, Cntr) {
    let (fabric, domain) = domain();
    let set = fabric.wait_set().expect("wait set");
    let wait = Wait::Set(set.clone());
    let cntr = domain.cntr().wait(wait).open().expect("cntr");
    (domain, set, cntr)
}

/// An enabled endpoint with one CQ for both directions and an AV.
pub(crate) struct Host {
    /// The domain of the objects.
    pub(crate) domain: Domain,
    /// CQ of both directions, format TAGGED, wait object QUEUE.
    pub(crate) cq: Cq,
    /// A table.
    pub(crate) av: Av,
    /// The endpoint.
    pub(crate) ep: Endpoint,
}

/// Attributes of a [`Host`] that can be chosen.
pub(crate) struct Options {
    /// Type of the endpoint.
    pub(crate) ep_type: EpType,
    /// Capabilities.
    pub(crate) caps: Caps,
    /// Default flags of transmits.
    pub(crate) tx_op_flags: OpFlags,
    /// Flags of the CQ's binding.
    pub(crate) bind: CqBind,
    /// Entries of the CQ.
    pub(crate) cq_entries: u32,
    /// Transmit queue.
    pub(crate) tx_size: u32,
    /// Receive queue.
    pub(crate) rx_size: u32,
    /// Bytes of unexpected messages.
    pub(crate) buffered: u64,
    /// Authorization key.
    pub(crate) auth_key: AuthKey,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            ep_type: EpType::Rdm,
            caps: Caps::MSG
                | Caps::TAGGED
                | Caps::RMA
                | Caps::MULTI_RECV
                | Caps::SOURCE
                | Caps::DIRECTED_RECV,
            tx_op_flags: OpFlags::empty(),
            bind: BOTH,
            cq_entries: 256,
            tx_size: 0,
            rx_size: 0,
            buffered: 0,
            auth_key: AuthKey::NONE,
        }
    }
}

impl Options {
    /// The usual options with this type and these capabilities.
    pub(crate) fn of(ep_type: EpType, caps: Caps) -> Self {
        Self {
            ep_type,
            caps,
            ..Self::default()
        }
    }

    /// The usual options with queues of these sizes (0: the module's choice) and so many entries of
    /// the CQ.
    pub(crate) fn sized(tx_size: u32, rx_size: u32, cq_entries: u32) -> Self {
        Self {
            tx_size,
            rx_size,
            cq_entries,
            ..Self::default()
        }
    }
}

impl Host {
    /// A host in a domain of its own.
    pub(crate) fn new() -> Self {
        Self::with(&Options::default())
    }

    /// A host with `options` in a domain of its own.
    pub(crate) fn with(options: &Options) -> Self {
        let (_, domain) = domain();
        Self::on(&domain, options)
    }

    /// A host on `domain`.
    pub(crate) fn on(domain: &Domain, options: &Options) -> Self {
        Self::at(domain, options, None)
    }

    /// A host on `domain`, at this address.
    pub(crate) fn at(
        domain: &Domain,
        options: &Options,
        addr: Option<std::net::SocketAddr>,
    ) -> Self {
        Self::prepared(domain, options, addr, |_| ())
    }

    /// A host on `domain`, at this address, whose endpoint `prepare` gets before it is enabled.
    pub(crate) fn prepared(
        domain: &Domain,
        options: &Options,
        addr: Option<std::net::SocketAddr>,
        prepare: impl FnOnce(&Endpoint),
    ) -> Self {
        let cq = domain
            .cq()
            .entries(options.cq_entries)
            .format(CqFormat::Tagged)
            .wait(Wait::Queue)
            .open()
            .expect("cq");
        let av = domain.av().kind(AvKind::Table).open().expect("av");
        let mut ep = domain.endpoint();
        if let Some(addr) = addr {
            ep = ep.addr(addr);
        }
        let ep = ep
            .ep_type(options.ep_type)
            .caps(options.caps)
            .tx_op_flags(options.tx_op_flags)
            .tx_size(options.tx_size)
            .rx_size(options.rx_size)
            .buffered(options.buffered)
            .auth_key(options.auth_key)
            .open()
            .expect("endpoint");
        ep.bind_cq(&cq, options.bind).expect("bind cq");
        if options.ep_type != EpType::Msg {
            ep.bind_av(&av).expect("bind av");
        }
        prepare(&ep);
        ep.enable().expect("enable");
        Self {
            domain: domain.clone(),
            cq,
            av,
            ep,
        }
    }

    /// A host on `domain` whose endpoint has a counter for each of these kinds of operations.
    pub(crate) fn counting<const N: usize>(
        domain: &Domain,
        options: &Options,
        kinds: [CntrBind; N],
    ) -> (Self, [Cntr; N]) {
        let cntrs = kinds.map(|_| domain.cntr().wait(Wait::Queue).open().expect("cntr"));
        let host = Self::prepared(domain, options, None, |ep| {
            for (cntr, kind) in cntrs.iter().zip(kinds) {
                ep.bind_cntr(cntr, kind).expect("bind cntr");
            }
        });
        (host, cntrs)
    }

    /// An endpoint that uses this shared receive context, and the CQ and the AV of this host.
    pub(crate) fn sharing(&self, srx: &SharedRx, ep_type: EpType, caps: Caps) -> Endpoint {
        let ep = self.domain.endpoint().ep_type(ep_type).caps(caps);
        let ep = ep.shared_rx().open().expect("endpoint");
        ep.bind_srx(srx).expect("bind srx");
        ep.bind_cq(&self.cq, BOTH).expect("bind cq");
        if ep_type != EpType::Msg {
            ep.bind_av(&self.av).expect("bind av");
        }
        ep.enable().expect("enable");
        ep
    }

    /// Adds the address of `other` to the AV; returns its `kfi_addr_t`.
    pub(crate) fn meet(&self, other: &Host) -> FiAddr {
        self.av
            .insert_one(other.ep.name().expect("name"))
            .expect("av insert")
    }

    /// Its QP's address, and the PSN of its first packet.
    pub(crate) fn qp(&self) -> (QpAddr, u32) {
        address_of(&self.ep)
    }

    /// The statistics of its endpoint, read in its namespace.
    pub(crate) fn stat(&self) -> Stat {
        let name = self.ep.name().expect("name");
        Device::open()
            .expect("device")
            .stats(StatClass::Endpoint)
            .map(|stat| stat.expect("stat"))
            .find(|stat| {
                // Connected endpoints of two processes may have equal names and handles.
                matches!(stat.values, StatValues::Endpoint { addr, .. } if addr == Some(name))
                    && stat.handle == self.ep.handle()
                    && stat.pid == Some(std::process::id())
            })
            .expect("the endpoint")
    }

    /// A packet counter of its endpoint, read in its namespace.
    pub(crate) fn count(&self, counter: PacketCounter) -> u64 {
        let device = Device::open().expect("device");
        device
            .packets(PacketsOf::Endpoint(self.stat().id))
            .expect("packets")
            .get(counter)
    }

    /// The error entry that must come soon.
    #[track_caller]
    pub(crate) fn failure(&self) -> kfi::ErrEntry {
        failure(&self.cq)
    }

    /// The error entry that must come soon, with this context and this error.
    #[track_caller]
    pub(crate) fn fails(&self, context: u64, err: Errno) -> kfi::ErrEntry {
        fails(&self.cq, context, err)
    }

    /// The next completion, which must come soon and be a success.
    #[track_caller]
    pub(crate) fn completion(&self) -> Entry {
        completion(&self.cq)
    }

    /// The next completion, which must have exactly these flags and this context.
    #[track_caller]
    pub(crate) fn expect(&self, flags: CompFlags, context: u64) -> Entry {
        expect(&self.cq, flags, context)
    }

    /// The queue must be empty.
    #[track_caller]
    pub(crate) fn expect_nothing(&self) {
        expect_nothing(&self.cq);
    }
}

/// The next completion of `cq`, which must come soon and be a success. A sanitizing kernel takes
/// longer for long messages.
#[track_caller]
fn completion(cq: &Cq) -> Entry {
    cq.next(SOON * 5)
        .expect("completion")
        .expect("a completion within the time")
}

/// The next completion of `cq`, which must have exactly these flags and this context.
#[track_caller]
pub(crate) fn expect(cq: &Cq, flags: CompFlags, context: u64) -> Entry {
    let entry = completion(cq);
    assert_eq!(entry.flags, flags, "flags of {entry:?}");
    assert_eq!(entry.op_context, context, "context of {entry:?}");
    // fi_cq(3): the length is for receives.
    if !flags.contains(CompFlags::RECV) {
        assert_eq!(entry.len, 0, "length of {entry:?}");
    }
    entry
}

/// `cq` must be empty.
#[track_caller]
pub(crate) fn expect_nothing(cq: &Cq) {
    let mut entries = [Entry::default()];
    assert_eq!(cq.read(&mut entries).expect("read"), 0, "{entries:?}");
}

/// The address of an endpoint's QP, and the PSN of its first packet.
pub(crate) fn address_of(ep: &Endpoint) -> (QpAddr, u32) {
    let qp = ep.qp().expect("qp");
    let host = std::net::SocketAddr::new(qp.ip(), 0);
    (QpAddr { host, qpn: qp.qpn }, qp.psn)
}

/// Two hosts that have each other's address.
pub(crate) fn pair() -> (Host, FiAddr, Host, FiAddr) {
    pair_with(&Options::default())
}

/// Two hosts with `options` that have each other's address.
pub(crate) fn pair_with(options: &Options) -> (Host, FiAddr, Host, FiAddr) {
    let (a, b) = (Host::with(options), Host::with(options));
    let (to_b, to_a) = (a.meet(&b), b.meet(&a));
    (a, to_b, b, to_a)
}

/// Sends a message of `len` bytes from `a` to `b`, whose receive comes first.
#[track_caller]
pub(crate) fn exchange(a: &Host, to_b: FiAddr, b: &Host, len: usize) {
    let bytes = pattern(len, len as u64);
    let (from, into) = (holding(&bytes), buffer(len.max(1)));
    b.ep.recv(&into, 2).expect("recv");
    a.ep.send(to_b, &from, 1).expect("send");
    let entry = b.expect(RECEIVED, 2);
    assert_eq!(entry.len as usize, len);
    assert!(into.to_vec(..len) == bytes, "length {len}");
    a.expect(SENT, 1);
}

/// `len` bytes that differ from each other and with `seed`. Blocks of them are copied, because this
/// crate is not optimised. Each block is a number of its own and a part of random bytes from a place
/// of its own, so that short slices differ, too.
pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    /// No test compares shorter parts of a pattern with each other.
    const BLOCK: usize = 64;
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let random: Vec<u8> = (0..8 * BLOCK).map(|_| (next() >> 24) as u8).collect();
    let mut bytes = Vec::with_capacity(len + BLOCK);
    while bytes.len() < len {
        let number = next();
        let from = (number >> 32) as usize % (random.len() - BLOCK);
        bytes.extend_from_slice(&number.to_ne_bytes());
        bytes.extend_from_slice(&random[from..][..BLOCK - size_of::<u64>()]);
    }
    bytes.truncate(len);
    bytes
}

/// The error entry of `cq` that must come soon.
#[track_caller]
pub(crate) fn failure(cq: &Cq) -> kfi::ErrEntry {
    match cq.next(SOON) {
        Err(kfi::Error::Completion(entry)) => *entry,
        other => panic!("no failure: {other:?}"),
    }
}

/// The error entry of `cq` that must come soon, with this context and this error.
#[track_caller]
pub(crate) fn fails(cq: &Cq, context: u64, err: Errno) -> kfi::ErrEntry {
    let entry = failure(cq);
    assert_eq!((entry.err, entry.op_context), (err, context), "{entry:?}");
    entry
}

/// The result of a search, or of a receive with its context: `None` if there is no message.
#[track_caller]
pub(crate) fn found(cq: &Cq, context: u64) -> Option<Entry> {
    match cq.next(SOON) {
        Ok(entry) => {
            let entry = entry.expect("an entry");
            assert_eq!(entry.op_context, context, "{entry:?}");
            Some(entry)
        }
        Err(Error::Completion(entry)) => {
            assert_eq!((entry.err, entry.op_context), (Errno::ENOMSG, context));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Waits until `holds` returns true, which must be soon.
pub(crate) fn until(what: &str, holds: impl FnMut() -> bool) {
    assert!(within(SOON, holds), "{what}: not within {SOON:?}");
}

/// Whether `holds` returns true within `limit`.
pub(crate) fn within(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let begin = std::time::Instant::now();
    loop {
        if holds() {
            return true;
        }
        if begin.elapsed() > limit {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until `count` threads sleep on the counter.
pub(crate) fn until_asleep(cntr: &kfi::Cntr, count: u64) {
    let device = device();
    until("threads asleep on a counter", || {
        device
            .stats(kfi::StatClass::Cntr)
            .map(|stat| stat.expect("stat"))
            .filter(|stat| stat.pid == Some(std::process::id()))
            // Each open file has handles of its own.
            .filter(|stat| stat.handle == cntr.handle())
            .any(|stat| {
                matches!(stat.values, kfi::StatValues::Cntr { waiters, .. } if waiters == count)
            })
    });
}
