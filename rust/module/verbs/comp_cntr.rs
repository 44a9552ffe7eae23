// SPDX-License-Identifier: GPL-2.0

//! Completion counters of a program, and the set of them that a QP counts with.
//!
//! The counters are those of the provider ([`comp_cntr`](crate::provider::comp_cntr)), in the
//! domain of the context. `kfi_core::comp_cntr` defines what counts. A QP counts:
//!
//! - a work request when it leaves the send queue, with the bytes that it was posted with, before
//!   its entry is added to the CQ, if it has one;
//! - a receive when it ends, with the `byte_len` of its entry, before that is added; none for a
//!   WRITE with immediate data;
//! - a WRITE or READ of the peer when it has been executed, a long READ with its last request.
//!
//! A work request that a change to RESET, or the end of the QP, removes has no result and is not
//! counted. A QP without counters has no set.
//!
//! Counting takes the locks of the counter, in process context. No spin lock is held that
//! interrupts take.

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        SetOnce, //
    },
    types::ForeignOwnable, //
};

use kfi_core::{
    enums::{
        CompCntrEntry,
        CompCntrModifyOp,
        CompCntrType, //
    },
    flags::CompCntrOps,
    op::OpType, //
};
use kfi_roce::{
    rc::{
        Op,
        Status, //
    },
    state::State, //
};

use super::{
    code,
    context::Context,
    cq::{
        Entry,
        Opcode, //
    },
    declared,
    handle,
    map::Mapped,
    qp::{
        Qp,
        Transport, //
    },
    raw::{
        self,
        kfabric_verbs_cntr_caps,
        kfabric_verbs_comp_cntr,
        kfabric_verbs_context,
        kfabric_verbs_qp,
        kfabric_verbs_word, //
    },
    send::{
        SendOp,
        WorkRequest, //
    }, //
};
use crate::{
    mem::{
        Allowance,
        Budget,
        MapAccess,
        PinnedWord, //
    },
    provider::{
        comp_cntr::{
            Caps,
            CompCntr,
            CompCntrAttr, //
        },
        object::{
            self,
            UseRef, //
        }, //
    },
    shim::errno::to_error, //
};

/// The number of operations that have a bit.
const OPS: usize = CompCntrOps::ALL.bits().count_ones() as usize;

// The numbers of the RDMA subsystem are those of kfi_core.
const _: () = assert!(
    CompCntrOps::SEND.bits() == raw::KFABRIC_VERBS_CNTR_SEND
        && CompCntrOps::RECV.bits() == raw::KFABRIC_VERBS_CNTR_RECV
        && CompCntrOps::RDMA_READ.bits() == raw::KFABRIC_VERBS_CNTR_RDMA_READ
        && CompCntrOps::REMOTE_RDMA_READ.bits() == raw::KFABRIC_VERBS_CNTR_REMOTE_RDMA_READ
        && CompCntrOps::RDMA_WRITE.bits() == raw::KFABRIC_VERBS_CNTR_RDMA_WRITE
        && CompCntrOps::REMOTE_RDMA_WRITE.bits() == raw::KFABRIC_VERBS_CNTR_REMOTE_RDMA_WRITE
);
const _: () = assert!(
    CompCntrType::Wrs as u32 == raw::KFABRIC_IB_COMP_CNTR_UNIT_WRS
        && CompCntrType::Bytes as u32 == raw::KFABRIC_IB_COMP_CNTR_UNIT_BYTES
);
const _: () = assert!(
    CompCntrEntry::Comp as u32 == raw::KFABRIC_VERBS_CNTR_COMP
        && CompCntrEntry::Err as u32 == raw::KFABRIC_VERBS_CNTR_ERR
        && CompCntrModifyOp::Set as u32 == raw::KFABRIC_VERBS_CNTR_SET
        && CompCntrModifyOp::Inc as u32 == raw::KFABRIC_VERBS_CNTR_INC
);

