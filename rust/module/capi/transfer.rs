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
//! The bytes of a transmit of at most [`INLINE_MAX`](crate::mem::memref::INLINE_MAX) bytes at kernel
//! addresses are copied by the call. So they may be on the stack of the caller.

use kernel::prelude::*;

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
    buffers::Local,
    code,
    ep::OpenEp,
    raw, //
};
use crate::{
    mem::{
        Access,
        Inline, //
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
                into: local.memory(Access::Write, call)?,
                addr: local.addr(),
                peer: args.peer,
                tag: args.tag,
            };
            self.post(Op::Receive(op), call)
        };
        code(receive()) as isize
    }
}
