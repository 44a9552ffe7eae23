// SPDX-License-Identifier: GPL-2.0
//! Endpoints, which send and receive.
//!
//! An endpoint is opened, bound to the queues and counters that report on it and to
//! the address vector of its peers, and enabled.  Then operations are posted: any
//! number in one call with [`Endpoint::post`], or one with a method named after it.
//! Each accepted operation completes exactly once; a full queue is `EAGAIN`, after
//! which the program reads completions and posts again.

use std::{net::SocketAddr, sync::Arc};

use crate::{
    abi::{self, Call, calls},
    addr::FiAddr,
    av::Av,
    buffer::Slice,
    cntr::Cntr,
    comp_cntr::CompCntr,
    cq::Cq,
    device::Device,
    domain::Domain,
    enums::{AtomicOp, Datatype, EpType, Side},
    eq::Eq,
    errno::Errno,
    error::Result,
    flags::{Caps, CntrBind, CompCntrOps, CqBind, OpFlags},
    flow::FlowBuilder,
    object::{Hold, Inner, object},
    op::{Local, Op, Remote},
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

    /// Its type; without this [`EpType::Rdm`].
    pub fn ep_type(mut self, ep_type: EpType) -> Self {
        self.raw.type_ = ep_type.raw();
        self
    }

    /// Capabilities; without this messages, tagged messages and RMA, both
    /// ways.
    pub fn caps(mut self, caps: Caps) -> Self {
        self.raw.caps = caps.bits();
        self
    }

    /// Default flags of transmits.
    pub fn tx_op_flags(mut self, flags: OpFlags) -> Self {
        self.raw.tx_op_flags = flags.bits();
        self
    }

    /// Default flags of receives.
    pub fn rx_op_flags(mut self, flags: OpFlags) -> Self {
        self.raw.rx_op_flags = flags.bits();
        self
    }

    /// Transmits that can be under way; 0: the module's default.
    pub fn tx_size(mut self, size: u32) -> Self {
        self.raw.tx_size = size;
        self
    }

    /// Receives that can be posted; 0: the module's default.
    pub fn rx_size(mut self, size: u32) -> Self {
        self.raw.rx_size = size;
        self
    }

    /// Bytes of unexpected messages that are kept; 0: the module's default.
    pub fn buffered(mut self, bytes: u64) -> Self {
        self.raw.total_buffered_recv = bytes;
        self
    }

    /// Its address and port; without this, or with port 0, the module
    /// chooses.
    pub fn addr(mut self, addr: SocketAddr) -> Self {
        self.raw.src_addr = addr.into();
        self
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
    /// ([`Query`](crate::Query)); `EOPNOTSUPP`: a type or capability that the
    /// module does not have; `EADDRNOTAVAIL`: the link does not have this
    /// address; `EMFILE`; `ENOMEM`.
    pub fn open(mut self) -> Result<Endpoint> {
        self.raw.domain = self.domain.handle();
        let device = self.domain.device();
        calls::plain(device, &mut self.raw)?;
        let hold = self.domain.as_hold();
        Ok(Endpoint::opened(device, self.raw.handle, hold))
    }
}

/// Result of [`Endpoint::post`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posted {
    /// Operations that were accepted, from the first on: one at least.
    pub done: usize,
    /// Why the next operation was not accepted; `None`: all were.
    pub error: Option<Errno>,
}

