// SPDX-License-Identifier: GPL-2.0

//! The structures and constants of `<uapi/kfabric.h>` and the C helpers of this
//! floor, made by bindgen from `bindings.h` (see Kbuild).
//!
//! The macros `every_constant`, `every_structure` and `every_command` list what the header defines
//! (`lists.awk`).
//!
//! Structures and constants may be used everywhere in the module.  The functions
//! are called from [`shim`](crate::shim), [`mem`](crate::mem) and the network
//! floor only.

include!(env!("KFI_BINDINGS"));
