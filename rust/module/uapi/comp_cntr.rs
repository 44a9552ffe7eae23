// SPDX-License-Identifier: GPL-2.0

//! The calls `KFABRIC_IOC_COMP_CNTR_*`.

use kfi_core::{
    enums::{
        CompCntrEntry,
        CompCntrModifyOp,
        CompCntrType,
        MemoryLocationType, //
    },
    flags::{
        CompCntrInit,
        CompCntrOps, //
    }, //
};

use super::{
    file::offset_of,
    prelude::*, //
};
use crate::{
    mem::{
        Budget,
        PinnedWord, //
    },
    provider::{
        comp_cntr::{
            Caps,
            CompCntr,
            CompCntrAttr, //
        },
        ep::Endpoint, //
    }, //
};

/// `KFABRIC_IOC_COMP_CNTR_CAPS`. All domains have the same capabilities.
pub(super) fn caps(file: &OpenFile, arg: &mut kfabric_comp_cntr_caps) -> Result {
    file.object::<Domain>(arg.domain)?;
    let caps = Caps::current();
    arg.max_value = caps.max_value;
    arg.max_counters = caps.max_counters;
    arg.supported_qp_attach_ops = caps.ops.bits();
    Ok(())
}

/// `KFABRIC_IOC_COMP_CNTR_CREATE`.
pub(super) fn create(
    file: &OpenFile,
    arg: &mut kfabric_comp_cntr_create,
    ident: Ident,
) -> Result<Arc<CompCntr>> {
    // No field is optional.
    must_be_zero(&[arg.comp_mask])?;
    let flags = CompCntrInit::from_bits(arg.flags).map_err(to_error)?;
    let unit = CompCntrType::try_from(arg.type_).map_err(to_error)?;
    let domain = file.object::<Domain>(arg.domain)?;
    let external = if flags.contains(CompCntrInit::WITH_EXTERNAL_MEM) {
        Some([
            location(&arg.comp_cntr_ext_mem, &ident.budget)?,
            location(&arg.err_cntr_ext_mem, &ident.budget)?,
        ])
    } else {
        None
    };
    let page_offset = offset_of(ident.fid);
    let cntr = CompCntr::create(&domain, CompCntrAttr { unit, external }, ident)?;
    arg.page_offset = page_offset;
    arg.comp_count_max_value = cntr.max_value();
    arg.err_count_max_value = cntr.max_value();
    Ok(cntr)
}

/// The word for a copy of a value. Fails as [`PinnedWord::at`] and [`PinnedWord::in_dma_buf`];
/// `EINVAL` for an unknown type, or the address of a program's own mapping of a DMA-BUF that is not
/// a multiple of 8. That address has no other use. Sleeps.
fn location(at: &kfabric_memory_location, budget: &Budget) -> Result<PinnedWord> {
    match MemoryLocationType::try_from(at.type_).map_err(to_error)? {
        MemoryLocationType::Va => PinnedWord::at(at.ptr),
        MemoryLocationType::DmaBuf if at.ptr % size_of::<u64>() as u64 != 0 => Err(EINVAL),
        MemoryLocationType::DmaBuf => PinnedWord::in_dma_buf(at.fd, at.offset, budget),
    }
}

/// `KFABRIC_IOC_COMP_CNTR_MODIFY`.
pub(super) fn modify(file: &OpenFile, arg: &kfabric_comp_cntr_modify) -> Result {
    let entry = CompCntrEntry::try_from(arg.entry).map_err(to_error)?;
    let op = CompCntrModifyOp::try_from(arg.op).map_err(to_error)?;
    file.object::<CompCntr>(arg.comp_cntr)?
        .modify(entry, op, arg.value)
}

/// `KFABRIC_IOC_COMP_CNTR_READ`.
pub(super) fn read(file: &OpenFile, arg: &mut kfabric_comp_cntr_read) -> Result {
    must_be_zero(&[arg.reserved])?;
    let entry = CompCntrEntry::try_from(arg.entry).map_err(to_error)?;
    arg.value = file.object::<CompCntr>(arg.comp_cntr)?.read(entry);
    Ok(())
}

/// `KFABRIC_IOC_COMP_CNTR_ATTACH`.
pub(super) fn attach(file: &OpenFile, arg: &kfabric_comp_cntr_attach) -> Result {
    // No field is optional.
    must_be_zero(&[arg.comp_mask, arg.reserved])?;
    let ops = CompCntrOps::from_bits(arg.op_mask).map_err(to_error)?;
    let ep = file.object::<Endpoint>(arg.ep)?;
    let cntr = file.object::<CompCntr>(arg.comp_cntr)?;
    ep.attach_comp_cntr(&cntr, ops)
}
