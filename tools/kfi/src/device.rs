// SPDX-License-Identifier: GPL-2.0
//! The device: one open `/dev/kfabric`, to which all objects belong.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    sync::Arc,
};

use rustix::fs::{Mode, OFlags};

use crate::{
    abi::{self, Call, calls},
    error::{Error, Result},
    fabric::Fabric,
    flags::Caps,
    info::{Hints, Info, Version},
    link::{Link, Links},
    stat::{StatClass, Stats},
};

/// An open `/dev/kfabric`; clones are the same one.
///
/// Objects belong to one open file: another `Device` does not see them, and
/// closing the file closes those that are left.
///
/// ```no_run
/// let device = kfi::Device::open()?;
/// for link in device.links() {
///     println!("{}", link?.name);
/// }
/// # Ok::<(), kfi::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Device {
    fd: Arc<OwnedFd>,
}

/// Version and limits of the module; from [`Device::query`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Query {
    /// Version of the interface.
    pub abi_version: u32,
    /// Version of the module.
    pub module_version: Version,
    /// Page size in bytes.
    pub page_size: u32,
    /// Capabilities that some endpoint type has.
    pub caps: Caps,
    /// Bytes of one operation.
    pub max_msg_size: u64,
    /// Bytes of an injected operation.
    pub inject_size: u32,
    /// Elements of a list of memory.
    pub max_iov: u32,
    /// Objects of one open file.
    pub max_handles: u32,
    /// Operations under way on an endpoint, each way.
    pub max_queue: u32,
    /// Entries of a CQ.
    pub max_cq: u32,
    /// Events of an event queue.
    pub max_eq: u32,
    /// Addresses of an address vector.
    pub max_av: u32,
    /// Operations of one post.
    pub max_post: u32,
    /// Bytes of unexpected messages that an endpoint keeps.
    pub max_buffered: u64,
    /// Flows of an endpoint.
    pub max_flows: u32,
    /// Counter points of a flow.
    pub max_flow_points: u32,
    /// Values of a counters object.
    pub max_counters: u32,
    /// Completion counters of a domain.
    pub max_comp_cntr: u32,
    /// Deferred work and triggered operations that wait in one domain.
    pub max_work: u32,
    /// Transmit contexts, and receive contexts, of a scalable endpoint.
    pub max_ep_ctx: u32,
}

impl Device {
    /// Opens `/dev/kfabric`.
    ///
    /// # Errors
    ///
    /// `ENOENT`: the module is not loaded; `EACCES`: the device node does not
    /// admit this user; [`Error::Version`]: the module has another version of
    /// the interface. [`Error::advice`] says what to do.
    pub fn open() -> Result<Self> {
        Self::open_path(abi::KFABRIC_DEVICE)
    }

