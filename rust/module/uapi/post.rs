// SPDX-License-Identifier: GPL-2.0

//! `KFABRIC_IOC_POST`: posts an array of operations, in order, in the caller's context.
//!
//! This is the data path of every byte that a program sends. So work is done once for each call
//! where possible: the endpoint is looked up once, a memory region once for consecutive operations
//! that name it, and a [`Poster`] shares the rest among them. Nothing is allocated for an operation
//! whose bytes are copied.
//!
//! [`Reader`] converts each `struct kfabric_op` to an operation of the provider. It validates every
//! field, except for rules that depend on the endpoint (its state, its capabilities, its default
//! flags, its peers).
//!
//! It gives the operations to a [`Destination`]: to the [`Poster`], or to an [`Admission`]
//! those that wait for a counter (`KFI_TRIGGER`, and deferred work).
//!
//! An operation that is refused ends the call; the operations before it remain posted. A process
//! that is being killed posts no further operation, so a call ends within the time of one
//! operation.
//!
//! # Buffers
//!
//! The bytes of a transmit of at most [`limits::INJECT_SIZE`] bytes are copied when it is posted,
//! whether it is injected or not: copying them costs less than pinning pages. If it waits for a
//! counter, only injected bytes are copied, because others are read when it starts. Larger buffers,
//! and those of receives and reads, are pinned for the duration of the operation. If the operation
//! names a memory region, the region is already pinned and only a reference is taken. A list of
//! buffers in a region is checked against the region and pinned separately. The operands of an
//! atomic, and the values to compare with, are treated like the bytes of a transmit; its result
//! buffer is treated like the buffer of a read.

use core::mem::MaybeUninit;

use kfi_core::{
    atomic::Function,
    enums::{
        AtomicOp,
        Datatype,
        TriggerEvent, //
    },
    flags::{
        OpFlags,
        KFI_TRIGGER, //
    },
    op::OpType, //
};

use super::{
    alias::DefaultFlags,
    destination::{
        Admission,
        Destination, //
    },
    objects::Entry,
    parse::{
        check_count,
        user_ranges, //
    },
    prelude::*, //
};
use crate::{
    mem::{
        Inline,
        MemRef,
        Pinned,
        Source,
        UserRange, //
    },
    provider::{
        cntr::Cntr,
        ep::{
            op::{
                Atomic,
                Flags,
                Op,
                Read,
                Receive,
                Remote,
                RemoteRange,
                Send,
                Tag,
                Write, //
            },
            post::Poster,
            Endpoint, //
        },
        mr::{
            pin_access,
            Mr, //
        }, //
    },
    shim::{
        bindings::{
            kfabric_op,
            kfabric_post,
            kfabric_rma_iov,
            KFABRIC_OP_EXPLICIT, //
        },
        errno,
        sched::{
            cond_resched,
            fatal_signal_pending, //
        },
        user::read_element, //
    }, //
};

/// Size of the first version of `struct kfabric_op`; it stays when the structure grows.
pub(super) const OP_V1_SIZE: usize = 128;

/// Operations that are posted between two calls of `cond_resched()`.
const STRIDE: usize = 64;

/// Reads user memory with `read`. If the memory is not present, `poster` forgets its peer before
/// `read` is called again and waits for the memory.
#[inline(always)]
fn without_peer(poster: &mut impl Destination, mut read: impl FnMut() -> Result) -> Result {
    if poster.keeps_peer() {
        if read().is_ok() {
            return Ok(());
        }
        poster.forget_peer();
    }
    read()
}

/// `KFABRIC_IOC_POST`. `arg.done` and `arg.error` are valid whatever it returns.
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

