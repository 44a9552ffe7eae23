// SPDX-License-Identifier: GPL-2.0
//! Peers that were refused access to memory of this host.
//!
//! A key has 32 bits, and a peer could find one by trying. A refused access ends its connection, so
//! each try needs a connection. The target therefore counts refusals by the address of the peer,
//! and makes no connection with a peer that has too many. This protects against hosts that do not
//! delay their own users. Hosts that do ([`throttle`](crate::throttle)) stay below the limit,
//! unless several of their users try keys of one user.
//!
//! Each refusal adds [`PENALTY`] to the time for which the peer is delayed. The first [`FREE`] have
//! no effect, because the delay of a peer begins so far in the past. The delay is at most
//! [`LONGEST`]: a peer whose program is defective can connect again after that. It is as long as a
//! peer would get that tries one key on each of its connections at once.
//!
//! A host with several addresses is counted at each of them. The addresses of an IPv6 network are
//! not counted together, because a delay of the network would disconnect the neighbours of a host
//! that tries keys.
//!
//! The caller lends the memory: a slice of [`Peer`]. If there are more peers than entries, a new
//! one takes the entry whose delay ends first, with that delay. So no address is forgotten that was
//! refused more often.

use core::net::IpAddr;

/// The time in nanoseconds that a refusal adds to the delay: 64 are allowed per second. A user of a
/// host that delays its users gets 16 per second, because an account has as many throttles.
pub const PENALTY: u64 = 1_000_000_000 / 64;

/// The number of refusals without an effect.
pub const FREE: u64 = 4096;

/// The longest delay in nanoseconds.
pub const LONGEST: u64 = 3_600_000_000_000;

/// A peer that was refused access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// `None`: the entry is free.
    ip: Option<IpAddr>,
    /// The end of the delay.
    until: u64,
}

/// Records that an access of the peer at `ip` was refused at `now`, in nanoseconds.
pub fn refused(peers: &mut [Peer], ip: IpAddr, now: u64) {
    let Some(peer) = entry(peers, ip) else {
        return;
    };
    let begin = peer.until.max(now.saturating_sub(FREE * PENALTY));
    let longest = now.saturating_add(LONGEST);
    *peer = Peer {
        ip: Some(ip),
        until: begin.saturating_add(PENALTY).min(longest),
    };
}

/// The entry of `ip`, or the one to be replaced by it. `None` without memory.
fn entry(peers: &mut [Peer], ip: IpAddr) -> Option<&mut Peer> {
    let known = peers.iter().position(|peer| peer.ip == Some(ip));
    let first_to_end = || {
        let ends = peers.iter().map(|peer| peer.until).enumerate();
        ends.min_by_key(|(_, until)| *until).map(|(index, _)| index)
    };
    known
        .or_else(first_to_end)
        .and_then(|index| peers.get_mut(index))
}

/// Whether connections of the peer at `ip` have to wait at `now`, in nanoseconds.
pub fn is_delayed(peers: &[Peer], ip: IpAddr, now: u64) -> bool {
    peers
        .iter()
        .any(|peer| peer.until > now && peer.ip == Some(ip))
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_refusals))]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    /// The time at which the tests begin.
    const START: u64 = 1 << 40;

    fn ip(host: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, host).into()
    }

    fn refuse(peers: &mut [Peer], ip: IpAddr, now: u64, count: u64) {
        for _ in 0..count {
            refused(peers, ip, now);
        }
    }

    #[test]
    fn the_first_refusals_cause_no_delay() {
        let mut peers = [Peer::default(); 2];
        refuse(&mut peers, ip(1), START, FREE);
        assert!(!is_delayed(&peers, ip(1), START));
        refused(&mut peers, ip(1), START);
        assert!(is_delayed(&peers, ip(1), START + PENALTY - 1));
        assert!(!is_delayed(&peers, ip(1), START + PENALTY));
        assert!(!is_delayed(&peers, ip(2), START));
    }

    #[test]
    fn a_patient_peer_tries_one_key_per_penalty() {
        let mut peers = [Peer::default(); 2];
        let (mut now, mut tries) = (START, 0);
        while now < START + 3600 * PENALTY {
            if !is_delayed(&peers, ip(1), now) {
                refused(&mut peers, ip(1), now);
                tries += 1;
            }
            now += PENALTY / 8;
        }
        assert!(tries <= 3600 + FREE + 1);
    }

    #[test]
    fn the_delay_is_limited() {
        let mut peers = [Peer::default(); 2];
        refuse(&mut peers, ip(1), START, FREE + LONGEST / PENALTY + 9);
        assert!(is_delayed(&peers, ip(1), START + LONGEST - 1));
        assert!(!is_delayed(&peers, ip(1), START + LONGEST));
    }

    #[test]
    fn a_peer_that_tries_on_many_connections_at_once_is_not_faster() {
        const CONNECTIONS: u64 = 16_384;
        let mut peers = [Peer::default(); 2];
        let (mut now, mut tries) = (START, 0);
        while now < START + LONGEST {
            if !is_delayed(&peers, ip(1), now) {
                refuse(&mut peers, ip(1), now, CONNECTIONS);
                tries += CONNECTIONS;
            }
            now += 1_000_000_000;
        }
        assert!(tries <= LONGEST / PENALTY + FREE + 2 * CONNECTIONS);
    }

    #[test]
    fn without_a_free_entry_a_peer_inherits_the_shortest_delay() {
        let mut peers = [Peer::default(); 2];
        refuse(&mut peers, ip(1), START, FREE + 9);
        refuse(&mut peers, ip(2), START, FREE + 2);
        refused(&mut peers, ip(3), START);
        assert!(is_delayed(&peers, ip(1), START + 9 * PENALTY - 1));
        assert!(!is_delayed(&peers, ip(2), START));
        assert!(is_delayed(&peers, ip(3), START + 3 * PENALTY - 1));
        assert!(!is_delayed(&peers, ip(3), START + 3 * PENALTY));
        // Without memory nothing is recorded.
        refused(&mut [], ip(1), START);
        assert!(!is_delayed(&[], ip(1), START));
    }
}
