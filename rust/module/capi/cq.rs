// SPDX-License-Identifier: GPL-2.0

//! Completion queue: fi_cq(3).
//!
//! # Context
//!
//! Reads that do not wait, of entries and of error entries, may be called in softirqs too. They
//! copy under the spin lock of the queue. A read that finds nothing new takes no lock. The other
//! calls need process context.
//!
//! # Completion handlers
//!
//! The provider defines when the consumer's function is called: see
//! [`handler`](crate::provider::wait::handler).

use core::{
    ffi::CStr,
    ptr, //
};

use kernel::{
    prelude::*,
    sync::Arc, //
};

use kfi_core::{
    flags::KFI_AFFINITY,
    limits::MAX_CQ, //
};

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
        kfi_addr_t,
        kfi_comp_handler,
        kfi_cq_attr,
        kfi_cq_err_entry,
        kfi_ops_cq,
        kfid,
        kfid_cq,
        kfid_domain, //
    },
    wait::{
        store_queue,
        wait_obj, //
    }, //
};
use crate::{
    provider::{
        cq::{
            Cq,
            CqAttr, //
        },
        object,
        wait::handler::{
            ConsumerSide,
            Handler, //
        }, //
    },
    shim::cpu::Cpu, //
};

/// The value behind a `struct kfid_cq`.
pub(super) struct OpenCq {
    pub(super) cq: Arc<Cq>,
}

impl Inner for OpenCq {
    fn close(&self) -> Result {
        close_queue(self.cq.consumer(), || object::close(&*self.cq))
    }
}

/// Closes a queue with `close`, and waits for the end of its handler. Fails with `EBUSY` in a call
/// of that handler; those of `close`. Sleeps.
pub(super) fn close_queue(
    consumer: Option<&ConsumerSide>,
    close: impl FnOnce() -> Result,
) -> Result {
    let Some(consumer) = consumer else {
        return close();
    };
    consumer.check_close()?;
    close()?;
    consumer.stop();
    Ok(())
}

// SAFETY: A C structure that begins with a `struct kfid`, of integers and pointers.
impl_head! {
    unsafe impl Head for kfid_cq {
        type Inner = OpenCq;
        CLASS = raw::KFI_CLASS_CQ;
        fid_ops = fid_ops::<kfid_cq>(Some(control));
    }
}

/// The CPU on which the handler of a queue is called; `None` is that of the completion or event. A
/// vector without a CPU that is online is ignored, because it is a hint (fi_cq(3)). Fails with
/// `EINVAL` for flags other than `allowed` and `KFI_AFFINITY`.
pub(super) fn affinity(flags: u64, vector: c_int, allowed: u64) -> Result<Option<Cpu>> {
    if flags & !(KFI_AFFINITY | allowed) != 0 {
        return Err(EINVAL);
    }
    Ok(if flags & KFI_AFFINITY == 0 {
        None
    } else {
        Cpu::new(vector).ok()
    })
}

/// The attributes of a CQ, and the CPU of its handler. Fails with `EINVAL` for an attribute that is
/// not valid; `EBADF` for a wait set that is closed; `ENOMEM`. Sleeps.
///
/// # Safety
///
/// The wait set that `attr` names, if any, is open.
unsafe fn attributes(attr: &kfi_cq_attr) -> Result<(CqAttr, Option<Cpu>)> {
    let cpu = affinity(attr.flags, attr.signaling_vector, 0)?;
    if attr.size > MAX_CQ as usize {
        return Err(EINVAL);
    }
    // SAFETY: By the requirement above.
    let wait = unsafe { wait_obj(attr.wait_obj, attr.wait_set) }?;
    let size = u32::try_from(attr.size)?;
    let attr = CqAttr::new(size, attr.format, wait, attr.wait_cond)?;
    Ok((attr, cpu))
}

/// A function of a consumer with its arguments.
struct Call<H, F> {
    function: F,
    queue: *mut H,
    context: *mut c_void,
}

// SAFETY: The function may be called by any task, with the arguments that it was opened with, by
// the interface.
unsafe impl<H, F> Send for Call<H, F> {}
// SAFETY: As above.
unsafe impl<H, F> Sync for Call<H, F> {}

/// Makes a handler that calls `function` with the queue at `addr` and `context`. Fails with
/// `ENOMEM`. Sleeps.
///
/// # Safety
///
/// `function` may be called in process context, by any task, with these arguments, until the
/// handler is stopped.
pub(super) unsafe fn handler<H: 'static>(
    function: Option<unsafe extern "C" fn(*mut H, *mut c_void)>,
    addr: u64,
    context: *mut c_void,
    cpu: Option<Cpu>,
) -> Result<Option<Arc<Handler>>> {
    let Some(function) = function else {
        return Ok(None);
    };
    let call = Call {
        function,
        // The slot has exposed its address.
        queue: ptr::with_exposed_provenance_mut::<H>(addr as usize),
        context,
    };
    let handler = Handler::new(cpu, move || {
        let call = &call;
        // SAFETY: By the requirement above.
        unsafe { (call.function)(call.queue, call.context) }
    })?;
    Ok(Some(handler))
}

