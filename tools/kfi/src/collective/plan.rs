// SPDX-License-Identifier: GPL-2.0
//! The plan of an allreduce on a ring: which operation of which rank starts when.
//!
//! Each of N ranks has a vector of words, the input. At the end each has the sum of all inputs,
//! the output. The vector is cut into N chunks. A chunk travels round the ring twice:
//!
//! - *Reduce*: rank c sends chunk c of its input to the next rank. Each rank adds its own input to
//!   what it receives and sends the sum on. The rank before c, the last one, has the output.
//! - *Gather*: that rank sends the chunk of the output to the next rank, which stores it and sends
//!   it on, until each rank has it.
//!
//! Counters start the operations, so no program runs meanwhile. Each rank has a counter for each
//! chunk, which counts what has happened to the chunk there. For chunk 0 of three ranks:
//!
//! ```text
//!                          counter of chunk 0 at this rank
//! rank 0   start >= 1: send the input to rank 1
//! rank 1   received: 1     >= 1: add the input: 2   >= 2: send the sum to rank 2
//! rank 2   received: 1     >= 1: add the input: 2   >= 2: send the output to rank 0
//! rank 0   received: 1     >= 1: send the output to rank 1
//! rank 1   received: 3     >= 3: count this rank's chunk as done
//! ```
//!
//! **Each part of the memory is written by one receive only**, and after that by the sums of that
//! chunk: what arrives in the reduce goes to the partial sums, or at the last rank to the output.
//! So no message can overwrite bytes that are still read, and all receives can be posted before
//! the start: a message never comes early. The input is not changed.

use std::ops::Range;

/// Largest number of ranks of a ring.
pub const MAX_RANKS: usize = 256;

/// An allreduce on a ring: the sum of a vector of 64-bit words over all ranks.
///
/// ```
/// use kfi::collective::{Action, Ring};
///
/// // One word, which is one chunk: rank 0 sends it first.
/// let ring = Ring::new(3, 1).unwrap();
/// let first = ring.plan(0);
/// assert!(matches!(first.steps[1].action, Action::Send { to: 1, .. }));
/// // Receive, sum, send; receive the output, count that it is done.
/// assert_eq!(ring.plan(1).steps.len(), 5);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    ranks: usize,
    words: usize,
    hosts: usize,
    max_sum: usize,
}

/// A memory of a rank; each has the whole vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Memory {
    /// The rank's own values.
    Input,
    /// Sums of the inputs of some ranks.
    Partial,
    /// The result.
    Output,
}

/// Some words of a memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The memory.
    pub memory: Memory,
    /// The words; none for a message without bytes.
    pub words: Range<usize>,
}

impl Span {
    fn of(memory: Memory, words: &Range<usize>) -> Self {
        let words = words.clone();
        Self { memory, words }
    }
}

/// A counter of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Counter {
    /// The start; all ranks of a host have one counter for it.
    Start,
    /// What has happened to this chunk at this rank.
    Chunk(usize),
    /// Sends that are complete, and whatever else is the last of its chunk at a rank. All ranks of
    /// a host have one counter for it. When it has reached its end, all is complete.
    Done,
}

/// What a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Message {
    /// The start, from the first host to another one; it has no bytes.
    Go,
    /// Partial sums of a chunk.
    Reduce(usize),
    /// A chunk of the output.
    Gather(usize),
}

impl Message {
    /// The tag that distinguishes it from the other messages between two ranks.
    pub fn tag(self) -> u64 {
        match self {
            Self::Go => 0,
            Self::Reduce(chunk) => 1 << 32 | chunk as u64,
            Self::Gather(chunk) => 2 << 32 | chunk as u64,
        }
    }
}

/// An operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Receives a message into memory.
    Receive {
        /// Rank of the sender.
        from: usize,
        /// The message.
        message: Message,
        /// Memory for it.
        into: Span,
    },
    /// Sends a message.
    Send {
        /// Rank of the receiver.
        to: usize,
        /// The message.
        message: Message,
        /// Its bytes.
        from: Span,
    },
    /// Adds the rank's own input to what it received, as an atomic operation of the rank on its
    /// own memory.
    Sum {
        /// The input.
        operand: Span,
        /// The sums that were received.
        target: Span,
    },
    /// Adds one to the completion counter, and does nothing else.
    Count,
}

