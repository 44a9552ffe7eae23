// SPDX-License-Identifier: GPL-2.0

//! Address vector: the peers that operations can name.
//!
//! Insertions are complete when their call returns, also those of an AV with `KFI_EVENT`, which
//! report their results to the event queue that the AV is bound to.

use core::{
    ptr,
    slice, //
};

use kernel::{
    prelude::*,
    sync::Arc, //
};

use kfi_core::{
    addr::{
        SockAddr,
        AF_INET,
        AF_INET6,
        TEXT_MAX, //
    },
    av::Symmetric,
    enums::AvType,
    flags::{
        KFI_ADDR_NOTAVAIL,
        KFI_EVENT,
        KFI_MORE,
        KFI_SYNC_ERR, //
    },
    limits::MAX_AV,
    peer::RxCtxBits, //
};

use super::{
    code,
    info::{
        self,
        SOCKADDR_IN6_LEN,
        SOCKADDR_IN_LEN, //
    },
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
        kfi_addr_t,
        kfi_av_attr,
        kfi_ops,
        kfi_ops_av,
        kfid,
        kfid_av,
        kfid_domain,
        kfid_eq, //
    }, //
};
use crate::{
    provider::{
        av::{
            Av,
            AvAttr, //
        },
        object, //
    },
    shim::{
        errno::to_error,
        sched::cond_resched, //
    }, //
};

/// Addresses that are inserted between two calls of `cond_resched()`.
const STRIDE: usize = 256;

/// The value behind a `struct kfid_av`.
pub(super) struct OpenAv(pub(super) Arc<Av>);

impl Inner for OpenAv {
    fn close(&self) -> Result {
        object::close(&*self.0)
    }
}

// SAFETY: A C structure that begins with a `struct kfid`, of integers and pointers.
impl_head! {
    unsafe impl Head for kfid_av {
        type Inner = OpenAv;
        CLASS = raw::KFI_CLASS_AV;
        fid_ops = kfi_ops {
            bind: Some(bind),
            ..fid_ops::<kfid_av>(None)
        };
    }
}

/// The attributes of an AV. Fails with `ENOSYS` for a shared AV (`name`, `map_addr`), which does
/// not exist: consumers in the kernel can share the object itself; `EINVAL` for an attribute that
/// is not valid.
fn attributes(attr: Option<&kfi_av_attr>) -> Result<AvAttr> {
    let Some(attr) = attr else {
        return Ok(AvAttr {
            kind: AvType::try_from(0).map_err(to_error)?,
            count: 0,
            events: false,
            rx_ctx_bits: RxCtxBits::default(),
        });
    };
    if attr.flags & !KFI_EVENT != 0 || attr.count > MAX_AV as usize {
        return Err(EINVAL);
    }
    let rx_ctx_bits = u32::try_from(attr.rx_ctx_bits).map_err(|_| EINVAL)?;
    let rx_ctx_bits = RxCtxBits::new(rx_ctx_bits).map_err(to_error)?;
    let kind = AvType::try_from(attr.type_).map_err(to_error)?;
    let shared = !attr.name.is_null() || !attr.map_addr.is_null();
    if shared {
        return Err(ENOSYS);
    }
    Ok(AvAttr {
        kind,
        count: u32::try_from(attr.count)?,
        events: attr.flags & KFI_EVENT != 0,
        rx_ctx_bits,
    })
}

/// kfi_av_open().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
pub(super) unsafe extern "C" fn open(
    domain: *mut kfid_domain,
    attr: *mut kfi_av_attr,
    av: *mut *mut kfid_av,
    context: *mut c_void,
) -> c_int {
    let make = || {
        // SAFETY: By the interface, `domain` is an open domain of this module, and `attr` is null
        // or valid.
        let (domain, given) = unsafe { (inner(domain), attributes(attr.as_ref())?) };
        let slot = Slot::<kfid_av>::new(&domain.opener)?;
        let ident = domain.opener.ident(slot.addr(), context);
        let av = Av::open(&domain.domain, given, ident)?;
        // SAFETY: By the interface, `attr` is null or can be written.
        if let Some(attr) = unsafe { attr.as_mut() } {
            attr.type_ = av.kind().into();
        }
        Ok(slot.fill(context, OpenAv(av), |head: &mut kfid_av| {
            head.ops = ptr::from_ref(&OPS).cast_mut();
        }))
    };
    // SAFETY: By the interface, `av` can be written.
    unsafe { store(av, make()) }
}

/// kfi_av_bind(): the EQ of an AV with events.
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn bind(fid: *mut kfid, to: *mut kfid, flags: u64) -> c_int {
    if flags != 0 {
        return EINVAL.to_errno();
    }
    // SAFETY: By the interface, `fid` is an open object; this table is of AVs. `to` is null or an
    // open object.
    let (av, eq) = unsafe { (&inner::<kfid_av>(fid.cast()).0, of_class::<kfid_eq>(to)) };
    code(eq.and_then(|eq| av.bind_eq(&eq.eq)))
}

