// SPDX-License-Identifier: GPL-2.0

//! What a consumer has opened from a fabric and not closed yet, by class.
//!
//! The module cannot close objects for a consumer: it does not know when the consumer stops using
//! them. It tells of objects that keep a fabric open, once for each fabric, when the consumer tries
//! to close that ([`Opened::tell`]).

use kernel::{
    fmt,
    prelude::*,
    sync::{
        atomic::{
            ordering::Relaxed,
            Atomic, //
        },
        Arc, //
    }, //
};

use super::raw;

/// The classes of objects that are made from a fabric, with their names.
const CLASSES: [(u32, &str); 15] = [
    (raw::KFI_CLASS_DOMAIN, "domain"),
    (raw::KFI_CLASS_EP, "endpoint"),
    (raw::KFI_CLASS_SEP, "scalable endpoint"),
    (raw::KFI_CLASS_TX_CTX, "transmit context"),
    (raw::KFI_CLASS_RX_CTX, "receive context"),
    (raw::KFI_CLASS_STX_CTX, "shared transmit context"),
    (raw::KFI_CLASS_SRX_CTX, "shared receive context"),
    (raw::KFI_CLASS_PEP, "passive endpoint"),
    (raw::KFI_CLASS_AV, "address vector"),
    (raw::KFI_CLASS_MR, "memory region"),
    (raw::KFI_CLASS_EQ, "event queue"),
    (raw::KFI_CLASS_CQ, "completion queue"),
    (raw::KFI_CLASS_CNTR, "counter"),
    (raw::KFI_CLASS_WAIT, "wait set"),
    (raw::KFI_CLASS_POLL, "poll set"),
];

/// The numbers of open objects of a fabric. Any context.
pub(super) struct Opened {
    counts: [Atomic<u32>; CLASSES.len()],
    told: Atomic<bool>,
}

impl Opened {
    /// None. Fails with `ENOMEM`. Sleeps.
    pub(super) fn new() -> Result<Arc<Self>> {
        let opened = Self {
            counts: [const { Atomic::new(0) }; CLASSES.len()],
            told: Atomic::new(false),
        };
        Ok(Arc::new(opened, GFP_KERNEL_ACCOUNT)?)
    }

    /// Counts an object of a class, until the result is dropped.
    pub(super) fn count(self: &Arc<Self>, class: u32) -> Counted {
        if let Some(count) = self.of_class(class) {
            count.fetch_add(1, Relaxed);
        }
        Counted {
            opened: self.clone(),
            class,
        }
    }

    fn of_class(&self, class: u32) -> Option<&Atomic<u32>> {
        let index = CLASSES.iter().position(|(known, _)| *known == class)?;
        self.counts.get(index)
    }

    /// Prints the open objects, if it has not before.
    pub(super) fn tell(&self) {
        if !self.told.xchg(true, Relaxed) {
            pr_notice!("a fabric of a kernel module is not closed, because of {self}\n");
        }
    }
}

impl fmt::Display for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for ((_, name), count) in CLASSES.iter().zip(&self.counts) {
            let count = count.load(Relaxed);
            if count > 0 {
                let plural = if count == 1 { "" } else { "s" };
                write!(f, "{separator}{count} {name}{plural}")?;
                separator = ", ";
            }
        }
        Ok(())
    }
}

/// An object that is counted.
pub(super) struct Counted {
    opened: Arc<Opened>,
    class: u32,
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(count) = self.opened.of_class(self.class) {
            count.fetch_sub(1, Relaxed);
        }
    }
}
