// SPDX-License-Identifier: GPL-2.0

//! Domain: the objects on one link.

use core::ptr;

use kernel::{
    prelude::*,
    sync::Arc, //
};

use kfi_core::flags::{
    self,
    KFI_REG_MR, //
};

use super::{
    atomic,
    av,
    cntr,
    code,
    cq,
    ep,
    info::text,
    listed::Listed,
    mr,
    object::{
        bound_fid_ops,
        impl_head,
        inner,
        of_class,
        store,
        Inner,
        Slot, //
    },
    poll,
    raw::{
        self,
        kfi_info,
        kfi_ops_domain,
        kfid,
        kfid_domain,
        kfid_eq,
        kfid_fabric, //
    },
    sep,
    shared,
    work,
    Opener, //
};
use crate::{
    net::{
        self,
        LinkName, //
    },
    provider::{
        domain::{
            Domain,
            MrMode, //
        },
        object, //
    },
    shim::{
        bindings::KFABRIC_LINK_NAME_MAX,
        errno::to_error, //
    }, //
};

/// The value behind a `struct kfid_domain`.
pub(super) struct OpenDomain {
    pub(super) domain: Arc<Domain>,
    pub(super) opener: Opener,
    _listed: Listed,
}

impl Inner for OpenDomain {
    fn close(&self) -> Result {
        object::close(&*self.domain)
    }
}

// SAFETY: A C structure that begins with a `struct kfid`, of integers and pointers.
impl_head! {
    unsafe impl Head for kfid_domain {
        type Inner = OpenDomain;
        CLASS = raw::KFI_CLASS_DOMAIN;
        fid_ops = bound_fid_ops::<kfid_domain>(bind, control);
    }
}

/// The name of the link and the mr_mode that an entry has. Fails with `EINVAL` if the entry has no
/// attributes of a domain, an mr_mode that the provider does not have, or an authorization key,
/// which no domain has; `ENODEV` if its name is that of no link.
///
/// # Safety
///
/// `info` is null, or it and what it points to are valid.
unsafe fn attributes(info: *const kfi_info) -> Result<(LinkName, MrMode)> {
    const MODES: flags::MrMode = flags::MrMode::VIRT_ADDR.union(flags::MrMode::PROV_KEY);

    if info.is_null() {
        return Err(EINVAL);
    }
    // SAFETY: By the requirement above.
    let attr = unsafe { (*info).domain_attr };
    if attr.is_null() {
        return Err(EINVAL);
    }
    // SAFETY: By the requirement above.
    let (name, mode, key) =
        unsafe { (text((*attr).name)?, (*attr).mr_mode, (*attr).auth_key_size) };
    let mode = u32::try_from(mode).map_err(|_| EINVAL)?;
    let mode = flags::MrMode::from_bits(mode).map_err(to_error)?;
    if !MODES.contains(mode) || key != 0 {
        return Err(EINVAL);
    }
    let mut raw_name = [0; KFABRIC_LINK_NAME_MAX as usize];
    if name.as_bytes().len() >= raw_name.len() {
        return Err(ENODEV);
    }
    for (to, from) in raw_name.iter_mut().zip(name.as_bytes()) {
        *to = *from;
    }
    // No link has a name that is not valid.
    let name = LinkName::new(&raw_name).map_err(|_| ENODEV)?;
    let mode = MrMode {
        virt_addr: mode.contains(flags::MrMode::VIRT_ADDR),
        prov_key: mode.contains(flags::MrMode::PROV_KEY),
    };
    Ok((name, mode))
}

/// kfi_domain().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
pub(super) unsafe extern "C" fn open(
    fabric: *mut kfid_fabric,
    info: *mut kfi_info,
    domain: *mut *mut kfid_domain,
    context: *mut c_void,
) -> c_int {
    let make = || {
        // CAST: A usize has 64 bits.
        let fabric_addr = fabric.addr() as u64;
        // SAFETY: By the interface, the arguments are valid, and `fabric` is an open fabric of this
        // module, whose table has this function.
        let (fabric, (name, mode)) = unsafe { (inner(fabric), attributes(info)?) };
        let slot = Slot::<kfid_domain>::new(&fabric.opener)?;
        let netns = fabric.fabric.netns();
        let link = net::find(netns, &name)?.open()?;
        let listed = Listed::domain(slot.addr(), fabric_addr, netns, name)?;
        let opener = fabric.opener.clone();
        let ident = opener.ident(slot.addr(), context);
        let domain = Domain::open(&fabric.fabric, link, mode, ident)?;
        Ok(slot.fill(
            context,
            OpenDomain {
                domain,
                opener,
                _listed: listed,
            },
            |head: &mut kfid_domain| {
                head.ops = ptr::from_ref(&OPS).cast_mut();
                head.mr = ptr::from_ref(&mr::OPS).cast_mut();
            },
        ))
    };
    // SAFETY: By the interface, `domain` can be written.
    unsafe { store(domain, make()) }
}

/// kfi_domain_bind(), for arguments that are valid.
///
/// # Safety
///
/// `to` is null, or an open object of any class and any provider.
unsafe fn bind_to(domain: &Domain, to: *mut kfid, flags: u64) -> Result {
    let reg_mr = match flags {
        0 => false,
        KFI_REG_MR => true,
        _ => return Err(EINVAL),
    };
    // SAFETY: By the requirement above.
    domain.bind_eq(&unsafe { of_class::<kfid_eq>(to) }?.eq, reg_mr)
}

/// kfi_domain_bind().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn bind(fid: *mut kfid, to: *mut kfid, flags: u64) -> c_int {
    // SAFETY: By the interface, `fid` is an open object; this table is of domains. `to` is null or
    // an open object.
    code(unsafe { bind_to(&inner::<kfid_domain>(fid.cast()).domain, to, flags) })
}

/// kfi_control() of domains.
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn control(fid: *mut kfid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: By the interface, `fid` is an open object; this table is of domains. `arg` points to
    // what the command needs.
    unsafe {
        let domain = inner::<kfid_domain>(fid.cast());
        code(match u32::try_from(command) {
            Ok(raw::KFI_QUEUE_WORK) => work::queue(domain, arg.cast()),
            Ok(raw::KFI_CANCEL_WORK) => work::cancel(domain, arg.cast()),
            Ok(raw::KFI_FLUSH_WORK) => work::flush(domain, arg.cast()),
            _ => return mr::control_domain(fid, command, arg),
        })
    }
}

static OPS: kfi_ops_domain = kfi_ops_domain {
    size: size_of::<kfi_ops_domain>(),
    av_open: Some(av::open),
    cq_open: Some(cq::open),
    endpoint: Some(ep::open),
    scalable_ep: Some(sep::open),
    cntr_open: Some(cntr::open),
    poll_open: Some(poll::open),
    stx_ctx: Some(shared::open_stx),
    srx_ctx: Some(shared::open_srx),
    query_atomic: Some(atomic::query),
};
