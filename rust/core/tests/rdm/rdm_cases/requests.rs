// SPDX-License-Identifier: GPL-2.0
//! Requests for connections: old, forged and repeated ones, and those that need a cookie.

use kfi_core::{
    auth_key::AuthKey,
    errno::Errno,
    flags::Caps,
    rdm::{
        hello::{
            Hello,
            PeerEpoch,
            Refusal, //
        },
        ops::Outgoing,
        session::{
            Manage,
            Reply, //
        },
        times::{
            BUSY_PAUSE,
            CONNECT_TIME,
            PROMPT_RETRIES,
            UNPROVEN_BURST, //
        },
        unproven::Proof,
        Cause,
        Conn,
        Cookie, //
    }, //
};

use super::{
    failed,
    rdm_world::{
        end::KEY,
        plan::Plan,
        rng::Rng,
        Addr,
        World,
        MS, //
    },
    world,
    OK,
    SHORT, //
};

/// Returns the private data of a request.
fn hello(incarnation: u64, epoch: u64) -> Hello {
    Hello {
        peer_epoch: PeerEpoch { incarnation, epoch },
        port: 1000,
        name_port: 1000,
        reads: 1,
        caps: Caps::EMPTY,
        cookie: None,
        auth_key: AuthKey::NONE,
    }
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
    assert_eq!(
        session.requested(now, &old, 1_000, Proof::None),
        Reply::Ignore
    );
    assert_eq!(session.manage(now, 1_001), None);
    // A request of another incarnation is answered, but replaces the connection only when it is
    // confirmed.
    let other = hello(incarnation ^ 1, 1);
    let reply = session.requested(now, &other, 1_002, Proof::None);
    let Reply::Accept(conn, _) = reply else {
        panic!("{reply:?}");
    };
    assert_eq!(session.manage(now, 1_003), None);
    session.failed(conn, Cause::Superseded);
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
    let reply = end.session(1).requested(now, &own, 10, Proof::None);
    assert!(matches!(reply, Reply::Refuse(_)));
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
    let Reply::Accept(first, _) = session.requested(now, &hello(7, 1), 1_000, Proof::None) else {
        panic!("it is answered");
    };
    // Another sender does not know the incarnation of the first request.
    for incarnation in [0, 6, 8, u64::MAX] {
        let other = session.requested(now, &hello(incarnation, 100), 1_001, Proof::None);
        assert_eq!(other, Reply::Ignore);
        assert_eq!(session.manage(now, 1_002), None);
    }
    // The peer itself has given up the first request and sends another one.
    assert_eq!(
        session.requested(now, &hello(7, 1), 1_003, Proof::None),
        Reply::Ignore
    );
    assert_eq!(session.manage(now, 1_004), None);
    assert_eq!(
        session.requested(now, &hello(7, 2), 1_005, Proof::None),
        Reply::Ignore
    );
    let closes = session.manage(now, 1_006);
    assert!(matches!(closes, Some(Manage::Close(of, _)) if of == first));
    session.closed(now, first);
    let again = session.requested(now, &hello(7, 2), 1_007, Proof::None);
    assert!(matches!(again, Reply::Accept(..)));
}

#[test]
fn a_request_with_a_cookie_replaces_a_pending_one_without() {
    let mut world = world(|_| ());
    let now = world.now;
    let session = world.ends[1].as_mut().unwrap().session(0);
    let forged = session.requested(now, &hello(7, 1), 1_000, Proof::None);
    let Reply::Accept(first, _) = forged else {
        panic!("it is answered");
    };
    assert!(session.has_unproven_request());
    let proven = session.requested(now, &hello(3, 1), 1_001, Proof::Cookie);
    assert_eq!(proven, Reply::Ignore);
    let closes = session.manage(now, 1_002);
    assert!(matches!(closes, Some(Manage::Close(of, _)) if of == first));
    session.closed(now, first);
    let again = session.requested(now, &hello(3, 1), 1_003, Proof::Cookie);
    assert!(matches!(again, Reply::Accept(..)));
    assert!(!session.has_unproven_request());
    // Neither a forged request nor another one with a cookie replaces it.
    for (number, proof) in [(9, Proof::None), (10, Proof::Cookie)] {
        let other = session.requested(now, &hello(number, 1), 1_000 + number, proof);
        assert_eq!(other, Reply::Ignore);
        assert_eq!(session.manage(now, 1_020), None);
    }
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

/// Returns a message.
fn message() -> Outgoing {
    Outgoing {
        tag: None,
        data: None,
        len: SHORT,
        atomic: None,
        rma: None,
        delivery: false,
        fence: false,
    }
}

#[test]
fn a_request_that_the_peer_withdraws_delays_no_own_one() {
    let mut world = world(|_| ());
    let now = world.now;
    let session = world.ends[0].as_mut().unwrap().session(1);
    session.send(now, message(), 1, ());
    let Reply::Accept(conn, _) = session.requested(now, &hello(9, 1), 1, Proof::None) else {
        panic!("not accepted");
    };
    session.rejected(now, conn, Refusal::Busy);
    assert!(next_request(&mut world, 2).is_some());
}

#[test]
fn a_request_is_repeated_at_once_with_the_last_cookie() {
    let mut world = world(|_| ());
    let now = world.now;
    let session = world.ends[0].as_mut().unwrap().session(1);
    session.send(now, message(), 1, ());
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
