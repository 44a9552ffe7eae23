// SPDX-License-Identifier: GPL-2.0
//! The plot: the ratio of each row to its peer, and its goal.
//!
//! One axis, logarithmic, so that half and double are as far from 1. A bar begins at 1, the peer,
//! and ends at the ratio; the goal is a mark with an arrow towards better values.

use crate::row::{Better, Row};
use std::fmt::Write;

const LEFT: f64 = 190.0;
const RIGHT: f64 = 780.0;
const TOP: f64 = 56.0;
const STEP: f64 = 30.0;
/// The ends of the axis.
const LEAST: f64 = 0.125;
const MOST: f64 = 16.0;

fn x(ratio: f64) -> f64 {
    let place = (ratio.clamp(LEAST, MOST) / LEAST).ln() / (MOST / LEAST).ln();
    LEFT + place * (RIGHT - LEFT)
}

/// The plot of the rows that have goals.
pub(crate) fn svg(rows: &[Row]) -> String {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.goal.is_some()).collect();
    let bottom = TOP + STEP * rows.len() as f64;
    let height = bottom + 44.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 860 {height}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <title>kfabric beside its peers</title>\n\
         <rect width=\"860\" height=\"{height}\" fill=\"#fff\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"15\">Ours / peer (logarithmic); \
         the mark is the goal, its arrow points to better</text>\n"
    );
    for power in -3..=4 {
        let ratio = 2f64.powi(power);
        let (at, colour) = (x(ratio), if power == 0 { "#555" } else { "#ddd" });
        let _ = writeln!(
            out,
            "<line x1=\"{at:.1}\" y1=\"{:.1}\" x2=\"{at:.1}\" y2=\"{bottom:.1}\" \
             stroke=\"{colour}\"/><text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\" \
             fill=\"#555\">{ratio}</text>",
            TOP - 8.0,
            bottom + 18.0
        );
    }
    for (number, row) in rows.iter().enumerate() {
        let y = TOP + STEP * number as f64;
        let (from, to) = (x(1.0).min(x(row.ratio)), x(1.0).max(x(row.ratio)));
        let colour = match row.met {
            Some(true) => "#3b8f5a",
            _ => "#c8803c",
        };
        let goal = x(row.goal.unwrap_or(1.0));
        let arrow = match row.better {
            Better::Lower => -7.0,
            Better::Higher => 7.0,
        };
        let middle = y + 9.0;
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{from:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"18\" fill=\"{colour}\"/>\
             <path d=\"M{goal:.1} {:.1}V{:.1}M{goal:.1} {middle:.1}h{arrow}\" stroke=\"#000\" \
             stroke-width=\"2\" fill=\"none\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{:.2}</text>",
            LEFT - 10.0,
            y + 14.0,
            row.name,
            (to - from).max(1.5),
            y - 3.0,
            y + 21.0,
            RIGHT + 14.0,
            y + 14.0,
            row.ratio
        );
    }
    out + "</svg>\n"
}
