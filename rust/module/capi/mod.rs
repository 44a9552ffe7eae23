// SPDX-License-Identifier: GPL-2.0

//! The front end for kernel modules in C: kfabric 1.7, as `include/kfi/` has it.
//!
//! A consumer calls the exported functions ([`provider`]) and the operations of objects. Each
//! object is memory of the module that begins with the C structure (`struct kfid_cntr`, ...),
//! behind which stands the provider's object ([`object`]). The operations translate arguments and
//! results, and call the provider.
//!
//! | file | topic |
//! |---|---|
//! | [`provider`] | exported functions: registration, kfi_getinfo(), kfi_fabric() |
//! | [`info`] | entries and hints of kfi_getinfo() |
//! | [`listed`] | open fabrics and domains, and those that hints name |
//! | [`object`] | what all objects have: memory, classes, closing |
//! | [`opened`] | what is open of a fabric, told when it cannot be closed |
//! | [`fabric`] | operations of fabrics |
//! | [`domain`] | operations of domains |
//! | [`av`] | operations of address vectors |
//! | [`ep`] | operations of endpoints and contexts, and their aliases |
//! | [`sep`] | operations of scalable endpoints |
//! | [`shared`] | shared contexts |
//! | [`options`] | names, options and default flags of endpoints of all classes |
//! | [`cm`] | connections of endpoints |
//! | [`pep`] | operations of passive endpoints, requests for connections |
//! | [`mr`] | operations of memory regions, and those that register memory |
//! | [`buffers`] | what a consumer passes as memory: addresses, pages, scatterlists |
//! | [`transfer`] | what all transfers have: flags, local memory, the context of the caller |
//! | [`msg`], [`tagged`] | messages |
//! | [`rma`] | remote memory access |
//! | [`atomic`] | atomics |
//! | [`remote`] | what a consumer passes as memory of a peer |
//! | [`work`] | deferred work |
//! | [`absent`] | tables of operations that objects do not have |
//! | [`cntr`] | operations of counters |
//! | [`cq`] | operations of completion queues |
//! | [`eq`] | operations of event queues |
//! | [`wait`] | operations of wait sets, and the wait objects of others |
//! | [`poll`] | operations of poll sets |
//!
//! # Safety of the interface
//!
//! C consumers are part of the kernel: they keep the rules of `include/kfi/`, which the safety
//! comments here refer to as "the interface". A pointer to an object is one that an operation has
//! stored and kfi_close() has not freed. No call with an object is running while kfi_close() closes
//! it. A pointer to an argument is valid during the call. What a consumer can get wrong without
//! breaking these rules (flags, enumerators, objects of another class or of another provider) gives
//! an error.
//!
//! # Ownership
//!
//! A fabric belongs to the process that opens it, with its user and its memory cgroup, and so do
//! all objects that are made from it. An open fabric keeps the module loaded.

mod absent;
mod atomic;
mod av;
mod buffers;
mod cm;
mod cntr;
mod cq;
mod domain;
mod ep;
mod eq;
mod fabric;
mod info;
mod listed;
mod mr;
mod msg;
mod object;
mod opened;
mod options;
mod pep;
mod poll;
mod provider;
mod remote;
mod rma;
mod sep;
mod shared;
mod tagged;
mod transfer;
mod wait;
mod work;

#[allow(
    dead_code,
    improper_ctypes,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
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
    //! The structures and constants of `include/kfi/`, and the functions of `shim/capi.c`. bindgen
    //! generates them from `bindings.h`.

    include!(env!("KFI_CAPI_BINDINGS"));
}

use kernel::{
    prelude::*,
    sync::Arc, //
};

use kfi_core::wait::Deadline;

use crate::{
    mem::Budget,
    provider::object::Ident,
    shim::{
        cred::Owner,
        reclaim::OwnerKind,
        sched::now_ns, //
    }, //
};

pub(crate) use self::provider::Registration;

use self::opened::Opened;

/// Nanoseconds of a millisecond, the unit of timeouts.
const MS: u64 = 1_000_000;

/// The result of an operation: 0, or a negative error number.
fn code(result: Result) -> c_int {
    match result {
        Ok(()) => 0,
        // A kernel module's call is not restarted.
        Err(error) if error == ERESTARTSYS => EINTR.to_errno(),
        Err(error) => error.to_errno(),
    }
}

/// The deadline of a timeout in milliseconds: 0 polls, a negative one is infinite.
fn deadline(timeout: c_int) -> Deadline {
    match u64::try_from(timeout) {
        Err(_) => Deadline::Forever,
        Ok(0) => Deadline::Poll,
        Ok(ms) => Deadline::At(now_ns().saturating_add(ms.saturating_mul(MS))),
    }
}

/// The process that opened a fabric, to which the objects made from it belong.
#[derive(Clone)]
struct Opener {
    owner: Arc<Owner>,
    budget: Budget,
    opened: Arc<Opened>,
}

impl Opener {
    /// The current process. Fails with `ENOMEM`. Sleeps.
    fn current() -> Result<Self> {
        Ok(Self {
            owner: Owner::current(OwnerKind::Consumer)?,
            budget: Budget::current(OwnerKind::Consumer)?,
            opened: Opened::new()?,
        })
    }

    /// The identity of an object at `addr`.
    fn ident(&self, addr: u64, context: *mut c_void) -> Ident {
        Ident {
            fid: addr,
            context: context.expose_provenance() as u64,
            owner: self.owner.clone(),
            budget: self.budget.clone(),
        }
    }
}
