// SPDX-License-Identifier: GPL-2.0
//! `pingpong --trace`: every operation, CQ entry and counter, in words.
//!
//! ```text
//! client  posts     send "ping0000", context 0; before it a receive for the answer, context 1
//! client  CQ entry  context 0  flags MSG|SEND                 a send is complete
//! client  CQ entry  context 1  flags MSG|RECV  len 8          "pong0000" from 127.0.0.1:40001
//! client  counter   send 1, errors 0
//! ```

use kfi::{Av, Buffer, CntrBind, CompFlags, Entry, Remote, Values};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    args::Mode,
    out::Out,
    pingpong::player::{Foul, Game},
    text,
};

/// What goes with an event: only what is there.
#[derive(Serialize)]
struct Event<'a> {
    event: &'a str,
    role: &'a str,
    #[serde(flatten)]
    what: Value,
}

/// Where a side's steps are shown, if they are.
pub(crate) struct Trace<'a> {
    role: &'static str,
    out: Option<&'a mut Out>,
}

type Shown = Result<(), Foul>;

impl<'a> Trace<'a> {
    /// Shows the steps of `role` if they are `wanted`.
    pub(crate) fn new(role: &'static str, out: &'a mut Out, wanted: bool) -> Self {
        Self {
            role,
            out: wanted.then_some(out),
        }
    }

    /// Shows nothing.
    pub(crate) fn none() -> Self {
        Self {
            role: "",
            out: None,
        }
    }

    fn show(&mut self, event: &str, line: impl FnOnce() -> String, what: impl FnOnce() -> Value) -> Shown {
        let Some(out) = &mut self.out else {
            return Ok(());
        };
        let shown = if out.is_json() {
            let (role, what) = (self.role, what());
            out.document(&Event { event, role, what })
        } else {
            out.line(format!("{:<8}{event:<10}{}", self.role, line()))
        };
        shown.map_err(|error| Foul::Output(Box::new(error)))
    }

    /// A receive alone.
    pub(crate) fn posts_receive(&mut self, game: &Game, context: u64) -> Shown {
        let (op, what) = match game.mode {
            Mode::Msg => ("recv", format!("receive, context {context}")),
            Mode::Tagged => ("trecv", format!("tagged receive, tag {context}, context {context}")),
            Mode::Rma => return Ok(()),
        };
        self.show("posts", || what, || json!({ "ops": [{ "op": op, "context": context }] }))
    }

    /// A message, with the receive for its answer.
    pub(crate) fn posts_send(
        &mut self,
        game: &Game,
        context: u64,
        answer: Option<u64>,
        remote: Remote,
    ) -> Shown {
        let (recv, send) = match game.mode {
            Mode::Msg => ("recv", "send"),
            Mode::Tagged => ("trecv", "tsend"),
            Mode::Rma => ("", "write"),
        };
        let answer = answer.filter(|_| game.mode != Mode::Rma);
        let line = || {
            let what = match game.mode {
                Mode::Msg => "send".to_owned(),
                Mode::Tagged => format!("tagged send, tag {context}"),
                Mode::Rma => format!("write to {:#x} with key {:#x}", remote.addr, remote.key),
            };
            let mut line = format!("{what}, {}, context {context}", text::bytes(game.size as u64));
            if let Some(answer) = answer {
                line.push_str(&format!("; a receive for the answer, context {answer}"));
            }
            line
        };
        self.show("posts", line, || {
            let mut ops = Vec::new();
            if let Some(answer) = answer {
                ops.push(json!({ "op": recv, "context": answer }));
            }
            ops.push(json!({ "op": send, "context": context }));
            json!({ "ops": ops })
        })
    }

    /// An entry of the CQ; of an arrival, with what has arrived.
    pub(crate) fn entry(
        &mut self,
        entry: &Entry,
        av: &Av,
        arrived: Option<(&Buffer, usize)>,
    ) -> Shown {
        if self.out.is_none() {
            return Ok(());
        }
        let from = entry.src_addr.known().and_then(|peer| av.lookup(peer).ok());
        let bytes = arrived.map(|(inbox, size)| preview(inbox, size));
        let line = || {
            let flags = text::row(&text::comp_flags(entry.flags));
            let mut line = format!("context {}  flags {flags}", entry.op_context);
            if entry.flags.contains(CompFlags::RECV) {
                line.push_str(&format!("  len {}", entry.len));
            }
            if entry.flags.contains(CompFlags::TAGGED) && arrived.is_some() {
                line.push_str(&format!("  tag {}", entry.tag));
            }
            if entry.flags.contains(CompFlags::REMOTE_CQ_DATA) {
                line.push_str(&format!("  data {}", entry.data));
            }
            let meaning = match &bytes {
                Some(bytes) => match from {
                    Some(from) => format!("{bytes:?} arrived from {from}"),
                    None => format!("{bytes:?} arrived"),
                },
                None if entry.flags.contains(CompFlags::WRITE) => "the write is complete".to_owned(),
                None => "the send is complete".to_owned(),
            };
            format!("{line:<46} {meaning}")
        };
        self.show("CQ entry", line, || {
            json!({
                "op_context": entry.op_context,
                "flags": text::comp_flags(entry.flags),
                "len": entry.len,
                "data": entry.data,
                "tag": entry.tag,
                "src_addr": from,
                "bytes": bytes,
            })
        })
    }

    /// The counter that tells of arrivals.
    pub(crate) fn counter_reached(
        &mut self,
        name: &str,
        value: u64,
        inbox: &Buffer,
        size: usize,
    ) -> Shown {
        if self.out.is_none() {
            return Ok(());
        }
        let bytes = preview(inbox, size);
        self.show(
            "counter",
            || format!("{:<46} {bytes:?} arrived", format!("{name} reached {value}")),
            || json!({ "counter": name, "value": value, "bytes": bytes }),
        )
    }

    /// A counter at the end.
    pub(crate) fn counter(&mut self, name: &str, kind: CntrBind, values: Values) -> Shown {
        let Values { value, err, .. } = values;
        self.show(
            "counter",
            || format!("{:<46} {value} complete, {err} failed", format!("{name} (bound for {})", bind_name(kind))),
            || json!({ "counter": name, "value": value, "err": err }),
        )
    }
}

fn bind_name(kind: CntrBind) -> String {
    let names: Vec<&str> = kind.iter_names().map(|(name, _)| name).collect();
    format!("KFI_{}", names.join("|KFI_"))
}

/// The beginning of what has arrived.
fn preview(inbox: &Buffer, size: usize) -> String {
    String::from_utf8_lossy(&inbox.to_vec(..size.min(16))).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn previews_are_short() {
        let inbox = Buffer::from_bytes(&[b'x'; 100]).unwrap();
        assert_eq!(preview(&inbox, 100).len(), 16);
        assert_eq!(preview(&inbox, 0), "");
    }

    #[test]
    fn counters_are_named_as_the_api_does() {
        assert_eq!(bind_name(CntrBind::REMOTE_WRITE), "KFI_REMOTE_WRITE");
    }

    #[test]
    fn nothing_is_shown_unasked() {
        let mut trace = Trace::none();
        let never = || -> String { unreachable!() };
        assert!(trace.show("x", never, || unreachable!()).is_ok());
    }
}
