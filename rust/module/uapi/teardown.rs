// SPDX-License-Identifier: GPL-2.0

//! Release of an open file: closes all its objects.
//!
//! This runs when the last reference to the file is dropped: by close(2), by exit, or by a kill at
//! any moment. No call runs on the file any more and it has no mappings, because each holds a
//! reference to the file. Other tasks may still use the objects: peers that send to an endpoint or
//! access a region, and pollers of a descriptor from `KFABRIC_IOC_GETWAIT`, which outlives the
//! file. `object::force_close` lets no further operation of a peer begin, and pollers find the
//! object closed.
//!
//! Objects are closed before the objects that they use ([`Class::IN_ORDER`]), so nothing new refers
//! to a closed one. The time is bounded: one walk over a table of at most 65535 handles to announce
//! the end, and one for each class. No close waits for a task of another user: a peer that is
//! copying goes on, with references to the objects that it uses
//! ([`object`](crate::provider::object)). An endpoint disconnects from peers on other hosts, which
//! may not answer, and waits for them for a bounded time. So all endpoints begin to disconnect
//! before the first one waits.

use super::{
    handles::Table,
    objects::{
        Class,
        Entry, //
    }, //
};
use crate::shim::sched::cond_resched;

/// Handles that are checked between two calls of `cond_resched()`.
const STRIDE: u32 = 1024;

/// Closes all objects of `handles`, in order of dependence. Sleeps.
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
