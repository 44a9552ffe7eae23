// SPDX-License-Identifier: GPL-2.0
//! The program of an endpoint, which posts operations.

use kfi_core::{
    atomic::Function,
    enums::{
        AtomicOp,
        Datatype, //
    },
    limits::EAGER_SIZE,
    matching::{
        unexpected::Search,
        Criteria, //
    },
    op::{
        OpType,
        TaggedRma, //
    },
    rdm::{
        atomic::Call,
        times::READ_SIZE, //
    }, //
};

use super::{
    end::{
        Rx,
        KEY,
        REGION, //
    },
    oracle::{
        Atomic,
        Kind,
        Rma,
        Tagged, //
    },
    Addr,
    Event,
    World,
    MS, //
};

/// Message lengths near the limits.
const LENGTHS: &[u32] = &[
    0,
    1,
    100,
    216,
    217,
    1000,
    EAGER_SIZE as u32 - 1,
    EAGER_SIZE as u32,
    EAGER_SIZE as u32 + 1,
    20_000,
];

/// The number of steps of a program.
const STEPS: u64 = 100;

/// The maximum number of operations in progress of an endpoint.
const OPEN: usize = 100;

impl World {
    /// Executes a step of a program, and schedules the next one.
    pub(crate) fn app(&mut self, addr: Addr) {
        if self.draining {
            self.drain(addr);
            let settled = self.oracle.is_settled();
            let waiting = self.ends.iter().flatten().any(|end| end.waiting() > 0);
            if !settled || waiting {
                self.after(MS, Event::App(addr));
            } else {
                self.cancel_receives(addr);
            }
            return;
        }
        for _ in 0..self.rng.spread(8) {
            self.act(addr);
        }
        // The number of steps is the same, whatever the work time is.
        let pause = self.rng.spread(2 * self.plan.work_time / STEPS);
        self.after(pause, Event::App(addr));
    }

    fn act(&mut self, addr: Addr) {
        let alive = self.ends[addr].as_ref().is_some_and(|end| !end.leaving);
        if !alive {
            return;
        }
        let peer = (addr + 1 + self.rng.index(self.ends.len() - 1)) % self.ends.len();
        let busy = self.ends[addr]
            .as_ref()
            .is_some_and(|end| end.open.len() >= OPEN);
        match self.rng.below(24) {
            0..=8 if !busy => self.send_any(addr, peer),
            9..=16 => {
                if self.rng.below(10) >= self.plan.lazy {
                    self.receive_any(addr, peer);
                }
            }
            17 => self.search_any(addr, peer),
            18 => self.cancel_any(addr),
            19 if !busy && self.rng.one_in(self.plan.rma) => self.rma_any(addr, peer),
            20..=21 if !busy && self.rng.one_in(self.plan.atomics) => {
                self.atomic_any(addr, peer);
            }
            22..=23 if !busy && self.rng.one_in(self.plan.tagged) => self.tagged_any(addr, peer),
            _ => {}
        }
    }

    fn length(&mut self) -> u32 {
        if self.rng.one_in(300) {
            return 2 * READ_SIZE + 5;
        }
        self.rng.pick(LENGTHS)
    }

    fn send_any(&mut self, addr: Addr, peer: Addr) {
        let tag = self.rng.one_in(2).then(|| self.rng.below(3));
        let data = self.rng.one_in(3).then(|| self.rng.next());
        let len = self.length();
        let delivery = self.rng.one_in(4);
        let kind = Kind::Message {
            tag,
            data,
            len,
            delivery,
        };
        let fence = self.rng.one_in(12);
        self.send(addr, peer, kind, fence);
    }

    fn criteria(&mut self, peer: Addr, tagged: bool) -> Criteria<Addr> {
        let src = self.rng.one_in(3).then_some(peer);
        if !tagged {
            return Criteria::plain(src);
        }
        Criteria {
            src,
            tag: self.rng.below(3),
            ignore: self.rng.pick(&[0, 1, 3, u64::MAX]),
        }
    }

    fn new_receive(&mut self, addr: Addr, kind: Kind, room: u32) -> Rx {
        let incarnation = self.ends[addr].as_ref().unwrap().incarnation;
        let id = self.oracle.posted(incarnation, kind);
        Rx { id, room }
    }

    fn receive_any(&mut self, addr: Addr, peer: Addr) {
        let tagged = self.rng.one_in(2);
        let want = self.criteria(peer, tagged);
        let room = if self.rng.one_in(4) {
            self.length()
        } else {
            4 * READ_SIZE
        };
        let rx = self.new_receive(addr, Kind::Receive, room);
        self.receive(addr, tagged, Search::Receive, &want, rx);
    }

