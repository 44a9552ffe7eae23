// SPDX-License-Identifier: GPL-2.0
//! Runs tests, each in a process of its own, and reports in KTAP.
//!
//! Each test has a process of its own. So a test that crashes or hangs is one failed test, its exit
//! closes the objects that it opened, and it leaves nothing for the next test. The parent starts
//! itself again with `--one NAME`, waits up to the test's limit and kills the child then. The
//! output of a child is shown behind its result if it failed.
//!
//! A test can be marked as one that shows a [known defect](Defect). It runs like others and is
//! expected to fail, by an assertion with the defect's message; then it counts as passed, and its
//! line says `XFAIL known defect`. The runner reports a failure if it fails in another way (another
//! message, a crash, a hang), and if it passes: then the mark must be removed.
//!
//! Reference: Documentation/dev-tools/ktap.rst of the kernel.

use std::{
    io::Read,
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

/// A test: its name and its function.
pub(crate) struct Test {
    /// `group::property`.
    pub(crate) name: &'static str,
    /// Panics if the property does not hold.
    pub(crate) run: fn(),
    /// Its time limit, in seconds.
    pub(crate) limit: u64,
    /// The known defect that it shows.
    pub(crate) defect: Option<Defect>,
}

/// The issue that fixes all known defects, which are about operations that wait.
pub(crate) const REDESIGN: &str = "issue 12, section 1";

/// A defect that the tests show and the module still has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Defect {
    /// The defect in a few words. The message of the assertion that shows it contains them.
    pub(crate) message: &'static str,
    /// Where it will be fixed, for example an issue.
    pub(crate) mended: &'static str,
}

impl std::fmt::Display for Defect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "known defect: {}; to be fixed in {}",
            self.message, self.mended
        )
    }
}

/// Lists tests: `tests![name, name, slow => 300, ...]` makes `TESTS` of the file. `name [DEFECT]`
/// marks a test that shows that [`Defect`].
macro_rules! tests {
    (@limit) => { 60 };
    (@limit $limit:expr) => { $limit };
    (@defect) => { None };
    (@defect $defect:ident) => { Some($defect) };
    ($($name:ident $([$defect:ident])? $(=> $limit:expr)?),* $(,)?) => {
        /// The tests of this group.
        pub(crate) const TESTS: &[crate::harness::Test] = &[$(
            crate::harness::Test {
                name: concat!(module_path!(), "::", stringify!($name)),
                run: $name,
                limit: tests!(@limit $($limit)?),
                defect: tests!(@defect $($defect)?),
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

/// Runs the tests of `groups` that the command line selects, or one of the
/// `roles` in which tests start other processes.
pub(crate) fn main(groups: &[&'static [Test]], roles: &[(&str, fn())]) -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, name] = args.as_slice()
        && flag == "--role"
        && let Some((_, play)) = roles.iter().find(|(role, _)| role == name)
    {
        play();
        return ExitCode::SUCCESS;
    }
    let all = groups.iter().flat_map(|group| group.iter());
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
            match &test.defect {
                None => println!("{}", short(test)),
                Some(defect) => println!("{} # {defect}", short(test)),
            }
        }
        return ExitCode::SUCCESS;
    }

    println!("KTAP version 1");
    println!("1..{}", wanted.len());
    let mut failed = 0;
    for (number, test) in wanted.iter().enumerate() {
        let begin = Instant::now();
        let result = judge(test.defect, run_one(test));
        let took = begin.elapsed().as_millis();
        let (word, directive) = match (&result, test.defect) {
            (Ok(()), None) => ("ok", String::new()),
            // The directive of KTAP for a failure that is expected.
            (Ok(()), Some(defect)) => ("ok", format!("XFAIL {defect}; ")),
            (Err(_), _) => ("not ok", String::new()),
        };
        let number = number + 1;
        println!("{word} {number} {} # {directive}{took} ms", short(test));
        for line in result.as_ref().err().iter().flat_map(|why| why.lines()) {
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

/// The failure of a test.
struct Failure {
    /// Whether a panic in its main thread ended it: it was not killed, and did not hang.
    asserted: bool,
    /// Its exit status and its output.
    text: String,
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        let asserted = false;
        Self { asserted, text }
    }
}

/// Checks that a test ended as expected. The error has the difference.
fn judge(defect: Option<Defect>, result: Result<(), Failure>) -> Result<(), String> {
    match (defect, result) {
        (None, Ok(())) => Ok(()),
        (None, Err(failure)) => Err(failure.text),
        (Some(defect), Err(failure))
            if failure.asserted && failure.text.contains(defect.message) =>
        {
            Ok(())
        }
        (Some(defect), Err(failure)) => Err(format!(
            "it fails, but not as is expected ({defect})\n{}",
            failure.text
        )),
        (Some(defect), Ok(())) => Err(format!(
            "it passes, and is marked ({defect}): take the mark away"
        )),
    }
}

/// The exit status of a program whose main thread has panicked.
const PANICKED: i32 = 101;

fn run_one(test: &Test) -> Result<(), Failure> {
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
                let stack = std::fs::read_to_string(format!("/proc/{}/stack", child.id()));
                let _ = child.kill();
                let _ = child.wait();
                let stack = stack.unwrap_or_default();
                return Err(format!("hung for {} s\n{stack}", test.limit).into());
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    let text = |handle: std::thread::JoinHandle<String>| handle.join().unwrap_or_default();
    let (out, err) = (text(out), text(err));
    if status.success() {
        Ok(())
    } else {
        Err(Failure {
            asserted: status.code() == Some(PANICKED),
            text: format!("{status}\n{err}{out}"),
        })
    }
}

#[cfg(test)]
mod judging {
    use super::{Defect, Failure, judge};

    const DEFECT: Defect = Defect {
        message: "nothing works",
        mended: "the next version",
    };

    fn failed(asserted: bool, text: &str) -> Result<(), Failure> {
        let text = text.to_owned();
        Err(Failure { asserted, text })
    }

    #[test]
    fn a_test_without_a_mark_is_to_pass() {
        assert_eq!(judge(None, Ok(())), Ok(()));
        let why = judge(None, failed(true, "nothing works"));
        assert_eq!(why, Err("nothing works".to_owned()));
    }

    #[test]
    fn a_known_defect_is_to_fail_by_its_assertion() {
        let shown = "exit status: 101\npanicked at x.rs: nothing works: 3 of 4";
        assert_eq!(judge(Some(DEFECT), failed(true, shown)), Ok(()));
        for other in [failed(true, "no memory"), failed(false, shown)] {
            let why = judge(Some(DEFECT), other).expect_err("another failure");
            assert!(why.contains("not as is expected"), "{why}");
            assert!(why.contains(DEFECT.mended), "{why}");
        }
    }

    #[test]
    fn a_known_defect_that_is_not_shown_is_a_failure() {
        let why = judge(Some(DEFECT), Ok(())).expect_err("it passes");
        assert!(why.contains("take the mark away"), "{why}");
    }
}
