// SPDX-License-Identifier: GPL-2.0

//! What all transfers have: their flags, their local memory, and the context of the caller.
//!
//! # Context
//!
//! A caller that may sleep posts its operation itself ([`Poster::post`]). For any other caller the
//! operation is admitted ([`Endpoint::admit`]), and a worker posts it soon after. What only posting
//! finds out (no such peer, no room) is an error of the call in the first case, and an error of the
//! completion, or a delay, in the second. Operations of one side stay in their order.
//!
//! # Small transmits
//!
//! The bytes of a transmit of at most [`INLINE_MAX`] bytes at kernel addresses are copied by the
//! call. So they may be on the stack of the caller.

use kernel::{
    bindings::{
        bio_vec,
        kvec,
        scatterlist,
        sg_table, //
    },
    prelude::*, //
};

use kfi_core::{
    flags::{
        OpFlags,
        KFI_COMPLETION,
        KFI_INJECT, //
    },
    op::{
        OpType,
        Side, //
    }, //
};

use super::{
    code,
    ep::OpenEp,
    raw::{
        self,
        kfi_iov_type, //
    }, //
};
use crate::{
    mem::{
        consumer,
        memref::INLINE_MAX,
        Access,
        Inline,
        MemRef,
        Source, //
    },
    provider::ep::{
        admit::Context,
        op::{
            Flags,
            Op,
            Receive,
            Send,
            Tag, //
        },
        post::Poster, //
    },
    shim::errno::to_error, //
};

/// Where the flags of an operation come from.
#[derive(Clone, Copy)]
pub(super) enum Given {
    /// The default flags of the endpoint, and these.
    Default(OpFlags),
    /// The flags of the call, without defaults (kfi_sendmsg() and the like).
    Explicit(u64),
    /// kfi_inject() and the like, with these.
    Inject(OpFlags),
}

/// The elements of an operation's local memory.
#[derive(Clone, Copy)]
pub(super) enum Elements {
    /// One range of kernel addresses.
    One(kvec),
    Kvec(*const kvec),
    Bvec(*const bio_vec),
    Sgl(*const scatterlist),
}

/// The local memory of an operation.
///
/// # Invariants
///
/// There are `count` valid elements during the call that made this value, and the consumer keeps
/// the memory that they name by the rules of the interface.
#[derive(Clone, Copy)]
pub(super) struct Local {
    elements: Elements,
    count: usize,
}

impl Local {
    /// `len` bytes at a kernel address.
    ///
    /// # Safety
    ///
    /// By the interface, the memory is that of an operation.
    pub(super) unsafe fn buffer(addr: *const c_void, len: usize) -> Self {
        // INVARIANT: One element, by the requirement above.
        Self {
            elements: Elements::One(kvec {
                iov_base: addr.cast_mut(),
                iov_len: len,
            }),
            count: 1,
        }
    }

    /// A list of `count` elements. Fails with `EINVAL` if there are elements but no list.
    ///
    /// # Safety
    ///
    /// By the interface, the memory is that of an operation.
    pub(super) unsafe fn list(elements: Elements, count: usize) -> Result<Self> {
        let is_null = match elements {
            Elements::One(_) => false,
            Elements::Kvec(list) => list.is_null(),
            Elements::Bvec(list) => list.is_null(),
            Elements::Sgl(list) => list.is_null(),
        };
        if is_null && count != 0 {
            return Err(EINVAL);
        }
        // INVARIANT: By the requirement above.
        Ok(Self { elements, count })
    }

    /// The list of a `struct kfi_msg` or the like. Fails with `EINVAL` for an unknown type, or if
    /// there are elements but no list.
    ///
    /// # Safety
    ///
    /// By the interface, the memory is that of an operation. `list` is the union's member that
    /// `kind` names.
    pub(super) unsafe fn of_msg(
        kind: kfi_iov_type,
        list: *const kvec,
        count: usize,
    ) -> Result<Self> {
        let elements = match kind {
            raw::KFI_KVEC => Elements::Kvec(list),
            raw::KFI_BVEC => Elements::Bvec(list.cast()),
            raw::KFI_SGL => Elements::Sgl(list.cast()),
            _ => return Err(EINVAL),
        };
        // SAFETY: By the requirement above.
        unsafe { Self::list(elements, count) }
    }

    /// The kernel addresses, if it consists of those.
    fn kvecs(&self) -> Option<&[kvec]> {
        match &self.elements {
            Elements::One(one) => Some(core::slice::from_ref(one)),
            Elements::Kvec(_) if self.count == 0 => Some(&[]),
            // SAFETY: There are `count` elements by the type invariants.
            Elements::Kvec(list) => Some(unsafe { core::slice::from_raw_parts(*list, self.count) }),
            _ => None,
        }
    }

    /// The address of its first byte, for the completions of a multi-receive buffer; 0 if it does
    /// not consist of kernel addresses.
    fn addr(&self) -> u64 {
        let first = self.kvecs().and_then(|list| list.first());
        first.map_or(0, |first| first.iov_base.expose_provenance() as u64)
    }

