// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_mr`: regions of memory of all kinds, and operations on them.
//!
//! The tests use two endpoints on a link on the loopback interface: endpoints for reliable
//! datagrams, one of which copies to the other, and connected endpoints, whose packets go over the
//! wire.

use super::{
    ep::op::RemoteRange,
    mr::Mr,
    object::{
        close,
        force_close, //
    }, //
};
use crate::{
    kunit::{
        ep_pair::Pair,
        fixture::{
            eventually,
            ident,
            TestDomain, //
        },
        helpers::UserMemory, //
    },
    mem::{
        self,
        kunit_kinds::{
            buffer,
            named,
            Exporter,
            Held,
            Kind, //
        },
        MemRef,
        Memory,
        Part,
        Pinned,
        Source,
        UserRange, //
    },
    shim::bindings as shim, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};
use kfi_core::{
    enums::EpType,
    flags::Access, //
};

/// All access rights.
const ALL: Access = Access::SEND
    .union(Access::RECV)
    .union(Access::READ)
    .union(Access::WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_WRITE);

/// The access rights for local operations.
const LOCAL: Access = Access::SEND
    .union(Access::RECV)
    .union(Access::READ)
    .union(Access::WRITE);

/// The lengths of the pieces of each region: longer than a packet, single bytes, none.
const LENS: [usize; 9] = [1, 0, 5000, 3, 1, 0, PAGE_SIZE, 900, 1];

/// The lengths of thousands of pieces, too many for a stack.
static ONES: [usize; 3000] = [1; 3000];

/// Registers `memory`, which its owner addresses from 0 on.
fn reg(domain: &TestDomain, memory: Memory, access: Access, key: u64) -> Result<Arc<Mr>> {
    let ranges = named(memory.len())?;
    Mr::reg(
        &domain.domain,
        memory,
        ranges,
        access,
        key,
        ident(100 + key, 0)?,
    )
}

impl Pair {
    /// Sends `from` at `a` to `into` at `b`.
    fn message(&self, from: MemRef, into: MemRef) -> Result {
        self.b.post(self.b.receive(into, 0))?;
        self.a.post(self.a.send(Source::Mem(from), 0))?;
        self.a.complete()?;
        self.b.complete()
    }

    /// Writes `from` at `a` to the region of `b` with `key`.
    fn write(&self, from: MemRef, addr: u64, key: u64) -> Result {
        let len = from.len() as u64;
        self.a
            .post(self.a.write(from, RemoteRange { addr, len, key }))?;
        self.a.complete()
    }

    /// Reads from the region of `b` with `key` to `into` at `a`.
    fn read(&self, into: MemRef, addr: u64, key: u64) -> Result {
        let len = into.len() as u64;
        self.a
            .post(self.a.read(into, RemoteRange { addr, len, key }))?;
        self.a.complete()
    }

    /// Uses regions of all kinds as the source and the target of messages and RMA.
    fn exchange(&self) -> Result {
        for (index, kind) in Kind::ALL.into_iter().enumerate() {
            let here = Held::new(kind, &LENS)?;
            let there = Held::new(kind, &LENS)?;
            let len = here.len();
            let keys = (1 + 2 * index as u64, 2 + 2 * index as u64);
            let local = reg(&self.domain, here.share(), LOCAL, keys.0)?;
            let remote = reg(&self.domain, there.share(), ALL, keys.1)?;

            here.fill(3);
            let from = local.local(0, len as u64, Access::WRITE)?;
            self.write(from, 0, keys.1)?;
            ensure(there.holds(0, len, 3), kind, "a write")?;
            // A part, from the middle of one piece to the middle of another.
            there.clear();
            let from = local.local(4000, 4000, Access::WRITE)?;
            self.write(from, 2000, keys.1)?;
            ensure(there.holds(2000, 4000, 4003), kind, "a write to a part")?;

            there.fill(9);
            here.clear();
            self.read(local.local(0, len as u64, Access::READ)?, 0, keys.1)?;
            ensure(here.holds(0, len, 9), kind, "a read")?;
            here.clear();
            self.read(local.local(1, 5003, Access::READ)?, 4999, keys.1)?;
            ensure(here.holds(1, 5003, 9 + 4999), kind, "a read of a part")?;

            here.fill(21);
            there.clear();
            let from = local.local(0, len as u64, Access::SEND)?;
            let into = remote.local(0, len as u64, Access::RECV)?;
            self.message(from, into)?;
            ensure(there.holds(0, len, 21), kind, "a message")?;
            there.clear();
            let from = local.local(7, 6000, Access::SEND)?;
            let into = remote.local(3, 6001, Access::RECV)?;
            self.message(from, into)?;
            ensure(there.holds(3, 6000, 28), kind, "a message to a part")?;

            close(&*local)?;
            close(&*remote)?;
        }
        Ok(())
    }
}

/// Returns an error and prints `what` unless `holds`.
fn ensure(holds: bool, kind: Kind, what: &str) -> Result {
    if holds {
        return Ok(());
    }
    pr_err!("{:?}: {} went wrong\n", kind, what);
    Err(EIO)
}

/// Returns the error of a registration. Closes a region that was not refused.
fn refused(domain: &TestDomain, memory: Memory, access: Access) -> Option<Error> {
    reg(domain, memory, access, 1)
        .inspect(|mr| force_close(&**mr))
        .err()
}

