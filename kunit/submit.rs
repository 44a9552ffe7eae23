// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_submit`: admitted operations, started from all contexts, cancelled and dropped.
//! [`submit_close`] has those of endpoints that close, [`submit_room`] those that wait for room.

#[path = "submit_close.rs"]
mod submit_close;
#[path = "submit_room.rs"]
mod submit_room;

use super::{
    admit::{
        Admitted,
        Context, //
    },
    op::{
        Flags,
        Op,
        RemoteRange, //
    },
    *, //
};
use crate::{
    kunit::{
        contexts::{
            in_hard_irq,
            in_softirq, //
        },
        ep_pair::{
            End,
            Pair,
            Sizes, //
        },
        fixture::{
            a_while,
            eventually,
            ident,
            wait_for, //
        },
        helpers::{
            user,
            Irq, //
        }, //
    },
    mem::{
        self,
        Budget,
        Inline,
        MemRef,
        Part,
        Source, //
    },
    provider::object::close, //
};
use kernel::{
    new_spinlock_irq,
    sync::SpinLockIrq, //
};
use kfi_core::flags::CqBind;

/// The length of a message that waits at its peer, in bytes.
const LONG: usize = 1 << 17;

/// Starts SENDs of long messages at `pair.a`, and waits until `waiting` of them wait at the peer.
fn start_long(pair: &Pair, count: u64, waiting: u64) -> Result {
    for context in 0..count {
        admit_long(&pair.a, context)?.start();
    }
    let waits = || (pair.a.endpoint.tx.waiting() == waiting).then_some(());
    wait_for(waits)
}

/// Posts a receive for a long message at `pair.b`.
fn receive_long(pair: &Pair, context: u64) -> Result {
    pair.b.post(pair.b.receive(MemRef::buffer(LONG)?, context))
}

/// Admits a SEND of `byte` at `end`, with the same context.
fn admit_byte(end: &End, byte: u8, context: Context) -> Result<Admitted> {
    let inline = Inline::from_slice(&[byte]).ok_or(EINVAL)?;
    let mut op = end.send(Source::Inline(&inline), byte.into());
    end.endpoint.admit(&mut op, context)
}

/// Admits a SEND of a long message.
fn admit_long(end: &End, context: u64) -> Result<Admitted> {
    let mut op = end.send(Source::Mem(MemRef::buffer(LONG)?), context);
    end.endpoint.admit(&mut op, Context::MaySleep)
}

/// Posts receives of a byte each at `end`, and returns their memory.
fn receive_bytes(end: &End, count: u8) -> Result<KVec<MemRef>> {
    let mut memory = KVec::new();
    for context in 0..count {
        let byte = MemRef::buffer(1)?;
        memory.push(byte.clone(), GFP_KERNEL)?;
        end.post(end.receive(byte, context.into()))?;
    }
    Ok(memory)
}

/// Returns whether the bytes are 0, 1, 2, ... after both ends have reported them in this order.
fn arrived_in_order(pair: &Pair, bytes: &[MemRef]) -> Result<bool> {
    for (context, byte) in (0u8..).zip(bytes) {
        let want = MemRef::buffer(1)?;
        mem::memref::fill(&want, context);
        if pair.b.next()? != (context.into(), Ok(()))
            || pair.a.next()? != (context.into(), Ok(()))
            || !mem::memref::equal(byte, &want)
        {
            return Ok(false);
        }
    }
    Ok(pair.a.poll().is_none() && pair.b.poll().is_none())
}

/// Operations for a context that may not sleep.
#[pin_data]
struct Batch {
    #[pin]
    ops: SpinLockIrq<KVec<Admitted>>,
}

impl Batch {
    /// Admits the SENDs of the bytes 0, 1, ... `count - 1`.
    fn new(end: &End, count: u8) -> Result<Arc<Self>> {
        let mut ops = KVec::new();
        // The last one is taken first.
        for byte in (0..count).rev() {
            ops.push(admit_byte(end, byte, Context::MaySleep)?, GFP_KERNEL)?;
        }
        Arc::pin_init(
            pin_init!(Self {
                ops <- new_spinlock_irq!(ops),
            }),
            GFP_KERNEL,
        )
    }

    /// Starts all under the lock, as a counter does.
    fn start(&self) {
        let mut ops = self.ops.lock();
        while let Some(op) = ops.pop() {
            op.start();
        }
    }
}

/// An operation that is admitted and started where nothing may sleep.
#[pin_data]
struct Late {
    endpoint: Arc<Endpoint>,
    #[pin]
    op: SpinLockIrq<Option<Op<'static>>>,
}

