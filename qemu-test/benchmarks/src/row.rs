// SPDX-License-Identifier: GPL-2.0
//! A row: one operation of the module, its peer, and how both are run.
//!
//! The sides run in turn: ours, peer, ours, peer. So a disturbance of the machine affects both, and
//! because runs are short and many, it affects few of them. Before that each side runs once
//! unmeasured. The values are the medians; the report also has the least and the largest value of
//! all runs.
//!
//! With [`Clock::Instructions`] the values are the best of all runs. A disturbance of a run there,
//! such as a timer tick, only adds instructions, and the best runs of two guests hardly differ.

use crate::{Result, count::Clock};
use serde::{Deserialize, Serialize};

/// How many times each side runs.
#[derive(Clone, Copy)]
pub(crate) struct Runs(pub(crate) usize);

impl Default for Runs {
    fn default() -> Self {
        Self(25)
    }
}

/// Which values are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Better {
    /// Times.
    Lower,
    /// Rates.
    Higher,
}

/// Measures one side once.
pub(crate) type Side<'a> = &'a mut dyn FnMut() -> Result<f64>;

/// Runs both sides; the returned text is a remark on the row.
pub(crate) type Measure = fn(&mut Measurement) -> Result<()>;

/// A row to be measured.
pub(crate) struct Case {
    /// `cntr/wake`
    pub(crate) name: &'static str,
    /// Unit of the values.
    pub(crate) unit: &'static str,
    /// Name of the peer.
    pub(crate) peer: &'static str,
    /// Which values are good.
    pub(crate) better: Better,
    /// The largest (times) or least (rates) good ratio of ours to the peer; none: a row that
    /// explains another.
    pub(crate) goal: Option<f64>,
    /// Calls [`Measurement::take`] once.
    pub(crate) measure: Measure,
}

impl Case {
    /// A row whose good values are low.
    pub(crate) const fn lower(
        name: &'static str,
        unit: &'static str,
        peer: &'static str,
        goal: Option<f64>,
        measure: Measure,
    ) -> Self {
        Self {
            name,
            unit,
            peer,
            better: Better::Lower,
            goal,
            measure,
        }
    }

    /// A row whose good values are high.
    pub(crate) const fn higher(
        name: &'static str,
        unit: &'static str,
        peer: &'static str,
        goal: Option<f64>,
        measure: Measure,
    ) -> Self {
        Self {
            better: Better::Higher,
            ..Self::lower(name, unit, peer, goal, measure)
        }
    }

    /// Measures it, in a guest with that clock.
    pub(crate) fn run(&self, runs: Runs, clock: Clock) -> Result<Row> {
        let mut measurement = Measurement {
            runs,
            clock,
            ours: Vec::new(),
            peer: Vec::new(),
        };
        (self.measure)(&mut measurement)?;
        let (ours, peer) = (
            Spread::of(&mut measurement.ours)?,
            Spread::of(&mut measurement.peer)?,
        );
        let (value, peer_value) = (
            ours.value(clock, self.better),
            peer.value(clock, self.better),
        );
        let ratio = value / peer_value;
        Ok(Row {
            name: self.name.into(),
            value,
            unit: self.unit.into(),
            peer: self.peer.into(),
            peer_value,
            ratio,
            better: self.better,
            runs: measurement.ours.len(),
            range: [ours.least, ours.largest],
            peer_range: [peer.least, peer.largest],
            goal: self.goal,
            met: self.goal.map(|goal| match self.better {
                Better::Lower => ratio <= goal,
                Better::Higher => ratio >= goal,
            }),
        })
    }
}

/// The runs of both sides, in turn.
pub(crate) struct Measurement {
    runs: Runs,
    clock: Clock,
    ours: Vec<f64>,
    peer: Vec<f64>,
}

impl Measurement {
    /// The guest's clock.
    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    /// Limits the number of runs, for a row whose runs are long.
    pub(crate) fn at_most(&mut self, runs: usize) {
        self.runs.0 = self.runs.0.min(runs);
    }

    /// Runs both sides in turn.
    pub(crate) fn take(&mut self, ours: Side<'_>, peer: Side<'_>) -> Result<()> {
        measured(ours)?;
        measured(peer)?;
        for _ in 0..self.runs.0.max(1) {
            self.ours.push(measured(ours)?);
            self.peer.push(measured(peer)?);
        }
        Ok(())
    }
}

/// Number of retries of a side that gives no value.
const AGAIN: usize = 3;

