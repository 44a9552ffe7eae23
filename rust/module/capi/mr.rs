// SPDX-License-Identifier: GPL-2.0

//! Memory regions: fi_mr(3).
//!
//! A region is usable when the call that registers it returns, also if the domain is bound to an EQ
//! with `KFI_REG_MR`; then the event follows at once. No domain has `KFI_MR_ENDPOINT`, so a region
//! serves all endpoints of its domain, and binding it to an endpoint only keeps that open.
//!
//! The region of a list of kernel addresses begins at the first of them for peers, with
//! `KFI_MR_VIRT_ADDR`. One of pages has no kernel addresses, and begins at 0 (`iova` of `struct
//! kfid_mr`).
//!
//! # Context
//!
//! All operations of this file need process context and may sleep.

use kernel::{
    bindings::{
        bio_vec,
        kvec,
        scatterlist, //
    },
    prelude::*,
    sync::Arc, //
};

use kfi_core::{
    errno::Errno,
    flags::{
        Access,
        CntrBind,
        KFI_RMA_EVENT, //
    }, //
};

use super::{
    buffers::{
        Elements,
        Local, //
    },
    code,
    object::{
        bound_fid_ops,
        impl_head,
        inner,
        of_class,
        Inner,
        Slot, //
    },
    raw::{
        self,
        kfi_mr_attr,
        kfi_mr_map_raw,
        kfi_mr_modify,
        kfi_mr_raw_attr,
        kfi_ops_mr,
        kfid,
        kfid_cntr,
        kfid_domain,
        kfid_ep,
        kfid_mr, //
    }, //
};
use crate::{
    mem::UserRange,
    provider::{
        ep::admit::Context,
        mr::{
            self,
            Mr, //
        },
        object, //
    },
    shim::errno::to_error, //
};

/// The value behind a `struct kfid_mr`.
pub(super) struct OpenMr(Arc<Mr>);

impl Inner for OpenMr {
    fn close(&self) -> Result {
        object::close(&*self.0)
    }
}

// SAFETY: A C structure that begins with a `struct kfid`, of integers and pointers.
impl_head! {
    unsafe impl Head for kfid_mr {
        type Inner = OpenMr;
        CLASS = raw::KFI_CLASS_MR;
        fid_ops = bound_fid_ops::<kfid_mr>(bind, control);
    }
}

/// Checks flags. Fails with `KFI_EBADFLAGS` for others than `allowed`.
fn only(flags: u64, allowed: u64) -> Result {
    match flags & !allowed {
        0 => Ok(()),
        _ => Err(to_error(Errno::KFI_EBADFLAGS)),
    }
}

/// Arguments of a registration besides its memory.
struct RegArgs {
    access: u64,
    offset: u64,
    requested_key: u64,
    flags: u64,
    context: *mut c_void,
}

/// Registers memory and stores the region for the consumer.
///
/// # Safety
///
/// `domain` is an open domain of this module; `to` can be written.
unsafe fn reg(
    domain: *mut kfid,
    local: Result<Local>,
    args: RegArgs,
    to: *mut *mut kfid_mr,
) -> c_int {
    let make = || {
        let access = Access::from_bits(args.access).map_err(to_error)?;
        only(args.flags, KFI_RMA_EVENT)?;
        if access.is_empty() || args.offset != 0 {
            return Err(EINVAL);
        }
        let local = local?;
        // SAFETY: By the requirement above.
        let domain = unsafe { inner::<kfid_domain>(domain.cast()) };
        let slot = Slot::<kfid_mr>::new(&domain.opener)?;
        let memory = local.memory(mr::pin_access(access), Context::MaySleep)?;
        let range = UserRange {
            addr: local.addr(),
            len: memory.len() as u64,
        };
        let mut ranges = KVec::with_capacity(1, GFP_KERNEL_ACCOUNT)?;
        ranges.push(range, GFP_KERNEL_ACCOUNT)?;
        let desc: *mut c_void = core::ptr::with_exposed_provenance_mut(slot.addr() as usize);
        let ident = domain.opener.ident(slot.addr(), args.context);
        let mr = Mr::reg(
            &domain.domain,
            memory,
            ranges,
            access,
            args.requested_key,
            ident,
        )?;
        let (key, iova) = (mr.key(), mr.iova());
        Ok(slot.fill(args.context, OpenMr(mr), |head: &mut kfid_mr| {
            head.mem_desc = desc;
            head.key = key;
            head.iova = iova;
        }))
    };
    match make() {
        Ok(made) => {
            // SAFETY: `made` is an open region of this module, which the consumer does not have
            // yet.
            let region = unsafe { inner(made) }.0.clone();
            // SAFETY: By the requirement above. The consumer has the region before the event that
            // names it.
            unsafe { *to = made };
            // The consumer may close the region as soon as there is the event.
            region.registered();
            0
        }
        Err(error) => code(Err(error)),
    }
}

