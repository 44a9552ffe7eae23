// SPDX-License-Identifier: GPL-2.0
//! `kfi comp-cntr`: tries a completion counter of verbs step by step.
//!
//! The counter is attached to an endpoint that posts operations to itself.  The
//! counts after each step are shown, and with `--external` also what the
//! program's own memory holds:
//!
//! ```text
//! STEP           COMP  ERROR  MEMORY-COMP  MEMORY-ERROR
//! send=100          2      0            2             0
//! rdma-write=8      4      0            4             0
//! fail              4      1            4             1
//! ```

use std::{str::FromStr, time::Duration};

use kfi::{
    Access, Buffer, CompCntr, CompCntrCaps, CompCntrOps, CompCntrType, Cq, CqBind, Domain,
    Endpoint, Error as KfiError, FiAddr, MemoryLocation, Mr, MrMode, Op, Remote, Wait,
};
use serde::Serialize;

use crate::{
    args,
    error::{Doing, Error, Result},
    link,
    out::Out,
};

/// Bytes of the endpoint's memory, and so of its longest operation.
const ROOM: usize = 1 << 16;

/// Longest time that an operation takes.
const SOON: Duration = Duration::from_secs(10);

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Set(u64),
    SetErr(u64),
    Inc(u64),
    IncErr(u64),
    Read,
    Send(usize),
    RdmaRead(usize),
    RdmaWrite(usize),
    Fail,
    Overwrite(u64),
}

/// A step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    action: Action,
    text: String,
}

impl FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = match text.split_once('=') {
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
            None => (text, None),
        };
        let bytes = || match usize::try_from(value.unwrap_or(8)) {
            Ok(bytes) if bytes <= ROOM => Ok(bytes),
            _ => Err(format!("{name} has at most {ROOM} bytes")),
        };
        let action = match (name, value) {
            ("inc", value) => Action::Inc(value.unwrap_or(1)),
            ("inc-err", value) => Action::IncErr(value.unwrap_or(1)),
            ("set", Some(value)) => Action::Set(value),
            ("set-err", Some(value)) => Action::SetErr(value),
            ("overwrite", Some(value)) => Action::Overwrite(value),
            ("send", _) => Action::Send(bytes()?),
            ("rdma-read", _) => Action::RdmaRead(bytes()?),
            ("rdma-write", _) => Action::RdmaWrite(bytes()?),
            ("read", None) => Action::Read,
            ("fail", None) => Action::Fail,
            ("set" | "set-err" | "overwrite", None) => return Err(format!("{name}=VALUE")),
            ("read" | "fail", Some(_)) => return Err(format!("{name} has no value")),
            _ => {
                return Err(
                    "a step is set, set-err, inc, inc-err, read, send, rdma-read, \
                            rdma-write, fail or overwrite"
                        .to_owned(),
                );
            }
        };
        Ok(Self {
            action,
            text: text.to_owned(),
        })
    }
}

/// The operations that a counter is attached for, by their names.
pub(crate) fn parse_ops(text: &str) -> Result<CompCntrOps, String> {
    text.split(',').try_fold(CompCntrOps::empty(), |ops, name| {
        let name = name.trim().to_uppercase().replace('-', "_");
        match CompCntrOps::from_name(&name) {
            Some(op) => Ok(ops | op),
            None => {
                let all: Vec<String> = CompCntrOps::all()
                    .iter_names()
                    .map(|(name, _)| name.to_lowercase())
                    .collect();
                Err(format!(
                    "no operation {name:?}; there are {}",
                    all.join(", ")
                ))
            }
        }
    })
}

/// The steps of the example.
const EXAMPLE: &[(&str, &str)] = &[
    (
        "read",
        "a new counter has two counts, completions and errors, both 0",
    ),
    ("send=100", "a message to itself: a send and a receive"),
    ("rdma-write=8", "a write, here and at its target"),
    ("rdma-read=8", "a read, here and at its target"),
    ("fail", "a write that its target refuses counts as an error"),
    ("inc=10", "a program can add to the counts"),
    ("set=1", "and set them"),
    ("set-err=0", ""),
];

/// More steps of the example, with external memory.
const EXTERNAL: &[(&str, &str)] = &[
    (
        "overwrite=99",
        "the program's memory is only a copy: the counter does not read it",
    ),
    ("inc=1", "and the next change writes it again"),
];

/// A step that was done, in JSON.
#[derive(Debug, Serialize)]
pub(crate) struct Done<'a> {
    step: &'a str,
    comp_count: u64,
    err_count: u64,
    /// What external memory holds.
    memory_comp_count: Option<u64>,
    memory_err_count: Option<u64>,
}

