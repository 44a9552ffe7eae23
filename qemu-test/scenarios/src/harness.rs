// SPDX-License-Identifier: GPL-2.0
//! Runs tests, each in a process of its own, and reports in KTAP.
//!
//! Each test has a process of its own. So a test that crashes or hangs is one failed test, its exit
//! closes the objects that it opened, and it leaves nothing for the next test. The parent starts
//! itself again with `--one NAME`, waits up to the test's limit and kills the child then. The
//! output of a child is shown behind its result if it failed.
//!
//! Reference: Documentation/dev-tools/ktap.rst of the kernel.

use std::{
    io::Read,
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use crate::timeouts::TIMEOUTS;

/// A test: its name and its function.
pub(crate) struct Test {
    /// `group::property`.
    pub(crate) name: &'static str,
    /// Panics if the property does not hold.
    pub(crate) run: fn(),
    /// Its time limit, in seconds.
    pub(crate) limit: u64,
}

/// The tests of a file. Those that one function has for several ways are together.
pub(crate) type Group = &'static [&'static [Test]];

/// Lists tests: `tests![name, slow => 300, ...]` makes `TESTS` of the file. An entry
/// `name: [OneHost, TwoHosts => 300, ...]` is a function that takes a [`Way`](crate::ways::Way),
/// and a test for each way, whose name ends as the way says.
macro_rules! tests {
    (@limit) => { 60 };
    (@limit $limit:expr) => { $limit };
    (@suffix) => { "" };
    (@suffix OneHost) => { "_on_one_host" };
    (@suffix TwoHosts) => { "_between_two_hosts" };
    (@suffix Connection) => { "_of_a_connection" };
    (@suffix Datagrams) => { "_of_datagrams" };
    (@test $name:ident, [$($way:ident)?], $run:expr, [$($limit:expr)?]) => {
        crate::harness::Test {
            name: concat!(module_path!(), "::", stringify!($name), tests!(@suffix $($way)?)),
            run: $run,
            limit: tests!(@limit $($limit)?),
        }
    };
    (@tests $name:ident [$($limit:expr)?]) => {
        &[tests!(@test $name, [], $name, [$($limit)?])]
    };
    (@tests $name:ident : [$($way:ident $(=> $limit:expr)?),+ $(,)?] []) => {
        &[$(tests!(@test $name, [$way], || $name(crate::ways::Way::$way), [$($limit)?])),+]
    };
    ($($name:ident $(: $ways:tt)? $(=> $limit:expr)?),* $(,)?) => {
        /// The tests of this group.
        pub(crate) const TESTS: crate::harness::Group =
            &[$(tests!(@tests $name $(: $ways)? [$($limit)?])),*];
    };
}
pub(crate) use tests;

fn short(test: &Test) -> &'static str {
    test.name
        .split_once("::")
        .map_or(test.name, |(_, name)| name)
}

/// Runs the tests of `groups` that the command line selects, or one of the
/// `roles` in which tests start other processes.
pub(crate) fn main(groups: &[Group], roles: &[(&str, fn())]) -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, name] = args.as_slice()
        && flag == "--role"
        && let Some((_, play)) = roles.iter().find(|(role, _)| role == name)
    {
        play();
        return ExitCode::SUCCESS;
    }
    let all = groups.iter().copied().flatten().copied().flatten();
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
    let wanted = match selected(&args, all.collect()) {
        Ok(wanted) => wanted,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    if args.iter().any(|arg| arg == "--list") {
        for test in wanted {
            println!("{}", short(test));
        }
        return ExitCode::SUCCESS;
    }

    let time = args.iter().find_map(|arg| arg.strip_prefix("--for="));
    let time = time.map(|text| Duration::from_secs(text.parse().unwrap_or(0)));

    println!("KTAP version 1");
    println!("1..{}", wanted.len());
    let (mut failed, mut skipped) = (0, 0);
    let first = Instant::now();
    for (number, test) in wanted.iter().enumerate() {
        if time.is_some_and(|time| first.elapsed() > time) {
            println!("ok {} {} # SKIP no time is left", number + 1, short(test));
            skipped += 1;
            continue;
        }
        let begin = Instant::now();
        let result = run_one(test);
        let took = begin.elapsed().as_millis();
        let word = if result.is_ok() { "ok" } else { "not ok" };
        let number = number + 1;
        println!("{word} {number} {} # {took} ms", short(test));
        for line in result.as_ref().err().iter().flat_map(|why| why.lines()) {
            println!("# {line}");
        }
        failed += usize::from(result.is_err());
    }
    println!(
        "# Totals: pass:{} fail:{failed} skip:{skipped}",
        wanted.len() - failed - skipped
    );
    ExitCode::from(u8::from(failed > 0))
}

