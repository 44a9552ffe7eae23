// SPDX-License-Identifier: GPL-2.0

//! Event queue: fi_eq(3).
//!
//! Events of the module are stored as consumers get them ([`kfi_eq_entry`]), apart from those of
//! connections. All calls need process context.
//!
//! The provider defines when the consumer's function is called: see
//! [`handler`](crate::provider::wait::handler).

use core::{
    mem::offset_of,
    ptr,
    slice, //
};

use kernel::{
    prelude::*,
    sync::Arc,
    transmute::{
        AsBytes,
        FromBytes, //
    },
    types::Opaque, //
};

use kfi_core::{
    addr::SockAddr,
    enums::EqEvent,
    eq::{
        ErrEvent,
        MAX_EVENT, //
    },
    errno::Errno,
    flags::{
        KFI_PEEK,
        KFI_WRITE, //
    },
    limits::{
        MAX_EQ,
        MAX_REJECT_DATA, //
    },
    prov_errno, //
};
use kfi_roce::cm::Reason;

use super::{
    code,
    cq::{
        affinity,
        close_queue,
        handler,
        put_text, //
    },
    deadline,
    object::{
        fid_ops,
        impl_head,
        inner,
        store,
        Inner,
        Slot, //
    },
    pep::{
        self,
        Asked, //
    },
    raw::{
        self,
        kfi_eq_attr,
        kfi_eq_cm_entry,
        kfi_eq_entry,
        kfi_eq_err_entry,
        kfi_event_handler,
        kfi_info,
        kfi_ops_eq,
        kfid,
        kfid_eq,
        kfid_fabric, //
    },
    wait::{
        store_queue,
        wait_obj, //
    }, //
};
use crate::{
    net::LinkName,
    provider::{
        eq::{
            Eq,
            EqAttr,
            EventRead, //
        },
        object,
        wait::handler::ConsumerSide, //
    },
    shim::{
        bindings::{
            kfabric_eq_cm_entry,
            kfabric_eq_entry,
            kfabric_sockaddr, //
        },
        cpu::Cpu,
        errno::to_error, //
    }, //
};

// The provider stores these fields where consumers expect them.
kernel::static_assert!(size_of::<kfi_eq_entry>() == size_of::<kfabric_eq_entry>());
kernel::static_assert!(offset_of!(kfi_eq_entry, fid) == 0);
kernel::static_assert!(
    offset_of!(kfi_eq_entry, context) == offset_of!(kfabric_eq_entry, context)
        && offset_of!(kfi_eq_entry, data) == offset_of!(kfabric_eq_entry, data)
);

/// The value behind a `struct kfid_eq`.
pub(super) struct OpenEq {
    pub(super) eq: Arc<Eq>,
    /// The data of the last error event, for a consumer that has no buffer. Written under the
    /// lock of the readers.
    err_data: Opaque<[u8; MAX_REJECT_DATA]>,
}

impl Inner for OpenEq {
    fn close(&self) -> Result {
        close_queue(self.eq.consumer(), || object::close(&*self.eq))
    }
}

// SAFETY: A C structure that begins with a `struct kfid`, of integers and pointers.
impl_head! {
    unsafe impl Head for kfid_eq {
        type Inner = OpenEq;
        CLASS = raw::KFI_CLASS_EQ;
        fid_ops = fid_ops::<kfid_eq>(Some(control));
    }
}

/// The attributes of an EQ that is opened without any.
const DEFAULT: kfi_eq_attr = kfi_eq_attr {
    size: 0,
    flags: 0,
    wait_obj: raw::KFI_WAIT_UNSPEC,
    signaling_vector: 0,
    wait_set: ptr::null_mut(),
};

