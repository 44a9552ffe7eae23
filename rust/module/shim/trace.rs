// SPDX-License-Identifier: GPL-2.0

//! Functions that call the tracepoints of `trace.h`: operations and packets.
//!
//! ```text
//! echo 1 > /sys/kernel/tracing/events/kfabric/enable; cat /sys/kernel/tracing/trace_pipe
//! ```
//!
//! While a tracepoint is off, its function costs a branch that is not taken, and the arguments are
//! not computed. Any context.

use crate::shim::bindings as shim;
use kernel::jump_label::static_branch_unlikely;

/// Defines a safe function for each tracepoint of this module. The kernel crate's `declare_trace!`
/// looks for tracepoints of the kernel itself.
macro_rules! tracepoints {
    ($( $(#[$attr:meta])* $name:ident = $key:ident, $call:ident ($($arg:ident: $type:ty),*); )*) => {$(
        $(#[$attr])*
        #[inline(always)]
        pub(crate) fn $name(args: impl FnOnce() -> ($($type,)*)) {
            #[cfg(CONFIG_TRACEPOINTS)]
            {
                // SAFETY: The key belongs to a tracepoint that is defined in C.
                let traced = unsafe {
                    static_branch_unlikely!(shim::$key, kernel::bindings::tracepoint, key)
                };
                if traced {
                    let ($($arg,)*) = args();
                    // SAFETY: The arguments are numbers.
                    unsafe { shim::$call($($arg),*) }
                }
            }
            #[cfg(not(CONFIG_TRACEPOINTS))]
            {
                let _ = args;
            }
        }
    )*};
}

tracepoints! {
    /// Operation `opcode` (`KFABRIC_OP_*`) was posted to the endpoint named `ep`.
    post = __tracepoint_kfabric_post, rust_do_trace_kfabric_post
        (ep: u64, opcode: u32, context: u64);
    /// An operation has completed; `error` is 0 or a positive error number.
    complete = __tracepoint_kfabric_complete, rust_do_trace_kfabric_complete
        (ep: u64, context: u64, len: u64, error: u32);
    /// A packet to a QP was built, with this BTH opcode and PSN and `len` bytes of payload.
    tx = __tracepoint_kfabric_tx, rust_do_trace_kfabric_tx
        (qpn: u32, opcode: u32, psn: u32, len: u32);
    /// A packet with a valid ICRC has reached a QP.
    rx = __tracepoint_kfabric_rx, rust_do_trace_kfabric_rx
        (qpn: u32, opcode: u32, psn: u32, len: u32);
    /// A packet to a QP (0: it cannot be read) was dropped; `cause` is the number of the
    /// statistic that counts it.
    drop = __tracepoint_kfabric_drop, rust_do_trace_kfabric_drop
        (qpn: u32, cause: u32);
}
