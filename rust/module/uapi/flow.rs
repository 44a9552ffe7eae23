// SPDX-License-Identifier: GPL-2.0

//! The calls `KFABRIC_IOC_COUNTERS_*` and `KFABRIC_IOC_FLOW_OPEN`.

use kfi_core::{
    errno::Errno,
    flow::{
        Description,
        Family,
        Fields,
        Point,
        Rule, //
    }, //
};

use super::prelude::*;
use crate::provider::{
    counters::Counters,
    ep::Endpoint,
    flow::{
        Flow,
        FlowAttr, //
    }, //
};

/// `KFABRIC_IOC_COUNTERS_OPEN`.
pub(super) fn counters_open(
    file: &OpenFile,
    arg: &mut kfabric_counters_open,
    ident: Ident,
) -> Result<Arc<Counters>> {
    must_be_zero(&[arg.flags])?;
    let domain = file.object::<Domain>(arg.domain)?;
    if arg.count == 0 {
        arg.count = limits::DEFAULT_COUNTERS;
    }
    if arg.count > limits::MAX_COUNTERS {
        return Err(EINVAL);
    }
    Counters::open(&domain, arg.count, ident)
}

/// `KFABRIC_IOC_COUNTERS_ATTACH`. A program finds out which descriptions flows have by the error
/// `EOPNOTSUPP`, so that is checked before the state of the objects.
pub(super) fn attach(file: &OpenFile, arg: &kfabric_counters_attach) -> Result {
    let counters = file.object::<Counters>(arg.counters)?;
    let flow = file.optional::<Flow>(arg.flow)?;
    must_be_zero(&[arg.comp_mask])?;
    let description = Description::try_from(arg.description).map_err(|_| EOPNOTSUPP)?;
    let point = Point {
        description,
        index: arg.index,
    };
    match flow {
        Some(flow) => flow.attach(&counters, point),
        None => counters.attach(point),
    }
}

/// `KFABRIC_IOC_COUNTERS_READ`. `KFABRIC_COUNTERS_PREFER_CACHED` allows older values. Reading the
/// present ones costs little, so there is no cache.
pub(super) fn read(file: &OpenFile, arg: &kfabric_counters_read) -> Result {
    let counters = file.object::<Counters>(arg.counters)?;
    must_be_zero(&[arg.reserved])?;
    must_be_zero(&[arg.flags & !u64::from(KFABRIC_COUNTERS_PREFER_CACHED)])?;
    let values = counters.read(arg.count)?;
    let mut writer = user_slice::<u64>(arg.values, arg.count as usize)?.writer();
    for value in values {
        writer.write(&value)?;
    }
    Ok(())
}

/// `KFABRIC_IOC_FLOW_OPEN`.
pub(super) fn open(
    file: &OpenFile,
    arg: &mut kfabric_flow_open,
    ident: Ident,
) -> Result<Arc<Flow>> {
    let endpoint = file.object::<Endpoint>(arg.ep)?;
    let counters = file.optional::<Counters>(arg.counters)?;
    let dont_trap = u64::from(KFABRIC_FLOW_DONT_TRAP);
    must_be_zero(&[arg.flags & !dont_trap])?;
    let attr = FlowAttr {
        rule: rule(arg).map_err(to_error)?,
        priority: arg.priority,
        dont_trap: arg.flags & dont_trap != 0,
    };
    Flow::open(&endpoint, counters.as_ref(), attr, ident)
}

/// The rule of a flow. Fails with `EINVAL`.
fn rule(arg: &kfabric_flow_open) -> Result<Rule, Errno> {
    let family = Family::from_number(arg.family)?;
    Rule::new(family, &fields(&arg.value)?, &fields(&arg.mask)?)
}

/// The values or the masks of a rule. Fails with `EINVAL` for a reserved byte that is not 0.
fn fields(raw: &kfabric_flow_match) -> Result<Fields, Errno> {
    if raw.reserved != [0; 5] {
        return Err(Errno::EINVAL);
    }
    Ok(Fields {
        src_ip: raw.src_ip,
        dest_ip: raw.dest_ip,
        src_port: raw.src_port,
        dest_qp: raw.dest_qp,
        src_qp: raw.src_qp,
        opcode: raw.opcode,
    })
}
