// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_verbs_counters`: the domain of a context's counters, what a program can map, and
//! the set of counters of a QP.
//!
//! The suites of the provider test the counters themselves, and guest programs test them as verbs
//! have them. The tests use a device on the loopback interface of the first network namespace,
//! which must be up.

use super::{
    comp_cntr::{
        AttachedCntrs,
        Counter, //
    },
    context::Context,
    kunit_memory::Host,
    map::Mapped, //
};
use crate::{
    mem::{
        MapAccess,
        Part,
        SharedPages, //
    },
    provider::{
        comp_cntr::CompCntrAttr,
        object, //
    }, //
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
        CompCntrType, //
    },
    flags::CompCntrOps, //
};

fn counter(context: &Arc<Context>, unit: CompCntrType) -> Result<KBox<Counter>> {
    let external = None;
    Counter::new(context, CompCntrAttr { unit, external })
}

/// Both values.
fn values(counter: &Counter) -> (u64, u64) {
    (counter.cntr().read(Comp), counter.cntr().read(ErrCount))
}

fn charged(context: &Context) -> u64 {
    context.budget().charged(Part::Peers).0
}

#[kunit_tests(kfabric_verbs_counters)]
mod tests {
    use super::*;

    #[test]
    fn a_context_gets_a_domain_with_its_first_counter() -> Result {
        let host = Host::new()?;
        let context = host.pd()?.context().clone();
        let domains = || context.link().info().domains;
        let before = (domains(), charged(&context));
        let one = counter(&context, CompCntrType::Wrs)?;
        ensure_eq!(domains(), before.0 + 1);
        let two = counter(&context, CompCntrType::Wrs)?;
        ensure_eq!(domains(), before.0 + 1);
        ensure!(Arc::ptr_eq(one.cntr().domain(), two.cntr().domain()));
        drop((one, two));
        ensure_eq!(domains(), before.0 + 1);
        context.close();
        ensure_eq!((domains(), charged(&context)), before);
        Ok(())
    }

    #[test]
    fn an_offset_maps_its_object_only() -> Result {
        let host = Host::new()?;
        let context = host.pd()?.context().clone();
        let before = charged(&context);
        let pages = SharedPages::new(PAGE_SIZE)?;
        let one = Mapped::new(&context, pages.clone(), MapAccess::ReadOnly)?;
        let two = Mapped::new(&context, SharedPages::new(1)?, MapAccess::ReadWrite)?;
        let find = |offset: u64| context.maps().find(offset / PAGE_SIZE as u64);
        let (first, second) = (one.offset(), two.offset());
        ensure!(first != 0 && first % PAGE_SIZE as u64 == 0);
        ensure!(second != 0 && second % PAGE_SIZE as u64 == 0);
        let found = find(first).ok_or(ENOENT)?;
        ensure!(Arc::ptr_eq(&found.0, &pages));
        ensure_eq!(found.1, MapAccess::ReadOnly);
        let found = find(second).ok_or(ENOENT)?;
        ensure_eq!(found.1, MapAccess::ReadWrite);
        ensure!(find(0).is_none());
        ensure!(charged(&context) > before);
        drop(one);
        ensure!(find(first).is_none());
        // It is not given again.
        let other = Mapped::new(&context, pages, MapAccess::ReadOnly)?;
        ensure!(other.offset() != first && other.offset() != second);
        drop((two, other));
        ensure_eq!(charged(&context), before);
        Ok(())
    }

    #[test]
    fn a_page_that_is_mapped_stays_charged() -> Result {
        let host = Host::new()?;
        let context = host.pd()?.context().clone();
        let before = charged(&context);
        let one = counter(&context, CompCntrType::Wrs)?;
        let page = one.cntr().page().clone();
        drop(one);
        context.close();
        ensure_eq!(charged(&context), before + PAGE_SIZE as u64);
        drop(page);
        ensure_eq!(charged(&context), before);
        Ok(())
    }

    #[test]
    fn a_qp_counts_what_its_counters_are_for() -> Result {
        let host = Host::new()?;
        let context = host.pd()?.context().clone();
        let requests = counter(&context, CompCntrType::Wrs)?;
        let bytes = counter(&context, CompCntrType::Bytes)?;
        let attached = AttachedCntrs::new(context.budget())?;
        let messages = CompCntrOps::SEND | CompCntrOps::RECV;
        attached.attach(requests.cntr(), messages)?;
        let reads = CompCntrOps::RDMA_READ | CompCntrOps::RECV;
        ensure_eq!(attached.attach(bytes.cntr(), reads), Err(EBUSY));
        // Nothing is attached then.
        attached.count(CompCntrOps::RDMA_READ, true, 9);
        ensure_eq!(values(&bytes), (0, 0));
        attached.attach(bytes.cntr(), CompCntrOps::RDMA_READ)?;
        attached.count(CompCntrOps::SEND, true, 7);
        attached.count(CompCntrOps::RECV, false, 7);
        attached.count(CompCntrOps::RDMA_READ, true, 9);
        attached.count(CompCntrOps::RDMA_READ, false, 9);
        attached.count(CompCntrOps::RDMA_WRITE, true, 9);
        attached.count(CompCntrOps::EMPTY, true, 9);
        ensure_eq!((values(&requests), values(&bytes)), ((1, 1), (9, 1)));
        // Under a lock: the responder's packets are built with bottom halves disabled.
        pin_init::stack_pin_init!(let lock = new_spinlock!(()));
        let guard = lock.lock();
        attached.count(CompCntrOps::SEND, true, 7);
        drop(guard);
        ensure_eq!(values(&requests), (2, 1));
        Ok(())
    }

    #[test]
    fn attached_counters_are_in_use_until_they_are_released() -> Result {
        let host = Host::new()?;
        let context = host.pd()?.context().clone();
        let one = counter(&context, CompCntrType::Wrs)?;
        let attached = AttachedCntrs::new(context.budget())?;
        attached.attach(one.cntr(), CompCntrOps::ALL)?;
        ensure_eq!(object::close(&**one.cntr()), Err(EBUSY));
        attached.release();
        attached.release();
        ensure_eq!(object::close(&**one.cntr()), Ok(()));
        let other = AttachedCntrs::new(context.budget())?;
        ensure_eq!(other.attach(one.cntr(), CompCntrOps::SEND), Err(EBADF));
        Ok(())
    }
}
