// SPDX-License-Identifier: GPL-2.0
//! Reliable datagrams, case by case: two endpoints in a simulation in which only the test posts
//! operations.

mod answers;
mod overdue;
mod requests;

use crate::rdm_world::{
    self,
    end::{
        Rx,
        KEY, //
    },
    oracle::{
        Kind,
        Rma, //
    },
    plan::Plan,
    rng::Rng,
    Addr,
    World,
    MS, //
};
use kfi_core::{
    auth_key::AuthKey,
    errno::{
        Errno,
        Result, //
    },
    matching::{
        unexpected::Search,
        Criteria, //
    },
    rdm::times::{
        CONNECT_TIME,
        LINGER_TIME,
        PING_TIME, //
    }, //
};

const SHORT: u32 = 100;
const LONG: u32 = 100_000;

fn world(change: impl FnOnce(&mut Plan)) -> World {
    let mut plan = Plan::without_faults();
    change(&mut plan);
    let trace = std::env::var("RDM_TRACE").is_ok();
    World::with(plan, Rng::new(1), trace)
}

/// A plain message.
fn plain(len: u32, delivery: bool) -> Kind {
    Kind::Message {
        tag: None,
        data: None,
        len,
        delivery,
    }
}

impl World {
    fn run_for(&mut self, time: u64) {
        self.run(self.now + time);
    }

    /// Posts a plain message. Returns the operation.
    fn post_send(&mut self, from: Addr, to: Addr, len: u32, delivery: bool) -> u64 {
        self.send(from, to, plain(len, delivery), false);
        *self.oracle.ops.last_key_value().unwrap().0
    }

    /// Posts a plain message with a fence from end 0 to end 1. Returns the operation.
    fn post_fenced_send(&mut self) -> u64 {
        self.send(0, 1, plain(SHORT, false), true);
        *self.oracle.ops.last_key_value().unwrap().0
    }

    /// Posts a receive for any plain message. Returns the operation.
    fn post_receive(&mut self, at: Addr) -> u64 {
        let incarnation = self.ends[at].as_ref().unwrap().incarnation;
        let id = self.oracle.posted(incarnation, Kind::Receive);
        let rx = Rx { id, room: 1 << 20 };
        self.receive(at, false, Search::Receive, &Criteria::plain(None), rx);
        id
    }

    fn post_write(&mut self, from: Addr, to: Addr, key: u32) -> u64 {
        let rma = Rma {
            write: true,
            key,
            pieces: vec![(0, 8)],
            data: None,
        };
        self.transfer(from, to, rma, false);
        *self.oracle.ops.last_key_value().unwrap().0
    }

    fn result(&self, op: u64) -> Option<Result> {
        self.oracle.ops[&op].end
    }

    fn happened(&self, what: &str) -> u64 {
        self.oracle.counts.get(what).copied().unwrap_or(0)
    }

    /// Cuts the connection between the two ends permanently.
    fn cut(&mut self) {
        self.cut_until.insert((0, 1), u64::MAX / 2);
    }
}

/// The maximum number of answers of an end when no message waits for a receive.
const OK: Option<Result> = Some(Ok(()));

fn failed(error: Errno) -> Option<Result> {
    Some(Err(error))
}

#[test]
fn both_connect_at_once_and_one_connection_survives() {
    let mut world = world(|_| ());
    let ops = [
        world.post_send(0, 1, SHORT, false),
        world.post_send(1, 0, SHORT, false),
    ];
    world.run_for(100 * MS);
    assert_eq!(ops.map(|op| world.result(op)), [OK, OK]);
    assert_eq!(world.qps.len(), 2);
    assert_eq!(world.happened("close: Superseded"), 1);
    assert_eq!(world.happened("established"), 1);
}

#[test]
fn operations_to_a_missing_endpoint_are_refused() {
    let mut world = world(|_| ());
    world.crash(1);
    let op = world.post_send(0, 1, SHORT, false);
    world.run_for(MS);
    assert_eq!(world.result(op), failed(Errno::ECONNREFUSED));
    // As soon as the endpoint exists, it can be reached.
    world.open(1);
    let op = world.post_send(0, 1, SHORT, false);
    world.run_for(MS);
    assert_eq!(world.result(op), OK);
}

