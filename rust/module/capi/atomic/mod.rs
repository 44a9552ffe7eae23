// SPDX-License-Identifier: GPL-2.0

//! Atomics: fi_atomic(3).
//!
//! [`calls`] has the calls of endpoints. They all end in [`OpenEp::post_atomic`], which deferred
//! work calls, too.
//!
//! # Context
//!
//! Queries can be called in any context, operations in process context and in softirqs, also under
//! spin locks. See [`transfer`](super::transfer).

mod calls;

use core::ptr;

use kernel::{
    bindings::kvec,
    prelude::*, //
};

use kfi_core::{
    atomic::Function,
    enums::{
        AtomicOp,
        Datatype,
        EpType, //
    },
    limits::MAX_IOV,
    op::OpType, //
};

use super::{
    buffers::{
        Elements,
        Local, //
    },
    code,
    ep::OpenEp,
    raw::{
        kfi_atomic_attr,
        kfi_datatype,
        kfi_ioc,
        kfi_msg_atomic,
        kfi_op,
        kfid_domain, //
    },
    remote::Target,
    transfer::{
        number,
        Call,
        Given, //
    }, //
};
use crate::{
    mem::{
        Access,
        Inline,
        MemRef,
        Source, //
    },
    provider::ep::{
        admit::Context,
        atomic,
        op::{
            Atomic,
            Op, //
        }, //
    },
    shim::errno::to_error, //
};

pub(super) use self::calls::OPS;

/// The operation and the type of these numbers. Fails with `EINVAL` if one of them is unknown.
fn numbers(op: kfi_op, datatype: kfi_datatype) -> Result<(AtomicOp, Datatype)> {
    Ok((
        AtomicOp::try_from(op).map_err(to_error)?,
        Datatype::try_from(datatype).map_err(to_error)?,
    ))
}

/// The function with these numbers. Fails with `EINVAL` for an unknown operation or type;
/// `EOPNOTSUPP` if the form does not have it.
fn function(kind: OpType, op: kfi_op, datatype: kfi_datatype) -> Result<Function> {
    let (op, datatype) = numbers(op, datatype)?;
    Function::new(kind, op, datatype).map_err(to_error)
}

/// The operation in the form that has the fewest operands and results. kfi_query_atomic() has no
/// flags that tell the form. Fails with `EOPNOTSUPP` if it is not defined for the type.
fn plain(op: AtomicOp, datatype: Datatype) -> Result<Function> {
    let form = |kind| Function::new(kind, op, datatype);
    form(OpType::Atomic)
        .or_else(|_| form(OpType::FetchAtomic))
        .or_else(|_| form(OpType::CompareAtomic))
        .map_err(to_error)
}

/// kfi_query_atomic(): what endpoints for reliable datagrams have.
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
pub(super) unsafe extern "C" fn query(
    _domain: *mut kfid_domain,
    datatype: kfi_datatype,
    op: kfi_op,
    attr: *mut kfi_atomic_attr,
    flags: u64,
) -> c_int {
    let ask = || {
        if flags != 0 || attr.is_null() {
            return Err(EINVAL);
        }
        let (op, datatype) = numbers(op, datatype)?;
        let count = atomic::max_count(EpType::Rdm, &plain(op, datatype)?)?;
        let size = datatype.size();
        // SAFETY: By the interface, `attr` can be written.
        unsafe { *attr = kfi_atomic_attr { count, size } };
        Ok(())
    };
    code(ask())
}

/// Local values that an operation names.
///
/// # Invariants
///
/// The elements of a list are valid during the call that made this value, and the consumer keeps
/// the memory that they name by the rules of the interface.
#[derive(Clone, Copy)]
pub(super) enum Values {
    /// Not used.
    None,
    /// So many elements at a kernel address.
    One(*const c_void, usize),
    /// A list.
    List(*const kfi_ioc, usize),
}

impl Values {
    /// Calls `with` with the memory, whose elements have `size` bytes. Fails with `EINVAL` for a
    /// list that is not there, or a length that overflows; `E2BIG` for more than [`MAX_IOV`]
    /// elements of a list; `ENOMEM`; the errors of `with`. Sleeps with [`Context::MaySleep`].
    fn with<R>(
        self,
        size: usize,
        call: Context,
        with: impl FnOnce(&Local) -> Result<R>,
    ) -> Result<R> {
        let (list, count) = match self {
            // SAFETY: No memory.
            Self::None => return with(&unsafe { Local::buffer(ptr::null(), 0) }),
            Self::One(addr, count) => {
                let len = count.checked_mul(size).ok_or(EINVAL)?;
                // SAFETY: By the type invariants.
                return with(&unsafe { Local::buffer(addr, len) });
            }
            Self::List(list, count) => (list, count),
        };
        if list.is_null() || count == 0 {
            return Err(EINVAL);
        }
        if count > MAX_IOV {
            return Err(E2BIG);
        }
        // SAFETY: The elements are valid by the type invariants.
        let list = unsafe { core::slice::from_raw_parts(list, count) };
        let mut ranges = KVec::with_capacity(count, call.alloc())?;
        for element in list {
            let range = kvec {
                iov_base: element.addr,
                iov_len: element.count.checked_mul(size).ok_or(EINVAL)?,
            };
            // There is room for all.
            drop(ranges.push_within_capacity(range));
        }
        // SAFETY: The elements are those of `ranges`; the memory by the type invariants.
        with(&unsafe { Local::list(Elements::Kvec(ranges.as_ptr()), count) }?)
    }
}

