// SPDX-License-Identifier: GPL-2.0
//! Endpoints, which send and receive.
//!
//! An endpoint is opened, bound to the queues and counters that report on it and to
//! the address vector of its peers, and enabled.  Then operations are posted: any
//! number in one call with [`Endpoint::post`], or one with a method named after it.
//! Each accepted operation completes exactly once; a full queue is `EAGAIN`, after
//! which the program reads completions and posts again.

mod operations;

use std::{net::SocketAddr, sync::Arc};

pub use self::operations::Posted;

use crate::{
    abi::{self, Call, calls},
    auth_key::AuthKey,
    av::Av,
    cntr::Cntr,
    comp_cntr::CompCntr,
    cq::Cq,
    device::Device,
    domain::Domain,
    enums::{EpType, Side},
    eq::Eq,
    error::Result,
    flags::{Caps, CntrBind, CompCntrOps, CqBind, OpFlags},
    flow::FlowBuilder,
    object::{Hold, Inner, object},
    setters::setters,
};

/// Opens an endpoint; from [`Domain::endpoint`].
#[derive(Debug)]
#[must_use = "nothing happens before `open`"]
pub struct EndpointBuilder {
    domain: Domain,
    raw: abi::kfabric_ep_open,
}

impl EndpointBuilder {
    pub(crate) fn new(domain: &Domain) -> Self {
        Self {
            domain: domain.clone(),
            raw: abi::kfabric_ep_open {
                type_: abi::KFI_EP_RDM,
                ..Call::sized()
            },
        }
    }

    setters! {
        /// Its type; without this [`EpType::Rdm`].
        ep_type(ep_type: EpType) => raw.type_ = ep_type.raw();

        /// Capabilities; without this messages, tagged messages and RMA, both
        /// ways.
        caps(caps: Caps) => raw.caps = caps.bits();

        /// Default flags of transmits.
        tx_op_flags(flags: OpFlags) => raw.tx_op_flags = flags.bits();

        /// Default flags of receives.
        rx_op_flags(flags: OpFlags) => raw.rx_op_flags = flags.bits();

        /// Transmits that can be under way; 0: the module's default.
        tx_size(size: u32) => raw.tx_size = size;

        /// Receives that can be posted; 0: the module's default.
        rx_size(size: u32) => raw.rx_size = size;

        /// Bytes of unexpected messages that are kept; 0: the module's default.
        buffered(bytes: u64) => raw.total_buffered_recv = bytes;

        /// Its address and port; without this, or with port 0, the module
        /// chooses.
        addr(addr: SocketAddr) => raw.src_addr = addr.into();

        /// Authorization key, which its peers must have too; without this
        /// [`AuthKey::NONE`].  Only reliable datagrams have keys.
        auth_key(key: AuthKey) => raw.auth_key = key.bytes();
    }

    /// It takes room for transmits from a shared context, which is bound with
    /// [`Endpoint::bind_stx`] before it is enabled.
    pub fn shared_tx(mut self) -> Self {
        self.raw.shared |= abi::KFABRIC_SHARED_TX;
        self
    }

    /// Its messages take the receives of a shared context, which is bound with
    /// [`Endpoint::bind_srx`] before it is enabled.
    pub fn shared_rx(mut self) -> Self {
        self.raw.shared |= abi::KFABRIC_SHARED_RX;
        self
    }

    /// A number for the caller's own use.
    pub fn context(mut self, context: u64) -> Self {
        self.raw.context = context;
        self
    }

    /// Opens it.
    ///
    /// # Errors
    ///
    /// `EINVAL`: unknown type, flags or capabilities, sizes above the limits
    /// ([`Query`](crate::Query)); `EOPNOTSUPP`: a capability, or an authorization
    /// key, that endpoints of the type do not have; `EADDRNOTAVAIL`: the link does
    /// not have this address; `EMFILE`; `ENOMEM`.
    pub fn open(mut self) -> Result<Endpoint> {
        self.raw.domain = self.domain.handle();
        let device = self.domain.device();
        calls::plain(device, &mut self.raw).map_err(|error| match self.raw.src_addr.to_std() {
            Some(addr) => error.on(format_args!("address {addr}")),
            None => error,
        })?;
        let hold = self.domain.as_hold();
        Ok(Endpoint::opened(device, self.raw.handle, hold))
    }
}

