// SPDX-License-Identifier: GPL-2.0

//! Passive endpoints and the requests for connections: fi_endpoint(3), fi_cm(3). All operations need
//! process context and may sleep.
//!
//! # Requests
//!
//! An event KFI_CONNREQ gives the consumer an entry, whose handle stands for the request. The handle
//! is one of the [`Handle`]s of the passive endpoint, which has one for each request that can wait.
//! It is made when the event is read, and stands for its request until that is accepted or rejected,
//! or the passive endpoint is closed. It need not be closed.
//!
//! An event may still be in the queue when its passive endpoint is closed. So the reader of events
//! looks for the passive endpoint in [`OPEN`]; if it is not there, the event comes without an entry.

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
    errno::Errno,
    info::{
        Info,
        KernelAttr,
        Name,
        Request, //
    },
    limits::MAX_REJECT_DATA, //
};

use super::{
    absent::not_there,
    cm::private,
    code,
    ep::{
        option,
        put_option, //
    },
    info::{
        hints,
        put_sockaddr,
        sockaddr,
        Entries, //
    },
    object::{
        bound_fid_ops,
        fid_ops,
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
        kfid_ep,
        kfid_eq,
        kfid_fabric,
        kfid_mc,
        kfid_pep,
        kfid_t, //
    }, //
};
use crate::{
    mem::Allowance,
    net::LinkName,
    provider::{
        ep::options::{
            Opt,
            CM_DATA_SIZE, //
        },
        fabric::Fabric,
        object,
        pep::{
            Pep,
            PepAttr, //
        }, //
    },
    registry,
    shim::errno::to_error, //
};

kernel::sync::global_lock! {
    // SAFETY: `init` initialises it before the module's init function returns, and nothing can open
    // a passive endpoint before.
    /// The addresses of the passive endpoints that are open.
    unsafe(uninit) static OPEN: Mutex<KVVec<usize>> = KVVec::new();
}

/// Initialises [`OPEN`].
///
/// # Safety
///
/// Must be called once, before the module's init function returns.
pub(super) unsafe fn init() {
    // SAFETY: By the requirement above.
    unsafe { OPEN.init() };
}

/// Frees the memory of [`OPEN`]. No passive endpoint is open.
pub(super) fn exit() {
    let list = core::mem::replace(&mut *OPEN.lock(), KVVec::new());
    drop(list);
}

/// The value behind a `struct kfid_pep`.
pub(super) struct OpenPep {
    pep: Arc<Pep>,
    /// The address of its object.
    addr: usize,
    /// Those of the requests, by [`Pep::slot_of`].
    handles: KVVec<Handle>,
    _memory: Allowance,
}

impl Inner for OpenPep {
    fn close(&self) -> Result {
        object::close(&*self.pep)?;
        // The memory is freed afterwards.
        OPEN.lock().retain(|addr| *addr != self.addr);
        Ok(())
    }
}

static FID_OPS: kfi_ops = bound_fid_ops::<kfid_pep>(bind, control);

// SAFETY: A C structure that begins with a `struct kfid`, of integers and pointers. The table is
// used for passive endpoints only.
unsafe impl Head for kfid_pep {
    type Inner = OpenPep;

    const CLASS: u32 = raw::KFI_CLASS_PEP;

    fn fid_ops() -> &'static kfi_ops {
        &FID_OPS
    }
}

/// What the handle of an entry points to.
#[repr(C)]
struct Handle {
    fid: kfid,
    /// The passive endpoint that it belongs to.
    pep: *mut kfid_pep,
    /// The number of the request.
    number: Atomic<u32>,
}

// SAFETY: Only `number` changes, which is atomic, and pointers are used by the rules of the
// interface.
unsafe impl Send for Handle {}
// SAFETY: As above.
unsafe impl Sync for Handle {}

static HANDLE_OPS: kfi_ops = kfi_ops {
    close: Some(close_handle),
    ..fid_ops::<kfid_pep>(None)
};

not_there! {
    close_handle(*mut kfid);
}

/// A request for a connection.
pub(super) struct ConnReq {
    pub(super) pep: Arc<Pep>,
    pub(super) number: u32,
}

