// SPDX-License-Identifier: GPL-2.0
//! Completion counters of verbs: how much an endpoint has completed.
//!
//! The interface of ibv_create_comp_cntr(3) and ibv_qp_attach_comp_cntr(3).  A
//! counter is attached to endpoints, for a set of operations each, before they
//! are enabled.  Each success adds 1 or the operation's bytes to the completion
//! count, each failure 1 to the error count.
//!
//! The counts are in a page that every counter maps read-only.  With external
//! memory they are also written to memory of the program's choice
//! ([`MemoryLocation`]): a part of a [`Buffer`], or of a DMA-BUF, which other
//! processes and devices can map.  What anyone else writes there does not
//! change the counter.

use std::{
    os::fd::{AsRawFd, BorrowedFd},
    sync::{Arc, atomic::AtomicU64},
};

use crate::{
    abi::{self, Call, calls},
    buffer::Buffer,
    cntr::{Mapped, acquire},
    domain::Domain,
    enums::{CompCntrEntry, CompCntrModifyOp, CompCntrType},
    error::Result,
    flags::CompCntrOps,
    map::Mapping,
    object::{Node, object},
    setters::setters,
};

/// What completion counters can do (ibv_query_comp_cntr_caps).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompCntrCaps {
    /// Largest value; the next one is 0.
    pub max_value: u64,
    /// Counters of one domain.
    pub max_counters: u32,
    /// Operations that can be counted; a datagram endpoint has messages only.
    pub supported_qp_attach_ops: CompCntrOps,
}

impl CompCntrCaps {
    pub(crate) fn of(domain: &Domain) -> Result<Self> {
        let mut arg = abi::kfabric_comp_cntr_caps {
            domain: domain.handle(),
            ..Call::sized()
        };
        calls::plain(domain.device(), &mut arg)?;
        Ok(Self {
            max_value: arg.max_value,
            max_counters: arg.max_counters,
            supported_qp_attach_ops: CompCntrOps::from_bits_retain(arg.supported_qp_attach_ops),
        })
    }
}

/// A place for a count: 8 bytes at a multiple of 8 in memory of the program's
/// choice.
#[derive(Clone, Debug)]
pub struct MemoryLocation<'fd> {
    /// Where the program reads the count.
    memory: Option<(Buffer, usize)>,
    /// A DMA-BUF and the offset in it; `None`: the memory itself.
    dma_buf: Option<(BorrowedFd<'fd>, u64)>,
}

impl MemoryLocation<'static> {
    /// The bytes at `offset` of a buffer (`IBV_MEMORY_LOCATION_VA`).
    ///
    /// # Panics
    ///
    /// If the offset is not a multiple of 8, or the buffer ends before.
    pub fn va(buffer: &Buffer, offset: usize) -> Self {
        let _ = buffer.word(offset);
        Self {
            memory: Some((buffer.clone(), offset)),
            dma_buf: None,
        }
    }
}

impl<'fd> MemoryLocation<'fd> {
    /// The bytes at `offset` of a DMA-BUF (`IBV_MEMORY_LOCATION_DMABUF`). The
    /// descriptor may be closed when the counter is made.
    pub fn dma_buf(fd: BorrowedFd<'fd>, offset: u64) -> Self {
        Self {
            memory: None,
            dma_buf: Some((fd, offset)),
        }
    }

    /// The same place of a DMA-BUF, mapped at `offset` of `buffer`
    /// ([`Buffer::map`]), where [`CompCntr::comp_count`] or
    /// [`CompCntr::err_count`] looks.
    ///
    /// # Panics
    ///
    /// If the offset is not a multiple of 8, or the buffer ends before.
    pub fn mapped(self, buffer: &Buffer, offset: usize) -> Self {
        let _ = buffer.word(offset);
        Self {
            memory: Some((buffer.clone(), offset)),
            ..self
        }
    }

    fn raw(&self) -> abi::kfabric_memory_location {
        let ptr = |(buffer, offset): &(Buffer, usize)| buffer.addr() + *offset as u64;
        let ptr = self.memory.as_ref().map_or(0, ptr);
        match self.dma_buf {
            None => abi::kfabric_memory_location {
                ptr,
                type_: abi::KFABRIC_MEMORY_LOCATION_VA,
                ..Default::default()
            },
            Some((fd, offset)) => abi::kfabric_memory_location {
                ptr,
                offset,
                fd: fd.as_raw_fd(),
                type_: abi::KFABRIC_MEMORY_LOCATION_DMABUF,
            },
        }
    }
}

/// Creates a completion counter; from [`Domain::comp_cntr`].
#[derive(Debug)]
#[must_use = "nothing happens before `create`"]
pub struct CompCntrBuilder<'fd> {
    domain: Domain,
    unit: CompCntrType,
    context: u64,
    external: Option<[MemoryLocation<'fd>; 2]>,
}