/// An endpoint.  Keeps the objects to which it is bound.
///
/// ```no_run
/// # fn f(domain: kfi::Domain, server: std::net::SocketAddr) -> kfi::Result<()> {
/// use kfi::{CqBind, Deadline, Op, OpFlags};
///
/// let (cq, av) = (domain.cq().open()?, domain.av().open()?);
/// let ep = domain.endpoint().open()?;
/// ep.bind_cq(&cq, CqBind::TRANSMIT | CqBind::RECV)?;
/// ep.bind_av(&av)?;
/// ep.enable()?;
///
/// let peer = av.insert_one(server)?;
/// let ops = [
///     Op::inject(peer, b"one").flags(OpFlags::COMPLETION).context(1),
///     Op::inject(peer, b"two").flags(OpFlags::COMPLETION).context(2),
/// ];
/// ep.post(&ops)?.into_result()?;
/// for _ in &ops {
///     cq.next(Deadline::FOREVER)?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Endpoint {
    inner: Arc<Inner>,
}

object!(Endpoint);

/// Set-up.
impl Endpoint {
    /// An object that the module takes as an endpoint.
    pub(crate) fn from_inner(inner: Arc<Inner>) -> Self {
        Self { inner }
    }

    /// Binds another object, without flags.
    pub(crate) fn bind(&self, to: u32, hold: Hold) -> Result<()> {
        self.inner.node.bind(to, 0, hold)
    }

    /// An endpoint that was just opened from `parent`.
    pub(crate) fn opened(device: &Device, handle: u32, parent: Hold) -> Self {
        Self::from_inner(Inner::new(device, handle, vec![parent]))
    }

    /// Reports completions of one or both sides to a CQ; a context of a
    /// scalable endpoint has one side, which need not be named.
    ///
    /// # Errors
    ///
    /// `EINVAL`: no side, one that a context does not have, another domain, or a CQ is
    /// bound for that side already; `KFI_EOPBADSTATE`: enabled already.
    pub fn bind_cq(&self, cq: &Cq, flags: CqBind) -> Result<()> {
        self.inner
            .node
            .bind(cq.handle(), flags.bits(), cq.as_hold())
    }

    /// Counts completions of these kinds; without flags, those of all kinds.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::bind_cq`].
    pub fn bind_cntr(&self, cntr: &Cntr, flags: CntrBind) -> Result<()> {
        self.inner
            .node
            .bind(cntr.handle(), flags.bits(), cntr.as_hold())
    }

    /// Counts these operations on a completion counter
    /// (ibv_qp_attach_comp_cntr), until the endpoint is closed.
    ///
    /// # Errors
    ///
    /// `EINVAL`: no operation, one of the other side of a context, another domain, or
    /// enabled already; `EBUSY`: another counter counts one of the operations;
    /// `EOPNOTSUPP`: the type of the endpoint does not have one of them.
    pub fn attach_comp_cntr(&self, cntr: &CompCntr, ops: CompCntrOps) -> Result<()> {
        let mut arg = abi::kfabric_comp_cntr_attach {
            ep: self.handle(),
            comp_cntr: cntr.handle(),
            op_mask: ops.bits(),
            ..Call::sized()
        };
        calls::plain(self.device(), &mut arg)?;
        self.inner.node.hold(cntr.as_hold());
        Ok(())
    }

    /// Takes peers' addresses from an address vector.
    ///
    /// # Errors
    ///
    /// `EINVAL`: bound already, or another domain; `KFI_EOPBADSTATE`: enabled
    /// already.
    pub fn bind_av(&self, av: &Av) -> Result<()> {
        self.inner.node.bind(av.handle(), 0, av.as_hold())
    }

    /// A flow of this endpoint, to be made: counts the packets that arrive.
    pub fn flow(&self) -> FlowBuilder {
        FlowBuilder::new(self)
    }

