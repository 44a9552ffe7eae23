// SPDX-License-Identifier: GPL-2.0

//! The queue of started operations of one side, and the delays after which a blocked one is tried
//! again. Its owner has a lock for both queues.

use super::super::{
    admit::Entry,
    prelude::*, //
};

/// The time in ns after which a blocked queue is tried again for the first time.
pub(super) const FIRST_DELAY: u64 = 1_000_000;

/// The longest delay between two attempts in ns. It bounds the CPU time that a user can take with
/// many blocked endpoints.
pub(super) const LAST_DELAY: u64 = 512_000_000;

/// Operations, linked by the memory that they bring: a stack.
pub(super) struct Stack(pub(super) Option<KBox<Entry>>);

impl Stack {
    pub(super) fn push(&mut self, mut entry: KBox<Entry>) {
        entry.next = self.0.take();
        self.0 = Some(entry);
    }

    pub(super) fn pop(&mut self) -> Option<KBox<Entry>> {
        let mut entry = self.0.take()?;
        self.0 = entry.next.take();
        Some(entry)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // Not by recursion: a stack may have very many entries.
        while self.pop().is_some() {}
    }
}

/// The time of the next attempt. The delay doubles with each attempt that is in vain.
pub(super) struct Backoff {
    /// The time of the next attempt in ns; 0 before the first.
    pub(super) at: u64,
    /// The delay in ns after that attempt.
    pub(super) delay: u64,
}

impl Backoff {
    pub(super) const fn new() -> Self {
        Self {
            at: 0,
            delay: FIRST_DELAY,
        }
    }

    /// Sets the time of the next attempt if an attempt was due at `now`. Returns the time of the
    /// next attempt.
    pub(super) fn after(&mut self, now: u64) -> u64 {
        if now >= self.at {
            self.at = now.saturating_add(self.delay);
            self.delay = self.delay.saturating_mul(2).min(LAST_DELAY);
        }
        self.at
    }
}

/// The queue of one side.
pub(super) struct Queue {
    /// Started operations, the newest first.
    pub(super) started: Stack,
    /// Operations that were started before those, the oldest first. A [`Run`](super::Run) has them
    /// meanwhile.
    pub(super) ready: Stack,
    /// A task has a [`Run`](super::Run) of this queue.
    pub(super) busy: bool,
    /// The first operation has found no room.
    pub(super) blocked: bool,
    /// An operation of the endpoint has completed during the run.
    pub(super) kicked: bool,
    /// If the queue is blocked: the next attempt.
    pub(super) retry: Backoff,
}

impl Queue {
    pub(super) const fn new() -> Self {
        Self {
            started: Stack(None),
            ready: Stack(None),
            busy: false,
            blocked: false,
            kicked: false,
            retry: Backoff::new(),
        }
    }

    /// The endpoint, if the queue is not empty.
    pub(super) fn endpoint(&self) -> Option<&Arc<Endpoint>> {
        let first = self.ready.0.as_ref().or(self.started.0.as_ref());
        first.map(|first| &*first.endpoint)
    }
}
