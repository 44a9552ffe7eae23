// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_submit_atomic`: atomics of reliable datagrams that were admitted before they
//! start.

use super::{
    admit::Context,
    op::{
        Atomic,
        Flags,
        Op,
        Remote,
        RemoteRange, //
    },
    *, //
};
use crate::{
    kunit::{
        contexts::in_hard_irq,
        ep_pair::Pair,
        fixture::ident, //
    },
    mem::{
        memref::{
            equal,
            fill, //
        },
        UserRange, //
    },
    provider::{
        mr::Mr,
        object::force_close, //
    },
};
use kfi_core::{
    atomic::Function,
    enums::{
        AtomicOp,
        Datatype, //
    },
    flags::Access, //
};

const KEY: u64 = 7;
const LEN: usize = 64;

/// A pair, and memory of `b` that peers may change.
fn pair() -> Result<(Pair, MemRef, Arc<Mr>)> {
    let pair = Pair::new(EpType::Rdm)?;
    let target = MemRef::buffer(LEN)?;
    let mut ranges = KVec::new();
    let range = UserRange {
        addr: 0,
        len: LEN as u64,
    };
    ranges.push(range, GFP_KERNEL)?;
    let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
    let (domain, owner) = (&pair.domain.domain, ident(50, 0)?);
    let mr = Mr::reg(domain, target.clone(), ranges, access, KEY, owner)?;
    Ok((pair, target, mr))
}

/// An operation on all bytes of the memory of `b`.
fn atomic(
    pair: &Pair,
    kind: OpType,
    op: AtomicOp,
    flags: OpFlags,
    [operand, compare, result]: [MemRef; 3],
) -> Result<Op<'static>> {
    let function = Function::new(kind, op, Datatype::Uint8).map_err(to_error)?;
    Ok(Op::Atomic(Atomic {
        flags: Flags {
            own: flags,
            explicit: true,
        },
        context: 5,
        function,
        operand: Source::Mem(operand),
        compare: Source::Mem(compare),
        result,
        peer: pair.a.peer,
        remote: Remote::One(RemoteRange {
            addr: 0,
            len: LEN as u64,
            key: KEY,
        }),
        data: 0,
    }))
}

/// Memory of so many bytes of one value.
fn bytes(byte: u8) -> Result<MemRef> {
    let memory = MemRef::buffer(LEN)?;
    fill(&memory, byte);
    Ok(memory)
}

#[kunit_tests(kfabric_submit_atomic)]
mod tests {
    use super::*;

    /// Operands are read when the operation starts; with KFI_INJECT, when it is admitted.
    #[test]
    fn operands_are_read_when_the_atomic_starts() -> Result {
        let (pair, target, mr) = pair()?;
        let write = AtomicOp::AtomicWrite;
        for (flags, expected) in [(OpFlags::EMPTY, 2), (OpFlags::INJECT, 1)] {
            let flags = flags | OpFlags::COMPLETION;
            let operand = bytes(1)?;
            let memory = [operand.clone(), MemRef::empty(), MemRef::empty()];
            let mut op = atomic(&pair, OpType::Atomic, write, flags, memory)?;
            let admitted = pair.a.endpoint.admit(&mut op, Context::MaySleep)?;
            fill(&operand, 2);
            admitted.start();
            ensure_eq!(pair.a.next()?, (5, Ok(())));
            ensure!(equal(&target, &bytes(expected)?));
        }
        force_close(&*mr);
        Ok(())
    }

    /// An atomic that compares is started by a hard interrupt, and returns the old values.
    #[test]
    fn a_hard_interrupt_starts_an_atomic() -> Result {
        let (pair, target, mr) = pair()?;
        fill(&target, 3);
        let (result, flags) = (bytes(0)?, OpFlags::EMPTY);
        let memory = [bytes(9)?, bytes(3)?, result.clone()];
        let mut op = atomic(&pair, OpType::CompareAtomic, AtomicOp::Cswap, flags, memory)?;
        let admitted = pair.a.endpoint.admit(&mut op, Context::MaySleep)?;
        let admitted = KBox::pin_init(
            kernel::new_spinlock_irq!(Some(admitted), "kunit"),
            GFP_KERNEL,
        )?;
        in_hard_irq(move || {
            if let Some(admitted) = admitted.lock().take() {
                admitted.start();
            }
        })?;
        ensure_eq!(pair.a.next()?, (5, Ok(())));
        ensure!(equal(&target, &bytes(9)?) && equal(&result, &bytes(3)?));
        force_close(&*mr);
        Ok(())
    }

    /// A cancelled or invalid atomic changes nothing; a refused access is an error of its
    /// completion.
    #[test]
    fn atomics_that_do_not_start_change_nothing() -> Result {
        let (pair, target, mr) = pair()?;
        let (sum, none) = (AtomicOp::Sum, OpFlags::EMPTY);
        let memory = || Ok::<_, Error>([bytes(1)?, MemRef::empty(), MemRef::empty()]);
        let mut op = atomic(&pair, OpType::Atomic, sum, none, memory()?)?;
        let admitted = pair.a.endpoint.admit(&mut op, Context::MaySleep)?;
        admitted.cancel();
        ensure_eq!(pair.a.next()?, (5, Err(ECANCELED)));
        // Without a result for the old values.
        let fetch = atomic(&pair, OpType::FetchAtomic, sum, none, memory()?)?;
        let mut fetch = fetch;
        let refused = pair.a.endpoint.admit(&mut fetch, Context::MaySleep);
        ensure_eq!(refused.err(), Some(EINVAL));
        force_close(&*mr);
        let mut op = atomic(&pair, OpType::Atomic, sum, none, memory()?)?;
        let admitted = pair.a.endpoint.admit(&mut op, Context::MaySleep)?;
        admitted.start();
        ensure_eq!(pair.a.next()?, (5, Err(EACCES)));
        ensure!(equal(&target, &bytes(0)?));
        Ok(())
    }
}
