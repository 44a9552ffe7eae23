// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_verbs_memory`: the keys of PDs, and memory regions.
//!
//! The tests use a device on the loopback interface of the first network namespace, which must be
//! up.

use super::{
    context::Context,
    device::Device,
    keys::{
        Access,
        BadKey,
        Rights, //
    },
    kunit_fixture::functions,
    mr::{
        OwnedMr,
        MAX_MR_SIZE, //
    },
    pd::Pd,
    raw,
    sge::{
        Parts,
        Sge, //
    }, //
};
use crate::{
    kunit::helpers::{
        a_while,
        count_if,
        eventually,
        raw_name,
        Count,
        UserMemory, //
    },
    mem::{
        self,
        kunit_kinds::{
            pattern,
            Exporter, //
        },
        payload,
        MemRef,
        Part, //
    },
    net::{
        kunit_links::NoLinks,
        IfName,
        LinkName,
        NetNs, //
    },
    shim::bindings as shim, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc,
    types::ForeignOwnable, //
};

/// The index of the loopback interface.
const LO: u32 = 1;

/// All rights.
pub(super) const ALL: u32 = 15;

const LOCAL_WRITE: u32 = 1;
const REMOTE_WRITE: u32 = 2;
pub(super) const REMOTE_READ: u32 = 4;
const REMOTE_ATOMIC: u32 = 8;

/// The address of the regions of [`Host::region`], other than that of their memory.
const BASE: u64 = 0x1234_5000_0000;

/// A device, and a program that has it open.
pub(super) struct Host {
    device: Arc<Device>,
    program: Arc<Context>,
    _links: NoLinks,
}

impl Host {
    pub(super) fn new() -> Result<Self> {
        let links = NoLinks;
        let device = Device::add(
            &NetNs::current()?,
            LinkName::new(&raw_name(b"kfi-test"))?,
            IfName::new(&raw_name(b"lo"))?,
            LO,
            functions(),
        )?;
        Ok(Self {
            program: Context::of_program(&device)?,
            device,
            _links: links,
        })
    }

    pub(super) fn pd(&self) -> Result<Arc<Pd>> {
        Pd::new(self.program.clone())
    }

    /// A PD of a kernel caller.
    pub(super) fn kernel_pd(&self) -> Result<Arc<Pd>> {
        Pd::new(self.device.kernel().clone())
    }
}

/// Memory of the test's thread, and a region of it that begins at [`BASE`].
pub(super) struct Region {
    pub(super) mr: Option<KBox<OwnedMr>>,
    pub(super) key: u32,
    memory: UserMemory,
}

impl Region {
    pub(super) fn new(pd: &Arc<Pd>, len: usize, bits: u32) -> Result<Self> {
        let memory = UserMemory::map(len.next_multiple_of(PAGE_SIZE), true)?;
        let mr = OwnedMr::user(pd, memory.addr() as u64, len as u64, BASE, bits)?;
        Ok(Self {
            key: mr.key(),
            mr: Some(mr),
            memory,
        })
    }

    /// The SGE of `length` bytes from byte `offset` on.
    pub(super) fn sge(&self, offset: u64, length: u32) -> Sge {
        Sge {
            addr: BASE + offset,
            length,
            lkey: self.key,
        }
    }

    /// Whether the bytes from `at` on are those of the pattern from `skip` on.
    pub(super) fn holds(&self, at: usize, len: usize, skip: usize) -> Result<bool> {
        let mut bytes = KVec::from_elem(0u8, len, GFP_KERNEL)?;
        self.memory.read(at, &mut bytes)?;
        let mut numbered = bytes.iter().enumerate();
        Ok(numbered.all(|(index, byte)| *byte == pattern(skip + index)))
    }
}

/// The first bytes of the pattern.
pub(super) fn pattern_bytes(len: usize) -> Result<KVec<u8>> {
    let mut bytes = KVec::with_capacity(len, GFP_KERNEL)?;
    for index in 0..len {
        bytes.push(pattern(index), GFP_KERNEL)?;
    }
    Ok(bytes)
}

/// The error of a region of a page that is not registered.
fn refused(pd: &Arc<Pd>, start: u64, len: u64, base: u64, bits: u32) -> Option<Error> {
    OwnedMr::user(pd, start, len, base, bits).err()
}

/// Whether an access of a peer is refused.
fn barred(pd: &Pd, key: u32, addr: u64, len: u64, need: Rights) -> bool {
    pd.enter(key, addr, len, need).err() == Some(BadKey)
}

