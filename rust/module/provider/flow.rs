// SPDX-License-Identifier: GPL-2.0

//! Flow: a rule at a datagram endpoint that counts the packets that match it.
//!
//! The rule is in the table of the endpoint's QP ([`FlowTable`]), where a softirq compares packets
//! with it. A [`Flow`] has the counter points and their bindings: the static points of the counters
//! object that it was made with, and dynamic points that were attached later. It is a use of its
//! endpoint and of each counters object, so these are closed after it.
//!
//! Closing a flow waits for nothing, so a file with many flows is released at once. See
//! [`net::flow`](crate::net::flow) for packets that arrive at the same time.

use kfi_core::{
    flow::{
        Point,
        Rule, //
    },
    limits::MAX_FLOW_POINTS, //
};

use super::{
    counters::{
        Binding,
        Counters, //
    },
    ep::Endpoint,
    object_list::{
        Class,
        ObjectListEntry,
        ObjectStats,
        StatsSource, //
    },
    prelude::*, //
};
use crate::net::{
    flow::{
        Counted,
        FlowTable,
        FlowValues, //
    },
    LinkState, //
};

/// The attributes of a flow.
pub(crate) struct FlowAttr {
    pub(crate) rule: Rule,
    /// Flows with a lower number come first.
    pub(crate) priority: u32,
    /// A packet of the flow can belong to later flows, too.
    pub(crate) dont_trap: bool,
}

/// The counter points of a flow, static and dynamic ones.
struct Points {
    points: KVec<(Arc<FlowValues>, Point)>,
    bindings: KVec<Binding>,
}

/// A flow.
#[pin_data]
pub(crate) struct Flow {
    endpoint: UseRef<Endpoint>,
    table: Arc<FlowTable>,
    counted: Arc<Counted>,
    priority: u32,
    /// Held across allocations and the replacement of what packets add to.
    #[pin]
    points: Mutex<Points>,
    uses: UseCount,
    ident: Ident,
    list_entry: ObjectListEntry,
    _memory: Allowance,
}

impl Flow {
    /// Makes a flow of `endpoint` that counts into the static points of `counters`.
    ///
    /// Fails with `EOPNOTSUPP` if the endpoint is not one for datagrams; `EPERM` if the current
    /// task lacks CAP_NET_RAW in the user namespace that owns the link's network namespace;
    /// `ENODEV` if the link has gone; `EINVAL` if the counters belong to another domain or have no
    /// static points; `ENOSPC` if the endpoint has too many flows; `EBADF` if an object is closed;
    /// `ENOMEM`. Sleeps.
    pub(crate) fn open(
        endpoint: &Arc<Endpoint>,
        counters: Option<&Arc<Counters>>,
        attr: FlowAttr,
        ident: Ident,
    ) -> Result<Arc<Self>> {
        let table = endpoint.flows()?.clone();
        let link = endpoint.domain().link();
        link.socket().check_net_raw()?;
        if link.state() == LinkState::Gone {
            return Err(ENODEV);
        }
        let memory = ident.budget.take_for::<Self>(Counted::bytes())?;
        let counted = Counted::new()?;
        let mut points = KVec::with_capacity(MAX_FLOW_POINTS, GFP_KERNEL_ACCOUNT)?;
        let mut bindings = KVec::new();
        if let Some(counters) = counters {
            if !Arc::ptr_eq(counters.domain(), endpoint.domain()) {
                return Err(EINVAL);
            }
            bindings.reserve(1, GFP_KERNEL_ACCOUNT)?;
            // Both have room: a counters object has no more points than a flow can have.
            let binding = Binding::of_static(counters, |point| {
                let point = (counters.values().clone(), point);
                points.push_within_capacity(point).map_err(|_| ENOSPC)
            })?;
            bindings.push_within_capacity(binding).map_err(|_| ENOMEM)?;
            counted.set_points(points.iter().map(of_point), &ident.budget)?;
        }
        let flow = Arc::pin_init(
            try_pin_init!(Self {
                endpoint: UseRef::new(endpoint.clone())?,
                table,
                counted,
                priority: attr.priority,
                points <- new_mutex!(Points { points, bindings }, "Flow::points"),
                uses: UseCount::new(),
                ident,
                list_entry: ObjectListEntry::new(),
                _memory: memory,
            }? Error),
            GFP_KERNEL_ACCOUNT,
        )?;
        flow.list_entry.enter(flow.clone())?;
        let inserted = flow
            .table
            .insert(attr.rule, attr.priority, attr.dont_trap, &flow.counted);
        inserted.inspect_err(|_| flow.list_entry.leave())?;
        Ok(flow)
    }

    /// Attaches a dynamic point: packets of the flow are counted there from now on.
    ///
    /// Fails with `EINVAL` if the counters belong to another domain or have no such index; `EBUSY`
    /// while they are bound statically; `ENOSPC` if the flow has too many points; `EBADF` if an
    /// object is closed; `ENOMEM`. Nothing has changed then. Sleeps.
    pub(crate) fn attach(&self, counters: &Arc<Counters>, point: Point) -> Result {
        // The flow is not closed during the call.
        let _using = UseGuard::new(self)?;
        if !Arc::ptr_eq(counters.domain(), self.endpoint.domain()) {
            return Err(EINVAL);
        }
        let mut points = self.points.lock();
        let Points { points, bindings } = &mut *points;
        let binding = Binding::of_point(counters, point)?;
        if points.len() >= MAX_FLOW_POINTS {
            return Err(ENOSPC);
        }
        bindings.reserve(1, GFP_KERNEL_ACCOUNT)?;
        points.push((counters.values().clone(), point), GFP_KERNEL_ACCOUNT)?;
        let set = self
            .counted
            .set_points(points.iter().map(of_point), &self.ident.budget);
        if let Err(error) = set {
            let refused = points.pop();
            drop(refused);
            return Err(error);
        }
        bindings.push_within_capacity(binding).map_err(|_| ENOMEM)
    }
}

/// A point by reference.
fn of_point(point: &(Arc<FlowValues>, Point)) -> (&Arc<FlowValues>, Point) {
    (&point.0, point.1)
}

impl Object for Flow {
    fn uses(&self) -> &UseCount {
        &self.uses
    }

    fn teardown(&self) {
        self.list_entry.leave();
        self.table.remove(&self.counted);
        let bindings = core::mem::replace(&mut self.points.lock().bindings, KVec::new());
        drop(bindings);
        self.endpoint.release();
    }
}

impl StatsSource for Flow {
    fn class(&self) -> Class {
        Class::Flow
    }

    fn ident(&self) -> &Ident {
        &self.ident
    }

    fn domain(&self) -> &Arc<Domain> {
        self.endpoint.domain()
    }

    fn stats(&self) -> ObjectStats {
        let (packets, bytes) = self.counted.totals();
        let points = self.points.lock().points.len();
        ObjectStats {
            addr: self.endpoint.addr(),
            values: [
                packets,
                bytes,
                self.priority.into(),
                points as u64,
                self.endpoint.ident().handle().into(),
                0,
                0,
                0,
            ],
        }
    }
}
