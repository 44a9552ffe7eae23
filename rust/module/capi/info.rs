// SPDX-License-Identifier: GPL-2.0

//! Entries and hints of kfi_getinfo(): `struct kfi_info` and the types of `kfi_core`.
//!
//! Hints that cannot be read (a name or an address that is too long or of an unknown kind) match
//! nothing, so they give `ENODATA`.

use core::ptr;

use kernel::{
    prelude::*,
    str::CStr, //
};

use kfi_core::{
    addr::{
        SockAddr,
        AF_INET,
        AF_INET6,
        RAW_LEN, //
    },
    auth_key::AuthKey,
    enums::{
        AddrFormat,
        Threading, //
    },
    errno::Errno,
    info::{
        DomainAttr,
        EpAttr,
        FabricAttr,
        Info,
        KernelAttr,
        Name,
        RxAttr,
        TxAttr, //
    }, //
};

use super::{
    listed::OpenObjects,
    raw::{
        self,
        kfabric_capi_connreq,
        kfi_info,
        kfi_rx_attr,
        kfi_tx_attr, //
    }, //
};
use crate::shim::errno::to_error;

/// Bytes of a `struct sockaddr_in`.
pub(super) const SOCKADDR_IN_LEN: usize = 16;

/// Bytes of a `struct sockaddr_in6`.
pub(super) const SOCKADDR_IN6_LEN: usize = 28;

/// The part of a `struct sockaddr_in` that has a meaning. Padding follows.
const SOCKADDR_IN_USED: usize = 8;

/// A list of entries, freed when dropped.
///
/// # Invariants
///
/// Both are null; or `first` is a list of entries that this value owns, and `last` its last one.
pub(super) struct Entries {
    first: *mut kfi_info,
    last: *mut kfi_info,
}

impl Entries {
    /// An empty list.
    pub(super) const fn new() -> Self {
        // INVARIANT: Both are null.
        Self {
            first: ptr::null_mut(),
            last: ptr::null_mut(),
        }
    }

    /// Whether there is no entry.
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    /// Adds a list at the end, and owns it.
    ///
    /// # Safety
    ///
    /// `list` is null, or a list of entries that nobody else uses.
    pub(super) unsafe fn append(&mut self, list: *mut kfi_info) {
        let mut entry = list;
        while !entry.is_null() {
            if self.first.is_null() {
                self.first = entry;
            } else {
                // SAFETY: The last entry is valid by the type invariants.
                unsafe { (*self.last).next = entry };
            }
            // INVARIANT: The entry follows the last one, or is the first.
            self.last = entry;
            // SAFETY: Valid by the requirement above.
            entry = unsafe { (*entry).next };
        }
    }

    /// Adds an empty entry with all attributes. Fails with `ENOMEM`. Sleeps.
    fn add(&mut self) -> Result<&mut kfi_info> {
        // SAFETY: No requirements.
        let entry = unsafe { raw::kfi_allocinfo() };
        if entry.is_null() {
            return Err(ENOMEM);
        }
        // SAFETY: A new entry, without others after it. It stays valid while the list is borrowed.
        unsafe {
            self.append(entry);
            Ok(&mut *entry)
        }
    }

    /// Gives the first entry the handle of a request. Fails with `ENOMEM`. Sleeps.
    pub(super) fn add_connreq(&mut self, connreq: &kfabric_capi_connreq) -> Result {
        // SAFETY: The entry is owned by the type invariants, and valid: the caller added one.
        let entry = unsafe { raw::kfabric_capi_add_connreq(self.first, connreq) };
        if entry.is_null() {
            return Err(ENOMEM);
        }
        // INVARIANT: The entry has moved; it is the only one.
        (self.first, self.last) = (entry, entry);
        Ok(())
    }

    /// Gives the list to a consumer.
    pub(super) fn into_raw(self) -> *mut kfi_info {
        core::mem::ManuallyDrop::new(self).first
    }

    /// Adds an entry that tells only of a provider. Fails with `ENOMEM`. Sleeps.
    pub(super) fn add_provider(&mut self, name: &Name, version: u32) -> Result {
        let entry = self.add()?;
        // SAFETY: The entry has all attributes.
        let fabric = unsafe { &mut *entry.fabric_attr };
        fabric.prov_name = textdup(name)?;
        fabric.prov_version = version;
        Ok(())
    }