/// Arguments of an atomic besides its flags.
pub(super) struct AtomicArgs {
    kind: OpType,
    op: kfi_op,
    datatype: kfi_datatype,
    operand: Values,
    compare: Values,
    result: Values,
    peer: u64,
    target: Place,
    /// Remote CQ data, which the flags announce.
    data: u64,
    context: *mut c_void,
}

/// The memory of the peer.
enum Place {
    One { addr: u64, key: u64 },
    List(*const kfi_msg_atomic),
}

impl AtomicArgs {
    /// Those of a `struct kfi_msg_atomic`.
    ///
    /// # Safety
    ///
    /// By the interface, the lists are valid, and the memory is that of an operation.
    pub(super) unsafe fn of_msg(
        kind: OpType,
        msg: &kfi_msg_atomic,
        compare: Values,
        result: Values,
    ) -> Self {
        // INVARIANT: By the requirement above.
        Self {
            kind,
            op: msg.op,
            datatype: msg.datatype,
            operand: Values::List(msg.msg_iov, msg.iov_count),
            compare,
            result,
            peer: msg.addr,
            target: Place::List(msg),
            data: msg.data,
            context: msg.context,
        }
    }

    /// The memory of the peer, in elements of `size` bytes.
    fn target(&self, size: usize) -> Result<Target> {
        match self.target {
            Place::One { addr, key } => Ok(Target::one(addr, key)),
            // SAFETY: By the requirement of `of_msg`.
            Place::List(msg) => unsafe {
                Target::elements((*msg).rma_iov, (*msg).rma_iov_count, size)
            },
        }
    }
}

impl OpenEp {
    /// Posts an atomic.
    pub(super) fn post_atomic(&self, call: Call, args: &AtomicArgs) -> Result {
        let function = function(args.kind, args.op, args.datatype)?;
        let (size, context) = (function.datatype().size(), call.context());
        let target = args.target(size)?;
        let (mut first, mut second) = (Inline::new(), Inline::new());
        let operand = match function.has_operand() {
            true => args
                .operand
                .with(size, context, |local| call.source(local, &mut first))?,
            false => Source::Mem(MemRef::empty()),
        };
        let compare = match function.compares() {
            true => args
                .compare
                .with(size, context, |local| call.source(local, &mut second))?,
            false => Source::Mem(MemRef::empty()),
        };
        let result = match function.fetches() {
            true => args
                .result
                .with(size, context, |local| call.memory(local, Access::Write))?,
            false => MemRef::empty(),
        };
        let len = match function.has_operand() {
            true => operand.len(),
            false => result.len(),
        };
        let op = Atomic {
            flags: call.flags,
            context: number(args.context),
            function,
            operand,
            compare,
            result,
            peer: args.peer,
            remote: target.remote(len, context)?,
            data: args.data,
        };
        self.post(call, Op::Atomic(op))
    }

    /// Changes memory of a peer: the result of a call of a consumer.
    ///
    /// # Safety
    ///
    /// As for [`begin`](Self::begin).
    unsafe fn atomic(&self, given: Given, args: &AtomicArgs) -> isize {
        let post = || {
            // SAFETY: By the requirement above.
            let call = unsafe { self.begin(args.kind, given, args.context) }?;
            self.post_atomic(call, args)
        };
        code(post()) as isize
    }

    /// The largest number of elements of an atomic. Fails with `EINVAL` for an unknown operation or
    /// type, or nowhere to store it; `EOPNOTSUPP` if the endpoint does not have it.
    ///
    /// # Safety
    ///
    /// `count` is null or can be written.
    unsafe fn is_valid(
        &self,
        kind: OpType,
        datatype: kfi_datatype,
        op: kfi_op,
        count: *mut usize,
    ) -> Result {
        let (op, datatype) = numbers(op, datatype)?;
        if count.is_null() {
            return Err(EINVAL);
        }
        let function = Function::new(kind, op, datatype).map_err(to_error)?;
        let most = self.endpoint.max_count(&function)?;
        // SAFETY: By the requirement above.
        unsafe { *count = most };
        Ok(())
    }
}
