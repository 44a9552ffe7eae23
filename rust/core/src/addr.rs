// SPDX-License-Identifier: GPL-2.0
//! Socket addresses: the addresses of links and endpoints.
//!
//! A [`SockAddr`] is an IP address with a service number as port. It has two external forms, which
//! only this module parses:
//! - 32 bytes, `struct kfabric_sockaddr` ([`SockAddr::from_raw`]). `struct sockaddr_in` and
//!   `sockaddr_in6` have the same layout, followed by zeros.
//! - Text: a numeric address and a decimal port ([`SockAddr::parse`]), as kfi_av_insertsvc() and
//!   kfi_getinfo() accept it, in the file `text.rs`. Names are not resolved.
//!
//! [`SockAddr::straddr`] writes an address like kfi_av_straddr(): `fi_sockaddr_in://10.0.0.1:7471`,
//! `fi_sockaddr_in6://[fe80::1%2]:7471`; or with a QP number, `fi_sockaddr_in://10.0.0.1:qp0000a2`.
//!
//! # Unique representation
//!
//! The module compares addresses to identify the sender of a message, so a peer must have exactly
//! one representation. The scope is kept only for link-local IPv6 addresses, because the IP stack
//! ignores it elsewhere. The flow information is not kept. An IPv4 address mapped into IPv6
//! (`::ffff:10.0.0.1`) is refused, because no link has such an address.
//!
//! # Ports and QPs
//!
//! A datagram endpoint is one QP, and its port determines the number of the QP: port p is QP
//! [`DGRAM_QPN`] + p. A sender therefore knows the QP of an address without asking. QPs of other
//! implementations have other numbers; their addresses have the QP number in place of a port
//! ([`SockAddr::with_qpn`]).

mod text;

pub use self::text::parse_service;

use crate::errno::Errno;
use core::{
    fmt::{
        self,
        Write, //
    },
    net::{
        IpAddr,
        Ipv4Addr,
        Ipv6Addr, //
    }, //
};

/// `AF_INET`.
pub const AF_INET: u16 = 2;
/// `AF_INET6`.
pub const AF_INET6: u16 = 10;

/// The first of the 65,536 QP numbers that correspond to the ports of datagram endpoints.
pub const DGRAM_QPN: u32 = 0x02_0000;

/// The upper bound of QP numbers, exclusive.
const QPNS: u32 = 1 << 24;

/// The size of `struct kfabric_sockaddr` in bytes.
pub const RAW_LEN: usize = 32;

/// The length in bytes of the longest text that [`SockAddr::straddr`] writes, its NUL included:
/// `fi_sockaddr_in6://[` + 39 + `%4294967295` + `]:qpffffff`.
pub const TEXT_MAX: usize = 19 + 39 + 11 + 10 + 1;

/// A socket address.
///
/// # Invariants
///
/// `scope` is 0 unless `ip` is a link-local IPv6 address. `ip` is not an IPv4 address mapped into
/// IPv6. `qpn` is less than 2^24. If `qpn` is not 0, `port` is 0 and `qpn` does not correspond to a
/// port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SockAddr {
    ip: IpAddr,
    port: u16,
    scope: u32,
    qpn: u32,
}

impl SockAddr {
    /// Makes a socket address. `scope` is an interface index, see [`SockAddr::v6`].
    ///
    /// # Errors
    ///
    /// See [`SockAddr::v6`].
    pub const fn new(ip: IpAddr, port: u16, scope: u32) -> Result<Self, Errno> {
        match ip {
            IpAddr::V4(ip) => Ok(Self::v4(ip, port)),
            IpAddr::V6(ip) => Self::v6(ip, port, scope),
        }
    }

    /// Makes an IPv4 socket address.
    pub const fn v4(ip: Ipv4Addr, port: u16) -> Self {
        let ip = IpAddr::V4(ip);
        let (scope, qpn) = (0, 0);
        Self {
            ip,
            port,
            scope,
            qpn,
        }
    }

