// SPDX-License-Identifier: GPL-2.0
//! Errors, and advice for each.
//!
//! [`Error`] says which call failed and with which [`Errno`]; [`Error::advice`]
//! says in a sentence what a user can do about it.

use crate::{addr::AddressError, cq::ErrEntry, errno::Errno};

/// Result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a function failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel refused a call.
    #[error("{call}: {errno}")]
    Call {
        /// The call, by its name in `include/uapi/kfabric.h` or the manual:
        /// `KFABRIC_IOC_CQ_READ`, `open`, `mmap`.
        call: &'static str,
        /// Its answer.
        errno: Errno,
    },
    /// An operation completed in error: an error entry of a CQ.
    #[error("operation with context {:#x} failed: {}", .0.op_context, .0.err)]
    Completion(Box<ErrEntry>),
    /// Text that is no address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// A name that is too long for its field, or has a NUL in it.
    #[error("{what} {name:?} is longer than {max} bytes or has a NUL in it")]
    Name {
        /// The kind of name: `link`, `netdev`, ...
        what: &'static str,
        /// The name as given.
        name: String,
        /// Longest name in bytes.
        max: usize,
    },
    /// A list is longer than the 32 bits of its count.
    #[error("{0} has too many elements")]
    TooMany(&'static str),
    /// The module speaks another version of the interface.
    #[error("the module has version {found} of its interface, this program knows version {known}")]
    Version {
        /// Version of the module.
        found: u32,
        /// Version that this crate was built for.
        known: u32,
    },
    /// The kernel returned an impossible value.
    #[error("the module gave {0}, which cannot be")]
    Nonsense(&'static str),
    /// The ring of a CQ has one reader at a time.
    #[error("the ring of this completion queue is mapped already")]
    RingTaken,
}

impl Error {
    /// A call that failed.
    pub(crate) fn call(call: &'static str, errno: impl Into<Errno>) -> Self {
        Self::Call {
            call,
            errno: errno.into(),
        }
    }

    /// The error number: of the call, or of the completion.
    ///
    /// `None` for errors that this crate found itself.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Call { errno, .. } => Some(*errno),
            Self::Completion(entry) => Some(entry.err),
            _ => None,
        }
    }

    /// Whether a call returned this number.
    pub fn is(&self, errno: Errno) -> bool {
        matches!(self, Self::Call { errno: e, .. } if *e == errno)
    }

    /// The queue is empty or full: try again later (`EAGAIN`).
    pub fn is_again(&self) -> bool {
        self.is(Errno::EAGAIN)
    }

    /// The deadline passed (`ETIMEDOUT`).
    pub fn is_timeout(&self) -> bool {
        self.is(Errno::ETIMEDOUT)
    }

    /// An error entry or event must be read first (`KFI_EAVAIL`).
    pub fn is_eavail(&self) -> bool {
        self.is(Errno::KFI_EAVAIL)
    }

    /// Advice for the user, in a sentence; `None` if the error needs none.
    ///
    /// ```
    /// use kfi::{Errno, Error};
    ///
    /// let error = Error::Call { call: "open", errno: Errno::ENOENT };
    /// assert!(error.advice().unwrap().contains("insmod"));
    /// ```
    pub fn advice(&self) -> Option<&'static str> {
        match self {
            Self::Call { call, errno } => advice(call, *errno),
            Self::Version { found, known } if found > known => {
                Some("build this program with the module's header")
            }
            Self::Version { .. } => Some("load the module that this program was built with"),
            Self::Completion(entry) => advice_completion(entry.err),
            _ => None,
        }
    }
}