/// An endpoint that posts to itself, and its counter.
struct DemoObjects {
    cntr: CompCntr,
    /// External memory.
    memory: Option<Buffer>,
    ep: Endpoint,
    cq: Cq,
    me: FiAddr,
    buffer: Buffer,
    mr: Mr,
}

impl DemoObjects {
    fn new(domain: &Domain, args: &args::CompCntr) -> kfi::Result<Self> {
        let memory = args.external.then(|| Buffer::new(16)).transpose()?;
        let mut cntr = domain.comp_cntr().unit(match args.unit {
            args::Unit::Wrs => CompCntrType::Wrs,
            args::Unit::Bytes => CompCntrType::Bytes,
        });
        if let Some(memory) = &memory {
            cntr = cntr.external(MemoryLocation::va(memory, 0), MemoryLocation::va(memory, 8));
        }
        let cntr = cntr.create()?;
        let cq = domain.cq().wait(Wait::Queue).open()?;
        let av = domain.av().open()?;
        let ep = domain.endpoint().open()?;
        ep.attach_comp_cntr(&cntr, args.ops.unwrap_or(known_ops()))?;
        ep.bind_cq(&cq, CqBind::TRANSMIT | CqBind::RECV)?;
        ep.bind_av(&av)?;
        ep.enable()?;
        let me = av.insert_one(ep.name()?)?;
        let buffer = Buffer::new(2 * ROOM)?;
        let mr = domain
            .mr(&buffer)
            .access(Access::REMOTE_READ | Access::REMOTE_WRITE)
            .open()?;
        Ok(Self {
            cntr,
            memory,
            ep,
            cq,
            me,
            buffer,
            mr,
        })
    }