    /// Makes an IPv6 socket address. `scope`, an interface index, is dropped unless `ip` is
    /// link-local.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the address is an IPv4 address mapped into IPv6.
    pub const fn v6(ip: Ipv6Addr, port: u16, scope: u32) -> Result<Self, Errno> {
        if ip.to_ipv4_mapped().is_some() {
            return Err(Errno::EINVAL);
        }
        let scope = if is_link_local(&ip) { scope } else { 0 };
        let (ip, qpn) = (IpAddr::V6(ip), 0);
        Ok(Self {
            ip,
            port,
            scope,
            qpn,
        })
    }

    /// Parses a `struct kfabric_sockaddr`.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the family is neither IPv4 nor IPv6; a field that must be 0 is not; the address is
    /// an IPv4 address mapped into IPv6; or the QP number is out of range.
    pub fn from_raw(raw: &[u8; RAW_LEN]) -> Result<Self, Errno> {
        // The layout is: family (2, host order), port (2, big endian), IPv4 address or flow
        // information (4), IPv6 address (16), scope (4, host order), QP number (4, host order).
        let [f0, f1, p0, p1, a, b, c, d, rest @ ..] = *raw;
        let (v6, rest) = rest.split_first_chunk::<16>().ok_or(Errno::EINVAL)?;
        let (scope, qpn) = rest.split_first_chunk::<4>().ok_or(Errno::EINVAL)?;
        let port = u16::from_be_bytes([p0, p1]);
        let scope = u32::from_ne_bytes(*scope);
        let qpn = u32::from_ne_bytes(qpn.try_into().map_err(|_| Errno::EINVAL)?);
        let addr = match u16::from_ne_bytes([f0, f1]) {
            AF_INET if *v6 == [0; 16] && scope == 0 => Self::v4([a, b, c, d].into(), port),
            AF_INET6 => Self::v6((*v6).into(), port, scope)?,
            _ => return Err(Errno::EINVAL),
        };
        match qpn {
            0 => Ok(addr),
            _ if port != 0 => Err(Errno::EINVAL),
            _ => addr.with_qpn(qpn),
        }
    }

    /// Parses a `struct kfabric_sockaddr`; all zeros mean that there is no address.
    ///
    /// # Errors
    ///
    /// See [`Self::from_raw`].
    pub fn from_raw_or_none(raw: &[u8; RAW_LEN]) -> Result<Option<Self>, Errno> {
        if *raw == [0; RAW_LEN] {
            return Ok(None);
        }
        Self::from_raw(raw).map(Some)
    }

    /// Writes a `struct kfabric_sockaddr`.
    pub fn to_raw(&self) -> [u8; RAW_LEN] {
        let [p0, p1] = self.port.to_be_bytes();
        let (family, v4, v6) = match self.ip {
            IpAddr::V4(ip) => (AF_INET, ip.octets(), [0; 16]),
            IpAddr::V6(ip) => (AF_INET6, [0; 4], ip.octets()),
        };
        let [f0, f1] = family.to_ne_bytes();
        let head = [f0, f1, p0, p1];
        let (scope, qpn) = (self.scope.to_ne_bytes(), self.qpn.to_ne_bytes());
        let mut fields = head.iter().chain(&v4).chain(&v6).chain(&scope).chain(&qpn);
        core::array::from_fn(|_| fields.next().copied().unwrap_or(0))
    }

    /// Returns the IP address.
    pub const fn ip(&self) -> IpAddr {
        self.ip
    }

    /// Returns the port; 0 if there is none.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Returns the interface index of a link-local IPv6 address; 0 if there is none.
    pub const fn scope(&self) -> u32 {
        self.scope
    }

    /// Returns the address family: [`AF_INET`] or [`AF_INET6`].
    pub const fn family(&self) -> u16 {
        match self.ip {
            IpAddr::V4(_) => AF_INET,
            IpAddr::V6(_) => AF_INET6,
        }
    }

    /// Returns the same address with another port.
    pub const fn with_port(self, port: u16) -> Self {
        let qpn = 0;
        Self { port, qpn, ..self }
    }

    /// Returns the same address with the QP number `qpn` in place of a port, or with the port that
    /// corresponds to `qpn`, if there is one.
    ///
    /// # Errors
    ///
    /// `EINVAL`: `qpn` is 0, or 2^24 or more.
    pub const fn with_qpn(self, qpn: u32) -> Result<Self, Errno> {
        if qpn == 0 || qpn >= QPNS {
            return Err(Errno::EINVAL);
        }
        // INVARIANT: `qpn` is not 0, is below 2^24, and does not correspond to a port.
        match qpn.wrapping_sub(DGRAM_QPN) {
            port @ 1..=0xffff => Ok(self.with_port(port as u16)),
            _ => Ok(Self {
                port: 0,
                qpn,
                ..self
            }),
        }
    }

