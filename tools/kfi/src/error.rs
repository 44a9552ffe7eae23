// SPDX-License-Identifier: GPL-2.0
//! Errors, and advice for each.
//!
//! [`Error`] says which call failed and with which [`Errno`]; [`Error::advice`]
//! says in a sentence what a user can do about it.
//!
//! [`Debug`](fmt::Debug) of an error is what a user needs: the text and the
//! advice.  So a `main` that returns [`Result`] prints both:
//!
//! ```text
//! Error: KFABRIC_IOC_DOMAIN_OPEN (link roce0): No such device (ENODEV)
//! help: there is no such link in this network namespace: ...
//! ```
//!
//! The alternate form (`{:#?}`) shows the members of the value.

use std::fmt;

use crate::{addr::AddressError, cq::ErrEntry, errno::Errno};

/// Result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a function failed.
#[derive(thiserror::Error)]
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
    /// The kernel refused a call that names an object.
    #[error("{call} ({object}): {errno}")]
    Object {
        /// The call, as in [`Error::Call`].
        call: &'static str,
        /// What the call names: `link roce0`, `address 10.0.0.1:7471`.
        object: String,
        /// Its answer.
        errno: Errno,
    },
    /// A call accepted only the first elements of a list, which stay accepted.
    #[error("{call}: {errno}, after {done} that were accepted")]
    Partial {
        /// The call, as in [`Error::Call`].
        call: &'static str,
        /// Elements that were accepted, from the first on.
        done: usize,
        /// Why the next one was not accepted.
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
    /// There is no link to use, see [`Device::first_link`](crate::Device::first_link).
    #[error("no link is up and has an address")]
    NoLink,
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

    /// The same error of a call, with the object that the call names.
    pub(crate) fn on(self, object: impl fmt::Display) -> Self {
        match self {
            Self::Call { call, errno } => Self::Object {
                call,
                object: object.to_string(),
                errno,
            },
            other => other,
        }
    }

    /// The call that failed, and its error number.
    fn of_call(&self) -> Option<(&'static str, Errno)> {
        match self {
            Self::Call { call, errno }
            | Self::Object { call, errno, .. }
            | Self::Partial { call, errno, .. } => Some((call, *errno)),
            _ => None,
        }
    }

    /// The error number: of the call, or of the completion.
    ///
    /// `None` for errors that this crate found itself.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Completion(entry) => Some(entry.err),
            call => call.of_call().map(|(_, errno)| errno),
        }
    }

    /// Whether a call returned this number.
    pub fn is(&self, errno: Errno) -> bool {
        self.of_call().is_some_and(|(_, found)| found == errno)
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
    /// assert!(error.advice().unwrap().contains("modprobe kfabric"));
    /// ```
    pub fn advice(&self) -> Option<&'static str> {
        match self {
            Self::Version { found, known } if found > known => {
                Some("build this program with the module's header")
            }
            Self::Version { .. } => Some("load the module that this program was built with"),
            Self::Completion(entry) => advice_completion(entry.err),
            Self::NoLink => Some(
                "kfi link show lists links, kfi link add roce0 netdev lo makes one, \
                 ip link set INTERFACE up sets it up",
            ),
            call => call.of_call().and_then(|(call, errno)| advice(call, errno)),
        }
    }

    /// The members, as a derived implementation shows them.
    fn members(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call { call, errno } => (f.debug_struct("Call"))
                .field("call", call)
                .field("errno", errno)
                .finish(),
            Self::Object {
                call,
                object,
                errno,
            } => (f.debug_struct("Object"))
                .field("call", call)
                .field("object", object)
                .field("errno", errno)
                .finish(),
            Self::Partial { call, done, errno } => (f.debug_struct("Partial"))
                .field("call", call)
                .field("done", done)
                .field("errno", errno)
                .finish(),
            Self::Completion(entry) => f.debug_tuple("Completion").field(entry).finish(),
            other => write!(f, "{:?}", other.to_string()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            return self.members(f);
        }
        write!(f, "{self}")?;
        match self.advice() {
            Some(advice) => write!(f, "\nhelp: {advice}"),
            None => Ok(()),
        }
    }
}

