// SPDX-License-Identifier: GPL-2.0

//! Endpoints: fi_endpoint(3). [`options`](super::options) has their names, options and default
//! flags, [`cm`] their connections, [`msg`] and [`tagged`] their messages, [`rma`] and [`atomic`]
//! their accesses to the memory of peers.
//!
//! The contexts of a scalable endpoint ([`sep`](super::sep)) are endpoints too.
//!
//! An alias (kfi_ep_alias()) is a `struct kfid_ep` of its own. It uses the endpoint that it is made
//! from, and differs from it by its default flags only.
//!
//! # Context
//!
//! The operations of this file need process context and may sleep.

use core::ptr;

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

use kfi_core::{
    addr::SockAddr,
    enums::EpType,
    flags::{
        CntrBind,
        CqBind,
        OpFlags, //
    },
    info::{
        Kind,
        SHARED_CONTEXT, //
    },
    op::Side, //
};

use super::{
    absent,
    atomic,
    cm,
    code,
    info::hints,
    msg,
    object::{
        bound_fid_ops,
        impl_head,
        inner,
        of_class,
        store,
        Head,
        Inner,
        Slot, //
    },
    options::{
        get_op_flags,
        getopt,
        set_op_flags,
        setopt,
        side_of,
        HasName,
        HasOpFlags,
        HasOptions, //
    },
    pep::ConnReq,
    raw::{
        self,
        kfi_alias,
        kfi_info,
        kfi_ops_ep,
        kfid,
        kfid_av,
        kfid_cntr,
        kfid_cq,
        kfid_domain,
        kfid_ep,
        kfid_eq,
        kfid_stx, //
    },
    rma,
    shared::SharedRx,
    tagged,
    Opener, //
};
use crate::{
    mem::Allowance,
    provider::{
        ep::{
            attr::{
                EpAttr,
                EpRequest,
                Shares, //
            },
            options::Opt,
            Endpoint, //
        },
        object::{
            self,
            UseRef, //
        }, //
    },
    shim::errno::to_error, //
};

/// The value behind a `struct kfid_ep`.
pub(super) struct OpenEp {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) opener: Opener,
    /// The request for a connection that it was opened to accept.
    pub(super) request: Option<ConnReq>,
    /// The address of the peer in its entry.
    pub(super) dest_addr: Option<SockAddr>,
    /// `None`: the endpoint itself.
    alias: Option<Alias>,
}

/// What an alias has of its own.
struct Alias {
    used: UseRef<Endpoint>,
    tx_op_flags: Atomic<u64>,
    rx_op_flags: Atomic<u64>,
    _memory: Allowance,
}

impl Alias {
    fn op_flags(&self, side: Side) -> &Atomic<u64> {
        match side {
            Side::Transmit => &self.tx_op_flags,
            Side::Receive => &self.rx_op_flags,
        }
    }
}

impl OpenEp {
    /// An endpoint that is no alias and accepts no request.
    pub(super) fn new(endpoint: Arc<Endpoint>, opener: Opener) -> Self {
        Self {
            endpoint,
            opener,
            request: None,
            dest_addr: None,
            alias: None,
        }
    }

    /// The default flags of a side. Any context.
    #[inline]
    pub(super) fn op_flags(&self, side: Side) -> OpFlags {
        match &self.alias {
            None => self.endpoint.op_flags(side),
            Some(alias) => OpFlags::from_bits_truncate(alias.op_flags(side).load(Relaxed)),
        }
    }

    /// Another alias of the endpoint, with `flags` as default flags of the side that they name.
    fn alias(&self, flags: u64) -> Result<Self> {
        let made = Self {
            endpoint: self.endpoint.clone(),
            opener: self.opener.clone(),
            request: None,
            dest_addr: self.dest_addr,
            alias: Some(Alias {
                tx_op_flags: Atomic::new(self.op_flags(Side::Transmit).bits()),
                rx_op_flags: Atomic::new(self.op_flags(Side::Receive).bits()),
                _memory: self.opener.budget.take_for::<Self>(0)?,
                used: UseRef::new(self.endpoint.clone())?,
            }),
        };
        let (side, flags) = side_of(flags)?;
        made.set_op_flags(side, flags)?;
        Ok(made)
    }
}