    /// Adds an entry, which refers to `objects`. Fails with `ENOMEM`. Sleeps.
    pub(super) fn add_info(
        &mut self,
        info: &Info,
        more: &KernelAttr,
        objects: &OpenObjects,
    ) -> Result {
        let entry = self.add()?;
        entry.caps = info.caps;
        entry.mode = info.mode;
        entry.addr_format = info.addr_format;
        (entry.src_addr, entry.src_addrlen) = addrdup(info.src_addr)?;
        (entry.dest_addr, entry.dest_addrlen) = addrdup(info.dest_addr)?;
        // SAFETY: The entry has all attributes, each in memory of its own.
        let (tx, rx, ep, domain, fabric) = unsafe {
            (
                &mut *entry.tx_attr,
                &mut *entry.rx_attr,
                &mut *entry.ep_attr,
                &mut *entry.domain_attr,
                &mut *entry.fabric_attr,
            )
        };
        // CASTS: A usize has 64 bits. Sizes and enumerators are at most those of the interface.
        put_tx(tx, &info.tx, more.tx_tclass);
        put_rx(rx, &info.rx);
        ep.type_ = info.ep.ep_type;
        ep.protocol = info.ep.protocol;
        ep.protocol_version = info.ep.protocol_version;
        ep.max_msg_size = info.ep.max_msg_size as usize;
        ep.mem_tag_format = info.ep.mem_tag_format;
        ep.tx_ctx_cnt = more.ep_tx_ctx_cnt as usize;
        ep.rx_ctx_cnt = more.ep_rx_ctx_cnt as usize;
        (ep.auth_key, ep.auth_key_size) = keydup(&info.ep)?;
        domain.threading = info.domain.threading;
        domain.control_progress = info.domain.control_progress;
        domain.data_progress = info.domain.data_progress;
        domain.resource_mgmt = info.domain.resource_mgmt;
        domain.av_type = info.domain.av_type;
        domain.mr_mode = info.domain.mr_mode as c_int;
        domain.mr_key_size = info.domain.mr_key_size as usize;
        domain.cq_data_size = info.domain.cq_data_size as usize;
        domain.cq_cnt = info.domain.cq_cnt as usize;
        domain.ep_cnt = info.domain.ep_cnt as usize;
        domain.tx_ctx_cnt = more.tx_ctx_cnt as usize;
        domain.rx_ctx_cnt = more.rx_ctx_cnt as usize;
        domain.max_ep_tx_ctx = more.max_ep_tx_ctx as usize;
        domain.max_ep_rx_ctx = more.max_ep_rx_ctx as usize;
        domain.max_ep_stx_ctx = more.max_ep_stx_ctx as usize;
        domain.max_ep_srx_ctx = more.max_ep_srx_ctx as usize;
        domain.cntr_cnt = info.domain.cntr_cnt as usize;
        domain.mr_iov_limit = info.domain.mr_iov_limit as usize;
        domain.caps = more.domain_caps;
        domain.max_err_data = more.max_err_data as usize;
        domain.mr_cnt = info.domain.mr_cnt as usize;
        domain.tclass = more.domain_tclass;
        (domain.domain, fabric.fabric) = (objects.domain, objects.fabric);
        fabric.prov_version = info.fabric.prov_version;
        fabric.api_version = info.fabric.api_version;
        domain.name = textdup(&info.domain.name)?;
        fabric.name = textdup(&info.fabric.name)?;
        fabric.prov_name = textdup(&info.fabric.prov_name)?;
        Ok(())
    }
}

impl Drop for Entries {
    fn drop(&mut self) {
        // SAFETY: The list is owned by the type invariants.
        unsafe { raw::kfi_freeinfo(self.first) }
    }
}

/// Stores attributes of a transmit side, and its traffic class, for the consumer: all members.
pub(super) fn put_tx(to: &mut kfi_tx_attr, tx: &TxAttr, tclass: u32) {
    // CASTS: A usize has 64 bits. Sizes are at most those of the interface.
    to.caps = tx.caps;
    to.mode = 0;
    to.op_flags = tx.op_flags;
    to.msg_order = tx.msg_order;
    to.comp_order = tx.comp_order;
    to.inject_size = tx.inject_size as usize;
    to.size = tx.size as usize;
    to.iov_limit = tx.iov_limit as usize;
    to.rma_iov_limit = tx.rma_iov_limit as usize;
    to.tclass = tclass;
}