/// Runs a side until it gives a value that is a number above zero: a program that measures itself
/// can divide by a time of zero, and one run of a peer can fail on a busy machine.
fn measured(side: Side<'_>) -> Result<f64> {
    let mut last: Box<dyn std::error::Error> = "not run".into();
    for _ in 0..=AGAIN {
        match side() {
            Ok(value) if value.is_finite() && value > 0.0 => return Ok(value),
            Ok(value) => last = format!("a run gave the value {value}").into(),
            Err(error) => last = error,
        }
    }
    Err(format!("{} runs in turn: {last}", AGAIN + 1).into())
}

struct Spread {
    median: f64,
    least: f64,
    largest: f64,
}

impl Spread {
    /// The values of the runs.
    fn value(&self, clock: Clock, better: Better) -> f64 {
        match (clock, better) {
            (Clock::Time, _) => self.median,
            (Clock::Instructions, Better::Lower) => self.least,
            (Clock::Instructions, Better::Higher) => self.largest,
        }
    }

    fn of(values: &mut [f64]) -> Result<Self> {
        values.sort_by(f64::total_cmp);
        match (values.first(), values.get(values.len() / 2), values.last()) {
            (Some(least), Some(median), Some(largest)) => Ok(Self {
                median: *median,
                least: *least,
                largest: *largest,
            }),
            _ => Err("nothing was measured".into()),
        }
    }
}

/// A row that was measured: an element of `results` in bench.json.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    /// `cntr/wake`
    pub(crate) name: String,
    /// Ours: the median, or the best of the counted runs.
    pub(crate) value: f64,
    /// Unit of the values.
    pub(crate) unit: String,
    /// Name of the peer.
    pub(crate) peer: String,
    /// The peer's, likewise.
    pub(crate) peer_value: f64,
    /// Ours through the peer's.
    pub(crate) ratio: f64,
    /// Which values are good.
    pub(crate) better: Better,
    /// How many times each side ran.
    pub(crate) runs: usize,
    /// Least and largest value of ours.
    pub(crate) range: [f64; 2],
    /// Least and largest value of the peer.
    pub(crate) peer_range: [f64; 2],
    /// The goal of the ratio; none: a row that explains another.
    pub(crate) goal: Option<f64>,
    /// Whether the ratio meets it.
    pub(crate) met: Option<bool>,
}

impl Row {
    /// `12.3 ns, atomic64_add_return 10.1 ns: 1.22 x`
    pub(crate) fn summary(&self) -> String {
        format!(
            "{} {}, {} {}: {:.2} x",
            number(self.value),
            self.unit,
            self.peer,
            number(self.peer_value),
            self.ratio
        )
    }
}

/// A value with three significant digits.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A row of the other modules' tests.
    pub(crate) fn row(name: &str, ratio: f64, better: Better) -> Row {
        Row {
            name: name.into(),
            value: 10.0 * ratio,
            unit: "ns".into(),
            peer: "a peer".into(),
            peer_value: 10.0,
            ratio,
            better,
            runs: 1,
            range: [10.0 * ratio; 2],
            peer_range: [10.0; 2],
            goal: Some(1.0),
            met: Some(ratio <= 1.0),
        }
    }

    /// Runs `values` as ours, in order, beside a peer that is always 2.
    fn case(values: &[f64]) -> (Result<()>, Vec<f64>) {
        let mut measurement = Measurement {
            runs: Runs(2),
            clock: Clock::Time,
            ours: Vec::new(),
            peer: Vec::new(),
        };
        let mut values = values.iter().copied();
        let result = measurement.take(
            &mut || values.next().ok_or_else(|| "no more values".into()),
            &mut || Ok(2.0),
        );
        (result, measurement.ours)
    }

    #[test]
    fn a_run_without_a_value_is_repeated() {
        let (result, ours) = case(&[f64::NAN, 1.0, 0.0, f64::INFINITY, -1.0, 3.0, 4.0]);
        assert!(result.is_ok());
        assert_eq!(ours, [3.0, 4.0]);
    }

    #[test]
    fn times_give_their_median_and_counts_their_best_run() {
        let spread = Spread::of(&mut [4.0, 1.0, 3.0, 2.0, 9.0]).expect("some values");
        for (clock, better, value) in [
            (Clock::Time, Better::Lower, 3.0),
            (Clock::Time, Better::Higher, 3.0),
            (Clock::Instructions, Better::Lower, 1.0),
            (Clock::Instructions, Better::Higher, 9.0),
        ] {
            assert_eq!(spread.value(clock, better), value);
        }
    }

    #[test]
    fn a_side_that_gives_no_value_is_an_error() {
        let (result, ours) = case(&[1.0, 1.0, f64::NAN, f64::NAN, f64::NAN, f64::NAN, 5.0]);
        let error = result.expect_err("four runs without a value").to_string();
        assert!(error.contains("NaN"), "{error}");
        assert_eq!(ours, [1.0]);
    }
}