impl Late {
    fn start(&self) {
        let mut op = self.op.lock();
        if let Some(op) = &mut *op {
            if let Ok(admitted) = self.endpoint.admit(op, Context::Atomic) {
                admitted.start();
            }
        }
    }
}

/// Sizes of an endpoint whose CQ has entries only for operations that ask for them.
const SILENT: Sizes = Sizes {
    bind: CqBind::SELECTIVE_COMPLETION,
    ..Sizes::DEFAULT
};

/// Sizes of an endpoint with room for `tx` transmits.
const fn narrow(tx: usize) -> Sizes {
    Sizes {
        tx,
        ..Sizes::DEFAULT
    }
}

#[kunit_tests(kfabric_submit)]
mod tests {
    use super::*;

    #[test]
    fn operations_started_in_process_context_are_posted_in_order() -> Result {
        let pair = Pair::new(EpType::Rdm)?;
        let bytes = receive_bytes(&pair.b, 8)?;
        for byte in 0..4 {
            admit_byte(&pair.a, byte, Context::MaySleep)?.start_here(&pair.a.endpoint, usize::MAX);
        }
        for byte in 4..8 {
            admit_byte(&pair.a, byte, Context::MaySleep)?.start();
        }
        ensure!(arrived_in_order(&pair, &bytes)?);
        Ok(())
    }

    #[test]
    fn operations_started_in_interrupts_are_posted_in_order() -> Result {
        for (ep_type, irq) in [
            (EpType::Rdm, Irq::Soft),
            (EpType::Rdm, Irq::Hard),
            (EpType::Msg, Irq::Hard),
        ] {
            let pair = Pair::new(ep_type)?;
            let bytes = receive_bytes(&pair.b, 8)?;
            let batch = Batch::new(&pair.a, 8)?;
            match irq {
                Irq::Hard => in_hard_irq(move || batch.start())?,
                _ => in_softirq(move || batch.start())?,
            }
            ensure!(arrived_in_order(&pair, &bytes)?);
        }
        Ok(())
    }

    #[test]
    fn operations_are_admitted_in_interrupts() -> Result {
        for irq in [Irq::Soft, Irq::Hard] {
            let pair = Arc::new(Pair::new(EpType::Rdm)?, GFP_KERNEL)?;
            let into = MemRef::buffer(1)?;
            let start = {
                let (pair, into) = (pair.clone(), into.clone());
                move || {
                    let mut receive = pair.b.receive(into.clone(), 7);
                    if let Ok(receive) = pair.b.endpoint.admit(&mut receive, Context::Atomic) {
                        receive.start();
                    }
                    if let Ok(send) = admit_byte(&pair.a, 5, Context::Atomic) {
                        send.start();
                    }
                }
            };
            match irq {
                Irq::Hard => in_hard_irq(start)?,
                _ => in_softirq(start)?,
            }
            ensure_eq!(pair.b.next()?, (7, Ok(())));
            ensure_eq!(pair.a.next()?, (5, Ok(())));
        }
        Ok(())
    }

    #[test]
    fn a_posted_operation_does_not_overtake_started_ones() -> Result {
        let pair = Pair::sized(EpType::Rdm, narrow(1), Sizes::DEFAULT)?;
        start_long(&pair, 2, 1)?;
        let short = || pair.a.send(Source::Mem(MemRef::empty()), 9);
        ensure_eq!(pair.a.post(short()), Err(EAGAIN));
        for context in 0..2 {
            receive_long(&pair, context)?;
            ensure_eq!(pair.a.next()?, (context, Ok(())));
        }
        pair.a.post(short())?;
        ensure_eq!(pair.a.next()?, (9, Ok(())));
        Ok(())
    }

    #[test]
    fn an_injected_message_that_was_started_waits_at_its_peer() -> Result {
        let none = Sizes {
            buffered: 0,
            ..Sizes::DEFAULT
        };
        let pair = Pair::sized(EpType::Rdm, Sizes::DEFAULT, none)?;
        let inline = Inline::from_slice(&[3]).ok_or(EINVAL)?;
        let inject = || {
            let mut op = pair.a.send(Source::Inline(&inline), 3);
            if let Op::Send(send) = &mut op {
                send.flags.own = OpFlags::INJECT | OpFlags::COMPLETION;
            }
            op
        };
        ensure_eq!(pair.a.post(inject()), Err(EAGAIN));
        pair.a
            .endpoint
            .admit(&mut inject(), Context::MaySleep)?
            .start();
        ensure!(eventually(|| pair.a.endpoint.tx.waiting() == 1));
        let into = receive_bytes(&pair.b, 1)?;
        ensure_eq!(pair.b.next()?, (0, Ok(())));
        ensure_eq!(pair.a.next()?, (3, Ok(())));
        let want = MemRef::buffer(1)?;
        mem::memref::fill(&want, 3);
        ensure!(mem::memref::equal(&into[0], &want));
        Ok(())
    }

