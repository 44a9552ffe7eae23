// SPDX-License-Identifier: GPL-2.0
//! Completion counters: how many operations succeeded, and how many failed.
//!
//! The interface of kfi_cntr(3).  The two values are in a page that every
//! counter maps read-only, so that [`Cntr::value`] and [`Cntr::err`] are a load
//! and no system call.
//!
//! [`Cntr::wait`] returns when the threshold is reached, also if the value
//! falls again before the sleeper runs; with `KFI_EAVAIL` when the error value
//! changes meanwhile; with `ETIMEDOUT` at the deadline.  A [`CntrFd`] does the
//! same for poll, epoll and io_uring.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{
            AtomicU64,
            Ordering::{Acquire, Relaxed},
            fence,
        },
    },
};

use crate::{
    abi::{self, Call, calls},
    deadline::Deadline,
    domain::Domain,
    enums::Wait,
    error::{Error, Result},
    map::Mapping,
    object::{Held, Node, object},
    setters::setters,
    wait::{read_words, set_nonblocking, wait_readable},
};

/// The two values of a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Values {
    /// Successes.
    pub value: u64,
    /// Errors.
    pub err: u64,
}

/// Opens a counter; from [`Domain::cntr`].
#[derive(Debug)]
#[must_use = "nothing happens before `open`"]
pub struct CntrBuilder {
    domain: Domain,
    wait: Wait,
    max_value: u64,
    context: u64,
}

impl CntrBuilder {
    pub(crate) fn new(domain: &Domain) -> Self {
        Self {
            domain: domain.clone(),
            wait: Wait::default(),
            max_value: 0,
            context: 0,
        }
    }

    setters! {
        /// How threads can wait on it.
        wait(wait: Wait) => wait = wait;

        /// Largest value; the next one is 0.  0, as without this: 2^64 - 1.
        max_value(max_value: u64) => max_value = max_value;

        /// The context that a [poll set](crate::PollSet) gives for it.
        context(context: u64) => context = context;
    }

    /// Opens it, and maps its values.
    ///
    /// # Errors
    ///
    /// `EMFILE`; `ENOMEM`; mmap(2)'s.
    pub fn open(self) -> Result<Cntr> {
        let (wait_obj, wait_set) = self.wait.raw();
        let mut arg = abi::kfabric_cntr_open {
            domain: self.domain.handle(),
            events: abi::KFI_CNTR_EVENTS_COMP,
            wait_obj,
            wait_set,
            max_value: self.max_value,
            context: self.context,
            ..Call::sized()
        };
        let device = self.domain.device();
        calls::plain(device, &mut arg)?;
        let mut parents = vec![self.domain.as_hold()];
        if let Wait::Set(set) = &self.wait {
            parents.push(set.as_hold());
        }
        let node = Node::new(device, arg.handle, parents);
        let page = Mapping::new(device, arg.page_offset, rustix::param::page_size(), false)?;
        Ok(Cntr {
            inner: Arc::new(CntrInner { page, node }),
        })
    }
}

pub(crate) struct CntrInner {
    // Unmapped before the counter is closed.
    page: Mapping,
    node: Node,
}

/// A completion counter.
///
/// ```no_run
/// # fn f(domain: kfi::Domain) -> kfi::Result<()> {
/// use std::time::Duration;
///
/// let cntr = domain.cntr().open()?;
/// cntr.add(3)?;
/// assert_eq!(cntr.value(), 3);
/// let values = cntr.wait(3, Duration::from_secs(1))?;
/// assert_eq!((values.value, values.err), (3, 0));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Cntr {
    inner: Arc<CntrInner>,
}

object!(Cntr);

impl Cntr {
    /// Successes: a load from mapped memory.
    ///
    /// Data that the counted operations wrote to memory can be read after it.
    #[inline]
    pub fn value(&self) -> u64 {
        self.mapped().value()
    }

    /// Errors: a load from mapped memory.
    #[inline]
    pub fn err(&self) -> u64 {
        self.mapped().err()
    }

