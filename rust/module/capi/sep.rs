// SPDX-License-Identifier: GPL-2.0

//! Scalable endpoints, and opening their contexts: fi_endpoint(3).
//!
//! A scalable endpoint is a `struct kfid_ep` of a class of its own, whose transfers return
//! `-KFI_ENOSYS`. A context is an endpoint ([`ep`](super::ep)) whose class tells its side.
//!
//! # Context
//!
//! The operations of this file need process context and may sleep.

use core::ptr;

use kernel::{
    prelude::*,
    sync::Arc, //
};

use kfi_core::{
    addr::SockAddr,
    flags::OpFlags,
    info::is_class,
    op::Side, //
};

use super::{
    absent,
    code,
    ep::{
        self,
        OpenEp, //
    },
    info::{
        put_rx,
        put_tx,
        rx_hint,
        tx_hint, //
    },
    object::{
        bound_fid_ops,
        impl_head,
        inner,
        of_class,
        store,
        Inner,
        Slot, //
    },
    options::{
        get_op_flags,
        getname,
        getopt,
        set_op_flags,
        setname,
        setopt,
        HasName,
        HasOpFlags,
        HasOptions, //
    },
    raw::{
        self,
        kfi_info,
        kfi_ops_cm,
        kfi_ops_ep,
        kfi_rx_attr,
        kfi_tx_attr,
        kfid,
        kfid_av,
        kfid_domain,
        kfid_ep, //
    },
    Opener, //
};
use crate::{
    provider::{
        ep::options::Opt,
        object,
        sep::{
            ContextCounts,
            ScalableEp, //
        }, //
    },
    shim::errno::to_error, //
};

/// The value behind the `struct kfid_ep` of a scalable endpoint.
pub(super) struct OpenSep {
    sep: Arc<ScalableEp>,
    opener: Opener,
}

impl Inner for OpenSep {
    fn close(&self) -> Result {
        object::close(&*self.sep)
    }
}

impl HasName for OpenSep {
    fn name(&self) -> Result<SockAddr> {
        self.sep.name()
    }

    fn set_name(&self, addr: SockAddr) -> Result {
        self.sep.set_name(addr)
    }
}

/// The options of contexts that are opened later.
impl HasOptions for OpenSep {
    fn opt(&self, opt: Opt) -> Result<u64> {
        self.sep.opt(opt)
    }

    fn set_opt(&self, opt: Opt, value: u64) -> Result {
        self.sep.set_opt(opt, value)
    }
}

/// The default flags of contexts that are opened later.
impl HasOpFlags for OpenSep {
    fn op_flags(&self, side: Side) -> OpFlags {
        self.sep.op_flags(side)
    }

    fn set_op_flags(&self, side: Side, flags: u64) -> Result {
        let flags = side.default_flags(flags).map_err(to_error)?;
        self.sep.set_op_flags(side, flags)
    }
}

/// The `struct kfid_ep` of a scalable endpoint.
#[repr(transparent)]
pub(super) struct SepHead(kfid_ep);

// SAFETY: A C structure that begins with a `struct kfid`, of integers and pointers.
impl_head! {
    unsafe impl Head for SepHead {
        type Inner = OpenSep;
        CLASS = raw::KFI_CLASS_SEP;
        fid_ops = bound_fid_ops::<SepHead>(bind, control);
    }
}

/// The scalable endpoint behind an object of this class.
///
/// # Safety
///
/// As [`inner`].
unsafe fn sep<'a>(ep: *mut kfid_ep) -> &'a OpenSep {
    // SAFETY: By the requirement above.
    unsafe { inner::<SepHead>(ep.cast()) }
}

/// kfi_scalable_ep().
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
        let (domain, (attr, counts)) = unsafe { (inner(domain), ep::attributes(info)?) };
        let counts = ContextCounts::new(counts.tx, counts.rx)?;
        let slot = Slot::<SepHead>::new(&domain.opener)?;
        let opener = domain.opener.clone();
        let ident = opener.ident(slot.addr(), context);
        let sep = ScalableEp::open(&domain.domain, attr, counts, ident)?;
        let made = slot.fill(context, OpenSep { sep, opener }, |head| {
            head.0.ops = ptr::from_ref(&OPS).cast_mut();
            head.0.cm = ptr::from_ref(&CM_OPS).cast_mut();
            head.0.msg = ptr::from_ref(&absent::MSG).cast_mut();
            head.0.rma = ptr::from_ref(&absent::RMA).cast_mut();
            head.0.tagged = ptr::from_ref(&absent::TAGGED).cast_mut();
            head.0.atomic = ptr::from_ref(&absent::ATOMIC).cast_mut();
        });
        Ok(made.cast())
    };
    // SAFETY: By the interface, `ep` can be written.
    unsafe { store(ep, make()) }
}

