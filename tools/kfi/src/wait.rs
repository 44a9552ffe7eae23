// SPDX-License-Identifier: GPL-2.0
//! Waiting on several objects at once: wait sets, and wait objects as
//! descriptors.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::{
    abi::{self, Call, calls},
    deadline::Deadline,
    error::{Error, Result},
    fabric::Fabric,
    object::{Held, Hold, Inner, object},
};

/// A wait object as a descriptor: for poll, epoll and io_uring.
///
/// Of a CQ or an event queue; readable while there is something to read.  A
/// counter has a [`CntrFd`](crate::CntrFd), a wait set a [`WaitSetFd`].
///
/// The object stays open while there is a descriptor of it.
#[derive(Debug)]
pub struct WaitFd {
    // Closed before the object is let go.
    fd: OwnedFd,
    _object: Held,
}

impl WaitFd {
    pub(crate) fn new(fd: OwnedFd, object: Hold) -> Self {
        Self {
            fd,
            _object: Held::new(object),
        }
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

impl AsFd for WaitFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Sleeps until a descriptor is readable; `false`: the deadline has passed.
pub(crate) fn wait_readable(fd: &OwnedFd, deadline: Deadline) -> Result<bool> {
    let timeout = deadline.remaining().map(|left| Timespec {
        tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    });
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    match rustix::event::poll(&mut fds, timeout.as_ref()) {
        Ok(count) => Ok(count > 0),
        Err(errno) => Err(Error::call("ppoll", errno)),
    }
}

/// Reads whole words from a descriptor, in one read.
pub(crate) fn read_words<const N: usize>(fd: &OwnedFd) -> Result<[u64; N]> {
    let mut bytes = [[0u8; 8]; N];
    match rustix::io::read(fd, bytes.as_flattened_mut()) {
        Ok(count) if count == 8 * N => Ok(bytes.map(u64::from_ne_bytes)),
        Ok(_) => Err(Error::Nonsense("a short read")),
        Err(errno) => Err(Error::call("read", errno)),
    }
}

/// Sets or clears `O_NONBLOCK`.
pub(crate) fn set_nonblocking(fd: &OwnedFd, nonblocking: bool) -> Result<()> {
    let failed = |errno| Error::call("fcntl", errno);
    let mut flags = rustix::fs::fcntl_getfl(fd).map_err(failed)?;
    flags.set(rustix::fs::OFlags::NONBLOCK, nonblocking);
    rustix::fs::fcntl_setfl(fd, flags).map_err(failed)
}

/// A wait set as a descriptor: for poll, epoll and io_uring.
///
/// Readable while a signal of a member is pending.  [`WaitSetFd::consume`]
/// takes the signal; then the program looks at all members.
///
/// The wait set stays open while there is a descriptor of it.
#[derive(Debug)]
pub struct WaitSetFd {
    // Closed before the wait set is let go.
    fd: OwnedFd,
    _set: Held,
}

impl WaitSetFd {
    /// Takes the pending signal; sleeps while there is none unless
    /// [`set_nonblocking`](WaitSetFd::set_nonblocking) was called.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: none pending, and non-blocking; `EINTR`.
    pub fn consume(&self) -> Result<()> {
        read_words::<1>(&self.fd).map(drop)
    }

    /// Whether [`consume`](WaitSetFd::consume) gives `EAGAIN` rather than
    /// sleep.
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

impl AsFd for WaitSetFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A wait set: CQs, counters and event queues that are opened with
/// [`Wait::Set`](crate::Wait::Set) wake its waiters.
///
/// ```no_run
/// # fn f(fabric: kfi::Fabric, domain: kfi::Domain) -> kfi::Result<()> {
/// use kfi::{Deadline, Wait};
///
/// let set = fabric.wait_set()?;
/// let cq = domain.cq().wait(Wait::Set(set.clone())).open()?;
/// let cntr = domain.cntr().wait(Wait::Set(set.clone())).open()?;
/// cntr.add(1)?;
/// assert!(set.wait(Deadline::FOREVER)?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct WaitSet {
    inner: Arc<Inner>,
}

object!(WaitSet);

impl WaitSet {
    pub(crate) fn open(fabric: &Fabric) -> Result<Self> {
        let mut arg = abi::kfabric_wait_open {
            fabric: fabric.handle(),
            wait_obj: abi::KFI_WAIT_QUEUE,
            ..Call::sized()
        };
        let device = fabric.device();
        calls::plain(device, &mut arg)?;
        Ok(Self {
            inner: Inner::new(device, arg.handle, vec![fabric.as_hold()]),
        })
    }

    /// Sleeps until a member is signalled; `false`: the deadline has passed.
    ///
    /// A CQ or event queue signals when an entry, event or error arrives; a
    /// counter, when either value changes.  One waiter takes a signal.
    ///
    /// # Errors
    ///
    /// `EINTR`: a signal of the system.
    pub fn wait(&self, deadline: impl Into<Deadline>) -> Result<bool> {
        let mut arg = abi::kfabric_wait {
            wait_set: self.handle(),
            deadline: deadline.into().as_nanos(),
            ..Call::sized()
        };
        match calls::plain(self.device(), &mut arg) {
            Ok(()) => Ok(true),
            Err(error) if error.is_timeout() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// A descriptor that is readable while a signal of a member is pending.
    ///
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`.
    pub fn wait_fd(&self) -> Result<WaitSetFd> {
        let fd = calls::getwait(self.device(), self.handle())?;
        Ok(WaitSetFd {
            fd,
            _set: Held::new(self.as_hold()),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::Arc,
        time::{Duration, Instant},
    };

    use super::*;

    fn pair() -> (OwnedFd, WaitFd) {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        (ours.into(), WaitFd::new(theirs.into(), Arc::new(())))
    }

    #[test]
    fn waits_until_readable() {
        let (ours, fd) = pair();
        assert!(!fd.wait(Deadline::POLL).unwrap());
        rustix::io::write(&ours, b"x").unwrap();
        assert!(fd.wait(Deadline::POLL).unwrap());
        assert!(fd.wait(Deadline::FOREVER).unwrap());
    }

    #[test]
    fn waits_no_longer_than_asked() {
        let (_ours, fd) = pair();
        let start = Instant::now();
        assert!(!fd.wait(Duration::from_millis(20)).unwrap());
        assert!(start.elapsed() >= Duration::from_millis(20));
    }

    #[test]
    fn words_come_whole() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let (ours, theirs) = (OwnedFd::from(ours), OwnedFd::from(theirs));
        rustix::io::write(&ours, &[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]).unwrap();
        assert_eq!(
            read_words::<2>(&theirs).unwrap(),
            [1u64.to_le(), 2u64.to_le()]
        );
        rustix::io::write(&ours, &[1, 2]).unwrap();
        assert!(matches!(read_words::<1>(&theirs), Err(Error::Nonsense(_))));
        set_nonblocking(&theirs, true).unwrap();
        assert!(read_words::<1>(&theirs).unwrap_err().is_again());
        set_nonblocking(&theirs, false).unwrap();
        drop(ours);
        assert!(matches!(read_words::<1>(&theirs), Err(Error::Nonsense(_))));
    }
}
