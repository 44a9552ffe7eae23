// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_verbs_cq_map`: CQs whose program reads the entries from mapped memory. The suite
//! is the program: it reads and writes the pages of the ring.

use super::{
    cq_map::MappedRing,
    cq_ring::{
        Arm,
        Entries,
        Entry,
        Opcode,
        Overrun,
        Ring, //
    },
    kunit_fixture::{
        entry,
        Case, //
    },
    raw::{
        self,
        kfabric_ib_cq_ring,
        kfabric_ib_cqe, //
    }, //
};
use crate::mem::{
    SharedPages,
    SharedWord, //
};
use core::mem::offset_of;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kfi_core::word::Word;
use kfi_roce::rc::Status;

/// The program's side of a ring.
struct Program {
    pages: Arc<SharedPages>,
    head: SharedWord,
    tail: SharedWord,
    size: u64,
}

impl Program {
    fn of(ring: &MappedRing) -> Result<Self> {
        let pages = ring.pages().clone();
        let word = |offset| pages.word(offset).ok_or(EINVAL);
        Ok(Self {
            head: word(offset_of!(kfabric_ib_cq_ring, head))?,
            tail: word(offset_of!(kfabric_ib_cq_ring, tail))?,
            size: ring.size().into(),
            pages,
        })
    }

    /// The eight words of entry `number`.
    fn entry(&self, number: u64) -> Result<[u64; 8]> {
        let slot = (number % self.size) as usize;
        let at = size_of::<kfabric_ib_cq_ring>() + slot * size_of::<kfabric_ib_cqe>();
        self.pages.read_words(at)
    }

    /// The request of entry `number`.
    fn wr_id(&self, number: u64) -> Result<u64> {
        Ok(self.entry(number)?[0])
    }

    fn ends(&self) -> (u64, u64) {
        (self.head.load(), self.tail.load_acquire())
    }
}

/// Pushes the entries from `first` on, `count` of them.
fn push(ring: &mut Ring, first: u64, count: u64) -> Result {
    for wr_id in first..first + count {
        ensure_eq!(ring.push(&entry(wr_id, 0), false), Ok(()));
    }
    Ok(())
}

#[kunit_tests(kfabric_verbs_cq_map)]
mod tests {
    use super::*;

    fn ring(case: &Case, entries: u32) -> Result<(Ring, Program)> {
        let mapped = MappedRing::new(&case.budget, entries)?;
        let program = Program::of(&mapped)?;
        Ok((Ring::new(Entries::Mapped(mapped)), program))
    }

    #[test]
    fn a_program_reads_entries_whole() -> Result {
        let case = Case::new(66)?;
        let (mut ring, program) = ring(&case, 3)?;
        ensure_eq!(program.size, 4);
        let flags = raw::KFABRIC_VERBS_WC_GRH
            | raw::KFABRIC_VERBS_WC_WITH_IMM
            | raw::KFABRIC_VERBS_WC_NETWORK_HDR_TYPE;
        let pushed = Entry {
            wr_id: 1 << 63 | 1,
            qpn: 2,
            status: Status::RemoteAccess,
            opcode: Opcode::RecvRdmaWithImm,
            byte_len: 3,
            imm_or_key: 0xdead_beef,
            src_qp: 5,
            flags,
            ..Entry::EMPTY
        };
        ensure_eq!(ring.push(&pushed, false), Ok(()));
        let words = [
            1 << 63 | 1,
            129 << 32 | 10,
            5 << 32 | 2,
            0xdead_beef << 32 | 3,
            // Without the flag that programs do not know.
            3,
            0,
            0,
            0,
        ];
        ensure_eq!(program.entry(0)?, words);
        // Programs have another number for this one.
        let invalidated = Entry {
            flags: raw::KFABRIC_VERBS_WC_WITH_INVALIDATE,
            ..pushed
        };
        ensure_eq!(ring.push(&invalidated, false), Ok(()));
        ensure_eq!(program.entry(1)?[4], 8);
        ensure_eq!(program.ends(), (0, 2));
        // It is not polled by calls.
        ensure!(ring.pop().is_none() && ring.len() == 2);
        Ok(())
    }

    #[test]
    fn a_full_ring_loses_entries_until_the_program_takes_some() -> Result {
        let case = Case::new(66)?;
        let (mut ring, program) = ring(&case, 4)?;
        let mut number = 0;
        for taken in [0, 1, 3, 4, 4] {
            program.head.store_release(program.head.load() + taken);
            let room = if number == 0 { 4 } else { taken };
            push(&mut ring, number, room)?;
            number += room;
            ensure_eq!(ring.push(&entry(0, 0), false), Err(Overrun));
            for waiting in number - 4..number {
                ensure_eq!(program.wr_id(waiting)?, waiting);
            }
            ensure_eq!(program.ends(), (number - 4, number));
        }
        // One event for all, until the CQ is destroyed.
        ensure!(core::mem::take(&mut ring.due).error);
        ensure_eq!(ring.push(&entry(0, 0), false), Err(Overrun));
        ensure!(!ring.due.error);
        Ok(())
    }

