// SPDX-License-Identifier: GPL-2.0
//! An answer of a peer is overdue: the operations end within a limited time. A peer that may take
//! its time, or that makes progress, gets it.

use kfi_core::{
    atomic::Function,
    enums::{
        AtomicOp,
        Datatype, //
    },
    errno::Errno,
    op::{
        OpType,
        TaggedRma, //
    },
    rdm::{
        atomic::Call,
        header::{
            FinStatus,
            Header, //
        },
        times::{
            ANSWER_RATE,
            ANSWER_TIME,
            ANSWER_TIME_MAX,
            CHECK_TIME,
            READ_SIZE, //
        }, //
    }, //
};

use super::{
    failed,
    rdm_world::{
        end::KEY,
        oracle::{
            Atomic,
            Tagged, //
        },
        qp::QpId,
        World,
        MS, //
    },
    world,
    LONG,
    OK,
    SHORT, //
};

const SECOND: u64 = 1_000 * MS;

/// More than a peer needs for an answer to arrive.
const SOON: u64 = 100 * MS;

/// Returns a world in which end 1 answers nothing.
fn silent_world() -> World {
    let mut world = world(|_| ());
    world.loses_answers = Some(1);
    world
}

impl World {
    fn post_atomic(&mut self) -> u64 {
        let (kind, read) = (OpType::FetchAtomic, AtomicOp::AtomicRead);
        let function = Function::new(kind, read, Datatype::Uint8).unwrap();
        let call = Some(Call::new(function, 1, 3).unwrap());
        self.atomic(0, 1, Atomic { call, key: KEY }, false);
        *self.oracle.ops.last_key_value().unwrap().0
    }

    fn post_tagged(&mut self, read: bool) -> u64 {
        let tagged = Tagged {
            tag: 1,
            len: LONG,
            rma: TaggedRma { read, offset: 0 },
        };
        self.tagged(0, 1, tagged, false)
    }

    /// Returns the QP of end 1.
    fn its_qp(&self) -> QpId {
        let (id, _) = self.qps.iter().find(|(_, qp)| qp.owner == 1).unwrap();
        *id
    }

    /// Returns the number of an operation of end 0.
    fn number(&self, op: u64) -> u64 {
        self.ends[0].as_ref().unwrap().open[&op].1
    }

    /// End 1 answers, and operations succeed.
    fn is_as_before(&mut self) {
        self.loses_answers = None;
        self.refuses_others = None;
        self.post_receive(1);
        let op = self.post_send(0, 1, SHORT, true);
        let write = self.post_write(0, 1, KEY);
        self.run_for(SOON);
        assert_eq!([op, write].map(|op| self.result(op)), [OK; 2]);
    }
}

#[test]
fn a_message_that_nobody_receives_waits_without_a_limit() {
    let mut world = world(|plan| plan.unexpected = 2);
    let long = world.post_send(0, 1, LONG, false);
    let delivery = world.post_send(0, 1, SHORT, true);
    let without_room = world.post_send(0, 1, SHORT, false);
    let all = [long, delivery, without_room];
    for _ in 0..20 {
        world.run_for(3 * ANSWER_TIME);
        // RMA does not wait for them.
        let write = world.post_write(0, 1, KEY);
        world.run_for(SOON);
        assert_eq!(world.result(write), OK);
    }
    assert_eq!(all.map(|op| world.result(op)), [None; 3]);
    for _ in all {
        world.post_receive(1);
    }
    world.run_for(SOON);
    assert_eq!(all.map(|op| world.result(op)), [OK; 3]);
}

#[test]
fn an_unanswered_cancel_ends_the_connection() {
    for (len, delivery) in [(LONG, false), (SHORT, true)] {
        let mut world = silent_world();
        let op = world.post_send(0, 1, len, delivery);
        let other = world.post_send(0, 1, LONG, false);
        world.run_for(5 * ANSWER_TIME);
        assert_eq!([op, other].map(|op| world.result(op)), [None; 2]);
        world.cancel(0, op);
        // The peer is alive: it acknowledges the CANCEL, and a PING now and then.
        world.run_for(ANSWER_TIME - MS);
        assert_eq!([op, other].map(|op| world.result(op)), [None; 2]);
        world.run_for(SOON);
        let timed_out = failed(Errno::ETIMEDOUT);
        assert_eq!([op, other].map(|op| world.result(op)), [timed_out; 2]);
        assert_eq!(world.happened("close: Lost"), 1);
        world.is_as_before();
    }
}

