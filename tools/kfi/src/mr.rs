// SPDX-License-Identifier: GPL-2.0
//! Memory regions: memory that peers may reach, or that is pinned once for
//! many operations.

use std::{ops::RangeBounds, sync::Arc};

use crate::{
    abi::{self, Call, calls},
    buffer::{Buffer, Slice},
    cntr::Cntr,
    domain::Domain,
    error::Result,
    flags::{Access, CntrBind},
    object::{Node, object},
    op::{IoVec, Remote},
    setters::setters,
};

/// Registers memory; from [`Domain::mr`].
#[derive(Debug)]
#[must_use = "nothing happens before `open`"]
pub struct MrBuilder<'a> {
    domain: Domain,
    buffer: &'a Buffer,
    pieces: Option<&'a [IoVec<'a>]>,
    access: Access,
    requested_key: u64,
    rma_event: bool,
    context: u64,
}

impl<'a> MrBuilder<'a> {
    pub(crate) fn new(domain: &Domain, buffer: &'a Buffer) -> Self {
        Self {
            domain: domain.clone(),
            buffer,
            pieces: None,
            access: Access::empty(),
            requested_key: 0,
            rma_event: false,
            context: 0,
        }
    }

    setters! {
        /// Allowed uses; at least one.
        access(access: Access) => access = access;

        /// The key, unless the domain has [`MrMode::PROV_KEY`](crate::MrMode); at
        /// most 32 bits.
        requested_key(key: u64) => requested_key = key;

        /// The region is these pieces of the buffer in a row, rather than all of
        /// it.
        pieces(pieces: &'a [IoVec<'a>]) => pieces = Some(pieces);
    }

    /// Says that counters are going to be bound (`KFI_RMA_EVENT`).
    pub fn rma_event(mut self) -> Self {
        self.rma_event = true;
        self
    }

    /// A number for the caller's own use, returned in the event.
    pub fn context(mut self, context: u64) -> Self {
        self.context = context;
        self
    }

    /// Registers it.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: no access, an unknown access, no bytes or too many.
    /// - `KFI_ENOKEY`: the key is in use; `EKEYREJECTED`: it has more than 32
    ///   bits.
    /// - `ENOMEM`: no memory, or more than `RLIMIT_MEMLOCK` is pinned.
    /// - `EMFILE`.
    pub fn open(self) -> Result<Mr> {
        let arg = abi::kfabric_mr_reg {
            domain: self.domain.handle(),
            access: self.access.bits(),
            requested_key: self.requested_key,
            flags: if self.rma_event {
                abi::KFI_RMA_EVENT
            } else {
                0
            },
            context: self.context,
            ..Call::sized()
        };
        let whole = [IoVec::from(self.buffer)];
        let pieces = self.pieces.unwrap_or(&whole);
        let device = self.domain.device();
        let arg = calls::mr_reg(device, arg, pieces)?;
        Ok(Mr {
            inner: Arc::new(MrInner {
                node: Node::new(device, arg.handle, vec![self.domain.as_hold()]),
                buffer: self.buffer.clone(),
                key: arg.key,
                iova: arg.iova,
            }),
        })
    }
}

struct MrInner {
    // Closed before the buffer is let go.
    node: Node,
    buffer: Buffer,
    key: u64,
    iova: u64,
}

/// A memory region; keeps its buffer.
///
/// ```no_run
/// # fn f(domain: kfi::Domain) -> kfi::Result<()> {
/// use kfi::{Access, Buffer};
///
/// let buffer = Buffer::new(1 << 20)?;
/// let mr = domain
///     .mr(&buffer)
///     .access(Access::REMOTE_READ | Access::REMOTE_WRITE)
///     .requested_key(42)
///     .open()?;
/// println!("peers write at {:?}", mr.remote(0));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Mr {
    inner: Arc<MrInner>,
}

object!(Mr);

impl Mr {
    /// The key, for peers.
    pub fn key(&self) -> u64 {
        self.inner.key
    }

    /// Address of the first byte, for peers: 0, or its virtual address with
    /// [`MrMode::VIRT_ADDR`](crate::MrMode::VIRT_ADDR).
    pub fn iova(&self) -> u64 {
        self.inner.iova
    }

    /// The buffer.
    pub fn buffer(&self) -> &Buffer {
        &self.inner.buffer
    }

    /// The address by which peers name the byte at this offset.
    pub fn remote(&self, offset: u64) -> Remote {
        Remote::new(self.iova().wrapping_add(offset), self.key())
    }

    /// A part of the buffer, for an operation, which then does not pin its
    /// pages again.
    ///
    /// # Panics
    ///
    /// If the range is not inside the buffer.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Slice<'_> {
        self.inner.buffer.slice(range).of_region(self.handle())
    }

    /// Counts the operations of peers on the region: [`CntrBind::REMOTE_READ`],
    /// [`CntrBind::REMOTE_WRITE`] or both.
    ///
    /// # Errors
    ///
    /// `EINVAL`: another flag, another domain, or a counter is bound for it
    /// already.
    pub fn bind_cntr(&self, cntr: &Cntr, flags: CntrBind) -> Result<()> {
        self.inner
            .node
            .bind(cntr.handle(), flags.bits(), cntr.as_hold())
    }
}
