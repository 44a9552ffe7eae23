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
    is_local,
    next,
    table::{
        set_max_links,
        NetdevHandler, //
    },
    IfName,
    Link,
    LinkName,
    LinkState,
    NetNs,
    NetNsId,
    Path, //
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
        up,
        name: raw_name(name),
    }
}

/// The longest time of the RCU reader in ns: ample for a function that does not wait.
const LOOK: u64 = 2_000 * MS;

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
    fn link_names_are_checked() {
        assert!(LinkName::new(&raw_name(b"roce0")).is_ok_and(|n| n.as_bytes() == b"roce0"));
        assert!(
            LinkName::new(&raw_name(b"123456789012345")).is_ok_and(|n| n.as_bytes().len() == 15)
        );
        // Empty, not terminated, blanks, '/', a control character, not ASCII.
        assert!(LinkName::new(&raw_name(b"")) == Err(EINVAL));
        assert!(LinkName::new(&raw_name(b"1234567890123456")) == Err(EINVAL));
        assert!(LinkName::new(&raw_name(b"a b")) == Err(EINVAL));
        assert!(LinkName::new(&raw_name(b"a/b")) == Err(EINVAL));
        assert!(LinkName::new(&raw_name(b"a\nb")) == Err(EINVAL));
        assert!(LinkName::new(&raw_name(b"\x7f")) == Err(EINVAL));
        assert!(LinkName::new(&raw_name("é".as_bytes())) == Err(EINVAL));
        // The bytes after the NUL are not a part of the name.
        let noise = LinkName::new(&raw_name(b"a\0b"));
        assert!(noise.is_ok_and(|n| n.to_array() == raw_name(b"a")));
    }

    #[test]
    fn interface_names_are_checked() {
        assert!(IfName::new(&raw_name(b"veth-0.1@x"))
            .is_ok_and(|n| n.to_array() == raw_name(b"veth-0.1@x")));
        assert!(IfName::new(&raw_name(b"")) == Err(EINVAL));
        assert!(IfName::new(&raw_name(b"1234567890123456")) == Err(EINVAL));
        assert!(IfName::new(&raw_name(b"a b")) == Err(EINVAL));
        assert!(IfName::new(&raw_name(b"a/b")) == Err(EINVAL));
        assert!(IfName::new(&raw_name(b"a:b")) == Err(EINVAL));
        assert!(IfName::new(&raw_name(b"a\x0bb")) == Err(EINVAL));
    }

    #[test]
    fn the_current_namespace_is_known() -> Result {
        let here = NetNs::current()?;
        assert!(here.id() == NetNsId::current()?);
        assert!(here.capable_net_admin());
        Ok(())
    }

    #[test]
    fn links_are_added_and_removed() -> Result {
        let here = NetNsId::current()?;
        assert!(next(here, 0).is_err_and(|e| e == ENOENT));
        let link = add_lo(b"t0")?;
        assert!(link.id() > 0);
        assert!(link.name().as_bytes() == b"t0");
        assert!(link.ifname().to_array() == raw_name(b"lo"));
        assert!(link.netns() == here);
        assert!(link.netdev().ifindex == 1);
        assert!(link.state() == LinkState::Up);
        assert!(link.mtu() == 65536);
        assert!(find(here, link.name()).is_ok_and(|found| Arc::ptr_eq(&found, &link)));
        assert!(find(here, &link_name(b"t")?).is_err_and(|e| e == ENODEV));
        assert!(del_named(b"t0").is_ok());
        assert!(link.state() == LinkState::Gone);
        assert!(find(here, link.name()).is_err_and(|e| e == ENODEV));
        assert!(del_named(b"t0") == Err(ENODEV));
        assert!(link.open().is_err_and(|e| e == ENODEV));
        Ok(())
    }

    #[test]
    fn a_second_link_on_an_interface_is_refused() -> Result {
        let ifname = IfName::new(&raw_name(b"nonesuch"))?;
        let none = add(&NetNs::current()?, link_name(b"t0")?, ifname);
        assert!(none.is_err_and(|e| e == ENODEV));
        let link = add_lo(b"t0")?;
        // First both the name and the interface are in use, then only the interface.
        assert!(add_lo(b"t0").is_err_and(|e| e == EEXIST));
        assert!(add_lo(b"t1").is_err_and(|e| e == EEXIST));
        assert!(del(&NetNs::current()?, link.name()).is_ok());
        Ok(())
    }

    #[test]
    fn the_number_of_links_is_limited() {
        let before = set_max_links(0);
        let refused = add_lo(b"t0");
        set_max_links(before);
        assert!(refused.is_err_and(|e| e == ENOSPC));
        assert!(add_lo(b"t0").is_ok());
        assert!(del_named(b"t0").is_ok());
    }

    #[test]
    fn links_are_iterated_in_order() -> Result {
        let here = NetNsId::current()?;
        let first = add_lo(b"t0")?;
        assert!(next(here, 0).is_ok_and(|found| Arc::ptr_eq(&found, &first)));
        assert!(next(here, first.id().wrapping_sub(1)).is_ok());
        assert!(next(here, first.id()).is_err_and(|e| e == ENOENT));
        assert!(next(here, u32::MAX).is_err_and(|e| e == ENOENT));
        assert!(del_named(b"t0").is_ok());
        let second = add_lo(b"t0")?;
        assert!(second.id() > first.id());
        assert!(next(here, first.id()).is_ok_and(|found| Arc::ptr_eq(&found, &second)));
        assert!(del_named(b"t0").is_ok());
        assert!(next(here, 0).is_err_and(|e| e == ENOENT));
        Ok(())
    }

    #[test]
    fn a_link_in_use_is_not_removed() -> Result {
        let link = add_lo(b"t0")?;
        let one = link.open()?;
        let two = link.open()?;
        let endpoint = link.add_endpoint();
        assert!(link.info().domains == 2);
        assert!(link.info().endpoints == 1);
        assert!(del_named(b"t0") == Err(EBUSY));
        one.release();
        one.release();
        assert!(link.info().domains == 1);
        drop(one);
        assert!(link.info().domains == 1);
        assert!(del_named(b"t0") == Err(EBUSY));
        assert!(link.state() == LinkState::Up);
        drop(two);
        drop(endpoint);
        assert!(link.info().domains == 0);
        assert!(link.info().endpoints == 0);
        assert!(del_named(b"t0").is_ok());
        Ok(())
    }

    #[test]
    fn traffic_of_a_link_is_counted() -> Result {
        let link = add_lo(b"t0")?;
        link.count_tx(100);
        link.count_tx(0);
        link.count_rx(u64::from(u32::MAX) + 1);
        let info = link.info();
        assert!(info.tx_ops == 2 && info.tx_bytes == 100);
        assert!(info.rx_ops == 1 && info.rx_bytes == 1 << 32);
        assert!(del_named(b"t0").is_ok());
        Ok(())
    }

    #[test]
    fn a_link_has_the_addresses_of_its_interface() -> Result {
        let link = add_lo(b"t0")?;
        let lo = v4([127, 0, 0, 1], 7471);
        assert!(link.first_ipv4() == Some(v4([127, 0, 0, 1], 0)));
        assert!(link.has_address(&lo));
        // All addresses of the loopback network are local, as in routing.
        assert!(link.has_address(&v4([127, 1, 2, 3], 0)));
        assert!(!link.has_address(&v4([10, 9, 8, 7], 0)));
        assert!(!link.has_address(&v4([0; 4], 0)));
        if cfg!(CONFIG_IPV6) {
            let has = |ip| v6(ip).is_some_and(|addr| link.has_address(&addr.with_port(7471)));
            assert!(link.first_ipv6() == v6(Ipv6Addr::LOCALHOST));
            assert!(has(Ipv6Addr::LOCALHOST));
            assert!(!has(Ipv6Addr::UNSPECIFIED));
            assert!(!has(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1)));
        }
        assert!(del_named(b"t0").is_ok());
        // The interface has no link any more.
        assert!(!link.has_address(&lo));
        assert!(link.first_ipv4().is_none());
        Ok(())
    }

    #[test]
    fn a_link_follows_its_interface() -> Result {
        let link = add_lo(b"t0")?;
        report(NetdevEvent::Changed(netdev(&link, false, 1500, b"lo1")));
        assert!(link.state() == LinkState::Down);
        assert!(link.mtu() == 1500);
        assert!(link.ifname().to_array() == raw_name(b"lo1"));
        report(NetdevEvent::Changed(netdev(&link, true, 9000, b"lo")));
        assert!(link.state() == LinkState::Up);
        assert!(link.mtu() == 9000);
        // An event of another interface.
        let mut other = netdev(&link, false, 1, b"x");
        other.id.ifindex = 1000;
        report(NetdevEvent::Changed(other));
        report(NetdevEvent::Gone(other.id));
        assert!(link.state() == LinkState::Up);
        assert!(link.mtu() == 9000);
        assert!(del_named(b"t0").is_ok());
        // A removed link ignores events.
        report(NetdevEvent::Changed(netdev(&link, true, 1, b"x")));
        assert!(link.state() == LinkState::Gone);
        assert!(link.mtu() == 9000);
        Ok(())
    }

    #[test]
    fn an_unused_link_is_freed_on_removal() -> Result {
        let link = add_lo(b"t0")?;
        report(NetdevEvent::Gone(link.netdev()));
        assert!(link.state() == LinkState::Gone);
        assert!(next(link.netns(), 0).is_err_and(|e| e == ENOENT));
        Ok(())
    }

    #[test]
    fn removing_a_link_waits_for_no_rcu_reader() -> Result {
        // This is the last link, so the sockets are closed with it.
        add_lo(b"t0")?;
        assert!(waits_for_no_reader(|| {
            assert!(del_named(b"t0").is_ok());
        })?);
        let id = add_lo(b"t0")?.netdev();
        assert!(waits_for_no_reader(|| report(NetdevEvent::Gone(id)))?);
        // Dropping the last reference does not wait either.
        let link = add_lo(b"t0")?;
        assert!(del_named(b"t0").is_ok());
        assert!(waits_for_no_reader(|| drop(link))?);
        let link = add_lo(b"t0")?;
        let held = link.open()?;
        report(NetdevEvent::Gone(link.netdev()));
        drop(link);
        assert!(waits_for_no_reader(|| drop(held))?);
        Ok(())
    }

    #[test]
    fn a_link_is_found_by_its_addresses() -> Result {
        let link = add_lo(b"t0")?;
        let socket = link.socket().clone();
        let is_found = |ip: IpAddr| {
            socket
                .link_at(ip)
                .is_some_and(|found| Arc::ptr_eq(&found, &link))
        };
        assert!(is_found(Ipv4Addr::LOCALHOST.into()));
        assert!(is_found(Ipv4Addr::new(127, 1, 2, 3).into()));
        assert!(!is_found(Ipv4Addr::new(10, 9, 8, 7).into()));
        assert!(!is_found(Ipv4Addr::UNSPECIFIED.into()));
        assert!(!is_found(Ipv4Addr::BROADCAST.into()));
        assert!(!is_found(Ipv4Addr::new(224, 0, 0, 1).into()));
        if cfg!(CONFIG_IPV6) {
            assert!(is_found(Ipv6Addr::LOCALHOST.into()));
            assert!(!is_found(Ipv6Addr::UNSPECIFIED.into()));
            assert!(!is_found(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1).into()));
            assert!(!is_found(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1).into()));
        }
        let with = |addr: &SockAddr| socket.link_with(addr).is_some();
        assert!(with(&v4([127, 0, 0, 9], 7471)) && !with(&v4([10, 9, 8, 7], 7471)));
        assert!(is_local(link.netns(), &v4([127, 0, 0, 1], 0)));
        assert!(del_named(b"t0").is_ok());
        assert!(!is_found(Ipv4Addr::LOCALHOST.into()));
        assert!(!with(&v4([127, 0, 0, 1], 0)));
        assert!(!is_local(link.netns(), &v4([127, 0, 0, 1], 0)));
        Ok(())
    }

    #[test]
    fn concurrent_route_lookups_share_a_dst() -> Result {
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
            assert_eq!(path.look_up(), Ok(()));
            assert_eq!(path.look_up(), Ok(()));
            assert!(path.mtu().is_some());
        }
        let path = Path::new(
            &link,
            Ipv4Addr::LOCALHOST.into(),
            Ipv4Addr::LOCALHOST.into(),
        )?;
        assert!(del_named(b"t0").is_ok());
        assert_eq!(path.look_up(), Err(ENETDOWN));
        Ok(())
    }

    #[test]
    fn a_link_in_use_is_listed_after_its_removal() -> Result {
        let link = add_lo(b"t0")?;
        let held = link.open()?;
        report(NetdevEvent::Gone(link.netdev()));
        assert!(link.state() == LinkState::Gone);
        // The link is still listed under its name, but cannot be opened.
        assert!(next(link.netns(), 0).is_ok_and(|found| Arc::ptr_eq(&found, &link)));
        assert!(link.open().is_err_and(|e| e == ENODEV));
        assert!(!link.has_address(&v4([127, 0, 0, 1], 0)));
        assert!(del_named(b"t0") == Err(EBUSY));
        assert!(add_lo(b"t0").is_err_and(|e| e == EEXIST));
        // The interface is free for another link, which the end of the first one does not affect.
        let next_link = add_lo(b"t1")?;
        drop(held);
        assert!(find(link.netns(), link.name()).is_err_and(|e| e == ENODEV));
        assert!(next_link.state() == LinkState::Up);
        assert!(del_named(b"t1").is_ok());
        Ok(())
    }
}
