// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_verbs_fast_mr`: memory regions for fast registration.
//!
//! The tests use a device on the loopback interface, as `kfabric_verbs_memory`.

use super::{
    fast_mr::{
        FastMr,
        MAX_PAGES, //
    },
    keys::{
        BadKey,
        Rights, //
    },
    kunit_memory::{
        pattern_bytes,
        Host,
        Region,
        ALL,
        REMOTE_READ, //
    },
    mr::OwnedMr,
    pd::Pd, //
};
use crate::{
    kunit::{
        contexts::in_hard_irq,
        helpers::{
            a_while,
            count_if,
            eventually,
            Count, //
        }, //
    },
    mem::{
        payload,
        MemRef,
        Part, //
    }, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};

/// The address of the first byte of registered memory.
const BASE: u64 = 0x1234_5000_0010;

/// Bytes of a page, as the RDMA subsystem has it.
const SIZE: u32 = PAGE_SIZE as u32;

/// A kernel caller: a PD, and a region for fast registration.
struct Caller {
    pd: Arc<Pd>,
    mr: Arc<OwnedRegion>,
    host: Host,
}

/// The region, which a case can end while it has the rest.
struct OwnedRegion(KBox<OwnedMr>);

/// Pages of the kernel, each of which has its number in all bytes.
struct Pages(KVec<VVec<u8>>);

impl Pages {
    fn new(count: usize, first: u8) -> Result<Self> {
        let mut pages = KVec::new();
        for number in 0..count {
            // Two more than one, so that a whole page is inside, and none follows another.
            let page = VVec::from_elem(first + number as u8, 3 * PAGE_SIZE, GFP_KERNEL)?;
            pages.push(page, GFP_KERNEL)?;
        }
        Ok(Self(pages))
    }

    /// The addresses of the pages.
    fn addrs(&self) -> Result<KVec<u64>> {
        let mut addrs = KVec::new();
        for page in self.0.iter() {
            let addr = page.as_ptr().expose_provenance() as u64;
            addrs.push(addr.next_multiple_of(PAGE_SIZE as u64), GFP_KERNEL)?;
        }
        Ok(addrs)
    }
}

impl Caller {
    fn new(max_pages: u32) -> Result<Self> {
        let host = Host::new()?;
        let pd = host.kernel_pd()?;
        let mr = OwnedMr::fast(&pd, max_pages)?;
        Ok(Self {
            mr: Arc::new(OwnedRegion(mr), GFP_KERNEL)?,
            pd,
            host,
        })
    }

    fn fast(&self) -> Result<&FastMr> {
        self.mr.0.mr().fast().ok_or(EINVAL)
    }

    /// The region's key with these lower bits.
    fn key(&self, low: u32) -> u32 {
        self.mr.0.key() & !0xff | low
    }

    /// Maps `len` bytes from byte 16 of the first page on.
    fn map_pages(&self, pages: &Pages, len: u64) -> Result {
        // SAFETY: The cases keep the pages until they end what is granted.
        unsafe { self.fast()?.map_pages(&pages.addrs()?, SIZE, 16, len) }
    }

    fn register(&self, low: u32, bits: u32) -> Result<(), BadKey> {
        let rights = Rights::of_region(bits).map_err(|_| BadKey)?;
        self.pd.register(self.key(low), BASE, rights)
    }

    /// The byte that a peer reads at `offset` under the key with these lower bits.
    fn peer_reads(&self, low: u32, offset: u64) -> Option<u8> {
        let access = self
            .pd
            .enter(self.key(low), BASE + offset, 1, Rights::REMOTE_READ)
            .ok()?;
        Some(first_byte(access.memory()))
    }
}

fn first_byte(memory: &MemRef) -> u8 {
    let mut byte = [0];
    payload::peek(&mut byte, memory, 0);
    byte[0]
}

#[kunit_tests(kfabric_verbs_fast_mr)]
mod tests {
    use super::*;