/// kfi_cq_open().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
pub(super) unsafe extern "C" fn open(
    domain: *mut kfid_domain,
    attr: *mut kfi_cq_attr,
    cq: *mut *mut kfid_cq,
    comp_handler: kfi_comp_handler,
    context: *mut c_void,
) -> c_int {
    let make = || {
        // SAFETY: By the interface, `domain` is an open domain of this module, and `attr` is null
        // or valid.
        let (domain, given) = unsafe { (inner(domain), attr.as_mut()) };
        // SAFETY: By the interface, the attributes name an open wait set. The default names none.
        let (attr, cpu) = unsafe { attributes(given.as_deref().unwrap_or(&DEFAULT)) }?;
        let slot = Slot::<kfid_cq>::new(&domain.opener)?;
        // SAFETY: By the interface, a completion handler may be called with the queue and the
        // context. It is called when something has arrived, so after this call, and until
        // kfi_close() has stopped it.
        let handler = unsafe { handler(comp_handler, slot.addr(), context, cpu) }?;
        let ident = domain.opener.ident(slot.addr(), context);
        let cq = Cq::open(&domain.domain, attr.of_consumer(handler), ident)?;
        if let Some(given) = given {
            given.format = cq.format().to_abi();
        }
        Ok(slot.fill(context, OpenCq { cq }, |head: &mut kfid_cq| {
            head.ops = ptr::from_ref(&OPS).cast_mut();
            head.comp_handler = comp_handler;
        }))
    };
    // SAFETY: By the interface, `cq` can be written.
    unsafe { store(cq, make()) }
}

/// The attributes of a CQ that is opened without any.
const DEFAULT: kfi_cq_attr = kfi_cq_attr {
    size: 0,
    flags: 0,
    format: raw::KFI_CQ_FORMAT_UNSPEC,
    wait_obj: raw::KFI_WAIT_UNSPEC,
    signaling_vector: 0,
    wait_cond: raw::KFI_CQ_COND_NONE,
    wait_set: ptr::null_mut(),
};

/// The result of a read: the number of entries, or a negative error number.
#[inline]
fn count_of(result: Result<usize>) -> isize {
    match result {
        // There are fewer entries than that.
        Ok(count) => count as isize,
        Err(error) => code(Err(error)) as isize,
    }
}

/// Where a consumer wants the next entry and its source.
struct Entries {
    to: *mut u64,
    /// Null: it wants none.
    sources: *mut kfi_addr_t,
}

impl Entries {
    /// Takes an entry, for a sink.
    ///
    /// # Safety
    ///
    /// There is room for it.
    #[inline]
    unsafe fn take(&mut self, words: &[u64], source: u64) {
        // SAFETY: By the requirement above.
        unsafe { ptr::copy_nonoverlapping(words.as_ptr(), self.to, words.len()) };
        self.to = self.to.wrapping_add(words.len());
        if !self.sources.is_null() {
            // SAFETY: By the requirement above.
            unsafe { *self.sources = source };
            self.sources = self.sources.wrapping_add(1);
        }
    }
}

/// A read with or without sources, which does not wait.
///
/// # Safety
///
/// `cq` is an open CQ of this module. Each pointer is null or has room for `count` elements.
#[inline(never)]
#[link_section = ".text.hot"]
unsafe fn take(
    cq: *mut kfid_cq,
    buf: *mut c_void,
    count: usize,
    sources: *mut kfi_addr_t,
) -> isize {
    // SAFETY: By the requirements above.
    let cq = &unsafe { inner(cq) }.cq;
    if buf.is_null() && count != 0 {
        return EINVAL.to_errno() as isize;
    }
    let mut entries = Entries {
        to: buf.cast(),
        sources,
    };
    count_of(cq.read(count, |words: &[u64], source| {
        // SAFETY: By the requirements above; there are at most `count`.
        unsafe { entries.take(words, source) };
        Ok(())
    }))
}

/// kfi_cq_read().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
#[link_section = ".text.hot"]
unsafe extern "C" fn read(cq: *mut kfid_cq, buf: *mut c_void, count: usize) -> isize {
    // SAFETY: By the interface, `cq` is an open CQ of this module.
    if unsafe { inner(cq) }.cq.is_found_empty() && !buf.is_null() {
        return EAGAIN.to_errno() as isize;
    }
    // SAFETY: By the interface, as above, and there is room for `count` entries.
    unsafe { take(cq, buf, count, ptr::null_mut()) }
}

/// kfi_cq_readfrom().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn readfrom(
    cq: *mut kfid_cq,
    buf: *mut c_void,
    count: usize,
    sources: *mut kfi_addr_t,
) -> isize {
    // SAFETY: By the interface, `cq` is an open CQ of this module, and there is room for `count`
    // entries and sources.
    unsafe { take(cq, buf, count, sources) }
}