#[test]
fn operations_to_a_silent_host_time_out() {
    let mut world = world(|_| ());
    world.cut();
    let early = world.post_send(0, 1, SHORT, false);
    world.run_for(CONNECT_TIME / 2);
    let late = world.post_send(0, 1, LONG, false);
    world.run_for(CONNECT_TIME / 2 - MS);
    assert_eq!([early, late].map(|op| world.result(op)), [None, None]);
    world.run_for(2 * MS);
    let timed_out = failed(Errno::ETIMEDOUT);
    assert_eq!(
        [early, late].map(|op| world.result(op)),
        [timed_out, timed_out]
    );
    world.cut_until.clear();
    let op = world.post_send(0, 1, SHORT, false);
    world.run_for(MS);
    assert_eq!(world.result(op), OK);
}

#[test]
fn a_busy_peer_is_asked_again() {
    let mut world = world(|plan| plan.busy = 1);
    let op = world.post_send(0, 1, SHORT, false);
    world.run_for(CONNECT_TIME - MS);
    assert_eq!(world.result(op), None);
    let tries = world.happened("close: Superseded");
    assert!((5..30).contains(&tries), "{tries} tries");
    world.run_for(2 * MS);
    assert_eq!(world.result(op), failed(Errno::EBUSY));
    let op = world.post_send(0, 1, SHORT, false);
    world.run_for(100 * MS);
    world.plan.busy = u64::MAX;
    world.run_for(1_000 * MS);
    assert_eq!(world.result(op), OK);
}

#[test]
fn a_restarted_peer_is_a_new_incarnation() {
    let mut world = world(|_| ());
    let waiting = world.post_send(0, 1, LONG, false);
    world.run_for(10 * MS);
    assert_eq!(world.result(waiting), None);
    world.crash(1);
    world.open(1);
    // The new incarnation sends first; that shows that the old connection has gone.
    let op = world.post_send(1, 0, SHORT, false);
    world.run_for(10 * MS);
    assert_eq!(world.result(op), OK);
    assert_eq!(world.result(waiting), failed(Errno::ECONNRESET));
    let op = world.post_send(0, 1, SHORT, false);
    world.post_receive(1);
    world.run_for(10 * MS);
    assert_eq!(world.result(op), OK);
    assert_eq!(world.happened("received"), 1);
}

#[test]
fn the_silent_death_of_a_peer_is_detected() {
    let mut world = world(|_| ());
    let waiting = world.post_send(0, 1, LONG, false);
    world.run_for(10 * MS);
    world.crash(1);
    world.run_for(PING_TIME - 20 * MS);
    assert_eq!(world.result(waiting), None);
    // The operation is posted now, so that the QP had no work before.
    let unsent = world.post_send(0, 1, SHORT, false);
    world.run_for(world.plan.timeout + 30 * MS);
    let timed_out = failed(Errno::ETIMEDOUT);
    assert_eq!(
        [waiting, unsent].map(|op| world.result(op)),
        [timed_out, timed_out]
    );
}

#[test]
fn a_receive_that_is_being_filled_ends_when_its_sender_dies() {
    let mut world = world(|_| ());
    let receive = world.post_receive(1);
    world.no_acks = true;
    world.post_send(0, 1, LONG, false);
    world.run_for(10 * MS);
    assert_eq!(world.happened("reading"), 1);
    world.crash(0);
    world.run_for(world.plan.timeout + 20 * MS);
    assert_eq!(world.result(receive), failed(Errno::ECONNRESET));
}

#[test]
fn a_receive_that_is_being_filled_ends_when_the_protocol_is_violated() {
    let mut world = world(|_| ());
    let receive = world.post_receive(1);
    world.no_acks = true;
    world.post_send(0, 1, LONG, false);
    world.run_for(10 * MS);
    assert_eq!(world.happened("reading"), 1);
    for qp in world.qps.keys().copied().collect::<Vec<_>>() {
        world.fail_qp(qp, kfi_core::rdm::Cause::Protocol);
    }
    world.run_for(10 * MS);
    assert_eq!(world.result(receive), failed(Errno::EPROTO));
}

