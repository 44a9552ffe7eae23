// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_comp_cntr`: completion counters with exporters that fail, under locks, and after
//! a close by force.
//!
//! The core crate tests what operations add. Guest scenarios test counters as programs use them.

use super::{
    Attached,
    CompCntr,
    CompCntrAttr, //
};
use crate::{
    kunit::fixture::{
        ep_attr,
        ident,
        TestDomain, //
    },
    mem::{
        kunit_kinds::Exporter,
        Access,
        Budget,
        PinnedWord, //
    },
    provider::{
        ep::Endpoint,
        object::{
            close,
            force_close,
            Object, //
        }, //
    },
    shim::bindings as shim, //
};
use kernel::{
    new_spinlock,
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};
use kfi_core::{
    enums::{
        CompCntrEntry::{
            Comp,
            Err as ErrCount, //
        },
        CompCntrModifyOp::{
            Inc,
            Set, //
        },
        CompCntrType,
        EpType, //
    },
    flags::{
        Caps,
        CompCntrOps, //
    },
    limits, //
};

const WRS: CompCntrAttr = CompCntrAttr {
    unit: CompCntrType::Wrs,
    external: None,
};

fn create(domain: &TestDomain, attr: CompCntrAttr) -> Result<Arc<CompCntr>> {
    CompCntr::create(&domain.domain, attr, ident(5, 0)?)
}

/// Returns both counts.
fn counts(cntr: &CompCntr) -> (u64, u64) {
    (cntr.read(Comp), cntr.read(ErrCount))
}

/// A word at `offset` of a DMA-BUF.
fn word(exporter: &Exporter, offset: usize) -> Result<PinnedWord> {
    let dma_buf = exporter.open(offset, 8, Access::Write)?;
    PinnedWord::new(dma_buf.open(0, 8, Access::Write)?, None)
}

/// The number at `offset` of the exporter's memory.
fn seen(exporter: &Exporter, offset: usize) -> u64 {
    // SAFETY: The test's exporter has so many bytes; the module stores whole words.
    unsafe { exporter.memory().add(offset).cast::<u64>().read_volatile() }
}

/// A counter with both copies at the beginning of a DMA-BUF.
fn in_dma_buf(domain: &TestDomain, exporter: &Exporter) -> Result<Arc<CompCntr>> {
    let external = Some([word(exporter, 0)?, word(exporter, 8)?]);
    create(domain, CompCntrAttr { external, ..WRS })
}

fn exporter() -> Result<Exporter> {
    Exporter::new(PAGE_SIZE, true, shim::KFABRIC_KUNIT_MAP_MEMORY)
}

fn error<T>(result: Result<T>) -> Option<Error> {
    result.err()
}

#[kunit_tests(kfabric_comp_cntr)]
mod tests {
    use super::*;

    #[test]
    fn copies_follow_in_a_dma_buf() -> Result {
        let domain = TestDomain::open()?;
        let mut exporter = exporter()?;
        let cntr = in_dma_buf(&domain, &exporter)?;
        // The accesses last as long as the counter.
        ensure_eq!(exporter.accesses(), (2, 0));
        for (entry, op, value, expected) in [
            (Comp, Inc, 5, (5, 0)),
            (ErrCount, Inc, 1, (5, 1)),
            (Comp, Set, 2, (2, 1)),
            (ErrCount, Set, u64::MAX, (2, u64::MAX)),
            (ErrCount, Inc, 1, (2, 0)),
        ] {
            cntr.modify(entry, op, value)?;
            ensure_eq!(counts(&cntr), expected);
            ensure_eq!((seen(&exporter, 0), seen(&exporter, 8)), expected);
        }
        close(&*cntr)?;
        ensure_eq!(exporter.accesses(), (2, 2));
        ensure!(!exporter.is_mapped());
        exporter.put();
        ensure!(exporter.is_released());
        Ok(())
    }

    #[test]
    fn a_closed_counter_writes_no_copy() -> Result {
        let domain = TestDomain::open()?;
        let exporter = exporter()?;
        let cntr = in_dma_buf(&domain, &exporter)?;
        cntr.count(true, 1);
        ensure_eq!(seen(&exporter, 0), 1);
        // A reference stays, as that of an operation that is inside an endpoint.
        force_close(&*cntr);
        ensure!(!exporter.is_mapped());
        cntr.count(true, 1);
        cntr.count(false, 1);
        ensure_eq!((seen(&exporter, 0), seen(&exporter, 8)), (1, 0));
        ensure_eq!(counts(&cntr), (2, 1));
        Ok(())
    }

