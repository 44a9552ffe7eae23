// SPDX-License-Identifier: GPL-2.0

//! Passive endpoints and the requests for connections: fi_endpoint(3), fi_cm(3). All operations
//! need process context and may sleep.
//!
//! # Requests
//!
//! An event KFI_CONNREQ gives the consumer an entry, whose handle stands for the request. The
//! handle ([`kfabric_capi_connreq`]) is in the memory of the entry. It is made when the event is
//! read, need not be closed, and stands for no other request, also when this one was accepted or
//! rejected, or its passive endpoint was closed: it has their serial numbers, which are not used
//! again.
//!
//! An event names the passive endpoint by its serial number, as the handle does, and the reader
//! looks for that in [`OPEN`]. A close removes the events of its passive endpoint before it takes
//! that out of the list.

use core::ptr;

use kernel::{
    prelude::*,
    sync::Arc, //
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
    limits::{
        MAX_BACKLOG,
        MAX_REJECT_DATA, //
    }, //
};

use super::{
    absent,
    cm::private,
    code,
    info::{
        hints,
        Entries, //
    },
    listed::OpenObjects,
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
        getname,
        getopt,
        setname,
        setopt,
        HasName,
        HasOptions, //
    },
    raw::{
        self,
        kfabric_capi_connreq,
        kfi_info,
        kfi_ops,
        kfi_ops_cm,
        kfi_ops_ep,
        kfid,
        kfid_eq,
        kfid_fabric,
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
            PepAttr,
            RequestId, //
        }, //
    },
    registry,
    shim::errno::to_error, //
};

kernel::sync::global_lock! {
    // SAFETY: `init` initialises it before the module's init function returns, and nothing can open
    // a passive endpoint before.
    /// The passive endpoints that are open.
    unsafe(uninit) static OPEN: Mutex<KVVec<Listed>> = KVVec::new();
}

/// A passive endpoint that is open.
struct Listed {
    /// Its serial number.
    serial: u64,
    /// The address of its object.
    addr: usize,
    pep: Arc<Pep>,
}

/// Calls `with` with an open passive endpoint and the address of its object; `None` if it is
/// closed. Its close waits meanwhile. Sleeps.
fn open_with<T>(serial: u64, with: impl FnOnce(&Arc<Pep>, usize) -> T) -> Option<T> {
    let open = OPEN.lock();
    let listed = open.iter().find(|listed| listed.serial == serial)?;
    Some(with(&listed.pep, listed.addr))
}

/// The address of the object of an open passive endpoint. A closed one, which has no events, gives
/// 0. Sleeps.
pub(super) fn address(serial: u64) -> usize {
    open_with(serial, |_, addr| addr).unwrap_or(0)
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
    _memory: Allowance,
}

impl Inner for OpenPep {
    fn close(&self) -> Result {
        object::close(&*self.pep)?;
        // The memory is freed afterwards.
        let mut open = OPEN.lock();
        let index = open.iter().position(|it| it.serial == self.pep.serial());
        let listed = index.and_then(|index| open.remove(index).ok());
        drop(open);
        drop(listed);
        Ok(())
    }
}

impl HasName for OpenPep {
    fn name(&self) -> Result<SockAddr> {
        Ok(self.pep.name())
    }

    fn set_name(&self, addr: SockAddr) -> Result {
        self.pep.set_name(addr)
    }
}

/// KFI_OPT_CM_DATA_SIZE, which cannot be set.
impl HasOptions for OpenPep {
    fn opt(&self, opt: Opt) -> Result<u64> {
        match opt {
            Opt::CmDataSize => Ok(CM_DATA_SIZE),
            _ => Err(to_error(Errno::ENOPROTOOPT)),
        }
    }

    fn set_opt(&self, _opt: Opt, _value: u64) -> Result {
        Err(to_error(Errno::ENOPROTOOPT))
    }
}

// SAFETY: A C structure that begins with a `struct kfid`, of integers and pointers.
impl_head! {
    unsafe impl Head for kfid_pep {
        type Inner = OpenPep;
        CLASS = raw::KFI_CLASS_PEP;
        fid_ops = bound_fid_ops::<kfid_pep>(bind, control);
    }
}

/// The operations of the handle of a request. Its address differs from that of [`absent::FID`], so
/// [`kfabric_capi_is_connreq`] recognises a handle by it.
static HANDLE_OPS: kfi_ops = absent::FID;

/// A request for a connection.
pub(super) struct ConnReq {
    pub(super) pep: Arc<Pep>,
    pub(super) id: RequestId,
}

