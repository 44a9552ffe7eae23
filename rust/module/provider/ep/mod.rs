// SPDX-License-Identifier: GPL-2.0

//! Endpoint: posts operations, matches them with those of its peers, and completes them.
//!
//! ```text
//!  front end -> Poster::post -+-> rdm/ ----> receive/ of the peer -+-> complete.rs
//!                             |         '--> regions of the peer --+   (CQ, counters)
//!                             +-> receive/ (queued, or matched) ---+
//! ```
//!
//! An endpoint is opened, bound to its AV, CQs and counters, and enabled. Its bindings do not
//! change afterwards, so operations read them without a lock ([`bound`]). The receive side has the
//! posted receives and the unexpected messages ([`receive`]). The transmit side has the sends that
//! wait at their peers ([`rdm`]). Each side has one spin lock; [`provider`](crate::provider) has
//! the order. Bytes are copied under neither.
//!
//! Code for one type of endpoint only is in [`rdm`] (reliable datagrams), [`msg`] (connected
//! endpoints) and [`dgram`] (datagrams). An endpoint of the latter two types is one QP ([`wire`]).
//! A context of a scalable endpoint is an endpoint with one side ([`context`]).
//!
//! Every operation runs inside the endpoint's [`Drain`], and inside that of its peer while it
//! accesses the peer. Closing removes the endpoint from the directory and shuts the drain. A
//! close by the owner then waits until no operation is inside, so that no more bytes are placed for
//! this endpoint. A close by force does not wait. Afterwards receives are dropped, sends that wait
//! here fail at their senders, and the endpoint's own sends that wait at peers are taken back.
//!
//! A peer that is still inside after a close by force has taken one receive or one send and copies
//! its bytes. It completes the operation on both sides, and the endpoint is freed with its last
//! reference. No lock is held during the copy, so the teardown does not wait. If the peer leaves a
//! message here after the teardown, it removes that itself ([`arrive`](Endpoint::arrive)).
//!
//! All functions run in process context, with the exceptions in [`provider`](crate::provider).
//! Functions that copy, allocate or drop pinned memory may sleep.

pub(crate) mod admit;
pub(crate) mod atomic;
pub(crate) mod attr;
mod bound;
mod complete;
pub(crate) mod context;
mod dgram;
mod msg;
mod multi_recv;
pub(crate) mod op;
pub(crate) mod options;
pub(crate) mod post;
mod prelude;
mod rdm;
mod receive;
mod submit;
mod teardown;
mod ticket;
pub(crate) mod wire;

#[cfg(kfi_kunit)]
#[path = "../../../../kunit/closing.rs"]
mod kunit;
#[cfg(kfi_kunit)]
#[path = "../../../../kunit/lists.rs"]
mod kunit_lists;
#[cfg(kfi_kunit)]
#[path = "../../../../kunit/submit.rs"]
mod kunit_submit;
#[cfg(kfi_kunit)]
#[path = "../../../../kunit/submit_atomic.rs"]
mod kunit_submit_atomic;

use kernel::{
    time::hrtimer::HrTimer,
    workqueue::{
        new_work,
        Work, //
    }, //
};

use kfi_core::{
    auth_key::AuthKey,
    enums::EpType,
    limits,
    word::Word, //
};

pub(in crate::provider) use self::teardown::wait_for_teardowns;

use self::{
    attr::{
        EpAttr,
        Shares, //
    },
    bound::Bindings,
    context::Context,
    dgram::Dgram,
    msg::Msg,
    prelude::*,
    rdm::{
        remote::Remote,
        transmit::TxSide, //
    },
    receive::{
        share::Sources,
        Queues,
        RxSide, //
    },
    submit::Submission,
    teardown::PendingTeardown,
    wire::Wire, //
};
use super::{
    cq::RecordPool,
    directory::PORT_BYTES,
    drain::{
        Drain,
        DrainGuard, //
    },
    object_list::{
        Class,
        ObjectListEntry,
        ObjectStats,
        StatsSource, //
    }, //
};
use crate::{
    net::{
        EndpointCount,
        Values, //
    },
    shim::{
        alarm::Due,
        wait::Signals,
        word::AtomicWord, //
    }, //
};

