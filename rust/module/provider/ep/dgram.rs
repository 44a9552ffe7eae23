// SPDX-License-Identifier: GPL-2.0

//! Datagrams: one UD QP.
//!
//! A message is one packet. Sending is done when the packet has left, or was lost on its way out;
//! what arrives goes to the oldest posted receive, and is dropped and counted if there is none. The
//! endpoint's port is its QP's number in another form ([`SockAddr::qpn`]), so an address in the AV
//! says all that has to be known of a peer. Everybody on this host is reached through the network
//! too, as everybody else.
//!
//! A datagram carries the endpoint's own Q key, and only what has it is received.
//!
//! The paths to the peers that were sent to last are kept, a few of them: finding one is a walk
//! through routing.

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
        Mutex,
        SetOnce, //
    }, //
};

use kfi_core::{
    addr::{
        SockAddr,
        DGRAM_QPN, //
    },
    errno::Errno,
    flags::OpFlags,
    matching::Envelope, //
};
use kfi_roce::{
    headers::Qpn,
    mtu::PathMtu,
    state::State,
    ud::is_controlled, //
};

use super::{
    bound::Bound,
    op::{
        Op,
        Send, //
    },
    receive::Message,
    wire::{
        imm_data,
        QpInfo, //
    },
    Endpoint, //
};
use crate::{
    net::{
        qp::{
            ud::{
                Consumer,
                Datagram,
                Destination, //
            },
            Qp,
            Ud, //
        },
        Path,
        Values,
        FIGURES, //
    },
    shim::errno::to_error, //
};

/// The Q key of an endpoint that has not been given one: that of the RDMA CM's UD QPs.
const DEFAULT_QKEY: u32 = 0x0123_4567;

/// Paths that are kept; a power of two.
const PATHS: usize = 64;

/// A path, and where it leads.
type Known = Option<(IpAddr, Arc<Path>)>;

/// See the module's story.
#[pin_data]
pub(super) struct Dgram {
    qkey: Atomic<u32>,
    /// Once enabled.
    qp: SetOnce<Arc<Qp<Ud>>>,
    /// By a hash of the IP address.
    #[pin]
    paths: Mutex<[Known; PATHS]>,
}

impl Dgram {
    /// Bytes that one takes, with its QP.
    pub(super) const BYTES: usize = size_of::<Self>() + Qp::<Ud>::BYTES;

