// SPDX-License-Identifier: GPL-2.0
//! `kfi cntr watch`: the counters of programs, live.
//!
//! The statistics of counters (`KFABRIC_IOC_STAT`) are read at intervals; a counter of another
//! process cannot be mapped. On a terminal they fill the screen; else each sample adds a line
//! for each counter:
//!
//! ```text
//!       MS  COUNTER      PID  HANDLE  LINK             VALUE   VALUE/S   ERROR  RATES
//!      0.1       12     4711       5  roce0              100         -       0
//!   1000.2       12     4711       5  roce0              350    250          0  █
//! ```

use std::{thread, time::Instant};

use kfi::{Device, StatClass};

use super::rates::Rates;
use crate::{
    args,
    error::Result,
    link,
    out::Out,
    screen::{self, Page},
    table::Table,
    text,
    top::{
        sample::{Change, CntrRow, Sample},
        tables::{owner, rate_text},
    },
};

/// Runs `kfi cntr watch`.
pub(crate) fn run(args: &args::CntrWatch, out: &mut Out) -> Result<()> {
    let device = link::open()?;
    let mut watch = Watch::new(&device, args);
    if out.is_json() || !screen::has_screen() {
        return print(&mut watch, out);
    }
    let mut last = None;
    screen::run(args.interval, || {
        let Some(change) = watch.next()? else {
            return Ok(None);
        };
        let table = watch.table(&change);
        let mut page = Page {
            title: format!("kfi cntr watch: {} counters", change.cntrs.len()),
            ..Page::default()
        };
        match &*change.cntrs {
            [] => page.line(NONE),
            _ => page.table(&table),
        }
        last = (!change.cntrs.is_empty()).then_some(table);
        Ok(Some(page))
    })?;
    // The screen is gone; the last values remain.
    last.map_or(Ok(()), |table| out.table(&table))
}

const NONE: &str = "no counters";

/// Prints each sample.
fn print(watch: &mut Watch<'_>, out: &mut Out) -> Result<()> {
    let mut due = Instant::now();
    let mut none = false;
    if !out.is_json() {
        out.line(HEAD.line(&HEAD_CELLS.map(str::to_owned)))?;
    }
    while let Some(change) = watch.next()? {
        if out.is_json() {
            out.document(&CntrsJson::new(&change))?;
        } else {
            for row in &change.cntrs {
                out.line(watch.line(row))?;
            }
            // Once for each time without counters.
            if change.cntrs.is_empty() && !none {
                out.line(NONE)?;
            }
            none = change.cntrs.is_empty();
        }
        if watch.is_over() {
            break;
        }
        due += watch.args.interval;
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    Ok(())
}

/// A sample in JSON.
#[derive(serde::Serialize)]
pub(crate) struct CntrsJson<'a> {
    seconds: Option<f64>,
    cntrs: &'a [CntrRow],
}

impl<'a> CntrsJson<'a> {
    /// The counters of a change.
    pub(crate) fn new(change: &'a Change) -> Self {
        Self {
            seconds: change.seconds,
            cntrs: &change.cntrs,
        }
    }
}

/// The samples, and the rates of the last ones.
struct Watch<'a> {
    device: &'a Device,
    args: &'a args::CntrWatch,
    start: Instant,
    taken: u64,
    before: Option<Sample>,
    rates: Rates,
}

impl<'a> Watch<'a> {
    fn new(device: &'a Device, args: &'a args::CntrWatch) -> Self {
        Self {
            device,
            args,
            start: Instant::now(),
            taken: 0,
            before: None,
            rates: Rates::default(),
        }
    }

    /// As many samples as wanted were taken.
    fn is_over(&self) -> bool {
        self.args.count.is_some_and(|count| self.taken >= count)
    }

    /// Takes a sample; none if there are as many as wanted.
    fn next(&mut self) -> Result<Option<Change>> {
        if self.is_over() {
            return Ok(None);
        }
        let now = Sample::of_objects(self.device, &[StatClass::Cntr])?;
        let mut change = now.compare(self.before.as_ref());
        change.cntrs.retain(|row| wanted(self.args, row));
        self.rates.update(&change.cntrs);
        self.before = Some(now);
        self.taken += 1;
        Ok(Some(change))
    }

