// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_rc`: reliable connections between QPs of one host.
//!
//! kfi_roce implements the protocol and has its tests. These tests cover the integration of
//! packets, workers, timers and memory in a kernel, and its teardown. Both ends are on a link on
//! the loopback interface, see suite `kfabric_wire`.

use super::{
    del,
    kunit_rc_pair::{
        default_attr,
        plain,
        End,
        Pair,
        Peer,
        READ,
        REGION,
        RKEY,
        SEND,
        VA,
        WRITE, //
    },
    kunit_wire_pair::{
        buffer,
        TestLink,
        ONE,
        SIX,
        THREE,
        TWO, //
    },
    qp::rc::INLINE_HEADER_MAX,
    NetNs,
    Path,
    Stat, //
};
use crate::{
    kunit::helpers::{
        a_while,
        eventually,
        thread, //
    },
    mem::{
        self,
        MemRef, //
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
        Arc,
    }, //
};
use kfi_roce::{
    headers::{
        Bth,
        Headers,
        SendEnd, //
    },
    mtu::PathMtu,
    packet::Packet,
    psn::Psn,
    rc::{
        AckTimeout,
        Attr,
        Op,
        Status, //
    },
    state::{
        Mask,
        State, //
    }, //
};

/// The number of messages in tests with many messages.
const MANY: u64 = 2000;

/// Sends, writes and reads messages of many lengths.
fn exchange(from: IpAddr, to: IpAddr, mtu: PathMtu, most: usize) -> Result<bool> {
    let pair = Pair::new(
        from,
        to,
        &Attr {
            path_mtu: mtu,
            ..default_attr()
        },
    )?;
    let (a, b) = (&pair.a, &pair.b);
    for len in [
        0, 1, 3, 255, 256, 257, 1023, 1024, 1025, 4096, 4097, 70_001, REGION,
    ] {
        let len = len.min(most);
        let payload = buffer(len)?;
        if a.run(SEND, &payload)? != Some(Status::Success) {
            pr_err!("SEND of {} bytes failed\n", len);
            return Ok(false);
        }
        let ended = (*b.peer.last.lock()).ok_or(EIO)?;
        let same = mem::memref::equal(&b.peer.receive.slice(0, len), &payload);
        if ended.len as usize != len || !same {
            pr_err!("SEND of {} bytes: other than sent\n", len);
            return Ok(false);
        }
        if a.run(WRITE, &payload)? != Some(Status::Success) {
            pr_err!("WRITE of {} bytes failed\n", len);
            return Ok(false);
        }
        if !mem::memref::equal(&b.peer.region.slice(0, len), &payload) {
            pr_err!("WRITE of {} bytes: other than sent\n", len);
            return Ok(false);
        }
        let back = MemRef::buffer(len)?;
        if a.run(READ, &back)? != Some(Status::Success) || !mem::memref::equal(&back, &payload) {
            pr_err!("READ of {} bytes failed\n", len);
            return Ok(false);
        }
    }
    Ok(true)
}

/// Runs four threads, `at_a` of them at one end and the others at the other. Each posts `each`
/// operations of `len` bytes with `post`, of which `sends` are SENDs. `post` gets the number of
/// each operation, and is called again if there was no room. Returns whether everything succeeded.
fn posters(
    at_a: u32,
    each: u64,
    sends: u32,
    len: usize,
    post: fn(&End, &MemRef, u64) -> Result,
) -> Result<bool> {
    let pair = Arc::new(Pair::default()?, GFP_KERNEL)?;
    let mut posters = KVec::new();
    for poster in 0..4 {
        let pair = pair.clone();
        let memory = MemRef::buffer(len)?;
        let poster = thread(move || {
            let end = if poster < at_a { &pair.a } else { &pair.b };
            let mut posted = 0;
            while posted < each {
                match post(end, &memory, posted) {
                    Ok(()) => posted += 1,
                    Err(error) if error == EAGAIN => crate::shim::sched::cond_resched(),
                    Err(_) => break,
                }
            }
        })?;
        posters.push(poster, GFP_KERNEL)?;
    }
    drop(posters);
    let (a, b) = (&pair.a.peer, &pair.b.peer);
    let at_b = 4 - at_a;
    let (from_a, from_b) = (u64::from(at_a) * each, u64::from(at_b) * each);
    let ended = eventually(|| a.ended() as u64 == from_a && b.ended() as u64 == from_b);
    let good = |peer: &Peer| {
        let done = peer.done.lock();
        done.iter().all(|(_, status)| *status == Status::Success)
    };
    let received = a.received() == at_b * sends && b.received() == at_a * sends;
    Ok(ended && good(a) && good(b) && received)
}