/// Makes `len` slots with `new`. Fails with `ENOMEM`. Sleeps.
fn slots<T>(len: usize, new: impl Fn() -> T) -> Result<KVVec<T>> {
    let mut slots = KVVec::with_capacity(len, GFP_KERNEL_ACCOUNT)?;
    for _ in 0..len {
        slots.push(new(), GFP_KERNEL_ACCOUNT)?;
    }
    Ok(slots)
}

/// The state of an endpoint.
#[allow(
    clippy::large_enum_variant,
    reason = "an endpoint has one, and begins with the largest variant"
)]
enum State {
    /// Being bound. The address is the requested one.
    Setup(Bindings, Option<SockAddr>),
    /// Enabled, and counted on its link.
    Enabled {
        _on_link: EndpointCount,
    },
    /// A shared receive context, which is never enabled.
    Srx,
    Closed,
}

/// Statistics of an endpoint.
struct OpStats {
    tx: AtomicWord,
    tx_bytes: AtomicWord,
    rx: AtomicWord,
    rx_bytes: AtomicWord,
}

impl OpStats {
    const fn new() -> Self {
        Self {
            tx: AtomicWord::new(0),
            tx_bytes: AtomicWord::new(0),
            rx: AtomicWord::new(0),
            rx_bytes: AtomicWord::new(0),
        }
    }
}

/// An endpoint.
#[pin_data]
pub(crate) struct Endpoint {
    ident: Ident,
    domain: UseRef<Domain>,
    uses: UseCount,
    caps: Caps,
    /// Peers have the same.
    auth_key: AuthKey,
    /// Its QP; `None` for reliable datagrams.
    wire: Option<Wire>,
    /// What it has of a scalable endpoint if it is a context.
    context: Option<Context>,
    tx_op_flags: Atomic<u64>,
    rx_op_flags: Atomic<u64>,
    /// The room in bytes below which a multi-receive buffer is released.
    min_multi_recv: Atomic<u64>,
    /// Serialises binding, enabling and closing. Held across sleeps.
    #[pin]
    state: Mutex<State>,
    bound: SetOnce<Bound>,
    #[pin]
    drain: Drain,
    #[pin]
    rx: RxSide,
    shares: Shares,
    /// Whether it is a shared receive context itself.
    is_srx: bool,
    /// The shared receive context that it uses, set when it is bound.
    srx: SetOnce<UseRef<Endpoint>>,
    #[pin]
    tx: TxSide,
    /// The sessions with peers on other hosts.
    #[pin]
    remote: Remote,
    /// Memory for the error entries of its next silent operations.
    #[pin]
    records: RecordPool,
    /// Operations that were started and are not posted yet, and the worker and the timer that post
    /// them.
    #[pin]
    submission: Submission,
    #[pin]
    work: Work<Self>,
    #[pin]
    retry: HrTimer<Self>,
    retry_due: Due,
    stats: OpStats,
    list_entry: ObjectListEntry,
    _memory: Allowance,
}

impl Endpoint {
    /// Opens a shared receive context with the receive side of `attr`. It can be used at once.
    /// Fails with `EBADF` if the domain is closed; `ENOMEM`. Sleeps.
    pub(crate) fn open_srx(domain: &Arc<Domain>, attr: EpAttr, ident: Ident) -> Result<Arc<Self>> {
        let attr = EpAttr { tx_size: 0, ..attr };
        let srx = Self::make(domain, attr, ident, true, None)?;
        srx.become_srx();
        Ok(srx)
    }

    /// Opens an endpoint.
    ///
    /// Fails with `EADDRNOTAVAIL` if the link does not have the address; `EBADF` if the domain is
    /// closed; `ENOMEM`. Sleeps.
    pub(crate) fn open(domain: &Arc<Domain>, attr: EpAttr, ident: Ident) -> Result<Arc<Self>> {
        Self::make(domain, attr, ident, false, None)
    }

    /// Opens a context of a scalable endpoint. It has no room for operations of the other side. The
    /// caller has chosen the capabilities. Fails as [`open`](Self::open). Sleeps.
    pub(in crate::provider) fn open_context(
        domain: &Arc<Domain>,
        attr: EpAttr,
        ident: Ident,
        context: Context,
    ) -> Result<Arc<Self>> {
        let attr = match context.side() {
            Side::Transmit => EpAttr { rx_size: 0, ..attr },
            Side::Receive => EpAttr { tx_size: 0, ..attr },
        };
        Self::make(domain, attr, ident, false, Some(context))
    }

