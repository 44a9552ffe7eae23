// SPDX-License-Identifier: GPL-2.0
//! The rates of the last samples of each counter, as a line of bars.
//!
//! Each sample is one character: a bar whose height is the rate, relative to the highest rate of
//! the same counter that is shown; a blank for an unknown rate; `!` if the error value has grown.

use std::collections::{HashMap, VecDeque};

use crate::top::sample::CntrRow;

/// Number of samples that are shown: with them a line has 99 columns.
const SHOWN: usize = 18;

/// From no operation at all to the highest rate.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A sample of a counter.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rate {
    /// Successes in a second; `None`: the first sample, or the value fell.
    per_second: Option<f64>,
    /// The error value has grown.
    failed: bool,
}

/// The last samples of one counter.
#[derive(Debug, Default)]
struct Last {
    /// The error value.
    err: Option<u64>,
    rates: VecDeque<Rate>,
}

/// The last samples of each counter, by its id.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    last: HashMap<u64, Last>,
}

impl Rates {
    /// Takes a sample; counters that are not in it are forgotten.
    pub(crate) fn update(&mut self, rows: &[CntrRow]) {
        self.last
            .retain(|id, _| rows.iter().any(|row| row.owner.id == *id));
        for row in rows {
            let last = self.last.entry(row.owner.id).or_default();
            let failed = last.err.is_some_and(|err| row.err > err);
            last.err = Some(row.err);
            last.rates.push_back(Rate {
                per_second: row.value_per_second,
                failed,
            });
            while last.rates.len() > SHOWN {
                last.rates.pop_front();
            }
        }
    }

    /// The line of a counter.
    pub(crate) fn line(&self, id: u64) -> String {
        let rates = self.last.get(&id).into_iter().flat_map(|last| &last.rates);
        let highest = rates
            .clone()
            .filter_map(|rate| rate.per_second)
            .fold(0.0, f64::max);
        rates.map(|rate| bar(*rate, highest)).collect()
    }
}

fn bar(rate: Rate, highest: f64) -> char {
    match rate.per_second {
        _ if rate.failed => '!',
        None => ' ',
        Some(rate) if rate <= 0.0 => BARS[0],
        Some(rate) => {
            // The lowest bar is that of 0 only.
            let top = BARS.len() - 1;
            let height = (rate / highest * top as f64).ceil() as usize;
            BARS[height.clamp(1, top)]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::tests::change;

    fn row(id: u64, err: u64, value_per_second: Option<f64>) -> CntrRow {
        let mut row = change().cntrs.remove(0);
        row.owner.id = id;
        row.err = err;
        row.value_per_second = value_per_second;
        row
    }

    #[test]
    fn bars_are_relative_to_the_highest_rate() {
        let mut rates = Rates::default();
        for rate in [None, Some(0.0), Some(1.0), Some(500.0), Some(1000.0)] {
            rates.update(&[row(1, 0, rate)]);
        }
        assert_eq!(rates.line(1), " ▁▂▅█");
        assert_eq!(rates.line(2), "");
    }

    #[test]
    fn errors_are_marked() {
        let mut rates = Rates::default();
        for err in [3, 3, 4, 4, 0] {
            rates.update(&[row(1, err, Some(1.0))]);
        }
        assert_eq!(rates.line(1), "██!██");
    }

    #[test]
    fn old_samples_and_closed_counters_are_forgotten() {
        let mut rates = Rates::default();
        rates.update(&[row(1, 0, Some(1e6)), row(2, 0, None)]);
        for _ in 0..SHOWN {
            rates.update(&[row(1, 0, Some(0.5))]);
        }
        assert_eq!(rates.line(1), "█".repeat(SHOWN));
        assert_eq!(rates.last.len(), 1);
    }
}
