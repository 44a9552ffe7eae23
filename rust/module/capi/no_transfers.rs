// SPDX-License-Identifier: GPL-2.0

//! The tables of transfers of an object that has none: a scalable endpoint, whose contexts transfer.
//! Each operation returns `-KFI_ENOSYS`, in any context.

use kernel::{
    bindings::{
        bio_vec,
        kvec,
        scatterlist, //
    },
    prelude::*, //
};

use super::{
    absent::not_there,
    raw::{
        kfi_addr_t,
        kfi_datatype,
        kfi_ioc,
        kfi_msg,
        kfi_msg_atomic,
        kfi_msg_rma,
        kfi_msg_tagged,
        kfi_op,
        kfi_ops_atomic,
        kfi_ops_msg,
        kfi_ops_rma,
        kfi_ops_tagged,
        kfid_ep, //
    }, //
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
            not_there! { $( $slot($($arg),*) -> $ret; )* }
            $ops {
                size: size_of::<$ops>(),
                $( $slot: Some($slot), )*
            }
        };
    };
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
