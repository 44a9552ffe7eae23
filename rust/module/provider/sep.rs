// SPDX-License-Identifier: GPL-2.0

//! Scalable endpoint: one name, and transmit and receive contexts.
//!
//! The contexts are endpoints with one side ([`Context`]). Each is bound, enabled and closed
//! separately, posts operations, and completes them. A scalable endpoint has what they share: its
//! name, its AV, and the attributes that a context has unless it is opened with others. It posts
//! nothing.
//!
//! ```text
//!   open --> bind_av, set_name --> enable, or a context is enabled --> named
//!     '----> tx_context, rx_context: in any state
//! ```
//!
//! The name is fixed when the scalable endpoint or its first context is enabled, because a
//! consumer may do either first. Then consecutive ports are reserved in the directory, one for each
//! receive context. The receive context `i` is at the port of the name plus `i`, so a peer knows
//! its address from the name ([`kfi_core::peer`]).
//!
//! Each context is a use of the scalable endpoint. All functions run in process context. A context
//! calls [`join`](ScalableEp::join) with the mutex of its own state held; that of the scalable
//! endpoint is taken under it, and held for the reservation of the ports at most.

use kfi_core::{
    auth_key::AuthKey,
    enums::EpType,
    flags::{
        Caps,
        OpFlags, //
    },
    info::{
        Kind,
        RxAttr,
        TxAttr, //
    },
    limits,
    op::Side, //
};

use super::{
    av::Av,
    directory::PORT_BYTES,
    ep::{
        attr::{
            EpAttr,
            Shares, //
        },
        context::Context,
        options::Opt,
        Endpoint, //
    },
    prelude::*, //
};
use crate::net::LinkState;

/// The numbers of contexts of a scalable endpoint.
#[derive(Clone, Copy)]
pub(crate) struct ContextCounts {
    tx: u16,
    rx: u16,
}

impl ContextCounts {
    /// Checks numbers of contexts; 0 stands for one. Fails with `EINVAL` for more than
    /// [`limits::MAX_EP_CTX`].
    pub(crate) fn new(tx: u64, rx: u64) -> Result<Self> {
        let check = |count: u64| match count {
            0 => Ok(1),
            // At most 64.
            count if count <= limits::MAX_EP_CTX.into() => Ok(count as u16),
            _ => Err(EINVAL),
        };
        Ok(Self {
            tx: check(tx)?,
            rx: check(rx)?,
        })
    }

    fn of(self, side: Side) -> u16 {
        match side {
            Side::Transmit => self.tx,
            Side::Receive => self.rx,
        }
    }
}

// The open contexts of a side are the bits of a word.
const _: () = assert!(limits::MAX_EP_CTX <= u64::BITS);

struct State {
    av: Option<UseRef<Av>>,
    /// The requested name.
    requested: Option<SockAddr>,
    /// The name, whose ports are reserved.
    name: Option<SockAddr>,
    is_enabled: bool,
    /// The indices of open contexts, as bits.
    tx: u64,
    rx: u64,
}

impl State {
    fn open_contexts(&mut self, side: Side) -> &mut u64 {
        match side {
            Side::Transmit => &mut self.tx,
            Side::Receive => &mut self.rx,
        }
    }
}

/// A scalable endpoint.
#[pin_data]
pub(crate) struct ScalableEp {
    ident: Ident,
    domain: UseRef<Domain>,
    uses: UseCount,
    counts: ContextCounts,
    caps: Caps,
    tx_size: usize,
    rx_size: usize,
    total_buffered_recv: u64,
    auth_key: AuthKey,
    /// The default flags and the option of contexts that are opened later.
    tx_op_flags: Atomic<u64>,
    rx_op_flags: Atomic<u64>,
    min_multi_recv: Atomic<u64>,
    #[pin]
    state: Mutex<State>,
    _memory: Allowance,
}

