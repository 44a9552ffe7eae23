// SPDX-License-Identifier: GPL-2.0
//! Endpoints of two hosts: two network namespaces, joined by a veth pair.
//!
//! Properties on one host also hold between two: this file runs tests of other groups again, with
//! the endpoints of a pair on different hosts. Groups of their own test properties of networks:
//! the [operations] between the hosts, and the [peers] that come and go.

pub(crate) mod operations;
pub(crate) mod peers;

use crate::{
    abi_threads::NetNs,
    harness::{Group, tests},
    host::{Host, TRECEIVED, TSENT, buffer, domain_on, holding, pattern},
    raw::{ip, program},
};
use kfi::{Device, Domain, FiAddr};
use std::sync::{
    OnceLock,
    atomic::{AtomicUsize, Ordering},
};

/// The groups of the tests that run again.
const GROUPS: &[Group] = &[
    crate::messages::TESTS,
    crate::transfers::TESTS,
    crate::rma::TESTS,
    crate::capabilities::TESTS,
    crate::counting::TESTS,
    crate::scalable::TESTS,
    crate::shared_contexts::TESTS,
    crate::triggered::TESTS,
    crate::deferred::TESTS,
    crate::deferred_counters::TESTS,
    crate::deferred_room::TESTS,
];

/// Runs the test with this name with its endpoints apart.
fn again(name: &str) {
    apart();
    let all = GROUPS.iter().copied().flatten().copied().flatten();
    let mut found = all.filter(|test| test.name.rsplit("::").next() == Some(name));
    let test = found.next().expect("the test is there");
    assert!(found.next().is_none(), "two groups have it");
    (test.run)();
}

/// Lists tests of other groups as `tests!` does those of this one.
macro_rules! again {
    ($($name:ident $(=> $limit:expr)?),* $(,)?) => {
        /// The tests that run again.
        pub(crate) const TESTS: Group =
            &[&[$(tests!(@test $name, [], || again(stringify!($name)), [$($limit)?])),*]];
    };
}

again![
    a_tag_selects_its_receive,
    multi_receive_is_released_once,
    lists_of_256_pieces,
    lists_with_empty_pieces,
    completion_levels_are_kept,
    pieces_on_both_sides,
    a_region_saves_pinning,
    a_directed_receive_takes_messages_of_its_source_only,
    without_the_capability_a_source_is_ignored,
    a_search_counts_nothing,
    an_operation_counts_once_at_its_target,
    each_context_has_an_address,
    the_source_is_the_scalable_endpoint,
    a_receive_names_a_scalable_endpoint,
    memory_is_accessed_through_each_context,
    contexts_that_do_not_exist_are_not_reached,
    contexts_have_the_key_of_their_scalable_endpoint,
    the_oldest_shared_receive_takes_a_message,
    messages_wait_for_a_shared_receive,
    an_endpoint_closes_and_shared_receives_stay,
    a_shared_buffer_takes_messages_of_all_endpoints,
    a_peer_sends_much_to_shared_receives,
    connections_share_receives,
    datagram_endpoints_share_receives,
    transmits_share_room,
    operations_start_when_due_of_a_connection,
    operations_start_when_due_of_datagrams,
    a_message_is_sent_when_due_of_a_connection,
    a_message_is_sent_when_due_of_datagrams,
    a_receive_is_posted_when_due_of_a_connection,
    a_receive_is_posted_when_due_of_datagrams,
    a_region_is_written_and_read_when_due_of_a_connection,
    deferred_work_is_silent_at_its_endpoint_of_a_connection,
    deferred_work_is_silent_at_its_endpoint_of_datagrams,
    waiting_work_takes_no_room_of_a_connection,
    waiting_work_takes_no_room_of_datagrams,
    started_receives_wait_for_room_of_a_connection,
    work_for_a_peer_that_has_closed_fails_of_a_connection,
    work_of_a_connection_that_was_shut_down_fails,
];

/// Two hosts.
pub(crate) struct Hosts {
    a: NetNs,
    b: NetNs,
    turn: AtomicUsize,
}

static HOSTS: OnceLock<Hosts> = OnceLock::new();

/// Interfaces and links have these names, each on its host.
pub(crate) const LINKS: [&str; 2] = ["va", "vb"];

impl Hosts {
    fn new() -> Self {
        let hosts = Self {
            a: NetNs::new(),
            b: NetNs::new(),
            turn: AtomicUsize::new(0),
        };
        let there = hosts.b.path();
        hosts
            .a
            .run(|| ip(&format!("link add va type veth peer name vb netns {there}")));
        for (index, name) in LINKS.into_iter().enumerate() {
            let at = index + 1;
            hosts.host(index).run(|| {
                ip(&format!("address add 10.7.0.{at}/24 dev {name}"));
                ip(&format!("address add fd07::{at}/64 dev {name} nodad"));
                ip(&format!("link set {name} up"));
                let device = Device::open().expect("open /dev/kfabric");
                device.link_add(name, name).expect("link_add");
            });
        }
        hosts
    }

    /// The first host for an even index, the second for an odd one.
    pub(crate) fn host(&self, index: usize) -> &NetNs {
        if index.is_multiple_of(2) {
            &self.a
        } else {
            &self.b
        }
    }

    /// A domain on one of them.
    pub(crate) fn domain(&self, index: usize) -> (kfi::Fabric, Domain) {
        self.host(index).run(|| domain_on(LINKS[index % 2]))
    }

    /// Sets the behaviour of the network, in both directions (tc-netem(8)).
    pub(crate) fn network(&self, netem: &str) {
        for (index, name) in LINKS.into_iter().enumerate() {
            let words = format!("qdisc replace dev {name} root netem {netem}");
            self.host(index).run(|| program("tc", &words));
        }
    }
}

/// Makes this process two hosts: each new domain is on the other one.
pub(crate) fn apart() -> &'static Hosts {
    HOSTS.get_or_init(Hosts::new)
}

/// The domain of the next host, if this process is two hosts.
pub(crate) fn next_domain() -> Option<(kfi::Fabric, Domain)> {
    let hosts = HOSTS.get()?;
    Some(hosts.domain(hosts.turn.fetch_add(1, Ordering::Relaxed)))
}

/// Sends a message of `len` bytes from `a` to `b`.
#[track_caller]
fn exchange(a: &Host, to_b: FiAddr, b: &Host, len: usize) {
    let bytes = pattern(len, len as u64);
    let (from, into) = (holding(&bytes), buffer(len.max(1)));
    b.ep.trecv(&into, 7, 0, 2).expect("trecv");
    a.ep.tsend(to_b, &from, 7, 1).expect("tsend");
    let entry = b.expect(TRECEIVED, 2);
    assert_eq!(entry.len as usize, len);
    assert!(into.to_vec(..len) == bytes, "length {len}");
    a.expect(TSENT, 1);
}

/// Whether the kernel checks for its own faults, which makes it ten times slower, and long
/// transfers between two hosts a hundred times.
pub(crate) fn sanitizing() -> bool {
    std::path::Path::new("/sys/kernel/debug/kmemleak").exists()
}
