// SPDX-License-Identifier: GPL-2.0

//! Device: a link as a device of the RDMA subsystem.
//!
//! The device is on the link of an interface. If the interface has none, the device adds one, which
//! is removed with it unless domains are open on the link then. While the device exists, the link
//! cannot be removed by a command; it goes with its interface, which removes the device, too.
//!
//! All functions need process context and may sleep, unless their documentation says otherwise.

use core::ptr::{
    self,
    NonNull, //
};

use kernel::{
    bindings,
    prelude::*,
    sync::Arc,
    types::ForeignOwnable, //
};

use kfi_roce::{
    mtu::PathMtu,
    rc::MAX_LEN, //
};

use super::{
    callbacks::Callbacks,
    context::Context,
    declared,
    handle,
    raw::{
        kfabric_verbs_callbacks,
        kfabric_verbs_device,
        kfabric_verbs_port, //
    }, //
};
use crate::net::{
    self,
    DeviceUse,
    IfName,
    Link,
    LinkName,
    LinkState,
    NetNs,
    Stat,
    NAME_MAX,
    STATS, //
};

/// A device.
pub(super) struct Device {
    link: Arc<DeviceUse>,
    callbacks: Callbacks,
    kernel: Arc<Context>,
}

impl Device {
    /// A device on the interface `ifname` of `netns`, and its link; a new link is called `name`.
    ///
    /// # Errors
    ///
    /// - `EEXIST`: the interface has a device; or it has no link, and another link is called
    ///   `name`.
    /// - `ENOMEM`.
    /// - Those of [`net::add`] if the interface has no link.
    pub(super) fn add(
        netns: &NetNs,
        name: LinkName,
        ifname: IfName,
        ifindex: u32,
        callbacks: Callbacks,
    ) -> Result<Arc<Self>> {
        let link = match net::on_interface(netns.id(), ifindex) {
            Some(link) => DeviceUse::of(&link)?,
            None => DeviceUse::of_new(net::add(netns, name, ifname)?)?,
        };
        let link = Arc::new(link, GFP_KERNEL_ACCOUNT)?;
        let device = Self {
            kernel: Context::of_kernel(link.clone(), callbacks)?,
            link,
            callbacks,
        };
        Ok(Arc::new(device, GFP_KERNEL_ACCOUNT)?)
    }

    /// Its link. Any context.
    pub(super) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// Its use of the link. Any context.
    pub(super) fn link_use(&self) -> &Arc<DeviceUse> {
        &self.link
    }

    /// The functions that its objects call. Any context.
    pub(super) fn callbacks(&self) -> Callbacks {
        self.callbacks
    }

    /// The context of its kernel callers. Any context.
    pub(super) fn kernel(&self) -> &Arc<Context> {
        &self.kernel
    }
}

/// A text as an array, padded with NULs. `None` if the text is too long.
///
/// # Safety
///
/// `text` is valid, with a NUL at its end.
unsafe fn name(text: *const c_char) -> Option<[u8; NAME_MAX]> {
    // SAFETY: By the requirement above.
    let text = unsafe { CStr::from_char_ptr(text) }.to_bytes_with_nul();
    let mut name = [0; NAME_MAX];
    name.get_mut(..text.len())?.copy_from_slice(text);
    Some(name)
}

declared! {
    kfabric_verbs_device_add: fn(
        *mut bindings::net, *const c_char, *const c_char, u32, *const kfabric_verbs_callbacks,
    ) -> *mut kfabric_verbs_device;
    kfabric_verbs_device_remove: fn(*mut kfabric_verbs_device);
    kfabric_verbs_device_port: fn(*const kfabric_verbs_device, *mut kfabric_verbs_port);
    kfabric_verbs_device_stats: fn(*const kfabric_verbs_device, *mut u64, u32) -> u32;
    kfabric_verbs_stat_name: fn(u32) -> *const c_char;
}

/// Adds the device `device_name` on an interface. Its link, if it needs a new one, gets the same
/// name, or that of the interface if a link's name cannot be so long. Fails as [`Device::add`];
/// with `EINVAL` if a link cannot have the name. Sleeps; takes the RTNL.
///
/// # Safety
///
/// The arguments are valid by the interface. The callbacks are valid until the device is removed,
/// and may be called with the cookie of each of its objects until the object's handle is ended.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_device_add(
    net: *mut bindings::net,
    device_name: *const c_char,
    ifname: *const c_char,
    ifindex: u32,
    callbacks: *const kfabric_verbs_callbacks,
) -> *mut kfabric_verbs_device {
    // SAFETY: By the requirement above; all users of the callbacks are objects of the device, which
    // end before it.
    let callbacks = unsafe { Callbacks::new(&*callbacks) };
    // SAFETY: By the requirement above.
    let (device_name, ifname) = unsafe { (name(device_name), name(ifname)) };
    let add = || {
        // SAFETY: By the requirement above.
        let netns = unsafe { NetNs::of(NonNull::new(net).ok_or(EINVAL)?) };
        let ifname = ifname.ok_or(EINVAL)?;
        let link_name = LinkName::new(&device_name.unwrap_or(ifname))?;
        Device::add(&netns, link_name, IfName::new(&ifname)?, ifindex, callbacks)
    };
    handle(add())
}

/// Removes a device. Sleeps; takes the RTNL.
///
/// # Safety
///
/// The handle is valid by the interface, and not used any more.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_device_remove(device: *mut kfabric_verbs_device) {
    // SAFETY: By the requirement above.
    drop(unsafe { Arc::<Device>::from_foreign(device.cast()) });
}

/// Describes the port. Any context.
///
/// # Safety
///
/// The arguments are valid by the interface.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_device_port(
    device: *const kfabric_verbs_device,
    port: *mut kfabric_verbs_port,
) {
    // SAFETY: By the requirement above.
    let device = unsafe { Arc::<Device>::borrow(device.cast_mut().cast()) };
    let link = device.link();
    let now = kfabric_verbs_port {
        path_mtu: PathMtu::of_interface(link.mtu()).map_or(0, |mtu| mtu.code().into()),
        max_message: MAX_LEN,
        gone: link.state() == LinkState::Gone,
    };
    // SAFETY: By the requirement above.
    unsafe { port.write(now) };
}

/// Stores the first `count` statistics of the link, at most all, and returns how many there are.
/// Any context.
///
/// # Safety
///
/// The handle is valid by the interface; `values` has room for `count` values.
#[no_mangle]
unsafe extern "C" fn kfabric_verbs_device_stats(
    device: *const kfabric_verbs_device,
    values: *mut u64,
    count: u32,
) -> u32 {
    // SAFETY: By the requirement above.
    let device = unsafe { Arc::<Device>::borrow(device.cast_mut().cast()) };
    for (at, value) in device
        .link()
        .stats()
        .values()
        .into_iter()
        .take(count as usize)
        .enumerate()
    {
        // SAFETY: `at` is below `count`.
        unsafe { values.add(at).write(value) };
    }
    STATS as u32
}

/// The name of a statistic; null behind the last one. Any context.
#[no_mangle]
extern "C" fn kfabric_verbs_stat_name(number: u32) -> *const c_char {
    Stat::ALL
        .get(number as usize)
        .map_or(ptr::null(), |stat| stat.c_name().as_char_ptr())
}