#[kunit_tests(kfabric_verbs_memory)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_that_of_one_region_of_one_pd() -> Result {
        let host = Host::new()?;
        let (pd, other) = (host.pd()?, host.pd()?);
        let one = Region::new(&pd, PAGE_SIZE, ALL)?;
        let two = Region::new(&pd, PAGE_SIZE, ALL)?;
        ensure!(one.key >> 8 != two.key >> 8);
        for key in [one.key, two.key] {
            ensure!(pd.enter(key, BASE, 8, Rights::REMOTE_READ).is_ok());
            ensure!(pd.local(key, BASE, 8, Rights::LOCAL_READ).is_ok());
            // The lower bits count as well.
            ensure!(barred(&pd, key ^ 1, BASE, 8, Rights::REMOTE_READ));
            ensure!(pd.local(key ^ 0x80, BASE, 8, Rights::LOCAL_READ).is_err());
            ensure!(barred(&pd, key ^ 0x100, BASE, 8, Rights::REMOTE_READ));
            ensure!(barred(&other, key, BASE, 8, Rights::REMOTE_READ));
            ensure!(other.local(key, BASE, 8, Rights::LOCAL_READ).is_err());
        }
        drop(one.mr);
        ensure!(barred(&pd, one.key, BASE, 8, Rights::REMOTE_READ));
        ensure!(pd.local(one.key, BASE, 8, Rights::LOCAL_READ).is_err());
        ensure!(pd.enter(two.key, BASE, 8, Rights::REMOTE_READ).is_ok());
        Ok(())
    }

    #[test]
    fn an_access_is_to_bytes_of_the_region() -> Result {
        const LEN: u64 = 5000;
        let host = Host::new()?;
        let pd = host.pd()?;
        let region = Region::new(&pd, LEN as usize, ALL)?;
        let enter = |addr, len| pd.enter(region.key, addr, len, Rights::REMOTE_WRITE);
        for (addr, len) in [
            (BASE, LEN),
            (BASE, 0),
            (BASE + LEN - 1, 1),
            (BASE + LEN, 0),
            (BASE + 4090, 20),
        ] {
            let access = enter(addr, len).map_err(|_| EACCES)?;
            ensure_eq!(access.memory().len() as u64, len);
        }
        for (addr, len) in [
            (BASE - 1, 1),
            (BASE - 1, 0),
            (BASE, LEN + 1),
            (BASE + LEN, 1),
            (BASE + LEN + 1, 0),
            (BASE + 1, u64::MAX),
            (u64::MAX, 1),
            (u64::MAX, u64::MAX),
            (0, LEN),
            (0, u64::MAX),
        ] {
            ensure!(enter(addr, len).is_err());
            ensure!(pd.local(region.key, addr, len, Rights::LOCAL_READ).is_err());
        }
        let access = enter(BASE + 4090, 20).map_err(|_| EACCES)?;
        ensure_eq!(payload::store(access.memory(), 0, &pattern_bytes(30)?), 20);
        ensure!(region.holds(4090, 20, 0)?);
        Ok(())
    }

    #[test]
    fn a_region_grants_its_rights_only() -> Result {
        let host = Host::new()?;
        let pd = host.pd()?;
        let remote = [
            (REMOTE_READ, Rights::REMOTE_READ),
            (REMOTE_WRITE, Rights::REMOTE_WRITE),
            (REMOTE_ATOMIC, Rights::REMOTE_ATOMIC),
        ];
        for bits in [0, 1, 3, 4, 5, 7, 9, 11, 13, 15] {
            let region = Region::new(&pd, 64, bits)?;
            for (bit, right) in remote {
                let granted = pd.enter(region.key, BASE, 8, right).is_ok();
                ensure_eq!(granted, bits & bit != 0);
            }
            let write = pd.local(region.key, BASE, 8, Rights::LOCAL_WRITE);
            ensure_eq!(write.is_ok(), bits & LOCAL_WRITE != 0);
            ensure_eq!(write.is_ok_and(|memory| !memory.writable()), false);
            ensure!(pd.local(region.key, BASE, 8, Rights::LOCAL_READ).is_ok());
        }
        let read_write = Rights::REMOTE_READ.with(Rights::REMOTE_WRITE);
        let region = Region::new(&pd, 64, LOCAL_WRITE | REMOTE_WRITE)?;
        ensure!(barred(&pd, region.key, BASE, 8, read_write));
        Ok(())
    }

    #[test]
    fn unsuitable_regions_are_refused() -> Result {
        let host = Host::new()?;
        let pd = host.pd()?;
        let memory = UserMemory::map(PAGE_SIZE, true)?;
        let read_only = UserMemory::map(PAGE_SIZE, false)?;
        let start = memory.addr() as u64;
        for bits in [REMOTE_WRITE, REMOTE_ATOMIC, REMOTE_ATOMIC | REMOTE_READ] {
            ensure_eq!(refused(&pd, start, 8, 0, bits), Some(EINVAL));
        }
        for bits in [16, 32, 64, 128, 256, 512, 1 << 20, 1 << 31] {
            ensure_eq!(refused(&pd, start, 8, 0, bits), Some(EOPNOTSUPP));
        }
        for (len, base) in [(0, start), (MAX_MR_SIZE + 1, 0), (8, u64::MAX - 6)] {
            ensure_eq!(refused(&pd, start, len, base, ALL), Some(EINVAL));
        }
        ensure_eq!(refused(&pd, u64::MAX - 6, 8, 0, ALL), Some(EINVAL));
        ensure_eq!(refused(&pd, start, MAX_MR_SIZE, 0, ALL), Some(EFAULT));
        ensure_eq!(
            refused(&pd, read_only.addr() as u64, 8, 0, LOCAL_WRITE),
            Some(EFAULT)
        );
        ensure_eq!(
            refused(&pd, read_only.addr() as u64, 8, 0, REMOTE_READ),
            None
        );
        ensure_eq!(OwnedMr::all(&pd, LOCAL_WRITE).err(), Some(EINVAL));
        ensure_eq!(OwnedMr::dma_buf(&pd, -1, 0, 8, 0, ALL).err(), Some(EBADF));
        Ok(())
    }

    #[test]
    fn the_end_of_a_region_waits_for_accesses_of_peers() -> Result {
        let host = Host::new()?;
        let pd = host.pd()?;
        let mut region = Region::new(&pd, PAGE_SIZE, ALL)?;
        let pinned = UserMemory::charged();
        let mr = region.mr.take().ok_or(EINVAL)?;
        let access = pd.enter(region.key, BASE, 8, Rights::REMOTE_WRITE);
        let access: Access = access.map_err(|_| EACCES)?;
        let ended = Count::new()?;
        let closer = count_if(&ended, move || {
            drop(mr);
            true
        })?;
        let bars = || barred(&pd, region.key, BASE, 8, Rights::REMOTE_WRITE);
        ensure!(eventually(bars));
        a_while();
        ensure_eq!(ended.get(), 0);
        ensure_eq!(UserMemory::charged(), pinned);
        ensure_eq!(payload::store(access.memory(), 0, &pattern_bytes(8)?), 8);
        drop(access);
        closer.join();
        ensure_eq!(ended.get(), 1);
        ensure!(region.holds(0, 8, 0)?);
        ensure_eq!(UserMemory::charged(), pinned - 1);
        Ok(())
    }

    #[test]
    fn a_kernel_caller_names_memory_by_its_address() -> Result {
        let host = Host::new()?;
        let pd = Pd::new(host.device.kernel().clone())?;
        let mr = OwnedMr::all(&pd, LOCAL_WRITE)?;
        let mut slab = KVec::from_elem(0u8, 300, GFP_KERNEL)?;
        let mut mapped = VVec::from_elem(0u8, PAGE_SIZE + 300, GFP_KERNEL)?;
        let sge = |addr: *mut u8, length| Sge {
            addr: addr.expose_provenance() as u64,
            length,
            lkey: mr.key(),
        };
        let list = [
            sge(slab.as_mut_ptr(), 300),
            sge(mapped.as_mut_ptr().wrapping_add(PAGE_SIZE - 10), 300),
        ];
        let parts = Parts::resolve(&pd, &list, true).map_err(|_| EACCES)?;
        ensure_eq!(parts.store(0, &pattern_bytes(600)?), 600);
        let memory: MemRef = parts.into_memory()?;
        let mut bytes = KVec::from_elem(0u8, 600, GFP_KERNEL)?;
        payload::peek(&mut bytes, &memory, 0);
        ensure!(bytes == pattern_bytes(600)?);
        let numbered = |bytes: &[u8], skip: usize| {
            let mut numbered = bytes.iter().enumerate();
            numbered.all(|(index, byte)| *byte == pattern(skip + index))
        };
        ensure!(numbered(&slab, 0));
        let written = mapped
            .get(PAGE_SIZE - 10..)
            .and_then(|rest| rest.get(..300));
        ensure!(numbered(written.ok_or(EINVAL)?, 300));
        // The last byte of the address space is in no region.
        ensure!(pd
            .local(mr.key(), u64::MAX - 8, 8, Rights::LOCAL_READ)
            .is_ok());
        ensure!(pd
            .local(mr.key(), u64::MAX - 7, 8, Rights::LOCAL_READ)
            .is_err());
        ensure!(barred(&pd, mr.key(), u64::MAX - 8, 8, Rights::REMOTE_READ));
        ensure_eq!(OwnedMr::all(&pd, REMOTE_WRITE).err(), Some(EINVAL));
        Ok(())
    }

    #[test]
    fn the_access_to_a_dma_buf_lasts_as_long_as_its_region() -> Result {
        let host = Host::new()?;
        let pd = host.pd()?;
        let mut exporter = Exporter::new(2 * PAGE_SIZE, true, shim::KFABRIC_KUNIT_MAP_MEMORY)?;
        let dma_buf = exporter.open(100, 1000, mem::Access::Write)?;
        let rights = Rights::of_region(ALL)?;
        let reg = || OwnedMr::of_dma_buf(&pd, &dma_buf, BASE, rights, None);
        exporter.fail(EIO.to_errno(), 0);
        ensure_eq!(reg().err(), Some(EIO));
        exporter.fail(0, 0);
        let mr = reg()?;
        ensure_eq!(exporter.accesses(), (1, 0));
        ensure!(barred(&pd, mr.key(), BASE, 1001, Rights::REMOTE_WRITE));
        let access = pd.enter(mr.key(), BASE + 10, 990, Rights::REMOTE_WRITE);
        let access = access.map_err(|_| EACCES)?;
        ensure_eq!(payload::store(access.memory(), 0, &pattern_bytes(3)?), 3);
        for index in 0..3 {
            // SAFETY: The exporter has that many bytes, and nothing writes to them now.
            let byte = unsafe { exporter.memory().wrapping_add(110 + index).read_volatile() };
            ensure_eq!(byte, pattern(index));
        }
        drop(access);
        drop(mr);
        ensure_eq!(exporter.accesses(), (1, 1));
        drop(dma_buf);
        ensure!(!exporter.is_mapped());
        exporter.put();
        ensure!(exporter.is_released());
        Ok(())
    }

    #[test]
    fn what_is_charged_is_returned() -> Result {
        let host = Host::new()?;
        let used = || host.program.budget().charged(Part::Peers).0;
        let (before, pinned) = (used(), UserMemory::charged());
        let pd = host.pd()?;
        let with_pd = used();
        ensure!(with_pd > before);
        let regions = [
            Region::new(&pd, 100 * PAGE_SIZE, ALL)?,
            Region::new(&pd, 1, 0)?,
        ];
        ensure_eq!(UserMemory::charged(), pinned + 101);
        ensure!(used() >= with_pd + 2 * 512);
        let memory = UserMemory::map(PAGE_SIZE, true)?;
        // Some pages are pinned before one is not mapped.
        let refused = refused(&pd, memory.addr() as u64, MAX_MR_SIZE, 0, 0);
        ensure_eq!(refused, Some(EFAULT));
        drop(regions);
        ensure_eq!(used(), with_pd);
        ensure_eq!(UserMemory::charged(), pinned);
        drop(pd);
        ensure_eq!(used(), before);
        Ok(())
    }

    /// Connection management makes those of the kernel for all users.
    #[test]
    fn address_handles_of_programs_are_charged_and_those_of_the_kernel_are_not() -> Result {
        let host = Host::new()?;
        for (pd, each) in [(host.pd()?, 512), (host.kernel_pd()?, 0)] {
            let used = || pd.context().budget().charged(Part::Peers).0;
            let (own, before) = (|| host.program.budget().charged(Part::Peers).0, used());
            let of_program = own();
            let handle: *mut raw::kfabric_verbs_pd = pd.clone().into_foreign().cast();
            for count in 1..=20 {
                // SAFETY: `handle` is valid until the end of the round.
                ensure_eq!(unsafe { raw::kfabric_verbs_pd_charge_ah(handle) }, 0);
                ensure_eq!(used(), before + count * each);
            }
            for _ in 0..20 {
                // SAFETY: As above; 20 were charged.
                unsafe { raw::kfabric_verbs_pd_uncharge_ah(handle) };
            }
            ensure_eq!((used(), own()), (before, of_program));
            // SAFETY: The handle is not used any more.
            unsafe { raw::kfabric_verbs_pd_free(handle) };
        }
        Ok(())
    }
}
