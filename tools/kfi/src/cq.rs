// SPDX-License-Identifier: GPL-2.0
//! Completion queues, which report finished operations.
//!
//! The interface of fi_cq(3).  A read gives whole [`Entry`] values with every
//! [`CqFormat`]; fields that the format does not have are zero.  An empty queue, a
//! deadline that passed and [`Cq::signal`] all read as 0 entries (`FI_EAGAIN`).  While
//! an error entry is queued, reads give `KFI_EAVAIL`, and [`Cq::readerr`] takes it;
//! [`Cq::next`] does both.
//!
//! For reading without a system call see [`CqRing`], for waiting together with
//! other descriptors [`Cq::wait_fd`].

use std::sync::{
    Arc,
    atomic::{
        AtomicBool,
        Ordering::{AcqRel, Release},
    },
};

use crate::{
    abi::{self, Call, calls},
    addr::FiAddr,
    deadline::Deadline,
    domain::Domain,
    enums::{CqFormat, Wait},
    errno::Errno,
    error::{Error, Result},
    flags::CompFlags,
    map::Mapping,
    object::{Node, object},
    ring::CqRing,
    setters::setters,
    wait::WaitFd,
};

/// A completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Entry {
    /// Context of the operation.
    pub op_context: u64,
    /// The kind of operation, and the valid fields of this entry.
    pub flags: CompFlags,
    /// Receives: bytes placed.
    pub len: u64,
    /// Multi-receive: address where they were placed.
    pub buf: u64,
    /// Remote CQ data, with [`CompFlags::REMOTE_CQ_DATA`].
    pub data: u64,
    /// Tagged receives: the message's tag.
    pub tag: u64,
    /// Receives of an endpoint with [`Caps::SOURCE`](crate::Caps::SOURCE): the
    /// sender, if it is in the address vector; only from [`Cq::next`],
    /// [`Cq::readfrom`], [`Cq::sreadfrom`] and the ring.
    pub src_addr: FiAddr,
    reserved: u64,
}

const _: () = assert!(size_of::<Entry>() == size_of::<abi::kfabric_cq_entry>());

impl Default for Entry {
    fn default() -> Self {
        Self::from_words([0; 8])
    }
}

impl Entry {
    /// From the words of a format, the rest zeros.
    pub(crate) fn from_words(words: [u64; 8]) -> Self {
        let [op_context, flags, len, buf, data, tag, ..] = words;
        Self {
            op_context,
            flags: CompFlags::from_bits_retain(flags),
            len,
            buf,
            data,
            tag,
            src_addr: FiAddr::NOTAVAIL,
            reserved: 0,
        }
    }

    #[cfg(test)]
    pub(crate) fn from_raw_words(words: [u64; 8]) -> Self {
        Self {
            src_addr: FiAddr(words[6]),
            reserved: words[7],
            ..Self::from_words(words)
        }
    }

    #[cfg(test)]
    pub(crate) fn to_words(self) -> [u64; 8] {
        [
            self.op_context,
            self.flags.bits(),
            self.len,
            self.buf,
            self.data,
            self.tag,
            self.src_addr.0,
            self.reserved,
        ]
    }
}

/// An operation that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrEntry {
    /// Context of the operation.
    pub op_context: u64,
    /// The kind of operation.
    pub flags: CompFlags,
    /// Bytes placed.
    pub len: u64,
    /// Multi-receive: address where they were placed.
    pub buf: u64,
    /// Remote CQ data.
    pub data: u64,
    /// Tag.
    pub tag: u64,
    /// Bytes of the message that did not fit.
    pub olen: u64,
    /// The peer, where it is known.
    pub src_addr: FiAddr,
    /// Why it failed.
    pub err: Errno,
    /// The module's own number for it, see [`Cq::strerror`].
    pub prov_errno: u32,
}

impl Default for ErrEntry {
    fn default() -> Self {
        Self::from(&abi::kfabric_cq_readerr {
            src_addr: abi::KFI_ADDR_NOTAVAIL,
            ..Default::default()
        })
    }
}

impl From<&abi::kfabric_cq_readerr> for ErrEntry {
    fn from(raw: &abi::kfabric_cq_readerr) -> Self {
        Self {
            op_context: raw.op_context,
            flags: CompFlags::from_bits_retain(raw.comp_flags),
            len: raw.len,
            buf: raw.buf,
            data: raw.data,
            tag: raw.tag,
            olen: raw.olen,
            src_addr: FiAddr(raw.src_addr),
            err: Errno::from_raw(raw.err as i32),
            prov_errno: raw.prov_errno,
        }
    }
}