    fn make(
        domain: &Arc<Domain>,
        attr: EpAttr,
        ident: Ident,
        is_srx: bool,
        context: Option<Context>,
    ) -> Result<Arc<Self>> {
        let domain = UseRef::new(domain.clone())?;
        let receives = !matches!(&context, Some(context) if context.side() == Side::Transmit);
        if let Some(addr) = &attr.src_addr {
            if !domain.link().has_address(addr) {
                return Err(EADDRNOTAVAIL);
            }
        }
        // With a shared receive context its own queues stay empty.
        let rx_size = if attr.shares.rx { 0 } else { attr.rx_size };
        let wire_bytes = Queues::wire_bytes(rx_size);
        let rdm_bytes = match attr.shares.rx {
            true => wire_bytes,
            false => Queues::bytes(rx_size),
        };
        let bytes = match attr.ep_type {
            EpType::Unspec | EpType::Rdm if !receives => {
                TxSide::bytes(attr.tx_size).saturating_add(PORT_BYTES)
            }
            EpType::Unspec | EpType::Rdm => rdm_bytes
                .saturating_add(TxSide::bytes(attr.tx_size))
                .saturating_add(Remote::BYTES),
            EpType::Msg => wire_bytes.saturating_add(Msg::bytes(attr.tx_size)),
            EpType::Dgram => wire_bytes.saturating_add(Dgram::BYTES),
        };
        let bytes = bytes.saturating_add(RecordPool::BYTES);
        let memory = ident.budget.take_for::<Self>(bytes)?;
        let records = RecordPool::new()?;
        let wire = Wire::new(attr.ep_type, attr.tx_size, &ident.budget)?;
        let queues = match wire {
            None if receives && !attr.shares.rx => Queues::new(rx_size, attr.total_buffered_recv)?,
            _ => Queues::new_wire(rx_size)?,
        };
        let sources = Sources::new()?;
        let endpoint = Arc::pin_init(
            try_pin_init!(Self {
                ident,
                domain,
                uses: UseCount::new(),
                caps: attr.caps,
                auth_key: attr.auth_key,
                wire,
                context,
                tx_op_flags: Atomic::new(attr.tx_op_flags.bits()),
                rx_op_flags: Atomic::new(attr.rx_op_flags.bits()),
                min_multi_recv: Atomic::new(limits::DEFAULT_MIN_MULTI_RECV),
                state <- new_mutex!(
                    State::Setup(Bindings::default(), attr.src_addr),
                    "Endpoint::state"
                ),
                bound: SetOnce::new(),
                drain <- Drain::new_shut(),
                rx <- RxSide::new(queues, sources),
                shares: attr.shares,
                is_srx,
                srx: SetOnce::new(),
                tx <- TxSide::new(attr.tx_size),
                remote <- Remote::new(),
                records <- records,
                submission <- Submission::new(attr.tx_size, attr.rx_size),
                work <- new_work!("kfabric::Endpoint"),
                retry <- HrTimer::new(),
                retry_due: Due::never(),
                stats: OpStats::new(),
                list_entry: ObjectListEntry::new(),
                _memory: memory,
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        endpoint.list_entry.enter(endpoint.clone())?;
        Ok(endpoint)
    }

    /// Enables the endpoint. It has its address and takes operations afterwards.
    ///
    /// Fails with `KFI_ENOCQ` if a direction of its capabilities has neither a CQ nor a counter;
    /// `KFI_ENOAV`; `EADDRINUSE`, for a context also if its scalable endpoint cannot get its name;
    /// `EADDRNOTAVAIL` if the link has no address, or not the requested one; `ENODEV` if the link
    /// was removed; `EBUSY` if there are too many QPs in the network namespace; `KFI_EOPBADSTATE`
    /// if it is enabled, or a shared context is not bound; `EBADF`; and as
    /// [`join_srx`](Self::join_srx). Sleeps.
    pub(crate) fn enable(self: &Arc<Self>) -> Result {
        let mut state = self.state.lock();
        let (bindings, requested) = match &mut *state {
            State::Setup(bindings, addr) => (bindings, addr),
            State::Enabled { .. } => return Err(to_error(Errno::KFI_EOPBADSTATE)),
            // It is ready.
            State::Srx => return Ok(()),
            State::Closed => return Err(EBADF),
        };
        if (self.shares.tx && self.tx.stx.as_ref().is_none())
            || (self.shares.rx && self.srx.as_ref().is_none())
        {
            return Err(to_error(Errno::KFI_EOPBADSTATE));
        }
        let transmits = self.caps.intersects(Caps::SEND | Caps::READ | Caps::WRITE);
        if (transmits && !bindings.report(Side::Transmit))
            || (self.caps.contains(Caps::RECV) && !bindings.report(Side::Receive))
        {
            return Err(to_error(Errno::KFI_ENOCQ));
        }
        let context = self.context.as_ref().map(Context::name).transpose()?;
        if let (Some(context), None) = (&context, &bindings.av) {
            bindings.av = Some(UseRef::new(context.av.clone())?);
        }
        if bindings.av.is_none() && !matches!(self.wire, Some(Wire::Msg(_))) {
            return Err(to_error(Errno::KFI_ENOAV));
        }
        let link = self.domain.link();
        if link.state() == LinkState::Gone {
            return Err(ENODEV);
        }
        let addr = match context
            .as_ref()
            .map_or(*requested, |context| Some(context.addr))
        {
            // The link may have lost the address since the endpoint was opened.
            Some(addr) if !link.has_address(&addr) => return Err(EADDRNOTAVAIL),
            Some(addr) => addr,
            None => link
                .first_ipv4()
                .or_else(|| link.first_ipv6())
                .ok_or(EADDRNOTAVAIL)?,
        };
        self.join_srx(bindings)?;
        let name = self.appear(addr).inspect_err(|_| self.leave_srx())?;
        let source = context.map_or(name, |context| context.name);
        self.bound.populate(Bound::new(
            core::mem::take(bindings),
            self.domain.link(),
            name,
            source,
        ));
        *state = State::Enabled {
            _on_link: link.add_endpoint(),
        };
        self.drain.start();
        Ok(())
    }

    /// Enters the directory at `addr`. A receive context takes the place that its scalable endpoint
    /// has reserved. A transmit context reserves a place, where peers do not find it. Fails with
    /// `EADDRINUSE`; `EBADF` if the scalable endpoint was closed by force; `ENOMEM`. Sleeps.
    fn enter_directory(self: &Arc<Self>, addr: SockAddr) -> Result<SockAddr> {
        let directory = self.domain.directory();
        match self.only_side() {
            Some(Side::Receive) => directory.occupy(&addr, self).map(|()| addr),
            Some(Side::Transmit) => directory.reserve(addr, 1),
            None => directory.enter(addr, self),
        }
    }

    /// Leaves the directory. Does not sleep.
    fn leave_directory(&self, name: &SockAddr) {
        let directory = self.domain.directory();
        match self.only_side() {
            Some(Side::Receive) => directory.vacate(name, self),
            _ => directory.leave(name),
        }
    }

    /// Takes its address, or makes its QP. Returns the final address. Fails as
    /// [`enable`](Self::enable). Sleeps.
    fn appear(self: &Arc<Self>, addr: SockAddr) -> Result<SockAddr> {
        match &self.wire {
            None => {
                let name = self.enter_directory(addr)?;
                if let Err(error) = self.listen(&name) {
                    self.leave_directory(&name);
                    return Err(error);
                }
                Ok(name)
            }
            Some(wire) => wire.enable(self, &addr),
        }
    }

    /// Cancels the oldest receive with `context`, or if there is none, the oldest waiting send, or
    /// an operation that waits for its trigger. It completes with ECANCELED.
    ///
    /// Fails with `ENOENT` if there is no such operation that can still be cancelled,
    /// `KFI_EOPBADSTATE` if the endpoint is not enabled, `EINTR` if the current task is being
    /// killed. Sleeps.
    pub(crate) fn cancel(&self, context: u64) -> Result {
        let Some((_inside, bound)) = self.enter() else {
            return Err(to_error(Errno::KFI_EOPBADSTATE));
        };
        // A started operation may be posted between the search for it among the posted ones and the
        // search among the started ones. Then it is found by a second search.
        let has_started = [Side::Transmit, Side::Receive]
            .iter()
            .any(|side| self.submission.has_started(*side));
        for _ in 0..1 + usize::from(has_started) {
            if self.cancel_receive(bound, context)
                || self.cancel_started(bound, Side::Receive, context)?
                || self.cancel_send(bound, context)
                || self.cancel_remote(context)
                || self.cancel_started(bound, Side::Transmit, context)?
                || self.domain.cancel_triggered(self, context)
            {
                return Ok(());
            }
        }
        Err(ENOENT)
    }

    /// Enters an enabled endpoint. `None`: it is not enabled, or closing. Does not sleep.
    #[inline(always)]
    fn enter(&self) -> Option<(DrainGuard<'_>, &Bound)> {
        let inside = self.drain.enter()?;
        Some((inside, self.bound.as_ref()?))
    }

    /// Begins a close by force: no operation can be posted any more, and peers on other hosts are
    /// informed. Called for all endpoints of a file before they are closed, because informing the
    /// peers takes time. Does not wait for operations. Sleeps.
    pub(crate) fn farewell(&self) {
        self.stop_listening();
        self.drain.shut();
        // A task that posts started operations may still be inside. Then it ends the sessions.
        if !self.submission.is_busy() {
            self.begin_to_leave();
        }
    }

    #[inline(always)]
    fn count_tx(&self, bytes: u64) {
        self.stats.tx.fetch_add(1);
        self.stats.tx_bytes.fetch_add(bytes);
        self.domain.link().count_tx(bytes);
    }

    #[inline(always)]
    fn count_rx(&self, bytes: u64) {
        self.stats.rx.fetch_add(1);
        self.stats.rx_bytes.fetch_add(bytes);
        self.domain.link().count_rx(bytes);
    }
}

impl Object for Endpoint {
    fn uses(&self) -> &UseCount {
        &self.uses
    }

    fn check_idle(&self, signals: Signals) -> Result {
        match self.only_side() {
            Some(Side::Transmit) => self.check_transmits(signals),
            _ => Ok(()),
        }
    }

    fn shut(&self) {
        self.list_entry.leave();
        // Releases the bindings of an endpoint that was never enabled, or its count on the link.
        let state = core::mem::replace(&mut *self.state.lock(), State::Closed);
        match (&self.wire, self.bound.as_ref()) {
            (None, Some(bound)) => {
                self.stop_listening();
                // Only on the first call. Another endpoint may have the address afterwards.
                if matches!(state, State::Enabled { .. }) {
                    self.leave_directory(&bound.name);
                }
            }
            (Some(wire), _) => wire.close(),
            (None, None) => {}
        }
        self.drain.shut();
    }

    fn wait(&self, signals: Signals) -> Result {
        self.drain.wait(signals)?;
        self.submission.settle(signals)?;
        self.begin_to_leave();
        self.wait_for_sessions(signals)
    }

    fn teardown(&self) {
        // No call of the owner is inside. A close by force does not wait for a task that posts
        // started operations; that task tears the endpoint down when it ends.
        let teardown = PendingTeardown::new();
        if self.submission.leave_teardown() {
            teardown.leave();
        } else {
            self.teardown_now();
        }
    }
}

impl StatsSource for Endpoint {
    fn class(&self) -> Class {
        Class::Endpoint
    }

    fn ident(&self) -> &Ident {
        &self.ident
    }

    fn domain(&self) -> &Arc<Domain> {
        self.domain.arc()
    }

    fn link_gone(&self) {
        self.fail_sends();
        self.fail_remote();
    }

    fn packets(&self) -> Values {
        match &self.wire {
            Some(wire) => wire.packets(),
            None => self.remote.packets(),
        }
    }

    fn stats(&self) -> ObjectStats {
        let [posted, unexpected, buffered] = self.rx.stats();
        ObjectStats {
            addr: self.addr(),
            values: [
                self.stats.tx.load(),
                self.stats.tx_bytes.load(),
                self.stats.rx.load(),
                self.stats.rx_bytes.load(),
                match &self.wire {
                    None => self.tx.waiting(),
                    Some(wire) => wire.under_way(),
                },
                posted,
                unexpected,
                buffered,
            ],
        }
    }
}
