// SPDX-License-Identifier: GPL-2.0

//! Flow: a rule at a datagram endpoint, or a QP of verbs, that counts the packets that match it.
//!
//! The rule is in the table of the QP ([`FlowTable`]), where a softirq compares packets with it. A
//! [`Flow`] has the counter points and their bindings: the static points of the counters object
//! that it was made with, and dynamic points that were attached later. It is a use of its endpoint
//! and of each counters object, so these are closed after it. A QP of verbs counts its own uses;
//! its flow is a use of the domain.
//!
//! Closing a flow waits for nothing, so a file with many flows is released at once. See
//! [`net::flow`](crate::net::flow) for packets that arrive at the same time.

use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

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

/// The counter points of a flow, static and dynamic ones. Both have room for [`MAX_FLOW_POINTS`].
struct Points {
    points: KVec<(Arc<FlowValues>, Point)>,
    bindings: KVec<Binding>,
}

impl Points {
    /// Bytes of memory.
    const BYTES: usize =
        MAX_FLOW_POINTS * (size_of::<(Arc<FlowValues>, Point)>() + size_of::<Binding>());

    /// No points. Fails with `ENOMEM`. Sleeps.
    fn new() -> Result<Self> {
        Ok(Self {
            points: KVec::with_capacity(MAX_FLOW_POINTS, GFP_KERNEL_ACCOUNT)?,
            bindings: KVec::with_capacity(MAX_FLOW_POINTS, GFP_KERNEL_ACCOUNT)?,
        })
    }
}

/// What a flow belongs to.
enum Subject {
    /// An endpoint.
    Endpoint(UseRef<Endpoint>),
    /// A QP of verbs, which counts into objects of this domain.
    Qp(UseRef<Domain>),
}

impl Subject {
    /// The domain of the flow.
    fn domain(&self) -> &Arc<Domain> {
        match self {
            Self::Endpoint(endpoint) => endpoint.domain(),
            Self::Qp(domain) => domain.arc(),
        }
    }

    /// Releases the use. Idempotent.
    fn release(&self) {
        match self {
            Self::Endpoint(endpoint) => endpoint.release(),
            Self::Qp(domain) => domain.release(),
        }
    }
}

/// A flow.
#[pin_data]
pub(crate) struct Flow {
    subject: Subject,
    table: Arc<FlowTable>,
    counted: Arc<Counted>,
    priority: u32,
    /// Held across allocations and the replacement of what packets add to.
    #[pin]
    points: Mutex<Points>,
    /// The number of points. Readers of statistics do not take the lock: they may be tasks of
    /// another user, and closing the flow would wait for them.
    points_len: Atomic<u32>,
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
        let subject = Subject::Endpoint(UseRef::new(endpoint.clone())?);
        Self::make(subject, table, counters, attr, ident)
    }

    /// Makes a flow of a QP of verbs with this table, which counts into the static points of
    /// `counters`. `domain` is that of the QP's program.
    ///
    /// Fails as [`open`](Self::open). Sleeps.
    pub(crate) fn of_table(
        domain: &Arc<Domain>,
        table: &Arc<FlowTable>,
        counters: Option<&Arc<Counters>>,
        attr: FlowAttr,
        ident: Ident,
    ) -> Result<Arc<Self>> {
        let subject = Subject::Qp(UseRef::new(domain.clone())?);
        Self::make(subject, table.clone(), counters, attr, ident)
    }

    fn make(
        subject: Subject,
        table: Arc<FlowTable>,
        counters: Option<&Arc<Counters>>,
        attr: FlowAttr,
        ident: Ident,
    ) -> Result<Arc<Self>> {
        let link = subject.domain().link();
        link.socket().check_net_raw()?;
        if link.state() == LinkState::Gone {
            return Err(ENODEV);
        }
        let memory = ident.budget.take_for::<Self>(Self::more_bytes())?;
        let counted = Counted::new()?;
        let Points {
            mut points,
            mut bindings,
        } = Points::new()?;
        if let Some(counters) = counters {
            if !Arc::ptr_eq(counters.domain(), subject.domain()) {
                return Err(EINVAL);
            }
            // Both have room: a counters object has no more points than a flow can have.
            let binding = Binding::of_static(counters, |point| {
                let point = (counters.values().clone(), point);
                points.push_within_capacity(point).map_err(|_| ENOSPC)
            })?;
            bindings.push_within_capacity(binding).map_err(|_| ENOMEM)?;
            counted.set_points(points.iter().map(of_point), &ident.budget)?;
        }
        let points_len = u32::try_from(points.len())?;
        let flow = Arc::pin_init(
            try_pin_init!(Self {
                subject,
                table,
                counted,
                priority: attr.priority,
                points <- new_mutex!(Points { points, bindings }, "Flow::points"),
                points_len: Atomic::new(points_len),
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
        if !Arc::ptr_eq(counters.domain(), self.subject.domain()) {
            return Err(EINVAL);
        }
        let mut points = self.points.lock();
        let Points { points, bindings } = &mut *points;
        let binding = Binding::of_point(counters, point)?;
        if points.len() >= MAX_FLOW_POINTS {
            return Err(ENOSPC);
        }
        // Both have room: there are no more bindings than points.
        points
            .push_within_capacity((counters.values().clone(), point))
            .map_err(|_| ENOSPC)?;
        let set = self
            .counted
            .set_points(points.iter().map(of_point), &self.ident.budget);
        if let Err(error) = set {
            let refused = points.pop();
            drop(refused);
            return Err(error);
        }
        self.points_len.store(points.len() as u32, Relaxed);
        bindings.push_within_capacity(binding).map_err(|_| ENOMEM)
    }

    /// Bytes of memory that a flow uses beside its own.
    fn more_bytes() -> usize {
        Counted::bytes() + FlowTable::ENTRY_BYTES + Points::BYTES
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
        self.subject.release();
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
        self.subject.domain()
    }

    fn stats(&self) -> ObjectStats {
        let (packets, bytes) = self.counted.totals();
        let (addr, endpoint) = match &self.subject {
            Subject::Endpoint(endpoint) => (endpoint.addr(), endpoint.ident().handle()),
            Subject::Qp(_) => (None, 0),
        };
        ObjectStats {
            addr,
            values: [
                packets,
                bytes,
                self.priority.into(),
                self.points_len.load(Relaxed).into(),
                endpoint.into(),
                0,
                0,
                0,
            ],
        }
    }
}
