// SPDX-License-Identifier: GPL-2.0
//! A shared receive context with endpoints that use it.

use crate::host::{BOTH, Host, Options, domain, expect, expect_nothing, holding};
use kfi::{
    Av, AvKind, Buffer, Caps, Cntr, CntrBind, CompFlags, Cq, CqFormat, Domain, Endpoint, Entry,
    EpType, FiAddr, SharedRx, Wait,
};

/// The number of endpoints.
pub(super) const MEMBERS: usize = 3;

/// An endpoint of a pool.
pub(super) struct Member {
    pub(super) ep: Endpoint,
    pub(super) received: Cntr,
}

/// A shared receive context, and endpoints that use it.
pub(super) struct Pool {
    pub(super) domain: Domain,
    pub(super) cq: Cq,
    pub(super) av: Av,
    pub(super) srx: SharedRx,
    pub(super) members: Vec<Member>,
}

impl Pool {
    /// A pool without endpoints, whose CQ has `entries` and whose context `size` receives.
    pub(super) fn empty(entries: u32, size: u32) -> Self {
        let (_, domain) = domain();
        let cq = domain
            .cq()
            .entries(entries)
            .format(CqFormat::Tagged)
            .wait(Wait::Queue)
            .open()
            .expect("cq");
        Self {
            cq,
            av: domain.av().kind(AvKind::Table).open().expect("av"),
            srx: domain.srx().size(size).open().expect("srx"),
            domain,
            members: Vec::new(),
        }
    }

    /// A pool with endpoints for reliable datagrams.
    pub(super) fn new() -> Self {
        let mut pool = Self::empty(256, 0);
        for _ in 0..MEMBERS {
            pool.add(EpType::Rdm).expect("enable");
        }
        pool
    }

    /// Adds an endpoint. Returns what enabling it does.
    pub(super) fn add(&mut self, ep_type: EpType) -> kfi::Result<()> {
        let options = Options::default();
        let caps = match ep_type {
            EpType::Rdm => options.caps,
            _ => Caps::MSG,
        };
        let ep = self.domain.endpoint().ep_type(ep_type).caps(caps);
        let ep = ep.shared_rx().open().expect("endpoint");
        let received = self.domain.cntr().open().expect("cntr");
        ep.bind_srx(&self.srx).expect("bind srx");
        ep.bind_cq(&self.cq, BOTH).expect("bind cq");
        ep.bind_cntr(&received, CntrBind::RECV).expect("bind cntr");
        if ep_type != EpType::Msg {
            ep.bind_av(&self.av).expect("bind av");
        }
        ep.enable()?;
        self.members.push(Member { ep, received });
        Ok(())
    }

    /// A sender in a domain of its own, and the members in its AV.
    pub(super) fn sender(&self) -> (Host, Vec<FiAddr>) {
        let sender = Host::new();
        let known = self.members.iter().map(|member| {
            let name = member.ep.name().expect("name");
            sender.av.insert_one(name).expect("insert")
        });
        let known = known.collect();
        (sender, known)
    }

    /// The next completion, which must have these flags and this context.
    #[track_caller]
    pub(super) fn expect(&self, flags: CompFlags, context: u64) -> Entry {
        expect(&self.cq, flags, context)
    }

    /// There must be no completion.
    #[track_caller]
    pub(super) fn expect_nothing(&self) {
        expect_nothing(&self.cq);
    }
}

/// Memory of `len` times this byte.
pub(super) fn of_byte(byte: u8, len: usize) -> Buffer {
    holding(&vec![byte; len])
}