    #[test]
    fn an_invalid_head_frees_no_room() -> Result {
        let case = Case::new(66)?;
        let (mut ring, program) = ring(&case, 8)?;
        push(&mut ring, 0, 8)?;
        program.head.store_release(2);
        ensure_eq!(ring.len(), 6);
        for head in [0, 1, 9, 1 << 63, u64::MAX] {
            program.head.store_release(head);
            ensure_eq!(ring.len(), 6);
            ensure!(!ring.is_empty());
        }
        push(&mut ring, 8, 2)?;
        ensure_eq!(ring.push(&entry(0, 0), false), Err(Overrun));
        // What the program writes over the tail and the entries is not used.
        program.tail.store_release(0);
        program.head.store_release(10);
        ensure!(ring.is_empty());
        push(&mut ring, 10, 1)?;
        ensure_eq!(program.ends(), (10, 11));
        Ok(())
    }

    #[test]
    fn an_armed_ring_asks_for_a_call() -> Result {
        let case = Case::new(66)?;
        let (mut ring, _program) = ring(&case, 4)?;
        ring.arm = Arm::Solicited;
        push(&mut ring, 0, 1)?;
        ensure!(!ring.due.comp);
        ensure_eq!(ring.push(&entry(1, 0), true), Ok(()));
        ensure!(ring.due.comp && ring.arm == Arm::Not);
        Ok(())
    }

    #[test]
    fn another_size_keeps_the_entries_that_wait() -> Result {
        let case = Case::new(66)?;
        for (size, taken, other) in [(4, 0, 4), (4, 3, 1), (256, 7, 250), (256, 250, 8)] {
            let (mut ring, program) = ring(&case, size)?;
            push(&mut ring, 0, size.into())?;
            program.head.store_release(taken);
            let to = MappedRing::new(&case.budget, other)?;
            let after = Program::of(&to)?;
            let (mut to, mut copied, mut pieces) = (Entries::Mapped(to), 0, 1);
            while !ring.copy_piece(&mut copied, &mut to)? {
                pieces += 1;
            }
            let waiting = u64::from(size) - taken;
            ensure_eq!(pieces, waiting.div_ceil(64));
            ring.entries = to;
            ensure_eq!(after.ends(), (taken, size.into()));
            ensure_eq!(ring.len(), waiting);
            let room = after.size - waiting;
            push(&mut ring, size.into(), room)?;
            ensure_eq!(ring.push(&entry(0, 0), false), Err(Overrun));
            for number in taken..u64::from(size) + room {
                ensure_eq!(after.wr_id(number)?, number);
            }
        }
        let (mut ring, program) = ring(&case, 8)?;
        push(&mut ring, 0, 8)?;
        let mut small = Entries::Mapped(MappedRing::new(&case.budget, 4)?);
        ensure_eq!(ring.copy_piece(&mut 0, &mut small), Err(EINVAL));
        program.head.store_release(4);
        ensure_eq!(ring.copy_piece(&mut 0, &mut small), Ok(true));
        Ok(())
    }

    /// The program takes entries between the pieces.
    #[test]
    fn a_program_reads_on_while_entries_are_copied() -> Result {
        let case = Case::new(66)?;
        let (mut ring, program) = ring(&case, 256)?;
        push(&mut ring, 0, 256)?;
        let to = MappedRing::new(&case.budget, 256)?;
        let after = Program::of(&to)?;
        let (mut to, mut copied) = (Entries::Mapped(to), 0);
        ensure!(!ring.copy_piece(&mut copied, &mut to)?);
        // More than were copied, and a push.
        program.head.store_release(200);
        push(&mut ring, 256, 1)?;
        ensure!(ring.copy_piece(&mut copied, &mut to)?);
        ensure_eq!(after.ends(), (200, 257));
        for number in 200..257 {
            ensure_eq!(after.wr_id(number)?, number);
        }
        Ok(())
    }

    #[test]
    fn the_memory_is_charged_while_it_is_mapped() -> Result {
        let case = Case::new(66)?;
        let before = case.charged();
        let mapped = MappedRing::new(&case.budget, 1000)?;
        let bytes = case.charged() - before;
        ensure!((69_632..72_000).contains(&bytes));
        let pages = mapped.pages().clone();
        drop(mapped);
        ensure_eq!(case.charged() - before, bytes);
        drop(pages);
        ensure_eq!(case.charged(), before);
        ensure!(MappedRing::new(&case.budget, u32::MAX).is_err());
        Ok(())
    }
}