impl Posted {
    /// Whether all were accepted.
    pub fn all(&self) -> bool {
        self.error.is_none()
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
/// let posted = ep.post(&[
///     Op::inject(peer, b"one").flags(OpFlags::COMPLETION).context(1),
///     Op::inject(peer, b"two").flags(OpFlags::COMPLETION).context(2),
/// ])?;
/// for _ in 0..posted.done {
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
    /// `EINVAL`: no side, one that a context does not have, another domain, or a CQ is bound for that side
    /// already; `KFI_EOPBADSTATE`: enabled already.
    pub fn bind_cq(&self, cq: &Cq, flags: CqBind) -> Result<()> {
        self.inner
            .node
            .bind(cq.handle(), flags.bits(), cq.as_hold())
    }

    /// Counts completions of these kinds.
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
    /// `EINVAL`: no operation, another domain, or enabled already; `EBUSY`:
    /// another counter counts one of the operations; `EOPNOTSUPP`: the type of
    /// the endpoint does not have one of them.
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
    /// `KFI_ENOAV`: no address vector; `EADDRINUSE`: the port is taken; `EADDRNOTAVAIL`: the link has
    /// no address; `KFI_EOPBADSTATE`: enabled already, or a shared context is not bound; with a
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

/// Operations.
impl Endpoint {
    /// Posts operations, in order, in one call.
    ///
    /// # Errors
    ///
    /// The error of the first operation, if not even that was accepted:
    ///
    /// - `EAGAIN`: no room in a queue: read completions, then try again.
    /// - `KFI_EOPBADSTATE`: not enabled; `EOPNOTSUPP`: the endpoint does not
    ///   have the capability.
    /// - `ENOENT`: the peer is not in the address vector; `EHOSTUNREACH`: no
    ///   endpoint at its address; `ENETDOWN`, `ENODEV`: the link is down or
    ///   gone.
    /// - `EMSGSIZE`: longer than one operation, or an injected one, can be;
    ///   `EINVAL`: flags or lists that do not fit the kind, no operations.
    /// - Connected endpoints: `ENOTCONN`: not connected yet; `ESHUTDOWN`: the
    ///   connection is over; `EKEYREJECTED`: a key of more than 32 bits.
    /// - Atomics: `EOPNOTSUPP`: a datatype or op that the endpoint does not have, or
    ///   it may have no reads and atomics under way
    ///   ([`QpOption::RdAtomic`](crate::QpOption::RdAtomic)); `EMSGSIZE`: more than
    ///   one word; `EINVAL`: not a whole number of words, or an address at the peer
    ///   that is not a multiple of 8.
    /// - `EFAULT`, `ENOMEM`: the memory, as with [`MrBuilder::open`];
    ///   `EACCES`: the region does not allow it.
    ///
    /// [`MrBuilder::open`]: crate::MrBuilder::open
    #[inline]
    pub fn post(&self, ops: &[Op<'_>]) -> Result<Posted> {
        let (arg, result) = calls::post(self.device(), self.handle(), ops);
        result?;
        Ok(Posted {
            done: arg.done as usize,
            error: (arg.error != 0).then(|| Errno::from_raw(arg.error as i32)),
        })
    }

    /// Posts one operation.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::post`].
    #[inline]
    pub fn post_one(&self, op: &Op<'_>) -> Result<()> {
        self.post(std::slice::from_ref(op)).map(drop)
    }

    /// Sends a message.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::post`].
    pub fn send<'a>(&self, peer: FiAddr, local: impl Into<Local<'a>>, context: u64) -> Result<()> {
        self.post_one(&Op::send(peer, local).context(context))
    }

    /// Sends a message, and a number to the peer's CQ.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::post`].
    pub fn senddata<'a>(
        &self,
        peer: FiAddr,
        local: impl Into<Local<'a>>,
        data: u64,
        context: u64,
    ) -> Result<()> {
        self.post_one(&Op::send(peer, local).data(data).context(context))
    }

    /// Receives a message.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::post`].
    pub fn recv<'a>(&self, local: impl Into<Local<'a>>, context: u64) -> Result<()> {
        self.post_one(&Op::recv(local).context(context))
    }

