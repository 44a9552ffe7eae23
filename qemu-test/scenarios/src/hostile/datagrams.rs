// SPDX-License-Identifier: GPL-2.0
//! Datagrams to an endpoint with flows. Half of them are damaged where only the ICRC shows it: the
//! flows must count the others, and none of these.

use super::{
    A, B, QKEY,
    attacks::{Attack, MOST},
    evidence::{Counter, Evidence},
    field::{Attacker, Facts, Field},
    packet::{Way, whole},
};
use crate::{
    abi_threads::NetNs,
    host::{Host, within},
    networks::{Wire, dgram},
    rng::Rng,
};
use kfi::{CounterDescription, Counters, Flow, PacketCounter};
use kfi_roce::{
    headers::{Bth, Deth, Headers, Qpn},
    icrc::{IPV4_LEN, UDP_LEN},
    packet::Packet,
    psn::Psn,
};
use std::time::Duration;

/// Packets of a burst.
const BURST: usize = 8;

/// Flows of the endpoint. Only the last one matches the packets.
const FLOWS: u32 = 64;

/// Bytes of a datagram's payload.
const PAYLOAD: usize = 64;

/// Time for the last packets to arrive.
const ARRIVED: Duration = Duration::from_secs(10);

/// The endpoint of a phase.
struct Target {
    netns: NetNs,
    host: Host,
    counters: Counters,
    _flows: Vec<Flow>,
}

impl Target {
    fn new(field: &Field) -> Self {
        let host = Wire::host(&field.b, &dgram());
        let counters = host.domain.counters().open().expect("counters");
        counters
            .attach(CounterDescription::Packets, 0)
            .expect("attach");
        let flows = (0..FLOWS)
            .map(|number| {
                let flow = host.ep.flow().priority(number).counters(&counters);
                let flow = match number + 1 {
                    FLOWS => flow.ipv4(),
                    _ => flow.src_qp(number, 0xff_ffff),
                };
                flow.open().expect("flow")
            })
            .collect();
        Self {
            netns: NetNs::open(&field.b.path()),
            host,
            counters,
            _flows: flows,
        }
    }

    /// The datagrams that have arrived, and those that the flows have counted.
    fn counts(&self) -> [u64; 2] {
        let arrived = [
            PacketCounter::RxPackets,
            PacketCounter::DropInboxFull,
            PacketCounter::DropBudget,
        ];
        let arrived = self
            .netns
            .run(|| arrived.map(|counter| self.host.count(counter)));
        let counted = self.counters.values().expect("values");
        [arrived.iter().sum(), counted[0]]
    }
}

/// The attack, see the top of the file.
pub(super) struct Datagrams {
    target: Option<Target>,
    /// Datagrams of this phase that are not damaged.
    good: u64,
}

impl Datagrams {
    pub(super) const fn new() -> Self {
        Self {
            target: None,
            good: 0,
        }
    }
}

impl Attack for Datagrams {
    fn name(&self) -> &'static str {
        "datagrams to flows"
    }

    fn begin(&mut self, field: &Field) {
        self.target = Some(Target::new(field));
        self.good = 0;
    }

    fn burst(&mut self, attacker: &mut Attacker, _at: &Facts, rng: &mut Rng) {
        let Some(target) = &self.target else {
            return;
        };
        let to = Qpn::new(target.host.qp().0.qpn);
        for _ in 0..BURST {
            let deth = Deth {
                qkey: rng.pick(&[QKEY, QKEY ^ 1]),
                src_qp: Qpn::new(0x10_0000 | rng.next() as u32),
            };
            let bth = Bth::new(to, Psn::new(rng.next() as u32));
            let packet = Packet::new(bth, Headers::Datagram(deth, None), PAYLOAD);
            let mut bytes = whole(Way::new(A, B), &packet, &[rng.next() as u8; PAYLOAD]);
            let is_damaged = rng.one_in(2);
            if is_damaged {
                let begin = IPV4_LEN + UDP_LEN + Bth::LEN;
                let at = begin + rng.below((bytes.len() - begin) as u64) as usize;
                bytes[at] ^= 1 << rng.below(8);
            }
            let before = attacker.sent;
            attacker.send(&bytes);
            if !is_damaged {
                self.good += attacker.sent - before;
            }
        }
    }

    fn evidence(&self) -> Option<Evidence> {
        let counters = &[
            PacketCounter::DropIcrc,
            PacketCounter::RxPackets,
            PacketCounter::DropInboxFull,
        ];
        Some(Evidence::new(Counter::Packets(counters), MOST))
    }

    fn end(&mut self) -> Result<(), String> {
        let Some(target) = self.target.take() else {
            return Ok(());
        };
        // A packet is counted by the flows before it is queued, and by the endpoint later.
        let settled = within(ARRIVED, || {
            let [arrived, counted] = target.counts();
            arrived == counted
        });
        let [arrived, counted] = target.counts();
        if !settled || counted > self.good {
            return Err(format!(
                "the flows have counted {counted} of {} good datagrams, {arrived} have arrived",
                self.good
            ));
        }
        Ok(())
    }
}
