// SPDX-License-Identifier: GPL-2.0

//! The addresses of the packets that a QP accepts.
//!
//! A QP takes its address by a change of its state. An RC QP takes the addresses of both ends from
//! the path to its peer. A UD QP takes its own address, or all addresses of its link, and accepts
//! datagrams of any sender. A QP in RESET accepts nothing.
//!
//! Packets are checked in softirq, on any CPU, without a lock. So the addresses are atomic words,
//! and a version shows a reader that they have changed during the read: the reader drops the packet
//! then, as if the packet had come before the change.

#[cfg(kfi_kunit)]
#[path = "../../../../kunit/accepted.rs"]
mod kunit;

use super::super::{
    socket::AddrPair,
    stats::Stat, //
};
use crate::shim::word::AtomicWord;
use core::net::IpAddr;
use kfi_core::word::Word;

/// The packets that a QP accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Accepts {
    /// None.
    Nothing,
    /// Those of every sender to the QP's address, or to every address if it is `None`.
    To(Option<IpAddr>),
    /// Those of one peer to the QP's address.
    Pair(AddrPair),
}

/// An address in words: 0 for none, 4 or 6, and its bytes.
type Words = [u64; 3];

/// Any address.
const ANY: Words = [0; 3];

/// No address: no packet has it.
const NONE: Words = [1, 0, 0];

fn words(ip: IpAddr) -> Words {
    match ip {
        IpAddr::V4(ip) => [4, 0, ip.to_bits().into()],
        // The upper and the lower half.
        IpAddr::V6(ip) => [6, (ip.to_bits() >> 64) as u64, ip.to_bits() as u64],
    }
}

/// The addresses of the packets that a QP accepts, see the module documentation.
pub(super) struct Accepted {
    /// Odd while the addresses change.
    version: AtomicWord,
    from: [AtomicWord; 3],
    to: [AtomicWord; 3],
}

impl Accepted {
    /// Accepts nothing.
    pub(super) const fn nothing() -> Self {
        const fn cell(words: Words) -> [AtomicWord; 3] {
            let [family, high, low] = words;
            [
                AtomicWord::new(family),
                AtomicWord::new(high),
                AtomicWord::new(low),
            ]
        }
        Self {
            version: AtomicWord::new(0),
            from: cell(ANY),
            to: cell(NONE),
        }
    }

    /// Changes the addresses. The caller prevents two changes at the same time. Process context.
    pub(super) fn set(&self, accepts: Accepts) {
        let (from, to) = match accepts {
            Accepts::Nothing => (ANY, NONE),
            Accepts::To(to) => (ANY, to.map_or(ANY, words)),
            Accepts::Pair(addrs) => (words(addrs.from), words(addrs.to)),
        };
        let version = self.version.load_acquire();
        self.version.store_release(version.wrapping_add(1));
        for (cell, word) in self.from.iter().zip(from).chain(self.to.iter().zip(to)) {
            // Release: a reader that sees the word sees that the version is odd, or a later one.
            cell.store_release(word);
        }
        self.version.store_release(version.wrapping_add(2));
    }

    /// Whether it accepts nothing. Not exact while the addresses change. Any context.
    pub(super) fn is_nothing(&self) -> bool {
        self.read().is_none_or(|(_, to)| to == NONE)
    }

    /// Checks the addresses of a packet. Fails with the cause of its drop. If the QP has no
    /// address of its own, `has` returns whether an address is its link's. Any context.
    pub(super) fn check(
        &self,
        addrs: &AddrPair,
        has: impl FnOnce(IpAddr) -> bool,
    ) -> Result<(), Stat> {
        let (from, to) = self.read().ok_or(Stat::DropState)?;
        let matches = match to {
            NONE => return Err(Stat::DropState),
            ANY => has(addrs.to),
            to => to == words(addrs.to),
        };
        if !matches {
            return Err(Stat::DropDestination);
        }
        if from != ANY && from != words(addrs.from) {
            return Err(Stat::DropSource);
        }
        Ok(())
    }

    /// The words of both addresses; `None` if they change at this moment.
    #[inline]
    fn read(&self) -> Option<(Words, Words)> {
        // Acquire: see `set`.
        let load = |cells: &[AtomicWord; 3]| cells.each_ref().map(Word::load_acquire);
        let version = self.version.load_acquire();
        let (from, to) = (load(&self.from), load(&self.to));
        (version % 2 == 0 && self.version.load_acquire() == version).then_some((from, to))
    }
}
