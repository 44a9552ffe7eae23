// SPDX-License-Identifier: GPL-2.0

//! Tagged messages: fi_tagged(3).
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

use kfi_core::flags::OpFlags;

use super::{
    buffers::{
        Elements,
        Local, //
    },
    code,
    object::inner,
    raw::{
        kfi_addr_t,
        kfi_msg_tagged,
        kfi_ops_tagged,
        kfid_ep, //
    },
    transfer::{
        Given,
        ReceiveArgs,
        SendArgs, //
    }, //
};
use crate::provider::ep::op::Tag;

/// The local memory that a message names. Fails with `EINVAL` for an unknown type of list, or if
/// there are elements but no list.
///
/// # Safety
///
/// By the interface, the memory is that of an operation.
pub(super) unsafe fn local(msg: &kfi_msg_tagged) -> Result<Local> {
    // SAFETY: By the requirement above, the list is the union's member that the type names. All
    // members are pointers.
    unsafe { Local::of_msg(msg.type_, msg.__bindgen_anon_1.msg_iov, msg.iov_count) }
}

/// The other arguments of a send.
fn to(peer: kfi_addr_t, tag: u64, data: u64, context: *mut c_void) -> SendArgs {
    SendArgs {
        peer,
        data,
        tag: Some(Tag { tag, ignore: 0 }),
        context,
    }
}

/// The other arguments of a receive.
fn from(peer: kfi_addr_t, tag: u64, ignore: u64, context: *mut c_void) -> ReceiveArgs {
    ReceiveArgs {
        peer,
        tag: Some(Tag { tag, ignore }),
        context,
    }
}

/// The other arguments of a send that a message names.
pub(super) fn send_args(msg: &kfi_msg_tagged) -> SendArgs {
    to(msg.addr, msg.tag, msg.data, msg.context)
}

/// The other arguments of a receive that a message names.
pub(super) fn receive_args(msg: &kfi_msg_tagged) -> ReceiveArgs {
    from(msg.addr, msg.tag, msg.ignore, msg.context)
}

/// kfi_trecv().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn recv(
    ep: *mut kfid_ep,
    buf: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    src_addr: kfi_addr_t,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and the memory and the
    // context are those of an operation.
    unsafe {
        let local = Ok(Local::buffer(buf, len));
        inner(ep).receive(Given::DEFAULT, local, from(src_addr, tag, ignore, context))
    }
}

/// kfi_trecvv().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn recvv(
    ep: *mut kfid_ep,
    iov: *const kvec,
    _desc: *mut *mut c_void,
    count: usize,
    src_addr: kfi_addr_t,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and the memory and the
    // context are those of an operation.
    unsafe {
        let local = Local::list(Elements::Kvec(iov), count);
        inner(ep).receive(Given::DEFAULT, local, from(src_addr, tag, ignore, context))
    }
}

/// kfi_trecvbv().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn recvbv(
    ep: *mut kfid_ep,
    biov: *const bio_vec,
    _desc: *mut *mut c_void,
    count: usize,
    src_addr: kfi_addr_t,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and the memory and the
    // context are those of an operation.
    unsafe {
        let local = Local::list(Elements::Bvec(biov), count);
        inner(ep).receive(Given::DEFAULT, local, from(src_addr, tag, ignore, context))
    }
}

/// kfi_trecvsgl().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn recvsgl(
    ep: *mut kfid_ep,
    sgl: *const scatterlist,
    _desc: *mut *mut c_void,
    count: usize,
    src_addr: kfi_addr_t,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and the memory and the
    // context are those of an operation.
    unsafe {
        let local = Local::list(Elements::Sgl(sgl), count);
        inner(ep).receive(Given::DEFAULT, local, from(src_addr, tag, ignore, context))
    }
}

/// kfi_trecvmsg().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn recvmsg(ep: *mut kfid_ep, msg: *const kfi_msg_tagged, flags: u64) -> isize {
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and `msg` null or valid.
    let (ep, msg) = unsafe { (inner(ep), msg.as_ref()) };
    let Some(msg) = msg else {
        return code(Err(EINVAL)) as isize;
    };
    // SAFETY: By the interface, the memory and the context are those of an operation.
    unsafe { ep.receive(Given::Explicit(flags), local(msg), receive_args(msg)) }
}

