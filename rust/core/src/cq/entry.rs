// SPDX-License-Identifier: GPL-2.0

//! The formats of completions: the entry, the error entry, and the formats in which a reader gets
//! entries.
//!
//! The module has one kind of entry, with all fields. A format determines how many of its first
//! fields a reader gets. Source: fi_cq(3), "Completion Fields".

use crate::errno::{
    Errno,
    Result, //
};

/// A completion as stored in the ring: `struct kfabric_cq_entry`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The context of the operation.
    pub op_context: u64,
    /// The completion flags.
    pub flags: u64,
    /// Receive: the number of bytes placed.
    pub len: u64,
    /// Multi-receive: the address at which they were placed.
    pub buf: u64,
    /// The remote CQ data.
    pub data: u64,
    /// Tagged receive: the tag of the message.
    pub tag: u64,
    /// Receive: the address of the sender, or KFI_ADDR_NOTAVAIL.
    pub src_addr: u64,
    /// Always 0.
    pub reserved: u64,
}

impl Entry {
    /// The number of words of an entry.
    pub const WORDS: usize = 8;

    /// Returns the entry as words, in the order of the structure, for a ring whose memory is
    /// written word by word.
    pub const fn words(&self) -> [u64; Self::WORDS] {
        [
            self.op_context,
            self.flags,
            self.len,
            self.buf,
            self.data,
            self.tag,
            self.src_addr,
            self.reserved,
        ]
    }
}

/// A completion in error, as KFABRIC_IOC_CQ_READERR returns it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrEntry {
    /// The context of the operation.
    pub op_context: u64,
    /// The completion flags of the operation.
    pub flags: u64,
    /// The number of bytes placed.
    pub len: u64,
    /// Multi-receive: the address at which they were placed.
    pub buf: u64,
    /// The remote CQ data.
    pub data: u64,
    /// The tag.
    pub tag: u64,
    /// The number of bytes of the message that did not fit.
    pub olen: u64,
    /// The address of the peer, or KFI_ADDR_NOTAVAIL.
    pub src_addr: u64,
    /// The positive error number.
    pub err: u32,
    /// The provider's error number; 0 if there is none.
    pub prov_errno: u32,
}

/// The format in which a reader gets entries: `enum kfi_cq_format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Format {
    /// The context.
    Context = 1,
    /// The context, the flags and the length.
    Msg = 2,
    /// As `Msg`, with the buffer and the remote CQ data.
    Data = 3,
    /// As `Data`, with the tag.
    Tagged = 4,
}

impl Format {
    /// Returns the format with this number. KFI_CQ_FORMAT_UNSPEC (0) gives CONTEXT, the smallest,
    /// because a reader that names no format may have room for no more.
    ///
    /// Errors: EINVAL if there is no such format.
    pub const fn from_abi(format: u32) -> Result<Self> {
        match format {
            0 | 1 => Ok(Self::Context),
            2 => Ok(Self::Msg),
            3 => Ok(Self::Data),
            4 => Ok(Self::Tagged),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Returns the number of the format.
    pub const fn to_abi(self) -> u32 {
        self as u32
    }

    /// Returns the size of an entry in this format in bytes. Each format is the beginning of the
    /// next one.
    pub const fn size(self) -> usize {
        match self {
            Self::Context => 8,
            Self::Msg => 24,
            Self::Data => 40,
            Self::Tagged => 48,
        }
    }

    /// Returns the number of words of an entry in this format.
    pub const fn words(self) -> usize {
        self.size() / size_of::<u64>()
    }
}

#[cfg(any(test, kfi_kunit))]
#[cfg_attr(kfi_kunit, kernel::prelude::kunit_tests(kfi_core_cq_entry))]
mod tests {
    use super::*;

    const ENTRY: Entry = Entry {
        op_context: 1,
        flags: 2,
        len: 3,
        buf: 4,
        data: 5,
        tag: 6,
        src_addr: 7,
        reserved: 0,
    };

    #[test]
    fn formats_of_the_abi() {
        assert_eq!(Format::from_abi(0), Ok(Format::Context));
        for (number, size) in [(1, 8), (2, 24), (3, 40), (4, 48)] {
            let format = Format::from_abi(number);
            assert_eq!(format.map(Format::to_abi), Ok(number));
            assert_eq!(format.map(Format::size), Ok(size));
            assert_eq!(format.map(Format::words), Ok(size / 8));
        }
        assert_eq!(Format::from_abi(5), Err(Errno::EINVAL));
        assert_eq!(Format::from_abi(u32::MAX), Err(Errno::EINVAL));
    }

    #[test]
    fn an_entry_is_eight_words_in_the_order_of_the_structure() {
        assert_eq!(ENTRY.words(), [1, 2, 3, 4, 5, 6, 7, 0]);
        assert_eq!(core::mem::size_of::<Entry>(), Entry::WORDS * 8);
    }
}