    /// Posts an operation and waits until `entries` completions are there.
    fn post(&self, op: &Op<'_>, entries: usize) -> kfi::Result<()> {
        self.ep.post_one(op)?;
        for _ in 0..entries {
            match self.cq.next(SOON) {
                Ok(Some(_)) | Err(KfiError::Completion(_)) => {}
                Ok(None) => return Err(KfiError::Nonsense("an operation without an end")),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn perform(&self, action: Action) -> kfi::Result<()> {
        let (cntr, here) = (&self.cntr, |len| self.buffer.slice(ROOM..ROOM + len));
        match action {
            Action::Set(value) => cntr.set(value),
            Action::SetErr(value) => cntr.set_err(value),
            Action::Inc(amount) => cntr.inc(amount),
            Action::IncErr(amount) => cntr.inc_err(amount),
            Action::Read => Ok(()),
            Action::Send(len) => {
                self.ep.post_one(&Op::recv(self.buffer.slice(..ROOM)))?;
                self.post(&Op::send(self.me, here(len)), 2)
            }
            Action::RdmaRead(len) => self.post(&Op::read(self.me, here(len), self.mr.remote(0)), 1),
            Action::RdmaWrite(len) => {
                self.post(&Op::write(self.me, here(len), self.mr.remote(0)), 1)
            }
            Action::Fail => {
                let nowhere = Remote {
                    key: !self.mr.remote(0).key & 0xffff_ffff,
                    ..self.mr.remote(0)
                };
                self.post(&Op::write(self.me, here(8), nowhere), 1)
            }
            Action::Overwrite(value) => {
                if let Some(memory) = &self.memory {
                    memory.write_at(0, &value.to_ne_bytes());
                }
                Ok(())
            }
        }
    }

    /// The counts after a step.
    fn done<'a>(&self, step: &'a Step) -> kfi::Result<Done<'a>> {
        let memory = |count: Option<u64>| count.filter(|_| self.memory.is_some());
        Ok(Done {
            step: &step.text,
            comp_count: self.cntr.read()?,
            err_count: self.cntr.read_err()?,
            memory_comp_count: memory(self.cntr.comp_count()),
            memory_err_count: memory(self.cntr.err_count()),
        })
    }
}

/// All operations that have a name.
fn known_ops() -> CompCntrOps {
    CompCntrOps::all()
        .iter_names()
        .fold(CompCntrOps::empty(), |all, (_, op)| all | op)
}

/// Runs `kfi comp-cntr`.
pub(crate) fn run(args: &args::CompCntr, out: &mut Out) -> Result<()> {
    let needs_memory = |step: &Step| matches!(step.action, Action::Overwrite(_));
    if !args.external && args.steps.iter().any(needs_memory) {
        return Err(Error::with_help(
            "the step overwrite needs external memory",
            "add --external",
        ));
    }
    let device = link::open()?;
    let link = link::choose(&device, args.link.as_deref(), None, None)?;
    let domain = device
        .fabric()
        .and_then(|fabric| fabric.domain(&link.name).mr_mode(MrMode::PROV_KEY).open())
        .doing(format!("open a domain on {}", link.name))?;
    let objects = DemoObjects::new(&domain, args)
        .doing(format!("attach a completion counter on {}", link.name))?;
    let caps = domain
        .comp_cntr_caps()
        .doing("query the capabilities of completion counters")?;
    let steps = steps(args)?;
    let widths = Widths::of(steps.iter().map(|(step, _)| step), caps.max_value);
    if !out.is_json() {
        out.line(head(&link.name, args, &caps))?;
        let columns = ["STEP", "COMP", "ERROR", "MEMORY-COMP", "MEMORY-ERROR"];
        let shown = if args.external { 5 } else { 3 };
        out.line(widths.line(&columns[..shown]))?;
    }
    for (step, explanation) in steps {
        if !explanation.is_empty() && !out.is_json() {
            out.line(format!("  # {explanation}"))?;
        }
        let doing = || format!("do the step {}", step.text);
        objects.perform(step.action).doing(doing())?;
        let done = objects.done(&step).doing(doing())?;
        if out.is_json() {
            out.document(&done)?;
        } else {
            out.line(row(&widths, &done))?;
        }
    }
    Ok(())
}

fn head(link: &str, args: &args::CompCntr, caps: &CompCntrCaps) -> String {
    let ops = args.ops.unwrap_or(known_ops());
    let names: Vec<&str> = ops.iter_names().map(|(name, _)| name).collect();
    format!(
        "a counter of {} on {link}, of {} that a domain may have, up to {}; attached for {}",
        match args.unit {
            args::Unit::Wrs => "work requests",
            args::Unit::Bytes => "bytes",
        },
        caps.max_counters,
        caps.max_value,
        names.join(" ")
    )
}

/// Widths of the columns. A row is shown when its step is done, so they are known before the steps.
struct Widths {
    step: usize,
    count: usize,
}

impl Widths {
    /// Those for these steps: no count exceeds the sum of what the steps add and set, or
    /// `max_value`.
    fn of<'a>(steps: impl Iterator<Item = &'a Step>, max_value: u64) -> Self {
        let (mut step, mut largest) = (16, 0u64);
        let mut copy = 0;
        for Step { action, text } in steps {
            step = step.max(text.chars().count());
            largest = largest.saturating_add(match *action {
                Action::Set(value) | Action::SetErr(value) => value,
                Action::Inc(amount) | Action::IncErr(amount) => amount,
                Action::Read => 0,
                // Two operations, of work requests or bytes.
                Action::Send(len) | Action::RdmaRead(len) | Action::RdmaWrite(len) => {
                    2 * len.max(1) as u64
                }
                Action::Fail => 2,
                Action::Overwrite(value) => {
                    copy = copy.max(value);
                    0
                }
            });
        }
        let largest = largest.min(max_value).max(copy);
        Self {
            step,
            count: largest.to_string().len(),
        }
    }

    /// A line of these cells, or of fewer.
    fn line(&self, cells: &[impl AsRef<str>]) -> String {
        let mut line = String::new();
        for (at, cell) in cells.iter().enumerate() {
            let cell = cell.as_ref();
            match at {
                0 => line += &format!("{cell:<0$}", self.step),
                _ => {
                    let width = self.count.max([0, 8, 6, 11, 12][at]);
                    line += &format!("  {cell:>width$}");
                }
            }
        }
        line
    }
}

fn row(widths: &Widths, done: &Done<'_>) -> String {
    let counts = [done.comp_count, done.err_count];
    let copies = [done.memory_comp_count, done.memory_err_count];
    let counts = counts.into_iter().chain(copies.into_iter().flatten());
    let mut cells = vec![done.step.to_owned()];
    cells.extend(counts.map(|count| count.to_string()));
    widths.line(&cells)
}