/// Advice for a call of that name.
fn advice(call: &str, errno: Errno) -> Option<&'static str> {
    let call = call.strip_prefix("KFABRIC_IOC_").unwrap_or(call);
    Some(match (call, errno) {
        ("open", Errno::ENOENT | Errno::ENXIO | Errno::ENODEV) => {
            "is the module loaded? insmod kfabric.ko makes /dev/kfabric"
        }
        ("open", Errno::EACCES | Errno::EPERM) => {
            "the device node does not admit this user: join its group (rdma, if kfabric was \
             installed as a package), run as root, or chmod /dev/kfabric"
        }
        ("LINK_ADD" | "LINK_DEL", Errno::EPERM) => {
            "links need CAP_NET_ADMIN in this network namespace: run as root"
        }
        ("LINK_ADD", Errno::EEXIST) => {
            "the name is taken, or the interface has a link: kfi link show lists links"
        }
        ("LINK_ADD", Errno::ENODEV) => {
            "there is no such interface in this network namespace: ip link lists interfaces"
        }
        ("LINK_ADD", Errno::EINVAL) => {
            "a name is 1 to 15 printable characters without '/' and blank"
        }
        ("LINK_ADD", Errno::EADDRINUSE) => {
            "another socket uses UDP port 4791 in this network namespace: ss -ulnp 'sport = 4791' \
             shows a program, rdma link show an rxe device; make the link in another namespace"
        }
        ("LINK_ADD", Errno::ENOSPC) => "remove a link, or raise the module parameter max_links",
        ("LINK_DEL" | "DOMAIN_OPEN", Errno::ENODEV) => {
            "there is no such link in this network namespace: kfi link show lists links, \
             kfi link add NAME netdev INTERFACE makes one"
        }
        ("LINK_DEL", Errno::EBUSY) => "a program has the link open: kfi top shows which",
        ("GETINFO", Errno::ENODATA) => {
            "nothing fits: is there a link (kfi link show), and do the hints ask for too much?"
        }
        ("MR_REG" | "POST", Errno::ENOMEM) => {
            "pinned memory counts against RLIMIT_MEMLOCK: raise it (ulimit -l), or use less"
        }
        (
            "FABRIC_OPEN" | "DOMAIN_OPEN" | "EQ_OPEN" | "AV_OPEN" | "AV_INSERT" | "CQ_OPEN"
            | "CNTR_OPEN" | "WAIT_OPEN" | "POLL_OPEN" | "EP_OPEN" | "COUNTERS_OPEN"
            | "COUNTERS_ATTACH" | "FLOW_OPEN",
            Errno::ENOMEM,
        ) => {
            "kernel memory of a user's objects counts against the module parameter user_memory: \
             raise it, or make fewer or smaller queues"
        }
        ("FLOW_OPEN", Errno::EPERM) => {
            "flows need CAP_NET_RAW in the network namespace of the link: run as root"
        }
        ("FLOW_OPEN", Errno::EOPNOTSUPP) => "flows belong to datagram endpoints",
        ("FLOW_OPEN", Errno::ENOSPC) => "the endpoint has as many flows as it can have",
        ("COUNTERS_ATTACH", Errno::EBUSY) => {
            "attach all points before a flow is made with the counters"
        }
        ("MR_REG", Errno::KFI_ENOKEY) => {
            "another region of the domain has this key: ask for another"
        }
        ("EP_OPEN" | "EP_ENABLE" | "EP_NAME", Errno::EADDRNOTAVAIL) => {
            "the link does not have this address: ip address lists addresses, kfi link show links"
        }
        ("EP_ENABLE", Errno::EADDRINUSE) => "another endpoint has this port: choose another, or 0",
        ("EP_ENABLE", Errno::KFI_ENOCQ) => {
            "bind a completion queue or a counter for each direction that the capabilities have"
        }
        ("EP_ENABLE", Errno::KFI_ENOAV) => "bind an address vector before enabling the endpoint",
        ("POST", Errno::EAGAIN) => "read completions, then post again",
        ("POST", Errno::KFI_EOPBADSTATE) => "enable the endpoint first",
        ("POST", Errno::ENOTCONN) => {
            "the peer has another authorization key, or the endpoint is not connected"
        }
        ("POST", Errno::EHOSTUNREACH) => "is there an endpoint at that address and port?",
        ("POST", Errno::ENETDOWN) => "the link's interface is down: ip link set INTERFACE up",
        ("POST", Errno::EMSGSIZE) => "longer than one operation, or an injected one, can be",
        ("CQ_READ" | "CQ ring", Errno::KFI_EAVAIL) => "read the error entry (readerr) first",
        ("CQ_READ" | "CQ ring", Errno::KFI_EOVERRUN) => {
            "completions were lost: open the completion queue with more entries"
        }
        ("EQ_READ", Errno::KFI_EAVAIL) => "read the error event (readerr) first",
        ("CQ_READ" | "EQ_READ" | "CNTR_WAIT" | "CQ_SIGNAL" | "GETWAIT", Errno::EINVAL) => {
            "was the object opened with a wait object that allows this?"
        }
        ("AV_INSERT", Errno::KFI_ENOEQ) => "bind an event queue to the address vector first",
        ("CLOSE", Errno::EBUSY) => "close what was made from it, is bound to it or waits on it",
        (_, Errno::EMFILE) => "too many objects or descriptors are open: close some",
        (_, Errno::E2BIG) => "the module is older than this program: load the one built with it",
        (_, Errno::ENOTTY) => {
            "this is not the kfabric device, or the module is older than this program"
        }
        (_, Errno::ENOMEM) => "the kernel has no memory left for it",
        _ => return None,
    })
}

