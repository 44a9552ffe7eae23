// SPDX-License-Identifier: GPL-2.0

//! `KFABRIC_IOC_BIND`: the objects that can be bound to each other, and the flags.
//!
//! The function has one arm for each allowed pair. The objects themselves check their own rules
//! (same domain, one CQ for each direction, endpoint not enabled).

use kernel::prelude::*;

use kfi_core::flags::{
    CntrBind,
    CqBind,
    KFI_REG_MR, //
};

use super::{
    file::OpenFile,
    objects::Entry,
    parse::zero, //
};
use crate::shim::{
    bindings::kfabric_bind,
    errno::to_error, //
};

/// `KFABRIC_IOC_BIND`.
pub(super) fn bind(file: &OpenFile, arg: &kfabric_bind) -> Result {
    zero(&[arg.reserved])?;
    let flags = arg.flags;
    match (file.entry(arg.handle)?, file.entry(arg.to)?) {
        (Entry::Domain(domain), Entry::Eq(eq)) => match flags {
            0 => domain.bind_eq(&eq, false),
            KFI_REG_MR => domain.bind_eq(&eq, true),
            _ => Err(EINVAL),
        },
        (Entry::Av(av), Entry::Eq(eq)) => {
            no_flags(flags)?;
            av.bind_eq(&eq)
        }
        (Entry::Endpoint(ep), Entry::Av(av)) => {
            no_flags(flags)?;
            ep.bind_av(&av)
        }
        (Entry::Endpoint(ep), Entry::Eq(eq)) => {
            no_flags(flags)?;
            ep.bind_eq(&eq)
        }
        (Entry::Pep(pep), Entry::Eq(eq)) => {
            no_flags(flags)?;
            pep.bind_eq(&eq)
        }
        (Entry::Endpoint(ep), Entry::Cq(cq)) => {
            let flags = CqBind::from_bits(flags).map_err(to_error)?;
            if !flags.intersects(CqBind::TRANSMIT | CqBind::RECV) {
                return Err(EINVAL);
            }
            ep.bind_cq(&cq, flags)
        }
        (Entry::Endpoint(ep), Entry::Cntr(cntr)) => ep.bind_cntr(&cntr, counted(flags)?),
        (Entry::Mr(mr), Entry::Cntr(cntr)) => {
            let flags = counted(flags)?;
            let read = flags.contains(CntrBind::REMOTE_READ);
            let write = flags.contains(CntrBind::REMOTE_WRITE);
            if !flags
                .without(CntrBind::REMOTE_READ | CntrBind::REMOTE_WRITE)
                .is_empty()
            {
                return Err(EINVAL);
            }
            mr.bind_cntr(&cntr, read, write)
        }
        _ => Err(EINVAL),
    }
}

fn no_flags(flags: u64) -> Result {
    if flags != 0 {
        return Err(EINVAL);
    }
    Ok(())
}

/// Parses the flags that select the operations to count. Fails with `EINVAL` for none or unknown
/// ones.
fn counted(flags: u64) -> Result<CntrBind> {
    let flags = CntrBind::from_bits(flags).map_err(to_error)?;
    if flags.is_empty() {
        return Err(EINVAL);
    }
    Ok(flags)
}
