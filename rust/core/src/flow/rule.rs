// SPDX-License-Identifier: GPL-2.0

//! Rules: which packets belong to a flow.
//!
//! A rule has a value and a mask for each field of a packet ([`Fields`]), and optionally an IP
//! version. A packet matches if its version is the rule's and if each field is equal to the value
//! in the bits of the mask. A rule with empty masks matches every packet.
//!
//! # Order
//!
//! Each flow of an endpoint has a priority. A packet is compared with the rules in the order of
//! ascending priority numbers, and rules of equal priority in the order of their creation
//! ([`place`]). The first rule that matches ends the search, unless its flow lets packets continue
//! to later rules (`IBV_FLOW_ATTR_FLAGS_DONT_TRAP` of verbs). So without that flag each packet
//! belongs to one flow at most.
//!
//! # Cost
//!
//! Each packet is compared with up to [`MAX_FLOWS`](crate::limits::MAX_FLOWS) rules in a softirq.
//! So the fields of a packet are packed into six words once, and a rule is six pairs of words. A
//! rule that does not match mostly differs in the first words: ports and QP numbers, and the lower
//! halves of the addresses. The upper halves come last.

use core::{
    net::IpAddr,
    ops::ControlFlow, //
};

use crate::{
    addr::{
        AF_INET,
        AF_INET6, //
    },
    errno::Errno, //
};

/// The number of words of a packet's fields.
const WORDS: usize = 6;

/// The fields of a packet in words, see the module documentation.
pub type Words = [u64; WORDS];

/// The bits of a QP number.
const QPN: u32 = 0xff_ffff;

/// The bits of the IP version in its word.
const VERSION: u64 = 0xff00;

/// An IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Converts the number of an address family; 0 is any version. Fails with `EINVAL` for a family
    /// other than `AF_INET` and `AF_INET6`.
    pub fn from_number(number: u32) -> Result<Option<Self>, Errno> {
        match u16::try_from(number) {
            Ok(0) => Ok(None),
            Ok(AF_INET) => Ok(Some(Self::V4)),
            Ok(AF_INET6) => Ok(Some(Self::V6)),
            _ => Err(Errno::EINVAL),
        }
    }

    const fn version(self) -> u64 {
        match self {
            Self::V4 => 4 << 8,
            Self::V6 => 6 << 8,
        }
    }
}

/// The fields of a packet that rules compare: the values of one packet, or the values or the masks
/// of a rule. Numbers are in the byte order of the host, addresses in that of the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    /// The source IP address; an IPv4 address has 4 bytes, followed by zeros.
    pub src_ip: [u8; 16],
    /// The destination IP address.
    pub dest_ip: [u8; 16],
    /// The UDP source port.
    pub src_port: u16,
    /// The destination QP in the BTH: 24 bits.
    pub dest_qp: u32,
    /// The source QP in the DETH: 24 bits.
    pub src_qp: u32,
    /// The opcode in the BTH.
    pub opcode: u8,
}

/// The halves of an address, the upper one first. An IPv4 address is in the lower half of the lower
/// one.
fn halves(ip: IpAddr) -> (u64, u64) {
    match ip {
        IpAddr::V4(ip) => (0, ip.to_bits().into()),
        IpAddr::V6(ip) => ((ip.to_bits() >> 64) as u64, ip.to_bits() as u64),
    }
}

/// The address in a field of 16 bytes.
fn address(family: Option<Family>, bytes: [u8; 16]) -> IpAddr {
    let [a, b, c, d, ..] = bytes;
    match family {
        Some(Family::V4) => IpAddr::from([a, b, c, d]),
        Some(Family::V6) | None => IpAddr::from(bytes),
    }
}

/// Returns the words of a packet from `source` to `dest`, which are of one version. `fields` has
/// its other fields; its addresses are ignored.
#[inline]
pub fn words_of(source: IpAddr, dest: IpAddr, fields: &Fields) -> Words {
    let family = match source {
        IpAddr::V4(_) => Family::V4,
        IpAddr::V6(_) => Family::V6,
    };
    pack(Some(family), source, dest, fields)
}

#[inline]
fn pack(family: Option<Family>, source: IpAddr, dest: IpAddr, fields: &Fields) -> Words {
    let (src_high, src_low) = halves(source);
    let (dest_high, dest_low) = halves(dest);
    let ports = u64::from(fields.dest_qp & QPN) << 40
        | u64::from(fields.src_qp & QPN) << 16
        | u64::from(fields.src_port);
    let opcode = family.map_or(0, Family::version) | u64::from(fields.opcode);
    [ports, src_low, opcode, dest_low, src_high, dest_high]
}

/// A rule.
///
/// # Invariants
///
/// `value` has no bit that `mask` does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    value: Words,
    mask: Words,
}