/// A completion counter of a program.
pub(super) struct Counter {
    cntr: Arc<CompCntr>,
    /// Its page, if the program did not bring memory for the values.
    mapped: Option<Mapped>,
}

impl Counter {
    /// A counter of `context`, with both values 0.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: both values are to be in the same word of the program's memory.
    /// - `ENODEV`: the interface has gone.
    /// - `ENOMEM`, also if the context has as many counters as it may have, or the user has no more
    ///   memory of the kernel (`user_memory`).
    ///
    /// Sleeps.
    pub(super) fn new(context: &Arc<Context>, attr: CompCntrAttr) -> Result<KBox<Self>> {
        let (domain, ident) = context.domain()?;
        let is_external = attr.external.is_some();
        let mut counter = KBox::new(
            Self {
                cntr: CompCntr::create(&domain, attr, ident)?,
                mapped: None,
            },
            GFP_KERNEL_ACCOUNT,
        )?;
        if !is_external {
            let page = counter.cntr.page().clone();
            counter.mapped = Some(Mapped::new(context, page, MapAccess::ReadOnly)?);
        }
        Ok(counter)
    }

    /// The counter of the provider. Any context.
    pub(super) fn cntr(&self) -> &Arc<CompCntr> {
        &self.cntr
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        // After a successful `close` nothing uses the counter. Otherwise this ends its uses.
        object::force_close(&*self.cntr);
    }
}

/// The completion counters that are attached to a QP. They are attached one by one, also while the
/// QP counts, and released together.
pub(super) struct AttachedCntrs {
    /// One for each operation, in the order of their bits.
    cntrs: [SetOnce<UseRef<CompCntr>>; OPS],
    /// The bytes of the peer's RDMA READ that is being executed in several requests.
    read_bytes: Atomic<u64>,
    _memory: Allowance,
}

impl AttachedCntrs {
    /// An empty set. Fails with `ENOMEM`. Sleeps.
    pub(super) fn new(budget: &Budget) -> Result<KBox<Self>> {
        let attached = Self {
            cntrs: [const { SetOnce::new() }; OPS],
            read_bytes: Atomic::new(0),
            _memory: budget.take_for::<Self>(0)?,
        };
        Ok(KBox::new(attached, GFP_KERNEL_ACCOUNT)?)
    }

    /// Each operation of `ops`, with its slot.
    fn slots(
        &self,
        ops: CompCntrOps,
    ) -> impl Iterator<Item = &SetOnce<UseRef<CompCntr>>> + use<'_> {
        let wanted = move |(bit, _): &(usize, _)| ops.bits() >> bit & 1 != 0;
        let slots = self.cntrs.iter().enumerate();
        slots.filter(wanted).map(|(_, slot)| slot)
    }

    /// Attaches a counter for `ops`, which are not empty. The caller prevents two changes at the
    /// same time. Fails with `EBUSY` if an operation has a counter, `EBADF` if the counter is
    /// destroyed; nothing is attached then. Does not sleep.
    pub(super) fn attach(&self, cntr: &Arc<CompCntr>, ops: CompCntrOps) -> Result {
        if self.slots(ops).any(|slot| slot.as_ref().is_some()) {
            return Err(EBUSY);
        }
        let mut uses = [const { None }; OPS];
        for (to, _) in uses.iter_mut().zip(self.slots(ops)) {
            *to = Some(UseRef::new(cntr.clone())?);
        }
        for (slot, cntr) in self.slots(ops).zip(uses.into_iter().flatten()) {
            slot.populate(cntr);
        }
        Ok(())
    }

    /// Counts an operation, if it has a counter. `op` has one bit, or none. Process context, also
    /// with bottom halves disabled; does not sleep.
    #[cold]
    pub(super) fn count(&self, op: CompCntrOps, success: bool, len: u64) {
        let bit = op.bits().trailing_zeros() as usize;
        if let Some(cntr) = self.cntrs.get(bit).and_then(SetOnce::as_ref) {
            cntr.count(success, len);
        }
    }

    /// Counts an RDMA READ of the peer. Runs of one QP call it one after another.
    #[cold]
    fn count_remote_read(&self, len: u64, more: bool) {
        let len = self.read_bytes.load(Relaxed).saturating_add(len);
        self.read_bytes.store(if more { len } else { 0 }, Relaxed);
        if !more {
            self.count(CompCntrOps::REMOTE_RDMA_READ, true, len);
        }
    }

    /// Releases all counters. Idempotent.
    pub(super) fn release(&self) {
        let attached = self.cntrs.iter().filter_map(SetOnce::as_ref);
        attached.for_each(UseRef::release);
    }
}

