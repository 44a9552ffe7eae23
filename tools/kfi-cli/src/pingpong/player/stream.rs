// SPDX-License-Identifier: GPL-2.0
//! A game without answers: one side sends with a number of messages under way, the other receives.
//!
//! The client measures: the time from its first post until the last of its messages is complete,
//! which means that the other host has it.

use std::{
    thread,
    time::{Duration, Instant},
};

use kfi::{Deadline, Entry, Errno, Op, OpFlags};

use super::{Foul, Player, failure};
use crate::args::Mode;

/// Operations in one post, and entries in one read.
const BATCH: usize = 64;

/// The tag of all tagged messages.
const TAG: u64 = 1;

/// Time after which a post that found no room is tried again, if no completion can come.
const RETRY: Duration = Duration::from_millis(1);

impl Player {
    /// Operations under way.
    fn window(&self) -> u64 {
        self.game.window.unwrap_or(1).into()
    }

    /// Sends `count` messages; gives the time that they took.
    pub(crate) fn send_all(&self, count: u64) -> Result<Duration, Foul> {
        let message = self.out.slice(..self.game.size);
        let op = match self.game.mode {
            Mode::Msg => Op::send(self.peer, message),
            Mode::Tagged => Op::tsend(self.peer, message, TAG),
            Mode::Rma => Op::write(self.peer, message, self.remote),
        };
        let begin = Instant::now();
        self.run(op.flags(OpFlags::COMPLETION), count, 0)?;
        Ok(begin.elapsed())
    }

    /// Posts the first receives of `count` messages; gives their number.
    pub(crate) fn prepare_all(&self, count: u64) -> Result<u64, Foul> {
        if self.game.mode == Mode::Rma {
            return Ok(0);
        }
        let first = count.min(self.window());
        for _ in 0..first {
            self.ep.post_one(&self.receive())?;
        }
        Ok(first)
    }

    fn receive(&self) -> Op<'_> {
        let room = self.inbox.slice(..self.game.size);
        match self.game.mode {
            Mode::Tagged => Op::trecv(room, TAG, 0),
            Mode::Msg | Mode::Rma => Op::recv(room),
        }
    }

    /// Receives `count` messages, for the first `posted` of which there are receives.
    pub(crate) fn receive_all(&self, count: u64, posted: u64) -> Result<(), Foul> {
        if self.game.mode == Mode::Rma {
            return self.be_written_to(count);
        }
        self.run(self.receive(), count, posted)
    }

    /// Waits until a counter has counted all writes of the peer.
    fn be_written_to(&self, count: u64) -> Result<(), Foul> {
        let Some((_, _, cntr)) = self.counters.first() else {
            return Err(kfi::Error::Nonsense("a game of writes without a counter").into());
        };
        while cntr.value() < count {
            // Silence is the time without any write.
            let next = count.min(cntr.value() + self.window());
            match cntr.wait(next, self.game.timeout) {
                Ok(_) => {}
                Err(error) if error.is_timeout() => return Err(Foul::Silent(self.game.timeout)),
                Err(error) if error.is_eavail() => return Err(failure(&self.cq)),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Does `op` as often as `count` says, with a window of operations under way; `posted` of them
    /// are posted already.
    fn run(&self, op: Op<'_>, count: u64, mut posted: u64) -> Result<(), Foul> {
        let ops = [op; BATCH];
        let mut entries = [Entry::default(); BATCH];
        let mut done = 0;
        let mut progress = Instant::now();
        while done < count {
            let under_way = posted - done;
            let room = (self.window().saturating_sub(under_way)).min(count - posted);
            let room = room.min(BATCH as u64) as usize;
            let mut full = room == 0;
            if room > 0 {
                let accepted = self.post_some(&ops[..room])?;
                full = accepted < room;
                posted += accepted as u64;
            }
            let deadline = match (full, posted == done) {
                (false, _) if posted < count => Deadline::POLL,
                (_, false) => Deadline::after(self.game.timeout),
                // No completion makes room: the peer does.
                (_, true) => {
                    thread::sleep(RETRY);
                    Deadline::POLL
                }
            };
            match self.cq.sread(&mut entries, deadline) {
                Ok(0) if progress.elapsed() > self.game.timeout => {
                    return Err(Foul::Silent(self.game.timeout));
                }
                Ok(0) => {}
                Ok(taken) => {
                    done += taken as u64;
                    progress = Instant::now();
                }
                Err(error) if error.is_eavail() => return Err(failure(&self.cq)),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Posts as many of these as there is room for.
    fn post_some(&self, ops: &[Op<'_>]) -> Result<usize, Foul> {
        match self.ep.post(ops) {
            Ok(posted) => match posted.error {
                None | Some(Errno::EAGAIN) => Ok(posted.done),
                Some(_) => Ok(posted.into_result()?),
            },
            Err(error) if error.is_again() => Ok(0),
            Err(error) => Err(error.into()),
        }
    }
}