/// Posts until the first error, and counts in `arg.done`.
fn post_all(file: &OpenFile, arg: &mut kfabric_post) -> Result {
    must_be_zero(&[arg.flags])?;
    if arg.count == 0 || arg.count > limits::MAX_POST {
        return Err(EINVAL);
    }
    let (endpoint, defaults) = match file.entry(arg.ep)? {
        Entry::Endpoint(endpoint) => (endpoint, None),
        Entry::EpAlias(alias) => (alias.endpoint().clone(), Some(alias.defaults())),
        _ => return Err(EBADF),
    };
    let ops = UserPtr::from_addr(usize::try_from(arg.ops).map_err(|_| EFAULT)?);
    let stride = usize::try_from(arg.op_size)?;
    let mut reader = Reader::new(file, defaults);
    let always = reader.default_trigger(&endpoint);
    let mut poster = Poster::new(&endpoint);
    let mut room = MaybeUninit::uninit();
    for index in 0..arg.count as usize {
        if index % STRIDE == STRIDE - 1 {
            cond_resched();
        }
        if fatal_signal_pending() {
            return Err(EINTR);
        }
        let op = loop {
            match read_element::<kfabric_op>(ops, index, stride, OP_V1_SIZE, &mut room) {
                Ok(op) => break op,
                // As in `without_peer`.
                Err(_) if poster.keeps_peer() => poster.forget_peer(),
                Err(error) => return Err(error),
            }
        };
        let trigger = op.threshold | u64::from(op.trigger_cntr | op.trigger_event);
        if (op.flags | always) & KFI_TRIGGER | trigger != 0 {
            reader.trigger(op, &endpoint, &mut poster)?;
        } else {
            reader.read(op, &mut poster)?;
        }
        arg.done = arg.done.wrapping_add(1);
    }
    Ok(())
}

/// The local buffer of an operation: one range, or a list of them.
enum Ranges {
    One([UserRange; 1]),
    List(KVec<UserRange>),
}

impl Ranges {
    fn as_slice(&self) -> &[UserRange] {
        match self {
            Self::One(range) => range,
            Self::List(list) => list,
        }
    }
}

/// Reads the operations of one call.
pub(super) struct Reader<'a> {
    file: &'a OpenFile,
    /// The default flags of the alias that they are posted through.
    defaults: Option<DefaultFlags>,
    /// The region of the last operation, because the next one often names the same.
    region: Option<(u32, Arc<Mr>)>,
    /// The bytes of the last small transmit.
    inline: Inline,
}

impl<'a> Reader<'a> {
    /// A reader of operations that name objects of `file`. `defaults`: the default flags, in place
    /// of those of the endpoint.
    pub(super) fn new(file: &'a OpenFile, defaults: Option<DefaultFlags>) -> Self {
        Self {
            file,
            defaults,
            region: None,
            inline: Inline::new(),
        }
    }

    /// `KFI_TRIGGER` if it is a default flag of a side.
    #[inline]
    fn default_trigger(&self, endpoint: &Endpoint) -> u64 {
        let defaults = self.defaults.unwrap_or_else(|| DefaultFlags::of(endpoint));
        (defaults.transmit | defaults.receive).bits() & KFI_TRIGGER
    }

    /// Posts `op`, which may be triggered: has it wait for its counter if it is. Fails with the
    /// errors of `struct kfabric_post`. Sleeps.
    #[cold]
    #[inline(never)]
    fn trigger(
        &mut self,
        op: &kfabric_op,
        endpoint: &Arc<Endpoint>,
        poster: &mut Poster<'_>,
    ) -> Result {
        let side = OpType::try_from(op.opcode).map_err(to_error)?.side();
        let explicit = op.control & KFABRIC_OP_EXPLICIT != 0;
        let defaults = self.defaults.unwrap_or_else(|| DefaultFlags::of(endpoint));
        let by_default = !explicit && defaults.side(side).contains(OpFlags::TRIGGER);
        if op.flags & KFI_TRIGGER == 0 && !by_default {
            must_be_zero(&[op.trigger_event, op.trigger_cntr])?;
            must_be_zero(&[op.threshold])?;
            return self.post(op, poster);
        }
        let TriggerEvent::Threshold = TriggerEvent::try_from(op.trigger_event).map_err(to_error)?;
        endpoint.check_trigger()?;
        let cntr = self.file.object::<Cntr>(op.trigger_cntr)?;
        endpoint.check_domain(cntr.domain())?;
        // The operation, and others that are due, may start here and sleep.
        poster.prepare_to_wait();
        let mut admission = Admission::new(endpoint, None);
        let op = kfabric_op {
            flags: op.flags & !KFI_TRIGGER,
            ..*op
        };
        self.post(&op, &mut admission)?;
        cntr.trigger(op.threshold, admission.into_work()?)
    }

