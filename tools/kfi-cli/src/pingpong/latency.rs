// SPDX-License-Identifier: GPL-2.0
//! Statistics of many times: minimum, median, 99th percentile, maximum, mean.

use std::time::Duration;

use serde::Serialize;

use crate::text::rounded;

/// Times in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Latency {
    pub(crate) min: f64,
    pub(crate) median: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
    pub(crate) mean: f64,
}

impl Latency {
    /// Of one way, given round trips; `None` if there are none.
    pub(crate) fn of_round_trips(trips: Vec<Duration>) -> Option<Self> {
        Self::of_times(trips.into_iter().map(|time| time / 2).collect())
    }

    /// Of these times; `None` if there are none.
    pub(crate) fn of_times(mut times: Vec<Duration>) -> Option<Self> {
        times.sort_unstable();
        let micros = |time: Duration| rounded(time.as_secs_f64() * 1e6);
        let at = |percent: usize| Some(micros(*times.get((times.len() - 1) * percent / 100)?));
        let total: Duration = times.iter().sum();
        Some(Self {
            min: micros(*times.first()?),
            median: at(50)?,
            p99: at(99)?,
            max: micros(*times.last()?),
            mean: rounded(total.as_secs_f64() * 1e6 / times.len() as f64),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_statistics_are_correct() {
        let trips = (1..=101)
            .rev()
            .map(|n| Duration::from_micros(2 * n))
            .collect();
        let latency = Latency::of_round_trips(trips).unwrap();
        assert_eq!(
            serde_json::to_string(&latency).unwrap(),
            r#"{"min":1.0,"median":51.0,"p99":100.0,"max":101.0,"mean":51.0}"#
        );
        assert_eq!(Latency::of_round_trips(Vec::new()), None);
    }
}