impl<'fd> CompCntrBuilder<'fd> {
    pub(crate) fn new(domain: &Domain) -> Self {
        Self {
            domain: domain.clone(),
            unit: CompCntrType::default(),
            context: 0,
            external: None,
        }
    }

    setters! {
        /// What it counts; without this work requests.
        unit(unit: CompCntrType) => unit = unit;

        /// A number for the caller's own use.
        context(context: u64) => context = context;
    }

    /// Places for the completion count and the error count
    /// (`IBV_COMP_CNTR_INIT_WITH_EXTERNAL_MEM`).
    pub fn external(mut self, comp: MemoryLocation<'fd>, err: MemoryLocation<'fd>) -> Self {
        self.external = Some([comp, err]);
        self
    }

    /// Creates it, with both counts 0.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: the domain has as many as it may have
    /// ([`CompCntrCaps::max_counters`]), or external memory exceeds
    /// `RLIMIT_MEMLOCK`; `EINVAL`: both counts in the same place, an offset
    /// outside a DMA-BUF or not a multiple of 8, a descriptor of something
    /// else; `EACCES`: a DMA-BUF that may not be written; `EOPNOTSUPP`: a
    /// DMA-BUF that the CPU cannot access; `EMFILE`; mmap(2)'s.
    pub fn create(self) -> Result<CompCntr> {
        let mut arg = abi::kfabric_comp_cntr_create {
            domain: self.domain.handle(),
            type_: self.unit.raw(),
            context: self.context,
            ..Call::sized()
        };
        if let Some([comp, err]) = &self.external {
            arg.flags = abi::KFABRIC_COMP_CNTR_INIT_WITH_EXTERNAL_MEM;
            arg.comp_cntr_ext_mem = comp.raw();
            arg.err_cntr_ext_mem = err.raw();
        }
        let device = self.domain.device();
        let arg = calls::comp_cntr_create(device, arg)?;
        let node = Node::new(device, arg.handle, vec![self.domain.as_hold()]);
        let page = Mapping::new(device, arg.page_offset, rustix::param::page_size(), false)?;
        Ok(CompCntr {
            inner: Arc::new(CompCntrInner {
                page,
                external: self.external.map(|places| places.map(|place| place.memory)),
                max: [arg.comp_count_max_value, arg.err_count_max_value],
                node,
            }),
        })
    }
}

pub(crate) struct CompCntrInner {
    // Unmapped before the counter is destroyed.
    page: Mapping,
    /// External memory as the program sees it.
    external: Option<[Option<(Buffer, usize)>; 2]>,
    max: [u64; 2],
    node: Node,
}

impl CompCntrInner {
    /// The word of a count that a program reads: 0 is the completion count, 1
    /// the error count.
    #[inline]
    fn word(&self, entry: usize) -> Option<&AtomicU64> {
        match &self.external {
            None => Some(self.page.word(entry * 8)),
            Some(places) => {
                let (buffer, offset) = places[entry].as_ref()?;
                Some(buffer.word(*offset))
            }
        }
    }
}

/// A completion counter of verbs.
///
/// ```no_run
/// # fn f(domain: kfi::Domain, ep: kfi::Endpoint) -> kfi::Result<()> {
/// use kfi::{CompCntrOps, CompCntrType};
///
/// let sent = domain.comp_cntr().create()?;
/// let bytes = domain.comp_cntr().unit(CompCntrType::Bytes).create()?;
/// ep.attach_comp_cntr(&sent, CompCntrOps::SEND | CompCntrOps::RDMA_WRITE)?;
/// ep.attach_comp_cntr(&bytes, CompCntrOps::RECV)?;
/// ep.enable()?;
/// // ... operations ...
/// assert_eq!(sent.comp_count(), Some(3)); // a load
/// assert_eq!(bytes.read()?, 4096);        // a call
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct CompCntr {
    inner: Arc<CompCntrInner>,
}

object!(CompCntr);

impl CompCntr {
    /// The completion count: a load.  `None`: it is in a DMA-BUF that the
    /// program has not mapped; [`read`](Self::read) gives it.
    ///
    /// With external memory this is what the memory holds, also if someone
    /// else has written to it.
    #[inline]
    pub fn comp_count(&self) -> Option<u64> {
        self.inner.word(0).map(acquire)
    }

    /// The error count, as [`comp_count`](Self::comp_count).
    #[inline]
    pub fn err_count(&self) -> Option<u64> {
        self.inner.word(1).map(acquire)
    }

