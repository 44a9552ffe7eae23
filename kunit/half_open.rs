// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_half_open`: connections that peers have requested from an endpoint for reliable
//! datagrams, and not confirmed, share a part of the account of the endpoint's owner. If there are
//! many requests, the endpoint makes no connection for one without a cookie.
//!
//! The peers are consumers of connection management at another address of the loopback interface.
//! They have no QP.

#[path = "refused_peer.rs"]
mod refused_peer;

use super::*;
use crate::{
    kunit::{
        fixture::{
            a_while,
            ep_attr,
            eventually,
            ident_of,
            Count,
            TestDomain, //
        },
        helpers::{
            take_peer_workers,
            take_rest,
            user, //
        }, //
    },
    mem::{
        Budget,
        Part,
        PartAllowance, //
    },
    net::{
        cm::{
            Conn,
            Connect,
            Consumer,
            Delivery,
            MAX_UNCONFIRMED_OF_SOURCE, //
        },
        kunit_cm_pair::TestListener,
        Stat, //
    },
    provider::{
        av::Av,
        object::force_close, //
    },
    shim::{
        cred::Owner,
        errno::to_error,
        reclaim::OwnerKind,
        sched::now_ns, //
    }, //
};
use core::net::{
    IpAddr,
    Ipv4Addr, //
};
use kernel::sync::atomic::{
    Acquire,
    Release, //
};
use kfi_core::{
    auth_key::AuthKey,
    enums::EpType,
    flags::Caps,
    rdm::{
        hello::{
            PeerEpoch,
            Refusal,
            HELLO_LEN, //
        },
        service_id,
        times::{
            COOKIE_PERIOD,
            UNPROVEN_BURST, //
        },
        unproven::Ends,
        Cookie,
        Hello, //
    }, //
};
use kfi_roce::{
    cm::{
        Event,
        ServiceId,
        Side, //
    },
    headers::Qpn,
    psn::Psn, //
};

/// The address of the peers.
const THERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// Another address.
const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3));

/// The peers, which count the answers and confirm nothing by themselves.
struct Peers {
    accepted: Arc<Count>,
    busy: Arc<Count>,
    retry: Arc<Count>,
    key: Arc<Count>,
    others: Arc<Count>,
    /// The last cookie, 0: none.
    cookie: Atomic<u64>,
}

impl Peers {
    fn new() -> Result<Arc<Self>> {
        let peers = Self {
            accepted: Count::new()?,
            busy: Count::new()?,
            retry: Count::new()?,
            key: Count::new()?,
            others: Count::new()?,
            cookie: Atomic::new(0),
        };
        Ok(Arc::new(peers, GFP_KERNEL)?)
    }

    /// Waits until this many connections were accepted, and this many refused because the endpoint
    /// is busy. Returns false if they are not in time.
    fn have_results(&self, accepted: u32, busy: u32) -> bool {
        eventually(|| (self.accepted.get(), self.busy.get()) == (accepted, busy))
            && self.others.get() == 0
    }

    /// Waits until this many connections were accepted, and this many refused with a cookie.
    /// Returns the last cookie; `None` if they are not in time.
    fn cookie_after(&self, accepted: u32, retry: u32) -> Option<Cookie> {
        let have_results = || (self.accepted.get(), self.retry.get()) == (accepted, retry);
        let cookie = eventually(have_results).then(|| self.cookie.load(Acquire))?;
        Cookie::new(cookie).filter(|_| self.others.get() == 0)
    }
}

impl Consumer for Peers {
    fn owner_kind(&self) -> OwnerKind {
        OwnerKind::Program
    }

    fn event(&self, _conn: &Arc<Conn>, event: &Event<'_>) -> Delivery {
        let count = match event {
            Event::Reply(_) => &self.accepted,
            Event::Rejected { private, .. } => match Refusal::parse(private) {
                Some(Refusal::Busy) => &self.busy,
                Some(Refusal::Retry(cookie)) => {
                    self.cookie.store(cookie.get(), Release);
                    &self.retry
                }
                Some(Refusal::Key) => &self.key,
                _ => &self.others,
            },
            _ => &self.others,
        };
        count.add(1);
        Delivery::Done
    }
}

/// The hello of a new peer at `port`.
fn hello(port: u16, cookie: Option<Cookie>, auth_key: AuthKey) -> Hello {
    Hello {
        peer_epoch: PeerEpoch {
            incarnation: random_u64(),
            epoch: 1,
        },
        port,
        name_port: port,
        reads: 1,
        caps: Caps::RMA,
        cookie,
        auth_key,
    }
}

