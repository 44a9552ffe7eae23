// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_gsi`: the second consumer of QP 1. Both ends are on a link on the loopback
//! interface, so QP 1 sends to itself.

use super::{
    super::service::PEER,
    Gsi,
    Origin,
    Rates,
    Reach,
    Sender, //
};
use crate::{
    kunit::helpers::{
        a_while,
        count_if,
        eventually,
        Count, //
    },
    mem::{
        Inline,
        Source, //
    },
    net::{
        cm::listen,
        del,
        kunit_cm_pair::{
            Ends,
            Seen,
            SERVICE, //
        },
        kunit_wire_pair::{
            at,
            datagrams,
            Recorder,
            Slow,
            TestLink,
            ONE,
            TWO, //
        },
        NetNs,
        Path,
        Stat, //
    }, //
};
use core::net::{
    IpAddr,
    Ipv4Addr,
    Ipv6Addr, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Release,
        Arc, //
    }, //
};
use kfi_roce::{
    cm::{
        Body,
        CommId,
        Dreq,
        Message,
        Private,
        Reason,
        State,
        MAD_LEN, //
    },
    headers::Qpn,
    ud::GSI_QKEY, //
};

/// A datagram of performance management, which connection management does not know.
fn other_class() -> [u8; MAD_LEN] {
    let mut mad = [0; MAD_LEN];
    [mad[0], mad[1], mad[2], mad[3]] = [1, 4, 1, 1];
    mad
}

/// A link with a second consumer that records datagrams, and a path of the link.
struct Second {
    gsi: Gsi,
    got: Arc<Recorder>,
    path: Arc<Path>,
}

impl Second {
    fn new(link: &TestLink) -> Result<Self> {
        let got = Recorder::new()?;
        Ok(Self {
            gsi: Gsi::open(&link.0, got.clone())?,
            got,
            path: Path::new(&link.0, ONE, TWO)?,
        })
    }

    fn send(&self, mad: &[u8]) -> Result {
        let mad = Inline::from_slice(mad).ok_or(EINVAL)?;
        self.gsi.send(&self.path, &PEER, &Source::Inline(&mad))
    }
}

/// Requests a connection to a service without a listener.
fn request_unknown_service(ends: &mut Ends) -> Result<Arc<super::super::Conn>> {
    ends.listening = None;
    ends.request(2, 0)
}

fn dropped(link: &TestLink) -> u64 {
    let inbound = link.0.socket().receiver();
    inbound.stats().get(Stat::DropCm)
}

#[kunit_tests(kfabric_gsi)]
mod tests {
    use super::*;

    #[test]
    fn other_classes_go_to_the_second_consumer() -> Result {
        let link = TestLink::new()?;
        let second = Second::new(&link)?;
        let mad = other_class();
        second.send(&mad)?;
        ensure!(eventually(|| second.got.count() == 1));
        let seen = second.got.last().ok_or(EIO)?;
        ensure!(seen.source_qp == Qpn::GSI && seen.len == MAD_LEN);
        ensure!(seen
            .addrs
            .is_some_and(|addrs| addrs.from == ONE && addrs.to == TWO));
        // Datagrams that are no whole MADs are dropped.
        for len in [0, 24, MAD_LEN - 1] {
            second.send(mad.get(..len).ok_or(EINVAL)?)?;
        }
        ensure!(eventually(|| dropped(&link) == 3));
        ensure_eq!(second.got.count(), 1);
        // So is one for which the consumer has no room.
        second.got.takes.store(false, Release);
        second.send(&mad)?;
        ensure!(eventually(|| dropped(&link) == 4));
        ensure_eq!(second.got.count(), 2);
        Ok(())
    }

    #[test]
    fn other_classes_are_dropped_without_a_second_consumer() -> Result {
        let link = TestLink::new()?;
        let got = Recorder::new()?;
        // A QP with the Q key of QP 1: it is not QP 1, which is a reason for a drop of its own.
        let qp = datagrams(&link, &at(ONE, 0)?, GSI_QKEY, got)?;
        let path = Path::new(&link.0, ONE, TWO)?;
        let mad = Inline::from_slice(&other_class()).ok_or(EINVAL)?;
        let send = || qp.send(&path, &PEER, &Source::Inline(&mad));
        send()?;
        ensure!(eventually(|| dropped(&link) == 1));
        let second = Second::new(&link)?;
        send()?;
        ensure!(eventually(|| second.got.count() == 1));
        ensure!(second
            .got
            .last()
            .is_some_and(|seen| seen.source_qp == qp.number()));
        let got = second.got.clone();
        drop(second);
        send()?;
        ensure!(eventually(|| dropped(&link) == 2));
        ensure_eq!(got.count(), 1);
        qp.close();
        Ok(())
    }

