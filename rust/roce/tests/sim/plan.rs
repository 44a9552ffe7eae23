// SPDX-License-Identifier: GPL-2.0
//! The choices of a seed: attributes, network, work.

use super::{
    net::Faults,
    rng::Rng,
    wire::BLOCK, //
};
use kfi_roce::{
    headers::{
        RnrTimer,
        SendEnd, //
    },
    mtu::PathMtu,
    psn::Psn,
    rc::{
        AckPolicy,
        AckTimeout,
        Op,
        WorkRequest, //
    }, //
};

/// The regions of each host.
pub const READ_KEY: u32 = 0x111;
pub const READ_VA: u64 = 0x7f00_0010_0003;
pub const WRITE_KEY: u32 = 0x222;
pub const WRITE_VA: u64 = 0x7f00_0020_0001;
pub const ATOMIC_KEY: u32 = 0x333;
pub const ATOMIC_VA: u64 = 0x30_0000;
pub const ATOMICS: u64 = 4;

/// The failure of a run, other than network faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// No failure: everything succeeds.
    Healthy,
    /// End 0 uses a wrong key, or an address that is not aligned, in this operation.
    BadRequest(usize),
    /// The receive for this operation of end 0 is too short.
    ShortReceive(usize),
    /// From this time on the network loses everything.
    Cut(u64),
    /// End 1 never posts enough receives, and the RNR retries of end 0 are limited.
    NeverReady,
    /// End 0 goes to ERR at this time.
    Modify(u64),
    /// The memory of this operation of end 0 is not accessible.
    LocalFault(usize),
    /// End 1 closes the region that end 0 reads, at this time.
    Revoke(u64),
}

/// One end.
#[derive(Clone, Debug)]
pub struct End {
    /// The work with the times of posting.
    pub work: Vec<(u64, WorkRequest)>,
    /// The numbers of receives with the times of posting.
    pub receives: Vec<(u64, u32)>,
    pub psn: Psn,
    pub max_rd_atomic: u8,
    pub dest_slots: usize,
    pub timeout: AckTimeout,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub rnr_timer: RnrTimer,
    pub slots: usize,
    pub window: u32,
    pub policy: AckPolicy,
    /// The chance that the local stack refuses a packet, in 10,000.
    pub refuses: u32,
    /// The maximum delay between an arrival and the run of the worker.
    pub latency: u64,
    /// The maximum number of packets per run of the worker.
    pub budget: u32,
    /// The times at which the send queue is drained and restarted.
    pub drain: Option<(u64, u64)>,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub kind: Kind,
    pub mtu: PathMtu,
    pub faults: Faults,
    pub ends: [End; 2],
}