/// Opens a CQ; from [`Domain::cq`].
#[derive(Debug)]
#[must_use = "nothing happens before `open`"]
pub struct CqBuilder {
    domain: Domain,
    entries: u32,
    format: CqFormat,
    wait: Wait,
    threshold_cond: bool,
    vector: Option<i32>,
    context: u64,
}

impl CqBuilder {
    pub(crate) fn new(domain: &Domain) -> Self {
        Self {
            domain: domain.clone(),
            entries: 0,
            format: CqFormat::Unspec,
            wait: Wait::default(),
            threshold_cond: false,
            vector: None,
            context: 0,
        }
    }

    setters! {
        /// Number of completions that it holds, rounded up to a power of two; 0, the
        /// default here: the module's default.
        entries(entries: u32) => entries = entries;

        /// Format of the entries.
        format(format: CqFormat) => format = format;

        /// How threads can wait on it.
        wait(wait: Wait) => wait = wait;
    }

    /// [`Cq::sread_cond`] waits for a number of entries
    /// (`KFI_CQ_COND_THRESHOLD`).
    pub fn threshold_cond(mut self) -> Self {
        self.threshold_cond = true;
        self
    }

    setters! {
        /// A hint: the CPU that is to be interrupted (`KFI_AFFINITY`).
        affinity(cpu: i32) => vector = Some(cpu);

        /// The context that a [poll set](crate::PollSet) gives for it.
        context(context: u64) => context = context;
    }

    /// Opens it.
    ///
    /// # Errors
    ///
    /// `EINVAL`: more entries than [`Query::max_cq`](crate::Query::max_cq), an
    /// unknown format; `EMFILE`; `ENOMEM`.
    pub fn open(self) -> Result<Cq> {
        let (wait_obj, wait_set) = self.wait.raw();
        let mut arg = abi::kfabric_cq_open {
            domain: self.domain.handle(),
            entries: self.entries,
            format: self.format.raw(),
            wait_obj,
            wait_cond: if self.threshold_cond {
                abi::KFI_CQ_COND_THRESHOLD
            } else {
                abi::KFI_CQ_COND_NONE
            },
            wait_set,
            signaling_vector: self.vector.unwrap_or(0),
            flags: self.vector.map_or(0, |_| abi::KFI_AFFINITY),
            context: self.context,
            ..Call::sized()
        };
        let device = self.domain.device();
        calls::plain(device, &mut arg)?;
        let mut parents = vec![self.domain.as_hold()];
        if let Wait::Set(set) = &self.wait {
            parents.push(set.as_hold());
        }
        let format = CqFormat::from_raw(arg.format);
        let node = Node::new(device, arg.handle, parents);
        let Some(entry_size) = entry_size(format) else {
            return Err(Error::Nonsense("a CQ of an unknown format"));
        };
        Ok(Cq {
            inner: Arc::new(CqInner {
                node,
                format,
                entry_size,
                entries: arg.entries,
                ring_offset: arg.ring_offset,
                ring_size: arg.ring_size,
                ring_taken: AtomicBool::new(false),
            }),
        })
    }
}

/// Bytes of an entry that a read by call gives.
fn entry_size(format: CqFormat) -> Option<usize> {
    match format {
        CqFormat::Context => Some(8),
        CqFormat::Msg => Some(24),
        CqFormat::Data => Some(40),
        CqFormat::Tagged => Some(48),
        CqFormat::Unspec | CqFormat::Unknown(_) => None,
    }
}

pub(crate) struct CqInner {
    pub(crate) node: Node,
    format: CqFormat,
    entry_size: usize,
    entries: u32,
    ring_offset: u64,
    ring_size: u64,
    /// A ring has one reader.
    pub(crate) ring_taken: AtomicBool,
}

/// A completion queue.
///
/// ```no_run
/// # fn f(domain: kfi::Domain) -> kfi::Result<()> {
/// use kfi::{CqFormat, Wait};
/// use std::time::Duration;
///
/// let cq = domain.cq().entries(64).format(CqFormat::Tagged).wait(Wait::Queue).open()?;
/// match cq.next(Duration::from_millis(100))? {
///     Some(entry) => println!("{:#x} is complete", entry.op_context),
///     None => println!("nothing in 100 ms"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Cq {
    pub(crate) inner: Arc<CqInner>,
}

object!(Cq);

impl Cq {
    /// Format of the entries.
    pub fn format(&self) -> CqFormat {
        self.inner.format
    }

    /// Number of completions that it holds.
    pub fn entries(&self) -> u32 {
        self.inner.entries
    }

