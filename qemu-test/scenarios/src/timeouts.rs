// SPDX-License-Identifier: GPL-2.0
//! Tests that mostly wait: for a retry, a time-out of the protocol or a delay of the module, while
//! the guest has nothing to do. They run in a guest whose clock jumps while it is idle
//! (`qemu-test/run timeouts`), in a tenth of the time.
//!
//! A test belongs here if it takes seconds, most of them idle, and neither compares rates nor needs
//! two CPUs that run at once: the CPUs of that guest take turns.

/// Their names.
pub(crate) const TIMEOUTS: &[&str] = &[
    "abi_waiting::a_restarted_wait_keeps_its_deadline",
    "connections::wire::a_peer_without_a_link_times_out",
    "connections::wire::connecting_survives_lost_messages",
    "deferred_room::work_for_a_host_that_does_not_answer_fails",
    "deferred_room::work_for_a_peer_that_has_closed_fails_of_a_connection",
    "hostile::overdue::a_peer_that_answers_nothing_does_not_keep_contexts_open",
    "hostile::tagged::a_read_gets_the_memory_of_the_receive_only",
    "hostile::unproven::one_request_brings_five_packets",
    "hosts::operations::all_operations_complete_under_heavy_loss",
    "hosts::peers::a_missing_host_times_out",
    "hosts::peers::closing_ends_without_an_answer_of_the_peer",
    "hosts::peers::idle_connections_are_retired",
    "hosts::work_for_a_peer_that_has_closed_fails_of_a_connection",
    "keys::a_host_that_guesses_gets_no_connection",
    "keys::guesses_of_connected_endpoints_are_delayed_and_counted",
    "mixed_waiters::waiters_that_leave_a_counter_take_no_release_with_them",
    "mixed_waiters::waiters_that_leave_a_cq_take_no_entry_with_them",
    "networks::a_peer_with_a_new_address_is_reached_there",
    "networks::an_operation_beyond_a_smaller_mtu_ends_its_connection",
    "networks::datagrams_continue_after_changes_of_interfaces",
    "networks::operations_fail_if_the_address_stays_removed",
    "networks::operations_fail_if_the_interface_stays_down",
    "rma::guessing_keys_is_slow_and_counted",
    "routed::a_narrow_path_ends_a_connection",
    "routed::reliable_datagrams_reconnect_over_a_narrow_path",
    "routes::an_endpoint_is_told_that_its_answer_was_lost",
];
