// SPDX-License-Identifier: GPL-2.0

//! UD: unreliable datagrams.
//!
//! One packet is one message, from any QP that knows the Q key to any QP. A received datagram is
//! passed to the [`Consumer`] at once; if the consumer does not use it, it is dropped, which is not
//! an error. When sending returns, a datagram is on its way or lost. So a QP has no queues: its
//! consumer keeps the work requests that wait in SQD, and flushes them in SQE and ERR.
//!
//! A [`Path`] is InfiniBand's address handle. It belongs to a link and not to a QP: any QP of the
//! namespace can send along it, whatever the states of other QPs are.
//!
//! A QP may have a table of [flows](super::super::flow), which count the packets that arrive.
//!
//! kfi_roce implements the protocol, Q keys and the GRH ([`kfi_roce::ud`]).

use super::{
    super::{
        flow::FlowTable,
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
    accepted::Accepts,
    inbox,
    AnyQp,
    Cause,
    Kind,
    Qp,
    QpAddress, //
};
use crate::{
    mem::{
        payload::{
            self,
            Payload, //
        },
        Budget,
        Source, //
    },
    shim::{
        errno::to_error,
        inline_work::InlineList,
        random::random_u32,
        skb::{
            InboxLimits,
            RxBatch,
            RxSkb,
            Sender, //
        }, //
    }, //
};
use core::net::IpAddr;
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        SpinLock, //
    }, //
};
use kfi_core::addr::SockAddr;
use kfi_roce::{
    headers::Qpn,
    opcode::Service,
    packet::Packet,
    psn::Psn,
    state::{
        Mask,
        State, //
    },
    ud, //
};

/// The user of a UD QP: the provider's endpoint, or connection management.
pub(crate) trait Consumer: Send + Sync {
    /// Handles a received datagram, or fails with the statistic that counts it as dropped. Called
    /// in a run of the QP, for one datagram at a time: process context, no lock held by the caller;
    /// may sleep, must not close the QP.
    fn datagram(&self, datagram: &Datagram<'_>) -> Result<(), Stat>;

    /// The send queue is drained: a change to SQD requested this report. Called in a run, as for a
    /// datagram.
    fn drained(&self) {}

    /// The run of the QP ends: all its datagrams were handled. Called as for a datagram.
    fn run_ended(&self) {}
}

/// The kind of a QP for datagrams.
#[pin_data]
pub(crate) struct Ud {
    /// State, Q key, PSN. A leaf, process context only.
    #[pin]
    machine: SpinLock<ud::Qp>,
    /// A leaf, except for the reference count of `Consumer`; process context only. `None` when
    /// closed.
    #[pin]
    consumer: SpinLock<Option<Arc<dyn Consumer>>>,
    /// The flows that count its packets.
    flows: Option<Arc<FlowTable>>,
}

impl Kind for Ud {
    const SERVICE: Service = Service::Ud;
    /// About a hundred packets of the largest size, from all senders.
    const INBOX: InboxLimits = InboxLimits {
        packets: 1 << 10,
        bytes: 1 << 20,
    };

    fn any(qp: Arc<Qp<Self>>) -> AnyQp {
        AnyQp::Ud(qp)
    }

    fn started(qp: &Qp<Self>, number: Qpn) {
        let machine = match number {
            Qpn::GSI => {
                qp.accepted.set(Accepts::To(None));
                ud::Qp::gsi(Psn::new(random_u32()))
            }
            number => ud::Qp::new(number),
        };
        *qp.kind.machine.lock() = machine;
    }

    fn work(qp: &Arc<Qp<Self>>, batch: RxBatch, cause: Cause, _inline: &InlineList) {
        let consumer = qp.kind.consumer.lock().clone();
        let (machine, drained) = {
            let mut machine = qp.kind.machine.lock();
            let drained = machine.take_drained();
            (machine.clone(), drained)
        };
        let mut counter = qp.counter();
        counter.set_inline(cause == Cause::Arrived);
        for skb in batch {
            // It was parsed when it arrived, and its headers have not changed.
            let Ok(packet) = packet::parse(&skb) else {
                continue;
            };
            if !qp.still_accepts(&skb) {
                counter.count(Stat::DropState);
                continue;
            }
            counter.received(packet.len());
            // The consumer checks whether there is a receive, and whether it is long enough.
            match machine.receive(&packet, Some(usize::MAX)) {
                Ok(received) => {
                    let datagram = Datagram {
                        skb: &skb,
                        payload: Payload::new(&skb, received.payload.clone()),
                        received,
                    };
                    let taken = match &consumer {
                        Some(to) => to.datagram(&datagram),
                        None => Err(Stat::DropNoReceive),
                    };
                    if let Err(dropped) = taken {
                        counter.count(dropped);
                    }
                }
                Err(dropped) => counter.count(dropped.into()),
            }
        }
        if let Some(consumer) = consumer {
            if drained {
                consumer.drained();
            }
            consumer.run_ended();
        }
    }

