// SPDX-License-Identifier: GPL-2.0

//! The calls of fi_atomic(3) with an endpoint: each makes an [`AtomicArgs`] of its arguments.
//!
//! # Context
//!
//! That of [`atomic`](super).

use core::ptr;

use kernel::prelude::*;

use kfi_core::{
    flags::OpFlags,
    op::OpType, //
};

use super::{
    super::{
        code,
        object::inner,
        raw::{
            kfi_addr_t,
            kfi_datatype,
            kfi_ioc,
            kfi_msg_atomic,
            kfi_op,
            kfi_ops_atomic,
            kfid_ep, //
        },
        transfer::Given, //
    },
    AtomicArgs,
    Place,
    Values, //
};

/// The arguments of a call that names one piece of remote memory; without values to compare with
/// and results.
fn one(
    kind: OpType,
    (op, datatype): (kfi_op, kfi_datatype),
    operand: Values,
    (peer, addr, key): (kfi_addr_t, u64, u64),
    context: *mut c_void,
) -> AtomicArgs {
    AtomicArgs {
        kind,
        op,
        datatype,
        operand,
        compare: Values::None,
        result: Values::None,
        peer,
        target: Place::One { addr, key },
        data: 0,
        context,
    }
}

/// kfi_atomic().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn write(
    ep: *mut kfid_ep,
    buf: *const c_void,
    count: usize,
    _desc: *mut c_void,
    dest_addr: kfi_addr_t,
    addr: u64,
    key: u64,
    datatype: kfi_datatype,
    op: kfi_op,
    context: *mut c_void,
) -> isize {
    let (function, remote) = ((op, datatype), (dest_addr, addr, key));
    let operand = Values::One(buf, count);
    let args = one(OpType::Atomic, function, operand, remote, context);
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and the arguments are
    // those of an operation.
    unsafe { inner(ep).atomic(Given::DEFAULT, &args) }
}

/// kfi_atomicv().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn writev(
    ep: *mut kfid_ep,
    iov: *const kfi_ioc,
    _desc: *mut *mut c_void,
    count: usize,
    dest_addr: kfi_addr_t,
    addr: u64,
    key: u64,
    datatype: kfi_datatype,
    op: kfi_op,
    context: *mut c_void,
) -> isize {
    let (function, remote) = ((op, datatype), (dest_addr, addr, key));
    let operand = Values::List(iov, count);
    let args = one(OpType::Atomic, function, operand, remote, context);
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and the arguments are
    // those of an operation.
    unsafe { inner(ep).atomic(Given::DEFAULT, &args) }
}

/// kfi_atomicmsg().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn writemsg(ep: *mut kfid_ep, msg: *const kfi_msg_atomic, flags: u64) -> isize {
    // SAFETY: By the interface, `msg` is null or valid.
    let Some(msg) = (unsafe { msg.as_ref() }) else {
        return code(Err(EINVAL)) as isize;
    };
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and `msg` is an operation.
    unsafe {
        let args = AtomicArgs::of_msg(OpType::Atomic, msg, Values::None, Values::None);
        inner(ep).atomic(Given::Explicit(flags), &args)
    }
}

/// kfi_inject_atomic().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn inject(
    ep: *mut kfid_ep,
    buf: *const c_void,
    count: usize,
    dest_addr: kfi_addr_t,
    addr: u64,
    key: u64,
    datatype: kfi_datatype,
    op: kfi_op,
) -> isize {
    let (function, remote) = ((op, datatype), (dest_addr, addr, key));
    let operand = Values::One(buf, count);
    let args = one(OpType::Atomic, function, operand, remote, ptr::null_mut());
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and the arguments are
    // those of an operation.
    unsafe { inner(ep).atomic(Given::Inject(OpFlags::EMPTY), &args) }
}

/// kfi_fetch_atomic().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn readwrite(
    ep: *mut kfid_ep,
    buf: *const c_void,
    count: usize,
    _desc: *mut c_void,
    result: *mut c_void,
    _result_desc: *mut c_void,
    dest_addr: kfi_addr_t,
    addr: u64,
    key: u64,
    datatype: kfi_datatype,
    op: kfi_op,
    context: *mut c_void,
) -> isize {
    let (function, remote) = ((op, datatype), (dest_addr, addr, key));
    let operand = Values::One(buf, count);
    let args = AtomicArgs {
        result: Values::One(result, count),
        ..one(OpType::FetchAtomic, function, operand, remote, context)
    };
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and the arguments are
    // those of an operation.
    unsafe { inner(ep).atomic(Given::DEFAULT, &args) }
}

/// kfi_fetch_atomicv().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn readwritev(
    ep: *mut kfid_ep,
    iov: *const kfi_ioc,
    _desc: *mut *mut c_void,
    count: usize,
    resultv: *mut kfi_ioc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    dest_addr: kfi_addr_t,
    addr: u64,
    key: u64,
    datatype: kfi_datatype,
    op: kfi_op,
    context: *mut c_void,
) -> isize {
    let (function, remote) = ((op, datatype), (dest_addr, addr, key));
    let operand = Values::List(iov, count);
    let args = AtomicArgs {
        result: Values::List(resultv, result_count),
        ..one(OpType::FetchAtomic, function, operand, remote, context)
    };
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and the arguments are
    // those of an operation.
    unsafe { inner(ep).atomic(Given::DEFAULT, &args) }
}

