// SPDX-License-Identifier: GPL-2.0
//! Domains: the objects on one link.

use std::sync::Arc;

use crate::{
    abi::{self, Call, calls},
    av::AvBuilder,
    buffer::Buffer,
    cntr::CntrBuilder,
    comp_cntr::{CompCntrBuilder, CompCntrCaps},
    counters::CountersBuilder,
    cq::CqBuilder,
    ep::EndpointBuilder,
    eq::Eq,
    error::Result,
    fabric::Fabric,
    flags::MrMode,
    mr::MrBuilder,
    object::{Inner, object},
    poll::PollSet,
    sep::ScalableEndpointBuilder,
    setters::setters,
};

/// Opens a domain; from [`Fabric::domain`].
#[derive(Debug)]
#[must_use = "nothing happens before `open`"]
pub struct DomainBuilder {
    fabric: Fabric,
    link: String,
    mr_mode: MrMode,
    context: u64,
}

impl DomainBuilder {
    pub(crate) fn new(fabric: &Fabric, link: &str) -> Self {
        Self {
            fabric: fabric.clone(),
            link: link.to_owned(),
            mr_mode: MrMode::empty(),
            context: 0,
        }
    }

    setters! {
        /// Naming and addressing of regions: [`MrMode::VIRT_ADDR`],
        /// [`MrMode::PROV_KEY`], both, or neither, which is the default.
        mr_mode(mode: MrMode) => mr_mode = mode;

        /// A number for the caller's own use.
        context(context: u64) => context = context;
    }

    /// Opens it.
    ///
    /// # Errors
    ///
    /// `ENODEV`: no such link, or its interface is gone; `EINVAL`: unknown
    /// mode; `EMFILE`; `ENOMEM`.
    pub fn open(self) -> Result<Domain> {
        let mut arg = abi::kfabric_domain_open {
            fabric: self.fabric.handle(),
            link: calls::chars("link", &self.link)?,
            mr_mode: self.mr_mode.bits(),
            context: self.context,
            ..Call::sized()
        };
        let device = self.fabric.device();
        calls::plain(device, &mut arg)
            .map_err(|error| error.on(format_args!("link {}", self.link)))?;
        Ok(Domain {
            inner: Inner::new(device, arg.handle, vec![self.fabric.as_hold()]),
        })
    }
}

/// An open domain: makes endpoints and the objects they need.
#[derive(Clone)]
pub struct Domain {
    inner: Arc<Inner>,
}

object!(Domain);

impl Domain {
    /// An endpoint, to be opened.
    pub fn endpoint(&self) -> EndpointBuilder {
        EndpointBuilder::new(self)
    }

    /// A scalable endpoint, to be opened.
    pub fn scalable_endpoint(&self) -> ScalableEndpointBuilder {
        ScalableEndpointBuilder::new(self)
    }

    /// A completion queue, to be opened.
    pub fn cq(&self) -> CqBuilder {
        CqBuilder::new(self)
    }

    /// A counter, to be opened.
    pub fn cntr(&self) -> CntrBuilder {
        CntrBuilder::new(self)
    }

    /// Counters of flows, to be opened.
    pub fn counters(&self) -> CountersBuilder {
        CountersBuilder::new(self)
    }

    /// A completion counter of verbs, to be created.
    pub fn comp_cntr<'fd>(&self) -> CompCntrBuilder<'fd> {
        CompCntrBuilder::new(self)
    }

    /// What its completion counters can do.
    ///
    /// # Errors
    ///
    /// Only those of every call.
    pub fn comp_cntr_caps(&self) -> Result<CompCntrCaps> {
        CompCntrCaps::of(self)
    }

    /// An address vector, to be opened.
    pub fn av(&self) -> AvBuilder {
        AvBuilder::new(self)
    }

    /// A memory region of this buffer, to be registered.
    pub fn mr<'a>(&self, buffer: &'a Buffer) -> MrBuilder<'a> {
        MrBuilder::new(self, buffer)
    }

    /// Opens a poll set.
    ///
    /// # Errors
    ///
    /// `EMFILE`; `ENOMEM`.
    pub fn poll_set(&self) -> Result<PollSet> {
        PollSet::open(self)
    }

    /// Reports to an event queue; with `async_reg`, registration of memory
    /// completes there (`KFI_REG_MR`).
    ///
    /// # Errors
    ///
    /// `EINVAL`: bound to an event queue already.
    pub fn bind_eq(&self, eq: &Eq, async_reg: bool) -> Result<()> {
        let flags = if async_reg { abi::KFI_REG_MR } else { 0 };
        self.inner.node.bind(eq.handle(), flags, eq.as_hold())
    }
}
