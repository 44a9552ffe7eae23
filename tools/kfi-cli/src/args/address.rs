// SPDX-License-Identifier: GPL-2.0
//! Addresses and host names on the command line.

use std::{
    net::{SocketAddr, ToSocketAddrs},
    str::FromStr,
};

use crate::error::{Error, Result};

/// An address or the name of a host, with an optional port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostPort {
    host: Host,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Host {
    /// Numeric; its port does not matter.
    Addr(SocketAddr),
    /// Numeric, with the name of an interface, which need not exist.
    Scoped(String),
    Name(String),
}

impl HostPort {
    /// The address, with `port` if none was given. Looks up the name of a host: its first IPv4
    /// address, or its first address if it has none. Servers listen at IPv4 addresses by default.
    pub(crate) fn or_port(&self, port: u16) -> Result<SocketAddr> {
        let port = self.port.unwrap_or(port);
        match &self.host {
            Host::Addr(addr) => {
                let mut addr = *addr;
                addr.set_port(port);
                Ok(addr)
            }
            Host::Scoped(text) => {
                let mut addr = kfi::parse_address(text).map_err(|error| {
                    Error::with_help(error.to_string(), "ip link lists the network interfaces")
                })?;
                addr.set_port(port);
                Ok(addr)
            }
            Host::Name(name) => look_up(name, port),
        }
    }
}

fn look_up(name: &str, port: u16) -> Result<SocketAddr> {
    let help = "getent ahosts NAME shows the addresses of a host; an address does without a name";
    let all: Vec<SocketAddr> = (name, port)
        .to_socket_addrs()
        .map_err(|error| Error::with_help(format!("cannot find the host {name:?}: {error}"), help))?
        .collect();
    let first = all.iter().find(|addr| addr.is_ipv4()).or(all.first());
    first
        .copied()
        .ok_or_else(|| Error::with_help(format!("the host {name:?} has no address"), help))
}

/// Whether the text can be the name of a host, and is not meant as an address.
fn is_name(text: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    let labels: Vec<&str> = text.strip_suffix('.').unwrap_or(text).split('.').collect();
    let ends_as_address = |last: &&str| last.bytes().all(|byte| byte.is_ascii_digit());
    text.len() <= 253
        && labels.iter().copied().all(label)
        && !labels.last().is_some_and(ends_as_address)
}

impl FromStr for HostPort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // IPv6 addresses have more than one colon, and brackets before a port.
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, Some(port)),
            _ => (text, None),
        };
        let named = is_name(host);
        let port = match port.map(str::parse) {
            None => None,
            Some(Ok(port)) => Some(port),
            Some(Err(_)) if named => {
                return Err("the port is not a number from 0 to 65535".to_owned());
            }
            Some(Err(_)) => None,
        };
        let addr = |text: &str| kfi::parse_address(text).map_err(|error| error.to_string());
        let host = match text.split_once('%') {
            Some((ip, rest)) => {
                let end = rest.find(']').unwrap_or(rest.len());
                // Any interface, to find what else is wrong.
                addr(&format!("{ip}%1{}", &rest[end..]))?;
                if end == 0 {
                    return Err("there is no interface after the '%'".to_owned());
                }
                Host::Scoped(text.to_owned())
            }
            None if named => Host::Name(host.to_owned()),
            None => Host::Addr(addr(text)?),
        };
        Ok(Self { host, port })
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
            ("fe80::1%lo", "[fe80::1%1]:7471"),
            ("[fe80::1%lo]:80", "[fe80::1%1]:80"),
        ] {
            let address: HostPort = text.parse().unwrap();
            assert_eq!(
                address.or_port(PORT).unwrap(),
                addr.parse().unwrap(),
                "{text}"
            );
        }
    }

    #[test]
    fn hosts_have_names() {
        let host = |text: &str| text.parse::<HostPort>().unwrap();
        let name = |name: &str, port| HostPort {
            host: Host::Name(name.to_owned()),
            port,
        };
        assert_eq!(host("node-7.cluster"), name("node-7.cluster", None));
        assert_eq!(host("here:1"), name("here", Some(1)));
        assert_eq!(host("example.org.:80"), name("example.org.", Some(80)));
        // Every host has this one.
        assert_eq!(
            host("localhost:80").or_port(PORT).unwrap(),
            "127.0.0.1:80".parse().unwrap()
        );
        for missing in ["no-such-host.invalid", "fe80::1%nosuchdev0"] {
            let error = host(missing).or_port(PORT).unwrap_err();
            assert!(error.to_string().contains(missing), "{error}");
        }
    }

    #[test]
    fn malformed_places_are_usage_errors() {
        for text in [
            "",
            "here:port",
            "here:65536",
            ":1",
            "a b",
            "a..b",
            "10.0.0.256",
            "10.0.0.1:x",
            "[::1]:x",
            "[here]:1",
            "fe80::1%",
            "[fe80::1%lo]:x",
            "10.0.0.1%lo",
            "/dev/kfabric",
        ] {
            assert!(text.parse::<HostPort>().is_err(), "{text}");
        }
    }
}