/// kfi_cq_readerr().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn readerr(cq: *mut kfid_cq, buf: *mut kfi_cq_err_entry, flags: u64) -> isize {
    if flags != 0 || buf.is_null() {
        return EINVAL.to_errno() as isize;
    }
    // SAFETY: By the interface, `cq` is an open CQ of this module.
    let cq = &unsafe { inner(cq) }.cq;
    let result = cq.readerr(
        |error| {
            // SAFETY: By the interface, `buf` can be written.
            let to = unsafe { &mut *buf };
            to.op_context = ptr::with_exposed_provenance_mut(error.op_context as usize);
            to.flags = error.flags;
            to.len = error.len as usize;
            to.buf = ptr::with_exposed_provenance_mut(error.buf as usize);
            to.data = error.data;
            to.tag = error.tag;
            to.olen = error.olen as usize;
            // CAST: Numbers of errors are small.
            to.err = error.err as c_int;
            to.prov_errno = error.prov_errno as c_int;
            // There are no data of the provider's. A consumer with a buffer for them keeps it.
            if to.err_data_size == 0 {
                to.err_data = ptr::null_mut();
            }
            to.err_data_size = 0;
            Ok(())
        },
        || Ok(()),
    );
    count_of(result.map(|()| 1))
}

/// kfi_cq_sread().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn sread(
    cq: *mut kfid_cq,
    buf: *mut c_void,
    count: usize,
    cond: *const c_void,
    timeout: c_int,
) -> isize {
    // SAFETY: The requirements are the same.
    unsafe { sreadfrom(cq, buf, count, ptr::null_mut(), cond, timeout) }
}

/// kfi_cq_sreadfrom().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn sreadfrom(
    cq: *mut kfid_cq,
    buf: *mut c_void,
    count: usize,
    sources: *mut kfi_addr_t,
    cond: *const c_void,
    timeout: c_int,
) -> isize {
    // SAFETY: By the interface, `cq` is an open CQ of this module.
    let cq = &unsafe { inner(cq) }.cq;
    // fi_cq(3): without a wait object the call is not valid, also with a timeout of 0.
    if !cq.can_wait() || (buf.is_null() && count != 0) {
        return EINVAL.to_errno() as isize;
    }
    let want = match cq.has_threshold() && !cond.is_null() {
        // SAFETY: By the interface, `cond` points to a size_t with KFI_CQ_COND_THRESHOLD.
        true => unsafe { cond.cast::<usize>().read() },
        false => 0,
    };
    let mut entries = Entries {
        to: buf.cast(),
        sources,
    };
    let sink = |words: &[u64], source| {
        // SAFETY: By the interface there is room for `count` entries and sources.
        unsafe { entries.take(words, source) };
        Ok(())
    };
    // No queue has more entries than a u32 counts.
    let want = u32::try_from(want).unwrap_or(u32::MAX);
    count_of(cq.sread(count, want, deadline(timeout), &mut 0, sink))
}

/// kfi_cq_signal().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn signal(cq: *mut kfid_cq) -> c_int {
    // SAFETY: By the interface, `cq` is an open CQ of this module.
    code(unsafe { inner(cq) }.cq.signal())
}

/// kfi_cq_strerror().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn strerror(
    cq: *mut kfid_cq,
    prov_errno: c_int,
    _err_data: *const c_void,
    buf: *mut c_char,
    len: usize,
) -> *const c_char {
    // SAFETY: By the interface, `cq` is an open CQ of this module.
    let cq = &unsafe { inner(cq) }.cq;
    // CAST: The same number as in the error entry.
    let text = cq.strerror(prov_errno as u32);
    // SAFETY: By the interface, `buf` is null or has room for `len` bytes.
    unsafe { put_text(text, buf, len) }
}

/// Copies as much of a text as there is room for, with a NUL, and returns the text.
///
/// # Safety
///
/// `buf` is null or has room for `len` bytes.
pub(super) unsafe fn put_text(text: &'static CStr, buf: *mut c_char, len: usize) -> *const c_char {
    let bytes = text.to_bytes();
    if let (false, Some(room)) = (buf.is_null(), len.checked_sub(1)) {
        let copied = room.min(bytes.len());
        // SAFETY: By the requirement above there is room for `copied` bytes and a NUL.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), buf.cast(), copied);
            *buf.add(copied) = 0;
        }
    }
    text.as_char_ptr()
}

/// kfi_control() with KFI_GETWAIT.
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn control(fid: *mut kfid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: By the interface, `fid` is an open object; this table is of completion queues.
    let cq = &unsafe { inner::<kfid_cq>(fid.cast()) }.cq;
    code(match u32::try_from(command) {
        // SAFETY: By the interface, `arg` points to room for a pointer.
        Ok(raw::KFI_GETWAIT) => unsafe { store_queue(cq.wait_queue(), arg) },
        _ => Err(ENOSYS),
    })
}

static OPS: kfi_ops_cq = kfi_ops_cq {
    size: size_of::<kfi_ops_cq>(),
    read: Some(read),
    readfrom: Some(readfrom),
    readerr: Some(readerr),
    sread: Some(sread),
    sreadfrom: Some(sreadfrom),
    signal: Some(signal),
    strerror: Some(strerror),
};
