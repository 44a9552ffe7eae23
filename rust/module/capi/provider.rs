// SPDX-License-Identifier: GPL-2.0

//! The exported functions: providers, kfi_getinfo(), kfi_fabric().
//!
//! Providers are in the list of the [`registry`](crate::registry::providers): first the module's
//! own, then those that other modules register. A provider's callback is called with no lock held,
//! and with a reference to the provider. kfi_provider_deregister() takes the provider from the list
//! and waits until all references are gone.
//!
//! `shim/capi.c` exports the functions under their names, `shim/kfi_info.c` and `shim/kfi_text.c`
//! have those that need no provider.

use core::ptr::{
    self,
    NonNull, //
};

use kernel::{
    prelude::*,
    str::BStr,
    sync::Arc, //
};

use kfi_core::{
    errno::Errno,
    flags::KFI_SOURCE,
    info::{
        Name,
        Request, //
    },
    limits::API_VERSION, //
};

use super::{
    code,
    fabric,
    info::{
        bytes,
        hints as read_hints,
        text,
        Entries, //
    },
    listed,
    object::store,
    pep,
    raw::{
        self,
        kfi_fabric_attr,
        kfi_info,
        kfi_provider,
        kfid_fabric, //
    }, //
};
use crate::{
    net::NetNsId,
    registry::{
        self,
        providers::Providers, //
    },
    shim::errno::to_error, //
};

/// Flags of kfi_getinfo(). No names are looked up but those of links, which the second one
/// excludes.
const KFI_NUMERICHOST: u64 = 1 << 55;
const KFI_PROV_ATTR_ONLY: u64 = 1 << 54;
const FLAGS: u64 = KFI_SOURCE | KFI_NUMERICHOST | KFI_PROV_ATTR_ONLY;

/// A provider to call.
enum Backend {
    /// The module's own.
    Own,
    /// That of another module.
    Foreign(Foreign),
}

/// The provider of another module.
///
/// # Invariants
///
/// The provider is valid: this value has a reference to it.
struct Foreign(NonNull<kfi_provider>);

// SAFETY: The callbacks of a provider may be called by any task.
unsafe impl Send for Foreign {}

// SAFETY: The callbacks of a provider may be called by several tasks at the same time.
unsafe impl Sync for Foreign {}

impl Drop for Foreign {
    fn drop(&mut self) {
        // SAFETY: The reference is owned by the type invariants.
        unsafe { raw::kfabric_capi_provider_put(self.0.as_ptr()) }
    }
}

kernel::sync::global_lock! {
    // SAFETY: `Registration::new` initialises it before the module's init function returns, and
    // nothing can call the exported functions before.
    unsafe(uninit) static PROVIDERS: Mutex<Providers<Backend>> = Providers::new();
}

/// The front end. Dropping it removes the module's own provider; no consumer is left then, because
/// consumers keep the module loaded.
pub(crate) struct Registration;

impl Registration {
    /// Starts the front end, with the module's own provider as the first one. Fails with `ENOMEM`.
    /// Sleeps.
    ///
    /// # Safety
    ///
    /// Must be called once, before the module's init function returns.
    pub(crate) unsafe fn new() -> Result<Self> {
        // SAFETY: Called once, by the requirement above.
        unsafe {
            PROVIDERS.init();
            pep::init();
            listed::init();
        }
        let own = Arc::new(Backend::Own, GFP_KERNEL)?;
        let name = Name::new(registry::NAME).map_err(|_| EINVAL)?;
        let registered = PROVIDERS
            .lock()
            .register(name, registry::VERSION, own, |_| false);
        registered.map(|()| Self)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let all = core::mem::replace(&mut *PROVIDERS.lock(), Providers::new());
        drop(all);
        pep::exit();
        listed::exit();
    }
}

/// The arguments of kfi_getinfo() for one provider.
struct Query {
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *mut kfi_info,
}

