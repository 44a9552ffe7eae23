// SPDX-License-Identifier: GPL-2.0
//! kfabric.ko measured beside its peers, in one guest and in turn.
//!
//! ```text
//! In the guest; rows whose name has a WORD, and that have a bound in the file BOUNDS:
//!   kfi-benchmarks kernel|user|storage --out FILE [--runs N] [--count] [--bounds BOUNDS] [WORD...]
//! On the host: the names of these rows; bench.json, bench.md, bench.svg, with --count
//! bench-count.json, bench.md; a test of bounds:
//!   kfi-benchmarks kernel|user|storage --list [--count] [WORD...]
//!   kfi-benchmarks report [--count] DIR FILE...
//!   kfi-benchmarks judge BOUNDS FILE...
//! ```
//!
//! A row is one operation of the module and one peer. They run in turn, several times, and the
//! medians are compared ([`row`]). Rows of the kernel need a module that was built with its suites
//! ([`kernel`]), the others use the module without suites ([`calls`], [`counters`], [`messages`],
//! [`transfers`], [`flows`], [`allreduce`], [`trigger`]; between two hosts: [`wire`]); those of
//! [`storage`] need modules of the stock kernel. Where two
//! processes of one host talk, both are bound to one CPU, so that the row measures code and not the
//! wake-up of another CPU ([`process`]). With `--count` the guest's clock counts instructions
//! ([`count`]); the ratios of some rows are tested then ([`bounds`]).

mod allreduce;
mod bounds;
mod calls;
mod count;
mod counters;
mod flows;
mod kernel;
mod messages;
mod plot;
mod process;
mod report;
mod row;
mod storage;
mod transfers;
mod trigger;
mod wire;

use bounds::Bound;
use count::Clock;
use row::{Case, Row, Runs};
use std::{path::PathBuf, process::ExitCode};

/// An error of a benchmark or a report.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const USAGE: &str =
    "usage: kfi-benchmarks kernel|user|storage --out FILE [--runs N] [--count] [--bounds BOUNDS] [WORD...]
       kfi-benchmarks kernel|user|storage --list [--count] [WORD...]
       kfi-benchmarks report [--count] DIR FILE...
       kfi-benchmarks judge BOUNDS FILE...";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match args.split_first() {
        Some((command, rest)) if command == "kernel" => measure(kernel::cases(), rest),
        Some((command, rest)) if command == "user" => measure(user_cases(), rest),
        Some((command, rest)) if command == "storage" => measure(storage::cases(), rest),
        Some((command, rest)) if command == "report" => report(rest),
        Some((command, rest)) if command == "judge" => judge(rest),
        _ => Err(USAGE.into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The rows that are measured in programs.
fn user_cases() -> Vec<Case> {
    let mut cases = counters::cases();
    cases.extend(calls::cases());
    cases.extend(messages::cases());
    cases.extend(transfers::cases());
    cases.extend(flows::cases());
    cases.extend(allreduce::cases());
    cases.extend(trigger::cases());
    cases.extend(wire::cases());
    cases
}

/// All rows.
#[cfg(test)]
fn all_cases() -> Vec<Case> {
    let mut cases = kernel::cases();
    cases.extend(user_cases());
    cases.extend(storage::cases());
    cases
}

/// The rows to measure, and the clock.
struct Wanted {
    /// The file of the values; none: only the names are printed.
    out: Option<PathBuf>,
    runs: Runs,
    clock: Clock,
    /// Parts of names; none: all rows.
    words: Vec<String>,
    /// Only the rows that have a bound.
    bounds: Option<Vec<Bound>>,
}

impl Wanted {
    fn parse(args: &[String]) -> Result<Self> {
        let mut list = false;
        let mut wanted = Self {
            out: None,
            runs: Runs::default(),
            clock: Clock::Time,
            words: Vec::new(),
            bounds: None,
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--out" => wanted.out = Some(args.next().ok_or(USAGE)?.into()),
                "--list" => list = true,
                "--runs" => wanted.runs = Runs(args.next().ok_or(USAGE)?.parse()?),
                "--count" => wanted.clock = Clock::Instructions,
                "--bounds" => wanted.bounds = Some(bounds::parse(&read(args.next())?)?),
                word => wanted.words.push(word.into()),
            }
        }
        if list == wanted.out.is_some() {
            return Err(USAGE.into());
        }
        Ok(wanted)
    }

    /// Whether the row `name` was selected.
    fn has(&self, name: &str) -> bool {
        let bounded = |bounds: &Vec<Bound>| bounds.iter().any(|bound| bound.name == name);
        (self.words.is_empty() || self.words.iter().any(|word| name.contains(word)))
            && self.bounds.as_ref().is_none_or(bounded)
    }

    /// The reason why the row `name` cannot be measured.
    fn why_not(&self, name: &str) -> Option<&'static str> {
        match self.clock {
            Clock::Time => None,
            Clock::Instructions => count::why_not(name),
        }
    }
}

/// The text of a file that an argument names.
fn read(path: Option<&String>) -> Result<String> {
    let path = path.ok_or(USAGE)?;
    Ok(std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?)
}

/// The names of those of `cases` that are measured; if there are none, the reasons are in the
/// second list.
fn names(cases: &[Case], wanted: &Wanted) -> (Vec<&'static str>, Vec<String>) {
    let mut reasons = Vec::new();
    let mut names: Vec<&'static str> = cases.iter().map(|case| case.name).collect();
    names.retain(|name| match wanted.why_not(name) {
        None => true,
        Some(reason) => {
            reasons.push(format!("not counted: {name}: {reason}"));
            false
        }
    });
    (names, reasons)
}