    /// [`read`](Self::read), out of the way of the operations that are posted at once.
    #[cold]
    #[inline(never)]
    pub(super) fn post<D: Destination>(&mut self, op: &kfabric_op, poster: &mut D) -> Result {
        self.read(op, poster)
    }

    /// Validates `op`, converts it to an operation of the provider, and gives it to `poster`. In
    /// the context of the process whose memory it names; sleeps. Fails with the errors of
    /// `struct kfabric_post`. The caller has handled KFI_TRIGGER.
    // Each kind of operation is posted in its own arm, so that the kind is not checked twice.
    #[inline(always)]
    fn read<D: Destination>(&mut self, op: &kfabric_op, poster: &mut D) -> Result {
        let kind = OpType::try_from(op.opcode).map_err(to_error)?;
        must_be_zero(&[op.control & !KFABRIC_OP_EXPLICIT])?;
        let mut flags = Flags {
            own: kind
                .flags(op.flags, true, OpFlags::EMPTY)
                .map_err(to_error)?,
            explicit: op.control & KFABRIC_OP_EXPLICIT != 0,
        };
        if let Some(defaults) = self.defaults {
            flags.own = kind
                .flags(op.flags, flags.explicit, defaults.side(kind.side()))
                .map_err(to_error)?;
            flags.explicit = true;
        }
        if !kind.is_atomic() {
            must_be_zero(&[op.datatype, op.op])?;
            must_be_zero(&[op.compare, op.result, op.result_mr.into()])?;
            must_be_zero(&[op.compare_iov_count, op.result_iov_count])?;
        }
        if op.iov_count != 0 || op.rma_iov_count != 0 || kind.is_atomic() {
            poster.forget_peer();
        }
        let (ranges, len) = self.ranges(op)?;
        kind.check_len(flags.own, len).map_err(to_error)?;

        match kind {
            OpType::Send | OpType::TSend => {
                let copy = D::COPIES || flags.own.contains(OpFlags::INJECT);
                let from = self.source(kind, op.mr, &ranges, (len, copy), poster)?;
                poster.accept(Op::Send(Send {
                    flags,
                    context: op.context,
                    from,
                    peer: op.peer,
                    data: op.data,
                    tag: kind.is_tagged().then_some(Tag {
                        tag: op.tag,
                        ignore: 0,
                    }),
                }))
            }
            OpType::Recv | OpType::TRecv => {
                let into = self.memory(kind, op.mr, &ranges, len, poster)?;
                poster.accept(Op::Receive(Receive {
                    flags,
                    context: op.context,
                    into,
                    addr: op.buf,
                    peer: op.peer,
                    tag: kind.is_tagged().then_some(Tag {
                        tag: op.tag,
                        ignore: op.ignore,
                    }),
                }))
            }
            OpType::Read => {
                let into = self.memory(kind, op.mr, &ranges, len, poster)?;
                poster.accept(Op::Read(Read {
                    flags,
                    context: op.context,
                    into,
                    peer: op.peer,
                    remote: remote(op, len)?,
                }))
            }
            OpType::Write => {
                let copy = D::COPIES || flags.own.contains(OpFlags::INJECT);
                let from = self.source(kind, op.mr, &ranges, (len, copy), poster)?;
                poster.accept(Op::Write(Write {
                    flags,
                    context: op.context,
                    from,
                    peer: op.peer,
                    remote: remote(op, len)?,
                    data: op.data,
                }))
            }
            OpType::Atomic | OpType::FetchAtomic | OpType::CompareAtomic => {
                self.atomic(kind, flags, op, &ranges, len, poster)
            }
        }
    }