/// Advice for a call of that name.
fn advice(call: &str, errno: Errno) -> Option<&'static str> {
    let call = call.strip_prefix("KFABRIC_IOC_").unwrap_or(call);
    Some(match (call, errno) {
        ("open", Errno::ENOENT | Errno::ENXIO | Errno::ENODEV) => {
            "is the module loaded? modprobe kfabric loads an installed one, insmod kfabric.ko one \
             that was built here; either makes /dev/kfabric"
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
        ("LINK_DEL", Errno::EBUSY) => {
            "a program or a kernel module has a domain on the link: kfi link del names the programs \
             that have /dev/kfabric open and the modules in /sys/module/kfabric/holders"
        }
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
        (
            "EP_OPEN" | "EP_ENABLE" | "EP_NAME" | "EP_ACCEPT" | "EP_CONNECT" | "EP_CONNECT_QP"
            | "POST",
            Errno::EADDRNOTAVAIL,
        ) => "the link does not have this address: ip address lists addresses, kfi link show links",
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
        (
            "POST" | "EP_CONNECT" | "EP_CONNECT_QP" | "EP_ACCEPT",
            Errno::EHOSTUNREACH | Errno::ENETUNREACH,
        ) => {
            "is there an endpoint at that address and port, and a route to it by the link's \
             interface (ip route get ADDRESS)?"
        }
        ("POST", Errno::ENETDOWN) => "the link's interface is down: ip link set INTERFACE up",
        ("POST", Errno::EMSGSIZE) => {
            "longer than one operation, or an injected one, can be, or the MTU of the interface is \
             too small"
        }
        ("EP_CONNECT" | "EP_CONNECT_QP", Errno::EMSGSIZE) => {
            "the MTU of the interface is too small: ip link show"
        }
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
        Errno::EMSGSIZE => {
            "the path to the peer carries less than before, or no path MTU: compare ip link show \
             at both ends"
        }
        Errno::EADDRNOTAVAIL => {
            "the link has lost the endpoint's address: ip address lists addresses"
        }
        Errno::ECANCELED => "the operation was cancelled, or its endpoint closed",
        Errno::EACCES => "the peer's memory region does not allow this access, or has gone",
        Errno::EREMOTEIO => "the peer's endpoint does not take such operations",
        Errno::ECONNREFUSED => "is there an endpoint at that address and port?",
        Errno::ENOTCONN => "the peer has another authorization key",
        Errno::ECONNRESET => "the peer has closed, or was started again: try again",
        Errno::ETIMEDOUT => "the peer's host does not answer: is it up, and UDP port 4791 open?",
        Errno::EHOSTUNREACH => {
            "the peer has gone, or the route to it: is there an endpoint at that address, and what \
             does ip route get ADDRESS say?"
        }
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
    fn the_advice_on_a_missing_module_fits_packages_and_own_builds() {
        let error = Error::call("open", Errno::ENOENT);
        let advice = error.advice().unwrap();
        assert!(advice.contains("modprobe kfabric") && advice.contains("insmod kfabric.ko"));
    }

    #[test]
    fn the_advice_on_unreachable_hosts_names_the_routes() {
        let post = Error::call("KFABRIC_IOC_POST", Errno::EHOSTUNREACH);
        assert!(post.advice().unwrap().contains("ip route get"));
        let completed = Error::Completion(Box::new(ErrEntry {
            err: Errno::EHOSTUNREACH,
            ..ErrEntry::default()
        }));
        assert!(completed.advice().unwrap().contains("ip route get"));
    }

    /// What a `main` prints that returns this error.
    #[test]
    fn a_plain_main_prints_the_object_and_the_advice() {
        let error = Error::call("KFABRIC_IOC_DOMAIN_OPEN", Errno::ENODEV).on("link roce0");
        let printed = format!("Error: {error:?}");
        let lines: Vec<&str> = printed.lines().collect();
        assert_eq!(
            lines[0],
            "Error: KFABRIC_IOC_DOMAIN_OPEN (link roce0): No such device (ENODEV)"
        );
        assert!(lines[1].starts_with("help: ") && lines[1].contains("kfi link add"));
        // Without advice there is one line.
        let plain = format!("{:?}", Error::call("x", Errno::ENOENT));
        assert_eq!(plain, "x: No such file or directory (ENOENT)");
        let members = format!("{:#?}", error);
        assert!(members.starts_with("Object {"), "{members}");
    }

    #[test]
    fn errors_of_named_objects_and_of_lists_are_errors_of_the_call() {
        let named = Error::call("KFABRIC_IOC_LINK_DEL", Errno::EBUSY).on("link lo");
        let partial = Error::Partial {
            call: "KFABRIC_IOC_QUEUE_WORK",
            done: 1,
            errno: Errno::EINVAL,
        };
        assert!(named.is(Errno::EBUSY) && named.advice().is_some());
        assert!(partial.is(Errno::EINVAL));
        assert_eq!(partial.errno(), Some(Errno::EINVAL));
        assert_eq!(
            partial.to_string(),
            "KFABRIC_IOC_QUEUE_WORK: Invalid argument (EINVAL), after 1 that were accepted"
        );
        // Only errors of calls have an object.
        assert!(matches!(Error::RingTaken.on("x"), Error::RingTaken));
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
