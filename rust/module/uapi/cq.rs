// SPDX-License-Identifier: GPL-2.0

//! The calls `KFABRIC_IOC_CQ_*`.
//!
//! Reading consumes entries. So each entry is copied to the program before the CQ frees it. The
//! argument, in which the number of entries is returned, is checked to be writable before the first
//! entry, as in `dispatch::consume`. So an address that cannot be written loses no completion.

use kfi_core::{
    cq::ErrEntry,
    flags::KFI_AFFINITY, //
};

use super::{
    file::offset_of,
    parse::{
        put_text,
        restarted_deadline,
        user_ptr,
        wait_obj, //
    },
    prelude::*, //
};
use crate::{
    provider::cq::{
        Cq,
        CqAttr,
        Sink, //
    },
    shim::user::{
        clear,
        write_words, //
    }, //
};

/// `KFABRIC_IOC_CQ_OPEN`.
pub(super) fn open(file: &OpenFile, arg: &mut kfabric_cq_open, ident: Ident) -> Result<Arc<Cq>> {
    must_be_zero(&[arg.reserved])?;
    if arg.flags & !KFI_AFFINITY != 0 || arg.entries > limits::MAX_CQ {
        return Err(EINVAL);
    }
    let domain = file.object::<Domain>(arg.domain)?;
    let attr = CqAttr::new(
        arg.entries,
        arg.format,
        wait_obj(file, arg.wait_obj, arg.wait_set)?,
        arg.wait_cond,
    )?;
    let offset = offset_of(ident.fid);
    let cq = Cq::open(&domain, attr, ident)?;
    arg.entries = cq.entries();
    arg.format = cq.format().to_abi();
    arg.ring_offset = offset;
    arg.ring_size = cq.ring().size() as u64;
    Ok(cq)
}

/// `KFABRIC_IOC_CQ_READ`. It also writes back the state with which an interrupted call is
/// restarted.
#[link_section = ".text.hot"]
pub(super) fn read(file: &OpenFile, arg: UserPtr) -> Result {
    let (mut value, size) = read_struct::<kfabric_cq_read>(arg)?;
    write_struct(arg, &value, size)?;
    let began = value.began;
    match take(file, &mut value) {
        Ok(()) => write_struct(arg, &value, size),
        Err(error) => {
            if value.began != began {
                // Return the error of the read, not of this write: an overrun is reported only
                // once.
                let _ = write_struct(arg, &value, size);
            }
            Err(error)
        }
    }
}

/// The addresses at which a program wants its next entry and the source of that entry.
struct Entries {
    to: UserPtr,
    size: usize,
    sources: Option<UserPtr>,
}

impl Sink for Entries {
    #[inline]
    fn take(&mut self, words: &[u64], source: u64) -> Result {
        write_words(self.to, words)?;
        if let Some(sources) = &mut self.sources {
            write_words(*sources, &[source])?;
            *sources = sources.wrapping_byte_add(size_of_val(&source));
        }
        self.to = self.to.wrapping_byte_add(self.size);
        Ok(())
    }

    fn fault_in(&mut self) -> Result {
        clear(self.to, self.size)?;
        match self.sources {
            Some(sources) => clear(sources, size_of::<u64>()),
            None => Ok(()),
        }
    }
}

fn take(file: &OpenFile, arg: &mut kfabric_cq_read) -> Result {
    let cq = file.object::<Cq>(arg.cq)?;
    let count = arg.count as usize;
    let sources = match arg.src_addrs {
        0 => None,
        // A list that is too long for the address space cannot exist.
        addr => {
            user_slice::<u64>(addr, count)?;
            Some(user_ptr(addr)?)
        }
    };
    let entries = Entries {
        to: user_ptr(arg.buf)?,
        size: cq.format().size(),
        sources,
    };
    let limit = restarted_deadline(arg.deadline, arg.began);
    let taken = cq.sread(count, arg.cond, limit, &mut arg.began, entries);
    arg.count = u32::try_from(taken?)?;
    Ok(())
}

/// `KFABRIC_IOC_CQ_READERR`: the entry is copied directly to the argument, and then leaves the CQ.
pub(super) fn readerr(file: &OpenFile, arg: UserPtr) -> Result {
    let (mut value, size) = read_struct::<kfabric_cq_readerr>(arg)?;
    must_be_zero(&[value.flags])?;
    let cq = file.object::<Cq>(value.cq)?;
    let given = value;
    let fill = |error: &ErrEntry| {
        value.op_context = error.op_context;
        value.comp_flags = error.flags;
        value.len = error.len;
        value.buf = error.buf;
        value.data = error.data;
        value.tag = error.tag;
        value.olen = error.olen;
        value.src_addr = error.src_addr;
        value.err = error.err;
        value.prov_errno = error.prov_errno;
        write_struct(arg, &value, size)
    };
    cq.readerr(fill, || write_struct(arg, &given, size))
}

/// `KFABRIC_IOC_CQ_SIGNAL`.
pub(super) fn signal(file: &OpenFile, arg: &kfabric_cq_signal) -> Result {
    file.object::<Cq>(arg.cq)?.signal()
}

/// `KFABRIC_IOC_CQ_STRERROR`.
pub(super) fn strerror(file: &OpenFile, arg: &mut kfabric_cq_strerror) -> Result {
    must_be_zero(&[arg.reserved])?;
    let cq = file.object::<Cq>(arg.cq)?;
    put_text(&mut arg.text, cq.strerror(arg.prov_errno).to_bytes());
    Ok(())
}