/// Stores attributes of a receive side for the consumer: all members.
pub(super) fn put_rx(to: &mut kfi_rx_attr, rx: &RxAttr) {
    // CASTS: As above.
    to.caps = rx.caps;
    to.mode = 0;
    to.op_flags = rx.op_flags;
    to.msg_order = rx.msg_order;
    to.comp_order = rx.comp_order;
    to.total_buffered_recv = rx.total_buffered_recv as usize;
    to.size = rx.size as usize;
    to.iov_limit = rx.iov_limit as usize;
}

/// A copy of a name for an entry. Fails with `ENOMEM`. Sleeps.
fn textdup(name: &Name) -> Result<*mut c_char> {
    let bytes = name.as_bytes();
    // SAFETY: The bytes are valid.
    let text = unsafe { raw::kfabric_capi_textdup(bytes.as_ptr().cast(), bytes.len()) };
    if text.is_null() {
        return Err(ENOMEM);
    }
    Ok(text)
}

/// Bytes of an address in C.
pub(super) fn sockaddr_len(addr: &SockAddr) -> usize {
    match addr.ip() {
        core::net::IpAddr::V4(_) => SOCKADDR_IN_LEN,
        core::net::IpAddr::V6(_) => SOCKADDR_IN6_LEN,
    }
}

/// A copy of an address for an entry, and its length. Fails with `ENOMEM`. Sleeps.
fn addrdup(addr: Option<SockAddr>) -> Result<(*mut c_void, usize)> {
    let Some(addr) = addr else {
        return Ok((ptr::null_mut(), 0));
    };
    let len = sockaddr_len(&addr);
    let bytes = addr.to_raw();
    // SAFETY: There are at least `len` bytes.
    let copy = unsafe { raw::kfabric_capi_memdup(bytes.as_ptr().cast(), len) };
    if copy.is_null() {
        return Err(ENOMEM);
    }
    Ok((copy, len))
}

/// A copy of an authorization key for an entry, and its length. Fails with `ENOMEM`. Sleeps.
fn keydup(attr: &EpAttr) -> Result<(*mut u8, usize)> {
    if attr.auth_key_size == 0 {
        return Ok((ptr::null_mut(), 0));
    }
    let key = attr.auth_key.bytes();
    // SAFETY: The bytes are valid.
    let copy = unsafe { raw::kfabric_capi_memdup(key.as_ptr().cast(), key.len()) };
    if copy.is_null() {
        return Err(ENOMEM);
    }
    Ok((copy.cast(), key.len()))
}

/// An authorization key of a consumer. One whose length is not that of a key is not read:
/// [`EpAttr::key_for`] refuses it. Fails with `ENODATA` if there is a length without a key.
///
/// # Safety
///
/// `key` is null, or points to `len` bytes.
unsafe fn key(key: *const u8, len: usize) -> Result<AuthKey> {
    if len != AuthKey::LEN {
        return Ok(AuthKey::NONE);
    }
    // SAFETY: By the requirement above there are that many bytes, which need no alignment.
    let key = unsafe { key.cast::<[u8; AuthKey::LEN]>().as_ref() };
    key.copied().map(AuthKey::new).ok_or(ENODATA)
}

/// A name; empty for null. Fails with `EINVAL` if it is too long. Does not sleep.
///
/// # Safety
///
/// `text` is null, or a text with a NUL.
pub(super) unsafe fn text(text: *const c_char) -> Result<Name> {
    // SAFETY: By the requirement above.
    Name::new(unsafe { bytes(text) }).map_err(to_error)
}

/// The bytes of a text; none for null.
///
/// # Safety
///
/// `text` is null, or a text with a NUL, which lives during `'a`.
pub(super) unsafe fn bytes<'a>(text: *const c_char) -> &'a [u8] {
    if text.is_null() {
        return &[];
    }
    // SAFETY: By the requirement above.
    unsafe { CStr::from_char_ptr(text) }.to_bytes()
}

