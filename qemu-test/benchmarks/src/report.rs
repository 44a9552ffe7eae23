// SPDX-License-Identifier: GPL-2.0
//! What was measured, for people and for programs: a table on the terminal, bench.json, bench.md
//! and bench.svg.

use crate::{
    Result, plot,
    row::{Better, Row, number},
};
use serde::Serialize;
use std::{fmt::Write, path::Path};

/// The rows that have goals, in the order in which they are told.
const ORDER: [&str; 25] = [
    "cntr/read_mapped",
    "cntr/add_idle",
    "cntr/wake",
    "cntr/wake_1_of_1000",
    "cntr/poll_fd",
    "cq/ring_read",
    "ioctl/empty",
    "rdm/local_lat_8B",
    "rdm/local_bw_1MiB",
    "rdm/local_rate_8B",
    "roce/send_lat_8B",
    "roce/write_lat_8B",
    "roce/send_bw_64K",
    "roce/write_bw_64K",
    "roce/read_bw_64K",
    "roce/send_rate_8B",
    "roce/send_bw_64K_loss1",
    "roce/send_lat_8B_mtu9000",
    "roce/write_lat_8B_mtu9000",
    "roce/send_bw_64K_mtu9000",
    "roce/write_bw_64K_mtu9000",
    "roce/read_bw_64K_mtu9000",
    "roce/send_rate_8B_mtu9000",
    "roce/send_bw_64K_loss1_mtu9000",
    "roce/peers_1000_lat_8B",
];

/// Where it was measured, as far as the values depend on it.
#[derive(Serialize)]
struct Machine {
    kernel: String,
    accel: String,
    guest_cpus: u32,
    guest_memory: String,
}

#[derive(Serialize)]
struct Bench<'a> {
    machine: Machine,
    results: &'a [Row],
}

/// The rows with goals first, then those that explain them.
pub(crate) fn in_order(mut rows: Vec<Row>) -> Vec<Row> {
    rows.sort_by_key(|row| {
        ORDER
            .iter()
            .position(|name| *name == row.name)
            .unwrap_or(ORDER.len())
    });
    rows
}

/// Writes the three files into `dir`, and prints the table.
pub(crate) fn write(dir: &Path, rows: &[Row]) -> Result<()> {
    let word = |name: &str| std::env::var(name).unwrap_or_else(|_| "unknown".into());
    let bench = Bench {
        machine: Machine {
            kernel: word("BENCH_KERNEL"),
            accel: word("BENCH_ACCEL"),
            guest_cpus: word("BENCH_CPUS").parse().unwrap_or(0),
            guest_memory: word("BENCH_MEMORY"),
        },
        results: rows,
    };
    let put = |name: &str, text: String| {
        std::fs::write(dir.join(name), text).map_err(|e| format!("{}/{name}: {e}", dir.display()))
    };
    put("bench.json", serde_json::to_string_pretty(&bench)? + "\n")?;
    put("bench.md", markdown(rows))?;
    put("bench.svg", plot::svg(rows))?;
    print!("{}", table(rows));
    let missing: Vec<&str> = ORDER
        .into_iter()
        .filter(|name| rows.iter().all(|row| row.name != *name))
        .collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(format!("not measured: {}", missing.join(", ")).into())
    }
}

/// `31.2 us`, `1.85 M/s`
fn value(value: f64, unit: &str) -> String {
    match unit {
        "ns" if value >= 10_000.0 => format!("{} us", number(value / 1e3)),
        "1/s" if value >= 1e6 => format!("{} M/s", number(value / 1e6)),
        "1/s" => format!("{} k/s", number(value / 1e3)),
        unit => format!("{} {unit}", number(value)),
    }
}

fn goal(row: &Row) -> String {
    match (row.goal, row.better) {
        (None, _) => String::new(),
        (Some(goal), Better::Lower) => format!("<= {goal:.1} x"),
        (Some(goal), Better::Higher) => format!(">= {goal:.1} x"),
    }
}

fn met(row: &Row) -> &'static str {
    match row.met {
        None => "",
        Some(true) => "yes",
        Some(false) => "no",
    }
}

/// How far the runs of ours lie from the median, per cent.
fn spread(row: &Row) -> String {
    let [least, largest] = row.range;
    let per_cent = |v: f64| (v / row.value - 1.0) * 100.0;
    format!("{:+.0} % {:+.0} %", per_cent(least), per_cent(largest))
}

const HEAD: [&str; 8] = [
    "name",
    "ours",
    "peer",
    "",
    "ratio",
    "goal",
    "met",
    "spread of ours",
];

fn cells(row: &Row) -> [String; 8] {
    [
        row.name.clone(),
        value(row.value, &row.unit),
        value(row.peer_value, &row.unit),
        row.peer.clone(),
        format!("{:.2}", row.ratio),
        goal(row),
        met(row).into(),
        spread(row),
    ]
}

fn table(rows: &[Row]) -> String {
    let mut lines = vec![HEAD.map(String::from)];
    lines.extend(rows.iter().map(cells));
    let width = |column: usize| {
        lines
            .iter()
            .map(|line| line[column].len())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..HEAD.len()).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let mut row = String::new();
        for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
            // Numbers stand to the right.
            if matches!(column, 1 | 2 | 4) {
                let _ = write!(row, "{cell:>width$}  ");
            } else {
                let _ = write!(row, "{cell:<width$}  ");
            }
        }
        let _ = writeln!(text, "{}", row.trim_end());
    }
    text
}

fn markdown(rows: &[Row]) -> String {
    let mut text = String::from(
        "| | ours | peer | | ratio | goal | met |\n|---|---:|---:|---|---:|---|---|\n",
    );
    for row in rows.iter().filter(|row| row.goal.is_some()) {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {:.2} | {} | {} |",
            row.name,
            value(row.value, &row.unit),
            value(row.peer_value, &row.unit),
            row.peer,
            row.ratio,
            goal(row).replace("<=", "at most").replace(">=", "at least"),
            met(row)
        );
    }
    text
}