    /// One without a QP.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            qkey: Atomic::new(DEFAULT_QKEY),
            qp: SetOnce::new(),
            paths <- new_mutex!([const { None }; PATHS], "Dgram::paths"),
        })
    }

    /// Its Q key.
    pub(super) fn qkey(&self) -> u32 {
        self.qkey.load(Relaxed)
    }

    /// Sets the Q key, of an endpoint that is not enabled. `EINVAL` more than 32 bits, `EPERM` a
    /// controlled one.
    pub(super) fn set_qkey(&self, qkey: u64) -> Result {
        let qkey = u32::try_from(qkey).map_err(|_| EINVAL)?;
        if is_controlled(qkey) {
            return Err(EPERM);
        }
        self.qkey.store(qkey, Relaxed);
        Ok(())
    }

    /// Makes the QP, at `addr`; gives the address with the port that it has. `EADDRINUSE`, `ENODEV`,
    /// `ENOMEM`. Sleeps.
    pub(super) fn enable(&self, endpoint: &Arc<Endpoint>, addr: &SockAddr) -> Result<SockAddr> {
        let link = endpoint.domain.link();
        let owner = &endpoint.ident.budget;
        let qp = Qp::datagrams(link, addr, self.qkey(), owner, endpoint.clone());
        let qp = qp.map_err(|error| if error == EBUSY { EADDRINUSE } else { error })?;
        let port = qp.number().get().wrapping_sub(DGRAM_QPN) as u16;
        self.qp.populate(qp);
        Ok(addr.with_port(port))
    }

    /// What became of the packets of the QP. Does not sleep.
    pub(super) fn packets(&self) -> Values {
        self.qp
            .as_ref()
            .map_or([0; FIGURES], |qp| qp.figures().values())
    }

    /// Nothing arrives any more when this returns. Sleeps.
    pub(super) fn close(&self) {
        if let Some(qp) = self.qp.as_ref() {
            qp.close();
        }
    }

    /// What there is to know of the QP. `KFI_EOPBADSTATE` not enabled.
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

    /// The path from `from` to `to`: `EHOSTUNREACH` it is nobody's address, or of another family;
    /// `ENOMEM`. Sleeps.
    fn path(&self, endpoint: &Endpoint, from: IpAddr, to: IpAddr) -> Result<Arc<Path>> {
        let low = match to {
            IpAddr::V4(ip) => ip.to_bits(),
            IpAddr::V6(ip) => ip.to_bits() as u32,
        };
        let mut paths = self.paths.lock();
        // The index is below PATHS.
        let known = paths.get_mut(low as usize % PATHS).ok_or(EHOSTUNREACH)?;
        match known {
            Some((ip, path)) if *ip == to => Ok(path.clone()),
            _ => {
                let path = Path::new(endpoint.domain.link(), from, to).map_err(|error| {
                    if error == EINVAL {
                        EHOSTUNREACH
                    } else {
                        error
                    }
                })?;
                *known = Some((to, path.clone()));
                Ok(path)
            }
        }
    }

    /// Does an operation. See [`Poster::post`](super::post::Poster::post) for errors. Sleeps.
    pub(super) fn post(&self, endpoint: &Arc<Endpoint>, bound: &Bound, op: Op<'_>) -> Result {
        match op {
            Op::Send(op) => self.send(endpoint, bound, op),
            Op::Receive(op) => endpoint.receive(bound, op),
            Op::Read(_) | Op::Write(_) | Op::Atomic(_) => Err(EOPNOTSUPP),
        }
    }

    fn send(&self, endpoint: &Arc<Endpoint>, bound: &Bound, op: Send<'_>) -> Result {
        let kind = op.kind();
        let flags = endpoint.checked_flags_of(kind, op.flags, op.from.len())?;
        let len = op.from.len() as u64;
        if flags.contains(OpFlags::DELIVERY_COMPLETE) {
            return Err(EOPNOTSUPP);
        }
        let imm = imm_data(flags, op.data)?;
        endpoint.check_link()?;
        let addr = bound.av()?.lookup(op.peer)?;
        let to = Destination {
            qp: Qpn::new(addr.qpn().ok_or(EHOSTUNREACH)?),
            qkey: self.qkey(),
            imm,
            solicited: false,
        };
        let path = self.path(endpoint, bound.name.ip(), addr.ip())?;
        let qp = self.qp.as_ref().ok_or(ENODEV)?;
        let ticket = endpoint.ticket_at_once(bound, kind, flags, op.context, len)?;
        if let Err(error) = qp.send(&path, &to, &op.from) {
            endpoint.give_back(bound, ticket);
            return Err(error);
        }
        // What is complete has let go of its memory.
        drop(op.from);
        endpoint.complete_transmit_at_once(bound, ticket);
        Ok(())
    }
}

impl Consumer for Endpoint {
    fn datagram(&self, datagram: &Datagram<'_>) -> bool {
        let (Some(_inside), Some(bound)) = (self.run.enter(), self.bound.as_ref()) else {
            return false;
        };
        let source = datagram
            .way()
            .and_then(|way| self.domain.link().peer(way.from))
            .and_then(|addr| addr.with_qpn(datagram.source_qp().get()).ok());
        let payload = datagram.payload();
        let message = Message {
            tagged: false,
            envelope: Envelope {
                // One that cannot be an address is in no AV.
                src: source.unwrap_or(bound.name.with_port(0)),
                tag: 0,
            },
            data: datagram.imm().map(u64::from),
            len: payload.len() as u64,
        };
        let Some(place) = self.take(&message) else {
            return false;
        };
        self.place_by(bound, place, &message, |into| {
            payload.place(into, 0);
        });
        true
    }
}