    #[inline]
    fn arrived(qp: &Qp<Self>, packet: &Packet, addrs: &AddrPair, skb: &RxSkb) {
        if let Some(flows) = &qp.kind.flows {
            flows.count(packet, addrs, skb);
        }
    }

    fn detach(qp: &Qp<Self>) {
        let consumer = qp.kind.consumer.lock().take();
        drop(consumer);
    }
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

    /// A QP for datagrams at `addr`, in state RTS. The IP address is `link`'s, and the port
    /// determines its number ([`SockAddr::qpn`]); port 0 stands for any free port. `consumer` gets
    /// the datagrams that arrive with `qkey`. The caller checks who may use a controlled Q key
    /// ([`ud::is_controlled`]). `owner`, which has been charged [`BYTES`](Self::BYTES), is charged
    /// for packets that wait. `flows` count the packets that arrive.
    ///
    /// Fails with `ENODEV` if the link has gone, `EBUSY` if a QP of the namespace has the port or
    /// all are taken, `ENOMEM`. Sleeps.
    pub(crate) fn datagrams(
        link: &Arc<Link>,
        addr: &SockAddr,
        qkey: u32,
        flows: Option<Arc<FlowTable>>,
        owner: &Budget,
        consumer: Arc<dyn Consumer>,
    ) -> Result<Arc<Self>> {
        let number = Number::Port(addr.port());
        let qp = Self::make(link, number, owner, Ud::new(consumer, flows))?;
        let init = Mask::PKEY_INDEX.with(Mask::PORT).with(Mask::QKEY);
        let sq_psn = Psn::new(random_u32());
        for (state, mask, address) in [
            (State::Init, init, Some(addr.ip())),
            (State::Rtr, Mask::NONE, None),
            (State::Rts, Mask::SQ_PSN, None),
        ] {
            let attr = ud::Attr {
                state,
                qkey,
                sq_psn,
                ..ud::Attr::default()
            };
            if let Err(error) = qp.modify(&attr, mask, address) {
                qp.close();
                return Err(error);
            }
        }
        Ok(qp)
    }

    /// A QP for datagrams on `link`, in state RESET, with a number that peers cannot know in
    /// advance. [`modify`](Self::modify) gives it its address and its attributes. `flows`, `owner`
    /// and `consumer`: see [`datagrams`](Self::datagrams).
    ///
    /// Fails with `ENODEV` if the link has gone, `EBUSY` if the namespace has too many QPs,
    /// `ENOMEM`. Sleeps.
    pub(crate) fn in_reset(
        link: &Arc<Link>,
        flows: Option<Arc<FlowTable>>,
        owner: &Budget,
        consumer: Arc<dyn Consumer>,
    ) -> Result<Arc<Self>> {
        Self::make(link, Number::Any, owner, Ud::new(consumer, flows))
    }

    fn make(
        link: &Arc<Link>,
        number: Number,
        owner: &Budget,
        kind: impl PinInit<Ud, Error>,
    ) -> Result<Arc<Self>> {
        let address = QpAddress::Link(link.clone());
        let stats = StatsRef::Qp(QpStats::new());
        Self::new(link.socket(), address, number, stats, Some(owner), kind)
    }

    /// The QP of connection management (QP 1) of the namespace of `socket`, at all its addresses,
    /// in state RTS. It has no owner, and its state is not changed.
    ///
    /// Fails with `EBUSY` if there is one, `ENOMEM`. Sleeps.
    pub(crate) fn gsi(socket: &Arc<Socket>, consumer: Arc<dyn Consumer>) -> Result<Arc<Self>> {
        Self::new(
            socket,
            QpAddress::Namespace,
            Number::Gsi,
            StatsRef::Qp(QpStats::new()),
            None,
            Ud::new(consumer, None),
        )
    }

    /// Its state. Process context; does not sleep.
    pub(crate) fn state(&self) -> State {
        self.kind.machine.lock().state()
    }