impl Qp {
    /// Attaches a counter for `ops`.
    ///
    /// # Errors
    ///
    /// Nothing is attached then.
    ///
    /// - `EINVAL`: no operation; the state is neither RESET nor INIT.
    /// - `EOPNOTSUPP`: a QP for datagrams does not have an operation.
    /// - `EBUSY`: an operation has a counter.
    /// - `ENOMEM`.
    ///
    /// Sleeps.
    pub(super) fn attach(&self, cntr: &Arc<CompCntr>, ops: CompCntrOps) -> Result {
        let supported = match self.transport() {
            Some(Transport::Rc(_)) => CompCntrOps::ALL,
            Some(Transport::Ud(_)) => CompCntrOps::SEND | CompCntrOps::RECV,
            Some(Transport::Gsi(_)) | None => CompCntrOps::EMPTY,
        };
        let _modifying = self.modifying.lock();
        if ops.is_empty() || !matches!(self.state(), State::Reset | State::Init) {
            return Err(EINVAL);
        }
        if !supported.contains(ops) {
            return Err(EOPNOTSUPP);
        }
        if let Some(attached) = self.cntrs.as_ref() {
            return attached.attach(cntr, ops);
        }
        let attached = AttachedCntrs::new(self.budget())?;
        attached.attach(cntr, ops)?;
        self.cntrs.populate(attached);
        Ok(())
    }

    /// Releases the counters. The QP is closed.
    pub(super) fn release_cntrs(&self) {
        if let Some(attached) = self.cntrs.as_ref() {
            attached.release();
        }
    }

    /// Counts an operation of `len` bytes that has ended, if it has a counter. Process context,
    /// also with bottom halves disabled; no spin lock held that interrupts take. Does not sleep.
    #[inline]
    pub(super) fn count(&self, op: CompCntrOps, status: Status, len: u32) {
        if let Some(attached) = self.cntrs.as_ref() {
            attached.count(op, status == Status::Success, len.into());
        }
    }

    /// Counts an RDMA READ of the peer, of which `len` bytes were read. `more`: further requests of
    /// the same READ follow, and it is counted with the last one. The context is that of
    /// [`count`](Self::count).
    #[inline]
    pub(super) fn count_remote_read(&self, len: u32, more: bool) {
        if let Some(attached) = self.cntrs.as_ref() {
            attached.count_remote_read(len.into(), more);
        }
    }

    /// Forgets the bytes of an RDMA READ of the peer that the end of the connection has cut off. The
    /// caller ensures that no run of the QP counts at the same time.
    pub(super) fn forget_remote_read(&self) {
        if let Some(attached) = self.cntrs.as_ref() {
            attached.read_bytes.store(0, Relaxed);
        }
    }

    /// Counts a work request that has left the send queue. The context is that of
    /// [`count`](Self::count).
    #[inline]
    pub(super) fn count_send(&self, request: &WorkRequest, status: Status) {
        self.count(ops_of(&request.op), status, request.len);
    }

    /// Counts a receive that has ended with this entry. The context is that of
    /// [`count`](Self::count).
    #[inline]
    pub(super) fn count_receive(&self, entry: &Entry) {
        let len = match entry.opcode {
            // It placed no byte: the WRITE did.
            Opcode::RecvRdmaWithImm => 0,
            _ => entry.byte_len,
        };
        self.count(OpType::Recv.comp_cntr_op(), entry.status, len);
    }
}

