// SPDX-License-Identifier: GPL-2.0

//! Tables of operations of which each returns `-KFI_ENOSYS`: what an object does not have.
//!
//! A table of an object takes the slots that it does not fill from the table here
//! (`..absent::EP`), so no slot is empty.
//!
//! # Context
//!
//! All operations of this file can be called in any context.

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
    kfi_msg,
    kfi_msg_atomic,
    kfi_msg_rma,
    kfi_msg_tagged,
    kfi_op,
    kfi_ops,
    kfi_ops_atomic,
    kfi_ops_cm,
    kfi_ops_ep,
    kfi_ops_msg,
    kfi_ops_rma,
    kfi_ops_tagged,
    kfi_rx_attr,
    kfi_tx_attr,
    kfid,
    kfid_ep,
    kfid_mc,
    kfid_pep,
    kfid_t, //
};

type Ep = *mut kfid_ep;
type Buf = *mut c_void;
type ConstBuf = *const c_void;
type Desc = *mut c_void;
type Descs = *mut *mut c_void;
type Addr = kfi_addr_t;
type OpContext = *mut c_void;

/// Defines a table whose operations return `-KFI_ENOSYS`.
macro_rules! table {
    ($(#[$doc:meta])* $table:ident: $ops:ident {
        $( $slot:ident($($arg:ty),*) -> $ret:ty; )*
    }) => {
        $(#[$doc])*
        pub(super) static $table: $ops = {
            $(
                /// Returns `-KFI_ENOSYS`.
                ///
                /// # Safety
                ///
                /// The requirements of the C interface: pointers are valid, and objects are open
                /// objects of this module.
                unsafe extern "C" fn $slot($(_: $arg),*) -> $ret {
                    ENOSYS.to_errno() as $ret
                }
            )*
            $ops {
                size: size_of::<$ops>(),
                $( $slot: Some($slot), )*
            }
        };
    };
}

table! {
    /// What all objects have.
    FID: kfi_ops {
        close(*mut kfid) -> c_int;
        bind(*mut kfid, *mut kfid, u64) -> c_int;
        control(*mut kfid, c_int, *mut c_void) -> c_int;
        ops_open(*mut kfid, *const c_char, u64, *mut *mut c_void, *mut c_void) -> c_int;
    }
}

table! {
    /// fi_endpoint(3).
    EP: kfi_ops_ep {
        cancel(*mut kfid, *mut c_void) -> isize;
        getopt(*mut kfid, c_int, c_int, *mut c_void, *mut usize) -> c_int;
        setopt(*mut kfid, c_int, c_int, *const c_void, usize) -> c_int;
        tx_ctx(Ep, c_int, *mut kfi_tx_attr, *mut Ep, *mut c_void) -> c_int;
        rx_ctx(Ep, c_int, *mut kfi_rx_attr, *mut Ep, *mut c_void) -> c_int;
    }
}

table! {
    /// fi_cm(3).
    CM: kfi_ops_cm {
        setname(kfid_t, *mut c_void, usize) -> c_int;
        getname(*mut kfid, *mut c_void, *mut usize) -> c_int;
        getpeer(Ep, *mut c_void, *mut usize) -> c_int;
        connect(Ep, *const c_void, *const c_void, usize) -> c_int;
        listen(*mut kfid_pep) -> c_int;
        accept(Ep, *const c_void, usize) -> c_int;
        reject(*mut kfid_pep, kfid_t, *const c_void, usize) -> c_int;
        shutdown(Ep, u64) -> c_int;
        join(Ep, *const c_void, u64, *mut *mut kfid_mc, *mut c_void) -> c_int;
    }
}

table! {
    /// fi_msg(3).
    MSG: kfi_ops_msg {
        recv(Ep, Buf, usize, Desc, Addr, OpContext) -> isize;
        recvv(Ep, *const kvec, Descs, usize, Addr, OpContext) -> isize;
        recvbv(Ep, *const bio_vec, Descs, usize, Addr, OpContext) -> isize;
        recvmsg(Ep, *const kfi_msg, u64) -> isize;
        send(Ep, ConstBuf, usize, Desc, Addr, OpContext) -> isize;
        sendv(Ep, *const kvec, Descs, usize, Addr, OpContext) -> isize;
        sendbv(Ep, *const bio_vec, Descs, usize, Addr, OpContext) -> isize;
        sendmsg(Ep, *const kfi_msg, u64) -> isize;
        inject(Ep, ConstBuf, usize, Addr) -> isize;
        senddata(Ep, ConstBuf, usize, Desc, u64, Addr, OpContext) -> isize;
        injectdata(Ep, ConstBuf, usize, u64, Addr) -> isize;
        recvsgl(Ep, *const scatterlist, Descs, usize, Addr, OpContext) -> isize;
        sendsgl(Ep, *const scatterlist, Descs, usize, Addr, OpContext) -> isize;
    }
}

table! {
    /// fi_tagged(3).
    TAGGED: kfi_ops_tagged {
        recv(Ep, Buf, usize, Desc, Addr, u64, u64, OpContext) -> isize;
        recvv(Ep, *const kvec, Descs, usize, Addr, u64, u64, OpContext) -> isize;
        recvbv(Ep, *const bio_vec, Descs, usize, Addr, u64, u64, OpContext) -> isize;
        recvmsg(Ep, *const kfi_msg_tagged, u64) -> isize;
        send(Ep, ConstBuf, usize, Desc, Addr, u64, OpContext) -> isize;
        sendv(Ep, *const kvec, Descs, usize, Addr, u64, OpContext) -> isize;
        sendbv(Ep, *const bio_vec, Descs, usize, Addr, u64, OpContext) -> isize;
        sendmsg(Ep, *const kfi_msg_tagged, u64) -> isize;
        inject(Ep, ConstBuf, usize, Addr, u64) -> isize;
        senddata(Ep, ConstBuf, usize, Desc, u64, Addr, u64, OpContext) -> isize;
        injectdata(Ep, ConstBuf, usize, u64, Addr, u64) -> isize;
        recvsgl(Ep, *const scatterlist, Descs, usize, Addr, u64, u64, OpContext) -> isize;
        sendsgl(Ep, *const scatterlist, Descs, usize, Addr, u64, OpContext) -> isize;
    }
}

table! {
    /// fi_rma(3).
    RMA: kfi_ops_rma {
        read(Ep, Buf, usize, Desc, Addr, u64, u64, OpContext) -> isize;
        readv(Ep, *const kvec, Descs, usize, Addr, u64, u64, OpContext) -> isize;
        readbv(Ep, *const bio_vec, Descs, usize, Addr, u64, u64, OpContext) -> isize;
        readmsg(Ep, *const kfi_msg_rma, u64) -> isize;
        write(Ep, ConstBuf, usize, Desc, Addr, u64, u64, OpContext) -> isize;
        writev(Ep, *const kvec, Descs, usize, Addr, u64, u64, OpContext) -> isize;
        writebv(Ep, *const bio_vec, Descs, usize, Addr, u64, u64, OpContext) -> isize;
        writemsg(Ep, *const kfi_msg_rma, u64) -> isize;
        inject(Ep, ConstBuf, usize, Addr, u64, u64) -> isize;
        writedata(Ep, ConstBuf, usize, Desc, u64, Addr, u64, u64, OpContext) -> isize;
        injectdata(Ep, ConstBuf, usize, u64, Addr, u64, u64) -> isize;
        readsgl(Ep, *const scatterlist, Descs, usize, Addr, u64, u64, OpContext) -> isize;
        writesgl(Ep, *const scatterlist, Descs, usize, Addr, u64, u64, OpContext) -> isize;
    }
}

type Ioc = *const kfi_ioc;
type Results = *mut kfi_ioc;

table! {
    /// fi_atomic(3).
    ATOMIC: kfi_ops_atomic {
        write(Ep, ConstBuf, usize, Desc, Addr, u64, u64, kfi_datatype, kfi_op, OpContext) -> isize;
        writev(Ep, Ioc, Descs, usize, Addr, u64, u64, kfi_datatype, kfi_op, OpContext) -> isize;
        writemsg(Ep, *const kfi_msg_atomic, u64) -> isize;
        inject(Ep, ConstBuf, usize, Addr, u64, u64, kfi_datatype, kfi_op) -> isize;
        readwrite(
            Ep, ConstBuf, usize, Desc, Buf, Desc, Addr, u64, u64, kfi_datatype, kfi_op, OpContext
        ) -> isize;
        readwritev(
            Ep, Ioc, Descs, usize, Results, Descs, usize, Addr, u64, u64, kfi_datatype, kfi_op,
            OpContext
        ) -> isize;
        readwritemsg(Ep, *const kfi_msg_atomic, Results, Descs, usize, u64) -> isize;
        compwrite(
            Ep, ConstBuf, usize, Desc, ConstBuf, Desc, Buf, Desc, Addr, u64, u64, kfi_datatype,
            kfi_op, OpContext
        ) -> isize;
        compwritev(
            Ep, Ioc, Descs, usize, Ioc, Descs, usize, Results, Descs, usize, Addr, u64, u64,
            kfi_datatype, kfi_op, OpContext
        ) -> isize;
        compwritemsg(
            Ep, *const kfi_msg_atomic, Ioc, Descs, usize, Results, Descs, usize, u64
        ) -> isize;
        writevalid(Ep, kfi_datatype, kfi_op, *mut usize) -> c_int;
        readwritevalid(Ep, kfi_datatype, kfi_op, *mut usize) -> c_int;
        compwritevalid(Ep, kfi_datatype, kfi_op, *mut usize) -> c_int;
    }
}
