// SPDX-License-Identifier: GPL-2.0
//! Helpers of the unit tests, for cargo and for the kernel: a log of events.

/// A log of events in order; tests compare it as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Log<T> {
    entries: [Option<T>; 8],
    len: usize,
}

impl<T: Copy> Log<T> {
    pub(crate) const fn new() -> Self {
        Self {
            entries: [None; 8],
            len: 0,
        }
    }

    pub(crate) fn of(list: &[T]) -> Self {
        let mut log = Self::new();
        for entry in list {
            log.push(*entry);
        }
        log
    }

    /// Removes and returns the last entry.
    pub(crate) fn pop(&mut self) -> Option<T> {
        self.len = self.len.checked_sub(1)?;
        self.entries.get_mut(self.len)?.take()
    }

    pub(crate) fn push(&mut self, entry: T) {
        if let Some(place) = self.entries.get_mut(self.len) {
            *place = Some(entry);
        }
        self.len += 1;
    }
}