impl ConnReq {
    /// The request that a handle stands for. Fails with `EINVAL` for another object.
    ///
    /// # Safety
    ///
    /// `handle` is an open object of any class and any provider, or a handle of an open passive
    /// endpoint.
    pub(super) unsafe fn of(handle: *mut kfid) -> Result<Self> {
        if handle.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: By the requirement above. Its head does not change.
        let (class, ops) = unsafe { ((*handle).fclass, (*handle).ops) };
        if class != raw::KFI_CLASS_CONNREQ as usize || !ptr::eq(ops, &HANDLE_OPS) {
            return Err(EINVAL);
        }
        // SAFETY: The table is used for handles only, and by the requirement above, the passive
        // endpoint is open.
        unsafe {
            let handle = &*handle.cast::<Handle>();
            Ok(Self {
                pep: inner(handle.pep).pep.clone(),
                number: handle.number.load(Relaxed),
            })
        }
    }
}

/// What an event tells of a request.
pub(super) struct Asked {
    /// The address of the passive endpoint.
    pub(super) pep: usize,
    pub(super) number: u32,
    pub(super) local: SockAddr,
    pub(super) peer: SockAddr,
    pub(super) link: LinkName,
}

/// The entry for an endpoint that accepts a request; null if the passive endpoint was closed, or
/// the link was removed. Fails with `ENOMEM`. Sleeps.
pub(super) fn entry(fabric: &Fabric, asked: &Asked) -> Result<*mut kfi_info> {
    let mut wanted = KBox::new(Info::ANY, GFP_KERNEL)?;
    wanted.ep.ep_type = EpType::Msg.into();
    wanted.src_addr = Some(asked.local.with_port(0));
    wanted.dest_addr = Some(asked.peer);
    wanted.domain.name = Name::new(asked.link.as_bytes()).unwrap_or(Name::EMPTY);
    let mut entries = Entries::new();
    let found =
        registry::getinfo(
            fabric.netns(),
            &Request::ANY,
            &wanted,
            |info| match KernelAttr::default().negotiate(registry::kind_of(info), 0) {
                Ok(more) if entries.is_empty() => entries.add_info(info, &more),
                _ => Ok(()),
            },
        );
    match found {
        Err(error) if error == ENODATA => return Ok(ptr::null_mut()),
        found => found?,
    }
    let open = OPEN.lock();
    if !open.contains(&asked.pep) {
        return Ok(ptr::null_mut());
    }
    // SAFETY: It is open, and its close waits for the lock.
    let pep = unsafe { inner::<kfid_pep>(ptr::with_exposed_provenance_mut(asked.pep)) };
    let slot = pep.pep.slot_of(asked.number);
    let handle = pep.handles.get(slot).ok_or(EINVAL)?;
    handle.number.store(asked.number, Relaxed);
    let entry = entries.into_raw();
    // SAFETY: The entry was just made.
    unsafe { (*entry).handle = ptr::from_ref(handle).cast_mut().cast() };
    Ok(entry)
}

/// The handles of a passive endpoint at `addr`. Fails with `ENOMEM`. Sleeps.
fn handles(pep: &Pep, addr: usize) -> Result<KVVec<Handle>> {
    let count = pep.backlog() as usize;
    let mut handles = KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?;
    for _ in 0..count {
        let fid = kfid {
            fclass: raw::KFI_CLASS_CONNREQ as usize,
            ops: ptr::from_ref(&HANDLE_OPS).cast_mut(),
            ..kfid::default()
        };
        let handle = Handle {
            fid,
            pep: ptr::with_exposed_provenance_mut(addr),
            number: Atomic::new(0),
        };
        handles.push(handle, GFP_KERNEL_ACCOUNT)?;
    }
    Ok(handles)
}

/// kfi_passive_ep().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
pub(super) unsafe extern "C" fn open(
    fabric: *mut kfid_fabric,
    info: *mut kfi_info,
    pep: *mut *mut kfid_pep,
    context: *mut c_void,
) -> c_int {
    let make = || {
        if info.is_null() {
            return Err(EINVAL);
        }
        let not_valid = |error| if error == ENODATA { EINVAL } else { error };
        // SAFETY: By the interface, `fabric` is an open fabric of this module, and `info` an entry.
        let (fabric, entry) = unsafe { (inner(fabric), hints(info).map_err(not_valid)?) };
        let (info, _) = &*entry;
        if info.ep.ep_type != u32::from(EpType::Msg) {
            return Err(EINVAL);
        }
        let attr = PepAttr {
            addr: info.src_addr.ok_or(EINVAL)?,
            backlog: 0,
        };
        let slot = Slot::<kfid_pep>::new(&fabric.opener)?;
        let addr = slot.addr() as usize;
        let ident = fabric.opener.ident(slot.addr(), context);
        let budget = ident.budget.clone();
        let pep = Pep::open(&fabric.fabric, attr, ident)?;
        let made = handles(&pep, addr).and_then(|handles| {
            let memory = budget.take_for::<OpenPep>(handles.capacity() * size_of::<Handle>())?;
            OPEN.lock().push(addr, GFP_KERNEL)?;
            Ok((handles, memory))
        });
        let (handles, memory) = made.inspect_err(|_| object::force_close(&*pep))?;
        let inner = OpenPep {
            pep,
            addr,
            handles,
            _memory: memory,
        };
        Ok(slot.fill(context, inner, |head: &mut kfid_pep| {
            head.ops = ptr::from_ref(&OPS).cast_mut();
            head.cm = ptr::from_ref(&CM_OPS).cast_mut();
        }))
    };
    // SAFETY: By the interface, `pep` can be written.
    unsafe { store(pep, make()) }
}

