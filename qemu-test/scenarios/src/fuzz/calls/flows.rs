// SPDX-License-Identifier: GPL-2.0
//! Flows and their counters.

use super::{super::round::Kind, Worker};
use crate::raw::{File, arg, ipv4};
use kfi::abi;

impl Worker {
    /// A datagram endpoint at the address of its peers, recorded as such and as an endpoint.
    fn datagrams(&mut self, desk: usize, file: &File) {
        let arg = arg!(kfabric_ep_open:
            domain: self.handle(desk, Kind::Domain), type_: abi::KFI_EP_DGRAM,
            src_addr: ipv4([127, 0, 0, 1], 0)
        );
        let Ok(ep) = self.call(file, arg) else {
            return;
        };
        self.world.desks[desk].add(Kind::Ep, ep.handle);
        self.world.desks[desk].add(Kind::Dgram, ep.handle);
        // So that it receives packets.
        let both = abi::KFI_SEND | abi::KFI_RECV;
        for (kind, flags) in [(Kind::Cq, both), (Kind::Av, 0)] {
            let arg = arg!(kfabric_bind: handle: ep.handle, to: self.handle(desk, kind), flags);
            let _ = self.call(file, arg);
        }
        let arg = arg!(kfabric_ep_enable: ep: ep.handle);
        let _ = self.call(file, arg);
    }

    /// The mask of a rule, and mostly a value within it.
    fn rule(&mut self) -> (abi::kfabric_flow_match, abi::kfabric_flow_match) {
        let mut value = abi::kfabric_flow_match::default();
        let mut mask = value;
        match self.rng.below(6) {
            0 => (value.opcode, mask.opcode) = (self.rng.pick(&[0x64, 0x65, 1]), 0xff),
            1 => (value.src_port, mask.src_port) = (0xc000, self.rng.pick(&[0xf000, 0xffff])),
            2 => {
                value.src_ip[..4].copy_from_slice(&[127, 0, 0, 1]);
                mask.src_ip[..4].fill(255);
            }
            3 => mask.dest_qp = self.rng.edge() as u32,
            _ => {}
        }
        (value, mask)
    }

    pub(super) fn flows(&mut self, desk: usize, file: &File) {
        match self.rng.below(16) {
            0 => self.datagrams(desk, file),
            1 | 2 => {
                let arg = arg!(kfabric_counters_open:
                    domain: self.handle(desk, Kind::Domain),
                    count: self.rng.pick(&[0, 1, 2, 256, 257])
                );
                if let Ok(made) = self.call(file, arg) {
                    self.world.desks[desk].add(Kind::Counters, made.handle);
                }
            }
            3..=6 => {
                let (value, mask) = self.rule();
                let arg = arg!(kfabric_flow_open:
                    ep: self.handle(desk, Kind::Dgram), flags: self.rng.below(2),
                    counters: match self.rng.one_in(2) {
                        true => self.handle(desk, Kind::Counters),
                        false => 0
                    },
                    priority: self.rng.below(4) as u32, family: self.rng.pick(&[0, 2, 2, 10]),
                    value, mask
                );
                if let Ok(made) = self.call(file, arg) {
                    self.world.desks[desk].add(Kind::Flow, made.handle);
                }
            }
            7..=10 => call!(
                self,
                file,
                arg!(kfabric_counters_attach:
                    counters: self.handle(desk, Kind::Counters),
                    flow: if self.rng.one_in(2) { self.handle(desk, Kind::Flow) } else { 0 },
                    description: self.rng.below(3) as u32,
                    index: self.rng.pick(&[0, 0, 1, 15, 255])
                )
            ),
            11 | 12 => {
                let count = self.rng.pick(&[1, 2, 16, 256]);
                let arg = arg!(kfabric_counters_read:
                    counters: self.handle(desk, Kind::Counters), values: self.addr(8 * count),
                    flags: self.rng.below(2), count: count as u32
                );
                let _ = self.call(file, arg);
            }
            _ => {
                let kind = self
                    .rng
                    .pick(&[Kind::Flow, Kind::Flow, Kind::Counters, Kind::Dgram]);
                let arg = arg!(kfabric_close: handle: self.handle(desk, kind));
                if let Ok(arg) = self.call(file, arg) {
                    self.world.desks[desk].forget(arg.handle);
                }
            }
        }
    }
}
