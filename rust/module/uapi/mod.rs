// SPDX-License-Identifier: GPL-2.0

//! The front end for programs: `/dev/kfabric`.
//!
//! `include/uapi/kfabric.h` defines the arguments, results and errors of each call; this folder
//! implements it. A call goes this way:
//!
//! ```text
//! ioctl(2) -> file -> dispatch: copies the argument in
//!                       -> info, fabric, eq, ... , post: validate, convert to types without
//!                                                              invalid values, call the provider
//!                     dispatch: copies the results out, publishes the handle <-
//! ```
//!
//! [`file`] is the device node and its open files: opening, calls, mapping CQ rings and counters,
//! release. A file has an owner and a table of [`handles`]. [`objects`] has the classes of objects
//! that a handle can name. [`parse`] has the checks that several calls share. [`calls`] is the
//! table of calls; [`header`] compares it, and the numbers of the module, with the header of the
//! interface.
//!
//! Two rules hold for every call. Input from the program is validated here, once, before anything
//! is created. A call that fails leaves nothing behind: an object whose handle could not be
//! reported is closed again, and an entry that could not be copied out stays in its queue.
//!
//! Everything here runs in process context, in the program's own task.

mod alias;
mod av;
mod calls;
mod cntr;
mod comp_cntr;
mod cq;
mod destination;
mod dispatch;
mod ep;
mod eq;
mod fabric;
mod file;
mod flow;
mod handles;
// rustc 1.85 does not count a use in an anonymous constant.
#[allow(dead_code)]
mod header;
mod info;
mod mr;
mod objects;
mod parse;
mod post;
mod prelude;
mod sep;
mod shared;
mod stat;
mod wait;
mod work;

pub(crate) use self::{
    file::{
        register,
        OpenFile, //
    },
    stat::Debugfs, //
};

#[cfg(kfi_kunit)]
#[path = "../../../kunit/uapi.rs"]
mod kunit;