/// kfi_pep_bind().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn bind(fid: *mut kfid, to: *mut kfid, flags: u64) -> c_int {
    if flags != 0 {
        return EINVAL.to_errno();
    }
    // SAFETY: By the interface, `fid` is an open passive endpoint of this module, and `to` null or
    // an open object.
    let bound = unsafe {
        of_class::<kfid_eq>(to).and_then(|eq| inner::<kfid_pep>(fid.cast()).pep.bind_eq(&eq.eq))
    };
    code(bound)
}

/// kfi_setname().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn setname(fid: kfid_t, addr: *mut c_void, len: usize) -> c_int {
    let set = || {
        // SAFETY: By the interface, `fid` is an open passive endpoint of this module, and there are
        // `len` bytes.
        let (pep, addr) = unsafe { (inner::<kfid_pep>(fid.cast()), sockaddr(addr, len)) };
        pep.pep.set_name(addr.map_err(|_| EINVAL)?.ok_or(EINVAL)?)
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
    // SAFETY: By the interface, `fid` is an open passive endpoint of this module, and `len` and
    // `addr` can be written.
    code(unsafe { put_sockaddr(&inner::<kfid_pep>(fid.cast()).pep.name(), addr, len) })
}

/// kfi_getopt(): a passive endpoint has KFI_OPT_CM_DATA_SIZE.
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn getopt(
    _pep: *mut kfid,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut usize,
) -> c_int {
    let get = || match option(level, name)? {
        // SAFETY: By the interface, the value and its length can be written.
        Opt::CmDataSize => unsafe { put_option(CM_DATA_SIZE, value, len) },
        _ => Err(to_error(Errno::ENOPROTOOPT)),
    };
    code(get())
}

/// kfi_setopt(): a passive endpoint has no option that can be set.
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn setopt(
    _pep: *mut kfid,
    _level: c_int,
    _name: c_int,
    _value: *const c_void,
    _len: usize,
) -> c_int {
    to_error(Errno::ENOPROTOOPT).to_errno()
}

/// kfi_listen().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn listen(pep: *mut kfid_pep) -> c_int {
    // SAFETY: By the interface, `pep` is an open passive endpoint of this module.
    code(unsafe { inner(pep) }.pep.listen())
}

/// kfi_reject().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn reject(
    pep: *mut kfid_pep,
    handle: kfid_t,
    param: *const c_void,
    len: usize,
) -> c_int {
    let reject = || {
        // SAFETY: By the interface, `pep` is an open passive endpoint of this module, `handle` is of
        // an entry, and there are `len` bytes.
        let (pep, request, private) = unsafe {
            (
                &inner(pep).pep,
                ConnReq::of(handle)?,
                private(param, len, MAX_REJECT_DATA)?,
            )
        };
        if !Arc::ptr_eq(pep, &request.pep) {
            return Err(EINVAL);
        }
        pep.reject(request.number, private)
    };
    code(reject())
}

not_there! {
    control(*mut kfid, c_int, *mut c_void);
    cancel(*mut kfid, *mut c_void) -> isize;
    tx_ctx(*mut kfid_ep, c_int, *mut kfi_tx_attr, *mut *mut kfid_ep, *mut c_void);
    rx_ctx(*mut kfid_ep, c_int, *mut kfi_rx_attr, *mut *mut kfid_ep, *mut c_void);
    getpeer(*mut kfid_ep, *mut c_void, *mut usize);
    connect(*mut kfid_ep, *const c_void, *const c_void, usize);
    accept(*mut kfid_ep, *const c_void, usize);
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
