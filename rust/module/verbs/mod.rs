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
//! | [`context`] | what a program has of a device |
//!
//! # Safety of the interface
//!
//! `kfabric_ib.ko` is the only caller, and keeps the rules of `bindings.h`, which the safety comments
//! here refer to as "the interface". A handle is one that a function has returned, and the function
//! that ends it has not been called. A pointer to an argument is valid during the call.

mod context;
mod device;

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

/// A new handle, or the error as a pointer.
fn handle<T: ForeignOwnable, Raw>(object: Result<T>) -> *mut Raw {
    match object {
        Ok(object) => object.into_foreign().cast(),
        Err(error) => error.to_ptr(),
    }
}
