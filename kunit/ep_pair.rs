// SPDX-License-Identifier: GPL-2.0

//! Two endpoints for the suites of the provider, in one domain on the loopback interface.
//!
//! Endpoints for reliable datagrams copy to each other. The packets of connected endpoints go over
//! the wire.

use super::fixture::{
    ep_attr,
    ident,
    ident_of,
    wait_for,
    wait_obj,
    TestDomain, //
};
use crate::{
    mem::{
        Budget,
        MemRef,
        Source, //
    },
    provider::{
        av::Av,
        cq::{
            Cq,
            CqAttr, //
        },
        ep::{
            attr::EpAttr,
            op::{
                Flags,
                Op,
                Read,
                Receive,
                Remote,
                RemoteRange,
                Send,
                Write, //
            },
            post::Poster,
            Endpoint, //
        },
        object::{
            force_close,
            Ident, //
        }, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kfi_core::{
    enums::{
        CqWaitCond,
        EpType,
        WaitObj, //
    },
    flags::{
        Caps,
        CqBind,
        OpFlags,
        KFI_ADDR_UNSPEC, //
    },
    wait::Deadline, //
};

/// An operation without flags of its own.
pub(crate) const FLAGS: Flags = Flags {
    own: OpFlags::EMPTY,
    explicit: false,
};

/// The sizes of an endpoint and its CQ.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) tx: usize,
    pub(crate) rx: usize,
    pub(crate) buffered: u64,
    pub(crate) cq: u32,
    /// How the CQ is bound, in addition to both sides.
    pub(crate) bind: CqBind,
}

impl Sizes {
    pub(crate) const DEFAULT: Self = Self {
        tx: 8,
        rx: 8,
        buffered: 1 << 20,
        cq: 64,
        bind: CqBind::EMPTY,
    };
}

/// An endpoint with its CQ.
pub(crate) struct End {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) cq: Arc<Cq>,
    /// The address of the other end.
    pub(crate) peer: u64,
}

impl End {
    fn open(domain: &TestDomain, ep_type: EpType, sizes: Sizes, ident: Ident) -> Result<Self> {
        let rma = Caps::RMA | Caps::READ | Caps::WRITE | Caps::REMOTE_READ | Caps::REMOTE_WRITE;
        let all = Caps::MSG | Caps::SEND | Caps::RECV | rma;
        let caps = match ep_type {
            EpType::Msg => all | Caps::ATOMIC,
            EpType::Rdm => all | Caps::ATOMIC | Caps::TAGGED | Caps::MULTI_RECV,
            _ => all | Caps::TAGGED | Caps::MULTI_RECV,
        };
        let attr = EpAttr {
            tx_size: sizes.tx,
            rx_size: sizes.rx,
            total_buffered_recv: match ep_type {
                EpType::Rdm => sizes.buffered,
                _ => 0,
            },
            ..ep_attr(ep_type, caps)
        };
        let endpoint = Endpoint::open(&domain.domain, attr, ident.clone())?;
        let threshold = CqWaitCond::Threshold as u32;
        let attr = CqAttr::new(sizes.cq, 1, wait_obj(WaitObj::Queue)?, threshold)?;
        let cq = Cq::open(&domain.domain, attr, ident)?;
        let sides = CqBind::TRANSMIT.union(CqBind::RECV);
        endpoint.bind_cq(&cq, sides.union(sizes.bind))?;
        Ok(Self {
            endpoint,
            cq,
            peer: 0,
        })
    }

