// SPDX-License-Identifier: GPL-2.0

//! The end of an open file: everything that it made is taken down.
//!
//! This runs when the last reference to the file goes: close(2), exit, or kill -9 in the middle of
//! anything. No call runs on the file any more and none of its mappings is left, because each holds
//! the file. What may still run is others' work that reaches these objects: peers that send to an
//! endpoint or write to a region, and pollers of a descriptor from `KFABRIC_IOC_GETWAIT`, which
//! outlives the file. `object::force_close` lets no more of the first begin, and lets the second find
//! the object closed.
//!
//! Users go before what they use ([`Class::IN_ORDER`]), so nothing new is made with what is closed.
//! The time is bounded: eleven walks over a table of at most 65535 handles. No object waits for
//! a task of another user: a peer that is copying goes on, with references to what it works with
//! ([`object`](crate::provider::object)). Endpoints say farewell to peers on other hosts, who may be
//! gone and not answer; so all of them begin with that before the first one waits, for a bounded time.

use super::{
    handles::Table,
    objects::{
        Class,
        Entry, //
    }, //
};
use crate::shim::sched::cond_resched;

/// How many handles are looked at before other tasks may run.
const STRIDE: u32 = 1024;

/// Closes all that `handles` name, in order of dependence. Sleeps.
pub(super) fn all(handles: &Table<Entry>) {
    let bound = handles.bound();
    for handle in 1..=bound {
        if handle % STRIDE == 0 {
            cond_resched();
        }
        if let Some(entry) = handles.get(handle) {
            entry.farewell();
        }
    }
    for &class in Class::IN_ORDER {
        for handle in 1..=bound {
            if handle % STRIDE == 0 {
                cond_resched();
            }
            match handles.get(handle) {
                Some(entry) if entry.class() == class => {
                    entry.force_close();
                    handles.remove(handle);
                }
                _ => {}
            }
        }
    }
}
