// SPDX-License-Identifier: GPL-2.0

//! Counters of packets, and flows of QPs for datagrams that count into them.
//!
//! Both are objects of the provider ([`counters`](crate::provider::counters),
//! [`flow`](crate::provider::flow)), in the domain of the context. A QP for datagrams has a table
//! of flows. `kfabric_ib.ko` translates the specifications of a flow into fields and masks, and
//! keeps a QP and counters that a flow uses.
//!
//! All functions need process context and may sleep, unless their documentation says otherwise.

use kernel::{
    prelude::*,
    sync::Arc,
    types::ForeignOwnable, //
};

use kfi_core::{
    flow::{
        Description,
        Family,
        Fields,
        Point,
        Rule, //
    },
    limits, //
};

use super::{
    code,
    context::Context,
    declared,
    handle,
    qp::Qp,
    raw::{
        self,
        kfabric_verbs_context,
        kfabric_verbs_counters,
        kfabric_verbs_flow,
        kfabric_verbs_match,
        kfabric_verbs_qp,
        kfabric_verbs_rule, //
    }, //
};
use crate::{
    provider::{
        counters::Counters,
        flow::{
            Flow,
            FlowAttr, //
        },
        object::{
            self,
            Object, //
        }, //
    },
    shim::errno::to_error, //
};

// `kfabric_ib.ko` keeps the counters of all points.
const _: () = assert!(raw::KFABRIC_VERBS_MAX_POINTS as usize == limits::MAX_FLOW_POINTS);

/// The values or the masks of a rule.
fn fields(raw: &kfabric_verbs_match) -> Fields {
    Fields {
        src_ip: raw.src_ip,
        dest_ip: raw.dest_ip,
        src_port: raw.src_port,
        ..Fields::default()
    }
}

impl Qp {
    /// Makes a flow of the QP, which counts into the static points of `counters`.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the QP is not a program's QP for datagrams; a value has a bit that is not in its
    ///   mask; the counters have no static points.
    /// - `EPERM`: the task lacks CAP_NET_RAW in the network namespace of the interface.
    /// - `ENODEV`: the interface has gone.
    /// - `ENOSPC`: the QP has too many flows.
    /// - `ENOMEM`.
    pub(super) fn flow(
        &self,
        counters: Option<&Arc<Counters>>,
        rule: &kfabric_verbs_rule,
    ) -> Result<Arc<Flow>> {
        let table = self.flows()?;
        let family = Family::from_number(rule.family).map_err(to_error)?;
        let attr = FlowAttr {
            rule: Rule::new(family, &fields(&rule.value), &fields(&rule.mask)).map_err(to_error)?,
            priority: rule.priority,
            dont_trap: rule.dont_trap,
        };
        let (domain, ident) = self.pd().context().domain()?;
        Flow::of_table(&domain, table, counters, attr, ident)
    }
}

/// Ends an object and its handle, unless it is in use (`EBUSY`).
///
/// # Safety
///
/// The handle is one of a `T` and valid by the interface; it is ended by a call that succeeds.
unsafe fn destroy<T: Object + 'static>(object: *mut c_void) -> c_int {
    // SAFETY: By the requirement above.
    let closed = object::close(&*unsafe { Arc::<T>::borrow(object) });
    if closed.is_ok() {
        // SAFETY: By the requirement above.
        drop(unsafe { Arc::<T>::from_foreign(object) });
    }
    code(closed)
}

declared! {
    kfabric_verbs_counters_create: fn(*mut kfabric_verbs_context) -> *mut kfabric_verbs_counters;
    kfabric_verbs_counters_destroy: fn(*mut kfabric_verbs_counters) -> c_int;
    kfabric_verbs_counters_read: fn(*const kfabric_verbs_counters, *mut u64, u32) -> c_int;
    kfabric_verbs_counters_attach:
        fn(*mut kfabric_verbs_counters, *mut kfabric_verbs_flow, u32, u32) -> c_int;
    kfabric_verbs_flow_create: fn(
        *mut kfabric_verbs_qp, *mut kfabric_verbs_counters, *const kfabric_verbs_rule,
    ) -> *mut kfabric_verbs_flow;
    kfabric_verbs_flow_destroy: fn(*mut kfabric_verbs_flow) -> c_int;
}