/// An endpoint of `owner`. It is only the target of writes, so that it needs no CQ.
struct Target {
    endpoint: Arc<Endpoint>,
    av: Arc<Av>,
    owner: Budget,
    peers: Arc<Peers>,
    /// The address from which requests come.
    from: IpAddr,
    domain: TestDomain,
}

impl Target {
    fn open(owner: &Budget) -> Result<Self> {
        let domain = TestDomain::open()?;
        let av = domain.av(ident_of(owner, 3)?)?;
        let attr = ep_attr(EpType::Rdm, Caps::RMA.union(Caps::REMOTE_WRITE));
        let endpoint = Endpoint::open(&domain.domain, attr, ident_of(owner, 4)?)?;
        let target = Self {
            endpoint,
            av,
            owner: owner.clone(),
            peers: Peers::new()?,
            from: THERE,
            domain,
        };
        target.endpoint.bind_av(&target.av)?;
        target.endpoint.enable()?;
        Ok(target)
    }

    /// Requests a connection from the peer at `port`.
    fn request(&self, port: u16) -> Result<Arc<Conn>> {
        self.request_with(port, None)
    }

    /// Requests a connection from the peer at `port`, with a valid cookie.
    fn request_proven(&self, port: u16) -> Result<Arc<Conn>> {
        let ends = self.ends(self.from, port)?;
        let filter = &self.endpoint.remote.request_filter;
        let demand = filter.check(now_ns(), &ends, None, true);
        let Err(Refusal::Retry(cookie)) = demand else {
            return Err(EINVAL);
        };
        self.request_with(port, Some(cookie))
    }

    /// Requests a connection from the peer at `port`, with a cookie.
    fn request_with(&self, port: u16, cookie: Option<Cookie>) -> Result<Arc<Conn>> {
        self.request_keyed(port, cookie, AuthKey::NONE)
    }

    /// Requests a connection from the peer at `port`, which has this authorization key.
    fn request_keyed(
        &self,
        port: u16,
        cookie: Option<Cookie>,
        auth_key: AuthKey,
    ) -> Result<Arc<Conn>> {
        let bound = self.endpoint.bound.as_ref().ok_or(EBADF)?;
        let mut private = [0; HELLO_LEN];
        let hello = hello(port, cookie, auth_key);
        hello.put(&mut private).ok_or(EINVAL)?;
        let service = service_id(bound.name.port());
        self.connect(service, 0x100 + u32::from(port), &private)
    }

    /// Requests a connection from the peer's QP `qpn` with a service at the endpoint's address.
    fn connect(&self, service_id: ServiceId, qpn: u32, private: &[u8]) -> Result<Arc<Conn>> {
        let bound = self.endpoint.bound.as_ref().ok_or(EBADF)?;
        let connect = Connect {
            link: self.domain.domain.link(),
            local: self.from,
            remote: bound.name.ip(),
            service_id,
            side: Side {
                qpn: Qpn::new(qpn),
                starting_psn: Psn::new(0),
                responder_resources: 1,
                initiator_depth: 1,
                rnr_retry_count: 7,
                srq: false,
            },
            mtu: None,
            retry_count: 7,
            private,
            context: 0,
        };
        cm::connect(&connect, self.peers.clone())
    }

    /// The two ends of a connection with the peer at `port` of `ip`.
    fn ends(&self, ip: IpAddr, port: u16) -> Result<Ends> {
        let bound = self.endpoint.bound.as_ref().ok_or(EBADF)?;
        Ok(Ends {
            peer: SockAddr::new(ip, port, 0).map_err(|_| EINVAL)?,
            port: bound.name.port(),
        })
    }

    /// Uses up the requests without a cookie at a time that is a hundred periods ahead, so that no
    /// further one is handled until then. Returns that time, in ns.
    fn exhaust(&self) -> Result<u64> {
        let then = now_ns().saturating_add(100 * COOKIE_PERIOD);
        let ends = self.ends(THERE, 1)?;
        for _ in 0..UNPROVEN_BURST {
            let filter = &self.endpoint.remote.request_filter;
            let checked = filter.check(then, &ends, None, false);
            checked.map_err(|_| EINVAL)?;
        }
        Ok(then)
    }