impl Rule {
    /// Makes a rule for packets of an IP version, or of both, whose fields are equal to `value` in
    /// the bits of `mask`.
    ///
    /// # Errors
    ///
    /// `EINVAL`: a value has a bit that is not in its mask, and so could never match; a mask has a
    /// bit that its field does not have (a QP number has 24 bits, an IPv4 address 4 bytes); or
    /// there is a mask of an address, but no version.
    pub fn new(family: Option<Family>, value: &Fields, mask: &Fields) -> Result<Self, Errno> {
        let used = match family {
            None => 0,
            Some(Family::V4) => 4,
            Some(Family::V6) => 16,
        };
        let beyond = |ip: &[u8; 16]| ip.iter().skip(used).any(|byte| *byte != 0);
        for fields in [value, mask] {
            if beyond(&fields.src_ip)
                || beyond(&fields.dest_ip)
                || (fields.dest_qp | fields.src_qp) & !QPN != 0
            {
                return Err(Errno::EINVAL);
            }
        }
        let packed = |family, fields: &Fields| {
            let source = address(family, fields.src_ip);
            pack(family, source, address(family, fields.dest_ip), fields)
        };
        let value = packed(family, value);
        let mut mask = packed(family, mask);
        if let Some(word) = mask.get_mut(2) {
            // The word has the version of the rule, or none. The mask selects all of its bits, or
            // none.
            *word = *word & !VERSION | if family.is_some() { VERSION } else { 0 };
        }
        if value
            .iter()
            .zip(&mask)
            .any(|(value, mask)| value & !mask != 0)
        {
            return Err(Errno::EINVAL);
        }
        // INVARIANT: Just checked.
        Ok(Self { value, mask })
    }

    /// Returns whether a packet matches.
    #[inline]
    pub fn matches(&self, packet: &Words) -> bool {
        let mut words = packet.iter().zip(&self.value).zip(&self.mask);
        words.all(|((word, value), mask)| word & mask == *value)
    }
}

/// Returns the place of a new rule with `priority` among rules with `priorities`, which are in
/// order.
pub fn place(priorities: impl IntoIterator<Item = u32>, priority: u32) -> usize {
    let earlier = |other: &u32| *other <= priority;
    priorities.into_iter().take_while(earlier).count()
}

/// Calls `matched` with the index of each rule that a packet matches, in order, until it breaks.
#[inline]
pub fn for_each_match(
    rules: &[Rule],
    packet: &Words,
    mut matched: impl FnMut(usize) -> ControlFlow<()>,
) {
    for (index, rule) in rules.iter().enumerate() {
        if rule.matches(packet) && matched(index).is_break() {
            return;
        }
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_flow_rule))]
mod tests {
    use super::*;
    use core::net::{
        Ipv4Addr,
        Ipv6Addr, //
    };

