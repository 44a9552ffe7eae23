// SPDX-License-Identifier: GPL-2.0
//! `kfi cntr`: tries a counter step by step.
//!
//! Steps are done in their order.  Another thread does the steps with a time
//! before them, that long after the start. The result of each step and the
//! values after it are shown as it ends:
//!
//! ```text
//!      MS  THREAD  STEP    VALUE  ERROR
//!     0.1  main    wait=2                waits for 2
//!   100.3  other   add=1       1      0
//!   200.4  other   add=1       2      0
//!   200.5  main    wait=2      2      0  reached after 200.4 ms
//! ```
//!
//! [`watch`] shows the counters of programs.

mod rates;
pub(crate) mod watch;

use std::{
    fmt,
    str::FromStr,
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use kfi::{Cntr, Errno, Values, Wait};
use serde::Serialize;

use crate::{
    args,
    error::{Doing, Error, Result},
    link,
    out::Out,
    text,
};

/// An operation on the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Add(u64),
    Set(u64),
    AddErr(u64),
    SetErr(u64),
    Read,
    Wait(u64),
    Sleep(u64),
}

/// A step, and the time at which another thread does it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    at: Option<Duration>,
    action: Action,
    text: String,
}

impl FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (at, what) = match text.split_once(':') {
            Some((time, what)) => {
                let millis = time.strip_suffix("ms").and_then(|time| time.parse().ok());
                let millis =
                    millis.ok_or("the time before ':' is a number and ms, as 100ms:add=1")?;
                (Some(Duration::from_millis(millis)), what)
            }
            None => (None, text),
        };
        let (name, value) = match what.split_once('=') {
            Some((name, value)) => {
                let value = value.parse::<u64>();
                (
                    name,
                    Some(
                        value
                            .map_err(|_| "the value after '=' is a whole number, less than 2^64")?,
                    ),
                )
            }
            None => (what, None),
        };
        let action = match (name, value) {
            ("add", value) => Action::Add(value.unwrap_or(1)),
            ("adderr", value) => Action::AddErr(value.unwrap_or(1)),
            ("set", Some(value)) => Action::Set(value),
            ("seterr", Some(value)) => Action::SetErr(value),
            ("wait", Some(value)) => Action::Wait(value),
            ("sleep", Some(millis)) => Action::Sleep(millis),
            ("read", None) => Action::Read,
            ("set" | "seterr" | "wait" | "sleep", None) => return Err(format!("{name}=VALUE")),
            ("read", Some(_)) => return Err("read has no value".to_owned()),
            _ => {
                return Err("a step is add, set, adderr, seterr, read, wait or sleep".to_owned());
            }
        };
        Ok(Self {
            at,
            action,
            text: what.to_owned(),
        })
    }
}

/// The steps of the example.
const EXAMPLE: &[(&str, &str)] = &[
    (
        "read",
        "a new counter has two values, successes and errors, both 0",
    ),
    (
        "add=2",
        "operations of endpoints add to it, and so can a program",
    ),
    ("wait=2", "a threshold that is reached: no waiting"),
    ("100ms:add=1", ""),
    ("200ms:add=1", ""),
    (
        "wait=4",
        "sleeps; another thread adds 1 twice, the second wakes it",
    ),
    ("300ms:adderr=1", ""),
    (
        "wait=5",
        "a wait also ends when the error value changes (KFI_EAVAIL)",
    ),
    ("set=10", "the values can be set"),
    ("seterr=0", ""),
    ("wait=11", "no thread adds: the time passes (ETIMEDOUT)"),
];

/// A step that was done, in JSON.
#[derive(Debug, Serialize)]
pub(crate) struct Done<'a> {
    ms: f64,
    thread: &'static str,
    step: &'a str,
    value: u64,
    err: u64,
    /// Duration of a wait.
    waited_ms: Option<f64>,
    /// The name of the error; null: it succeeded.
    errno: Option<&'static str>,
}