/// Adds the entries of the module's own provider that fit.
///
/// # Safety
///
/// The arguments are valid by the interface.
unsafe fn own_getinfo(query: &Query, entries: &mut Entries) -> Result {
    let flags = query.flags & KFI_SOURCE;
    // SAFETY: By the requirement above.
    let (node, service) = unsafe { (bytes(query.node), bytes(query.service)) };
    // A node or a service that this provider cannot read is one that it does not have.
    let request = Request::new(query.version, flags, node, service).map_err(|_| ENODATA)?;
    if request.names_link() && query.flags & KFI_NUMERICHOST != 0 {
        return Err(ENODATA);
    }
    // SAFETY: By the requirement above.
    let has_handle = unsafe { query.hints.as_ref() }.is_some_and(|hints| !hints.handle.is_null());
    // Only the event of a request makes an entry with a handle.
    if has_handle {
        return Err(ENODATA);
    }
    // SAFETY: By the requirement above.
    let (hints, objects) = unsafe { read_hints(query.hints) }?;
    let (info, more) = &*hints;
    let netns = objects.netns.map_or_else(NetNsId::current, Ok)?;
    let mut found = Entries::new();
    registry::getinfo(netns, &request, info, |entry| {
        let kind = registry::kind_of(entry);
        match more.negotiate(kind, info.caps) {
            Ok(more) => found.add_info(entry, &more, &objects),
            Err(_) => Ok(()),
        }
    })?;
    if found.is_empty() {
        return Err(ENODATA);
    }
    // SAFETY: The list is owned by `found`, which gives it away.
    unsafe { entries.append(found.into_raw()) };
    Ok(())
}

impl Backend {
    /// Whether this is the provider of another module at this address.
    fn is(&self, provider: *const kfi_provider) -> bool {
        matches!(self, Self::Foreign(it) if ptr::eq(it.0.as_ptr(), provider))
    }

    /// Adds the entries of this provider that fit. Fails with `ENODATA` if there are none.
    ///
    /// # Safety
    ///
    /// The arguments are valid by the interface.
    unsafe fn getinfo(&self, query: &Query, entries: &mut Entries) -> Result {
        let Self::Foreign(foreign) = self else {
            // SAFETY: By the requirement above.
            return unsafe { own_getinfo(query, entries) };
        };
        // SAFETY: Valid by the type invariants. The callback does not change.
        let kgetinfo = unsafe { (*foreign.0.as_ptr()).kgetinfo }.ok_or(EINVAL)?;
        let mut found = ptr::null_mut();
        let (version, flags) = (query.version, query.flags);
        // SAFETY: A callback of a provider, with the arguments of the interface.
        let result = unsafe {
            kgetinfo(
                version,
                query.node,
                query.service,
                flags,
                query.hints,
                &mut found,
            )
        };
        kernel::error::to_result(result)?;
        // SAFETY: A provider that succeeds gives its entries away.
        unsafe { entries.append(found) };
        Ok(())
    }
}

/// The name of the provider that hints ask for, if they do. Fails with `ENODATA` for a name that no
/// provider can have.
///
/// # Safety
///
/// `hints` is null, or hints by the interface.
unsafe fn wanted(hints: *const kfi_info) -> Result<Option<Name>> {
    // SAFETY: By the requirement above.
    let name = unsafe {
        match hints.as_ref().and_then(|hints| hints.fabric_attr.as_ref()) {
            Some(fabric) => text(fabric.prov_name).map_err(|_| ENODATA)?,
            None => Name::EMPTY,
        }
    };
    Ok((!name.is_empty()).then_some(name))
}

/// [`kfabric_capi_getinfo`], for arguments that were looked at.
///
/// # Safety
///
/// The arguments are valid by the interface.
unsafe fn getinfo(query: &Query) -> Result<*mut kfi_info> {
    if query.version > API_VERSION {
        return Err(ENOSYS);
    }
    if query.flags & !FLAGS != 0 {
        return Err(to_error(Errno::KFI_EBADFLAGS));
    }
    // SAFETY: By the requirement above.
    let wanted = unsafe { wanted(query.hints) }?;
    let (mut entries, mut after) = (Entries::new(), 0);
    loop {
        let next = PROVIDERS.lock().next(after, wanted.as_ref());
        let Some((number, name, version, provider)) = next else {
            break;
        };
        after = number;
        if query.flags & KFI_PROV_ATTR_ONLY != 0 {
            entries.add_provider(&name, version)?;
            continue;
        }
        // SAFETY: By the requirement above.
        match unsafe { provider.getinfo(query, &mut entries) } {
            Ok(()) => {}
            Err(error) if error == ENODATA => {}
            // A list that lacks entries for want of memory would look like all that there is.
            Err(error) if error == ENOMEM => return Err(error),
            Err(error) => pr_warn!(
                "provider {}: getinfo fails: {}\n",
                BStr::from_bytes(name.as_bytes()),
                error.to_errno()
            ),
        }
    }
    if entries.is_empty() {
        return Err(ENODATA);
    }
    Ok(entries.into_raw())
}