    /// The mapped values, for loops that look at them often.
    #[inline]
    pub fn mapped(&self) -> Mapped<'_> {
        Mapped {
            value: self.inner.page.word(0),
            err: self.inner.page.word(8),
        }
    }

    /// Both values, each of them whole, by two loads.
    pub fn values(&self) -> Values {
        Values {
            value: self.value(),
            err: self.err(),
        }
    }

    /// Both values by a call.
    ///
    /// # Errors
    ///
    /// Only those of every call.
    pub fn read(&self) -> Result<Values> {
        let mut arg = abi::kfabric_cntr_read {
            cntr: self.handle(),
            ..Call::sized()
        };
        calls::plain(self.device(), &mut arg)?;
        Ok(Values {
            value: arg.value,
            err: arg.err,
        })
    }

    /// Adds to the value.
    ///
    /// # Errors
    ///
    /// Only those of every call.
    pub fn add(&self, value: u64) -> Result<()> {
        self.modify(abi::KFABRIC_CNTR_ADD, value)
    }

    /// Sets the value.
    ///
    /// # Errors
    ///
    /// `EINVAL`: above [`max_value`](CntrBuilder::max_value).
    pub fn set(&self, value: u64) -> Result<()> {
        self.modify(abi::KFABRIC_CNTR_SET, value)
    }

    /// Adds to the error value.
    ///
    /// # Errors
    ///
    /// Only those of every call.
    pub fn adderr(&self, value: u64) -> Result<()> {
        self.modify(abi::KFABRIC_CNTR_ADDERR, value)
    }

    /// Sets the error value.
    ///
    /// # Errors
    ///
    /// `EINVAL`: above [`max_value`](CntrBuilder::max_value).
    pub fn seterr(&self, value: u64) -> Result<()> {
        self.modify(abi::KFABRIC_CNTR_SETERR, value)
    }

    fn modify(&self, what: u32, value: u64) -> Result<()> {
        let mut arg = abi::kfabric_cntr_modify {
            cntr: self.handle(),
            what,
            value,
            ..Call::sized()
        };
        calls::plain(self.device(), &mut arg)
    }

    /// Sleeps until the value reaches `threshold`; gives the values then.
    ///
    /// # Errors
    ///
    /// - `KFI_EAVAIL`: the error value changed meanwhile.
    /// - `ETIMEDOUT`: the deadline has passed; at once with
    ///   [`Deadline::POLL`].
    /// - `EINVAL`: this counter has no wait object ([`Wait::None`]), unless the
    ///   deadline is [`Deadline::POLL`].
    /// - `ENOSPC`: 1,024 other threads and descriptors wait for it.
    /// - `EINTR`: a signal.
    pub fn wait(&self, threshold: u64, deadline: impl Into<Deadline>) -> Result<Values> {
        let mut arg = abi::kfabric_cntr_wait {
            cntr: self.handle(),
            threshold,
            deadline: deadline.into().as_nanos(),
            ..Call::sized()
        };
        calls::plain(self.device(), &mut arg)?;
        Ok(Values {
            value: arg.value,
            err: arg.err,
        })
    }

    /// A descriptor that becomes readable when a threshold is reached, or the
    /// values change; armed for the next change.
    ///
    /// # Errors
    ///
    /// `EINVAL`: opened with [`Wait::None`]; `EMFILE`, `ENFILE`; `ENOSPC`: 1,024
    /// other threads and descriptors wait for it.
    pub fn wait_fd(&self) -> Result<CntrFd> {
        let fd = calls::getwait(self.device(), self.handle())?;
        Ok(CntrFd {
            fd,
            _cntr: Held::new(self.as_hold()),
        })
    }

    /// The counter's default operation flags (`KFI_GETOPSFLAG`).
    ///
    /// # Errors
    ///
    /// Only those of every call.
    pub fn ops_flags(&self) -> Result<u64> {
        let mut arg = abi::kfabric_opsflag {
            handle: self.handle(),
            ..Call::sized()
        };
        calls::plain(self.device(), &mut arg)?;
        Ok(arg.flags)
    }
}

/// The values of a counter, or of a completion counter, where they are mapped:
/// each look is one load.
#[derive(Clone, Copy, Debug)]
pub struct Mapped<'a> {
    pub(crate) value: &'a AtomicU64,
    pub(crate) err: &'a AtomicU64,
}

impl Mapped<'_> {
    /// Successes.
    #[inline]
    pub fn value(&self) -> u64 {
        acquire(self.value)
    }

    /// Errors.
    #[inline]
    pub fn err(&self) -> u64 {
        acquire(self.err)
    }
}

/// A load of a read-only page, after which data that the kernel wrote before
/// can be read.  (Only relaxed loads are sure to work on read-only memory.)
#[inline]
pub(crate) fn acquire(word: &AtomicU64) -> u64 {
    let value = word.load(Relaxed);
    fence(Acquire);
    value
}

/// A counter's wait object as a descriptor: for poll, epoll and io_uring.
///
/// Readable once the value has reached the armed threshold, or the error value
/// has changed since it was armed.  [`CntrFd::consume`] gives the values and
/// arms it for the next change, [`CntrFd::arm`] for a threshold.
///
/// The counter stays open while there is a descriptor of it.
#[derive(Debug)]
pub struct CntrFd {
    // Closed before the counter is let go.
    fd: OwnedFd,
    _cntr: Held,
}

impl CntrFd {
    /// Arms it for a threshold.
    ///
    /// # Errors
    ///
    /// Those of write(2).
    pub fn arm(&self, threshold: u64) -> Result<()> {
        match rustix::io::write(&self.fd, &threshold.to_ne_bytes()) {
            Ok(8) => Ok(()),
            Ok(_) => Err(Error::Nonsense("a short write")),
            Err(errno) => Err(Error::call("write", errno)),
        }
    }

    /// The values; sleeps until it is readable unless
    /// [`set_nonblocking`](CntrFd::set_nonblocking) was called.  Arms it for
    /// the next change of either.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: not readable, and non-blocking; `EINTR`.
    pub fn consume(&self) -> Result<Values> {
        let [value, err] = read_words(&self.fd)?;
        Ok(Values { value, err })
    }

    /// Whether [`consume`](CntrFd::consume) gives `EAGAIN` rather than sleep.
    ///
    /// # Errors
    ///
    /// Those of fcntl(2).
    pub fn set_nonblocking(&self, nonblocking: bool) -> Result<()> {
        set_nonblocking(&self.fd, nonblocking)
    }

    /// Sleeps until it is readable; `false`: the deadline has passed.
    ///
    /// # Errors
    ///
    /// Those of ppoll(2).
    pub fn wait(&self, deadline: impl Into<Deadline>) -> Result<bool> {
        wait_readable(&self.fd, deadline.into())
    }
}

impl AsFd for CntrFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
