// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_object`: the use counts of objects, and bindings to closed objects.

use super::{
    close,
    close_killable,
    force_close,
    Object,
    UseRef, //
};
use crate::{
    kunit::{
        fixture::{
            a_while,
            allow_kill,
            count_if,
            eventually,
            ident,
            Count,
            TestDomain, //
        },
        helpers::Join, //
    },
    mem::{
        MemRef,
        UserRange, //
    },
    provider::{
        av::{
            Av,
            AvAttr, //
        },
        cntr::Cntr,
        eq::Eq,
        mr::Mr, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kfi_core::{
    enums,
    flags::Access,
    peer::RxCtxBits, //
};

fn eq(test: &TestDomain) -> Result<Arc<Eq>> {
    test.fabric.eq(0, enums::WaitObj::None, false)
}

fn cntr(test: &TestDomain) -> Result<Arc<Cntr>> {
    test.cntr(enums::WaitObj::None, 4)
}

fn av(test: &TestDomain) -> Result<Arc<Av>> {
    let attr = AvAttr {
        kind: enums::AvType::Table,
        count: 0,
        events: true,
        rx_ctx_bits: RxCtxBits::default(),
    };
    Av::open(&test.domain, attr, ident(5, 5)?)
}

fn mr(test: &TestDomain) -> Result<Arc<Mr>> {
    let mut ranges = KVec::new();
    ranges.push(UserRange { addr: 0, len: 64 }, GFP_KERNEL)?;
    let memory = MemRef::buffer(64)?;
    let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
    Mr::reg(&test.domain, memory, ranges, access, 1, ident(6, 6)?)
}

/// Starts a thread that closes a region with an operation inside, and counts if the close ends with
/// `EINTR`.
fn closer(mr: &Arc<Mr>, interrupted: &Arc<Count>) -> Result<Join> {
    let mr = mr.clone();
    count_if(interrupted, move || {
        allow_kill();
        close_killable(&*mr) == Err(EINTR)
    })
}

#[kunit_tests(kfabric_object)]
mod tests {
    use super::*;

    #[test]
    fn objects_in_use_are_not_closed() -> Result {
        let test = TestDomain::open()?;
        let cntr = cntr(&test)?;
        let (one, other) = (UseRef::new(cntr.clone())?, UseRef::new(cntr.clone())?);
        ensure_eq!(close(&*cntr), Err(EBUSY));
        one.release();
        one.release();
        drop(one);
        ensure_eq!(close(&*cntr), Err(EBUSY));
        ensure!(!cntr.uses().is_closed());
        drop(other);
        ensure_eq!(close(&*cntr), Ok(()));
        ensure_eq!(close(&*cntr), Err(EBADF));
        ensure_eq!(UseRef::new(cntr).err(), Some(EBADF));
        Ok(())
    }

    #[test]
    fn a_use_may_end_after_a_close_by_force() -> Result {
        let test = TestDomain::open()?;
        let cntr = cntr(&test)?;
        let used = UseRef::new(cntr.clone())?;
        force_close(&*cntr);
        ensure!(cntr.uses().is_closed());
        drop(used);
        ensure!(cntr.uses().is_closed());
        ensure_eq!(close(&*cntr), Err(EBADF));
        // It no longer uses its domain.
        ensure_eq!(close(&*test.domain), Ok(()));
        Ok(())
    }

    #[test]
    fn closed_objects_accept_no_bindings() -> Result {
        let test = TestDomain::open()?;
        let (eq, cntr) = (eq(&test)?, cntr(&test)?);
        let (av, mr) = (av(&test)?, mr(&test)?);
        ensure_eq!(close(&*av), Ok(()));
        ensure_eq!(av.bind_eq(&eq), Err(EBADF));
        ensure_eq!(close(&*mr), Ok(()));
        ensure_eq!(mr.bind_cntr(&cntr, true, true), Err(EBADF));
        // None of the objects uses it, although they still exist.
        ensure_eq!(close(&*cntr), Ok(()));
        ensure_eq!(close(&*test.domain), Ok(()));
        ensure_eq!(test.domain.bind_eq(&eq, true), Err(EBADF));
        ensure_eq!(close(&*eq), Ok(()));
        Ok(())
    }

    #[test]
    fn no_signal_ends_the_close_of_a_kernel_consumer() -> Result {
        let test = TestDomain::open()?;
        let mr = mr(&test)?;
        let closed = Count::new()?;
        let inside = mr.enter();
        ensure!(inside.is_some());
        let closer = {
            let mr = mr.clone();
            count_if(&closed, move || {
                allow_kill();
                close(&*mr).is_ok()
            })?
        };
        ensure!(eventually(|| mr.uses().is_closed() && mr.enter().is_none()));
        closer.kill();
        a_while();
        ensure_eq!(closed.get(), 0);
        drop(inside);
        closer.join();
        ensure_eq!(closed.get(), 1);
        ensure_eq!(close(&*mr), Err(EBADF));
        ensure_eq!(close(&*test.domain), Ok(()));
        Ok(())
    }

    #[test]
    fn an_interrupted_close_is_continued_by_the_next() -> Result {
        let test = TestDomain::open()?;
        let mr = mr(&test)?;
        let interrupted = Count::new()?;
        let inside = mr.enter();
        ensure!(inside.is_some());
        for round in 1..=2 {
            let closer = closer(&mr, &interrupted)?;
            ensure!(eventually(|| mr.uses().is_closed() && mr.enter().is_none()));
            a_while();
            ensure_eq!(interrupted.get(), round - 1);
            if round == 1 {
                // Only one task closes it.
                ensure_eq!(close(&*mr), Err(EBADF));
            }
            closer.kill();
            closer.join();
            ensure_eq!(interrupted.get(), round);
            ensure!(mr.uses().is_closed());
            ensure_eq!(UseRef::new(mr.clone()).err(), Some(EBADF));
            ensure!(test.domain.region(1).is_none());
        }
        // The object has not been torn down.
        ensure_eq!(close(&*test.domain), Err(EBUSY));
        drop(inside);
        ensure_eq!(close(&*mr), Ok(()));
        ensure_eq!(close(&*mr), Err(EBADF));
        ensure_eq!(close(&*test.domain), Ok(()));
        Ok(())
    }

    #[test]
    fn a_reused_key_survives_a_continued_close() -> Result {
        let test = TestDomain::open()?;
        let (old, interrupted) = (mr(&test)?, Count::new()?);
        let inside = old.enter();
        let closer = closer(&old, &interrupted)?;
        // Closed to operations first, then without its key.
        ensure!(eventually(|| test.domain.region(1).is_none()));
        let new = mr(&test)?;
        closer.kill();
        closer.join();
        ensure_eq!(interrupted.get(), 1);
        drop(inside);
        ensure_eq!(close(&*old), Ok(()));
        ensure!(test
            .domain
            .region(1)
            .is_some_and(|region| Arc::ptr_eq(&region, &new)));
        force_close(&*new);
        Ok(())
    }

    #[test]
    fn a_close_by_force_does_not_wait() -> Result {
        let test = TestDomain::open()?;
        let interrupted = Count::new()?;
        for halted in [false, true] {
            let mr = mr(&test)?;
            let inside = mr.enter();
            ensure!(inside.is_some());
            if halted {
                let closer = closer(&mr, &interrupted)?;
                ensure!(eventually(|| mr.enter().is_none()));
                closer.kill();
                closer.join();
                ensure_eq!(interrupted.get(), 1);
            }
            force_close(&*mr);
            ensure!(mr.enter().is_none());
            ensure_eq!(close(&*mr), Err(EBADF));
            // The operation inside continues, with its memory.
            let access = Access::REMOTE_WRITE;
            ensure!(mr
                .remote(0, 64, access)
                .is_ok_and(|memory| memory.len() == 64));
            drop(inside);
            ensure!(Arc::into_unique_or_drop(mr).is_some());
        }
        ensure_eq!(close(&*test.domain), Ok(()));
        Ok(())
    }
}