    /// Converts an atomic, and posts it.
    #[inline(never)]
    fn atomic<D: Destination>(
        &mut self,
        kind: OpType,
        flags: Flags,
        op: &kfabric_op,
        ranges: &Ranges,
        len: u64,
        poster: &mut D,
    ) -> Result {
        let datatype = Datatype::try_from(u32::from(op.datatype)).map_err(to_error)?;
        let what = AtomicOp::try_from(u32::from(op.op)).map_err(to_error)?;
        if kind != OpType::CompareAtomic {
            must_be_zero(&[op.compare, op.compare_iov_count.into()])?;
        }
        if kind == OpType::Atomic {
            must_be_zero(&[op.result, op.result_mr.into(), op.result_iov_count.into()])?;
        }
        let function = Function::new(kind, what, datatype).map_err(to_error)?;
        poster.check_function(&function, len)?;
        let copied = (len, D::COPIES || flags.own.contains(OpFlags::INJECT));
        let (mut operand, mut compare) = (None, None);
        // The operands stay in `self.inline`.
        let mut inline = Inline::new();
        if function.has_operand() {
            operand = self.values(kind, op.mr, ranges, copied, poster)?;
        }
        if function.compares() {
            let ranges = same_len(op.compare, op.compare_iov_count, len)?;
            core::mem::swap(&mut self.inline, &mut inline);
            compare = self.values(kind, 0, &ranges, copied, poster)?;
            core::mem::swap(&mut self.inline, &mut inline);
        }
        let mut result = MemRef::empty();
        if function.fetches() {
            let ranges = same_len(op.result, op.result_iov_count, len)?;
            result = self.memory(OpType::Read, op.result_mr, &ranges, len, poster)?;
        }
        let remote = remote(op, len)?;
        let source = |memory: Option<MemRef>, inline, is_used| match memory {
            Some(memory) => Source::Mem(memory),
            None if is_used => Source::Inline(inline),
            None => Source::Mem(MemRef::empty()),
        };
        poster.accept(Op::Atomic(Atomic {
            flags,
            context: op.context,
            operand: source(operand, &self.inline, function.has_operand()),
            compare: source(compare, &inline, function.compares()),
            function,
            result,
            peer: op.peer,
            remote,
            data: op.data,
        }))
    }

    /// Takes the bytes of a transmit as [`source`](Self::source) does: `None` if they were copied
    /// to `inline`, otherwise their memory.
    fn values(
        &mut self,
        kind: OpType,
        mr: u32,
        ranges: &Ranges,
        copied: (u64, bool),
        poster: &mut impl Destination,
    ) -> Result<Option<MemRef>> {
        Ok(match self.source(kind, mr, ranges, copied, poster)? {
            Source::Inline(_) => None,
            Source::Mem(memory) => Some(memory),
        })
    }

    /// The local buffer and its length.
    #[inline(always)]
    fn ranges(&self, op: &kfabric_op) -> Result<(Ranges, u64)> {
        if op.iov_count != 0 {
            let (list, len) = user_ranges(op.buf, op.iov_count)?;
            return Ok((Ranges::List(list), len));
        }
        let range = UserRange {
            addr: op.buf,
            len: op.len,
        };
        Ok((Ranges::One([range]), op.len))
    }

