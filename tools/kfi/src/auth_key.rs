// SPDX-License-Identifier: GPL-2.0
//! Authorization keys of endpoints for reliable datagrams.

use std::{fmt, str::FromStr};

use crate::abi::KFABRIC_AUTH_KEY_SIZE;

/// An authorization key.  Endpoints for reliable datagrams communicate with those
/// that have the same one.
///
/// A key separates users of a network who trust each other.  It is no secret: it is
/// sent in plain text.
///
/// As text a key is a hexadecimal number below 2^32, with or without `0x`.
///
/// ```
/// use kfi::AuthKey;
///
/// let key: AuthKey = "c0ffee".parse().unwrap();
/// assert_eq!(key, AuthKey::new([0, 0xc0, 0xff, 0xee]));
/// assert_eq!(key.to_string(), "00c0ffee");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AuthKey([u8; Self::SIZE]);

impl AuthKey {
    /// Bytes of a key.
    pub const SIZE: usize = KFABRIC_AUTH_KEY_SIZE as usize;

    /// The key of an endpoint that is opened without one: zeros.
    pub const NONE: Self = Self([0; Self::SIZE]);

    /// A key with these bytes.
    pub const fn new(bytes: [u8; Self::SIZE]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    pub const fn bytes(self) -> [u8; Self::SIZE] {
        self.0
    }
}

impl From<[u8; Self::SIZE]> for AuthKey {
    fn from(bytes: [u8; Self::SIZE]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for AuthKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", u32::from_be_bytes(self.0))
    }
}

/// Text that is no authorization key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key is a hexadecimal number below 2^32")]
pub struct AuthKeyError;

impl FromStr for AuthKey {
    type Err = AuthKeyError;

    fn from_str(text: &str) -> Result<Self, AuthKeyError> {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        let is_number = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        match u32::from_str_radix(digits, 16) {
            Ok(number) if is_number => Ok(Self(number.to_be_bytes())),
            _ => Err(AuthKeyError),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_a_hexadecimal_number() {
        for (text, bytes) in [
            ("0", [0; 4]),
            ("1", [0, 0, 0, 1]),
            ("0x1020304", [1, 2, 3, 4]),
            ("ffFFffFF", [0xff; 4]),
            ("0000000000000001", [0, 0, 0, 1]),
        ] {
            assert_eq!(text.parse(), Ok(AuthKey::new(bytes)), "{text}");
        }
        for text in ["", "0x", "+1", "-1", "123456789", "1g", " 1", "0x0x1"] {
            assert_eq!(text.parse::<AuthKey>(), Err(AuthKeyError), "{text}");
        }
        let key = AuthKey::new([0, 1, 2, 0xf3]);
        assert_eq!(key.to_string(), "000102f3");
        assert_eq!(key.to_string().parse(), Ok(key));
        assert_eq!(AuthKey::default(), AuthKey::NONE);
    }
}