    /// Returns whether the endpoint has a session or a half-open connection.
    fn has_state(&self) -> bool {
        self.half_open() != 0 || self.endpoint.remote.any(|_| true)
    }

    /// Returns the number of requests that were refused with a cookie in this namespace.
    fn refused(&self) -> u64 {
        self.count_of(Stat::CmUnproven)
    }

    /// Returns a statistic of this namespace.
    fn count_of(&self, stat: Stat) -> u64 {
        let link = self.domain.domain.link();
        link.socket().receiver().stats().get(stat)
    }

    /// Returns the number of bytes that half-open connections use in their part.
    fn half_open(&self) -> u64 {
        self.owner.charged(Part::HalfOpen).1
    }

    /// Uses up the part for half-open connections except for `room` bytes.
    fn leave(&self, room: u64) -> Result<KVec<PartAllowance>> {
        self.leave_of(Part::HalfOpen, room)
    }

    /// Uses up a part except for `room` bytes.
    fn leave_of(&self, part: Part, room: u64) -> Result<KVec<PartAllowance>> {
        let kept = self.owner.take_part(part, room)?;
        let taken = take_rest(|bytes| self.owner.take_part(part, bytes));
        drop(kept);
        taken
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        force_close(&*self.endpoint);
        force_close(&*self.av);
    }
}

#[kunit_tests(kfabric_half_open)]
mod tests {
    use super::*;

    /// The part is used up, also for an owner without a limit.
    #[test]
    fn half_open_connections_share_a_part_of_the_account() -> Result {
        for (number, limit) in [(110, None), (111, Some(u64::MAX))] {
            let owner = Budget::of(user(number), limit)?;
            let target = Target::open(&owner)?;
            let first = target.request(1)?;
            ensure!(target.peers.have_results(1, 0));
            let one = target.half_open();
            ensure!(one > 0);
            // Room for another connection, and for all but one byte of a third one.
            let others = target.leave(one + (one - 1))?;
            let second = target.request_proven(2)?;
            ensure!(target.peers.have_results(2, 0));
            let full = target.half_open();
            let third = target.request_proven(3)?;
            ensure!(target.peers.have_results(2, 1));
            ensure_eq!(target.half_open(), full);
            // The rest of the account is available to the owner.
            let more = target.domain.av(ident_of(&owner, 3)?)?;
            force_close(&*more);
            // A confirmed connection is no longer half open.
            first.confirm(&[])?;
            ensure!(eventually(|| target.half_open() == full - one));
            let fourth = target.request_proven(4)?;
            ensure!(target.peers.have_results(3, 1));
            ensure_eq!(target.half_open(), full);
            let fifth = target.request_proven(5)?;
            ensure!(target.peers.have_results(3, 2));
            // A connection that the peer has given up does not count either.
            second.close();
            ensure!(eventually(|| target.half_open() == full - one));
            let sixth = target.request_proven(6)?;
            ensure!(target.peers.have_results(4, 2));
            for conn in [first, third, fourth, fifth, sixth] {
                conn.close();
            }
            drop(others);
            ensure!(eventually(|| target.half_open() == 0));
        }
        Ok(())
    }

    /// A peer leaves room for others in both parts, also at an owner without a limit.
    /// An attempt for which there is no address, path or room ends the connection with that error;
    /// another one is tried again.
    #[test]
    fn an_attempt_is_not_repeated_where_it_cannot_succeed() -> Result {
        for (error, errno) in [
            (ENODEV, Some(ENODEV)),
            (EADDRNOTAVAIL, Some(EADDRNOTAVAIL)),
            // The link is down, and its address has left.
            (ENETDOWN, Some(EADDRNOTAVAIL)),
            (EMSGSIZE, Some(EMSGSIZE)),
            (ENETUNREACH, Some(EHOSTUNREACH)),
            (EHOSTUNREACH, Some(EHOSTUNREACH)),
            (EINVAL, Some(EHOSTUNREACH)),
            (EBUSY, None),
            (ENOMEM, None),
        ] {
            let found = manage::cause_of(error).map(|cause| to_error(cause.errno()));
            ensure_eq!(found, errno);
        }
        Ok(())
    }