    fn search_any(&mut self, addr: Addr, peer: Addr) {
        let want = self.criteria(peer, true);
        let search = self.rng.pick(&[
            Search::Peek,
            Search::PeekClaim,
            Search::PeekDiscard,
            Search::Claim,
            Search::ClaimDiscard,
        ]);
        let rx = self.new_receive(addr, Kind::Search, 4 * READ_SIZE);
        self.receive(addr, true, search, &want, rx);
    }

    fn cancel_any(&mut self, addr: Addr) {
        let open: Vec<u64> = self.ends[addr]
            .as_ref()
            .unwrap()
            .open
            .keys()
            .copied()
            .collect();
        if !open.is_empty() && self.rng.one_in(2) {
            let op = open[self.rng.index(open.len())];
            self.cancel(addr, op);
            return;
        }
        let receive = self.ends[addr].as_ref().unwrap().receives.last().copied();
        if let Some(id) = receive {
            self.cancel_receive(addr, id);
        }
    }

    fn rma_any(&mut self, addr: Addr, peer: Addr) {
        let pieces = (0..self.rng.spread(3))
            .map(|_| {
                let len = self.rng.below(REGION as u64);
                (self.rng.below(REGION as u64 - len + 1), len as u32)
            })
            .collect();
        let write = self.rng.one_in(2);
        self.notes += 1;
        let data = (write && self.rng.one_in(2)).then_some(self.notes);
        let bad = self.rng.one_in(self.plan.bad_keys);
        let key = if bad { KEY + 1 } else { KEY };
        let rma = Rma {
            write,
            key,
            pieces,
            data,
        };
        let fence = self.rng.one_in(12);
        self.transfer(addr, peer, rma, fence);
    }

    fn tagged_any(&mut self, addr: Addr, peer: Addr) {
        let offset = self.rng.pick(&[0, 0, 1, 100, 5 * READ_SIZE]);
        let read = self.rng.one_in(2);
        let tagged = Tagged {
            tag: self.rng.below(3),
            len: self.length(),
            rma: TaggedRma { read, offset },
        };
        let fence = self.rng.one_in(12);
        self.tagged(addr, peer, tagged, fence);
    }

    fn atomic_any(&mut self, addr: Addr, peer: Addr) {
        let (kind, op) = self.rng.pick(&[
            (OpType::Atomic, AtomicOp::Sum),
            (OpType::FetchAtomic, AtomicOp::AtomicRead),
            (OpType::FetchAtomic, AtomicOp::Prod),
            (OpType::CompareAtomic, AtomicOp::Mswap),
        ]);
        let count = self.rng.pick(&[1, 3, 100, 4096]);
        let function = Function::new(kind, op, Datatype::Uint8).unwrap();
        let pieces = 1 + self.rng.index(3);
        let in_send = !self.rng.one_in(3);
        let call = in_send.then(|| Call::new(function, pieces, count).unwrap());
        let bad = self.rng.one_in(self.plan.bad_keys);
        let key = if bad { KEY + 1 } else { KEY };
        let fence = self.rng.one_in(12);
        self.atomic(addr, peer, Atomic { call, key }, fence);
    }

    /// Receives everything.
    fn drain(&mut self, addr: Addr) {
        let Some(end) = self.ends[addr].as_ref().filter(|end| !end.leaving) else {
            return;
        };
        let claims = end.claims.len();
        if !end.drains {
            // A receive that does not accept every message would block those that do.
            self.cancel_receives(addr);
        }
        if let Some(end) = &mut self.ends[addr] {
            end.drains = true;
        }
        for tagged in [false, true] {
            let end = self.ends[addr].as_ref().unwrap();
            if end.posted(tagged) > 0 {
                continue;
            }
            let want = Criteria {
                src: None,
                tag: 0,
                ignore: u64::MAX,
            };
            for _ in 0..4 {
                let rx = self.new_receive(addr, Kind::Receive, 4 * READ_SIZE);
                self.receive(addr, tagged, Search::Receive, &want, rx);
            }
        }
        for _ in 0..claims {
            let rx = self.new_receive(addr, Kind::Receive, 4 * READ_SIZE);
            let want = Criteria::plain(None);
            self.receive(addr, true, Search::Claim, &want, rx);
        }
    }

    fn cancel_receives(&mut self, addr: Addr) {
        let Some(end) = &self.ends[addr] else {
            return;
        };
        let open: Vec<u64> = end.receives.iter().copied().collect();
        for id in open {
            self.cancel_receive(addr, id);
        }
    }
}
