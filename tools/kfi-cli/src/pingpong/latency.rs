// SPDX-License-Identifier: GPL-2.0
//! Statistics of many times: minimum, median, 99th percentile, maximum, mean.
//!
//! A percentile is that of the nearest rank: the smallest time that at least as many percent of the
//! times do not exceed. So the 99th percentile of fewer than 100 times is the greatest of them.

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
        let at = |percent| Some(micros(*times.get(nearest_rank(times.len(), percent)?)?));
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

/// The place of a percentile, 1 to 100, among `count` times in order; `None` if there are none.
fn nearest_rank(count: usize, percent: usize) -> Option<usize> {
    (count * percent).div_ceil(100).checked_sub(1)
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

    /// The ranks of the definition, counted from 0.
    #[test]
    fn percentiles_are_those_of_the_nearest_rank() {
        for (count, p50, p99) in [
            (1, 0, 0),
            (2, 0, 1),
            (3, 1, 2),
            (4, 1, 3),
            (10, 4, 9),
            (99, 49, 98),
            (100, 49, 98),
            (101, 50, 99),
            (200, 99, 197),
            (1000, 499, 989),
        ] {
            assert_eq!(nearest_rank(count, 50), Some(p50), "{count}");
            assert_eq!(nearest_rank(count, 99), Some(p99), "{count}");
            assert_eq!(nearest_rank(count, 100), Some(count - 1), "{count}");
        }
        assert_eq!(nearest_rank(0, 99), None);
        let three = [1, 2, 3].map(Duration::from_micros).to_vec();
        assert_eq!(Latency::of_times(three).unwrap().p99, 3.0);
    }
}
