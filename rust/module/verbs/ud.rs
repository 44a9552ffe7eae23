// SPDX-License-Identifier: GPL-2.0

//! Datagrams that arrive at a QP.
//!
//! A datagram takes the oldest receive. The receive gets 40 bytes in place of a GRH first, then the
//! payload. A datagram without a receive is dropped. One that does not fit, or for whose receive
//! the memory is not accessible, ends the receive in error; the QP goes on. QP 1 gets whole MADs
//! only ([`Gsi`](crate::net::cm::gsi)).

use core::net::IpAddr;

use kfi_roce::rc::Status;

use super::{
    cq::Opcode,
    qp::{
        Qp,
        Transport, //
    },
    raw,
    sge::Parts, //
};
use crate::net::{
    qp::ud::{
        Consumer,
        Datagram, //
    },
    Stat, //
};

impl Consumer for Qp {
    fn datagram(&self, datagram: &Datagram<'_>) -> Result<(), Stat> {
        let is_gsi = matches!(self.transport(), Some(Transport::Gsi(_)));
        // A QP of `net` has checked its state.
        if is_gsi && !self.send.state().executes() {
            return Err(Stat::DropState);
        }
        let (recv, pd) = self.next_receive().ok_or(Stat::DropNoReceive)?;
        let grh = datagram.grh();
        let len = datagram.payload().len();
        let (status, placed) = match Parts::resolve(pd, recv.sges(), true) {
            Err(_) => (Status::LocalProtection, 0),
            Ok(parts) => {
                let placed = parts.store(0, &grh) + parts.place(grh.len(), datagram.payload());
                match placed == grh.len() + len {
                    true => (Status::Success, placed),
                    false => (Status::LocalLength, placed),
                }
            }
        };
        let mut entry = self.entry(recv.wr_id, status, Opcode::Recv);
        // CAST: A GRH and a payload of at most one path MTU.
        entry.byte_len = placed as u32;
        entry.src_qp = datagram.source_qp().get();
        entry.flags = raw::KFABRIC_VERBS_WC_GRH | raw::KFABRIC_VERBS_WC_NETWORK_HDR_TYPE;
        let network = match datagram.addrs().map(|addrs| addrs.from) {
            Some(IpAddr::V6(_)) => raw::KFABRIC_VERBS_NETWORK_IPV6,
            _ => raw::KFABRIC_VERBS_NETWORK_IPV4,
        };
        // CAST: One of these numbers.
        entry.network_hdr_type = network as u8;
        if let Some(imm) = datagram.imm() {
            entry.imm_or_key = imm;
            entry.flags |= raw::KFABRIC_VERBS_WC_WITH_IMM;
        }
        self.received(&entry, datagram.solicited());
        if is_gsi {
            // QP 1 does not report the end of its run to its second consumer.
            self.recv_cq().notify();
        }
        Ok(())
    }

    fn drained(&self) {
        self.raise(raw::KFABRIC_VERBS_EVENT_SQ_DRAINED);
    }

    fn run_ended(&self) {
        self.end_run();
    }
}
