// SPDX-License-Identifier: GPL-2.0
//! Answers of a session to messages and CANCELs of its peer: their limit, and their end.

use kfi_core::{
    errno::Errno,
    rdm::{
        header::Header,
        times::{
            ANSWERS,
            CANCELS_MAX, //
        }, //
    }, //
};

use super::{
    failed,
    rdm_world::{
        Addr,
        World,
        MS, //
    },
    world,
    LONG,
    OK,
    SHORT, //
};

/// The most answers that an end keeps for a peer.
const ANSWERS_MAX: u32 = ANSWERS + CANCELS_MAX;

/// Returns a world in which end 0 accepts no FIN.
fn world_without_fins(receives: usize) -> World {
    let mut world = world(|plan| plan.rx_size = receives);
    world.refuses_fins = Some(0);
    world
}

/// Returns the number of answers that end 0 expects of end 1.
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