/// kfi_tsend().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn send(
    ep: *mut kfid_ep,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    dest_addr: kfi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and the memory and the
    // context are those of an operation.
    unsafe {
        let local = Ok(Local::buffer(buf, len));
        inner(ep).send(Given::DEFAULT, local, to(dest_addr, tag, 0, context))
    }
}

/// kfi_tsendv().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn sendv(
    ep: *mut kfid_ep,
    iov: *const kvec,
    _desc: *mut *mut c_void,
    count: usize,
    dest_addr: kfi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and the memory and the
    // context are those of an operation.
    unsafe {
        let local = Local::list(Elements::Kvec(iov), count);
        inner(ep).send(Given::DEFAULT, local, to(dest_addr, tag, 0, context))
    }
}

/// kfi_tsendbv().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn sendbv(
    ep: *mut kfid_ep,
    biov: *const bio_vec,
    _desc: *mut *mut c_void,
    count: usize,
    dest_addr: kfi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and the memory and the
    // context are those of an operation.
    unsafe {
        let local = Local::list(Elements::Bvec(biov), count);
        inner(ep).send(Given::DEFAULT, local, to(dest_addr, tag, 0, context))
    }
}

/// kfi_tsendsgl().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn sendsgl(
    ep: *mut kfid_ep,
    sgl: *const scatterlist,
    _desc: *mut *mut c_void,
    count: usize,
    dest_addr: kfi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and the memory and the
    // context are those of an operation.
    unsafe {
        let local = Local::list(Elements::Sgl(sgl), count);
        inner(ep).send(Given::DEFAULT, local, to(dest_addr, tag, 0, context))
    }
}

/// kfi_tsendmsg().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn sendmsg(ep: *mut kfid_ep, msg: *const kfi_msg_tagged, flags: u64) -> isize {
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and `msg` null or valid.
    let (ep, msg) = unsafe { (inner(ep), msg.as_ref()) };
    let Some(msg) = msg else {
        return code(Err(EINVAL)) as isize;
    };
    // SAFETY: By the interface, the memory and the context are those of an operation.
    unsafe { ep.send(Given::Explicit(flags), local(msg), send_args(msg)) }
}

/// kfi_tinject().
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
    tag: u64,
) -> isize {
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and the memory that of an
    // operation.
    unsafe {
        let local = Ok(Local::buffer(buf, len));
        inner(ep).send(
            Given::Inject(OpFlags::EMPTY),
            local,
            to(dest_addr, tag, 0, ptr::null_mut()),
        )
    }
}

/// kfi_tsenddata().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn senddata(
    ep: *mut kfid_ep,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    data: u64,
    dest_addr: kfi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and the memory and the
    // context are those of an operation.
    unsafe {
        let local = Ok(Local::buffer(buf, len));
        inner(ep).send(
            Given::Default(OpFlags::REMOTE_CQ_DATA),
            local,
            to(dest_addr, tag, data, context),
        )
    }
}

/// kfi_tinjectdata().
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
    tag: u64,
) -> isize {
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and the memory that of an
    // operation.
    unsafe {
        let local = Ok(Local::buffer(buf, len));
        inner(ep).send(
            Given::Inject(OpFlags::REMOTE_CQ_DATA),
            local,
            to(dest_addr, tag, data, ptr::null_mut()),
        )
    }
}

/// The operations of fi_tagged(3) that an endpoint has.
pub(super) static OPS: kfi_ops_tagged = kfi_ops_tagged {
    size: size_of::<kfi_ops_tagged>(),
    recv: Some(recv),
    recvv: Some(recvv),
    recvbv: Some(recvbv),
    recvmsg: Some(recvmsg),
    send: Some(send),
    sendv: Some(sendv),
    sendbv: Some(sendbv),
    sendmsg: Some(sendmsg),
    inject: Some(inject),
    senddata: Some(senddata),
    injectdata: Some(injectdata),
    recvsgl: Some(recvsgl),
    sendsgl: Some(sendsgl),
};
