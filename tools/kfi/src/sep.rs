// SPDX-License-Identifier: GPL-2.0
//! Scalable endpoints: one name, and transmit and receive contexts with queues of
//! their own.
//!
//! A context is an [`Endpoint`] with one side.  Threads that use different contexts
//! share no lock.

use std::{net::SocketAddr, sync::Arc};

use crate::{
    abi::{self, Call, calls},
    auth_key::AuthKey,
    av::Av,
    domain::Domain,
    enums::Side,
    ep::Endpoint,
    error::Result,
    flags::{Caps, OpFlags},
    object::{Inner, object},
    setters::setters,
};

/// Opens a scalable endpoint; from [`Domain::scalable_endpoint`].
#[derive(Debug)]
#[must_use = "nothing happens before `open`"]
pub struct ScalableEndpointBuilder {
    domain: Domain,
    raw: abi::kfabric_sep_open,
}

impl ScalableEndpointBuilder {
    pub(crate) fn new(domain: &Domain) -> Self {
        Self {
            domain: domain.clone(),
            raw: Call::sized(),
        }
    }

    /// The numbers of transmit contexts and of receive contexts; without this
    /// one of each.
    pub fn contexts(mut self, transmit: u32, receive: u32) -> Self {
        self.raw.tx_ctx_cnt = transmit;
        self.raw.rx_ctx_cnt = receive;
        self
    }

    setters! {
        /// Capabilities of the contexts together; without this messages, tagged
        /// messages and RMA, both ways.
        caps(caps: Caps) => raw.caps = caps.bits();

        /// Default flags of the transmit contexts.
        tx_op_flags(flags: OpFlags) => raw.tx_op_flags = flags.bits();

        /// Default flags of the receive contexts.
        rx_op_flags(flags: OpFlags) => raw.rx_op_flags = flags.bits();

        /// Transmits that can be under way in each context; 0: the module's default.
        tx_size(size: u32) => raw.tx_size = size;

        /// Receives that can be posted to each context; 0: the module's default.
        rx_size(size: u32) => raw.rx_size = size;

        /// Its name: address and first port; without this, or with port 0, the
        /// module chooses.
        addr(addr: SocketAddr) => raw.src_addr = addr.into();

        /// Authorization key of the contexts, which their peers must have too;
        /// without this [`AuthKey::NONE`].
        auth_key(key: AuthKey) => raw.auth_key = key.bytes();

        /// A number for the caller's own use.
        context(context: u64) => raw.context = context;
    }

    /// Opens it.
    ///
    /// # Errors
    ///
    /// As [`EndpointBuilder::open`](crate::EndpointBuilder::open); `EINVAL` also
    /// for more contexts than [`Query::max_ep_ctx`](crate::Query::max_ep_ctx).
    pub fn open(mut self) -> Result<ScalableEndpoint> {
        self.raw.domain = self.domain.handle();
        let device = self.domain.device();
        calls::plain(device, &mut self.raw)?;
        Ok(ScalableEndpoint {
            inner: Inner::new(device, self.raw.handle, vec![self.domain.as_hold()]),
        })
    }
}

/// A scalable endpoint.  It posts nothing itself; its contexts do.
///
/// ```no_run
/// # fn f(domain: kfi::Domain, server: std::net::SocketAddr) -> kfi::Result<()> {
/// use kfi::{CqBind, Side};
///
/// let av = domain.av().rx_ctx_bits(8).open()?;
/// let sep = domain.scalable_endpoint().contexts(4, 4).open()?;
/// sep.bind_av(&av)?;
/// sep.enable()?;
///
/// let cq = domain.cq().open()?;
/// let tx = sep.context(Side::Transmit, 0).open()?;
/// tx.bind_cq(&cq, CqBind::empty())?;
/// tx.enable()?;
///
/// let server = av.insert_one(server)?;
/// tx.inject(server.receive_context(3, 8), b"to context 3")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ScalableEndpoint {
    inner: Arc<Inner>,
}

object!(ScalableEndpoint);

impl ScalableEndpoint {
    /// Takes peers' addresses from an address vector, for all contexts.
    ///
    /// # Errors
    ///
    /// `EINVAL`: bound already, or another domain; `KFI_EOPBADSTATE`: it has a
    /// name already.
    pub fn bind_av(&self, av: &Av) -> Result<()> {
        self.inner.node.bind(av.handle(), 0, av.as_hold())
    }

    /// Enables it: it has its name from now on.  Contexts are enabled each by
    /// itself, before or after.
    ///
    /// # Errors
    ///
    /// `KFI_ENOAV`: no address vector; `EADDRINUSE`: one of the ports is taken;
    /// `EADDRNOTAVAIL`: the link has no address; `KFI_EOPBADSTATE`: enabled
    /// already.
    pub fn enable(&self) -> Result<()> {
        let mut arg = abi::kfabric_ep_enable {
            ep: self.handle(),
            ..Call::sized()
        };
        calls::plain(self.device(), &mut arg)
    }

    /// Its name: the address that peers insert into their address vectors.
    ///
    /// # Errors
    ///
    /// `KFI_EOPBADSTATE`: neither it nor a context is enabled yet.
    pub fn name(&self) -> Result<SocketAddr> {
        calls::ep_name(self.device(), self.handle())
    }

    /// Sets its name.
    ///
    /// # Errors
    ///
    /// `EADDRNOTAVAIL`: the link does not have the address;
    /// `KFI_EOPBADSTATE`: it has a name already.
    pub fn set_name(&self, addr: SocketAddr) -> Result<()> {
        calls::ep_set_name(self.device(), self.handle(), addr)
    }

    /// A context of one side, to be opened.
    pub fn context(&self, side: Side, index: u32) -> ContextBuilder {
        ContextBuilder {
            sep: self.clone(),
            raw: abi::kfabric_sep_context {
                receive: (side == Side::Recv).into(),
                index,
                ..Call::sized()
            },
        }
    }
}

/// Opens a context of a scalable endpoint; from [`ScalableEndpoint::context`].
#[derive(Debug)]
#[must_use = "nothing happens before `open`"]
pub struct ContextBuilder {
    sep: ScalableEndpoint,
    raw: abi::kfabric_sep_context,
}

impl ContextBuilder {
    setters! {
        /// Capabilities; without this all of its side that the scalable endpoint has.
        caps(caps: Caps) => raw.caps = caps.bits();

        /// Default flags; without this those of the scalable endpoint.
        op_flags(flags: OpFlags) => raw.op_flags = flags.bits();

        /// Operations that can be under way, or receives that can be posted; without
        /// this as many as the scalable endpoint says.
        queue_size(size: u32) => raw.queue_size = size;

        /// A number for the caller's own use.
        context(context: u64) => raw.context = context;
    }

    /// Opens it.  The endpoint needs no address vector and has the name of the
    /// scalable endpoint.
    ///
    /// # Errors
    ///
    /// `EINVAL`: no such context, or an attribute that it cannot have; `EBUSY`:
    /// it is open; `EOPNOTSUPP`: the scalable endpoint has no capabilities of
    /// this side; `EMFILE`; `ENOMEM`.
    pub fn open(mut self) -> Result<Endpoint> {
        self.raw.sep = self.sep.handle();
        let device = self.sep.device();
        calls::plain(device, &mut self.raw)?;
        let hold = self.sep.as_hold();
        Ok(Endpoint::opened(device, self.raw.handle, hold))
    }
}
