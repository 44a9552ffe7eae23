// SPDX-License-Identifier: GPL-2.0
//! Authorization keys: which endpoints communicate.
//!
//! An endpoint communicates only with endpoints that have the same key (fi_endpoint(3), auth_key),
//! so that jobs or services that share a network do not meet by mistake. A key is no secret: the
//! [greeting](crate::rdm::hello) of a connection has it in plain text.
//!
//! Only reliable datagrams have keys. An endpoint without one has the key of zeros.

/// A key. Two keys are equal if their bytes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuthKey([u8; Self::LEN]);

impl AuthKey {
    /// The length of a key in bytes: that of the keys of kfilnd.
    pub const LEN: usize = 4;

    /// The key of an endpoint for which none was given.
    pub const NONE: Self = Self([0; Self::LEN]);

    /// Makes a key from its bytes.
    pub const fn new(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes.
    pub const fn bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }
}