/// An address of a consumer; `None` for null. Fails with `ENODATA` if it is too short, or not an
/// address that the provider can have.
///
/// # Safety
///
/// `addr` is null, or points to `len` bytes.
pub(super) unsafe fn sockaddr(addr: *const c_void, len: usize) -> Result<Option<SockAddr>> {
    if addr.is_null() {
        return Ok(None);
    }
    let len = len.min(SOCKADDR_IN6_LEN);
    // SAFETY: By the requirement above.
    let bytes = unsafe { core::slice::from_raw_parts(addr.cast::<u8>(), len) };
    let family = match bytes {
        [a, b, ..] => u16::from_ne_bytes([*a, *b]),
        _ => return Err(ENODATA),
    };
    let used = match family {
        AF_INET if len >= SOCKADDR_IN_LEN => SOCKADDR_IN_USED,
        AF_INET6 if len >= SOCKADDR_IN6_LEN => SOCKADDR_IN6_LEN,
        _ => return Err(ENODATA),
    };
    let mut raw = [0; RAW_LEN];
    for (to, from) in raw.iter_mut().zip(bytes.iter().take(used)) {
        *to = *from;
    }
    SockAddr::from_raw(&raw).map(Some).map_err(|_| ENODATA)
}

/// Stores as much of an address as fits, and its length. Fails with `EINVAL` without `len`;
/// `KFI_ETOOSMALL` if it does not fit.
///
/// # Safety
///
/// `len` is null, or can be read and written. `addr` is null, or there is room for `*len` bytes.
pub(super) unsafe fn put_sockaddr(from: &SockAddr, addr: *mut c_void, len: *mut usize) -> Result {
    if len.is_null() {
        return Err(EINVAL);
    }
    let whole = sockaddr_len(from);
    // SAFETY: By the requirement above.
    let room = unsafe { ptr::replace(len, whole) };
    if !addr.is_null() {
        let raw = from.to_raw();
        // SAFETY: By the requirement above there is room for `room` bytes; there are at least
        // `whole` in `raw`, which is on this stack.
        unsafe { ptr::copy_nonoverlapping(raw.as_ptr(), addr.cast(), room.min(whole)) };
    }
    if addr.is_null() || room < whole {
        return Err(to_error(Errno::KFI_ETOOSMALL));
    }
    Ok(())
}

/// The threading that a provider must support. This one supports all, so the others count as the
/// strictest.
fn threading(hint: u32) -> u32 {
    match hint {
        raw::KFI_THREAD_FID..=raw::KFI_THREAD_ENDPOINT => Threading::Safe.into(),
        hint => hint,
    }
}

/// Reads attributes of the transmit side.
pub(super) fn tx_hint(tx: &kfi_tx_attr) -> TxAttr {
    // CASTS: A usize has 64 bits.
    TxAttr {
        caps: tx.caps,
        op_flags: tx.op_flags,
        msg_order: tx.msg_order,
        comp_order: tx.comp_order,
        inject_size: tx.inject_size as u64,
        size: tx.size as u64,
        iov_limit: tx.iov_limit as u64,
        rma_iov_limit: tx.rma_iov_limit as u64,
    }
}

/// Reads attributes of the receive side.
pub(super) fn rx_hint(rx: &kfi_rx_attr) -> RxAttr {
    // CASTS: A usize has 64 bits.
    RxAttr {
        caps: rx.caps,
        op_flags: rx.op_flags,
        msg_order: rx.msg_order,
        comp_order: rx.comp_order,
        total_buffered_recv: rx.total_buffered_recv as u64,
        size: rx.size as u64,
        iov_limit: rx.iov_limit as u64,
    }
}

