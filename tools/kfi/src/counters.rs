// SPDX-License-Identifier: GPL-2.0
//! The counters of flows: arrays of values, to which packets add.
//!
//! The interface of `ibv_counters`: a counter point says what each packet of a
//! [`Flow`] adds to the value at an index.  Points of a [`Counters`] take effect
//! when a flow is made with it ([`FlowBuilder::counters`]); points for one flow
//! at once.
//!
//! A [`Cntr`](crate::Cntr) is something else: it counts completed operations,
//! and threads wait for it.
//!
//! [`FlowBuilder::counters`]: crate::FlowBuilder::counters

use std::sync::Arc;

use crate::{
    abi::{self, Call, calls},
    domain::Domain,
    error::Result,
    flow::Flow,
    object::{Node, object},
    setters::setters,
};

/// What a counter point adds for each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CounterDescription {
    /// One.
    Packets,
    /// The bytes of the packet, from the BTH to the ICRC.
    Bytes,
}

impl CounterDescription {
    fn raw(self) -> u32 {
        match self {
            Self::Packets => abi::KFABRIC_COUNTER_PACKETS,
            Self::Bytes => abi::KFABRIC_COUNTER_BYTES,
        }
    }
}

/// Makes a counters object; from [`Domain::counters`].
#[derive(Debug)]
#[must_use = "nothing happens before `open`"]
pub struct CountersBuilder {
    domain: Domain,
    count: u32,
    context: u64,
}

impl CountersBuilder {
    pub(crate) fn new(domain: &Domain) -> Self {
        Self {
            domain: domain.clone(),
            count: 0,
            context: 0,
        }
    }

    setters! {
        /// Number of values; 0, as without this: 16.
        count(count: u32) => count = count;

        /// A number for the caller's own use.
        context(context: u64) => context = context;
    }

    /// Makes it.
    ///
    /// # Errors
    ///
    /// `EINVAL`: more values than [`Query::max_counters`](crate::Query);
    /// `EMFILE`; `ENOMEM`.
    pub fn open(self) -> Result<Counters> {
        let mut arg = abi::kfabric_counters_open {
            domain: self.domain.handle(),
            count: self.count,
            context: self.context,
            ..Call::sized()
        };
        let device = self.domain.device();
        calls::plain(device, &mut arg)?;
        Ok(Counters {
            inner: Arc::new(CountersInner {
                node: Node::new(device, arg.handle, vec![self.domain.as_hold()]),
                count: arg.count as usize,
            }),
        })
    }
}

struct CountersInner {
    node: Node,
    count: usize,
}

/// A counters object: values that only grow, beginning with 0.
#[derive(Clone)]
pub struct Counters {
    inner: Arc<CountersInner>,
}

object!(Counters);

impl Counters {
    /// The number of values.
    pub fn count(&self) -> usize {
        self.inner.count
    }

    /// Attaches a point for the flows that will be made with this object.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: no such index.
    /// - `EBUSY`: a flow was made with this object, which has been bound to
    ///   some flow ever since.
    /// - `ENOSPC`: it has as many points as a flow can have
    ///   ([`Query::max_flow_points`](crate::Query)).
    pub fn attach(&self, description: CounterDescription, index: u32) -> Result<()> {
        self.attach_point(0, description, index)
    }

    /// Attaches a point for a flow that exists.
    ///
    /// # Errors
    ///
    /// As [`Counters::attach`]; `EINVAL`: the flow is of another domain;
    /// `ENOSPC`: the flow has too many points.
    pub fn attach_to(
        &self,
        flow: &Flow,
        description: CounterDescription,
        index: u32,
    ) -> Result<()> {
        self.attach_point(flow.handle(), description, index)?;
        flow.hold(self.as_hold());
        Ok(())
    }

    fn attach_point(&self, flow: u32, description: CounterDescription, index: u32) -> Result<()> {
        let mut arg = abi::kfabric_counters_attach {
            counters: self.handle(),
            flow,
            description: description.raw(),
            index,
            ..Call::sized()
        };
        calls::plain(self.device(), &mut arg)
    }

    /// All values, in the order of their indices.
    ///
    /// # Errors
    ///
    /// Only those of every call.
    pub fn values(&self) -> Result<Vec<u64>> {
        let mut values = vec![0; self.count()];
        self.read(&mut values)?;
        Ok(values)
    }

    /// Fills `values` with the values from index 0 on.
    ///
    /// # Errors
    ///
    /// `EINVAL`: no values, or more than there are.
    pub fn read(&self, values: &mut [u64]) -> Result<()> {
        calls::counters_read(self.device(), self.handle(), 0, values)
    }

    /// As [`Counters::read`]; the values may be older than the call.  This
    /// device has no older ones.
    ///
    /// # Errors
    ///
    /// As [`Counters::read`].
    pub fn read_cached(&self, values: &mut [u64]) -> Result<()> {
        let flags = abi::KFABRIC_COUNTERS_PREFER_CACHED.into();
        calls::counters_read(self.device(), self.handle(), flags, values)
    }
}
