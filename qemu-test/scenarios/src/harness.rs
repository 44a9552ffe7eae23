// SPDX-License-Identifier: GPL-2.0
//! Runs tests, each in a process of its own, and reports in KTAP.
//!
//! A process of its own means that a test that crashes or hangs is one failed test, that what it
//! opened is closed by its exit, and that nothing of one test is left for the next. The parent
//! starts itself again with `--one NAME`, waits up to the test's limit and kills the child then.
//! What a child prints is shown behind its result if it failed.
//!
//! Reference: Documentation/dev-tools/ktap.rst of the kernel.

use std::{
    io::Read,
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

/// A test: its name and what it does.
pub(crate) struct Test {
    /// `room::what_holds`.
    pub(crate) name: &'static str,
    /// Panics if it does not hold.
    pub(crate) run: fn(),
    /// How long it may take, seconds.
    pub(crate) limit: u64,
}

/// Lists tests: `tests![name, name, slow => 300, ...]` makes `TESTS` of the file.
macro_rules! tests {
    (@limit) => { 60 };
    (@limit $limit:expr) => { $limit };
    ($($name:ident $(=> $limit:expr)?),* $(,)?) => {
        /// The tests of this room.
        pub(crate) const TESTS: &[crate::harness::Test] = &[$(
            crate::harness::Test {
                name: concat!(module_path!(), "::", stringify!($name)),
                run: $name,
                limit: tests!(@limit $($limit)?),
            }
        ),*];
    };
}
pub(crate) use tests;

fn short(test: &Test) -> &'static str {
    test.name
        .split_once("::")
        .map_or(test.name, |(_, name)| name)
}

/// Runs what the command line asks for: tests of `rooms`, or one of the `roles` that tests start as
/// processes beside themselves.
pub(crate) fn main(rooms: &[&'static [Test]], roles: &[(&str, fn())]) -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, name] = args.as_slice()
        && flag == "--role"
        && let Some((_, play)) = roles.iter().find(|(role, _)| role == name)
    {
        play();
        return ExitCode::SUCCESS;
    }
    let all = rooms.iter().flat_map(|room| room.iter());
    if let [flag, name, ..] = args.as_slice()
        && flag == "--one"
    {
        let Some(test) = all.clone().find(|test| short(test) == name.as_str()) else {
            eprintln!("no test {name}");
            return ExitCode::from(2);
        };
        (test.run)();
        return ExitCode::SUCCESS;
    }
    let exact = args.iter().any(|arg| arg == "--exact");
    let words: Vec<&String> = args.iter().filter(|arg| !arg.starts_with("--")).collect();
    let wanted: Vec<&Test> = all
        .filter(|test| {
            words.is_empty()
                || words.iter().any(|word| {
                    if exact {
                        short(test) == word.as_str()
                    } else {
                        short(test).contains(word.as_str())
                    }
                })
        })
        .collect();
    if args.iter().any(|arg| arg == "--list") {
        for test in wanted {
            println!("{}", short(test));
        }
        return ExitCode::SUCCESS;
    }

    println!("KTAP version 1");
    println!("1..{}", wanted.len());
    let mut failed = 0;
    for (number, test) in wanted.iter().enumerate() {
        let begin = Instant::now();
        let result = run_one(test);
        let took = begin.elapsed().as_millis();
        let (word, why) = match &result {
            Ok(()) => ("ok", ""),
            Err(why) => ("not ok", why.as_str()),
        };
        println!("{word} {} {} # {took} ms", number + 1, short(test));
        for line in why.lines() {
            println!("# {line}");
        }
        failed += usize::from(result.is_err());
    }
    println!(
        "# Totals: pass:{} fail:{failed} skip:0",
        wanted.len() - failed
    );
    ExitCode::from(u8::from(failed > 0))
}

fn run_one(test: &Test) -> Result<(), String> {
    let me = std::env::current_exe().map_err(|e| format!("cannot find myself: {e}"))?;
    // What chooses the rooms must choose them for the child, too.
    let rooms = std::env::args().filter(|arg| arg == "--faults");
    let mut child = Command::new(me)
        .args(["--one", short(test)])
        .args(rooms)
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("cannot start: {e}"))?;
    let read = |from: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            if let Some(mut from) = from {
                let _ = from.read_to_end(&mut text);
            }
            String::from_utf8_lossy(&text).into_owned()
        })
    };
    let out = read(child.stdout.take().map(|s| Box::new(s) as Box<_>));
    let err = read(child.stderr.take().map(|s| Box::new(s) as Box<_>));
    let limit = Duration::from_secs(test.limit);
    let begin = Instant::now();
    let status = loop {
        match child.try_wait().map_err(|e| format!("cannot wait: {e}"))? {
            Some(status) => break status,
            None if begin.elapsed() > limit => {
                let stack = std::fs::read_to_string(format!("/proc/{}/stack", child.id()));
                let _ = child.kill();
                let _ = child.wait();
                let stack = stack.unwrap_or_default();
                return Err(format!("hung for {} s\n{stack}", test.limit));
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    let text = |handle: std::thread::JoinHandle<String>| handle.join().unwrap_or_default();
    let (out, err) = (text(out), text(err));
    if status.success() {
        Ok(())
    } else {
        Err(format!("{status}\n{err}{out}"))
    }
}
