// SPDX-License-Identifier: GPL-2.0

//! Tagged messages: fi_tagged(3).
//!
//! # Context
//!
//! All operations of this file can be called in process context and in softirqs, also under spin
//! locks. See [`transfer`](super::transfer).

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
pub(super) fn send_args(msg: &kfi_msg_tagged) -> SendArgs {
    SendArgs {
        peer: msg.addr,
        data: msg.data,
        tag: Some(Tag {
            tag: msg.tag,
            ignore: 0,
        }),
        context: msg.context,
    }
}

/// The other arguments of a receive.
pub(super) fn receive_args(msg: &kfi_msg_tagged) -> ReceiveArgs {
    ReceiveArgs {
        peer: msg.addr,
        tag: Some(Tag {
            tag: msg.tag,
            ignore: msg.ignore,
        }),
        context: msg.context,
    }
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
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and the memory that of an
    // operation.
    let (ep, local) = unsafe { (inner(ep), Ok(Local::buffer(buf, len))) };
    let args = ReceiveArgs {
        peer: src_addr,
        tag: Some(Tag { tag, ignore }),
        context,
    };
    // SAFETY: By the interface, the context is that of an operation.
    unsafe { ep.receive(Given::Default(OpFlags::EMPTY), local, args) }
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
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and the memory that of an
    // operation.
    let (ep, local) = unsafe { (inner(ep), Local::list(Elements::Kvec(iov), count)) };
    let args = ReceiveArgs {
        peer: src_addr,
        tag: Some(Tag { tag, ignore }),
        context,
    };
    // SAFETY: By the interface, the context is that of an operation.
    unsafe { ep.receive(Given::Default(OpFlags::EMPTY), local, args) }
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
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and the memory that of an
    // operation.
    let (ep, local) = unsafe { (inner(ep), Local::list(Elements::Bvec(biov), count)) };
    let args = ReceiveArgs {
        peer: src_addr,
        tag: Some(Tag { tag, ignore }),
        context,
    };
    // SAFETY: By the interface, the context is that of an operation.
    unsafe { ep.receive(Given::Default(OpFlags::EMPTY), local, args) }
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
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and the memory that of an
    // operation.
    let (ep, local) = unsafe { (inner(ep), Local::list(Elements::Sgl(sgl), count)) };
    let args = ReceiveArgs {
        peer: src_addr,
        tag: Some(Tag { tag, ignore }),
        context,
    };
    // SAFETY: By the interface, the context is that of an operation.
    unsafe { ep.receive(Given::Default(OpFlags::EMPTY), local, args) }
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
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and the memory that of an
    // operation.
    let (ep, local) = unsafe { (inner(ep), Ok(Local::buffer(buf, len))) };
    let args = SendArgs {
        peer: dest_addr,
        data: 0,
        tag: Some(Tag { tag, ignore: 0 }),
        context,
    };
    // SAFETY: By the interface, the context is that of an operation.
    unsafe { ep.send(Given::Default(OpFlags::EMPTY), local, args) }
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
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and the memory that of an
    // operation.
    let (ep, local) = unsafe { (inner(ep), Local::list(Elements::Kvec(iov), count)) };
    let args = SendArgs {
        peer: dest_addr,
        data: 0,
        tag: Some(Tag { tag, ignore: 0 }),
        context,
    };
    // SAFETY: By the interface, the context is that of an operation.
    unsafe { ep.send(Given::Default(OpFlags::EMPTY), local, args) }
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
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and the memory that of an
    // operation.
    let (ep, local) = unsafe { (inner(ep), Local::list(Elements::Bvec(biov), count)) };
    let args = SendArgs {
        peer: dest_addr,
        data: 0,
        tag: Some(Tag { tag, ignore: 0 }),
        context,
    };
    // SAFETY: By the interface, the context is that of an operation.
    unsafe { ep.send(Given::Default(OpFlags::EMPTY), local, args) }
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
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and the memory that of an
    // operation.
    let (ep, local) = unsafe { (inner(ep), Local::list(Elements::Sgl(sgl), count)) };
    let args = SendArgs {
        peer: dest_addr,
        data: 0,
        tag: Some(Tag { tag, ignore: 0 }),
        context,
    };
    // SAFETY: By the interface, the context is that of an operation.
    unsafe { ep.send(Given::Default(OpFlags::EMPTY), local, args) }
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
    let (ep, local) = unsafe { (inner(ep), Ok(Local::buffer(buf, len))) };
    let args = SendArgs {
        peer: dest_addr,
        data: 0,
        tag: Some(Tag { tag, ignore: 0 }),
        context: core::ptr::null_mut(),
    };
    // SAFETY: By the interface, the context is that of an operation.
    unsafe { ep.send(Given::Inject(OpFlags::EMPTY), local, args) }
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
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and the memory that of an
    // operation.
    let (ep, local) = unsafe { (inner(ep), Ok(Local::buffer(buf, len))) };
    let args = SendArgs {
        peer: dest_addr,
        data,
        tag: Some(Tag { tag, ignore: 0 }),
        context,
    };
    // SAFETY: By the interface, the context is that of an operation.
    unsafe { ep.send(Given::Default(OpFlags::REMOTE_CQ_DATA), local, args) }
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
    let (ep, local) = unsafe { (inner(ep), Ok(Local::buffer(buf, len))) };
    let args = SendArgs {
        peer: dest_addr,
        data,
        tag: Some(Tag { tag, ignore: 0 }),
        context: core::ptr::null_mut(),
    };
    // SAFETY: By the interface, the context is that of an operation.
    unsafe { ep.send(Given::Inject(OpFlags::REMOTE_CQ_DATA), local, args) }
}

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