    fn cells(&self, row: &CntrRow) -> [String; 8] {
        let [pid, handle, link] = owner(&row.owner);
        [
            row.owner.id.to_string(),
            pid,
            handle,
            link,
            row.value.to_string(),
            rate_text(row.value_per_second),
            row.err.to_string(),
            self.rates.line(row.owner.id),
        ]
    }

    fn table(&self, change: &Change) -> Table {
        let mut table = Table::new(&[
            ">COUNTER", ">PID", ">HANDLE", "LINK", ">VALUE", ">VALUE/S", ">ERROR", "RATES",
        ]);
        for row in &change.cntrs {
            table.row(self.cells(row));
        }
        table
    }

    fn line(&self, row: &CntrRow) -> String {
        let [id, pid, handle, link, value, rate, err, rates] = self.cells(row);
        let millis = text::millis(self.start.elapsed());
        HEAD.line(&[millis, id, pid, handle, link, value, rate, err, rates])
    }
}

/// Whether the options choose this counter.
fn wanted(args: &args::CntrWatch, row: &CntrRow) -> bool {
    let owner = &row.owner;
    args.pid.is_none_or(|pid| owner.pid == Some(pid))
        && args.handle.is_none_or(|handle| owner.handle == handle)
        && args.link.as_ref().is_none_or(|link| owner.link == *link)
}

/// Widths of the columns of lines, which cannot wait for the widest cell.
struct Columns([usize; 9]);

const HEAD: Columns = Columns([8, 7, 7, 6, 15, 8, 8, 6, 0]);
const HEAD_CELLS: [&str; 9] = [
    "MS", "COUNTER", "PID", "HANDLE", "LINK", "VALUE", "VALUE/S", "ERROR", "RATES",
];
/// Columns of text, which begin at the left.
const LEFT: [usize; 2] = [4, 8];

impl Columns {
    fn line(&self, cells: &[String; 9]) -> String {
        let cells: Vec<String> = cells
            .iter()
            .zip(self.0)
            .enumerate()
            .map(|(at, (cell, width))| match LEFT.contains(&at) {
                true => format!("{cell:<width$}"),
                false => format!("{cell:>width$}"),
            })
            .collect();
        cells.join("  ").trim_end().to_owned()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::top::tests::change;

    fn args(line: &str) -> args::CntrWatch {
        use clap::Parser;
        let line = format!("watch {line}");
        args::CntrWatch::try_parse_from(line.split_whitespace()).unwrap()
    }

    #[test]
    fn options_choose_counters() {
        // Process 321, handle 4, roce0.
        let row = &change().cntrs[0];
        for (line, expected) in [
            ("", true),
            ("--pid 321", true),
            ("--pid 322", false),
            ("--handle 4 --link roce0", true),
            ("--handle 5 --link roce0", false),
            ("--link roce", false),
        ] {
            assert_eq!(wanted(&args(line), row), expected, "{line}");
        }
    }

    #[test]
    fn columns_stand_below_their_names() {
        let head = HEAD.line(&HEAD_CELLS.map(str::to_owned));
        let row = ["0.1", "12", "4711", "5", "roce0", "100", "250", "0", "▁█"];
        let row = HEAD.line(&row.map(str::to_owned));
        assert_eq!(
            format!("{head}\n{row}"),
            "      MS  COUNTER      PID  HANDLE  LINK                VALUE   VALUE/S   ERROR  RATES\n\
             \u{20}    0.1       12     4711       5  roce0                 100       250       0  ▁█"
        );
    }

    #[test]
    fn json_has_the_documented_keys() {
        let json = serde_json::to_value(CntrsJson::new(&change())).unwrap();
        assert_eq!(json["seconds"], 2.0);
        assert_eq!(json["cntrs"][0]["value"], 9);
        assert_eq!(json["cntrs"][0]["handle"], 4);
    }
}