/// Advice for an operation that completed with this error.
fn advice_completion(errno: Errno) -> Option<&'static str> {
    Some(match errno {
        Errno::KFI_ETRUNC => "the receive buffer is shorter than the message",
        Errno::EMSGSIZE => "the path to the peer carries less than before: connect again",
        Errno::ECANCELED => "the operation was cancelled, or its endpoint closed",
        Errno::EACCES => "the peer's memory region does not allow this access, or has gone",
        Errno::EREMOTEIO => "the peer's endpoint does not take such operations",
        Errno::ECONNREFUSED => "is there an endpoint at that address and port?",
        Errno::ENOTCONN => "the peer has another authorization key",
        Errno::ECONNRESET => "the peer has closed, or was started again: try again",
        Errno::ETIMEDOUT => "the peer's host does not answer: is it up, and UDP port 4791 open?",
        Errno::EHOSTUNREACH => "the peer has gone: is there an endpoint at that address?",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_and_errno_are_in_the_text() {
        let error = Error::call("KFABRIC_IOC_CLOSE", Errno::EBUSY);
        assert_eq!(
            error.to_string(),
            "KFABRIC_IOC_CLOSE: Device or resource busy (EBUSY)"
        );
        assert_eq!(error.errno(), Some(Errno::EBUSY));
        assert!(error.advice().is_some());
    }

    #[test]
    fn advice_depends_on_the_call() {
        let register = Error::call("KFABRIC_IOC_MR_REG", Errno::ENOMEM);
        let other = Error::call("KFABRIC_IOC_BIND", Errno::ENOMEM);
        assert!(register.advice().unwrap().contains("RLIMIT_MEMLOCK"));
        assert!(!other.advice().unwrap().contains("RLIMIT_MEMLOCK"));
        let denied = Error::call("open", Errno::EACCES);
        assert!(denied.advice().unwrap().contains("/dev/kfabric"));
        assert_eq!(Error::call("open", Errno::EINTR).advice(), None);
    }

    #[test]
    fn predicates_look_at_the_error_of_the_call_only() {
        assert!(Error::call("x", Errno::EAGAIN).is_again());
        assert!(Error::call("x", Errno::ETIMEDOUT).is_timeout());
        assert!(Error::call("x", Errno::KFI_EAVAIL).is_eavail());
        let failed = Error::Completion(Box::new(ErrEntry {
            op_context: 0x2a,
            err: Errno::EAGAIN,
            ..ErrEntry::default()
        }));
        assert!(
            !failed.is_again(),
            "the number of a completion is not the call's"
        );
        assert_eq!(failed.errno(), Some(Errno::EAGAIN));
        assert!(failed.to_string().contains("0x2a"));
        assert_eq!(Error::RingTaken.errno(), None);
    }

    #[test]
    fn advice_depends_on_the_newer_side() {
        let newer = Error::Version { found: 2, known: 1 };
        let older = Error::Version { found: 0, known: 1 };
        assert_ne!(newer.advice(), older.advice());
    }

    #[test]
    fn is_send_and_sync() {
        fn check<T: Send + Sync + 'static>() {}
        check::<Error>();
    }
}