/// An operation, and when it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The operation.
    pub action: Action,
    /// Counter that starts it.
    pub trigger: Counter,
    /// Value at which it starts; 0: at once.
    pub threshold: u64,
    /// Counter to which its completion adds one.
    pub completion: Counter,
}

/// The part of one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The rank.
    pub rank: usize,
    /// The operations in the order of their submission, receives first.
    pub steps: Vec<Step>,
}

impl Plan {
    /// By how much the counter of this kind has grown when all is done.
    pub fn counts(&self, counter: Counter) -> u64 {
        let counted = |step: &&Step| step.completion == counter;
        self.steps.iter().filter(counted).count() as u64
    }
}

/// Why there is no such ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// The number of ranks.
    #[error("a ring has 2 to {MAX_RANKS} ranks")]
    Ranks,
    /// The length of the vector.
    #[error("a vector has at least one word of 8 bytes")]
    Words,
    /// The number of hosts.
    #[error("each host has at least one rank")]
    Hosts,
}

impl Ring {
    /// A ring of this many ranks, for vectors of this many 64-bit words, on one host.
    ///
    /// # Errors
    ///
    /// [`RingError`]: fewer than two ranks, more than [`MAX_RANKS`], or no words.
    pub fn new(ranks: usize, words: usize) -> Result<Self, RingError> {
        if !(2..=MAX_RANKS).contains(&ranks) {
            return Err(RingError::Ranks);
        }
        if words == 0 {
            return Err(RingError::Words);
        }
        Ok(Self {
            ranks,
            words,
            hosts: 1,
            max_sum: crate::abi::KFABRIC_MAX_ATOMIC_SIZE as usize / size_of::<u64>(),
        })
    }

    /// The ranks are on this many hosts, in turn, so that each message crosses the wire.
    ///
    /// # Errors
    ///
    /// [`RingError::Hosts`]: none, or more than there are ranks.
    pub fn hosts(mut self, hosts: usize) -> Result<Self, RingError> {
        if !(1..=self.ranks).contains(&hosts) {
            return Err(RingError::Hosts);
        }
        self.hosts = hosts;
        Ok(self)
    }

