// SPDX-License-Identifier: GPL-2.0
//! `kfi link`: adds, removes and shows the software device on network interfaces.

use kfi::{Device, Hints, Link, LinkState, Packets, PacketsOf};
use serde::{Serialize, Serializer};
use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
};

use crate::{
    args::LinkCommand,
    error::{Doing, Error, Result},
    holders,
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
    /// A link-local address has the interface behind it, as the command line takes it.
    pub(crate) ipv6: Option<String>,
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
            ipv6: link.ipv6.map(|addr| match scope_of_link_local(addr) {
                Some(_) => format!("{}%{}", addr.ip(), link.netdev),
                None => addr.ip().to_string(),
            }),
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
        let ipv4 = self.ipv4.map(|ip| ip.to_string());
        let all: Vec<&str> = { [&ipv4, &self.ipv6].into_iter().flatten() }
            .map(String::as_str)
            .collect();
        match all.is_empty() {
            true => "-".to_owned(),
            false => all.join(", "),
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

/// The link of that name; else the one that has the own address; else the one by which the routes
/// lead to the peer; else the first that is up, one on `lo` only if there is no other.
pub(crate) fn choose(
    device: &Device,
    name: Option<&str>,
    own: Option<SocketAddr>,
    peer: Option<SocketAddr>,
) -> Result<Link> {
    let mut links = all(device)?;
    if let Some(name) = name {
        return named(&links, name).ok_or_else(|| no_link(&format!("there is no link {name:?}")));
    }
    links.retain(|link| link.state != LinkState::Gone);
    if links.is_empty() {
        return Err(no_link("there is no link"));
    }
    let specified = |addr: &SocketAddr| !addr.ip().is_unspecified();
    if let Some(own) = own.filter(specified) {
        return with_address(device, &links, own)?.ok_or_else(|| {
            no_link(&format!(
                "no link that is up has the address {}",
                text::host(own)
            ))
        });
    }
    if let Some(peer) = peer.filter(specified) {
        return towards(device, &links, peer);
    }
    Link::first(&links)
        .cloned()
        .ok_or_else(|| no_link("no link is up and has an address"))
}

/// The link `name`: the one that has not gone, else the last one that has.
fn named(links: &[Link], name: &str) -> Option<Link> {
    let mut named = links.iter().filter(|link| link.name == name);
    let present = named.clone().find(|link| link.state != LinkState::Gone);
    present.or_else(|| named.next_back()).cloned()
}

/// The link whose interface has this address, be it the first or another one. Only the module
/// knows all addresses at which a link has endpoints.
fn with_address(device: &Device, links: &[Link], addr: SocketAddr) -> Result<Option<Link>> {
    for link in links {
        if has_address(device, link, on(link, addr))? {
            return Ok(Some(link.clone()));
        }
    }
    Ok(None)
}

/// Whether endpoints on a link can have this address.
fn has_address(device: &Device, link: &Link, addr: SocketAddr) -> Result<bool> {
    let addr = with_port(addr, 0);
    let hints = Hints::new().domain_name(&link.name).src_addr(addr);
    match device.getinfo(&hints) {
        Ok(infos) => Ok(!infos.is_empty()),
        Err(error) if error.is(kfi::Errno::ENODATA) => Ok(false),
        Err(error) => Err(error).doing(format!("look for the address {}", text::host(addr))),
    }
}

/// The link by which the routes lead to a peer.
fn towards(device: &Device, links: &[Link], peer: SocketAddr) -> Result<Link> {
    if let Some(scope) = scope_of_link_local(peer) {
        let found = match scope {
            // One link besides that on lo leaves no choice.
            0 => match links
                .iter()
                .filter(|link| !link.is_loopback())
                .collect::<Vec<_>>()[..]
            {
                [only] => Some(only),
                _ => None,
            },
            scope => links.iter().find(|link| index(link) == scope),
        };
        return found.cloned().ok_or_else(|| {
            Error::with_help(
                format!(
                    "no link is known for the link-local address {}",
                    text::host(peer)
                ),
                "write the address with its interface, as fe80::1%eth0, or choose the link with \
                 --link; kfi link show lists links",
            )
        });
    }
    let source = source(peer).map_err(|error| {
        Error::with_help(
            format!("there is no route to {}: {error}", text::host(peer)),
            format!("ip route get {} shows what this host does", peer.ip()),
        )
    })?;
    with_address(device, links, source)?.ok_or_else(|| {
        Error::with_help(
            format!(
                "the routes lead to {} from {}, which no link that is up has",
                text::host(peer),
                text::host(source)
            ),
            format!(
                "kfi link add NAME netdev INTERFACE makes a link on the interface that \
                 ip route get {} names; --link and --bind choose another",
                peer.ip()
            ),
        )
    })
}

/// The address from which the routes lead to a peer. Nothing is sent.
fn source(peer: SocketAddr) -> io::Result<SocketAddr> {
    /// The UDP port of RoCEv2; a rule of routes may look at it.
    const ROCE: u16 = 4791;
    let any: IpAddr = match peer {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(with_port(peer, ROCE))?;
    socket.local_addr()
}

/// The own address of a client on `link`: the one that was given, else the one from which the
/// routes lead to the peer, else another one of the same family.
pub(crate) fn client_addr(
    device: &Device,
    link: &Link,
    own: Option<SocketAddr>,
    peer: SocketAddr,
) -> Result<SocketAddr> {
    if let Some(own) = own.filter(|own| !own.ip().is_unspecified()) {
        return Ok(on(link, own));
    }
    let port = own.map_or(0, |own| own.port());
    if let Ok(source) = source(peer)
        && has_address(device, link, source)?
    {
        return Ok(with_port(source, port));
    }
    let other = match peer.is_ipv4() {
        true => link.ipv4,
        false => link.ipv6,
    };
    let other = other.ok_or_else(|| {
        Error::with_help(
            format!(
                "link {} has no address of the family of {}",
                link.name,
                text::host(peer)
            ),
            "give its interface one, or choose another link with --link",
        )
    })?;
    Ok(with_port(other, port))
}

/// The index of a link's interface, which is the scope of its link-local addresses; 0 if it has
/// gone.
fn index(link: &Link) -> u32 {
    kfi::interface_index(&link.netdev).unwrap_or(0)
}

/// The scope of a link-local address; `None` for others.
fn scope_of_link_local(addr: SocketAddr) -> Option<u32> {
    match addr {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => Some(v6.scope_id()),
        _ => None,
    }
}

/// The same address with another port; the scope of a link-local address stays.
pub(crate) fn with_port(mut addr: SocketAddr, port: u16) -> SocketAddr {
    addr.set_port(port);
    addr
}

/// The address with this scope, if it is a link-local one.
pub(crate) fn with_scope(addr: SocketAddr, scope: u32) -> SocketAddr {
    match addr {
        SocketAddr::V6(mut v6) if v6.ip().is_unicast_link_local() => {
            v6.set_scope_id(scope);
            v6.into()
        }
        other => other,
    }
}

/// An address of the command line, seen from a link: a link-local one without a scope is on its
/// interface.
pub(crate) fn on(link: &Link, addr: SocketAddr) -> SocketAddr {
    match scope_of_link_local(addr) {
        Some(0) => with_scope(addr, index(link)),
        _ => addr,
    }
}

/// An address that a peer has sent: the scope of a link-local one is the number of an interface of
/// the peer, and here it is the link's.
pub(crate) fn from_peer(link: &Link, addr: SocketAddr) -> SocketAddr {
    match scope_of_link_local(addr) {
        Some(_) => with_scope(addr, index(link)),
        None => addr,
    }
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
pub(crate) fn run(command: Option<&LinkCommand>, out: &mut Out) -> Result<()> {
    let device = open()?;
    let Some(command) = command else {
        return show(&device, None, false, out);
    };
    match command {
        LinkCommand::Add { name, netdev, .. } => {
            device
                .link_add(name, netdev)
                .doing(format!("add link {name} on {netdev}"))?;
            show(&device, Some(name), false, out)
        }
        LinkCommand::Del { name } => {
            let doing = format!("remove link {name}");
            match device.link_del(name) {
                Err(error) if error.is(kfi::Errno::EBUSY) => {
                    return Err(Error::with_errno(
                        error,
                        doing,
                        holders::help(&device, name),
                    ));
                }
                removed => removed.doing(doing)?,
            }
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
        Some(_) => vec![choose(device, name, None, None)?],
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
/// link, with `port`.
pub(crate) fn server_addr(link: &Link, own: Option<SocketAddr>, port: u16) -> Result<SocketAddr> {
    let found = match own {
        Some(own) if !own.ip().is_unspecified() => return Ok(on(link, own)),
        Some(own) if own.is_ipv4() => link.ipv4,
        Some(_) => link.ipv6,
        None => link.addr(),
    };
    let found = found.ok_or_else(|| {
        Error::with_help(
            format!("link {} has no such address", link.name),
            format!("ip address add ADDRESS dev {} gives it one", link.netdev),
        )
    })?;
    Ok(with_port(found, own.map_or(port, |own| own.port())))
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
            ipv6: Some("::1".to_owned()),
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
    fn addresses_keep_and_change_their_scope() {
        let addr = |text: &str| text.parse::<SocketAddr>().unwrap();
        let global = addr("[2001:db8::1]:7");
        let local = addr("[fe80::1%9]:7");
        assert_eq!(with_port(local, 0), addr("[fe80::1%9]:0"));
        assert_eq!(with_scope(local, 3), addr("[fe80::1%3]:7"));
        assert_eq!(with_scope(global, 3), global);
        assert_eq!(with_scope(addr("10.0.0.1:7"), 3), addr("10.0.0.1:7"));
        assert_eq!(scope_of_link_local(local), Some(9));
        assert_eq!(scope_of_link_local(global), None);
    }

    /// 127.0.0.1 is reached from itself on every host.
    #[test]
    fn routes_have_a_source() {
        let loopback: SocketAddr = "127.0.0.1:7471".parse().unwrap();
        assert_eq!(source(loopback).unwrap().ip(), loopback.ip());
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
