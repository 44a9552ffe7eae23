// SPDX-License-Identifier: GPL-2.0
//! Reliable datagrams, case by case: two endpoints in a simulation in which only the test posts
//! operations.

mod rdm_world;

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
    rdm::{
        header::Header,
        hello::{
            Hello,
            Refusal, //
        },
        ops::Outgoing,
        session::{
            Manage,
            Reply, //
        },
        times::{
            ANSWERS,
            BUSY_PAUSE,
            CANCELS_MAX,
            CONNECT_TIME,
            LINGER_TIME,
            PING_TIME,
            PROMPT_RETRIES,
            UNPROVEN_BURST, //
        },
        Conn,
        Cookie, //
    }, //
};
use rdm_world::{
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
const ANSWERS_MAX: u32 = ANSWERS + CANCELS_MAX;

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

/// Returns the private data of a request.
fn hello(incarnation: u64, epoch: u64) -> Hello {
    Hello {
        peer_epoch: kfi_core::rdm::hello::PeerEpoch { incarnation, epoch },
        port: 1000,
        name_port: 1000,
        reads: 1,
        caps: kfi_core::flags::Caps::EMPTY,
        cookie: None,
        auth_key: AuthKey::NONE,
    }
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
fn an_old_request_changes_nothing() {
    let mut world = world(|_| ());
    world.post_send(0, 1, SHORT, false);
    world.run_for(MS);
    let now = world.now;
    let incarnation = world.ends[0].as_ref().unwrap().incarnation;
    let old = hello(incarnation, 1);
    let session = world.ends[1].as_mut().unwrap().session(0);
    assert_eq!(session.requested(now, &old, 1_000), Reply::Ignore);
    assert_eq!(session.manage(now, 1_001), None);
    // A request of another incarnation is answered, but replaces the connection only when it is
    // confirmed.
    let other = hello(incarnation ^ 1, 1);
    let reply = session.requested(now, &other, 1_002);
    let Reply::Accept(conn, _) = reply else {
        panic!("{reply:?}");
    };
    assert_eq!(session.manage(now, 1_003), None);
    session.failed(conn, kfi_core::rdm::Cause::Superseded);
    let closes = session.manage(now, 1_004);
    assert!(matches!(closes, Some(Manage::Close(of, _)) if of == conn));
    session.closed(now, conn);
    let op = world.post_send(1, 0, SHORT, false);
    world.run_for(MS);
    assert_eq!(world.result(op), OK);
    assert_eq!(world.qps.len(), 2);
}

#[test]
fn an_endpoint_does_not_connect_to_itself() {
    let mut world = world(|_| ());
    let now = world.now;
    let end = world.ends[0].as_mut().unwrap();
    let own = hello(end.incarnation, 9);
    let reply = end.session(1).requested(now, &own, 10);
    assert!(matches!(reply, Reply::Refuse(_)));
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

/// Returns a world in which end 0 accepts no FIN.
fn world_without_fins(receives: usize) -> World {
    let mut world = world(|plan| plan.rx_size = receives);
    world.refuses_fins = Some(0);
    world
}

fn answers(world: &World) -> u32 {
    world.ends[1].as_ref().unwrap().answers(0)
}

#[test]
fn answers_to_a_peer_that_accepts_no_fins_are_limited() {
    const MESSAGES: usize = 1000;
    let mut world = world_without_fins(MESSAGES);
    let receives: Vec<u64> = (0..MESSAGES).map(|_| world.post_receive(1)).collect();
    let ops: Vec<u64> = (0..MESSAGES)
        .map(|_| world.post_send(0, 1, SHORT, true))
        .collect();
    world.run_for(2_000 * MS);
    assert!(answers(&world) <= ANSWERS_MAX, "{}", answers(&world));
    // The peer accepts FINs now, and nothing was lost.
    world.refuses_fins = None;
    world.run_for(2_000 * MS);
    assert!(ops.iter().all(|op| world.result(*op) == OK));
    assert!(receives.iter().all(|op| world.result(*op) == OK));
    assert_eq!(answers(&world), 0);
}

#[test]
fn answers_to_cancels_of_unknown_messages_are_limited() {
    let mut world = world_without_fins(4);
    world.post_receive(1);
    let op = world.post_send(0, 1, SHORT, false);
    world.run_for(10 * MS);
    assert_eq!(world.result(op), OK);
    let (qp, _) = world.qps.iter().find(|(_, qp)| qp.owner == 0).unwrap();
    let qp = *qp;
    let forged = |world: &mut World| {
        let cancels = (0..10_000u64).map(|number| Header::Cancel {
            id: u64::MAX - number,
            finish: number % 2 == 0,
        });
        cancels.filter(|cancel| world.forge(qp, *cancel)).count()
    };
    let taken = forged(&mut world);
    assert!(answers(&world) <= ANSWERS_MAX, "{}", answers(&world));
    assert!(taken as u32 <= ANSWERS_MAX, "{taken} were taken");
    // Once the peer has accepted the FINs, it may cancel again.
    world.refuses_fins = None;
    world.run_for(1_000 * MS);
    assert_eq!(answers(&world), 0);
    assert!(forged(&mut world) > 0);
}

#[test]
fn both_ends_cancel_everything_and_all_is_answered() {
    const MESSAGES: usize = 600;
    let mut world = world(|plan| {
        plan.unexpected = 2 * MESSAGES;
        plan.rx_size = 4;
    });
    let ends = [(0, 1), (1, 0)];
    let ops: Vec<(Addr, u64)> = (0..MESSAGES)
        .flat_map(|_| ends)
        .map(|(from, to)| (from, world.post_send(from, to, LONG, false)))
        .collect();
    world.run_for(500 * MS);
    for (from, op) in &ops {
        world.cancel(*from, *op);
    }
    world.run_for(1_000 * MS);
    let cancelled = failed(Errno::ECANCELED);
    assert!(ops.iter().all(|(_, op)| world.result(*op) == cancelled));
    assert_eq!(answers(&world), 0);
}

/// Forges requests, one every `every` ns for `time`, that the other end never sent.
fn forge_requests(world: &mut World, to: &[Addr], incarnation: u64, (every, time): (u64, u64)) {
    for epoch in 0..time / every {
        for to in to {
            world.forge_request(1 - to, *to, incarnation.wrapping_sub(epoch), epoch);
        }
        world.run_for(every);
    }
}

#[test]
fn forged_requests_do_not_keep_ends_from_connecting() {
    // Several forged requests in each round trip to the requesting end, or fewer to both ends.
    for (to, every) in [(&[0][..], MS / 2), (&[0, 1], 20 * MS)] {
        for (incarnation, both) in [(u64::MAX, false), (u64::MAX, true), (1 << 20, false)] {
            let mut world = world(|plan| plan.delay = 5 * MS);
            // The forged requests begin before the first operation and continue.
            forge_requests(&mut world, to, incarnation, (every, 100 * MS));
            let mut ops = vec![world.post_send(0, 1, SHORT, false)];
            if both {
                ops.push(world.post_send(1, 0, SHORT, false));
            }
            forge_requests(&mut world, to, incarnation, (every, 2_000 * MS));
            assert!(
                ops.iter().all(|op| world.result(*op) == OK),
                "{incarnation:x} {to:?} {both}"
            );
            // An established connection stays.
            let resets = world.happened("close: Reset");
            forge_requests(&mut world, to, incarnation, (every, 100 * MS));
            assert_eq!(world.happened("close: Reset"), resets);
        }
    }
}

#[test]
fn forged_requests_with_lost_answers_do_not_keep_ends_from_connecting() {
    for incarnation in [u64::MAX, 1 << 20] {
        for both in [false, true] {
            let mut world = world(|plan| plan.delay = MS);
            world.forge_silent_request(1, 0, incarnation);
            let mut ops = vec![world.post_send(1, 0, SHORT, false)];
            if both {
                ops.push(world.post_send(0, 1, SHORT, false));
            }
            for number in 1..20 {
                world.run_for(150 * MS);
                world.forge_silent_request(1, 0, incarnation.wrapping_sub(number));
            }
            assert!(
                ops.iter().all(|op| world.result(*op) == OK),
                "{incarnation:x} {both}"
            );
        }
    }
}

#[test]
fn a_request_does_not_replace_a_pending_one() {
    let mut world = world(|_| ());
    let now = world.now;
    let session = world.ends[1].as_mut().unwrap().session(0);
    let Reply::Accept(first, _) = session.requested(now, &hello(7, 1), 1_000) else {
        panic!("it is answered");
    };
    // Another sender does not know the incarnation of the first request.
    for incarnation in [0, 6, 8, u64::MAX] {
        let other = session.requested(now, &hello(incarnation, 100), 1_001);
        assert_eq!(other, Reply::Ignore);
        assert_eq!(session.manage(now, 1_002), None);
    }
    // The peer itself has given up the first request and sends another one.
    assert_eq!(session.requested(now, &hello(7, 1), 1_003), Reply::Ignore);
    assert_eq!(session.manage(now, 1_004), None);
    assert_eq!(session.requested(now, &hello(7, 2), 1_005), Reply::Ignore);
    let closes = session.manage(now, 1_006);
    assert!(matches!(closes, Some(Manage::Close(of, _)) if of == first));
    session.closed(now, first);
    let again = session.requested(now, &hello(7, 2), 1_007);
    assert!(matches!(again, Reply::Accept(..)));
}

#[test]
fn a_thousand_peers_connect_at_once_without_a_pause() {
    const PEERS: usize = 1_000;
    let mut world = world(|plan| {
        plan.ends = PEERS + 1;
        plan.demands = Some(u64::MAX);
        (plan.rx_size, plan.unexpected) = (1, 0);
    });
    let ops: Vec<u64> = (1..=PEERS)
        .map(|peer| world.post_write(peer, 0, KEY))
        .collect();
    world.run_for(BUSY_PAUSE - 1);
    assert!(ops.iter().all(|op| world.result(*op) == OK));
    // Each of the others needed one more round trip.
    let retries = PEERS as u64 - u64::from(UNPROVEN_BURST);
    assert_eq!(world.happened("retry"), retries);
    // The rate of a few peers is not limited.
    let later = world.post_write(0, 1, KEY);
    world.run_for(BUSY_PAUSE - 1);
    assert_eq!(world.result(later), OK);
    assert_eq!(world.happened("retry"), retries);
}

#[test]
fn both_ends_may_demand_a_cookie() {
    for seed in 0..100 {
        let mut plan = Plan::without_faults();
        plan.demands = Some(1 + seed % 2);
        plan.delay = [1_000, 100_000, MS][seed as usize % 3];
        let mut world = World::with(plan, Rng::new(seed), false);
        let ops = [
            world.post_send(0, 1, SHORT, false),
            world.post_send(1, 0, SHORT, false),
        ];
        world.run_for(BUSY_PAUSE + 500 * MS);
        assert_eq!(ops.map(|op| world.result(op)), [OK; 2], "seed {seed}");
        assert_eq!(world.qps.len(), 2, "seed {seed}");
    }
}

#[test]
fn a_peer_that_always_wants_another_cookie_is_busy() {
    let mut world = world(|plan| {
        plan.demands = Some(1);
        // A cookie is too old when it comes back.
        plan.cookie_time = 1;
    });
    let op = world.post_send(0, 1, SHORT, false);
    world.run_for(BUSY_PAUSE - MS);
    assert_eq!(world.happened("retry"), u64::from(PROMPT_RETRIES) + 1);
    world.run_for(CONNECT_TIME);
    assert_eq!(world.result(op), failed(Errno::EBUSY));
    let retries = world.happened("retry");
    assert!((15..25).contains(&retries), "{retries}");
}

/// Closes the connections of end 0 to end 1. Returns the request that the end then sends.
fn next_request(world: &mut World, epoch: u64) -> Option<(Conn, Option<Cookie>)> {
    let now = world.now;
    let session = world.ends[0].as_mut().unwrap().session(1);
    loop {
        while session.next(now).is_some() {}
        match session.manage(now, epoch)? {
            Manage::Close(conn, _) => session.closed(now, conn),
            Manage::Connect(conn, hello) => return Some((conn, hello.cookie)),
        }
    }
}

#[test]
fn a_request_is_repeated_at_once_with_the_last_cookie() {
    let mut world = world(|_| ());
    let now = world.now;
    let out = Outgoing {
        tag: None,
        data: None,
        len: SHORT,
        atomic: None,
        rma: None,
        delivery: false,
        fence: false,
    };
    let session = world.ends[0].as_mut().unwrap().session(1);
    session.send(now, out, 1, ());
    let (first, cookie) = next_request(&mut world, 1).expect("a request");
    assert_eq!(cookie, None);
    let mut conn = first;
    for number in 1..10 {
        let cookie = Cookie::new(number).expect("a cookie");
        let session = world.ends[0].as_mut().unwrap().session(1);
        session.rejected(now, conn, Refusal::Retry(cookie));
        // A REJ that comes again has no effect.
        let again = Cookie::new(100 + number).expect("a cookie");
        session.rejected(now, first, Refusal::Retry(again));
        session.rejected(now, conn, Refusal::Retry(again));
        let epoch = 1 + number;
        let request = next_request(&mut world, epoch);
        if number <= u64::from(PROMPT_RETRIES) {
            let (next, sent) = request.expect("a request");
            assert_eq!(sent, Some(cookie));
            conn = next;
            continue;
        }
        assert_eq!(request, None);
        world.now += BUSY_PAUSE;
        let (_, sent) = next_request(&mut world, epoch).expect("a request after the pause");
        assert_eq!(sent, Some(cookie));
        return;
    }
    panic!("no pause");
}
