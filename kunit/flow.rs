// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_flow`: flows at a QP, and their changes while packets arrive.

use super::{
    super::{
        kunit_wire_pair::{
            at,
            buffer,
            built,
            End,
            Pair,
            Recorder,
            ONE,
            QKEY,
            SIX,
            THREE,
            TWO, //
        },
        packet,
        qp::{
            ud::Destination,
            Qp,
            Ud, //
        },
        socket::AddrPair,
        Path,
        Stat, //
    },
    Counted,
    FlowTable,
    FlowValues, //
};
use crate::{
    kunit::helpers::{
        eventually,
        rx_skb,
        thread,
        user,
        Count, //
    },
    mem::{
        Budget,
        Part,
        Source, //
    },
    shim::sched::cond_resched, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        Arc, //
    }, //
};
use kfi_core::{
    flow::{
        Description,
        Family,
        Fields,
        Point,
        Rule, //
    },
    limits::MAX_FLOWS, //
};

const NONE: Fields = Fields {
    src_ip: [0; 16],
    dest_ip: [0; 16],
    src_port: 0,
    dest_qp: 0,
    src_qp: 0,
    opcode: 0,
};

const PACKETS: Point = Point {
    description: Description::Packets,
    index: 0,
};

const BYTES: Point = Point {
    description: Description::Bytes,
    index: 1,
};

fn rule(family: Option<Family>, value: Fields, mask: Fields) -> Result<Rule> {
    Rule::new(family, &value, &mask).map_err(|_| EINVAL)
}

/// A rule that every packet matches.
fn any() -> Result<Rule> {
    rule(None, NONE, NONE)
}

/// A rule that no datagram matches.
fn never() -> Result<Rule> {
    let value = Fields { opcode: 1, ..NONE };
    let mask = Fields {
        opcode: 0xff,
        ..NONE
    };
    rule(None, value, mask)
}

/// A flow that counts packets at index 0 and bytes at index 1.
struct Flow {
    counted: Arc<Counted>,
    values: Arc<FlowValues>,
}

impl Flow {
    fn new(owner: &Budget) -> Result<Self> {
        let values = FlowValues::new(2, owner)?;
        let counted = Counted::new()?;
        counted.set_points([(&values, PACKETS), (&values, BYTES)].into_iter(), owner)?;
        Ok(Self { counted, values })
    }

    fn packets(&self) -> u64 {
        self.values.get(0)
    }
}

/// A datagram of 100 bytes that is counted as if it had arrived.
struct Arrived {
    bytes: KVec<u8>,
}

impl Arrived {
    fn new() -> Result<Self> {
        let pair = Pair::new(ONE, TWO)?;
        let skb = built(&pair.path, &pair.a, pair.b.qp.number(), 100)?;
        let mut bytes = KVec::new();
        bytes.extend_from_slice(skb.bytes(), GFP_KERNEL)?;
        Ok(Self { bytes })
    }

    /// Counts it. Returns its length.
    fn count(&self, table: &FlowTable) -> Result<u64> {
        let skb = rx_skb(&self.bytes, 20, 4096, 1000)?;
        let packet = packet::parse(&skb).map_err(|_| EINVAL)?;
        let addrs = AddrPair::of(skb.ip()).ok_or(EINVAL)?;
        table.count(&packet, &addrs, &skb);
        Ok(packet.len() as u64)
    }
}

/// Two QPs, the second of which has flows, and the path to it.
struct Wire {
    pair: Pair,
    got: Arc<Recorder>,
    qp: Arc<Qp<Ud>>,
    flows: Arc<FlowTable>,
    owner: Budget,
}

impl Wire {
    fn new() -> Result<Self> {
        let pair = Pair::new(ONE, TWO)?;
        let owner = Budget::of_program()?;
        let flows = FlowTable::new(&owner)?;
        let got = Recorder::new()?;
        let addr = at(TWO, 0)?;
        let table = Some(flows.clone());
        let qp = Qp::datagrams(&pair.link.0, &addr, QKEY, table, &owner, got.clone())?;
        Ok(Self {
            pair,
            got,
            qp,
            flows,
            owner,
        })
    }

