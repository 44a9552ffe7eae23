// SPDX-License-Identifier: GPL-2.0

//! The calls `KFABRIC_IOC_EQ_*`.
//!
//! An event is copied directly to the program's memory, and leaves the EQ when the copy has
//! succeeded. The EQ does not wait for page faults: if a page is not present, the call faults it in
//! here, and reads again.

use kfi_core::{
    errno::Errno,
    flags::{
        KFI_AFFINITY,
        KFI_PEEK,
        KFI_WRITE, //
    }, //
};

use super::{
    parse::{
        deadline,
        timed,
        user_ptr,
        wait_obj, //
    },
    prelude::*, //
};
use crate::{
    provider::{
        eq::{
            Eq,
            EqAttr,
            EventRead, //
        },
        fabric::Fabric, //
    },
    shim::{
        sched::heed_signals,
        user::clear, //
    }, //
};

/// `KFABRIC_IOC_EQ_OPEN`.
pub(super) fn open(file: &OpenFile, arg: &mut kfabric_eq_open, ident: Ident) -> Result<Arc<Eq>> {
    if arg.flags & !(KFI_WRITE | KFI_AFFINITY) != 0 || arg.entries > limits::MAX_EQ {
        return Err(EINVAL);
    }
    let fabric = file.object::<Fabric>(arg.fabric)?;
    let attr = EqAttr {
        entries: arg.entries,
        wait: wait_obj(file, arg.wait_obj, arg.wait_set)?,
        writable: arg.flags & KFI_WRITE != 0,
        consumer: None,
    };
    let eq = Eq::open(&fabric, attr, ident)?;
    arg.entries = eq.entries();
    Ok(eq)
}

/// `KFABRIC_IOC_EQ_READ`.
pub(super) fn read(file: &OpenFile, arg: UserPtr) -> Result {
    let (mut value, size) = read_struct::<kfabric_eq_read>(arg)?;
    let peek = peek(value.flags)?;
    let eq = file.object::<Eq>(value.eq)?;
    let given = value;
    let (buf, room, deadline) = (value.buf, value.len as usize, value.deadline);
    loop {
        let limit = self::deadline(deadline);
        let result = eq.sread(peek, limit, |read| {
            let EventRead { event, data, .. } = read;
            value.len = u32::try_from(data.len())?;
            value.event = event;
            if data.len() > room {
                // Only report the size that the event needs.
                value.event = 0;
                write_struct(arg, &value, size)?;
                return Err(to_error(Errno::KFI_ETOOSMALL));
            }
            user_slice::<u8>(buf, data.len())?
                .writer()
                .write_slice(data)?;
            write_struct(arg, &value, size)
        });
        if result != Err(EFAULT) {
            return timed(deadline, limit, result);
        }
        heed_signals()?;
        clear_slice(buf, room.min(value.len as usize))?;
        write_struct(arg, &given, size)?;
    }
}

/// Faults in the memory for the data of an event. Fails with `EFAULT`. Sleeps.
fn clear_slice(buf: u64, len: usize) -> Result {
    if len == 0 {
        return Ok(());
    }
    clear(user_ptr(buf)?, len)
}

/// `KFABRIC_IOC_EQ_READERR`.
pub(super) fn readerr(file: &OpenFile, arg: UserPtr) -> Result {
    let (mut value, size) = read_struct::<kfabric_eq_readerr>(arg)?;
    must_be_zero(&[value.reserved, value.reserved2])?;
    let peek = peek(value.flags)?;
    let eq = file.object::<Eq>(value.eq)?;
    let given = value;
    let (buf, room) = (value.err_data, value.err_data_size as usize);
    loop {
        let mut len = 0;
        let result = eq.readerr(peek, |error| {
            let data = error.err_data.get();
            let fits = data.get(..room).unwrap_or(data);
            if buf != 0 && !fits.is_empty() {
                len = fits.len();
                user_slice::<u8>(buf, len)?.writer().write_slice(fits)?;
            }
            value.err_data_size = u32::try_from(data.len())?;
            value.handle = u32::try_from(error.fid).unwrap_or(0);
            value.err = error.err;
            value.prov_errno = error.prov_errno;
            value.context = error.context;
            value.data = error.data;
            write_struct(arg, &value, size)
        });
        if result != Err(EFAULT) {
            return result;
        }
        heed_signals()?;
        clear_slice(buf, len)?;
        write_struct(arg, &given, size)?;
    }
}

/// `KFABRIC_IOC_EQ_WRITE`.
pub(super) fn write(file: &OpenFile, arg: &kfabric_eq_write) -> Result {
    must_be_zero(&[arg.flags])?;
    let eq = file.object::<Eq>(arg.eq)?;
    let mut data = [0u8; limits::MAX_EVENT];
    let data = data.get_mut(..arg.len as usize).ok_or(EINVAL)?;
    user_slice::<u8>(arg.buf, data.len())?
        .reader()
        .read_slice(data)?;
    eq.write(arg.event, data)
}

/// Parses the flags of a read: `KFI_PEEK` or none.
fn peek(flags: u64) -> Result<bool> {
    match flags {
        0 => Ok(false),
        KFI_PEEK => Ok(true),
        _ => Err(EINVAL),
    }
}
