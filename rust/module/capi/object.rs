// SPDX-License-Identifier: GPL-2.0

//! What all objects have: their memory, their class, closing.
//!
//! An object's memory is a [`Boxed`]: the C structure, of which the consumer has the address, and
//! the Rust value behind it. The address of the structure is that of its `struct kfid` and that of
//! the memory.
//!
//! A consumer may pass an object of another class or of another provider where the interface has a
//! `struct kfid *`. [`of_class`] recognises the module's own by the address of their table of
//! operations.

use core::{
    mem::MaybeUninit,
    ptr, //
};

use kernel::prelude::*;

use super::{
    absent,
    code,
    opened::Counted,
    raw::{
        kfi_ops,
        kfid, //
    },
    Opener, //
};

/// A C structure of an object. [`impl_head!`] implements it.
///
/// # Safety
///
/// The type is `repr(C)`, begins with a `struct kfid`, and is valid if all its bytes are 0.
/// `fid_ops` is the table of this class only.
pub(super) unsafe trait Head: Sized {
    /// The value behind it.
    type Inner: Inner;

    /// KFI_CLASS_*.
    const CLASS: u32;

    /// The operations that all objects have.
    fn fid_ops() -> &'static kfi_ops;

    /// Whether objects of KFI_CLASS_* `class` have this structure and this value behind it.
    fn has_class(class: u32) -> bool {
        class == Self::CLASS
    }
}

/// Implements [`Head`] for the C structure of a class, and makes its table of operations. `or`
/// names other classes whose objects have this structure and this value too.
///
/// # Safety
///
/// The type is as [`Head`] requires.
macro_rules! impl_head {
    (unsafe impl Head for $head:ty {
        type Inner = $inner:ty;
        CLASS = $class:path $(, or $($other:path)|+)?;
        fid_ops = $fid_ops:expr;
    }) => {
        // SAFETY: By the requirement above. The table has no other user.
        unsafe impl $crate::capi::object::Head for $head {
            type Inner = $inner;

            const CLASS: u32 = $class;

            fn fid_ops() -> &'static $crate::capi::raw::kfi_ops {
                static FID_OPS: $crate::capi::raw::kfi_ops = $fid_ops;
                &FID_OPS
            }

            $(
                fn has_class(class: u32) -> bool {
                    class == $class $(|| class == $other)+
                }
            )?
        }
    };
}
pub(super) use impl_head;

/// The value behind a C structure.
pub(super) trait Inner {
    /// Closes the provider's object. Fails with `EBUSY` if it is in use. Sleeps.
    fn close(&self) -> Result;
}

/// The memory of an object.
#[repr(C)]
struct Boxed<H: Head> {
    head: H,
    inner: H::Inner,
    _counted: Counted,
}

/// Memory for an object that is being opened.
pub(super) struct Slot<H: Head> {
    memory: KBox<MaybeUninit<Boxed<H>>>,
    class: u32,
    counted: Counted,
}

impl<H: Head> Slot<H> {
    /// Allocates it. Fails with `ENOMEM`. Sleeps.
    pub(super) fn new(opener: &Opener) -> Result<Self> {
        Self::of_class(opener, H::CLASS)
    }

    /// Allocates it for an object of `class`, one of those with this structure. Fails with `EINVAL`
    /// for another class, `ENOMEM`. Sleeps.
    pub(super) fn of_class(opener: &Opener, class: u32) -> Result<Self> {
        if !H::has_class(class) {
            return Err(EINVAL);
        }
        Ok(Self {
            memory: KBox::new_uninit(GFP_KERNEL_ACCOUNT)?,
            class,
            counted: opener.opened.count(class),
        })
    }

    /// The address that the object will have, by which the provider knows it.
    pub(super) fn addr(&self) -> u64 {
        self.memory.as_ptr().expose_provenance() as u64
    }