/// The bit under which a work request counts; none for atomics and for operations on regions.
fn ops_of(op: &SendOp) -> CompCntrOps {
    let op = match op {
        SendOp::Ud { .. } | SendOp::Rc(Op::Send(_)) => OpType::Send,
        SendOp::Rc(Op::Write { .. }) => OpType::Write,
        SendOp::Rc(Op::Read { .. }) => OpType::Read,
        SendOp::Rc(Op::CompareSwap { .. } | Op::FetchAdd { .. }) => OpType::Atomic,
        SendOp::Register { .. } | SendOp::Invalidate { .. } => return CompCntrOps::EMPTY,
    };
    op.comp_cntr_op()
}

/// The word for a value in memory of the current task. Fails as [`PinnedWord::at`] and
/// [`PinnedWord::in_dma_buf`]. Sleeps.
fn word(at: &kfabric_verbs_word, budget: &Budget) -> Result<PinnedWord> {
    match at.is_dma_buf {
        true => PinnedWord::in_dma_buf(at.fd, at.addr, budget),
        false => PinnedWord::at(at.addr),
    }
}

/// The entry with a number. Fails with `EINVAL` for a number that no entry has.
fn entry_of(number: u32) -> Result<CompCntrEntry> {
    CompCntrEntry::try_from(number).map_err(to_error)
}

declared! {
    kfabric_verbs_comp_cntr_caps: fn(*mut kfabric_verbs_cntr_caps);
    kfabric_verbs_comp_cntr_create: fn(
        *mut kfabric_verbs_context, u32, *const kfabric_verbs_word,
    ) -> *mut kfabric_verbs_comp_cntr;
    kfabric_verbs_comp_cntr_destroy: fn(*mut kfabric_verbs_comp_cntr) -> c_int;
    kfabric_verbs_comp_cntr_max: fn(*const kfabric_verbs_comp_cntr) -> u64;
    kfabric_verbs_comp_cntr_offset: fn(*const kfabric_verbs_comp_cntr) -> u64;
    kfabric_verbs_comp_cntr_modify: fn(*mut kfabric_verbs_comp_cntr, u32, u32, u64) -> c_int;
    kfabric_verbs_comp_cntr_read: fn(*const kfabric_verbs_comp_cntr, u32, *mut u64) -> c_int;
    kfabric_verbs_comp_cntr_attach:
        fn(*mut kfabric_verbs_qp, *mut kfabric_verbs_comp_cntr, u32) -> c_int;
}

/// The counter of a handle.
///
/// # Safety
///
/// The handle is valid by the interface, for as long as the result is used.
unsafe fn borrow<'a>(cntr: *const kfabric_verbs_comp_cntr) -> &'a Counter {
    // SAFETY: By the requirement above.
    unsafe { KBox::<Counter>::borrow(cntr.cast_mut().cast()) }
}

/// What can be counted. Any context.
///
/// # Safety
///
/// The argument is valid by the interface.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_comp_cntr_caps(caps: *mut kfabric_verbs_cntr_caps) {
    let now = Caps::current();
    let now = kfabric_verbs_cntr_caps {
        max_value: now.max_value,
        max_counters: now.max_counters,
        ops: now.ops.bits(),
    };
    // SAFETY: By the requirement above.
    unsafe { caps.write(now) };
}