    const FROM: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7));
    const TO: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 1, 9));

    const PACKET: Fields = Fields {
        src_ip: [0; 16],
        dest_ip: [0; 16],
        src_port: 0xc123,
        dest_qp: 0x02_0007,
        src_qp: 0x03_0009,
        opcode: 0x64,
    };

    fn packet() -> Words {
        words_of(FROM, TO, &PACKET)
    }

    /// Whether a rule made of these matches the packet.
    fn matches(family: Option<Family>, value: Fields, mask: Fields) -> Result<bool, Errno> {
        Ok(Rule::new(family, &value, &mask)?.matches(&packet()))
    }

    fn first(bytes: &[u8]) -> [u8; 16] {
        let mut ip = [0; 16];
        for (to, from) in ip.iter_mut().zip(bytes) {
            *to = *from;
        }
        ip
    }

    #[test]
    fn a_rule_without_masks_matches_every_packet() {
        let none = Fields::default();
        assert_eq!(matches(None, none, none), Ok(true));
        assert_eq!(matches(Some(Family::V4), none, none), Ok(true));
        assert_eq!(matches(Some(Family::V6), none, none), Ok(false));
    }

    #[test]
    fn each_field_is_compared_in_the_bits_of_its_mask() {
        let none = Fields::default();
        // A value that matches, one that does not, and the mask.
        let cases = [
            (
                Fields {
                    src_port: 0xc100,
                    ..none
                },
                Fields {
                    src_port: 0xc200,
                    ..none
                },
                Fields {
                    src_port: 0xff00,
                    ..none
                },
            ),
            (
                Fields { dest_qp: 7, ..none },
                Fields { dest_qp: 6, ..none },
                Fields {
                    dest_qp: 0xffff,
                    ..none
                },
            ),
            (
                Fields {
                    src_qp: 0x03_0000,
                    ..none
                },
                Fields {
                    src_qp: 0x02_0000,
                    ..none
                },
                Fields {
                    src_qp: 0xff_0000,
                    ..none
                },
            ),
            (
                Fields {
                    opcode: 0x64,
                    ..none
                },
                Fields {
                    opcode: 0x65,
                    ..none
                },
                Fields {
                    opcode: 0xff,
                    ..none
                },
            ),
            (
                Fields {
                    src_ip: first(&[10, 0, 0, 0]),
                    ..none
                },
                Fields {
                    src_ip: first(&[10, 0, 1, 0]),
                    ..none
                },
                Fields {
                    src_ip: first(&[255, 255, 255, 0]),
                    ..none
                },
            ),
            (
                Fields {
                    dest_ip: first(&[0, 0, 1, 9]),
                    ..none
                },
                Fields {
                    dest_ip: first(&[0, 0, 1, 8]),
                    ..none
                },
                Fields {
                    dest_ip: first(&[0, 0, 255, 255]),
                    ..none
                },
            ),
        ];
        for (hit, miss, mask) in cases {
            assert_eq!(matches(Some(Family::V4), hit, mask), Ok(true));
            assert_eq!(matches(Some(Family::V4), miss, mask), Ok(false));
            // The other version never matches.
            assert_eq!(matches(Some(Family::V6), hit, mask), Ok(false));
        }
    }

    #[test]
    fn an_ipv4_packet_is_not_one_of_a_mapped_address() -> Result<(), Errno> {
        let IpAddr::V4(from) = FROM else {
            return Ok(());
        };
        let mapped = from.to_ipv6_mapped();
        let value = Fields {
            src_ip: mapped.octets(),
            ..Fields::default()
        };
        let mask = Fields {
            src_ip: [0xff; 16],
            ..Fields::default()
        };
        let rule = Rule::new(Some(Family::V6), &value, &mask)?;
        assert!(!rule.matches(&packet()));
        let to = Ipv6Addr::LOCALHOST.into();
        assert!(rule.matches(&words_of(mapped.into(), to, &PACKET)));
        Ok(())
    }

    #[test]
    fn rules_that_could_not_match_are_refused() {
        let none = Fields::default();
        let bad = Err(Errno::EINVAL);
        // A bit outside the mask, of each field.
        let values = [
            Fields {
                src_port: 1,
                ..none
            },
            Fields { dest_qp: 1, ..none },
            Fields { src_qp: 1, ..none },
            Fields { opcode: 1, ..none },
            Fields {
                src_ip: first(&[1]),
                ..none
            },
            Fields {
                dest_ip: first(&[1]),
                ..none
            },
        ];
        for value in values {
            assert_eq!(matches(Some(Family::V4), value, none), bad);
            assert_eq!(matches(Some(Family::V6), value, none), bad);
        }
        // Bits that the field does not have.
        for mask in [
            Fields {
                dest_qp: 1 << 24,
                ..none
            },
            Fields {
                src_qp: 1 << 31,
                ..none
            },
            Fields {
                src_ip: first(&[0, 0, 0, 0, 1]),
                ..none
            },
            Fields {
                dest_ip: first(&[0, 0, 0, 0, 1]),
                ..none
            },
        ] {
            assert_eq!(matches(Some(Family::V4), none, mask), bad);
        }
        // An address of an unknown version.
        let mask = Fields {
            src_ip: first(&[255]),
            ..none
        };
        assert_eq!(matches(None, none, mask), bad);
        assert_eq!(matches(Some(Family::V6), none, mask), Ok(false));
    }

    #[test]
    fn the_numbers_of_families() {
        assert_eq!(Family::from_number(0), Ok(None));
        assert_eq!(Family::from_number(2), Ok(Some(Family::V4)));
        assert_eq!(Family::from_number(10), Ok(Some(Family::V6)));
        for number in [1, 3, 4, 6, 0x1_0002, u32::MAX] {
            assert_eq!(Family::from_number(number), Err(Errno::EINVAL));
        }
    }

    #[test]
    fn a_new_rule_comes_after_those_of_its_priority() {
        let priorities = [1, 3, 3, u32::MAX];
        for (priority, expected) in [(0, 0), (1, 1), (2, 1), (3, 3), (4, 3), (u32::MAX, 4)] {
            assert_eq!(place(priorities, priority), expected);
        }
        assert_eq!(place([], 0), 0);
    }

    #[test]
    fn the_search_ends_where_it_is_told_to() -> Result<(), Errno> {
        let none = Fields::default();
        let any = Rule::new(None, &none, &none)?;
        let other = Rule::new(Some(Family::V6), &none, &none)?;
        let rules = [any, other, any, any];
        let seen = |last: usize| {
            let mut seen = 0u32;
            for_each_match(&rules, &packet(), |index| {
                seen |= 1 << index;
                if index == last {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            });
            seen
        };
        assert_eq!(seen(0), 0b1);
        assert_eq!(seen(2), 0b101);
        assert_eq!(seen(9), 0b1101);
        Ok(())
    }
}
