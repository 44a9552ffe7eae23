// SPDX-License-Identifier: GPL-2.0

//! Operations that are not there yet. Each returns `-KFI_ENOSYS`.

/// Defines functions of tables of operations that return `-KFI_ENOSYS`.
macro_rules! not_there {
    ($( $name:ident($($arg:ty),* $(,)?) $(-> $ret:ty)?; )*) => {
        $( $crate::capi::absent::not_there!(@one $name($($arg),*) $(-> $ret)?); )*
    };
    (@one $name:ident($($arg:ty),*)) => {
        $crate::capi::absent::not_there!(@one $name($($arg),*) -> c_int);
    };
    (@one $name:ident($($arg:ty),*) -> $ret:ty) => {
        /// Not there yet.
        ///
        /// # Safety
        ///
        /// The requirements of the C interface: pointers are valid, and objects are open objects of
        /// this module.
        unsafe extern "C" fn $name($(_: $arg),*) -> $ret {
            ENOSYS.to_errno() as $ret
        }
    };
}

pub(super) use not_there;

use kernel::{
    bindings::{
        bio_vec,
        kvec,
        scatterlist, //
    },
    prelude::*, //
};

use super::raw::{
    kfi_addr_t,
    kfi_datatype,
    kfi_ioc,
    kfi_msg_atomic,
    kfi_msg_rma,
    kfi_op,
    kfi_ops_atomic,
    kfi_ops_rma,
    kfid_ep, //
};

type Ptr = *mut c_void;
type ConstPtr = *const c_void;
type Descs = *mut *mut c_void;
type Ep = *mut kfid_ep;
type Addr = kfi_addr_t;
type Type = kfi_datatype;
type AtomicOp = kfi_op;

not_there! {
    rma_buf(Ep, Ptr, usize, Ptr, Addr, u64, u64, Ptr) -> isize;
    rma_constbuf(Ep, ConstPtr, usize, Ptr, Addr, u64, u64, Ptr) -> isize;
    rma_v(Ep, *const kvec, Descs, usize, Addr, u64, u64, Ptr) -> isize;
    rma_bv(Ep, *const bio_vec, Descs, usize, Addr, u64, u64, Ptr) -> isize;
    rma_sgl(Ep, *const scatterlist, Descs, usize, Addr, u64, u64, Ptr) -> isize;
    rma_msg(Ep, *const kfi_msg_rma, u64) -> isize;
    rma_inject(Ep, ConstPtr, usize, Addr, u64, u64) -> isize;
    rma_data(Ep, ConstPtr, usize, Ptr, u64, Addr, u64, u64, Ptr) -> isize;
    rma_injectdata(Ep, ConstPtr, usize, u64, Addr, u64, u64) -> isize;
    atomic_buf(Ep, ConstPtr, usize, Ptr, Addr, u64, u64, Type, AtomicOp, Ptr) -> isize;
    atomic_v(Ep, *const kfi_ioc, Descs, usize, Addr, u64, u64, Type, AtomicOp, Ptr) -> isize;
    atomic_msg(Ep, *const kfi_msg_atomic, u64) -> isize;
    atomic_inject(Ep, ConstPtr, usize, Addr, u64, u64, Type, AtomicOp) -> isize;
    fetch_buf(Ep, ConstPtr, usize, Ptr, Ptr, Ptr, Addr, u64, u64, Type, AtomicOp, Ptr) -> isize;
    fetch_v(Ep, *const kfi_ioc, Descs, usize, *mut kfi_ioc, Descs, usize, Addr, u64, u64, Type,
        AtomicOp, Ptr) -> isize;
    fetch_msg(Ep, *const kfi_msg_atomic, *mut kfi_ioc, Descs, usize, u64) -> isize;
    compare_buf(Ep, ConstPtr, usize, Ptr, ConstPtr, Ptr, Ptr, Ptr, Addr, u64, u64, Type, AtomicOp,
        Ptr) -> isize;
    compare_v(Ep, *const kfi_ioc, Descs, usize, *const kfi_ioc, Descs, usize, *mut kfi_ioc, Descs,
        usize, Addr, u64, u64, Type, AtomicOp, Ptr) -> isize;
    compare_msg(Ep, *const kfi_msg_atomic, *const kfi_ioc, Descs, usize, *mut kfi_ioc, Descs, usize,
        u64) -> isize;
    valid(Ep, Type, AtomicOp, *mut usize);
}

pub(super) static RMA_OPS: kfi_ops_rma = kfi_ops_rma {
    size: size_of::<kfi_ops_rma>(),
    read: Some(rma_buf),
    readv: Some(rma_v),
    readbv: Some(rma_bv),
    readmsg: Some(rma_msg),
    write: Some(rma_constbuf),
    writev: Some(rma_v),
    writebv: Some(rma_bv),
    writemsg: Some(rma_msg),
    inject: Some(rma_inject),
    writedata: Some(rma_data),
    injectdata: Some(rma_injectdata),
    readsgl: Some(rma_sgl),
    writesgl: Some(rma_sgl),
};

pub(super) static ATOMIC_OPS: kfi_ops_atomic = kfi_ops_atomic {
    size: size_of::<kfi_ops_atomic>(),
    write: Some(atomic_buf),
    writev: Some(atomic_v),
    writemsg: Some(atomic_msg),
    inject: Some(atomic_inject),
    readwrite: Some(fetch_buf),
    readwritev: Some(fetch_v),
    readwritemsg: Some(fetch_msg),
    compwrite: Some(compare_buf),
    compwritev: Some(compare_v),
    compwritemsg: Some(compare_msg),
    writevalid: Some(valid),
    readwritevalid: Some(valid),
    compwritevalid: Some(valid),
};
