// SPDX-License-Identifier: GPL-2.0

//! The objects that are bound to an endpoint: AV, EQ, CQs and counters, and the completion counters
//! that are attached to it.
//!
//! [`Bindings`] collects them until the endpoint is enabled. Then they become its [`Bound`], which
//! never changes, so that operations read it without a lock. Each binding is a use of the bound
//! object. It is released when the endpoint closes.

use kfi_core::{
    flags::{
        CntrBind,
        CompCntrOps,
        CqBind, //
    },
    info::used_of_tx, //
};

use super::{
    prelude::*,
    wire::Wire,
    State, //
};
use crate::{
    net::{
        Checked,
        Link, //
    },
    provider::{
        av::Av,
        cntr::Cntr,
        comp_cntr::{
            Attached,
            CompCntr, //
        },
        cq::Cq,
        eq::Eq,
        object_list::StatsSource,
        stx::Stx, //
    }, //
};

/// A CQ bound to one side of an endpoint.
pub(super) struct CqBinding {
    pub(super) cq: UseRef<Cq>,
    /// Success is reported only on request (KFI_SELECTIVE_COMPLETION).
    pub(super) selective: bool,
}

/// The counters bound to an endpoint, by the operations that they count.
#[derive(Default)]
pub(super) struct Counters {
    send: Option<UseRef<Cntr>>,
    recv: Option<UseRef<Cntr>>,
    read: Option<UseRef<Cntr>>,
    write: Option<UseRef<Cntr>>,
    remote_read: Option<UseRef<Cntr>>,
    remote_write: Option<UseRef<Cntr>>,
}

impl Counters {
    /// All counters, in a fixed order.
    fn all_mut(&mut self) -> [(CntrBind, &mut Option<UseRef<Cntr>>); 6] {
        [
            (CntrBind::SEND, &mut self.send),
            (CntrBind::RECV, &mut self.recv),
            (CntrBind::READ, &mut self.read),
            (CntrBind::WRITE, &mut self.write),
            (CntrBind::REMOTE_READ, &mut self.remote_read),
            (CntrBind::REMOTE_WRITE, &mut self.remote_write),
        ]
    }

    /// The counter of the one bit in `what`.
    #[inline]
    pub(super) fn get(&self, what: CntrBind) -> Option<&Cntr> {
        let counter = match what {
            CntrBind::SEND => &self.send,
            CntrBind::RECV => &self.recv,
            CntrBind::READ => &self.read,
            CntrBind::WRITE => &self.write,
            CntrBind::REMOTE_READ => &self.remote_read,
            CntrBind::REMOTE_WRITE => &self.remote_write,
            _ => &None,
        };
        counter.as_deref()
    }
}

/// The bindings of an endpoint that is not enabled yet.
#[derive(Default)]
pub(super) struct Bindings {
    /// `None`: a connected endpoint.
    pub(super) av: Option<UseRef<Av>>,
    pub(super) eq: Option<UseRef<Eq>>,
    pub(super) tx_cq: Option<CqBinding>,
    pub(super) rx_cq: Option<CqBinding>,
    pub(super) counters: Counters,
    /// `None`: no completion counter is attached.
    pub(super) attached: Option<KBox<Attached>>,
}

/// The operations of the transmit side that a completion counter can count.
pub(super) const TRANSMITS: CompCntrOps = CompCntrOps::SEND
    .union(CompCntrOps::RDMA_READ)
    .union(CompCntrOps::RDMA_WRITE);

impl Bindings {
    /// Whether a CQ or a counter reports the completions of the operations of a side.
    pub(super) fn report(&self, side: Side) -> bool {
        let c = &self.counters;
        let attached = |ops| self.attached.as_ref().is_some_and(|all| all.counts(ops));
        match side {
            Side::Transmit => {
                self.tx_cq.is_some()
                    || c.send.is_some()
                    || c.read.is_some()
                    || c.write.is_some()
                    || attached(TRANSMITS)
            }
            Side::Receive => {
                self.rx_cq.is_some() || c.recv.is_some() || attached(CompCntrOps::RECV)
            }
        }
    }
}

/// The bindings of an enabled endpoint, and its address. They never change. The link may lose the
/// address and get it back: see [`Endpoint::check_address`].
pub(super) struct Bound {
    pub(super) bindings: Bindings,
    pub(super) name: SockAddr,
    /// That the link has the address.
    pub(super) has_name: Checked,
    /// The source of its messages, by which peers know it: the name of the scalable endpoint if it
    /// is a context, otherwise its address.
    pub(super) source: SockAddr,
}