    #[test]
    fn connections_of_a_peer_have_a_share() -> Result {
        for (number, limit, part) in [
            (119, None, Part::Peers),
            (119, None, Part::HalfOpen),
            (120, Some(u64::MAX), Part::Peers),
            (120, Some(u64::MAX), Part::HalfOpen),
        ] {
            let owner = Budget::of(user(number), limit)?;
            let mut target = Target::open(&owner)?;
            let first = target.request_proven(1)?;
            ensure!(target.peers.have_results(1, 0));
            let one = owner.charged(part).1;
            ensure!(one > 0);
            // Room for another two, and a quarter. The third one would not leave enough for others.
            let others = target.leave_of(part, 2 * one + one / 4)?;
            let second = target.request_proven(2)?;
            ensure!(target.peers.have_results(2, 0));
            let third = target.request_proven(3)?;
            ensure!(target.peers.have_results(2, 1));
            target.from = ELSEWHERE;
            let fourth = target.request_proven(1)?;
            ensure!(target.peers.have_results(3, 1));
            for conn in [first, second, third, fourth] {
                conn.close();
            }
            drop(others);
            ensure!(eventually(|| owner.charged(part).1 == 0));
        }
        Ok(())
    }

    /// Listeners and connections get no worker while all workers for peers of their user run.
    #[test]
    fn requests_and_confirmations_wait_for_a_worker_of_the_user() -> Result {
        let budget = Budget::of(user(117), None)?;
        let target = Target::open(&budget)?;
        let owner = Owner::current(OwnerKind::Program)?;
        let workers = take_peer_workers(&budget, &owner)?;
        let conn = target.request(1)?;
        a_while();
        ensure_eq!(target.peers.accepted.get(), 0);
        drop(workers);
        ensure!(target.peers.have_results(1, 0));
        ensure!(target.half_open() > 0);
        let workers = take_peer_workers(&budget, &owner)?;
        conn.confirm(&[])?;
        a_while();
        ensure!(target.half_open() > 0);
        drop(workers);
        ensure!(eventually(|| target.half_open() == 0));
        conn.close();
        Ok(())
    }

    /// Requests whose address may be forged leave a half of the part to the others.
    #[test]
    fn unproven_requests_use_half_of_the_part() -> Result {
        let target = Target::open(&Budget::of(user(116), None)?)?;
        let others = target.leave(1 << 20)?;
        let first = target.request(1)?;
        ensure!(target.peers.cookie_after(0, 1).is_some());
        let second = target.request_proven(1)?;
        ensure!(target.peers.cookie_after(1, 1).is_some());
        drop(others);
        let third = target.request(2)?;
        ensure!(target.peers.cookie_after(2, 1).is_some());
        for conn in [first, second, third] {
            conn.close();
        }
        Ok(())
    }

    /// Requests that a program does not answer use up the room of their address. The endpoint
    /// demands a cookie then, and a request with one needs none of that room.
    #[test]
    fn a_proven_request_needs_no_room_of_its_address() -> Result {
        const MAX: u32 = MAX_UNCONFIRMED_OF_SOURCE as u32;
        const SERVICE: ServiceId = ServiceId::tcp(7);
        let target = Target::open(&Budget::of(user(118), None)?)?;
        let bound = target.endpoint.bound.as_ref().ok_or(EBADF)?;
        let link = target.domain.domain.link();
        let silent = TestListener::new()?;
        let ip = bound.name.ip();
        let listening = cm::listen(link.socket(), ip, SERVICE, 2 * MAX, silent.clone())?;
        let mut conns = KVec::new();
        for number in 1..=MAX {
            let conn = target.connect(SERVICE, 0x1000 + number, &[])?;
            conns.push(conn, GFP_KERNEL)?;
            ensure!(eventually(|| silent.requests.get() == number));
        }
        conns.push(target.request(1)?, GFP_KERNEL)?;
        ensure!(target.peers.cookie_after(0, 1).is_some());
        conns.push(target.request_proven(2)?, GFP_KERNEL)?;
        ensure!(target.peers.cookie_after(1, 1).is_some());
        for conn in conns {
            conn.close();
        }
        drop(listening);
        silent.pending.lock().clear();
        Ok(())
    }

    /// A burst of requests is handled without a cookie. A request beyond it makes nothing.
    #[test]
    fn a_request_beyond_the_rate_makes_nothing() -> Result {
        let target = Target::open(&Budget::of(user(112), None)?)?;
        let before = target.refused();
        let mut conns = KVec::new();
        for port in 1..=4 {
            conns.push(target.request(port)?, GFP_KERNEL)?;
        }
        ensure!(target.peers.have_results(4, 0));
        ensure_eq!(target.refused(), before);
        for conn in conns {
            conn.close();
        }
        ensure!(eventually(|| !target.has_state()));
        target.exhaust()?;
        for port in 5..=100 {
            let conn = target.request(port)?;
            let refused = u32::from(port - 4);
            ensure!(target.peers.cookie_after(4, refused).is_some());
            ensure!(!target.has_state());
            conn.close();
        }
        ensure!(target.refused() >= before + 96);
        Ok(())
    }

