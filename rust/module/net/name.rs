// SPDX-License-Identifier: GPL-2.0

//! Names of links and of network interfaces: user input, validated once.
//!
//! Both are at most 15 bytes. A link's name is also the name of domains and part of command lines
//! and file names, so it is printable ASCII. The kernel decides which names an interface may have;
//! this file refuses only names that no interface can have.

use kernel::prelude::*;

use crate::shim::{
    bindings::KFABRIC_LINK_NAME_MAX,
    net::IFNAMSIZ, //
};

/// Size of a name of either kind in the ABI, with the NUL.
pub(crate) const NAME_MAX: usize = KFABRIC_LINK_NAME_MAX as usize;

const _: () = assert!(NAME_MAX == IFNAMSIZ);

/// A name padded with NULs.
///
/// # Invariants
///
/// The first byte is not NUL, the last one is, and all bytes after the first NUL are NULs.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Name([u8; NAME_MAX]);

impl Name {
    /// Takes the bytes up to the first NUL. Fails with `EINVAL` if there is no NUL, nothing before
    /// it, or a byte that `good` rejects.
    fn new(raw: &[u8; NAME_MAX], good: impl Fn(u8) -> bool) -> Result<Self> {
        let len = raw.iter().position(|&byte| byte == 0).ok_or(EINVAL)?;
        let mut name = [0; NAME_MAX];
        for (to, &from) in name.iter_mut().zip(raw).take(len) {
            if !good(from) {
                return Err(EINVAL);
            }
            *to = from;
        }
        if len == 0 {
            return Err(EINVAL);
        }
        // INVARIANT: `len` bytes that are not NUL. `len` is at least 1 and, since a NUL follows
        // them, at most NAME_MAX - 1. The rest is 0.
        Ok(Self(name))
    }

    fn as_bytes(&self) -> &[u8] {
        self.0.split(|&b| b == 0).next().unwrap_or_default()
    }
}

/// The name of a link: printable ASCII without blanks and '/'.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct LinkName(Name);

impl LinkName {
    fn good(byte: u8) -> bool {
        byte.is_ascii_graphic() && byte != b'/'
    }

    /// A name in the format of the ABI. Fails with `EINVAL` if it is empty, not terminated, or has
    /// a byte that is not allowed.
    pub(crate) fn new(raw: &[u8; NAME_MAX]) -> Result<Self> {
        Name::new(raw, Self::good).map(Self)
    }

    /// The bytes, without NUL.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The name in the format of the ABI.
    pub(crate) fn to_array(self) -> [u8; NAME_MAX] {
        self.0 .0
    }
}

/// The name of a network interface.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct IfName(Name);

impl IfName {
    /// Whether an interface may have this byte in its name; as the kernel's `dev_valid_name()`.
    fn good(byte: u8) -> bool {
        !byte.is_ascii_whitespace() && byte != 0x0b && byte != b'/' && byte != b':'
    }

    /// A name in the format of the ABI. Fails with `EINVAL` if it is empty, not terminated, or has
    /// a byte that no interface can have in its name.
    pub(crate) fn new(raw: &[u8; NAME_MAX]) -> Result<Self> {
        Name::new(raw, Self::good).map(Self)
    }

    /// A name from the kernel; "?" if it is not valid.
    pub(super) fn from_kernel(raw: &[u8; IFNAMSIZ]) -> Self {
        Self(Name::new(raw, |_| true).unwrap_or(Self::UNKNOWN.0))
    }

    /// Replaces a name that is not valid.
    // INVARIANT: One byte, then NULs.
    const UNKNOWN: Self = Self(Name([b'?', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]));

    /// The bytes, without NUL.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The name in the format of the ABI.
    pub(crate) fn to_array(self) -> [u8; NAME_MAX] {
        self.0 .0
    }

    /// The name for a look-up.
    pub(super) fn as_c_str(&self) -> &CStr {
        // By the invariant there is a NUL, so the default is never used.
        CStr::from_bytes_until_nul(&self.0 .0).unwrap_or_default()
    }
}
