// SPDX-License-Identifier: GPL-2.0

//! `KFABRIC_IOC_POST`: an array of operations, done one after the other in the caller's process.
//!
//! The path of every byte that a program sends begins here, so what can be done once per call is
//! done once: the endpoint is looked up once, and a memory region once for all operations in a row
//! that name it, and what a [`Poster`] shares among them. Nothing is allocated for an operation that
//! brings its bytes along. How one is read and checked stands in [`op`](super::op).
//!
//! An operation that is refused ends the call; those before it stand. A process that is being
//! killed posts no further operation, so a call ends within the time of one.

use kernel::prelude::*;

use kfi_core::limits;

use super::{
    file::OpenFile,
    op::Reader,
    parse::zero, //
};
use crate::{
    provider::ep::{
        post::Poster,
        Endpoint, //
    },
    shim::{
        bindings::{
            kfabric_op,
            kfabric_post, //
        },
        errno,
        sched::{
            cond_resched,
            fatal_signal_pending, //
        },
        user::{
            read_element,
            NoFaults, //
        }, //
    }, //
};

/// Bytes of the first version of `struct kfabric_op`; stays when the structure grows.
const OP_V1_SIZE: usize = 128;

/// How many operations are done before other tasks may run.
const STRIDE: usize = 64;

/// Reads user memory with `read`, and keeps no peer if it is not there and has to be waited for:
/// `read` is called again then.
#[inline(always)]
pub(super) fn without_peer(poster: &mut Poster<'_>, mut read: impl FnMut() -> Result) -> Result {
    if poster.keeps_peer() {
        let no_faults = NoFaults::new();
        if read().is_ok() {
            return Ok(());
        }
        drop(no_faults);
        poster.forget_peer();
    }
    read()
}

/// `KFABRIC_IOC_POST`. `arg.done` and `arg.error` are right whatever is returned.
#[link_section = ".text.hot"]
pub(super) fn post(file: &OpenFile, arg: &mut kfabric_post) -> Result {
    arg.done = 0;
    arg.error = 0;
    let result = post_all(file, arg);
    match result {
        Err(error) => {
            arg.error = errno::number(error);
            if arg.done != 0 {
                return Ok(());
            }
            Err(error)
        }
        Ok(()) => Ok(()),
    }
}

/// Posts until the first error, counting in `arg.done`.
fn post_all(file: &OpenFile, arg: &mut kfabric_post) -> Result {
    zero(&[arg.flags])?;
    if arg.count == 0 || arg.count > limits::MAX_POST {
        return Err(EINVAL);
    }
    let endpoint = file.object::<Endpoint>(arg.ep)?;
    let ops = UserPtr::from_addr(usize::try_from(arg.ops).map_err(|_| EFAULT)?);
    let stride = usize::try_from(arg.op_size)?;
    let mut reader = Reader::new(file);
    let mut poster = Poster::new(&endpoint);
    let mut op = kfabric_op::default();
    for index in 0..arg.count as usize {
        if index % STRIDE == STRIDE - 1 {
            cond_resched();
        }
        if fatal_signal_pending() {
            return Err(EINTR);
        }
        without_peer(&mut poster, || {
            read_element(ops, index, stride, OP_V1_SIZE, &mut op)
        })?;
        reader.post(&op, &mut poster)?;
        arg.done = arg.done.wrapping_add(1);
    }
    Ok(())
}
