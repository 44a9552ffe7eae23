// SPDX-License-Identifier: GPL-2.0
//! The addresses of peers: endpoints, and the receive contexts of scalable endpoints.
//!
//! A scalable endpoint has one *name*, a socket address, and several receive contexts. Context `i`
//! is an endpoint at the port of the name plus `i`. A peer inserts the name into its AV, and
//! selects a context by the upper bits of a `kfi_addr_t`, where kfi_rx_addr() puts the index of the
//! context ([`RxCtxBits`]). The messages of all transmit contexts have the name as their source.
//! The name of an ordinary endpoint is its address.
//!
//! So an operation goes to a [`PeerAddr`]: the address of an endpoint, and the name that the
//! endpoint must have. Another endpoint may have the port of a context that does not exist.

use crate::{
    addr::SockAddr,
    errno::Errno, //
};

/// The number of upper bits of a `kfi_addr_t` that select a receive context (`rx_ctx_bits`).
///
/// # Invariants
///
/// At most [`RxCtxBits::MAX`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxCtxBits(u32);

impl RxCtxBits {
    /// The maximum: the upper bits that no value of an AV uses (see [`av`](crate::av)).
    pub const MAX: u32 = 16;

    /// Checks a number of bits.
    ///
    /// # Errors
    ///
    /// `EINVAL`: more than [`MAX`](Self::MAX).
    pub const fn new(bits: u32) -> Result<Self, Errno> {
        if bits > Self::MAX {
            return Err(Errno::EINVAL);
        }
        // INVARIANT: Checked above.
        Ok(Self(bits))
    }

    /// Returns the number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Divides a `kfi_addr_t` into the value in the AV and the index of the receive context.
    #[inline]
    pub const fn split(self, fi_addr: u64) -> (u64, u16) {
        // In two steps, because the number of bits may be 0. By the type invariants it is at most
        // 16, so nothing wraps, and the index has at most 16 bits.
        let index = (fi_addr >> 1).wrapping_shr(63u32.wrapping_sub(self.0)) as u16;
        (fi_addr & u64::MAX.wrapping_shr(self.0), index)
    }
}

/// The address of a peer's endpoint, and the port of its name. Both have the same IP address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerAddr {
    addr: SockAddr,
    name_port: u16,
}

impl PeerAddr {
    /// Returns the endpoint at `addr` with the name at port `name_port`.
    pub const fn new(addr: SockAddr, name_port: u16) -> Self {
        Self { addr, name_port }
    }

    /// Returns the receive context `index` of the endpoint with this name. An ordinary endpoint is
    /// its own context 0.
    ///
    /// # Errors
    ///
    /// `EHOSTUNREACH`: the context would be at a port that does not exist.
    pub fn context(name: SockAddr, index: u16) -> Result<Self, Errno> {
        if index == 0 {
            return Ok(Self::new(name, name.port()));
        }
        let port = name.port().checked_add(index).ok_or(Errno::EHOSTUNREACH)?;
        Ok(Self::new(name.with_port(port), name.port()))
    }

    /// Returns the address of the endpoint.
    pub const fn addr(&self) -> &SockAddr {
        &self.addr
    }

    /// Returns the port of the name.
    pub const fn name_port(&self) -> u16 {
        self.name_port
    }

    /// Returns the name: the address in AVs, and the source of messages.
    pub const fn name(&self) -> SockAddr {
        if self.name_port == self.addr.port() {
            return self.addr;
        }
        self.addr.with_port(self.name_port)
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_peer))]
mod tests {
    use super::*;
    use crate::flags::KFI_ADDR_UNSPEC;
    use core::net::Ipv4Addr;

    const NAME: SockAddr = SockAddr::v4(Ipv4Addr::new(192, 0, 2, 1), 7471);

    /// Returns the value that kfi_rx_addr() makes.
    fn rx_addr(fi_addr: u64, index: u64, bits: u32) -> u64 {
        match bits {
            0 => fi_addr,
            bits => index << (64 - bits) | fi_addr,
        }
    }

    #[test]
    fn the_upper_bits_are_the_index() {
        for bits in 0..=RxCtxBits::MAX {
            let known = RxCtxBits::new(bits);
            assert!(known.is_ok_and(|known| known.get() == bits));
            let most = (1u64 << bits) - 1;
            for fi_addr in [0, 1, (1 << 48) - 1] {
                for index in [0, most / 2, most] {
                    let value = rx_addr(fi_addr, index, bits);
                    let parts = known.map(|known| known.split(value));
                    assert_eq!(parts, Ok((fi_addr, index as u16)));
                }
            }
        }
        assert_eq!(RxCtxBits::new(RxCtxBits::MAX + 1), Err(Errno::EINVAL));
        assert_eq!(RxCtxBits::default().split(KFI_ADDR_UNSPEC), (u64::MAX, 0));
    }

    #[test]
    fn contexts_follow_the_name() {
        assert_eq!(PeerAddr::context(NAME, 0), Ok(PeerAddr::new(NAME, 7471)));
        let third = PeerAddr::context(NAME, 3);
        assert_eq!(third.map(|peer| *peer.addr()), Ok(NAME.with_port(7474)));
        assert_eq!(third.map(|peer| peer.name()), Ok(NAME));
        let last = NAME.with_port(u16::MAX - 1);
        let port = |index| PeerAddr::context(last, index).map(|peer| peer.addr().port());
        assert_eq!(port(1), Ok(u16::MAX));
        assert_eq!(port(2), Err(Errno::EHOSTUNREACH));
        assert_eq!(port(u16::MAX), Err(Errno::EHOSTUNREACH));
    }

    #[test]
    fn an_address_of_a_qp_stays_one() {
        let qp = NAME.with_qpn(17);
        let peer = qp.and_then(|qp| PeerAddr::context(qp, 0));
        assert_eq!(peer.map(|peer| *peer.addr()), qp);
        assert_eq!(peer.map(|peer| peer.name()), qp);
    }

    #[test]
    fn peers_with_different_names_differ() {
        let context = PeerAddr::context(NAME, 1);
        let alone = PeerAddr::context(NAME.with_port(7472), 0);
        assert_eq!(
            context.map(|peer| *peer.addr()),
            alone.map(|peer| *peer.addr())
        );
        assert!(context != alone);
    }
}