    /// The source of a transmit of `len` bytes; with `copy` they are copied if they are few.
    #[inline(always)]
    fn source(
        &mut self,
        kind: OpType,
        mr: u32,
        ranges: &Ranges,
        (len, copy): (u64, bool),
        poster: &mut impl Destination,
    ) -> Result<Source<'_>> {
        match ranges {
            // The most frequent case.
            Ranges::One([range]) if mr == 0 && copy && len <= limits::INJECT_SIZE as u64 => {
                without_peer(poster, || self.inline.read_one(range))?;
                Ok(Source::Inline(&self.inline))
            }
            _ => self.other_source(kind, mr, ranges, (len, copy), poster),
        }
    }

    /// The same, for the less frequent cases.
    #[inline(never)]
    fn other_source(
        &mut self,
        kind: OpType,
        mr: u32,
        ranges: &Ranges,
        (len, copy): (u64, bool),
        poster: &mut impl Destination,
    ) -> Result<Source<'_>> {
        if !copy || len > limits::INJECT_SIZE as u64 {
            return Ok(Source::Mem(self.memory(kind, mr, ranges, len, poster)?));
        }
        if mr != 0 {
            self.in_region(kind, mr, ranges)?;
        }
        poster.forget_peer();
        self.inline.read_user(ranges.as_slice())?;
        Ok(Source::Inline(&self.inline))
    }

    /// The memory of a buffer. It stays pinned at least as long as the result lives.
    fn memory(
        &mut self,
        kind: OpType,
        mr: u32,
        ranges: &Ranges,
        len: u64,
        poster: &mut impl Destination,
    ) -> Result<MemRef> {
        let in_region = if mr != 0 {
            self.in_region(kind, mr, ranges)?
        } else {
            None
        };
        match in_region {
            Some(memory) => Ok(memory),
            None if len == 0 => Ok(MemRef::empty()),
            None => {
                let access = pin_access(kind.local_access());
                poster.forget_peer();
                Ok(MemRef::pinned(Pinned::new(ranges.as_slice(), access)?))
            }
        }
    }

    /// Checks that region `mr` allows the access of `kind` to the whole buffer. Returns the
    /// region's memory if the buffer is one range.
    fn in_region(&mut self, kind: OpType, mr: u32, ranges: &Ranges) -> Result<Option<MemRef>> {
        let region = self.region(mr)?;
        let access = kind.local_access();
        match ranges {
            Ranges::One([range]) => region.local(range.addr, range.len, access).map(Some),
            Ranges::List(list) => {
                for range in list {
                    region.local(range.addr, range.len, access)?;
                }
                Ok(None)
            }
        }
    }

    /// The region `handle`, looked up once for consecutive operations.
    fn region(&mut self, handle: u32) -> Result<&Mr> {
        let cached = matches!(&self.region, Some((number, _)) if *number == handle);
        if !cached {
            self.region = Some((handle, self.file.object::<Mr>(handle)?));
        }
        self.region
            .as_ref()
            .map(|(_, region)| &**region)
            .ok_or(EBADF)
    }
}

/// The buffer at `addr`, or the list of buffers if `count` is not 0. Fails with `EINVAL` if it does
/// not have `len` bytes, `EFAULT`, `ENOMEM`.
fn same_len(addr: u64, count: u16, len: u64) -> Result<Ranges> {
    if count == 0 {
        return Ok(Ranges::One([UserRange { addr, len }]));
    }
    let (list, sum) = user_ranges(addr, count.into())?;
    if sum != len {
        return Err(EINVAL);
    }
    Ok(Ranges::List(list))
}

/// The peer's memory that an operation on `len` local bytes names.
fn remote(op: &kfabric_op, len: u64) -> Result<Remote> {
    if op.rma_iov_count == 0 {
        return Ok(Remote::One(RemoteRange {
            addr: op.rma_addr,
            len,
            key: op.rma_key,
        }));
    }
    let count = check_count(op.rma_iov_count)?;
    let mut list = KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?;
    let mut reader = user_slice::<kfabric_rma_iov>(op.rma_addr, count)?.reader();
    for _ in 0..count {
        let piece: kfabric_rma_iov = reader.read()?;
        list.push(
            RemoteRange {
                addr: piece.addr,
                len: piece.len,
                key: piece.key,
            },
            GFP_KERNEL_ACCOUNT,
        )?;
    }
    Ok(Remote::of_list(list))
}