    #[test]
    fn a_cancelled_operation_completes_with_ecanceled() -> Result {
        let pair = Pair::sized(EpType::Rdm, SILENT, Sizes::DEFAULT)?;
        let first = admit_byte(&pair.a, 1, Context::MaySleep)?;
        let second = admit_byte(&pair.a, 2, Context::MaySleep)?;
        second.cancel();
        first.cancel();
        ensure_eq!(pair.a.next()?, (2, Err(ECANCELED)));
        ensure_eq!(pair.a.next()?, (1, Err(ECANCELED)));
        ensure!(pair.a.poll().is_none());
        Ok(())
    }

    #[test]
    fn a_started_operation_is_cancelled_by_its_context() -> Result {
        let pair = Pair::sized(EpType::Rdm, narrow(1), Sizes::DEFAULT)?;
        start_long(&pair, 4, 1)?;
        pair.a.endpoint.cancel(2)?;
        ensure_eq!(pair.a.next()?, (2, Err(ECANCELED)));
        ensure_eq!(pair.a.endpoint.cancel(2), Err(ENOENT));
        for context in [0, 1, 3] {
            receive_long(&pair, context)?;
            ensure_eq!(pair.a.next()?, (context, Ok(())));
        }
        Ok(())
    }

    #[test]
    fn a_dropped_operation_has_no_completion_and_returns_its_charge() -> Result {
        let budget = Budget::of(user(90), Some(64 << 20))?;
        let pair = Pair::of(&budget, EpType::Rdm, Sizes::DEFAULT)?;
        let before = budget.charged(Part::Peers).0;
        let mut ops = KVec::new();
        for _ in 0..1000 {
            ops.push(admit_byte(&pair.a, 1, Context::MaySleep)?, GFP_KERNEL)?;
        }
        let charged = budget.charged(Part::Peers).0 - before;
        ensure!((1000 * 256..1000 * 2048).contains(&charged));
        // None has taken room in the CQ or among the transmits.
        ensure_eq!(pair.a.cq.stats().values[5], 0);
        ensure_eq!(pair.a.endpoint.tx.waiting(), 0);
        drop(ops);
        ensure_eq!(budget.charged(Part::Peers).0, before);
        ensure!(pair.a.poll().is_none());
        Ok(())
    }

    #[test]
    fn an_operation_beyond_the_budget_is_refused_and_keeps_its_memory() -> Result {
        let budget = Budget::of(user(91), Some(8 << 20))?;
        let pair = Pair::of(&budget, EpType::Rdm, Sizes::DEFAULT)?;
        let mut op = pair.a.send(Source::Mem(MemRef::buffer(100)?), 1);
        let all = budget.take((8 << 20) - budget.charged(Part::Peers).0)?;
        ensure_eq!(
            pair.a.endpoint.admit(&mut op, Context::MaySleep).err(),
            Some(ENOMEM)
        );
        ensure_eq!(
            pair.a.endpoint.admit(&mut op, Context::Atomic).err(),
            Some(ENOMEM)
        );
        drop(all);
        let Op::Send(send) = &op else {
            return Err(EINVAL);
        };
        ensure_eq!(send.from.len(), 100);
        pair.a.post(op)
    }

    #[test]
    fn invalid_operations_are_not_admitted() -> Result {
        let pair = Pair::new(EpType::Rdm)?;
        let refused = |op: &mut Op<'_>| pair.a.endpoint.admit(op, Context::MaySleep).err();
        let write = |len| {
            let (addr, key) = (0, 1);
            let remote = RemoteRange { addr, len, key };
            Ok::<_, Error>(pair.a.write(MemRef::buffer(8)?, remote))
        };
        ensure_eq!(refused(&mut write(7)?), Some(EINVAL));
        ensure_eq!(refused(&mut write(8)?), None);
        let mut long = pair.a.send(Source::Mem(MemRef::buffer(257)?), 0);
        if let Op::Send(send) = &mut long {
            send.flags.own = OpFlags::INJECT;
        }
        ensure_eq!(refused(&mut long), Some(EMSGSIZE));
        close(&*pair.a.endpoint)?;
        let bad_state = to_error(Errno::KFI_EOPBADSTATE);
        ensure_eq!(refused(&mut write(8)?), Some(bad_state));
        Ok(())
    }

