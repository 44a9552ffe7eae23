// SPDX-License-Identifier: GPL-2.0

//! The device node `/dev/kfabric`.
//!
//! The kernel creates it with mode 0600 and owner root. The administrator gives other users access
//! by mode and group (a udev rule such as `KERNEL=="kfabric", GROUP="rdma", MODE="0660"`, or
//! chmod(1)). A user with access can do everything with their own objects and nothing with those of
//! others; adding and removing links also requires `CAP_NET_ADMIN`.
//!
//! The structures of the interface are the same for 32-bit programs, so one handler serves both.
//! The node has no poll operation: wait objects have their own descriptors (`KFABRIC_IOC_GETWAIT`).
//! The module cannot be unloaded while a file is open.

use kernel::{
    fs::File,
    miscdevice::{
        MiscDevice,
        MiscDeviceOptions,
        MiscDeviceRegistration, //
    },
    mm::virt::VmaNew,
    prelude::*, //
};

use super::{
    dispatch::dispatch,
    file::OpenFile,
    mmap, //
};

/// Registers the node. It is removed when the registration is dropped.
pub(crate) fn register() -> impl PinInit<MiscDeviceRegistration<OpenFile>, Error> {
    MiscDeviceRegistration::register(MiscDeviceOptions { name: c"kfabric" })
}

#[vtable]
impl MiscDevice for OpenFile {
    type Ptr = Pin<KBox<Self>>;

    fn open(_file: &File, _device: &MiscDeviceRegistration<Self>) -> Result<Self::Ptr> {
        Self::open()
    }

    #[link_section = ".text.hot"]
    fn ioctl(me: Pin<&Self>, _file: &File, cmd: u32, arg: usize) -> Result<isize> {
        dispatch(&me, cmd, UserPtr::from_addr(arg)).map(|()| 0)
    }

    fn mmap(me: Pin<&Self>, _file: &File, vma: &VmaNew) -> Result {
        mmap::map(&me, vma)
    }
}
