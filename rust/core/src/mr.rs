// SPDX-License-Identifier: GPL-2.0
//! Memory regions: address ranges with access rights.
//!
//! A [`Region`] is an address range with access rights. Peers identify it by a key. The address in
//! their request is an offset from 0, or with `KFI_MR_VIRT_ADDR` a virtual address; the region's
//! [`base`](Region::base) is chosen accordingly. [`Region::check`] converts address and length into
//! an offset within the region, or returns the reason for a refusal.
//!
//! # Errors at the initiator
//!
//! A request that the target refuses completes at its initiator with `EACCES`, whatever the reason
//! ([`Refusal`]): an unknown key, a missing right, bytes outside the region, or for an atomic a
//! region whose memory is not aligned. All give the same `prov_errno`
//! ([`prov_errno::REFUSED`](crate::prov_errno::REFUSED)), as on the wire, also within a host. An
//! initiator that tries keys therefore does not learn that a key exists. Refusals are counted at
//! the target, and delay the initiator's user ([`throttle`](crate::throttle)).
//!
//! A request of no bytes is allowed at every address of the region and at its end; the rights are
//! checked.

use crate::{
    errno::Errno,
    flags::Access,
    limits, //
};

/// The reason for which a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No region has the key.
    Key,
    /// The region does not grant the right.
    Rights,
    /// Some bytes are outside the region.
    Bounds,
    /// An element of an atomic is not aligned in the memory behind the region.
    Alignment,
    /// Others changed an element in each round of an atomic
    /// ([`Rounds`](crate::atomic::contended::Rounds)).
    Contention,
}

impl Refusal {
    /// Returns the error of the completion at the initiator, and of a call that uses an unsuitable
    /// local region.
    pub const fn errno(self) -> Errno {
        Errno::EACCES
    }
}

/// An address range with access rights.
///
/// # Invariants
///
/// `len` is not 0 and `base + len` does not wrap; `access` is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    base: u64,
    len: u64,
    access: Access,
}

impl Region {
    /// Makes a region of `len` bytes that begins at `base`, which is 0 or the virtual address of
    /// its first byte.
    ///
    /// # Errors
    ///
    /// `EINVAL`: there is no access right, or an unknown one; there are no bytes, or more than
    /// [`MAX_MSG_SIZE`](limits::MAX_MSG_SIZE); or the range wraps.
    pub fn new(base: u64, len: u64, access: u64) -> Result<Self, Errno> {
        let access = Access::from_bits(access)?;
        if access.is_empty() || len == 0 || len > limits::MAX_MSG_SIZE {
            return Err(Errno::EINVAL);
        }
        base.checked_add(len).ok_or(Errno::EINVAL)?;
        Ok(Self { base, len, access })
    }

    /// Returns the address of the first byte.
    pub const fn base(&self) -> u64 {
        self.base
    }

    /// Returns the length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a region is never empty")]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Returns the access rights.
    pub const fn access(&self) -> Access {
        self.access
    }

    /// Returns the offset of `addr` in the region, for an access `need` to `len` bytes.
    ///
    /// `need` is [`OpType::target_access`](crate::op::OpType::target_access) for a peer's request,
    /// [`OpType::local_access`](crate::op::OpType::local_access) for a local buffer.
    ///
    /// # Errors
    ///
    /// [`Refusal::Rights`] is checked first, then [`Refusal::Bounds`].
    pub fn check(&self, addr: u64, len: u64, need: Access) -> Result<u64, Refusal> {
        if !self.access.contains(need) {
            return Err(Refusal::Rights);
        }
        let offset = addr.checked_sub(self.base).ok_or(Refusal::Bounds)?;
        let behind = self.len.checked_sub(offset).ok_or(Refusal::Bounds)?;
        if len > behind {
            return Err(Refusal::Bounds);
        }
        Ok(offset)
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_mr))]
mod tests {
    use super::*;

    const READ: Access = Access::REMOTE_READ;

    fn region(base: u64, len: u64) -> Result<Region, Errno> {
        Region::new(base, len, READ.bits())
    }

    #[test]
    fn regions_with_invalid_parameters_are_refused() {
        assert_eq!(region(0, 0), Err(Errno::EINVAL));
        assert_eq!(region(u64::MAX, 1), Err(Errno::EINVAL));
        assert!(region(u64::MAX - 1, 1).is_ok());
        assert!(region(0, 1 << 30).is_ok());
        assert_eq!(region(0, (1 << 30) + 1), Err(Errno::EINVAL));
        assert_eq!(Region::new(0, 1, 0), Err(Errno::EINVAL));
        assert_eq!(Region::new(0, 1, 1), Err(Errno::EINVAL));
        assert_eq!(Region::new(0, 1, 1 << 14).err(), Some(Errno::EINVAL));
    }

    #[test]
    fn accesses_outside_the_bounds_are_refused() -> Result<(), Errno> {
        let bounds = Err(Refusal::Bounds);
        let region = region(0x1000, 0x100)?;
        assert_eq!(region.check(0x1000, 0x100, READ), Ok(0));
        assert_eq!(region.check(0x10ff, 1, READ), Ok(0xff));
        assert_eq!(region.check(0x10ff, 2, READ), bounds);
        assert_eq!(region.check(0xfff, 1, READ), bounds);
        assert_eq!(region.check(0xfff, 0, READ), bounds);
        assert_eq!(region.check(0x1000, 0, READ), Ok(0));
        assert_eq!(region.check(0x1100, 0, READ), Ok(0x100));
        assert_eq!(region.check(0x1100, 1, READ), bounds);
        assert_eq!(region.check(0x1101, 0, READ), bounds);
        // The computation does not wrap.
        assert_eq!(region.check(0x1001, u64::MAX, READ), bounds);
        assert_eq!(region.check(u64::MAX, 2, READ), bounds);
        assert_eq!(region.check(0, u64::MAX, READ), bounds);
        Ok(())
    }

    #[test]
    fn every_refusal_gives_the_initiator_the_same_error() {
        for refusal in [
            Refusal::Key,
            Refusal::Rights,
            Refusal::Bounds,
            Refusal::Alignment,
            Refusal::Contention,
        ] {
            assert_eq!(refusal.errno(), Errno::EACCES);
        }
    }
}
