// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_verbs_sge`: lists of SGEs.
//!
//! The tests use the device of suite `kfabric_verbs_memory`.

use super::{
    keys::BadKey,
    kunit_memory::{
        pattern_bytes,
        Host,
        Region,
        ALL,
        REMOTE_READ, //
    },
    sge::{
        Parts,
        Sge,
        MAX_SGE, //
    }, //
};
use crate::{
    kunit::helpers::{
        rx_skb,
        UserMemory, //
    },
    mem::payload::{
        self,
        Payload, //
    }, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*, //
};

#[kunit_tests(kfabric_verbs_sge)]
mod tests {
    use super::*;

    #[test]
    fn sges_are_resolved_in_order() -> Result {
        let host = Host::new()?;
        let pd = host.pd()?;
        let one = Region::new(&pd, 2 * PAGE_SIZE, ALL)?;
        let two = Region::new(&pd, PAGE_SIZE, REMOTE_READ)?;
        let nothing = Sge {
            addr: 7,
            length: 0,
            lkey: !one.key,
        };
        let list = [
            nothing,
            one.sge(4000, 1000),
            nothing,
            one.sge(3, 1),
            nothing,
        ];
        let parts = Parts::resolve(&pd, &list, true).map_err(|_| EACCES)?;
        ensure_eq!(parts.len(), 1001);
        ensure_eq!(
            Parts::resolve(&pd, &[nothing], true).map(|parts| parts.len()),
            Ok(0)
        );
        ensure_eq!(
            Parts::resolve(&pd, &[], false).map(|parts| parts.len()),
            Ok(0)
        );
        // Memory that may be read only.
        let read = [one.sge(0, 8), two.sge(0, 8)];
        ensure_eq!(
            Parts::resolve(&pd, &read, false).map(|parts| parts.len()),
            Ok(16)
        );
        ensure_eq!(Parts::resolve(&pd, &read, true).err(), Some(BadKey));
        let outside = [one.sge(0, 8), one.sge(2 * PAGE_SIZE as u64, 1)];
        ensure_eq!(Parts::resolve(&pd, &outside, false).err(), Some(BadKey));
        let most = [one.sge(0, 8); MAX_SGE + 1];
        let len = |list: &[Sge]| Parts::resolve(&pd, list, true).map(|parts| parts.len());
        ensure_eq!(len(most.get(1..).ok_or(EINVAL)?), Ok(8 * MAX_SGE));
        ensure_eq!(len(&most), Err(BadKey));
        Ok(())
    }

    #[test]
    fn bytes_are_placed_across_parts() -> Result {
        let host = Host::new()?;
        let pd = host.pd()?;
        let region = Region::new(&pd, 3 * PAGE_SIZE, ALL)?;
        let list = [
            region.sge(4090, 100),
            region.sge(0, 1),
            region.sge(5000, 399),
            region.sge(8000, 500),
        ];
        let parts = Parts::resolve(&pd, &list, true).map_err(|_| EACCES)?;
        // The IP header, the UDP header, and the bytes of the pattern.
        let mut packet = KVec::from_elem(0u8, 28, GFP_KERNEL)?;
        packet.extend_from_slice(&pattern_bytes(600)?, GFP_KERNEL)?;
        let skb = rx_skb(&packet, 20, 64, 100)?;
        let all = Payload::new(&skb, 0..600);
        ensure_eq!(parts.place(0, &all), 600);
        ensure!(region.holds(4090, 100, 0)? && region.holds(0, 1, 100)?);
        ensure!(region.holds(5000, 399, 101)? && region.holds(8000, 100, 500)?);
        // From inside of a part, and to the end of the memory.
        ensure_eq!(parts.place(50, &all), 600);
        ensure!(region.holds(4140, 50, 0)? && region.holds(0, 1, 50)?);
        ensure!(region.holds(5000, 399, 51)? && region.holds(8000, 150, 450)?);
        ensure_eq!(parts.place(990, &all), 10);
        ensure!(region.holds(8490, 10, 0)?);
        ensure_eq!(parts.place(1000, &all), 0);
        ensure_eq!(parts.place(usize::MAX, &all), 0);

        ensure_eq!(parts.store(99, &pattern_bytes(40)?), 40);
        ensure!(region.holds(4189, 1, 0)? && region.holds(0, 1, 1)?);
        ensure!(region.holds(5000, 38, 2)? && region.holds(5038, 100, 89)?);
        ensure_eq!(parts.store(995, &pattern_bytes(40)?), 5);
        ensure_eq!(Parts::empty().store(0, &[1]), 0);

        let memory = parts.into_memory()?;
        ensure_eq!(memory.len(), 1000);
        ensure_eq!(payload::store(&memory, 99, &pattern_bytes(3)?), 3);
        ensure!(region.holds(4189, 1, 0)? && region.holds(5000, 1, 2)?);
        Ok(())
    }

    #[test]
    fn the_memory_of_a_work_request_outlives_its_region() -> Result {
        let host = Host::new()?;
        let pd = host.pd()?;
        let mut region = Region::new(&pd, PAGE_SIZE, ALL)?;
        let pinned = UserMemory::charged();
        let list = [region.sge(8, 8), region.sge(0, 8)];
        let mut parts = Parts::resolve(&pd, &list, true).map_err(|_| EACCES)?;
        drop(region.mr.take());
        ensure_eq!(Parts::resolve(&pd, &list, true).err(), Some(BadKey));
        ensure_eq!(UserMemory::charged(), pinned);
        ensure_eq!(parts.store(8, &pattern_bytes(8)?), 8);
        ensure!(region.holds(0, 8, 0)?);
        parts.clear();
        ensure_eq!(parts.len(), 0);
        ensure_eq!(UserMemory::charged(), pinned - 1);
        Ok(())
    }
}
