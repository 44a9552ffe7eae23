// SPDX-License-Identifier: GPL-2.0
//! One call of a worker: mostly valid, so that it is executed; sometimes, one to three of its words
//! are replaced.

#![allow(unsafe_code, reason = "structures as bytes, descriptors as numbers")]

/// Makes a call, whatever its result.
macro_rules! call {
    ($worker:ident, $file:ident, $arg:expr) => {{
        let arg = $arg;
        let _ = $worker.call($file, arg);
    }};
}

mod completion;
mod connections;
mod contexts;
mod flows;
mod objects;
mod work;

use super::{
    round::{Kind, PORTS, World},
    trace::Trace,
};
use crate::{
    host::LINK,
    raw::{File, PAGE, arg, data, in_ms, ipv4, text},
    rng::Rng,
};
use kfi::{
    Errno,
    abi::{self, Call},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec},
    mm::{MapFlags, ProtFlags},
};
use std::sync::Arc;

/// Flags of operations.
const OP_FLAGS: [u64; 15] = [
    abi::KFI_COMPLETION,
    abi::KFI_COMPLETION,
    abi::KFI_INJECT,
    abi::KFI_INJECT,
    abi::KFI_INJECT_COMPLETE,
    abi::KFI_TRANSMIT_COMPLETE,
    abi::KFI_DELIVERY_COMPLETE,
    abi::KFI_FENCE,
    abi::KFI_REMOTE_CQ_DATA,
    abi::KFI_MULTI_RECV,
    abi::KFI_PEEK,
    abi::KFI_CLAIM,
    abi::KFI_DISCARD,
    abi::KFI_TRIGGER,
    abi::KFI_TAGGED,
];

/// A thread that makes calls.
pub(super) struct Worker {
    world: Arc<World>,
    rng: Rng,
    trace: Trace,
    /// The place of its lists.
    corner: u64,
}

impl Worker {
    /// A worker with this generator.
    pub(super) fn new(world: Arc<World>, rng: Rng, trace: Trace, thread: u64) -> Self {
        Self {
            corner: world.scratch.corner(thread),
            world,
            rng,
            trace,
        }
    }

    /// Makes calls until the end of the round.
    pub(super) fn run(&mut self) {
        while !self.world.stopped() {
            // The second file is for rare calls: it has no skeleton, and is closed at any time.
            let desk = usize::from(self.rng.one_in(12));
            self.step(desk);
        }
    }

    /// Makes a call.
    fn call<C: Call>(&mut self, file: &File, mut arg: C) -> Result<C, Errno> {
        if self.rng.one_in(6) {
            self.spoil(&mut arg);
        }
        self.trace.begin(C::NAME, bytes_of(&mut arg));
        let result = file.call_mut(&mut arg);
        self.trace
            .end(result.err().map_or(0, |errno| -i64::from(errno.raw())));
        result.map(|()| arg)
    }

    /// Replaces one to three words of a structure.
    fn spoil<C: Call>(&mut self, arg: &mut C) {
        for _ in 0..=self.rng.below(3) {
            let value = if self.rng.one_in(3) {
                self.world.scratch.addr(64, &mut self.rng)
            } else {
                self.rng.edge()
            };
            let bytes = bytes_of(arg);
            let len = if self.rng.one_in(2) { 4 } else { 8 };
            let at = self.rng.below((bytes.len() / 4) as u64) as usize * 4;
            let end = bytes.len().min(at + len);
            bytes[at..end].copy_from_slice(&value.to_ne_bytes()[..end - at]);
        }
    }

    fn handle(&mut self, desk: usize, kind: Kind) -> u32 {
        self.world.desks[desk].handle(kind, &mut self.rng)
    }

    /// An endpoint of any type, or a shared receive context.
    fn ep(&mut self, desk: usize) -> u32 {
        let kinds = [Kind::Ep, Kind::Ep, Kind::Ep, Kind::Ep, Kind::Msg, Kind::Msg];
        let kind = match self.rng.one_in(8) {
            true => Kind::Srx,
            false => self.rng.pick(&kinds),
        };
        self.handle(desk, kind)
    }