#[test]
fn messages_that_a_dead_sender_still_had_are_dropped() {
    let mut world = world(|_| ());
    let lost = world.post_send(0, 1, LONG, false);
    world.post_send(0, 1, SHORT, false);
    world.run_for(10 * MS);
    assert_eq!(world.ends[1].as_ref().unwrap().waiting(), 2);
    let qp = *world.qps.keys().next().unwrap();
    world.fail_qp(qp, kfi_core::rdm::Cause::Protocol);
    world.run_for(10 * MS);
    assert_eq!(world.result(lost), failed(Errno::EPROTO));
    // The bytes of the short message are here.
    assert_eq!(world.ends[1].as_ref().unwrap().waiting(), 1);
    let receive = world.post_receive(1);
    assert_eq!(world.result(receive), OK);
}

#[test]
fn idle_connections_end_without_losing_operations() {
    let mut world = world(|plan| plan.idle_time = 100 * MS);
    let op = world.post_send(0, 1, SHORT, false);
    world.run_for(50 * MS);
    assert_eq!(world.result(op), OK);
    assert_eq!(world.qps.len(), 2);
    world.run_for(100 * MS);
    assert!(world.qps.is_empty());
    assert_eq!(world.happened("close: Reset"), 0);
    // An operation is posted at each moment of ending the connection.
    for step in 0..200 {
        let op = world.post_send(0, 1, SHORT, false);
        world.run_for(MS);
        assert_eq!(world.result(op), OK, "step {step}");
        world.run_for(99 * MS + step * MS / 200);
        let ops = [
            world.post_send(0, 1, SHORT, false),
            world.post_send(1, 0, SHORT, false),
        ];
        world.run_for(10 * MS);
        assert_eq!(ops.map(|op| world.result(op)), [OK, OK], "step {step}");
        while world.ends.iter().flatten().any(|end| end.waiting() > 0) {
            for at in 0..2 {
                if world.ends[at].as_ref().unwrap().waiting() > 0 {
                    world.post_receive(at);
                }
            }
        }
        world.run_for(300 * MS);
        assert!(world.qps.is_empty());
    }
    assert_eq!(world.happened("send: ECONNRESET"), 0);
}

#[test]
fn a_connection_with_a_waiting_operation_is_not_idle() {
    let mut world = world(|plan| plan.idle_time = 10 * MS);
    let op = world.post_send(0, 1, LONG, false);
    world.run_for(10_000 * MS);
    assert_eq!(world.result(op), None);
    assert_eq!(world.qps.len(), 2);
    world.post_receive(1);
    world.run_for(100 * MS);
    assert_eq!(world.result(op), OK);
    assert!(world.qps.is_empty());
}

#[test]
fn a_closing_end_reports_the_messages_it_took() {
    let mut world = world(|_| ());
    world.post_send(0, 1, 0, false);
    world.run_for(MS);
    world.no_acks = true;
    let taken = world.post_send(0, 1, SHORT, false);
    world.run_for(MS);
    let waiting = world.post_send(0, 1, LONG, false);
    world.run_for(MS);
    assert_eq!(world.result(taken), None);
    world.close(1);
    world.run_for(MS);
    assert_eq!(world.result(taken), OK);
    assert_eq!(world.result(waiting), failed(Errno::ECONNRESET));
}

#[test]
fn the_last_fin_is_not_lost_when_its_end_closes() {
    let mut world = world(|plan| plan.delay = 2 * MS);
    let op = world.post_send(0, 1, LONG, false);
    world.run_for(100 * MS);
    let receive = world.post_receive(1);
    while world.result(receive).is_none() {
        world.run_for(MS / 1_000);
    }
    world.close(1);
    assert_eq!(world.result(op), None);
    world.run_for(20 * MS);
    assert_eq!(world.result(op), OK);
    assert!(world.ends[1].is_none());
}

