// SPDX-License-Identifier: GPL-2.0
//! `kfi link`: the software device on network interfaces.

use kfi::{Device, Link};
use serde::Serialize;
use std::net::{IpAddr, SocketAddr};

use crate::{
    args::LinkCommand,
    error::{Doing, Error, Result},
    out::Out,
    table::Table,
    text,
};

/// A link in JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct LinkJson {
    pub(crate) name: String,
    pub(crate) netdev: String,
    pub(crate) state: &'static str,
    pub(crate) mtu: u32,
    pub(crate) ipv4: Option<IpAddr>,
    pub(crate) ipv6: Option<IpAddr>,
    pub(crate) domains: u32,
    pub(crate) endpoints: u32,
    pub(crate) tx_ops: u64,
    pub(crate) tx_bytes: u64,
    pub(crate) rx_ops: u64,
    pub(crate) rx_bytes: u64,
}

impl From<&Link> for LinkJson {
    fn from(link: &Link) -> Self {
        Self {
            name: link.name.clone(),
            netdev: link.netdev.clone(),
            state: link.state.name(),
            mtu: link.mtu,
            ipv4: link.ipv4.map(|addr| addr.ip()),
            ipv6: link.ipv6.map(|addr| addr.ip()),
            domains: link.domains,
            endpoints: link.endpoints,
            tx_ops: link.tx_ops,
            tx_bytes: link.tx_bytes,
            rx_ops: link.rx_ops,
            rx_bytes: link.rx_bytes,
        }
    }
}

impl LinkJson {
    /// Addresses, or `-`.
    pub(crate) fn addresses(&self) -> String {
        let all: Vec<String> = [self.ipv4, self.ipv6]
            .iter()
            .flatten()
            .map(IpAddr::to_string)
            .collect();
        if all.is_empty() {
            "-".to_owned()
        } else {
            all.join(", ")
        }
    }
}

/// Opens the device.
pub(crate) fn open() -> Result<Device> {
    Device::open().doing(format!("open {}", Device::path().display()))
}

/// All links of this network namespace.
pub(crate) fn all(device: &Device) -> Result<Vec<Link>> {
    device
        .links()
        .collect::<kfi::Result<_>>()
        .doing("list links")
}

/// The link of that name; else the one with this address; else the first that
/// is up.
pub(crate) fn choose(
    device: &Device,
    name: Option<&str>,
    addr: Option<SocketAddr>,
) -> Result<Link> {
    let links = all(device)?;
    if let Some(name) = name {
        return links
            .into_iter()
            .find(|link| link.name == name)
            .ok_or_else(|| no_link(&format!("there is no link {name:?}")));
    }
    let has = |link: &&Link| {
        let ips = [link.ipv4, link.ipv6];
        addr.is_some_and(|addr| ips.iter().flatten().any(|ip| ip.ip() == addr.ip()))
    };
    let up = |link: &&Link| link.state == kfi::LinkState::Up && link.addr().is_some();
    let found = links.iter().find(has).or_else(|| links.iter().find(up));
    found.cloned().ok_or_else(|| {
        no_link(if links.is_empty() {
            "there is no link"
        } else {
            "no link is up and has an address"
        })
    })
}

fn no_link(what: &str) -> Error {
    Error::said(
        what,
        "kfi link show lists links, kfi link add roce0 netdev lo makes one, \
         ip link set INTERFACE up sets it up",
    )
}

/// A table of links, with what went through them.
pub(crate) fn table(links: &[LinkJson], stats: bool) -> Table {
    let columns: &[&str] = &[
        "LINK",
        "NETDEV",
        "STATE",
        ">MTU",
        "ADDRESS",
        ">DOMAINS",
        ">ENDPOINTS",
        ">TX-OPS",
        ">TX-BYTES",
        ">RX-OPS",
        ">RX-BYTES",
    ];
    let shown = if stats { columns.len() } else { 7 };
    let mut table = Table::new(&columns[..shown]);
    for link in links {
        table.cells(
            &[
                &link.name as &dyn std::fmt::Display,
                &link.netdev,
                &link.state,
                &link.mtu,
                &link.addresses(),
                &link.domains,
                &link.endpoints,
                &link.tx_ops,
                &link.tx_bytes,
                &link.rx_ops,
                &link.rx_bytes,
            ][..shown],
        );
    }
    table
}

/// Does what `kfi link` was asked for.
pub(crate) fn run(command: &LinkCommand, out: &mut Out) -> Result<()> {
    let device = open()?;
    match command {
        LinkCommand::Add { name, netdev, .. } => {
            device
                .link_add(name, netdev)
                .doing(format!("add link {name} on {netdev}"))?;
            show(&device, Some(name), false, out)
        }
        LinkCommand::Del { name } => {
            device.link_del(name).doing(format!("remove link {name}"))?;
            if out.is_json() {
                return out.document(&serde_json::json!({ "removed": name }));
            }
            out.line(format!("link {name} removed"))
        }
        LinkCommand::Show { name, stats } => show(&device, name.as_deref(), *stats, out),
    }
}

fn show(device: &Device, name: Option<&str>, stats: bool, out: &mut Out) -> Result<()> {
    let links: Vec<LinkJson> = match name {
        Some(_) => vec![LinkJson::from(&choose(device, name, None)?)],
        None => all(device)?.iter().map(LinkJson::from).collect(),
    };
    if out.is_json() {
        return out.document(&serde_json::json!({ "links": links }));
    }
    if links.is_empty() {
        return out.line(NO_LINKS);
    }
    out.table(&table(&links, stats))
}

/// Said where there are no links.
pub(crate) const NO_LINKS: &str = "no links; kfi link add roce0 netdev lo makes one";

/// An address of a link for a person: with the link's name.
pub(crate) fn place(addr: SocketAddr, link: &str) -> String {
    format!("{} on {link}", text::address(Some(addr)))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn example() -> LinkJson {
        LinkJson {
            name: "roce0".to_owned(),
            netdev: "lo".to_owned(),
            state: "up",
            mtu: 65536,
            ipv4: "127.0.0.1".parse().ok(),
            ipv6: "::1".parse().ok(),
            domains: 1,
            endpoints: 2,
            tx_ops: 10,
            tx_bytes: 80,
            rx_ops: 11,
            rx_bytes: 88,
        }
    }

    #[test]
    fn shape_of_json() {
        assert_eq!(
            serde_json::to_string(&example()).unwrap(),
            r#"{"name":"roce0","netdev":"lo","state":"up","mtu":65536,"ipv4":"127.0.0.1","#
                .to_owned()
                + r#""ipv6":"::1","domains":1,"endpoints":2,"tx_ops":10,"tx_bytes":80,"#
                + r#""rx_ops":11,"rx_bytes":88}"#
        );
    }

    #[test]
    fn as_a_table() {
        assert_eq!(
            table(&[example()], false).to_string(),
            "LINK   NETDEV  STATE    MTU  ADDRESS         DOMAINS  ENDPOINTS\n\
             roce0  lo      up     65536  127.0.0.1, ::1        1          2\n"
        );
        let with_stats = table(&[example()], true).to_string();
        assert!(with_stats.contains("TX-BYTES"), "{with_stats}");
        assert!(with_stats.trim_end().ends_with("88"), "{with_stats}");
    }
}