impl core::ops::Deref for Bound {
    type Target = Bindings;

    #[inline(always)]
    fn deref(&self) -> &Bindings {
        &self.bindings
    }
}

impl Bound {
    /// Makes the bindings of an endpoint on `link` at `name`, whose messages come from `source`.
    pub(super) fn new(bindings: Bindings, link: &Link, name: SockAddr, source: SockAddr) -> Self {
        Self {
            bindings,
            name,
            has_name: Checked::new(link),
            source,
        }
    }

    /// Its AV. Fails with `KFI_ENOAV` for a connected endpoint, which has none.
    #[inline(always)]
    pub(super) fn av(&self) -> Result<&Av> {
        self.av.as_deref().ok_or_else(|| to_error(Errno::KFI_ENOAV))
    }

    /// Checks that an EQ is bound, which reports the events of the connection. Fails with
    /// `KFI_ENOEQ`.
    pub(super) fn require_eq(&self) -> Result {
        match &self.eq {
            Some(_) => Ok(()),
            None => Err(to_error(Errno::KFI_ENOEQ)),
        }
    }

    /// Releases the uses of all bound objects.
    pub(super) fn release(&self) {
        if let Some(av) = &self.av {
            av.release();
        }
        if let Some(eq) = &self.eq {
            eq.release();
        }
        for binding in [&self.tx_cq, &self.rx_cq].into_iter().flatten() {
            binding.cq.release();
        }
        let c = &self.counters;
        for counter in [
            &c.send,
            &c.recv,
            &c.read,
            &c.write,
            &c.remote_read,
            &c.remote_write,
        ]
        .into_iter()
        .flatten()
        {
            counter.release();
        }
        if let Some(attached) = &self.attached {
            attached.release();
        }
    }
}

impl Endpoint {
    /// Calls `change` with the bindings of an endpoint that is not enabled yet. Fails with
    /// `KFI_EOPBADSTATE` if it is enabled, `EBADF` if it is closed.
    pub(super) fn set_up<T>(
        &self,
        change: impl FnOnce(&mut Bindings, &mut Option<SockAddr>) -> Result<T>,
    ) -> Result<T> {
        match &mut *self.state.lock() {
            State::Setup(bindings, addr) => change(bindings, addr),
            State::Enabled { .. } | State::Srx => Err(to_error(Errno::KFI_EOPBADSTATE)),
            State::Closed => Err(EBADF),
        }
    }

    /// Binds a shared transmit context. Fails with `EINVAL` if the endpoint was not opened to use
    /// one, has one, or has capabilities that the context does not have; if the context belongs to
    /// another domain; `KFI_EOPBADSTATE`; `EBADF`. Sleeps.
    pub(crate) fn bind_stx(&self, stx: &Arc<Stx>) -> Result {
        if !self.shares.tx
            || !Arc::ptr_eq(stx.domain(), self.domain.arc())
            || !stx.caps().contains(used_of_tx(self.caps))
        {
            return Err(EINVAL);
        }
        self.set_up(|_, _| {
            let used = UseRef::new(stx.clone())?;
            if !self.tx.stx.populate(used) {
                return Err(EINVAL);
            }
            Ok(())
        })
    }

    /// Binds the AV. Fails with `EINVAL` if the AV belongs to another domain, or the endpoint has
    /// an AV, or is a context, which has that of its scalable endpoint; `KFI_EOPBADSTATE`; `EBADF`.
    /// Sleeps.
    pub(crate) fn bind_av(&self, av: &Arc<Av>) -> Result {
        if !Arc::ptr_eq(av.domain(), self.domain.arc()) || self.context.is_some() {
            return Err(EINVAL);
        }
        self.set_up(|bindings, _| put_once(&mut bindings.av, || UseRef::new(av.clone())))
    }

    /// Binds an EQ. Fails with `EINVAL` if the EQ belongs to another fabric, or the endpoint has an
    /// EQ; `KFI_EOPBADSTATE`; `EBADF`. Sleeps.
    pub(crate) fn bind_eq(&self, eq: &Arc<Eq>) -> Result {
        if !Arc::ptr_eq(eq.fabric(), self.domain.fabric()) {
            return Err(EINVAL);
        }
        self.set_up(|bindings, _| put_once(&mut bindings.eq, || UseRef::new(eq.clone())))
    }