#[test]
fn closing_takes_a_limited_time() {
    let mut world = world(|plan| plan.timeout = 5_000 * MS);
    world.post_send(0, 1, SHORT, false);
    world.run_for(MS);
    world.cut();
    world.post_send(1, 0, SHORT, false);
    world.run_for(MS);
    world.close(1);
    world.run_for(LINGER_TIME - MS);
    assert!(world.ends[1].is_some());
    world.run_for(2 * MS);
    assert!(world.ends[1].is_none());
}

#[test]
fn a_message_without_room_does_not_block_answers() {
    let mut world = world(|plan| plan.unexpected = 2);
    // End 0 floods end 1, which posts no receive.
    let flood: Vec<u64> = (0..20)
        .map(|_| world.post_send(0, 1, SHORT, false))
        .collect();
    world.run_for(20 * MS);
    assert_eq!(world.result(flood[1]), OK);
    assert_eq!(world.result(flood[2]), None);
    // End 1 waits for the end of a message of its own, and RMA of end 0 continues.
    world.post_receive(0);
    let back = world.post_send(1, 0, LONG, false);
    world.run_for(20 * MS);
    assert_eq!(world.result(back), OK);
    let write = world.post_write(0, 1, KEY);
    world.run_for(20 * MS);
    assert_eq!(world.result(write), OK);
    assert_eq!(world.result(flood[2]), None);
    // In the end everything arrives, once and in order, which the oracle checks.
    for _ in 0..20 {
        world.post_receive(1);
    }
    world.run_for(200 * MS);
    for op in flood {
        assert_eq!(world.result(op), OK);
    }
    assert_eq!(world.happened("received"), 21);
}

#[test]
fn void_messages_can_be_cancelled() {
    let mut world = world(|plan| plan.unexpected = 1);
    let ops: Vec<u64> = (0..6)
        .map(|_| world.post_send(0, 1, SHORT, false))
        .collect();
    world.run_for(20 * MS);
    world.cancel(0, ops[2]);
    world.cancel(0, ops[1]);
    world.run_for(20 * MS);
    let cancelled = failed(Errno::ECANCELED);
    assert_eq!(
        [ops[0], ops[1], ops[2], ops[3]].map(|op| world.result(op)),
        [OK, cancelled, cancelled, None]
    );
    for _ in 0..6 {
        world.post_receive(1);
    }
    world.run_for(200 * MS);
    assert_eq!(world.happened("received"), 4);
    world.oracle.check();
}

#[test]
fn a_message_that_waits_can_be_cancelled() {
    for len in [SHORT, LONG] {
        let mut world = world(|_| ());
        let op = world.post_send(0, 1, len, true);
        world.run_for(MS);
        assert_eq!(world.ends[1].as_ref().unwrap().waiting(), 1);
        world.cancel(0, op);
        assert_eq!(world.result(op), None);
        world.run_for(MS);
        assert_eq!(world.result(op), failed(Errno::ECANCELED));
        assert_eq!(world.ends[1].as_ref().unwrap().waiting(), 0);
    }
}

#[test]
fn a_message_being_received_cannot_be_cancelled() {
    let mut world = world(|_| ());
    let op = world.post_send(0, 1, SHORT, false);
    // Without a connection the message is simply removed.
    let other = world.post_send(0, 1, SHORT, false);
    world.cancel(0, other);
    assert_eq!(world.result(other), failed(Errno::ECANCELED));
    world.run_for(MS);
    assert_eq!(world.result(op), OK);
    let receive = world.post_receive(1);
    assert_eq!(world.result(receive), OK);
    // The message is being received.
    world.post_receive(1);
    world.no_acks = true;
    let op = world.post_send(0, 1, LONG, false);
    world.run_for(MS);
    assert_eq!(world.happened("reading"), 1);
    world.cancel(0, op);
    world.no_acks = false;
    world.run_for(10 * MS);
    assert_eq!(world.result(op), OK);
}

