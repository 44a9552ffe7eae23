// SPDX-License-Identifier: GPL-2.0
//! Socket addresses as text: numeric nodes and services.

use super::SockAddr;
use crate::errno::Errno;
use core::net::{
    IpAddr,
    Ipv4Addr, //
};

impl SockAddr {
    /// Parses text: a numeric address and a decimal port. A link-local IPv6 address may be followed
    /// by `%` and the decimal interface index.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the text has any other form.
    pub fn parse(node: &[u8], service: &[u8]) -> Result<Self, Errno> {
        Ok(Self::parse_node(node)?.with_port(parse_service(service)?))
    }

    /// Parses the text of an address without a port. The port is 0. An IPv4 address can also be one
    /// hexadecimal number, as inet_aton(3) reads it: `0x0a000001`.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the text is not a numeric address.
    pub fn parse_node(node: &[u8]) -> Result<Self, Errno> {
        let mut parts = node.splitn(2, |byte| *byte == b'%');
        let ip = parts.next().unwrap_or_default();
        let scope = match parts.next() {
            Some(scope) => Some(parse_decimal(scope)?),
            None => None,
        };
        if let (Some(bits), None) = (parse_hex(ip), scope) {
            return Ok(Self::v4(Ipv4Addr::from_bits(bits), 0));
        }
        let ip = core::str::from_utf8(ip).map_err(|_| Errno::EINVAL)?;
        match (ip.parse().map_err(|_| Errno::EINVAL)?, scope) {
            (IpAddr::V4(ip), None) => Ok(Self::v4(ip, 0)),
            (IpAddr::V4(_), Some(_)) => Err(Errno::EINVAL),
            (IpAddr::V6(ip), scope) => Self::v6(ip, 0, scope.unwrap_or(0)),
        }
    }
}

/// Parses the text of a port: decimal digits, at most 65535.
///
/// # Errors
///
/// `EINVAL`: the text has any other form.
pub fn parse_service(service: &[u8]) -> Result<u16, Errno> {
    u16::try_from(parse_decimal(service)?).map_err(|_| Errno::EINVAL)
}

/// Parses decimal digits, without sign or blanks, at most ten.
fn parse_decimal(text: &[u8]) -> Result<u32, Errno> {
    if text.is_empty() || text.len() > 10 {
        return Err(Errno::EINVAL);
    }
    let mut value: u32 = 0;
    for byte in text {
        if !byte.is_ascii_digit() {
            return Err(Errno::EINVAL);
        }
        value = value
            .checked_mul(10)
            .and_then(|value| value.checked_add(u32::from(byte.wrapping_sub(b'0'))))
            .ok_or(Errno::EINVAL)?;
    }
    Ok(value)
}

/// Parses `0x` or `0X` and hexadecimal digits, at most eight.
fn parse_hex(text: &[u8]) -> Option<u32> {
    let digits = match text {
        [b'0', b'x' | b'X', digits @ ..] if !digits.is_empty() && digits.len() <= 8 => digits,
        _ => return None,
    };
    digits.iter().try_fold(0, |value: u32, byte| {
        let digit = char::from(*byte).to_digit(16)?;
        Some(value << 4 | digit)
    })
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_addr_text))]
mod tests {
    use super::*;

    fn reads(node: &str, service: &str) -> bool {
        SockAddr::parse(node.as_bytes(), service.as_bytes()).is_ok()
    }

    #[test]
    fn invalid_text_is_refused() {
        assert!(reads("10.0.0.1", "1"));
        for node in [
            "",
            "localhost",
            "10.0.0",
            "10.0.0.1.2",
            "10.0.0.256",
            "010.0.0.1",
        ] {
            assert!(!reads(node, "1"));
        }
        for node in [
            "10.0.0.1%1",
            " 10.0.0.1",
            "10.0.0.1 ",
            "[::1]",
            "::1::",
            ":::",
            "1:2:3",
        ] {
            assert!(!reads(node, "1"));
        }
        for node in [
            "::ffff:10.0.0.1",
            "fe80::1%",
            "fe80::1%eth0",
            "fe80::1%4294967296",
        ] {
            assert!(!reads(node, "1"));
        }
        for node in ["fe80::1%1%1", "fe80::1%-1", "fe80::1%00000000001"] {
            assert!(!reads(node, "1"));
        }
        for service in [
            "",
            "+1",
            "-1",
            " 1",
            "1 ",
            "0x1",
            "65536",
            "99999999999",
            "http",
        ] {
            assert!(!reads("::1", service));
        }
        assert!(reads("::1", "65535"));
        assert!(reads("::1", "00080"));
        assert_eq!(SockAddr::parse(b"\xff", b"1"), Err(Errno::EINVAL));
        assert_eq!(SockAddr::parse(b"::1\0", b"1"), Err(Errno::EINVAL));
    }

    #[test]
    fn an_ipv4_address_can_be_one_hexadecimal_number() {
        let ipv4 = |node: &str| SockAddr::parse_node(node.as_bytes()).map(|addr| addr.ip());
        let is = |a, b, c, d| Ok(IpAddr::V4(Ipv4Addr::new(a, b, c, d)));
        assert_eq!(ipv4("0x7f000001"), is(127, 0, 0, 1));
        assert_eq!(ipv4("0XC0A80a0F"), is(192, 168, 10, 15));
        assert_eq!(ipv4("0x1"), is(0, 0, 0, 1));
        assert_eq!(ipv4("0x0"), is(0, 0, 0, 0));
        assert_eq!(ipv4("0xffffffff"), is(255, 255, 255, 255));
        for node in ["0x", "0x100000000", "0x7f00000g", "x7f", "7f000001", "0x+1"] {
            assert!(!reads(node, "1"));
        }
        for node in ["0x7f000001%1", "0x7f.0.0.1", "2130706433", "0x1 ", "-0x1"] {
            assert!(!reads(node, "1"));
        }
    }
}
