// SPDX-License-Identifier: GPL-2.0

//! Wait sets, poll sets, and descriptors of wait objects: `KFABRIC_IOC_WAIT*`, `KFABRIC_IOC_POLL*`,
//! `KFABRIC_IOC_GETWAIT`.

use kfi_core::enums;

use super::{
    objects::Entry,
    parse::{
        deadline,
        user_ptr,
        yes_or_no, //
    },
    prelude::*, //
};
use crate::{
    provider::{
        fabric::Fabric,
        poll::PollSet,
        wait::WaitSet, //
    },
    shim::user::{
        clear,
        write_words, //
    }, //
};

/// `KFABRIC_IOC_WAIT_OPEN`.
pub(super) fn open(
    file: &OpenFile,
    arg: &mut kfabric_wait_open,
    ident: Ident,
) -> Result<Arc<WaitSet>> {
    must_be_zero(&[arg.flags])?;
    match enums::WaitObj::try_from(arg.wait_obj).map_err(to_error)? {
        enums::WaitObj::Unspec | enums::WaitObj::Queue => {}
        enums::WaitObj::None | enums::WaitObj::Set => return Err(EINVAL),
    }
    WaitSet::open(&file.object::<Fabric>(arg.fabric)?, ident)
}

/// `KFABRIC_IOC_WAIT`.
pub(super) fn wait(file: &OpenFile, arg: &kfabric_wait) -> Result {
    file.object::<WaitSet>(arg.wait_set)?
        .wait(deadline(arg.deadline))
}

/// `KFABRIC_IOC_POLL_OPEN`.
pub(super) fn poll_open(
    file: &OpenFile,
    arg: &mut kfabric_poll_open,
    ident: Ident,
) -> Result<Arc<PollSet>> {
    must_be_zero(&[arg.flags])?;
    must_be_zero(&[arg.reserved])?;
    PollSet::open(&file.object::<Domain>(arg.domain)?, ident)
}

/// `KFABRIC_IOC_POLL_CHANGE`.
pub(super) fn poll_change(file: &OpenFile, arg: &kfabric_poll_change) -> Result {
    must_be_zero(&[arg.flags])?;
    let remove = yes_or_no(arg.remove)?;
    let set = file.object::<PollSet>(arg.poll)?;
    match (file.entry(arg.handle)?, remove) {
        (Entry::Cq(cq), false) => set.add_cq(&cq),
        (Entry::Cq(cq), true) => set.remove_cq(&cq),
        (Entry::Cntr(cntr), false) => set.add_cntr(&cntr),
        (Entry::Cntr(cntr), true) => set.remove_cntr(&cntr),
        _ => Err(EINVAL),
    }
}

/// `KFABRIC_IOC_POLL`.
pub(super) fn poll(file: &OpenFile, arg: &mut kfabric_poll) -> Result {
    must_be_zero(&[arg.reserved])?;
    let set = file.object::<PollSet>(arg.poll)?;
    if arg.count == 0 {
        return Err(EINVAL);
    }
    let count = arg.count as usize;
    // A list that is too long for the address space cannot exist.
    user_slice::<u64>(arg.contexts, count)?;
    let contexts = user_ptr(arg.contexts)?;
    let slot = |number: usize| contexts.wrapping_byte_add(number.wrapping_mul(size_of::<u64>()));
    let stored = set.poll(
        count,
        |number, context| write_words(slot(number), &[context]),
        |number| clear(slot(number), size_of::<u64>()),
    )?;
    arg.count = u32::try_from(stored)?;
    Ok(())
}

/// `KFABRIC_IOC_GETWAIT`: reports the number of the descriptor before installing it, so that a
/// descriptor whose number cannot be reported is not created.
pub(super) fn getwait(file: &OpenFile, arg: UserPtr) -> Result {
    let (mut value, size) = read_struct::<kfabric_getwait>(arg)?;
    must_be_zero(&[value.flags])?;
    let descriptor = match file.entry(value.handle)? {
        Entry::Cntr(cntr) => cntr.getwait()?,
        Entry::Cq(cq) => cq.getwait()?,
        Entry::Eq(eq) => eq.getwait()?,
        Entry::WaitSet(set) => set.getwait()?,
        _ => return Err(EBADF),
    };
    value.fd = descriptor.fd();
    write_struct(arg, &value, size)?;
    descriptor.install();
    Ok(())
}
