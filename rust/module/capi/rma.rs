// SPDX-License-Identifier: GPL-2.0

//! Remote memory access: fi_rma(3).
//!
//! With KFI_TAGGED, the memory of a read or a write is that of a tagged receive of the peer instead
//! of a region.
//!
//! # Context
//!
//! All operations of this file can be called in process context and in softirqs, also under spin
//! locks. See [`transfer`](super::transfer).

use core::ptr;

use kernel::{
    bindings::{
        bio_vec,
        kvec,
        scatterlist, //
    },
    prelude::*, //
};

use kfi_core::{
    flags::OpFlags,
    op::OpType, //
};

use super::{
    buffers::{
        Elements,
        Local, //
    },
    code,
    ep::OpenEp,
    object::inner,
    raw::{
        kfi_addr_t,
        kfi_msg_rma,
        kfi_ops_rma,
        kfid_ep, //
    },
    remote::Target,
    transfer::{
        number,
        Call,
        Given, //
    }, //
};
use crate::{
    mem::{
        Access,
        Inline, //
    },
    provider::ep::op::{
        Op,
        Read,
        Write, //
    }, //
};

/// Arguments of a read or a write besides its memory and its flags.
pub(super) struct RmaArgs {
    peer: u64,
    target: Target,
    /// Remote CQ data, which the flags announce.
    data: u64,
    context: *mut c_void,
}

/// The local memory that a `struct kfi_msg_rma` names. Fails with `EINVAL` for an unknown type of
/// list, or if there are elements but no list.
///
/// # Safety
///
/// By the interface, the memory is that of an operation.
pub(super) unsafe fn local(msg: &kfi_msg_rma) -> Result<Local> {
    // SAFETY: By the requirement above, the list is the union's member that the type names. All
    // members are pointers.
    unsafe { Local::of_msg(msg.type_, msg.__bindgen_anon_1.msg_iov, msg.iov_count) }
}

/// The other arguments of a `struct kfi_msg_rma`.
///
/// # Safety
///
/// By the interface, the list of remote memory is valid.
pub(super) unsafe fn args(msg: &kfi_msg_rma) -> Result<RmaArgs> {
    Ok(RmaArgs {
        peer: msg.addr,
        // SAFETY: By the requirement above.
        target: unsafe { Target::bytes(msg.rma_iov, msg.rma_iov_count) }?,
        data: msg.data,
        context: msg.context,
    })
}

impl OpenEp {
    /// Posts a read.
    pub(super) fn post_read(&self, call: Call, local: &Local, args: &RmaArgs) -> Result {
        let into = call.memory(local, Access::Write)?;
        let op = Read {
            flags: call.flags,
            context: number(args.context),
            peer: args.peer,
            remote: args.target.remote(into.len(), call.context())?,
            into,
        };
        self.post(call, Op::Read(op))
    }

    /// Posts a write.
    pub(super) fn post_write(&self, call: Call, local: &Local, args: &RmaArgs) -> Result {
        let mut inline = Inline::new();
        let from = call.source(local, &mut inline)?;
        let op = Write {
            flags: call.flags,
            context: number(args.context),
            peer: args.peer,
            remote: args.target.remote(from.len(), call.context())?,
            from,
            data: args.data,
        };
        self.post(call, Op::Write(op))
    }

    /// Reads memory of a peer: the result of a call of a consumer.
    ///
    /// # Safety
    ///
    /// As for [`begin`](Self::begin).
    unsafe fn read(&self, given: Given, local: Result<Local>, args: Result<RmaArgs>) -> isize {
        let read = || {
            let args = args?;
            // SAFETY: By the requirement above.
            let call = unsafe { self.begin(OpType::Read, given, args.context) }?;
            self.post_read(call, &local?, &args)
        };
        code(read()) as isize
    }

    /// Writes memory of a peer: the result of a call of a consumer.
    ///
    /// # Safety
    ///
    /// As for [`begin`](Self::begin).
    unsafe fn write(&self, given: Given, local: Result<Local>, args: Result<RmaArgs>) -> isize {
        let write = || {
            let args = args?;
            // SAFETY: By the requirement above.
            let call = unsafe { self.begin(OpType::Write, given, args.context) }?;
            self.post_write(call, &local?, &args)
        };
        code(write()) as isize
    }
}

/// The arguments of a call that names one piece of remote memory.
fn one(peer: u64, addr: u64, key: u64, data: u64, context: *mut c_void) -> Result<RmaArgs> {
    Ok(RmaArgs {
        peer,
        target: Target::one(addr, key),
        data,
        context,
    })
}

/// kfi_read().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn read(
    ep: *mut kfid_ep,
    buf: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    src_addr: kfi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: By the interface, `ep` is an open endpoint of this module, the memory that of an
    // operation, and `context` its context.
    unsafe {
        let local = Ok(Local::buffer(buf, len));
        inner(ep).read(Given::DEFAULT, local, one(src_addr, addr, key, 0, context))
    }
}

/// kfi_readv().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn readv(
    ep: *mut kfid_ep,
    iov: *const kvec,
    _desc: *mut *mut c_void,
    count: usize,
    src_addr: kfi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: By the interface, `ep` is an open endpoint of this module, the memory that of an
    // operation, and `context` its context.
    unsafe {
        let local = Local::list(Elements::Kvec(iov), count);
        inner(ep).read(Given::DEFAULT, local, one(src_addr, addr, key, 0, context))
    }
}

/// kfi_readbv().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn readbv(
    ep: *mut kfid_ep,
    biov: *const bio_vec,
    _desc: *mut *mut c_void,
    count: usize,
    src_addr: kfi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: By the interface, `ep` is an open endpoint of this module, the memory that of an
    // operation, and `context` its context.
    unsafe {
        let local = Local::list(Elements::Bvec(biov), count);
        inner(ep).read(Given::DEFAULT, local, one(src_addr, addr, key, 0, context))
    }
}

