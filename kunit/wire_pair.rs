// SPDX-License-Identifier: GPL-2.0

//! Helpers of suite `kfabric_wire` and of other suites with two QPs on a link: the link, its
//! addresses, ends that record datagrams, and pairs of ends.

use super::{
    add,
    kunit_links::remove_links,
    qp::{
        ud::{
            Consumer,
            Datagram,
            Destination, //
        },
        Qp,
        Ud, //
    },
    socket::AddrPair,
    IfName,
    Link,
    LinkName,
    NetNs,
    Path,
    Stat, //
};
use crate::{
    kunit::helpers::{
        eventually,
        raw_name,
        Count, //
    },
    mem::{
        self,
        Budget,
        MemRef,
        Source, //
    },
    shim::skb::TxSkb, //
};
use core::net::{
    IpAddr,
    Ipv4Addr,
    Ipv6Addr, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc,
        Mutex, //
    }, //
};
use kfi_core::addr::SockAddr;
use kfi_roce::{
    headers::{
        Bth,
        Deth,
        Headers,
        Qpn, //
    },
    packet::Packet,
    psn::Psn,
    ud::GRH_LEN, //
};

pub(super) const QKEY: u32 = 0x1234_5678;
pub(super) const ONE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1));
pub(super) const TWO: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
pub(super) const THREE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3));
pub(super) const SIX: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// Returns a socket address.
pub(super) fn at(ip: IpAddr, port: u16) -> Result<SockAddr> {
    SockAddr::new(ip, port, 0).map_err(|_| EINVAL)
}

/// A link on the loopback interface, removed when dropped.
pub(super) struct TestLink(pub(super) Arc<Link>);

impl TestLink {
    pub(super) fn new() -> Result<Self> {
        let name = LinkName::new(&raw_name(b"t"))?;
        let link = add(&NetNs::current()?, name, IfName::new(&raw_name(b"lo"))?)?;
        Ok(Self(link))
    }
}

impl Drop for TestLink {
    fn drop(&mut self) {
        remove_links();
    }
}

/// The properties of a received datagram.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Seen {
    pub(super) len: usize,
    pub(super) imm: Option<u32>,
    pub(super) source_qp: Qpn,
    pub(super) addrs: Option<AddrPair>,
    pub(super) solicited: bool,
    pub(super) grh: [u8; GRH_LEN],
}

/// A consumer that keeps the last datagram.
#[pin_data]
pub(super) struct Recorder {
    pub(super) count: Atomic<u32>,
    pub(super) drained: Atomic<u32>,
    /// The memory for payloads.
    pub(super) memory: MemRef,
    #[pin]
    pub(super) last: Mutex<Option<Seen>>,
    /// Whether it accepts datagrams.
    pub(super) takes: Atomic<bool>,
}

impl Recorder {
    pub(super) fn new() -> Result<Arc<Self>> {
        let memory = MemRef::buffer(4096 + 8)?;
        Arc::pin_init(
            pin_init!(Self {
                count: Atomic::new(0),
                drained: Atomic::new(0),
                memory,
                last <- new_mutex!(None),
                takes: Atomic::new(true),
            }),
            GFP_KERNEL,
        )
    }

    pub(super) fn count(&self) -> u32 {
        self.count.load(Acquire)
    }

    pub(super) fn last(&self) -> Option<Seen> {
        *self.last.lock()
    }
}

impl Consumer for Recorder {
    fn datagram(&self, datagram: &Datagram<'_>) -> Result<(), Stat> {
        *self.last.lock() = Some(Seen {
            len: datagram.payload().place(&self.memory, 8),
            imm: datagram.imm(),
            source_qp: datagram.source_qp(),
            addrs: datagram.addrs(),
            solicited: datagram.solicited(),
            grh: datagram.grh(),
        });
        self.count.add(1, Relaxed);
        match self.takes.load(Acquire) {
            true => Ok(()),
            false => Err(Stat::DropNoReceive),
        }
    }

    fn drained(&self) {
        self.drained.add(1, Relaxed);
    }
}

/// A consumer that blocks at each datagram until [`go_on`](Self::go_on) is called.
pub(super) struct Slow {
    goes_on: Atomic<bool>,
    called: Atomic<bool>,
    pub(super) count: Arc<Count>,
}

impl Slow {
    pub(super) fn new() -> Result<Arc<Self>> {
        let slow = Self {
            goes_on: Atomic::new(false),
            called: Atomic::new(false),
            count: Count::new()?,
        };
        Ok(Arc::new(slow, GFP_KERNEL)?)
    }

    /// Blocks no longer.
    pub(super) fn go_on(&self) {
        self.goes_on.store(true, Release);
    }

    /// Returns whether it was called, and perhaps blocks.
    pub(super) fn is_called(&self) -> bool {
        self.called.load(Acquire)
    }
}

impl Consumer for Slow {
    fn datagram(&self, _datagram: &Datagram<'_>) -> Result<(), Stat> {
        self.called.store(true, Release);
        // With a time limit, in case the test fails.
        eventually(|| self.goes_on.load(Acquire));
        self.count.add(1);
        Ok(())
    }
}