    #[test]
    fn connection_management_keeps_its_messages() -> Result {
        let ends = Ends::new(TWO)?;
        let second = Second::new(&ends.link)?;
        let (active, passive) = ends.connected(0x123)?;
        active.disconnect(&[4])?;
        ensure!(eventually(|| active.state() == State::Closed));
        ensure!(eventually(|| passive.state() == State::Closed));
        let rejected = ends.request(0x200, 0)?;
        ends.listener.next()?.reject(Reason::CONSUMER_DEFINED, &[9]);
        let no = Seen::Rejected(Reason::CONSUMER_DEFINED, 9);
        ensure!(eventually(|| ends.active.seen.lock().contains(&no)));
        ensure_eq!(second.got.count(), 0);
        for conn in [active, passive, rejected] {
            conn.close();
        }
        Ok(())
    }

    #[test]
    fn a_request_to_another_service_is_offered() -> Result {
        let mut ends = Ends::new(TWO)?;
        let second = Second::new(&ends.link)?;
        // The consumer takes it: there is no REJ.
        let conn = request_unknown_service(&mut ends)?;
        ensure!(eventually(|| second.got.count() == 1));
        a_while();
        ensure!(ends.active.is(&[]) && conn.state() == State::ReqSent);
        ensure_eq!(ends.stat(Stat::CmNoListener), 0);
        conn.close();
        // The consumer has no room: the request is dropped, and connection management repeats it.
        // What closing the connection sends has come.
        ensure!(eventually(|| second.got.count() == 2));
        second.got.takes.store(false, Release);
        let (count, drops) = (second.got.count(), ends.stat(Stat::DropCm));
        let conn = ends.request(3, 0)?;
        ensure!(eventually(|| ends.stat(Stat::DropCm) == drops + 1));
        a_while();
        ensure_eq!(second.got.count(), count + 1);
        ensure!(ends.active.is(&[]) && conn.state() == State::ReqSent);
        ensure_eq!(ends.stat(Stat::CmNoListener), 0);
        conn.close();
        ensure!(eventually(|| second.got.count() == count + 2));
        // Another service of the same address has a listener, and its requests are not offered.
        let count = second.got.count();
        let listener = ends.listener.clone();
        let listening = listen(ends.link.0.socket(), TWO, SERVICE, 2, listener)?;
        let conn = ends.request(4, 0)?;
        drop(ends.listener.next()?);
        ensure_eq!(second.got.count(), count);
        conn.close();
        drop(listening);
        Ok(())
    }

    #[test]
    fn a_message_about_an_unknown_connection_is_offered() -> Result {
        let link = TestLink::new()?;
        let second = Second::new(&link)?;
        let message = Message {
            tid: 7,
            body: Body::Dreq(Dreq {
                local_id: CommId(0x11),
                remote_id: CommId(0x22),
                remote_qpn: Qpn::new(0x33),
                private: Private::NONE,
            }),
        };
        second.send(&message.write())?;
        ensure!(eventually(|| second.got.count() == 1));
        a_while();
        ensure_eq!(second.got.count(), 1);
        // If the consumer has no room, connection management does not confirm the end.
        second.got.takes.store(false, Release);
        second.send(&message.write())?;
        ensure!(eventually(|| dropped(&link) == 1));
        a_while();
        ensure_eq!(second.got.count(), 2);
        Ok(())
    }