/// The tests that the arguments select: those with a word in their names, or with `--exact` as
/// their names; with `--timeouts` those of [`TIMEOUTS`], with `--no-timeouts` the others; of these
/// each N-th from the K-th on with `--shard=K/N`.
fn selected<'a>(args: &[String], all: Vec<&'a Test>) -> Result<Vec<&'a Test>, String> {
    let flag = |flag: &str| args.iter().any(|arg| arg == flag);
    const FLAGS: [&str; 5] = [
        "--exact",
        "--list",
        "--faults",
        "--timeouts",
        "--no-timeouts",
    ];
    let known = |arg: &str| {
        FLAGS.contains(&arg) || arg.starts_with("--shard=") || arg.starts_with("--for=")
    };
    if let Some(arg) = args.iter().find(|arg| arg.starts_with("--") && !known(arg)) {
        return Err(format!("there is no option {arg}"));
    }
    if flag("--timeouts") || flag("--no-timeouts") {
        let missing = TIMEOUTS
            .iter()
            .find(|name| all.iter().all(|test| short(test) != **name));
        if let Some(name) = missing {
            return Err(format!(
                "timeouts.rs names {name}, and there is no such test"
            ));
        }
    }
    let (which, shards) = shard(args)?;
    let words: Vec<&String> = args.iter().filter(|arg| !arg.starts_with("--")).collect();
    let matches = |test: &Test, word: &str| {
        if flag("--exact") {
            short(test) == word
        } else {
            short(test).contains(word)
        }
    };
    let missing = |word: &&&String| !all.iter().any(|test| matches(test, word.as_str()));
    if let Some(word) = words.iter().find(missing) {
        return Err(format!("no test has the name {word}"));
    }
    let named =
        |test: &Test| words.is_empty() || words.iter().any(|word| matches(test, word.as_str()));
    let waits = |test: &Test| TIMEOUTS.contains(&short(test));
    Ok(all
        .into_iter()
        .filter(|test| named(test))
        .filter(|test| !flag("--timeouts") || waits(test))
        .filter(|test| !flag("--no-timeouts") || !waits(test))
        .skip(which - 1)
        .step_by(shards)
        .collect())
}

/// K and N of `--shard=K/N`.
fn shard(args: &[String]) -> Result<(usize, usize), String> {
    let Some(text) = args.iter().find_map(|arg| arg.strip_prefix("--shard=")) else {
        return Ok((1, 1));
    };
    text.split_once('/')
        .and_then(|(which, all)| Some((which.parse().ok()?, all.parse().ok()?)))
        .filter(|(which, all)| (1..=*all).contains(which))
        .ok_or_else(|| format!("--shard={text} is not K/N with K from 1 to N"))
}

fn run_one(test: &Test) -> Result<(), String> {
    let me = std::env::current_exe().map_err(|e| format!("cannot find myself: {e}"))?;
    // Options that select groups must select them for the child, too.
    let groups = std::env::args().filter(|arg| arg == "--faults");
    let mut child = Command::new(me)
        .args(["--one", short(test)])
        .args(groups)
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
                let stacks = stacks(child.id());
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("hung for {} s\n{stacks}", test.limit));
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

/// The kernel stacks of the threads of a process.
fn stacks(pid: u32) -> String {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    let threads = threads.into_iter().flatten().flatten();
    let stack = |path: std::path::PathBuf| std::fs::read_to_string(path.join("stack"));
    threads
        .filter_map(|thread| stack(thread.path()).ok())
        .collect::<Vec<_>>()
        .join("\n")
}