impl ConnReq {
    /// The request that a handle stands for, or did before its answer. Fails with `EINVAL` for
    /// another object, `ENOENT` if the passive endpoint is closed. Sleeps.
    ///
    /// # Safety
    ///
    /// `handle` is null, an open object of any class and any provider, or the handle of an entry.
    pub(super) unsafe fn of(handle: *mut kfid) -> Result<Self> {
        // SAFETY: By the requirement above.
        if handle.is_null() || !unsafe { kfabric_capi_is_connreq(handle) } {
            return Err(EINVAL);
        }
        // SAFETY: It is the handle of an entry, which does not change.
        let handle = unsafe { &*handle.cast::<kfabric_capi_connreq>() };
        let id = RequestId {
            number: handle.number,
            serial: Some(handle.serial),
        };
        let pep = open_with(handle.pep, |pep, _| pep.clone()).ok_or(ENOENT)?;
        Ok(Self { pep, id })
    }
}

/// Whether an object is the handle of a request.
///
/// # Safety
///
/// `fid` is an object of any class and any provider, or the handle of an entry.
#[no_mangle]
unsafe extern "C" fn kfabric_capi_is_connreq(fid: *const kfid) -> bool {
    // SAFETY: By the requirement above. Its head does not change.
    let (class, ops) = unsafe { ((*fid).fclass, (*fid).ops) };
    class == raw::KFI_CLASS_CONNREQ as usize && ptr::eq(ops, &HANDLE_OPS)
}

/// What an event tells of a request.
pub(super) struct Asked {
    /// The serial number of the passive endpoint.
    pub(super) pep: u64,
    pub(super) number: u32,
    pub(super) local: SockAddr,
    pub(super) peer: SockAddr,
    pub(super) link: LinkName,
}

/// The entry for an endpoint that accepts a request; null if the request has ended, or the link was
/// removed. Fails with `ENOMEM`. Sleeps.
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
                Ok(more) if entries.is_empty() => entries.add_info(info, &more, &OpenObjects::NONE),
                _ => Ok(()),
            },
        );
    match found {
        Err(error) if error == ENODATA => return Ok(ptr::null_mut()),
        found => found?,
    }
    // The request waits until the consumer uses the handle that this reader gives it.
    let request = open_with(asked.pep, |pep, _| pep.request(asked.number)).flatten();
    let Some(request) = request else {
        return Ok(ptr::null_mut());
    };
    entries.add_connreq(&kfabric_capi_connreq {
        fid: kfid {
            fclass: raw::KFI_CLASS_CONNREQ as usize,
            ops: ptr::from_ref(&HANDLE_OPS).cast_mut(),
            ..kfid::default()
        },
        pep: asked.pep,
        serial: request.serial.unwrap_or(0),
        number: request.number,
    })?;
    Ok(entries.into_raw())
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
        let (fabric, (entry, _)) = unsafe { (inner(fabric), hints(info).map_err(not_valid)?) };
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
        let made = budget.take_for::<OpenPep>(0).and_then(|memory| {
            let listed = Listed {
                serial: pep.serial(),
                addr,
                pep: pep.clone(),
            };
            OPEN.lock().push(listed, GFP_KERNEL)?;
            Ok(memory)
        });
        let memory = made.inspect_err(|_| object::force_close(&*pep))?;
        let inner = OpenPep {
            pep,
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
        // SAFETY: By the interface, `pep` is an open passive endpoint of this module, `handle` is
        // of an entry, and there are `len` bytes.
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
        pep.reject(request.id, private)
    };
    code(reject())
}

/// kfi_control() with KFI_BACKLOG.
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn control(fid: *mut kfid, command: c_int, arg: *mut c_void) -> c_int {
    if command != raw::KFI_BACKLOG as c_int {
        return ENOSYS.to_errno();
    }
    let set = || {
        // SAFETY: By the interface, `fid` is an open passive endpoint of this module, and `arg` is
        // null or points to an `int`.
        let (pep, count) = unsafe {
            (
                inner::<kfid_pep>(fid.cast()),
                arg.cast::<c_int>().as_ref().ok_or(EINVAL)?,
            )
        };
        // The provider refuses a backlog of 0, so a negative one becomes that.
        let count = u32::try_from(*count)
            .unwrap_or(0)
            .min(MAX_BACKLOG.saturating_add(1));
        pep.pep.set_backlog(count)
    };
    code(set())
}

static OPS: kfi_ops_ep = kfi_ops_ep {
    getopt: Some(getopt::<kfid_pep>),
    setopt: Some(setopt::<kfid_pep>),
    ..absent::EP
};

static CM_OPS: kfi_ops_cm = kfi_ops_cm {
    setname: Some(setname::<kfid_pep>),
    getname: Some(getname::<kfid_pep>),
    listen: Some(listen),
    reject: Some(reject),
    ..absent::CM
};