    /// A request with another authorization key makes nothing, also with a valid cookie, and leaves
    /// the requests without a cookie to those that have the key.
    #[test]
    fn a_request_with_another_key_makes_nothing() -> Result {
        const COUNT: u16 = 3 * UNPROVEN_BURST as u16;

        let target = Target::open(&Budget::of(user(117), None)?)?;
        let (unproven, key) = (target.refused(), target.count_of(Stat::CmKey));
        for port in 1..=COUNT {
            let auth_key = AuthKey::new([port as u8, 0, 0, 0]);
            let conn = target.request_keyed(port, None, auth_key)?;
            ensure!(eventually(|| target.peers.key.get() == u32::from(port)));
            ensure!(!target.has_state());
            conn.close();
        }
        let keyed = target.count_of(Stat::CmKey) - key;
        ensure!(keyed >= u64::from(COUNT));
        let conn = target.request(1)?;
        ensure!(target.peers.have_results(1, 0));
        ensure_eq!(target.refused(), unproven);
        conn.close();
        ensure!(eventually(|| !target.has_state()));
        target.exhaust()?;
        let conn = target.request(2)?;
        let cookie = target.peers.cookie_after(1, 1);
        conn.close();
        let conn = target.request_keyed(2, cookie, AuthKey::new([0, 0, 0, 1]))?;
        ensure!(eventually(|| target.peers.key.get() == u32::from(COUNT) + 1));
        ensure!(!target.has_state());
        conn.close();
        Ok(())
    }

    /// The cookie of a refusal makes the next request of that peer acceptable, and of no other one.
    #[test]
    fn the_peer_with_the_cookie_is_accepted() -> Result {
        let target = Target::open(&Budget::of(user(113), None)?)?;
        target.exhaust()?;
        let first = target.request(1)?;
        let cookie = target.peers.cookie_after(0, 1);
        ensure!(cookie.is_some());
        first.close();
        // A wrong one, and that of another peer.
        let wrong = cookie.and_then(|cookie| Cookie::new(cookie.get() ^ 1 << 63));
        let second = target.request_with(1, wrong)?;
        ensure!(target.peers.cookie_after(0, 2).is_some());
        second.close();
        let third = target.request_with(2, cookie)?;
        ensure!(target.peers.cookie_after(0, 3).is_some());
        ensure!(!target.has_state());
        third.close();
        let fourth = target.request_with(1, cookie)?;
        ensure!(target.peers.cookie_after(1, 3).is_some());
        ensure!(target.half_open() > 0);
        fourth.close();
        drop(target);
        // Another endpoint has another key.
        let other = Target::open(&Budget::of(user(114), None)?)?;
        other.exhaust()?;
        let fifth = other.request_with(1, cookie)?;
        ensure!(other.peers.cookie_after(0, 1).is_some());
        fifth.close();
        Ok(())
    }

    /// A cookie is valid in its period and in the next one, for its address.
    #[test]
    fn an_old_cookie_is_not_accepted() -> Result {
        let target = Target::open(&Budget::of(user(115), None)?)?;
        let then = target.exhaust()?;
        let filter = &target.endpoint.remote.request_filter;
        let ends = target.ends(THERE, 1)?;
        let begin = then / COOKIE_PERIOD * COOKIE_PERIOD - 3 * COOKIE_PERIOD;
        let Err(Refusal::Retry(cookie)) = filter.check(begin, &ends, None, false) else {
            return Err(EINVAL);
        };
        let cookie = Some(cookie);
        ensure!(filter.check(begin, &ends, cookie, false).is_ok());
        ensure!(filter
            .check(begin + 2 * COOKIE_PERIOD - 1, &ends, cookie, false)
            .is_ok());
        ensure!(filter
            .check(begin + 2 * COOKIE_PERIOD, &ends, cookie, false)
            .is_err());
        let others = target.ends(ELSEWHERE, 1)?;
        ensure!(filter.check(begin, &others, cookie, false).is_err());
        Ok(())
    }
}