/// How a step ended.
#[derive(Clone, Copy, Default)]
struct Answer {
    /// Duration of a wait.
    waited: Option<Duration>,
    /// Reason why a wait ended before the value was reached.
    errno: Option<Errno>,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(waited) = self.waited.map(text::millis) else {
            return Ok(());
        };
        match self.errno {
            None => write!(f, "reached after {waited} ms"),
            Some(Errno::KFI_EAVAIL) => {
                write!(f, "the error value changed (KFI_EAVAIL), after {waited} ms")
            }
            Some(Errno::ETIMEDOUT) => {
                write!(
                    f,
                    "not reached before the deadline (ETIMEDOUT), after {waited} ms"
                )
            }
            Some(errno) => write!(f, "{errno}, after {waited} ms"),
        }
    }
}

/// Data that the threads share.
struct DemoObjects<'a> {
    cntr: &'a Cntr,
    start: Instant,
    timeout: Duration,
    out: Mutex<&'a mut Out>,
}

impl<'a> DemoObjects<'a> {
    /// Does a step and shows it.
    fn perform(&self, step: &Step, thread: &'static str) -> Result<()> {
        match step.action {
            Action::Wait(threshold) => self.wait(step, threshold, thread),
            Action::Sleep(millis) => {
                thread::sleep(Duration::from_millis(millis));
                self.show(&mut self.lock(), thread, step, Answer::default())
            }
            action => {
                // The lines of steps that this step causes come after its own.
                let mut out = self.lock();
                match action {
                    Action::Add(value) => self.cntr.add(value),
                    Action::Set(value) => self.cntr.set(value),
                    Action::AddErr(value) => self.cntr.adderr(value),
                    Action::SetErr(value) => self.cntr.seterr(value),
                    Action::Read | Action::Wait(_) | Action::Sleep(_) => self.cntr.read().map(drop),
                }
                .doing(format!("do the step {}", step.text))?;
                self.show(&mut out, thread, step, Answer::default())
            }
        }
    }

    fn wait(&self, step: &Step, threshold: u64, thread: &'static str) -> Result<()> {
        let begin = Instant::now();
        let mut out = self.lock();
        if self.cntr.value() < threshold && !out.is_json() {
            let line = self.line(thread, step, None, &format!("waits for {threshold}"));
            out.line(line)?;
        }
        drop(out);
        // Each of its results is an answer.
        let errno = match self.cntr.wait(threshold, self.timeout) {
            Ok(_) => None,
            Err(error) => Some(
                error
                    .errno()
                    .ok_or(error)
                    .doing(format!("do the step {}", step.text))?,
            ),
        };
        let waited = Some(begin.elapsed());
        self.show(&mut self.lock(), thread, step, Answer { waited, errno })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, &'a mut Out> {
        // A thread that panicked leaves no half-written data.
        match self.out.lock() {
            Ok(out) => out,
            Err(poisoned) => poisoned.into_inner(),
        }
    }

    fn show(&self, out: &mut Out, thread: &'static str, step: &Step, answer: Answer) -> Result<()> {
        let values = self.cntr.values();
        if !out.is_json() {
            return out.line(self.line(thread, step, Some(values), &answer.to_string()));
        }
        let millis = |time: Duration| text::rounded(time.as_secs_f64() * 1e3);
        out.document(&Done {
            ms: millis(self.start.elapsed()),
            thread,
            step: &step.text,
            value: values.value,
            err: values.err,
            waited_ms: answer.waited.map(millis),
            errno: answer.errno.and_then(Errno::name),
        })
    }

    fn line(&self, thread: &str, step: &Step, values: Option<Values>, answer: &str) -> String {
        let [value, err] = match values {
            Some(values) => [values.value.to_string(), values.err.to_string()],
            None => [String::new(), String::new()],
        };
        let line = format!(
            "{:>8}  {thread:<6}  {:<12}  {value:>5}  {err:>5}  {answer}",
            text::millis(self.start.elapsed()),
            step.text
        );
        line.trim_end().to_owned()
    }

    /// Explains what comes next.
    fn explain(&self, explanation: &str) -> Result<()> {
        let mut out = self.lock();
        if explanation.is_empty() || out.is_json() {
            return Ok(());
        }
        out.line(format!("{:>10}# {explanation}", ""))
    }
}