/// The attributes of an EQ without a handler, and the CPU of that. Fails with `EINVAL` for an
/// attribute that is not valid; `EBADF` for a wait set that is closed; `ENOMEM`. Sleeps.
///
/// # Safety
///
/// The wait set that `attr` names, if any, is open.
unsafe fn attributes(attr: &kfi_eq_attr) -> Result<(EqAttr, Option<Cpu>)> {
    let cpu = affinity(attr.flags, attr.signaling_vector, KFI_WRITE)?;
    if attr.size > MAX_EQ as usize {
        return Err(EINVAL);
    }
    let attr = EqAttr {
        entries: u32::try_from(attr.size)?,
        // SAFETY: By the requirement above.
        wait: unsafe { wait_obj(attr.wait_obj, attr.wait_set) }?,
        writable: attr.flags & KFI_WRITE != 0,
        consumer: None,
    };
    Ok((attr, cpu))
}

/// kfi_eq_open().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
pub(super) unsafe extern "C" fn open(
    fabric: *mut kfid_fabric,
    attr: *mut kfi_eq_attr,
    eq: *mut *mut kfid_eq,
    event_handler: kfi_event_handler,
    context: *mut c_void,
) -> c_int {
    let make = || {
        // SAFETY: By the interface, `fabric` is an open fabric of this module, and `attr` is null
        // or valid and names an open wait set.
        let (fabric, (mut attr, cpu)) = unsafe {
            let attr = attributes(attr.as_ref().unwrap_or(&DEFAULT))?;
            (inner(fabric), attr)
        };
        let slot = Slot::<kfid_eq>::new(&fabric.opener)?;
        // SAFETY: By the interface, an event handler may be called with the queue and the context.
        // It is called when an event has come, so after this call, and until kfi_close() has
        // stopped it.
        let handler = unsafe { handler(event_handler, slot.addr(), context, cpu) }?;
        attr.consumer = Some(ConsumerSide::new(handler));
        let ident = fabric.opener.ident(slot.addr(), context);
        let inner = OpenEq {
            eq: Eq::open(&fabric.fabric, attr, ident)?,
            err_data: Opaque::new([0; MAX_REJECT_DATA]),
        };
        Ok(slot.fill(context, inner, |head: &mut kfid_eq| {
            head.ops = ptr::from_ref(&OPS).cast_mut();
            head.event_handler = event_handler;
        }))
    };
    // SAFETY: By the interface, `eq` can be written.
    unsafe { store(eq, make()) }
}

/// The result of a call that returns bytes: their number, or a negative error number.
fn bytes_of(result: Result<usize>) -> isize {
    match result {
        // An event is short.
        Ok(len) => len as isize,
        Err(error) => code(Err(error)) as isize,
    }
}

/// Whether the flags of a read leave the event. Fails with `EINVAL` for others than `KFI_PEEK`.
fn peek(flags: u64) -> Result<bool> {
    match flags {
        0 => Ok(false),
        KFI_PEEK => Ok(true),
        _ => Err(EINVAL),
    }
}

/// The data of an event as the consumer gets them: what it gets whole, and the private data of a
/// connection. Sleeps.
fn parts<'a>(
    read: &EventRead<'a>,
    head: &'a mut [u8; size_of::<kfi_eq_cm_entry>()],
) -> Result<(&'a [u8], &'a [u8])> {
    let connection = matches!(
        EqEvent::try_from(read.event),
        Ok(EqEvent::ConnReq | EqEvent::Connected | EqEvent::Shutdown)
    );
    if read.written || !connection {
        return Ok((read.data, &[]));
    }
    let (entry, private) = read
        .data
        .split_at_checked(size_of::<kfabric_eq_cm_entry>())
        .ok_or(EIO)?;
    // The provider has put the address of the endpoint in place of the context, or the serial
    // number of the passive endpoint.
    const FID: usize = offset_of!(kfabric_eq_cm_entry, context);
    let fid = entry
        .get(FID..)
        .and_then(|bytes| bytes.first_chunk::<8>())
        .ok_or(EIO)?;
    // The reader adds the `info` of a request.
    *head.first_chunk_mut().ok_or(EIO)? = match EqEvent::try_from(read.event) {
        Ok(EqEvent::ConnReq) => pep::address(u64::from_ne_bytes(*fid)).to_ne_bytes(),
        _ => *fid,
    };
    Ok((head, private))
}

