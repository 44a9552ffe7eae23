// SPDX-License-Identifier: GPL-2.0
//! The path MTU, and the segmentation of messages into packets.
//!
//! A path MTU is the maximum payload of a packet, one of five sizes (InfiniBand specification,
//! volume 1, section 9.4.7; `enum ibv_mtu`). FIRST and MIDDLE packets of a message carry exactly a
//! path MTU, a LAST packet at least one byte, an ONLY packet any number of bytes up to the path
//! MTU. A message of no bytes is one packet.

/// The number of bytes of an interface's MTU that are reserved for headers. In-tree rxe subtracts
/// the same number, so both ends of a link choose the same path MTU.
///
/// The longest headers over IPv6 have 84 bytes: IPv6 40, UDP 8, BTH 12, RETH 16, ImmDt 4, ICRC 4.
/// If the MTU of an interface exceeds a path MTU by 80 to 83 bytes, a full packet that is a WRITE
/// Only with Immediate therefore does not fit.
pub const HEADERS: u32 = 80;

/// A path MTU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum PathMtu {
    /// 256 bytes.
    Mtu256 = 1,
    /// 512 bytes.
    Mtu512 = 2,
    /// 1024 bytes.
    Mtu1024 = 3,
    /// 2048 bytes.
    Mtu2048 = 4,
    /// 4096 bytes.
    Mtu4096 = 5,
}

impl PathMtu {
    /// All path MTUs, smallest first.
    pub const ALL: [Self; 5] = [
        Self::Mtu256,
        Self::Mtu512,
        Self::Mtu1024,
        Self::Mtu2048,
        Self::Mtu4096,
    ];

    /// Returns the path MTU with this code, as numbered by connection management and verbs.
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Mtu256,
            2 => Self::Mtu512,
            3 => Self::Mtu1024,
            4 => Self::Mtu2048,
            5 => Self::Mtu4096,
            _ => return None,
        })
    }

    /// Returns the code: 1 to 5.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the largest path MTU that an interface with this MTU (in bytes of an IP packet) can
    /// carry; `None` if the MTU is too small for any.
    pub const fn of_interface(mtu: u32) -> Option<Self> {
        Some(match mtu.saturating_sub(HEADERS) {
            4096.. => Self::Mtu4096,
            2048.. => Self::Mtu2048,
            1024.. => Self::Mtu1024,
            512.. => Self::Mtu512,
            256.. => Self::Mtu256,
            _ => return None,
        })
    }

    /// Returns the path MTU in bytes.
    #[inline]
    pub const fn bytes(self) -> u32 {
        1 << self.shift()
    }

    /// Returns the number of packets of a message of `len` bytes: 1 for no bytes.
    #[inline]
    pub const fn packets(self, len: u32) -> u32 {
        match len.checked_sub(1) {
            None => 1,
            // At most 2^23 packets of 256 bytes for the longest message; 2^24 for the largest
            // `len`.
            Some(last) => (last >> self.shift()).wrapping_add(1),
        }
    }

    /// Returns the offset in bytes of the payload of packet `index` in its message. Wraps for an
    /// index that no message can have.
    #[inline]
    pub const fn offset(self, index: u32) -> u32 {
        index.wrapping_shl(self.shift())
    }

    /// Returns the payload of packet `index` of a message of `len` bytes, in bytes; 0 behind the
    /// last packet.
    #[inline]
    pub const fn payload(self, len: u32, index: u32) -> u32 {
        if index >= self.packets(len) {
            return 0;
        }
        let rest = len.saturating_sub(self.offset(index));
        if rest < self.bytes() {
            rest
        } else {
            self.bytes()
        }
    }

    /// Returns the binary logarithm of the path MTU in bytes.
    #[inline]
    const fn shift(self) -> u32 {
        // The result is at most 12.
        (self as u32).wrapping_add(7)
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_roce_mtu))]
mod tests {
    use super::*;

    #[test]
    fn path_mtus_have_codes_and_sizes() {
        let mut bytes = 256;
        for (code, mtu) in (1..).zip(PathMtu::ALL) {
            assert_eq!(mtu.code(), code);
            assert_eq!(PathMtu::from_code(code), Some(mtu));
            assert_eq!(mtu.bytes(), bytes);
            bytes *= 2;
        }
        for code in [0, 6, 255] {
            assert_eq!(PathMtu::from_code(code), None);
        }
    }

    #[test]
    fn the_largest_path_mtu_of_an_interface() {
        for (interface, path) in [
            (0, None),
            (335, None),
            (336, Some(PathMtu::Mtu256)),
            (591, Some(PathMtu::Mtu256)),
            (592, Some(PathMtu::Mtu512)),
            (1280, Some(PathMtu::Mtu1024)),
            (1500, Some(PathMtu::Mtu1024)),
            (2127, Some(PathMtu::Mtu1024)),
            (2128, Some(PathMtu::Mtu2048)),
            (4175, Some(PathMtu::Mtu2048)),
            (4176, Some(PathMtu::Mtu4096)),
            (9000, Some(PathMtu::Mtu4096)),
            (65536, Some(PathMtu::Mtu4096)),
            (u32::MAX, Some(PathMtu::Mtu4096)),
        ] {
            assert_eq!(PathMtu::of_interface(interface), path);
        }
    }

    #[test]
    fn messages_are_cut_at_every_mtu() {
        for mtu in PathMtu::ALL {
            let whole = mtu.bytes();
            assert_eq!(mtu.packets(0), 1);
            assert_eq!(mtu.payload(0, 0), 0);
            for (len, packets, last) in [
                (1, 1, 1),
                (whole - 1, 1, whole - 1),
                (whole, 1, whole),
                (whole + 1, 2, 1),
                (3 * whole, 3, whole),
                (1 << 31, (1 << 31) / whole, whole),
                (u32::MAX, u32::MAX / whole + 1, whole - 1),
            ] {
                assert_eq!(mtu.packets(len), packets);
                assert_eq!(mtu.payload(len, packets - 1), last);
                assert_eq!(mtu.payload(len, packets), 0);
                if packets > 1 {
                    assert_eq!(mtu.payload(len, 0), whole);
                    assert_eq!(mtu.payload(len, packets - 2), whole);
                }
                assert_eq!(mtu.offset(packets - 1), len - last);
            }
        }
    }
}