    /// Both counts where they are mapped, for loops that look at them often.
    #[inline]
    pub fn mapped(&self) -> Option<Mapped<'_>> {
        Some(Mapped {
            value: self.inner.word(0)?,
            err: self.inner.word(1)?,
        })
    }

    /// Both counts in the page of the module, which nobody else can write to.
    #[inline]
    pub fn page(&self) -> Mapped<'_> {
        Mapped {
            value: self.inner.page.word(0),
            err: self.inner.page.word(8),
        }
    }

    /// Largest completion count; the next one is 0.
    pub fn comp_count_max_value(&self) -> u64 {
        self.inner.max[0]
    }

    /// Largest error count; the next one is 0.
    pub fn err_count_max_value(&self) -> u64 {
        self.inner.max[1]
    }

    /// The completion count, by a call.
    ///
    /// # Errors
    ///
    /// Only those of every call.
    pub fn read(&self) -> Result<u64> {
        self.read_entry(CompCntrEntry::Comp)
    }

    /// The error count, by a call.
    ///
    /// # Errors
    ///
    /// Only those of every call.
    pub fn read_err(&self) -> Result<u64> {
        self.read_entry(CompCntrEntry::Err)
    }

    fn read_entry(&self, entry: CompCntrEntry) -> Result<u64> {
        let mut arg = abi::kfabric_comp_cntr_read {
            comp_cntr: self.handle(),
            entry: entry.raw(),
            ..Call::sized()
        };
        calls::plain(self.device(), &mut arg)?;
        Ok(arg.value)
    }

    /// Sets the completion count.
    ///
    /// # Errors
    ///
    /// `EINVAL`: above [`comp_count_max_value`](Self::comp_count_max_value).
    pub fn set(&self, value: u64) -> Result<()> {
        self.modify(CompCntrEntry::Comp, CompCntrModifyOp::Set, value)
    }

    /// Sets the error count.
    ///
    /// # Errors
    ///
    /// `EINVAL`: above [`err_count_max_value`](Self::err_count_max_value).
    pub fn set_err(&self, value: u64) -> Result<()> {
        self.modify(CompCntrEntry::Err, CompCntrModifyOp::Set, value)
    }

    /// Adds to the completion count, modulo its largest value + 1.
    ///
    /// # Errors
    ///
    /// `EINVAL`: `amount` is above
    /// [`comp_count_max_value`](Self::comp_count_max_value).
    pub fn inc(&self, amount: u64) -> Result<()> {
        self.modify(CompCntrEntry::Comp, CompCntrModifyOp::Inc, amount)
    }

    /// Adds to the error count, modulo its largest value + 1.
    ///
    /// # Errors
    ///
    /// `EINVAL`: `amount` is above
    /// [`err_count_max_value`](Self::err_count_max_value).
    pub fn inc_err(&self, amount: u64) -> Result<()> {
        self.modify(CompCntrEntry::Err, CompCntrModifyOp::Inc, amount)
    }

    fn modify(&self, entry: CompCntrEntry, op: CompCntrModifyOp, value: u64) -> Result<()> {
        let mut arg = abi::kfabric_comp_cntr_modify {
            comp_cntr: self.handle(),
            entry: entry.raw(),
            op: op.raw(),
            value,
            ..Call::sized()
        };
        calls::plain(self.device(), &mut arg)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_place_in_a_buffer_is_an_address() {
        let buffer = Buffer::new(64).unwrap();
        let raw = MemoryLocation::va(&buffer, 16).raw();
        assert_eq!(raw.ptr, buffer.addr() + 16);
        assert_eq!(raw.type_, abi::KFABRIC_MEMORY_LOCATION_VA);
        assert_eq!((raw.fd, raw.offset), (0, 0));
    }

    #[test]
    fn a_place_in_a_dma_buf_is_a_descriptor_and_an_offset() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let place = MemoryLocation::dma_buf(file.as_fd(), 4096);
        let raw = place.raw();
        assert_eq!((raw.ptr, raw.offset), (0, 4096));
        assert_eq!(raw.fd, file.as_raw_fd());
        assert_eq!(raw.type_, abi::KFABRIC_MEMORY_LOCATION_DMABUF);
        let buffer = Buffer::new(64).unwrap();
        let raw = place.mapped(&buffer, 8).raw();
        assert_eq!((raw.ptr, raw.offset), (buffer.addr() + 8, 4096));
    }

    #[test]
    #[should_panic]
    fn a_place_between_words_panics() {
        let _ = MemoryLocation::va(&Buffer::new(64).unwrap(), 4);
    }

    #[test]
    #[should_panic]
    fn a_place_behind_a_buffer_panics() {
        let _ = MemoryLocation::va(&Buffer::new(64).unwrap(), 64);
    }
}
