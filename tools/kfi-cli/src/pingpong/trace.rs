// SPDX-License-Identifier: GPL-2.0
//! `pingpong --trace`: shows every operation, CQ entry and counter as text.
//!
//! ```text
//! client  posts     receive for the answer (context 1), send of 8 B (context 0)
//! client  CQ entry  context 0  flags MSG|SEND            the send is complete
//! client  CQ entry  context 1  flags MSG|RECV  len 8     "pong0000" arrived from 127.0.0.1:40001
//! client  counter   send, bound with KFI_SEND            1 complete, 0 failed
//! ```

use std::net::SocketAddr;

use kfi::{Buffer, CntrBind, CompFlags, Entry, FiAddr, Remote, Values};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    args::Mode,
    out::Out,
    pingpong::player::{Foul, Game},
    text,
};

/// Fields of an event; absent ones are left out.
#[derive(Serialize)]
struct Event<'a> {
    event: &'a str,
    role: &'a str,
    #[serde(flatten)]
    what: Value,
}

/// The output for a side's steps, if they are shown.
pub(crate) struct Trace<'a> {
    role: &'static str,
    out: Option<&'a mut Out>,
    /// Width of the fields of an entry, before their explanation.
    width: usize,
}

type Shown = Result<(), Foul>;

impl<'a> Trace<'a> {
    /// Shows the steps of `role` if `wanted`.
    pub(crate) fn new(role: &'static str, out: &'a mut Out, wanted: bool, mode: Mode) -> Self {
        Self {
            role,
            out: wanted.then_some(out),
            width: if mode == Mode::Rma { 60 } else { 46 },
        }
    }

    /// Shows nothing.
    pub(crate) fn none() -> Self {
        Self {
            role: "",
            out: None,
            width: 0,
        }
    }

    fn show(
        &mut self,
        event: &str,
        line: impl FnOnce() -> String,
        what: impl FnOnce() -> Value,
    ) -> Shown {
        let Some(out) = &mut self.out else {
            return Ok(());
        };
        let shown = if out.is_json() {
            let (role, what) = (self.role, what());
            let event = &event.to_lowercase().replace(' ', "_");
            out.document(&Event { event, role, what })
        } else {
            out.line(format!("{:<8}{event:<10}{}", self.role, line()))
        };
        shown.map_err(|error| Foul::Output(Box::new(error)))
    }

