// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_accepted`: the addresses of the packets that a QP accepts.

use super::{
    super::super::{
        socket::AddrPair,
        stats::Stat, //
    },
    Accepted,
    Accepts, //
};
use crate::kunit::helpers::thread;
use core::net::{
    IpAddr,
    Ipv4Addr,
    Ipv6Addr, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        Arc, //
    }, //
};

const A: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const B: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
/// The low half of the address is that of `B`.
const C: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0xa00, 2));
/// The low half of the address is that of `B`, too.
const D: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd01, 0, 0, 0, 0, 0, 0xa00, 2));

const fn addrs(from: IpAddr, to: IpAddr) -> AddrPair {
    AddrPair { from, to, vrf: 0 }
}

/// Checks a packet for a QP whose link has the address `B` only.
fn check(accepted: &Accepted, from: IpAddr, to: IpAddr) -> Result<(), Stat> {
    accepted.check(&addrs(from, to), |to| to == B)
}

#[kunit_tests(kfabric_accepted)]
mod tests {
    use super::*;

    #[test]
    fn a_qp_without_an_address_accepts_nothing() -> Result {
        let accepted = Accepted::nothing();
        ensure!(accepted.is_nothing());
        ensure!(check(&accepted, A, B) == Err(Stat::DropState));
        accepted.set(Accepts::To(None));
        ensure!(!accepted.is_nothing());
        accepted.set(Accepts::Nothing);
        ensure!(accepted.is_nothing());
        ensure!(check(&accepted, A, B) == Err(Stat::DropState));
        Ok(())
    }

    #[test]
    fn a_qp_accepts_every_sender_at_its_address() -> Result {
        let accepted = Accepted::nothing();
        for own in [A, C] {
            accepted.set(Accepts::To(Some(own)));
            for from in [A, B, C] {
                ensure!(check(&accepted, from, own) == Ok(()));
                for other in [B, D] {
                    ensure!(check(&accepted, from, other) == Err(Stat::DropDestination));
                }
            }
        }
        // All addresses of the link.
        accepted.set(Accepts::To(None));
        ensure!(check(&accepted, A, B) == Ok(()));
        ensure!(check(&accepted, A, C) == Err(Stat::DropDestination));
        Ok(())
    }

    #[test]
    fn a_connected_qp_accepts_its_peer() -> Result {
        let accepted = Accepted::nothing();
        for (peer, own) in [(A, B), (C, D)] {
            accepted.set(Accepts::Pair(addrs(peer, own)));
            ensure!(check(&accepted, peer, own) == Ok(()));
            // The opposite direction is another one.
            ensure!(check(&accepted, own, peer) == Err(Stat::DropDestination));
            ensure!(check(&accepted, own, own) == Err(Stat::DropSource));
        }
        Ok(())
    }

    /// A reader that runs on another CPU sees the addresses before or after a change, or drops the
    /// packet.
    #[test]
    fn a_reader_does_not_see_half_of_a_change() -> Result {
        let accepted = Arc::new(Accepted::nothing(), GFP_KERNEL)?;
        let stop = Arc::new(Atomic::new(false), GFP_KERNEL)?;
        let writer = {
            let (accepted, stop) = (accepted.clone(), stop.clone());
            thread(move || {
                while !stop.load(Acquire) {
                    accepted.set(Accepts::Pair(addrs(A, B)));
                    accepted.set(Accepts::Pair(addrs(C, D)));
                    crate::shim::sched::cond_resched();
                }
            })?
        };
        let mut mixed = 0;
        for _ in 0..100_000 {
            for (from, to) in [(A, D), (C, B)] {
                mixed += u32::from(check(&accepted, from, to).is_ok());
            }
        }
        stop.store(true, Release);
        writer.join();
        ensure_eq!(mixed, 0);
        ensure!(check(&accepted, C, D) == Ok(()));
        Ok(())
    }
}
