// SPDX-License-Identifier: GPL-2.0

//! UD: unreliable datagrams.
//!
//! One packet is one message, from any QP that knows the Q key to any QP. A received datagram is
//! passed to the [`Consumer`] at once; if the consumer does not use it, it is dropped, which is not
//! an error. When sending returns, a datagram is on its way or lost.
//!
//! kfi_roce implements the protocol, Q keys and the GRH ([`kfi_roce::ud`]).

use super::{
    super::{
        link::Link,
        packet,
        path::Path,
        socket::{
            AddrPair,
            Number,
            Socket, //
        },
        stats::{
            PacketCounter,
            QpStats,
            Stat,
            StatsRef, //
        }, //
    },
    inbox,
    AnyQp,
    Cause,
    Kind,
    Qp,
    QpAddress, //
};
use crate::{
    mem::{
        wire::{
            self,
            Payload, //
        },
        Budget,
        Source, //
    },
    shim::{
        inline_work::InlineList,
        random::random_u32,
        skb::{
            InboxLimits,
            RxBatch,
            RxSkb, //
        }, //
    }, //
};
use kernel::{
    new_mutex,
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        Mutex,
        SpinLock, //
    }, //
};
use kfi_core::addr::SockAddr;
use kfi_roce::{
    headers::Qpn,
    opcode::Service,
    psn::Psn,
    state::{
        Mask,
        State, //
    },
    ud::{
        self,
        GSI_QKEY, //
    }, //
};

/// The user of a UD QP: the provider's endpoint, or connection management.
pub(crate) trait Consumer: Send + Sync {
    /// Handles a received datagram. Returns whether the datagram was used. Called in a run of the
    /// QP, for one datagram at a time: process context, no lock held by the caller; may sleep, must
    /// not close the QP.
    fn datagram(&self, datagram: &Datagram<'_>) -> bool;
}

/// The kind of a QP for datagrams.
#[pin_data]
pub(crate) struct Ud {
    /// State, Q key, PSN. A leaf, process context only.
    #[pin]
    machine: SpinLock<ud::Qp>,
    qkey: u32,
    /// A leaf, except for the reference count of `Consumer`; `None` when closed.
    #[pin]
    consumer: Mutex<Option<Arc<dyn Consumer>>>,
}

impl Kind for Ud {
    const SERVICE: Service = Service::Ud;
    const CONNECTED: bool = false;
    /// About a hundred packets of the largest size, from all senders.
    const INBOX: InboxLimits = InboxLimits {
        packets: 1 << 10,
        bytes: 1 << 20,
    };

    fn any(qp: Arc<Qp<Self>>) -> AnyQp {
        AnyQp::Ud(qp)
    }

    fn started(qp: &Qp<Self>, number: Qpn) {
        let psn = Psn::new(random_u32());
        let machine = if number == Qpn::GSI {
            ud::Qp::gsi(psn)
        } else {
            ready(number, qp.kind.qkey, psn)
        };
        *qp.kind.machine.lock() = machine;
    }

    fn work(qp: &Arc<Qp<Self>>, batch: RxBatch, cause: Cause, _inline: &InlineList) {
        let consumer = qp.kind.consumer.lock().clone();
        let machine = qp.kind.machine.lock().clone();
        let mut tally = qp.tally();
        tally.set_inline(cause == Cause::Arrived);
        for skb in batch {
            // It was parsed when it arrived, and its headers have not changed.
            let Ok(packet) = packet::parse(&skb) else {
                continue;
            };
            tally.received(packet.len());
            // The consumer checks whether there is a receive, and whether it is long enough.
            match machine.receive(&packet, Some(usize::MAX)) {
                Ok(received) => {
                    let datagram = Datagram {
                        skb: &skb,
                        payload: Payload::new(&skb, received.payload.clone()),
                        received,
                    };
                    if !consumer.as_ref().is_some_and(|to| to.datagram(&datagram)) {
                        tally.count(Stat::DropNoReceive);
                    }
                }
                Err(dropped) => tally.count(dropped.into()),
            }
        }
    }

    fn detach(qp: &Qp<Self>) {
        let consumer = qp.kind.consumer.lock().take();
        drop(consumer);
    }

    fn release(_qp: &Qp<Self>) {}
}

/// A QP that sends and receives.
fn ready(number: Qpn, qkey: u32, sq_psn: Psn) -> ud::Qp {
    let mut qp = ud::Qp::new(number);
    let init = Mask::PKEY_INDEX.with(Mask::PORT).with(Mask::QKEY);
    let path = [
        (State::Init, init),
        (State::Rtr, Mask::NONE),
        (State::Rts, Mask::SQ_PSN),
    ];
    for (state, mask) in path {
        let attr = ud::Attr {
            state,
            qkey,
            sq_psn,
            ..ud::Attr::default()
        };
        // These transitions need exactly these attributes, so this cannot fail.
        let _ = qp.modify(&attr, mask);
    }
    qp
}

impl From<ud::Dropped> for Stat {
    fn from(dropped: ud::Dropped) -> Self {
        match dropped {
            ud::Dropped::Service => Self::DropService,
            ud::Dropped::State => Self::DropState,
            ud::Dropped::Qkey => Self::DropQkey,
            ud::Dropped::Length => Self::DropTooLong,
            ud::Dropped::NoReceive => Self::DropNoReceive,
        }
    }
}

impl Qp<Ud> {
    /// Bytes of kernel memory of a QP for datagrams, with the reserve of its inbox.
    pub(crate) const BYTES: usize = size_of::<Self>() + inbox::RESERVE as usize;