/// The steps of the command line, or those of the example with explanations.
fn steps(args: &args::CompCntr) -> Result<Vec<(Step, &'static str)>> {
    if !args.steps.is_empty() {
        return Ok(args.steps.iter().map(|step| (step.clone(), "")).collect());
    }
    let more = if args.external { EXTERNAL } else { &[] };
    let step = |(text, explanation): &(&str, &'static str)| match text.parse() {
        Ok(step) => Ok((step, *explanation)),
        Err(what) => Err(Error::with_help(what, "this is a defect of kfi")),
    };
    EXAMPLE.iter().chain(more).map(step).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn action(text: &str) -> Action {
        text.parse::<Step>().unwrap().action
    }

    pub(crate) fn done() -> Done<'static> {
        Done {
            step: "send=8",
            comp_count: 2,
            err_count: 0,
            memory_comp_count: Some(2),
            memory_err_count: Some(0),
        }
    }

    #[test]
    fn steps_are_parsed() {
        assert_eq!(action("inc"), Action::Inc(1));
        assert_eq!(action("inc-err=3"), Action::IncErr(3));
        assert_eq!(action("set=0"), Action::Set(0));
        assert_eq!(action("send"), Action::Send(8));
        assert_eq!(action("rdma-write=65536"), Action::RdmaWrite(ROOM));
        assert_eq!(action("fail"), Action::Fail);
        for wrong in [
            "",
            "set",
            "read=1",
            "inc=x",
            "send=65537",
            "overwrite",
            "jump=1",
            "fail=1",
        ] {
            assert!(wrong.parse::<Step>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn operations_are_parsed() {
        assert_eq!(
            parse_ops("send,remote-rdma-write"),
            Ok(CompCntrOps::SEND | CompCntrOps::REMOTE_RDMA_WRITE)
        );
        assert!(parse_ops("atomic").unwrap_err().contains("rdma_read"));
        assert_eq!(known_ops().bits(), 0x3f);
    }

    #[test]
    fn steps_of_the_example_can_be_parsed() {
        for (text, _) in EXAMPLE.iter().chain(EXTERNAL) {
            assert!(text.parse::<Step>().is_ok(), "{text}");
        }
    }

    #[test]
    fn json_has_the_documented_keys() {
        assert_eq!(
            serde_json::to_string(&done()).unwrap(),
            r#"{"step":"send=8","comp_count":2,"err_count":0,"memory_comp_count":2,"memory_err_count":0}"#
        );
    }

    fn widths(steps: &[&str], max_value: u64) -> Widths {
        let steps: Vec<Step> = steps.iter().map(|text| text.parse().unwrap()).collect();
        Widths::of(steps.iter(), max_value)
    }

    #[test]
    fn rows_show_memory_only_where_there_is_some() {
        let widths = widths(&["send=8"], u64::MAX);
        let line = row(&widths, &done());
        assert_eq!(line.split_whitespace().count(), 5, "{line}");
        let without = Done {
            memory_comp_count: None,
            memory_err_count: None,
            ..done()
        };
        assert_eq!(row(&widths, &without).split_whitespace().count(), 3);
    }

    #[test]
    fn columns_stay_in_line_for_wide_values() {
        let most = u64::MAX;
        for texts in [
            &["set=18446744073709551615", "inc=1"][..],
            &["set-err=18446744073709551615", "read"],
            &["overwrite=18446744073709551615", "inc-err"],
            &["set=9999999999", "inc=9999999999"],
            &["send=65536", "rdma-write=65536"],
        ] {
            let widths = widths(texts, most);
            let head = widths.line(&["STEP", "COMP", "ERROR", "MEMORY-COMP", "MEMORY-ERROR"]);
            let width = head.len();
            for step in texts {
                // No count is wider than the sum of the steps.
                let digits = "9".repeat(widths.count);
                let count = digits.parse().unwrap_or(most);
                let done = Done {
                    step,
                    comp_count: count,
                    err_count: 0,
                    memory_comp_count: Some(0),
                    memory_err_count: Some(count),
                };
                let line = row(&widths, &done);
                assert_eq!(line.len(), width, "{head}\n{line}");
                // Counts end where their names do.
                for name in ["COMP ", "ERROR ", "MEMORY-COMP "] {
                    let end = head.find(name).unwrap() + name.len() - 1;
                    let cell = &line[..end];
                    assert!(
                        cell.ends_with(|last: char| last.is_ascii_digit()),
                        "{head}\n{line}"
                    );
                    assert!(line[end..].starts_with(' '), "{head}\n{line}");
                }
            }
        }
    }

    #[test]
    fn narrow_values_have_narrow_columns() {
        let narrow = widths(&["send=8"], u64::MAX);
        assert_eq!(
            narrow.line(&["STEP", "COMP", "ERROR"]),
            "STEP                  COMP   ERROR"
        );
        // A counter that wraps early has no wide value.
        assert_eq!(widths(&["set=99", "inc=18446744073709551615"], 99).count, 2);
        assert_eq!(widths(&["inc=900", "inc=900"], u64::MAX).count, 4);
    }
}
