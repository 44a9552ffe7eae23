// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_rc_modify`: an RC QP takes its path by changes of its state, drains its send
//! queue, and is used again after RESET. kfi_roce tests the transitions themselves.

use crate::{
    kunit::helpers::{
        a_while,
        eventually,
        rx_skb,
        user, //
    },
    mem::Budget,
    net::{
        del,
        kunit_rc_pair::{
            default_attr,
            End,
            Pair,
            SEND, //
        },
        kunit_wire_pair::{
            buffer,
            with_pattern,
            TestLink,
            ONE,
            THREE,
            TWO, //
        },
        NetNs,
        Path,
        Stat, //
    }, //
};
use core::net::IpAddr;
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Release, //
        },
        Arc, //
    }, //
};
use kfi_roce::{
    headers::{
        Bth,
        Headers,
        SendEnd, //
    },
    packet::Packet,
    psn::Psn,
    rc::{
        Attr,
        Status, //
    },
    state::{
        Mask,
        State, //
    }, //
};

/// Receives that are never used up.
const PLENTY: u32 = 1 << 20;

fn to(state: State) -> Attr {
    Attr {
        state,
        ..default_attr()
    }
}

/// Changes the state without attributes.
fn change(end: &End, state: State) -> Result {
    end.qp.modify(&to(state), Mask::NONE, None)
}

/// Connects two ends at these addresses.
fn connect(link: &TestLink, (a, from): (&End, IpAddr), (b, to): (&End, IpAddr)) -> Result {
    a.connect(&Path::new(&link.0, from, to)?, b, &default_attr())?;
    b.connect(&Path::new(&link.0, to, from)?, a, &default_attr())
}

/// Changes the path of an end in SQD.
fn move_to(end: &End, path: &Arc<Path>) -> Result {
    end.qp.modify(&to(State::Sqd), Mask::AV, Some(path))
}

