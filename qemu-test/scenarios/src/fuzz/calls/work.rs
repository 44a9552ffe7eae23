// SPDX-License-Identifier: GPL-2.0
//! Deferred work: requests that wait for a counter, and those that cancel them.

use super::{super::round::Kind, Worker};
use crate::raw::{File, arg, data};
use kfi::abi;

/// Thresholds that the counters of a round reach, some of them soon.
const THRESHOLDS: [u64; 6] = [0, 1, 2, 10, 1000, u64::MAX];

impl Worker {
    pub(super) fn threshold(&mut self) -> u64 {
        self.rng.pick(&THRESHOLDS)
    }

    pub(super) fn work(&mut self, desk: usize, file: &File) {
        match self.rng.below(8) {
            0 => call!(
                self,
                file,
                arg!(kfabric_cancel_work:
                    triggering_cntr: self.handle(desk, Kind::Cntr), threshold: self.threshold(),
                    id: self.rng.below(200)
                )
            ),
            1 => {
                let one = self.rng.one_in(2);
                let arg = arg!(kfabric_flush_work:
                    domain: self.handle(desk, Kind::Domain),
                    triggering_cntr: match one { true => self.handle(desk, Kind::Cntr), false => 0 }
                );
                let _ = self.call(file, arg);
            }
            _ => self.queue_work(desk, file),
        }
    }

    fn queue_work(&mut self, desk: usize, file: &File) {
        let count = self.rng.pick(&[1, 1, 2, 5]);
        let op_size = size_of::<abi::kfabric_op>() as u32;
        let works: Vec<_> = (0..count).map(|_| self.one_work(desk)).collect();
        let arg = arg!(kfabric_queue_work:
            domain: self.handle(desk, Kind::Domain), works: self.list(&works), count,
            work_size: size_of::<abi::kfabric_work>() as u32, op_size
        );
        let _ = self.call(file, arg);
    }

    /// A request. The operation of a transfer is where other threads write, too.
    fn one_work(&mut self, desk: usize) -> abi::kfabric_work {
        let mut work = data!(kfabric_work:
            threshold: self.threshold(), triggering_cntr: self.handle(desk, Kind::Cntr)
        );
        if self.rng.one_in(3) {
            work.op_type = self
                .rng
                .pick(&[abi::KFABRIC_OP_CNTR_SET, abi::KFABRIC_OP_CNTR_ADD]);
            work.object = self.handle(desk, Kind::Cntr);
            work.value = self.rng.pick(&[1, 1, 2, 100, u64::MAX]);
            return work;
        }
        let op = self.op(desk);
        work.op_type = op.opcode;
        work.object = self.ep(desk);
        if self.rng.one_in(2) {
            work.completion_cntr = self.handle(desk, Kind::Cntr);
        }
        work.op = self.addr(size_of_val(&op) as u64);
        let words: Vec<u64> = crate::raw::bytes_of(&op)
            .as_chunks()
            .0
            .iter()
            .map(|word| u64::from_ne_bytes(*word))
            .collect();
        self.world.scratch.put(work.op, &words);
        work
    }

    /// An alias of an endpoint, recorded as an endpoint.
    pub(super) fn alias(&mut self, desk: usize, file: &File) {
        let arg = arg!(kfabric_ep_alias:
            ep: self.ep(desk),
            tx_op_flags: self.rng.pick(&[0, 0, abi::KFI_COMPLETION, abi::KFI_TRIGGER])
        );
        if let Ok(alias) = self.call(file, arg) {
            self.world.desks[desk].add(Kind::Ep, alias.handle);
        }
    }

    /// Asks for the atomics of a domain, and for the limits of completion counters.
    pub(super) fn capabilities(&mut self, desk: usize, file: &File) {
        if self.rng.one_in(2) {
            let arg = arg!(kfabric_comp_cntr_caps: domain: self.handle(desk, Kind::Domain));
            let _ = self.call(file, arg);
            return;
        }
        let arg = arg!(kfabric_query_atomic:
            domain: self.handle(desk, Kind::Domain), ep_type: self.rng.below(4) as u32,
            opcode: abi::KFABRIC_OP_ATOMIC + self.rng.below(3) as u32,
            datatype: self.rng.below(15) as u32, op: self.rng.below(20) as u32
        );
        let _ = self.call(file, arg);
    }
}
