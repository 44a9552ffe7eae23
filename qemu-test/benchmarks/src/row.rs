// SPDX-License-Identifier: GPL-2.0
//! A row: one thing of ours, its peer, and how both are run.
//!
//! Ours and the peer run in turn, ours, peer, ours, peer: what disturbs the machine for a while
//! disturbs both, and runs are short and many, so that it disturbs few of them. Before that each runs
//! once unmeasured. The values are the medians; the least
//! and the largest value of all runs are told with them.

use crate::Result;
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
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Better {
    /// Times.
    Lower,
    /// Rates.
    Higher,
}

/// Measures one side once.
pub(crate) type Side<'a> = &'a mut dyn FnMut() -> Result<f64>;

/// Runs both sides; what it returns is said about the row.
pub(crate) type Measure = fn(&mut Turns) -> Result<()>;

/// A row to be measured.
pub(crate) struct Case {
    /// `cntr/wake`
    pub(crate) name: &'static str,
    /// Of the values.
    pub(crate) unit: &'static str,
    /// What the peer is.
    pub(crate) peer: &'static str,
    /// Which values are good.
    pub(crate) better: Better,
    /// What the ratio of ours to the peer should be at most (times) or at least (rates); none: a
    /// row that explains another.
    pub(crate) goal: Option<f64>,
    /// Calls [`Turns::take`] once.
    pub(crate) measure: Measure,
}

impl Case {
    /// Measures it.
    pub(crate) fn run(&self, runs: Runs) -> Result<Row> {
        let mut turns = Turns {
            runs,
            ours: Vec::new(),
            peer: Vec::new(),
        };
        (self.measure)(&mut turns)?;
        let (ours, peer) = (Spread::of(&mut turns.ours)?, Spread::of(&mut turns.peer)?);
        let ratio = ours.median / peer.median;
        Ok(Row {
            name: self.name.into(),
            value: ours.median,
            unit: self.unit.into(),
            peer: self.peer.into(),
            peer_value: peer.median,
            ratio,
            better: self.better,
            runs: turns.ours.len(),
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
pub(crate) struct Turns {
    runs: Runs,
    ours: Vec<f64>,
    peer: Vec<f64>,
}

impl Turns {
    /// For a row whose runs are long: no more of them than this.
    pub(crate) fn at_most(&mut self, runs: usize) {
        self.runs.0 = self.runs.0.min(runs);
    }

    /// Runs both sides in turn.
    pub(crate) fn take(&mut self, ours: Side<'_>, peer: Side<'_>) -> Result<()> {
        ours()?;
        peer()?;
        for _ in 0..self.runs.0.max(1) {
            self.ours.push(ours()?);
            self.peer.push(peer()?);
        }
        Ok(())
    }
}

struct Spread {
    median: f64,
    least: f64,
    largest: f64,
}

impl Spread {
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
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Row {
    /// `cntr/wake`
    pub(crate) name: String,
    /// Median of ours.
    pub(crate) value: f64,
    /// Of the values.
    pub(crate) unit: String,
    /// What the peer is.
    pub(crate) peer: String,
    /// Median of the peer.
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
    /// What the ratio should be; none: a row that explains another.
    pub(crate) goal: Option<f64>,
    /// Whether it is.
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

/// A value with three digits that mean something.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
