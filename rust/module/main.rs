// SPDX-License-Identifier: GPL-2.0

//! kfabric.ko: the kfabric API on a software RoCEv2 device.
//!
//! The layers of the module, top to bottom; each layer uses only the layers below it:
//!
//! ```text
//!   uapi       /dev/kfabric: the objects for programs
//!   capi       kfabric 1.7: the objects for kernel modules in C
//!   verbs      devices of the RDMA subsystem, which kfabric_ib.ko registers
//!   registry   the providers, and getinfo
//!   provider   the objects: domain, endpoint, av, mr, cq, cntr, comp_cntr, eq, wait, poll, flow,
//!              counters; work that waits for counters
//!   net        links: the software device on network interfaces
//!   mem        the memory that operations read and write; accounting
//!   shim       wrappers of kernel functions, C code, bindings
//! ```
//!
//! All layers may use the crates `kfi_core` (state machines of the objects) and `kfi_roce` (the
//! wire protocol). The crates use nothing of the kernel. Documentation/design.md describes the
//! layers.
//!
//! Loading starts the layers from the lowest to the highest. It opens no socket: a socket needs a
//! link. Unloading stops them in the opposite order. The kernel refuses to unload the module while
//! a file of the device, or a descriptor made through such a file, is open.

use kernel::{
    miscdevice::MiscDeviceRegistration,
    prelude::*, //
};

mod capi;
// The macros of the suites come first: all other modules may have suites.
#[cfg(kfi_kunit)]
#[path = "../../kunit/mod.rs"]
#[macro_use]
mod kunit;
mod mem;
mod net;
mod provider;
mod registry;
mod shim;
mod uapi;
mod verbs;

module! {
    type: Kfabric,
    name: "kfabric",
    authors: ["The kfabric authors"],
    description: "kfabric: fabric objects over a software RoCEv2 device",
    license: "GPL",
    params: {
        max_links: u32 {
            default: 64,
            description: "Links that one network namespace may have",
        },
        user_memory: u32 {
            default: 256,
            description: "MiB of kernel memory for programs of a user; as much for its kernel modules",
        },
        comp_cntr_max_value: u64 {
            default: 0,
            description: "Largest value of a completion counter; 0: 2^64 - 1",
        },
    },
}

/// The loaded module. Fields are dropped in this order.
#[pin_data]
struct Kfabric {
    _capi: capi::Registration,
    #[pin]
    _debugfs: uapi::Debugfs,
    #[pin]
    _device: MiscDeviceRegistration<uapi::OpenFile>,
    _teardowns: provider::Teardowns,
    _links: net::Registration,
    #[cfg(kfi_kunit)]
    #[pin]
    _bench: kunit::bench::Bench,
}

impl kernel::InPlaceModule for Kfabric {
    fn init(_module: &'static ThisModule) -> impl PinInit<Self, Error> {
        // SAFETY: The kernel calls this once, and nothing has used `mem` or `provider` before.
        unsafe {
            mem::account::init(u64::from(module_parameters::user_memory.value()) << 20);
            provider::init(module_parameters::comp_cntr_max_value.value());
        }
        try_pin_init!(Self {
            // SAFETY: The kernel calls this once, and nothing has used `net` before.
            _links: unsafe {
                net::start(module_parameters::max_links.value(), &provider::LINK_EVENTS)?
            },
            // SAFETY: The kernel calls this once, before the module's functions can be called.
            _capi: unsafe { capi::Registration::new()? },
            _device <- uapi::register(),
            _teardowns: provider::Teardowns,
            _debugfs <- uapi::Debugfs::new(),
            #[cfg(kfi_kunit)]
            _bench <- kunit::bench::Bench::new(),
        })
    }
}
