// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_half_open`: connections that peers have requested from an endpoint for reliable
//! datagrams, and not confirmed, share a part of the account of the endpoint's owner.
//!
//! The peers are consumers of connection management at another address of the loopback interface.
//! They have no QP.

use super::*;
use crate::{
    mem::{
        Budget,
        Part,
        PartAllowance, //
    },
    net::cm::{
        Conn,
        Connect,
        Consumer, //
    },
    provider::{
        av::{
            Av,
            AvAttr, //
        },
        ep::EpAttr,
        object::{
            force_close,
            Ident, //
        },
        wait::fixture::{
            eventually,
            ident,
            Count,
            TestDomain, //
        }, //
    },
    shim::aids::user, //
};
use core::net::{
    IpAddr,
    Ipv4Addr, //
};
use kfi_core::{
    enums::{
        AvType,
        EpType, //
    },
    flags::{
        Caps,
        OpFlags, //
    },
    rdm::{
        hello::{
            PeerEpoch,
            Refusal,
            HELLO_LEN, //
        },
        service_id,
        Hello, //
    }, //
};
use kfi_roce::{
    cm::{
        Event,
        Side, //
    },
    headers::Qpn,
    psn::Psn, //
};

/// The address of the peers.
const THERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// The peers, which count the answers and confirm nothing by themselves.
struct Peers {
    accepted: Arc<Count>,
    busy: Arc<Count>,
    others: Arc<Count>,
}

impl Peers {
    fn new() -> Result<Arc<Self>> {
        let peers = Self {
            accepted: Count::new()?,
            busy: Count::new()?,
            others: Count::new()?,
        };
        Ok(Arc::new(peers, GFP_KERNEL)?)
    }

    /// Waits until this many connections were accepted, and this many refused because the endpoint
    /// is busy. Returns false if they are not in time.
    fn were_told(&self, accepted: u32, busy: u32) -> bool {
        eventually(|| (self.accepted.get(), self.busy.get()) == (accepted, busy))
            && self.others.get() == 0
    }
}

impl Consumer for Peers {
    fn event(&self, _conn: &Arc<Conn>, event: &Event<'_>) {
        let count = match event {
            Event::Reply(_) => &self.accepted,
            Event::Rejected { private, .. } if Refusal::parse(private) == Some(Refusal::Busy) => {
                &self.busy
            }
            _ => &self.others,
        };
        count.add(1);
    }
}

/// An endpoint of `owner`. It is only the target of writes, so that it needs no CQ.
struct Target {
    endpoint: Arc<Endpoint>,
    av: Arc<Av>,
    owner: Budget,
    peers: Arc<Peers>,
    domain: TestDomain,
}

fn ident_of(owner: &Budget, fid: u64) -> Result<Ident> {
    Ok(Ident {
        budget: owner.clone(),
        ..ident(fid, fid)?
    })
}

fn open_av(domain: &TestDomain, owner: &Budget) -> Result<Arc<Av>> {
    let attr = AvAttr {
        kind: AvType::Table,
        count: 0,
        events: false,
    };
    Av::open(&domain.domain, attr, ident_of(owner, 3)?)
}

impl Target {
    fn open(owner: &Budget) -> Result<Self> {
        let domain = TestDomain::open()?;
        let av = open_av(&domain, owner)?;
        let attr = EpAttr {
            ep_type: EpType::Rdm,
            caps: Caps::RMA.union(Caps::REMOTE_WRITE),
            tx_op_flags: OpFlags::EMPTY,
            rx_op_flags: OpFlags::EMPTY,
            tx_size: 1,
            rx_size: 1,
            total_buffered_recv: 0,
            src_addr: None,
        };
        let endpoint = Endpoint::open(&domain.domain, attr, ident_of(owner, 4)?)?;
        let target = Self {
            endpoint,
            av,
            owner: owner.clone(),
            peers: Peers::new()?,
            domain,
        };
        target.endpoint.bind_av(&target.av)?;
        target.endpoint.enable()?;
        Ok(target)
    }

    /// Requests a connection from the peer at `port`.
    fn ask(&self, port: u16) -> Result<Arc<Conn>> {
        let bound = self.endpoint.bound.as_ref().ok_or(EBADF)?;
        let hello = Hello {
            peer_epoch: PeerEpoch {
                incarnation: random_u64(),
                epoch: 1,
            },
            port,
            reads: 1,
            caps: Caps::RMA,
            cookie: None,
        };
        let mut private = [0; HELLO_LEN];
        hello.put(&mut private).ok_or(EINVAL)?;
        let connect = Connect {
            link: self.domain.domain.link(),
            local: THERE,
            remote: bound.name.ip(),
            service_id: service_id(bound.name.port()),
            side: Side {
                qpn: Qpn::new(0x100 + u32::from(port)),
                starting_psn: Psn::new(0),
                responder_resources: 1,
                initiator_depth: 1,
                rnr_retry_count: 7,
                srq: false,
            },
            mtu: None,
            retry_count: 7,
            private: &private,
            context: 0,
        };
        cm::connect(&connect, self.peers.clone())
    }

    /// Returns the number of bytes that half-open connections use in their part.
    fn half_open(&self) -> u64 {
        self.owner.charged(Part::HalfOpen).1
    }

    /// Uses up the part except for `room` bytes.
    fn leave(&self, room: u64) -> Result<KVec<PartAllowance>> {
        let kept = self.owner.take_part(Part::HalfOpen, room)?;
        let mut taken = KVec::new();
        for bit in (0..u64::BITS - 1).rev() {
            if let Ok(allowance) = self.owner.take_part(Part::HalfOpen, 1 << bit) {
                taken.push(allowance, GFP_KERNEL)?;
            }
        }
        drop(kept);
        Ok(taken)
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
            let first = target.ask(1)?;
            assert!(target.peers.were_told(1, 0));
            let one = target.half_open();
            assert!(one > 0);
            // Room for another connection, and for all but one byte of a third one.
            let others = target.leave(one + (one - 1))?;
            let second = target.ask(2)?;
            assert!(target.peers.were_told(2, 0));
            let full = target.half_open();
            let third = target.ask(3)?;
            assert!(target.peers.were_told(2, 1));
            assert_eq!(target.half_open(), full);
            // The rest of the account is available to the owner.
            let more = open_av(&target.domain, &owner)?;
            force_close(&*more);
            // A confirmed connection is no longer half open.
            first.confirm(&[])?;
            assert!(eventually(|| target.half_open() == full - one));
            let fourth = target.ask(4)?;
            assert!(target.peers.were_told(3, 1));
            assert_eq!(target.half_open(), full);
            let fifth = target.ask(5)?;
            assert!(target.peers.were_told(3, 2));
            // A connection that the peer has given up does not count either.
            second.close();
            assert!(eventually(|| target.half_open() == full - one));
            let sixth = target.ask(6)?;
            assert!(target.peers.were_told(4, 2));
            for conn in [first, third, fourth, fifth, sixth] {
                conn.close();
            }
            drop(others);
            assert!(eventually(|| target.half_open() == 0));
        }
        Ok(())
    }
}
