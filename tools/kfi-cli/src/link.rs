// SPDX-License-Identifier: GPL-2.0
//! `kfi link`: adds, removes and shows the software device on network interfaces.

use kfi::{Device, Link, Packets, PacketsOf};
use serde::{Serialize, Serializer};
use std::net::{IpAddr, SocketAddr};

use crate::{
    args::{HostPort, LinkCommand},
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
    #[serde(
        serialize_with = "packets_json",
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) packets: Option<Packets>,
}

/// Packet statistics in JSON: all of them, by name.
pub(crate) fn packets_json<S: Serializer>(
    packets: &Option<Packets>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(
        packets
            .iter()
            .flat_map(|packets| packets.iter())
            .map(|(counter, value)| (counter.name(), value)),
    )
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
            packets: None,
        }
    }
}

impl LinkJson {
    /// A link with its packet statistics.
    pub(crate) fn with_packets(device: &Device, link: &Link) -> Result<Self> {
        let packets = match device.packets(PacketsOf::Link(link.id)) {
            // The link was removed meanwhile.
            Err(error) if error.is(kfi::Errno::ENOENT) => Packets::default(),
            packets => packets.doing("read the packet statistics")?,
        };
        Ok(Self {
            packets: Some(packets),
            ..Self::from(link)
        })
    }

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
    Error::with_help(
        what,
        "kfi link show lists links, kfi link add roce0 netdev lo makes one, \
         ip link set INTERFACE up sets it up",
    )
}

/// A table of links, with their operations and bytes.
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

/// Runs `kfi link`.
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
    let links = match name {
        Some(_) => vec![choose(device, name, None)?],
        None => all(device)?,
    };
    let links: Vec<LinkJson> = links
        .iter()
        .map(|link| match stats {
            true => LinkJson::with_packets(device, link),
            false => Ok(LinkJson::from(link)),
        })
        .collect::<Result<_>>()?;
    if out.is_json() {
        return out.document(&serde_json::json!({ "links": links }));
    }
    if links.is_empty() {
        return out.line(NO_LINKS);
    }
    out.table(&table(&links, stats))?;
    let packets = packets_table(&links);
    if let Some(packets) = packets {
        out.line("")?;
        out.table(&packets)?;
    }
    Ok(())
}

/// A table of packet statistics, if a counter is not 0.
fn packets_table(links: &[LinkJson]) -> Option<Table> {
    let mut table = Table::new(&["LINK", "PACKETS", ">COUNT"]);
    let mut any = false;
    for link in links {
        let packets = link.packets.iter().flat_map(Packets::iter);
        for (counter, value) in packets.filter(|(_, value)| *value > 0) {
            table.cells(&[&link.name, &counter.name(), &value]);
            any = true;
        }
    }
    any.then_some(table)
}

/// The text if there are no links.
pub(crate) const NO_LINKS: &str = "no links; kfi link add roce0 netdev lo makes one";

/// An address of a link as text, with the link's name.
pub(crate) fn place(addr: SocketAddr, link: &str) -> String {
    format!("{} on {link}", text::address(Some(addr)))
}

/// The address at which a server listens on a link: the one that was given, else an address of the
/// link, with `port` if none was given.
pub(crate) fn server_addr(link: &Link, bind: Option<HostPort>, port: u16) -> Result<SocketAddr> {
    if let Some(place) = bind {
        return Ok(place.or_port(port));
    }
    let own = link.addr().ok_or_else(|| {
        Error::with_help(
            format!("link {} has no address", link.name),
            format!("ip address add ADDRESS dev {} gives it one", link.netdev),
        )
    })?;
    Ok(SocketAddr::new(own.ip(), port))
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
            packets: None,
        }
    }

    #[test]
    fn json_has_the_documented_keys() {
        assert_eq!(
            serde_json::to_string(&example()).unwrap(),
            r#"{"name":"roce0","netdev":"lo","state":"up","mtu":65536,"ipv4":"127.0.0.1","#
                .to_owned()
                + r#""ipv6":"::1","domains":1,"endpoints":2,"tx_ops":10,"tx_bytes":80,"#
                + r#""rx_ops":11,"rx_bytes":88}"#
        );
    }

    #[test]
    fn json_has_all_packet_statistics_and_the_table_no_zeros() {
        let link = LinkJson {
            packets: Some(Packets::default()),
            ..example()
        };
        let json = serde_json::to_value(&link).unwrap();
        assert_eq!(json["packets"]["rx_packets"], 0);
        assert_eq!(
            json["packets"].as_object().unwrap().len(),
            kfi::PacketCounter::ALL.len()
        );
        // The table leaves out zeros.
        assert!(packets_table(&[link]).is_none());
    }

    #[test]
    fn table_shows_every_link() {
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
