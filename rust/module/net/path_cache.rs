// SPDX-License-Identifier: GPL-2.0

//! A cache of the paths to some recent destinations of datagrams: finding a path needs a routing
//! look-up.
//!
//! A cached path is checked when it is used, as each [`Path`] is, so the cache forgets nothing but
//! what it has no room for.

use core::net::IpAddr;

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};

use super::{
    link::Link,
    path::Path, //
};

/// The number of cached paths. A power of two.
const PATHS: usize = 64;

/// The cache of a QP.
#[pin_data]
pub(crate) struct PathCache {
    /// Indexed by a hash of the destination. A leaf but for [`Path::with_class`].
    #[pin]
    paths: Mutex<[Option<Arc<Path>>; PATHS]>,
}

impl PathCache {
    /// Bytes of the paths in a cache that is full.
    pub(crate) const PATH_BYTES: usize = PATHS * size_of::<Path>();

    /// Without a path.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            paths <- new_mutex!([const { None }; PATHS], "PathCache::paths"),
        })
    }

    /// The path on `link` from `from` to `to`, for packets with the traffic class `class`. Fails as
    /// [`Path::with_class`]. Sleeps.
    pub(crate) fn path(
        &self,
        link: &Arc<Link>,
        from: IpAddr,
        to: IpAddr,
        class: u8,
    ) -> Result<Arc<Path>> {
        let low = match to {
            IpAddr::V4(ip) => ip.to_bits(),
            IpAddr::V6(ip) => ip.to_bits() as u32,
        };
        let mut paths = self.paths.lock();
        // The index is below PATHS.
        let known = paths.get_mut(low as usize % PATHS).ok_or(EINVAL)?;
        if let Some(path) = known {
            let addrs = path.addrs();
            if addrs.to == to && addrs.from == from && path.class() == class {
                return Ok(path.clone());
            }
        }
        let path = Path::with_class(link, from, to, class)?;
        *known = Some(path.clone());
        Ok(path)
    }
}