/// kfi_mr_reg().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn reg_buf(
    domain: *mut kfid,
    buf: *const c_void,
    len: usize,
    access: u64,
    offset: u64,
    requested_key: u64,
    flags: u64,
    mr: *mut *mut kfid_mr,
    context: *mut c_void,
) -> c_int {
    let args = RegArgs {
        access,
        offset,
        requested_key,
        flags,
        context,
    };
    // SAFETY: By the interface, `domain` is an open domain of this module, the memory that of a
    // region, and `mr` can be written.
    unsafe { reg(domain, Ok(Local::buffer(buf, len)), args, mr) }
}

/// Defines a function that registers a list.
macro_rules! reg_list {
    ($( $(#[$doc:meta])* $name:ident($element:ty) $kind:ident; )*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            ///
            /// The requirements of the C interface: pointers are valid, and objects are open
            /// objects of this module.
            unsafe extern "C" fn $name(
                domain: *mut kfid,
                list: *const $element,
                count: usize,
                access: u64,
                offset: u64,
                requested_key: u64,
                flags: u64,
                mr: *mut *mut kfid_mr,
                context: *mut c_void,
            ) -> c_int {
                let args = RegArgs {
                    access,
                    offset,
                    requested_key,
                    flags,
                    context,
                };
                // SAFETY: By the interface, `domain` is an open domain of this module, the memory
                // that of a region, and `mr` can be written.
                unsafe { reg(domain, Local::list(Elements::$kind(list), count), args, mr) }
            }
        )*
    };
}

reg_list! {
    /// kfi_mr_regv().
    regv(kvec) Kvec;
    /// kfi_mr_regbv().
    regbv(bio_vec) Bvec;
    /// kfi_mr_regsgl().
    regsgl(scatterlist) Sgl;
}

/// The memory that attributes name. Fails with `EINVAL` for an unknown type, or elements without a
/// list.
///
/// # Safety
///
/// By the interface, the memory is that of a region.
unsafe fn local_of(attr: &kfi_mr_attr) -> Result<Local> {
    // SAFETY: By the requirement above. The list is the union's member that the type names, and all
    // members are pointers.
    unsafe { Local::of_msg(attr.type_, attr.__bindgen_anon_1.mr_iov, attr.iov_count) }
}

/// kfi_mr_regattr().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn regattr(
    domain: *mut kfid,
    attr: *const kfi_mr_attr,
    flags: u64,
    mr: *mut *mut kfid_mr,
) -> c_int {
    // SAFETY: By the interface, `attr` is null or valid.
    let Some(attr) = (unsafe { attr.as_ref() }) else {
        return code(Err(EINVAL));
    };
    // No domain has keys of this kind.
    if attr.auth_key_size != 0 {
        return code(Err(EINVAL));
    }
    let args = RegArgs {
        access: attr.access,
        offset: attr.offset,
        requested_key: attr.requested_key,
        flags,
        context: attr.context,
    };
    // SAFETY: By the interface, `domain` is an open domain of this module, the memory that of a
    // region, and `mr` can be written.
    unsafe { reg(domain, local_of(attr), args, mr) }
}

/// kfi_mr_bind(), for arguments that are valid.
///
/// # Safety
///
/// `to` is null, or an open object of any class and any provider.
unsafe fn bind_to(mr: &Mr, to: *mut kfid, flags: u64) -> Result {
    if to.is_null() {
        return Err(EINVAL);
    }
    // SAFETY: By the requirement above.
    match u32::try_from(unsafe { (*to).fclass })? {
        raw::KFI_CLASS_CNTR => {
            let remote = CntrBind::REMOTE_READ | CntrBind::REMOTE_WRITE;
            only(flags, remote.bits())?;
            let flags = CntrBind::from_bits(flags).map_err(to_error)?;
            // SAFETY: By the requirement above.
            let cntr = &unsafe { of_class::<kfid_cntr>(to) }?.cntr;
            let read = flags.contains(CntrBind::REMOTE_READ);
            mr.bind_cntr(cntr, read, flags.contains(CntrBind::REMOTE_WRITE))
        }
        raw::KFI_CLASS_EP | raw::KFI_CLASS_TX_CTX | raw::KFI_CLASS_RX_CTX => {
            only(flags, 0)?;
            // SAFETY: By the requirement above.
            mr.bind_ep(&unsafe { of_class::<kfid_ep>(to) }?.endpoint)
        }
        _ => Err(EINVAL),
    }
}

/// kfi_mr_bind().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn bind(fid: *mut kfid, to: *mut kfid, flags: u64) -> c_int {
    // SAFETY: By the interface, `fid` is an open object; this table is of memory regions. `to` is
    // null or an open object.
    code(unsafe { bind_to(&inner::<kfid_mr>(fid.cast()).0, to, flags) })
}

