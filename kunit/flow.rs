// SPDX-License-Identifier: GPL-2.0

//! Suite `kfabric_flow`: flows without memory, and packets to another address. Guest scenarios test
//! flows as programs use them.

use super::{
    super::{
        kunit_wire_pair::{
            at,
            built,
            Pair,
            Recorder,
            ONE,
            QKEY,
            THREE,
            TWO, //
        },
        packet,
        qp::Qp,
        socket::AddrPair,
        Path,
        Stat, //
    },
    Counted,
    FlowTable, //
};
use crate::{
    kunit::helpers::{
        eventually,
        rx_skb,
        user, //
    },
    mem::{
        Budget,
        Part, //
    }, //
};
use kernel::prelude::*;
use kfi_core::flow::{
    Fields,
    Rule, //
};

const NONE: Fields = Fields {
    src_ip: [0; 16],
    dest_ip: [0; 16],
    src_port: 0,
    dest_qp: 0,
    src_qp: 0,
    opcode: 0,
};

/// A rule that every packet matches.
fn any() -> Result<Rule> {
    Rule::new(None, &NONE, &NONE).map_err(|_| EINVAL)
}

/// A rule that no datagram matches.
fn never() -> Result<Rule> {
    let value = Fields { opcode: 1, ..NONE };
    let mask = Fields {
        opcode: 0xff,
        ..NONE
    };
    Rule::new(None, &value, &mask).map_err(|_| EINVAL)
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

    /// Counts it.
    fn count(&self, table: &FlowTable) -> Result {
        let skb = rx_skb(&self.bytes, 20, 4096, 1000)?;
        let packet = packet::parse(&skb).map_err(|_| EINVAL)?;
        let addrs = AddrPair::of(&skb).ok_or(EINVAL)?;
        table.count(&packet, &addrs, &skb);
        Ok(())
    }
}

#[kunit_tests(kfabric_flow)]
mod tests {
    use super::*;

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

    /// A packet to another address than that of the QP belongs to no flow.
    #[test]
    fn packets_to_other_addresses_are_not_counted() -> Result {
        let pair = Pair::new(ONE, TWO)?;
        let owner = Budget::of_program()?;
        let flows = FlowTable::new(&owner)?;
        let got = Recorder::new()?;
        let table = Some(flows.clone());
        let qp = Qp::datagrams(&pair.link.0, &at(TWO, 0)?, QKEY, table, &owner, got.clone())?;
        let flow = Counted::new()?;
        flows.insert(any()?, 0, false, &flow)?;
        let good = built(&pair.path, &pair.a, qp.number(), 64)?;
        pair.path.send(good)?;
        let arrived = eventually(|| got.count() == 1);
        let stray = Path::new(&pair.link.0, ONE, THREE)?;
        stray.send(built(&stray, &pair.a, qp.number(), 64)?)?;
        let dropped = eventually(|| qp.stats().get(Stat::DropDestination) == 1);
        flows.remove(&flow);
        qp.close();
        ensure!(arrived && dropped);
        ensure_eq!(flow.totals().0, 1);
        Ok(())
    }
}
