// SPDX-License-Identifier: GPL-2.0

//! The names that most files of the provider use.

pub(in crate::provider) use super::{
    domain::Domain,
    object::{
        HeldUse,
        Ident,
        Object,
        OwnedUse,
        UseCount,
        UseGuard,
        UseRef, //
    }, //
};
pub(in crate::provider) use crate::{
    mem::Allowance,
    shim::{
        errno::to_error,
        sched::cond_resched,
        wait::{
            new_wait_queue,
            WaitQueue, //
        }, //
    }, //
};
pub(in crate::provider) use kernel::{
    new_mutex,
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex,
        SetOnce,
        SpinLock, //
    }, //
};
pub(in crate::provider) use kfi_core::{
    addr::SockAddr,
    errno::Errno,
    peer::PeerAddr,
    wait::Deadline, //
};
