// SPDX-License-Identifier: GPL-2.0

//! The calls `KFABRIC_IOC_CNTR_*`.

use kfi_core::enums::CntrEvents;

use super::{
    file::offset_of,
    parse::{
        restarted_deadline,
        wait_obj, //
    },
    prelude::*, //
};
use crate::provider::cntr::{
    Cntr,
    CntrAttr, //
};

/// `KFABRIC_IOC_CNTR_OPEN`.
pub(super) fn open(
    file: &OpenFile,
    arg: &mut kfabric_cntr_open,
    ident: Ident,
) -> Result<Arc<Cntr>> {
    must_be_zero(&[arg.flags])?;
    let CntrEvents::Comp = CntrEvents::try_from(arg.events).map_err(to_error)?;
    let domain = file.object::<Domain>(arg.domain)?;
    let attr = CntrAttr {
        wait: wait_obj(file, arg.wait_obj, arg.wait_set)?,
        max_value: arg.max_value,
    };
    arg.page_offset = offset_of(ident.fid);
    Cntr::open(&domain, attr, ident)
}

/// `KFABRIC_IOC_CNTR_READ`.
pub(super) fn read(file: &OpenFile, arg: &mut kfabric_cntr_read) -> Result {
    let cntr = file.object::<Cntr>(arg.cntr)?;
    arg.value = cntr.read();
    arg.err = cntr.err();
    Ok(())
}

/// `KFABRIC_IOC_CNTR_MODIFY`.
#[link_section = ".text.hot"]
pub(super) fn modify(file: &OpenFile, arg: &kfabric_cntr_modify) -> Result {
    must_be_zero(&[arg.reserved])?;
    let cntr = file.object::<Cntr>(arg.cntr)?;
    match arg.what {
        KFABRIC_CNTR_ADD => cntr.add_here(arg.value),
        KFABRIC_CNTR_SET => cntr.set_here(arg.value)?,
        KFABRIC_CNTR_ADDERR => cntr.adderr_here(arg.value),
        KFABRIC_CNTR_SETERR => cntr.seterr_here(arg.value)?,
        _ => return Err(EINVAL),
    }
    Ok(())
}

/// `KFABRIC_IOC_CNTR_WAIT`. The values are reported whether or not the wait succeeds.
#[link_section = ".text.hot"]
pub(super) fn wait(file: &OpenFile, arg: &mut kfabric_cntr_wait) -> Result {
    let cntr = file.object::<Cntr>(arg.cntr)?;
    let deadline = restarted_deadline(arg.deadline, arg.began);
    let result = cntr.wait(arg.threshold, deadline, &mut arg.began);
    arg.value = cntr.read();
    arg.err = cntr.err();
    result
}
