// SPDX-License-Identifier: GPL-2.0
//! Objects that report completions: queues, counters, wait and poll sets.

#![allow(unsafe_code, reason = "descriptors as numbers")]

use super::{super::round::Kind, Worker};
use crate::raw::{File, arg};
use kfi::abi;
use std::os::fd::{FromRawFd, OwnedFd};

impl Worker {
    pub(super) fn queues(&mut self, desk: usize, file: &File) {
        let deadline = self.deadline();
        match self.rng.below(12) {
            0..=4 => {
                let count = self.rng.pick(&[0, 1, 2, 16, 100]);
                let arg = arg!(kfabric_cq_read:
                    cq: self.handle(desk, Kind::Cq), buf: self.addr(48 * count),
                    src_addrs: if self.rng.one_in(3) { self.addr(8 * count) } else { 0 },
                    count: count as u32, cond: self.rng.pick(&[0, 0, 1, 2, 30, u32::MAX]), deadline
                );
                let _ = self.call(file, arg);
            }
            5 | 6 => call!(
                self,
                file,
                arg!(kfabric_cq_readerr: cq: self.handle(desk, Kind::Cq))
            ),
            7 => call!(
                self,
                file,
                arg!(kfabric_cq_signal: cq: self.handle(desk, Kind::Cq))
            ),
            8 => call!(
                self,
                file,
                arg!(kfabric_cq_strerror:
                    cq: self.handle(desk, Kind::Cq), prov_errno: self.rng.edge() as u32
                )
            ),
            9 => {
                let len = self.rng.below(300);
                let arg = arg!(kfabric_eq_write:
                    eq: self.handle(desk, Kind::Eq), buf: self.addr(len), len: len as u32,
                    event: self.rng.edge() as u32
                );
                let _ = self.call(file, arg);
            }
            10 => {
                let len = self.rng.pick(&[0, 24, 256, 300]);
                let arg = arg!(kfabric_eq_read:
                    eq: self.handle(desk, Kind::Eq), deadline,
                    flags: self.rng.pick(&[0, 0, abi::KFI_PEEK]), buf: self.addr(len),
                    len: len as u32
                );
                let _ = self.call(file, arg);
            }
            _ => call!(
                self,
                file,
                arg!(kfabric_eq_readerr:
                    eq: self.handle(desk, Kind::Eq), flags: self.rng.pick(&[0, abi::KFI_PEEK])
                )
            ),
        }
    }

    pub(super) fn counters(&mut self, desk: usize, file: &File) {
        let cntr = self.handle(desk, Kind::Cntr);
        let comp_cntr = self.handle(desk, Kind::CompCntr);
        match self.rng.below(10) {
            6 => call!(
                self,
                file,
                arg!(kfabric_comp_cntr_read: comp_cntr, entry: self.rng.below(3) as u32)
            ),
            7 => call!(
                self,
                file,
                arg!(kfabric_comp_cntr_attach:
                    ep: self.ep(desk), comp_cntr, op_mask: self.rng.below(0x41) as u32
                )
            ),
            8 | 9 => call!(
                self,
                file,
                arg!(kfabric_comp_cntr_modify:
                    comp_cntr, entry: self.rng.below(2) as u32, op: self.rng.below(2) as u32,
                    value: self.rng.edge()
                )
            ),
            0 | 1 => call!(
                self,
                file,
                arg!(kfabric_cntr_wait:
                    cntr, threshold: self.rng.pick(&[0, 1, 5, 100, 1 << 40, u64::MAX]),
                    deadline: self.deadline()
                )
            ),
            2 => call!(self, file, arg!(kfabric_cntr_read: cntr)),
            _ => call!(
                self,
                file,
                arg!(kfabric_cntr_modify:
                    cntr, what: self.rng.below(4) as u32, value: self.rng.edge()
                )
            ),
        }
    }

    pub(super) fn waiting(&mut self, desk: usize, file: &File) {
        match self.rng.below(8) {
            0 | 1 => call!(
                self,
                file,
                arg!(kfabric_wait:
                    wait_set: self.handle(desk, Kind::Wait), deadline: self.deadline()
                )
            ),
            2..=4 => {
                let kind = self.rng.pick(&[Kind::Cq, Kind::Cntr]);
                let arg = arg!(kfabric_poll_change:
                    poll: self.handle(desk, Kind::Poll), handle: self.handle(desk, kind),
                    remove: self.rng.below(2) as u32
                );
                let _ = self.call(file, arg);
            }
            5 => call!(
                self,
                file,
                arg!(kfabric_poll:
                    poll: self.handle(desk, Kind::Poll), contexts: self.addr(8 * 16),
                    count: self.rng.pick(&[1, 16, 1000])
                )
            ),
            _ => {
                let kind = self.rng.pick(&[Kind::Cq, Kind::Cntr, Kind::Eq, Kind::Wait]);
                let arg = arg!(kfabric_getwait: handle: self.handle(desk, kind));
                if let Ok(got) = self.call(file, arg) {
                    // SAFETY: the call made this descriptor for us.
                    let fd = unsafe { OwnedFd::from_raw_fd(got.fd) };
                    self.world.add_fd(fd);
                }
            }
        }
    }
}