/// Measures the selected rows of `cases`, or prints their names.
fn measure(mut cases: Vec<Case>, args: &[String]) -> Result<()> {
    let wanted = Wanted::parse(args)?;
    cases.retain(|case| wanted.has(case.name));
    let Some(out) = &wanted.out else {
        let (names, reasons) = names(&cases, &wanted);
        for name in &names {
            println!("{name}");
        }
        // Otherwise the measurement prints them.
        if names.is_empty() {
            reasons.iter().for_each(|reason| eprintln!("{reason}"));
        }
        return Ok(());
    };

    let mut rows: Vec<Row> = Vec::new();
    let mut broken = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        print!("[{}/{}] {:<28} ", number + 1, cases.len(), case.name);
        let _ = std::io::Write::flush(&mut std::io::stdout());
        if let Some(reason) = wanted.why_not(case.name) {
            println!("not counted: {reason}");
            continue;
        }
        match case.run(wanted.runs, wanted.clock) {
            Ok(row) => {
                println!("{}", row.summary());
                rows.push(row);
                // If the guest dies later, the values of this row stay.
                std::fs::write(out, serde_json::to_string(&rows)?)?;
            }
            Err(error) => {
                println!("could not run: {error}");
                broken.push(case.name);
            }
        }
    }
    if broken.is_empty() {
        Ok(())
    } else {
        Err(format!("could not run: {}", broken.join(", ")).into())
    }
}

/// The rows of all `files`, and the errors of those that cannot be read.
fn rows_of(files: &[String]) -> (Vec<Row>, Vec<String>) {
    let mut rows: Vec<Row> = Vec::new();
    let mut unreadable = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(file).map_err(|error| error.to_string());
        match text.and_then(|text| serde_json::from_str(&text).map_err(|error| error.to_string())) {
            Ok(more) => rows.extend::<Vec<Row>>(more),
            Err(error) => unreadable.push(format!("{file}: {error}")),
        }
    }
    (rows, unreadable)
}

/// Writes the values, and prints the table.
fn report(args: &[String]) -> Result<()> {
    let (clock, args) = match args.split_first() {
        Some((first, rest)) if first == "--count" => (Clock::Instructions, rest),
        _ => (Clock::Time, args),
    };
    let (dir, files) = args.split_first().ok_or(USAGE)?;
    let (rows, unreadable) = rows_of(files);
    // The values are written also if some are missing.
    report::write(dir.as_ref(), clock, &report::in_order(rows))?;
    if unreadable.is_empty() {
        Ok(())
    } else {
        Err(unreadable.join(", ").into())
    }
}

/// Prints a line of TAP for each row that has a bound.
fn judge(args: &[String]) -> Result<()> {
    let (file, files) = args.split_first().ok_or(USAGE)?;
    let bounds = bounds::parse(&read(Some(file))?)?;
    let (rows, unreadable) = rows_of(files);
    let (text, failed) = bounds::tap(&rows, &bounds);
    print!("{text}");
    for message in &unreadable {
        println!("# {message}");
    }
    if failed == 0 {
        Ok(())
    } else {
        Err(format!("{failed} of {} rows do not meet their bounds", bounds.len()).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(words: &[&str]) -> Result<Wanted> {
        Wanted::parse(&words.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn words_and_bounds_choose_rows() {
        let all = wanted(&["--out", "x"]).expect("good arguments");
        assert!(all.has("cntr/wake") && all.clock == Clock::Time);
        let some = wanted(&["--count", "--out", "x", "wake"]).expect("good arguments");
        assert!(some.has("cntr/wake_1_of_1000") && !some.has("ioctl/empty"));
        assert_eq!(some.clock, Clock::Instructions);
        let bounded = Wanted {
            bounds: Some(bounds::parse("1.0 cntr/wake").expect("a good bound")),
            ..all
        };
        assert!(bounded.has("cntr/wake") && !bounded.has("cntr/wake_1_of_1000"));
    }

    #[test]
    fn a_list_has_the_rows_that_are_measured() {
        let list = |words: &[&str]| {
            let wanted = wanted(words).expect("good arguments");
            let mut cases = all_cases();
            cases.retain(|case| wanted.has(case.name));
            names(&cases, &wanted)
        };
        let (rates, none) = list(&["--list", "storage/nvme_rand", "ioctl/empty"]);
        assert_eq!(
            rates,
            [
                "ioctl/empty",
                "storage/nvme_randread_4K",
                "storage/nvme_randwrite_4K"
            ]
        );
        assert!(none.is_empty());
        let (counted, reasons) = list(&["--list", "--count", "storage/", "ioctl/empty"]);
        assert_eq!(counted, ["ioctl/empty"]);
        assert_eq!(reasons.len(), storage::cases().len());
        assert!(
            reasons[0].starts_with("not counted: storage/"),
            "{}",
            reasons[0]
        );
    }

    #[test]
    fn arguments_that_lack_something_are_refused() {
        for words in [
            &["wake"][..],
            &["--list", "--out", "x"],
            &["--out"],
            &["--out", "x", "--runs", "many"],
            &["--out", "x", "--bounds", "/nonexistent"],
        ] {
            assert!(wanted(words).is_err(), "{words:?}");
        }
    }
}
