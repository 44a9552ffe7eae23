// SPDX-License-Identifier: GPL-2.0

//! Shared contexts: kfi_stx_context(), kfi_srx_context(); fi_endpoint(3), "Shared contexts".
//!
//! A shared receive context is a `struct kfid_ep` of a class of its own, which has the operations
//! of an endpoint. Those that post receives, cancel them and set options do what they do on an
//! endpoint. The others fail, because the context has neither capabilities to transmit nor an
//! address. A shared transmit context has no operations besides kfi_close().
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
    auth_key::AuthKey,
    flags::{
        Caps,
        OpFlags, //
    },
    info::{
        shared_rx,
        shared_tx,
        Info,
        KernelAttr,
        Kind, //
    }, //
};

use super::{
    absent,
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
        fid_ops,
        impl_head,
        inner,
        store,
        Inner,
        Slot, //
    },
    raw::{
        self,
        kfi_rx_attr,
        kfi_tx_attr,
        kfid_domain,
        kfid_ep,
        kfid_stx, //
    }, //
};
use crate::provider::{
    ep::{
        attr::{
            EpRequest,
            Shares, //
        },
        Endpoint, //
    },
    object,
    stx::Stx, //
};

/// The value behind a `struct kfid_stx`.
pub(super) struct OpenStx(pub(super) Arc<Stx>);

impl Inner for OpenStx {
    fn close(&self) -> Result {
        object::close(&*self.0)
    }
}

// SAFETY: A C structure that begins with a `struct kfid`, of integers and pointers.
impl_head! {
    unsafe impl Head for kfid_stx {
        type Inner = OpenStx;
        CLASS = raw::KFI_CLASS_STX_CTX;
        fid_ops = fid_ops::<kfid_stx>(None);
    }
}

/// A `struct kfid_ep` that is a shared receive context. It has the layout and the value of an
/// endpoint's, so the operations of endpoints can be called with it.
#[repr(transparent)]
pub(super) struct SharedRx(kfid_ep);

// SAFETY: A C structure that begins with a `struct kfid`, of integers and pointers.
impl_head! {
    unsafe impl Head for SharedRx {
        type Inner = OpenEp;
        CLASS = raw::KFI_CLASS_SRX_CTX;
        fid_ops = fid_ops::<SharedRx>(Some(ep::control));
    }
}

/// kfi_stx_context().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
pub(super) unsafe extern "C" fn open_stx(
    domain: *mut kfid_domain,
    attr: *mut kfi_tx_attr,
    stx: *mut *mut kfid_stx,
    context: *mut c_void,
) -> c_int {
    let make = || {
        // SAFETY: By the interface, `domain` is an open domain of this module, and `attr` null or
        // valid; the consumer does not use it during the call.
        let (domain, attr) = unsafe { (inner(domain), attr.as_mut()) };
        let hint = attr.as_deref().map_or(Info::ANY.tx, tx_hint);
        let found = shared_tx(&hint).map_err(|_| EINVAL)?;
        let more = KernelAttr {
            tx_tclass: attr.as_deref().map_or(0, |attr| attr.tclass),
            ..KernelAttr::default()
        };
        let more = more.negotiate(&Kind::SHARED, 0).map_err(|_| EINVAL)?;
        let slot = Slot::<kfid_stx>::new(&domain.opener)?;
        let ident = domain.opener.ident(slot.addr(), context);
        let caps = Caps::from_bits_truncate(found.caps);
        let stx = Stx::open(&domain.domain, caps, found.size, &ident)?;
        if let Some(attr) = attr {
            put_tx(attr, &found, more.tx_tclass);
        }
        Ok(slot.fill(context, OpenStx(stx), |head: &mut kfid_stx| {
            head.ops = ptr::from_ref(&absent::EP).cast_mut();
        }))
    };
    // SAFETY: By the interface, `stx` can be written.
    unsafe { store(stx, make()) }
}

/// kfi_srx_context().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
pub(super) unsafe extern "C" fn open_srx(
    domain: *mut kfid_domain,
    attr: *mut kfi_rx_attr,
    rx_ep: *mut *mut kfid_ep,
    context: *mut c_void,
) -> c_int {
    let make = || {
        // SAFETY: By the interface, `domain` is an open domain of this module, and `attr` null or
        // valid; the consumer does not use it during the call.
        let (domain, attr) = unsafe { (inner(domain), attr.as_mut()) };
        let hint = attr.as_deref().map_or(Info::ANY.rx, rx_hint);
        let found = shared_rx(&hint).map_err(|_| EINVAL)?;
        let request = EpRequest {
            ep_type: raw::KFI_EP_RDM,
            caps: found.caps,
            tx_op_flags: OpFlags::EMPTY.bits(),
            rx_op_flags: found.op_flags,
            tx_size: 0,
            rx_size: found.size,
            total_buffered_recv: found.total_buffered_recv,
            src_addr: None,
            shares: Shares::default(),
            auth_key: AuthKey::NONE,
        };
        let slot = Slot::<SharedRx>::new(&domain.opener)?;
        let opener = domain.opener.clone();
        let ident = opener.ident(slot.addr(), context);
        let srx = Endpoint::open_srx(&domain.domain, request.check_srx()?, ident)?;
        if let Some(attr) = attr {
            put_rx(attr, &found);
        }
        let inner = OpenEp::new(srx, opener);
        Ok(slot.fill(context, inner, |head: &mut SharedRx| {
            ep::set_tables(&mut head.0);
        }))
    };
    // SAFETY: By the interface, `rx_ep` can be written. A `SharedRx` is a `struct kfid_ep`.
    unsafe { store(rx_ep.cast(), make()) }
}