    fn send(&self, payload: usize, qkey: u32) -> Result {
        let to = Destination {
            qp: self.qp.number(),
            qkey,
            imm: None,
            solicited: false,
        };
        let source = Source::Mem(buffer(payload)?);
        self.pair.a.qp.send(&self.pair.path, &to, &source)
    }

    fn stat(&self, stat: Stat) -> u64 {
        self.qp.stats().get(stat)
    }

    /// Sends a datagram to the QP after `change` has modified it.
    fn send_changed(&self, change: impl FnOnce(&mut [u8])) -> Result {
        let mut skb = built(&self.pair.path, &self.pair.a, self.qp.number(), 64)?;
        change(skb.bytes_mut());
        self.pair.path.send(skb)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.qp.close();
    }
}

#[kunit_tests(kfabric_flow)]
mod tests {
    use super::*;

    #[test]
    fn packets_belong_to_flows_in_order() -> Result {
        let owner = Budget::of_program()?;
        let table = FlowTable::new(&owner)?;
        let arrived = Arrived::new()?;
        arrived.count(&table)?;
        let flows = [Flow::new(&owner)?, Flow::new(&owner)?, Flow::new(&owner)?];
        let counts = || flows.each_ref().map(Flow::packets);
        let [last, first, middle] = &flows;
        table.insert(any()?, 9, false, &last.counted)?;
        let bytes = arrived.count(&table)?;
        ensure_eq!(counts(), [1, 0, 0]);
        ensure_eq!(last.values.get(1), bytes);
        table.insert(never()?, 0, false, &first.counted)?;
        table.insert(any()?, 5, true, &middle.counted)?;
        arrived.count(&table)?;
        ensure_eq!(counts(), [2, 0, 1]);
        // Of equal priority: after the one that is there, which lets packets continue.
        table.remove(&last.counted);
        let later = Flow::new(&owner)?;
        table.insert(any()?, 5, false, &later.counted)?;
        arrived.count(&table)?;
        ensure_eq!((counts(), later.packets()), ([2, 0, 2], 1));
        table.remove(&later.counted);
        table.remove(&middle.counted);
        // It is not in the table any more.
        table.remove(&last.counted);
        arrived.count(&table)?;
        ensure_eq!(counts(), [2, 0, 2]);
        ensure_eq!(table.compared(), 1);
        table.remove(&first.counted);
        ensure_eq!(table.compared(), 0);
        Ok(())
    }

    #[test]
    fn points_of_one_index_add_up() -> Result {
        let owner = Budget::of_program()?;
        let table = FlowTable::new(&owner)?;
        let arrived = Arrived::new()?;
        let (one, other) = (FlowValues::new(2, &owner)?, FlowValues::new(1, &owner)?);
        let counted = Counted::new()?;
        let points = [
            (&one, PACKETS),
            (&other, PACKETS),
            (&one, PACKETS),
            (&one, BYTES),
            (&one, BYTES),
        ];
        counted.set_points(points.into_iter(), &owner)?;
        table.insert(any()?, 0, false, &counted)?;
        let bytes = arrived.count(&table)?;
        ensure_eq!((one.get(0), one.get(1)), (2, 2 * bytes));
        ensure_eq!(other.get(0), 1);
        ensure_eq!(counted.totals(), (1, bytes));
        // Replaced as a whole.
        counted.set_points([(&other, PACKETS)].into_iter(), &owner)?;
        arrived.count(&table)?;
        ensure_eq!((one.get(0), other.get(0)), (2, 2));
        table.remove(&counted);
        Ok(())
    }

