// SPDX-License-Identifier: GPL-2.0
//! The fabric of a network namespace, to which event queues, wait sets and
//! domains belong.

use std::{net::SocketAddr, sync::Arc};

use crate::{
    abi::{self, Call, calls},
    device::Device,
    domain::DomainBuilder,
    eq::EqBuilder,
    error::Result,
    object::{Inner, object},
    pep::PassiveEndpointBuilder,
    wait::WaitSet,
};

/// An open fabric; from [`Device::fabric`].
#[derive(Clone)]
pub struct Fabric {
    inner: Arc<Inner>,
}

object!(Fabric);

impl Fabric {
    pub(crate) fn open(device: &Device, context: u64) -> Result<Self> {
        let mut arg = abi::kfabric_fabric_open {
            context,
            ..Call::sized()
        };
        calls::plain(device, &mut arg)?;
        Ok(Self {
            inner: Inner::new(device, arg.handle, Vec::new()),
        })
    }

    /// A domain on the link with this name, to be opened.
    pub fn domain(&self, link: &str) -> DomainBuilder {
        DomainBuilder::new(self, link)
    }

    /// An event queue, to be opened.
    pub fn eq(&self) -> EqBuilder {
        EqBuilder::new(self)
    }

    /// A passive endpoint, to be opened, that is to listen at this address:
    /// that of a link, or `0.0.0.0` or `::` for all; with port 0 the module
    /// chooses a port.
    pub fn passive_endpoint(&self, addr: SocketAddr) -> PassiveEndpointBuilder {
        PassiveEndpointBuilder::new(self, addr)
    }

    /// Opens a wait set.
    ///
    /// # Errors
    ///
    /// `EMFILE`; `ENOMEM`.
    pub fn wait_set(&self) -> Result<WaitSet> {
        WaitSet::open(self)
    }
}
