// SPDX-License-Identifier: GPL-2.0

//! What the suites of the provider stand on: a fabric, a domain on the loopback interface, threads
//! that can be waited for.
//!
//! The loopback interface of the first network namespace has to be up.

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full, //
        },
        Arc, //
    },
    time::{
        delay::fsleep,
        Delta, //
    }, //
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
        kthread::{
            self,
            Join, //
        },
        sched::now_ns, //
    }, //
};

/// Nanoseconds in a millisecond.
pub(crate) const MS: u64 = 1_000_000;

/// Time in which everything that must happen has happened, or it never does.
const LONG: u64 = 10_000 * MS;

/// A deadline that many milliseconds from now.
pub(crate) fn within(ms: u64) -> Deadline {
    Deadline::At(now_ns() + ms * MS)
}

/// A deadline that is only met if something was lost.
pub(crate) fn soon() -> Deadline {
    Deadline::At(now_ns() + LONG)
}

/// Sleeps until `holds`; false: it never did.
pub(crate) fn eventually(mut holds: impl FnMut() -> bool) -> bool {
    let end = now_ns() + LONG;
    while !holds() {
        if now_ns() > end {
            return false;
        }
        fsleep(Delta::from_micros(200));
    }
    true
}

/// Gives those time who would do what they must not.
pub(crate) fn a_while() {
    fsleep(Delta::from_millis(20));
}

/// A number that threads count with.
pub(crate) struct Count(Atomic<u32>);

impl Count {
    pub(crate) fn new() -> Result<Arc<Self>> {
        Ok(Arc::new(Self(Atomic::new(0)), GFP_KERNEL)?)
    }

    pub(crate) fn add(&self, n: u32) {
        self.0.fetch_add(n, Full);
    }

    pub(crate) fn get(&self) -> u32 {
        self.0.load(Acquire)
    }
}

/// Runs `run` in a thread.
pub(crate) fn thread(run: impl FnOnce() + Send + 'static) -> Result<Join> {
    kthread::spawn(c"kfi-test", run)
}

/// Someone with this handle and context.
pub(crate) fn ident(fid: u64, context: u64) -> Result<Ident> {
    Ok(Ident {
        fid,
        context,
        owner: Owner::current()?,
        budget: Budget::current()?,
    })
}

/// A wait object that needs no set.
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

/// `name` as it stands in the ABI.
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

/// A domain on a link on the loopback interface; both go when it is dropped.
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
