// SPDX-License-Identifier: GPL-2.0
//! Scalable endpoints and their contexts, and shared contexts. A context is recorded as an
//! endpoint, so all calls for endpoints take it.

use super::{
    super::round::{ALL_CAPS, Kind, MSG_CAPS, SEPS},
    OP_FLAGS, Worker,
};
use crate::raw::{File, arg, ipv4};
use kfi::abi;

/// Contexts of each side, and the bits of an address that select one.
const CONTEXTS: u32 = 3;
pub(super) const BITS: u32 = 4;

impl Worker {
    /// A call for such an object.
    pub(super) fn contexts(&mut self, desk: usize, file: &File) {
        macro_rules! make {
            ($kind:ident, $arg:expr) => {{
                let arg = $arg;
                if let Ok(made) = self.call(file, arg) {
                    self.world.desks[desk].add(Kind::$kind, made.handle);
                }
            }};
        }
        let domain = self.handle(desk, Kind::Domain);
        match self.rng.below(16) {
            0 => make!(
                Sep,
                arg!(kfabric_sep_open:
                    domain, auth_key: self.auth_key(),
                    caps: self.rng.pick(&[0, ALL_CAPS, abi::KFI_MSG]),
                    tx_op_flags: self.rng.bits(&OP_FLAGS[..7]), tx_size: self.rng.pick(&[0, 1, 8]),
                    rx_size: self.rng.pick(&[0, 1, 8]),
                    tx_ctx_cnt: self.rng.pick(&[0, 1, CONTEXTS, 64]),
                    rx_ctx_cnt: self.rng.pick(&[0, 1, CONTEXTS, 64]), src_addr: self.name_of_sep()
                )
            ),
            1..=4 => make!(
                Ep,
                arg!(kfabric_sep_context:
                    sep: self.handle(desk, Kind::Sep), receive: self.rng.below(2) as u32,
                    index: self.rng.below(CONTEXTS.into()) as u32,
                    caps: self.rng.pick(&[0, 0, 0, abi::KFI_MSG]),
                    queue_size: self.rng.pick(&[0, 0, 1, 8])
                )
            ),
            5 => make!(
                Stx,
                arg!(kfabric_stx_open: domain, tx_size: self.rng.pick(&[0, 1, 4]))
            ),
            6 => make!(
                Srx,
                arg!(kfabric_srx_open:
                    domain, rx_size: self.rng.pick(&[0, 1, 8]),
                    total_buffered_recv: self.rng.pick(&[0, 1, 9000])
                )
            ),
            7 | 8 => make!(
                Ep,
                arg!(kfabric_ep_open:
                    domain, caps: self.rng.pick(&[0, ALL_CAPS, abi::KFI_MSG]),
                    shared: 1 + self.rng.below(3) as u32, auth_key: self.auth_key(),
                    tx_size: self.rng.pick(&[0, 1, 8]), src_addr: ipv4([127, 0, 0, 1], 0)
                )
            ),
            9 => make!(
                Msg,
                arg!(kfabric_ep_open:
                    domain, type_: abi::KFI_EP_MSG, caps: MSG_CAPS,
                    shared: 1 + self.rng.below(3) as u32
                )
            ),
            10 => make!(
                Av,
                arg!(kfabric_av_open:
                    domain, type_: self.rng.below(3) as u32,
                    rx_ctx_bits: self.rng.pick(&[BITS, BITS, 1, 16])
                )
            ),
            11 => call!(
                self,
                file,
                arg!(kfabric_ep_enable: ep: self.handle(desk, Kind::Sep))
            ),
            12 => call!(
                self,
                file,
                arg!(kfabric_ep_name:
                    ep: self.handle(desk, Kind::Sep), set: self.rng.below(2) as u32,
                    addr: self.name_of_sep()
                )
            ),
            _ => self.bind_contexts(desk, file),
        }
    }

    /// A name that a scalable endpoint may have.
    fn name_of_sep(&mut self) -> abi::kfabric_sockaddr {
        let port = SEPS.start + self.rng.below(SEPS.len() as u64) as u16;
        self.rng
            .pick(&[ipv4([127, 0, 0, 1], port), ipv4([127, 0, 0, 1], 0)])
    }

    fn bind_contexts(&mut self, desk: usize, file: &File) {
        let (from, to) = self.rng.pick(&[
            (Kind::Sep, Kind::Av),
            (Kind::Ep, Kind::Srx),
            (Kind::Ep, Kind::Stx),
            (Kind::Msg, Kind::Srx),
            (Kind::Msg, Kind::Stx),
            (Kind::Srx, Kind::Srx),
            (Kind::Srx, Kind::Cq),
        ]);
        let arg = arg!(kfabric_bind: handle: self.handle(desk, from), to: self.handle(desk, to));
        let _ = self.call(file, arg);
    }
}
