// SPDX-License-Identifier: GPL-2.0
//! The oracle: the operations that must be executed and completed, and how often.
//!
//! An [`Oracle`] knows the operations that one end has posted. The peer's target checks each of its
//! calls against it, and the end checks each completion. The oracle does not look at packets.

use super::{
    plan::*,
    wire::{
        bytes,
        BLOCK, //
    },
};
use kfi_roce::{
    headers::{
        AtomicEth,
        Reth,
        SendEnd, //
    },
    mtu::PathMtu,
    rc::{
        target::{
            Atomic,
            Ended,
            Incoming, //
        },
        Completion,
        Op,
        Refusal,
        Status,
        Target,
        WorkRequest, //
    }, //
};

/// An operation that was posted.
pub struct Posted {
    pub request: WorkRequest,
    /// The number of bytes of a READ that were placed.
    pub placed: u32,
    /// The value before an atomic, and the value that its poster got.
    pub found: Option<u64>,
    pub returned: Option<u64>,
    pub executed: bool,
    pub status: Option<Status>,
}

impl Posted {
    /// Returns whether a READ or an atomic has all its data.
    fn is_answered(&self) -> bool {
        match self.request.op {
            Op::Read { .. } => self.placed == self.request.len,
            Op::CompareSwap { .. } | Op::FetchAdd { .. } => self.returned.is_some(),
            Op::Send(_) | Op::Write { .. } => true,
        }
    }
}

/// The operations that one end has posted, and their progress.
pub struct Oracle {
    seed: u64,
    mtu: PathMtu,
    pub ops: Vec<Posted>,
    /// The next operation to be executed, and the number of its bytes that were.
    executing: usize,
    progress: u32,
    /// The next operation to be completed.
    pub completed: usize,
}

impl Oracle {
    pub fn new(seed: u64, mtu: PathMtu) -> Self {
        Self {
            seed,
            mtu,
            ops: Vec::new(),
            executing: 0,
            progress: 0,
            completed: 0,
        }
    }

    /// Returns the bytes that operation `wr_id` sends or reads.
    pub fn bytes(&self, wr_id: u64, offset: u32, len: usize) -> &'static [u8] {
        let op = &self.ops[wr_id as usize];
        let seed = match op.request.op {
            Op::Read { va, .. } => va.wrapping_sub(READ_VA),
            _ => self.seed.wrapping_add(wr_id * 9973),
        };
        bytes(seed, offset as usize, len)
    }

    pub fn posted(&mut self, request: &WorkRequest) {
        assert_eq!(request.wr_id, self.ops.len() as u64);
        self.ops.push(Posted {
            request: *request,
            placed: 0,
            found: None,
            returned: None,
            executed: false,
            status: None,
        });
    }

    /// Returns the operation that must be executed now.
    fn current(&mut self) -> &mut Posted {
        self.skip();
        if self.progress == 0 && self.ops[self.executing].request.fence {
            let mut before = self.ops[..self.executing].iter();
            assert!(before.all(Posted::is_answered), "the fence did not hold");
        }
        &mut self.ops[self.executing]
    }

    fn skip(&mut self) {
        // The target is not called for a READ of no bytes.
        while let Some(op) = self.ops.get_mut(self.executing) {
            if !matches!(op.request.op, Op::Read { .. }) || op.request.len > 0 {
                break;
            }
            op.executed = true;
            self.executing += 1;
        }
    }

    fn executed(&mut self) {
        let op = self.current();
        assert!(!op.executed);
        op.executed = true;
        self.executing += 1;
        self.progress = 0;
    }

    /// Checks that the payload of a packet is the next part of the operation.
    fn check_bytes(&mut self, offset: u32, payload: &[u8]) {
        let wr_id = self.current().request.wr_id;
        assert_eq!(offset, self.progress, "a byte twice, or left out");
        assert!(
            self.bytes(wr_id, offset, payload.len()) == payload,
            "wrong bytes"
        );
        self.progress += payload.len() as u32;
    }

    fn remote(request: &WorkRequest) -> (u64, u32) {
        match request.op {
            Op::Write { va, rkey, .. }
            | Op::Read { va, rkey }
            | Op::CompareSwap { va, rkey, .. }
            | Op::FetchAdd { va, rkey, .. } => (va, rkey),
            Op::Send(_) => panic!("not executed in order"),
        }
    }

    pub fn placed(&mut self, wr_id: u64, offset: u32, payload: &[u8]) {
        let expected = self.bytes(wr_id, offset, payload.len());
        assert!(expected == payload, "wrong bytes read");
        let op = &mut self.ops[wr_id as usize];
        assert!(op.status.is_none(), "placed after completion");
        assert_eq!(op.placed, offset, "bytes read twice, or left out");
        op.placed += payload.len() as u32;
    }

    pub fn returned(&mut self, wr_id: u64, value: u64) {
        let op = &mut self.ops[wr_id as usize];
        assert!(
            op.status.is_none() && op.returned.is_none(),
            "returned twice"
        );
        op.returned = Some(value);
    }

    pub fn completed(&mut self, completion: &Completion) {
        let op = &mut self.ops[self.completed];
        assert_eq!(completion.request, op.request, "completed out of order");
        assert_eq!(op.status, None, "completed twice");
        op.status = Some(completion.status);
        self.completed += 1;
        if completion.status != Status::Success {
            return;
        }
        let request = op.request;
        match request.op {
            Op::Read { .. } => assert_eq!(op.placed, request.len, "not all was read"),
            Op::CompareSwap { .. } | Op::FetchAdd { .. } => {
                assert!(
                    op.returned.is_some() && op.returned == op.found,
                    "wrong value"
                );
            }
            Op::Send(_) | Op::Write { .. } => {}
        }
        let is_empty_read = matches!(request.op, Op::Read { .. }) && request.len == 0;
        assert!(op.executed || is_empty_read, "completed and not executed");
    }

    /// Returns the number of bytes of all READs.
    pub fn read_bytes(&self) -> u64 {
        let reads = self.ops.iter().map(|op| &op.request);
        reads
            .filter(|request| matches!(request.op, Op::Read { .. }))
            .map(|request| u64::from(request.len))
            .sum()
    }

    /// Returns whether all posted operations have completed.
    pub fn is_done(&self) -> bool {
        self.completed == self.ops.len()
    }
}