    /// Binds a CQ to the sides in `flags`; a context has one side, which flags need not name.
    ///
    /// Fails with `EINVAL` for no side, a side that a context does not have, a CQ of another
    /// domain, or a side that has a CQ; `KFI_EOPBADSTATE`; `EBADF`. Sleeps.
    pub(crate) fn bind_cq(&self, cq: &Arc<Cq>, flags: CqBind) -> Result {
        let flags = match &self.context {
            Some(context) => context.cq_sides(flags)?,
            None => flags,
        };
        let tx = flags.contains(CqBind::TRANSMIT);
        let rx = flags.contains(CqBind::RECV);
        if !Arc::ptr_eq(cq.domain(), self.domain.arc()) || !(tx || rx) {
            return Err(EINVAL);
        }
        let selective = flags.contains(CqBind::SELECTIVE_COMPLETION);
        let make = || -> Result<CqBinding> {
            Ok(CqBinding {
                cq: UseRef::new(cq.clone())?,
                selective,
            })
        };
        self.set_up(|bindings, _| {
            if (tx && bindings.tx_cq.is_some()) || (rx && bindings.rx_cq.is_some()) {
                return Err(EINVAL);
            }
            // Both uses are taken before either is set, so that a failure leaves nothing behind.
            let for_tx = tx.then(make).transpose()?;
            let for_rx = rx.then(make).transpose()?;
            bindings.tx_cq = for_tx.or(bindings.tx_cq.take());
            bindings.rx_cq = for_rx.or(bindings.rx_cq.take());
            Ok(())
        })
    }

    /// Binds a counter to the kinds of operations in `flags`; without any to all kinds, because
    /// flags may restrict what is counted (kfi_cntr(3)).
    ///
    /// Fails with `EINVAL` for a kind that a context does not have, a counter of another domain, or
    /// a kind that has a counter; `KFI_EOPBADSTATE`; `EBADF`. Sleeps.
    pub(crate) fn bind_cntr(&self, cntr: &Arc<Cntr>, flags: CntrBind) -> Result {
        let kinds = match &self.context {
            Some(context) => context.counted(),
            None => CntrBind::ALL,
        };
        let flags = if flags.is_empty() { kinds } else { flags };
        if !Arc::ptr_eq(cntr.domain(), self.domain.arc()) || !kinds.contains(flags) {
            return Err(EINVAL);
        }
        self.set_up(|bindings, _| {
            let mut slots = bindings.counters.all_mut();
            let wanted = |what: &CntrBind| flags.contains(*what);
            if slots
                .iter()
                .any(|(what, slot)| wanted(what) && slot.is_some())
            {
                return Err(EINVAL);
            }
            for (what, slot) in &mut slots {
                if wanted(what) {
                    // Fails for the first kind. It fails for a later one only if the counter is
                    // closed by force meanwhile; then the endpoint is about to be closed too.
                    **slot = Some(UseRef::new(cntr.clone())?);
                }
            }
            Ok(())
        })
    }
}

impl Endpoint {
    /// Attaches a completion counter for the operations in `ops` (ibv_qp_attach_comp_cntr). The
    /// endpoint is not enabled yet: its QP would be in RESET or INIT.
    ///
    /// Fails with `EINVAL` for no operation, one that a context does not have, a counter of another
    /// domain, or an endpoint that is enabled; `EBUSY` if an operation has a counter; `EOPNOTSUPP`
    /// for RDMA of a datagram endpoint; `EBADF`; `ENOMEM`. Nothing is attached then. Sleeps.
    pub(crate) fn attach_comp_cntr(&self, cntr: &Arc<CompCntr>, ops: CompCntrOps) -> Result {
        if !Arc::ptr_eq(cntr.domain(), self.domain.arc()) {
            return Err(EINVAL);
        }
        if let Some(context) = &self.context {
            context.check_comp_cntr(ops)?;
        }
        let supported = match &self.wire {
            Some(Wire::Dgram(_)) => CompCntrOps::SEND | CompCntrOps::RECV,
            _ => CompCntrOps::ALL,
        };
        let mut state = self.state.lock();
        let bindings = match &mut *state {
            State::Setup(bindings, _) => bindings,
            State::Enabled { .. } | State::Srx => return Err(EINVAL),
            State::Closed => return Err(EBADF),
        };
        match &mut bindings.attached {
            Some(attached) => attached.attach(cntr, ops, supported),
            none => {
                let mut attached = Attached::new(&self.ident.budget)?;
                attached.attach(cntr, ops, supported)?;
                *none = Some(attached);
                Ok(())
            }
        }
    }
}

/// Fills an empty slot. Fails with `EINVAL` if the slot is not empty.
fn put_once<T>(slot: &mut Option<T>, make: impl FnOnce() -> Result<T>) -> Result {
    if slot.is_some() {
        return Err(EINVAL);
    }
    *slot = Some(make()?);
    Ok(())
}
