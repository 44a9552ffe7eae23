// SPDX-License-Identifier: GPL-2.0
//! Objects: making, binding, closing them; address vectors and endpoints.

use super::{
    super::round::{ALL_CAPS, Kind, MSG_CAPS},
    OP_FLAGS, Worker, self_bits,
};
use crate::{
    host::LINK,
    raw::{ALL_ACCESS, File, arg, ipv4, text},
};
use kfi::abi;
use std::os::fd::AsRawFd;

impl Worker {
    /// Makes an object and records it.
    pub(super) fn make(&mut self, desk: usize, file: &File) {
        macro_rules! make {
            ($kind:ident, $arg:expr) => {{
                let arg = $arg;
                if let Ok(made) = self.call(file, arg) {
                    self.world.desks[desk].add(Kind::$kind, made.handle);
                }
            }};
        }
        let domain = self.handle(desk, Kind::Domain);
        let (wait_obj, wait_set) = self.wait_obj(desk);
        match self.rng.below(30) {
            0 => make!(Fabric, arg!(kfabric_fabric_open)),
            1 | 2 => make!(
                Domain,
                arg!(kfabric_domain_open:
                    fabric: self.handle(desk, Kind::Fabric), link: text(LINK),
                    mr_mode: self.rng.pick(&[0, 0, 8, 16, 24])
                )
            ),
            3 => make!(
                Eq,
                arg!(kfabric_eq_open:
                    fabric: self.handle(desk, Kind::Fabric), entries: self.rng.below(5) as u32,
                    wait_obj, wait_set, flags: abi::KFI_WRITE
                )
            ),
            4 => make!(
                Av,
                arg!(kfabric_av_open:
                    domain, type_: self.rng.below(3) as u32, count: self.rng.below(300) as u32,
                    flags: self.rng.pick(&[0, 0, abi::KFI_EVENT])
                )
            ),
            5..=7 => make!(
                Cq,
                arg!(kfabric_cq_open:
                    domain, entries: self.rng.pick(&[1, 2, 4, 32, 100]),
                    format: self.rng.below(5) as u32, wait_obj, wait_cond: self.rng.below(2) as u32,
                    wait_set
                )
            ),
            8..=10 => make!(
                Cntr,
                arg!(kfabric_cntr_open:
                    domain, wait_obj, wait_set, max_value: self.rng.pick(&[0, 0, 1, 9, u64::MAX])
                )
            ),
            28 | 29 => make!(
                CompCntr,
                arg!(kfabric_comp_cntr_create:
                    domain, flags: self.rng.below(2) as u32, type_: self.rng.below(2) as u32,
                    comp_cntr_ext_mem: self.place(), err_cntr_ext_mem: self.place()
                )
            ),
            11 => make!(
                Wait,
                arg!(kfabric_wait_open:
                    fabric: self.handle(desk, Kind::Fabric), wait_obj: abi::KFI_WAIT_QUEUE
                )
            ),
            12 => make!(Poll, arg!(kfabric_poll_open: domain)),
            13..=18 => {
                let count = self.rng.pick(&[1, 1, 1, 2, 5]);
                make!(
                    Mr,
                    arg!(kfabric_mr_reg:
                        domain, iov: self.iov_list(count), iov_count: count as u32,
                        access: self.rng.pick(&[ALL_ACCESS, ALL_ACCESS, self_bits(ALL_ACCESS)]),
                        requested_key: self.rng.below(5)
                    )
                );
            }
            19..=21 => make!(
                Msg,
                arg!(kfabric_ep_open:
                    domain, type_: abi::KFI_EP_MSG,
                    caps: self.rng.pick(&[0, MSG_CAPS, MSG_CAPS, abi::KFI_MSG]),
                    tx_op_flags: self.rng.bits(&OP_FLAGS[..7]), rx_size: self.rng.pick(&[0, 1, 8]),
                    tx_size: self.rng.pick(&[0, 1, 8]),
                    src_addr: self.rng.pick(&[Default::default(), ipv4([127, 0, 0, 1], 0)])
                )
            ),
            22 => make!(
                Pep,
                arg!(kfabric_pep_open:
                    fabric: self.handle(desk, Kind::Fabric),
                    backlog: self.rng.pick(&[0, 1, 2, 4096]), addr: self.listener()
                )
            ),
            23 => make!(
                Ep,
                arg!(kfabric_ep_open:
                    domain, type_: abi::KFI_EP_DGRAM, src_addr: ipv4([127, 0, 0, 1], 0),
                    auth_key: self.rng.pick(&[[0; 4], [0; 4], [0; 4], [1; 4]])
                )
            ),
            _ => make!(
                Ep,
                arg!(kfabric_ep_open:
                    domain, auth_key: self.auth_key(),
                    caps: self.rng.pick(&[0, ALL_CAPS, ALL_CAPS, abi::KFI_MSG]),
                    tx_op_flags: self.rng.bits(&OP_FLAGS[..7]), rx_size: self.rng.pick(&[0, 1, 8]),
                    tx_size: self.rng.pick(&[0, 1, 8]),
                    total_buffered_recv: self.rng.pick(&[0, 1, 9000]), src_addr: self.sockaddr()
                )
            ),
        }
    }

