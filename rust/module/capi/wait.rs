// SPDX-License-Identifier: GPL-2.0

//! Wait sets, and the wait objects of counters and queues.

use core::ptr;

use kernel::{
    prelude::*,
    sync::Arc, //
};

use kfi_core::enums;

use super::{
    code,
    deadline,
    object::{
        fid_ops,
        impl_head,
        inner,
        of_class,
        store,
        Inner,
        Slot, //
    },
    raw::{
        self,
        kfi_ops_wait,
        kfi_wait_attr,
        kfid,
        kfid_fabric,
        kfid_wait, //
    }, //
};
use crate::{
    provider::{
        object,
        wait::{
            head::WaitHead,
            WaitObj,
            WaitSet, //
        }, //
    },
    shim::{
        errno::to_error,
        wait::WaitQueue, //
    }, //
};

/// The value behind a `struct kfid_wait`.
pub(super) struct OpenWaitSet(Arc<WaitSet>);

impl Inner for OpenWaitSet {
    fn close(&self) -> Result {
        object::close(&*self.0)
    }
}

// SAFETY: A C structure that begins with a `struct kfid`, of integers and pointers.
impl_head! {
    unsafe impl Head for kfid_wait {
        type Inner = OpenWaitSet;
        CLASS = raw::KFI_CLASS_WAIT;
        fid_ops = fid_ops::<kfid_wait>(Some(control));
    }
}

/// The wait object that a consumer asks for. Fails with `EINVAL` for an unknown one, or
/// `KFI_WAIT_SET` without a wait set of this provider; `ENOMEM`. Sleeps.
///
/// # Safety
///
/// `set` is null, or with `KFI_WAIT_SET` an open wait set of any provider.
pub(super) unsafe fn wait_obj(wait_obj: u32, set: *mut kfid_wait) -> Result<WaitObj> {
    match enums::WaitObj::try_from(wait_obj).map_err(to_error)? {
        // A consumer in the kernel has no descriptors.
        enums::WaitObj::Unspec | enums::WaitObj::Queue => Ok(WaitObj::Head(WaitHead::new()?)),
        enums::WaitObj::None => WaitObj::new(wait_obj, None),
        enums::WaitObj::Set => {
            // SAFETY: By the requirement above.
            let set = unsafe { of_class::<kfid_wait>(set.cast()) }?;
            WaitObj::new(wait_obj, Some(set.0.clone()))
        }
    }
}

/// KFI_GETWAIT: stores the address of a wait queue.
///
/// # Safety
///
/// `arg` is null, or a pointer can be written there.
pub(super) unsafe fn store_queue(queue: Result<&WaitQueue>, arg: *mut c_void) -> Result {
    let queue = queue?;
    if arg.is_null() {
        return Err(EINVAL);
    }
    // SAFETY: By the requirement above.
    unsafe { *arg.cast() = queue.as_ptr() };
    Ok(())
}

/// kfi_wait_open().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
pub(super) unsafe extern "C" fn open(
    fabric: *mut kfid_fabric,
    attr: *mut kfi_wait_attr,
    waitset: *mut *mut kfid_wait,
) -> c_int {
    let make = || {
        // SAFETY: By the interface, `fabric` is an open fabric of this module.
        let fabric = unsafe { inner(fabric) };
        if !attr.is_null() {
            // SAFETY: By the interface, `attr` is valid.
            let (wait_obj, flags) = unsafe { ((*attr).wait_obj, (*attr).flags) };
            if flags != 0 || !matches!(wait_obj, raw::KFI_WAIT_UNSPEC | raw::KFI_WAIT_QUEUE) {
                return Err(EINVAL);
            }
        }
        let slot = Slot::<kfid_wait>::new(&fabric.opener)?;
        let ident = fabric.opener.ident(slot.addr(), ptr::null_mut());
        let set = WaitSet::open(&fabric.fabric, ident)?;
        Ok(
            slot.fill(ptr::null_mut(), OpenWaitSet(set), |head: &mut kfid_wait| {
                head.ops = ptr::from_ref(&OPS).cast_mut();
            }),
        )
    };
    // SAFETY: By the interface, `waitset` can be written.
    unsafe { store(waitset, make()) }
}

/// kfi_wait().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn wait(waitset: *mut kfid_wait, timeout: c_int) -> c_int {
    // SAFETY: By the interface, `waitset` is an open wait set of this module.
    code(unsafe { inner(waitset) }.0.wait(deadline(timeout)))
}

/// kfi_control() with KFI_GETWAIT.
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn control(fid: *mut kfid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: By the interface, `fid` is an open object; this table is of wait sets.
    let set = unsafe { inner::<kfid_wait>(fid.cast()) };
    match u32::try_from(command) {
        // SAFETY: By the interface, `arg` points to room for a pointer.
        Ok(raw::KFI_GETWAIT) => code(unsafe { store_queue(Ok(set.0.queue()), arg) }),
        _ => ENOSYS.to_errno(),
    }
}

static OPS: kfi_ops_wait = kfi_ops_wait {
    size: size_of::<kfi_ops_wait>(),
    wait: Some(wait),
};