    #[test]
    fn a_region_grants_nothing_before_a_registration() -> Result {
        let caller = Caller::new(4)?;
        let pages = Pages::new(2, 1)?;
        for mapped in [false, true] {
            if mapped {
                caller.map_pages(&pages, 100)?;
            }
            let key = caller.mr.0.key();
            for addr in [0, BASE] {
                ensure!(caller.pd.enter(key, addr, 0, Rights::LOCAL_READ).is_err());
                ensure!(caller.pd.local(key, addr, 0, Rights::LOCAL_READ).is_err());
            }
        }
        Ok(())
    }

    #[test]
    fn a_registration_grants_the_pages_that_were_mapped() -> Result {
        let caller = Caller::new(4)?;
        let pages = Pages::new(3, 1)?;
        let len = 2 * PAGE_SIZE as u64 + 100;
        caller.map_pages(&pages, len)?;
        ensure_eq!(caller.register(7, ALL), Ok(()));
        let in_page = PAGE_SIZE as u64 - 16;
        for (offset, byte) in [
            (0, 1),
            (in_page - 1, 1),
            (in_page, 2),
            (in_page + PAGE_SIZE as u64 - 1, 2),
            (in_page + PAGE_SIZE as u64, 3),
            (len - 1, 3),
        ] {
            ensure_eq!(caller.peer_reads(7, offset), Some(byte));
        }
        ensure_eq!(caller.peer_reads(7, len), None);
        let key = caller.key(7);
        for (addr, len) in [(BASE - 1, 1), (BASE, len + 1), (BASE + len, 1)] {
            ensure!(caller
                .pd
                .enter(key, addr, len, Rights::REMOTE_READ)
                .is_err());
            ensure!(caller.pd.local(key, addr, len, Rights::LOCAL_READ).is_err());
        }
        let access = caller
            .pd
            .enter(key, BASE + in_page - 5, 10, Rights::REMOTE_WRITE)
            .map_err(|_| EACCES)?;
        ensure_eq!(payload::store(access.memory(), 0, &pattern_bytes(10)?), 10);
        let local = caller
            .pd
            .local(key, BASE + in_page - 5, 10, Rights::LOCAL_READ)
            .map_err(|_| EACCES)?;
        let mut bytes = KVec::from_elem(0u8, 10, GFP_KERNEL)?;
        payload::peek(&mut bytes, &local, 0);
        ensure!(bytes == pattern_bytes(10)?);
        Ok(())
    }

    #[test]
    fn only_the_key_of_the_registration_counts() -> Result {
        let caller = Caller::new(1)?;
        let pages = Pages::new(1, 1)?;
        for low in [0, 1, 0xff] {
            caller.map_pages(&pages, 100)?;
            ensure_eq!(caller.register(low, ALL), Ok(()));
            for other in [0, 1, 2, 0xff] {
                ensure_eq!(caller.peer_reads(other, 0).is_some(), other == low);
                if other != low {
                    ensure_eq!(caller.pd.invalidate(caller.key(other)), Err(BadKey));
                }
            }
            ensure_eq!(caller.pd.invalidate(caller.key(low)), Ok(()));
            ensure_eq!(caller.peer_reads(low, 0), None);
            ensure_eq!(caller.pd.invalidate(caller.key(low)), Err(BadKey));
        }
        // A region that does not exist, and those of another PD.
        let other = caller.host.kernel_pd()?;
        caller.map_pages(&pages, 100)?;
        let rights = Rights::of_region(ALL)?;
        let unknown = caller.key(0) ^ 0x100;
        ensure_eq!(caller.pd.register(unknown, BASE, rights), Err(BadKey));
        ensure_eq!(other.register(caller.key(0), BASE, rights), Err(BadKey));
        ensure_eq!(caller.register(0, ALL), Ok(()));
        ensure_eq!(other.invalidate(caller.key(0)), Err(BadKey));
        Ok(())
    }

