// SPDX-License-Identifier: GPL-2.0

//! Poll set: which of several counters and completion queues have something to read.

use core::ptr;

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    code,
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
        kfi_ops_poll,
        kfi_poll_attr,
        kfid,
        kfid_cntr,
        kfid_cq,
        kfid_domain,
        kfid_poll, //
    }, //
};
use crate::provider::{
    cntr::Cntr,
    cq::Cq,
    poll::PollSet, //
};

/// The value behind a `struct kfid_poll`.
pub(super) struct OpenPollSet(Arc<PollSet>);

impl Inner for OpenPollSet {
    fn close(&self) -> Result {
        self.0.close_empty()
    }
}

// SAFETY: A C structure that begins with a `struct kfid`, of integers and pointers.
impl_head! {
    unsafe impl Head for kfid_poll {
        type Inner = OpenPollSet;
        CLASS = raw::KFI_CLASS_POLL;
        fid_ops = fid_ops::<kfid_poll>(None);
    }
}

/// kfi_poll_open().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
pub(super) unsafe extern "C" fn open(
    domain: *mut kfid_domain,
    attr: *mut kfi_poll_attr,
    pollset: *mut *mut kfid_poll,
) -> c_int {
    let make = || {
        // SAFETY: By the interface, `domain` is an open domain of this module.
        let domain = unsafe { inner(domain) };
        // SAFETY: By the interface, `attr` is valid if it is not null.
        if !attr.is_null() && unsafe { (*attr).flags } != 0 {
            return Err(EINVAL);
        }
        let slot = Slot::<kfid_poll>::new(&domain.opener)?;
        let ident = domain.opener.ident(slot.addr(), ptr::null_mut());
        let set = PollSet::open(&domain.domain, ident)?;
        Ok(
            slot.fill(ptr::null_mut(), OpenPollSet(set), |head: &mut kfid_poll| {
                head.ops = ptr::from_ref(&OPS).cast_mut();
            }),
        )
    };
    // SAFETY: By the interface, `pollset` can be written.
    unsafe { store(pollset, make()) }
}

/// kfi_poll().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn poll(
    pollset: *mut kfid_poll,
    contexts: *mut *mut c_void,
    count: c_int,
) -> c_int {
    // SAFETY: By the interface, `pollset` is an open poll set of this module, here and below.
    let set = unsafe { inner(pollset) };
    let room = match usize::try_from(count) {
        Ok(room) if room != 0 && !contexts.is_null() => room,
        _ => return EINVAL.to_errno(),
    };
    let sink = |index: usize, context: u64| {
        let context = ptr::with_exposed_provenance_mut(context as usize);
        // SAFETY: By the interface, there is room for `count` contexts, and `index` is below that.
        unsafe { *contexts.add(index) = context };
        Ok(())
    };
    // The number is at most `count`.
    match set.0.poll(room, sink, |_| Ok(())) {
        Ok(found) => c_int::try_from(found).unwrap_or(count),
        Err(error) => code(Err(error)),
    }
}

/// A member of a poll set.
enum Member<'a> {
    Cntr(&'a Arc<Cntr>),
    Cq(&'a Arc<Cq>),
}

/// kfi_poll_add(), kfi_poll_del(): calls `change` with the set and a member.
///
/// # Safety
///
/// `pollset` is an open poll set of this module; `fid` is null or an open object.
unsafe fn change(
    pollset: *mut kfid_poll,
    fid: *mut kfid,
    flags: u64,
    change: impl FnOnce(&PollSet, Member<'_>) -> Result,
) -> c_int {
    if flags != 0 {
        return EINVAL.to_errno();
    }
    // SAFETY: By the requirements above.
    let (set, cntr, cq) = unsafe {
        (
            &inner(pollset).0,
            of_class::<kfid_cntr>(fid),
            of_class::<kfid_cq>(fid),
        )
    };
    code(match (cntr, cq) {
        (Ok(cntr), _) => change(set, Member::Cntr(&cntr.cntr)),
        (_, Ok(cq)) => change(set, Member::Cq(&cq.cq)),
        (Err(error), _) => Err(error),
    })
}

/// kfi_poll_add().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn poll_add(pollset: *mut kfid_poll, fid: *mut kfid, flags: u64) -> c_int {
    // SAFETY: By the interface, see `poll`.
    unsafe {
        change(pollset, fid, flags, |set, member| match member {
            Member::Cntr(cntr) => set.add_cntr(cntr),
            Member::Cq(cq) => set.add_cq(cq),
        })
    }
}

/// kfi_poll_del().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn poll_del(pollset: *mut kfid_poll, fid: *mut kfid, flags: u64) -> c_int {
    // SAFETY: By the interface, see `poll`.
    unsafe {
        change(pollset, fid, flags, |set, member| match member {
            Member::Cntr(cntr) => set.remove_cntr(cntr),
            Member::Cq(cq) => set.remove_cq(cq),
        })
    }
}

static OPS: kfi_ops_poll = kfi_ops_poll {
    size: size_of::<kfi_ops_poll>(),
    poll: Some(poll),
    poll_add: Some(poll_add),
    poll_del: Some(poll_del),
};