    /// Opens a device node at another place.
    ///
    /// # Errors
    ///
    /// As [`Device::open`]; `ENOTTY`: it is another device.
    pub fn open_path(path: impl rustix::path::Arg) -> Result<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let path = path
            .into_c_str()
            .map_err(|errno| Error::call("open", errno))?;
        let fd = rustix::fs::open(&*path, flags, Mode::empty())
            .map_err(|errno| Error::call("open", errno).on(path.to_string_lossy()))?;
        let device = Self { fd: Arc::new(fd) };
        let found = device.query()?.abi_version;
        if found != abi::KFABRIC_ABI_VERSION {
            return Err(Error::Version {
                found,
                known: abi::KFABRIC_ABI_VERSION,
            });
        }
        Ok(device)
    }

    /// The usual place of the device node.
    pub fn path() -> &'static Path {
        Path::new(abi::KFABRIC_DEVICE.to_str().unwrap_or("/dev/kfabric"))
    }

    /// Version and limits of the module.
    ///
    /// # Errors
    ///
    /// Only those of every call.
    pub fn query(&self) -> Result<Query> {
        let mut arg = abi::kfabric_query::sized();
        calls::plain(self, &mut arg)?;
        Ok(Query {
            abi_version: arg.abi_version,
            module_version: Version::from_raw(arg.module_version),
            page_size: arg.page_size,
            caps: Caps::from_bits_retain(arg.caps),
            max_msg_size: arg.max_msg_size,
            inject_size: arg.inject_size,
            max_iov: arg.max_iov,
            max_handles: arg.max_handles,
            max_queue: arg.max_queue,
            max_cq: arg.max_cq,
            max_eq: arg.max_eq,
            max_av: arg.max_av,
            max_post: arg.max_post,
            max_buffered: arg.max_buffered,
            max_flows: arg.max_flows,
            max_flow_points: arg.max_flow_points,
            max_counters: arg.max_counters,
            max_comp_cntr: arg.max_comp_cntr,
            max_work: arg.max_work,
            max_ep_ctx: arg.max_ep_ctx,
        })
    }

    /// A call that does nothing, to measure what a call costs.
    ///
    /// # Errors
    ///
    /// Only those of every call.
    #[inline]
    pub fn nop(&self) -> Result<()> {
        calls::plain(self, &mut abi::kfabric_nop::sized())
    }

    /// Makes a link: the software device on a network interface of this
    /// network namespace.
    ///
    /// # Errors
    ///
    /// `EPERM`: needs `CAP_NET_ADMIN`; `EINVAL`: a name is empty or has bad
    /// characters; `EEXIST`: the name is taken, or the interface has a link;
    /// `ENODEV`: no such interface; `ENOSPC`: too many links; `EADDRINUSE`:
    /// another socket uses UDP port 4791 in this network namespace.
    pub fn link_add(&self, name: &str, netdev: &str) -> Result<()> {
        let mut arg = abi::kfabric_link_add {
            name: calls::chars("link", name)?,
            netdev: calls::chars("network interface", netdev)?,
            ..Call::sized()
        };
        calls::plain(self, &mut arg)
            .map_err(|error| error.on(format_args!("link {name}, interface {netdev}")))
    }

    /// Removes a link.
    ///
    /// # Errors
    ///
    /// `EPERM`: needs `CAP_NET_ADMIN`; `ENODEV`: no such link; `EBUSY`: a
    /// domain is open on it.
    pub fn link_del(&self, name: &str) -> Result<()> {
        let mut arg = abi::kfabric_link_del {
            name: calls::chars("link", name)?,
            ..Call::sized()
        };
        calls::plain(self, &mut arg).map_err(|error| error.on(format_args!("link {name}")))
    }

    /// The links of this network namespace, one call each.
    pub fn links(&self) -> Links {
        Links::new(self)
    }

    /// A link for a program that has no wish: the first that is up and has an address, one on
    /// `lo` only if there is no other.
    ///
    /// # Errors
    ///
    /// [`Error::NoLink`]: there is none.
    pub fn first_link(&self) -> Result<Link> {
        let links = self.links().collect::<Result<Vec<_>>>()?;
        Link::first(&links).cloned().ok_or(Error::NoLink)
    }

    /// Statistics of the objects of a class in this network namespace, one call each: all of them
    /// with `CAP_NET_ADMIN`, else those of this user.
    pub fn stats(&self, class: StatClass) -> Stats {
        Stats::new(self, class)
    }

    /// The available endpoints (kfi_getinfo).
    ///
    /// # Errors
    ///
    /// `ENODATA`: nothing matches the hints; `ENOSYS`: the version asked for is
    /// newer than 1.7; `EINVAL`: node or service cannot be read as numbers.
    pub fn getinfo(&self, hints: &Hints) -> Result<Vec<Info>> {
        hints.getinfo(self)
    }

    /// Opens the fabric of this network namespace.
    ///
    /// # Errors
    ///
    /// `EMFILE`; `ENOMEM`.
    pub fn fabric(&self) -> Result<Fabric> {
        Fabric::open(self, 0)
    }

    /// As [`Device::fabric`], with a context for events.
    ///
    /// # Errors
    ///
    /// `EMFILE`; `ENOMEM`.
    pub fn fabric_with_context(&self, context: u64) -> Result<Fabric> {
        Fabric::open(self, context)
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use crate::Errno;

    use super::*;

    #[test]
    fn a_missing_device_gives_advice() {
        let error = Device::open_path("/nowhere/kfabric").unwrap_err();
        assert!(error.is(Errno::ENOENT));
        assert!(error.advice().unwrap().contains("modprobe"));
        assert!(error.to_string().contains("/nowhere/kfabric"), "{error}");
    }

    #[test]
    fn another_device_is_refused() {
        let error = Device::open_path("/dev/null").unwrap_err();
        assert!(error.is(Errno::ENOTTY), "{error}");
        assert!(error.advice().is_some());
    }

    #[test]
    fn path() {
        assert_eq!(Device::path(), Path::new("/dev/kfabric"));
    }
}
