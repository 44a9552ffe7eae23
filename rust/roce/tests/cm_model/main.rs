// SPDX-License-Identifier: GPL-2.0
//! A model test: two hosts establish, refuse and end connections over a network that loses,
//! duplicates, delays and reorders datagrams. A host may also lose its state.
//!
//! Each host owns its connections as `cm::Route` describes. Its consumers follow a plan: when to
//! connect, whether and when to accept, confirm, reject, disconnect or abandon. The test checks for
//! each seed:
//! - Everything ends: no timer spins, few messages are sent, and no connection stays that a
//!   consumer has ended.
//! - A consumer sees each request once, gets at most one final event, and `Closed` last.
//! - If both ends report a connection, they report each other, with the same QPs, PSNs, path MTU
//!   and private data.
//! - Without faults, and if both consumers agree, the connection is established with the largest
//!   path MTU that both support; or it is rejected if that is too small.
//!
//! `CM_SEEDS=from..to` selects the seeds. With a single seed the test prints all events.

#[path = "../sim/rng.rs"]
#[allow(dead_code, unreachable_pub, reason = "the simulator uses more of it")]
mod rng;
mod world;

use kfi_roce::cm::State;
use std::collections::BTreeMap;
use world::{
    Faults,
    History,
    World, //
};

impl World {
    /// Checks the results of a run.
    fn check(&self) {
        for (who, host) in self.hosts.iter().enumerate() {
            for (id, connection) in &host.connections {
                // Only a connection that is established as far as its end knows may stay.
                let state = connection.state();
                let history = &host.histories[id];
                assert!(
                    matches!(state, State::ReqReceived | State::RepReceived) && self.restarts > 0,
                    "{id:?} of {who} is left in {state:?}: {history:?}"
                );
            }
            for (id, history) in &host.histories {
                // The retransmission intervals, one MRA, and the time after a rejection.
                assert!(history.expired <= 24, "{id:?}: {history:?}");
                assert!(history.sent <= 120, "{id:?}: {history:?}");
                if !history.connected || self.restarts > 0 {
                    continue;
                }
                assert!(!history.no_common_mtu, "{id:?}: {history:?}");
                let others = self.hosts[1 - who].histories.iter();
                let peers: Vec<&History> = others
                    .filter(|(other, peer)| {
                        if history.active {
                            !peer.active && peer.request == id.0
                        } else {
                            peer.active && other.0 == history.request
                        }
                    })
                    .map(|(_, peer)| peer)
                    .collect();
                // A request that was ignored appears again. So may a rejected one if the rejection
                // has not reached the peer in all that time.
                let (peer, refused) = peers.split_last().expect("connected to a peer");
                assert!(refused.iter().all(|peer| peer.gave_up && !peer.connected));
                let bad = self.faults.loss >= 20;
                let all_ignored = refused.iter().all(|peer| peer.ignored);
                assert!(bad || all_ignored, "a request was seen twice");
                assert_eq!(peer.peer, history.mine);
                assert_eq!(history.peer, peer.mine);
                assert_eq!(history.mtu, peer.mtu);
            }
        }
        let Faults {
            loss,
            reject,
            abandon,
            restart,
            ..
        } = self.faults;
        if loss + reject + abandon + restart == 0 {
            let [one, two] = &self.hosts;
            let both = one.device.mtu.min(two.device.mtu);
            for host in &self.hosts {
                for history in host.histories.values() {
                    if history.no_common_mtu {
                        assert_eq!(history.ended, Some("Rejected"), "{history:?}");
                        continue;
                    }
                    assert_eq!(history.mtu, Some(both), "{history:?}");
                    // A DREQ may overtake the RTU.
                    let overtaken = !history.active && history.ended == Some("Disconnected");
                    assert!(history.connected || overtaken, "not connected: {history:?}");
                    let good = matches!(history.ended, Some("Released" | "Disconnected"));
                    assert!(good, "{history:?}");
                }
            }
        }
    }
}

/// The outcomes over all seeds. Each outcome must occur.
#[derive(Debug, Default)]
struct Totals {
    connected: u32,
    ended: BTreeMap<&'static str, u32>,
    gave_up: u32,
    restarts: u32,
}

fn seeds() -> std::ops::Range<u64> {
    let given = std::env::var("CM_SEEDS").ok();
    let given = given.as_deref().and_then(|range| range.split_once(".."));
    given.map_or(0..10_000, |(from, to)| {
        from.parse().unwrap()..to.parse().unwrap()
    })
}

#[test]
fn two_hosts_and_a_bad_network() {
    let mut totals = Totals::default();
    let seeds = seeds();
    let count = seeds.end - seeds.start;
    for seed in seeds {
        let run = std::panic::catch_unwind(|| {
            let mut world = World::new(seed, count == 1);
            world.run();
            world.check();
            world
        });
        let Ok(world) = run else {
            panic!("CM_SEEDS={seed}..{} shows it", seed + 1);
        };
        totals.restarts += world.restarts;
        for history in world.hosts.iter().flat_map(|host| host.histories.values()) {
            totals.connected += u32::from(history.connected);
            totals.gave_up += u32::from(history.gave_up);
            if let Some(end) = history.ended {
                *totals.ended.entry(end).or_default() += 1;
            }
        }
    }
    println!("{totals:?}");
    if count >= 10_000 {
        assert!(totals.connected > 10_000 && totals.gave_up > 1_000 && totals.restarts > 300);
        for end in ["Rejected", "Unreachable", "Disconnected", "Released"] {
            assert!(totals.ended[end] > 100, "{totals:?}");
        }
    }
}