#[kunit_tests(kfabric_mr)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_source_and_target_within_a_host() -> Result {
        Pair::new(EpType::Rdm)?.exchange()
    }

    #[test]
    fn every_kind_is_source_and_target_over_the_wire() -> Result {
        Pair::new(EpType::Msg)?.exchange()
    }

    #[test]
    fn thousands_of_segments_over_the_wire() -> Result {
        const COUNT: usize = ONES.len();
        let pair = Pair::new(EpType::Msg)?;
        for (index, kind) in [Kind::SlabKvec, Kind::Gather, Kind::Scatterlist]
            .into_iter()
            .enumerate()
        {
            let held = Held::new(kind, &ONES)?;
            let key = 1 + index as u64;
            let mr = reg(&pair.domain, held.share(), ALL, key)?;
            pair.write(buffer(5, COUNT)?, 0, key)?;
            ensure!(held.holds(0, COUNT, 5));
            let into = MemRef::buffer(COUNT)?;
            pair.read(into.clone(), 0, key)?;
            ensure!(mem::memref::equal(&into, &buffer(5, COUNT)?));
            close(&*mr)?;
        }
        Ok(())
    }

    #[test]
    fn unsuitable_memory_is_not_registered() -> Result {
        let domain = TestDomain::open()?;
        let user = UserMemory::map(PAGE_SIZE, true)?;
        let range = UserRange {
            addr: user.addr() as u64,
            len: 64,
        };
        let pin = || -> Result<Memory> {
            Ok(MemRef::pinned(Pinned::new(&[range], mem::Access::Read)?).into())
        };
        for access in [Access::RECV, Access::READ, Access::REMOTE_WRITE] {
            ensure_eq!(refused(&domain, pin()?, access), Some(EACCES));
        }
        ensure_eq!(refused(&domain, pin()?, Access::SEND), None);
        ensure_eq!(refused(&domain, MemRef::empty().into(), ALL), Some(EINVAL));
        // The ranges have another length than the memory.
        let short = Mr::reg(
            &domain.domain,
            pin()?,
            named(63)?,
            Access::SEND,
            9,
            ident(9, 0)?,
        );
        ensure_eq!(short.err(), Some(EINVAL));
        Ok(())
    }

    #[test]
    fn lists_of_regions_are_charged_to_their_owner() -> Result {
        const COUNT: usize = ONES.len();
        let domain = TestDomain::open()?;
        let held = Held::new(Kind::SlabKvec, &ONES)?;
        let mine = ident(50, 0)?;
        let used = || mine.budget.charged(Part::Peers).0;
        let before = used();
        let ranges = named(COUNT)?;
        let mr = Mr::reg(&domain.domain, held.share(), ranges, LOCAL, 1, mine.clone())?;
        ensure!(used() >= before + (COUNT * 24) as u64);
        force_close(&*mr);
        drop(mr);
        // The charge for the segment list lasts until the memory is dropped.
        ensure!(eventually(|| used() < before + 2 * (COUNT * 24) as u64));
        ensure!(used() >= before + (COUNT * 24) as u64);
        drop(held);
        ensure!(eventually(|| used() <= before));
        Ok(())
    }

    #[test]
    fn cpu_access_for_a_local_operation_begins_with_it() -> Result {
        let pair = Pair::new(EpType::Rdm)?;
        let exporter = Exporter::new(PAGE_SIZE, true, shim::KFABRIC_KUNIT_MAP_MEMORY)?;
        let memory = Memory::DmaBuf(exporter.open(0, PAGE_SIZE, mem::Access::Write)?);
        let mr = reg(&pair.domain, memory, LOCAL, 1)?;
        ensure_eq!(exporter.accesses(), (0, 0));
        exporter.fail(EIO.to_errno(), 0);
        ensure_eq!(mr.local(0, 8, Access::SEND).err(), Some(EIO));
        ensure_eq!(mr.local(0, 8, Access::RECV).err(), Some(EIO));
        ensure_eq!(exporter.accesses(), (0, 0));
        exporter.fail(0, 0);
        pair.message(mr.local(0, 300, Access::SEND)?, MemRef::buffer(300)?)?;
        ensure!(eventually(|| exporter.accesses() == (1, 1)));
        pair.message(buffer(0, 300)?, mr.local(0, 300, Access::RECV)?)?;
        ensure!(eventually(|| exporter.accesses() == (2, 2)));
        close(&*mr)?;
        Ok(())
    }

    #[test]
    fn cpu_access_for_peers_lasts_from_registration_to_close() -> Result {
        let pair = Pair::new(EpType::Msg)?;
        let mut exporter = Exporter::new(PAGE_SIZE, true, shim::KFABRIC_KUNIT_MAP_MEMORY)?;
        let part = exporter.open(0, PAGE_SIZE, mem::Access::Write)?;
        exporter.fail(EIO.to_errno(), 0);
        let memory = || Memory::DmaBuf(part.clone());
        for access in [ALL, Access::REMOTE_READ, Access::REMOTE_WRITE] {
            ensure_eq!(refused(&pair.domain, memory(), access), Some(EIO));
        }
        ensure_eq!(exporter.accesses(), (0, 0));
        exporter.fail(0, 0);
        let mr = reg(&pair.domain, memory(), ALL, 1)?;
        drop(part);
        ensure_eq!(exporter.accesses(), (1, 0));
        pair.write(buffer(0, 3000)?, 0, 1)?;
        pair.read(MemRef::buffer(3000)?, 0, 1)?;
        drop(mr.local(0, 8, Access::SEND)?);
        ensure_eq!(exporter.accesses(), (1, 0));
        close(&*mr)?;
        drop(mr);
        ensure!(eventually(|| exporter.accesses() == (1, 1)));
        ensure!(eventually(|| !exporter.is_mapped()));
        exporter.put();
        ensure!(exporter.is_released());
        Ok(())
    }
}
