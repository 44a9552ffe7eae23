// SPDX-License-Identifier: GPL-2.0
//! The report of the values: a table on the terminal, bench.json or bench-count.json, bench.svg,
//! and bench.md, which has the ratios of both.

use crate::{
    Result,
    count::{self, Clock},
    plot,
    row::{Better, Row, number},
};
use serde::{Deserialize, Serialize};
use std::{fmt::Write, path::Path};

/// The rows of the README's table in its order: those that have goals, and a few beside them.
const ORDER: [&str; 61] = [
    "cntr/read_mapped",
    "cntr/add_idle",
    "cntr/wake",
    "cntr/wake_1_of_1000",
    "cntr/poll_fd",
    "comp_cntr/read_external",
    "cq/ring_read",
    "ioctl/empty",
    "post/admit_start_8B",
    "post/from_softirq",
    "rdm/local_lat_8B",
    "rdm/local_bw_1MiB",
    "rdm/local_rate_8B",
    "consumer/cq_read (empty)",
    "consumer/cntr_read",
    "consumer/cntr_add",
    "consumer/handler",
    "consumer/lat_8B",
    "consumer/rate_8B",
    "consumer/write_bw_64K",
    "consumer/write_bw_64K (sockets)",
    "flow/rules_64",
    "trigger/allreduce_8B",
    "trigger/allreduce_8B_adding",
    "trigger/allreduce_64K",
    "trigger/add_pending_1k",
    "trigger/add_pending_100k",
    "trigger/queue_fire_cntr_add",
    "trigger/deferred_write_8B",
    "trigger/chain_1000",
    "trigger/pending_bytes",
    "rdm/atomic_8B",
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
    "verbs/send_lat_8B",
    "verbs/write_lat_8B",
    "verbs/read_lat_8B",
    "verbs/send_bw_64K",
    "verbs/write_bw_64K",
    "verbs/read_bw_64K",
    "verbs/send_rate_8B",
    "verbs/send_rate_8B_qp16",
    "verbs/comp_cntr_read",
    "verbs/comp_cntr_mapped",
    "storage/nvme_randread_4K",
    "storage/nvme_randwrite_4K",
    "storage/nvme_read_128K",
    "storage/nvme_write_128K",
];

/// The environment, as far as the values depend on it.
#[derive(Serialize, Deserialize)]
struct Machine {
    kernel: String,
    /// The kernel of the rows `storage/`, if they were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    storage_kernel: Option<String>,
    accel: String,
    guest_cpus: u32,
    guest_memory: String,
}

#[derive(Serialize, Deserialize)]
struct Bench {
    machine: Machine,
    results: Vec<Row>,
}

/// The file with the values of a clock.
fn file(clock: Clock) -> &'static str {
    match clock {
        Clock::Time => "bench.json",
        Clock::Instructions => "bench-count.json",
    }
}

/// The rows of an earlier report with that clock; none: there was no such report.
fn earlier(dir: &Path, clock: Clock) -> Result<Vec<Row>> {
    let path = dir.join(file(clock));
    let wrong = |error: &dyn std::error::Error| format!("{}: {error}", path.display());
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            let bench: Bench = serde_json::from_str(&text).map_err(|error| wrong(&error))?;
            Ok(bench.results)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(wrong(&error).into()),
    }
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

/// Writes the files of that clock into `dir`, and prints the table.
pub(crate) fn write(dir: &Path, clock: Clock, rows: &[Row]) -> Result<()> {
    let word = |name: &str| std::env::var(name).unwrap_or_else(|_| "unknown".into());
    let bench = Bench {
        machine: Machine {
            kernel: word("BENCH_KERNEL"),
            storage_kernel: std::env::var("BENCH_STORAGE_KERNEL").ok(),
            accel: word("BENCH_ACCEL"),
            guest_cpus: word("BENCH_CPUS").parse().unwrap_or(0),
            guest_memory: word("BENCH_MEMORY"),
        },
        results: rows.to_vec(),
    };
    let put = |name: &str, text: String| {
        std::fs::write(dir.join(name), text).map_err(|e| format!("{}/{name}: {e}", dir.display()))
    };
    put(file(clock), serde_json::to_string_pretty(&bench)? + "\n")?;
    print!("{}", table(rows));
    let missing = missing(clock, rows);
    match clock {
        Clock::Time => {
            put("bench.svg", plot::svg(rows))?;
            put(
                "bench.md",
                markdown(rows, &earlier(dir, Clock::Instructions)?),
            )?;
        }
        Clock::Instructions => {
            put("bench.md", markdown(&earlier(dir, Clock::Time)?, rows))?;
            for (name, reason) in count::NOT_COUNTED {
                println!("not counted: {name}: {reason}");
            }
        }
    }
    if missing.is_empty() {
        Ok(())
    } else {
        Err(format!("not measured: {}", missing.join(", ")).into())
    }
}

/// The rows of the table that are missing.
fn missing(clock: Clock, rows: &[Row]) -> Vec<&'static str> {
    let there = |name: &str| rows.iter().any(|row| row.name == name);
    let expected = |name: &str| clock == Clock::Time || count::why_not(name).is_none();
    ORDER
        .into_iter()
        .filter(|name| expected(name) && !there(name))
        .collect()
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