/// Checks the flags of an insertion, and returns whether it reports to the EQ. Fails with `EINVAL`
/// for flags other than `KFI_MORE` and `KFI_SYNC_ERR`, and for the latter without an array of
/// errors, or if the insertion reports to an EQ; `KFI_ENOEQ` if no EQ is bound.
fn check_flags(av: &Av, flags: u64, context: *mut c_void) -> Result<bool> {
    if flags & !(KFI_SYNC_ERR | KFI_MORE) != 0 {
        return Err(EINVAL);
    }
    let reports = av.reports()?;
    if flags & KFI_SYNC_ERR != 0 && (reports || context.is_null()) {
        return Err(EINVAL);
    }
    Ok(reports)
}

/// Bytes of an address. Fails with `EINVAL` for a family that the provider does not have.
///
/// # Safety
///
/// `addr` points to an address.
unsafe fn addr_len(addr: *const u8) -> Result<usize> {
    // SAFETY: By the requirement above; each address begins with its family.
    match unsafe { addr.cast::<u16>().read_unaligned() } {
        AF_INET => Ok(SOCKADDR_IN_LEN),
        AF_INET6 => Ok(SOCKADDR_IN6_LEN),
        _ => Err(EINVAL),
    }
}

/// An address. Fails with `EINVAL` if the provider cannot have it.
///
/// # Safety
///
/// `addr` is null, or points to an address.
pub(super) unsafe fn read_addr(addr: *const u8) -> Result<SockAddr> {
    if addr.is_null() {
        return Err(EINVAL);
    }
    // SAFETY: By the requirement above, the address has the length of its family.
    let addr = unsafe { info::sockaddr(addr.cast(), addr_len(addr)?) };
    addr.ok().flatten().ok_or(EINVAL)
}

/// Stores the result for the address with this index.
///
/// # Safety
///
/// `fi_addrs` is null or has room for it. With `KFI_SYNC_ERR`, so has `context`, of `int`.
unsafe fn put_result(
    result: Result<u64>,
    index: usize,
    fi_addrs: *mut kfi_addr_t,
    flags: u64,
    context: *mut c_void,
) {
    if !fi_addrs.is_null() {
        // SAFETY: By the requirement above.
        unsafe { *fi_addrs.add(index) = result.unwrap_or(KFI_ADDR_NOTAVAIL) };
    }
    if flags & KFI_SYNC_ERR != 0 {
        let errno = result
            .err()
            .map_or(0, |error| error.to_errno().wrapping_neg());
        // SAFETY: By the requirement above.
        unsafe { *context.cast::<c_int>().add(index) = errno };
    }
}

/// Inserts `count` addresses, which `next` returns in their order, and tells the results. Fails as
/// [`check_flags`], and with `EINVAL` for too many addresses, or if nobody learns the values of a
/// map; with the first error if none of several was inserted. Returns their number, 0 if an event
/// tells it.
///
/// # Safety
///
/// As for [`put_result`], for each of `count` results.
unsafe fn insert_all(
    av: &Av,
    count: usize,
    mut next: impl FnMut(usize) -> Result<SockAddr>,
    fi_addrs: *mut kfi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> Result<c_int> {
    let reports = check_flags(av, flags, context)?;
    let unnamed = count != 0 && fi_addrs.is_null() && av.kind() != AvType::Table;
    if unnamed || count > MAX_AV as usize {
        return Err(EINVAL);
    }
    // Whether there is memory for all reports is known before the first address is inserted.
    let room = if reports { count } else { 0 };
    let mut failed = KVVec::with_capacity(room, GFP_KERNEL_ACCOUNT)?;
    let mut inserted: c_int = 0;
    let mut first = Ok(());
    for index in 0..count {
        if index % STRIDE == STRIDE - 1 {
            cond_resched();
        }
        let result = next(index).and_then(|addr| av.insert(addr));
        // SAFETY: By the requirement above.
        unsafe { put_result(result, index, fi_addrs, flags, context) };
        match result {
            Ok(_) => inserted = inserted.saturating_add(1),
            Err(error) => {
                first = first.and(Err(error));
                // Without events there is no room, and the error is not reported.
                let _ = failed.push_within_capacity((index as u64, error));
            }
        }
    }
    match first {
        _ if reports => {
            let failed = failed.iter().copied();
            av.report(context.expose_provenance() as u64, inserted as u64, failed);
            Ok(0)
        }
        Err(error) if inserted == 0 => Err(error),
        _ => Ok(inserted),
    }
}

/// The result of a call of a consumer: a number, or the errno of an error.
fn number_or_code(result: Result<c_int>) -> c_int {
    result.unwrap_or_else(|error| error.to_errno())
}

/// kfi_av_insert().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn insert(
    av: *mut kfid_av,
    addrs: *const c_void,
    count: usize,
    fi_addrs: *mut kfi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: By the interface, `av` is an open AV of this module.
    let av = &unsafe { inner(av) }.0;
    let mut addr: *const u8 = addrs.cast();
    if addr.is_null() && count != 0 {
        return EINVAL.to_errno();
    }
    let next = |_: usize| {
        // SAFETY: By the interface there are `count` addresses, one behind the other. `addr` is the
        // next one, or an earlier one of an unknown family.
        let (next, len) = unsafe { (read_addr(addr), addr_len(addr)) };
        // The length of an unknown family is unknown, so it and those that follow all fail.
        addr = addr.wrapping_add(len.unwrap_or(0));
        next
    };
    // SAFETY: By the interface there is room for `count` results.
    number_or_code(unsafe { insert_all(av, count, next, fi_addrs, flags, context) })
}