/// kfi_scalable_ep_bind(): the AV, without flags.
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn bind(fid: *mut kfid, to: *mut kfid, flags: u64) -> c_int {
    if flags != 0 {
        return EINVAL.to_errno();
    }
    // SAFETY: By the interface, `fid` is an open object; this table is of scalable endpoints. `to`
    // is null or an open object.
    let (open, av) = unsafe { (sep(fid.cast()), of_class::<kfid_av>(to)) };
    code(av.and_then(|av| open.sep.bind_av(&av.0)))
}

/// kfi_control(), kfi_enable(). Default flags are those of contexts that are opened later.
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn control(fid: *mut kfid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: By the interface, `fid` is an open object; this table is of scalable endpoints.
    let open = unsafe { sep(fid.cast()) };
    let result = match u32::try_from(command) {
        Ok(raw::KFI_ENABLE) => open.sep.enable(),
        // SAFETY: By the interface, `arg` is null or points to a u64 that can be written.
        Ok(raw::KFI_GETOPSFLAG) => unsafe { get_op_flags(open, arg.cast()) },
        // SAFETY: By the interface, `arg` is null or points to a u64.
        Ok(raw::KFI_SETOPSFLAG) => unsafe { set_op_flags(open, arg.cast()) },
        _ => Err(ENOSYS),
    };
    code(result)
}

/// kfi_tx_context().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn tx_ctx(
    ep: *mut kfid_ep,
    index: c_int,
    attr: *mut kfi_tx_attr,
    tx_ep: *mut *mut kfid_ep,
    context: *mut c_void,
) -> c_int {
    let make = || {
        // SAFETY: By the interface, `ep` is an open scalable endpoint of this module, and `attr` is
        // null or valid.
        let (open, given) = unsafe { (sep(ep), attr.as_ref()) };
        let index = u64::try_from(index).map_err(|_| EINVAL)?;
        let hint = given.map(tx_hint).unwrap_or_default();
        if !given.is_none_or(|given| is_class(given.tclass)) {
            return Err(EINVAL);
        }
        let slot = Slot::<kfid_ep>::of_class(&open.opener, raw::KFI_CLASS_TX_CTX)?;
        let ident = open.opener.ident(slot.addr(), context);
        let (endpoint, made) = open.sep.tx_context(index, &hint, ident)?;
        // SAFETY: By the interface, `attr` is null or can be written.
        if let Some(attr) = unsafe { attr.as_mut() } {
            // All traffic has this class.
            put_tx(attr, &made, raw::KFI_TC_BEST_EFFORT);
        }
        let inner = OpenEp::new(endpoint, open.opener.clone());
        Ok(ep::fill(slot, context, inner))
    };
    // SAFETY: By the interface, `tx_ep` can be written.
    unsafe { store(tx_ep, make()) }
}

/// kfi_rx_context().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn rx_ctx(
    ep: *mut kfid_ep,
    index: c_int,
    attr: *mut kfi_rx_attr,
    rx_ep: *mut *mut kfid_ep,
    context: *mut c_void,
) -> c_int {
    let make = || {
        // SAFETY: By the interface, `ep` is an open scalable endpoint of this module, and `attr` is
        // null or valid.
        let (open, given) = unsafe { (sep(ep), attr.as_ref()) };
        let index = u64::try_from(index).map_err(|_| EINVAL)?;
        let hint = given.map(rx_hint).unwrap_or_default();
        let slot = Slot::<kfid_ep>::of_class(&open.opener, raw::KFI_CLASS_RX_CTX)?;
        let ident = open.opener.ident(slot.addr(), context);
        let (endpoint, made) = open.sep.rx_context(index, &hint, ident)?;
        // SAFETY: By the interface, `attr` is null or can be written.
        if let Some(attr) = unsafe { attr.as_mut() } {
            put_rx(attr, &made);
        }
        let inner = OpenEp::new(endpoint, open.opener.clone());
        Ok(ep::fill(slot, context, inner))
    };
    // SAFETY: By the interface, `rx_ep` can be written.
    unsafe { store(rx_ep, make()) }
}

static OPS: kfi_ops_ep = kfi_ops_ep {
    getopt: Some(getopt::<SepHead>),
    setopt: Some(setopt::<SepHead>),
    tx_ctx: Some(tx_ctx),
    rx_ctx: Some(rx_ctx),
    ..absent::EP
};

static CM_OPS: kfi_ops_cm = kfi_ops_cm {
    setname: Some(setname::<SepHead>),
    getname: Some(getname::<SepHead>),
    ..absent::CM
};