    /// A SEND to the other end.
    pub(crate) fn send<'a>(&self, from: Source<'a>, context: u64) -> Op<'a> {
        Op::Send(Send {
            flags: FLAGS,
            context,
            from,
            peer: self.peer,
            data: 0,
            tag: None,
        })
    }

    /// A RECV from any source.
    pub(crate) fn receive(&self, into: MemRef, context: u64) -> Op<'static> {
        Op::Receive(Receive {
            flags: FLAGS,
            context,
            into,
            addr: 0,
            peer: KFI_ADDR_UNSPEC,
            tag: None,
        })
    }

    /// A READ of memory of the other end.
    pub(crate) fn read(&self, into: MemRef, remote: RemoteRange) -> Op<'static> {
        Op::Read(Read {
            flags: FLAGS,
            context: 0,
            into,
            peer: self.peer,
            remote: Remote::One(remote),
        })
    }

    /// A WRITE to memory of the other end.
    pub(crate) fn write(&self, from: MemRef, remote: RemoteRange) -> Op<'static> {
        Op::Write(Write {
            flags: FLAGS,
            context: 0,
            from: Source::Mem(from),
            peer: self.peer,
            remote: Remote::One(remote),
            data: 0,
        })
    }

    /// Posts an operation.
    pub(crate) fn post(&self, op: Op<'_>) -> Result {
        Poster::new(&self.endpoint).post(op)
    }

    /// Returns the context of the next completion, with its error if it has one.
    pub(crate) fn poll(&self) -> Option<(u64, Result)> {
        let mut context = 0;
        let take = |words: &[u64], _: u64| {
            context = words.first().copied().unwrap_or_default();
            Ok(())
        };
        if self.cq.sread(1, 0, Deadline::Poll, &mut 0, take) == Ok(1) {
            return Some((context, Ok(())));
        }
        let mut failed = None;
        let _ = self.cq.readerr(
            |entry| {
                let error = Error::from_errno(-(entry.err as i32));
                failed = Some((entry.op_context, Err(error)));
                Ok(())
            },
            || Ok(()),
        );
        failed
    }

    /// Waits for the next completion. Returns its context, and its error if it has one.
    pub(crate) fn next(&self) -> Result<(u64, Result)> {
        wait_for(|| self.poll())
    }

    /// Waits for one completion. Fails with its error, if it has one.
    pub(crate) fn complete(&self) -> Result {
        self.next()?.1
    }
}

impl Drop for End {
    fn drop(&mut self) {
        force_close(&*self.endpoint);
        force_close(&*self.cq);
    }
}

/// Two endpoints that know each other's address.
pub(crate) struct Pair {
    pub(crate) a: End,
    pub(crate) b: End,
    pub(crate) av: Arc<Av>,
    pub(crate) domain: TestDomain,
}

impl Pair {
    pub(crate) fn new(ep_type: EpType) -> Result<Self> {
        Self::sized(ep_type, Sizes::DEFAULT, Sizes::DEFAULT)
    }

    pub(crate) fn sized(ep_type: EpType, a: Sizes, b: Sizes) -> Result<Self> {
        Self::owned(ep_type, a, b, [ident(10, 0)?, ident(20, 0)?])
    }

    /// Two endpoints; `a` has these sizes and belongs to `owner`.
    pub(crate) fn of(owner: &Budget, ep_type: EpType, a: Sizes) -> Result<Self> {
        let idents = [ident_of(owner, 30)?, ident(40, 0)?];
        Self::owned(ep_type, a, Sizes::DEFAULT, idents)
    }

    /// Two endpoints with their owners.
    pub(crate) fn owned(ep_type: EpType, a: Sizes, b: Sizes, idents: [Ident; 2]) -> Result<Self> {
        let domain = TestDomain::open()?;
        let av = domain.av(ident(3, 0)?)?;
        let [of_a, of_b] = idents;
        let mut pair = Self {
            a: End::open(&domain, ep_type, a, of_a)?,
            b: End::open(&domain, ep_type, b, of_b)?,
            av,
            domain,
        };
        let Self { a, b, av, .. } = &mut pair;
        if ep_type == EpType::Rdm {
            for end in [&*a, &*b] {
                end.endpoint.bind_av(av)?;
                end.endpoint.enable()?;
            }
            a.peer = av.insert(b.endpoint.name()?)?;
            b.peer = av.insert(a.endpoint.name()?)?;
        } else {
            a.endpoint.enable()?;
            b.endpoint.enable()?;
            for (from, to) in [(&*a, &*b), (&*b, &*a)] {
                let info = to.endpoint.qp_info()?;
                let addr = to.endpoint.name()?;
                let addr = addr.with_qpn(info.qpn).map_err(|_| EINVAL)?;
                from.endpoint.connect_qp(addr, info.psn)?;
            }
        }
        Ok(pair)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        force_close(&*self.a.endpoint);
        force_close(&*self.b.endpoint);
        force_close(&*self.av);
    }
}
