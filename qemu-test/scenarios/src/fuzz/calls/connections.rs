// SPDX-License-Identifier: GPL-2.0
//! Connections: passive endpoints, connecting and accepting, connections made by hand,
//! and their end.

use super::{
    super::round::{Kind, LISTENERS, couple, msg},
    Worker,
};
use crate::raw::{File, arg, ipv4, to_qp};
use kfi::abi;

impl Worker {
    /// An address at which an endpoint mostly listens.
    pub(super) fn listener(&mut self) -> abi::kfabric_sockaddr {
        if self.rng.one_in(6) {
            return self.sockaddr();
        }
        let port = LISTENERS.start + self.rng.below(LISTENERS.len() as u64) as u16;
        ipv4([127, 0, 0, 1], port)
    }

    /// Private data: address and length.
    fn private(&mut self, most: u32) -> (u64, u32) {
        let len = match self.rng.below(8) {
            0 => self.rng.edge() as u32,
            1 => most + 1,
            _ => self.rng.below(u64::from(most) + 1) as u32,
        };
        (self.addr(len.into()), len)
    }

    pub(super) fn connections(&mut self, desk: usize, file: &File) {
        let (ep, pep) = (self.handle(desk, Kind::Msg), self.handle(desk, Kind::Pep));
        // Requests are numbered from 1, and there are few.
        let connreq = self.rng.pick(&[1, 1, 1, 2, 2, 3, 4]);
        match self.rng.below(16) {
            0 | 1 => call!(self, file, arg!(kfabric_pep_listen: pep)),
            2 => {
                let (param, param_len) = self.private(abi::KFABRIC_MAX_REJECT_DATA);
                let arg = arg!(kfabric_pep_reject: pep, connreq, param_len, param);
                let _ = self.call(file, arg);
            }
            3..=6 => {
                let (param, param_len) = self.private(abi::KFABRIC_MAX_CONNECT_DATA);
                let arg = arg!(kfabric_ep_connect: ep, addr: self.listener(), param, param_len);
                let _ = self.call(file, arg);
            }
            7..=9 => {
                let (param, param_len) = self.private(abi::KFABRIC_MAX_ACCEPT_DATA);
                // An endpoint that mostly has no peer yet.
                let fresh = if self.rng.one_in(4) {
                    None
                } else {
                    self.endpoint_to_connect(desk, file)
                };
                let arg = arg!(kfabric_ep_accept:
                    ep: fresh.unwrap_or(ep), pep, connreq, param, param_len
                );
                let _ = self.call(file, arg);
            }
            10 => call!(self, file, arg!(kfabric_ep_shutdown: ep)),
            11 => call!(self, file, arg!(kfabric_ep_peer: ep)),
            12 | 13 => {
                let arg = arg!(kfabric_ep_qp: ep);
                if let Ok(qp) = self.call(file, arg) {
                    let other = self.handle(desk, Kind::Msg);
                    let _ = self.call(file, to_qp(other, &qp));
                }
            }
            14 => call!(
                self,
                file,
                arg!(kfabric_figures:
                    of: self.rng.below(4) as u32, id: self.rng.below(1000)
                )
            ),
            _ => {
                let _ = self.endpoint_to_connect(desk, file);
            }
        }
    }

    /// Makes an endpoint that can be connected, sometimes two that are connected with
    /// each other.
    fn endpoint_to_connect(&mut self, desk: usize, file: &File) -> Option<u32> {
        let domain = self.handle(desk, Kind::Domain);
        let (cq, eq) = (self.handle(desk, Kind::Cq), self.handle(desk, Kind::Eq));
        let here = &self.world.desks[desk];
        self.trace.begin("endpoint to connect", &[]);
        let made = if self.rng.one_in(4) {
            couple(here, file, domain, cq, eq)
        } else {
            msg(here, file, domain, cq, eq)
        };
        self.trace.end(made.map_or(-1, i64::from));
        made
    }
}