/// kfi_readsgl().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn readsgl(
    ep: *mut kfid_ep,
    sgl: *const scatterlist,
    _desc: *mut *mut c_void,
    count: usize,
    src_addr: kfi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: By the interface, `ep` is an open endpoint of this module, the memory that of an
    // operation, and `context` its context.
    unsafe {
        let local = Local::list(Elements::Sgl(sgl), count);
        inner(ep).read(Given::DEFAULT, local, one(src_addr, addr, key, 0, context))
    }
}

/// kfi_readmsg().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn readmsg(ep: *mut kfid_ep, msg: *const kfi_msg_rma, flags: u64) -> isize {
    // SAFETY: By the interface, `msg` is null or valid.
    let Some(msg) = (unsafe { msg.as_ref() }) else {
        return code(Err(EINVAL)) as isize;
    };
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and `msg` names the memory
    // of an operation and its context.
    unsafe { inner(ep).read(Given::Explicit(flags), local(msg), args(msg)) }
}

/// kfi_write().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn write(
    ep: *mut kfid_ep,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    dest_addr: kfi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: By the interface, `ep` is an open endpoint of this module, the memory that of an
    // operation, and `context` its context.
    unsafe {
        let local = Ok(Local::buffer(buf, len));
        inner(ep).write(Given::DEFAULT, local, one(dest_addr, addr, key, 0, context))
    }
}

/// kfi_writev().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn writev(
    ep: *mut kfid_ep,
    iov: *const kvec,
    _desc: *mut *mut c_void,
    count: usize,
    dest_addr: kfi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: By the interface, `ep` is an open endpoint of this module, the memory that of an
    // operation, and `context` its context.
    unsafe {
        let local = Local::list(Elements::Kvec(iov), count);
        inner(ep).write(Given::DEFAULT, local, one(dest_addr, addr, key, 0, context))
    }
}

/// kfi_writebv().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn writebv(
    ep: *mut kfid_ep,
    biov: *const bio_vec,
    _desc: *mut *mut c_void,
    count: usize,
    dest_addr: kfi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: By the interface, `ep` is an open endpoint of this module, the memory that of an
    // operation, and `context` its context.
    unsafe {
        let local = Local::list(Elements::Bvec(biov), count);
        inner(ep).write(Given::DEFAULT, local, one(dest_addr, addr, key, 0, context))
    }
}

/// kfi_writesgl().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn writesgl(
    ep: *mut kfid_ep,
    sgl: *const scatterlist,
    _desc: *mut *mut c_void,
    count: usize,
    dest_addr: kfi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: By the interface, `ep` is an open endpoint of this module, the memory that of an
    // operation, and `context` its context.
    unsafe {
        let local = Local::list(Elements::Sgl(sgl), count);
        inner(ep).write(Given::DEFAULT, local, one(dest_addr, addr, key, 0, context))
    }
}

/// kfi_writemsg().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn writemsg(ep: *mut kfid_ep, msg: *const kfi_msg_rma, flags: u64) -> isize {
    // SAFETY: By the interface, `msg` is null or valid.
    let Some(msg) = (unsafe { msg.as_ref() }) else {
        return code(Err(EINVAL)) as isize;
    };
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and `msg` names the memory
    // of an operation and its context.
    unsafe { inner(ep).write(Given::Explicit(flags), local(msg), args(msg)) }
}

/// kfi_inject_write().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn inject(
    ep: *mut kfid_ep,
    buf: *const c_void,
    len: usize,
    dest_addr: kfi_addr_t,
    addr: u64,
    key: u64,
) -> isize {
    // SAFETY: By the interface, `ep` is an open endpoint of this module, the memory that of an
    // operation.
    unsafe {
        let local = Ok(Local::buffer(buf, len));
        inner(ep).write(
            Given::Inject(OpFlags::EMPTY),
            local,
            one(dest_addr, addr, key, 0, ptr::null_mut()),
        )
    }
}

/// kfi_writedata().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn writedata(
    ep: *mut kfid_ep,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    data: u64,
    dest_addr: kfi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: By the interface, `ep` is an open endpoint of this module, the memory that of an
    // operation, and `context` its context.
    unsafe {
        let local = Ok(Local::buffer(buf, len));
        inner(ep).write(
            Given::Default(OpFlags::REMOTE_CQ_DATA),
            local,
            one(dest_addr, addr, key, data, context),
        )
    }
}

/// kfi_inject_writedata().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn injectdata(
    ep: *mut kfid_ep,
    buf: *const c_void,
    len: usize,
    data: u64,
    dest_addr: kfi_addr_t,
    addr: u64,
    key: u64,
) -> isize {
    // SAFETY: By the interface, `ep` is an open endpoint of this module, the memory that of an
    // operation.
    unsafe {
        let local = Ok(Local::buffer(buf, len));
        inner(ep).write(
            Given::Inject(OpFlags::REMOTE_CQ_DATA),
            local,
            one(dest_addr, addr, key, data, ptr::null_mut()),
        )
    }
}

/// The operations of fi_rma(3) that an endpoint has.
pub(super) static OPS: kfi_ops_rma = kfi_ops_rma {
    size: size_of::<kfi_ops_rma>(),
    read: Some(read),
    readv: Some(readv),
    readbv: Some(readbv),
    readmsg: Some(readmsg),
    write: Some(write),
    writev: Some(writev),
    writebv: Some(writebv),
    writemsg: Some(writemsg),
    inject: Some(inject),
    writedata: Some(writedata),
    injectdata: Some(injectdata),
    readsgl: Some(readsgl),
    writesgl: Some(writesgl),
};
