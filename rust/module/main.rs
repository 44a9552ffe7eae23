// SPDX-License-Identifier: GPL-2.0

//! kfabric.ko: the kfabric API and a software RoCEv2 device under it.
//!
//! The floors of the module, from the lowest; each knows only those below it:
//!
//! ```text
//!   uapi       /dev/kfabric: the objects for programs
//!   registry   which providers there are, and what they offer
//!   provider   the objects: domain, endpoint, av, mr, cq, cntr, eq, wait, poll
//!   net        links: the device on network interfaces
//!   mem        memory of programs and of the module's own
//!   shim       what only C can reach
//! ```
//!
//! All floors may use the crates `kfi_core` (the state machines of the objects) and `kfi_roce` (the
//! protocol), which use nothing of the kernel.
//! Documentation/design.md tells what stands where.
//!
//! Loading brings the floors up from below and opens nothing to the network: that takes a link.
//! Unloading takes them down from above; it is refused while a file of the device, or a descriptor
//! that was made through one, is open.

use kernel::{
    miscdevice::MiscDeviceRegistration,
    prelude::*, //
};

mod mem;
mod net;
mod provider;
mod registry;
mod shim;
mod uapi;

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
            description: "MiB of kernel memory that the objects of one user may take",
        },
    },
}

/// The loaded module. What stands first is taken down first.
#[pin_data]
struct Kfabric {
    #[pin]
    _debugfs: uapi::Debugfs,
    #[pin]
    _device: MiscDeviceRegistration<uapi::OpenFile>,
    _links: net::Registration,
    #[cfg(kfi_kunit)]
    #[pin]
    _bench: provider::bench::Bench,
}

impl kernel::InPlaceModule for Kfabric {
    fn init(_module: &'static ThisModule) -> impl PinInit<Self, Error> {
        // SAFETY: The module is loaded once, and nothing of mem or of the provider is used before.
        unsafe {
            mem::account::init(u64::from(module_parameters::user_memory.value()) << 20);
            provider::init();
        }
        try_pin_init!(Self {
            // SAFETY: The module is loaded once, and nothing of net is used before.
            _links: unsafe {
                net::start(module_parameters::max_links.value(), &provider::LINK_EVENTS)?
            },
            _device <- uapi::register(),
            _debugfs <- uapi::Debugfs::new(),
            #[cfg(kfi_kunit)]
            _bench <- provider::bench::Bench::new(),
        })
    }
}