/// kfi_av_insertsvc().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn insertsvc(
    av: *mut kfid_av,
    node: *const c_char,
    service: *const c_char,
    fi_addr: *mut kfi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: By the interface, `av` is an open AV of this module, and each text is null or has a
    // NUL.
    let (av, node, service) = unsafe { (&inner(av).0, info::bytes(node), info::bytes(service)) };
    let addr = SockAddr::parse(node, service).map_err(to_error);
    // SAFETY: By the interface there is room for one result.
    number_or_code(unsafe { insert_all(av, 1, |_| addr, fi_addr, flags, context) })
}

/// kfi_av_insertsym().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn insertsym(
    av: *mut kfid_av,
    node: *const c_char,
    nodecnt: usize,
    service: *const c_char,
    svccnt: usize,
    fi_addrs: *mut kfi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    let insert = || {
        // SAFETY: By the interface, `av` is an open AV of this module, and each text is null or has
        // a NUL.
        let (av, node, service) =
            unsafe { (&inner(av).0, info::bytes(node), info::bytes(service)) };
        let first = SockAddr::parse(node, service).map_err(to_error)?;
        let row = Symmetric::new(first, nodecnt, svccnt).map_err(to_error)?;
        let next =
            |index: usize| -> Result<SockAddr> { row.get(u32::try_from(index)?).ok_or(EINVAL) };
        // SAFETY: By the interface there is room for the results of all addresses.
        unsafe { insert_all(av, row.len(), next, fi_addrs, flags, context) }
    };
    number_or_code(insert())
}

/// kfi_av_remove().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn remove(
    av: *mut kfid_av,
    fi_addrs: *mut kfi_addr_t,
    count: usize,
    flags: u64,
) -> c_int {
    if flags != 0 || fi_addrs.is_null() || count == 0 || count > MAX_AV as usize {
        return EINVAL.to_errno();
    }
    // SAFETY: By the interface, `av` is an open AV of this module, and there are `count` addresses,
    // which do not change during the call.
    let (av, fi_addrs) = unsafe { (&inner(av).0, slice::from_raw_parts(fi_addrs, count)) };
    code(av.remove(fi_addrs))
}

/// kfi_av_lookup().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn lookup(
    av: *mut kfid_av,
    fi_addr: kfi_addr_t,
    addr: *mut c_void,
    len: *mut usize,
) -> c_int {
    // SAFETY: By the interface, `av` is an open AV of this module.
    let found = unsafe { inner(av) }.0.lookup(fi_addr);
    // SAFETY: By the interface, `len` and `addr` can be written.
    code(found.and_then(|found| unsafe { info::put_sockaddr(&found, addr, len) }))
}

/// kfi_av_straddr().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn straddr(
    _av: *mut kfid_av,
    addr: *const c_void,
    buf: *mut c_char,
    len: *mut usize,
) -> *const c_char {
    // An address that the provider cannot have gives an empty text.
    let mut words = [0; TEXT_MAX];
    // SAFETY: By the interface, `addr` is null or points to an address.
    if let Ok(addr) = unsafe { read_addr(addr.cast()) } {
        addr.straddr(&mut words);
    }
    let used = words.iter().take_while(|byte| **byte != 0).count();
    if len.is_null() {
        return buf;
    }
    // SAFETY: By the interface, `len` can be read and written.
    let room = unsafe { ptr::replace(len, used.saturating_add(1)) };
    if let Some(last) = room.checked_sub(1).filter(|_| !buf.is_null()) {
        let part = used.min(last);
        // SAFETY: By the interface there is room for `room` bytes: `part` and a NUL are not more.
        unsafe {
            ptr::copy_nonoverlapping(words.as_ptr().cast::<c_char>(), buf, part);
            *buf.add(part) = 0;
        }
    }
    buf
}

static OPS: kfi_ops_av = kfi_ops_av {
    size: size_of::<kfi_ops_av>(),
    insert: Some(insert),
    insertsvc: Some(insertsvc),
    insertsym: Some(insertsym),
    remove: Some(remove),
    lookup: Some(lookup),
    straddr: Some(straddr),
};
