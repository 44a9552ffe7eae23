// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_net`: links, as far as a kernel without programs can test them.
//!
//! All tests use the loopback interface of the first network namespace, which must be up (127.0.0.1
//! and, with IPv6, ::1). Tests run one after the other; each begins without a link there and leaves
//! none. Guest scenarios test several interfaces, namespaces and users.

use super::{
    add,
    del,
    find,
    kunit_links::NoLinks,
    next,
    table::NetdevHandler,
    IfName,
    Link,
    LinkName,
    LinkState,
    NetNs,
    NetNsId,
    Path,
    Reach, //
};
use core::net::{
    IpAddr,
    Ipv4Addr,
    Ipv6Addr, //
};

use crate::{
    kunit::helpers::{
        eventually,
        raw_name,
        thread,
        Count,
        MS, //
    },
    shim::{
        net::{
            Netdev,
            NetdevEvent,
            NetdevEvents,
            Rtnl, //
        },
        sched::now_ns, //
    }, //
};
use kernel::{
    prelude::*,
    sync::{
        rcu,
        Arc, //
    }, //
};
use kfi_core::addr::SockAddr;

fn v4(ip: [u8; 4], port: u16) -> SockAddr {
    SockAddr::v4(ip.into(), port)
}

fn v6(ip: Ipv6Addr) -> Option<SockAddr> {
    SockAddr::v6(ip, 0, 0).ok()
}

fn link_name(name: &[u8]) -> Result<LinkName> {
    LinkName::new(&raw_name(name))
}

/// Adds the link `name` on the loopback interface.
fn add_lo(name: &[u8]) -> Result<Arc<Link>> {
    add(
        &NetNs::current()?,
        link_name(name)?,
        IfName::new(&raw_name(b"lo"))?,
    )
}

fn del_named(name: &[u8]) -> Result {
    del(&NetNs::current()?, &link_name(name)?)
}

/// Reports an event of the interface to the table of links.
fn report(event: NetdevEvent) {
    let _rtnl = Rtnl::lock();
    NetdevHandler::event(event);
}

/// Returns the description of the interface of `link` that the kernel would give.
fn netdev(link: &Link, up: bool, mtu: u32, name: &[u8]) -> Netdev {
    Netdev {
        id: link.netdev(),
        mtu,
        vrf: 0,
        up,
        name: raw_name(name),
    }
}

/// The longest time of the RCU reader in ns: ample for a function that does not wait.
const LOOK: u64 = 10_000 * MS;

/// Runs `act` while another thread is in an RCU read-side section. Returns whether `act` returned
/// before the end of that section, so that it did not wait for a grace period.
fn waits_for_no_reader(act: impl FnOnce()) -> Result<bool> {
    let (inside, done, in_time) = (Count::new()?, Count::new()?, Count::new()?);
    let reader = {
        let (inside, done, in_time) = (inside.clone(), done.clone(), in_time.clone());
        thread(move || {
            let _rcu = rcu::read_lock();
            inside.add(1);
            let end = now_ns() + LOOK;
            while done.get() == 0 && now_ns() < end {
                core::hint::spin_loop();
            }
            in_time.add(done.get());
        })?
    };
    let begun = eventually(|| inside.get() == 1);
    act();
    done.add(1);
    reader.join();
    Ok(begun && in_time.get() == 1)
}

#[kunit_tests(kfabric_net)]
mod tests {
    use super::*;

    #[test]
    fn interface_names_are_checked() -> Result {
        ensure!(IfName::new(&raw_name(b"veth-0.1@x"))
            .is_ok_and(|n| n.to_array() == raw_name(b"veth-0.1@x")));
        ensure!(IfName::new(&raw_name(b"")) == Err(EINVAL));
        ensure!(IfName::new(&raw_name(b"1234567890123456")) == Err(EINVAL));
        ensure!(IfName::new(&raw_name(b"a b")) == Err(EINVAL));
        ensure!(IfName::new(&raw_name(b"a/b")) == Err(EINVAL));
        ensure!(IfName::new(&raw_name(b"a:b")) == Err(EINVAL));
        ensure!(IfName::new(&raw_name(b"a\x0bb")) == Err(EINVAL));
        Ok(())
    }

    #[test]
    fn the_current_namespace_is_known() -> Result {
        let here = NetNs::current()?;
        ensure!(here.id() == NetNsId::current()?);
        ensure!(here.capable_net_admin());
        Ok(())
    }