    /// Returns the QP number if this is the address of a datagram endpoint; `None` if it has
    /// neither a port nor a QP number.
    pub const fn qpn(&self) -> Option<u32> {
        match (self.port, self.qpn) {
            (0, 0) => None,
            (0, qpn) => Some(qpn),
            (port, _) => Some(DGRAM_QPN | port as u32),
        }
    }

    /// Returns whether the address has a QP number in place of a port.
    pub const fn is_qp(&self) -> bool {
        self.qpn != 0
    }

    /// Returns whether this is a loopback address: 127.0.0.0/8 or ::1.
    pub const fn is_loopback(&self) -> bool {
        self.ip.is_loopback()
    }

    /// Returns whether this is a wildcard address: 0.0.0.0 or ::.
    pub const fn is_unspecified(&self) -> bool {
        self.ip.is_unspecified()
    }

    /// Writes the address as text, followed by a NUL. Text that does not fit into `buf` is cut off;
    /// the NUL is always written unless `buf` is empty. Returns the length of the whole text, its
    /// NUL included, at most [`TEXT_MAX`], like kfi_av_straddr().
    pub fn straddr(&self, buf: &mut [u8]) -> usize {
        let mut text = Text { buf, len: 0 };
        // INVARIANT of `Text`: writing never fails.
        let _ = write!(text, "{self}");
        let Text { buf, len } = text;
        let nul = len.min(buf.len().saturating_sub(1));
        if let Some(end) = buf.get_mut(nul) {
            *end = 0;
        }
        len.saturating_add(1)
    }
}

impl fmt::Display for SockAddr {
    /// Writes the address like kfi_av_straddr().
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ip {
            IpAddr::V4(ip) => write!(f, "fi_sockaddr_in://{ip}:")?,
            IpAddr::V6(ip) if self.scope == 0 => write!(f, "fi_sockaddr_in6://[{ip}]:")?,
            IpAddr::V6(ip) => {
                let scope = self.scope;
                write!(f, "fi_sockaddr_in6://[{ip}%{scope}]:")?;
            }
        }
        match self.qpn {
            0 => write!(f, "{}", self.port),
            qpn => write!(f, "qp{qpn:06x}"),
        }
    }
}

/// Returns whether the address is in fe80::/10, or a link-local multicast address.
const fn is_link_local(ip: &Ipv6Addr) -> bool {
    let [first, ..] = ip.segments();
    first & 0xffc0 == 0xfe80 || first & 0xff0f == 0xff02
}

/// Text in a buffer of the caller. Also counts text that does not fit.
struct Text<'a> {
    buf: &'a mut [u8],
    len: usize,
}

impl Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let start = self.len.min(self.buf.len());
        if let Some(room) = self.buf.get_mut(start..) {
            for (to, from) in room.iter_mut().zip(text.as_bytes()) {
                *to = *from;
            }
        }
        self.len = self.len.saturating_add(text.len());
        Ok(())
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_addr))]
mod tests {
    use super::*;

    /// Returns whether the address parsed from `node` and `service` is written as `text`.
    fn writes(node: &str, service: &str, text: &str) -> bool {
        let Ok(addr) = SockAddr::parse(node.as_bytes(), service.as_bytes()) else {
            return false;
        };
        let mut buf = [0xff; TEXT_MAX];
        let len = addr.straddr(&mut buf);
        let Some((nul, written)) = buf.get(..len).and_then(|buf| buf.split_last()) else {
            return false;
        };
        *nul == 0 && written == text.as_bytes()
    }

