// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_cm`: connections between two ends on a link on the loopback interface, whose
//! messages go through its QP 1. No QP is connected, because connection management knows QPs only
//! by their number.

use super::{
    cm::{
        connect,
        listen,
        service::PEER,
        Connect,
        MAX_OF_PEERS,
        MAX_UNCONFIRMED_OF_SOURCE, //
    },
    kunit_cm_pair::{
        params,
        side,
        Ends,
        Seen,
        TestListener,
        SERVICE, //
    },
    kunit_wire_pair::{
        datagrams,
        ONE,
        SIX,
        THREE,
        TWO, //
    },
    qp::ud::{
        self,
        Datagram, //
    },
    Path,
    Stat, //
};
use crate::{
    kunit::helpers::{
        a_while,
        eventually, //
    },
    mem::{
        Inline,
        Source, //
    }, //
};
use core::net::{
    IpAddr,
    Ipv4Addr, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kfi_core::addr::SockAddr;
use kfi_roce::{
    cm::{
        Reason,
        ServiceId,
        State,
        MAD_LEN, //
    },
    headers::Qpn,
    mtu::PathMtu,
    psn::Psn,
    ud::GSI_QKEY, //
};

#[kunit_tests(kfabric_cm)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_established_used_and_ended() -> Result {
        for ip in [TWO, SIX] {
            let ends = Ends::new(ip)?;
            let active = ends.request(0x123, 1)?;
            ensure!(active.state() == State::ReqSent);
            let request = ends.listener.next()?;
            ensure!(request.local() == ip && request.remote() == active.local());
            ensure!(request.service_id() == SERVICE);
            ensure!(Arc::ptr_eq(request.link(), &ends.link.0));
            ensure!(request.private().starts_with(&[1, 0]));
            let params = request.params();
            ensure!(params.qpn == Qpn::new(0x123) && params.starting_psn == Psn::new(0x123));
            ensure!((params.responder_resources, params.initiator_depth) == (5, 4));
            ensure!((params.retry_count, params.rnr_retry_count) == (3, 6));
            ensure!(request.path().mtu() == Ok(params.mtu));

            let passive = ends.accept(request, 0x456, 2)?;
            ensure!(passive.context() == 0x456 && active.context() == 0x123);
            ensure!(ends.active.sees(&[Seen::Reply(Qpn::new(0x456), 2)]));
            ensure!(active.state() == State::RepReceived);
            ensure!(passive.disconnect(&[]) == Err(ENOTCONN));
            active.confirm(&[3])?;
            ensure!(active.confirm(&[3]) == Err(ENOTCONN));
            ensure!(ends.passive.sees(&[Seen::Established(3)]));
            ensure!(!passive.communication_established());

            passive.disconnect(&[4])?;
            let [reply, over] = [Seen::Reply(Qpn::new(0x456), 2), Seen::Disconnected(4)];
            ensure!(ends.active.sees(&[reply, over]));
            ensure!(ends.passive.sees(&[Seen::Established(3), Seen::Released]));
            ensure!(active.disconnect(&[]) == Err(ENOTCONN));
            ensure!(eventually(|| active.state() == State::Closed));
            ensure!(eventually(|| passive.state() == State::Closed));
            active.close();
            passive.close();
        }
        Ok(())
    }

    #[test]
    fn either_end_can_reject() -> Result {
        let ends = Ends::new(TWO)?;
        let first = ends.request(2, 0)?;
        ends.listener.next()?.reject(Reason::CONSUMER_DEFINED, &[9]);
        let no = Seen::Rejected(Reason::CONSUMER_DEFINED, 9);
        ensure!(ends.active.sees(&[no]));
        // Dropping a request rejects it.
        let second = ends.request(3, 0)?;
        drop(ends.listener.next()?);
        let silent = Seen::Rejected(Reason::CONSUMER_DEFINED, 0);
        ensure!(ends.active.sees(&[no, silent]));
        // The active end can reject the connection too.
        let third = ends.request(4, 0)?;
        let passive = ends.accept(ends.listener.next()?, 5, 6)?;
        let reply = Seen::Reply(Qpn::new(5), 6);
        ensure!(ends.active.sees(&[no, silent, reply]));
        third.reject(Reason::CONSUMER_DEFINED, &[8])?;
        ensure!(ends
            .passive
            .sees(&[Seen::Rejected(Reason::CONSUMER_DEFINED, 8)]));
        for conn in [first, second, third, passive] {
            conn.close();
        }
        Ok(())
    }

    #[test]
    fn a_request_without_a_listener_is_rejected() -> Result {
        let mut ends = Ends::new(TWO)?;
        ends.listening = None;
        let conn = ends.request(2, 0)?;
        let no = Seen::Rejected(Reason::INVALID_SERVICE_ID, 0);
        ensure!(ends.active.sees(&[no]));
        ensure!(ends.stat(Stat::CmNoListener) == 1);
        conn.close();
        Ok(())
    }

    #[test]
    fn one_listener_per_address_and_service() -> Result {
        let mut ends = Ends::new(TWO)?;
        let socket = ends.link.0.socket().clone();
        let listener = TestListener::new()?;
        let at = |ip, service| listen(&socket, ip, service, 1, listener.clone());
        let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        ensure!(at(TWO, SERVICE).is_err_and(|error| error == EADDRINUSE));
        ensure!(at(any, SERVICE).is_err_and(|error| error == EADDRINUSE));
        // Listeners at another address, of another family, and of another service.
        let others = (at(ONE, SERVICE)?, at(SIX, SERVICE)?);
        let all = at(any, ServiceId::tcp(7))?;
        ensure!(at(TWO, ServiceId::tcp(7)).is_err_and(|error| error == EADDRINUSE));
        drop(all);
        drop(at(TWO, ServiceId::tcp(7))?);
        drop(others);
        // A listener for all addresses gets the request.
        ends.listening = None;
        let all = listen(&socket, any, SERVICE, 2, ends.listener.clone())?;
        let (active, passive) = ends.connected(2)?;
        drop(all);
        active.close();
        passive.close();
        Ok(())
    }

    #[test]
    fn a_request_without_an_answer_is_repeated() -> Result {
        let ends = Ends::new(TWO)?;
        let active = ends.request(2, 1)?;
        ends.listener.next()?.ignore();
        let passive = ends.accept(ends.listener.next()?, 3, 2)?;
        ensure!(ends.active.sees(&[Seen::Reply(Qpn::new(3), 2)]));
        ensure!(ends.listener.requests.get() == 2);
        ensure!(ends.stat(Stat::CmResent) > 0);
        active.close();
        passive.close();
        Ok(())
    }

    /// A peer that was asked to wait would repeat its request much later.
    #[test]
    fn a_request_that_was_asked_to_wait_is_rejected_instead() -> Result {
        let ends = Ends::new(TWO)?;
        let active = ends.request(2, 1)?;
        let request = ends.listener.next()?;
        // The repeated REQ is answered by an MRA.
        ensure!(eventually(|| ends.stat(Stat::CmDuplicates) > 0));
        request.ignore();
        ensure!(ends.active.sees(&[Seen::Rejected(Reason::NO_RESOURCES, 0)]));
        // Nothing of it is left at the listener.
        let again = ends.request(3, 1)?;
        let passive = ends.accept(ends.listener.next()?, 4, 2)?;
        for conn in [active, again, passive] {
            conn.close();
        }
        Ok(())
    }

    #[test]
    fn the_backlog_of_a_listener_is_limited() -> Result {
        let ends = Ends::new(TWO)?;
        let waiting = [ends.request(2, 0)?, ends.request(3, 0)?];
        ensure!(eventually(|| ends.listener.requests.get() == 2));
        let third = ends.request(4, 0)?;
        let no = Seen::Rejected(Reason::NO_RESOURCES, 0);
        ensure!(ends.active.sees(&[no]));
        ensure!(ends.stat(Stat::CmNoRoom) == 1);
        // A request that was answered does not count any more.
        let passive = ends.accept(ends.listener.next()?, 5, 0)?;
        let fourth = ends.request(6, 0)?;
        ensure!(eventually(|| ends.listener.requests.get() == 3));
        for conn in waiting {
            conn.close();
        }
        for conn in [third, fourth, passive] {
            conn.close();
        }
        Ok(())
    }

    /// One source has the backlog, and the next one still finds room.
    #[test]
    fn a_source_leaves_room_in_the_backlog() -> Result {
        let ends = Ends::with_backlog(TWO, 4)?;
        let mut conns = KVec::new();
        for number in 1..=4 {
            conns.push(ends.request(number + 1, 0)?, GFP_KERNEL)?;
            ensure!(eventually(|| ends.listener.requests.get() == number));
        }
        let no = Seen::Rejected(Reason::NO_RESOURCES, 0);
        conns.push(ends.request(6, 0)?, GFP_KERNEL)?;
        ensure!(ends.active.sees(&[no]));
        conns.push(ends.request_from(THREE, 7, 0)?, GFP_KERNEL)?;
        ensure!(eventually(|| ends.listener.requests.get() == 5));
        // It leaves room for a third one.
        conns.push(ends.request_from(THREE, 8, 0)?, GFP_KERNEL)?;
        ensure!(ends.active.sees(&[no, no]));
        ensure!(ends.stat(Stat::CmNoRoom) == 2);
        for conn in conns {
            conn.close();
        }
        Ok(())
    }

    /// The unconfirmed requests from one address are limited; requests from other addresses are not
    /// affected.
    #[test]
    fn unconfirmed_requests_of_an_address_are_limited() -> Result {
        const QPN: u32 = 0x1000;
        const MAX: u32 = MAX_UNCONFIRMED_OF_SOURCE as u32;
        let ends = Ends::with_backlog(TWO, 2 * MAX)?;
        let requests = |number| eventually(|| ends.listener.requests.get() == number);
        let mut conns = KVec::new();
        for number in 0..MAX {
            conns.push(ends.request(QPN + number, 0)?, GFP_KERNEL)?;
            ensure!(requests(number + 1));
        }
        ensure!(ends.active.is(&[]) && ends.stat(Stat::CmNoRoom) == 0);
        let no = Seen::Rejected(Reason::NO_RESOURCES, 0);
        conns.push(ends.request(2, 0)?, GFP_KERNEL)?;
        ensure!(ends.active.sees(&[no]) && ends.stat(Stat::CmNoRoom) == 1);
        let last = ends.listener.next()?;
        let number = last.params().qpn.get().checked_sub(QPN).ok_or(EINVAL)?;
        // A request from another address.
        conns.push(ends.request_from(THREE, 3, 0)?, GFP_KERNEL)?;
        ensure!(requests(MAX + 1));
        let other = ends.listener.next()?;
        ensure!(other.remote() == THREE);
        // An accepted request counts until it is confirmed.
        let passive = ends.accept(last, 4, 5)?;
        let reply = Seen::Reply(Qpn::new(4), 5);
        ensure!(ends.active.sees(&[no, reply]));
        conns.push(ends.request(6, 0)?, GFP_KERNEL)?;
        ensure!(ends.active.sees(&[no, reply, no]));
        conns.get(number as usize).ok_or(EINVAL)?.confirm(&[])?;
        ensure!(eventually(|| passive.state() == State::Established));
        conns.push(ends.request(7, 0)?, GFP_KERNEL)?;
        ensure!(requests(MAX + 2));
        conns.push(ends.request(8, 0)?, GFP_KERNEL)?;
        ensure!(ends.active.sees(&[no, reply, no, no]));
        // A rejected request does not count any more.
        drop(ends.listener.next()?);
        let rejected = Seen::Rejected(Reason::CONSUMER_DEFINED, 0);
        ensure!(ends.active.sees(&[no, reply, no, no, rejected]));
        conns.push(ends.request(9, 0)?, GFP_KERNEL)?;
        ensure!(requests(MAX + 3));
        ensure!(ends.stat(Stat::CmNoRoom) == 3);
        drop(other);
        for conn in &conns {
            conn.close();
        }
        passive.close();
        Ok(())
    }

    /// A peer whose connections are established leaves a quarter as many of those that peers may
    /// request to others as it has.
    #[test]
    fn established_connections_of_an_address_have_a_share() -> Result {
        // 205 + 205 / 4 is 256, and so is 205 + 41 + 41 / 4.
        const FIRST: u32 = 205;
        const SECOND: u32 = 41;
        kernel::static_assert!(MAX_OF_PEERS == 256);
        let ends = Ends::new(TWO)?;
        let mut conns = KVec::new();
        let mut connect = |local, qpn| -> Result<bool> {
            let before = ends.stat(Stat::CmNoRoom);
            let active = ends.request_from(local, qpn, 0)?;
            let full = || ends.stat(Stat::CmNoRoom) != before;
            ensure!(eventually(
                || full() || !ends.listener.pending.lock().is_empty()
            ));
            conns.push(active, GFP_KERNEL)?;
            if full() {
                return Ok(false);
            }
            let active = conns.last().ok_or(EINVAL)?.clone();
            let passive = ends.accept(ends.listener.next()?, qpn + 1, 0)?;
            ensure!(eventually(|| active.state() == State::RepReceived));
            active.confirm(&[])?;
            ensure!(eventually(|| passive.state() == State::Established));
            conns.push(passive, GFP_KERNEL)?;
            Ok(true)
        };
        for number in 0..FIRST {
            ensure!(connect(ONE, 2 + 2 * number)?);
        }
        ensure!(!connect(ONE, 0x1000)?);
        for number in 1..=SECOND {
            ensure!(connect(THREE, 0x1000 + 2 * number)?);
        }
        ensure!(!connect(THREE, 0x2000)?);
        for conn in conns {
            conn.close();
        }
        Ok(())
    }

    #[test]
    fn a_withdrawn_request_cannot_be_accepted() -> Result {
        let ends = Ends::new(TWO)?;
        let active = ends.request(2, 0)?;
        let request = ends.listener.next()?;
        active.close();
        // The REQ is withdrawn.
        ensure!(eventually(|| active.state() == State::Closed));
        a_while();
        let accepted = ends.accept(request, 3, 0);
        ensure!(accepted.is_err_and(|error| error == ECONNABORTED));
        ensure!(ends.active.is(&[]) && ends.passive.is(&[]));
        Ok(())
    }

    #[test]
    fn the_first_packet_establishes_a_connection() -> Result {
        let ends = Ends::new(TWO)?;
        let active = ends.request(2, 0)?;
        let passive = ends.accept(ends.listener.next()?, 3, 0)?;
        ensure!(ends.active.sees(&[Seen::Reply(Qpn::new(3), 0)]));
        ensure!(passive.communication_established());
        ensure!(!passive.communication_established());
        active.confirm(&[])?;
        passive.close();
        ensure!(ends
            .active
            .sees(&[Seen::Reply(Qpn::new(3), 0), Seen::Disconnected(0)]));
        // The consumer knows before the RTU comes, or the connection was closed.
        ensure!(ends.passive.is(&[]));
        active.close();
        Ok(())
    }

    #[test]
    fn a_request_from_another_address_does_not_end_a_connection() -> Result {
        let ends = Ends::new(TWO)?;
        let (active, passive) = ends.connected(2)?;
        // Another address uses the same GUID and QP number, which are not secret.
        let third_party = ends.request_from(THREE, 2, 0)?;
        let request = ends.listener.next()?;
        ensure!(request.remote() == THREE);
        ensure!(active.state() == State::Established);
        ensure!(passive.state() == State::Established);
        drop(request);
        for conn in [active, passive, third_party] {
            conn.close();
        }
        Ok(())
    }

    #[test]
    fn a_second_request_of_a_qp_ends_its_connection() -> Result {
        let ends = Ends::new(TWO)?;
        let (active, passive) = ends.connected(2)?;
        // The same QP requests another connection: both ends get the event that the first one has
        // ended.
        let again = ends.request(2, 0)?;
        let reply = Seen::Reply(Qpn::new(3), 2);
        ensure!(ends
            .passive
            .sees(&[Seen::Established(3), Seen::Disconnected(0)]));
        ensure!(eventually(|| ends.active.seen.lock().len() == 3));
        let seen = [
            reply,
            Seen::Rejected(Reason::STALE_CONN, 0),
            Seen::Disconnected(0),
        ];
        ensure!(seen.iter().all(|one| ends.active.seen.lock().contains(one)));
        for conn in [active, passive, again] {
            conn.close();
        }
        Ok(())
    }

    /// The QP number could be guessed, with a forged address.
    #[test]
    fn requests_beyond_the_limit_end_no_connection() -> Result {
        let ends = Ends::new(TWO)?;
        let (active, passive) = ends.connected(2)?;
        let mut others = KVec::new();
        for qpn in 0..16 {
            others.push(ends.request(1000 + qpn, 0)?, GFP_KERNEL)?;
            drop(ends.listener.next()?);
        }
        let again = ends.request(2, 0)?;
        drop(ends.listener.next()?);
        a_while();
        ensure!(active.state() == State::Established);
        ensure!(passive.state() == State::Established);
        for conn in others {
            conn.close();
        }
        for conn in [active, passive, again] {
            conn.close();
        }
        Ok(())
    }

    #[test]
    fn removing_the_link_ends_connections() -> Result {
        let ends = Ends::new(TWO)?;
        let (active, passive) = ends.connected(2)?;
        let pending = ends.request(4, 0)?;
        let request = ends.listener.next()?;
        let Ends {
            listener,
            listening,
            active: on_active,
            passive: on_passive,
            link,
            ..
        } = ends;
        let gone = link.0.clone();
        drop(link);
        ensure!(on_passive.sees(&[Seen::Established(3), Seen::Disconnected(0)]));
        ensure!(eventually(|| on_active.seen.lock().len() == 3));
        ensure!(on_active.seen.lock().contains(&Seen::Disconnected(0)));
        ensure!(on_active.seen.lock().contains(&Seen::Unreachable));
        ensure!(eventually(|| listener.gone.get() == 1));
        ensure!(active.state() == State::Closed);
        ensure!(active.disconnect(&[]) == Err(ENOTCONN));
        let accepted = request.accept(&side(9), &[], 0, on_passive);
        ensure!(accepted.is_err_and(|error| error == ECONNABORTED));
        let again = listen(gone.socket(), TWO, SERVICE, 2, listener);
        ensure!(again.is_err_and(|error| error == ENODEV));
        drop(listening);
        for conn in [active, passive, pending] {
            conn.close();
        }
        Ok(())
    }

    #[test]
    fn invalid_datagrams_to_qp_1_are_dropped() -> Result {
        struct NoReceives;
        impl ud::Consumer for NoReceives {
            fn datagram(&self, _datagram: &Datagram<'_>) -> Result<(), Stat> {
                Err(Stat::DropNoReceive)
            }
        }
        let ends = Ends::new(TWO)?;
        // A datagram with the Q key that does not come from QP 1, and one that is too short.
        let addr = SockAddr::new(ONE, 0, 0).map_err(|_| EINVAL)?;
        let consumer = Arc::new(NoReceives, GFP_KERNEL)?;
        let qp = datagrams(&ends.link, &addr, GSI_QKEY, consumer)?;
        let path = Path::new(&ends.link.0, ONE, TWO)?;
        for len in [0, 4, MAD_LEN] {
            let bytes = [0xa5; MAD_LEN];
            let bytes = bytes.get(..len).unwrap_or_default();
            let bytes = Inline::from_slice(bytes).ok_or(EINVAL)?;
            qp.send(&path, &PEER, &Source::Inline(&bytes))?;
        }
        ensure!(eventually(|| ends.stat(Stat::DropCm) == 3));
        qp.close();
        Ok(())
    }

    #[test]
    fn invalid_requests_are_refused() -> Result {
        let ends = Ends::new(TWO)?;
        let error_of = |remote: IpAddr, private: &[u8], mtu| {
            let params = Connect {
                mtu,
                ..params(&ends.link, remote, 2, private)
            };
            connect(&params, ends.active.clone()).err()
        };
        ensure!(error_of(SIX, &[], None) == Some(EINVAL));
        ensure!(error_of(Ipv4Addr::BROADCAST.into(), &[], None) == Some(EINVAL));
        ensure!(error_of(TWO, &[0; 93], None) == Some(EINVAL));
        let most = PathMtu::Mtu4096;
        let carries = Path::new(&ends.link.0, ONE, TWO)?.mtu();
        if carries.is_ok_and(|mtu| mtu < most) {
            ensure!(error_of(TWO, &[], Some(most)) == Some(EINVAL));
        }
        ensure!(ends.active.is(&[]));
        Ok(())
    }
}
