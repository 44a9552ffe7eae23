// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_eq`: what ends the waits for an event, besides an event that a program writes: an
//! event of the module, an error, and a close by force. Guest scenarios test event queues as
//! programs use them.

use super::{
    Eq,
    EqAttr,
    EventRead, //
};
use crate::{
    kunit::fixture::{
        count_if,
        eventually,
        ident,
        soon,
        Count,
        TestFabric, //
    },
    provider::{
        object::{
            close,
            force_close, //
        },
        wait::{
            Readable,
            WaitObj,
            WaitSet, //
        }, //
    },
    shim::errno::to_error, //
};
use kernel::prelude::*;
use kfi_core::{
    enums,
    errno::Errno,
    wait::Deadline, //
};

fn waiting(eq: &Eq) -> u32 {
    eq.state.lock().sleepers()
}

fn ignore(_read: EventRead<'_>) -> Result {
    Ok(())
}

#[kunit_tests(kfabric_eq)]
mod tests {
    use super::*;

    #[test]
    fn an_eq_without_a_size_has_64_events() -> Result {
        let fabric = TestFabric::open()?;
        let eq = fabric.eq(0, enums::WaitObj::None, false)?;
        ensure_eq!(eq.entries(), 64);
        Ok(())
    }

    #[test]
    fn an_event_of_the_module_ends_a_wait() -> Result {
        let fabric = TestFabric::open()?;
        let eq = fabric.eq(4, enums::WaitObj::Queue, true)?;
        let (other, ended) = (eq.clone(), Count::new()?);
        let thread = count_if(&ended, move || other.sread(false, soon(), ignore).is_ok())?;
        ensure!(eventually(|| waiting(&eq) == 1));
        eq.mr_complete(&ident(5, 77)?);
        thread.join();
        ensure_eq!(ended.get(), 1);
        Ok(())
    }

    #[test]
    fn an_error_ends_waits() -> Result {
        let fabric = TestFabric::open()?;
        let eq = fabric.eq(4, enums::WaitObj::Queue, true)?;
        let (other, ended) = (eq.clone(), Count::new()?);
        let thread = count_if(&ended, move || {
            other.sread(false, soon(), ignore) == Err(to_error(Errno::KFI_EAVAIL))
        })?;
        ensure!(eventually(|| waiting(&eq) == 1));
        eq.av_error(&ident(6, 88)?, 99, 2, EINVAL);
        thread.join();
        ensure_eq!(ended.get(), 1);
        ensure!(eq.is_ready());
        let read = eq.readerr(false, |error| {
            ensure_eq!((error.fid, error.err, error.prov_errno), (6, 22, 0));
            Ok(())
        });
        ensure_eq!(read, Ok(()));

        let set = WaitSet::open(&fabric.0, ident(2, 2)?)?;
        let attr = EqAttr {
            entries: 4,
            wait: WaitObj::new(enums::WaitObj::Set.into(), Some(set.clone()))?,
            writable: true,
            consumer: None,
        };
        let member = Eq::open(&fabric.0, attr, ident(3, 3)?)?;
        member.av_error(&ident(1, 1)?, 1, 0, EINVAL);
        ensure_eq!(set.wait(Deadline::Poll), Ok(()));
        ensure_eq!(close(&*member), Ok(()));
        ensure_eq!(close(&*set), Ok(()));
        Ok(())
    }

    #[test]
    fn waiters_use_the_eq() -> Result {
        let fabric = TestFabric::open()?;
        let eq = fabric.eq(4, enums::WaitObj::Queue, true)?;
        ensure_eq!(close(&*fabric.0), Err(EBUSY));
        let (other, refused) = (eq.clone(), Count::new()?);
        let thread = count_if(&refused, move || {
            other.sread(false, soon(), ignore) == Err(EBADF)
        })?;
        ensure!(eventually(|| waiting(&eq) == 1));
        ensure_eq!(close(&*eq), Err(EBUSY));
        force_close(&*eq);
        thread.join();
        ensure_eq!(refused.get(), 1);
        ensure_eq!(eq.sread(false, Deadline::Forever, ignore), Err(EBADF));
        ensure_eq!(eq.getwait().err(), Some(EBADF));
        ensure_eq!(close(&*fabric.0), Ok(()));
        Ok(())
    }
}