impl Plan {
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x6b66_6162_7269_6300);
        let mtu = rng.pick(&PathMtu::ALL);
        let clean = rng.chance(2_000);
        let chance = |rng: &mut Rng, most: u64| {
            if clean || rng.chance(5_000) {
                0
            } else {
                rng.range(0, most) as u32
            }
        };
        let faults = Faults {
            loss: chance(&mut rng, 800),
            duplicate: chance(&mut rng, 1_000),
            reorder: chance(&mut rng, 1_500),
            corrupt: chance(&mut rng, 300),
            burst: rng.pick(&[1, 1, 2, 5]),
            delay: rng.range(500, 200_000),
            jitter: rng.pick(&[0, 1_000, 50_000]),
            late: rng.pick(&[5_000, 100_000, 1_000_000]),
            per_byte: rng.pick(&[0, 0, 1, 8]),
            queue: rng.pick(&[8, 32, 1_024]),
        };
        let mut plan = Self {
            seed,
            kind: Kind::Healthy,
            mtu,
            faults,
            ends: [End::new(&mut rng, mtu), End::new(&mut rng, mtu)],
        };
        let [a, b] = &mut plan.ends;
        // Each end remembers as many requests as the other may have outstanding.
        a.max_rd_atomic = a.max_rd_atomic.min(b.dest_slots as u8);
        b.max_rd_atomic = b.max_rd_atomic.min(a.dest_slots as u8);
        a.receives = receives(&mut rng, &b.work);
        b.receives = receives(&mut rng, &a.work);
        plan.choose_kind(&mut rng);
        plan
    }

    /// Returns a plan in which end 0 executes `count` operations `op` of `len` bytes as fast as it
    /// can, over a network of 1 Gbit/s with a round trip of 100 us.
    pub fn stream(seed: u64, mtu: PathMtu, op: Op, len: u32, count: u64, loss: u32) -> Self {
        let mut rng = Rng::new(seed);
        let faults = Faults {
            loss,
            duplicate: 0,
            reorder: 0,
            corrupt: 0,
            burst: 1,
            delay: 50_000,
            jitter: 0,
            late: 0,
            per_byte: 8,
            queue: 1_024,
        };
        let end = |rng: &mut Rng| End {
            work: Vec::new(),
            receives: Vec::new(),
            max_rd_atomic: 16,
            dest_slots: 16,
            timeout: AckTimeout::from_code(14).unwrap(),
            slots: 128,
            window: 256,
            policy: AckPolicy::AT_ONCE,
            refuses: 0,
            latency: 0,
            budget: 1_024,
            drain: None,
            ..End::new(rng, mtu)
        };
        let mut ends = [end(&mut rng), end(&mut rng)];
        ends[0].work = (0..count)
            .map(|wr_id| {
                let request = WorkRequest {
                    wr_id,
                    op,
                    len,
                    fence: false,
                    solicited: false,
                    signaled: true,
                };
                (0, request)
            })
            .collect();
        ends[1].receives = vec![(0, count as u32)];
        Self {
            seed,
            kind: Kind::Healthy,
            mtu,
            faults,
            ends,
        }
    }

    /// Chooses a failure in one run of three.
    fn choose_kind(&mut self, rng: &mut Rng) {
        if rng.chance(6_700) || self.ends[0].work.is_empty() {
            return;
        }
        let last = self.ends[0].work.last().map_or(0, |(time, _)| *time);
        let ops = self.ends[0].work.len() as u64;
        let any = rng.below(ops) as usize;
        let when = rng.range(0, last + 500_000);
        // Every failure must be detected by a timeout or by a limit of retries.
        for end in &mut self.ends {
            if end.timeout.ns().is_none() {
                end.timeout = AckTimeout::from_code(12).unwrap();
            }
            end.drain = None;
        }
        let request = self.ends[0].work[any].1;
        self.kind = match rng.below(7) {
            0 => match request.op {
                Op::Send(_) => return,
                _ if request.len == 0 => return,
                _ => {
                    self.spoil(any, rng);
                    Kind::BadRequest(any)
                }
            },
            1 if matches!(request.op, Op::Send(_)) && request.len > 0 => Kind::ShortReceive(any),
            1 | 2 => Kind::Cut(when),
            3 => {
                let [a, b] = &mut self.ends;
                if b.receives.pop().is_none() {
                    return;
                }
                a.rnr_retry = rng.range(0, 6) as u8;
                Kind::NeverReady
            }
            4 => Kind::Modify(when),
            5 => Kind::LocalFault(any),
            _ => Kind::Revoke(when),
        };
    }

    fn spoil(&mut self, at: usize, rng: &mut Rng) {
        match &mut self.ends[0].work[at].1.op {
            Op::CompareSwap { va, .. } | Op::FetchAdd { va, .. } if rng.chance(5_000) => *va += 4,
            Op::Write { va, .. } | Op::Read { va, .. } if rng.chance(3_000) => *va -= 1 << 40,
            Op::Write { rkey, .. }
            | Op::Read { rkey, .. }
            | Op::CompareSwap { rkey, .. }
            | Op::FetchAdd { rkey, .. } => *rkey = 0x444,
            Op::Send(_) => {}
        }
    }
}

