// SPDX-License-Identifier: GPL-2.0
//! What happened, for who looks into a seed.

use super::wire;
use std::{
    cell::RefCell,
    io,
    path::Path,
    rc::Rc, //
};

/// Lines and datagrams, if anybody wants them. Survives the panic of a run.
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

    /// Notes what an end, or nobody, did.
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

    /// Notes a datagram that was sent.
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
