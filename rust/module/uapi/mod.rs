// SPDX-License-Identifier: GPL-2.0

//! Face two: `/dev/kfabric`, the objects of the provider for programs.
//!
//! `include/uapi/kfabric.h` says what each call takes, gives and refuses; this folder does what it
//! says and nothing else. One call goes one way:
//!
//! ```text
//! ioctl(2) -> device -> dispatch: copies the argument in
//!                         -> link, info, fabric, eq, ... , post: check, make values that cannot
//!                                                               be bad, call the provider
//!                       dispatch: copies the answer out, publishes the handle <-
//! ```
//!
//! [`device`] is the node, [`file`] one open file of it: who opened it, in which network
//! namespace, and the table of its [`handles`]. [`objects`] is what a handle can name. When the
//! file goes, [`teardown`] takes everything down in order of dependence. [`mmap`] maps CQ rings
//! and counters. [`parse`] has the checks that several calls share.
//! [`calls`] is the table of calls; [`header`] compares it, and the numbers of the module, with the
//! interface's header. [`debugfs`] shows figures to a person.
//!
//! Two rules hold in every call. What comes from the program is checked here, once, before
//! anything is made. And a call that fails leaves nothing behind: an object whose handle could not
//! be told is closed again, an entry that could not be copied out stays where it was.
//!
//! Everything here runs in process context, in the program's own task.

mod av;
mod bind;
mod calls;
mod cntr;
mod cq;
mod debugfs;
mod device;
mod dispatch;
mod ep;
mod eq;
mod fabric;
mod figures;
mod file;
mod handles;
// rustc 1.85 does not count a use in an anonymous constant.
#[allow(dead_code)]
mod header;
mod info;
mod link;
mod mmap;
mod mr;
mod objects;
mod op;
mod parse;
mod pep;
mod post;
mod stat;
mod teardown;
mod wait;

pub(crate) use self::{
    debugfs::Debugfs,
    device::register,
    file::OpenFile, //
};

#[cfg(kfi_kunit)]
#[path = "../../../kunit/uapi.rs"]
mod kunit;