impl ScalableEp {
    /// Opens a scalable endpoint.
    ///
    /// Fails with `EOPNOTSUPP` for a type other than reliable datagrams; `EADDRNOTAVAIL` if the
    /// link does not have the address; `EBADF` if the domain is closed; `ENOMEM`. Sleeps.
    pub(crate) fn open(
        domain: &Arc<Domain>,
        attr: EpAttr,
        counts: ContextCounts,
        ident: Ident,
    ) -> Result<Arc<Self>> {
        if !matches!(attr.ep_type, EpType::Rdm | EpType::Unspec) {
            return Err(EOPNOTSUPP);
        }
        let domain = UseRef::new(domain.clone())?;
        if let Some(addr) = &attr.src_addr {
            if !domain.link().has_address(addr) {
                return Err(EADDRNOTAVAIL);
            }
        }
        // A user who could have a port for less than an endpoint could leave none to others.
        let ports = usize::from(counts.rx).saturating_mul(PORT_BYTES);
        let memory = ident.budget.take_for::<Self>(ports)?;
        let state = State {
            av: None,
            requested: attr.src_addr,
            name: None,
            is_enabled: false,
            tx: 0,
            rx: 0,
        };
        Arc::pin_init(
            pin_init!(Self {
                ident,
                domain,
                uses: UseCount::new(),
                counts,
                caps: attr.caps,
                tx_size: attr.tx_size,
                rx_size: attr.rx_size,
                total_buffered_recv: attr.total_buffered_recv,
                auth_key: attr.auth_key,
                tx_op_flags: Atomic::new(attr.tx_op_flags.bits()),
                rx_op_flags: Atomic::new(attr.rx_op_flags.bits()),
                min_multi_recv: Atomic::new(limits::DEFAULT_MIN_MULTI_RECV),
                state <- new_mutex!(state, "ScalableEp::state"),
                _memory: memory,
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Calls `change` with the state while the scalable endpoint has no name. Fails with
    /// `KFI_EOPBADSTATE` if it has one, `EBADF` if it is closed. Sleeps.
    fn set_up(&self, change: impl FnOnce(&mut State) -> Result) -> Result {
        let mut state = self.state.lock();
        // Teardown takes this mutex after the object was marked closed.
        if self.uses.is_closed() {
            return Err(EBADF);
        }
        if state.name.is_some() {
            return Err(to_error(Errno::KFI_EOPBADSTATE));
        }
        change(&mut state)
    }

    /// Binds the AV, which its contexts use. Fails with `EINVAL` if the AV belongs to another
    /// domain, or one is bound; `KFI_EOPBADSTATE` if it has a name; `EBADF`. Sleeps.
    pub(crate) fn bind_av(&self, av: &Arc<Av>) -> Result {
        if !Arc::ptr_eq(av.domain(), self.domain.arc()) {
            return Err(EINVAL);
        }
        self.set_up(|state| {
            if state.av.is_some() {
                return Err(EINVAL);
            }
            state.av = Some(UseRef::new(av.clone())?);
            Ok(())
        })
    }

    /// Requests a name. Fails with `EADDRNOTAVAIL` if the link does not have the address;
    /// `KFI_EOPBADSTATE` if it has a name; `EBADF`. Sleeps.
    pub(crate) fn set_name(&self, addr: SockAddr) -> Result {
        if !self.domain.link().has_address(&addr) {
            return Err(EADDRNOTAVAIL);
        }
        self.set_up(|state| {
            state.requested = Some(addr);
            Ok(())
        })
    }

    /// Its name. Fails with `KFI_EOPBADSTATE` if it has none yet. Sleeps.
    pub(crate) fn name(&self) -> Result<SockAddr> {
        let name = self.state.lock().name;
        name.ok_or_else(|| to_error(Errno::KFI_EOPBADSTATE))
    }

    /// Enables it: it has a name afterwards. Each context is enabled separately. Fails with
    /// `KFI_EOPBADSTATE` if it is enabled, and as [`join`](Self::join). Sleeps.
    pub(crate) fn enable(&self) -> Result {
        let mut state = self.state.lock();
        if state.is_enabled {
            return Err(to_error(Errno::KFI_EOPBADSTATE));
        }
        self.ensure_name(&mut state)?;
        state.is_enabled = true;
        Ok(())
    }

    /// The AV and the name for a context that is being enabled.
    ///
    /// Fails with `KFI_ENOAV`; `EADDRINUSE` if one of the ports of the receive contexts is in use,
    /// or beyond the last port; `EADDRNOTAVAIL` if the link has no address, or not the requested
    /// one; `ENODEV` if the link was removed; `EBADF` if it is closed; `ENOMEM`. Sleeps.
    pub(super) fn join(&self) -> Result<(Arc<Av>, SockAddr)> {
        self.ensure_name(&mut self.state.lock())
    }

    /// Reserves the ports of the name, unless it has one. Errors: see [`join`](Self::join).
    fn ensure_name(&self, state: &mut State) -> Result<(Arc<Av>, SockAddr)> {
        if self.uses.is_closed() {
            return Err(EBADF);
        }
        let av = state.av.as_ref().ok_or(to_error(Errno::KFI_ENOAV))?;
        let av = av.arc().clone();
        if let Some(name) = state.name {
            return Ok((av, name));
        }
        let link = self.domain.link();
        if link.state() == LinkState::Gone {
            return Err(ENODEV);
        }
        let addr = match state.requested {
            // The link may have lost the address since it was requested.
            Some(addr) if !link.has_address(&addr) => return Err(EADDRNOTAVAIL),
            Some(addr) => addr,
            None => link
                .first_ipv4()
                .or_else(|| link.first_ipv6())
                .ok_or(EADDRNOTAVAIL)?,
        };
        let name = self.domain.directory().reserve(addr, self.counts.rx)?;
        state.name = Some(name);
        Ok((av, name))
    }

    /// Opens transmit context `index`. `hint` are its attributes; 0 leaves one to the scalable
    /// endpoint. Returns the context and its attributes.
    ///
    /// Fails with `EINVAL` if there is no such context, or an attribute is not possible; `EBUSY` if
    /// the context is open; `EOPNOTSUPP` if the scalable endpoint transmits nothing; `EBADF`;
    /// `ENOMEM`. Sleeps.
    pub(crate) fn tx_context(
        self: &Arc<Self>,
        index: u64,
        hint: &TxAttr,
        ident: Ident,
    ) -> Result<(Arc<Endpoint>, TxAttr)> {
        let own = self.tx_op_flags.load(Relaxed);
        let mut attr = Kind::RDM.tx(self.caps, hint).map_err(|_| EINVAL)?;
        attr.op_flags = or(hint.op_flags, own);
        attr.size = or(hint.size, self.tx_size as u64);
        let caps = Caps::from_bits_truncate(attr.caps);
        if !caps.intersects(Caps::SEND | Caps::READ | Caps::WRITE) {
            return Err(EOPNOTSUPP);
        }
        let ep_attr = EpAttr {
            tx_op_flags: OpFlags::from_bits_truncate(attr.op_flags),
            tx_size: usize::try_from(attr.size)?,
            ..self.attr_for(caps)
        };
        let context = self.open_context(Side::Transmit, index, ep_attr, ident)?;
        Ok((context, attr))
    }

    /// Opens receive context `index`; see [`tx_context`](Self::tx_context). Fails with `EOPNOTSUPP`
    /// if the scalable endpoint is no target of operations. Sleeps.
    pub(crate) fn rx_context(
        self: &Arc<Self>,
        index: u64,
        hint: &RxAttr,
        ident: Ident,
    ) -> Result<(Arc<Endpoint>, RxAttr)> {
        let own = self.rx_op_flags.load(Relaxed);
        let mut attr = Kind::RDM.rx(self.caps, hint).map_err(|_| EINVAL)?;
        attr.op_flags = or(hint.op_flags, own);
        attr.size = or(hint.size, self.rx_size as u64);
        attr.total_buffered_recv = or(hint.total_buffered_recv, self.total_buffered_recv);
        let caps = Caps::from_bits_truncate(attr.caps);
        if !caps.intersects(Caps::RECV | Caps::REMOTE_READ | Caps::REMOTE_WRITE) {
            return Err(EOPNOTSUPP);
        }
        let ep_attr = EpAttr {
            rx_op_flags: OpFlags::from_bits_truncate(attr.op_flags),
            rx_size: usize::try_from(attr.size)?,
            total_buffered_recv: attr.total_buffered_recv,
            ..self.attr_for(caps)
        };
        let context = self.open_context(Side::Receive, index, ep_attr, ident)?;
        context.set_opt(Opt::MinMultiRecv, self.min_multi_recv.load(Relaxed))?;
        Ok((context, attr))
    }

    /// The attributes of a context with these capabilities.
    fn attr_for(&self, caps: Caps) -> EpAttr {
        EpAttr {
            ep_type: EpType::Rdm,
            caps,
            tx_op_flags: OpFlags::EMPTY,
            rx_op_flags: OpFlags::EMPTY,
            tx_size: 0,
            rx_size: 0,
            total_buffered_recv: 0,
            src_addr: None,
            shares: Shares::default(),
            auth_key: self.auth_key,
        }
    }

    fn open_context(
        self: &Arc<Self>,
        side: Side,
        index: u64,
        attr: EpAttr,
        ident: Ident,
    ) -> Result<Arc<Endpoint>> {
        let flags = match side {
            Side::Transmit => attr.tx_op_flags,
            Side::Receive => attr.rx_op_flags,
        };
        if flags.contains(OpFlags::TRIGGER) && !attr.caps.contains(Caps::TRIGGER) {
            return Err(EOPNOTSUPP);
        }
        let index = match u16::try_from(index) {
            Ok(index) if index < self.counts.of(side) => index,
            _ => return Err(EINVAL),
        };
        let bit = 1_u64.wrapping_shl(index.into());
        {
            let mut state = self.state.lock();
            let open = state.open_contexts(side);
            if *open & bit != 0 {
                return Err(EBUSY);
            }
            *open |= bit;
        }
        let context = Context::new(self, side, index);
        let opened = context
            .and_then(|context| Endpoint::open_context(self.domain.arc(), attr, ident, context));
        if opened.is_err() {
            self.leave(side, index);
        }
        opened
    }

    /// Context `index` is closed. Sleeps.
    pub(super) fn leave(&self, side: Side, index: u16) {
        let bit = 1_u64.wrapping_shl(index.into());
        *self.state.lock().open_contexts(side) &= !bit;
    }

    /// The default flags of contexts that are opened later. Does not sleep.
    pub(crate) fn op_flags(&self, side: Side) -> OpFlags {
        OpFlags::from_bits_truncate(self.default_flags(side).load(Relaxed))
    }

    /// Sets the default flags of contexts that are opened later; [`Side::default_flags`] has
    /// checked them. Fails with `EOPNOTSUPP` for KFI_TRIGGER without the capability. Does not
    /// sleep.
    pub(crate) fn set_op_flags(&self, side: Side, flags: OpFlags) -> Result {
        if flags.contains(OpFlags::TRIGGER) && !self.caps.contains(Caps::TRIGGER) {
            return Err(EOPNOTSUPP);
        }
        self.default_flags(side).store(flags.bits(), Relaxed);
        Ok(())
    }

    fn default_flags(&self, side: Side) -> &Atomic<u64> {
        match side {
            Side::Transmit => &self.tx_op_flags,
            Side::Receive => &self.rx_op_flags,
        }
    }

    /// The value of an option for receive contexts that are opened later. Fails with `ENOPROTOOPT`
    /// for all but `KFI_OPT_MIN_MULTI_RECV`. Does not sleep.
    pub(crate) fn opt(&self, opt: Opt) -> Result<u64> {
        match opt {
            Opt::MinMultiRecv => Ok(self.min_multi_recv.load(Relaxed)),
            _ => Err(to_error(Errno::ENOPROTOOPT)),
        }
    }

    /// Sets an option; see [`opt`](Self::opt).
    pub(crate) fn set_opt(&self, opt: Opt, value: u64) -> Result {
        match opt {
            Opt::MinMultiRecv => {
                self.min_multi_recv.store(value, Relaxed);
                Ok(())
            }
            _ => Err(to_error(Errno::ENOPROTOOPT)),
        }
    }
}

/// `hint`, or `own` if it is 0.
fn or(hint: u64, own: u64) -> u64 {
    match hint {
        0 => own,
        hint => hint,
    }
}

impl Object for ScalableEp {
    fn uses(&self) -> &UseCount {
        &self.uses
    }

    fn teardown(&self) {
        let (av, name) = {
            let mut state = self.state.lock();
            (state.av.take(), state.name.take())
        };
        if let Some(name) = name {
            self.domain.directory().release(name, self.counts.rx);
        }
        drop(av);
        self.domain.release();
    }
}

#[cfg(kfi_kunit)]
#[path = "../../../kunit/sep.rs"]
mod kunit;