#[test]
fn answers_to_other_messages_do_not_extend_the_time() {
    let mut world = silent_world();
    let ops: Vec<u64> = (0..50)
        .map(|_| world.post_send(0, 1, LONG, false))
        .collect();
    world.run_for(SECOND);
    for op in &ops {
        world.cancel(0, *op);
    }
    world.run_for(SOON);
    let qp = world.its_qp();
    for op in &ops[1..40] {
        let (id, status) = (world.number(*op), FinStatus::Withdrawn);
        // FINs of messages that do not exist answer nothing.
        for id in [id, id + 1_000_000] {
            assert!(world.forge(qp, Header::Fin { id, status }));
        }
        assert_eq!(world.result(*op), failed(Errno::ECANCELED));
        world.run_for(SECOND);
    }
    assert_eq!(world.result(ops[0]), None);
    world.run_for(ANSWER_TIME - 39 * SECOND);
    for op in ops.iter().take(1).chain(&ops[40..]) {
        assert_eq!(world.result(*op), failed(Errno::ETIMEDOUT));
    }
    world.is_as_before();
}

#[test]
fn a_late_answer_to_a_cancel_is_in_time() {
    let mut world = silent_world();
    let op = world.post_send(0, 1, LONG, false);
    let other = world.post_send(0, 1, LONG, false);
    world.run_for(SECOND);
    world.cancel(0, op);
    world.run_for(ANSWER_TIME - SECOND);
    let (qp, id) = (world.its_qp(), world.number(op));
    let status = FinStatus::Withdrawn;
    assert!(world.forge(qp, Header::Fin { id, status }));
    assert_eq!(world.result(op), failed(Errno::ECANCELED));
    world.run_for(5 * ANSWER_TIME);
    assert_eq!(world.result(other), None);
    assert_eq!(world.happened("close: Lost"), 0);
}

/// Returns a world in which the answer of end 1 to a CANCEL is missing, and the operation.
fn world_with_a_missing_answer() -> (World, u64) {
    let mut world = silent_world();
    let op = world.post_send(0, 1, LONG, false);
    world.run_for(SECOND);
    world.cancel(0, op);
    world.run_for(SOON);
    (world, op)
}

impl World {
    /// End 1 transfers bytes now and then, for so long.
    fn transfer_for(&mut self, time: u64) {
        let end = self.now + time;
        while self.now < end {
            let now = self.now;
            self.moved_at.insert((0, 1), now);
            self.run((now + ANSWER_TIME / 2).min(end));
        }
    }
}

#[test]
fn a_peer_that_transfers_bytes_has_more_time() {
    let (mut world, op) = world_with_a_missing_answer();
    world.transfer_for(4 * ANSWER_TIME);
    let now = world.now;
    world.moved_at.insert((0, 1), now);
    world.run_for(ANSWER_TIME - MS);
    assert_eq!(world.result(op), None);
    world.run_for(SOON);
    assert_eq!(world.result(op), failed(Errno::ETIMEDOUT));
    world.is_as_before();
}

#[test]
fn a_peer_that_transfers_bytes_for_ever_has_a_limit() {
    let (mut world, op) = world_with_a_missing_answer();
    let limit = ANSWER_TIME_MAX + u64::from(LONG) * SECOND / ANSWER_RATE;
    world.transfer_for(limit - SECOND);
    assert_eq!(world.result(op), None);
    world.transfer_for(2 * SECOND);
    assert_eq!(world.result(op), failed(Errno::ETIMEDOUT));
    world.is_as_before();
}

#[test]
fn a_message_that_was_read_needs_its_fin() {
    let mut world = silent_world();
    let waiting = world.post_send(0, 1, LONG, false);
    world.run_for(5 * ANSWER_TIME);
    let receive = world.post_receive(1);
    world.run_for(SOON);
    assert_eq!(world.result(receive), OK);
    world.run_for(ANSWER_TIME - SOON - MS);
    assert_eq!(world.result(waiting), None);
    world.run_for(CHECK_TIME + SOON);
    assert_eq!(world.result(waiting), failed(Errno::ETIMEDOUT));
    world.is_as_before();
}