    #[test]
    fn a_registration_needs_pages_and_a_region_that_grants_nothing() -> Result {
        let caller = Caller::new(1)?;
        let pages = [Pages::new(1, 1)?, Pages::new(1, 9)?];
        ensure_eq!(caller.register(1, ALL), Err(BadKey));
        caller.map_pages(&pages[0], 100)?;
        let rights = Rights::of_region(ALL)?;
        let wraps = caller.pd.register(caller.key(1), u64::MAX - 50, rights);
        ensure_eq!(wraps, Err(BadKey));
        ensure_eq!(caller.register(1, ALL), Ok(()));
        ensure_eq!(caller.register(2, ALL), Err(BadKey));
        caller.map_pages(&pages[1], 100)?;
        ensure_eq!(caller.register(2, ALL), Err(BadKey));
        ensure_eq!(caller.peer_reads(1, 0), Some(1));
        ensure_eq!(caller.pd.invalidate(caller.key(1)), Ok(()));
        ensure_eq!(caller.register(2, ALL), Ok(()));
        ensure_eq!(caller.peer_reads(2, 0), Some(9));
        // Again without mapping: the same pages.
        ensure_eq!(caller.pd.invalidate(caller.key(2)), Ok(()));
        ensure_eq!(caller.register(3, ALL), Ok(()));
        ensure_eq!(caller.peer_reads(3, 0), Some(9));
        // But not after an attempt to map others, which has failed.
        ensure_eq!(
            caller.map_pages(&pages[0], 2 * PAGE_SIZE as u64),
            Err(EINVAL)
        );
        ensure_eq!(caller.peer_reads(3, 0), Some(9));
        ensure_eq!(caller.pd.invalidate(caller.key(3)), Ok(()));
        ensure_eq!(caller.register(4, ALL), Err(BadKey));
        caller.map_pages(&pages[0], 100)?;
        ensure_eq!(caller.register(5, ALL), Ok(()));
        ensure_eq!(caller.peer_reads(5, 0), Some(1));
        Ok(())
    }

    #[test]
    fn pages_are_mapped_while_the_region_grants_others() -> Result {
        let caller = Caller::new(2)?;
        let pages = [Pages::new(2, 1)?, Pages::new(2, 5)?];
        caller.map_pages(&pages[0], 100)?;
        ensure_eq!(caller.register(0, ALL), Ok(()));
        for round in 1..6 {
            let next = pages.get(round % 2).ok_or(EINVAL)?;
            let (old, new) = match round % 2 {
                1 => (1, 5),
                _ => (5, 1),
            };
            let (from, to) = (round as u32 - 1, round as u32);
            let access = caller
                .pd
                .enter(caller.key(from), BASE, 1, Rights::REMOTE_READ)
                .map_err(|_| EACCES)?;
            caller.map_pages(next, 100)?;
            ensure_eq!(first_byte(access.memory()), old);
            ensure_eq!(caller.peer_reads(from, 99), Some(old));
            drop(access);
            ensure_eq!(caller.pd.invalidate(caller.key(from)), Ok(()));
            ensure_eq!(caller.register(to, ALL), Ok(()));
            ensure_eq!(caller.peer_reads(to, 99), Some(new));
            ensure_eq!(caller.peer_reads(from, 99), None);
        }
        Ok(())
    }

    #[test]
    fn an_invalidation_waits_for_accesses_of_peers() -> Result {
        let caller = Caller::new(1)?;
        let pages = Pages::new(1, 1)?;
        caller.map_pages(&pages, 100)?;
        ensure_eq!(caller.register(1, ALL), Ok(()));
        let access = caller
            .pd
            .enter(caller.key(1), BASE, 8, Rights::REMOTE_WRITE)
            .map_err(|_| EACCES)?;
        let ended = Count::new()?;
        let (pd, key) = (caller.pd.clone(), caller.key(1));
        let invalidating = count_if(&ended, move || pd.invalidate(key).is_ok())?;
        ensure!(eventually(|| caller.peer_reads(1, 0).is_none()));
        a_while();
        ensure_eq!(ended.get(), 0);
        ensure_eq!(payload::store(access.memory(), 0, &[3; 8]), 8);
        drop(access);
        invalidating.join();
        ensure_eq!(ended.get(), 1);
        ensure_eq!(caller.register(2, ALL), Ok(()));
        ensure_eq!(caller.peer_reads(2, 7), Some(3));
        Ok(())
    }

