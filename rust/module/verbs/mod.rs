// SPDX-License-Identifier: GPL-2.0

//! The front end for verbs: devices of the kernel's RDMA subsystem.
//!
//! `kfabric_ib.ko` registers an `ib_device` for each [`Device`](device::Device) and translates its
//! operations, in C, into calls of the functions that `bindings.h` declares. They are defined here
//! and exported to that module alone. This module does not depend on the RDMA subsystem.
//!
//! | file | topic |
//! |---|---|
//! | [`device`] | a device on a link |
//! | [`context`] | the context of a program, or of the kernel callers |
//! | [`map`] | memory that programs map |
//! | [`pd`] | protection domains |
//! | [`keys`] | the keys of a PD, and accesses of peers |
//! | [`mr`] | memory regions |
//! | [`fast_mr`] | memory regions whose memory changes by work requests |
//! | [`sge`] | lists of SGEs: the memory of a work request |
//! | [`cq`], [`cq_ring`] | completion queues, and their entries |
//! | [`cq_map`] | entries in memory that a program maps |
//! | [`recv`] | receives that wait for messages, of a QP or an SRQ |
//! | [`srq`] | shared receive queues |
//! | [`qp`] | queue pairs |
//! | [`modify`] | changes of their state |
//! | [`post`] | posting work requests and receives |
//! | [`send`], [`issue`] | the send queue, and from it to the QP of `net` |
//! | [`rc`], [`ud`] | what arrives at a QP |
//! | [`gsi`] | the GSI QP |
//! | [`comp_cntr`] | completion counters, and what a QP counts |
//! | [`flow`] | counters of packets, and flows of QPs |
//! | [`callbacks`] | the functions of `kfabric_ib.ko` that report completions and events |
//!
//! # Safety of the interface
//!
//! `kfabric_ib.ko` is the only caller, and keeps the rules of `bindings.h`, which the safety
//! comments here refer to as "the interface". A handle is one that a function has returned, and the
//! function that ends it has not been called. A pointer to an argument is valid during the call.

mod callbacks;
mod comp_cntr;
mod context;
mod cq;
mod cq_map;
mod cq_ring;
mod device;
mod fast_mr;
mod flow;
mod gsi;
mod issue;
mod keys;
mod map;
mod modify;
mod mr;
mod pd;
mod post;
mod qp;
mod rc;
mod recv;
mod send;
mod sge;
mod srq;
mod ud;

#[cfg(kfi_kunit)]
#[path = "../../../kunit/verbs_counters.rs"]
mod kunit_counters;
#[cfg(kfi_kunit)]
#[path = "../../../kunit/verbs_cq.rs"]
mod kunit_cq;
#[cfg(kfi_kunit)]
#[path = "../../../kunit/verbs_cq_map.rs"]
mod kunit_cq_map;
#[cfg(kfi_kunit)]
#[path = "../../../kunit/verbs_fast_mr.rs"]
mod kunit_fast_mr;
#[cfg(kfi_kunit)]
#[path = "../../../kunit/verbs_fixture.rs"]
mod kunit_fixture;
#[cfg(kfi_kunit)]
#[path = "../../../kunit/verbs_gsi.rs"]
mod kunit_gsi;
#[cfg(kfi_kunit)]
#[path = "../../../kunit/verbs_memory.rs"]
mod kunit_memory;
#[cfg(kfi_kunit)]
#[path = "../../../kunit/verbs_queues.rs"]
mod kunit_queues;
#[cfg(kfi_kunit)]
#[path = "../../../kunit/verbs_send.rs"]
mod kunit_send;
#[cfg(kfi_kunit)]
#[path = "../../../kunit/verbs_sge.rs"]
mod kunit_sge;

#[allow(
    dead_code,
    improper_ctypes,
    missing_docs,
    non_camel_case_types,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    unused_imports,
    clippy::all,
    clippy::ptr_as_ptr,
    clippy::ref_as_ptr,
    clippy::undocumented_unsafe_blocks,
    reason = "made by bindgen"
)]
mod raw {
    //! The structures and functions of `bindings.h`, from which bindgen generates them.

    include!(env!("KFI_VERBS_BINDINGS"));
}

use kernel::{
    prelude::*,
    types::ForeignOwnable, //
};

/// Asserts that a function here has the type that `bindings.h` declares.
macro_rules! declared {
    ($($name:ident: fn($($arg:ty),* $(,)?) $(-> $ret:ty)?;)*) => {
        $(const _: [unsafe extern "C" fn($($arg),*) $(-> $ret)?; 2] = [super::raw::$name, $name];)*
    };
}
use declared;

/// The result of a function: 0, or a negative error number.
fn code(result: Result) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => error.to_errno(),
    }
}

/// A new handle, or the error as a pointer.
fn handle<T: ForeignOwnable, Raw>(object: Result<T>) -> *mut Raw {
    match object {
        Ok(object) => object.into_foreign().cast(),
        Err(error) => error.to_ptr(),
    }
}