/// Reads hints and the open objects that they name. They are large, so they are allocated and not
/// on the stack. Fails with `ENODATA` if they match no entry of this provider; `ENOMEM`. Sleeps.
///
/// # Safety
///
/// `hints` is null, or hints by the interface.
pub(super) unsafe fn hints(
    hints: *const kfi_info,
) -> Result<(KBox<(Info, KernelAttr)>, OpenObjects)> {
    let mut read = KBox::new((Info::ANY, KernelAttr::default()), GFP_KERNEL)?;
    let (info, more) = &mut *read;
    if hints.is_null() {
        return Ok((read, OpenObjects::NONE));
    }
    // SAFETY: By the requirement above, attributes that are not null are valid and do not change.
    let (hints, tx, rx, ep, domain, fabric) = unsafe {
        let hints = &*hints;
        (
            hints,
            hints.tx_attr.as_ref(),
            hints.rx_attr.as_ref(),
            hints.ep_attr.as_ref(),
            hints.domain_attr.as_ref(),
            hints.fabric_attr.as_ref(),
        )
    };
    // SAFETY: By the requirement above.
    let objects = unsafe { OpenObjects::of(hints) }?;
    info.caps = hints.caps;
    info.mode = hints.mode;
    info.addr_format = hints.addr_format;
    // SAFETY: By the requirement above, the address has the length that stands beside it.
    info.src_addr = unsafe { sockaddr(hints.src_addr, hints.src_addrlen) }?;
    // SAFETY: As above.
    info.dest_addr = unsafe { sockaddr(hints.dest_addr, hints.dest_addrlen) }?;
    if info.addr_format == u32::from(AddrFormat::Sockaddr) {
        info.addr_format = AddrFormat::Unspec.into();
    }
    // CASTS: A usize has 64 bits.
    if let Some(tx) = tx {
        info.tx = tx_hint(tx);
        more.tx_tclass = tx.tclass;
    }
    if let Some(rx) = rx {
        info.rx = rx_hint(rx);
    }
    if let Some(ep) = ep {
        info.ep = EpAttr {
            ep_type: ep.type_,
            protocol: ep.protocol,
            protocol_version: ep.protocol_version,
            max_msg_size: ep.max_msg_size as u64,
            mem_tag_format: ep.mem_tag_format,
            auth_key_size: ep.auth_key_size as u64,
            // SAFETY: By the requirement above, the key has the length that stands beside it.
            auth_key: unsafe { key(ep.auth_key, ep.auth_key_size) }?,
        };
        more.msg_prefix_size = ep.msg_prefix_size as u64;
        more.max_order_raw_size = ep.max_order_raw_size as u64;
        more.max_order_war_size = ep.max_order_war_size as u64;
        more.max_order_waw_size = ep.max_order_waw_size as u64;
        more.ep_tx_ctx_cnt = ep.tx_ctx_cnt as u64;
        more.ep_rx_ctx_cnt = ep.rx_ctx_cnt as u64;
    }
    if let Some(domain) = domain {
        let mut name = name(domain.name)?;
        if let Some(link) = objects.link {
            let link = Name::new(link.as_bytes()).map_err(to_error)?;
            if !name.is_empty() && name != link {
                return Err(ENODATA);
            }
            name = link;
        }
        info.domain = DomainAttr {
            name,
            threading: threading(domain.threading),
            control_progress: domain.control_progress,
            data_progress: domain.data_progress,
            resource_mgmt: domain.resource_mgmt,
            av_type: domain.av_type,
            mr_mode: domain.mr_mode as u32,
            mr_key_size: domain.mr_key_size as u64,
            cq_data_size: domain.cq_data_size as u64,
            cq_cnt: domain.cq_cnt as u64,
            ep_cnt: domain.ep_cnt as u64,
            cntr_cnt: domain.cntr_cnt as u64,
            mr_cnt: domain.mr_cnt as u64,
            mr_iov_limit: domain.mr_iov_limit as u64,
        };
        more.tx_ctx_cnt = domain.tx_ctx_cnt as u64;
        more.rx_ctx_cnt = domain.rx_ctx_cnt as u64;
        more.max_ep_tx_ctx = domain.max_ep_tx_ctx as u64;
        more.max_ep_rx_ctx = domain.max_ep_rx_ctx as u64;
        more.max_ep_stx_ctx = domain.max_ep_stx_ctx as u64;
        more.max_ep_srx_ctx = domain.max_ep_srx_ctx as u64;
        more.domain_caps = domain.caps;
        more.domain_auth_key_size = domain.auth_key_size as u64;
        more.max_err_data = domain.max_err_data as u64;
        more.domain_tclass = domain.tclass;
    }
    if let Some(fabric) = fabric {
        info.fabric = FabricAttr {
            name: name(fabric.name)?,
            prov_name: name(fabric.prov_name)?,
            prov_version: fabric.prov_version,
            api_version: fabric.api_version,
        };
    }
    Ok((read, objects))
}

/// A name of hints; see [`text`]. Fails with `ENODATA` if no entry can have it. The text is that of
/// valid hints.
fn name(text: *const c_char) -> Result<Name> {
    // SAFETY: `hints` calls this with texts of hints, which are valid by its requirement.
    unsafe { self::text(text) }.map_err(|_| ENODATA)
}