/// A completion counter, for a call of its program. Fails with `EINVAL` for a unit that is not
/// known; as [`word`], and as [`Counter::new`]. Sleeps.
///
/// # Safety
///
/// The arguments are valid by the interface.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_comp_cntr_create(
    context: *mut kfabric_verbs_context,
    unit: u32,
    words: *const kfabric_verbs_word,
) -> *mut kfabric_verbs_comp_cntr {
    // SAFETY: By the requirement above; there are two words, or none.
    let (context, words) = unsafe {
        (
            Arc::<Context>::borrow(context.cast()),
            words.cast::<[kfabric_verbs_word; 2]>().as_ref(),
        )
    };
    let create = || {
        let unit = CompCntrType::try_from(unit).map_err(to_error)?;
        let external = match words {
            None => None,
            Some([comp, err]) => {
                Some([word(comp, context.budget())?, word(err, context.budget())?])
            }
        };
        Counter::new(&context.into(), CompCntrAttr { unit, external })
    };
    handle(create())
}

/// Ends a completion counter, unless it is attached to a QP (`EBUSY`). Its memory is not written
/// any more when this has succeeded. Sleeps.
///
/// # Safety
///
/// The handle is valid by the interface; it is ended by a call that succeeds.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_comp_cntr_destroy(cntr: *mut kfabric_verbs_comp_cntr) -> c_int {
    // SAFETY: By the requirement above.
    let closed = object::close(&**unsafe { borrow(cntr) }.cntr());
    if closed.is_ok() {
        // SAFETY: By the requirement above.
        drop(unsafe { KBox::<Counter>::from_foreign(cntr.cast()) });
    }
    code(closed)
}

/// The largest value. Any context.
///
/// # Safety
///
/// The handle is valid by the interface.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_comp_cntr_max(cntr: *const kfabric_verbs_comp_cntr) -> u64 {
    // SAFETY: By the requirement above.
    unsafe { borrow(cntr) }.cntr.max_value()
}

/// The offset of its page in the device's file, bytes; 0 if the values are in memory of the
/// program. Any context.
///
/// # Safety
///
/// The handle is valid by the interface.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_comp_cntr_offset(cntr: *const kfabric_verbs_comp_cntr) -> u64 {
    // SAFETY: By the requirement above.
    let cntr = unsafe { borrow(cntr) };
    cntr.mapped.as_ref().map_or(0, Mapped::offset)
}

/// Changes an entry. Fails with `EINVAL` for an entry or a change that is not known, and a value
/// above the largest one. Process context; does not sleep.
///
/// # Safety
///
/// The handle is valid by the interface.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_comp_cntr_modify(
    cntr: *mut kfabric_verbs_comp_cntr,
    entry: u32,
    op: u32,
    value: u64,
) -> c_int {
    // SAFETY: By the requirement above.
    let cntr = unsafe { borrow(cntr) };
    let modify = || {
        let op = CompCntrModifyOp::try_from(op).map_err(to_error)?;
        cntr.cntr.modify(entry_of(entry)?, op, value)
    };
    code(modify())
}

/// Reads an entry. Fails with `EINVAL` for one that is not known. Any context.
///
/// # Safety
///
/// The arguments are valid by the interface.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_comp_cntr_read(
    cntr: *const kfabric_verbs_comp_cntr,
    entry: u32,
    value: *mut u64,
) -> c_int {
    // SAFETY: By the requirement above.
    let cntr = unsafe { borrow(cntr) };
    let read = || {
        let now = cntr.cntr.read(entry_of(entry)?);
        // SAFETY: By the requirement above.
        unsafe { value.write(now) };
        Ok(())
    };
    code(read())
}

/// Attaches a counter to a QP. Fails as [`Qp::attach`]; `EINVAL` for an operation that is not
/// known. Sleeps.
///
/// # Safety
///
/// The handles are valid by the interface.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_comp_cntr_attach(
    qp: *mut kfabric_verbs_qp,
    cntr: *mut kfabric_verbs_comp_cntr,
    ops: u32,
) -> c_int {
    // SAFETY: By the requirement above.
    let (qp, cntr) = unsafe { (Qp::borrow(qp), borrow(cntr)) };
    let ops = CompCntrOps::from_bits(ops).map_err(to_error);
    code(ops.and_then(|ops| qp.attach(cntr.cntr(), ops)))
}