impl Inner for OpenEp {
    fn close(&self) -> Result {
        match &self.alias {
            None => object::close(&*self.endpoint),
            Some(alias) => {
                alias.used.release();
                Ok(())
            }
        }
    }
}

impl HasName for OpenEp {
    fn name(&self) -> Result<SockAddr> {
        self.endpoint.name()
    }

    fn set_name(&self, addr: SockAddr) -> Result {
        self.endpoint.set_name(addr)
    }
}

impl HasOptions for OpenEp {
    fn opt(&self, opt: Opt) -> Result<u64> {
        self.endpoint.opt(opt)
    }

    fn set_opt(&self, opt: Opt, value: u64) -> Result {
        self.endpoint.set_opt(opt, value)
    }
}

impl HasOpFlags for OpenEp {
    fn op_flags(&self, side: Side) -> OpFlags {
        Self::op_flags(self, side)
    }

    fn set_op_flags(&self, side: Side, flags: u64) -> Result {
        let flags = side.default_flags(flags).map_err(to_error)?;
        match &self.alias {
            None => self.endpoint.set_op_flags(side, flags),
            Some(alias) => {
                self.endpoint.check_op_flags(flags)?;
                alias.op_flags(side).store(flags.bits(), Relaxed);
                Ok(())
            }
        }
    }
}

// SAFETY: A C structure that begins with a `struct kfid`, of integers and pointers.
impl_head! {
    unsafe impl Head for kfid_ep {
        type Inner = OpenEp;
        // A context of a scalable endpoint is an endpoint too.
        CLASS = raw::KFI_CLASS_EP, or raw::KFI_CLASS_TX_CTX | raw::KFI_CLASS_RX_CTX;
        fid_ops = bound_fid_ops::<kfid_ep>(bind, control);
    }
}

/// What an entry has besides the attributes of an endpoint.
pub(super) struct More {
    /// The number of transmit contexts; 0 stands for one. It may be `SHARED_CONTEXT`.
    pub(super) tx: u64,
    /// That of receive contexts.
    pub(super) rx: u64,
    dest_addr: Option<SockAddr>,
}

/// The attributes of an endpoint, as an entry has them. Fails with `EINVAL`, `EOPNOTSUPP` for what
/// no entry of this provider has; `ENOMEM`. Sleeps.
///
/// # Safety
///
/// `info` is null, or an entry by the interface.
pub(super) unsafe fn attributes(info: *const kfi_info) -> Result<(EpAttr, More)> {
    if info.is_null() {
        return Err(EINVAL);
    }
    // What matches no entry is not valid.
    let not_valid = |error| if error == ENODATA { EINVAL } else { error };
    // SAFETY: By the requirement above.
    let (entry, _) = unsafe { hints(info) }.map_err(not_valid)?;
    let (info, more) = &*entry;
    let ep_type = EpType::try_from(info.ep.ep_type).map_err(to_error)?;
    let rest = More {
        tx: more.ep_tx_ctx_cnt,
        rx: more.ep_rx_ctx_cnt,
        dest_addr: info.dest_addr,
    };
    let kind = Kind::of(ep_type);
    let more = more.negotiate(kind, info.caps).map_err(|_| EINVAL)?;
    let request = EpRequest {
        ep_type: info.ep.ep_type,
        caps: info.caps,
        tx_op_flags: info.tx.op_flags,
        rx_op_flags: info.rx.op_flags,
        tx_size: info.tx.size,
        rx_size: info.rx.size,
        total_buffered_recv: info.rx.total_buffered_recv,
        src_addr: info.src_addr,
        shares: Shares {
            tx: more.ep_tx_ctx_cnt == SHARED_CONTEXT,
            rx: more.ep_rx_ctx_cnt == SHARED_CONTEXT,
        },
        auth_key: info.ep.key_for(kind).map_err(|_| EINVAL)?,
    };
    Ok((request.check()?, rest))
}