    /// A receive alone.
    pub(crate) fn posts_receive(&mut self, game: &Game, context: u64) -> Shown {
        let (op, what) = match game.mode {
            Mode::Msg => ("recv", format!("receive (context {context})")),
            Mode::Tagged => (
                "trecv",
                format!("receive for tag {context} (context {context})"),
            ),
            Mode::Rma => return Ok(()),
        };
        self.show(
            "posts",
            || what,
            || json!({ "ops": [{ "op": op, "context": context }] }),
        )
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
            let size = text::bytes(game.size as u64);
            let mut line = match (game.mode, answer) {
                (Mode::Msg, Some(answer)) => format!("receive for the answer (context {answer}), "),
                (Mode::Tagged, Some(answer)) => {
                    format!("receive for tag {answer} (context {answer}), ")
                }
                _ => String::new(),
            };
            line.push_str(&match game.mode {
                Mode::Msg => format!("send of {size}"),
                Mode::Tagged => format!("send of {size} with tag {context}"),
                Mode::Rma => {
                    format!(
                        "write of {size} to {:#x}, key {:#x}",
                        remote.addr, remote.key
                    )
                }
            });
            line.push_str(&format!(" (context {context})"));
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

    /// An entry of the CQ; for an arrival, with its data if they are still there.
    pub(crate) fn entry(
        &mut self,
        entry: &Entry,
        name: impl FnOnce(FiAddr) -> Option<SocketAddr>,
        arrived: bool,
        bytes: Option<(&Buffer, usize)>,
    ) -> Shown {
        if self.out.is_none() {
            return Ok(());
        }
        let width = self.width;
        let from = entry.src_addr.known().and_then(name);
        let bytes = bytes.map(|(inbox, size)| preview(inbox, size));
        let line = || {
            let flags = text::row(&text::comp_flags(entry.flags));
            let mut line = format!("context {}  flags {flags}", entry.op_context);
            if entry.flags.contains(CompFlags::RECV) {
                line.push_str(&format!("  len {}", entry.len));
            }
            if entry.flags.contains(CompFlags::TAGGED) && arrived {
                line.push_str(&format!("  tag {}", entry.tag));
            }
            if entry.flags.contains(CompFlags::REMOTE_CQ_DATA) {
                line.push_str(&format!("  data {}", entry.data));
            }
            let meaning = match &bytes {
                None if arrived => "a message has arrived".to_owned(),
                Some(bytes) => match from {
                    Some(from) => format!("{bytes:?} arrived from {from}"),
                    None => format!("{bytes:?} arrived"),
                },
                None if entry.flags.contains(CompFlags::WRITE) => {
                    "the write is complete".to_owned()
                }
                None => "the send is complete".to_owned(),
            };
            explained(&line, width, &meaning)
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

    /// The counter that reports arrivals.
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
        let (bytes, width) = (preview(inbox, size), self.width);
        self.show(
            "counter",
            || {
                explained(
                    &format!("{name}: {value}"),
                    width,
                    &format!("{bytes:?} arrived"),
                )
            },
            || json!({ "counter": name, "value": value, "bytes": bytes }),
        )
    }

    /// A counter at the end.
    pub(crate) fn counter(&mut self, name: &str, kind: CntrBind, values: Values) -> Shown {
        let Values { value, err, .. } = values;
        let width = self.width;
        self.show(
            "counter",
            || {
                let bound = format!("{name}, bound with {}", bind_name(kind));
                explained(&bound, width, &format!("{value} complete, {err} failed"))
            },
            || json!({ "counter": name, "value": value, "err": err }),
        )
    }
}

/// The width of the role and the event, before the fields.
const HEAD: usize = 18;

/// The longest line.
const COLUMNS: usize = 100;

/// The fields of an event, `width` wide, with their explanation beside them, or below them if the
/// line would be too long.
fn explained(fields: &str, width: usize, meaning: &str) -> String {
    let line = format!("{fields:<width$} {meaning}");
    match HEAD + line.chars().count() <= COLUMNS {
        true => line,
        false => format!("{fields}\n{:HEAD$}{meaning}", ""),
    }
}

fn bind_name(kind: CntrBind) -> String {
    let names: Vec<&str> = kind.iter_names().map(|(name, _)| name).collect();
    format!("KFI_{}", names.join("|KFI_"))
}

/// The beginning of the data.
fn preview(inbox: &Buffer, size: usize) -> String {
    String::from_utf8_lossy(&inbox.to_vec(..size.min(16))).into_owned()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::args::{Completion, WaitBy};
    use kfi::AuthKey;
    use std::time::Duration;

    /// Output of `say`: text, or JSON.
    fn shown(json: bool, say: impl FnOnce(&mut Trace<'_>) -> Shown) -> String {
        let (mut out, text) = Out::memory(json);
        say(&mut Trace::new("client", &mut out, true, Mode::Msg)).unwrap();
        text.take()
    }

    fn all(trace: &mut Trace<'_>) -> Shown {
        let game = Game {
            mode: Mode::Msg,
            completion: Completion::Cq,
            wait: WaitBy::Sread,
            size: 8,
            window: None,
            timeout: Duration::from_secs(1),
            trace: true,
            auth_key: AuthKey::NONE,
        };
        let inbox = Buffer::from_bytes(b"pong0000").unwrap();
        let mut entry = Entry::default();
        entry.op_context = 1;
        entry.flags = CompFlags::MSG | CompFlags::RECV;
        entry.len = 8;
        let values = Values { value: 2, err: 0 };
        trace.posts_receive(&game, 0)?;
        trace.posts_send(&game, 0, Some(1), Remote::new(0, 0))?;
        trace.entry(&entry, |_| None, true, Some((&inbox, 8)))?;
        trace.counter_reached("recv", 2, &inbox, 8)?;
        trace.counter("send", CntrBind::SEND, values)
    }

    pub(crate) fn documents() -> Vec<Value> {
        let text = shown(true, all);
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    #[test]
    fn json_has_the_documented_keys() {
        let documents = documents();
        assert_eq!(
            documents[1]["ops"][1],
            json!({ "op": "send", "context": 0 })
        );
        assert_eq!(documents[2]["event"], "cq_entry");
        assert_eq!(documents[2]["flags"], json!(["MSG", "RECV"]));
        assert_eq!(
            documents[4],
            json!({
                "event": "counter", "role": "client", "counter": "send", "value": 2, "err": 0,
            })
        );
    }

    #[test]
    fn as_text() {
        assert_eq!(
            shown(false, all),
            "client  posts     receive (context 0)\n\
             client  posts     receive for the answer (context 1), send of 8 B (context 0)\n\
             client  CQ entry  context 1  flags MSG|RECV  len 8               \
             \"pong0000\" arrived\n\
             client  counter   recv: 2                                        \
             \"pong0000\" arrived\n\
             client  counter   send, bound with KFI_SEND                      \
             2 complete, 0 failed\n"
        );
    }

    #[test]
    fn long_explanations_are_on_a_line_of_their_own() {
        let mut entry = Entry::default();
        entry.flags = CompFlags::MSG | CompFlags::RECV | CompFlags::REMOTE_CQ_DATA;
        entry.src_addr = FiAddr(0);
        let inbox = Buffer::from_bytes(&[b'x'; 16]).unwrap();
        let from = "[2001:db8:1234:5678:9abc:def0:1234:5678]:40001"
            .parse()
            .ok();
        let text = shown(false, |trace| {
            trace.entry(&entry, |_| from, true, Some((&inbox, 16)))
        });
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.lines().all(|line| line.len() <= COLUMNS), "{text}");
    }

    #[test]
    fn previews_are_short() {
        let inbox = Buffer::from_bytes(&[b'x'; 100]).unwrap();
        assert_eq!(preview(&inbox, 100).len(), 16);
        assert_eq!(preview(&inbox, 0), "");
    }

    #[test]
    fn counters_have_the_names_of_the_api() {
        assert_eq!(bind_name(CntrBind::REMOTE_WRITE), "KFI_REMOTE_WRITE");
    }

    #[test]
    fn no_trace_is_shown_unless_requested() {
        let mut trace = Trace::none();
        let never = || -> String { unreachable!() };
        assert!(trace.show("x", never, || unreachable!()).is_ok());
    }
}