impl End {
    fn new(rng: &mut Rng, mtu: PathMtu) -> Self {
        let dest_slots = rng.pick(&[1, 1, 2, 4, 16]);
        let max_rd_atomic = rng.pick(&[1, 2, 4, 16]);
        Self {
            work: work(rng, mtu),
            receives: Vec::new(),
            psn: Psn::new(match rng.below(3) {
                0 => rng.u64() as u32,
                1 => Psn::MASK - rng.below(100) as u32,
                _ => Psn::HALF - rng.below(100) as u32,
            }),
            max_rd_atomic,
            dest_slots,
            timeout: AckTimeout::from_code(rng.pick(&[0, 13, 14, 15])).unwrap(),
            retry_cnt: 7,
            rnr_retry: 7,
            rnr_timer: RnrTimer::from_code(rng.range(1, 14) as u8).unwrap(),
            slots: rng.pick(&[1, 2, 5, 16, 64]),
            window: rng.pick(&[1, 2, 3, 16, 256, 256, 256]),
            policy: rng.pick(&[
                AckPolicy::AT_ONCE,
                AckPolicy::AT_ONCE,
                AckPolicy {
                    delay: 50_000,
                    requests: 8,
                },
                AckPolicy {
                    delay: 500_000,
                    requests: 2,
                },
            ]),
            refuses: if rng.chance(8_000) { 0 } else { 1_000 },
            latency: rng.pick(&[0, 0, 5_000, 100_000]),
            budget: rng.pick(&[1, 4, 16, 64, 256]),
            drain: rng.chance(1_000).then(|| {
                let from = rng.below(1_000_000);
                (from, from + rng.range(1, 3_000_000))
            }),
        }
    }
}

fn len(rng: &mut Rng, mtu: u64) -> u32 {
    let len = match rng.below(12) {
        0 => 0,
        1 | 2 => rng.range(1, 16),
        3 => mtu - 1,
        4 => mtu,
        5 => mtu + 1,
        6 => mtu * rng.range(2, 6),
        7 => mtu * rng.range(2, 6) + rng.range(1, mtu - 1),
        8 | 9 => rng.range(1, mtu),
        10 => rng.range(1, 4 * mtu),
        _ => rng.range(1, 64 * mtu),
    };
    len.min(48 << 10) as u32
}

fn work(rng: &mut Rng, mtu: PathMtu) -> Vec<(u64, WorkRequest)> {
    let mut work = Vec::new();
    let (mut time, mut total) = (0, 0);
    for wr_id in 0..rng.pick(&[0, 1, 3, 8, 20, 40]) {
        if rng.chance(4_000) {
            time += rng.pick(&[1_000, 50_000, 300_000, 3_000_000]);
        }
        let len = len(rng, u64::from(mtu.bytes()));
        total += len;
        if total > 128 << 10 {
            break;
        }
        let room = BLOCK as u64 - u64::from(len);
        let imm = rng.u64() as u32;
        let op = match rng.below(10) {
            0 | 1 => Op::Send(SendEnd::Plain),
            2 => Op::Send(SendEnd::Imm(imm)),
            3 => Op::Send(SendEnd::Invalidate(imm)),
            4 | 5 => Op::Write {
                va: WRITE_VA + rng.below(room),
                rkey: WRITE_KEY,
                imm: rng.chance(3_000).then_some(imm),
            },
            6 | 7 => Op::Read {
                va: READ_VA + rng.below(room),
                rkey: READ_KEY,
            },
            8 => Op::CompareSwap {
                va: ATOMIC_VA + 8 * rng.below(ATOMICS),
                rkey: ATOMIC_KEY,
                compare: rng.below(3),
                swap: rng.below(3),
            },
            _ => Op::FetchAdd {
                va: ATOMIC_VA + 8 * rng.below(ATOMICS),
                rkey: ATOMIC_KEY,
                add: rng.pick(&[1, 2, u64::MAX, 1 << 63]),
            },
        };
        let request = WorkRequest {
            wr_id,
            op,
            len: if op.is_atomic() { 8 } else { len },
            fence: rng.chance(1_000),
            solicited: rng.chance(2_000),
            signaled: rng.chance(7_000),
        };
        work.push((time, request));
    }
    work
}

/// Returns the times at which receives are posted for the peer's work. Eventually there are enough.
fn receives(rng: &mut Rng, work: &[(u64, WorkRequest)]) -> Vec<(u64, u32)> {
    let takes = |(_, request): &&(u64, WorkRequest)| request.op.takes_receive();
    let mut left = work.iter().filter(takes).count() as u32;
    let mut receives = Vec::new();
    let mut time = 0;
    while left > 0 {
        let count = if rng.chance(7_000) {
            left
        } else {
            rng.range(1, u64::from(left)) as u32
        };
        receives.push((time, count));
        left -= count;
        time += rng.pick(&[10_000, 500_000, 4_000_000]);
    }
    receives
}