#[test]
fn tagged_rma_and_atomics_need_their_answers() {
    let posts: [fn(&mut World) -> u64; 3] = [
        |world| world.post_tagged(false),
        |world| world.post_tagged(true),
        World::post_atomic,
    ];
    for (index, post) in posts.into_iter().enumerate() {
        let mut world = silent_world();
        let op = post(&mut world);
        world.run_for(ANSWER_TIME - MS);
        assert_eq!(world.result(op), None, "{index}");
        world.run_for(CHECK_TIME + SOON);
        assert_eq!(world.result(op), failed(Errno::ETIMEDOUT), "{index}");
        world.is_as_before();
    }
}

#[test]
fn work_that_is_refused_for_ever_ends_the_connection() {
    let mut world = world(|plan| plan.unexpected = 1);
    world.refuses_others = Some(1);
    let taken = world.post_send(0, 1, SHORT, false);
    let without_room = world.post_send(0, 1, SHORT, false);
    world.run_for(3 * ANSWER_TIME);
    assert_eq!([taken, without_room].map(|op| world.result(op)), [OK, None]);
    let write = world.post_write(0, 1, KEY);
    world.run_for(ANSWER_TIME - SECOND);
    // That RMA comes later changes nothing.
    let late = world.post_write(0, 1, KEY);
    world.run_for(SECOND - MS);
    assert_eq!([write, without_room].map(|op| world.result(op)), [None; 2]);
    world.run_for(SOON);
    let timed_out = failed(Errno::ETIMEDOUT);
    let all = [write, late, without_room];
    assert_eq!(all.map(|op| world.result(op)), [timed_out; 3]);
    world.refuses_others = None;
    let write = world.post_write(0, 1, KEY);
    world.run_for(SOON);
    assert_eq!(world.result(write), OK);
}

#[test]
fn a_refused_cancel_ends_the_connection() {
    let mut world = world(|_| ());
    world.refuses_others = Some(1);
    let op = world.post_send(0, 1, LONG, false);
    world.run_for(3 * ANSWER_TIME);
    world.cancel(0, op);
    world.run_for(ANSWER_TIME - MS);
    assert_eq!(world.result(op), None);
    world.run_for(SOON);
    assert_eq!(world.result(op), failed(Errno::ETIMEDOUT));
    world.is_as_before();
}

#[test]
fn a_peer_that_does_not_answer_a_retire_does_not_hold_operations() {
    let mut world = silent_world();
    // End 1 has work, and its refusal to end the connection is lost.
    let waiting = world.post_send(1, 0, LONG, false);
    world.run_for(SOON);
    let now = world.now;
    world.with_session(0, 1, |session| session.retire(now));
    let op = world.post_send(0, 1, SHORT, false);
    world.run_for(ANSWER_TIME_MAX - SOON);
    assert_eq!([op, waiting].map(|op| world.result(op)), [None; 2]);
    // It uses another connection.
    world.run_for(2 * SOON);
    assert_eq!(world.result(op), OK);
    assert_eq!(world.result(waiting), failed(Errno::ECONNRESET));
}

#[test]
fn a_slow_network_is_not_a_silent_peer() {
    let mut world = world(|_| ());
    let first = world.post_send(0, 1, SHORT, false);
    world.run_for(SOON);
    assert_eq!(world.result(first), OK);
    // Each step takes up to eight seconds.
    world.plan.delay = 8 * SECOND;
    world.plan.timeout = ANSWER_TIME;
    let long = 3 * READ_SIZE;
    let mut ops = Vec::new();
    for _ in 0..10 {
        world.post_receive(1);
        ops.extend([
            world.post_send(0, 1, long, false),
            world.post_write(0, 1, KEY),
            world.post_tagged(true),
            world.post_atomic(),
        ]);
    }
    let waiting = world.post_send(0, 1, LONG, false);
    world.run_for(20 * SECOND);
    for op in &ops {
        if world.result(*op).is_none() {
            world.cancel(0, *op);
        }
    }
    world.run_for(10 * ANSWER_TIME);
    let ends = [OK, failed(Errno::ECANCELED), failed(Errno::EREMOTEIO)];
    for op in ops {
        assert!(ends.contains(&world.result(op)), "{:?}", world.result(op));
    }
    assert_eq!(world.happened("close: Lost"), 0);
    world.plan.delay = MS;
    world.post_receive(1);
    if world.result(waiting).is_none() {
        world.cancel(0, waiting);
    }
    world.run_for(ANSWER_TIME);
    assert!(world.result(waiting).is_some());
    assert_eq!(world.happened("close: Lost"), 0);
}