    /// Makes the object, and returns it for the consumer. `fill` sets the fields of the C structure
    /// besides its head.
    pub(super) fn fill(
        self,
        context: *mut c_void,
        inner: H::Inner,
        fill: impl FnOnce(&mut H),
    ) -> *mut H {
        // SAFETY: Zeros are a valid value by the requirements of the trait.
        let mut head: H = unsafe { MaybeUninit::zeroed().assume_init() };
        let fid: *mut kfid = ptr::from_mut(&mut head).cast();
        // SAFETY: `head` begins with a `struct kfid` by the requirements of the trait.
        unsafe {
            (*fid).fclass = self.class as usize;
            (*fid).context = context;
            (*fid).ops = ptr::from_ref(H::fid_ops()).cast_mut();
        }
        fill(&mut head);
        let object = Boxed {
            head,
            inner,
            _counted: self.counted,
        };
        KBox::into_raw(KBox::write(self.memory, object)).cast()
    }
}

/// The value behind an object.
///
/// # Safety
///
/// `head` is an object of this class of the module, or of another class with the same layout and
/// the same value, which is not closed during `'a`.
#[inline]
pub(super) unsafe fn inner<'a, H: Head>(head: *mut H) -> &'a H::Inner {
    // SAFETY: A `Slot` has made the object, so it is a `Boxed<H>`, or has the layout of one, alive
    // by the requirement above. There is no mutable reference to it.
    unsafe { &(*head.cast::<Boxed<H>>()).inner }
}

/// The value behind an object if it is of this class and of this module. Fails with `EINVAL`
/// otherwise.
///
/// # Safety
///
/// `fid` is null, or an object of any class and any provider, which is not closed during `'a`.
pub(super) unsafe fn of_class<'a, H: Head>(fid: *mut kfid) -> Result<&'a H::Inner> {
    if fid.is_null() {
        return Err(EINVAL);
    }
    // SAFETY: `fid` is an object by the requirement above. Its head does not change.
    let (class, ops) = unsafe { ((*fid).fclass, (*fid).ops) };
    if !u32::try_from(class).is_ok_and(H::has_class) || !ptr::eq(ops, H::fid_ops()) {
        return Err(EINVAL);
    }
    // SAFETY: The table of operations belongs to this class of the module only, by the requirements
    // of the trait. The object is alive by the requirement above.
    Ok(unsafe { inner::<H>(fid.cast()) })
}

/// Stores an object for the consumer.
///
/// # Safety
///
/// `to` can be written.
pub(super) unsafe fn store<H>(to: *mut *mut H, object: Result<*mut H>) -> c_int {
    match object {
        Ok(object) => {
            // SAFETY: By the requirement above.
            unsafe { *to = object };
            0
        }
        Err(error) => code(Err(error)),
    }
}

/// kfi_close(): frees the object unless it is in use.
///
/// # Safety
///
/// The requirements of the C interface: pointers are valid, and objects are open objects of this
/// module.
unsafe extern "C" fn close<H: Head>(fid: *mut kfid) -> c_int {
    // SAFETY: The slot of this function is in a table of this class, so `fid` is of this class. By
    // the interface it is open.
    if let Err(error) = unsafe { inner::<H>(fid.cast()) }.close() {
        return code(Err(error));
    }
    // SAFETY: `Slot::fill` has leaked this box. By the interface the consumer does not use the
    // object any more, and the provider has closed it.
    drop(unsafe { KBox::from_raw(fid.cast::<Boxed<H>>()) });
    0
}

/// kfi_ep_bind() and the like of a class.
pub(super) type Bind = unsafe extern "C" fn(*mut kfid, *mut kfid, u64) -> c_int;

/// kfi_control() of a class.
pub(super) type Control = unsafe extern "C" fn(*mut kfid, c_int, *mut c_void) -> c_int;

/// The operations that all objects of a class have; nothing can be bound to them.
pub(super) const fn fid_ops<H: Head>(control: Option<Control>) -> kfi_ops {
    kfi_ops {
        close: Some(close::<H>),
        control: match control {
            Some(control) => Some(control),
            None => absent::FID.control,
        },
        ..absent::FID
    }
}

/// The same for a class whose objects are bound to others.
pub(super) const fn bound_fid_ops<H: Head>(bind: Bind, control: Control) -> kfi_ops {
    kfi_ops {
        bind: Some(bind),
        ..fid_ops::<H>(Some(control))
    }
}