    #[test]
    fn an_error_after_the_start_is_a_completion() -> Result {
        // Room for one entry, which the first error takes. The others have records.
        let sizes = Sizes { cq: 1, ..SILENT };
        let pair = Pair::sized(EpType::Rdm, sizes, Sizes::DEFAULT)?;
        for context in 0..3 {
            let mut op = pair.a.send(Source::Mem(MemRef::empty()), context);
            if let Op::Send(send) = &mut op {
                send.peer = 1234;
            }
            pair.a.endpoint.admit(&mut op, Context::MaySleep)?.start();
        }
        for context in 0..3 {
            ensure_eq!(pair.a.next()?, (context, Err(ENOENT)));
        }
        Ok(())
    }

    #[test]
    fn a_cancelled_buffer_is_released_with_its_error() -> Result {
        let pair = Pair::new(EpType::Rdm)?;
        let mut buffer = pair.a.receive(MemRef::buffer(100)?, 2);
        if let Op::Receive(receive) = &mut buffer {
            receive.flags = Flags {
                own: OpFlags::MULTI_RECV,
                explicit: true,
            };
        }
        pair.a
            .endpoint
            .admit(&mut buffer, Context::MaySleep)?
            .cancel();
        let mut flags = 0;
        pair.a.cq.readerr(
            |entry| {
                flags = entry.flags;
                Ok(())
            },
            || Ok(()),
        )?;
        ensure_eq!(
            flags & OpFlags::MULTI_RECV.bits(),
            OpFlags::MULTI_RECV.bits()
        );
        Ok(())
    }

    /// The last reference to memory must not be dropped where nothing may sleep.
    #[test]
    fn a_hard_interrupt_does_not_free_injected_memory() -> Result {
        let pair = Pair::new(EpType::Rdm)?;
        let (from, into) = (MemRef::buffer(8)?, MemRef::buffer(8)?);
        mem::memref::fill(&from, 3);
        let mut op = pair.a.send(Source::Mem(from), 1);
        op.set_flags(Flags {
            own: OpFlags::INJECT | OpFlags::COMPLETION,
            explicit: true,
        });
        let endpoint = pair.a.endpoint.clone();
        let late = Arc::pin_init(
            pin_init!(Late {
                endpoint,
                op <- new_spinlock_irq!(Some(op.take())),
            }),
            GFP_KERNEL,
        )?;
        pair.b.post(pair.b.receive(into.clone(), 2))?;
        let here = late.clone();
        in_hard_irq(move || here.start())?;
        ensure_eq!(pair.b.next()?, (2, Ok(())));
        ensure_eq!(pair.a.next()?, (1, Ok(())));
        let want = MemRef::buffer(8)?;
        mem::memref::fill(&want, 3);
        ensure!(mem::memref::equal(&want, &into));
        Ok(())
    }

    #[test]
    fn an_injected_message_of_other_memory_is_copied() -> Result {
        let pair = Pair::new(EpType::Rdm)?;
        let (from, into) = (MemRef::buffer(64)?, MemRef::buffer(64)?);
        mem::memref::fill(&from, 1);
        let mut op = pair.a.send(Source::Mem(from.clone()), 1);
        op.set_flags(Flags {
            own: OpFlags::INJECT,
            explicit: true,
        });
        let op = pair.a.endpoint.admit(&mut op, Context::MaySleep)?;
        mem::memref::fill(&from, 2);
        pair.b.post(pair.b.receive(into.clone(), 2))?;
        op.start();
        ensure_eq!(pair.b.next()?, (2, Ok(())));
        mem::memref::fill(&from, 1);
        ensure!(mem::memref::equal(&from, &into));
        Ok(())
    }

    #[test]
    fn default_flags_that_change_after_the_admission_have_no_effect() -> Result {
        let pair = Pair::sized(EpType::Rdm, SILENT, Sizes::DEFAULT)?;
        let mut op = pair.a.send(Source::Mem(MemRef::buffer(1000)?), 1);
        let op = pair.a.endpoint.admit(&mut op, Context::MaySleep)?;
        let injects = OpFlags::INJECT | OpFlags::COMPLETION;
        pair.a.endpoint.set_op_flags(Side::Transmit, injects)?;
        pair.b.post(pair.b.receive(MemRef::buffer(1000)?, 2))?;
        op.start();
        ensure_eq!(pair.b.next()?, (2, Ok(())));
        a_while();
        ensure!(pair.a.poll().is_none());
        Ok(())
    }
}
