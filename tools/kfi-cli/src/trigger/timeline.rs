// SPDX-License-Identifier: GPL-2.0
//! The observations of a run, as text: a line for each endpoint, from the left to the right.
//!
//! ```text
//! endpoint  0 us                                                         80.0 us
//!   0 a     |.....................................o
//!   1 b     |......r.+............................................................o
//!   2 a     |......................ro
//! r: partial sums received   +: own input added   o: has the output   *: several
//! ```

use std::time::Duration;

use kfi::collective::Ring;
use serde::Serialize;

use super::{
    host_name,
    observe::{Fired, What},
};
use crate::text;

/// Columns for the time.
const COLUMNS: usize = 72;

/// The observations of a run.
pub(super) struct Timeline {
    pub(super) ring: Ring,
    /// In the order of their times, which are nanoseconds since the start.
    pub(super) fired: Vec<Fired>,
    /// The end of the run.
    run: Duration,
}

/// An observation, in JSON.
#[derive(Debug, Serialize)]
struct FiredJson {
    event: &'static str,
    rank: usize,
    host: char,
    chunk: usize,
    what: What,
    us: f64,
}

/// An observation of a ring on this many hosts, in JSON.
pub(super) fn document(fired: &Fired, hosts: usize) -> serde_json::Value {
    serde_json::json!(FiredJson {
        event: "fired",
        rank: fired.rank,
        host: host_name(fired.rank % hosts),
        chunk: fired.chunk,
        what: fired.what,
        us: text::rounded(fired.ns as f64 / 1e3),
    })
}

fn symbol(what: What) -> char {
    match what {
        What::Received => 'r',
        What::Added => '+',
        What::Output => 'o',
    }
}

impl Timeline {
    /// The observations of a run that took this time.
    pub(super) fn new(ring: Ring, fired: Vec<Fired>, run: Duration) -> Self {
        Self { ring, fired, run }
    }

    /// Number of hosts.
    pub(super) fn hosts(&self) -> usize {
        let hosts = { 0..self.ring.ranks() }.map(|rank| self.ring.host_of(rank));
        hosts.max().map_or(1, |last| last + 1)
    }

    /// Chunks that were observed.
    pub(super) fn chunks(&self) -> usize {
        let chunks = { &self.fired }.iter().map(|fired| fired.chunk + 1);
        chunks.max().unwrap_or(0)
    }

    /// The end of the axis: of the run, or the last time of the other host; at least 1 ns.
    pub(super) fn end(&self) -> u64 {
        let run = u64::try_from(self.run.as_nanos()).unwrap_or(u64::MAX);
        self.fired.last().map_or(1, |last| last.ns).max(run).max(1)
    }

    /// The name of a rank.
    pub(super) fn name(&self, rank: usize) -> String {
        match self.hosts() {
            1 => rank.to_string(),
            _ => format!("{rank} {}", host_name(self.ring.host_of(rank))),
        }
    }

    /// The column of a time.
    fn column(&self, ns: u64) -> usize {
        let place = ns as f64 / self.end() as f64 * (COLUMNS - 1) as f64;
        (place as usize).min(COLUMNS - 1)
    }

    fn line(&self, rank: usize) -> String {
        let mut cells = [None; COLUMNS];
        let own = { &self.fired }.iter().filter(|fired| fired.rank == rank);
        let mut last = 0;
        for fired in own {
            let column = self.column(fired.ns);
            let symbol = symbol(fired.what);
            let cell = &mut cells[column];
            *cell = match *cell {
                Some(other) if other != symbol => Some('*'),
                _ => Some(symbol),
            };
            last = last.max(column);
        }
        let cells = cells[..=last].iter();
        cells.map(|cell| cell.unwrap_or('.')).collect()
    }

    /// The lines, the time and what the symbols mean.
    pub(super) fn text(&self) -> String {
        let end = format!("{:.1} us", self.end() as f64 / 1e3);
        let mut text = format!("{:<10}0 us{end:>width$}\n", "endpoint", width = COLUMNS - 3);
        for rank in 0..self.ring.ranks() {
            let name = self.name(rank);
            text.push_str(&format!("  {name:<8}|{}\n", self.line(rank)));
        }
        text.push_str("r: partial sums received   +: own input added   o: has the output");
        if text.contains('*') {
            text.push_str("   *: several");
        }
        text.push('\n');
        if self.chunks() < self.ring.chunks() {
            text.push_str(&format!(
                "The first {} of {} chunks are shown.\n",
                self.chunks(),
                self.ring.chunks()
            ));
        }
        text
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::trigger::observe::tests::fired;

    pub(in crate::trigger) fn example(hosts: usize) -> Timeline {
        let ring = Ring::new(3, 1).unwrap().hosts(hosts).unwrap();
        Timeline::new(ring, fired(), Duration::from_micros(70))
    }

    #[test]
    fn each_endpoint_has_a_line() {
        let text = example(2).text();
        assert_eq!(
            text,
            "endpoint  0 us                                                              80.0 us\n\
             \u{20} 0 a     |............................................o\n\
             \u{20} 1 b     |........r.+............................................................o\n\
             \u{20} 2 a     |..........................ro\n\
             r: partial sums received   +: own input added   o: has the output\n"
        );
    }

    #[test]
    fn what_is_in_one_column_is_several() {
        let mut timeline = example(1);
        timeline.fired[1].ns = timeline.fired[0].ns;
        let text = timeline.text();
        assert!(text.contains("  1       |........*..."), "{text}");
        assert!(text.contains("*: several"), "{text}");
    }

    /// The time that the command prints is not longer than the axis.
    #[test]
    fn the_axis_ends_with_the_run() {
        let ring = Ring::new(3, 1).unwrap();
        let run = Duration::from_micros(160);
        let text = Timeline::new(ring, fired(), run).text();
        assert!(
            text.lines().next().unwrap().ends_with(" 160.0 us"),
            "{text}"
        );
        assert!(
            text.contains("  1       |....r+.............................o\n"),
            "{text}"
        );
    }

    #[test]
    fn hidden_chunks_are_said() {
        let ring = Ring::new(3, 3).unwrap();
        let text = Timeline::new(ring, fired(), Duration::ZERO).text();
        assert!(
            text.ends_with("The first 1 of 3 chunks are shown.\n"),
            "{text}"
        );
        // Nothing was seen.
        Timeline::new(ring, Vec::new(), Duration::ZERO).text();
    }

    #[test]
    fn json_has_the_documented_keys() {
        assert_eq!(
            document(&fired()[0], 2).to_string(),
            r#"{"chunk":0,"event":"fired","host":"b","rank":1,"us":10.0,"what":"received"}"#
        );
    }
}