/// The spread of our runs around the median, per cent.
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
            // Numbers are right-aligned.
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

/// A cell for a missing value.
const NONE: &str = "–";

fn or_dash(cell: String) -> String {
    if cell.is_empty() { NONE.into() } else { cell }
}

/// The README's table: the values of a clock that measures time, and beside them the counted
/// ratios.
fn markdown(timed: &[Row], counted: &[Row]) -> String {
    let mut text = String::from(
        "| | ours | peer | | ratio | goal | met | counted |\n|---|---:|---:|---|---:|---|---|---:|\n",
    );
    for name in ORDER {
        let [timed, counted] =
            [timed, counted].map(|rows| rows.iter().find(|row| row.name == name));
        let Some(either) = timed.or(counted) else {
            continue;
        };
        let or_none = |cell: fn(&Row) -> String| timed.map_or(NONE.into(), cell);
        let _ = writeln!(
            text,
            "| {name} | {} | {} | {} | {} | {} | {} | {} |",
            or_none(|row| value(row.value, &row.unit)),
            or_none(|row| value(row.peer_value, &row.unit)),
            either.peer,
            or_none(|row| format!("{:.2}", row.ratio)),
            or_dash(goal(either))
                .replace("<=", "at most")
                .replace(">=", "at least"),
            or_none(|row| or_dash(met(row).into())),
            counted.map_or(NONE.into(), |row| format!("{:.2}", row.ratio)),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::tests::row;

    fn line<'a>(text: &'a str, name: &str) -> &'a str {
        let start = format!("| {name} |");
        text.lines()
            .find(|line| line.starts_with(&start))
            .unwrap_or_default()
    }

    #[test]
    fn the_table_has_the_counted_ratio_in_its_last_column() {
        let timed = [
            row("cntr/wake", 1.5, Better::Lower),
            row("roce/write_lat_8B", 0.5, Better::Lower),
            row("call/cq_read (1 entry)", 0.5, Better::Lower),
        ];
        let counted = [
            row("cntr/wake", 1.25, Better::Lower),
            row("ioctl/empty", 0.75, Better::Lower),
        ];
        let text = markdown(&timed, &counted);
        assert_eq!(
            line(&text, "cntr/wake"),
            "| cntr/wake | 15.0 ns | 10.0 ns | a peer | 1.50 | at most 1.0 x | no | 1.25 |"
        );
        assert_eq!(
            line(&text, "roce/write_lat_8B"),
            "| roce/write_lat_8B | 5.00 ns | 10.0 ns | a peer | 0.50 | at most 1.0 x | yes | – |"
        );
        assert_eq!(
            line(&text, "ioctl/empty"),
            "| ioctl/empty | – | – | a peer | – | at most 1.0 x | – | 0.75 |"
        );
        // A row that explains another is not in it.
        assert_eq!(text.lines().count(), 2 + 3);
        let columns = |line: &str| line.matches('|').count();
        assert!(text.lines().all(|line| columns(line) == 9), "{text}");
    }

    #[test]
    fn each_row_with_a_goal_is_in_the_table() {
        let cases = crate::all_cases();
        for case in &cases {
            assert!(
                case.goal.is_none() || ORDER.contains(&case.name),
                "{}",
                case.name
            );
        }
        for name in ORDER {
            assert!(cases.iter().any(|case| case.name == name), "{name}");
        }
    }

    #[test]
    fn a_row_that_cannot_be_counted_is_missing_only_from_what_was_timed() {
        let all: Vec<Row> = ORDER.map(|name| row(name, 1.0, Better::Lower)).into();
        let counted: Vec<Row> = all
            .iter()
            .filter(|row| count::why_not(&row.name).is_none())
            .cloned()
            .collect();
        assert!(missing(Clock::Time, &all).is_empty());
        assert!(missing(Clock::Instructions, &counted).is_empty());
        assert_eq!(
            missing(Clock::Time, &counted).len(),
            all.len() - counted.len()
        );
        assert_eq!(missing(Clock::Instructions, &counted[1..]), [ORDER[0]]);
    }

    #[test]
    fn a_report_is_read_again() {
        let dir = std::env::temp_dir().join(format!("kfi-benchmarks-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a folder");
        let none = earlier(&dir, Clock::Instructions);
        let rows: Vec<Row> = ORDER.map(|name| row(name, 1.0, Better::Lower)).into();
        let written = write(&dir, Clock::Instructions, &rows);
        let read = earlier(&dir, Clock::Instructions);
        std::fs::write(dir.join(file(Clock::Time)), "{").expect("a file");
        let spoilt = earlier(&dir, Clock::Time);
        std::fs::remove_dir_all(&dir).expect("to remove the folder");
        assert!(none.expect("no report").is_empty());
        written.expect("to write a report");
        let read: Vec<String> = read
            .expect("a report")
            .into_iter()
            .map(|row| row.name)
            .collect();
        assert_eq!(read, ORDER);
        let error = spoilt.expect_err("a spoilt report").to_string();
        assert!(error.contains("bench.json"), "{error}");
    }
}