    /// Reports events to an event queue.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::bind_av`].
    pub fn bind_eq(&self, eq: &Eq) -> Result<()> {
        self.inner.node.bind(eq.handle(), 0, eq.as_hold())
    }

    /// Enables it: from now on it has its address, and operations can be
    /// posted.
    ///
    /// # Errors
    ///
    /// `KFI_ENOCQ`: neither a CQ nor a counter for a side that it has;
    /// `KFI_ENOAV`: no address vector; `EADDRINUSE`: the port is taken; `EADDRNOTAVAIL`: the link
    /// has no address; `KFI_EOPBADSTATE`: enabled already, or a shared context is not bound; with a
    /// shared receive context `EINVAL`: other endpoints of the context have another CQ or address
    /// vector, and `EAGAIN`: the CQ has no room for the receives that are posted to it.
    pub fn enable(&self) -> Result<()> {
        let mut arg = abi::kfabric_ep_enable {
            ep: self.handle(),
            ..Call::sized()
        };
        calls::plain(self.device(), &mut arg)
    }

    /// Its address.
    ///
    /// # Errors
    ///
    /// `KFI_EOPBADSTATE`: not enabled yet.
    pub fn name(&self) -> Result<SocketAddr> {
        calls::ep_name(self.device(), self.handle())
    }

    /// Sets its address.
    ///
    /// # Errors
    ///
    /// `EADDRNOTAVAIL`: the link does not have it; `KFI_EOPBADSTATE`: enabled
    /// already.
    pub fn set_name(&self, addr: SocketAddr) -> Result<()> {
        calls::ep_set_name(self.device(), self.handle(), addr)
    }

    /// The default flags of one side's operations.
    ///
    /// # Errors
    ///
    /// Only those of every call.
    pub fn op_flags(&self, side: Side) -> Result<OpFlags> {
        let mut arg = abi::kfabric_opsflag {
            handle: self.handle(),
            flags: side.raw(),
            ..Call::sized()
        };
        calls::plain(self.device(), &mut arg)?;
        Ok(OpFlags::from_bits_retain(arg.flags & !side.raw()))
    }

    /// Sets the default flags of one side's operations.
    ///
    /// # Errors
    ///
    /// `EINVAL`: flags that operations of that side do not have.
    pub fn set_op_flags(&self, side: Side, flags: OpFlags) -> Result<()> {
        let mut arg = abi::kfabric_opsflag {
            handle: self.handle(),
            set: 1,
            flags: side.raw() | flags.bits(),
            ..Call::sized()
        };
        calls::plain(self.device(), &mut arg)
    }

    /// A multi-receive buffer with less room than this many bytes is released.
    ///
    /// # Errors
    ///
    /// Only those of every call.
    pub fn min_multi_recv(&self) -> Result<u64> {
        self.opt(abi::KFI_OPT_ENDPOINT, abi::KFI_OPT_MIN_MULTI_RECV, None)
    }

    /// Sets [`min_multi_recv`](Endpoint::min_multi_recv).
    ///
    /// # Errors
    ///
    /// Only those of every call.
    pub fn set_min_multi_recv(&self, bytes: u64) -> Result<()> {
        self.opt(
            abi::KFI_OPT_ENDPOINT,
            abi::KFI_OPT_MIN_MULTI_RECV,
            Some(bytes),
        )
        .map(drop)
    }

    /// Bytes that a connection request can carry.
    ///
    /// # Errors
    ///
    /// `ENOPROTOOPT`: this type of endpoint does not connect.
    pub fn cm_data_size(&self) -> Result<u64> {
        self.opt(abi::KFI_OPT_ENDPOINT, abi::KFI_OPT_CM_DATA_SIZE, None)
    }

    pub(crate) fn opt(&self, level: u32, name: u32, set: Option<u64>) -> Result<u64> {
        let mut arg = abi::kfabric_ep_opt {
            ep: self.handle(),
            set: set.is_some().into(),
            level,
            name,
            value: set.unwrap_or(0),
            ..Call::sized()
        };
        calls::plain(self.device(), &mut arg)?;
        Ok(arg.value)
    }
}
