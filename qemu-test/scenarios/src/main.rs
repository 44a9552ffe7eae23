// SPDX-License-Identifier: GPL-2.0
//! Scenarios: tests of kfabric.ko from user space.
//!
//! Each file is a group of tests of one topic; a test is a function that panics when it fails.
//! [`harness`] runs them, [`host`] has their common objects.
//!
//! ```text
//! kfi-scenarios [OPTION]... [WORD...]    tests whose name has a WORD, or all
//!     --exact            tests with these names
//!     --list             print their names, and run none
//!     --timeouts         only those of timeouts.rs; --no-timeouts: only the others
//!     --shard=K/N        of these each N-th, from the K-th on
//!     --for=SECONDS      begin none after so many seconds
//! ```
//!
//! `kfi-scenarios --fuzz SECONDS SEED` runs the [fuzzer](fuzz). `kfi-scenarios --hostile SECONDS
//! SEED [ATTACK]` runs the [attack test](hostile::siege): attacks over the wire while a good flow
//! goes on.
//!
//! `--faults` runs the tests that inject failures, which need the sanitizing kernel, instead of the
//! others.
//!
//! Output is KTAP; the exit status is 0 if all passed.

mod abi_atomic;
mod abi_auth_key;
mod abi_av;
mod abi_bind;
mod abi_budget;
mod abi_ep;
mod abi_eq;
mod abi_links;
mod abi_memory;
mod abi_objects;
mod abi_post;
mod abi_post_memory;
mod abi_queues;
mod abi_shape;
mod abi_spaces;
mod abi_table;
mod abi_threads;
mod abi_waiting;
mod abi_world;
mod addresses;
mod alone;
mod atomics;
mod auth_keys;
mod cancelling;
mod capabilities;
mod cli;
mod comp_cntr;
mod completions;
mod connected;
mod connections;
mod counted_in_time;
mod counter_errors;
mod counters;
mod counting;
mod crowd;
mod datagrams;
mod deferred;
mod deferred_counters;
mod deferred_memory;
mod deferred_owner;
mod deferred_races;
mod deferred_room;
mod descriptors;
mod dma_buf;
mod endpoints;
mod events;
mod failures;
mod faults;
mod first_contact;
mod flooded;
mod flows;
mod fuzz;
mod harness;
mod held_sessions;
mod host;
mod hostile;
mod hosts;
mod kernel_log;
mod kernel_memory;
mod keys;
mod measured_limits;
mod messages;
mod mixed_waiters;
mod module;
mod networks;
mod ordering;
mod posting;
mod process;
mod processes;
mod races;
mod raw;
mod rdm_atomics;
mod regions;
mod regressions;
mod rings;
mod rma;
mod rng;
mod route_interfaces;
mod routed;
mod routes;
mod run_inline;
mod scalable;
mod selective;
mod shared_contexts;
mod shared_senders;
mod sleepers;
mod stalled;
mod tagged_rma;
mod threads;
mod timeouts;
mod tracing;
mod transfers;
mod triggered;
mod unscheduled;
mod uring;
mod user_namespaces;
mod userfault;
mod verbs_peer;
mod waiter_limit;
mod waiting;
mod ways;
mod without_cq;
mod work_fields;

fn main() -> std::process::ExitCode {
    let mode = fuzz::main()
        .or_else(verbs_peer::main)
        .or_else(hostile::siege::main);
    if let Some(code) = mode {
        return code;
    }
    let groups: &[_] = if std::env::args().any(|arg| arg == "--faults") {
        &[faults::TESTS]
    } else {
        &[
            abi_auth_key::TESTS,
            abi_av::TESTS,
            abi_bind::TESTS,
            abi_ep::TESTS,
            abi_eq::TESTS,
            abi_links::TESTS,
            abi_memory::TESTS,
            abi_budget::TESTS,
            user_namespaces::TESTS,
            abi_objects::TESTS,
            abi_post::TESTS,
            abi_post_memory::TESTS,
            abi_atomic::TESTS,
            abi_queues::TESTS,
            abi_shape::TESTS,
            abi_spaces::TESTS,
            abi_waiting::TESTS,
            counters::TESTS,
            counting::TESTS,
            without_cq::TESTS,
            counter_errors::TESTS,
            counted_in_time::TESTS,
            comp_cntr::TESTS,
            comp_cntr::counted::TESTS,
            comp_cntr::external::TESTS,
            comp_cntr::gone::TESTS,
            completions::TESTS,
            selective::TESTS,
            shared_contexts::TESTS,
            shared_senders::TESTS,
            posting::TESTS,
            ordering::TESTS,
            cancelling::TESTS,
            failures::TESTS,
            rings::TESTS,
            descriptors::TESTS,
            sleepers::TESTS,
            mixed_waiters::TESTS,
            stalled::TESTS,
            events::TESTS,
            flooded::TESTS,
            addresses::TESTS,
            waiter_limit::TESTS,
            waiting::TESTS,
            endpoints::TESTS,
            transfers::TESTS,
            capabilities::TESTS,
            messages::TESTS,
            rma::TESTS,
            tagged_rma::TESTS,
            regions::TESTS,
            keys::TESTS,
            auth_keys::TESTS,
            scalable::TESTS,
            hosts::TESTS,
            hosts::operations::TESTS,
            hosts::peers::TESTS,
            first_contact::TESTS,
            datagrams::TESTS,
            flows::TESTS,
            flows::matching::TESTS,
            flows::life::TESTS,
            connected::TESTS,
            atomics::TESTS,
            triggered::TESTS,
            deferred::TESTS,
            deferred_counters::TESTS,
            deferred_memory::TESTS,
            deferred_owner::TESTS,
            deferred_races::TESTS,
            deferred_room::TESTS,
            work_fields::TESTS,
            rdm_atomics::TESTS,
            rdm_atomics::functions::TESTS,
            rdm_atomics::shared_word::TESTS,
            connections::TESTS,
            connections::refused::TESTS,
            connections::wire::TESTS,
            connections::killed::TESTS,
            connections::slow::TESTS,
            networks::TESTS,
            networks::many::TESTS,
            route_interfaces::TESTS,
            routed::TESTS,
            routes::TESTS,
            hostile::TESTS,
            hostile::atomics::TESTS,
            hostile::capabilities::TESTS,
            hostile::overdue::TESTS,
            hostile::receives::TESTS,
            hostile::tagged::TESTS,
            hostile::unproven::TESTS,
            cli::TESTS,
            cli::between::TESTS,
            cli::flow::TESTS,
            cli::pingpong::TESTS,
            cli::rping::TESTS,
            cli::top::TESTS,
            cli::trigger::TESTS,
            cli::watch::TESTS,
            processes::TESTS,
            tracing::TESTS,
            regressions::TESTS,
            races::TESTS,
            unscheduled::TESTS,
            held_sessions::TESTS,
            run_inline::TESTS,
            // Last, because they unload the module.
            measured_limits::TESTS,
            module::TESTS,
        ]
    };
    harness::main(
        groups,
        &[
            processes::ROLES,
            comp_cntr::gone::ROLES,
            races::ROLES,
            unscheduled::ROLES,
            held_sessions::ROLES,
            run_inline::ROLES,
            stalled::ROLES,
            user_namespaces::ROLES,
            hosts::peers::ROLES,
            connections::killed::ROLES,
            flows::life::ROLES,
            deferred_owner::ROLES,
            deferred_races::ROLES,
        ]
        .concat(),
    )
}
