// SPDX-License-Identifier: GPL-2.0

//! What all transfers have: their flags, their local memory, the context of the caller, and the
//! counter that they wait for.
//!
//! # Context
//!
//! A caller that may sleep posts its operation itself ([`Poster::post`]). For any other caller the
//! operation is admitted (`Endpoint::admit()`), and a worker posts it soon after. What only posting
//! finds out (no such peer, no room) is an error of the call in the first case, and an error of the
//! completion, or a delay, in the second. If too many operations are delayed, the call fails in the
//! second case, too. Operations of one side stay in their order.
//!
//! # Triggered operations and deferred work
//!
//! An operation with `KFI_TRIGGER`, or deferred work ([`work`](super::work)), waits for a counter.
//! It is admitted, too. Such calls need process context.
//!
//! # Small transmits
//!
//! The bytes of a transmit of at most [`INLINE_MAX`](crate::mem::memref::INLINE_MAX) bytes at
//! kernel addresses are copied by the call. So they may be on the stack of the caller. The bytes of
//! a transmit that waits for a counter are read when it starts, unless they are injected.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use kfi_core::{
    flags::{
        OpFlags,
        KFI_COMPLETION,
        KFI_INJECT,
        KFI_TRIGGER, //
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
    object::of_class,
    raw::{
        self,
        kfi_triggered_context,
        kfid_cntr, //
    },
    work::WorkNumber, //
};
use crate::{
    mem::{
        Access,
        Inline,
        MemRef,
        Source, //
    },
    provider::{
        cntr::Cntr,
        ep::{
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
        work::{
            Deferral,
            Work, //
        }, //
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
    /// kfi_inject() and the like, with these. Such operations cannot be triggered, because they
    /// have no context that names a condition.
    Inject(OpFlags),
}

impl Given {
    /// The default flags of the endpoint.
    pub(super) const DEFAULT: Self = Self::Default(OpFlags::EMPTY);
}

/// Arguments of a send besides its memory and its flags.
pub(super) struct SendArgs {
    pub(super) peer: u64,
    /// Remote CQ data, which the flags announce.
    pub(super) data: u64,
    pub(super) tag: Option<Tag>,
    pub(super) context: *mut c_void,
}

impl SendArgs {
    /// The kind of the operation.
    pub(super) fn kind(&self) -> OpType {
        match self.tag {
            None => OpType::Send,
            Some(_) => OpType::TSend,
        }
    }
}

/// Arguments of a receive besides its memory and its flags.
pub(super) struct ReceiveArgs {
    pub(super) peer: u64,
    pub(super) tag: Option<Tag>,
    pub(super) context: *mut c_void,
}

impl ReceiveArgs {
    /// The kind of the operation.
    pub(super) fn kind(&self) -> OpType {
        match self.tag {
            None => OpType::Recv,
            Some(_) => OpType::TRecv,
        }
    }
}

/// The context of the caller.
fn context() -> Context {
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

/// What starts an operation.
enum Start {
    /// The call, in this context.
    Now(Context),
    /// A counter that reaches a threshold. `deferral`: it is deferred work, with this report and
    /// number.
    Trigger {
        cntr: Arc<Cntr>,
        threshold: u64,
        deferral: Option<(Deferral, WorkNumber)>,
    },
}

/// A call that posts an operation.
pub(super) struct Call {
    pub(super) flags: Flags,
    start: Start,
}

impl Call {
    /// The context of the caller.
    pub(super) fn context(&self) -> Context {
        match self.start {
            Start::Now(context) => context,
            Start::Trigger { .. } => Context::MaySleep,
        }
    }

    /// References to local memory. Fails with the errors of
    /// [`consumer`](crate::mem::consumer).
    pub(super) fn memory(&self, local: &Local, access: Access) -> Result<MemRef> {
        local.memory(access, self.context())
    }

    /// The bytes of a transmit; a few are copied to `inline`, unless they are read when the
    /// operation starts. Fails as [`memory`](Self::memory).
    pub(super) fn source<'a>(&self, local: &Local, inline: &'a mut Inline) -> Result<Source<'a>> {
        let is_now = matches!(self.start, Start::Now(_));
        if is_now || self.flags.own.contains(OpFlags::INJECT) {
            return local.source(inline, self.context());
        }
        Ok(Source::Mem(self.memory(local, Access::Read)?))
    }
}

impl OpenEp {
    /// Begins a call that posts an operation. Fails with `EINVAL` for a flag that `kind` cannot
    /// have, or a triggered context that is not valid; `ENOSYS` for kfi_inject() and the like of an
    /// endpoint whose operations are triggered; `EOPNOTSUPP` for a triggered operation of an
    /// endpoint without the capability, or where the caller may not sleep.
    ///
    /// # Safety
    ///
    /// `op_context` is the context of the operation, by the interface.
    pub(super) unsafe fn begin(
        &self,
        kind: OpType,
        given: Given,
        op_context: *mut c_void,
    ) -> Result<Call> {
        let (own, defaults) = match given {
            Given::Default(own) => (own.bits(), self.op_flags(kind.side())),
            Given::Inject(_) if self.op_flags(kind.side()).contains(OpFlags::TRIGGER) => {
                return Err(ENOSYS);
            }
            Given::Inject(own) => ((own | OpFlags::INJECT).bits(), OpFlags::EMPTY),
            // An injected operation of these calls makes an entry, like all others.
            Given::Explicit(own)
                if own & KFI_INJECT != 0 && !self.endpoint.is_selective(Side::Transmit) =>
            {
                (own | KFI_COMPLETION, OpFlags::EMPTY)
            }
            Given::Explicit(own) => (own, OpFlags::EMPTY),
        };
        let flags = kind.flags(own & !KFI_TRIGGER, false, defaults);
        let start = if (own | defaults.bits()) & KFI_TRIGGER == 0 {
            Start::Now(context())
        } else {
            // SAFETY: By the interface, the context of such an operation is a triggered context.
            unsafe { self.trigger(op_context.cast()) }?
        };
        // The defaults of an alias are not those of its endpoint, so they are added here.
        Ok(Call {
            flags: Flags {
                own: flags.map_err(to_error)?,
                explicit: true,
            },
            start,
        })
    }

    /// What starts a triggered operation.
    ///
    /// # Safety
    ///
    /// `trigger` is null or valid.
    #[cold]
    unsafe fn trigger(&self, trigger: *const kfi_triggered_context) -> Result<Start> {
        self.endpoint.check_trigger()?;
        if context() == Context::Atomic {
            return Err(EOPNOTSUPP);
        }
        // SAFETY: By the requirement above.
        let trigger = unsafe { trigger.as_ref() }.ok_or(EINVAL)?;
        if trigger.event_type != raw::KFI_TRIGGER_THRESHOLD {
            return Err(EINVAL);
        }
        // SAFETY: The event type names this member.
        let what = unsafe { trigger.trigger.threshold };
        // SAFETY: By the interface, `cntr` is null or an open object.
        let cntr = unsafe { of_class::<kfid_cntr>(what.cntr.cast()) }?;
        self.endpoint.check_domain(cntr.cntr.domain())?;
        Ok(Start::Trigger {
            cntr: cntr.cntr.clone(),
            threshold: what.threshold as u64,
            deferral: None,
        })
    }

    /// Begins a call that queues deferred work, which waits for `cntr`. Fails with `EINVAL` for a
    /// flag that `kind` cannot have, or an object of another domain; `EBADF` if a counter is
    /// closed. Process context.
    pub(super) fn begin_deferred(
        &self,
        kind: OpType,
        flags: u64,
        (cntr, threshold): (&Arc<Cntr>, u64),
        completion: Option<&Arc<Cntr>>,
        number: WorkNumber,
    ) -> Result<Call> {
        self.endpoint.check_domain(cntr.domain())?;
        if let Some(completion) = completion {
            self.endpoint.check_domain(completion.domain())?;
        }
        let flags = kind.flags(flags, false, OpFlags::EMPTY).map_err(to_error)?;
        let report = flags.contains(OpFlags::COMPLETION);
        Ok(Call {
            flags: Flags {
                own: flags,
                explicit: true,
            },
            start: Start::Trigger {
                cntr: cntr.clone(),
                threshold,
                deferral: Some((Deferral::new(completion, report)?, number)),
            },
        })
    }

    /// Posts an operation, or has it wait.
    pub(super) fn post(&self, call: Call, mut op: Op<'_>) -> Result {
        let owner = &self.opener.owner;
        match call.start {
            Start::Now(Context::MaySleep) => {
                let post = || Poster::new(&self.endpoint).post(op);
                // Not `Owner::charge`: a post of the consumer stays in the scope of its caller.
                owner.memcg().charge(post)
            }
            Start::Now(Context::Atomic) => {
                self.endpoint.check_started(&op)?;
                self.endpoint.admit(&mut op, Context::Atomic)?.start();
                Ok(())
            }
            Start::Trigger {
                cntr,
                threshold,
                deferral,
            } => owner.memcg().charge(|| {
                let Some((deferral, number)) = deferral else {
                    let admitted = self.endpoint.admit_waiting(&mut op)?;
                    let work = Work::transfer(&self.endpoint, admitted)?;
                    return cntr.trigger(threshold, work);
                };
                let admitted = self.endpoint.admit_deferred(&mut op, deferral)?;
                let work = Work::transfer(&self.endpoint, admitted)?;
                // SAFETY: The provider calls it before a task can start the work.
                let note = |ticket| unsafe { number.store(ticket) };
                cntr.queue_transfer_with(threshold, work, note).map(drop)
            }),
        }
    }

    /// Posts a send.
    pub(super) fn post_send(&self, call: Call, local: &Local, args: &SendArgs) -> Result {
        let mut inline = Inline::new();
        let op = Send {
            flags: call.flags,
            context: number(args.context),
            from: call.source(local, &mut inline)?,
            peer: args.peer,
            data: args.data,
            tag: args.tag,
        };
        self.post(call, Op::Send(op))
    }

    /// Posts a receive.
    pub(super) fn post_receive(&self, call: Call, local: &Local, args: &ReceiveArgs) -> Result {
        let op = Receive {
            flags: call.flags,
            context: number(args.context),
            into: call.memory(local, Access::Write)?,
            addr: local.addr(),
            peer: args.peer,
            tag: args.tag,
        };
        self.post(call, Op::Receive(op))
    }

    /// Sends a message: the result of a call of a consumer.
    ///
    /// # Safety
    ///
    /// As for [`begin`](Self::begin).
    pub(super) unsafe fn send(&self, given: Given, local: Result<Local>, args: SendArgs) -> isize {
        let send = || {
            // SAFETY: By the requirement above.
            let call = unsafe { self.begin(args.kind(), given, args.context) }?;
            self.post_send(call, &local?, &args)
        };
        code(send()) as isize
    }

    /// Receives a message: the result of a call of a consumer.
    ///
    /// # Safety
    ///
    /// As for [`begin`](Self::begin).
    pub(super) unsafe fn receive(
        &self,
        given: Given,
        local: Result<Local>,
        args: ReceiveArgs,
    ) -> isize {
        let receive = || {
            // SAFETY: By the requirement above.
            let call = unsafe { self.begin(args.kind(), given, args.context) }?;
            self.post_receive(call, &local?, &args)
        };
        code(receive()) as isize
    }
}
