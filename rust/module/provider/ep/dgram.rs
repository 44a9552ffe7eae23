// SPDX-License-Identifier: GPL-2.0

//! Datagram endpoints: one UD QP.
//!
//! A message is one packet. A send completes when its packet was handed to the network stack, also
//! if the stack dropped it. A message that arrives goes to the oldest posted receive. If there is
//! none, it is dropped and counted. The port of the endpoint is another form of its QP number
//! ([`SockAddr::qpn`]), so an address in the AV identifies the peer's QP. Packets to peers on the
//! same host go through the network stack too.
//!
//! A datagram carries the Q key of the sending endpoint. Only datagrams with the Q key of the
//! receiving endpoint are received.

use kfi_core::{
    addr::DGRAM_QPN,
    matching::Envelope, //
};
use kfi_roce::{
    headers::Qpn,
    mtu::PathMtu,
    state::State,
    ud::is_controlled, //
};

use super::{
    op::{
        Op,
        Send, //
    },
    prelude::*,
    wire::{
        imm_data,
        QpInfo,
        Wire, //
    }, //
};
use crate::{
    mem::Budget,
    net::{
        flow::FlowTable,
        qp::{
            ud::{
                Consumer,
                Datagram,
                Destination, //
            },
            Qp,
            Ud, //
        },
        PathCache,
        Stat,
        Values,
        STATS, //
    }, //
};

/// The default Q key of an endpoint: that of the RDMA CM's UD QPs.
const DEFAULT_QKEY: u32 = 0x0123_4567;

/// The state of a datagram endpoint.
#[pin_data]
pub(super) struct Dgram {
    qkey: Atomic<u32>,
    /// Set when the endpoint is enabled.
    qp: SetOnce<Arc<Qp<Ud>>>,
    #[pin]
    paths: PathCache,
    /// The flows that count the packets of the QP.
    flows: Arc<FlowTable>,
}

impl Dgram {
    /// Bytes of the state, its QP and its paths.
    pub(super) const BYTES: usize =
        size_of::<Self>() + PathCache::PATH_BYTES + size_of::<FlowTable>() + Qp::<Ud>::BYTES;

