// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_backlog`: the shares of sources in the backlog of a listener.

use super::*;
use core::net::Ipv6Addr;

/// A host of an IPv6 network.
fn host(network: u16, host: u16) -> Source {
    let ip = Ipv6Addr::new(0x2001, 0xdb8, 0, network, 0, 0, 0, host);
    Source::host(ip.into(), 0)
}

/// Takes what a source can have. Returns the number.
fn fill(backlog: &Arc<Backlog>, source: Source, slots: &mut KVec<BacklogSlot>) -> Result<usize> {
    let before = slots.len();
    while let Some(slot) = backlog.reserve(source) {
        slots.push(slot, GFP_KERNEL)?;
    }
    Ok(slots.len() - before)
}

#[kunit_tests(kfabric_backlog)]
mod tests {
    use super::*;

    /// One source has the whole backlog, of any size, and another one finds room.
    #[test]
    fn one_source_has_the_backlog() -> Result {
        for size in [1, 2, 3, 4, 64, 128, 4096] {
            let backlog = Backlog::new(size)?;
            let mut slots = KVec::new();
            for source in [host(1, 1), Source::User(1)] {
                ensure_eq!(fill(&backlog, source, &mut slots)?, size as usize);
                ensure!(backlog.reserve(host(2, 1)).is_some());
                slots.clear();
            }
            ensure!(backlog.counts.lock().sources.is_empty());
        }
        Ok(())
    }

    /// A host with many addresses leaves room for others.
    #[test]
    fn a_network_leaves_room() -> Result {
        let backlog = Backlog::new(64)?;
        let mut slots = KVec::new();
        for number in 0..100 {
            fill(&backlog, host(1, number), &mut slots)?;
        }
        // Four fifths of the room.
        ensure_eq!(slots.len(), 77);
        ensure!(fill(&backlog, host(2, 1), &mut slots)? >= 10);
        drop(slots);
        ensure!(backlog.counts.lock().sources.is_empty());
        Ok(())
    }

    /// A source leaves some of the requests that may be undelivered.
    #[test]
    fn undelivered_requests_have_shares() -> Result {
        let backlog = Backlog::new(64)?;
        let mut slots = KVec::new();
        fill(&backlog, host(1, 1), &mut slots)?;
        ensure_eq!(backlog.left(host(1, 1), 40), 20);
        ensure_eq!(backlog.left(host(1, 2), 40), 10);
        ensure_eq!(backlog.left(host(2, 1), 40), 0);
        Ok(())
    }
}
