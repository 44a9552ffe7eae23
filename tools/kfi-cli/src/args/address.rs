// SPDX-License-Identifier: GPL-2.0
//! Addresses on the command line.

use std::{net::SocketAddr, str::FromStr};

/// An address with an optional port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostPort {
    addr: SocketAddr,
    has_port: bool,
}

impl HostPort {
    /// The same with `port` if it has none.
    pub(crate) fn or_port(self, port: u16) -> SocketAddr {
        let mut addr = self.addr;
        if !self.has_port {
            addr.set_port(port);
        }
        addr
    }
}

impl FromStr for HostPort {
    type Err = kfi::AddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self {
            addr: kfi::parse_address(text)?,
            has_port: text.parse::<SocketAddr>().is_ok(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::PORT;

    #[test]
    fn a_missing_port_gets_the_default() {
        for (text, addr) in [
            ("10.0.0.1", "10.0.0.1:7471"),
            ("::1", "[::1]:7471"),
            ("[::1]", "[::1]:7471"),
            ("[::1]:80", "[::1]:80"),
            ("10.0.0.1:0", "10.0.0.1:0"),
            ("[fe80::1%3]", "[fe80::1%3]:7471"),
        ] {
            let address: HostPort = text.parse().unwrap();
            assert_eq!(address.or_port(PORT), addr.parse().unwrap(), "{text}");
        }
        assert!("here:1".parse::<HostPort>().is_err());
    }
}
