// SPDX-License-Identifier: GPL-2.0

//! Counter: kfi_cntr(3).
//!
//! # Context
//!
//! Values are read in any context. Adds are for any context but NMIs, the other changes for any but
//! hard interrupts and NMIs. The caller wakes a waiter that is
//! due, or a worker does if the caller must not take the lock of the waiters: in interrupts and
//! softirqs, and with either disabled. The other calls need process context.

use core::ptr;

use kernel::{
    prelude::*,
    sync::Arc, //
};

use kfi_core::enums::CntrEvents;

use super::{
    code,
    deadline,
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
        kfi_cntr_attr,
        kfi_ops_cntr,
        kfid,
        kfid_cntr,
        kfid_domain, //
    },
    wait::{
        store_queue,
        wait_obj, //
    }, //
};
use crate::{
    provider::{
        cntr::{
            irq::IrqChanger,
            Cntr,
            CntrAttr, //
        },
        object, //
    },
    shim::errno::to_error, //
};

/// The value behind a `struct kfid_cntr`.
pub(super) struct OpenCntr {
    pub(super) cntr: Arc<Cntr>,
    changer: Arc<IrqChanger>,
}

impl Inner for OpenCntr {
    fn close(&self) -> Result {
        object::close(&*self.cntr)
    }
}

// SAFETY: A C structure that begins with a `struct kfid`, of integers and pointers.
impl_head! {
    unsafe impl Head for kfid_cntr {
        type Inner = OpenCntr;
        CLASS = raw::KFI_CLASS_CNTR;
        fid_ops = fid_ops::<kfid_cntr>(Some(control));
    }
}

/// Checks the attributes. Without any, calls can wait.
///
/// # Safety
///
/// `attr` is null, or it and the wait set that it names are valid.
unsafe fn attributes(attr: *const kfi_cntr_attr) -> Result<CntrAttr> {
    let (mut wait, mut set) = (raw::KFI_WAIT_UNSPEC, ptr::null_mut());
    if !attr.is_null() {
        // SAFETY: By the requirement above.
        let attr = unsafe { &*attr };
        let CntrEvents::Comp = CntrEvents::try_from(attr.events).map_err(to_error)?;
        if attr.flags != 0 {
            return Err(EINVAL);
        }
        (wait, set) = (attr.wait_obj, attr.wait_set);
    }
    Ok(CntrAttr {
        // SAFETY: By the requirement above.
        wait: unsafe { wait_obj(wait, set) }?,
        max_value: 0,
    })
}

/// kfi_cntr_open().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
pub(super) unsafe extern "C" fn open(
    domain: *mut kfid_domain,
    attr: *mut kfi_cntr_attr,
    cntr: *mut *mut kfid_cntr,
    context: *mut c_void,
) -> c_int {
    let make = || {
        // SAFETY: By the interface, the arguments are valid, and `domain` is an open domain of this
        // module.
        let (domain, attr) = unsafe { (inner(domain), attributes(attr)?) };
        let slot = Slot::<kfid_cntr>::new(&domain.opener)?;
        let ident = domain.opener.ident(slot.addr(), context);
        let cntr = Cntr::open(&domain.domain, attr, ident)?;
        let changer = IrqChanger::new(&cntr).inspect_err(|_| object::force_close(&*cntr))?;
        Ok(slot.fill(
            context,
            OpenCntr { cntr, changer },
            |head: &mut kfid_cntr| {
                head.ops = ptr::from_ref(&OPS).cast_mut();
            },
        ))
    };
    // SAFETY: By the interface, `cntr` can be written.
    unsafe { store(cntr, make()) }
}

/// kfi_cntr_read().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
#[link_section = ".text.hot"]
unsafe extern "C" fn read(cntr: *mut kfid_cntr) -> u64 {
    // SAFETY: By the interface, `cntr` is an open counter of this module, here and below.
    unsafe { inner(cntr) }.cntr.read()
}

