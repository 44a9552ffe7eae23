// SPDX-License-Identifier: GPL-2.0
//! Connections: passive endpoints, and the calls that connect and accept.
//!
//! A [`PassiveEndpoint`] listens; each request is an event of its event queue,
//! and an endpoint of the type [`EpType::Msg`](crate::EpType::Msg) accepts it.
//! The other end is any endpoint of that type that [connects](Endpoint::connect),
//! or a program of the RDMA CM.
//!
//! ```no_run
//! # fn f(fabric: kfi::Fabric, eq: kfi::Eq) -> kfi::Result<()> {
//! use kfi::{CqBind, Deadline, EpType, EventKind};
//!
//! let pep = fabric.passive_endpoint("0.0.0.0:7471".parse().unwrap()).open()?;
//! pep.bind_eq(&eq)?;
//! pep.listen()?;
//! while let Some(event) = eq.read(Deadline::FOREVER)? {
//!     let Some(asked) = event.connection() else { continue };
//!     if event.kind != EventKind::ConnReq {
//!         continue;
//!     }
//!     let domain = fabric.domain(&asked.link).open()?;
//!     let cq = domain.cq().open()?;
//!     let ep = domain.endpoint().ep_type(EpType::Msg).addr(asked.local).open()?;
//!     ep.bind_eq(&eq)?;
//!     ep.bind_cq(&cq, CqBind::TRANSMIT | CqBind::RECV)?;
//!     ep.accept(&pep, asked.connreq, b"welcome")?;
//! #   break;
//! }
//! # Ok(())
//! # }
//! ```

use std::{ffi::CStr, net::SocketAddr, sync::Arc};

use crate::{
    abi::{self, Call, calls},
    ep::Endpoint,
    eq::{Eq, Event},
    error::Result,
    fabric::Fabric,
    object::{Inner, object},
    setters::setters,
};

/// Opens a passive endpoint; from [`Fabric::passive_endpoint`].
#[derive(Debug)]
#[must_use = "nothing happens before `open`"]
pub struct PassiveEndpointBuilder {
    fabric: Fabric,
    raw: abi::kfabric_pep_open,
}

impl PassiveEndpointBuilder {
    pub(crate) fn new(fabric: &Fabric, addr: SocketAddr) -> Self {
        Self {
            fabric: fabric.clone(),
            raw: abi::kfabric_pep_open {
                addr: addr.into(),
                ..Call::sized()
            },
        }
    }

    setters! {
        /// Requests that may wait for an answer; 0, as without this: the module's
        /// default.
        backlog(backlog: u32) => raw.backlog = backlog;

        /// A number for the caller's own use.
        context(context: u64) => raw.context = context;
    }

    /// Opens it.
    ///
    /// # Errors
    ///
    /// `EINVAL`: a backlog of more than 4096; `EMFILE`; `ENOMEM`.
    pub fn open(mut self) -> Result<PassiveEndpoint> {
        self.raw.fabric = self.fabric.handle();
        let device = self.fabric.device();
        calls::plain(device, &mut self.raw).map_err(|error| match self.raw.addr.to_std() {
            Some(addr) => error.on(format_args!("address {addr}")),
            None => error,
        })?;
        Ok(PassiveEndpoint {
            inner: Inner::new(device, self.raw.handle, vec![self.fabric.as_hold()]),
        })
    }
}

/// A passive endpoint: the address at which peers ask for connections.
///
/// Closing it rejects the waiting requests.
#[derive(Clone)]
pub struct PassiveEndpoint {
    inner: Arc<Inner>,
}

object!(PassiveEndpoint);

impl PassiveEndpoint {
    /// Reports requests to an event queue.
    ///
    /// # Errors
    ///
    /// `EINVAL`: bound already, or another fabric; `KFI_EOPBADSTATE`: it
    /// listens.
    pub fn bind_eq(&self, eq: &Eq) -> Result<()> {
        self.inner.node.bind(eq.handle(), 0, eq.as_hold())
    }

    /// Listens.
    ///
    /// # Errors
    ///
    /// `KFI_ENOEQ`: not bound to an event queue; `EADDRNOTAVAIL`: no link has the
    /// address; `EACCES`: the port is below 1,024 and the caller lacks
    /// `CAP_NET_BIND_SERVICE`; `ENODEV`: there is no link; `EADDRINUSE`: another
    /// endpoint listens there; `KFI_EOPBADSTATE`: it listens already.
    pub fn listen(&self) -> Result<()> {
        let mut arg = abi::kfabric_pep_listen {
            pep: self.handle(),
            ..Call::sized()
        };
        calls::plain(self.device(), &mut arg)
    }

    /// The address at which it listens, or will listen.
    ///
    /// # Errors
    ///
    /// Only those of every call.
    pub fn name(&self) -> Result<SocketAddr> {
        calls::ep_name(self.device(), self.handle())
    }

    /// Chooses another address, before it listens.
    ///
    /// # Errors
    ///
    /// `KFI_EOPBADSTATE`: it listens.
    pub fn set_name(&self, addr: SocketAddr) -> Result<()> {
        calls::ep_set_name(self.device(), self.handle(), addr)
    }

    /// Rejects a request, with at most 148 bytes for the peer.
    ///
    /// # Errors
    ///
    /// `EINVAL`: too many bytes; `ENOENT`: no such request waits.
    pub fn reject(&self, connreq: u32, private: &[u8]) -> Result<()> {
        calls::pep_reject(self.device(), self.handle(), connreq, private)
    }
}

