// SPDX-License-Identifier: GPL-2.0

//! Helpers of the provider's suites: a fabric, a domain on the loopback interface, deadlines.
//!
//! The loopback interface of the first network namespace must be up.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use kfi_core::{
    enums,
    limits::LINK_NAME_MAX as NAME_MAX,
    wait::Deadline, //
};

use crate::{
    mem::Budget,
    net::{
        self,
        IfName,
        LinkName,
        NetNs,
        NetNsId, //
    },
    provider::{
        domain::{
            Domain,
            MrMode, //
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
        sched::now_ns, //
    }, //
};

pub(crate) use super::helpers::{
    a_while,
    allow_kill,
    eventually,
    thread,
    Count,
    LONG,
    MS, //
};

/// Returns a deadline this many milliseconds from now.
pub(crate) fn within(ms: u64) -> Deadline {
    Deadline::At(now_ns() + ms * MS)
}

/// Returns a deadline that expires only if a wake-up was lost.
pub(crate) fn soon() -> Deadline {
    Deadline::At(now_ns() + LONG)
}

/// Returns the identity of an object with this handle and context.
pub(crate) fn ident(fid: u64, context: u64) -> Result<Ident> {
    Ok(Ident {
        fid,
        context,
        owner: Owner::current()?,
        budget: Budget::current()?,
    })
}

/// Makes a wait object that is not a wait set.
pub(crate) fn wait_obj(kind: enums::WaitObj) -> Result<WaitObj> {
    WaitObj::new(kind.into(), None)
}

/// A fabric of this network namespace, closed when dropped.
pub(crate) struct TestFabric(pub(crate) Arc<Fabric>);

impl TestFabric {
    pub(crate) fn open() -> Result<Self> {
        Ok(Self(Fabric::open(NetNsId::current()?, ident(1, 1)?)?))
    }
}

impl Drop for TestFabric {
    fn drop(&mut self) {
        force_close(&*self.0);
    }
}

/// Returns `name` in the form of the ABI.
fn raw(name: &[u8]) -> [u8; NAME_MAX] {
    let mut raw = [0; NAME_MAX];
    for (to, from) in raw.iter_mut().zip(name) {
        *to = *from;
    }
    raw
}

fn link_name() -> Result<LinkName> {
    LinkName::new(&raw(b"kfi-test"))
}

/// A domain on a link on the loopback interface. Dropping it removes both.
pub(crate) struct TestDomain {
    pub(crate) domain: Arc<Domain>,
    pub(crate) fabric: TestFabric,
}

impl TestDomain {
    pub(crate) fn open() -> Result<Self> {
        let fabric = TestFabric::open()?;
        let link = net::add(&NetNs::current()?, link_name()?, IfName::new(&raw(b"lo"))?)?;
        let mode = MrMode {
            virt_addr: false,
            prov_key: false,
        };
        let domain = Domain::open(&fabric.0, link.open()?, mode, ident(2, 2)?)?;
        Ok(Self { domain, fabric })
    }
}

impl Drop for TestDomain {
    fn drop(&mut self) {
        force_close(&*self.domain);
        if let (Ok(netns), Ok(name)) = (NetNs::current(), link_name()) {
            let _ = net::del(&netns, &name);
        }
    }
}
