// SPDX-License-Identifier: GPL-2.0

//! The node `/dev/kfabric`.
//!
//! The kernel makes it with mode 0600, owner root: who besides root may use the device is the
//! administrator's decision, taken with an ordinary mode and group (a udev rule such as
//! `KERNEL=="kfabric", GROUP="rdma", MODE="0660"`, or chmod(1)). A user whom the node admits can
//! do everything with objects of its own and nothing to others'; adding and removing links asks
//! for `CAP_NET_ADMIN` on top.
//!
//! The structures of the interface are the same for 32-bit programs, so one handler serves both.
//! The node has no poll operation: what can be waited for has descriptors of its own
//! (`KFABRIC_IOC_GETWAIT`). The module cannot be unloaded while a file is open.

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

/// Registers the node; it goes when the registration is dropped.
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
