// SPDX-License-Identifier: GPL-2.0

//! Connections of endpoints: fi_cm(3). All operations need process context and may sleep.

use core::slice;

use kernel::prelude::*;

use kfi_core::limits::{
    MAX_ACCEPT_DATA,
    MAX_CONNECT_DATA, //
};

use super::{
    absent,
    av::read_addr,
    code,
    info::put_sockaddr,
    object::inner,
    options::{
        getname,
        setname, //
    },
    raw::{
        kfi_ops_cm,
        kfid_ep, //
    }, //
};

/// The private data of a connection request, of which what is beyond `max` bytes is cut off:
/// fi_cm(3). Fails with `EINVAL` if there are none but a length.
///
/// # Safety
///
/// `param` is null, or points to `len` bytes, which live during `'a`.
pub(super) unsafe fn private<'a>(param: *const c_void, len: usize, max: usize) -> Result<&'a [u8]> {
    if len == 0 {
        return Ok(&[]);
    }
    if param.is_null() {
        return Err(EINVAL);
    }
    // SAFETY: By the requirement above there are at least as many bytes.
    Ok(unsafe { slice::from_raw_parts(param.cast(), len.min(max)) })
}

/// kfi_getpeer().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn getpeer(ep: *mut kfid_ep, addr: *mut c_void, len: *mut usize) -> c_int {
    // SAFETY: By the interface, `ep` is an open endpoint of this module.
    let peer = unsafe { inner(ep) }.endpoint.peer_addr();
    // SAFETY: By the interface, `len` and `addr` can be written.
    code(peer.and_then(|peer| unsafe { put_sockaddr(&peer, addr, len) }))
}

/// kfi_connect(). Without an address the peer is that of the endpoint's entry.
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn connect(
    ep: *mut kfid_ep,
    addr: *const c_void,
    param: *const c_void,
    len: usize,
) -> c_int {
    let connect = || {
        // SAFETY: By the interface, `ep` is an open endpoint of this module, and `param` points to
        // `len` bytes.
        let (ep, private) = unsafe { (inner(ep), private(param, len, MAX_CONNECT_DATA)?) };
        let peer = match addr.is_null() {
            true => ep.dest_addr.ok_or(EINVAL)?,
            // SAFETY: By the interface, `addr` points to an address, whose family tells its length.
            false => unsafe { read_addr(addr.cast()) }?,
        };
        ep.endpoint.connect(peer, private)
    };
    code(connect())
}

/// kfi_accept().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn accept(ep: *mut kfid_ep, param: *const c_void, len: usize) -> c_int {
    let accept = || {
        // SAFETY: By the interface, `ep` is an open endpoint of this module, and there are `len`
        // bytes.
        let (ep, private) = unsafe { (inner(ep), private(param, len, MAX_ACCEPT_DATA)?) };
        let request = ep.request.as_ref().ok_or(EINVAL)?;
        ep.endpoint.accept(&request.pep, request.id, private)
    };
    code(accept())
}

/// kfi_shutdown().
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn shutdown(ep: *mut kfid_ep, flags: u64) -> c_int {
    if flags != 0 {
        return EINVAL.to_errno();
    }
    // SAFETY: By the interface, `ep` is an open endpoint of this module.
    code(unsafe { inner(ep) }.endpoint.shutdown())
}

/// The operations of fi_cm(3) that an endpoint has.
pub(super) static OPS: kfi_ops_cm = kfi_ops_cm {
    setname: Some(setname::<kfid_ep>),
    getname: Some(getname::<kfid_ep>),
    getpeer: Some(getpeer),
    connect: Some(connect),
    accept: Some(accept),
    shutdown: Some(shutdown),
    ..absent::CM
};