    #[test]
    fn the_end_of_a_region_waits_for_accesses_of_peers() -> Result {
        let caller = Caller::new(1)?;
        let pages = Pages::new(1, 1)?;
        caller.map_pages(&pages, 100)?;
        ensure_eq!(caller.register(1, ALL), Ok(()));
        let Caller { pd, mr, host } = caller;
        let key = mr.0.key() & !0xff | 1;
        let access = pd.enter(key, BASE, 8, Rights::REMOTE_WRITE);
        let access = access.map_err(|_| EACCES)?;
        let ended = Count::new()?;
        let closing = count_if(&ended, move || {
            drop(mr);
            true
        })?;
        ensure!(eventually(|| pd
            .enter(key, BASE, 8, Rights::REMOTE_READ)
            .is_err()));
        a_while();
        ensure_eq!(ended.get(), 0);
        drop(access);
        closing.join();
        ensure_eq!(ended.get(), 1);
        ensure_eq!(pd.invalidate(key), Err(BadKey));
        drop(host);
        Ok(())
    }

    #[test]
    fn a_peer_invalidates_what_it_may_access() -> Result {
        let caller = Caller::new(1)?;
        let pages = Pages::new(1, 1)?;
        let by_peer = |low| caller.pd.invalidate_by_peer(caller.key(low));
        caller.map_pages(&pages, 100)?;
        ensure_eq!(caller.register(1, 1), Ok(()));
        // The owner's alone.
        ensure_eq!(by_peer(1), Err(BadKey));
        ensure_eq!(caller.pd.invalidate(caller.key(1)), Ok(()));
        ensure_eq!(caller.register(2, REMOTE_READ), Ok(()));
        for low in [0, 1, 3] {
            ensure_eq!(by_peer(low), Err(BadKey));
        }
        ensure_eq!(by_peer(2), Ok(()));
        ensure_eq!(caller.peer_reads(2, 0), None);
        ensure_eq!(by_peer(2), Err(BadKey));
        // Regions of other kinds.
        let all = OwnedMr::all(&caller.pd, ALL)?;
        ensure_eq!(caller.pd.invalidate_by_peer(all.key()), Err(BadKey));
        ensure_eq!(caller.pd.invalidate(all.key()), Err(BadKey));
        let program = caller.host.pd()?;
        let region = Region::new(&program, PAGE_SIZE, ALL)?;
        ensure_eq!(program.invalidate_by_peer(region.key), Err(BadKey));
        ensure_eq!(program.invalidate(region.key), Err(BadKey));
        let rights = Rights::of_region(ALL)?;
        ensure_eq!(program.register(region.key, BASE, rights), Err(BadKey));
        Ok(())
    }

    #[test]
    fn a_work_request_has_a_list_of_its_own() -> Result {
        let caller = Caller::new(4)?;
        let pages = [Pages::new(4, 1)?, Pages::new(4, 9)?];
        let len = 3 * PAGE_SIZE as u64;
        let charged = || caller.pd.context().budget().charged(Part::Peers).0;
        let before = charged();
        let mut kept = KVec::new();
        for round in 0..4 {
            let (key, which) = (caller.key(round), round as usize % 2);
            caller.map_pages(pages.get(which).ok_or(EINVAL)?, len)?;
            ensure_eq!(caller.register(round, ALL), Ok(()));
            let local = caller.pd.local(key, BASE, len, Rights::LOCAL_WRITE);
            kept.push(local.map_err(|_| EACCES)?, GFP_KERNEL)?;
            // It does not wait for that.
            ensure_eq!(caller.pd.invalidate(key), Ok(()));
        }
        for (round, memory) in kept.iter().enumerate() {
            ensure_eq!(memory.len() as u64, len);
            let mut last = [0];
            payload::peek(&mut last, memory, memory.len() - 1);
            let (first, end) = match round % 2 {
                0 => (1, 4),
                _ => (9, 12),
            };
            ensure_eq!((first_byte(memory), last[0]), (first, end));
        }
        // Four lists, of four pages each.
        ensure!(charged() >= before + 4 * 4 * 24);
        drop(kept);
        ensure_eq!(charged(), before);
        Ok(())
    }

