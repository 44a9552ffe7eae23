// SPDX-License-Identifier: GPL-2.0
//! A log of one run, for debugging.

use super::wire;
use std::{
    cell::RefCell,
    io,
    path::Path,
    rc::Rc, //
};

/// The lines and datagrams, if tracing is on. They survive a panic of the run.
#[derive(Clone, Default)]
pub struct Trace(Option<Rc<RefCell<Kept>>>);

#[derive(Default)]
struct Kept {
    now: u64,
    lines: Vec<String>,
    datagrams: Vec<(u64, Vec<u8>)>,
}

impl Trace {
    pub fn on() -> Self {
        Self(Some(Rc::default()))
    }

    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    pub fn time(&self, now: u64) {
        if let Some(kept) = &self.0 {
            kept.borrow_mut().now = now;
        }
    }

    /// Records an action of an end, or of none.
    pub fn note(&self, end: Option<u8>, what: impl FnOnce() -> String) {
        if let Some(kept) = &self.0 {
            let what = what();
            let mut kept = kept.borrow_mut();
            let now = kept.now;
            let us = now as f64 / 1000.0;
            let who = ["A", "B", " "][usize::from(end.unwrap_or(2))];
            kept.lines.push(format!("{us:14.3} us {who} {what}"));
        }
    }

    /// Records a datagram that was sent.
    pub fn datagram(&self, datagram: &[u8]) {
        if let Some(kept) = &self.0 {
            let mut kept = kept.borrow_mut();
            let now = kept.now;
            kept.datagrams.push((now, datagram.to_vec()));
        }
    }

    pub fn lines(&self) -> Vec<String> {
        self.0
            .as_ref()
            .map_or(Vec::new(), |kept| kept.borrow().lines.clone())
    }

    pub fn write_pcap(&self, path: &Path) -> io::Result<()> {
        match &self.0 {
            Some(kept) => wire::write_pcap(path, &kept.borrow().datagrams),
            None => Ok(()),
        }
    }
}