    /// References to the memory. Fails with the errors of [`consumer`]. Sleeps.
    fn memory(&self, access: Access) -> Result<MemRef> {
        let is_empty = |list: &[kvec]| list.iter().all(|element| element.iov_len == 0);
        if self.count == 0 || self.kvecs().is_some_and(is_empty) {
            return Ok(MemRef::empty());
        }
        if let Some(list) = self.kvecs() {
            // SAFETY: By the type invariants, and the rules of the interface.
            return unsafe { consumer::kvec(list, access) };
        }
        match self.elements {
            Elements::Bvec(list) => {
                // SAFETY: There are `count` elements by the type invariants.
                let list = unsafe { core::slice::from_raw_parts(list, self.count) };
                // SAFETY: By the type invariants, and the rules of the interface.
                unsafe { consumer::bio_vec(list, access) }
            }
            Elements::Sgl(list) => {
                let count = u32::try_from(self.count).map_err(|_| E2BIG)?;
                let table = sg_table {
                    sgl: list.cast_mut(),
                    nents: count,
                    orig_nents: count,
                };
                // SAFETY: By the type invariants, and the rules of the interface.
                unsafe { consumer::sg_table(&table, access) }
            }
            // Above.
            Elements::One(_) | Elements::Kvec(_) => Err(EINVAL),
        }
    }

    /// The bytes of a transmit: a copy in `inline` if they are few, otherwise their memory.
    fn source<'a>(&self, inline: &'a mut Inline, call: Context) -> Result<Source<'a>> {
        if let Some(list) = self.kvecs() {
            let sum = list
                .iter()
                .try_fold(0usize, |sum, element| sum.checked_add(element.iov_len));
            if sum.is_some_and(|sum| sum <= INLINE_MAX) {
                for element in list.iter().filter(|element| element.iov_len != 0) {
                    if element.iov_base.is_null() {
                        return Err(EFAULT);
                    }
                    // SAFETY: By the type invariants, and the rules of the interface.
                    unsafe { inline.append_kernel(element.iov_base.cast(), element.iov_len)? };
                }
                return Ok(Source::Inline(inline));
            }
        }
        Ok(Source::Mem(self.memory_in(Access::Read, call)?))
    }

    /// References to the memory, in any context.
    fn memory_in(&self, access: Access, call: Context) -> Result<MemRef> {
        match call {
            Context::MaySleep => self.memory(access),
            Context::Atomic => Err(EOPNOTSUPP),
        }
    }
}

/// Arguments of a send besides its memory and its flags.
pub(super) struct SendArgs {
    pub(super) peer: u64,
    /// Remote CQ data, which the flags announce.
    pub(super) data: u64,
    pub(super) tag: Option<Tag>,
    pub(super) context: *mut c_void,
}

/// Arguments of a receive besides its memory and its flags.
pub(super) struct ReceiveArgs {
    pub(super) peer: u64,
    pub(super) tag: Option<Tag>,
    pub(super) context: *mut c_void,
}

/// The context of the caller.
pub(super) fn context() -> Context {
    // SAFETY: Any context.
    match unsafe { raw::kfabric_capi_may_sleep() } {
        true => Context::MaySleep,
        false => Context::Atomic,
    }
}

/// The context of an operation as a number.
pub(super) fn number(context: *mut c_void) -> u64 {
    context.expose_provenance() as u64
}

impl OpenEp {
    /// The flags of an operation. Fails with `EINVAL` for a flag that `kind` cannot have. Any
    /// context.
    pub(super) fn flags(&self, kind: OpType, given: Given) -> Result<Flags> {
        let (own, defaults) = match given {
            Given::Default(own) => (own.bits(), self.op_flags(kind.side())),
            Given::Inject(own) => ((own | OpFlags::INJECT).bits(), OpFlags::EMPTY),
            // An injected operation of these calls makes an entry, like all others.
            Given::Explicit(own)
                if own & KFI_INJECT != 0 && !self.endpoint.is_selective(Side::Transmit) =>
            {
                (own | KFI_COMPLETION, OpFlags::EMPTY)
            }
            Given::Explicit(own) => (own, OpFlags::EMPTY),
        };
        // The defaults of an alias are not those of its endpoint.
        Ok(Flags {
            own: kind.flags(own, false, defaults).map_err(to_error)?,
            explicit: true,
        })
    }

    /// Posts or admits an operation.
    pub(super) fn post(&self, mut op: Op<'_>, context: Context) -> Result {
        match context {
            Context::MaySleep => {
                let memcg = self.opener.owner.memcg();
                memcg.charge(|| Poster::new(&self.endpoint).post(op))
            }
            Context::Atomic => {
                self.endpoint.admit(&mut op, context)?.start();
                Ok(())
            }
        }
    }

    /// Sends a message.
    pub(super) fn send(&self, given: Given, local: Result<Local>, args: SendArgs) -> isize {
        let send = || {
            let kind = match args.tag {
                None => OpType::Send,
                Some(_) => OpType::TSend,
            };
            let call = context();
            let flags = self.flags(kind, given)?;
            let mut inline = Inline::new();
            let from = local?.source(&mut inline, call)?;
            let op = Send {
                flags,
                context: number(args.context),
                from,
                peer: args.peer,
                data: args.data,
                tag: args.tag,
            };
            self.post(Op::Send(op), call)
        };
        code(send()) as isize
    }

    /// Receives a message.
    pub(super) fn receive(&self, given: Given, local: Result<Local>, args: ReceiveArgs) -> isize {
        let receive = || {
            let kind = match args.tag {
                None => OpType::Recv,
                Some(_) => OpType::TRecv,
            };
            let call = context();
            let flags = self.flags(kind, given)?;
            let local = local?;
            let op = Receive {
                flags,
                context: number(args.context),
                into: local.memory_in(Access::Write, call)?,
                addr: local.addr(),
                peer: args.peer,
                tag: args.tag,
            };
            self.post(Op::Receive(op), call)
        };
        code(receive()) as isize
    }
}