    #[test]
    fn the_number_of_flows_is_limited() -> Result {
        let owner = Budget::of_program()?;
        let table = FlowTable::new(&owner)?;
        let mut flows = KVec::new();
        for _ in 0..MAX_FLOWS {
            let counted = Counted::new()?;
            table.insert(never()?, 0, false, &counted)?;
            flows.push(counted, GFP_KERNEL)?;
        }
        let more = Counted::new()?;
        ensure!(table.insert(any()?, 0, false, &more) == Err(ENOSPC));
        let arrived = Arrived::new()?;
        arrived.count(&table)?;
        ensure_eq!(more.totals(), (0, 0));
        for counted in &flows {
            table.remove(counted);
        }
        table.insert(any()?, 0, false, &more)?;
        arrived.count(&table)?;
        ensure_eq!(more.totals().0, 1);
        table.remove(&more);
        Ok(())
    }

    /// Without memory a flow cannot be made, but it can be destroyed: then it matches nothing.
    #[test]
    fn a_flow_is_destroyed_without_memory() -> Result {
        const LIMIT: u64 = 1 << 16;
        let owner = Budget::of(user(70), Some(LIMIT))?;
        let charged = || owner.charged(Part::Inboxes).0;
        let table = FlowTable::new(&owner)?;
        let arrived = Arrived::new()?;
        let (first, second) = (Counted::new()?, Counted::new()?);
        table.insert(any()?, 0, false, &first)?;
        table.insert(any()?, 1, false, &second)?;
        arrived.count(&table)?;
        ensure_eq!((first.totals().0, second.totals().0), (1, 0));
        // The arrays that were replaced are freed later.
        let settled = charged();
        ensure!(eventually(|| charged() < settled));
        let hog = owner.take(LIMIT - charged())?;
        let third = Counted::new()?;
        ensure!(table.insert(any()?, 0, false, &third) == Err(ENOMEM));
        table.remove(&first);
        ensure_eq!(table.compared(), 2);
        arrived.count(&table)?;
        ensure_eq!((first.totals().0, second.totals().0), (1, 1));
        drop(hog);
        // The next change removes its rule.
        table.insert(never()?, 0, false, &third)?;
        ensure_eq!(table.compared(), 2);
        table.remove(&third);
        table.remove(&second);
        ensure_eq!(table.compared(), 0);
        drop(table);
        ensure!(eventually(|| charged() == 0));
        Ok(())
    }

    #[test]
    fn packets_are_counted_when_they_arrive() -> Result {
        let wire = Wire::new()?;
        let flow = Flow::new(&wire.owner)?;
        wire.send(64, QKEY)?;
        ensure!(eventually(|| wire.got.count() == 1));
        // The statistics of the link follow at the end of a batch of packets.
        ensure!(eventually(|| wire.stat(Stat::RxBytes) != 0));
        // Before there was a flow.
        ensure_eq!(flow.packets(), 0);
        wire.flows.insert(any()?, 0, false, &flow.counted)?;
        let bytes = wire.stat(Stat::RxBytes);
        wire.send(64, QKEY)?;
        ensure!(eventually(|| wire.got.count() == 2));
        ensure_eq!(flow.packets(), 1);
        let counted = flow.values.get(1);
        ensure!(eventually(|| wire.stat(Stat::RxBytes) - bytes == counted));
        // Without a receive, and with another Q key.
        wire.got.takes.store(false, Release);
        wire.send(64, QKEY)?;
        wire.send(64, QKEY ^ 1)?;
        ensure!(eventually(|| wire.stat(Stat::DropNoReceive) == 1));
        ensure!(eventually(|| wire.stat(Stat::DropQkey) == 1));
        ensure_eq!(flow.packets(), 3);
        // A wrong ICRC, and another address.
        wire.send_changed(|packet| {
            if let Some(last) = packet.last_mut() {
                *last ^= 1;
            }
        })?;
        ensure!(eventually(|| wire.stat(Stat::DropIcrc) == 1));
        let stray = Path::new(&wire.pair.link.0, ONE, THREE)?;
        stray.send(built(&stray, &wire.pair.a, wire.qp.number(), 64)?)?;
        ensure!(eventually(|| wire.stat(Stat::DropDestination) == 1));
        ensure_eq!(flow.packets(), 3);
        wire.flows.remove(&flow.counted);
        wire.send(64, QKEY)?;
        ensure!(eventually(|| wire.stat(Stat::DropNoReceive) == 2));
        ensure_eq!(flow.packets(), 3);
        Ok(())
    }