    /// Takes up to `out.len()` completions; 0: there are none.
    ///
    /// # Errors
    ///
    /// - `KFI_EAVAIL`: an error entry must be read first.
    /// - `KFI_EOVERRUN`: completions without a posted operation were lost; reported
    ///   once.
    /// - `EIO`: the program stored an invalid head in the mapped ring.
    #[inline]
    pub fn read(&self, out: &mut [Entry]) -> Result<usize> {
        self.take(out, &mut [], 0, Deadline::POLL)
    }

    /// As [`Cq::read`], with the senders of receives, which also stand in the
    /// entries.
    ///
    /// # Errors
    ///
    /// As [`Cq::read`].
    ///
    /// # Panics
    ///
    /// If the two are not of the same length.
    pub fn readfrom(&self, out: &mut [Entry], src_addrs: &mut [FiAddr]) -> Result<usize> {
        assert_eq!(out.len(), src_addrs.len());
        self.take(out, src_addrs, 0, Deadline::POLL)
    }

    /// Takes completions, and sleeps while there are none; 0: the deadline has
    /// passed, or [`Cq::signal`] was called.
    ///
    /// # Errors
    ///
    /// As [`Cq::read`]; `EINVAL`: this CQ has no wait object of its own
    /// ([`Wait::None`], [`Wait::Set`]); `ENOSPC`: 1,024 threads sleep in such
    /// calls; `EINTR`: a signal.
    pub fn sread(&self, out: &mut [Entry], deadline: impl Into<Deadline>) -> Result<usize> {
        self.take(out, &mut [], 0, deadline.into())
    }

    /// As [`Cq::sread`], with the senders.
    ///
    /// # Errors
    ///
    /// As [`Cq::sread`].
    ///
    /// # Panics
    ///
    /// If the two are not of the same length.
    pub fn sreadfrom(
        &self,
        out: &mut [Entry],
        src_addrs: &mut [FiAddr],
        deadline: impl Into<Deadline>,
    ) -> Result<usize> {
        assert_eq!(out.len(), src_addrs.len());
        self.take(out, src_addrs, 0, deadline.into())
    }

    /// As [`Cq::sread`], but sleeps until there are `cond` completions.  It ignores
    /// `cond` unless the CQ was opened with
    /// [`threshold_cond`](CqBuilder::threshold_cond).  At the deadline it takes the
    /// completions that are there.
    ///
    /// # Errors
    ///
    /// As [`Cq::sread`].
    pub fn sread_cond(
        &self,
        out: &mut [Entry],
        cond: u32,
        deadline: impl Into<Deadline>,
    ) -> Result<usize> {
        self.take(out, &mut [], cond, deadline.into())
    }

    fn take(
        &self,
        out: &mut [Entry],
        src_addrs: &mut [FiAddr],
        cond: u32,
        deadline: Deadline,
    ) -> Result<usize> {
        // A read of 0 completions would only wait.
        if out.is_empty() {
            return Ok(0);
        }
        let result = calls::cq_read(
            self.device(),
            self.handle(),
            self.inner.entry_size,
            out,
            src_addrs,
            cond,
            deadline,
        );
        nothing_is(0, result)
    }

    /// Sleeps until there is a completion, and takes none.  `false`: the deadline has
    /// passed, or [`Cq::signal`] was called.
    ///
    /// # Errors
    ///
    /// As [`Cq::sread`].
    pub fn wait(&self, deadline: impl Into<Deadline>) -> Result<bool> {
        self.wait_cond(0, deadline)
    }

    /// As [`Cq::wait`], but sleeps until there are `cond` completions: for a reader of
    /// the [`ring`](Self::ring) that need not run for each.  At the deadline there may
    /// be some, and it returns `true` then.
    ///
    /// # Errors
    ///
    /// As [`Cq::sread_cond`].
    pub fn wait_cond(&self, cond: u32, deadline: impl Into<Deadline>) -> Result<bool> {
        let result = calls::cq_read(
            self.device(),
            self.handle(),
            self.inner.entry_size,
            &mut [],
            &mut [],
            cond,
            deadline.into(),
        );
        nothing_is(false, result.map(|_| true))
    }

