// SPDX-License-Identifier: GPL-2.0

//! The assertions of the suites of the module.
//!
//! The `assert!` that KUnit gives to a case ends the thread, without running destructors. Then the
//! link, the threads and the locks of the failed case stay, and the cases after it fail too. These
//! macros return an error from the case instead: its objects are dropped, and it fails alone. They
//! can be used in each function that returns a `Result`.

use crate::shim::bindings as shim;
use kernel::prelude::*;

/// Returns `EINVAL` from the current function if the condition is false, and reports the condition
/// and its place to KUnit.
macro_rules! ensure {
    ($condition:expr $(,)?) => {{
        let holds: bool = $condition;
        if !holds {
            return ::core::result::Result::Err($crate::kunit::ensure::failed(
                ::kernel::c_str!(::core::file!()),
                ::core::line!(),
                ::kernel::c_str!(::core::stringify!($condition)),
            ));
        }
    }};
}

/// Like [`ensure!`], with the condition that two values are equal.
macro_rules! ensure_eq {
    ($left:expr, $right:expr $(,)?) => {
        ensure!($left == $right)
    };
}

/// Reports a condition that does not hold to KUnit. Returns the error of the case. Process context.
pub(crate) fn failed(file: &CStr, line: u32, condition: &CStr) -> Error {
    // SAFETY: Both are strings that end with NUL, and are only read during the call.
    unsafe { shim::kfabric_kunit_failed(file.as_char_ptr(), line, condition.as_char_ptr()) };
    EINVAL
}
