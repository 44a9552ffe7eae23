// SPDX-License-Identifier: GPL-2.0
//! `kfi top`: live statistics of links, endpoints, completion queues, counters and completion
//! counters.
//!
//! [`sample`] reads the statistics and compares two samples, [`tables`] makes the
//! tables, [`view`] draws them on a terminal. Without a terminal, or with `--once` or
//! `--json`, they are printed.

pub(crate) mod sample;
pub(crate) mod tables;
mod view;

#[cfg(test)]
pub(crate) use sample::tests;

use std::{thread, time::Duration};

use kfi::Device;

use crate::{args, error::Result, link, out::Out, screen};
use sample::{Change, Sample};

/// Runs `kfi top`.
pub(crate) fn run(args: &args::Top, out: &mut Out) -> Result<()> {
    let device = link::open()?;
    if args.once || out.is_json() || !screen::has_screen() {
        return print(&device, args, out);
    }
    watch(&device, args.interval)
}

/// Prints once, or repeatedly.
fn print(device: &Device, args: &args::Top, out: &mut Out) -> Result<()> {
    let mut before = Sample::take(device)?;
    if args.once {
        return show(&before.since_ever(), out);
    }
    show(&before.since_ever(), out)?;
    loop {
        thread::sleep(args.interval);
        let now = Sample::take(device)?;
        if !out.is_json() {
            out.line("\n----")?;
        }
        show(&now.since(&before), out)?;
        before = now;
    }
}

fn show(change: &Change, out: &mut Out) -> Result<()> {
    if out.is_json() {
        return out.document(change);
    }
    for (at, (name, table, rows)) in change.tables().into_iter().enumerate() {
        if at > 0 {
            out.line("")?;
        }
        if rows > 0 {
            out.table(&table)?;
        } else {
            out.line(format!("no {name}"))?;
        }
    }
    Ok(())
}

/// Fills the screen until the user quits.
fn watch(device: &Device, interval: Duration) -> Result<()> {
    let mut before: Option<Sample> = None;
    screen::run(interval, || {
        let now = Sample::take(device)?;
        let page = view::page(&now.compare(before.as_ref()));
        before = Some(now);
        Ok(Some(page))
    })
}
