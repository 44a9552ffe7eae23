// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_eq`: event queues with the real scheduler and clock.

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
        TestFabric,
        MS, //
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
    shim::{
        errno::to_error,
        sched::now_ns, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kfi_core::{
    enums,
    errno::Errno,
    wait::Deadline, //
};

/// Opens a writable EQ of this many events, with `KFI_WAIT_QUEUE`.
fn eq(fabric: &TestFabric, entries: u32) -> Result<Arc<Eq>> {
    fabric.eq(entries, enums::WaitObj::Queue, true)
}

fn overrun() -> Error {
    to_error(Errno::KFI_EOVERRUN)
}

/// Reads an event. Returns its number and its length.
fn read(eq: &Eq, peek: bool) -> Result<(u32, usize)> {
    let mut event = (0, 0);
    eq.read(peek, |read| {
        event = (read.event, read.data.len());
        Ok(())
    })?;
    Ok(event)
}

/// Takes the next event. Returns its number and its words.
fn words(eq: &Eq) -> Result<(u32, [u64; 3])> {
    let mut event = (0, [0; 3]);
    eq.read(false, |read| {
        event.0 = read.event;
        for (to, word) in event.1.iter_mut().zip(read.data.chunks_exact(8)) {
            *to = u64::from_ne_bytes(*word.first_chunk().ok_or(EINVAL)?);
        }
        Ok(())
    })?;
    Ok(event)
}

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
    fn events_are_read_in_order() -> Result {
        let fabric = TestFabric::open()?;
        let eq = eq(&fabric, 4)?;
        ensure_eq!(read(&eq, false), Err(EAGAIN));
        ensure_eq!(eq.write(7, b"abc"), Ok(()));
        ensure_eq!(eq.write(8, &[0; 256]), Ok(()));
        ensure_eq!(eq.write(9, b""), Ok(()));
        ensure_eq!(read(&eq, true), Ok((7, 3)));
        ensure_eq!(read(&eq, false), Ok((7, 3)));
        ensure_eq!(read(&eq, false), Ok((8, 256)));
        ensure_eq!(read(&eq, false), Ok((9, 0)));
        ensure_eq!(read(&eq, true), Err(EAGAIN));
        Ok(())
    }

    #[test]
    fn events_of_the_module_have_their_data() -> Result {
        let fabric = TestFabric::open()?;
        let eq = eq(&fabric, 4)?;
        eq.mr_complete(&ident(5, 77)?);
        eq.av_error(&ident(6, 88)?, 99, 2, EINVAL);
        eq.av_complete(&ident(6, 88)?, 99, 3);
        ensure_eq!(read(&eq, false), Err(to_error(Errno::KFI_EAVAIL)));
        ensure_eq!(eq.readerr(false, |_| Err(EFAULT)), Err(EFAULT));
        for peek in [true, false] {
            let read = eq.readerr(peek, |error| {
                ensure_eq!((error.fid, error.err, error.prov_errno), (6, 22, 0));
                ensure_eq!((error.context, error.data), (99, 2));
                Ok(())
            });
            ensure_eq!(read, Ok(()));
        }
        ensure_eq!(eq.readerr(false, |_| Ok(())), Err(EAGAIN));
        // The numbers of enum kfi_eq_event: MR_COMPLETE 4, AV_COMPLETE 5.
        ensure_eq!(words(&eq), Ok((4, [5, 77, 0])));
        ensure_eq!(words(&eq), Ok((5, [6, 99, 3])));
        Ok(())
    }

    #[test]
    fn entries_that_cannot_be_copied_are_not_consumed() -> Result {
        let fabric = TestFabric::open()?;
        let eq = eq(&fabric, 4)?;
        eq.write(1, b"one")?;
        let too_small = to_error(Errno::KFI_ETOOSMALL);
        ensure_eq!(eq.read(false, |_| Err(too_small)), Err(too_small));
        ensure_eq!(eq.sread(false, soon(), |_| Err(EFAULT)), Err(EFAULT));
        ensure_eq!(read(&eq, false), Ok((1, 3)));
        Ok(())
    }

    #[test]
    fn writing_is_checked() -> Result {
        let fabric = TestFabric::open()?;
        let read_only = fabric.eq(0, enums::WaitObj::None, false)?;
        ensure_eq!(read_only.entries(), 64);
        ensure_eq!(read_only.write(1, b""), Err(EINVAL));
        let eq = eq(&fabric, 2)?;
        ensure_eq!(eq.write(1, &[0; 321]), Err(EINVAL));
        ensure_eq!(eq.write(1, b""), Ok(()));
        ensure_eq!(eq.write(2, b""), Ok(()));
        ensure_eq!(eq.write(3, b""), Err(EAGAIN));
        ensure_eq!(read(&eq, false), Ok((1, 0)));
        ensure_eq!(eq.write(3, b""), Ok(()));
        let none = enums::WaitObj::None;
        ensure_eq!(fabric.eq(4097, none, false).err(), Some(EINVAL));
        ensure_eq!(fabric.eq(4096, none, false)?.entries(), 4096);
        Ok(())
    }

    #[test]
    fn lost_events_are_reported_once_by_reads() -> Result {
        let fabric = TestFabric::open()?;
        let eq = eq(&fabric, 1)?;
        eq.mr_complete(&ident(1, 1)?);
        eq.mr_complete(&ident(2, 2)?);
        eq.mr_complete(&ident(3, 3)?);
        ensure_eq!(words(&eq), Ok((4, [1, 1, 0])));
        ensure_eq!(read(&eq, true), Err(overrun()));
        ensure_eq!(read(&eq, false), Err(overrun()));
        ensure_eq!(read(&eq, false), Err(EAGAIN));
        eq.av_error(&ident(1, 1)?, 1, 0, EINVAL);
        eq.av_error(&ident(1, 1)?, 1, 1, EINVAL);
        ensure_eq!(eq.readerr(false, |_| Ok(())), Ok(()));
        ensure_eq!(read(&eq, false), Err(overrun()));
        ensure_eq!(read(&eq, false), Err(EAGAIN));
        Ok(())
    }

    #[test]
    fn an_event_ends_a_wait() -> Result {
        let fabric = TestFabric::open()?;
        let eq = eq(&fabric, 4)?;
        ensure_eq!(eq.sread(false, Deadline::Poll, ignore), Err(EAGAIN));
        ensure_eq!(eq.sread(false, Deadline::At(1), ignore), Err(ETIMEDOUT));
        let end = now_ns() + 20 * MS;
        ensure_eq!(eq.sread(false, Deadline::At(end), ignore), Err(ETIMEDOUT));
        ensure!(now_ns() >= end);
        ensure_eq!(waiting(&eq), 0);

        let got = Count::new()?;
        let mut threads = KVec::new();
        for _ in 0..2 {
            let eq = eq.clone();
            let thread = count_if(&got, move || eq.sread(false, soon(), ignore).is_ok())?;
            threads.push(thread, GFP_KERNEL)?;
        }
        ensure!(eventually(|| waiting(&eq) == 2));
        eq.write(1, b"")?;
        // One thread has the event, the other sleeps again.
        ensure!(eventually(|| got.get() == 1 && waiting(&eq) == 1));
        eq.mr_complete(&ident(1, 1)?);
        drop(threads);
        ensure_eq!(got.get(), 2);

        let other = eq.clone();
        let thread = count_if(&got, move || {
            other.sread(false, soon(), ignore) == Err(to_error(Errno::KFI_EAVAIL))
        })?;
        ensure!(eventually(|| waiting(&eq) == 1));
        eq.av_error(&ident(1, 1)?, 1, 0, EINVAL);
        thread.join();
        ensure_eq!(got.get(), 3);
        ensure!(eq.is_ready());
        Ok(())
    }

    #[test]
    fn the_wait_object_determines_how_to_wait() -> Result {
        let fabric = TestFabric::open()?;
        let none = fabric.eq(4, enums::WaitObj::None, true)?;
        let unspec = fabric.eq(4, enums::WaitObj::Unspec, true)?;
        let set = WaitSet::open(&fabric.0, ident(2, 2)?)?;
        let in_set = || {
            Ok::<_, Error>(EqAttr {
                entries: 4,
                wait: WaitObj::new(enums::WaitObj::Set.into(), Some(set.clone()))?,
                writable: true,
                consumer: None,
            })
        };
        let member = Eq::open(&fabric.0, in_set()?, ident(3, 3)?)?;
        for eq in [&none, &member] {
            ensure_eq!(eq.sread(false, Deadline::At(1), ignore), Err(EINVAL));
            ensure_eq!(eq.sread(false, Deadline::Poll, ignore), Err(EAGAIN));
        }
        ensure_eq!(unspec.sread(false, Deadline::At(1), ignore), Err(ETIMEDOUT));
        ensure_eq!(none.getwait().err(), Some(EINVAL));
        ensure_eq!(set.wait(Deadline::Poll), Err(ETIMEDOUT));
        member.write(1, b"")?;
        ensure_eq!(set.wait(Deadline::Poll), Ok(()));
        member.av_error(&ident(1, 1)?, 1, 0, EINVAL);
        ensure_eq!(set.wait(Deadline::Poll), Ok(()));
        let elsewhere = TestFabric::open()?;
        let foreign = Eq::open(&elsewhere.0, in_set()?, ident(3, 3)?);
        ensure_eq!(foreign.err(), Some(EINVAL));
        ensure_eq!(close(&*set), Err(EBUSY));
        ensure_eq!(close(&*member), Ok(()));
        ensure_eq!(close(&*set), Ok(()));
        Ok(())
    }

    #[test]
    fn waiters_use_the_eq() -> Result {
        let fabric = TestFabric::open()?;
        let eq = eq(&fabric, 4)?;
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