#[kunit_tests(kfabric_rc)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_many_lengths_arrive() -> Result {
        ensure!(exchange(ONE, TWO, PathMtu::Mtu1024, 300_000)?);
        Ok(())
    }

    #[test]
    fn messages_arrive_over_ipv6() -> Result {
        if cfg!(CONFIG_IPV6) {
            ensure!(exchange(SIX, SIX, PathMtu::Mtu4096, REGION)?);
        }
        Ok(())
    }

    #[test]
    fn messages_arrive_in_small_packets() -> Result {
        ensure!(exchange(ONE, TWO, PathMtu::Mtu256, 70_001)?);
        Ok(())
    }

    #[test]
    fn an_inline_header_precedes_the_memory() -> Result {
        let pair = Pair::default()?;
        let (a, b) = (&pair.a, &pair.b);
        let mut runs = 0;
        for inline_header in [0, 1, 16, INLINE_HEADER_MAX] {
            let bytes = [0xa5; INLINE_HEADER_MAX];
            let bytes = bytes.get(..inline_header).ok_or(EINVAL)?;
            for len in [0, 1, 1023, 1024 - inline_header, 1024, 5000] {
                let payload = buffer(len)?;
                let before = a.peer.ended();
                a.send(bytes, &payload)?;
                ensure!(eventually(|| a.peer.ended() > before));
                ensure!(a.peer.status() == Some(Status::Success));
                let ended = (*b.peer.last.lock()).ok_or(EIO)?;
                ensure_eq!(ended.len as usize, inline_header + len);
                let mut head = [0; INLINE_HEADER_MAX];
                let head = head.get_mut(..inline_header).ok_or(EINVAL)?;
                mem::payload::peek(head, &b.peer.receive, 0);
                ensure!(*head == *bytes);
                ensure!(mem::memref::equal(
                    &b.peer.receive.slice(inline_header, len),
                    &payload
                ));
                // The run has ended when all completions are reported.
                ensure!(eventually(|| b.peer.runs.load(Acquire) > runs));
                runs = b.peer.runs.load(Acquire);
            }
        }
        // An operation without an inline header uses the slot of one with it.
        ensure!(a.run(SEND, &buffer(10)?)? == Some(Status::Success));
        ensure_eq!((*b.peer.last.lock()).map_or(0, |ended| ended.len), 10);
        let long = [0; INLINE_HEADER_MAX + 1];
        ensure!(a.send(&long, &MemRef::empty()) == Err(EINVAL));
        Ok(())
    }

    #[test]
    fn an_inline_header_can_change_while_the_peer_is_not_ready() -> Result {
        let pair = Pair::default()?;
        let (a, b) = (&pair.a, &pair.b);
        let payload = buffer(3000)?;
        let refused = || a.peer.refused.load(Acquire);
        for _ in 0..50 {
            b.peer.posted.store(0, Release);
            let (ended, before) = (a.peer.ended(), refused());
            a.send(b"first", &payload)?;
            a.send(b"", &payload)?;
            ensure!(eventually(|| refused() > before));
            let mut seen = 0;
            a.qp.rewrite(|context, inline_header| {
                seen += 1;
                if context == ended as u64 && *inline_header == *b"first" {
                    inline_header.copy_from_slice(b"other");
                }
            });
            // Only one message has an inline header.
            ensure_eq!(seen, 1);
            // The message that was on its way then is refused, and the next one was built after the
            // change.
            let since = refused();
            ensure!(eventually(|| refused() - since >= 2));
            b.peer.posted.store(1, Release);
            ensure!(eventually(|| a.peer.ended() == ended + 1));
            let mut head = [0; 5];
            mem::payload::peek(&mut head, &b.peer.receive, 0);
            ensure!(head == *b"other");
            ensure!(mem::memref::equal(&b.peer.receive.slice(5, 3000), &payload));
            b.peer.posted.store(1, Release);
            ensure!(eventually(|| a.peer.ended() == ended + 2));
        }
        Ok(())
    }

    #[test]
    fn a_message_carries_immediate_data_or_a_key() -> Result {
        let pair = Pair::default()?;
        let (a, b) = (&pair.a, &pair.b);
        let payload = buffer(100)?;
        for end in [SendEnd::Imm(7), SendEnd::Invalidate(8), SendEnd::Plain] {
            ensure!(a.run(Op::Send(end), &payload)? == Some(Status::Success));
            let last = *b.peer.last.lock();
            ensure!(last.is_some_and(|last| last.end == end && last.len == 100 && !last.write));
        }
        let imm = Op::Write {
            va: VA + 5,
            rkey: RKEY,
            imm: Some(9),
        };
        ensure!(a.run(imm, &payload)? == Some(Status::Success));
        let last = *b.peer.last.lock();
        ensure!(last.is_some_and(|last| last.end == SendEnd::Imm(9) && last.write));
        ensure!(mem::memref::equal(&b.peer.region.slice(5, 100), &payload));
        ensure_eq!(b.peer.written.load(Acquire), 1);
        Ok(())
    }

    #[test]
    fn atomics_return_the_old_value() -> Result {
        let pair = Pair::default()?;
        let (a, b) = (&pair.a, &pair.b);
        mem::payload::store(&b.peer.region, 16, &40u64.to_ne_bytes());
        let value = |memory: &MemRef, at| {
            let mut bytes = [0; 8];
            mem::payload::peek(&mut bytes, memory, at);
            u64::from_ne_bytes(bytes)
        };
        let before = MemRef::buffer(8)?;
        let add = Op::FetchAdd {
            va: VA + 16,
            rkey: RKEY,
            add: 2,
        };
        ensure!(a.run(add, &before)? == Some(Status::Success));
        ensure!(value(&before, 0) == 40 && value(&b.peer.region, 16) == 42);
        let swap = |compare| Op::CompareSwap {
            va: VA + 16,
            rkey: RKEY,
            compare,
            swap: 99,
        };
        ensure!(a.run(swap(41), &before)? == Some(Status::Success));
        ensure!(value(&before, 0) == 42 && value(&b.peer.region, 16) == 42);
        ensure!(a.run(swap(42), &before)? == Some(Status::Success));
        ensure!(value(&before, 0) == 42 && value(&b.peer.region, 16) == 99);
        // An atomic must have 8 bytes.
        ensure!(a.post(add, &MemRef::buffer(4)?) == Err(EINVAL));
        Ok(())
    }

    #[test]
    fn many_messages_complete_in_order() -> Result {
        let pair = Pair::default()?;
        let (a, b) = (&pair.a, &pair.b);
        let payload = buffer(8)?;
        let request = plain(SEND);
        let mut posted = 0;
        while posted < MANY {
            match a.qp.queue(&request, &[], &mut payload.clone(), posted) {
                Ok(()) => posted += 1,
                Err(error) if error == EAGAIN => {
                    crate::shim::sched::cond_resched();
                }
                Err(error) => return Err(error),
            }
            a.qp.push_only();
        }
        ensure!(eventually(|| a.peer.ended() as u64 == MANY));
        ensure_eq!(u64::from(b.peer.received()), MANY);
        let done = a.peer.done.lock();
        let in_order = done.iter().enumerate().all(|(index, (context, status))| {
            *context == index as u64 && *status == Status::Success
        });
        ensure!(in_order);
        // One acknowledgement answers many messages.
        ensure!(b.stat(Stat::AckTx) < MANY);
        // No packet is lost on this path.
        ensure_eq!(a.stat(Stat::Retries), 0);
        Ok(())
    }

    #[test]
    fn the_poster_runs_the_peers_work_to_completion() -> Result {
        let pair = Pair::default()?;
        let (a, b) = (&pair.a, &pair.b);
        let payload = buffer(8)?;
        let request = plain(SEND);
        // Softirqs may have been delayed by something else at times.
        let mut done_at_once = 0;
        for round in 0..100 {
            a.qp.queue(&request, &[], &mut payload.clone(), round)?;
            a.qp.push();
            // The peer has received the message, and its acknowledgement has arrived.
            let received = u64::from(b.peer.received()) == round + 1;
            if received && a.peer.ended() as u64 == round + 1 {
                done_at_once += 1;
            }
            ensure!(eventually(|| a.peer.ended() as u64 == round + 1));
        }
        let on_top = !cfg!(CONFIG_PREEMPT_RT);
        ensure!(!on_top || done_at_once > 50);
        ensure!(!on_top || b.stat(Stat::RxInline) > 50);
        ensure!(b.stat(Stat::RxInline) <= b.stat(Stat::RxPackets));
        Ok(())
    }

    /// The peer has no timer that could recover a packet that is not processed.
    #[test]
    fn posters_at_one_end_run_all_work() -> Result {
        ensure!(posters(4, 1000, 1000, 100, |end, memory, number| {
            let request = plain(SEND);
            let queued = end.qp.queue(&request, &[], &mut memory.clone(), number);
            end.qp.push();
            queued
        })?);
        Ok(())
    }

    #[test]
    fn posters_at_both_ends_run_all_work() -> Result {
        ensure!(posters(2, 500, 250, 1500, |end, memory, number| {
            let request = plain(if number % 2 == 0 { SEND } else { READ });
            let queued = end.qp.queue(&request, &[], &mut memory.clone(), number);
            if queued.is_err() || number % 5 == 4 {
                end.qp.push();
            }
            queued
        })?);
        Ok(())
    }

    #[test]
    fn posts_to_a_full_queue_are_refused() -> Result {
        let pair = Pair::default()?;
        let (a, b) = (&pair.a, &pair.b);
        b.peer.posted.store(0, Release);
        let payload = buffer(8)?;
        for _ in 0..64 {
            ensure!(a.post(SEND, &payload).is_ok());
        }
        ensure!(a.post(SEND, &payload) == Err(EAGAIN));
        // No message is lost, although no receive was available.
        ensure!(eventually(|| a.stat(Stat::RnrRx) > 0));
        b.peer.posted.store(64, Release);
        ensure!(eventually(|| a.peer.ended() == 64));
        ensure_eq!(b.peer.received(), 64);
        ensure!(b.stat(Stat::RnrTx) > 0);
        Ok(())
    }

    #[test]
    fn a_peer_that_is_never_ready_fails_the_qp() -> Result {
        let pair = Pair::new(
            ONE,
            TWO,
            &Attr {
                rnr_retry: 3,
                ..default_attr()
            },
        )?;
        let (a, b) = (&pair.a, &pair.b);
        b.peer.posted.store(0, Release);
        let payload = buffer(8)?;
        a.post(SEND, &payload)?;
        a.post(SEND, &payload)?;
        ensure!(eventually(|| a.peer.ended() == 2));
        ensure!(a.peer.done.lock().first().map(|done| done.1) == Some(Status::RnrRetryExceeded));
        ensure!(a.peer.status() == Some(Status::Flushed));
        ensure!(eventually(|| a.peer.failed.load(Acquire) == 1));
        ensure!(a.qp.state() == State::Error);
        // Flushed immediately, and reported.
        ensure!(a.run(SEND, &payload)? == Some(Status::Flushed));
        ensure_eq!(a.peer.failed.load(Acquire), 1);
        Ok(())
    }

    #[test]
    fn a_missing_peer_fails_the_qp() -> Result {
        let pair = Pair::new(
            ONE,
            TWO,
            &Attr {
                // The timeout is 4 ms.
                timeout: AckTimeout::from_code(10).unwrap_or_default(),
                retry_cnt: 2,
                ..default_attr()
            },
        )?;
        ensure!(pair.works()?);
        pair.b.qp.close();
        let payload = buffer(100)?;
        ensure!(pair.a.run(SEND, &payload)? == Some(Status::RetryExceeded));
        ensure!(eventually(|| pair.a.peer.failed.load(Acquire) == 1));
        ensure!(pair.a.stat(Stat::Timeouts) >= 2);
        // Nothing more is sent.
        a_while();
        let sent = pair.a.stat(Stat::TxPackets);
        a_while();
        ensure_eq!(pair.a.stat(Stat::TxPackets), sent);
        Ok(())
    }

    #[test]
    fn an_access_with_a_wrong_key_fails_both_ends() -> Result {
        let wrong = [
            Op::Write {
                va: VA,
                rkey: RKEY + 1,
                imm: None,
            },
            Op::Write {
                va: VA + REGION as u64 - 4,
                rkey: RKEY,
                imm: None,
            },
            Op::Read {
                va: VA - 1,
                rkey: RKEY,
            },
        ];
        for op in wrong {
            let pair = Pair::default()?;
            let (a, b) = (&pair.a, &pair.b);
            let before = buffer(REGION)?;
            mem::copy_mem(&b.peer.region, &before);
            let memory = MemRef::buffer(5)?;
            ensure!(a.run(op, &memory)? == Some(Status::RemoteAccess));
            ensure!(mem::memref::equal(&b.peer.region, &before));
            // Both ends have failed.
            ensure!(eventually(|| a.peer.failed.load(Acquire) == 1));
            ensure!(eventually(|| b.peer.failed.load(Acquire) == 1));
            ensure_eq!(b.stat(Stat::NakAccessTx), 1);
            ensure_eq!(a.stat(Stat::NakAccessRx), 1);
        }
        Ok(())
    }

    #[test]
    fn a_message_longer_than_its_receive_is_refused() -> Result {
        let pair = Pair::default()?;
        let long = buffer(REGION + 1)?;
        ensure!(pair.a.run(SEND, &long)? == Some(Status::RemoteInvalidRequest));
        ensure!(eventually(|| pair.b.peer.aborted.load(Acquire) == 1));
        ensure_eq!(pair.b.peer.open.load(Acquire), 0);
        ensure_eq!(pair.b.peer.received(), 0);
        Ok(())
    }

    #[test]
    fn state_transitions_are_checked() -> Result {
        let link = TestLink::new()?;
        let end = End::new(&link, 1)?;
        let payload = buffer(1)?;
        ensure!(end.qp.state() == State::Reset);
        ensure!(end.post(SEND, &payload) == Err(EINVAL));
        // RESET does not go to RTR, nor does a transition succeed with too many or too few
        // attributes.
        let path = Path::new(&link.0, ONE, TWO)?;
        let rtr = Attr {
            state: State::Rtr,
            ..default_attr()
        };
        ensure!(end.qp.modify(&rtr, Mask::AV, Some(&path)) == Err(EINVAL));
        ensure!(end.qp.modify(&rtr, Mask::AV, None) == Err(EINVAL));
        let init = Attr {
            state: State::Init,
            ..default_attr()
        };
        ensure!(end.qp.modify(&init, Mask::PKEY_INDEX, None) == Err(EINVAL));
        ensure!(end.qp.state() == State::Reset);
        // The peer of a QP cannot be changed while the QP is in use.
        let other = End::new(&link, 1)?;
        end.connect(&path, &other, &default_attr())?;
        ensure!(end.qp.state() == State::Rts);
        ensure!(end.qp.modify(&rtr, Mask::RC_TO_RTR, Some(&path)) == Err(EINVAL));
        // The test moves the QP to ERR: work is flushed, and no failure is reported. The peer
        // posts no receive, so the send cannot succeed before.
        other.connect(&Path::new(&link.0, TWO, ONE)?, &end, &default_attr())?;
        end.peer.posted.store(0, Release);
        other.post(SEND, &payload)?;
        let error = Attr {
            state: State::Error,
            ..default_attr()
        };
        other.qp.modify(&error, Mask::NONE, None)?;
        ensure!(eventually(|| other.peer.status() == Some(Status::Flushed)));
        a_while();
        ensure_eq!(other.peer.failed.load(Acquire), 0);
        Ok(())
    }

    #[test]
    fn packets_from_other_addresses_are_ignored() -> Result {
        let pair = Pair::default()?;
        ensure!(pair.works()?);
        let link = &pair.link.0;
        // Everything is right but the address.
        let path = Path::new(link, THREE, TWO)?;
        let bth = Bth::new(pair.b.qp.number(), Psn::new(0));
        let packet = Packet::new(bth, Headers::SendOnly(SendEnd::Plain), 4);
        let skb = path.build(0xc000, 1, &packet, |room| {
            room.fill(1);
            Ok(())
        })?;
        path.send(skb)?;
        ensure!(eventually(|| pair.b.stat(Stat::DropSource) == 1));
        // A QP that is not connected ignores all packets.
        let end = End::new(&pair.link, 1)?;
        let bth = Bth::new(end.qp.number(), Psn::new(0));
        let packet = Packet::new(bth, Headers::SendOnly(SendEnd::Plain), 0);
        path.send(path.build(0xc000, 1, &packet, |_| Ok(()))?)?;
        ensure!(eventually(|| end.stat(Stat::DropState) == 1));
        ensure!(pair.works()?);
        Ok(())
    }

    #[test]
    fn unreadable_memory_during_a_receive_fails_the_qp() -> Result {
        let pair = Pair::default()?;
        let (a, b) = (&pair.a, &pair.b);
        ensure!(pair.works()?);
        let before = a.peer.ended();
        b.peer.fragile.store(true, Release);
        // The answer to the READ takes many runs, and the message arrives in the meantime. Both are
        // sent at once: a task that posts one after the other may be preempted in between.
        for (op, mut memory) in [(READ, MemRef::buffer(REGION)?), (SEND, buffer(REGION)?)] {
            a.qp.queue(&plain(op), &[], &mut memory, 0)?;
        }
        a.qp.push();
        ensure!(eventually(|| a.peer.ended() == before + 2));
        ensure!(eventually(|| b.peer.aborted.load(Acquire) == 1));
        let first = a.peer.done.lock().get(before).map(|(_, status)| *status);
        ensure_eq!(first, Some(Status::RemoteAccess));
        ensure_eq!(b.peer.open.load(Acquire), 0);
        // The receive was returned in a context in which its owner may sleep.
        ensure_eq!(a.peer.in_atomic.load(Acquire), 0);
        ensure_eq!(b.peer.in_atomic.load(Acquire), 0);
        Ok(())
    }

    #[test]
    fn removing_the_link_fails_the_qp() -> Result {
        let pair = Pair::default()?;
        let (a, b) = (&pair.a, &pair.b);
        ensure!(pair.works()?);
        // A receive is missing, so a send waits.
        b.peer.posted.store(0, Release);
        let before = a.peer.ended();
        let payload = buffer(8)?;
        for _ in 0..10 {
            a.post(SEND, &payload)?;
        }
        del(&NetNs::current()?, pair.link.0.name())?;
        ensure!(eventually(|| a.peer.ended() == before + 10));
        ensure!(a.peer.status() == Some(Status::Flushed));
        ensure!(eventually(|| a.peer.failed.load(Acquire) == 1));
        ensure!(eventually(|| b.peer.failed.load(Acquire) == 1));
        ensure!(a.run(SEND, &payload)? == Some(Status::Flushed));
        Ok(())
    }

    #[test]
    fn closing_during_transfers_stops_them() -> Result {
        let mut under_way = 0;
        for round in 0..12 {
            let pair = Pair::default()?;
            let payload = buffer(60_000)?;
            for _ in 0..20 {
                pair.a.post(SEND, &payload)?;
                pair.b.post(WRITE, &payload)?;
                pair.a.post(READ, &payload)?;
            }
            if round % 2 == 0 {
                ensure!(eventually(|| pair.b.peer.received() > round % 7));
            }
            pair.a.qp.close();
            let (ended, written) = (pair.a.peer.ended(), pair.a.peer.written.load(Acquire));
            under_way += 40 - ended;
            let done = pair.a.peer.done.lock();
            ensure!(done.iter().all(|(_, status)| *status == Status::Success));
            drop(done);
            // The other end is still working.
            a_while();
            ensure!(pair.a.peer.ended() == ended && pair.a.peer.written.load(Acquire) == written);
        }
        ensure!(under_way > 0);
        Ok(())
    }

    #[test]
    fn many_threads_can_post() -> Result {
        ensure!(posters(2, 300, 100, 700, |end, memory, number| {
            let op = match number % 3 {
                0 => SEND,
                1 => WRITE,
                _ => READ,
            };
            end.post(op, memory)
        })?);
        Ok(())
    }
}