    fn addr(&mut self, len: u64) -> u64 {
        self.world.scratch.addr(len, &mut self.rng)
    }

    /// Length of a buffer: mostly short.
    fn len(&mut self) -> u64 {
        match self.rng.below(8) {
            0 => self.rng.edge(),
            1 => self.rng.below(200_000),
            2 => self.rng.below(20_000),
            _ => self.rng.below(600),
        }
    }

    /// A deadline: mostly none, or a short one.
    fn deadline(&mut self) -> u64 {
        match self.rng.below(16) {
            0 => abi::KFABRIC_FOREVER,
            1 => self.rng.edge(),
            2..=5 => in_ms(self.rng.below(8)),
            _ => 0,
        }
    }

    fn wait_obj(&mut self, desk: usize) -> (u32, u32) {
        match self.rng.below(8) {
            0 => (self.rng.below(6) as u32, 0),
            1 => (abi::KFI_WAIT_SET, self.handle(desk, Kind::Wait)),
            2 => (abi::KFI_WAIT_NONE, 0),
            _ => (abi::KFI_WAIT_QUEUE, 0),
        }
    }

    /// An address of an endpoint, of this process or the other, or none.
    fn sockaddr(&mut self) -> abi::kfabric_sockaddr {
        let port = PORTS.start + self.rng.below(PORTS.len() as u64) as u16;
        match self.rng.below(12) {
            0 => abi::kfabric_sockaddr::default(),
            1 => ipv4([10, 0, 0, 1], port),
            2 => data!(kfabric_sockaddr:
                family: 10, port: port.to_be(),
                v6: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]
            ),
            3 => data!(kfabric_sockaddr:
                family: self.rng.edge() as u16, v4: self.rng.next() as u32
            ),
            4 => ipv4([127, 0, 0, 1], 0),
            _ => ipv4([127, 0, 0, 1], port),
        }
    }

    /// An authorization key: mostly none, or that of some others.
    fn auth_key(&mut self) -> [u8; 4] {
        self.rng
            .pick(&[[0; 4], [0; 4], [0; 4], [0; 4], [0, 0, 0, 1], [1, 0, 0, 0]])
    }

    /// Asks for entries, with hints of any size.
    fn getinfo(&mut self, file: &File) {
        let auth_key = self.auth_key();
        let known = size_of::<abi::kfabric_info>() as u32;
        let hints = data!(kfabric_info:
            ep_type: self.rng.below(5) as u32, auth_key_size: self.rng.pick(&[0, 4, 4, 4, 3, 5]),
            auth_key
        );
        let arg = arg!(kfabric_getinfo:
            hints: match self.rng.one_in(3) { true => 0, false => self.list(&[hints]) },
            infos: self.addr(2 * u64::from(known)), count: self.rng.below(4) as u32,
            info_size: self.rng.pick(&[0, 512, known, known, known + 8, 4096, 4104])
        );
        let _ = self.call(file, arg);
    }

    /// A list of `count` pieces of local memory; returns its address.
    fn iov_list(&mut self, count: u64) -> u64 {
        let mut words = Vec::new();
        for _ in 0..count.min(300) {
            let len = self.len();
            words.extend([self.addr(len), len]);
        }
        let at = self.addr(16 * count);
        self.world.scratch.put(at, &words);
        at
    }

    fn op(&mut self, desk: usize) -> abi::kfabric_op {
        let opcode = self.rng.below(9) as u32;
        let mut op = data!(kfabric_op:
            opcode, control: u32::from(self.rng.one_in(4)),
            flags: if self.rng.one_in(2) { 0 } else { self.rng.bits(&OP_FLAGS) },
            context: self.rng.below(8), len: self.len(), peer: self.rng.below(9),
            data: self.rng.next(), tag: self.rng.below(4),
            ignore: self.rng.pick(&[0, 0, 1, 3, u64::MAX]), rma_addr: self.rng.below(5000),
            rma_key: self.rng.below(5)
        );
        if opcode == abi::KFABRIC_OP_RECV || opcode == abi::KFABRIC_OP_TRECV {
            op.peer = self
                .rng
                .pick(&[abi::KFI_ADDR_UNSPEC, abi::KFI_ADDR_UNSPEC, op.peer]);
        }
        if self.rng.one_in(5) {
            // A receive context.
            op.peer |= self.rng.below(4) << (64 - contexts::BITS);
        }
        if opcode >= abi::KFABRIC_OP_ATOMIC {
            self.atomic(desk, &mut op);
        }
        if op.flags & abi::KFI_TRIGGER != 0 {
            op.trigger_event = abi::KFI_TRIGGER_THRESHOLD;
            op.trigger_cntr = self.handle(desk, Kind::Cntr);
            op.threshold = self.threshold();
        }
        op.buf = self.addr(op.len);
        if self.rng.one_in(4) {
            op.iov_count = self.rng.pick(&[1, 2, 3, 17, 256, 257]);
            op.buf = self.iov_list(op.iov_count.into());
        }
        if self.rng.one_in(5) {
            op.mr = self.handle(desk, Kind::Mr);
        }
        if self.rng.one_in(6) {
            op.rma_iov_count = self.rng.pick(&[1, 2, 5, 256, 257]);
            let mut words = Vec::new();
            for _ in 0..op.rma_iov_count {
                words.extend([self.rng.below(5000), self.len(), self.rng.below(5)]);
            }
            op.rma_addr = self.addr(24 * u64::from(op.rma_iov_count));
            self.world.scratch.put(op.rma_addr, &words);
        }
        if self.rng.one_in(12) {
            let word = self.rng.below(size_of_val(&op) as u64 / 8) as usize * 8;
            let value = self.rng.edge().to_ne_bytes();
            // SAFETY: the structure consists of numbers, without padding.
            let bytes = unsafe {
                std::slice::from_raw_parts_mut((&raw mut op).cast::<u8>(), size_of_val(&op))
            };
            bytes[word..word + 8].copy_from_slice(&value);
        }
        op
    }

    /// The additional fields of an atomic.
    fn atomic(&mut self, desk: usize, op: &mut abi::kfabric_op) {
        op.len = self
            .rng
            .pick(&[8, 8, 8, 1, 4, 16, 64, 512, 4096, 4104, op.len]);
        if !self.rng.one_in(6) {
            op.rma_addr &= !7;
        }
        // Often those that connected endpoints have.
        let is_word = self.rng.one_in(2);
        op.datatype = abi::KFI_UINT64 as u16;
        op.op = abi::KFI_SUM as u16;
        if !is_word {
            op.datatype = self.rng.below(12) as u16;
            op.op = self.rng.below(12) as u16;
        }
        if op.opcode == abi::KFABRIC_OP_COMPARE_ATOMIC {
            op.op = abi::KFI_CSWAP as u16;
            if !is_word {
                op.op += self.rng.below(7) as u16;
            }
            op.compare = self.addr(op.len);
            if self.rng.one_in(6) {
                op.compare_iov_count = self.rng.pick(&[1, 2, 3, 256, 257]);
                op.compare = self.iov_list(op.compare_iov_count.into());
            }
        }
        if op.opcode != abi::KFABRIC_OP_ATOMIC {
            op.result = self.addr(op.len);
            if self.rng.one_in(5) {
                op.result_mr = self.handle(desk, Kind::Mr);
            }
            if self.rng.one_in(6) {
                op.result_iov_count = self.rng.pick(&[1, 2, 3, 256, 257]);
                op.result = self.iov_list(op.result_iov_count.into());
            }
        }
        if self.rng.one_in(8) {
            op.datatype = self.rng.below(16) as u16;
            op.op = self.rng.below(20) as u16;
        }
    }

    /// Puts a list of structures into memory that other threads mostly leave alone; returns its
    /// address.
    fn list<T: Copy>(&mut self, list: &[T]) -> u64 {
        let words: Vec<u64> = list
            .iter()
            .flat_map(crate::raw::bytes_of)
            .collect::<Vec<u8>>()
            .chunks_exact(8)
            .map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()))
            .collect();
        let at = if self.rng.one_in(4) {
            self.addr(8 * words.len() as u64)
        } else {
            self.corner
        };
        self.world.scratch.put(at, &words);
        at
    }

    fn post(&mut self, desk: usize, file: &File) {
        let count = self.rng.pick(&[1, 1, 1, 2, 3, 8, 40]);
        let ops: Vec<abi::kfabric_op> = (0..count).map(|_| self.op(desk)).collect();
        let ops_at = self.list(&ops);
        let arg = arg!(kfabric_post:
            ep: self.ep(desk), ops: ops_at, count: count as u32,
            op_size: size_of::<abi::kfabric_op>() as u32
        );
        let _ = self.call(file, arg);
    }

    fn descriptors(&mut self) {
        let take = self.rng.one_in(6);
        let Some(fd) = self.world.fd(take, &mut self.rng) else {
            return;
        };
        let what = self.rng.below(4);
        self.trace.begin("descriptor", &what.to_ne_bytes());
        let result = match what {
            0 => rustix::io::read(&*fd, &mut [0; 24][..self.rng.pick(&[7, 8, 16, 24])]),
            1 => {
                let word = self.rng.pick(&[0, 1, 5, 1000, u64::MAX]).to_ne_bytes();
                rustix::io::write(&*fd, &word[..self.rng.pick(&[8, 8, 8, 4])])
            }
            2 => {
                let time = Timespec {
                    tv_sec: 0,
                    tv_nsec: self.rng.below(3_000_000) as i64,
                };
                rustix::event::poll(&mut [PollFd::new(&*fd, PollFlags::IN)], Some(&time))
            }
            _ => {
                let flags = self
                    .rng
                    .pick(&[rustix::fs::OFlags::empty(), rustix::fs::OFlags::NONBLOCK]);
                rustix::fs::fcntl_setfl(&*fd, flags).map(|()| 0)
            }
        };
        self.trace.end(match result {
            Ok(value) => value as i64,
            Err(errno) => -i64::from(errno.raw_os_error()),
        });
    }

    fn mapping(&mut self, desk: usize, file: &File) {
        let kind = self
            .rng
            .pick(&[Kind::Cq, Kind::Cq, Kind::Cntr, Kind::CompCntr]);
        let handle = u64::from(self.handle(desk, kind));
        let mut offset = handle << 24;
        if self.rng.one_in(8) {
            offset = self.rng.edge() & !(PAGE as u64 - 1) & (u64::MAX >> 1);
        }
        let pages = self.rng.pick(&[1, 1, 1, 2, 3, 64]);
        let (read, write) = (ProtFlags::READ, ProtFlags::READ | ProtFlags::WRITE);
        let prot = self.rng.pick(&[write, write, read, read | ProtFlags::EXEC]);
        let flags = self
            .rng
            .pick(&[MapFlags::SHARED, MapFlags::SHARED, MapFlags::PRIVATE]);
        self.trace.begin("mmap", &offset.to_ne_bytes());
        let result = self.world.map(file, offset, pages * PAGE, prot, flags);
        self.trace.end(
            result
                .err()
                .map_or(0, |errno| -i64::from(errno.raw_os_error())),
        );
    }

    /// Makes any call of the interface, with a structure of handles, addresses and small numbers:
    /// a call for which nothing else here makes a good argument is tried too.
    fn any(&mut self, desk: usize, file: &File) {
        let (name, request, size) = self.rng.pick(abi::CALLS);
        if name == "KFABRIC_IOC_GETWAIT" {
            // Its descriptor would stay open.
            return;
        }
        let mut words = vec![0u64; size / 8];
        for word in &mut words {
            *word = match self.rng.below(8) {
                0 | 1 => self.addr(64),
                2 | 3 => u64::from(self.any_handle(desk)) | self.rng.below(3) << 32,
                4 => u64::from(self.any_handle(desk)) << 32 | self.rng.below(3),
                5 => self.rng.edge(),
                _ => self.rng.below(8),
            };
        }
        words[0] = words[0] << 32 | size as u64;
        let addr = self.corner;
        self.world.scratch.put(addr, &words);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.trace.begin(name, &bytes);
        let result = file.call_raw(request, addr);
        self.trace
            .end(result.err().map_or(0, |errno| -i64::from(errno.raw())));
    }

    fn any_handle(&mut self, desk: usize) -> u32 {
        let kind = self.rng.pick(&[
            Kind::Fabric,
            Kind::Domain,
            Kind::Eq,
            Kind::Av,
            Kind::Mr,
            Kind::Cq,
            Kind::Cntr,
            Kind::CompCntr,
            Kind::Wait,
            Kind::Poll,
            Kind::Ep,
            Kind::Msg,
            Kind::Pep,
            Kind::Counters,
            Kind::Flow,
            Kind::Sep,
            Kind::Stx,
            Kind::Srx,
        ]);
        self.handle(desk, kind)
    }

    fn rare(&mut self, desk: usize, file: &File) {
        match self.rng.below(16) {
            14 => self.alias(desk, file),
            15 => self.capabilities(desk, file),
            0 => {
                let _ = self.call(file, arg!(kfabric_query));
            }
            1 | 2 => call!(
                self,
                file,
                arg!(kfabric_stat:
                    object_class: self.rng.pick(&[3, 14, 15, 16, 368, 369]),
                    after: self.rng.below(1000)
                )
            ),
            3 => call!(
                self,
                file,
                arg!(kfabric_link_get: after: self.rng.below(3) as u32)
            ),
            4 => self.getinfo(file),
            5 if self.world.process == 0 => {
                call!(self, file, arg!(kfabric_link_del: name: text(LINK)))
            }
            6 if self.world.process == 0 => call!(
                self,
                file,
                arg!(kfabric_link_add: name: text(LINK), netdev: text("lo"))
            ),
            7 => self.world.desks[1].replace(),
            8 if self.rng.one_in(8) => self.world.desks[desk].replace(),
            9 => {
                let _ = self.call(file, arg!(kfabric_nop));
            }
            10 | 11 => self.any(desk, file),
            _ => {
                // Any number, any size, any address.
                let number = self.rng.pick(&[0xbb00, 0xbb00, 0x1200]) | self.rng.below(256) as u32;
                let request = number | (self.rng.edge() as u32) << 16;
                let addr = self.addr(256);
                let size = self.rng.edge();
                self.world.scratch.put(addr, &[size]);
                self.trace.begin("ioctl", &u64::from(request).to_ne_bytes());
                let result = file.call_raw(request, addr);
                self.trace
                    .end(result.err().map_or(0, |errno| -i64::from(errno.raw())));
            }
        }
    }

    fn step(&mut self, desk: usize) {
        let file = self.world.desks[desk].file();
        let file = &*file;
        match self.rng.below(112) {
            0..=33 => self.post(desk, file),
            105..=111 => self.contexts(desk, file),
            100..=104 => self.work(desk, file),
            34..=36 => self.flows(desk, file),
            37..=42 => self.connections(desk, file),
            43..=55 => self.queues(desk, file),
            56..=62 => self.counters(desk, file),
            63..=66 => self.addresses(desk, file),
            67..=73 => self.endpoint(desk, file),
            74..=77 => self.waiting(desk, file),
            78..=81 => self.descriptors(),
            82..=83 => self.mapping(desk, file),
            84..=89 => self.make(desk, file),
            90..=93 => self.bind(desk, file),
            94..=97 => self.close(desk, file),
            _ => self.rare(desk, file),
        }
    }
}

/// Every other bit of `all`.
const fn self_bits(all: u64) -> u64 {
    all & 0x5555_5555_5555_5555
}

/// A structure of the interface as bytes.
fn bytes_of<C: Call>(arg: &mut C) -> &mut [u8] {
    // SAFETY: structures of the interface consist of numbers, without padding, so any bytes are
    // one.
    unsafe { std::slice::from_raw_parts_mut((&raw mut *arg).cast::<u8>(), size_of::<C>()) }
}