    /// A place for a copy of a value: in a DMA-BUF, in the memory of the calls, or by a descriptor
    /// that is none of a DMA-BUF.
    fn place(&mut self) -> abi::kfabric_memory_location {
        if self.rng.one_in(3) {
            // With places at the end of the page and behind it.
            let offset = self.rng.pick(&[0, 8, 64, 4088, 4092, 4096]);
            return abi::kfabric_memory_location {
                ptr: self.rng.pick(&[0, 0, 8, 4]),
                offset: if self.rng.one_in(8) {
                    self.rng.edge()
                } else {
                    offset
                },
                fd: self.world.dma_buf.as_raw_fd(),
                type_: abi::KFABRIC_MEMORY_LOCATION_DMABUF,
            };
        }
        abi::kfabric_memory_location {
            ptr: self.addr(8),
            offset: self.rng.edge(),
            fd: self.rng.below(8) as i32 - 1,
            type_: self.rng.pick(&[0, 0, 0, 1]),
        }
    }

    pub(super) fn bind(&mut self, desk: usize, file: &File) {
        let (from, to, flags) = match self.rng.below(11) {
            0 => (Kind::Domain, Kind::Eq, self.rng.pick(&[0, abi::KFI_REG_MR])),
            1 => (Kind::Av, Kind::Eq, 0),
            2 => (Kind::Ep, Kind::Av, 0),
            3 => (Kind::Ep, Kind::Eq, 0),
            6 => (Kind::Pep, Kind::Eq, 0),
            7 => (Kind::Msg, Kind::Eq, 0),
            4 => (
                Kind::Mr,
                Kind::Cntr,
                self.rng.pick(&[1 << 12, 1 << 13, 3 << 12]),
            ),
            5 => {
                let kinds: Vec<u64> = (8..14).map(|bit| 1 << bit).collect();
                (Kind::Ep, Kind::Cntr, self.rng.bits(&kinds))
            }
            _ => {
                let both = abi::KFI_SEND | abi::KFI_RECV;
                let flags = [
                    both,
                    both,
                    abi::KFI_SEND,
                    both | abi::KFI_SELECTIVE_COMPLETION,
                ];
                let from = self.rng.pick(&[Kind::Ep, Kind::Msg]);
                (from, Kind::Cq, self.rng.pick(&flags))
            }
        };
        let arg = arg!(kfabric_bind:
            handle: self.handle(desk, from), to: self.handle(desk, to), flags
        );
        let _ = self.call(file, arg);
    }

