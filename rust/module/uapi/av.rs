// SPDX-License-Identifier: GPL-2.0

//! The calls `KFABRIC_IOC_AV_*`.
//!
//! A call that inserts many addresses can succeed for some of them, so it reports a result for
//! each. If a result cannot be reported, because its memory cannot be written, the addresses are
//! removed again.

use kfi_core::{
    addr::{
        SockAddr,
        TEXT_MAX, //
    },
    enums::AvType,
    flags::{
        KFI_ADDR_NOTAVAIL,
        KFI_EVENT,
        KFI_MORE,
        KFI_SYNC_ERR, //
    },
    peer::RxCtxBits, //
};

use super::{
    parse::{
        put_text,
        sockaddr,
        text, //
    },
    prelude::*, //
};
use crate::{
    provider::av::{
        Av,
        AvAttr, //
    },
    shim::{
        errno::number,
        sched::cond_resched, //
    }, //
};

/// Addresses that are inserted between two calls of `cond_resched()`.
const STRIDE: usize = 256;

/// `KFABRIC_IOC_AV_OPEN`.
pub(super) fn open(file: &OpenFile, arg: &mut kfabric_av_open, ident: Ident) -> Result<Arc<Av>> {
    if arg.flags & !KFI_EVENT != 0 || arg.count > limits::MAX_AV {
        return Err(EINVAL);
    }
    let attr = AvAttr {
        kind: AvType::try_from(arg.type_).map_err(to_error)?,
        count: arg.count,
        events: arg.flags & KFI_EVENT != 0,
        rx_ctx_bits: RxCtxBits::new(arg.rx_ctx_bits).map_err(to_error)?,
    };
    let av = Av::open(&file.object::<Domain>(arg.domain)?, attr, ident)?;
    arg.type_ = av.kind().into();
    Ok(av)
}

/// The result for each address of an insertion.
type Results = KVVec<Result<u64>>;

/// `KFABRIC_IOC_AV_INSERT`.
pub(super) fn insert(file: &OpenFile, arg: &mut kfabric_av_insert) -> Result {
    check_flags(arg.flags)?;
    let av = file.object::<Av>(arg.av)?;
    let sync_err = arg.flags & KFI_SYNC_ERR != 0;
    if sync_err != (arg.errors != 0) || (arg.fi_addrs == 0 && av.kind() != AvType::Table) {
        return Err(EINVAL);
    }
    if arg.count == 0 || arg.count > limits::MAX_AV {
        return Err(EINVAL);
    }
    let reports = av.reports()?;
    let count = arg.count as usize;
    let mut results = Results::with_capacity(count, GFP_KERNEL_ACCOUNT)?;
    let result = insert_all(&av, arg, count, &mut results);
    let inserted = results.iter().flatten().count();
    if let Err(error) = result {
        take_back(&av, &results);
        return Err(error);
    }
    arg.inserted = 0;
    if reports {
        let failed = (0u64..)
            .zip(&results)
            .filter_map(|(index, result)| result.err().map(|error| (index, error)));
        av.report(arg.context, inserted as u64, failed);
        return Ok(());
    }
    match results.iter().find_map(|result| result.err()) {
        Some(error) if inserted == 0 => Err(error),
        _ => {
            arg.inserted = u32::try_from(inserted)?;
            Ok(())
        }
    }
}

/// Inserts the addresses one by one and reports each result to the program. Fails if an address
/// cannot be read or a result cannot be reported; `results` has the results so far.
fn insert_all(av: &Av, arg: &kfabric_av_insert, count: usize, results: &mut Results) -> Result {
    let mut addrs = user_slice::<kfabric_sockaddr>(arg.addrs, count)?.reader();
    let mut fi_addrs = match arg.fi_addrs {
        0 => None,
        addr => Some(user_slice::<u64>(addr, count)?.writer()),
    };
    let mut errors = match arg.errors {
        0 => None,
        addr => Some(user_slice::<i32>(addr, count)?.writer()),
    };
    for index in 0..count {
        if index % STRIDE == STRIDE - 1 {
            cond_resched();
        }
        let addr: kfabric_sockaddr = addrs.read()?;
        let result = sockaddr(&addr).and_then(|addr| av.insert(addr));
        results.push(result, GFP_KERNEL_ACCOUNT)?;
        if let Some(fi_addrs) = &mut fi_addrs {
            fi_addrs.write(&result.unwrap_or(KFI_ADDR_NOTAVAIL))?;
        }
        if let Some(errors) = &mut errors {
            let error = result.err().map_or(0, number);
            errors.write(&error)?;
        }
    }
    Ok(())
}

/// Removes the inserted addresses, whose results could not be reported.
fn take_back(av: &Av, results: &Results) {
    for fi_addr in results.iter().flatten() {
        // It was inserted, so it is there unless the program has removed it in the meantime.
        let _ = av.remove(&[*fi_addr]);
    }
}

/// `KFABRIC_IOC_AV_INSERTSVC`.
pub(super) fn insertsvc(file: &OpenFile, arg: &mut kfabric_av_insertsvc) -> Result {
    check_flags(arg.flags)?;
    let av = file.object::<Av>(arg.av)?;
    let addr = SockAddr::parse(text(&arg.node)?, text(&arg.service)?).map_err(to_error)?;
    let reports = av.reports()?;
    let result = av.insert(addr);
    arg.fi_addr = result.unwrap_or(KFI_ADDR_NOTAVAIL);
    if reports {
        let inserted = u64::from(result.is_ok());
        let failed = result.err().map(|error| (0, error));
        av.report(arg.context, inserted, failed.into_iter());
        return Ok(());
    }
    result.map(|_| ())
}

/// `KFABRIC_IOC_AV_REMOVE`.
pub(super) fn remove(file: &OpenFile, arg: &kfabric_av_remove) -> Result {
    must_be_zero(&[arg.flags])?;
    must_be_zero(&[arg.reserved])?;
    let av = file.object::<Av>(arg.av)?;
    if arg.count == 0 || arg.count > limits::MAX_AV {
        return Err(EINVAL);
    }
    let count = arg.count as usize;
    let mut fi_addrs = KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?;
    let mut reader = user_slice::<u64>(arg.fi_addrs, count)?.reader();
    for _ in 0..count {
        fi_addrs.push(reader.read::<u64>()?, GFP_KERNEL_ACCOUNT)?;
    }
    av.remove(&fi_addrs)
}

/// `KFABRIC_IOC_AV_LOOKUP`.
pub(super) fn lookup(file: &OpenFile, arg: &mut kfabric_av_lookup) -> Result {
    let av = file.object::<Av>(arg.av)?;
    arg.addr = put_sockaddr(Some(av.lookup(arg.fi_addr)?));
    Ok(())
}

/// `KFABRIC_IOC_AV_STRADDR`.
pub(super) fn straddr(file: &OpenFile, arg: &mut kfabric_av_straddr) -> Result {
    file.object::<Av>(arg.av)?;
    let mut words = [0; TEXT_MAX];
    sockaddr(&arg.addr)?.straddr(&mut words);
    put_text(&mut arg.text, text(&words)?);
    Ok(())
}

/// Checks the flags of an insertion. Fails with `EINVAL` for others than `KFI_SYNC_ERR` and
/// `KFI_MORE`.
fn check_flags(flags: u64) -> Result {
    if flags & !(KFI_SYNC_ERR | KFI_MORE) != 0 {
        return Err(EINVAL);
    }
    Ok(())
}