#[test]
fn queued_rma_fails_behind_a_refused_key() {
    let mut world = world(|_| ());
    let ops: Vec<_> = (1..=500)
        .map(|number| world.post_write(0, 1, KEY + number))
        .collect();
    world.run_for(2_000 * MS);
    assert_eq!(world.result(ops[0]), failed(Errno::EACCES));
    for op in &ops[1..] {
        assert_eq!(world.result(*op), failed(Errno::ECONNRESET));
    }
    // No operation was left that would have needed another connection.
    assert_eq!(world.happened("established"), 1);
}

#[test]
fn a_wrong_key_fails_its_operation_and_ends_the_connection() {
    let mut world = world(|_| ());
    let waiting = world.post_send(0, 1, LONG, false);
    world.run_for(MS);
    let wrong = world.post_write(0, 1, KEY + 1);
    let right = world.post_write(0, 1, KEY);
    world.run_for(MS);
    assert_eq!(world.result(wrong), failed(Errno::EACCES));
    assert_eq!(world.result(waiting), failed(Errno::ECONNRESET));
    assert_eq!(world.result(right), failed(Errno::ECONNRESET));
    let right = world.post_write(0, 1, KEY);
    world.run_for(MS);
    assert_eq!(world.result(right), OK);
}

#[test]
fn a_fence_waits_for_all_earlier_operations() {
    let mut world = world(|_| ());
    let first = world.post_send(0, 1, LONG, false);
    let fenced = world.post_fenced_send();
    let behind = world.post_write(0, 1, KEY);
    world.run_for(20 * MS);
    let all = [first, fenced, behind];
    assert_eq!(all.map(|op| world.result(op)), [None, None, None]);
    world.post_receive(1);
    world.run_for(20 * MS);
    assert_eq!(all.map(|op| world.result(op)), [OK, OK, OK]);
    // A cancelled fence blocks no other operation.
    let first = world.post_send(0, 1, LONG, false);
    let fenced = world.post_fenced_send();
    let behind = world.post_write(0, 1, KEY);
    world.cancel(0, fenced);
    world.run_for(20 * MS);
    let all = [first, fenced, behind];
    let cancelled = failed(Errno::ECANCELED);
    assert_eq!(all.map(|op| world.result(op)), [None, cancelled, OK]);
}

/// A world in which these ends have a key that is not that of zeros.
fn world_with_keys(keyed: &[usize]) -> World {
    let mut world = world(|_| ());
    for addr in keyed {
        world.ends[*addr].as_mut().unwrap().config.auth_key = AuthKey::new([0, 0, 0, 1]);
    }
    world
}

#[test]
fn only_endpoints_with_the_same_key_are_connected() {
    for keyed in [0, 1] {
        let mut world = world_with_keys(&[keyed]);
        let all = [
            world.post_send(0, 1, SHORT, false),
            world.post_write(0, 1, KEY),
            world.post_send(1, 0, SHORT, false),
        ];
        world.run_for(20 * MS);
        assert_eq!(all.map(|op| world.result(op)), [failed(Errno::ENOTCONN); 3]);
    }
    let mut world = world_with_keys(&[0, 1]);
    let all = [
        world.post_send(0, 1, SHORT, false),
        world.post_write(0, 1, KEY),
    ];
    world.run_for(20 * MS);
    assert_eq!(all.map(|op| world.result(op)), [OK; 2]);
}

#[test]
fn operations_are_found_in_the_order_of_posting() {
    let mut world = world(|_| ());
    // There is no connection yet, so nothing was sent.
    let ops = [
        world.post_send(0, 1, SHORT, false),
        world.post_send(0, 1, LONG, false),
        world.post_send(0, 1, 0, false),
    ];
    let session = world.ends[0].as_mut().unwrap().session(1);
    let mut from = 0;
    for op in ops {
        let number = session.find(from, |_| true).expect("an operation");
        assert_eq!(session.op(number), Some(&op));
        assert_eq!(session.op_mut(number).copied(), Some(op));
        assert_eq!(session.find(0, |other| *other == op), Some(number));
        from = number + 1;
    }
    assert_eq!(session.find(from, |_| true), None);
}