/// The contents of an event of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionEvent {
    /// Handle of the passive endpoint that is asked, or of the endpoint.
    pub handle: u32,
    /// The number of the request, of [`EventKind::ConnReq`].
    ///
    /// [`EventKind::ConnReq`]: crate::EventKind::ConnReq
    pub connreq: u32,
    /// Context of the object.
    pub context: u64,
    /// Address of this end.  For a request, an endpoint must have this address to
    /// accept.
    pub local: SocketAddr,
    /// The peer's address.
    pub peer: SocketAddr,
    /// The name of the link.
    pub link: String,
    /// The private data, filled up with zeros.
    pub private: Vec<u8>,
}

impl Event {
    /// The event as one of a connection; `None` if it is too short for one.
    pub fn connection(&self) -> Option<ConnectionEvent> {
        const ADDR: usize = size_of::<abi::kfabric_sockaddr>();
        let (head, private) = self
            .data
            .split_at_checked(size_of::<abi::kfabric_eq_cm_entry>())?;
        let (numbers, rest) = head.split_at_checked(16)?;
        let (local, rest) = rest.split_at_checked(ADDR)?;
        let (peer, link) = rest.split_at_checked(ADDR)?;
        let u32_at = |at| Some(u32::from_ne_bytes(*numbers.get(at..)?.first_chunk()?));
        let link = CStr::from_bytes_until_nul(link).ok()?.to_str().ok()?;
        Some(ConnectionEvent {
            handle: u32_at(0)?,
            connreq: u32_at(4)?,
            context: u64::from_ne_bytes(*numbers.get(8..)?.first_chunk()?),
            local: address(local)?,
            peer: address(peer)?,
            link: link.to_owned(),
            private: private.to_vec(),
        })
    }
}

/// A `struct kfabric_sockaddr` as its bytes.
fn address(bytes: &[u8]) -> Option<SocketAddr> {
    let half = |at| Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
    let word = |at| Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
    let addr = abi::kfabric_sockaddr {
        family: half(0)?,
        port: half(2)?,
        v4: word(4)?,
        v6: *bytes.get(8..)?.first_chunk()?,
        scope_id: word(24)?,
        qpn: word(28)?,
    };
    addr.to_std()
}

const _: () = assert!(size_of::<abi::kfabric_eq_cm_entry>() == 96);
const _: () = assert!(size_of::<abi::kfabric_sockaddr>() == 32);

/// Connections.
impl Endpoint {
    /// Asks a peer for a connection, with at most 56 bytes of private data.  An
    /// event reports the result.  The call enables the endpoint if necessary.
    ///
    /// # Errors
    ///
    /// Those of [`enable`](Endpoint::enable); `EOPNOTSUPP`: another type than
    /// [`EpType::Msg`](crate::EpType::Msg); `EACCES`: the endpoint's own port
    /// is below 1,024 and the caller lacks `CAP_NET_BIND_SERVICE`; `KFI_ENOEQ`:
    /// no event queue; `EINVAL`: too many bytes, or an address that belongs to
    /// no host or is of another family; `EADDRNOTAVAIL`: the link has lost the
    /// endpoint's own address; `ENETUNREACH`: no route leaves by the link's
    /// interface; `EHOSTUNREACH`: the route refuses, or the address is one of
    /// this host that no link has; `EMSGSIZE`: the route or the interface
    /// carries no path MTU; `EALREADY`: it is being connected; `EISCONN`: it is
    /// connected, or was; `EBUSY`: too many connections; `ENETDOWN`, `ENODEV`:
    /// the link is down or gone.
    pub fn connect(&self, peer: SocketAddr, private: &[u8]) -> Result<()> {
        calls::ep_connect(self.device(), self.handle(), peer.into(), private)
    }

    /// Accepts a request, with at most 196 bytes of private data.  An event
    /// reports that the peer is ready.  The call enables the endpoint if
    /// necessary.
    ///
    /// # Errors
    ///
    /// As [`connect`](Endpoint::connect); `EINVAL`: it is on another link, or
    /// has another address; `ENOENT`: no such request waits; `ECONNABORTED`:
    /// the peer has given up.
    pub fn accept(&self, pep: &PassiveEndpoint, connreq: u32, private: &[u8]) -> Result<()> {
        calls::ep_accept(self.device(), self.handle(), pep.handle(), connreq, private)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::enums::EventKind;

    #[test]
    fn events() {
        let mut data = Vec::new();
        data.extend(7u32.to_ne_bytes());
        data.extend(8u32.to_ne_bytes());
        data.extend(9u64.to_ne_bytes());
        for text in ["10.0.0.1:7471", "[2001:db8::1]:5"] {
            let addr = abi::kfabric_sockaddr::from(text.parse::<SocketAddr>().unwrap());
            data.extend(addr.family.to_ne_bytes());
            data.extend(addr.port.to_ne_bytes());
            data.extend(addr.v4.to_ne_bytes());
            data.extend(addr.v6);
            data.extend(addr.scope_id.to_ne_bytes());
            data.extend(addr.qpn.to_ne_bytes());
        }
        data.extend(b"roce0\0\0\0\0\0\0\0\0\0\0\0");
        data.extend(b"hello");
        let event = Event {
            kind: EventKind::ConnReq,
            data: data.clone(),
        };
        let connection = event.connection().unwrap();
        assert_eq!(
            connection,
            ConnectionEvent {
                handle: 7,
                connreq: 8,
                context: 9,
                local: "10.0.0.1:7471".parse().unwrap(),
                peer: "[2001:db8::1]:5".parse().unwrap(),
                link: "roce0".into(),
                private: b"hello".to_vec(),
            }
        );
        data.truncate(95);
        let short = Event { data, ..event };
        assert_eq!(short.connection(), None);
    }
}