/// kfi_cntr_readerr().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn readerr(cntr: *mut kfid_cntr) -> u64 {
    // SAFETY: See `read`.
    unsafe { inner(cntr) }.cntr.err()
}

/// kfi_cntr_add().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
#[link_section = ".text.hot"]
unsafe extern "C" fn add(cntr: *mut kfid_cntr, value: u64) -> c_int {
    // SAFETY: See `read`.
    let cntr = unsafe { inner(cntr) };
    cntr.changer.add(value, may_lock);
    0
}

/// Returns whether the caller may take the lock of the waiters: not in softirqs and hard
/// interrupts, nor with either disabled.
fn may_lock() -> bool {
    // SAFETY: Any context.
    unsafe { raw::kfabric_capi_may_lock() }
}

/// Calls `change`, which takes the lock of the changes. Fails with `EOPNOTSUPP` in a hard
/// interrupt: that is a sleeping lock with `PREEMPT_RT`.
fn locking(change: impl FnOnce() -> Result) -> c_int {
    // SAFETY: Any context.
    code(match unsafe { raw::kfabric_capi_in_hardirq() } {
        true => Err(EOPNOTSUPP),
        false => change(),
    })
}

/// kfi_cntr_set().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn set(cntr: *mut kfid_cntr, value: u64) -> c_int {
    // SAFETY: See `read`.
    let cntr = unsafe { inner(cntr) };
    locking(|| cntr.changer.set(value, may_lock()))
}

/// kfi_cntr_adderr().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn adderr(cntr: *mut kfid_cntr, value: u64) -> c_int {
    // SAFETY: See `read`.
    let cntr = unsafe { inner(cntr) };
    locking(|| {
        cntr.changer.adderr(value, may_lock());
        Ok(())
    })
}

/// kfi_cntr_seterr().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn seterr(cntr: *mut kfid_cntr, value: u64) -> c_int {
    // SAFETY: See `read`.
    let cntr = unsafe { inner(cntr) };
    locking(|| cntr.changer.seterr(value, may_lock()))
}

/// kfi_cntr_wait().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
#[link_section = ".text.hot"]
unsafe extern "C" fn wait(cntr: *mut kfid_cntr, threshold: u64, timeout: c_int) -> c_int {
    // SAFETY: See `read`.
    let cntr = unsafe { inner(cntr) };
    code(cntr.cntr.wait(threshold, deadline(timeout), &mut 0))
}

/// kfi_control() with KFI_GETWAIT, KFI_GETOPSFLAG or KFI_SETOPSFLAG.
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn control(fid: *mut kfid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: By the interface, `fid` is an open object; this table is of counters.
    let cntr = &unsafe { inner::<kfid_cntr>(fid.cast()) }.cntr;
    let flags: *mut u64 = arg.cast();
    let result = match u32::try_from(command) {
        // SAFETY: By the interface, `arg` points to room for a pointer.
        Ok(raw::KFI_GETWAIT) => unsafe { store_queue(cntr.queue(), arg) },
        Ok(raw::KFI_GETOPSFLAG | raw::KFI_SETOPSFLAG) if arg.is_null() => Err(EINVAL),
        Ok(raw::KFI_GETOPSFLAG) => {
            // SAFETY: By the interface, `arg` points to room for a u64.
            unsafe { *flags = cntr.flags() };
            Ok(())
        }
        // SAFETY: By the interface, `arg` points to a u64.
        Ok(raw::KFI_SETOPSFLAG) => cntr.set_flags(unsafe { *flags }),
        _ => Err(ENOSYS),
    };
    code(result)
}

static OPS: kfi_ops_cntr = kfi_ops_cntr {
    size: size_of::<kfi_ops_cntr>(),
    read: Some(read),
    readerr: Some(readerr),
    add: Some(add),
    set: Some(set),
    wait: Some(wait),
    adderr: Some(adderr),
    seterr: Some(seterr),
};