/// The `info` of an event; null for others than requests. Fails with `ENOMEM`. Sleeps.
fn info_of(eq: &Eq, read: &EventRead<'_>) -> Result<*mut kfi_info> {
    let is_request = EqEvent::try_from(read.event) == Ok(EqEvent::ConnReq);
    if read.written || !is_request {
        return Ok(ptr::null_mut());
    }
    let (head, _) = kfabric_eq_cm_entry::from_bytes_copy_prefix(read.data).ok_or(EIO)?;
    let address = |addr: &kfabric_sockaddr| {
        let addr = addr.as_bytes().try_into().map_err(|_| EIO)?;
        SockAddr::from_raw(addr).map_err(to_error)
    };
    let asked = Asked {
        // The provider has put it in place of the context.
        pep: head.context,
        number: head.connreq,
        local: address(&head.src_addr)?,
        peer: address(&head.dest_addr)?,
        link: LinkName::new(&head.link).map_err(|_| EIO)?,
    };
    pep::entry(eq.fabric(), &asked)
}

/// A read that waits until `timeout` milliseconds have passed.
///
/// # Safety
///
/// `eq` is an open EQ of this module; `event` and `buf` are null, or there can be written a number
/// and `len` bytes.
unsafe fn take(
    eq: *mut kfid_eq,
    event: *mut u32,
    buf: *mut c_void,
    len: usize,
    timeout: c_int,
    flags: u64,
) -> isize {
    // SAFETY: By the requirements above.
    let eq = &unsafe { inner(eq) }.eq;
    let take = || {
        if event.is_null() || (buf.is_null() && len != 0) {
            return Err(EINVAL);
        }
        let mut whole = 0;
        let is_peek = peek(flags)?;
        eq.sread(is_peek, deadline(timeout), |read| {
            let mut head = [0; size_of::<kfi_eq_cm_entry>()];
            let (head, rest) = parts(&read, &mut head)?;
            let Some(room) = len.checked_sub(head.len()) else {
                return Err(to_error(Errno::KFI_ETOOSMALL));
            };
            // Private data are limited to the space that there is.
            let rest = rest.get(..room).unwrap_or(rest);
            whole = head.len().wrapping_add(rest.len());
            let info = match is_peek {
                true => ptr::null_mut(),
                false => info_of(eq, &read)?,
            };
            let to: *mut u8 = buf.cast();
            // SAFETY: By the requirements above; both parts have room.
            unsafe {
                *event = read.event;
                ptr::copy_nonoverlapping(head.as_ptr(), to, head.len());
                ptr::copy_nonoverlapping(rest.as_ptr(), to.wrapping_add(head.len()), rest.len());
                if !info.is_null() {
                    let at = to.wrapping_add(offset_of!(kfi_eq_cm_entry, info));
                    at.cast::<*mut kfi_info>().write_unaligned(info);
                }
            }
            Ok(())
        })?;
        Ok(whole)
    };
    bytes_of(take())
}

/// kfi_eq_read().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn read(
    eq: *mut kfid_eq,
    event: *mut u32,
    buf: *mut c_void,
    len: usize,
    flags: u64,
) -> isize {
    // SAFETY: By the interface, `eq` is an open EQ of this module, and the rest can be written.
    unsafe { take(eq, event, buf, len, 0, flags) }
}

/// kfi_eq_sread().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn sread(
    eq: *mut kfid_eq,
    event: *mut u32,
    buf: *mut c_void,
    len: usize,
    timeout: c_int,
    flags: u64,
) -> isize {
    // SAFETY: By the interface, `eq` is an open EQ of this module, and the rest can be written.
    unsafe { take(eq, event, buf, len, timeout, flags) }
}