    /// Changes to state `attr.state` with the attributes in `mask`, as [`ud::Qp::modify`] defines
    /// it. With [`Mask::PORT`] the QP takes its address: it accepts datagrams to `address`, or to
    /// every address of its link if that is `None`. The caller checks who may use a controlled Q
    /// key ([`ud::is_controlled`]).
    ///
    /// - To SQD: [`Consumer::drained`] is called if `attr` requests that.
    /// - To RESET: the QP has no address and no Q key. See [`modify`](super::modify).
    ///
    /// A run in progress may still use the Q key and the state from before the call, except after a
    /// change to RESET.
    ///
    /// Fails with `EINVAL` if the transition from this state or the attributes are not allowed, or
    /// if `address` is given without [`Mask::PORT`]; `ENODEV` if the link has gone (unless the QP
    /// goes to ERR or RESET). Nothing has changed then. For RESET, a consumer must not call it
    /// while it is being called, and no caller may hold a lock that consumers take: it waits for a
    /// run, as [`close`](Self::close) does. Sleeps.
    pub(crate) fn modify(
        self: &Arc<Self>,
        attr: &ud::Attr,
        mask: Mask,
        address: Option<IpAddr>,
    ) -> Result {
        let binds = mask.contains(Mask::PORT);
        if address.is_some() && !binds {
            return Err(EINVAL);
        }
        let reset = attr.state == State::Reset;
        let change = self.begin_change(reset);
        {
            let mut machine = self.kind.machine.lock();
            let mut changed = machine.clone();
            changed.modify(attr, mask).map_err(to_error)?;
            self.check_link(attr.state)?;
            *machine = changed;
            if reset {
                self.accept(&change, Accepts::Nothing);
            } else if binds {
                self.accept(&change, Accepts::To(address));
            }
        }
        if reset {
            self.empty_inbox(&change);
        }
        drop(change);
        self.wake();
        Ok(())
    }

    /// Moves the QP from RTS or SQD to SQE: the consumer could not execute a work request, because
    /// its memory is not accessible. Process context; does not sleep.
    pub(crate) fn fail_send(&self) {
        self.kind.machine.lock().send_failed();
    }

    /// Moves the QP to ERR: its owner has lost a completion. No effect in RESET. Process context;
    /// does not sleep.
    pub(crate) fn fail(self: &Arc<Self>) {
        let attr = ud::Attr {
            state: State::Error,
            ..ud::Attr::default()
        };
        // It fails in RESET only.
        let _ = self.kind.machine.lock().modify(&attr, Mask::NONE);
        self.wake();
    }

    /// Sends a datagram along `path`, which begins at this QP's address, or at any address of its
    /// link if the QP has them all. The memory of `payload` is not used after this returns.
    ///
    /// Fails with `EINVAL` if the path is not of the QP's namespace; `EMSGSIZE` if the payload is
    /// longer than the path MTU, or the path carries none; `EADDRNOTAVAIL`, `ENETUNREACH`,
    /// `EHOSTUNREACH`, `ENODEV`, `ENOMEM` as [`Path::check`]. In a state that does not send, it
    /// fails with `EINVAL` in RESET, INIT and RTR; `EAGAIN` in SQD: the work request waits for RTS;
    /// `ECANCELED` in SQE and ERR: the work request completes as flushed. A datagram that is lost,
    /// on this host or later, is not an error. Process context, no spin lock held that is taken in
    /// softirq.
    pub(crate) fn send(&self, path: &Path, to: &Destination, payload: &Source<'_>) -> Result {
        self.check_path(path)?;
        let mtu = path.mtu()?;
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
            ud::Unsent::Refused => EINVAL,
            ud::Unsent::Draining => EAGAIN,
            ud::Unsent::Flushed => ECANCELED,
        })?;
        // The identification need not be unique, because fragmentation is forbidden; the lower half
        // of the PSN will do.
        let id = packet.bth.psn.get() as u16;
        let sent = path
            .build(self.source_port(), id, &packet, |room| {
                payload::gather(room, payload, 0);
                Ok(())
            })
            .and_then(|skb| path.send(skb));
        let mut counter = PacketCounter::new(&self.stats, path.link().stats());
        match sent {
            Ok(()) => counter.sent(packet.len()),
            Err(_) => counter.count(Stat::TxNotSent),
        }
        Ok(())
    }
}

impl Ud {
    fn new(
        consumer: Arc<dyn Consumer>,
        flows: Option<Arc<FlowTable>>,
    ) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            machine <- new_spinlock!(ud::Qp::new(Qpn::default()), "Ud::machine"),
            consumer <- new_spinlock!(Some(consumer), "Ud::consumer"),
            flows,
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
    pub(crate) fn addrs(&self) -> Option<AddrPair> {
        AddrPair::of(self.skb)
    }

    /// Where it comes from, whatever its source address is.
    pub(in crate::net) fn sender(&self) -> Sender {
        self.skb.sender()
    }

    /// The QP that sent it.
    pub(crate) fn source_qp(&self) -> Qpn {
        self.received.src_qp
    }

    /// Its immediate data.
    pub(crate) fn imm(&self) -> Option<u32> {
        self.received.imm
    }

    /// Whether it wakes waiters for solicited events.
    pub(crate) fn solicited(&self) -> bool {
        self.received.solicited
    }

    /// Its payload.
    pub(crate) fn payload(&self) -> &Payload<'a> {
        &self.payload
    }

    /// The bytes that come before the payload in a receive of UD.
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
