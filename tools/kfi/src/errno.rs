// SPDX-License-Identifier: GPL-2.0
//! Error numbers: the system's and, from 256 upwards, kfabric's.
//!
//! A call of `/dev/kfabric` answers with either kind, and completions carry
//! them too.  The constants of [`Errno`] are made from `<linux/errno.h>` and
//! from `include/uapi/kfabric.h` when the crate is built.

use std::fmt;

/// A positive error number, as calls and completions report it.
///
/// ```
/// use kfi::Errno;
///
/// assert_eq!(Errno::KFI_EAVAIL.name(), Some("KFI_EAVAIL"));
/// assert_eq!(Errno::EBUSY.name(), Some("EBUSY"));
/// assert_eq!(Errno::from_raw(265), Errno::KFI_ETRUNC);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Errno(i32);

include!(concat!(env!("OUT_DIR"), "/errno.rs"));

impl Errno {
    /// The error with this positive number.
    pub const fn from_raw(raw: i32) -> Self {
        Self(raw)
    }

    /// The positive number.
    pub const fn raw(self) -> i32 {
        self.0
    }

    /// Whether this is one of kfabric's own numbers, and not one of the system's.
    pub const fn is_kfi(self) -> bool {
        self.0 > 255
    }

    /// The constant's name, as in the headers; `None` for an unknown number.
    pub fn name(self) -> Option<&'static str> {
        NAMES
            .iter()
            .find(|(raw, _)| *raw == self.0)
            .map(|(_, name)| *name)
    }

    /// The meaning of the error, in a few words.
    pub fn text(self) -> String {
        match self.kfi_text() {
            Some(text) => text.to_owned(),
            None => {
                let text = std::io::Error::from_raw_os_error(self.0).to_string();
                // The standard library appends the number; Display adds the name.
                match text.split_once(" (os error") {
                    Some((text, _)) => text.to_owned(),
                    None => text,
                }
            }
        }
    }

    fn kfi_text(self) -> Option<&'static str> {
        Some(match self {
            Self::KFI_EOTHER => "Unspecified error",
            Self::KFI_ETOOSMALL => "The buffer is too small",
            Self::KFI_EOPBADSTATE => "The object's state does not allow it",
            Self::KFI_EAVAIL => "An error entry is waiting to be read",
            Self::KFI_EBADFLAGS => "Flags that are not supported",
            Self::KFI_ENOEQ => "No event queue is bound",
            Self::KFI_EDOMAIN => "The objects belong to different domains",
            Self::KFI_ENOCQ => "No completion queue is bound",
            Self::KFI_ECRC => "Checksum error",
            Self::KFI_ETRUNC => "The message was truncated",
            Self::KFI_ENOKEY => "The key is not available",
            Self::KFI_ENOAV => "No address vector is bound",
            Self::KFI_EOVERRUN => "The queue was overrun",
            _ => return None,
        })
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(errno: rustix::io::Errno) -> Self {
        Self(errno.raw_os_error())
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "Errno({})", self.0),
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{} ({name})", self.text()),
            None => write!(f, "Error {}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kfi_number_has_a_text_of_its_own() {
        let kfi: Vec<_> = NAMES.iter().filter(|(raw, _)| *raw > 255).collect();
        assert_eq!(kfi.len(), 13);
        for (raw, name) in kfi {
            let errno = Errno::from_raw(*raw);
            assert!(errno.kfi_text().is_some(), "{name}");
            assert!(errno.is_kfi());
            assert!(name.starts_with("KFI_E"), "{name}");
        }
    }

    #[test]
    fn system_numbers_agree_with_the_system() {
        use rustix::io::Errno as Sys;
        for (ours, theirs) in [
            (Errno::EPERM, Sys::PERM),
            (Errno::EAGAIN, Sys::AGAIN),
            (Errno::ETIMEDOUT, Sys::TIMEDOUT),
            (Errno::ENOTTY, Sys::NOTTY),
            (Errno::EHOSTUNREACH, Sys::HOSTUNREACH),
            (Errno::EKEYREJECTED, Sys::KEYREJECTED),
        ] {
            assert_eq!(ours, theirs.into());
        }
    }

    #[test]
    fn aliases_do_not_hide_the_usual_name() {
        assert_eq!(Errno::EAGAIN.name(), Some("EAGAIN"));
        assert_eq!(Errno::EDEADLK.name(), Some("EDEADLK"));
        assert_eq!(Errno::EOPNOTSUPP.name(), Some("EOPNOTSUPP"));
    }

    #[test]
    fn text_has_the_description_and_the_name() {
        assert_eq!(Errno::EBUSY.to_string(), "Device or resource busy (EBUSY)");
        assert_eq!(
            Errno::KFI_ENOAV.to_string(),
            "No address vector is bound (KFI_ENOAV)"
        );
        assert_eq!(Errno::from_raw(4000).to_string(), "Error 4000");
        assert_eq!(format!("{:?}", Errno::KFI_EAVAIL), "KFI_EAVAIL");
        assert_eq!(format!("{:?}", Errno::from_raw(4000)), "Errno(4000)");
    }
}
