// SPDX-License-Identifier: GPL-2.0
//! `kfi trigger --show-plan`: the operations of each endpoint, and what starts them.

use kfi::collective::{Action, Counter, Memory, Message, Ring, Span, Step};
use serde::Serialize;

use super::host_name;
use crate::{error::Result, out::Out, table::Table};

/// A step, in JSON.
#[derive(Debug, Serialize)]
struct StepJson {
    event: &'static str,
    rank: usize,
    host: char,
    op: &'static str,
    /// The other rank of a message.
    peer: Option<usize>,
    message: Option<String>,
    memory: Option<&'static str>,
    first: usize,
    words: usize,
    trigger: String,
    threshold: u64,
    completion: String,
}

impl StepJson {
    fn new(ring: Ring, rank: usize, step: &Step) -> Self {
        let (op, peer, message, span) = match &step.action {
            Action::Receive {
                from,
                message,
                into,
            } => ("receive", Some(*from), Some(*message), Some(into)),
            Action::Send { to, message, from } => ("send", Some(*to), Some(*message), Some(from)),
            Action::Sum { target, .. } => ("sum", None, None, Some(target)),
            Action::Count => ("count", None, None, None),
        };
        let words = span.map_or(0..0, |span| span.words.clone());
        Self {
            event: "step",
            rank,
            host: host_name(ring.host_of(rank)),
            op,
            peer,
            message: message.map(message_name),
            memory: span.map(|span| memory_name(span.memory)),
            first: words.start,
            words: words.len(),
            trigger: counter_name(step.trigger),
            threshold: step.threshold,
            completion: counter_name(step.completion),
        }
    }
}

fn message_name(message: Message) -> String {
    match message {
        Message::Go => "go".to_owned(),
        Message::Reduce(chunk) => format!("reduce {chunk}"),
        Message::Gather(chunk) => format!("gather {chunk}"),
    }
}

fn memory_name(memory: Memory) -> &'static str {
    match memory {
        Memory::Input => "input",
        Memory::Partial => "partial",
        Memory::Output => "output",
    }
}

fn counter_name(counter: Counter) -> String {
    match counter {
        Counter::Start => "start".to_owned(),
        Counter::Chunk(chunk) => format!("chunk {chunk}"),
        Counter::Done => "done".to_owned(),
    }
}

fn span_text(span: &Span) -> String {
    format!(
        "{}[{}..{}]",
        memory_name(span.memory),
        span.words.start,
        span.words.end
    )
}

fn action_text(action: &Action) -> String {
    match action {
        Action::Receive {
            from,
            message,
            into,
        } => format!(
            "receive {:?} from {from} into {}",
            message_name(*message),
            span_text(into)
        ),
        Action::Send { to, message, from } => format!(
            "send {} to {to} as {:?}",
            span_text(from),
            message_name(*message)
        ),
        Action::Sum { operand, target } => {
            format!("add {} to {}", span_text(operand), span_text(target))
        }
        Action::Count => "count".to_owned(),
    }
}

fn when(step: &Step) -> String {
    match step.threshold {
        0 => "at once".to_owned(),
        threshold => format!("{} >= {threshold}", counter_name(step.trigger)),
    }
}

/// Shows the plan of a ring.
pub(super) fn show(ring: Ring, out: &mut Out) -> Result<()> {
    let mut table = Table::new(&["ENDPOINT", "WHEN", "OPERATION", "COUNTED BY"]);
    for rank in 0..ring.ranks() {
        for step in ring.plan(rank).steps {
            if out.is_json() {
                out.document(&StepJson::new(ring, rank, &step))?;
            }
            let place = format!("{rank} {}", host_name(ring.host_of(rank)));
            table.cells(&[
                &place,
                &when(&step),
                &action_text(&step.action),
                &counter_name(step.completion),
            ]);
        }
    }
    match out.is_json() {
        true => Ok(()),
        false => out.table(&table),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::trigger) fn documents() -> Vec<serde_json::Value> {
        let ring = Ring::new(2, 1).unwrap().hosts(2).unwrap();
        let steps = ring.plan(1).steps;
        { steps.iter() }
            .map(|step| serde_json::json!(StepJson::new(ring, 1, step)))
            .collect()
    }

    #[test]
    fn the_table_has_every_step() {
        let (mut out, memory) = Out::memory(false);
        let ring = Ring::new(2, 1).unwrap().hosts(2).unwrap();
        show(ring, &mut out).unwrap();
        assert_eq!(
            memory.take(),
            "ENDPOINT  WHEN          OPERATION                                    COUNTED BY\n\
             0 a       at once       receive \"gather 0\" from 1 into output[0..1]  chunk 0\n\
             0 a       start >= 1    send input[0..0] to 1 as \"go\"                done\n\
             0 a       start >= 1    send input[0..1] to 1 as \"reduce 0\"          done\n\
             0 a       chunk 0 >= 1  count                                        done\n\
             1 b       at once       receive \"go\" from 0 into output[0..0]        start\n\
             1 b       at once       receive \"reduce 0\" from 0 into output[0..1]  chunk 0\n\
             1 b       start >= 1    count                                        done\n\
             1 b       chunk 0 >= 1  add input[0..1] to output[0..1]              chunk 0\n\
             1 b       chunk 0 >= 2  send output[0..1] to 0 as \"gather 0\"         done\n"
        );
    }

    #[test]
    fn json_has_the_documented_keys() {
        assert_eq!(
            documents()[4].to_string(),
            r#"{"completion":"done","event":"step","first":0,"host":"b","memory":"output","#
                .to_owned()
                + r#""message":"gather 0","op":"send","peer":0,"rank":1,"threshold":2,"#
                + r#""trigger":"chunk 0","words":1}"#
        );
    }
}