/// The memory of a host.
pub struct Memory {
    pub readable: bool,
    written: Vec<u8>,
    atomics: [u64; ATOMICS as usize],
}

impl Memory {
    pub fn new() -> Self {
        Self {
            readable: true,
            written: vec![0; BLOCK],
            atomics: [0; ATOMICS as usize],
        }
    }

    fn bounds(base: u64, key: u32, reth: &Reth, len: u32) -> Result<usize, Refusal> {
        let offset = reth.va.checked_sub(base).ok_or(Refusal::Access)?;
        let end = offset.checked_add(u64::from(len));
        if reth.rkey != key || end.is_none_or(|end| end > BLOCK as u64) {
            return Err(Refusal::Access);
        }
        Ok(offset as usize)
    }

    /// Returns the bytes for a READ response.
    pub fn read(&self, reth: &Reth) -> Result<&'static [u8], Refusal> {
        let offset = Self::bounds(READ_VA, READ_KEY, reth, reth.len)?;
        if !self.readable {
            return Err(Refusal::Access);
        }
        Ok(bytes(offset as u64, 0, reth.len as usize))
    }
}

/// The receives of a host.
#[derive(Default)]
pub struct Receives {
    pub posted: u32,
    pub begun: bool,
    pub ended: u32,
    pub aborted: u32,
    /// The operation of the peer whose receive is too short.
    pub short: Option<usize>,
}

/// The target of a host with the payload of one packet. It checks every call against the peer's
/// oracle.
pub struct HostTarget<'a> {
    pub oracle: &'a mut Oracle,
    pub memory: &'a mut Memory,
    pub receives: &'a mut Receives,
    pub payload: &'a [u8],
}

