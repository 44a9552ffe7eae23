// SPDX-License-Identifier: GPL-2.0

//! Atomics: fi_atomic(3).
//!
//! # Context
//!
//! Queries can be called in any context, operations in process context and in softirqs, also under
//! spin locks. See [`transfer`](super::transfer).

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
    flags::OpFlags,
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
    object::inner,
    raw::{
        kfi_addr_t,
        kfi_atomic_attr,
        kfi_datatype,
        kfi_ioc,
        kfi_msg_atomic,
        kfi_op,
        kfi_ops_atomic,
        kfid_domain,
        kfid_ep, //
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
        let op = AtomicOp::try_from(op).map_err(to_error)?;
        let datatype = Datatype::try_from(datatype).map_err(to_error)?;
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

    /// The function. Fails with `EINVAL` for an unknown operation or type; `EOPNOTSUPP` if the form
    /// does not have it.
    fn function(&self) -> Result<Function> {
        let op = AtomicOp::try_from(self.op).map_err(to_error)?;
        let datatype = Datatype::try_from(self.datatype).map_err(to_error)?;
        Function::new(self.kind, op, datatype).map_err(to_error)
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
    pub(super) fn post_atomic(&self, call: Call, args: &AtomicArgs) -> Result<u64> {
        let function = args.function()?;
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
        code(post().map(|_| ())) as isize
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
        let op = AtomicOp::try_from(op).map_err(to_error)?;
        let datatype = Datatype::try_from(datatype).map_err(to_error)?;
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

/// The default flags of the endpoint.
const DEFAULT: Given = Given::Default(OpFlags::EMPTY);

/// kfi_atomic().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn write(
    ep: *mut kfid_ep,
    buf: *const c_void,
    count: usize,
    _desc: *mut c_void,
    dest_addr: kfi_addr_t,
    addr: u64,
    key: u64,
    datatype: kfi_datatype,
    op: kfi_op,
    context: *mut c_void,
) -> isize {
    let args = AtomicArgs {
        kind: OpType::Atomic,
        op,
        datatype,
        operand: Values::One(buf, count),
        compare: Values::None,
        result: Values::None,
        peer: dest_addr,
        target: Place::One { addr, key },
        data: 0,
        context,
    };
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and the arguments are those
    // of an operation.
    unsafe { inner(ep).atomic(DEFAULT, &args) }
}

/// kfi_atomicv().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn writev(
    ep: *mut kfid_ep,
    iov: *const kfi_ioc,
    _desc: *mut *mut c_void,
    count: usize,
    dest_addr: kfi_addr_t,
    addr: u64,
    key: u64,
    datatype: kfi_datatype,
    op: kfi_op,
    context: *mut c_void,
) -> isize {
    let args = AtomicArgs {
        kind: OpType::Atomic,
        op,
        datatype,
        operand: Values::List(iov, count),
        compare: Values::None,
        result: Values::None,
        peer: dest_addr,
        target: Place::One { addr, key },
        data: 0,
        context,
    };
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and the arguments are those
    // of an operation.
    unsafe { inner(ep).atomic(DEFAULT, &args) }
}

/// kfi_atomicmsg().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn writemsg(ep: *mut kfid_ep, msg: *const kfi_msg_atomic, flags: u64) -> isize {
    // SAFETY: By the interface, `msg` is null or valid.
    let Some(msg) = (unsafe { msg.as_ref() }) else {
        return code(Err(EINVAL)) as isize;
    };
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and `msg` is an operation.
    unsafe {
        let args = AtomicArgs::of_msg(OpType::Atomic, msg, Values::None, Values::None);
        inner(ep).atomic(Given::Explicit(flags), &args)
    }
}

/// kfi_inject_atomic().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn inject(
    ep: *mut kfid_ep,
    buf: *const c_void,
    count: usize,
    dest_addr: kfi_addr_t,
    addr: u64,
    key: u64,
    datatype: kfi_datatype,
    op: kfi_op,
) -> isize {
    let args = AtomicArgs {
        kind: OpType::Atomic,
        op,
        datatype,
        operand: Values::One(buf, count),
        compare: Values::None,
        result: Values::None,
        peer: dest_addr,
        target: Place::One { addr, key },
        data: 0,
        context: ptr::null_mut(),
    };
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and the arguments are those
    // of an operation.
    unsafe { inner(ep).atomic(Given::Inject(OpFlags::EMPTY), &args) }
}

/// kfi_fetch_atomic().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn readwrite(
    ep: *mut kfid_ep,
    buf: *const c_void,
    count: usize,
    _desc: *mut c_void,
    result: *mut c_void,
    _result_desc: *mut c_void,
    dest_addr: kfi_addr_t,
    addr: u64,
    key: u64,
    datatype: kfi_datatype,
    op: kfi_op,
    context: *mut c_void,
) -> isize {
    let args = AtomicArgs {
        kind: OpType::FetchAtomic,
        op,
        datatype,
        operand: Values::One(buf, count),
        compare: Values::None,
        result: Values::One(result, count),
        peer: dest_addr,
        target: Place::One { addr, key },
        data: 0,
        context,
    };
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and the arguments are those
    // of an operation.
    unsafe { inner(ep).atomic(DEFAULT, &args) }
}