    pub(super) fn close(&mut self, desk: usize, file: &File) {
        // Endpoints of the skeleton are seldom closed, because the others use
        // them as peers.
        let handle = if self.rng.one_in(3) {
            self.world.desks[desk].any(&mut self.rng)
        } else {
            let kinds = [
                Kind::Mr,
                Kind::Cq,
                Kind::Cntr,
                Kind::CompCntr,
                Kind::Av,
                Kind::Ep,
                Kind::Eq,
                Kind::Msg,
                Kind::Pep,
                Kind::Srx,
            ];
            let kind = self.rng.pick(&kinds);
            self.handle(desk, kind)
        };
        let arg = arg!(kfabric_close: handle);
        if let Ok(arg) = self.call(file, arg) {
            self.world.desks[desk].forget(arg.handle);
        }
    }

    pub(super) fn addresses(&mut self, desk: usize, file: &File) {
        let av = self.handle(desk, Kind::Av);
        match self.rng.below(8) {
            0..=2 => {
                let count = self.rng.pick(&[1, 1, 8, 200]);
                let list: Vec<abi::kfabric_sockaddr> =
                    (0..count).map(|_| self.sockaddr()).collect();
                let sync = self.rng.one_in(3);
                let arg = arg!(kfabric_av_insert:
                    av, flags: if sync { abi::KFI_SYNC_ERR } else { 0 }, addrs: self.list(&list),
                    fi_addrs: self.addr(8 * count),
                    errors: if sync { self.addr(4 * count) } else { 0 }, count: count as u32
                );
                let _ = self.call(file, arg);
            }
            3 => call!(
                self,
                file,
                arg!(kfabric_av_insertsvc:
                    av, node: text("127.0.0.1"), service: text("7001")
                )
            ),
            4 | 5 => {
                // A port beyond the skeleton's, mostly.
                let count = self.rng.pick(&[1, 2, 50]);
                let words: Vec<u64> = (0..count).map(|_| 8 + self.rng.below(200)).collect();
                let at = self.addr(8 * count);
                self.world.scratch.put(at, &words);
                let arg = arg!(kfabric_av_remove: av, fi_addrs: at, count: count as u32);
                let _ = self.call(file, arg);
            }
            6 => call!(
                self,
                file,
                arg!(kfabric_av_lookup: av, fi_addr: self.rng.below(20))
            ),
            _ => call!(
                self,
                file,
                arg!(kfabric_av_straddr: av, addr: self.sockaddr())
            ),
        }
    }

    pub(super) fn endpoint(&mut self, desk: usize, file: &File) {
        let ep = self.ep(desk);
        match self.rng.below(10) {
            0..=3 => {
                let context = self.rng.below(8);
                let _ = self.call(file, arg!(kfabric_ep_cancel: ep, context));
            }
            4..=6 => {
                let _ = self.call(file, arg!(kfabric_ep_enable: ep));
            }
            7 => {
                let passive = self.rng.one_in(4);
                let arg = arg!(kfabric_ep_name:
                    ep: if passive { self.handle(desk, Kind::Pep) } else { ep },
                    set: self.rng.below(2) as u32, addr: self.sockaddr()
                );
                let _ = self.call(file, arg);
            }
            8 => call!(
                self,
                file,
                arg!(kfabric_ep_opt:
                    ep, set: self.rng.below(2) as u32,
                    level: self.rng.pick(&[abi::KFI_OPT_ENDPOINT, abi::KFABRIC_OPT_QP]),
                    name: self.rng.below(9) as u32, value: self.rng.edge()
                )
            ),
            _ => {
                let side = self.rng.pick(&[abi::KFI_SEND, abi::KFI_RECV]);
                let arg = arg!(kfabric_opsflag:
                    handle: ep, set: self.rng.below(2) as u32,
                    flags: side | self.rng.bits(&OP_FLAGS)
                );
                let _ = self.call(file, arg);
            }
        }
    }
}
