// SPDX-License-Identifier: GPL-2.0

//! The lowest floor: what the kernel crate does not have.
//!
//! One file per thing, each a safe face over raw bindings of the kernel or over
//! the C helpers of shim.c. Together with [`mem`](crate::mem) and the edge of
//! the faces this is where unsafe code lives; the floors above have none.
//!
//! | file | what |
//! |---|---|
//! | [`bindings`] | bindgen's view of `bindings.h`: the ABI and the C helpers |
//! | [`abi`] | which structures of the ABI may be copied from and to user space |
//! | [`user`] | copying them, by the rules of extensible structures |
//! | [`errno`] | error numbers of the core crate as errors of the kernel |
//! | [`wait`] | wait queues and single sleepers, with absolute deadlines |
//! | [`sched`] | giving way, being killed, the clock |
//! | [`anon_file`] | file descriptors without a name, for poll and read |
//! | [`cred`] | who opened something, and what they have locked in memory |
//! | [`word`] | 64-bit words shared without a lock |
//! | [`net`] | network namespaces, interfaces, addresses |
//! | [`udp`] | the UDP sockets of a namespace, and ways to peers |
//! | [`skb`] | packets of the wire |
//! | [`rcu`] | look-ups that take no lock |
//! | [`work`] | the module's workqueue |
//! | [`alarm`] | one timer of an object |
//! | [`deadline`] | has others do work that a task has accepted and does not begin |
//! | [`percpu`] | figures that each CPU counts for itself |
//! | [`random`] | random numbers |
//! | [`trace`] | tracepoints |
//! | [`inline_work`] | runs to completion the receive work that a task's packets cause on this host |
//! | `kthread`, `kunit`, `aids` | other threads, user memory and patience, for the test suites |

pub(crate) mod abi;
#[cfg(kfi_kunit)]
#[path = "../../../kunit/aids.rs"]
pub(crate) mod aids;
pub(crate) mod alarm;
pub(crate) mod anon_file;
#[cfg(kfi_kunit)]
pub(crate) mod bench;
#[allow(
    dead_code,
    improper_ctypes,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unused_imports,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    reason = "made by bindgen"
)]
pub(crate) mod bindings;
pub(crate) mod cred;
pub(crate) mod deadline;
pub(crate) mod errno;
pub(crate) mod inline_work;
#[cfg(kfi_kunit)]
pub(crate) mod kthread;
#[cfg(kfi_kunit)]
pub(crate) mod kunit;
pub(crate) mod net;
pub(crate) mod percpu;
pub(crate) mod random;
pub(crate) mod rcu;
pub(crate) mod sched;
pub(crate) mod skb;
pub(crate) mod trace;
pub(crate) mod udp;
pub(crate) mod user;
pub(crate) mod wait;
pub(crate) mod word;
pub(crate) mod work;