    /// Takes one completion, with its sender, and sleeps while there is none.
    /// `None`: the deadline has passed, or [`Cq::signal`] was called.
    ///
    /// # Errors
    ///
    /// [`Error::Completion`]: an operation failed; its error entry is read.
    /// Else as [`Cq::sread`].
    pub fn next(&self, deadline: impl Into<Deadline>) -> Result<Option<Entry>> {
        let deadline = deadline.into();
        let mut entry = [Entry::default()];
        let mut src_addr = [FiAddr::NOTAVAIL];
        loop {
            match self.take(&mut entry, &mut src_addr, 0, deadline) {
                Ok(0) => return Ok(None),
                Ok(_) => return Ok(Some(entry[0])),
                Err(error) if error.is_eavail() => {
                    // Another thread may have read it meanwhile.
                    if let Some(failed) = self.readerr()? {
                        return Err(Error::Completion(Box::new(failed)));
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes an error entry; `None`: there is none.
    ///
    /// # Errors
    ///
    /// Only those of every call.
    pub fn readerr(&self) -> Result<Option<ErrEntry>> {
        let mut arg = abi::kfabric_cq_readerr {
            cq: self.handle(),
            ..Call::sized()
        };
        match calls::plain(self.device(), &mut arg) {
            Ok(()) => Ok(Some(ErrEntry::from(&arg))),
            Err(error) if error.is_again() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Releases the threads that sleep in a read.
    ///
    /// # Errors
    ///
    /// `EINVAL`: this CQ has no wait object.
    pub fn signal(&self) -> Result<()> {
        let mut arg = abi::kfabric_cq_signal {
            cq: self.handle(),
            ..Call::sized()
        };
        calls::plain(self.device(), &mut arg)
    }

    /// The meaning of a [`prov_errno`](ErrEntry::prov_errno).
    ///
    /// # Errors
    ///
    /// Only those of every call.
    pub fn strerror(&self, prov_errno: u32) -> Result<String> {
        let mut arg = abi::kfabric_cq_strerror {
            cq: self.handle(),
            prov_errno,
            ..Call::sized()
        };
        calls::plain(self.device(), &mut arg)?;
        Ok(calls::text(&arg.text))
    }

    /// Maps the ring, to read without system calls.
    ///
    /// # Errors
    ///
    /// [`Error::RingTaken`]: it is mapped already; mmap(2)'s.
    pub fn ring(&self) -> Result<CqRing> {
        if self.inner.ring_taken.swap(true, AcqRel) {
            return Err(Error::RingTaken);
        }
        let size = usize::try_from(self.inner.ring_size);
        size.map_err(|_| Error::Nonsense("a ring larger than the address space"))
            .and_then(|size| Mapping::new(self.device(), self.inner.ring_offset, size, true))
            .and_then(|mapping| CqRing::new(self.clone(), mapping))
            .inspect_err(|_| self.inner.ring_taken.store(false, Release))
    }

    /// A descriptor that is readable while there is a completion or an error entry.
    ///
    /// # Errors
    ///
    /// `EINVAL`: opened with [`Wait::None`]; `EMFILE`, `ENFILE`.
    pub fn wait_fd(&self) -> Result<WaitFd> {
        let fd = calls::getwait(self.device(), self.handle())?;
        Ok(WaitFd::new(fd, self.as_hold()))
    }
}

/// An empty queue as a value: fi_cq(3) defines timeouts so.
fn nothing_is<T>(nothing: T, result: Result<T>) -> Result<T> {
    match result {
        Err(error) if error.is_again() => Ok(nothing),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_has_the_layout_of_the_interface() {
        use std::mem::offset_of;
        type Raw = abi::kfabric_cq_entry;
        assert_eq!(offset_of!(Entry, op_context), offset_of!(Raw, op_context));
        assert_eq!(offset_of!(Entry, flags), offset_of!(Raw, flags));
        assert_eq!(offset_of!(Entry, len), offset_of!(Raw, len));
        assert_eq!(offset_of!(Entry, buf), offset_of!(Raw, buf));
        assert_eq!(offset_of!(Entry, data), offset_of!(Raw, data));
        assert_eq!(offset_of!(Entry, tag), offset_of!(Raw, tag));
        assert_eq!(offset_of!(Entry, src_addr), offset_of!(Raw, src_addr));
        assert_eq!(offset_of!(Entry, reserved), offset_of!(Raw, reserved));
    }

    #[test]
    fn formats_have_sizes() {
        let sizes = [
            CqFormat::Context,
            CqFormat::Msg,
            CqFormat::Data,
            CqFormat::Tagged,
        ]
        .map(entry_size);
        assert_eq!(sizes, [Some(8), Some(24), Some(40), Some(48)]);
        assert_eq!(entry_size(CqFormat::Unspec), None);
    }

    #[test]
    fn timeouts_read_as_no_completions() {
        let again = Error::call("x", Errno::EAGAIN);
        assert_eq!(nothing_is(0, Err(again)).unwrap(), 0);
        let error = nothing_is(0, Err(Error::call("x", Errno::KFI_EAVAIL))).unwrap_err();
        assert!(error.is_eavail());
        assert_eq!(nothing_is(0, Ok(3)).unwrap(), 3);
    }
}
