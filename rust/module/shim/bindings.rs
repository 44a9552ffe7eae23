// SPDX-License-Identifier: GPL-2.0

//! The structures and constants of `<uapi/kfabric.h>` and the C functions of the module. bindgen
//! generates them from `bindings.h` (see Kbuild).
//!
//! The macros `every_constant`, `every_structure` and `every_command` list the names that the
//! header defines (`lists.awk`).
//!
//! All of the module may use the structures and constants. Only [`shim`](crate::shim),
//! [`mem`](crate::mem) and the network layer call the functions.

include!(env!("KFI_BINDINGS"));