#[kunit_tests(kfabric_rc_modify)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_qp_is_connected_to_another_peer() -> Result {
        let pair = Pair::default()?;
        let (a, b, link) = (&pair.a, &pair.b, &pair.link);
        ensure!(pair.works()?);
        let number = a.qp.number();
        // Work requests and a timer are left when the QP returns to RESET.
        b.peer.posted.store(0, Release);
        let payload = buffer(3000)?;
        for _ in 0..40 {
            a.post(SEND, &payload)?;
        }
        ensure!(eventually(|| a.peer.refused.load(Acquire) > 0));
        let ended = a.peer.ended();
        change(a, State::Reset)?;
        let sent = a.stat(Stat::TxPackets);
        ensure!(a.qp.state() == State::Reset && a.qp.number() == number);
        ensure!(a.post(SEND, &payload) == Err(EINVAL));
        a_while();
        // Nothing is sent, completed or reported.
        ensure_eq!(a.stat(Stat::TxPackets), sent);
        ensure_eq!(a.peer.ended(), ended);
        ensure_eq!(a.peer.failed.load(Acquire), 0);
        // Their memory is released.
        ensure!(a.qp.kind.sending.lock().works.iter().all(Option::is_none));

        // The peer and the own address are others now.
        let c = End::new(link, 64)?;
        connect(link, (a, THREE), (&c, ONE))?;
        ensure!(a.qp.state() == State::Rts && a.qp.number() == number);
        for _ in 0..100 {
            ensure!(a.run(SEND, &payload)? == Some(Status::Success));
            ensure!(c.run(SEND, &payload)? == Some(Status::Success));
        }
        ensure_eq!(c.peer.received(), 100);
        ensure_eq!(a.peer.ended(), ended + 100);
        // The last peer is another host for this connection.
        let dropped = || a.stat(Stat::DropDestination) + a.stat(Stat::DropSource);
        let before = dropped();
        b.post(SEND, &payload)?;
        ensure!(eventually(|| dropped() > before));
        // It can be the peer again, at any address of the link.
        for end in [a, b] {
            change(end, State::Error)?;
            change(end, State::Reset)?;
        }
        b.peer.posted.store(PLENTY, Release);
        connect(link, (a, TWO), (b, THREE))?;
        ensure!(pair.works()?);
        ensure_eq!(a.peer.in_atomic.load(Acquire), 0);
        Ok(())
    }

    #[test]
    fn packets_of_the_last_connection_are_dropped() -> Result {
        let budget = Budget::of(user(41), None)?;
        let pair = Pair::of(ONE, TWO, &default_attr(), &budget)?;
        let (a, b, link) = (&pair.a, &pair.b, &pair.link);
        ensure!(pair.works()?);
        let received = b.peer.received();
        // Packets wait as long as the user has no worker.
        let mut workers = KVec::new();
        while let Some(worker) = budget.enter_worker() {
            workers.push(worker, GFP_KERNEL)?;
        }
        a.post(SEND, &buffer(8)?)?;
        ensure!(eventually(|| !b.qp.inbox.is_empty()));
        let before = b.stat(Stat::DropState);
        change(b, State::Reset)?;
        ensure!(b.qp.inbox.is_empty());
        ensure!(b.stat(Stat::DropState) > before);
        change(a, State::Reset)?;

        // A packet that was accepted before RESET is queued afterwards. It has the PSN that the
        // next peer will use.
        let c = End::new(link, 64)?;
        connect(link, (b, TWO), (&c, THREE))?;
        let bth = Bth::new(b.qp.number(), Psn::new(c.qp.number().get()));
        let send = Packet::new(bth, Headers::SendOnly(SendEnd::Plain), 8);
        let mut before = b.stat(Stat::DropState);
        for (from, valid) in [(ONE, false), (THREE, true)] {
            let path = Path::new(&link.0, from, TWO)?;
            let skb = with_pattern(&path, &send)?;
            let skb = rx_skb(skb.bytes(), 20, 64, 1000)?;
            ensure!(b.qp.inbox.push(skb).is_ok());
            workers.clear();
            b.qp.wake();
            if valid {
                ensure!(eventually(|| b.peer.received() == received + 1));
            } else {
                ensure!(eventually(|| b.stat(Stat::DropState) == before + 1));
                ensure_eq!(b.peer.received(), received);
                before += 1;
            }
        }
        ensure_eq!(b.stat(Stat::DropState), before);
        Ok(())
    }

    #[test]
    fn a_drained_qp_moves_to_another_path() -> Result {
        let pair = Pair::default()?;
        let (a, b, link) = (&pair.a, &pair.b, &pair.link);
        ensure!(pair.works()?);
        let before = a.peer.ended();
        b.peer.posted.store(0, Release);
        let payload = buffer(100)?;
        for _ in 0..3 {
            a.post(SEND, &payload)?;
        }
        ensure!(eventually(|| a.peer.refused.load(Acquire) > 0));
        let sqd = Attr {
            en_sqd_async_notify: true,
            ..to(State::Sqd)
        };
        a.qp.modify(&sqd, Mask::EN_SQD_ASYNC_NOTIFY, None)?;
        // The sends that have begun do not end yet.
        let there = Path::new(&link.0, THREE, TWO)?;
        ensure!(change(a, State::Rts) == Err(EINVAL));
        ensure!(change(a, State::Sqd) == Err(EINVAL));
        ensure!(move_to(a, &there) == Err(EINVAL));
        // Others can be posted, and wait.
        for _ in 0..5 {
            a.post(SEND, &payload)?;
        }
        a_while();
        ensure!(a.qp.state() == State::Sqd && a.peer.ended() == before);
        ensure_eq!(a.peer.drained.load(Acquire), 0);
        b.peer.posted.store(PLENTY, Release);
        ensure!(eventually(|| a.peer.drained.load(Acquire) == 1));
        // The completions were reported before. The peer may have refused the first send before the
        // others began.
        let ended = a.peer.ended();
        ensure!((before + 1..=before + 3).contains(&ended));
        a_while();
        ensure_eq!(a.peer.ended(), ended);
        ensure_eq!(a.peer.drained.load(Acquire), 1);

        // The other end has nothing under way, and requests no report.
        change(b, State::Sqd)?;
        move_to(a, &there)?;
        move_to(b, &Path::new(&link.0, TWO, THREE)?)?;
        for end in [a, b] {
            change(end, State::Rts)?;
        }
        ensure!(eventually(|| a.peer.ended() == before + 8));
        ensure!(a.peer.status() == Some(Status::Success));
        ensure!(pair.works()?);
        ensure_eq!(b.peer.drained.load(Acquire), 0);
        // Packets along the earlier path are those of another host.
        let bth = Bth::new(b.qp.number(), Psn::new(0));
        let send = Packet::new(bth, Headers::SendOnly(SendEnd::Plain), 0);
        let back = Path::new(&link.0, ONE, TWO)?;
        back.send(with_pattern(&back, &send)?)?;
        ensure!(eventually(|| b.stat(Stat::DropSource) == 1));
        Ok(())
    }

    #[test]
    fn the_report_of_a_drained_queue_comes_at_once() -> Result {
        let pair = Pair::default()?;
        let a = &pair.a;
        let sqd = Attr {
            en_sqd_async_notify: true,
            ..to(State::Sqd)
        };
        for reports in 1..4 {
            a.qp.modify(&sqd, Mask::EN_SQD_ASYNC_NOTIFY, None)?;
            ensure!(eventually(|| a.peer.drained.load(Acquire) == reports));
            change(a, State::Rts)?;
            ensure!(pair.works()?);
            ensure_eq!(a.peer.drained.load(Acquire), reports);
        }
        // A draining QP may fail: then nothing is drained.
        pair.b.peer.posted.store(0, Release);
        a.post(SEND, &buffer(8)?)?;
        ensure!(eventually(|| a.peer.refused.load(Acquire) > 0));
        a.qp.modify(&sqd, Mask::EN_SQD_ASYNC_NOTIFY, None)?;
        change(a, State::Error)?;
        ensure!(eventually(|| a.peer.status() == Some(Status::Flushed)));
        a_while();
        ensure_eq!(a.peer.drained.load(Acquire), 3);
        Ok(())
    }

    #[test]
    fn a_qp_is_reset_during_transfers() -> Result {
        let pair = Pair::default()?;
        let (a, b, link) = (&pair.a, &pair.b, &pair.link);
        let payload = buffer(20_000)?;
        for round in 0..30 {
            let before = b.peer.received();
            for _ in 0..20 {
                a.post(SEND, &payload)?;
                b.post(SEND, &payload)?;
            }
            if round % 2 == 0 {
                ensure!(eventually(|| b.peer.received() > before));
            }
            change(a, State::Reset)?;
            let (ended, received) = (a.peer.ended(), a.peer.received());
            ensure_eq!(a.peer.open.load(Acquire), 0);
            change(b, State::Reset)?;
            ensure_eq!(b.peer.open.load(Acquire), 0);
            ensure!(a.peer.ended() == ended && a.peer.received() == received);
            // Every completion was that of a successful work request.
            ensure!(a.peer.status() != Some(Status::Flushed));
            connect(link, (a, ONE), (b, TWO))?;
            ensure!(pair.works()?);
        }
        ensure_eq!(a.peer.failed.load(Acquire), 0);
        ensure_eq!(b.peer.failed.load(Acquire), 0);
        Ok(())
    }

    #[test]
    fn a_change_that_is_refused_changes_nothing() -> Result {
        let pair = Pair::default()?;
        let (a, link) = (&pair.a, &pair.link);
        let elsewhere = Path::new(&link.0, THREE, TWO)?;
        change(a, State::Sqd)?;
        let bad = Attr {
            retry_cnt: 8,
            ..to(State::Sqd)
        };
        let with_retries = Mask::AV.with(Mask::RETRY_CNT);
        ensure!(a.qp.modify(&bad, with_retries, Some(&elsewhere)) == Err(EINVAL));
        ensure!(a.qp.modify(&to(State::Sqd), Mask::AV, None) == Err(EINVAL));
        ensure!(a.qp.modify(&to(State::Sqd), Mask::NONE, Some(&elsewhere)) == Err(EINVAL));
        change(a, State::Rts)?;
        ensure!(pair.works()?);
        change(a, State::Reset)?;

        // Without its link a QP cannot be used any more.
        del(&NetNs::current()?, link.0.name())?;
        let init = to(State::Init);
        ensure!(a.qp.modify(&init, Mask::RC_TO_INIT, None) == Err(ENODEV));
        ensure!(change(a, State::Reset).is_ok());
        ensure!(change(&pair.b, State::Error).is_ok());
        // A path of other sockets is no path of the QP.
        let next_link = TestLink::new()?;
        let path = Path::new(&next_link.0, ONE, TWO)?;
        ensure!(a.qp.modify(&to(State::Rtr), Mask::RC_TO_RTR, Some(&path)) == Err(EINVAL));
        let end = End::new(&next_link, 1)?;
        end.qp.modify(&init, Mask::RC_TO_INIT, None)?;
        let old = Path::new(&link.0, ONE, TWO)?;
        ensure!(end.qp.modify(&to(State::Rtr), Mask::RC_TO_RTR, Some(&old)) == Err(EINVAL));
        ensure!(end
            .qp
            .modify(&to(State::Rtr), Mask::RC_TO_RTR, Some(&path))
            .is_ok());
        Ok(())
    }
}