    /// The host `host` of network `network`.
    fn v6(network: u16, host: u16) -> IpAddr {
        IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, network, 0, 0, 0, host))
    }

    #[test]
    fn each_source_has_a_share_of_the_rate() -> Result {
        const BURST: usize = 1024;
        const INTERVAL: u64 = 1_000_000;
        let mut rates = Rates::new();
        let mut admit = |source, now| rates.admit(source, Origin::Link, now);
        let flood = v6(7, 1);
        ensure_eq!((0..2 * BURST).filter(|_| admit(flood, 1)).count(), BURST);
        ensure!(admit(flood, 1 + INTERVAL) && !admit(flood, 1 + INTERVAL));
        // About one source in 16 has the share of `flood`: other hosts of its network, IPv4 hosts,
        // and hosts with link-local addresses.
        let of_network = (1..=256).filter(|host| admit(v6(7, *host), 1)).count();
        ensure!((200..256).contains(&of_network));
        let hosts = (0..=255).map(|host| IpAddr::V4(Ipv4Addr::new(192, 0, 2, host)));
        let others = hosts.filter(|source| admit(*source, 1)).count();
        ensure!((200..256).contains(&others));
        let hosts = (1..=256).map(|host| IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, host)));
        let others = hosts.filter(|source| admit(*source, 1)).count();
        ensure!((200..256).contains(&others));
        Ok(())
    }

    #[test]
    fn the_addresses_of_a_network_have_a_share_of_the_rate() -> Result {
        const BURST: usize = 4096;
        let mut rates = Rates::new();
        let mut admit = |source| rates.admit(source, Origin::Routed, 1);
        let admitted = (0..=u16::MAX).filter(|host| admit(v6(7, *host))).count();
        ensure_eq!(admitted, BURST);
        ensure!((0..1000).all(|host| !admit(v6(7, host))));
        // About one network in 16 has the share of this one.
        let others = (8..264).filter(|network| admit(v6(*network, 1))).count();
        ensure!((200..256).contains(&others));
        // The hosts on the link are of one network, in which each has its own share.
        let mut rates = Rates::new();
        let admitted = (0..=u16::MAX).filter(|host| rates.admit(v6(7, *host), Origin::Link, 1));
        ensure_eq!(admitted.count(), 16 * 1024);
        Ok(())
    }

    #[test]
    fn sources_behind_routers_have_other_shares() -> Result {
        let mut rates = Rates::new();
        for host in 0..=255 {
            while rates.admit(
                IpAddr::V4(Ipv4Addr::new(198, 51, 100, host)),
                Origin::Routed,
                1,
            ) {}
        }
        ensure!((0..=255).all(|host| !rates.admit(v6(7, host), Origin::Routed, 1)));
        ensure!((0..=255).all(|host| rates.admit(v6(7, host), Origin::Link, 1)));
        Ok(())
    }

    #[test]
    fn sources_on_this_host_have_a_share_of_their_own() -> Result {
        let mut rates = Rates::new();
        let local = |host| IpAddr::V4(Ipv4Addr::new(127, 0, 0, host));
        let admitted = (0..100)
            .filter(|host| (0..100).any(|_| rates.admit(local(*host), Origin::ThisHost, 1)));
        ensure_eq!(admitted.count(), 100);
        while rates.admit(local(1), Origin::ThisHost, 1) {}
        ensure!(!rates.admit(local(200), Origin::ThisHost, 1));
        ensure!(rates.admit(local(200), Origin::Link, 1));
        Ok(())
    }

    #[test]
    fn forged_sources_are_not_heard() -> Result {
        let link = TestLink::new()?;
        let local = Path::new(&link.0, ONE, TWO)?;
        let gsi = link.0.gsi();
        ensure!(gsi.admits(&local, Sender::ThisHost) && gsi.admits(&local, Sender::Vrf));
        ensure!(!gsi.admits(&local, Sender::OtherHost));
        for is_router in [false, true] {
            let of_network = Some(if is_router {
                Origin::Routed
            } else {
                Origin::Link
            });
            let of = |sender, reach| Origin::of(sender, reach, is_router);
            ensure_eq!(of(Sender::ThisHost, Reach::Network), None);
            ensure_eq!(of(Sender::OtherHost, Reach::ThisHost), None);
            ensure_eq!(of(Sender::OtherHost, Reach::Network), of_network);
            ensure_eq!(of(Sender::Vrf, Reach::Network), of_network);
            for sender in [Sender::ThisHost, Sender::Vrf] {
                ensure_eq!(of(sender, Reach::ThisHost), Some(Origin::ThisHost));
            }
        }
        Ok(())
    }

    #[test]
    fn datagrams_beyond_the_rate_of_a_source_are_dropped() -> Result {
        let link = TestLink::new()?;
        let second = Second::new(&link)?;
        // Far in the future, so that no time passes for the share.
        let admit = |rates: &mut Rates| rates.admit(ONE, Origin::ThisHost, u64::MAX / 2);
        while admit(&mut link.0.gsi().rates.lock()) {}
        second.send(&other_class())?;
        ensure!(eventually(|| dropped(&link) == 1));
        ensure_eq!(second.got.count(), 0);
        Ok(())
    }

    #[test]
    fn a_link_has_one_second_consumer() -> Result {
        let link = TestLink::new()?;
        let second = Second::new(&link)?;
        let again = Gsi::open(&link.0, Recorder::new()?);
        ensure!(again.is_err_and(|e| e == EBUSY));
        drop(second);
        let second = Second::new(&link)?;
        second.send(&other_class())?;
        ensure!(eventually(|| second.got.count() == 1));
        // It stays when the link goes, and nothing comes any more.
        del(&NetNs::current()?, link.0.name())?;
        ensure!(second.send(&other_class()) == Err(ENODEV));
        let gone = Gsi::open(&link.0, Recorder::new()?);
        ensure!(gone.is_err_and(|e| e == ENODEV));
        // The path of another link.
        let next_link = TestLink::new()?;
        let other = Second::new(&next_link)?;
        let mad = Inline::from_slice(&other_class()).ok_or(EINVAL)?;
        let sent = second.gsi.send(&other.path, &PEER, &Source::Inline(&mad));
        ensure!(sent == Err(EINVAL));
        other.send(&other_class())?;
        ensure!(eventually(|| other.got.count() == 1));
        ensure_eq!(second.got.count(), 1);
        Ok(())
    }

    #[test]
    fn dropping_gsi_waits_for_a_call() -> Result {
        let link = TestLink::new()?;
        let sender = Second::new(&link)?;
        let Second { gsi, got: _, path } = sender;
        drop(gsi);
        let slow = Slow::new()?;
        let gsi = Gsi::open(&link.0, slow.clone())?;
        let mad = Inline::from_slice(&other_class()).ok_or(EINVAL)?;
        gsi.send(&path, &PEER, &Source::Inline(&mad))?;
        ensure!(eventually(|| slow.is_called()));
        let done = Count::new()?;
        let closer = count_if(&done, move || {
            drop(gsi);
            true
        })?;
        a_while();
        let early = done.get();
        slow.go_on();
        ensure!(eventually(|| done.get() == 1));
        let count = slow.count.get();
        closer.join();
        ensure_eq!((early, count), (0, 1));
        Ok(())
    }
}