/// KFI_REFRESH. The module uses kernel addresses as they are mapped when an operation accesses
/// them, and holds references to pages, so there is nothing to be done.
///
/// # Safety
///
/// `arg` is null, or points to a `struct kfi_mr_modify` that is valid.
unsafe fn refresh(arg: *const kfi_mr_modify) -> Result {
    // SAFETY: By the requirement above, here and below.
    let arg = unsafe { arg.as_ref() }.ok_or(EINVAL)?;
    only(arg.flags, 0)?;
    // SAFETY: As above.
    unsafe { local_of(&arg.attr) }?;
    Ok(())
}

/// KFI_GET_RAW_MR: stores the key as 8 bytes.
///
/// # Safety
///
/// `arg` is null, or points to a `struct kfi_mr_raw_attr` that is valid.
unsafe fn raw_attr(mr: &Mr, arg: *const kfi_mr_raw_attr) -> Result {
    // SAFETY: By the requirement above, here and below.
    let arg = unsafe { arg.as_ref() }.ok_or(EINVAL)?;
    only(arg.flags, 0)?;
    if arg.base_addr.is_null() || arg.key_size.is_null() {
        return Err(EINVAL);
    }
    let key = mr.key().to_ne_bytes();
    // SAFETY: As above.
    let room = unsafe { core::ptr::replace(arg.key_size, key.len()) };
    if room < key.len() {
        return Err(to_error(Errno::KFI_ETOOSMALL));
    }
    if arg.raw_key.is_null() {
        return Err(EINVAL);
    }
    // SAFETY: As above; there is room for the key.
    unsafe {
        *arg.base_addr = mr.iova();
        core::ptr::copy_nonoverlapping(key.as_ptr(), arg.raw_key, key.len());
    }
    Ok(())
}

/// kfi_mr_enable(), kfi_mr_refresh(), kfi_mr_raw_attr().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn control(fid: *mut kfid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: By the interface, `fid` is an open object; this table is of memory regions.
    let mr = &unsafe { inner::<kfid_mr>(fid.cast()) }.0;
    let result = match u32::try_from(command) {
        // It is since its registration.
        Ok(raw::KFI_ENABLE) => Ok(()),
        // SAFETY: By the interface, `arg` points to a `struct kfi_mr_modify`.
        Ok(raw::KFI_REFRESH) => unsafe { refresh(arg.cast()) },
        // SAFETY: By the interface, `arg` points to a `struct kfi_mr_raw_attr`.
        Ok(raw::KFI_GET_RAW_MR) => unsafe { raw_attr(mr, arg.cast()) },
        _ => Err(ENOSYS),
    };
    code(result)
}

/// KFI_MAP_RAW_MR: the key for operations of one that KFI_GET_RAW_MR has stored.
///
/// # Safety
///
/// `arg` is null, or points to a `struct kfi_mr_map_raw` that is valid.
unsafe fn map_raw(arg: *const kfi_mr_map_raw) -> Result {
    // SAFETY: By the requirement above, here and below.
    let arg = unsafe { arg.as_ref() }.ok_or(EINVAL)?;
    let mut key = [0; size_of::<u64>()];
    only(arg.flags, 0)?;
    if arg.raw_key.is_null() || arg.key.is_null() || arg.key_size != key.len() {
        return Err(EINVAL);
    }
    // SAFETY: As above; the key has this size.
    unsafe {
        core::ptr::copy_nonoverlapping(arg.raw_key, key.as_mut_ptr(), key.len());
        *arg.key = u64::from_ne_bytes(key);
    }
    Ok(())
}

/// kfi_mr_map_raw(), kfi_mr_unmap_key(): the commands of domains.
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
pub(super) unsafe extern "C" fn control_domain(
    _domain: *mut kfid,
    command: c_int,
    arg: *mut c_void,
) -> c_int {
    let result = match u32::try_from(command) {
        // SAFETY: By the interface, `arg` points to a `struct kfi_mr_map_raw`.
        Ok(raw::KFI_MAP_RAW_MR) => unsafe { map_raw(arg.cast()) },
        // Nothing is kept for a key.
        Ok(raw::KFI_UNMAP_KEY) if !arg.is_null() => Ok(()),
        Ok(raw::KFI_UNMAP_KEY) => Err(EINVAL),
        _ => Err(ENOSYS),
    };
    code(result)
}

/// The operations of fi_mr(3) that a domain has.
pub(super) static OPS: kfi_ops_mr = kfi_ops_mr {
    size: size_of::<kfi_ops_mr>(),
    reg: Some(reg_buf),
    regv: Some(regv),
    regbv: Some(regbv),
    regattr: Some(regattr),
    regsgl: Some(regsgl),
};