    #[test]
    fn unsuitable_regions_and_pages_are_refused() -> Result {
        let host = Host::new()?;
        ensure_eq!(OwnedMr::fast(&host.pd()?, 1).err(), Some(EINVAL));
        for max_pages in [0, MAX_PAGES + 1, u32::MAX] {
            let refused = OwnedMr::fast(&host.kernel_pd()?, max_pages);
            ensure_eq!(refused.err(), Some(EINVAL));
        }
        ensure!(OwnedMr::fast(&host.kernel_pd()?, MAX_PAGES).is_ok());
        drop(host);
        let caller = Caller::new(2)?;
        let pages = Pages::new(3, 1)?;
        let addrs = pages.addrs()?;
        let map_pages = |count: usize, size, offset, len| -> Result {
            let addrs = addrs.get(..count).ok_or(EINVAL)?;
            // SAFETY: The pages exist until the case ends.
            unsafe { caller.fast()?.map_pages(addrs, size, offset, len) }
        };
        for (count, size, offset, len) in [
            (0, SIZE, 0, 1),
            (3, SIZE, 0, 1),
            (1, SIZE, 0, 0),
            (1, SIZE, SIZE, 0),
            (1, SIZE, SIZE, 1),
            (1, SIZE, 1, PAGE_SIZE as u64),
            (2, SIZE, 0, 2 * PAGE_SIZE as u64 + 1),
            (2, SIZE, 1, u64::MAX),
            (2, 0, 0, 1),
        ] {
            ensure_eq!(map_pages(1, SIZE, 0, 10), Ok(()));
            ensure_eq!(map_pages(count, size, offset, len), Err(EINVAL));
            // The pages that were mapped before are gone.
            ensure_eq!(caller.register(1, ALL), Err(BadKey));
        }
        ensure_eq!(map_pages(2, SIZE, 1, 2 * PAGE_SIZE as u64 - 1), Ok(()));
        ensure_eq!(caller.register(1, ALL), Ok(()));
        Ok(())
    }

    #[test]
    fn hard_interrupts_may_map_pages() -> Result {
        let caller = Arc::new(Caller::new(1)?, GFP_KERNEL)?;
        let pages = Pages::new(1, 4)?;
        let addrs = pages.addrs()?;
        let mapping = caller.clone();
        in_hard_irq(move || {
            if let Ok(fast) = mapping.fast() {
                // SAFETY: The pages exist until the case ends.
                let _ = unsafe { fast.map_pages(&addrs, SIZE, 16, 8) };
            }
        })?;
        ensure_eq!(caller.register(1, ALL), Ok(()));
        ensure_eq!(caller.peer_reads(1, 0), Some(4));
        Ok(())
    }

    #[test]
    fn what_is_charged_is_returned() -> Result {
        let host = Host::new()?;
        let pd = host.kernel_pd()?;
        let used = || pd.context().budget().charged(Part::Peers).0;
        let before = used();
        let mr = OwnedMr::fast(&pd, MAX_PAGES)?;
        // Two lists, and that of the RDMA subsystem.
        ensure!(used() >= before + u64::from(MAX_PAGES) * (2 * 24 + 8));
        drop(mr);
        ensure_eq!(used(), before);
        Ok(())
    }
}