    /// A QP for datagrams at `addr`. The IP address is `link`'s, and the port determines its number
    /// ([`SockAddr::qpn`]); port 0 stands for any free port. `consumer` gets the datagrams that
    /// arrive with `qkey`. The caller checks who may use a controlled Q key
    /// ([`ud::is_controlled`]). `owner`, which has been charged [`BYTES`](Self::BYTES), is charged
    /// for packets that wait.
    ///
    /// Fails with `ENODEV` if the link has gone, `EBUSY` if a QP of the namespace has the port or
    /// all are taken, `ENOMEM`. Sleeps.
    pub(crate) fn datagrams(
        link: &Arc<Link>,
        addr: &SockAddr,
        qkey: u32,
        owner: &Budget,
        consumer: Arc<dyn Consumer>,
    ) -> Result<Arc<Self>> {
        let home = QpAddress::Link(link.clone(), addr.ip());
        let number = Number::Port(addr.port());
        let figures = StatsRef::Qp(QpStats::new());
        Self::new(
            link.socket(),
            home,
            number,
            figures,
            Some(owner),
            Ud::new(qkey, consumer),
        )
    }

    /// The QP of connection management (QP 1) of the namespace of `socket`, at all its addresses.
    /// It has no owner.
    ///
    /// Fails with `EBUSY` if there is one, `ENOMEM`. Sleeps.
    pub(crate) fn gsi(socket: &Arc<Socket>, consumer: Arc<dyn Consumer>) -> Result<Arc<Self>> {
        Self::new(
            socket,
            QpAddress::Namespace,
            Number::Gsi,
            StatsRef::Qp(QpStats::new()),
            None,
            Ud::new(GSI_QKEY, consumer),
        )
    }

    /// Sends a datagram along `path`, which begins at this QP's address. The memory of `payload` is
    /// not used after this returns.
    ///
    /// Fails with `EMSGSIZE` if it is longer than the path MTU, `ENETUNREACH` if there is no route
    /// now or the interface is too small for any path MTU. A datagram that is lost, on this host or
    /// later, is not an error. Process context, no spin lock held that is taken in softirq.
    pub(crate) fn send(&self, path: &Path, to: &Destination, payload: &Source<'_>) -> Result {
        let mtu = path.mtu().ok_or(ENETUNREACH)?;
        let send = ud::Send {
            dest_qp: to.qp,
            qkey: to.qkey,
            len: payload.len(),
            imm: to.imm,
            solicited: to.solicited,
        };
        let packet = self.kind.machine.lock().send(&send, mtu);
        let packet = packet.map_err(|why| match why {
            ud::Unsent::TooLong => EMSGSIZE,
            // Cannot happen: the QP is in state RTS for its lifetime.
            ud::Unsent::Refused | ud::Unsent::State => EINVAL,
        })?;
        // The identification need not be unique, because fragmentation is forbidden; the lower half
        // of the PSN will do.
        let id = packet.bth.psn.get() as u16;
        let sent = path
            .build(self.source_port(), id, &packet, |room| {
                wire::gather(room, payload, 0);
                Ok(())
            })
            .and_then(|skb| path.send(skb));
        let mut tally = PacketCounter::new(&self.figures, path.link().figures());
        match sent {
            Ok(()) => tally.sent(packet.len()),
            Err(_) => tally.count(Stat::TxNotSent),
        }
        Ok(())
    }
}

impl Ud {
    fn new(qkey: u32, consumer: Arc<dyn Consumer>) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            machine <- new_spinlock!(ud::Qp::new(Qpn::default()), "Ud::machine"),
            qkey,
            consumer <- new_mutex!(Some(consumer), "Ud::consumer"),
        }? Error)
    }
}

/// The destination of a datagram at the end of its path, and the header fields besides the payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Destination {
    /// The QP.
    pub(crate) qp: Qpn,
    /// Its Q key.
    pub(crate) qkey: u32,
    /// Immediate data.
    pub(crate) imm: Option<u32>,
    /// Whether the receiver gets a solicited event.
    pub(crate) solicited: bool,
}

/// A received datagram.
pub(crate) struct Datagram<'a> {
    skb: &'a RxSkb,
    payload: Payload<'a>,
    received: ud::Received,
}

impl<'a> Datagram<'a> {
    /// The addresses from which and to which it was sent.
    pub(crate) fn way(&self) -> Option<AddrPair> {
        AddrPair::of(self.skb.ip())
    }

    /// The QP that sent it.
    pub(crate) fn source_qp(&self) -> Qpn {
        self.received.src_qp
    }

    /// Its immediate data.
    pub(crate) fn imm(&self) -> Option<u32> {
        self.received.imm
    }

    /// Whether it wakes those who wait for solicited events.
    #[cfg(kfi_kunit)]
    pub(crate) fn solicited(&self) -> bool {
        self.received.solicited
    }

    /// Its payload.
    pub(crate) fn payload(&self) -> &Payload<'a> {
        &self.payload
    }

    /// The bytes that come before the payload in a receive of UD.
    #[cfg(kfi_kunit)]
    pub(crate) fn grh(&self) -> [u8; ud::GRH_LEN] {
        let ip = self.skb.ip();
        match (ip.try_into(), ip.try_into()) {
            (Ok(ip), _) => ud::grh_ipv4(ip),
            (_, Ok(ip)) => ud::grh_ipv6(ip),
            // Such a packet is dropped before it gets here.
            _ => [0; ud::GRH_LEN],
        }
    }
}