    #[test]
    fn links_are_added_and_removed() -> Result {
        let _no_links = NoLinks;
        let here = NetNsId::current()?;
        ensure!(next(here, 0).is_err_and(|e| e == ENOENT));
        let link = add_lo(b"t0")?;
        ensure!(link.id() > 0);
        ensure!(link.name().as_bytes() == b"t0");
        ensure!(link.ifname().to_array() == raw_name(b"lo"));
        ensure!(link.netns() == here);
        ensure!(link.netdev().ifindex == 1);
        ensure!(link.state() == LinkState::Up);
        ensure!(link.mtu() == 65536);
        ensure!(find(here, link.name()).is_ok_and(|found| Arc::ptr_eq(&found, &link)));
        ensure!(find(here, &link_name(b"t")?).is_err_and(|e| e == ENODEV));
        ensure!(del_named(b"t0").is_ok());
        ensure!(link.state() == LinkState::Gone);
        ensure!(find(here, link.name()).is_err_and(|e| e == ENODEV));
        ensure!(del_named(b"t0") == Err(ENODEV));
        ensure!(link.open().is_err_and(|e| e == ENODEV));
        Ok(())
    }

    #[test]
    fn links_are_iterated_in_order() -> Result {
        let _no_links = NoLinks;
        let here = NetNsId::current()?;
        let first = add_lo(b"t0")?;
        ensure!(next(here, 0).is_ok_and(|found| Arc::ptr_eq(&found, &first)));
        ensure!(next(here, first.id().wrapping_sub(1)).is_ok());
        ensure!(next(here, first.id()).is_err_and(|e| e == ENOENT));
        ensure!(next(here, u32::MAX).is_err_and(|e| e == ENOENT));
        ensure!(del_named(b"t0").is_ok());
        let second = add_lo(b"t0")?;
        ensure!(second.id() > first.id());
        ensure!(next(here, first.id()).is_ok_and(|found| Arc::ptr_eq(&found, &second)));
        ensure!(del_named(b"t0").is_ok());
        ensure!(next(here, 0).is_err_and(|e| e == ENOENT));
        Ok(())
    }

    #[test]
    fn a_link_in_use_is_not_removed() -> Result {
        let _no_links = NoLinks;
        let link = add_lo(b"t0")?;
        let one = link.open()?;
        let two = link.open()?;
        let endpoint = link.add_endpoint();
        ensure!(link.info().domains == 2);
        ensure!(link.info().endpoints == 1);
        ensure!(del_named(b"t0") == Err(EBUSY));
        one.release();
        one.release();
        ensure!(link.info().domains == 1);
        drop(one);
        ensure!(link.info().domains == 1);
        ensure!(del_named(b"t0") == Err(EBUSY));
        ensure!(link.state() == LinkState::Up);
        drop(two);
        drop(endpoint);
        ensure!(link.info().domains == 0);
        ensure!(link.info().endpoints == 0);
        ensure!(del_named(b"t0").is_ok());
        Ok(())
    }

    #[test]
    fn traffic_of_a_link_is_counted() -> Result {
        let _no_links = NoLinks;
        let link = add_lo(b"t0")?;
        link.count_tx(100);
        link.count_tx(0);
        link.count_rx(u64::from(u32::MAX) + 1);
        let info = link.info();
        ensure!(info.tx_ops == 2 && info.tx_bytes == 100);
        ensure!(info.rx_ops == 1 && info.rx_bytes == 1 << 32);
        ensure!(del_named(b"t0").is_ok());
        Ok(())
    }