    /// Sends a tagged message.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::post`].
    pub fn tsend<'a>(
        &self,
        peer: FiAddr,
        local: impl Into<Local<'a>>,
        tag: u64,
        context: u64,
    ) -> Result<()> {
        self.post_one(&Op::tsend(peer, local, tag).context(context))
    }

    /// Receives a message with this tag; bits in `ignore` do not matter.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::post`].
    pub fn trecv<'a>(
        &self,
        local: impl Into<Local<'a>>,
        tag: u64,
        ignore: u64,
        context: u64,
    ) -> Result<()> {
        self.post_one(&Op::trecv(local, tag, ignore).context(context))
    }

    /// Reads a peer's memory.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::post`].
    pub fn read<'a>(
        &self,
        peer: FiAddr,
        local: impl Into<Local<'a>>,
        remote: Remote,
        context: u64,
    ) -> Result<()> {
        self.post_one(&Op::read(peer, local, remote).context(context))
    }

    /// Writes to a peer's memory.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::post`].
    pub fn write<'a>(
        &self,
        peer: FiAddr,
        local: impl Into<Local<'a>>,
        remote: Remote,
        context: u64,
    ) -> Result<()> {
        self.post_one(&Op::write(peer, local, remote).context(context))
    }

    /// Changes a word of a peer's memory atomically; see [`Op::atomic`].
    ///
    /// # Errors
    ///
    /// As [`Endpoint::post`].
    pub fn atomic<'a>(
        &self,
        peer: FiAddr,
        operand: impl Into<Local<'a>>,
        remote: Remote,
        datatype: Datatype,
        op: AtomicOp,
        context: u64,
    ) -> Result<()> {
        self.post_one(&Op::atomic(peer, operand, remote, datatype, op).context(context))
    }

    /// Changes a word of a peer's memory atomically, and stores its old value in
    /// `result`; see [`Op::fetch_atomic`].
    ///
    /// ```no_run
    /// # fn f(ep: kfi::Endpoint, cq: kfi::Cq, word: kfi::Remote) -> kfi::Result<()> {
    /// use kfi::{AtomicOp, Buffer, Datatype, Deadline, FiAddr};
    ///
    /// let one = Buffer::from_bytes(&1u64.to_ne_bytes())?;
    /// let before = Buffer::new(8)?;
    /// let (uint64, sum) = (Datatype::Uint64, AtomicOp::Sum);
    /// ep.fetch_atomic(FiAddr::UNSPEC, &one, &before, word, uint64, sum, 1)?;
    /// cq.next(Deadline::FOREVER)?;
    /// println!("it was {:?}", before.to_vec(..));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Endpoint::post`].
    #[expect(clippy::too_many_arguments, reason = "those of fi_fetch_atomic(3)")]
    pub fn fetch_atomic<'a>(
        &self,
        peer: FiAddr,
        operand: impl Into<Slice<'a>>,
        result: impl Into<Slice<'a>>,
        remote: Remote,
        datatype: Datatype,
        op: AtomicOp,
        context: u64,
    ) -> Result<()> {
        let op = Op::fetch_atomic(peer, operand, result, remote, datatype, op);
        self.post_one(&op.context(context))
    }

    /// Changes a word of a peer's memory if a comparison holds, and stores its old
    /// value in `result`; see [`Op::compare_atomic`].
    ///
    /// # Errors
    ///
    /// As [`Endpoint::post`].
    #[expect(clippy::too_many_arguments, reason = "those of fi_compare_atomic(3)")]
    pub fn compare_atomic<'a>(
        &self,
        peer: FiAddr,
        operand: impl Into<Slice<'a>>,
        compare: impl Into<Slice<'a>>,
        result: impl Into<Slice<'a>>,
        remote: Remote,
        datatype: Datatype,
        op: AtomicOp,
        context: u64,
    ) -> Result<()> {
        let op = Op::compare_atomic(peer, operand, compare, result, remote, datatype, op);
        self.post_one(&op.context(context))
    }

    /// Sends a short message whose bytes are copied at once, and whose success
    /// makes no CQ entry; see [`Op::inject`].
    ///
    /// # Errors
    ///
    /// As [`Endpoint::post`].
    pub fn inject(&self, peer: FiAddr, bytes: &[u8]) -> Result<()> {
        self.post_one(&Op::inject(peer, bytes))
    }

    /// Sends a short tagged message; see [`Op::inject`].
    ///
    /// # Errors
    ///
    /// As [`Endpoint::post`].
    pub fn tinject(&self, peer: FiAddr, bytes: &[u8], tag: u64) -> Result<()> {
        self.post_one(&Op::tinject(peer, bytes, tag))
    }

    /// Writes a few bytes to a peer's memory; see [`Op::inject`].
    ///
    /// # Errors
    ///
    /// As [`Endpoint::post`].
    pub fn inject_write(&self, peer: FiAddr, bytes: &[u8], remote: Remote) -> Result<()> {
        self.post_one(&Op::inject_write(peer, bytes, remote))
    }

    /// Cancels the operation with this context: the oldest receive, else the
    /// oldest transmit that still waits, else one that waits for its
    /// [trigger](Op::trigger).  It completes with `ECANCELED`.
    ///
    /// There is no guarantee: an operation whose trigger has been reached, and
    /// that is about to start, is not found, and starts afterwards.
    ///
    /// # Errors
    ///
    /// `ENOENT`: there is none that can still be cancelled;
    /// `KFI_EOPBADSTATE`: not enabled.
    pub fn cancel(&self, context: u64) -> Result<()> {
        let mut arg = abi::kfabric_ep_cancel {
            ep: self.handle(),
            context,
            ..Call::sized()
        };
        calls::plain(self.device(), &mut arg)
    }
}
