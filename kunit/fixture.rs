// SPDX-License-Identifier: GPL-2.0

//! Helpers of the provider's suites: a fabric, a domain on the loopback interface, deadlines.
//!
//! The loopback interface of the first network namespace must be up.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use kfi_core::{
    auth_key::AuthKey,
    enums::{
        self,
        AvType,
        EpType, //
    },
    flags::{
        Caps,
        OpFlags, //
    },
    peer::RxCtxBits, //
};

use crate::{
    mem::Budget,
    net::{
        self,
        kunit_links::NoLinks,
        IfName,
        LinkName,
        NetNs,
        NetNsId, //
    },
    provider::{
        av::{
            Av,
            AvAttr, //
        },
        cntr::{
            Cntr,
            CntrAttr, //
        },
        cq::{
            Cq,
            CqAttr, //
        },
        domain::{
            Domain,
            MrMode, //
        },
        ep::attr::{
            EpAttr,
            Shares, //
        },
        eq::{
            Eq,
            EqAttr, //
        },
        fabric::Fabric,
        object::{
            force_close,
            Ident, //
        },
        wait::WaitObj, //
    },
    shim::{
        cred::Owner,
        reclaim::OwnerKind, //
    }, //
};

use super::helpers::raw_name;
pub(crate) use super::helpers::{
    a_while,
    allow_kill,
    count_if,
    eventually,
    soon,
    thread,
    wait_for,
    within,
    Count,
    LONG,
    MS, //
};

/// Returns the identity of an object with this handle and context.
pub(crate) fn ident(fid: u64, context: u64) -> Result<Ident> {
    Ok(Ident {
        fid,
        context,
        owner: Owner::current(OwnerKind::Program)?,
        budget: Budget::of_program()?,
    })
}

/// Returns the identity of an object of `owner`.
pub(crate) fn ident_of(owner: &Budget, fid: u64) -> Result<Ident> {
    Ok(Ident {
        budget: owner.clone(),
        ..ident(fid, fid)?
    })
}

/// Makes a wait object that is not a wait set.
pub(crate) fn wait_obj(kind: enums::WaitObj) -> Result<WaitObj> {
    WaitObj::new(kind.into(), None)
}

/// Returns the attributes of an endpoint with queues of one entry, which buffers nothing.
pub(crate) fn ep_attr(ep_type: EpType, caps: Caps) -> EpAttr {
    EpAttr {
        ep_type,
        caps,
        tx_op_flags: OpFlags::EMPTY,
        rx_op_flags: OpFlags::EMPTY,
        tx_size: 1,
        rx_size: 1,
        total_buffered_recv: 0,
        src_addr: None,
        shares: Shares::default(),
        auth_key: AuthKey::NONE,
    }
}

/// A fabric of this network namespace, closed when dropped.
pub(crate) struct TestFabric(pub(crate) Arc<Fabric>);

impl TestFabric {
    pub(crate) fn open() -> Result<Self> {
        Ok(Self(Fabric::open(NetNsId::current()?, ident(1, 1)?)?))
    }

    /// Opens an EQ of this many events.
    pub(crate) fn eq(&self, entries: u32, wait: enums::WaitObj, writable: bool) -> Result<Arc<Eq>> {
        let attr = EqAttr {
            entries,
            wait: wait_obj(wait)?,
            writable,
            consumer: None,
        };
        Eq::open(&self.0, attr, ident(9, 9)?)
    }
}

impl Drop for TestFabric {
    fn drop(&mut self) {
        force_close(&*self.0);
    }
}

/// A domain on a link on the loopback interface. Dropping it removes both.
pub(crate) struct TestDomain {
    pub(crate) domain: Arc<Domain>,
    pub(crate) fabric: TestFabric,
    _link: NoLinks,
}

impl TestDomain {
    pub(crate) fn open() -> Result<Self> {
        let fabric = TestFabric::open()?;
        let no_links = NoLinks;
        let link = net::add(
            &NetNs::current()?,
            LinkName::new(&raw_name(b"kfi-test"))?,
            IfName::new(&raw_name(b"lo"))?,
        )?;
        let mode = MrMode {
            virt_addr: false,
            prov_key: false,
        };
        let domain = Domain::open(&fabric.0, link.open()?, mode, ident(2, 2)?)?;
        Ok(Self {
            domain,
            fabric,
            _link: no_links,
        })
    }

    /// Opens a counter with this context.
    pub(crate) fn cntr(&self, wait: enums::WaitObj, context: u64) -> Result<Arc<Cntr>> {
        let attr = CntrAttr {
            wait: wait_obj(wait)?,
            max_value: 0,
        };
        Cntr::open(&self.domain, attr, ident(3, context)?)
    }

    /// Opens a CQ of this many entries with the smallest format, with this context.
    pub(crate) fn cq(&self, entries: u32, wait: enums::WaitObj, context: u64) -> Result<Arc<Cq>> {
        let attr = CqAttr::new(entries, 0, wait_obj(wait)?, 0)?;
        Cq::open(&self.domain, attr, ident(4, context)?)
    }

    /// Opens an AV of `owner`.
    pub(crate) fn av(&self, owner: Ident) -> Result<Arc<Av>> {
        let attr = AvAttr {
            kind: AvType::Table,
            count: 0,
            events: false,
            rx_ctx_bits: RxCtxBits::default(),
        };
        Av::open(&self.domain, attr, owner)
    }
}

impl Drop for TestDomain {
    fn drop(&mut self) {
        force_close(&*self.domain);
    }
}