/// Opens a datagram QP of the current user.
pub(super) fn datagrams(
    link: &TestLink,
    addr: &SockAddr,
    qkey: u32,
    consumer: Arc<dyn Consumer>,
) -> Result<Arc<Qp<Ud>>> {
    Qp::datagrams(&link.0, addr, qkey, None, &Budget::of_program()?, consumer)
}

/// A QP with its consumer; dropping it closes the QP.
pub(super) struct End {
    pub(super) qp: Arc<Qp<Ud>>,
    pub(super) got: Arc<Recorder>,
}

impl End {
    pub(super) fn new(link: &TestLink, ip: IpAddr) -> Result<Self> {
        let got = Recorder::new()?;
        let qp = datagrams(link, &at(ip, 0)?, QKEY, got.clone())?;
        Ok(Self { qp, got })
    }

    pub(super) fn destination(&self) -> Destination {
        Destination {
            qp: self.qp.number(),
            qkey: QKEY,
            imm: None,
            solicited: false,
        }
    }

    /// Returns a statistic of the QP.
    pub(super) fn stat(&self, stat: Stat) -> u64 {
        self.qp.stats().get(stat)
    }

    /// Waits until the statistic has the value `n`. Returns false if it does not in time, or
    /// exceeds `n`.
    pub(super) fn counts(&self, stat: Stat, n: u64) -> bool {
        eventually(|| self.stat(stat) >= n) && self.stat(stat) == n
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.qp.close();
    }
}

/// Returns a buffer with `len` bytes of a pattern.
pub(super) fn buffer(len: usize) -> Result<MemRef> {
    mem::kunit_kinds::buffer(0, len)
}

/// Returns a datagram from `from` to QP `to` with `payload` bytes of a pattern, ready to be sent.
pub(super) fn built(path: &Path, from: &End, to: Qpn, payload: usize) -> Result<TxSkb> {
    let deth = Deth {
        qkey: QKEY,
        src_qp: from.qp.number(),
    };
    let packet = Packet::new(
        Bth::new(to, Psn::new(7)),
        Headers::Datagram(deth, None),
        payload,
    );
    with_pattern(path, &packet)
}

pub(super) fn with_pattern(path: &Path, packet: &Packet) -> Result<TxSkb> {
    path.build(0xc000, 1, packet, |room| {
        for index in 0..room.left() {
            room.put(&[(index % 251) as u8]);
        }
        Ok(())
    })
}

/// Two QPs at 127.0.0.1 and 127.0.0.2, with the path from the first to the second.
pub(super) struct Pair {
    pub(super) a: End,
    pub(super) b: End,
    pub(super) path: Arc<Path>,
    pub(super) link: TestLink,
}

impl Pair {
    pub(super) fn new(from: IpAddr, to: IpAddr) -> Result<Self> {
        let link = TestLink::new()?;
        Ok(Self {
            a: End::new(&link, from)?,
            b: End::new(&link, to)?,
            path: Path::new(&link.0, from, to)?,
            link,
        })
    }

    pub(super) fn send(&self, payload: &MemRef) -> Result {
        let to = self.b.destination();
        self.a
            .qp
            .send(&self.path, &to, &Source::Mem(payload.clone()))
    }

    /// Sends a packet of `payload` bytes after `change` has modified it, from its IP header on.
    pub(super) fn send_changed(&self, payload: usize, change: impl FnOnce(&mut [u8])) -> Result {
        let mut skb = built(&self.path, &self.a, self.b.qp.number(), payload)?;
        change(skb.bytes_mut());
        self.path.send(skb)
    }

    /// Returns a statistic of packets for which no QP was found.
    pub(super) fn dropped_without_qp(&self, stat: Stat) -> u64 {
        self.link.0.socket().receiver().stats().get(stat)
    }

    /// Returns whether a valid datagram still gets through.
    pub(super) fn works(&self) -> Result<bool> {
        let before = self.b.got.count();
        self.send(&buffer(64)?)?;
        Ok(eventually(|| self.b.got.count() == before + 1))
    }
}

/// Sends datagrams of many lengths from `from` to `to` and checks each.
pub(super) fn exchange(from: IpAddr, to: IpAddr) -> Result<bool> {
    let pair = Pair::new(from, to)?;
    let lens = [0, 1, 2, 3, 4, 5, 255, 256, 1024, 1025, 4095, 4096];
    for (sent, len) in (1..).zip(lens) {
        let payload = buffer(len)?;
        let destination = Destination {
            imm: (len % 2 == 0).then_some(0xdead_0000 | len as u32),
            solicited: len % 4 == 0,
            ..pair.b.destination()
        };
        let source = Source::Mem(payload.clone());
        pair.a.qp.send(&pair.path, &destination, &source)?;
        if !eventually(|| pair.b.got.count() == sent) {
            pr_err!("{} bytes: nothing came\n", len);
            return Ok(false);
        }
        let seen = pair.b.got.last().ok_or(EIO)?;
        let good = seen.len == len
            && seen.imm == destination.imm
            && seen.solicited == destination.solicited
            && seen.source_qp == pair.a.qp.number()
            && seen.addrs == Some(AddrPair { from, to, vrf: 0 })
            && mem::memref::equal(&pair.b.got.memory.slice(8, len), &payload);
        if !good {
            pr_err!("{} bytes: other than sent\n", len);
            return Ok(false);
        }
    }
    Ok(pair.a.got.count() == 0)
}