    #[test]
    fn text_has_the_format_of_libfabric() {
        assert!(writes("10.0.0.1", "7471", "fi_sockaddr_in://10.0.0.1:7471"));
        assert!(writes("::1", "7471", "fi_sockaddr_in6://[::1]:7471"));
        assert!(writes("0:0::1", "0", "fi_sockaddr_in6://[::1]:0"));
        assert!(writes("fe80::1%2", "1", "fi_sockaddr_in6://[fe80::1%2]:1"));
        assert!(writes("fe80::1", "1", "fi_sockaddr_in6://[fe80::1]:1"));
        // The scope of a global address is dropped.
        assert!(writes(
            "2001:db8::1%2",
            "1",
            "fi_sockaddr_in6://[2001:db8::1]:1"
        ));
        assert!(writes("ff02::1%3", "1", "fi_sockaddr_in6://[ff02::1%3]:1"));
    }

    #[test]
    fn the_longest_text_has_text_max_bytes() {
        let node = "fe80:1111:1111:1111:1111:1111:1111:1111%4294967295";
        let addr = SockAddr::parse(node.as_bytes(), b"65535");
        let mut buf = [0xff; TEXT_MAX];
        let port = "]:65535\0".len();
        let qp = "]:qpffffff\0".len();
        assert_eq!(
            addr.map(|addr| addr.straddr(&mut buf)),
            Ok(TEXT_MAX - qp + port)
        );
        let addr = addr.and_then(|addr| addr.with_qpn(0xff_ffff));
        assert_eq!(addr.map(|addr| addr.straddr(&mut buf)), Ok(TEXT_MAX));
        assert_eq!(buf.get(TEXT_MAX - qp..), Some(&b"]:qpffffff\0"[..]));
    }

    #[test]
    fn a_short_buffer_gets_truncated_text() {
        let addr = SockAddr::v4(Ipv4Addr::LOCALHOST, 80);
        let mut buf = [0xff; 8];
        assert_eq!(
            addr.straddr(&mut buf),
            b"fi_sockaddr_in://127.0.0.1:80\0".len()
        );
        assert_eq!(&buf, b"fi_sock\0");
        let mut buf = [0xff; 1];
        assert_eq!(addr.straddr(&mut buf), 30);
        assert_eq!(buf, [0]);
        assert_eq!(addr.straddr(&mut []), 30);
    }

    #[test]
    fn an_ipv4_address_converts_to_bytes_and_back() {
        let mut raw = [0; RAW_LEN];
        raw[..2].copy_from_slice(&2u16.to_ne_bytes());
        raw[2..8].copy_from_slice(&[0x1d, 0x2f, 10, 0, 0, 1]);
        let addr = SockAddr::from_raw(&raw);
        assert_eq!(addr, Ok(SockAddr::v4(Ipv4Addr::new(10, 0, 0, 1), 0x1d2f)));
        assert_eq!(addr.map(|addr| addr.to_raw()), Ok(raw));
        // The bytes after the address must be 0, and an address with a port has no QP number.
        for at in 8..RAW_LEN {
            let mut raw = raw;
            raw[at] = 1;
            assert_eq!(SockAddr::from_raw(&raw), Err(Errno::EINVAL));
        }
        raw[..2].copy_from_slice(&1u16.to_ne_bytes());
        assert_eq!(SockAddr::from_raw(&raw), Err(Errno::EINVAL));
    }