/// Stores an error event for a consumer.
///
/// # Safety
///
/// If `to.err_data_size` is not 0, there can be written as many bytes at `to.err_data`. `own` is
/// the memory of the queue for data, which nothing else uses now.
unsafe fn put_error(error: &ErrEvent, to: &mut kfi_eq_err_entry, own: *mut u8) {
    to.fid = ptr::with_exposed_provenance_mut(error.fid as usize);
    to.context = ptr::with_exposed_provenance_mut(error.context as usize);
    to.data = error.data;
    // CAST: Numbers of errors are small.
    to.err = error.err as c_int;
    to.prov_errno = error.prov_errno as c_int;
    let data = error.err_data.get();
    if to.err_data_size == 0 {
        to.err_data = if data.is_empty() {
            ptr::null_mut()
        } else {
            own.cast()
        };
        to.err_data_size = data.len();
    } else {
        to.err_data_size = to.err_data_size.min(data.len());
    }
    if to.err_data.is_null() {
        to.err_data_size = 0;
    }
    // SAFETY: By the requirements above; the queue's memory has room for the longest data.
    unsafe { ptr::copy_nonoverlapping(data.as_ptr(), to.err_data.cast(), to.err_data_size) };
}

/// kfi_eq_readerr().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn readerr(eq: *mut kfid_eq, buf: *mut kfi_eq_err_entry, flags: u64) -> isize {
    // SAFETY: By the interface, `eq` is an open EQ of this module.
    let open = unsafe { inner(eq) };
    let readerr = || {
        if buf.is_null() {
            return Err(EINVAL);
        }
        open.eq.readerr(peek(flags)?, |error| {
            // SAFETY: By the interface, `buf` is an error entry with its buffer. The queue's memory
            // is used under the lock of the readers only, and by a consumer until its next read.
            unsafe { put_error(error, &mut *buf, open.err_data.get().cast()) };
            Ok(())
        })?;
        Ok(size_of::<kfi_eq_err_entry>())
    };
    bytes_of(readerr())
}

/// kfi_eq_write().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn write(
    eq: *mut kfid_eq,
    event: u32,
    buf: *const c_void,
    len: usize,
    flags: u64,
) -> isize {
    // SAFETY: By the interface, `eq` is an open EQ of this module.
    let eq = &unsafe { inner(eq) }.eq;
    if flags != 0 || len > MAX_EVENT || (buf.is_null() && len != 0) {
        return EINVAL.to_errno() as isize;
    }
    let data = match len {
        0 => &[][..],
        // SAFETY: By the interface, there are `len` bytes at `buf`.
        _ => unsafe { slice::from_raw_parts(buf.cast::<u8>(), len) },
    };
    bytes_of(eq.write(event, data).map(|()| len))
}

/// kfi_eq_strerror().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn strerror(
    _eq: *mut kfid_eq,
    number: c_int,
    _err_data: *const c_void,
    buf: *mut c_char,
    len: usize,
) -> *const c_char {
    let text = match u16::try_from(number) {
        Ok(0) => prov_errno::text(0),
        Ok(reason) => Reason::new(reason).text(),
        Err(_) => prov_errno::text(u32::MAX),
    };
    // SAFETY: By the interface, `buf` is null or has room for `len` bytes.
    unsafe { put_text(text, buf, len) }
}

/// kfi_control() with KFI_GETWAIT.
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn control(fid: *mut kfid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: By the interface, `fid` is an open object; this table is of event queues.
    let eq = &unsafe { inner::<kfid_eq>(fid.cast()) }.eq;
    code(match u32::try_from(command) {
        // SAFETY: By the interface, `arg` points to room for a pointer.
        Ok(raw::KFI_GETWAIT) => unsafe { store_queue(eq.wait_queue(), arg) },
        _ => Err(ENOSYS),
    })
}

static OPS: kfi_ops_eq = kfi_ops_eq {
    size: size_of::<kfi_ops_eq>(),
    read: Some(read),
    readerr: Some(readerr),
    write: Some(write),
    sread: Some(sread),
    strerror: Some(strerror),
};