/// kfi_fetch_atomicv().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn readwritev(
    ep: *mut kfid_ep,
    iov: *const kfi_ioc,
    _desc: *mut *mut c_void,
    count: usize,
    resultv: *mut kfi_ioc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    dest_addr: kfi_addr_t,
    addr: u64,
    key: u64,
    datatype: kfi_datatype,
    op: kfi_op,
    context: *mut c_void,
) -> isize {
    let args = AtomicArgs {
        kind: OpType::FetchAtomic,
        op,
        datatype,
        operand: Values::List(iov, count),
        compare: Values::None,
        result: Values::List(resultv, result_count),
        peer: dest_addr,
        target: Place::One { addr, key },
        data: 0,
        context,
    };
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and the arguments are those
    // of an operation.
    unsafe { inner(ep).atomic(DEFAULT, &args) }
}

/// kfi_fetch_atomicmsg().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn readwritemsg(
    ep: *mut kfid_ep,
    msg: *const kfi_msg_atomic,
    resultv: *mut kfi_ioc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    // SAFETY: By the interface, `msg` is null or valid.
    let Some(msg) = (unsafe { msg.as_ref() }) else {
        return code(Err(EINVAL)) as isize;
    };
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and `msg` is an operation.
    unsafe {
        let args = AtomicArgs::of_msg(
            OpType::FetchAtomic,
            msg,
            Values::None,
            Values::List(resultv, result_count),
        );
        inner(ep).atomic(Given::Explicit(flags), &args)
    }
}

/// kfi_compare_atomic().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn compwrite(
    ep: *mut kfid_ep,
    buf: *const c_void,
    count: usize,
    _desc: *mut c_void,
    compare: *const c_void,
    _compare_desc: *mut c_void,
    result: *mut c_void,
    _result_desc: *mut c_void,
    dest_addr: kfi_addr_t,
    addr: u64,
    key: u64,
    datatype: kfi_datatype,
    op: kfi_op,
    context: *mut c_void,
) -> isize {
    let args = AtomicArgs {
        kind: OpType::CompareAtomic,
        op,
        datatype,
        operand: Values::One(buf, count),
        compare: Values::One(compare, count),
        result: Values::One(result, count),
        peer: dest_addr,
        target: Place::One { addr, key },
        data: 0,
        context,
    };
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and the arguments are those
    // of an operation.
    unsafe { inner(ep).atomic(DEFAULT, &args) }
}

/// kfi_compare_atomicv().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn compwritev(
    ep: *mut kfid_ep,
    iov: *const kfi_ioc,
    _desc: *mut *mut c_void,
    count: usize,
    comparev: *const kfi_ioc,
    _compare_desc: *mut *mut c_void,
    compare_count: usize,
    resultv: *mut kfi_ioc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    dest_addr: kfi_addr_t,
    addr: u64,
    key: u64,
    datatype: kfi_datatype,
    op: kfi_op,
    context: *mut c_void,
) -> isize {
    let args = AtomicArgs {
        kind: OpType::CompareAtomic,
        op,
        datatype,
        operand: Values::List(iov, count),
        compare: Values::List(comparev, compare_count),
        result: Values::List(resultv, result_count),
        peer: dest_addr,
        target: Place::One { addr, key },
        data: 0,
        context,
    };
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and the arguments are those
    // of an operation.
    unsafe { inner(ep).atomic(DEFAULT, &args) }
}

/// kfi_compare_atomicmsg().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn compwritemsg(
    ep: *mut kfid_ep,
    msg: *const kfi_msg_atomic,
    comparev: *const kfi_ioc,
    _compare_desc: *mut *mut c_void,
    compare_count: usize,
    resultv: *mut kfi_ioc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    // SAFETY: By the interface, `msg` is null or valid.
    let Some(msg) = (unsafe { msg.as_ref() }) else {
        return code(Err(EINVAL)) as isize;
    };
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and `msg` is an operation.
    unsafe {
        let args = AtomicArgs::of_msg(
            OpType::CompareAtomic,
            msg,
            Values::List(comparev, compare_count),
            Values::List(resultv, result_count),
        );
        inner(ep).atomic(Given::Explicit(flags), &args)
    }
}

/// kfi_atomicvalid().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn writevalid(
    ep: *mut kfid_ep,
    datatype: kfi_datatype,
    op: kfi_op,
    count: *mut usize,
) -> c_int {
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and `count` null or a place
    // to store it.
    code(unsafe { inner(ep).is_valid(OpType::Atomic, datatype, op, count) })
}

/// kfi_fetch_atomicvalid().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn readwritevalid(
    ep: *mut kfid_ep,
    datatype: kfi_datatype,
    op: kfi_op,
    count: *mut usize,
) -> c_int {
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and `count` null or a place
    // to store it.
    code(unsafe { inner(ep).is_valid(OpType::FetchAtomic, datatype, op, count) })
}

/// kfi_compare_atomicvalid().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn compwritevalid(
    ep: *mut kfid_ep,
    datatype: kfi_datatype,
    op: kfi_op,
    count: *mut usize,
) -> c_int {
    // SAFETY: By the interface, `ep` is an open endpoint of this module, and `count` null or a place
    // to store it.
    code(unsafe { inner(ep).is_valid(OpType::CompareAtomic, datatype, op, count) })
}

pub(super) static OPS: kfi_ops_atomic = kfi_ops_atomic {
    size: size_of::<kfi_ops_atomic>(),
    write: Some(write),
    writev: Some(writev),
    writemsg: Some(writemsg),
    inject: Some(inject),
    readwrite: Some(readwrite),
    readwritev: Some(readwritev),
    readwritemsg: Some(readwritemsg),
    compwrite: Some(compwrite),
    compwritev: Some(compwritev),
    compwritemsg: Some(compwritemsg),
    writevalid: Some(writevalid),
    readwritevalid: Some(readwritevalid),
    compwritevalid: Some(compwritevalid),
};