    #[test]
    fn an_ipv6_address_converts_to_bytes_and_back() -> Result<(), Errno> {
        let ip = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9);
        let addr = SockAddr::v6(ip, 0x1234, 7)?;
        let mut raw = addr.to_raw();
        assert_eq!(raw[..2], 10u16.to_ne_bytes());
        assert_eq!(raw[2..8], [0x12, 0x34, 0, 0, 0, 0]);
        assert_eq!(raw[8..24], ip.octets());
        assert_eq!(raw[24..28], 7u32.to_ne_bytes());
        assert_eq!(SockAddr::from_raw(&raw), Ok(addr));
        // The flow information is not kept.
        raw[4] = 1;
        assert_eq!(SockAddr::from_raw(&raw), Ok(addr));
        // An address cannot have both a port and a QP number.
        raw[28] = 1;
        assert_eq!(SockAddr::from_raw(&raw), Err(Errno::EINVAL));
        let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped();
        assert_eq!(SockAddr::v6(mapped, 1, 0), Err(Errno::EINVAL));
        Ok(())
    }

    #[test]
    fn ports_correspond_to_qp_numbers() {
        let addr = SockAddr::v4(Ipv4Addr::LOCALHOST, 0);
        assert_eq!(addr.qpn(), None);
        assert_eq!(addr.with_port(1).qpn(), Some(0x02_0001));
        assert_eq!(addr.with_port(0xffff).qpn(), Some(0x02_ffff));
        for qpn in [1, 0x01_ffff, 0x02_0000, 0x03_0000, 0xff_ffff] {
            let qp = addr.with_qpn(qpn);
            assert_eq!(qp.map(|qp| qp.qpn()), Ok(Some(qpn)));
            assert_eq!(qp.map(|qp| qp.is_qp()), Ok(true));
            assert_eq!(qp.map(|qp| qp.port()), Ok(0));
            assert_eq!(qp.map(|qp| qp.with_port(0)), Ok(addr));
        }
        // A peer has one representation.
        assert_eq!(addr.with_qpn(0x02_0001), Ok(addr.with_port(1)));
        assert_eq!(addr.with_qpn(0x02_ffff), Ok(addr.with_port(0xffff)));
        assert!(!addr.with_port(1).is_qp());
        assert_eq!(addr.with_qpn(0), Err(Errno::EINVAL));
        assert_eq!(addr.with_qpn(1 << 24), Err(Errno::EINVAL));
    }

    #[test]
    fn an_address_with_a_qp_number_converts_to_bytes_and_back() {
        let addr = SockAddr::v4(Ipv4Addr::LOCALHOST, 0);
        let mut raw = addr.to_raw();
        raw[28..].copy_from_slice(&0xa2u32.to_ne_bytes());
        let qp = SockAddr::from_raw(&raw);
        assert_eq!(qp, addr.with_qpn(0xa2));
        assert_eq!(qp.map(|qp| qp.to_raw()), Ok(raw));
        let mut buf = [0; TEXT_MAX];
        assert_eq!(qp.map(|qp| qp.straddr(&mut buf)), Ok(36));
        assert_eq!(&buf[..36], b"fi_sockaddr_in://127.0.0.1:qp0000a2\0");
        raw[28..].copy_from_slice(&(1u32 << 24).to_ne_bytes());
        assert_eq!(SockAddr::from_raw(&raw), Err(Errno::EINVAL));
    }

    #[test]
    fn an_absent_address_is_all_zeros() {
        let mut raw = [0; RAW_LEN];
        assert_eq!(SockAddr::from_raw_or_none(&raw), Ok(None));
        raw[3] = 1;
        assert_eq!(SockAddr::from_raw_or_none(&raw), Err(Errno::EINVAL));
        let raw = SockAddr::v4(Ipv4Addr::UNSPECIFIED, 0).to_raw();
        assert!(matches!(SockAddr::from_raw_or_none(&raw), Ok(Some(_))));
    }

    #[test]
    fn addresses_are_classified() {
        let at = |node: &str| SockAddr::parse(node.as_bytes(), b"1");
        assert_eq!(at("127.1.2.3").map(|addr| addr.is_loopback()), Ok(true));
        assert_eq!(at("::1").map(|addr| addr.is_loopback()), Ok(true));
        assert_eq!(at("128.0.0.1").map(|addr| addr.is_loopback()), Ok(false));
        assert_eq!(at("0.0.0.0").map(|addr| addr.is_unspecified()), Ok(true));
        assert_eq!(at("::").map(|addr| addr.is_unspecified()), Ok(true));
        assert_eq!(at("::1").map(|addr| addr.is_unspecified()), Ok(false));
        assert_eq!(at("::").map(|addr| addr.family()), Ok(AF_INET6));
        assert_eq!(at("0.0.0.0").map(|addr| addr.family()), Ok(AF_INET));
        for node in ["fe80::1%2", "febf:ffff::%2", "ff02::1%2", "ff12::1%2"] {
            assert_eq!(at(node).map(|addr| addr.scope()), Ok(2));
        }
        for node in [
            "fe7f::1%2",
            "fec0::1%2",
            "ff01::1%2",
            "ff05::1%2",
            "fd00::1%2",
        ] {
            assert_eq!(at(node).map(|addr| addr.scope()), Ok(0));
        }
        assert_eq!(at("::1").map(|addr| addr.with_port(5).port()), Ok(5));
    }
}
