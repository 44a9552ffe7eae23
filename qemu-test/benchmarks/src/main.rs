// SPDX-License-Identifier: GPL-2.0
//! kfabric.ko measured beside its peers, in one guest and in turn.
//!
//! ```text
//! kfi-benchmarks kernel|user --out FILE [--runs N] [WORD...]   in the guest: rows whose name has a WORD
//! kfi-benchmarks report DIR FILE...                            on the host: bench.json, .md, .svg
//! ```
//!
//! A row is one thing of ours and one peer. They run in turn, several times, and the medians are
//! compared ([`row`]). Rows of the kernel want a module that was built with its suites ([`kernel`]), the
//! others are measured with the module as it is used ([`calls`], [`counters`], [`messages`],
//! [`transfers`]; between two hosts: [`wire`]). Where two processes of one host talk, both are bound to
//! one CPU, so that what is measured is code and not how fast another CPU wakes up ([`process`]).

mod calls;
mod counters;
mod kernel;
mod messages;
mod plot;
mod process;
mod report;
mod row;
mod transfers;
mod wire;

use row::{Case, Row, Runs};
use std::{path::PathBuf, process::ExitCode};

/// What goes wrong in a benchmark or a report.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const USAGE: &str = "usage: kfi-benchmarks kernel|user --out FILE [--runs N] [WORD...]
       kfi-benchmarks report DIR FILE...";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match args.split_first() {
        Some((command, rest)) if command == "kernel" => measure(kernel::cases(), rest),
        Some((command, rest)) if command == "user" => measure(user_cases(), rest),
        Some((command, rest)) if command == "report" => report(rest),
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

/// The rows of what programs see.
fn user_cases() -> Vec<Case> {
    let mut cases = counters::cases();
    cases.extend(calls::cases());
    cases.extend(messages::cases());
    cases.extend(transfers::cases());
    cases.extend(wire::cases());
    cases
}

/// Measures those of `cases` that are wanted.
fn measure(mut cases: Vec<Case>, args: &[String]) -> Result<()> {
    let mut out: Option<PathBuf> = None;
    let mut runs = Runs::default();
    let mut words: Vec<&str> = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--out" => out = Some(args.next().ok_or(USAGE)?.into()),
            "--runs" => runs = Runs(args.next().ok_or(USAGE)?.parse()?),
            word => words.push(word),
        }
    }
    let out = out.ok_or(USAGE)?;
    cases.retain(|case| words.is_empty() || words.iter().any(|word| case.name.contains(word)));

    let mut rows: Vec<Row> = Vec::new();
    let mut broken = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        print!("[{}/{}] {:<28} ", number + 1, cases.len(), case.name);
        let _ = std::io::Write::flush(&mut std::io::stdout());
        match case.run(runs) {
            Ok(row) => {
                println!("{}", row.summary());
                rows.push(row);
                // A guest that dies later takes nothing with it.
                std::fs::write(&out, serde_json::to_string(&rows)?)?;
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

/// Writes what was measured, and prints the table.
fn report(args: &[String]) -> Result<()> {
    let (dir, files) = args.split_first().ok_or(USAGE)?;
    let mut rows: Vec<Row> = Vec::new();
    let mut unreadable = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(file).map_err(|error| error.to_string());
        match text.and_then(|text| serde_json::from_str(&text).map_err(|error| error.to_string())) {
            Ok(more) => rows.extend::<Vec<Row>>(more),
            Err(error) => unreadable.push(format!("{file}: {error}")),
        }
    }
    // What was measured is written whatever is missing.
    report::write(dir.as_ref(), &report::in_order(rows))?;
    if unreadable.is_empty() {
        Ok(())
    } else {
        Err(unreadable.join(", ").into())
    }
}