    #[test]
    fn ipv6_packets_have_their_own_flows() -> Result {
        let pair = Pair::new(SIX, SIX)?;
        let owner = Budget::of_program()?;
        let table = FlowTable::new(&owner)?;
        let got = Recorder::new()?;
        let addr = at(SIX, 0)?;
        let given = Some(table.clone());
        let qp = Qp::datagrams(&pair.link.0, &addr, QKEY, given, &owner, got.clone())?;
        let (four, six) = (Flow::new(&owner)?, Flow::new(&owner)?);
        let mut ip = [0; 16];
        ip[15] = 1;
        let value = Fields { src_ip: ip, ..NONE };
        let mask = Fields {
            src_ip: [0xff; 16],
            ..NONE
        };
        table.insert(rule(Some(Family::V4), NONE, NONE)?, 0, false, &four.counted)?;
        table.insert(rule(Some(Family::V6), value, mask)?, 1, false, &six.counted)?;
        let to = Destination {
            qp: qp.number(),
            ..End::destination(&pair.b)
        };
        pair.a.qp.send(&pair.path, &to, &Source::Mem(buffer(10)?))?;
        let arrived = eventually(|| got.count() == 1);
        qp.close();
        ensure!(arrived);
        ensure_eq!((four.packets(), six.packets()), (0, 1));
        Ok(())
    }

    /// Flows come and go before and after a flow that stays, which counts each packet once.
    #[test]
    fn a_flow_counts_each_packet_while_others_change() -> Result {
        const SENT: u32 = 2_000;
        let wire = Arc::new(Wire::new()?, GFP_KERNEL)?;
        let flow = Flow::new(&wire.owner)?;
        wire.flows.insert(any()?, 5, true, &flow.counted)?;
        let stop = Arc::new(Atomic::new(false), GFP_KERNEL)?;
        let (changes, failed) = (Count::new()?, Count::new()?);
        let changer = {
            let (wire, stop) = (wire.clone(), stop.clone());
            let (changes, failed) = (changes.clone(), failed.clone());
            thread(move || {
                let change = || -> Result {
                    let others = [Flow::new(&wire.owner)?, Flow::new(&wire.owner)?];
                    let [before, after] = &others;
                    wire.flows.insert(any()?, 0, true, &before.counted)?;
                    wire.flows.insert(any()?, 9, true, &after.counted)?;
                    let [before_totals, after_totals] = [before, after].map(|f| f.counted.totals());
                    wire.flows.remove(&before.counted);
                    wire.flows.remove(&after.counted);
                    // Values only grow.
                    let grown = before.counted.totals() >= before_totals
                        && after.counted.totals() >= after_totals;
                    grown.then_some(()).ok_or(EIO)
                };
                while !stop.load(Acquire) {
                    failed.add(change().is_err().into());
                    changes.add(1);
                    cond_resched();
                }
            })?
        };
        let before = wire.stat(Stat::RxPackets);
        for _ in 0..SENT {
            wire.send(16, QKEY)?;
            cond_resched();
        }
        let dropped = || wire.stat(Stat::DropInboxFull) + wire.stat(Stat::DropBudget);
        let all = || wire.stat(Stat::RxPackets) - before + dropped();
        ensure!(eventually(|| all() == u64::from(SENT)));
        stop.store(true, Release);
        changer.join();
        ensure!(changes.get() > 0);
        ensure_eq!(failed.get(), 0);
        ensure_eq!(flow.packets(), u64::from(SENT));
        wire.flows.remove(&flow.counted);
        Ok(())
    }
}
