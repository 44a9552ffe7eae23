// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_line`: the map of waiters, compared with a list that is searched linearly.

use super::{
    with_memory,
    Line,
    Memory,
    NewWaiter, //
};
use kernel::prelude::*;
use kfi_core::due::{
    Due,
    Key, //
};

/// A generator of a fixed sequence of numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: u64) -> u64 {
        // xorshift64
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// Returns an entering waiter that brings memory.
fn enters(token: u64) -> Result<NewWaiter<u64>> {
    let memory = Some(Memory::new()?);
    Ok(NewWaiter { token, memory })
}

/// Removes the entry with the lowest key.
fn lowest(list: &mut KVec<(Key, u64)>) -> Option<(Key, u64)> {
    let key = list.iter().map(|(key, _)| *key).min()?;
    let index = list.iter().position(|(other, _)| *other == key)?;
    list.remove(index).ok()
}

#[kunit_tests(kfabric_line)]
mod tests {
    use super::*;

    #[test]
    fn a_single_waiter_keeps_its_memory() -> Result {
        let mut line = Due::new(Line::new());
        let mut memory = Some(Memory::new()?);
        for round in 0..10 {
            let key = line.insert(
                round,
                NewWaiter {
                    token: round,
                    memory,
                },
            );
            ensure_eq!(line.lowest(), Some(round));
            let left = if round % 2 == 0 {
                line.remove(&key).ok_or(ENOENT)?
            } else {
                line.pop_due(round).ok_or(ENOENT)?.1
            };
            ensure_eq!(left.token, round);
            ensure!(line.is_empty() && line.lowest().is_none());
            memory = left.memory;
            ensure!(memory.is_some());
        }
        Ok(())
    }

    #[test]
    fn a_single_waiter_needs_no_memory() -> Result {
        let mut line = Due::new(Line::new());
        for (token, other) in [(5, 3), (5, 7)] {
            let memory = None;
            line.insert(token, NewWaiter { token, memory });
            let memory = Some(Memory::new()?);
            let token = other;
            line.insert(token, NewWaiter { token, memory });
            let (low, high) = (token.min(5), token.max(5));
            ensure_eq!(line.pop().map(|(_, left)| left.token), Some(low));
            ensure_eq!(line.pop().map(|(_, left)| left.token), Some(high));
            ensure!(line.is_empty());
        }
        Ok(())
    }

    #[test]
    fn a_waiter_leaves_with_memory_if_it_brought_some() -> Result {
        let mut numbers = Numbers(7);
        for round in 0..200 {
            let mut line = Due::new(Line::new());
            let mut list = KVec::new();
            for token in 0..8 {
                // Only the first waiter may bring none.
                let brings = token != 0 || round % 2 == 0;
                let memory = if brings { Some(Memory::new()?) } else { None };
                let key = line.insert(numbers.below(5), NewWaiter { token, memory });
                list.push((key, token), GFP_KERNEL)?;
            }
            while !list.is_empty() {
                let left = if numbers.below(2) == 0 {
                    let any = numbers.below(list.len() as u64) as usize;
                    let (key, _) = list.remove(any).map_err(|_| EINVAL)?;
                    line.remove(&key)
                } else {
                    lowest(&mut list).ok_or(EINVAL)?;
                    line.pop().map(|(_, left)| left)
                };
                let left = left.ok_or(ENOENT)?;
                ensure_eq!(left.memory.is_some(), left.token != 0 || round % 2 == 0);
                // Sometimes a waiter enters again with its memory.
                if let (0, Some(memory)) = (numbers.below(4), left.memory) {
                    let enters = NewWaiter {
                        token: left.token,
                        memory: Some(memory),
                    };
                    let key = line.insert(numbers.below(5), enters);
                    list.push((key, left.token), GFP_KERNEL)?;
                }
            }
            ensure!(line.is_empty());
        }
        Ok(())
    }

    #[test]
    fn memory_is_allocated_when_it_is_requested() -> Result {
        let mut calls = 0;
        let entered = with_memory(|memory: &mut Option<Memory<u64>>| {
            calls += 1;
            Ok(memory.take().map(|_| calls))
        });
        ensure_eq!(entered, Ok(2));
        let entered = with_memory(|memory: &mut Option<Memory<u64>>| Ok(Some(memory.is_some())));
        ensure_eq!(entered, Ok(false));
        let error = with_memory(|_: &mut Option<Memory<u64>>| Err::<Option<()>, _>(EBADF));
        ensure_eq!(error, Err(EBADF));
        Ok(())
    }

    #[test]
    fn the_map_behaves_like_a_sorted_list() -> Result {
        let mut line = Due::new(Line::new());
        let mut list = KVec::new();
        let mut numbers = Numbers(88_172_645_463_325_252);
        for token in 0..20_000 {
            // The map grows to about two hundred entries and becomes empty again, several times.
            let growing = token / 400 % 2 == 0;
            match numbers.below(4) {
                0 | 1 if growing => {
                    let threshold = numbers.below(50);
                    let key = line.insert(threshold, enters(token)?);
                    list.push((key, token), GFP_KERNEL)?;
                }
                2 => {
                    let any = numbers.below(list.len().max(1) as u64) as usize;
                    if let Ok((key, token)) = list.remove(any) {
                        ensure!(line.remove(&key).is_some_and(|left| left.token == token));
                        ensure!(line.remove(&key).is_none());
                    }
                }
                _ => {
                    let popped = line.pop().map(|(key, left)| (key, left.token));
                    ensure_eq!(popped, lowest(&mut list));
                }
            }
            let expected = list.iter().map(|(key, _)| key.threshold()).min();
            ensure_eq!(line.lowest(), expected);
            ensure_eq!(line.len() as usize, list.len());
        }
        while let Some((key, left)) = line.pop() {
            ensure_eq!(Some((key, left.token)), lowest(&mut list));
        }
        ensure!(list.is_empty());
        Ok(())
    }
}
