// SPDX-License-Identifier: GPL-2.0
//! The memory of a message that its receiver may read.
//!
//! An RTS names the bytes of its message by an address and a key for an RDMA READ. No memory is
//! registered for that: key and address encode the number of the message and an offset. They are
//! valid only on the connection over which the RTS was sent, and only until the message ends. A
//! peer can therefore read only the bytes that it was offered.
//!
//! ```text
//!       63 62 61          31 30           0
//! va   | 1  0 | number >> 32 | offset      |      rkey  number, low 32 bits
//! ```
//!
//! Registered memory has different addresses: it is addressed by an offset or by a virtual address,
//! and no virtual address has these two highest bits.

use super::header::RemoteAddr;
use kfi_roce::headers::Reth;

const MARK: u64 = 0b10 << 62;
const OFFSET_BITS: u32 = 31;
const OFFSET: u64 = (1 << OFFSET_BITS) - 1;
const NUMBER_HIGH: u64 = (1 << (62 - OFFSET_BITS)) - 1;

/// The bytes of a message that a peer wants to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The number of the message.
    pub id: u64,
    /// The offset of the first byte.
    pub offset: u32,
    /// The number of bytes.
    pub len: u32,
}

impl Grant {
    /// Returns the address and key of the first byte of message `id`, a number below 2^63.
    pub const fn place(id: u64) -> RemoteAddr {
        RemoteAddr {
            va: MARK | (id >> 32 & NUMBER_HIGH) << OFFSET_BITS,
            // The low half of the number.
            rkey: id as u32,
        }
    }

    /// Decodes a READ request; returns `None` if it refers to registered memory.
    pub const fn of(reth: &Reth) -> Option<Self> {
        if reth.va >> 62 != MARK >> 62 {
            return None;
        }
        let high = reth.va >> OFFSET_BITS & NUMBER_HIGH;
        Some(Self {
            id: high << 32 | reth.rkey as u64,
            // The offset has 31 bits.
            offset: (reth.va & OFFSET) as u32,
            len: reth.len,
        })
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_rdm_grant))]
mod tests {
    use super::*;

    #[test]
    fn a_place_decodes_to_its_message_and_offset() {
        for id in [
            1,
            0xffff_ffff,
            1 << 32,
            (1 << 63) - 1,
            0x1234_5678_9abc_def0,
        ] {
            for offset in [0, 1, 1 << 20, (1 << 30) - 1] {
                let RemoteAddr { va, rkey } = Grant::place(id);
                let reth = Reth {
                    va: va + u64::from(offset),
                    rkey,
                    len: 5,
                };
                let len = 5;
                assert_eq!(Grant::of(&reth), Some(Grant { id, offset, len }));
            }
        }
    }

    #[test]
    fn addresses_of_registered_memory_are_not_grants() {
        // Offsets, addresses of a program, addresses of the kernel.
        for va in [
            0,
            1 << 30,
            0x7fff_ffff_f000,
            0xffff_8880_0000_0000,
            u64::MAX,
        ] {
            let (rkey, len) = (7, 5);
            assert_eq!(Grant::of(&Reth { va, rkey, len }), None);
        }
    }
}
