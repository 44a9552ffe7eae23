// SPDX-License-Identifier: GPL-2.0
//! Addresses: socket addresses as text and in the interface's form, and the
//! short addresses ([`FiAddr`]) that an address vector gives out for them.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6},
};

use crate::abi;

pub(crate) const AF_INET: u16 = 2;
pub(crate) const AF_INET6: u16 = 10;

/// Address of a peer in operations: the value that an address vector gave for a
/// socket address (`kfi_addr_t`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct FiAddr(
    /// The number, as in the interface.
    pub u64,
);

impl FiAddr {
    /// Any source: for receives.
    pub const UNSPEC: Self = Self(abi::KFI_ADDR_UNSPEC);

    /// No address: an address that could not be inserted, or an unknown sender.
    pub const NOTAVAIL: Self = Self(abi::KFI_ADDR_NOTAVAIL);

    /// The address of a receive context of this peer, a scalable endpoint, for
    /// transmits (kfi_rx_addr).  `bits` are the
    /// [`rx_ctx_bits`](crate::AvBuilder::rx_ctx_bits) of its address vector;
    /// without bits there is context 0 only, the peer itself.
    pub fn receive_context(self, index: u32, bits: u32) -> Self {
        let index = u64::from(index);
        match 64_u32.checked_sub(bits) {
            Some(shift @ 1..64) => Self(index << shift | self.0),
            _ => self,
        }
    }

    /// The address, unless it is [`FiAddr::NOTAVAIL`].
    pub fn known(self) -> Option<Self> {
        (self != Self::NOTAVAIL).then_some(self)
    }
}

impl Default for FiAddr {
    fn default() -> Self {
        Self::NOTAVAIL
    }
}

impl fmt::Debug for FiAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.known() {
            Some(Self(number)) => write!(f, "FiAddr({number})"),
            None => f.write_str("FiAddr(NOTAVAIL)"),
        }
    }
}

/// Text that is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an address: {why}")]
pub struct AddressError {
    text: String,
    why: &'static str,
}

/// Reads an address and port: `10.0.0.1:7471`, `[fe80::1%3]:7471`.
///
/// Without a port the port is 0, which lets the module choose one:
/// `10.0.0.1`, `::1`, `[::1]`.  Names of hosts are not looked up.  The scope of an
/// IPv6 address is the index or the name of a network interface:
/// `[fe80::1%3]:7471`, `fe80::1%eth0`.
///
/// ```
/// let addr = kfi::parse_address("10.0.0.1:7471")?;
/// assert_eq!(addr.port(), 7471);
/// assert_eq!(kfi::parse_address("[::1]")?, "[::1]:0".parse().unwrap());
/// assert!(kfi::parse_address("localhost:7471").is_err());
/// # Ok::<(), kfi::AddressError>(())
/// ```
///
/// # Errors
///
/// The text is not numeric, or the port is not one.
pub fn parse_address(text: &str) -> Result<SocketAddr, AddressError> {
    let fail = |why| AddressError {
        text: text.to_owned(),
        why,
    };
    if let Ok(addr) = text.parse::<SocketAddr>() {
        return Ok(addr);
    }
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, 0));
    }
    if let Some((ip, scope, port)) = scoped(text) {
        let ip: Ipv6Addr = ip
            .parse()
            .map_err(|_| fail("there is no IPv6 address before the '%'"))?;
        let port = port.map_or(Ok(0), str::parse);
        let port = port.map_err(|_| fail("the port is not a number from 0 to 65535"))?;
        let scope = scope.parse().ok().or_else(|| interface_index(scope));
        let scope = scope.ok_or(fail(
            "there is no network interface of the name after the '%'",
        ))?;
        return Ok(SocketAddrV6::new(ip, port, 0, scope).into());
    }
    // "[::1]": an address in brackets, without a port.
    if text.starts_with('[') && text.ends_with(']') {
        return format!("{text}:0")
            .parse::<SocketAddr>()
            .map_err(|_| fail("the text in the brackets is not an IPv6 address"));
    }
    Err(match text.rsplit_once(':') {
        None => fail("write it as 10.0.0.1:7471 or [::1]:7471"),
        Some((_, port)) if port.parse::<u16>().is_err() => {
            fail("the port is not a number from 0 to 65535")
        }
        Some(_) => fail("write it in numbers, as 10.0.0.1:7471 or [::1]:7471"),
    })
}

/// The address, scope and port of `[ADDRESS%SCOPE]:PORT`, `[ADDRESS%SCOPE]` and `ADDRESS%SCOPE`.
fn scoped(text: &str) -> Option<(&str, &str, Option<&str>)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => match rest.split_once(']')? {
            (host, "") => (host, None),
            (host, port) => (host, Some(port.strip_prefix(':')?)),
        },
        None => (text, None),
    };
    let (ip, scope) = host.split_once('%')?;
    Some((ip, scope, port))
}

/// The index of a network interface of this network namespace, which is the scope of a link-local
/// address; `None` if there is no interface of this name.
pub fn interface_index(name: &str) -> Option<u32> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};

    // Any socket will do.
    let socket = socket_with(
        AddressFamily::UNIX,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    );
    netdevice::name_to_index(socket.ok()?, name).ok()
}

/// The same address with another port; the scope of a link-local address stays.
pub(crate) fn with_port(mut addr: SocketAddr, port: u16) -> SocketAddr {
    addr.set_port(port);
    addr
}

