// SPDX-License-Identifier: GPL-2.0

//! UD: unreliable datagrams.
//!
//! One packet is one message, from anybody who knows the Q key to anybody. A datagram that arrives
//! is handed to the [`Consumer`] at once; if that has no use for it, it is dropped, which is no error.
//! A datagram that is sent is on its way, or lost, when sending returns.
//!
//! A receive of UD begins with 40 bytes of GRH, over IPv4 with the IP header in the last 20
//! (InfiniBand specification, annex A17.4.5.2; [`Datagram::grh`]).

use super::{
    super::{
        link::Link,
        path::Path,
        socket::{
            Socket,
            Way, //
        },
        stats::{
            Figure,
            Tally, //
        }, //
    },
    AnyQp,
    Home,
    Kind,
    Qp, //
};
use crate::{
    mem::{
        wire,
        MemRef,
        Source, //
    },
    shim::skb::{
        RxBatch,
        RxSkb, //
    }, //
};
use core::net::IpAddr;
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    }, //
};
use kfi_core::roce::{
    headers::{
        Bth,
        Deth,
        Headers,
        Qpn, //
    },
    opcode::Service,
    packet::Packet,
    psn::Psn, //
};

/// Bytes of a GRH.
pub(crate) const GRH_LEN: usize = 40;

/// Who gets what arrives at a UD QP: the provider's endpoint, or connection management.
pub(crate) trait Consumer: Send + Sync {
    /// A datagram has arrived. Returns whether it was of use. Called by the QP's worker, one after
    /// the other: process context, no lock is held; may sleep, must not close the QP.
    fn datagram(&self, datagram: &Datagram<'_>) -> bool;
}

/// The kind of a QP for datagrams.
#[pin_data]
pub(crate) struct Ud {
    qkey: u32,
    /// The PSN of what is sent next; nobody looks at it.
    psn: Atomic<u32>,
    /// A leaf but for `Consumer`'s reference count; none when closed.
    #[pin]
    consumer: Mutex<Option<Arc<dyn Consumer>>>,
}

impl Kind for Ud {
    const SERVICE: Service = Service::Ud;
    const CONNECTED: bool = false;

    fn any(qp: Arc<Qp<Self>>) -> AnyQp {
        AnyQp::Ud(qp)
    }

    fn work(qp: &Arc<Qp<Self>>, batch: RxBatch) {
        let consumer = qp.kind.consumer.lock().clone();
        qp.sort(batch, |tally, packet, skb| {
            let Some(datagram) = Datagram::of(packet, skb) else {
                return tally.count(Figure::DropService);
            };
            if datagram.deth.qkey != qp.kind.qkey {
                return tally.count(Figure::DropQkey);
            }
            let taken = consumer.as_ref().is_some_and(|to| to.datagram(&datagram));
            if !taken {
                tally.count(Figure::DropNoReceive);
            }
        });
    }

    fn detach(qp: &Qp<Self>) {
        let consumer = qp.kind.consumer.lock().take();
        drop(consumer);
    }

    /// Nothing waits that would have to be told.
    fn link_gone(_qp: &Arc<Qp<Self>>) {}
}

impl Qp<Ud> {
    /// A QP for datagrams at `ip`, an address of `link`; what arrives with `qkey` is for `consumer`.
    ///
    /// `ENODEV` the link has gone; `EBUSY` there are too many QPs in the namespace; `ENOMEM`. Sleeps.
    pub(crate) fn datagrams(
        link: &Arc<Link>,
        ip: IpAddr,
        qkey: u32,
        consumer: Arc<dyn Consumer>,
    ) -> Result<Arc<Self>> {
        let home = Home::Link(link.clone(), ip);
        Self::new(link.socket(), home, Ud::new(qkey, consumer))
    }

    /// The QP of connection management (QP 1) of the namespace of `socket`, at all its addresses.
    ///
    /// `EBUSY` there is one; `ENOMEM`. Sleeps.
    pub(crate) fn gsi(socket: &Arc<Socket>, consumer: Arc<dyn Consumer>) -> Result<Arc<Self>> {
        Self::new(socket, Home::Namespace, Ud::new(GSI_QKEY, consumer))
    }

