// SPDX-License-Identifier: GPL-2.0
//! Two hosts that make, refuse and end connections over a network that loses, duplicates, delays and
//! reorders, and that may lose their memory.
//!
//! Each host owns its connections as `cm::Route` tells owners to. Consumers follow a plan: when to
//! ask, whether and when to accept, confirm, reject, disconnect or walk away. What must hold, whatever
//! happens:
//! - everything ends: no timer spins, messages are few, nothing is left open that a consumer ended;
//! - a consumer hears of each request once, gets at most one bad end, and `Closed` last;
//! - where both ends say that they are connected, they mean each other, with the same QPs, PSNs, path
//!   MTU and private data;
//! - without faults and with willing consumers, they are connected, with the largest path MTU that both
//!   can have; or rejected, if that will not do.
//!
//! `CM_SEEDS=from..to` runs other seeds than the usual ones; of a single one it prints what happens.

mod world;

use kfi_roce::cm::State;
use std::collections::BTreeMap;
use world::{
    Faults,
    Story,
    World, //
};

impl World {
    /// Looks at what has come of it.
    fn judge(&self) {
        for (who, host) in self.hosts.iter().enumerate() {
            for (id, connection) in &host.connections {
                // Only who is connected as far as it knows, and has no reason to disconnect, stays.
                let state = connection.state();
                let story = &host.stories[id];
                assert!(
                    matches!(state, State::ReqReceived | State::RepReceived) && self.restarts > 0,
                    "{id:?} of {who} is left in {state:?}: {story:?}"
                );
            }
            for (id, story) in &host.stories {
                // The intervals, one MRA, and what lingers.
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
                // A request that was rejected long ago, and of which the peer has not heard in all
                // that time, may be heard of again.
                let (peer, refused) = peers.split_last().expect("connected to somebody");
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

/// What came of connections, over all seeds: nothing that is to be tested may be missing.
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
