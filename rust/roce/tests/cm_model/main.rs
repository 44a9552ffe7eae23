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

mod world;

use kfi_roce::cm::State;
use std::collections::BTreeMap;
use world::{
    Faults,
    Story,
    World, //
};

impl World {
    /// Checks the results of a run.
    fn judge(&self) {
        for (who, host) in self.hosts.iter().enumerate() {
            for (id, connection) in &host.connections {
                // Only a connection that is established as far as its end knows may stay.
                let state = connection.state();
                let story = &host.stories[id];
                assert!(
                    matches!(state, State::ReqReceived | State::RepReceived) && self.restarts > 0,
                    "{id:?} of {who} is left in {state:?}: {story:?}"
                );
            }
            for (id, story) in &host.stories {
                // The retransmission intervals, one MRA, and the time after a rejection.
                assert!(story.expired <= 24, "{id:?}: {story:?}");
                assert!(story.sent <= 120, "{id:?}: {story:?}");
                if !story.connected || self.restarts > 0 {
                    continue;
                }
                assert!(!story.hopeless, "{id:?}: {story:?}");
                let others = self.hosts[1 - who].stories.iter();
                let peers: Vec<&Story> = others
                    .filter(|(other, peer)| {
                        if story.active {
                            !peer.active && peer.request == id.0
                        } else {
                            peer.active && other.0 == story.request
                        }
                    })
                    .map(|(_, peer)| peer)
                    .collect();
                // If the peer has not heard of the rejection in all that time, the same request may
                // appear again.
                let (peer, refused) = peers.split_last().expect("connected to a peer");
                assert!(refused.iter().all(|peer| peer.gave_up && !peer.connected));
                let bad = self.faults.loss >= 20;
                assert!(bad || refused.is_empty(), "a request was heard of twice");
                assert_eq!(peer.peer, story.mine);
                assert_eq!(story.peer, peer.mine);
                assert_eq!(story.mtu, peer.mtu);
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
                for story in host.stories.values() {
                    if story.hopeless {
                        assert_eq!(story.ended, Some("Rejected"), "{story:?}");
                        continue;
                    }
                    assert_eq!(story.mtu, Some(both), "{story:?}");
                    // A DREQ may overtake the RTU.
                    let overtaken = !story.active && story.ended == Some("Disconnected");
                    assert!(story.connected || overtaken, "not connected: {story:?}");
                    let good = matches!(story.ended, Some("Released" | "Disconnected"));
                    assert!(good, "{story:?}");
                }
            }
        }
    }
}

/// The outcomes over all seeds. Each outcome must occur.
#[derive(Debug, Default)]
struct Sum {
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
    let mut sum = Sum::default();
    let seeds = seeds();
    let count = seeds.end - seeds.start;
    for seed in seeds {
        let run = std::panic::catch_unwind(|| {
            let mut world = World::new(seed, count == 1);
            world.run();
            world.judge();
            world
        });
        let Ok(world) = run else {
            panic!("CM_SEEDS={seed}..{} shows it", seed + 1);
        };
        sum.restarts += world.restarts;
        for story in world.hosts.iter().flat_map(|host| host.stories.values()) {
            sum.connected += u32::from(story.connected);
            sum.gave_up += u32::from(story.gave_up);
            if let Some(end) = story.ended {
                *sum.ended.entry(end).or_default() += 1;
            }
        }
    }
    println!("{sum:?}");
    if count >= 10_000 {
        assert!(sum.connected > 10_000 && sum.gave_up > 1_000 && sum.restarts > 300);
        for end in ["Rejected", "Unreachable", "Disconnected", "Released"] {
            assert!(sum.ended[end] > 100, "{sum:?}");
        }
    }
}