    /// Makes the state without a QP, for an endpoint of `owner`. Fails with `ENOMEM`. Sleeps.
    pub(super) fn new(owner: &Budget) -> impl PinInit<Self, Error> + '_ {
        try_pin_init!(Self {
            qkey: Atomic::new(DEFAULT_QKEY),
            qp: SetOnce::new(),
            paths <- PathCache::new(),
            flows: FlowTable::new(owner)?,
        })
    }

    /// The flows that count the packets of the QP.
    pub(super) fn flows(&self) -> &Arc<FlowTable> {
        &self.flows
    }

    pub(super) fn qkey(&self) -> u32 {
        self.qkey.load(Relaxed)
    }

    /// Sets the Q key. The endpoint is not enabled. Fails with `EINVAL` for more than 32 bits,
    /// `EPERM` for a controlled Q key.
    pub(super) fn set_qkey(&self, qkey: u64) -> Result {
        let qkey = u32::try_from(qkey).map_err(|_| EINVAL)?;
        if is_controlled(qkey) {
            return Err(EPERM);
        }
        self.qkey.store(qkey, Relaxed);
        Ok(())
    }

    /// Makes the QP at `addr`. Returns the address with the port of the QP. Fails with
    /// `EADDRINUSE`, `ENODEV`, `ENOMEM`. Sleeps.
    pub(super) fn enable(&self, endpoint: &Arc<Endpoint>, addr: &SockAddr) -> Result<SockAddr> {
        let link = endpoint.domain.link();
        let owner = &endpoint.ident.budget;
        let flows = Some(self.flows.clone());
        let qp = Qp::datagrams(link, addr, self.qkey(), flows, owner, endpoint.clone());
        let qp = qp.map_err(|error| if error == EBUSY { EADDRINUSE } else { error })?;
        let port = qp.number().get().wrapping_sub(DGRAM_QPN) as u16;
        self.qp.populate(qp);
        Ok(addr.with_port(port))
    }

    /// The packet statistics of the QP. Does not sleep.
    pub(super) fn packets(&self) -> Values {
        self.qp
            .as_ref()
            .map_or([0; STATS], |qp| qp.stats().values())
    }

    /// Closes the QP. Nothing arrives after this has returned. Sleeps.
    pub(super) fn close(&self) {
        if let Some(qp) = self.qp.as_ref() {
            qp.close();
        }
    }

    /// The attributes of the QP. Fails with `KFI_EOPBADSTATE` if the endpoint is not enabled.
    pub(super) fn qp_info(&self, endpoint: &Endpoint) -> Result<QpInfo> {
        let (Some(qp), Some(bound)) = (self.qp.as_ref(), endpoint.bound.as_ref()) else {
            return Err(to_error(Errno::KFI_EOPBADSTATE));
        };
        Ok(QpInfo {
            qpn: qp.number().get(),
            psn: 0,
            ip: bound.name.ip(),
            dest_qpn: 0,
            state: State::Rts,
            path_mtu: PathMtu::of_interface(endpoint.domain.link().mtu()),
        })
    }

    /// Posts an operation. Errors: see [`Poster::post`]. With `EAGAIN`, `op` still has its memory.
    /// Sleeps.
    pub(super) fn post(
        &self,
        endpoint: &Arc<Endpoint>,
        bound: &Bound,
        op: &mut Op<'_>,
        poster: &mut Poster<'_>,
    ) -> Result {
        match op {
            Op::Send(op) => self.send(endpoint, bound, op, &mut poster.spare),
            Op::Receive(op) => endpoint.receive(bound, op, &mut poster.spare),
            Op::Read(_) | Op::Write(_) | Op::Atomic(_) => Err(EOPNOTSUPP),
        }
    }

    /// Checks a SEND, and returns its flags and its immediate data. Fails with `EOPNOTSUPP`,
    /// `EMSGSIZE`; `EINVAL` for data of more than 32 bits. Any context.
    pub(super) fn check_send(
        &self,
        endpoint: &Endpoint,
        op: &Send<'_>,
    ) -> Result<(OpFlags, Option<u32>)> {
        let flags = endpoint.checked_flags_of(op.kind(), op.flags, op.from.len())?;
        if flags.contains(OpFlags::DELIVERY_COMPLETE) {
            return Err(EOPNOTSUPP);
        }
        Ok((flags, imm_data(flags, op.data)?))
    }

    fn send(
        &self,
        endpoint: &Arc<Endpoint>,
        bound: &Bound,
        op: &mut Send<'_>,
        spare: &mut Option<Record>,
    ) -> Result {
        let (kind, len) = (op.kind(), op.from.len() as u64);
        let (flags, imm) = self.check_send(endpoint, op)?;
        endpoint.check_link()?;
        let peer = bound.av()?.peer(op.peer)?;
        let addr = *peer.addr();
        if addr != peer.name() {
            // Datagram endpoints have no contexts.
            return Err(EHOSTUNREACH);
        }
        let to = Destination {
            qp: Qpn::new(addr.qpn().ok_or(EHOSTUNREACH)?),
            qkey: self.qkey(),
            imm,
            solicited: false,
        };
        if !endpoint.domain.link().is_in_scope(&addr) {
            return Err(ENETUNREACH);
        }
        // `send` checks the path.
        let link = endpoint.domain.link();
        let path = self.paths.path(link, bound.name.ip(), addr.ip(), 0);
        let path = path.map_err(|error| if error == EINVAL { EHOSTUNREACH } else { error })?;
        let qp = self.qp.as_ref().ok_or(ENODEV)?;
        let ticket = endpoint.ticket_at_once(bound, kind, flags, op.context, len, spare)?;
        if let Err(error) = qp.send(&path, &to, &op.from) {
            endpoint.refuse(bound, ticket, spare);
            return Err(error);
        }
        // The memory is released before the completion is visible.
        op.from.release();
        endpoint.complete_transmit_at_once(bound, ticket);
        Ok(())
    }
}

impl Endpoint {
    /// The flows that count the packets of its QP. Fails with `EOPNOTSUPP` for an endpoint of
    /// another type. Any context.
    pub(crate) fn flows(&self) -> Result<&Arc<FlowTable>> {
        match &self.wire {
            Some(Wire::Dgram(dgram)) => Ok(dgram.flows()),
            _ => Err(EOPNOTSUPP),
        }
    }

    /// Its address, if it is enabled. Any context.
    pub(crate) fn addr(&self) -> Option<SockAddr> {
        self.name().ok()
    }
}

impl Consumer for Endpoint {
    fn datagram(&self, datagram: &Datagram<'_>) -> Result<(), Stat> {
        let Some((_inside, bound)) = self.enter() else {
            return Err(Stat::DropNoReceive);
        };
        if !self.receives(false) {
            return Err(Stat::DropNoReceive);
        }
        // The address may belong to another link now.
        if !self.has_address(bound) {
            return Err(Stat::DropDestination);
        }
        let source = datagram
            .addrs()
            .and_then(|addrs| self.domain.link().peer(addrs.from))
            .and_then(|addr| addr.with_qpn(datagram.source_qp().get()).ok());
        let payload = datagram.payload();
        let message = Message {
            tagged: false,
            envelope: Envelope {
                // A source that is not a valid address is in no AV.
                src: source.unwrap_or(bound.name.with_port(0)),
                tag: 0,
            },
            data: datagram.imm().map(u64::from),
            len: payload.len() as u64,
            rma: None,
        };
        let matched = self.take(&message).ok_or(Stat::DropNoReceive)?;
        self.place_by(bound, matched, &message, |into| {
            payload.place(into, 0);
        });
        Ok(())
    }
}
