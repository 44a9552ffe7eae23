// SPDX-License-Identifier: GPL-2.0

//! The lowest layer: kernel interfaces that the kernel crate does not have.
//!
//! Each file provides a safe interface for one topic, on top of raw bindings of the kernel or of
//! the C functions of this directory. Together with [`mem`](crate::mem) and the edge of the front
//! ends, this is where unsafe code lives. Other layers use it only to initialise global locks.
//!
//! | file | content |
//! |---|---|
//! | [`bindings`] | bindgen's output for `bindings.h`: the ABI and the C functions |
//! | [`abi`] | the structures of the ABI that can be copied from and to user space |
//! | [`user`] | copying them, by the rules of extensible structures |
//! | [`errno`] | error numbers of `kfi_core` as errors of the kernel |
//! | [`wait`] | wait queues and single sleepers, with absolute deadlines |
//! | [`sched`] | `cond_resched()`, pending signals, the clock |
//! | [`anon_file`] | anonymous files, for poll, read and write |
//! | [`cpu`] | naming a CPU, and keeping softirqs off the current one |
//! | [`cred`] | owners, principals, memory control groups, charges for locked memory |
//! | [`word`] | 64-bit words shared without a lock |
//! | [`net`] | network namespaces and interfaces |
//! | [`udp`] | the UDP sockets of a namespace, its addresses, routes to peers |
//! | [`skb`] | packets in socket buffers |
//! | [`rcu`] | look-ups that take no lock |
//! | [`memory`] | the memory of the machine, and what an allocation takes of it |
//! | [`reclaim`] | scopes in which allocations start no I/O |
//! | [`work`] | the module's workqueues |
//! | [`alarm`] | a timer that an object sets repeatedly |
//! | [`deadline`] | has another task do accepted work that does not begin in time |
//! | [`percpu`] | per-CPU statistics |
//! | [`random`] | random numbers, and hashes with a secret key |
//! | [`trace`] | tracepoints |
//! | [`inline_work`] | run to completion of the receive work that a task's packets cause on this host |

pub(crate) mod abi;
pub(crate) mod alarm;
pub(crate) mod anon_file;
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
pub(crate) mod bindings {
    //! The structures and constants of `<uapi/kfabric.h>` and the C functions of the module.
    //! bindgen generates them from `bindings.h` (see Kbuild).
    //!
    //! The macros `every_constant`, `every_structure` and `every_command` list the names that the
    //! header defines (`lists.awk`).
    //!
    //! All of the module may use the structures and constants. Only [`shim`](crate::shim),
    //! [`mem`](crate::mem) and the network layer call the functions.

    include!(env!("KFI_BINDINGS"));
}
pub(crate) mod cpu;
pub(crate) mod cred;
pub(crate) mod deadline;
pub(crate) mod errno;
pub(crate) mod inline_work;
pub(crate) mod memory;
pub(crate) mod net;
pub(crate) mod percpu;
pub(crate) mod random;
pub(crate) mod rcu;
pub(crate) mod reclaim;
pub(crate) mod sched;
pub(crate) mod skb;
pub(crate) mod trace;
pub(crate) mod udp;
pub(crate) mod user;
pub(crate) mod wait;
pub(crate) mod word;
pub(crate) mod work;