/// Counters of a context, all 0. Fails with `ENODEV` if the interface has gone, `ENOMEM`.
///
/// # Safety
///
/// The handle is valid by the interface.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_counters_create(
    context: *mut kfabric_verbs_context,
) -> *mut kfabric_verbs_counters {
    // SAFETY: By the requirement above.
    let context = unsafe { Arc::<Context>::borrow(context.cast()) };
    let counters = context
        .domain()
        .and_then(|(domain, ident)| Counters::open(&domain, limits::DEFAULT_COUNTERS, ident));
    handle(counters)
}

/// Ends counters, unless a flow counts into them (`EBUSY`).
///
/// # Safety
///
/// The handle is valid by the interface; it is ended by a call that succeeds.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_counters_destroy(
    counters: *mut kfabric_verbs_counters,
) -> c_int {
    // SAFETY: By the requirement above.
    unsafe { destroy::<Counters>(counters.cast()) }
}

/// Stores the first `count` values. Fails with `EINVAL` for none, or more than there are. Does not
/// sleep.
///
/// # Safety
///
/// The handle is valid by the interface; `values` has room for `count` values.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_counters_read(
    counters: *const kfabric_verbs_counters,
    values: *mut u64,
    count: u32,
) -> c_int {
    // SAFETY: By the requirement above.
    let counters = unsafe { Arc::<Counters>::borrow(counters.cast_mut().cast()) };
    let read = || {
        for (at, value) in counters.read(count)?.enumerate() {
            // SAFETY: By the requirement above; there are `count` values.
            unsafe { values.add(at).write(value) };
        }
        Ok(())
    };
    code(read())
}

/// Attaches a counter point, to a flow or, without one, statically.
///
/// # Errors
///
/// - `EOPNOTSUPP`: flows do not have this description.
/// - `EINVAL`: there is no such index.
/// - `EBUSY`: the counters are bound statically to a flow.
/// - `ENOSPC`: the counters or the flow have as many points as a flow can have.
/// - `ENOMEM`.
///
/// # Safety
///
/// The handles are valid by the interface.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_counters_attach(
    counters: *mut kfabric_verbs_counters,
    flow: *mut kfabric_verbs_flow,
    description: u32,
    index: u32,
) -> c_int {
    // SAFETY: By the requirement above.
    let counters = unsafe { Arc::<Counters>::borrow(counters.cast()) };
    let attach = || {
        let description = Description::try_from(description).map_err(|_| EOPNOTSUPP)?;
        let point = Point { description, index };
        if flow.is_null() {
            return counters.attach(point);
        }
        // SAFETY: By the requirement above.
        let flow = unsafe { Arc::<Flow>::borrow(flow.cast()) };
        flow.attach(&counters.into(), point)
    };
    code(attach())
}

/// A flow of a QP, with counters or none. Fails as [`Qp::flow`].
///
/// # Safety
///
/// The arguments are valid by the interface.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_flow_create(
    qp: *mut kfabric_verbs_qp,
    counters: *mut kfabric_verbs_counters,
    rule: *const kfabric_verbs_rule,
) -> *mut kfabric_verbs_flow {
    // SAFETY: By the requirement above.
    let (qp, rule) = unsafe { (Qp::borrow(qp), &*rule) };
    let counters = match counters.is_null() {
        true => None,
        // SAFETY: By the requirement above.
        false => Some(unsafe { Arc::<Counters>::borrow(counters.cast()) }.into()),
    };
    handle(qp.flow(counters.as_ref(), rule))
}

/// Ends a flow. Packets that arrive afterwards are not counted.
///
/// # Safety
///
/// The handle is valid by the interface; it is ended by a call that succeeds.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_flow_destroy(flow: *mut kfabric_verbs_flow) -> c_int {
    // SAFETY: By the requirement above.
    unsafe { destroy::<Flow>(flow.cast()) }
}