    /// Sends a datagram along `path`, which begins at this QP's address. When this returns the
    /// memory of `payload` is not needed any more.
    ///
    /// `EMSGSIZE` longer than the path MTU; `ENETUNREACH` there is no way now, or the interface is
    /// too small for any path MTU. What is lost besides, on this host or behind it, is no error.
    /// Process context, no spin lock that is taken in softirq.
    pub(crate) fn send(&self, path: &Path, to: &Destination, payload: &Source<'_>) -> Result {
        let mtu = path.mtu().ok_or(ENETUNREACH)?;
        if payload.len() > mtu.bytes() as usize {
            return Err(EMSGSIZE);
        }
        let deth = Deth {
            qkey: to.qkey,
            src_qp: self.number(),
        };
        let psn = self.kind.psn.fetch_add(1, Relaxed);
        let bth = Bth {
            solicited: to.solicited,
            ..Bth::new(to.qp, Psn::new(psn))
        };
        let packet = Packet::new(bth, Headers::Datagram(deth, to.imm), payload.len());
        // The identification need not be unique where fragments are forbidden.
        let id = psn as u16;
        let fill = |room: &mut [u8]| {
            wire::gather(room, payload, 0);
        };
        let sent = path
            .build(self.source_port(), id, &packet, fill)
            .and_then(|skb| path.send(skb));
        let mut tally = Tally::new();
        match sent {
            Ok(()) => tally.packet(Figure::TxPackets, Figure::TxBytes, packet.len()),
            Err(_) => tally.count(Figure::TxNotSent),
        }
        tally.settle(&self.figures, path.link().figures());
        Ok(())
    }
}

/// The Q key of QP 1.
pub(crate) const GSI_QKEY: u32 = 0x8001_0000;

impl Ud {
    fn new(qkey: u32, consumer: Arc<dyn Consumer>) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            qkey,
            psn: Atomic::new(0),
            consumer <- new_mutex!(Some(consumer), "Ud::consumer"),
        }? Error)
    }
}

/// Whom a datagram goes to, at the end of its path, and what it says besides its payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Destination {
    /// The QP.
    pub(crate) qp: Qpn,
    /// Its Q key.
    pub(crate) qkey: u32,
    /// Immediate data.
    pub(crate) imm: Option<u32>,
    /// The receiver's solicited event.
    pub(crate) solicited: bool,
}

/// A datagram that arrived.
pub(crate) struct Datagram<'a> {
    skb: &'a RxSkb,
    packet: Packet,
    deth: Deth,
    imm: Option<u32>,
}

impl<'a> Datagram<'a> {
    fn of(packet: &Packet, skb: &'a RxSkb) -> Option<Self> {
        let Headers::Datagram(deth, imm) = packet.headers() else {
            return None;
        };
        Some(Self {
            skb,
            packet: *packet,
            deth,
            imm,
        })
    }

    /// The addresses from which and to which it was sent.
    pub(crate) fn way(&self) -> Option<Way> {
        Way::of(self.skb.ip())
    }

    /// The QP that sent it.
    pub(crate) fn source_qp(&self) -> Qpn {
        self.deth.src_qp
    }

    /// Its immediate data.
    pub(crate) fn imm(&self) -> Option<u32> {
        self.imm
    }

    /// Whether those are to be woken who wait for solicited events.
    pub(crate) fn solicited(&self) -> bool {
        self.packet.bth.solicited
    }

    /// Bytes of its payload.
    pub(crate) fn len(&self) -> usize {
        self.packet.payload_len()
    }

    /// Copies its payload to `dst` from byte `at` on: as much as there is room for. Returns how many
    /// bytes; none if `dst` is not writable.
    pub(crate) fn place(&self, dst: &MemRef, at: usize) -> usize {
        let payload = self.packet.payload();
        wire::place(dst, at, self.skb, payload.start, payload.len())
    }

    /// Copies the beginning of its payload to `to`; false if that is longer.
    #[must_use]
    pub(crate) fn copy_to_slice(&self, to: &mut [u8]) -> bool {
        to.len() <= self.len() && self.skb.copy_to_slice(self.packet.payload().start, to)
    }

    /// The 40 bytes that come before the payload in a receive of UD: the IPv6 header, or zeros and
    /// the IPv4 header.
    pub(crate) fn grh(&self) -> [u8; GRH_LEN] {
        let mut grh = [0; GRH_LEN];
        let ip = self.skb.ip();
        let skip = GRH_LEN.saturating_sub(ip.len());
        for (to, &from) in grh.iter_mut().skip(skip).zip(ip) {
            *to = from;
        }
        grh
    }
}
