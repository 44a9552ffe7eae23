// SPDX-License-Identifier: GPL-2.0
//! An allreduce that a program drives: it reads completions and posts what is due.
//!
//! The same plan as that of deferred work, with counters in the program's memory.

use std::collections::VecDeque;

use super::{
    Action, Counter,
    group::{Member, context},
};
use crate::{CqRing, Deadline, Entry, Errno, Error, Result};

/// Entries that are read at a time.
const BATCH: usize = 64;

/// Time after which a post that found no room is tried again, if no completion comes.
const RETRY: std::time::Duration = std::time::Duration::from_millis(1);

/// The state of the ranks of a host.
#[derive(Debug)]
pub(super) struct Driver {
    /// Sums are done here, without an operation.
    adds: bool,
    ranks: Vec<Progress>,
    /// Counter of the start, and of the end.
    start: Count,
    done: u64,
    end: u64,
    /// Steps that are due, by the place of their rank.
    due: VecDeque<(usize, usize)>,
}

/// A counter, and the steps that wait for it.
#[derive(Clone, Debug, Default)]
struct Count {
    value: u64,
    /// Threshold, place of the rank, step; the lowest threshold first.
    waiting: VecDeque<(u64, usize, usize)>,
}

impl Count {
    fn insert(&mut self, threshold: u64, place: usize, step: usize) {
        let at = self
            .waiting
            .partition_point(|(other, ..)| *other <= threshold);
        self.waiting.insert(at, (threshold, place, step));
    }

    fn add(&mut self, due: &mut VecDeque<(usize, usize)>) {
        self.value += 1;
        while let Some((threshold, place, step)) = self.waiting.front().copied()
            && threshold <= self.value
        {
            self.waiting.pop_front();
            due.push_back((place, step));
        }
    }
}

#[derive(Debug)]
struct Progress {
    rank: usize,
    chunks: Vec<Count>,
}

impl Driver {
    /// Posts all receives.
    pub(super) fn new(group: &super::Group, adds: bool) -> Result<Self> {
        let members = &group.members;
        let chunks = group.ring.chunks();
        let mut driver = Self {
            adds,
            ranks: { members.iter() }
                .map(|member| Progress {
                    rank: member.plan.rank,
                    chunks: vec![Count::default(); chunks],
                })
                .collect(),
            start: Count::default(),
            done: 0,
            end: 0,
            due: VecDeque::new(),
        };
        for (place, member) in members.iter().enumerate() {
            driver.end += member.plan.counts(Counter::Done);
            for (at, step) in member.plan.steps.iter().enumerate() {
                match step.threshold {
                    0 => driver.due.push_back((place, at)),
                    threshold => {
                        let count = driver.count(place, step.trigger);
                        { count.into_iter() }.for_each(|count| count.insert(threshold, place, at));
                    }
                }
            }
        }
        driver.post(members)?;
        match driver.due.is_empty() {
            true => Ok(driver),
            false => Err(Error::call("KFABRIC_IOC_POST", Errno::EAGAIN)),
        }
    }

    fn count(&mut self, place: usize, counter: Counter) -> Option<&mut Count> {
        match counter {
            Counter::Start => Some(&mut self.start),
            Counter::Chunk(chunk) => self.ranks.get_mut(place)?.chunks.get_mut(chunk),
            Counter::Done => None,
        }
    }

    fn add(&mut self, place: usize, counter: Counter) {
        let mut due = std::mem::take(&mut self.due);
        match self.count(place, counter) {
            Some(count) => count.add(&mut due),
            None => self.done += 1,
        }
        self.due = due;
    }

    /// Posts what is due, as far as there is room.
    fn post(&mut self, members: &[Member]) -> Result<()> {
        while let Some((place, step)) = self.due.pop_front() {
            let Some(member) = members.get(place) else {
                continue;
            };
            let action = member.plan.steps.get(step).map(|step| &step.action);
            match (action, member.op(step)) {
                (Some(Action::Sum { operand, target }), _) if self.adds => {
                    member.add(operand, target);
                    self.complete(members, place, step);
                }
                (_, Some(op)) => match member.ep.post_one(&op) {
                    Ok(()) => {}
                    Err(error) if error.is_again() => {
                        self.due.push_front((place, step));
                        return Ok(());
                    }
                    Err(error) => return Err(error),
                },
                (_, None) => self.complete(members, place, step),
            }
        }
        Ok(())
    }

    fn complete(&mut self, members: &[Member], place: usize, step: usize) {
        let step = members
            .get(place)
            .and_then(|member| member.plan.steps.get(step));
        if let Some(step) = step {
            self.add(place, step.completion);
        }
    }

    /// Begins.
    pub(super) fn start(&mut self, members: &[Member]) -> Result<()> {
        self.add(0, Counter::Start);
        self.post(members)
    }

    /// Reads completions and posts until all is done.
    pub(super) fn finish(
        &mut self,
        members: &[Member],
        cq: &mut CqRing,
        deadline: Deadline,
    ) -> Result<()> {
        let mut entries = [Entry::default(); BATCH];
        while self.done < self.end {
            let until = match self.due.is_empty() {
                true => deadline,
                false => Deadline::after(RETRY),
            };
            let count = match cq.sread(&mut entries, until) {
                Err(error) if error.is_eavail() => {
                    return Err(match cq.cq().readerr()? {
                        Some(entry) => Error::Completion(Box::new(entry)),
                        None => error,
                    });
                }
                count => count?,
            };
            if count == 0 && deadline.has_passed() {
                return Err(Error::call("KFABRIC_IOC_CQ_READ", Errno::ETIMEDOUT));
            }
            for entry in &entries[..count] {
                let (rank, step) = (entry.op_context >> 32, entry.op_context as u32);
                let of = |progress: &Progress| progress.rank as u64 == rank;
                if let Some(place) = self.ranks.iter().position(of) {
                    debug_assert_eq!(context(rank as usize, step as usize), entry.op_context);
                    self.complete(members, place, step as usize);
                }
            }
            self.post(members)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_become_due_by_threshold_and_then_in_order() {
        let mut count = Count::default();
        for (threshold, step) in [(2, 0), (1, 1), (2, 2), (3, 3)] {
            count.insert(threshold, 9, step);
        }
        let mut due = VecDeque::new();
        count.add(&mut due);
        assert_eq!(due, [(9, 1)]);
        count.add(&mut due);
        assert_eq!(due, [(9, 1), (9, 0), (9, 2)]);
    }
}