/// Makes the object for a consumer.
pub(super) fn fill(slot: Slot<kfid_ep>, context: *mut c_void, inner: OpenEp) -> *mut kfid_ep {
    slot.fill(context, inner, set_tables)
}

/// Sets the tables of the operations of an endpoint.
pub(super) fn set_tables(head: &mut kfid_ep) {
    head.ops = ptr::from_ref(&OPS).cast_mut();
    head.cm = ptr::from_ref(&cm::OPS).cast_mut();
    head.msg = ptr::from_ref(&msg::OPS).cast_mut();
    head.rma = ptr::from_ref(&rma::OPS).cast_mut();
    head.tagged = ptr::from_ref(&tagged::OPS).cast_mut();
    head.atomic = ptr::from_ref(&atomic::OPS).cast_mut();
}

/// kfi_endpoint().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
pub(super) unsafe extern "C" fn open(
    domain: *mut kfid_domain,
    info: *mut kfi_info,
    ep: *mut *mut kfid_ep,
    context: *mut c_void,
) -> c_int {
    let make = || {
        // SAFETY: By the interface, `domain` is an open domain of this module, and `info` an entry.
        let (domain, (attr, more)) = unsafe { (inner(domain), attributes(info)?) };
        let has_several = |count| count > 1 && count != SHARED_CONTEXT;
        if has_several(more.tx) || has_several(more.rx) {
            // An endpoint has one of each; kfi_scalable_ep() opens one with several.
            return Err(EINVAL);
        }
        // SAFETY: `info` is not null: it has attributes. By the interface, its handle is null, an
        // open object, or a handle of a request.
        let request = match unsafe { (*info).handle } {
            handle if handle.is_null() => None,
            // SAFETY: See above.
            handle => Some(unsafe { ConnReq::of(handle) }?),
        };
        let slot = Slot::<kfid_ep>::new(&domain.opener)?;
        let opener = domain.opener.clone();
        let ident = opener.ident(slot.addr(), context);
        let endpoint = Endpoint::open(&domain.domain, attr, ident)?;
        let inner = OpenEp {
            request,
            dest_addr: more.dest_addr,
            ..OpenEp::new(endpoint, opener)
        };
        Ok(fill(slot, context, inner))
    };
    // SAFETY: By the interface, `ep` can be written.
    unsafe { store(ep, make()) }
}

/// kfi_ep_bind(), for arguments that are valid.
///
/// # Safety
///
/// `to` is null, or an open object of any class and any provider.
unsafe fn bind_to(ep: &OpenEp, to: *mut kfid, flags: u64) -> Result {
    if to.is_null() {
        return Err(EINVAL);
    }
    let endpoint = &ep.endpoint;
    // SAFETY: By the requirement above.
    match u32::try_from(unsafe { (*to).fclass })? {
        raw::KFI_CLASS_AV if flags == 0 => {
            // SAFETY: By the requirement above.
            endpoint.bind_av(&unsafe { of_class::<kfid_av>(to) }?.0)
        }
        raw::KFI_CLASS_CNTR => {
            let flags = CntrBind::from_bits(flags).map_err(to_error)?;
            // SAFETY: By the requirement above.
            endpoint.bind_cntr(&unsafe { of_class::<kfid_cntr>(to) }?.cntr, flags)
        }
        raw::KFI_CLASS_CQ => {
            let flags = CqBind::from_bits(flags).map_err(to_error)?;
            // SAFETY: By the requirement above.
            endpoint.bind_cq(&unsafe { of_class::<kfid_cq>(to) }?.cq, flags)
        }
        raw::KFI_CLASS_EQ if flags == 0 => {
            // SAFETY: By the requirement above.
            endpoint.bind_eq(&unsafe { of_class::<kfid_eq>(to) }?.eq)
        }
        raw::KFI_CLASS_STX_CTX if flags == 0 => {
            // SAFETY: By the requirement above.
            endpoint.bind_stx(&unsafe { of_class::<kfid_stx>(to) }?.0)
        }
        raw::KFI_CLASS_SRX_CTX if flags == 0 => {
            // SAFETY: By the requirement above.
            endpoint.bind_srx(&unsafe { of_class::<SharedRx>(to) }?.endpoint)
        }
        _ => Err(EINVAL),
    }
}