impl From<SocketAddr> for abi::kfabric_sockaddr {
    fn from(addr: SocketAddr) -> Self {
        match addr {
            SocketAddr::V4(v4) => Self {
                family: AF_INET,
                port: v4.port().to_be(),
                v4: u32::from_ne_bytes(v4.ip().octets()),
                ..Self::default()
            },
            SocketAddr::V6(v6) => Self {
                family: AF_INET6,
                port: v6.port().to_be(),
                v4: v6.flowinfo(),
                v6: v6.ip().octets(),
                scope_id: v6.scope_id(),
                qpn: 0,
            },
        }
    }
}

/// "No address" is all zeros.
impl From<Option<SocketAddr>> for abi::kfabric_sockaddr {
    fn from(addr: Option<SocketAddr>) -> Self {
        addr.map_or_else(Self::default, Self::from)
    }
}

impl abi::kfabric_sockaddr {
    /// The address in the standard library's form; `None` if the family is
    /// neither IPv4 nor IPv6, as for "no address".
    pub fn to_std(&self) -> Option<SocketAddr> {
        let port = u16::from_be(self.port);
        match self.family {
            AF_INET => {
                let ip = Ipv4Addr::from(self.v4.to_ne_bytes());
                Some(SocketAddrV4::new(ip, port).into())
            }
            AF_INET6 => {
                let ip = Ipv6Addr::from(self.v6);
                let flow = self.v4;
                Some(SocketAddrV6::new(ip, port, flow, self.scope_id).into())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parses_with_and_without_port() {
        for (text, want) in [
            ("10.0.0.1:7471", "10.0.0.1:7471"),
            ("10.0.0.1", "10.0.0.1:0"),
            ("[::1]:7471", "[::1]:7471"),
            ("[::1]", "[::1]:0"),
            ("::1", "[::1]:0"),
            ("fe80::1", "[fe80::1]:0"),
            ("[fe80::1%3]:9", "[fe80::1%3]:9"),
            ("[fe80::1%3]", "[fe80::1%3]:0"),
            ("fe80::1%3", "[fe80::1%3]:0"),
            // The loopback interface is always the first.
            ("[fe80::1%lo]:9", "[fe80::1%1]:9"),
            ("[fe80::1%lo]", "[fe80::1%1]:0"),
            ("fe80::1%lo", "[fe80::1%1]:0"),
        ] {
            assert_eq!(
                parse_address(text).unwrap(),
                want.parse().unwrap(),
                "{text}"
            );
        }
    }

    #[test]
    fn malformed_addresses_are_refused_with_a_reason() {
        for (text, why) in [
            ("", "10.0.0.1:7471"),
            ("localhost", "10.0.0.1:7471"),
            ("localhost:1", "numbers"),
            ("10.0.0.1:", "port"),
            ("10.0.0.1:65536", "port"),
            ("10.0.0.1:-1", "port"),
            ("10.0.0.256:1", "numbers"),
            ("[10.0.0.1]", "IPv6"),
            ("[::1", "numbers"),
            ("[]", "IPv6"),
            ("[fe80::1%nosuchdev0]:1", "interface"),
            ("fe80::1%", "interface"),
            ("10.0.0.1%lo", "IPv6"),
            ("[fe80::1%lo]:x", "port"),
            ("[fe80::1%lo]7", "port"),
        ] {
            let error = parse_address(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
            assert!(error.contains(&format!("{text:?}")), "{text}: {error}");
        }
    }

    #[test]
    fn has_the_layout_of_a_socket_address() {
        let v4 = abi::kfabric_sockaddr::from("1.2.3.4:258".parse::<SocketAddr>().unwrap());
        assert_eq!(v4.port.to_ne_bytes(), [1, 2]);
        assert_eq!(v4.v4.to_ne_bytes(), [1, 2, 3, 4]);
        assert_eq!(v4.v6, [0; 16]);
        let v6 = abi::kfabric_sockaddr::from("[::5%7]:1".parse::<SocketAddr>().unwrap());
        assert_eq!((v6.v6[15], v6.scope_id, v6.v4), (5, 7, 0));
    }

    #[test]
    fn another_port_keeps_the_scope() {
        let addr: SocketAddr = "[fe80::1%7]:9".parse().unwrap();
        assert_eq!(with_port(addr, 0), "[fe80::1%7]:0".parse().unwrap());
    }

    #[test]
    fn no_address() {
        assert_eq!(abi::kfabric_sockaddr::from(None), Default::default());
        assert_eq!(abi::kfabric_sockaddr::default().to_std(), None);
    }

    #[test]
    fn fi_addr() {
        assert_eq!(FiAddr::NOTAVAIL.known(), None);
        assert_eq!(FiAddr(3).known(), Some(FiAddr(3)));
        assert_eq!(
            format!("{:?} {:?}", FiAddr(3), FiAddr::UNSPEC),
            "FiAddr(3) FiAddr(NOTAVAIL)"
        );
    }

    proptest! {
        #[test]
        fn ipv4_addresses_survive_conversion(ip: [u8; 4], port: u16) {
            let addr = SocketAddr::from((ip, port));
            prop_assert_eq!(abi::kfabric_sockaddr::from(addr).to_std(), Some(addr));
            prop_assert_eq!(parse_address(&addr.to_string()), Ok(addr));
        }

        #[test]
        fn ipv6_addresses_survive_conversion(ip: [u8; 16], port: u16, flow in 0u32..1 << 20, scope: u32) {
            let addr: SocketAddr = SocketAddrV6::new(ip.into(), port, flow, scope).into();
            prop_assert_eq!(abi::kfabric_sockaddr::from(addr).to_std(), Some(addr));
        }

        #[test]
        fn never_panics(text: String) {
            let _ = parse_address(&text);
        }
    }
}