    #[test]
    fn a_link_has_the_addresses_of_its_interface() -> Result {
        let _no_links = NoLinks;
        let link = add_lo(b"t0")?;
        let lo = v4([127, 0, 0, 1], 7471);
        ensure!(link.first_ipv4() == Some(v4([127, 0, 0, 1], 0)));
        ensure!(link.has_address(&lo));
        // All addresses of the loopback network are local, as in routing.
        ensure!(link.has_address(&v4([127, 1, 2, 3], 0)));
        ensure!(!link.has_address(&v4([10, 9, 8, 7], 0)));
        ensure!(!link.has_address(&v4([0; 4], 0)));
        if cfg!(CONFIG_IPV6) {
            let has = |ip| v6(ip).is_some_and(|addr| link.has_address(&addr.with_port(7471)));
            ensure!(link.first_ipv6() == v6(Ipv6Addr::LOCALHOST));
            ensure!(has(Ipv6Addr::LOCALHOST));
            ensure!(!has(Ipv6Addr::UNSPECIFIED));
            ensure!(!has(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1)));
        }
        ensure!(del_named(b"t0").is_ok());
        // The interface has no link any more.
        ensure!(!link.has_address(&lo));
        ensure!(link.first_ipv4().is_none());
        Ok(())
    }

    #[test]
    fn a_link_follows_its_interface() -> Result {
        let _no_links = NoLinks;
        let link = add_lo(b"t0")?;
        report(NetdevEvent::Changed(netdev(&link, false, 1500, b"lo1")));
        ensure!(link.state() == LinkState::Down);
        ensure!(link.mtu() == 1500);
        ensure!(link.ifname().to_array() == raw_name(b"lo1"));
        report(NetdevEvent::Changed(netdev(&link, true, 9000, b"lo")));
        ensure!(link.state() == LinkState::Up);
        ensure!(link.mtu() == 9000);
        // An event of another interface.
        let mut other = netdev(&link, false, 1, b"x");
        other.id.ifindex = 1000;
        report(NetdevEvent::Changed(other));
        report(NetdevEvent::Gone(other.id));
        ensure!(link.state() == LinkState::Up);
        ensure!(link.mtu() == 9000);
        ensure!(del_named(b"t0").is_ok());
        // A removed link ignores events.
        report(NetdevEvent::Changed(netdev(&link, true, 1, b"x")));
        ensure!(link.state() == LinkState::Gone);
        ensure!(link.mtu() == 9000);
        Ok(())
    }

    #[test]
    fn removing_a_link_waits_for_no_rcu_reader() -> Result {
        let _no_links = NoLinks;
        // This is the last link, so the sockets are closed with it.
        add_lo(b"t0")?;
        let mut removed = Err(EAGAIN);
        ensure!(waits_for_no_reader(|| removed = del_named(b"t0"))?);
        removed?;
        let id = add_lo(b"t0")?.netdev();
        ensure!(waits_for_no_reader(|| report(NetdevEvent::Gone(id)))?);
        // Dropping the last reference does not wait either.
        let link = add_lo(b"t0")?;
        ensure!(del_named(b"t0").is_ok());
        ensure!(waits_for_no_reader(|| drop(link))?);
        let link = add_lo(b"t0")?;
        let held = link.open()?;
        report(NetdevEvent::Gone(link.netdev()));
        drop(link);
        ensure!(waits_for_no_reader(|| drop(held))?);
        Ok(())
    }

    #[test]
    fn a_link_is_found_by_its_addresses() -> Result {
        let _no_links = NoLinks;
        let link = add_lo(b"t0")?;
        let socket = link.socket().clone();
        let is_found = |ip: IpAddr| {
            socket
                .link_at(ip, 0)
                .is_some_and(|found| Arc::ptr_eq(&found, &link))
        };
        ensure!(is_found(Ipv4Addr::LOCALHOST.into()));
        ensure!(is_found(Ipv4Addr::new(127, 1, 2, 3).into()));
        ensure!(!is_found(Ipv4Addr::new(10, 9, 8, 7).into()));
        ensure!(!is_found(Ipv4Addr::UNSPECIFIED.into()));
        ensure!(!is_found(Ipv4Addr::BROADCAST.into()));
        ensure!(!is_found(Ipv4Addr::new(224, 0, 0, 1).into()));
        if cfg!(CONFIG_IPV6) {
            ensure!(is_found(Ipv6Addr::LOCALHOST.into()));
            ensure!(!is_found(Ipv6Addr::UNSPECIFIED.into()));
            ensure!(!is_found(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1).into()));
            ensure!(!is_found(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1).into()));
        }
        let with = |addr: &SockAddr| socket.link_with(addr).is_some();
        ensure!(with(&v4([127, 0, 0, 9], 7471)) && !with(&v4([10, 9, 8, 7], 7471)));
        // No link of another VRF.
        ensure!(socket.link_at(Ipv4Addr::LOCALHOST.into(), 1).is_none());
        ensure!(del_named(b"t0").is_ok());
        ensure!(!is_found(Ipv4Addr::LOCALHOST.into()));
        ensure!(!with(&v4([127, 0, 0, 1], 0)));
        Ok(())
    }

    #[test]
    fn concurrent_route_lookups_share_a_dst() -> Result {
        let _no_links = NoLinks;
        let link = add_lo(b"t0")?;
        let ends = [
            (
                Ipv4Addr::new(127, 0, 0, 2).into(),
                Ipv4Addr::LOCALHOST.into(),
            ),
            (Ipv6Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()),
        ];
        for (to, from) in ends {
            if !cfg!(CONFIG_IPV6) && IpAddr::is_ipv6(&to) {
                continue;
            }
            // The second look-up finds the dst that the first one cached.
            let path = Path::new(&link, from, to)?;
            ensure_eq!(path.look_up(), Ok(()));
            ensure_eq!(path.look_up(), Ok(()));
            ensure!(path.mtu().is_ok());
            ensure_eq!(path.check(), Ok(Reach::ThisHost));
        }
        let path = Path::new(
            &link,
            Ipv4Addr::LOCALHOST.into(),
            Ipv4Addr::LOCALHOST.into(),
        )?;
        ensure!(del_named(b"t0").is_ok());
        ensure_eq!(path.look_up(), Err(ENETDOWN));
        ensure_eq!(path.check(), Err(ENODEV));
        Ok(())
    }
}
