// SPDX-License-Identifier: GPL-2.0

//! Operations that are not there yet. Each returns `-KFI_ENOSYS`.

/// Defines functions of tables of operations that return `-KFI_ENOSYS`.
macro_rules! not_there {
    ($( $name:ident($($arg:ty),* $(,)?) $(-> $ret:ty)?; )*) => {
        $( $crate::capi::absent::not_there!(@one $name($($arg),*) $(-> $ret)?); )*
    };
    (@one $name:ident($($arg:ty),*)) => {
        $crate::capi::absent::not_there!(@one $name($($arg),*) -> c_int);
    };
    (@one $name:ident($($arg:ty),*) -> $ret:ty) => {
        /// Not there yet.
        ///
        /// # Safety
        ///
        /// The requirements of the C interface: pointers are valid, and objects are open objects of
        /// this module.
        unsafe extern "C" fn $name($(_: $arg),*) -> $ret {
            ENOSYS.to_errno() as $ret
        }
    };
}

pub(super) use not_there;
