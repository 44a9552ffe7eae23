// SPDX-License-Identifier: GPL-2.0

//! Which structures of the ABI may be copied from and to user space.
//!
//! [`Abi`] is every structure of `<uapi/kfabric.h>`; [`Versioned`] are those
//! that begin with their size and can grow. The list at the end of this file is
//! the only place where a structure is admitted; shim.c has the compiler check
//! the same structures for padding.

use crate::shim::bindings::*;
use kernel::{
    prelude::*,
    static_assert,
    transmute::{
        AsBytes,
        FromBytes, //
    }, //
};

/// A structure of the ABI: integers and arrays of integers, without padding.
pub(crate) trait Abi: FromBytes + AsBytes + Default + Copy + Send {
    /// Whether it is short enough to be copied word by word. The size of each is a multiple of 8.
    const IN_WORDS: bool = size_of::<Self>() <= 256;

    /// How many words it is, if it is one of those.
    const WORDS: usize = size_of::<Self>() / size_of::<u64>();
}

/// A structure of the ABI that begins with `size`, its length as the caller
/// knows it.
pub(crate) trait Versioned: Abi {
    /// Bytes of the first version of the structure: callers know at least these.
    /// It stays when the structure grows.
    const V1_SIZE: usize;

    /// The structure's first member.
    fn size(&self) -> u32;

    /// Sets the structure's first member.
    fn set_size(&mut self, size: u32);
}

macro_rules! abi {
    (plain { $($plain:ident,)* } versioned { $($name:ident: $v1:literal,)* }) => {
        $(abi!(@bytes $plain);)*
        $(
            abi!(@bytes $name);

            static_assert!($v1 >= 8 && $v1 <= size_of::<$name>());
            static_assert!(core::mem::offset_of!($name, size) == 0);

            impl Versioned for $name {
                const V1_SIZE: usize = $v1;

                #[inline]
                fn size(&self) -> u32 {
                    self.size
                }

                #[inline]
                fn set_size(&mut self, size: u32) {
                    self.size = size;
                }
            }
        )*
    };
    (@bytes $name:ident) => {
        // SAFETY: Structures of the ABI consist of integers and arrays of integers and of such
        // structures, for which every bit pattern is valid, and have no interior mutability.
        unsafe impl FromBytes for $name {}

        // SAFETY: As above, and without padding, which shim.c has the compiler refuse
        // (abi_size.h, -Wpadded): every byte of a value is initialized.
        unsafe impl AsBytes for $name {}

        impl Abi for $name {}

        static_assert!(size_of::<$name>() % size_of::<u64>() == 0);
    };
}

abi! {
    plain {
        kfabric_cntr_values,
        kfabric_cq_entry,
        kfabric_cq_ring,
        kfabric_eq_cm_entry,
        kfabric_eq_entry,
        kfabric_info,
        kfabric_iov,
        kfabric_op,
        kfabric_rma_iov,
        kfabric_sockaddr,
    }
    versioned {
        kfabric_av_insert: 56,
        kfabric_av_insertsvc: 160,
        kfabric_av_lookup: 48,
        kfabric_av_open: 40,
        kfabric_av_remove: 32,
        kfabric_av_straddr: 120,
        kfabric_bind: 24,
        kfabric_close: 8,
        kfabric_cntr_modify: 24,
        kfabric_cntr_open: 56,
        kfabric_cntr_read: 24,
        kfabric_cntr_wait: 40,
        kfabric_cq_open: 72,
        kfabric_cq_read: 40,
        kfabric_cq_readerr: 88,
        kfabric_cq_signal: 8,
        kfabric_cq_strerror: 80,
        kfabric_domain_open: 40,
        kfabric_ep_accept: 32,
        kfabric_ep_cancel: 16,
        kfabric_ep_connect: 56,
        kfabric_ep_connect_qp: 48,
        kfabric_ep_enable: 8,
        kfabric_ep_name: 48,
        kfabric_ep_open: 96,
        kfabric_ep_opt: 32,
        kfabric_ep_peer: 40,
        kfabric_ep_qp: 48,
        kfabric_ep_shutdown: 16,
        kfabric_eq_open: 40,
        kfabric_eq_read: 40,
        kfabric_eq_readerr: 48,
        kfabric_eq_write: 32,
        kfabric_fabric_open: 16,
        kfabric_figures: 536,
        kfabric_getinfo: 168,
        kfabric_getwait: 16,
        kfabric_link_add: 40,
        kfabric_link_del: 24,
        kfabric_link_get: 152,
        kfabric_mr_reg: 80,
        kfabric_nop: 8,
        kfabric_opsflag: 24,
        kfabric_pep_listen: 8,
        kfabric_pep_open: 56,
        kfabric_pep_reject: 24,
        kfabric_poll: 24,
        kfabric_poll_change: 24,
        kfabric_poll_open: 24,
        kfabric_post: 40,
        kfabric_query: 72,
        kfabric_stat: 136,
        kfabric_wait: 16,
        kfabric_wait_open: 24,
    }
}