impl Target for HostTarget<'_> {
    fn begin_receive(&mut self, incoming: Incoming) -> Result<(), Refusal> {
        assert!(!self.receives.begun);
        let mtu = self.oracle.mtu.bytes();
        let request = self.oracle.current().request;
        match incoming {
            Incoming::Send { whole } => {
                assert!(matches!(request.op, Op::Send(_)));
                assert_eq!(whole, request.len <= mtu);
                assert_eq!(self.payload.len() as u32, request.len.min(mtu));
            }
            Incoming::WriteImm => {
                assert!(matches!(request.op, Op::Write { imm: Some(_), .. }));
            }
        }
        self.receives.posted = self
            .receives
            .posted
            .checked_sub(1)
            .ok_or(Refusal::NotReady)?;
        self.receives.begun = true;
        Ok(())
    }

    fn place(&mut self, offset: u32) -> Result<(), Refusal> {
        assert!(self.receives.begun);
        self.oracle.check_bytes(offset, self.payload);
        let request = self.oracle.current().request;
        if self.receives.short == Some(request.wr_id as usize)
            && self.oracle.progress > request.len / 2
        {
            return Err(Refusal::Invalid);
        }
        Ok(())
    }

    fn end_receive(&mut self, ended: Ended) -> Result<(), Refusal> {
        assert!(self.receives.begun);
        let request = self.oracle.current().request;
        assert_eq!(ended.len, request.len);
        assert_eq!(self.oracle.progress, request.len);
        assert_eq!(ended.solicited, request.solicited);
        match request.op {
            Op::Send(end) => {
                assert_eq!((ended.end, ended.write), (end, false));
                self.oracle.executed();
            }
            Op::Write { imm: Some(imm), .. } => {
                assert_eq!((ended.end, ended.write), (SendEnd::Imm(imm), true));
            }
            _ => panic!("no receive belongs to it"),
        }
        self.receives.begun = false;
        self.receives.ended += 1;
        Ok(())
    }

    fn abort_receive(&mut self, _: Option<Refusal>) {
        assert!(self.receives.begun);
        self.receives.begun = false;
        self.receives.aborted += 1;
    }

    fn check_write(&mut self, reth: &Reth) -> Result<(), Refusal> {
        if reth.len == 0 {
            return Ok(());
        }
        let request = self.oracle.current().request;
        assert!(matches!(request.op, Op::Write { .. }));
        assert_eq!(Oracle::remote(&request), (reth.va, reth.rkey));
        assert_eq!(reth.len, request.len);
        Memory::bounds(WRITE_VA, WRITE_KEY, reth, reth.len).map(|_| ())
    }

    fn write(&mut self, reth: &Reth, offset: u32) -> Result<(), Refusal> {
        self.oracle.check_bytes(offset, self.payload);
        let at = Memory::bounds(WRITE_VA, WRITE_KEY, reth, reth.len)? + offset as usize;
        self.memory.written[at..at + self.payload.len()].copy_from_slice(self.payload);
        Ok(())
    }

    fn end_write(&mut self, reth: &Reth) {
        let request = self.oracle.current().request;
        assert!(matches!(request.op, Op::Write { .. }));
        assert_eq!(Oracle::remote(&request), (reth.va, reth.rkey));
        assert_eq!(self.oracle.progress, request.len);
        self.oracle.executed();
    }

    fn check_read(&mut self, reth: &Reth) -> Result<(), Refusal> {
        if reth.len == 0 {
            return Ok(());
        }
        let progress = self.oracle.progress;
        let request = self.oracle.current().request;
        assert!(matches!(request.op, Op::Read { .. }));
        let (va, rkey) = Oracle::remote(&request);
        assert_eq!((reth.va, reth.rkey), (va + u64::from(progress), rkey));
        assert!(reth.len <= request.len - progress);
        self.memory.read(reth)?;
        self.oracle.progress += reth.len;
        if self.oracle.progress == request.len {
            self.oracle.executed();
        }
        Ok(())
    }

    fn atomic(&mut self, atomic: Atomic, eth: &AtomicEth) -> Result<u64, Refusal> {
        let op = self.oracle.current();
        assert_eq!(Oracle::remote(&op.request), (eth.va, eth.rkey));
        let expected = match op.request.op {
            Op::CompareSwap { compare, swap, .. } => (Atomic::CompareSwap, swap, compare),
            Op::FetchAdd { add, .. } => (Atomic::FetchAdd, add, 0),
            _ => panic!("not an atomic"),
        };
        assert_eq!((atomic, eth.swap_add, eth.compare), expected);
        if eth.rkey != ATOMIC_KEY {
            return Err(Refusal::Access);
        }
        assert!(eth.va % 8 == 0);
        let word = &mut self.memory.atomics[((eth.va - ATOMIC_VA) / 8) as usize];
        let found = *word;
        match atomic {
            Atomic::CompareSwap if found == eth.compare => *word = eth.swap_add,
            Atomic::CompareSwap => {}
            Atomic::FetchAdd => *word = found.wrapping_add(eth.swap_add),
        }
        op.found = Some(found);
        self.oracle.executed();
        Ok(found)
    }
}