/// kfi_fetch_atomicmsg().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn readwritemsg(
    ep: *mut kfid_ep,
    msg: *const kfi_msg_atomic,
    resultv: *mut kfi_ioc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    // SAFETY: By the interface, `msg` is null or valid.
    let Some(msg) = (unsafe { msg.as_ref() }) else {
        return code(Err(EINVAL)) as isize;
    };
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and `msg` is an operation.
    unsafe {
        let args = AtomicArgs::of_msg(
            OpType::FetchAtomic,
            msg,
            Values::None,
            Values::List(resultv, result_count),
        );
        inner(ep).atomic(Given::Explicit(flags), &args)
    }
}

/// kfi_compare_atomic().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn compwrite(
    ep: *mut kfid_ep,
    buf: *const c_void,
    count: usize,
    _desc: *mut c_void,
    compare: *const c_void,
    _compare_desc: *mut c_void,
    result: *mut c_void,
    _result_desc: *mut c_void,
    dest_addr: kfi_addr_t,
    addr: u64,
    key: u64,
    datatype: kfi_datatype,
    op: kfi_op,
    context: *mut c_void,
) -> isize {
    let (function, remote) = ((op, datatype), (dest_addr, addr, key));
    let operand = Values::One(buf, count);
    let args = AtomicArgs {
        compare: Values::One(compare, count),
        result: Values::One(result, count),
        ..one(OpType::CompareAtomic, function, operand, remote, context)
    };
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and the arguments are
    // those of an operation.
    unsafe { inner(ep).atomic(Given::DEFAULT, &args) }
}

/// kfi_compare_atomicv().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn compwritev(
    ep: *mut kfid_ep,
    iov: *const kfi_ioc,
    _desc: *mut *mut c_void,
    count: usize,
    comparev: *const kfi_ioc,
    _compare_desc: *mut *mut c_void,
    compare_count: usize,
    resultv: *mut kfi_ioc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    dest_addr: kfi_addr_t,
    addr: u64,
    key: u64,
    datatype: kfi_datatype,
    op: kfi_op,
    context: *mut c_void,
) -> isize {
    let (function, remote) = ((op, datatype), (dest_addr, addr, key));
    let operand = Values::List(iov, count);
    let args = AtomicArgs {
        compare: Values::List(comparev, compare_count),
        result: Values::List(resultv, result_count),
        ..one(OpType::CompareAtomic, function, operand, remote, context)
    };
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and the arguments are
    // those of an operation.
    unsafe { inner(ep).atomic(Given::DEFAULT, &args) }
}

/// kfi_compare_atomicmsg().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn compwritemsg(
    ep: *mut kfid_ep,
    msg: *const kfi_msg_atomic,
    comparev: *const kfi_ioc,
    _compare_desc: *mut *mut c_void,
    compare_count: usize,
    resultv: *mut kfi_ioc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    // SAFETY: By the interface, `msg` is null or valid.
    let Some(msg) = (unsafe { msg.as_ref() }) else {
        return code(Err(EINVAL)) as isize;
    };
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and `msg` is an operation.
    unsafe {
        let args = AtomicArgs::of_msg(
            OpType::CompareAtomic,
            msg,
            Values::List(comparev, compare_count),
            Values::List(resultv, result_count),
        );
        inner(ep).atomic(Given::Explicit(flags), &args)
    }
}

/// kfi_atomicvalid().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn writevalid(
    ep: *mut kfid_ep,
    datatype: kfi_datatype,
    op: kfi_op,
    count: *mut usize,
) -> c_int {
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and `count` null or a
    // place to store it.
    code(unsafe { inner(ep).is_valid(OpType::Atomic, datatype, op, count) })
}

/// kfi_fetch_atomicvalid().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn readwritevalid(
    ep: *mut kfid_ep,
    datatype: kfi_datatype,
    op: kfi_op,
    count: *mut usize,
) -> c_int {
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and `count` null or a
    // place to store it.
    code(unsafe { inner(ep).is_valid(OpType::FetchAtomic, datatype, op, count) })
}

/// kfi_compare_atomicvalid().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn compwritevalid(
    ep: *mut kfid_ep,
    datatype: kfi_datatype,
    op: kfi_op,
    count: *mut usize,
) -> c_int {
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and `count` null or a
    // place to store it.
    code(unsafe { inner(ep).is_valid(OpType::CompareAtomic, datatype, op, count) })
}

/// The operations of fi_atomic(3) that an endpoint has.
pub(in crate::capi) static OPS: kfi_ops_atomic = kfi_ops_atomic {
    size: size_of::<kfi_ops_atomic>(),
    write: Some(write),
    writev: Some(writev),
    writemsg: Some(writemsg),
    inject: Some(inject),
    readwrite: Some(readwrite),
    readwritev: Some(readwritev),
    readwritemsg: Some(readwritemsg),
    compwrite: Some(compwrite),
    compwritev: Some(compwritev),
    compwritemsg: Some(compwritemsg),
    writevalid: Some(writevalid),
    readwritevalid: Some(readwritevalid),
    compwritevalid: Some(compwritevalid),
};