    #[test]
    fn an_exporter_that_fails_leaves_nothing() -> Result {
        let domain = TestDomain::open()?;
        let exporter = exporter()?;
        exporter.fail(EIO.to_errno(), 0);
        ensure_eq!(error(in_dma_buf(&domain, &exporter)), Some(EIO));
        ensure_eq!(exporter.accesses(), (0, 0));
        ensure!(!exporter.is_mapped());
        exporter.fail(0, 0);
        // Both copies in one word, and memory that is not a word.
        let twice = [word(&exporter, 16)?, word(&exporter, 16)?];
        let attr = CompCntrAttr {
            external: Some(twice),
            ..WRS
        };
        ensure_eq!(error(create(&domain, attr)), Some(EINVAL));
        ensure!(!exporter.is_mapped());
        ensure_eq!(error(word(&exporter, 4)), Some(EINVAL));
        for map in [shim::KFABRIC_KUNIT_MAP_NONE, shim::KFABRIC_KUNIT_MAP_IO] {
            let other = Exporter::new(PAGE_SIZE, true, map)?;
            ensure_eq!(error(word(&other, 0)), Some(EOPNOTSUPP));
        }
        let read_only = Exporter::new(PAGE_SIZE, false, shim::KFABRIC_KUNIT_MAP_MEMORY)?;
        ensure_eq!(error(word(&read_only, 0)), Some(EACCES));
        // No place in the domain is taken.
        let cntr = in_dma_buf(&domain, &exporter)?;
        close(&*cntr)
    }

    #[test]
    fn operations_are_counted_under_a_spin_lock() -> Result {
        let domain = TestDomain::open()?;
        let exporter = exporter()?;
        let cntr = in_dma_buf(&domain, &exporter)?;
        // Completions are reported under locks, as that of a multi-receive buffer.
        let lock = Arc::pin_init(new_spinlock!(0u32, "kunit::comp_cntr"), GFP_KERNEL)?;
        let mut held = lock.lock();
        cntr.count(true, 7);
        cntr.count(false, 7);
        *held = 1;
        drop(held);
        ensure_eq!((seen(&exporter, 0), seen(&exporter, 8)), (1, 1));
        close(&*cntr)
    }

    #[test]
    fn a_lowered_maximum_wraps() -> Result {
        let domain = TestDomain::open()?;
        let before = super::super::set_max_value(9);
        let cntr = create(&domain, WRS);
        super::super::set_max_value(before);
        let cntr = cntr?;
        ensure_eq!(cntr.max_value(), 9);
        for entry in [Comp, ErrCount] {
            cntr.modify(entry, Set, 9)?;
            cntr.modify(entry, Inc, 1)?;
            ensure_eq!(cntr.read(entry), 0);
            cntr.modify(entry, Inc, 9)?;
            cntr.modify(entry, Inc, 9)?;
            ensure_eq!(cntr.read(entry), 8);
            for op in [Set, Inc] {
                ensure_eq!(cntr.modify(entry, op, 10), Err(EINVAL));
            }
            ensure_eq!(cntr.read(entry), 8);
        }
        close(&*cntr)
    }

    #[test]
    fn a_domain_has_so_many_places() -> Result {
        let domain = TestDomain::open()?;
        let mut all = KVVec::new();
        for _ in 0..limits::MAX_COMP_CNTR {
            all.push(create(&domain, WRS)?, GFP_KERNEL)?;
        }
        ensure_eq!(error(create(&domain, WRS)), Some(ENOMEM));
        let last = all.pop().ok_or(EINVAL)?;
        close(&*last)?;
        // The reference that is left takes no place.
        let again = create(&domain, WRS)?;
        ensure_eq!(error(create(&domain, WRS)), Some(ENOMEM));
        close(&*again)?;
        while let Some(cntr) = all.pop() {
            close(&*cntr)?;
        }
        Ok(())
    }

    #[test]
    fn closed_objects_are_not_attached() -> Result {
        let domain = TestDomain::open()?;
        let cntr = create(&domain, WRS)?;
        let attr = ep_attr(EpType::Rdm, Caps::MSG | Caps::SEND | Caps::RECV);
        let endpoint = Endpoint::open(&domain.domain, attr, ident(6, 0)?)?;
        let sends = CompCntrOps::SEND;
        endpoint.attach_comp_cntr(&cntr, sends)?;
        ensure_eq!(cntr.uses().count(), 1);
        close(&*endpoint)?;
        ensure_eq!(cntr.uses().count(), 0);
        ensure_eq!(endpoint.attach_comp_cntr(&cntr, sends), Err(EBADF));
        close(&*cntr)?;
        let mut attached = Attached::new(&Budget::of_program()?)?;
        ensure_eq!(error(attached.attach(&cntr, sends, sends)), Some(EBADF));
        Ok(())
    }
}