    /// A sum has at most this many words (at least one); without this as many as one atomic
    /// operation can have.
    pub fn max_sum(mut self, words: usize) -> Self {
        self.max_sum = words.max(1);
        self
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Words of the vector.
    pub fn words(&self) -> usize {
        self.words
    }

    /// The host of a rank.
    pub fn host_of(&self, rank: usize) -> usize {
        rank % self.hosts
    }

    /// The ranks of a host.
    pub fn ranks_of(&self, host: usize) -> impl Iterator<Item = usize> + use<> {
        (host..self.ranks).step_by(self.hosts)
    }

    /// Number of chunks that have words.
    pub fn chunks(&self) -> usize {
        self.ranks.min(self.words)
    }

    /// The words of a chunk. Chunks differ by one word at most; the first ones are longer.
    pub fn chunk(&self, chunk: usize) -> Range<usize> {
        let (each, longer) = (self.words / self.ranks, self.words % self.ranks);
        let start = |chunk: usize| each * chunk + chunk.min(longer);
        start(chunk)..start(chunk + 1)
    }

    /// The part of a rank below [`ranks`](Self::ranks).
    pub fn plan(&self, rank: usize) -> Plan {
        let (mut receives, mut rest) = self.go(rank);
        for chunk in 0..self.chunks() {
            self.add_chunk(rank, chunk, &mut receives, &mut rest);
        }
        receives.append(&mut rest);
        Plan {
            rank,
            steps: receives,
        }
    }

    /// The first rank tells the first rank of each other host that the start has come.
    fn go(&self, rank: usize) -> (Vec<Step>, Vec<Step>) {
        let send = |to| Step {
            action: Action::Send {
                to,
                message: Message::Go,
                from: Span::of(Memory::Input, &(0..0)),
            },
            trigger: Counter::Start,
            threshold: 1,
            completion: Counter::Done,
        };
        let receive = Step {
            action: Action::Receive {
                from: 0,
                message: Message::Go,
                into: Span::of(Memory::Output, &(0..0)),
            },
            trigger: Counter::Start,
            threshold: 0,
            completion: Counter::Start,
        };
        match rank {
            0 => (Vec::new(), (1..self.hosts).map(send).collect()),
            _ if rank < self.hosts => (vec![receive], vec![Self::count(Counter::Start, 1)]),
            _ => (Vec::new(), Vec::new()),
        }
    }

    fn count(trigger: Counter, threshold: u64) -> Step {
        Step {
            action: Action::Count,
            trigger,
            threshold,
            completion: Counter::Done,
        }
    }

    fn add_chunk(&self, rank: usize, chunk: usize, receives: &mut Vec<Step>, rest: &mut Vec<Step>) {
        let last = self.ranks - 1;
        let next = (rank + 1) % self.ranks;
        let before = (rank + last) % self.ranks;
        let words = self.chunk(chunk);
        let counter = Counter::Chunk(chunk);
        let receive = |message, memory| Step {
            action: Action::Receive {
                from: before,
                message,
                into: Span::of(memory, &words),
            },
            trigger: Counter::Start,
            threshold: 0,
            completion: counter,
        };
        let send = |message, memory, (trigger, threshold)| Step {
            action: Action::Send {
                to: next,
                message,
                from: Span::of(memory, &words),
            },
            trigger,
            threshold,
            completion: Counter::Done,
        };
        // Completions at this rank so far.
        let mut count = 0;
        // Ranks from the one where each of the two rounds begins.
        let reduced = (rank + self.ranks - chunk) % self.ranks;
        let gathered = (reduced + 1) % self.ranks;
        if reduced == 0 {
            let message = Message::Reduce(chunk);
            rest.push(send(message, Memory::Input, (Counter::Start, 1)));
        } else {
            // The last rank has the output, and is the first one of the gather.
            let (memory, message) = if reduced == last {
                (Memory::Output, Message::Gather(chunk))
            } else {
                (Memory::Partial, Message::Reduce(chunk))
            };
            receives.push(receive(Message::Reduce(chunk), memory));
            count += 1;
            let sums = self.sums(&words, memory, (counter, count));
            count += sums.len() as u64;
            rest.extend(sums);
            rest.push(send(message, memory, (counter, count)));
        }
        if gathered != 0 {
            let message = Message::Gather(chunk);
            receives.push(receive(message, Memory::Output));
            count += 1;
            rest.push(match gathered == last {
                true => Self::count(counter, count),
                false => send(message, Memory::Output, (counter, count)),
            });
        }
    }

    /// The sums of a chunk, which may run in any order.
    fn sums(
        &self,
        words: &Range<usize>,
        memory: Memory,
        (trigger, threshold): (Counter, u64),
    ) -> Vec<Step> {
        let piece = |start: usize| {
            let words = start..words.end.min(start + self.max_sum);
            Step {
                action: Action::Sum {
                    operand: Span::of(Memory::Input, &words),
                    target: Span::of(memory, &words),
                },
                trigger,
                threshold,
                completion: trigger,
            }
        };
        words.clone().step_by(self.max_sum).map(piece).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_the_vector() {
        for (ranks, words) in [(2, 1), (3, 1), (3, 8), (16, 8192), (7, 100), (5, 5)] {
            let ring = Ring::new(ranks, words).unwrap();
            let mut end = 0;
            for chunk in 0..ring.chunks() {
                let words = ring.chunk(chunk);
                assert!(words.start == end && !words.is_empty(), "{ring:?} {chunk}");
                end = words.end;
            }
            assert_eq!(end, words);
        }
    }

    #[test]
    fn what_is_no_ring_is_refused() {
        assert_eq!(Ring::new(1, 1), Err(RingError::Ranks));
        assert_eq!(Ring::new(MAX_RANKS + 1, 1), Err(RingError::Ranks));
        assert_eq!(Ring::new(2, 0), Err(RingError::Words));
        let ring = Ring::new(2, 1).unwrap();
        assert_eq!(ring.hosts(0), Err(RingError::Hosts));
        assert_eq!(ring.hosts(3), Err(RingError::Hosts));
    }

    #[test]
    fn ranks_are_on_the_hosts_in_turn() {
        let ring = Ring::new(5, 1).unwrap().hosts(2).unwrap();
        assert_eq!(ring.ranks_of(0).collect::<Vec<_>>(), [0, 2, 4]);
        assert_eq!(ring.ranks_of(1).collect::<Vec<_>>(), [1, 3]);
        assert!((0..5).all(|rank| ring.ranks_of(ring.host_of(rank)).any(|of| of == rank)));
    }

    /// A step in a few characters.
    fn short(step: &Step) -> String {
        let cntr = |cntr: Counter| match cntr {
            Counter::Start => "start".to_owned(),
            Counter::Chunk(chunk) => format!("c{chunk}"),
            Counter::Done => "done".to_owned(),
        };
        let what = match &step.action {
            Action::Receive {
                from,
                message,
                into,
            } => format!("recv {message:?} {from} {:?}", into.memory),
            Action::Send { to, message, from } => {
                format!("send {message:?} {to} {:?}", from.memory)
            }
            Action::Sum { operand, target } => {
                format!("sum {:?} {:?}", operand.memory, target.memory)
            }
            Action::Count => "count".to_owned(),
        };
        let (trigger, completion) = (cntr(step.trigger), cntr(step.completion));
        format!("{trigger}>={} {what} -> {completion}", step.threshold)
    }

    #[test]
    fn a_word_goes_round_twice() {
        let ring = Ring::new(3, 1).unwrap();
        let plans =
            [0, 1, 2].map(|rank| ring.plan(rank).steps.iter().map(short).collect::<Vec<_>>());
        assert_eq!(
            plans[0],
            [
                "start>=0 recv Gather(0) 2 Output -> c0",
                "start>=1 send Reduce(0) 1 Input -> done",
                "c0>=1 send Gather(0) 1 Output -> done",
            ]
        );
        assert_eq!(
            plans[1],
            [
                "start>=0 recv Reduce(0) 0 Partial -> c0",
                "start>=0 recv Gather(0) 0 Output -> c0",
                "c0>=1 sum Input Partial -> c0",
                "c0>=2 send Reduce(0) 2 Partial -> done",
                "c0>=3 count -> done",
            ]
        );
        assert_eq!(
            plans[2],
            [
                "start>=0 recv Reduce(0) 1 Output -> c0",
                "c0>=1 sum Input Output -> c0",
                "c0>=2 send Gather(0) 0 Output -> done",
            ]
        );
        assert_eq!(ring.plan(1).counts(Counter::Chunk(0)), 3);
        assert_eq!(ring.plan(1).counts(Counter::Done), 2);
    }

    #[test]
    fn other_hosts_learn_of_the_start_by_a_message() {
        let ring = Ring::new(4, 1).unwrap().hosts(2).unwrap();
        let steps = |rank| ring.plan(rank).steps.iter().map(short).collect::<Vec<_>>();
        assert!(steps(0).contains(&"start>=1 send Go 1 Input -> done".to_owned()));
        assert!(steps(1).contains(&"start>=0 recv Go 0 Output -> start".to_owned()));
        assert!(!steps(3).iter().any(|step| step.contains("Go")));
        assert_eq!(ring.plan(1).counts(Counter::Start), 1);
    }

    #[test]
    fn sums_are_cut_into_pieces() {
        let ring = Ring::new(2, 10).unwrap().max_sum(2);
        let plan = ring.plan(1);
        let sums: Vec<Range<usize>> = (plan.steps.iter())
            .filter_map(|step| match &step.action {
                Action::Sum { target, .. } => Some(target.words.clone()),
                _ => None,
            })
            .collect();
        assert_eq!(sums, [0..2, 2..4, 4..5]);
        // The send waits for all of them.
        let waits = plan
            .steps
            .iter()
            .any(|step| (step.trigger, step.threshold) == (Counter::Chunk(0), 4));
        assert!(waits);
    }

    #[test]
    fn messages_between_two_ranks_have_different_tags() {
        let ring = Ring::new(6, 6).unwrap().hosts(3).unwrap();
        for rank in 0..6 {
            let mut tags: Vec<u64> = (ring.plan(rank).steps.iter())
                .filter_map(|step| match step.action {
                    Action::Receive { message, .. } => Some(message.tag()),
                    _ => None,
                })
                .collect();
            let count = tags.len();
            tags.sort_unstable();
            tags.dedup();
            assert_eq!(tags.len(), count, "rank {rank}");
        }
    }
}
