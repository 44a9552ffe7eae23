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
    info::is_class,
    op::Side, //
};

use super::{
    absent::not_there,
    code,
    ep::{
        self,
        option,
        put_option,
        side_of,
        OpenEp,
        SIDES, //
    },
    info::{
        put_rx,
        put_sockaddr,
        put_tx,
        rx_hint,
        sockaddr,
        tx_hint, //
    },
    no_transfers,
    object::{
        bound_fid_ops,
        inner,
        of_class,
        store,
        Head,
        Inner,
        Slot, //
    },
    raw::{
        self,
        kfi_info,
        kfi_ops,
        kfi_ops_cm,
        kfi_ops_ep,
        kfi_rx_attr,
        kfi_tx_attr,
        kfid,
        kfid_av,
        kfid_domain,
        kfid_ep,
        kfid_mc,
        kfid_pep,
        kfid_t, //
    },
    Opener, //
};
use crate::{
    provider::{
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

/// The `struct kfid_ep` of a scalable endpoint.
#[repr(transparent)]
pub(super) struct SepHead(kfid_ep);

static FID_OPS: kfi_ops = bound_fid_ops::<SepHead>(bind, control);

// SAFETY: A C structure that begins with a `struct kfid`, of integers and pointers. The table is
// used for scalable endpoints only.
unsafe impl Head for SepHead {
    type Inner = OpenSep;

    const CLASS: u32 = raw::KFI_CLASS_SEP;

    fn fid_ops() -> &'static kfi_ops {
        &FID_OPS
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
            head.0.msg = ptr::from_ref(&no_transfers::MSG).cast_mut();
            head.0.rma = ptr::from_ref(&no_transfers::RMA).cast_mut();
            head.0.tagged = ptr::from_ref(&no_transfers::TAGGED).cast_mut();
            head.0.atomic = ptr::from_ref(&no_transfers::ATOMIC).cast_mut();
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
    let flags: *mut u64 = arg.cast();
    let result = match u32::try_from(command) {
        Ok(raw::KFI_ENABLE) => open.sep.enable(),
        Ok(raw::KFI_GETOPSFLAG | raw::KFI_SETOPSFLAG) if arg.is_null() => Err(EINVAL),
        // SAFETY: By the interface, `arg` points to a u64 that can be written.
        Ok(raw::KFI_GETOPSFLAG) => side_of(unsafe { *flags }).map(|side| unsafe {
            *flags = *flags & SIDES | open.sep.op_flags(side).bits();
        }),
        Ok(raw::KFI_SETOPSFLAG) => {
            // SAFETY: By the interface, `arg` points to a u64.
            let flags = unsafe { *flags };
            side_of(flags).and_then(|side: Side| {
                let flags = side.default_flags(flags & !SIDES).map_err(to_error)?;
                open.sep.set_op_flags(side, flags)
            })
        }
        _ => Err(ENOSYS),
    };
    code(result)
}

/// kfi_setname().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn setname(fid: kfid_t, addr: *mut c_void, len: usize) -> c_int {
    let set = || {
        // SAFETY: By the interface, `fid` is an open scalable endpoint of this module, and there
        // are `len` bytes.
        let (open, addr) = unsafe { (sep(fid.cast()), sockaddr(addr, len)) };
        let addr = addr.map_err(|_| EINVAL)?.ok_or(EINVAL)?;
        open.sep.set_name(addr)
    };
    code(set())
}

/// kfi_getname().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn getname(fid: *mut kfid, addr: *mut c_void, len: *mut usize) -> c_int {
    // SAFETY: By the interface, `fid` is an open scalable endpoint of this module.
    let name = unsafe { sep(fid.cast()) }.sep.name();
    // SAFETY: By the interface, `len` and `addr` can be written.
    code(name.and_then(|name| unsafe { put_sockaddr(&name, addr, len) }))
}

/// kfi_getopt(): the option of contexts that are opened later.
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn getopt(
    fid: *mut kfid,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut usize,
) -> c_int {
    let get = || {
        let opt = option(level, name)?;
        // SAFETY: By the interface, `fid` is an open scalable endpoint of this module.
        let found = unsafe { sep(fid.cast()) }.sep.opt(opt)?;
        // SAFETY: By the interface, the value and its length can be written.
        unsafe { put_option(found, value, len) }
    };
    code(get())
}

/// kfi_setopt(): the option of contexts that are opened later.
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn setopt(
    fid: *mut kfid,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: usize,
) -> c_int {
    let set = || {
        let opt = option(level, name)?;
        // SAFETY: By the interface, `value` is null or points to `len` bytes.
        let value = unsafe { ep::given_option(value, len) }?;
        // SAFETY: By the interface, `fid` is an open scalable endpoint of this module.
        unsafe { sep(fid.cast()) }.sep.set_opt(opt, value)
    };
    code(set())
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
            attr.mode = 0;
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
            attr.mode = 0;
            put_rx(attr, &made);
        }
        let inner = OpenEp::new(endpoint, open.opener.clone());
        Ok(ep::fill(slot, context, inner))
    };
    // SAFETY: By the interface, `rx_ep` can be written.
    unsafe { store(rx_ep, make()) }
}

not_there! {
    cancel(*mut kfid, *mut c_void) -> isize;
    getpeer(*mut kfid_ep, *mut c_void, *mut usize);
    connect(*mut kfid_ep, *const c_void, *const c_void, usize);
    listen(*mut kfid_pep);
    accept(*mut kfid_ep, *const c_void, usize);
    reject(*mut kfid_pep, kfid_t, *const c_void, usize);
    shutdown(*mut kfid_ep, u64);
    join(*mut kfid_ep, *const c_void, u64, *mut *mut kfid_mc, *mut c_void);
}

static OPS: kfi_ops_ep = kfi_ops_ep {
    size: size_of::<kfi_ops_ep>(),
    cancel: Some(cancel),
    getopt: Some(getopt),
    setopt: Some(setopt),
    tx_ctx: Some(tx_ctx),
    rx_ctx: Some(rx_ctx),
};

static CM_OPS: kfi_ops_cm = kfi_ops_cm {
    size: size_of::<kfi_ops_cm>(),
    setname: Some(setname),
    getname: Some(getname),
    getpeer: Some(getpeer),
    connect: Some(connect),
    listen: Some(listen),
    accept: Some(accept),
    reject: Some(reject),
    shutdown: Some(shutdown),
    join: Some(join),
};