/// Runs `kfi cntr`.
pub(crate) fn run(args: &args::Cntr, out: &mut Out) -> Result<()> {
    if let Some(args::CntrCommand::Watch(args)) = &args.command {
        return watch::run(args, out);
    }
    let device = link::open()?;
    let link = link::choose(&device, args.link.as_deref(), None, None)?;
    let cntr = device
        .fabric()
        .and_then(|fabric| fabric.domain(&link.name).open())
        .and_then(|domain| {
            let cntr = domain.cntr().wait(Wait::Queue);
            match args.max_value {
                Some(max) => cntr.max_value(max).open(),
                None => cntr.open(),
            }
        })
        .doing(format!("open a counter on {}", link.name))?;
    let steps = match args.steps.as_slice() {
        [] => example()?,
        steps => steps.iter().map(|step| (step.clone(), "")).collect(),
    };
    if !out.is_json() {
        out.line(format!(
            "a counter on {}, wait object KFI_WAIT_QUEUE",
            link.name
        ))?;
        out.line(format!(
            "{:>8}  {:<6}  {:<12}  {:>5}  {:>5}",
            "MS", "THREAD", "STEP", "VALUE", "ERROR"
        ))?;
    }
    let timeout = if args.steps.is_empty() {
        args.timeout.min(Duration::from_millis(300))
    } else {
        args.timeout
    };
    let objects = DemoObjects {
        cntr: &cntr,
        start: Instant::now(),
        timeout,
        out: Mutex::new(out),
    };
    perform(&objects, &steps)
}

fn example() -> Result<Vec<(Step, &'static str)>> {
    let step = |(text, explanation): &(&str, &'static str)| match text.parse() {
        Ok(step) => Ok((step, *explanation)),
        Err(what) => Err(Error::with_help(what, "this is a defect of kfi")),
    };
    EXAMPLE.iter().map(step).collect()
}

fn perform(objects: &DemoObjects<'_>, steps: &[(Step, &str)]) -> Result<()> {
    let mut later: Vec<(Duration, &Step)> = steps
        .iter()
        .filter_map(|(step, _)| step.at.map(|at| (at, step)))
        .collect();
    later.sort_by_key(|(at, _)| *at);
    thread::scope(|scope| {
        let other = scope.spawn(move || -> Result<()> {
            for (at, step) in later {
                thread::sleep(at.saturating_sub(objects.start.elapsed()));
                objects.perform(step, "other")?;
            }
            Ok(())
        });
        for (step, explanation) in steps.iter().filter(|(step, _)| step.at.is_none()) {
            objects.explain(explanation)?;
            objects.perform(step, "main")?;
        }
        other.join().unwrap_or(Ok(()))
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn step(text: &str) -> Step {
        text.parse().unwrap()
    }

    pub(crate) fn done() -> Done<'static> {
        Done {
            ms: 1.5,
            thread: "main",
            step: "wait=2",
            value: 2,
            err: 0,
            waited_ms: Some(1.25),
            errno: None,
        }
    }

    #[test]
    fn steps_are_parsed() {
        assert_eq!(step("add").action, Action::Add(1));
        assert_eq!(step("add=3").action, Action::Add(3));
        assert_eq!(step("wait=4").at, None);
        let later = step("250ms:adderr=2");
        assert_eq!(later.at, Some(Duration::from_millis(250)));
        assert_eq!(
            (later.action, &*later.text),
            (Action::AddErr(2), "adderr=2")
        );
        for wrong in [
            "", "set", "wait", "read=1", "add=x", "add=-1", "5:add", "xms:add", "jump=1",
        ] {
            assert!(wrong.parse::<Step>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn steps_of_the_example_can_be_parsed() {
        assert_eq!(example().unwrap().len(), EXAMPLE.len());
    }

    #[test]
    fn json_has_the_documented_keys() {
        assert_eq!(
            serde_json::to_string(&done()).unwrap(),
            r#"{"ms":1.5,"thread":"main","step":"wait=2","value":2,"err":0,"waited_ms":1.25,"errno":null}"#
        );
    }
}