/// kfi_getinfo().
///
/// # Safety
///
/// The arguments are valid by the interface.
#[no_mangle]
unsafe extern "C" fn kfabric_capi_getinfo(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *mut kfi_info,
    info: *mut *mut kfi_info,
) -> c_int {
    if info.is_null() {
        return EINVAL.to_errno();
    }
    let query = Query {
        version,
        node,
        service,
        flags,
        hints,
    };
    // SAFETY: By the requirement above.
    unsafe {
        *info = ptr::null_mut();
        store(info, getinfo(&query))
    }
}

/// kfi_fabric().
///
/// # Safety
///
/// The arguments are valid by the interface.
#[no_mangle]
unsafe extern "C" fn kfabric_capi_fabric(
    attr: *mut kfi_fabric_attr,
    fabric: *mut *mut kfid_fabric,
    context: *mut c_void,
) -> c_int {
    if attr.is_null() || fabric.is_null() {
        return EINVAL.to_errno();
    }
    // SAFETY: By the requirement above.
    let name = match unsafe { text((*attr).prov_name) } {
        Ok(name) if !name.is_empty() => name,
        _ => return EINVAL.to_errno(),
    };
    let Some(provider) = PROVIDERS.lock().find(&name) else {
        return ENODEV.to_errno();
    };
    match &*provider {
        // SAFETY: By the requirement above.
        Backend::Own => unsafe { store(fabric, fabric::open(attr, context)) },
        // SAFETY: The provider is valid by the type invariants, and its callback gets arguments by
        // the interface.
        Backend::Foreign(foreign) => unsafe {
            match (*foreign.0.as_ptr()).kfabric {
                Some(kfabric) => kfabric(attr, fabric, context),
                None => EINVAL.to_errno(),
            }
        },
    }
}

/// Registers the provider of another module.
///
/// # Safety
///
/// `provider` is null, or a provider by the interface.
unsafe fn register(provider: *mut kfi_provider) -> Result {
    let place = NonNull::new(provider).ok_or(EINVAL)?;
    // SAFETY: By the requirement above.
    let raw_provider = unsafe { &*provider };
    if raw_provider.kgetinfo.is_none() || raw_provider.kfabric.is_none() {
        return Err(EINVAL);
    }
    let version = raw_provider.kfi_version;
    if version > API_VERSION || version >> 16 != API_VERSION >> 16 {
        return Err(ENOSYS);
    }
    // SAFETY: By the requirement above.
    let name = unsafe { text(raw_provider.name) }?;
    let version = raw_provider.version;
    let mut providers = PROVIDERS.lock();
    // Registered already: its references must stay.
    if providers.contains(|other| other.is(provider)) {
        return Err(EEXIST);
    }
    // SAFETY: By the requirement above; nobody uses the references of a provider that is not
    // registered.
    unsafe { raw::kfabric_capi_provider_init(provider) };
    // INVARIANT: The first reference.
    let backend = Arc::new(Backend::Foreign(Foreign(place)), GFP_KERNEL)?;
    providers.register(name, version, backend, |other| {
        matches!(other, Backend::Foreign(_))
    })
}

/// kfi_provider_register().
///
/// # Safety
///
/// The arguments are valid by the interface.
#[no_mangle]
unsafe extern "C" fn kfabric_capi_provider_register(provider: *mut kfi_provider) -> c_int {
    // SAFETY: By the requirement above.
    code(unsafe { register(provider) })
}

/// kfi_provider_deregister().
///
/// # Safety
///
/// The arguments are valid by the interface.
#[no_mangle]
unsafe extern "C" fn kfabric_capi_provider_deregister(provider: *mut kfi_provider) -> c_int {
    let left = PROVIDERS.lock().deregister(|other| other.is(provider));
    match left {
        Ok(left) => drop(left),
        Err(error) => return code(Err(error)),
    }
    // SAFETY: By the requirement above, the provider lives until this call returns.
    unsafe {
        raw::kfabric_capi_provider_wait(provider);
        if let Some(cleanup) = (*provider).cleanup {
            cleanup();
        }
    }
    0
}