/// kfi_ep_bind().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn bind(fid: *mut kfid, to: *mut kfid, flags: u64) -> c_int {
    // SAFETY: By the interface, `fid` is an open object; this table is of endpoints. `to` is null
    // or an open object.
    code(unsafe { bind_to(inner::<kfid_ep>(fid.cast()), to, flags) })
}

/// KFI_ALIAS: makes an alias, of the class of `ep`.
///
/// # Safety
///
/// `arg` is null, or points to a `struct kfi_alias`, whose `fid` is null or can be written.
unsafe fn make_alias(
    ep: &OpenEp,
    class: usize,
    context: *mut c_void,
    arg: *mut kfi_alias,
) -> Result {
    // SAFETY: By the requirement above.
    let arg = unsafe { arg.as_ref() }.ok_or(EINVAL)?;
    if arg.fid.is_null() {
        return Err(EINVAL);
    }
    // An alias of a shared receive context is an endpoint.
    let class = u32::try_from(class).unwrap_or(kfid_ep::CLASS);
    let class = match kfid_ep::has_class(class) {
        true => class,
        false => kfid_ep::CLASS,
    };
    let slot = Slot::<kfid_ep>::of_class(&ep.opener, class)?;
    let alias = fill(slot, context, ep.alias(arg.flags)?);
    // SAFETY: By the requirement above.
    unsafe { *arg.fid = alias.cast() };
    Ok(())
}

/// kfi_control(), kfi_enable(), kfi_ep_alias().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
pub(super) unsafe extern "C" fn control(fid: *mut kfid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: By the interface, `fid` is an open object; this table is of endpoints and shared
    // receive contexts.
    let (ep, class, context) =
        unsafe { (inner::<kfid_ep>(fid.cast()), (*fid).fclass, (*fid).context) };
    let result = match u32::try_from(command) {
        Ok(raw::KFI_ENABLE) => ep.endpoint.enable(),
        // SAFETY: By the interface, `arg` points to a `struct kfi_alias`.
        Ok(raw::KFI_ALIAS) => unsafe { make_alias(ep, class, context, arg.cast()) },
        // SAFETY: By the interface, `arg` is null or points to a u64 that can be written.
        Ok(raw::KFI_GETOPSFLAG) => unsafe { get_op_flags(ep, arg.cast()) },
        // SAFETY: By the interface, `arg` is null or points to a u64.
        Ok(raw::KFI_SETOPSFLAG) => unsafe { set_op_flags(ep, arg.cast()) },
        _ => Err(ENOSYS),
    };
    code(result)
}

/// kfi_cancel().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn cancel(fid: *mut kfid, context: *mut c_void) -> isize {
    // SAFETY: By the interface, `fid` is an open endpoint of this module.
    let ep = unsafe { inner::<kfid_ep>(fid.cast()) };
    code(ep.endpoint.cancel(context.expose_provenance() as u64)) as isize
}

static OPS: kfi_ops_ep = kfi_ops_ep {
    cancel: Some(cancel),
    getopt: Some(getopt::<kfid_ep>),
    setopt: Some(setopt::<kfid_ep>),
    ..absent::EP
};
